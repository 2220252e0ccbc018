/* The memory of the simulation: memory/pages.c, and for every page the sum of the tokens up to its
 * end, which is all that K and V would be. */
#include "sched/simulate_int.h"

#include "base/random.h"

int32_t prompt_token(const simulate_item *item, uint32_t index, uint32_t position) {
    uint64_t x = position < item->prefix_tokens ? (uint64_t)item->prefix_group << 32
                                                : ((uint64_t)index + 1) << 33;
    x = (x ^ position) * 0xD6E8FEB86659FD93ull;
    return (int32_t)((x ^ x >> 32) & 0xFFFFF);
}

bool places_open(simulation *s) {
    const sched_options *options = &s->options->sched;
    uint32_t pages = kv_pages_for(options->context_max) + 1;
    s->content = arena_take_array(&s->arena, options->pages, sizeof(uint64_t));
    s->places = arena_take_array(&s->arena, options->running_max, sizeof(place));
    s->attempts = arena_take_array(&s->arena, (size_t)options->running_max + 1, sizeof(attempt));
    s->probe = arena_take_array(&s->arena, options->context_max, sizeof(int32_t));
    s->hog.capacity = options->pages;
    s->hog.pages = arena_take_array(&s->arena, options->pages, sizeof(uint32_t));
    if (s->content == NULL || s->places == NULL || s->attempts == NULL || s->hog.pages == NULL ||
        s->probe == NULL)
        return false;
    for (uint32_t i = 0; i < options->running_max; i++) {
        place *place = &s->places[i];
        place->item = UINT32_MAX;
        place->tokens =
            arena_take_array(&s->arena, (size_t)options->context_max + 1, sizeof(int32_t));
        place->ends = arena_take_array(&s->arena, pages, sizeof(uint64_t));
        place->table.pages = arena_take_array(&s->arena, pages, sizeof(uint32_t));
        place->table.capacity = pages;
        if (place->tokens == NULL || place->ends == NULL || place->table.pages == NULL)
            return false;
    }
    return true;
}

/* The tokens that the client has seen are the ones that are computed again. */
static void place_fill(simulation *s, place *place, uint32_t index) {
    const simulate_item *item = &s->items[index];
    uint64_t sum = sum_begin(item);
    place->known = item->prompt_tokens + s->users[index].tokens;
    for (uint32_t i = 0; i < place->known; i++) {
        place->tokens[i] = i < item->prompt_tokens ? prompt_token(item, index, i) : sum_draw(sum);
        sum = sum_add(sum, place->tokens[i]);
        if (i % KV_PAGE_TOKENS == KV_PAGE_TOKENS - 1)
            place->ends[i / KV_PAGE_TOKENS] = sum;
    }
}

static prefix_root root_of(const simulate_item *item) {
    uint32_t key[2] = {item->tenant, item->adapter};
    return prefix_root_of(key, sizeof(key));
}

uint32_t places_cached(simulation *s, uint32_t index) {
    const simulate_item *item = &s->items[index];
    if (item->prompt_tokens > s->options->sched.context_max)
        return 0; /* it will not be taken */
    for (uint32_t i = 0; i < item->prompt_tokens; i++)
        s->probe[i] = prompt_token(item, index, i);
    return pages_peek(s->pages, root_of(item), s->probe, item->prompt_tokens);
}

static uint32_t memory_begin(void *context, uint32_t slot, uint64_t request) {
    simulation *s = context;
    place *place = &s->places[slot];
    uint32_t index = (uint32_t)(request - 1);
    if (place->item != UINT32_MAX || place->table.count > 0) {
        wrong(s, "slot %u is given away and still has another's pages", slot);
        return 0;
    }
    place->item = index;
    place->begun = true;
    place_fill(s, place, index);
    const simulate_item *item = &s->items[index];
    place->root = root_of(item);
    const user *user = &s->users[index];
    uint32_t asked = place->known;
    if (item->scored && user->looked < item->prompt_tokens)
        asked = user->looked + 1;
    place->computed = pages_find(s->pages, place->root, place->tokens, asked, &place->table);
    place->sum = sum_begin(item);
    for (uint32_t i = 0; i < place->table.count; i++) {
        place->sum = s->content[place->table.pages[i]];
        if (place->sum != place->ends[i])
            wrong(s, "request %u gets a cached page of other tokens", index);
    }
    if (place->computed >= place->known)
        wrong(s, "request %u has nothing left to compute", index);
    if (s->attempt_count <= s->options->sched.running_max)
        s->attempts[s->attempt_count++] = (attempt){index, slot, true};
    return place->computed;
}

