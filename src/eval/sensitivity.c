/* What the errors of each kind of matrix and of each band of layers cost, by trying. */
#include "eval/sensitivity.h"

#include "eval/eval.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WINDOWS    2
#define WINDOW     512
#define TOKENS_MIN 8
#define LIST_BYTES 8192

typedef struct trial {
    const char *path, *temporary;
    const pack_options *options;
    const avo_model *reference;
    const int32_t *tokens;
    size_t count;
    int32_t begin;
    pack_sensitivity *found;
    avo_error *error;
} trial;

/* Divergence of the model with some matrices in 4 bits. */
static avo_status divergence(trial *t, const char *tensors, pack_report *report, double *kl) {
    pack_options options = *t->options;
    options.bits = 0;
    options.type = PACK_F16;
    options.tensors = tensors;
    AVO_TRY(pack_file(t->path, t->temporary, &options, report, t->error));
    avo_model_options opening = AVO_MODEL_OPTIONS_INIT;
    opening.progress = options.progress;
    opening.progress_context = options.progress_context;
    avo_model *model = NULL;
    AVO_TRY(avo_model_open(t->temporary, &opening, &model, t->error));
    avo_model_info info = {.size = sizeof(info)};
    avo_model_describe(model, &info);
    uint32_t window = info.context < WINDOW ? info.context : WINDOW;
    eval_options eval = {.context = t->count < window ? (uint32_t)t->count : window,
                         .windows_max = WINDOWS,
                         .begin = t->begin,
                         .engine = {.threads = options.threads},
                         .progress = options.progress,
                         .progress_context = options.progress_context};
    kl_result result = {0};
    avo_status status = eval_kl(model, t->reference, t->tokens, t->count, &eval, &result, t->error);
    avo_model_close(model);
    *kl = result.mean;
    return status;
}

/* The mean error of what was rounded to 4 bits, each kind times `weight` of it (NULL: 1). */
static double lost(const pack_report *report, const pack_sensitivity *weights, double layers) {
    double sum = 0;
    for (uint32_t i = 0; i < report->groups; i++) {
        const pack_group *group = &report->group[i];
        if (group->type != QUANT_Q4R)
            continue;
        double weight = weights == NULL ? 1.0 : 0.0;
        for (uint32_t k = 0; weights != NULL && k < weights->kinds; k++)
            if (strcmp(weights->kind[k].name, group->name) == 0)
                weight = weights->kind[k].weight * group->tensors / layers;
        sum += weight * group->error / (double)group->weights;
    }
    return sum;
}

static avo_status measure_kind(trial *t, const char *name) {
    char tensors[96];
    /* "output" is in the name of "attn_output" too: what comes last counts */
    snprintf(tensors, sizeof(tensors), "%s.weight=q4%s", name,
             strcmp(name, "output") == 0 ? ",attn_output=f16" : "");
    pack_report report;
    double kl = 0;
    AVO_TRY(divergence(t, tensors, &report, &kl));
    double error = lost(&report, NULL, 1);
    pack_sensitivity *found = t->found;
    if (!(error > 0))
        return AVO_OK;
    snprintf(found->kind[found->kinds].name, sizeof(found->kind[0].name), "%s", name);
    found->kind[found->kinds++].weight = kl / error;
    return AVO_OK;
}

static avo_status measure_bands(trial *t, uint32_t layers) {
    uint32_t bands = layers < PACK_BANDS_MAX ? layers : PACK_BANDS_MAX;
    double factor[PACK_BANDS_MAX], sum = 0;
    for (uint32_t band = 0; band < bands; band++) {
        char tensors[LIST_BYTES];
        size_t length = 0;
        for (uint32_t layer = 0; layer < layers && length + 32 < sizeof(tensors); layer++)
            if ((uint64_t)layer * bands / layers == band)
                length += (size_t)snprintf(tensors + length, sizeof(tensors) - length,
                                           "%sblk.%u.=q4", length > 0 ? "," : "", layer);
        pack_report report;
        double kl = 0;
        AVO_TRY(divergence(t, tensors, &report, &kl));
        double expected = lost(&report, t->found, layers);
        factor[band] = expected > 0 ? kl / expected : 1.0;
        sum += factor[band];
    }
    for (uint32_t band = 0; band < bands && sum > 0; band++)
        t->found->band[band] = factor[band] * bands / sum;
    t->found->bands = sum > 0 ? bands : 0;
    return AVO_OK;
}

static avo_status measure(trial *t) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(t->reference, &info);
    pack_options options = *t->options;
    options.type = PACK_F16;
    pack_kinds kinds;
    AVO_TRY(pack_list_kinds(t->path, &options, &kinds, t->error));
    for (uint32_t i = 0; i < kinds.count; i++)
        AVO_TRY(measure_kind(t, kinds.name[i]));
    if (t->found->kinds == 0)
        return status_fail(t->error, AVO_ERROR_UNSUPPORTED, "%s: no matrix could be measured",
                           t->path);
    return measure_bands(t, info.layers);
}

avo_status eval_sensitivity(const char *path, const avo_model *reference, const int32_t *tokens,
                            size_t count, int32_t begin, const char *temporary,
                            const pack_options *options, pack_sensitivity *found,
                            avo_error *error) {
    *found = (pack_sensitivity){0};
    if (count < TOKENS_MIN)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the text has %zu tokens, which is too short to measure with", count);
    trial t = {.path = path,
               .temporary = temporary,
               .options = options,
               .reference = reference,
               .tokens = tokens,
               .count = count,
               .begin = begin,
               .found = found,
               .error = error};
    avo_status status = measure(&t);
    unlink(temporary);
    return status;
}
