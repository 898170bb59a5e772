# The data column of an Arrow batch -> columns of user records, without an object per user record.

cdef enum Value:  # of a row
    PARTITION_KEY = 0
    EXPLICIT_HASH_KEY = 1
    DATA = 2

cdef enum:
    ROW_WORDS = sizeof(Row) // 4


cdef class FrameColumns(Frames):
    """The Kinesis records of one batch, and the columns of their user records.

    ``data``, ``partition_keys``, ``explicit_hash_keys``: `Column`s of the same length; the keys are those of plain
    records. ``allocate(size)`` makes every output buffer. ``hash_keys``: computes the hash keys of all keys; plain
    records with unusual explicit hash keys are uncertain. ``closed``: a byte per Kinesis record, not 0 where its data
    must not be opened: these are uncertain.

    `drop` raises ValueError after a column, or `cut`, was asked for.
    """

    cdef Column column
    cdef Column pk
    cdef Column ehk
    cdef object allocate
    cdef bint fixed

    def __cinit__(self, Column data not None, Column partition_keys not None, Column explicit_hash_keys not None,
                  allocate, *, bint hash_keys=False, const uint8_t[::1] closed=None):
        cdef size_t i
        if partition_keys.count != data.count or explicit_hash_keys.count != data.count or (
            closed is not None and <size_t>closed.shape[0] != data.count
        ):
            raise ValueError("columns of different lengths")
        self.column, self.pk, self.ehk, self.allocate = data, partition_keys, explicit_hash_keys, allocate
        self.reserve(data.count)
        for i in range(self.count):
            self.data[i].at, self.data[i].size = NULL, 0
            if not data.is_null(i) and (closed is None or not closed[i]):
                self.data[i].at, self.data[i].size = data.item(i), data.size_of(i)
                if self.data[i].at == NULL:  # a column of empty values has no bytes
                    self.data[i].at = <const uint8_t *>b""
        self.read_all(hash_keys)

    cdef Buffer output(self, uint64_t size):
        """Raises OverflowError beyond 2 GiB."""
        cdef Buffer out
        if size > 0x7FFFFFFF:
            raise OverflowError(size)
        out = Buffer(self.allocate(size), True)
        if out.size < size:
            raise ValueError("allocate gave too little")
        return out

    cdef Answer add_plain(self, size_t i, bint hash_keys) noexcept nogil:
        cdef Row row
        if self.data[i].size >= NONE or self.pk.size_of(i) >= NONE or self.ehk.size_of(i) >= NONE:
            return NOT_CERTAIN
        row.data, row.size, row.pk, row.ehk = self.data[i].at, <uint32_t>self.data[i].size, NONE, NONE
        row.frame = <uint32_t>i
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

    def cut(self, size_t start, size_t stop, int64_t budget, const int64_t[::1] widths not None):
        """The end of a batch from `start` with at most `budget` bytes, or one row. ``widths``: bytes that
        each record adds to each of its rows, beside keys and data."""
        cdef int64_t left = budget
        cdef size_t i
        cdef Row *row
        self.check(start, stop)
        if <size_t>widths.shape[0] < self.count:
            raise IndexError("widths")
        with nogil:
            for i in range(start, stop):
                row = &self.m.rows.at[i]
                left -= widths[row.frame] + row.size
                if row.pk != NONE:
                    left -= self.m.pks.at[row.pk].size
                if row.ehk != NONE:
                    left -= self.m.ehks.at[row.ehk].size
                if left < 0:
                    stop = max(i, start + 1)
                    break
        return stop

    def drop(self, const uint8_t[::1] records not None):
        """Removes the rows of the records whose byte in ``records`` is not 0."""
        cdef size_t record, i, to = 0, first, tag = 0, tags = 0
        if <size_t>records.shape[0] != self.count:
            raise IndexError("records")
        if self.fixed:
            raise ValueError("rows are in use")
        for record in range(self.count):
            first = to
            if not records[record]:
                for i in range(self.starts[record], self.starts[record + 1]):
                    self.m.rows.at[to] = self.m.rows.at[i]
                    while tag < self.m.tags.count and self.m.tags.at[tag].row <= i:
                        if self.m.tags.at[tag].row == i:
                            self.m.tags.at[tags] = self.m.tags.at[tag]
                            self.m.tags.at[tags].row = <uint32_t>to
                            tags += 1
                        tag += 1
                    to += 1
            self.starts[record] = first
        self.starts[self.count] = self.m.rows.count = to
        self.m.tags.count = tags

    cdef int check(self, size_t start, size_t stop) except -1:
        self.fixed = True
        return Frames.check(self, start, stop)

    # ── columns of the rows from `start` to before `stop` ────────────────────────────────────────────

    def sub_sequence_numbers(self, size_t start, size_t stop):
        """(None, int64): the number of each row within its Kinesis record."""
        cdef Buffer out
        cdef size_t i = start, first, last
        self.check(start, stop)
        out = self.output(8 * (stop - start))
        with nogil:
            while i < stop:
                first, last = self.starts[self.m.rows.at[i].frame], self.last_of(i, stop)
                while i < last:
                    (<int64_t *>out.at)[i - start] = <int64_t>(i - first)
                    i += 1
        return None, out.buffer

    def values(self, Value what, size_t start, size_t stop):
        """(validity or None, offsets int32, bytes) of the rows' partition keys (0), explicit hash keys (1; None if no
        row has one) or data (2)."""
        cdef const Text *texts = self.m.pks.at if what == PARTITION_KEY else self.m.ehks.at
        cdef size_t i, count = stop - start, nulls = 0
        cdef const uint32_t *index  # into `texts`, of each ROW_WORDS
        cdef const Row *rows
        cdef const Text *text
        cdef Buffer offsets, out, valid = None
        cdef uint64_t total = 0
        cdef int32_t *ends
        self.check(start, stop)
        if what == EXPLICIT_HASH_KEY and self.m.ehks.count == 0:
            return None
        offsets, rows = self.output(4 * (count + 1)), self.m.rows.at + start
        ends = <int32_t *>offsets.at
        ends[0] = 0
        if count == 0:  # there may be no row at all, of which a field could be pointed at
            return None, offsets.buffer, self.output(0).buffer
        index = &rows.pk if what == PARTITION_KEY else &rows.ehk
        with nogil:
            if what == DATA:
                for i in range(count):
                    total += rows[i].size
                    ends[i + 1] = <int32_t>total
            else:
                for i in range(count):
                    if index[i * ROW_WORDS] == NONE:
                        nulls += 1
                    else:
                        total += texts[index[i * ROW_WORDS]].size
                    ends[i + 1] = <int32_t>total
        if what == EXPLICIT_HASH_KEY and nulls == count:
            return None
        if nulls:
            valid = self.output((count + 7) // 8)
            memset(valid.at, 0, (count + 7) // 8)
        out = self.output(total)
        with nogil:
            total = 0
            if what == DATA:
                for i in range(count):
                    copy(out.at + total, rows[i].data, rows[i].size)
                    total += rows[i].size
            else:
                for i in range(count):
                    if index[i * ROW_WORDS] != NONE:
                        text = &texts[index[i * ROW_WORDS]]
                        copy(out.at + total, text.at, text.size)
                        total += text.size
                        if nulls:
                            valid.at[i >> 3] |= 1 << (i & 7)
        return None if valid is None else valid.buffer, offsets.buffer, out.buffer

    def hash_keys(self, size_t start, size_t stop):
        """(None, offsets int32, bytes): each row's effective hash key, 16 bytes."""
        cdef Buffer offsets, out
        cdef size_t i
        self.check_rows(start, stop)
        offsets, out = self.output(4 * (stop - start + 1)), self.output(16 * (stop - start))
        with nogil:
            for i in range(stop - start + 1):
                (<int32_t *>offsets.at)[i] = <int32_t>(16 * i)
            if self.in_order(start, stop):
                memcpy(out.at, self.hashes + 16 * self.deciding(&self.m.rows.at[start]), 16 * (stop - start))
            else:
                for i in range(stop - start):
                    memcpy(out.at + 16 * i, self.hashes + 16 * self.deciding(&self.m.rows.at[start + i]), 16)
        return None, offsets.buffer, out.buffer

    cdef bint in_order(self, size_t start, size_t stop) noexcept nogil:
        """Whether there are rows, and the key that decides is of each row the one behind that of the row before it."""
        cdef const Row *rows = self.m.rows.at
        cdef size_t first, i
        if start == stop:
            return False
        first = self.deciding(&rows[start])
        if self.deciding(&rows[stop - 1]) != first + (stop - 1 - start):
            return False
        for i in range(start, stop):
            if self.deciding(&rows[i]) != first + (i - start):
                return False
        return True

    def tags(self, size_t start, size_t stop):
        """(validity or None, offsets int32 of each row's list, offsets int32 and bytes of the keys, validity or None,
        offsets int32 and bytes of the values): the rows' tags, null where there are none. None if no row has one."""
        cdef Buffer valid, lists, keys, key_bytes, values, value_bytes, value_valid = None
        cdef size_t first = self.first_tag(start), last = self.first_tag(stop), i, row, nulls = 0
        cdef uint64_t key_size = 0, value_size = 0
        cdef int32_t *ends
        cdef const TagAt *tag
        self.check(start, stop)
        if first == last:
            return None
        with nogil:
            for i in range(first, last):
                tag = &self.m.tags.at[i]
                key_size += tag.key_size
                value_size += tag.value_size
                nulls += tag.value == NULL
        valid, lists = self.output((stop - start + 7) // 8), self.output(4 * (stop - start + 1))
        keys, key_bytes = self.output(4 * (last - first + 1)), self.output(key_size)
        values, value_bytes = self.output(4 * (last - first + 1)), self.output(value_size)
        if nulls:
            value_valid = self.output((last - first + 7) // 8)
        with nogil:
            memset(valid.at, 0, (stop - start + 7) // 8)
            ends = <int32_t *>lists.at
            i = first
            for row in range(stop - start):
                ends[row] = <int32_t>(i - first)
                while i < last and self.m.tags.at[i].row == start + row:
                    valid.at[row >> 3] |= 1 << (row & 7)
                    i += 1
            ends[stop - start] = <int32_t>(last - first)
            if nulls:
                memset(value_valid.at, 0, (last - first + 7) // 8)
            key_size = value_size = 0
            (<int32_t *>keys.at)[0] = (<int32_t *>values.at)[0] = 0
            for i in range(last - first):
                tag = &self.m.tags.at[first + i]
                copy(key_bytes.at + key_size, tag.key, tag.key_size)
                copy(value_bytes.at + value_size, tag.value, tag.value_size)
                key_size += tag.key_size
                value_size += tag.value_size
                (<int32_t *>keys.at)[i + 1], (<int32_t *>values.at)[i + 1] = <int32_t>key_size, <int32_t>value_size
                if nulls and tag.value != NULL:
                    value_valid.at[i >> 3] |= 1 << (i & 7)
        return (
            valid.buffer, lists.buffer, keys.buffer, key_bytes.buffer,
            None if value_valid is None else value_valid.buffer, values.buffer, value_bytes.buffer,
        )

    cdef size_t first_tag(self, size_t row) noexcept:
        """The number of the first tag of `row` or of a later one."""
        cdef size_t low = 0, high = self.m.tags.count, middle
        while low < high:
            middle = (low + high) // 2
            if self.m.tags.at[middle].row < row:
                low = middle + 1
            else:
                high = middle
        return low

    def spread(self, Column column not None, size_t start, size_t stop):
        """(None, offsets int32, bytes): each row's item of a column of the Kinesis records, which has no nulls."""
        cdef Buffer offsets, out
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
        offsets, out = self.output(4 * (stop - start + 1)), self.output(total)
        ends = <int32_t *>offsets.at
        with nogil:
            total, i = 0, start
            ends[0] = 0
            while i < stop:
                last = self.last_of(i, stop)
                first, size = out.at + total, column.size_of(self.m.rows.at[i].frame)
                copy(first, column.item(self.m.rows.at[i].frame), size)
                written, size = size, size * (last - i)
                while written < size:  # doubles the written part
                    memcpy(first + written, first, min(written, size - written))
                    written *= 2
                size //= last - i
                while i < last:
                    total += size
                    i += 1
                    ends[i - start] = <int32_t>total
        return None, offsets.buffer, out.buffer

    cdef inline size_t last_of(self, size_t row, size_t stop) noexcept nogil:
        """The row, at most `stop`, before which the user records of the same Kinesis record end."""
        return min(self.starts[<size_t>self.m.rows.at[row].frame + 1], stop)

    def of_keys(self, const int32_t[::1] numbers not None, size_t start, size_t stop):
        """int32: for each row the number of the key that decides its shard; ``numbers``: of all keys, in the order of
        `placement_codes`."""
        cdef Buffer out
        cdef size_t i
        self.check_rows(start, stop)
        if <size_t>numbers.shape[0] != self.m.pks.count + self.m.ehks.count:
            raise IndexError("numbers")
        out = self.output(4 * (stop - start))
        with nogil:
            for i in range(start, stop):
                (<int32_t *>out.at)[i - start] = numbers[self.deciding(&self.m.rows.at[i])]
        return out.buffer
