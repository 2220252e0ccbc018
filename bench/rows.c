/* What a step of few rows costs against a step of one, T(rows), and where its time goes: rows of
 * one sequence, as a step that verifies drafts has them, and one row of as many sequences.
 *
 *     bench_rows [--json] MODEL [DEVICE [DEPTH [KV_TYPE [THREADS [ROUNDS [COUNTS]]]]]]
 *     bench_rows m.avo avx512 256 f16 2 40 1,2,4,5,8
 *
 * Every row has logits. All row counts are measured in turn, ROUNDS times (default 20), and the
 * shortest time of each counts, since others who use the machine only ever add to it. With one
 * thread the time is the processor's, not the clock's. The parts (ms, of worker 0, with waiting
 * inside a phase) are of rows of one sequence; "rest" is what lies between them.
 */
#include "base/clock.h"
#include "base/random.h"
#include "device/kv_tile.h"
#include "engine/engine.h"
#include "telemetry/telemetry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTS_DEFAULT "1,2,3,4,5,6,7,8,10,12,16"
#define COUNTS_MAX     16
#define ROWS_MAX       16

static const char *const part_names[SPAN_PHASES] = {"embed",   "qkv",  "attention", "output",
                                                    "gate_up", "down", "head"};

typedef struct setting {
    const char *model, *device, *kv_type;
    uint32_t depth, threads, rounds;
    uint32_t rows[COUNTS_MAX]; /* numbers of rows to measure; T is relative to the first */
    size_t counts;
    bool json;
} setting;

typedef struct bench {
    setting set;
    avo_telemetry *telemetry;
    avo_engine *engine;
    avo_batch *batch;
    avo_session *sessions[ROWS_MAX];
    uint32_t vocabulary;
} bench;

/* Shortest times, ns. */
typedef struct figures {
    uint64_t one, many; /* rows of one sequence, one row of many */
    uint64_t part[SPAN_PHASES];
} figures;

static void keep_least(uint64_t *least, uint64_t ns) {
    if (*least == 0 || ns < *least)
        *least = ns;
}

static uint64_t now(const bench *b) {
    return b->set.threads == 1 ? clock_thread_ns() : clock_now_ns();
}

/* One step: `rows` tokens of each of the sessions, all with logits. */
static avo_status step(bench *b, uint32_t sessions, uint32_t rows, uint64_t *ns, avo_error *error) {
    int32_t tokens[KV_PAGE_TOKENS];
    avo_status status = AVO_OK;
    avo_batch_clear(b->batch);
    for (uint32_t i = 0; i < sessions && status == AVO_OK; i++) {
        for (uint32_t j = 0; j < rows; j++)
            tokens[j] = (int32_t)(random_at(1, i, j).words[0] % b->vocabulary);
        status = avo_batch_add_scored(b->batch, b->sessions[i], tokens, rows,
                                      rows < ROWS_MAX ? rows : ROWS_MAX);
    }
    uint64_t begin = now(b);
    AVO_THEN(status, avo_step(b->engine, b->batch));
    *ns = now(b) - begin;
    if (status != AVO_OK)
        *error = *avo_batch_error(b->batch);
    return status;
}

static avo_status measure_count(bench *b, uint32_t rows, figures *found, avo_error *error) {
    uint64_t before[SPAN_PHASES], after[SPAN_PHASES], ns;
    for (uint32_t i = 0; i < ROWS_MAX; i++)
        AVO_TRY(avo_session_truncate(b->sessions[i], b->set.depth, error));
    AVO_TRY(step(b, rows, 1, &ns, error));
    keep_least(&found->many, ns);
    AVO_TRY(avo_session_truncate(b->sessions[0], b->set.depth, error));
    telemetry_phase_times(b->telemetry, before);
    AVO_TRY(step(b, 1, rows, &ns, error));
    telemetry_phase_times(b->telemetry, after);
    keep_least(&found->one, ns);
    for (int part = 0; part < SPAN_PHASES; part++)
        keep_least(&found->part[part], after[part] - before[part]);
    return AVO_OK;
}

/* Each number of rows twice, since the step before may have left the caches to others. */
static avo_status measure_round(bench *b, figures *found, avo_error *error) {
    for (size_t i = 0; i < b->set.counts; i++)
        for (int again = 0; again < 2; again++)
            AVO_TRY(measure_count(b, b->set.rows[i], &found[i], error));
    return AVO_OK;
}

/* Sessions of the depth: a page that was computed, copied as often as needed. */
static avo_status fill_sessions(bench *b, avo_error *error) {
    uint32_t computed = b->set.depth < KV_PAGE_TOKENS ? b->set.depth : KV_PAGE_TOKENS;
    uint64_t ns;
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        avo_session *first = b->sessions[0];
        b->sessions[0] = b->sessions[i]; /* step takes them from the front */
        avo_status status = computed > 0 ? step(b, 1, computed, &ns, error) : AVO_OK;
        AVO_THEN(status, b->set.depth > computed
                             ? engine_session_fill(b->sessions[0], b->set.depth, error)
                             : AVO_OK);
        b->sessions[0] = first;
        AVO_TRY(status);
    }
    avo_batch_clear(b->batch);
    return AVO_OK;
}

