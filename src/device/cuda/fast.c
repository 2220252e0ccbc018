/* Products of the fast arithmetic: matrices of 16-bit floats, on tensor cores. Where all matrices
 * of a place are such, they lie in slabs (kernels/fast_calls.h) and are computed here and nowhere
 * else; all others are computed exactly. */
#include "device/cuda/step_int.h"

#include "device/cuda/kernels/fast_attend.h"
#include "device/cuda/kernels/fast_tile.h"

#include <assert.h>

#define SHARED_HALF (112 * 1024) /* of a block, so that the next kernel's fits beside it */
#define RING_PIECES 24           /* at most */
#define RING_HEAD   4096         /* barriers of so many */

/* ---- Which matrices, and where they lie ---- */

bool fast_matrices(const weight_view *const *weights, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (weights[i]->data == NULL ||
            (weights[i]->type != QUANT_F16 && weights[i]->type != QUANT_BF16) ||
            weights[i]->type != weights[0]->type || weights[i]->k != weights[0]->k)
            return false;
    return true;
}

bool fast_paired(const layer_view *layer) {
    const weight_view *weights[] = {&layer->up.weight, &layer->gate.weight};
    return fast_matrices(weights, 2) && layer->up.weight.rows == layer->gate.weight.rows;
}

uint32_t fast_slabs(uint32_t k) {
    return (k + FAST_SLAB - 1) / FAST_SLAB;
}

uint64_t fast_bytes(uint32_t rows, uint32_t k) {
    return (uint64_t)((rows + FAST_PANEL - 1) / FAST_PANEL) * fast_slabs(k) * FAST_SLAB_BYTES;
}

uint64_t fast_input_bytes(uint64_t rows, uint64_t k) {
    return (rows + 7) / 8 * 8 * ((k + FAST_SLAB - 1) / FAST_SLAB * FAST_SLAB) * 2;
}

bool fast_computes(const cuda_step *step, const cuda_product *products, size_t count) {
    const weight_view *weights[LINEAR_CALLS];
    assert(count <= LINEAR_CALLS);
    for (size_t i = 0; i < count; i++)
        weights[i] = &products[i].linear->weight;
    return step->fast && fast_matrices(weights, count);
}

/* ---- Shapes of launches ---- */

/* How few rows are computed: bytes of shared memory; 0: their input does not fit. */
static uint32_t few_shape(const cuda_step *step, fast_call *call) {
    const cuda_limits *limits = &step->port->limits;
    uint32_t blocks =
        call->panels < limits->multiprocessors ? call->panels : limits->multiprocessors;
    uint32_t panels = (call->panels + blocks - 1) / blocks;
    uint64_t x = (uint64_t)call->slabs * FAST_SLAB * 2 * call->rows;
    call->workers = panels < FAST_RINGS ? panels : FAST_RINGS;
    uint64_t piece = (uint64_t)call->workers * FAST_PIECE * FAST_SLAB_BYTES;
    uint64_t least = RING_HEAD + x + 3 * piece;
    if (least > limits->shared)
        return 0;
    uint64_t room = least + 3 * piece < SHARED_HALF && SHARED_HALF < limits->shared
                        ? SHARED_HALF
                        : limits->shared;
    uint64_t depth = (room - x - RING_HEAD) / piece;
    call->depth = depth < RING_PIECES ? (uint32_t)depth : RING_PIECES;
    return (uint32_t)(fast_few_rings(call) + call->depth * piece);
}

/* Of a tile: as many as there are, or what leaves the fewest multiprocessors without work; the time
 * of a tile grows with its rows and 32 more. */
static uint32_t tile_rows(const cuda_step *step, const fast_call *call) {
    uint32_t best = 64, least = UINT32_MAX;
    if (call->rows <= 64)
        return 64;
    for (uint32_t rows = 64; rows <= 256; rows *= 2) {
        uint32_t blocks = step->port->limits.multiprocessors;
        uint32_t time = (fast_tiles(call, rows) + blocks - 1) / blocks * (rows + 32);
        if (time <= least) {
            least = time;
            best = rows;
        }
    }
    return best;
}

