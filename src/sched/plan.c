/* The step: decode first, then chunks of prompts, then who may begin. */
#include "sched/core_int.h"

#include <assert.h>

/* What is being planned. */
typedef struct planning {
    sched_side side;
    uint32_t rows_left;
    uint32_t logits;     /* rows that are drawn from */
    uint32_t units_left; /* of adapters; UINT32_MAX: no limit */
    bool chunks;         /* somebody got rows of a prompt */
    bool wanted;         /* somebody wanted them */
    step_load load;
} planning;

/* ---- Groups of the step ---- */

static bool group_chosen(const sched *sched, uint32_t group) {
    return sched->group[group].chosen_step == sched->step;
}

static bool group_choose(sched *sched, uint32_t index, planning *planning) {
    group *group = &sched->group[index];
    if (group->chosen_step == sched->step)
        return true;
    if (planning->units_left != UINT32_MAX) {
        if (group->units > planning->units_left)
            return false;
        planning->units_left -= group->units;
    }
    group->chosen_step = sched->step;
    return true;
}

/* Whether a plan of this side may hold rows of it. */
static bool sequence_suits(const sched *sched, uint32_t number, sched_side side) {
    const sequence *sequence = &sched->sequence[number];
    bool decodes = request_pending(&sched->request[sequence->request]) == 1;
    return !sequence->in_flight && (side == SCHED_BOTH || decodes == (side == SCHED_DECODE));
}

/* The first group from `group` on with a sequence that suits. */
static uint32_t group_that_suits(const sched *sched, uint32_t group, sched_side side) {
    for (; group != NONE; group = sched->group[group].next)
        for (uint32_t s = sched->group[group].first; s != NONE; s = sched->sequence[s].next)
            if (sequence_suits(sched, s, side))
                return group;
    return NONE;
}

/* The group that has waited longest always fits, so none starves. Others may pass one that
 * does not fit any more; it has come closer to the front. */
static void choose_groups(sched *sched, planning *planning) {
    for (uint32_t i = group_that_suits(sched, sched->group_first, planning->side); i != NONE;
         i = group_that_suits(sched, sched->group[i].next, planning->side))
        group_choose(sched, i, planning);
}

/* ---- Rows ---- */

static void give_rows(sched *sched, uint32_t number, uint32_t rows, planning *planning) {
    sequence *sequence = &sched->sequence[number];
    const request *request = &sched->request[sequence->request];
    bool decode = rows == 1 && request_pending(request) == 1;
    if (sched->group[sequence->group].served_step != sched->step) {
        group_served(sched, sequence->group);
        planning->load.adapters += sched->group[sequence->group].units;
    }
    sequence->rows = rows;
    planning->rows_left -= rows;
    planning->logits += rows == request_pending(request);
    if (decode)
        planning->load.decode_rows++;
    else
        planning->load.prefill_rows += rows;
    if (!decode && request->given.scored)
        planning->load.scored_rows += rows;
    planning->load.context_tokens +=
        (uint64_t)rows * request->computed + (uint64_t)rows * ((uint64_t)rows + 1) / 2;
}

/* Backwards by rank are those whose pages are taken, forwards those who get rows: nobody loses what
 * he was just given. */
static void plan_decode(sched *sched, planning *planning) {
    for (uint32_t i = 0; i < sched->running_count; i++) {
        uint32_t number = sched->running[i];
        uint32_t index = sched->sequence[number].request;
        if (!sequence_suits(sched, number, SCHED_DECODE) ||
            !group_chosen(sched, sched->sequence[number].group))
            continue;
        reservation room = running_reserve(sched, index, 1);
        if (room == PREEMPTED)
            return; /* it was the last one itself */
        if (room == RESERVED)
            give_rows(sched, number, 1, planning);
    }
}

/* A chunk that somebody could have. */
typedef struct wish {
    uint32_t context, pending; /* positions before it; rows that he lacks */
    uint32_t adapters;         /* that the step has not yet */
    bool scored;
} wish;

