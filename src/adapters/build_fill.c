/* Numbers into places: halves of a low rank, differences of whole matrices, DoRA's gains, biases,
 * norms. Every number of a file passes build_row or build_vector, which refuse what is none. */
#include "adapters/build_int.h"

#include "adapters/lanes.h"
#include "base/checked.h"

#include <math.h>

/* ---- Numbers of a file ---- */

static avo_status check_finite(const builder *b, const source_tensor *tensor, const float *numbers,
                               size_t count, avo_error *error) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(numbers[i]))
            return status_fail(
                error, AVO_ERROR_FORMAT, "%s: tensor %.*s contains %s; the adapter is damaged",
                b->draft->path, TEXT_ARGUMENT(tensor->name), isnan(numbers[i]) ? "NaN" : "Inf");
    return AVO_OK;
}

avo_status build_row(const builder *b, const source_tensor *tensor, uint64_t row, uint64_t k,
                     float *out, avo_error *error) {
    uint64_t bytes = 0;
    if (!quant_run_bytes(tensor->type, k, &bytes))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: tensor %.*s: row length %llu does not fit its type", b->draft->path,
                           TEXT_ARGUMENT(tensor->name), (unsigned long long)k);
    quant_decode(tensor->type, tensor->data + row * bytes, (size_t)k, out);
    return check_finite(b, tensor, out, (size_t)k, error);
}

avo_status build_vector(const builder *b, const source_tensor *tensor, float *out,
                        avo_error *error) {
    size_t count = (size_t)source_tensor_elements(tensor);
    quant_decode(tensor->type, tensor->data, count, out);
    return check_finite(b, tensor, out, count, error);
}

avo_status build_difference(const builder *b, const module_draft *module, uint64_t row, uint64_t k,
                            const float *base, float *out, avo_error *error) {
    if (module->token_row != NULL && module->token_row[row] == TOKEN_ROW_NONE) {
        memset(out, 0, (size_t)k * sizeof(float));
        return AVO_OK;
    }
    AVO_TRY(build_row(b, module->weight, module->token_row != NULL ? module->token_row[row] : row,
                      k, out, error));
    for (size_t i = 0; i < k; i++)
        out[i] -= base[i];
    return AVO_OK;
}

avo_status build_fits(const builder *b, quant_type type, const source_tensor *tensor,
                      const float *numbers, size_t count, avo_error *error) {
    float largest = weight_largest(type);
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(numbers[i]) <= largest) || !isfinite(numbers[i]))
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "%s: tensor %.*s: value %g is too large for %s; use f32",
                               b->draft->path, TEXT_ARGUMENT(tensor->name), (double)numbers[i],
                               quant_name(type));
    return AVO_OK;
}

/* ---- Matrices, panel after panel ---- */

typedef struct site_fill {
    const adapter_array *array;
    const module_draft *module;
    uint32_t first;            /* row of the module where the site begins */
    const linear_view *linear; /* of the base */
    const float *gain;         /* NULL: none */
} site_fill;

static size_t panel_rows(const weight_view *view, size_t panel) {
    return size_min(view->rows - panel * QUANT_PANEL_ROWS, QUANT_PANEL_ROWS);
}

/* The row of the file's tensor for row `row` of the site. */
static uint32_t file_row(const builder *b, const site_fill *fill, uint32_t row) {
    return fill->first + draft_row(b->draft, fill->array->site, row);
}

/* A row of a weight that was trained as a whole, minus the base's (lane `lane` of b->lanes). */
static avo_status difference_row(const builder *b, const site_fill *fill, uint32_t row, size_t lane,
                                 float *out, avo_error *error) {
    const source_tensor *tensor = fill->module->weight;
    size_t k = fill->linear->weight.k;
    uint32_t from = file_row(b, fill, row);
    bool transposed = b->draft->transposed && fill->array->layer != UINT32_MAX;
    if (transposed) {
        weight_view whole = {.type = tensor->type,
                             .layout = QUANT_LAYOUT_COLUMNS,
                             .rows = (uint32_t)tensor->shape[1],
                             .k = (uint32_t)tensor->shape[0],
                             .rows_whole = (uint32_t)tensor->shape[1],
                             .data = tensor->data};
        weight_decode_row(&whole, from, out);
        AVO_TRY(check_finite(b, tensor, out, k, error));
    } else if (fill->module->token_row != NULL && fill->module->token_row[from] == TOKEN_ROW_NONE) {
        memset(out, 0, k * sizeof(float));
        return AVO_OK;
    } else {
        AVO_TRY(build_row(b, tensor,
                          fill->module->token_row != NULL ? fill->module->token_row[from] : from, k,
                          out, error));
    }
    for (size_t i = 0; i < k; i++)
        out[i] -= b->lanes[i * QUANT_PANEL_ROWS + lane];
    return AVO_OK;
}