static cuda_kernel tile_kernel(uint32_t rows) {
    return rows == 64    ? CUDA_KERNEL_fast_tile64
           : rows == 128 ? CUDA_KERNEL_fast_tile128
                         : CUDA_KERNEL_fast_tile256;
}

static void launch_few(cuda_step *step, const fast_call *call, uint32_t shared) {
    uint32_t most = step->port->limits.multiprocessors;
    cuda_launch launch = {call->rows <= 8 ? CUDA_KERNEL_fast_few : CUDA_KERNEL_fast_few16,
                          call->panels < most ? call->panels : most,
                          1,
                          1,
                          FAST_THREADS,
                          shared,
                          CUDA_BEHIND};
    step_launch(step, &launch, call);
}

static void launch_tiles(cuda_step *step, fast_call *call) {
    const cuda_limits *limits = &step->port->limits;
    uint32_t rows = tile_rows(step, call), tiles = fast_tiles(call, rows);
    call->shares = call->rows <= rows;
    if (call->shares)
        tiles = call->panels;
    uint32_t stage = FAST_TILE_PANELS * FAST_SLAB_BYTES + rows * FAST_SLAB * 2;
    uint32_t depth = (limits->shared - FAST_TILE_HEAD) / stage;
    call->depth = depth < FAST_TILE_STAGES ? depth : FAST_TILE_STAGES;
    cuda_launch launch = {tile_kernel(rows),
                          tiles < limits->multiprocessors ? tiles : limits->multiprocessors,
                          1,
                          1,
                          FAST_TILE_THREADS,
                          FAST_TILE_HEAD + call->depth * stage,
                          CUDA_BEHIND};
    step_launch(step, &launch, call);
}

/* ---- A place ---- */

static fast_output output_of(const cuda_product *product, float *base, bool add) {
    return (fast_output){.out = base,
                         .stride = product->out_stride,
                         .bias = product->linear->bias,
                         .add_scale = product->add_scale,
                         .add = add};
}

static fast_call call_of(const cuda_step *step, const cuda_site *site, const cuda_product *products,
                         float *const *base, const bool *add, size_t count) {
    const weight_view *weight = &products[0].linear->weight;
    bool paired = site->paired;
    fast_call call = {.matrices = paired ? 1 : (uint32_t)count,
                      .paired = paired,
                      .brain = weight->type == QUANT_BF16,
                      .slabs = fast_slabs(weight->k),
                      .rows = site->rows};
    for (uint32_t i = 0; i < call.matrices; i++) {
        uint32_t rows = products[i].linear->weight.rows;
        uint32_t panels = (rows + FAST_PANEL - 1) / FAST_PANEL * (paired ? 2 : 1);
        call.one[i] = (fast_matrix){.data = products[i].linear->weight.data,
                                    .to = output_of(&products[i], base[i], add[i]),
                                    .outputs = rows,
                                    .panels = panels};
        call.panels += panels;
    }
    if (paired)
        call.gate = output_of(&products[1], base[1], add[1]);
    (void)step;
    return call;
}

static fast_prepare_call prepared(cuda_step *step, const cuda_site *site, const fast_call *product,
                                  uint32_t first, uint8_t *out, bool many) {
    static const norm_view none = {.kind = NORM_NONE};
    step_table_reserve(step, step->batch->runs > 0 ? site->rows * sizeof(row_norms) : 0);
    bool listed = site->index != NULL;
    size_t skipped = listed ? 0 : (size_t)first * site->k;
    fast_prepare_call call = {.x = site->x + skipped,
                              .gate = site->gate == NULL ? NULL : site->gate + skipped,
                              .index = listed ? site->index + first : NULL,
                              .stride = site->k,
                              .k = site->k,
                              .slabs = product->slabs,
                              .rows = product->rows,
                              .brain = product->brain,
                              .many = many,
                              .activated = site->activated,
                              .activation = (uint32_t)site->activation,
                              .norm = step_norm(step, site->norm == NULL ? &none : site->norm,
                                                site->place, site->layer, site->rows, site->head),
                              .out = out};
    if (call.norm.rows != NULL)
        call.norm.rows += first;
    return call;
}

