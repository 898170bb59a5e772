# KinesisRecords of a list -> DeaggregatedRecords: digests and hash keys in parallel, some rows at a time.

cdef enum:
    MOST_RECORDS = 1024  # read together at most
    ROWS_AT_A_TIME = 512  # about so many are made before the first is returned

cdef enum Stop:  # why `take` stops at a record
    NO_STOP = 0
    DROPPED = 1  # the KCL drops the aggregate
    UNDECIDED_MESSAGE = 2  # the digest is right
    UNDECIDED_FRAME = 3


cdef extern from "Python.h":
    object _PyLong_FromByteArray(const unsigned char *at, size_t size, int little_endian, int is_signed)


@final
cdef class FrameRows(JudgedFrames):
    """The first of the KinesisRecords in ``records``, and their user records as ``row_type``.

    ``count``: how many of them it takes (all of a short list). If hash keys are needed, all messages are read
    at once, otherwise each when its rows are made, while its bytes are in the cache. ``fates``: the last
    field of a row by the kind of its aggregate. ``judged``: hash keys of all keys are computed; ``placed``: and
    every row gets a ``placement_type``. ``tags``: frames with tags are uncertain. ``drops``: `take` stops at
    aggregates with user records out of range. Raises TypeError unless every record is a ``record_type`` with
    bytes.
    """

    cdef list records
    cdef type row_type
    cdef type placement_type
    cdef tuple fates
    cdef bint judged
    cdef bint placed
    cdef bint drops
    cdef PyObject **keys  # per text, in the order of `hashes`: its str, once made
    cdef PyObject **placements  # per text: its placement, once made
    cdef size_t *made  # the indices of the texts with a key or a placement
    cdef size_t made_count
    cdef size_t room
    cdef bint tags
    cdef object words
    cdef tuple expected_ids
    cdef dict known_words
    cdef list numbers  # 0, 1, 2 and so on: the rows of all aggregates share them

    def __cinit__(self, list records not None, type record_type not None, type row_type not None,
                  type placement_type not None, tuple fates not None, *, bint tags=False, bint judged=False, bint placed=False,
                  bint drops=False):
        cdef size_t i, size = 0, frames = 0
        cdef object given
        cdef tuple record
        cdef bytes data
        for made, width in ((record_type, 7), (row_type, 12), (placement_type, 6)):
            if not issubclass(made, tuple) or made.__itemsize__ != tuple.__itemsize__ or len(made._fields) != width:
                raise TypeError(made)
        if len(fates) != 4:
            raise ValueError("fates")
        self.records = []
        for i in range(min(<size_t>len(records), <size_t>MOST_RECORDS)):
            given = <object>PyList_GET_ITEM(records, i)
            if not isinstance(given, record_type) or PyTuple_GET_SIZE(given) != 7:
                raise TypeError(given)
            record = <tuple>given
            given = <object>PyTuple_GET_ITEM(record, 1)
            if type(given) is not bytes:
                raise TypeError(given)
            data = <bytes>given
            size += PyBytes_GET_SIZE(data)
            frames += looks_aggregated(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            self.records.append(record)
            if size >= CHUNK and frames % LANES == 0:
                break
        self.row_type, self.placement_type, self.fates = row_type, placement_type, fates
        self.judged, self.placed, self.drops = judged, judged and placed, drops
        self.known_words, self.numbers = {}, []
        self.reserve(len(self.records))
        for i in range(self.count):
            record = <tuple>PyList_GET_ITEM(self.records, i)
            data = <bytes><object>PyTuple_GET_ITEM(record, 1)
            self.data[i].at, self.data[i].size = <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
            # DAG-8: "An aggregate inside the data of a user record MUST be left as it is."
            given = <object>PyTuple_GET_ITEM(record, 6)
            self.data[i].plain = given is not None and given != 0
        self.tags = tags
        if judged:
            self.read_all(tags, True)
        elif self.check_digests(0, self.count) == NO_MEMORY:
            raise MemoryError
        self.make_room()

    def __dealloc__(self):
        self.forget()
        free(self.keys)
        free(self.placements)
        free(self.made)

    cdef int make_room(self) except -1:
        """Makes room for an object for each text."""
        cdef size_t texts = self.m.pks.count + self.m.ehks.count
        if self.keys != NULL and texts <= self.room:
            return 0
        free(self.keys)
        free(self.placements)
        free(self.made)
        self.room = 2 * texts + 16
        self.keys = <PyObject **>calloc(self.room, sizeof(PyObject *))
        self.placements = <PyObject **>calloc(self.room, sizeof(PyObject *))
        self.made = <size_t *>malloc(2 * self.room * sizeof(size_t))
        if self.keys == NULL or self.placements == NULL or self.made == NULL:
            raise MemoryError
        return 0

    cdef int read_now(self, size_t record) except -1:
        """Reads the message of one record, over the one before, and sets its state."""
        cdef Answer answer
        self.m.rows.count = self.m.pks.count = self.m.ehks.count = 0
        answer = self.read_one(record, self.tags)
        if answer == NO_MEMORY:
            raise MemoryError
        return self.make_room()

    cdef void forget(self) noexcept:
        """Frees the objects of one Kinesis record's texts: no other record uses them."""
        cdef size_t number
        while self.made_count:
            self.made_count -= 1
            number = self.made[self.made_count]
            Py_XDECREF(self.keys[number])
            Py_XDECREF(self.placements[number])
            self.keys[number] = self.placements[number] = NULL

    cdef Answer add_plain(self, size_t i, bint hash_keys) noexcept nogil:
        cdef Row row
        cdef Answer answer
        row.data, row.size, row.pk, row.ehk, row.frame = NULL, 0, NONE, NONE, <uint32_t>i
        if hash_keys:
            with gil:
                answer = self.add_keys(i, &row)
            if answer != SOUND:
                return answer
        return SOUND if add_row(&self.m.rows, &row) else NO_MEMORY

    cdef Answer add_keys(self, size_t i, Row *row) noexcept:
        """The key that decides the shard of a plain record, as a text; the record owns its bytes."""
        cdef tuple record = <tuple>PyList_GET_ITEM(self.records, i)
        cdef object key = record[5] if record[5] is not None else record[0]
        cdef Py_ssize_t size
        cdef const uint8_t *at
        if type(key) is not str:
            return NOT_CERTAIN
        try:
            at = <const uint8_t *>PyUnicode_AsUTF8AndSize(key, &size)
        except UnicodeEncodeError:
            return NOT_CERTAIN
        except MemoryError:
            return NO_MEMORY
        if <size_t>size >= NONE:
            return NOT_CERTAIN
        if record[5] is None:
            row.pk = <uint32_t>self.m.pks.count
            return SOUND if add_text(&self.m.pks, at, size, i) else NO_MEMORY
        if not is_hash_key(at, size):
            return NOT_CERTAIN
        row.ehk = <uint32_t>self.m.ehks.count
        return SOUND if add_text(&self.m.ehks, at, size, i) else NO_MEMORY

    def take(self, size_t first, words, tuple expected_ids):
        """(rows, next record, number of aggregates, why it stops there): the user records of certain records
        from ``first`` on.

        It stops at a record that the KCL drops (1), or that Python must open (2: its digest is right; 3: it was
        not looked at, or is wrong), or when some hundred rows are made (0).
        ``words``: gives (verdict, expected shard id, in range) for a code of `judge`; ``expected_ids``: the id for
        each number of an expected shard. Both are used where every row gets a placement.
        """
        cdef list out = []
        cdef size_t record = first, aggregates = 0, start, stop, i
        cdef char kind = 0
        cdef Stop why = NO_STOP
        cdef bint atoms
        cdef tuple source
        if first > self.count:
            raise IndexError(first)
        if self.judged and self.codes == NULL:
            raise ValueError("not judged")
        if self.placed and (expected_ids is None or len(expected_ids) != self.places):
            raise ValueError("expected_ids")
        self.words, self.expected_ids = words, expected_ids
        while record < self.count and len(out) < ROWS_AT_A_TIME:
            source = <tuple>PyList_GET_ITEM(self.records, record)
            # Text, bytes, numbers, and a placement without a reference back: the garbage collector need not
            # visit millions of rows again and again.
            atoms = not PyObject_IS_GC(<object>PyTuple_GET_ITEM(source, 4))
            if self.state[record] == PLAIN:
                out.append(self.plain_row(source, record, atoms))
            else:
                if not self.judged and self.state[record] in (UNREAD, AGGREGATED):
                    self.read_now(record)
                if self.state[record] != AGGREGATED:
                    why = UNDECIDED_MESSAGE if self.state[record] == UNREAD else UNDECIDED_FRAME
                    break
                start, stop = 0, self.m.rows.count
                if self.judged:
                    start, stop = self.starts[record], self.starts[record + 1]
                    kind = self.kind(record)
                    if self.drops and kind >= 2:
                        why = DROPPED
                        break
                aggregates += 1
                while <size_t>len(self.numbers) < stop - start:
                    self.numbers.append(len(self.numbers))
                for i in range(start, stop):
                    out.append(self.user_row(source, i, i - start, kind, atoms))
            self.forget()
            record += 1
        return out, record, aggregates, <int>why

    cdef inline object user_row(self, tuple source, size_t i, Py_ssize_t number, char kind, bint atoms):
        cdef Row *row = &self.m.rows.at[i]
        cdef size_t pks = self.m.pks.count
        cdef bytes data = PyBytes_FromStringAndSize(<const char *>row.data, row.size)
        return self.make(
            self.key(row.pk),
            <PyObject *>data,
            <PyObject *>None if row.ehk == NONE else self.key(pks + row.ehk),
            source,
            <object>PyList_GET_ITEM(self.numbers, number),
            True,
            self.placement(row, source, kind) if self.placed else <PyObject *>None,
            PyTuple_GET_ITEM(self.fates, <Py_ssize_t>kind),
            atoms,
        )

    cdef object plain_row(self, tuple source, size_t record, bint atoms):
        return self.make(
            PyTuple_GET_ITEM(source, 0),
            PyTuple_GET_ITEM(source, 1),
            PyTuple_GET_ITEM(source, 5),
            source,
            source[6] or 0,
            False,
            self.placement(&self.m.rows.at[self.starts[record]], source, 0) if self.placed else <PyObject *>None,
            PyTuple_GET_ITEM(self.fates, 0),
            atoms,
        )

    cdef inline object make(self, PyObject *pk, PyObject *data, PyObject *ehk, tuple source, object sub,
                            object aggregated, PyObject *placement, PyObject *fate, bint atoms):
        cdef PyObject *row = kpl_alloc(<PyObject *>self.row_type, 12)
        if row == NULL:
            raise MemoryError
        put(row, 0, pk)
        put(row, 1, data)
        put(row, 2, ehk)
        put(row, 3, <PyObject *>())
        put(row, 4, PyTuple_GET_ITEM(source, 2))
        put(row, 5, <PyObject *>sub)
        put(row, 6, <PyObject *>aggregated)
        put(row, 7, PyTuple_GET_ITEM(source, 3))
        put(row, 8, PyTuple_GET_ITEM(source, 4))
        put(row, 9, placement)
        put(row, 10, <PyObject *>())
        put(row, 11, fate)
        if atoms:
            PyObject_GC_UnTrack(row)
        return kpl_steal(row)

    cdef PyObject *key(self, size_t number) except NULL:
        """The text with that index as a str, which `keys` owns."""
        cdef Text *text
        cdef object made
        if self.keys[number] == NULL:
            text = &self.m.pks.at[number] if number < self.m.pks.count else &self.m.ehks.at[number - self.m.pks.count]
            made = text_of(text)
            Py_INCREF(made)
            self.keys[number] = <PyObject *>made
            self.made[self.made_count] = number
            self.made_count += 1
        return self.keys[number]

    cdef PyObject *placement(self, const Row *row, tuple source, char kind) except NULL:
        """The placement of the deciding text, which `placements` owns."""
        cdef size_t number = self.deciding(row)
        cdef PyObject *made
        cdef object hash_key
        cdef tuple words
        cdef int64_t code, known
        if self.placements[number] == NULL:
            code = self.codes[number]
            # Out of range the verdict is the same for every pair of shards, and there can be one for each key.
            known = code if code % 6 // 2 == 2 else code % 6
            words = self.known_words.get(known)
            if words is None:
                words = self.words(known)
                if len(words) != 3:
                    raise ValueError(words)
                self.known_words[known] = words
            hash_key = _PyLong_FromByteArray(self.hashes + 16 * number, 16, 0, 0)
            made = kpl_alloc(<PyObject *>self.placement_type, 6)
            if made == NULL:
                raise MemoryError
            put(made, 0, PyTuple_GET_ITEM(words, 0))
            put(made, 1, <PyObject *>hash_key)
            put(made, 2, PyTuple_GET_ITEM(source, 3))
            put(made, 3, PyTuple_GET_ITEM(self.expected_ids, code // 6 % self.places))
            put(made, 4, PyTuple_GET_ITEM(words, 2))
            put(made, 5, PyTuple_GET_ITEM(KINDS, <Py_ssize_t>kind))
            PyObject_GC_UnTrack(made)
            self.placements[number] = made
            self.made[self.made_count] = number
            self.made_count += 1
        return self.placements[number]


cdef tuple KINDS = (None, "whole", "mixed", "foreign")
