/* Replicas come and go: they fail, restart, and an autoscaler starts and stops them. */
#include "sched/fleet_int.h"

static bool life_order(const void *context, uint32_t a, uint32_t b) {
    const fleet *fleet = context;
    uint64_t first = fleet->replicas[a].event_ns, second = fleet->replicas[b].event_ns;
    return first != second ? first < second : a < b;
}

static uint64_t later(const fleet *fleet, double seconds) {
    double ns = seconds * 1e9 + 1;
    return fleet->now +
           (uint64_t)(ns < (double)SIMULATE_CLOCK_NS_MAX ? ns : (double)SIMULATE_CLOCK_NS_MAX);
}

static void set_state(fleet *fleet, uint32_t index, replica_state state, uint64_t event_ns) {
    replica *replica = &fleet->replicas[index];
    bool served = replica->state == REPLICA_UP, serves = state == REPLICA_UP;
    if (replica->state == REPLICA_OFF) {
        replica->started_ns = fleet->now;
        fleet->existing++;
    }
    replica->state = state;
    if (served != serves)
        router_serving(fleet, index, serves);
    if (state == REPLICA_OFF) {
        fleet->result->replica_s += (double)(fleet->now - replica->started_ns) * 1e-9;
        fleet->existing--;
    }
    replica->event_ns = event_ns;
    if (event_ns == UINT64_MAX)
        heap_remove(&fleet->lives, index);
    else
        heap_put(&fleet->lives, index);
}

static void serve(fleet *fleet, uint32_t index) {
    replica *replica = &fleet->replicas[index];
    uint64_t fails = UINT64_MAX;
    if (fleet->options->mtbf_s > 0) {
        double draw =
            random_uniform_at(fleet->options->seed, 3, (uint64_t)index << 32 | replica->life);
        fails = later(fleet, -fleet->options->mtbf_s * log(1 - draw));
    }
    fleet->status = replica_open(fleet, index, fleet->error);
    if (fleet->status == AVO_OK)
        set_state(fleet, index, REPLICA_UP, fails);
}

avo_status lives_open(fleet *fleet, avo_error *error) {
    const fleet_options *options = fleet->options;
    if (!heap_init(&fleet->lives, &fleet->arena, options->replicas, life_order, fleet))
        return status_no_memory(error, "replicas", options->replicas * sizeof(replica));
    uint32_t first = options->scale_min > 0 ? options->scale_min : options->replicas;
    for (uint32_t i = 0; i < first && fleet->status == AVO_OK; i++)
        serve(fleet, i);
    fleet->fewer_ns = UINT64_MAX;
    fleet->scale_ns = options->scale_min > 0 ? later(fleet, options->scale_s) : UINT64_MAX;
    return fleet->status;
}

/* Everything there is lost. Answers that had begun are broken, the rest is sent again. */
static void fail(fleet *fleet, uint32_t index) {
    replica *replica = &fleet->replicas[index];
    uint32_t again = FLEET_NONE;
    fleet->result->failures++;
    set_state(fleet, index, REPLICA_DOWN, later(fleet, fleet->options->restart_s));
    while (replica->clients != FLEET_NONE) {
        uint32_t lost = replica->clients;
        client *client = &fleet->clients[lost];
        client_leave(fleet, lost);
        if (client->begun) {
            fleet->result->broken++;
            client_end(fleet, lost);
            continue;
        }
        fleet->result->resent++;
        client->begin_ns = 0;
        client->next = again;
        again = lost;
    }
    replica_close(fleet, index);
    replica->life++;
    while (again != FLEET_NONE) {
        uint32_t next = fleet->clients[again].next;
        client_route(fleet, again);
        again = next;
    }
}

void life_event(fleet *fleet, uint32_t index) {
    switch (fleet->replicas[index].state) {
    case REPLICA_STARTING:
    case REPLICA_DOWN:
        serve(fleet, index);
        break;
    case REPLICA_UP:
    case REPLICA_STOPPING:
        fail(fleet, index);
        break;
    case REPLICA_OFF:
        fleet_wrong(fleet, "replica %u is off and something happens to it", index);
    }
}

void life_idle(fleet *fleet, uint32_t index) {
    if (fleet->replicas[index].state != REPLICA_STOPPING)
        return;
    if (pages_count(fleet->replicas[index].pages).used > 0)
        fleet_wrong(fleet, "replica %u stops with pages in use", index);
    replica_close(fleet, index);
    fleet->replicas[index].life++;
    set_state(fleet, index, REPLICA_OFF, UINT64_MAX);
}

/* ---- The autoscaler ---- */

static void start_more(fleet *fleet, uint32_t count) {
    for (uint32_t i = 0; i < fleet->options->replicas && count > 0; i++) {
        replica *replica = &fleet->replicas[i];
        if (replica->state == REPLICA_STOPPING)
            set_state(fleet, i, REPLICA_UP, replica->event_ns);
        else if (replica->state == REPLICA_OFF)
            set_state(fleet, i, REPLICA_STARTING, later(fleet, fleet->options->boot_s));
        else
            continue;
        fleet->result->starts++;
        count--;
    }
}

/* Those that serve, the last ones first; they finish what they have. */
static void stop_some(fleet *fleet, uint32_t count) {
    for (uint32_t i = fleet->options->replicas; i-- > 0 && count > 0;) {
        replica *replica = &fleet->replicas[i];
        if (replica->state != REPLICA_UP)
            continue;
        set_state(fleet, i, REPLICA_STOPPING, replica->event_ns);
        fleet->result->stops++;
        count--;
        if (replica->open == 0)
            life_idle(fleet, i);
    }
}

void life_scale(fleet *fleet) {
    const fleet_options *options = fleet->options;
    double wanted = ceil((double)fleet->router.open / options->scale_target);
    wanted = wanted < options->scale_min ? options->scale_min : wanted;
    uint32_t count = wanted < options->replicas ? (uint32_t)wanted : options->replicas;
    uint32_t have = 0;
    for (uint32_t i = 0; i < options->replicas; i++)
        have +=
            fleet->replicas[i].state != REPLICA_OFF && fleet->replicas[i].state != REPLICA_STOPPING;
    fleet->scale_ns = later(fleet, options->scale_s);
    if (count >= have)
        fleet->fewer_ns = UINT64_MAX;
    else if (fleet->fewer_ns == UINT64_MAX)
        fleet->fewer_ns = fleet->now;
    if (count > have) {
        start_more(fleet, count - have);
    } else if (count < have &&
               (double)(fleet->now - fleet->fewer_ns) * 1e-9 >= options->scale_down_s) {
        stop_some(fleet, have - count);
        fleet->fewer_ns = UINT64_MAX;
    }
}
