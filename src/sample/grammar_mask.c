/* Masks of places; see grammar_mask.h for the idea. */
#include "sample/grammar_mask.h"

#include "base/allocator.h"

#include <stdlib.h>

#define MASK_PLACES_OF_VISIT 16u        /* followed at once, make one visit more */
#define SET_DEAD             0u         /* no text goes on from here */
#define SET_UNKNOWN          UINT32_MAX /* not computed yet */

/* One state of the automaton: places over an unknown bottom. */
typedef struct local_set {
    uint32_t first, count; /* of its places */
    bool ends;             /* the rule at the bottom may be complete here */
} local_set;

typedef enum mask_form { MASK_NONE, MASK_LIST, MASK_BITS, MASK_TOO_LARGE } mask_form;

typedef struct state_mask {
    mask_form form;
    uint32_t count;     /* of `list` */
    uint32_t end_count; /* of `ends` */
    uint64_t charge;    /* what an answer is charged for it; 0: prepared */
    void *memory;       /* list or bits, then ends */
    size_t bytes;
} state_mask;

struct grammar_masks {
    const avo_allocator *allocator;
    const network *net;
    const token_trie *trie;
    uint32_t vocabulary, words;
    arena arena;
    /* The automaton. */
    frame_store frames;
    place_set reached;
    local_set *sets;
    place *places;
    uint32_t set_count, place_count;
    uint32_t *slots; /* hash table of sets */
    uint32_t slot_mask;
    uint32_t *next;  /* [MASK_SETS_MAX][classes] */
    uint32_t *start; /* [states] the set of a state alone; SET_UNKNOWN */
    /* Of a walk. */
    uint32_t *path; /* [depth_max + 1] sets on the way to a node */
    uint64_t *bits; /* [words] */
    uint32_t *ends; /* [MASK_ENDS_MAX] */
    uint32_t end_count;
    uint64_t visits, visits_end;            /* real ones */
    uint64_t charged, walked, charged_most; /* of this mask */
    bool full;                              /* the automaton has no room: empty it and try again */
    bool ambiguous;                         /* more places at once than GRAMMAR_PLACES_MAX */
    /* Kept. */
    state_mask *masks; /* [states] */
    size_t mask_bytes;
    uint32_t mask_count;
};

/* ---- The automaton ---- */

static void empty_automaton(grammar_masks *m) {
    frame_store_clear(&m->frames);
    m->set_count = 1; /* SET_DEAD */
    m->place_count = 0;
    memset(m->slots, 0, ((size_t)m->slot_mask + 1) * sizeof(*m->slots));
    memset(m->start, 0xFF, m->net->state_count * sizeof(*m->start));
    memset(m->next, 0, m->net->classes * sizeof(*m->next)); /* the dead stay dead */
    m->full = false;
}

static int compare_places(const void *a, const void *b) {
    const place *x = a;
    const place *y = b;
    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    return x->frame < y->frame ? -1 : x->frame > y->frame;
}

static uint64_t hash_places(const place *places, uint32_t count, bool ends) {
    uint64_t hash = ends ? 0x51ED2701u : 0x9E3779B9u;
    for (uint32_t i = 0; i < count; i++) {
        hash ^= (uint64_t)places[i].state << 32 | places[i].frame;
        hash *= 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 29;
    }
    return hash;
}

/* The places that take a byte, sorted, become a set, an old one where there is one. */
static uint32_t find_set(grammar_masks *m) {
    place_set *reached = &m->reached;
    if (reached->full) {
        m->full = m->frames.count == m->frames.capacity;
        m->ambiguous = !m->full;
        return SET_DEAD;
    }
    uint32_t count = 0;
    if (MASK_PLACES_MAX - m->place_count < reached->seen_count || m->set_count == MASK_SETS_MAX) {
        m->full = true;
        return SET_DEAD;
    }
    place *places = m->places + m->place_count;
    for (uint32_t i = 0; i < reached->seen_count; i++)
        if (net_takes_byte(&m->net->states[reached->seen[i].state]))
            places[count++] = reached->seen[i];
    if (count == 0 && !reached->complete)
        return SET_DEAD;
    if (count > 1)
        qsort(places, count, sizeof(*places), compare_places);
    uint32_t at = (uint32_t)hash_places(places, count, reached->complete) & m->slot_mask;
    for (; m->slots[at] != 0; at = (at + 1) & m->slot_mask) {
        const local_set *set = &m->sets[m->slots[at]];
        if (set->count == count && set->ends == reached->complete &&
            memcmp(m->places + set->first, places, count * sizeof(*places)) == 0)
            return m->slots[at];
    }
    uint32_t index = m->set_count++;
    m->slots[at] = index;
    m->sets[index] = (local_set){m->place_count, count, reached->complete};
    m->place_count += count;
    memset(m->next + (size_t)index * m->net->classes, 0xFF, m->net->classes * sizeof(*m->next));
    return index;
}

