/* A body becomes a request: what all families of endpoints have in common. */
#include "server/api/api_int.h"

#include "base/value.h"
#include "engine/request.h"
#include "server/keys.h"
#include "spec/spec.h"

#include <stdio.h>
#include <stdlib.h>

#define PARSE_BYTES_FIXED ((size_t)64 << 20)
#define PARSE_BYTES_EACH  16 /* of tree for one byte of text: more is a body made to be large */
/* Of what is kept of it: texts, and trees of the arguments of calls. */
#define REQUEST_BYTES_FIXED ((size_t)8 << 20)
#define REQUEST_BYTES_EACH  64

bool api_parse_body(text_view body, arena *scratch, json_value *root, api_fault *fault) {
    arena_init(scratch, NULL, PARSE_BYTES_FIXED + PARSE_BYTES_EACH * body.size);
    avo_error error = {0};
    text_view member = {NULL, 0};
    if (body.size == 0)
        return fault_set(fault, 400, NULL, "invalid_json", "the body is empty, must be JSON");
    if (json_parse_named(scratch, body, root, &member, &error) == AVO_OK)
        return true;
    if (error.status == AVO_ERROR_MEMORY && scratch->limit_hit)
        return fault_set(fault, 413, NULL, "too_complex", "the body has too many values");
    if (error.status == AVO_ERROR_MEMORY)
        return fault_no_memory(fault);
    if (member.size == 0)
        return fault_set(fault, 400, NULL, "invalid_json", "%s", error.text);
    char name[sizeof(fault->param)];
    snprintf(name, sizeof(name), "%.*s", (int)(member.size < 64 ? member.size : 64), member.data);
    return fault_set(fault, 400, name, "invalid_json", "%s: %s", name, error.text);
}

/* ---- Sampling ---- */

static bool read_bias(const api *api, api_request *r, api_fault *fault) {
    const json_value *bias = api_field_of(r, "logit_bias");
    chat_fault wrong = {0};
    bool list = bias != NULL && bias->kind == JSON_ARRAY; /* dialect_read has read it */
    return bias == NULL || (list && (r->body & (BODY_LLAMA | BODY_INFILL)) != 0) ||
           chat_bias_read(bias, api->info.vocabulary, &r->arena, &r->sampling, &wrong) ||
           fault_from_chat(fault, &wrong);
}

/* ---- What is told ---- */

static bool read_response_logprobs(api_request *r, api_fault *fault) {
    const json_value *include = api_field_of(r, "include");
    if (include == NULL)
        return true;
    if (include->kind != JSON_ARRAY)
        return fault_set(fault, 400, "include", "invalid_type", "include must be an array");
    for (size_t i = 0; i < include->array.count; i++) {
        const json_value *item = &include->array.items[i];
        if (item->kind == JSON_STRING && text_is(item->string, "message.output_text.logprobs"))
            r->logprobs = true;
    }
    return true;
}

static bool read_logprobs(api_request *r, api_fault *fault) {
    chat_fault wrong = {0};
    if ((r->body & (BODY_LLAMA | BODY_INFILL)) != 0)
        return true; /* n_probs says it */
    if (r->body == BODY_RESPONSE)
        return read_response_logprobs(r, fault);
    return chat_logprobs_read(api_field_of(r, "logprobs"), &r->logprobs, &r->sampling, &wrong) ||
           fault_from_chat(fault, &wrong);
}

/* One number says how many alternatives the engine keeps, for prompt and answer. */
static bool read_prompt_logprobs(api_request *r, api_fault *fault) {
    r->told_tops = r->sampling.top_logprobs;
    r->submit.prompt_logprobs = r->echo && r->logprobs;
    if (r->prompt_tops == PROMPT_TOPS_NONE)
        return true;
    r->submit.prompt_logprobs = true;
    if (r->prompt_tops > r->sampling.top_logprobs)
        r->sampling.top_logprobs = r->prompt_tops;
    return !r->stream ||
           fault_set(fault, 400, "prompt_logprobs", "unsupported_parameter",
                     "prompt_logprobs is not supported with stream; use echo and logprobs of "
                     "/v1/completions");
}

