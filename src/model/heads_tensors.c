/* Tensors of draft heads: found by name, checked, and laid out in panels. */
#include "model/heads_int.h"

#include "base/checked.h"
#include "base/float_mode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK       32 /* columns that share a scale */
#define Q4_1_LEVELS 15.0f

/* ---- Finding ---- */

static avo_status find(heads_reader *reader, const char *name, const source_tensor **out) {
    *out = source_find(reader->source, text_from(name));
    if (*out == NULL)
        return status_fail(reader->error, AVO_ERROR_FORMAT, "%s: tensor \"%s\" is missing",
                           reader->heads->path, name);
    reader->used++;
    return AVO_OK;
}

static avo_status check_shape(heads_reader *reader, const source_tensor *tensor, uint64_t rows,
                              uint64_t columns) {
    bool flat = rows == 1 && tensor->rank == 1 && tensor->shape[0] == columns;
    bool matrix = tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns;
    if (flat || matrix)
        return AVO_OK;
    return status_fail(reader->error, AVO_ERROR_FORMAT,
                       "%s: tensor \"%.*s\" has shape [%llu, %llu], must have [%llu, %llu]",
                       reader->heads->path, TEXT_ARGUMENT(tensor->name),
                       (unsigned long long)tensor->shape[0], (unsigned long long)tensor->shape[1],
                       (unsigned long long)rows, (unsigned long long)columns);
}

static avo_status check_type(heads_reader *reader, const source_tensor *tensor, quant_type type) {
    if (tensor->type == type)
        return AVO_OK;
    return status_fail(reader->error, AVO_ERROR_FORMAT,
                       "%s: tensor \"%.*s\" has type %s, must have %s", reader->heads->path,
                       TEXT_ARGUMENT(tensor->name), quant_name(tensor->type), quant_name(type));
}

static avo_status check_finite(heads_reader *reader, const char *name, const float *numbers,
                               size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(numbers[i]))
            return status_fail(reader->error, AVO_ERROR_FORMAT,
                               "%s: tensor \"%s\" contains NaN or Inf at %zu", reader->heads->path,
                               name, i);
    return AVO_OK;
}

avo_status heads_take_norm(heads_reader *reader, const char *name, uint32_t rows, uint32_t width,
                           const float **norm) {
    const source_tensor *tensor;
    AVO_TRY(find(reader, name, &tensor));
    AVO_TRY(check_type(reader, tensor, QUANT_F32));
    AVO_TRY(check_shape(reader, tensor, rows, width));
    size_t count = (size_t)rows * width;
    float *own = arena_take_array(&reader->heads->arena, count, sizeof(float));
    if (own == NULL)
        return status_no_memory(reader->error, name, count * sizeof(float));
    memcpy(own, tensor->data, count * sizeof(float));
    *norm = own;
    return check_finite(reader, name, own, count);
}

avo_status heads_take_frequent(heads_reader *reader) {
    const heads_config *config = &reader->heads->config;
    const source_tensor *tensor;
    AVO_TRY(find(reader, "frequent", &tensor));
    AVO_TRY(check_type(reader, tensor, QUANT_I32));
    AVO_TRY(check_shape(reader, tensor, 1, config->frequent));
    int32_t *own = arena_take_array(&reader->heads->arena, config->frequent, sizeof(int32_t));
    if (own == NULL)
        return status_no_memory(reader->error, "frequent", config->frequent * sizeof(int32_t));
    memcpy(own, tensor->data, config->frequent * sizeof(int32_t));
    for (uint32_t i = 0; i < config->frequent; i++)
        if (own[i] < 0 || (uint32_t)own[i] >= config->vocabulary || (i > 0 && own[i] <= own[i - 1]))
            return status_fail(reader->error, AVO_ERROR_FORMAT,
                               "%s: frequent[%u] is %d, must ascend and be below vocabulary (%u)",
                               reader->heads->path, i, own[i], config->vocabulary);
    reader->heads->frequent = own;
    return AVO_OK;
}

/* ---- Matrices ---- */

/* A matrix as the file has it. */
typedef struct stored {
    quant_type type; /* Q8_0 and Q4_1 for I8 and U8 */
    const uint8_t *weight, *scale, *minimum;
    uint32_t rows, k;
} stored;

