/* Who comes: conversations, drawn when they begin, and their turns. */
#include "sched/fleet_int.h"

#define DRAWS_A_TURN                                                                               \
    16 /* random numbers kept for each turn, so that turns do not depend on others */

static dice turn_dice(const fleet_stream *stream, const client *client) {
    return (dice){fleet_mix(stream->load->seed, client->conversation),
                  (uint64_t)client->turn * DRAWS_A_TURN};
}

static avo_status take_sums(double exponent, uint32_t count, arena *arena, double **sums,
                            avo_error *error) {
    if (count == 0)
        return AVO_OK;
    *sums = arena_take_array(arena, count, sizeof(double));
    if (*sums == NULL)
        return status_no_memory(error, "weights of adapters and prefixes", count * sizeof(double));
    dice_zipf_sums(exponent, *sums, count);
    return AVO_OK;
}

avo_status stream_open(fleet_stream *stream, const fleet_load *load, uint32_t context_max,
                       arena *arena, avo_error *error) {
    *stream = (fleet_stream){.load = load,
                             .context_max = context_max,
                             .time_ns = 1,
                             .arrivals = {fleet_mix(load->seed, 0), 0}};
    AVO_TRY(take_sums(load->zipf, load->adapters, arena, &stream->adapter_sums, error));
    return take_sums(load->zipf, load->prefix_tokens > 0 ? load->prefixes : 0, arena,
                     &stream->prefix_sums, error);
}

/* Lengths as the load says; what a context has no place for is made shorter. */
static void draw_lengths(const fleet_stream *stream, dice *dice, uint32_t before, client *client) {
    const fleet_load *load = stream->load;
    uint32_t most = stream->context_max - stream->context_max / 4;
    uint32_t left = before < most ? most - before : 1;
    client->prompt = before + dice_length(dice, load->prompt_mean, left);
    uint32_t answer_max = stream->context_max / 4;
    client->answer = dice_length(dice, load->answer_mean, answer_max > 0 ? answer_max : 1);
}

/* A trace that is over begins again, a mean interval after its last line. */
static double trace_time(const fleet_load *load, uint64_t number) {
    uint32_t count = load->trace_count;
    double last = (double)load->trace[count - 1].arrival_ns;
    double round = last * (count > 1 ? (double)count / (count - 1) : 2);
    return (double)(number / count) * round + (double)load->trace[number % count].arrival_ns;
}

