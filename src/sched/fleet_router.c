/* Which replica gets a request. The router knows what passes through it: open requests, prompts,
 * first tokens, and what it sent where. A block of a prompt is found in its index by a key that
 * stands for the block and everything before it; a replica that was sent the block was sent all
 * before it, so the deepest block that is known names the longest match. */
#include "sched/fleet_int.h"

#include <string.h>

#define INDEX_WAYS     8
#define CANDIDATES_MAX 16
#define HOMES          2    /* of an adapter, that are looked at */
#define BOUND          1.25 /* an adapter's home has at most this much more than the mean */

static const char *const router_names[FLEET_ROUTERS] = {"round-robin",  "random",   "two-choices",
                                                        "least-loaded", "adapter",  "prefix",
                                                        "events",       "predicted"};

const char *fleet_router_name(fleet_router router) {
    return router_names[router];
}

bool fleet_router_named(const char *name, size_t length, fleet_router *router) {
    for (int i = 0; i < FLEET_ROUTERS; i++)
        if (text_is((text_view){name, length}, router_names[i])) {
            *router = (fleet_router)i;
            return true;
        }
    return false;
}

/* ---- Who serves, and how much ---- */

static bool load_order(const void *context, uint32_t a, uint32_t b) {
    const fleet *fleet = context;
    const replica *first = &fleet->replicas[a], *second = &fleet->replicas[b];
    if (first->open != second->open)
        return first->open < second->open;
    uint64_t one = fleet->router.sent[a], other = fleet->router.sent[b];
    return one != other ? one < other : a < b;
}

avo_status router_open(fleet *fleet, avo_error *error) {
    router *router = &fleet->router;
    uint32_t replicas = fleet->options->replicas;
    uint64_t set_bytes = INDEX_WAYS * sizeof(index_entry);
    router->dice = (dice){fleet_mix(fleet->options->seed, 1), 0};
    router->index_sets = fleet->options->index_bytes / set_bytes;
    router->index_sets += router->index_sets == 0;
    if (fleet->options->router < FLEET_PREFIX)
        router->index_sets = 1;
    router->sent = arena_take_array(&fleet->arena, replicas, sizeof(uint64_t));
    router->up = arena_take_array(&fleet->arena, replicas, sizeof(uint32_t));
    router->index = arena_take_array(&fleet->arena, router->index_sets, set_bytes);
    if (router->sent == NULL || router->up == NULL || router->index == NULL ||
        !heap_init(&router->by_load, &fleet->arena, replicas, load_order, fleet))
        return status_no_memory(error, "router", router->index_sets * set_bytes);
    return AVO_OK;
}

