// Knows the format: takes a frame apart into fields, changes a few, and writes it with lengths and digest
// right again, so that most inputs get past the checksum. Sometimes it lies on purpose: about a length, a
// spelling, an end tag, the digest.

#include <cstdint>
#include <cstring>

#include "../../kpl_codec/_native/md5.h"
#include "../../kpl_codec/_native/wire.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

namespace {

constexpr size_t kNodes = 3000, kBytes = 1 << 16, kMessage = 1 << 14;
constexpr int kVarint = 0, kFixed64 = 1, kLength = 2, kGroup = 3, kFixed32 = 5;
constexpr uint64_t kRaw = ~uint64_t{0};  // a node without tag: bytes as they are

enum Lie : uint8_t { honest, long_tag, long_length, long_value, wrong_length, no_end, other_end };

struct Node {
    uint64_t tag;
    uint64_t value;
    const uint8_t *at;
    size_t size;
    Node *first;  // of a message or group: its list, which begins with a raw node without bytes
    Node *next;
    Lie lie;
    uint8_t level;  // 0 in the message, 1 in a user record, 2 in a tag, 3 deeper
};

Node nodes[kNodes];
size_t node_count;
uint8_t bytes[kBytes];
size_t byte_count;
uint64_t state;
bool gentle;  // only what leaves a sound message sound, as a rule

uint64_t chance() {  // xorshift64*
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return state * 0x2545F4914F6CDD1DULL;
}

size_t below(size_t n) { return n ? static_cast<size_t>((chance() >> 33) % n) : 0; }

Node *make(uint64_t tag, int level) {
    if (node_count == kNodes) return nullptr;
    Node *node = &nodes[node_count++];
    *node = Node{};
    node->tag = tag, node->level = static_cast<uint8_t>(level);
    return node;
}

uint8_t *room(size_t size) {
    if (kBytes - byte_count < size) return nullptr;
    byte_count += size;
    return bytes + byte_count - size;
}

Node *head(int level) { return make(kRaw, level); }

// ── reading ──────────────────────────────────────────────────────────────────────────────────────────

const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; p < end && shift < 70; shift += 7) {
        const uint8_t byte = *p++;
        if (shift < 64) *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return p;
    }
    return nullptr;
}

// The list of fields from `p` to `end`, or to the end of group `group`; what cannot be read is raw.
Node *parse(const uint8_t *p, const uint8_t *end, int level, int depth, uint64_t group, const uint8_t **stop) {
    Node *const list = head(level);
    Node *last = list;
    while (list && p < end) {
        const uint8_t *const start = p;
        uint64_t tag, value = 0;
        p = varint(p, end, &tag);
        if (p && group && tag == (group ^ 7)) break;  // types 3 and 4 differ in the low three bits
        Node *node = make(tag, level);
        if (!node) break;
        bool fits = p != nullptr && tag < (uint64_t{1} << 32);
        if (fits) switch (tag & 7) {
                case kVarint: p = varint(p, end, &node->value), fits = p != nullptr; break;
                case kFixed64:
                case kFixed32: {
                    node->at = p, node->size = (tag & 7) == kFixed64 ? 8 : 4;
                    fits = static_cast<size_t>(end - p) >= node->size;
                    if (fits) p += node->size;
                    break;
                }
                case kLength: {
                    p = varint(p, end, &value);
                    fits = p != nullptr && value <= static_cast<uint64_t>(end - p);
                    if (!fits) break;
                    node->at = p, node->size = static_cast<size_t>(value);
                    if ((level == 0 && tag == 0x1A) || (level == 1 && tag == 0x22))
                        node->first = parse(p, p + value, level + 1, depth + 1, 0, nullptr);
                    p += value;
                    break;
                }
                case kGroup:
                    fits = depth < 120;
                    if (fits) node->first = parse(p, end, 3, depth + 1, tag, &p), fits = p != nullptr;
                    break;
                default: fits = false;
            }
        last = last->next = node;
        if (!fits) {
            node->tag = kRaw, node->at = start, node->size = end - start, node->first = nullptr;
            p = end;
        }
    }
    if (stop) *stop = p;
    return list;
}

// ── writing, from the end, so that every length is known when it is due ──────────────────────────────

uint8_t out[kMessage];
uint8_t *front;

void put(const uint8_t *at, size_t size) {
    if (static_cast<size_t>(front - out) < size) size = 0;
    front -= size;
    if (size) std::memcpy(front, at, size);
}

void put_varint(uint64_t value, size_t least = 1) {
    uint8_t spelled[12];
    size_t size = 0;
    do {
        spelled[size++] = static_cast<uint8_t>(value | 0x80);
        value >>= 7;
    } while (value || size < least);
    spelled[size - 1] &= 0x7F;
    put(spelled, size);
}

