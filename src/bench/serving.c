/* The request-level benchmark: plans requests from a seed, submits them as they come due, notes
 * when each token arrives, and sums up. */
#include "bench/serving.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAM_ADAPTER = 20, STREAM_TENANT, STREAM_LENGTH, STREAM_TOKENS, STREAM_ARRIVAL };

typedef struct serving serving;

typedef struct serving_request {
    serving *run;
    int32_t *tokens;
    size_t token_count;
    uint32_t max_new_tokens;
    avo_sampling sampling;
    avo_adapter_use use;
    size_t adapter;
    uint32_t tenant;
    char tenant_name[16], salt[24];
    double arrival; /* seconds after the first */
    /* Seen: */
    uint64_t submitted_ns, *token_ns; /* [max_new_tokens] */
    uint32_t token_count_seen;
    hash_stream *sum; /* of every event */
    uint64_t answer;
    avo_result result;
    bool ended, failed;
} serving_request;

struct serving {
    arena arena;
    const avo_model *model;
    const serving_options *options;
    avo_model_info info;
    serving_request *request;
    uint64_t *token_ns;
    int32_t *tokens;
    pthread_mutex_t lock;
    pthread_cond_t ended_cond;
    uint32_t in_flight, ended;
    bool cancelled;
    avo_error failure; /* of the first request that failed */
};

/* ---- What is asked ---- */

static double uniform(const serving *run, uint64_t stream, uint64_t at) {
    return random_uniform_at(run->options->seed, stream, at);
}

/* One of `count`, the n-th with weight 1 / (n + 1)^exponent. */
static size_t zipf_pick(double u, size_t count, double exponent) {
    double total = 0.0, sum = 0.0;
    for (size_t n = 0; n < count; n++)
        total += pow((double)(n + 1), -exponent);
    for (size_t n = 0; n < count; n++) {
        sum += pow((double)(n + 1), -exponent);
        if (u * total < sum)
            return n;
    }
    return count - 1;
}

static uint32_t around(double u, uint32_t mean) {
    uint32_t low = mean - mean / 2;
    uint32_t length = low + (uint32_t)(u * (double)(mean + 1));
    return length > 0 ? length : 1;
}

static void plan_request(serving *run, size_t index) {
    const serving_options *options = run->options;
    serving_request *r = &run->request[index];
    r->run = run;
    r->tenant = (uint32_t)(uniform(run, STREAM_TENANT, index) * options->tenants);
    snprintf(r->tenant_name, sizeof(r->tenant_name), "tenant-%u", r->tenant);
    if (options->adapter_count > 0) {
        r->adapter =
            zipf_pick(uniform(run, STREAM_ADAPTER, index), options->adapter_count, options->zipf);
        r->use = (avo_adapter_use){options->adapters[r->adapter], 1.0f};
    }
    r->token_count =
        options->shared + around(uniform(run, STREAM_LENGTH, 2 * index), options->prompt);
    r->max_new_tokens = around(uniform(run, STREAM_LENGTH, 2 * index + 1), options->generate);
    r->sampling = (avo_sampling)AVO_SAMPLING_INIT;
    r->sampling.seed = index;
    if (index % 2 == 1) {
        r->sampling.temperature = 0.8f;
        r->sampling.top_k = 40;
    }
}

/* Ordinary tokens at random; those of one adapter begin alike, as with a system message. */
static void plan_tokens(serving *run, size_t index) {
    serving_request *r = &run->request[index];
    uint32_t first = run->info.vocabulary > 1000 ? 300 : 3;
    uint32_t span = run->info.vocabulary - first;
    for (size_t i = 0; i < r->token_count; i++) {
        uint64_t at = i < run->options->shared ? (r->adapter + 1) * 1000003 + i
                                               : ((uint64_t)index + 1) << 32 | i;
        r->tokens[i] =
            (int32_t)(first + random_at(run->options->seed, STREAM_TOKENS, at).words[0] % span);
    }
}