bool stream_next(fleet_stream *stream, client *client) {
    const fleet_load *load = stream->load;
    if (stream->requests >= load->requests)
        return false;
    uint64_t number = stream->conversations++;
    *client = (struct client){.conversation = number + 1, .replica = FLEET_NONE};
    dice dice = turn_dice(stream, client);
    client->tenant = dice_between(&dice, 0, load->tenants - 1);
    if (load->adapters > 0)
        client->adapter = dice_zipf(&dice, stream->adapter_sums, load->adapters);
    if (stream->prefix_sums != NULL) {
        client->prefix = dice_zipf(&dice, stream->prefix_sums, load->prefixes);
        client->shared = load->prefix_tokens - load->prefix_tokens % KV_PAGE_TOKENS;
    }
    if (load->trace != NULL) {
        const simulate_item *item = &load->trace[number % load->trace_count];
        client->prompt = item->prompt_tokens;
        client->answer = item->new_tokens_max;
        if (client->shared >= client->prompt)
            client->shared = (client->prompt - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        stream->time_ns = trace_time(load, number);
    } else {
        draw_lengths(stream, &dice, client->shared, client);
        stream->time_ns += dice_exponential(&stream->arrivals, 1e9 * load->turns / load->rate);
    }
    stream->requests++;
    client->event_ns = stream->time_ns < (double)SIMULATE_ARRIVAL_NS_MAX
                           ? (uint64_t)stream->time_ns
                           : SIMULATE_ARRIVAL_NS_MAX + 1;
    return true;
}

bool stream_turn(fleet_stream *stream, client *client, uint64_t now_ns) {
    const fleet_load *load = stream->load;
    uint32_t history = client->prompt + client->tokens;
    client->turn++;
    dice dice = turn_dice(stream, client);
    if (stream->requests >= load->requests || !dice_chance(&dice, 1 - 1 / load->turns))
        return false;
    struct client next = *client;
    draw_lengths(stream, &dice, history, &next);
    if ((uint64_t)next.prompt + next.answer > stream->context_max || next.prompt <= history)
        return false; /* the context is full */
    double think_ns = dice_exponential(&dice, 1e9 * load->think_s);
    client->history = history;
    client->prompt = next.prompt;
    client->answer = next.answer;
    client->tokens = client->tries = 0;
    client->begun = false;
    client->begin_ns = client->first_ns = client->last_ns = 0;
    client->event_ns = think_ns < (double)SIMULATE_ARRIVAL_NS_MAX ? now_ns + (uint64_t)think_ns
                                                                  : SIMULATE_ARRIVAL_NS_MAX + 1;
    stream->requests++;
    return true;
}

/* ---- Seeds ---- */

static void seed_load(dice *dice, fleet_load *load, double step_s) {
    *load = (fleet_load){.requests = dice_between(dice, 50, 600),
                         .seed = dice_between(dice, 1, 1u << 30),
                         .prompt_mean = dice_between(dice, 1, 120),
                         .answer_mean = dice_between(dice, 1, dice_chance(dice, 0.3) ? 200 : 30),
                         .turns = dice_chance(dice, 0.5) ? 1 + 4 * dice_uniform(dice) : 1,
                         .think_s = 100 * step_s * dice_uniform(dice),
                         .tenants = dice_between(dice, 1, 3),
                         .adapters = dice_chance(dice, 0.5) ? dice_between(dice, 1, 20) : 0,
                         .zipf = 1.5 * dice_uniform(dice),
                         .prefixes = dice_between(dice, 1, 4),
                         .prefix_tokens = dice_chance(dice, 0.5) ? dice_between(dice, 1, 100) : 0};
}

void fleet_seed(uint64_t seed, fleet_options *options) {
    dice dice = {seed, 0};
    double step = 1e6 * dice_between(&dice, 1, 20);
    step_cost cost = {.context_token = step * 2e-4 * dice_uniform(&dice),
                      .adapter = step * 0.1 * dice_uniform(&dice)};
    step_cost_line(&cost, step, step * 0.05 * dice_uniform(&dice),
                   step * 0.1 * (0.1 + dice_uniform(&dice)));
    uint32_t running = dice_between(&dice, 1, 8), context = dice_between(&dice, 256, 1024);
    uint32_t least = kv_pages_for(context) + 1;
    *options = (fleet_options){.seed = seed, .check = true, .replicas = dice_between(&dice, 1, 12)};
    options->router = (fleet_router)dice_between(&dice, 0, FLEET_ROUTERS - 1);
    options->sched =
        (sched_options){.running_max = running,
                        .rows_max = dice_between(&dice, running, 64 + running),
                        .waiting_max = dice_between(&dice, 1, 20),
                        .waiting_tokens_max = UINT64_MAX / 4,
                        .pages = dice_between(&dice, least, 4 * least),
                        .context_max = context,
                        .target_ns = dice_chance(&dice, 0.5) ? (uint64_t)(4 * step) : 0,
                        .ageing_ns = 1000000000,
                        .chunk_min = dice_between(&dice, 1, 16),
                        .cost = cost};
    options->machine = (simulate_machine){.cost = cost,
                                          .noise = 0.3 * dice_uniform(&dice),
                                          .cores = 1,
                                          .stall = dice_chance(&dice, 0.2) ? 0.01 : 0,
                                          .core_bandwidth = 1};
    seed_load(&dice, &options->load, step * 1e-9);
    /* From half of what can be done to five times as much. */
    double work = step_cost_step(&cost, options->load.prompt_mean) +
                  step * options->load.answer_mean / running;
    options->load.rate = options->replicas * (0.5 + 4.5 * dice_uniform(&dice)) / (work * 1e-9);
    double span = (double)options->load.requests / options->load.rate;
    options->retry = dice_chance(&dice, 0.5);
    options->resident = dice_chance(&dice, 0.7) ? dice_between(&dice, 1, 6) : 0;
    options->adapter_load_ns = (uint64_t)(20 * step * dice_uniform(&dice));
    options->load_gap = dice_between(&dice, 0, 8);
    options->match_min = 0.3 * dice_uniform(&dice);
    options->index_bytes = dice_between(&dice, 1, 1 << 16);
    options->slow = dice_chance(&dice, 0.3) ? dice_between(&dice, 0, options->replicas) : 0;
    options->slow_factor = 1 + 4 * dice_uniform(&dice);
    options->mtbf_s = dice_chance(&dice, 0.5) ? span * (0.2 + dice_uniform(&dice)) : 0;
    options->restart_s = 0.3 * span * dice_uniform(&dice);
    options->scale_min = dice_chance(&dice, 0.4) ? dice_between(&dice, 1, options->replicas) : 0;
    options->scale_target = 0.5 + 8 * dice_uniform(&dice);
    options->scale_s = 0.02 * span + 1e-6;
    options->scale_down_s = 0.1 * span * dice_uniform(&dice);
    options->boot_s = 0.1 * span * dice_uniform(&dice);
}
