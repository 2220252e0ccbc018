/* Runs of `heads` on a tiny model: runs that were stopped and resumed give the same bytes, as do
 * other numbers of threads and sizes of passes; answers are kept; what was learned is guessed; what
 * cannot be trained is refused by name. */
#include "train/calls.h"

#define HEADS "heads.safetensors"

#define HEADS_REST                                                                                 \
    "\"steps\": 8, \"batch\": 2, \"muon_lr\": 0.05, \"no_template\": true, \"save_every\": 3"

/* Prompts, which the model answers: answers are kept, and the same whatever the run. */
static void medusa(void **state) {
    (void)state;
    char settings[1024], other[1024], path[600], whole[700];
    const char *rest = HEADS_REST ", \"answer\": 14, \"generate\": true, \"temperature\": 0.8";
    call c = {.task = "heads"};
    snprintf(settings, sizeof(settings), "{\"data\": \"%s\", \"threads\": 2, %s}", w.prompts, rest);
    snprintf(other, sizeof(other), "{\"data\": \"%s\", \"threads\": 1, \"rows\": 40, %s}",
             w.prompts, rest);
    stop_and_resume(c, (halves){"medusa-whole", "medusa-parts", settings, other, HEADS, 4});
    assert_same_file("medusa-whole", "medusa-parts", "answers.jsonl");
    /* An answer of which only a part was written is given again. */
    file_map map;
    snprintf(whole, sizeof(whole), "%s/answers.jsonl", in_folder("medusa-parts", path));
    assert_ok_error(file_map_open(whole, &map, &w.error), &w.error);
    size_t bytes = map.bytes.size;
    file_map_close(&map);
    assert_int_equal(truncate(whole, (off_t)bytes - 3), 0);
    c.output = "medusa-parts";
    c.settings = settings;
    c.resume = true;
    assert_ok_error(train(&c, NULL), &w.error);
    assert_same_file("medusa-whole", "medusa-parts", "answers.jsonl");
    c = (call){.task = "heads", .output = "medusa-more", .settings = settings};
    snprintf(settings, sizeof(settings), "{\"data\": \"%s\", %s, \"end_lr\": 1, \"teacher\": 0}",
             w.prompts, rest);
    assert_ok_error(train(&c, NULL), &w.error);
    assert_true(c.last_loss < c.first_loss);
}

/* Texts; the file is one that the engine opens. */
static void eagle(void **state) {
    (void)state;
    char settings[2048], other[2048], path[600], whole[700], rest[900];
    avo_heads *heads;
    call c = {.task = "heads"};
    snprintf(rest, sizeof(rest),
             "%s, \"kind\": \"eagle\", \"eval_every\": 4, \"valid\": \"%s\", \"type\": \"f32\"",
             HEADS_REST, w.texts);
    snprintf(settings, sizeof(settings), "{\"data\": \"%s\", \"threads\": 3, %s}", w.texts, rest);
    snprintf(other, sizeof(other), "{\"data\": \"%s\", \"threads\": 1, \"rows\": 40, %s}", w.texts,
             rest);
    stop_and_resume(c, (halves){"eagle-whole", "eagle-parts", settings, other, HEADS, 3});
    c.output = "eagle-again";
    c.settings = settings;
    assert_ok_error(train(&c, NULL), &w.error);
    assert_int_equal(c.evaluations, 2);
    assert_true(c.last_loss < 0.8 * c.first_loss);
    assert_true(exists("eagle-again", "best/heads.safetensors"));
    /* Checkpoints have it, too. */
    assert_same_file("eagle-again", "eagle-again/checkpoint-8", HEADS);
    snprintf(whole, sizeof(whole), "%s/" HEADS, in_folder("eagle-again", path));
    assert_ok_error(avo_heads_open(w.model, whole, &heads, &w.error), &w.error);
    avo_heads_close(heads);
}

/* A distilled draft; as eagle, with a window that samples exceed. */
static void layers(void **state) {
    (void)state;
    char settings[2048], other[2048], rest[900], path[600], whole[700];
    avo_heads *heads;
    call c = {.task = "heads"};
    snprintf(rest, sizeof(rest),
             "%s, \"kind\": \"layers\", \"depth\": 2, \"window\": 8, \"type\": \"f32\"",
             HEADS_REST);
    snprintf(settings, sizeof(settings), "{\"data\": \"%s\", \"threads\": 3, %s}", w.texts, rest);
    snprintf(other, sizeof(other), "{\"data\": \"%s\", \"threads\": 1, \"rows\": 40, %s}", w.texts,
             rest);
    stop_and_resume(c, (halves){"layers-whole", "layers-parts", settings, other, HEADS, 5});
    snprintf(whole, sizeof(whole), "%s/" HEADS, in_folder("layers-whole", path));
    assert_ok_error(avo_heads_open(w.model, whole, &heads, &w.error), &w.error);
    assert_int_equal(heads->config.depth, 2);
    avo_heads_close(heads);
}