void write(const Node *list) {
    const Node *pending[64];
    while (list) {  // a list may be long: its end first, without a call for each node
        size_t count = 0;
        const Node *node = list;
        for (; node && count < 64; node = node->next) pending[count++] = node;
        if (node) write(node);
        while (count) {
            const Node *each = pending[--count];
            if (each->tag == kRaw) {
                put(each->at, each->size);
                continue;
            }
            const size_t longer = each->at ? 2 + (each->size + each->tag) % 10 : 2 + each->value % 10;
            const uint8_t *const end = front;
            switch (each->tag & 7) {
                case kVarint: put_varint(each->value, each->lie == long_value ? longer : 1); break;
                case kGroup:
                    if (each->lie == other_end) put_varint((each->tag ^ 7) + 8);
                    else if (each->lie != no_end) put_varint(each->tag ^ 7);
                    write(each->first);
                    break;
                case kLength: {
                    if (each->first) write(each->first);
                    else put(each->at, each->size);
                    uint64_t size = static_cast<uint64_t>(end - front);
                    if (each->lie == wrong_length) size += (each->value & 0xFF) ? each->value : 1;
                    put_varint(size, each->lie == long_length ? longer : 1);
                    break;
                }
                default: put(each->at, each->size);
            }
            put_varint(each->tag, each->lie == long_tag ? longer : 1);
        }
        return;
    }
}

// ── changing ─────────────────────────────────────────────────────────────────────────────────────────

const uint64_t kNumbers[] = {0,          1,          2,           3,          127,        128,        255,
                             256,        16383,      16384,       0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF,
                             1ULL << 32, 1ULL << 35, (1ULL << 32) + 1, 1ULL << 62, 1ULL << 63, ~0ULL};
const char *const kTexts[] = {"a", "key", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\xa0\x80",
                              "\xed\x9f\xbf", "\xee\x80\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x80\x80",
                              "\xe0\xa0\x80", "\xf0\x80\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
                              "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80", "\xff", "12345678\xc3", "1234567"};
const char *const kHashKeys[] = {"0", "7", "00", "+1", "-1", "-0", " 1", "1 ", "1_0", "12345678", "123456789",
                                 "1234567:", "1234567/", "\xd9\xa1",
                                 "340282366920938463463374607431768211455",
                                 "340282366920938463463374607431768211456",
                                 "340282366920938463463374607431768211454",
                                 "170141183460469231731687303715884105728",
                                 "000000000000000000000000000000000000001",
                                 "0000000000000000000000000000000000000001",
                                 "99999999999999999999999999999999999999",
                                 "999999999999999999999999999999999999999"};

void set_text(Node *node, const char *text) {
    node->at = reinterpret_cast<const uint8_t *>(text), node->size = std::strlen(text), node->first = nullptr;
}

// The node's bytes once more, where they may be changed; nullptr: no room.
uint8_t *own(Node *node, size_t size) {
    uint8_t *copy = room(size);
    if (!copy) return nullptr;
    std::memset(copy, 'k', size);
    std::memcpy(copy, node->at, node->size < size ? node->size : size);
    node->at = copy, node->size = size;
    return copy;
}

void change_text(Node *node) {
    const bool hash_key = node->level == 0 && node->tag == 0x12;
    if (gentle && (hash_key || below(2))) {  // texts that are sound
        set_text(node, hash_key ? kHashKeys[below(4) ? below(3) : 9 + below(2)] : kTexts[below(5)]);
        return;
    }
    switch (below(hash_key ? 10 : 8)) {
        case 0: set_text(node, kTexts[below(sizeof kTexts / sizeof *kTexts)]); break;
        case 1: node->size = below(node->size + 1); break;
        case 2:
            if (uint8_t *at = own(node, node->size); at && node->size) at[below(node->size)] ^= 1u << below(8);
            break;
        case 3: own(node, node->size + 1 + below(12)); break;
        case 4: {  // a text that means something, in the middle
            const char *text = kTexts[below(sizeof kTexts / sizeof *kTexts)];
            const size_t more = std::strlen(text), where = below(node->size + 1), size = node->size;
            const uint8_t *before = node->at;
            uint8_t *at = own(node, size + more);
            if (!at) break;
            std::memcpy(at + where, text, more);
            if (size > where) std::memcpy(at + where + more, before + where, size - where);
            break;
        }
        case 5:
            if (below(16) == 0) own(node, 250 + below(10));  // about 256 code points
            break;
        case 6:
            if (below(64) == 0) {  // about 256 code points of four bytes each
                const size_t some = 255 + below(3);
                uint8_t *at = own(node, 4 * some);
                for (size_t i = 0; at && i < some; i++) std::memcpy(at + 4 * i, "\xf0\x9f\x98\x80", 4);
            }
            break;
        case 7: node->size = 0; break;
        default: {
            if (below(2)) {
                set_text(node, kHashKeys[below(sizeof kHashKeys / sizeof *kHashKeys)]);
                break;
            }
            const size_t size = 1 + below(41);
            node->size = 0;
            uint8_t *at = own(node, size);
            for (size_t i = 0; at && i < size; i++) at[i] = static_cast<uint8_t>('0' + below(10));
        }
    }
    node->first = nullptr;
}

