/* MD5 (RFC 1321) of many messages in parallel.

   One MD5 cannot be made faster than its chain of 64 dependent steps a block, but 32 of them can run in the
   time of one or two: every variable below holds the same variable of 32 messages ("lanes"), or of 16 where
   no more are under way. GCC and Clang turn the plain arithmetic on such a vector into whatever the machine
   has (SSE2, AVX2, AVX-512, NEON). For little-endian machines, as wire.h.

   Promises: reads exactly the bytes of the messages, writes exactly 16 bytes per message. */

#ifndef KPL_MD5_H
#define KPL_MD5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"

#define KPL_LANES 32
#define KPL_HALF (KPL_LANES / 2)
typedef uint32_t kpl_lanes __attribute__((vector_size(4 * KPL_LANES)));
typedef uint32_t kpl_half __attribute__((vector_size(4 * KPL_HALF)));
typedef uint32_t kpl_quad __attribute__((vector_size(16)));
#define KPL_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define KPL_PICK(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
#define KPL_PICK(x, y, a, b, c, d) __builtin_shuffle(x, y, (kpl_quad){a, b, c, d})
#endif
#pragma GCC diagnostic ignored "-Wpsabi" /* no vector crosses a real call */

#define KPL_BLOCK 64
#define KPL_AHEAD 256 /* bytes that are asked for before they are read: no machine sees so many streams itself */

typedef struct {
    const uint8_t *data;
    size_t size;
    uint8_t *digest; /* 16 bytes, written by kpl_md5_many */
} kpl_message;

#define KPL_F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define KPL_G(x, y, z) (((x) & (z)) | ((y) & ~(z)))
#define KPL_H(x, y, z) ((x) ^ (y) ^ (z))
#define KPL_I(x, y, z) ((y) ^ ((x) | ~(z)))
#define KPL_STEP(f, a, b, c, d, i, s, k)              \
    a += f(b, c, d) + (w[i] + (uint32_t)(k));         \
    a = b + ((a << (s)) | (a >> (32 - (s))))
#define KPL_FOUR(f, i0, s0, k0, i1, s1, k1, i2, s2, k2, i3, s3, k3) \
    KPL_STEP(f, a, b, c, d, i0, s0, k0);                            \
    KPL_STEP(f, d, a, b, c, i1, s1, k1);                            \
    KPL_STEP(f, c, d, a, b, i2, s2, k2);                            \
    KPL_STEP(f, b, c, d, a, i3, s3, k3)

#define KPL_ROUNDS                                                                                       \
    KPL_FOUR(KPL_F, 0, 7, 0xd76aa478, 1, 12, 0xe8c7b756, 2, 17, 0x242070db, 3, 22, 0xc1bdceee);          \
    KPL_FOUR(KPL_F, 4, 7, 0xf57c0faf, 5, 12, 0x4787c62a, 6, 17, 0xa8304613, 7, 22, 0xfd469501);          \
    KPL_FOUR(KPL_F, 8, 7, 0x698098d8, 9, 12, 0x8b44f7af, 10, 17, 0xffff5bb1, 11, 22, 0x895cd7be);        \
    KPL_FOUR(KPL_F, 12, 7, 0x6b901122, 13, 12, 0xfd987193, 14, 17, 0xa679438e, 15, 22, 0x49b40821);      \
    KPL_FOUR(KPL_G, 1, 5, 0xf61e2562, 6, 9, 0xc040b340, 11, 14, 0x265e5a51, 0, 20, 0xe9b6c7aa);          \
    KPL_FOUR(KPL_G, 5, 5, 0xd62f105d, 10, 9, 0x02441453, 15, 14, 0xd8a1e681, 4, 20, 0xe7d3fbc8);         \
    KPL_FOUR(KPL_G, 9, 5, 0x21e1cde6, 14, 9, 0xc33707d6, 3, 14, 0xf4d50d87, 8, 20, 0x455a14ed);          \
    KPL_FOUR(KPL_G, 13, 5, 0xa9e3e905, 2, 9, 0xfcefa3f8, 7, 14, 0x676f02d9, 12, 20, 0x8d2a4c8a);         \
    KPL_FOUR(KPL_H, 5, 4, 0xfffa3942, 8, 11, 0x8771f681, 11, 16, 0x6d9d6122, 14, 23, 0xfde5380c);        \
    KPL_FOUR(KPL_H, 1, 4, 0xa4beea44, 4, 11, 0x4bdecfa9, 7, 16, 0xf6bb4b60, 10, 23, 0xbebfbc70);         \
    KPL_FOUR(KPL_H, 13, 4, 0x289b7ec6, 0, 11, 0xeaa127fa, 3, 16, 0xd4ef3085, 6, 23, 0x04881d05);         \
    KPL_FOUR(KPL_H, 9, 4, 0xd9d4d039, 12, 11, 0xe6db99e5, 15, 16, 0x1fa27cf8, 2, 23, 0xc4ac5665);        \
    KPL_FOUR(KPL_I, 0, 6, 0xf4292244, 7, 10, 0x432aff97, 14, 15, 0xab9423a7, 5, 21, 0xfc93a039);         \
    KPL_FOUR(KPL_I, 12, 6, 0x655b59c3, 3, 10, 0x8f0ccc92, 10, 15, 0xffeff47d, 1, 21, 0x85845dd1);        \
    KPL_FOUR(KPL_I, 8, 6, 0x6fa87e4f, 15, 10, 0xfe2ce6e0, 6, 15, 0xa3014314, 13, 21, 0x4e0811a1);        \
    KPL_FOUR(KPL_I, 4, 6, 0xf7537e82, 11, 10, 0xbd3af235, 2, 15, 0x2ad7d2bb, 9, 21, 0xeb86d391)

