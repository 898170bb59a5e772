/* Untrusted bytes -> rows and texts. Strict by spec/01-aggregated-record.md (MSG), and smaller: what is
   rare (tags, unknown fields, groups, signs in explicit hash keys) is left to wire.py as "not certain".

   No Python here: fuzz/native runs this very file under the sanitizers.

   Promises: a byte is read only below the `end` that stands beside its pointer; a size is compared with
   `end - p`, never added to a pointer first; nothing is written but the tables of a kpl_content. */

#ifndef KPL_WIRE_H
#define KPL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KPL_NONE 0xFFFFFFFFu /* an index beyond every table: the row has none */
#define KPL_FRAME_OVERHEAD 20
#define KPL_MAX_KEY_POINTS 256
#define KPL_MAX_DECIMAL_DIGITS 39
#define KPL_READ_AHEAD 512
#define KPL_PREFETCH(address) __builtin_prefetch((const void *)(address))

#if !defined(__GNUC__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GCC or Clang, little-endian; elsewhere Python works without this"
#endif

typedef enum { KPL_NO_MEMORY = -1, KPL_NOT_CERTAIN = 0, KPL_SOUND = 1 } kpl_answer;

typedef struct {
    const uint8_t *at;
    uint32_t size;
    uint32_t frame; /* index of the Kinesis record whose table has it */
} kpl_text;

typedef struct {
    const uint8_t *data;
    uint32_t size;
    uint32_t pk;
    uint32_t ehk;
    uint32_t frame;
} kpl_row;

typedef struct {
    kpl_row *at;
    size_t count, room;
} kpl_rows;

typedef struct {
    kpl_text *at;
    size_t count, room;
} kpl_texts;

/* What has been read so far, from one message or many. Starts as zeros. */
typedef struct {
    kpl_rows rows;
    kpl_texts pks, ehks;
} kpl_content;

/* `at` with twice the room. NULL if there is no memory; then `at` is unchanged. */
static inline void *kpl_grow(void *at, size_t *room, size_t item) {
    size_t wanted = *room ? *room * 2 : 256;
    void *moved = wanted < KPL_NONE ? realloc(at, wanted * item) : NULL;
    if (moved != NULL) *room = wanted;
    return moved;
}

static inline bool kpl_add_row(kpl_rows *rows, const kpl_row *row) {
    if (rows->count == rows->room) {
        void *moved = kpl_grow(rows->at, &rows->room, sizeof *rows->at);
        if (moved == NULL) return false;
        rows->at = (kpl_row *)moved;
    }
    rows->at[rows->count++] = *row;
    return true;
}

static inline bool kpl_add_text(kpl_texts *texts, const uint8_t *at, size_t size, size_t frame) {
    if (texts->count == texts->room) {
        void *moved = kpl_grow(texts->at, &texts->room, sizeof *texts->at);
        if (moved == NULL) return false;
        texts->at = (kpl_text *)moved;
    }
    kpl_text *text = &texts->at[texts->count++];
    text->at = at, text->size = (uint32_t)size, text->frame = (uint32_t)frame;
    return true;
}

static inline void kpl_free_content(kpl_content *c) {
    free(c->rows.at);
    free(c->pks.at);
    free(c->ehks.at);
}

/* Contents that nobody uses, for the next reader: the kernel hands out new memory page by page and fills each with
   zeros. A place is emptied and filled in one step, so threads share them without a lock. */
#ifndef KPL_NO_SPARES /* fuzz/sanitize.py has none, to see what is used after it was freed */
enum { KPL_SPARES = 4, KPL_LARGEST_SPARE = 1 << 23 /* bytes */ };
static kpl_content *kpl_spares[KPL_SPARES];

