/* Tokenizer threads: a request becomes tokens, the memory of its answer is taken, its adapters are
 * looked up. Where one must be opened first, the request is parked until it is there
 * (scheduler_openings.c) and goes on behind that. Each thread keeps an encoder; all share the
 * encodings of segments that came before. Nothing here touches the engine. */
#include "sched/scheduler_int.h"

#include "base/clock.h"
#include "base/hash.h"
#include "model/adapters.h"

#include <string.h>

/* ---- Tokens ---- */

static avo_status allocate_answer(request *request, avo_error *error) {
    size_t answer = request->capacity - request->prompt_tokens;
    uint32_t wanted = request->sampling.top_logprobs;
    uint32_t vocabulary = request->scheduler->engine_limits.vocabulary;
    request->top_stride = wanted < vocabulary ? wanted : vocabulary;
    request->timeline = arena_take_array(&request->arena, request->capacity, sizeof(int32_t));
    request->logprobs = arena_take_array(&request->arena, answer + 1, sizeof(float));
    if (request->top_stride > 0 && answer > 0)
        request->tops =
            arena_take_array(&request->arena, answer * request->top_stride, sizeof(avo_logprob));
    bool stops = request->sequence.stops != NULL;
    if (stops)
        request->released = arena_take_array(&request->arena, answer + 1, sizeof(uint32_t));
    bool drafts = request->scheduler->engine_limits.speculation != NULL;
    if (drafts)
        request->drafted_at = arena_take_array(&request->arena, answer + 1, sizeof(bool));
    if (request->timeline == NULL || request->logprobs == NULL ||
        (stops && request->released == NULL) || (drafts && request->drafted_at == NULL) ||
        (request->top_stride > 0 && answer > 0 && request->tops == NULL))
        return status_no_memory(error, "an answer", request->capacity * sizeof(int32_t));
    return request_allocate_scores(request, error);
}

uint64_t request_budget(const request *request) {
    uint64_t tokens = request->given.tenant_kv_tokens;
    return tokens / KV_PAGE_TOKENS + (tokens % KV_PAGE_TOKENS > 0);
}

/* An answer without a length of its own goes as far as its tenant's budget lets it. */
static void limit_answer(request *request) {
    uint64_t budget = request_budget(request), tokens = budget * KV_PAGE_TOKENS;
    if (budget == 0 || request->given.max_new_tokens > 0 || budget > UINT32_MAX / KV_PAGE_TOKENS)
        return;
    if (tokens < request->scheduler->context && tokens > request->prompt_tokens)
        request->given.max_new_tokens = (uint32_t)tokens - request->prompt_tokens;
}

