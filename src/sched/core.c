/* Opening, submission, cancellation, and the end of a request. */
#include "sched/core_int.h"

#include <assert.h>

#define AGEING_MAX_NS (1ull << 56)

/* ---- Opening ---- */

static avo_status check_cost(const step_cost *cost, avo_error *error) {
    bool good = cost->context_token >= 0 && cost->draft_token >= 0 && cost->adapter >= 0 &&
                cost->scored_row >= 0;
    for (uint32_t i = 0; i < STEP_COST_POINTS; i++)
        good = good && cost->step[i] >= 0;
    return good ? AVO_OK : status_fail(error, AVO_ERROR_ARGUMENT, "a cost is negative or NaN");
}

static avo_status check_options(const sched_options *options, avo_error *error) {
    if (options->running_max == 0 || options->running_max > SCHED_RUNNING_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "running_max is %u, must be 1 to %u",
                           options->running_max, SCHED_RUNNING_MAX);
    if (options->rows_max < options->running_max)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "rows_max is %u, must be at least running_max (%u)", options->rows_max,
                           options->running_max);
    if (options->logits_max > 0 && options->logits_max < options->running_max)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "logits_max is %u, must be at least running_max (%u)",
                           options->logits_max, options->running_max);
    if (options->waiting_max == 0 || options->waiting_max > SCHED_REQUESTS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "waiting_max is %u, must be 1 to %u",
                           options->waiting_max, SCHED_REQUESTS_MAX);
    if (options->pages == 0 || options->context_max == 0 || options->chunk_min == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "pages, context_max and chunk_min are %u, %u and %u, must be at least 1",
                           options->pages, options->context_max, options->chunk_min);
    if (options->ageing_ns > AGEING_MAX_NS)
        return status_fail(error, AVO_ERROR_ARGUMENT, "ageing_ns is too large");
    return check_cost(&options->cost, error);
}

static bool preempted_order(const void *context, uint32_t a, uint32_t b) {
    const sched *sched = context;
    return rank_before(&sched->request[a], &sched->request[b]);
}

static bool due_order(const void *context, uint32_t a, uint32_t b) {
    const sched *sched = context;
    return sched->request[a].due_ns < sched->request[b].due_ns;
}

static bool take_memory(sched *sched) {
    arena *arena = &sched->arena;
    uint32_t requests = sched->request_count, running = sched->options.running_max;
    uint32_t pairs = sched->pair_count;
    return (sched->request = arena_take_array(arena, requests, sizeof(request))) != NULL &&
           (sched->pair = arena_take_array(arena, pairs, sizeof(pair))) != NULL &&
           (sched->tenant = arena_take_array(arena, pairs, sizeof(tenant))) != NULL &&
           (sched->sequence = arena_take_array(arena, running, sizeof(sequence))) != NULL &&
           (sched->group = arena_take_array(arena, running, sizeof(group))) != NULL &&
           (sched->running = arena_take_array(arena, running, sizeof(uint32_t))) != NULL &&
           (sched->entries = arena_take_array(arena, running, sizeof(sched_entry))) != NULL &&
           (sched->wishes = arena_take_array(arena, running, sizeof(sched_wish))) != NULL &&
           (sched->choices = arena_take_array(arena, running, sizeof(choose_item))) != NULL &&
           (sched->prompts = arena_take_array(arena, running, sizeof(sched_entry))) != NULL &&
           (sched->done_ends = arena_take_array(arena, running, sizeof(sched_end))) != NULL &&
           (sched->plan_ends = arena_take_array(arena, requests, sizeof(sched_end))) != NULL &&
           (sched->preempted_list = arena_take_array(arena, running, sizeof(uint64_t))) != NULL &&
           keys_init(&sched->ids, arena, requests) && keys_init(&sched->pairs, arena, pairs) &&
           keys_init(&sched->tenants, arena, pairs) &&
           heap_init(&sched->by_counter, arena, pairs, fairness_order, sched) &&
           heap_init(&sched->by_precedence, arena, pairs * SCHED_PRIORITIES, queue_order, sched) &&
           heap_init(&sched->by_raise, arena, pairs * SCHED_PRIORITIES, queue_raise_order, sched) &&
           heap_init(&sched->preempted, arena, requests, preempted_order, sched) &&
           heap_init(&sched->by_due, arena, requests, due_order, sched);
}

