/* The cost of adapters, by the clock: turns without and with them follow each other, and which of
 * both comes first alternates, so that what the machine does meanwhile meets both alike. */
#include "bench/adapters.h"

#include "base/clock.h"
#include "base/random.h"
#include "device/kv_tile.h"
#include "device/runs.h"
#include "engine/engine.h"
#include "memory/kv.h"
#include "model/adapters.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#define STRENGTH 0.03f /* of what is added, over the base's own */

static const bench_targets all_targets[] = {
    {"qv", 1u << ADAPTER_QUERY | 1u << ADAPTER_VALUE},
    {"qkvo", 1u << ADAPTER_QUERY | 1u << ADAPTER_KEY | 1u << ADAPTER_VALUE | 1u << ADAPTER_OUTPUT},
    {"all", (1u << ADAPTER_HEAD) - 1},
};

const bench_targets *bench_targets_named(const char *name) {
    for (size_t i = 0; i < sizeof(all_targets) / sizeof(all_targets[0]); i++)
        if (strcmp(all_targets[i].name, name) == 0)
            return &all_targets[i];
    return NULL;
}

avo_status bench_adapters_random(const avo_model *model, const adapter_random_options *first,
                                 size_t count, avo_progress_function progress,
                                 avo_adapter **adapters, size_t *made, avo_error *error) {
    adapter_base base = model_adapter_base(model);
    for (; *made < count; ++*made) {
        adapter_random_options options = *first;
        options.seed += *made;
        if (progress != NULL && !progress(NULL, "random adapters", *made, count))
            return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
        AVO_TRY(adapter_random(&base, &options, NULL, &adapters[*made], error));
    }
    return AVO_OK;
}

typedef struct bench_turns {
    const bench_adapters_options *options;
    const avo_model *model;
    avo_engine *engine;
    avo_batch *batch;
    avo_adapter **adapters; /* [made] */
    uint32_t adapters_max;
    size_t made;
    avo_session **sessions; /* [2][sessions_max]: without, with */
    uint32_t sessions_max;
    uint32_t vocabulary, threads;
    int32_t *tokens;
    bench_adapters_result *results;
    size_t capacity, *count;
} bench_turns;

/* ---- Steps ---- */

static avo_status step_failed(const bench_turns *b, avo_error *error) {
    const avo_error *why = avo_batch_error(b->batch);
    return status_fail(error, why->status, "%s", why->text);
}

/* One step: `rows` tokens of each of the sessions. */
static avo_status step(bench_turns *b, avo_session **sessions, uint32_t count, uint32_t rows,
                       avo_error *error) {
    avo_batch_clear(b->batch);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = avo_session_length(sessions[i]);
        for (uint32_t j = 0; j < rows; j++)
            b->tokens[j] = (int32_t)(random_at(1, i, from + j).words[0] % b->vocabulary);
        if (avo_batch_add(b->batch, sessions[i], b->tokens, rows) != AVO_OK)
            return step_failed(b, error);
    }
    if (avo_step(b->engine, b->batch) != AVO_OK)
        return step_failed(b, error);
    avo_batch_clear(b->batch);
    return AVO_OK;
}

static avo_status turn(bench_turns *b, const bench_adapters_result *c, avo_session **sessions,
                       double *seconds, avo_error *error) {
    bool prompt = c->kind == BENCH_PREFILL;
    for (uint32_t i = 0; i < c->batch; i++)
        AVO_TRY(avo_session_truncate(sessions[i], prompt ? 0 : b->options->depth, error));
    uint64_t begin = clock_now_ns();
    for (uint32_t i = 0; i < (prompt ? 1 : c->tokens); i++)
        AVO_TRY(step(b, sessions, c->batch, prompt ? c->tokens / c->batch : 1, error));
    *seconds = clock_seconds(begin, clock_now_ns());
    return AVO_OK;
}

/* ---- The floor ---- */

static double products(const adapter_view *adapter, uint32_t layers) {
    double sum = 0.0;
    for (uint32_t layer = 0; layer < layers; layer++)
        for (int matrix = 0; matrix < ADAPTER_HEAD; matrix++) {
            const adapter_delta *delta = adapter_delta_of(adapter, layer, (adapter_matrix)matrix);
            if (delta->up.data != NULL)
                sum += 2.0 * ((double)delta->up.rows * delta->up.k +
                              (double)delta->down.rows * delta->down.k);
        }
    return sum;
}

