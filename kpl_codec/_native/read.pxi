# Reads many Kinesis records at once: digests in parallel, then rows and texts, then hash keys in parallel.

cdef enum:
    CHUNK = 1 << 19  # at least so many bytes are hashed, then parsed while they are in the cache
    LANES = 32  # messages that are hashed in parallel

cdef enum State:
    UNCERTAIN = 0  # no rows here: Python decides
    PLAIN = 1
    AGGREGATED = 2  # sound
    UNREAD = 3  # like 0, but the digest is right

cdef struct Data:
    const uint8_t *at  # NULL: there is none
    size_t size
    bint plain  # even if it looks like an aggregate


cdef class Frames:
    """The data of `count` Kinesis records, read as a whole.

    ``status`` has a byte per Kinesis record: 0 uncertain (it has no rows here, Python decides), 1 plain, 2 a
    sound aggregate, 3 uncertain, but the digest is right. Rows are numbered through all records, in order.
    """

    cdef Message m
    cdef Data *data
    cdef uint8_t *state
    cdef size_t *starts  # first row of each record, and the end of the last
    cdef uint8_t *hashes  # 16 bytes a text: those of partition keys, then those of explicit hash keys
    cdef bint hashed
    cdef readonly size_t count
    cdef bint unframing
    cdef int32_t *schemas  # a number of `versions` per row, -1: none
    cdef size_t schema_room
    cdef uint8_t *versions  # 16 bytes each
    cdef size_t version_count, version_room
    cdef int32_t known[256]  # by a byte of the version: 1 more than the number last given to one
    cdef readonly bint packed  # whether there are frames of the Schema Registry with zlib

    def __dealloc__(self):
        free(self.data)
        free(self.state)
        free(self.starts)
        leave_message(&self.m)
        free(self.hashes)
        free(self.schemas)
        free(self.versions)

    cdef int reserve(self, size_t count) except -1:
        """Makes room for `count` records. The subclass fills in `data`."""
        if count >= NONE:
            raise ValueError("too many records")
        self.count = count
        take_message(&self.m)
        self.data = <Data *>malloc((count + 1) * sizeof(Data))
        self.state = <uint8_t *>malloc(count + 1)
        self.starts = <size_t *>calloc(count + 1, sizeof(size_t))
        if self.data == NULL or self.state == NULL or self.starts == NULL:
            raise MemoryError
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
        cdef uint8_t *digests = <uint8_t *>malloc(16 * (last - first + 1))
        cdef size_t asked = 0, i
        cdef Data *data
        if messages == NULL or digests == NULL:
            free(messages)
            free(digests)
            return NO_MEMORY
        for i in range(first, last):
            data = &self.data[i]
            self.state[i] = UNCERTAIN if data.at == NULL else PLAIN
            if data.at != NULL and not data.plain and looks_aggregated(data.at, data.size):
                self.state[i] = UNREAD
                messages[asked].data, messages[asked].size = data.at + 4, data.size - FRAME_OVERHEAD
                messages[asked].digest = digests + 16 * asked
                asked += 1
        kpl_md5_many(messages, asked)
        asked = 0
        for i in range(first, last):
            if self.state[i] == UNREAD:
                if memcmp(digests + 16 * asked, self.data[i].at + self.data[i].size - 16, 16) != 0:
                    self.state[i] = UNCERTAIN
                asked += 1
        free(messages)
        free(digests)
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
                if self.unframing and answer != NO_MEMORY and not self.unframe(self.starts[i]):
                    answer = NO_MEMORY
            first = last
        self.starts[self.count] = self.m.rows.count
        return answer

    cdef bint unframe(self, size_t first) noexcept nogil:
        """Takes the frame of the Schema Registry off the rows from `first` on, if their payload is not in zlib."""
        cdef size_t i, slot, rows = self.m.rows.count
        cdef int32_t number, last = -1
        cdef int32_t *schemas
        cdef uint64_t version[2]  # that of `last`
        cdef uint64_t own[2]
        cdef const uint8_t *at
        cdef void *more
        cdef Row *row
        if self.schema_room < rows:
            self.schema_room = self.m.rows.room
            more = realloc(self.schemas, 4 * self.schema_room)
            if more == NULL:
                return False
            self.schemas = <int32_t *>more
        schemas = self.schemas
        for i in range(first, rows):
            if i + 8 < rows:
                prefetch(self.m.rows.at[i + 8].data)
            row = &self.m.rows.at[i]
            at = row.data
            schemas[i] = -1
            # GSR-1: "Data of at least 18 bytes that begins with 03 00 or 03 05 MUST be taken for framed, and all
            # other data MUST be left as it is."
            if row.size < 18 or at[0] != 3 or (at[1] != 0 and at[1] != 5):
                continue
            if at[1] == 5:
                self.packed = True
                continue
            memcpy(own, at + 2, 16)
            if last < 0 or own[0] != version[0] or own[1] != version[1]:
                slot = at[2] ^ at[9] ^ at[17]
                number = self.known[slot] - 1
                if number < 0 or memcmp(self.versions + 16 * number, own, 16) != 0:
                    if self.version_count == self.version_room:
                        self.version_room = 2 * self.version_room + 16
                        more = realloc(self.versions, 16 * self.version_room)
                        if more == NULL:
                            return False
                        self.versions = <uint8_t *>more
                    memcpy(self.versions + 16 * self.version_count, own, 16)
                    number = <int32_t>self.version_count
                    self.version_count += 1
                    self.known[slot] = number + 1
                last, version[0], version[1] = number, own[0], own[1]
            schemas[i] = last
            row.data, row.size = at + 18, row.size - 18
        return True

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

    cdef int check(self, size_t start, size_t stop) except -1:
        if not start <= stop <= self.m.rows.count:
            raise IndexError((start, stop))
        return 0