/* What follows a state whose rule was called from somewhere. */
static uint32_t start_set(grammar_masks *m, uint32_t state) {
    if (m->start[state] == SET_UNKNOWN) {
        place_set_clear(&m->reached);
        place_set_add(&m->reached, m->net, &m->frames, (place){state, 0});
        uint32_t set = find_set(m);
        if (m->full || m->ambiguous)
            return SET_DEAD;
        m->start[state] = set;
    }
    return m->start[state];
}

static uint32_t next_set(grammar_masks *m, uint32_t from, uint8_t byte) {
    const network *net = m->net;
    const local_set *set = &m->sets[from];
    place_set_clear(&m->reached);
    for (uint32_t i = 0; i < set->count; i++) {
        place here = m->places[set->first + i];
        const net_state *state = &net->states[here.state];
        const net_edge *edges = net->edges + state->first;
        m->visits += state->count;
        for (uint32_t e = 0; e < state->count; e++)
            if (byte >= edges[e].low && byte <= edges[e].high)
                place_set_add(&m->reached, net, &m->frames, (place){edges[e].next, here.frame});
    }
    m->visits += set->count + m->reached.seen_count; /* so that much work is seen as such */
    uint32_t found = find_set(m);
    if (!m->full && !m->ambiguous)
        m->next[(size_t)from * net->classes + net->byte_class[byte]] = found;
    return found;
}

/* ---- Walks ---- */

static inline void mark_tokens(const grammar_masks *m, const trie_node *node, uint64_t *bits) {
    for (uint32_t i = node[0].tokens; i < node[1].tokens; i++) {
        uint32_t id = (uint32_t)m->trie->ids[i];
        if (id < m->vocabulary)
            bits[id / 64] |= (uint64_t)1 << (id % 64);
    }
}

/* Where the walk goes when the rule at the bottom is complete. */
typedef struct walk_bottom {
    const frame_store *frames;
    uint32_t frame; /* 0: nothing follows */
} walk_bottom;

static bool walk(grammar_masks *m, uint32_t node, uint32_t set, uint64_t *bits,
                 const walk_bottom *bottom);

/* False: too much. */
static inline bool charge(grammar_masks *m, uint64_t visits) {
    m->visits += visits;
    m->charged += visits;
    return m->charged <= m->charged_most && m->visits <= m->visits_end;
}

/* The rule is complete at this node: its caller goes on. False: no room, or too much. */
static bool walk_caller(grammar_masks *m, uint32_t node, uint64_t *bits,
                        const walk_bottom *bottom) {
    if (bottom->frame == 0 || m->trie->nodes[node].end == node + 1)
        return true;
    if (!charge(m, 1))
        return false;
    const frame *frame = &bottom->frames->frames[bottom->frame];
    walk_bottom below = {bottom->frames, frame->parent};
    uint32_t set = start_set(m, frame->next);
    if (m->full || m->ambiguous)
        return false;
    if (m->sets[set].ends && !walk_caller(m, node, bits, &below))
        return false;
    return walk(m, node, set, bits, &below);
}

/* Everything behind a node, beginning with a set. With a bottom, ends are followed; without one
 * (NULL) they are listed. Tokens that stop where a rule ends are allowed: its caller can go on. */
