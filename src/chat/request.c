/* A request written as JSON, for the public interface: what the object says counts over the
 * defaults. `avocet run --prompts` and the Python package read their lines with it. */
#include "chat/chat_int.h"

#include "base/nearest.h"
#include "base/options.h"
#include "base/value.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    avo_chat *chat;
    avo_chat_request *out;
    avo_chat_request_options options;
    avo_request defaults;
    avo_error *error;
} reader;

/* NULL: absent, or null. */
static const json_value *given(const json_value *root, const char *key) {
    const json_value *value = json_find(root, key);
    return value == NULL || value->kind == JSON_NULL ? NULL : value;
}

static const char *const known_keys[] = {"id",
                                         "prompt",
                                         "messages",
                                         "tokens",
                                         "prompt_logprobs",
                                         "pooling",
                                         "no_answer",
                                         "system",
                                         "raw",
                                         "adapter",
                                         "adapters",
                                         "max_new_tokens",
                                         "max_tokens",
                                         "temperature",
                                         "top_k",
                                         "top_p",
                                         "min_p",
                                         "typical_p",
                                         "repetition_penalty",
                                         "presence_penalty",
                                         "frequency_penalty",
                                         "seed",
                                         "logprobs",
                                         "stop",
                                         "stop_tokens",
                                         "ignore_eos",
                                         "tenant",
                                         "priority",
                                         "deadline",
                                         "first_token_deadline",
                                         "cache_salt",
                                         "json_schema",
                                         "grammar",
                                         "json_object",
                                         "response_format",
                                         "tools",
                                         "tool_choice",
                                         "parallel_tool_calls",
                                         "chat_template_kwargs"};
#define KEYS (sizeof(known_keys) / sizeof(known_keys[0]))

static avo_status check_keys(const json_value *root, avo_error *error) {
    if (root->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_ARGUMENT, "expected a JSON object, found %s",
                           json_kind_name(root->kind));
    for (size_t i = 0; i < root->object.count; i++) {
        text_view key = root->object.members[i].key;
        bool known = false;
        nearest nearest = {.wanted = ""};
        char wanted[65];
        snprintf(wanted, sizeof(wanted), "%.*s", (int)(key.size < 64 ? key.size : 64), key.data);
        nearest.wanted = wanted;
        for (size_t n = 0; n < KEYS && !known; n++) {
            known = text_equal(key, text_from(known_keys[n]));
            nearest_consider(&nearest, known_keys[n]);
        }
        if (!known)
            return status_fail(error, AVO_ERROR_ARGUMENT, "unknown key \"%s\" in a request%s%s%s",
                               wanted, nearest.best != NULL ? "; did you mean \"" : "",
                               nearest.best != NULL ? nearest.best : "",
                               nearest.best != NULL ? "\"?" : "");
    }
    return AVO_OK;
}

/* ---- Texts ---- */

static avo_status read_text(reader *r, const json_value *value, const char *what,
                            const char **out) {
    if (value == NULL || value->kind != JSON_STRING)
        return status_fail(r->error, AVO_ERROR_ARGUMENT, "%s must be a string", what);
    if (memchr(value->string.data, 0, value->string.size) != NULL)
        return status_fail(r->error, AVO_ERROR_ARGUMENT, "%s contains a zero byte", what);
    *out = arena_copy_text(&r->out->arena, value->string.data, value->string.size);
    return *out == NULL ? status_no_memory(r->error, what, value->string.size) : AVO_OK;
}

static avo_status optional_text(reader *r, const json_value *root, const char *key,
                                const char **out) {
    const json_value *value = json_find(root, key);
    if (value == NULL || value->kind == JSON_NULL)
        return AVO_OK;
    return read_text(r, value, key, out);
}

static avo_status read_ids(reader *r, const json_value *tokens, const char *key,
                           const int32_t **out, size_t *count) {
    if (tokens->kind != JSON_ARRAY)
        return status_fail(r->error, AVO_ERROR_ARGUMENT, "%s must be an array", key);
    int32_t *ids = arena_take_array(&r->out->arena, tokens->array.count + 1, sizeof(*ids));
    if (ids == NULL)
        return status_no_memory(r->error, key, tokens->array.count * sizeof(*ids));
    for (size_t i = 0; i < tokens->array.count; i++) {
        const json_value *id = json_item(tokens, i);
        if (id->kind != JSON_INTEGER || id->integer < 0 || id->integer > INT32_MAX)
            return status_fail(r->error, AVO_ERROR_ARGUMENT,
                               "%s contains a value that is not a token id", key);
        ids[i] = (int32_t)id->integer;
    }
    *out = ids;
    *count = tokens->array.count;
    return AVO_OK;
}

