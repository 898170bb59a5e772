# Arrow's arrays as plain buffers, so that compiling needs no pyarrow.

cdef extern from "_native/bytes.h" nogil:
    void copy "kpl_copy" (uint8_t *to, const uint8_t *source, size_t size)


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

    It has a copy of the offsets, which the array's owner may change. ``wide``: offsets have 64 bits. Raises
    ValueError if a buffer is too short.
    """

    cdef Buffer valid
    cdef Buffer bytes
    cdef size_t first
    cdef size_t count
    cdef size_t *starts  # of each item, and the end of the last

    def __cinit__(self, valid, offsets, bytes, size_t first, size_t count, bint wide):
        cdef Buffer numbers = Buffer(offsets)
        cdef size_t i, last = 0, width = 8 if wide else 4
        cdef int64_t start = 0
        cdef int32_t narrow
        self.valid, self.bytes = Buffer(valid), Buffer(bytes)
        if count == 0:
            return
        if numbers.size // width <= count or numbers.size // width - 1 - count < first:
            raise ValueError("a buffer is too short")
        if valid is not None and self.valid.size < (first + count + 7) // 8:
            raise ValueError("a buffer is too short")
        self.starts = <size_t *>malloc((count + 1) * sizeof(size_t))
        if self.starts == NULL:
            raise MemoryError
        for i in range(count + 1):
            if wide:
                memcpy(&start, numbers.at + 8 * (first + i), 8)
            else:
                memcpy(&narrow, numbers.at + 4 * (first + i), 4)
                start = narrow
            if <uint64_t>start < last or <uint64_t>start > self.bytes.size:  # so a negative one, too
                raise ValueError("an offset is outside the bytes")
            last = self.starts[i] = <size_t>start
        self.first, self.count = first, count

    def __dealloc__(self):
        free(self.starts)

    cdef inline bint is_null(self, size_t i) noexcept nogil:
        return self.valid.at != NULL and not self.valid.at[(self.first + i) >> 3] >> ((self.first + i) & 7) & 1

    cdef inline const uint8_t *item(self, size_t i) noexcept nogil:
        return self.bytes.at + self.starts[i]

    cdef inline size_t size_of(self, size_t i) noexcept nogil:
        return self.starts[i + 1] - self.starts[i]
