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
    if ((item->first_deadline_ns > 0 || item->deadline_ns > 0) && !item->scored)
        user->reusable = memory_cached(s, index);
    sched_request request = {
        .id = (uint64_t)index + 1,
        .tenant = item->tenant,
        .adapter = item->adapter,
        .adapters = item->adapters,
        .priority = item->priority,
        .weight = item->weight,
        .tenant_pages_max = item->budget,
        .prompt_tokens = item->prompt_tokens,
        .new_tokens_max = item->new_tokens_max,
        .arrival_ns = item->arrival_ns,
        .reusable_tokens = user->reusable,
        .no_answer = item->no_answer,
        .scored = item->scored,
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

/* What a step costs on some of the cores: weights come at their part of memory's speed, where
 * others read beside them too, and arithmetic goes with their number. */
step_cost simulate_cost(const simulate_machine *machine, uint32_t cores) {
    step_cost cost = machine->cost;
    if (cores >= machine->cores)
        return cost;
    double all = machine->cores * machine->core_bandwidth;
    double bandwidth = cores * machine->core_bandwidth / (all > 1 ? all : 1);
    double part = (double)cores / machine->cores;
    double read = cost.step[0]; /* a row alone is memory, what more of them add is arithmetic */
    step_cost_scale(&cost, 1 / part);
    for (uint32_t i = 0; i < STEP_COST_POINTS; i++)
        cost.step[i] += read / bandwidth - read / part;
    cost.adapter *= part / bandwidth;
    return cost;
}

static uint64_t step_time(simulation *s, const sched_plan *plan, uint32_t cores) {
    const simulate_machine *machine = &s->options->machine;
    step_cost own = simulate_cost(machine, cores);
    double cost =
        step_cost_of(&own, &plan->load) * (1 + machine->noise * (2 * draw_uniform(s) - 1));
    if (machine->stall > 0 && draw_uniform(s) < machine->stall)
        cost *= STALL_FACTOR;
    return (uint64_t)(cost < (double)SIMULATE_CLOCK_NS_MAX ? cost : (double)SIMULATE_CLOCK_NS_MAX) +
           1;
}

/* A token reaches its client, who knows what it must be. */
static void token_deliver(simulation *s, uint32_t index, int32_t token, const step *step) {
    uint64_t time = s->now;
    user *user = &s->users[index];
    simulate_outcome *outcome = &s->outcomes[index];
    if (user->state == USER_OVER)
        wrong(s, "request %u gets a token after its end", index);
    if (token != sum_draw(user->sum))
        wrong(s, "request %u gets a wrong token at sequence %u: lost or doubled", index,
              user->tokens);
    user->sum = sum_add(user->sum, token);
    if (user->tokens++ == 0) {
        uint64_t deadline = s->items[index].first_deadline_ns;
        if (deadline > 0 && step->planned_ns >= s->items[index].arrival_ns + deadline)
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

/* Draft tokens behind the known ones: the next ones of the answer, or others. A wrong one may be
 * followed by what would be right behind it, as a real one may. */
static void make_drafts(simulation *s, const sched_entry *entry) {
    sequence *sequence = &s->sequences[entry->sequence];
    uint64_t sum = s->users[entry->request - 1].sum;
    for (uint32_t i = 0; i < entry->drafts; i++) {
        int32_t token = sum_draw(sum);
        if (draw_uniform(s) >= s->options->accept)
            token ^= 1;
        sequence->tokens[sequence->known + i] = token;
        sum = sum_add(sum, token);
    }
}

/* Draws row by row as long as the drafts are right, as a sequence does. */
static void draw_tokens(simulation *s, const step *step, const sched_entry *entry,
                        sched_result *result) {
    uint32_t index = (uint32_t)(entry->request - 1);
    const simulate_item *item = &s->items[index];
    sequence *sequence = &s->sequences[entry->sequence];
    bool agrees = true;
    while (agrees && !result->finished && !result->failed && !is_wrong(s)) {
        int32_t token = sum_draw(sequence_sum(s, entry, sequence->known));
        agrees = result->accepted < entry->drafts && sequence->tokens[sequence->known] == token;
        token_deliver(s, index, token, step);
        sequence->tokens[sequence->known++] = token;
        result->accepted++;
        uint32_t tokens = s->users[index].tokens;
        result->finished = tokens >= item->answer_tokens;
        result->failed = item->fails_at > 0 && tokens == item->fails_at;
    }
}

static void step_entry(simulation *s, const step *step, uint32_t i) {
    const sched_entry *entry = &step->plan.entries[i];
    uint32_t index = (uint32_t)(entry->request - 1);
    sequence *sequence = &s->sequences[entry->sequence];
    sched_result *result = &step->results[i];
    *result = (sched_result){0};
    sequence->in_flight = false;
    make_drafts(s, entry);
    sequence_compute(s, entry);
    if (is_wrong(s))
        return;
    uint32_t length = entry->first + entry->rows - entry->drafts;
    if (entry->draws != (length == sequence->known))
        wrong(s, "request %u draws at %u of %u tokens", index, length, sequence->known);
    check_scored(s, entry);
    if (entry->draws && !s->items[index].no_answer) {
        draw_tokens(s, step, entry, result);
        length = sequence->known - 1;
    }
    sequence_settle(s, entry, length);
    check_accepted(s, entry, result->accepted);
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

/* What was planned is computed by now. */
static void step_land(simulation *s, const step *step, uint64_t taken) {
    const sched_plan *plan = &step->plan;
    for (uint32_t i = 0; i < plan->entry_count && !is_wrong(s); i++)
        step_entry(s, step, i);
    if (is_wrong(s))
        return;
    if (s->options->learn)
        step_cost_learn(sched_cost_model(s->sched, plan->side), &plan->load, (double)taken);
    const sched_end *ends = NULL;
    uint32_t end_count = 0;
    sched_step_done(s->sched, plan, step->results, s->now, &ends, &end_count);
    step_ends(s, ends, end_count, false);
    step_gone(s, plan);
    s->result->steps++;
}

static void step_run(simulation *s, uint32_t cores) {
    uint64_t taken = step_time(s, &s->step.plan, cores);
    events_run(s, s->now + taken); /* who comes and goes meanwhile */
    s->now += taken;
    s->clock = s->now > s->clock ? s->now : s->clock;
    step_land(s, &s->step, taken);
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
    for (uint32_t i = 0; i < s->options->sched.running_max; i++)
        if (s->sequences[i].item != UINT32_MAX)
            s->users[s->sequences[i].item].was_in_flight = false;
    s->last_plan = s->now;
    s->planned_once = true;
}

static void make_plan(simulation *s, sched_side side, step *step) {
    s->attempt_count = 0;
    step->planned_ns = s->now;
    sched_plan_side(s->sched, side, s->now, &step->plan);
    plan_made(s, &step->plan);
}

/* ---- Prompts beside decoding ---- */

static void prefill_finish(simulation *s) {
    s->prefill_in_flight = false;
    for (uint32_t i = 0; i < s->prefill.plan.entry_count; i++)
        s->users[s->prefill.plan.entries[i].request - 1].was_in_flight = true;
    step_land(s, &s->prefill, s->prefill.end_ns - s->prefill.planned_ns);
}

/* As scheduler_prefill.c does it; with which cores the next step of the others is computed. */
static sched_side prefill_advance(simulation *s, uint32_t *cores) {
    *cores = s->options->machine.cores;
    if (s->cores.mode == CORES_MIXED)
        return SCHED_BOTH;
    if (s->prefill_in_flight && s->prefill.end_ns <= s->now)
        prefill_finish(s);
    uint32_t prompts = s->prefill_in_flight || is_wrong(s) ? 0 : cores_choose(&s->cores, s->sched);
    if (prompts > 0) {
        make_plan(s, SCHED_PREFILL, &s->prefill);
        s->prefill_in_flight = s->prefill.plan.entry_count > 0 && !is_wrong(s);
        if (s->prefill_in_flight)
            s->prefill.end_ns = s->now + step_time(s, &s->prefill.plan, prompts);
        for (uint32_t i = 0; i < s->prefill.plan.entry_count; i++)
            s->sequences[s->prefill.plan.entries[i].sequence].in_flight = true;
    }
    if (!s->prefill_in_flight && s->cores.mode != CORES_STATIC)
        return SCHED_BOTH;
    *cores -= s->cores.prompts;
    return SCHED_DECODE;
}

/* Nothing to compute: on to whatever happens next. False: nothing will. */
static bool wait_on(simulation *s) {
    uint32_t next = heap_first(&s->events);
    uint64_t time = next == HEAP_OUT ? UINT64_MAX : s->users[next].event_ns;
    if (s->prefill_in_flight) {
        time = time < s->prefill.end_ns ? time : s->prefill.end_ns;
        s->result->busy_ns += time > s->now ? time - s->now : 0;
        s->now = time > s->now ? time : s->now;
        return true;
    }
    if (s->hog.count > 0 && s->hog_until < time)
        time = s->hog_until;
    else if (s->hog.count == 0 && !sched_idle(s->sched))
        wrong(s, "something waits and nothing is done");
    if (time == UINT64_MAX)
        return false;
    s->now = time > s->now ? time : s->now;
    return true;
}

/* False: the clock has come to its end before the requests have. */
static bool run(simulation *s) {
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < s->count; i++)
        tokens += (uint64_t)s->items[i].prompt_tokens + s->items[i].new_tokens_max;
    uint64_t steps_max = 20 * tokens + 100000;
    double mean = s->options->machine.cost.step[0];
    for (uint64_t turn = 0; !is_wrong(s); turn++) {
        events_run(s, s->now);
        hog_run(s, mean);
        uint32_t cores;
        sched_side side = prefill_advance(s, &cores);
        if (!is_wrong(s))
            make_plan(s, side, &s->step);
        if (is_wrong(s))
            return true;
        if (s->step.plan.entry_count > 0)
            step_run(s, cores);
        else if (!wait_on(s))
            break;
        if (s->now > SIMULATE_CLOCK_NS_MAX)
            return false;
        if (turn > steps_max)
            wrong(s, "%llu steps and no end", (unsigned long long)turn);
    }
    if (!is_wrong(s) && s->over != s->count)
        wrong(s, "%u of %u requests have ended", s->over, s->count);
    if (!is_wrong(s) && pages_count(s->pages).used > 0)
        wrong(s, "%u pages are left over", pages_count(s->pages).used);
    return true;
}

/* A scheduler that knows the machine knows its sides, too. */
static avo_status open_sched(simulation *s, const sched_memory *memory,
                             const avo_allocator *allocator, avo_error *error) {
    const simulate_machine *machine = &s->options->machine;
    sched_options options = s->options->sched;
    options.apart = machine->split == CORES_STATIC;
    uint32_t prompts = options.apart ? machine->cores - machine->decode_cores : 0;
    AVO_TRY(
        cores_open(&s->cores, machine->split, machine->cores, prompts, options.target_ns, error));
    AVO_TRY(sched_open(&options, memory, allocator, &s->sched, error));
    if (s->options->learn) {
        cores_guess(&s->cores, s->sched);
    } else if (machine->split != CORES_MIXED) {
        *sched_cost_model(s->sched, SCHED_PREFILL) = simulate_cost(machine, s->cores.prompts);
        *sched_cost_model(s->sched, SCHED_DECODE) =
            simulate_cost(machine, machine->cores - s->cores.prompts);
    }
    return AVO_OK;
}

static avo_status open(simulation *s, const avo_allocator *allocator, avo_error *error) {
    const simulate_options *options = s->options;
    s->users = arena_take_array(&s->arena, s->count, sizeof(user));
    uint32_t running = options->sched.running_max;
    sched_result *results = arena_take_array(&s->arena, running, 2 * sizeof(sched_result));
    if (s->users == NULL || results == NULL ||
        !heap_init(&s->events, &s->arena, s->count, event_order, s) || !memory_open(s) ||
        !checks_open(s))
        return status_no_memory(error, "simulation", s->arena.used_bytes);
    s->step = (step){.results = results};
    s->prefill = (step){.results = results + running};
    for (uint32_t i = 0; i < s->count; i++) {
        s->users[i].sum = sum_begin(&s->items[i]);
        for (uint32_t t = 0; t < s->items[i].prompt_tokens; t++)
            s->users[i].sum = sum_add(s->users[i].sum, prompt_token(&s->items[i], i, t));
        s->users[i].event_ns = s->items[i].arrival_ns;
        s->outcomes[i] = (simulate_outcome){.end = SIMULATE_PENDING};
        heap_put(&s->events, i);
    }
    sched_memory memory = memory_functions(s);
    AVO_TRY(pages_open(real_pages(s), allocator, &s->pages, error));
    return open_sched(s, &memory, allocator, error);
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
        return status_fail(error, AVO_ERROR_ARGUMENT, "%u requests, must be 1 to %u", count,
                           SIMULATE_REQUESTS_MAX);
    arena_init(&s.arena, allocator, SIZE_MAX);
    avo_status status = open(&s, allocator, error);
    if (status == AVO_OK) {
        if (!run(&s))
            status = status_fail(
                error, AVO_ERROR_LIMIT,
                "the workload lasts longer than %.3g seconds; use less work or faster steps",
                (double)SIMULATE_CLOCK_NS_MAX * 1e-9);
        result->counts = sched_count(s.sched);
    }
    sched_close(s.sched);
    pages_close(s.pages);
    arena_free(&s.arena);
    return status;
}
