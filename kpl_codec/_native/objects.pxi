# Python objects from one message; MD5 of many bytes objects.

cdef inline object text_of(const Text *text):
    """A str of a text that is UTF-8."""
    cdef object made
    if is_ascii(text.at, text.size):
        made = PyUnicode_New(text.size, 127)
        memcpy(PyUnicode_1BYTE_DATA(made), text.at, text.size)
        return made
    return PyUnicode_DecodeUTF8(<const char *>text.at, text.size, NULL)


cdef tuple text_table(const Texts *texts):
    cdef tuple table = PyTuple_New(<Py_ssize_t>texts.count)
    cdef size_t i
    cdef object text
    for i in range(texts.count):
        text = text_of(&texts.at[i])
        Py_INCREF(text)
        PyTuple_SET_ITEM(table, i, text)
    return table


def parse(bytes message not None):
    """The parts of `message.AggregatedRecord` for a sound message; None: Python decides.

    (partition key table, explicit hash key table, partition key indices, explicit hash key indices or
    None, data, None). For a message with tags it returns None.
    """
    cdef Message m
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(message)
    cdef Answer answer
    cdef list pks, ehks, data
    cdef object item
    cdef size_t i
    memset(&m, 0, sizeof(m))
    try:
        answer = read_message(start, start + PyBytes_GET_SIZE(message), 0, &m)
        if answer == NO_MEMORY:
            raise MemoryError
        if answer != SOUND or m.tagged:
            return None
        pks, data = PyList_New(m.rows.count), PyList_New(m.rows.count)
        ehks = None
        for i in range(m.rows.count):
            item = <object>m.rows.at[i].pk
            Py_INCREF(item)
            PyList_SET_ITEM(pks, i, item)
            item = PyBytes_FromStringAndSize(<const char *>m.rows.at[i].data, m.rows.at[i].size)
            Py_INCREF(item)
            PyList_SET_ITEM(data, i, item)
            if m.rows.at[i].ehk != NONE and ehks is None:
                ehks = [-1] * <Py_ssize_t>i
            if ehks is not None:
                ehks.append(-1 if m.rows.at[i].ehk == NONE else m.rows.at[i].ehk)
        return text_table(&m.pks), text_table(&m.ehks), pks, ehks, data, None
    finally:
        free_message(&m)


cdef inline void put(PyObject *row, Py_ssize_t i, PyObject *item) noexcept:
    Py_INCREF_raw(item)
    kpl_set_item(row, i, item)


cdef inline PyObject *entry(tuple table, list indices, Py_ssize_t i) except NULL:
    """`table[indices[i]]`, or None where the index is -1 or there are no indices."""
    cdef Py_ssize_t index
    if indices is None:
        return <PyObject *>None
    index = PyLong_AsSsize_t(<object>PyList_GET_ITEM(indices, i))
    if index == -1:
        return <PyObject *>None
    if not 0 <= index < PyTuple_GET_SIZE(table):
        raise IndexError(index)
    return PyTuple_GET_ITEM(table, index)


cdef bint is_atom(object item):
    """Whether the garbage collector can ignore it, because it cannot be part of a cycle."""
    return not PyObject_IS_GC(item) or item == ()


cdef class Filler:
    """Makes rows of one named tuple type. Items that are not set come from its template."""

    cdef type kind
    cdef tuple template
    cdef Py_ssize_t width
    cdef bint atoms

    def __cinit__(self, type kind not None, tuple template not None):
        if not issubclass(kind, tuple) or kind.__itemsize__ != tuple.__itemsize__ or len(template) < 4:
            raise TypeError(kind)
        self.kind, self.template, self.width = kind, template, len(template)
        self.atoms = hasattr(kind, "__slots__") and all([is_atom(item) for item in template])

    cdef object row(self, PyObject *pk, PyObject *data, PyObject *ehk, PyObject *tags, Py_ssize_t number,
                    PyObject *placement):
        """A row with items 0, 1, 2 and 3, its number at 5 and its placement at 9; NULL: the template's."""
        cdef object sub = number if self.width > 5 else None
        cdef PyObject *row = kpl_alloc(<PyObject *>self.kind, self.width)
        cdef Py_ssize_t i
        if row == NULL:
            raise MemoryError
        put(row, 0, pk)
        put(row, 1, data)
        put(row, 2, ehk)
        for i in range(3, self.width):
            if i == 5:
                put(row, i, <PyObject *>sub)
            elif i == 3 and tags != NULL:
                put(row, i, tags)
            elif i == 9 and placement != NULL:
                put(row, i, placement)
            else:
                put(row, i, PyTuple_GET_ITEM(self.template, i))
        # Only text, bytes and numbers: the garbage collector need not visit millions of rows again and again.
        if self.atoms and tags == NULL and placement == NULL:
            PyObject_GC_UnTrack(row)
        return kpl_steal(row)


def rows(type kind not None, tuple template not None, tuple pk_table not None, tuple ehk_table not None,
         list pks not None, list ehks, list data not None, list tags, list placements=None):
    """A list of `kind`, a named tuple as wide as `template`, one per item of `data`.

    Fields 0, 1, 2 are partition key, data, explicit hash key; 3 the tags, 5 the number of the row, 9 its
    placement, where there are such. All other fields, and columns that are None, come from `template`.
    """
    cdef Filler filler = Filler(kind, template)
    cdef Py_ssize_t count = len(data), i
    cdef list out = []
    for column in (pks, ehks, tags, placements):
        if column is not None and len(column) != count:
            raise ValueError("columns of different lengths")
    for i in range(count):
        out.append(filler.row(
            entry(pk_table, pks, i),
            PyList_GET_ITEM(data, i),
            entry(ehk_table, ehks, i),
            PyList_GET_ITEM(tags, i) if tags is not None else NULL,
            i,
            PyList_GET_ITEM(placements, i) if placements is not None else NULL,
        ))
    return out


def md5_many(list texts not None):
    """The MD5 digest (16 bytes) of every bytes object, in order."""
    cdef size_t count = len(texts), i
    cdef kpl_message *messages = <kpl_message *>malloc((count + 1) * sizeof(kpl_message))
    cdef bytes digests = PyBytes_FromStringAndSize(NULL, 16 * count)
    cdef bytes text
    if messages == NULL:
        raise MemoryError
    try:
        texts = list(texts)  # keeps them alive while they are read
        for i in range(count):
            text = texts[i]
            messages[i].data = <const uint8_t *>PyBytes_AS_STRING(text)
            messages[i].size = PyBytes_GET_SIZE(text)
            messages[i].digest = <uint8_t *>PyBytes_AS_STRING(digests) + 16 * i
        with nogil:
            kpl_md5_many(messages, count)
    finally:
        free(messages)
    return [digests[16 * i : 16 * i + 16] for i in range(count)]
