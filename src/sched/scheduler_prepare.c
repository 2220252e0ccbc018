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

static avo_status take_answer_room(job *job, avo_error *error) {
    size_t answer = job->capacity - job->prompt_tokens;
    uint32_t wanted = job->sampling.top_logprobs;
    uint32_t vocabulary = job->scheduler->engine_limits.vocabulary;
    job->top_stride = wanted < vocabulary ? wanted : vocabulary;
    job->timeline = arena_take_array(&job->arena, job->capacity, sizeof(int32_t));
    job->logprobs = arena_take_array(&job->arena, answer + 1, sizeof(float));
    if (job->top_stride > 0 && answer > 0)
        job->tops = arena_take_array(&job->arena, answer * job->top_stride, sizeof(avo_logprob));
    bool stops = job->sequence.stops != NULL;
    if (stops)
        job->released = arena_take_array(&job->arena, answer + 1, sizeof(uint32_t));
    if (job->timeline == NULL || job->logprobs == NULL || (stops && job->released == NULL) ||
        (job->top_stride > 0 && answer > 0 && job->tops == NULL))
        return status_no_memory(error, "an answer", job->capacity * sizeof(int32_t));
    return job_take_score_room(job, error);
}

/* As many tokens as avo_generate would draw at most: the last one need not be computed. */
static avo_status take_tokens(job *job, const int32_t *tokens, size_t count, avo_error *error) {
    avo_scheduler *s = job->scheduler;
    if (count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the prompt is empty");
    AVO_TRY(job_check_length(s, count, job->given.no_answer, error));
    job->prompt_tokens = (uint32_t)count;
    uint32_t most = s->context - job->prompt_tokens + 1;
    uint32_t wanted = job->given.max_new_tokens;
    job->capacity = job->prompt_tokens;
    if (!job->given.no_answer)
        job->capacity += wanted == 0 || wanted > most ? most : wanted;
    AVO_TRY(take_answer_room(job, error));
    memcpy(job->timeline, tokens, count * sizeof(*tokens));
    return AVO_OK;
}

/* ---- Adapters ---- */

/* Adapters that the caller has opened, whose files may have been written over since. This is looked
 * at once, here: whoever has begun goes on, and the engine thread asks no file system. */
static avo_status check_handles(const job *job, avo_error *error) {
    for (size_t i = 0; i < job->use_count; i++)
        AVO_TRY(adapter_check_file(job->uses[i].adapter, error));
    return AVO_OK;
}

/* *cold: the first one that must be opened before this can go on; NULL: all are there. */
static avo_status take_adapters(job *job, const char **cold, avo_error *error) {
    const avo_request *given = &job->given;
    for (; job->named_taken < given->named_adapter_count; job->named_taken++) {
        const avo_named_adapter *named = &given->named_adapters[job->named_taken];
        avo_adapter *adapter = NULL;
        AVO_TRY(model_registry_take_open(job->scheduler->options.registry, named->name, &adapter,
                                         error));
        if (adapter == NULL) {
            *cold = named->name;
            return AVO_OK;
        }
        job->uses[job->use_count++] = (avo_adapter_use){adapter, named->weight};
    }
    return AVO_OK;
}

/* Requests with the same adapters and weights go together, in whatever order they name them. */
static void key_adapters(job *job) {
    uint64_t sum = 0;
    for (size_t i = 0; i < job->use_count; i++) {
        const adapter_view *view = &job->uses[i].adapter->view;
        struct {
            uint64_t digest[2];
            float weight, padding;
        } key = {{view->digest[0], view->digest[1]}, job->uses[i].weight, 0.0f};
        sum += hash_bytes(&key, sizeof(key));
    }
    job->adapter_key = job->use_count > 0 && sum == 0 ? 1 : sum;
}

/* ---- Grammars ---- */

/* Compiling takes longer than tokenising: a request that is refused has not had it done. */
static avo_status take_grammar(job *job, avo_error *error) {
    avo_request *given = &job->given;
    if (given->open_grammar == NULL)
        return AVO_OK;
    AVO_TRY(given->open_grammar(given->open_grammar_context, &given->grammar, error));
    if (given->grammar == NULL) /* an answer that shall be bound is never free */
        return status_fail(error, AVO_ERROR_ARGUMENT, "open_grammar gave no grammar");
    return grammar_check(given->grammar, job->scheduler->engine_limits.model, error);
}

/* ---- The thread ---- */

static avo_status prepare_tokens(job *job, encoder *encoder, id_list *ids) {
    avo_error *error = &job->error;
    const avo_request *given = &job->given;
    if (given->tokens != NULL) {
        AVO_TRY(take_tokens(job, given->tokens, given->token_count, error));
    } else {
        ids->count = 0;
        AVO_TRY(request_encode(given, &job->chat, job->scheduler->engine_limits.model, encoder, ids,
                               error));
        AVO_TRY(take_tokens(job, ids->ids, ids->count, error));
    }
    return check_handles(job, error);
}

/* From where it was parked, if it was; *cold: what it must wait for now. */
static avo_status prepare(job *job, encoder *encoder, id_list *ids, const char **cold) {
    avo_error *error = &job->error;
    if (job->timeline == NULL)
        AVO_TRY(prepare_tokens(job, encoder, ids));
    AVO_TRY(take_adapters(job, cold, error));
    if (*cold != NULL)
        return AVO_OK;
    AVO_TRY(take_grammar(job, error));
    key_adapters(job);
    job_forget_prompt(job);
    return AVO_OK;
}

/* The lock is held. */
static void hand_over(avo_scheduler *s, job *job, const char *cold, avo_status status) {
    if (status != AVO_OK) {
        job_over(job, JOB_ENDS_FAILED);
        return;
    }
    if (job->cancelled || s->closing) {
        job->finish = AVO_FINISH_CANCELLED;
        job_over(job, JOB_ENDS_FINISHED);
        return;
    }
    if (job_late(job)) {
        job_expire(job);
        return;
    }
    if (cold != NULL) {
        if (opening_park(job, cold, &job->error) != AVO_OK)
            job_over(job, JOB_ENDS_FAILED);
        return;
    }
    s->waiting_tokens += job->capacity - job->charge;
    if (job->capacity < job->charge)
        pthread_cond_broadcast(&s->gone_cond); /* that may be room for somebody */
    job->charge = job->capacity;
    job->state = JOB_INBOX;
    list_append(&s->inbox, job);
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
        job *job = list_take(s->resumed.first != NULL ? &s->resumed : &s->pending);
        if (job == NULL && s->ending)
            break;
        if (job == NULL) {
            pthread_cond_wait(&s->pending_cond, &s->lock);
            continue;
        }
        job->state = JOB_PREPARING;
        bool wanted = !job->cancelled && !s->closing;
        pthread_mutex_unlock(&s->lock);
        uint64_t begin = clock_thread_ns(), begin_ns = clock_now_ns();
        bool prepares = wanted && !job_late(job);
        const char *cold = NULL;
        avo_status status = prepares ? prepare(job, encoder, &ids, &cold) : AVO_OK;
        double seconds = clock_seconds(begin, clock_thread_ns());
        if (prepares && status == AVO_OK && cold == NULL)
            note_tokenised(job, track, begin_ns);
        job->prepare_ns += clock_now_ns() - begin_ns;
        pthread_mutex_lock(&s->lock);
        s->info.tokenizer_seconds += seconds;
        if (!wanted)
            job->cancelled = true;
        hand_over(s, job, cold, status);
    }
    pthread_mutex_unlock(&s->lock);
    id_list_free(&ids);
    encoder_close(encoder);
    return NULL;
}
