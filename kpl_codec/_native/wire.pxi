# Declarations of wire.h, which reads rows and texts from untrusted bytes in C without Python.

cdef extern from "_native/wire.h" nogil:
    cdef enum:
        NONE "KPL_NONE"
        FRAME_OVERHEAD "KPL_FRAME_OVERHEAD"
        MAX_KEY_POINTS "KPL_MAX_KEY_POINTS"

    ctypedef enum Answer "kpl_answer":
        NO_MEMORY "KPL_NO_MEMORY"
        NOT_CERTAIN "KPL_NOT_CERTAIN"
        SOUND "KPL_SOUND"

    ctypedef struct Text "kpl_text":
        const uint8_t *at
        uint32_t size
        uint32_t frame

    ctypedef struct Row "kpl_row":
        const uint8_t *data
        uint32_t size
        uint32_t pk
        uint32_t ehk
        uint32_t frame

    ctypedef struct Rows "kpl_rows":
        Row *at
        size_t count, room

    ctypedef struct Texts "kpl_texts":
        Text *at
        size_t count, room

    ctypedef struct TagAt "kpl_tag":
        const uint8_t *key
        const uint8_t *value
        uint32_t key_size, value_size
        uint32_t row

    ctypedef struct Tags "kpl_tags":
        TagAt *at
        size_t count, room

    ctypedef struct Message "kpl_content":
        Rows rows
        Texts pks
        Texts ehks
        Tags tags
        size_t unusable

    void prefetch "KPL_PREFETCH" (const void *address)
    bint add_row "kpl_add_row" (Rows *rows, const Row *row)
    bint add_text "kpl_add_text" (Texts *texts, const uint8_t *at, size_t size, size_t frame)
    void empty_message "kpl_empty_content" (Message *m)
    void free_message "kpl_free_content" (Message *m)
    void take_message "kpl_take_content" (Message *m)
    void leave_message "kpl_leave_content" (Message *m)
    int compare_hash_keys "kpl_compare_hash_keys" (const uint8_t *one, const uint8_t *other)
    bint is_hash_key "kpl_is_hash_key" (const uint8_t *p, size_t size)
    void read_hash_key "kpl_read_hash_key" (const uint8_t *p, size_t size, uint8_t *key)
    Answer read_message "kpl_read_message" (const uint8_t *p, const uint8_t *end, size_t frame, Message *m)
    bint looks_aggregated "kpl_looks_aggregated" (const uint8_t *data, size_t size)
