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

bool memory_open(simulation *s) {
    const sched_options *options = &s->options->sched;
    uint32_t pages = kv_pages_for(options->context_max) + 1;
    s->content = arena_take_array(&s->arena, options->pages, sizeof(uint64_t));
    s->sequences = arena_take_array(&s->arena, options->running_max, sizeof(sequence));
    s->attempts = arena_take_array(&s->arena, (size_t)options->running_max + 1, sizeof(attempt));
    s->probe = arena_take_array(&s->arena, options->context_max, sizeof(int32_t));
    s->hog.capacity = options->pages;
    s->hog.pages = arena_take_array(&s->arena, options->pages, sizeof(uint32_t));
    if (s->content == NULL || s->sequences == NULL || s->attempts == NULL || s->hog.pages == NULL ||
        s->probe == NULL)
        return false;
    for (uint32_t i = 0; i < options->running_max; i++) {
        sequence *sequence = &s->sequences[i];
        sequence->item = UINT32_MAX;
        sequence->tokens =
            arena_take_array(&s->arena, (size_t)options->context_max + 1, sizeof(int32_t));
        sequence->ends = arena_take_array(&s->arena, pages, sizeof(uint64_t));
        sequence->table.pages = arena_take_array(&s->arena, pages, sizeof(uint32_t));
        sequence->table.capacity = pages;
        if (sequence->tokens == NULL || sequence->ends == NULL || sequence->table.pages == NULL)
            return false;
    }
    return true;
}

/* The tokens that the client has seen are the ones that are computed again. */
static void sequence_fill(simulation *s, sequence *sequence, uint32_t index) {
    const simulate_item *item = &s->items[index];
    uint64_t sum = sum_begin(item);
    sequence->known = item->prompt_tokens + s->users[index].tokens;
    for (uint32_t i = 0; i < sequence->known; i++) {
        sequence->tokens[i] =
            i < item->prompt_tokens ? prompt_token(item, index, i) : sum_draw(sum);
        sum = sum_add(sum, sequence->tokens[i]);
        if (i % KV_PAGE_TOKENS == KV_PAGE_TOKENS - 1)
            sequence->ends[i / KV_PAGE_TOKENS] = sum;
    }
}

static prefix_root root_of(const simulate_item *item) {
    uint32_t key[2] = {item->tenant, item->adapter};
    return prefix_root_of(key, sizeof(key));
}

uint32_t memory_cached(simulation *s, uint32_t index) {
    const simulate_item *item = &s->items[index];
    if (item->prompt_tokens > s->options->sched.context_max)
        return 0; /* it will not be taken */
    for (uint32_t i = 0; i < item->prompt_tokens; i++)
        s->probe[i] = prompt_token(item, index, i);
    return pages_peek(s->pages, root_of(item), s->probe, item->prompt_tokens);
}

static uint32_t memory_begin(void *context, uint32_t number, uint64_t request) {
    simulation *s = context;
    sequence *sequence = &s->sequences[number];
    uint32_t index = (uint32_t)(request - 1);
    if (sequence->item != UINT32_MAX || sequence->table.count > 0) {
        wrong(s, "sequence %u is given away and still has another's pages", number);
        return 0;
    }
    sequence->item = index;
    sequence->begun = true;
    sequence_fill(s, sequence, index);
    const simulate_item *item = &s->items[index];
    sequence->root = root_of(item);
    const user *user = &s->users[index];
    uint32_t asked = sequence->known;
    if (item->scored && user->looked < item->prompt_tokens)
        asked = user->looked + 1;
    sequence->computed =
        pages_find(s->pages, sequence->root, sequence->tokens, asked, &sequence->table);
    sequence->sum = sum_begin(item);
    for (uint32_t i = 0; i < sequence->table.count; i++) {
        sequence->sum = s->content[sequence->table.pages[i]];
        if (sequence->sum != sequence->ends[i])
            wrong(s, "request %u gets a cached page of other tokens", index);
    }
    if (sequence->computed >= sequence->known)
        wrong(s, "request %u has nothing left to compute", index);
    if (s->attempt_count <= s->options->sched.running_max)
        s->attempts[s->attempt_count++] = (attempt){index, number, true};
    return sequence->computed;
}

static bool memory_reserve(void *context, uint32_t number, uint32_t length) {
    simulation *s = context;
    sequence *sequence = &s->sequences[number];
    if (sequence->item == UINT32_MAX)
        wrong(s, "pages are reserved for sequence %u, which does not run", number);
    if (length > real_context(s))
        wrong(s, "%u tokens are more than a context", length);
    return pages_grow(s->pages, &sequence->table, length) == AVO_OK;
}