uint64_t number() {
    if (gentle) return below(below(4) ? 1 : 5);
    switch (below(4)) {
        case 0: return kNumbers[below(sizeof kNumbers / sizeof *kNumbers)];
        case 1: return chance() >> below(64);
        default: return below(6);
    }
}

// A field that means something at this level, or, one time in four, any at all.
Node *fresh(int level) {
    static const uint64_t known[4][4] = {
        {0x0A, 0x12, 0x1A, 0x1A}, {0x08, 0x10, 0x1A, 0x22}, {0x0A, 0x12, 0x0A, 0x12}, {0x08, 0x0A, 0x2B, 0x12}};
    uint64_t tag = known[level][below(4)];
    if (!gentle && below(4) == 0) tag = (below(8) ? below(7) : number() & 0x1FFFFFFF) << 3 | below(8);
    Node *node = make(tag, level);
    if (!node) return nullptr;
    node->value = number();
    set_text(node, level == 0 && tag == 0x12 ? "7" : "x");
    if ((tag & 7) == kFixed64) node->at = reinterpret_cast<const uint8_t *>("12345678"), node->size = 8;
    if ((tag & 7) == kFixed32) node->at = reinterpret_cast<const uint8_t *>("1234"), node->size = 4;
    if ((tag & 7) == kGroup || (level == 0 && tag == 0x1A) || (level == 1 && tag == 0x22)) {
        const int inner = (tag & 7) == kGroup ? 3 : level + 1;
        node->first = head(inner);
        if (node->first && (gentle || below(8))) {
            Node *last = node->first;
            if (inner == 1) {  // a user record as it should be
                last = last->next = make(0x08, 1);
                if (last && below(4) == 0) last = last->next = make(0x10, 1);
                if (last) last = last->next = make(0x1A, 1);
                if (last) set_text(last, "data");
            } else {
                last->next = fresh(inner);
            }
        }
    }
    return node;
}

// A copy of the node, its list shared: it is written twice and changed in one breath.
Node *twin(const Node *node) {
    Node *copy = make(node->tag, node->level);
    if (!copy) return nullptr;
    Node *next = copy->next;
    *copy = *node;
    copy->next = next;
    return copy;
}

void insert(Node *after, Node *node) {
    if (!node) return;
    node->next = after->next;
    after->next = node;
}

void change(size_t known) {
    Node *node = &nodes[below(known)];
    switch (gentle ? (below(2) ? below(5) : 5 + 3 * below(2)) : below(12)) {
        case 0:
        case 1: insert(node, fresh(node->level)); break;
        case 2: insert(node, twin(node)); break;
        case 3:  // away with the next
            if (node->next) node->next = node->next->next;
            break;
        case 4:  // the next to another place
            if (Node *moved = node->next) {
                Node *to = &nodes[below(known)];
                if (to->level != moved->level || to == moved) break;
                node->next = moved->next;
                insert(to, moved);
            }
            break;
        case 5: {  // a spelling, a lie
            node->lie = static_cast<Lie>(gentle ? long_length + below(2) : below(7));
            if (node->lie == wrong_length) node->value = below(4) ? uint64_t{0} - 1 - below(3) : number();
            break;
        }
        case 6:  // another tag
            if (node->tag != kRaw) node->tag = below(2) ? node->tag ^ (1ULL << below(7)) : (1 + below(5)) << 3 | below(6);
            break;
        case 7:  // in a group of its own
            if (node->next) {
                Node *group = make((1 + below(6)) << 3 | kGroup, node->level);
                if (!group || !(group->first = head(3))) break;
                Node *inside = node->next;
                group->next = inside->next, inside->next = nullptr;
                group->first->next = inside, node->next = group;
            }
            break;
        default:
            if (node->tag == kRaw) break;
            if ((node->tag & 7) == kVarint) node->value = number();
            else if (!node->first) change_text(node);
    }
}

