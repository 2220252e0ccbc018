/* Attention of many rows: which rows of a step make a tile, and its launch. */
#include "device/cuda/step_int.h"

#define HALF_FILLED 16   /* rows of a tile of F16 pages, on average, from which it is worth while */
#define WARPS_MANY  1024 /* with fewer tiles and heads, warps share a tile's positions */

static uint32_t group_of(const layer_view *layer) {
    return layer->heads / layer->kv_heads;
}

/* Consecutive rows of one session, the farthest ones first. Steps that may be recorded have as many
 * tiles as rows, the last ones empty. */
uint32_t tiles_write(cuda_step *step, uint32_t *tile) {
    const batch_view *batch = step->batch;
    if (step->model->layers == 0) /* networks of draft heads are products alone */
        return 0;
    uint32_t group = group_of(&step->model->layer[0]), count = 0;
    uint32_t rows = step->kv->type == KV_INT8 ? ATTEND_TILE_ROWS : HALF_ROWS, each = rows / group;
    if (each == 0)
        return 0;
    for (uint32_t s = batch->segments; s-- > 0;) {
        const batch_segment *segment = &batch->segment[s];
        for (uint32_t end = segment->rows; end > 0;) {
            uint32_t first = (end - 1) / each * each;
            tile[2 * count] = segment->first + first;
            tile[2 * count++ + 1] = end - first;
            end = first;
        }
    }
    for (; batch->rows <= RECORD_ROWS && count < batch->rows; count++)
        tile[2 * count] = tile[2 * count + 1] = 0;
    return count;
}

bool tiles_position(cuda_step *step, uint32_t number, const position_call *given) {
    const layer_view *layer = &step->model->layer[number];
    uint32_t size = layer->head_size, type = given->kv.type;
    if (step->tuning->tiles == 0 || (size != 64 && size != 128) ||
        (type != CALL_KV_F16 && type != CALL_KV_INT8) || given->query_norm.kind != CALL_NORM_NONE ||
        given->key_norm.kind != CALL_NORM_NONE ||
        (given->cosine != NULL && 2 * given->pairs != size))
        return false;
    position_call call = *given;
    call.rows = step->batch->rows;
    uint32_t warps = (layer->heads + 2 * layer->kv_heads) * call.rows, each = POSITION_THREADS / 32;
    cuda_launch launch = {.kernel = size == 64 ? CUDA_KERNEL_position_64 : CUDA_KERNEL_position_128,
                          .x = (warps + each - 1) / each,
                          .y = 1,
                          .z = 1,
                          .threads = POSITION_THREADS};
    step_launch(step, &launch, &call);
    return true;
}

static const uint32_t *tile_table(const cuda_step *step) {
    return (const uint32_t *)(const void *)(step->stream->memory + step->stream->input.tile);
}

/* Tiles that are mostly empty take longer than rows one by one. */
static bool half_attend(cuda_step *step, const layer_view *layer, attend_tiles_call *call) {
    uint32_t size = layer->head_size, group = group_of(layer);
    if (step->alone || HALF_SHARED(size) > step->port->limits.shared ||
        step->batch->rows * group < HALF_FILLED * step->tiles)
        return false;
    call->tile = tile_table(step);
    cuda_launch launch = {size == 64 ? CUDA_KERNEL_attend_half_64 : CUDA_KERNEL_attend_half_128,
                          layer->kv_heads,
                          call->tiles,
                          1,
                          HALF_THREADS,
                          (uint32_t)HALF_SHARED(size),
                          CUDA_BEHIND};
    step_launch(step, &launch, call);
    return true;
}

static bool tiles_fit(const cuda_step *step, const layer_view *layer) {
    uint32_t size = layer->head_size;
    return step->tiles > 0 && step->tuning->tiles > 0 && (size == 64 || size == 128) &&
           group_of(layer) == group_of(&step->model->layer[0]);
}

bool tiles_known(const cuda_step *step, uint32_t number, const attend_rows_call *attend) {
    const layer_view *layer = &step->model->layer[number];
    return attend->kv.type == CALL_KV_INT8 && tiles_fit(step, layer) &&
           ATTEND_TILE_SHARED(layer->head_size) <= step->port->limits.shared;
}

bool tiles_attend(cuda_step *step, uint32_t number, const attend_rows_call *attend) {
    const layer_view *layer = &step->model->layer[number];
    uint32_t size = layer->head_size;
    if (!tiles_fit(step, layer))
        return false;
    attend_tiles_call call = {.rows = *attend, .tiles = step->tiles, .share = 1};
    if (attend->kv.type == CALL_KV_F16)
        return half_attend(step, layer, &call);
    if (!tiles_known(step, number, attend))
        return false;
    call.tile = tile_table(step);
    while (call.share < ATTEND_TILE_WARPS && call.share < step->splits &&
           2 * call.share * call.tiles * layer->kv_heads <= WARPS_MANY)
        call.share *= 2;
    cuda_launch launch = {size == 64 ? CUDA_KERNEL_attend_int8_64 : CUDA_KERNEL_attend_int8_128,
                          layer->kv_heads,
                          (call.tiles * call.share + ATTEND_TILE_WARPS - 1) / ATTEND_TILE_WARPS,
                          1,
                          ATTEND_TILE_THREADS,
                          (uint32_t)ATTEND_TILE_SHARED(size),
                          CUDA_BEHIND};
    step_launch(step, &launch, &call);
    return true;
}
