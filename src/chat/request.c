/* A request written as JSON, for the public interface: what the object says counts over the
 * defaults. `avocet run --prompts` and the Python package read their lines with it. */
#include "chat/chat_int.h"

#include "base/options.h"
#include "base/value.h"
#include "engine/request.h"
#include "sample/sample.h"
#include "spec/spec.h"

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
                                         "max_completion_tokens",
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
                                         "speculation",
                                         "draft_tokens",
                                         "json_schema",
                                         "grammar",
                                         "json_object",
                                         "response_format",
                                         "tools",
                                         "tool_choice",
                                         "parallel_tool_calls",
                                         "chat_template_kwargs"};
#define KEYS (sizeof(known_keys) / sizeof(known_keys[0]))

static avo_status failed(reader *r, const chat_fault *fault) {
    return status_fail(r->error, fault->status, "%s", fault->text);
}

static avo_status check_keys(reader *r, const json_value *root) {
    chat_fault fault = {0};
    if (root->kind != JSON_OBJECT)
        return status_fail(r->error, AVO_ERROR_ARGUMENT, "expected a JSON object, found %s",
                           json_kind_name(root->kind));
    return chat_keys_check(root, known_keys, KEYS, &fault) ? AVO_OK : failed(r, &fault);
}

/* ---- Texts ---- */

static avo_status read_text(reader *r, const json_value *value, const char *what, size_t maximum,
                            const char **out) {
    chat_fault fault = {0};
    text_view text;
    if (!chat_string_read(value, what, maximum, &text, &fault))
        return failed(r, &fault);
    *out = arena_copy_text(&r->out->arena, text.data, text.size);
    return *out == NULL ? status_no_memory(r->error, what, text.size) : AVO_OK;
}

static avo_status optional_text(reader *r, const json_value *root, const char *key, size_t maximum,
                                const char **out) {
    const json_value *value = given(root, key);
    return value == NULL ? AVO_OK : read_text(r, value, key, maximum, out);
}

static avo_status read_ids(reader *r, const json_value *tokens, const char *key, size_t maximum,
                           const int32_t **out, size_t *count) {
    chat_fault fault = {0};
    int32_t *ids = NULL;
    if (!chat_ids_read(tokens, key, r->chat->model->view.vocabulary, maximum, &r->out->arena, &ids,
                       count, &fault))
        return failed(r, &fault);
    *out = ids;
    return AVO_OK;
}

static avo_status optional_boolean(reader *r, const json_value *root, const char *key, bool *out) {
    chat_fault fault = {0};
    const json_value *value = given(root, key);
    return value == NULL || chat_boolean_read(value, key, out, &fault) ? AVO_OK : failed(r, &fault);
}

/* ---- Numbers ---- */

static avo_status read_number(reader *r, const json_value *root, const char *key, double minimum,
                              double maximum, double *out) {
    chat_fault fault = {0};
    const json_value *value = given(root, key);
    return value == NULL || chat_number_read(value, key, minimum, maximum, out, &fault)
               ? AVO_OK
               : failed(r, &fault);
}

static avo_status read_float(reader *r, const json_value *root, const char *key, double minimum,
                             double maximum, float *out) {
    double number = (double)*out;
    AVO_TRY(read_number(r, root, key, minimum, maximum, &number));
    *out = (float)number;
    return AVO_OK;
}

/* -1 is read as 0 where it is in the range. */
static avo_status read_u32(reader *r, const json_value *root, const char *key, int64_t minimum,
                           int64_t maximum, uint32_t *out) {
    chat_fault fault = {0};
    const json_value *value = given(root, key);
    int64_t number = 0;
    if (value == NULL)
        return AVO_OK;
    if (!chat_integer_read(value, key, minimum, maximum, &number, &fault))
        return failed(r, &fault);
    *out = number < 0 ? 0 : (uint32_t)number;
    return AVO_OK;
}

