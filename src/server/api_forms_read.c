/* Conversations in the forms of /v1/responses and of Anthropic, into turns. */
#include "server/api_int.h"

#include <stdio.h>

static text_view text_of(const json_value *object, const char *key) {
    const json_value *value = json_find(object, key);
    return value != NULL && value->kind == JSON_STRING ? value->string : (text_view){"", 0};
}

/* More of an array that grows: room is doubled, so that a list costs what it is long. */
static bool grow_calls(turn *turn, text_view more, arena *arena, api_fault *fault) {
    size_t needed = turn->calls_size + more.size + 1;
    if (needed > turn->calls_capacity) {
        size_t larger = needed < 128 ? 256 : needed * 2;
        char *moved = arena_take(arena, larger);
        if (moved == NULL)
            return fault_no_memory(fault);
        if (turn->calls_size > 0)
            memcpy(moved, turn->calls_room, turn->calls_size);
        turn->calls_room = moved;
        turn->calls_capacity = larger;
    }
    memcpy(turn->calls_room + turn->calls_size, more.data, more.size);
    turn->calls_size += more.size;
    turn->calls_room[turn->calls_size] = '\0';
    turn->calls = turn->calls_room;
    turn->call_count++;
    return true;
}

/* One call as a turn of its own, or onto the assistant's turn before it. */
static bool add_call(turn_list *list, text_view id, text_view name, const json_value *arguments,
                     const char *param, api_fault *fault) {
    turn *last = list->count > 0 ? &list->turns[list->count - 1] : NULL;
    if (name.size == 0)
        return fault_set(fault, 400, param, "missing_required_parameter", "%s: a call has a name",
                         param);
    if (last == NULL || strcmp(last->role, "assistant") != 0) {
        if (!turn_add(list, (turn){.role = "assistant", .content = ""}, fault))
            return false;
        last = &list->turns[list->count - 1];
    }
    if (last->call_count >= TOOL_CALLS_MAX)
        return FAULT_FIELD(fault, param, "%s: a turn has at most %d calls", param, TOOL_CALLS_MAX);
    buffer text;
    buffer_init(&text, NULL, API_TEXT_BYTES_MAX);
    bool good = buffer_append_text(&text, last->call_count > 0 ? "," : "[") == AVO_OK ||
                fault_no_memory(fault);
    good = good && call_write(&text, id, name, arguments, param, list, fault);
    if (good && buffer_append_text(&text, "]") != AVO_OK)
        good = fault_no_memory(fault);
    if (good && last->call_count > 0)
        last->calls_size--; /* its bracket goes to the end */
    good = good && grow_calls(last, buffer_text(&text), list->arena, fault);
    buffer_free(&text);
    return good;
}

static bool add_result(turn_list *list, text_view id, const json_value *output, const char *types,
                       const char *param, api_fault *fault) {
    turn turn = {.role = "tool"};
    turn.call_id = arena_copy_text(list->arena, id.data, id.size);
    if (turn.call_id == NULL)
        return fault_no_memory(fault);
    return content_read(output, param, types, list->arena, &turn.content, fault) &&
           turn_add(list, turn, fault);
}

/* ---- /v1/responses ---- */

static bool read_response_item(const json_value *item, const char *param, turn_list *list,
                               api_fault *fault) {
    text_view type = text_of(item, "type");
    if (item->kind != JSON_OBJECT)
        return fault_set(fault, 400, param, "invalid_type", "%s: expected an object, found %s",
                         param, json_kind_name(item->kind));
    if (text_is(type, "function_call"))
        return add_call(list, text_of(item, "call_id"), text_of(item, "name"),
                        json_find(item, "arguments"), param, fault);
    if (text_is(type, "function_call_output"))
        return add_result(list, text_of(item, "call_id"), json_find(item, "output"),
                          "input_text,output_text", param, fault);
    if (text_is(type, "reasoning"))
        return true; /* of another model; ours has none */
    if (type.size > 0 && !text_is(type, "message"))
        return fault_set(fault, 400, param, "unsupported_content",
                         "%s: items of type \"%.*s\" are not supported", param,
                         TEXT_ARGUMENT(type));
    text_view role = text_of(item, "role");
    turn turn = {.role = text_is(role, "assistant")                              ? "assistant"
                         : text_is(role, "user")                                 ? "user"
                         : text_is(role, "system") || text_is(role, "developer") ? "system"
                                                                                 : NULL};
    if (turn.role == NULL)
        return FAULT_FIELD(fault, param,
                           "%s: role \"%.*s\" is none of system, developer, user, assistant", param,
                           TEXT_ARGUMENT(role));
    const json_value *content = json_find(item, "content");
    if (content == NULL || content->kind == JSON_NULL)
        return fault_set(fault, 400, param, "missing_required_parameter",
                         "%s: the content is missing", param);
    return content_read(content, param, "input_text,output_text,text,refusal", list->arena,
                        &turn.content, fault) &&
           turn_add(list, turn, fault);
}

