/* Inside the endpoints: their common state, and a request once it was read. */
#ifndef AVO_SERVER_API_INT_H
#define AVO_SERVER_API_INT_H

#include "base/json_writer.h"
#include "chat/chat.h"
#include "model/model.h"
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
    char digest[17];   /* source_digest in hexadecimal */
    uint32_t context;  /* tokens of one request, prompt and answer */
    int64_t opened_at; /* Unix time */
    chat_format *format;
    grammar_cache *grammars;
    atomic_ullong counter; /* of ids and seeds by chance */
    uint64_t secret;

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t idle;
    uint32_t helpers; /* threads that exist */
    uint32_t helping; /* of them, those that have not answered yet */
    uint32_t readers; /* the same, of bodies; and those that wait for one */
    struct answer_job *unread_first, *unread_last;
    uint32_t unread_count;
    bool room_runs; /* a thread that asks the scheduler again (api_answer.c), and for whom */
    struct answer *room_first;
    bool tracing;
    uint32_t training;          /* helpers that read training runs */
    struct grpc_watch *watches; /* server/api/grpc/health.c */
    numbered_adapter *adapters; /* by llama.cpp's number */
    uint32_t adapter_count, adapter_capacity;
    struct batches *batches; /* batch.h; NULL: the server keeps nothing (--state) */
};

/* ---- A request ---- */

typedef struct api_prompt {
    const int32_t *tokens; /* or: */
    size_t token_count;
    const char *text;
} api_prompt;

#define PROMPT_TOPS_NONE UINT32_MAX

/* A body once it is read: the request that is submitted, and how its answer is told. */
struct api_request {
    api_body body;
    arena arena;     /* everything pointed at */
    arena parsed;    /* the body's tree, while it is read */
    json_value root; /* there */

    /* As it is submitted, but for what differs between choices: the prompt, the seed, what is left
     * of the deadlines, and who listens. */
    avo_request submit;
    avo_sampling sampling;
    avo_chat_options chat; /* the variables of a conversation */
    avo_named_adapter adapters[AVO_ADAPTERS_MAX];
    const char *model;     /* as it was asked for; then as the answer names it */
    api_prompt *prompts;   /* completions, embeddings; NULL: a conversation */
    size_t prompt_count;   /* 1 for conversations; 0: nothing was asked (ollama) */
    const char *last_text; /* of the conversation */

    chat_constraint constraint; /* compiled when there is room for the request */
    bool calls;                 /* tool calls are looked for in the answer */
    bool parallel_calls;
    bool reasoning;          /* is kept apart from the text */
    avo_value *tools;        /* of `calls`, as templates get them */
    const char *only_opener; /* of chat_parser_options */

    uint32_t prompt_tops; /* prompt_logprobs; PROMPT_TOPS_NONE: not asked for */
    uint32_t told_tops;   /* top_logprobs as it was asked for: the draw may need more */
    uint32_t n;           /* answers of each prompt that are told */
    uint32_t best_of;     /* that are computed */
    bool logprobs, echo, stream, include_usage, base64, normalize, json_object;
    uint32_t dimensions; /* 0: all */
    const char *grammar, *instructions, *pooling, *encoding_format, *reasoning_format;
    const char *tools_json, *tool_choice_json, *format_json, *metadata_json; /* said back */

    /* llama.cpp's and ollama's (dialects.c). */
    const json_value *options; /* in the body; NULL: none */
    const char *input_prefix, *input_suffix;
    bool raw, return_tokens;
    uint32_t text_flags; /* how texts of prompts are encoded */

    /* Of bodies that ask for no answer. */
    const char *content, *lora_name, *lora_path;
    bool add_special, parse_special, with_pieces, return_token_strs, add_generation_prompt;
};

/* ---- request.c ---- */
/* How tokens are drawn where a body does not say: as the model recommends, else as the interface
 * has it that the body belongs to: OpenAI's, llama.cpp's or ollama's. False: the model recommends
 * nothing. */
