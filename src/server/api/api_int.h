/* Inside the endpoints: their common state, and a request once it was read. */
#ifndef AVO_SERVER_API_INT_H
#define AVO_SERVER_API_INT_H

#include "base/json.h"
#include "chat/chat.h"
#include "server/api/api.h"
#include "server/api/fields.h"
#include "server/api/limits.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- State between requests ---- */

typedef struct numbered_adapter {
    char *name;
    double scale; /* for requests that choose no adapter; 0: not used */
} numbered_adapter;

typedef struct answer_job answer_job; /* api_helpers.c */

struct api {
    api_host host;
    const server_options *options;
    const avo_model *model;
    avo_scheduler *scheduler;
    avo_registry *registry; /* NULL: no adapters */
    avo_model_info info;
    uint32_t context;  /* tokens of one request, prompt and answer */
    int64_t opened_at; /* Unix time */
    chat_format *format;
    grammar_cache *grammars;
    atomic_ullong counter; /* of ids and seeds by chance */
    uint64_t secret;

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t idle;
    uint32_t helpers; /* threads at work */
    uint32_t readers; /* the same, of bodies; and those that wait for one */
    struct answer_job *unread_first, *unread_last;
    uint32_t unread_count;
    bool room_runs; /* a thread that asks the scheduler again (api_answer.c), and for whom */
    struct answer *room_first;
    bool tracing;
    numbered_adapter *adapters; /* by llama.cpp's number */
    uint32_t adapter_count, adapter_capacity;
};

/* ---- A request ---- */

typedef enum api_family {
    FAMILY_CHAT,
    FAMILY_COMPLETION,
    FAMILY_RESPONSE,
    FAMILY_MESSAGE,
    FAMILY_EMBEDDING
} api_family;

typedef struct api_prompt {
    const int32_t *tokens; /* or: */
    size_t token_count;
    const char *text;
} api_prompt;

typedef struct generation {
    api_family family;
    arena arena;       /* everything pointed at */
    const char *model; /* as the answer names it */
    avo_named_adapter adapters[AVO_ADAPTERS_MAX];
    size_t adapter_count;

    api_prompt *prompts;   /* completions, embeddings */
    size_t prompt_count;   /* 1 for conversations */
    avo_value *variables;  /* conversations: for the template; NULL: there are prompts */
    const char *last_text; /* of the conversation */

    uint32_t n;       /* answers of each prompt that are told */
    uint32_t best_of; /* that are computed */
    avo_sampling sampling;
    uint32_t max_tokens; /* 0: until the context is full */
    bool no_answer;
    const char **stop;
    size_t stop_count;
    int32_t *stop_tokens;
    size_t stop_token_count;
    bool ignore_eos;

    bool logprobs, echo, stream, include_usage;
    chat_constraint constraint;
    bool calls; /* tool calls are looked for in the answer */
    bool parallel_calls;
    avo_value *tools;                          /* of `calls`, as templates get them */
    const char *only_opener;                   /* of chat_parser_options */
    const char *tools_json, *tool_choice_json; /* /v1/responses says them back */
    const char *instructions, *format_json, *metadata_json;

    double deadline, first_token_deadline; /* seconds; 0: none */
    uint32_t priority;
    const char *tenant, *cache_salt;

    avo_pooling pooling;
    bool base64, normalize;
    uint32_t dimensions; /* 0: all */
} generation;

/* A body into a request: api_values, then everything else. `key` may be NULL. On failure `out` is
 * empty. */
AVO_MUST_USE bool generation_read(api *api, api_family family, const server_key *key,
                                  text_view body, generation **out, api_fault *fault);
void generation_free(generation *generation);

/* A conversation alone, for counting its tokens: `values` are of its body, which has that many
 * bytes. */
AVO_MUST_USE bool conversation_read(api *api, api_family family, const api_values *values,
                                    size_t body_bytes, arena *scratch, generation **out,
                                    api_fault *fault);

