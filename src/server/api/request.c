/* A body becomes a request: what all families of endpoints have in common. */
#include "server/api/api_int.h"

#include "base/value.h"
#include "server/keys.h"

#include <math.h>
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
        return fault_set(fault, 400, NULL, "invalid_json", "the body is empty; expected JSON");
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

api_body api_body_of(api_family family) {
    static const api_body bodies[] = {BODY_CHAT, BODY_COMPLETION, BODY_RESPONSE, BODY_MESSAGE,
                                      BODY_EMBEDDING};
    return bodies[family];
}

/* ---- Sampling ---- */

static void choose(double given, float *value) {
    if (!isnan(given))
        *value = (float)given;
}

static bool read_bias(const api *api, const json_value *value, generation *g, api_fault *fault) {
    if (value->kind != JSON_OBJECT)
        return fault_set(fault, 400, "logit_bias", "invalid_type",
                         "logit_bias: expected an object, found %s", json_kind_name(value->kind));
    size_t count = value->object.count;
    if (count > API_BIAS_MAX)
        return FAULT_FIELD(fault, "logit_bias", "logit_bias: %zu tokens; at most %d are allowed",
                           count, API_BIAS_MAX);
    avo_logit_bias *bias = arena_take_array(&g->arena, count + 1, sizeof(*bias));
    if (bias == NULL)
        return fault_no_memory(fault);
    for (size_t i = 0; i < count; i++) {
        const json_member *member = &value->object.members[i];
        uint64_t token = 0;
        bool number = member->key.size > 0 && member->key.size <= 10;
        for (size_t c = 0; number && c < member->key.size; c++) {
            number = member->key.data[c] >= '0' && member->key.data[c] <= '9';
            token = token * 10 + (uint64_t)(member->key.data[c] - '0');
        }
        if (!number || token >= api->info.vocabulary)
            return FAULT_FIELD(fault, "logit_bias",
                               "logit_bias: \"%.*s\" is no token id; the model's go from 0 to %u",
                               TEXT_ARGUMENT(member->key), api->info.vocabulary - 1);
        double added = 0.0;
        if (!api_read_number(&member->value, "logit_bias", -1e9, 1e9, &added, fault))
            return false;
        bias[i] =
            (avo_logit_bias){(int32_t)token, added <= API_BIAS_FORBIDS ? -INFINITY : (float)added};
    }
    g->sampling.bias = bias;
    g->sampling.bias_count = count;
    return true;
}

static bool read_sampling(api *api, const api_values *values, generation *g, api_fault *fault) {
    avo_sampling *sampling = &g->sampling;
    *sampling = (avo_sampling)AVO_SAMPLING_INIT;
    avo_model_sampling(api->model, sampling);
    choose(values->temperature, &sampling->temperature);
    choose(values->top_p, &sampling->top_p);
    choose(values->min_p, &sampling->min_p);
    choose(values->typical_p, &sampling->typical_p);
    choose(values->repetition_penalty, &sampling->repetition_penalty);
    choose(values->presence_penalty, &sampling->presence_penalty);
    choose(values->frequency_penalty, &sampling->frequency_penalty);
    if (values->top_k != FIELD_NOT_GIVEN)
        sampling->top_k = values->top_k < 0 ? 0 : (uint32_t)values->top_k;
    bool chance = values->seed == FIELD_NOT_GIVEN || values->seed == -1;
    sampling->seed = chance ? api_random(api) & 0xFFFFFFFFu : (uint64_t)values->seed;
    return values->logit_bias == NULL || read_bias(api, values->logit_bias, g, fault);
}

/* ---- What is told ---- */

static bool read_chat_logprobs(const api_values *values, generation *g, api_fault *fault) {
    const json_value *logprobs = values->logprobs;
    if (logprobs != NULL && logprobs->kind != JSON_BOOLEAN)
        return fault_set(fault, 400, "logprobs", "invalid_type",
                         "logprobs: expected true or false, found %s",
                         json_kind_name(logprobs->kind));
    g->logprobs = logprobs != NULL && logprobs->boolean;
    if (values->top_logprobs == FIELD_NOT_GIVEN)
        return true;
    if (!g->logprobs && values->top_logprobs > 0)
        return FAULT_FIELD(fault, "top_logprobs", "top_logprobs needs logprobs: true");
    g->sampling.top_logprobs = (uint32_t)values->top_logprobs;
    return true;
}

