/* What telemetry costs: two engines of one model, one without telemetry, one with; the second once
 * with tracing off and once with tracing on. The three take turns, so that whatever else the
 * machine does hits them alike, and medians of their ratios are shown.
 *
 *   build/bench/bench_telemetry MODEL [ROUNDS] [THREADS] [steps | lanes]
 *
 * steps: decoding steps of one session. lanes: engines with two lanes under schedulers with cores
 * "static": a few requests, whose prompts are computed beside the others' decoding.
 *
 * Prints nanoseconds of a step (lanes: of a new token), and what the other two take more, in per
 * cent. */
#include <avocet.h>

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK         8 /* steps of one kind before the next one has its turn */
#define REQUESTS      4 /* of a block with lanes */
#define PROMPT_TOKENS 48
#define NEW_TOKENS    16

typedef struct subject {
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    avo_scheduler *scheduler; /* NULL: steps */
    double *seconds;          /* [rounds] of a block */
} subject;

static void must(avo_status status, const avo_error *error) {
    if (status == AVO_OK)
        return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

static void subject_open(subject *s, const avo_model *model, avo_telemetry *telemetry,
                         uint32_t threads, int rounds, bool lanes) {
    avo_error error;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.context_max = 256;
    options.threads = threads;
    options.telemetry = telemetry;
    options.streams = lanes ? 2 : 1;
    options.sessions_max = REQUESTS;
    *s = (subject){0};
    must(avo_engine_open(model, &options, &s->engine, &error), &error);
    s->seconds = calloc((size_t)rounds, sizeof(double));
    if (lanes) {
        avo_scheduler_options scheduling = AVO_SCHEDULER_OPTIONS_INIT;
        scheduling.cores = "static";
        scheduling.no_prefix_cache = true;
        must(avo_scheduler_open(s->engine, &scheduling, &s->scheduler, &error), &error);
        return;
    }
    must(avo_session_open(s->engine, NULL, &s->session, &error), &error);
    must(avo_batch_open(s->engine, &s->batch, &error), &error);
}

static double block_of_steps(subject *s) {
    const int32_t token = 100;
    avo_error error = {0};
    if (avo_session_length(s->session) + BLOCK > 128)
        must(avo_session_truncate(s->session, 32, &error), &error);
    uint64_t begin = clock_now_ns();
    for (int i = 0; i < BLOCK; i++) {
        avo_batch_clear(s->batch);
        must(avo_batch_add(s->batch, s->session, &token, 1), avo_batch_error(s->batch));
        must(avo_step(s->engine, s->batch), avo_batch_error(s->batch));
    }
    return clock_seconds(begin, clock_now_ns()) / BLOCK;
}

static bool count_end(void *context, const avo_event *event) {
    if (event->kind == AVO_EVENT_FINISHED || event->kind == AVO_EVENT_FAILED)
        __atomic_add_fetch((int *)context, 1, __ATOMIC_RELEASE);
    return true;
}

static double block_of_requests(subject *s) {
    int32_t tokens[PROMPT_TOKENS];
    avo_error error = {0};
    int ended = 0;
    for (int i = 0; i < PROMPT_TOKENS; i++)
        tokens[i] = 100 + i;
    uint64_t begin = clock_now_ns();
    for (int i = 0; i < REQUESTS; i++) {
        avo_request request = AVO_REQUEST_INIT;
        request.tokens = tokens;
        request.token_count = PROMPT_TOKENS;
        request.max_new_tokens = NEW_TOKENS;
        request.ignore_end = true;
        request.on_event = count_end;
        request.on_event_context = &ended;
        must(avo_scheduler_submit(s->scheduler, &request, NULL, NULL, &error), &error);
    }
    while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < REQUESTS) {
        const struct timespec pause = {0, 20000};
        nanosleep(&pause, NULL);
    }
    return clock_seconds(begin, clock_now_ns()) / (REQUESTS * NEW_TOKENS);
}

static double block(subject *s) {
    return s->scheduler == NULL ? block_of_steps(s) : block_of_requests(s);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof(*values), ascending);
    return values[count / 2];
}

static double ratio(const double *over, const double *under, int count) {
    double *ratios = calloc((size_t)count, sizeof(double));
    for (int i = 0; i < count; i++)
        ratios[i] = over[i] / under[i];
    double found = median(ratios, count);
    free(ratios);
    return found;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_telemetry MODEL [ROUNDS] [THREADS] [steps | lanes]\n");
        return 2;
    }
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 200;
    uint32_t threads = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    bool lanes = argc > 4 && strcmp(argv[4], "lanes") == 0;
    avo_error error;
    avo_model *model;
    avo_telemetry *telemetry;
    must(avo_model_open(argv[1], NULL, &model, &error), &error);
    must(avo_telemetry_open(NULL, NULL, &telemetry, &error), &error);
    subject without, with;
    subject_open(&without, model, NULL, threads, rounds, lanes);
    subject_open(&with, model, telemetry, threads, rounds, lanes);
    double *traced = calloc((size_t)rounds, sizeof(double));
    for (int i = 0; i < 10; i++) { /* warm */
        (void)block(&without);
        (void)block(&with);
    }
    for (int i = 0; i < rounds; i++) {
        without.seconds[i] = block(&without);
        with.seconds[i] = block(&with);
        avo_telemetry_trace_begin(telemetry);
        traced[i] = block(&with);
        avo_telemetry_trace_end(telemetry);
    }
    double off = ratio(with.seconds, without.seconds, rounds);
    double on = ratio(traced, without.seconds, rounds);
    printf("%s %.0f ns; telemetry %+.2f %%; tracing too %+.2f %%\n", lanes ? "token" : "step",
           median(without.seconds, rounds) * 1e9, (off - 1.0) * 100.0, (on - 1.0) * 100.0);
    return 0;
}
