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

bool is_ascii(const std::string &bytes) {
    for (unsigned char byte : bytes)
        if (byte & 0x80) return false;
    return true;
}

// KEY-3 of spec/02, of ASCII: an optional sign, digits, a number from 0 to 2^128 - 1.
bool is_hash_key(const std::string &text, unsigned __int128 *number) {
    const unsigned __int128 most = ~static_cast<unsigned __int128>(0);
    const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-');
    *number = 0;
    for (size_t i = sign; i < text.size(); i++) {
        const unsigned digit = text[i] - '0';
        if (text[i] < '0' || text[i] > '9' || *number > (most - digit) / 10) return false;
        *number = *number * 10 + digit;
    }
    return text.size() > sign && (text[0] != '-' || *number == 0);
}

void spell(uint64_t value, std::string *to) {
    for (; value >= 0x80; value >>= 7) to->push_back(static_cast<char>(value | 0x80));
    to->push_back(static_cast<char>(value));
}

const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; p < end && (shift < 63 || *p < 2); shift += 7) {
        *value |= static_cast<uint64_t>(*p & 0x7F) << shift;
        if (*p++ < 0x80) return p;
    }
    return nullptr;
}

struct Spelling {
    std::string out;
    bool wrong_type, twice;  // a known field with another wire type (MSG-5); a text of a tag twice
};

// MSG-2 allows ten bytes to every varint; protobuf's C++ runtime takes tags and lengths of five at most. The same
// fields, every varint as short as can be. Gives the end; null where the wire format is broken. `level`: 0 the
// message, 1 a user record, 2 a tag, 3 a group. `group`: the tag of the group that is read, or 0.
const uint8_t *respell(const uint8_t *p, const uint8_t *end, int level, int depth, uint64_t group, Spelling *to) {
    static const std::vector<unsigned> types[] = {{9, 2, 2, 2}, {9, 0, 0, 2, 2}, {9, 2, 2}, {}};
    int texts[3] = {};
    while (p < end) {
        uint64_t tag, value;
        if (!(p = varint(p, end, &tag)) || tag < 8 || tag >> 32) return nullptr;
        spell(tag, &to->out);
        if (group && tag == group + 1) return p;
        const uint64_t number = tag >> 3;
        if (number < types[level].size()) to->wrong_type |= types[level][number] != (tag & 7);
        if (level == 2 && number < 3) to->twice |= ++texts[number] > 1;
        switch (tag & 7) {
            case 0:
                if (!(p = varint(p, end, &value))) return nullptr;
                spell(value, &to->out);
                break;
            case 1:
            case 5:
                value = (tag & 7) == 1 ? 8 : 4;
                if (value > static_cast<uint64_t>(end - p)) return nullptr;
                to->out.append(p, p + value);
                p += value;
                break;
            case 2: {
                if (!(p = varint(p, end, &value)) || value > static_cast<uint64_t>(end - p)) return nullptr;
                Spelling inner = {std::string(p, p + value), false, false};
                if ((level == 0 && tag == 0x1A) || (level == 1 && tag == 0x22)) {
                    inner.out.clear();
                    if (!respell(p, p + value, level + 1, depth + 1, 0, &inner)) return nullptr;
                }
                spell(inner.out.size(), &to->out);
                to->out += inner.out;
                to->wrong_type |= inner.wrong_type, to->twice |= inner.twice;
                p += value;
                break;
            }
            case 3:  // protobuf counts how deep it is
                if (depth > 200 || !(p = respell(p, end, 3, depth + 1, tag, to))) return nullptr;
                break;
            default: return nullptr;
        }
    }
    return group ? nullptr : p;
}

Verdict judge(const kpl_codec::AggregatedRecord &message, bool twice, Reading *reading) {
    bool perhaps = twice;
    const int pks = message.partition_key_table_size(), ehks = message.explicit_hash_key_table_size();
    if (message.records_size() == 0) return Verdict::refused;  // MSG-10
    for (const std::string &key : message.partition_key_table())
        if (!is_key(key)) return Verdict::refused;
    for (const std::string &key : message.explicit_hash_key_table()) {
        if (!is_key(key)) return Verdict::refused;
        perhaps |= !is_ascii(key);
    }
    for (const kpl_codec::Record &record : message.records()) {
        // MSG-7: all 64 bits of an index count.
        if (record.partition_key_index() >= static_cast<uint64_t>(pks)) return Verdict::refused;
        const std::string *ehk = nullptr;
        if (record.has_explicit_hash_key_index()) {
            unsigned __int128 number;
            if (record.explicit_hash_key_index() >= static_cast<uint64_t>(ehks)) return Verdict::refused;
            ehk = &message.explicit_hash_key_table(static_cast<int>(record.explicit_hash_key_index()));
            if (is_ascii(*ehk) && !is_hash_key(*ehk, &number)) return Verdict::refused;
        }
        const std::string &pk = message.partition_key_table(static_cast<int>(record.partition_key_index()));
        reading->rows.push_back({&pk, ehk, &record.data(), {}});
        for (const kpl_codec::Tag &tag : record.tags()) {
            if (!is_text(tag.key()) || !is_text(tag.value())) return Verdict::refused;
            reading->rows.back().tags.push_back({&tag.key(), tag.has_value() ? &tag.value() : nullptr});
        }
    }
    return perhaps ? Verdict::perhaps : Verdict::sound;
}

}  // namespace

const Reading &oracle_read(const uint8_t *message, size_t size) {
    static kpl_codec::AggregatedRecord parsed;
    static Reading reading;
    reading.rows.clear();
    reading.verdict = Verdict::refused;
    Spelling spelling = {};
    if (respell(message, message + size, 0, 0, 0, &spelling) && !spelling.wrong_type &&
        parsed.ParsePartialFromString(spelling.out) && parsed.IsInitialized())
        reading.verdict = judge(parsed, spelling.twice, &reading);
    return reading;
}

bool oracle_hash_key(const std::string &text, uint8_t key[16]) {
    unsigned __int128 number;
    if (!is_ascii(text)) return false;
    is_hash_key(text, &number);
    for (int i = 15; i >= 0; i--, number >>= 8) key[i] = static_cast<uint8_t>(number);
    return true;
}
