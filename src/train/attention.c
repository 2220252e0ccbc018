/* Attention of whole sequences. For queries q of a head and the keys k and values v of its KV head,
 * with z = scale·q·k, s = z or cap·tanh(z/cap), p = softmax(s) over the positions that a row sees:
 *
 *   o = Σ p·v
 *   dv += p·do     dp = do·v     ds = p·(dp − Σ p·dp)     dz = ds·(1 − (s/cap)²)
 *   dq = scale·Σ dz·k            dk += scale·Σ dz·q
 *
 * Queries are taken in blocks, for all heads of one sequence at a time; the block's size depends on
 * the number of heads alone, so that bits do not depend on the length of other samples. dk and dv
 * are summed over blocks in ascending order, and over the query heads of their KV head in order. */
#include "train/core_int.h"

#include "base/checked.h"
#include "base/mathf.h"

#include <string.h>

#define BLOCK_ROWS_MAX   128
#define BLOCK_ROWS_MIN   8
#define BLOCK_PRODUCTS   2048 /* heads × rows, where blocks may be that small */
#define HEADS_OF_RUN_MAX 64   /* calls of one gemm_run */

static size_t block_rows(uint32_t heads) {
    return size_min(size_max(BLOCK_PRODUCTS / heads, BLOCK_ROWS_MIN), BLOCK_ROWS_MAX);
}

size_t train_attention_floats(const model_view *view, uint32_t context_max) {
    size_t most = 0;
    for (uint32_t i = 0; i < view->layers; i++) {
        uint32_t heads = view->layer[i].heads;
        most = size_max(most, heads * block_rows(heads) * context_max);
    }
    return most;
}

/* Queries [first, first + rows) of a span, which see keys [key, key + keys) of it. */
typedef struct attention_block {
    train_core *core;
    const layer_view *layer;
    const train_part *span;
    size_t first, rows, key, keys;
    float *weights; /* [heads][rows][keys] scores, then weights */
} attention_block;

static attention_block block_at(train_core *core, const layer_view *layer, const train_part *span,
                                size_t first) {
    size_t rows = block_rows(layer->heads);
    attention_block block = {.core = core,
                             .layer = layer,
                             .span = span,
                             .first = first,
                             .rows = size_min(rows, span->rows - first),
                             .weights = core->buffers.scores};
    if (layer->window > 0 && first + 1 > layer->window)
        block.key = first + 1 - layer->window;
    block.keys = block.first + block.rows - block.key;
    return block;
}

static float *scores_of(const attention_block *block, float *scores, uint32_t head) {
    return scores + head * block->rows * block->keys;
}

/* Where a head's rows begin: of queries (heads of them side by side), or keys and values. */
static size_t query_at(const attention_block *block, uint32_t head) {
    size_t row = block->span->first + block->first;
    return (row * block->layer->heads + head) * block->layer->head_size;
}

static size_t key_at(const attention_block *block, uint32_t head) {
    uint32_t own = head / (block->layer->heads / block->layer->kv_heads);
    size_t row = block->span->first + block->key;
    return (row * block->layer->kv_heads + own) * block->layer->head_size;
}

static size_t query_stride(const attention_block *block) {
    return (size_t)block->layer->heads * block->layer->head_size;
}

static size_t key_stride(const attention_block *block) {
    return (size_t)block->layer->kv_heads * block->layer->head_size;
}

/* ---- Products of all heads ---- */

typedef void (*head_call)(const attention_block *block, uint32_t head, gemm_call *call);

/* Heads first, first + step, … in runs of calls that are independent of one another. */
static void run_heads(const attention_block *block, head_call make, uint32_t first, uint32_t step) {
    gemm_call calls[HEADS_OF_RUN_MAX];
    size_t count = 0;
    for (uint32_t head = first; head < block->layer->heads; head += step) {
        make(block, head, &calls[count]);
        calls[count++].precision = block->core->precision;
        if (count == HEADS_OF_RUN_MAX || head + step >= block->layer->heads) {
            gemm_run(block->core->gemm, calls, count);
            count = 0;
        }
    }
}

