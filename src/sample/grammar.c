/* Grammars as the interface knows them, and matchers: where an answer is in a grammar. */
#include "sample/grammar.h"

#include "base/options.h"
#include "base/utf8.h"
#include "model/model.h"
#include "sample/grammar_mask.h"

#include <pthread.h>
#include <stdatomic.h>

struct avo_grammar {
    const avo_model *model;
    const avo_allocator *allocator;
    atomic_uint references;
    arena arena;
    network net;
    const token_trie *trie;
    uint32_t vocabulary, words;
    uint64_t *endings; /* [words] tokens that end an answer */
    uint64_t *silent;  /* [words] tokens without a text */
    bool has_endings;
    pthread_mutex_t mutex; /* of the masks */
    grammar_masks *masks;
};

/* Masks that took long, found again by their places: the next word of a list is where the last one
 * was. Valid as long as the frames keep their numbers. */
#define RECENT_MASKS      8u
#define RECENT_PLACES     12u
#define RECENT_VISITS_MIN 1024u
typedef struct recent_mask {
    uint32_t count; /* of places; 0: empty */
    bool complete;
    place places[RECENT_PLACES];
    uint64_t *bits; /* [words] taken when first needed */
} recent_mask;

struct grammar_matcher {
    avo_grammar *grammar;
    const avo_allocator *allocator;
    arena arena;
    frame_store frames, spare; /* the other one is for leaving out stacks that nobody has */
    uint32_t *moved;           /* [GRAMMAR_FRAMES_MAX] */
    place_set now, next;
    place_set ahead[2]; /* for what must come; nothing between calls */
    uint64_t *allowed;  /* [words] */
    int32_t *stop_tokens;
    size_t stop_count;
    recent_mask recent[RECENT_MASKS];
    uint32_t recent_next;
    uint64_t *known;       /* [states] bits: it was there, and was charged for the state's mask */
    uint64_t spent;        /* visits that it was charged so far */
    uint64_t may_be_spent; /* more with each token */
};

/* ---- Opening ---- */

static void set_bit(uint64_t *bits, uint32_t token) {
    bits[token / 64] |= (uint64_t)1 << (token % 64);
}

static avo_status sort_tokens(avo_grammar *g, avo_error *error) {
    g->words = (g->vocabulary + 63) / 64;
    g->endings = arena_take_array(&g->arena, g->words, sizeof(*g->endings));
    g->silent = arena_take_array(&g->arena, g->words, sizeof(*g->silent));
    if (g->endings == NULL || g->silent == NULL)
        return status_no_memory(error, "a grammar", g->words * 2 * sizeof(uint64_t));
    for (uint32_t token = 0; token < g->vocabulary; token++) {
        bool known = token < g->trie->vocabulary;
        bool ends = avo_model_token_ends(g->model, (int32_t)token);
        if (ends)
            set_bit(g->endings, token);
        else if (known && trie_token(g->trie, (int32_t)token).size == 0)
            set_bit(g->silent, token);
        g->has_endings = g->has_endings || ends;
    }
    return AVO_OK;
}

static avo_status read_text(grammar_rules *rules, avo_grammar_kind kind, const char *text,
                            avo_error *error) {
    if (kind == AVO_GRAMMAR_JSON)
        return grammar_read_json(rules);
    if (text == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "a grammar or schema needs a text");
    size_t size = strnlen(text, GRAMMAR_TEXT_MAX + 1);
    if (size > GRAMMAR_TEXT_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "a grammar or schema can have at most %zu bytes",
                           GRAMMAR_TEXT_MAX);
    switch (kind) {
    case AVO_GRAMMAR_GBNF:
        return grammar_read_gbnf(rules, (text_view){text, size});
    case AVO_GRAMMAR_JSON_SCHEMA:
        return grammar_read_schema(rules, (text_view){text, size});
    case AVO_GRAMMAR_REGEX:
        return grammar_read_regex(rules, (text_view){text, size});
    default:
        return status_fail(error, AVO_ERROR_ARGUMENT, "%d is not a grammar kind", (int)kind);
    }
}

