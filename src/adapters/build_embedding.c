/* The embedding's part: rows that are looked up by token. A low rank keeps A transposed, so that a
 * token's row is one run of numbers; a table that was trained as a whole is kept as difference; so
 * is DoRA's, whose gains belong to columns. */
#include "adapters/build_int.h"

#include "base/checked.h"

#include <math.h>

typedef struct table {
    float *up;   /* [width][rank] */
    float *gain; /* [width] */
    float *row;  /* [max(width, rank)] */
    float *base; /* [width] */
} table;

static avo_status look_row(builder *b, const module_draft *module, size_t token, size_t rank,
                           float *out, avo_error *error) {
    if (b->draft->look_rows)
        return build_row(b, module->down, token, rank, out, error);
    /* Column `token` of [rank][vocabulary]. */
    size_t vocabulary = b->draft->base->view->embedding.rows;
    weight_view halves = {.type = module->down->type,
                          .layout = QUANT_LAYOUT_COLUMNS,
                          .rows = (uint32_t)vocabulary,
                          .k = (uint32_t)rank,
                          .rows_whole = (uint32_t)vocabulary,
                          .data = module->down->data};
    weight_decode_row(&halves, token, out);
    for (size_t i = 0; i < rank; i++)
        if (!isfinite(out[i]))
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: tensor %.*s contains NaN or Inf; the adapter is damaged",
                               b->draft->path, TEXT_ARGUMENT(module->down->name));
    return AVO_OK;
}

static avo_status put_row(builder *b, const source_tensor *tensor, size_t token, const float *row,
                          avo_error *error) {
    const weight_view *look = &b->adapter->view.embedding.look;
    uint64_t bytes = 0;
    AVO_TRY(build_fits(b, look->type, tensor, row, look->k, error));
    if (!quant_run_bytes(look->type, look->k, &bytes))
        return AVO_ERROR_UNSUPPORTED; /* cannot be: it has a size */
    quant_encode(look->type, row, look->k, (uint8_t *)(uintptr_t)look->data + token * bytes);
    return AVO_OK;
}

/* ---- DoRA ---- */

/* base + s · up · look, of one token. */
static avo_status full_row(builder *b, const module_draft *module, const table *t, size_t token,
                           float *out, avo_error *error) {
    size_t width = b->draft->base->view->embedding.k, rank = module->rank;
    float look[ADAPTER_RANK_MAX];
    AVO_TRY(look_row(b, module, token, rank, look, error));
    weight_decode_row(&b->draft->base->view->embedding, token, t->base);
    for (size_t i = 0; i < width; i++) {
        float sum = 0.0f;
        for (size_t r = 0; r < rank; r++)
            sum += t->up[i * rank + r] * look[r];
        out[i] = t->base[i] + (float)module->scale * sum;
    }
    return AVO_OK;
}

static avo_status dora_gains(builder *b, const module_draft *module, const table *t,
                             avo_error *error) {
    size_t width = b->draft->base->view->embedding.k;
    double *squares = allocator_take_array(b->allocator, width, sizeof(double));
    if (squares == NULL)
        return status_no_memory(error, "DoRA's norms", width * sizeof(double));
    avo_status status = build_vector(b, module->magnitude, t->gain, error);
    for (size_t token = 0; token < b->draft->base->view->embedding.rows && status == AVO_OK;
         token++) {
        status = full_row(b, module, t, token, t->row, error);
        for (size_t i = 0; i < width; i++)
            squares[i] += (double)t->row[i] * (double)t->row[i];
    }
    for (size_t i = 0; i < width && status == AVO_OK; i++) {
        t->gain[i] /= (float)sqrt(squares[i]);
        if (!isfinite(t->gain[i]))
            status =
                status_fail(error, AVO_ERROR_FORMAT,
                            "%s: module %s: column %zu has norm 0, and DoRA divides by the norm",
                            b->draft->path, module->name, i);
    }
    allocator_give(b->allocator, squares, width * sizeof(double));
    return status;
}

static avo_status dora_rows(builder *b, const module_draft *module, const table *t,
                            avo_error *error) {
    size_t width = b->draft->base->view->embedding.k, rank = module->rank;
    for (size_t i = 0; i < width; i++)
        AVO_TRY(build_row(b, module->up, i, rank, t->up + i * rank, error));
    AVO_TRY(dora_gains(b, module, t, error));
    for (size_t token = 0; token < b->draft->base->view->embedding.rows; token++) {
        AVO_TRY(full_row(b, module, t, token, t->row, error));
        for (size_t i = 0; i < width; i++)
            t->row[i] = t->gain[i] * t->row[i] - t->base[i];
        AVO_TRY(put_row(b, module->up, token, t->row, error));
    }
    return AVO_OK;
}

/* ---- Low rank and whole ---- */

static avo_status plain_rows(builder *b, const module_draft *module, const table *t,
                             avo_error *error) {
    const weight_view *base = &b->draft->base->view->embedding;
    bool whole = module->weight != NULL;
    for (size_t token = 0; token < base->rows; token++) {
        if (whole) {
            weight_decode_row(base, token, t->base);
            AVO_TRY(build_difference(b, module, token, base->k, t->base, t->row, error));
        } else {
            AVO_TRY(look_row(b, module, token, module->rank, t->row, error));
        }
        AVO_TRY(put_row(b, whole ? module->weight : module->down, token, t->row, error));
    }
    return AVO_OK;
}

avo_status build_embedding(builder *b, const module_draft *module, avo_error *error) {
    size_t width = b->draft->base->view->embedding.k;
    size_t longest = size_max(width, ADAPTER_RANK_MAX);
    size_t count = width * module->rank + width + longest + width;
    float *all = allocator_take(b->allocator, count * sizeof(float));
    if (all == NULL)
        return status_no_memory(error, "rows of an embedding", count * sizeof(float));
    table t = {.up = all};
    t.gain = t.up + width * module->rank;
    t.row = t.gain + width;
    t.base = t.row + longest;
    avo_status status = module->magnitude != NULL ? dora_rows(b, module, &t, error)
                                                  : plain_rows(b, module, &t, error);
    allocator_give(b->allocator, all, count * sizeof(float));
    return status;
}