/* scores = scale · q·kᵀ */
static void score_call(const attention_block *block, uint32_t head, gemm_call *call) {
    const train_buffers *b = &block->core->buffers;
    *call = (gemm_call){.m = block->rows,
                        .n = block->keys,
                        .k = block->layer->head_size,
                        .a = train_floats(b->query + query_at(block, head), query_stride(block), 1),
                        .b = train_floats(b->key + key_at(block, head), 1, key_stride(block)),
                        .c = scores_of(block, block->weights, head),
                        .c_stride = block->keys,
                        .scale = block->layer->attention_scale};
}

/* o = p·v */
static void weigh_call(const attention_block *block, uint32_t head, gemm_call *call) {
    const train_buffers *b = &block->core->buffers;
    *call = (gemm_call){.m = block->rows,
                        .n = block->layer->head_size,
                        .k = block->keys,
                        .a = train_floats(scores_of(block, block->weights, head), block->keys, 1),
                        .b = train_floats(b->value + key_at(block, head), key_stride(block), 1),
                        .c = b->attended + query_at(block, head),
                        .c_stride = query_stride(block),
                        .scale = 1.0f};
}

/* dp = do·vᵀ */
static void dscore_call(const attention_block *block, uint32_t head, gemm_call *call) {
    const train_buffers *b = &block->core->buffers;
    *call =
        (gemm_call){.m = block->rows,
                    .n = block->keys,
                    .k = block->layer->head_size,
                    .a = train_floats(b->dattended + query_at(block, head), query_stride(block), 1),
                    .b = train_floats(b->value + key_at(block, head), 1, key_stride(block)),
                    .c = scores_of(block, b->dscores, head),
                    .c_stride = block->keys,
                    .scale = 1.0f};
}

/* dq = scale · dz·k */
static void dquery_call(const attention_block *block, uint32_t head, gemm_call *call) {
    const train_buffers *b = &block->core->buffers;
    *call = (gemm_call){.m = block->rows,
                        .n = block->layer->head_size,
                        .k = block->keys,
                        .a = train_floats(scores_of(block, b->dscores, head), block->keys, 1),
                        .b = train_floats(b->key + key_at(block, head), key_stride(block), 1),
                        .c = b->dquery + query_at(block, head),
                        .c_stride = query_stride(block),
                        .scale = block->layer->attention_scale};
}

/* dk += scale · dzᵀ·q */
static void dkey_call(const attention_block *block, uint32_t head, gemm_call *call) {
    const train_buffers *b = &block->core->buffers;
    *call = (gemm_call){.m = block->keys,
                        .n = block->layer->head_size,
                        .k = block->rows,
                        .a = train_floats(scores_of(block, b->dscores, head), 1, block->keys),
                        .b = train_floats(b->query + query_at(block, head), query_stride(block), 1),
                        .c = b->dkey + key_at(block, head),
                        .c_stride = key_stride(block),
                        .scale = block->layer->attention_scale,
                        .add = true};
}

/* dv += pᵀ·do */
static void dvalue_call(const attention_block *block, uint32_t head, gemm_call *call) {
    const train_buffers *b = &block->core->buffers;
    *call =
        (gemm_call){.m = block->keys,
                    .n = block->layer->head_size,
                    .k = block->rows,
                    .a = train_floats(scores_of(block, block->weights, head), 1, block->keys),
                    .b = train_floats(b->dattended + query_at(block, head), query_stride(block), 1),
                    .c = b->dvalue + key_at(block, head),
                    .c_stride = key_stride(block),
                    .scale = 1.0f,
                    .add = true};
}

/* ---- Rows of scores ---- */

/* The part of a row's scores that it sees; the rest becomes 0. */
static void seen_by(const attention_block *block, size_t row, size_t *begin, size_t *end) {
    size_t position = block->first + row; /* a session's rows are its positions from 0 on */
    size_t first = block->layer->window > 0 && position + 1 > block->layer->window
                       ? position + 1 - block->layer->window
                       : 0;
    *begin = size_max(first, block->key) - block->key;
    *end = position + 1 - block->key;
}

/* z → s, and where `slopes` is given the derivative. */
static void cap_row(float *z, size_t count, float cap, float *slopes) {
    for (size_t i = 0; i < count; i++) {
        float tanh_z = math_tanh(z[i] / cap);
        z[i] = cap * tanh_z;
        if (slopes != NULL)
            slopes[i] = 1.0f - tanh_z * tanh_z;
    }
}

