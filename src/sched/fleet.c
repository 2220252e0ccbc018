/* The clock, and the clients: where they go and how they end. */
#include "sched/fleet_int.h"

#include <stdarg.h>
#include <stdio.h>

#define CLIENTS_FIRST 1024
#define WAIT_NS       100000000u  /* until the router looks again whether a replica serves */
#define RETRY_NS      1000000000u /* what a replica says that is full of requests being prepared */
#define RETRIES_MAX   1000
#define SERVICE_PART  0.01 /* of the newest request in the running mean */

void fleet_wrong(fleet *fleet, const char *format, ...) {
    char *text = fleet->result->wrong;
    if (text[0] != '\0')
        return; /* the first thing that is wrong stays */
    int head = snprintf(text, SIMULATE_WRONG_MAX, "at %.6f s: ", (double)fleet->now * 1e-9);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + head, (size_t)(SIMULATE_WRONG_MAX - head), format, arguments);
    va_end(arguments);
}

/* ---- Records of clients ---- */

static bool coming_order(const void *context, uint32_t a, uint32_t b) {
    const fleet *fleet = context;
    uint64_t first = fleet->clients[a].event_ns, second = fleet->clients[b].event_ns;
    return first != second ? first < second : a < b;
}

/* As many again; the heap keeps its order. */
static bool clients_grow(fleet *fleet) {
    uint32_t before = fleet->client_capacity;
    uint32_t count = before == 0 ? CLIENTS_FIRST : 2 * before;
    client *clients = allocator_take_array(fleet->allocator, count, sizeof(client));
    uint32_t *numbers = allocator_take_array(fleet->allocator, count, 2 * sizeof(uint32_t));
    if (clients == NULL || numbers == NULL) {
        allocator_give(fleet->allocator, clients, count * sizeof(client));
        allocator_give(fleet->allocator, numbers, count * 2 * sizeof(uint32_t));
        return false;
    }
    heap old = fleet->coming;
    fleet->coming = (heap){.item = numbers,
                           .place = numbers + count,
                           .count = old.count,
                           .capacity = count,
                           .before = coming_order,
                           .context = fleet};
    for (uint32_t i = 0; i < count; i++) {
        if (i < before)
            clients[i] = fleet->clients[i];
        if (i < old.count)
            fleet->coming.item[i] = old.item[i];
        fleet->coming.place[i] = i < before ? old.place[i] : HEAP_OUT;
    }
    allocator_give(fleet->allocator, fleet->clients, before * sizeof(client));
    allocator_give(fleet->allocator, old.item, before * 2 * sizeof(uint32_t));
    fleet->clients = clients;
    fleet->client_capacity = count;
    return true;
}

/* FLEET_NONE: too many, or no memory; the run ends. */
static uint32_t client_new(fleet *fleet) {
    uint32_t index = fleet->client_free;
    if (index != FLEET_NONE) {
        fleet->client_free = fleet->clients[index].next;
    } else {
        if (fleet->client_count == FLEET_CLIENTS_MAX) {
            fleet->status = status_fail(fleet->error, AVO_ERROR_LIMIT,
                                        "more than %u clients at a time; use more replicas, fewer "
                                        "requests per second or shorter pauses between turns",
                                        FLEET_CLIENTS_MAX);
            return FLEET_NONE;
        }
        if (fleet->client_count == fleet->client_capacity && !clients_grow(fleet)) {
            fleet->status = status_no_memory(fleet->error, "clients",
                                             2 * fleet->client_capacity * sizeof(client));
            return FLEET_NONE;
        }
        index = fleet->client_count++;
    }
    fleet->clients_now++;
    if (fleet->clients_now > fleet->result->clients_max)
        fleet->result->clients_max = fleet->clients_now;
    return index;
}

static void client_come(fleet *fleet, uint32_t index, uint64_t time, client_state state) {
    client *client = &fleet->clients[index];
    client->state = state;
    client->event_ns = time;
    heap_put(&fleet->coming, index);
    if (time > SIMULATE_CLOCK_NS_MAX && fleet->status == AVO_OK)
        fleet->status = status_fail(fleet->error, AVO_ERROR_LIMIT,
                                    "the workload lasts longer than %.3g seconds; use fewer "
                                    "requests or more of them per second",
                                    (double)SIMULATE_CLOCK_NS_MAX * 1e-9);
}

