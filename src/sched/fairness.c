/* Fairness: pairs of tenant and adapter, their tenants, and the counters that say who has had how
 * much (virtual token counters, VTC).
 *
 * A token costs a pair (its tenant's pairs with work) / (the tenant's weight): tenants share by
 * weight, however many adapters they use, and adapters of a tenant share equally. The pair with the
 * smallest counter goes first, whenever it has something to do: work-conserving.
 *
 * A pair that begins to wait is lifted, so that idling saves nothing up: to the mean counter of
 * those that wait and a token more; where nobody waits, to that of the last one that did. Not to
 * the smallest counter: an endless stream of new pairs could keep that where it is, and somebody
 * just above it would starve. Nor beyond the largest by more than the token: so a newcomer does not
 * widen the band in which the counters of waiting pairs lie. */
#include "sched/core_int.h"

bool fairness_order(const void *context, uint32_t a, uint32_t b) {
    const sched *sched = context;
    return sched->pair[a].counter < sched->pair[b].counter;
}

static void idle_unlink(sched *sched, uint32_t index) {
    pair *pair = &sched->pair[index];
    if (pair->previous == NONE)
        sched->idle_first = pair->next;
    else
        sched->pair[pair->previous].next = pair->next;
    if (pair->next == NONE)
        sched->idle_last = pair->previous;
    else
        sched->pair[pair->next].previous = pair->previous;
    pair->next = pair->previous = NONE;
}

static void idle_append(sched *sched, uint32_t index) {
    pair *pair = &sched->pair[index];
    pair->next = NONE;
    pair->previous = sched->idle_last;
    if (sched->idle_last == NONE)
        sched->idle_first = index;
    else
        sched->pair[sched->idle_last].next = index;
    sched->idle_last = index;
}

/* The pair that has been idle longest is forgotten. */
static void pair_forget(sched *sched, uint32_t index) {
    pair *pair = &sched->pair[index];
    tenant *owner = &sched->tenant[pair->tenant];
    idle_unlink(sched, index);
    keys_remove(&sched->pairs, owner->name, pair->adapter);
    if (--owner->pairs == 0) {
        keys_remove(&sched->tenants, owner->name, 0);
        owner->next = sched->tenant_free;
        sched->tenant_free = pair->tenant;
    }
    if (sched->last_left == index) {
        if (pair->counter > sched->left_counter)
            sched->left_counter = pair->counter;
        sched->last_left = NONE;
    }
    pair->tenant = NONE;
    pair->next = sched->pair_free;
    sched->pair_free = index;
}

static uint32_t tenant_of(sched *sched, uint64_t name) {
    uint32_t index = keys_find(&sched->tenants, name, 0);
    if (index != KEYS_NONE)
        return index;
    index = sched->tenant_free; /* there are as many as pairs */
    sched->tenant_free = sched->tenant[index].next;
    sched->tenant[index] =
        (tenant){.name = name, .weight = 1, .next = NONE, .held_for = NONE, .parked = NONE};
    keys_add(&sched->tenants, name, 0, index);
    return index;
}

uint32_t fairness_pair(sched *sched, const sched_request *given) {
    uint32_t index = keys_find(&sched->pairs, given->tenant, given->adapter);
    if (index == KEYS_NONE) {
        if (sched->pair_free == NONE && sched->idle_first != NONE)
            pair_forget(sched, sched->idle_first);
        index = sched->pair_free;
        if (index == NONE)
            return NONE;
        pair *pair = &sched->pair[index];
        sched->pair_free = pair->next;
        *pair = (struct pair){.adapter = given->adapter, .tenant = tenant_of(sched, given->tenant)};
        for (uint32_t c = 0; c < SCHED_PRIORITIES; c++)
            pair->queue[c] = (queue){.head = NONE, .tail = NONE, .raise_ns = NEVER};
        sched->tenant[pair->tenant].pairs++;
        keys_add(&sched->pairs, given->tenant, given->adapter, index);
        idle_append(sched, index);
    }
    tenant *owner = &sched->tenant[sched->pair[index].tenant];
    owner->weight = given->weight;
    owner->pages_max = given->tenant_pages_max;
    budget_look(sched, sched->pair[index].tenant);
    return index;
}

void fairness_enter(sched *sched, uint32_t index) {
    pair *pair = &sched->pair[index];
    if (pair->live++ == 0) {
        idle_unlink(sched, index);
        sched->tenant[pair->tenant].active++;
    }
}

void fairness_leave(sched *sched, uint32_t index) {
    pair *pair = &sched->pair[index];
    if (--pair->live == 0) {
        idle_append(sched, index);
        sched->tenant[pair->tenant].active--;
    }
}

double fairness_price(const sched *sched, const pair *pair) {
    const tenant *owner = &sched->tenant[pair->tenant];
    return (owner->active > 0 ? owner->active : 1) / owner->weight;
}

void fairness_waits(sched *sched, uint32_t index) {
    pair *pair = &sched->pair[index];
    double floor = sched->left_counter;
    if (sched->by_counter.count > 0)
        floor = sched->counter_sum / sched->by_counter.count + fairness_price(sched, pair);
    else if (sched->last_left != NONE && sched->pair[sched->last_left].counter > floor)
        floor = sched->pair[sched->last_left].counter;
    if (pair->counter < floor)
        pair->counter = floor;
    sched->counter_sum += pair->counter;
    heap_put(&sched->by_counter, index);
}

void fairness_stops(sched *sched, uint32_t index) {
    heap_remove(&sched->by_counter, index);
    sched->counter_sum -= sched->pair[index].counter;
    if (sched->by_counter.count == 0)
        sched->counter_sum = 0; /* and no rounding is carried on */
    sched->last_left = index;
}

void fairness_charge(sched *sched, uint32_t index, uint32_t tokens) {
    pair *pair = &sched->pair[index];
    double amount = tokens * fairness_price(sched, pair);
    queue_moving(sched, index);
    pair->counter += amount;
    if (pair->waiting == 0)
        return;
    sched->counter_sum += amount;
    heap_put(&sched->by_counter, index);
    queue_moved(sched, index);
}
