/* What comes: small worlds full of trouble for the seeds, and requests of many users of many
 * adapters. All of it is a function of the seed. */
#include "sched/simulate.h"

#include "base/allocator.h"
#include "base/status.h"
#include "device/layer.h"
#include "sched/dice.h"

/* ---- Seeds ---- */

typedef struct seed_shape {
    double gap_ns; /* between arrivals, mean */
    double burst;  /* probability that the next comes at once */
    uint32_t tenants, adapters, groups;
    uint32_t prompt_max, answer_max;
    uint32_t budgets[8]; /* of tenants */
    double deadlines, cancels, failures, scored, no_answer;
    double step_ns;
} seed_shape;

/* With a bend or two, as real ones have. */
static step_cost seed_cost(dice *dice) {
    double step = 1e6 * dice_between(dice, 1, 20);
    step_cost cost = {.context_token = step * 2e-4 * dice_uniform(dice),
                      .adapter = step * 0.1 * dice_uniform(dice),
                      .scored_row = step * 0.2 * dice_uniform(dice)};
    cost.draft_token = cost.context_token * dice_uniform(dice);
    step_cost_line(&cost, step, step * 0.05 * dice_uniform(dice),
                   step * 0.1 * (0.1 + dice_uniform(dice)));
    for (uint32_t i = 1; i < STEP_COST_POINTS; i++)
        if (dice_chance(dice, 0.2))
            cost.step[i] *= 0.9 + 0.5 * dice_uniform(dice);
    return cost;
}

static void seed_options(dice *dice, simulate_options *options, seed_shape *shape) {
    step_cost cost = seed_cost(dice);
    uint32_t context = dice_between(dice, 2, 10) * KV_PAGE_TOKENS;
    uint32_t running = dice_between(dice, 1, 10);
    uint32_t pages_one = context / KV_PAGE_TOKENS;
    uint32_t beyond = dice_chance(dice, 0.5);
    options->beyond = beyond;
    sched_options *sched = &options->sched;
    *sched = (sched_options){
        .running_max = running,
        .rows_max = dice_between(dice, running, 150),
        .waiting_max = dice_between(dice, 4, 40),
        .waiting_tokens_max = dice_between(dice, 1, 30) * (uint64_t)context,
        .pages = dice_between(dice, pages_one, pages_one * (running + 1)) + beyond,
        .context_max = context + beyond,
        .target_ns =
            dice_chance(dice, 0.3) ? 0 : (uint64_t)(cost.step[0] * (0.5 + 6 * dice_uniform(dice))),
        .ageing_ns =
            dice_chance(dice, 0.2) ? 0 : (uint64_t)(cost.step[0] * dice_between(dice, 1, 60)),
        .chunk_min = dice_between(dice, 1, 24),
        .adapters_max = dice_chance(dice, 0.5) ? 0 : dice_between(dice, 2, 4),
        .cost = cost};
    options->machine = (simulate_machine){.cost = cost,
                                          .noise = 0.3 * dice_uniform(dice),
                                          .stall = dice_chance(dice, 0.3) ? 0.02 : 0,
                                          .cores = 2,
                                          .decode_cores = 1,
                                          .core_bandwidth = 0.7};
    if (dice_chance(dice, 0.5)) { /* it does not know what a step costs */
        options->learn = true;
        sched->trust_steps = 8;
        double step = 0.2 + 3 * dice_uniform(dice), row = 0.2 + 3 * dice_uniform(dice);
        for (uint32_t i = 0; i < STEP_COST_POINTS; i++)
            sched->cost.step[i] = step * cost.step[0] + row * (cost.step[i] - cost.step[0]);
    }
    options->check = true;
    options->retry = dice_chance(dice, 0.5);
    options->shortage = dice_chance(dice, 0.2) ? 0.02 : 0;
    options->fair = dice_chance(dice, 0.35);
    simulate_machine *machine = &options->machine;
    machine->split = dice_chance(dice, 0.5)   ? CORES_MIXED
                     : dice_chance(dice, 0.5) ? CORES_STATIC
                                              : CORES_ADAPTIVE;
    machine->cores = dice_between(dice, 2, 5);
    machine->decode_cores = dice_between(dice, 1, machine->cores - 1);
    shape->step_ns = cost.step[0];
    if (dice_chance(dice, 0.5)) { /* draft tokens */
        sched->drafts_max = dice_between(dice, 1, 6);
        sched->logits_max = dice_between(dice, running, running * (1 + sched->drafts_max));
        options->accept = dice_uniform(dice);
    }
}

