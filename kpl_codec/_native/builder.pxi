# Writes user records into one aggregated record; the size is the number of bytes written.

cdef struct Bytes:
    uint8_t *at
    size_t count
    size_t room

cdef inline uint8_t *reserve(Bytes *out, size_t size) except NULL:
    """Makes room for `size` more bytes at the end."""
    cdef size_t room
    cdef void *moved
    if out.at == NULL or out.room - out.count < size:
        room = (out.count + size) * 2 + 1024
        moved = realloc(out.at, room)
        if moved == NULL:
            raise MemoryError
        out.at, out.room = <uint8_t *>moved, room
    return out.at + out.count

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

cdef int append_field(Bytes *out, uint8_t tag, const char *at, size_t size) except -1:
    cdef uint8_t *p = reserve(out, size + 11)
    p[0] = tag
    p = write_varint(p + 1, size)
    memcpy(p, at, size)
    out.count += field_size(size)
    return 0

cdef bint is_canonical_hash_key(const char *text, Py_ssize_t size):
    # ENC-1: canonical decimal from 0 to 2^128 - 1.
    if size > 1 and text[0] == c'0':
        return False
    return is_hash_key(<const uint8_t *>text, size)


cdef struct Growth:
    # What a user record adds to an aggregated record: bytes of all, and of its own field without the head.
    size_t size, inner
    size_t pk_index, ehk_index
    bint new_pk, new_ehk

cdef int measure(
    Growth *growth, dict pks, dict ehks, str partition_key, bytes data, object explicit_hash_key, object tags
) except -1:
    """ENC-6: the one count of bytes; who writes writes as many."""
    cdef Py_ssize_t text_size
    cdef PyObject *known = PyDict_GetItem(pks, partition_key)
    growth.size = 0
    growth.new_pk = known == NULL
    growth.pk_index = len(pks) if growth.new_pk else PyLong_AsSsize_t(<object>known)
    if growth.new_pk:
        PyUnicode_AsUTF8AndSize(partition_key, &text_size)
        growth.size += field_size(text_size)
    growth.inner = 1 + varint_size(growth.pk_index) + field_size(PyBytes_GET_SIZE(data))
    growth.new_ehk = False
    if explicit_hash_key is not None:
        known = PyDict_GetItem(ehks, explicit_hash_key)
        growth.new_ehk = known == NULL
        growth.ehk_index = len(ehks) if growth.new_ehk else PyLong_AsSsize_t(<object>known)
        growth.inner += 1 + varint_size(growth.ehk_index)
        if growth.new_ehk:
            growth.size += field_size(len(<str>explicit_hash_key))  # digits
    if tags:
        growth.inner += len(tail_of(tags))
    growth.size += field_size(growth.inner)
    return 0


cdef bytes tail_of(tags):
    """The tags, as written behind the data."""
    from .format.message import tag_bytes
    return b"".join([tag_bytes(tag) for tag in tags])


