/* A line of `--prompts` as a request: what it says counts over the flags, and what it says wrongly
 * fails that line alone. */
#include "cli/run_int.h"

#include "base/json.h"

#include <string.h>

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
            return status_fail(error, AVO_ERROR_ARGUMENT, "unknown key \"%s\" in a prompt%s%s%s",
                               wanted, nearest.best != NULL ? "; did you mean \"" : "",
                               nearest.best != NULL ? nearest.best : "",
                               nearest.best != NULL ? "\"?" : "");
    }
    return AVO_OK;
}

/* ---- Texts ---- */

avo_status prompt_line_text(prompt_line *line, const json_value *value, const char *what,
                            const char **out) {
    if (value == NULL || value->kind != JSON_STRING)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT, "%s must be a string", what);
    if (memchr(value->string.data, 0, value->string.size) != NULL)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT, "%s contains a zero byte", what);
    *out = arena_copy_text(&line->arena, value->string.data, value->string.size);
    return *out == NULL ? status_no_memory(&line->error, what, value->string.size) : AVO_OK;
}

static avo_status optional_text(prompt_line *line, const json_value *root, const char *key,
                                const char **out) {
    const json_value *value = json_find(root, key);
    if (value == NULL || value->kind == JSON_NULL)
        return AVO_OK;
    return prompt_line_text(line, value, key, out);
}

static avo_status read_ids(prompt_line *line, const json_value *tokens, const char *key,
                           const int32_t **out, size_t *count) {
    if (tokens->kind != JSON_ARRAY)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT, "%s must be an array", key);
    int32_t *ids = arena_take_array(&line->arena, tokens->array.count + 1, sizeof(*ids));
    if (ids == NULL)
        return status_no_memory(&line->error, key, tokens->array.count * sizeof(*ids));
    for (size_t i = 0; i < tokens->array.count; i++) {
        const json_value *id = json_item(tokens, i);
        if (id->kind != JSON_INTEGER || id->integer < 0 || id->integer > INT32_MAX)
            return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                               "%s contains a value that is not a token id", key);
        ids[i] = (int32_t)id->integer;
    }
    *out = ids;
    *count = tokens->array.count;
    return AVO_OK;
}

static avo_status read_prompt(prompt_line *line, const json_value *root,
                              const prompt_defaults *defaults) {
    const json_value *messages = json_find(root, "messages");
    const json_value *prompt = json_find(root, "prompt");
    const json_value *tokens = json_find(root, "tokens");
    if ((messages != NULL) + (prompt != NULL) + (tokens != NULL) != 1)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "give one of \"prompt\", \"messages\" and \"tokens\"");
    if (tokens != NULL)
        return read_ids(line, tokens, "tokens", &line->request.tokens, &line->request.token_count);
    bool raw = !defaults->chat;
    const char *system = defaults->flags->system;
    AVO_TRY(json_get_boolean(root, "raw", &raw, &line->error));
    AVO_TRY(optional_text(line, root, "system", &system));
    if (messages != NULL)
        return prompt_line_chat(line, root, messages, NULL, NULL, defaults);
    const char *text = NULL;
    AVO_TRY(prompt_line_text(line, prompt, "prompt", &text));
    if (!raw)
        return prompt_line_chat(line, root, NULL, system, text, defaults);
    line->request.text = text;
    line->request.text_flags =
        AVO_TOKENIZE_BEGIN | (defaults->flags->special ? AVO_TOKENIZE_SPECIAL : 0u);
    return AVO_OK;
}

/* ---- Adapters ---- */

#define ADAPTER_FORM "\"name\" or {\"name\": …, \"weight\": …}"

/* What is no name must be an object with a name, and with nothing that would be passed over. */
static avo_status read_use(prompt_line *line, const json_value *value, text_view *name,
                           double *weight) {
    if (value->kind == JSON_ARRAY)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "adapter must be " ADAPTER_FORM
                           ", not an array; use \"adapters\" for several");
    if (value->kind != JSON_OBJECT)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "an adapter must be " ADAPTER_FORM ", not %s",
                           json_kind_name(value->kind));
    for (size_t i = 0; i < value->object.count; i++) {
        text_view key = value->object.members[i].key;
        if (!text_equal(key, TEXT_LITERAL("name")) && !text_equal(key, TEXT_LITERAL("weight")))
            return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                               "unknown key \"%.*s\" in an adapter, which must be " ADAPTER_FORM,
                               (int)(key.size < 64 ? key.size : 64), key.data);
    }
    if (json_find(value, "name") == NULL)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "an adapter has no \"name\"; it must be " ADAPTER_FORM);
    AVO_TRY(json_get_string(value, "name", name, &line->error));
    return json_get_number(value, "weight", -1e6, 1e6, weight, &line->error);
}

