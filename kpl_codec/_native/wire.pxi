# Untrusted bytes -> rows and texts. Strict by spec/01-aggregated-record.md (MSG), and smaller: what is
# rare (unknown fields, groups, signs in explicit hash keys) is left to wire.py as "not certain".

cdef enum:
    NONE = 0xFFFFFFFF  # an index that no table can have: the row has none
    FRAME_OVERHEAD = 20
    MAX_KEY_POINTS = 256
    MAX_DECIMAL_DIGITS = 39

cdef const char *LARGEST_HASH_KEY = b"340282366920938463463374607431768211455"

cdef enum Answer:
    NOT_CERTAIN = 0
    SOUND = 1
    NO_MEMORY = -1

cdef struct Text:
    const uint8_t *at
    uint32_t size
    uint32_t frame  # number of the Kinesis record whose table it stands in

cdef struct Row:
    const uint8_t *data
    uint32_t size
    uint32_t pk
    uint32_t ehk
    uint32_t frame

cdef struct Rows:
    Row *at
    size_t count
    size_t room

cdef struct Texts:
    Text *at
    size_t count
    size_t room

cdef struct Message:
    # What has been read so far, of one message or of many.
    Rows rows
    Texts pks
    Texts ehks
    bint tagged  # some row read since this was last cleared has tags

cdef bint grow(void **at, size_t *room, size_t item) noexcept nogil:
    cdef size_t wanted = room[0] * 2 if room[0] else 256
    cdef void *moved = realloc(at[0], wanted * item) if wanted < <size_t>NONE else NULL
    if moved == NULL:
        return False
    at[0] = moved
    room[0] = wanted
    return True

cdef inline bint add_row(Rows *rows, const Row *row) noexcept nogil:
    if rows.count == rows.room and not grow(<void **>&rows.at, &rows.room, sizeof(Row)):
        return False
    rows.at[rows.count] = row[0]
    rows.count += 1
    return True

cdef inline bint add_text(Texts *texts, const uint8_t *at, size_t size, size_t frame) noexcept nogil:
    cdef Text *text
    if texts.count == texts.room and not grow(<void **>&texts.at, &texts.room, sizeof(Text)):
        return False
    text = &texts.at[texts.count]
    text.at, text.size, text.frame = at, <uint32_t>size, <uint32_t>frame
    texts.count += 1
    return True

cdef void free_message(Message *m) noexcept nogil:
    free(m.rows.at)
    free(m.pks.at)
    free(m.ehks.at)

cdef inline const uint8_t *read_varint(const uint8_t *p, const uint8_t *end, uint64_t *value) noexcept nogil:
    """Where the varint ends; NULL if it is cut short, longer than 10 bytes or above 64 bits."""
    cdef uint64_t sum = 0
    cdef int shift = 0
    cdef uint8_t byte
    while p < end:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return NULL
        sum |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = sum
            return p
        shift += 7
    return NULL

cdef inline const uint8_t *read_length(const uint8_t *p, const uint8_t *end, size_t *size) noexcept nogil:
    """Where a length-delimited value begins; NULL if it would reach beyond `end`."""
    cdef uint64_t value
    p = read_varint(p, end, &value)
    if p == NULL or value > <uint64_t>(end - p):
        return NULL
    size[0] = <size_t>value
    return p

cdef bint is_utf8(const uint8_t *p, size_t size, size_t *points) noexcept nogil:
    """Whether Python's utf-8 codec takes it, and how many code points it gives."""
    cdef const uint8_t *end = p + size
    cdef uint64_t eight
    cdef uint8_t lead, low, high
    cdef int more
    cdef size_t count = 0
    while p < end:
        if end - p >= 8:
            memcpy(&eight, p, 8)
            if not eight & <uint64_t>0x8080808080808080:
                p += 8
                count += 8
                continue
        lead = p[0]
        p += 1
        count += 1
        if lead < 0x80:
            continue
        low, high = 0x80, 0xBF  # of the byte after the lead: no overlong forms, no surrogates
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if end - p < more or not low <= p[0] <= high:
            return False
        p += 1
        while more > 1:
            if not 0x80 <= p[0] <= 0xBF:
                return False
            p += 1
            more -= 1
    points[0] = count
    return True

cdef inline bint is_key(const uint8_t *p, size_t size) noexcept nogil:
    cdef size_t points = 0
    # MSG-8, MSG-9 of spec/01: UTF-8, at most 256 code points (so at most 1024 bytes).
    return size <= 4 * MAX_KEY_POINTS and is_utf8(p, size, &points) and points <= MAX_KEY_POINTS

cdef inline bint are_digits(uint64_t eight) noexcept nogil:
    """Whether all eight bytes are ASCII digits: 0x30 to 0x39, and still 0x3_ when six is added."""
    return (
        eight & <uint64_t>0xF0F0F0F0F0F0F0F0 == <uint64_t>0x3030303030303030
        and eight + <uint64_t>0x0606060606060606 & <uint64_t>0xF0F0F0F0F0F0F0F0 == <uint64_t>0x3030303030303030
    )

