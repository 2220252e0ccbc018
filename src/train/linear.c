/* Products with the base's matrices and what is trained of them. With y = W·x + s·B·(A·x) + bias
 * and `low` = A·x, for rows t:
 *
 *   dlow = s · dy·B        dB += s · Σ dyᵀ·low       dA += Σ dlowᵀ·x       dx = dy·W + dlow·A
 *   full: dW += Σ dyᵀ·x    dbias += Σ dy
 *   DoRA: dmagnitude += Σ dy ⊙ (y − bias) ÷ magnitude; below it dy is multiplied by the gain
 */
#include "train/core_int.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

#define COLUMNS_BLOCK 64 /* that a worker sums at a time */

/* ---- Operands ---- */

/* The matrix itself: [rows][k], or [k][rows] where transposed. Plain floats are read as such. */
static gemm_operand base_operand(const train_linear *linear, bool transposed) {
    const weight_view *weight = &linear->base->weight;
    bool rows = weight->layout == QUANT_LAYOUT_ROWS,
         columns = weight->layout == QUANT_LAYOUT_COLUMNS;
    if (weight->type != QUANT_F32 || (!rows && !columns))
        return (gemm_operand){.weight = weight, .transposed = transposed};
    size_t whole = weight->rows_whole == 0 ? weight->rows : weight->rows_whole;
    size_t row = rows ? weight->k : 1, column = rows ? 1 : whole;
    return train_floats((const float *)(const void *)weight->data, transposed ? column : row,
                        transposed ? row : column);
}

static const train_use *use_at(const train_group *group, uint32_t i) {
    return &group->use[i];
}

static uint32_t rows_of(const train_use *use) {
    return use->linear->base->weight.rows;
}

static uint32_t k_of(const train_group *group) {
    return group->use[0].linear->base->weight.k;
}

/* ---- Forward ---- */

typedef struct finish_task {
    const train_use *use;
} finish_task;

/* y = gain ⊙ y + bias */
static void finish_rows(void *context, size_t begin, size_t end) {
    const train_use *use = ((const finish_task *)context)->use;
    const float *gain = use->linear->gain, *bias = use->linear->base->bias;
    size_t width = rows_of(use);
    for (size_t row = begin; row < end; row++) {
        float *out = use->out + row * width;
        for (size_t i = 0; gain != NULL && i < width; i++)
            out[i] *= gain[i];
        for (size_t i = 0; bias != NULL && i < width; i++)
            out[i] += bias[i];
    }
}

static gemm_call base_call(const train_core *core, const train_group *group, const train_use *use) {
    return (gemm_call){.m = group->rows,
                       .n = rows_of(use),
                       .k = k_of(group),
                       .a = train_floats(group->x, k_of(group), 1),
                       .b = base_operand(use->linear, true),
                       .c = use->out,
                       .c_stride = rows_of(use),
                       .scale = 1.0f,
                       .precision = core->precision};
}

/* Numbers of a row of `low`. */
static size_t low_stride(const train_core *core, const train_group *group) {
    return (size_t)group->count * core->rank;
}

/* Whether all As, and their gradients, lie one behind the other. */
static bool stacked(const train_core *core, const train_group *group) {
    const train_linear *first = group->use[0].linear;
    size_t numbers = (size_t)core->rank * k_of(group);
    bool all = first->a != NULL;
    for (uint32_t i = 1; i < group->count && all; i++) {
        const train_linear *linear = group->use[i].linear;
        all = linear->a == first->a + i * numbers && linear->da == first->da + i * numbers;
    }
    return all;
}

/* As that are multiplied together: matrices [first, first + count) of the group. */
typedef struct a_run {
    uint32_t first, count;
} a_run;

static size_t list_runs(const train_core *core, const train_group *group,
                        a_run runs[TRAIN_GROUP_MAX]) {
    size_t count = 0;
    if (stacked(core, group)) {
        runs[0] = (a_run){0, group->count};
        return 1;
    }
    for (uint32_t i = 0; i < group->count; i++)
        if (group->use[i].linear->a != NULL)
            runs[count++] = (a_run){i, 1};
    return count;
}

