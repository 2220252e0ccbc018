/* How a model's publisher wants its tokens drawn: what its files say, else what is known by its
 * name. GGUF files are often written without the generation_config.json that the original has. */
#include "model/model.h"

#include "base/options.h"

#include <math.h>

typedef struct known_model {
    const char *name; /* lower case, without spaces, '-', '_' and '.'; part of the model's */
    float temperature, top_p;
    int32_t top_k;            /* 0: off */
    float repetition_penalty; /* 1: off */
} known_model;

/* From the generation_config.json or the model card of each, the longer of two names first. */
static const known_model known[] = {
    {"qwen25coder", 0.7f, 0.8f, 20, 1.1f}, {"qwen25", 0.7f, 0.8f, 20, 1.05f},
    {"qwen3", 0.6f, 0.95f, 20, 1.0f},      {"smollm3", 0.6f, 0.95f, 0, 1.0f},
    {"gemma3", 1.0f, 0.95f, 64, 1.0f},     {"gemma2", 1.0f, 0.95f, 64, 1.0f},
    {"metallama3", 0.6f, 0.9f, 0, 1.0f},   {"llama32", 0.6f, 0.9f, 0, 1.0f},
    {"llama31", 0.6f, 0.9f, 0, 1.0f},      {"llama3", 0.6f, 0.9f, 0, 1.0f},
};

#define NAME_BYTES 128

/* The name as the table has it; cut where it is longer. */
static void plain_name(text_view name, char plain[NAME_BYTES]) {
    size_t count = 0;
    for (size_t i = 0; i < name.size && count + 1 < NAME_BYTES; i++) {
        char c = name.data[i];
        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            plain[count++] = c;
    }
    plain[count] = '\0';
}

static const known_model *find_known(text_view name) {
    char plain[NAME_BYTES];
    plain_name(name, plain);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strstr(plain, known[i].name) != NULL)
            return &known[i];
    return NULL;
}

static float or_else(float given, float otherwise) {
    return isnan(given) ? otherwise : given;
}

bool model_sampling(const avo_model *model, const avo_sampling *otherwise, avo_sampling *out) {
    const generation_defaults *said = &model->source->generation;
    *out = *otherwise;
    bool own = !isnan(said->temperature);
    const known_model *found = own ? NULL : find_known(model->source->name);
    if (own || found != NULL) {
        /* The publisher's numbers were chosen together: what they leave out is off. */
        const avo_sampling off = AVO_SAMPLING_INIT;
        out->top_p = off.top_p;
        out->min_p = off.min_p;
        out->typical_p = off.typical_p;
        out->top_k = off.top_k;
        out->repetition_penalty = off.repetition_penalty;
    }
    if (found != NULL) {
        out->temperature = found->temperature;
        out->top_p = found->top_p;
        out->top_k = (uint32_t)found->top_k;
        out->repetition_penalty = found->repetition_penalty;
    }
    out->temperature = or_else(said->temperature, out->temperature);
    out->top_p = or_else(said->top_p, out->top_p);
    out->min_p = or_else(said->min_p, out->min_p);
    out->typical_p = or_else(said->typical_p, out->typical_p);
    out->repetition_penalty = or_else(said->repetition_penalty, out->repetition_penalty);
    if (said->top_k >= 0)
        out->top_k = (uint32_t)said->top_k;
    return own || found != NULL;
}

bool avo_model_recommends(const avo_model *model) {
    const avo_sampling greedy = AVO_SAMPLING_INIT;
    avo_sampling own;
    return model_sampling(model, &greedy, &own);
}

void avo_model_sampling(const avo_model *model, avo_sampling *sampling) {
    const avo_sampling greedy = AVO_SAMPLING_INIT;
    avo_sampling own;
    (void)model_sampling(model, &greedy, &own);
    options_give(sampling, &own, sizeof(own));
}
