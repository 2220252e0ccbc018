/* Inside bench/: what the measurements of single operations share. */
#ifndef AVO_BENCH_OPERATIONS_INT_H
#define AVO_BENCH_OPERATIONS_INT_H

#include "base/region.h"
#include "bench/bench.h"
#include "device/cpu/backend.h"
#include "device/cpu/gemm.h"
#include "device/cpu/phases/program.h"

typedef struct operation_bench {
    const bench_operation_options *options;
    bench_machine *machine;
    bench_results *results;
    const backend *backend;
    const op_table *table;
    team *team;
    region memory;      /* copies of a matrix */
    region activations; /* rows in any form */
    region rows;        /* source, second, out */
    region scratch;     /* [threads][scratch_bytes] */
    region gradient;    /* the largest matrix in f32; for general products only */
    gemm *gemm;         /* of the team; the same */
    size_t scratch_bytes;
    float *source, *second; /* [rows][the largest k] */
    float *out;             /* [rows][the most outputs] */
    uint64_t done, cases;   /* for the progress */
} operation_bench;

/* One line of the table: `times` operations in every call of the task, `work` of one. */
typedef struct operation_case {
    const char *name;
    const char *kv; /* "" where there is none */
    uint32_t rows, depth;
    double times;
    limit_work work;
    team_task task;             /* by every worker; NULL: */
    void (*run)(void *context); /* by the caller, who shares it out */
    void *context;
} operation_case;
#define OPERATION_PHASES 3072 /* of the programs that the bench's team runs, at most */

/* Runs the task once for nothing and `repeats` times by the clock, and adds the line. */
AVO_MUST_USE avo_status operation_measure(operation_bench *bench, const operation_case *one,
                                          avo_error *error);

#define OPERATION_ROWS_CASES 5
/* Quantising, norms and activation of so many rows of k: OPERATION_ROWS_CASES lines. */
AVO_MUST_USE avo_status operation_rows(operation_bench *bench, uint32_t rows, uint32_t k,
                                       avo_error *error);
/* General products of `rows` rows, in f32 and bfloat16: operation_gemm_cases lines. */
AVO_MUST_USE avo_status operation_gemm(operation_bench *bench, const bench_shape *shape,
                                       uint32_t rows, avo_error *error);
uint64_t operation_gemm_cases(size_t types);
/* `rows` rows of attention behind `depth` positions. */
AVO_MUST_USE avo_status operation_attention(operation_bench *bench, const bench_heads *heads,
                                            kv_type type, uint32_t depth, uint32_t rows,
                                            avo_error *error);

#endif
