/* What telemetry costs a decoding step: two engines of one model, one without telemetry, one with;
 * the second once with tracing off and once with tracing on. Steps of the three take turns, so that
 * whatever else the machine does hits them alike, and medians of their ratios are shown.
 *
 *   build/bench/bench_telemetry MODEL [ROUNDS] [THREADS]
 *
 * Prints nanoseconds of a step, and what the other two take more, in per cent. */
#include <avocet.h>

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 8 /* steps of one kind before the next one has its turn */

typedef struct subject {
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    double *seconds; /* [rounds] of a block */
} subject;

static void must(avo_status status, const avo_error *error) {
    if (status == AVO_OK)
        return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

static void subject_open(subject *s, const avo_model *model, avo_telemetry *telemetry,
                         uint32_t threads, int rounds) {
    avo_error error;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.context_max = 256;
    options.threads = threads;
    options.telemetry = telemetry;
    must(avo_engine_open(model, &options, &s->engine, &error), &error);
    must(avo_session_open(s->engine, NULL, &s->session, &error), &error);
    must(avo_batch_open(s->engine, &s->batch, &error), &error);
    s->seconds = calloc((size_t)rounds, sizeof(double));
}

static double block(subject *s) {
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
        fprintf(stderr, "usage: bench_telemetry MODEL [ROUNDS] [THREADS]\n");
        return 2;
    }
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 200;
    uint32_t threads = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    avo_error error;
    avo_model *model;
    avo_telemetry *telemetry;
    must(avo_model_open(argv[1], NULL, &model, &error), &error);
    must(avo_telemetry_open(NULL, NULL, &telemetry, &error), &error);
    subject without, with;
    subject_open(&without, model, NULL, threads, rounds);
    subject_open(&with, model, telemetry, threads, rounds);
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
    printf("step %.0f ns; telemetry %+.2f %%; tracing too %+.2f %%\n",
           median(without.seconds, rounds) * 1e9, (off - 1.0) * 100.0, (on - 1.0) * 100.0);
    return 0;
}
