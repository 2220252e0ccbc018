/* Reading of fields by table. */
#include "server/api/api_int.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- Faults ---- */

bool fault_set(api_fault *fault, unsigned status, const char *param, const char *code,
               const char *format, ...) {
    fault->status = status;
    fault->code = code;
    snprintf(fault->param, sizeof(fault->param), "%s", param == NULL ? "" : param);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof(fault->text), format, arguments);
    va_end(arguments);
    return false;
}

bool fault_no_memory(api_fault *fault) {
    return fault_set(fault, 503, NULL, "out_of_memory", "out of memory for this request");
}

bool fault_from_chat(api_fault *fault, const chat_fault *wrong) {
    return fault_set(fault, wrong->status == AVO_ERROR_MEMORY ? 503 : 400, wrong->param,
                     wrong->code, "%s", wrong->text);
}

/* ---- Single values ---- */

bool api_read_string(const json_value *value, const char *param, size_t maximum, arena *arena,
                     const char **out, api_fault *fault) {
    chat_fault wrong = {0};
    text_view text;
    if (!chat_string_read(value, param, maximum, &text, &wrong))
        return fault_from_chat(fault, &wrong);
    *out = arena_copy_text(arena, text.data, text.size);
    return *out != NULL || fault_no_memory(fault);
}

bool api_read_integer(const json_value *value, const char *param, int64_t minimum, int64_t maximum,
                      int64_t *out, api_fault *fault) {
    chat_fault wrong = {0};
    return chat_integer_read(value, param, minimum, maximum, out, &wrong) ||
           fault_from_chat(fault, &wrong);
}

bool api_read_number(const json_value *value, const char *param, double minimum, double maximum,
                     double *out, api_fault *fault) {
    chat_fault wrong = {0};
    return chat_number_read(value, param, minimum, maximum, out, &wrong) ||
           fault_from_chat(fault, &wrong);
}

/* ---- The table ---- */

static bool read_field(const api_field *field, const json_value *value, api_request *request,
                       api_fault *fault) {
    const chat_field shared = {field->name,    field->kind,   field->minimum,
                               field->maximum, field->offset, field->text};
    chat_fault wrong = {0};
    return chat_field_read(&shared, value, request, &request->arena, &wrong) ||
           fault_from_chat(fault, &wrong);
}

static bool require(const json_value *object, api_body body, api_fault *fault) {
    const char *at = api_required(body);
    while (*at != '\0') {
        size_t length = strcspn(at, ",");
        const json_value *value = json_find_text(object, (text_view){at, length});
        if (value == NULL || value->kind == JSON_NULL) {
            char name[32];
            snprintf(name, sizeof(name), "%.*s", (int)length, at);
            return fault_set(fault, 400, name, "missing_required_parameter", "%s is missing", name);
        }
        at += length + (at[length] == ',');
    }
    return true;
}

/* Fields that other bodies have are unknown in this one. */
static bool check_keys(const json_value *object, api_body body, api_fault *fault) {
    const char *names[API_FIELDS_MAX];
    size_t count = 0;
    chat_fault wrong = {0};
    for (size_t i = 0; i < api_field_count; i++)
        if ((api_field_table[i].bodies & (uint32_t)body) != 0)
            names[count++] = api_field_table[i].name;
    return chat_keys_check(object, names, count, &wrong) || fault_from_chat(fault, &wrong);
}

/* The members of one object. */
static bool read_members(api_request *request, const json_value *object, api_body body,
                         api_fault *fault) {
    if (!check_keys(object, body, fault))
        return false;
    for (size_t i = 0; i < api_field_count; i++) {
        const api_field *field = &api_field_table[i];
        if ((field->bodies & (uint32_t)body) == 0)
            continue;
        const json_value *value = json_find(object, field->name);
        if (value != NULL && value->kind != JSON_NULL && !read_field(field, value, request, fault))
            return false;
    }
    return true;
}

static bool read_options(api_request *request, api_fault *fault) {
    const json_value *options = api_field_of(request, "options");
    if (options == NULL || (request->body & (BODY_OLLAMA_CHAT | BODY_OLLAMA_GENERATE)) == 0)
        return true;
    if (options->kind != JSON_OBJECT)
        return fault_set(fault, 400, "options", "invalid_type",
                         "options must be an object, found %s", json_kind_name(options->kind));
    request->options = options;
    return read_members(request, options, BODY_OPTIONS, fault);
}

bool api_fields_read(api_request *request, api_fault *fault) {
    const json_value *object = &request->root;
    if (object->kind != JSON_OBJECT)
        return fault_set(fault, 400, NULL, "invalid_type",
                         "the body must be a JSON object, found %s", json_kind_name(object->kind));
    return read_members(request, object, request->body, fault) && read_options(request, fault) &&
           require(object, request->body, fault);
}

const json_value *api_field_of(const api_request *request, const char *name) {
    for (size_t i = 0; i < api_field_count; i++) {
        const api_field *field = &api_field_table[i];
        const json_value *object = (field->bodies & (uint32_t)request->body) != 0 ? &request->root
                                   : (field->bodies & BODY_OPTIONS) != 0          ? request->options
                                                                                  : NULL;
        if (object == NULL || strcmp(field->name, name) != 0)
            continue;
        const json_value *value = json_find(object, name);
        return value == NULL || value->kind == JSON_NULL ? NULL : value;
    }
    return NULL;
}