/* llama.cpp's words. */
static bool read_reasoning(api_request *r, api_fault *fault) {
    if ((r->body & (BODY_OLLAMA_CHAT | BODY_OLLAMA_GENERATE)) != 0) {
        r->reasoning = true; /* which ollama always tells apart */
        return true;
    }
    const char *format = r->reasoning_format == NULL ? "none" : r->reasoning_format;
    r->reasoning = strcmp(format, "deepseek") == 0 || strcmp(format, "auto") == 0;
    return r->reasoning || strcmp(format, "none") == 0 ||
           FAULT_FIELD(fault, "reasoning_format",
                       "reasoning_format is \"%s\", must be none, deepseek or auto", format);
}

static bool read_stream(api_request *r, api_fault *fault) {
    const json_value *options = api_field_of(r, "stream_options");
    if (options == NULL)
        return true;
    if (options->kind != JSON_OBJECT)
        return fault_set(fault, 400, "stream_options", "invalid_type",
                         "stream_options must be an object, found %s",
                         json_kind_name(options->kind));
    const json_value *usage = json_find(options, "include_usage");
    if (usage != NULL && usage->kind != JSON_BOOLEAN && usage->kind != JSON_NULL)
        return fault_set(fault, 400, "stream_options.include_usage", "invalid_type",
                         "stream_options.include_usage must be true or false");
    r->include_usage = usage != NULL && usage->kind == JSON_BOOLEAN && usage->boolean;
    return true;
}

/* ---- Where it ends ---- */

static bool read_stop(const char *param, api_request *r, api_fault *fault) {
    const json_value *stop = api_field_of(r, param);
    chat_fault wrong = {0};
    const char **texts = NULL;
    if (stop == NULL)
        return true;
    if (!chat_stops_read(stop, param, &r->arena, &texts, &r->submit.stop_count, &wrong))
        return fault_from_chat(fault, &wrong);
    r->submit.stop = texts;
    return true;
}

static bool read_repetition(api_request *r, api_fault *fault) {
    const json_value *loops = api_field_of(r, "repetition_detection");
    chat_fault wrong = {0};
    return loops == NULL || chat_repetition_read(loops, &r->submit.repetition, &wrong) ||
           fault_from_chat(fault, &wrong);
}

/* By both of its names; stop_token_ids counts where both are given. */
static bool read_stop_tokens(const api *api, api_request *r, api_fault *fault) {
    static const char *const names[] = {"stop_tokens", "stop_token_ids"};
    for (size_t i = 0; i < 2; i++) {
        const json_value *value = api_field_of(r, names[i]);
        chat_fault wrong = {0};
        int32_t *tokens = NULL;
        if (value == NULL)
            continue;
        if (!chat_ids_read(value, names[i], api->info.vocabulary, REQUEST_STOP_TOKENS_MAX,
                           &r->arena, &tokens, &r->submit.stop_token_count, &wrong))
            return fault_from_chat(fault, &wrong);
        r->submit.stop_tokens = tokens;
    }
    return true;
}

/* ---- How many ---- */

static bool read_choices(const api *api, api_request *r, api_fault *fault) {
    uint32_t most = api->options->choices_max;
    if (most == 0 || most > API_CHOICES_MAX)
        most = API_CHOICES_MAX;
    if (r->best_of == 0)
        r->best_of = r->n;
    if (r->n > most)
        return FAULT_FIELD(fault, "n", "n is %u, this server allows at most %u", r->n, most);
    if (r->best_of > most)
        return FAULT_FIELD(fault, "best_of", "best_of is %u, this server allows at most %u",
                           r->best_of, most);
    if (r->best_of < r->n)
        return FAULT_FIELD(fault, "best_of", "best_of is %u, must be at least n (%u)", r->best_of,
                           r->n);
    if (r->best_of > r->n && r->stream)
        return FAULT_FIELD(fault, "best_of", "best_of greater than n cannot be streamed");
    return true;
}

/* ---- Service ---- */

