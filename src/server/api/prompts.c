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

/* llama.cpp's prompts may be lists of ids and texts in turn. */
static bool takes_mixed(const api_request *r) {
    return (r->body & (BODY_LLAMA | BODY_LLAMA_EMBEDDING)) != 0;
}

static bool is_mixed(const json_value *list) {
    bool text = false, number = false;
    for (size_t i = 0; i < list->array.count; i++) {
        text = text || list->array.items[i].kind == JSON_STRING;
        number = number || list->array.items[i].kind == JSON_INTEGER;
    }
    return text && number;
}

static bool add_part(const api *api, const json_value *part, const char *param, uint32_t flags,
                     id_list *ids, api_fault *fault) {
    avo_error error = {0};
    int64_t id = 0;
    avo_status status;
    if (part->kind == JSON_STRING)
        status = model_encode_text(api->model, NULL, part->string, flags, ids, &error);
    else if (!api_read_integer(part, param, 0, (int64_t)api->info.vocabulary - 1, &id, fault))
        return false;
    else
        status = id_list_append(ids, (int32_t)id);
    if (status != AVO_OK && error.status == AVO_OK)
        return fault_no_memory(fault);
    if (status != AVO_OK)
        fault_from_error(fault, &error, param);
    return status == AVO_OK;
}

static bool read_mixed(const api *api, const json_value *list, const char *param, api_request *r,
                       api_prompt *prompt, api_fault *fault) {
    id_list ids;
    id_list_init(&ids, NULL);
    bool good = true;
    for (size_t i = 0; good && i < list->array.count; i++)
        good = add_part(api, &list->array.items[i], param,
                        i == 0 ? r->text_flags : r->text_flags & ~(uint32_t)AVO_TOKENIZE_BEGIN,
                        &ids, fault);
    good = good && fits(api, ids.count, param, r, fault);
    int32_t *copy = good ? arena_take_array(&r->arena, ids.count + 1, sizeof(*copy)) : NULL;
    if (good && copy == NULL)
        good = fault_no_memory(fault);
    if (good) {
        memcpy(copy, ids.ids, ids.count * sizeof(*copy));
        *prompt = (api_prompt){.tokens = copy, .token_count = ids.count};
    }
    id_list_free(&ids);
    return good;
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
    if (takes_mixed(r) && is_mixed(value))
        return read_mixed(api, value, param, r, prompt, fault);
    if (!fits(api, value->array.count, param, r, fault))
        return false;
    return token_list_read(api, value, param, &r->arena, (int32_t **)&prompt->tokens,
                           &prompt->token_count, fault);
}

bool prompts_read(const api *api, const json_value *value, const char *param, api_request *r,
                  api_fault *fault) {
    bool ids = value->kind == JSON_ARRAY && value->array.count > 0 &&
               (value->array.items[0].kind == JSON_INTEGER ||
                value->array.items[0].kind == JSON_NUMBER || (takes_mixed(r) && is_mixed(value)));
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
