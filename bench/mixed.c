/* Prompts beside decoding: in one step with it (what the scheduler does), in steps of their own in
 * turn, or on a core of their own by a second engine with half of the threads.
 *
 *     ninja -C build bench_mixed && build/bench/bench_mixed MODEL [THREADS]
 *
 * Each way computes the same work: SESSIONS sequences decode STEPS tokens while chunks of CHUNK
 * rows of prompts are computed, one per step. What is printed is the time of a step, and the rates.
 */
#include "base/clock.h"
#include "base/cpu.h"

#include <avocet.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define SESSIONS 16
#define DEPTH    64 /* tokens that sequences hold */
#define STEPS    10
#define ROUNDS   5 /* of which the median counts */
#define CONTEXT  2048

typedef struct lane {
    avo_engine *engine;
    avo_batch *batch;
    avo_session *decode[SESSIONS], *prompt;
    int32_t tokens[512];
    uint32_t chunk;
} lane;

static void check(avo_status status, const avo_error *error) {
    if (status == AVO_OK)
        return;
    fprintf(stderr, "bench_mixed: %s\n", error->text);
    exit(1);
}

static void step(lane *l) {
    check(avo_step(l->engine, l->batch), avo_batch_error(l->batch));
    avo_batch_clear(l->batch);
}

static void add_decode(lane *l) {
    const int32_t token = 500;
    for (int i = 0; i < SESSIONS; i++)
        check(avo_batch_add(l->batch, l->decode[i], &token, 1), avo_batch_error(l->batch));
}

/* The prompt begins anew when it is long: its chunks see some hundred tokens, as prompts do. */
static void add_chunk(lane *l) {
    avo_error error = {0};
    if (avo_session_length(l->prompt) + l->chunk > 512)
        check(avo_session_truncate(l->prompt, 0, &error), &error);
    check(avo_batch_add(l->batch, l->prompt, l->tokens, l->chunk), avo_batch_error(l->batch));
}

static void lane_open(lane *l, const avo_model *model, uint32_t threads) {
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = threads;
    options.sessions_max = SESSIONS + 1;
    options.context_max = CONTEXT;
    options.rows_max = 544;
    check(avo_engine_open(model, &options, &l->engine, &error), &error);
    check(avo_batch_open(l->engine, &l->batch, &error), &error);
    for (int i = 0; i < 512; i++)
        l->tokens[i] = 300 + i * 7;
    for (int i = 0; i < SESSIONS; i++) {
        check(avo_session_open(l->engine, NULL, &l->decode[i], &error), &error);
        check(avo_batch_add(l->batch, l->decode[i], l->tokens, DEPTH), avo_batch_error(l->batch));
        step(l);
    }
    check(avo_session_open(l->engine, NULL, &l->prompt, &error), &error);
}

static void lane_close(lane *l) {
    for (int i = 0; i < SESSIONS; i++)
        avo_session_close(l->decode[i]);
    avo_session_close(l->prompt);
    avo_batch_close(l->batch);
    avo_engine_close(l->engine);
}

static double mixed(lane *l) {
    uint64_t begin = clock_now_ns();
    for (int i = 0; i < STEPS; i++) {
        add_decode(l);
        add_chunk(l);
        step(l);
    }
    return clock_seconds(begin, clock_now_ns()) / STEPS;
}

static double in_turn(lane *l, double *decode) {
    uint64_t begin = clock_now_ns(), of_decode = 0;
    for (int i = 0; i < STEPS; i++) {
        add_chunk(l);
        step(l);
        uint64_t middle = clock_now_ns();
        add_decode(l);
        step(l);
        of_decode += clock_now_ns() - middle;
    }
    *decode = (double)of_decode * 1e-9 / STEPS;
    return clock_seconds(begin, clock_now_ns()) / STEPS;
}

/* ---- Two engines, a core each ---- */

