/* The python reward: a file that defines reward(prompt, completion, fields), called for each item
 * in one child of the sandbox (code_run.h). */
#include "eval/code_int.h"
#include "eval/reward_int.h"

#include <string.h>

#define DATA_MAX ((size_t)256 << 20)

static avo_status write_items(buffer *out, const reward_item *items, size_t count) {
    AVO_TRY(buffer_append_text(out, "["));
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(reward_write_item(out, &items[i]));
    }
    return buffer_append_text(out, "]");
}

static avo_status run(const reward *reward, const buffer *data, size_t count, float *scores,
                      avo_error *error) {
    code_run_options options = reward->options.code, checked;
    code_run_result result;
    options.allocator = reward->options.allocator;
    options.cpu_seconds = options.wall_seconds = reward->seconds;
    AVO_TRY(code_options_check(&options, &checked, error));
    buffer answer;
    buffer_init(&answer, checked.allocator, 128 + count * REWARD_SCORE_TEXT);
    code_job job = {.program = reward->text, .data = buffer_text(data), .answer = &answer};
    avo_status status = code_process_run(&job, &checked, &result, error);
    if (status == AVO_OK && result.outcome == CODE_TIMEOUT)
        status = status_fail(error, AVO_ERROR_DEADLINE,
                             "%s takes longer than %u s for %zu completions; raise \"seconds\"",
                             reward->file.data, reward->seconds, count);
    else if (status == AVO_OK && result.outcome == CODE_FAILED)
        status = status_fail(error, AVO_ERROR_FORMAT, "%s failed: %s", reward->file.data,
                             result.output[0] != '\0' ? result.output : "it ended early");
    AVO_THEN(status,
             reward_read_scores(buffer_text(&answer), count, reward->file.data, scores, error));
    buffer_free(&answer);
    return status;
}

avo_status reward_score_python(const reward *reward, const reward_item *items, size_t count,
                               float *scores, avo_error *error) {
    buffer data;
    buffer_init(&data, reward->options.allocator, DATA_MAX);
    avo_status status = write_items(&data, items, count);
    if (status != AVO_OK)
        status = status_fail(error, status, "%zu completions as JSON: %s (at most %zu bytes)",
                             count, avo_status_text(status), DATA_MAX);
    AVO_THEN(status, run(reward, &data, count, scores, error));
    buffer_free(&data);
    return status;
}
