/* KV budgets of tenants: how many pages the running requests of one may need together.
 *
 * What counts is the most that a request may need, prompt and longest answer, from when it first
 * begins until it ends; preempted ones count on. So a budget is kept without looking at it while
 * sequences grow. A request that alone is over the budget still runs when nothing else of its
 * tenant does (submission refuses those; the budget may have become smaller since).
 *
 * When the next request of a tenant does not fit, the tenant is *held*: its queues are parked, out
 * of the heaps, so that other tenants pass, but no request of its own does, so that the one it is
 * held for does not starve. It is released as soon as that request fits or goes. Queues are parked
 * one by one as admission meets them, each at most once a plan. */
#include "sched/core_int.h"

static tenant *tenant_of(const sched *sched, const request *request) {
    return &sched->tenant[sched->pair[request->pair].tenant];
}

static uint64_t pages_needed(const sched *sched, const request *request) {
    uint32_t page = sched->memory.page_tokens;
    return (request_tokens(request) + page - 1) / page;
}

static bool fits(const sched *sched, const tenant *tenant, const request *request) {
    return tenant->pages_max == 0 || tenant->pages == 0 ||
           tenant->pages + pages_needed(sched, request) <= tenant->pages_max;
}

/* What a tenant did not get while it was held is not saved up, as with newcomers. */
static void lift(sched *sched, uint32_t index) {
    pair *pair = &sched->pair[index];
    double mean = sched->counter_sum / sched->by_counter.count;
    if (pair->counter >= mean)
        return;
    queue_moving(sched, index);
    sched->counter_sum += mean - pair->counter;
    pair->counter = mean;
    heap_put(&sched->by_counter, index);
    queue_moved(sched, index);
}

void budget_unpark(sched *sched, uint32_t index) {
    tenant *tenant = &sched->tenant[index];
    while (tenant->parked != NONE) {
        uint32_t number = tenant->parked;
        queue *queue = &sched->pair[number / SCHED_PRIORITIES].queue[number % SCHED_PRIORITIES];
        tenant->parked = queue->next_parked;
        queue->parked = false;
        lift(sched, number / SCHED_PRIORITIES);
        queue_date(sched, number);
    }
}

static void park(sched *sched, const request *request) {
    uint32_t number = queue_number(request);
    queue *queue = &sched->pair[request->pair].queue[request->given.priority];
    tenant *tenant = tenant_of(sched, request);
    heap_remove(&sched->by_precedence, number);
    heap_remove(&sched->by_raise, number);
    queue->parked = true;
    queue->next_parked = tenant->parked;
    tenant->parked = number;
}

bool budget_holds(sched *sched, uint32_t index) {
    const request *request = &sched->request[index];
    tenant *tenant = tenant_of(sched, request);
    if (request->state != REQUEST_WAITING)
        return false;
    if (tenant->held_for == NONE) {
        if (fits(sched, tenant, request))
            return false;
        tenant->held_for = index;
    }
    park(sched, request);
    return true;
}

void budget_take(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    request->pages = pages_needed(sched, request);
    tenant_of(sched, request)->pages += request->pages;
}

void budget_look(sched *sched, uint32_t index) {
    tenant *tenant = &sched->tenant[index];
    if (tenant->held_for == NONE || !fits(sched, tenant, &sched->request[tenant->held_for]))
        return;
    tenant->held_for = NONE;
    budget_unpark(sched, index);
}

void budget_give(sched *sched, uint32_t index) {
    request *request = &sched->request[index];
    tenant_of(sched, request)->pages -= request->pages;
    request->pages = 0;
    budget_look(sched, sched->pair[request->pair].tenant);
}

void budget_leave(sched *sched, uint32_t index) {
    uint32_t number = sched->pair[sched->request[index].pair].tenant;
    tenant *tenant = &sched->tenant[number];
    if (tenant->held_for == index)
        tenant->held_for = NONE;
    budget_unpark(sched, number);
}
