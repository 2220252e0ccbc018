/* Inside bench/: what the measurements of single operations share. */
#ifndef AVO_BENCH_OPERATIONS_INT_H
#define AVO_BENCH_OPERATIONS_INT_H

#include "base/region.h"
#include "bench/bench.h"
#include "kernels/backend.h"

typedef struct operation_bench {
    const bench_operation_options *options;
    bench_machine *machine;
    bench_results *results;
    const char *isa;
    op_table table;
    machine_limits limits;
    team *team;
    region memory;      /* copies of a matrix */
    region activations; /* rows in any form */
    region rows;        /* source, second, out */
    region scratch;     /* [threads][scratch_bytes] */
    size_t scratch_bytes;
    float *source, *second; /* [rows][k] */
    float *out;             /* [rows][outputs] */
} operation_bench;

/* Runs the task once for nothing and `repeats` times by the clock. */
void operation_measure(operation_bench *bench, team_task task, void *context, double *seconds);
/* A line of the table; each of `seconds` is of `times` operations, `work` of one. */
AVO_MUST_USE avo_status operation_add(operation_bench *bench, const char *name, uint32_t rows,
                                      uint32_t depth, double times, double *seconds,
                                      const limit_work *work, avo_error *error);

#endif
