# Arrow's arrays as plain buffers, so that compiling needs no pyarrow.

cdef class Buffer:
    """The bytes of an object (None: no bytes). It holds a reference to the object."""

    cdef Py_buffer view
    cdef object buffer
    cdef uint8_t *at
    cdef size_t size

    def __cinit__(self, buffer, bint writable=False):
        if buffer is not None:
            PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
            self.at, self.size, self.buffer = <uint8_t *>self.view.buf, self.view.len, buffer

    def __dealloc__(self):
        PyBuffer_Release(&self.view)  # of a view that is all zeros it does nothing


cdef class Column:
    """An Arrow array of `count` items: (validity, offsets, bytes, offset), checked here.

    ``wide``: offsets have 64 bits. Raises ValueError if a buffer is too short.
    """

    cdef Buffer valid
    cdef Buffer offsets
    cdef Buffer bytes
    cdef size_t first
    cdef size_t count
    cdef bint wide

    def __cinit__(self, valid, offsets, bytes, size_t first, size_t count, bint wide):
        cdef size_t i
        cdef int64_t start, stop
        self.valid, self.offsets, self.bytes = Buffer(valid), Buffer(offsets), Buffer(bytes)
        self.first, self.count, self.wide = first, count, wide
        if count == 0:
            return
        if valid is not None and self.valid.size < (first + count + 7) // 8:
            raise ValueError("a buffer is too short")
        if self.offsets.size // (8 if wide else 4) < first + count + 1:
            raise ValueError("a buffer is too short")
        for i in range(count):
            start, stop = self.offset(i), self.offset(i + 1)
            if not 0 <= start <= stop or <uint64_t>stop > self.bytes.size:
                raise ValueError("an offset is outside the bytes")

    cdef inline int64_t offset(self, size_t i) noexcept nogil:
        cdef int64_t wide
        cdef int32_t narrow
        if self.wide:
            memcpy(&wide, self.offsets.at + 8 * (self.first + i), 8)
            return wide
        memcpy(&narrow, self.offsets.at + 4 * (self.first + i), 4)
        return narrow

    cdef inline bint is_null(self, size_t i) noexcept nogil:
        return self.valid.at != NULL and not self.valid.at[(self.first + i) >> 3] >> ((self.first + i) & 7) & 1

    cdef inline const uint8_t *item(self, size_t i) noexcept nogil:
        return self.bytes.at + self.offset(i)

    cdef inline size_t size_of(self, size_t i) noexcept nogil:
        return <size_t>(self.offset(i + 1) - self.offset(i))


cdef inline void copy(uint8_t *target, const uint8_t *source, size_t size) noexcept nogil:
    if size:
        memcpy(target, source, size)


cdef extern from "_native/nested.h" nogil:
    void kpl_may_nest_each(const uint8_t *bytes, const uint8_t *offsets, bint wide, size_t count, uint8_t *found)


def may_nest(Column column not None):
    """A byte for each item: 1 if an aggregated record may be within it (format/nested.py), else 0."""
    cdef bytes found = PyBytes_FromStringAndSize(NULL, column.count)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(found)
    cdef size_t width = 8 if column.wide else 4
    if column.count:
        with nogil:
            kpl_may_nest_each(column.bytes.at, column.offsets.at + width * column.first, column.wide, column.count, at)
    return found