/* Prefix caches tell by their speed what others asked: keys do not share theirs. */
static bool read_service(const server_key *key, api_request *r, api_fault *fault) {
    uint32_t best = server_key_priority(key);
    if (r->submit.priority < best && key != NULL)
        r->submit.priority = best;
    const char *name = server_key_name(key);
    const char *salt = r->submit.cache_salt == NULL ? "" : r->submit.cache_salt;
    r->submit.cache_salt = NULL;
    r->submit.tenant_weight = server_key_weight(key);
    r->submit.tenant_kv_tokens = server_key_kv_tokens(key);
    if (name[0] != '\0') {
        r->submit.tenant = arena_copy_text(&r->arena, name, strlen(name));
        if (r->submit.tenant == NULL)
            return fault_no_memory(fault);
    }
    if (name[0] == '\0' && salt[0] == '\0')
        return true;
    size_t bytes = strlen(name) + strlen(salt) + 2;
    char *both = arena_take(&r->arena, bytes);
    if (both == NULL)
        return fault_no_memory(fault);
    size_t at = strlen(name);
    memcpy(both, name, at);
    both[at] = '\n'; /* which names of keys cannot hold */
    memcpy(both + at + 1, salt, strlen(salt));
    r->submit.cache_salt = both;
    return true;
}

static bool check_speculation(const api_request *r, api_fault *fault) {
    draft_kinds kinds;
    avo_error error = {0};
    return draft_kinds_read("speculation", r->submit.speculate, &kinds, &error) == AVO_OK ||
           FAULT_FIELD(fault, "speculation", "%s", error.text);
}

/* ---- Conversations and prompts ---- */

static chat_dialect dialect_of(api_body body) {
    return body == BODY_RESPONSE                        ? CHAT_RESPONSES
           : body == BODY_MESSAGE || body == BODY_COUNT ? CHAT_MESSAGES
                                                        : CHAT_COMPLETIONS;
}

static bool read_turns(const api_request *r, chat_turns *turns, chat_fault *wrong) {
    const json_value *system =
        r->body == BODY_MESSAGE || r->body == BODY_COUNT ? api_field_of(r, "system") : NULL;
    if (r->instructions != NULL) {
        chat_turn turn = {.role = "system", .content = text_from(r->instructions)};
        if (!chat_turn_add(turns, turn, wrong))
            return false;
    }
    if (system != NULL && !chat_system_read(turns, system, wrong))
        return false;
    if (r->body == BODY_OLLAMA_GENERATE) {
        chat_turn turn = {.role = "user", .content = text_from(r->content)};
        return chat_turn_add(turns, turn, wrong);
    }
    return chat_turns_read(turns, dialect_of(r->body),
                           api_field_of(r, r->body == BODY_RESPONSE ? "input" : "messages"), wrong);
}

static bool keep_value(const json_value *value, api_request *r, avo_value **out, api_fault *fault) {
    bool limit_hit = false;
    if (value_copy(value, NULL, r->arena.limit_bytes, &limit_hit, out, NULL) == AVO_OK)
        return true;
    r->arena.limit_hit = r->arena.limit_hit || limit_hit;
    return fault_no_memory(fault);
}

/* What is kept of the prompt: everything else goes with the body. */
static bool keep_prompt(const chat_prompt *prompt, const chat_turns *turns, api_request *r,
                        api_fault *fault) {
    text_view last = turns->items[turns->count - 1].content;
    r->constraint = prompt->constraint;
    r->calls = prompt->calls;
    r->parallel_calls = prompt->parallel_calls;
    r->only_opener = prompt->only_opener;
    r->last_text = arena_copy_text(&r->arena, last.data, last.size);
    if (r->last_text == NULL)
        return fault_no_memory(fault);
    return keep_value(&prompt->variables, r, &r->chat.variables, fault) &&
           (!prompt->calls || keep_value(prompt->tools, r, &r->tools, fault));
}