typedef struct side {
    lane lane;
    const avo_model *model;
    int processor;
    uint32_t threads;
    bool prompts;
    atomic_bool *stop;
    pthread_barrier_t *ready;
    double seconds; /* of a step */
} side;

static void *side_main(void *context) {
    side *s = context;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < s->threads; i++)
        CPU_SET((size_t)s->processor + i, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    lane_open(&s->lane, s->model, s->threads);
    pthread_barrier_wait(s->ready);
    uint64_t begin = clock_now_ns();
    int steps = 0;
    while (s->prompts ? !atomic_load(s->stop) : steps < STEPS * 2) {
        if (s->prompts)
            add_chunk(&s->lane);
        else
            add_decode(&s->lane);
        step(&s->lane);
        steps++;
    }
    atomic_store(s->stop, true);
    s->seconds = clock_seconds(begin, clock_now_ns()) / steps;
    lane_close(&s->lane);
    return NULL;
}

static void apart(const avo_model *model, uint32_t chunk, uint32_t threads, double *decode,
                  double *prompt) {
    atomic_bool stop = false;
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, NULL, 2);
    static side sides[2];
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        sides[i] = (side){.lane = {.chunk = chunk},
                          .model = model,
                          .processor = i * (int)(threads / 2),
                          .threads = threads / 2,
                          .prompts = i == 1,
                          .stop = &stop,
                          .ready = &ready};
        if (pthread_create(&thread[i], NULL, side_main, &sides[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&ready);
    *decode = sides[0].seconds;
    *prompt = sides[1].seconds;
}

static int by_size(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double values[ROUNDS]) {
    qsort(values, ROUNDS, sizeof(*values), by_size);
    return values[ROUNDS / 2];
}

static void print_row(uint32_t chunk, const char *way, double step_seconds, double chunk_seconds) {
    printf("| %u | %s | %.1f | %.0f | %.0f |\n", chunk, way, step_seconds * 1e3,
           SESSIONS / step_seconds, chunk / chunk_seconds);
}

static void measure(const avo_model *model, uint32_t chunk, uint32_t threads) {
    static lane l;
    double together[ROUNDS], turns[ROUNDS], alone[ROUNDS], decode[ROUNDS], prompt[ROUNDS];
    l = (lane){.chunk = chunk};
    lane_open(&l, model, threads);
    (void)mixed(&l);
    for (int i = 0; i < ROUNDS; i++) {
        together[i] = mixed(&l);
        turns[i] = in_turn(&l, &alone[i]);
    }
    lane_close(&l);
    double step_seconds = median(together), turn_seconds = median(turns);
    print_row(chunk, "one step", step_seconds, step_seconds);
    print_row(chunk, "in turn", turn_seconds, turn_seconds);
    printf("| %u | decoding alone, all cores | %.1f | %.0f | |\n", chunk, median(alone) * 1e3,
           SESSIONS / median(alone));
    for (int i = 0; threads >= 2 && i < ROUNDS; i++)
        apart(model, chunk, threads, &decode[i], &prompt[i]);
    if (threads >= 2)
        print_row(chunk, "half of the cores each", median(decode), median(prompt));
}

int main(int argc, char **argv) {
    avo_error error = {0};
    avo_model *model = NULL;
    if (argc < 2)
        return 2;
    long given = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    uint32_t threads = given > 0 ? (uint32_t)given : cpu_usable_threads();
    check(avo_model_open(argv[1], NULL, &model, &error), &error);
    printf("%d sequences decode, chunks of a prompt beside them, %u threads\n\n"
           "| chunk | way | ms between tokens | decoded tokens/s | prompt tokens/s |\n"
           "|---:|---|---:|---:|---:|\n",
           SESSIONS, threads);
    const uint32_t chunks[] = {32, 128, 256};
    for (int i = 0; i < 3; i++)
        measure(model, chunks[i], threads);
    avo_model_close(model);
    return 0;
}
