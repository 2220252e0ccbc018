/* Between the files that read conversations and constraints. */
#ifndef AVO_CHAT_INT_H
#define AVO_CHAT_INT_H

#include "chat/chat.h"

/* A model's conversations, for the public interface. */
struct avo_chat {
    const avo_model *model;
    chat_format *format;
    grammar_cache *grammars;
};

/* One request. What it points to is in its arena. */
struct avo_chat_request {
    avo_chat *chat;
    arena arena;
    avo_request request;
    avo_sampling sampling;
    const char *grammar, *system; /* NULL: none */
    bool json_object, parallel_calls, raw;
    avo_adapter_use uses[AVO_ADAPTERS_MAX];
    avo_chat_options options; /* of a conversation: its variables */
    chat_prompt prompt;       /* of a conversation: how its answer is read */
};

/* A string member; empty where there is none. */
static inline text_view turns_text_of(const json_value *object, const char *key) {
    const json_value *value = json_find(object, key);
    return value != NULL && value->kind == JSON_STRING ? value->string : (text_view){"", 0};
}

static inline json_value json_string_of(text_view text) {
    return (json_value){.kind = JSON_STRING, .string = text};
}

static inline json_value json_object_of(json_member *members, size_t count) {
    return (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = count}};
}

static inline json_value json_array_of(json_value *items, size_t count) {
    return (json_value){.kind = JSON_ARRAY, .array = {.items = items, .count = count}};
}

/* The texts behind each other. */
AVO_MUST_USE bool turns_join(arena *arena, const text_view *texts, size_t count, text_view *out,
                             chat_fault *fault);
/* The text of content: a string, or parts of one of the given types (comma separated). */
AVO_MUST_USE bool turns_read_content(chat_turns *turns, const json_value *content,
                                     const char *param, const char *types, text_view *out,
                                     chat_fault *fault);
/* One more call of a turn. Arguments are an object or its text. */
AVO_MUST_USE bool turns_add_call(chat_turns *turns, chat_turn *turn, text_view id, text_view name,
                                 const json_value *arguments, const char *param, chat_fault *fault);

/* ---- constraint.c ---- */
/* Whether the text of a grammar is short enough to be compiled. */
AVO_MUST_USE bool constraint_fits(text_view text, const char *param, chat_fault *fault);

/* ---- dialects.c ---- */
AVO_MUST_USE bool response_item_read(chat_turns *turns, const json_value *item, const char *param,
                                     chat_fault *fault);
AVO_MUST_USE bool anthropic_message_read(chat_turns *turns, const json_value *message,
                                         const char *param, chat_fault *fault);

#endif
