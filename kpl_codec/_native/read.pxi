# Reads many Kinesis records at once: digests in parallel, then messages, then hash keys in parallel, then placements.

cdef enum:
    CHUNK = 1 << 19  # at least so many bytes are hashed, then parsed while they are in the cache
    LANES = 32  # messages that are hashed in parallel

cpdef enum State:  # of a Kinesis record; Python has it as `speedups.State`
    UNCERTAIN = 0  # no rows here: Python decides
    PLAIN = 1
    AGGREGATED = 2  # sound
    UNREAD = 3  # like 0, but the digest is right

cdef struct Data:
    const uint8_t *at  # NULL: there is none
    size_t size
    uint8_t digest[16]  # of its message, if it looks like one


cdef inline size_t expected_shard(const uint8_t *key, const uint8_t *endings, size_t opens) noexcept nogil:
    """The index of the open shard for a hash key; `opens` if there is none. ``endings`` ascend."""
    cdef size_t low = 0, high = opens, middle
    while low < high:
        middle = (low + high) // 2
        if compare_hash_keys(endings + 16 * middle, key) < 0:
            low = middle + 1
        else:
            high = middle
    return low


cdef class Frames:
    """The data of `count` Kinesis records, read as a whole.

    ``status`` has a byte per Kinesis record, its `State`. Rows are numbered through all records, in order.
    """

    cdef Message m
    cdef Data *data
    cdef uint8_t *state
    cdef size_t *starts  # first row of each record, and the end of the last
    cdef uint8_t *hashes  # 16 bytes a text: those of partition keys, then those of explicit hash keys
    cdef bint hashed
    cdef readonly bytes placement_codes  # int64 per text, in the order of `hashes`; CodedShards in Python has their meaning
    cdef int64_t *codes  # in `placement_codes`
    cdef readonly list distinct_codes  # ascending
    cdef char only_place  # of all texts, as `kind` joins them; -1: they have several
    cdef readonly size_t count

    def __dealloc__(self):
        free(self.data)
        free(self.state)
        free(self.starts)
        leave_message(&self.m)
        free(self.hashes)

    cdef int reserve(self, size_t count) except -1:
        """Makes room for `count` records. The subclass fills in `data`."""
        if count >= NONE:
            raise ValueError("too many records")
        take_message(&self.m)
        self.data = <Data *>malloc((count + 1) * sizeof(Data))
        self.state = <uint8_t *>malloc(count + 1)
        self.starts = <size_t *>calloc(count + 1, sizeof(size_t))
        if self.data == NULL or self.state == NULL or self.starts == NULL:
            raise MemoryError
        self.count = count
        return 0

    cdef int read_all(self, bint hash_keys) except -1:
        """``hash_keys``: compute the hash keys of all keys, too."""
        cdef Answer answer
        with nogil:
            answer = self.read(hash_keys)
            if answer != NO_MEMORY and hash_keys:
                answer = self.hash()
        if answer == NO_MEMORY:
            raise MemoryError
        return 0

    cdef Answer check_digests(self, size_t first, size_t last) noexcept nogil:
        """Sets the state of records `first` to before `last`, before any message is read."""
        cdef kpl_message *messages = <kpl_message *>malloc((last - first + 1) * sizeof(kpl_message))
        cdef size_t count = 0, i
        cdef Data *data
        if messages == NULL:
            return NO_MEMORY
        for i in range(first, last):
            data = &self.data[i]
            self.state[i] = UNCERTAIN if data.at == NULL else PLAIN
            if data.at != NULL and looks_aggregated(data.at, data.size):
                self.state[i] = UNREAD
                messages[count].data, messages[count].size = data.at + 4, data.size - FRAME_OVERHEAD
                messages[count].digest = data.digest
                count += 1
        kpl_md5_many(messages, count)
        free(messages)
        for i in range(first, last if count else first):
            data = &self.data[i]
            if self.state[i] == UNREAD and memcmp(data.digest, data.at + data.size - 16, 16) != 0:
                self.state[i] = UNCERTAIN
        return SOUND

    cdef Answer read_one(self, size_t i) noexcept nogil:
        """Add the rows and texts of a record whose digest is right, and set its state."""
        cdef const uint8_t *at = self.data[i].at
        cdef Answer answer = read_message(at + 4, at + self.data[i].size - 16, i, &self.m)
        if answer == SOUND:
            self.state[i] = AGGREGATED
        return answer

    cdef Answer read(self, bint hash_keys) noexcept nogil:
        cdef size_t first = 0, last, size, frames, i
        cdef Answer answer = SOUND
        while first < self.count and answer != NO_MEMORY:
            last, size, frames = first, 0, 0
            while last < self.count and (size < CHUNK or frames % LANES):
                frames += self.data[last].at != NULL and looks_aggregated(self.data[last].at, self.data[last].size)
                size += self.data[last].size
                last += 1
            answer = self.check_digests(first, last)
            for i in range(first, last):
                if answer == NO_MEMORY:
                    break
                self.starts[i] = self.m.rows.count
                if self.state[i] == UNREAD:
                    answer = self.read_one(i)
                elif self.state[i] == PLAIN:
                    answer = self.add_plain(i, hash_keys)
                    if answer == NOT_CERTAIN:
                        self.state[i] = UNCERTAIN
            first = last
        self.starts[self.count] = self.m.rows.count
        return answer

    cdef Answer add_plain(self, size_t i, bint hash_keys) noexcept nogil:
        """The row of a plain record; in a subclass."""
        return NOT_CERTAIN

    cdef Answer hash(self) noexcept nogil:
        """The hash key of every text: MD5 of a partition key, the number of an explicit hash key."""
        cdef size_t first = 0, count, pks = self.m.pks.count, ehks = self.m.ehks.count, i
        cdef kpl_message messages[256]
        self.hashes = <uint8_t *>malloc(16 * (pks + ehks + 1))
        if self.hashes == NULL:
            return NO_MEMORY
        self.hashed = True
        while first < pks:
            count = min(<size_t>256, pks - first)
            for i in range(count):
                messages[i].data, messages[i].size = self.m.pks.at[first + i].at, self.m.pks.at[first + i].size
                messages[i].digest = self.hashes + 16 * (first + i)
            kpl_md5_many(messages, count)
            first += count
        for i in range(ehks):
            read_hash_key(self.m.ehks.at[i].at, self.m.ehks.at[i].size, self.hashes + 16 * (pks + i))
        return SOUND

    @property
    def status(self):
        return PyBytes_FromStringAndSize(<const char *>self.state, self.count)

    @property
    def first_rows(self):
        """The first row of each record, and how many rows there are, as size_t."""
        return PyBytes_FromStringAndSize(<const char *>self.starts, (self.count + 1) * sizeof(size_t))

    def check_placement(self, const int64_t[::1] shards not None, const uint8_t[::1] starts not None,
              const uint8_t[::1] ends not None, const uint8_t[::1] ranged not None,
              const uint8_t[::1] endings not None):
        """Computes `placement_codes`: the facts for the verdict on each text as one number,

            ((shard * (open shards + 1) + expected shard) * 3 + in range) * 2 + certain

        in range: 0 unknown, 1 no, 2 yes; certain: the record can have no other hash key. Unless it is in range,
        the verdict is the same on every shard, and the number has shard 0.
        ``shards``: the index of each record's shard; ``starts``, ``ends``: the range of each shard, 16 bytes
        each, valid if its byte in ``ranged`` is not 0; ``endings``: the last hash key of each open shard,
        ascending.
        """
        cdef size_t pks = self.m.pks.count, count = pks + self.m.ehks.count, shard_count = ranged.shape[0]
        cdef size_t opens = endings.shape[0] // 16, i, expected
        cdef const uint8_t *all_endings = &endings[0] if opens else NULL
        cdef int64_t shard = -1, inside, last = -1
        cdef int64_t home = -1, home_code = -1  # a shard, and the code of each key in its range
        cdef bint outside = False
        cdef set distinct = set()
        cdef const uint8_t *key
        cdef HashKeyRange own_range
        cdef uint32_t frame = NONE
        cdef bint certain = False, home_certain = False, at_home = False
        cdef Text *text
        if not self.hashed or self.codes != NULL:
            raise ValueError("no hash keys, or their placement is checked already")
        if <size_t>shards.shape[0] != self.count or <size_t>starts.shape[0] < 16 * shard_count or (
            <size_t>ends.shape[0] < 16 * shard_count
        ):
            raise IndexError("shards")
        self.placement_codes = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
        self.codes = <int64_t *>PyBytes_AS_STRING(self.placement_codes)
        with nogil:
            for i in range(count):
                text = &self.m.pks.at[i] if i < pks else &self.m.ehks.at[i - pks]
                key = self.hashes + 16 * i
                if text.frame != frame or i == pks:
                    frame = text.frame
                    shard, certain = shards[frame], i >= pks or self.state[frame] == AGGREGATED
                    if not 0 <= shard < <int64_t>shard_count:
                        outside = True
                        break
                    own_range = range_of(&starts[16 * shard], &ends[16 * shard])
                    at_home = shard == home and certain == home_certain
                inside = 0
                if ranged[shard]:
                    inside = 2 if is_within(key, &own_range) else 1
                    if at_home and inside == 2:
                        self.codes[i] = home_code
                        continue
                expected = expected_shard(key, all_endings, opens)
                self.codes[i] = (shard if inside == 2 else 0) * <int64_t>(opens + 1) + <int64_t>expected
                self.codes[i] = (self.codes[i] * 3 + inside) * 2 + certain
                if (
                    inside == 2 and expected_shard(&starts[16 * shard], all_endings, opens) == expected
                    and expected_shard(&ends[16 * shard], all_endings, opens) == expected
                ):
                    home, home_code, home_certain, at_home = shard, self.codes[i], certain, True
        if outside:
            self.codes, self.placement_codes = NULL, None
            raise IndexError("shards")
        for i in range(count):
            if self.codes[i] != last:
                last = self.codes[i]
                distinct.add(last)
        self.distinct_codes = sorted(distinct)
        places = {code // 2 % 3 for code in distinct}
        self.only_place = places.pop() if len(places) == 1 else -1

    cdef inline size_t deciding(self, const Row *row) noexcept nogil:
        """The index of the text that gives the row's hash key."""
        return self.m.pks.count + row.ehk if row.ehk != NONE else row.pk

    def kinds(self):
        """A byte per Kinesis record: 1 if every user record of its aggregate is in range ("whole"), 3 if
        none is ("foreign"), 2 if some are ("mixed"); 0 for plain records, and if not known."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, self.count)
        cdef char *at = PyBytes_AS_STRING(out)
        cdef size_t record
        if self.codes == NULL:
            raise ValueError("no placement was checked")
        with nogil:
            for record in range(self.count):
                at[record] = self.kind(record)
        return out

    cdef char kind(self, size_t record) noexcept nogil:
        cdef size_t i, first = self.starts[record], stop = self.starts[record + 1]
        cdef int64_t code, last = -1
        cdef char places = self.only_place, where
        if self.state[record] != AGGREGATED or first == stop:
            return 0
        if places < 0:
            places = 0
            for i in range(first, stop):
                code = self.codes[self.deciding(&self.m.rows.at[i])]
                if code == last:
                    continue
                last, where = code, <char>(code // 2 % 3)
                if where == 0:
                    return 0  # then no range is known
                places |= where
        return 3 if places == 1 else 1 if places == 2 else 2 if places == 3 else 0

    def first_outside(self, size_t record):
        """The number, within its Kinesis record, of the first user record that is out of range."""
        cdef size_t i
        if record >= self.count or self.codes == NULL:
            raise IndexError(record)
        for i in range(self.starts[record], self.starts[record + 1]):
            if self.codes[self.deciding(&self.m.rows.at[i])] // 2 % 3 == 1:
                return i - self.starts[record]
        raise ValueError(record)

    cdef int check_rows(self, size_t start, size_t stop) except -1:
        if self.codes == NULL:
            raise ValueError("no placement was checked")
        return self.check(start, stop)

    cdef int check(self, size_t start, size_t stop) except -1:
        if not start <= stop <= self.m.rows.count:
            raise IndexError((start, stop))
        return 0
