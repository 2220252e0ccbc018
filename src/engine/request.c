/* Requests: the checks and the encoding that every interface shares. */
#include "engine/request.h"

#include "base/options.h"
#include "base/value.h"
#include "engine/drafting.h"
#include "sample/grammar.h"
#include "sample/sample.h"

avo_status request_take(const avo_request *given, const avo_sampling *shared, avo_request *request,
                        avo_sampling *sampling, avo_error *error) {
    *request = (avo_request)AVO_REQUEST_INIT;
    *sampling = (avo_sampling)AVO_SAMPLING_INIT;
    AVO_TRY(options_take(request, sizeof(*request), given, "avo_request", error));
    const avo_sampling *chosen = request->sampling != NULL ? request->sampling : shared;
    return options_take(sampling, sizeof(*sampling), chosen, "avo_sampling", error);
}

avo_status request_chat(const avo_request *request, avo_chat_options *chat, avo_error *error) {
    *chat = (avo_chat_options)AVO_CHAT_OPTIONS_INIT;
    return options_take(chat, sizeof(*chat), request->chat, "avo_chat_options", error);
}

bool request_chat_has_messages(const avo_chat_options *chat) {
    return chat->variables != NULL && json_find(value_tree(chat->variables), "messages") != NULL;
}

const char *request_role_find(text_view role) {
    static const char *const roles[][2] = {{"system", "system"},
                                           {"developer", "system"},
                                           {"user", "user"},
                                           {"assistant", "assistant"},
                                           {"tool", "tool"}};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (text_is(role, roles[i][0]))
            return roles[i][1];
    return NULL;
}

static avo_status check_role(size_t index, text_view role, avo_error *error) {
    if (request_role_find(role) != NULL)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "messages[%zu]: role is \"%.*s\", must be " REQUEST_ROLES, index,
                       (int)(role.size < 64 ? role.size : 64), role.data);
}

/* Of the messages in the array and in the template's variables. Variables whose messages have
 * another form are the template's own. */
static avo_status check_roles(const avo_request *request, const avo_chat_options *chat,
                              avo_error *error) {
    for (size_t i = 0; i < request->message_count; i++)
        AVO_TRY(check_role(i, text_from(request->messages[i].role), error));
    const json_value *messages =
        chat->variables == NULL ? NULL : json_find(value_tree(chat->variables), "messages");
    for (size_t i = 0; json_item(messages, i) != NULL; i++) {
        const json_value *role = json_find(json_item(messages, i), "role");
        if (role != NULL && role->kind == JSON_STRING)
            AVO_TRY(check_role(i, role->string, error));
    }
    return AVO_OK;
}

static avo_status check_repetition(const avo_repetition *repetition, avo_error *error) {
    if (repetition->pattern_max == 0)
        return AVO_OK;
    if (repetition->pattern_max > AVO_REPETITION_PATTERN_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "repetition: pattern_max is %u, must be at "
                           "most %d",
                           repetition->pattern_max, AVO_REPETITION_PATTERN_MAX);
    if (repetition->pattern_min > repetition->pattern_max)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "repetition: pattern_min is %u, must be at most pattern_max (%u)",
                           repetition->pattern_min, repetition->pattern_max);
    if (repetition->count_min < 2)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "repetition: count_min is %u, must be at least 2",
                           repetition->count_min);
    return AVO_OK;
}

static avo_status check_limits(const avo_request *request, avo_error *error) {
    if (request->max_new_tokens > REQUEST_NEW_TOKENS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "max_new_tokens is %u, must be at most %d",
                           request->max_new_tokens, REQUEST_NEW_TOKENS_MAX);
    if (request->stop_token_count > REQUEST_STOP_TOKENS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%zu stop tokens, must be at most %d",
                           request->stop_token_count, REQUEST_STOP_TOKENS_MAX);
    if (request->min_new_tokens > REQUEST_NEW_TOKENS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "min_new_tokens is %u, must be at most %d",
                           request->min_new_tokens, REQUEST_NEW_TOKENS_MAX);
    if (request->max_new_tokens > 0 && request->min_new_tokens > request->max_new_tokens)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "min_new_tokens is %u, must be at most max_new_tokens (%u)",
                           request->min_new_tokens, request->max_new_tokens);
    return check_repetition(&request->repetition, error);
}

