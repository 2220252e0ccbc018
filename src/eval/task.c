/* Reading a task file. Every key is known or refused, so that a misspelt one cannot pass unnoticed.
 */
#include "eval/task.h"

#include "tokenizer/template/template.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    eval_task *task;
    const char *label;
    avo_error *error;
} reader;

static avo_status wrong(const reader *r, const json_value *at, const char *key, const char *what) {
    return status_fail(r->error, AVO_ERROR_FORMAT, "%s:%u: \"%s\" %s", r->label,
                       at == NULL ? 1 : at->line, key, what);
}

const char *task_metric_name(task_metric metric) {
    static const char *const names[METRICS] = {"acc", "acc_norm", "perplexity", "exact_match",
                                               "pass@1"};
    return names[metric];
}

const char *task_score_name(const eval_task *task, uint32_t score, const char *suffix,
                            char text[static TASK_SCORE_NAME_MAX]) {
    const task_filter *filter = &task->filter[score / task->metrics];
    snprintf(text, TASK_SCORE_NAME_MAX, "%s%s,%.*s",
             task_metric_name(task_score_metric(task, score)), suffix,
             (int)(filter->name.size < TASK_NAME_MAX ? filter->name.size : TASK_NAME_MAX),
             filter->name.data);
    return text;
}

/* ---- Plain values ---- */

static avo_status check_keys(const reader *r, const json_value *object, const char *what,
                             const char *const *known, size_t count) {
    if (object->kind != JSON_OBJECT)
        return status_fail(r->error, AVO_ERROR_FORMAT, "%s:%u: %s must be an object, found %s",
                           r->label, object->line, what, json_kind_name(object->kind));
    for (size_t i = 0; i < object->object.count; i++) {
        const json_member *member = &object->object.members[i];
        bool found = false;
        for (size_t k = 0; k < count && !found; k++)
            found = text_is(member->key, known[k]);
        char shown[JSON_SHOWN_KEY_MAX];
        if (!found)
            return status_fail(r->error, AVO_ERROR_FORMAT, "%s:%u: unknown key \"%s\" in %s",
                               r->label, member->value.line, json_shown_key(member->key, shown),
                               what);
    }
    return AVO_OK;
}

/* A string; absent leaves the value as it is. */
static avo_status read_text(const reader *r, const json_value *object, const char *key,
                            text_view *text) {
    avo_status status = json_get_string(object, key, text, r->error);
    return status == AVO_OK ? AVO_OK : status_prefix(r->error, status, "%s", r->label);
}

static avo_status read_integer(const reader *r, const json_value *object, const char *key,
                               int64_t minimum, int64_t maximum, int64_t *value) {
    avo_status status = json_get_integer(object, key, minimum, maximum, value, r->error);
    return status == AVO_OK ? AVO_OK : status_prefix(r->error, status, "%s", r->label);
}

/* An array of `least` to `most` strings. */
static avo_status read_array(const reader *r, const json_value *object, const char *key,
                             size_t least, size_t most, const json_value **array) {
    const json_value *found = json_find(object, key);
    *array = NULL;
    if (found == NULL)
        return AVO_OK;
    if (found->kind != JSON_ARRAY)
        return wrong(r, found, key, "must be an array");
    if (found->array.count < least || found->array.count > most)
        return status_fail(r->error, AVO_ERROR_FORMAT,
                           "%s:%u: \"%s\" has %zu items, must have %zu "
                           "to %zu",
                           r->label, found->line, key, found->array.count, least, most);
    *array = found;
    return AVO_OK;
}

static avo_status read_name(const reader *r, const json_value *object, const char *what,
                            text_view *name) {
    AVO_TRY(read_text(r, object, "name", name));
    if (name->size == 0 || name->size > TASK_NAME_MAX)
        return status_fail(r->error, AVO_ERROR_FORMAT,
                           "%s:%u: the \"name\" of %s must have 1 to %d characters", r->label,
                           object->line, what, TASK_NAME_MAX);
    for (size_t i = 0; i < name->size; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.",
                   name->data[i]) == NULL ||
            name->data[i] == '\0')
            return wrong(r, object, "name", "may have letters, digits, '_', '-' and '.' only");
    return AVO_OK;
}