static bool read_response_logprobs(const api_values *values, generation *g, api_fault *fault) {
    if (values->top_logprobs != FIELD_NOT_GIVEN)
        g->sampling.top_logprobs = (uint32_t)values->top_logprobs;
    if (values->include == NULL)
        return true;
    if (values->include->kind != JSON_ARRAY)
        return fault_set(fault, 400, "include", "invalid_type", "include: expected an array");
    for (size_t i = 0; i < values->include->array.count; i++) {
        const json_value *item = &values->include->array.items[i];
        if (item->kind == JSON_STRING && text_is(item->string, "message.output_text.logprobs"))
            g->logprobs = true;
    }
    return true;
}

static bool read_logprobs(const api_values *values, generation *g, api_fault *fault) {
    if (g->family == FAMILY_CHAT)
        return read_chat_logprobs(values, g, fault);
    if (g->family == FAMILY_RESPONSE)
        return read_response_logprobs(values, g, fault);
    if (g->family != FAMILY_COMPLETION || values->logprobs == NULL)
        return true;
    if (values->logprobs->kind == JSON_BOOLEAN) { /* some clients mix both endpoints up */
        g->logprobs = values->logprobs->boolean;
        return true;
    }
    int64_t count = 0;
    if (!api_read_integer(values->logprobs, "logprobs", 0, AVO_TOP_LOGPROBS_MAX, &count, fault))
        return false;
    g->logprobs = true;
    g->sampling.top_logprobs = (uint32_t)count;
    return true;
}

static bool read_stream(const api_values *values, generation *g, api_fault *fault) {
    g->stream = values->stream;
    const json_value *options = values->stream_options;
    if (options == NULL)
        return true;
    if (options->kind != JSON_OBJECT)
        return fault_set(fault, 400, "stream_options", "invalid_type",
                         "stream_options: expected an object, found %s",
                         json_kind_name(options->kind));
    const json_value *usage = json_find(options, "include_usage");
    if (usage != NULL && usage->kind != JSON_BOOLEAN && usage->kind != JSON_NULL)
        return fault_set(fault, 400, "stream_options.include_usage", "invalid_type",
                         "stream_options.include_usage: expected true or false");
    g->include_usage = usage != NULL && usage->kind == JSON_BOOLEAN && usage->boolean;
    return true;
}

/* ---- Where it ends ---- */

static bool add_stop(const json_value *value, const char *param, generation *g, api_fault *fault) {
    const char *text = NULL;
    if (!api_read_string(value, param, API_STOP_BYTES_MAX, &g->arena, &text, fault))
        return false;
    if (text[0] != '\0') /* an empty one would end every answer; some clients send it */
        g->stop[g->stop_count++] = text;
    return true;
}

static bool read_stop(const json_value *stop, const char *param, generation *g, api_fault *fault) {
    if (stop == NULL)
        return true;
    bool list = stop->kind == JSON_ARRAY;
    size_t count = list ? stop->array.count : 1;
    if (count > API_STOPS_MAX)
        return FAULT_FIELD(fault, param, "%s: %zu texts; at most %d are allowed", param, count,
                           API_STOPS_MAX);
    g->stop = arena_take_array(&g->arena, count + 1, sizeof(*g->stop));
    if (g->stop == NULL)
        return fault_no_memory(fault);
    for (size_t i = 0; i < count; i++)
        if (!add_stop(list ? &stop->array.items[i] : stop, param, g, fault))
            return false;
    return true;
}

static bool read_stop_tokens(const api *api, const json_value *value, generation *g,
                             api_fault *fault) {
    if (value == NULL)
        return true;
    if (!token_list_read(api, value, "stop_token_ids", &g->arena, &g->stop_tokens,
                         &g->stop_token_count, fault))
        return false;
    if (g->stop_token_count <= API_STOP_TOKENS_MAX)
        return true;
    return FAULT_FIELD(fault, "stop_token_ids",
                       "stop_token_ids: %zu tokens; at most %d are allowed", g->stop_token_count,
                       API_STOP_TOKENS_MAX);
}

