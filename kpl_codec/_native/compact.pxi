# A sound user record in one block of memory, with its data.

cdef enum:
    MOST_INSIDE = 448  # Python's quick allocator has blocks of up to 512 bytes
    ROOM = 6  # of it in the fields, which then are 64 bytes
    OUTSIDE = 0xFFFF  # the size of data for which a pointer to bytes is inside
    WIDTH = 14  # fields of a DeaggregatedRecord

cdef dict NUMBERS = {}  # of a DeaggregatedRecord's fields, by name


@final
@collection_type("sequence")
cdef class CompactRecord:
    """Stands for a DeaggregatedRecord: `isinstance` says that it is one, it has its attributes, length, items,
    order, hash and text, is equal to it, and pickles as it.

    It holds the bytes of no other user record, and nothing that can be part of a cycle: the garbage collector
    need not visit it. Its data, if short, is made into bytes whenever it is asked for; so are keys that few others
    have.
    ``shared``: a DeaggregatedRecord with the fields that are the same for all user records of a Kinesis record.
    """

    cdef PyObject *shared
    cdef PyObject *pk  # NULL: the text is inside
    cdef PyObject *ehk  # as well
    cdef PyObject *placed
    cdef uint32_t number
    cdef uint16_t size
    cdef uint16_t pk_size
    cdef uint16_t ehk_size
    cdef uint8_t inside[ROOM]  # data, or a pointer to it; partition key; explicit hash key

    def __cinit__(self):
        raise TypeError("only compiled code makes it")

    def __dealloc__(self):
        Py_XDECREF(self.shared)
        Py_XDECREF(self.pk)
        Py_XDECREF(self.ehk)
        Py_XDECREF(self.placed)
        if self.size == OUTSIDE:
            Py_XDECREF(bytes_of(self))

    def __getattribute__(self, name):
        cdef PyObject *number = PyDict_GetItemWithError(NUMBERS, name)
        return getattr(whole(self), name) if number == NULL else field(self, PyLong_AsSsize_t(<object>number))

    def __len__(self):
        return WIDTH

    def __getitem__(self, index):
        return whole(self)[index]

    def __iter__(self):
        return iter(whole(self))

    def __add__(self, other):
        return whole(self) + other

    def __radd__(self, other):
        return other + whole(self)

    def __hash__(self):
        return hash(whole(self))

    def __repr__(self):
        return repr(whole(self))

    def __richcmp__(self, other, int op):
        return PyObject_RichCompare(whole(self), whole(other) if type(other) is CompactRecord else other, op)


cdef inline PyObject *bytes_of(CompactRecord record) noexcept:
    cdef PyObject *data
    memcpy(&data, record.inside, sizeof(data))
    return data


cdef inline object field(CompactRecord record, Py_ssize_t number):
    cdef Text text
    if number == 0:
        if record.pk != NULL:
            return <object>record.pk
        text.at, text.size = record.inside + record.size, record.pk_size
        return text_of(&text)
    if number == 1:
        if record.size == OUTSIDE:
            return <object>bytes_of(record)
        return PyBytes_FromStringAndSize(<const char *>record.inside, record.size)
    if number == 2:
        if record.ehk != NULL:
            return <object>record.ehk
        text.at, text.size = record.inside + record.size + record.pk_size, record.ehk_size
        return text_of(&text)
    if number == 5:
        return record.number
    if number == 9:
        return <object>record.placed
    return <object>PyTuple_GET_ITEM(<object>record.shared, number)


cdef object whole(CompactRecord record):
    """The DeaggregatedRecord that it stands for."""
    cdef list fields = [field(record, i) for i in range(WIDTH)]
    cdef PyObject *items[WIDTH]
    cdef Py_ssize_t i
    for i in range(WIDTH):
        items[i] = PyList_GET_ITEM(fields, i)
    return new_row(type(<object>record.shared), items, WIDTH, not PyObject_GC_IsTracked(<object>record.shared))


cdef CompactRecord compact(object shared, const Row *row, PyObject *pk, const Text *pk_text, PyObject *ehk,
                           const Text *ehk_text, uint32_t number, PyObject *placed):
    """``pk`` and ``ehk``: NULL where their texts come inside; these and short data are at most MOST_INSIDE bytes."""
    cdef bint outside = row.size > MOST_INSIDE
    cdef object data = PyBytes_FromStringAndSize(<const char *>row.data, row.size) if outside else None
    cdef PyObject *pointer = <PyObject *>data
    cdef size_t size = sizeof(pointer) if outside else row.size
    cdef size_t pk_size = 0 if pk != NULL else pk_text.size, ehk_size = 0 if ehk != NULL else ehk_text.size
    cdef PyObject *block = kpl_block(<PyObject *>CompactRecord, max(size + pk_size + ehk_size, <size_t>ROOM) - ROOM)
    cdef CompactRecord record
    if block == NULL:
        raise MemoryError
    record = <CompactRecord>kpl_steal(block)
    Py_INCREF(shared)
    Py_XINCREF(pk)
    Py_XINCREF(ehk)
    Py_INCREF_raw(placed)
    record.shared, record.pk, record.ehk, record.placed = <PyObject *>shared, pk, ehk, placed
    record.number, record.size = number, <uint16_t>OUTSIDE if outside else <uint16_t>size
    record.pk_size, record.ehk_size = <uint16_t>pk_size, <uint16_t>ehk_size
    if outside:
        Py_INCREF(data)
    memcpy(record.inside, <const void *>&pointer if outside else <const void *>row.data, size)
    if pk == NULL:
        memcpy(record.inside + size, pk_text.at, pk_size)
    if ehk == NULL:
        memcpy(record.inside + size + pk_size, ehk_text.at, ehk_size)
    return record