static void prepare(cuda_step *step, const fast_prepare_call *call) {
    cuda_launch launch = {
        CUDA_KERNEL_fast_prepare, call->rows, 1, 1, FAST_THREADS, 256, CUDA_BEHIND};
    step_launch(step, &launch, call);
}

/* The product's kernel can do it itself. */
static bool makes(const cuda_step *step, const fast_prepare_call *call) {
    return step->tuning->make > 0 && step->port->limits.early && call->rows <= FAST_MAKES &&
           !call->many && !call->activated && call->norm.rows == NULL && call->k % 2 == 0 &&
           call->k <= FAST_MAKES_K;
}

static void shift(fast_output *to, uint32_t rows) {
    if (to->out != NULL)
        to->out += rows * to->stride;
}

/* Cards without products of warpgroups, and inputs that do not fit: a few rows at a time. */
static void multiply_parts(cuda_step *step, const cuda_site *site, const fast_call *given) {
    fast_call call = *given;
    call.rows = FAST_ROWS;
    uint32_t shared = few_shape(step, &call);
    while (shared == 0 && call.rows > 1) {
        call.rows /= 2;
        shared = few_shape(step, &call);
    }
    assert(shared > 0); /* one row's input fits: k is at most 2^16 */
    uint32_t each = call.rows;
    for (uint32_t first = 0; first < site->rows; first += each) {
        fast_call own = *given;
        own.rows = site->rows - first < each ? site->rows - first : each;
        for (uint32_t i = 0; i < own.matrices; i++)
            shift(&own.one[i].to, first);
        shift(&own.gate, first);
        own.x = step->scratch->fast_x;
        shared = few_shape(step, &own);
        own.make = prepared(step, site, &own, first, step->scratch->fast_x, false);
        prepare(step, &own.make);
        launch_few(step, &own, shared);
    }
}

bool fast_in_one(const cuda_step *step, uint32_t rows, uint32_t k, bool *many) {
    fast_call call = {.panels = UINT32_MAX / 2, .slabs = fast_slabs(k), .rows = rows};
    *many = rows > FAST_ROWS || few_shape(step, &call) == 0;
    return !*many || step->port->limits.groups;
}

void fast_multiply(cuda_step *step, const cuda_site *site, const cuda_product *products,
                   float *const *base, const bool *add, size_t count) {
    fast_call call = call_of(step, site, products, base, add, count);
    bool many;
    if (site->rows == 0)
        return;
    if (site->paired && site->joined) {
        call.activated = true;
        call.activation = (uint32_t)site->joined_activation;
        call.gate.out = NULL;
    }
    if (!fast_in_one(step, site->rows, site->k, &many)) {
        multiply_parts(step, site, &call);
        return;
    }
    call.groups = (call.rows + 7) / 8;
    call.x = site->half;
    if (call.x == NULL) {
        call.make = prepared(step, site, &call, 0, step->scratch->fast_x, many);
        if (!makes(step, &call.make)) {
            prepare(step, &call.make);
            call.x = step->scratch->fast_x;
        }
    }
    if (site->next != NULL) {
        call.one[0].to.out = NULL;
        call.next = site->next;
        call.next_many = site->next_many;
    }
    if (many)
        launch_tiles(step, &call);
    else
        launch_few(step, &call, few_shape(step, &call));
}

void fast_feed(cuda_step *step, cuda_site *site, const weight_view *made,
               const weight_view *weight) {
    bool many;
    if (!fast_in_one(step, site->rows, site->k, &many) ||
        !fast_in_one(step, site->rows, weight->k, &site->next_many) || !fast_matrices(&weight, 1) ||
        weight->type != made->type || weight->k % FAST_SLAB != 0)
        return;
    site->next = step->scratch->fast_next;
}

