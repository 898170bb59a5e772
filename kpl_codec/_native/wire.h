/* Untrusted bytes -> rows, texts and tags, by spec/01-aggregated-record.md (MSG). Every sound message is read;
   all defects are left to Python as "not certain".

   No Python here. `python -m fuzz.sanitize` runs it under the sanitizers.

   Promises: a byte is read only below the `end` that stands beside its pointer; a size is compared with
   `end - p`, never added to a pointer first; nothing is written but the tables of a kpl_content. */

#ifndef KPL_WIRE_H
#define KPL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"

#define KPL_NONE 0xFFFFFFFFu /* an index beyond every table: the row has none */
#define KPL_FRAME_OVERHEAD 20
#define KPL_MAX_NESTING 100
#define KPL_READ_AHEAD 512
#define KPL_PREFETCH(address) __builtin_prefetch((const void *)(address))

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
    const uint8_t *key;
    const uint8_t *value; /* NULL: none */
    uint32_t key_size, value_size;
    uint32_t row;
} kpl_tag;

/* `at` with twice the room. NULL if there is no memory; then `at` is unchanged. */
static inline void *kpl_grow(void *at, size_t *room, size_t item) {
    size_t larger = *room ? *room * 2 : 256;
    void *moved = larger < KPL_NONE ? realloc(at, larger * item) : NULL;
    if (moved != NULL) *room = larger;
    return moved;
}

/* A table of items that grows, and the function that adds a copy of one; false if there is no memory. */
#define KPL_TABLE(table, kind, add)                                      \
    typedef struct {                                                     \
        kind *at;                                                        \
        size_t count, room;                                              \
    } table;                                                             \
    static inline bool add(table *t, const kind *item) {                 \
        if (t->count == t->room) {                                       \
            void *moved = kpl_grow(t->at, &t->room, sizeof *t->at);      \
            if (moved == NULL) return false;                             \
            t->at = (kind *)moved;                                       \
        }                                                                \
        t->at[t->count++] = *item;                                       \
        return true;                                                     \
    }
KPL_TABLE(kpl_rows, kpl_row, kpl_add_row)
KPL_TABLE(kpl_texts, kpl_text, kpl_push_text)
KPL_TABLE(kpl_tags, kpl_tag, kpl_add_tag)

static inline bool kpl_add_text(kpl_texts *texts, const uint8_t *at, size_t size, size_t frame) {
    const kpl_text text = {at, (uint32_t)size, (uint32_t)frame};
    return kpl_push_text(texts, &text);
}

/* What has been read so far, from one message or many. Starts as zeros. An entry of `ehks` that is no explicit hash
   key is empty, and no row has it; `unusable` counts these. Tags are in the order of their rows. */
typedef struct {
    kpl_rows rows;
    kpl_texts pks, ehks;
    kpl_tags tags;
    size_t unusable;
} kpl_content;

static inline void kpl_empty_content(kpl_content *c) {
    c->rows.count = c->pks.count = c->ehks.count = c->tags.count = c->unusable = 0;
}

static inline void kpl_free_content(kpl_content *c) {
    free(c->rows.at);
    free(c->pks.at);
    free(c->ehks.at);
    free(c->tags.at);
}

/* Spare contents for the next reader: new memory costs time, because the kernel fills each page with zeros. Atomic
   exchanges take and leave a spare, so threads share them without a lock. */
#ifndef KPL_NO_SPARES /* fuzz/sanitize.py has none, to see what is used after it was freed */
enum { KPL_SPARES = 4, KPL_LARGEST_SPARE = 1 << 23 /* bytes */ };
static kpl_content *kpl_spares[KPL_SPARES];

/* Sets `c` to an empty content, with the room of a spare if there is one. */
static inline void kpl_take_content(kpl_content *c) {
    for (int i = 0; i < KPL_SPARES; i++) {
        kpl_content *spare = __atomic_exchange_n(&kpl_spares[i], NULL, __ATOMIC_ACQ_REL);
        if (spare == NULL) continue;
        *c = *spare;
        kpl_empty_content(c);
        free(spare);
        return;
    }
}

