/* Conversations: OpenAI's messages into turns, and turns into what the model's template gets. */
#include "server/api_int.h"

#include <stdio.h>

/* ---- Turns ---- */

bool turn_add(turn_list *list, turn turn, api_fault *fault) {
    if (list->count >= API_MESSAGES_MAX)
        return FAULT_FIELD(fault, "messages", "messages: more than %d", API_MESSAGES_MAX);
    if (list->count == list->capacity) {
        size_t larger = list->capacity == 0 ? 16 : list->capacity * 2;
        struct turn *moved = arena_take_array(list->arena, larger, sizeof(*moved));
        if (moved == NULL)
            return fault_no_memory(fault);
        if (list->count > 0)
            memcpy(moved, list->turns, list->count * sizeof(*moved));
        list->turns = moved;
        list->capacity = larger;
    }
    list->turns[list->count++] = turn;
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

static bool add_part(const json_value *part, const char *param, const char *types, arena *arena,
                     buffer *text, api_fault *fault) {
    const json_value *type = json_find(part, "type");
    if (part->kind != JSON_OBJECT || type == NULL || type->kind != JSON_STRING)
        return fault_set(fault, 400, param, "invalid_type",
                         "%s: a part of the content is an object with a type", param);
    if (!type_in(type->string, types))
        return fault_set(fault, 400, param, "unsupported_content",
                         "%s: content of type \"%.*s\" is not supported; this model reads text",
                         param, TEXT_ARGUMENT(type->string));
    bool refusal = text_is(type->string, "refusal");
    const json_value *value = json_find(part, refusal ? "refusal" : "text");
    const char *piece = NULL;
    if (value == NULL)
        return fault_set(fault, 400, param, "missing_required_parameter",
                         "%s: a part of type text has no text", param);
    if (!api_read_string(value, param, API_TEXT_BYTES_MAX, arena, &piece, fault))
        return false;
    return buffer_append_text(text, piece) == AVO_OK || fault_no_memory(fault);
}

bool content_read(const json_value *content, const char *param, const char *types, arena *arena,
                  const char **out, api_fault *fault) {
    *out = "";
    if (content == NULL || content->kind == JSON_NULL)
        return true;
    if (content->kind == JSON_STRING)
        return api_read_string(content, param, API_TEXT_BYTES_MAX, arena, out, fault);
    if (content->kind != JSON_ARRAY)
        return fault_set(fault, 400, param, "invalid_type",
                         "%s: expected a text or a list of parts, found %s", param,
                         json_kind_name(content->kind));
    if (content->array.count > API_PARTS_MAX)
        return FAULT_FIELD(fault, param, "%s: %zu parts; at most %d are allowed", param,
                           content->array.count, API_PARTS_MAX);
    buffer text;
    buffer_init(&text, NULL, API_TEXT_BYTES_MAX);
    bool good = true;
    for (size_t i = 0; good && i < content->array.count; i++)
        good = add_part(&content->array.items[i], param, types, arena, &text, fault);
    if (good) {
        *out = arena_copy_text(arena, buffer_text(&text).data, text.size);
        good = *out != NULL || fault_no_memory(fault);
    }
    buffer_free(&text);
    return good;
}

/* ---- Calls ---- */

bool call_write(buffer *out, text_view id, text_view name, const json_value *arguments,
                const char *param, turn_list *list, api_fault *fault) {
    json_value parsed = {0};
    if (arguments != NULL && arguments->kind == JSON_STRING) {
        /* Templates want an object; OpenAI's clients send its text. */
        avo_error error = {0};
        text_view text = arguments->string;
        if (text.size == 0)
            text = TEXT_LITERAL("{}");
        if (text.size > list->arguments_left)
            return fault_set(fault, 400, param, "context_length_exceeded",
                             "%s: arguments of calls have more bytes than any context of this "
                             "model can hold",
                             param);
        list->arguments_left -= text.size;
        avo_status status = json_parse(list->arena, text, &parsed, &error);
        if (status == AVO_ERROR_MEMORY)
            return fault_no_memory(fault);
        if (status != AVO_OK)
            return FAULT_FIELD(fault, param, "%s: arguments are no JSON: %s", param, error.text);
        arguments = &parsed;
    }
    if (arguments == NULL || arguments->kind != JSON_OBJECT)
        return fault_set(fault, 400, param, "invalid_type",
                         "%s: the arguments of a call are a JSON object", param);
    bool good =
        buffer_append_text(out, out->size > 1 ? ",{\"id\":" : "{\"id\":") == AVO_OK &&
        json_write_string(out, id) == AVO_OK &&
        buffer_append_text(out, ",\"type\":\"function\",\"function\":{\"name\":") == AVO_OK &&
        json_write_string(out, name) == AVO_OK &&
        buffer_append_text(out, ",\"arguments\":") == AVO_OK &&
        json_write_value(out, arguments) == AVO_OK && buffer_append_text(out, "}}") == AVO_OK;
    return good || fault_no_memory(fault);
}

static bool read_call(const json_value *call, const char *param, turn_list *list, buffer *out,
                      api_fault *fault) {
    const json_value *function = json_find(call, "function");
    const json_value *name = json_find(function, "name");
    const json_value *id = json_find(call, "id");
    if (name == NULL || name->kind != JSON_STRING)
        return fault_set(fault, 400, param, "missing_required_parameter",
                         "%s: a call has a function with a name", param);
    text_view id_text = id != NULL && id->kind == JSON_STRING ? id->string : TEXT_LITERAL("");
    return call_write(out, id_text, name->string, json_find(function, "arguments"), param, list,
                      fault);
}

static bool read_calls(const json_value *calls, const char *param, turn_list *list,
                       const char **out, api_fault *fault) {
    if (calls == NULL || calls->kind == JSON_NULL)
        return true;
    if (calls->kind != JSON_ARRAY || calls->array.count > TOOL_CALLS_MAX)
        return FAULT_FIELD(fault, param, "%s: expected a list of at most %d calls", param,
                           TOOL_CALLS_MAX);
    if (calls->array.count == 0)
        return true;
    buffer text;
    buffer_init(&text, NULL, API_TEXT_BYTES_MAX);
    bool good = buffer_append_text(&text, "[") == AVO_OK || fault_no_memory(fault);
    for (size_t i = 0; good && i < calls->array.count; i++)
        good = read_call(&calls->array.items[i], param, list, &text, fault);
    if (good)
        good = buffer_append_text(&text, "]") == AVO_OK &&
               (*out = arena_copy_text(list->arena, text.data, text.size)) != NULL;
    if (!good && fault->status == 0)
        (void)fault_no_memory(fault);
    buffer_free(&text);
    return good;
}

/* ---- Messages ---- */

static bool read_role(const json_value *message, const char *param, const char **role,
                      api_fault *fault) {
    static const char *const roles[][2] = {{"system", "system"},
                                           {"developer", "system"},
                                           {"user", "user"},
                                           {"assistant", "assistant"},
                                           {"tool", "tool"}};
    const json_value *value = json_find(message, "role");
    if (value == NULL || value->kind != JSON_STRING)
        return fault_set(fault, 400, param, "missing_required_parameter",
                         "%s: a message has a role, which is a text", param);
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (text_is(value->string, roles[i][0])) {
            *role = roles[i][1];
            return true;
        }
    return FAULT_FIELD(fault, param,
                       "%s: role \"%.*s\" is none of system, developer, user, assistant, tool",
                       param, TEXT_ARGUMENT(value->string));
}

static bool read_text_member(const json_value *message, const char *key, const char *param,
                             arena *arena, const char **out, api_fault *fault) {
    const json_value *value = json_find(message, key);
    if (value == NULL || value->kind == JSON_NULL)
        return true;
    return api_read_string(value, param, API_NAME_BYTES_MAX, arena, out, fault);
}

static bool read_message(const json_value *message, const char *param, turn_list *list,
                         api_fault *fault) {
    turn turn = {0};
    if (message->kind != JSON_OBJECT)
        return fault_set(fault, 400, param, "invalid_type", "%s: expected an object, found %s",
                         param, json_kind_name(message->kind));
    const json_value *content = json_find(message, "content");
    const json_value *calls = json_find(message, "tool_calls");
    bool empty = content == NULL || content->kind == JSON_NULL;
    bool calling = calls != NULL && calls->kind == JSON_ARRAY && calls->array.count > 0;
    if (!read_role(message, param, &turn.role, fault))
        return false;
    bool assistant = strcmp(turn.role, "assistant") == 0;
    if (empty && !(calling && assistant))
        return fault_set(fault, 400, param, "missing_required_parameter",
                         "%s: the content is missing", param);
    if (calling && !assistant)
        return FAULT_FIELD(fault, param, "%s: tool_calls stand in messages of the assistant",
                           param);
    return content_read(content, param, assistant ? "text,refusal" : "text", list->arena,
                        &turn.content, fault) &&
           read_calls(calls, param, list, &turn.calls, fault) &&
           read_text_member(message, "name", param, list->arena, &turn.name, fault) &&
           read_text_member(message, "tool_call_id", param, list->arena, &turn.call_id, fault) &&
           turn_add(list, turn, fault);
}

bool chat_messages_read(const json_value *messages, const char *param, turn_list *list,
                        api_fault *fault) {
    if (messages->kind != JSON_ARRAY)
        return fault_set(fault, 400, param, "invalid_type", "%s: expected an array, found %s",
                         param, json_kind_name(messages->kind));
    if (messages->array.count == 0)
        return FAULT_FIELD(fault, param, "%s: the list is empty", param);
    for (size_t i = 0; i < messages->array.count; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%s[%zu]", param, i);
        if (!read_message(&messages->array.items[i], name, list, fault))
            return false;
    }
    return true;
}

/* ---- For the template ---- */

static avo_status write_turn(buffer *out, const turn *turn) {
    AVO_TRY(buffer_append_text(out, "{\"role\":"));
    AVO_TRY(json_write_string(out, text_from(turn->role)));
    AVO_TRY(buffer_append_text(out, ",\"content\":"));
    AVO_TRY(json_write_string(out, text_from(turn->content)));
    if (turn->name != NULL) {
        AVO_TRY(buffer_append_text(out, ",\"name\":"));
        AVO_TRY(json_write_string(out, text_from(turn->name)));
    }
    if (turn->call_id != NULL) {
        AVO_TRY(buffer_append_text(out, ",\"tool_call_id\":"));
        AVO_TRY(json_write_string(out, text_from(turn->call_id)));
    }
    if (turn->calls != NULL) {
        AVO_TRY(buffer_append_text(out, ",\"tool_calls\":"));
        AVO_TRY(buffer_append_text(out, turn->calls));
    }
    return buffer_append_text(out, "}");
}

/* Names that belong to the conversation cannot be set from outside. */
static bool own_name(text_view name) {
    return text_is(name, "messages") || text_is(name, "tools") ||
           text_is(name, "add_generation_prompt");
}

static avo_status write_variables(buffer *out, const turn_list *list, bool rich, const char *tools,
                                  const json_value *kwargs) {
    const char *comma = "";
    AVO_TRY(buffer_append_text(out, "{"));
    if (rich) {
        AVO_TRY(buffer_append_text(out, "\"messages\":["));
        for (size_t i = 0; i < list->count; i++) {
            if (i > 0)
                AVO_TRY(buffer_append_text(out, ","));
            AVO_TRY(write_turn(out, &list->turns[i]));
        }
        AVO_TRY(buffer_append_text(out, "]"));
        comma = ",";
    }
    if (tools != NULL) {
        AVO_TRY(buffer_format(out, "%s\"tools\":", comma));
        AVO_TRY(buffer_append_text(out, tools));
        comma = ",";
    }
    for (size_t i = 0; kwargs != NULL && i < kwargs->object.count; i++) {
        const json_member *member = &kwargs->object.members[i];
        if (own_name(member->key))
            continue;
        AVO_TRY(buffer_append_text(out, comma));
        AVO_TRY(json_write_string(out, member->key));
        AVO_TRY(buffer_append_text(out, ":"));
        AVO_TRY(json_write_value(out, &member->value));
        comma = ",";
    }
    return buffer_append_text(out, "}");
}

bool turns_finish(const turn_list *list, const char *tools, const json_value *kwargs, generation *g,
                  api_fault *fault) {
    if (list->count == 0)
        return FAULT_FIELD(fault, "messages", "there is no message");
    if (kwargs != NULL && kwargs->kind != JSON_OBJECT)
        return fault_set(fault, 400, "chat_template_kwargs", "invalid_type",
                         "chat_template_kwargs: expected an object, found %s",
                         json_kind_name(kwargs->kind));
    bool rich = false;
    g->messages = arena_take_array(&g->arena, list->count, sizeof(*g->messages));
    if (g->messages == NULL)
        return fault_no_memory(fault);
    for (size_t i = 0; i < list->count; i++) {
        const turn *turn = &list->turns[i];
        g->messages[i] = (avo_message){turn->role, turn->content};
        rich = rich || turn->calls != NULL || turn->call_id != NULL || turn->name != NULL;
    }
    g->message_count = list->count;
    if (!rich && tools == NULL && kwargs == NULL)
        return true;
    buffer text;
    buffer_init(&text, NULL, API_TEXT_BYTES_MAX);
    bool good = write_variables(&text, list, rich, tools, kwargs) == AVO_OK &&
                (g->variables = arena_copy_text(&g->arena, text.data, text.size)) != NULL;
    buffer_free(&text);
    return good || fault_no_memory(fault);
}
