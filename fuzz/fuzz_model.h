/* From the bytes of a model file to logits: what opens is bound, planned with little memory and
 * computed for a few tokens, so that no value of a file reaches an assert, a wrap or a byte too
 * far. Shared by the fuzz entry and the test of hostile files. */
#ifndef AVO_FUZZ_MODEL_H
#define AVO_FUZZ_MODEL_H

#include "base/allocator.h"
#include "formats/formats_int.h"
#include "fuzz_avo.h"
#include "model/model.h"
#include "sample/sample.h"

#include <math.h>
#include <stdlib.h>

typedef enum model_outcome {
    MODEL_REFUSED,   /* not opened, or its tensors do not fit it */
    MODEL_TOO_LARGE, /* no engine within the memory given */
    MODEL_COMPUTED
} model_outcome;

/* Generation defaults of a file that opened must suit the sampler. */
static inline void model_sampler_check(const model_source *source) {
    const generation_defaults *defaults = &source->generation;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    float *const numbers[GENERATION_FIELD_COUNT] = {&sampling.temperature, &sampling.top_p,
                                                    &sampling.min_p, &sampling.typical_p,
                                                    &sampling.repetition_penalty};
    for (generation_field i = 0; i < GENERATION_FIELD_COUNT; i++)
        if (!isnan(generation_number(defaults, i)))
            *numbers[i] = generation_number(defaults, i);
    if (defaults->top_k > 0)
        sampling.top_k = (uint32_t)defaults->top_k;
    sampler *sampler;
    if (sampler_open(&sampling, source->config.vocabulary, NULL, &sampler, NULL) ==
        AVO_ERROR_ARGUMENT)
        abort();
    sampler_close(sampler);
}

/* Two steps, to the end of a short context: the last position is the one that could be too far. */
static inline model_outcome model_compute(const avo_model *model) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.rows_max = 4;
    options.memory_max = (uint64_t)32 << 20;
    options.context_max = model->source->config.context < 40 ? model->source->config.context : 40;
    avo_engine *engine = NULL;
    avo_session *session = NULL;
    avo_batch *batch = NULL;
    if (avo_engine_open(model, &options, &engine, NULL) != AVO_OK)
        return MODEL_TOO_LARGE;
    if (avo_session_open(engine, NULL, &session, NULL) != AVO_OK ||
        avo_batch_open(engine, &batch, NULL) != AVO_OK)
        abort();
    int32_t last = (int32_t)model->source->config.vocabulary - 1;
    const int32_t tokens[] = {last, 0, last, 0};
    for (uint32_t left = options.context_max; left > 0;) {
        uint32_t count = left < 4 ? left : 4;
        avo_batch_clear(batch);
        if (avo_batch_add(batch, session, tokens, count) != AVO_OK ||
            avo_step(engine, batch) != AVO_OK || avo_batch_logits(batch, session, 0) == NULL)
            abort();
        left -= count;
    }
    avo_batch_close(batch);
    avo_session_close(session);
    avo_engine_close(engine);
    return MODEL_COMPUTED;
}

/* `bytes` belong to the caller. */
static inline model_outcome model_run(const uint8_t *bytes, size_t size) {
    memory_file file = {"fuzz.model", {bytes, size}};
    model_source *source;
    avo_error error;
    if (source_open_memory(&file, 1, NULL, &source, &error) != AVO_OK)
        return MODEL_REFUSED;
    avo_model *model = allocator_take_array(NULL, 1, sizeof(*model));
    if (model == NULL)
        abort();
    arena_init(&model->arena, NULL, SIZE_MAX);
    model->source = source;
    model_outcome outcome = MODEL_REFUSED;
    if (weights_store_open(NULL, &model->store, &error) == AVO_OK &&
        model_bind(model, &error) == AVO_OK) {
        model_sampler_check(source);
        outcome = model_compute(model);
    }
    avo_model_close(model);
    return outcome;
}

#endif
