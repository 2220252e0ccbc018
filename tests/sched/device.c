/* The scheduler on a device that fails now and then: a request whose step failed ends with the
 * device's error, every other one with the answer it has alone, and the engine goes on.
 * AVO_TEST_THREADS */
#include "support/support.h"

#include <avocet.h>
#include <stdio.h>
#include <string.h>

#define REQUESTS 24
#define ANSWER   10
#define PROMPT   37

typedef struct outcome {
    int32_t token[ANSWER];
    uint32_t count;
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
    case AVO_EVENT_FINISHED:
        own->ends++;
        break;
    case AVO_EVENT_FAILED:
        own->ends++;
        own->status = event->error->status;
        snprintf(own->text, sizeof(own->text), "%s", event->error->text);
        break;
    default:
        break;
    }
    return true;
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
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    avo_scheduler_options own = AVO_SCHEDULER_OPTIONS_INIT;
    own.cores = cores;
    assert_ok_error(avo_scheduler_open(engine, &own, &scheduler, &error), &error);
    int32_t prompts[REQUESTS][PROMPT];
    avo_request requests[REQUESTS];
    for (uint32_t i = 0; i < REQUESTS; i++) {
        for (uint32_t j = 0; j < PROMPT; j++)
            prompts[i][j] = (int32_t)((i * 5 + j * 3) % 61);
        requests[i] = (avo_request)AVO_REQUEST_INIT;
        requests[i].tokens = prompts[i];
        requests[i].token_count = PROMPT;
        requests[i].max_new_tokens = ANSWER;
        requests[i].ignore_end = true;
    }
    memset(outcomes, 0, REQUESTS * sizeof(*outcomes));
    assert_ok_error(
        avo_scheduler_batch(scheduler, requests, REQUESTS, NULL, take_event, outcomes, &error),
        &error);
    avo_scheduler_close(scheduler);
    avo_engine_close(engine);
}

static void a_failing_step_fails_its_requests_alone(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model;
    static outcome wanted[REQUESTS], got[REQUESTS];
    static const char *const cores[] = {NULL, "static"};
    assert_ok(avo_model_open(test_fixture_path("models/llama3.gguf"), NULL, &model, &error));
    run_all(model, "cpu", NULL, wanted);
    for (size_t c = 0; c < 2; c++) {
        unsigned failed = 0, finished = 0;
        for (uint32_t every = 11; every <= 61; every += 10) {
            char device[32];
            snprintf(device, sizeof(device), "remote:every=%u", every);
            run_all(model, device, cores[c], got);
            for (uint32_t i = 0; i < REQUESTS; i++) {
                assert_int_equal(got[i].ends, 1);
                assert_memory_equal(got[i].token, wanted[i].token, got[i].count * sizeof(int32_t));
                if (got[i].status == AVO_OK) {
                    assert_int_equal(got[i].count, ANSWER);
                    finished++;
                    continue;
                }
                assert_int_equal(got[i].status, AVO_ERROR_DEVICE);
                assert_non_null(strstr(got[i].text, "device remote: "));
                failed++;
            }
        }
        print_message("cores %s: %u requests failed with the device, %u were answered\n",
                      cores[c] == NULL ? "mixed" : cores[c], failed, finished);
        assert_true(failed > 0 && finished > 0);
    }
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_step_fails_its_requests_alone),
    };
    return cmocka_run_group_tests_name("sched/device", tests, NULL, NULL);
}
