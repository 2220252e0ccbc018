/* Submission: everything that can be seen at once is checked, room is taken, the request is copied.
 * Nothing is tokenised here, and nobody waits. */
#include "sched/scheduler_int.h"

#include "base/clock.h"
#include "base/value.h"

#include <math.h>
#include <string.h>

#define RETRY_NS_MIN   1e7
#define RETRY_NS_MAX   6e11
#define RETRY_NS_FIRST 1e9 /* before anything was measured */

/* ---- Checks ---- */

/* Takes a text's bytes from those that are left, looking no further than that. */
static bool take_bytes(const char *text, size_t *left) {
    size_t bytes = text == NULL ? 0 : strnlen(text, *left + 1);
    if (bytes > *left)
        return false;
    *left -= bytes;
    return true;
}

/* Variables may repeat the messages: both may have as much. */
static avo_status check_bytes(const avo_scheduler *s, const avo_request *request,
                              avo_error *error) {
    avo_chat_options chat;
    AVO_TRY(request_chat(request, &chat, error));
    bool fits = chat.variables == NULL || value_text_bytes(chat.variables) <= s->text_max;
    size_t left = s->text_max;
    fits = fits && take_bytes(request->text, &left);
    for (size_t i = 0; i < request->message_count && fits; i++)
        fits = take_bytes(request->messages[i].role, &left) &&
               take_bytes(request->messages[i].content, &left);
    if (fits)
        return AVO_OK;
    return status_fail(
        error, AVO_ERROR_CONTEXT,
        "the prompt has more than %zu bytes, which does not fit a context of %u tokens",
        s->text_max, s->context);
}

avo_status request_check_length(const avo_scheduler *s, size_t count, bool no_answer,
                                avo_error *error) {
    if (count < s->context || (no_answer && count == s->context))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_CONTEXT, "the prompt needs %zu tokens%s, the context is %u",
                       no_answer ? count : count + 1,
                       no_answer ? "" : " including one for the answer", s->context);
}

static avo_status check_prompt(const avo_scheduler *s, const avo_request *request,
                               avo_error *error) {
    if (request->token_count > 0)
        AVO_TRY(request_check_length(s, request->token_count, request->no_answer, error));
    for (size_t i = 0; i < request->token_count; i++)
        if (request->tokens[i] < 0 || (uint32_t)request->tokens[i] >= s->engine_limits.vocabulary)
            return status_fail(error, AVO_ERROR_ARGUMENT, "token %zu: id is %d, must be 0 to %u", i,
                               request->tokens[i], s->engine_limits.vocabulary - 1);
    return check_bytes(s, request, error);
}

static avo_status check_adapters(const avo_scheduler *s, const avo_request *request,
                                 avo_error *error) {
    size_t count = request->adapter_count + request->named_adapter_count;
    if (request->adapter_count > AVO_ADAPTERS_MAX || count > AVO_ADAPTERS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%zu adapters, a request can have at most %d",
                           count, AVO_ADAPTERS_MAX);
    if (request->named_adapter_count > 0 && s->options.registry == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "adapters by name need a registry, the scheduler has none");
    for (size_t i = 0; i < request->adapter_count; i++)
        if (request->adapters[i].adapter == NULL || !isfinite(request->adapters[i].weight))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "adapter %zu is NULL or its weight is not finite", i + 1);
    for (size_t i = 0; i < request->named_adapter_count; i++)
        if (request->named_adapters[i].name == NULL || !isfinite(request->named_adapters[i].weight))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "adapter %zu lacks a name or its weight is not finite", i + 1);
    return AVO_OK;
}

static avo_status check_seconds(const char *name, double seconds, avo_error *error) {
    if (seconds >= 0.0 && seconds <= SCHEDULER_SECONDS_MAX)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "%s is %g seconds, must be 0 (none) to %g", name,
                       seconds, SCHEDULER_SECONDS_MAX);
}

_Static_assert(SCHED_PRIORITIES == REQUEST_PRIORITY_MAX + 1, "interfaces check this range, too");

static avo_status check_service(const avo_request *request, avo_error *error) {
    if (request->priority >= SCHED_PRIORITIES)
        return status_fail(error, AVO_ERROR_ARGUMENT, "priority is %u, must be 0 to %d",
                           request->priority, SCHED_PRIORITIES - 1);
    float weight = request->tenant_weight;
    if (weight != 0.0f && !(weight >= SCHED_WEIGHT_MIN && weight <= SCHED_WEIGHT_MAX))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "tenant_weight is %g, must be 0 (default) or %g to %g", (double)weight,
                           (double)SCHED_WEIGHT_MIN, (double)SCHED_WEIGHT_MAX);
    if (request->tenant != NULL &&
        strnlen(request->tenant, SCHEDULER_TENANT_BYTES_MAX + 1) > SCHEDULER_TENANT_BYTES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "the tenant name has more than %u bytes",
                           SCHEDULER_TENANT_BYTES_MAX);
    AVO_TRY(check_seconds("first_token_deadline", request->first_token_deadline, error));
    return check_seconds("deadline", request->deadline, error);
}