static bool memory_reserve(void *context, uint32_t slot, uint32_t length) {
    simulation *s = context;
    place *place = &s->places[slot];
    if (place->item == UINT32_MAX)
        wrong(s, "room is reserved for an empty slot");
    if (length > real_context(s))
        wrong(s, "%u tokens are more than a context", length);
    return pages_grow(s->pages, &place->table, length) == AVO_OK;
}

static void memory_end(void *context, uint32_t slot) {
    simulation *s = context;
    place *place = &s->places[slot];
    if (place->item == UINT32_MAX)
        wrong(s, "slot %u ends twice", slot);
    if (place->flies)
        wrong(s, "slot %u ends while it is computed", slot);
    if (place->begun)
        for (uint32_t i = 0; i < s->attempt_count; i++)
            if (s->attempts[i].slot == slot && s->attempts[i].item == place->item)
                s->attempts[i].kept = false;
    place->item = UINT32_MAX;
    place->begun = false;
    pages_shrink(s->pages, &place->table, 0);
}

static uint32_t memory_available(void *context) {
    const simulation *s = context;
    return pages_available(s->pages);
}

static uint32_t memory_drafts(void *context, uint32_t slot, uint32_t most) {
    simulation *s = context;
    place *place = &s->places[slot];
    if (place->item == UINT32_MAX || place->flies || place->known - place->computed != 1)
        wrong(s, "drafts are asked for in slot %u, which does not decode", slot);
    place->wished = (uint32_t)(draw_uniform(s) * (most + 1));
    return place->wished;
}

sched_memory places_memory(simulation *s) {
    return (sched_memory){.context = s,
                          .begin = memory_begin,
                          .reserve = memory_reserve,
                          .end = memory_end,
                          .available = memory_available,
                          .page_tokens = KV_PAGE_TOKENS,
                          .drafts = memory_drafts};
}

void places_compute(simulation *s, const sched_entry *entry) {
    place *place = &s->places[entry->slot];
    uint32_t end = entry->first + entry->rows;
    if (end - entry->drafts > place->known || kv_pages_for(end) > place->table.count) {
        wrong(s, "rows up to %u are computed where %u are known and %u pages held", end,
              place->known, place->table.count);
        return;
    }
    for (uint32_t i = entry->first; i < end; i++) {
        uint64_t sum = places_sum(s, entry, i + 1);
        if (i % KV_PAGE_TOKENS == KV_PAGE_TOKENS - 1) {
            place->ends[i / KV_PAGE_TOKENS] = sum;
            s->content[place->table.pages[i / KV_PAGE_TOKENS]] = sum;
        }
    }
}

uint64_t places_sum(const simulation *s, const sched_entry *entry, uint32_t length) {
    const place *place = &s->places[entry->slot];
    uint64_t sum = place->sum;
    for (uint32_t i = entry->first; i < length; i++)
        sum = sum_add(sum, place->tokens[i]);
    return sum;
}

/* The index may put an older page with the same tokens in the place of ours: what is in it counts.
 */
void places_settle(simulation *s, const sched_entry *entry, uint32_t length) {
    place *place = &s->places[entry->slot];
    place->sum = places_sum(s, entry, length);
    place->computed = length;
    if (entry->drafts > 0)
        pages_shrink(s->pages, &place->table, length);
    pages_index(s->pages, place->root, place->tokens, length, &place->table);
    uint32_t first = entry->first / KV_PAGE_TOKENS, end = length / KV_PAGE_TOKENS;
    for (uint32_t i = first; i < end; i++)
        if (s->content[place->table.pages[i]] != place->ends[i])
            wrong(s, "request %u got a page of other tokens from the index", place->item);
}
