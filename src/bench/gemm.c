/* General matrix products, as training needs them (device/cpu/gemm.h): for a matrix W of outputs ×
 * k and rows of x, in f32 and in bfloat16, x·Wᵀ   forward, rows × outputs y·W    gradient of x,
 * rows × k yᵀ·x   gradient of W, outputs × k: no weights Shares are of the peak of f32, which
 * bfloat16 may pass. */
#include "bench/operations_int.h"

#include "base/checked.h"

#include <stdio.h>

/* What one time does at least, so that the clock sees it: operations, or calls. */
#define OPERATIONS 2e9
#define CALLS      100

typedef struct product_case {
    operation_bench *bench;
    gemm_call call;
    weight_view weight;
    size_t copies, times, matrix_bytes;
} product_case;

static void run_products(void *context) {
    product_case *one = context;
    for (size_t i = 0; i < one->times; i++) {
        one->weight.data = one->bench->memory.data + i % one->copies * one->matrix_bytes;
        gemm_run(one->bench->gemm, &one->call, 1);
    }
}

static avo_status measure_product(operation_bench *bench, const char *what, uint32_t rows,
                                  product_case *one, avo_error *error) {
    const gemm_call *call = &one->call;
    double operations = 2.0 * (double)call->m * (double)call->n * (double)call->k;
    char name[64];
    snprintf(name, sizeof(name), "gemm %s %s",
             call->precision == GEMM_F32  ? "f32"
             : gemm_has_bf16(bench->gemm) ? "bf16"
                                          : "bf16 by f32",
             what);
    one->times = operations * CALLS < OPERATIONS ? CALLS : (size_t)(OPERATIONS / operations) + 1;
    operation_case line = {
        .name = name,
        .kv = "",
        .rows = rows,
        .times = (double)one->times,
        .work = {.bytes = (double)one->matrix_bytes, .floating_operations = operations},
        .run = run_products,
        .context = one};
    return operation_measure(bench, &line, error);
}

static avo_status measure_weight(operation_bench *bench, const bench_shape *shape, quant_type type,
                                 uint32_t rows, gemm_precision precision, avo_error *error) {
    const size_t outputs = shape->outputs, k = shape->k;
    uint64_t bytes;
    if (!weight_bytes(type, QUANT_LAYOUT_PANELS, outputs, k, &bytes))
        return status_fail(error, AVO_ERROR_ARGUMENT, "type %s cannot have %u inputs",
                           quant_name(type), shape->k);
    product_case one = {.bench = bench, .matrix_bytes = (size_t)bytes};
    one.copies = size_max(bench->memory.bytes / one.matrix_bytes, 1);
    one.weight = (weight_view){.type = type,
                               .layout = QUANT_LAYOUT_PANELS,
                               .rows = shape->outputs,
                               .k = shape->k,
                               .data = bench->memory.data};
    char what[48];
    for (int way = 0; way < 2; way++) {
        bool forward = way == 0;
        one.call =
            (gemm_call){.m = rows,
                        .n = forward ? outputs : k,
                        .k = forward ? k : outputs,
                        .a = forward ? gemm_rows(bench->source, k) : gemm_rows(bench->out, outputs),
                        .b = gemm_weight(&one.weight, forward),
                        .c = forward ? bench->out : bench->second,
                        .c_stride = forward ? outputs : k,
                        .scale = 0x1p-8f,
                        .precision = precision};
        snprintf(what, sizeof(what), "%s %s %u×%u", forward ? "x·Wᵀ" : "y·W", quant_name(type),
                 shape->outputs, shape->k);
        AVO_TRY(measure_product(bench, what, rows, &one, error));
    }
    return AVO_OK;
}

static avo_status measure_gradient(operation_bench *bench, const bench_shape *shape, uint32_t rows,
                                   gemm_precision precision, avo_error *error) {
    product_case one = {.bench = bench, .copies = 1};
    one.call = (gemm_call){.m = shape->outputs,
                           .n = shape->k,
                           .k = rows,
                           .a = gemm_columns(bench->out, shape->outputs),
                           .b = gemm_rows(bench->source, shape->k),
                           .c = (float *)(void *)bench->gradient.data,
                           .c_stride = shape->k,
                           .scale = 0x1p-8f,
                           .precision = precision};
    one.matrix_bytes = (size_t)shape->outputs * shape->k * sizeof(float);
    char what[48];
    snprintf(what, sizeof(what), "yᵀ·x %u×%u", shape->outputs, shape->k);
    return measure_product(bench, what, rows, &one, error);
}

avo_status operation_gemm(operation_bench *bench, const bench_shape *shape, uint32_t rows,
                          avo_error *error) {
    const bench_operation_options *o = bench->options;
    for (int precision = GEMM_F32; precision <= GEMM_BF16; precision++) {
        AVO_TRY(measure_gradient(bench, shape, rows, (gemm_precision)precision, error));
        for (size_t type = 0; type < o->types; type++)
            AVO_TRY(measure_weight(bench, shape, o->type[type], rows, (gemm_precision)precision,
                                   error));
    }
    return AVO_OK;
}

uint64_t operation_gemm_cases(size_t types) {
    return 2 * (1 + 2 * types);
}
