/* Partition keys and explicit hash keys as texts of untrusted bytes: spec/01-aggregated-record.md (MSG-8, MSG-9) and
   spec/02-hash-keys.md. Promises and sanitizers as in wire.h. */

#ifndef KPL_KEYS_H
#define KPL_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"

#define KPL_MAX_KEY_POINTS 256
#define KPL_MAX_DECIMAL_DIGITS 39

#if !defined(__GNUC__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || !defined(__SIZEOF_INT128__)
#error "GCC or Clang, little-endian, 64 bits; elsewhere Python works without this"
#endif

static inline bool kpl_is_ascii(const uint8_t *p, size_t size) {
    uint64_t all = 0, eight;
    size_t i = 0;
    for (; size - i >= 8; i += 8) {
        memcpy(&eight, p + i, 8);
        all |= eight;
    }
    if (size >= 8 && i < size) { /* the last eight, some of them a second time */
        memcpy(&eight, p + size - 8, 8);
        all |= eight;
    } else {
        for (; i < size; i++) all |= p[i];
    }
    return !(all & UINT64_C(0x8080808080808080));
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
    if (size <= KPL_MAX_KEY_POINTS && kpl_is_ascii(p, size)) return true;
    return size <= 4 * KPL_MAX_KEY_POINTS && kpl_is_utf8(p, size, &points) && points <= KPL_MAX_KEY_POINTS;
}

/* 0 if all eight bytes are ASCII digits: 0x30 to 0x39, and still 0x3_ when six is added. */
static inline uint64_t kpl_no_digits(const uint8_t *p) {
    const uint64_t high = UINT64_C(0xF0F0F0F0F0F0F0F0), three = UINT64_C(0x3030303030303030);
    uint64_t eight;
    memcpy(&eight, p, 8);
    return ((eight ^ three) | ((eight + UINT64_C(0x0606060606060606)) ^ three)) & high;
}

/* Takes a sign, and zeros that say nothing, from the front of an explicit hash key; one that is only these, or negative
   and not zero, becomes empty. */
static inline const uint8_t *kpl_strip(const uint8_t *p, size_t *size) {
    if (*size > 1 && *p <= '0') {
        const bool negative = *p == '-';
        if (negative || *p == '+') p++, --*size;
        while (*size > 1 && *p == '0') p++, --*size;
        if (negative && (*size != 1 || *p != '0')) *size = 0;
    }
    return p;
}

/* The text with digits of every script below U+10000 as ASCII digits, in `room`; its size becomes theirs. NULL: it is
   longer, no UTF-8, or has other characters than digits and ASCII. */
static const uint8_t *kpl_ascii_digits(const uint8_t *p, size_t *size, uint8_t room[KPL_MAX_KEY_POINTS]) {
    static const uint16_t zeros[] = {
        0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66,
        0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90,
        0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10,
    };
    const uint8_t *end = p + *size;
    size_t points, count = 0;
    if (!kpl_is_utf8(p, *size, &points) || points > KPL_MAX_KEY_POINTS) return NULL;
    while (p < end) {
        uint32_t point = *p++;
        size_t i = 0;
        if (point >= 0xF0) return NULL;
        if (point >= 0xE0) {
            point = (point & 15) << 12 | (p[0] & 63u) << 6 | (p[1] & 63u);
            p += 2;
        } else if (point >= 0x80) {
            point = (point & 31) << 6 | (*p++ & 63u);
        }
        if (point >= 0x80) {
            while (i < sizeof zeros / sizeof *zeros && point - zeros[i] > 9u) i++;
            if (i == sizeof zeros / sizeof *zeros) return NULL;
            point = '0' + point - zeros[i];
        }
        room[count++] = (uint8_t)point;
    }
    *size = count;
    return room;
}

static inline bool kpl_is_ascii_hash_key(const uint8_t *p, size_t size) {
    uint64_t others = 0;
    size_t i = 0;
    if (size > KPL_MAX_KEY_POINTS) return false;
    p = kpl_strip(p, &size);
    if (size < 1 || size > KPL_MAX_DECIMAL_DIGITS) return false;
    if (size >= 8) { /* the last eight, too, some of them a second time */
        for (; size - i >= 8; i += 8) others |= kpl_no_digits(p + i);
        others |= kpl_no_digits(p + size - 8);
    } else {
        for (; i < size; i++) others |= p[i] < '0' || p[i] > '9';
    }
    if (others) return false;
    /* Texts of equally many digits sort as their numbers do. */
    return size < KPL_MAX_DECIMAL_DIGITS || *p < '3' ||
           memcmp(p, "340282366920938463463374607431768211455", size) <= 0;
}

