// What is fuzzed, as subject.c gives it out: kpl_codec/_native/wire.h and md5.h, under the sanitizers.

#ifndef SUBJECT_H
#define SUBJECT_H

#include "../../kpl_codec/_native/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether `data` is a frame whose digest is right (FRM-1 to FRM-3).
bool subject_is_frame(const uint8_t *data, size_t size);

// kpl_read_message; the allocation numbered `failing`, from 1, finds no memory (0: none).
kpl_answer subject_read(const uint8_t *p, const uint8_t *end, size_t frame, kpl_content *content, int failing);

bool subject_is_hash_key(const uint8_t *p, size_t size);
void subject_read_hash_key(const uint8_t *p, size_t size, uint8_t *key);

// The digests of texts, side by side; 16 bytes each.
void subject_md5(const kpl_text *texts, size_t count, uint8_t *digests);

#ifdef __cplusplus
}
#endif

#endif
