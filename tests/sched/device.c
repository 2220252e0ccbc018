/* The scheduler on a device that fails now and then: a request whose step failed ends with the
 * device's error, every other one with the answer it has alone, and the engine goes on. Requests
 * are of every kind that asks a device for something else: the highest logits, all of them, those
 * of a prompt, hidden states. AVO_TEST_THREADS */
#include "support/support.h"

#include "support/heads.h"

#include <avocet.h>
#include <stdio.h>
#include <string.h>

#define REQUESTS 24
#define ANSWER   10
#define PROMPT   37
#define WIDTH    256 /* at least the model's */

typedef enum kind { GREEDY, FLAT, SCORED, MEAN, LAST, KINDS } kind;

typedef struct outcome {
    int32_t token[ANSWER];
    uint32_t count;
    float logprob[PROMPT];
    uint32_t logprobs;
    float embedding[WIDTH];
    uint32_t width;
    unsigned ends;
    avo_status status;
    char text[AVO_ERROR_TEXT_MAX];
} outcome;

static bool take_event(void *context, const avo_event *event) {
    outcome *own = (outcome *)context + event->index;
    switch (event->kind) {
    case AVO_EVENT_TOKEN:
        if (event->token->token >= 0 && own->count < ANSWER)
            own->token[own->count++] = event->token->token;
        break;
    case AVO_EVENT_PROMPT:
        assert_true(own->logprobs < PROMPT);
        own->logprob[own->logprobs++] = event->token->index == 0 ? 0.0f : event->token->logprob;
        break;
    case AVO_EVENT_FINISHED:
        own->ends++;
        own->width = event->result->embedding == NULL ? 0 : event->result->embedding_width;
        assert_true(own->width <= WIDTH);
        for (uint32_t i = 0; i < own->width; i++)
            own->embedding[i] = event->result->embedding[i];
        break;
    case AVO_EVENT_FAILED:
        own->ends++;
        own->status = event->error->status;
        snprintf(own->text, sizeof(own->text), "%s", event->error->text);
        break;
    case AVO_EVENT_PREFILL:
        break;
    }
    return true;
}

/* Several that need all logits meet in a step: where this fails for one, the others learn it. */
static kind kind_of(uint32_t i) {
    return i % 2 == 1 ? FLAT : (kind)(i / 2 % KINDS);
}

static avo_request request_of(uint32_t i, const int32_t *prompt) {
    /* Too flat for the highest logits to decide. */
    static avo_sampling flat = AVO_SAMPLING_INIT;
    flat.temperature = 50.0f;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = prompt;
    request.token_count = PROMPT;
    request.max_new_tokens = ANSWER;
    request.ignore_end = true;
    switch (kind_of(i)) {
    case FLAT:
        request.sampling = &flat;
        break;
    case SCORED:
        request.prompt_logprobs = true;
        break;
    case MEAN:
    case LAST:
        request.no_answer = true;
        request.max_new_tokens = 0;
        request.pooling = kind_of(i) == MEAN ? AVO_POOLING_MEAN : AVO_POOLING_LAST;
        break;
    default:
        break;
    }
    return request;
}

static void run_all(const avo_model *model, const char *device, const char *cores,
                    outcome outcomes[REQUESTS]) {
    avo_error error = {0};
    avo_engine *engine;
    avo_scheduler *scheduler;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.threads = 2;
    options.context_max = 64;
    options.sessions_max = 6;
    options.rows_max = 48;
    options.streams = cores == NULL ? 1 : 2;
    avo_heads *own_heads = test_heads_make(model, HEADS_EAGLE, 7);
    const avo_heads *heads[] = {own_heads};
    options.draft_heads = heads;
    options.draft_heads_count = 1;
    options.draft_controller = "fixed";
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    avo_scheduler_options own = AVO_SCHEDULER_OPTIONS_INIT;
    own.cores = cores;
    assert_ok_error(avo_scheduler_open(engine, &own, &scheduler, &error), &error);
    int32_t prompts[REQUESTS][PROMPT];
    avo_request requests[REQUESTS];
    for (uint32_t i = 0; i < REQUESTS; i++) {
        for (uint32_t j = 0; j < PROMPT; j++)
            prompts[i][j] = (int32_t)((i * 5 + j * 3) % 61);
        requests[i] = request_of(i, prompts[i]);
    }
    memset(outcomes, 0, REQUESTS * sizeof(*outcomes));
    assert_ok_error(
        avo_scheduler_batch(scheduler, requests, REQUESTS, NULL, take_event, outcomes, &error),
        &error);
    avo_scheduler_close(scheduler);
    avo_engine_close(engine);
    avo_heads_close(own_heads);
}