/* -1 leaves it as it is. */
static avo_status read_seed(reader *r, const json_value *root, uint64_t *out) {
    chat_fault fault = {0};
    const json_value *value = given(root, "seed");
    int64_t seed = -1;
    if (value != NULL && !chat_integer_read(value, "seed", INT64_MIN + 1, INT64_MAX, &seed, &fault))
        return failed(r, &fault);
    if (seed != -1)
        *out = (uint64_t)seed;
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
    AVO_TRY(optional_boolean(r, root, "json_object", &object));
    if ((schema != NULL) + (text != NULL) + (format != NULL) + object > 1)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "give one of \"json_schema\", \"grammar\", \"json_object\" and "
                           "\"response_format\"");
    const char *copy = NULL;
    if (object)
        return take(r, AVO_GRAMMAR_JSON, NULL, "json_object");
    if (text != NULL) {
        AVO_TRY(read_text(r, text, "grammar", CHAT_GRAMMAR_BYTES_MAX, &copy));
        return take(r, AVO_GRAMMAR_GBNF, copy, "grammar");
    }
    if (schema != NULL) {
        AVO_TRY(schema->kind != JSON_STRING
                    ? copy_value(r, schema, &copy)
                    : read_text(r, schema, "json_schema", CHAT_GRAMMAR_BYTES_MAX, &copy));
        return take(r, AVO_GRAMMAR_JSON_SCHEMA, copy, "json_schema");
    }
    chat_fault fault = {0};
    return chat_constraint_read(format, "response_format", NULL, &r->out->arena,
                                &r->out->prompt.constraint, &fault)
               ? AVO_OK
               : failed(r, &fault);
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
    if (parallel != NULL &&
        !chat_boolean_read(parallel, "parallel_tool_calls", &settings.parallel_calls, fault))
        return false;
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
    chat_turns turns = {.arena = &out->arena, .arguments_left = SIZE_MAX};
    bool good = messages != NULL ? chat_turns_read(&turns, CHAT_COMPLETIONS, messages, &fault)
                                 : add_turn(&turns, "system", system, &fault) &&
                                       add_turn(&turns, "user", user, &fault);
    if (!good || !read_settings(r, &turns, root, &fault))
        return failed(r, &fault);
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
        return read_ids(r, tokens, "tokens", SIZE_MAX, &request->tokens, &request->token_count);
    bool raw = r->options.raw;
    const char *system = r->options.system;
    AVO_TRY(optional_boolean(r, root, "raw", &raw));
    AVO_TRY(optional_text(r, root, "system", CHAT_TEXT_BYTES_MAX, &system));
    if (messages != NULL)
        return read_chat(r, root, messages, NULL, NULL);
    const char *text = NULL;
    AVO_TRY(read_text(r, prompt, "prompt", CHAT_TEXT_BYTES_MAX, &text));
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
        char shown[JSON_SHOWN_KEY_MAX];
        text_view key = value->object.members[i].key;
        if (!text_equal(key, TEXT_LITERAL("name")) && !text_equal(key, TEXT_LITERAL("weight")))
            return status_fail(r->error, AVO_ERROR_ARGUMENT,
                               "unknown key \"%s\" in an adapter, which must be " ADAPTER_FORM,
                               json_shown_key(key, shown));
    }
    if (json_find(value, "name") == NULL)
        return status_fail(r->error, AVO_ERROR_ARGUMENT,
                           "an adapter has no \"name\"; it must be " ADAPTER_FORM);
    AVO_TRY(json_get_string(value, "name", name, r->error));
    return read_number(r, value, "weight", CHAT_ADAPTER_WEIGHT, weight);
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

