/* Single operations of the op table on plain arrays, by all workers of a team: matrix products on
 * matrices that no cache holds, and what stands between them. A matrix product is measured as the
 * phases do it: every worker its share of the panels, a barrier behind. */
#include "bench/operations_int.h"

#include "base/clock.h"
#include "base/random.h"

#include <stdio.h>

/* ---- Time ---- */

static void wake(void *context, uint32_t worker, uint32_t workers) {
    (void)context;
    (void)worker;
    (void)workers;
}

static avo_status go_on(const operation_bench *bench, uint32_t repeat, avo_error *error) {
    const bench_operation_options *o = bench->options;
    if (o->progress == NULL ||
        o->progress(NULL, "bench", bench->done * o->repeats + repeat, bench->cases * o->repeats))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
}

static void run_once(const operation_bench *bench, const operation_case *one) {
    if (one->task != NULL)
        team_each(bench->team, one->task, one->context);
    else
        one->run(one->context);
}

avo_status operation_measure(operation_bench *bench, const operation_case *one, avo_error *error) {
    bench_sample samples[BENCH_REPEATS_MAX];
    uint32_t repeats = bench->options->repeats, threads = team_size(bench->team);
    run_once(bench, one); /* once for nothing */
    for (uint32_t i = 0; i < repeats; i++) {
        AVO_TRY(go_on(bench, i, error));
        AVO_TRY(bench_machine_measure(bench->machine, bench->backend->name, threads,
                                      &samples[i].limits, error));
        team_each(bench->team, wake, NULL); /* workers have slept while the machine was measured */
        uint64_t begin = clock_now_ns();
        run_once(bench, one);
        samples[i].seconds = clock_seconds(begin, clock_now_ns()) / one->times;
    }
    bench_result *result;
    AVO_TRY(bench_results_next(bench->results, &result, error));
    *result = (bench_result){.kind = BENCH_OPERATION,
                             .tokens = one->rows,
                             .batch = 1,
                             .depth = one->depth,
                             .threads = threads};
    snprintf(result->model, sizeof(result->model), "%s", one->name);
    snprintf(result->backend, sizeof(result->backend), "%s", bench->backend->name);
    snprintf(result->kv, sizeof(result->kv), "%s", one->kv);
    bench_conclude(samples, repeats, one->rows, &one->work, result);
    bench->done++;
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

static avo_status measure_linear(operation_bench *bench, const bench_shape *shape, quant_type type,
                                 uint32_t rows, avo_error *error) {
    uint32_t outputs = shape->outputs, k = shape->k;
    uint64_t matrix_bytes;
    if (!weight_bytes(type, QUANT_LAYOUT_PANELS, outputs, k, &matrix_bytes))
        return status_fail(error, AVO_ERROR_ARGUMENT, "type %s cannot have %u inputs",
                           quant_name(type), k);
    weight_view weight = {.type = type,
                          .layout = QUANT_LAYOUT_PANELS,
                          .rows = outputs,
                          .k = k,
                          .data = bench->memory.data};
    activation_view x = activation_lay(panels_form(type), rows, k, bench->activations.data);
    for (uint32_t row = 0; row < rows; row++)
        bench->table->quantise(bench->source + (size_t)row * k, &x, row, bench->scratch.data);
    linear_case one = {bench,
                       bench->table->linear[panel_index_of(type)],
                       {&weight, NULL, &x, bench->out, outputs, LINEAR_STORE, 1.0f},
                       copies_for(bench, matrix_bytes, rows),
                       matrix_bytes,
                       weight_panels(&weight)};
    char name[64];
    snprintf(name, sizeof(name), "linear %s %u×%u", quant_name(type), outputs, k);
    operation_case line = {.name = name,
                           .kv = "",
                           .rows = rows,
                           .times = (double)one.copies,
                           .work = {.bytes = (double)matrix_bytes},
                           .task = walk_copies,
                           .context = &one};
    double operations = 2.0 * outputs * k * rows;
    if (panels_form(type) == PRODUCT_FLOAT)
        line.work.floating_operations = operations;
    else
        line.work.integer_operations = operations;
    return operation_measure(bench, &line, error);
}

/* ---- Memory ---- */

/* Bytes that are ordinary numbers whatever they are read as: f32, f16, bf16, scales. */
static void fill_memory(region *memory) {
    uint64_t *words = (uint64_t *)(void *)memory->data;
    for (size_t i = 0; i < memory->bytes / 8; i++)
        words[i] = ((i * 0x9e3779b97f4a7c15u) ^ (i << 17)) & 0xbfffbfffbfffbfffu;
}

static avo_status open_memory(operation_bench *bench, avo_error *error) {
    const bench_operation_options *o = bench->options;
    uint64_t largest = 0;
    size_t rows = bench_largest(&o->rows), k = 0, outputs = 0;
    for (size_t i = 0; i < o->shapes; i++) {
        uint64_t bytes;
        if (!weight_bytes(QUANT_F32, QUANT_LAYOUT_PANELS, o->shape[i].outputs, o->shape[i].k,
                          &bytes))
            return status_fail(error, AVO_ERROR_LIMIT, "a matrix of %u × %u is too large",
                               o->shape[i].outputs, o->shape[i].k);
        largest = bytes > largest ? bytes : largest;
        k = o->shape[i].k > k ? o->shape[i].k : k;
        outputs = o->shape[i].outputs > outputs ? o->shape[i].outputs : outputs;
    }
    if (k == 0 || !(o->linear || o->between || o->gemm))
        return AVO_OK;
    region_options huge = {.huge = true};
    bench->scratch_bytes = (linear_scratch_bytes(k) + 4095) / 4096 * 4096;
    AVO_TRY(region_open(NULL, o->walk_bytes + (size_t)largest, &huge, "matrices", &bench->memory,
                        error));
    AVO_TRY(region_open(NULL, activation_bytes(rows, k), &huge, "activations", &bench->activations,
                        error));
    AVO_TRY(region_open(NULL, rows * (outputs + 2 * k) * sizeof(float), &huge, "rows", &bench->rows,
                        error));
    AVO_TRY(region_open(NULL, bench->scratch_bytes * bench_largest(&o->threads),
                        &(region_options){0}, "scratch", &bench->scratch, error));
    if (o->gemm)
        AVO_TRY(region_open(NULL, (size_t)largest, &huge, "gradients", &bench->gradient, error));
    bench->source = (float *)(void *)bench->rows.data;
    bench->second = bench->source + rows * k;
    bench->out = bench->second + rows * k;
    for (size_t i = 0; i < rows * k; i++)
        bench->source[i] = bench->second[i] = (float)random_uniform_at(1, 1, i) - 0.5f;
    for (size_t i = 0; o->gemm && i < rows * outputs; i++)
        bench->out[i] = (float)random_uniform_at(1, 2, i) - 0.5f;
    fill_memory(&bench->memory);
    return AVO_OK;
}

static void close_memory(operation_bench *bench) {
    region_close(&bench->memory);
    region_close(&bench->activations);
    region_close(&bench->rows);
    region_close(&bench->scratch);
    region_close(&bench->gradient);
}

/* ---- All of them ---- */

static avo_status measure_products(operation_bench *bench, avo_error *error) {
    const bench_operation_options *o = bench->options;
    for (size_t shape = 0; o->linear && shape < o->shapes; shape++)
        for (size_t type = 0; type < o->types; type++)
            for (size_t rows = 0; rows < o->rows.count; rows++)
                AVO_TRY(measure_linear(bench, &o->shape[shape], o->type[type], o->rows.item[rows],
                                       error));
    for (size_t shape = 0; o->between && shape < o->shapes; shape++)
        for (size_t rows = 0; rows < o->rows.count; rows++)
            AVO_TRY(operation_rows(bench, o->rows.item[rows], o->shape[shape].k, error));
    for (size_t shape = 0; o->gemm && shape < o->shapes; shape++)
        for (size_t rows = 0; rows < o->rows.count; rows++)
            AVO_TRY(operation_gemm(bench, &o->shape[shape], o->rows.item[rows], error));
    return AVO_OK;
}

static avo_status measure_depths(operation_bench *bench, const bench_heads *heads, kv_type type,
                                 avo_error *error) {
    const bench_operation_options *o = bench->options;
    for (size_t d = 0; d < o->depth.count; d++)
        if (o->depth.item[d] > 0)
            AVO_TRY(operation_attention(bench, heads, type, o->depth.item[d], 1, error));
    for (size_t p = 0; p < o->prompt.count; p++)
        for (size_t d = 0; d < o->depth.count; d++)
            if (o->prompt.item[p] > 0)
                AVO_TRY(operation_attention(bench, heads, type, o->depth.item[d], o->prompt.item[p],
                                            error));
    return AVO_OK;
}

static avo_status measure_all(operation_bench *bench, avo_error *error) {
    const bench_operation_options *o = bench->options;
    AVO_TRY(measure_products(bench, error));
    for (size_t i = 0; o->attention && i < o->heads_count; i++)
        for (size_t type = 0; type < o->kv_types; type++)
            AVO_TRY(measure_depths(bench, &o->heads[i], o->kv_type[type], error));
    return AVO_OK;
}

uint64_t bench_operation_cases(const bench_operation_options *o) {
    uint64_t between = o->between ? OPERATION_ROWS_CASES : 0;
    uint64_t general = o->gemm ? operation_gemm_cases(o->types) : 0;
    uint64_t products =
        o->shapes * o->rows.count * ((o->linear ? o->types : 0) + between + general);
    uint64_t depths = bench_positives(&o->depth);
    uint64_t prompts = bench_positives(&o->prompt) * o->depth.count;
    uint64_t attention = o->heads_count * o->kv_types * (depths + prompts);
    return o->threads.count * (products + (o->attention ? attention : 0));
}

avo_status bench_operations(const bench_operation_options *options, bench_machine *machine,
                            bench_results *results, avo_error *error) {
    backend_choice choice;
    AVO_TRY(backend_choose(options->isa, &choice, error));
    if (choice.backend.ops == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "device %s has no single operations to measure", choice.backend.name);
    operation_bench bench = {.options = options,
                             .machine = machine,
                             .results = results,
                             .backend = &choice.backend,
                             .table = &choice.ops,
                             .cases = bench_operation_cases(options)};
    avo_status status = open_memory(&bench, error);
    for (size_t i = 0; i < options->threads.count && status == AVO_OK; i++) {
        team_options team = {.threads = options->threads.item[i], .phases = OPERATION_PHASES};
        status = team_open_with(NULL, &team, &bench.team, error);
        if (options->gemm)
            AVO_THEN(status, gemm_open(NULL, choice.backend.name, bench.team, &bench.gemm, error));
        AVO_THEN(status, measure_all(&bench, error));
        gemm_close(bench.gemm);
        bench.gemm = NULL;
        team_close(bench.team);
        bench.team = NULL;
    }
    close_memory(&bench);
    return status;
}
