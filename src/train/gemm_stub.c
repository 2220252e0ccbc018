/* Temporary: plain loops behind gemm.h. */
#include "base/allocator.h"
#include "device/cpu/gemm.h"

#include <stdlib.h>
#include <string.h>

struct gemm {
    const avo_allocator *allocator;
};

avo_status gemm_open(const avo_allocator *allocator, const char *isa, team *team, gemm **out,
                     avo_error *error) {
    (void)isa;
    (void)team;
    *out = allocator_take_array(allocator, 1, sizeof(**out));
    if (*out == NULL)
        return status_no_memory(error, "gemm", sizeof(**out));
    (*out)->allocator = allocator;
    return AVO_OK;
}
void gemm_close(gemm *gemm) {
    if (gemm != NULL)
        allocator_give(gemm->allocator, gemm, sizeof(*gemm));
}
bool gemm_has_bf16(const gemm *gemm) {
    (void)gemm;
    return false;
}
static float *dense(const gemm *gemm, const gemm_operand *o, size_t rows, size_t columns) {
    float *out = allocator_take(gemm->allocator, rows * columns * sizeof(float));
    if (o->data != NULL) {
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < columns; j++)
                out[i * columns + j] = o->data[i * o->row_stride + j * o->column_stride];
        return out;
    }
    float *row = allocator_take(gemm->allocator, o->weight->k * sizeof(float));
    for (size_t r = 0; r < o->weight->rows; r++) {
        weight_decode_row(o->weight, r, row);
        for (size_t c = 0; c < o->weight->k; c++)
            out[o->transposed ? c * columns + r : r * columns + c] = row[c];
    }
    allocator_give(gemm->allocator, row, o->weight->k * sizeof(float));
    return out;
}
void gemm_run(gemm *gemm, const gemm_call *calls, size_t count) {
    for (size_t n = 0; n < count; n++) {
        const gemm_call *call = &calls[n];
        float *a = dense(gemm, &call->a, call->m, call->k);
        float *b = dense(gemm, &call->b, call->k, call->n);
        float *row = allocator_take(gemm->allocator, call->n * sizeof(float));
        for (size_t i = 0; i < call->m; i++) {
            memset(row, 0, call->n * sizeof(float));
            for (size_t p = 0; p < call->k; p++) {
                float x = a[i * call->k + p];
                for (size_t j = 0; j < call->n; j++)
                    row[j] += x * b[p * call->n + j];
            }
            float *c = call->c + i * call->c_stride;
            for (size_t j = 0; j < call->n; j++)
                c[j] = (call->add ? c[j] : 0.0f) + call->scale * row[j];
        }
        allocator_give(gemm->allocator, a, call->m * call->k * sizeof(float));
        allocator_give(gemm->allocator, b, call->k * call->n * sizeof(float));
        allocator_give(gemm->allocator, row, call->n * sizeof(float));
    }
}