/* Makes `c` a spare, or frees it. */
static inline void kpl_leave_content(kpl_content *c) {
    size_t size = c->rows.room * sizeof(kpl_row) + (c->pks.room + c->ehks.room) * sizeof(kpl_text);
    size += c->tags.room * sizeof(kpl_tag);
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
    if (p < end && *p < 0x80) { /* nearly always */
        *value = *p;
        return p + 1;
    }
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

/* The end of what follows `tag` at `p`, a group as a whole; NULL if it is broken. `nesting`: messages around it. */
static const uint8_t *kpl_skip(const uint8_t *p, const uint8_t *end, uint64_t tag, size_t nesting) {
    uint64_t open[KPL_MAX_NESTING], value;
    size_t depth = 0;
    for (;;) {
        /* MSG-1 of spec/01: field numbers from 1 to 2^29 - 1. */
        if (tag < 1 << 3 || tag >> 32) return NULL;
        value = 0;
        switch (tag & 7) {
        case 0:
            p = kpl_read_varint(p, end, &value), value = 0;
            break;
        case 1:
            value = 8;
            break;
        case 2:
            p = kpl_read_varint(p, end, &value);
            break;
        case 3: /* MSG-4: at most 100 deep */
            if (nesting + depth >= KPL_MAX_NESTING) return NULL;
            open[depth++] = tag;
            break;
        case 4:
            if (depth == 0 || open[--depth] != tag - 1) return NULL;
            break;
        case 5:
            value = 4;
            break;
        default:
            return NULL;
        }
        if (p == NULL || value > (uint64_t)(end - p)) return NULL;
        p += value;
        if (depth == 0) return p;
        p = kpl_read_varint(p, end, &tag);
        if (p == NULL) return NULL;
    }
}

typedef struct {
    uint64_t tag; /* field number * 8 + wire type */
    uint64_t value; /* of a varint; of a length-delimited field its size */
    const uint8_t *at; /* a length-delimited field's value, all of it before the end */
} kpl_field;

/* The end of the field at `p`, which is below `end`; NULL if it is broken. The caller refuses field number 0. */
static inline const uint8_t *kpl_read_field(const uint8_t *p, const uint8_t *end, size_t nesting, kpl_field *field) {
    field->tag = *p, field->value = 0, field->at = p;
    if (field->tag < 0x80) {
        p++;
    } else {
        p = kpl_read_varint(p, end, &field->tag);
        if (p == NULL || field->tag >> 32) return NULL;
    }
    if ((field->tag & 7) != 2 && (field->tag & 7) != 0) return kpl_skip(p, end, field->tag, nesting);
    p = kpl_read_varint(p, end, &field->value);
    if (p == NULL) return NULL;
    if (field->tag & 7) {
        if (field->value > (uint64_t)(end - p)) return NULL;
        field->at = p;
        p += field->value;
    }
    return p;
}

/* The tag of a user record, added to `tags`. */
static kpl_answer kpl_read_tag(const uint8_t *p, const uint8_t *end, uint32_t row, kpl_tags *tags) {
    kpl_tag tag = {NULL, NULL, 0, 0, row};
    while (p < end) {
        kpl_field field;
        size_t points;
        p = kpl_read_field(p, end, 2, &field);
        if (p == NULL) return KPL_NOT_CERTAIN;
        if (field.tag >> 3 > 2) continue; /* MSG-11: unknown */
        if ((field.tag & 7) != 2 || !kpl_is_utf8(field.at, field.value, &points)) return KPL_NOT_CERTAIN;
        if (field.tag == 0x0A)
            tag.key = field.at, tag.key_size = (uint32_t)field.value;
        else if (field.tag != 0x12)
            return KPL_NOT_CERTAIN;
        else
            tag.value = field.at, tag.value_size = (uint32_t)field.value;
    }
    if (tag.key == NULL) return KPL_NOT_CERTAIN;
    return kpl_add_tag(tags, &tag) ? KPL_SOUND : KPL_NO_MEMORY;
}

/* Fills in all of `row`, the next of `c`, except its frame, with the indices from the message; adds its tags. */
static inline kpl_answer kpl_read_record(const uint8_t *p, const uint8_t *end, kpl_row *row, kpl_content *c) {
    row->data = NULL, row->size = 0;
    row->pk = row->ehk = KPL_NONE;
    while (p < end) {
        kpl_field field;
        p = kpl_read_field(p, end, 1, &field);
        if (p == NULL) return KPL_NOT_CERTAIN;
        /* MSG-12: of what may stand once the last one counts. An index too large is beyond every table, too. */
        if (field.tag == 0x1A) {
            row->data = field.at, row->size = (uint32_t)field.value;
        } else if (field.tag == 0x08) {
            row->pk = field.value < KPL_NONE ? (uint32_t)field.value : KPL_NONE;
        } else if (field.tag == 0x10) {
            row->ehk = field.value < KPL_NONE ? (uint32_t)field.value : KPL_NONE - 1;
        } else if (field.tag == 0x22) {
            kpl_answer answer = kpl_read_tag(field.at, p, (uint32_t)c->rows.count, &c->tags);
            if (answer != KPL_SOUND) return answer;
        } else if (field.tag >> 3 <= 4) {
            return KPL_NOT_CERTAIN; /* MSG-5: a known field with another wire type */
        }
    }
    return row->data != NULL && row->pk != KPL_NONE ? KPL_SOUND : KPL_NOT_CERTAIN;
}

/* A varint of one or two bytes, both before the end; NULL: it is longer. */
static inline const uint8_t *kpl_read_short_varint(const uint8_t *p, uint32_t *value) {
    if (p[0] < 0x80) {
        *value = p[0];
        return p + 1;
    }
    *value = (uint32_t)p[1] << 7 | (p[0] & 0x7Fu);
    return p[1] < 0x80 ? p + 2 : NULL;
}

/* Nearly every record: partition key, perhaps explicit hash key, data, and small numbers. False: read it field by field. */
static inline bool kpl_read_usual_record(const uint8_t *p, const uint8_t *end, kpl_row *row) {
    if (end - p < 6 || *p != 0x08) return false;
    p = kpl_read_short_varint(p + 1, &row->pk);
    row->ehk = KPL_NONE;
    if (p != NULL && *p == 0x10 && end - p >= 5) p = kpl_read_short_varint(p + 1, &row->ehk);
    if (p == NULL || end - p < 3 || *p != 0x1A) return false;
    p = kpl_read_short_varint(p + 1, &row->size);
    row->data = p;
    return p != NULL && (size_t)(end - p) == row->size;
}

static inline kpl_answer kpl_add_hash_key(const uint8_t *p, size_t size, size_t frame, kpl_content *c) {
    if (!kpl_is_hash_key(p, size)) { /* an explicit hash key is a key */
        if (!kpl_is_key(p, size)) return KPL_NOT_CERTAIN;
        size = 0, c->unusable++;
    }
    return kpl_add_text(&c->ehks, p, size, frame) ? KPL_SOUND : KPL_NO_MEMORY;
}

/* `from`: what `c` had before this message, from which its indices count; tables may stand at any place in it. */
static inline kpl_answer kpl_read_fields(const uint8_t *p, const uint8_t *end, size_t frame, const kpl_content *from,
                                         kpl_content *c) {
    const uint32_t pks = (uint32_t)from->pks.count, ehks = (uint32_t)from->ehks.count;
    uint32_t last_pk = 0, used_ehks = 0; /* the largest index, and one more than it */
    kpl_row row;
    if ((uint64_t)(end - p) >= KPL_NONE) return KPL_NOT_CERTAIN;
    row.frame = (uint32_t)frame;
    while (p < end) {
        kpl_answer answer = KPL_SOUND;
        kpl_field field;
        KPL_PREFETCH((uintptr_t)p + KPL_READ_AHEAD);
        p = kpl_read_field(p, end, 0, &field);
        if (p == NULL) return KPL_NOT_CERTAIN;
        if (field.tag == 0x1A) {
            if (!kpl_read_usual_record(field.at, p, &row)) answer = kpl_read_record(field.at, p, &row, c);
            if (row.pk > last_pk) last_pk = row.pk;
            row.pk += pks;
            if (row.ehk != KPL_NONE) {
                if (row.ehk >= used_ehks) used_ehks = row.ehk + 1;
                row.ehk += ehks;
            }
            if (answer == KPL_SOUND && !kpl_add_row(&c->rows, &row)) return KPL_NO_MEMORY;
        } else if (field.tag == 0x0A) {
            if (!kpl_is_key(field.at, field.value)) return KPL_NOT_CERTAIN;
            if (!kpl_add_text(&c->pks, field.at, field.value, frame)) return KPL_NO_MEMORY;
        } else if (field.tag == 0x12) {
            answer = kpl_add_hash_key(field.at, field.value, frame, c);
        } else if (field.tag >> 3 <= 3) {
            return KPL_NOT_CERTAIN;
        }
        if (answer != KPL_SOUND) return answer;
    }
    if (c->rows.count == from->rows.count || last_pk >= c->pks.count - pks || used_ehks > c->ehks.count - ehks)
        return KPL_NOT_CERTAIN;
    for (size_t i = from->rows.count; c->unusable != from->unusable && i < c->rows.count; i++) {
        const uint32_t ehk = c->rows.at[i].ehk;
        if (ehk != KPL_NONE && c->ehks.at[ehk].size == 0) return KPL_NOT_CERTAIN;
    }
    return KPL_SOUND;
}

/* Adds the rows, texts and tags of one message to `c`, their indices counted through all of `c`; or leaves
   `c` as it was. KPL_SOUND means: wire.py would find no defect. */
static inline kpl_answer kpl_read_message(const uint8_t *p, const uint8_t *end, size_t frame, kpl_content *c) {
    const kpl_content from = *c;
    kpl_answer answer = kpl_read_fields(p, end, frame, &from, c);
    if (answer != KPL_SOUND) {
        c->rows.count = from.rows.count, c->pks.count = from.pks.count, c->ehks.count = from.ehks.count;
        c->tags.count = from.tags.count, c->unusable = from.unusable;
    }
    return answer;
}

static inline bool kpl_looks_aggregated(const uint8_t *data, size_t size) {
    /* FRM-1, FRM-2 of spec/01: the magic, and more than 16 bytes after it. */
    return size > KPL_FRAME_OVERHEAD && memcmp(data, "\xf3\x89\x9a\xc2", 4) == 0;
}

#endif