static avo_status check_options(const avo_grammar_options *options, avo_error *error) {
    const char *trigger = options->trigger;
    if (trigger != NULL && options->json_or_text)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a grammar can have a trigger or json_or_text, not both");
    size_t size = trigger == NULL ? 1 : strnlen(trigger, GRAMMAR_TRIGGER_MAX + 1);
    if (size == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the trigger of a grammar is empty");
    if (size > GRAMMAR_TRIGGER_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the trigger of a grammar has more than %u bytes", GRAMMAR_TRIGGER_MAX);
    if (trigger != NULL && utf8_valid_prefix(trigger, size) != size)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the trigger is not valid UTF-8");
    return AVO_OK;
}

static avo_status compile(avo_grammar *g, avo_grammar_kind kind, const char *text,
                          const avo_grammar_options *options, avo_error *error) {
    arena scratch;
    grammar_rules rules;
    arena_init(&scratch, g->allocator, GRAMMAR_ARENA_MAX);
    avo_status status = grammar_rules_init(&rules, &scratch, error);
    AVO_THEN(status, read_text(&rules, kind, text, error));
    AVO_THEN(status, network_build(&rules, &g->arena, g->trie->depth_max,
                                   text_from(options->trigger), options->json_or_text, &g->net));
    arena_free(&scratch);
    return status;
}

static avo_status open_grammar(avo_grammar *g, avo_grammar_kind kind, const char *text,
                               const avo_grammar_options *options, avo_error *error) {
    AVO_TRY(check_options(options, error));
    if (g->model->tokenizer == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "grammars need a tokenizer: %s",
                           g->model->tokenizer_error.status != AVO_OK
                               ? g->model->tokenizer_error.text
                               : "the model has none");
    AVO_TRY(tokenizer_trie(g->model->tokenizer, &g->trie, error));
    AVO_TRY(sort_tokens(g, error));
    AVO_TRY(compile(g, kind, text, options, error));
    AVO_TRY(grammar_masks_open(&g->net, g->trie, g->vocabulary, g->allocator, &g->masks, error));
    return grammar_masks_prepare(g->masks, error);
}

avo_status avo_grammar_open(const avo_model *model, avo_grammar_kind kind, const char *text,
                            const avo_grammar_options *options, avo_grammar **grammar,
                            avo_error *error) {
    avo_grammar_options own = AVO_GRAMMAR_OPTIONS_INIT;
    avo_error ours = {0}; /* readers look at it */
    *grammar = NULL;
    AVO_TRY(options_take(&own, sizeof(own), options, "avo_grammar_options", error));
    avo_grammar *g = allocator_take_array(model->allocator, 1, sizeof(*g));
    if (g == NULL)
        return status_no_memory(error, "a grammar", sizeof(*g));
    g->model = model;
    g->allocator = model->allocator;
    g->vocabulary = model->view.vocabulary;
    atomic_init(&g->references, 1);
    arena_init(&g->arena, g->allocator, SIZE_MAX);
    pthread_mutex_init(&g->mutex, NULL);
    avo_status status = open_grammar(g, kind, text, &own, &ours);
    if (status != AVO_OK) {
        avo_grammar_close(g);
        if (error != NULL)
            *error = ours;
        return status;
    }
    *grammar = g;
    return AVO_OK;
}

avo_grammar *avo_grammar_share(avo_grammar *grammar) {
    if (grammar != NULL)
        atomic_fetch_add_explicit(&grammar->references, 1, memory_order_relaxed);
    return grammar;
}

void avo_grammar_close(avo_grammar *grammar) {
    if (grammar == NULL ||
        atomic_fetch_sub_explicit(&grammar->references, 1, memory_order_acq_rel) > 1)
        return;
    grammar_masks_close(grammar->masks);
    arena_free(&grammar->arena);
    pthread_mutex_destroy(&grammar->mutex);
    allocator_give(grammar->allocator, grammar, sizeof(*grammar));
}

avo_status grammar_check(const avo_grammar *grammar, const avo_model *model, avo_error *error) {
    if (grammar->model == model)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "the grammar was opened for another model");
}

void avo_grammar_describe(avo_grammar *grammar, avo_grammar_info *info) {
    grammar_counts counts = grammar_count(grammar);
    avo_grammar_info now = {.size = sizeof(now),
                            .states = counts.states,
                            .memory_bytes = grammar->arena.used_bytes + counts.mask_bytes};
    options_give(info, &now, sizeof(now));
}

grammar_counts grammar_count(avo_grammar *grammar) {
    grammar_counts counts = {.states = grammar->net.state_count};
    pthread_mutex_lock(&grammar->mutex);
    counts.visits = grammar_masks_visits(grammar->masks);
    grammar_masks_describe(grammar->masks, &counts.masks, &counts.mask_bytes);
    pthread_mutex_unlock(&grammar->mutex);
    return counts;
}

/* ---- Matchers ---- */

static avo_status take_memory(grammar_matcher *m, const int32_t *stop_tokens, avo_error *error) {
    AVO_TRY(frame_store_open(&m->frames, &m->arena, GRAMMAR_FRAMES_MAX, error));
    AVO_TRY(frame_store_open(&m->spare, &m->arena, GRAMMAR_FRAMES_MAX, error));
    AVO_TRY(place_set_open(&m->now, &m->arena, GRAMMAR_PLACES_MAX, error));
    AVO_TRY(place_set_open(&m->next, &m->arena, GRAMMAR_PLACES_MAX, error));
    for (uint32_t i = 0; i < 2; i++)
        AVO_TRY(place_set_open(&m->ahead[i], &m->arena, AHEAD_PLACES_MAX, error));
    m->moved = arena_take_array(&m->arena, GRAMMAR_FRAMES_MAX, sizeof(*m->moved));
    m->allowed = arena_take_array(&m->arena, m->grammar->words, sizeof(*m->allowed));
    m->stop_tokens = arena_take_array(&m->arena, m->stop_count + 1, sizeof(*m->stop_tokens));
    m->known = arena_take_array(&m->arena, m->grammar->net.state_count / 64 + 1, sizeof(*m->known));
    if (m->moved == NULL || m->allowed == NULL || m->stop_tokens == NULL || m->known == NULL)
        return status_no_memory(error, "the state of a grammar",
                                m->grammar->words * sizeof(uint64_t));
    if (m->stop_count > 0)
        memcpy(m->stop_tokens, stop_tokens, m->stop_count * sizeof(*stop_tokens));
    return AVO_OK;
}

avo_status grammar_matcher_open(avo_grammar *grammar, const int32_t *stop_tokens, size_t stop_count,
                                const avo_allocator *allocator, grammar_matcher **out,
                                avo_error *error) {
    *out = NULL;
    grammar_matcher *m = allocator_take_array(allocator, 1, sizeof(*m));
    if (m == NULL)
        return status_no_memory(error, "the state of a grammar", sizeof(*m));
    m->grammar = grammar;
    m->allocator = allocator;
    m->stop_count = stop_count;
    m->may_be_spent = MASK_VISITS_ANSWER;
    arena_init(&m->arena, allocator, SIZE_MAX);
    avo_status status = take_memory(m, stop_tokens, error);
    if (status != AVO_OK) {
        grammar_matcher_close(m);
        return status;
    }
    place_set_add(&m->now, &grammar->net, &m->frames, (place){grammar->net.start, 0});
    *out = m;
    return AVO_OK;
}

void grammar_matcher_close(grammar_matcher *m) {
    if (m == NULL)
        return;
    arena_free(&m->arena);
    allocator_give(m->allocator, m, sizeof(*m));
}

/* ---- Masks ---- */

static avo_status check_places(const grammar_matcher *m, avo_error *error) {
    if (!m->now.full)
        return AVO_OK;
    return status_fail(
        error, AVO_ERROR_LIMIT,
        "the grammar is too ambiguous: the answer can be in more than %u grammar states at once",
        GRAMMAR_PLACES_MAX);
}

static avo_status no_token(const grammar_matcher *m, avo_error *error) {
    if (m->now.deep)
        return status_fail(
            error, AVO_ERROR_LIMIT,
            "the answer is nested deeper than %u rules, the most a grammar can follow",
            GRAMMAR_DEPTH_MAX);
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "no token of the model can continue the answer as the grammar requires");
}

