/* Messages in OpenAI's words into turns, and what all dialects share: content, calls, results. */
#include "chat/chat_int.h"

#include "engine/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Faults ---- */

bool chat_fail(chat_fault *fault, const char *param, const char *code, const char *format, ...) {
    fault->status = AVO_ERROR_ARGUMENT;
    fault->code = code;
    snprintf(fault->param, sizeof(fault->param), "%s", param);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof(fault->text), format, arguments);
    va_end(arguments);
    return false;
}

bool chat_fail_memory(chat_fault *fault) {
    (void)chat_fail(fault, "", "out_of_memory", "out of memory for this request");
    fault->status = AVO_ERROR_MEMORY;
    return false;
}

bool chat_fail_kind(chat_fault *fault, const char *param, const char *wanted,
                    const json_value *found) {
    const char *article =
        found->kind == JSON_NULL ? ""
        : found->kind == JSON_ARRAY || found->kind == JSON_OBJECT || found->kind == JSON_INTEGER
            ? "an "
            : "a ";
    return chat_fail(fault, param, "invalid_type", "%s must be %s, found %s%s", param, wanted,
                     article, json_kind_name(found->kind));
}

bool chat_string_read(const json_value *value, const char *param, size_t maximum, text_view *out,
                      chat_fault *fault) {
    if (value->kind != JSON_STRING)
        return chat_fail_kind(fault, param, "a string", value);
    text_view text = value->string;
    if (text.size > maximum)
        return chat_fail(fault, param, "string_above_max_length",
                         "%s has %zu bytes, must have at most %zu", param, text.size, maximum);
    if (text.size > 0 && memchr(text.data, 0, text.size) != NULL)
        return chat_fail(fault, param, "invalid_value", "%s: the text contains a zero byte", param);
    *out = text;
    return true;
}

/* ---- Turns ---- */

/* Room for one more item of an array in the arena, which grows by doubling. */
static void *grown(arena *arena, void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity)
        return items;
    size_t larger = *capacity == 0 ? 8 : *capacity * 2;
    void *moved = arena_take_array(arena, larger, size);
    if (moved != NULL && count > 0)
        memcpy(moved, items, count * size);
    if (moved != NULL)
        *capacity = larger;
    return moved;
}

bool chat_turn_add(chat_turns *turns, chat_turn turn, chat_fault *fault) {
    if (turns->count >= CHAT_TURNS_MAX)
        return chat_fail(fault, "messages", "invalid_value", "messages: more than %d",
                         CHAT_TURNS_MAX);
    chat_turn *items =
        grown(turns->arena, turns->items, turns->count, &turns->capacity, sizeof(*items));
    if (items == NULL)
        return chat_fail_memory(fault);
    turns->items = items;
    items[turns->count++] = turn;
    return true;
}

/* ---- Content ---- */

static bool type_in(text_view type, const char *types) {
    while (*types != '\0') {
        size_t length = strcspn(types, ",");
        if (text_equal(type, (text_view){types, length}))
            return true;
        types += length + (types[length] == ',');
    }
    return false;
}

static bool read_part(const json_value *part, const char *param, const char *types, text_view *out,
                      chat_fault *fault) {
    const json_value *type = json_find(part, "type");
    if (part->kind != JSON_OBJECT || type == NULL || type->kind != JSON_STRING)
        return chat_fail(fault, param, "invalid_type",
                         "%s: a part of the content must be an object with a type", param);
    if (!type_in(type->string, types))
        return chat_fail(fault, param, "unsupported_content",
                         "%s: content of type \"%.*s\" is not supported, only text", param,
                         TEXT_ARGUMENT(type->string));
    bool refusal = text_is(type->string, "refusal");
    const json_value *value = json_find(part, refusal ? "refusal" : "text");
    if (value == NULL)
        return chat_fail(fault, param, "missing_required_parameter",
                         "%s: a part of type text lacks its text", param);
    return chat_string_read(value, param, CHAT_TEXT_BYTES_MAX, out, fault);
}

bool turns_join(arena *arena, const text_view *texts, size_t count, text_view *out,
                chat_fault *fault) {
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        bytes += texts[i].size;
    *out = count == 1 ? texts[0] : (text_view){"", 0};
    if (count <= 1 || bytes == 0)
        return true;
    char *joined = bytes > CHAT_TEXT_BYTES_MAX ? NULL : arena_take(arena, bytes);
    if (joined == NULL)
        return chat_fail_memory(fault);
    for (size_t i = 0; i < count; i++) {
        if (texts[i].size > 0)
            memcpy(joined + at, texts[i].data, texts[i].size);
        at += texts[i].size;
    }
    *out = (text_view){joined, bytes};
    return true;
}

