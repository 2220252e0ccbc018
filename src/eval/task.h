/* Tasks: how a document becomes a prompt, what ends an answer, and how it is scored. A task is a
 * small JSON file (docs/evals.md lists its keys); those of configs/tasks/ come with the program.
 * Prompts, scores and their names follow lm-eval, so that figures can be compared.
 *
 * The caller owns a task; task_open fails for a file that is no JSON, an unknown, missing or
 * misplaced key, a template or a pattern that does not compile, and anything above the limits.
 */
#ifndef AVO_EVAL_TASK_H
#define AVO_EVAL_TASK_H

#include "base/arena.h"
#include "base/json.h"
#include "eval/pattern.h"

#define TASK_BYTES_MAX    ((size_t)1 << 20)
#define TASK_NAME_MAX     64
#define TASK_CHOICES_MAX  64
#define TASK_STOPS_MAX    16
#define TASK_FILTERS_MAX  8
#define TASK_STEPS_MAX    8
#define TASK_IGNORED_MAX  16
#define TASK_SHOTS_MAX    64
#define TASK_NEW_TOKENS   256 /* of an answer, where the task does not say: lm-eval's default */
#define TASK_METRICS_MAX  2
#define TASK_SCORES_MAX   (TASK_FILTERS_MAX * TASK_METRICS_MAX)
#define TASK_RENDERED_MAX ((size_t)4 << 20)

typedef enum task_kind {
    TASK_CHOICE,       /* which of a few texts is most likely: acc, acc_norm */
    TASK_CONTINUATION, /* how likely one text is: acc (it is what greedy decoding gives), perplexity
                        */
    TASK_GENERATE      /* a greedy answer: exact_match or pass@1 */
} task_kind;

/* A Jinja template over the fields of a document; undefined fields are errors. */
typedef struct task_template {
    struct chat_template *parsed; /* NULL: the task has none */
    const char *key;              /* of the task file, for messages */
} task_template;

typedef enum task_step_kind { STEP_REGEX, STEP_BEFORE, STEP_STRIP } task_step_kind;

/* One step of a filter, which turns an answer into the text that is compared. */
typedef struct task_step {
    task_step_kind kind;
    eval_pattern *pattern; /* STEP_REGEX */
    int32_t which;         /* match: 0 the first, −1 the last */
    text_view fallback;    /* where there is no match */
    text_view before;      /* STEP_BEFORE: the answer is cut where this begins */
} task_step;

typedef struct task_filter {
    text_view name;
    task_step step[TASK_STEPS_MAX];
    uint32_t steps;
} task_filter;

typedef enum task_metric {
    METRIC_ACC,
    METRIC_ACC_NORM,
    METRIC_PERPLEXITY,
    METRIC_EXACT_MATCH,
    METRIC_PASS,
    METRICS
} task_metric;

/* "acc", "acc_norm", "perplexity", "exact_match", "pass@1". */
const char *task_metric_name(task_metric metric);

typedef struct eval_task {
    const avo_allocator *allocator;
    arena arena;
    json_value json; /* the whole file, for reports */
    text_view name;
    double version;
    task_kind kind;
    text_view data; /* the file of its documents */
    task_template prompt, choices, target, prefix, program;
    task_template choice[TASK_CHOICES_MAX]; /* where each choice has a template of its own */
    uint32_t choice_count;
    text_view delimiter; /* between a prompt and its answer */
    const char *stop[TASK_STOPS_MAX];
    uint32_t stops;
    uint32_t max_tokens;
    task_filter filter[TASK_FILTERS_MAX];
    uint32_t filters; /* at least 1 */
    task_metric metric[TASK_METRICS_MAX];
    uint32_t metrics;
    eval_pattern *ignored[TASK_IGNORED_MAX]; /* exact_match: removed from answer and target */
    uint32_t ignored_count;
    bool ignore_case;
    /* Shots: documents in front of the prompt, with their answers. */
    uint32_t shots;
    const json_value *shot_examples; /* an array of documents, or NULL: */
    text_view shots_data;            /* a file of them */
    bool shots_random; /* drawn anew for each document as Python's random does it; else the first */
    uint64_t shots_seed;
    text_view shots_delimiter;
} eval_task;

/* `text` is copied; `label` names the file in messages. */
AVO_MUST_USE avo_status task_open(text_view text, const char *label, const avo_allocator *allocator,
                                  eval_task **out, avo_error *error);
void task_close(eval_task *task);

/* A score of an item is one metric after one filter: number filter × metrics + metric. */
static inline uint32_t task_scores(const eval_task *task) {
    return task->filters * task->metrics;
}
/* The score that represents the task in pooled figures: the first metric after the last filter.
 */
static inline uint32_t task_headline(const eval_task *task) {
    return (task->filters - 1) * task->metrics;
}
/* "acc,none": the metric and the filter of a score, as lm-eval writes it. */
#define TASK_SCORE_NAME_MAX 128
const char *task_score_name(const eval_task *task, uint32_t score, const char *suffix,
                            char text[static TASK_SCORE_NAME_MAX]);
static inline task_metric task_score_metric(const eval_task *task, uint32_t score) {
    return task->metric[score % task->metrics];
}

/* Appends the rendered template to `out`. `response` (NULL: none) becomes a variable of that name.
 */
AVO_MUST_USE avo_status task_render(const task_template *template, const json_value *document,
                                    const text_view *response, buffer *out, avo_error *error);

/* What a filter makes of an answer; it points into `answer` or into the task. */
AVO_MUST_USE avo_status task_filter_apply(const task_filter *filter, text_view answer,
                                          text_view *result, avo_error *error);
/* Whether answer and target are the same after what the task ignores. */
AVO_MUST_USE avo_status task_exact_match(const eval_task *task, text_view answer, text_view target,
                                         bool *same, avo_error *error);

#endif
