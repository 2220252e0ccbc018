/* A grammar without a model: which texts it accepts, byte by byte. */
#ifndef AVO_TESTS_SAMPLE_GRAMMAR_TEXTS_H
#define AVO_TESTS_SAMPLE_GRAMMAR_TEXTS_H

#include "support/support.h"

#include "sample/grammar_int.h"

#include <stdio.h>
#include <string.h>

typedef struct texts {
    arena scratch, arena;
    grammar_rules rules;
    network net;
    frame_store frames;
    place_set now, next;
    avo_error error;
} texts;

static inline avo_status texts_open(texts *t, avo_grammar_kind kind, const char *text) {
    memset(t, 0, sizeof(*t));
    arena_init(&t->scratch, NULL, GRAMMAR_ARENA_MAX);
    arena_init(&t->arena, NULL, SIZE_MAX);
    AVO_TRY(grammar_rules_init(&t->rules, &t->scratch, &t->error));
    text_view view = text_from(text);
    AVO_TRY(kind == AVO_GRAMMAR_GBNF          ? grammar_read_gbnf(&t->rules, view)
            : kind == AVO_GRAMMAR_JSON_SCHEMA ? grammar_read_schema(&t->rules, view)
                                              : grammar_read_json(&t->rules));
    AVO_TRY(network_build(&t->rules, &t->arena, 16, (text_view){"", 0}, false, &t->net));
    AVO_TRY(frame_store_open(&t->frames, &t->arena, 1 << 16, &t->error));
    AVO_TRY(place_set_open(&t->now, &t->arena, GRAMMAR_PLACES_MAX, &t->error));
    return place_set_open(&t->next, &t->arena, GRAMMAR_PLACES_MAX, &t->error);
}

static inline void texts_close(texts *t) {
    arena_free(&t->scratch);
    arena_free(&t->arena);
}

typedef enum fit { FIT_NO, FIT_BEGINNING, FIT_WHOLE } fit;

/* Whether the text is accepted, or at least the beginning of one that is. */
static inline fit texts_fit(texts *t, const char *text, size_t size) {
    frame_store_clear(&t->frames);
    place_set_clear(&t->now);
    place_set_add(&t->now, &t->net, &t->frames, (place){t->net.start, 0});
    for (size_t i = 0; i < size; i++) {
        place_set_clear(&t->next);
        for (uint32_t p = 0; p < t->now.seen_count; p++) {
            const net_state *state = &t->net.states[t->now.seen[p].state];
            for (uint32_t e = 0; net_takes_byte(state) && e < state->count; e++) {
                const net_edge *edge = &t->net.edges[state->first + e];
                if ((uint8_t)text[i] >= edge->low && (uint8_t)text[i] <= edge->high)
                    place_set_add(&t->next, &t->net, &t->frames,
                                  (place){edge->next, t->now.seen[p].frame});
            }
        }
        assert_false(t->next.full);
        place_set set = t->now;
        t->now = t->next;
        t->next = set;
        if (t->now.seen_count == 0 && !t->now.complete)
            return FIT_NO;
    }
    return t->now.complete ? FIT_WHOLE : FIT_BEGINNING;
}

static inline void accepts(texts *t, const char *text) {
    if (texts_fit(t, text, strlen(text)) != FIT_WHOLE)
        fail_msg("not accepted: %s", text);
}

static inline void refuses(texts *t, const char *text) {
    if (texts_fit(t, text, strlen(text)) == FIT_WHOLE)
        fail_msg("accepted: %s", text);
}

/* One grammar, texts that fit and texts that do not; lists end with NULL. */
typedef struct grammar_case {
    const char *grammar;
    const char *good[16];
    const char *bad[16];
} grammar_case;

static inline void check_case(avo_grammar_kind kind, const grammar_case *c) {
    texts t;
    avo_status status = texts_open(&t, kind, c->grammar);
    if (status != AVO_OK)
        fail_msg("%s: %s", c->grammar, t.error.text);
    for (size_t i = 0; i < 16 && c->good[i] != NULL; i++)
        if (texts_fit(&t, c->good[i], strlen(c->good[i])) != FIT_WHOLE)
            fail_msg("%s does not accept %s", c->grammar, c->good[i]);
    for (size_t i = 0; i < 16 && c->bad[i] != NULL; i++)
        if (texts_fit(&t, c->bad[i], strlen(c->bad[i])) == FIT_WHOLE)
            fail_msg("%s accepts %s", c->grammar, c->bad[i]);
    texts_close(&t);
}

/* Refused, with a text that has `part` in it. */
static inline void check_refused(avo_grammar_kind kind, const char *grammar, avo_status wanted,
                                 const char *part) {
    texts t;
    avo_status status = texts_open(&t, kind, grammar);
    if (status != wanted || strstr(t.error.text, part) == NULL)
        fail_msg("%.200s: status %d, \"%s\"; wanted %d, \"%s\"", grammar, (int)status, t.error.text,
                 (int)wanted, part);
    texts_close(&t);
}

#endif