static void link_free(sched *sched) {
    for (uint32_t i = 0; i < sched->request_count; i++)
        sched->request[i].next = i + 1 < sched->request_count ? i + 1 : NONE;
    for (uint32_t i = 0; i < sched->pair_count; i++) {
        sched->pair[i].tenant = NONE;
        sched->pair[i].next = sched->tenant[i].next = i + 1 < sched->pair_count ? i + 1 : NONE;
    }
    for (uint32_t i = 0; i < sched->options.running_max; i++) {
        sched->sequence[i].request = NONE;
        sched->sequence[i].next = sched->group[i].next =
            i + 1 < sched->options.running_max ? i + 1 : NONE;
    }
}

avo_status sched_open(const sched_options *options, const sched_memory *memory,
                      const avo_allocator *allocator, sched **out, avo_error *error) {
    *out = NULL;
    AVO_TRY(check_options(options, error));
    sched *sched = allocator_take(allocator, sizeof(*sched));
    if (sched == NULL)
        return status_no_memory(error, "scheduler", sizeof(*sched));
    *sched = (struct sched){.allocator = allocator,
                            .options = *options,
                            .memory = *memory,
                            .ending = NONE,
                            .idle_first = NONE,
                            .idle_last = NONE,
                            .last_left = NONE,
                            .group_first = NONE,
                            .group_last = NONE,
                            .blocked_number = NEVER};
    for (int side = 0; side < SCHED_SIDES; side++)
        sched->cost[side] = options->cost;
    sched->request_count = options->waiting_max + options->running_max;
    sched->pair_count =
        sched->request_count +
        (sched->request_count < IDLE_PAIRS_MAX ? sched->request_count : IDLE_PAIRS_MAX);
    if (sched->pair_count > SCHED_PAIRS_MAX)
        sched->pair_count = SCHED_PAIRS_MAX;
    arena_init(&sched->arena, allocator, SIZE_MAX);
    if (!take_memory(sched)) {
        size_t used = sched->arena.used_bytes;
        sched_close(sched);
        return status_no_memory(error, "queues of the scheduler", used);
    }
    link_free(sched);
    *out = sched;
    return AVO_OK;
}

void sched_close(sched *sched) {
    if (sched == NULL)
        return;
    arena_free(&sched->arena);
    allocator_give(sched->allocator, sched, sizeof(*sched));
}

step_cost *sched_cost_model(sched *sched, sched_side side) {
    return &sched->cost[side];
}

/* ---- Submission ---- */