static avo_status plan(serving *run, avo_error *error) {
    const serving_options *options = run->options;
    size_t tokens = 0, answers = 0;
    double arrival = 0.0;
    run->request = arena_take_array(&run->arena, options->requests, sizeof(*run->request));
    /* One more than needed: from 1 KiB on, memory is aligned as sums want it. */
    hash_stream *sums = arena_take_array(&run->arena, options->requests + 1, sizeof(*sums));
    if (run->request == NULL || sums == NULL)
        return status_no_memory(error, "requests", options->requests * sizeof(*run->request));
    for (size_t i = 0; i < options->requests; i++) {
        plan_request(run, i);
        tokens += run->request[i].token_count;
        answers += run->request[i].max_new_tokens;
        if (options->rate > 0.0 && i > 0)
            arrival -= log(1.0 - uniform(run, STREAM_ARRIVAL, i)) / options->rate;
        run->request[i].arrival = arrival;
    }
    run->tokens = arena_take_array(&run->arena, tokens, sizeof(int32_t));
    run->token_ns = arena_take_array(&run->arena, answers, sizeof(uint64_t));
    if (run->tokens == NULL || run->token_ns == NULL)
        return status_no_memory(error, "requests", tokens * sizeof(int32_t));
    tokens = answers = 0;
    for (size_t i = 0; i < options->requests; i++) {
        serving_request *r = &run->request[i];
        r->tokens = run->tokens + tokens;
        r->token_ns = run->token_ns + answers;
        tokens += r->token_count;
        answers += r->max_new_tokens;
        plan_tokens(run, i);
        r->sum = &sums[i];
        hash_stream_begin(r->sum);
    }
    return AVO_OK;
}

/* ---- What is answered ---- */

static void sum_token(serving_request *r, const avo_token_event *event) {
    hash_stream_add(r->sum, &event->token, sizeof(event->token));
    hash_stream_add(r->sum, &event->index, sizeof(event->index));
    hash_stream_add(r->sum, event->text, event->text_bytes);
    if (event->token >= 0)
        hash_stream_add(r->sum, &event->logprob, sizeof(event->logprob));
}

static bool on_event(void *context, const avo_event *event) {
    serving_request *r = context;
    serving *run = r->run;
    if (event->kind == AVO_EVENT_TOKEN) {
        sum_token(r, event->token);
        if (event->token->token >= 0 && r->token_count_seen < r->max_new_tokens)
            r->token_ns[r->token_count_seen++] = clock_now_ns();
        return true;
    }
    r->answer = hash_stream_sum(r->sum);
    pthread_mutex_lock(&run->lock);
    r->ended = true;
    r->failed = event->kind == AVO_EVENT_FAILED;
    if (r->failed && run->failure.status == AVO_OK)
        run->failure = *event->error;
    if (!r->failed)
        r->result = *event->result;
    run->in_flight--;
    run->ended++;
    pthread_cond_signal(&run->ended_cond);
    pthread_mutex_unlock(&run->lock);
    return true;
}

static bool go_on(serving *run, const char *what, uint64_t done) {
    const serving_options *options = run->options;
    if (options->progress != NULL && !options->progress(NULL, what, done, options->requests))
        run->cancelled = true;
    return !run->cancelled;
}

static void sleep_until(uint64_t ns) {
    uint64_t now = clock_now_ns();
    if (ns <= now)
        return;
    struct timespec time = {(time_t)((ns - now) / 1000000000), (long)((ns - now) % 1000000000)};
    nanosleep(&time, NULL);
}

static avo_status submit(serving *run, avo_scheduler *scheduler, serving_request *r,
                         avo_error *error) {
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = r->tokens;
    request.token_count = r->token_count;
    request.max_new_tokens = r->max_new_tokens;
    request.sampling = &r->sampling;
    request.ignore_end = true;
    request.tenant = r->tenant_name;
    request.adapters = r->use.adapter != NULL ? &r->use : NULL;
    request.adapter_count = r->use.adapter != NULL;
    request.on_event = on_event;
    request.on_event_context = r;
    pthread_mutex_lock(&run->lock);
    run->in_flight++;
    pthread_mutex_unlock(&run->lock);
    r->submitted_ns = clock_now_ns();
    avo_status status;
    double retry = 0.0;
    while ((status = avo_scheduler_submit(scheduler, &request, NULL, &retry, error)) ==
           AVO_ERROR_FULL)
        sleep_until(clock_now_ns() + (uint64_t)(retry * 1e9));
    return status;
}

/* Until fewer than `most` are in flight. */
static void wait_for(serving *run, uint32_t most) {
    pthread_mutex_lock(&run->lock);
    while (run->in_flight > most) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&run->ended_cond, &run->lock, &until);
        uint32_t ended = run->ended;
        pthread_mutex_unlock(&run->lock);
        bool more = go_on(run, "requests", ended);
        pthread_mutex_lock(&run->lock);
        if (!more)
            break;
    }
    pthread_mutex_unlock(&run->lock);
}