/* Sets `c` to an empty content, with a spare one's room if there is one. */
static inline void kpl_take_content(kpl_content *c) {
    for (int i = 0; i < KPL_SPARES; i++) {
        kpl_content *spare = __atomic_exchange_n(&kpl_spares[i], NULL, __ATOMIC_ACQ_REL);
        if (spare == NULL) continue;
        *c = *spare;
        c->rows.count = c->pks.count = c->ehks.count = 0;
        free(spare);
        return;
    }
}

/* To whom takes one next, or free. */
static inline void kpl_leave_content(kpl_content *c) {
    size_t size = c->rows.room * sizeof(kpl_row) + (c->pks.room + c->ehks.room) * sizeof(kpl_text);
    kpl_content *spare = size && size <= KPL_LARGEST_SPARE ? (kpl_content *)malloc(sizeof *spare) : NULL;
    if (spare != NULL) {
        *spare = *c;
        for (int i = 0; i < KPL_SPARES; i++) {
            kpl_content *none = NULL;
            if (__atomic_compare_exchange_n(&kpl_spares[i], &none, spare, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                return;
        }
        free(spare);
    }
    kpl_free_content(c);
}
#else
static inline void kpl_take_content(kpl_content *c) { (void)c; }
static inline void kpl_leave_content(kpl_content *c) { kpl_free_content(c); }
#endif

/* The end of the varint; NULL if it is truncated, longer than 10 bytes or above 64 bits. */
static inline const uint8_t *kpl_read_varint(const uint8_t *p, const uint8_t *end, uint64_t *value) {
    uint64_t sum = 0;
    for (int shift = 0; p < end; shift += 7) {
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1) return NULL;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = sum;
            return p;
        }
    }
    return NULL;
}

/* The start of a length-delimited value; NULL if it would end after `end`. */
static inline const uint8_t *kpl_read_length(const uint8_t *p, const uint8_t *end, size_t *size) {
    uint64_t value;
    p = kpl_read_varint(p, end, &value);
    if (p == NULL || value > (uint64_t)(end - p)) return NULL;
    *size = (size_t)value;
    return p;
}

static inline bool kpl_is_ascii(const uint8_t *p, size_t size) {
    uint8_t all = 0;
    for (size_t i = 0; i < size; i++) all |= p[i];
    return all < 0x80;
}

/* Whether Python's utf-8 codec accepts it, and the number of code points. */
static inline bool kpl_is_utf8(const uint8_t *p, size_t size, size_t *points) {
    const uint8_t *end = p + size;
    size_t count = 0;
    while (p < end) {
        if (end - p >= 8) {
            uint64_t eight;
            memcpy(&eight, p, 8);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                p += 8, count += 8;
                continue;
            }
        }
        uint8_t lead = *p++;
        uint8_t low = 0x80, high = 0xBF; /* of the byte after the lead: no overlong forms, no surrogates */
        int more;
        count++;
        if (lead < 0x80) continue;
        if (0xC2 <= lead && lead <= 0xDF) {
            more = 1;
        } else if (0xE0 <= lead && lead <= 0xEF) {
            more = 2;
            if (lead == 0xE0) low = 0xA0;
            if (lead == 0xED) high = 0x9F;
        } else if (0xF0 <= lead && lead <= 0xF4) {
            more = 3;
            if (lead == 0xF0) low = 0x90;
            if (lead == 0xF4) high = 0x8F;
        } else {
            return false;
        }
        if (end - p < more || *p < low || *p > high) return false;
        for (p++; more > 1; more--, p++)
            if (*p < 0x80 || *p > 0xBF) return false;
    }
    *points = count;
    return true;
}

static inline bool kpl_is_key(const uint8_t *p, size_t size) {
    size_t points = 0;
    /* MSG-8, MSG-9 of spec/01: UTF-8, at most 256 code points (so at most 1024 bytes). */
    return size <= 4 * KPL_MAX_KEY_POINTS && kpl_is_utf8(p, size, &points) && points <= KPL_MAX_KEY_POINTS;
}

