/* Who waits, in which order. A queue is raised when none of it has begun for `ageing_ns`, not when
 * its requests have waited that long: else the one who sends most would be served first. */
#include "sched/core_int.h"

uint32_t queue_number(const request *request) {
    return request->pair * SCHED_PRIORITIES + request->given.priority;
}

static queue *queue_at(const sched *sched, uint32_t number) {
    return &sched->pair[number / SCHED_PRIORITIES].queue[number % SCHED_PRIORITIES];
}

bool queue_order(const void *context, uint32_t a, uint32_t b) {
    const sched *sched = context;
    const queue *first = queue_at(sched, a), *second = queue_at(sched, b);
    if (first->class_now != second->class_now)
        return first->class_now < second->class_now;
    double counter = sched->pair[a / SCHED_PRIORITIES].counter;
    double other = sched->pair[b / SCHED_PRIORITIES].counter;
    if (counter != other)
        return counter < other;
    return sched->request[first->head].number < sched->request[second->head].number;
}

bool queue_raise_order(const void *context, uint32_t a, uint32_t b) {
    const sched *sched = context;
    return queue_at(sched, a)->raise_ns < queue_at(sched, b)->raise_ns;
}

/* The class of something that began to wait at rank − class × ageing. */
uint32_t class_of(const sched *sched, uint64_t rank_ns) {
    if (rank_ns <= sched->now_ns)
        return 0;
    uint64_t class = (rank_ns - sched->now_ns - 1) / sched->options.ageing_ns + 1;
    return class < SCHED_PRIORITIES ? (uint32_t) class : SCHED_PRIORITIES - 1;
}

void queue_date(sched *sched, uint32_t number) {
    queue *queue = queue_at(sched, number);
    uint32_t class = number % SCHED_PRIORITIES;
    uint64_t ageing = sched->options.ageing_ns;
    queue->class_now = class;
    queue->raise_ns = NEVER;
    if (ageing > 0) {
        uint64_t rank = queue->served_ns + class * ageing;
        queue->class_now = class_of(sched, rank);
        if (queue->class_now > 0)
            queue->raise_ns = rank - (queue->class_now - 1) * ageing;
    }
    heap_put(&sched->by_precedence, number);
    if (queue->raise_ns == NEVER)
        heap_remove(&sched->by_raise, number);
    else
        heap_put(&sched->by_raise, number);
}

void queue_raise(sched *sched) {
    for (;;) {
        uint32_t number = heap_first(&sched->by_raise);
        if (number == HEAP_OUT || queue_at(sched, number)->raise_ns > sched->now_ns)
            return;
        queue_date(sched, number);
    }
}

void queue_append(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    pair *pair = &sched->pair[request->pair];
    uint32_t number = queue_number(request);
    queue *queue = queue_at(sched, number);
    request->state = REQUEST_WAITING;
    request->next = NONE;
    request->previous = queue->tail;
    if (pair->waiting++ == 0)
        fairness_waits(sched, request->pair);
    if (queue->tail != NONE) {
        sched->request[queue->tail].next = index;
        queue->tail = index;
    } else {
        queue->head = queue->tail = index;
        queue->served_ns = sched->now_ns;
        pair->classes |= 1u << request->given.priority;
        queue_date(sched, number);
    }
    sched->counts.waiting++;
    sched->counts.waiting_tokens += request_tokens(request);
}

void queue_remove(sched *sched, uint32_t index, bool begun) {
    request *request = &sched->request[index];
    pair *pair = &sched->pair[request->pair];
    uint32_t number = queue_number(request);
    queue *queue = queue_at(sched, number);
    budget_leave(sched, index);
    if (request->previous != NONE)
        sched->request[request->previous].next = request->next;
    else
        queue->head = request->next;
    if (request->next != NONE)
        sched->request[request->next].previous = request->previous;
    else
        queue->tail = request->previous;
    request->next = request->previous = NONE;
    if (queue->head == NONE) {
        pair->classes &= ~(1u << request->given.priority);
        heap_remove(&sched->by_precedence, number);
        heap_remove(&sched->by_raise, number);
    } else {
        if (begun)
            queue->served_ns = sched->now_ns;
        queue_date(sched, number);
    }
    if (--pair->waiting == 0)
        fairness_stops(sched, request->pair);
    sched->counts.waiting--;
    sched->counts.waiting_tokens -= request_tokens(request);
}

/* A heap can be put right after one number has changed, not after several. */
void queue_moving(sched *sched, uint32_t index) {
    uint32_t rest = sched->pair[index].classes;
    for (rest &= rest - 1; rest != 0; rest &= rest - 1) /* parked ones are in none */
        heap_remove(&sched->by_precedence,
                    index * SCHED_PRIORITIES + (uint32_t)__builtin_ctz(rest));
}

void queue_moved(sched *sched, uint32_t index) {
    for (uint32_t rest = sched->pair[index].classes; rest != 0; rest &= rest - 1) {
        uint32_t class = (uint32_t)__builtin_ctz(rest);
        if (!sched->pair[index].queue[class].parked)
            heap_put(&sched->by_precedence, index * SCHED_PRIORITIES + class);
    }
}

/* Those that were preempted go before others of their class: their tokens are half paid for. */
uint32_t queue_best(const sched *sched) {
    uint32_t queue = heap_first(&sched->by_precedence);
    uint32_t back = heap_first(&sched->preempted);
    if (back == HEAP_OUT)
        return queue == HEAP_OUT ? NONE : queue_at(sched, queue)->head;
    if (queue == HEAP_OUT)
        return back;
    const request *request = &sched->request[back];
    uint32_t class =
        sched->options.ageing_ns > 0 ? class_of(sched, request->rank_ns) : request->given.priority;
    return class <= queue_at(sched, queue)->class_now ? back : queue_at(sched, queue)->head;
}
