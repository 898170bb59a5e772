# The data column of an Arrow batch -> columns of user records, through buffers: no pyarrow needed to
# compile this, and no object per user record.

cdef enum:
    CHUNK = 1 << 19  # bytes hashed at least before they are parsed, while the cache still has them
    LANES = 16

cdef class Buffer:
    """A read-only look at an object's bytes (None: no bytes), held while this lives."""

    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *at
    cdef size_t size

    def __cinit__(self, source):
        if source is not None:
            PyObject_GetBuffer(source, &self.view, PyBUF_SIMPLE)
            self.held = True
            self.at, self.size = <const uint8_t *>self.view.buf, self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class Output:
    """A buffer of `allocate(size)` to write to; `buffer` is the object itself."""

    cdef Py_buffer view
    cdef bint held
    cdef uint8_t *at
    cdef object buffer

    def __cinit__(self, allocate, size_t size):
        self.buffer = allocate(size)
        PyObject_GetBuffer(self.buffer, &self.view, PyBUF_WRITABLE)
        self.held = True
        if <size_t>self.view.len < size:
            raise ValueError("allocate gave too little")
        self.at = <uint8_t *>self.view.buf

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef class Column:
    """A text or binary Arrow array of `count` items: (validity, offsets, bytes, offset), checked once.

    ``wide``: offsets have 64 bits. Raises ValueError for buffers that do not hold what they say.
    """

    cdef Buffer valid
    cdef Buffer offsets
    cdef Buffer bytes
    cdef size_t first
    cdef size_t count
    cdef bint wide

    def __cinit__(self, valid, offsets, bytes, size_t first, size_t count, bint wide):
        cdef size_t i
        cdef int64_t start, stop
        self.valid, self.offsets, self.bytes = Buffer(valid), Buffer(offsets), Buffer(bytes)
        self.first, self.count, self.wide = first, count, wide
        if count == 0:
            return
        if self.offsets.size // (8 if wide else 4) < first + count + 1 or (
            valid is not None and self.valid.size < (first + count + 7) // 8
        ):
            raise ValueError("a buffer is too short")
        for i in range(count):
            start, stop = self.offset(i), self.offset(i + 1)
            if not 0 <= start <= stop or <uint64_t>stop > self.bytes.size:
                raise ValueError("an offset is outside the bytes")

    cdef inline int64_t offset(self, size_t i) noexcept nogil:
        cdef int64_t wide
        cdef int32_t narrow
        if self.wide:
            memcpy(&wide, self.offsets.at + 8 * (self.first + i), 8)
            return wide
        memcpy(&narrow, self.offsets.at + 4 * (self.first + i), 4)
        return narrow

    cdef inline bint is_null(self, size_t i) noexcept nogil:
        return self.valid.at != NULL and not self.valid.at[(self.first + i) >> 3] >> ((self.first + i) & 7) & 1

    cdef inline const uint8_t *item(self, size_t i) noexcept nogil:
        return self.bytes.at + self.offset(i)

    cdef inline size_t size_of(self, size_t i) noexcept nogil:
        return <size_t>(self.offset(i + 1) - self.offset(i))


cdef inline void copy(uint8_t *target, const uint8_t *source, size_t size) noexcept nogil:
    if size:
        memcpy(target, source, size)