/* ---- Templates ---- */

/* jinja2 as lm-eval configures it keeps a newline at the end, our engine as transformers does
 * removes it: behind an empty expression it is not the end. */
static avo_status open_template(const reader *r, const json_value *at, const char *key,
                                text_view source, task_template *template) {
    const avo_allocator *allocator = r->task->allocator;
    buffer text;
    buffer_init(&text, allocator, TASK_BYTES_MAX + 16);
    avo_status status = buffer_append(&text, source.data, source.size);
    AVO_THEN(status, buffer_append_text(&text, "{{''}}"));
    if (status != AVO_OK)
        status = status_no_memory(r->error, "a template", source.size);
    AVO_THEN(status,
             chat_template_open(buffer_text(&text), allocator, &template->parsed, r->error));
    buffer_free(&text);
    template->key = key;
    if (status != AVO_OK)
        return status_prefix(r->error, status == AVO_ERROR_TEMPLATE ? AVO_ERROR_FORMAT : status,
                             "%s:%u: \"%s\"", r->label, at->line, key);
    return AVO_OK;
}

static avo_status read_template(const reader *r, const char *key, bool needed,
                                task_template *template) {
    const json_value *found = json_find(&r->task->json, key);
    if (found == NULL)
        return needed ? wrong(r, &r->task->json, key, "is missing") : AVO_OK;
    if (found->kind != JSON_STRING)
        return wrong(r, found, key, "must be a string");
    return open_template(r, found, key, found->string, template);
}

/* One template that gives a JSON array of texts, or one for each choice. */
static avo_status read_choices(const reader *r) {
    eval_task *task = r->task;
    const json_value *found = json_find(&task->json, "choices");
    if (found == NULL || found->kind == JSON_STRING)
        return read_template(r, "choices", true, &task->choices);
    AVO_TRY(read_array(r, &task->json, "choices", 2, TASK_CHOICES_MAX, &found));
    for (size_t i = 0; i < found->array.count; i++) {
        const json_value *item = &found->array.items[i];
        if (item->kind != JSON_STRING)
            return wrong(r, item, "choices", "must hold strings");
        AVO_TRY(open_template(r, item, "choices", item->string, &task->choice[i]));
        task->choice_count++;
    }
    return AVO_OK;
}

/* A wrong pattern is a fault of the file. */
static avo_status open_pattern(const reader *r, const json_value *at, text_view source,
                               eval_pattern **out) {
    const pattern_options options = {.allocator = r->task->allocator};
    avo_status status = pattern_open(source, &options, out, r->error);
    if (status == AVO_OK)
        return AVO_OK;
    if (status == AVO_ERROR_ARGUMENT)
        status = AVO_ERROR_FORMAT;
    return status_prefix(r->error, status, "%s:%u", r->label, at->line);
}

/* ---- Filters ---- */

static avo_status read_step(const reader *r, const json_value *object, task_step *step) {
    static const char *const known[] = {"regex", "match", "fallback", "before", "strip"};
    AVO_TRY(check_keys(r, object, "a filter's step", known, sizeof(known) / sizeof(known[0])));
    const json_value *regex = json_find(object, "regex");
    bool strips = false;
    text_view source = {NULL, 0};
    AVO_TRY(read_text(r, object, "regex", &source));
    AVO_TRY(read_text(r, object, "before", &step->before));
    avo_status status = json_get_boolean(object, "strip", &strips, r->error);
    if (status != AVO_OK)
        return status_prefix(r->error, status, "%s", r->label);
    if ((source.data != NULL) + (step->before.size > 0) + strips != 1)
        return status_fail(
            r->error, AVO_ERROR_FORMAT,
            "%s:%u: a filter's step needs one of \"regex\", \"before\" and \"strip\"", r->label,
            object->line);
    step->kind = strips ? STEP_STRIP : step->before.size > 0 ? STEP_BEFORE : STEP_REGEX;
    step->fallback = TEXT_LITERAL("[invalid]");
    AVO_TRY(read_text(r, object, "fallback", &step->fallback));
    const json_value *match = json_find(object, "match");
    if (match != NULL && (match->kind != JSON_STRING ||
                          (!text_is(match->string, "first") && !text_is(match->string, "last"))))
        return wrong(r, match, "match", "must be \"first\" or \"last\"");
    step->which = match != NULL && text_is(match->string, "last") ? -1 : 0;
    if (step->kind != STEP_REGEX)
        return AVO_OK;
    return open_pattern(r, regex, source, &step->pattern);
}

