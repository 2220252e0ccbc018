/* Writing results. The keys are lm-eval's; "against" and its members are ours. */
#include "eval/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

eval_pairs report_pairs(const report_task *task, uint32_t score) {
    eval_pairs pairs = {0};
    const eval_run *run = task->run;
    for (uint32_t i = 0; i < run->items.count; i++) {
        size_t at = (size_t)i * run->scores + score;
        pairs_add(&pairs, run->score[at], task->other[at]);
    }
    return pairs;
}

static bool is_counted(const eval_run *run, uint32_t score) {
    return task_score_metric(run->task, score) != METRIC_PERPLEXITY;
}

eval_pairs report_pooled(const eval_report *report) {
    eval_pairs pooled = {0};
    for (size_t i = 0; i < report->tasks; i++) {
        const report_task *task = &report->task[i];
        uint32_t score = task_headline(task->run->task);
        eval_pairs pairs = report_pairs(task, score);
        if (is_counted(task->run, score))
            pairs_merge(&pooled, &pairs);
    }
    return pooled;
}

/* ---- JSON ---- */

static void write_results(const eval_run *run, json_writer *w) {
    const eval_task *task = run->task;
    char name[TASK_SCORE_NAME_MAX];
    json_key_text(w, task->name);
    json_object_begin(w);
    json_member_text(w, "alias", task->name);
    for (uint32_t i = 0; i < run->scores; i++) {
        eval_figure figure = eval_run_figure(run, i);
        json_member_number(w, task_score_name(task, i, "", name), figure.value);
        json_member_number(w, task_score_name(task, i, "_stderr", name), figure.error);
    }
    if (run->timeouts > 0)
        json_member_u64(w, "timeouts", run->timeouts);
    if (run->items.truncated > 0)
        json_member_u64(w, "truncated", run->items.truncated);
    json_end(w);
}

static void write_higher(const eval_task *task, json_writer *w) {
    json_key_text(w, task->name);
    json_object_begin(w);
    for (uint32_t i = 0; i < task->metrics; i++)
        json_member_boolean(w, task_metric_name(task->metric[i]),
                            task->metric[i] != METRIC_PERPLEXITY);
    json_end(w);
}

static void write_sizes(const eval_run *run, json_writer *w) {
    json_key_text(w, run->task->name);
    json_object_begin(w);
    json_member_u64(w, "original", run->documents->total);
    json_member_u64(w, "effective", run->items.count);
    json_end(w);
}

static void write_pairs(const report_task *task, json_writer *w) {
    char name[TASK_SCORE_NAME_MAX];
    json_key_text(w, task->run->task->name);
    json_object_begin(w);
    for (uint32_t i = 0; i < task->run->scores; i++) {
        if (!is_counted(task->run, i))
            continue;
        eval_pairs pairs = report_pairs(task, i);
        json_member_object_begin(w, task_score_name(task->run->task, i, "", name));
        pairs_write(w, &pairs);
        json_end(w);
    }
    json_end(w);
}

static void write_against(const eval_report *report, json_writer *w) {
    json_member_object_begin(w, "against");
    json_member_string(w, "model", report->against);
    json_member_object_begin(w, "pairs");
    for (size_t i = 0; i < report->tasks; i++)
        write_pairs(&report->task[i], w);
    json_end(w);
    eval_pairs pooled = report_pooled(report);
    if (pooled.items > 0) {
        json_member_object_begin(w, "pooled");
        pairs_write(w, &pooled);
        json_end(w);
    }
    json_end(w);
}

static void write_config(const eval_report *report, json_writer *w) {
    json_member_object_begin(w, "config");
    json_member_string(w, "model", "avocet");
    json_member_string(w, "model_args", report->model);
    if (report->limit > 0)
        json_member_u64(w, "limit", report->limit);
    else
        json_member_null(w, "limit");
    json_member_boolean(w, "apply_chat_template", report->chat);
    json_end(w);
}

avo_status report_json(const eval_report *report, buffer *out) {
    json_writer w = json_writer_indented(out, 3);
    const report_task *task = report->task;
    json_object_begin(&w);
    json_member_object_begin(&w, "results");
    for (size_t i = 0; i < report->tasks; i++)
        write_results(task[i].run, &w);
    json_end(&w);
    json_member_object_begin(&w, "group_subtasks");
    json_end(&w);
    json_member_object_begin(&w, "configs");
    for (size_t i = 0; i < report->tasks; i++) {
        json_key_text(&w, task[i].run->task->name);
        json_tree(&w, &task[i].run->task->json);
    }
    json_end(&w);
    json_member_object_begin(&w, "versions");
    for (size_t i = 0; i < report->tasks; i++) {
        json_key_text(&w, task[i].run->task->name);
        json_number(&w, task[i].run->task->version);
    }
    json_end(&w);
    json_member_object_begin(&w, "n-shot");
    for (size_t i = 0; i < report->tasks; i++) {
        json_key_text(&w, task[i].run->task->name);
        json_u64(&w, task[i].run->task->shots);
    }
    json_end(&w);
    json_member_object_begin(&w, "higher_is_better");
    for (size_t i = 0; i < report->tasks; i++)
        write_higher(task[i].run->task, &w);
    json_end(&w);
    json_member_object_begin(&w, "n-samples");
    for (size_t i = 0; i < report->tasks; i++)
        write_sizes(task[i].run, &w);
    json_end(&w);
    write_config(report, &w);
    if (report->against != NULL)
        write_against(report, &w);
    json_member_fixed(&w, "total_evaluation_time_seconds", report->seconds, 1);
    json_end(&w);
    return json_writer_status(&w);
}

