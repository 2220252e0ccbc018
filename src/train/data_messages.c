/* Lists of messages: other names for role and content, content in parts, calls of tools. */
#include "train/data_int.h"

#include <stdio.h>
#include <string.h>

#define MESSAGES_MAX 16384

static json_value string_value(text_view text) {
    return (json_value){.kind = JSON_STRING, .string = text};
}

static avo_status no_memory(avo_error *error, size_t bytes) {
    return status_no_memory(error, "a training sample", bytes);
}

avo_status data_unwrap(arena *arena, const json_value *value, const char *key, json_value *out,
                       avo_error *error) {
    *out = *value;
    if (value->kind != JSON_STRING)
        return AVO_OK;
    text_view text = value->string;
    while (text.size > 0 && (text.data[0] == ' ' || text.data[0] == '\n')) {
        text.data++;
        text.size--;
    }
    if (text.size == 0 || (text.data[0] != '[' && text.data[0] != '{'))
        return AVO_OK;
    avo_status status = json_parse(arena, value->string, out, error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", key);
}

bool data_message_is(const json_value *message, const char *role) {
    const json_value *found = json_find(message, "role");
    return found != NULL && found->kind == JSON_STRING && text_is(found->string, role);
}

avo_status data_message_make(arena *arena, const char *role, text_view content, json_value *out,
                             avo_error *error) {
    json_member *members = arena_take_array(arena, 2, sizeof(*members));
    if (members == NULL)
        return no_memory(error, 2 * sizeof(*members));
    members[0] = (json_member){TEXT_LITERAL("role"), string_value(text_from(role))};
    members[1] = (json_member){TEXT_LITERAL("content"), string_value(content)};
    *out = (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = 2}};
    return AVO_OK;
}

avo_status data_messages_join(arena *arena, const json_value *first, const json_value *second,
                              json_value *out, avo_error *error) {
    size_t count = first->array.count + second->array.count;
    json_value *items = arena_take_array(arena, count == 0 ? 1 : count, sizeof(*items));
    if (items == NULL)
        return no_memory(error, count * sizeof(*items));
    if (first->array.count > 0)
        memcpy(items, first->array.items, first->array.count * sizeof(*items));
    if (second->array.count > 0)
        memcpy(items + first->array.count, second->array.items,
               second->array.count * sizeof(*items));
    *out = (json_value){.kind = JSON_ARRAY, .array = {.items = items, .count = count}};
    return AVO_OK;
}

/* ---- Content ---- */

/* [{"type": "text", "text": …}, …] as one string. */
static avo_status join_parts(arena *arena, const json_value *parts, json_value *out,
                             avo_error *error) {
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < parts->array.count; i++) {
        const json_value *type = json_find(&parts->array.items[i], "type");
        const json_value *text = json_find(&parts->array.items[i], "text");
        if (text == NULL || text->kind != JSON_STRING ||
            (type != NULL && (type->kind != JSON_STRING || !text_is(type->string, "text"))))
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "content has a part that is not text, only text can be trained");
        bytes += text->string.size;
    }
    char *joined = arena_take(arena, bytes + 1);
    if (joined == NULL)
        return no_memory(error, bytes);
    for (size_t i = 0; i < parts->array.count; i++) {
        text_view text = json_find(&parts->array.items[i], "text")->string;
        if (text.size > 0)
            memcpy(joined + at, text.data, text.size);
        at += text.size;
    }
    *out = string_value((text_view){joined, bytes});
    return AVO_OK;
}

static avo_status read_content(arena *arena, const json_value *content, bool calling,
                               json_value *out, avo_error *error) {
    if (content == NULL || content->kind == JSON_NULL) {
        *out = (json_value){.kind = JSON_NULL};
        return calling ? AVO_OK : status_fail(error, AVO_ERROR_FORMAT, "content is missing");
    }
    if (content->kind == JSON_ARRAY)
        return join_parts(arena, content, out, error);
    if (content->kind != JSON_STRING)
        return status_fail(error, AVO_ERROR_FORMAT, "content is %s, must be a string",
                           json_kind_name(content->kind));
    *out = *content;
    return AVO_OK;
}

/* ---- Calls ---- */

/* A copy of an object's members with space for `more`. */
static json_member *copy_members(arena *arena, const json_value *object, size_t more) {
    json_member *members =
        arena_take_array(arena, object->object.count + more + 1, sizeof(*members));
    if (members != NULL && object->object.count > 0)
        memcpy(members, object->object.members, object->object.count * sizeof(*members));
    return members;
}

static json_value *member_of(json_member *members, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++)
        if (text_is(members[i].key, key))
            return &members[i].value;
    return NULL;
}

