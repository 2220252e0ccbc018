/* Experts of the reference back end: one expert after the other, each over copies of the rows that
 * use it. */
#include "device/cpu/ref/ref_int.h"

#include "base/checked.h"
#include "base/mathf.h"
#include "device/cpu/experts.h"

#include <string.h>

/* Buffers in scratch_view.shared. */
typedef struct expert_room {
    experts_choice choice;
    float *x;    /* [rows][width] */
    float *gate; /* [rows][feed forward] */
    float *up;
    float *result; /* [slots][width] */
} expert_room;

#define ROOM_PARTS 5

static bool measure(const experts_shape *shape, size_t rows, size_t part[ROOM_PARTS]) {
    size_t inner = size_max(shape->feed_forward, shape->shared);
    size_t slots = shape->used + (shape->shared > 0);
    const size_t row[ROOM_PARTS] = {0, shape->width, inner, inner, slots * shape->width};
    if (!experts_choice_bytes(shape, rows, &part[0]))
        return false;
    for (size_t i = 1; i < ROOM_PARTS; i++)
        if (!size_multiply(row[i] * sizeof(float), rows, &part[i]) ||
            !size_round_up(part[i], 64, &part[i]))
            return false;
    return true;
}

bool reference_experts_bytes(const model_view *model, size_t rows, size_t *bytes) {
    experts_shape shape = experts_shape_of(model);
    size_t part[ROOM_PARTS];
    *bytes = 0;
    if (shape.count == 0)
        return true;
    if (!measure(&shape, rows, part))
        return false;
    for (size_t i = 0; i < ROOM_PARTS; i++)
        if (!size_add(*bytes, part[i], bytes))
            return false;
    return true;
}

static expert_room room_of(const step_view *step) {
    experts_shape shape = experts_shape_of(step->model);
    size_t rows = step->scratch->rows_max, part[ROOM_PARTS];
    uint8_t *block = step->scratch->shared;
    void *at[ROOM_PARTS];
    bool fits = measure(&shape, rows, part); /* it did when the engine was opened */
    (void)fits;
    for (size_t i = 0; i < ROOM_PARTS; i++) {
        at[i] = block;
        block += part[i];
    }
    return (expert_room){experts_choice_lay(&shape, rows, at[0]), at[1], at[2], at[3], at[4]};
}

typedef struct expert_task {
    const step_view *step;
    const layer_view *layer;
    const expert_room *room;
    uint32_t rows, inner; /* of the activation */
} expert_task;

static void choose_worker(void *context, uint32_t worker, uint32_t workers) {
    const expert_task *task = context;
    const experts_view *experts = &task->layer->experts;
    const experts_choice *choice = &task->room->choice;
    size_t begin;
    size_t end;
    team_share(task->step->batch->rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        size_t use = row * experts->used;
        experts_choose(experts, choice->logits + row * experts->count, choice->chosen + use,
                       choice->weight + use);
        bool weighed = experts->shared_gate.weight.data != NULL;
        choice->shared[row] = weighed ? math_sigmoid(choice->shared[row]) : 1.0f;
    }
}

static void activate_worker(void *context, uint32_t worker, uint32_t workers) {
    const expert_task *task = context;
    const expert_room *room = task->room;
    size_t begin;
    size_t end;
    team_share((size_t)task->rows * task->inner, worker, workers, &begin, &end);
    for (size_t i = begin; i < end; i++)
        room->up[i] = reference_gated(task->layer->activation, room->gate[i], room->up[i]);
}

static void compute_group(const step_view *step, const layer_view *layer, const expert_room *room,
                          const expert_group *group) {
    size_t width = step->model->width;
    const expert_view *expert = experts_of_group(&layer->experts, group);
    bool shared = group->expert == layer->experts.count;
    const float *x = shared ? step->scratch->normed : room->x;
    for (uint32_t i = 0; !shared && i < group->rows; i++)
        memcpy(room->x + i * width,
               step->scratch->normed + room->choice.row[group->first + i] * width,
               width * sizeof(float));
    uint32_t inner = expert->up.weight.rows;
    expert_task task = {step, layer, room, group->rows, inner};
    reference_linear(step, &expert->gate, x, width, group->rows, room->gate, inner);
    reference_linear(step, &expert->up, x, width, group->rows, room->up, inner);
    reference_run(step, activate_worker, &task);
    reference_linear(step, &expert->down, room->up, inner, group->rows,
                     room->result + group->first * width, width);
}

/* projected = Σ weight · result, in ascending order of experts. */
static void combine_worker(void *context, uint32_t worker, uint32_t workers) {
    const expert_task *task = context;
    const experts_view *experts = &task->layer->experts;
    const expert_room *room = task->room;
    size_t width = task->step->model->width, uses = (size_t)task->step->batch->rows * experts->used;
    size_t begin;
    size_t end;
    team_share(task->step->batch->rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        float *out = task->step->scratch->projected + row * width;
        memset(out, 0, width * sizeof(float));
        for (uint32_t n = 0; n < experts_slots(experts); n++) {
            bool routed = n < experts->used;
            size_t use = row * experts->used + n;
            size_t slot = routed ? room->choice.slot[use] : uses + row;
            float weight = routed ? room->choice.weight[use] : room->choice.shared[row];
            const float *result = room->result + slot * width;
            for (size_t i = 0; i < width; i++)
                out[i] += result[i] * weight;
        }
    }
}

void reference_experts(const step_view *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    const experts_view *experts = &layer->experts;
    expert_room room = room_of(step);
    expert_task task = {.step = step, .layer = layer, .room = &room};
    uint32_t width = step->model->width, rows = step->batch->rows;
    reference_linear(step, &experts->router, step->scratch->normed, width, rows, room.choice.logits,
                     experts->count);
    if (experts->shared_gate.weight.data != NULL)
        reference_linear(step, &experts->shared_gate, step->scratch->normed, width, rows,
                         room.choice.shared, 1);
    reference_run_rows(step, choose_worker, &task);
    experts_group_rows(experts, rows, &room.choice);
    for (uint32_t i = 0; i < *room.choice.groups; i++)
        compute_group(step, layer, &room, &room.choice.group[i]);
    reference_run(step, combine_worker, &task);
}