bool api_sampling(const api *api, api_body body, avo_sampling *sampling);
/* A body with its fields. `key` may be NULL. On failure *out is NULL. */
AVO_MUST_USE bool api_request_open(api *api, api_body body, const server_key *key, text_view text,
                                   api_request **out, api_fault *fault);
/* All of a request for answers or embeddings; the body is not needed any more. */
AVO_MUST_USE bool api_request_read(api *api, api_body body, const server_key *key, text_view text,
                                   api_request **out, api_fault *fault);
/* The conversation alone, of a request that is open. */
AVO_MUST_USE bool api_request_talk(api *api, api_request *request, api_fault *fault);
void api_request_free(api_request *request);
/* JSON as a tree. `scratch` is initialised here, with a limit that follows from the size. */
AVO_MUST_USE bool api_parse_body(text_view body, arena *scratch, json_value *root,
                                 api_fault *fault);

/* ---- dialects.c ---- */
/* What llama.cpp's and ollama's bodies say in words of their own, before anything else is read. */
AVO_MUST_USE bool dialect_read(const api *api, api_request *r, api_fault *fault);
/* The variables of the template that think asks for. *out is NULL without it. */
AVO_MUST_USE bool dialect_think(api_request *r, const json_value **out, api_fault *fault);
/* A body whose prompt is a text or token ids, not a conversation. */
bool body_continues(const api *api, const api_request *r);
/* The name of its prompt, for errors. */
const char *body_prompt(const api_request *r);

/* ---- infill.c ---- */
/* What the model expects to fill in the middle as a prompt of token ids; refused where it cannot.
 */
AVO_MUST_USE bool infill_read(const api *api, api_request *r, api_fault *fault);

/* ---- prompts.c ---- */
/* An empty text has a token: the one that the model wants in front. */
bool prompt_may_be_empty(const api *api);
/* A text, texts, ids or lists of ids. */
AVO_MUST_USE bool prompts_read(const api *api, const json_value *value, const char *param,
                               api_request *r, api_fault *fault);
AVO_MUST_USE bool token_list_read(const api *api, const json_value *value, const char *param,
                                  arena *arena, int32_t **tokens, size_t *count, api_fault *fault);

/* ---- adapters.c ---- */
/* model, adapters and lora: what answers. */
AVO_MUST_USE bool adapters_read(api *api, const server_key *key, api_request *r, api_fault *fault);
/* Whether the registry has this name; `api` is an api. For server_key_adapter. */
bool adapter_is_known(const void *api, const char *name);
/* Numbers those of the command line, in its order. */
void adapters_number(api *api);
void adapters_forget(api *api);

/* ---- usage.c ---- */
/* Metrics by key, behind those of the telemetry. */
AVO_MUST_USE avo_status usage_write_metrics(const api *api, buffer *out);

/* ---- routes.c ---- */
/* A line of the audit log about what this exchange asks for; `reason` NULL: it was done. */
void api_audit(const api *api, exchange *exchange, const char *action, const char *target,
               const char *reason);
void api_fail(exchange *exchange, const api_fault *fault);
/* A complete document; 503 where there was no memory for it. */
void api_send_json(exchange *exchange, unsigned status, const json_writer *w);
/* What an error of the engine means to a client. `param` where it is about the prompt. */
void fault_from_error(api_fault *fault, const avo_error *error, const char *param);
/* "chatcmpl-1f…": unique for this server. */
void api_make_id(api *api, const char *prefix, char *id, size_t capacity);
uint64_t api_random(api *api);
int64_t api_now(void);
/* Tokens of a conversation; freed by the caller with the list. */
AVO_MUST_USE bool api_tokenize_chat(const api *api, const api_request *r, id_list *ids,
                                    api_fault *fault);
/* The bytes of one token, behind others. Into a buffer, which is emptied first. */
AVO_MUST_USE avo_status api_piece(const avo_model *model, int32_t token, buffer *out);

/* Answers a request of the REST API, whoever has brought it. */
void api_answer_route(api *api, exchange *exchange);
/* The base model or an adapter that this key may use. */
bool api_knows_model(const api *api, const server_key *key, const char *name);

