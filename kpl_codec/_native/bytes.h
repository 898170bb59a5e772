#ifndef KPL_BYTES_H
#define KPL_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* memcpy; of 16 to 64 bytes, which most keys have, without a call: as many from each end. */
static inline void kpl_copy(uint8_t *to, const uint8_t *from, size_t size) {
    uint8_t ends[64];
    if (size - 16 < 16) {
        memcpy(ends, from, 16), memcpy(ends + 16, from + size - 16, 16);
        memcpy(to, ends, 16), memcpy(to + size - 16, ends + 16, 16);
    } else if (size - 32 <= 32) {
        memcpy(ends, from, 32), memcpy(ends + 32, from + size - 32, 32);
        memcpy(to, ends, 32), memcpy(to + size - 32, ends + 32, 32);
    } else if (size) {
        memcpy(to, from, size);
    }
}

#endif
