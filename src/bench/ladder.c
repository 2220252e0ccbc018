/* The lower rungs of the ladder (docs/ladder.md), which no engine climbs any more: plain loops, and
 * the fast operations one after the other without any fusion. Neither has attention, which is
 * nothing at a depth of 0 and some hundredths of a prompt of 512; the second counts its operations
 * all the same. */
#include "bench/bench.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/region.h"
#include "device/cpu/backend.h"
#include "engine/engine.h"

#include <stdio.h>

static avo_status add_result(const char *name, const char *backend, bench_kind kind, uint32_t rows,
                             uint32_t threads, const bench_sample *samples, uint32_t repeats,
                             const limit_work *work, bench_results *results, avo_error *error) {
    bench_result *result;
    AVO_TRY(bench_results_next(results, &result, error));
    *result = (bench_result){.kind = kind, .tokens = rows, .batch = 1, .threads = threads};
    snprintf(result->model, sizeof(result->model), "%s", name);
    snprintf(result->backend, sizeof(result->backend), "%s", backend);
    bench_conclude(samples, repeats, rows, work, result);
    return AVO_OK;
}

/* ---- Plain loops ---- */

/* As one writes it down: the order of the sum is fixed, so the compiler may not cut it into
 * several, and every addition waits for the one before. */
static void plain_product(const float *weight, size_t outputs, size_t k, const float *x,
                          size_t rows, float *out) {
    for (size_t row = 0; row < rows; row++)
        for (size_t output = 0; output < outputs; output++) {
            float sum = 0;
            for (size_t i = 0; i < k; i++)
                sum += weight[output * k + i] * x[row * k + i];
            out[row * outputs + output] = sum;
        }
}

avo_status bench_plain_loops(const char *name, bench_kind kind, uint32_t outputs, uint32_t k,
                             double weights, uint32_t rows, uint32_t repeats,
                             bench_machine *machine, bench_results *results, avo_error *error) {
    region memory;
    size_t matrix = (size_t)outputs * k, numbers = matrix + (size_t)rows * (outputs + k);
    AVO_TRY(region_open(NULL, numbers * sizeof(float), &(region_options){.huge = true}, "a matrix",
                        &memory, error));
    float *weight = (float *)(void *)memory.data;
    for (size_t i = 0; i < matrix + (size_t)rows * k; i++)
        weight[i] = (float)(i % 251) * 0.01f - 1.25f;
    bench_sample samples[BENCH_REPEATS_MAX];
    avo_status status = AVO_OK;
    for (uint32_t i = 0; i < repeats && status == AVO_OK; i++) {
        status = bench_machine_measure(machine, "ref", 1, &samples[i].limits, error);
        uint64_t begin = clock_now_ns();
        plain_product(weight, outputs, k, weight + matrix, rows,
                      weight + matrix + (size_t)rows * k);
        /* One matrix stands for all: a rate is a rate. */
        samples[i].seconds = clock_seconds(begin, clock_now_ns()) * weights / (double)matrix;
    }
    region_close(&memory);
    AVO_TRY(status);
    limit_work work = {.bytes = weights * sizeof(float), .floating_operations = 2 * weights * rows};
    return add_result(name, "plain", kind, rows, 1, samples, repeats, &work, results, error);
}

/* ---- Operation after operation ---- */

typedef struct unfused {
    team *team;
    const op_table *ops;
    const model_view *model;
    uint32_t rows;
    region memory, scratch;
    size_t scratch_bytes;
    uint8_t *block; /* activations in any form */
    float *hidden, *normed, *first, *second;
    /* of the operation that the team does just now */
    const linear_view *linear;
    const float *x;
    activation_view view;
    float *out;
} unfused;

static void quantise_rows(void *context, uint32_t worker, uint32_t workers) {
    unfused *u = context;
    size_t first, last;
    team_share(u->rows, worker, workers, &first, &last);
    for (size_t row = first; row < last; row++)
        u->ops->quantise(u->x + row * u->view.k, &u->view, (uint32_t)row,
                         u->scratch.data + worker * u->scratch_bytes);
}

static void multiply_panels(void *context, uint32_t worker, uint32_t workers) {
    unfused *u = context;
    const weight_view *weight = &u->linear->weight;
    linear_call call = {weight,       u->linear->bias, &u->view, u->out,
                        weight->rows, LINEAR_STORE,    1.0f};
    size_t first, last;
    team_share(weight_panels(weight), worker, workers, &first, &last);
    u->ops->linear[panel_index_of(weight->type)](&call, first, last,
                                                 u->scratch.data + worker * u->scratch_bytes);
}

static void product(unfused *u, const linear_view *linear, const float *x, float *out) {
    u->linear = linear;
    u->x = x;
    u->out = out;
    u->view = activation_lay(panels_form(linear->weight.type), u->rows, linear->weight.k, u->block);
    team_each(u->team, quantise_rows, u);
    team_each(u->team, multiply_panels, u);
}

/* Every operation is called, waited for, and its result written to memory, as a graph of single
 * operations does. */