static void next_conversation(fleet *fleet) {
    client next;
    fleet->upcoming = FLEET_NONE;
    if (!stream_next(&fleet->stream, &next))
        return;
    uint32_t index = client_new(fleet);
    if (index == FLEET_NONE)
        return;
    fleet->clients[index] = next;
    fleet->upcoming = index;
    uint64_t late = next.event_ns > SIMULATE_ARRIVAL_NS_MAX ? UINT64_MAX : next.event_ns;
    client_come(fleet, index, late, CLIENT_COMING);
}

/* ---- Ends ---- */

void client_end(fleet *fleet, uint32_t index) {
    client *client = &fleet->clients[index];
    if (client->state == CLIENT_FREE || client->replica != FLEET_NONE)
        fleet_wrong(fleet, "conversation %llu ends in state %d",
                    (unsigned long long)client->conversation, (int)client->state);
    fleet->ended++;
    fleet->last_ns = fleet->now;
    client->state = CLIENT_FREE;
    client->next = fleet->client_free;
    fleet->client_free = index;
    fleet->clients_now--;
}

/* What its replica has to compute before its first token. */
static double prompt_work(const client *client) {
    return client->begun ? 0 : client->prompt - client->matched;
}

void client_leave(fleet *fleet, uint32_t index) {
    client *client = &fleet->clients[index];
    replica *replica = &fleet->replicas[client->replica];
    if (client->next != FLEET_NONE)
        fleet->clients[client->next].previous = client->previous;
    if (client->previous != FLEET_NONE)
        fleet->clients[client->previous].next = client->next;
    else
        replica->clients = client->next;
    heap_remove(&fleet->coming, index);
    replica_adapter_leave(fleet, client->replica, client->adapter);
    replica->prompt_work -= prompt_work(client);
    replica->open--;
    fleet->router.open--;
    router_load(fleet, client->replica);
    client->replica = FLEET_NONE;
}

/* Gaps of one step are mostly alike: they are counted together. */
static void gap_add(fleet *fleet, uint64_t ns) {
    if (ns != fleet->gap_ns) {
        report_add_many(&fleet->result->metric[REPORT_GAP], fleet->gap_ns, fleet->gap_count);
        fleet->gap_ns = ns;
        fleet->gap_count = 0;
    }
    fleet->gap_count++;
}

void client_token(fleet *fleet, uint32_t index) {
    client *client = &fleet->clients[index];
    if (client->state != CLIENT_SENT)
        fleet_wrong(fleet, "a token comes to a client in state %d", (int)client->state);
    if (!client->begun) {
        fleet->replicas[client->replica].prompt_work -= prompt_work(client);
        client->begun = true;
        client->first_ns = fleet->now;
        report_add(&fleet->result->metric[REPORT_FIRST], fleet->now - client->arrival_ns);
    } else {
        gap_add(fleet, fleet->now - client->last_ns);
    }
    client->last_ns = fleet->now;
    client->tokens++;
    fleet->result->answer_tokens++;
}

static bool is_good(const fleet *fleet, const client *client) {
    const fleet_options *options = fleet->options;
    uint64_t first = client->first_ns - client->arrival_ns;
    uint64_t gap =
        client->tokens > 1 ? (client->last_ns - client->first_ns) / (client->tokens - 1) : 0;
    return (options->slo_first_ns == 0 || first <= options->slo_first_ns) &&
           (options->slo_gap_ns == 0 || gap <= options->slo_gap_ns);
}