static void allow_ends(grammar_matcher *m) {
    const avo_grammar *g = m->grammar;
    for (uint32_t w = 0; w < g->words; w++)
        m->allowed[w] |= g->endings[w];
    for (size_t i = 0; i < m->stop_count; i++)
        if (m->stop_tokens[i] >= 0 && (uint32_t)m->stop_tokens[i] < g->vocabulary)
            set_bit(m->allowed, (uint32_t)m->stop_tokens[i]);
}

/* The places that take a byte; false where there are too many to be kept. */
static bool list_places(const grammar_matcher *m, recent_mask *key) {
    key->count = 0;
    key->complete = m->now.complete;
    for (uint32_t i = 0; i < m->now.seen_count; i++) {
        if (!net_takes_byte(&m->grammar->net.states[m->now.seen[i].state]))
            continue;
        if (key->count == RECENT_PLACES)
            return false;
        key->places[key->count++] = m->now.seen[i];
    }
    return key->count > 0;
}

static const uint64_t *find_recent(const grammar_matcher *m, const recent_mask *key) {
    for (uint32_t i = 0; i < RECENT_MASKS; i++) {
        const recent_mask *kept = &m->recent[i];
        if (kept->count == key->count && kept->complete == key->complete &&
            memcmp(kept->places, key->places, key->count * sizeof(place)) == 0)
            return kept->bits;
    }
    return NULL;
}

