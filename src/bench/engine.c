/* Prefill and decode of an engine, by the clock. */
#include "bench/bench.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "base/random.h"
#include "device/kv_tile.h"
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#define STEP_ROWS      512  /* of a prompt, at most */
#define STEP_ROWS_CARD 2048 /* on a graphics card, which fewer rows do not fill */

/* Everything that one number of threads needs. */
typedef struct runner {
    const bench_engine_options *options;
    bench_machine *machine;
    bench_results *results;
    const char *name;
    avo_engine *engine;
    avo_batch *batch;
    avo_session **sessions; /* [sessions_max] */
    uint32_t sessions_max;
    uint32_t vocabulary;
    uint32_t threads;
    uint64_t cases_done, cases;
    uint32_t repeat;    /* of the case at hand */
    uint32_t step_rows; /* of a prompt, at most */
    int32_t tokens[STEP_ROWS_CARD];
} runner;

/* ---- Steps ---- */

static int32_t token_at(const runner *r, uint64_t session, uint64_t position) {
    return (int32_t)(random_at(1, session, position).words[0] % r->vocabulary);
}

/* Whether the user still wants it. */
static avo_status go_on(const runner *r, avo_error *error) {
    if (r->options->progress == NULL ||
        r->options->progress(NULL, "bench", r->cases_done * r->options->repeats + r->repeat,
                             r->cases * r->options->repeats))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
}

static avo_status step(runner *r, avo_error *error) {
    if (avo_step(r->engine, r->batch) == AVO_OK)
        return AVO_OK;
    const avo_error *why = avo_batch_error(r->batch);
    return status_fail(error, why->status, "%s", why->text);
}

static avo_status add(runner *r, uint32_t session, uint32_t count, avo_error *error) {
    uint32_t from = avo_session_length(r->sessions[session]);
    for (uint32_t i = 0; i < count; i++)
        r->tokens[i] = token_at(r, session, from + i);
    if (avo_batch_add(r->batch, r->sessions[session], r->tokens, count) == AVO_OK)
        return AVO_OK;
    const avo_error *why = avo_batch_error(r->batch);
    return status_fail(error, why->status, "%s", why->text);
}

static avo_status prefill(runner *r, uint32_t session, uint32_t tokens, avo_error *error) {
    for (uint32_t done = 0; done < tokens;) {
        uint32_t count = tokens - done < r->step_rows ? tokens - done : r->step_rows;
        if (done > 0) /* a long prompt takes its time */
            AVO_TRY(go_on(r, error));
        avo_batch_clear(r->batch);
        AVO_TRY(add(r, session, count, error));
        AVO_TRY(step(r, error));
        done += count;
    }
    avo_batch_clear(r->batch);
    return AVO_OK;
}

static avo_status decode(runner *r, uint32_t batch, uint32_t steps, avo_error *error) {
    for (uint32_t i = 0; i < steps; i++) {
        avo_batch_clear(r->batch);
        for (uint32_t session = 0; session < batch; session++)
            AVO_TRY(add(r, session, 1, error));
        AVO_TRY(step(r, error));
    }
    avo_batch_clear(r->batch);
    return AVO_OK;
}

/* ---- Sessions of a depth ---- */

static avo_status fill_depth(runner *r, uint32_t session, uint32_t depth, avo_error *error) {
    if (depth <= KV_PAGE_TOKENS || r->options->compute_depth)
        return prefill(r, session, depth, error);
    AVO_TRY(prefill(r, session, KV_PAGE_TOKENS, error));
    return engine_session_fill(r->sessions[session], depth, error);
}

static void close_sessions(runner *r) {
    for (uint32_t i = 0; i < r->sessions_max; i++) {
        avo_session_close(r->sessions[i]);
        r->sessions[i] = NULL;
    }
}

static avo_status open_sessions(runner *r, uint32_t count, uint32_t depth, avo_error *error) {
    for (uint32_t i = 0; i < count; i++) {
        AVO_TRY(avo_session_open(r->engine, NULL, &r->sessions[i], error));
        AVO_TRY(fill_depth(r, i, depth, error));
    }
    return AVO_OK;
}

/* ---- One case ---- */

