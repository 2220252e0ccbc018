/* The scheduler's delivery thread adds up the events of a query; the caller's thread
 * submits, waits, and hands complete items over. The lock guards what both of them use. */
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
#define NO_ITEM           UINT32_MAX
#define PAGE_TOKENS       64 /* at least a KV page: what a session may need beyond its tokens */

typedef struct asking asking;

typedef struct asked {
    asking *run;
    uint32_t item;   /* NO_ITEM: the prefix */
    uint64_t number; /* of the request; 0: not submitted */
    bool broken;     /* a logprob is no number, or the text found no memory */
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
    uint32_t ended;  /* queries, the prefix included */
    uint32_t *left;  /* [items.count] queries that have not ended */
    uint32_t *ready; /* [items.count] items all of whose queries have ended, in that order */
    uint32_t ready_count;
    avo_error failure;              /* the first */
    uint32_t submitted;             /* of the caller's thread, as all below */
    uint32_t next_item, next_query; /* to be submitted; the query counts within the item */
};

/* ---- Events ---- */

static void end(asked *query, const avo_error *why) {
    asking *run = query->run;
    pthread_mutex_lock(&run->lock);
    run->ended++;
    if (query->item != NO_ITEM && --run->left[query->item] == 0)
        run->ready[run->ready_count++] = query->item;
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

static void open_asked(asking *run, asked *query, uint32_t item) {
    *query = (asked){.run = run, .item = item, .response = {.greedy = true}};
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

static bool is_done(const asking *run, uint32_t item) {
    return run->options->done != NULL && run->options->done[item];
}

/* The next query, or NULL: there is none. */
static const eval_query *next_query(asking *run) {
    const eval_items *items = run->items;
    while (
        run->next_item < items->count &&
        (is_done(run, run->next_item) || run->next_query == items->item[run->next_item].queries)) {
        run->next_item++;
        run->next_query = 0;
    }
    return run->next_item == items->count
               ? NULL
               : &items->query[items->item[run->next_item].first_query + run->next_query];
}

/* As many as there is room for. */
static avo_status submit_more(asking *run, avo_error *error) {
    avo_error failure;
    const eval_query *query;
    while ((query = next_query(run)) != NULL &&
           run->submitted - ended_count(run, &failure) < OUTSTANDING_MAX &&
           failure.status == AVO_OK) {
        asked *asked = &run->asked[query - run->items->query];
        open_asked(run, asked, run->next_item);
        avo_status status = submit(run, asked, query->tokens, query->count, query->from,
                                   run->task->kind == TASK_GENERATE, error);
        if (status == AVO_ERROR_FULL)
            return AVO_OK;
        AVO_TRY(status);
        run->submitted++;
        run->next_query++;
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

/* Tokens that all queries begin with which are to be asked; *first is one of them, NULL where there
 * are fewer than two. The last token of a query is not counted: it must be computed anyway. */
static uint32_t common_prefix(const asking *run, const eval_query **first) {
    uint32_t common = 0, queries = 0;
    *first = NULL;
    for (uint32_t i = 0; i < run->items->count; i++)
        for (uint32_t k = 0; k < run->items->item[i].queries && !is_done(run, i); k++) {
            const eval_query *query = &run->items->query[run->items->item[i].first_query + k];
            uint32_t same = 0;
            if (queries++ == 0) {
                *first = query;
                common = query->count;
            }
            while (same < common && same + 1 < query->count &&
                   query->tokens[same] == (*first)->tokens[same])
                same++;
            common = same;
        }
    if (queries < 2)
        *first = NULL;
    return common;
}

/* Queries that are admitted together would each compute what they share: shots are computed first,
 * so that all find them in the prefix cache. */
static avo_status compute_prefix(asking *run, avo_error *error) {
    const eval_query *first;
    uint32_t common = common_prefix(run, &first);
    open_asked(run, &run->prefix, NO_ITEM);
    if (first == NULL || common < PREFIX_MIN)
        return AVO_OK;
    AVO_TRY(submit(run, &run->prefix, first->tokens, common, common, false, error));
    run->submitted++;
    avo_error failure;
    while (ended_count(run, &failure) == 0)
        wait_for_end(run, 0);
    return AVO_OK;
}

/* ---- Handing over ---- */

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

/* The item that became ready behind `taken` others, or NO_ITEM. */
static uint32_t ready_item(asking *run, uint32_t taken) {
    pthread_mutex_lock(&run->lock);
    uint32_t item = taken < run->ready_count ? run->ready[taken] : NO_ITEM;
    pthread_mutex_unlock(&run->lock);
    return item;
}

static avo_status ask_all(asking *run, avo_error *error) {
    uint32_t done = 0, taken = 0, item;
    for (uint32_t i = 0; i < run->items->count; i++) {
        run->left[i] = run->items->item[i].queries;
        done += is_done(run, i);
    }
    AVO_TRY(compute_prefix(run, error));
    while (done < run->items->count) {
        avo_error failure;
        AVO_TRY(report(run, done, error));
        AVO_TRY(submit_more(run, error));
        uint32_t ended = ended_count(run, &failure);
        if (failure.status != AVO_OK)
            return status_fail(error, failure.status, "%s", failure.text);
        uint32_t before = done;
        for (; (item = ready_item(run, taken)) != NO_ITEM; taken++, done++)
            AVO_TRY(hand_over(run, item, error));
        if (done == before)
            wait_for_end(run, ended);
    }
    return report(run, done, error);
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

static avo_status ask_with_lock(asking *run, avo_error *error) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->cond, &attributes);
    pthread_condattr_destroy(&attributes);
    avo_status status = ask_all(run, error);
    cancel_all(run);
    for (uint32_t i = 0; i < run->items->query_count; i++)
        buffer_free(&run->asked[i].text);
    pthread_cond_destroy(&run->cond);
    pthread_mutex_destroy(&run->lock);
    return status;
}

avo_status eval_ask(const eval_task *task, const eval_items *items, const ask_options *options,
                    const avo_allocator *allocator, avo_error *error) {
    asking run = {.task = task, .items = items, .options = options, .allocator = allocator};
    arena arena;
    arena_init(&arena, allocator, SIZE_MAX);
    run.asked = arena_take_array(&arena, items->query_count, sizeof(asked));
    run.left = arena_take_array(&arena, items->count, sizeof(uint32_t));
    run.ready = arena_take_array(&arena, items->count, sizeof(uint32_t));
    avo_status status = run.asked == NULL || run.left == NULL || run.ready == NULL
                            ? status_no_memory(error, "queries", items->query_count * sizeof(asked))
                            : ask_with_lock(&run, error);
    arena_free(&arena);
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