// Makes a message sound again: half of the unknown fields, texts that are texts, indices that are in their tables.
void mend(Node *list, int level, uint64_t pks, uint64_t ehks) {
    static const uint64_t known[3][4] = {{0x0A, 0x12, 0x1A, 0x1A}, {0x08, 0x10, 0x1A, 0x22}, {0x0A, 0x12, 0x12, 0x12}};
    bool first = false, data = level != 1;
    for (Node *before = list; before->next;) {
        Node *node = before->next;
        bool meant = false;
        for (uint64_t tag : known[level]) meant |= node->tag == tag;
        meant &= (node->tag & 7) == kVarint || node->first || node->at;
        meant &= level != 1 || node->tag != 0x10 || ehks;
        if (!meant && node->tag >> 3 > (level == 1 ? 4u : 3u) && !(node->tag >> 32) && (node->tag & 7) < 4 && below(2)) {
            before = node;
            continue;
        }
        if (!meant) {
            before->next = node->next;
            continue;
        }
        if (node->lie >= wrong_length || below(4)) node->lie = honest;
        if (level == 0 && node->tag == 0x12 && !kpl_is_hash_key(node->at, node->size)) set_text(node, "7");
        if (level != 1 && !node->first && node->tag != 0x12 && !kpl_is_key(node->at, node->size)) set_text(node, "a");
        if (level == 2 && node->tag == 0x12 && !kpl_is_key(node->at, node->size)) set_text(node, "v");
        if (node->tag == 0x08) node->value %= pks;
        if (node->tag == 0x10) node->value %= ehks;
        if (node->first) mend(node->first, level + 1, pks, ehks);
        first |= level == 1 ? node->tag == 0x08 : node->tag == 0x0A;
        data |= node->tag == 0x1A;
        before = node;
    }
    if (!first) insert(list, make(level == 1 ? 0x08 : 0x0A, level)), list->next && (list->next->at = bytes);
    if (!data) insert(list, make(0x1A, level)), list->next && (list->next->at = bytes);
}

void mend_message(Node *list) {
    uint64_t pks = 0, ehks = 0;
    for (Node *node = list->next; node; node = node->next) pks += node->tag == 0x0A, ehks += node->tag == 0x12;
    mend(list, 0, pks ? pks : 1, ehks);
}

// A cycle of `next`s would be written for ever: two moves may make one.
bool is_tree(const Node *list, size_t *left) {
    for (; list; list = list->next) {
        if ((*left)-- == 0) return false;
        if (list->first && !is_tree(list->first, left)) return false;
    }
    return true;
}

size_t finish(uint8_t *data, size_t max_size, const uint8_t *message, size_t size) {
    if (size + 20 > max_size) size = max_size - 20;
    std::memmove(data + 4, message, size);
    std::memcpy(data, "\xf3\x89\x9a\xc2", 4);
    kpl_message digest = {data + 4, size, data + 4 + size};
    kpl_md5_many(&digest, 1);
    if (below(256) == 0) data[below(size + 20)] ^= 1u << below(8);  // magic, message or digest
    return size + 20;
}

void start(unsigned seed) {
    state = seed * 0x9E3779B97F4A7C15ULL + 0x1234567;
    node_count = byte_count = 0;
    front = out + sizeof out;
}

bool is_frame(const uint8_t *data, size_t size) { return size > 20 && std::memcmp(data, "\xf3\x89\x9a\xc2", 4) == 0; }

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    start(seed);
    if (max_size < 64) return LLVMFuzzerMutate(data, size, max_size);
    if (!is_frame(data, size)) {
        if (below(8)) return finish(data, max_size, data, size);  // a frame around it
        return LLVMFuzzerMutate(data, size, max_size);
    }
    if (below(16) == 0) {  // the bytes of the message, whatever they are
        const size_t changed = LLVMFuzzerMutate(data + 4, size - 20, max_size - 20);
        return finish(data, max_size, data + 4, changed);
    }
    gentle = below(3) != 0;
    Node *list = parse(data + 4, data + size - 16, 0, 0, 0, nullptr);
    const size_t known = node_count;
    for (size_t changes = 1 + below(below(8) ? 3 : 12); changes; changes--) change(known);
    size_t left = 4 * kNodes;
    if (!is_tree(list, &left)) return LLVMFuzzerMutate(data, size, max_size);
    if (gentle && below(4) == 0) mend_message(list);
    write(list);
    return finish(data, max_size, front, out + sizeof out - front);
}

// Fields of the second, behind a field of the first.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t size, const uint8_t *other, size_t other_size,
                                            uint8_t *to, size_t max_size, unsigned seed) {
    start(seed);
    if (!is_frame(one, size) || !is_frame(other, other_size) || max_size < 64) return 0;
    Node *list = parse(one + 4, one + size - 16, 0, 0, 0, nullptr);
    Node *second = parse(other + 4, other + other_size - 16, 0, 0, 0, nullptr);
    if (!list || !second) return 0;
    Node *at = list;
    for (size_t steps = below(8); steps && at->next; steps--) at = at->next;
    for (size_t steps = below(8); steps && second->next; steps--) second = second->next;
    Node *last = second;
    for (size_t steps = below(8); steps && last->next; steps--) last = last->next;
    last->next = at->next, at->next = second;
    write(list);
    return finish(to, max_size, front, out + sizeof out - front);
}