typedef struct bench_case {
    bench_kind kind;
    uint32_t tokens, batch, depth;
} bench_case;

static void count_work(const runner *r, const bench_case *c, limit_work *work) {
    const model_view *model = engine_model_view(r->engine);
    kv_type kv = kv_pool_view(engine_kv(r->engine))->type;
    bool floats = strcmp(engine_device(r->engine)->name, "ref") == 0;
    if (c->kind == BENCH_DECODE) {
        for (uint32_t i = 0; i < c->tokens; i++)
            bench_step_work(model, kv, floats, c->batch, c->depth + i, 1, c->batch, work);
        return;
    }
    for (uint32_t done = 0; done < c->tokens;) {
        uint32_t count = c->tokens - done < r->step_rows ? c->tokens - done : r->step_rows;
        bench_step_work(model, kv, floats, 1, c->depth + done, count, 1, work);
        done += count;
    }
}

static avo_status measure_once(runner *r, const bench_case *c, double *seconds, avo_error *error) {
    for (uint32_t i = 0; i < c->batch; i++)
        AVO_TRY(avo_session_truncate(r->sessions[i], c->depth, error));
    uint64_t begin = clock_now_ns();
    if (c->kind == BENCH_PREFILL)
        AVO_TRY(prefill(r, 0, c->tokens, error));
    else
        AVO_TRY(decode(r, c->batch, c->tokens, error));
    *seconds = clock_seconds(begin, clock_now_ns());
    return AVO_OK;
}

/* A device that is no instruction set of the host measures itself how fast it reads, where it can;
 * its arithmetic has no limit that is known. */
static avo_status measure_limits(runner *r, machine_limits *limits, avo_error *error) {
    const device_info *device = engine_device(r->engine);
    limit_table table;
    avo_error ignored;
    if (limits_of(device->name, &table))
        return bench_machine_measure(r->machine, device->name, r->threads, limits, error);
    *limits = (machine_limits){.table = {.isa = device->name}};
    avo_status status = avo_engine_measure(r->engine, &limits->read_bytes, &ignored);
    if (status == AVO_ERROR_UNSUPPORTED)
        limits->read_bytes = 0.0;
    else if (status != AVO_OK)
        return status_fail(error, status, "%s", ignored.text);
    return AVO_OK;
}

static avo_status measure_case(runner *r, const bench_case *c, avo_error *error) {
    const char *backend = engine_device(r->engine)->name;
    bench_sample samples[BENCH_REPEATS_MAX];
    r->repeat = 0;
    AVO_TRY(open_sessions(r, c->batch, c->depth, error));
    AVO_TRY(measure_once(r, c, &samples[0].seconds, error));
    for (uint32_t i = 0; i < r->options->repeats; i++) {
        r->repeat = i;
        AVO_TRY(go_on(r, error));
        AVO_TRY(measure_limits(r, &samples[i].limits, error));
        AVO_TRY(measure_once(r, c, &samples[i].seconds, error));
    }
    limit_work work = {0};
    count_work(r, c, &work);
    bench_result *result;
    AVO_TRY(bench_results_next(r->results, &result, error));
    *result = (bench_result){.kind = c->kind,
                             .tokens = c->tokens,
                             .batch = c->batch,
                             .depth = c->depth,
                             .threads = r->threads,
                             .phases = engine_step_phases(r->engine)};
    snprintf(result->model, sizeof(result->model), "%s", r->name);
    snprintf(result->backend, sizeof(result->backend), "%s", backend);
    snprintf(result->kv, sizeof(result->kv), "%s",
             kv_type_name(kv_pool_view(engine_kv(r->engine))->type));
    bench_conclude(samples, r->options->repeats, (double)c->tokens * c->batch, &work, result);
    r->cases_done++;
    return AVO_OK;
}

/* ---- All cases of a number of threads ---- */

