/* Every invariant of the scheduler's state. O(all); for tests and the simulation. */
#include "sched/core_int.h"

#include <math.h>

#define FAIL_IF(condition, text)                                                                   \
    do {                                                                                           \
        if (condition)                                                                             \
            return text;                                                                           \
    } while (0)

static const char *check_request(const sched *sched, uint32_t index) {
    const request *request = &sched->request[index];
    const sched_request *given = &request->given;
    FAIL_IF(keys_find(&sched->ids, given->id, 0) != index, "a request is not found by its id");
    FAIL_IF(given->no_answer ? request->generated > 0 : request->generated >= given->new_tokens_max,
            "a request lives with all its tokens");
    FAIL_IF(request->computed >= request_known(request), "a request has computed what it lacks");
    FAIL_IF(request->charged < request->computed || request->seen < request->computed,
            "a request has computed for nothing");
    FAIL_IF(request->charged > request_known(request),
            "a request has paid for tokens that it does not have");
    FAIL_IF(heap_has(&sched->preempted, index) != (request->state == REQUEST_PREEMPTED),
            "the heap of preempted requests is wrong");
    FAIL_IF(heap_has(&sched->by_due, index) !=
                (deadline_of(request) != 0 && request->state != REQUEST_ENDING && !request->late),
            "the heap of deadlines is wrong");
    FAIL_IF(request->late && !request_in_flight(sched, request), "a late request stays");
    FAIL_IF((request->state == REQUEST_ENDING) && !request->cancelled,
            "a request ends without having been cancelled");
    if (request->state == REQUEST_RUNNING)
        FAIL_IF(request->sequence >= sched->options.running_max ||
                    sched->sequence[request->sequence].request != index,
                "a request and its sequence do not know each other");
    else
        FAIL_IF(request->computed != 0, "a request that does not run has something in memory");
    return NULL;
}

static const char *check_requests(const sched *sched) {
    uint32_t waiting = 0, running = 0, live = 0, endings = 0, cancelled = 0;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < sched->request_count; i++) {
        const request *request = &sched->request[i];
        if (request->state == REQUEST_FREE)
            continue;
        const char *wrong = check_request(sched, i);
        if (wrong != NULL)
            return wrong;
        live++;
        cancelled += request->cancelled;
        running += request->state == REQUEST_RUNNING;
        if (request->state == REQUEST_WAITING || request->state == REQUEST_PREEMPTED) {
            waiting++;
            tokens += request_tokens(request);
        }
    }
    for (uint32_t i = sched->ending; i != NONE; i = sched->request[i].next)
        endings++;
    const sched_counts *counts = &sched->counts;
    FAIL_IF(endings != cancelled, "a cancelled request is not listed");
    FAIL_IF(live != sched->ids.count, "the index of ids is wrong");
    FAIL_IF(waiting != counts->waiting || tokens != counts->waiting_tokens,
            "waiting is miscounted");
    FAIL_IF(running != counts->running || running != sched->running_count, "running is miscounted");
    FAIL_IF(waiting > sched->options.waiting_max + sched->options.running_max, "too many wait");
    FAIL_IF(counts->submitted != live + counts->finished + counts->cancelled + counts->expired +
                                     counts->refused + counts->failed,
            "a request was lost");
    return NULL;
}

static const char *check_queue(const sched *sched, uint32_t pair, uint32_t class,
                               uint32_t *waiting) {
    const queue *queue = &sched->pair[pair].queue[class];
    uint32_t number = pair * SCHED_PRIORITIES + class, previous = NONE;
    uint64_t last = 0;
    for (uint32_t i = queue->head; i != NONE; i = sched->request[i].next) {
        const request *request = &sched->request[i];
        FAIL_IF(request->state != REQUEST_WAITING || request->pair != pair ||
                    request->given.priority != class || request->previous != previous,
                "a queue holds what is not its own");
        FAIL_IF(previous != NONE && request->number <= last, "a queue is not in order of arrival");
        last = request->number;
        previous = i;
        (*waiting)++;
    }
    bool some = queue->head != NONE;
    FAIL_IF(queue->tail != previous, "a queue's end is wrong");
    FAIL_IF(some != ((sched->pair[pair].classes >> class & 1) != 0) ||
                (some && !queue->parked) != heap_has(&sched->by_precedence, number),
            "a queue is not where it belongs");
    FAIL_IF(queue->parked && (!some || sched->tenant[sched->pair[pair].tenant].held_for == NONE),
            "a queue is parked, and its tenant is not held");
    FAIL_IF(heap_has(&sched->by_raise, number) !=
                (some && !queue->parked && queue->raise_ns != NEVER),
            "a queue does not age");
    FAIL_IF(some && queue->class_now > class, "a queue has fallen below its class");
    return NULL;
}

