/* Steps of few rows as one kernel (kernels/walk.h): launches of the kernels that it has are noted
 * as its phases; where another one comes between, what was noted is launched first. */
#include "device/cuda/step_int.h"

#include "device/cuda/kernels/walk.h"

#include <string.h>

#define WALK_SLOTS (60 * 1024) /* bytes, at most */

size_t walk_phases_max(const model_view *model) {
    return (size_t)model->layers * 8 + 8;
}

void walk_begin(cuda_step *step, uint32_t recording) {
    cuda_stream *stream = step->stream;
    size_t bytes = walk_phases_max(step->model) * sizeof(walk_phase);
    step->walk = (cuda_walk){.on = step->tuning->rung >= 3 && step->port->limits.early,
                             .offset = stream->input.walk + recording * bytes,
                             .kernel = CUDA_KERNELS};
}

static walk_phase *phase_at(const cuda_step *step, uint32_t number) {
    uint8_t *host = step->stream->host_input + step->walk.offset;
    return (walk_phase *)(void *)host + number;
}

/* Stages of the ring beside phases that need so many bytes; less than WALK_LEAST: too few. */
static uint32_t stages_of(const cuda_step *step, uint64_t rest) {
    walk_desk desk;
    uint64_t words = walk_lay(0, (float *)(uintptr_t)4096, &desk) + rest / 4 + 4;
    uint64_t room = step->port->limits.shared / 4;
    return room < words ? 0 : (uint32_t)((room - words) / (WALK_STAGE / 4 + 4));
}

void walk_flush(cuda_step *step) {
    cuda_walk *walk = &step->walk;
    if (walk->count == walk->first)
        return;
    walk_desk desk;
    uint8_t *card = step->stream->memory + walk->offset;
    walk_call call = {.phase = (const walk_phase *)(const void *)card + walk->first,
                      .phases = walk->count - walk->first,
                      .stages = stages_of(step, walk->rest),
                      .met = step->scratch->met};
    uint32_t words = walk_lay(call.stages, (float *)(uintptr_t)4096, &desk);
    cuda_launch launch = {.kernel =
                              walk->kernel == CUDA_KERNELS ? CUDA_KERNEL_walk_q4r : walk->kernel,
                          .x = step->port->limits.multiprocessors,
                          .y = 1,
                          .z = 1,
                          .threads = WALK_THREADS + 32,
                          .shared = 4 * words + walk->rest,
                          .begin = CUDA_TOGETHER};
    walk->first = walk->count;
    walk->rest = 0;
    walk->kernel = CUDA_KERNELS;
    step->follows = false;
    if (step->result == 0)
        step->result = step->port->operations->launch(step->port, &launch, &call);
}

void walk_send(cuda_step *step) {
    step_send(step, step->walk.offset, step->walk.count * sizeof(walk_phase));
}

/* Room for one more phase that needs so many bytes; NULL: it cannot be one. */
static walk_phase *note(cuda_step *step, cuda_kernel kernel, uint64_t bytes) {
    cuda_walk *walk = &step->walk;
    uint64_t rest = bytes > walk->rest ? (bytes + 15) / 16 * 16 : walk->rest;
    bool other = kernel != CUDA_KERNELS && walk->kernel != CUDA_KERNELS && walk->kernel != kernel;
    if (stages_of(step, rest) < WALK_LEAST || walk->count >= walk_phases_max(step->model))
        return NULL;
    if (other)
        walk_flush(step);
    walk->rest = other ? (uint32_t)((bytes + 15) / 16 * 16) : (uint32_t)rest;
    if (kernel != CUDA_KERNELS)
        walk->kernel = kernel;
    walk_phase *phase = phase_at(step, walk->count++);
    memset(phase, 0, sizeof(*phase));
    return phase;
}

bool walk_launch(cuda_step *step, const cuda_launch *launch, const void *call) {
    bool decodes = launch->kernel == CUDA_KERNEL_decode;
    if (!step->walk.on || (!decodes && launch->kernel != CUDA_KERNEL_ready))
        return false;
    walk_phase *phase = note(step, CUDA_KERNELS, launch->shared);
    if (phase == NULL)
        return false;
    phase->kind = decodes ? WALK_DECODE : WALK_READY;
    phase->x = launch->x;
    phase->y = launch->y;
    phase->z = launch->z;
    memcpy(&phase->call, call, decodes ? sizeof(decode_call) : sizeof(ready_call));
    return true;
}

/* Bytes that a block needs for its share of `panels`: rounds as large as slots for them may be; 0:
 * not even one panel. */
static uint64_t set_rounds(few_call *call, uint32_t panels, bool q4r) {
    uint32_t each = call->paired ? 2 : 1, k = call->input.k;
    uint32_t pieces = q4r ? (k + 255) / 256 : (k + 127) / 128;
    uint64_t one = call->input.rows * pieces * piece_steps(q4r) * SLOT;
    few_desk desk;
    call->own = call->together = panels;
    call->span = pieces;
    call->whole = 0;
    uint64_t slots = panels * one;
    if (slots > WALK_SLOTS / 4) {
        call->together = (uint32_t)(WALK_SLOTS / 8 / one) / each * each;
        slots = 2 * call->together * one;
    }
    uint64_t stage = input_stage_words(&call->input);
    uint64_t words = few_desk_lay(&call->input, (float *)(uintptr_t)4096, &desk);
    return call->together == 0 ? 0 : 4 * (words + (slots > stage ? slots : stage));
}

bool walk_fits(const cuda_step *step, const few_call *call, uint32_t panels, bool q4r) {
    few_call own = *call;
    uint64_t bytes = set_rounds(&own, panels, q4r);
    return bytes > 0 && stages_of(step, bytes) >= WALK_LEAST;
}

bool walk_product(cuda_step *step, few_call *call, uint32_t panels, bool q4r) {
    uint64_t bytes = set_rounds(call, panels, q4r);
    walk_phase *phase = note(step, q4r ? CUDA_KERNEL_walk_q4r : CUDA_KERNEL_walk_q8b, bytes);
    if (phase == NULL)
        return false;
    phase->kind = WALK_PRODUCTS;
    phase->x = phase->y = phase->z = 1;
    phase->call.few = *call;
    return true;
}