/* Whether all eight bytes are ASCII digits: 0x30 to 0x39, and still 0x3_ when six is added. */
static inline bool kpl_are_digits(uint64_t eight) {
    const uint64_t high = UINT64_C(0xF0F0F0F0F0F0F0F0), three = UINT64_C(0x3030303030303030);
    return (eight & high) == three && ((eight + UINT64_C(0x0606060606060606)) & high) == three;
}

/* ASCII decimal digits, at most 39, value below 2^128. Signs, other scripts and more zeros than that are
   for Python to read (KEY-3). */
static inline bool kpl_is_hash_key(const uint8_t *p, size_t size) {
    size_t i = 0;
    if (size < 1 || size > KPL_MAX_DECIMAL_DIGITS) return false;
    for (; size - i >= 8; i += 8) {
        uint64_t eight;
        memcpy(&eight, p + i, 8);
        if (!kpl_are_digits(eight)) return false;
    }
    if (size >= 8 && i < size) { /* the last eight, some of them a second time */
        uint64_t eight;
        memcpy(&eight, p + size - 8, 8);
        if (!kpl_are_digits(eight)) return false;
    } else {
        for (; i < size; i++)
            if (p[i] < '0' || p[i] > '9') return false;
    }
    /* Texts of equally many digits sort as their numbers do. */
    return size < KPL_MAX_DECIMAL_DIGITS || *p < '3' ||
           memcmp(p, "340282366920938463463374607431768211455", size) <= 0;
}

/* The number of eight ASCII digits; the first is in the lowest byte. */
static inline uint32_t kpl_eight_digits(const uint8_t *p) {
    uint64_t eight;
    memcpy(&eight, p, 8);
    eight = (eight & UINT64_C(0x0F0F0F0F0F0F0F0F)) * 2561 >> 8;
    eight = (eight & UINT64_C(0x00FF00FF00FF00FF)) * 6553601 >> 16;
    return (uint32_t)((eight & UINT64_C(0x0000FFFF0000FFFF)) * UINT64_C(42949672960001) >> 32);
}

/* Eight bytes as a number, the first the highest; and back. */
static inline uint64_t kpl_big_endian(const uint8_t *p) {
    uint64_t value;
    memcpy(&value, p, 8);
    return __builtin_bswap64(value);
}

static inline void kpl_put_big_endian(uint8_t *p, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(p, &value, 8);
}

/* A number below 2^128 in two halves; it becomes itself * 10^8 + `more`. */
static inline void kpl_append_digits(uint64_t *high, uint64_t *low, uint32_t more) {
    const uint64_t lower = (*low & 0xFFFFFFFFu) * 100000000u + more;
    const uint64_t upper = (*low >> 32) * 100000000u + (lower >> 32);
    *high = *high * 100000000u + (upper >> 32);
    *low = upper << 32 | (lower & 0xFFFFFFFFu);
}

/* A text that kpl_is_hash_key accepts -> 16 bytes, big-endian. */
static inline void kpl_read_hash_key(const uint8_t *p, size_t size, uint8_t *key) {
    uint64_t high = 0, low = 0;
    uint32_t odd = 0;
    size_t i = 0;
    for (; i < size % 8; i++) odd = odd * 10 + (uint32_t)(p[i] - '0');
    kpl_append_digits(&high, &low, odd);
    for (; i < size; i += 8) kpl_append_digits(&high, &low, kpl_eight_digits(p + i));
    kpl_put_big_endian(key, high);
    kpl_put_big_endian(key + 8, low);
}

/* Below 0, 0 or above 0, as memcmp of both 16 bytes, without a call. */
static inline int kpl_compare_hash_keys(const uint8_t *one, const uint8_t *other) {
    uint64_t a = kpl_big_endian(one), b = kpl_big_endian(other);
    if (a == b) a = kpl_big_endian(one + 8), b = kpl_big_endian(other + 8);
    return (a > b) - (a < b);
}