static avo_status fill_panel(builder *b, const site_fill *fill, size_t panel, uint8_t *out,
                             avo_error *error) {
    const weight_view *view = fill->array->matrix;
    const module_draft *module = fill->module;
    size_t rows = panel_rows(view, panel);
    bool down = fill->array->part == PART_DOWN;
    bool whole = !down && module->weight != NULL;
    const source_tensor *tensor = down ? module->down : whole ? module->weight : module->up;
    if (whole)
        weight_decode_panel(&fill->linear->weight, panel, b->lanes);
    for (size_t i = 0; i < rows; i++) {
        uint32_t row = (uint32_t)(panel * QUANT_PANEL_ROWS + i);
        float *to = b->rows + i * view->k;
        if (whole)
            AVO_TRY(difference_row(b, fill, row, i, to, error));
        else
            AVO_TRY(build_row(b, tensor, down ? row : file_row(b, fill, row), view->k, to, error));
        for (size_t j = 0; fill->gain != NULL && !down && j < view->k; j++)
            to[j] *= fill->gain[row];
    }
    AVO_TRY(build_fits(b, view->type, tensor, b->rows, rows * view->k, error));
    weight_encode_panel(view->type, b->rows, rows, view->k, out);
    return AVO_OK;
}

static avo_status fill_matrix(builder *b, const site_fill *fill, avo_error *error) {
    const weight_view *view = fill->array->matrix;
    uint64_t bytes;
    if (!weight_panel_bytes(view->type, view->k, &bytes))
        return AVO_ERROR_UNSUPPORTED; /* cannot be: it has a size */
    uint8_t *data = (uint8_t *)(uintptr_t)view->data;
    for (size_t panel = 0; panel < weight_panels(view); panel++)
        AVO_TRY(fill_panel(b, fill, panel, data + panel * (size_t)bytes, error));
    return AVO_OK;
}

/* ---- DoRA: gain = magnitude / ‖W + s·B·A‖ by rows ---- */

/* Σ over k of (w + s·b·a)² of 16 rows. `lanes` is [k][16] and overwritten, `a` [k][rank], `up`
 * [rank][16] with s in it. */
static void sum_squares(float *lanes, const float *a, const float *up, size_t k, size_t rank,
                        double *sum) {
    lanes_product(lanes, a, up, k, rank, lanes);
    for (size_t lane = 0; lane < QUANT_PANEL_ROWS; lane++)
        sum[lane] = 0.0;
    for (size_t i = 0; i < k; i++)
        for (size_t lane = 0; lane < QUANT_PANEL_ROWS; lane++) {
            double value = (double)lanes[i * QUANT_PANEL_ROWS + lane];
            sum[lane] += value * value;
        }
}

static avo_status gain_panels(builder *b, const site_fill *fill, const float *a,
                              const float *magnitude, float *gain, avo_error *error) {
    const module_draft *module = fill->module;
    const weight_view *base = &fill->linear->weight;
    float row[ADAPTER_RANK_MAX], up[ADAPTER_RANK_MAX * QUANT_PANEL_ROWS];
    for (size_t panel = 0; panel < weight_panels(base); panel++) {
        size_t rows = panel_rows(base, panel);
        memset(up, 0, sizeof(up));
        for (size_t i = 0; i < rows; i++) {
            uint32_t from = file_row(b, fill, (uint32_t)(panel * QUANT_PANEL_ROWS + i));
            AVO_TRY(build_row(b, module->up, from, module->rank, row, error));
            for (size_t r = 0; r < module->rank; r++)
                up[r * QUANT_PANEL_ROWS + i] = (float)module->scale * row[r];
        }
        weight_decode_panel(base, panel, b->lanes);
        double sum[QUANT_PANEL_ROWS];
        sum_squares(b->lanes, a, up, base->k, module->rank, sum);
        for (size_t i = 0; i < rows; i++) {
            size_t at = panel * QUANT_PANEL_ROWS + i;
            float size = (float)sqrt(sum[i]);
            gain[at] = magnitude[file_row(b, fill, (uint32_t)at)] / size;
            if (!isfinite(gain[at]))
                return status_fail(
                    error, AVO_ERROR_FORMAT,
                    "%s: module %s: row %zu has norm 0, and DoRA divides by the norm",
                    b->draft->path, module->name, at);
        }
    }
    return AVO_OK;
}

