/* Newton-Schulz: with X = G ÷ ‖G‖, five times X ← aX + (bA + cA²)X, A = XXᵀ, which drives all
 * singular values towards 1. X has at most as many rows as columns (G is transposed where it has
 * more), so that A is small. Products are computed row by row; each element is one sum over k in
 * ascending order, so bits do not depend on the threads. */
#include "train/muon.h"

#include <math.h>
#include <string.h>

#define NEWTON_SCHULZ_STEPS 5

struct muon {
    const avo_allocator *allocator;
    team *team;
    uint64_t numbers, squares; /* floats of x and next; of a and polynomial */
    float *x, *next;           /* [rows][columns], rows ≤ columns */
    float *a, *polynomial;     /* [rows][rows] */
};

static void largest(const train_parameters *parameters, uint64_t *numbers, uint64_t *squares) {
    *numbers = *squares = 0;
    for (uint32_t i = 0; i < parameters->count; i++) {
        const train_parameter *p = &parameters->item[i];
        uint64_t small = p->rows < p->k ? p->rows : p->k;
        if (p->role != TRAIN_MATRIX)
            continue;
        *numbers = (uint64_t)p->rows * p->k > *numbers ? (uint64_t)p->rows * p->k : *numbers;
        *squares = small * small > *squares ? small * small : *squares;
    }
}

uint64_t muon_scratch_bytes(const train_parameters *parameters) {
    uint64_t numbers, squares;
    largest(parameters, &numbers, &squares);
    return sizeof(muon) + 2 * (numbers + squares) * sizeof(float);
}

avo_status muon_open(const avo_allocator *allocator, team *team, const train_parameters *parameters,
                     muon **out, avo_error *error) {
    *out = NULL;
    muon *m = allocator_take(allocator, sizeof(*m));
    if (m == NULL)
        return status_no_memory(error, "Muon", sizeof(*m));
    *m = (muon){.allocator = allocator, .team = team};
    largest(parameters, &m->numbers, &m->squares);
    if (m->numbers > 0) {
        m->x = allocator_take_array(allocator, m->numbers, sizeof(float));
        m->next = allocator_take_array(allocator, m->numbers, sizeof(float));
        m->a = allocator_take_array(allocator, m->squares, sizeof(float));
        m->polynomial = allocator_take_array(allocator, m->squares, sizeof(float));
        if (m->x == NULL || m->next == NULL || m->a == NULL || m->polynomial == NULL) {
            uint64_t bytes = 2 * (m->numbers + m->squares) * sizeof(float);
            muon_close(m);
            return status_no_memory(error, "Muon's scratch", bytes);
        }
    }
    *out = m;
    return AVO_OK;
}

void muon_close(muon *m) {
    if (m == NULL)
        return;
    allocator_give(m->allocator, m->x, m->numbers * sizeof(float));
    allocator_give(m->allocator, m->next, m->numbers * sizeof(float));
    allocator_give(m->allocator, m->a, m->squares * sizeof(float));
    allocator_give(m->allocator, m->polynomial, m->squares * sizeof(float));
    allocator_give(m->allocator, m, sizeof(*m));
}

/* ---- The iterations ---- */

typedef struct work {
    float *x, *next, *a, *polynomial;
    size_t rows, columns;
} work;

/* out[j] += factor · in[j] */
static void add_row(float *restrict out, const float *restrict in, float factor, size_t count) {
    for (size_t j = 0; j < count; j++)
        out[j] += factor * in[j];
}

/* Sixteen sums by position, added in one order. */
static float dot(const float *restrict x, const float *restrict y, size_t count) {
    float sums[16] = {0};
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (size_t j = 0; j < 16; j++)
            sums[j] += x[i + j] * y[i + j];
    for (size_t j = 0; i + j < count; j++)
        sums[j] += x[i + j] * y[i + j];
    for (size_t width = 8; width > 0; width /= 2)
        for (size_t j = 0; j < width; j++)
            sums[j] += sums[j + width];
    return sums[0];
}

/* A = XXᵀ, a row for each item. */
static void gram_items(const void *context, uint32_t argument, team_items *items) {
    (void)argument;
    const work *w = context;
    uint32_t row;
    while (team_take(items, &row))
        for (size_t j = 0; j < w->rows; j++)
            w->a[row * w->rows + j] =
                dot(w->x + row * w->columns, w->x + j * w->columns, w->columns);
}

/* bA + cA². */
static void polynomial_items(const void *context, uint32_t argument, team_items *items) {
    (void)argument;
    const work *w = context;
    const float b = -4.7750f, c = 2.0315f;
    uint32_t row;
    while (team_take(items, &row)) {
        float *out = w->polynomial + row * w->rows;
        const float *a = w->a + row * w->rows;
        memset(out, 0, w->rows * sizeof(float));
        for (size_t k = 0; k < w->rows; k++)
            add_row(out, w->a + k * w->rows, a[k], w->rows);
        for (size_t j = 0; j < w->rows; j++)
            out[j] = b * a[j] + c * out[j];
    }
}

/* aX + (bA + cA²)X. */
static void next_items(const void *context, uint32_t argument, team_items *items) {
    (void)argument;
    const work *w = context;
    uint32_t row;
    while (team_take(items, &row)) {
        float *out = w->next + row * w->columns;
        const float *x = w->x + row * w->columns;
        memset(out, 0, w->columns * sizeof(float));
        for (size_t k = 0; k < w->rows; k++)
            add_row(out, w->x + k * w->columns, w->polynomial[row * w->rows + k], w->columns);
        for (size_t j = 0; j < w->columns; j++)
            out[j] += 3.4445f * x[j];
    }
}

static void iterate(muon *m, work *w) {
    for (int i = 0; i < NEWTON_SCHULZ_STEPS; i++) {
        uint32_t rows = (uint32_t)w->rows;
        const team_phase phases[] = {{.compute = gram_items, .items = rows},
                                     {.compute = polynomial_items, .items = rows},
                                     {.compute = next_items, .items = rows}};
        team_run(m->team, phases, 3, w);
        float *before = w->x;
        w->x = w->next;
        w->next = before;
    }
}

void muon_update(muon *m, const train_parameter *p, float *buffer, const muon_step *step) {
    size_t rows = p->rows, columns = p->k, count = rows * columns;
    bool transposed = rows > columns;
    work w = {.x = m->x,
              .next = m->next,
              .a = m->a,
              .polynomial = m->polynomial,
              .rows = transposed ? columns : rows,
              .columns = transposed ? rows : columns};
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        float gradient = p->gradient[i] * step->scale;
        buffer[i] += (gradient - buffer[i]) * (1.0f - step->momentum);
        float update = gradient + (buffer[i] - gradient) * step->momentum;
        size_t row = i / columns, column = i % columns;
        w.x[transposed ? column * rows + row : i] = update;
        sum += (double)update * (double)update;
    }
    double norm = sqrt(sum);
    float inverse = (float)(1.0 / (norm > 1e-7 ? norm : 1e-7));
    for (size_t i = 0; i < count; i++)
        w.x[i] *= inverse;
    iterate(m, &w);
    double ratio = (double)rows / (double)columns;
    float rate = (float)(step->rate * sqrt(ratio > 1.0 ? ratio : 1.0));
    float decay = (float)(1.0 - step->rate * step->weight_decay);
    for (size_t i = 0; i < count; i++) {
        size_t row = i / columns, column = i % columns;
        float update = w.x[transposed ? column * rows + row : i];
        p->value[i] = p->value[i] * decay - rate * update;
    }
}
