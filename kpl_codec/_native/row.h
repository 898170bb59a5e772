/* The storage of a kpl_codec.DeaggregatedRecord in compiled code: for a user record of a sound aggregate one block of
 * memory with its keys and data, for any other a tuple of its fields.
 *
 * A block has the bytes of one user record. Short data, and keys that few user records share, become Python objects
 * whenever they are asked for. The garbage collector visits only rows with a field that can be part of a cycle: to
 * visit all costs a tenth of the work (tp_is_gc). */
#ifndef KPL_ROW_H
#define KPL_ROW_H

#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#include "wire.h"

enum { KPL_ROW_FIELDS = 13, KPL_MOST_INSIDE = 416 /* Python's quick allocator has blocks of up to 512 bytes */ };

/* What a block may refer to, in this order. A key or data without a reference is inside the block. */
enum { KPL_HAS_PK = 1, KPL_HAS_EHK = 2, KPL_HAS_PLACED = 4, KPL_HAS_DATA = 8, KPL_HAS_TAGS = 16, KPL_IS_BLOCK = 32,
       KPL_COLLECTED = 64 /* the garbage collector knows it */ };

typedef struct {
    PyObject_VAR_HEAD /* ob_size: bytes of `refs` and of what is inside */
    PyObject *shared; /* a tuple of all fields; of a block those that it shares with its whole Kinesis record */
    uint32_t number;  /* its sub-sequence number */
    uint32_t pk_size : 9, ehk_size : 9, has : 14; /* sizes of the keys inside; no explicit hash key is empty */
    PyObject *refs[];                            /* then data, partition key, explicit hash key */
} kpl_block;

static inline Py_ssize_t kpl_refs(uint32_t has) { /* how many */
    static const uint8_t counts[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
    return counts[has & 15] + (has >> 4 & 1);
}

static inline PyObject *kpl_ref(const kpl_block *row, uint32_t what) {
    return row->refs[kpl_refs(row->has & (what - 1))];
}

static __attribute__((noinline)) PyObject *kpl_new_text(const uint8_t *at, size_t size) {
    if (!kpl_is_ascii(at, size)) return PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)size, NULL);
    PyObject *text = PyUnicode_New((Py_ssize_t)size, 127);
    if (text) memcpy(PyUnicode_1BYTE_DATA(text), at, size);
    return text;
}

/* The bytes of a block that are inside; `size`: how many of them are its data. */
static inline const uint8_t *kpl_inside(const kpl_block *row, size_t *size) {
    const uint8_t *inside = (const uint8_t *)(row->refs + kpl_refs(row->has));
    size_t all = (size_t)((const uint8_t *)row->refs + Py_SIZE(row) - inside);
    *size = all - row->pk_size - row->ehk_size;
    return inside;
}

static PyObject *kpl_row_field(PyObject *self, void *number) {
    const kpl_block *row = (const kpl_block *)self;
    PyObject *field = PyTuple_GET_ITEM(row->shared, (intptr_t)number);
    const uint8_t *inside;
    size_t size;
    if (row->has & KPL_IS_BLOCK) switch ((intptr_t)number) {
        case 0:
            if (row->has & KPL_HAS_PK) {
                field = row->refs[0];
                break;
            }
            inside = kpl_inside(row, &size);
            return kpl_new_text(inside + size, row->pk_size);
        case 1:
            if (row->has & KPL_HAS_DATA) {
                field = kpl_ref(row, KPL_HAS_DATA);
                break;
            }
            inside = kpl_inside(row, &size);
            return PyBytes_FromStringAndSize((const char *)inside, (Py_ssize_t)size);
        case 2:
            if (row->has & KPL_HAS_EHK) field = kpl_ref(row, KPL_HAS_EHK);
            if (!row->ehk_size) break;
            inside = kpl_inside(row, &size);
            return kpl_new_text(inside + size + row->pk_size, row->ehk_size);
        case 3:
            if (row->has & KPL_HAS_TAGS) field = kpl_ref(row, KPL_HAS_TAGS);
            break;
        case 5: return PyLong_FromUnsignedLong(row->number);
        case 9:
            if (row->has & KPL_HAS_PLACED) field = kpl_ref(row, KPL_HAS_PLACED);
        }
    Py_INCREF(field);
    return field;
}

static PyObject *kpl_row_names; /* the names of the fields, interned */

/* A quick way to a field; all else, and names that are not interned, take the usual one. */
static PyObject *kpl_row_getattr(PyObject *self, PyObject *name) {
    PyObject *const *names = &PyTuple_GET_ITEM(kpl_row_names, 0);
    for (intptr_t i = 0; i < KPL_ROW_FIELDS; i++)
        if (names[i] == name) return kpl_row_field(self, (void *)i);
    return PyObject_GenericGetAttr(self, name);
}

static void kpl_row_dealloc(PyObject *self) {
    kpl_block *row = (kpl_block *)self;
    PyTypeObject *kind = Py_TYPE(self);
    const bool collected = row->has & KPL_COLLECTED;
    if (collected) PyObject_GC_UnTrack(self);
    Py_DECREF(row->shared);
    for (Py_ssize_t i = kpl_refs(row->has); i > 0; i--) Py_DECREF(row->refs[i - 1]);
    if (collected)
        PyObject_GC_Del(self);
    else
        PyObject_Free(self);
    Py_DECREF(kind);
}

