/* The scheduler's driver: opening, closing, and the requests that its threads hand to each other.
 */
#include "sched/scheduler_int.h"

#include "base/clock.h"
#include "base/options.h"

#include <stdio.h>
#include <time.h>

/* ---- Requests and lists; the lock is held ---- */

request *requests_find(avo_scheduler *s, uint64_t number) {
    request *request = s->buckets[number % s->bucket_count];
    while (request != NULL && request->number != number)
        request = request->chain;
    return request;
}

void list_append(request_list *list, request *request) {
    request->list = list;
    request->next = NULL;
    request->previous = list->last;
    if (list->last == NULL)
        list->first = request;
    else
        list->last->next = request;
    list->last = request;
}

void list_remove(request *request) {
    request_list *list = request->list;
    *(request->previous != NULL ? &request->previous->next : &list->first) = request->next;
    *(request->next != NULL ? &request->next->previous : &list->last) = request->previous;
    request->next = request->previous = NULL;
    request->list = NULL;
}

request *list_take(request_list *list) {
    request *request = list->first;
    if (request != NULL)
        list_remove(request);
    return request;
}

void request_ready(request *request) {
    avo_scheduler *s = request->scheduler;
    if (request->ready)
        return;
    request->ready = true;
    request->next_ready = NULL;
    if (s->ready_last == NULL)
        s->ready_first = request;
    else
        s->ready_last->next_ready = request;
    s->ready_last = request;
    pthread_cond_signal(&s->ready_cond);
}

void request_uncount(request *request) {
    avo_scheduler *s = request->scheduler;
    if (!request->counted)
        return;
    request->counted = false;
    s->waiting--;
    s->waiting_tokens -= request->charge;
    if (s->waiting == 0)
        s->pace.waited = false;
    pthread_cond_broadcast(&s->gone_cond);
}

static void count_end(avo_scheduler_info *info, const request *request) {
    if (request->end == ENDED_FAILED)
        info->failed++;
    else if (request->end == ENDED_REFUSED)
        info->refused++;
    else if (request->finish == AVO_FINISH_CANCELLED)
        info->cancelled++;
    else if (request->finish == AVO_FINISH_DEADLINE)
        info->expired++;
    else
        info->finished++;
}

void request_over(request *request, request_ending end) {
    request_uncount(request);
    request->state = REQUEST_OVER;
    request->end = end;
    request->over_ns = clock_now_ns();
    count_end(&request->scheduler->info, request);
    note_over(request);
    request_ready(request);
}

void scheduler_count_pages(avo_scheduler *s) {
    avo_kv_info kv = AVO_KV_INFO_INIT;
    avo_engine_kv(s->engine, &kv);
    s->info.pages_free = kv.pages_free;
    s->info.pages_cached = kv.pages_cached;
    s->info.pages_used = kv.pages_used;
    s->info.prefix_queried_tokens = kv.prefix_queried_tokens;
    s->info.prefix_hit_tokens = kv.prefix_hit_tokens;
}

void scheduler_enter(avo_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    s->inside++;
    pthread_mutex_unlock(&s->lock);
}

void scheduler_leave(avo_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    if (--s->inside == 0 && s->closing)
        pthread_cond_broadcast(&s->gone_cond);
    pthread_mutex_unlock(&s->lock);
}

static uint64_t absolute_ns(const request *request, double seconds) {
    return seconds > 0.0 ? request->submitted_ns + (uint64_t)(seconds * 1e9) : 0;
}

uint64_t request_first_deadline_ns(const request *request) {
    return absolute_ns(request, request->given.first_token_deadline);
}

uint64_t request_deadline_ns(const request *request) {
    return absolute_ns(request, request->given.deadline);
}

uint64_t request_due_ns(const request *request) {
    uint64_t first = request_first_deadline_ns(request), whole = request_deadline_ns(request);
    return first == 0 || (whole > 0 && whole < first) ? whole : first;
}

bool request_late(const request *request) {
    uint64_t due = request_due_ns(request);
    return due > 0 && clock_now_ns() >= due;
}

void request_expire(request *request) {
    request->finish = AVO_FINISH_DEADLINE;
    request_over(request, ENDED_FINISHED);
}

void request_forget_prompt(request *request) {
    arena_free(&request->texts);
    avo_value_close(request->chat.variables);
    request->chat.variables = NULL;
}

