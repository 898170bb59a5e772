// The code that users run, compiled as it stands with the sanitizers and libFuzzer's counters.

#include <stdlib.h>

static int left_until_failure;

static void *realloc_that_may_fail(void *at, size_t size) {
    if (left_until_failure && --left_until_failure == 0) return NULL;
    return realloc(at, size);
}

#define realloc realloc_that_may_fail
#include "../../kpl_codec/_native/md5.h"
#include "subject.h"

#define MANY 64

bool subject_is_frame(const uint8_t *data, size_t size) {
    uint8_t digest[16];
    if (!kpl_looks_aggregated(data, size)) return false;
    kpl_message message = {data + 4, size - KPL_FRAME_OVERHEAD, digest};
    kpl_md5_many(&message, 1);
    return memcmp(digest, data + size - 16, 16) == 0;
}

kpl_answer subject_read(const uint8_t *p, const uint8_t *end, size_t frame, kpl_content *content, int failing) {
    left_until_failure = failing;
    kpl_answer answer = kpl_read_message(p, end, frame, content);
    left_until_failure = 0;
    return answer;
}

bool subject_is_hash_key(const uint8_t *p, size_t size) { return kpl_is_hash_key(p, size); }

void subject_read_hash_key(const uint8_t *p, size_t size, uint8_t *key) { kpl_read_hash_key(p, size, key); }

void subject_md5(const kpl_text *texts, size_t count, uint8_t *digests) {
    kpl_message messages[MANY];
    for (size_t first = 0; first < count; first += MANY) {
        size_t some = count - first < MANY ? count - first : MANY;
        for (size_t i = 0; i < some; i++) {
            messages[i].data = texts[first + i].at, messages[i].size = texts[first + i].size;
            messages[i].digest = digests + 16 * (first + i);
        }
        kpl_md5_many(messages, some);
    }
}
