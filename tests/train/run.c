/* Training runs on a tiny model: losses fall, runs that were stopped and resumed give the same
 * bytes, as do other numbers of threads and sizes of passes; what they write can be read; what
 * cannot be trained is refused by name. */
#include "support/support.h"

#include "base/file.h"
#include "device/layer.h"
#include "support/tiny_model.h"
#include "train/run_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    avo_model *model;
    char folder[512]; /* of this program */
    char texts[600], pairs[600], prompts[600];
    avo_error error;
} w;

static const char *in_folder(const char *name, char path[600]) {
    snprintf(path, 600, "%s/%s", w.folder, name);
    return path;
}

static void write_text(char path[600], const char *name, const char *text) {
    assert_ok_error(file_write(in_folder(name, path), text, strlen(text), &w.error), &w.error);
}

static int setup(void **state) {
    (void)state;
    snprintf(w.folder, sizeof(w.folder), "%s", test_scratch_folder());
    assert_ok_error(avo_model_open(tiny_model_write(w.folder, 3), NULL, &w.model, &w.error),
                    &w.error);
    write_text(w.texts, "texts.jsonl",
               "{\"text\": \"once upon a time\"}\n{\"text\": \"a dog ran\"}\n"
               "{\"text\": \"the dog sat on the mat\"}\n{\"text\": \"dogs\"}\n"
               "{\"text\": \"a cat and a dog\"}\n");
    write_text(w.pairs, "pairs.jsonl",
               "{\"prompt\": \"a\", \"chosen\": \" dog\", \"rejected\": \" bird\"}\n"
               "{\"prompt\": \"the\", \"chosen\": \" dog\", \"rejected\": \" cat sat\"}\n"
               "{\"prompt\": \"one\", \"chosen\": \" dog ran\", \"rejected\": \" ox\"}\n");
    write_text(w.prompts, "prompts.jsonl",
               "{\"prompt\": \"once\", \"answer\": \"x\"}\n{\"prompt\": \"a dog\"}\n"
               "{\"prompt\": \"upon\"}\n");
    return 0;
}

static int teardown(void **state) {
    (void)state;
    avo_model_close(w.model);
    return 0;
}

/* ---- Runs ---- */

typedef struct call {
    const char *task, *output, *settings;
    bool resume;
    uint64_t stop_at; /* the callback says no behind this step; 0: never */
    const avo_train_reward *rewards;
    size_t reward_count;
    double first_loss, last_loss, last_reward;
    uint32_t evaluations;
    const avo_allocator *allocator;
} call;

static bool on_step(void *context, const avo_train_event *event) {
    call *c = context;
    if (event->evaluation) {
        c->evaluations++;
        return true;
    }
    if (event->step == 1)
        c->first_loss = event->loss;
    c->last_loss = event->loss;
    c->last_reward = event->reward;
    assert_true(event->metrics[0] == '{' && strchr(event->metrics, '\n') == NULL);
    assert_non_null(strstr(event->metrics, "\"learning_rate\":"));
    return event->step != c->stop_at;
}

static avo_status train(call *c, avo_train_result *result) {
    avo_train_options options = AVO_TRAIN_OPTIONS_INIT;
    avo_train_result own = AVO_TRAIN_RESULT_INIT;
    char output[600];
    options.task = c->task;
    options.output = c->output == NULL ? NULL : in_folder(c->output, output);
    options.settings = c->settings;
    options.resume = c->resume;
    options.rewards = c->rewards;
    options.reward_count = c->reward_count;
    options.on_step = on_step;
    options.on_step_context = c;
    options.allocator = c->allocator;
    return avo_train_run(w.model, &options, result != NULL ? result : &own, &w.error);
}

/* Settings of a format with the path of the data. */
static const char *settings_of(char text[1024], const char *data, const char *rest) {
    snprintf(text, 1024, "{\"data\": \"%s\", \"rank\": 4, \"threads\": 2%s%s}", data,
             rest[0] != '\0' ? ", " : "", rest);
    return text;
}