static int kpl_row_traverse(PyObject *self, visitproc visit, void *arg) {
    kpl_block *row = (kpl_block *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(row->shared);
    for (Py_ssize_t i = kpl_refs(row->has); i > 0; i--) Py_VISIT(row->refs[i - 1]);
    return 0;
}

static int kpl_row_is_collected(PyObject *self) { return (((kpl_block *)self)->has & KPL_COLLECTED) != 0; }

/* An empty row of class `kind` with room for `size` bytes. `atoms`: no field can be part of a cycle; otherwise the
 * caller tracks the complete row. */
static inline kpl_block *kpl_new_row(PyObject *kind, PyObject *shared, size_t size, bool atoms) {
    PyTypeObject *type = (PyTypeObject *)kind;
    kpl_block *row = atoms ? PyObject_NewVar(kpl_block, type, (Py_ssize_t)size)
                           : PyObject_GC_NewVar(kpl_block, type, (Py_ssize_t)size);
    if (!row) return NULL;
    Py_INCREF(shared);
    row->shared = shared;
    row->pk_size = row->ehk_size = 0;
    row->has = atoms ? 0 : KPL_COLLECTED;
    return row;
}

/* A user record in one block. `pk` and `ehk`: NULL where their texts come inside; `placed`, `tags`: NULL for none. */
static inline __attribute__((always_inline)) PyObject *kpl_new_block(PyObject *kind, PyObject *shared, const kpl_row *user, PyObject *pk,
                               const kpl_text *pk_text, PyObject *ehk, const kpl_text *ehk_text, size_t number,
                               PyObject *placed, PyObject *tags, bool atoms) {
    PyObject *data = NULL;
    uint32_t pk_size = pk ? 0 : pk_text->size, ehk_size = ehk || !ehk_text ? 0 : ehk_text->size;
    size_t size = user->size;
    if (size + pk_size + ehk_size > KPL_MOST_INSIDE) {
        data = PyBytes_FromStringAndSize((const char *)user->data, (Py_ssize_t)size);
        if (!data) return NULL;
        size = 0;
    }
    uint32_t has = KPL_IS_BLOCK | (pk ? KPL_HAS_PK : 0) | (ehk ? KPL_HAS_EHK : 0) | (placed ? KPL_HAS_PLACED : 0) |
                   (data ? KPL_HAS_DATA : 0) | (tags ? KPL_HAS_TAGS : 0) | (atoms ? 0 : KPL_COLLECTED);
    kpl_block *row =
        kpl_new_row(kind, shared, kpl_refs(has) * sizeof(PyObject *) + size + pk_size + ehk_size, atoms);
    if (!row) {
        Py_XDECREF(data);
        return NULL;
    }
    PyObject **ref = row->refs;
    if (pk) *ref++ = Py_NewRef(pk);
    if (ehk) *ref++ = Py_NewRef(ehk);
    if (placed) *ref++ = Py_NewRef(placed);
    if (data) *ref++ = data;
    if (tags) *ref++ = Py_NewRef(tags);
    row->number = (uint32_t)number;
    row->pk_size = pk_size;
    row->ehk_size = ehk_size;
    row->has = has;
    uint8_t *inside = (uint8_t *)ref;
    /* For a size that it knows to be small, GCC copies by a slow `rep movsq` instead of a call of memcpy. */
    __asm__("" : "+r"(size));
    if (size) memcpy(inside, user->data, size);
    if (pk_size) kpl_copy(inside + size, pk_text->at, pk_size);
    if (ehk_size) kpl_copy(inside + size + pk_size, ehk_text->at, ehk_size);
    if (!atoms) PyObject_GC_Track(row);
    return (PyObject *)row;
}

static bool kpl_is_row_type(PyObject *kind) {
    return PyType_Check(kind) && ((PyTypeObject *)kind)->tp_dealloc == kpl_row_dealloc;
}

/* _new(class, fields): as `DeaggregatedRecord(*fields)`. */
static PyObject *kpl_row_new(PyObject *none, PyObject *args) {
    PyObject *kind, *fields;
    (void)none;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &kind, &PyTuple_Type, &fields)) return NULL;
    if (!kpl_is_row_type(kind) || PyTuple_GET_SIZE(fields) != KPL_ROW_FIELDS)
        return PyErr_Format(PyExc_TypeError, "%R is no row of %d fields", kind, KPL_ROW_FIELDS);
    kpl_block *row = kpl_new_row(kind, fields, 0, false);
    if (row) PyObject_GC_Track(row);
    return (PyObject *)row;
}

/* A subclass may have no field of its own: a row is freed without a search for one. */
static PyObject *kpl_row_subclass(PyObject *kind, PyObject *none) {
    (void)none;
    if (((PyTypeObject *)kind)->tp_basicsize != offsetof(kpl_block, refs))
        return PyErr_Format(PyExc_TypeError, "%R has fields of its own", kind);
    ((PyTypeObject *)kind)->tp_dealloc = kpl_row_dealloc;
    Py_RETURN_NONE;
}

