/* The scheduler's delivery thread adds up the events of a query; the caller's thread
 * submits, waits, and hands complete items over. The lock guards `ended` and `failure`. */
#include "eval/ask.h"

#include "base/allocator.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <time.h>

#define OUTSTANDING_MAX   512 /* queries that were submitted and have not ended */
#define PREFIX_MIN        64  /* tokens that are worth computing before everything else */
#define WAIT_NS           200000000L
#define KV_TOKENS_DEFAULT 32768u /* at least two sequences */
#define PAGE_TOKENS       64     /* at least a KV page: what a session may need beyond its tokens */

typedef struct asking asking;

typedef struct asked {
    asking *run;
    uint64_t number; /* of the request; 0: not submitted */
    bool broken;     /* a logprob is no number, or the text found no memory */
    bool ended;      /* under the lock */
    eval_response response;
    buffer text;
} asked;

struct asking {
    const eval_task *task;
    const eval_items *items;
    const ask_options *options;
    const avo_allocator *allocator;
    asked *asked; /* [query_count] */
    asked prefix;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint32_t ended;
    avo_error failure; /* the first */
    uint32_t submitted;
};

/* ---- Events ---- */

static void end(asked *query, const avo_error *why) {
    asking *run = query->run;
    pthread_mutex_lock(&run->lock);
    query->ended = true;
    run->ended++;
    if (why != NULL && run->failure.status == AVO_OK)
        run->failure = *why;
    pthread_cond_signal(&run->cond);
    pthread_mutex_unlock(&run->lock);
}

static void finish(asked *query, const avo_result *result) {
    avo_error error = {.status = AVO_OK};
    if (query->broken)
        (void)!status_fail(&error, AVO_ERROR_MEMORY,
                           "an answer is broken: a log-probability is NaN, or there is no memory");
    else if (result->finish == AVO_FINISH_CANCELLED || result->finish == AVO_FINISH_DEADLINE)
        (void)!status_fail(&error, AVO_ERROR_CANCELLED, "cancelled");
    error.status = query->broken ? AVO_ERROR_MEMORY : error.status;
    query->response.tokens = result->new_tokens;
    query->response.text = buffer_text(&query->text);
    end(query, error.status != AVO_OK ? &error : NULL);
}

static bool on_event(void *context, const avo_event *event) {
    asked *query = context;
    const avo_token_event *token = event->token;
    switch (event->kind) {
    case AVO_EVENT_PROMPT:
        query->broken = query->broken || isnan(token->logprob) || token->top_count == 0;
        query->response.logprob += (double)token->logprob;
        query->response.greedy = query->response.greedy && token->top_count > 0 &&
                                 token->logprob >= token->top[0].logprob;
        break;
    case AVO_EVENT_TOKEN:
        query->broken =
            query->broken || buffer_append(&query->text, token->text, token->text_bytes) != AVO_OK;
        break;
    case AVO_EVENT_FINISHED:
        finish(query, event->result);
        break;
    case AVO_EVENT_FAILED:
        end(query, event->error);
        break;
    case AVO_EVENT_PREFILL:
        break;
    }
    return true;
}

/* ---- Submitting ---- */

static void open_asked(asking *run, asked *query) {
    *query = (asked){.run = run, .response = {.greedy = true}};
    buffer_init(&query->text, run->allocator, SIZE_MAX);
}

/* AVO_ERROR_FULL when the scheduler has no room now. */
static avo_status submit(asking *run, asked *query, const int32_t *tokens, uint32_t count,
                         uint32_t from, bool generates, avo_error *error) {
    avo_sampling sampling = AVO_SAMPLING_INIT;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = tokens;
    request.token_count = count;
    request.adapters = run->options->adapters;
    request.adapter_count = run->options->adapter_count;
    request.sampling = &sampling;
    request.on_event = on_event;
    request.on_event_context = query;
    if (generates) {
        request.max_new_tokens = run->task->max_tokens;
        request.stop = run->task->stop;
        request.stop_count = run->task->stops;
    } else {
        sampling.top_logprobs = 1;
        request.no_answer = true;
        request.prompt_logprobs = from < count;
        request.prompt_logprobs_from = from < count ? from : 0;
    }
    return avo_scheduler_submit(run->options->scheduler, &request, &query->number, NULL, error);
}

static uint32_t ended_count(asking *run, avo_error *failure) {
    pthread_mutex_lock(&run->lock);
    uint32_t ended = run->ended;
    *failure = run->failure;
    pthread_mutex_unlock(&run->lock);
    return ended;
}

/* As many as there is room for. */
static avo_status submit_more(asking *run, uint32_t *next, avo_error *error) {
    avo_error failure;
    while (*next < run->items->query_count &&
           run->submitted - ended_count(run, &failure) < OUTSTANDING_MAX &&
           failure.status == AVO_OK) {
        const eval_query *query = &run->items->query[*next];
        asked *asked = &run->asked[*next];
        open_asked(run, asked);
        avo_status status = submit(run, asked, query->tokens, query->count, query->from,
                                   run->task->kind == TASK_GENERATE, error);
        if (status == AVO_ERROR_FULL)
            return AVO_OK;
        AVO_TRY(status);
        run->submitted++;
        ++*next;
    }
    return AVO_OK;
}

/* Returns when another query has ended, or after a while. */
static void wait_for_end(asking *run, uint32_t known) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_NS;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&run->lock);
    int waited = 0;
    while (run->ended == known && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&run->cond, &run->lock, &until);
    pthread_mutex_unlock(&run->lock);
}

