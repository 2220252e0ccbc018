/* Work that is shared out by rows or by columns: the team, norms over many rows. */
#include "train/core_int.h"

#include "base/checked.h"

#include <string.h>

/* ---- The team ---- */

typedef struct each_task {
    train_rows_task task;
    void *context;
    size_t rows, block;
} each_task;

static void each_items(const void *context, uint32_t argument, team_items *items) {
    const each_task *own = context;
    uint32_t item;
    (void)argument;
    while (team_take(items, &item)) {
        size_t begin = item * own->block;
        own->task(own->context, begin, size_min(begin + own->block, own->rows));
    }
}

void train_each(train_core *core, size_t rows, size_t block, train_rows_task task, void *context) {
    each_task own = {task, context, rows, block};
    team_phase phase = {.compute = each_items, .items = (uint32_t)((rows + block - 1) / block)};
    if (rows > 0)
        team_run(core->team, &phase, 1, &own);
}

/* ---- Norms ---- */

typedef struct norm_task {
    const gradient_loops *loops;
    const train_norm_rows *rows;
    const float *dy;
    float *out;
    bool add;
    uint32_t heads;
    const train_part *parts;
    size_t count;
} norm_task;

static void norm_rows(void *context, size_t begin, size_t end) {
    const norm_task *task = context;
    size_t width = task->rows->width;
    for (size_t row = begin; row < end; row++)
        task->loops->norm(task->rows->norm->base, task->rows->x + row * width, task->rows->width,
                          task->out + row * width);
}

void train_norms(train_core *core, const train_norm_rows *rows, float *out) {
    norm_task task = {.loops = core->loops, .rows = rows, .out = out};
    train_each(core, rows->rows, 16, norm_rows, &task);
}

static void norm_rows_backward(void *context, size_t begin, size_t end) {
    const norm_task *task = context;
    size_t width = task->rows->width;
    for (size_t row = begin; row < end; row++)
        task->loops->norm_back(task->rows->norm->base, task->rows->x + row * width,
                               task->dy + row * width, task->rows->width, task->add,
                               task->out + row * width);
}

/* One part after the other, each summed on its own. A single worker: full tuning alone does it, and
 * its products take most of the time. */
static void norm_gradients(train_core *core, const norm_task *task) {
    const train_norm *norm = task->rows->norm;
    size_t width = task->rows->width;
    float *weight = core->buffers.sums, *bias = norm->dbias == NULL ? NULL : weight + width;
    for (size_t p = 0; p < task->count; p++) {
        memset(weight, 0, 2 * width * sizeof(float));
        size_t first = (size_t)task->parts[p].first * task->heads;
        for (size_t i = 0; i < (size_t)task->parts[p].rows * task->heads; i++)
            core->loops->norm_weights(norm->base, task->rows->x + (first + i) * width,
                                      task->dy + (first + i) * width, task->rows->width, weight,
                                      bias);
        for (size_t i = 0; i < width; i++)
            norm->dweight[i] += weight[i];
        for (size_t i = 0; bias != NULL && i < width; i++)
            norm->dbias[i] += bias[i];
    }
}

void train_norms_backward(train_core *core, const train_norm_rows *rows, const float *dy,
                          uint32_t heads, const train_part *parts, size_t count, bool add,
                          float *dx) {
    norm_task task = {core->loops, rows, dy, dx, add, heads, parts, count};
    if (rows->norm->dweight != NULL)
        norm_gradients(core, &task);
    if (dx != NULL)
        train_each(core, rows->rows, 16, norm_rows_backward, &task);
}