static double floor_of(const bench_turns *b, const bench_adapters_result *c) {
    const model_view *model = engine_model_view(b->engine);
    bool prompt = c->kind == BENCH_PREFILL;
    limit_work work = {0};
    bench_step_work(model, kv_pool_view(engine_kv(b->engine))->type, false, c->batch,
                    prompt ? 0 : b->options->depth, prompt ? c->tokens / c->batch : 1, c->batch,
                    &work);
    if (c->adapters == 0)
        return 0.0;
    if (!prompt)
        return (double)b->adapters[0]->bytes * c->adapters / work.bytes;
    return products(&b->adapters[0]->view, model->layers) * c->tokens /
           (work.integer_operations + work.floating_operations);
}

/* ---- One case ---- */

static avo_status open_sessions(bench_turns *b, const bench_adapters_result *c, avo_error *error) {
    for (uint32_t i = 0; i < c->batch; i++) {
        avo_session_options options = AVO_SESSION_OPTIONS_INIT;
        for (uint32_t with = 0; with < 2; with++) {
            avo_adapter_use use = {NULL, 1.0f};
            if (with > 0 && c->adapters > 0)
                use.adapter = b->adapters[i % c->adapters];
            options.adapters = &use;
            options.adapter_count = use.adapter != NULL;
            avo_session **session = &b->sessions[with * b->sessions_max + i];
            AVO_TRY(avo_session_open(b->engine, &options, session, error));
            if (c->kind == BENCH_DECODE && b->options->depth > 0)
                AVO_TRY(step(b, session, 1, KV_PAGE_TOKENS, error));
            if (c->kind == BENCH_DECODE && b->options->depth > KV_PAGE_TOKENS)
                AVO_TRY(engine_session_fill(*session, b->options->depth, error));
        }
    }
    return AVO_OK;
}

static avo_status measure(bench_turns *b, bench_adapters_result *c, avo_error *error) {
    double seconds[2][BENCH_REPEATS_MAX], costs[BENCH_REPEATS_MAX], ignored;
    AVO_TRY(open_sessions(b, c, error));
    for (uint32_t with = 0; with < 2; with++)
        AVO_TRY(turn(b, c, b->sessions + with * b->sessions_max, &ignored, error));
    for (uint32_t i = 0; i < b->options->repeats; i++) {
        if (b->options->progress != NULL &&
            !b->options->progress(NULL, "bench", i, b->options->repeats))
            return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t with = (i + j) % 2;
            AVO_TRY(turn(b, c, b->sessions + with * b->sessions_max, &seconds[with][i], error));
        }
        costs[i] = seconds[1][i] / seconds[0][i] - 1.0;
    }
    uint32_t n = b->options->repeats;
    double tokens = c->kind == BENCH_PREFILL ? c->tokens : (double)c->tokens * c->batch;
    c->cost = bench_median(costs, n); /* sorted from here on */
    c->cost_low = costs[n / 4];
    c->cost_high = costs[n - 1 - n / 4];
    c->base_tps = tokens / bench_median(seconds[0], n);
    c->tps = tokens / bench_median(seconds[1], n);
    c->floor = floor_of(b, c);
    c->repeats = n;
    c->threads = b->threads;
    snprintf(c->backend, sizeof(c->backend), "%s", engine_device(b->engine)->name);
    return AVO_OK;
}