static avo_status open_all(bench *b, const avo_model *model, avo_error *error) {
    uint32_t depth = b->set.depth > KV_PAGE_TOKENS ? b->set.depth : KV_PAGE_TOKENS;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_telemetry_options telemetry = AVO_TELEMETRY_OPTIONS_INIT;
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    b->vocabulary = info.vocabulary;
    AVO_TRY(avo_telemetry_open(&telemetry, NULL, &b->telemetry, error));
    options.telemetry = b->telemetry;
    options.threads = b->set.threads;
    options.device = b->set.device;
    options.kv_type = b->set.kv_type;
    options.sessions_max = options.logits_max = ROWS_MAX;
    options.rows_max = KV_PAGE_TOKENS;
    options.context_max = depth + 2 * KV_PAGE_TOKENS;
    AVO_TRY(avo_engine_open(model, &options, &b->engine, error));
    AVO_TRY(avo_batch_open(b->engine, &b->batch, error));
    for (uint32_t i = 0; i < ROWS_MAX; i++)
        AVO_TRY(avo_session_open(b->engine, NULL, &b->sessions[i], error));
    return fill_sessions(b, error);
}

static void close_all(bench *b) {
    for (uint32_t i = 0; i < ROWS_MAX; i++)
        avo_session_close(b->sessions[i]);
    avo_batch_close(b->batch);
    avo_engine_close(b->engine);
    avo_telemetry_close(b->telemetry);
}

/* ---- The table ---- */

static void print_json(const bench *b, const figures *found) {
    for (size_t i = 0; i < b->set.counts; i++) {
        printf("{\"device\":\"%s\",\"rows\":%u,\"ms\":%.4f,\"t\":%.4f,\"sequences_ms\":%.4f,"
               "\"sequences_t\":%.4f",
               avo_engine_device(b->engine), b->set.rows[i], (double)found[i].one * 1e-6,
               (double)found[i].one / (double)found[0].one, (double)found[i].many * 1e-6,
               (double)found[i].many / (double)found[0].many);
        for (int part = 0; part < SPAN_PHASES; part++)
            printf(",\"%s_ms\":%.4f", part_names[part], (double)found[i].part[part] * 1e-6);
        printf("}\n");
    }
}

static void print_table(const bench *b, const figures *found) {
    printf("%s, %u threads (0: all), depth %u\nrows      ms  T(rows)  sequences: ms  T(rows)",
           avo_engine_device(b->engine), b->set.threads, b->set.depth);
    for (int part = 0; part < SPAN_PHASES; part++)
        printf("  %s", part_names[part]);
    printf("  rest\n");
    for (size_t i = 0; i < b->set.counts; i++) {
        uint64_t rest = found[i].one;
        printf("%4u  %6.2f  %7.2f  %13.2f  %7.2f", b->set.rows[i], (double)found[i].one * 1e-6,
               (double)found[i].one / (double)found[0].one, (double)found[i].many * 1e-6,
               (double)found[i].many / (double)found[0].many);
        for (int part = 0; part < SPAN_PHASES; part++) {
            printf("  %*.2f", (int)strlen(part_names[part]), (double)found[i].part[part] * 1e-6);
            rest = rest > found[i].part[part] ? rest - found[i].part[part] : 0;
        }
        printf("  %4.2f\n", (double)rest * 1e-6);
    }
}

static avo_status run(bench *b, const avo_model *model, avo_error *error) {
    figures found[COUNTS_MAX], ignored[COUNTS_MAX];
    memset(found, 0, sizeof(found));
    memset(ignored, 0, sizeof(ignored));
    AVO_TRY(open_all(b, model, error));
    AVO_TRY(measure_round(b, ignored, error));
    for (uint32_t round = 0; round < b->set.rounds; round++)
        AVO_TRY(measure_round(b, found, error));
    if (b->set.json)
        print_json(b, found);
    else
        print_table(b, found);
    return AVO_OK;
}

static uint32_t number_at(int count, char **arguments, int at, uint32_t otherwise) {
    return at < count ? (uint32_t)strtoul(arguments[at], NULL, 10) : otherwise;
}

/* "1,4,8"; false where it is no list of 1 … ROWS_MAX. */
static bool read_counts(const char *list, setting *set) {
    for (;;) {
        char *end;
        unsigned long rows = strtoul(list, &end, 10);
        if (end == list || rows < 1 || rows > ROWS_MAX || set->counts == COUNTS_MAX)
            return false;
        set->rows[set->counts++] = (uint32_t)rows;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        list = end + 1;
    }
}

int main(int count, char **arguments) {
    bool json = count > 1 && strcmp(arguments[1], "--json") == 0;
    int at = json ? 2 : 1;
    if (count <= at || count > at + 7) {
        fprintf(stderr, "usage: bench_rows [--json] MODEL [DEVICE [DEPTH [KV_TYPE [THREADS "
                        "[ROUNDS [COUNTS]]]]]]\n");
        return 2;
    }
    bench b = {.set = {.model = arguments[at],
                       .device = at + 1 < count ? arguments[at + 1] : NULL,
                       .depth = number_at(count, arguments, at + 2, 256),
                       .kv_type = at + 3 < count ? arguments[at + 3] : NULL,
                       .threads = number_at(count, arguments, at + 4, 0),
                       .rounds = number_at(count, arguments, at + 5, 20),
                       .json = json}};
    if (!read_counts(at + 6 < count ? arguments[at + 6] : COUNTS_DEFAULT, &b.set)) {
        fprintf(stderr, "bench_rows: COUNTS is \"%s\", must be a list like 1,4,8 of 1 to %d\n",
                arguments[at + 6], ROWS_MAX);
        return 2;
    }
    avo_error error = {0};
    avo_model *model = NULL;
    avo_status status = avo_model_open(b.set.model, NULL, &model, &error);
    AVO_THEN(status, run(&b, model, &error));
    if (status != AVO_OK)
        fprintf(stderr, "bench_rows: %s\n", error.text);
    close_all(&b);
    avo_model_close(model);
    return status == AVO_OK ? 0 : 1;
}
