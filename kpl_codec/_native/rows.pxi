# KinesisRecords of a list -> DeaggregatedRecords: digests and hash keys in parallel, some hundred rows at a time.

cdef enum:
    MOST_RECORDS = 1024  # read together at most
    ROWS_AT_A_TIME = 512  # of a run, about

cdef enum What:  # of a run; see `FrameRows`
    OPENED = 0
    DROPPED = 1
    UNDECIDED = 2


cdef extern from "Python.h":
    object _PyLong_FromByteArray(const unsigned char *at, size_t size, int little_endian, int is_signed)


@final
cdef class FrameRows(Frames):
    """Opens the first KinesisRecords of ``records``; ``count``: how many (all of a short list).

    An iterator of runs (what, first, last, rows) of the Kinesis records ``first`` to before ``last``: opened (0),
    with their user records; dropped by the KCL (1), with the number of user records; for Python to open (2).

    ``types``: KinesisRecord, DeaggregatedRecord, Placement. ``kcl_results``: the field kcl by the kind of the
    aggregate. ``kcl``: drops aggregates with user records out of range. ``hash_keys``: computes hash keys; the caller
    calls `check_placement` before the first run. ``facts``: if set,
    every row gets a placement: (verdict, expected shard id, in range) by code of `check_placement`.

    For hash keys all messages are read first; otherwise each is read when its rows are made, while its bytes are in
    the cache. Raises TypeError unless every record is a KinesisRecord with bytes.
    """

    cdef list records  # the fields of each, as a tuple: its slots may change
    cdef object row_type
    cdef const Slots *placement_slots
    cdef const Slots *tag_slots  # NULL before the first
    cdef tuple kcl_results
    cdef bint kcl
    cdef bint hash_keys
    cdef public dict facts
    cdef readonly bint opened_before  # whether somebody has opened one of the records
    cdef size_t next  # the first record of the next run
    cdef size_t next_tag  # of the next row or of one after it
    cdef tuple last_tags  # those right before `next_tag`, or none
    cdef bint running
    cdef list keys  # per text, in the order of `hashes`: its str, once made; None before the first
    cdef list placements  # per text: its placement, once made; None before the first

    def __cinit__(self, list records not None, tuple types not None, tuple kcl_results not None, *, bint kcl=False,
                  bint hash_keys=False):
        cdef size_t i, size = 0, frames = 0
        cdef object item
        cdef const Slots *slots
        cdef bytes data
        record_type, self.row_type, placement_type = types
        if not is_row_type(<PyObject *>self.row_type):
            raise TypeError(self.row_type)
        slots = slots_of(<PyObject *>record_type, 10)
        self.placement_slots = slots_of(<PyObject *>placement_type, 6)
        if len(kcl_results) != 4:
            raise ValueError("kcl_results")
        self.records = []
        for i in range(MOST_RECORDS):
            if i >= <size_t>len(records):  # a new tuple may start the garbage collector, which may change the list
                break
            item = <object>PyList_GET_ITEM(records, i)
            if type(item) is not record_type:
                raise TypeError(item)
            self.records.append(fields_of(<PyObject *>item, slots))
            item = <object>self.source(i, 1)
            if type(item) is not bytes:
                raise TypeError(item)
            data = <bytes>item
            size += PyBytes_GET_SIZE(data)
            frames += looks_aggregated(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
            if size >= CHUNK and frames % LANES == 0:
                break
        self.kcl_results, self.kcl, self.hash_keys = kcl_results, kcl, hash_keys
        self.last_tags = ()
        self.reserve(len(self.records))
        for i in range(self.count):
            data = <bytes><object>self.source(i, 1)
            self.data[i].at, self.data[i].size = <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
            # What was opened before is for Python: it has a sub-sequence number, or `opened_before`.
            if self.source(i, 6) != <PyObject *>None or self.source(i, 9) != <PyObject *>None:
                self.data[i].at, self.opened_before = NULL, True
        if hash_keys:
            self.read_all(True)
        elif self.check_digests(0, self.count) == NO_MEMORY:
            raise MemoryError

    cdef inline PyObject *source(self, size_t record, Py_ssize_t field) noexcept:
        """A field of a Kinesis record, which `records` owns."""
        return borrowed_item(PyList_GET_ITEM(self.records, record), field)

    cdef int read_now(self, size_t record) except -1:
        """Reads the message of one record, over the one before, and sets its state."""
        empty_message(&self.m)
        self.next_tag, self.last_tags = 0, ()
        if self.read_one(record) == NO_MEMORY:
            raise MemoryError
        if self.state[record] == UNREAD:
            self.state[record] = UNCERTAIN
        self.keys = None
        return 0

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
        cdef bint explicit = self.source(i, 5) != <PyObject *>None
        cdef object key = <object>self.source(i, 5 if explicit else 0)
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
        if not explicit:
            row.pk = <uint32_t>self.m.pks.count
            return SOUND if add_text(&self.m.pks, at, size, i) else NO_MEMORY
        if not is_hash_key(at, size):
            return NOT_CERTAIN
        row.ehk = <uint32_t>self.m.ehks.count
        return SOUND if add_text(&self.m.ehks, at, size, i) else NO_MEMORY

    def __iter__(self):
        return self

    def __next__(self):
        # A new row may start the garbage collector, and that runs any code.
        if self.running:
            raise RuntimeError("the next run is being made")
        self.running = True
        try:
            return self.next_run()
        finally:
            self.running = False

    cdef tuple next_run(self):
        cdef list rows = []
        cdef size_t first = self.next, record = first, start = 0, stop = 0, i
        cdef What what = OPENED
        cdef char kind = 0
        cdef bint atoms
        cdef tuple shared
        cdef PyObject *none = <PyObject *>None
        if first == self.count:
            raise StopIteration
        if (self.hash_keys or self.facts is not None) and self.codes == NULL:
            raise ValueError("no placement was checked")
        while record < self.count and len(rows) < ROWS_AT_A_TIME:
            atoms = not PyObject_IS_GC(<object>self.source(record, 4))
            if self.state[record] == PLAIN:
                rows.append(self.plain_row(record, atoms))
            else:
                if self.state[record] == UNREAD and not self.hash_keys:
                    self.read_now(record)
                if self.state[record] != AGGREGATED:
                    what = UNDECIDED
                    break
                start, stop = 0, self.m.rows.count
                if self.hash_keys:
                    start, stop = self.starts[record], self.starts[record + 1]
                    kind = self.kind(record)
                    if self.kcl and kind >= 2:
                        what = DROPPED
                        break
                shared = self.fields(record, True, kind, none, none, none, 0, none, atoms)
                if atoms and self.facts is None and self.m.ehks.count == 0 and (self.kcl or self.m.tags.count == 0):
                    self.add_usual_rows(rows, shared, start, stop)
                    start = stop
                for i in range(start, stop):
                    rows.append(self.user_row(shared, record, i, i - start, kind, atoms))
            record += 1
        if record == first:
            self.next += 1
            return <int>what, first, first + 1, stop - start
        self.next = record
        return <int>OPENED, first, record, rows

    cdef tuple fields(self, size_t record, object aggregated, char kind, PyObject *pk, PyObject *data, PyObject *ehk,
                      object sub, PyObject *placed, bint atoms):
        """The fields of a row; of a block those that all user records of the Kinesis record share."""
        cdef tuple values = (
            <object>pk, <object>data, <object>ehk, (), <object>self.source(record, 2), sub, aggregated,
            <object>self.source(record, 3), <object>self.source(record, 4), <object>placed, (), self.kcl_results[<Py_ssize_t>kind],
            <object>self.source(record, 7),
        )
        if atoms:
            PyObject_GC_UnTrack(<void *>values)
        return values

    cdef int add_usual_rows(self, list rows, tuple shared, size_t start, size_t stop) except -1:
        """`user_row` of each, where there are neither explicit hash keys nor placements, tags and cycles."""
        cdef bint same_keys = 2 * self.m.pks.count <= self.m.rows.count
        cdef PyObject *kind = <PyObject *>self.row_type
        cdef PyObject *pk
        cdef const Row *row
        cdef const Text *text
        cdef size_t i
        for i in range(start, stop):
            row = &self.m.rows.at[i]
            text = &self.m.pks.at[row.pk]
            pk = self.key(row.pk) if same_keys or row.size + text.size > MOST_INSIDE else NULL
            rows.append(new_block(kind, <PyObject *>shared, row, pk, text, NULL, NULL, i - start, NULL, NULL, True))
        return 0

    cdef inline object user_row(self, tuple shared, size_t record, size_t i, size_t number, char kind, bint atoms):
        cdef Row *row = &self.m.rows.at[i]
        cdef PyObject *pk = NULL
        cdef PyObject *ehk = NULL
        cdef PyObject *placed = NULL if self.facts is None else self.placement(row, record, kind)
        cdef Text *pk_text = &self.m.pks.at[row.pk]
        cdef Text *ehk_text = NULL if row.ehk == NONE else &self.m.ehks.at[row.ehk]
        cdef size_t size = row.size + pk_text.size + (0 if ehk_text == NULL else ehk_text.size)
        cdef tuple tags
        cdef PyObject *own_tags = NULL
        if self.m.tags.count and not self.kcl:
            tags = self.tags(i)
            if tags:
                own_tags = <PyObject *>tags
        # A text that many have is made once for all.
        if size > MOST_INSIDE or 2 * self.m.pks.count <= self.m.rows.count:
            pk = self.key(row.pk)
        if ehk_text != NULL and (size > MOST_INSIDE or 2 * self.m.ehks.count <= self.m.rows.count):
            ehk = self.key(self.m.pks.count + row.ehk)
        return new_block(<PyObject *>self.row_type, <PyObject *>shared, row, pk, pk_text, ehk, ehk_text, number, placed,
                         own_tags, atoms)

    cdef object plain_row(self, size_t record, bint atoms):
        cdef PyObject *placed = <PyObject *>None
        if self.facts is not None:
            placed = self.placement(&self.m.rows.at[self.starts[record]], record, 0)
        fields = self.fields(record, False, 0, self.source(record, 0), self.source(record, 1), self.source(record, 5),
                             0, placed, atoms)
        row = new_row_of(<PyObject *>self.row_type, <PyObject *>fields, 0, atoms)
        if not atoms:
            PyObject_GC_Track(<void *>row)
        return row

    cdef tuple tags(self, size_t row):
        """The tags of `row`; rows come in order."""
        while self.next_tag < self.m.tags.count and self.m.tags.at[self.next_tag].row < row:
            self.next_tag += 1
            self.last_tags = ()
        if self.tag_slots == NULL:
            self.tag_slots = record_slots("Tag", 2)
        tags = tags_of(&self.m, row, &self.next_tag, self.tag_slots, self.last_tags)
        if tags:
            self.last_tags = tags
        return tags

    cdef inline PyObject *key(self, size_t number) except NULL:
        """The text with that index as a str, which `keys` owns."""
        cdef size_t pks = self.m.pks.count
        cdef const Text *text
        if self.keys is None:
            self.keys = [None] * <Py_ssize_t>(pks + self.m.ehks.count)
        if self.keys[number] is None:
            text = &self.m.pks.at[number] if number < pks else &self.m.ehks.at[number - pks]
            self.keys[number] = new_text(text.at, text.size)
        return PyList_GET_ITEM(self.keys, number)

    cdef PyObject *placement(self, const Row *row, size_t record, char kind) except NULL:
        """The placement of the deciding text, which `placements` owns."""
        cdef size_t number = self.deciding(row)
        cdef PyObject *items[6]
        cdef object hash_key
        cdef tuple facts
        if self.placements is None:
            self.placements = [None] * <Py_ssize_t>(self.m.pks.count + self.m.ehks.count)
        if self.placements[number] is None:
            facts = self.facts[self.codes[number]]
            if len(facts) != 3:
                raise ValueError(facts)
            hash_key = _PyLong_FromByteArray(self.hashes + 16 * number, 16, 0, 0)
            items[0], items[1], items[2] = PyTuple_GET_ITEM(facts, 0), <PyObject *>hash_key, self.source(record, 3)
            items[3], items[4] = PyTuple_GET_ITEM(facts, 1), PyTuple_GET_ITEM(facts, 2)
            items[5] = PyTuple_GET_ITEM(KINDS, <Py_ssize_t>kind)
            self.placements[number] = new_value(self.placement_slots, items, True)
        return PyList_GET_ITEM(self.placements, number)


cdef tuple KINDS = (None, "whole", "mixed", "foreign")


def row_storage(tuple names not None):
    """The class below DeaggregatedRecord, whose fields these are."""
    if len(names) != WIDTH:
        raise ValueError(names)
    return new_storage(names)