static avo_status measure_case(bench_turns *b, const bench_adapters_result *c, avo_error *error) {
    if (*b->count == b->capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %zu measurements", b->capacity);
    bench_adapters_result *result = &b->results[*b->count];
    *result = *c;
    avo_status status = measure(b, result, error);
    for (uint32_t i = 0; i < 2 * b->sessions_max; i++) {
        avo_session_close(b->sessions[i]);
        b->sessions[i] = NULL;
    }
    *b->count += status == AVO_OK;
    return status;
}

/* ---- All cases ---- */

static void release_adapters(bench_turns *b) {
    for (size_t i = 0; i < b->made; i++)
        adapter_release(b->adapters[i]);
    b->made = 0;
}

/* Every number of adapters of one rank on the same matrices. */
static avo_status measure_rank(bench_turns *b, uint32_t rank, const bench_targets *targets,
                               avo_error *error) {
    const bench_adapters_options *o = b->options;
    adapter_random_options first = {.seed = 1,
                                    .rank = rank,
                                    .matrices = targets->matrices,
                                    .type = o->type,
                                    .strength = STRENGTH};
    AVO_TRY(bench_adapters_random(b->model, &first, b->adapters_max, NULL, b->adapters, &b->made,
                                  error));
    for (size_t a = 0; a < o->adapters.count; a++) {
        bench_adapters_result c = {
            .adapters = o->adapters.item[a], .rank = rank, .targets = targets->name};
        for (size_t i = 0; o->generate > 0 && i < o->batch.count; i++) {
            c.kind = BENCH_DECODE;
            c.batch = o->batch.item[i];
            c.tokens = o->generate;
            if (c.batch >= c.adapters)
                AVO_TRY(measure_case(b, &c, error));
        }
        c.kind = BENCH_PREFILL;
        c.batch = c.adapters > 0 ? c.adapters : 1;
        c.tokens = o->prompt / c.batch * c.batch;
        if (c.tokens > 0)
            AVO_TRY(measure_case(b, &c, error));
    }
    return AVO_OK;
}

static avo_status open_engine(bench_turns *b, avo_error *error) {
    const bench_adapters_options *o = b->options;
    avo_engine_options options = o->place;
    options.size = sizeof(options);
    uint32_t longest = o->depth + o->generate > o->prompt ? o->depth + o->generate : o->prompt;
    uint32_t pages = kv_pages_for(longest > KV_PAGE_TOKENS ? longest : KV_PAGE_TOKENS);
    options.threads = o->threads;
    options.device = o->isa;
    options.kv_type = o->kv_type;
    options.sessions_max = 2 * b->sessions_max;
    options.context_max = pages * KV_PAGE_TOKENS;
    options.rows_max = o->prompt > b->sessions_max ? o->prompt : b->sessions_max;
    options.rows_max = options.rows_max > KV_PAGE_TOKENS ? options.rows_max : KV_PAGE_TOKENS;
    avo_plan plan = AVO_PLAN_INIT;
    AVO_TRY(avo_engine_plan(b->model, &options, &plan, error));
    b->threads = plan.threads;
    AVO_TRY(avo_engine_open(b->model, &options, &b->engine, error));
    AVO_TRY(avo_batch_open(b->engine, &b->batch, error));
    b->tokens = allocator_take_array(NULL, options.rows_max, sizeof(*b->tokens));
    b->sessions = allocator_take_array(NULL, 2 * b->sessions_max, sizeof(avo_session *));
    b->adapters = allocator_take_array(NULL, b->adapters_max + 1, sizeof(avo_adapter *));
    if (b->tokens == NULL || b->sessions == NULL || b->adapters == NULL)
        return status_no_memory(error, "sessions", 2 * b->sessions_max * sizeof(avo_session *));
    return AVO_OK;
}

static void close_engine(bench_turns *b) {
    const bench_adapters_options *o = b->options;
    uint32_t rows = o->prompt > b->sessions_max ? o->prompt : b->sessions_max;
    rows = rows > KV_PAGE_TOKENS ? rows : KV_PAGE_TOKENS;
    avo_batch_close(b->batch);
    allocator_give(NULL, b->tokens, rows * sizeof(*b->tokens));
    allocator_give(NULL, b->sessions, 2 * b->sessions_max * sizeof(avo_session *));
    allocator_give(NULL, b->adapters, (b->adapters_max + 1) * sizeof(avo_adapter *));
    avo_engine_close(b->engine);
}

avo_status bench_adapters(const avo_model *model, const bench_adapters_options *options,
                          bench_adapters_result *results, size_t capacity, size_t *count,
                          avo_error *error) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    *count = 0;
    bench_turns b = {.options = options,
                     .model = model,
                     .vocabulary = info.vocabulary,
                     .adapters_max = bench_largest(&options->adapters),
                     .sessions_max = bench_largest(&options->batch),
                     .results = results,
                     .capacity = capacity,
                     .count = count};
    if (b.sessions_max < b.adapters_max)
        b.sessions_max = b.adapters_max;
    if (b.sessions_max == 0)
        b.sessions_max = 1;
    avo_status status = open_engine(&b, error);
    for (size_t t = 0; t < options->targets_count && status == AVO_OK; t++)
        for (size_t r = 0; r < options->rank.count && status == AVO_OK; r++) {
            status = measure_rank(&b, options->rank.item[r], options->targets[t], error);
            release_adapters(&b);
        }
    close_engine(&b);
    return status;
}
