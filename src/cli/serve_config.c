/* --config: the table of options once more, as a JSON file. The table is the schema: kinds and
 * ranges stand there once. */
#include "cli/serve_int.h"

#include "base/file.h"
#include "base/json.h"
#include "device/device.h"

#include <math.h>
#include <string.h>

#define CONFIG_BYTES_MAX ((size_t)1 << 20)

static void key_of(const char *name, char *key, size_t capacity) {
    snprintf(key, capacity, "%s", name);
    for (char *at = key; *at != '\0'; at++)
        *at = *at == '-' ? '_' : *at;
}

/* These say what the command itself does. */
static bool is_key(const option_spec *spec) {
    return strcmp(spec->name, "config") != 0 && strcmp(spec->name, "config-schema") != 0;
}

const char *serve_config_named(int argc, char *const *argv) {
    const char *found = NULL;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0)
            found = argv[i] + 9;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            found = argv[++i];
    }
    return found;
}

/* ---- Values ---- */

static avo_status wrong_kind(const json_value *value, const char *wanted, avo_error *error) {
    return status_fail(error, AVO_ERROR_ARGUMENT, "must be %s, found %s", wanted,
                       json_kind_name(value->kind));
}

static avo_status check_range(const option_spec *spec, double number, avo_error *error) {
    bool ranged = spec->minimum != 0.0 || spec->maximum != 0.0;
    if (ranged && (number < spec->minimum || number > spec->maximum))
        return status_fail(error, AVO_ERROR_ARGUMENT, "is %.12g, must be %.12g to %.12g", number,
                           spec->minimum, spec->maximum);
    return AVO_OK;
}

static avo_status set_whole(const option_spec *spec, const json_value *value, avo_error *error) {
    if (value->kind != JSON_INTEGER)
        return wrong_kind(value, "an integer", error);
    AVO_TRY(check_range(spec, (double)value->integer, error));
    if (value->integer < 0 || (spec->kind == OPTION_U32 && value->integer > UINT32_MAX))
        return status_fail(error, AVO_ERROR_ARGUMENT, "%lld is out of range",
                           (long long)value->integer);
    if (spec->kind == OPTION_U32)
        *(uint32_t *)spec->target = (uint32_t)value->integer;
    else
        *(uint64_t *)spec->target = (uint64_t)value->integer;
    return AVO_OK;
}

static avo_status copy_text(const json_value *value, arena *arena, const char **text,
                            avo_error *error) {
    if (value->kind != JSON_STRING)
        return wrong_kind(value, "a string", error);
    if (value->string.size > 0 && memchr(value->string.data, 0, value->string.size) != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "contains a zero byte");
    *text = arena_copy_text(arena, value->string.data, value->string.size);
    return *text == NULL ? status_no_memory(error, "the configuration", value->string.size)
                         : AVO_OK;
}

static bool is_choice(const char *choices, const char *text) {
    for (const char *at = choices; *at != '\0';) {
        size_t length = strcspn(at, "|");
        if (strlen(text) == length && strncmp(at, text, length) == 0)
            return true;
        at += length + (at[length] == '|');
    }
    return false;
}

static avo_status set_list(const option_spec *spec, const json_value *value, arena *arena,
                           avo_error *error) {
    option_list *list = spec->target;
    if (value->kind != JSON_ARRAY)
        return wrong_kind(value, "a list of strings", error);
    if (value->array.count > OPTION_LIST_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "has %zu entries, must have at most %d",
                           value->array.count, OPTION_LIST_MAX);
    list->count = 0;
    for (size_t i = 0; i < value->array.count; i++)
        AVO_TRY(copy_text(&value->array.items[i], arena, &list->items[list->count++], error));
    return AVO_OK;
}