void client_finish(fleet *fleet, uint32_t index) {
    client *client = &fleet->clients[index];
    fleet_result *result = fleet->result;
    if (client->tokens != client->answer)
        fleet_wrong(fleet, "a request ends with %u of %u tokens", client->tokens, client->answer);
    double service = (double)(fleet->now - client->begin_ns) * 1e-9;
    fleet->service_s = result->finished == 0
                           ? service
                           : fleet->service_s + SERVICE_PART * (service - fleet->service_s);
    result->finished++;
    result->good += is_good(fleet, client);
    report_add(&result->metric[REPORT_TOTAL], fleet->now - client->arrival_ns);
    client_leave(fleet, index);
    fleet->last_ns = fleet->now;
    if (stream_turn(&fleet->stream, client, fleet->now)) {
        fleet->ended++;
        client_come(fleet, index, client->event_ns, CLIENT_COMING);
    } else {
        client_end(fleet, index);
    }
}

/* ---- To a replica ---- */

static void client_join(fleet *fleet, uint32_t index, uint32_t number, uint32_t matched) {
    client *client = &fleet->clients[index];
    replica *replica = &fleet->replicas[number];
    if (client->begun || client->tokens > 0)
        fleet_wrong(fleet, "a request that had begun to stream is sent again");
    client->replica = number;
    client->matched = matched;
    client->previous = FLEET_NONE;
    client->next = replica->clients;
    if (client->next != FLEET_NONE)
        fleet->clients[client->next].previous = index;
    replica->clients = index;
    replica->open++;
    replica->prompt_work += prompt_work(client);
    router_sent(fleet, number, client);
}

/* Its adapter is there. False: the replica refuses it, and it has left. */
static avo_status client_submit(fleet *fleet, uint32_t index, uint64_t *retry_ns) {
    client *client = &fleet->clients[index];
    uint32_t replica = client->replica;
    avo_status status = replica_submit(fleet, index, retry_ns);
    if (status != AVO_OK) {
        client_leave(fleet, index);
        return status;
    }
    client->state = CLIENT_SENT;
    replica_plan(fleet, replica);
    return AVO_OK;
}

static avo_status client_send(fleet *fleet, uint32_t index, uint32_t number, uint32_t matched,
                              uint64_t *retry_ns) {
    const sched_options *options = &fleet->options->sched;
    client *client = &fleet->clients[index];
    if (fleet->replicas[number].state != REPLICA_UP) {
        fleet_wrong(fleet, "a request is sent to replica %u, which does not serve", number);
        return AVO_ERROR_ARGUMENT;
    }
    if (fleet->replicas[number].open >= options->waiting_max + options->running_max) {
        *retry_ns = RETRY_NS;
        return AVO_ERROR_FULL;
    }
    uint64_t ready = replica_adapter(fleet, number, client->adapter);
    client_join(fleet, index, number, matched);
    if (ready <= fleet->now)
        return client_submit(fleet, index, retry_ns);
    client_come(fleet, index, ready, CLIENT_LOADING);
    return AVO_OK;
}

/* What came of an attempt to send it; true: it is settled. */
static bool is_settled(fleet *fleet, uint32_t index, avo_status status) {
    if (status == AVO_OK)
        return true;
    if (status == AVO_ERROR_FULL) {
        fleet->result->full++;
        return false;
    }
    fleet->result->refused++;
    client_end(fleet, index);
    return true;
}

static void turn_away(fleet *fleet, uint32_t index, uint64_t retry_ns) {
    client *client = &fleet->clients[index];
    if (fleet->options->retry && client->tries++ < RETRIES_MAX) {
        client_come(fleet, index, fleet->now + retry_ns, CLIENT_COMING);
        return;
    }
    fleet->result->turned_away++;
    client_end(fleet, index);
}

void client_route(fleet *fleet, uint32_t index) {
    client *client = &fleet->clients[index];
    uint32_t matched = 0, tried[FLEET_TRIES];
    uint32_t replica = router_choose(fleet, client, &matched);
    if (replica == FLEET_NONE) {
        fleet->result->homeless++;
        client_come(fleet, index, fleet->now + WAIT_NS, CLIENT_COMING);
        return;
    }
    uint64_t retry_ns = 0;
    for (uint32_t i = 0; i < FLEET_TRIES && replica != FLEET_NONE; i++) {
        avo_status status = client_send(fleet, index, replica, matched, &retry_ns);
        if (is_settled(fleet, index, status))
            return;
        tried[i] = replica;
        matched = 0;
        replica = router_other(fleet, tried, i + 1);
    }
    turn_away(fleet, index, retry_ns);
}

