/* Lines to curves. Every metric is a list of (step, value) that grows with the lines. */
#include "train/history.h"

#include <math.h>
#include <string.h>

#define LINE_BYTES_MAX  ((size_t)64 << 10)
#define ARENA_BYTES_MAX ((size_t)8 << 20) /* of one line's tree */
#define STEP_MAX        (INT64_C(1) << 53)
#define TIMED_STEPS     20u /* of which step_time is the mean */

typedef struct history_point {
    double step, value;
} history_point;

typedef struct history_series {
    char name[HISTORY_NAME_BYTES];
    bool curve;    /* else the newest value only */
    buffer points; /* of history_point; without a curve the newest */
} history_series;

typedef struct history {
    const avo_allocator *allocator;
    arena line;
    history_facts *facts;
    bool wants_series;
    history_series series[HISTORY_SERIES_MAX];
    size_t count;
    double times[TIMED_STEPS]; /* of steps, in turn */
    uint64_t timed;
} history;

/* ---- Which metrics ---- */

/* Shown as a number, not as a curve. */
static const char *const plain_names[] = {"epoch", "num_tokens", "step_time"};

static const char *const curve_names[] = {"loss",
                                          "eval_loss",
                                          "reward",
                                          "reward_std",
                                          "learning_rate",
                                          "tokens_per_second",
                                          "grad_norm",
                                          "entropy",
                                          "kl",
                                          "rewards/accuracies",
                                          "rewards/margins",
                                          "rewards/chosen",
                                          "rewards/rejected",
                                          "completions/mean_length",
                                          "frac_reward_zero_std",
                                          "mean_token_accuracy"};

static bool is_one_of(text_view name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (text_is(name, names[i]))
            return true;
    return false;
}

static bool has_curve(text_view name) {
    return is_one_of(name, curve_names, sizeof(curve_names) / sizeof(curve_names[0])) ||
           (text_starts(name, TEXT_LITERAL("rewards/")) &&
            text_ends(name, TEXT_LITERAL("/mean"))); /* of every reward */
}

static history_series *find_series(history *h, text_view name) {
    for (size_t i = 0; i < h->count; i++)
        if (text_is(name, h->series[i].name))
            return &h->series[i];
    bool curve = has_curve(name);
    if ((!curve && !is_one_of(name, plain_names, sizeof(plain_names) / sizeof(plain_names[0]))) ||
        h->count == HISTORY_SERIES_MAX || name.size >= HISTORY_NAME_BYTES)
        return NULL;
    history_series *made = &h->series[h->count++];
    *made = (history_series){.curve = curve};
    memcpy(made->name, name.data, name.size);
    buffer_init(&made->points, h->allocator, SIZE_MAX);
    return made;
}

/* ---- Lines ---- */

static bool number_of(const json_value *value, double *number) {
    if (value != NULL && value->kind == JSON_INTEGER)
        *number = (double)value->integer;
    else if (value != NULL && value->kind == JSON_NUMBER)
        *number = value->number;
    else
        return false;
    return isfinite(*number);
}

static avo_status add_point(history *h, text_view name, double step, double value) {
    history_series *series = find_series(h, name);
    history_point point = {step, value};
    if (series == NULL)
        return AVO_OK;
    if (!series->curve)
        series->points.size = 0;
    return buffer_append(&series->points, &point, sizeof(point));
}

static avo_status take_metrics(history *h, const json_value *root, uint64_t step) {
    double value;
    if (number_of(json_find(root, "step_time"), &value) && value > 0.0)
        h->times[h->timed++ % TIMED_STEPS] = value;
    for (size_t i = 0; h->wants_series && i < root->object.count; i++)
        if (number_of(&root->object.members[i].value, &value))
            AVO_TRY(add_point(h, root->object.members[i].key, (double)step, value));
    return AVO_OK;
}