static void read_length(const api_values *values, generation *g) {
    int64_t wanted = values->max_tokens;
    if (g->family == FAMILY_CHAT && values->max_completion_tokens != FIELD_NOT_GIVEN)
        wanted = values->max_completion_tokens;
    if (g->family == FAMILY_RESPONSE)
        wanted = values->max_output_tokens;
    if (wanted == FIELD_NOT_GIVEN)
        wanted = g->family == FAMILY_COMPLETION ? 16 : 0;
    else if (wanted == 0) /* which completions alone may say */
        g->no_answer = true;
    g->max_tokens = (uint32_t)wanted;
}

/* ---- How many ---- */

static bool read_choices(const api *api, const api_values *values, generation *g,
                         api_fault *fault) {
    uint32_t most = api->options->choices_max;
    if (most == 0 || most > API_CHOICES_MAX)
        most = API_CHOICES_MAX;
    g->n = values->n == FIELD_NOT_GIVEN ? 1 : (uint32_t)values->n;
    g->best_of = values->best_of == FIELD_NOT_GIVEN ? g->n : (uint32_t)values->best_of;
    if (g->n > most)
        return FAULT_FIELD(fault, "n", "n: %u; this server gives %u answers at most", g->n, most);
    if (g->best_of > most)
        return FAULT_FIELD(fault, "best_of", "best_of: %u; this server computes %u answers at most",
                           g->best_of, most);
    if (g->best_of < g->n)
        return FAULT_FIELD(fault, "best_of", "best_of: %u is less than n, %u", g->best_of, g->n);
    if (g->best_of > g->n && g->stream)
        return FAULT_FIELD(fault, "best_of",
                           "best_of: the best is known at the end, not in a "
                           "stream");
    return true;
}

/* ---- Service ---- */

/* Prefix caches tell by their speed what others asked: keys do not share theirs. */
static bool read_service(const api_values *values, const server_key *key, generation *g,
                         api_fault *fault) {
    g->deadline = values->deadline_ms * 1e-3;
    g->first_token_deadline = values->first_token_deadline_ms * 1e-3;
    uint32_t best = server_key_priority(key);
    g->priority = values->priority == FIELD_NOT_GIVEN ? best : (uint32_t)values->priority;
    if (g->priority < best && key != NULL)
        g->priority = best;
    const char *name = server_key_name(key);
    g->tenant = arena_copy_text(&g->arena, name, strlen(name));
    const char *salt = values->cache_salt == NULL ? "" : values->cache_salt;
    if (g->tenant == NULL)
        return fault_no_memory(fault);
    if (name[0] == '\0' && salt[0] == '\0')
        return true;
    size_t bytes = strlen(name) + strlen(salt) + 2;
    char *both = arena_take(&g->arena, bytes);
    if (both == NULL)
        return fault_no_memory(fault);
    size_t at = strlen(name);
    memcpy(both, name, at);
    both[at] = '\n'; /* which names of keys cannot hold */
    memcpy(both + at + 1, salt, strlen(salt));
    g->cache_salt = both;
    return true;
}

/* ---- Conversations and prompts ---- */

static bool read_modalities(const api_values *values, api_fault *fault) {
    const json_value *list = values->include; /* of chat: modalities */
    for (size_t i = 0; list != NULL && list->kind == JSON_ARRAY && i < list->array.count; i++)
        if (list->array.items[i].kind != JSON_STRING ||
            !text_is(list->array.items[i].string, "text"))
            return fault_set(fault, 400, "modalities", "unsupported_parameter",
                             "modalities: answers are text; audio and images are not supported");
    return true;
}

static chat_dialect dialect_of(api_family family) {
    return family == FAMILY_CHAT       ? CHAT_COMPLETIONS
           : family == FAMILY_RESPONSE ? CHAT_RESPONSES
                                       : CHAT_MESSAGES;
}

static bool read_turns(const api_values *values, chat_turns *turns, generation *g,
                       chat_fault *wrong) {
    if (values->instructions != NULL) {
        g->instructions =
            arena_copy_text(&g->arena, values->instructions, strlen(values->instructions));
        if (g->instructions == NULL)
            return chat_fail_memory(wrong);
        chat_turn turn = {.role = "system", .content = text_from(values->instructions)};
        if (!chat_turn_add(turns, turn, wrong))
            return false;
    }
    if (values->system != NULL && !chat_system_read(turns, values->system, wrong))
        return false;
    return chat_turns_read(turns, dialect_of(g->family),
                           g->family == FAMILY_RESPONSE ? values->input : values->messages, wrong);
}

