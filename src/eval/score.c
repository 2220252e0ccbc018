/* Scores of one item, as lm-eval computes them. */
#include "eval/run.h"

#include <math.h>

/* Characters, as Python's len counts them. */
static double characters(text_view text) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return (double)count;
}

/* The first of the highest, as numpy's argmax. */
static uint32_t most_likely(const eval_item *item, const eval_response *responses, bool normed) {
    uint32_t best = 0;
    double highest = 0;
    for (uint32_t i = 0; i < item->choices; i++) {
        double value = responses[i].logprob / (normed ? characters(item->choice[i]) : 1.0);
        if (i == 0 || value > highest) {
            best = i;
            highest = value;
        }
    }
    return best;
}

/* Runs the task's program with the filtered answer. */
static avo_status run_program(eval_run *run, uint32_t index, text_view answer, double *passed,
                              avo_error *error) {
    buffer program;
    code_run_result result = {.outcome = CODE_FAILED};
    buffer_init(&program, run->allocator, TASK_RENDERED_MAX);
    avo_status status = task_render(&run->task->program, &run->documents->document[index], &answer,
                                    &program, error);
    AVO_THEN(status, code_run(buffer_text(&program).data, program.size, &run->options.code, &result,
                              error));
    buffer_free(&program);
    AVO_TRY(status);
    run->timeouts += result.outcome == CODE_TIMEOUT;
    *passed = result.outcome == CODE_PASSED ? 1.0 : 0.0;
    return AVO_OK;
}

static avo_status score_answer(eval_run *run, uint32_t index, text_view answer,
                               const double *passed, double *scores, avo_error *error) {
    const eval_task *task = run->task;
    for (uint32_t score = 0; score < run->scores; score++) {
        text_view filtered;
        AVO_TRY(task_filter_apply(&task->filter[score / task->metrics], answer, &filtered, error));
        if (task_score_metric(task, score) == METRIC_PASS) {
            if (passed != NULL)
                scores[score] = passed[score];
            else
                AVO_TRY(run_program(run, index, filtered, &scores[score], error));
            continue;
        }
        bool same;
        AVO_TRY(task_exact_match(task, filtered, run->items.item[index].target, &same, error));
        scores[score] = same ? 1.0 : 0.0;
    }
    return AVO_OK;
}

avo_status eval_score(eval_run *run, uint32_t index, const eval_response *responses,
                      const double *passed, double *scores, avo_error *error) {
    const eval_task *task = run->task;
    const eval_item *item = &run->items.item[index];
    if (task->kind == TASK_GENERATE)
        return score_answer(run, index, responses[0].text, passed, scores, error);
    for (uint32_t score = 0; score < run->scores; score++) {
        bool right = responses[0].greedy;
        switch (task_score_metric(task, score)) {
        case METRIC_PERPLEXITY:
            scores[score] = responses[0].logprob;
            continue;
        case METRIC_ACC_NORM:
            right = most_likely(item, responses, true) == item->gold;
            break;
        default:
            if (task->kind == TASK_CHOICE)
                right = most_likely(item, responses, false) == item->gold;
            break;
        }
        scores[score] = right ? 1.0 : 0.0;
    }
    return AVO_OK;
}

eval_figure eval_run_figure(const eval_run *run, uint32_t score) {
    double count = (double)run->items.count, sum = 0, squares = 0;
    for (uint32_t i = 0; i < run->items.count; i++)
        sum += run->score[(size_t)i * run->scores + score];
    double mean = sum / count;
    for (uint32_t i = 0; i < run->items.count; i++) {
        double difference = run->score[(size_t)i * run->scores + score] - mean;
        squares += difference * difference;
    }
    double error = count > 1 ? sqrt(squares / (count - 1)) / sqrt(count) : NAN;
    if (task_score_metric(run->task, score) != METRIC_PERPLEXITY)
        return (eval_figure){mean, error};
    return (eval_figure){exp(-mean), exp(-mean) * error};
}