void request_free(request *request) {
    const avo_allocator *allocator = request->scheduler->allocator;
    for (size_t i = 0; i < request->use_count; i++)
        adapter_release(request->uses[i].adapter);
    sequence_close(&request->sequence);
    avo_grammar_close(request->given.grammar);
    request_forget_prompt(request);
    arena_free(&request->arena);
    allocator_give(allocator, request, sizeof(*request));
}

/* ---- Opening ---- */

static avo_status plan_options(avo_scheduler *s, const avo_scheduler_options *given,
                               avo_error *error) {
    avo_scheduler_options *options = &s->options;
    const engine_limits *engine = &s->engine_limits;
    *options = (avo_scheduler_options)AVO_SCHEDULER_OPTIONS_INIT;
    AVO_TRY(options_take(options, sizeof(*options), given, "avo_scheduler_options", error));
    uint64_t pool = (uint64_t)engine->kv_pages * KV_PAGE_TOKENS;
    s->context = engine->context_max < pool ? engine->context_max : (uint32_t)pool;
    if (options->running_max == 0) {
        uint32_t most = engine->sessions_max;
        most = most < engine->logits_max ? most : engine->logits_max;
        most = most < engine->rows_max ? most : engine->rows_max;
        options->running_max = most < SCHED_RUNNING_MAX ? most : SCHED_RUNNING_MAX;
    }
    if (options->running_max > engine->sessions_max || options->running_max > engine->logits_max ||
        options->running_max > engine->rows_max || options->running_max > SCHED_RUNNING_MAX)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "running_max is %u, but the engine has %u sessions, %u rows and logits for %u",
            options->running_max, engine->sessions_max, engine->rows_max, engine->logits_max);
    if (options->waiting_max == 0)
        options->waiting_max = SCHEDULER_WAITING_DEFAULT;
    if (options->waiting_max > SCHED_REQUESTS_MAX / 2)
        return status_fail(error, AVO_ERROR_ARGUMENT, "waiting_max is %u, must be at most %d",
                           options->waiting_max, SCHED_REQUESTS_MAX / 2);
    if (options->waiting_tokens_max == 0)
        options->waiting_tokens_max = 16 * pool;
    if (!(options->token_seconds <= 1e6) || !(options->ageing_seconds >= 0.0) ||
        !(options->ageing_seconds <= 1e6))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "token_seconds is %g and ageing_seconds %g; must be at most 1e6, and "
                           "ageing_seconds at least 0",
                           options->token_seconds, options->ageing_seconds);
    if (options->tokenizer_threads == 0)
        options->tokenizer_threads = SCHEDULER_TOKENIZERS;
    if (options->tokenizer_threads > SCHEDULER_TOKENIZERS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "tokenizer_threads is %u, must be at most %u",
                           options->tokenizer_threads, SCHEDULER_TOKENIZERS_MAX);
    /* Those that wait, those that run, and as many whose last events are on their way. */
    s->live_max = options->waiting_max + 2 * options->running_max;
    return AVO_OK;
}

static uint64_t target_ns(const avo_scheduler *s) {
    double target = s->options.token_seconds;
    if (target == 0.0)
        target = SCHEDULER_TOKEN_SECONDS;
    return target < 0.0 ? 0 : (uint64_t)(target * 1e9);
}

/* How cores are shared; whoever listens to the engine is told. */
static avo_status plan_cores(avo_scheduler *s, avo_error *error) {
    const avo_scheduler_options *options = &s->options;
    const engine_limits *engine = &s->engine_limits;
    cores_mode mode;
    if (!cores_mode_named(options->cores, &mode))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "cores is \"%.40s\", must be mixed, static or adaptive", options->cores);
    AVO_TRY(cores_open(&s->cores, mode, engine->threads, options->prefill_threads, target_ns(s),
                       error));
    if (mode == CORES_MIXED)
        return AVO_OK;
    if (engine->streams < 2) {
        s->cores.mode = CORES_MIXED;
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "cores \"%s\" computes two steps at a time, but the engine has one "
                           "stream; open it with two (avo_engine_options.streams)",
                           options->cores);
    }
    if (engine->log == NULL)
        return AVO_OK;
    char line[160];
    if (engine->threads == 0)
        snprintf(line, sizeof(line), "cores: %s, prefill and decode each on a stream of the device",
                 cores_mode_name(mode));
    else if (mode == CORES_STATIC)
        snprintf(line, sizeof(line), "cores: static, %u of %u threads prefill, %u decode",
                 s->cores.most, engine->threads, engine->threads - s->cores.most);
    else
        snprintf(line, sizeof(line),
                 "cores: adaptive, up to %u of %u threads prefill in parallel with decode",
                 s->cores.most, engine->threads);
    engine->log(engine->log_context, line);
    return AVO_OK;
}