static avo_status check_scoring(const avo_request *request, avo_error *error) {
    if (request->pooling != AVO_POOLING_NONE && request->pooling != AVO_POOLING_MEAN &&
        request->pooling != AVO_POOLING_LAST)
        return status_fail(error, AVO_ERROR_ARGUMENT, "unknown pooling %d", (int)request->pooling);
    if (request->pooling != AVO_POOLING_NONE && !request->no_answer)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "pooling needs no_answer, as it returns an embedding of the prompt");
    if (request->prompt_logprobs_from > 0 && !request->prompt_logprobs)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "prompt_logprobs_from is %zu, needs prompt_logprobs",
                           request->prompt_logprobs_from);
    return AVO_OK;
}

static avo_status check(const avo_scheduler *s, const avo_request *request,
                        const avo_sampling *sampling, avo_error *error) {
    bool has_prompt = false;
    AVO_TRY(request_check(request, sampling, s->engine_limits.model, &has_prompt, error));
    if (!has_prompt)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "give one of tokens, messages and text as the prompt");
    AVO_TRY(check_prompt(s, request, error));
    AVO_TRY(check_adapters(s, request, error));
    AVO_TRY(check_service(request, error));
    return check_scoring(request, error);
}

/* ---- Room ---- */

uint64_t scheduler_charge(const avo_scheduler *s, const avo_request *request) {
    uint64_t bytes = request->text == NULL ? 0 : strlen(request->text);
    for (size_t i = 0; i < request->message_count; i++)
        bytes += strlen(request->messages[i].content);
    avo_chat_options chat;
    if (request_chat(request, &chat, NULL) == AVO_OK && chat.variables != NULL)
        bytes = value_text_bytes(chat.variables) + (request_chat_has_messages(&chat) ? 0 : bytes);
    uint64_t prompt = request->token_count + bytes / SCHEDULER_BYTES_PER_TOKEN + 1;
    if (request->no_answer)
        return prompt;
    uint64_t left = prompt < s->context ? s->context - prompt : 1;
    uint32_t wanted = request->max_new_tokens;
    return prompt + (wanted == 0 || wanted > left ? left : wanted);
}

static double retry_after(const avo_scheduler *s, uint64_t charge) {
    sched_crowd crowd = {.waiting = s->waiting,
                         .waiting_max = s->options.waiting_max,
                         .tokens = s->waiting_tokens,
                         .tokens_max = s->options.waiting_tokens_max};
    double ns = sched_pace_retry(&s->pace, &crowd, charge, clock_now_ns(), RETRY_NS_FIRST);
    return (ns < RETRY_NS_MIN ? RETRY_NS_MIN : ns > RETRY_NS_MAX ? RETRY_NS_MAX : ns) * 1e-9;
}

/* A request that is larger than everything that may wait is taken when nobody else waits. */
static bool has_capacity(const avo_scheduler *s, uint64_t charge) {
    const avo_scheduler_options *options = &s->options;
    return s->waiting < options->waiting_max && s->live - s->rejected < s->live_max &&
           (s->waiting == 0 || s->waiting_tokens + charge <= options->waiting_tokens_max);
}

/* The lock is held, and let go only to wait for room where that is wanted. */
static avo_status take_capacity(avo_scheduler *s, uint64_t charge, bool waits,
                                double *retry_seconds, avo_error *error) {
    const avo_scheduler_options *options = &s->options;
    while (waits && !has_capacity(s, charge) && !s->draining && !s->closing)
        pthread_cond_wait(&s->gone_cond, &s->lock);
    if (s->draining || s->closing)
        return status_fail(error, AVO_ERROR_FULL,
                           "the scheduler is shutting down and accepts no requests");
    if (has_capacity(s, charge)) {
        s->live++;
        s->waiting++;
        s->waiting_tokens += charge;
        return AVO_OK;
    }
    double seconds = retry_after(s, charge);
    if (retry_seconds != NULL)
        *retry_seconds = seconds;
    return status_fail(error, AVO_ERROR_FULL,
                       "the queue is full: %u requests with %llu tokens wait (at most %u and "
                       "%llu); try again in %.2f s",
                       s->waiting, (unsigned long long)s->waiting_tokens, options->waiting_max,
                       (unsigned long long)options->waiting_tokens_max, seconds);
}

/* ---- Copies ---- */