static void seed_shape_of(dice *dice, simulate_options *options, seed_shape *shape) {
    uint32_t context = options->sched.context_max;
    shape->tenants = dice_between(dice, 1, options->fair ? 4 : 8);
    shape->adapters = dice_between(dice, 0, options->fair ? 3 : 8);
    shape->groups = dice_between(dice, 1, 4);
    shape->prompt_max =
        dice_between(dice, 1, options->fair && dice_chance(dice, 0.5) ? 40 : context - 1);
    shape->answer_max = dice_between(dice, 1, 40);
    if (dice_chance(dice, 0.3)) { /* answers that outgrow a small pool, which preempts */
        shape->prompt_max = dice_between(dice, 1, context / 4 + 1);
        shape->answer_max = dice_between(dice, context / 2, context);
        uint32_t one = context / KV_PAGE_TOKENS + 1;
        options->sched.pages = dice_between(dice, one, 2 * one);
    }
    for (uint32_t i = 0; i < shape->tenants && !options->fair; i++)
        shape->budgets[i] =
            dice_chance(dice, 0.3) ? dice_between(dice, 1, 3 * context / KV_PAGE_TOKENS) : 0;
    shape->deadlines = dice_chance(dice, 0.5) ? 0.4 * dice_uniform(dice) : 0;
    shape->cancels = dice_chance(dice, 0.5) ? 0.4 * dice_uniform(dice) : 0;
    shape->failures = dice_chance(dice, 0.2) ? 0.1 : 0;
    shape->scored = dice_chance(dice, 0.3) ? 0.5 * dice_uniform(dice) : 0;
    shape->no_answer = dice_chance(dice, 0.3) ? 0.5 * dice_uniform(dice) : 0;
    shape->burst = dice_chance(dice, 0.5) ? 0.9 * dice_uniform(dice) : 0;
    /* From half of what can be done to five times as much. */
    double work = step_cost_step(&options->machine.cost, shape->prompt_max / 2 + 1) +
                  shape->step_ns * shape->answer_max / 2 / options->sched.running_max;
    shape->gap_ns = work / (0.5 + 4.5 * dice_uniform(dice));
}

/* Ranks 0…count − 1, the first most often. */
static uint32_t skewed(dice *dice, uint32_t count) {
    double u = dice_uniform(dice);
    uint32_t rank = (uint32_t)(count * u * u);
    return rank < count ? rank : count - 1;
}

static void seed_trouble(dice *dice, const seed_shape *shape, simulate_item *item) {
    if (dice_chance(dice, shape->deadlines))
        item->first_deadline_ns = (uint64_t)dice_exponential(dice, 40 * shape->step_ns) + 1;
    if (dice_chance(dice, shape->deadlines))
        item->deadline_ns = (uint64_t)dice_exponential(dice, 100 * shape->step_ns) + 1;
    if (dice_chance(dice, shape->cancels)) {
        if (dice_chance(dice, 0.5))
            item->cancel_ns = (uint64_t)dice_exponential(dice, 20 * shape->step_ns) + 1;
        else
            item->gone_at = dice_between(dice, 1, 10);
    }
    if (dice_chance(dice, shape->failures))
        item->fails_at = dice_between(dice, 1, 10);
}