static avo_status set_value(const option_spec *spec, const json_value *value, arena *arena,
                            avo_error *error) {
    const char *text = NULL, *found;
    switch (spec->kind) {
    case OPTION_FLAG:
        if (value->kind != JSON_BOOLEAN)
            return wrong_kind(value, "true or false", error);
        *(bool *)spec->target = value->boolean;
        return AVO_OK;
    case OPTION_U32:
    case OPTION_U64:
        return set_whole(spec, value, error);
    case OPTION_SIZE:
        if (value->kind == JSON_INTEGER)
            return set_whole(spec, value, error);
        AVO_TRY(copy_text(value, arena, &text, error));
        if (cli_parse_size(text, spec->target) == NULL)
            return AVO_OK;
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "is \"%.40s\", must be a size such as 500M or 4G", text);
    case OPTION_NUMBER: {
        if (value->kind != JSON_INTEGER && value->kind != JSON_NUMBER)
            return wrong_kind(value, "a number", error);
        double number = value->kind == JSON_INTEGER ? (double)value->integer : value->number;
        AVO_TRY(check_range(spec, number, error));
        *(double *)spec->target = number;
        return AVO_OK;
    }
    case OPTION_TEXT_LIST:
        return set_list(spec, value, arena, error);
    case OPTION_TEXT:
    case OPTION_CHOICE:
    case OPTION_DEVICE:
    case OPTION_OPTIONAL_TEXT:
        AVO_TRY(copy_text(value, arena, &text, error));
        if (spec->kind == OPTION_CHOICE && !is_choice(spec->value, text))
            return status_fail(error, AVO_ERROR_ARGUMENT, "is \"%.40s\", must be one of %s", text,
                               spec->value);
        if (spec->kind == OPTION_DEVICE)
            AVO_TRY(device_find(text, &found, error));
        *(const char **)spec->target = text;
        return AVO_OK;
    }
    return AVO_OK;
}

/* ---- The file ---- */

static avo_status unknown_key(const option_spec *specs, text_view key, avo_error *error) {
    char wanted[65], name[64];
    snprintf(wanted, sizeof(wanted), "%.*s", (int)(key.size < 64 ? key.size : 64), key.data);
    nearest near = {.wanted = wanted};
    char names[OPTIONS_MAX + 1][64];
    size_t count = 0;
    for (const option_spec *spec = specs; spec->name != NULL; spec++)
        if (is_key(spec))
            key_of(spec->name, names[count++], sizeof(name));
    snprintf(names[count++], sizeof(name), "model");
    for (size_t i = 0; i < count; i++)
        nearest_consider(&near, names[i]);
    if (near.best != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "unknown key; did you mean \"%s\"?",
                           near.best);
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "unknown key; avocet serve --config-schema lists them");
}

static avo_status set_member(const option_spec *specs, const json_member *member,
                             const char **model, arena *arena, avo_error *error) {
    char key[64];
    if (text_is(member->key, "model"))
        return copy_text(&member->value, arena, model, error);
    for (const option_spec *spec = specs; spec->name != NULL; spec++) {
        key_of(spec->name, key, sizeof(key));
        if (is_key(spec) && text_is(member->key, key))
            return set_value(spec, &member->value, arena, error);
    }
    return unknown_key(specs, member->key, error);
}

static avo_status set_all(const option_spec *specs, const json_value *root, const char **model,
                          arena *arena, avo_error *error) {
    if (root->kind != JSON_OBJECT)
        return wrong_kind(root, "an object", error);
    for (size_t i = 0; i < root->object.count; i++) {
        const json_member *member = &root->object.members[i];
        if (text_starts(member->key, TEXT_LITERAL("$"))) /* "$schema", for editors */
            continue;
        avo_status status = set_member(specs, member, model, arena, error);
        if (status != AVO_OK)
            return status_prefix(error, status, "line %u: \"%.*s\"", member->value.line,
                                 TEXT_ARGUMENT(member->key));
    }
    return AVO_OK;
}

avo_status serve_config_read(const char *path, const option_spec *specs, const char **model,
                             arena *arena, avo_error *error) {
    file_map map = {0};
    json_value root;
    AVO_TRY(file_map_open(path, &map, error));
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    avo_status status =
        text.size > CONFIG_BYTES_MAX
            ? status_fail(error, AVO_ERROR_LIMIT, "has %zu bytes, must have at most %zu", text.size,
                          CONFIG_BYTES_MAX)
            : json_parse(arena, text, &root, error);
    AVO_THEN(status, set_all(specs, &root, model, arena, error));
    file_map_close(&map);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", path);
}