cdef class Frames:
    """The Kinesis records of one batch, read as a whole.

    ``data``, ``partition_keys``, ``explicit_hash_keys``: `Column`s of the same length (the last two for
    plain records). ``status`` has a byte per Kinesis record: 0 not certain (it has no rows here, Python
    decides), 1 plain, 2 a sound aggregate. Rows are numbered through all records, in order.
    ``allocate(size)`` gives every output buffer. ``tags``: frames with tags are not certain;
    ``hash_keys``: nor are plain records whose hash key is not plain to see, and digests of keys are made.
    """

    cdef Message m
    cdef Column data
    cdef Column pk
    cdef Column ehk
    cdef object allocate
    cdef uint8_t *state
    cdef size_t *starts  # first row of each record, and the end of the last
    cdef uint8_t *pk_hashes  # 16 bytes per text
    cdef uint8_t *ehk_hashes
    cdef int32_t *pk_groups  # per text: which verdict, see `judge`
    cdef int32_t *ehk_groups
    cdef int8_t *pk_inside  # per text: 1 in the range of its shard, 0 outside, -1 range unknown
    cdef int8_t *ehk_inside
    cdef readonly size_t count

    def __cinit__(self, Column data not None, Column partition_keys not None, Column explicit_hash_keys not None,
                  allocate, *, bint tags=False, bint hash_keys=False):
        cdef Answer answer
        memset(&self.m, 0, sizeof(self.m))
        if partition_keys.count != data.count or explicit_hash_keys.count != data.count:
            raise ValueError("columns of different lengths")
        if data.count >= NONE:
            raise ValueError("too many records")
        self.data, self.pk, self.ehk, self.allocate = data, partition_keys, explicit_hash_keys, allocate
        self.count = data.count
        self.state = <uint8_t *>malloc(self.count + 1)
        self.starts = <size_t *>malloc((self.count + 1) * sizeof(size_t))
        if self.state == NULL or self.starts == NULL:
            raise MemoryError
        with nogil:
            answer = self.read(tags, hash_keys)
            if answer != NO_MEMORY and hash_keys:
                answer = self.hash()
        if answer == NO_MEMORY:
            raise MemoryError

    def __dealloc__(self):
        free_message(&self.m)
        free(self.state)
        free(self.starts)
        free(self.pk_hashes)
        free(self.ehk_hashes)
        free(self.pk_groups)
        free(self.ehk_groups)
        free(self.pk_inside)
        free(self.ehk_inside)

    cdef Answer read(self, bint tags, bint hash_keys) noexcept nogil:
        cdef size_t first = 0, last, size, sized, asked, i
        cdef kpl_message *messages = <kpl_message *>malloc((self.count + 1) * sizeof(kpl_message))
        cdef uint8_t *digests = <uint8_t *>malloc(16 * (self.count + 1))
        cdef const uint8_t *at
        cdef Answer answer = SOUND if messages != NULL and digests != NULL else NO_MEMORY
        while first < self.count and answer != NO_MEMORY:
            last, sized, asked = first, 0, 0
            while last < self.count and (sized < CHUNK or asked % LANES):
                at, size = self.data.item(last), self.data.size_of(last)
                self.state[last] = 0
                if not self.data.is_null(last):
                    self.state[last] = 2 if looks_aggregated(at, size) else 1
                if self.state[last] == 2:
                    messages[asked].data, messages[asked].size = at + 4, size - FRAME_OVERHEAD
                    messages[asked].digest = digests + 16 * asked
                    asked += 1
                sized += size
                last += 1
            kpl_md5_many(messages, asked)
            asked = 0
            for i in range(first, last):
                self.starts[i] = self.m.rows.count
                at, size = self.data.item(i), self.data.size_of(i)
                if self.state[i] == 2:
                    answer = NOT_CERTAIN
                    if memcmp(digests + 16 * asked, at + size - 16, 16) == 0:
                        self.m.tagged = False
                        answer = read_message(at + 4, at + size - 16, i, &self.m)
                        if answer == SOUND and tags and self.m.tagged:
                            answer = NOT_CERTAIN
                            self.forget(self.starts[i])
                    asked += 1
                elif self.state[i] == 1:
                    answer = self.add_plain(i, at, size, hash_keys)
                else:
                    answer = NOT_CERTAIN
                if answer == NO_MEMORY:
                    break
                if answer == NOT_CERTAIN:
                    self.state[i] = 0
            first = last
        self.starts[self.count] = self.m.rows.count
        free(messages)
        free(digests)
        return answer

    cdef void forget(self, size_t rows) noexcept nogil:
        """Drop the rows from number `rows` on; their texts stay, unused."""
        self.m.rows.count = rows

    cdef Answer add_plain(self, size_t i, const uint8_t *at, size_t size, bint hash_keys) noexcept nogil:
        cdef Row row
        if size >= NONE or self.pk.size_of(i) >= NONE or self.ehk.size_of(i) >= NONE:
            return NOT_CERTAIN
        row.data, row.size, row.pk, row.ehk, row.frame = at, <uint32_t>size, NONE, NONE, <uint32_t>i
        if not self.ehk.is_null(i):
            if hash_keys and not is_hash_key(self.ehk.item(i), self.ehk.size_of(i)):
                return NOT_CERTAIN
            row.ehk = <uint32_t>self.m.ehks.count
            if not add_text(&self.m.ehks, self.ehk.item(i), self.ehk.size_of(i), i):
                return NO_MEMORY
        if not self.pk.is_null(i):
            row.pk = <uint32_t>self.m.pks.count
            if not add_text(&self.m.pks, self.pk.item(i), self.pk.size_of(i), i):
                return NO_MEMORY
        elif hash_keys and row.ehk == NONE:
            return NOT_CERTAIN
        return SOUND if add_row(&self.m.rows, &row) else NO_MEMORY

    cdef Answer hash(self) noexcept nogil:
        """The hash key of every text: MD5 of a partition key, the number of an explicit hash key."""
        cdef size_t first = 0, count, i
        cdef kpl_message messages[256]
        self.pk_hashes = <uint8_t *>malloc(16 * (self.m.pks.count + 1))
        self.ehk_hashes = <uint8_t *>malloc(16 * (self.m.ehks.count + 1))
        if self.pk_hashes == NULL or self.ehk_hashes == NULL:
            return NO_MEMORY
        while first < self.m.pks.count:
            count = min(<size_t>256, self.m.pks.count - first)
            for i in range(count):
                messages[i].data, messages[i].size = self.m.pks.at[first + i].at, self.m.pks.at[first + i].size
                messages[i].digest = self.pk_hashes + 16 * (first + i)
            kpl_md5_many(messages, count)
            first += count
        for i in range(self.m.ehks.count):
            read_hash_key(self.m.ehks.at[i].at, self.m.ehks.at[i].size, self.ehk_hashes + 16 * i)
        return SOUND

    # ── what there is ────────────────────────────────────────────────────────────────────────────────

    @property
    def rows(self):
        return self.m.rows.count

    @property
    def status(self):
        return PyBytes_FromStringAndSize(<const char *>self.state, self.count)

    def start(self, size_t record):
        """The first row of a record; of the record behind the last: how many rows there are."""
        if record > self.count:
            raise IndexError(record)
        return self.starts[record]

    cdef int check(self, size_t start, size_t stop) except -1:
        if not start <= stop <= self.m.rows.count:
            raise IndexError((start, stop))
        return 0

    def cut(self, size_t start, size_t stop, int64_t budget, const int64_t[::1] widths not None):
        """The row before which a batch from `start` ends so that it has at most `budget` bytes, or one
        row. ``widths``: bytes beside keys and data that each record gives to each of its rows."""
        cdef int64_t left = budget
        cdef size_t i
        cdef Row *row
        self.check(start, stop)
        if <size_t>widths.shape[0] < self.count:
            raise IndexError("widths")
        for i in range(start, stop):
            row = &self.m.rows.at[i]
            left -= widths[row.frame] + row.size
            if row.pk != NONE:
                left -= self.m.pks.at[row.pk].size
            if row.ehk != NONE:
                left -= self.m.ehks.at[row.ehk].size
            if left < 0:
                return max(i, start + 1)
        return stop

    def drop(self, const uint8_t[::1] records not None):
        """Forget the rows of the records whose byte in ``records`` is not 0."""
        cdef size_t record, i, kept = 0, first
        if <size_t>records.shape[0] != self.count:
            raise IndexError("records")
        for record in range(self.count):
            first = kept
            if not records[record]:
                for i in range(self.starts[record], self.starts[record + 1]):
                    self.m.rows.at[kept] = self.m.rows.at[i]
                    kept += 1
            self.starts[record] = first
        self.starts[self.count] = self.m.rows.count = kept

    # ── columns of the rows from `start` to before `stop` ────────────────────────────────────────────

    def record_numbers(self, size_t start, size_t stop):
        """int32: the number of each row's Kinesis record."""
        cdef Output out
        cdef int32_t *at
        cdef size_t i
        self.check(start, stop)
        out = Output(self.allocate, 4 * (stop - start))
        at = <int32_t *>out.at
        for i in range(start, stop):
            at[i - start] = <int32_t>self.m.rows.at[i].frame
        return out.buffer

    def sub_sequence_numbers(self, size_t start, size_t stop):
        """int64: the number of each row within its Kinesis record."""
        cdef Output out
        cdef int64_t *at
        cdef size_t i
        self.check(start, stop)
        out = Output(self.allocate, 8 * (stop - start))
        at = <int64_t *>out.at
        for i in range(start, stop):
            at[i - start] = <int64_t>(i - self.starts[self.m.rows.at[i].frame])
        return out.buffer

    def aggregated(self, size_t start, size_t stop):
        """Bits: whether each row comes out of an aggregate."""
        cdef Output out
        cdef size_t i
        self.check(start, stop)
        out = Output(self.allocate, (stop - start + 7) // 8)
        memset(out.at, 0, (stop - start + 7) // 8)
        for i in range(stop - start):
            out.at[i >> 3] |= (self.state[self.m.rows.at[start + i].frame] == 2) << (i & 7)
        return out.buffer

    def user_data(self, size_t start, size_t stop):
        """(offsets int32, bytes) of the rows' data. Raises OverflowError beyond 2 GiB."""
        cdef Output offsets, out
        cdef size_t i
        cdef uint64_t total = 0
        cdef int32_t *ends
        cdef Row *row
        self.check(start, stop)
        for i in range(start, stop):
            total += self.m.rows.at[i].size
        if total > 0x7FFFFFFF:
            raise OverflowError(total)
        offsets, out = Output(self.allocate, 4 * (stop - start + 1)), Output(self.allocate, total)
        ends = <int32_t *>offsets.at
        with nogil:
            total = 0
            ends[0] = 0
            for i in range(start, stop):
                row = &self.m.rows.at[i]
                copy(out.at + total, row.data, row.size)
                total += row.size
                ends[i - start + 1] = <int32_t>total
        return offsets.buffer, out.buffer

    def partition_keys(self, size_t start, size_t stop):
        """(validity or None, offsets int32, bytes) of the rows' partition keys."""
        return self.texts(start, stop, False)

    def explicit_hash_keys(self, size_t start, size_t stop):
        """The same of their explicit hash keys; None if no row has one."""
        return self.texts(start, stop, True)

    cdef object texts(self, size_t start, size_t stop, bint explicit):
        cdef Text *table = self.m.ehks.at if explicit else self.m.pks.at
        cdef Output offsets, out, valid = None
        cdef size_t i, nulls = 0
        cdef uint64_t total = 0
        cdef uint32_t index
        cdef int32_t *ends
        self.check(start, stop)
        with nogil:
            for i in range(start, stop):
                index = self.m.rows.at[i].ehk if explicit else self.m.rows.at[i].pk
                if index == NONE:
                    nulls += 1
                else:
                    total += table[index].size
        if total > 0x7FFFFFFF:
            raise OverflowError(total)
        if explicit and nulls == stop - start:
            return None
        if nulls:
            valid = Output(self.allocate, (stop - start + 7) // 8)
            memset(valid.at, 0, (stop - start + 7) // 8)
        offsets, out = Output(self.allocate, 4 * (stop - start + 1)), Output(self.allocate, total)
        ends = <int32_t *>offsets.at
        with nogil:
            total = 0
            ends[0] = 0
            for i in range(stop - start):
                index = self.m.rows.at[start + i].ehk if explicit else self.m.rows.at[start + i].pk
                if index != NONE:
                    copy(out.at + total, table[index].at, table[index].size)
                    total += table[index].size
                    if nulls:
                        valid.at[i >> 3] |= 1 << (i & 7)
                ends[i + 1] = <int32_t>total
        return None if valid is None else valid.buffer, offsets.buffer, out.buffer

    def spread(self, Column column not None, size_t start, size_t stop):
        """(offsets int32, bytes): each row's item of a column of the Kinesis records, which has no nulls."""
        cdef Output offsets, out
        cdef size_t i = start, last, size, written
        cdef uint64_t total = 0
        cdef uint8_t *first
        cdef int32_t *ends
        self.check(start, stop)
        if column.count < self.count:
            raise IndexError("column")
        while i < stop:
            last = self.last_of(i, stop)
            total += (last - i) * column.size_of(self.m.rows.at[i].frame)
            i = last
        if total > 0x7FFFFFFF:
            raise OverflowError(total)
        offsets, out = Output(self.allocate, 4 * (stop - start + 1)), Output(self.allocate, total)
        ends = <int32_t *>offsets.at
        with nogil:
            total, i = 0, start
            ends[0] = 0
            while i < stop:
                last = self.last_of(i, stop)
                first, size = out.at + total, column.size_of(self.m.rows.at[i].frame)
                copy(first, column.item(self.m.rows.at[i].frame), size)
                written, size = size, size * (last - i)
                while written < size:  # what is there, once more behind itself
                    memcpy(first + written, first, min(written, size - written))
                    written *= 2
                size //= last - i
                while i < last:
                    total += size
                    i += 1
                    ends[i - start] = <int32_t>total
        return offsets.buffer, out.buffer

    cdef inline size_t last_of(self, size_t row, size_t stop) noexcept nogil:
        """The row, at most `stop`, before which the user records of the same Kinesis record end."""
        return min(self.starts[<size_t>self.m.rows.at[row].frame + 1], stop)

    # ── placement ────────────────────────────────────────────────────────────────────────────────────

    def judge(self, const int64_t[::1] shards not None, const uint8_t[::1] starts not None,
              const uint8_t[::1] ends not None, const uint8_t[::1] ranged not None,
              const uint8_t[::1] endings not None):
        """Sort every text's hash key by what decides its verdict.

        ``shards``: the number of each record's shard; ``starts``, ``ends``: 16 bytes a shard, its range,
        if its byte in ``ranged`` says that it is known; ``endings``: the last hash key of each open
        shard, ascending. Gives one (hash key, shard number, certain) of each kind; `groups` numbers them.
        """
        cdef size_t count = self.m.pks.count + self.m.ehks.count, shard_count = ranged.shape[0]
        cdef size_t opens = endings.shape[0] // 16, i, low, high, middle, slot, mask = 15
        cdef int64_t shard, code
        cdef int64_t *seen = NULL
        cdef int32_t *numbers = NULL
        cdef int32_t group
        cdef int8_t inside
        cdef const uint8_t *key
        cdef bint explicit, certain
        cdef Text *text
        cdef list kinds = []
        if self.pk_hashes == NULL or self.pk_groups != NULL:
            raise ValueError("no hash keys, or judged already")
        if <size_t>shards.shape[0] != self.count or <size_t>starts.shape[0] < 16 * shard_count or (
            <size_t>ends.shape[0] < 16 * shard_count
        ):
            raise IndexError("shards")
        for i in range(self.count):
            if not 0 <= shards[i] < <int64_t>shard_count:
                raise IndexError(shards[i])
        self.pk_groups = <int32_t *>malloc((self.m.pks.count + 1) * sizeof(int32_t))
        self.ehk_groups = <int32_t *>malloc((self.m.ehks.count + 1) * sizeof(int32_t))
        self.pk_inside = <int8_t *>malloc(self.m.pks.count + 1)
        self.ehk_inside = <int8_t *>malloc(self.m.ehks.count + 1)
        # An open-addressing table of the kinds seen: at most half full.
        while mask < 2 * count and mask < 2 * shard_count * (opens + 1) * 6:
            mask = mask * 2 + 1
        seen = <int64_t *>malloc((mask + 1) * sizeof(int64_t))
        numbers = <int32_t *>malloc((mask + 1) * sizeof(int32_t))
        try:
            if (self.pk_groups == NULL or self.ehk_groups == NULL or self.pk_inside == NULL
                    or self.ehk_inside == NULL or seen == NULL or numbers == NULL):
                raise MemoryError
            memset(seen, 0xFF, (mask + 1) * sizeof(int64_t))
            for i in range(count):
                explicit = i >= self.m.pks.count
                if explicit:
                    text = &self.m.ehks.at[i - self.m.pks.count]
                    key = self.ehk_hashes + 16 * (i - self.m.pks.count)
                else:
                    text = &self.m.pks.at[i]
                    key = self.pk_hashes + 16 * i
                shard = shards[text.frame]
                inside = -1
                if ranged[shard]:
                    inside = memcmp(key, &starts[16 * shard], 16) >= 0 and memcmp(key, &ends[16 * shard], 16) <= 0
                low, high = 0, opens
                while low < high:
                    middle = (low + high) // 2
                    if memcmp(&endings[16 * middle], key, 16) < 0:
                        low = middle + 1
                    else:
                        high = middle
                certain = explicit or self.state[text.frame] == 2
                code = ((shard * <int64_t>(opens + 1) + <int64_t>low) * 3 + inside + 1) * 2 + certain
                slot = (<uint64_t>code * <uint64_t>0x9E3779B97F4A7C15) >> 20 & mask
                while seen[slot] != code and seen[slot] != -1:
                    slot = slot + 1 & mask
                if seen[slot] == -1:
                    seen[slot] = code
                    numbers[slot] = <int32_t>len(kinds)
                    kinds.append((PyBytes_FromStringAndSize(<const char *>key, 16), shard, bool(certain)))
                group = numbers[slot]
                if explicit:
                    self.ehk_groups[i - self.m.pks.count], self.ehk_inside[i - self.m.pks.count] = group, inside
                else:
                    self.pk_groups[i], self.pk_inside[i] = group, inside
        finally:
            free(seen)
            free(numbers)
        return kinds

    def groups(self, size_t start, size_t stop):
        """int32: the number, in what `judge` gave, of each row's hash key."""
        cdef Output out
        cdef int32_t *at
        cdef size_t i
        cdef Row *row
        self.check_judged(start, stop)
        out = Output(self.allocate, 4 * (stop - start))
        at = <int32_t *>out.at
        for i in range(start, stop):
            row = &self.m.rows.at[i]
            at[i - start] = self.ehk_groups[row.ehk] if row.ehk != NONE else self.pk_groups[row.pk]
        return out.buffer

    def hash_keys(self, size_t start, size_t stop):
        """(offsets int32, bytes): each row's effective hash key, 16 bytes."""
        cdef Output offsets, out
        cdef int32_t *ends
        cdef size_t i
        cdef Row *row
        self.check_judged(start, stop)
        if 16 * (stop - start) > 0x7FFFFFFF:
            raise OverflowError(16 * (stop - start))
        offsets, out = Output(self.allocate, 4 * (stop - start + 1)), Output(self.allocate, 16 * (stop - start))
        ends = <int32_t *>offsets.at
        for i in range(stop - start + 1):
            ends[i] = <int32_t>(16 * i)
        for i in range(start, stop):
            row = &self.m.rows.at[i]
            memcpy(
                out.at + 16 * (i - start),
                self.ehk_hashes + 16 * <size_t>row.ehk if row.ehk != NONE else self.pk_hashes + 16 * <size_t>row.pk,
                16,
            )
        return offsets.buffer, out.buffer

    def kinds(self):
        """A byte per Kinesis record: 1 if every user record of its aggregate is in range ("whole"), 3 if
        none is ("foreign"), 2 if some are ("mixed"); 0 for plain records, and where it is not known."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, self.count)
        cdef char *at = PyBytes_AS_STRING(out)
        cdef size_t record, i, inside, outside
        cdef int8_t where
        cdef Row *row
        self.check_judged(0, self.m.rows.count)
        for record in range(self.count):
            inside = outside = 0
            at[record] = 0
            if self.state[record] != 2:
                continue
            for i in range(self.starts[record], self.starts[record + 1]):
                row = &self.m.rows.at[i]
                where = self.ehk_inside[row.ehk] if row.ehk != NONE else self.pk_inside[row.pk]
                inside += where == 1
                outside += where == 0
            if inside + outside == self.starts[record + 1] - self.starts[record] != 0:
                at[record] = 1 if outside == 0 else 3 if inside == 0 else 2
        return out

    cdef int check_judged(self, size_t start, size_t stop) except -1:
        if self.pk_groups == NULL:
            raise ValueError("not judged")
        return self.check(start, stop)


def pick(Column table not None, const int32_t[::1] numbers not None, allocate):
    """(offsets int32, bytes): the items of a small table, which has no nulls, by their numbers."""
    cdef Output offsets, out
    cdef size_t count = numbers.shape[0], i, size
    cdef uint64_t total = 0
    cdef int32_t *ends
    for i in range(count):
        if not 0 <= numbers[i] < <int64_t>table.count:
            raise IndexError(numbers[i])
        total += table.size_of(numbers[i])
    if total > 0x7FFFFFFF:
        raise OverflowError(total)
    offsets, out = Output(allocate, 4 * (count + 1)), Output(allocate, total)
    ends = <int32_t *>offsets.at
    with nogil:
        total = 0
        ends[0] = 0
        for i in range(count):
            size = table.size_of(numbers[i])
            copy(out.at + total, table.item(numbers[i]), size)
            total += size
            ends[i + 1] = <int32_t>total
    return offsets.buffer, out.buffer
