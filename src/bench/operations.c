/* Single operations of the op table on plain arrays, by all workers of a team: matrix products on
 * matrices that no cache holds, and what stands between them. A matrix product is measured as the
 * phases do it: every worker its share of the panels, a barrier behind. */
#include "bench/bench.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/region.h"
#include "bench/operations_int.h"

#include <stdio.h>

#define COPIES_BYTES ((size_t)256 << 20) /* of a matrix, walked in turn: past every cache */

/* ---- Time ---- */

void operation_measure(operation_bench *bench, team_task task, void *context, double *seconds) {
    uint32_t repeats = bench->options->repeats;
    team_run(bench->team, task, context); /* once for nothing */
    for (uint32_t i = 0; i < repeats; i++) {
        uint64_t begin = clock_now_ns();
        team_run(bench->team, task, context);
        seconds[i] = clock_seconds(begin, clock_now_ns());
    }
}

avo_status operation_add(operation_bench *bench, const char *name, uint32_t rows, uint32_t depth,
                         double times, double *seconds, const limit_work *work, avo_error *error) {
    bench_results *results = bench->results;
    if (results->count >= results->capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %zu cases", results->capacity);
    bench_result *result = &results->item[results->count++];
    *result = (bench_result){.kind = BENCH_OPERATION,
                             .tokens = rows,
                             .batch = 1,
                             .depth = depth,
                             .threads = team_size(bench->team)};
    snprintf(result->model, sizeof(result->model), "%s", name);
    snprintf(result->backend, sizeof(result->backend), "%s", bench->limits.table.isa);
    for (uint32_t i = 0; i < bench->options->repeats; i++)
        seconds[i] /= times;
    bench_conclude(seconds, bench->options->repeats, rows, work, &bench->limits, result);
    return AVO_OK;
}

/* ---- Matrix products ---- */

typedef struct linear_case {
    operation_bench *bench;
    linear_op op;
    linear_call call;
    size_t copies, matrix_bytes, panels;
} linear_case;

static void walk_copies(void *context, uint32_t worker, uint32_t workers) {
    const linear_case *one = context;
    size_t first, last;
    team_share(one->panels, worker, workers, &first, &last);
    uint8_t *scratch = one->bench->scratch.data + worker * one->bench->scratch_bytes;
    for (size_t copy = 0; copy < one->copies; copy++) {
        weight_view weight = *one->call.weight;
        weight.data = one->bench->memory.data + copy * one->matrix_bytes;
        linear_call call = one->call;
        call.weight = &weight;
        one->op(&call, first, last, scratch);
        team_barrier(one->bench->team, worker);
    }
}

/* Few rows read every copy; many are walked as often as takes about as long. */
static size_t copies_for(const operation_bench *bench, size_t matrix_bytes, uint32_t rows) {
    size_t copies = bench->memory.bytes / matrix_bytes;
    size_t fewer = copies * 8 / (rows < 8 ? 8 : rows);
    return fewer < 1 ? 1 : fewer;
}

static avo_status measure_linear(operation_bench *bench, quant_type type, uint32_t rows,
                                 avo_error *error) {
    const bench_operation_options *o = bench->options;
    uint64_t matrix_bytes;
    if (!weight_bytes(type, QUANT_LAYOUT_PANELS, o->outputs, o->k, &matrix_bytes))
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s does not go with %u inputs",
                           quant_name(type), o->k);
    weight_view weight = {type, QUANT_LAYOUT_PANELS, o->outputs, o->k, 0, bench->memory.data};
    activation_view x = activation_lay(panels_form(type), rows, o->k, bench->activations.data);
    for (uint32_t row = 0; row < rows; row++)
        bench->table.quantise(bench->source + (size_t)row * o->k, &x, row, bench->scratch.data);
    linear_case one = {bench,
                       bench->table.linear[panel_index_of(type)],
                       {&weight, NULL, &x, bench->out, o->outputs, LINEAR_STORE, 1.0f},
                       copies_for(bench, matrix_bytes, rows),
                       matrix_bytes,
                       weight_panels(&weight)};
    double seconds[BENCH_REPEATS_MAX];
    operation_measure(bench, walk_copies, &one, seconds);
    limit_work work = {.bytes = (double)matrix_bytes};
    double operations = 2.0 * o->outputs * o->k * rows;
    if (panels_form(type) == PRODUCT_FLOAT)
        work.floating_operations = operations;
    else
        work.integer_operations = operations;
    char name[64];
    snprintf(name, sizeof(name), "linear %s %u×%u", quant_name(type), o->outputs, o->k);
    return operation_add(bench, name, rows, 0, (double)one.copies, seconds, &work, error);
}

/* ---- Between the products ---- */

typedef struct rows_case {
    operation_bench *bench;
    activation_view x;
    norm_view norm;
    uint32_t rows;
} rows_case;

static void quantise_rows(void *context, uint32_t worker, uint32_t workers) {
    const rows_case *one = context;
    operation_bench *bench = one->bench;
    size_t first, last;
    team_share(one->rows, worker, workers, &first, &last);
    for (size_t row = first; row < last; row++)
        bench->table.quantise(bench->source + row * bench->options->k, &one->x, (uint32_t)row,
                              bench->scratch.data + worker * bench->scratch_bytes);
}

static void norm_rows(void *context, uint32_t worker, uint32_t workers) {
    const rows_case *one = context;
    operation_bench *bench = one->bench;
    uint32_t k = bench->options->k;
    size_t first, last;
    team_share(one->rows, worker, workers, &first, &last);
    for (size_t row = first; row < last; row++)
        bench->table.norm(&one->norm, bench->source + row * k, k, bench->second + row * k);
}

