/* Slots, the order of rank among them, lanes, and preemption.
 *
 * Why this cannot go round for ever: a request keeps its rank for life, and pages are only ever
 * taken from the one of lowest rank. So the first of all running ones loses nothing; it alone fits
 * into the pool (submission checks), hence it finishes. Whatever arrives later than rank has a
 * lower one, so only finitely many can ever stand before a request: it becomes the first in the
 * end. */
#include "sched/core_int.h"

#include <assert.h>

/* ---- Lanes ---- */

static void turn_unlink(sched *sched, uint32_t index) {
    lane *lane = &sched->lane[index];
    if (lane->previous == NONE)
        sched->turn_first = lane->next;
    else
        sched->lane[lane->previous].next = lane->next;
    if (lane->next == NONE)
        sched->turn_last = lane->previous;
    else
        sched->lane[lane->next].previous = lane->previous;
}

static void turn_append(sched *sched, uint32_t index) {
    lane *lane = &sched->lane[index];
    lane->next = NONE;
    lane->previous = sched->turn_last;
    if (sched->turn_last == NONE)
        sched->turn_first = index;
    else
        sched->lane[sched->turn_last].next = index;
    sched->turn_last = index;
}

void lane_served(sched *sched, uint32_t index) {
    turn_unlink(sched, index);
    turn_append(sched, index);
    sched->lane[index].served_step = sched->step;
}

static uint32_t lane_of(sched *sched, const sched_request *given) {
    for (uint32_t i = sched->turn_first; i != NONE; i = sched->lane[i].next)
        if (sched->lane[i].adapter == given->adapter)
            return i;
    uint32_t index = sched->lane_free;
    sched->lane_free = sched->lane[index].next;
    sched->lane[index] = (lane){.adapter = given->adapter, .units = given->adapters, .first = NONE};
    turn_append(sched, index);
    return index;
}

static void lane_join(sched *sched, uint32_t index, uint32_t number) {
    lane *lane = &sched->lane[index];
    slot *slot = &sched->slot[number];
    slot->lane = index;
    slot->previous = NONE;
    slot->next = lane->first;
    if (lane->first != NONE)
        sched->slot[lane->first].previous = number;
    lane->first = number;
    lane->sequences++;
}

static void lane_part(sched *sched, uint32_t number) {
    slot *slot = &sched->slot[number];
    uint32_t index = slot->lane;
    lane *lane = &sched->lane[index];
    if (slot->previous == NONE)
        lane->first = slot->next;
    else
        sched->slot[slot->previous].next = slot->next;
    if (slot->next != NONE)
        sched->slot[slot->next].previous = slot->previous;
    if (--lane->sequences == 0) {
        turn_unlink(sched, index);
        lane->next = sched->lane_free;
        sched->lane_free = index;
    }
}

/* ---- Slots ---- */

static void order_insert(sched *sched, uint32_t number) {
    const request *request = &sched->request[sched->slot[number].request];
    uint32_t place = sched->running_count++;
    while (place > 0) {
        uint32_t before = sched->running[place - 1];
        if (!rank_before(request, &sched->request[sched->slot[before].request]))
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
    uint32_t number = sched->slot_free;
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
        sched_pace_begin(&sched->pace, sched->now_ns, request_tokens(request),
                         sched->counts.waiting > 0);
    } else {
        heap_remove(&sched->preempted, index);
        sched->counts.waiting--;
        sched->counts.waiting_tokens -= request_tokens(request);
    }
    sched->slot_free = sched->slot[number].next;
    sched->slot[number] = (slot){.request = index};
    request->state = REQUEST_RUNNING;
    request->slot = number;
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
    lane_join(sched, lane_of(sched, &request->given), number);
    order_insert(sched, number);
    sched->counts.running++;
    deadline_watch(sched, index);
    return true;
}

void running_leave(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    uint32_t number = request->slot;
    assert(!sched->slot[number].flies);
    sched->memory.end(sched->memory.context, number);
    order_remove(sched, number);
    lane_part(sched, number);
    sched->slot[number] = (slot){.request = NONE, .next = sched->slot_free};
    sched->slot_free = number;
    request->slot = NONE;
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
    while (!sched->memory.reserve(sched->memory.context, request->slot, request->computed + rows)) {
        const slot *lowest = &sched->slot[sched->running[sched->running_count - 1]];
        uint32_t last = lowest->request;
        if (lowest->flies) {
            sched->grounded = true;
            return LATER;
        }
        preempt(sched, last);
        if (last == index)
            return PREEMPTED;
    }
    return RESERVED;
}
