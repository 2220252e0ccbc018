/* llama.cpp's and ollama's bodies: what they say in words of their own, in those of the one request
 * that everything else reads. */
#include "server/api/api_int.h"

#include "engine/request.h"

#include <stdio.h>

#define LLAMA_BODIES  (BODY_LLAMA | BODY_INFILL)
#define OLLAMA_BODIES (BODY_OLLAMA_CHAT | BODY_OLLAMA_GENERATE)

bool body_continues(const api *api, const api_request *r) {
    if (r->body == BODY_OLLAMA_GENERATE) /* as ollama, where the model has no template */
        return r->raw || r->input_suffix != NULL || avo_chat_check(api->model, NULL) != AVO_OK;
    return r->body == BODY_COMPLETION || (r->body & LLAMA_BODIES) != 0;
}

const char *body_prompt(const api_request *r) {
    switch (r->body) {
    case BODY_COMPLETION:
    case BODY_LLAMA:
    case BODY_OLLAMA_GENERATE:
    case BODY_OLLAMA_VECTOR:
        return "prompt";
    case BODY_INFILL:
        return "input_prefix";
    case BODY_LLAMA_EMBEDDING:
        return "content";
    case BODY_RESPONSE:
    case BODY_EMBEDDING:
    case BODY_OLLAMA_EMBED:
        return "input";
    default:
        return "messages";
    }
}

/* ---- How much ---- */

/* A negative number is no limit, 0 asks for the prompt alone. */
static bool read_length(api_request *r, api_fault *fault) {
    const char *name = (r->body & LLAMA_BODIES) != 0 ? "n_predict" : "num_predict";
    const json_value *value = api_field_of(r, name);
    int64_t count = 0;
    if (value == NULL)
        return true;
    if (!api_read_integer(value, name, -2, REQUEST_NEW_TOKENS_MAX, &count, fault))
        return false;
    r->submit.max_new_tokens = count < 0 ? 0 : (uint32_t)count;
    r->submit.no_answer = count == 0;
    return true;
}

/* ---- Drawing ---- */

/* How far back penalties look cannot be chosen: without penalties it is the same. */
static bool read_window(const api_request *r, api_fault *fault) {
    const json_value *value = api_field_of(r, "repeat_last_n");
    const avo_sampling *sampling = &r->sampling;
    int64_t window = -1;
    if (value != NULL &&
        !api_read_integer(value, "repeat_last_n", -1, REQUEST_NEW_TOKENS_MAX, &window, fault))
        return false;
    bool off = sampling->repetition_penalty == 1.0f && sampling->presence_penalty == 0.0f &&
               sampling->frequency_penalty == 0.0f;
    return window == -1 || off ||
           fault_set(fault, 400, "repeat_last_n", "unsupported_parameter",
                     "repeat_last_n is %lld, must be -1 with penalties: they look at the whole "
                     "prompt and answer",
                     (long long)window);
}

/* llama.cpp also takes a list, [[id, bias], …], where false forbids the token. */
static bool read_bias_list(const api *api, api_request *r, api_fault *fault) {
    const json_value *list = api_field_of(r, "logit_bias");
    if (list == NULL || list->kind != JSON_ARRAY)
        return true;
    size_t count = list->array.count;
    json_member *members = arena_take_array(&r->parsed, count + 1, sizeof(*members));
    if (members == NULL)
        return fault_no_memory(fault);
    for (size_t i = 0; i < count; i++) {
        const json_value *id = json_item(&list->array.items[i], 0);
        const json_value *bias = json_item(&list->array.items[i], 1);
        if (id == NULL || id->kind != JSON_INTEGER || bias == NULL || id->integer < 0)
            return FAULT_FIELD(fault, "logit_bias",
                               "logit_bias[%zu] must be a token id and a number, or false", i);
        char name[24];
        snprintf(name, sizeof(name), "%lld", (long long)id->integer);
        const char *key = arena_copy_text(&r->parsed, name, strlen(name));
        if (key == NULL)
            return fault_no_memory(fault);
        members[i] = (json_member){text_from(key), *bias};
        if (bias->kind == JSON_BOOLEAN && !bias->boolean)
            members[i].value = (json_value){.kind = JSON_INTEGER, .integer = -1000};
    }
    const json_value object = {.kind = JSON_OBJECT, .object = {.members = members, .count = count}};
    chat_fault wrong = {0};
    return chat_bias_read(&object, api->info.vocabulary, &r->arena, &r->sampling, &wrong) ||
           fault_from_chat(fault, &wrong);
}