/* ---- Attention ---- */

bool fast_attends(const cuda_step *step, const layer_view *layer) {
    uint32_t size = layer->head_size;
    return step->fast && (size == 64 || size == 128) &&
           (step->kv->type == KV_F16 || step->kv->type == KV_BF16) &&
           layer->heads / layer->kv_heads <= 16 &&
           FAST_DECODE_SHARED(size) <= step->port->limits.shared;
}

uint32_t fast_tile_rows(const cuda_step *step, uint32_t *tile) {
    const batch_view *batch = step->batch;
    uint32_t group = 1, tiles = 0;
    for (uint32_t i = 0; i < step->model->layers; i++) {
        const layer_view *layer = &step->model->layer[i];
        uint32_t own = layer->heads / layer->kv_heads;
        group = own > group ? own : group;
    }
    uint32_t most = group < FAST_ATTEND_PAIRS ? FAST_ATTEND_PAIRS / group : 1;
    for (uint32_t s = 0; s < batch->segments; s++)
        for (uint32_t i = 0; i < batch->segment[s].rows; i += most, tiles++) {
            uint32_t left = batch->segment[s].rows - i;
            tile[2 * tiles] = batch->segment[s].first + i;
            tile[2 * tiles + 1] = left < most ? left : most;
        }
    return tiles;
}

void fast_attention(cuda_step *step, const layer_view *layer, const position_call *position,
                    const attend_rows_call *attend) {
    uint32_t rows = step->batch->rows, size = layer->head_size;
    uint32_t vectors = layer->heads + 2 * layer->kv_heads;
    const cuda_product output = {.linear = &layer->output};
    bool many;
    step->half = step->batch->runs == 0 && fast_computes(step, &output, 1) &&
                 layer->output.weight.k % FAST_SLAB == 0 &&
                 fast_in_one(step, rows, layer->output.weight.k, &many);
    bool few = step->alone || rows <= FAST_ROWS, fused = step->alone && step->tuning->make > 0;
    cuda_launch put = {CUDA_KERNEL_fast_position,
                       (vectors + FAST_WARPS - 1) / FAST_WARPS,
                       rows,
                       1,
                       FAST_THREADS,
                       FAST_WARPS * CALL_HEAD_MAX * 4,
                       CUDA_BEHIND};
    if (!fused)
        step_launch(step, &put, position);
    const uint8_t *memory = step->stream->memory;
    fast_attend_call call = {
        .kv = attend->kv,
        .query = position->query_out,
        .out = attend->out,
        .next = step->half ? step->scratch->fast_x : NULL,
        .next_many = step->half && many,
        .next_brain = layer->output.weight.type == QUANT_BF16,
        .rows = rows,
        .heads = layer->heads,
        .kv_heads = layer->kv_heads,
        .window = attend->window,
        .softcap = attend->softcap,
        .part = step->scratch->part,
        .arrived = step->scratch->arrived,
        .splits = 1,
        .tiles = step->tiles,
        .tile = (const uint32_t *)(const void *)(memory + step->stream->input.tile),
        .positions = fused,
        .position = *position};
    cuda_launch launch = {CUDA_KERNEL_fast_attend, layer->kv_heads,          step->tiles, 1,
                          FAST_ATTEND_THREADS,     FAST_ATTEND_SHARED(size), CUDA_BEHIND};
    if (few) {
        if (rows <= FEW_ROWS && rows * layer->kv_heads < step->port->limits.multiprocessors)
            call.splits = step->splits;
        launch.kernel = CUDA_KERNEL_fast_decode;
        launch.y = rows;
        launch.z = call.splits;
        launch.shared = FAST_DECODE_SHARED(size);
    }
    step_launch(step, &launch, &call);
}
