/* Matrix products of the reference back end.
 *
 * A worker owns whole panels of 16 output rows. It decodes a panel once into floats [k][16] and
 * walks all rows of the batch past it: weights are decoded once per step, and lane i of an
 * accumulator sees k = 0, 1, 2, … in order, for any number of rows and threads. Multiplication and
 * addition are rounded separately (-ffp-contract=off), so compilers may use any vector width. */
#include "device/cpu/ref/ref_int.h"

#include <string.h>

#define LANES QUANT_PANEL_ROWS

typedef struct linear_task {
    const step_view *step;
    const linear_view *linear;
    const float *x;
    size_t x_stride;
    uint32_t rows;
    float *out;
    size_t out_stride;
    const reference_addition *add; /* NULL: outputs are stored */
} linear_task;

/* Four floats that the compiler keeps in one register: the same sums as a loop over single lanes,
 * which compilers would keep in memory. */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
#define QUADS (LANES / 4)

/* Two rows at a time halve the loads of the panel; each row's sums are its own. */
static void dot_two(const float *panel, size_t k, const float *x0, const float *x1, float *sum0,
                    float *sum1) {
    quad acc0[QUADS] = {0};
    quad acc1[QUADS] = {0};
    for (size_t i = 0; i < k; i++) {
        const quad *w = (const quad *)(panel + i * LANES);
        for (int q = 0; q < QUADS; q++) {
            acc0[q] += w[q] * x0[i];
            acc1[q] += w[q] * x1[i];
        }
    }
    memcpy(sum0, acc0, sizeof(acc0));
    memcpy(sum1, acc1, sizeof(acc1));
}

static void dot_one(const float *panel, size_t k, const float *x, float *sum) {
    quad acc[QUADS] = {0};
    for (size_t i = 0; i < k; i++) {
        const quad *w = (const quad *)(panel + i * LANES);
        for (int q = 0; q < QUADS; q++)
            acc[q] += w[q] * x[i];
    }
    memcpy(sum, acc, sizeof(acc));
}

static void store(const linear_task *task, uint32_t row, size_t first, size_t count,
                  const float *sum) {
    float *out = task->out + row * task->out_stride + first;
    const float *bias = task->linear->bias;
    const reference_addition *add = task->add;
    if (add != NULL) {
        uint32_t own = run_batch_row(task->step->batch, add->rows.first + row, add->head);
        float factor = run_factor(add->run, own) * add->scale;
        for (size_t lane = 0; lane < count; lane++)
            out[lane] += factor * sum[lane];
        return;
    }
    for (size_t lane = 0; lane < count; lane++)
        out[lane] = bias == NULL ? sum[lane] : sum[lane] + bias[first + lane];
}

static void linear_panel(const linear_task *task, size_t panel, float *decoded) {
    const weight_view *weight = &task->linear->weight;
    weight_decode_panel(weight, panel, decoded);
    size_t first = panel * LANES;
    size_t count = weight->rows - first < LANES ? weight->rows - first : LANES;
    float sum0[LANES];
    float sum1[LANES];
    uint32_t row = 0;
    for (; row + 2 <= task->rows; row += 2) {
        const float *x = task->x + row * task->x_stride;
        dot_two(decoded, weight->k, x, x + task->x_stride, sum0, sum1);
        store(task, row, first, count, sum0);
        store(task, row + 1, first, count, sum1);
    }
    if (row < task->rows) {
        dot_one(decoded, weight->k, task->x + row * task->x_stride, sum0);
        store(task, row, first, count, sum0);
    }
}

static void linear_worker(void *context, uint32_t worker, uint32_t workers) {
    const linear_task *task = context;
    float *decoded = reference_worker_scratch(task->step, worker);
    size_t begin;
    size_t end;
    team_share(weight_panels(&task->linear->weight), worker, workers, &begin, &end);
    for (size_t panel = begin; panel < end; panel++)
        linear_panel(task, panel, decoded);
}

void reference_linear(const step_view *step, const linear_view *linear, const float *x,
                      size_t x_stride, uint32_t rows, float *out, size_t out_stride) {
    linear_task task = {step, linear, x, x_stride, rows, out, out_stride, NULL};
    reference_run(step, linear_worker, &task);
}

void reference_linear_add(const step_view *step, const weight_view *weight, const float *x,
                          size_t x_stride, const reference_addition *add, float *out,
                          size_t out_stride) {
    linear_view linear = {.weight = *weight};
    linear_task task = {step, &linear, x, x_stride, add->rows.rows, out, out_stride, add};
    reference_run(step, linear_worker, &task);
}
