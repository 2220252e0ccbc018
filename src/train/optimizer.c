/* AdamW, clipping and the choice of optimizer by role. Parameters are divided into blocks of fixed
 * size, which workers take in any order: an element depends on its own gradient alone, and the
 * global norm is a sum of the blocks' sums in their order. */
#include "train/optimizer.h"

#include "base/mathd.h"
#include "train/muon.h"

#include <math.h>
#include <string.h>

#define BLOCK 16384 /* numbers */

/* Part of one parameter. */
typedef struct block {
    uint32_t parameter, count;
    uint64_t offset;
} block;

struct optimizer {
    optimizer_options options;
    const train_parameters *parameters;
    float *moments;   /* first moments (or Muon's momentum) of all parameters, then second ones */
    uint64_t *first;  /* [count] where a parameter's first moment begins in `moments` */
    uint64_t *second; /* [count] UINT64_MAX: it has none (Muon) */
    uint64_t moment_count;
    block *blocks;
    double *sums; /* [block_count] */
    uint32_t block_count;
    muon *muon; /* NULL: no parameter uses it */
};

/* What the workers of a step see. */
typedef struct step_context {
    optimizer *optimizer;
    double rate, correction1, correction2; /* 1 − βⁿ */
    float scale;                           /* of gradients, for clipping */
} step_context;

static bool uses_muon(const optimizer_options *options, const train_parameter *parameter) {
    return options->kind == OPTIMIZER_MUON && parameter->role == TRAIN_MATRIX;
}

static uint64_t numbers_of(const train_parameter *parameter) {
    return (uint64_t)parameter->rows * parameter->k;
}

static uint64_t blocks_of(const train_parameters *parameters) {
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < parameters->count; i++)
        blocks += (numbers_of(&parameters->item[i]) + BLOCK - 1) / BLOCK;
    return blocks;
}

static uint64_t moments_of(const optimizer_options *options, const train_parameters *parameters) {
    uint64_t numbers = 0;
    for (uint32_t i = 0; i < parameters->count; i++)
        numbers +=
            numbers_of(&parameters->item[i]) * (uses_muon(options, &parameters->item[i]) ? 1 : 2);
    return numbers;
}

uint64_t optimizer_bytes(const optimizer_options *options, const train_parameters *parameters) {
    uint64_t muon_bytes = 0;
    if (options->kind == OPTIMIZER_MUON)
        muon_bytes = muon_scratch_bytes(parameters);
    return sizeof(optimizer) + moments_of(options, parameters) * sizeof(float) +
           blocks_of(parameters) * (sizeof(block) + sizeof(double)) +
           (uint64_t)parameters->count * 2 * sizeof(uint64_t) + muon_bytes;
}

/* ---- Opening ---- */

static void lay_out(optimizer *o) {
    uint64_t at = 0;
    uint32_t b = 0;
    for (uint32_t i = 0; i < o->parameters->count; i++) {
        const train_parameter *parameter = &o->parameters->item[i];
        uint64_t numbers = numbers_of(parameter);
        o->first[i] = at;
        o->second[i] = UINT64_MAX;
        at += numbers;
        if (!uses_muon(&o->options, parameter)) {
            o->second[i] = at;
            at += numbers;
        }
        for (uint64_t offset = 0; offset < numbers; offset += BLOCK, b++) {
            uint64_t left = numbers - offset;
            o->blocks[b] = (block){i, (uint32_t)(left < BLOCK ? left : BLOCK), offset};
        }
    }
}