static bool read_conversation(api *api, api_request *r, api_fault *fault) {
    size_t most = (size_t)api->context * API_ARGUMENTS_BYTES_EACH;
    chat_turns turns = {.arena = &r->parsed,
                        .arguments_left =
                            most > API_ARGUMENTS_BYTES_MIN ? most : API_ARGUMENTS_BYTES_MIN};
    chat_settings settings = {.dialect = dialect_of(r->body),
                              .tools = api_field_of(r, "tools"),
                              .tool_choice = api_field_of(r, "tool_choice"),
                              .variables = api_field_of(r, "chat_template_kwargs"),
                              .parallel_calls = r->parallel_calls,
                              .constraint = r->constraint};
    chat_prompt prompt;
    chat_fault wrong = {0};
    if (settings.variables == NULL && !dialect_think(r, &settings.variables, fault))
        return false;
    if (!read_turns(r, &turns, &wrong) ||
        !chat_prompt_read(api->format, &turns, &settings, &r->arena, &prompt, &wrong))
        return fault_from_chat(fault, &wrong);
    if (!keep_prompt(&prompt, &turns, r, fault))
        return false;
    r->chat.no_generation_prompt = !r->add_generation_prompt;
    avo_error error = {0};
    if (avo_chat_check(api->model, &error) == AVO_OK)
        return true;
    return fault_set(fault, 400, NULL, "no_chat_template",
                     "this model has no usable chat template: %s; use /v1/completions", error.text);
}

/* Anthropic's output_config, whose other members say how hard the model shall think. */
static bool read_output(const api_request *r, chat_constraint_source *source, api_fault *fault) {
    const json_value *config = api_field_of(r, "output_config");
    const json_value *format = api_field_of(r, "output_format");
    source->param = "output_format";
    source->format = format;
    if (config == NULL)
        return true;
    if (config->kind != JSON_OBJECT)
        return fault_set(fault, 400, "output_config", "invalid_type",
                         "output_config must be an object, found %s", json_kind_name(config->kind));
    static const char *const names[] = {"format", "effort"};
    chat_fault wrong = {0};
    if (!chat_keys_check(config, names, 2, &wrong))
        return fault_from_chat(fault, &wrong);
    const json_value *inner = json_find(config, "format");
    if (inner != NULL && inner->kind != JSON_NULL && format != NULL)
        return FAULT_FIELD(fault, "output_format",
                           "output_format cannot be combined with output_config.format");
    if (format != NULL)
        return true;
    source->param = "output_config.format";
    source->format = inner;
    return true;
}

static bool read_constraint(api_request *r, api_fault *fault) {
    const json_value *format = api_field_of(r, "response_format");
    const json_value *text = api_field_of(r, "text");
    chat_constraint_source source = {.param = "response_format",
                                     .grammar = r->grammar,
                                     .schema = api_field_of(r, "json_schema"),
                                     .object = r->json_object,
                                     .body = &r->root,
                                     .shape = api_field_of(r, "format")};
    chat_fault wrong = {0};
    if (text != NULL) {
        if (text->kind != JSON_OBJECT)
            return fault_set(fault, 400, "text", "invalid_type", "text must be an object");
        format = json_find(text, "format");
        source.param = "text.format";
    }
    source.format = format;
    if (r->body == BODY_MESSAGE && !read_output(r, &source, fault))
        return false;
    return chat_constraint_read(&source, &r->arena, &r->constraint, &wrong) ||
           fault_from_chat(fault, &wrong);
}

/* One text, with or without a gap behind it. */
static bool read_text(api *api, api_request *r, api_fault *fault) {
    if (r->input_suffix != NULL || r->body == BODY_INFILL)
        return infill_read(api, r, fault);
    const json_value text = {.kind = JSON_STRING, .string = text_from(r->content)};
    return prompts_read(api, &text, body_prompt(r), r, fault);
}