static avo_status check_request(const sched *sched, const sched_request *given, avo_error *error) {
    const sched_options *options = &sched->options;
    uint64_t tokens = (uint64_t)given->prompt_tokens + given->new_tokens_max;
    uint32_t page = sched->memory.page_tokens;
    if (given->prompt_tokens == 0 || (given->new_tokens_max == 0) != given->no_answer)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "the prompt has %u tokens and the answer up to %u, both must be at least 1",
            given->prompt_tokens, given->new_tokens_max);
    if (given->priority >= SCHED_PRIORITIES)
        return status_fail(error, AVO_ERROR_ARGUMENT, "priority is %u, must be 0 to %u",
                           given->priority, SCHED_PRIORITIES - 1);
    if (!(given->weight >= SCHED_WEIGHT_MIN) || !(given->weight <= SCHED_WEIGHT_MAX))
        return status_fail(error, AVO_ERROR_ARGUMENT, "weight is %g, must be %g to %g",
                           (double)given->weight, (double)SCHED_WEIGHT_MIN,
                           (double)SCHED_WEIGHT_MAX);
    if (given->reusable_tokens >= given->prompt_tokens)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%u of %u prompt tokens are reusable, must be fewer",
                           given->reusable_tokens, given->prompt_tokens);
    if (given->arrival_ns > UINT64_MAX / 2)
        return status_fail(error, AVO_ERROR_ARGUMENT, "arrival_ns is too large");
    if (keys_find(&sched->ids, given->id, 0) != KEYS_NONE)
        return status_fail(error, AVO_ERROR_ARGUMENT, "request %llu already exists",
                           (unsigned long long)given->id);
    if (tokens > options->context_max)
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "%u prompt tokens and up to %u new ones do not fit the context of %u",
                           given->prompt_tokens, given->new_tokens_max, options->context_max);
    if ((tokens + page - 1) / page > options->pages)
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "%u prompt tokens and up to %u new ones do not fit the KV pool of %llu",
                           given->prompt_tokens, given->new_tokens_max,
                           (unsigned long long)options->pages * page);
    if (tokens > options->waiting_tokens_max)
        return status_fail(
            error, AVO_ERROR_LIMIT,
            "%u prompt tokens and up to %u new ones exceed the %llu tokens that may wait",
            given->prompt_tokens, given->new_tokens_max,
            (unsigned long long)options->waiting_tokens_max);
    if (given->tenant_pages_max > 0 && (tokens + page - 1) / page > given->tenant_pages_max)
        return status_fail(error, AVO_ERROR_CONTEXT,
                           "%u prompt tokens and up to %u new ones do not fit the tenant's %llu KV "
                           "tokens",
                           given->prompt_tokens, given->new_tokens_max,
                           (unsigned long long)given->tenant_pages_max * page);
    if (options->adapters_max > 0 && given->adapters > options->adapters_max)
        return status_fail(error, AVO_ERROR_LIMIT, "%u adapters, a step can have at most %u",
                           given->adapters, options->adapters_max);
    return AVO_OK;
}

/* Its prompt, with the whole machine to itself. What waits before it does not count: who that is,
 * what of it will be cached by then, or cancelled, nobody knows yet; what waits too long is refused
 * when that is sure (deadline.c). */
static avo_status check_deadline(sched *sched, const sched_request *given, avo_error *error) {
    uint64_t first = given->first_deadline_ns, whole = given->deadline_ns;
    uint64_t deadline = first == 0 || (whole > 0 && whole < first) ? whole : first;
    if (deadline == 0)
        return AVO_OK;
    double needed =
        deadline_prefill_ns(sched, given, given->prompt_tokens - given->reusable_tokens);
    if (deadline > sched->now_ns &&
        (needed <= (double)(deadline - sched->now_ns) || !deadline_believed(sched)))
        return AVO_OK;
    sched->refused_lately += deadline > sched->now_ns;
    return status_fail(
        error, AVO_ERROR_DEADLINE, "the first token would take %.3f s, the deadline is in %.3f s",
        needed * 1e-9, deadline > sched->now_ns ? (double)(deadline - sched->now_ns) * 1e-9 : 0.0);
}