static void assert_same_file(const char *a, const char *b, const char *name) {
    char path[600], whole[700];
    file_map maps[2];
    for (int i = 0; i < 2; i++) {
        snprintf(whole, sizeof(whole), "%s/%s", in_folder(i == 0 ? a : b, path), name);
        assert_ok_error(file_map_open(whole, &maps[i], &w.error), &w.error);
    }
    assert_int_equal(maps[0].bytes.size, maps[1].bytes.size);
    assert_memory_equal(maps[0].bytes.data, maps[1].bytes.data, maps[0].bytes.size);
    file_map_close(&maps[0]);
    file_map_close(&maps[1]);
}

static bool exists(const char *folder, const char *name) {
    char path[600], whole[700];
    snprintf(whole, sizeof(whole), "%s/%s", in_folder(folder, path), name);
    return file_kind_of(whole) != FILE_MISSING;
}

static void remove_file(const char *folder, const char *name) {
    char path[600], whole[700];
    snprintf(whole, sizeof(whole), "%s/%s", in_folder(folder, path), name);
    assert_int_equal(unlink(whole), 0);
}

#define ADAPTER "adapter_model.safetensors"

/* One run of ten steps; the same stopped at step `at` and resumed with other limits. */
static void stop_and_resume(call c, const char *whole, const char *parts, const char *settings,
                            const char *other_settings, uint64_t at) {
    avo_train_result result = AVO_TRAIN_RESULT_INIT;
    c.output = whole;
    c.settings = settings;
    assert_ok_error(train(&c, &result), &w.error);
    assert_int_equal(result.step, result.steps);
    c.output = parts;
    c.stop_at = at;
    assert_refused(train(&c, &result), AVO_ERROR_CANCELLED, &w.error, "continues with --resume");
    assert_int_equal(result.step, at);
    assert_true(exists(parts, ADAPTER)); /* usable as it is */
    c.stop_at = 0;
    assert_refused(train(&c, &result), AVO_ERROR_ARGUMENT, &w.error, "has a checkpoint of step");
    c.resume = true;
    c.settings = other_settings;
    assert_ok_error(train(&c, &result), &w.error);
    assert_int_equal(result.first_step, at);
    assert_same_file(whole, parts, ADAPTER);
    assert_same_file(whole, parts, "adapter_config.json");
    /* Everything is done: without the output, as after a kill behind the last checkpoint, it is
     * written again. */
    remove_file(parts, ADAPTER);
    remove_file(parts, "adapter_config.json");
    remove_file(parts, "trainer_state.json");
    remove_file(parts, "curves.svg");
    assert_ok_error(train(&c, &result), &w.error);
    assert_int_equal(result.first_step, result.steps);
    assert_true(isnan(result.loss)); /* no step was computed */
    assert_same_file(whole, parts, ADAPTER);
    assert_same_file(whole, parts, "adapter_config.json");
    assert_true(exists(parts, "trainer_state.json") && exists(parts, "curves.svg"));
}

static void sft(void **state) {
    (void)state;
    char settings[1024], other[1024];
    call c = {.task = "sft"};
    const char *rest =
        "\"steps\": 10, \"batch\": 3, \"lr\": 0.01, \"warmup\": 2, \"save_every\": 4,"
        "\"schedule\": \"cosine\", \"lora_plus\": 2, \"weight-decay\": 0.01";
    settings_of(settings, w.texts, rest);
    snprintf(other, sizeof(other),
             "{\"data\": \"%s\", \"rank\": 4, \"threads\": 1, \"rows\": 40, %s}", w.texts, rest);
    stop_and_resume(c, "sft-whole", "sft-parts", settings, other, 7);
    c.output = "sft-again";
    c.settings = settings;
    assert_ok_error(train(&c, NULL), &w.error);
    assert_true(c.last_loss < 0.7 * c.first_loss);
    assert_same_file("sft-whole", "sft-again", ADAPTER);
    assert_true(exists("sft-again", "checkpoint-10") && exists("sft-again", "checkpoint-8"));
    assert_false(exists("sft-again", "checkpoint-4")); /* two are kept */
    assert_true(exists("sft-again", "curves.svg") && exists("sft-again", "trainer_state.json"));
}

