# User records on their way through the producer.

@no_gc
cdef class Pending:
    """`producer.pending.PlainPending`, compiled. The garbage collector neither counts nor visits each of very many:
    a cycle through one is gone when it has its result."""

    cdef public object record, hash_key, key_hash_key, history, token, result
    cdef public bint own_hash_key, keyless, must_wrap, wrap, alone
    cdef public Py_ssize_t size, bucket, number
    cdef public double accepted_at, deadline, map_deadline, expires_at

    def __init__(self, record not None, hash_key, *, bint own_hash_key, bint keyless, bint must_wrap):
        cdef Py_ssize_t key_size
        PyUnicode_AsUTF8AndSize(record[0], &key_size)
        self.begin(record, hash_key, key_size + len(record[1]))
        self.own_hash_key = own_hash_key
        self.keyless = keyless
        self.must_wrap = self.wrap = must_wrap

    cdef inline void begin(self, object record, object hash_key, Py_ssize_t size):
        self.record = record
        self.hash_key = self.key_hash_key = hash_key
        self.size = size

    def assign(self, hash_key, text not None):
        self.hash_key = hash_key
        if self.record.explicit_hash_key != text:
            self.record = self.record._replace(explicit_hash_key=text)


def plain_pending(type record_kind not None, object partition_key, object data,
                  dict hashes not None, Py_ssize_t largest):
    """A Pending of a `record_kind`, or None if the user record needs a second look.

    The keys of `hashes` may be written. At most `largest` bytes need no second look.
    """
    cdef PyObject *known
    cdef PyObject *record
    cdef object hash_key, made
    cdef Pending pending
    cdef Py_ssize_t size
    if type(partition_key) is not str or type(data) is not bytes:
        return None
    known = PyDict_GetItem(hashes, partition_key)
    if known == NULL:
        return None
    PyUnicode_AsUTF8AndSize(partition_key, &size)
    size += PyBytes_GET_SIZE(data)
    if size > largest:
        return None
    hash_key = <object>known  # another thread may empty the table meanwhile
    if PyBytes_GET_SIZE(data) > FRAME_OVERHEAD and memcmp(PyBytes_AS_STRING(data), b"\xf3\x89\x9a\xc2", 4) == 0:
        return None
    record = kpl_alloc(<PyObject *>record_kind, 4)
    if record == NULL:
        raise MemoryError
    put(record, 0, <PyObject *>partition_key)
    put(record, 1, <PyObject *>data)
    put(record, 2, <PyObject *>None)
    put(record, 3, <PyObject *>())
    PyObject_GC_UnTrack(record)  # only text and bytes
    made = kpl_steal(record)
    pending = Pending.__new__(Pending)
    pending.begin(made, hash_key, size)
    return pending


def deliver(type kind not None, list records not None, str shard_id not None, str number not None,
            tuple last not None):
    """`producer.results.deliver`; `kind` is Delivery, `last` holds the attempt that delivered them."""
    cdef Py_ssize_t i
    cdef PyObject *row
    cdef Pending pending
    cdef object index, left_out, attempts
    for i in range(len(records)):
        pending = records[i]
        index, attempts, left_out = i, last, 0
        if pending.history is not None:
            attempts, left_out = pending.history[0] + last, pending.history[1]
        row = kpl_alloc(<PyObject *>kind, 5)
        if row == NULL:
            raise MemoryError
        put(row, 0, <PyObject *>shard_id)
        put(row, 1, <PyObject *>number)
        put(row, 2, <PyObject *>index)
        put(row, 3, <PyObject *>attempts)
        put(row, 4, <PyObject *>left_out)
        PyObject_GC_UnTrack(row)  # text, numbers and attempts, which hold nothing else
        pending.result = kpl_steal(row)
