/* The differentiable model gives the same bits as serving, and the same for any number of threads
 * and any division into calls. AVO_TEST_THREADS
 * Tokens sampled by avo_generate and by a scheduler, with the adapter as it is after several
 * changes, have the log-probabilities that train_forward computes; so have those of full tuning. */
#include "support/support.h"

#include "avocet/scheduler.h"
#include "support/models.h"
#include "train/core_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT    9
#define ANSWER    24
#define LENGTH    (PROMPT + ANSWER)
#define ROLLOUTS  3
#define CHANGES   2
#define SEQUENCES 3

static const char *const all_linear[] = {"all-linear"};

static train_core_options core_options(const char *device, uint32_t threads) {
    train_core_options options = {.method = TRAIN_LORA,
                                  .rank = 4,
                                  .alpha = 8.0,
                                  .targets = all_linear,
                                  .target_count = 1,
                                  .seed = 3,
                                  .rows_max = SEQUENCES * LENGTH,
                                  .sequences_max = SEQUENCES,
                                  .context_max = LENGTH,
                                  .engine = AVO_ENGINE_OPTIONS_INIT};
    options.engine.device = test_device(device);
    options.engine.threads = threads;
    return options;
}

static avo_model *open_model(const char *name) {
    char path[256];
    avo_error error = {0};
    avo_model *model;
    snprintf(path, sizeof(path), "models/%s", name);
    assert_ok_error(avo_model_open(test_fixture_path(path), NULL, &model, &error), &error);
    return model;
}

static train_core *open_core(const avo_model *model, const train_core_options *options) {
    train_core *core;
    avo_error error = {0};
    assert_ok_error(train_core_open(model, options, &core, &error), &error);
    return core;
}

/* A change as an optimizer makes it, the same for everybody who asks with this number. */
static void change(train_core *core, uint32_t number, float size) {
    const train_parameters *p = train_core_parameters(core);
    avo_error error = {0};
    uint32_t state = 1 + number;
    for (uint32_t i = 0; i < p->count; i++)
        for (size_t j = 0; j < (size_t)p->item[i].rows * p->item[i].k; j++) {
            state = state * 1664525u + 1013904223u;
            p->item[i].value[j] += size * ((float)(state >> 8) * 0x1p-23f - 1.0f);
        }
    assert_ok_error(train_core_changed(core, &error), &error);
}

static uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

/* ---- Serving ---- */

typedef struct rollout {
    int32_t tokens[LENGTH];
    float logprobs[LENGTH];
    uint32_t count;
} rollout;

static bool take_event(void *context, const avo_event *event) {
    rollout *all = context;
    if (event->kind == AVO_EVENT_FAILED)
        fail_msg("%s", event->error->text);
    if (event->kind != AVO_EVENT_TOKEN)
        return true;
    rollout *own = &all[event->index];
    own->tokens[own->count] = event->token->token;
    own->logprobs[own->count++] = event->token->logprob;
    return true;
}

static void set_prompt(rollout *own, uint32_t vocabulary) {
    for (uint32_t i = 0; i < PROMPT; i++)
        own->tokens[i] = (int32_t)((i * 7 + 5) % vocabulary);
    own->count = PROMPT;
}

static avo_request request_of(const rollout *own, const avo_sampling *sampling) {
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = own->tokens;
    request.token_count = PROMPT;
    request.max_new_tokens = ANSWER;
    request.sampling = sampling;
    request.ignore_end = true;
    request.on_event = take_event;
    return request;
}

