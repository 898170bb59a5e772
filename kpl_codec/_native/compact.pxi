# A sound user record in one block of memory, with its data.

cdef enum:
    MOST_INSIDE = 448  # Python's quick allocator has blocks of up to 512 bytes
    WIDTH = 14  # fields of a DeaggregatedRecord

cdef dict NUMBERS = {}  # of a DeaggregatedRecord's fields, by name


@final
@collection_type("sequence")
cdef class CompactRecord:
    """Stands for a DeaggregatedRecord: `isinstance` says that it is one, it has its attributes, length, items,
    order, hash and text, is equal to it, and pickles as it.

    It holds the bytes of no other user record, and nothing that can be part of a cycle: the garbage collector
    need not visit it. Its data, if short, is made into bytes whenever it is asked for.
    ``shared``: a DeaggregatedRecord with the fields that are the same for all user records of a Kinesis record.
    """

    cdef PyObject *shared
    cdef PyObject *pk
    cdef PyObject *ehk
    cdef PyObject *placed
    cdef uint32_t number
    cdef uint32_t size  # NONE: `inside` is a pointer to bytes
    cdef uint8_t inside[8]  # the data begins here

    def __cinit__(self):
        raise TypeError("only compiled code makes it")

    def __dealloc__(self):
        Py_XDECREF(self.shared)
        Py_XDECREF(self.pk)
        Py_XDECREF(self.ehk)
        Py_XDECREF(self.placed)
        if self.size == NONE:
            Py_XDECREF((<PyObject **>self.inside)[0])

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


cdef inline object field(CompactRecord record, Py_ssize_t number):
    if number == 0:
        return <object>record.pk
    if number == 1:
        if record.size == NONE:
            return <object>(<PyObject **>record.inside)[0]
        return PyBytes_FromStringAndSize(<const char *>record.inside, record.size)
    if number == 2:
        return <object>record.ehk
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


cdef inline CompactRecord compact(object shared, PyObject *pk, const uint8_t *at, uint32_t size, PyObject *ehk,
                                  uint32_t number, PyObject *placed):
    cdef bint outside = size > MOST_INSIDE
    cdef object data = PyBytes_FromStringAndSize(<const char *>at, size) if outside else None
    cdef PyObject *block = kpl_block(<PyObject *>CompactRecord, 0 if outside else size)
    cdef CompactRecord record
    if block == NULL:
        raise MemoryError
    record = <CompactRecord>kpl_steal(block)
    Py_INCREF(shared)
    Py_INCREF_raw(pk)
    Py_INCREF_raw(ehk)
    Py_INCREF_raw(placed)
    record.shared, record.pk, record.ehk, record.placed = <PyObject *>shared, pk, ehk, placed
    record.number, record.size = number, NONE if outside else size
    if outside:
        Py_INCREF(data)
        (<PyObject **>record.inside)[0] = <PyObject *>data
    else:
        memcpy(record.inside, at, size)
    return record
