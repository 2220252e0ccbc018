/* A replica: the scheduler, pages and what is in them, adapters, steps. */
#include "sched/fleet_int.h"

#define STALL_FACTOR 10

/* ---- Timelines ---- */

static int32_t token_at(uint64_t text, uint32_t position) {
    uint64_t x = (text ^ position) * 0xD6E8FEB86659FD93ull;
    return (int32_t)((x ^ x >> 32) & 0x7FFFFFFF);
}

/* Positions first … end − 1 of the fleet's scratch. */
static void fill_tokens(fleet *fleet, const client *client, uint32_t first, uint32_t end) {
    uint64_t shared = client_text(client, 0), own = client_text(client, UINT64_MAX);
    for (uint32_t p = first; p < end; p++)
        fleet->tokens[p] = token_at(p < client->shared ? shared : own, p);
}

/* Of everything up to the end of a page. Shared prefixes end where a page ends. */
static uint64_t page_content(const client *client, uint32_t page) {
    uint64_t end = ((uint64_t)page + 1) * KV_PAGE_TOKENS;
    return fleet_mix(client_text(client, end), page);
}

static prefix_root root_of(const client *client) {
    uint32_t key[2] = {client->tenant, client->adapter};
    return prefix_root_of(key, sizeof(key));
}

static uint32_t known_of(const client *client) {
    return client->prompt + client->tokens;
}

uint32_t replica_cached(fleet *fleet, uint32_t index, const client *client) {
    if (client->prompt > fleet->options->sched.context_max)
        return 0; /* it will be refused */
    fill_tokens(fleet, client, 0, client->prompt);
    return pages_peek(fleet->replicas[index].pages, root_of(client), fleet->tokens, client->prompt);
}

/* ---- Memory, as the scheduler sees it ---- */

/* What a replica's scheduler calls with. */
typedef struct replica_context {
    fleet *fleet;
    replica *replica;
} replica_context;

static uint32_t memory_begin(void *context, uint32_t number, uint64_t request) {
    const replica_context *own = context;
    fleet *fleet = own->fleet;
    replica_sequence *sequence = &own->replica->sequences[number];
    client *client = &fleet->clients[request - 1];
    if (sequence->client != FLEET_NONE || sequence->table.count > 0)
        fleet_wrong(fleet, "sequence %u is given away and still has pages", number);
    sequence->client = (uint32_t)(request - 1);
    sequence->root = root_of(client);
    client->sequence = number;
    uint32_t known = known_of(client);
    fill_tokens(fleet, client, 0, known);
    sequence->computed =
        pages_find(own->replica->pages, sequence->root, fleet->tokens, known, &sequence->table);
    for (uint32_t i = 0; i < sequence->table.count; i++)
        if (own->replica->content[sequence->table.pages[i]] != page_content(client, i))
            fleet_wrong(fleet, "a request gets a cached page of other tokens");
    return sequence->computed;
}

static bool memory_reserve(void *context, uint32_t number, uint32_t length) {
    const replica_context *own = context;
    if (length > own->fleet->options->sched.context_max)
        fleet_wrong(own->fleet, "%u tokens are more than a context", length);
    return pages_grow(own->replica->pages, &own->replica->sequences[number].table, length) ==
           AVO_OK;
}

static void memory_end(void *context, uint32_t number) {
    const replica_context *own = context;
    replica_sequence *sequence = &own->replica->sequences[number];
    if (sequence->client == FLEET_NONE)
        fleet_wrong(own->fleet, "sequence %u ends twice", number);
    sequence->client = FLEET_NONE;
    pages_shrink(own->replica->pages, &sequence->table, 0);
}

static uint32_t memory_available(void *context) {
    const replica_context *own = context;
    return pages_available(own->replica->pages);
}