static avo_status send_all(serving *run, avo_scheduler *scheduler, avo_error *error) {
    const serving_options *options = run->options;
    uint64_t begin = clock_now_ns();
    for (uint32_t i = 0; i < options->requests && !run->cancelled; i++) {
        serving_request *r = &run->request[i];
        if (options->rate > 0.0)
            sleep_until(begin + (uint64_t)(r->arrival * 1e9));
        else
            wait_for(run, options->concurrency - 1);
        if (run->cancelled)
            break;
        AVO_TRY(submit(run, scheduler, r, error));
    }
    wait_for(run, 0);
    if (run->cancelled)
        return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
    return AVO_OK;
}

static avo_status serve(serving *run, serving_result *result, avo_error *error) {
    const serving_options *options = run->options;
    avo_engine *engine = NULL;
    avo_scheduler *scheduler = NULL;
    AVO_TRY(avo_engine_open(run->model, &options->engine, &engine, error));
    avo_status status = avo_scheduler_open(engine, &options->scheduler, &scheduler, error);
    if (status == AVO_OK) {
        uint64_t begin = clock_now_ns();
        status = send_all(run, scheduler, error);
        result->seconds = clock_seconds(begin, clock_now_ns());
        result->info = (avo_scheduler_info)AVO_SCHEDULER_INFO_INIT;
        avo_scheduler_describe(scheduler, &result->info);
    }
    avo_scheduler_close(scheduler);
    avo_engine_close(engine);
    return status;
}

/* ---- One by one ---- */

static bool on_event_alone(void *context, const avo_event *event) {
    if (event->kind == AVO_EVENT_TOKEN)
        sum_token(context, event->token);
    return true;
}

static avo_status generate_alone(avo_engine *engine, serving_request *r, avo_error *error) {
    avo_session_options session_options = AVO_SESSION_OPTIONS_INIT;
    session_options.adapters = &r->use;
    session_options.adapter_count = r->use.adapter != NULL;
    avo_session *session = NULL;
    AVO_TRY(avo_session_open(engine, &session_options, &session, error));
    hash_stream_begin(r->sum);
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = r->tokens;
    request.token_count = r->token_count;
    request.max_new_tokens = r->max_new_tokens;
    request.sampling = &r->sampling;
    request.ignore_end = true;
    request.on_event = on_event_alone;
    request.on_event_context = r;
    avo_status status = avo_generate(engine, session, &request, NULL, error);
    avo_session_close(session);
    return status;
}

static avo_status check_all(serving *run, serving_result *result, avo_error *error) {
    avo_engine_options options = run->options->engine;
    options.sessions_max = 1;
    options.kv_tokens = 0;
    avo_engine *engine = NULL;
    AVO_TRY(avo_engine_open(run->model, &options, &engine, error));
    uint64_t begin = clock_now_ns();
    avo_status status = AVO_OK;
    for (uint32_t i = 0; i < run->options->requests && status == AVO_OK; i++) {
        serving_request *r = &run->request[i];
        if (!go_on(run, "one by one", i))
            status = status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
        if (status != AVO_OK || r->failed)
            continue;
        status = generate_alone(engine, r, error);
        result->different += status == AVO_OK && hash_stream_sum(r->sum) != r->answer;
    }
    result->checked = status == AVO_OK;
    result->check_seconds = clock_seconds(begin, clock_now_ns());
    avo_engine_close(engine);
    return status;
}

/* ---- Figures ---- */

static int by_size(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

serving_spread serving_spread_of(double *values, size_t count) {
    serving_spread spread = {.count = count};
    if (count == 0)
        return spread;
    qsort(values, count, sizeof(*values), by_size);
    double sum = 0.0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    spread.mean = sum / (double)count;
    spread.p50 = values[count / 2];
    spread.p90 = values[count * 90 / 100];
    spread.p95 = values[count * 95 / 100];
    spread.p99 = values[count * 99 / 100];
    spread.max = values[count - 1];
    return spread;
}

static double jain(const double *values, size_t count) {
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
        squares += values[i] * values[i];
    }
    return count == 0 || squares == 0.0 ? 1.0 : sum * sum / ((double)count * squares);
}