static void activate_rows(void *context, uint32_t worker, uint32_t workers) {
    const rows_case *one = context;
    operation_bench *bench = one->bench;
    size_t first, last;
    team_share((size_t)one->rows * bench->options->k / 16, worker, workers, &first, &last);
    bench->table.activate(ACTIVATION_SILU, bench->source + first * 16, bench->second + first * 16,
                          (last - first) * 16);
}

/* Their work is counted as bytes read; rows of one step lie in the caches, so that shares may pass
 * what the memory allows. */
static avo_status measure_rows(operation_bench *bench, uint32_t rows, avo_error *error) {
    static const struct {
        const char *name;
        team_task task;
        product_form form;
        double reads;
    } kinds[] = {
        {"quantise int8 per 32", quantise_rows, PRODUCT_A8, 1},
        {"quantise int16 per 32", quantise_rows, PRODUCT_A16, 1},
        {"quantise rotated int8 per 256", quantise_rows, PRODUCT_A8R, 1},
        {"norm rms", norm_rows, PRODUCT_FLOAT, 2},
        {"activate silu", activate_rows, PRODUCT_FLOAT, 2},
    };
    uint32_t k = bench->options->k;
    double seconds[BENCH_REPEATS_MAX];
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        rows_case one = {.bench = bench,
                         .x = activation_lay(kinds[i].form, rows, k, bench->activations.data),
                         .norm = {NORM_RMS, 1e-5f, bench->source, NULL},
                         .rows = rows};
        operation_measure(bench, kinds[i].task, &one, seconds);
        limit_work work = {.bytes = kinds[i].reads * (double)rows * k * sizeof(float)};
        char name[64];
        snprintf(name, sizeof(name), "%s, %u wide", kinds[i].name, k);
        AVO_TRY(operation_add(bench, name, rows, 0, 1, seconds, &work, error));
    }
    return AVO_OK;
}

/* ---- All of them ---- */

static uint32_t most_rows(const bench_operation_options *options) {
    uint32_t most = 1;
    for (size_t i = 0; i < options->rows.count; i++)
        most = options->rows.item[i] > most ? options->rows.item[i] : most;
    return most;
}

/* Bytes that are ordinary numbers whatever they are read as: f32, f16, bf16, scales. */
static void fill_memory(region *memory) {
    uint64_t *words = (uint64_t *)(void *)memory->data;
    for (size_t i = 0; i < memory->bytes / 8; i++)
        words[i] = ((i * 0x9e3779b97f4a7c15u) ^ (i << 17)) & 0xbfffbfffbfffbfffu;
}

static avo_status open_memory(operation_bench *bench, avo_error *error) {
    const bench_operation_options *o = bench->options;
    uint64_t largest;
    size_t rows = most_rows(o);
    if (!weight_bytes(QUANT_F32, QUANT_LAYOUT_PANELS, o->outputs, o->k, &largest))
        return status_fail(error, AVO_ERROR_LIMIT, "a matrix of %u × %u", o->outputs, o->k);
    region_options huge = {.huge = true};
    bench->scratch_bytes = (linear_scratch_bytes(o->k) + 4095) / 4096 * 4096;
    AVO_TRY(region_open(NULL, COPIES_BYTES + (size_t)largest, &huge, "matrices", &bench->memory,
                        error));
    AVO_TRY(region_open(NULL, activation_bytes(rows, o->k), &huge, "activations",
                        &bench->activations, error));
    AVO_TRY(region_open(NULL, rows * ((size_t)o->outputs + 2 * (size_t)o->k) * sizeof(float), &huge,
                        "rows", &bench->rows, error));
    AVO_TRY(region_open(NULL, bench->scratch_bytes * TEAM_THREADS_MAX, &(region_options){0},
                        "scratch", &bench->scratch, error));
    bench->source = (float *)(void *)bench->rows.data;
    bench->second = bench->source + rows * o->k;
    bench->out = bench->second + rows * o->k;
    for (size_t i = 0; i < rows * o->k; i++)
        bench->source[i] = bench->second[i] = (float)random_uniform_at(1, 1, i) - 0.5f;
    fill_memory(&bench->memory);
    return AVO_OK;
}

static void close_memory(operation_bench *bench) {
    region_close(&bench->memory);
    region_close(&bench->activations);
    region_close(&bench->rows);
    region_close(&bench->scratch);
}

static avo_status measure_threads(operation_bench *bench, uint32_t threads, avo_error *error) {
    const bench_operation_options *o = bench->options;
    AVO_TRY(bench_machine_measure(bench->machine, bench->isa, threads, &bench->limits, error));
    AVO_TRY(team_open(NULL, threads, &bench->team, error));
    avo_status status = AVO_OK;
    for (size_t i = 0; i < o->types && status == AVO_OK; i++)
        for (size_t j = 0; j < o->rows.count && status == AVO_OK; j++)
            status = measure_linear(bench, o->type[i], o->rows.item[j], error);
    for (size_t j = 0; o->between && j < o->rows.count && status == AVO_OK; j++)
        status = measure_rows(bench, o->rows.item[j], error);
    team_close(bench->team);
    return status;
}

avo_status bench_operations(const bench_operation_options *options, bench_machine *machine,
                            bench_results *results, avo_error *error) {
    backend_choice choice;
    AVO_TRY(backend_choose(options->isa, &choice, error));
    if (choice.backend.ops == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "back end %s has no single operations to measure", choice.backend.name);
    operation_bench bench = {.options = options,
                             .machine = machine,
                             .results = results,
                             .isa = choice.backend.name,
                             .table = choice.ops};
    avo_status status = open_memory(&bench, error);
    for (size_t i = 0; i < options->threads.count && status == AVO_OK; i++)
        status = measure_threads(&bench, options->threads.item[i], error);
    close_memory(&bench);
    return status;
}