static avo_status open_core(avo_scheduler *s, avo_error *error) {
    const avo_scheduler_options *options = &s->options;
    double ageing =
        options->ageing_seconds == 0.0 ? SCHEDULER_AGEING_SECONDS : options->ageing_seconds;
    const speculation *drafts = s->engine_limits.speculation;
    sched_options core = {.running_max = options->running_max,
                          .rows_max = s->engine_limits.rows_max,
                          .logits_max = s->engine_limits.logits_max,
                          .drafts_max = drafts == NULL ? 0 : DRAFTS_MAX,
                          /* Submission has bounded all this already. */
                          .waiting_max = s->live_max,
                          .waiting_tokens_max = UINT64_MAX / 2,
                          /* The last token of an answer takes no place, but is counted there. */
                          .pages = s->engine_limits.kv_pages + 1,
                          .context_max = s->context + 1,
                          .target_ns = target_ns(s),
                          .ageing_ns = (uint64_t)(ageing * 1e9),
                          .chunk_min = SCHEDULER_CHUNK_MIN,
                          .adapters_max = options->adapters_max,
                          .apart = s->cores.mode == CORES_STATIC,
                          .trust_steps = SCHEDULER_TRUST_STEPS,
                          .cost = engine_cost_guess(s->engine)};
    sched_memory memory = scheduler_memory(s);
    AVO_TRY(sched_open(&core, &memory, s->allocator, &s->core, error));
    cores_guess(&s->cores, s->core);
    return AVO_OK;
}

static uint32_t power_above(uint32_t count) {
    uint32_t power = 16;
    while (power < count)
        power *= 2;
    return power;
}

static avo_status open_arrays(avo_scheduler *s, avo_error *error) {
    uint32_t running = s->options.running_max;
    s->bucket_count = power_above(s->live_max);
    s->buckets = allocator_take_array(s->allocator, s->bucket_count, sizeof(request *));
    s->cancels = allocator_take_array(s->allocator, s->live_max, sizeof(uint64_t));
    s->running = allocator_take_array(s->allocator, running, sizeof(running_request));
    s->draft_requests = allocator_take_array(s->allocator, running, sizeof(draft_request));
    if (s->buckets == NULL || s->cancels == NULL || s->running == NULL ||
        s->draft_requests == NULL ||
        buffer_reserve(&s->stop_buffer, SEQUENCE_TEXT_FIRST) != AVO_OK ||
        buffer_reserve(&s->text_buffer, SEQUENCE_TEXT_FIRST) != AVO_OK)
        return status_no_memory(error, "the scheduler", s->live_max * sizeof(request *));
    return AVO_OK;
}

static avo_status open_stream(avo_scheduler *s, uint32_t number, avo_error *error) {
    serve_stream *stream = &s->stream[number];
    uint32_t running = s->options.running_max;
    AVO_TRY(engine_batch_open(s->engine, number, &stream->batch, error));
    stream->results = allocator_take_array(s->allocator, running, sizeof(sched_result));
    stream->scored = allocator_take_array(s->allocator, running, sizeof(bool));
    if (stream->results == NULL || stream->scored == NULL)
        return status_no_memory(error, "the scheduler", running * sizeof(sched_result));
    return AVO_OK;
}

static void close_stream(avo_scheduler *s, serve_stream *stream) {
    uint32_t running = s->options.running_max;
    avo_batch_close(stream->batch);
    allocator_give(s->allocator, stream->results, running * sizeof(sched_result));
    allocator_give(s->allocator, stream->scored, running * sizeof(bool));
}

/* No text of more bytes can have fewer tokens than the context takes. */
static size_t longest_text(const avo_scheduler *s) {
    const tokenizer *tokenizer = s->engine_limits.model->tokenizer;
    size_t longest = 0;
    uint32_t count = tokenizer == NULL ? 0 : tokenizer_describe(tokenizer).vocabulary;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = tokenizer_piece(tokenizer, (int32_t)i).size;
        longest = bytes > longest ? bytes : longest;
    }
    size_t bytes = longest * s->context;
    bytes = bytes < TOKENIZER_TEXT_MAX ? bytes : TOKENIZER_TEXT_MAX;
    return bytes > SCHEDULER_TEXT_MIN ? bytes : SCHEDULER_TEXT_MIN;
}