static bool chunk_fits(const sched *sched, const planning *planning, const wish *wish,
                       uint32_t rows) {
    step_load load = planning->load;
    load.prefill_rows += rows;
    load.adapters += wish->adapters;
    load.scored_rows += wish->scored ? rows : 0;
    load.context_tokens +=
        (uint64_t)rows * wish->context + (uint64_t)rows * ((uint64_t)rows + 1) / 2;
    return step_cost_of(&sched->cost[planning->side], &load) <= (double)sched->options.target_ns;
}

/* The most rows of a chunk with which the step stays within the target. */
static uint32_t rows_that_fit(const sched *sched, const planning *planning, const wish *wish) {
    uint32_t least = 0, most = planning->rows_left;
    most = wish->pending < most ? wish->pending : most;
    if (sched->options.target_ns == 0)
        return most;
    while (least < most) {
        uint32_t middle = least + (most - least + 1) / 2;
        if (chunk_fits(sched, planning, wish, middle))
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

/* Rows that a sequence gets of its `pending` ones: all that fits, but no crumbs. `least`: a
 * smallest chunk in any case. */
static uint32_t chunk_of(const sched *sched, const planning *planning, const wish *wish,
                         bool least) {
    uint32_t pending = wish->pending;
    uint32_t smallest = sched->options.chunk_min < pending ? sched->options.chunk_min : pending;
    uint32_t rows = rows_that_fit(sched, planning, wish);
    if (rows < smallest)
        rows = least && smallest <= planning->rows_left ? smallest : 0;
    if (least && rows == 0)
        rows = planning->rows_left;
    return rows < pending ? rows : pending;
}

static bool prefill_due(const sched *sched, const planning *planning) {
    bool empty = planning->load.decode_rows == 0 && planning->load.prefill_rows == 0;
    return empty || (!planning->chunks && sched->prefill_skips >= PREFILL_SKIPS_MAX);
}

/* Admission has reserved the whole prompt, so this finds its pages. Where a memory behaves
 * otherwise, pages are only taken from others as long as nobody has rows that he would lose. */
static bool chunk_reserve(sched *sched, uint32_t index, uint32_t rows, const planning *planning) {
    const request *request = &sched->request[index];
    if (planning->load.decode_rows == 0 && planning->load.prefill_rows == 0)
        return running_reserve(sched, index, rows) == RESERVED;
    return sched->memory.reserve(sched->memory.context, request->sequence,
                                 request->computed + rows);
}

static void plan_chunk(sched *sched, uint32_t number, planning *planning) {
    sequence *sequence = &sched->sequence[number];
    const request *request = &sched->request[sequence->request];
    wish wish = {.context = request->computed,
                 .pending = request_pending(request),
                 .scored = request->given.scored};
    if (sched->group[sequence->group].served_step != sched->step)
        wish.adapters = sched->group[sequence->group].units;
    uint32_t rows = chunk_of(sched, planning, &wish, prefill_due(sched, planning));
    if (rows == 0 || !chunk_reserve(sched, sequence->request, rows, planning))
        return;
    give_rows(sched, number, rows, planning);
    planning->chunks = true;
}

/* First the group that has waited longest, where adapters_max makes groups take turns; then by
 * rank. A sequence that is preempted meanwhile ranks behind the one that needed its pages. */
static void plan_prefill(sched *sched, planning *planning) {
    uint32_t front = planning->units_left != UINT32_MAX
                         ? group_that_suits(sched, sched->group_first, planning->side)
                         : NONE;
    for (int round = front == NONE ? 1 : 0; round < 2; round++)
        for (uint32_t i = 0; i < sched->running_count; i++) {
            uint32_t number = sched->running[i];
            sequence *sequence = &sched->sequence[number];
            if (sequence->rows > 0 || !group_chosen(sched, sequence->group) ||
                !sequence_suits(sched, number, SCHED_PREFILL) ||
                (round == 0 && sequence->group != front))
                continue;
            planning->wanted = true;
            if (planning->rows_left > 0)
                plan_chunk(sched, number, planning);
        }
}

/* ---- Beginning ---- */

/* Whether one more may begin. A smallest chunk must fit into the target, or prefill must be due;
 * but never so many that decoding alone would miss a target which it can keep. */
static bool may_begin(const sched *sched, const planning *planning, const request *request) {
    const sched_options *options = &sched->options;
    wish wish = {.pending = request_known(request),
                 .adapters = request->given.adapters,
                 .scored = request->given.scored};
    if (sched->running_count == 0 || chunk_of(sched, planning, &wish, false) > 0)
        return true;
    step_load more = planning->load;
    more.decode_rows++;
    more.prefill_rows = 0;
    double decoding = step_cost_of(&sched->cost[SCHED_BOTH], &more);
    double target = (double)options->target_ns;
    return prefill_due(sched, planning) &&
           (decoding <= target || sched->cost[SCHED_BOTH].step[0] >= target);
}

/* The same where prompts have a side of their own: all that run and one more will decode there. */
static bool may_join(const sched *sched, const planning *planning, const request *request) {
    const step_cost *cost = &sched->cost[SCHED_DECODE];
    double target = (double)sched->options.target_ns;
    step_load all = {.decode_rows = sched->running_count + 1};
    if (sched->running_count == 0 || target == 0 || cost->step[0] >= target)
        return true;
    wish wish = {.pending = request_known(request),
                 .adapters = request->given.adapters,
                 .scored = request->given.scored};
    return step_cost_of(cost, &all) <= target &&
           chunk_of(sched, planning, &wish, prefill_due(sched, planning)) > 0;
}

/* One whose prompt is in memory but for its last token has a row like one that decodes; where it
 * would be too much now, it comes first in the next step. */
static bool row_fits(const sched *sched, const planning *planning, uint32_t number) {
    const sched_options *options = &sched->options;
    const sequence *sequence = &sched->sequence[number];
    step_load more = planning->load;
    if (planning->side == SCHED_PREFILL)
        return false;
    if (more.decode_rows + more.prefill_rows == 0 || options->target_ns == 0)
        return true;
    more.decode_rows++;
    more.context_tokens += sched->request[sequence->request].computed + 1;
    if (sched->group[sequence->group].served_step != sched->step)
        more.adapters += sched->group[sequence->group].units;
    return step_cost_of(&sched->cost[planning->side], &more) <= (double)options->target_ns;
}

/* One whose adapter has no place in this step begins as well: its group takes part in the turns. */
static void plan_admission(sched *sched, planning *planning) {
    while (sched->sequence_free != NONE && planning->rows_left > 0 && sched->preempted_count == 0) {
        uint32_t index = queue_best(sched);
        if (index == NONE)
            return;
        request *request = &sched->request[index];
        if (budget_holds(sched, index))
            continue;
        planning->wanted = true;
        bool may = planning->side == SCHED_PREFILL ? may_join(sched, planning, request)
                                                   : may_begin(sched, planning, request);
        if (!may || !running_admit(sched, index))
            return;
        if (!group_choose(sched, sched->sequence[request->sequence].group, planning))
            continue;
        if (request_pending(request) > 1)
            plan_chunk(sched, request->sequence, planning);
        else if (row_fits(sched, planning, request->sequence))
            give_rows(sched, request->sequence, 1, planning); /* reserved by admission */
    }
}

/* ---- Draft tokens ---- */

/* As many as the answer can still have behind the token that is sampled anyway, and as rows and
 * logits are left for. */
static uint32_t drafts_that_fit(const sched *sched, const request *request, uint32_t rows) {
    uint32_t most = sched->options.drafts_max;
    uint32_t wanted = request->given.new_tokens_max - request->generated - 1;
    most = wanted < most ? wanted : most;
    return rows < most ? rows : most;
}

static bool may_draft(const sched *sched, uint32_t number) {
    const sequence *sequence = &sched->sequence[number];
    const request *request = &sched->request[sequence->request];
    return sequence->rows == 1 && request_pending(request) == 1 && !request->given.no_answer;
}

/* Asks for the drafts of all that decode in this step. */
static uint32_t ask_drafts(sched *sched, uint32_t rows, const sched_time *time) {
    const sched_memory *memory = &sched->memory;
    uint32_t count = 0;
    for (uint32_t i = 0; i < sched->running_count; i++) {
        uint32_t number = sched->running[i];
        if (!may_draft(sched, number))
            continue;
        const request *request = &sched->request[sched->sequence[number].request];
        uint32_t most = drafts_that_fit(sched, request, rows);
        if (most > 0)
            sched->wishes[count++] = (sched_wish){.sequence = number, .most = most};
    }
    if (count > 0)
        memory->drafts(memory->context, sched->wishes, count, time);
    for (uint32_t i = 0; i < count; i++) {
        const sched_wish *wish = &sched->wishes[i];
        const request *request = &sched->request[sched->sequence[wish->sequence].request];
        sched->choices[i] = (choose_item){.survival = wish->survival,
                                          .most = wish->count,
                                          .context = request->computed + 1,
                                          .always = wish->always};
    }
    return count;
}

static void load_drafts(step_load *load, const choose_item *items, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t number = 0; number < items[i].chosen; number++)
            choose_load(load, items[i].context, number);
}

/* As many of the chosen as there are pages for. Where pages are short, fewer rows may take longer
 * than the chosen ones: a cost need not grow with them. */
static void reserve_drafts(sched *sched, uint32_t count, const planning *planning) {
    const sched_memory *memory = &sched->memory;
    double target = (double)sched->options.target_ns;
    bool fewer = false;
    for (uint32_t i = 0; i < count; i++) {
        choose_item *item = &sched->choices[i];
        uint32_t number = sched->wishes[i].sequence, wanted = item->chosen;
        while (item->chosen > 0 &&
               !memory->reserve(memory->context, number, item->context + item->chosen))
            item->chosen--;
        fewer = fewer || item->chosen < wanted;
    }
    for (uint32_t kept = count; fewer && target > 0 && kept > 0; kept--) {
        step_load load = planning->load;
        load_drafts(&load, sched->choices, kept);
        if (step_cost_of(&sched->cost[planning->side], &load) <= target)
            return;
        sched->choices[kept - 1].chosen = 0;
    }
}

static void give_drafts(sched *sched, uint32_t count, planning *planning) {
    for (uint32_t i = 0; i < count; i++) {
        sequence *sequence = &sched->sequence[sched->wishes[i].sequence];
        uint32_t drafts = sched->choices[i].chosen;
        sequence->drafts = drafts;
        sequence->rows += drafts;
        planning->rows_left -= drafts;
        planning->logits += drafts;
    }
    load_drafts(&planning->load, sched->choices, count);
}

/* What the chunks of prompts add to a step that decodes; 0 where nobody decodes. A chunk's own last
 * row samples a token as well. */
static double prompts_ns(const step_cost *cost, const planning *planning) {
    step_load decode = planning->load;
    decode.prefill_rows = decode.scored_rows = 0;
    decode.context_tokens = 0; /* of both: what it costs counts for the tokens */
    step_load all = planning->load;
    all.context_tokens = 0;
    if (decode.decode_rows == 0)
        return 0;
    return step_cost_of(cost, &all) - step_cost_of(cost, &decode);
}

/* What is verified here may be wrong, so it takes nothing from anybody: it comes behind prompts and
 * admissions, and preempts nobody. */
static void plan_drafts(sched *sched, planning *planning) {
    const sched_options *options = &sched->options;
    uint32_t rows = planning->rows_left;
    if (sched->memory.drafts == NULL || options->drafts_max == 0)
        return;
    if (options->logits_max > 0 && options->logits_max - planning->logits < rows)
        rows = options->logits_max - planning->logits;
    double target = (double)options->target_ns;
    const step_cost *cost = &sched->cost[planning->side];
    double plain_ns = step_cost_of(cost, &planning->load), other_ns = prompts_ns(cost, planning);
    if (planning->logits == 0 || (target > 0 && plain_ns > target))
        return;
    step_load more = planning->load;
    more.draft_rows++;
    sched_time time = {.token_ns = (plain_ns - other_ns) / planning->logits,
                       .row_ns = step_cost_of(cost, &more) - plain_ns,
                       .left_ns = target > 0 ? target - plain_ns : 0};
    choose_limits limits = {
        .rows = rows, .step_ns_max = target, .tokens = planning->logits, .other_ns = other_ns};
    time.hopeless = !choose_may_pay(&limits, cost, &planning->load);
    uint32_t count = ask_drafts(sched, rows, &time);
    if (count == 0)
        return;
    choose_drafts(sched->choices, count, &limits, cost, &planning->load);
    reserve_drafts(sched, count, planning);
    give_drafts(sched, count, planning);
}

/* ---- The plan ---- */

/* Its pair pays for the timeline up to `end`, as far as it has not. */
static void pay(sched *sched, request *request, uint32_t end) {
    if (end <= request->charged)
        return;
    fairness_charge(sched, request->pair, end - request->charged);
    request->charged = end;
}

static void charge(sched *sched, request *request, uint32_t rows) {
    uint32_t end = request->computed + rows;
    uint32_t fresh = end > request->seen ? end - request->seen : 0;
    sched->counts.recomputed_tokens += rows - fresh;
    pay(sched, request, end);
}

static uint32_t write_entries(sched *sched, sched_side side, sched_entry *entries) {
    uint32_t count = 0;
    for (uint32_t l = sched->group_first; l != NONE; l = sched->group[l].next) {
        if (sched->group[l].served_step != sched->step)
            continue;
        for (uint32_t s = sched->group[l].first; s != NONE; s = sched->sequence[s].next) {
            uint32_t rows = sched->sequence[s].rows, drafts = sched->sequence[s].drafts;
            request *request = &sched->request[sched->sequence[s].request];
            if (rows == 0)
                continue;
            sched->sequence[s].in_flight = side == SCHED_PREFILL;
            sched->sequence[s].rows = sched->sequence[s].drafts = 0;
            entries[count++] = (sched_entry){.request = request->given.id,
                                             .sequence = s,
                                             .first = request->computed,
                                             .rows = rows,
                                             .drafts = drafts,
                                             .draws = rows - drafts == request_pending(request)};
            charge(sched, request, rows - drafts);
        }
    }
    return count;
}

/* Rows of those that run. Where all whose turn it was had to give up their pages, it is the turn of
 * others: each round has fewer of them, so this ends. */
static planning plan_running(sched *sched, sched_side side) {
    planning planning;
    uint32_t lost;
    do {
        sched->step++;
        lost = sched->preempted_count;
        planning = (struct planning){.side = side,
                                     .rows_left = sched->options.rows_max,
                                     .units_left = sched->options.adapters_max > 0
                                                       ? sched->options.adapters_max
                                                       : UINT32_MAX};
        choose_groups(sched, &planning);
        if (side != SCHED_PREFILL)
            plan_decode(sched, &planning);
        if (side != SCHED_DECODE)
            plan_prefill(sched, &planning);
    } while (planning.load.decode_rows + planning.load.prefill_rows == 0 &&
             sched->running_count > 0 && sched->preempted_count > lost);
    return planning;
}

/* A request in flight ends when its plan is done. */
static void plan_cancelled(sched *sched) {
    for (uint32_t i = sched->ending, next; i != NONE; i = next) {
        next = sched->request[i].next;
        if (!request_in_flight(sched, &sched->request[i]))
            plan_end(sched, i, SCHED_CANCELLED);
    }
}

void sched_plan_side(sched *sched, sched_side side, uint64_t now_ns, sched_plan *plan) {
    assert(!sched->in_step && (side == SCHED_DECODE || !sched->prefill_in_flight));
    sched->now_ns = now_ns > sched->now_ns ? now_ns : sched->now_ns;
    sched->plan_end_count = sched->preempted_count = 0;
    plan_cancelled(sched);
    deadline_expire(sched);
    queue_raise(sched);
    planning planning = {.side = side};
    if (side != SCHED_PREFILL)
        sched->prefill_blocked = false;
    if (side != SCHED_PREFILL || !sched->prefill_blocked)
        planning = plan_running(sched, side);
    if (side != SCHED_DECODE && !sched->prefill_blocked)
        plan_admission(sched, &planning);
    plan_drafts(sched, &planning);
    if (sched->counts.waiting == 0)
        sched->pace.waited = false; /* whoever waited was cancelled, or is back from preemption */
    if (side == SCHED_BOTH)
        sched->prefill_skips = planning.wanted && !planning.chunks ? sched->prefill_skips + 1 : 0;
    sched_entry *entries = side == SCHED_PREFILL ? sched->prompts : sched->entries;
    uint32_t count = write_entries(sched, side, entries);
    *(side == SCHED_PREFILL ? &sched->prefill_in_flight : &sched->in_step) = count > 0;
    *plan = (sched_plan){.side = side,
                         .entries = entries,
                         .entry_count = count,
                         .ends = sched->plan_ends,
                         .end_count = sched->plan_end_count,
                         .preempted = sched->preempted_list,
                         .preempted_count = sched->preempted_count,
                         .load = planning.load,
                         .predicted_ns = step_cost_of(&sched->cost[side], &planning.load)};
}

sched_demand sched_demands(const sched *sched) {
    sched_demand demand = {0};
    for (uint32_t i = 0; i < sched->running_count; i++) {
        uint32_t number = sched->running[i];
        const request *request = &sched->request[sched->sequence[number].request];
        if (sched->sequence[number].in_flight)
            continue;
        demand.decoding += request_pending(request) == 1;
        if (request_pending(request) == 1)
            continue;
        demand.prompts++;
        demand.prompt_rows += request_pending(request);
    }
    uint32_t first = sched->sequence_free == NONE ? NONE : queue_best(sched);
    if (first != NONE) {
        uint32_t free = sched->options.running_max - sched->running_count;
        demand.waiting = sched->counts.waiting < free ? sched->counts.waiting : free;
        demand.prompt_rows += request_known(&sched->request[first]);
    }
    return demand;
}

/* One entry of a step that is done; true: it ends so. Rows of drafts that were not accepted are as
 * if they had never been. */
static bool entry_done(sched *sched, const sched_entry *entry, const sched_result *result,
                       sched_outcome *outcome) {
    uint32_t index = sched->sequence[entry->sequence].request;
    request *request = &sched->request[index];
    uint32_t accepted = result->accepted, right = accepted > 0 ? accepted - 1 : 0;
    uint32_t end = entry->first + entry->rows - entry->drafts + right;
    uint32_t prompt = request->given.prompt_tokens;
    assert(accepted <= (entry->draws ? 1 + entry->drafts : 0));
    if (end > request->seen) {
        uint32_t before = request->seen < prompt ? request->seen : prompt;
        sched->counts.prompt_tokens += (end < prompt ? end : prompt) - before;
        request->seen = end;
    }
    request->computed = end;
    pay(sched, request, end);
    sched->counts.new_tokens += accepted;
    sched->counts.draft_tokens += entry->drafts;
    sched->counts.accepted_drafts += right;
    request->generated += accepted;
    if (accepted > 0 && request->generated == accepted)
        deadline_watch(sched, index);
    *outcome = result->failed ? SCHED_FAILED : SCHED_FINISHED;
    return result->failed ||
           (entry->draws && (result->finished || request->given.no_answer ||
                             request->generated == request->given.new_tokens_max));
}

void sched_step_done(sched *sched, const sched_plan *plan, const sched_result *results,
                     uint64_t now_ns, const sched_end **ends, uint32_t *end_count) {
    uint32_t count = 0;
    sched->now_ns = now_ns > sched->now_ns ? now_ns : sched->now_ns;
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        uint32_t index = sched->sequence[entry->sequence].request;
        sched_outcome outcome = SCHED_FINISHED;
        sched->sequence[entry->sequence].in_flight = false;
        if (sched->request[index].late) {
            sched->request[index].late = false;
            deadline_watch(sched, index);
        }
        if (!entry_done(sched, entry, &results[i], &outcome))
            continue;
        sched->done_ends[count++] = (sched_end){entry->request, outcome};
        request_end(sched, index, outcome);
    }
    *(plan->side == SCHED_PREFILL ? &sched->prefill_in_flight : &sched->in_step) = false;
    sched->steps_done += sched->steps_done < sched->options.trust_steps;
    sched->refused_lately = 0;
    *ends = sched->done_ends;
    *end_count = count;
}