/* y += s · B·low */
static gemm_call up_call(const train_core *core, const train_group *group, uint32_t i) {
    const train_use *use = use_at(group, i);
    return (gemm_call){.m = group->rows,
                       .n = rows_of(use),
                       .k = core->rank,
                       .a = train_floats(group->low + i * core->rank, low_stride(core, group), 1),
                       .b = train_floats(use->linear->b, 1, core->rank),
                       .c = use->out,
                       .c_stride = rows_of(use),
                       .scale = core->scale,
                       .add = true,
                       .precision = core->precision};
}

/* low = A·x */
void train_low(train_core *core, const train_group *group) {
    gemm_call calls[TRAIN_GROUP_MAX];
    a_run runs[TRAIN_GROUP_MAX];
    size_t count = list_runs(core, group, runs), k = k_of(group);
    for (size_t i = 0; i < count; i++)
        calls[i] = (gemm_call){.m = group->rows,
                               .n = (size_t)runs[i].count * core->rank,
                               .k = k,
                               .a = train_floats(group->x, k, 1),
                               .b = train_floats(group->use[runs[i].first].linear->a, 1, k),
                               .c = group->low + runs[i].first * core->rank,
                               .c_stride = low_stride(core, group),
                               .scale = 1.0f,
                               .precision = core->precision};
    if (count > 0)
        gemm_run(core->gemm, calls, count);
}

void train_linears(train_core *core, const train_group *group) {
    gemm_call calls[TRAIN_GROUP_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < group->count; i++)
        calls[count++] = base_call(core, group, use_at(group, i));
    gemm_run(core->gemm, calls, count);
    train_low(core, group);
    count = 0;
    for (uint32_t i = 0; i < group->count; i++)
        if (use_at(group, i)->linear->a != NULL)
            calls[count++] = up_call(core, group, i);
    if (count > 0)
        gemm_run(core->gemm, calls, count);
    for (uint32_t i = 0; i < group->count; i++) {
        finish_task task = {use_at(group, i)};
        if (task.use->linear->gain != NULL || task.use->linear->base->bias != NULL)
            train_each(core, group->rows, 16, finish_rows, &task);
    }
}

/* ---- Vectors: biases and magnitudes ---- */

typedef struct column_task {
    const train_use *use;
    const train_part *parts;
    size_t count;
} column_task;

/* Columns [begin, end): Σ over each part's rows, then into the gradient. */
static void bias_columns(void *context, size_t begin, size_t end) {
    const column_task *task = context;
    size_t width = rows_of(task->use);
    float sum[COLUMNS_BLOCK];
    for (size_t p = 0; p < task->count; p++) {
        memset(sum, 0, sizeof(sum));
        for (size_t row = 0; row < task->parts[p].rows; row++) {
            const float *dy = task->use->dout + (task->parts[p].first + row) * width;
            for (size_t i = begin; i < end; i++)
                sum[i - begin] += dy[i];
        }
        for (size_t i = begin; i < end; i++)
            task->use->linear->dbias[i] += sum[i - begin];
    }
}

/* The place of a row of the base in what PEFT saves. */
static size_t row_order(const train_linear *linear, size_t row) {
    return linear->order == NULL ? row : linear->order[row];
}

/* gain·u = y − bias and gain = magnitude ÷ norm, so u ÷ norm = (y − bias) ÷ magnitude. A magnitude
 * of 0 has lost what it multiplied: its gradient counts as 0. */
static void magnitude_columns(void *context, size_t begin, size_t end) {
    const column_task *task = context;
    const train_linear *linear = task->use->linear;
    const float *bias = linear->base->bias;
    size_t width = rows_of(task->use);
    float sum[COLUMNS_BLOCK];
    for (size_t p = 0; p < task->count; p++) {
        memset(sum, 0, sizeof(sum));
        for (size_t row = 0; row < task->parts[p].rows; row++) {
            size_t at = (task->parts[p].first + row) * width;
            const float *dy = task->use->dout + at, *y = task->use->out + at;
            for (size_t i = begin; i < end; i++)
                sum[i - begin] += dy[i] * (bias == NULL ? y[i] : y[i] - bias[i]);
        }
        for (size_t i = begin; i < end; i++) {
            size_t to = row_order(linear, i);
            float magnitude = linear->magnitude[to];
            linear->dmagnitude[to] += magnitude == 0.0f ? 0.0f : sum[i - begin] / magnitude;
        }
    }
}

