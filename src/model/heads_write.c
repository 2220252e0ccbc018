/* Making a file of draft heads. */
#include "model/heads_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 32

void heads_writer_init(heads_writer *w, const avo_allocator *allocator, const char *path,
                       quant_type type, avo_error *error) {
    *w = (heads_writer){.allocator = allocator, .path = path, .type = type, .error = error};
    buffer_init(&w->header, allocator, SIZE_MAX);
    buffer_init(&w->data, allocator, SIZE_MAX);
    buffer_init(&w->scales, allocator, SIZE_MAX);
    buffer_init(&w->minimums, allocator, SIZE_MAX);
    buffer_init(&w->row, allocator, SIZE_MAX);
    w->json = json_writer_of(&w->header);
    json_object_begin(&w->json);
}

void heads_writer_free(heads_writer *w) {
    buffer_free(&w->row);
    buffer_free(&w->minimums);
    buffer_free(&w->scales);
    buffer_free(&w->data);
    buffer_free(&w->header);
}

static avo_status room(heads_writer *w, avo_status status, size_t bytes) {
    return status == AVO_OK ? AVO_OK : status_no_memory(w->error, "converted draft heads", bytes);
}

static avo_status append(heads_writer *w, buffer *out, const void *data, size_t bytes) {
    return room(w, buffer_append(out, data, bytes), bytes);
}

/* A tensor of the last `bytes` bytes of the data; rows 0: a vector. */
static avo_status declare(heads_writer *w, const char *name, const char *part, const char *dtype,
                          uint32_t rows, uint32_t columns, size_t bytes) {
    char full[SOURCE_NAME_MAX];
    snprintf(full, sizeof(full), "%s%s", name, part);
    json_member_object_begin(&w->json, full);
    json_member_string(&w->json, "dtype", dtype);
    json_member_array_begin(&w->json, "shape");
    if (rows > 0)
        json_u64(&w->json, rows);
    json_u64(&w->json, columns);
    json_end(&w->json);
    json_member_array_begin(&w->json, "data_offsets");
    json_u64(&w->json, w->data.size - bytes);
    json_u64(&w->json, w->data.size);
    json_end(&w->json);
    json_end(&w->json);
    return room(w, w->json.status, w->header.size);
}

/* ---- Numbers ---- */

static avo_status decode(heads_writer *w, const source_tensor *from, uint32_t rows,
                         uint32_t columns, uint32_t row, float *out) {
    weight_view view = {.type = from->type,
                        .layout = QUANT_LAYOUT_ROWS,
                        .rows = rows,
                        .k = columns,
                        .data = from->data};
    if (from->type != QUANT_F32 && from->type != QUANT_F16 && from->type != QUANT_BF16)
        return status_fail(w->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor \"%.*s\" has type %s, must have f32, f16 or bf16", w->path,
                           TEXT_ARGUMENT(from->name), quant_name(from->type));
    weight_decode_row(&view, row, out);
    for (uint32_t i = 0; i < columns; i++)
        if (!isfinite(out[i]))
            return status_fail(w->error, AVO_ERROR_FORMAT,
                               "%s: tensor \"%.*s\" contains NaN or Inf in row %u", w->path,
                               TEXT_ARGUMENT(from->name), row);
    return AVO_OK;
}

static avo_status take_row(heads_writer *w, uint32_t columns, float **row) {
    size_t bytes = 2 * (size_t)columns * sizeof(float);
    w->row.size = 0;
    AVO_TRY(room(w, buffer_reserve(&w->row, bytes), bytes));
    *row = (float *)(void *)w->row.data;
    return AVO_OK;
}

static avo_status append_half(heads_writer *w, buffer *out, float value, float *rounded) {
    uint16_t half = quant_f32_to_f16(value);
    *rounded = quant_f16_to_f32(half);
    return append(w, out, &half, sizeof(half));
}