avo_status sched_submit(sched *sched, const sched_request *given, uint64_t now_ns,
                        uint64_t *retry_ns, avo_error *error) {
    const sched_options *options = &sched->options;
    sched->now_ns = now_ns > sched->now_ns ? now_ns : sched->now_ns;
    if (retry_ns != NULL)
        *retry_ns = 0;
    AVO_TRY(check_request(sched, given, error));
    uint64_t tokens = (uint64_t)given->prompt_tokens + given->new_tokens_max;
    uint32_t pair = NONE;
    if (sched->counts.waiting < options->waiting_max && sched->request_free != NONE &&
        sched->counts.waiting_tokens + tokens <= options->waiting_tokens_max)
        pair = fairness_pair(sched, given);
    if (pair == NONE) {
        if (retry_ns != NULL)
            *retry_ns = deadline_retry_ns(sched, given);
        return status_fail(
            error, AVO_ERROR_FULL,
            "the queue is full: %u requests with %llu tokens wait (at most %u and %llu)",
            sched->counts.waiting, (unsigned long long)sched->counts.waiting_tokens,
            options->waiting_max, (unsigned long long)options->waiting_tokens_max);
    }
    AVO_TRY(check_deadline(sched, given, error));
    uint32_t index = sched->request_free;
    request *request = &sched->request[index];
    sched->request_free = request->next;
    *request = (struct request){.given = *given,
                                .number = sched->numbers++,
                                .rank_ns = given->arrival_ns + given->priority * options->ageing_ns,
                                .rank_class = options->ageing_ns == 0 ? given->priority : 0,
                                .pair = pair,
                                .sequence = NONE};
    keys_add(&sched->ids, given->id, 0, index);
    fairness_enter(sched, pair);
    queue_append(sched, index);
    deadline_watch(sched, index);
    sched->counts.submitted++;
    return AVO_OK;
}

/* ---- Ends ---- */

static void ending_add(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    request->cancelled = true;
    request->previous = NONE;
    request->next = sched->ending;
    if (sched->ending != NONE)
        sched->request[sched->ending].previous = index;
    sched->ending = index;
}

static void ending_remove(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    if (request->previous == NONE)
        sched->ending = request->next;
    else
        sched->request[request->previous].next = request->next;
    if (request->next != NONE)
        sched->request[request->next].previous = request->previous;
}

/* Out of whatever it waits in. */
static void waiting_leave(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    if (request->state == REQUEST_WAITING) {
        queue_remove(sched, index, false);
    } else if (request->state == REQUEST_PREEMPTED) {
        heap_remove(&sched->preempted, index);
        sched->counts.waiting--;
        sched->counts.waiting_tokens -= request_tokens(request);
    }
}

bool sched_cancel(sched *sched, uint64_t id) {
    uint32_t index = keys_find(&sched->ids, id, 0);
    if (index == KEYS_NONE || sched->request[index].cancelled)
        return false;
    request *request = &sched->request[index];
    if (request->state != REQUEST_RUNNING) {
        waiting_leave(sched, index);
        heap_remove(&sched->by_due, index);
        request->state = REQUEST_ENDING;
    }
    ending_add(sched, index);
    return true;
}

void request_end(sched *sched, uint32_t index, sched_outcome outcome) {
    request *request = &sched->request[index];
    uint64_t *const counter[] = {[SCHED_FINISHED] = &sched->counts.finished,
                                 [SCHED_CANCELLED] = &sched->counts.cancelled,
                                 [SCHED_EXPIRED] = &sched->counts.expired,
                                 [SCHED_REFUSED] = &sched->counts.refused,
                                 [SCHED_FAILED] = &sched->counts.failed};
    assert(request->state != REQUEST_FREE);
    if (request->cancelled)
        ending_remove(sched, index);
    if (request->state == REQUEST_RUNNING)
        running_leave(sched, index);
    else
        waiting_leave(sched, index);
    heap_remove(&sched->by_due, index);
    keys_remove(&sched->ids, request->given.id, 0);
    budget_give(sched, index);
    fairness_leave(sched, request->pair);
    (*counter[outcome])++;
    request->state = REQUEST_FREE;
    request->next = sched->request_free;
    sched->request_free = index;
}

void plan_end(sched *sched, uint32_t index, sched_outcome outcome) {
    sched->plan_ends[sched->plan_end_count++] =
        (sched_end){sched->request[index].given.id, outcome};
    request_end(sched, index, outcome);
}

bool sched_idle(const sched *sched) {
    return sched->ids.count == 0;
}

sched_counts sched_count(const sched *sched) {
    return sched->counts;
}
