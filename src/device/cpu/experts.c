/* The choice of experts and the grouping of rows. */
#include "device/cpu/experts.h"

#include "base/checked.h"
#include "base/mathd.h"

#include <math.h>
#include <string.h>

/* ---- The choice ---- */

/* The highest logit that was not taken yet, of equals the first. NaN comes last, so that a row of
 * NaN has experts, too; its weights are NaN. */
static uint32_t take_highest(const float *logits, uint32_t count, uint64_t *taken) {
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++) {
        if (taken[i / 64] >> i % 64 & 1)
            continue;
        if (best == count || logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
            best = i;
    }
    taken[best / 64] |= (uint64_t)1 << best % 64;
    return best;
}

void experts_choose(const experts_view *experts, const float *logits, uint32_t *expert,
                    float *weight) {
    uint64_t taken[EXPERTS_MAX / 64] = {0};
    double power[EXPERTS_USED_MAX], all = 0.0, own = 0.0, largest = 0.0;
    for (uint32_t n = 0; n < experts->used; n++) {
        uint32_t best = take_highest(logits, experts->count, taken);
        largest = n == 0 ? (double)logits[best] : largest;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < experts->count && n < experts->used; i++)
        if (taken[i / 64] >> i % 64 & 1)
            expert[n++] = i;
    for (n = 0; n < experts->used; n++) {
        power[n] = mathd_exp((double)logits[expert[n]] - largest);
        own += power[n];
    }
    bool whole = experts->router_kind == ROUTER_SOFTMAX && !experts->normalised;
    for (uint32_t i = 0; whole && i < experts->count; i++)
        all += mathd_exp((double)logits[i] - largest);
    for (n = 0; n < experts->used; n++)
        weight[n] = (float)(power[n] / (whole ? all : own));
}

/* ---- Groups ---- */

size_t experts_groups_max(const experts_view *experts, size_t rows) {
    size_t routed = size_min(experts->count, rows * experts->used);
    return routed + (experts->shared.up.weight.data != NULL);
}

void experts_group_rows(const experts_view *experts, uint32_t rows, const experts_choice *choice) {
    uint32_t next[EXPERTS_MAX] = {0};
    size_t uses = (size_t)rows * experts->used;
    uint32_t groups = 0, first = 0;
    for (size_t i = 0; i < uses; i++)
        next[choice->chosen[i]]++;
    if (experts->shared.up.weight.data != NULL)
        choice->group[groups++] = (expert_group){experts->count, (uint32_t)uses, rows};
    for (uint32_t i = 0; i < experts->count; i++) {
        uint32_t own = next[i];
        next[i] = first;
        if (own > 0)
            choice->group[groups++] = (expert_group){i, first, own};
        first += own;
    }
    for (size_t i = 0; i < uses; i++) {
        choice->slot[i] = next[choice->chosen[i]]++;
        choice->row[choice->slot[i]] = (uint32_t)(i / experts->used);
    }
    *choice->groups = groups;
}

/* ---- Scratch ---- */

experts_shape experts_shape_of(const model_view *model) {
    experts_shape shape = {.width = model->width};
    if (model->experts_max == 0)
        return shape;
    for (uint32_t i = 0; i < model->layers; i++) {
        const experts_view *experts = &model->layer[i].experts;
        if (experts->count == 0)
            continue;
        uint32_t inner = experts->expert[0].up.weight.rows;
        uint32_t shared =
            experts->shared.up.weight.data == NULL ? 0 : experts->shared.up.weight.rows;
        shape.count = experts->count > shape.count ? experts->count : shape.count;
        shape.used = experts->used > shape.used ? experts->used : shape.used;
        shape.feed_forward = inner > shape.feed_forward ? inner : shape.feed_forward;
        shape.shared = shared > shape.shared ? shared : shape.shared;
    }
    return shape;
}

#define CHOICE_PARTS 8

/* Bytes of each part; false when one wraps. */
static bool measure(const experts_shape *shape, size_t rows, size_t part[CHOICE_PARTS]) {
    size_t uses;
    if (!size_multiply(rows, shape->used, &uses))
        return false;
    const size_t counts[CHOICE_PARTS][2] = {{rows, shape->count * sizeof(float)},
                                            {rows, sizeof(float)},
                                            {uses, sizeof(uint32_t)},
                                            {uses, sizeof(float)},
                                            {uses, sizeof(uint32_t)},
                                            {uses, sizeof(uint32_t)},
                                            {1, sizeof(uint32_t)},
                                            {shape->count + 1, sizeof(expert_group)}};
    for (size_t i = 0; i < CHOICE_PARTS; i++)
        if (!size_multiply(counts[i][0], counts[i][1], &part[i]) ||
            !size_round_up(part[i], 64, &part[i]))
            return false;
    return true;
}

bool experts_choice_bytes(const experts_shape *shape, size_t rows, size_t *bytes) {
    size_t part[CHOICE_PARTS];
    *bytes = 0;
    if (!measure(shape, rows, part))
        return false;
    for (size_t i = 0; i < CHOICE_PARTS; i++)
        if (!size_add(*bytes, part[i], bytes))
            return false;
    return true;
}

experts_choice experts_choice_lay(const experts_shape *shape, size_t rows, uint8_t *block) {
    size_t part[CHOICE_PARTS];
    void *at[CHOICE_PARTS];
    bool fits = measure(shape, rows, part); /* it did when the engine was opened */
    (void)fits;
    for (size_t i = 0; i < CHOICE_PARTS; i++) {
        at[i] = block;
        block += part[i];
    }
    return (experts_choice){at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
}