avo_status optimizer_open(const optimizer_options *options, const train_parameters *parameters,
                          optimizer **out, avo_error *error) {
    *out = NULL;
    uint64_t blocks = blocks_of(parameters), moments = moments_of(options, parameters);
    if (blocks > TEAM_ITEMS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%llu parameters are too many to train",
                           (unsigned long long)parameters->numbers);
    optimizer *o = allocator_take(options->allocator, sizeof(*o));
    if (o == NULL)
        return status_no_memory(error, "the optimizer", sizeof(*o));
    *o = (optimizer){.options = *options,
                     .parameters = parameters,
                     .moment_count = moments,
                     .block_count = (uint32_t)blocks};
    size_t count = parameters->count;
    o->first = allocator_take_array(options->allocator, count, sizeof(*o->first));
    o->second = allocator_take_array(options->allocator, count, sizeof(*o->second));
    o->blocks = allocator_take_array(options->allocator, blocks, sizeof(*o->blocks));
    o->sums = allocator_take_array(options->allocator, blocks, sizeof(*o->sums));
    o->moments = allocator_take_array(options->allocator, moments, sizeof(*o->moments));
    avo_status status = AVO_OK;
    if (o->first == NULL || o->second == NULL || o->blocks == NULL || o->sums == NULL ||
        o->moments == NULL)
        status = status_no_memory(error, "the optimizer's moments", moments * sizeof(float));
    if (status == AVO_OK && options->kind == OPTIMIZER_MUON)
        status = muon_open(options->allocator, options->team, parameters, &o->muon, error);
    if (status != AVO_OK) {
        optimizer_close(o);
        return status;
    }
    lay_out(o);
    *out = o;
    return AVO_OK;
}

void optimizer_close(optimizer *o) {
    if (o == NULL)
        return;
    const avo_allocator *allocator = o->options.allocator;
    size_t count = o->parameters->count;
    muon_close(o->muon);
    allocator_give(allocator, o->first, count * sizeof(*o->first));
    allocator_give(allocator, o->second, count * sizeof(*o->second));
    allocator_give(allocator, o->blocks, o->block_count * sizeof(*o->blocks));
    allocator_give(allocator, o->sums, o->block_count * sizeof(*o->sums));
    allocator_give(allocator, o->moments, o->moment_count * sizeof(*o->moments));
    allocator_give(allocator, o, sizeof(*o));
}

/* ---- The norm ---- */

/* Eight sums by position modulo eight, added in one order: fast, and independent of the compiler's
 * choice of vectors. */
static double sum_of_squares(const float *values, uint32_t count) {
    double sums[8] = {0};
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (uint32_t j = 0; j < 8; j++)
            sums[j] += (double)values[i + j] * (double)values[i + j];
    for (uint32_t j = 0; i + j < count; j++)
        sums[j] += (double)values[i + j] * (double)values[i + j];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

static void norm_items(const void *context, uint32_t argument, team_items *items) {
    (void)argument;
    optimizer *o = ((const step_context *)context)->optimizer;
    uint32_t item;
    while (team_take(items, &item)) {
        const block *b = &o->blocks[item];
        const float *gradient = o->parameters->item[b->parameter].gradient + b->offset;
        o->sums[item] = sum_of_squares(gradient, b->count);
    }
}

/* ---- AdamW ---- */

typedef struct adam_numbers {
    float decay;                 /* 1 − rate · weight decay */
    float weight1, beta2, rest2; /* 1 − β1, β2, 1 − β2 */
    float root2, epsilon, rate;  /* √(1 − β2ⁿ), ε, −rate ÷ (1 − β1ⁿ) */
    float scale;
} adam_numbers;

static void adam_update(float *value, const float *gradient, float *first, float *second,
                        uint32_t count, const adam_numbers *n) {
    for (uint32_t i = 0; i < count; i++) {
        float g = gradient[i] * n->scale;
        float m = first[i] + (g - first[i]) * n->weight1;
        float v = second[i] * n->beta2 + n->rest2 * g * g;
        float root = sqrtf(v) / n->root2 + n->epsilon;
        first[i] = m;
        second[i] = v;
        value[i] = value[i] * n->decay + n->rate * (m / root);
    }
}

static double rate_of(const optimizer_options *options, const train_parameter *parameter,
                      double rate) {
    return parameter->role == TRAIN_LORA_B ? rate * options->lora_plus : rate;
}

static double decay_of(const optimizer_options *options, const train_parameter *parameter) {
    bool decays = parameter->role == TRAIN_LORA_A || parameter->role == TRAIN_LORA_B ||
                  parameter->role == TRAIN_MATRIX;
    return decays ? options->weight_decay : 0.0;
}

static void adam_items(const void *context, uint32_t argument, team_items *items) {
    (void)argument;
    const step_context *c = context;
    optimizer *o = c->optimizer;
    const optimizer_options *options = &o->options;
    uint32_t item;
    while (team_take(items, &item)) {
        const block *b = &o->blocks[item];
        const train_parameter *parameter = &o->parameters->item[b->parameter];
        if (o->second[b->parameter] == UINT64_MAX)
            continue; /* Muon's */
        double rate = rate_of(options, parameter, c->rate);
        adam_numbers numbers = {.decay = (float)(1.0 - rate * decay_of(options, parameter)),
                                .weight1 = (float)(1.0 - options->beta1),
                                .beta2 = (float)options->beta2,
                                .rest2 = (float)(1.0 - options->beta2),
                                .root2 = (float)sqrt(c->correction2),
                                .epsilon = (float)options->epsilon,
                                .rate = (float)-(rate / c->correction1),
                                .scale = c->scale};
        adam_update(parameter->value + b->offset, parameter->gradient + b->offset,
                    o->moments + o->first[b->parameter] + b->offset,
                    o->moments + o->second[b->parameter] + b->offset, b->count, &numbers);
    }
}

/* ---- The step ---- */

static void run_blocks(const step_context *c, team_compute compute) {
    optimizer *o = c->optimizer;
    team_phase phase = {.compute = compute, .items = o->block_count};
    team_run(o->options.team, &phase, 1, c);
}

static avo_status find_not_finite(const optimizer *o, avo_error *error) {
    for (uint32_t b = 0; b < o->block_count; b++)
        if (!isfinite(o->sums[b]))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "the gradient of %s is not finite (NaN or infinity); lower the "
                               "learning rate",
                               o->parameters->item[o->blocks[b].parameter].name);
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "the norm of the gradients is not finite; lower the learning rate");
}