static bool walk(grammar_masks *m, uint32_t node, uint32_t set, uint64_t *bits,
                 const walk_bottom *bottom) {
    const network *net = m->net;
    const trie_node *nodes = m->trie->nodes;
    const uint32_t classes = net->classes;
    const uint32_t end = nodes[node].end;
    m->path[nodes[node].depth] = set;
    uint64_t visits = 0;
    for (uint32_t i = node + 1; i < end;) {
        const trie_node *here = &nodes[i];
        uint32_t from = m->path[here->depth - 1];
        visits++;
        uint32_t to = m->next[(size_t)from * classes + net->byte_class[here->byte]];
        if (to == SET_UNKNOWN) {
            to = next_set(m, from, here->byte);
            if (m->full || m->ambiguous || m->visits + visits > m->visits_end)
                return false;
        }
        if (to == SET_DEAD) {
            i = here->end;
            continue;
        }
        m->path[here->depth] = to;
        mark_tokens(m, here, bits);
        visits += m->sets[to].count / MASK_PLACES_OF_VISIT;
        if (m->sets[to].ends) {
            if (bottom == NULL) {
                if (m->end_count < MASK_ENDS_MAX)
                    m->ends[m->end_count] = i;
                m->end_count += here->end > i + 1; /* something stands behind it */
            } else if (bottom->frame != 0) {
                if (!charge(m, visits) || !walk_caller(m, i, bits, bottom))
                    return false;
                visits = 0;
                m->path[here->depth] = to; /* the caller's walk wrote there */
            }
        }
        i++;
    }
    return charge(m, visits);
}

/* ---- Masks of states ---- */

static void keep_list(const grammar_masks *m, uint32_t *list) {
    for (uint32_t w = 0; w < m->words; w++)
        for (uint64_t bits = m->bits[w]; bits != 0; bits &= bits - 1)
            *list++ = w * 64 + (uint32_t)__builtin_ctzll(bits);
}

/* What the walk found, in the form that takes less room. Without room nothing is kept, and the next
 * mask walks again. */
static void keep_mask(grammar_masks *m, state_mask *mask) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < m->words; w++)
        count += (uint32_t)__builtin_popcountll(m->bits[w]);
    bool as_list = count < m->words; /* half of what the bits take */
    size_t bytes = as_list ? count * sizeof(uint32_t) : m->words * sizeof(uint64_t);
    size_t all = bytes + m->end_count * sizeof(uint32_t);
    mask->form = MASK_TOO_LARGE;
    if (m->end_count > MASK_ENDS_MAX || m->mask_bytes + all > MASK_BYTES_MAX)
        return;
    char *memory = allocator_take(m->allocator, all == 0 ? 1 : all);
    if (memory == NULL) {
        mask->form = MASK_NONE;
        return;
    }
    if (as_list)
        keep_list(m, (uint32_t *)(void *)memory);
    else
        memcpy(memory, m->bits, bytes);
    if (m->end_count > 0)
        memcpy(memory + bytes, m->ends, m->end_count * sizeof(uint32_t));
    *mask = (state_mask){.form = as_list ? MASK_LIST : MASK_BITS,
                         .count = count,
                         .end_count = m->end_count,
                         .memory = memory,
                         .bytes = all == 0 ? 1 : all};
    m->mask_bytes += all;
    m->mask_count++;
}

static avo_status fail(const grammar_masks *m, avo_error *error) {
    if (m->ambiguous)
        return status_fail(
            error, AVO_ERROR_LIMIT,
            "the grammar is too ambiguous: an answer can be in more than %u grammar states at once",
            GRAMMAR_PLACES_MAX);
    if (m->full)
        return status_fail(
            error, AVO_ERROR_LIMIT,
            "the grammar is too ambiguous: more than %u sets of grammar states for one token mask",
            MASK_SETS_MAX);
    if (m->charged > m->charged_most && m->charged_most < MASK_VISITS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the grammar is too ambiguous: the token masks of this answer take more "
                           "than %llu visits plus %llu per token",
                           (unsigned long long)MASK_VISITS_ANSWER,
                           (unsigned long long)MASK_VISITS_TOKEN);
    return status_fail(error, AVO_ERROR_LIMIT,
                       "the grammar is too ambiguous: a token mask takes more than %llu visits",
                       (unsigned long long)MASK_VISITS_MAX);
}