static avo_status add_adapter(prompt_line *line, const json_value *value,
                              const prompt_defaults *defaults) {
    double weight = 1.0;
    text_view name = {"", 0};
    if (value->kind == JSON_STRING)
        name = value->string;
    else
        AVO_TRY(read_use(line, value, &name, &weight));
    const run_adapter *found = run_adapters_find(defaults->adapters, name);
    if (found == NULL)
        return status_fail(&line->error, AVO_ERROR_NOT_FOUND,
                           "adapter \"%.*s\" was not given with --adapter", (int)name.size,
                           name.data);
    if (line->request.adapter_count == AVO_ADAPTERS_MAX)
        return status_fail(&line->error, AVO_ERROR_LIMIT, "more than %d adapters",
                           AVO_ADAPTERS_MAX);
    line->uses[line->request.adapter_count++] =
        (avo_adapter_use){found->adapter, found->scale * (float)weight};
    return AVO_OK;
}

static avo_status read_adapters(prompt_line *line, const json_value *root,
                                const prompt_defaults *defaults) {
    const json_value *one = json_find(root, "adapter"), *many = json_find(root, "adapters");
    line->request.adapters = line->uses;
    if (one != NULL && many != NULL)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "give \"adapter\" or \"adapters\", not both");
    if (one == NULL && many == NULL)
        return run_adapters_all(defaults->adapters, line->uses, &line->request.adapter_count,
                                &line->error);
    const json_value *given = one != NULL ? one : many;
    if (given->kind == JSON_NULL)
        return AVO_OK;
    if (one != NULL)
        return add_adapter(line, one, defaults);
    if (many->kind != JSON_ARRAY)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "adapters must be an array of " ADAPTER_FORM);
    for (size_t i = 0; i < many->array.count; i++)
        AVO_TRY(add_adapter(line, json_item(many, i), defaults));
    return AVO_OK;
}

/* ---- Sampling ---- */

static avo_status read_float(prompt_line *line, const json_value *root, const char *key,
                             float *value) {
    double number = (double)*value;
    AVO_TRY(json_get_number(root, key, -1e30, 1e30, &number, &line->error));
    *value = (float)number;
    return AVO_OK;
}

static avo_status read_u32(prompt_line *line, const json_value *root, const char *key,
                           uint32_t maximum, uint32_t *value) {
    int64_t number = *value;
    AVO_TRY(json_get_integer(root, key, 0, maximum, &number, &line->error));
    *value = (uint32_t)number;
    return AVO_OK;
}

static avo_status read_sampling(prompt_line *line, const json_value *root) {
    avo_sampling *sampling = &line->sampling;
    AVO_TRY(read_float(line, root, "temperature", &sampling->temperature));
    AVO_TRY(read_float(line, root, "top_p", &sampling->top_p));
    AVO_TRY(read_float(line, root, "min_p", &sampling->min_p));
    AVO_TRY(read_float(line, root, "typical_p", &sampling->typical_p));
    AVO_TRY(read_float(line, root, "repetition_penalty", &sampling->repetition_penalty));
    AVO_TRY(read_float(line, root, "presence_penalty", &sampling->presence_penalty));
    AVO_TRY(read_float(line, root, "frequency_penalty", &sampling->frequency_penalty));
    AVO_TRY(read_u32(line, root, "top_k", INT32_MAX, &sampling->top_k));
    AVO_TRY(read_u32(line, root, "logprobs", AVO_TOP_LOGPROBS_MAX, &sampling->top_logprobs));
    int64_t seed = (int64_t)sampling->seed;
    AVO_TRY(json_get_integer(root, "seed", 0, INT64_MAX, &seed, &line->error));
    sampling->seed = (uint64_t)seed;
    return AVO_OK;
}

static avo_status read_stops(prompt_line *line, const json_value *root) {
    const json_value *stop = json_find(root, "stop");
    if (stop != NULL && stop->kind != JSON_NULL) {
        size_t count = stop->kind == JSON_ARRAY ? stop->array.count : 1;
        const char **own = arena_take_array(&line->arena, count + 1, sizeof(*own));
        if (own == NULL)
            return status_no_memory(&line->error, "stop", count * sizeof(*own));
        for (size_t i = 0; i < count; i++)
            AVO_TRY(prompt_line_text(line, stop->kind == JSON_ARRAY ? json_item(stop, i) : stop,
                                     "stop", &own[i]));
        line->request.stop = own;
        line->request.stop_count = count;
    }
    const json_value *tokens = json_find(root, "stop_tokens");
    if (tokens == NULL || tokens->kind == JSON_NULL)
        return AVO_OK;
    return read_ids(line, tokens, "stop_tokens", &line->request.stop_tokens,
                    &line->request.stop_token_count);
}