static avo_status fill_gain(builder *b, const site_fill *fill, float *gain, avo_error *error) {
    const module_draft *module = fill->module;
    size_t k = fill->linear->weight.k, rank = module->rank;
    size_t magnitudes = (size_t)source_tensor_elements(module->magnitude);
    size_t count = k * rank + magnitudes;
    float *a = allocator_take(b->allocator, count * sizeof(float));
    if (a == NULL)
        return status_no_memory(error, "DoRA's norms", count * sizeof(float));
    float *magnitude = a + k * rank;
    avo_status status = build_vector(b, module->magnitude, magnitude, error);
    for (size_t r = 0; r < rank && status == AVO_OK; r++) {
        status = build_row(b, module->down, r, k, b->rows, error);
        for (size_t i = 0; i < k; i++)
            a[i * rank + r] = b->rows[i];
    }
    AVO_THEN(status, gain_panels(b, fill, a, magnitude, gain, error));
    allocator_give(b->allocator, a, count * sizeof(float));
    return status;
}

/* ---- Biases and norms ---- */

/* bias trained − gain · bias of the base + scale · bias of B. */
static avo_status fill_offset(builder *b, const site_fill *fill, float *offset, avo_error *error) {
    const module_draft *module = fill->module;
    const float *base = fill->linear->bias;
    size_t rows = fill->linear->weight.rows;
    size_t count =
        2 * (fill->first + rows +
             (module->bias != NULL ? (size_t)source_tensor_elements(module->bias) : 0) +
             (module->up_bias != NULL ? (size_t)source_tensor_elements(module->up_bias) : 0));
    float *trained = allocator_take_array(b->allocator, count, sizeof(float));
    if (trained == NULL)
        return status_no_memory(error, "biases", count * sizeof(float));
    float *up = trained + count / 2;
    avo_status status = AVO_OK;
    if (module->bias != NULL)
        status = build_vector(b, module->bias, trained, error);
    if (module->up_bias != NULL && status == AVO_OK)
        status = build_vector(b, module->up_bias, up, error);
    for (uint32_t i = 0; i < rows && status == AVO_OK; i++) {
        uint32_t from = file_row(b, fill, i);
        float own = base == NULL ? 0.0f : base[i];
        float gain = fill->gain == NULL ? 1.0f : fill->gain[i];
        float bias = module->bias == NULL ? own : trained[from];
        offset[i] = bias - gain * own;
        if (module->up_bias != NULL)
            offset[i] += (float)module->scale * up[from];
    }
    allocator_give(b->allocator, trained, count * sizeof(float));
    return status;
}

static avo_status fill_norm(builder *b, const adapter_array *array, const module_draft *module,
                            float *out, avo_error *error) {
    uint32_t width;
    const norm_view *norm = site_norm(b->draft->base->view, array->layer, array->site, &width);
    bool weight = array->part == PART_NORM_WEIGHT;
    AVO_TRY(build_vector(b, weight ? module->weight : module->bias, out, error));
    const float *base = weight ? norm->weight : norm->bias;
    for (uint32_t i = 0; i < width; i++)
        out[i] = (weight && b->draft->norm_plus_one ? 1.0f + out[i] : out[i]) - base[i];
    return AVO_OK;
}

/* ---- Copies of the base's weights ---- */

#define COPY_BOUND_FLOATS 0.02 /* of the norm: what another type of floats rounds away */
#define COPY_BOUND_BLOCKS 0.25 /* what quantising does */

/* PEFT saves what LoRA wraps beside the LoRA of embeddings and heads. It must be what the base has,
 * but for rounding: otherwise the adapter belongs to another one. */
