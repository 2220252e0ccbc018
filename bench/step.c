/* What a step costs besides its arithmetic: as many phases as a model's step has, with items that
 * do nothing, beside a real step of one token at the beginning of a session. "few": attention is
 * not split, as it is not there; "most": it is, as it may be later on (device/cpu/phases/phases.c).
 *
 *     ninja -C build bench_step && build/bench/bench_step MODEL [THREADS_MAX]
 */
#include "base/clock.h"
#include "base/cpu.h"
#include "device/cpu/backend.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>

#define REPEATS     9
#define EMPTY_STEPS 50
#define TOKENS      24

static void nothing(const void *context, uint32_t phase, team_items *items) {
    uint32_t item;
    (void)context;
    (void)phase;
    while (team_take(items, &item))
        ;
}

/* Phases of a decoding step: five a layer, two more where attention is split, one more for each
 * norm behind a product, and two of the head. */
static uint32_t count_phases(const model_view *model, bool split) {
    uint32_t phases = 2;
    for (uint32_t i = 0; i < model->layers; i++) {
        const layer_view *layer = &model->layer[i];
        phases += split ? 7 : 5;
        phases += layer->attention_post_norm.kind != NORM_NONE || layer->norm_after;
        phases += layer->feed_forward_post_norm.kind != NORM_NONE || layer->norm_after;
    }
    return phases;
}

static bool measure_empty(const avo_model *model, bool split, uint32_t threads, double *seconds) {
    avo_error error = {0};
    team *team;
    uint32_t count = count_phases(&model->view, split);
    team_options options = {.threads = threads, .phases = count};
    team_phase *phases = calloc(count, sizeof(*phases));
    if (phases == NULL || team_open_with(NULL, &options, &team, &error) != AVO_OK) {
        fprintf(stderr, "%s\n", error.text);
        free(phases);
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        phases[i] = (team_phase){.compute = nothing, .items = 2 * threads};
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        uint64_t begin = clock_now_ns();
        for (int i = 0; i < EMPTY_STEPS; i++)
            team_run(team, phases, count, NULL);
        double one = clock_seconds(begin, clock_now_ns()) / EMPTY_STEPS;
        if (repeat == 0 || one < *seconds)
            *seconds = one;
    }
    team_close(team);
    free(phases);
    return true;
}

static avo_status time_tokens(avo_engine *engine, avo_session *session, double *seconds,
                              avo_error *error) {
    avo_request request = AVO_REQUEST_INIT;
    avo_result result = AVO_RESULT_INIT;
    const int32_t prompt[] = {1};
    request.tokens = prompt;
    request.token_count = 1;
    request.max_new_tokens = TOKENS;
    request.ignore_end = true;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        AVO_TRY(avo_session_truncate(session, 0, error));
        AVO_TRY(avo_generate(engine, session, &request, &result, error));
        double one = result.decode_seconds / (TOKENS - 1);
        if (repeat == 0 || one < *seconds)
            *seconds = one;
    }
    return AVO_OK;
}

static bool measure_real(const avo_model *model, uint32_t threads, double *seconds) {
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_engine *engine = NULL;
    avo_session *session = NULL;
    options.threads = threads;
    options.context_max = 64;
    options.rows_max = 16;
    avo_status status = avo_engine_open(model, &options, &engine, &error);
    if (status == AVO_OK)
        status = avo_session_open(engine, NULL, &session, &error);
    if (status == AVO_OK)
        status = time_tokens(engine, session, seconds, &error);
    if (status != AVO_OK)
        fprintf(stderr, "%s\n", error.text);
    avo_session_close(session);
    avo_engine_close(engine);
    return status == AVO_OK;
}

int main(int argc, char **argv) {
    avo_error error = {0};
    avo_model *model;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_step MODEL [THREADS_MAX]\n");
        return 2;
    }
    if (avo_model_open(argv[1], NULL, &model, &error) != AVO_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    uint32_t threads_max = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : cpu_usable_threads();
    printf("threads  empty µs, few  most  one token µs  share of few\n");
    bool good = true;
    for (uint32_t threads = 1; good && threads <= threads_max; threads *= 2) {
        double least = 0;
        double longest = 0;
        double real = 0;
        good = measure_empty(model, false, threads, &least) &&
               measure_empty(model, true, threads, &longest) && measure_real(model, threads, &real);
        if (good)
            printf("%7u  %13.1f  %4.1f  %12.0f  %.2f %%\n", threads, least * 1e6, longest * 1e6,
                   real * 1e6, 100.0 * least / real);
    }
    avo_model_close(model);
    return good ? 0 : 1;
}