static avo_status open_parts(avo_scheduler *s, avo_error *error) {
    s->text_max = longest_text(s);
    AVO_TRY(open_arrays(s, error));
    for (uint32_t i = 0; i < (s->cores.mode == CORES_MIXED ? 1 : 2); i++)
        AVO_TRY(open_stream(s, i, error));
    AVO_TRY(sampler_room_open(s->engine_limits.vocabulary, s->allocator, &s->sampler_room, error));
    const tokenizer *tokenizer = s->engine_limits.model->tokenizer;
    if (tokenizer != NULL)
        AVO_TRY(encode_cache_open(tokenizer, SCHEDULER_ENCODINGS_BYTES, &s->encodings, error));
    AVO_TRY(scheduler_telemetry_open(s, error));
    AVO_TRY(scheduler_corpus_open(s, error));
    return open_core(s, error);
}

static avo_status open_threads(avo_scheduler *s, avo_error *error) {
    s->engine_started = pthread_create(&s->engine_thread, NULL, engine_main, s) == 0;
    s->delivery_started =
        s->engine_started && pthread_create(&s->delivery_thread, NULL, delivery_main, s) == 0;
    s->prefill_started = s->delivery_started && s->cores.mode != CORES_MIXED &&
                         pthread_create(&s->prefill_thread, NULL, prefill_main, s) == 0;
    bool good = s->delivery_started && (s->prefill_started || s->cores.mode == CORES_MIXED);
    while (good && s->tokenizer_threads < s->options.tokenizer_threads) {
        good = pthread_create(&s->tokenizer_thread[s->tokenizer_threads], NULL, tokenizer_main,
                              s) == 0;
        if (good)
            s->tokenizer_threads++;
    }
    s->watch_started = good && pthread_create(&s->watch_thread, NULL, watch_main, s) == 0;
    good = s->watch_started;
    while (good && s->options.registry != NULL && s->opener_threads < SCHEDULER_OPENERS) {
        good = pthread_create(&s->opener_thread[s->opener_threads], NULL, opener_main, s) == 0;
        if (good)
            s->opener_threads++;
    }
    return good ? AVO_OK : status_fail(error, AVO_ERROR_LIMIT, "cannot start a thread");
}

static void open_locks(avo_scheduler *s) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->pending_cond, NULL);
    pthread_cond_init(&s->prefill_cond, NULL);
    pthread_cond_init(&s->opening_cond, NULL);
    pthread_cond_init(&s->corpus_cond, NULL);
    pthread_cond_init(&s->watch_cond, &monotonic);
    pthread_cond_init(&s->engine_cond, &monotonic);
    pthread_cond_init(&s->ready_cond, NULL);
    pthread_cond_init(&s->gone_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

avo_status avo_scheduler_open(avo_engine *engine, const avo_scheduler_options *options,
                              avo_scheduler **out, avo_error *error) {
    *out = NULL;
    AVO_TRY(engine_lead(engine, error));
    engine_limits limits = engine_limits_of(engine);
    avo_scheduler *s = allocator_take_array(limits.allocator, 1, sizeof(*s));
    if (s == NULL) {
        engine_leave(engine);
        return status_no_memory(error, "the scheduler", sizeof(*s));
    }
    s->engine = engine;
    s->engine_limits = limits;
    s->allocator = limits.allocator;
    s->info = (avo_scheduler_info)AVO_SCHEDULER_INFO_INIT;
    scheduler_count_pages(s);
    buffer_init(&s->stop_buffer, s->allocator, SEQUENCE_TEXT_MAX);
    buffer_init(&s->text_buffer, s->allocator, SEQUENCE_TEXT_MAX);
    open_locks(s);
    avo_status status = plan_options(s, options, error);
    if (status == AVO_OK)
        status = plan_cores(s, error);
    if (status == AVO_OK)
        status = open_parts(s, error);
    if (status == AVO_OK)
        status = open_threads(s, error);
    if (status != AVO_OK) {
        avo_scheduler_close(s);
        return status;
    }
    *out = s;
    return AVO_OK;
}

/* ---- Closing ---- */

/* Calls that are inside end first: everything goes its way as before until then, but ends
 * cancelled. Then each kind of thread hands on what it has and ends before the next one is told to.
 */
static void close_threads(avo_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    openings_cancel(s);
    pthread_cond_broadcast(&s->engine_cond);
    pthread_cond_broadcast(&s->gone_cond);
    while (s->inside > 0)
        pthread_cond_wait(&s->gone_cond, &s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->pending_cond);
    pthread_cond_broadcast(&s->watch_cond);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->tokenizer_threads; i++)
        pthread_join(s->tokenizer_thread[i], NULL);
    if (s->watch_started)
        pthread_join(s->watch_thread, NULL);
    pthread_mutex_lock(&s->lock);
    s->tokenizers_done = s->openers_done = true;
    pthread_cond_broadcast(&s->engine_cond);
    pthread_cond_broadcast(&s->opening_cond);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->opener_threads; i++)
        pthread_join(s->opener_thread[i], NULL);
    if (s->engine_started)
        pthread_join(s->engine_thread, NULL);
    pthread_mutex_lock(&s->lock);
    s->engine_done = true;
    pthread_cond_broadcast(&s->ready_cond);
    pthread_cond_broadcast(&s->prefill_cond);
    pthread_mutex_unlock(&s->lock);
    if (s->prefill_started)
        pthread_join(s->prefill_thread, NULL);
    if (s->delivery_started)
        pthread_join(s->delivery_thread, NULL);
}

