/* A conversation: what was said, by whom, and under which system text. Saved as JSON in OpenAI's
 * shape, so that other programs can read it; messages of other programs may have content in parts,
 * tool calls and results of tools. */
#ifndef AVO_TUI_CONVERSATION_H
#define AVO_TUI_CONVERSATION_H

#include "chat/chat.h"

#define CONVERSATION_BYTES_MAX    ((size_t)64 << 20)
#define CONVERSATION_MESSAGES_MAX (CHAT_TURNS_MAX - 1u) /* and the system text */

typedef enum speaker { SPEAKER_USER, SPEAKER_ASSISTANT, SPEAKER_TOOL, SPEAKER_NOTE } speaker;

/* Text from the end of the span before on. */
typedef struct message_span {
    size_t end; /* in the text */
    bool drafted;
} message_span;

typedef struct message {
    speaker speaker;       /* a note is for the reader alone: it is neither sent nor saved */
    buffer text;           /* terminated */
    buffer spans;          /* message_span each: what was drafted; text behind the last was not */
    const chat_turn *turn; /* of a file: with tool calls, or a tool's result; NULL: text is all */
} message;

typedef struct conversation {
    buffer system; /* terminated; empty: none */
    message *messages;
    size_t count, capacity;
    avo_value *loaded; /* the file that turns point into; NULL: none */
    arena turns;       /* those turns */
} conversation;

void conversation_init(conversation *conversation);
void conversation_free(conversation *conversation);

/* An empty message at the end; NULL: no memory, or too many. */
message *conversation_add(conversation *conversation, speaker speaker);
/* Appends to the message and terminates it. */
AVO_MUST_USE avo_status message_append(message *message, text_view text);
/* The same for text of tokens that were drafted, or were not. */
AVO_MUST_USE avo_status message_append_tokens(message *message, text_view text, bool drafted);
size_t message_span_count(const message *message);
const message_span *message_span_at(const message *message, size_t index);
void conversation_cut(conversation *conversation, size_t count);
void conversation_remove(conversation *conversation, size_t index);
AVO_MUST_USE avo_status conversation_set_system(conversation *conversation, text_view text);

/* What the model is given: system and all messages but notes, as the template's variables. */
AVO_MUST_USE avo_status conversation_variables(const conversation *conversation,
                                               const chat_format *format, avo_value **variables,
                                               avo_error *error);

/* Written beside and renamed. */
AVO_MUST_USE avo_status conversation_save(const conversation *conversation, const char *path,
                                          const char *model, avo_error *error);
/* Replaces what is there; a failure changes nothing. */
AVO_MUST_USE avo_status conversation_load(conversation *conversation, const char *path,
                                          avo_error *error);

#endif