static avo_status check_arrays(const avo_request *request, const avo_sampling *sampling,
                               avo_error *error) {
    const struct {
        const char *name;
        const void *items;
        size_t count;
    } arrays[] = {{"tokens", request->tokens, request->token_count},
                  {"messages", request->messages, request->message_count},
                  {"adapters", request->adapters, request->adapter_count},
                  {"named_adapters", request->named_adapters, request->named_adapter_count},
                  {"stop", request->stop, request->stop_count},
                  {"stop_tokens", request->stop_tokens, request->stop_token_count},
                  {"bias", sampling->bias, sampling->bias_count}};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        if (arrays[i].items == NULL && arrays[i].count > 0)
            return status_fail(error, AVO_ERROR_ARGUMENT, "%s is NULL, but its count is %zu",
                               arrays[i].name, arrays[i].count);
    for (size_t i = 0; i < request->stop_count; i++)
        if (request->stop[i] == NULL)
            return status_fail(error, AVO_ERROR_ARGUMENT, "stop string %zu is NULL", i + 1);
    for (size_t i = 0; i < request->message_count; i++)
        if (request->messages[i].role == NULL || request->messages[i].content == NULL)
            return status_fail(error, AVO_ERROR_ARGUMENT, "message %zu has no role or no content",
                               i + 1);
    return AVO_OK;
}

avo_status request_check(const avo_request *request, const avo_sampling *sampling,
                         const avo_model *model, bool *has_prompt, avo_error *error) {
    if (request->grammar != NULL && request->open_grammar != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "give grammar or open_grammar, not both");
    if (request->grammar != NULL)
        AVO_TRY(grammar_check(request->grammar, model, error));
    AVO_TRY(check_limits(request, error));
    AVO_TRY(check_arrays(request, sampling, error));
    AVO_TRY(drafting_check(request, error));
    avo_chat_options chat;
    AVO_TRY(request_chat(request, &chat, error));
    AVO_TRY(check_roles(request, &chat, error));
    int kinds = (request->token_count > 0) +
                (request->message_count > 0 || request_chat_has_messages(&chat)) +
                (request->text != NULL);
    if (kinds > 1)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "give one of tokens, messages and text as the prompt");
    *has_prompt = kinds == 1;
    return sampler_check(sampling, model->view.vocabulary, error);
}

avo_status request_check_alone(const avo_request *request, avo_error *error) {
    const avo_request unset = AVO_REQUEST_INIT;
    static const char session[] = "give it to the session", scheduler[] = "use a scheduler";
    const struct {
        const char *name;
        bool set;
        const char *instead;
    } fields[] = {{"adapters", request->adapter_count > 0, session},
                  {"named_adapters", request->named_adapter_count > 0, session},
                  {"cache_salt", request->cache_salt != NULL, session},
                  {"tenant", request->tenant != NULL, scheduler},
                  {"tenant_weight", request->tenant_weight != unset.tenant_weight, scheduler},
                  {"tenant_kv_tokens", request->tenant_kv_tokens > 0, scheduler},
                  {"priority", request->priority != unset.priority, scheduler},
                  {"first_token_deadline", request->first_token_deadline != 0.0, scheduler},
                  {"deadline", request->deadline != 0.0, scheduler},
                  {"prompt_logprobs", request->prompt_logprobs, scheduler},
                  {"prompt_logprobs_from", request->prompt_logprobs_from > 0, scheduler},
                  {"no_answer", request->no_answer, scheduler},
                  {"pooling", request->pooling != AVO_POOLING_NONE, scheduler},
                  {"open_grammar", request->open_grammar != NULL, "give it an open grammar"}};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].set)
            return status_fail(error, AVO_ERROR_ARGUMENT, "%s is not supported by avo_generate; %s",
                               fields[i].name, fields[i].instead);
    return AVO_OK;
}

avo_status request_encode(const avo_request *request, const avo_chat_options *chat,
                          const avo_model *model, encoder *encoder, id_list *ids,
                          avo_error *error) {
    if (request->text != NULL)
        return model_encode_text(model, encoder, text_from(request->text), request->text_flags, ids,
                                 error);
    return model_encode_chat(model, encoder, request->messages, request->message_count, chat, ids,
                             error);
}