/* Tokens that all queries from `first` on begin with. The last of a query is not counted: it must
 * be computed anyway. */
static uint32_t common_prefix(const asking *run, uint32_t first) {
    const eval_query *query = run->items->query;
    uint32_t common = first < run->items->query_count ? query[first].count : 0;
    for (uint32_t i = first; i < run->items->query_count; i++) {
        uint32_t same = 0;
        while (same < common && same + 1 < query[i].count &&
               query[i].tokens[same] == query[first].tokens[same])
            same++;
        common = same;
    }
    return common;
}

/* Queries that are admitted together would each compute what they share: shots are computed first,
 * so that all find them in the prefix cache. */
static avo_status compute_prefix(asking *run, uint32_t first, avo_error *error) {
    uint32_t common = common_prefix(run, first);
    open_asked(run, &run->prefix);
    if (common < PREFIX_MIN || first + 1 >= run->items->query_count)
        return AVO_OK;
    AVO_TRY(
        submit(run, &run->prefix, run->items->query[first].tokens, common, common, false, error));
    run->submitted++;
    avo_error failure;
    while (ended_count(run, &failure) == 0)
        wait_for_end(run, 0);
    return AVO_OK;
}

/* ---- Handing over ---- */

static bool item_ended(asking *run, const eval_item *item) {
    bool all = true;
    pthread_mutex_lock(&run->lock);
    for (uint32_t i = 0; i < item->queries; i++)
        all = all && run->asked[item->first_query + i].ended;
    pthread_mutex_unlock(&run->lock);
    return all;
}

static avo_status hand_over(asking *run, uint32_t index, avo_error *error) {
    const eval_item *item = &run->items->item[index];
    eval_response responses[TASK_CHOICES_MAX];
    for (uint32_t i = 0; i < item->queries; i++)
        responses[i] = run->asked[item->first_query + i].response;
    avo_status status = run->options->take(run->options->take_context, index, responses, error);
    for (uint32_t i = 0; i < item->queries; i++)
        buffer_free(&run->asked[item->first_query + i].text);
    return status;
}

static avo_status report(asking *run, uint32_t done, avo_error *error) {
    const ask_options *options = run->options;
    if (options->progress == NULL ||
        options->progress(options->progress_context, "", done, run->items->count))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_CANCELLED, "cancelled after %u of %u documents", done,
                       run->items->count);
}

static avo_status ask_all(asking *run, avo_error *error) {
    uint32_t head = run->options->first_item;
    uint32_t next = head < run->items->count ? run->items->item[head].first_query : 0;
    if (head >= run->items->count)
        return report(run, head, error);
    AVO_TRY(compute_prefix(run, next, error));
    while (head < run->items->count) {
        avo_error failure;
        AVO_TRY(report(run, head, error));
        AVO_TRY(submit_more(run, &next, error));
        uint32_t ended = ended_count(run, &failure);
        if (failure.status != AVO_OK)
            return status_fail(error, failure.status, "%s", failure.text);
        uint32_t before = head;
        while (head < run->items->count && run->items->item[head].first_query < next &&
               item_ended(run, &run->items->item[head]))
            AVO_TRY(hand_over(run, head++, error));
        if (head == before)
            wait_for_end(run, ended);
    }
    return report(run, head, error);
}

/* Nothing may be told of queries whose memory has gone. */
static void cancel_all(asking *run) {
    avo_error failure;
    uint32_t ended = ended_count(run, &failure);
    for (uint32_t i = 0; ended < run->submitted && i < run->items->query_count; i++)
        if (run->asked[i].number != 0)
            (void)avo_scheduler_cancel(run->options->scheduler, run->asked[i].number);
    if (run->prefix.number != 0 && ended < run->submitted)
        (void)avo_scheduler_cancel(run->options->scheduler, run->prefix.number);
    while ((ended = ended_count(run, &failure)) < run->submitted)
        wait_for_end(run, ended);
}

avo_status eval_ask(const eval_task *task, const eval_items *items, const ask_options *options,
                    const avo_allocator *allocator, avo_error *error) {
    asking run = {.task = task, .items = items, .options = options, .allocator = allocator};
    run.asked = allocator_take_array(allocator, items->query_count, sizeof(asked));
    if (run.asked == NULL)
        return status_no_memory(error, "queries", items->query_count * sizeof(asked));
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.cond, &attributes);
    pthread_condattr_destroy(&attributes);
    avo_status status = ask_all(&run, error);
    cancel_all(&run);
    for (uint32_t i = 0; i < items->query_count; i++)
        buffer_free(&run.asked[i].text);
    pthread_cond_destroy(&run.cond);
    pthread_mutex_destroy(&run.lock);
    allocator_give(allocator, run.asked, items->query_count * sizeof(asked));
    return status;
}

void eval_ask_engine(const eval_task *task, const eval_items *items, uint32_t batch,
                     avo_engine_options *options) {
    uint64_t one = (uint64_t)items->tokens_max + PAGE_TOKENS;
    uint32_t most = items->query_count > 0 ? items->query_count : 1;
    options->sessions_max = batch < most ? batch : most;
    if (options->context_max == 0)
        options->context_max = items->tokens_max;
    if (options->kv_tokens == 0) {
        /* With less than all may need, those that find no page are preempted and go on later. */
        uint64_t all = one * (options->sessions_max + 1);
        options->kv_tokens = all < KV_TOKENS_DEFAULT ? all : KV_TOKENS_DEFAULT;
        if (options->kv_tokens < 2 * one)
            options->kv_tokens = 2 * one;
    }
    if (task->kind != TASK_GENERATE)
        options->speculate = "off";
}