/* The adapter is one that adapters/ opens, and the model then prefers the texts. */
static void adapter_applies(void **state) {
    (void)state;
    char path[600];
    avo_adapter *adapter;
    avo_adapter_options options = AVO_ADAPTER_OPTIONS_INIT;
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    options.type = "f32";
    assert_ok_error(
        avo_adapter_open(w.model, in_folder("sft-whole", path), &options, &adapter, &w.error),
        &w.error);
    avo_adapter_describe(adapter, &info);
    assert_int_equal(info.rank_max, 4);
    assert_false(info.idle);
    assert_int_equal(info.modules_matched, info.modules_expected);
    avo_adapter_close(adapter);
    char settings[1024], rest[700];
    snprintf(rest, sizeof(rest), "\"steps\": 1, \"lr\": 0, \"adapter\": \"%s\", \"batch\": 5",
             path);
    call c = {.task = "sft", .output = "sft-more", .settings = settings};
    settings_of(settings, w.texts, rest);
    assert_ok_error(train(&c, NULL), &w.error);
    assert_true(c.first_loss < 5.0); /* of the untrained model: 10 */
    assert_same_file("sft-whole", "sft-more", ADAPTER);
}

static void evaluations(void **state) {
    (void)state;
    char settings[1024], rest[700];
    avo_train_result result = AVO_TRAIN_RESULT_INIT;
    call c = {.task = "sft", .output = "eval", .settings = settings};
    snprintf(rest, sizeof(rest),
             "\"steps\": 6, \"batch\": 2, \"lr\": 0.01, \"eval_every\": 2, \"valid\": \"%s\"",
             w.texts);
    settings_of(settings, w.texts, rest);
    assert_ok_error(train(&c, &result), &w.error);
    assert_int_equal(c.evaluations, 3);
    assert_int_equal(result.best_step, 6);
    assert_true(result.best_loss < 7.0);
    assert_true(exists("eval", "best/adapter_model.safetensors"));
    assert_same_file("eval", "eval/best", ADAPTER);
}

static void dpo(void **state) {
    (void)state;
    char settings[1024], other[1024];
    call c = {.task = "dpo"};
    const char *rest =
        "\"steps\": 10, \"batch\": 2, \"lr\": 0.005, \"no_template\": true, \"save_every\": 3";
    settings_of(settings, w.pairs, rest);
    snprintf(other, sizeof(other),
             "{\"data\": \"%s\", \"rank\": 4, \"threads\": 1, \"rows\": 64, %s}", w.pairs, rest);
    stop_and_resume(c, "dpo-whole", "dpo-parts", settings, other, 4);
    c.output = "dpo-again";
    c.settings = settings;
    assert_ok_error(train(&c, NULL), &w.error);
    assert_float_equal(c.first_loss, log(2.0), 1e-9);
    assert_true(c.last_loss < 0.5);
}

/* ---- Rewards ---- */

/* The share of vowels. */
static bool vowels(void *context, const avo_train_completion *items, size_t count, double *scores) {
    uint64_t *calls = context;
    ++*calls;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(items[i].completion), found = 0;
        for (size_t j = 0; j < length; j++)
            found += strchr("aeiou", items[i].completion[j]) != NULL;
        scores[i] = length > 0 ? (double)found / (double)length : 0.0;
        assert_true(items[i].fields[0] == '{' && strstr(items[i].fields, "prompt") != NULL);
        assert_true(strlen(items[i].prompt) > 0);
    }
    return true;
}

static bool broken(void *context, const avo_train_completion *items, size_t count, double *scores) {
    (void)items;
    for (size_t i = 0; i < count; i++)
        scores[i] = NAN;
    return context == NULL;
}

#define RL_REST                                                                                    \
    "\"steps\": 6, \"batch\": 2, \"group\": 6, \"answer\": 12, \"lr\": 0.004, \"rank\": 4,"        \
    "\"no_template\": true, \"save_every\": 2"

static void rl(void **state) {
    (void)state;
    static const char *const losses[] = {"grpo", "dr_grpo", "dapo", "rloo", "reinforce"};
    char settings[1024], other[1024], rest[512];
    uint64_t calls = 0;
    const avo_train_reward reward = {"vowels", 1.0, vowels, &calls};
    call c = {.task = "rl", .rewards = &reward, .reward_count = 1};
    snprintf(settings, sizeof(settings), "{\"data\": \"%s\", \"threads\": 2, %s}", w.prompts,
             RL_REST);
    snprintf(other, sizeof(other), "{\"data\": \"%s\", \"threads\": 1, \"rows\": 50, %s}",
             w.prompts, RL_REST);
    stop_and_resume(c, "rl-whole", "rl-parts", settings, other, 3);
    assert_int_equal(calls, 12);
    for (size_t i = 0; i < 5; i++) {
        char output[32];
        snprintf(output, sizeof(output), "rl-%s", losses[i]);
        snprintf(rest, sizeof(rest),
                 "\"loss\": \"%s\", \"beta\": 0.1, \"iterations\": 2, \"steps\": 2, \"batch\": 1,"
                 "\"group\": 4, \"answer\": 6, \"no_template\": true, \"lr\": 0.001",
                 losses[i]);
        c.output = output;
        c.settings = settings_of(settings, w.prompts, rest);
        assert_ok_error(train(&c, NULL), &w.error);
    }
}