static bool read_prompt(api *api, api_request *r, api_fault *fault) {
    const char *name = body_prompt(r);
    const json_value *value = api_field_of(r, name);
    if ((r->body & BODY_VECTORS) != 0) {
        value = value == NULL ? api_field_of(r, "input") : value;
        return value != NULL ? prompts_read(api, value, name, r, fault)
                             : fault_set(fault, 400, name, "missing_required_parameter",
                                         "give one of content and input");
    }
    const json_value *messages = api_field_of(r, "messages");
    bool none = messages == NULL || (messages->kind == JSON_ARRAY && messages->array.count == 0);
    if (r->body == BODY_OLLAMA_GENERATE && r->content == NULL)
        r->content = "";
    if ((r->body == BODY_OLLAMA_CHAT && none) ||
        (r->body == BODY_OLLAMA_GENERATE && r->content[0] == '\0' && r->input_suffix == NULL)) {
        r->prompt_count = 0; /* ollama's way to load a model */
        return true;
    }
    if (!body_continues(api, r))
        return read_conversation(api, r, fault);
    if ((r->body & (BODY_COMPLETION | BODY_LLAMA)) == 0)
        return read_text(api, r, fault);
    if (r->input_suffix == NULL)
        return prompts_read(api, value, name, r, fault);
    return api_read_string(value, name, API_TEXT_BYTES_MAX, &r->arena, &r->content, fault) &&
           read_text(api, r, fault);
}

static bool read_pooling(const api *api, api_request *r, api_fault *fault) {
    const char *pooling = r->pooling == NULL ? "mean" : r->pooling;
    const char *encoding = r->encoding_format == NULL ? "float" : r->encoding_format;
    r->submit.no_answer = true;
    r->base64 = strcmp(encoding, "base64") == 0;
    if (!r->base64 && strcmp(encoding, "float") != 0)
        return FAULT_FIELD(fault, "encoding_format",
                           "encoding_format is \"%s\", must be float or base64", encoding);
    r->submit.pooling = strcmp(pooling, "last") == 0 ? AVO_POOLING_LAST : AVO_POOLING_MEAN;
    if (r->submit.pooling == AVO_POOLING_MEAN && strcmp(pooling, "mean") != 0)
        return FAULT_FIELD(fault, "pooling", "pooling is \"%s\", must be mean or last", pooling);
    return r->dimensions <= api->info.width ||
           FAULT_FIELD(fault, "dimensions", "dimensions is %u, the model has %u", r->dimensions,
                       api->info.width);
}

static bool check_answers(const api_request *r, api_fault *fault) {
    size_t answers = r->prompt_count * r->best_of;
    return answers <= API_ANSWERS_MAX ||
           FAULT_FIELD(fault, "n", "%zu prompts with %u answers each, must be at most %d answers",
                       r->prompt_count, r->best_of, API_ANSWERS_MAX);
}

static bool copy_json(const json_value *value, arena *arena, const char **out, api_fault *fault) {
    if (value == NULL)
        return true;
    buffer text;
    buffer_init(&text, NULL, API_TEXT_BYTES_MAX);
    bool good = json_write_value(&text, value) == AVO_OK;
    if (good)
        *out = arena_copy_text(arena, buffer_text(&text).data, text.size);
    buffer_free(&text);
    return (good && *out != NULL) || fault_no_memory(fault);
}

/* What /v1/responses says back. */
static bool read_said_back(api_request *r, api_fault *fault) {
    if (r->body != BODY_RESPONSE)
        return true;
    return copy_json(api_field_of(r, "tools"), &r->arena, &r->tools_json, fault) &&
           copy_json(api_field_of(r, "tool_choice"), &r->arena, &r->tool_choice_json, fault) &&
           copy_json(json_find(&r->root, "metadata"), &r->arena, &r->metadata_json, fault) &&
           copy_json(api_field_of(r, "text"), &r->arena, &r->format_json, fault);
}

static bool read_all(api *api, const server_key *key, api_request *r, api_fault *fault) {
    const json_value *length = api_field_of(r, "max_tokens");
    chat_fault wrong = {0};
    if (r->body == BODY_COMPLETION && length != NULL && r->submit.max_new_tokens == 0)
        r->submit.no_answer = true; /* which completions alone may ask for */
    if (!dialect_read(api, r, fault))
        return false;
    if (!chat_modalities_read(api_field_of(r, "modalities"), &wrong))
        return fault_from_chat(fault, &wrong);
    if (!adapters_read(api, key, r, fault) || !read_bias(api, r, fault) ||
        !read_logprobs(r, fault) || !read_reasoning(r, fault) || !read_stream(r, fault) ||
        !read_prompt_logprobs(r, fault) || !read_repetition(r, fault) ||
        !read_stop(r->body == BODY_MESSAGE ? "stop_sequences" : "stop", r, fault) ||
        !read_stop_tokens(api, r, fault) || !read_choices(api, r, fault) ||
        !read_service(key, r, fault) || !check_speculation(r, fault))
        return false;
    if ((r->body & BODY_VECTORS) != 0 && !read_pooling(api, r, fault))
        return false;
    bool good = read_constraint(r, fault) && read_prompt(api, r, fault) &&
                check_answers(r, fault) && read_said_back(r, fault);
    r->constraint.owner = r->submit.tenant;
    return good;
}