/* ---- The clock ---- */

static void client_event(fleet *fleet, uint32_t index) {
    client *client = &fleet->clients[index];
    heap_remove(&fleet->coming, index);
    if (client->state == CLIENT_LOADING) {
        uint64_t retry_ns = 0;
        if (!is_settled(fleet, index, client_submit(fleet, index, &retry_ns)))
            turn_away(fleet, index, retry_ns);
        return;
    }
    if (client->arrival_turn != client->turn + 1) { /* not one that comes again */
        client->arrival_turn = client->turn + 1;
        client->arrival_ns = fleet->now;
        fleet->result->requests++;
    }
    if (index == fleet->upcoming) {
        next_conversation(fleet);
        if (fleet_stops(fleet))
            return;
    }
    client_route(fleet, index);
}

static uint64_t heap_time(const heap *heap, uint64_t time) {
    return heap->count > 0 ? time : UINT64_MAX;
}

/* What comes next; at the same time lives before steps, the autoscaler, clients. */
static void event(fleet *fleet) {
    uint32_t life = heap_first(&fleet->lives), step = heap_first(&fleet->steps);
    uint32_t comes = heap_first(&fleet->coming);
    uint64_t lives =
        heap_time(&fleet->lives, life == HEAP_OUT ? 0 : fleet->replicas[life].event_ns);
    uint64_t steps = heap_time(&fleet->steps, step == HEAP_OUT ? 0 : fleet->replicas[step].step_ns);
    uint64_t coming =
        heap_time(&fleet->coming, comes == HEAP_OUT ? 0 : fleet->clients[comes].event_ns);
    uint64_t time = lives < steps ? lives : steps;
    time = fleet->scale_ns < time ? fleet->scale_ns : time;
    time = coming < time ? coming : time;
    if (time < fleet->now)
        fleet_wrong(fleet, "the clock goes back");
    if (coming == UINT64_MAX && steps == UINT64_MAX) {
        fleet_wrong(fleet, "%u clients wait and nothing happens", fleet->clients_now);
        return;
    }
    fleet->now = time;
    if (lives == time)
        life_event(fleet, life);
    else if (steps == time)
        replica_step_ends(fleet, step);
    else if (fleet->scale_ns == time)
        life_scale(fleet);
    else
        client_event(fleet, comes);
}

static bool steps_order(const void *context, uint32_t a, uint32_t b) {
    const fleet *fleet = context;
    uint64_t first = fleet->replicas[a].step_ns, second = fleet->replicas[b].step_ns;
    return first != second ? first < second : a < b;
}

/* After the last request: nothing is left over, and everything is counted. */
static void conclude(fleet *fleet) {
    fleet_result *result = fleet->result;
    report_add_many(&result->metric[REPORT_GAP], fleet->gap_ns, fleet->gap_count);
    result->seconds = (double)fleet->last_ns * 1e-9;
    for (uint32_t i = 0; i < fleet->options->replicas; i++) {
        replica *replica = &fleet->replicas[i];
        double busy = replica->busy_s;
        result->busy_s += busy;
        result->busy_max_s = busy > result->busy_max_s ? busy : result->busy_max_s;
        if (replica->state != REPLICA_OFF)
            result->replica_s += (double)(fleet->now - replica->started_ns) * 1e-9;
        if (replica->sched == NULL)
            continue;
        sched_counts counts = sched_count(replica->sched);
        if (!fleet_stops(fleet) && (replica->open > 0 || !sched_idle(replica->sched) ||
                                    counts.running > 0 || pages_count(replica->pages).used > 0))
            fleet_wrong(fleet, "replica %u has something left over", i);
    }
    uint64_t ends = result->finished + result->broken + result->refused + result->turned_away;
    if (!fleet_stops(fleet) && (ends != result->requests || fleet->ended != ends ||
                                result->requests != fleet->options->load.requests))
        fleet_wrong(fleet, "%llu of %llu requests have ended", (unsigned long long)ends,
                    (unsigned long long)result->requests);
}