static bool take_memory(fleet *fleet, replica *replica, replica_context **context) {
    const sched_options *options = &fleet->options->sched;
    arena *arena = &replica->arena;
    uint32_t running = options->running_max, pages = kv_pages_for(options->context_max) + 1;
    uint32_t *tables = arena_take_array(arena, (size_t)running * pages, sizeof(uint32_t));
    *context = arena_take(arena, sizeof(**context));
    replica->content = arena_take_array(arena, options->pages, sizeof(uint64_t));
    replica->sequences = arena_take_array(arena, running, sizeof(replica_sequence));
    replica->results = arena_take_array(arena, running, sizeof(sched_result));
    uint32_t residents = fleet->options->resident;
    replica->residents = arena_take_array(arena, residents, sizeof(resident));
    if (tables == NULL || *context == NULL || replica->content == NULL ||
        replica->sequences == NULL || replica->results == NULL ||
        (residents > 0 && replica->residents == NULL))
        return false;
    **context = (replica_context){fleet, replica};
    for (uint32_t i = 0; i < running; i++)
        replica->sequences[i] =
            (replica_sequence){.client = FLEET_NONE,
                               .table = {.pages = tables + (size_t)i * pages, .capacity = pages}};
    return true;
}

avo_status replica_open(fleet *fleet, uint32_t index, avo_error *error) {
    replica *replica = &fleet->replicas[index];
    const sched_options *options = &fleet->options->sched;
    replica_context *context;
    arena_init(&replica->arena, fleet->allocator, SIZE_MAX);
    if (!take_memory(fleet, replica, &context))
        return status_no_memory(error, "replica", replica->arena.used_bytes);
    sched_memory memory = {.context = context,
                           .begin = memory_begin,
                           .reserve = memory_reserve,
                           .end = memory_end,
                           .available = memory_available,
                           .page_tokens = KV_PAGE_TOKENS};
    AVO_TRY(pages_open(options->pages, fleet->allocator, &replica->pages, error));
    AVO_TRY(sched_open(options, &memory, fleet->allocator, &replica->sched, error));
    replica->speed = index < fleet->options->slow ? fleet->options->slow_factor : 1;
    return AVO_OK;
}

void replica_close(fleet *fleet, uint32_t index) {
    replica *replica = &fleet->replicas[index];
    if (replica->sched != NULL) {
        sched_counts counts = sched_count(replica->sched);
        fleet->result->preemptions += counts.preemptions;
        fleet->result->recomputed_tokens += counts.recomputed_tokens;
    }
    heap_remove(&fleet->steps, index);
    sched_close(replica->sched);
    pages_close(replica->pages);
    arena_free(&replica->arena);
    replica->sched = NULL;
    replica->pages = NULL;
    replica->step_ns = 0;
}

/* ---- Adapters ---- */

static resident *resident_find(const fleet *fleet, uint32_t index, uint32_t adapter) {
    const replica *replica = &fleet->replicas[index];
    for (uint32_t i = 0; i < fleet->options->resident; i++)
        if (replica->residents[i].adapter == adapter)
            return &replica->residents[i];
    return NULL;
}

bool replica_has(const fleet *fleet, uint32_t index, uint32_t adapter) {
    return fleet->options->resident == 0 || resident_find(fleet, index, adapter) != NULL;
}

/* The one that was not used for the longest time, of those that no request here needs. */
static resident *resident_oldest(const fleet *fleet, const replica *replica) {
    resident *oldest = NULL;
    for (uint32_t i = 0; i < fleet->options->resident; i++) {
        resident *item = &replica->residents[i];
        if (item->users == 0 && (oldest == NULL || item->used < oldest->used))
            oldest = item;
    }
    return oldest;
}

