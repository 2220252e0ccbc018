/* Chat templates: a small Jinja engine of our own, as transformers configures jinja2 (trim_blocks,
 * lstrip_blocks, loop controls, raise_exception, strftime_now, tojson), with limits on everything.
 *
 * Every string knows which of its bytes come from the template itself and which from the caller's
 * data; the rendered text comes with the spans that the template wrote, and only there may the
 * tokenizer see special tokens. What users write can never become one.
 */
#ifndef AVO_TOKENIZER_TEMPLATE_H
#define AVO_TOKENIZER_TEMPLATE_H

#include "base/buffer.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

#define TEMPLATE_SOURCE_MAX ((size_t)1 << 20)
#define TEMPLATE_DEPTH_MAX  100      /* of expressions, of blocks, of macro calls */
#define TEMPLATE_STEPS_MAX  10000000 /* evaluated nodes, items walked, and bytes copied / 128 */
#define TEMPLATE_OUTPUT_MAX ((size_t)64 << 20)
#define TEMPLATE_MEMORY_MAX ((size_t)256 << 20)

typedef struct chat_template chat_template;

/* Parses. Errors name line and column and what is not understood. */
AVO_MUST_USE avo_status chat_template_open(text_view source, const avo_allocator *allocator,
                                           chat_template **out, avo_error *error);
void chat_template_close(chat_template *chat);
/* Whether {% generation %} blocks mark what the assistant says. */
bool chat_template_has_generation(const chat_template *chat);

typedef struct chat_template_input {
    /* The variables: messages, tools, documents, add_generation_prompt, … An object. Strings in it
     * are the caller's data, save a "role" that is one of the usual words. */
    const json_value *variables;
    /* Trusted strings, set as variables bos_token, eos_token, unk_token, pad_token when not empty.
     */
    text_view begin_token, end_token, unknown_token, padding_token;
    int64_t now;        /* Unix time for strftime_now (UTC) */
    uint64_t steps_max; /* 0: TEMPLATE_STEPS_MAX */
    bool strict; /* printing an undefined value is an error, as with jinja2's StrictUndefined */
} chat_template_input;

/* The variables of a plain conversation: messages (role and content) and add_generation_prompt.
 * The texts stay where they are and must outlive the tree. */
AVO_MUST_USE avo_status chat_template_messages(arena *arena, const avo_message *messages,
                                               size_t count, bool add_generation_prompt,
                                               json_value *out, avo_error *error);

typedef struct chat_template_output {
    buffer text;
    text_span *trusted; /* as encode_options wants them */
    size_t trusted_count;
    size_t trusted_capacity_;
    /* What {% generation %} blocks wrote: the assistant's parts. Ascending, disjoint. */
    text_span *generated;
    size_t generated_count;
    size_t generated_capacity_;
    /* A generation block wrote into a macro or a variable: `generated` is incomplete. */
    bool generated_inside;
} chat_template_output;

void chat_template_output_init(chat_template_output *output, const avo_allocator *allocator);
void chat_template_output_free(chat_template_output *output);

/* Replaces what `output` held. AVO_ERROR_TEMPLATE: the template failed or asks for what is not
 * supported (the text names line and column, and what raise_exception said); AVO_ERROR_LIMIT: a
 * limit below. `chat` may be shared by threads. */
AVO_MUST_USE avo_status chat_template_render(const chat_template *chat,
                                             const chat_template_input *input,
                                             chat_template_output *output, avo_error *error);

#endif
