/* Prompts that are no conversations: texts and token ids, one or many. */
#include "server/api/api_int.h"

#include <stdio.h>

bool token_list_read(const api *api, const json_value *value, const char *param, arena *arena,
                     int32_t **tokens, size_t *count, api_fault *fault) {
    chat_fault wrong = {0};
    return chat_ids_read(value, param, api->info.vocabulary, SIZE_MAX, arena, tokens, count,
                         &wrong) ||
           fault_from_chat(fault, &wrong);
}

bool prompt_may_be_empty(const api *api) {
    size_t count = 0;
    (void)!avo_tokenize(api->model, "", 0, AVO_TOKENIZE_BEGIN, NULL, 0, &count, NULL);
    return count > 0;
}

/* Seen before anything is copied: both numbers are known here. */
static bool fits(const api *api, size_t tokens, const char *param, const api_request *r,
                 api_fault *fault) {
    size_t answer = r->submit.no_answer ? 0 : 1;
    if (tokens + answer <= api->context)
        return true;
    return fault_set(fault, 400, param, "context_length_exceeded",
                     "%s: the prompt has %zu tokens%s, the context holds %u", param, tokens,
                     answer > 0 ? " and the answer needs at least one" : "", api->context);
}

static bool read_one(const api *api, const json_value *value, const char *param, api_request *r,
                     api_prompt *prompt, api_fault *fault) {
    if (value->kind == JSON_STRING) {
        if (!api_read_string(value, param, API_TEXT_BYTES_MAX, &r->arena, &prompt->text, fault))
            return false;
        if (prompt->text[0] != '\0' || prompt_may_be_empty(api))
            return true;
        return FAULT_FIELD(fault, param, "%s: the text is empty and the model has no BOS token",
                           param);
    }
    if (value->kind != JSON_ARRAY)
        return fault_set(fault, 400, param, "invalid_type",
                         "%s must be a string or a list of token ids, found %s", param,
                         json_kind_name(value->kind));
    if (value->array.count == 0)
        return FAULT_FIELD(fault, param, "%s: the list of token ids is empty", param);
    if (!fits(api, value->array.count, param, r, fault))
        return false;
    return token_list_read(api, value, param, &r->arena, (int32_t **)&prompt->tokens,
                           &prompt->token_count, fault);
}

bool prompts_read(const api *api, const json_value *value, const char *param, api_request *r,
                  api_fault *fault) {
    bool ids =
        value->kind == JSON_ARRAY && value->array.count > 0 &&
        (value->array.items[0].kind == JSON_INTEGER || value->array.items[0].kind == JSON_NUMBER);
    bool list = value->kind == JSON_ARRAY && !ids;
    size_t count = list ? value->array.count : 1;
    if (count == 0)
        return FAULT_FIELD(fault, param, "%s: the list is empty", param);
    if (count > API_PROMPTS_MAX)
        return FAULT_FIELD(fault, param, "%s: %zu prompts, must be at most %d", param, count,
                           API_PROMPTS_MAX);
    r->prompts = arena_take_array(&r->arena, count, sizeof(*r->prompts));
    if (r->prompts == NULL)
        return fault_no_memory(fault);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof(name), list ? "%s[%zu]" : "%s", param, i);
        if (!read_one(api, list ? &value->array.items[i] : value, name, r, &r->prompts[i], fault))
            return false;
    }
    r->prompt_count = count;
    return true;
}