uint64_t replica_adapter(fleet *fleet, uint32_t index, uint32_t adapter) {
    replica *replica = &fleet->replicas[index];
    if (adapter == 0 || fleet->options->resident == 0)
        return fleet->now;
    fleet->result->adapter_requests++;
    resident *item = resident_find(fleet, index, adapter);
    uint64_t ready = fleet->now + fleet->options->adapter_load_ns;
    if (item == NULL) {
        fleet->result->adapter_loads++;
        item = resident_oldest(fleet, replica);
        if (item == NULL)
            return ready; /* all are in use: it is loaded for this request alone */
        *item = (resident){.adapter = adapter, .ready_ns = ready};
    }
    item->users++;
    item->used = ++fleet->router.serial;
    return item->ready_ns > fleet->now ? item->ready_ns : fleet->now;
}

void replica_adapter_leave(fleet *fleet, uint32_t index, uint32_t adapter) {
    if (adapter == 0 || fleet->options->resident == 0)
        return;
    resident *item = resident_find(fleet, index, adapter);
    if (item != NULL && item->users > 0)
        item->users--;
}

/* ---- Steps ---- */

avo_status replica_submit(fleet *fleet, uint32_t index, uint64_t *retry_ns) {
    const client *client = &fleet->clients[index];
    sched_request request = {.id = (uint64_t)index + 1,
                             .tenant = client->tenant,
                             .adapter = client->adapter,
                             .adapters = client->adapter > 0,
                             .priority = SCHED_PRIORITIES / 2,
                             .weight = 1,
                             .prompt_tokens = client->prompt,
                             .new_tokens_max = client->answer,
                             .arrival_ns = client->arrival_ns};
    return sched_submit(fleet->replicas[client->replica].sched, &request, fleet->now, retry_ns,
                        NULL);
}

static uint64_t step_time(fleet *fleet, uint32_t index) {
    replica *replica = &fleet->replicas[index];
    const simulate_machine *machine = &fleet->options->machine;
    uint64_t stream = 16 + (uint64_t)index;
    double cost = step_cost_of(&machine->cost, &replica->plan.load) * replica->speed;
    double noise = random_uniform_at(fleet->options->seed, stream, replica->draws++);
    cost *= 1 + machine->noise * (2 * noise - 1);
    if (machine->stall > 0 &&
        random_uniform_at(fleet->options->seed, stream, replica->draws++) < machine->stall)
        cost *= STALL_FACTOR;
    return (uint64_t)(cost < (double)SIMULATE_CLOCK_NS_MAX ? cost : (double)SIMULATE_CLOCK_NS_MAX) +
           1;
}

/* Rows continue where the sequence stands, and the last one draws. */
static void check_entry(fleet *fleet, const replica *replica, const sched_entry *entry) {
    const replica_sequence *sequence = &replica->sequences[entry->sequence];
    uint32_t index = (uint32_t)(entry->request - 1);
    if (sequence->client != index || fleet->clients[index].sequence != entry->sequence) {
        fleet_wrong(fleet, "a plan gives sequence %u to another request", entry->sequence);
        return;
    }
    uint32_t known = known_of(&fleet->clients[index]), end = entry->first + entry->rows;
    if (entry->first != sequence->computed || entry->rows == 0 || end > known ||
        entry->draws != (end == known))
        fleet_wrong(fleet, "rows %u to %u are planned where %u of %u are computed", entry->first,
                    end, sequence->computed, known);
    if (kv_pages_for(end) > sequence->table.count)
        fleet_wrong(fleet, "rows up to %u are planned with %u pages", end, sequence->table.count);
}

static void check_plan(fleet *fleet, const replica *replica) {
    const sched_plan *plan = &replica->plan;
    const sched_options *options = &fleet->options->sched;
    if (plan->end_count > 0)
        fleet_wrong(fleet, "a plan ends %u requests, none of which was cancelled", plan->end_count);
    if (plan->entry_count == 0 && !sched_idle(replica->sched))
        fleet_wrong(fleet, "something waits and nothing is done");
    if (step_load_rows(&plan->load) > options->rows_max || plan->entry_count > options->running_max)
        fleet_wrong(fleet, "a step has %u rows", step_load_rows(&plan->load));
    for (uint32_t i = 0; i < plan->entry_count; i++)
        check_entry(fleet, replica, &plan->entries[i]);
    if (!fleet->options->check)
        return;
    const char *fault = sched_check(replica->sched);
    fault = fault != NULL ? fault : pages_check(replica->pages);
    if (fault != NULL)
        fleet_wrong(fleet, "%s", fault);
}

