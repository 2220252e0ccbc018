/* Places in a network: stacks that share what they have in common, and sets of places. */
#include "sample/grammar_int.h"

static inline uint32_t mix(uint32_t a, uint32_t b) {
    uint64_t x = ((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(x >> 32) ^ (uint32_t)x;
}

static uint32_t slots_for(uint32_t capacity) {
    uint32_t slots = 16;
    while (slots < capacity * 2)
        slots *= 2;
    return slots;
}

avo_status frame_store_open(frame_store *store, arena *arena, uint32_t capacity, avo_error *error) {
    uint32_t slots = slots_for(capacity);
    store->frames = arena_take_array(arena, capacity, sizeof(*store->frames));
    store->slots = arena_take_array(arena, slots, sizeof(*store->slots));
    if (store->frames == NULL || store->slots == NULL)
        return status_no_memory(error, "the stacks of a grammar",
                                capacity * sizeof(*store->frames));
    store->capacity = capacity;
    store->slot_mask = slots - 1;
    store->count = 1; /* the bottom */
    return AVO_OK;
}

void frame_store_clear(frame_store *store) {
    memset(store->slots, 0, ((size_t)store->slot_mask + 1) * sizeof(*store->slots));
    store->count = 1;
}

uint32_t frame_store_push(frame_store *store, uint32_t next, uint32_t parent) {
    uint32_t at = mix(next, parent) & store->slot_mask;
    for (; store->slots[at] != 0; at = (at + 1) & store->slot_mask) {
        const frame *frame = &store->frames[store->slots[at]];
        if (frame->next == next && frame->parent == parent)
            return store->slots[at];
    }
    if (store->count == store->capacity)
        return UINT32_MAX;
    store->slots[at] = store->count;
    store->frames[store->count] =
        (frame){.next = next, .parent = parent, .depth = store->frames[parent].depth + 1};
    return store->count++;
}

/* The newest of a run of probes is removed first, so every table on the way is one that was there
 * before. */
void frame_store_pop(frame_store *store, uint32_t count) {
    while (store->count > count) {
        const frame *frame = &store->frames[--store->count];
        uint32_t at = mix(frame->next, frame->parent) & store->slot_mask;
        while (store->slots[at] != store->count)
            at = (at + 1) & store->slot_mask;
        store->slots[at] = 0;
    }
}

avo_status place_set_open(place_set *set, arena *arena, uint32_t capacity, avo_error *error) {
    uint32_t slots = slots_for(capacity);
    *set = (place_set){.capacity = capacity, .slot_mask = slots - 1};
    set->seen = arena_take_array(arena, capacity, sizeof(*set->seen));
    set->slots = arena_take_array(arena, slots, sizeof(*set->slots));
    if (set->seen == NULL || set->slots == NULL)
        return status_no_memory(error, "the states of a grammar", slots * sizeof(*set->slots));
    return AVO_OK;
}

void place_set_clear(place_set *set) {
    if (set->seen_count * 8 > set->slot_mask) {
        memset(set->slots, 0, ((size_t)set->slot_mask + 1) * sizeof(*set->slots));
    } else {
        /* Few: from the place of each on, everything up to an empty slot is ours. */
        for (uint32_t i = 0; i < set->seen_count; i++) {
            uint32_t at = mix(set->seen[i].state, set->seen[i].frame) & set->slot_mask;
            while (set->slots[at] != 0) {
                set->slots[at] = 0;
                at = (at + 1) & set->slot_mask;
            }
        }
    }
    set->seen_count = 0;
    set->complete = set->deep = set->full = false;
}

static void see(place_set *set, place place) {
    uint32_t at = mix(place.state, place.frame) & set->slot_mask;
    for (; set->slots[at] != 0; at = (at + 1) & set->slot_mask) {
        const struct place *there = &set->seen[set->slots[at] - 1];
        if (there->state == place.state && there->frame == place.frame)
            return;
    }
    if (set->seen_count == set->capacity) {
        set->full = true;
        return;
    }
    set->seen[set->seen_count++] = place;
    set->slots[at] = set->seen_count;
}

static void call(place_set *set, frame_store *store, const uint32_t *targets, uint32_t parent) {
    if (store->frames[parent].depth >= GRAMMAR_DEPTH_MAX) {
        set->deep = true;
        return;
    }
    uint32_t frame = frame_store_push(store, targets[1], parent);
    if (frame == UINT32_MAX)
        set->full = true;
    else
        see(set, (place){targets[0], frame});
}

static void give_back(place_set *set, const frame_store *store, uint32_t frame) {
    if (frame == 0)
        set->complete = true;
    else
        see(set, (place){store->frames[frame].next, store->frames[frame].parent});
}

void place_set_add(place_set *set, const network *net, frame_store *store, place place) {
    uint32_t at = set->seen_count;
    see(set, place);
    for (; at < set->seen_count && !set->full; at++) {
        struct place here = set->seen[at];
        const net_state *state = &net->states[here.state];
        const uint32_t *targets = net->targets + state->first;
        switch ((net_kind)state->kind) {
        case NET_BYTES:
        case NET_FREE:
            break;
        case NET_SPLIT:
            for (uint32_t i = 0; i < state->count; i++)
                see(set, (struct place){targets[i], here.frame});
            break;
        case NET_CALL:
            call(set, store, targets, here.frame);
            break;
        case NET_TAIL:
            see(set, (struct place){targets[0], here.frame});
            break;
        case NET_RETURN:
            give_back(set, store, here.frame);
            break;
        }
    }
}

void place_set_take(place_set *set, const network *net, frame_store *store, const place_set *from,
                    uint8_t byte) {
    for (uint32_t i = 0; i < from->seen_count; i++) {
        place here = from->seen[i];
        const net_state *state = &net->states[here.state];
        const net_edge *edges = net->edges + state->first;
        if (!net_takes_byte(state))
            continue;
        for (uint32_t e = 0; e < state->count; e++)
            if (byte >= edges[e].low && byte <= edges[e].high)
                place_set_add(set, net, store, (place){edges[e].next, here.frame});
    }
}
