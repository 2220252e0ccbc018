/* Attention alone, as a step calls it: the phase behind rotation and KV write. One session holds
 * `depth` positions in as many layers as no cache holds, and `rows` rows come behind them: one is
 * decoding, many are a prompt. Every layer is one operation; its bytes are K and V of all positions
 * that the rows see, once for all heads that share them. */
#include "bench/operations_int.h"

#include "base/checked.h"
#include "base/random.h"
#include "device/kv_tile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAYERS_MAX   (OPERATION_PHASES / LAYER_PHASES)
#define LAYER_PHASES 3   /* of attention, at most */
#define OPERATIONS   4e9 /* of one time, where memory would allow more layers */

typedef struct attention_case {
    operation_bench *bench;
    uint32_t layers, pages, depth, rows;
    region block;         /* everything below but K and V; at a multiple of 64, as kernels demand */
    layer_view *layer;    /* [layers] */
    size_t *layer_offset; /* [layers] */
    uint32_t *page_table, *position, *row_segment;
    batch_segment segment;
    batch_view batch;
    model_view model;
    region pool;
    kv_view kv;
    scratch_view scratch;
    phase_list phases;
    step_view step;
} attention_case;

static void all_layers(void *context) {
    const attention_case *one = context;
    one->step.backend->attention(&one->step, one->layers);
}

/* ---- Making a session ---- */

/* As many layers as fill the memory, but no more than take a short while. */
static void count_layers(attention_case *one, const layer_view *layer) {
    limit_work work = {0};
    bench_attention_work(layer, one->kv.type, true, one->depth, one->rows, &work);
    double by_memory =
        (double)one->bench->options->walk_bytes / ((double)one->kv.page_bytes * one->pages);
    double by_time = OPERATIONS / work.floating_operations;
    double layers = by_memory < by_time ? by_memory : by_time;
    one->layers = layers < 1 ? 1 : layers > LAYERS_MAX ? LAYERS_MAX : (uint32_t)layers;
}

/* The next part of the block; NULL data on the first walk, which only counts. */
static void *cut(attention_case *one, size_t *used, size_t count, size_t bytes) {
    void *part = one->block.data == NULL ? NULL : one->block.data + *used;
    *used += (count * bytes + 63) / 64 * 64;
    return part;
}

static size_t cut_block(attention_case *one, const bench_heads *heads, size_t worker_bytes,
                        size_t shared_bytes) {
    size_t used = 0, rows = one->rows;
    size_t numbers = (size_t)heads->heads * heads->size;
    one->layer = cut(one, &used, one->layers, sizeof(*one->layer));
    one->layer_offset = cut(one, &used, one->layers, sizeof(*one->layer_offset));
    one->page_table = cut(one, &used, one->pages, sizeof(uint32_t));
    one->position = cut(one, &used, rows, sizeof(uint32_t));
    one->row_segment = cut(one, &used, rows, sizeof(uint32_t));
    one->scratch.query = cut(one, &used, rows * numbers, sizeof(float));
    one->scratch.attended = cut(one, &used, rows * numbers, sizeof(float));
    size_t written = rows * heads->kv_heads * heads->size;
    one->scratch.key = cut(one, &used, written, sizeof(float));
    one->scratch.value = cut(one, &used, written, sizeof(float));
    one->phases.entry = cut(one, &used, 1, phase_list_bytes(LAYER_PHASES * one->layers));
    one->scratch.worker = cut(one, &used, team_size(one->bench->team), worker_bytes);
    one->scratch.shared = cut(one, &used, 1, shared_bytes);
    one->scratch.worker_bytes = worker_bytes;
    one->scratch.rows_max = one->rows;
    one->scratch.context_max = one->depth + one->rows;
    return used;
}

static avo_status open_block(attention_case *one, const bench_heads *heads, const layer_view *layer,
                             avo_error *error) {
    /* The scratch depends on the largest layer, and all are alike. */
    one->model = (model_view){.layers = 1, .layer = layer};
    scratch_shape shape = {.model = &one->model,
                           .rows_max = one->rows,
                           .workers = team_size(one->bench->team),
                           .context_max = one->depth + one->rows};
    size_t worker_bytes, shared_bytes;
    if (!one->bench->backend->scratch_bytes(&shape, &worker_bytes, &shared_bytes))
        return status_fail(error, AVO_ERROR_LIMIT, "attention: the scratch is too large");
    size_t bytes = cut_block(one, heads, worker_bytes, shared_bytes);
    AVO_TRY(
        region_open(NULL, bytes, &(region_options){.huge = true}, "attention", &one->block, error));
    (void)cut_block(one, heads, worker_bytes, shared_bytes);
    for (uint32_t i = 0; i < one->layers; i++) {
        one->layer[i] = *layer;
        one->layer_offset[i] = i * one->kv.page_bytes;
    }
    one->model = (model_view){.layers = one->layers, .layer = one->layer};
    for (uint32_t i = 0; i < one->pages; i++)
        one->page_table[i] = i;
    for (uint32_t i = 0; i < one->rows; i++) {
        one->position[i] = one->depth + i;
        one->row_segment[i] = 0;
    }
    for (size_t i = 0; i < (size_t)one->rows * heads->heads * heads->size; i++)
        one->scratch.query[i] = (float)random_uniform_at(3, 1, i) * 2.0f - 1.0f;
    return AVO_OK;
}

