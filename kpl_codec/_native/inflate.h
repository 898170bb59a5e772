/* Decompresses the first bytes of a deflate stream (RFC 1951). zlib would take as long for them as all other work on a
 * small user record. Bounds are checked; there is no state between calls. tests/format/test_nested.py and
 * fuzz/sanitize.py compare it with zlib. */

#ifndef KPL_INFLATE_H
#define KPL_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *p, *end;
    uint64_t buffer; /* bits, the next one the lowest; zeros behind them */
    unsigned count;
    bool over; /* a read went beyond the end */
} kpl_bits;

/* At least 16 bits, the next one the lowest; zeros after the end. */
static inline uint32_t kpl_peek(kpl_bits *bits) {
    if (bits->count < 16)
        while (bits->count <= 56 && bits->p < bits->end) {
            bits->buffer |= (uint64_t)*bits->p++ << bits->count;
            bits->count += 8;
        }
    return (uint32_t)bits->buffer;
}

static inline void kpl_skip_bits(kpl_bits *bits, unsigned count) {
    if (count > bits->count) {
        bits->over = true;
        count = bits->count;
    }
    bits->buffer >>= count;
    bits->count -= count;
}

static inline unsigned kpl_take_bits(kpl_bits *bits, unsigned count) { /* at most 16 */
    unsigned value = kpl_peek(bits) & ((1u << count) - 1);
    kpl_skip_bits(bits, count);
    return value;
}

/* The next 16 bits, the first one the highest. */
static inline unsigned kpl_peek_code(kpl_bits *bits) {
    unsigned x = kpl_peek(bits) & 0xFFFF;
    x = (x & 0x5555) << 1 | (x >> 1 & 0x5555);
    x = (x & 0x3333) << 2 | (x >> 2 & 0x3333);
    x = (x & 0x0F0F) << 4 | (x >> 4 & 0x0F0F);
    return (x & 0xFF) << 8 | x >> 8;
}

enum { KPL_MOST_SYMBOLS = 288, KPL_NO_SYMBOL = 0xFFFF };

typedef struct {
    unsigned shortest;  /* length of its shortest code */
    uint32_t limit[16]; /* by length: what follows its last code, as the highest of 16 bits */
    int32_t base[16];   /* by length: index of its first symbol, less its first code */
    uint16_t symbols[KPL_MOST_SYMBOLS];
} kpl_huffman;

/* The code in which symbol i has `lengths[i]` bits, 0 to 15. False if no such code can be. */
static bool kpl_make_code(kpl_huffman *code, const uint8_t *lengths, unsigned count) {
    unsigned counts[16] = {0}, next[16], first = 0, index = 0, coded_count = 0, i;
    uint16_t coded[KPL_MOST_SYMBOLS];
    for (i = 0; i < count; i++)
        if (lengths[i]) {
            coded[coded_count++] = (uint16_t)i;
            counts[lengths[i]]++;
        }
    code->shortest = 16;
    for (i = 1; i < 16; i++) {
        if (counts[i] && code->shortest == 16) code->shortest = i;
        first <<= 1;
        next[i] = index;
        code->base[i] = (int32_t)index - (int32_t)first;
        first += counts[i];
        index += counts[i];
        if (first > 1u << i) return false;
        code->limit[i] = (uint32_t)first << (16 - i);
    }
    for (i = 0; i < coded_count; i++) code->symbols[next[lengths[coded[i]]]++] = coded[i];
    return true;
}

static inline unsigned kpl_next_symbol(kpl_bits *bits, const kpl_huffman *code) {
    const unsigned next = kpl_peek_code(bits);
    for (unsigned length = code->shortest; length < 16; length++)
        if (next < code->limit[length]) {
            kpl_skip_bits(bits, length);
            return code->symbols[(int32_t)(next >> (16 - length)) + code->base[length]];
        }
    return KPL_NO_SYMBOL;
}

/* The next symbol of the fixed code for literals and lengths. */
static inline unsigned kpl_next_fixed(kpl_bits *bits) {
    const unsigned next = kpl_peek_code(bits), length = next < 24 << 9 ? 7 : next < 200 << 8 ? 8 : 9;
    kpl_skip_bits(bits, length);
    if (length == 7) return 256 + (next >> 9);
    if (length == 9) return (next >> 7) - 400 + 144;
    return next < 192 << 8 ? (next >> 8) - 48 : (next >> 8) - 192 + 280;
}