static avo_status copy_text(arena *arena, const char *text, const char **out, avo_error *error) {
    if (text == NULL)
        return AVO_OK;
    size_t bytes = strlen(text);
    *out = arena_copy_text(arena, text, bytes);
    return *out == NULL ? status_no_memory(error, "a request", bytes) : AVO_OK;
}

static avo_status copy_items(arena *arena, const void *items, size_t count, size_t size,
                             const void **out, avo_error *error) {
    *out = NULL;
    if (count == 0)
        return AVO_OK;
    void *copy = arena_take_array(arena, count, size);
    if (copy == NULL)
        return status_no_memory(error, "a request", count * size);
    memcpy(copy, items, count * size);
    *out = copy;
    return AVO_OK;
}

static avo_status copy_prompt(request *request, const avo_request *given, avo_error *error) {
    arena *arena = &request->texts;
    AVO_TRY(copy_items(arena, given->tokens, given->token_count, sizeof(int32_t),
                       (const void **)&request->given.tokens, error));
    AVO_TRY(copy_text(arena, given->text, &request->given.text, error));
    const void *messages = NULL;
    AVO_TRY(copy_items(arena, given->messages, given->message_count, sizeof(avo_message), &messages,
                       error));
    avo_message *own = (avo_message *)messages;
    for (size_t i = 0; i < given->message_count; i++) {
        AVO_TRY(copy_text(arena, given->messages[i].role, &own[i].role, error));
        AVO_TRY(copy_text(arena, given->messages[i].content, &own[i].content, error));
    }
    request->given.messages = own;
    AVO_TRY(request_chat(given, &request->chat, error));
    (void)avo_value_share(request->chat.variables);
    return AVO_OK;
}

static avo_status copy_rules(request *request, const avo_request *given, avo_error *error) {
    arena *arena = &request->arena;
    AVO_TRY(copy_items(arena, request->sampling.bias, request->sampling.bias_count,
                       sizeof(avo_logit_bias), (const void **)&request->sampling.bias, error));
    AVO_TRY(copy_items(arena, given->stop_tokens, given->stop_token_count, sizeof(int32_t),
                       (const void **)&request->given.stop_tokens, error));
    AVO_TRY(copy_text(arena, given->tenant, &request->given.tenant, error));
    AVO_TRY(copy_text(arena, given->cache_salt, &request->given.cache_salt, error));
    AVO_TRY(copy_text(arena, given->speculate, &request->given.speculate, error));
    const void *named = NULL;
    AVO_TRY(copy_items(arena, given->named_adapters, given->named_adapter_count,
                       sizeof(avo_named_adapter), &named, error));
    avo_named_adapter *own = (avo_named_adapter *)named;
    for (size_t i = 0; i < given->named_adapter_count; i++)
        AVO_TRY(copy_text(arena, given->named_adapters[i].name, &own[i].name, error));
    request->given.named_adapters = own;
    for (; request->use_count < given->adapter_count; request->use_count++) {
        request->uses[request->use_count] = given->adapters[request->use_count];
        (void)adapter_share(request->uses[request->use_count].adapter);
    }
    return AVO_OK;
}

/* Stop strings that are wrong are refused here, at once. */
static avo_status open_sequence(request *request, const avo_request *given, avo_error *error) {
    avo_scheduler *s = request->scheduler;
    const avo_model *model = s->engine_limits.model;
    sequence_options options = {.model = model,
                                .allocator = s->allocator,
                                .request = &request->given,
                                .sampling = &request->sampling,
                                .context_max = s->context,
                                .sampler_room = s->sampler_room,
                                .text_buffer = &s->stop_buffer};
    char *held = NULL;
    request->given.stop = given->stop; /* the sequence copies them */
    AVO_TRY(sequence_open(&request->sequence, &options, error));
    request->given.stop = NULL;
    if (given->stop_count > 0) {
        held = arena_take(&request->arena, STOP_STRING_BYTES_MAX);
        if (held == NULL)
            return status_no_memory(error, "a request", STOP_STRING_BYTES_MAX);
    }
    sequence_text_open(&request->text, model, &s->text_buffer, held);
    if (request->text.exists)
        decode_stream_init(&request->prompt_text, model->tokenizer, false);
    return AVO_OK;
}

static avo_status request_open(avo_scheduler *s, const submission *submission, request **out,
                               avo_error *error) {
    request *request = allocator_take_array(s->allocator, 1, sizeof(*request));
    if (request == NULL)
        return status_no_memory(error, "a request", sizeof(*request));
    request->scheduler = s;
    request->index = submission->index;
    request->submitted_ns = clock_now_ns();
    request->chat = (avo_chat_options)AVO_CHAT_OPTIONS_INIT;
    arena_init(&request->texts, s->allocator, SIZE_MAX);
    arena_init(&request->arena, s->allocator, SIZE_MAX);
    *out = request;
    return AVO_OK;
}