/* Any numbers will do, but they must be numbers: one page is written, the others are its copies. */
static avo_status open_pool(attention_case *one, const bench_heads *heads, avo_error *error) {
    size_t bytes;
    one->kv.page_bytes *= one->layers;
    one->kv.layer_offset = one->layer_offset;
    if (!size_multiply(one->kv.page_bytes, one->pages, &bytes))
        return status_fail(error, AVO_ERROR_LIMIT, "K and V of %u positions are too large",
                           one->depth);
    AVO_TRY(
        region_open(NULL, bytes, &(region_options){.huge = true}, "K and V", &one->pool, error));
    one->kv.pool = one->pool.data;
    float key[KV_PAGE_TOKENS + BENCH_HEAD_SIZE_MAX], value[KV_PAGE_TOKENS + BENCH_HEAD_SIZE_MAX];
    for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++) {
        key[i] = (float)random_uniform_at(3, 2, i) * 2.0f - 1.0f;
        value[i] = (float)random_uniform_at(3, 3, i) * 2.0f - 1.0f;
    }
    for (uint32_t layer = 0; layer < one->layers; layer++)
        for (uint32_t head = 0; head < heads->kv_heads; head++)
            for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++)
                kv_tile_write(one->kv.type, heads->size,
                              kv_head(&one->kv, 0, layer, head, heads->size), slot, key + slot,
                              value + slot);
    for (size_t i = 1; i < one->pages; i++)
        memcpy(one->kv.pool + i * one->kv.page_bytes, one->kv.pool, one->kv.page_bytes);
    return AVO_OK;
}

static avo_status measure(attention_case *one, const bench_heads *heads, avo_error *error) {
    layer_view layer = {.heads = heads->heads,
                        .kv_heads = heads->kv_heads,
                        .head_size = heads->size,
                        .rotary = ROTARY_NONE,
                        .attention_scale = 1.0f / sqrtf((float)heads->size)};
    count_layers(one, &layer);
    AVO_TRY(open_block(one, heads, &layer, error));
    AVO_TRY(open_pool(one, heads, error));
    one->segment = (batch_segment){.rows = one->rows, .pages = one->page_table};
    one->batch = (batch_view){.rows = one->rows,
                              .position = one->position,
                              .row_segment = one->row_segment,
                              .segment = &one->segment,
                              .segments = 1};
    one->step = (step_view){.model = &one->model,
                            .batch = &one->batch,
                            .kv = &one->kv,
                            .scratch = &one->scratch,
                            .backend = one->bench->backend,
                            .team = one->bench->team,
                            .phases = &one->phases};
    phase_list_init(&one->phases, LAYER_PHASES * one->layers, one->phases.entry);
    char name[64];
    snprintf(name, sizeof(name), "attention %ux%ux%u", heads->heads, heads->kv_heads, heads->size);
    operation_case line = {.name = name,
                           .kv = kv_type_name(one->kv.type),
                           .rows = one->rows,
                           .depth = one->depth,
                           .times = one->layers,
                           .run = all_layers,
                           .context = one};
    bench_attention_work(&layer, one->kv.type, false, one->depth, one->rows, &line.work);
    return operation_measure(one->bench, &line, error);
}

avo_status operation_attention(operation_bench *bench, const bench_heads *heads, kv_type type,
                               uint32_t depth, uint32_t rows, avo_error *error) {
    if (heads->size > BENCH_HEAD_SIZE_MAX || depth > UINT32_MAX / 2 || rows > UINT32_MAX / 4)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "attention: head size %u, %u rows after %u positions is too large",
                           heads->size, rows, depth);
    attention_case one = {
        .bench = bench,
        .pages = (depth + rows + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS,
        .depth = depth,
        .rows = rows,
        .kv = {.type = type, .page_bytes = heads->kv_heads * kv_head_bytes(type, heads->size)}};
    avo_status status = measure(&one, heads, error);
    region_close(&one.pool);
    region_close(&one.block);
    return status;
}