/* ---- Embeddings ---- */

static bool read_norm(api_request *r, api_fault *fault) {
    const json_value *value = api_field_of(r, "embd_normalize");
    int64_t norm = 2;
    if (r->body == BODY_OLLAMA_VECTOR)
        r->normalize = false;
    if (value == NULL)
        return true;
    if (!api_read_integer(value, "embd_normalize", -1, INT32_MAX, &norm, fault))
        return false;
    r->normalize = norm == 2;
    return norm == 2 || norm == -1 ||
           fault_set(fault, 400, "embd_normalize", "unsupported_parameter",
                     "embd_normalize is %lld, must be 2 or -1", (long long)norm);
}

/* ---- ollama ---- */

/* "NAME:latest" is NAME, unless there is an adapter of that name. */
static bool read_name(const api *api, api_request *r, api_fault *fault) {
    static const char latest[] = ":latest";
    size_t size = r->model == NULL ? 0 : strlen(r->model), tag = sizeof(latest) - 1;
    if (size <= tag || strcmp(r->model + size - tag, latest) != 0 ||
        adapter_is_known(api, r->model))
        return true;
    r->model = arena_copy_text(&r->arena, r->model, size - tag);
    return r->model != NULL || fault_no_memory(fault);
}

bool dialect_think(api_request *r, const json_value **out, api_fault *fault) {
    const json_value *think = api_field_of(r, "think");
    *out = NULL;
    if (think == NULL)
        return true;
    if (think->kind != JSON_BOOLEAN && think->kind != JSON_STRING)
        return fault_set(fault, 400, "think", "invalid_type",
                         "think must be true, false or a level, found %s",
                         json_kind_name(think->kind));
    bool on = think->kind == JSON_STRING || think->boolean;
    json_value *object = arena_take(&r->parsed, sizeof(*object));
    json_member *members = arena_take_array(&r->parsed, 2, sizeof(*members));
    if (object == NULL || members == NULL)
        return fault_no_memory(fault);
    members[0] =
        (json_member){TEXT_LITERAL("enable_thinking"), {.kind = JSON_BOOLEAN, .boolean = on}};
    members[1] = (json_member){TEXT_LITERAL("reasoning_effort"), *think};
    *object =
        (json_value){.kind = JSON_OBJECT,
                     .object = {.members = members, .count = think->kind == JSON_STRING ? 2 : 1}};
    *out = object;
    return true;
}

bool dialect_read(const api *api, api_request *r, api_fault *fault) {
    r->text_flags = AVO_TOKENIZE_BEGIN;
    const uint32_t tagged =
        BODY_OLLAMA_EMBED | BODY_OLLAMA_VECTOR | BODY_OLLAMA_NAME | OLLAMA_BODIES;
    if (((uint32_t)r->body & tagged) != 0 && !read_name(api, r, fault))
        return false;
    if ((r->body & (BODY_LLAMA_EMBEDDING | BODY_OLLAMA_VECTOR)) != 0)
        return read_norm(r, fault);
    if ((r->body & (LLAMA_BODIES | OLLAMA_BODIES)) == 0)
        return true;
    r->text_flags |= AVO_TOKENIZE_SPECIAL; /* both read special tokens in texts to be continued */
    r->logprobs = (r->body & LLAMA_BODIES) != 0 && r->sampling.top_logprobs > 0;
    return read_length(r, fault) && read_window(r, fault) && read_bias_list(api, r, fault);
}