static void seed_item(dice *dice, const simulate_options *options, const seed_shape *shape,
                      simulate_item *item) {
    uint32_t context = options->sched.context_max;
    uint32_t adapters_max = options->sched.adapters_max;
    item->tenant = skewed(dice, shape->tenants);
    item->weight = options->fair ? (float)(1 + item->tenant % 3) : 1.0f;
    item->budget = shape->budgets[item->tenant];
    item->adapter = shape->adapters == 0 ? 0 : skewed(dice, shape->adapters + 1);
    item->adapters = item->adapter == 0 ? 0 : item->adapter % 5 == 4 && adapters_max != 1 ? 2 : 1;
    item->priority = options->fair ? 0 : dice_chance(dice, 0.5) ? 8 : dice_between(dice, 0, 15);
    item->prompt_tokens = dice_between(dice, 1, shape->prompt_max);
    uint32_t left = context - item->prompt_tokens;
    uint32_t most = shape->answer_max < left ? shape->answer_max : left;
    item->new_tokens_max = dice_between(dice, 1, most);
    item->answer_tokens = dice_chance(dice, 0.5) ? UINT32_MAX : dice_between(dice, 1, most);
    item->prefix_group = dice_between(dice, 1, shape->groups);
    item->prefix_tokens = dice_chance(dice, 0.4) ? dice_between(dice, 0, item->prompt_tokens) : 0;
    item->scored = dice_chance(dice, shape->scored);
    seed_trouble(dice, shape, item);
    if (!dice_chance(dice, shape->no_answer))
        return;
    item->no_answer = true;
    item->new_tokens_max = item->answer_tokens = item->fails_at = item->gone_at = 0;
}

uint32_t simulate_seed(uint64_t seed, simulate_options *options,
                       simulate_item items[SIMULATE_SEED_REQUESTS_MAX]) {
    dice dice = {seed, 0};
    seed_shape shape = {0};
    *options = (simulate_options){.seed = seed};
    seed_options(&dice, options, &shape);
    seed_shape_of(&dice, options, &shape);
    uint32_t count = dice_between(&dice, 20, SIMULATE_SEED_REQUESTS_MAX);
    double time = 1;
    for (uint32_t i = 0; i < count; i++) {
        items[i] = (simulate_item){.arrival_ns = (uint64_t)time};
        seed_item(&dice, options, &shape, &items[i]);
        if (!dice_chance(&dice, shape.burst))
            time += dice_exponential(&dice, shape.gap_ns / (1 - shape.burst));
    }
    return count;
}

/* ---- Zipf ---- */

avo_status simulate_arrival(double time_ns, uint32_t index, simulate_item *item, avo_error *error) {
    if (!(time_ns <= (double)SIMULATE_ARRIVAL_NS_MAX))
        return status_fail(error, AVO_ERROR_LIMIT,
                           "request %u would arrive after %.3g seconds, must be within %.3g; use "
                           "fewer or faster requests",
                           index + 1, time_ns * 1e-9, (double)SIMULATE_ARRIVAL_NS_MAX * 1e-9);
    item->arrival_ns = (uint64_t)time_ns;
    return AVO_OK;
}

static avo_status zipf_fill(const simulate_zipf *zipf, const double *sums, simulate_item *items,
                            uint32_t count, avo_error *error) {
    dice dice = {zipf->seed, 0};
    double time = 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t prompt = dice_length(&dice, zipf->prompt_mean, zipf->context_max * 3 / 4);
        uint32_t answer = dice_length(&dice, zipf->answer_mean, zipf->context_max / 4);
        uint32_t adapter = zipf->adapters > 0 ? dice_zipf(&dice, sums, zipf->adapters) : 0;
        items[i] = (simulate_item){.tenant = dice_between(&dice, 0, zipf->tenants - 1),
                                   .adapter = adapter,
                                   .adapters = adapter > 0,
                                   .priority = 8,
                                   .weight = 1,
                                   .prompt_tokens = prompt,
                                   .new_tokens_max = answer,
                                   .answer_tokens = UINT32_MAX};
        AVO_TRY(simulate_arrival(time, i, &items[i], error));
        time += dice_exponential(&dice, 1e9 / zipf->rate);
    }
    return AVO_OK;
}

avo_status simulate_zipf_fill(const simulate_zipf *zipf, simulate_item *items, uint32_t count,
                              avo_error *error) {
    size_t bytes = zipf->adapters * sizeof(double);
    double *sums = allocator_take(NULL, bytes);
    if (sums == NULL && zipf->adapters > 0)
        return status_no_memory(error, "the weights of adapters", bytes);
    dice_zipf_sums(zipf->exponent, sums, zipf->adapters);
    avo_status status = zipf_fill(zipf, sums, items, count, error);
    allocator_give(NULL, sums, bytes);
    return status;
}
