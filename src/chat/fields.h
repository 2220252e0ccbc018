/* Fields of a request for an answer: one table for every interface. HTTP bodies
 * (server/api/field_table.c) and JSON objects of `run --prompts`, C and Python (chat/request.c)
 * make their rows from it, so that names, types, ranges and error texts agree. Each adds rows of
 * its own for what only it can do, and refuses, with the reason, what only the other can. */
#ifndef AVO_CHAT_FIELDS_H
#define AVO_CHAT_FIELDS_H

#include "chat/chat.h"
#include "engine/request.h"
#include "sample/sample.h"
#include "spec/spec.h"

typedef enum chat_field_kind {
    FIELD_BOOLEAN,      /* bool */
    FIELD_U32,          /* uint32_t; a negative number is 0 */
    FIELD_FLOAT,        /* float */
    FIELD_SECONDS,      /* double */
    FIELD_MILLISECONDS, /* double, in seconds */
    FIELD_SEED,         /* uint64_t; -1 leaves it as it is */
    FIELD_STRING,       /* const char *, terminated; `maximum` bytes at most */
    FIELD_VALUE,        /* read by code of its own */
    FIELD_IGNORED,      /* accepted without effect, as its meaning allows */
    FIELD_REFUSED       /* refused unless null, empty or its neutral value (`minimum`; of booleans 1
                           is true): what it asks for is not there */
} chat_field_kind;

typedef struct chat_field {
    const char *name;
    chat_field_kind kind;
    double minimum, maximum;
    size_t offset;    /* in the structure that chat_field_read fills */
    const char *text; /* what it means; FIELD_REFUSED: what to do instead */
} chat_field;

/* A value that is not null into the structure at `base`; strings are copied into the arena. */
AVO_MUST_USE bool chat_field_read(const chat_field *field, const json_value *value, void *base,
                                  arena *arena, chat_fault *fault);

/* ---- The table ---- */

#define FIELD_NO_RANGE  0, 0
#define FIELD_ANY_WHOLE -9.3e18, 9.3e18

/* X(name, bodies, kind, range, place, text): read into a place, which is SUBMIT(member of
 * avo_request), SAMPLING(member of avo_sampling) or OWN(member of the reader's structure).
 * V(name, bodies, kind, schema, text): FIELD_VALUE, FIELD_IGNORED or FIELD_REFUSED.
 * `bodies` and `schema` are words of HTTP (server/api/field_table.c): the other reader does not
 * expand them. */
