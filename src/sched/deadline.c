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

double deadline_prefill_ns(const sched *sched, uint32_t rows, uint32_t adapters) {
    const sched_cost *cost = &sched->options.cost;
    double steps = (rows + sched->options.rows_max - 1) / sched->options.rows_max;
    double positions = 0.5 * rows * ((double)rows + 1);
    return steps * (cost->step + cost->adapter * adapters) + cost->prefill_row * rows +
           cost->context_token * positions;
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
    if (request->state == REQUEST_WAITING) {
        const sched_request *given = &request->given;
        uint32_t rows = given->prompt_tokens - given->reusable_tokens;
        double needed = deadline_prefill_ns(sched, rows, given->adapters);
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
        plan_end(sched, index, over ? SCHED_EXPIRED : SCHED_REFUSED);
    }
}

void deadline_admitted(sched *sched, const request *request) {
    double interval = (double)(sched->now_ns - sched->admit_ns);
    double tokens = (double)request_tokens(request);
    if (sched->admit_ns == 0) {
        sched->admit_tokens = tokens;
    } else if (sched->admit_interval_ns == 0) {
        sched->admit_interval_ns = interval;
    } else {
        sched->admit_interval_ns += MEAN_RATE * (interval - sched->admit_interval_ns);
        sched->admit_tokens += MEAN_RATE * (tokens - sched->admit_tokens);
    }
    sched->admit_ns = sched->now_ns;
}

/* The queue becomes shorter by admission alone: as many requests, or as many tokens, as are too
 * many, at the pace of the last admissions; before there were any, at that of the cost model. */
uint64_t deadline_retry_ns(const sched *sched, const sched_request *given) {
    const sched_options *options = &sched->options;
    uint64_t wanted = (uint64_t)given->prompt_tokens + given->new_tokens_max;
    uint64_t tokens = sched->counts.waiting_tokens + wanted;
    double requests = sched->counts.waiting >= options->waiting_max
                          ? sched->counts.waiting - options->waiting_max + 1
                          : 1;
    double each = sched->admit_tokens > 0 ? sched->admit_tokens : (double)wanted;
    if (tokens > options->waiting_tokens_max) {
        double by_tokens = (double)(tokens - options->waiting_tokens_max) / each;
        requests = by_tokens > requests ? by_tokens : requests;
    }
    double interval = sched->admit_interval_ns;
    if (interval == 0)
        interval = (deadline_prefill_ns(sched, given->prompt_tokens, given->adapters) +
                    given->new_tokens_max * options->cost.step) /
                   options->running_max;
    double since = sched->admit_ns > 0 ? (double)(sched->now_ns - sched->admit_ns) : 0;
    double wait = requests * (since > interval ? since : interval);
    return wait < RETRY_MIN_NS ? RETRY_MIN_NS : wait > RETRY_MAX_NS ? RETRY_MAX_NS : (uint64_t)wait;
}
