// The independent decoder: protobuf's C++ runtime and the rules of spec/01, written from the text.

#ifndef ORACLE_H
#define ORACLE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

enum class Verdict {
    refused,  // no decoder may take it
    plain,    // user records; wire.h must read them
    // Deviations: user records, or a matter for wire.py. wire.h is not certain:
    unknown_fields,  // always, if there are tags, or fields or wire types that the schema does not know
    longer,          // perhaps, if the bytes are more than the same fields need (long varints, a field twice)
    odd_hash_key,    // always, if an explicit hash key is more than 39 plain digits
};

struct OracleRow {
    const std::string *partition_key, *explicit_hash_key, *data;  // the second may be null
};

struct Reading {
    Verdict verdict;
    std::vector<OracleRow> rows;
};

// Of one message, valid until the next call.
const Reading &oracle_read(const uint8_t *message, size_t size);

// The number that `digits` spell, big-endian.
void oracle_hash_key(const std::string &digits, uint8_t key[16]);

#endif