/* Fills in all of `row` except its frame, with the indices from the message. */
static inline bool kpl_read_record(const uint8_t *p, const uint8_t *end, kpl_row *row) {
    row->data = NULL, row->size = 0;
    row->pk = row->ehk = KPL_NONE;
    while (p < end) {
        size_t size;
        uint8_t field = *p;
        if (field == 0x1A) {
            p = kpl_read_length(p + 1, end, &size);
            if (p == NULL) return false;
            row->data = p, row->size = (uint32_t)size;
            p += size;
        } else if (field == 0x08 || field == 0x10) {
            uint64_t value;
            p = kpl_read_varint(p + 1, end, &value);
            if (p == NULL || value >= KPL_NONE) return false;
            if (field == 0x08)
                row->pk = (uint32_t)value;
            else
                row->ehk = (uint32_t)value;
        } else {
            return false; /* tags, too */
        }
    }
    return row->data != NULL && row->pk != KPL_NONE;
}

/* Rows with the indices from the message; tables may be at any place. */
static inline kpl_answer kpl_read_fields(const uint8_t *p, const uint8_t *end, size_t frame, kpl_content *c) {
    kpl_row row;
    if ((uint64_t)(end - p) >= KPL_NONE) return KPL_NOT_CERTAIN;
    row.frame = (uint32_t)frame;
    while (p < end) {
        size_t size;
        uint8_t field = *p;
        KPL_PREFETCH((uintptr_t)p + KPL_READ_AHEAD);
        if (field != 0x1A && field != 0x0A && field != 0x12) return KPL_NOT_CERTAIN;
        p = kpl_read_length(p + 1, end, &size);
        if (p == NULL) return KPL_NOT_CERTAIN;
        if (field == 0x1A) {
            if (!kpl_read_record(p, p + size, &row)) return KPL_NOT_CERTAIN;
            if (!kpl_add_row(&c->rows, &row)) return KPL_NO_MEMORY;
        } else if (field == 0x0A) {
            if (!kpl_is_key(p, size)) return KPL_NOT_CERTAIN;
            if (!kpl_add_text(&c->pks, p, size, frame)) return KPL_NO_MEMORY;
        } else {
            if (!kpl_is_hash_key(p, size)) return KPL_NOT_CERTAIN;
            if (!kpl_add_text(&c->ehks, p, size, frame)) return KPL_NO_MEMORY;
        }
        p += size;
    }
    return KPL_SOUND;
}

/* Adds the rows and texts of one message to `c`, their indices counted through all of `c`; or leaves
   `c` as it was. KPL_SOUND means: wire.py would find no defect. */
static inline kpl_answer kpl_read_message(const uint8_t *p, const uint8_t *end, size_t frame, kpl_content *c) {
    const size_t rows = c->rows.count, pks = c->pks.count, ehks = c->ehks.count;
    kpl_answer answer = kpl_read_fields(p, end, frame, c);
    if (answer == KPL_SOUND && c->rows.count == rows) answer = KPL_NOT_CERTAIN;
    for (size_t i = rows; answer == KPL_SOUND && i < c->rows.count; i++) {
        kpl_row *row = &c->rows.at[i];
        if (row->pk >= c->pks.count - pks || (row->ehk != KPL_NONE && row->ehk >= c->ehks.count - ehks)) {
            answer = KPL_NOT_CERTAIN;
        } else {
            row->pk += (uint32_t)pks;
            if (row->ehk != KPL_NONE) row->ehk += (uint32_t)ehks;
        }
    }
    if (answer != KPL_SOUND) c->rows.count = rows, c->pks.count = pks, c->ehks.count = ehks;
    return answer;
}

static inline bool kpl_looks_aggregated(const uint8_t *data, size_t size) {
    /* FRM-1, FRM-2 of spec/01: the magic, and more than 16 bytes after it. */
    return size > KPL_FRAME_OVERHEAD && memcmp(data, "\xf3\x89\x9a\xc2", 4) == 0;
}

#endif