static void walk_layer(unfused *u, const layer_view *layer) {
    size_t width = u->model->width, inner = layer->feed_forward;
    for (uint32_t row = 0; row < u->rows; row++)
        u->ops->norm(&layer->attention_norm, u->hidden + row * width, (uint32_t)width,
                     u->normed + row * width);
    product(u, &layer->query, u->normed, u->first);
    product(u, &layer->key, u->normed, u->second);
    product(u, &layer->value, u->normed, u->second);
    product(u, &layer->output, u->first, u->normed);
    u->ops->add_scaled(u->normed, 1e-3f, u->hidden, u->rows * width);
    for (uint32_t row = 0; row < u->rows; row++)
        u->ops->norm(&layer->feed_forward_norm, u->hidden + row * width, (uint32_t)width,
                     u->normed + row * width);
    product(u, &layer->gate, u->normed, u->first);
    product(u, &layer->up, u->normed, u->second);
    u->ops->activate(layer->activation, u->first, u->second, u->rows * inner);
    product(u, &layer->down, u->second, u->normed);
    u->ops->add_scaled(u->normed, 1e-3f, u->hidden, u->rows * width);
}

static void walk_model(unfused *u, uint32_t logits) {
    for (uint32_t layer = 0; layer < u->model->layers; layer++)
        walk_layer(u, &u->model->layer[layer]);
    uint32_t rows = u->rows;
    u->rows = logits;
    product(u, &u->model->head, u->hidden, u->first);
    u->rows = rows;
}

static avo_status unfused_open(unfused *u, avo_error *error) {
    const model_view *model = u->model;
    size_t wide = model->feed_forward_max > model->width ? model->feed_forward_max : model->width;
    size_t rows = u->rows;
    size_t long_row = rows * wide > model->vocabulary ? rows * wide : model->vocabulary;
    size_t k = model->k_max > wide ? model->k_max : wide;
    size_t activations = (activation_bytes(rows, k) + 63) / 64 * 64;
    u->scratch_bytes = (linear_scratch_bytes(k) + 4095) / 4096 * 4096;
    AVO_TRY(region_open(NULL, activations + (2 * rows * wide + 2 * long_row) * sizeof(float),
                        &(region_options){.huge = true}, "rows", &u->memory, error));
    AVO_TRY(region_open(NULL, u->scratch_bytes * team_size(u->team), &(region_options){0},
                        "scratch", &u->scratch, error));
    u->block = u->memory.data;
    u->hidden = (float *)(void *)(u->memory.data + activations);
    u->normed = u->hidden + rows * wide;
    u->first = u->normed + rows * wide;
    u->second = u->first + long_row;
    for (size_t i = 0; i < rows * wide; i++)
        u->hidden[i] = (float)random_uniform_at(3, 0, i) - 0.5f;
    return AVO_OK;
}

static avo_status unfused_measure(unfused *u, const bench_unfused_options *o,
                                  const backend_choice *choice, const avo_engine *engine,
                                  bench_machine *machine, bench_results *results,
                                  avo_error *error) {
    uint32_t threads = team_size(u->team);
    AVO_TRY(unfused_open(u, error));
    bench_sample samples[BENCH_REPEATS_MAX];
    walk_model(u, 1);
    for (uint32_t i = 0; i < o->repeats; i++) {
        AVO_TRY(bench_machine_measure(machine, choice->backend.name, threads, &samples[i].limits,
                                      error));
        uint64_t begin = clock_now_ns();
        walk_model(u, 1);
        samples[i].seconds = clock_seconds(begin, clock_now_ns());
    }
    limit_work work = {0};
    bench_step_work(u->model, kv_pool_view(engine_kv(engine))->type, false, 1, 0, o->rows, 1,
                    &work);
    return add_result(o->name, choice->backend.name, o->rows > 1 ? BENCH_PREFILL : BENCH_DECODE,
                      o->rows, threads, samples, o->repeats, &work, results, error);
}

avo_status bench_unfused(const avo_model *model, const bench_unfused_options *options,
                         bench_machine *machine, bench_results *results, avo_error *error) {
    backend_choice choice;
    AVO_TRY(backend_choose(options->isa, &choice, error));
    if (choice.backend.ops == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "device %s has no single operations",
                           choice.backend.name);
    avo_engine_options engine_options = AVO_ENGINE_OPTIONS_INIT;
    if (options->place != NULL)
        engine_options = *options->place;
    engine_options.size = sizeof(engine_options);
    engine_options.device = options->isa;
    engine_options.threads = options->threads;
    engine_options.context_max = KV_PAGE_TOKENS;
    avo_engine *engine; /* for its repacked weights */
    AVO_TRY(avo_engine_open(model, &engine_options, &engine, error));
    unfused u = {.ops = &choice.ops, .model = engine_model_view(engine), .rows = options->rows};
    avo_status status = team_open(NULL, options->threads, &u.team, error);
    AVO_THEN(status, unfused_measure(&u, options, &choice, engine, machine, results, error));
    region_close(&u.memory);
    region_close(&u.scratch);
    team_close(u.team);
    avo_engine_close(engine);
    return status;
}
