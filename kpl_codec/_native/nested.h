/* Whether data may have a nested aggregate, by its first bytes: true for all data in which `layers_around` of
 * format/nested.py finds one, and for some other. */

#ifndef KPL_NESTED_H
#define KPL_NESTED_H

#include "inflate.h"
#include "md5.h" /* KPL_INLINE */

#define KPL_SIGNS_WITHIN 32 /* a sign begins within so many first bytes */
#define KPL_NESTED_HEAD 56  /* bytes to search: the longest sign, of a zlib stream, has 22 */
#define KPL_TEXT_HEAD 224   /* bytes to decode of text in text in text */
#define KPL_LEAST_NESTED 21 /* no aggregated record is shorter */
#define KPL_LAYERS 3

/* Whether a deflate block with fixed codes may begin there: it begins with bytes, and copies none from before
 * them. Reads 20 bytes. */
static bool kpl_is_fixed(const uint8_t *p) {
    unsigned at = 3, count, code, symbol, i;
#define KPL_BIT (p[at >> 3] >> (at & 7) & 1u)
    for (count = 0; count < 14; count++) {
        for (code = 0, i = 0; i < 7; i++, at++)
            code = code << 1 | KPL_BIT;
        if (code == 0) /* the end */
            return count > 0 && !(p[0] & 1);
        if (code < 24 || (code >= 96 && code < 100)) { /* a copy */
            symbol = 256 + code;
            if (code >= 96) {
                symbol = 280 + (((code << 1) | KPL_BIT) & 7);
                at++;
            }
            if (symbol >= 265 && symbol < 285)
                at += (symbol - 261) / 4;
            for (code = 0, i = 0; i < 5; i++, at++)
                code = code << 1 | KPL_BIT;
            return (code < 4 ? code : (2 + (code & 1)) << (code / 2 - 1)) < count;
        }
        at += code < 100 ? 1 : 2;
    }
#undef KPL_BIT
    return true;
}

/* Whether a deflate stream may begin there; other data rarely passes. */
static bool kpl_is_deflate(const uint8_t *p) {
    uint64_t lengths;
    unsigned i, sum = 0, kind = p[0] >> 1 & 3, count = 4 + (p[1] >> 5 | (p[2] & 1) << 3);
    if (kind == 0)
        return (p[1] ^ p[3]) == 255 && (p[2] ^ p[4]) == 255;
    if (kind != 2)
        return kind == 1 && kpl_is_fixed(p);
    if (p[0] >> 3 > 29 || (p[1] & 31) > 29)
        return false;
    memcpy(&lengths, p + 2, 8);
    for (i = 0, lengths >>= 1; i < count; i++, lengths >>= 3)
        sum += lengths & 7 ? 128u >> (lengths & 7) : 0;
    return sum == 128; /* the code that the codes are written in is complete */
}

KPL_INLINE bool kpl_begins_zlib(const uint8_t *p) {
    return p[0] == 'x' && (p[1] == 0x01 || p[1] == 0x5e || p[1] == 0x9c || p[1] == 0xda);
}

KPL_INLINE int kpl_is_sign(const uint8_t *p) {
    switch (*p) {
    case 0xf3: return memcmp(p, "\xf3\x89\x9a\xc2", 4) == 0;
    case 0x1f: return p[1] == 0x8b && p[2] == 8;
    case 0x28: return memcmp(p, "\x28\xb5\x2f\xfd", 4) == 0;
    case 'x': return kpl_begins_zlib(p) && kpl_is_deflate(p + 2);
    case '8': return memcmp(p, "84maw", 5) == 0;
    case 'f': return memcmp(p, "f3899ac2", 8) == 0;
    case 'F': return memcmp(p, "F3899AC2", 8) == 0;
    case 'H': return memcmp(p, "H4sI", 4) == 0;
    default: return 0;
    }
}

typedef uint8_t kpl_bytes __attribute__((vector_size(16)));