static void take_listener(request *request, const submission *submission,
                          const avo_request *given) {
    bool own = submission->takes_events;
    request->on_event = own ? submission->on_event : given->on_event;
    request->on_event_context = own ? submission->on_event_context : given->on_event_context;
}

static avo_status request_make(avo_scheduler *s, const submission *submission,
                               const avo_request *given, const avo_sampling *sampling,
                               request **out, avo_error *error) {
    request *request = NULL;
    AVO_TRY(request_open(s, submission, &request, error));
    take_listener(request, submission, given);
    request->given = *given;
    request->given.chat = NULL; /* what it says is in request->chat; the others likewise */
    request->given.sampling = NULL;
    request->given.stop = NULL;
    request->given.adapters = NULL;
    request->given.grammar = avo_grammar_share(given->grammar);
    request->sampling = *sampling;
    avo_status status = copy_prompt(request, given, error);
    if (status == AVO_OK)
        status = copy_rules(request, given, error);
    if (status == AVO_OK)
        status = open_sequence(request, given, error);
    if (status != AVO_OK) {
        request_free(request);
        return status;
    }
    *out = request;
    return AVO_OK;
}

/* ---- The whole ---- */

static void enter(avo_scheduler *s, request *request) {
    request->number = ++s->serial;
    struct request **bucket = &s->buckets[request->number % s->bucket_count];
    request->chain = *bucket;
    *bucket = request;
}

avo_status scheduler_submit(avo_scheduler *s, const submission *submission, uint64_t *number,
                            double *retry_seconds, avo_error *error) {
    avo_request given;
    avo_sampling sampling;
    if (retry_seconds != NULL)
        *retry_seconds = 0.0;
    AVO_TRY(request_take(submission->request, submission->shared, &given, &sampling, error));
    AVO_TRY(check(s, &given, &sampling, error));
    uint64_t charge = scheduler_charge(s, &given);
    pthread_mutex_lock(&s->lock);
    avo_status status = take_capacity(s, charge, submission->waits, retry_seconds, error);
    pthread_mutex_unlock(&s->lock);
    AVO_TRY(status);
    request *request = NULL;
    status = request_make(s, submission, &given, &sampling, &request, error);
    pthread_mutex_lock(&s->lock);
    if (status != AVO_OK) {
        s->live--;
        s->waiting--;
        s->waiting_tokens -= charge;
        pthread_cond_broadcast(&s->gone_cond);
    } else {
        enter(s, request);
        request->counted = true;
        request->charge = charge;
        s->info.submitted++;
        if (number != NULL)
            *number = request->number;
        list_append(&s->pending, request);
        request_watch(request);
        pthread_cond_signal(&s->pending_cond);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

avo_status scheduler_submit_failed(avo_scheduler *s, const submission *submission,
                                   const avo_error *why) {
    request *request = NULL;
    AVO_TRY(request_open(s, submission, &request, NULL));
    take_listener(request, submission, submission->request);
    request->error = *why;
    pthread_mutex_lock(&s->lock);
    /* Listeners are called one by one and may be slow. Whoever listens will, so this ends. */
    while (s->rejected >= SCHEDULER_REJECTED_MAX)
        pthread_cond_wait(&s->gone_cond, &s->lock);
    s->live++;
    s->rejected++;
    request->rejected = true;
    s->info.submitted++;
    enter(s, request);
    bool cut_off = s->closing && why->status == AVO_ERROR_FULL;
    request->finish = AVO_FINISH_CANCELLED;
    request_over(request, cut_off ? ENDED_FINISHED : ENDED_FAILED);
    pthread_mutex_unlock(&s->lock);
    return AVO_OK;
}

avo_status avo_scheduler_submit(avo_scheduler *s, const avo_request *request, uint64_t *number,
                                double *retry_seconds, avo_error *error) {
    submission submission = {.request = request};
    scheduler_enter(s);
    avo_status status = scheduler_submit(s, &submission, number, retry_seconds, error);
    if (status == AVO_ERROR_FULL) {
        pthread_mutex_lock(&s->lock);
        s->info.refused++;
        pthread_mutex_unlock(&s->lock);
    }
    scheduler_leave(s);
    return status;
}

bool avo_scheduler_cancel(avo_scheduler *s, uint64_t number) {
    pthread_mutex_lock(&s->lock);
    request *request = requests_find(s, number);
    bool lives = request != NULL && request->state != REQUEST_OVER;
    if (lives && request_waits(request)) {
        request->finish = AVO_FINISH_CANCELLED;
        request_drop(request);
    } else if (lives && !request->cancelled) {
        request->cancelled = true;
        if (request->state == REQUEST_TAKEN) {
            s->cancels[s->cancel_count++] = number;
            pthread_cond_signal(&s->engine_cond);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return lives;
}