/* Walks from the root for a state alone; once more with an empty automaton where it was full. */
static avo_status walk_state(grammar_masks *m, uint32_t state, avo_error *error) {
    uint64_t before = m->charged;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (m->full)
            empty_automaton(m);
        m->charged = before;
        memset(m->bits, 0, m->words * sizeof(*m->bits));
        m->end_count = 0;
        /* Free text is at the bottom of all: nothing calls it. */
        walk_bottom none = {NULL, 0};
        bool outermost = m->net->states[state].kind == NET_FREE;
        uint32_t set = start_set(m, state);
        if (!m->full && !m->ambiguous && walk(m, 0, set, m->bits, outermost ? &none : NULL))
            return AVO_OK;
        if (!m->full)
            break;
    }
    return fail(m, error);
}

static void apply(const grammar_masks *m, const state_mask *mask, uint64_t *bits) {
    if (mask->form == MASK_LIST) {
        const uint32_t *list = mask->memory;
        for (uint32_t i = 0; i < mask->count; i++)
            bits[list[i] / 64] |= (uint64_t)1 << (list[i] % 64);
    } else {
        const uint64_t *kept = mask->memory;
        for (uint32_t w = 0; w < m->words; w++)
            bits[w] |= kept[w];
    }
}

static const uint32_t *ends_of(const grammar_masks *m, const state_mask *mask) {
    size_t bytes =
        mask->form == MASK_LIST ? mask->count * sizeof(uint32_t) : m->words * sizeof(uint64_t);
    return (const uint32_t *)(const void *)((const char *)mask->memory + bytes);
}

/* From every node at which the rule may have ended, its caller goes on. */
static bool follow_ends(grammar_masks *m, const uint32_t *ends, uint32_t count, uint64_t *bits,
                        const walk_bottom *bottom) {
    for (uint32_t i = 0; i < count; i++)
        if (!walk_caller(m, ends[i], bits, bottom))
            return false;
    return true;
}

/* Without anything kept. */
static avo_status add_directly(grammar_masks *m, place place, uint64_t *bits,
                               const walk_bottom *bottom, avo_error *error) {
    uint64_t before = m->charged;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (m->full)
            empty_automaton(m);
        m->charged = before;
        uint32_t set = start_set(m, place.state);
        if (!m->full && !m->ambiguous && walk(m, 0, set, bits, bottom)) {
            m->walked += m->charged - before;
            return AVO_OK;
        }
        if (!m->full)
            break;
    }
    return fail(m, error);
}

void grammar_masks_begin(grammar_masks *m, uint64_t visits) {
    m->charged = m->walked = 0;
    m->charged_most = visits;
    m->visits_end = m->visits + MASK_VISITS_REAL;
}

uint64_t grammar_masks_charged(const grammar_masks *m, uint64_t *walked) {
    *walked = m->walked;
    return m->charged;
}

/* The mask of a state alone, which is charged where the answer comes there first: the same whether
 * it is computed now or was before. */
static avo_status have_mask(grammar_masks *m, uint32_t state, bool first, avo_error *error) {
    state_mask *mask = &m->masks[state];
    uint64_t before = m->charged;
    if (mask->form == MASK_NONE) {
        AVO_TRY(walk_state(m, state, error));
        keep_mask(m, mask);
        mask->charge = m->charged - before;
        m->charged = before;
    }
    m->charged += first ? mask->charge : 0;
    return m->charged > m->charged_most ? fail(m, error) : AVO_OK;
}

avo_status grammar_masks_add(grammar_masks *m, const frame_store *frames, place place, bool first,
                             uint64_t *bits, avo_error *error) {
    uint32_t state = mask_state(m->net, place.state);
    state_mask *mask = &m->masks[state];
    walk_bottom bottom = {frames, place.frame};
    m->ambiguous = false;
    AVO_TRY(have_mask(m, state, first, error));
    if (mask->form == MASK_NONE || mask->form == MASK_TOO_LARGE)
        return add_directly(m, place, bits, &bottom, error);
    apply(m, mask, bits);
    if (place.frame == 0 || mask->end_count == 0)
        return AVO_OK;
    uint64_t before = m->charged;
    for (int attempt = 0; attempt < 2; attempt++) {
        if (m->full)
            empty_automaton(m);
        m->charged = before;
        if (follow_ends(m, ends_of(m, mask), mask->end_count, bits, &bottom)) {
            m->walked += m->charged - before;
            return AVO_OK;
        }
        if (!m->full)
            break;
    }
    return fail(m, error);
}