/* ---- Endpoints ---- */
void endpoint_chat(api *api, exchange *exchange);
void endpoint_completion(api *api, exchange *exchange);
void endpoint_response(api *api, exchange *exchange);
void endpoint_message(api *api, exchange *exchange);
void endpoint_count(api *api, exchange *exchange);
void endpoint_embedding(api *api, exchange *exchange);
void endpoint_llama(api *api, exchange *exchange);
void endpoint_infill(api *api, exchange *exchange);
void endpoint_llama_embedding(api *api, exchange *exchange);
void endpoint_props(api *api, exchange *exchange);
void endpoint_slots(api *api, exchange *exchange);
void endpoint_template(api *api, exchange *exchange);
void endpoint_ollama_chat(api *api, exchange *exchange);
void endpoint_ollama_generate(api *api, exchange *exchange);
void endpoint_ollama_embed(api *api, exchange *exchange);
void endpoint_ollama_vector(api *api, exchange *exchange);
void endpoint_ollama_tags(api *api, exchange *exchange);
void endpoint_ollama_ps(api *api, exchange *exchange);
void endpoint_ollama_show(api *api, exchange *exchange);
void endpoint_ollama_pull(api *api, exchange *exchange);
void endpoint_ollama_version(api *api, exchange *exchange);
void endpoint_models(api *api, exchange *exchange);
void endpoint_model(api *api, exchange *exchange);
void endpoint_tokenize(api *api, exchange *exchange);
void endpoint_detokenize(api *api, exchange *exchange);
void endpoint_tokenizer_info(api *api, exchange *exchange);
void endpoint_health(api *api, exchange *exchange);
void endpoint_ready(api *api, exchange *exchange);
void endpoint_metrics(api *api, exchange *exchange);
void endpoint_telemetry(api *api, exchange *exchange);
void endpoint_training(api *api, exchange *exchange);
void endpoint_upload(api *api, exchange *exchange);
void endpoint_files(api *api, exchange *exchange);
void endpoint_file(api *api, exchange *exchange);
void endpoint_file_delete(api *api, exchange *exchange);
void endpoint_file_content(api *api, exchange *exchange);
void endpoint_batch_create(api *api, exchange *exchange);
void endpoint_batches(api *api, exchange *exchange);
void endpoint_batch(api *api, exchange *exchange);
void endpoint_batch_cancel(api *api, exchange *exchange);
void endpoint_usage(api *api, exchange *exchange);
void endpoint_version(api *api, exchange *exchange);
void endpoint_openapi(api *api, exchange *exchange);
void endpoint_trace(api *api, exchange *exchange);
void endpoint_load(api *api, exchange *exchange);
void endpoint_unload(api *api, exchange *exchange);
void endpoint_scales(api *api, exchange *exchange);
void endpoint_set_scales(api *api, exchange *exchange);

/* ---- Routes ---- */
typedef enum api_access {
    ACCESS_ALL,
    ACCESS_METRICS, /* keys that may see what all keys together do */
    ACCESS_OWNER,   /* administrators, and keys that may load adapters of their own */
    ACCESS_ADMIN
} api_access;
typedef struct api_route {
    const char *method, *path; /* "{id}" in a path stands for anything; at its end, also with "/" */
    void (*answer)(api *api, exchange *exchange);
    api_body body;
    api_access access;
    const char *tag, *text;             /* what it does */
    const char *type;                   /* of a good answer */
    const char *schema;                 /* its name among the document's components; NULL: a text */
    const char *errors;                 /* statuses besides 200, comma separated */
    void (*parameters)(json_writer *w); /* for the document; NULL: none */
} api_route;
extern const api_route api_routes[];
extern const size_t api_route_count;
/* Parameters of routes. */
void openapi_model_id(json_writer *w);
void openapi_trace_seconds(json_writer *w);
void openapi_training_run(json_writer *w);
void openapi_file_id(json_writer *w);
void openapi_list(json_writer *w);
void openapi_usage(json_writer *w);
/* The document: complete, from the tables. */
void openapi_write(json_writer *w, const api *api);

#endif
