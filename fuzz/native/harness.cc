// One input: the data of a Kinesis record. Same user records as protobuf's C++ runtime reads, or both
// refuse; the exceptions are the verdicts of oracle.h. A difference aborts, as a bad access does.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "oracle.h"
#include "subject.h"

namespace {

const char *const NAMES[] = {"refused", "sound", "perhaps"};
size_t seen[3], unframed, sound, without_memory;

void report() {
    std::fprintf(stderr, "native: %zu no frame or wrong digest, %zu read, %zu out of memory;", unframed, sound,
                 without_memory);
    for (int i = 0; i < 3; i++) std::fprintf(stderr, " %s %zu%s", NAMES[i], seen[i], i < 2 ? "," : "\n");
}

#define HOLD(what)                                                         \
    do {                                                                   \
        if (!(what)) {                                                     \
            std::fprintf(stderr, "does not hold: %s (%d)\n", #what, __LINE__); \
            std::abort();                                                  \
        }                                                                  \
    } while (0)

bool same(const uint8_t *at, size_t size, const std::string &text) {
    return size == text.size() && (size == 0 || std::memcmp(at, text.data(), size) == 0);
}

// A message of 254 rows, keys and tags, read before the input's: a few more and the tables grow.
struct Before {
    std::string bytes;
    Before() {
        for (int i = 0; i < 254; i++) bytes += std::string("\x0a\x01" "b" "\x12\x01" "7", 6);
        for (int i = 0; i < 254; i++) bytes += std::string("\x1a\x0a\x08\x00\x10\x00\x1a\x00\x22\x02\x0a\x00", 12);
    }
    const uint8_t *at() const { return reinterpret_cast<const uint8_t *>(bytes.data()); }
};

struct Counts {
    size_t rows, pks, ehks, tags, unusable;
    explicit Counts(const kpl_content &c)
        : rows(c.rows.count), pks(c.pks.count), ehks(c.ehks.count), tags(c.tags.count), unusable(c.unusable) {}
    bool operator==(const Counts &o) const {
        return rows == o.rows && pks == o.pks && ehks == o.ehks && tags == o.tags && unusable == o.unusable;
    }
};

void compare(const Reading &expected, const kpl_content &content, const Counts &before) {
    size_t next = before.tags;
    HOLD(content.rows.count - before.rows == expected.rows.size());
    for (size_t i = 0; i < expected.rows.size(); i++) {
        const kpl_row &row = content.rows.at[before.rows + i];
        const OracleRow &wanted = expected.rows[i];
        HOLD(row.frame == 1 && row.pk >= before.pks && row.pk < content.pks.count);
        const kpl_text &pk = content.pks.at[row.pk];
        HOLD(pk.frame == 1 && same(pk.at, pk.size, *wanted.partition_key));
        HOLD(same(row.data, row.size, *wanted.data));
        for (const auto &[key, value] : wanted.tags) {
            const kpl_tag &tag = content.tags.at[next++];
            HOLD(next <= content.tags.count && tag.row == before.rows + i && same(tag.key, tag.key_size, *key));
            HOLD((tag.value == nullptr) == (value == nullptr));
            HOLD(value == nullptr || same(tag.value, tag.value_size, *value));
        }
        HOLD((row.ehk == KPL_NONE) == (wanted.explicit_hash_key == nullptr));
        if (row.ehk == KPL_NONE) continue;
        HOLD(row.ehk >= before.ehks && row.ehk < content.ehks.count);
        const kpl_text &ehk = content.ehks.at[row.ehk];
        uint8_t ours[16], theirs[16];
        HOLD(ehk.frame == 1 && same(ehk.at, ehk.size, *wanted.explicit_hash_key));
        HOLD(subject_is_hash_key(ehk.at, ehk.size));
        subject_read_hash_key(ehk.at, ehk.size, ours);
        HOLD(!oracle_hash_key(*wanted.explicit_hash_key, theirs) || std::memcmp(ours, theirs, 16) == 0);
    }
    HOLD(next == content.tags.count);
}

// Digests side by side are the digests one by one.
void compare_digests(const kpl_content &content) {
    const size_t count = content.pks.count < 40 ? content.pks.count : 40;
    const kpl_text *texts = content.pks.at + (content.pks.count - count);
    uint8_t together[16 * 40], alone[16];
    subject_md5(texts, count, together);
    for (size_t i = 0; i < count; i++) {
        subject_md5(texts + i, 1, alone);
        HOLD(std::memcmp(alone, together + 16 * i, 16) == 0);
    }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    std::atexit(report);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Before first;
    static kpl_content content;
    if (!subject_is_frame(data, size)) {
        unframed++;
        return 0;
    }
    const unsigned choice = data[size - 1];  // of the digest: as good as chance, and the same every time
    const uint8_t *p = data + 4, *end = data + size - 16;
    if (content.rows.at == nullptr || choice % 32 < 2) {
        kpl_free_content(&content);
        content = kpl_content();
        HOLD(subject_read(first.at(), first.at() + first.bytes.size(), 0, &content, 0) == KPL_SOUND);
    }
    kpl_empty_content(&content);
    if (choice % 2) content.rows.count = content.pks.count = content.ehks.count = content.tags.count = 254;
    const Counts before(content);
    const Reading &expected = oracle_read(p, end - p);
    seen[static_cast<int>(expected.verdict)]++;
    const kpl_answer answer = subject_read(p, end, 1, &content, choice % 64 == 1 ? 1 + choice / 64 : 0);
    if (answer == KPL_SOUND) {
        HOLD(expected.verdict != Verdict::refused);
        compare(expected, content, before);
        if (choice / 2 % 8 == 0) compare_digests(content);
        sound++;
    } else {
        HOLD(Counts(content) == before);
        HOLD(answer == KPL_NOT_CERTAIN || choice % 64 == 1);
        HOLD(answer == KPL_NO_MEMORY || expected.verdict != Verdict::sound);
        without_memory += answer == KPL_NO_MEMORY;
    }
    return 0;
}
