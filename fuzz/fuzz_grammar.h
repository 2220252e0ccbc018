/* Any bytes as a grammar or schema: what compiles must read any text within its bounds, and what
 * fails must say why. */
#ifndef AVO_FUZZ_GRAMMAR_H
#define AVO_FUZZ_GRAMMAR_H

#include "sample/grammar_int.h"

#include <stdlib.h>
#include <string.h>

#define FUZZ_BYTES 48

/* Walks bytes that fit, picked by the input itself. */
static inline void fuzz_walk(const network *net, const uint8_t *data, size_t size) {
    arena arena;
    frame_store frames;
    place_set sets[2];
    arena_init(&arena, NULL, SIZE_MAX);
    if (frame_store_open(&frames, &arena, 4096, NULL) != AVO_OK ||
        place_set_open(&sets[0], &arena, GRAMMAR_PLACES_MAX, NULL) != AVO_OK ||
        place_set_open(&sets[1], &arena, GRAMMAR_PLACES_MAX, NULL) != AVO_OK)
        abort();
    place_set_add(&sets[0], net, &frames, (place){net->start, 0});
    for (size_t i = 0; i < FUZZ_BYTES; i++) {
        const place_set *now = &sets[i % 2];
        place_set *next = &sets[1 - i % 2];
        if (now->full || now->deep)
            break;
        uint32_t takers = 0;
        const net_edge *picked = NULL;
        for (uint32_t p = 0; p < now->seen_count; p++) {
            const net_state *state = &net->states[now->seen[p].state];
            if (!net_takes_byte(state))
                continue;
            if (state->count == 0)
                abort(); /* a place without a way on */
            uint32_t turn = size == 0 ? 0 : data[(i * 7 + p) % size];
            if (takers++ == 0 || turn % 3 == 0)
                picked = &net->edges[state->first + turn % state->count];
        }
        if (takers == 0 && !now->complete)
            abort(); /* nothing was refused, and nothing can follow */
        if (picked == NULL)
            break;
        place_set_clear(next);
        for (uint32_t p = 0; p < now->seen_count; p++) {
            const net_state *state = &net->states[now->seen[p].state];
            for (uint32_t e = 0; net_takes_byte(state) && e < state->count; e++) {
                const net_edge *edge = &net->edges[state->first + e];
                if (picked->low >= edge->low && picked->low <= edge->high)
                    place_set_add(next, net, &frames, (place){edge->next, now->seen[p].frame});
            }
        }
    }
    arena_free(&arena);
}

static inline int fuzz_grammar(const uint8_t *data, size_t size, bool schema) {
    arena scratch;
    arena kept;
    grammar_rules rules;
    network net;
    avo_error error = {0};
    if (size > GRAMMAR_TEXT_MAX)
        return 0;
    arena_init(&scratch, NULL, GRAMMAR_ARENA_MAX);
    arena_init(&kept, NULL, SIZE_MAX);
    text_view text = {(const char *)data, size};
    avo_status status = grammar_rules_init(&rules, &scratch, &error);
    if (status == AVO_OK)
        status = schema ? grammar_read_schema(&rules, text) : grammar_read_gbnf(&rules, text);
    if (status == AVO_OK)
        status = network_build(&rules, &kept, 32, (text_view){"", 0}, false, &net);
    if (status == AVO_OK)
        fuzz_walk(&net, data, size);
    else if (error.text[0] == '\0' || status == AVO_ERROR_MEMORY)
        abort();
    arena_free(&scratch);
    arena_free(&kept);
    return 0;
}

#endif