KPL_INLINE kpl_bytes kpl_load(const uint8_t *p) {
    kpl_bytes bytes;
    memcpy(&bytes, p, sizeof bytes);
    return bytes;
}

KPL_INLINE bool kpl_any(kpl_bytes bytes) {
    uint64_t words[2];
    memcpy(words, &bytes, sizeof words);
    return (words[0] | words[1]) != 0;
}

/* Searches for two bytes of every sign, at 16 places at once: first for those of signs in text, and for bytes that are
 * not in text, and `^`; if there are such bytes, for those of the other signs. */
KPL_INLINE bool kpl_may_have_sign(const uint8_t *p) {
    kpl_bytes text = {0}, other = {0};
    size_t i;
    for (i = 0; i < KPL_SIGNS_WITHIN; i += sizeof text) {
        kpl_bytes a = kpl_load(p + i), b = kpl_load(p + i + 1);
        text |= (kpl_bytes)(b == '4') & ((kpl_bytes)(kpl_load(p + i + 2) == 'm') | (kpl_bytes)(a == 'H'));
        text |= (kpl_bytes)(kpl_load(p + i + 4) == '9') & (kpl_bytes)((kpl_load(p + i + 5) | 32) == 'a');
        other |= (kpl_bytes)(b < ' ') | (b & 128) | (kpl_bytes)(b == '^');
    }
    if (kpl_any(other))
        for (i = 0; i < KPL_SIGNS_WITHIN; i += sizeof text) {
            kpl_bytes a = kpl_load(p + i), b = kpl_load(p + i + 1);
            text |= (kpl_bytes)(a == 0xf3) & (kpl_bytes)(b == 0x89);
            text |= (kpl_bytes)(a == 0x1f) & (kpl_bytes)(b == 0x8b);
            text |= (kpl_bytes)(a == 0x28) & (kpl_bytes)(b == 0xb5);
            text |= (kpl_bytes)(a == 'x') & ((kpl_bytes)(b == 0x01) | (kpl_bytes)(b == 0x5e) |
                                             (kpl_bytes)(b == 0x9c) | (kpl_bytes)(b == 0xda));
        }
    return kpl_any(text);
}

static bool kpl_may_hold(const uint8_t *p, const uint8_t *end);

/* `p`: the beginning of `data`. */
KPL_INLINE bool kpl_has_sign(const uint8_t *p, const uint8_t *data, const uint8_t *end) {
    if (kpl_may_have_sign(p))
        for (size_t i = 0; i < KPL_SIGNS_WITHIN; i++)
            if (kpl_is_sign(p + i) && kpl_may_hold(data + i, end))
                return true;
    return false;
}

/* The value of a base64 digit, also of the alphabet for URLs; 255: none. */
static const uint8_t kpl_base64[256] = {
    [0 ... '+' - 1] = 255, ['+'] = 62, [','] = 255, ['-'] = 62, ['.'] = 255, ['/'] = 63,
    ['0'] = 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, ['9' + 1 ... 'A' - 1] = 255,
    ['A'] = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    ['Z' + 1 ... '_' - 1] = 255, ['_'] = 63, ['_' + 1 ... 'a' - 1] = 255,
    ['a'] = 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,
    ['z' + 1 ... 255] = 255,
};

KPL_INLINE uint8_t kpl_hex(uint8_t c) {
    uint8_t digit = ((uint8_t)(c - '0') < 10) | ((uint8_t)((c | 32) - 'a') < 6);
    return (uint8_t)((c & 15) + 9 * (c >> 6)) | (uint8_t)(digit - 1);
}

/* Decodes the first digits, of `bits` bits each, to at most `most` bytes; returns how many. */
KPL_INLINE size_t kpl_decode_head(const uint8_t *p, const uint8_t *end, int bits, uint8_t *out, size_t most) {
    size_t count = 0;
    uint32_t value = 0;
    int have = 0;
    for (; p < end && count < most; p++) {
        uint8_t digit = bits == 6 ? kpl_base64[*p] : kpl_hex(*p);
        if (digit == 255) {
            if (*p == '\r' || *p == '\n')
                continue;
            break;
        }
        value = value << bits | digit;
        have += bits;
        if (have >= 8) {
            have -= 8;
            out[count++] = (uint8_t)(value >> have);
        }
    }
    return count;
}

