/* The parts of reading training data: items of files (data_read.c), keys (data_keys.c), messages
 * (data_messages.c), tokens and masks (data_tokens.c). */
#ifndef AVO_TRAIN_DATA_INT_H
#define AVO_TRAIN_DATA_INT_H

#include "base/hash.h"
#include "model/model.h"
#include "train/data.h"

/* ---- Items of a file ---- */

/* An object with the fields of one sample; valid during the call. The reader puts file and line in
 * front of an error's text. */
typedef avo_status (*data_item_function)(void *context, arena *arena, const json_value *item,
                                         avo_error *error);

typedef struct data_reader {
    const avo_allocator *allocator;
    const char *path; /* ends in .jsonl, .ndjson, .json, .csv or .txt */
    data_item_function use;
    void *context;
    avo_progress_function progress;
    void *progress_context;
    /* Private: */
    text_view text;
    size_t at;     /* bytes that were read */
    size_t told;   /* … when progress was reported, and memory given back, the last time */
    uint64_t line; /* of `at`, 1-based */
    arena arena;   /* of one item */
    avo_error *error;
} data_reader;

AVO_MUST_USE avo_status data_read(data_reader *reader, avo_error *error);
/* An item that begins at `line`: calls `use`. */
AVO_MUST_USE avo_status data_read_item(data_reader *reader, const json_value *item, uint64_t line);
AVO_MUST_USE avo_status data_read_csv(data_reader *reader);
AVO_MUST_USE avo_status data_read_fail(data_reader *reader, uint64_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The file of a split, into path[HUB…]: `path` itself, or a file in this folder. */
AVO_MUST_USE avo_status data_find_split(const char *path, const char *split, char *file,
                                        size_t capacity, avo_error *error);

/* ---- Keys ---- */

/* Which members of an item hold what; NULL: not in this form. */
typedef struct data_form {
    train_data_kind kind;
    const char *messages; /* CHAT, PROMPT: a list of messages */
    const char *prompt;   /* COMPLETION, PREFERENCE (may be NULL), PROMPT */
    const char *input;    /* behind the prompt, where it is not empty (Alpaca) */
    const char *answer;   /* COMPLETION's answer, PREFERENCE's chosen */
    const char *rejected;
    const char *text;
} data_form;

/* Finds the form of a file's first item. Fails with a text that lists the keys found. */
AVO_MUST_USE avo_status data_form_find(train_data_use use, const json_value *item, data_form *form,
                                       avo_error *error);
/* "prompt, completion" */
void data_form_keys(const data_form *form, char *text, size_t capacity);

/* One sample in words: strings, or lists of messages. */
typedef struct data_words {
    bool plain; /* prompt, answer and rejected are strings; else messages */
    text_view text;
    text_view prompt_text, answer_text, rejected_text;
    json_value prompt, answer, rejected; /* lists of messages, normalised; may be empty */
    json_value tools;                    /* null: none */
    const json_value *fields;
} data_words;

/* The sample of an item; missing keys and wrong types are refused by name. `chat`: strings become
 * messages of user and assistant. `system`: see train_data_options. */
AVO_MUST_USE avo_status data_form_read(const data_form *form, arena *arena, const json_value *item,
                                       bool chat, const char *system, data_words *words,
                                       avo_error *error);

/* ---- Messages ---- */

/* A list of messages as templates expect it: {"from", "value"} becomes {"role", "content"}, content
 * in parts becomes one string, arguments of calls become objects; everything else stays. `value`
 * may be the list's JSON as a string. */
AVO_MUST_USE avo_status data_messages_read(arena *arena, const json_value *value, const char *key,
                                           json_value *out, avo_error *error);
AVO_MUST_USE avo_status data_message_make(arena *arena, const char *role, text_view content,
                                          json_value *out, avo_error *error);
/* Both lists, one behind the other. */
AVO_MUST_USE avo_status data_messages_join(arena *arena, const json_value *first,
                                           const json_value *second, json_value *out,
                                           avo_error *error);
bool data_message_is(const json_value *message, const char *role);
/* JSON that may be given as a string: "[…]". */
AVO_MUST_USE avo_status data_unwrap(arena *arena, const json_value *value, const char *key,
                                    json_value *out, avo_error *error);

/* ---- Tokens ---- */

typedef struct data_encoder {
    const avo_model *model;
    encoder *encoder;
    encode_cache *cache;
    int64_t now;
    int32_t end_token; /* −1: none */
    id_list ids;       /* the result … */
    buffer wanted;     /* … and its mask */
    id_list other;     /* of a prefix */
    chat_template_output rendered, prefix;
    const char *mask; /* how masks were found */
} data_encoder;

AVO_MUST_USE avo_status data_encoder_open(data_encoder *encoder, const avo_model *model,
                                          const avo_allocator *allocator, int64_t now,
                                          avo_error *error);
void data_encoder_close(data_encoder *encoder);

/* Each replaces ids and mask. A text: all of it counts. */
AVO_MUST_USE avo_status data_encode_text(data_encoder *encoder, text_view text, avo_error *error);
/* Two texts: the second one and the end token count. */
AVO_MUST_USE avo_status data_encode_pair(data_encoder *encoder, text_view prompt, text_view answer,
                                         avo_error *error);
/* A conversation: what the assistant says from message `first` on counts. */
AVO_MUST_USE avo_status data_encode_chat(data_encoder *encoder, const json_value *messages,
                                         const json_value *tools, size_t first, avo_error *error);
/* A conversation, with the beginning of the assistant's answer where `prompt`: nothing counts. The
 * text is in encoder->rendered. */
AVO_MUST_USE avo_status data_encode_render(data_encoder *encoder, const json_value *messages,
                                           const json_value *tools, bool prompt, avo_error *error);

#endif