static void memory_end(void *context, uint32_t number) {
    simulation *s = context;
    sequence *sequence = &s->sequences[number];
    if (sequence->item == UINT32_MAX)
        wrong(s, "sequence %u ends twice", number);
    if (sequence->in_flight)
        wrong(s, "sequence %u ends while it is computed", number);
    if (sequence->begun)
        for (uint32_t i = 0; i < s->attempt_count; i++)
            if (s->attempts[i].sequence == number && s->attempts[i].item == sequence->item)
                s->attempts[i].kept = false;
    sequence->item = UINT32_MAX;
    sequence->begun = false;
    pages_shrink(s->pages, &sequence->table, 0);
}

static uint32_t memory_available(void *context) {
    const simulation *s = context;
    return pages_available(s->pages);
}

/* Any number of drafts for each, likelier or less likely than they really are, and some that must
 * be verified in any case. */
static void memory_drafts(void *context, sched_wish *wishes, uint32_t count,
                          const sched_time *time) {
    simulation *s = context;
    if (!(time->token_ns > 0) || !(time->left_ns >= 0))
        wrong(s, "a token takes %.0f ns, %.0f are left", time->token_ns, time->left_ns);
    for (uint32_t i = 0; i < count; i++) {
        sched_wish *wish = &wishes[i];
        sequence *sequence = &s->sequences[wish->sequence];
        if (sequence->item == UINT32_MAX || sequence->in_flight ||
            sequence->known - sequence->computed != 1)
            wrong(s, "drafts are asked for in sequence %u, which does not decode", wish->sequence);
        if (wish->most > DRAFTS_MAX)
            wrong(s, "sequence %u is asked for %u drafts", wish->sequence, wish->most);
        sequence->wished = (uint32_t)(draw_uniform(s) * (wish->most + 1));
        float rate = (float)draw_uniform(s), survival = 1.0f;
        for (uint32_t j = 0; j < sequence->wished; j++)
            sequence->survival[j] = survival *= rate;
        wish->count = sequence->wished;
        wish->survival = sequence->survival;
        wish->always = draw_uniform(s) < 0.5;
    }
}

sched_memory memory_functions(simulation *s) {
    return (sched_memory){.context = s,
                          .begin = memory_begin,
                          .reserve = memory_reserve,
                          .end = memory_end,
                          .available = memory_available,
                          .page_tokens = KV_PAGE_TOKENS,
                          .drafts = memory_drafts};
}

void sequence_compute(simulation *s, const sched_entry *entry) {
    sequence *sequence = &s->sequences[entry->sequence];
    uint32_t end = entry->first + entry->rows;
    if (end - entry->drafts > sequence->known || kv_pages_for(end) > sequence->table.count) {
        wrong(s, "rows up to %u are computed where %u are known and %u pages held", end,
              sequence->known, sequence->table.count);
        return;
    }
    for (uint32_t i = entry->first; i < end; i++) {
        uint64_t sum = sequence_sum(s, entry, i + 1);
        if (i % KV_PAGE_TOKENS == KV_PAGE_TOKENS - 1) {
            sequence->ends[i / KV_PAGE_TOKENS] = sum;
            s->content[sequence->table.pages[i / KV_PAGE_TOKENS]] = sum;
        }
    }
}

uint64_t sequence_sum(const simulation *s, const sched_entry *entry, uint32_t length) {
    const sequence *sequence = &s->sequences[entry->sequence];
    uint64_t sum = sequence->sum;
    for (uint32_t i = entry->first; i < length; i++)
        sum = sum_add(sum, sequence->tokens[i]);
    return sum;
}

/* The index may put an older page with the same tokens in the sequence of ours: what is in it
 * counts.
 */
void sequence_settle(simulation *s, const sched_entry *entry, uint32_t length) {
    sequence *sequence = &s->sequences[entry->sequence];
    sequence->sum = sequence_sum(s, entry, length);
    sequence->computed = length;
    if (entry->drafts > 0)
        pages_shrink(s->pages, &sequence->table, length);
    pages_index(s->pages, sequence->root, sequence->tokens, length, &sequence->table);
    uint32_t first = entry->first / KV_PAGE_TOKENS, end = length / KV_PAGE_TOKENS;
    for (uint32_t i = first; i < end; i++)
        if (s->content[sequence->table.pages[i]] != sequence->ends[i])
            wrong(s, "request %u got a page of other tokens from the index", sequence->item);
}