/* All completions of a pass have room in the KV pool at once. */
static void completions_do_not_wait(void **state) {
    (void)state;
    const train_run_options options = {.engine = AVO_ENGINE_OPTIONS_INIT};
    avo_error error;
    train_run_state run;
    train_core_options core;
    run_init(&run, w.model, &options, &error);
    run.own_settings.task = TRAIN_RL;
    run.own_settings.batch = 4;
    run.own_settings.group = 8;
    run.rows_max = 1024;
    run.sequences_max = 20;
    run.context_max = 500;
    run_core_options(&run, &core);
    assert_true(core.engine.kv_tokens >= (uint64_t)20 * (500 + KV_PAGE_TOKENS));
    run.own_settings.group = 2; /* fewer completions than sequences */
    run_core_options(&run, &core);
    assert_true(core.engine.kv_tokens == (uint64_t)8 * (500 + KV_PAGE_TOKENS));
    run.own_settings.task = TRAIN_SFT;
    run_core_options(&run, &core);
    assert_true(core.engine.kv_tokens == 0); /* the core's choice */
}

/* With as many rewards as there may be, no metric is lost. */
static void all_rewards_are_recorded(void **state) {
    (void)state;
    char settings[1024], path[600], names[TRAIN_REWARDS_MAX][16], expected[64];
    avo_train_reward rewards[TRAIN_REWARDS_MAX];
    uint64_t calls = 0;
    for (size_t i = 0; i < TRAIN_REWARDS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "r%zu", i);
        rewards[i] = (avo_train_reward){names[i], 1.0, vowels, &calls};
    }
    call c = {.task = "rl", .rewards = rewards, .reward_count = TRAIN_REWARDS_MAX};
    c.output = "rl-rewards";
    c.settings = settings_of(settings, w.prompts,
                             "\"steps\": 1, \"batch\": 1, \"group\": 2, \"answer\": 2,"
                             "\"beta\": 0.1, \"no_template\": true");
    assert_ok_error(train(&c, NULL), &w.error);
    assert_int_equal(calls, TRAIN_REWARDS_MAX);
    file_map map;
    assert_ok_error(file_map_open(in_folder("rl-rewards/metrics.jsonl", path), &map, &w.error),
                    &w.error);
    snprintf(expected, sizeof(expected), "\"rewards/r%d/std\":", TRAIN_REWARDS_MAX - 1);
    static const char last[] = "\"step_time\":";
    assert_non_null(memmem(map.bytes.data, map.bytes.size, expected, strlen(expected)));
    assert_non_null(memmem(map.bytes.data, map.bytes.size, last, strlen(last)));
    file_map_close(&map);
}

/* Forty steps teach the tiny model to say vowels. */
static void reward_rises(void **state) {
    (void)state;
    char settings[1024];
    uint64_t calls = 0;
    const avo_train_reward reward = {"vowels", 1.0, vowels, &calls};
    call c = {.task = "rl", .rewards = &reward, .reward_count = 1, .output = "rl-rises"};
    c.settings = settings_of(settings, w.prompts,
                             "\"steps\": 40, \"batch\": 3, \"group\": 16, \"answer\": 8,"
                             "\"lr\": 0.01, \"no_template\": true");
    assert_ok_error(train(&c, NULL), &w.error);
    assert_true(c.last_reward > 0.5); /* about 0.1 at first */
}

/* ---- Refusals ---- */

static void refuse(const char *task, const char *settings, avo_status status, const char *text) {
    call c = {.task = task, .output = "refused", .settings = settings};
    assert_refused(train(&c, NULL), status, &w.error, text);
}

