/* The clock, what happens on it, and the steps. */
#include "sched/simulate_int.h"

#include "base/random.h"

#include <math.h>
#include <stdarg.h>

#define STALL_FACTOR 10
#define HOG_STEPS    20 /* mean length of a shortage, in steps */

void wrong(simulation *s, const char *format, ...) {
    if (is_wrong(s))
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->result->wrong, SIMULATE_WRONG_MAX, format, arguments);
    va_end(arguments);
    if (s->result->wrong[0] == '\0')
        s->result->wrong[0] = '?';
}

double draw_uniform(simulation *s) {
    return random_uniform_at(s->options->seed, 1, s->draws++);
}

/* ---- Events ---- */

static bool event_order(const void *context, uint32_t a, uint32_t b) {
    const simulation *s = context;
    uint64_t first = s->users[a].event_ns, second = s->users[b].event_ns;
    return first != second ? first < second : a < b;
}

static void user_over(simulation *s, uint32_t index, simulate_end end, uint64_t time) {
    if (s->users[index].state == USER_OVER)
        wrong(s, "request %u ends twice", index);
    check_over(s, index);
    s->cancelled -= s->users[index].cancelled;
    s->preempted -= s->users[index].state == USER_PREEMPTED;
    s->users[index].state = USER_OVER;
    s->outcomes[index].end = end;
    s->outcomes[index].end_ns = time;
    s->result->end_ns = time > s->result->end_ns ? time : s->result->end_ns;
    heap_remove(&s->events, index);
    s->over++;
}

static void user_submit(simulation *s, uint32_t index, uint64_t time) {
    const simulate_item *item = &s->items[index];
    user *user = &s->users[index];
    sched_request request = {
        .id = (uint64_t)index + 1,
        .tenant = item->tenant,
        .adapter = item->adapter,
        .adapters = item->adapters,
        .priority = item->priority,
        .weight = item->weight,
        .prompt_tokens = item->prompt_tokens,
        .new_tokens_max = item->new_tokens_max,
        .arrival_ns = item->arrival_ns,
        .first_deadline_ns =
            item->first_deadline_ns > 0 ? item->arrival_ns + item->first_deadline_ns : 0,
        .deadline_ns = item->deadline_ns > 0 ? item->arrival_ns + item->deadline_ns : 0};
    uint64_t retry = 0;
    sched_counts before = sched_count(s->sched);
    avo_status status = sched_submit(s->sched, &request, time, &retry, NULL);
    s->clock = time > s->clock ? time : s->clock;
    if (status == AVO_OK) {
        check_submitted(s, index);
        user->state = USER_WAITING;
        user->submitted = s->submissions++;
        user->event_ns = item->arrival_ns + item->cancel_ns;
        if (item->cancel_ns > 0 && user->event_ns >= time)
            heap_put(&s->events, index);
    } else if (status == AVO_ERROR_FULL) {
        const sched_options *options = &s->options->sched;
        uint64_t tokens = before.waiting_tokens + item->prompt_tokens + item->new_tokens_max;
        uint64_t live = before.submitted - before.finished - before.cancelled - before.expired -
                        before.refused - before.failed; /* cancelled ones until the next plan */
        if (before.waiting < options->waiting_max && tokens <= options->waiting_tokens_max &&
            live < (uint64_t)options->waiting_max + options->running_max)
            wrong(s, "request %u is refused by a queue that is not full", index);
        if (retry < 1000000 || retry > 3600000000000ull)
            wrong(s, "a full queue says to come again in %llu ns", (unsigned long long)retry);
        s->outcomes[index].retries++;
        user->event_ns = time + retry;
        if (s->options->retry && s->outcomes[index].retries < 1000)
            heap_put(&s->events, index);
        else
            user_over(s, index, SIMULATE_FULL, time);
    } else {
        check_not_taken(s, index, status);
        user_over(s, index, SIMULATE_NOT_TAKEN, time);
    }
}

static void user_cancel(simulation *s, uint32_t index) {
    user *user = &s->users[index];
    if (user->state == USER_OVER || user->cancelled)
        return;
    if (!sched_cancel(s->sched, (uint64_t)index + 1))
        wrong(s, "request %u lives and cannot be cancelled", index);
    user->cancelled = true;
    s->cancelled++;
    if (user->state == USER_WAITING)
        check_stops_waiting(s, index, false);
}