static avo_status check_copy(builder *b, const module_draft *module, const weight_view *base,
                             avo_error *error) {
    double apart = 0.0, size = 0.0;
    for (size_t panel = 0; panel < weight_panels(base); panel++) {
        weight_decode_panel(base, panel, b->lanes);
        for (size_t lane = 0; lane < panel_rows(base, panel); lane++) {
            AVO_TRY(build_row(b, module->copy, panel * QUANT_PANEL_ROWS + lane, base->k, b->rows,
                              error));
            for (size_t i = 0; i < base->k; i++) {
                double own = (double)b->lanes[i * QUANT_PANEL_ROWS + lane];
                double difference = (double)b->rows[i] - own;
                apart += difference * difference;
                size += own * own;
            }
        }
    }
    bool floats = base->type == QUANT_F32 || base->type == QUANT_F16 || base->type == QUANT_BF16;
    double bound = floats ? COPY_BOUND_FLOATS : COPY_BOUND_BLOCKS;
    if (sqrt(apart) <= bound * sqrt(size))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_FORMAT,
                       "%s: tensor %.*s differs from the base model's by %.0f %%; the adapter was "
                       "made for another base model",
                       b->draft->path, TEXT_ARGUMENT(module->copy->name),
                       size > 0 ? 100.0 * sqrt(apart / size) : 100.0);
}

static avo_status check_copies(builder *b, avo_error *error) {
    const model_config *config = b->draft->base->config;
    const model_view *view = b->draft->base->view;
    const module_draft *embedding = &b->draft->modules[module_index(config, 0, MODULE_EMBEDDING)];
    const module_draft *head = &b->draft->modules[module_index(config, 0, MODULE_HEAD)];
    if (embedding->copy != NULL)
        AVO_TRY(check_copy(b, embedding, &view->embedding, error));
    return head->copy == NULL ? AVO_OK : check_copy(b, head, &view->head.weight, error);
}

/* ---- All of it ---- */

static avo_status fill_array(builder *b, const adapter_array *array, bool shared,
                             avo_error *error) {
    bool there = array->matrix != NULL ? array->matrix->data != NULL : *array->floats != NULL;
    if (!there || shared)
        return AVO_OK;
    site_fill fill = {.array = array};
    fill.module = build_module(b, array->layer, array->site, &fill.first);
    fill.linear = site_linear(b->draft->base->view, array->layer, array->site);
    adapter_delta *delta =
        site_delta(&b->adapter->view, array->layer == UINT32_MAX ? NULL : &b->layers[array->layer],
                   array->site);
    fill.gain = delta == NULL ? NULL : delta->gain;
    switch (array->part) {
    case PART_LOOK:
        return build_embedding(b, fill.module, error);
    case PART_UP: /* the gain is in it: so that comes first */
        if (fill.gain != NULL)
            AVO_TRY(fill_gain(b, &fill, (float *)(uintptr_t)fill.gain, error));
        return fill_matrix(b, &fill, error);
    case PART_DOWN:
        return fill_matrix(b, &fill, error);
    case PART_GAIN:
        return AVO_OK;
    case PART_OFFSET:
        return fill_offset(b, &fill, (float *)(uintptr_t)*array->floats, error);
    case PART_NORM_WEIGHT:
    case PART_NORM_BIAS:
        return fill_norm(b, array, fill.module, (float *)(uintptr_t)*array->floats, error);
    }
    return AVO_OK;
}

static avo_status fill_all(builder *b, avo_error *error) {
    uint32_t layers = b->draft->base->view->layers;
    const uint8_t *last = NULL;
    for (uint32_t i = 0; i < array_count(layers); i++) {
        adapter_array array = array_at(&b->adapter->view, b->layers, layers, i);
        bool shared = array.part == PART_DOWN && array.matrix->data == last;
        AVO_TRY(fill_array(b, &array, shared, error));
        if (array.part == PART_DOWN)
            last = array.matrix->data;
    }
    return AVO_OK;
}

/* Rows of halves and of the base: as long as the longest input, or the highest rank. */
static size_t longest(const builder *b) {
    const model_view *base = b->draft->base->view;
    size_t k = size_max(base->k_max, ADAPTER_RANK_MAX);
    return size_max(k, base->embedding.k);
}

avo_status build_fill(builder *b, avo_error *error) {
    b->k_max = longest(b);
    size_t bytes = 2 * b->k_max * QUANT_PANEL_ROWS * sizeof(float);
    b->rows = allocator_take(b->allocator, bytes);
    if (b->rows == NULL)
        return status_no_memory(error, "rows of an adapter", bytes);
    b->lanes = b->rows + b->k_max * QUANT_PANEL_ROWS;
    avo_status status = check_copies(b, error);
    AVO_THEN(status, fill_all(b, error));
    allocator_give(b->allocator, b->rows, bytes);
    return status;
}