static void refusals(void **state) {
    (void)state;
    char s[1024];
    const avo_train_reward reward = {"broken", 1.0, broken, NULL};
    refuse("teach", NULL, AVO_ERROR_ARGUMENT, "must be sft, dpo, rl or pretrain");
    refuse("sft", NULL, AVO_ERROR_ARGUMENT, "missing data");
    refuse("sft", "{", AVO_ERROR_FORMAT, "settings: ");
    refuse("sft", "[]", AVO_ERROR_FORMAT, "must be a JSON object");
    refuse("sft", "{\"data\": 1}", AVO_ERROR_FORMAT, "data must be a string");
    refuse("sft", "{\"rnak\": 1}", AVO_ERROR_FORMAT, "unknown setting \"rnak\"");
    refuse("sft", "{\"group\": 4}", AVO_ERROR_FORMAT, "group is no setting of sft");
    refuse("sft", "{\"rank\": 0}", AVO_ERROR_FORMAT, "rank must be an integer from 1 to 256");
    refuse("sft", "{\"rank\": 257}", AVO_ERROR_FORMAT, "rank must be");
    refuse("sft", "{\"lr\": -1}", AVO_ERROR_FORMAT, "lr must be a number from 0 to 1000");
    refuse("sft", "{\"epsilon\": 0}", AVO_ERROR_FORMAT, "epsilon must be a number from 1e-12 to 1");
    refuse("sft", "{\"cut\": 1}", AVO_ERROR_FORMAT, "cut must be true or false");
    refuse("sft", "{\"schedule\": \"step\"}", AVO_ERROR_FORMAT, "must be one of constant");
    refuse("sft", "{\"schedule\": \"constant|linear\"}", AVO_ERROR_FORMAT, "must be one of");
    refuse("rl", "{\"loss\": \"grpo|dr_grpo\"}", AVO_ERROR_FORMAT, "must be one of sigmoid");
    refuse("sft", "{\"optimizer\": \"\"}", AVO_ERROR_FORMAT, "must be one of adamw");
    refuse("sft", "{\"target\": [1.5, {}]}", AVO_ERROR_FORMAT, "target must be an array");
    refuse("sft", settings_of(s, w.texts, "\"full\": true"), AVO_ERROR_ARGUMENT,
           "settings of LoRA");
    refuse("sft", settings_of(s, w.texts, "\"optimizer\": \"muon\""), AVO_ERROR_ARGUMENT,
           "use adamw for a LoRA adapter");
    refuse("sft", settings_of(s, w.texts, "\"context\": 100000"), AVO_ERROR_ARGUMENT,
           "the model's is");
    refuse("sft", settings_of(s, w.texts, "\"rows\": 2"), AVO_ERROR_ARGUMENT,
           "rows is 2, must be at least");
    refuse("sft", settings_of(s, w.texts, "\"steps\": 3, \"warmup\": 4"), AVO_ERROR_ARGUMENT,
           "warmup is 4");
    refuse("sft", settings_of(s, w.texts, "\"eval_every\": 3"), AVO_ERROR_NOT_FOUND, "valid");
    refuse("dpo", settings_of(s, w.pairs, "\"loss\": \"grpo\""), AVO_ERROR_ARGUMENT,
           "for dpo must be");
    refuse("dpo", settings_of(s, w.pairs, "\"beta\": 0"), AVO_ERROR_ARGUMENT, "must be positive");
    refuse("rl", settings_of(s, w.prompts, ""), AVO_ERROR_ARGUMENT, "missing reward");
    refuse("rl", settings_of(s, w.prompts, "\"loss\": \"ipo\""), AVO_ERROR_ARGUMENT,
           "for rl must be");
    refuse("rl", settings_of(s, w.prompts, "\"reward\": [\"nonsense:a\"]"), AVO_ERROR_ARGUMENT,
           "nonsense");
    snprintf(s, sizeof(s), "{\"data\": \"%s\", \"full\": true}", w.texts);
    refuse("sft", s, AVO_ERROR_UNSUPPORTED, "folder with safetensors only");
    call c = {.task = "rl", .rewards = &reward, .reward_count = 1, .output = "refused-rl"};
    c.settings = settings_of(s, w.prompts,
                             "\"steps\": 2, \"no_template\": true, \"group\": 2, \"answer\": 200");
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, "answer is 200, must be below");
    c.settings = settings_of(s, w.prompts,
                             "\"steps\": 2, \"no_template\": true, \"group\": 2, \"answer\": 4");
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, "reward broken: completion 1");
    c = (call){.task = "sft", .settings = settings_of(s, w.texts, "")};
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, "output is missing");
}

