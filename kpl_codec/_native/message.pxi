# One message: what wire.h reads of it, and Python objects of that.

cdef extern from "_native/wire.h" nogil:
    cdef enum:
        NONE "KPL_NONE"
        FRAME_OVERHEAD "KPL_FRAME_OVERHEAD"
        MAX_KEY_POINTS "KPL_MAX_KEY_POINTS"

    ctypedef enum Answer "kpl_answer":
        NO_MEMORY "KPL_NO_MEMORY"
        NOT_CERTAIN "KPL_NOT_CERTAIN"
        SOUND "KPL_SOUND"

    ctypedef struct Text "kpl_text":
        const uint8_t *at
        uint32_t size
        uint32_t frame

    ctypedef struct Row "kpl_row":
        const uint8_t *data
        uint32_t size
        uint32_t pk
        uint32_t ehk
        uint32_t frame

    ctypedef struct Rows "kpl_rows":
        Row *at
        size_t count, room

    ctypedef struct Texts "kpl_texts":
        Text *at
        size_t count, room

    ctypedef struct TagAt "kpl_tag":
        const uint8_t *key
        const uint8_t *value
        uint32_t key_size, value_size
        uint32_t row

    ctypedef struct Tags "kpl_tags":
        TagAt *at
        size_t count, room

    ctypedef struct Message "kpl_content":
        Rows rows
        Texts pks
        Texts ehks
        Tags tags

    bint add_row "kpl_add_row" (Rows *rows, const Row *row)
    bint add_text "kpl_add_text" (Texts *texts, const uint8_t *at, size_t size, size_t frame)
    void empty_message "kpl_empty_content" (Message *m)
    void free_message "kpl_free_content" (Message *m)
    void take_message "kpl_take_content" (Message *m)
    void leave_message "kpl_leave_content" (Message *m)
    ctypedef struct HashKeyRange "kpl_hash_key_range":
        pass
    HashKeyRange range_of "kpl_range_of" (const uint8_t *first, const uint8_t *last)
    bint is_within "kpl_is_within" (const uint8_t *key, const HashKeyRange *range)
    int compare_hash_keys "kpl_compare_hash_keys" (const uint8_t *one, const uint8_t *other)
    bint is_hash_key "kpl_is_hash_key" (const uint8_t *p, size_t size)
    void read_hash_key "kpl_read_hash_key" (const uint8_t *p, size_t size, uint8_t *key)
    Answer read_message "kpl_read_message" (const uint8_t *p, const uint8_t *end, size_t frame, Message *m)
    bint looks_aggregated "kpl_looks_aggregated" (const uint8_t *data, size_t size)

cdef extern from "_native/row.h":
    object new_block "kpl_new_block" (PyObject *kind, PyObject *shared, const Row *row, PyObject *pk, const Text *pk_text,
                                      PyObject *ehk, const Text *ehk_text, size_t number, PyObject *placed,
                                      PyObject *tags, bint atoms)



cdef const Slots *record_slots(str name, Py_ssize_t count) except NULL:
    from .format import records
    kind = getattr(records, name)
    return slots_of(<PyObject *>kind, count)


cdef inline bint same_text(const uint8_t *one, size_t size, const uint8_t *other, size_t other_size):
    """Whether both are NULL, or have the same bytes."""
    if one == NULL or other == NULL:
        return one == other
    return size == other_size and memcmp(one, other, size) == 0