static avo_status read_filters(const reader *r) {
    static const char *const known[] = {"name", "steps"};
    eval_task *task = r->task;
    const json_value *array, *steps;
    AVO_TRY(read_array(r, &task->json, "filters", 1, TASK_FILTERS_MAX, &array));
    task->filters = 1;
    task->filter[0].name = TEXT_LITERAL("none");
    for (size_t i = 0; array != NULL && i < array->array.count; i++) {
        const json_value *item = &array->array.items[i];
        task_filter *filter = &task->filter[i];
        task->filters = (uint32_t)i + 1;
        filter->name = (text_view){NULL, 0};
        AVO_TRY(check_keys(r, item, "a filter", known, 2));
        AVO_TRY(read_name(r, item, "a filter", &filter->name));
        for (size_t k = 0; k < i; k++)
            if (text_equal(task->filter[k].name, filter->name))
                return wrong(r, item, "name", "is that of another filter");
        AVO_TRY(read_array(r, item, "steps", 0, TASK_STEPS_MAX, &steps));
        for (size_t k = 0; steps != NULL && k < steps->array.count; k++)
            AVO_TRY(read_step(r, &steps->array.items[k], &filter->step[filter->steps++]));
    }
    return AVO_OK;
}

/* ---- Metrics ---- */

static const task_metric metrics_of[][2] = {
    [TASK_CHOICE] = {METRIC_ACC, METRIC_ACC_NORM},
    [TASK_CONTINUATION] = {METRIC_ACC, METRIC_PERPLEXITY},
    [TASK_GENERATE] = {METRIC_EXACT_MATCH, METRIC_PASS},
};

static avo_status read_metrics(const reader *r) {
    eval_task *task = r->task;
    const json_value *array;
    AVO_TRY(read_array(r, &task->json, "metrics", 1, TASK_METRICS_MAX, &array));
    const task_metric *allowed = metrics_of[task->kind];
    task->metrics = task->kind == TASK_GENERATE ? 1 : 2;
    memcpy(task->metric, allowed, sizeof(task->metric));
    for (size_t i = 0; array != NULL && i < array->array.count; i++) {
        const json_value *item = &array->array.items[i];
        uint32_t found = 0;
        while (found < 2 && (item->kind != JSON_STRING ||
                             !text_is(item->string, task_metric_name(allowed[found]))))
            found++;
        if (found == 2)
            return status_fail(r->error, AVO_ERROR_FORMAT,
                               "%s:%u: \"metrics\" of this kind may be \"%s\" and \"%s\"", r->label,
                               item->line, task_metric_name(allowed[0]),
                               task_metric_name(allowed[1]));
        if (i == 1 && task->metric[0] == allowed[found])
            return wrong(r, item, "metrics", "names a metric twice");
        task->metric[i] = allowed[found];
        task->metrics = (uint32_t)i + 1;
    }
    for (uint32_t i = 0; i < task->metrics; i++)
        if (task->metric[i] == METRIC_PASS)
            return read_template(r, "program", true, &task->program);
    if (json_find(&task->json, "program") != NULL)
        return wrong(r, json_find(&task->json, "program"), "program", "needs the metric pass@1");
    return AVO_OK;
}

static avo_status read_ignored(const reader *r) {
    eval_task *task = r->task;
    const json_value *array;
    AVO_TRY(read_array(r, &task->json, "ignore", 1, TASK_IGNORED_MAX, &array));
    for (size_t i = 0; array != NULL && i < array->array.count; i++) {
        const json_value *item = &array->array.items[i];
        if (item->kind != JSON_STRING)
            return wrong(r, item, "ignore", "must hold strings");
        AVO_TRY(open_pattern(r, item, item->string, &task->ignored[i]));
        task->ignored_count++;
    }
    avo_status status = json_get_boolean(&task->json, "ignore_case", &task->ignore_case, r->error);
    return status == AVO_OK ? AVO_OK : status_prefix(r->error, status, "%s", r->label);
}

