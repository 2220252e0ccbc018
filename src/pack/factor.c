/* H = (I + U) D (I + U)ᵀ with U strictly upper: a Cholesky factorisation from the last row to the
 * first, in blocks of 64 columns, by all workers. H is turned round first, so that the
 * factorisation itself is the usual one from the top. */
#include "pack/factor.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "pack/outer.h"

#include <math.h>
#include <string.h>

#define BLOCK    64
#define ATTEMPTS 6

avo_status factor_room_open(factor_room *room, size_t k_max, avo_error *error) {
    k_max = (k_max + 63) / 64 * 64;
    *room = (factor_room){.k_max = k_max};
    room->square = allocator_take(NULL, k_max * k_max * sizeof(float));
    room->upper = allocator_take(NULL, feedback_upper_floats(k_max) * sizeof(float));
    room->diagonal = allocator_take(NULL, k_max * sizeof(float));
    room->strip = allocator_take(NULL, BLOCK * k_max * sizeof(float));
    if (room->square != NULL && room->upper != NULL && room->diagonal != NULL &&
        room->strip != NULL)
        return AVO_OK;
    factor_room_close(room);
    return status_no_memory(error, "the factor of second moments", k_max * k_max * 6);
}

void factor_room_close(factor_room *room) {
    size_t k = room->k_max;
    allocator_give(NULL, room->square, k * k * sizeof(float));
    allocator_give(NULL, room->upper, feedback_upper_floats(k) * sizeof(float));
    allocator_give(NULL, room->diagonal, k * sizeof(float));
    allocator_give(NULL, room->strip, BLOCK * k * sizeof(float));
    *room = (factor_room){0};
}

/* moments[k][k] to [padded][padded] in place, zeros behind. */
static void pad(float *square, size_t k, size_t padded) {
    if (padded == k)
        return;
    for (size_t row = k; row-- > 0;) {
        memmove(square + row * padded, square + row * k, k * sizeof(float));
        memset(square + row * padded + k, 0, (padded - k) * sizeof(float));
    }
    memset(square + k * padded, 0, (padded - k) * padded * sizeof(float));
}

static void transpose(float *square, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            float a = square[i * n + j];
            square[i * n + j] = square[j * n + i];
            square[j * n + i] = a;
        }
}

/* Element (i, j) becomes (n − 1 − i, n − 1 − j): the array back to front. */
static void turn_round(float *square, size_t n) {
    for (size_t i = 0, j = n * n - 1; i < j; i++, j--) {
        float a = square[i];
        square[i] = square[j];
        square[j] = a;
    }
}

typedef struct cholesky {
    float *a; /* [n][n] lower triangle */
    size_t n;
    float *strip; /* [BLOCK][n] the block's columns, transposed */
    size_t begin, end;
    bool positive;
    team *team;
} cholesky;

/* The block on the diagonal, in double. */
static bool factor_diagonal(cholesky *c) {
    for (size_t j = c->begin; j < c->end; j++) {
        double sum = c->a[j * c->n + j];
        for (size_t p = c->begin; p < j; p++)
            sum -= (double)c->a[j * c->n + p] * c->a[j * c->n + p];
        if (!(sum > 0.0))
            return false;
        double pivot = sqrt(sum);
        c->a[j * c->n + j] = (float)pivot;
        for (size_t i = j + 1; i < c->end; i++) {
            double dot = c->a[i * c->n + j];
            for (size_t p = c->begin; p < j; p++)
                dot -= (double)c->a[i * c->n + p] * c->a[j * c->n + p];
            c->a[i * c->n + j] = (float)(dot / pivot);
        }
    }
    return true;
}

/* One row below: solved against the diagonal block, and written into the strip. */
static void solve_row(cholesky *c, size_t row) {
    float *at = c->a + row * c->n;
    for (size_t j = c->begin; j < c->end; j++) {
        const float *above = c->a + j * c->n;
        double dot = at[j];
        for (size_t p = c->begin; p < j; p++)
            dot -= (double)at[p] * above[p];
        at[j] = (float)(dot / above[j]);
        c->strip[(j - c->begin) * c->n + row] = at[j];
    }
}

static void cholesky_worker(void *context, uint32_t worker, uint32_t workers) {
    cholesky *c = context;
    for (size_t begin = 0; begin < c->n; begin += BLOCK) {
        if (worker == 0) {
            c->begin = begin;
            c->end = size_min(begin + BLOCK, c->n);
            c->positive = factor_diagonal(c);
        }
        team_barrier(c->team, worker);
        if (!c->positive)
            return;
        for (size_t row = c->end + worker; row < c->n; row += workers)
            solve_row(c, row);
        team_barrier(c->team, worker);
        size_t rows = c->end - c->begin;
        for (size_t i = c->end + worker * OUTER_TILE; i < c->n; i += workers * OUTER_TILE)
            for (size_t j = c->end; j <= i; j += OUTER_TILE)
                outer_add(c->strip, c->n, rows, i, j, -1.0f, c->a, c->n);
        team_barrier(c->team, worker);
    }
}

/* From the lower factor L, turned round, to U and D. M[i][j] = L[n−1−i][n−1−j]. */
static void take_factor(const float *lower, size_t n, factor_room *room) {
    for (size_t i = 0; i < n; i++) {
        size_t column = n - 1 - i;
        float pivot = lower[column * n + column];
        room->diagonal[i] = pivot * pivot;
        float inverse = 1.0f / pivot;
        float *block = room->upper + feedback_upper_at(i / FEEDBACK_TILE);
        for (size_t j = 0; j < (i / FEEDBACK_TILE + 1) * FEEDBACK_TILE; j++)
            block[j * FEEDBACK_TILE + i % FEEDBACK_TILE] =
                j < i ? lower[(n - 1 - j) * n + column] * inverse : 0.0f;
    }
}

avo_status factor_make(factor_room *room, size_t k, quant_type type, double damping, team *team,
                       feedback_factor *out, avo_error *error) {
    size_t n = feedback_k(type, k);
    float *square = room->square;
    *out = (feedback_factor){0};
    pad(square, k, n);
    if (type == QUANT_Q4R) {
        quant_rotate(square, n, n);
        transpose(square, n);
        quant_rotate(square, n, n);
    }
    double trace = 0;
    for (size_t i = 0; i < n; i++)
        trace += square[i * n + i];
    if (!(trace > 0.0))
        return AVO_OK;
    /* The upper triangle and the diagonal are kept for another try. */
    for (size_t i = 0; i < n; i++)
        room->diagonal[i] = square[i * n + i];
    double added = damping * trace / (double)n;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++, added *= 10.0) {
        for (size_t i = 0; i < n; i++) {
            for (size_t j = 0; j < i; j++)
                square[i * n + j] = square[j * n + i];
            square[i * n + i] = room->diagonal[i] + (float)added;
        }
        turn_round(square, n);
        cholesky c = {.a = square, .n = n, .strip = room->strip, .team = team};
        team_each(team, cholesky_worker, &c);
        if (c.positive) {
            take_factor(square, n, room);
            *out = (feedback_factor){.k = n, .upper = room->upper, .diagonal = room->diagonal};
            return AVO_OK;
        }
        /* The lower triangle is spoilt and so is the diagonal; the other half is whole. */
        turn_round(square, n);
        transpose(square, n);
    }
    return status_fail(error, AVO_ERROR_FORMAT,
                       "second moments of %zu channels cannot be factorised; they are damaged", k);
}
