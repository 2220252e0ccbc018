/* Mixtures of experts as all back ends of the CPU see them: which experts a row uses, and rows
 * grouped by expert, so that a step reads each expert once.
 *
 * The experts of a row depend on its own logits alone. Of equal logits the lower expert is taken.
 * Weights are computed in double precision and rounded once. What a row's experts gave is added in
 * ascending order of experts, the shared expert last, so that neither the batch nor the grouping
 * changes a bit.
 *
 * A *slot* is one row's use of one expert; slots of an expert lie side by side, in order of rows.
 */
#ifndef AVO_DEVICE_CPU_EXPERTS_H
#define AVO_DEVICE_CPU_EXPERTS_H

#include "device/layer.h"

/* `used` experts of a row, in ascending order, and their weights. */
void experts_choose(const experts_view *experts, const float *logits, uint32_t *expert,
                    float *weight);

typedef struct expert_group {
    uint32_t expert; /* count: the shared one */
    uint32_t first;  /* of its slots */
    uint32_t rows;
} expert_group;

/* The experts' part of a step's scratch, for the layer with the largest of each. */
typedef struct experts_shape {
    uint32_t count, used, width, feed_forward;
    uint32_t shared; /* width of the shared expert; 0: none */
} experts_shape;

/* Of all layers; count 0: no layer has any. */
experts_shape experts_shape_of(const model_view *model);

typedef struct experts_choice {
    float *logits;    /* [rows][count] */
    float *shared;    /* [rows] the weight of the shared expert, at first its logit */
    uint32_t *chosen; /* [rows][used] */
    float *weight;    /* [rows][used] */
    uint32_t *slot;   /* [rows][used] of each chosen expert */
    uint32_t *row;    /* [rows · used] of each slot */
    uint32_t *groups; /* how many there are */
    expert_group *group;
} experts_choice;

/* Bytes for `rows` rows, a multiple of 64; false when that wraps. */
bool experts_choice_bytes(const experts_shape *shape, size_t rows, size_t *bytes);
experts_choice experts_choice_lay(const experts_shape *shape, size_t rows, uint8_t *block);

/* Groups at most, of `rows` rows. */
size_t experts_groups_max(const experts_view *experts, size_t rows);
/* Fills slots, rows and groups from `chosen`; the shared expert's group comes first, its slots
 * behind all others. */
void experts_group_rows(const experts_view *experts, uint32_t rows, const experts_choice *choice);
/* The expert of a group. */
static inline const expert_view *experts_of_group(const experts_view *experts,
                                                  const expert_group *group) {
    return group->expert == experts->count ? &experts->shared : &experts->expert[group->expert];
}

#endif