/* Everything that happens up to `until`. */
static void events_run(simulation *s, uint64_t until) {
    for (;;) {
        uint32_t index = heap_first(&s->events);
        if (index == HEAP_OUT || s->users[index].event_ns > until || is_wrong(s))
            return;
        uint64_t time = s->users[index].event_ns;
        heap_remove(&s->events, index);
        if (s->users[index].state == USER_COMING)
            user_submit(s, index, time);
        else
            user_cancel(s, index);
    }
}

/* Somebody outside takes pages, and gives them back. */
static void hog_run(simulation *s, double step_ns) {
    if (s->hog.count > 0 && s->now >= s->hog_until)
        pages_shrink(s->pages, &s->hog, 0);
    if (s->options->shortage <= 0 || s->hog.count > 0 || draw_uniform(s) >= s->options->shortage)
        return;
    uint32_t pages = (uint32_t)(draw_uniform(s) * pages_available(s->pages));
    if (pages > 0 && pages_grow(s->pages, &s->hog, pages * KV_PAGE_TOKENS) == AVO_OK)
        s->hog_until = s->now + (uint64_t)(draw_uniform(s) * 2 * HOG_STEPS * step_ns) + 1;
}

/* ---- Steps ---- */

/* The time of weights read by `cores` of them, of arithmetic done by them. */
static double side_ns(const simulate_machine *machine, const sched_load *load, uint32_t cores) {
    sched_cost cost = machine->cost;
    double bandwidth = cores * machine->core_bandwidth;
    double part = (double)cores / machine->cores;
    cost.step /= bandwidth < 1 ? bandwidth : 1;
    cost.adapter /= bandwidth < 1 ? bandwidth : 1;
    cost.decode_row /= part;
    cost.prefill_row /= part;
    cost.context_token /= part;
    return sched_cost_of(&cost, load);
}

/* Both sides read at once: together they cannot be faster than memory. */
static double split_ns(const simulate_machine *machine, const sched_load *decode,
                       const sched_load *prefill, uint32_t cores) {
    double both = (decode->decode_rows > 0 ? machine->cost.step : 0) +
                  (prefill->prefill_rows > 0 ? machine->cost.step : 0);
    double longest =
        fmax(side_ns(machine, decode, cores), side_ns(machine, prefill, machine->cores - cores));
    return fmax(longest, both);
}

/* What the step would take without noise. */
static double step_cost(const simulation *s, const sched_plan *plan) {
    const simulate_machine *machine = &s->options->machine;
    if (machine->split == SIMULATE_MIXED || machine->cores < 2)
        return sched_cost_of(&machine->cost, &plan->load);
    sched_load decode = {.decode_rows = plan->load.decode_rows, .adapters = plan->load.adapters};
    sched_load prefill = {.prefill_rows = plan->load.prefill_rows, .adapters = plan->load.adapters};
    for (uint32_t i = 0; i < plan->entry_count; i++)
        if (plan->entries[i].rows == 1)
            decode.context_tokens += plan->entries[i].first + 1;
    prefill.context_tokens = plan->load.context_tokens - decode.context_tokens;
    if (machine->split == SIMULATE_SPLIT)
        return split_ns(machine, &decode, &prefill, machine->decode_cores);
    double best = sched_cost_of(&machine->cost, &plan->load); /* or all of them together */
    for (uint32_t cores = 1; cores < machine->cores; cores++)
        best = fmin(best, split_ns(machine, &decode, &prefill, cores));
    return best;
}

static uint64_t step_time(simulation *s, const sched_plan *plan) {
    const simulate_machine *machine = &s->options->machine;
    double cost = step_cost(s, plan) * (1 + machine->noise * (2 * draw_uniform(s) - 1));
    if (machine->stall > 0 && draw_uniform(s) < machine->stall)
        cost *= STALL_FACTOR;
    return (uint64_t)cost + 1;
}