/* ---- Constraints ---- */

static avo_status take(reader *r, avo_grammar_kind kind, const char *text, const char *param) {
    r->out->prompt.constraint = (chat_constraint){.kind = kind, .text = text, .param = param};
    return AVO_OK;
}

/* A schema that is written as a value. */
static avo_status copy_value(reader *r, const json_value *value, const char **copy) {
    buffer text;
    buffer_init(&text, r->chat->model->allocator, CHAT_TEXT_BYTES_MAX);
    if (json_write_value(&text, value) == AVO_OK)
        *copy = arena_copy_text(&r->out->arena, text.data, text.size);
    size_t bytes = text.size;
    buffer_free(&text);
    return *copy == NULL ? status_no_memory(r->error, "a grammar", bytes) : AVO_OK;
}

static avo_status read_constraint(reader *r, const json_value *root) {
    const json_value *schema = given(root, "json_schema"), *text = given(root, "grammar");
    const json_value *format = given(root, "response_format");
    bool object = false;
    AVO_TRY(json_get_boolean(root, "json_object", &object, r->error));
    if ((schema != NULL) + (text != NULL) + (format != NULL) + object > 1)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "give one of \"json_schema\", \"grammar\", \"json_object\" and "
                           "\"response_format\"");
    const char *copy = NULL;
    if (object)
        return take(r, AVO_GRAMMAR_JSON, NULL, "json_object");
    if (text != NULL) {
        AVO_TRY(read_text(r, text, "grammar", &copy));
        return take(r, AVO_GRAMMAR_GBNF, copy, "grammar");
    }
    if (schema != NULL) {
        AVO_TRY(schema->kind != JSON_STRING ? copy_value(r, schema, &copy)
                                            : read_text(r, schema, "json_schema", &copy));
        return take(r, AVO_GRAMMAR_JSON_SCHEMA, copy, "json_schema");
    }
    chat_fault fault = {0};
    return chat_constraint_read(format, "response_format", NULL, &r->out->arena,
                                &r->out->prompt.constraint, &fault)
               ? AVO_OK
               : status_fail(r->error, fault.status, "%s", fault.text);
}

/* ---- The prompt ---- */

static bool read_settings(reader *r, chat_turns *turns, const json_value *root, chat_fault *fault) {
    const json_value *parallel = given(root, "parallel_tool_calls");
    chat_settings settings = {.dialect = CHAT_COMPLETIONS,
                              .tools = given(root, "tools"),
                              .tool_choice = given(root, "tool_choice"),
                              .variables = given(root, "chat_template_kwargs"),
                              .parallel_calls = true,
                              .constraint = r->out->prompt.constraint};
    if (parallel != NULL && parallel->kind != JSON_BOOLEAN)
        return chat_fail_kind(fault, "parallel_tool_calls", "true or false", parallel);
    if (parallel != NULL)
        settings.parallel_calls = parallel->boolean;
    return chat_prompt_read(r->chat->format, turns, &settings, &r->out->arena, &r->out->prompt,
                            fault);
}

static bool add_turn(chat_turns *turns, const char *role, const char *text, chat_fault *fault) {
    chat_turn turn = {.role = role, .content = text_from(text)};
    return text == NULL || chat_turn_add(turns, turn, fault);
}

/* `messages`, or where that is NULL a system text (may be NULL) and what the user says. */
static avo_status read_chat(reader *r, const json_value *root, const json_value *messages,
                            const char *system, const char *user) {
    avo_chat_request *out = r->out;
    chat_fault fault = {0};
    chat_turns turns = {.arena = &out->arena, .arguments_left = SIZE_MAX, .any_role = true};
    bool good = messages != NULL ? chat_turns_read(&turns, CHAT_COMPLETIONS, messages, &fault)
                                 : add_turn(&turns, "system", system, &fault) &&
                                       add_turn(&turns, "user", user, &fault);
    if (!good || !read_settings(r, &turns, root, &fault))
        return status_fail(r->error, fault.status, "%s", fault.text);
    out->request.chat = &out->options;
    return value_copy(&out->prompt.variables, out->arena.allocator, SIZE_MAX, NULL,
                      &out->options.variables, r->error);
}

