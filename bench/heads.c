/* What draft heads cost: a pass of one row behind a step of the model, which has read all of its
 * weights and left nothing of the heads in the caches.
 *
 *   bench_heads MODEL HEADS [THREADS] */
#include "engine/draft_heads_int.h"
#include "engine/drafting.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

#define TOKENS 400
#define FIRST  100
#define TRIES  200

typedef struct bench {
    avo_model *model;
    avo_heads *heads;
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    drafter *drafter;
    sequence sequence;
    draft draft;
    int32_t tokens[TOKENS];
} bench;

static avo_status bench_open(bench *b, const char *model, const char *heads, uint32_t threads,
                             avo_error *error) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    AVO_TRY(avo_model_open(model, NULL, &b->model, error));
    AVO_TRY(avo_heads_open(b->model, heads, &b->heads, error));
    const avo_heads *list[] = {b->heads};
    options.threads = threads;
    options.context_max = TOKENS + DRAFTS_MAX;
    options.speculate = heads_kind_name(b->heads->config.kind);
    options.draft_controller = "fixed";
    options.draft_heads = list;
    options.draft_heads_count = 1;
    AVO_TRY(avo_engine_open(b->model, &options, &b->engine, error));
    AVO_TRY(avo_session_open(b->engine, NULL, &b->session, error));
    AVO_TRY(engine_batch_open(b->engine, 0, &b->batch, error));
    avo_request request = AVO_REQUEST_INIT;
    draft_sources sources = engine_drafts(b->engine);
    b->drafter = drafting_take(b->engine->speculation, &sources, &request, b->session);
    b->sequence.session = b->session;
    for (uint32_t i = 0; i < TOKENS; i++)
        b->tokens[i] = (int32_t)(i * 7919 % b->model->view.vocabulary);
    return AVO_OK;
}

static avo_status step(bench *b, uint32_t count, avo_error *error) {
    avo_batch_clear(b->batch);
    b->batch->top = 1;
    if (avo_batch_add(b->batch, b->session, b->tokens + b->session->count, count) == AVO_OK &&
        avo_step(b->engine, b->batch) == AVO_OK)
        return AVO_OK;
    *error = *avo_batch_error(b->batch);
    return error->status;
}

/* Microseconds of a proposal of `most` tokens behind all computed ones and one more. */
static double propose(bench *b, uint32_t most) {
    uint32_t count = b->session->count + 1;
    draft_request request = {.sequence = &b->sequence,
                             .drafter = b->drafter,
                             .timeline = {b->tokens, count, count},
                             .most = most,
                             .draft = &b->draft};
    draft_time time = {.token_ns = 1e9};
    uint64_t begin = clock_now_ns();
    b->draft.count = 0;
    draft_heads_propose(b->engine->draft_heads, &request, 1, &time);
    return (double)(clock_now_ns() - begin) / 1e3;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static avo_status measure(bench *b, uint32_t most, avo_error *error) {
    static double drafts[TRIES], steps[TRIES];
    uint32_t tries = TRIES / 4;
    for (uint32_t i = 0; i < tries; i++) {
        uint64_t begin = clock_now_ns();
        AVO_TRY(step(b, 1, error));
        steps[i] = (double)(clock_now_ns() - begin) / 1e3;
        drafts[i] = propose(b, most);
    }
    qsort(steps, tries, sizeof(double), by_size);
    qsort(drafts, tries, sizeof(double), by_size);
    double share = drafts[tries / 2] / steps[tries / 2];
    printf("%u drafts  %7.0f us (least %.0f)  step of one row %7.0f us  share %.3f\n",
           b->draft.count, drafts[tries / 2], drafts[0], steps[tries / 2], share);
    return AVO_OK;
}

static avo_status run(bench *b, avo_error *error) {
    AVO_TRY(step(b, FIRST, error));
    printf("first proposal behind a prompt of %d rows: %.0f us\n", HEADS_FEED_MAX, propose(b, 1));
    for (uint32_t most = 1; most <= 4; most++)
        AVO_TRY(measure(b, most, error));
    return AVO_OK;
}

int main(int argc, char **argv) {
    bench b = {0};
    avo_error error = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: bench_heads MODEL HEADS [THREADS]\n");
        return 2;
    }
    avo_status status = bench_open(&b, argv[1], argv[2],
                                   argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0, &error);
    AVO_THEN(status, run(&b, &error));
    if (status != AVO_OK)
        fprintf(stderr, "%s\n", error.text);
    avo_batch_close(b.batch);
    avo_session_close(b.session);
    avo_engine_close(b.engine);
    avo_heads_close(b.heads);
    avo_model_close(b.model);
    return status == AVO_OK ? 0 : 1;
}