static avo_status find_part(heads_reader *reader, const char *name, const char *part,
                            const stored *matrix, const uint8_t **out) {
    char full[SOURCE_NAME_MAX];
    const source_tensor *tensor;
    snprintf(full, sizeof(full), "%s.%s", name, part);
    AVO_TRY(find(reader, full, &tensor));
    AVO_TRY(check_type(reader, tensor, QUANT_F16));
    AVO_TRY(check_shape(reader, tensor, matrix->rows, (matrix->k + BLOCK - 1) / BLOCK));
    *out = tensor->data;
    return AVO_OK;
}

static avo_status find_matrix(heads_reader *reader, const char *name, uint32_t rows, uint32_t k,
                              stored *out) {
    char full[SOURCE_NAME_MAX];
    const source_tensor *tensor;
    snprintf(full, sizeof(full), "%s.weight", name);
    AVO_TRY(find(reader, full, &tensor));
    *out = (stored){.type = tensor->type, .weight = tensor->data, .rows = rows, .k = k};
    switch (tensor->type) {
    case QUANT_F32:
    case QUANT_F16:
        return check_shape(reader, tensor, rows, k);
    case QUANT_I8:
        out->type = QUANT_Q8_0;
        AVO_TRY(check_shape(reader, tensor, rows, k));
        return find_part(reader, name, "scale", out, &out->scale);
    case QUANT_U8:
        out->type = QUANT_Q4_1;
        AVO_TRY(check_shape(reader, tensor, rows, (uint64_t)(k + BLOCK - 1) / BLOCK * BLOCK / 2));
        AVO_TRY(find_part(reader, name, "scale", out, &out->scale));
        return find_part(reader, name, "minimum", out, &out->minimum);
    default:
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor \"%s\" has type %s, must have f32, f16, i8 or u8",
                           reader->heads->path, full, quant_name(tensor->type));
    }
}

static uint16_t half_at(const uint8_t *halves, size_t index) {
    uint16_t half;
    memcpy(&half, halves + index * sizeof(half), sizeof(half));
    return half;
}

/* A row of Q8_0 or Q4_1 as GGUF has it: each block's scale, its minimum, its numbers. */
static void join_row(const stored *m, uint32_t row, uint8_t *out) {
    size_t blocks = m->k / BLOCK;
    size_t numbers = m->type == QUANT_Q8_0 ? BLOCK : BLOCK / 2;
    for (size_t b = 0; b < blocks; b++) {
        size_t at = row * blocks + b;
        memcpy(out, m->scale + at * 2, 2);
        out += 2;
        if (m->minimum != NULL) {
            memcpy(out, m->minimum + at * 2, 2);
            out += 2;
        }
        memcpy(out, m->weight + at * numbers, numbers);
        out += numbers;
    }
}

/* Rows whose last block is short have no such form. */
static void decode_row(const stored *m, uint32_t row, float *out) {
    size_t blocks = (m->k + BLOCK - 1) / BLOCK;
    for (size_t c = 0; c < m->k; c++) {
        size_t block = row * blocks + c / BLOCK, in = c % BLOCK;
        float scale = quant_f16_to_f32(half_at(m->scale, block));
        if (m->type == QUANT_Q8_0) {
            out[c] = (float)(int8_t)m->weight[(size_t)row * m->k + c] * scale;
            continue;
        }
        uint8_t byte = m->weight[block * BLOCK / 2 + in % (BLOCK / 2)];
        float level = (float)(in < BLOCK / 2 ? byte & 15 : byte >> 4);
        out[c] = level * scale + quant_f16_to_f32(half_at(m->minimum, block));
    }
}

static void write_row(const stored *m, quant_type type, uint32_t row, uint8_t *out) {
    size_t number = m->type == QUANT_F32 ? 4 : 2;
    if (m->type == QUANT_Q8_0 || m->type == QUANT_Q4_1) {
        if (type == m->type)
            join_row(m, row, out);
        else
            decode_row(m, row, (float *)(void *)out);
    } else if (type == m->type) {
        memcpy(out, m->weight + (size_t)row * m->k * number, m->k * number);
    } else {
        for (uint32_t c = 0; c < m->k; c++)
            ((float *)(void *)out)[c] =
                quant_f16_to_f32(half_at(m->weight, (size_t)row * m->k + c));
    }
}

