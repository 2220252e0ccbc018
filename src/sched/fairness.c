/* Fairness: pairs of tenant and adapter, their tenants, and the counters that say who has had how
 * much (virtual token counters, VTC).
 *
 * A token costs a pair (its tenant's pairs with work) / (the tenant's weight): tenants share by
 * weight, however many adapters they use, and adapters of a tenant share equally. The pair with the
 * smallest counter goes first, whenever it has something to do: work-conserving.
 *
 * A pair that begins to wait is lifted, so that idling saves nothing up: at least to the smallest
 * counter of those that wait; where nobody waits, to that of the last one that did. On top of that
 * there is a virtual time that moves with everything served to those that wait: were newcomers put
 * at the smallest counter alone, an endless stream of new pairs could keep that where it is, and
 * somebody just above it would starve. The lift goes at most one context beyond the smallest
 * counter, so it never widens the band in which counters of waiting pairs lie. */
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
        if (pair->counter > sched->virtual_time)
            sched->virtual_time = pair->counter;
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
    sched->tenant[index] = (tenant){.name = name, .weight = 1, .next = NONE};
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
    sched->tenant[sched->pair[index].tenant].weight = given->weight;
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
    double floor;
    if (sched->by_counter.count > 0) {
        double lowest = sched->pair[heap_first(&sched->by_counter)].counter;
        double highest = lowest + sched->options.context_max * fairness_price(sched, pair);
        if (sched->virtual_time < lowest)
            sched->virtual_time = lowest;
        floor = sched->virtual_time < highest ? sched->virtual_time : highest;
    } else {
        if (sched->last_left != NONE && sched->pair[sched->last_left].counter > sched->virtual_time)
            sched->virtual_time = sched->pair[sched->last_left].counter;
        floor = sched->virtual_time;
    }
    if (pair->counter < floor)
        pair->counter = floor;
    heap_put(&sched->by_counter, index);
}

void fairness_stops(sched *sched, uint32_t index) {
    heap_remove(&sched->by_counter, index);
    sched->last_left = index;
}

void fairness_charge(sched *sched, uint32_t index, uint32_t tokens) {
    pair *pair = &sched->pair[index];
    double amount = tokens * fairness_price(sched, pair);
    pair->counter += amount;
    if (pair->waiting == 0)
        return;
    sched->virtual_time += amount / sched->by_counter.count;
    heap_put(&sched->by_counter, index);
    queue_moved(sched, index);
}

void sched_set_weight(sched *sched, uint64_t name, float weight) {
    uint32_t index = keys_find(&sched->tenants, name, 0);
    if (index != KEYS_NONE && weight > 0)
        sched->tenant[index].weight = weight;
}