static avo_status read_prompt(reader *r, const json_value *root) {
    avo_request *request = &r->out->request;
    const json_value *messages = given(root, "messages"), *prompt = given(root, "prompt");
    const json_value *tokens = given(root, "tokens");
    if ((messages != NULL) + (prompt != NULL) + (tokens != NULL) != 1)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "give one of \"prompt\", \"messages\" and \"tokens\"");
    if (tokens != NULL)
        return read_ids(r, tokens, "tokens", &request->tokens, &request->token_count);
    bool raw = r->options.raw;
    const char *system = r->options.system;
    AVO_TRY(json_get_boolean(root, "raw", &raw, r->error));
    AVO_TRY(optional_text(r, root, "system", &system));
    if (messages != NULL)
        return read_chat(r, root, messages, NULL, NULL);
    const char *text = NULL;
    AVO_TRY(read_text(r, prompt, "prompt", &text));
    if (!raw)
        return read_chat(r, root, NULL, system, text);
    request->text = text;
    request->text_flags = AVO_TOKENIZE_BEGIN | r->defaults.text_flags;
    return AVO_OK;
}

/* Keys of a conversation have no meaning for a prompt that does not use the template. */
static avo_status check_chat_keys(reader *r, const json_value *root) {
    static const char *const keys[] = {"tools", "tool_choice", "parallel_tool_calls",
                                       "chat_template_kwargs"};
    for (size_t i = 0; r->out->request.chat == NULL && i < sizeof(keys) / sizeof(keys[0]); i++)
        if (given(root, keys[i]) != NULL)
            return status_fail(r->error, AVO_ERROR_ARGUMENT,
                               "%s needs a prompt that goes through the chat template", keys[i]);
    return AVO_OK;
}

/* ---- Adapters ---- */

#define ADAPTER_FORM "\"name\" or {\"name\": …, \"weight\": …}"

/* What is no name must be an object with a name, and with nothing that would be passed over. */
static avo_status read_use(reader *r, const json_value *value, text_view *name, double *weight) {
    if (value->kind == JSON_ARRAY)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "adapter must be " ADAPTER_FORM
                           ", not an array; use \"adapters\" for several");
    if (value->kind != JSON_OBJECT)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "an adapter must be " ADAPTER_FORM ", not %s",
                           json_kind_name(value->kind));
    for (size_t i = 0; i < value->object.count; i++) {
        text_view key = value->object.members[i].key;
        if (!text_equal(key, TEXT_LITERAL("name")) && !text_equal(key, TEXT_LITERAL("weight")))
            return status_fail(r->error, AVO_ERROR_ARGUMENT,
                               "unknown key \"%.*s\" in an adapter, which must be " ADAPTER_FORM,
                               (int)(key.size < 64 ? key.size : 64), key.data);
    }
    if (json_find(value, "name") == NULL)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "an adapter has no \"name\"; it must be " ADAPTER_FORM);
    AVO_TRY(json_get_string(value, "name", name, r->error));
    return json_get_number(value, "weight", -1e6, 1e6, weight, r->error);
}

static avo_status use_adapter(reader *r, const avo_chat_adapter *adapter, float weight) {
    if (r->out->request.adapter_count == AVO_ADAPTERS_MAX)
        return status_fail(r->error, AVO_ERROR_LIMIT,
                           "more than %d adapters; select at most that many with \"adapters\"",
                           AVO_ADAPTERS_MAX);
    r->out->uses[r->out->request.adapter_count++] =
        (avo_adapter_use){adapter->adapter, adapter->weight * weight};
    return AVO_OK;
}

static avo_status add_adapter(reader *r, const json_value *value) {
    double weight = 1.0;
    text_view name = {"", 0};
    if (value->kind == JSON_STRING)
        name = value->string;
    else
        AVO_TRY(read_use(r, value, &name, &weight));
    for (size_t i = 0; i < r->options.adapter_count; i++)
        if (text_is(name, r->options.adapters[i].name))
            return use_adapter(r, &r->options.adapters[i], (float)weight);
    return status_fail(r->error, AVO_ERROR_NOT_FOUND, "adapter \"%.*s\" is not loaded",
                       TEXT_ARGUMENT(name));
}

