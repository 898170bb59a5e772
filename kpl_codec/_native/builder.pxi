# Writes user records into one aggregated record.

cdef inline size_t varint_size(uint64_t value) noexcept:
    cdef size_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size

cdef inline uint8_t *write_varint(uint8_t *p, uint64_t value) noexcept:
    while value >= 0x80:
        p[0] = <uint8_t>(value & 0x7F | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1

cdef inline size_t field_size(size_t size) noexcept:
    return 1 + varint_size(size) + size

cdef inline uint8_t *write_field(uint8_t *p, uint8_t *end, uint8_t tag, const char *at, size_t size) noexcept:
    """The end of the field; NULL if it would be after `end`."""
    if p == NULL or field_size(size) > <size_t>(end - p):
        return NULL
    p[0] = tag
    p = write_varint(p + 1, size)
    memcpy(p, at, size)
    return p + size

cdef struct Part:
    # A user record in an aggregated record: bytes of its field without tag and length, and its indices.
    size_t inner, pk_index, ehk_index


cdef class AggregatedRecordBuilder:
    """AggregatedRecordBuilder(max_size=None)\n--\n
    Collects user records up to ``max_size`` bytes of an aggregated record (None: no limit).

    ``add`` takes a user record whole, or raises and changes nothing: no user record gets lost between two
    aggregates. Threads may share a builder.
    """

    cdef object given_max_size
    cdef size_t limit  # `max_size` as a number
    cdef list records
    cdef const Slots *slots  # of a UserRecord
    cdef dict tails  # by the number of a user record: the bytes of its tags
    cdef dict pks
    cdef dict ehks
    cdef Part *parts
    cdef size_t room
    cdef size_t written

    def __cinit__(self, *_, **__):
        self.records, self.tails, self.pks, self.ehks = [], {}, {}, {}
        self.written, self.limit = FRAME_OVERHEAD, <size_t>-1
        self.slots = record_slots("UserRecord", 4)

    def __init__(self, max_size=None):
        check_arguments("AggregatedRecordBuilder", {"max_size": max_size})
        self.max_size = max_size
        self.clear()

    def __dealloc__(self):
        free(self.parts)

    @property
    def max_size(self):
        return self.given_max_size

    @max_size.setter
    def max_size(self, max_size):
        cdef size_t limit = <size_t>-1
        if max_size is not None and max_size < limit:
            limit = int(max_size) if max_size > 0 else 0
        self.given_max_size, self.limit = max_size, limit

    def __len__(self):
        return len(self.records)

    @property
    def size(self):
        """Bytes of the aggregated record that `build` would give now; 0 while there are no user records."""
        return self.written if self.records else 0

    def size_with(self, record not None):
        """The `size` with ``record`` added, whether or not it fits. Raises EncodeError if ``record`` must not
        be written."""
        return self.put(record, False)

    def add(self, record not None):
        """Add ``record``. Raises EncodeError if it must not be written, AggregateFull if it does not fit; the
        builder is then as it was."""
        self.put(record, True)

    def clear(self):
        """Empty the builder. Returns its user records."""
        cdef list none = []
        cdef dict tails = {}, pks = {}, ehks = {}
        # New objects may start the garbage collector, which may run code that adds; the lines below do not.
        records, self.records = self.records, none
        self.tails, self.pks, self.ehks = tails, pks, ehks
        self.written = FRAME_OVERHEAD
        return records

    def build(self):
        """The aggregated record of the user records. Raises EncodeError if there are none."""
        return signed([self.unsigned()])[0]

    cdef size_t put(self, object record, bint write) except 0:
        """ENC-6: counts the bytes with `record`, and adds it if `write`. Raises before it changes anything."""
        cdef size_t count, after
        cdef Py_ssize_t text_size, hash_key_size = 0
        cdef Part part
        cdef PyObject *index
        cdef void *moved
        cdef bytes tail = None
        cdef bint new_pk, new_ehk = False
        cdef str partition_key, hash_key
        cdef bytes data
        # First all that may run Python, in which other code, or another thread, may add.
        if <PyObject *>(<PyObject *>record).ob_type != self.slots.kind:
            from .format.records import user_record_type_error
            raise user_record_type_error(record, len(self.records))
        key, payload = field_of(record, self.slots, 0), field_of(record, self.slots, 1)
        explicit_hash_key, tags = field_of(record, self.slots, 2), field_of(record, self.slots, 3)
        if not self.plainly_fit(key, payload, explicit_hash_key, tags):
            from .format.message import tag_bytes
            from .format.records import check
            check(record, len(self.records))
            tail = b"".join(map(tag_bytes, tags)) or None
            if explicit_hash_key is not None:
                explicit_hash_key = PyUnicode_FromObject(explicit_hash_key)  # a subclass may compare as it likes
        partition_key, data, hash_key = key, payload, explicit_hash_key
        PyUnicode_AsUTF8AndSize(partition_key, &text_size)
        if hash_key is not None:
            PyUnicode_AsUTF8AndSize(hash_key, &hash_key_size)
        # Then the state is read and changed; nothing below runs Python: the keys of the tables are exact str.
        count, after = len(self.records), self.written
        index = PyDict_GetItemWithError(self.pks, partition_key)
        new_pk = index == NULL
        part.pk_index = len(self.pks) if new_pk else PyLong_AsSsize_t(<object>index)
        part.ehk_index = NONE
        if new_pk:
            after += field_size(text_size)
        part.inner = 1 + varint_size(part.pk_index) + field_size(PyBytes_GET_SIZE(data))
        if hash_key is not None:
            index = PyDict_GetItemWithError(self.ehks, hash_key)
            new_ehk = index == NULL
            part.ehk_index = len(self.ehks) if new_ehk else PyLong_AsSsize_t(<object>index)
            part.inner += 1 + varint_size(part.ehk_index)
            if new_ehk:
                after += field_size(hash_key_size)
        if tail is not None:
            part.inner += PyBytes_GET_SIZE(tail)
        after += field_size(part.inner)
        if not write:
            return after
        # ENC-5: a user record is taken whole or refused.
        if after > self.limit:
            raise AggregateFull(field="data", size=after, max_size=self.given_max_size, record_index=count)
        if count >= self.room:
            moved = realloc(self.parts, (2 * count + 16) * sizeof(Part))
            if moved == NULL:
                raise MemoryError
            self.parts, self.room = <Part *>moved, 2 * count + 16
        self.parts[count] = part
        self.written = after
        if new_pk:
            self.pks[partition_key] = part.pk_index
        if new_ehk:
            self.ehks[hash_key] = part.ehk_index
        if tail is not None:
            self.tails[count] = tail
        self.records.append(record)
        return after

    cdef bytes unsigned(self):
        """The aggregated record without its digest: the caller writes the last 16 bytes."""
        cdef bytes frame
        cdef uint8_t *p
        cdef uint8_t *end
        cdef size_t i
        if not self.records:
            raise EncodeError(code="no-user-records", field="records", requirement="ENC-2")
        # ENC-4 of spec/01: all partition keys, all explicit hash keys, all user records.
        frame = PyBytes_FromStringAndSize(NULL, self.written)
        p = <uint8_t *>PyBytes_AS_STRING(frame)
        end = p + self.written - 16
        memcpy(p, b"\xf3\x89\x9a\xc2", 4)
        p = write_keys(p + 4, end, 0x0A, self.pks)
        p = write_keys(p, end, 0x12, self.ehks)
        for i in range(min(<size_t>len(self.records), self.room)):
            p = self.write(p, end, i)
        if p != end:
            raise RuntimeError("the size of an aggregated record is not the counted one; nothing was written")
        return frame

    cdef inline uint8_t *write(self, uint8_t *p, uint8_t *end, size_t i) except? NULL:
        """Writes the field of user record `i`; gives its end, NULL if it would be after `end`."""
        cdef Part *part = &self.parts[i]
        cdef bytes data = <bytes?>field_of(<object>PyList_GET_ITEM(self.records, i), self.slots, 1)
        cdef bytes tail = self.tails[i] if self.tails and i in self.tails else None
        cdef size_t tail_size = 0 if tail is None else PyBytes_GET_SIZE(tail)
        cdef size_t inner = 1 + varint_size(part.pk_index) + field_size(PyBytes_GET_SIZE(data)) + tail_size
        if part.ehk_index != NONE:
            inner += 1 + varint_size(part.ehk_index)
        if p == NULL or part.inner != inner or field_size(inner) > <size_t>(end - p):
            return NULL
        p[0] = 0x1A
        p = write_varint(p + 1, part.inner)
        p[0] = 0x08
        p = write_varint(p + 1, part.pk_index)
        if part.ehk_index != NONE:
            p[0] = 0x10
            p = write_varint(p + 1, part.ehk_index)
        p[0] = 0x1A
        p = write_varint(p + 1, PyBytes_GET_SIZE(data))
        memcpy(p, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        p += PyBytes_GET_SIZE(data)
        if tail_size:
            memcpy(p, PyBytes_AS_STRING(tail), tail_size)
        return p + tail_size

    cdef bint plainly_fit(self, object partition_key, object payload, object explicit_hash_key, object tags):
        """True if a quick check shows that `records.check` accepts the user record."""
        cdef const char *text
        cdef Py_ssize_t size
        if type(partition_key) is not str or type(payload) is not bytes or tags is not ():
            return False
        if not 1 <= len(<str>partition_key) <= MAX_KEY_POINTS:
            return False
        if not is_ascii_text(partition_key):
            return False
        if explicit_hash_key is None:
            return True
        if type(explicit_hash_key) is not str or not is_ascii_text(explicit_hash_key):
            return False
        text = PyUnicode_AsUTF8AndSize(explicit_hash_key, &size)
        # ENC-1: canonical decimal from 0 to 2^128 - 1.
        return (size == 1 or c'1' <= text[0] <= c'9') and is_hash_key(<const uint8_t *>text, size)


cdef uint8_t *write_keys(uint8_t *p, uint8_t *end, uint8_t tag, dict keys) except? NULL:
    """Writes the keys of a table in the order of their first use; NULL if they would be after `end`."""
    cdef Py_ssize_t size
    cdef const char *text
    for key in keys:
        text = PyUnicode_AsUTF8AndSize(key, &size)
        p = write_field(p, end, tag, text, size)
    return p


def md5(message not None):
    """`compiled.md5`."""
    cdef bytes digest = PyBytes_FromStringAndSize(NULL, 16)
    cdef kpl_message one
    cdef Py_buffer view
    PyObject_GetBuffer(message, &view, PyBUF_SIMPLE)
    one.data, one.size = <const uint8_t *>view.buf, view.len
    one.digest = <uint8_t *>PyBytes_AS_STRING(digest)
    with nogil:
        kpl_md5_many(&one, 1)
    PyBuffer_Release(&view)
    return digest


def encode(records):
    """`codec.encode`: one aggregated record of the given user records, in their order."""
    cdef AggregatedRecordBuilder builder = AggregatedRecordBuilder()
    for record in records:
        builder.put(record, True)
    return builder.build()


cdef extern from *:
    """
    #define kpl_name_type(kind, name) (((PyTypeObject *)(kind))->tp_name = (name))
    """
    void kpl_name_type(object kind, const char *name)

# What help() and Jupyter show is what the Python class shows. (Its signature stands in its docstring.)
kpl_name_type(AggregatedRecordBuilder, b"kpl_codec.format.codec.AggregatedRecordBuilder")


def build_many(builders):
    """`codec.build_many`: `build` of every builder, with digests in parallel."""
    return signed([(<AggregatedRecordBuilder?>builder).unsigned() for builder in builders])


cdef list signed(list frames):
    """The same frames with their digests, which are computed in parallel."""
    cdef tuple own = tuple(frames)
    cdef size_t count = len(own), i
    cdef kpl_message *messages = <kpl_message *>malloc((count + 1) * sizeof(kpl_message))
    cdef bytes frame
    if messages == NULL:
        raise MemoryError
    for i in range(count):
        frame = own[i]
        messages[i].data = <const uint8_t *>PyBytes_AS_STRING(frame) + 4
        messages[i].size = PyBytes_GET_SIZE(frame) - FRAME_OVERHEAD
        messages[i].digest = <uint8_t *>PyBytes_AS_STRING(frame) + PyBytes_GET_SIZE(frame) - 16
    with nogil:
        kpl_md5_many(messages, count)
    free(messages)
    return frames