static const uint32_t kpl_md5_initial[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

/* `blocks` blocks of the message in one lane; its pointer moves on behind them. */
static void kpl_md5_one(uint32_t *state, const uint8_t **at, size_t blocks) {
    uint32_t a = state[0], b = state[KPL_LANES], c = state[2 * KPL_LANES], d = state[3 * KPL_LANES];
    for (; blocks > 0; blocks--, *at += KPL_BLOCK) {
        const uint32_t a0 = a, b0 = b, c0 = c, d0 = d;
        uint32_t w[16];
        memcpy(w, *at, KPL_BLOCK);
        KPL_ROUNDS;
        a += a0, b += b0, c += c0, d += d0;
    }
    state[0] = a, state[KPL_LANES] = b, state[2 * KPL_LANES] = c, state[3 * KPL_LANES] = d;
}

/* The 16 words of one block of every lane, word by word: read four by four, then rows become columns. */
KPL_INLINE void kpl_md5_words(uint32_t *w, const uint8_t **at, const int lanes) {
    for (int lane = 0; lane < lanes; lane += 4) {
        for (int i = 0; i < 16; i += 4) {
            uint32_t *to = w + i * lanes + lane;
            kpl_quad a, b, c, d, low, high, four;
            memcpy(&a, at[lane] + 4 * i, 16);
            memcpy(&b, at[lane + 1] + 4 * i, 16);
            memcpy(&c, at[lane + 2] + 4 * i, 16);
            memcpy(&d, at[lane + 3] + 4 * i, 16);
            low = KPL_PICK(a, b, 0, 4, 1, 5), high = KPL_PICK(c, d, 0, 4, 1, 5);
            four = KPL_PICK(low, high, 0, 1, 4, 5), memcpy(to, &four, 16);
            four = KPL_PICK(low, high, 2, 3, 6, 7), memcpy(to + lanes, &four, 16);
            low = KPL_PICK(a, b, 2, 6, 3, 7), high = KPL_PICK(c, d, 2, 6, 3, 7);
            four = KPL_PICK(low, high, 0, 1, 4, 5), memcpy(to + 2 * lanes, &four, 16);
            four = KPL_PICK(low, high, 2, 3, 6, 7), memcpy(to + 3 * lanes, &four, 16);
        }
    }
}

/* `blocks` blocks of so many lanes; the pointers move on behind them. */
#define KPL_MD5_BLOCKS(name, kind, lanes)                                               \
    KPL_INLINE void name(uint32_t *state, const uint8_t **at, size_t blocks) {          \
        kind a, b, c, d;                                                                \
        memcpy(&a, state, sizeof a), memcpy(&b, state + KPL_LANES, sizeof a);           \
        memcpy(&c, state + 2 * KPL_LANES, sizeof a), memcpy(&d, state + 3 * KPL_LANES, sizeof a); \
        for (; blocks > 0; blocks--) {                                                  \
            kind w[16];                                                                 \
            const kind a0 = a, b0 = b, c0 = c, d0 = d;                                  \
            kpl_md5_words((uint32_t *)w, at, lanes);                                    \
            for (int lane = 0; lane < lanes; lane++) {                                  \
                at[lane] += KPL_BLOCK;                                                  \
                __builtin_prefetch((const void *)((uintptr_t)at[lane] + KPL_AHEAD));    \
            }                                                                           \
            KPL_ROUNDS;                                                                 \
            a += a0, b += b0, c += c0, d += d0;                                         \
        }                                                                               \
        memcpy(state, &a, sizeof a), memcpy(state + KPL_LANES, &b, sizeof a);           \
        memcpy(state + 2 * KPL_LANES, &c, sizeof a), memcpy(state + 3 * KPL_LANES, &d, sizeof a); \
    }
KPL_MD5_BLOCKS(kpl_md5_all, kpl_lanes, KPL_LANES)
KPL_MD5_BLOCKS(kpl_md5_half, kpl_half, KPL_HALF)

/* The lower half of the lanes, or all. */
typedef void (*kpl_md5_run)(uint32_t *, const uint8_t **, size_t, bool);

static void kpl_md5_plain(uint32_t *state, const uint8_t **at, size_t blocks, bool all) {
    kpl_md5_half(state, at, blocks);
    if (all) kpl_md5_half(state + KPL_HALF, at + KPL_HALF, blocks);
}

#ifdef __x86_64__
/* Measured on a Zen 5 core with GCC 12, GB/s of 32 and of 16 messages: hashlib 0.8 and 0.8, SSE2 3.4 and 3.4,
   AVX2 6.5 and 4.4, AVX-512 11.3 and 5.6 (a step waits for the step before it). */
__attribute__((target("avx2"))) static void kpl_md5_avx2(uint32_t *state, const uint8_t **at, size_t blocks,
                                                         bool all) {
    if (all)
        kpl_md5_all(state, at, blocks);
    else
        kpl_md5_half(state, at, blocks);
}

__attribute__((target("avx512f,avx512bw,avx512vl"))) static void kpl_md5_avx512(
    uint32_t *state, const uint8_t **at, size_t blocks, bool all) {
    if (all)
        kpl_md5_all(state, at, blocks);
    else
        kpl_md5_half(state, at, blocks);
}
#endif

static kpl_md5_run kpl_md5_choose(void) {
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return kpl_md5_avx512;
    if (__builtin_cpu_supports("avx2")) return kpl_md5_avx2;
#endif
    return kpl_md5_plain;
}

typedef struct {
    kpl_message *message; /* NULL: the lane is idle */
    size_t blocks;        /* whole blocks left before the tail */
    size_t tail_blocks;   /* 1 or 2 padded blocks; 0 after they have been started */
    uint8_t tail[2 * KPL_BLOCK];
} kpl_lane;

/* The last bytes of the message, the bit 1, zeros and the length in bits: one or two blocks. */
KPL_INLINE void kpl_md5_tail(uint8_t *tail, const kpl_message *message, size_t rest, size_t blocks) {
    const uint64_t bits = (uint64_t)message->size * 8;
    memset(tail, 0, blocks * KPL_BLOCK);
    kpl_copy(tail, message->data + (message->size - rest), rest);
    tail[rest] = 0x80;
    memcpy(tail + blocks * KPL_BLOCK - 8, &bits, 8);
}

static void kpl_md5_begin(kpl_lane *lane, kpl_message *message) {
    const size_t rest = message->size % KPL_BLOCK;
    lane->message = message;
    lane->blocks = message->size / KPL_BLOCK;
    lane->tail_blocks = rest < 56 ? 1 : 2;
    kpl_md5_tail(lane->tail, message, rest, lane->tail_blocks);
}

/* Prefetch: small messages begin in memory that is not in the cache yet. */
static void kpl_md5_announce(const kpl_message *message) {
    for (size_t i = 0; i < message->size && i < 2048; i += 64) __builtin_prefetch(message->data + i);
}

static void kpl_md5_store(uint8_t *digest, const uint32_t *state) {
    for (int j = 0; j < 4; j++) memcpy(digest + 4 * j, state + j * KPL_LANES, 4);
}

/* How many of the first messages have one block each (keys have) and fill all lanes; their digests. */
static size_t kpl_md5_short(kpl_message *messages, size_t count, kpl_md5_run run) {
    size_t done = 0;
    for (; count - done >= KPL_LANES; done += KPL_LANES) {
        uint8_t tails[KPL_LANES][KPL_BLOCK];
        const uint8_t *at[KPL_LANES];
        uint32_t state[4 * KPL_LANES];
        kpl_message *some = messages + done;
        for (int i = 0; i < KPL_LANES; i++)
            if (some[i].size >= 56) return done;
        for (int i = 0; i < KPL_LANES; i++) {
            kpl_md5_tail(tails[i], &some[i], some[i].size, 1);
            at[i] = tails[i];
        }
        for (int j = 0; j < 4; j++)
            for (int i = 0; i < KPL_LANES; i++) state[j * KPL_LANES + i] = kpl_md5_initial[j];
        run(state, at, 1, true);
        for (int i = 0; i < KPL_LANES; i++) kpl_md5_store(some[i].digest, state + i);
    }
    return done;
}

/* Digests of `count` messages, which keep their own order; a lane that has finished takes the next one. */
static void kpl_md5_many(kpl_message *messages, size_t count) {
    kpl_lane lanes[KPL_LANES];
    const uint8_t *at[KPL_LANES];
    size_t left[KPL_LANES]; /* blocks until the lane's pointer has to change */
    uint32_t state[4 * KPL_LANES];
    const kpl_md5_run run = kpl_md5_choose();
    size_t next = kpl_md5_short(messages, count, run), busy = 0;

    for (int i = 0; i < KPL_LANES; i++) lanes[i].message = NULL, left[i] = 0, at[i] = NULL;
    memset(state, 0, sizeof state);
    for (;;) {
        size_t steps = SIZE_MAX;
        int last = 0; /* the last busy lane */
        for (int i = 0; i < KPL_LANES; i++) {
            kpl_lane *lane = &lanes[i];
            if (left[i] == 0 && lane->message != NULL && lane->tail_blocks > 0) {
                at[i] = lane->tail, left[i] = lane->tail_blocks, lane->tail_blocks = 0;
            } else if (left[i] == 0) {
                if (lane->message != NULL) {
                    kpl_md5_store(lane->message->digest, state + i);
                    lane->message = NULL, busy--;
                }
                if (next < count) {
                    if (next + KPL_LANES < count) kpl_md5_announce(&messages[next + KPL_LANES]);
                    kpl_md5_begin(lane, &messages[next++]), busy++;
                    for (int j = 0; j < 4; j++) state[j * KPL_LANES + i] = kpl_md5_initial[j];
                    at[i] = lane->message->data, left[i] = lane->blocks;
                    if (left[i] == 0) at[i] = lane->tail, left[i] = lane->tail_blocks, lane->tail_blocks = 0;
                }
            }
            if (left[i]) last = i;
            if (left[i] && left[i] < steps) steps = left[i];
        }
        if (busy == 0) return;
        if (busy == 1) { /* one message alone is twice as fast without lanes */
            kpl_md5_one(state + last, &at[last], steps);
        } else { /* an idle lane repeats the work of a busy one */
            const uint8_t *filler = at[last];
            for (int i = 0; i < KPL_LANES; i++)
                if (!left[i]) at[i] = filler;
            run(state, at, steps, last >= KPL_HALF);
        }
        for (int i = 0; i < KPL_LANES; i++)
            if (left[i]) left[i] -= steps;
    }
}

#endif
