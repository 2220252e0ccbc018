/* Descriptions of rewards, as JSON or as one line of text:
 *
 *   [WEIGHT*]exact_match[:FIELD]          [WEIGHT*]number[:FIELD]
 *   [WEIGHT*]contains:TEXT                [WEIGHT*]json_schema:FILE or {…}
 *   [WEIGHT*]regex:PATTERN                [WEIGHT*]python:FILE
 *   [WEIGHT*]length:[MIN]:[MAX][:tokens]  [WEIGHT*]command:COMMAND
 */
#include "eval/reward_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a kind takes, besides "reward" and "weight". `main` is what text gives behind the colon. */
typedef struct kind_facts {
    const char *name, *main, *members;
} kind_facts;

static const kind_facts kinds[REWARD_KINDS] = {
    [REWARD_EXACT_MATCH] = {"exact_match", "field", " field ignore_case "},
    [REWARD_CONTAINS] = {"contains", "text", " text ignore_case "},
    [REWARD_REGEX] = {"regex", "pattern", " pattern ignore_case "},
    [REWARD_LENGTH] = {"length", NULL, " minimum maximum unit "},
    [REWARD_NUMBER] = {"number", "field", " field "},
    [REWARD_JSON_SCHEMA] = {"json_schema", "file", " schema file "},
    [REWARD_PYTHON] = {"python", "file", " file seconds "},
    [REWARD_COMMAND] = {"command", "command", " command seconds "},
};

const char *reward_kind_name(reward_kind kind) {
    return kinds[kind].name;
}

static avo_status copy_text(reward *reward, text_view from, text_view *to, avo_error *error) {
    char *copy = arena_copy_text(&reward->arena, from.data, from.size);
    if (copy == NULL)
        return status_no_memory(error, "a reward", from.size);
    *to = (text_view){copy, from.size};
    return AVO_OK;
}

static avo_status find_kind(text_view name, reward_kind *kind, avo_error *error) {
    for (int i = 0; i < REWARD_KINDS; i++) {
        if (text_is(name, kinds[i].name)) {
            *kind = (reward_kind)i;
            return AVO_OK;
        }
    }
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "reward \"%.*s\": unknown, must be exact_match, contains, regex, length, "
                       "number, json_schema, python or command",
                       TEXT_ARGUMENT(name));
}

/* The one text that most kinds take. Of a file the name is kept twice, for reading and for errors.
 */
static avo_status take_main(reward *reward, text_view text, avo_error *error) {
    const char *name = kinds[reward->kind].main;
    if (text.size == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s is missing or empty", name);
    if (reward->kind != REWARD_CONTAINS && memchr(text.data, '\0', text.size) != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s contains a zero byte", name);
    if (strcmp(name, "field") == 0)
        return copy_text(reward, text, &reward->field, error);
    if (strcmp(name, "file") == 0)
        return copy_text(reward, text, &reward->file, error);
    return copy_text(reward, text, &reward->text, error);
}

static avo_status check_range(const reward *reward, avo_error *error) {
    return reward->least <= reward->most
               ? AVO_OK
               : status_fail(error, AVO_ERROR_ARGUMENT,
                             "minimum is %llu, must be at most the maximum (%llu)",
                             (unsigned long long)reward->least, (unsigned long long)reward->most);
}

/* ---- JSON ---- */

static avo_status check_members(const reward *reward, const json_value *description,
                                avo_error *error) {
    for (size_t i = 0; i < description->object.count; i++) {
        text_view key = description->object.members[i].key;
        char word[40], shown[JSON_SHOWN_KEY_MAX];
        bool known = text_is(key, "reward") || text_is(key, "weight");
        if (!known && key.size > 0 && key.size < sizeof(word) - 2 &&
            memchr(key.data, ' ', key.size) == NULL && memchr(key.data, '\0', key.size) == NULL) {
            word[0] = ' ';
            memcpy(word + 1, key.data, key.size);
            memcpy(word + 1 + key.size, " ", 2);
            known = strstr(kinds[reward->kind].members, word) != NULL;
        }
        if (!known)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "unknown member \"%s\", must be of: reward weight%s",
                               json_shown_key(key, shown), kinds[reward->kind].members);
    }
    return AVO_OK;
}

static avo_status read_length(reward *reward, const json_value *description, avo_error *error) {
    int64_t least = 0, most = INT64_MAX;
    text_view unit = TEXT_LITERAL("characters");
    AVO_TRY(json_get_integer(description, "minimum", 0, INT64_MAX, &least, error));
    AVO_TRY(json_get_integer(description, "maximum", 0, INT64_MAX, &most, error));
    AVO_TRY(json_get_string(description, "unit", &unit, error));
    reward->least = (uint64_t)least;
    reward->most = (uint64_t)most;
    reward->tokens = text_is(unit, "tokens");
    if (!reward->tokens && !text_is(unit, "characters"))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "unit is \"%.*s\", must be characters or tokens", TEXT_ARGUMENT(unit));
    return check_range(reward, error);
}

/* A copy: the description is its owner's. */
static avo_status copy_schema(reward *reward, const json_value *schema, avo_error *error) {
    buffer text;
    buffer_init(&text, reward->options.allocator, REWARD_FILE_MAX);
    avo_status status = json_write_value(&text, schema);
    if (status == AVO_OK)
        status = copy_text(reward, buffer_text(&text), &reward->text, error);
    else
        status = status_fail(error, status, "schema: larger than %zu bytes", REWARD_FILE_MAX);
    buffer_free(&text);
    return status;
}