static bool keep_value(const json_value *value, generation *g, avo_value **out, api_fault *fault) {
    bool limit_hit = false;
    if (value_copy(value, NULL, g->arena.limit_bytes, &limit_hit, out, NULL) == AVO_OK)
        return true;
    g->arena.limit_hit = g->arena.limit_hit || limit_hit;
    return fault_no_memory(fault);
}

/* What is kept of the prompt: everything else goes with the body. */
static bool keep_prompt(const chat_prompt *prompt, const chat_turns *turns, generation *g,
                        api_fault *fault) {
    text_view last = turns->items[turns->count - 1].content;
    g->constraint = prompt->constraint;
    g->calls = prompt->calls;
    g->parallel_calls = prompt->parallel_calls;
    g->only_opener = prompt->only_opener;
    g->last_text = arena_copy_text(&g->arena, last.data, last.size);
    if (g->last_text == NULL)
        return fault_no_memory(fault);
    return keep_value(&prompt->variables, g, &g->variables, fault) &&
           (!prompt->calls || keep_value(prompt->tools, g, &g->tools, fault));
}

static bool read_conversation(api *api, const api_values *values, generation *g, arena *scratch,
                              api_fault *fault) {
    size_t most = (size_t)api->context * API_ARGUMENTS_BYTES_EACH;
    chat_turns turns = {.arena = scratch,
                        .arguments_left =
                            most > API_ARGUMENTS_BYTES_MIN ? most : API_ARGUMENTS_BYTES_MIN};
    chat_settings settings = {.dialect = dialect_of(g->family),
                              .tools = values->tools,
                              .tool_choice = values->tool_choice,
                              .variables = values->kwargs,
                              .parallel_calls = g->parallel_calls,
                              .constraint = g->constraint};
    chat_prompt prompt;
    chat_fault wrong = {0};
    if (g->family == FAMILY_CHAT && !read_modalities(values, fault))
        return false;
    if (!read_turns(values, &turns, g, &wrong) ||
        !chat_prompt_read(api->format, &turns, &settings, &g->arena, &prompt, &wrong))
        return fault_from_chat(fault, &wrong);
    if (!keep_prompt(&prompt, &turns, g, fault))
        return false;
    avo_error error = {0};
    if (avo_chat_check(api->model, &error) == AVO_OK)
        return true;
    return fault_set(fault, 400, NULL, "no_chat_template",
                     "this model cannot chat: %s; use /v1/completions", error.text);
}

static bool read_constraint(const api_values *values, generation *g, api_fault *fault) {
    const json_value *format = values->response_format;
    const char *param = "response_format";
    chat_fault wrong = {0};
    if (values->text != NULL) {
        if (values->text->kind != JSON_OBJECT)
            return fault_set(fault, 400, "text", "invalid_type", "text: expected an object");
        format = json_find(values->text, "format");
        param = "text.format";
    }
    return chat_constraint_read(format, param, values->grammar, &g->arena, &g->constraint,
                                &wrong) ||
           fault_from_chat(fault, &wrong);
}

static bool read_prompt(api *api, const api_values *values, generation *g, arena *scratch,
                        api_fault *fault) {
    switch (g->family) {
    case FAMILY_COMPLETION:
        return prompts_read(api, values->prompt, "prompt", g, fault);
    case FAMILY_EMBEDDING:
        return prompts_read(api, values->input, "input", g, fault);
    default:
        g->prompt_count = 1;
        return read_conversation(api, values, g, scratch, fault);
    }
}

static bool read_pooling(const api *api, const api_values *values, generation *g,
                         api_fault *fault) {
    const char *pooling = values->pooling == NULL ? "mean" : values->pooling;
    const char *encoding = values->encoding_format == NULL ? "float" : values->encoding_format;
    g->no_answer = true;
    g->normalize = values->normalize;
    g->base64 = strcmp(encoding, "base64") == 0;
    if (!g->base64 && strcmp(encoding, "float") != 0)
        return FAULT_FIELD(fault, "encoding_format",
                           "encoding_format: \"%s\" is neither float nor base64", encoding);
    g->pooling = strcmp(pooling, "last") == 0 ? AVO_POOLING_LAST : AVO_POOLING_MEAN;
    if (g->pooling == AVO_POOLING_MEAN && strcmp(pooling, "mean") != 0)
        return FAULT_FIELD(fault, "pooling", "pooling: \"%s\" is neither mean nor last", pooling);
    if (values->dimensions == FIELD_NOT_GIVEN)
        return true;
    if (values->dimensions > api->info.width)
        return FAULT_FIELD(fault, "dimensions", "dimensions: %lld; the model has %u",
                           (long long)values->dimensions, api->info.width);
    g->dimensions = (uint32_t)values->dimensions;
    return true;
}