static avo_status measure_cases(runner *r, avo_error *error) {
    const bench_engine_options *o = r->options;
    avo_status status = AVO_OK;
    for (size_t p = 0; p < o->prompt.count && status == AVO_OK; p++)
        for (size_t d = 0; d < o->depth.count && status == AVO_OK; d++) {
            bench_case c = {BENCH_PREFILL, o->prompt.item[p], 1, o->depth.item[d]};
            if (c.tokens > 0)
                status = measure_case(r, &c, error);
            close_sessions(r);
        }
    for (size_t n = 0; n < o->generate.count && status == AVO_OK; n++)
        for (size_t d = 0; d < o->depth.count && status == AVO_OK; d++)
            for (size_t b = 0; b < o->batch.count && status == AVO_OK; b++) {
                bench_case c = {BENCH_DECODE, o->generate.item[n], o->batch.item[b],
                                o->depth.item[d]};
                if (c.tokens > 0)
                    status = measure_case(r, &c, error);
                close_sessions(r);
            }
    return status;
}

/* The pool holds the largest case and no more: prompts are computed one at a time. */
static void size_engine(const bench_engine_options *o, uint32_t threads, uint32_t rows,
                        avo_engine_options *engine) {
    uint64_t depth = bench_largest(&o->depth);
    uint64_t prompt = depth + bench_largest(&o->prompt);
    uint64_t decode = depth + bench_largest(&o->generate);
    uint64_t batch = bench_largest(&o->generate) > 0 ? bench_largest(&o->batch) : 1;
    uint64_t longest = prompt > decode ? prompt : decode;
    uint64_t pages = batch * ((decode + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
    uint64_t prompt_pages = (longest + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    engine->threads = threads;
    engine->sessions_max = (uint32_t)batch;
    engine->context_max = (uint32_t)(prompt_pages * KV_PAGE_TOKENS);
    engine->rows_max = rows;
    engine->kv_tokens = (pages > prompt_pages ? pages : prompt_pages) * KV_PAGE_TOKENS;
}

static avo_status measure_threads(const avo_model *model, uint32_t threads, const char *kv_type,
                                  const char *isa, runner *r, avo_error *error) {
    avo_engine_options options = r->options->place;
    options.size = sizeof(options);
    options.kv_type = kv_type;
    options.device = isa;
    r->step_rows = isa != NULL && strncmp(isa, "cuda", 4) == 0 ? STEP_ROWS_CARD : STEP_ROWS;
    size_engine(r->options, threads, r->step_rows, &options);
    avo_plan plan = AVO_PLAN_INIT;
    AVO_TRY(avo_engine_plan(model, &options, &plan, error));
    r->threads = plan.threads;
    r->step_rows = options.rows_max = plan.host_memory ? STEP_ROWS : STEP_ROWS_CARD;
    AVO_TRY(avo_engine_open(model, &options, &r->engine, error));
    avo_status status = avo_batch_open(r->engine, &r->batch, error);
    r->sessions_max = options.sessions_max;
    r->sessions = allocator_take_array(NULL, r->sessions_max, sizeof(*r->sessions));
    if (status == AVO_OK && r->sessions == NULL)
        status = status_no_memory(error, "sessions", r->sessions_max * sizeof(*r->sessions));
    AVO_THEN(status, measure_cases(r, error));
    avo_batch_close(r->batch);
    r->batch = NULL;
    allocator_give(NULL, r->sessions, r->sessions_max * sizeof(*r->sessions));
    avo_engine_close(r->engine);
    return status;
}

uint64_t bench_engine_cases(const bench_engine_options *options) {
    uint64_t prompts = bench_positives(&options->prompt);
    uint64_t decodes = bench_positives(&options->generate) * options->batch.count;
    return options->isas * options->threads.count * options->kv_types * options->depth.count *
           (prompts + decodes);
}

avo_status bench_engine(const avo_model *model, const char *name,
                        const bench_engine_options *options, bench_machine *machine,
                        bench_results *results, avo_error *error) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    runner r = {.options = options,
                .machine = machine,
                .results = results,
                .name = name,
                .vocabulary = info.vocabulary,
                .cases = bench_engine_cases(options)};
    for (size_t i = 0; i < options->isas; i++)
        for (size_t t = 0; t < options->threads.count; t++)
            for (size_t kv = 0; kv < options->kv_types; kv++)
                AVO_TRY(measure_threads(model, options->threads.item[t], options->kv_type[kv],
                                        options->isa[i], &r, error));
    return AVO_OK;
}
