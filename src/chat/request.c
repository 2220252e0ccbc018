/* A request written as JSON, for the public interface: what the object says counts over the
 * defaults. `avocet run --prompts` and the Python package read their lines with it. */
#include "chat/chat_int.h"

#include "base/options.h"
#include "base/value.h"
#include "chat/fields.h"

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

/* ---- Keys ---- */

#define SUBMIT(member)                              offsetof(avo_chat_request, request.member)
#define SAMPLING(member)                            offsetof(avo_chat_request, sampling.member)
#define OWN(member)                                 offsetof(avo_chat_request, member)
#define ROW(name, bodies, kind, range, place, text) {name, kind, range, place, text},
#define VALUE_ROW(name, bodies, kind, schema, text) {name, kind, FIELD_NO_RANGE, 0, text},
#define OWN_VALUE(name)                                                                            \
    { name, FIELD_VALUE, FIELD_NO_RANGE, 0, "" }
#define OWN_REFUSED(name, instead)                                                                 \
    { name, FIELD_REFUSED, FIELD_NO_RANGE, 0, instead }

static const chat_field fields[] = {
    CHAT_FIELDS(ROW, VALUE_ROW) /* */
    /* The prompt or the messages; over HTTP the endpoint reads them. */
    OWN_VALUE("messages"),
    OWN_VALUE("prompt"),
    OWN_VALUE("tokens"),
    {"system", FIELD_STRING, 0, CHAT_TEXT_BYTES_MAX, OWN(system), ""},
    {"raw", FIELD_BOOLEAN, FIELD_NO_RANGE, OWN(raw), ""},
    OWN_VALUE("max_tokens"), /* their least value depends on the prompt */
    OWN_VALUE("max_completion_tokens"),
    {"prompt_logprobs", FIELD_BOOLEAN, FIELD_NO_RANGE, SUBMIT(prompt_logprobs), ""},
    {"no_answer", FIELD_BOOLEAN, FIELD_NO_RANGE, SUBMIT(no_answer), ""},
    OWN_VALUE("pooling"),
    {"tenant", FIELD_STRING, 0, CHAT_NAME_BYTES_MAX, SUBMIT(tenant), ""},
    {"id", FIELD_IGNORED, FIELD_NO_RANGE, 0, ""},
    /* What only the server has. */
    OWN_REFUSED("suffix", "use /v1/completions or /infill of a server"),
    OWN_VALUE("n"),
    OWN_VALUE("best_of"),
    OWN_REFUSED("model", "the model is already open; select an adapter with adapter"),
    OWN_REFUSED("stream", "answers of run stream with --stream, of C and Python as events"),
    OWN_REFUSED("stream_options", "every answer has its usage"),
    OWN_REFUSED("reasoning_format", "the parser of the answer separates reasoning, or not"),
    OWN_REFUSED("echo", "use prompt_logprobs"),
    OWN_REFUSED("lora", "use adapters"),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static avo_status failed(reader *r, const chat_fault *fault) {
    return status_fail(r->error, fault->status, "%s", fault->text);
}

static avo_status check_keys(reader *r, const json_value *root) {
    chat_fault fault = {0};
    if (root->kind != JSON_OBJECT)
        return status_fail(r->error, AVO_ERROR_ARGUMENT, "expected a JSON object, found %s",
                           json_kind_name(root->kind));
    const char *names[FIELDS];
    for (size_t i = 0; i < FIELDS; i++)
        names[i] = fields[i].name;
    return chat_keys_check(root, names, FIELDS, &fault) ? AVO_OK : failed(r, &fault);
}

static avo_status read_fields(reader *r, const json_value *root) {
    chat_fault fault = {0};
    for (size_t i = 0; i < FIELDS; i++) {
        const json_value *value = given(root, fields[i].name);
        if (value != NULL && !chat_field_read(&fields[i], value, r->out, &r->out->arena, &fault))
            return failed(r, &fault);
    }
    return chat_modalities_read(given(root, "modalities"), &fault) ? AVO_OK : failed(r, &fault);
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

/* ---- Numbers ---- */

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

/* ---- Constraints ---- */

static avo_status read_constraint(reader *r, const json_value *root) {
    chat_fault fault = {0};
    chat_constraint_source source = {.format = given(root, "response_format"),
                                     .param = "response_format",
                                     .grammar = r->out->grammar,
                                     .schema = given(root, "json_schema"),
                                     .object = r->out->json_object,
                                     .body = root};
    return chat_constraint_read(&source, &r->out->arena, &r->out->prompt.constraint, &fault)
               ? AVO_OK
               : failed(r, &fault);
}

/* ---- The prompt ---- */

static bool read_settings(reader *r, chat_turns *turns, const json_value *root, chat_fault *fault) {
    chat_settings settings = {.dialect = CHAT_COMPLETIONS,
                              .tools = given(root, "tools"),
                              .tool_choice = given(root, "tool_choice"),
                              .variables = given(root, "chat_template_kwargs"),
                              .parallel_calls = r->out->parallel_calls,
                              .constraint = r->out->prompt.constraint};
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
    if (messages != NULL)
        return read_chat(r, root, messages, NULL, NULL);
    const char *text = NULL;
    AVO_TRY(read_text(r, prompt, "prompt", CHAT_TEXT_BYTES_MAX, &text));
    if (!r->out->raw)
        return read_chat(r, root, NULL, r->out->system, text);
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
    chat_fault fault = {0};
    if (!chat_adapter_read(value, &name, &weight, &fault))
        return failed(r, &fault);
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
        return status_fail(r->error, AVO_ERROR_ARGUMENT, "adapters must be an array, found %s",
                           json_kind_name(many->kind));
    for (size_t i = 0; i < many->array.count; i++)
        AVO_TRY(add_adapter(r, json_item(many, i)));
    return AVO_OK;
}

/* ---- Sampling ---- */

/* Log-probabilities of drawn tokens come with those of the alternatives: `true` asks for one. */
static avo_status read_sampling(reader *r, const json_value *root) {
    avo_sampling *sampling = &r->out->sampling;
    const json_value *bias = given(root, "logit_bias"), *logprobs = given(root, "logprobs");
    chat_fault fault = {0};
    bool wanted = false;
    if (bias != NULL &&
        !chat_bias_read(bias, r->chat->model->view.vocabulary, &r->out->arena, sampling, &fault))
        return failed(r, &fault);
    if (logprobs == NULL && given(root, "top_logprobs") == NULL)
        return AVO_OK; /* the defaults' own count stays */
    if (!chat_logprobs_read(logprobs, &wanted, sampling, &fault))
        return failed(r, &fault);
    if (wanted && logprobs->kind == JSON_BOOLEAN && sampling->top_logprobs == 0)
        sampling->top_logprobs = 1;
    return AVO_OK;
}

/* Before the fields are read over it. */
static avo_status choose_sampling(reader *r, const json_value *root) {
    static const char *const names[] = {"temperature", "top_k", "top_p", "min_p", "typical_p"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (given(root, names[i]) != NULL)
            return AVO_OK;
    return r->options.unnamed_sampling == NULL
               ? AVO_OK
               : options_take(&r->out->sampling, sizeof(r->out->sampling),
                              r->options.unnamed_sampling, "avo_sampling", r->error);
}

static avo_status read_stops(reader *r, const json_value *root) {
    static const char *const names[] = {"stop_tokens", "stop_token_ids"};
    const json_value *stop = given(root, "stop"), *loops = given(root, "repetition_detection");
    avo_request *request = &r->out->request;
    chat_fault fault = {0};
    const char **own = NULL;
    if (loops != NULL && !chat_repetition_read(loops, &request->repetition, &fault))
        return failed(r, &fault);
    if (stop != NULL) {
        if (!chat_stops_read(stop, "stop", &r->out->arena, &own, &request->stop_count, &fault))
            return failed(r, &fault);
        request->stop = own;
    }
    for (size_t i = 0; i < 2; i++) { /* the second counts where both are given */
        const json_value *tokens = given(root, names[i]);
        if (tokens != NULL)
            AVO_TRY(read_ids(r, tokens, names[i], REQUEST_STOP_TOKENS_MAX, &request->stop_tokens,
                             &request->stop_token_count));
    }
    return AVO_OK;
}

/* One request has one answer. */
static avo_status read_counts(reader *r, const json_value *root) {
    static const char *const keys[] = {"n", "best_of"};
    for (size_t i = 0; i < 2; i++) {
        uint32_t count = 1;
        AVO_TRY(read_u32(r, root, keys[i], 1, CHAT_CHOICES_MAX, &count));
        if (count != 1)
            return status_fail(r->error, AVO_ERROR_ARGUMENT,
                               "%s is %u, must be 1 here: ask once for each answer, with another "
                               "seed",
                               keys[i], count);
    }
    return AVO_OK;
}

/* How long the answer may be. max_tokens is OpenAI's: 0 asks for no answer, which only prompts
 * without a conversation can. max_new_tokens, which was read before, is avo_request's: 0 is no
 * limit. */
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
    return AVO_OK;
}

static avo_status read_speculation(reader *r) {
    draft_kinds kinds;
    return draft_kinds_read("speculation", r->out->request.speculate, &kinds, r->error);
}

/* What is wanted of the prompt itself. */
static avo_status read_scoring(reader *r, const json_value *root) {
    avo_request *request = &r->out->request;
    const char *pooling = NULL;
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
    AVO_TRY(choose_sampling(r, &root));
    AVO_TRY(read_fields(r, &root));
    AVO_TRY(read_constraint(r, &root));
    AVO_TRY(read_prompt(r, &root));
    AVO_TRY(check_chat_keys(r, &root));
    AVO_TRY(read_adapters(r, &root));
    AVO_TRY(read_sampling(r, &root));
    AVO_TRY(read_stops(r, &root));
    AVO_TRY(read_scoring(r, &root));
    AVO_TRY(read_length(r, &root));
    AVO_TRY(read_counts(r, &root));
    AVO_TRY(read_speculation(r));
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
    out->parallel_calls = true;
    out->raw = r->options.raw;
    out->system = r->options.system;
    out->request.sampling = &out->sampling;
    out->request.max_new_tokens = r->defaults.max_new_tokens;
    out->request.ignore_end = r->defaults.ignore_end;
    out->request.min_new_tokens = r->defaults.min_new_tokens;
    out->request.repetition = r->defaults.repetition;
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