/* What it told is right; true: and whole. */
static bool answered(const outcome *got, const outcome *wanted) {
    assert_int_equal(got->ends, 1);
    assert_memory_equal(got->token, wanted->token, got->count * sizeof(int32_t));
    assert_memory_equal(got->logprob, wanted->logprob, got->logprobs * sizeof(float));
    if (got->status == AVO_OK) {
        assert_int_equal(got->count, wanted->count);
        assert_int_equal(got->logprobs, wanted->logprobs);
        assert_int_equal(got->width, wanted->width);
        assert_memory_equal(got->embedding, wanted->embedding, got->width * sizeof(float));
        return true;
    }
    assert_int_equal(got->status, AVO_ERROR_DEVICE);
    assert_non_null(strstr(got->text, "device remote: "));
    return false;
}

static bool all_seen(const unsigned failed[KINDS], const unsigned finished[KINDS]) {
    bool all = true;
    for (size_t k = 0; k < KINDS; k++)
        all = all && failed[k] > 0 && finished[k] > 0;
    return all;
}

static void a_failing_step_fails_its_requests_alone(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model;
    static outcome wanted[REQUESTS], got[REQUESTS];
    static const char *const cores[] = {NULL, "static"};
    assert_ok(avo_model_open(test_fixture_path("models/llama3.gguf"), NULL, &model, &error));
    run_all(model, "cpu", NULL, wanted);
    for (uint32_t i = 0; i < REQUESTS; i++)
        assert_string_equal(wanted[i].text, "");
    for (size_t c = 0; c < 2; c++) {
        unsigned failed[KINDS] = {0}, finished[KINDS] = {0};
        /* Which requests fail is chance; more rounds until some of every kind have. */
        for (uint32_t round = 0; round < 21 || (round < 400 && !all_seen(failed, finished));
             round++) {
            char device[32];
            snprintf(device, sizeof(device), "remote:every=%u", 11 + round * 7 % 81);
            run_all(model, device, cores[c], got);
            for (uint32_t i = 0; i < REQUESTS; i++) {
                bool whole = answered(&got[i], &wanted[i]);
                failed[kind_of(i)] += !whole;
                finished[kind_of(i)] += whole;
            }
        }
        for (size_t k = 0; k < KINDS; k++) {
            print_message("cores %s, kind %zu: %u requests failed with the device, %u were "
                          "answered\n",
                          cores[c] == NULL ? "mixed" : cores[c], k, failed[k], finished[k]);
        }
        assert_true(all_seen(failed, finished));
    }
    avo_model_close(model);
}

/* A device without threads of the host: streams run beside each other all the same. */
static void cores_need_no_threads(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    static outcome wanted[REQUESTS], got[REQUESTS];
    static const char *const cores[] = {NULL, "static", "adaptive"};
    assert_ok(avo_model_open(test_fixture_path("models/llama3.gguf"), NULL, &model, &error));
    run_all(model, "cpu", NULL, wanted);
    for (size_t c = 0; c < 3; c++) {
        run_all(model, "remote:opaque", cores[c], got);
        for (uint32_t i = 0; i < REQUESTS; i++)
            assert_memory_equal(got[i].token, wanted[i].token, sizeof(got[i].token));
    }
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = "remote:opaque";
    options.threads = 2;
    options.streams = 2;
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    avo_scheduler_options own = AVO_SCHEDULER_OPTIONS_INIT;
    own.cores = "static";
    own.prefill_threads = 1;
    assert_refused(avo_scheduler_open(engine, &own, &scheduler, &error), AVO_ERROR_ARGUMENT, &error,
                   "prefill_threads is 1, but the device has no threads");
    avo_engine_close(engine);
    options.device = "remote:single";
    assert_refused(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_ARGUMENT, &error,
                   "device remote computes one step at a time, streams is 2");
    options.streams = 1;
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    avo_engine_close(engine);
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_step_fails_its_requests_alone),
        cmocka_unit_test(cores_need_no_threads),
    };
    return cmocka_run_group_tests_name("sched/device", tests, NULL, NULL);
}
