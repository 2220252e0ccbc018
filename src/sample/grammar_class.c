/* One character of a set, as bytes of UTF-8. A range of code points is cut where the bytes do not
 * vary independently of each other; what stands behind the first byte is shared between ranges. */
#include "sample/grammar_network_int.h"

#include "base/utf8.h"

#define SHARED_MAX 64u

typedef struct class_builder {
    builder *b;
    uint32_t next;
    net_edge *edges; /* of the first byte */
    uint32_t edge_count, edge_capacity;
    /* States behind the first byte: bytes [low, high], then `next`. */
    struct {
        uint8_t low, high;
        uint32_t next, state;
    } shared[SHARED_MAX];
    uint32_t shared_count;
} class_builder;

static uint32_t shared_state(class_builder *c, uint8_t low, uint8_t high, uint32_t next) {
    for (uint32_t i = 0; i < c->shared_count; i++)
        if (c->shared[i].low == low && c->shared[i].high == high && c->shared[i].next == next)
            return c->shared[i].state;
    uint32_t state = builder_byte(c->b, low, high, next);
    if (c->shared_count < SHARED_MAX && state != NET_NONE) {
        uint32_t at = c->shared_count++;
        c->shared[at].low = low;
        c->shared[at].high = high;
        c->shared[at].next = next;
        c->shared[at].state = state;
    }
    return state;
}

static void add_edge(class_builder *c, uint8_t low, uint8_t high, uint32_t next) {
    if (next == NET_NONE)
        return;
    net_edge *last = c->edge_count == 0 ? NULL : &c->edges[c->edge_count - 1];
    if (last != NULL && last->next == next && last->high + 1 == low) {
        last->high = high;
        return;
    }
    if (c->edge_count == c->edge_capacity) {
        uint32_t larger = c->edge_capacity == 0 ? 32 : c->edge_capacity * 2;
        net_edge *fresh = arena_take_array(c->b->scratch, larger, sizeof(*fresh));
        if (fresh == NULL) {
            c->b->status =
                status_no_memory(c->b->rules->error, "a grammar", larger * sizeof(*fresh));
            return;
        }
        if (c->edge_count > 0)
            memcpy(fresh, c->edges, c->edge_count * sizeof(*fresh));
        c->edges = fresh;
        c->edge_capacity = larger;
    }
    c->edges[c->edge_count++] = (net_edge){low, high, next};
}

/* All code points have the same number of bytes, and each byte varies on its own. */
static void add_sequence(class_builder *c, uint32_t first, uint32_t last) {
    char low[4];
    char high[4];
    size_t bytes = utf8_encode(first, low);
    (void)utf8_encode(last, high);
    uint32_t next = c->next;
    for (size_t i = bytes; i-- > 1 && next != NET_NONE;)
        next = shared_state(c, (uint8_t)low[i], (uint8_t)high[i], next);
    add_edge(c, (uint8_t)low[0], (uint8_t)high[0], next);
}

static void add_range(class_builder *c, uint32_t first, uint32_t last) {
    static const uint32_t lengths[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    while (first <= last && c->b->status == AVO_OK) {
        uint32_t end = last;
        uint32_t continuations = 0;
        while (lengths[continuations] < first)
            continuations++;
        if (end > lengths[continuations])
            end = lengths[continuations];
        /* Below the highest byte that differs, all must run through: cut what stands over. */
        for (uint32_t i = continuations; i > 0; i--) {
            uint32_t mask = (1u << (6 * i)) - 1;
            if ((first & ~mask) == (end & ~mask))
                continue;
            if ((first & mask) != 0)
                end = first | mask;
            else if ((end & mask) != mask)
                end = (end & ~mask) - 1;
        }
        add_sequence(c, first, end);
        first = end + 1;
    }
}

/* ---- Inside of JSON strings ---- */

static bool contains(const code_set *set, uint32_t code) {
    for (uint32_t i = 0; i < set->count; i++)
        if (code >= set->ranges[i].first && code <= set->ranges[i].last)
            return true;
    return false;
}

static void add_plain(class_builder *c, uint32_t first, uint32_t last) {
    if (first <= last)
        add_range(c, first, last);
}

/* What stands for itself: not control characters, not the quote, not the backslash. */
static void add_unquoted(class_builder *c, code_range range) {
    uint32_t first = range.first < 0x20 ? 0x20 : range.first;
    static const uint32_t cuts[] = {'"', '\\'};
    for (size_t i = 0; i < 2; i++)
        if (first <= cuts[i] && range.last >= cuts[i]) {
            if (cuts[i] > first)
                add_plain(c, first, cuts[i] - 1);
            first = cuts[i] + 1;
        }
    add_plain(c, first, range.last);
}

/* \u00XY for the control characters without a short form; each character has one form only. */
static uint32_t unicode_escape(class_builder *c, const code_set *set) {
    net_edge halves[2];
    uint32_t half_count = 0;
    for (uint32_t half = 0; half < 2; half++) {
        net_edge digits[16];
        uint32_t count = 0;
        for (uint32_t low = 0; low < 16; low++) {
            uint32_t code = half * 16 + low;
            bool is_short = code == 8 || code == 9 || code == 10 || code == 12 || code == 13;
            uint8_t digit = (uint8_t) "0123456789abcdef"[low];
            if (!is_short && contains(set, code))
                digits[count++] = (net_edge){digit, digit, c->next};
        }
        uint32_t state = count == 0 ? NET_NONE : builder_edges(c->b, NET_BYTES, digits, count);
        if (state != NET_NONE)
            halves[half_count++] = (net_edge){(uint8_t)('0' + half), (uint8_t)('0' + half), state};
    }
    if (half_count == 0)
        return NET_NONE;
    uint32_t state = builder_edges(c->b, NET_BYTES, halves, half_count);
    state = state == NET_NONE ? NET_NONE : builder_byte(c->b, '0', '0', state);
    return state == NET_NONE ? NET_NONE : builder_byte(c->b, '0', '0', state);
}

static void add_escapes(class_builder *c, const code_set *set) {
    static const struct {
        uint8_t code, letter;
    } letters[] = {{'"', '"'}, {'\\', '\\'}, {8, 'b'}, {12, 'f'}, {10, 'n'}, {13, 'r'}, {9, 't'}};
    net_edge edges[8];
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
        if (contains(set, letters[i].code))
            edges[count++] = (net_edge){letters[i].letter, letters[i].letter, c->next};
    uint32_t unicode = unicode_escape(c, set);
    if (unicode != NET_NONE)
        edges[count++] = (net_edge){'u', 'u', unicode};
    if (count == 0)
        return;
    add_edge(c, '\\', '\\', builder_edges(c->b, NET_BYTES, edges, count));
}

uint32_t builder_class(builder *b, const code_set *set, bool quoted, uint32_t next) {
    class_builder c = {.b = b, .next = next};
    for (uint32_t i = 0; i < set->count && b->status == AVO_OK; i++) {
        if (quoted)
            add_unquoted(&c, set->ranges[i]);
        else
            add_range(&c, set->ranges[i].first, set->ranges[i].last);
    }
    if (quoted && b->status == AVO_OK)
        add_escapes(&c, set);
    if (c.edge_count == 0 || b->status != AVO_OK)
        return NET_NONE;
    return builder_edges(b, NET_BYTES, c.edges, c.edge_count);
}