static bool check_answers(const generation *g, api_fault *fault) {
    size_t answers = g->prompt_count * g->best_of;
    return answers <= API_ANSWERS_MAX ||
           FAULT_FIELD(fault, "n", "%zu prompts with %u answers each; %d answers at most",
                       g->prompt_count, g->best_of, API_ANSWERS_MAX);
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
static bool read_said_back(const json_value *root, const api_values *values, generation *g,
                           api_fault *fault) {
    if (g->family != FAMILY_RESPONSE)
        return true;
    const json_value *metadata = json_find(root, "metadata");
    return copy_json(values->tools, &g->arena, &g->tools_json, fault) &&
           copy_json(values->tool_choice, &g->arena, &g->tool_choice_json, fault) &&
           copy_json(metadata, &g->arena, &g->metadata_json, fault) &&
           copy_json(values->text, &g->arena, &g->format_json, fault);
}

static bool read_all(api *api, const server_key *key, const json_value *root, arena *scratch,
                     generation *g, api_fault *fault) {
    api_values values;
    if (!api_values_read(root, api_body_of(g->family), scratch, &values, fault))
        return false;
    g->echo = values.echo;
    g->ignore_eos = values.ignore_eos;
    g->parallel_calls = values.parallel_tool_calls;
    read_length(&values, g);
    bool stops = g->family == FAMILY_MESSAGE;
    if (!adapters_read(api, &values, key, g, fault) || !read_sampling(api, &values, g, fault) ||
        !read_logprobs(&values, g, fault) || !read_stream(&values, g, fault) ||
        !read_stop(stops ? values.stop_sequences : values.stop, stops ? "stop_sequences" : "stop",
                   g, fault) ||
        !read_stop_tokens(api, values.stop_token_ids, g, fault) ||
        !read_choices(api, &values, g, fault) || !read_service(&values, key, g, fault))
        return false;
    if (g->family == FAMILY_EMBEDDING && !read_pooling(api, &values, g, fault))
        return false;
    return read_constraint(&values, g, fault) && read_prompt(api, &values, g, scratch, fault) &&
           check_answers(g, fault) && read_said_back(root, &values, g, fault);
}

static generation *generation_open(api_family family, size_t body_bytes) {
    generation *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return NULL;
    g->family = family;
    arena_init(&g->arena, NULL, REQUEST_BYTES_FIXED + REQUEST_BYTES_EACH * body_bytes);
    return g;
}

/* What was read, or nothing and why. */
static bool give(generation *g, bool good, generation **out, api_fault *fault) {
    if (good) {
        *out = g;
        return true;
    }
    if (g->arena.limit_hit)
        (void)fault_set(fault, 413, NULL, "too_complex",
                        "the request needs more than %zu bytes, which is too much for its size",
                        g->arena.limit_bytes);
    generation_free(g);
    return false;
}

bool conversation_read(api *api, api_family family, const api_values *values, size_t body_bytes,
                       arena *scratch, generation **out, api_fault *fault) {
    *out = NULL;
    generation *g = generation_open(family, body_bytes);
    if (g == NULL)
        return fault_no_memory(fault);
    g->prompt_count = 1;
    return give(g, read_conversation(api, values, g, scratch, fault), out, fault);
}

bool generation_read(api *api, api_family family, const server_key *key, text_view body,
                     generation **out, api_fault *fault) {
    *out = NULL;
    generation *g = generation_open(family, body.size);
    if (g == NULL)
        return fault_no_memory(fault);
    arena scratch;
    json_value root = {0};
    bool good = api_parse_body(body, &scratch, &root, fault) &&
                read_all(api, key, &root, &scratch, g, fault);
    arena_free(&scratch);
    return give(g, good, out, fault);
}

void generation_free(generation *g) {
    if (g == NULL)
        return;
    avo_value_close(g->variables);
    avo_value_close(g->tools);
    arena_free(&g->arena);
    free(g);
}
