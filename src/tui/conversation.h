/* A conversation: what was said, by whom, and under which system text. Saved as JSON in OpenAI's
 * shape, so that other programs can read it. */
#ifndef AVO_TUI_CONVERSATION_H
#define AVO_TUI_CONVERSATION_H

#include "base/buffer.h"

#define CONVERSATION_BYTES_MAX    ((size_t)64 << 20)
#define CONVERSATION_MESSAGES_MAX 10000u

typedef enum speaker { SPEAKER_USER, SPEAKER_ASSISTANT, SPEAKER_NOTE } speaker;

typedef struct message {
    speaker speaker; /* a note is for the reader alone: it is neither sent nor saved */
    buffer text;     /* terminated */
} message;

typedef struct conversation {
    buffer system; /* terminated; empty: none */
    message *messages;
    size_t count, capacity;
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

/* What the model is given: system and all messages but notes. `out` has room for count + 1;
 * pointers live until the conversation changes. Returns how many. */
size_t conversation_messages(const conversation *conversation, avo_message *out);

/* Written beside and renamed. */
AVO_MUST_USE avo_status conversation_save(const conversation *conversation, const char *path,
                                          const char *model, avo_error *error);
/* Replaces what is there; a failure changes nothing. */
AVO_MUST_USE avo_status conversation_load(conversation *conversation, const char *path,
                                          avo_error *error);

#endif
