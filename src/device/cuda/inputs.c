/* The inputs of a step: what the host computes or writes down goes to the card before the first
 * kernel. Called by cuda_start alone; a copy that fails is noted in step->result. */
#include "device/cuda/step_int.h"

#include "device/cpu/ref/ref.h"

#include <string.h>

static void place_runs(const batch_view *batch, const scratch_view *scratch) {
    size_t at = 0;
    for (uint32_t i = 0; i < batch->runs; i++) {
        const adapter_run *run = &batch->run[i];
        scratch->place[i] = (run_place){at, adapter_room(run->adapter->rank)};
        at += run->rows * scratch->place[i].row;
    }
}

void step_embed(cuda_step *step, const cuda_weights *weights) {
    cuda_stream *stream = step->stream;
    const stream_shape *shape = &stream->base.shape;
    step_view own = {.model = &weights->host,
                     .batch = step->batch,
                     .scratch = &stream->host,
                     .team = stream->team,
                     .shape = shape};
    place_runs(step->batch, &stream->host);
    reference_embed(&own);
    uint32_t rows = step->batch->rows;
    step_send(step, stream->input.hidden, (size_t)rows * stream->base.width * sizeof(float));
    for (uint32_t t = 0; t < weights->host.rotary_tables; t++) {
        size_t at = (size_t)t * shape->rows_max * shape->pairs_max * sizeof(float);
        size_t bytes = (size_t)rows * shape->pairs_max * sizeof(float);
        step_send(step, stream->input.cosine + at, bytes);
        step_send(step, stream->input.sine + at, bytes);
    }
}

/* Page tables one behind the other, each as long as its last row needs. */
static bool write_pages(cuda_step *step, uint32_t *pages, size_t most, uint32_t *row_pages,
                        size_t *count) {
    const batch_view *batch = step->batch;
    *count = 0;
    for (uint32_t s = 0; s < batch->segments; s++) {
        const batch_segment *segment = &batch->segment[s];
        if (segment->rows == 0)
            continue;
        size_t own = batch->position[segment->first + segment->rows - 1] / KV_PAGE_TOKENS + 1;
        if (own > most - *count)
            return false;
        memcpy(pages + *count, segment->pages, own * sizeof(uint32_t));
        for (uint32_t i = 0; i < segment->rows; i++)
            row_pages[segment->first + i] = (uint32_t)*count;
        *count += own;
    }
    return true;
}

bool step_send_batch(cuda_step *step, device_work work) {
    const batch_view *batch = step->batch;
    cuda_stream *stream = step->stream;
    const cuda_input *input = &stream->input;
    uint8_t *host = stream->host_input;
    size_t most = (input->tables - input->pages) / sizeof(uint32_t), pages;
    memcpy(host + input->logit_row, batch->logit_row, batch->logit_rows * sizeof(uint32_t));
    step_send(step, input->logit_row, batch->logit_rows * sizeof(uint32_t));
    if (batch->target != NULL) {
        memcpy(host + input->target, batch->target, batch->logit_rows * sizeof(int32_t));
        step_send(step, input->target, batch->logit_rows * sizeof(int32_t));
    }
    if (work != DEVICE_FORWARD)
        return true;
    memcpy(host + input->position, batch->position, batch->rows * sizeof(uint32_t));
    if (!write_pages(step, (uint32_t *)(void *)(host + input->pages), most,
                     (uint32_t *)(void *)(host + input->row_pages), &pages))
        return false;
    step_send(step, input->position, batch->rows * sizeof(uint32_t));
    step_send(step, input->row_pages, batch->rows * sizeof(uint32_t));
    step_send(step, input->pages, pages * sizeof(uint32_t));
    step->fast_tiles =
        step->fast && step->model->layers > 0 && fast_attends(step, &step->model->layer[0]);
    if (step->fast_tiles)
        step->tiles = fast_tile_rows(step, (uint32_t *)(void *)(host + input->tile));
    else
        step->tiles = tiles_write(step, (uint32_t *)(void *)(host + input->tile));
    step_send(step, input->tile, step->tiles * 2 * sizeof(uint32_t));
    return true;
}