static void run_muon(const step_context *c) {
    optimizer *o = c->optimizer;
    for (uint32_t i = 0; i < o->parameters->count; i++) {
        const train_parameter *parameter = &o->parameters->item[i];
        if (o->second[i] != UINT64_MAX)
            continue;
        muon_step step = {.momentum = (float)o->options.momentum,
                          .rate = c->rate * o->options.muon_rate,
                          .weight_decay = o->options.weight_decay,
                          .scale = c->scale};
        muon_update(o->muon, parameter, o->moments + o->first[i], &step);
    }
}

avo_status optimizer_step(optimizer *o, uint64_t step, double rate, double *norm,
                          avo_error *error) {
    const optimizer_options *options = &o->options;
    step_context context = {.optimizer = o, .rate = rate, .scale = 1.0f};
    run_blocks(&context, norm_items);
    double sum = 0.0;
    for (uint32_t b = 0; b < o->block_count; b++)
        sum += o->sums[b];
    *norm = sqrt(sum);
    if (!isfinite(*norm))
        return find_not_finite(o, error);
    /* torch.nn.utils.clip_grad_norm_ */
    if (options->clip > 0.0 && options->clip / (*norm + 1e-6) < 1.0)
        context.scale = (float)(options->clip / (*norm + 1e-6));
    context.correction1 = 1.0 - mathd_power(options->beta1, (double)step);
    context.correction2 = 1.0 - mathd_power(options->beta2, (double)step);
    run_blocks(&context, adam_items);
    if (o->muon != NULL)
        run_muon(&context);
    return AVO_OK;
}

bool optimizer_state_at(optimizer *o, uint32_t index, optimizer_state *state) {
    uint32_t count = o->parameters->count;
    if (index >= 2 * count)
        return false;
    bool second = index >= count;
    uint32_t i = second ? index - count : index;
    uint64_t at = second ? o->second[i] : o->first[i];
    const char *first_kind = o->second[i] == UINT64_MAX ? "momentum_buffer" : "exp_avg";
    *state = (optimizer_state){.kind = second ? "exp_avg_sq" : first_kind,
                               .parameter = &o->parameters->item[i],
                               .data = at == UINT64_MAX ? NULL : o->moments + at};
    return true;
}