avo_status grammar_masks_prepare(grammar_masks *m, avo_error *error) {
    uint64_t end = m->visits + MASK_VISITS_PREPARED;
    for (uint32_t i = 0; i < m->net->state_count && m->visits < end; i++) {
        const net_state *state = &m->net->states[i];
        if (!net_takes_byte(state) || state->alias != i || m->masks[i].form != MASK_NONE)
            continue;
        m->ambiguous = false;
        grammar_masks_begin(m, MASK_VISITS_MAX);
        AVO_TRY(walk_state(m, i, error));
        keep_mask(m, &m->masks[i]);
    }
    return AVO_OK;
}

/* ---- Opening ---- */

static avo_status take_memory(grammar_masks *m, avo_error *error) {
    const network *net = m->net;
    uint32_t slots = 2 * MASK_SETS_MAX;
    m->slot_mask = slots - 1;
    AVO_TRY(frame_store_open(&m->frames, &m->arena, MASK_FRAMES_MAX, error));
    AVO_TRY(place_set_open(&m->reached, &m->arena, GRAMMAR_PLACES_MAX, error));
    m->sets = arena_take_array(&m->arena, MASK_SETS_MAX, sizeof(*m->sets));
    m->places = arena_take_array(&m->arena, MASK_PLACES_MAX, sizeof(*m->places));
    m->slots = arena_take_array(&m->arena, slots, sizeof(*m->slots));
    m->next = arena_take_array(&m->arena, (size_t)MASK_SETS_MAX * net->classes, sizeof(*m->next));
    m->start = arena_take_array(&m->arena, net->state_count, sizeof(*m->start));
    m->path = arena_take_array(&m->arena, (size_t)m->trie->depth_max + 1, sizeof(*m->path));
    m->bits = arena_take_array(&m->arena, m->words, sizeof(*m->bits));
    m->ends = arena_take_array(&m->arena, MASK_ENDS_MAX, sizeof(*m->ends));
    m->masks = arena_take_array(&m->arena, net->state_count, sizeof(*m->masks));
    if (m->sets == NULL || m->places == NULL || m->slots == NULL || m->next == NULL ||
        m->start == NULL || m->path == NULL || m->bits == NULL || m->ends == NULL ||
        m->masks == NULL)
        return status_no_memory(error, "the token masks of a grammar",
                                (size_t)MASK_SETS_MAX * net->classes * sizeof(*m->next));
    empty_automaton(m);
    return AVO_OK;
}

avo_status grammar_masks_open(const network *net, const token_trie *trie, uint32_t vocabulary,
                              const avo_allocator *allocator, grammar_masks **out,
                              avo_error *error) {
    *out = NULL;
    grammar_masks *m = allocator_take_array(allocator, 1, sizeof(*m));
    if (m == NULL)
        return status_no_memory(error, "the token masks of a grammar", sizeof(*m));
    m->allocator = allocator;
    m->net = net;
    m->trie = trie;
    m->vocabulary = vocabulary;
    m->words = (vocabulary + 63) / 64;
    arena_init(&m->arena, allocator, SIZE_MAX);
    avo_status status = take_memory(m, error);
    if (status != AVO_OK) {
        grammar_masks_close(m);
        return status;
    }
    *out = m;
    return AVO_OK;
}

void grammar_masks_close(grammar_masks *m) {
    if (m == NULL)
        return;
    for (uint32_t i = 0; m->masks != NULL && i < m->net->state_count; i++)
        allocator_give(m->allocator, m->masks[i].memory, m->masks[i].bytes);
    arena_free(&m->arena);
    allocator_give(m->allocator, m, sizeof(*m));
}

uint64_t grammar_masks_visits(const grammar_masks *m) {
    return m->visits;
}

void grammar_masks_describe(const grammar_masks *m, uint32_t *kept, size_t *bytes) {
    *kept = m->mask_count;
    *bytes = m->mask_bytes;
}