/* ---- Tables ---- */

static avo_status table_row(const eval_run *run, uint32_t score, int width, buffer *out) {
    const eval_task *task = run->task;
    const task_filter *filter = &task->filter[score / task->metrics];
    eval_figure figure = eval_run_figure(run, score);
    bool first = score == 0;
    bool share = is_counted(run, score);
    char error[32] = "";
    if (!isnan(figure.error))
        snprintf(error, sizeof(error), share ? "+/- %.4f" : "+/- %.3f", figure.error);
    char value[32];
    snprintf(value, sizeof(value), share ? "%.4f" : "%.3f", figure.value);
    char items[16] = "";
    if (first)
        snprintf(items, sizeof(items), "%u", run->items.count);
    return buffer_format(out, "%-*.*s  %6s  %-16.*s  %-11s  %10s  %s\n", width,
                         first ? (int)task->name.size : 0, task->name.data, items,
                         (int)filter->name.size, filter->name.data,
                         task_metric_name(task_score_metric(task, score)), value, error);
}

static avo_status pair_row(const char *name, const char *metric, const eval_pairs *pairs, int width,
                           buffer *out) {
    pairs_result result = pairs_conclude(pairs);
    return buffer_format(out,
                         "%-*s  %-28s  %6llu  %8.4f  %8.4f  %+8.4f  [%+.4f, %+.4f]  +%llu -%llu  "
                         "%.3g\n",
                         width, name, metric, (unsigned long long)pairs->items, result.score,
                         result.other, result.difference, result.low, result.high,
                         (unsigned long long)pairs->gained, (unsigned long long)pairs->lost,
                         result.p);
}

static avo_status pair_rows(const report_task *task, int width, buffer *out) {
    char metric[TASK_SCORE_NAME_MAX], name[TASK_NAME_MAX + 1];
    const eval_task *of = task->run->task;
    snprintf(name, sizeof(name), "%.*s", (int)of->name.size, of->name.data);
    for (uint32_t i = 0; i < task->run->scores; i++) {
        if (!is_counted(task->run, i))
            continue;
        eval_pairs pairs = report_pairs(task, i);
        AVO_TRY(pair_row(name, task_score_name(of, i, "", metric), &pairs, width, out));
        name[0] = '\0';
    }
    return AVO_OK;
}

static avo_status compare_table(const eval_report *report, int width, buffer *out) {
    AVO_TRY(buffer_format(out, "\nagainst %s\n%-*s  %-28s  %6s  %8s  %8s  %8s  %-18s  %s\n",
                          report->against, width, "task", "metric", "items", "score", "against",
                          "diff", "95 % interval", "flips  p"));
    for (size_t i = 0; i < report->tasks; i++)
        AVO_TRY(pair_rows(&report->task[i], width, out));
    eval_pairs pooled = report_pooled(report);
    if (report->tasks > 1 && pooled.items > 0)
        AVO_TRY(pair_row("pooled", "", &pooled, width, out));
    return AVO_OK;
}

avo_status report_table(const eval_report *report, buffer *out) {
    int width = 6;
    for (size_t i = 0; i < report->tasks; i++)
        if ((int)report->task[i].run->task->name.size > width)
            width = (int)report->task[i].run->task->name.size;
    AVO_TRY(buffer_format(out, "%-*s  %6s  %-16s  %-11s  %10s  %s\n", width, "task", "items",
                          "filter", "metric", "value", "error"));
    for (size_t i = 0; i < report->tasks; i++)
        for (uint32_t k = 0; k < report->task[i].run->scores; k++)
            AVO_TRY(table_row(report->task[i].run, k, width, out));
    for (size_t i = 0; i < report->tasks; i++) {
        const eval_run *run = report->task[i].run;
        if (run->items.truncated > 0)
            AVO_TRY(buffer_format(out,
                                  "%.*s: %u prompts were cut at their begin to fit the "
                                  "context\n",
                                  (int)run->task->name.size, run->task->name.data,
                                  run->items.truncated));
        if (run->timeouts > 0)
            AVO_TRY(buffer_format(out, "%.*s: %u programs timed out\n", (int)run->task->name.size,
                                  run->task->name.data, run->timeouts));
    }
    return report->against == NULL ? AVO_OK : compare_table(report, width, out);
}