/* A line is good if it is an object with a step that is not before the last one. */
static avo_status take_line(history *h, text_view line) {
    json_value root;
    arena_reset(&h->line);
    avo_status status =
        line.size <= LINE_BYTES_MAX ? json_parse(&h->line, line, &root, NULL) : AVO_ERROR_LIMIT;
    if (status == AVO_ERROR_MEMORY)
        return status;
    if (status == AVO_OK) {
        const json_value *step = json_find(&root, "step");
        if (step != NULL && step->kind == JSON_INTEGER && step->integer >= 0 &&
            step->integer <= STEP_MAX && (uint64_t)step->integer >= h->facts->step) {
            h->facts->lines++;
            h->facts->step = (uint64_t)step->integer;
            return take_metrics(h, &root, h->facts->step);
        }
    }
    h->facts->skipped++;
    return AVO_OK;
}

static avo_status take_lines(history *h, text_view text, bool cut) {
    if (text.size == 0)
        return AVO_OK;
    const char *end = text.data + text.size;
    for (const char *at = text.data; at < end; cut = false) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            break;
        if (!cut && newline > at)
            AVO_TRY(take_line(h, (text_view){at, (size_t)(newline - at)}));
        at = newline + 1;
    }
    return AVO_OK;
}

static double mean_time(const history *h) {
    uint64_t count = h->timed < TIMED_STEPS ? h->timed : TIMED_STEPS;
    double sum = 0.0;
    for (uint64_t i = 0; i < count; i++)
        sum += h->times[i];
    return count > 0 ? sum / (double)count : 0.0;
}

/* ---- Curves ---- */

static void write_points(const history_series *series, json_writer *w) {
    const history_point *points = (const void *)series->points.data;
    size_t count = series->points.size / sizeof(*points);
    size_t shown = count < HISTORY_POINTS_MAX ? count : HISTORY_POINTS_MAX;
    json_key(w, series->name);
    json_array_begin(w);
    for (size_t i = 0; i < shown; i++) {
        size_t first = i * count / shown, end = (i + 1) * count / shown;
        double mean = 0.0; /* of shares, which cannot overflow where the values do not */
        for (size_t n = first; n < end; n++)
            mean += points[n].value / (double)(end - first);
        json_array_begin(w);
        json_u64(w, (uint64_t)points[end - 1].step);
        json_significant(w, mean, 6);
        json_end(w);
    }
    json_end(w);
}

static void write_series(const history *h, json_writer *w) {
    json_member_object_begin(w, "latest");
    for (size_t i = 0; i < h->count; i++) {
        const history_series *series = &h->series[i];
        const history_point *points = (const void *)series->points.data;
        json_member_number(w, series->name,
                           points[series->points.size / sizeof(*points) - 1].value);
    }
    json_end(w);
    json_member_object_begin(w, "series");
    for (size_t i = 0; i < h->count; i++)
        if (h->series[i].curve)
            write_points(&h->series[i], w);
    json_end(w);
}

static avo_status read_history(history *h, text_view text, bool cut, json_writer *w,
                               avo_error *error) {
    *h->facts = (history_facts){0};
    arena_init(&h->line, h->allocator, ARENA_BYTES_MAX);
    avo_status status = take_lines(h, text, cut);
    if (status != AVO_OK)
        status = status_no_memory(error, "a run's metrics", text.size);
    h->facts->step_time = mean_time(h);
    if (status == AVO_OK && w != NULL)
        write_series(h, w);
    for (size_t i = 0; i < h->count; i++)
        buffer_free(&h->series[i].points);
    arena_free(&h->line);
    return status;
}

avo_status history_write(const avo_allocator *allocator, text_view text, bool cut, json_writer *w,
                         history_facts *facts, avo_error *error) {
    history h = {.allocator = allocator, .facts = facts, .wants_series = true};
    return read_history(&h, text, cut, w, error);
}

avo_status history_look(const avo_allocator *allocator, text_view text, bool cut,
                        history_facts *facts, avo_error *error) {
    history h = {.allocator = allocator, .facts = facts};
    return read_history(&h, text, cut, NULL, error);
}