static const char *check_pairs(const sched *sched) {
    uint32_t known = 0, idle = 0, queued = 0;
    double sum = 0;
    for (uint32_t i = 0; i < sched->pair_count; i++) {
        const pair *pair = &sched->pair[i];
        if (pair->tenant == NONE)
            continue;
        uint32_t waiting = 0;
        known++;
        const tenant *owner = &sched->tenant[pair->tenant];
        FAIL_IF(keys_find(&sched->pairs, owner->name, pair->adapter) != i, "a pair is not found");
        FAIL_IF(owner->active > owner->pairs || (pair->live > 0 && owner->active == 0),
                "a tenant's pairs are miscounted");
        for (uint32_t c = 0; c < SCHED_PRIORITIES; c++) {
            const char *wrong = check_queue(sched, i, c, &waiting);
            if (wrong != NULL)
                return wrong;
        }
        FAIL_IF(waiting != pair->waiting || waiting > pair->live, "a pair is miscounted");
        FAIL_IF(heap_has(&sched->by_counter, i) != (waiting > 0), "a pair's counter is not seen");
        FAIL_IF(!(pair->counter >= 0), "a counter is no number");
        queued += waiting;
        sum += waiting > 0 ? pair->counter : 0;
    }
    for (uint32_t i = sched->idle_first; i != NONE; i = sched->pair[i].next, idle++)
        FAIL_IF(sched->pair[i].live > 0, "a pair with work is taken for idle");
    uint32_t live = 0;
    for (uint32_t i = 0; i < sched->pair_count; i++)
        live += sched->pair[i].tenant != NONE && sched->pair[i].live > 0;
    FAIL_IF(fabs(sum - sched->counter_sum) > 1e-9 * (1 + sum), "the sum of counters is wrong");
    FAIL_IF(known != sched->pairs.count || known != idle + live, "pairs are miscounted");
    FAIL_IF(queued + sched->preempted.count != sched->counts.waiting, "queues are miscounted");
    return NULL;
}

static const char *check_budgets(const sched *sched) {
    uint64_t pages = 0, held = 0;
    for (uint32_t i = 0; i < sched->request_count; i++) {
        const request *request = &sched->request[i];
        bool begun = request->state == REQUEST_RUNNING || request->state == REQUEST_PREEMPTED;
        pages += request->state == REQUEST_FREE ? 0 : request->pages;
        FAIL_IF(begun && request->pages == 0, "a request runs outside its tenant's budget");
        FAIL_IF(request->state == REQUEST_WAITING && request->pages > 0,
                "a request that waits is counted in its tenant's budget");
    }
    for (uint32_t i = 0; i < sched->pair_count; i++) {
        const pair *pair = &sched->pair[i];
        if (pair->tenant == NONE)
            continue;
        const tenant *tenant = &sched->tenant[pair->tenant];
        FAIL_IF(tenant->held_for != NONE &&
                    sched->request[tenant->held_for].state != REQUEST_WAITING,
                "a tenant is held for a request that does not wait");
    }
    for (uint32_t i = 0; i < sched->pair_count; i++) /* free ones have none */
        held += sched->tenant[i].pages;
    FAIL_IF(pages != held, "budgets of tenants are miscounted");
    return NULL;
}

static const char *check_running(const sched *sched) {
    uint32_t in_groups = 0, prefill_in_flight = 0;
    for (uint32_t i = 0; i < sched->running_count; i++) {
        const sequence *sequence = &sched->sequence[sched->running[i]];
        FAIL_IF(sequence->request == NONE, "an empty sequence runs");
        const request *request = &sched->request[sequence->request];
        FAIL_IF(request->sequence != sched->running[i], "a sequence holds what is not its own");
        prefill_in_flight += sequence->in_flight;
        if (i > 0)
            FAIL_IF(!rank_before(&sched->request[sched->sequence[sched->running[i - 1]].request],
                                 request),
                    "running requests are not in order of rank");
        FAIL_IF(sched->group[sequence->group].adapter != request->given.adapter,
                "a sequence is in another adapter's group");
    }
    FAIL_IF((prefill_in_flight > 0) != sched->prefill_in_flight,
            "sequences in flight are miscounted");
    for (uint32_t l = sched->group_first; l != NONE; l = sched->group[l].next) {
        uint32_t count = 0;
        for (uint32_t s = sched->group[l].first; s != NONE; s = sched->sequence[s].next, count++)
            FAIL_IF(sched->sequence[s].group != l, "a group holds what is not its own");
        FAIL_IF(count == 0 || count != sched->group[l].sequences, "a group is miscounted");
        in_groups += count;
    }
    FAIL_IF(in_groups != sched->running_count, "groups are miscounted");
    return NULL;
}

const char *sched_check(const sched *sched) {
    const heap *const heaps[] = {&sched->by_counter, &sched->by_precedence, &sched->by_raise,
                                 &sched->preempted, &sched->by_due};
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof(heaps) / sizeof(heaps[0]) && wrong == NULL; i++)
        wrong = heap_check(heaps[i]);
    if (wrong == NULL)
        wrong = check_requests(sched);
    if (wrong == NULL)
        wrong = check_pairs(sched);
    if (wrong == NULL)
        wrong = check_budgets(sched);
    return wrong != NULL ? wrong : check_running(sched);
}
