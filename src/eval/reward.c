/* Opening, scoring and closing one reward, and sets of them. */
#include "eval/reward.h"

#include "base/file.h"
#include "base/json_writer.h"
#include "eval/reward_int.h"

#include <math.h>
#include <string.h>

/* ---- Opening ---- */

static avo_status read_file(reward *reward, avo_error *error) {
    AVO_TRY(
        file_read_text(&reward->arena, reward->file.data, REWARD_FILE_MAX, &reward->text, error));
    if (reward->text.size == 0)
        return status_fail(error, AVO_ERROR_LIMIT, "%s is empty", reward->file.data);
    return AVO_OK;
}

static avo_status open_schema(reward *reward, avo_error *error) {
    json_value *tree = arena_take_array(&reward->arena, 1, sizeof(*tree));
    if (tree == NULL)
        return status_no_memory(error, "a schema", sizeof(*tree));
    avo_status status = json_parse(&reward->arena, reward->text, tree, error);
    AVO_THEN(status, reward_schema_open(tree, reward->options.allocator, &reward->schema, error));
    if (status != AVO_OK && reward->file.size > 0)
        return status_prefix(error, status, "%s", reward->file.data);
    return status;
}

static avo_status prepare(reward *reward, avo_error *error) {
    if (reward->file.size > 0)
        AVO_TRY(read_file(reward, error));
    if (reward->kind == REWARD_JSON_SCHEMA)
        return open_schema(reward, error);
    if (reward->kind == REWARD_REGEX) {
        pattern_options options = {reward->options.allocator, reward->ignore_case, true};
        return pattern_open(reward->text, &options, &reward->pattern, error);
    }
    if (reward->kind == REWARD_LENGTH && reward->tokens && reward->options.count_tokens == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "lengths in tokens need a tokenizer; use characters here");
    return AVO_OK;
}

static avo_status open_reward(const json_value *json, text_view text, const reward_options *options,
                              reward **out, avo_error *error) {
    static const reward_options defaults = {0};
    *out = NULL;
    options = options == NULL ? &defaults : options;
    reward *fresh = allocator_take_array(options->allocator, 1, sizeof(*fresh));
    if (fresh == NULL)
        return status_no_memory(error, "a reward", sizeof(*fresh));
    fresh->options = *options;
    arena_init(&fresh->arena, options->allocator, 64 * REWARD_FILE_MAX);
    fresh->weight = 1.0;
    fresh->field = text_from(REWARD_FIELD_DEFAULT);
    fresh->most = UINT64_MAX;
    fresh->seconds = REWARD_SECONDS;
    avo_status status = json != NULL ? reward_describe(fresh, json, error)
                                     : reward_describe_text(fresh, text, error);
    if (status == AVO_OK) {
        status = prepare(fresh, error);
        if (status != AVO_OK)
            status = status_prefix(error, status, "%s", reward_name(fresh));
    }
    if (status != AVO_OK) {
        reward_close(fresh);
        return status;
    }
    *out = fresh;
    return AVO_OK;
}

avo_status reward_open(const json_value *description, const reward_options *options, reward **out,
                       avo_error *error) {
    return open_reward(description, (text_view){0}, options, out, error);
}

avo_status reward_open_text(text_view description, const reward_options *options, reward **out,
                            avo_error *error) {
    return open_reward(NULL, description, options, out, error);
}

void reward_close(reward *reward) {
    if (reward == NULL)
        return;
    pattern_close(reward->pattern);
    reward_schema_close(reward->schema);
    arena_free(&reward->arena);
    allocator_give(reward->options.allocator, reward, sizeof(*reward));
}

const char *reward_name(const reward *reward) {
    return reward_kind_name(reward->kind);
}

double reward_weight(const reward *reward) {
    return reward->weight;
}

/* ---- Scoring ---- */

static avo_status score_all(const reward *reward, const reward_item *items, size_t count,
                            float *scores, avo_error *error) {
    if (reward->kind == REWARD_PYTHON)
        return reward_score_python(reward, items, count, scores, error);
    if (reward->kind == REWARD_COMMAND)
        return reward_score_command(reward, items, count, scores, error);
    for (size_t i = 0; i < count; i++) {
        avo_status status = reward_score_text(reward, &items[i], &scores[i], error);
        if (status != AVO_OK)
            return status_prefix(error, status, "completion %zu", i + 1);
    }
    return AVO_OK;
}

avo_status reward_score(reward *reward, const reward_item *items, size_t count, float *scores,
                        avo_error *error) {
    if (count == 0)
        return AVO_OK;
    avo_status status =
        count > REWARD_ITEMS_MAX
            ? status_fail(error, AVO_ERROR_LIMIT, "%zu completions at once, must be at most %d",
                          count, REWARD_ITEMS_MAX)
            : score_all(reward, items, count, scores, error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", reward_name(reward));
}

avo_status reward_write_item(buffer *out, const reward_item *item) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "prompt", item->prompt);
    json_member_string(&w, "completion", item->completion);
    json_key(&w, "fields");
    if (item->fields != NULL) {
        json_tree(&w, item->fields);
    } else {
        json_object_begin(&w);
        json_end(&w);
    }
    json_end(&w);
    return json_writer_status(&w);
}

/* ---- What programs answer ---- */

static bool read_score(text_view line, float *score) {
    char number[REWARD_SCORE_TEXT], *end;
    while (line.size > 0 && (line.data[line.size - 1] == '\r' || line.data[line.size - 1] == ' '))
        line.size--;
    if (line.size == 0 || line.size >= sizeof(number) || line.data[0] == ' ')
        return false;
    memcpy(number, line.data, line.size);
    number[line.size] = '\0';
    *score = (float)number_from_text(number, &end);
    return end == number + line.size;
}

avo_status reward_read_scores(text_view text, size_t count, const char *source, float *scores,
                              avo_error *error) {
    size_t found = 0;
    for (size_t at = 0; at < text.size; found++) {
        const char *end = memchr(text.data + at, '\n', text.size - at);
        text_view line = {text.data + at,
                          end == NULL ? text.size - at : (size_t)(end - text.data) - at};
        float score = 0.0f;
        at += line.size + 1;
        if (!read_score(line, &score))
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: line %zu is \"%.*s\", must be a number", source, found + 1,
                               TEXT_ARGUMENT(line));
        if (!isfinite(score))
            return status_fail(error, AVO_ERROR_FORMAT, "%s: score %zu is \"%.*s\", must be finite",
                               source, found + 1, TEXT_ARGUMENT(line));
        if (found < count)
            scores[found] = score;
    }
    return found == count ? AVO_OK
                          : status_fail(error, AVO_ERROR_FORMAT,
                                        "%s: %zu scores, must be one for each of %zu completions",
                                        source, found, count);
}