/* Without memory it is computed again the next time. */
static void keep_recent(grammar_matcher *m, const recent_mask *key) {
    recent_mask *kept = &m->recent[m->recent_next++ % RECENT_MASKS];
    uint64_t *bits = kept->bits;
    if (bits == NULL)
        bits = arena_take_array(&m->arena, m->grammar->words, sizeof(*bits));
    if (bits == NULL)
        return;
    memcpy(bits, m->allowed, m->grammar->words * sizeof(*bits));
    *kept = *key;
    kept->bits = bits;
}

static void forget_recent(grammar_matcher *m) {
    for (uint32_t i = 0; i < RECENT_MASKS; i++)
        m->recent[i].count = 0;
}

/* The tokens with a text, of all places. `walked`: what it was charged that no other mask keeps. */
static avo_status add_places(grammar_matcher *m, uint64_t *walked, avo_error *error) {
    avo_grammar *g = m->grammar;
    uint64_t left = m->may_be_spent > m->spent ? m->may_be_spent - m->spent : 0;
    avo_status status = AVO_OK;
    pthread_mutex_lock(&g->mutex);
    grammar_masks_begin(g->masks, left < MASK_VISITS_MAX ? left : MASK_VISITS_MAX);
    for (uint32_t i = 0; i < m->now.seen_count && status == AVO_OK; i++) {
        place here = m->now.seen[i];
        const net_state *state = &g->net.states[here.state];
        if (net_takes_byte(state)) {
            uint32_t shared = mask_state(&g->net, here.state);
            bool first = (m->known[shared / 64] >> (shared % 64) & 1) == 0;
            set_bit(m->known, shared);
            status = grammar_masks_add(g->masks, &m->frames, here, first, m->allowed, error);
        }
        for (uint32_t w = 0; state->kind == NET_FREE && w < g->words; w++)
            m->allowed[w] |= g->silent[w];
    }
    m->spent += grammar_masks_charged(g->masks, walked);
    pthread_mutex_unlock(&g->mutex);
    return status;
}

avo_status grammar_matcher_mask(grammar_matcher *m, const uint64_t **allowed, avo_error *error) {
    avo_grammar *g = m->grammar;
    recent_mask key = {0};
    AVO_TRY(check_places(m, error));
    bool short_list = list_places(m, &key);
    *allowed = short_list ? find_recent(m, &key) : NULL;
    if (*allowed != NULL)
        return AVO_OK;
    memset(m->allowed, 0, g->words * sizeof(*m->allowed));
    uint64_t walked = 0;
    AVO_TRY(add_places(m, &walked, error));
    /* A token that ends the answer may have a text, which the grammar may allow: it must not. */
    uint64_t any = 0;
    for (uint32_t w = 0; w < g->words; w++)
        m->allowed[w] &= ~g->endings[w];
    if (m->now.complete)
        allow_ends(m);
    for (uint32_t w = 0; w < g->words; w++)
        any |= m->allowed[w];
    *allowed = m->allowed;
    if (any == 0)
        return no_token(m, error);
    if (short_list && walked > RECENT_VISITS_MIN)
        keep_recent(m, &key);
    return AVO_OK;
}

/* ---- Following ---- */

/* Leaves out stacks that no place has any more. Parents stand before their children. */
static void compact(grammar_matcher *m) {
    frame_store *old = &m->frames;
    memset(m->moved, 0, old->count * sizeof(*m->moved));
    for (uint32_t i = 0; i < m->now.seen_count; i++)
        for (uint32_t f = m->now.seen[i].frame; f != 0 && m->moved[f] == 0;
             f = old->frames[f].parent)
            m->moved[f] = 1;
    frame_store_clear(&m->spare);
    for (uint32_t f = 1; f < old->count; f++)
        if (m->moved[f] != 0)
            m->moved[f] =
                frame_store_push(&m->spare, old->frames[f].next, m->moved[old->frames[f].parent]);
    /* The set is made again, since its places have other numbers now. */
    place_set_clear(&m->next);
    m->next.complete = m->now.complete;
    m->next.deep = m->now.deep;
    for (uint32_t i = 0; i < m->now.seen_count; i++) {
        place here = m->now.seen[i];
        if (net_takes_byte(&m->grammar->net.states[here.state]))
            place_set_add(&m->next, &m->grammar->net, &m->spare,
                          (place){here.state, m->moved[here.frame]});
    }
    forget_recent(m);
    frame_store frames = m->frames;
    m->frames = m->spare;
    m->spare = frames;
    place_set set = m->now;
    m->now = m->next;
    m->next = set;
}

