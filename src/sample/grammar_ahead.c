/* Text that a grammar leaves no choice about, such as the keys of an object with fixed properties.
 * Speculation proposes it as draft tokens. */
#include "sample/grammar_int.h"

/* The only byte that the places take; −1: there are several, or the text may end here. */
static int32_t only_byte(const place_set *set, const network *net) {
    int32_t only = -1;
    if (set->complete || set->deep || set->full)
        return -1;
    for (uint32_t i = 0; i < set->seen_count; i++) {
        const net_state *state = &net->states[set->seen[i].state];
        if (state->kind == NET_FREE)
            return -1;
        for (uint32_t e = 0; state->kind == NET_BYTES && e < state->count; e++) {
            net_edge edge = net->edges[state->first + e];
            if (edge.low != edge.high || (only >= 0 && only != edge.low))
                return -1;
            only = edge.low;
        }
    }
    return only;
}

size_t grammar_ahead(const place_set *now, const network *net, frame_store *store,
                     place_set ahead[2], char *text) {
    const place_set *set = now;
    uint32_t frames = store->count;
    size_t bytes = 0;
    if (now->seen_count > AHEAD_PLACES_MAX)
        return 0;
    while (bytes < AHEAD_BYTES_MAX) {
        int32_t byte = only_byte(set, net);
        if (byte < 0)
            break;
        place_set *next = &ahead[bytes % 2];
        place_set_clear(next);
        place_set_take(next, net, store, set, (uint8_t)byte);
        text[bytes++] = (char)byte;
        set = next;
    }
    place_set_clear(&ahead[0]);
    place_set_clear(&ahead[1]);
    frame_store_pop(store, frames);
    return bytes;
}