static void gain_rows(void *context, size_t begin, size_t end) {
    const train_use *use = ((const finish_task *)context)->use;
    size_t width = rows_of(use);
    for (size_t row = begin; row < end; row++)
        for (size_t i = 0; i < width; i++)
            use->dout[row * width + i] *= use->linear->gain[i];
}

static void vectors_backward(train_core *core, const train_group *group, const train_part *parts,
                             size_t count) {
    for (uint32_t i = 0; i < group->count; i++) {
        column_task task = {use_at(group, i), parts, count};
        finish_task gain = {task.use};
        if (task.use->linear->dbias != NULL)
            train_each(core, rows_of(task.use), COLUMNS_BLOCK, bias_columns, &task);
        if (task.use->linear->gain == NULL)
            continue;
        train_each(core, rows_of(task.use), COLUMNS_BLOCK, magnitude_columns, &task);
        train_each(core, group->rows, 16, gain_rows, &gain);
    }
}

/* ---- Matrices ---- */

/* dW += Σ dyᵀ·x of one part. */
static gemm_call weight_call(const train_core *core, const train_group *group, const train_use *use,
                             const train_part *part) {
    const train_linear *linear = use->linear;
    size_t width = rows_of(use), k = k_of(group);
    const float *dy = use->dout + part->first * width, *x = group->x + part->first * k;
    bool turned = linear->transposed;
    return (gemm_call){.m = turned ? k : width,
                       .n = turned ? width : k,
                       .k = part->rows,
                       .a = turned ? train_floats(x, 1, k) : train_floats(dy, 1, width),
                       .b = turned ? train_floats(dy, width, 1) : train_floats(x, k, 1),
                       .c = linear->dweight,
                       .c_stride = linear->stride,
                       .scale = 1.0f,
                       .add = true,
                       .precision = core->precision};
}

/* dB += s·Σ dyᵀ·low of one part. */
static gemm_call b_call(const train_core *core, const train_group *group, uint32_t i,
                        const train_part *part) {
    const train_use *use = use_at(group, i);
    size_t width = rows_of(use), rank = core->rank, stride = low_stride(core, group);
    bool ordered = use->linear->order != NULL;
    return (gemm_call){.m = width,
                       .n = rank,
                       .k = part->rows,
                       .a = train_floats(use->dout + part->first * width, 1, width),
                       .b = train_floats(group->low + part->first * stride + i * rank, stride, 1),
                       .c = ordered ? core->buffers.order_b : use->linear->db,
                       .c_stride = rank,
                       .scale = core->scale,
                       .add = !ordered,
                       .precision = core->precision};
}

/* dA += Σ dlowᵀ·x of one part. */
static gemm_call a_call(const train_core *core, const train_group *group, const a_run *run,
                        const train_part *part) {
    size_t k = k_of(group), stride = low_stride(core, group);
    const float *dlow = core->buffers.dlow + part->first * stride + run->first * core->rank;
    return (gemm_call){.m = (size_t)run->count * core->rank,
                       .n = k,
                       .k = part->rows,
                       .a = train_floats(dlow, 1, stride),
                       .b = train_floats(group->x + part->first * k, k, 1),
                       .c = group->use[run->first].linear->da,
                       .c_stride = k,
                       .scale = 1.0f,
                       .add = true,
                       .precision = core->precision};
}

/* What was summed in the base's order of rows goes to PEFT's. */
static void add_ordered(const train_core *core, const train_use *use) {
    size_t rank = core->rank;
    for (size_t row = 0; row < rows_of(use); row++)
        for (size_t r = 0; r < rank; r++)
            use->linear->db[use->linear->order[row] * rank + r] +=
                core->buffers.order_b[row * rank + r];
}

