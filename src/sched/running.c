/* Running sequences: their order by rank, their groups by adapter, and preemption.
 *
 * Why this cannot go round for ever: a request keeps its rank for life, and pages are only ever
 * taken from the one of lowest rank. So the first of all running ones loses nothing; it alone fits
 * into the pool (submission checks), hence it finishes. Whatever arrives later than rank has a
 * lower one, so only finitely many can ever stand before a request: it becomes the first in the
 * end. */
#include "sched/core_int.h"

#include <assert.h>

/* ---- Groups ---- */

static void group_unlink(sched *sched, uint32_t index) {
    group *group = &sched->group[index];
    if (group->previous == NONE)
        sched->group_first = group->next;
    else
        sched->group[group->previous].next = group->next;
    if (group->next == NONE)
        sched->group_last = group->previous;
    else
        sched->group[group->next].previous = group->previous;
}

static void group_append(sched *sched, uint32_t index) {
    group *group = &sched->group[index];
    group->next = NONE;
    group->previous = sched->group_last;
    if (sched->group_last == NONE)
        sched->group_first = index;
    else
        sched->group[sched->group_last].next = index;
    sched->group_last = index;
}

void group_served(sched *sched, uint32_t index) {
    group_unlink(sched, index);
    group_append(sched, index);
    sched->group[index].served_step = sched->step;
}

static uint32_t group_of(sched *sched, const sched_request *given) {
    for (uint32_t i = sched->group_first; i != NONE; i = sched->group[i].next)
        if (sched->group[i].adapter == given->adapter)
            return i;
    uint32_t index = sched->group_free;
    sched->group_free = sched->group[index].next;
    sched->group[index] =
        (group){.adapter = given->adapter, .units = given->adapters, .first = NONE};
    group_append(sched, index);
    return index;
}

static void group_join(sched *sched, uint32_t index, uint32_t number) {
    group *group = &sched->group[index];
    sequence *sequence = &sched->sequence[number];
    sequence->group = index;
    sequence->previous = NONE;
    sequence->next = group->first;
    if (group->first != NONE)
        sched->sequence[group->first].previous = number;
    group->first = number;
    group->sequences++;
}

static void group_leave(sched *sched, uint32_t number) {
    sequence *sequence = &sched->sequence[number];
    uint32_t index = sequence->group;
    group *group = &sched->group[index];
    if (sequence->previous == NONE)
        group->first = sequence->next;
    else
        sched->sequence[sequence->previous].next = sequence->next;
    if (sequence->next != NONE)
        sched->sequence[sequence->next].previous = sequence->previous;
    if (--group->sequences == 0) {
        group_unlink(sched, index);
        group->next = sched->group_free;
        sched->group_free = index;
    }
}

/* ---- Slots ---- */

static void order_insert(sched *sched, uint32_t number) {
    const request *request = &sched->request[sched->sequence[number].request];
    uint32_t place = sched->running_count++;
    while (place > 0) {
        uint32_t before = sched->running[place - 1];
        if (!rank_before(request, &sched->request[sched->sequence[before].request]))
            break;
        sched->running[place--] = before;
    }
    sched->running[place] = number;
}

static void order_remove(sched *sched, uint32_t number) {
    uint32_t place = 0;
    while (sched->running[place] != number)
        place++;
    sched->running_count--;
    for (; place < sched->running_count; place++)
        sched->running[place] = sched->running[place + 1];
}

/* Pages for the whole timeline, and one left for each of those that run already: one who begins
 * shall not be thrown out at once. */
static bool admit_pages(sched *sched, uint32_t number, uint32_t index, uint32_t *reused) {
    const sched_memory *memory = &sched->memory;
    request *request = &sched->request[index];
    uint32_t known = request_known(request);
    *reused = memory->begin(memory->context, number, request->given.id);
    if (*reused >= known)
        *reused = known - 1;
    bool room = memory->reserve(memory->context, number, known);
    if (room && sched->running_count > 0)
        room = memory->available(memory->context) >= sched->running_count;
    if (!room)
        memory->end(memory->context, number);
    return room;
}

bool running_admit(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    uint32_t number = sched->sequence_free;
    uint32_t available = sched->memory.available(sched->memory.context);
    if (sched->blocked_number == request->number && available <= sched->blocked_available &&
        sched->running_count > 0)
        return false;
    uint32_t reused = 0;
    if (!admit_pages(sched, number, index, &reused)) {
        sched->blocked_number = request->number;
        sched->blocked_available = available;
        return false;
    }
    sched->blocked_number = NEVER;
    if (request->state == REQUEST_WAITING) {
        queue_remove(sched, index, true);
        budget_take(sched, index);
        sched_pace_begin(&sched->pace, sched->now_ns, request_tokens(request),
                         sched->counts.waiting > 0);
    } else {
        heap_remove(&sched->preempted, index);
        sched->counts.waiting--;
        sched->counts.waiting_tokens -= request_tokens(request);
    }
    sched->sequence_free = sched->sequence[number].next;
    sched->sequence[number] = (sequence){.request = index};
    request->state = REQUEST_RUNNING;
    request->sequence = number;
    request->computed = reused;
    uint32_t known_before = request->seen < reused ? request->seen : reused;
    sched->counts.reused_tokens += reused - known_before;
    sched->counts.resumed_tokens += known_before; /* its own, after preemption */
    if (request->seen < reused)
        request->seen = reused;
    if (request->charged < reused)
        request->charged = reused;
    /* The prompt is paid for now, not as it is computed: else everything that begins in one step
     * would be of one pair. */
    uint32_t known = request_known(request);
    if (request->charged < known)
        fairness_charge(sched, request->pair, known - request->charged);
    request->charged = known;
    group_join(sched, group_of(sched, &request->given), number);
    order_insert(sched, number);
    sched->counts.running++;
    deadline_watch(sched, index);
    return true;
}

void running_leave(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    uint32_t number = request->sequence;
    assert(!sched->sequence[number].in_flight);
    sched->memory.end(sched->memory.context, number);
    order_remove(sched, number);
    group_leave(sched, number);
    sched->sequence[number] = (sequence){.request = NONE, .next = sched->sequence_free};
    sched->sequence_free = number;
    request->sequence = NONE;
    request->computed = 0;
    sched->blocked_number = NEVER;
    sched->counts.running--;
}

static void preempt(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    running_leave(sched, index);
    request->state = REQUEST_PREEMPTED;
    heap_put(&sched->preempted, index);
    sched->counts.waiting++;
    sched->counts.waiting_tokens += request_tokens(request);
    sched->counts.preemptions++;
    sched->preempted_list[sched->preempted_count++] = request->given.id;
}

reservation running_reserve(sched *sched, uint32_t index, uint32_t rows) {
    const request *request = &sched->request[index];
    while (!sched->memory.reserve(sched->memory.context, request->sequence,
                                  request->computed + rows)) {
        const sequence *lowest = &sched->sequence[sched->running[sched->running_count - 1]];
        uint32_t last = lowest->request;
        if (lowest->in_flight) {
            sched->prefill_blocked = true;
            return LATER;
        }
        preempt(sched, last);
        if (last == index)
            return PREEMPTED;
    }
    return RESERVED;
}