bool response_input_read(const json_value *input, turn_list *list, api_fault *fault) {
    if (input->kind == JSON_STRING) {
        turn turn = {.role = "user"};
        return content_read(input, "input", "", list->arena, &turn.content, fault) &&
               turn_add(list, turn, fault);
    }
    if (input->kind != JSON_ARRAY)
        return fault_set(fault, 400, "input", "invalid_type",
                         "input: expected a text or a list of items, found %s",
                         json_kind_name(input->kind));
    if (input->array.count == 0)
        return FAULT_FIELD(fault, "input", "input: the list is empty");
    for (size_t i = 0; i < input->array.count; i++) {
        char name[64];
        snprintf(name, sizeof(name), "input[%zu]", i);
        if (!read_response_item(&input->array.items[i], name, list, fault))
            return false;
    }
    return true;
}

/* ---- Anthropic's messages ---- */

/* Text of a message in pieces: what stands before a call or a result is a turn of its own. */
typedef struct blocks {
    const char *role, *param;
    turn_list *list;
    buffer text;
    bool any;
} blocks;

static bool flush(blocks *blocks, api_fault *fault) {
    if (!blocks->any)
        return true;
    blocks->any = false;
    text_view text = buffer_text(&blocks->text);
    turn turn = {.role = blocks->role,
                 .content = arena_copy_text(blocks->list->arena, text.data, text.size)};
    blocks->text.size = 0;
    if (turn.content == NULL)
        return fault_no_memory(fault);
    return turn_add(blocks->list, turn, fault);
}

static bool read_block(const json_value *block, blocks *blocks, api_fault *fault) {
    text_view type = text_of(block, "type");
    const char *param = blocks->param;
    bool assistant = strcmp(blocks->role, "assistant") == 0;
    if (text_is(type, "text")) {
        const char *text = NULL;
        const json_value *value = json_find(block, "text");
        if (value == NULL)
            return fault_set(fault, 400, param, "missing_required_parameter",
                             "%s: a block of type text has no text", param);
        if (!api_read_string(value, param, API_TEXT_BYTES_MAX, blocks->list->arena, &text, fault))
            return false;
        blocks->any = true;
        return buffer_append_text(&blocks->text, text) == AVO_OK || fault_no_memory(fault);
    }
    if (text_is(type, "tool_use") && assistant)
        return flush(blocks, fault) &&
               add_call(blocks->list, text_of(block, "id"), text_of(block, "name"),
                        json_find(block, "input"), param, fault);
    if (text_is(type, "tool_result") && !assistant)
        return flush(blocks, fault) &&
               add_result(blocks->list, text_of(block, "tool_use_id"), json_find(block, "content"),
                          "text", param, fault);
    if ((text_is(type, "thinking") || text_is(type, "redacted_thinking")) && assistant)
        return true;
    return fault_set(fault, 400, param, "unsupported_content",
                     "%s: content of type \"%.*s\" is not supported here", param,
                     TEXT_ARGUMENT(type));
}

static bool read_blocks(const json_value *content, const char *role, const char *param,
                        turn_list *list, api_fault *fault) {
    if (content->array.count > API_PARTS_MAX || content->array.count == 0)
        return FAULT_FIELD(fault, param, "%s: %zu blocks; 1 to %d are allowed", param,
                           content->array.count, API_PARTS_MAX);
    blocks blocks = {.role = role, .param = param, .list = list};
    buffer_init(&blocks.text, NULL, API_TEXT_BYTES_MAX);
    bool good = true;
    for (size_t i = 0; good && i < content->array.count; i++)
        good = read_block(&content->array.items[i], &blocks, fault);
    good = good && flush(&blocks, fault);
    buffer_free(&blocks.text);
    return good;
}

static bool read_anthropic_message(const json_value *message, const char *param, turn_list *list,
                                   api_fault *fault) {
    text_view role = text_of(message, "role");
    const json_value *content = json_find(message, "content");
    if (message->kind != JSON_OBJECT || content == NULL)
        return fault_set(fault, 400, param, "invalid_type",
                         "%s: expected an object with role and content", param);
    bool assistant = text_is(role, "assistant");
    if (!assistant && !text_is(role, "user"))
        return FAULT_FIELD(fault, param, "%s: role \"%.*s\" is neither user nor assistant", param,
                           TEXT_ARGUMENT(role));
    turn turn = {.role = assistant ? "assistant" : "user"};
    if (content->kind == JSON_ARRAY)
        return read_blocks(content, turn.role, param, list, fault);
    if (content->kind != JSON_STRING)
        return fault_set(fault, 400, param, "invalid_type",
                         "%s: the content is a text or a list of blocks", param);
    return content_read(content, param, "", list->arena, &turn.content, fault) &&
           turn_add(list, turn, fault);
}

bool anthropic_messages_read(const json_value *messages, const json_value *system, turn_list *list,
                             api_fault *fault) {
    if (system != NULL) {
        turn turn = {.role = "system"};
        if (!content_read(system, "system", "text", list->arena, &turn.content, fault) ||
            (turn.content[0] != '\0' && !turn_add(list, turn, fault)))
            return false;
    }
    if (messages->kind != JSON_ARRAY)
        return fault_set(fault, 400, "messages", "invalid_type",
                         "messages: expected an array, found %s", json_kind_name(messages->kind));
    if (messages->array.count == 0)
        return FAULT_FIELD(fault, "messages", "messages: the list is empty");
    for (size_t i = 0; i < messages->array.count; i++) {
        char name[64];
        snprintf(name, sizeof(name), "messages[%zu]", i);
        if (!read_anthropic_message(&messages->array.items[i], name, list, fault))
            return false;
    }
    return true;
}