/* The nearest of 255 levels. */
static avo_status write_block8(heads_writer *w, const float *x, uint32_t count) {
    int8_t levels[BLOCK];
    float largest = 0.0f, scale;
    for (uint32_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    AVO_TRY(append_half(w, &w->scales, largest / 127.0f, &scale));
    for (uint32_t i = 0; i < count; i++) {
        float level = scale > 0.0f ? roundf(x[i] / scale) : 0.0f;
        levels[i] = (int8_t)fminf(fmaxf(level, -127.0f), 127.0f);
    }
    return append(w, &w->data, levels, count);
}

/* The nearest of 16 levels between the least and the largest number. */
static avo_status write_block4(heads_writer *w, const float *x, uint32_t count) {
    uint8_t bytes[BLOCK / 2] = {0};
    float low = x[0], high = x[0], scale, minimum;
    for (uint32_t i = 1; i < count; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    AVO_TRY(append_half(w, &w->minimums, low, &minimum));
    AVO_TRY(append_half(w, &w->scales, (high - minimum) / 15.0f, &scale));
    for (uint32_t i = 0; i < count; i++) {
        float at = scale > 0.0f ? roundf((x[i] - minimum) / scale) : 0.0f;
        unsigned level = (unsigned)fminf(fmaxf(at, 0.0f), 15.0f);
        bytes[i % (BLOCK / 2)] |= (uint8_t)(i < BLOCK / 2 ? level : level << 4);
    }
    return append(w, &w->data, bytes, sizeof(bytes));
}

static avo_status write_row(heads_writer *w, const float *row, uint32_t columns) {
    if (w->type == QUANT_F32)
        return append(w, &w->data, row, columns * sizeof(*row));
    for (uint32_t first = 0; first < columns; first += BLOCK) {
        uint32_t count = columns - first < BLOCK ? columns - first : BLOCK;
        AVO_TRY(w->type == QUANT_Q8_0 ? write_block8(w, row + first, count)
                                      : write_block4(w, row + first, count));
    }
    return AVO_OK;
}

/* ---- Tensors ---- */

/* The scales or minimums of the matrix at hand, behind it. */
static avo_status write_part(heads_writer *w, const char *name, const char *part, buffer *halves,
                             uint32_t rows, uint32_t blocks) {
    AVO_TRY(append(w, &w->data, halves->data, halves->size));
    return declare(w, name, part, "F16", rows, blocks, halves->size);
}

avo_status heads_write_matrix(heads_writer *w, const char *name, const heads_numbers *m) {
    uint32_t blocks = (m->columns + BLOCK - 1) / BLOCK;
    size_t begin = w->data.size;
    float *row;
    AVO_TRY(take_row(w, m->columns, &row));
    w->scales.size = w->minimums.size = 0;
    for (uint32_t r = 0; r < m->rows; r++) {
        AVO_TRY(decode(w, m->from, m->rows, m->columns, m->order == NULL ? r : m->order[r], row));
        float *swapped = row + m->columns;
        size_t half = m->columns / 2;
        memcpy(swapped, row + half, half * sizeof(*row));
        memcpy(swapped + half, row, half * sizeof(*row));
        AVO_TRY(write_row(w, m->swap ? swapped : row, m->columns));
    }
    size_t bytes = w->data.size - begin;
    if (w->type == QUANT_F32)
        return declare(w, name, ".weight", "F32", m->rows, m->columns, bytes);
    if (w->type == QUANT_Q8_0) {
        AVO_TRY(declare(w, name, ".weight", "I8", m->rows, m->columns, bytes));
        return write_part(w, name, ".scale", &w->scales, m->rows, blocks);
    }
    AVO_TRY(declare(w, name, ".weight", "U8", m->rows, blocks * (BLOCK / 2), bytes));
    AVO_TRY(write_part(w, name, ".scale", &w->scales, m->rows, blocks));
    return write_part(w, name, ".minimum", &w->minimums, m->rows, blocks);
}

avo_status heads_write_vector(heads_writer *w, const char *name, const source_tensor *from,
                              uint32_t count) {
    float *row;
    AVO_TRY(take_row(w, count, &row));
    AVO_TRY(decode(w, from, 1, count, 0, row));
    AVO_TRY(append(w, &w->data, row, count * sizeof(*row)));
    return declare(w, name, "", "F32", 0, count, count * sizeof(*row));
}

avo_status heads_write_tokens(heads_writer *w, const int32_t *tokens, uint32_t count) {
    AVO_TRY(append(w, &w->data, tokens, count * sizeof(*tokens)));
    return declare(w, "frequent", "", "I32", 0, count, count * sizeof(*tokens));
}

/* ---- The file ---- */

static void write_layers(json_writer *w, const heads_config *c) {
    json_member_u64(w, "depth", c->depth);
    json_member_u64(w, "window", c->window);
    json_member_u64(w, "attention_heads", c->attention_heads);
    json_member_u64(w, "kv_heads", c->kv_heads);
    json_member_u64(w, "head_size", c->head_size);
    json_member_u64(w, "feed_forward", c->feed_forward);
    json_member_number(w, "rope_base", c->rope_base);
    if (c->kind != HEADS_EAGLE)
        return;
    json_member_string(w, "form", heads_form_name(c->form));
    json_member_array_begin(w, "taps");
    for (uint32_t i = 0; i < c->taps; i++)
        json_u64(w, c->tap[i]);
    json_end(w);
    json_member_boolean(w, "norm_residual", c->norm_residual);
    json_member_boolean(w, "attention_bias", c->attention_bias);
}

static avo_status write_fields(const heads_config *c, buffer *out) {
    json_writer json = json_writer_of(out), *w = &json;
    json_object_begin(w);
    json_member_string(w, "version", "1");
    json_member_string(w, "kind", heads_kind_name(c->kind));
    json_member_u64(w, "width", c->width);
    json_member_u64(w, "layers", c->layers);
    json_member_u64(w, "vocabulary", c->vocabulary);
    json_member_u64(w, "frequent", c->frequent);
    json_member_number(w, "norm_epsilon", c->norm_epsilon);
    json_member_string(w, "base_digest", c->base_digest);
    json_member_boolean(w, "output", c->output);
    json_member_boolean(w, "bias", c->bias);
    if (c->kind == HEADS_MEDUSA) {
        json_member_u64(w, "heads", c->heads);
        json_member_u64(w, "blocks", c->blocks);
        json_member_boolean(w, "token", c->token);
    } else {
        write_layers(w, c);
    }
    json_end(w);
    return json_writer_status(w);
}

/* The length of the header, the header up to a multiple of 8 bytes, the data. */
static avo_status join(heads_writer *w, const heads_config *config, buffer *out) {
    buffer *fields = &w->scales;
    uint64_t bytes;
    fields->size = 0;
    AVO_TRY(write_fields(config, fields));
    json_member_object_begin(&w->json, "__metadata__");
    json_member_text(&w->json, "avocet.heads", buffer_text(fields));
    json_end(&w->json);
    json_end(&w->json);
    AVO_TRY(json_writer_status(&w->json));
    while (w->header.size % 8 != 0)
        AVO_TRY(buffer_append_text(&w->header, " "));
    bytes = w->header.size;
    AVO_TRY(buffer_append(out, &bytes, sizeof(bytes)));
    AVO_TRY(buffer_append(out, w->header.data, w->header.size));
    return buffer_append(out, w->data.data, w->data.size);
}

avo_status heads_write_finish(heads_writer *w, const heads_config *config, buffer *out) {
    return room(w, join(w, config, out), w->data.size);
}