static avo_status read_sampling(reader *r, const json_value *root) {
    avo_sampling *sampling = &r->out->sampling;
    const struct {
        const char *key;
        double minimum, maximum;
        float *value;
    } numbers[] = {
        {"temperature", SAMPLING_TEMPERATURE, &sampling->temperature},
        {"top_p", SAMPLING_PROBABILITY, &sampling->top_p},
        {"min_p", SAMPLING_PROBABILITY, &sampling->min_p},
        {"typical_p", SAMPLING_TYPICAL, &sampling->typical_p},
        {"repetition_penalty", SAMPLING_REPETITION, &sampling->repetition_penalty},
        {"presence_penalty", SAMPLING_PENALTY, &sampling->presence_penalty},
        {"frequency_penalty", SAMPLING_PENALTY, &sampling->frequency_penalty},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        AVO_TRY(read_float(r, root, numbers[i].key, numbers[i].minimum, numbers[i].maximum,
                           numbers[i].value));
    AVO_TRY(read_u32(r, root, "top_k", -1, (int64_t)SAMPLING_TOP_K_MAX, &sampling->top_k));
    AVO_TRY(read_u32(r, root, "logprobs", 0, AVO_TOP_LOGPROBS_MAX, &sampling->top_logprobs));
    return read_seed(r, root, &sampling->seed);
}

static avo_status read_stops(reader *r, const json_value *root) {
    const json_value *stop = given(root, "stop"), *tokens = given(root, "stop_tokens");
    chat_fault fault = {0};
    const char **own = NULL;
    if (stop != NULL) {
        if (!chat_stops_read(stop, "stop", &r->out->arena, &own, &r->out->request.stop_count,
                             &fault))
            return failed(r, &fault);
        r->out->request.stop = own;
    }
    return tokens == NULL
               ? AVO_OK
               : read_ids(r, tokens, "stop_tokens", REQUEST_STOP_TOKENS_MAX,
                          &r->out->request.stop_tokens, &r->out->request.stop_token_count);
}

/* How long the answer may be. max_tokens is OpenAI's: 0 asks for no answer, which only prompts
 * without a conversation can. max_new_tokens is avo_request's: 0 is no limit. */
static avo_status read_length(reader *r, const json_value *root) {
    static const char *const keys[] = {"max_tokens", "max_completion_tokens"};
    avo_request *request = &r->out->request;
    int64_t minimum = request->chat == NULL ? 0 : 1;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        AVO_TRY(
            read_u32(r, root, keys[i], minimum, REQUEST_NEW_TOKENS_MAX, &request->max_new_tokens));
        if (given(root, keys[i]) != NULL && request->max_new_tokens == 0)
            request->no_answer = true;
    }
    return read_u32(r, root, "max_new_tokens", 0, REQUEST_NEW_TOKENS_MAX, &request->max_new_tokens);
}

static avo_status read_service(reader *r, const json_value *root) {
    avo_request *request = &r->out->request;
    AVO_TRY(read_length(r, root));
    AVO_TRY(read_u32(r, root, "priority", 0, REQUEST_PRIORITY_MAX, &request->priority));
    AVO_TRY(optional_boolean(r, root, "ignore_eos", &request->ignore_end));
    AVO_TRY(read_number(r, root, "deadline", 0, REQUEST_SECONDS_MAX, &request->deadline));
    AVO_TRY(read_number(r, root, "first_token_deadline", 0, REQUEST_SECONDS_MAX,
                        &request->first_token_deadline));
    AVO_TRY(optional_text(r, root, "tenant", CHAT_NAME_BYTES_MAX, &request->tenant));
    return optional_text(r, root, "cache_salt", CHAT_NAME_BYTES_MAX, &request->cache_salt);
}

static avo_status read_speculation(reader *r, const json_value *root) {
    avo_request *request = &r->out->request;
    draft_kinds kinds;
    AVO_TRY(optional_text(r, root, "speculation", CHAT_NAME_BYTES_MAX, &request->speculate));
    AVO_TRY(draft_kinds_read("speculation", request->speculate, &kinds, r->error));
    return read_u32(r, root, "draft_tokens", 1, DRAFTS_MAX, &request->draft_tokens);
}

/* What is wanted of the prompt itself. */
static avo_status read_scoring(reader *r, const json_value *root) {
    avo_request *request = &r->out->request;
    const char *pooling = NULL;
    AVO_TRY(optional_boolean(r, root, "prompt_logprobs", &request->prompt_logprobs));
    AVO_TRY(optional_boolean(r, root, "no_answer", &request->no_answer));
    AVO_TRY(optional_text(r, root, "pooling", CHAT_NAME_BYTES_MAX, &pooling));
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
    AVO_TRY(check_keys(r, &root));
    AVO_TRY(read_constraint(r, &root));
    AVO_TRY(read_prompt(r, &root));
    AVO_TRY(check_chat_keys(r, &root));
    AVO_TRY(read_adapters(r, &root));
    AVO_TRY(read_sampling(r, &root));
    AVO_TRY(read_stops(r, &root));
    AVO_TRY(read_scoring(r, &root));
    AVO_TRY(read_service(r, &root));
    AVO_TRY(read_speculation(r, &root));
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
    out->request.speculate = r->defaults.speculate;
    out->request.draft_tokens = r->defaults.draft_tokens;
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