/* The first of those that serve whose number is at least `number`. */
static uint32_t up_from(const router *router, uint32_t number) {
    uint32_t low = 0, high = router->up_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (router->up[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void router_serving(fleet *fleet, uint32_t replica, bool serves) {
    router *router = &fleet->router;
    uint32_t at = up_from(router, replica);
    uint32_t *place = router->up + at;
    if (serves) {
        memmove(place + 1, place, (router->up_count++ - at) * sizeof(uint32_t));
        *place = replica;
        heap_put(&router->by_load, replica);
    } else {
        memmove(place, place + 1, (--router->up_count - at) * sizeof(uint32_t));
        heap_remove(&router->by_load, replica);
    }
    if (router->up_count > fleet->result->replicas_peak)
        fleet->result->replicas_peak = router->up_count;
}

void router_load(fleet *fleet, uint32_t replica) {
    if (heap_has(&fleet->router.by_load, replica))
        heap_put(&fleet->router.by_load, replica);
}

static bool serves(const fleet *fleet, uint32_t replica) {
    return fleet->replicas[replica].state == REPLICA_UP;
}

static uint32_t least_loaded(const fleet *fleet) {
    uint32_t first = heap_first(&fleet->router.by_load);
    return first == HEAP_OUT ? FLEET_NONE : first;
}

static uint32_t any(fleet *fleet) {
    router *router = &fleet->router;
    return router->up[dice_between(&router->dice, 0, router->up_count - 1)];
}

static uint32_t fewer(const fleet *fleet, uint32_t a, uint32_t b) {
    return load_order(fleet, a, b) ? a : b;
}

uint32_t router_other(fleet *fleet, const uint32_t *tried, uint32_t count) {
    const router *router = &fleet->router;
    uint32_t best = FLEET_NONE;
    for (uint32_t i = 0; i < router->up_count; i++) {
        bool used = false;
        for (uint32_t t = 0; t < count; t++)
            used = used || tried[t] == router->up[i];
        if (!used && (best == FLEET_NONE || load_order(fleet, router->up[i], best)))
            best = router->up[i];
    }
    return best;
}

/* ---- Adapters ---- */

/* Home number `n` of an adapter: it stays when other replicas come and go. */
static uint32_t home_of(const fleet *fleet, uint32_t adapter, uint32_t n) {
    return (uint32_t)(fleet_mix(adapter, n) % fleet->options->replicas);
}

/* The first home that serves and has not far more than the others. */
static uint32_t adapter_home(const fleet *fleet, uint32_t adapter) {
    const router *router = &fleet->router;
    double bound = BOUND * (double)(router->open + 1) / router->up_count + 1;
    if (adapter == 0)
        return least_loaded(fleet);
    for (uint32_t n = 0; n < 4 * fleet->options->replicas; n++) {
        uint32_t home = home_of(fleet, adapter, n);
        if (serves(fleet, home) && fleet->replicas[home].open < bound)
            return home;
    }
    return least_loaded(fleet);
}

/* ---- Prefixes ---- */

static uint64_t block_key(const client *client, uint32_t block) {
    uint64_t end = ((uint64_t)block + 1) * FLEET_BLOCK;
    return fleet_mix(client_text(client, end), block) | 1;
}

static index_entry *index_set(const router *router, uint64_t key) {
    return router->index + (key >> 1) % router->index_sets * INDEX_WAYS;
}

static index_entry *index_find(const router *router, uint64_t key) {
    index_entry *set = index_set(router, key);
    for (uint32_t i = 0; i < INDEX_WAYS; i++)
        if (set[i].key == key)
            return &set[i];
    return NULL;
}

/* The replica is now the latest that was sent the block. */
static void index_add(fleet *fleet, uint64_t key, uint32_t replica) {
    router *router = &fleet->router;
    index_entry *entry = index_find(router, key);
    if (entry == NULL) {
        entry = index_set(router, key);
        for (uint32_t i = 1; i < INDEX_WAYS; i++)
            if (index_set(router, key)[i].used < entry->used)
                entry = &index_set(router, key)[i];
        *entry = (index_entry){.key = key};
        for (uint32_t i = 0; i < FLEET_HOLDERS; i++)
            entry->replica[i] = FLEET_NONE;
    }
    entry->used = ++router->serial;
    uint32_t at = 0;
    while (at < FLEET_HOLDERS - 1 && entry->replica[at] != replica)
        at++;
    for (; at > 0; at--) {
        entry->replica[at] = entry->replica[at - 1];
        entry->life[at] = entry->life[at - 1];
    }
    entry->replica[0] = replica;
    entry->life[0] = fleet->replicas[replica].life;
}

typedef struct candidate {
    uint32_t replica, matched;
} candidate;

typedef struct candidates {
    candidate item[CANDIDATES_MAX];
    uint32_t count;
} candidates;

static void candidates_add(const fleet *fleet, candidates *list, uint32_t replica,
                           uint32_t matched) {
    if (replica == FLEET_NONE || !serves(fleet, replica) || list->count == CANDIDATES_MAX)
        return;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->item[i].replica == replica)
            return; /* with as much or more */
    list->item[list->count++] = (candidate){replica, matched};
}

/* Replicas that were sent a part of the prompt, the longest first; not those for less than the
 * least part that counts. */
static void find_holders(const fleet *fleet, const client *client, uint32_t most,
                         candidates *list) {
    const router *router = &fleet->router;
    double least = fleet->options->match_min * client->prompt;
    for (uint32_t block = (client->prompt - 1) / FLEET_BLOCK; block > 0; block--) {
        uint32_t matched = block * FLEET_BLOCK;
        const index_entry *entry = index_find(router, block_key(client, block - 1));
        if (matched < least || list->count >= most)
            return;
        for (uint32_t i = 0; entry != NULL && i < FLEET_HOLDERS; i++) {
            uint32_t replica = entry->replica[i];
            if (replica != FLEET_NONE && fleet->replicas[replica].life == entry->life[i])
                candidates_add(fleet, list, replica, matched);
        }
    }
}

/* The longest match among those that are not far busier than the least loaded. */
static uint32_t longest_match(const fleet *fleet, const candidates *list, double least,
                              uint32_t *matched) {
    uint32_t idle = least_loaded(fleet), best = idle;
    double open_max = fleet->replicas[idle].open + fleet->options->load_gap;
    *matched = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const candidate *item = &list->item[i];
        if (item->matched == 0 || item->matched < least || item->matched < *matched ||
            fleet->replicas[item->replica].open > open_max)
            continue;
        best = item->matched > *matched ? item->replica : fewer(fleet, best, item->replica);
        *matched = item->matched;
    }
    return best;
}

static uint32_t choose_prefix(fleet *fleet, const client *client, uint32_t *matched) {
    candidates list = {.count = 0};
    find_holders(fleet, client, CANDIDATES_MAX, &list);
    if (fleet->options->router == FLEET_EVENTS) {
        candidates_add(fleet, &list, least_loaded(fleet), 0);
        for (uint32_t i = 0; i < list.count; i++)
            list.item[i].matched = replica_cached(fleet, list.item[i].replica, client);
    }
    return longest_match(fleet, &list, fleet->options->match_min * client->prompt, matched);
}

/* ---- Predicted time ---- */

/* To the first token: prompts before it and its own, slower the more sequences decode beside them;
 * its adapter; and where all sequences run, the time until one of them ends. */
static double predict(const fleet *fleet, const client *client, const candidate *item) {
    const replica *replica = &fleet->replicas[item->replica];
    const step_cost *cost = &fleet->options->machine.cost;
    double row_ns = cost->step[STEP_COST_POINTS - 1] / step_cost_rows[STEP_COST_POINTS - 1];
    double running = fleet->options->sched.running_max;
    double rows = replica->prompt_work + client->prompt - item->matched;
    double ns = rows * row_ns * (1 + replica->open / running);
    if (client->adapter > 0 && !replica_has(fleet, item->replica, client->adapter))
        ns += (double)fleet->options->adapter_load_ns;
    if (replica->open >= fleet->options->sched.running_max)
        ns += (replica->open + 1 - running) * fleet->service_s * 1e9 / running;
    return ns;
}

static uint32_t choose_predicted(fleet *fleet, const client *client, uint32_t *matched) {
    candidates list = {.count = 0};
    find_holders(fleet, client, FLEET_HOLDERS, &list);
    candidates_add(fleet, &list, least_loaded(fleet), 0);
    for (uint32_t n = 0; n < HOMES && client->adapter > 0; n++)
        candidates_add(fleet, &list, home_of(fleet, client->adapter, n), 0);
    candidates_add(fleet, &list, any(fleet), 0);
    candidates_add(fleet, &list, any(fleet), 0);
    const candidate *best = &list.item[0];
    double least = predict(fleet, client, best);
    for (uint32_t i = 1; i < list.count; i++) {
        double ns = predict(fleet, client, &list.item[i]);
        if (ns < least ||
            (!(ns > least) && load_order(fleet, list.item[i].replica, best->replica))) {
            best = &list.item[i];
            least = ns;
        }
    }
    *matched = best->matched;
    return best->replica;
}

/* ---- The choice ---- */

static uint32_t in_turn(router *router) {
    uint32_t at = up_from(router, router->turn);
    uint32_t replica = router->up[at < router->up_count ? at : 0];
    router->turn = replica + 1;
    return replica;
}

uint32_t router_choose(fleet *fleet, const client *client, uint32_t *matched) {
    router *router = &fleet->router;
    *matched = 0;
    if (router->up_count == 0)
        return FLEET_NONE;
    switch (fleet->options->router) {
    case FLEET_ROUND_ROBIN:
        return in_turn(router);
    case FLEET_RANDOM:
        return any(fleet);
    case FLEET_TWO_CHOICES: {
        uint32_t first = any(fleet);
        return fewer(fleet, first, any(fleet));
    }
    case FLEET_LEAST_LOADED:
        return least_loaded(fleet);
    case FLEET_ADAPTER:
        return adapter_home(fleet, client->adapter);
    case FLEET_PREFIX:
    case FLEET_EVENTS:
        return choose_prefix(fleet, client, matched);
    case FLEET_PREDICTED:
    case FLEET_ROUTERS:
        break;
    }
    return choose_predicted(fleet, client, matched);
}

void router_sent(fleet *fleet, uint32_t replica, const client *client) {
    router *router = &fleet->router;
    router->sent[replica] = ++router->serial;
    router->open++;
    router_load(fleet, replica);
    if (fleet->options->router < FLEET_PREFIX)
        return;
    for (uint32_t block = 0; block < (client->prompt - 1) / FLEET_BLOCK; block++)
        index_add(fleet, block_key(client, block), replica);
}