cdef bint is_hash_key(const uint8_t *p, size_t size) noexcept nogil:
    """ASCII decimal digits, at most 39, value below 2^128. Signs, other scripts and more zeros than that
    are for Python to read (KEY-3)."""
    cdef uint64_t eight
    cdef size_t i = 0
    if not 1 <= size <= MAX_DECIMAL_DIGITS:
        return False
    while size - i >= 8:
        memcpy(&eight, p + i, 8)
        if not are_digits(eight):
            return False
        i += 8
    while i < size:
        if not c'0' <= p[i] <= c'9':
            return False
        i += 1
    # Digits of the same number compare as the numbers do.
    return size < MAX_DECIMAL_DIGITS or memcmp(p, LARGEST_HASH_KEY, MAX_DECIMAL_DIGITS) <= 0

cdef void read_hash_key(const uint8_t *p, size_t size, uint8_t *key) noexcept nogil:
    """What `is_hash_key` accepts -> 16 bytes, big-endian."""
    cdef uint32_t limb[4]
    cdef uint32_t digits, scale
    cdef uint64_t carry
    cdef size_t i = 0, stop
    cdef int j
    memset(limb, 0, sizeof(limb))
    while i < size:  # nine digits at a time, as many as 32 bits hold
        stop = min(size, i + 9)
        digits, scale = 0, 1
        while i < stop:
            digits = digits * 10 + (p[i] - c'0')
            scale *= 10
            i += 1
        carry = digits
        for j in range(4):
            carry += <uint64_t>limb[j] * scale
            limb[j] = <uint32_t>carry
            carry >>= 32
    for j in range(16):
        key[15 - j] = <uint8_t>(limb[j >> 2] >> (8 * (j & 3)))

cdef bint is_tag(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *start
    cdef size_t size, points
    cdef uint8_t field
    cdef bint key = False
    while p < end:
        field = p[0]
        if field != 0x0A and field != 0x12:
            return False
        start = read_length(p + 1, end, &size)
        if start == NULL or not is_utf8(start, size, &points):
            return False
        key |= field == 0x0A
        p = start + size
    return key

cdef bint read_record(const uint8_t *p, const uint8_t *end, Row *row, bint *tagged) noexcept nogil:
    cdef const uint8_t *start
    cdef uint64_t value
    cdef size_t size
    cdef uint8_t field
    row.data = NULL
    row.size = 0
    row.pk = row.ehk = NONE
    while p < end:
        field = p[0]
        if field == 0x1A:
            start = read_length(p + 1, end, &size)
            if start == NULL:
                return False
            row.data, row.size = start, <uint32_t>size
            p = start + size
        elif field == 0x08 or field == 0x10:
            p = read_varint(p + 1, end, &value)
            if p == NULL or value >= NONE:
                return False
            if field == 0x08:
                row.pk = <uint32_t>value
            else:
                row.ehk = <uint32_t>value
        elif field == 0x22:
            start = read_length(p + 1, end, &size)
            if start == NULL or not is_tag(start, start + size):
                return False
            tagged[0] = True
            p = start + size
        else:
            return False
    return row.data != NULL and row.pk != NONE

cdef Answer read_fields(const uint8_t *p, const uint8_t *end, size_t frame, Message *m) noexcept nogil:
    """Rows with indices as they stand in the message; tables in any place."""
    cdef const uint8_t *start
    cdef size_t size
    cdef uint8_t field
    cdef Row row
    if <uint64_t>(end - p) >= NONE:
        return NOT_CERTAIN
    row.frame = <uint32_t>frame
    while p < end:
        field = p[0]
        if field != 0x1A and field != 0x0A and field != 0x12:
            return NOT_CERTAIN
        start = read_length(p + 1, end, &size)
        if start == NULL:
            return NOT_CERTAIN
        if field == 0x1A:
            if not read_record(start, start + size, &row, &m.tagged):
                return NOT_CERTAIN
            if not add_row(&m.rows, &row):
                return NO_MEMORY
        elif field == 0x0A:
            if not is_key(start, size):
                return NOT_CERTAIN
            if not add_text(&m.pks, start, size, frame):
                return NO_MEMORY
        else:
            if not is_hash_key(start, size):
                return NOT_CERTAIN
            if not add_text(&m.ehks, start, size, frame):
                return NO_MEMORY
        p = start + size
    return SOUND

cdef Answer read_message(const uint8_t *p, const uint8_t *end, size_t frame, Message *m) noexcept nogil:
    """Adds the rows and texts of one message to `m`, their indices counted through all of `m`; or
    leaves `m` as it was. SOUND means: wire.py would find no defect."""
    cdef size_t rows = m.rows.count, pks = m.pks.count, ehks = m.ehks.count, i
    cdef Answer answer = read_fields(p, end, frame, m)
    cdef Row *row
    if answer == SOUND and m.rows.count == rows:
        answer = NOT_CERTAIN
    if answer == SOUND:
        for i in range(rows, m.rows.count):
            row = &m.rows.at[i]
            if row.pk >= m.pks.count - pks or (row.ehk != NONE and row.ehk >= m.ehks.count - ehks):
                answer = NOT_CERTAIN
                break
            row.pk += <uint32_t>pks
            if row.ehk != NONE:
                row.ehk += <uint32_t>ehks
    if answer != SOUND:
        m.rows.count, m.pks.count, m.ehks.count = rows, pks, ehks
    return answer

cdef inline bint looks_aggregated(const uint8_t *data, size_t size) noexcept nogil:
    # FRM-1, FRM-2 of spec/01: the magic, and more than 16 bytes after it.
    return size > FRAME_OVERHEAD and data[0] == 0xF3 and data[1] == 0x89 and data[2] == 0x9A and data[3] == 0xC2