cdef tuple tags_of(const Message *m, size_t row, size_t *next, const Slots *kind, tuple before):
    """The tags (of ``kind``) of `row`. `next`: the number of the first tag of this or a later row; it moves on behind
    the row's tags. ``before``: the tags right before `next`: an equal tag or key at the same place is reused."""
    cdef size_t first = next[0], count, number, before_count = PyTuple_GET_SIZE(before)
    cdef const TagAt *tag
    cdef const TagAt *other
    cdef PyObject *items[2]
    cdef object key, value, item
    cdef tuple tags
    while next[0] < m.tags.count and m.tags.at[next[0]].row == row:
        next[0] += 1
    count = next[0] - first
    if count == 0:
        return ()
    tags = PyTuple_New(count)
    PyObject_GC_UnTrack(<void *>tags)  # a tag has no more than texts: nothing refers back
    for number in range(count):
        tag, key, item = &m.tags.at[first + number], None, None
        if number < before_count:
            other = &m.tags.at[first - before_count + number]
            if same_text(tag.key, tag.key_size, other.key, other.key_size):
                item = <object>PyTuple_GET_ITEM(before, number)
                key = field_of(item, kind, 0)
                if not same_text(tag.value, tag.value_size, other.value, other.value_size):
                    item = None
        if item is None:
            if key is None:
                key = new_text(tag.key, tag.key_size)
            value = None if tag.value == NULL else new_text(tag.value, tag.value_size)
            items[0], items[1] = <PyObject *>key, <PyObject *>value
            item = new_value(kind, items, True)
        Py_INCREF_raw(<PyObject *>item)
        set_item(<PyObject *>tags, number, <PyObject *>item)
    return tags


def parse(bytes message not None):
    """The columns of `message.AggregatedRecord` for a sound message; None: Python decides."""
    cdef Message m
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(message)
    cdef Answer answer
    cdef list pks = [], data = [], ehks = None, tags = None
    cdef const Slots *kind
    cdef Row *row
    cdef size_t i, next = 0
    memset(&m, 0, sizeof(m))
    try:
        answer = read_message(start, start + PyBytes_GET_SIZE(message), 0, &m)
        if answer == NO_MEMORY:
            raise MemoryError
        if answer != SOUND:
            return None
        for i in range(m.rows.count):
            row = &m.rows.at[i]
            pks.append(row.pk)
            data.append(PyBytes_FromStringAndSize(<const char *>row.data, row.size))
            if row.ehk != NONE and ehks is None:
                ehks = [-1] * <Py_ssize_t>i
            if ehks is not None:
                ehks.append(-1 if row.ehk == NONE else row.ehk)
        if m.tags.count:
            kind = record_slots("Tag", 2)
            tags = [tags_of(&m, i, &next, kind, ()) for i in range(m.rows.count)]
        keys = tuple([new_text(m.pks.at[i].at, m.pks.at[i].size) for i in range(m.pks.count)])
        return keys, tuple([new_text(m.ehks.at[i].at, m.ehks.at[i].size) for i in range(m.ehks.count)]), pks, ehks, data, tags
    finally:
        free_message(&m)


def user_records(kind, tuple pk_table not None, tuple ehk_table not None, list pks not None,
                 list ehks, list data not None, list tags):
    """The UserRecords (``kind``) of the columns of an AggregatedRecord, whose indices may be wrong."""
    cdef Py_ssize_t count, i, ehk
    cdef const Slots *slots
    cdef tuple no_tags = ()
    cdef PyObject *items[4]
    cdef list out = []
    # Copies: an index that is no int, or the garbage collector, may run code that changes the lists.
    cdef tuple own_pks = tuple(pks), own_data = tuple(data)
    cdef tuple own_ehks = None if ehks is None else tuple(ehks), own_tags = None if tags is None else tuple(tags)
    slots = slots_of(<PyObject *>kind, 4)
    count = len(own_data)
    for column in (own_pks, own_ehks, own_tags):
        if column is not None and len(column) != count:
            raise ValueError("columns of different lengths")
    for i in range(count):
        ehk = -1 if own_ehks is None else own_ehks[i]
        items[0] = item_of(pk_table, own_pks[i])
        items[1] = PyTuple_GET_ITEM(own_data, i)
        items[2] = <PyObject *>None if ehk == -1 else item_of(ehk_table, ehk)
        items[3] = <PyObject *>no_tags if own_tags is None else PyTuple_GET_ITEM(own_tags, i)
        out.append(new_value(slots, items, own_tags is None))
    return out


cdef inline PyObject *item_of(tuple table, Py_ssize_t index) except NULL:
    if not 0 <= index < PyTuple_GET_SIZE(table):
        raise IndexError(index)
    return PyTuple_GET_ITEM(table, index)