/* As many tokens as avo_generate would draw at most: the last one need not be computed. */
static avo_status take_tokens(request *request, const int32_t *tokens, size_t count,
                              avo_error *error) {
    avo_scheduler *s = request->scheduler;
    if (count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the prompt is empty");
    AVO_TRY(request_check_length(s, count, request->given.no_answer, error));
    request->prompt_tokens = (uint32_t)count;
    limit_answer(request);
    uint32_t most = s->context - request->prompt_tokens + 1;
    uint32_t wanted = request->given.max_new_tokens;
    request->capacity = request->prompt_tokens;
    if (!request->given.no_answer)
        request->capacity += wanted == 0 || wanted > most ? most : wanted;
    AVO_TRY(allocate_answer(request, error));
    memcpy(request->timeline, tokens, count * sizeof(*tokens));
    return AVO_OK;
}

/* ---- Adapters ---- */

/* Adapters that the caller has opened, whose files may have been written over since. This is looked
 * at once, here: whoever has begun goes on, and the engine thread asks no file system. */
static avo_status check_handles(const request *request, avo_error *error) {
    for (size_t i = 0; i < request->use_count; i++)
        AVO_TRY(adapter_check_file(request->uses[i].adapter, error));
    return AVO_OK;
}

/* *cold: the first one that must be opened before this can go on; NULL: all are there. */
static avo_status take_adapters(request *request, const char **cold, avo_error *error) {
    const avo_request *given = &request->given;
    for (; request->named_taken < given->named_adapter_count; request->named_taken++) {
        const avo_named_adapter *named = &given->named_adapters[request->named_taken];
        avo_adapter *adapter = NULL;
        AVO_TRY(model_registry_take_open(request->scheduler->options.registry, named->name,
                                         &adapter, error));
        if (adapter == NULL) {
            *cold = named->name;
            return AVO_OK;
        }
        request->uses[request->use_count++] = (avo_adapter_use){adapter, named->weight};
    }
    return AVO_OK;
}

/* Requests with the same adapters and weights go together, in whatever order they name them. */
static void key_adapters(request *request) {
    uint64_t sum = 0;
    for (size_t i = 0; i < request->use_count; i++) {
        const adapter_view *view = &request->uses[i].adapter->view;
        struct {
            uint64_t digest[2];
            float weight, padding;
        } key = {{view->digest[0], view->digest[1]}, request->uses[i].weight, 0.0f};
        sum += hash_bytes(&key, sizeof(key));
    }
    request->adapter_key = request->use_count > 0 && sum == 0 ? 1 : sum;
}

/* ---- Grammars ---- */

/* Compiling takes longer than tokenising: a request that is refused has not had it done. */
static avo_status take_grammar(request *request, avo_error *error) {
    avo_request *given = &request->given;
    if (given->open_grammar == NULL)
        return AVO_OK;
    AVO_TRY(given->open_grammar(given->open_grammar_context, &given->grammar, error));
    if (given->grammar == NULL) /* an answer that shall be bound is never free */
        return status_fail(error, AVO_ERROR_ARGUMENT, "open_grammar returned no grammar");
    return grammar_check(given->grammar, request->scheduler->engine_limits.model, error);
}

/* ---- The thread ---- */

static avo_status prepare_tokens(request *request, encoder *encoder, id_list *ids) {
    avo_error *error = &request->error;
    const avo_request *given = &request->given;
    if (given->tokens != NULL) {
        AVO_TRY(take_tokens(request, given->tokens, given->token_count, error));
    } else {
        ids->count = 0;
        AVO_TRY(request_encode(given, &request->chat, request->scheduler->engine_limits.model,
                               encoder, ids, error));
        AVO_TRY(take_tokens(request, ids->ids, ids->count, error));
    }
    return check_handles(request, error);
}

/* From where it was parked, if it was; *cold: what it must wait for now. */
static avo_status prepare(request *request, encoder *encoder, id_list *ids, const char **cold) {
    avo_error *error = &request->error;
    if (request->timeline == NULL)
        AVO_TRY(prepare_tokens(request, encoder, ids));
    AVO_TRY(take_adapters(request, cold, error));
    if (*cold != NULL)
        return AVO_OK;
    AVO_TRY(take_grammar(request, error));
    key_adapters(request);
    request_forget_prompt(request);
    return AVO_OK;
}

/* The lock is held. */
static void hand_over(avo_scheduler *s, request *request, const char *cold, avo_status status) {
    if (status != AVO_OK) {
        request_over(request, ENDED_FAILED);
        return;
    }
    if (request->cancelled || s->closing) {
        request->finish = AVO_FINISH_CANCELLED;
        request_over(request, ENDED_FINISHED);
        return;
    }
    if (request_late(request)) {
        request_expire(request);
        return;
    }
    if (cold != NULL) {
        if (opening_park(request, cold, &request->error) != AVO_OK)
            request_over(request, ENDED_FAILED);
        return;
    }
    s->waiting_tokens += request->capacity - request->charge;
    if (request->capacity < request->charge)
        pthread_cond_broadcast(&s->gone_cond); /* that may be room for somebody */
    request->charge = request->capacity;
    request->state = REQUEST_INBOX;
    list_append(&s->inbox, request);
    pthread_cond_signal(&s->engine_cond);
}

void *tokenizer_main(void *context) {
    avo_scheduler *s = context;
    const avo_model *model = s->engine_limits.model;
    encoder *encoder = NULL; /* without one, each text gets its own */
    if (model->tokenizer != NULL && encoder_open(model->tokenizer, &encoder, NULL) == AVO_OK)
        encoder_use(encoder, s->encodings);
    id_list ids;
    id_list_init(&ids, s->allocator);
    pthread_mutex_lock(&s->lock);
    telemetry_track *track = s->tokenizer_track[s->tokenizers_begun++];
    for (;;) {
        request *request = list_take(s->resumed.first != NULL ? &s->resumed : &s->pending);
        if (request == NULL && s->ending)
            break;
        if (request == NULL) {
            pthread_cond_wait(&s->pending_cond, &s->lock);
            continue;
        }
        request->state = REQUEST_PREPARING;
        bool wanted = !request->cancelled && !s->closing;
        pthread_mutex_unlock(&s->lock);
        uint64_t begin = clock_thread_ns(), begin_ns = clock_now_ns();
        bool prepares = wanted && !request_late(request);
        const char *cold = NULL;
        avo_status status = prepares ? prepare(request, encoder, &ids, &cold) : AVO_OK;
        double seconds = clock_seconds(begin, clock_thread_ns());
        if (prepares && status == AVO_OK && cold == NULL)
            note_tokenised(request, track, begin_ns);
        request->prepare_ns += clock_now_ns() - begin_ns;
        pthread_mutex_lock(&s->lock);
        s->info.tokenizer_seconds += seconds;
        if (!wanted)
            request->cancelled = true;
        hand_over(s, request, cold, status);
    }
    pthread_mutex_unlock(&s->lock);
    id_list_free(&ids);
    encoder_close(encoder);
    return NULL;
}