/* ---- Requests ---- */

bool api_sampling(const api *api, api_body body, avo_sampling *sampling) {
    avo_sampling otherwise = AVO_SAMPLING_INIT;
    otherwise.temperature = 1.0f;
    if (body & (BODY_LLAMA | BODY_INFILL | BODY_OLLAMA_CHAT | BODY_OLLAMA_GENERATE)) {
        bool ollama = (body & (BODY_OLLAMA_CHAT | BODY_OLLAMA_GENERATE)) != 0;
        otherwise.temperature = 0.8f;
        otherwise.top_k = 40;
        otherwise.top_p = ollama ? 0.9f : 0.95f;
        otherwise.min_p = ollama ? 0.0f : 0.05f;
    }
    return model_sampling(api->model, &otherwise, sampling);
}

static void set_defaults(api *api, const server_key *key, api_request *r) {
    r->submit = (avo_request)AVO_REQUEST_INIT;
    r->sampling = (avo_sampling)AVO_SAMPLING_INIT;
    r->chat = (avo_chat_options)AVO_CHAT_OPTIONS_INIT;
    (void)api_sampling(api, r->body, &r->sampling);
    r->sampling.seed = api_random(api) & 0xFFFFFFFFu;
    r->submit.max_new_tokens = r->body == BODY_COMPLETION ? 16 : 0;
    r->submit.priority = server_key_priority(key);
    r->submit.named_adapters = r->adapters;
    r->prompt_count = r->n = 1;
    r->prompt_tops = PROMPT_TOPS_NONE;
    r->parallel_calls = r->normalize = r->add_generation_prompt = true;
    r->stream = (r->body & (BODY_OLLAMA_CHAT | BODY_OLLAMA_GENERATE | BODY_OLLAMA_NAME)) != 0;
}

static void too_complex(const api_request *r, api_fault *fault) {
    (void)fault_set(fault, 413, NULL, "too_complex",
                    "the request needs more than %zu bytes to process", r->arena.limit_bytes);
}

/* What was read, or nothing and why. */
static bool give(api_request *r, bool good, api_request **out, api_fault *fault) {
    if (good) {
        *out = r;
        return true;
    }
    if (r->arena.limit_hit)
        too_complex(r, fault);
    api_request_free(r);
    *out = NULL;
    return false;
}

bool api_request_open(api *api, api_body body, const server_key *key, text_view text,
                      api_request **out, api_fault *fault) {
    *out = NULL;
    api_request *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return fault_no_memory(fault);
    r->body = body;
    arena_init(&r->arena, NULL, REQUEST_BYTES_FIXED + REQUEST_BYTES_EACH * text.size);
    set_defaults(api, key, r);
    bool good = api_parse_body(text, &r->parsed, &r->root, fault) && api_fields_read(r, fault);
    return give(r, good, out, fault);
}

bool api_request_talk(api *api, api_request *r, api_fault *fault) {
    if (read_conversation(api, r, fault))
        return true;
    if (r->arena.limit_hit)
        too_complex(r, fault);
    return false;
}

bool api_request_read(api *api, api_body body, const server_key *key, text_view text,
                      api_request **out, api_fault *fault) {
    api_request *r = NULL;
    *out = NULL;
    if (!api_request_open(api, body, key, text, &r, fault))
        return false;
    bool good = read_all(api, key, r, fault);
    arena_free(&r->parsed);
    return give(r, good, out, fault);
}

void api_request_free(api_request *r) {
    if (r == NULL)
        return;
    avo_value_close(r->chat.variables);
    avo_value_close(r->tools);
    arena_free(&r->parsed);
    arena_free(&r->arena);
    free(r);
}