/* ---- Lists ---- */

void serve_config_lists_begin(serve_config_lists *lists, const option_spec *specs) {
    for (size_t i = 0; specs[i].name != NULL; i++)
        lists->before[i] =
            specs[i].kind == OPTION_TEXT_LIST ? ((const option_list *)specs[i].target)->count : 0;
}

void serve_config_lists_end(const serve_config_lists *lists, const option_spec *specs) {
    for (size_t i = 0; specs[i].name != NULL; i++) {
        if (specs[i].kind != OPTION_TEXT_LIST)
            continue;
        option_list *list = specs[i].target;
        size_t old = lists->before[i];
        if (old == 0 || list->count == old)
            continue;
        memmove(list->items, list->items + old, (list->count - old) * sizeof(list->items[0]));
        list->count -= old;
    }
}

/* ---- The schema ---- */

static void write_words(json_writer *w, const char *keyword, const char *choices) {
    json_member_array_begin(w, keyword);
    for (const char *at = choices; *at != '\0';) {
        size_t length = strcspn(at, "|");
        json_text(w, (text_view){at, length});
        at += length + (at[length] == '|');
    }
    json_end(w);
}

static void write_option(json_writer *w, const option_spec *spec) {
    static const char *const types[] = {
        [OPTION_FLAG] = "boolean",         [OPTION_TEXT] = "string",
        [OPTION_CHOICE] = "string",        [OPTION_DEVICE] = "string",
        [OPTION_U32] = "integer",          [OPTION_U64] = "integer",
        [OPTION_OPTIONAL_TEXT] = "string", [OPTION_NUMBER] = "number",
        [OPTION_TEXT_LIST] = "array"};
    char key[64];
    key_of(spec->name, key, sizeof(key));
    json_line_break(w, 2);
    json_member_object_begin(w, key);
    json_member_string(w, "type", types[spec->kind]);
    if (spec->kind == OPTION_CHOICE)
        write_words(w, "enum", spec->value);
    if (spec->kind == OPTION_DEVICE)
        write_words(w, "examples", spec->value);
    if (spec->kind == OPTION_TEXT_LIST) {
        json_member_object_begin(w, "items");
        json_member_string(w, "type", "string");
        json_end(w);
        json_member_u64(w, "maxItems", OPTION_LIST_MAX);
    }
    if (spec->minimum != 0.0 || spec->maximum != 0.0) {
        json_member_number(w, "minimum", spec->minimum);
        json_member_number(w, "maximum", spec->maximum);
    } else if (spec->kind == OPTION_U32 || spec->kind == OPTION_U64) {
        json_member_u64(w, "minimum", 0);
    }
    json_member_string(w, "description", spec->help == NULL ? "" : spec->help);
    json_end(w);
}

void serve_config_schema(json_writer *w, const option_spec *specs) {
    json_object_begin(w);
    json_member_string(w, "$schema", "https://json-schema.org/draft/2020-12/schema");
    json_line_break(w, 1);
    json_member_string(w, "title", "avocet serve --config");
    json_line_break(w, 1);
    json_member_string(w, "type", "object");
    json_member_boolean(w, "additionalProperties", false);
    json_line_break(w, 1);
    json_member_object_begin(w, "patternProperties");
    json_member_object_begin(w, "^\\$");
    json_end(w);
    json_end(w);
    json_line_break(w, 1);
    json_member_object_begin(w, "properties");
    json_line_break(w, 2);
    json_member_object_begin(w, "model");
    json_member_string(w, "type", "string");
    json_member_string(w, "description", "the model to serve if no MODEL is given");
    json_end(w);
    for (const option_spec *spec = specs; spec->name != NULL; spec++)
        if (is_key(spec))
            write_option(w, spec);
    json_end(w);
    json_end(w);
}
