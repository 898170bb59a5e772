# User records on their way through the producer.

@no_gc
cdef class Pending:
    """`producer.record.PlainPending`, compiled. The garbage collector does not visit it: there are very many, and a
    cycle through one ends with its result."""

    cdef public object record, hash_key, key_hash_key, history, token, result
    cdef public bint own_hash_key, keyless, must_wrap, wrap, alone
    cdef public Py_ssize_t size, bucket, number
    cdef public double accepted_at, deadline, map_deadline, expires_at

    def __init__(self, record not None, hash_key, *, bint own_hash_key, bint keyless, bint must_wrap):
        cdef Py_ssize_t key_size
        PyUnicode_AsUTF8AndSize(record.partition_key, &key_size)
        self.begin(record, hash_key, key_size + len(record.data))
        self.own_hash_key = own_hash_key
        self.keyless = keyless
        self.must_wrap = self.wrap = must_wrap

    cdef inline void begin(self, object record, object hash_key, Py_ssize_t size):
        self.record = record
        self.hash_key = self.key_hash_key = hash_key
        self.size = size

    def enter(self, Py_ssize_t number, double accepted_at, double aggregating, double map_wait, double ttl):
        self.number, self.accepted_at, self.deadline = number, accepted_at, accepted_at + aggregating
        self.map_deadline, self.expires_at = accepted_at + map_wait, accepted_at + ttl

    def assign(self, hash_key, text not None):
        cdef PyObject *items[4]
        cdef type kind = type(self.record)
        self.hash_key = hash_key
        if self.record.explicit_hash_key != text:
            key, data, tags = self.record.partition_key, self.record.data, self.record.tags
            items[0], items[1], items[2], items[3] = <PyObject *>key, <PyObject *>data, <PyObject *>text, <PyObject *>tags
            self.record = new_value(slots_of(<PyObject *>kind, 4), items, tags is ())


def plain_pending(record_kind, object partition_key, object data,
                  dict hashes not None, Py_ssize_t largest):
    """A Pending of a `record_kind`; None: Python decides, for keys that are not in `hashes`, and for user records of
    more than `largest` bytes."""
    cdef PyObject *entry
    cdef PyObject *items[4]
    cdef const Slots *slots = slots_of(<PyObject *>record_kind, 4)
    cdef tuple no_tags = ()
    cdef object hash_key
    cdef Pending pending
    cdef Py_ssize_t size
    if type(partition_key) is not str or type(data) is not bytes:
        return None
    entry = PyDict_GetItemWithError(hashes, partition_key)
    if entry == NULL:
        return None
    hash_key = <object>entry  # another thread may empty the table
    PyUnicode_AsUTF8AndSize(partition_key, &size)
    size += PyBytes_GET_SIZE(data)
    if size > largest:
        return None
    if PyBytes_GET_SIZE(data) > FRAME_OVERHEAD and memcmp(PyBytes_AS_STRING(data), b"\xf3\x89\x9a\xc2", 4) == 0:
        return None
    items[0], items[1] = <PyObject *>partition_key, <PyObject *>data
    items[2], items[3] = <PyObject *>None, <PyObject *>no_tags
    pending = Pending.__new__(Pending)
    pending.begin(new_value(slots, items, True), hash_key, size)
    return pending


def deliver(kind, list records not None, str shard_id not None, str number not None,
            tuple last not None):
    """`producer.record.deliver_in_python`; `kind` is Delivery, `last` holds the attempt that delivered them."""
    cdef Py_ssize_t i
    cdef const Slots *slots = slots_of(<PyObject *>kind, 5)
    cdef PyObject *items[5]
    cdef Pending pending
    cdef object index, left_out, attempts
    cdef tuple pendings = tuple(records)  # a result that is replaced may run code, and that may change the list
    for i in range(len(pendings)):
        pending = pendings[i]
        index, attempts, left_out = i, last, 0
        if pending.history is not None:
            attempts, left_out = pending.history[0] + last, pending.history[1]
        items[0], items[1], items[2] = <PyObject *>shard_id, <PyObject *>number, <PyObject *>index
        items[3], items[4] = <PyObject *>attempts, <PyObject *>left_out
        pending.result = new_value(slots, items, True)  # attempts hold nothing but text and numbers
