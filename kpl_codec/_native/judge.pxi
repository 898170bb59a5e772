# Judges the hash keys of many Kinesis records. The result is a code each; Python's Judge has their meaning.


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


cdef class JudgedFrames(Frames):
    cdef readonly bytes judged_codes  # int64 per text, in the order of `hashes`
    cdef int64_t *codes  # in `judged_codes`
    cdef readonly list distinct_codes  # ascending

    def judge(self, const int64_t[::1] shards not None, const uint8_t[::1] starts not None,
              const uint8_t[::1] ends not None, const uint8_t[::1] ranged not None,
              const uint8_t[::1] endings not None):
        """Computes `judged_codes`: the facts for the verdict on each text as one number,

            ((shard * (open shards + 1) + expected shard) * 3 + in range) * 2 + certain

        in range: 0 unknown, 1 no, 2 yes; certain: the record can have no other hash key. Unless it is in range,
        the verdict is the same on every shard, and the number has shard 0.
        ``shards``: the index of each record's shard; ``starts``, ``ends``: the range of each shard, 16 bytes
        each, valid if its byte in ``ranged`` is not 0; ``endings``: the last hash key of each open shard,
        ascending.
        """
        cdef size_t pks = self.m.pks.count, count = pks + self.m.ehks.count, shard_count = ranged.shape[0]
        cdef size_t opens = endings.shape[0] // 16, i
        cdef int64_t shard, inside, last = -1
        cdef set distinct = set()
        cdef const uint8_t *key
        cdef bint certain
        cdef Text *text
        if not self.hashed or self.codes != NULL:
            raise ValueError("no hash keys, or judged already")
        if <size_t>shards.shape[0] != self.count or <size_t>starts.shape[0] < 16 * shard_count or (
            <size_t>ends.shape[0] < 16 * shard_count
        ):
            raise IndexError("shards")
        for i in range(self.count):
            if not 0 <= shards[i] < <int64_t>shard_count:
                raise IndexError(shards[i])
        self.judged_codes = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
        self.codes = <int64_t *>PyBytes_AS_STRING(self.judged_codes)
        with nogil:
            for i in range(count):
                text = &self.m.pks.at[i] if i < pks else &self.m.ehks.at[i - pks]
                key = self.hashes + 16 * i
                shard = shards[text.frame]
                inside = 0
                if ranged[shard]:
                    inside = 1
                    if compare_hash_keys(key, &starts[16 * shard]) >= 0 and compare_hash_keys(key, &ends[16 * shard]) <= 0:
                        inside = 2
                certain = i >= pks or self.state[text.frame] == AGGREGATED
                self.codes[i] = (shard if inside == 2 else 0) * <int64_t>(opens + 1)
                self.codes[i] += <int64_t>expected_shard(key, &endings[0] if opens else NULL, opens)
                self.codes[i] = (self.codes[i] * 3 + inside) * 2 + certain
        for i in range(count):
            if self.codes[i] != last:
                last = self.codes[i]
                distinct.add(last)
        self.distinct_codes = sorted(distinct)

    cdef inline size_t deciding(self, const Row *row) noexcept nogil:
        """The index of the text that gives the row's hash key."""
        return self.m.pks.count + row.ehk if row.ehk != NONE else row.pk

    def kinds(self):
        """A byte per Kinesis record: 1 if every user record of its aggregate is in range ("whole"), 3 if
        none is ("foreign"), 2 if some are ("mixed"); 0 for plain records, and if not known."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, self.count)
        cdef char *at = PyBytes_AS_STRING(out)
        cdef size_t record
        self.check_judged(0, self.m.rows.count)
        with nogil:
            for record in range(self.count):
                at[record] = self.kind(record)
        return out

    cdef char kind(self, size_t record) noexcept nogil:
        cdef size_t i
        cdef char seen = 0, where
        if self.state[record] != AGGREGATED:
            return 0
        for i in range(self.starts[record], self.starts[record + 1]):
            where = <char>(self.codes[self.deciding(&self.m.rows.at[i])] // 2 % 3)
            if where == 0:
                return 0  # then no range is known
            seen |= where
        return 3 if seen == 1 else 1 if seen == 2 else 2 if seen == 3 else 0

    def first_outside(self, size_t record):
        """The number, within its Kinesis record, of the first user record that is out of range."""
        cdef size_t i
        if record >= self.count or self.codes == NULL:
            raise IndexError(record)
        for i in range(self.starts[record], self.starts[record + 1]):
            if self.codes[self.deciding(&self.m.rows.at[i])] // 2 % 3 == 1:
                return i - self.starts[record]
        raise ValueError(record)

    cdef int check_judged(self, size_t start, size_t stop) except -1:
        if self.codes == NULL:
            raise ValueError("not judged")
        return self.check(start, stop)