/* ---- Panels ---- */

/* Writes row `row` of a matrix in ROWS layout. */
typedef void (*row_writer)(const void *context, uint32_t row, uint8_t *out);

static avo_status lay_panels(heads_reader *reader, const char *what, weight_view rows,
                             row_writer write, const void *context, weight_view *out) {
    uint64_t row_bytes, panel_bytes, bytes;
    *out = rows;
    out->layout = QUANT_LAYOUT_PANELS;
    out->type = weight_repack_type(&rows);
    if (!quant_run_bytes(rows.type, rows.k, &row_bytes) ||
        !weight_panel_bytes(out->type, rows.k, &panel_bytes) ||
        !weight_bytes(out->type, QUANT_LAYOUT_PANELS, rows.rows, rows.k, &bytes))
        return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s: a %u × %u matrix of type %s cannot be used",
                           reader->heads->path, what, rows.rows, rows.k, quant_name(rows.type));
    uint8_t *panels = arena_take(&reader->heads->arena, (size_t)bytes);
    const avo_allocator *allocator = reader->heads->allocator;
    uint8_t *buffer = allocator_take_array(allocator, QUANT_PANEL_ROWS, (size_t)row_bytes);
    if (panels == NULL || buffer == NULL) {
        allocator_give(allocator, buffer, QUANT_PANEL_ROWS * (size_t)row_bytes);
        return status_no_memory(reader->error, what, (size_t)bytes);
    }
    for (uint32_t first = 0; first < rows.rows; first += QUANT_PANEL_ROWS) {
        uint32_t count =
            rows.rows - first < QUANT_PANEL_ROWS ? rows.rows - first : QUANT_PANEL_ROWS;
        for (uint32_t i = 0; i < count; i++)
            write(context, first + i, buffer + i * row_bytes);
        weight_view part = rows;
        part.rows = count;
        part.data = buffer;
        weight_repack_panel(&part, 0, out->type,
                            panels + first / QUANT_PANEL_ROWS * (size_t)panel_bytes);
    }
    allocator_give(allocator, buffer, QUANT_PANEL_ROWS * (size_t)row_bytes);
    out->data = panels;
    return AVO_OK;
}

#define PARTS_MAX (HEADS_MEDUSA_MAX * 2)

typedef struct stacked {
    stored part[PARTS_MAX];
    quant_type type; /* of all of them */
    uint32_t across, rows;
    size_t part_bytes; /* of one part's row */
} stacked;

static void write_stacked(const void *context, uint32_t row, uint8_t *out) {
    const stacked *own = context;
    const stored *first = &own->part[row / own->rows * own->across];
    for (uint32_t i = 0; i < own->across; i++)
        write_row(&first[i], own->type, row % own->rows, out + i * own->part_bytes);
}

/* All parts in one type, and without loss: their own where they have the same and whole blocks. */
static void choose_type(stacked *all, uint32_t parts, uint32_t k) {
    all->type = all->part[0].type;
    bool same = true;
    for (uint32_t i = 1; i < parts; i++)
        same = same && all->part[i].type == all->type;
    bool blocks = all->type == QUANT_Q8_0 || all->type == QUANT_Q4_1;
    if (!same || (blocks && k % BLOCK != 0))
        all->type = QUANT_F32;
}

avo_status heads_take_matrix(heads_reader *reader, const heads_matrix *matrix, weight_view *out) {
    stacked all = {.across = matrix->across, .rows = matrix->rows};
    uint32_t parts = matrix->down * matrix->across;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < parts; i++)
        AVO_TRY(find_matrix(reader, matrix->names[i], matrix->rows, matrix->k, &all.part[i]));
    choose_type(&all, parts, matrix->k);
    (void)quant_run_bytes(all.type, matrix->k, &bytes);
    all.part_bytes = (size_t)bytes;
    weight_view rows = {.type = all.type,
                        .layout = QUANT_LAYOUT_ROWS,
                        .rows = matrix->rows * matrix->down,
                        .k = matrix->k * matrix->across};
    return lay_panels(reader, matrix->names[0], rows, write_stacked, &all, out);
}

