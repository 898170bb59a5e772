/* Digests of the messages on stdin: count (8 bytes, little-endian), then size (8 bytes) and bytes of each;
   to stdout 16 bytes each. See other_machine.py. */
#include <stdio.h>
#include <stdlib.h>

#include "md5.h"

static uint64_t number(void) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value |= (uint64_t)(uint8_t)getchar() << 8 * i;
    return value;
}

int main(void) {
    const size_t count = number();
    kpl_message *messages = calloc(count + 1, sizeof *messages);
    uint8_t *digests = malloc(16 * (count + 1));
    for (size_t i = 0; i < count; i++) {
        const size_t size = number();
        uint8_t *data = malloc(size ? size : 1);
        if (fread(data, 1, size, stdin) != size) return 1;
        messages[i].data = data, messages[i].size = size, messages[i].digest = digests + 16 * i;
    }
    kpl_md5_many(messages, count);
    return fwrite(digests, 16, count, stdout) != count;
}
