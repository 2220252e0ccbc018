/* Part of avocet.h, which includes it: chat requests from JSON, and answers split into content,
 * reasoning and tool calls. The rules at the head of avocet.h hold here, too. */
#ifndef AVO_AVOCET_CHAT_H
#define AVO_AVOCET_CHAT_H

#ifndef AVOCET_H
#error "include avocet.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Reads requests written as JSON, with the keys of OpenAI's chat completions, and splits answers
 * into content, reasoning and tool calls. How the model writes tool calls and reasoning follows
 * from its chat template. Compiled grammars are kept, up to 256 MiB. Any thread can use it. The
 * model must outlive it. */
typedef struct avo_chat avo_chat;
AVO_API AVO_MUST_USE avo_status avo_chat_open(const avo_model *model, avo_chat **chat,
                                              avo_error *error);
AVO_API void avo_chat_close(avo_chat *chat);

/* An adapter that a request can name. */
typedef struct avo_chat_adapter {
    const char *name;
    avo_adapter *adapter;
    float weight; /* multiplied by the weight in the request */
} avo_chat_adapter;

typedef struct avo_chat_request_options {
    size_t size; /* sizeof(avo_chat_request_options) */
    /* Values for keys that the JSON lacks: sampling, stop, stop_tokens, max_new_tokens, ignore_end,
     * grammar, text_flags, speculate, draft_tokens; other fields are not used. NULL:
     * AVO_REQUEST_INIT. Without sampling, the model's recommended values apply. */
    const avo_request *defaults;
    const avo_chat_adapter *adapters; /* all apply if the JSON has no "adapter" or "adapters" */
    size_t adapter_count;
    const char *system; /* system message for "prompt"; NULL: none */
    bool raw;           /* continue the text of "prompt" instead of using the chat template */
    /* Sampling of requests that name none of temperature, top_k, top_p, min_p and typical_p; NULL:
     * as of `defaults`. */
    const avo_sampling *unnamed_sampling;
} avo_chat_request_options;
#define AVO_CHAT_REQUEST_OPTIONS_INIT                                                              \
    { sizeof(avo_chat_request_options), NULL, NULL, 0, NULL, false, NULL }

/* A request from a JSON object. It has one of "messages", "prompt" and "tokens", and any of:
 * tools, tool_choice, parallel_tool_calls, response_format, chat_template_kwargs; grammar (GBNF),
 * json_schema, json_object; max_tokens, max_completion_tokens, max_new_tokens; stop, stop_tokens
 * or stop_token_ids, logit_bias, ignore_eos, temperature, top_k, top_p, min_p, typical_p,
 * repetition_penalty, presence_penalty, frequency_penalty, seed, logprobs (the number of
 * alternatives, or true with top_logprobs); adapter, adapters; system, raw; tenant, priority,
 * deadline, first_token_deadline (or …_ms), cache_salt; speculation (as avo_request's speculate),
 * draft_tokens; prompt_logprobs, pooling, no_answer; id (not used). An unknown key is an error,
 * null is the same as an absent key. The HTTP server reads the same table and refuses the same
 * values with the same texts; docs/api.md lists the differences. max_tokens 0 asks for no answer,
 * which a conversation refuses; max_new_tokens 0 is no limit. Compiles the grammar, which can take
 * a tenth of a second. */
typedef struct avo_chat_request avo_chat_request;
AVO_API AVO_MUST_USE avo_status avo_chat_request_open(avo_chat *chat, const char *json,
                                                      size_t bytes,
                                                      const avo_chat_request_options *options,
                                                      avo_chat_request **request, avo_error *error);
AVO_API void avo_chat_request_close(avo_chat_request *request);
/* The request for avo_generate or a scheduler, without on_event: copy it and set that. What it
 * points to is valid until the avo_chat_request is closed, or belongs to the options. */
AVO_API const avo_request *avo_chat_request_get(const avo_chat_request *request);

/* A parser for one answer to a request, which must outlive it. Used by one thread at a time. */
typedef struct avo_chat_parser avo_chat_parser;
enum {
    AVO_CHAT_REASONING = 1, /* separate reasoning from content; otherwise it is content */
    /* Report a tool call as soon as its arguments begin, for streaming. It then stays a call, even
     * if its arguments turn out not to be JSON. */
    AVO_CHAT_EARLY_CALLS = 2
};
AVO_API AVO_MUST_USE avo_status avo_chat_parser_open(const avo_chat_request *request,
                                                     uint32_t flags, avo_chat_parser **parser,
                                                     avo_error *error);
AVO_API void avo_chat_parser_close(avo_chat_parser *parser);

/* Text that a token completed; not terminated, valid until the next push. */
typedef struct avo_chat_delta {
    size_t size; /* sizeof(avo_chat_delta), set by the caller */
    const char *content;
    size_t content_bytes;
    const char *reasoning;
    size_t reasoning_bytes;
    size_t calls; /* tool calls so far, including one that is not complete */
} avo_chat_delta;
#define AVO_CHAT_DELTA_INIT                                                                        \
    { sizeof(avo_chat_delta), NULL, 0, NULL, 0, 0 }
/* Reads the next token event of the answer, NULL at its end. Text that may be the start of a tool
 * call is held back until that is known. Fails only if out of memory: malformed calls are content.
 */
AVO_API AVO_MUST_USE avo_status avo_chat_parser_push(avo_chat_parser *parser,
                                                     const avo_token_event *event,
                                                     avo_chat_delta *delta, avo_error *error);

/* Texts are not terminated. Those of a complete call are valid as long as the parser, others until
 * the next push. */
typedef struct avo_tool_call {
    size_t size; /* sizeof(avo_tool_call), set by the caller */
    const char *name;
    size_t name_bytes;
    const char *arguments; /* a JSON object as text, or as much of it as has arrived */
    size_t arguments_bytes;
    bool complete;
} avo_tool_call;
#define AVO_TOOL_CALL_INIT                                                                         \
    { sizeof(avo_tool_call), NULL, 0, NULL, 0, false }
/* False if there is no such call. */
AVO_API bool avo_chat_parser_call(avo_chat_parser *parser, size_t index, avo_tool_call *call);

#ifdef __cplusplus
}
#endif
#endif
