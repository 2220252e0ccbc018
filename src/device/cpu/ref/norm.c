/* Norms of the reference back end: sums in 16 lanes (lane = index mod 16) and one fixed tree. */
#include "device/cpu/ref/ref_int.h"

#include "base/mathf.h"

#include <string.h>

static float sum_of(const float *x, uint32_t width) {
    float lanes[16] = {0};
    for (uint32_t i = 0; i < width; i++)
        lanes[i % 16] += x[i];
    return math_sum16(lanes);
}

/* Σ (x − centre)² */
static float squares_of(const float *x, uint32_t width, float centre) {
    float lanes[16] = {0};
    for (uint32_t i = 0; i < width; i++) {
        float d = x[i] - centre;
        lanes[i % 16] += d * d;
    }
    return math_sum16(lanes);
}

void reference_norm_vector(const norm_view *norm, const float *x, uint32_t width, float *out) {
    if (norm->kind == NORM_NONE) {
        if (out != x)
            memcpy(out, x, width * sizeof(float));
        return;
    }
    float mean = norm->kind == NORM_LAYER ? sum_of(x, width) / (float)width : 0.0f;
    float variance = squares_of(x, width, mean) / (float)width;
    float scale = 1.0f / sqrtf(variance + norm->epsilon);
    for (uint32_t i = 0; i < width; i++) {
        float y = (x[i] - mean) * scale * norm->weight[i];
        out[i] = norm->bias == NULL ? y : y + norm->bias[i];
    }
}

void reference_norm_row(const step_view *step, uint32_t worker, const reference_norm_site *site,
                        uint32_t row, const float *x, uint32_t width, float *out) {
    norm_view norm = run_norm(step->batch, row, site->layer, site->place, site->norm, width,
                              reference_worker_scratch(step, worker));
    reference_norm_vector(&norm, x, width, out);
}

typedef struct norm_task {
    const step_view *step;
    const reference_norm_site *site;
    const float *x;
    float *out;
} norm_task;

static void norm_worker(void *context, uint32_t worker, uint32_t workers) {
    const norm_task *task = context;
    uint32_t width = task->step->model->width;
    size_t begin;
    size_t end;
    team_share(task->step->batch->rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++)
        reference_norm_row(task->step, worker, task->site, (uint32_t)row, task->x + row * width,
                           width, task->out + row * width);
}

void reference_norm(const step_view *step, const reference_norm_site *site, const float *x,
                    float *out) {
    norm_task task = {step, site, x, out};
    reference_run(step, norm_worker, &task);
}