/* The class below DeaggregatedRecord; `names`: its fields, a tuple that is never freed. */
static PyObject *kpl_row_storage(PyObject *names) {
    static PyGetSetDef fields[KPL_ROW_FIELDS + 1];
    static PyMethodDef methods[] = {{"_new", kpl_row_new, METH_VARARGS | METH_STATIC, NULL},
                                    {"__init_subclass__", kpl_row_subclass, METH_NOARGS | METH_CLASS, NULL},
                                    {NULL, NULL, 0, NULL}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)kpl_row_dealloc},
                                  {Py_tp_traverse, (void *)kpl_row_traverse},
                                  {Py_tp_is_gc, (void *)kpl_row_is_collected},
                                  {Py_tp_getattro, (void *)kpl_row_getattr},
                                  {Py_tp_getset, fields},
                                  {Py_tp_methods, methods},
                                  {0, NULL}};
    static PyType_Spec spec = {
        "kpl_codec._speedups.RowStorage", offsetof(kpl_block, refs), 1,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    Py_INCREF(names);
    kpl_row_names = names;
    for (Py_ssize_t i = 0; i < KPL_ROW_FIELDS; i++) {
        fields[i].name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
        if (!fields[i].name) return NULL;
        fields[i].get = kpl_row_field;
        fields[i].closure = (void *)(intptr_t)i;
    }
    return PyType_FromSpec(&spec);
}

/* Where the fields of a Value are in its objects, in their order. */
enum { KPL_MOST_SLOTS = 10, KPL_MOST_VALUES = 8 };
typedef struct {
    PyObject *kind;
    Py_ssize_t count, at[KPL_MOST_SLOTS];
} kpl_slots;

static inline PyObject **kpl_slot(PyObject *value, const kpl_slots *slots, Py_ssize_t i) {
    return (PyObject **)((char *)value + slots->at[i]);
}

/* NULL, with TypeError, unless it is a class with `count` slots, named by __match_args__. */
static const kpl_slots *kpl_slots_of(PyObject *kind, Py_ssize_t count) {
    static kpl_slots table[KPL_MOST_VALUES];
    kpl_slots *slots = table;
    while (slots->kind && slots->kind != kind) slots++;
    if (slots->kind && slots->count == count) return slots;
    const bool room = !slots->kind && slots < table + KPL_MOST_VALUES - 1;
    PyObject *names = room && PyType_Check(kind) ? PyObject_GetAttrString(kind, "__match_args__") : NULL;
    bool fit = names && PyTuple_Check(names) && PyTuple_GET_SIZE(names) == count && count <= KPL_MOST_SLOTS &&
               ((PyTypeObject *)kind)->tp_basicsize == (Py_ssize_t)(sizeof(PyObject) + count * sizeof(PyObject *));
    for (Py_ssize_t i = 0; fit && i < count; i++) {
        PyObject *slot = PyObject_GetAttr(kind, PyTuple_GET_ITEM(names, i));
        fit = slot && Py_TYPE(slot) == &PyMemberDescr_Type;
        if (fit) slots->at[i] = ((PyMemberDescrObject *)slot)->d_member->offset;
        Py_XDECREF(slot);
    }
    Py_XDECREF(names);
    if (!fit) {
        PyErr_Format(PyExc_TypeError, "%R has not %zd slots", kind, count);
        return NULL;
    }
    Py_INCREF(kind);
    slots->kind = kind;
    slots->count = count;
    return slots;
}

/* A field of a Value. NULL, with TypeError, if it was never set. */
static inline PyObject *kpl_field_of(PyObject *value, const kpl_slots *slots, Py_ssize_t i) {
    PyObject *field = *kpl_slot(value, slots, i);
    if (!field) return PyErr_Format(PyExc_TypeError, "%R has no field %zd", slots->kind, i);
    return Py_NewRef(field);
}

/* Its fields as a tuple, which the collector does not visit: nobody can change it. */
static PyObject *kpl_fields_of(PyObject *value, const kpl_slots *slots) {
    PyObject *fields = PyTuple_New(slots->count);
    if (!fields) return NULL;
    for (Py_ssize_t i = 0; i < slots->count; i++) {
        PyObject *field = kpl_field_of(value, slots, i);
        if (!field) {
            Py_DECREF(fields);
            return NULL;
        }
        PyTuple_SET_ITEM(fields, i, field);
    }
    PyObject_GC_UnTrack(fields);
    return fields;
}

/* A Value of these fields. `atoms`: none of them can be part of a cycle, so the collector need not visit it. */
static PyObject *kpl_new_value(const kpl_slots *slots, PyObject **items, bool atoms) {
    PyObject *value = (PyObject *)PyObject_GC_New(PyObject, (PyTypeObject *)slots->kind);
    if (!value) return NULL;
    for (Py_ssize_t i = 0; i < slots->count; i++) {
        Py_INCREF(items[i]);
        *kpl_slot(value, slots, i) = items[i];
    }
    if (!atoms) PyObject_GC_Track(value);
    return value;
}
#endif
