/* The laboratory with many clients: through the scheduler, all prompts for each configuration. */
#include "bench/speculate_int.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "engine/draft_notes.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A request of one round: all prompts for one configuration. */
typedef struct client_request {
    struct round *round;
    size_t number; /* of the question */
    lab_answer answer;
    uint32_t tokens_max;
    avo_result result;
    avo_error error; /* status AVO_OK: it did not fail */
} client_request;

typedef struct round {
    lab *lab;
    avo_scheduler *scheduler;
    client_request *request; /* [prompts] */
    uint32_t iteration;
    pthread_mutex_t lock;
    pthread_cond_t ended_cond;
    uint32_t in_flight;
} round;

/* ---- Answers, which come from the thread that delivers ---- */

static bool keep_token(client_request *r, const avo_token_event *token) {
    if (token->token >= 0 && r->answer.count < r->tokens_max) {
        r->answer.ids[r->answer.count++] = token->token;
        r->answer.logprob += (double)token->logprob;
    }
    if (buffer_append(&r->answer.text, token->text, token->text_bytes) == AVO_OK)
        return true;
    (void)!status_no_memory(&r->error, "an answer", token->text_bytes);
    return false;
}

static bool on_event(void *context, const avo_event *event) {
    client_request *r = context;
    round *round = r->round;
    if (event->kind == AVO_EVENT_TOKEN)
        return keep_token(r, event->token);
    pthread_mutex_lock(&round->lock);
    if (event->kind == AVO_EVENT_FAILED)
        r->error = *event->error;
    else
        r->result = *event->result;
    round->in_flight--;
    pthread_cond_signal(&round->ended_cond);
    pthread_mutex_unlock(&round->lock);
    return true;
}

/* ---- A round ---- */

static bool go_on(lab *lab) {
    avo_progress_function progress = lab->options->progress;
    if (progress != NULL && !progress(NULL, "answers", lab->done, lab->total))
        lab->stopped = true;
    return !lab->stopped;
}

/* Until at most `most` requests are in flight. */
static void wait_for(round *round, uint32_t most) {
    pthread_mutex_lock(&round->lock);
    while (round->in_flight > most) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&round->ended_cond, &round->lock, &until);
    }
    pthread_mutex_unlock(&round->lock);
}

static avo_status submit(round *round, client_request *r, avo_error *error) {
    lab *lab = round->lab;
    avo_sampling sampling;
    avo_request request;
    char salt[48];
    /* Neither prefixes nor earlier answers of another configuration or iteration help. */
    snprintf(salt, sizeof(salt), "clients/%u/%u", round->iteration, lab->config);
    lab_request(lab, r->number, &sampling, &request);
    request.cache_salt = salt;
    request.on_event = on_event;
    request.on_event_context = r;
    pthread_mutex_lock(&round->lock);
    round->in_flight++;
    pthread_mutex_unlock(&round->lock);
    avo_status status = avo_scheduler_submit(round->scheduler, &request, NULL, NULL, error);
    if (status != AVO_OK) { /* it is not in flight */
        pthread_mutex_lock(&round->lock);
        round->in_flight--;
        pthread_mutex_unlock(&round->lock);
    }
    return status;
}

static avo_status send_all(round *round, avo_error *error) {
    lab *lab = round->lab;
    avo_status status = AVO_OK;
    for (size_t i = 0; i < lab->question_count && status == AVO_OK && !lab->stopped; i++) {
        client_request *r = &round->request[i];
        r->answer.count = 0;
        r->answer.logprob = 0;
        r->answer.text.size = 0;
        r->result = (avo_result)AVO_RESULT_INIT;
        r->error.status = AVO_OK;
        wait_for(round, lab->options->clients - 1);
        status = submit(round, r, error);
        lab->done += status == AVO_OK;
        if (!go_on(lab) && status == AVO_OK)
            status = status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
    }
    wait_for(round, 0); /* in any case: they write into the round */
    return status;
}

static avo_status sum_up(round *round, double seconds, avo_error *error) {
    lab *lab = round->lab;
    for (size_t i = 0; i < lab->question_count; i++) {
        const client_request *r = &round->request[i];
        if (r->error.status != AVO_OK)
            return status_fail(error, r->error.status, "prompt %zu: %s", i + 1, r->error.text);
        lab_sample *sample = lab_sample_at(lab, lab->questions[i].category, round->iteration);
        lab_taken taken = {.answer = &r->answer,
                           .number = i,
                           .iteration = round->iteration,
                           .seconds = r->result.decode_seconds,
                           .tokens = r->result.new_tokens > 0 ? r->result.new_tokens - 1 : 0};
        sample->seconds += i == 0 ? seconds : 0;
        sample->tokens += r->result.new_tokens;
        sample->drafted += r->result.drafted_tokens;
        sample->accepted += r->result.accepted_tokens;
        sample->resident_bytes += process_resident_bytes();
        sample->answers++;
        AVO_TRY(lab_take(lab, &taken, error));
    }
    return AVO_OK;
}

/* The engine is idle between two rounds, so the controller may change. */
static avo_status run_round(round *round, uint32_t iteration, uint32_t config, avo_error *error) {
    lab *lab = round->lab;
    lab->config = config;
    round->iteration = iteration;
    engine_draft_control(lab->engine, lab->options->config[config].controller);
    uint64_t begin = clock_now_ns();
    AVO_TRY(send_all(round, error));
    return sum_up(round, clock_seconds(begin, clock_now_ns()), error);
}

static avo_status run_rounds(round *round, avo_error *error) {
    const lab_options *options = round->lab->options;
    for (uint32_t iteration = 0; iteration < options->iterations; iteration++)
        for (uint32_t i = 0; i < options->configs; i++) {
            /* Who begins changes, but for the references in the first iteration. */
            uint32_t config = (i + iteration) % options->configs;
            AVO_TRY(run_round(round, iteration, config, error));
        }
    return AVO_OK;
}

/* ---- Opening ---- */

static avo_status open_requests(round *round, avo_error *error) {
    const lab *lab = round->lab;
    arena *arena = &lab->result->arena;
    uint32_t tokens = lab->options->new_tokens;
    round->request = arena_take_array(arena, lab->question_count, sizeof(client_request));
    if (round->request == NULL)
        return status_no_memory(error, "requests", lab->question_count * sizeof(client_request));
    for (size_t i = 0; i < lab->question_count; i++) {
        client_request *r = &round->request[i];
        *r = (client_request){.round = round, .number = i, .tokens_max = tokens};
        buffer_init(&r->answer.text, NULL, SIZE_MAX);
        r->answer.ids = arena_take_array(arena, tokens, sizeof(int32_t));
        if (r->answer.ids == NULL)
            return status_no_memory(error, "an answer", tokens * sizeof(int32_t));
    }
    return AVO_OK;
}

avo_status lab_run_clients(lab *lab, avo_error *error) {
    round round = {.lab = lab};
    avo_scheduler_options options = AVO_SCHEDULER_OPTIONS_INIT;
    pthread_mutex_init(&round.lock, NULL);
    pthread_cond_init(&round.ended_cond, NULL);
    avo_status status = open_requests(&round, error);
    AVO_THEN(status, avo_scheduler_open(lab->engine, &options, &round.scheduler, error));
    AVO_THEN(status, run_rounds(&round, error));
    avo_scheduler_close(round.scheduler);
    for (size_t i = 0; round.request != NULL && i < lab->question_count; i++)
        buffer_free(&round.request[i].answer.text);
    pthread_cond_destroy(&round.ended_cond);
    pthread_mutex_destroy(&round.lock);
    return status;
}