/* A checkpoint is continued by the same run only. */
static void other_runs(void **state) {
    (void)state;
    static const struct {
        const char *rest, *text;
    } cases[] = {{"\"steps\": 9, \"lr\": 0.02", "made with lr 0.01, this run has 0.02"},
                 {"\"steps\": 9, \"lr\": 0.01, \"batch\": 3", "made with batch 8"},
                 {"\"steps\": 9, \"lr\": 0.01, \"rank\": 5", "made with rank 4"},
                 {"\"steps\": 12, \"lr\": 0.01", "made with steps 9"}};
    char s[1024];
    call c = {.task = "sft", .output = "other", .stop_at = 2};
    c.settings = settings_of(s, w.texts, "\"steps\": 9, \"lr\": 0.01");
    assert_refused(train(&c, NULL), AVO_ERROR_CANCELLED, &w.error, "stopped after step 2 of 9");
    c.resume = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(s, sizeof(s), "{\"data\": \"%s\", \"threads\": 1, %s%s}", w.texts, cases[i].rest,
                 strstr(cases[i].rest, "rank") != NULL ? "" : ", \"rank\": 4");
        assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, cases[i].text);
    }
    char path[600];
    write_text(path, "other.jsonl", "{\"text\": \"something else\"}\n");
    c.settings = settings_of(s, path, "\"steps\": 9, \"lr\": 0.01");
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, "made with data");
}

static void damaged_checkpoints(void **state) {
    (void)state;
    char s[1024], path[600];
    call c = {.task = "sft", .output = "damaged", .stop_at = 3};
    c.settings =
        settings_of(s, w.texts, "\"steps\": 6, \"lr\": 0.01, \"batch\": 2, \"save_every\": 1");
    assert_refused(train(&c, NULL), AVO_ERROR_CANCELLED, &w.error, "stopped after step 3");
    /* Without its state it is none: the one before counts. */
    assert_int_equal(unlink(in_folder("damaged/checkpoint-3/training_state.json", path)), 0);
    c.resume = true;
    c.stop_at = 0;
    avo_train_result result = AVO_TRAIN_RESULT_INIT;
    write_text(path, "damaged/checkpoint-2/optimizer.safetensors", "nonsense");
    assert_int_equal(train(&c, &result), AVO_ERROR_FORMAT);
    assert_non_null(strstr(w.error.text, "optimizer.safetensors"));
    write_text(path, "damaged/checkpoint-2/training_state.json", "{\"version\": 2}");
    assert_refused(train(&c, &result), AVO_ERROR_UNSUPPORTED, &w.error, "version 2 of checkpoints");
}

static void memory_can_fail(void **state) {
    (void)state;
    char s[1024];
    test_allocator allocator;
    char output[32];
    call c = {.task = "dpo", .output = output, .allocator = &allocator.allocator};
    c.settings = settings_of(s, w.pairs, "\"steps\": 1, \"batch\": 1, \"no_template\": true");
    size_t fail = 1, failures = 0;
    for (;; fail += 1 + fail / 8) {
        test_allocator_init(&allocator);
        allocator.fail_at = fail;
        snprintf(output, sizeof(output), "memory-%zu", fail);
        avo_status status = train(&c, NULL);
        assert_int_equal(allocator.live, 0);
        if (status == AVO_OK)
            break;
        if (status != AVO_ERROR_MEMORY)
            fail_msg("allocation %zu: %s", fail, w.error.text);
        failures++;
    }
    assert_true(failures > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sft),
        cmocka_unit_test(adapter_applies),
        cmocka_unit_test(evaluations),
        cmocka_unit_test(dpo),
        cmocka_unit_test(rl),
        cmocka_unit_test(completions_do_not_wait),
        cmocka_unit_test(all_rewards_are_recorded),
        cmocka_unit_test(reward_rises),
        cmocka_unit_test(refusals),
        cmocka_unit_test(other_runs),
        cmocka_unit_test(damaged_checkpoints),
        cmocka_unit_test(memory_can_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