/* A token reaches its client, who knows what it must be. */
static void token_deliver(simulation *s, uint32_t index, int32_t token, uint64_t time) {
    user *user = &s->users[index];
    simulate_outcome *outcome = &s->outcomes[index];
    if (user->state == USER_OVER)
        wrong(s, "request %u gets a token after its end", index);
    if (token != sum_draw(user->sum))
        wrong(s, "request %u gets a wrong token at place %u: lost or doubled", index, user->tokens);
    user->sum = sum_add(user->sum, token);
    if (user->tokens++ == 0) {
        uint64_t deadline = s->items[index].first_deadline_ns;
        if (deadline > 0 && s->last_plan >= s->items[index].arrival_ns + deadline)
            wrong(s, "request %u gets its first token after the deadline", index);
        outcome->first_ns = time;
    } else {
        uint64_t gap = time - user->last_ns;
        outcome->gap_ns_max = gap > outcome->gap_ns_max ? gap : outcome->gap_ns_max;
        if (s->gap != NULL)
            s->gap(s->gap_context, index, gap);
    }
    user->last_ns = time;
    outcome->tokens = user->tokens;
}

static void step_entry(simulation *s, const sched_entry *entry, uint32_t i, uint64_t time) {
    uint32_t index = (uint32_t)(entry->request - 1);
    const simulate_item *item = &s->items[index];
    place *place = &s->places[entry->slot];
    uint64_t sum = places_compute(s, entry);
    s->finished[i] = s->failed[i] = false;
    if (is_wrong(s))
        return;
    places_index(s, entry);
    if (entry->draws != (place->computed == place->known))
        wrong(s, "request %u draws at %u of %u tokens", index, place->computed, place->known);
    if (!entry->draws)
        return;
    int32_t token = sum_draw(sum);
    token_deliver(s, index, token, time);
    place->tokens[place->known++] = token;
    uint32_t tokens = s->users[index].tokens;
    s->finished[i] = tokens >= item->answer_tokens;
    s->failed[i] = tokens == item->fails_at;
}

static void step_ends(simulation *s, const sched_end *ends, uint32_t count, bool by_plan) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = (uint32_t)(ends[i].request - 1);
        check_end(s, index, ends[i].outcome, by_plan);
        user_over(s, index, (simulate_end)ends[i].outcome, s->now);
    }
}

/* Clients that are gone after a token, once it has been delivered. */
static void step_gone(simulation *s, const sched_plan *plan) {
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        uint32_t index = (uint32_t)(plan->entries[i].request - 1);
        if (plan->entries[i].draws && s->items[index].gone_at > 0 &&
            s->users[index].tokens >= s->items[index].gone_at)
            user_cancel(s, index);
    }
}

static void step_run(simulation *s, sched_plan *plan) {
    uint64_t taken = step_time(s, plan);
    events_run(s, s->now + taken); /* who comes and goes meanwhile */
    s->now += taken;
    s->clock = s->now > s->clock ? s->now : s->clock;
    for (uint32_t i = 0; i < plan->entry_count && !is_wrong(s); i++)
        step_entry(s, &plan->entries[i], i, s->now);
    if (is_wrong(s))
        return;
    if (s->options->learn)
        sched_cost_learn(sched_cost_model(s->sched, plan->side), &plan->load, (double)taken);
    const sched_end *ends = NULL;
    uint32_t end_count = 0;
    sched_step_done(s->sched, plan, s->finished, s->failed, s->now, &ends, &end_count);
    step_ends(s, ends, end_count, false);
    step_gone(s, plan);
    s->result->steps++;
    s->result->busy_ns += taken;
}

static void plan_made(simulation *s, const sched_plan *plan) {
    s->clock = s->now > s->clock ? s->now : s->clock;
    step_ends(s, plan->ends, plan->end_count, true);
    for (uint32_t i = 0; i < plan->preempted_count; i++) {
        uint32_t index = (uint32_t)(plan->preempted[i] - 1);
        if (s->users[index].state != USER_RUNNING)
            wrong(s, "request %u is preempted and does not run", index);
        s->users[index].state = USER_PREEMPTED;
        s->preempted++;
        check_victim(s, index);
        s->outcomes[index].preemptions++;
    }
    check_begins(s);
    check_plan(s, plan);
    check_state(s);
    s->last_plan = s->now;
    s->planned_once = true;
}