/* The time a token took, on average, of each group with `least` requests; then Jain's index. */
static avo_status group_fairness(serving *run, bool by_tenant, size_t groups, size_t least,
                                 double *index, size_t *used, avo_error *error) {
    double *sum = arena_take_array(&run->arena, groups, sizeof(double));
    size_t *count = arena_take_array(&run->arena, groups, sizeof(size_t));
    if (sum == NULL || count == NULL)
        return status_no_memory(error, "figures", groups * sizeof(double));
    for (uint32_t i = 0; i < run->options->requests; i++) {
        const serving_request *r = &run->request[i];
        if (r->failed || r->token_count_seen == 0)
            continue;
        size_t group = by_tenant ? r->tenant : r->adapter;
        sum[group] += clock_seconds(r->submitted_ns, r->token_ns[r->token_count_seen - 1]) /
                      (double)r->token_count_seen;
        count[group]++;
    }
    size_t kept = 0;
    *used = 0;
    for (size_t i = 0; i < groups; i++) {
        *used += count[i] > 0;
        if (count[i] >= least)
            sum[kept++] = sum[i] / (double)count[i];
    }
    *index = jain(sum, kept);
    return AVO_OK;
}

static avo_status sum_up(serving *run, serving_result *result, avo_error *error) {
    const serving_options *options = run->options;
    size_t answers = 0;
    for (uint32_t i = 0; i < options->requests; i++)
        answers += run->request[i].token_count_seen;
    arena *arena = &result->arena;
    result->first_seconds = arena_take_array(arena, options->requests, sizeof(double));
    result->whole_seconds = arena_take_array(arena, options->requests, sizeof(double));
    result->between_seconds = arena_take_array(arena, answers + 1, sizeof(double));
    double *queue = arena_take_array(arena, options->requests, sizeof(double));
    if (result->first_seconds == NULL || result->whole_seconds == NULL ||
        result->between_seconds == NULL || queue == NULL)
        return status_no_memory(error, "figures", answers * sizeof(double));
    for (uint32_t i = 0; i < options->requests; i++) {
        const serving_request *r = &run->request[i];
        result->failed += r->failed;
        result->finished += !r->failed;
        result->found_tokens += r->failed ? 0 : r->result.reused_tokens;
        result->prompt_tokens += r->failed ? 0 : r->result.prompt_tokens;
        if (r->failed || r->token_count_seen == 0)
            continue;
        const uint64_t *at = r->token_ns;
        uint32_t last = r->token_count_seen - 1;
        queue[result->first_count] = r->result.queue_seconds;
        result->first_seconds[result->first_count++] = clock_seconds(r->submitted_ns, at[0]);
        result->whole_seconds[result->whole_count++] = clock_seconds(r->submitted_ns, at[last]);
        for (uint32_t n = 0; n < last; n++)
            result->between_seconds[result->between_count++] = clock_seconds(at[n], at[n + 1]);
    }
    result->first = serving_spread_of(result->first_seconds, result->first_count);
    result->whole = serving_spread_of(result->whole_seconds, result->whole_count);
    result->between = serving_spread_of(result->between_seconds, result->between_count);
    result->queue = serving_spread_of(queue, result->first_count);
    size_t ignored;
    AVO_TRY(
        group_fairness(run, true, options->tenants, 1, &result->tenant_fairness, &ignored, error));
    size_t groups = options->adapter_count > 0 ? options->adapter_count : 1;
    return group_fairness(run, false, groups, 3, &result->adapter_fairness, &result->adapters_used,
                          error);
}

avo_status bench_serving(const avo_model *model, const serving_options *options,
                         serving_result *result, avo_error *error) {
    serving run = {.model = model, .options = options, .info = AVO_MODEL_INFO_INIT};
    *result = (serving_result){.requests = options->requests,
                               .adapters = options->adapter_count,
                               .tenants = options->tenants};
    avo_model_describe(model, &run.info);
    arena_init(&run.arena, NULL, SIZE_MAX);
    arena_init(&result->arena, NULL, SIZE_MAX);
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.ended_cond, NULL);
    avo_status status = plan(&run, error);
    AVO_THEN(status, serve(&run, result, error));
    AVO_THEN(status, sum_up(&run, result, error));
    if (status == AVO_OK && options->check)
        status = check_all(&run, result, error);
    if (status == AVO_OK && run.failure.status != AVO_OK)
        status = status_fail(error, run.failure.status, "a request failed: %s", run.failure.text);
    arena_free(&run.arena);
    pthread_cond_destroy(&run.ended_cond);
    pthread_mutex_destroy(&run.lock);
    return status;
}

void bench_serving_free(serving_result *result) {
    arena_free(&result->arena);
    result->first_seconds = result->between_seconds = result->whole_seconds = NULL;
}