static void generate(train_core *core, avo_sampling *sampling, rollout *own) {
    avo_adapter_use use = {train_core_adapter(core), 1.0f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = &use;
    options.adapter_count = use.adapter == NULL ? 0 : 1;
    avo_session *session;
    avo_result result = AVO_RESULT_INIT;
    avo_error error = {0};
    assert_ok_error(avo_session_open(train_core_engine(core), &options, &session, &error), &error);
    size_t reused;
    assert_ok_error(avo_session_reuse(session, own->tokens, PROMPT, &reused, &error), &error);
    avo_request request = request_of(own, sampling);
    request.tokens += reused;
    request.token_count -= reused;
    request.on_event_context = own;
    assert_ok_error(avo_generate(train_core_engine(core), session, &request, &result, &error),
                    &error);
    avo_session_close(session);
}

static void schedule(train_core *core, const avo_sampling *sampling, rollout *all) {
    avo_adapter_use use = {train_core_adapter(core), 1.0f};
    avo_scheduler_options options = AVO_SCHEDULER_OPTIONS_INIT;
    avo_scheduler *scheduler;
    avo_error error = {0};
    assert_ok_error(avo_scheduler_open(train_core_engine(core), &options, &scheduler, &error),
                    &error);
    avo_request requests[ROLLOUTS];
    avo_sampling own[ROLLOUTS];
    for (uint32_t i = 0; i < ROLLOUTS; i++) {
        own[i] = *sampling;
        own[i].seed = i;
        requests[i] = request_of(&all[i], &own[i]);
        requests[i].adapters = &use;
        requests[i].adapter_count = use.adapter == NULL ? 0 : 1;
    }
    assert_ok_error(
        avo_scheduler_batch(scheduler, requests, ROLLOUTS, NULL, take_event, all, &error), &error);
    avo_scheduler_close(scheduler);
}

/* Every answer once more through train_forward, all in one call. */
static void compare(train_core *core, const rollout *all, uint32_t count, const char *what) {
    train_sequence sequences[ROLLOUTS];
    uint8_t wanted[LENGTH] = {0};
    float logprobs[ROLLOUTS * LENGTH], entropies[ROLLOUTS * LENGTH];
    avo_error error = {0};
    memset(wanted + PROMPT, 1, ANSWER);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(all[i].count, LENGTH);
        sequences[i] = (train_sequence){all[i].tokens, LENGTH, wanted};
    }
    assert_ok_error(train_forward(core, sequences, count, TRAIN_PASS_LEARN,
                                  &(train_scores){.logprobs = logprobs, .entropies = entropies},
                                  &error),
                    &error);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < LENGTH; j++) {
            float found = logprobs[i * LENGTH + j];
            float served = j < PROMPT ? 0.0f : all[i].logprobs[j];
            if (bits_of(found) != bits_of(served))
                fail_msg("%s, rollout %u, token %u: %.9g, served with %.9g", what, i, j,
                         (double)found, (double)served);
            assert_true(j < PROMPT ? entropies[i * LENGTH + j] == 0.0f
                                   : entropies[i * LENGTH + j] > 0.0f);
        }
}

static void serve_and_compare(train_core *core, uint32_t vocabulary) {
    avo_sampling sampling = AVO_SAMPLING_INIT;
    rollout one, all[ROLLOUTS];
    set_prompt(&one, vocabulary);
    generate(core, &sampling, &one);
    compare(core, &one, 1, "greedy");
    sampling.temperature = 1.0f;
    sampling.seed = 8;
    set_prompt(&one, vocabulary);
    generate(core, &sampling, &one);
    compare(core, &one, 1, "sampled");
    for (uint32_t i = 0; i < ROLLOUTS; i++)
        set_prompt(&all[i], vocabulary);
    schedule(core, &sampling, all);
    compare(core, all, ROLLOUTS, "scheduled");
}

static uint32_t vocabulary_of(const avo_model *model) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    return info.vocabulary;
}

static void as_served(void **state) {
    (void)state;
    static const char *const names[] = {"smollm2", "llama2.gguf", "gemma3"};
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
        for (size_t i = 0; i < isas.count; i++) {
            avo_model *model = open_model(names[n]);
            train_core_options options = core_options(isas.name[i], 2);
            options.dora = n == 1;
            train_core *core = open_core(model, &options);
            for (uint32_t round = 0; round < CHANGES; round++) {
                change(core, round, 0.05f);
                serve_and_compare(core, vocabulary_of(model));
            }
            train_core_close(core);
            avo_model_close(model);
        }
}

/* Full tuning: what was cached of the old weights is not found again. */
static void full_as_served(void **state) {
    (void)state;
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t i = 0; i < isas.count && !test_device_is_remote(); i++) {
        avo_model *model = open_model("gemma3");
        train_core_options options = core_options(isas.name[i], 2);
        options.method = TRAIN_FULL;
        train_core *core = open_core(model, &options);
        for (uint32_t round = 0; round < CHANGES; round++) {
            serve_and_compare(core, vocabulary_of(model));
            change(core, round, 0.01f);
        }
        serve_and_compare(core, vocabulary_of(model));
        train_core_close(core);
        avo_model_close(model);
    }
}

/* ---- Threads and calls ---- */

typedef struct gradient_run {
    uint32_t threads;
    bool alone; /* every sequence in a call of its own */
} gradient_run;

typedef struct run_case {
    const char *model;
    train_method method;
    bool dora, bfloat16, head;
} run_case;