#define CHAT_FIELDS(X, V)                                                                          \
    X("max_new_tokens", OPENAI, FIELD_U32, 0 FIELD_COMMA REQUEST_NEW_TOKENS_MAX,                   \
      SUBMIT(max_new_tokens), "maximum number of new tokens; 0: until the context is full")        \
    X("min_tokens", LOCAL, FIELD_U32, 0 FIELD_COMMA REQUEST_NEW_TOKENS_MAX,                        \
      SUBMIT(min_new_tokens),                                                                      \
      "EOS tokens, stop tokens and stop strings do not end a shorter answer (vLLM)")               \
    V("repetition_detection", LOCAL, FIELD_VALUE, OBJECT,                                          \
      "end an answer that repeats itself, with finish_reason repetition: max_pattern_size, "       \
      "min_pattern_size, min_count (vLLM)")                                                        \
    V("stop", STOPPED, FIELD_VALUE, STRINGS,                                                       \
      "string or up to 64 strings of 1 to 1024 bytes that end the answer and are not part of it")  \
    V("stop_token_ids", OPENAI, FIELD_VALUE, STOP_TOKENS,                                          \
      "tokens that end the answer, in addition to the model's own")                                \
    V("stop_tokens", OPENAI, FIELD_VALUE, STOP_TOKENS, "same as stop_token_ids")                   \
    X("ignore_eos", LOCAL, FIELD_BOOLEAN, FIELD_NO_RANGE, SUBMIT(ignore_end),                      \
      "continue after EOS tokens")                                                                 \
    /* Sampling; absent: what the model recommends, else greedy */                                 \
    X("temperature", SAMPLED, FIELD_FLOAT, SAMPLING_TEMPERATURE, SAMPLING(temperature),            \
      "sampling temperature; 0: always the most likely token (default: the model's own, else 1)")  \
    X("top_p", SAMPLED, FIELD_FLOAT, SAMPLING_PROBABILITY, SAMPLING(top_p),                        \
      "sample from the most likely tokens with this total probability")                            \
    X("top_k", SAMPLED, FIELD_U32, -1 FIELD_COMMA SAMPLING_TOP_K_MAX, SAMPLING(top_k),             \
      "sample from this many of the most likely tokens; 0 or -1: all")                             \
    X("min_p", SAMPLED, FIELD_FLOAT, SAMPLING_PROBABILITY, SAMPLING(min_p),                        \
      "drop tokens less than this many times as likely as the most likely one")                    \
    X("typical_p", SAMPLED, FIELD_FLOAT, SAMPLING_TYPICAL, SAMPLING(typical_p),                    \
      "sample from the most typical tokens with this total probability")                           \
    X("repetition_penalty", ANSWERS, FIELD_FLOAT, SAMPLING_REPETITION,                             \
      SAMPLING(repetition_penalty),                                                                \
      "divide the logits of tokens in the prompt or answer by this "                               \
      "number")                                                                                    \
    X("repeat_penalty", PENALISED, FIELD_FLOAT, SAMPLING_REPETITION, SAMPLING(repetition_penalty), \
      "same as repetition_penalty (name used by llama.cpp)")                                       \
    X("presence_penalty", PENALISED, FIELD_FLOAT, SAMPLING_PENALTY, SAMPLING(presence_penalty),    \
      "subtracted from the logits of tokens in the answer")                                        \
    X("frequency_penalty", PENALISED, FIELD_FLOAT, SAMPLING_PENALTY, SAMPLING(frequency_penalty),  \
      "subtracted for each time a token is in the answer")                                         \
    V("logit_bias", LOCAL, FIELD_VALUE, BIAS,                                                      \
      "map of token ids to numbers added to their logits; -100 or less forbids the token")         \
    X("seed", SAMPLED, FIELD_SEED, FIELD_ANY_WHOLE, SAMPLING(seed),                                \
      "the same seed gives the same bytes; absent or -1: a random one, which the answer contains") \
    V("logprobs", OPENAI | OLLAMA, FIELD_VALUE, LOGPROBS,                                          \
      "return log-probabilities of the answer's tokens; an integer: also of this many most "       \
      "likely ones")                                                                               \
    X("top_logprobs", OPENAI | RESPONSE | OLLAMA, FIELD_U32, 0 FIELD_COMMA AVO_TOP_LOGPROBS_MAX,   \
      SAMPLING(top_logprobs), "number of most likely tokens to return with each; needs logprobs")  \
    /* Constraints */                                                                              \
    V("response_format", OPENAI, FIELD_VALUE, OBJECT,                                              \
      "type: text, json_object or json_schema with its schema")                                    \
    X("grammar", ANSWERS | LLAMA, FIELD_STRING, 0 FIELD_COMMA CHAT_GRAMMAR_BYTES_MAX,              \
      OWN(grammar), "grammar in llama.cpp's GBNF with rule root, which the answer follows")        \
    V("json_schema", LOCAL, FIELD_VALUE, SCHEMA_OF("object,boolean,string,null"),                  \
      "JSON schema that the answer matches, or its text")                                          \
    X("json_object", OPENAI, FIELD_BOOLEAN, FIELD_NO_RANGE, OWN(json_object),                      \
      "the answer is a JSON object")                                                               \
    V("guided_json", OPENAI, FIELD_VALUE, SCHEMA_OF("object,boolean,string,null"),                 \
      "same as json_schema (vLLM)")                                                                \
    V("guided_regex", OPENAI, FIELD_VALUE, STRING_OR_NULL,                                         \
      "regular expression that matches the whole answer (vLLM)")                                   \
    V("guided_choice", OPENAI, FIELD_VALUE, STRING_LIST, "the answer is one of these (vLLM)")      \
    V("guided_grammar", OPENAI, FIELD_VALUE, STRING_OR_NULL, "same as grammar (vLLM)")             \
    V("guided_json_object", OPENAI, FIELD_VALUE, SCHEMA_OF("boolean,null"),                        \
      "same as json_object (vLLM)")                                                                \
    V("structured_outputs", OPENAI, FIELD_VALUE, OBJECT,                                           \
      "one of json, regex, choice, grammar and json_object, as in the guided_ fields (vLLM)")      \
    V("guided_decoding_backend", OPENAI, FIELD_IGNORED, NULL, "ignored; there is one backend")     \
    V("tools", TALKS, FIELD_VALUE, OBJECTS,                                                        \
      "functions the model may call: name, description, parameters as a JSON schema")              \
    V("tool_choice", TALKS, FIELD_VALUE, OBJECT_OR_WORD,                                           \
      "none, auto, required (in messages: any), or one function by name")                          \
    X("parallel_tool_calls", CHAT | RESPONSE, FIELD_BOOLEAN, FIELD_NO_RANGE, OWN(parallel_calls),  \
      "allow more than one call in an answer (default true)")                                      \
    V("chat_template_kwargs", CHAT | BODY_TOKENIZE | BODY_TEMPLATE, FIELD_VALUE, OBJECT,           \
      "additional variables for the chat template, such as enable_thinking")                       \
    /* Adapters and service */                                                                     \
    V("adapters", ANSWERS | LLAMA | BODY_EMBEDDING, FIELD_VALUE, ADAPTERS,                         \
      "adapters with weights, [{\"name\", \"weight\"}]")                                           \
    V("adapter", OPENAI, FIELD_VALUE, ADAPTER, "one adapter: name or {\"name\", \"weight\"}")      \
    X("deadline_ms", ANSWERS | LLAMA | BODY_EMBEDDING, FIELD_MILLISECONDS,                         \
      0 FIELD_COMMA 1e3 * REQUEST_SECONDS_MAX, SUBMIT(deadline),                                   \
      "time limit for the whole answer; the text generated so far is returned")                    \
    X("first_token_deadline_ms", ANSWERS | LLAMA, FIELD_MILLISECONDS,                              \
      0 FIELD_COMMA 1e3 * REQUEST_SECONDS_MAX, SUBMIT(first_token_deadline),                       \
      "time limit for the first token, else the request fails")                                    \
    X("deadline", OPENAI, FIELD_SECONDS, 0 FIELD_COMMA REQUEST_SECONDS_MAX, SUBMIT(deadline),      \
      "deadline_ms in seconds")                                                                    \
    X("first_token_deadline", OPENAI, FIELD_SECONDS, 0 FIELD_COMMA REQUEST_SECONDS_MAX,            \
      SUBMIT(first_token_deadline), "first_token_deadline_ms in seconds")                          \
    X("priority", ANSWERS | LLAMA | BODY_EMBEDDING, FIELD_U32, 0 FIELD_COMMA REQUEST_PRIORITY_MAX, \
      SUBMIT(priority), "0 (served first) to 15 (default 8); never better than the key's")         \
    X("cache_salt", ANSWERS | LLAMA | BODY_EMBEDDING, FIELD_STRING,                                \
      0 FIELD_COMMA CHAT_NAME_BYTES_MAX, SUBMIT(cache_salt),                                       \
      "prefixes are shared only with requests of the same key and salt")                           \
    X("speculation", ANSWERS | LLAMA, FIELD_STRING, 0 FIELD_COMMA CHAT_NAME_BYTES_MAX,             \
      SUBMIT(speculate),                                                                           \
      "draft sources: off, auto (default) or a list such as suffix,corpus; within those of the "   \
      "server; the answer is the same")                                                            \
    X("draft_tokens", ANSWERS | LLAMA, FIELD_U32, 1 FIELD_COMMA DRAFTS_MAX, SUBMIT(draft_tokens),  \
      "maximum number of draft tokens in one step; at most the server's")                          \
    /* Without effect */                                                                           \
    V("user", ANSWERS | BODY_EMBEDDING, FIELD_IGNORED, NULL, "ignored; for use by the client")     \
    V("metadata", ANSWERS, FIELD_IGNORED, NULL, "ignored; for use by the client")                  \
    V("store", CHAT | RESPONSE, FIELD_IGNORED, NULL, "ignored; nothing is stored")                 \
    V("service_tier", ANSWERS, FIELD_IGNORED, NULL, "ignored; there is one tier")                  \
    V("safety_identifier", CHAT | RESPONSE, FIELD_IGNORED, NULL, "ignored; for use by the client") \
    V("prompt_cache_key", CHAT | RESPONSE, FIELD_IGNORED, NULL,                                    \
      "ignored; prefixes are found by their content")                                              \
    V("reasoning_effort", CHAT, FIELD_IGNORED, NULL, "ignored; no model supports it")              \
    V("verbosity", CHAT, FIELD_IGNORED, NULL, "ignored; no model supports it")                     \
    V("prediction", CHAT, FIELD_IGNORED, NULL, "ignored; a hint for speed")                        \
    V("prompt_cache_retention", CHAT | RESPONSE, FIELD_IGNORED, NULL,                              \
      "ignored; prefixes are always cached")                                                       \
    V("cache_prompt", LOCAL, FIELD_IGNORED, NULL, "ignored; prefixes are always cached")           \
    /* Not there */                                                                                \
    V("modalities", CHAT, FIELD_VALUE, STRING_LIST, "[\"text\"]; audio is refused")                \
    V("audio", CHAT, FIELD_REFUSED, NULL, "answers are text only")                                 \
    V("functions", CHAT, FIELD_REFUSED, NULL, "use tools")                                         \
    V("function_call", CHAT, FIELD_REFUSED, NULL, "use tool_choice")                               \
    V("web_search_options", CHAT, FIELD_REFUSED, NULL, "there is no web access")
/* Between the two numbers of a range, which are one argument of X. */
#define FIELD_COMMA ,

#endif