static avo_status read_adapters(reader *r, const json_value *root) {
    const json_value *one = json_find(root, "adapter"), *many = json_find(root, "adapters");
    r->out->request.adapters = r->out->uses;
    if (one != NULL && many != NULL)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "give \"adapter\" or \"adapters\", not both");
    for (size_t i = 0; one == NULL && many == NULL && i < r->options.adapter_count; i++)
        AVO_TRY(use_adapter(r, &r->options.adapters[i], 1.0f));
    if (one != NULL)
        return one->kind == JSON_NULL ? AVO_OK : add_adapter(r, one);
    if (many == NULL || many->kind == JSON_NULL)
        return AVO_OK;
    if (many->kind != JSON_ARRAY)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "adapters must be an array of " ADAPTER_FORM);
    for (size_t i = 0; i < many->array.count; i++)
        AVO_TRY(add_adapter(r, json_item(many, i)));
    return AVO_OK;
}

/* ---- Sampling ---- */

static avo_status read_float(reader *r, const json_value *root, const char *key, float *value) {
    double number = (double)*value;
    AVO_TRY(json_get_number(root, key, -1e30, 1e30, &number, r->error));
    *value = (float)number;
    return AVO_OK;
}

static avo_status read_u32(reader *r, const json_value *root, const char *key, uint32_t maximum,
                           uint32_t *value) {
    int64_t number = *value;
    AVO_TRY(json_get_integer(root, key, 0, maximum, &number, r->error));
    *value = (uint32_t)number;
    return AVO_OK;
}

static avo_status read_sampling(reader *r, const json_value *root) {
    avo_sampling *sampling = &r->out->sampling;
    AVO_TRY(read_float(r, root, "temperature", &sampling->temperature));
    AVO_TRY(read_float(r, root, "top_p", &sampling->top_p));
    AVO_TRY(read_float(r, root, "min_p", &sampling->min_p));
    AVO_TRY(read_float(r, root, "typical_p", &sampling->typical_p));
    AVO_TRY(read_float(r, root, "repetition_penalty", &sampling->repetition_penalty));
    AVO_TRY(read_float(r, root, "presence_penalty", &sampling->presence_penalty));
    AVO_TRY(read_float(r, root, "frequency_penalty", &sampling->frequency_penalty));
    AVO_TRY(read_u32(r, root, "top_k", INT32_MAX, &sampling->top_k));
    AVO_TRY(read_u32(r, root, "logprobs", AVO_TOP_LOGPROBS_MAX, &sampling->top_logprobs));
    int64_t seed = (int64_t)sampling->seed;
    AVO_TRY(json_get_integer(root, "seed", 0, INT64_MAX, &seed, r->error));
    sampling->seed = (uint64_t)seed;
    return AVO_OK;
}

static avo_status read_stops(reader *r, const json_value *root) {
    const json_value *stop = json_find(root, "stop");
    if (stop != NULL && stop->kind != JSON_NULL) {
        size_t count = stop->kind == JSON_ARRAY ? stop->array.count : 1;
        const char **own = arena_take_array(&r->out->arena, count + 1, sizeof(*own));
        if (own == NULL)
            return status_no_memory(r->error, "stop", count * sizeof(*own));
        for (size_t i = 0; i < count; i++)
            AVO_TRY(read_text(r, stop->kind == JSON_ARRAY ? json_item(stop, i) : stop, "stop",
                              &own[i]));
        r->out->request.stop = own;
        r->out->request.stop_count = count;
    }
    const json_value *tokens = json_find(root, "stop_tokens");
    if (tokens == NULL || tokens->kind == JSON_NULL)
        return AVO_OK;
    return read_ids(r, tokens, "stop_tokens", &r->out->request.stop_tokens,
                    &r->out->request.stop_token_count);
}

static avo_status read_service(reader *r, const json_value *root) {
    avo_request *request = &r->out->request;
    AVO_TRY(read_u32(r, root, "max_tokens", INT32_MAX, &request->max_new_tokens));
    AVO_TRY(read_u32(r, root, "max_new_tokens", INT32_MAX, &request->max_new_tokens));
    AVO_TRY(read_u32(r, root, "priority", 15, &request->priority));
    AVO_TRY(json_get_boolean(root, "ignore_eos", &request->ignore_end, r->error));
    AVO_TRY(json_get_number(root, "deadline", 0, 1e9, &request->deadline, r->error));
    AVO_TRY(json_get_number(root, "first_token_deadline", 0, 1e9, &request->first_token_deadline,
                            r->error));
    AVO_TRY(optional_text(r, root, "tenant", &request->tenant));
    return optional_text(r, root, "cache_salt", &request->cache_salt);
}