/* The first rows of a request. */
static void client_begins(fleet *fleet, const sched_entry *entry) {
    client *client = &fleet->clients[entry->request - 1];
    if (client->begin_ns > 0)
        return;
    client->begin_ns = fleet->now;
    report_add(&fleet->result->metric[REPORT_QUEUE], fleet->now - client->arrival_ns);
    fleet->result->prompt_tokens += client->prompt;
    fleet->result->reused_tokens += entry->first;
}

void replica_plan(fleet *fleet, uint32_t index) {
    replica *replica = &fleet->replicas[index];
    if (replica->step_ns > 0 || fleet_stops(fleet))
        return;
    sched_plan_side(replica->sched, SCHED_BOTH, fleet->now, &replica->plan);
    check_plan(fleet, replica);
    if (replica->plan.entry_count == 0 || fleet_stops(fleet))
        return;
    for (uint32_t i = 0; i < replica->plan.entry_count; i++)
        client_begins(fleet, &replica->plan.entries[i]);
    replica->taken_ns = step_time(fleet, index);
    replica->step_ns = fleet->now + replica->taken_ns;
    heap_put(&fleet->steps, index);
}

/* The rows are in memory; full pages can be found by others. An older page with the same tokens
 * may take the place of ours. */
static void step_entry(fleet *fleet, replica *replica, const sched_entry *entry) {
    replica_sequence *sequence = &replica->sequences[entry->sequence];
    const client *client = &fleet->clients[entry->request - 1];
    uint32_t before = sequence->table.indexed, end = entry->first + entry->rows;
    uint32_t full = end / KV_PAGE_TOKENS;
    sequence->computed = end;
    if (full > before) {
        fill_tokens(fleet, client, before * KV_PAGE_TOKENS, full * KV_PAGE_TOKENS);
        for (uint32_t page = before; page < full; page++)
            replica->content[sequence->table.pages[page]] = page_content(client, page);
        pages_index(replica->pages, sequence->root, fleet->tokens, end, &sequence->table);
        for (uint32_t page = before; page < full; page++)
            if (replica->content[sequence->table.pages[page]] != page_content(client, page))
                fleet_wrong(fleet, "a request got a page of other tokens from the index");
    }
}

void replica_step_ends(fleet *fleet, uint32_t index) {
    replica *replica = &fleet->replicas[index];
    const sched_plan *plan = &replica->plan;
    heap_remove(&fleet->steps, index);
    replica->step_ns = 0;
    replica->busy_s += (double)replica->taken_ns * 1e-9;
    fleet->result->steps++;
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        const client *client = &fleet->clients[entry->request - 1];
        step_entry(fleet, replica, entry);
        replica->results[i] = (sched_result){.accepted = entry->draws};
        if (entry->draws) {
            client_token(fleet, (uint32_t)(entry->request - 1));
            replica->results[i].finished = client->tokens == client->answer;
        }
    }
    if (fleet_stops(fleet))
        return;
    step_cost_learn(sched_cost_model(replica->sched, SCHED_BOTH), &plan->load,
                    (double)replica->taken_ns);
    const sched_end *ends = NULL;
    uint32_t end_count = 0;
    sched_step_done(replica->sched, plan, replica->results, fleet->now, &ends, &end_count);
    for (uint32_t i = 0; i < end_count; i++) {
        if (ends[i].outcome != SCHED_FINISHED)
            fleet_wrong(fleet, "a request ends as %d", (int)ends[i].outcome);
        client_finish(fleet, (uint32_t)(ends[i].request - 1));
    }
    replica_plan(fleet, index);
    if (replica->open == 0)
        life_idle(fleet, index);
}