/* The engine is as it was: all threads compute. */
static void give_threads(avo_scheduler *s) {
    if (s->cores.mode == CORES_MIXED)
        return;
    engine_stream_resize(s->engine, 0, s->engine_limits.threads);
}

void avo_scheduler_close(avo_scheduler *s) {
    if (s == NULL)
        return;
    close_threads(s);
    scheduler_telemetry_close(s);
    sched_close(s->core);
    give_threads(s);
    close_stream(s, &s->stream[0]);
    close_stream(s, &s->stream[1]);
    engine_leave(s->engine);
    sampler_room_close(s->sampler_room);
    encode_cache_close(s->encodings);
    buffer_free(&s->stop_buffer);
    buffer_free(&s->text_buffer);
    uint32_t running = s->options.running_max;
    allocator_give(s->allocator, s->buckets, s->bucket_count * sizeof(request *));
    allocator_give(s->allocator, s->cancels, s->live_max * sizeof(uint64_t));
    allocator_give(s->allocator, s->running, running * sizeof(running_request));
    allocator_give(s->allocator, s->draft_requests, running * sizeof(draft_request));
    pthread_cond_destroy(&s->watch_cond);
    pthread_cond_destroy(&s->opening_cond);
    pthread_cond_destroy(&s->corpus_cond);
    pthread_cond_destroy(&s->prefill_cond);
    pthread_cond_destroy(&s->gone_cond);
    pthread_cond_destroy(&s->ready_cond);
    pthread_cond_destroy(&s->engine_cond);
    pthread_cond_destroy(&s->pending_cond);
    pthread_mutex_destroy(&s->lock);
    allocator_give(s->allocator, s, sizeof(*s));
}

/* ---- Questions ---- */

bool avo_scheduler_drain(avo_scheduler *s, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double bounded = seconds > 0.0 ? seconds : 0.0;
    bounded = bounded < SCHEDULER_SECONDS_MAX ? bounded : SCHEDULER_SECONDS_MAX;
    until.tv_sec += (time_t)bounded;
    until.tv_nsec += (long)((bounded - (double)(time_t)bounded) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&s->lock);
    s->inside++;
    s->draining = true;
    pthread_cond_broadcast(&s->gone_cond); /* batches that wait for room will get none */
    int result = 0;
    while (s->live > 0 && result == 0)
        result = pthread_cond_timedwait(&s->gone_cond, &s->lock, &until);
    bool empty = s->live == 0;
    pthread_mutex_unlock(&s->lock);
    scheduler_leave(s);
    return empty;
}

void avo_scheduler_describe(avo_scheduler *s, avo_scheduler_info *info) {
    pthread_mutex_lock(&s->lock);
    avo_scheduler_info now = s->info;
    now.waiting = s->waiting;
    now.waiting_tokens = s->waiting_tokens;
    pthread_mutex_unlock(&s->lock);
    now.size = sizeof(now);
    options_give(info, &now, sizeof(now));
}
