/* Training runs on a tiny model: losses fall, runs that were stopped and resumed give the same
 * bytes, as do other numbers of threads and sizes of passes; what they write can be read; what
 * cannot be trained is refused by name. */
#include "device/layer.h"
#include "eval/reward_int.h"
#include "train/calls.h"

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
    stop_and_resume(c, (halves){"sft-whole", "sft-parts", settings, other, ADAPTER, 7});
    c.output = "sft-again";
    c.settings = settings;
    assert_ok_error(train(&c, NULL), &w.error);
    assert_true(c.last_loss < 0.7 * c.first_loss);
    assert_same_file("sft-whole", "sft-again", ADAPTER);
    assert_true(exists("sft-again", "checkpoint-10") && exists("sft-again", "checkpoint-8"));
    assert_false(exists("sft-again", "checkpoint-4")); /* two are kept */
    assert_true(exists("sft-again", "curves.svg") && exists("sft-again", "trainer_state.json"));
}

static void count_adapters(void *context, uint64_t step) {
    uint64_t *seen = context;
    seen[0]++;
    seen[1] = step;
    assert_true(exists("new-adapters", ADAPTER));
}

/* With every checkpoint and every second step. */
static void new_adapters_are_told(void **state) {
    (void)state;
    char settings[1024], path[600];
    uint64_t seen[2] = {0, 0};
    avo_train_options options = AVO_TRAIN_OPTIONS_INIT;
    options.task = "sft";
    options.output = in_folder("new-adapters", path);
    options.settings = settings_of(settings, w.texts, "\"steps\": 5, \"save_every\": 4");
    options.adapter_every = 2;
    assert_refused(avo_train_run(w.model, &options, NULL, &w.error), AVO_ERROR_ARGUMENT, &w.error,
                   "on_adapter is missing");
    options.on_adapter = count_adapters;
    options.on_adapter_context = seen;
    assert_ok_error(avo_train_run(w.model, &options, NULL, &w.error), &w.error);
    assert_int_equal(seen[0], 3); /* behind steps 2, 4 and 5 */
    assert_int_equal(seen[1], 5);
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
    stop_and_resume(c, (halves){"dpo-whole", "dpo-parts", settings, other, ADAPTER, 4});
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
    stop_and_resume(c, (halves){"rl-whole", "rl-parts", settings, other, ADAPTER, 3});
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

/* A tenth for each: not a binary fraction, so that sums of them are rounded. */
static bool tenth(void *context, const avo_train_completion *items, size_t count, double *scores) {
    (void)items;
    for (size_t i = 0; i < count; i++)
        scores[i] = 0.1;
    return context == NULL;
}

/* Rewards without any difference teach nothing, and the run says so, but not at every step. */
static void equal_rewards_are_reported(void **state) {
    (void)state;
    char settings[1024], path[600], text[LOG_CAPACITY] = "";
    uint64_t calls = 0;
    avo_train_reward reward = {"tenth", 1.0, tenth, NULL};
    call c = {.task = "rl", .rewards = &reward, .reward_count = 1, .log_text = text};
    c.output = "rl-flat";
    c.settings = settings_of(settings, w.prompts,
                             "\"steps\": 9, \"batch\": 1, \"group\": 6, \"answer\": 2,"
                             "\"no_template\": true");
    assert_ok_error(train(&c, NULL), &w.error);
    static const char told[] = "had equal rewards (0.1 in the first) in the last 5 steps";
    const char *at = strstr(text, told);
    assert_non_null(at);
    assert_null(strstr(at + strlen(told), "equal rewards"));
    file_map map;
    assert_ok_error(file_map_open(in_folder("rl-flat/metrics.jsonl", path), &map, &w.error),
                    &w.error);
    static const char all[] = "\"frac_reward_zero_std\":1,";
    assert_non_null(memmem(map.bytes.data, map.bytes.size, all, strlen(all)));
    file_map_close(&map);
    text[0] = '\0';
    reward = (avo_train_reward){"vowels", 1.0, vowels, &calls};
    c.output = "rl-not-flat";
    assert_ok_error(train(&c, NULL), &w.error);
    assert_null(strstr(text, "equal rewards"));
    /* One completion of each prompt is enough where those of a step are compared. */
    c.output = "rl-one";
    c.settings = settings_of(settings, w.prompts,
                             "\"steps\": 2, \"batch\": 6, \"group\": 1, \"answer\": 8,"
                             "\"loss\": \"reinforce\", \"no_template\": true");
    assert_ok_error(train(&c, NULL), &w.error);
    assert_null(strstr(text, "equal rewards"));
}

/* Settings of the interpreter reach rewards that run programs. */
static void programs_of_rewards(void **state) {
    (void)state;
    avo_error error;
    char path[600];
    write_text(path, "reward.py", "def reward(prompt, completion, fields):\n    return 1\n");
    char text[700];
    snprintf(text, sizeof(text), "python:%s", path);
    train_settings settings;
    train_settings_init(&settings, TRAIN_RL);
    settings.rewards = (train_list){.items = {text}, .count = 1};
    train_rewards rewards = {.count = 0};
    assert_ok_error(train_rewards_open(&rewards, w.model, &settings, &error), &error);
    assert_false(rewards.described[0].reward->options.code.unsafe);
    assert_null(rewards.described[0].reward->options.code.interpreter);
    train_rewards_close(&rewards);
    settings.unsafe = true;
    settings.python = "pypy";
    rewards = (train_rewards){.count = 0};
    assert_ok_error(train_rewards_open(&rewards, w.model, &settings, &error), &error);
    assert_true(rewards.described[0].reward->options.code.unsafe);
    assert_string_equal(rewards.described[0].reward->options.code.interpreter, "pypy");
    train_rewards_close(&rewards);
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
    refuse("teach", NULL, AVO_ERROR_ARGUMENT, "must be sft, dpo, rl, pretrain or heads");
    refuse("sft", NULL, AVO_ERROR_ARGUMENT, "missing data");
    refuse("sft", "{", AVO_ERROR_FORMAT, "settings: ");
    refuse("sft", "[]", AVO_ERROR_FORMAT, "must be a JSON object");
    refuse("sft", "{\"data\": 1}", AVO_ERROR_FORMAT, "data must be a string or an array");
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
    refuse("sft", settings_of(s, w.texts, "\"valid\": \"x\""), AVO_ERROR_ARGUMENT,
           "eval-every is not: the data would not be used");
    refuse("sft", settings_of(s, w.texts, "\"muon_lr\": 0.1"), AVO_ERROR_ARGUMENT,
           "muon-lr is for optimizer muon");
    refuse("sft", settings_of(s, w.texts, "\"end_lr\": 0.1, \"schedule\": \"constant\""),
           AVO_ERROR_ARGUMENT, "constant has none");
    refuse("dpo", settings_of(s, w.pairs, "\"loss\": \"ipo\", \"label_smoothing\": 0.1"),
           AVO_ERROR_ARGUMENT, "ipo has none");
    refuse("rl", settings_of(s, w.prompts, "\"loss\": \"rloo\", \"scale\": \"group\""),
           AVO_ERROR_ARGUMENT, "scale is group");
    refuse("rl", settings_of(s, w.prompts, "\"group\": 1"), AVO_ERROR_ARGUMENT,
           "group is 1: dapo compares");
    refuse("rl", settings_of(s, w.prompts, "\"group\": 1, \"batch\": 1, \"loss\": \"reinforce\""),
           AVO_ERROR_ARGUMENT, "group and batch are 1");
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
        cmocka_unit_test(new_adapters_are_told),
        cmocka_unit_test(adapter_applies),
        cmocka_unit_test(evaluations),
        cmocka_unit_test(dpo),
        cmocka_unit_test(rl),
        cmocka_unit_test(completions_do_not_wait),
        cmocka_unit_test(all_rewards_are_recorded),
        cmocka_unit_test(reward_rises),
        cmocka_unit_test(equal_rewards_are_reported),
        cmocka_unit_test(programs_of_rewards),
        cmocka_unit_test(refusals),
        cmocka_unit_test(memory_can_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