/* ---- The rows of the output matrix ---- */

typedef struct gathered {
    const weight_view *from;
    const int32_t *tokens;
    quant_type type;
    size_t row_bytes;
    float *decoded; /* [k] */
} gathered;

/* Nearest of 16 levels between the least and the largest number of each block. Simple loops, which
 * the compiler turns into vectors: thousands of rows are encoded while somebody waits. */
static void encode_q4_1(const float *row, size_t k, uint8_t *out) {
    for (size_t b = 0; b < k / BLOCK; b++, row += BLOCK) {
        float low[8], high[8];
        int32_t level[BLOCK];
        memcpy(low, row, sizeof(low));
        memcpy(high, row, sizeof(high));
        for (size_t i = 8; i < BLOCK; i += 8)
            for (size_t lane = 0; lane < 8; lane++) {
                low[lane] = row[i + lane] < low[lane] ? row[i + lane] : low[lane];
                high[lane] = row[i + lane] > high[lane] ? row[i + lane] : high[lane];
            }
        float least = low[0], largest = high[0];
        for (size_t lane = 1; lane < 8; lane++) {
            least = low[lane] < least ? low[lane] : least;
            largest = high[lane] > largest ? high[lane] : largest;
        }
        uint16_t halves[2] = {quant_f32_to_f16((largest - least) / Q4_1_LEVELS),
                              quant_f32_to_f16(least)};
        float scale = quant_f16_to_f32(halves[0]), minimum = quant_f16_to_f32(halves[1]);
        float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        memcpy(out, halves, sizeof(halves));
        out += sizeof(halves);
        for (size_t i = 0; i < BLOCK; i++) {
            float at = (row[i] - minimum) * inverse + 0.5f;
            at = at > 0.0f ? at : 0.0f;
            level[i] = (int32_t)(at < Q4_1_LEVELS ? at : Q4_1_LEVELS);
        }
        for (size_t i = 0; i < BLOCK / 2; i++)
            out[i] = (uint8_t)(level[i] | level[i + BLOCK / 2] << 4);
        out += BLOCK / 2;
    }
}

static void write_gathered(const void *context, uint32_t row, uint8_t *out) {
    const gathered *own = context;
    size_t token = (size_t)own->tokens[row];
    if (own->type == own->from->type) {
        memcpy(out, own->from->data + token * own->row_bytes, own->row_bytes);
        return;
    }
    weight_decode_row(own->from, token, own->decoded);
    if (own->type == QUANT_Q4_1)
        encode_q4_1(own->decoded, own->from->k, out);
    else
        memcpy(out, own->decoded, own->from->k * sizeof(float));
}

/* Rows of at most five bits are taken as they are; more bits only cost time, because nothing but
 * drafts depends on them. */
static quant_type head_type(const weight_view *from) {
    const quant_info *info = quant_info_of(from->type);
    bool small = info->block_elements > 0 && info->block_bytes * 8 <= 5 * info->block_elements;
    if (from->layout == QUANT_LAYOUT_ROWS && small)
        return from->type;
    return from->k % BLOCK == 0 ? QUANT_Q4_1 : QUANT_F32;
}

/* Memory for the panels and for heads_gather_more, untouched. */
static avo_status gather_later(heads_reader *reader, const weight_view *rows, weight_view *out) {
    avo_heads *heads = reader->heads;
    uint64_t row_bytes, bytes;
    heads_rest *rest = arena_take_array(&heads->arena, 1, sizeof(*rest));
    *out = *rows;
    out->layout = QUANT_LAYOUT_PANELS;
    out->type = weight_repack_type(rows);
    if (rest == NULL || !quant_run_bytes(rows->type, rows->k, &row_bytes) ||
        !weight_bytes(out->type, QUANT_LAYOUT_PANELS, rows->rows, rows->k, &bytes))
        return status_no_memory(reader->error, "rows of the output matrix", sizeof(*rest));
    size_t buffer = QUANT_PANEL_ROWS * (size_t)row_bytes;
    size_t decoded = rows->k * sizeof(float);
    rest->buffer_bytes = (buffer + 63) / 64 * 64 + decoded;
    rest->buffer = arena_take(&heads->arena, rest->buffer_bytes);
    uint8_t *panels = allocator_take(heads->allocator, (size_t)bytes);
    if (rest->buffer == NULL || panels == NULL) {
        allocator_give(heads->allocator, panels, (size_t)bytes);
        return status_no_memory(reader->error, "rows of the output matrix", (size_t)bytes);
    }
    out->data = heads->rest_panels = panels;
    rest->model = reader->model;
    rest->out = *out;
    atomic_init(&rest->next, 0);
    atomic_flag_clear(&rest->busy);
    heads->rest = rest;
    heads->rest_bytes = (size_t)bytes;
    return AVO_OK;
}

