/* Feeds windows of tokens to an engine and hands out the logits. The cut into steps does not change
 * a bit of them. */
#include "eval/eval_int.h"

#define ROWS_DEFAULT     256
#define LOGITS_BYTES_MAX ((uint64_t)64 << 20) /* held at once by a step with logits */

static uint32_t smaller(uint64_t a, uint64_t b) {
    return (uint32_t)(a < b ? a : b);
}

avo_status scorer_open(scorer *scorer, const avo_model *model, const eval_options *options,
                       uint32_t context, avo_error *error) {
    *scorer = (struct scorer){0};
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    scorer->vocabulary = info.vocabulary;
    scorer->rows_max = smaller(options->chunk != 0 ? options->chunk : ROWS_DEFAULT, context);
    uint64_t fitting = LOGITS_BYTES_MAX / ((uint64_t)info.vocabulary * sizeof(float));
    scorer->scored_max = smaller(scorer->rows_max, fitting > 0 ? fitting : 1);
    avo_engine_options engine = options->engine;
    engine.size = sizeof(engine);
    engine.context_max = context;
    engine.rope_context = context; /* what is measured is this context */
    engine.rows_max = scorer->rows_max;
    engine.logits_max = scorer->scored_max;
    AVO_TRY(avo_engine_open(model, &engine, &scorer->engine, error));
    avo_status status = avo_session_open(scorer->engine, NULL, &scorer->session, error);
    AVO_THEN(status, avo_batch_open(scorer->engine, &scorer->batch, error));
    if (status != AVO_OK)
        scorer_close(scorer);
    return status;
}

void scorer_close(scorer *scorer) {
    avo_batch_close(scorer->batch);
    avo_session_close(scorer->session);
    avo_engine_close(scorer->engine);
    *scorer = (struct scorer){0};
}

avo_status scorer_begin(scorer *scorer, avo_error *error) {
    avo_batch_clear(scorer->batch);
    return avo_session_truncate(scorer->session, 0, error);
}

avo_status scorer_compute(scorer *scorer, const int32_t *tokens, size_t count, bool scored,
                          avo_error *error) {
    avo_batch_clear(scorer->batch);
    avo_status status =
        avo_batch_add_scored(scorer->batch, scorer->session, tokens, count, scored ? count : 0);
    AVO_THEN(status, avo_step(scorer->engine, scorer->batch));
    if (status != AVO_OK)
        return status_fail(error, status, "%s", avo_batch_error(scorer->batch)->text);
    return AVO_OK;
}

avo_status scorer_logits(const scorer *scorer, size_t index, const float **logits,
                         avo_error *error) {
    *logits = avo_batch_logits(scorer->batch, scorer->session, index);
    if (*logits != NULL)
        return AVO_OK;
    const avo_error *why = avo_batch_error(scorer->batch);
    return status_fail(error, why->status, "%s", why->text);
}

avo_status scorer_window(scorer *scorer, const int32_t *tokens, size_t count, size_t first_scored,
                         scorer_function take, void *context, avo_error *error) {
    AVO_TRY(scorer_begin(scorer, error));
    size_t at = 0;
    while (at < first_scored && at < count) {
        size_t end = first_scored < count ? first_scored : count;
        size_t rows = smaller(end - at, scorer->rows_max);
        AVO_TRY(scorer_compute(scorer, tokens + at, rows, false, error));
        at += rows;
    }
    while (at < count) {
        size_t rows = smaller(count - at, scorer->scored_max);
        AVO_TRY(scorer_compute(scorer, tokens + at, rows, true, error));
        for (size_t i = 0; i < rows; i++) {
            const float *logits;
            AVO_TRY(scorer_logits(scorer, i, &logits, error));
            AVO_TRY(take(context, at + i, logits, error));
        }
        at += rows;
    }
    return AVO_OK;
}
