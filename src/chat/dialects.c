/* Conversations in the words of OpenAI's responses and of Anthropic's messages, into turns. */
#include "chat/chat_int.h"

#include <string.h>

/* One call as a turn of its own, or onto the assistant's turn before it. */
static bool add_call(chat_turns *turns, text_view id, text_view name, const json_value *arguments,
                     const char *param, chat_fault *fault) {
    chat_turn *last = turns->count > 0 ? &turns->items[turns->count - 1] : NULL;
    if (name.size == 0)
        return chat_fail(fault, param, "missing_required_parameter", "%s: a call lacks a name",
                         param);
    if (last == NULL || strcmp(last->role, "assistant") != 0) {
        chat_turn fresh = {.role = "assistant", .content = {"", 0}};
        if (!chat_turn_add(turns, fresh, fault))
            return false;
        last = &turns->items[turns->count - 1];
    }
    if (last->call_count >= CHAT_CALLS_MAX)
        return chat_fail(fault, param, "invalid_value", "%s: a message can have at most %d calls",
                         param, CHAT_CALLS_MAX);
    return turns_add_call(turns, last, id, name, arguments, param, fault);
}

static bool add_result(chat_turns *turns, text_view id, const json_value *output, const char *types,
                       const char *param, chat_fault *fault) {
    chat_turn turn = {.role = "tool", .call_id = id};
    return turns_read_content(turns, output, param, types, &turn.content, fault) &&
           chat_turn_add(turns, turn, fault);
}

/* ---- Responses ---- */

static const char *response_role(text_view role) {
    if (text_is(role, "system") || text_is(role, "developer"))
        return "system";
    return text_is(role, "assistant") ? "assistant" : text_is(role, "user") ? "user" : NULL;
}

bool response_item_read(chat_turns *turns, const json_value *item, const char *param,
                        chat_fault *fault) {
    text_view type = turns_text_of(item, "type");
    if (item->kind != JSON_OBJECT)
        return chat_fail(fault, param, "invalid_type", "%s must be an object, found %s", param,
                         json_kind_name(item->kind));
    if (text_is(type, "function_call"))
        return add_call(turns, turns_text_of(item, "call_id"), turns_text_of(item, "name"),
                        json_find(item, "arguments"), param, fault);
    if (text_is(type, "function_call_output"))
        return add_result(turns, turns_text_of(item, "call_id"), json_find(item, "output"),
                          "input_text,output_text", param, fault);
    if (text_is(type, "reasoning"))
        return true; /* of an earlier answer: templates leave it out as well */
    if (type.size > 0 && !text_is(type, "message"))
        return chat_fail(fault, param, "unsupported_content",
                         "%s: items of type \"%.*s\" are not supported", param,
                         TEXT_ARGUMENT(type));
    text_view role = turns_text_of(item, "role");
    chat_turn turn = {.role = response_role(role)};
    if (turn.role == NULL)
        return chat_fail(fault, param, "invalid_value",
                         "%s: role is \"%.*s\", must be system, developer, user or assistant",
                         param, TEXT_ARGUMENT(role));
    const json_value *content = json_find(item, "content");
    if (content == NULL || content->kind == JSON_NULL)
        return chat_fail(fault, param, "missing_required_parameter", "%s: the content is missing",
                         param);
    return turns_read_content(turns, content, param, "input_text,output_text,text,refusal",
                              &turn.content, fault) &&
           chat_turn_add(turns, turn, fault);
}

/* ---- Anthropic's messages ---- */

/* Text before a tool call or a result is a turn of its own: blocks are collected until one comes.
 */
typedef struct block_texts {
    const char *role, *param;
    chat_turns *turns;
    text_view *items;
    size_t count;
} block_texts;

static bool flush(block_texts *texts, chat_fault *fault) {
    if (texts->count == 0)
        return true;
    chat_turn turn = {.role = texts->role};
    size_t count = texts->count;
    texts->count = 0;
    return turns_join(texts->turns->arena, texts->items, count, &turn.content, fault) &&
           chat_turn_add(texts->turns, turn, fault);
}

static bool read_block(const json_value *block, block_texts *texts, chat_fault *fault) {
    text_view type = turns_text_of(block, "type");
    const char *param = texts->param;
    bool assistant = strcmp(texts->role, "assistant") == 0;
    if (text_is(type, "text")) {
        const json_value *value = json_find(block, "text");
        if (value == NULL)
            return chat_fail(fault, param, "missing_required_parameter",
                             "%s: a block of type text lacks its text", param);
        return chat_string_read(value, param, CHAT_TEXT_BYTES_MAX, &texts->items[texts->count++],
                                fault);
    }
    if (text_is(type, "tool_use") && assistant)
        return flush(texts, fault) &&
               add_call(texts->turns, turns_text_of(block, "id"), turns_text_of(block, "name"),
                        json_find(block, "input"), param, fault);
    if (text_is(type, "tool_result") && !assistant)
        return flush(texts, fault) && add_result(texts->turns, turns_text_of(block, "tool_use_id"),
                                                 json_find(block, "content"), "text", param, fault);
    if ((text_is(type, "thinking") || text_is(type, "redacted_thinking")) && assistant)
        return true;
    return chat_fail(fault, param, "unsupported_content",
                     "%s: content of type \"%.*s\" is not supported here", param,
                     TEXT_ARGUMENT(type));
}

static bool read_blocks(chat_turns *turns, const json_value *content, const char *role,
                        const char *param, chat_fault *fault) {
    size_t count = content->array.count;
    if (count > CHAT_PARTS_MAX || count == 0)
        return chat_fail(fault, param, "invalid_value", "%s has %zu blocks, must have 1 to %d",
                         param, count, CHAT_PARTS_MAX);
    block_texts texts = {.role = role, .param = param, .turns = turns};
    texts.items = arena_take_array(turns->arena, count, sizeof(*texts.items));
    if (texts.items == NULL)
        return chat_fail_memory(fault);
    for (size_t i = 0; i < count; i++)
        if (!read_block(&content->array.items[i], &texts, fault))
            return false;
    return flush(&texts, fault);
}

bool anthropic_message_read(chat_turns *turns, const json_value *message, const char *param,
                            chat_fault *fault) {
    text_view role = turns_text_of(message, "role");
    const json_value *content = json_find(message, "content");
    if (message->kind != JSON_OBJECT || content == NULL)
        return chat_fail(fault, param, "invalid_type", "%s must be an object with role and content",
                         param);
    bool assistant = text_is(role, "assistant");
    if (!assistant && !text_is(role, "user"))
        return chat_fail(fault, param, "invalid_value",
                         "%s: role is \"%.*s\", must be user or assistant", param,
                         TEXT_ARGUMENT(role));
    chat_turn turn = {.role = assistant ? "assistant" : "user"};
    if (content->kind == JSON_ARRAY)
        return read_blocks(turns, content, turn.role, param, fault);
    if (content->kind != JSON_STRING)
        return chat_fail(fault, param, "invalid_type",
                         "%s: the content must be a string or a list of blocks", param);
    return chat_string_read(content, param, CHAT_TEXT_BYTES_MAX, &turn.content, fault) &&
           chat_turn_add(turns, turn, fault);
}

bool chat_system_read(chat_turns *turns, const json_value *system, chat_fault *fault) {
    chat_turn turn = {.role = "system"};
    return turns_read_content(turns, system, "system", "text", &turn.content, fault) &&
           (turn.content.size == 0 || chat_turn_add(turns, turn, fault));
}
