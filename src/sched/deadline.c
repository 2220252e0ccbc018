/* Deadlines, and the time after which a full queue should have room. */
#include "sched/core_int.h"

#define RETRY_MIN_NS 1000000ull       /* a millisecond */
#define RETRY_MAX_NS 3600000000000ull /* an hour */
#define MEAN_RATE    0.125            /* of the running means */

uint64_t deadline_of(const request *request) {
    uint64_t first = request->generated == 0 ? request->given.first_deadline_ns : 0;
    uint64_t whole = request->given.deadline_ns;
    if (first == 0 || whole == 0)
        return first + whole;
    return first < whole ? first : whole;
}

/* In steps of as many rows as there may be. A row that is left alone for the last one is a row like
 * those that decode, and is not scored. */
double deadline_prefill_ns(const sched *sched, const sched_request *given, uint32_t rows) {
    const step_cost *cost = &sched->cost[sched->options.apart ? SCHED_PREFILL : SCHED_BOTH];
    uint32_t most = sched->options.rows_max;
    double full = rows / most, steps = (rows + most - 1) / most;
    double positions = 0.5 * rows * ((double)rows + 1);
    double chunked = rows - (most == 1 || rows % most == 1);
    return full * step_cost_step(cost, most) + step_cost_step(cost, rows % most) +
           steps * cost->adapter * given->adapters +
           (given->scored ? cost->scored_row * chunked : 0) + cost->context_token * positions;
}

bool deadline_believed(const sched *sched) {
    return sched->steps_done >= sched->options.trust_steps && sched->refused_lately < REFUSALS_MAX;
}

/* What waits must begin so early that its prompt can still be computed. What has begun has until
 * the deadline itself. */
void deadline_watch(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    uint64_t deadline = deadline_of(request);
    if (deadline == 0) {
        heap_remove(&sched->by_due, index);
        return;
    }
    if (request->state == REQUEST_WAITING && deadline_believed(sched)) {
        const sched_request *given = &request->given;
        uint32_t rows = given->prompt_tokens - given->reusable_tokens;
        double needed = deadline_prefill_ns(sched, given, rows);
        deadline = needed < (double)deadline ? deadline - (uint64_t)needed : 1;
    }
    request->due_ns = deadline;
    heap_put(&sched->by_due, index);
}

void deadline_expire(sched *sched) {
    for (;;) {
        uint32_t index = heap_first(&sched->by_due);
        if (index == HEAP_OUT || sched->request[index].due_ns > sched->now_ns)
            return;
        bool over = deadline_of(&sched->request[index]) <= sched->now_ns;
        if (request_in_flight(sched, &sched->request[index])) {
            sched->request[index].late = true; /* checked again when the plan is done */
            heap_remove(&sched->by_due, index);
            continue;
        }
        if (!over && !deadline_believed(sched)) {
            deadline_watch(sched, index); /* it has until the deadline itself */
            continue;
        }
        sched->refused_lately += !over;
        plan_end(sched, index, over ? SCHED_EXPIRED : SCHED_REFUSED);
    }
}

void sched_pace_begin(sched_pace *pace, uint64_t now_ns, uint64_t tokens, bool waiting) {
    double size = (double)tokens;
    if (pace->waited) {
        double interval = now_ns > pace->last_ns ? (double)(now_ns - pace->last_ns) : 0;
        pace->interval_ns +=
            pace->interval_ns == 0 ? interval : MEAN_RATE * (interval - pace->interval_ns);
    }
    pace->tokens += pace->tokens == 0 ? size : MEAN_RATE * (size - pace->tokens);
    pace->last_ns = now_ns;
    pace->waited = waiting;
}

/* The queue becomes shorter by beginnings alone: as many requests, or as many tokens, as are too
 * many, at the pace of the last ones. */
double sched_pace_retry(const sched_pace *pace, const sched_crowd *crowd, uint64_t tokens,
                        uint64_t now_ns, double first_ns) {
    double requests =
        crowd->waiting >= crowd->waiting_max ? crowd->waiting - crowd->waiting_max + 1 : 1;
    double each = pace->tokens > 0 ? pace->tokens : (double)tokens;
    if (crowd->tokens + tokens > crowd->tokens_max) {
        double by_tokens = (double)(crowd->tokens + tokens - crowd->tokens_max) / each;
        requests = by_tokens > requests ? by_tokens : requests;
    }
    double interval = pace->interval_ns == 0 ? first_ns : pace->interval_ns;
    double since = pace->waited && now_ns > pace->last_ns ? (double)(now_ns - pace->last_ns) : 0;
    return requests * (since > interval ? since : interval);
}

/* Before anything has begun, at the pace of the cost model. */
uint64_t deadline_retry_ns(const sched *sched, const sched_request *given) {
    const sched_options *options = &sched->options;
    sched_crowd crowd = {.waiting = sched->counts.waiting,
                         .waiting_max = options->waiting_max,
                         .tokens = sched->counts.waiting_tokens,
                         .tokens_max = options->waiting_tokens_max};
    double first = (deadline_prefill_ns(sched, given, given->prompt_tokens) +
                    given->new_tokens_max * sched->cost[SCHED_BOTH].step[0]) /
                   options->running_max;
    double wait = sched_pace_retry(&sched->pace, &crowd,
                                   (uint64_t)given->prompt_tokens + given->new_tokens_max,
                                   sched->now_ns, first);
    return wait < RETRY_MIN_NS ? RETRY_MIN_NS : wait > RETRY_MAX_NS ? RETRY_MAX_NS : (uint64_t)wait;
}