/* Templates expect arguments as an object; OpenAI's logs have its JSON as a string. */
static avo_status read_call(arena *arena, const json_value *call, json_value *out,
                            avo_error *error) {
    const json_value *function = json_find(call, "function");
    const json_value *inner = function != NULL ? function : call;
    const json_value *arguments = json_find(inner, "arguments");
    *out = *call;
    if (arguments == NULL || arguments->kind != JSON_STRING)
        return AVO_OK;
    json_value parsed;
    AVO_TRY(data_unwrap(arena, arguments, "arguments", &parsed, error));
    json_member *members = copy_members(arena, inner, 0);
    if (members == NULL)
        return no_memory(error, inner->object.count * sizeof(*members));
    *member_of(members, inner->object.count, "arguments") = parsed;
    json_value changed = {.kind = JSON_OBJECT,
                          .object = {.members = members, .count = inner->object.count}};
    if (function == NULL) {
        *out = changed;
        return AVO_OK;
    }
    json_member *outer = copy_members(arena, call, 0);
    if (outer == NULL)
        return no_memory(error, call->object.count * sizeof(*outer));
    *member_of(outer, call->object.count, "function") = changed;
    *out = (json_value){.kind = JSON_OBJECT,
                        .object = {.members = outer, .count = call->object.count}};
    return AVO_OK;
}

static avo_status read_calls(arena *arena, json_value *calls, avo_error *error) {
    json_value *items = arena_take_array(arena, calls->array.count, sizeof(*items));
    if (items == NULL)
        return no_memory(error, calls->array.count * sizeof(*items));
    for (size_t i = 0; i < calls->array.count; i++)
        AVO_TRY(read_call(arena, &calls->array.items[i], &items[i], error));
    calls->array.items = items;
    return AVO_OK;
}

/* ---- Messages ---- */

/* Names that other programs give roles; NULL: unknown. */
static const char *role_of(text_view name) {
    static const struct {
        const char *name, *role;
    } names[] = {
        {"human", "user"},          {"user", "user"},     {"gpt", "assistant"},
        {"assistant", "assistant"}, {"bot", "assistant"}, {"chatgpt", "assistant"},
        {"model", "assistant"},     {"system", "system"}, {"tool", "tool"},
        {"observation", "tool"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (text_is(name, names[i].name))
            return names[i].role;
    return NULL;
}

/* {"from": "human", "value": "…"} */
static avo_status read_shared(arena *arena, const json_value *message, json_value *out,
                              avo_error *error) {
    const json_value *from = json_find(message, "from");
    const json_value *value = json_find(message, "value");
    const char *role = from->kind == JSON_STRING ? role_of(from->string) : NULL;
    if (role == NULL)
        return status_fail(
            error, AVO_ERROR_FORMAT, "from is \"%.*s\", must be human, gpt, system or tool",
            TEXT_ARGUMENT(from->kind == JSON_STRING ? from->string : TEXT_LITERAL("no string")));
    if (value == NULL || value->kind != JSON_STRING)
        return status_fail(error, AVO_ERROR_FORMAT, "value is missing or not a string");
    return data_message_make(arena, role, value->string, out, error);
}

static avo_status read_message(arena *arena, const json_value *message, json_value *out,
                               avo_error *error) {
    if (message->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT, "found %s, expected an object",
                           json_kind_name(message->kind));
    const json_value *role = json_find(message, "role");
    if (role == NULL && json_find(message, "from") != NULL)
        return read_shared(arena, message, out, error);
    if (role == NULL || role->kind != JSON_STRING || role->string.size == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "role is missing or not a string");
    const json_value *calls = json_find(message, "tool_calls");
    bool calling = calls != NULL && calls->kind == JSON_ARRAY && calls->array.count > 0;
    json_value content;
    AVO_TRY(read_content(arena, json_find(message, "content"), calling, &content, error));
    size_t count = message->object.count;
    json_member *members = copy_members(arena, message, 1);
    if (members == NULL)
        return no_memory(error, count * sizeof(*members));
    json_value *place = member_of(members, count, "content");
    if (place == NULL) {
        members[count].key = TEXT_LITERAL("content");
        place = &members[count++].value;
    }
    *place = content;
    if (calling)
        AVO_TRY(read_calls(arena, member_of(members, count, "tool_calls"), error));
    *out = (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = count}};
    return AVO_OK;
}

avo_status data_messages_read(arena *arena, const json_value *value, const char *key,
                              json_value *out, avo_error *error) {
    json_value list;
    AVO_TRY(data_unwrap(arena, value, key, &list, error));
    if (list.kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT, "%s is %s, must be a list of messages", key,
                           json_kind_name(list.kind));
    size_t count = list.array.count;
    if (count == 0 || count > MESSAGES_MAX)
        return status_fail(error, AVO_ERROR_FORMAT, "%s has %zu messages, must have 1 to %d", key,
                           count, MESSAGES_MAX);
    json_value *items = arena_take_array(arena, count, sizeof(*items));
    if (items == NULL)
        return no_memory(error, count * sizeof(*items));
    for (size_t i = 0; i < count; i++) {
        avo_status status = read_message(arena, &list.array.items[i], &items[i], error);
        if (status != AVO_OK)
            return status_prefix(error, status, "%s[%zu]", key, i);
    }
    *out = (json_value){.kind = JSON_ARRAY, .array = {.items = items, .count = count}};
    return AVO_OK;
}