/* What is wanted of the prompt itself. */
static avo_status read_scoring(reader *r, const json_value *root) {
    avo_request *request = &r->out->request;
    const char *pooling = NULL;
    AVO_TRY(json_get_boolean(root, "prompt_logprobs", &request->prompt_logprobs, r->error));
    AVO_TRY(json_get_boolean(root, "no_answer", &request->no_answer, r->error));
    AVO_TRY(optional_text(r, root, "pooling", &pooling));
    if (pooling == NULL)
        return AVO_OK;
    if (strcmp(pooling, "mean") != 0 && strcmp(pooling, "last") != 0)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "pooling is \"%.40s\", must be mean or last", pooling);
    request->pooling = pooling[0] == 'm' ? AVO_POOLING_MEAN : AVO_POOLING_LAST;
    request->no_answer = true; /* an embedding is of the prompt alone */
    return AVO_OK;
}

/* ---- The whole ---- */

static avo_status read_all(reader *r, text_view json) {
    json_value root;
    avo_chat_request *out = r->out;
    AVO_TRY(json_parse(&out->arena, json, &root, r->error));
    AVO_TRY(check_keys(&root, r->error));
    AVO_TRY(read_constraint(r, &root));
    AVO_TRY(read_prompt(r, &root));
    AVO_TRY(check_chat_keys(r, &root));
    AVO_TRY(read_adapters(r, &root));
    AVO_TRY(read_sampling(r, &root));
    AVO_TRY(read_stops(r, &root));
    AVO_TRY(read_scoring(r, &root));
    AVO_TRY(read_service(r, &root));
    if (out->prompt.constraint.param != NULL)
        return chat_constraint_open(r->chat->grammars, &out->prompt.constraint,
                                    &out->request.grammar, r->error);
    out->request.grammar = avo_grammar_share(r->defaults.grammar);
    return AVO_OK;
}

static avo_status take_defaults(reader *r, const avo_chat_request_options *given) {
    avo_chat_request *out = r->out;
    r->options = (avo_chat_request_options)AVO_CHAT_REQUEST_OPTIONS_INIT;
    r->defaults = (avo_request)AVO_REQUEST_INIT;
    AVO_TRY(
        options_take(&r->options, sizeof(r->options), given, "avo_chat_request_options", r->error));
    AVO_TRY(options_take(&r->defaults, sizeof(r->defaults), r->options.defaults, "avo_request",
                         r->error));
    avo_model_sampling(r->chat->model, &out->sampling);
    if (r->defaults.sampling != NULL) {
        out->sampling = (avo_sampling)AVO_SAMPLING_INIT;
        AVO_TRY(options_take(&out->sampling, sizeof(out->sampling), r->defaults.sampling,
                             "avo_sampling", r->error));
    }
    out->request.sampling = &out->sampling;
    out->request.max_new_tokens = r->defaults.max_new_tokens;
    out->request.ignore_end = r->defaults.ignore_end;
    out->request.stop = r->defaults.stop;
    out->request.stop_count = r->defaults.stop_count;
    out->request.stop_tokens = r->defaults.stop_tokens;
    out->request.stop_token_count = r->defaults.stop_token_count;
    return AVO_OK;
}

avo_status avo_chat_request_open(avo_chat *chat, const char *json, size_t bytes,
                                 const avo_chat_request_options *options,
                                 avo_chat_request **request, avo_error *error) {
    *request = NULL;
    const avo_allocator *allocator = chat->model->allocator;
    avo_chat_request *out = allocator_take_array(allocator, 1, sizeof(*out));
    if (out == NULL)
        return status_no_memory(error, "a request", sizeof(*out));
    out->chat = chat;
    arena_init(&out->arena, allocator, SIZE_MAX);
    out->sampling = (avo_sampling)AVO_SAMPLING_INIT;
    out->request = (avo_request)AVO_REQUEST_INIT;
    out->options = (avo_chat_options)AVO_CHAT_OPTIONS_INIT;
    reader r = {.chat = chat, .out = out, .error = error};
    avo_status status = take_defaults(&r, options);
    if (status == AVO_OK)
        status = read_all(&r, (text_view){json, bytes});
    if (status != AVO_OK) {
        avo_chat_request_close(out);
        return status;
    }
    *request = out;
    return AVO_OK;
}

void avo_chat_request_close(avo_chat_request *request) {
    if (request == NULL)
        return;
    avo_grammar_close(request->request.grammar);
    avo_value_close(request->options.variables);
    arena_free(&request->arena);
    allocator_give(request->chat->model->allocator, request, sizeof(*request));
}

const avo_request *avo_chat_request_get(const avo_chat_request *request) {
    return &request->request;
}