static bool take_byte(grammar_matcher *m, uint8_t byte) {
    const network *net = &m->grammar->net;
    place_set_clear(&m->next);
    for (uint32_t i = 0; i < m->now.seen_count && !m->now.full; i++) {
        place here = m->now.seen[i];
        const net_state *state = &net->states[here.state];
        if (!net_takes_byte(state))
            continue;
        m->spent += state->count;
        if (m->spent > m->may_be_spent)
            return false;
        const net_edge *edges = net->edges + state->first;
        for (uint32_t e = 0; e < state->count; e++)
            if (byte >= edges[e].low && byte <= edges[e].high)
                place_set_add(&m->next, net, &m->frames, (place){edges[e].next, here.frame});
    }
    bool full = m->now.full;
    place_set set = m->now;
    m->now = m->next;
    m->next = set;
    m->now.full = m->now.full || full;
    return !m->now.full && (m->now.seen_count > 0 || m->now.complete);
}

bool grammar_matcher_take(grammar_matcher *m, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (m->frames.count > GRAMMAR_FRAMES_MAX / 2)
            compact(m);
        if (!take_byte(m, (uint8_t)bytes[i]))
            return false;
    }
    return true;
}

static bool is_free(const grammar_matcher *m) {
    for (uint32_t i = 0; i < m->now.seen_count; i++)
        if (m->grammar->net.states[m->now.seen[i].state].kind == NET_FREE)
            return true;
    return false;
}

/* In free text a special token may be the trigger, or its end, though nobody sees it. */
static text_view text_of(const grammar_matcher *m, int32_t token) {
    const avo_grammar *g = m->grammar;
    text_view text = trie_token(g->trie, token);
    bool ends = (g->endings[(uint32_t)token / 64] >> ((uint32_t)token % 64) & 1) != 0;
    if (text.size > 0 || ends || !is_free(m))
        return ends ? (text_view){"", 0} : text;
    return tokenizer_is_special(g->model->tokenizer, token)
               ? tokenizer_piece(g->model->tokenizer, token)
               : text;
}

avo_status grammar_matcher_follow(grammar_matcher *m, int32_t token, avo_error *error) {
    if (token < 0 || (uint32_t)token >= m->grammar->vocabulary)
        return status_fail(error, AVO_ERROR_ARGUMENT, "token %d is not in the vocabulary", token);
    text_view text = text_of(m, token);
    m->may_be_spent += MASK_VISITS_TOKEN;
    if (grammar_matcher_take(m, text.data, text.size))
        return AVO_OK;
    if (m->spent > m->may_be_spent)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the grammar is too ambiguous: following this answer takes more than "
                           "%llu visits plus %llu per token",
                           (unsigned long long)MASK_VISITS_ANSWER,
                           (unsigned long long)MASK_VISITS_TOKEN);
    AVO_TRY(check_places(m, error));
    return no_token(m, error);
}

bool grammar_matcher_complete(const grammar_matcher *m) {
    return m->now.complete && !m->now.full;
}

bool grammar_matcher_over(const grammar_matcher *m) {
    if (!m->now.complete || m->now.full || m->grammar->has_endings || m->stop_count > 0)
        return false;
    for (uint32_t i = 0; i < m->now.seen_count; i++)
        if (net_takes_byte(&m->grammar->net.states[m->now.seen[i].state]))
            return false;
    return true;
}

/* ---- Looking ahead ---- */

/* The longest token that the text begins with; −1: none. */
static int32_t longest_token(const token_trie *trie, const char *text, size_t bytes, size_t *used) {
    int32_t best = -1;
    uint32_t node = 1;
    uint32_t end = trie->count;
    for (size_t at = 0; at < bytes; at++) {
        while (node < end && trie->nodes[node].byte != (uint8_t)text[at])
            node = trie->nodes[node].end;
        if (node >= end)
            break;
        if (trie->nodes[node + 1].tokens > trie->nodes[node].tokens) {
            best = trie->ids[trie->nodes[node].tokens];
            *used = at + 1;
        }
        end = trie->nodes[node].end;
        node++;
    }
    return best;
}

uint32_t grammar_matcher_forced(grammar_matcher *m, uint32_t most, int32_t *tokens) {
    char text[AHEAD_BYTES_MAX];
    const avo_grammar *g = m->grammar;
    size_t bytes = grammar_ahead(&m->now, &g->net, &m->frames, m->ahead, text);
    uint32_t count = 0;
    for (size_t at = 0, used = 0; at < bytes && count < most; at += used) {
        int32_t token = longest_token(g->trie, text + at, bytes - at, &used);
        /* A token that reaches the end might be longer with what follows it. */
        if (token < 0 || at + used == bytes)
            break;
        tokens[count++] = token;
    }
    return count;
}
