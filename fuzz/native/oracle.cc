#include "oracle.h"

#include <cstring>

#include <google/protobuf/stubs/common.h>

#include "kpl.pb.h"

namespace {

using google::protobuf::internal::IsStructurallyValidUTF8;

bool is_text(const std::string &bytes) {
    return IsStructurallyValidUTF8(bytes.data(), static_cast<int>(bytes.size()));
}

size_t points(const std::string &text) {
    size_t count = 0;
    for (unsigned char byte : text) count += (byte & 0xC0) != 0x80;
    return count;
}

// MSG-8, MSG-9
bool is_key(const std::string &bytes) { return is_text(bytes) && points(bytes) <= 256; }

// Whether it is one to 39 plain digits; `*number`, if it is below 2^128 (KEY-3).
bool are_digits(const std::string &text, bool *below, unsigned __int128 *number) {
    const unsigned __int128 most = ~static_cast<unsigned __int128>(0);
    *number = 0, *below = true;
    for (char c : text) {
        if (c < '0' || c > '9') return false;
        const unsigned digit = c - '0';
        if (*number > (most - digit) / 10) *below = false;
        *number = *number * 10 + digit;
    }
    return !text.empty() && text.size() <= 39;
}

void spell(uint64_t value, std::string *to) {
    for (; value >= 0x80; value >>= 7) to->push_back(static_cast<char>(value | 0x80));
    to->push_back(static_cast<char>(value));
}

// MSG-2 allows ten bytes to every varint; protobuf's C++ runtime takes lengths of five at most. The same
// fields with their lengths as short as can be; what this does not understand stays as it is.
std::string with_short_lengths(const uint8_t *p, const uint8_t *end, int level) {
    std::string out;
    while (p < end && *p < 0x80 && ((*p & 7) == 2 || (*p & 7) == 0)) {
        const uint8_t *const field = p++;
        uint64_t value = 0;
        int shift = 0;
        for (; p < end && shift < 63 && *p >= 0x80; shift += 7) value |= static_cast<uint64_t>(*p++ & 0x7F) << shift;
        if (p == end || (shift == 63 && *p > 1)) return out.append(field, end);
        value |= static_cast<uint64_t>(*p++) << shift;
        out.push_back(static_cast<char>(*field));
        if ((*field & 7) == 0) {
            spell(value, &out);
            continue;
        }
        if (value > static_cast<uint64_t>(end - p)) return out.append(p, end);
        const bool message = (level == 0 && *field == 0x1A) || (level == 1 && *field == 0x22);
        const std::string inner = message ? with_short_lengths(p, p + value, level + 1) : std::string(p, p + value);
        spell(inner.size(), &out);
        out += inner;
        p += value;
    }
    return out.append(p, end);
}

bool parse(const uint8_t *message, size_t size, kpl_codec::AggregatedRecord *parsed) {
    if (parsed->ParsePartialFromArray(message, static_cast<int>(size))) return true;
    if (size < 6 || !memmem(message, size, "\x80\x80", 2)) return false;
    return parsed->ParsePartialFromString(with_short_lengths(message, message + size, 0));
}

Verdict judge(const kpl_codec::AggregatedRecord &message, size_t size, Reading *reading) {
    bool unknown = !message.unknown_fields().empty(), odd = false;
    const int pks = message.partition_key_table_size(), ehks = message.explicit_hash_key_table_size();
    if (message.records_size() == 0) return Verdict::refused;  // MSG-10
    for (const std::string &key : message.partition_key_table())
        if (!is_key(key)) return Verdict::refused;
    for (const std::string &key : message.explicit_hash_key_table()) {
        bool below;
        unsigned __int128 number;
        if (!is_key(key)) return Verdict::refused;
        if (!are_digits(key, &below, &number))
            odd = true;
        else if (!below)
            return Verdict::refused;
    }
    for (const kpl_codec::Record &record : message.records()) {
        unknown |= !record.unknown_fields().empty();
        // MSG-7: all 64 bits of an index count.
        if (record.partition_key_index() >= static_cast<uint64_t>(pks)) return Verdict::refused;
        const std::string *ehk = nullptr;
        if (record.has_explicit_hash_key_index()) {
            if (record.explicit_hash_key_index() >= static_cast<uint64_t>(ehks)) return Verdict::refused;
            ehk = &message.explicit_hash_key_table(static_cast<int>(record.explicit_hash_key_index()));
        }
        for (const kpl_codec::Tag &tag : record.tags()) {
            unknown = true;
            if (!is_text(tag.key()) || !is_text(tag.value())) return Verdict::refused;
        }
        const std::string &pk = message.partition_key_table(static_cast<int>(record.partition_key_index()));
        reading->rows.push_back({&pk, ehk, &record.data()});
    }
    if (odd) return Verdict::odd_hash_key;
    if (unknown) return Verdict::unknown_fields;
    return message.ByteSizeLong() == size ? Verdict::plain : Verdict::longer;
}

}  // namespace

const Reading &oracle_read(const uint8_t *message, size_t size) {
    static kpl_codec::AggregatedRecord parsed;
    static Reading reading;
    reading.rows.clear();
    reading.verdict = Verdict::refused;
    if (parse(message, size, &parsed) && parsed.IsInitialized())
        reading.verdict = judge(parsed, size, &reading);
    return reading;
}

void oracle_hash_key(const std::string &digits, uint8_t key[16]) {
    bool below;
    unsigned __int128 number;
    are_digits(digits, &below, &number);
    for (int i = 15; i >= 0; i--, number >>= 8) key[i] = static_cast<uint8_t>(number);
}
