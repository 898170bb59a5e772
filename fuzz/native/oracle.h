// The independent decoder: protobuf's C++ runtime and the rules of spec/01, written from the text.

#ifndef ORACLE_H
#define ORACLE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

enum class Verdict {
    refused,  // no decoder may take it
    sound,    // user records; wire.h must read them
    perhaps,  // user records, if an explicit hash key that is not ASCII is a number; a text of a tag twice
};

struct OracleRow {
    const std::string *partition_key, *explicit_hash_key, *data;  // the second may be null
    std::vector<std::pair<const std::string *, const std::string *>> tags;  // keys and values; these may be null
};

struct Reading {
    Verdict verdict;
    std::vector<OracleRow> rows;
};

// Of one message, valid until the next call.
const Reading &oracle_read(const uint8_t *message, size_t size);

// The number of an explicit hash key, big-endian; false if it is not ASCII: tests/test_speedups.py has those.
bool oracle_hash_key(const std::string &text, uint8_t key[16]);

#endif
