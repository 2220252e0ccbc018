/* Conversations with tools for a template that knows none: tools are described in the system's
 * message, calls and results become text. */
#include "chat/chat_int.h"
#include "chat/tool_int.h"

#include <string.h>

/* What follows is part of prompts: another wording would give other answers. */
static avo_status write_tools(const json_value *tools, buffer *out) {
    AVO_TRY(buffer_append_text(out, "You can call functions. These are there, one in a line:\n"
                                    "<tools>\n"));
    for (size_t i = 0; i < tools->array.count; i++) {
        AVO_TRY(json_write_value(out, &tools->array.items[i]));
        AVO_TRY(buffer_append_text(out, "\n"));
    }
    return buffer_append_text(out, "</tools>\nTo call one, answer with nothing but its name and "
                                   "arguments as JSON inside of tags:\n<tool_call>\n{\"name\": "
                                   "\"the function\", \"arguments\": {\"its\": \"arguments\"}}"
                                   "\n</tool_call>\nWhat it returns comes in <tool_response> "
                                   "tags.");
}

static avo_status write_calls(const chat_turn *turn, buffer *out) {
    AVO_TRY(buffer_append(out, turn->content.data, turn->content.size));
    for (size_t i = 0; i < turn->call_count; i++) {
        const json_value *function = json_find(&turn->calls[i], "function");
        AVO_TRY(buffer_format(out, "%s<tool_call>\n{\"name\": ", out->size > 0 ? "\n" : ""));
        AVO_TRY(json_write_value(out, json_find(function, "name")));
        AVO_TRY(buffer_append_text(out, ", \"arguments\": "));
        AVO_TRY(json_write_value(out, json_find(function, "arguments")));
        AVO_TRY(buffer_append_text(out, "}\n</tool_call>"));
    }
    return AVO_OK;
}

static avo_status write_result(const chat_turn *turn, buffer *out) {
    AVO_TRY(buffer_append_text(out, "<tool_response>\n"));
    AVO_TRY(buffer_append(out, turn->content.data, turn->content.size));
    return buffer_append_text(out,
                              turn->content.size > 0 ? "\n</tool_response>" : "</tool_response>");
}

/* The text into the arena; the buffer is freed. */
static bool keep(buffer *text, avo_status status, arena *arena, text_view *out, chat_fault *fault) {
    const char *copy =
        status == AVO_OK ? arena_copy_text(arena, buffer_text(text).data, text->size) : NULL;
    *out = (text_view){copy, text->size};
    buffer_free(text);
    return copy != NULL || chat_fail_memory(fault);
}

static bool describe_turn(chat_turn *turn, arena *arena, chat_fault *fault) {
    bool result = strcmp(turn->role, "tool") == 0;
    if (!result && turn->call_count == 0)
        return true;
    buffer text;
    buffer_init(&text, arena->allocator, CHAT_TEXT_BYTES_MAX);
    avo_status status = result ? write_result(turn, &text) : write_calls(turn, &text);
    *turn = (chat_turn){.role = result ? "user" : turn->role};
    return keep(&text, status, arena, &turn->content, fault);
}

static bool describe_tools(chat_turns *turns, const json_value *tools, chat_fault *fault) {
    bool there = turns->count > 0 && strcmp(turns->items[0].role, "system") == 0;
    text_view before = there ? turns->items[0].content : (text_view){"", 0};
    chat_turn system = {.role = "system"};
    buffer text;
    buffer_init(&text, turns->arena->allocator, CHAT_TEXT_BYTES_MAX);
    avo_status status = buffer_append(&text, before.data, before.size);
    if (status == AVO_OK && before.size > 0)
        status = buffer_append_text(&text, "\n\n");
    if (status == AVO_OK)
        status = write_tools(tools, &text);
    if (!keep(&text, status, turns->arena, &system.content, fault))
        return false;
    if (there) {
        turns->items[0].content = system.content;
        return true;
    }
    if (!chat_turn_add(turns, system, fault))
        return false;
    memmove(turns->items + 1, turns->items, (turns->count - 1) * sizeof(*turns->items));
    turns->items[0] = system;
    return true;
}

bool turns_describe(chat_turns *turns, const json_value *tools, chat_fault *fault) {
    for (size_t i = 0; i < turns->count; i++)
        if (!describe_turn(&turns->items[i], turns->arena, fault))
            return false;
    return tools == NULL || describe_tools(turns, tools, fault);
}