static __attribute__((noinline)) bool kpl_is_other_hash_key(const uint8_t *p, size_t size) {
    uint8_t room[KPL_MAX_KEY_POINTS];
    if (kpl_is_ascii(p, size)) return false;
    p = kpl_ascii_digits(p, &size, room);
    return p != NULL && kpl_is_ascii_hash_key(p, size);
}

/* KEY-3 of spec/02: an optional sign, then digits of any script, at most 256, value below 2^128. */
static inline bool kpl_is_hash_key(const uint8_t *p, size_t size) {
    return kpl_is_ascii_hash_key(p, size) || kpl_is_other_hash_key(p, size);
}

/* The number of eight ASCII digits; the first is in the lowest byte. */
static inline uint32_t kpl_eight_digits(uint64_t eight) {
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

/* At most 39 digits -> 16 bytes, big-endian. False: some are not ASCII, or there is a sign. */
static inline bool kpl_read_digits(const uint8_t *p, size_t size, uint8_t *key) {
    unsigned __int128 number = 0;
    uint64_t all = 0, eight;
    size_t i = size % 8;
    if (size >= 8 && i) { /* the first of them, as eight with zeros before them */
        memcpy(&eight, p, 8);
        all = eight;
        number = kpl_eight_digits(eight << 8 * (8 - i));
    } else {
        for (size_t j = 0; j < i; j++) all |= p[j], number = number * 10 + (p[j] & 15);
    }
    for (; i < size; i += 8) {
        memcpy(&eight, p + i, 8);
        all |= eight;
        number = number * 100000000u + kpl_eight_digits(eight);
    }
    kpl_put_big_endian(key, (uint64_t)(number >> 64));
    kpl_put_big_endian(key + 8, (uint64_t)number);
    return size && *p >= '0' && !(all & UINT64_C(0x8080808080808080));
}

/* A text that kpl_is_hash_key accepts -> 16 bytes, big-endian; zeros for an empty one. */
static inline void kpl_read_hash_key(const uint8_t *p, size_t size, uint8_t *key) {
    uint8_t room[KPL_MAX_KEY_POINTS];
    if (size <= KPL_MAX_DECIMAL_DIGITS && kpl_read_digits(p, size, key)) return;
    if (!kpl_is_ascii(p, size)) {
        p = kpl_ascii_digits(p, &size, room);
        if (p == NULL) size = 0;
    }
    p = kpl_strip(p, &size);
    kpl_read_digits(p, size, key);
}

/* A hash key range: its first and its last hash key, each as two numbers, the higher one first. */
typedef struct {
    uint64_t first[2], last[2];
} kpl_hash_key_range;

static inline kpl_hash_key_range kpl_range_of(const uint8_t *first, const uint8_t *last) {
    return (kpl_hash_key_range){{kpl_big_endian(first), kpl_big_endian(first + 8)},
                                {kpl_big_endian(last), kpl_big_endian(last + 8)}};
}

/* Whether the hash key of 16 bytes is in the range. */
static inline bool kpl_is_within(const uint8_t *key, const kpl_hash_key_range *range) {
    const uint64_t high = kpl_big_endian(key);
    if (range->first[0] < high && high < range->last[0]) return true;
    if (high < range->first[0] || range->last[0] < high) return false;
    const uint64_t low = kpl_big_endian(key + 8);
    return (high > range->first[0] || low >= range->first[1]) && (high < range->last[0] || low <= range->last[1]);
}

/* Below 0, 0 or above 0, as memcmp of both 16 bytes, without a call. */
static inline int kpl_compare_hash_keys(const uint8_t *one, const uint8_t *other) {
    uint64_t a = kpl_big_endian(one), b = kpl_big_endian(other);
    if (a == b) a = kpl_big_endian(one + 8), b = kpl_big_endian(other + 8);
    return (a > b) - (a < b);
}

#endif
