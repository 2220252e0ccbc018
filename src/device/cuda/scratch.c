/* The memory of a stream on the card: one block, cut into the buffers of a step. */
#include "base/checked.h"
#include "device/cuda/cuda.h"

#define ALIGNMENT 256

typedef struct layout {
    uint8_t *memory; /* NULL: sizes alone */
    size_t bytes;
    bool fits;
} layout;

static void *lay(layout *own, size_t count, size_t size) {
    size_t bytes;
    void *at = own->memory == NULL ? NULL : own->memory + own->bytes;
    own->fits = own->fits && size_multiply(count, size, &bytes) &&
                size_add(own->bytes, bytes, &own->bytes) &&
                size_round_up(own->bytes, ALIGNMENT, &own->bytes);
    return at;
}

static size_t lay_offset(layout *own, size_t count, size_t size) {
    size_t at = own->bytes;
    (void)lay(own, count, size);
    return at;
}

/* Bytes of tables that adapters need before the host has to wait once: a row's norms, gains and
 * factors of a few matrices. */
static size_t table_bytes(const stream_shape *shape) {
    size_t row = sizeof(row_norms) + 2 * sizeof(row_gains) + 16 * sizeof(float);
    return 64 * 1024 + 4 * row * size_max(shape->rows_max, shape->head_rows);
}

static void lay_input(const stream_shape *shape, cuda_input *input, layout *own) {
    size_t rows = shape->rows_max;
    size_t angles = (size_t)shape->pairs_max * 2; /* two tables at most */
    size_t pages = (shape->context_max + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS + 1;
    input->hidden = lay_offset(own, rows, shape->model->width * sizeof(float));
    input->cosine = lay_offset(own, rows, angles * sizeof(float));
    input->sine = lay_offset(own, rows, angles * sizeof(float));
    input->position = lay_offset(own, rows, sizeof(uint32_t));
    input->row_pages = lay_offset(own, rows, sizeof(uint32_t));
    input->tile = lay_offset(own, rows, 2 * sizeof(uint32_t));
    input->logit_row = lay_offset(own, size_max(rows, shape->head_rows), sizeof(uint32_t));
    input->target = lay_offset(own, size_max(rows, shape->head_rows), sizeof(int32_t));
    input->tile = lay_offset(own, rows, 2 * sizeof(uint32_t));
    input->pages = lay_offset(own, rows * pages, sizeof(uint32_t));
    input->tables = lay_offset(own, table_bytes(shape), 1);
    input->bytes = own->bytes;
}

static size_t decode_rows(size_t rows) {
    return rows < FEW_ROWS ? rows : FEW_ROWS;
}

/* A power of two, as steps are recorded for. */
static size_t decode_splits(const stream_shape *shape) {
    size_t splits = 1;
    while (splits * CALL_SPLIT < shape->context_max)
        splits *= 2;
    return splits;
}

static size_t decode_heads(const model_view *model) {
    size_t heads = 0;
    for (uint32_t i = 0; i < model->layers; i++)
        heads = size_max(heads, model->layer[i].heads);
    return heads;
}

/* Of one row and split: numbers of all heads, and their sums. */
static size_t decode_row_bytes(const model_view *model) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < model->layers; i++)
        bytes = size_max(bytes, model->layer[i].heads *
                                    (16 + (size_t)(model->layer[i].head_size + 15) / 16 * 16) *
                                    sizeof(float));
    return bytes;
}

static size_t longest_input(const model_view *model) {
    return size_max(size_max(model->k_max, model->width), ADAPTER_RANK_MAX);
}

static void lay_rows(const stream_shape *shape, cuda_scratch *scratch, layout *own) {
    const model_view *model = shape->model;
    size_t rows = shape->rows_max, number = sizeof(float), query_form = 0;
    size_t wide = size_max(model->width, model->head.weight.k);
    for (uint32_t i = 0; i < model->layers; i++)
        query_form = size_max(query_form, model->layer[i].heads *
                                              attend_query_stride(model->layer[i].head_size));
    scratch->normed = lay(own, rows, model->width * number);
    scratch->query = lay(own, rows, model->query_width_max * number);
    scratch->key = lay(own, rows, model->kv_width_max * number);
    scratch->value = lay(own, rows, model->kv_width_max * number);
    scratch->attended = lay(own, rows, model->query_width_max * number);
    scratch->gate = lay(own, rows, model->feed_forward_max * number);
    scratch->up = lay(own, rows, model->feed_forward_max * number);
    scratch->projected = lay(own, rows, wide * number);
    scratch->part = lay(own, decode_rows(rows) * decode_splits(shape), decode_row_bytes(model));
    scratch->arrived = lay(own, rows, decode_heads(model) * sizeof(uint32_t));
    scratch->query_form = lay(own, rows, query_form);
    scratch->ready = lay(own, 20, longest_input(model) + 512); /* bytes of FEW_ROWS, two planes */
    for (int form = 0; form < PRODUCT_FORMS; form++)
        scratch->form[form] = lay(own, activation_bytes(rows, longest_input(model)), 1);
    size_t whole = (longest_input(model) + 255) / 256, padded = (rows + 7) / 8 * 8;
    scratch->wide = lay(own, padded * whole, 256 + sizeof(float));
    size_t rank = shape->adapter_rank_max == 0 ? 1 : ADAPTER_RANK_MAX;
    size_t matrices = ADAPTER_INPUT_MATRICES;
    scratch->low_rank = lay(own, matrices * rows, rank * number);
    scratch->low_rank_form = lay(own, matrices * rows, activation_bytes(1, rank));
    scratch->tap = lay(own, rows * shape->taps, model->width * number);
}

static void lay_head(const stream_shape *shape, cuda_scratch *scratch, layout *own) {
    size_t rows = shape->head_rows, vocabulary = shape->model->vocabulary;
    size_t chunks = (vocabulary + HEAD_CHUNK_K - 1) / HEAD_CHUNK_K;
    scratch->logits = lay(own, rows, vocabulary * sizeof(float));
    scratch->sums = lay(own, rows, chunks * sizeof(head_sum));
    scratch->chunk_logit = lay(own, rows, chunks * HEAD_TOP_MAX * sizeof(float));
    scratch->chunk_token = lay(own, rows, chunks * HEAD_TOP_MAX * sizeof(int32_t));
    scratch->chunk_count = lay(own, rows, chunks * sizeof(uint32_t));
    scratch->top = lay(own, rows, sizeof(head_top));
}

static void lay_fast(const stream_shape *shape, cuda_scratch *scratch, layout *own) {
    const model_view *model = shape->model;
    size_t rows = size_max(shape->rows_max, shape->head_rows);
    scratch->fast_x = lay(own, fast_input_bytes(rows, longest_input(model)), 1);
    scratch->fast_next = lay(own, fast_input_bytes(rows, model->feed_forward_max), 1);
}

bool cuda_scratch_lay(const stream_shape *shape, bool fast, uint8_t *memory, cuda_scratch *scratch,
                      cuda_input *input, size_t *bytes) {
    layout own = {.memory = memory, .fits = true};
    scratch->input = memory;
    lay_input(shape, input, &own);
    scratch->hidden =
        memory == NULL ? NULL : (float *)(void *)(memory + input->hidden); /* in place */
    lay_rows(shape, scratch, &own);
    lay_head(shape, scratch, &own);
    if (fast)
        lay_fast(shape, scratch, &own);
    *bytes = own.bytes;
    return own.fits;
}