/* ---- Opening ---- */

static avo_status check_options(const fleet_options *options, avo_error *error) {
    const fleet_load *load = &options->load;
    bool drawn = load->trace == NULL;
    if (options->replicas == 0 || options->replicas > FLEET_REPLICAS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%u replicas, must be 1 to %u",
                           options->replicas, FLEET_REPLICAS_MAX);
    if (load->requests == 0 || load->requests > FLEET_REQUESTS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%llu requests, must be 1 to %u",
                           (unsigned long long)load->requests, FLEET_REQUESTS_MAX);
    if (!(load->turns >= 1) || !(load->think_s >= 0) || (drawn && !(load->rate > 0)) ||
        load->tenants == 0 || load->prefixes == 0 || (!drawn && load->trace_count == 0) ||
        (drawn && (load->prompt_mean == 0 || load->answer_mean == 0)))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "turns, pauses, rate, tenants, prefixes or lengths are out of range");
    if (drawn && load->prefix_tokens >= options->sched.context_max / 2)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "shared prefixes of %u tokens, must be shorter than half of the context "
                           "(%u)",
                           load->prefix_tokens, options->sched.context_max);
    if (options->scale_min > options->replicas ||
        (options->scale_min > 0 && (!(options->scale_target > 0) || !(options->scale_s > 0))))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the autoscaler's least number of replicas is %u, must be at most %u",
                           options->scale_min, options->replicas);
    if (options->resident > FLEET_RESIDENT_MAX || options->slow > options->replicas ||
        (options->slow > 0 && !(options->slow_factor >= 1)))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "resident adapters or slow replicas are out of range");
    return AVO_OK;
}

static avo_status open(fleet *fleet, avo_error *error) {
    const fleet_options *options = fleet->options;
    AVO_TRY(check_options(options, error));
    AVO_TRY(stream_open(&fleet->stream, &options->load, options->sched.context_max, &fleet->arena,
                        error));
    fleet->replicas = arena_take_array(&fleet->arena, options->replicas, sizeof(replica));
    fleet->tokens = arena_take_array(&fleet->arena, options->sched.context_max, sizeof(int32_t));
    if (fleet->replicas == NULL || fleet->tokens == NULL ||
        !heap_init(&fleet->steps, &fleet->arena, options->replicas, steps_order, fleet))
        return status_no_memory(error, "fleet", options->replicas * sizeof(replica));
    for (uint32_t i = 0; i < options->replicas; i++)
        fleet->replicas[i] = (replica){.clients = FLEET_NONE, .event_ns = UINT64_MAX};
    AVO_TRY(router_open(fleet, error));
    AVO_TRY(lives_open(fleet, error));
    next_conversation(fleet);
    return fleet->status;
}

avo_status fleet_run(const fleet_options *options, const avo_allocator *allocator,
                     fleet_result *result, avo_error *error) {
    fleet fleet = {.options = options,
                   .allocator = allocator,
                   .result = result,
                   .client_free = FLEET_NONE,
                   .upcoming = FLEET_NONE,
                   .error = error};
    *result = (fleet_result){.router = options->router, .replicas = options->replicas};
    arena_init(&fleet.arena, allocator, SIZE_MAX);
    avo_status status = open(&fleet, error);
    if (status == AVO_OK) {
        while (fleet.clients_now > 0 && !fleet_stops(&fleet))
            event(&fleet);
        status = fleet.status;
        if (status == AVO_OK)
            conclude(&fleet);
    }
    for (uint32_t i = 0; fleet.steps.place != NULL && i < options->replicas; i++)
        replica_close(&fleet, i);
    allocator_give(allocator, fleet.clients, fleet.client_capacity * sizeof(client));
    allocator_give(allocator, fleet.coming.item,
                   (size_t)fleet.coming.capacity * 2 * sizeof(uint32_t));
    arena_free(&fleet.arena);
    return status;
}