/* ---- Shots ---- */

static avo_status read_shots(const reader *r) {
    static const char *const known[] = {"count", "from", "examples", "draw", "seed", "delimiter"};
    eval_task *task = r->task;
    const json_value *shots = json_find(&task->json, "shots");
    int64_t count = 0, seed = 1234;
    task->shots_delimiter = TEXT_LITERAL("\n\n");
    if (shots == NULL)
        return AVO_OK;
    AVO_TRY(check_keys(r, shots, "\"shots\"", known, sizeof(known) / sizeof(known[0])));
    AVO_TRY(read_array(r, shots, "examples", 1, TASK_SHOTS_MAX, &task->shot_examples));
    AVO_TRY(read_text(r, shots, "from", &task->shots_data));
    if ((task->shot_examples != NULL) + (task->shots_data.size > 0) != 1)
        return wrong(r, shots, "shots", "needs one of \"from\" and \"examples\"");
    if (task->shot_examples != NULL)
        count = (int64_t)task->shot_examples->array.count;
    AVO_TRY(read_integer(r, shots, "count", 1, TASK_SHOTS_MAX, &count));
    if (count == 0 ||
        (task->shot_examples != NULL && (size_t)count > task->shot_examples->array.count))
        return wrong(r, shots, "count", "must be the number of shots, of which there are enough");
    AVO_TRY(read_integer(r, shots, "seed", 0, INT64_MAX, &seed));
    AVO_TRY(read_text(r, shots, "delimiter", &task->shots_delimiter));
    const json_value *draw = json_find(shots, "draw");
    if (draw != NULL && (draw->kind != JSON_STRING ||
                         (!text_is(draw->string, "random") && !text_is(draw->string, "first"))))
        return wrong(r, draw, "draw", "must be \"random\" or \"first\"");
    task->shots_random =
        draw == NULL ? task->shot_examples == NULL : text_is(draw->string, "random");
    task->shots = (uint32_t)count;
    task->shots_seed = (uint64_t)seed;
    return AVO_OK;
}

/* ---- The whole ---- */

static avo_status read_kind(const reader *r) {
    static const char *const names[] = {"choice", "continuation", "generate"};
    text_view kind = {NULL, 0};
    AVO_TRY(read_text(r, &r->task->json, "kind", &kind));
    for (size_t i = 0; i < 3; i++)
        if (kind.data != NULL && text_is(kind, names[i])) {
            r->task->kind = (task_kind)i;
            return AVO_OK;
        }
    return wrong(r, json_find(&r->task->json, "kind"), "kind",
                 "must be \"choice\", \"continuation\" or \"generate\"");
}

/* Keys that only some kinds have. */
static avo_status check_kind_keys(const reader *r) {
    static const struct {
        const char *key;
        task_kind kind;
    } own[] = {{"choices", TASK_CHOICE},      {"stop", TASK_GENERATE},
               {"max_tokens", TASK_GENERATE}, {"filters", TASK_GENERATE},
               {"prefix", TASK_GENERATE},     {"program", TASK_GENERATE},
               {"ignore", TASK_GENERATE},     {"ignore_case", TASK_GENERATE}};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        const json_value *found = json_find(&r->task->json, own[i].key);
        if (found != NULL && r->task->kind != own[i].kind)
            return wrong(r, found, own[i].key,
                         own[i].kind == TASK_CHOICE ? "belongs to tasks of kind \"choice\""
                                                    : "belongs to tasks of kind \"generate\"");
    }
    return AVO_OK;
}

static avo_status read_answer(const reader *r) {
    eval_task *task = r->task;
    const json_value *stops;
    int64_t tokens = TASK_NEW_TOKENS;
    AVO_TRY(read_array(r, &task->json, "stop", 1, TASK_STOPS_MAX, &stops));
    for (size_t i = 0; stops != NULL && i < stops->array.count; i++) {
        const json_value *item = &stops->array.items[i];
        if (item->kind != JSON_STRING || item->string.size == 0)
            return wrong(r, item, "stop", "must hold strings that are not empty");
        task->stop[i] = arena_copy_text(&task->arena, item->string.data, item->string.size);
        if (task->stop[i] == NULL)
            return status_no_memory(r->error, "a task", item->string.size);
        task->stops++;
    }
    AVO_TRY(read_integer(r, &task->json, "max_tokens", 1, 65536, &tokens));
    task->max_tokens = (uint32_t)tokens;
    return AVO_OK;
}