/* Items are rows of all heads. */
static void softmax_rows(void *context, size_t first, size_t last) {
    const attention_block *block = context;
    const train_buffers *b = &block->core->buffers;
    float cap = block->layer->attention_softcap;
    for (size_t item = first; item < last; item++) {
        float *s = block->weights + item * block->keys;
        size_t begin, end;
        seen_by(block, item % block->rows, &begin, &end);
        if (cap > 0.0f)
            cap_row(s + begin, end - begin, cap, b->slopes + item * block->keys + begin);
        block->core->loops->softmax(s + begin, end - begin);
        memset(s, 0, begin * sizeof(float));
        memset(s + end, 0, (block->keys - end) * sizeof(float));
    }
}

/* dp → dz */
static void dscore_rows(void *context, size_t first, size_t last) {
    const attention_block *block = context;
    const train_buffers *b = &block->core->buffers;
    bool capped = block->layer->attention_softcap > 0.0f;
    for (size_t item = first; item < last; item++) {
        float *d = b->dscores + item * block->keys;
        const float *p = block->weights + item * block->keys;
        const float *slope = capped ? b->slopes + item * block->keys : NULL;
        size_t begin, end;
        seen_by(block, item % block->rows, &begin, &end);
        memset(d, 0, begin * sizeof(float));
        block->core->loops->softmax_back(p + begin, end - begin, d + begin);
        for (size_t i = begin; capped && i < end; i++)
            d[i] *= slope[i];
        memset(d + end, 0, (block->keys - end) * sizeof(float));
    }
}

/* ---- Layers ---- */

static void block_scores(attention_block *block) {
    run_heads(block, score_call, 0, 1);
    train_each(block->core, block->layer->heads * block->rows, 8, softmax_rows, block);
}

static void block_forward(attention_block *block, bool kept) {
    (void)kept;
    block_scores(block);
    run_heads(block, weigh_call, 0, 1);
}

static void block_backward(attention_block *block, bool kept) {
    uint32_t shared = block->layer->heads / block->layer->kv_heads;
    if (!kept)
        block_scores(block);
    run_heads(block, dscore_call, 0, 1);
    for (uint32_t i = 0; i < shared; i++)
        run_heads(block, dvalue_call, i, shared);
    train_each(block->core, block->layer->heads * block->rows, 8, dscore_rows, block);
    run_heads(block, dquery_call, 0, 1);
    for (uint32_t i = 0; i < shared; i++)
        run_heads(block, dkey_call, i, shared);
}

/* All blocks of all sequences, `each` of them; with `weights` each has its own place there. The
 * floats of all of them. */
typedef void (*each_block)(attention_block *block, bool kept);

static size_t walk_blocks(train_core *core, const layer_view *layer, each_block each,
                          float *weights) {
    size_t total = 0;
    for (uint32_t s = 0; s < core->call.spans; s++) {
        const train_part *span = &core->call.part[s];
        attention_block block;
        for (size_t at = 0; at < span->rows; at += block.rows) {
            block = block_at(core, layer, span, at);
            if (weights != NULL)
                block.weights = weights + total;
            total += layer->heads * block.rows * block.keys;
            if (each != NULL)
                each(&block, weights != NULL);
        }
    }
    return total;
}

/* Where the weights of a layer are kept from its forward to its backward pass; NULL: they are too
 * many, or their soft cap's slopes would be needed as well, and they are computed again. */
static float *kept_weights(train_core *core, const layer_view *layer) {
    bool fits = layer->attention_softcap == 0.0f &&
                walk_blocks(core, layer, NULL, NULL) <= core->weights_floats;
    return fits ? core->buffers.weights : NULL;
}

void train_attention(train_core *core, const layer_view *layer) {
    walk_blocks(core, layer, block_forward, kept_weights(core, layer));
}

void train_attention_backward(train_core *core, const layer_view *layer) {
    size_t width = (size_t)layer->kv_heads * layer->head_size;
    memset(core->buffers.dkey, 0, core->call.rows * width * sizeof(float));
    memset(core->buffers.dvalue, 0, core->call.rows * width * sizeof(float));
    walk_blocks(core, layer, block_backward, kept_weights(core, layer));
}