/* Calls that are collected until one of them would write where another one does. */
typedef struct call_list {
    gemm *gemm;
    gemm_call call[3 * TRAIN_GROUP_MAX];
    size_t count;
} call_list;

static void flush(call_list *list) {
    if (list->count > 0)
        gemm_run(list->gemm, list->call, list->count);
    list->count = 0;
}

static void part_backward(train_core *core, const train_group *group, const train_part *part) {
    call_list list = {.gemm = core->gemm};
    a_run runs[TRAIN_GROUP_MAX];
    size_t run_count = list_runs(core, group, runs);
    for (uint32_t i = 0; i < group->count; i++) {
        const train_use *use = use_at(group, i);
        if (use->linear->dweight != NULL)
            list.call[list.count++] = weight_call(core, group, use, part);
        if (use->linear->a == NULL)
            continue;
        list.call[list.count++] = b_call(core, group, i, part);
        if (use->linear->order == NULL)
            continue;
        flush(&list);
        add_ordered(core, use);
    }
    for (size_t i = 0; i < run_count; i++) {
        if (i > 0) /* parts of a fused module share A */
            flush(&list);
        list.call[list.count++] = a_call(core, group, &runs[i], part);
    }
    flush(&list);
}

/* dlow = s · dy·B of all rows. */
static void low_backward(train_core *core, const train_group *group) {
    gemm_call calls[TRAIN_GROUP_MAX];
    size_t count = 0, rank = core->rank;
    for (uint32_t i = 0; i < group->count; i++) {
        const train_use *use = use_at(group, i);
        if (use->linear->a == NULL)
            continue;
        calls[count++] = (gemm_call){.m = group->rows,
                                     .n = rank,
                                     .k = rows_of(use),
                                     .a = train_floats(use->dout, rows_of(use), 1),
                                     .b = train_floats(use->linear->b, rank, 1),
                                     .c = core->buffers.dlow + i * rank,
                                     .c_stride = low_stride(core, group),
                                     .scale = core->scale,
                                     .precision = core->precision};
    }
    if (count > 0)
        gemm_run(core->gemm, calls, count);
}

/* dx (+)= Σ dy·W + dlow·A, one matrix after the other. */
static void input_backward(train_core *core, const train_group *group, float *dx, bool add) {
    size_t k = k_of(group);
    a_run runs[TRAIN_GROUP_MAX];
    size_t run_count = list_runs(core, group, runs);
    for (uint32_t i = 0; i < group->count; i++) {
        const train_use *use = use_at(group, i);
        gemm_call call = {.m = group->rows,
                          .n = k,
                          .k = rows_of(use),
                          .a = train_floats(use->dout, rows_of(use), 1),
                          .b = base_operand(use->linear, false),
                          .c = dx,
                          .c_stride = k,
                          .scale = 1.0f,
                          .add = add || i > 0,
                          .precision = core->precision};
        gemm_run(core->gemm, &call, 1);
    }
    for (size_t i = 0; i < run_count; i++) {
        const float *dlow = core->buffers.dlow + runs[i].first * core->rank;
        gemm_call call = {.m = group->rows,
                          .n = k,
                          .k = (size_t)runs[i].count * core->rank,
                          .a = train_floats(dlow, low_stride(core, group), 1),
                          .b = train_floats(group->use[runs[i].first].linear->a, k, 1),
                          .c = dx,
                          .c_stride = k,
                          .scale = 1.0f,
                          .add = true,
                          .precision = core->precision};
        gemm_run(core->gemm, &call, 1);
    }
}

void train_linears_backward(train_core *core, const train_group *group, const train_part *parts,
                            size_t count, float *dx, bool add) {
    assert(group->count > 0 && group->count <= TRAIN_GROUP_MAX);
    vectors_backward(core, group, parts, count);
    low_backward(core, group);
    for (size_t i = 0; i < count; i++)
        part_backward(core, group, &parts[i]);
    if (dx != NULL)
        input_backward(core, group, dx, add);
}
