/* What the errors of each kind of matrix and of each band of layers cost, by trying. */
#include "cli/pack_sensitivity.h"

#include "cli/text_tokens.h"
#include "eval/eval.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WINDOWS    2
#define WINDOW     512
#define LIST_BYTES 8192

typedef struct trial {
    const char *path, *temporary;
    const pack_options *options;
    avo_model *reference;
    buffer ids;
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
    avo_model *model = NULL;
    AVO_TRY(cli_model_open(t->temporary, &model, t->error));
    const int32_t *tokens = (const int32_t *)(const void *)t->ids.data;
    size_t count = t->ids.size / sizeof(int32_t);
    eval_options eval = {.context = count < WINDOW ? (uint32_t)count : WINDOW,
                         .windows_max = WINDOWS,
                         .begin = cli_begin_token(t->reference, tokens, count),
                         .engine = {.threads = options.threads},
                         .progress = cli_progress};
    kl_result result;
    avo_status status = eval_kl(model, t->reference, tokens, count, &eval, &result, t->error);
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

/* Kinds that a model has not are left out. */
static avo_status measure_kind(trial *t, const char *name) {
    char tensors[96];
    /* "output" is in the name of "attn_output" too: what comes last counts */
    snprintf(tensors, sizeof(tensors), "%s.weight=q4%s", name,
             strcmp(name, "output") == 0 ? ",attn_output=f16" : "");
    pack_report report;
    double kl = 0;
    avo_status status = divergence(t, tensors, &report, &kl);
    if (status == AVO_ERROR_ARGUMENT && strstr(t->error->text, "no matrix has") != NULL)
        return AVO_OK;
    AVO_TRY(status);
    double error = lost(&report, NULL, 1);
    pack_sensitivity *found = t->found;
    if (!(error > 0) || found->kinds == PACK_KINDS_MAX)
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

static avo_status measure(trial *t, const char *text) {
    static const char *const kinds[] = {"attn_q",      "attn_k",     "attn_v",
                                        "attn_output", "ffn_gate",   "ffn_up",
                                        "ffn_down",    "token_embd", "output"};
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(t->reference, &info);
    AVO_TRY(cli_text_tokens(t->reference, text, &t->ids, t->error));
    if (t->ids.size / sizeof(int32_t) < 8)
        return status_fail(t->error, AVO_ERROR_ARGUMENT, "%s: too short to measure on", text);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        AVO_TRY(measure_kind(t, kinds[i]));
    if (t->found->kinds == 0)
        return status_fail(t->error, AVO_ERROR_UNSUPPORTED, "%s: nothing could be measured", text);
    return measure_bands(t, info.layers);
}

avo_status cli_sensitivity(const char *path, const char *text, const char *temporary,
                           const pack_options *options, pack_sensitivity *found, avo_error *error) {
    *found = (pack_sensitivity){0};
    trial t = {
        .path = path, .temporary = temporary, .options = options, .found = found, .error = error};
    buffer_init(&t.ids, NULL, SIZE_MAX);
    avo_status status = cli_model_open(path, &t.reference, error);
    if (status == AVO_OK)
        status = measure(&t, text);
    cli_progress_end();
    buffer_free(&t.ids);
    avo_model_close(t.reference);
    unlink(temporary);
    return status;
}
