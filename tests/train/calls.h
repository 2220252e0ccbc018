/* Calls of avo_train_run on a tiny model, for tests of runs: data of three kinds, a folder for all
 * outputs, and comparisons of what is in them. */
#ifndef AVO_TESTS_TRAIN_CALLS_H
#define AVO_TESTS_TRAIN_CALLS_H

#include "support/support.h"

#include "base/file.h"
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

static inline const char *in_folder(const char *name, char path[600]) {
    snprintf(path, 600, "%s/%s", w.folder, name);
    return path;
}

static inline void write_text(char path[600], const char *name, const char *text) {
    assert_ok_error(file_write(in_folder(name, path), text, strlen(text), &w.error), &w.error);
}

static inline int setup(void **state) {
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

static inline int teardown(void **state) {
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
    double accepted; /* draft heads: of the first draft, in the last step */
    uint32_t evaluations;
    const avo_allocator *allocator;
    char *log_text; /* [LOG_CAPACITY] gets the lines of the log; NULL: none */
} call;

#define LOG_CAPACITY 4096

static inline bool on_step(void *context, const avo_train_event *event) {
    call *c = context;
    if (event->evaluation) {
        c->evaluations++;
        return true;
    }
    if (event->step == 1)
        c->first_loss = event->loss;
    c->last_loss = event->loss;
    c->last_reward = event->reward;
    const char *accepted = strstr(event->metrics, "\"accepted_1\":");
    c->accepted = accepted != NULL ? strtod(accepted + strlen("\"accepted_1\":"), NULL) : 0.0;
    assert_true(event->metrics[0] == '{' && strchr(event->metrics, '\n') == NULL);
    assert_non_null(strstr(event->metrics, "\"learning_rate\":"));
    return event->step != c->stop_at;
}

static inline void on_log(void *context, const char *line) {
    const call *c = context;
    size_t used = strlen(c->log_text);
    snprintf(c->log_text + used, LOG_CAPACITY - used, "%s\n", line);
}

static inline avo_status train(call *c, avo_train_result *result) {
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
    options.log = c->log_text != NULL ? on_log : NULL;
    options.log_context = c;
    return avo_train_run(w.model, &options, result != NULL ? result : &own, &w.error);
}

/* Settings of a format with the path of the data. */
static inline const char *settings_of(char text[1024], const char *data, const char *rest) {
    snprintf(text, 1024, "{\"data\": \"%s\", \"rank\": 4, \"threads\": 2%s%s}", data,
             rest[0] != '\0' ? ", " : "", rest);
    return text;
}

static inline void assert_same_file(const char *a, const char *b, const char *name) {
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

static inline bool exists(const char *folder, const char *name) {
    char path[600], whole[700];
    snprintf(whole, sizeof(whole), "%s/%s", in_folder(folder, path), name);
    return file_kind_of(whole) != FILE_MISSING;
}

static inline void remove_file(const char *folder, const char *name) {
    char path[600], whole[700];
    snprintf(whole, sizeof(whole), "%s/%s", in_folder(folder, path), name);
    assert_int_equal(unlink(whole), 0);
}

#define ADAPTER        "adapter_model.safetensors"
#define ADAPTER_CONFIG "adapter_config.json"

/* ---- A run in two halves ---- */

typedef struct halves {
    const char *whole, *parts;           /* folders of the run and of its halves */
    const char *settings, *resumed_with; /* of the first half; of the second one */
    const char *file;                    /* what it makes */
    uint64_t at;                         /* the step behind which it is stopped */
} halves;

static inline void assert_same_output(const halves *h) {
    assert_same_file(h->whole, h->parts, h->file);
    if (exists(h->whole, ADAPTER_CONFIG))
        assert_same_file(h->whole, h->parts, ADAPTER_CONFIG);
}

/* A run; the same stopped at a step and resumed with other limits gives the same bytes. */
static inline void stop_and_resume(call c, halves h) {
    avo_train_result result = AVO_TRAIN_RESULT_INIT;
    c.output = h.whole;
    c.settings = h.settings;
    assert_ok_error(train(&c, &result), &w.error);
    assert_int_equal(result.step, result.steps);
    c.output = h.parts;
    c.stop_at = h.at;
    assert_refused(train(&c, &result), AVO_ERROR_CANCELLED, &w.error, "continues with --resume");
    assert_int_equal(result.step, h.at);
    assert_true(exists(h.parts, h.file)); /* usable as it is */
    c.stop_at = 0;
    assert_refused(train(&c, &result), AVO_ERROR_ARGUMENT, &w.error, "has a checkpoint of step");
    c.resume = true;
    c.settings = h.resumed_with;
    assert_ok_error(train(&c, &result), &w.error);
    assert_int_equal(result.first_step, h.at);
    assert_same_output(&h);
    /* Everything is done: without the output, as after a kill behind the last checkpoint, it is
     * written again. */
    remove_file(h.parts, h.file);
    if (exists(h.whole, ADAPTER_CONFIG))
        remove_file(h.parts, ADAPTER_CONFIG);
    remove_file(h.parts, "trainer_state.json");
    remove_file(h.parts, "curves.svg");
    assert_ok_error(train(&c, &result), &w.error);
    assert_int_equal(result.first_step, result.steps);
    assert_true(isnan(result.loss)); /* no step was computed */
    assert_same_output(&h);
    assert_true(exists(h.parts, "trainer_state.json") && exists(h.parts, "curves.svg"));
}

#endif
