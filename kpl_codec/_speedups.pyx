# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled extension. It gives the same records, bytes and sizes as the Python code, or "uncertain": then
Python decides. It never raises for bad bytes.

    parse, user_records          one message -> tables, indices, data -> user records     (message.py)
    FrameRows                    KinesisRecords -> runs of user records                   (deaggregation/)
    row_storage                  the storage of a DeaggregatedRecord                      (deaggregation/)
    FrameColumns                 the columns of an Arrow batch -> those of user records   (arrow/)
    AggregatedRecordBuilder      and encode, build_many, md5                              (codec.py)
    Pending                      plain_pending, deliver                                   (producer/)

Rules for all code below:
* Read a pointer only below the `end` that is passed with it. Compare sizes with `end - p`, never add them to a pointer
  first. Compare an index from the bytes with its table before using it.
* First do all that may run Python: an iteration, a comparison, an attribute, a conversion of what is no exact int or
  str, a new object that the garbage collector tracks, a replaced result. Then read and change state, without Python in
  between. Copy what others can change (a list, a buffer of offsets) before measuring it.
* Loops over many frames run without the GIL.
"""

import os

if os.environ.get("KPL_CODEC_PURE") == "1":
    raise ImportError("KPL_CODEC_PURE=1 asks for the pure Python path")

from .base.arguments import check_arguments
from .errors import AggregateFull, EncodeError

from cython cimport final, no_gc
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_AsSsize_t
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_GET_SIZE, PyTuple_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from "Python.h":
    # Sets the items of a new tuple; Cython's own calls would count references twice.
    void set_item "PyTuple_SET_ITEM" (PyObject *row, Py_ssize_t i, PyObject *item)
    void Py_INCREF_raw "Py_INCREF" (PyObject *item)
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t i)  # borrowed
    PyObject *PyTuple_GET_ITEM(object items, Py_ssize_t i)
    PyObject *borrowed_item "PyTuple_GET_ITEM" (PyObject *items, Py_ssize_t i)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint is_ascii_text "PyUnicode_IS_COMPACT_ASCII" (object text)
    object PyUnicode_FromObject(object text)  # exactly a str, without running Python
    bint PyObject_IS_GC(object item)
    void PyObject_GC_UnTrack(void *row)
    void PyObject_GC_Track(void *row)

cdef extern from "_native/md5.h" nogil:
    ctypedef struct kpl_message:
        const uint8_t *data
        size_t size
        uint8_t *digest
    void kpl_md5_many(kpl_message *messages, size_t count)

cdef extern from "_native/row.h":
    enum:
        WIDTH "KPL_ROW_FIELDS"
        MOST_INSIDE "KPL_MOST_INSIDE"
    ctypedef struct Slots "kpl_slots":
        PyObject *kind
    object new_storage "kpl_row_storage" (tuple names)
    bint is_row_type "kpl_is_row_type" (PyObject *kind)
    object new_text "kpl_new_text" (const uint8_t *at, size_t size)
    object new_row_of "(PyObject *)kpl_new_row" (PyObject *kind, PyObject *fields, size_t more, bint atoms)
    const Slots *slots_of "kpl_slots_of" (PyObject *kind, Py_ssize_t count) except NULL
    object fields_of "kpl_fields_of" (PyObject *value, const Slots *slots)
    object field_of "kpl_field_of" (object value, const Slots *slots, Py_ssize_t i)
    object new_value "kpl_new_value" (const Slots *slots, PyObject **items, bint atoms)

include "_native/message.pxi"
include "_native/buffers.pxi"
include "_native/read.pxi"
include "_native/write.pxi"
include "_native/rows.pxi"
include "_native/builder.pxi"
include "_native/pending.pxi"