/* ---- api_request.c ---- */
/* The body as a tree. `scratch` is initialised here, with a limit that follows from the size. */
AVO_MUST_USE bool api_parse_body(text_view body, arena *scratch, json_value *root,
                                 api_fault *fault);
api_body api_body_of(api_family family);

/* ---- api_prompts.c ---- */
/* An empty text has a token: the one that the model wants in front. */
bool prompt_may_be_empty(const api *api);
/* A text, texts, ids or lists of ids. */
AVO_MUST_USE bool prompts_read(const api *api, const json_value *value, const char *param,
                               generation *g, api_fault *fault);
AVO_MUST_USE bool token_list_read(const api *api, const json_value *value, const char *param,
                                  arena *arena, int32_t **tokens, size_t *count, api_fault *fault);

/* ---- api_adapters.c ---- */
/* model, adapters and lora: what answers. */
AVO_MUST_USE bool adapters_read(api *api, const api_values *values, const server_key *key,
                                generation *g, api_fault *fault);
/* Numbers those of the command line, in its order. */
void adapters_number(api *api);
void adapters_forget(api *api);

/* ---- api.c ---- */
void api_fail(exchange *exchange, const api_fault *fault);
/* What an error of the engine means to a client. `param` where it is about the prompt. */
void fault_from_error(api_fault *fault, const avo_error *error, const char *param);
/* "chatcmpl-1f…": unique for this server. */
void api_make_id(api *api, const char *prefix, char *id, size_t capacity);
uint64_t api_random(api *api);
int64_t api_now(void);
/* Tokens of a text or conversation; freed by the caller with the buffer. */
AVO_MUST_USE bool api_tokenize(const api *api, text_view text, uint32_t flags, buffer *ids,
                               api_fault *fault);
AVO_MUST_USE bool api_tokenize_chat(const api *api, const generation *g, bool open_turn,
                                    buffer *ids, api_fault *fault);
/* The bytes of one token, behind others. Into a buffer, which is emptied first. */
AVO_MUST_USE avo_status api_piece(const avo_model *model, int32_t token, buffer *out);

/* ---- Endpoints ---- */
void endpoint_chat(api *api, exchange *exchange);
void endpoint_completion(api *api, exchange *exchange);
void endpoint_response(api *api, exchange *exchange);
void endpoint_message(api *api, exchange *exchange);
void endpoint_count(api *api, exchange *exchange);
void endpoint_embedding(api *api, exchange *exchange);
void endpoint_models(api *api, exchange *exchange);
void endpoint_model(api *api, exchange *exchange);
void endpoint_tokenize(api *api, exchange *exchange);
void endpoint_detokenize(api *api, exchange *exchange);
void endpoint_health(api *api, exchange *exchange);
void endpoint_ready(api *api, exchange *exchange);
void endpoint_metrics(api *api, exchange *exchange);
void endpoint_telemetry(api *api, exchange *exchange);
void endpoint_version(api *api, exchange *exchange);
void endpoint_openapi(api *api, exchange *exchange);
void endpoint_trace(api *api, exchange *exchange);
void endpoint_load(api *api, exchange *exchange);
void endpoint_unload(api *api, exchange *exchange);
void endpoint_scales(api *api, exchange *exchange);
void endpoint_set_scales(api *api, exchange *exchange);

/* ---- Routes ---- */
typedef struct api_route {
    const char *method, *path; /* a path that ends in "/{id}" takes one more part */
    void (*answer)(api *api, exchange *exchange);
    api_body body;
    bool admin;
    const char *tag, *text; /* what it does */
    const char *type;       /* of a good answer */
    const char *schema;     /* its name among the document's components; NULL: a text */
    const char *errors;     /* statuses besides 200, comma separated */
    const char *parameters; /* as JSON of OpenAPI; NULL: none */
} api_route;
extern const api_route api_routes[];
extern const size_t api_route_count;
/* The document: complete, from the tables. */
AVO_MUST_USE avo_status openapi_write(const api *api, buffer *out);

#endif