/* The rows of the next panel. */
static void gather_panel(const avo_heads *heads, heads_rest *rest, uint32_t first) {
    const weight_view *from = &rest->model->view.head.weight;
    size_t decoded = from->k * sizeof(float);
    gathered own = {.from = from,
                    .tokens = heads->frequent,
                    .type = head_type(from),
                    .decoded = (float *)(void *)(rest->buffer + rest->buffer_bytes - decoded)};
    uint64_t row_bytes = 0, panel_bytes = 0;
    (void)quant_run_bytes(own.type, from->k, &row_bytes);
    (void)weight_panel_bytes(rest->out.type, from->k, &panel_bytes);
    own.row_bytes = (size_t)row_bytes;
    uint32_t left = rest->out.rows - first;
    weight_view part = {.type = own.type,
                        .layout = QUANT_LAYOUT_ROWS,
                        .rows = left < QUANT_PANEL_ROWS ? left : QUANT_PANEL_ROWS,
                        .k = from->k,
                        .data = rest->buffer};
    for (uint32_t i = 0; i < part.rows; i++)
        write_gathered(&own, first + i, rest->buffer + i * (size_t)row_bytes);
    uint8_t *panels = heads->rest_panels;
    weight_repack_panel(&part, 0, rest->out.type,
                        panels + first / QUANT_PANEL_ROWS * (size_t)panel_bytes);
}

bool heads_gather_more(const avo_heads *heads, uint32_t rows) {
    heads_rest *rest = heads->rest;
    if (rest == NULL || atomic_load_explicit(&rest->next, memory_order_acquire) >= rest->out.rows)
        return true;
    if (atomic_flag_test_and_set(&rest->busy))
        return false; /* another engine does it */
    float_mode mode;
    float_mode_enter(&mode);
    uint32_t next = atomic_load(&rest->next);
    for (uint32_t done = 0; next < rest->out.rows && done < rows; done += QUANT_PANEL_ROWS) {
        gather_panel(heads, rest, next);
        next += QUANT_PANEL_ROWS;
    }
    atomic_store_explicit(&rest->next, next, memory_order_release);
    float_mode_leave(&mode);
    atomic_flag_clear(&rest->busy);
    return next >= rest->out.rows;
}

avo_status heads_gather(heads_reader *reader, weight_view *out) {
    const heads_config *config = &reader->heads->config;
    const weight_view *from = &reader->model->view.head.weight;
    const avo_allocator *allocator = reader->heads->allocator;
    gathered own = {
        .from = from, .tokens = reader->heads->frequent, .type = head_type(from), .row_bytes = 0};
    uint64_t bytes = 0;
    (void)quant_run_bytes(own.type, from->k, &bytes);
    own.row_bytes = (size_t)bytes;
    weight_view rows = {
        .type = own.type, .layout = QUANT_LAYOUT_ROWS, .rows = config->frequent, .k = from->k};
    if (reader->later)
        return gather_later(reader, &rows, out);
    own.decoded = allocator_take_array(allocator, from->k, sizeof(float));
    if (own.decoded == NULL)
        return status_no_memory(reader->error, "a row of the output matrix",
                                from->k * sizeof(float));
    avo_status status =
        lay_panels(reader, "rows of the output matrix", rows, write_gathered, &own, out);
    allocator_give(allocator, own.decoded, from->k * sizeof(float));
    return status;
}