/* Nothing to compute: on to whatever happens next. False: nothing will. */
static bool wait_on(simulation *s) {
    uint32_t next = heap_first(&s->events);
    uint64_t time = next == HEAP_OUT ? UINT64_MAX : s->users[next].event_ns;
    if (s->hog.count > 0 && s->hog_until < time)
        time = s->hog_until;
    else if (s->hog.count == 0 && !sched_idle(s->sched))
        wrong(s, "something waits and nothing is done");
    if (time == UINT64_MAX)
        return false;
    s->now = time > s->now ? time : s->now;
    return true;
}

static void run(simulation *s) {
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < s->count; i++)
        tokens += (uint64_t)s->items[i].prompt_tokens + s->items[i].new_tokens_max;
    uint64_t steps_max = 20 * tokens + 100000;
    double mean = s->options->machine.cost.step;
    for (uint64_t turn = 0; !is_wrong(s); turn++) {
        sched_plan plan;
        events_run(s, s->now);
        hog_run(s, mean);
        s->attempt_count = 0;
        sched_plan_step(s->sched, s->now, &plan);
        plan_made(s, &plan);
        if (is_wrong(s))
            return;
        if (plan.entry_count > 0)
            step_run(s, &plan);
        else if (!wait_on(s))
            break;
        if (turn > steps_max)
            wrong(s, "%llu steps and no end", (unsigned long long)turn);
    }
    if (!is_wrong(s) && s->over != s->count)
        wrong(s, "%u of %u requests have ended", s->over, s->count);
    if (!is_wrong(s) && pages_count(s->pages).used > 0)
        wrong(s, "%u pages are left over", pages_count(s->pages).used);
}

static avo_status open(simulation *s, const avo_allocator *allocator, avo_error *error) {
    const simulate_options *options = s->options;
    s->users = arena_take_array(&s->arena, s->count, sizeof(user));
    s->finished = arena_take_array(&s->arena, options->sched.running_max, sizeof(bool));
    s->failed = arena_take_array(&s->arena, options->sched.running_max, sizeof(bool));
    if (s->users == NULL || s->finished == NULL || s->failed == NULL ||
        !heap_init(&s->events, &s->arena, s->count, event_order, s) || !places_open(s) ||
        !checks_open(s))
        return status_no_memory(error, "simulation", s->arena.used_bytes);
    for (uint32_t i = 0; i < s->count; i++) {
        s->users[i].sum = sum_begin(&s->items[i]);
        for (uint32_t t = 0; t < s->items[i].prompt_tokens; t++)
            s->users[i].sum = sum_add(s->users[i].sum, prompt_token(&s->items[i], i, t));
        s->users[i].event_ns = s->items[i].arrival_ns;
        s->outcomes[i] = (simulate_outcome){.end = SIMULATE_PENDING};
        heap_put(&s->events, i);
    }
    sched_memory memory = places_memory(s);
    AVO_TRY(pages_open(options->sched.pages, allocator, &s->pages, error));
    return sched_open(&options->sched, &memory, allocator, &s->sched, error);
}

avo_status simulate_run(const simulate_options *options, const simulate_item *items, uint32_t count,
                        const avo_allocator *allocator, simulate_gap gap, void *gap_context,
                        simulate_outcome *outcomes, simulate_result *result, avo_error *error) {
    simulation s = {.options = options,
                    .items = items,
                    .count = count,
                    .outcomes = outcomes,
                    .result = result,
                    .gap = gap,
                    .gap_context = gap_context};
    *result = (simulate_result){0};
    if (count == 0 || count > SIMULATE_REQUESTS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%u requests: 1 to %u", count,
                           SIMULATE_REQUESTS_MAX);
    arena_init(&s.arena, allocator, SIZE_MAX);
    avo_status status = open(&s, allocator, error);
    if (status == AVO_OK) {
        run(&s);
        result->counts = sched_count(s.sched);
    }
    sched_close(s.sched);
    pages_close(s.pages);
    arena_free(&s.arena);
    return status;
}