cdef class AggregatedRecordBuilder:
    """Collects user records up to ``max_size`` bytes (None: no limit); `size` is exact at every step.

    State: the user records so far. ``add`` either takes a user record whole or raises and changes
    nothing, so that no user record can get lost between two aggregates.
    """

    cdef public object max_size
    cdef list records
    cdef dict pks
    cdef dict ehks
    cdef Bytes pk_table
    cdef Bytes ehk_table
    cdef Bytes body

    def __cinit__(self):
        memset(&self.pk_table, 0, sizeof(Bytes))
        memset(&self.ehk_table, 0, sizeof(Bytes))
        memset(&self.body, 0, sizeof(Bytes))

    def __init__(self, max_size=None):
        self.max_size = max_size
        self.clear()

    def __dealloc__(self):
        free(self.pk_table.at)
        free(self.ehk_table.at)
        free(self.body.at)

    def __len__(self):
        return len(self.records)

    cdef size_t written(self) noexcept:
        return FRAME_OVERHEAD + self.pk_table.count + self.ehk_table.count + self.body.count

    @property
    def size(self):
        """Bytes that `build` gives now; 0 while empty."""
        return self.written() if self.records else 0

    def size_with(self, record not None):
        """Bytes that `build` would give with ``record`` added, whether or not they fit.

        Raises EncodeError if it must not be written.
        """
        return self.put(record, False)

    def add(self, record not None):
        """Add ``record``. Raises EncodeError if it must not be written, AggregateFull if it does not
        fit; in both cases nothing has changed."""
        self.put(record, True)

    def build(self):
        """The aggregated record of the added user records. Raises EncodeError if there are none."""
        cdef bytes frame = self.unsigned()
        cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(frame)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(frame)
        memcpy(start + size - 16, PyBytes_AS_STRING(digest_of(<const uint8_t[: size - 20]>(start + 4))), 16)
        return frame

    cdef bytes unsigned(self):
        """The same without its digest: the caller writes the last 16 bytes."""
        cdef bytes frame
        cdef uint8_t *p
        if not self.records:
            raise EncodeError(code="no-user-records", field="records", requirement="ENC-2")
        # ENC-4 of spec/01: all partition keys, all explicit hash keys, all user records.
        frame = PyBytes_FromStringAndSize(NULL, self.written())
        p = <uint8_t *>PyBytes_AS_STRING(frame)
        memcpy(p, b"\xf3\x89\x9a\xc2", 4)
        p += 4
        memcpy(p, self.pk_table.at, self.pk_table.count)
        p += self.pk_table.count
        if self.ehk_table.count:
            memcpy(p, self.ehk_table.at, self.ehk_table.count)
            p += self.ehk_table.count
        memcpy(p, self.body.at, self.body.count)
        return frame

    def clear(self):
        """Empties the builder. Returns its user records."""
        records, self.records = self.records, []
        self.pks, self.ehks = {}, {}
        self.pk_table.count = self.ehk_table.count = self.body.count = 0
        return records

    cdef size_t put(self, object record, bint write) except 0:
        """The size with `record`; adds it if `write`. Raises before anything has changed."""
        cdef Growth growth
        cdef const char *text
        cdef Py_ssize_t text_size
        cdef size_t after, data_size
        cdef bytes tail
        cdef uint8_t *p
        partition_key, data, explicit_hash_key, tags = record
        if not self.plainly_fit(partition_key, data, explicit_hash_key, tags):
            _size.check(record, len(self.records))
        measure(&growth, self.pks, self.ehks, partition_key, data, explicit_hash_key, tags)
        after = self.written() + growth.size
        if not write:
            return after
        # ENC-5: a user record is taken whole or refused.
        if self.max_size is not None and after > self.max_size:
            raise AggregateFull(
                field="data", size=after, max_size=self.max_size, record_index=len(self.records)
            )
        self.records.append(record)
        p = reserve(&self.body, growth.inner + 11)
        if growth.new_pk:
            text = PyUnicode_AsUTF8AndSize(partition_key, &text_size)
            append_field(&self.pk_table, 0x0A, text, text_size)
            self.pks[partition_key] = growth.pk_index
        if growth.new_ehk:
            text = PyUnicode_AsUTF8AndSize(explicit_hash_key, &text_size)
            append_field(&self.ehk_table, 0x12, text, text_size)
            self.ehks[explicit_hash_key] = growth.ehk_index
        p[0] = 0x1A
        p = write_varint(p + 1, growth.inner)
        p[0] = 0x08
        p = write_varint(p + 1, growth.pk_index)
        if explicit_hash_key is not None:
            p[0] = 0x10
            p = write_varint(p + 1, growth.ehk_index)
        data_size = PyBytes_GET_SIZE(data)
        p[0] = 0x1A
        p = write_varint(p + 1, data_size)
        memcpy(p, PyBytes_AS_STRING(data), data_size)
        if tags:
            tail = tail_of(tags)
            memcpy(p + data_size, PyBytes_AS_STRING(tail), len(tail))
        self.body.count += field_size(growth.inner)
        return after

    cdef bint plainly_fit(self, object partition_key, object payload, object explicit_hash_key, object tags):
        """Whether `size.check` would accept it, if that can be checked fast."""
        cdef const char *text
        cdef Py_ssize_t size
        if type(partition_key) is not str or type(payload) is not bytes or tags:
            return False
        if not 1 <= len(<str>partition_key) <= MAX_KEY_POINTS:
            return False
        if not (<str>partition_key).isascii():
            return False
        if explicit_hash_key is None:
            return True
        if type(explicit_hash_key) is not str or not (<str>explicit_hash_key).isascii():
            return False
        text = PyUnicode_AsUTF8AndSize(explicit_hash_key, &size)
        return is_canonical_hash_key(text, size)


cdef bytes digest_of(const uint8_t[:] message):
    return hashlib.md5(message, usedforsecurity=False).digest()


def encode(records):
    """`codec.encode`: one aggregated record of the given user records, in their order."""
    cdef AggregatedRecordBuilder builder = AggregatedRecordBuilder()
    for record in records:
        builder.put(record, True)
    return builder.build()


def encode_many(groups):
    """`codec.encode_many`: `encode` of every group, with digests in parallel."""
    cdef AggregatedRecordBuilder builder = AggregatedRecordBuilder()
    cdef list frames = []
    cdef kpl_message *messages
    cdef bytes frame
    cdef size_t count, i
    for index, records in enumerate(groups):
        try:
            for record in records:
                builder.put(record, True)
            frames.append(builder.unsigned())
        except EncodeError as error:
            raise error.in_group(index) from None
        builder.clear()
    count = len(frames)
    messages = <kpl_message *>malloc((count + 1) * sizeof(kpl_message))
    if messages == NULL:
        raise MemoryError
    for i in range(count):
        frame = frames[i]
        messages[i].data = <const uint8_t *>PyBytes_AS_STRING(frame) + 4
        messages[i].size = PyBytes_GET_SIZE(frame) - FRAME_OVERHEAD
        messages[i].digest = <uint8_t *>PyBytes_AS_STRING(frame) + PyBytes_GET_SIZE(frame) - 16
    with nogil:
        kpl_md5_many(messages, count)
    free(messages)
    return frames
