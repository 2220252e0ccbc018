/* A conversation: what was said, by whom, and under which system text. Saved as JSON in OpenAI's
 * shape, so that other programs can read it; messages of other programs may have content in parts,
 * tool calls and results of tools. */
#ifndef AVO_TUI_CONVERSATION_H
#define AVO_TUI_CONVERSATION_H

#include "chat/chat.h"

#define CONVERSATION_BYTES_MAX    ((size_t)64 << 20)
#define CONVERSATION_MESSAGES_MAX (CHAT_TURNS_MAX - 1u) /* and the system text */

typedef enum speaker { SPEAKER_USER, SPEAKER_ASSISTANT, SPEAKER_TOOL, SPEAKER_NOTE } speaker;

typedef struct message {
    speaker speaker;       /* a note is for the reader alone: it is neither sent nor saved */
    buffer text;           /* terminated */
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