static avo_status read_service(prompt_line *line, const json_value *root) {
    avo_request *request = &line->request;
    AVO_TRY(read_u32(line, root, "max_tokens", INT32_MAX, &request->max_new_tokens));
    AVO_TRY(read_u32(line, root, "max_new_tokens", INT32_MAX, &request->max_new_tokens));
    AVO_TRY(read_u32(line, root, "priority", 15, &request->priority));
    AVO_TRY(json_get_boolean(root, "ignore_eos", &request->ignore_end, &line->error));
    AVO_TRY(json_get_number(root, "deadline", 0, 1e9, &request->deadline, &line->error));
    AVO_TRY(json_get_number(root, "first_token_deadline", 0, 1e9, &request->first_token_deadline,
                            &line->error));
    AVO_TRY(optional_text(line, root, "tenant", &request->tenant));
    return optional_text(line, root, "cache_salt", &request->cache_salt);
}

/* What is wanted of the prompt itself. */
static avo_status read_scoring(prompt_line *line, const json_value *root) {
    avo_request *request = &line->request;
    const char *pooling = NULL;
    AVO_TRY(json_get_boolean(root, "prompt_logprobs", &request->prompt_logprobs, &line->error));
    AVO_TRY(json_get_boolean(root, "no_answer", &request->no_answer, &line->error));
    AVO_TRY(optional_text(line, root, "pooling", &pooling));
    if (pooling == NULL)
        return AVO_OK;
    if (strcmp(pooling, "mean") != 0 && strcmp(pooling, "last") != 0)
        return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                           "pooling is \"%.40s\", must be mean or last", pooling);
    request->pooling = pooling[0] == 'm' ? AVO_POOLING_MEAN : AVO_POOLING_LAST;
    request->no_answer = true; /* an embedding is of the prompt alone */
    return AVO_OK;
}

/* Whatever it is, it comes back as it was. */
static avo_status read_id(prompt_line *line, const json_value *root) {
    const json_value *id = json_find(root, "id");
    if (id == NULL)
        return AVO_OK;
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    avo_status status = json_write_value(&text, id);
    const char *copy =
        status == AVO_OK ? arena_copy_text(&line->arena, text.data, text.size) : NULL;
    line->id = (text_view){copy, copy == NULL ? 0 : text.size};
    buffer_free(&text);
    return copy == NULL ? status_no_memory(&line->error, "id", 0) : AVO_OK;
}

/* Keys of a conversation say nothing about a prompt that is none. */
static avo_status check_chat_keys(prompt_line *line, const json_value *root) {
    static const char *const keys[] = {"tools", "tool_choice", "parallel_tool_calls",
                                       "chat_template_kwargs"};
    for (size_t i = 0; line->request.chat == NULL && i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_find(root, keys[i]) != NULL)
            return status_fail(&line->error, AVO_ERROR_ARGUMENT,
                               "%s needs a prompt that goes through the chat template", keys[i]);
    return AVO_OK;
}

static avo_status read_line(prompt_line *line, text_view text, const prompt_defaults *defaults) {
    json_value root;
    avo_status status = json_parse(&line->arena, text, &root, &line->error);
    if (status != AVO_OK)
        return status;
    if (root.kind == JSON_OBJECT) /* first: whoever gave it finds the line's faults by it */
        AVO_TRY(read_id(line, &root));
    AVO_TRY(check_keys(&root, &line->error));
    AVO_TRY(prompt_line_constraint(line, &root));
    AVO_TRY(read_prompt(line, &root, defaults));
    AVO_TRY(check_chat_keys(line, &root));
    AVO_TRY(read_adapters(line, &root, defaults));
    AVO_TRY(read_sampling(line, &root));
    AVO_TRY(read_stops(line, &root));
    AVO_TRY(prompt_line_grammar(line, defaults));
    AVO_TRY(read_scoring(line, &root));
    return read_service(line, &root);
}

void prompt_line_read(prompt_line *line, text_view text, const prompt_defaults *defaults) {
    const avo_request *given = defaults->request;
    arena_init(&line->arena, NULL, SIZE_MAX);
    line->sampling = *given->sampling;
    line->request = (avo_request)AVO_REQUEST_INIT;
    line->request.sampling = &line->sampling;
    line->chat = (avo_chat_options)AVO_CHAT_OPTIONS_INIT;
    line->request.max_new_tokens = defaults->flags->max_new_tokens;
    line->request.ignore_end = defaults->flags->ignore_end;
    line->request.stop = given->stop;
    line->request.stop_count = given->stop_count;
    line->request.stop_tokens = given->stop_tokens;
    line->request.stop_token_count = given->stop_token_count;
    avo_status status = read_line(line, text, defaults);
    line->error.status = status;
}

void prompt_line_free(prompt_line *line) {
    avo_grammar_close(line->request.grammar);
    avo_value_close(line->chat.variables);
    arena_free(&line->arena);
}