static avo_status read_main(reward *reward, const json_value *description, avo_error *error) {
    const json_value *schema = json_find(description, "schema");
    text_view text = {0};
    if (reward->kind == REWARD_LENGTH)
        return read_length(reward, description, error);
    AVO_TRY(json_get_string(description, kinds[reward->kind].main, &text, error));
    if (schema != NULL && text.size > 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "has a file and a schema, must have one");
    if (schema != NULL)
        return copy_schema(reward, schema, error);
    if (strcmp(kinds[reward->kind].main, "field") == 0 && json_find(description, "field") == NULL)
        return AVO_OK; /* the default */
    return take_main(reward, text, error);
}

avo_status reward_describe(reward *reward, const json_value *description, avo_error *error) {
    text_view name = {0};
    int64_t seconds = REWARD_SECONDS;
    if (description->kind == JSON_STRING)
        return reward_describe_text(reward, description->string, error);
    if (description->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_ARGUMENT, "reward: %s, must be an object or a string",
                           json_kind_name(description->kind));
    AVO_TRY(json_get_string(description, "reward", &name, error));
    AVO_TRY(find_kind(name, &reward->kind, error));
    avo_status status = check_members(reward, description, error);
    AVO_THEN(status, json_get_number(description, "weight", -REWARD_WEIGHT_MAX, REWARD_WEIGHT_MAX,
                                     &reward->weight, error));
    AVO_THEN(status, json_get_boolean(description, "ignore_case", &reward->ignore_case, error));
    AVO_THEN(status,
             json_get_integer(description, "seconds", 1, REWARD_SECONDS_MAX, &seconds, error));
    reward->seconds = (uint32_t)seconds;
    AVO_THEN(status, read_main(reward, description, error));
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", kinds[reward->kind].name);
}

/* ---- Text ---- */

/* "0.5*" in front; nothing there is 1. */
static avo_status take_weight(reward *reward, text_view *text, avo_error *error) {
    char number[40], *end;
    const char *star = memchr(text->data, '*', text->size);
    const char *colon = memchr(text->data, ':', text->size);
    if (star == NULL || (colon != NULL && colon < star))
        return AVO_OK;
    size_t bytes = (size_t)(star - text->data);
    if (bytes > 0 && bytes < sizeof(number)) {
        memcpy(number, text->data, bytes);
        number[bytes] = '\0';
        reward->weight = number_from_text(number, &end);
        if (end == number + bytes && fabs(reward->weight) <= REWARD_WEIGHT_MAX) {
            text->data += bytes + 1;
            text->size -= bytes + 1;
            return AVO_OK;
        }
    }
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "reward \"%.*s\": the weight before '*' must be a number from -1e6 to 1e6",
                       TEXT_ARGUMENT(*text));
}

/* Up to the next colon or the end. */
static text_view take_part(text_view *rest) {
    const char *colon = rest->size == 0 ? NULL : memchr(rest->data, ':', rest->size);
    text_view part = {rest->data, colon == NULL ? rest->size : (size_t)(colon - rest->data)};
    size_t taken = part.size + (colon != NULL);
    rest->data += taken;
    rest->size -= taken;
    return part;
}

static bool read_count(text_view part, uint64_t *value) {
    uint64_t sum = 0;
    if (part.size > 18)
        return false;
    for (size_t i = 0; i < part.size; i++) {
        if (part.data[i] < '0' || part.data[i] > '9')
            return false;
        sum = sum * 10 + (uint64_t)(part.data[i] - '0');
    }
    if (part.size > 0) /* else the default stays */
        *value = sum;
    return true;
}

static avo_status take_length(reward *reward, text_view rest, avo_error *error) {
    text_view whole = rest;
    bool has_maximum = rest.size > 0 && memchr(rest.data, ':', rest.size) != NULL;
    text_view least = take_part(&rest), most = take_part(&rest), unit = rest;
    reward->tokens = text_is(unit, "tokens");
    if (!has_maximum || !read_count(least, &reward->least) || !read_count(most, &reward->most) ||
        (unit.size > 0 && !reward->tokens && !text_is(unit, "characters")))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "\"%.*s\" must be MIN:MAX or MIN:MAX:tokens, whole numbers; an empty "
                           "one is no limit",
                           TEXT_ARGUMENT(whole));
    return check_range(reward, error);
}

avo_status reward_describe_text(reward *reward, text_view description, avo_error *error) {
    if (description.size == 0 || description.size > REWARD_TEXT_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a reward's description has %zu bytes, must have 1 to %d",
                           description.size, REWARD_TEXT_MAX);
    text_view rest = description;
    AVO_TRY(take_weight(reward, &rest, error));
    bool has_colon = rest.size > 0 && memchr(rest.data, ':', rest.size) != NULL;
    AVO_TRY(find_kind(take_part(&rest), &reward->kind, error));
    avo_status status;
    if (reward->kind == REWARD_LENGTH)
        status = take_length(reward, rest, error);
    else if (reward->kind == REWARD_JSON_SCHEMA && rest.size > 0 && rest.data[0] == '{')
        status = copy_text(reward, rest, &reward->text, error);
    else if (!has_colon && strcmp(kinds[reward->kind].main, "field") == 0)
        status = AVO_OK;
    else
        status = take_main(reward, rest, error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", kinds[reward->kind].name);
}