static bool kpl_may_be_text(const uint8_t *p, const uint8_t *end, int layers);

KPL_INLINE bool kpl_may_nest(const uint8_t *p, size_t size, int layers) {
    uint8_t head[KPL_NESTED_HEAD];
    const uint8_t *at = p;
    uint64_t first;
    if (size < KPL_LEAST_NESTED)
        return false;
    memcpy(&first, p, sizeof first);
    if (size < KPL_NESTED_HEAD) {
        memset(head, ' ', sizeof head);
        memcpy(head, p, 16); /* of fixed sizes: calls of memcpy take longer */
        if (size > 32)
            memcpy(head + 16, p + 16, 16);
        if (size > 48)
            memcpy(head + 32, p + 32, 16);
        memcpy(head + size - 16, p + size - 16, 16);
        at = head;
    }
    if (kpl_has_sign(at, p, p + size))
        return true;
    /* Text is ASCII. */
    return layers > 0 && !(first & 0x8080808080808080u) && kpl_may_be_text(p, p + size, layers - 1);
}

KPL_INLINE bool kpl_is_space(uint8_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '"'; }

/* Whether data that begins with a sign may have a nested aggregate: of gzip and zlib, by the first bytes of their
 * content. Python decides about text and compression in these. */
static bool kpl_may_hold(const uint8_t *p, const uint8_t *end) {
    uint8_t head[40]; /* the longest sign, but of a zlib stream, has 8 */
    int count, i, digits;
    if (*p != 0x1f && *p != 'x')
        return true;
    if (*p == 0x1f && (end - p < 10 || p[3] != 0)) /* a name, a comment */
        return true;
    memset(head, ' ', sizeof head);
    count = kpl_inflate_head(p + (*p == 'x' ? 2 : 10), end, head, (int)sizeof head);
    if (count < 0 || count < KPL_LEAST_NESTED)
        return count < 0;
    for (i = 0; i < 16 && kpl_is_space(head[i]); i++)
        ;
    for (digits = 0; i < count && (kpl_base64[head[i]] != 255 || head[i] == '\r' || head[i] == '\n'); i++)
        digits++;
    if (digits >= 28 || i == (int)sizeof head)
        return true;
    if (kpl_may_have_sign(head))
        for (i = 0; i < KPL_SIGNS_WITHIN; i++)
            if (head[i] == 'x' ? kpl_begins_zlib(head + i) : kpl_is_sign(head + i))
                return true;
    return false;
}

static bool kpl_may_be_text(const uint8_t *p, const uint8_t *end, int layers) {
    uint8_t head[KPL_TEXT_HEAD];
    size_t count, i, spaces;
    int bits = 4;
    for (spaces = 0; spaces < 16 && p < end && kpl_is_space(*p); spaces++)
        p++;
    /* Digits that may be hexadecimal are: no base64 of a frame has only such. */
    count = kpl_decode_head(p, end, bits, head, KPL_NESTED_HEAD);
    if (count < KPL_LEAST_NESTED)
        count = kpl_decode_head(p, end, bits = 6, head, KPL_NESTED_HEAD);
    for (i = 0; i < count && (kpl_base64[head[i]] != 255 || kpl_is_space(head[i])); i++)
        ;
    if (count > 0 && i == count)
        count = kpl_decode_head(p, end, bits, head, KPL_TEXT_HEAD);
    return kpl_may_nest(head, count, layers);
}

/* Of `count` items. `starts`: where each begins, and where the last ends. */
static void kpl_may_nest_each(const uint8_t *bytes, const size_t *starts, size_t count, uint8_t *results) {
    for (size_t i = 0; i < count; i++)
        results[i] = kpl_may_nest(bytes + starts[i], starts[i + 1] - starts[i], KPL_LAYERS);
}

#endif