/* Answers that are learned by heart are guessed. */
static void heads_learn(void **state) {
    (void)state;
    static const char *const kinds[] = {"medusa", "eagle", "layers"};
    char settings[1024], output[32];
    for (size_t i = 0; i < 3; i++) {
        call c = {.task = "heads", .output = output, .settings = settings};
        snprintf(output, sizeof(output), "learn-%s", kinds[i]);
        snprintf(settings, sizeof(settings),
                 "{\"data\": \"%s\", \"kind\": \"%s\", \"answer\": 14, \"generate\": true, "
                 "\"no_template\": true, "
                 "\"steps\": 60, \"batch\": 3, \"muon_lr\": 0.1, \"threads\": 1}",
                 w.prompts, kinds[i]);
        assert_ok_error(train(&c, NULL), &w.error);
        print_message("  %s: %.2f of the first drafts are right\n", kinds[i], c.accepted);
        assert_true(c.accepted > 0.8);
    }
}

static void refuse(const char *task, const char *settings, avo_status status, const char *text) {
    call c = {.task = task, .output = "refused", .settings = settings};
    assert_refused(train(&c, NULL), status, &w.error, text);
}

static void heads_refused(void **state) {
    (void)state;
    char s[1024], path[600];
    refuse("heads", "{\"kind\": \"hydra\"}", AVO_ERROR_FORMAT,
           "must be one of medusa|eagle|layers");
    snprintf(s, sizeof(s), "{\"data\": \"%s\", \"depth\": 2}", w.prompts);
    refuse("heads", s, AVO_ERROR_ARGUMENT, "only with kind layers");
    refuse("heads", "{\"rank\": 4}", AVO_ERROR_FORMAT, "rank is no setting of heads");
    refuse("sft", "{\"drafts\": 4}", AVO_ERROR_FORMAT, "drafts is no setting of sft");
    refuse("heads", "{\"drafts\": 9}", AVO_ERROR_FORMAT, "drafts must be an integer from 1 to 8");
    refuse("heads", "{\"frequent\": 70000}", AVO_ERROR_FORMAT, "frequent must be");
    refuse("heads", "{\"data\": \"x\", \"kind\": \"eagle\", \"drafts\": 5}", AVO_ERROR_ARGUMENT,
           "with eagle at most 4");
    refuse("heads", "{\"data\": \"x\", \"window\": 3}", AVO_ERROR_ARGUMENT, "window is 3");
    refuse("heads", "{\"data\": \"x\", \"teacher\": 0.01}", AVO_ERROR_ARGUMENT, "teacher is 0.01");
    snprintf(s, sizeof(s), "{\"data\": \"%s\", \"answer\": 4096, \"generate\": true}", w.prompts);
    refuse("heads", s, AVO_ERROR_ARGUMENT, "answer is 4096, must be below the context");
    write_text(path, "alone.jsonl", "{\"prompt\": \"a dog\"}\n");
    snprintf(s, sizeof(s), "{\"data\": \"%s\", \"answer\": 4096}", path);
    refuse("heads", s, AVO_ERROR_CONTEXT, "leaves no room for an answer of 4096");
    write_text(path, "short.jsonl", "{\"prompt\": \"\", \"completion\": \"a\"}\n");
    snprintf(s, sizeof(s), "{\"data\": \"%s\", \"context\": 2, \"cut\": true}", path);
    refuse("heads", s, AVO_ERROR_FORMAT, "no token to learn");
    write_text(path, "pair.jsonl", "{\"chosen\": \"a\", \"rejected\": \"b\"}\n");
    snprintf(s, sizeof(s), "{\"data\": \"%s\"}", path);
    refuse("heads", s, AVO_ERROR_FORMAT, "chosen and rejected are for train dpo");
}

static void fail_memory(call c) {
    test_allocator allocator;
    char output[32];
    c.output = output;
    c.allocator = &allocator.allocator;
    size_t fail = 1, failures = 0;
    for (;; fail += 1 + fail / 8) {
        test_allocator_init(&allocator);
        allocator.fail_at = fail;
        snprintf(output, sizeof(output), "memory-%s-%zu", c.task, fail);
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

static void memory_can_fail(void **state) {
    (void)state;
    char s[1024];
    snprintf(s, sizeof(s),
             "{\"data\": \"%s\", \"steps\": 1, \"batch\": 1, \"kind\": \"eagle\", \"answer\": 3, "
             "\"no_template\": true, \"threads\": 1, \"generate\": true}",
             w.prompts);
    fail_memory((call){.task = "heads", .settings = s});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medusa),        cmocka_unit_test(eagle),
        cmocka_unit_test(layers),        cmocka_unit_test(heads_learn),
        cmocka_unit_test(heads_refused), cmocka_unit_test(memory_can_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