/* All gradients of three sequences of different lengths, of which some tokens count. */
static float *gradients_of(const run_case *c, const gradient_run *run, uint64_t *count) {
    static const char *const with_head[] = {"q_proj", "down_proj", "lm_head"};
    avo_model *model = open_model(c->model);
    train_core_options options = core_options(NULL, run->threads);
    options.method = c->method;
    options.dora = c->dora;
    options.bfloat16 = c->bfloat16;
    if (c->head) {
        options.targets = with_head;
        options.target_count = 3;
    }
    train_core *core = open_core(model, &options);
    change(core, 5, 0.05f);
    int32_t tokens[SEQUENCES][LENGTH];
    uint8_t wanted[SEQUENCES][LENGTH];
    train_sequence sequences[SEQUENCES];
    float logprobs[SEQUENCES * LENGTH], coefficients[SEQUENCES * LENGTH];
    avo_error error = {0};
    size_t at = 0;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t length = LENGTH - 5 * i;
        for (uint32_t j = 0; j < length; j++) {
            tokens[i][j] = (int32_t)((i * 31 + j * 13 + 2) % vocabulary_of(model));
            wanted[i][j] = j > 3 + i && j % 4 != 1;
            coefficients[at++] = wanted[i][j] ? 0.25f - 0.125f * (float)(j % 5) : 0.0f;
        }
        sequences[i] = (train_sequence){tokens[i], length, wanted[i]};
    }
    train_core_clear(core);
    at = 0;
    for (uint32_t i = 0; i < SEQUENCES; i += run->alone ? 1 : SEQUENCES) {
        uint32_t calls = run->alone ? 1 : SEQUENCES;
        assert_ok_error(train_forward(core, sequences + i, calls, TRAIN_PASS_LEARN,
                                      &(train_scores){.logprobs = logprobs}, &error),
                        &error);
        assert_ok_error(train_backward(core, coefficients + at, &error), &error);
        at += sequences[i].count;
    }
    const train_parameters *p = train_core_parameters(core);
    float *all = malloc(p->numbers * sizeof(float)), *to = all;
    assert_non_null(all);
    for (uint32_t i = 0; i < p->count; i++) {
        size_t numbers = (size_t)p->item[i].rows * p->item[i].k;
        memcpy(to, p->item[i].gradient, numbers * sizeof(float));
        to += numbers;
    }
    *count = p->numbers;
    train_core_close(core);
    avo_model_close(model);
    return all;
}

static void same_bits(void **state) {
    (void)state;
    static const run_case cases[] = {{"smollm2", TRAIN_LORA, false, false, false},
                                     {"qwen2", TRAIN_LORA, true, true, false},
                                     {"tinyllama", TRAIN_LORA, false, false, true},
                                     {"gemma3", TRAIN_FULL, false, false, false},
                                     {"opt-350m", TRAIN_FULL, false, true, false}};
    static const gradient_run runs[] = {{1, false}, {2, false}, {3, false}, {2, true}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        if (cases[c].method == TRAIN_FULL && test_device_is_remote())
            continue;
        uint64_t count, again;
        float *first = gradients_of(&cases[c], &runs[0], &count);
        double size = 0.0;
        for (uint64_t i = 0; i < count; i++)
            size += fabs((double)first[i]);
        assert_true(isfinite(size) && size > 0.0);
        for (size_t i = 1; i < sizeof(runs) / sizeof(runs[0]); i++) {
            float *other = gradients_of(&cases[c], &runs[i], &again);
            assert_true(again == count);
            if (memcmp(first, other, count * sizeof(float)) != 0)
                fail_msg("%s: %u threads, %s: other gradients", cases[c].model, runs[i].threads,
                         runs[i].alone ? "one by one" : "together");
            free(other);
        }
        free(first);
    }
}

/* Blocks of attention have as many rows whatever the longest sample is: dk and dv are summed over
 * blocks, so that another division would give other bits. A block's floats are heads × rows ×
 * context. */
static void blocks_do_not_depend_on_data(void **state) {
    (void)state;
    static const uint32_t heads[] = {1, 9, 16, 32, 64, 96, 1024};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        layer_view layer = {.heads = heads[i]};
        model_view view = {.layers = 1, .layer = &layer};
        size_t of_one = train_attention_floats(&view, 1);
        assert_true(of_one / heads[i] >= 8 && of_one / heads[i] <= 128);
        for (uint32_t context = 2; context <= 1u << 18; context *= 4)
            assert_true(train_attention_floats(&view, context) == of_one * context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_served), cmocka_unit_test(full_as_served), cmocka_unit_test(same_bits),
        cmocka_unit_test(blocks_do_not_depend_on_data)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