static avo_status read_task(const reader *r) {
    static const char *const known[] = {
        "name",    "version", "kind",        "data",  "prompt",   "choices",
        "target",  "prefix",  "program",     "stop",  "metrics",  "max_tokens",
        "filters", "ignore",  "ignore_case", "shots", "delimiter"};
    eval_task *task = r->task;
    AVO_TRY(check_keys(r, &task->json, "a task", known, sizeof(known) / sizeof(known[0])));
    AVO_TRY(read_name(r, &task->json, "a task", &task->name));
    AVO_TRY(read_kind(r));
    AVO_TRY(check_kind_keys(r));
    avo_status status = json_get_number(&task->json, "version", 0, 1e9, &task->version, r->error);
    if (status != AVO_OK)
        return status_prefix(r->error, status, "%s", r->label);
    AVO_TRY(read_text(r, &task->json, "data", &task->data));
    task->delimiter = TEXT_LITERAL(" ");
    AVO_TRY(read_text(r, &task->json, "delimiter", &task->delimiter));
    AVO_TRY(read_template(r, "prompt", true, &task->prompt));
    if (task->kind == TASK_CHOICE)
        AVO_TRY(read_choices(r));
    AVO_TRY(read_metrics(r));
    AVO_TRY(read_template(r, "target", task->metric[0] != METRIC_PASS, &task->target));
    AVO_TRY(read_template(r, "prefix", false, &task->prefix));
    AVO_TRY(read_answer(r));
    AVO_TRY(read_filters(r));
    AVO_TRY(read_ignored(r));
    AVO_TRY(read_shots(r));
    if (task->shots > 0 && task->target.parsed == NULL)
        return wrong(r, json_find(&task->json, "shots"), "shots", "need a \"target\"");
    return AVO_OK;
}

avo_status task_open(text_view text, const char *label, const avo_allocator *allocator,
                     eval_task **out, avo_error *error) {
    if (text.size > TASK_BYTES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%s has %zu bytes, a task must have at most %zu",
                           label, text.size, TASK_BYTES_MAX);
    eval_task *task = allocator_take_array(allocator, 1, sizeof(*task));
    if (task == NULL)
        return status_no_memory(error, "a task", sizeof(*task));
    task->allocator = allocator;
    arena_init(&task->arena, allocator, SIZE_MAX);
    const reader r = {task, label, error};
    char *copy = arena_copy_text(&task->arena, text.data, text.size);
    avo_status status = copy == NULL ? status_no_memory(error, "a task", text.size) : AVO_OK;
    if (status == AVO_OK) {
        status = json_parse(&task->arena, (text_view){copy, text.size}, &task->json, error);
        if (status != AVO_OK)
            status = status_prefix(error, status, "%s", label);
    }
    AVO_THEN(status, read_task(&r));
    if (status != AVO_OK) {
        task_close(task);
        return status;
    }
    *out = task;
    return AVO_OK;
}

void task_close(eval_task *task) {
    if (task == NULL)
        return;
    task_template *const templates[] = {&task->prompt, &task->choices, &task->target, &task->prefix,
                                        &task->program};
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++)
        chat_template_close(templates[i]->parsed);
    for (uint32_t i = 0; i < TASK_CHOICES_MAX; i++)
        chat_template_close(task->choice[i].parsed);
    for (uint32_t i = 0; i < task->filters; i++)
        for (uint32_t k = 0; k < TASK_STEPS_MAX; k++)
            pattern_close(task->filter[i].step[k].pattern);
    for (uint32_t i = 0; i < TASK_IGNORED_MAX; i++)
        pattern_close(task->ignored[i]);
    arena_free(&task->arena);
    allocator_give(task->allocator, task, sizeof(*task));
}