bool turns_read_content(chat_turns *turns, const json_value *content, const char *param,
                        const char *types, text_view *out, chat_fault *fault) {
    *out = (text_view){"", 0};
    if (content == NULL || content->kind == JSON_NULL)
        return true;
    if (content->kind == JSON_STRING)
        return chat_string_read(content, param, CHAT_TEXT_BYTES_MAX, out, fault);
    if (content->kind != JSON_ARRAY)
        return chat_fail(fault, param, "invalid_type",
                         "%s must be a string or a list of parts, found %s", param,
                         json_kind_name(content->kind));
    size_t count = content->array.count;
    if (count > CHAT_PARTS_MAX)
        return chat_fail(fault, param, "invalid_value", "%s has %zu parts, must have at most %d",
                         param, count, CHAT_PARTS_MAX);
    text_view *texts = arena_take_array(turns->arena, count + 1, sizeof(*texts));
    if (texts == NULL)
        return chat_fail_memory(fault);
    for (size_t i = 0; i < count; i++)
        if (!read_part(&content->array.items[i], param, types, &texts[i], fault))
            return false;
    return turns_join(turns->arena, texts, count, out, fault);
}

/* ---- Calls ---- */

/* Templates want an object; OpenAI's clients send its text. */
static bool read_arguments(chat_turns *turns, const json_value *arguments, const char *param,
                           json_value *out, chat_fault *fault) {
    if (arguments != NULL && arguments->kind == JSON_STRING) {
        avo_error error = {0};
        text_view text = arguments->string.size == 0 ? TEXT_LITERAL("{}") : arguments->string;
        if (text.size > turns->arguments_left)
            return chat_fail(fault, param, "context_length_exceeded",
                             "%s: the arguments of calls have more bytes than the context can hold",
                             param);
        turns->arguments_left -= text.size;
        avo_status status = json_parse(turns->arena, text, out, &error);
        if (status == AVO_ERROR_MEMORY)
            return chat_fail_memory(fault);
        if (status != AVO_OK)
            return chat_fail(fault, param, "invalid_value", "%s: the arguments are not JSON: %s",
                             param, error.text);
    } else if (arguments != NULL) {
        *out = *arguments;
    }
    return out->kind == JSON_OBJECT ||
           chat_fail(fault, param, "invalid_type",
                     "%s: the arguments of a call must be a JSON object", param);
}

bool turns_add_call(chat_turns *turns, chat_turn *turn, text_view id, text_view name,
                    const json_value *arguments, const char *param, chat_fault *fault) {
    json_value parsed = {0};
    if (!read_arguments(turns, arguments, param, &parsed, fault))
        return false;
    json_value *calls =
        grown(turns->arena, turn->calls, turn->call_count, &turn->call_capacity, sizeof(*calls));
    json_member *members = arena_take_array(turns->arena, 5, sizeof(*members));
    if (calls == NULL || members == NULL)
        return chat_fail_memory(fault);
    members[3] = (json_member){TEXT_LITERAL("name"), json_string_of(name)};
    members[4] = (json_member){TEXT_LITERAL("arguments"), parsed};
    members[0] = (json_member){TEXT_LITERAL("id"), json_string_of(id)};
    members[1] = (json_member){TEXT_LITERAL("type"), json_string_of(TEXT_LITERAL("function"))};
    members[2] = (json_member){TEXT_LITERAL("function"), json_object_of(members + 3, 2)};
    turn->calls = calls;
    calls[turn->call_count++] = json_object_of(members, 3);
    return true;
}

static bool read_calls(chat_turns *turns, const json_value *calls, const char *param,
                       chat_turn *turn, chat_fault *fault) {
    if (calls == NULL || calls->kind == JSON_NULL)
        return true;
    if (calls->kind != JSON_ARRAY || calls->array.count > CHAT_CALLS_MAX)
        return chat_fail(fault, param, "invalid_value", "%s must be a list of at most %d calls",
                         param, CHAT_CALLS_MAX);
    for (size_t i = 0; i < calls->array.count; i++) {
        const json_value *call = &calls->array.items[i];
        const json_value *function = json_find(call, "function");
        const json_value *name = json_find(function, "name");
        if (name == NULL || name->kind != JSON_STRING)
            return chat_fail(fault, param, "missing_required_parameter",
                             "%s: a call needs a function with a name", param);
        if (!turns_add_call(turns, turn, turns_text_of(call, "id"), name->string,
                            json_find(function, "arguments"), param, fault))
            return false;
    }
    return true;
}

/* ---- Messages ---- */