/* The two codes of a block that brings its own. */
static bool kpl_read_codes(kpl_bits *bits, kpl_huffman *literals, kpl_huffman *distances) {
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[320] = {0};
    const unsigned literal_count = kpl_take_bits(bits, 5) + 257, distance_count = kpl_take_bits(bits, 5) + 1;
    const unsigned code_count = kpl_take_bits(bits, 4) + 4, all = literal_count + distance_count;
    unsigned i, symbol, times;
    if (literal_count > 286 || distance_count > 30) return false;
    for (i = 0; i < code_count; i++) lengths[order[i]] = (uint8_t)kpl_take_bits(bits, 3);
    if (!kpl_make_code(literals, lengths, 19)) return false; /* the code of the codes */
    for (i = 0; i < all;) {
        uint8_t length = 0;
        symbol = kpl_next_symbol(bits, literals);
        if (symbol > 18 || bits->over) return false;
        if (symbol < 16) {
            lengths[i++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == 16) {
            if (i == 0) return false;
            length = lengths[i - 1];
        }
        times = symbol == 16 ? 3 + kpl_take_bits(bits, 2) : symbol == 17 ? 3 + kpl_take_bits(bits, 3)
                                                                         : 11 + kpl_take_bits(bits, 7);
        if (times > all - i) return false;
        while (times--) lengths[i++] = length;
    }
    return kpl_make_code(literals, lengths, literal_count) &&
           kpl_make_code(distances, lengths + literal_count, distance_count);
}

/* Writes the first bytes of the content, at most `most`; returns how many. -1 if the stream is cut or damaged there. */
static int kpl_inflate_head(const uint8_t *p, const uint8_t *end, uint8_t *out, int most) {
    kpl_bits bits = {p, end, 0, 0, false};
    kpl_huffman literals, distances;
    int size = 0;
    unsigned last, kind;
    do {
        last = kpl_take_bits(&bits, 1);
        kind = kpl_take_bits(&bits, 2);
        if (kind == 3) return -1;
        if (kind == 0) {
            unsigned left, inverse;
            kpl_skip_bits(&bits, bits.count & 7);
            left = kpl_take_bits(&bits, 16);
            inverse = kpl_take_bits(&bits, 16);
            if (bits.over || (left ^ inverse) != 0xFFFF) return -1;
            for (; left > 0 && size < most; left--) {
                out[size++] = (uint8_t)kpl_take_bits(&bits, 8);
                if (bits.over) return -1;
            }
            continue;
        }
        if (kind == 2 && !kpl_read_codes(&bits, &literals, &distances)) return -1;
        while (size < most) {
            unsigned symbol = kind == 1 ? kpl_next_fixed(&bits) : kpl_next_symbol(&bits, &literals);
            unsigned length, distance, more;
            if (bits.over || symbol > 285) return -1;
            if (symbol < 256) {
                out[size++] = (uint8_t)symbol;
                continue;
            }
            if (symbol == 256) break;
            more = symbol < 265 || symbol == 285 ? 0 : (symbol - 261) / 4;
            length = symbol < 265 ? symbol - 254 : symbol == 285 ? 258 : ((4 + ((symbol - 265) & 3)) << more) + 3;
            length += kpl_take_bits(&bits, more);
            if (kind == 1) {
                distance = kpl_peek_code(&bits) >> 11;
                kpl_skip_bits(&bits, 5);
            } else {
                distance = kpl_next_symbol(&bits, &distances);
            }
            if (distance > 29) return -1;
            more = distance < 4 ? 0 : distance / 2 - 1;
            distance = (distance < 4 ? distance : (2 + (distance & 1)) << more) + 1;
            distance += kpl_take_bits(&bits, more);
            if (bits.over || distance > (unsigned)size) return -1;
            for (; length > 0 && size < most; length--, size++) out[size] = out[size - (int)distance];
        }
    } while (!last && size < most);
    return bits.over ? -1 : size;
}

#endif