static bool read_role(const json_value *message, const char *param, const char **role,
                      chat_fault *fault) {
    const json_value *value = json_find(message, "role");
    if (value == NULL || value->kind != JSON_STRING)
        return chat_fail(fault, param, "missing_required_parameter",
                         "%s: the role is missing or not a string", param);
    *role = request_role_find(value->string);
    return *role != NULL ||
           chat_fail(fault, param, "invalid_value", "%s: role is \"%.*s\", must be " REQUEST_ROLES,
                     param, (int)(value->string.size < 64 ? value->string.size : 64),
                     value->string.data);
}

static bool read_name(const json_value *message, const char *key, const char *param, text_view *out,
                      chat_fault *fault) {
    const json_value *value = json_find(message, key);
    return value == NULL || value->kind == JSON_NULL ||
           chat_string_read(value, param, CHAT_NAME_BYTES_MAX, out, fault);
}

/* By the names of OpenAI's servers and of ollama's. */
static bool read_reasoning(const json_value *message, const char *param, text_view *out,
                           chat_fault *fault) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_value *value = json_find(message, names[i]);
        if (value != NULL && value->kind != JSON_NULL && out->data == NULL &&
            !chat_string_read(value, param, CHAT_TEXT_BYTES_MAX, out, fault))
            return false;
    }
    return true;
}

/* ollama's place for them. */
static bool check_images(const json_value *message, const char *param, chat_fault *fault) {
    const json_value *images = json_find(message, "images");
    return images == NULL || images->kind == JSON_NULL ||
           (images->kind == JSON_ARRAY && images->array.count == 0) ||
           chat_fail(fault, param, "unsupported_content", "%s: images are not supported, only text",
                     param);
}

static bool read_message(chat_turns *turns, const json_value *message, const char *param,
                         chat_fault *fault) {
    chat_turn turn = {0};
    if (message->kind != JSON_OBJECT)
        return chat_fail(fault, param, "invalid_type", "%s must be an object, found %s", param,
                         json_kind_name(message->kind));
    const json_value *content = json_find(message, "content");
    const json_value *calls = json_find(message, "tool_calls");
    bool empty = content == NULL || content->kind == JSON_NULL;
    bool calling = calls != NULL && calls->kind == JSON_ARRAY && calls->array.count > 0;
    if (!read_role(message, param, &turn.role, fault))
        return false;
    bool assistant = strcmp(turn.role, "assistant") == 0;
    if (empty && !(calling && assistant))
        return chat_fail(fault, param, "missing_required_parameter", "%s: the content is missing",
                         param);
    if (calling && !assistant)
        return chat_fail(fault, param, "invalid_value",
                         "%s: only messages of the assistant can have tool_calls", param);
    return turns_read_content(turns, content, param, assistant ? "text,refusal" : "text",
                              &turn.content, fault) &&
           read_calls(turns, calls, param, &turn, fault) &&
           read_name(message, "name", param, &turn.name, fault) &&
           (turn.name.data != NULL || read_name(message, "tool_name", param, &turn.name, fault)) &&
           read_reasoning(message, param, &turn.reasoning, fault) &&
           check_images(message, param, fault) &&
           read_name(message, "tool_call_id", param, &turn.call_id, fault) &&
           chat_turn_add(turns, turn, fault);
}

bool chat_turns_read(chat_turns *turns, chat_dialect dialect, const json_value *messages,
                     chat_fault *fault) {
    const char *param = dialect == CHAT_RESPONSES ? "input" : "messages";
    if (dialect == CHAT_RESPONSES && messages->kind == JSON_STRING) {
        chat_turn turn = {.role = "user"};
        return chat_string_read(messages, param, CHAT_TEXT_BYTES_MAX, &turn.content, fault) &&
               chat_turn_add(turns, turn, fault);
    }
    if (messages->kind != JSON_ARRAY)
        return chat_fail(fault, param, "invalid_type", "%s must be %s, found %s", param,
                         dialect == CHAT_RESPONSES ? "a string or a list of items" : "an array",
                         json_kind_name(messages->kind));
    if (messages->array.count == 0)
        return chat_fail(fault, param, "invalid_value", "%s: the list is empty", param);
    for (size_t i = 0; i < messages->array.count; i++) {
        const json_value *message = &messages->array.items[i];
        char name[64];
        snprintf(name, sizeof(name), "%s[%zu]", param, i);
        bool good = dialect == CHAT_RESPONSES  ? response_item_read(turns, message, name, fault)
                    : dialect == CHAT_MESSAGES ? anthropic_message_read(turns, message, name, fault)
                                               : read_message(turns, message, name, fault);
        if (!good)
            return false;
    }
    return true;
}
