/* /openapi.json: the routes and the fields of their tables as an OpenAPI 3.1 document. */
#include "server/api/api_int.h"

#include "base/number.h"

#include <stdlib.h>

/* ---- What answers look like ---- */

#define STRING  "{\"type\":\"string\"}"
#define INTEGER "{\"type\":\"integer\"}"
#define NUMBER  "{\"type\":\"number\"}"
#define USAGE                                                                                      \
    "{\"type\":[\"object\",\"null\"],\"properties\":{\"prompt_tokens\":" INTEGER                   \
    ",\"completion_tokens\":" INTEGER ",\"total_tokens\":" INTEGER                                 \
    ",\"prompt_tokens_details\":{\"type\":\"object\",\"properties\":{\"cached_tokens\":" INTEGER   \
    "}},\"timings\":{\"$ref\":\"#/components/schemas/Timings\"}}}"
#define ANTHROPIC_USAGE                                                                            \
    "{\"type\":\"object\",\"properties\":{\"input_tokens\":" INTEGER ",\"output_tokens\":" INTEGER \
    ",\"cache_read_input_tokens\":" INTEGER                                                        \
    ",\"timings\":{\"$ref\":\"#/components/schemas/Timings\"}}}"
#define CHOICE_END                                                                                 \
    "\"finish_reason\":{\"enum\":[\"stop\",\"length\",\"tool_calls\",null]},\"stop_reason\":{"     \
    "\"type\":[\"string\",\"null\"],\"description\":\"the stop text, or deadline, or context\"},"  \
    "\"seed\":" INTEGER

typedef struct component {
    const char *name, *schema;
} component;

static const component components[] = {
    {"Error", "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":"
              "\"object\",\"required\":[\"message\",\"type\"],\"properties\":{\"message\":" STRING
              ",\"type\":" STRING ",\"param\":{\"type\":[\"string\",\"null\"]},\"code\":{"
              "\"type\":[\"string\",\"null\"]}}}}}"},
    {"AnthropicError",
     "{\"type\":\"object\",\"required\":[\"type\",\"error\"],\"properties\":{\"type\":{\"const\":"
     "\"error\"},\"error\":{\"type\":\"object\",\"properties\":{\"type\":" STRING
     ",\"message\":" STRING "}},\"request_id\":" STRING "}}"},
    {"Timings",
     "{\"type\":\"object\",\"properties\":{\"queue_ms\":" NUMBER ",\"first_token_ms\":" NUMBER
     ",\"total_ms\":" NUMBER ",\"tokens_per_second\":" NUMBER "}}"},
    {"ChatCompletion",
     "{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created\",\"model\",\"choices\"],"
     "\"properties\":{\"id\":" STRING
     ",\"object\":{\"const\":\"chat.completion\"},\"created\":" INTEGER ",\"model\":" STRING
     ",\"system_fingerprint\":" STRING ",\"choices\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\",\"properties\":{\"index\":" INTEGER
     ",\"message\":{\"type\":\"object\",\"properties\":{\"role\":{\"const\":\"assistant\"},"
     "\"content\":{\"type\":[\"string\",\"null\"]},\"tool_calls\":{\"type\":\"array\",\"items\":{"
     "\"type\":\"object\"}}}},\"logprobs\":{\"type\":[\"object\",\"null\"]}," CHOICE_END
     "}}},\"usage\":" USAGE "}}"},
    {"Completion",
     "{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created\",\"model\",\"choices\"],"
     "\"properties\":{\"id\":" STRING
     ",\"object\":{\"const\":\"text_completion\"},\"created\":" INTEGER ",\"model\":" STRING
     ",\"system_fingerprint\":" STRING ",\"choices\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\",\"properties\":{\"index\":" INTEGER ",\"text\":" STRING
     ",\"logprobs\":{\"type\":[\"object\",\"null\"]}," CHOICE_END "}}},\"usage\":" USAGE "}}"},
    {"Response",
     "{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created_at\",\"model\",\"status\","
     "\"output\"],\"properties\":{\"id\":" STRING ",\"object\":{\"const\":\"response\"},"
     "\"created_at\":" INTEGER ",\"model\":" STRING
     ",\"status\":{\"enum\":[\"completed\",\"incomplete\",\"in_progress\",\"failed\"]},\"output\":{"
     "\"type\":\"array\",\"items\":{\"type\":\"object\"}},\"usage\":{\"type\":[\"object\","
     "\"null\"]}}}"},
    {"Message",
     "{\"type\":\"object\",\"required\":[\"id\",\"type\",\"role\",\"content\",\"model\"],"
     "\"properties\":{\"id\":" STRING ",\"type\":{\"const\":\"message\"},\"role\":{\"const\":"
     "\"assistant\"},\"model\":" STRING ",\"content\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\"}},\"stop_reason\":{\"enum\":[\"end_turn\",\"max_tokens\",\"stop_sequence\","
     "\"tool_use\",null]},\"stop_sequence\":{\"type\":[\"string\",\"null\"]},"
     "\"usage\":" ANTHROPIC_USAGE "}}"},
    {"Count", "{\"type\":\"object\",\"required\":[\"input_tokens\"],\"properties\":{"
              "\"input_tokens\":" INTEGER "}}"},
    {"Embeddings",
     "{\"type\":\"object\",\"required\":[\"object\",\"data\",\"model\"],\"properties\":{\"object\":"
     "{\"const\":\"list\"},\"model\":" STRING ",\"data\":{\"type\":\"array\",\"items\":{\"type\":"
     "\"object\",\"properties\":{\"index\":" INTEGER ",\"embedding\":{\"type\":[\"array\","
     "\"string\"],\"items\":" NUMBER "}}}},\"usage\":" USAGE "}}"},
    {"Model",
     "{\"type\":\"object\",\"required\":[\"id\",\"object\",\"created\",\"owned_by\"],"
     "\"properties\":{\"id\":" STRING ",\"object\":{\"const\":\"model\"},\"created\":" INTEGER
     ",\"owned_by\":" STRING ",\"root\":" STRING
     ",\"parent\":{\"type\":[\"string\",\"null\"]},\"max_model_len\":" INTEGER
     ",\"meta\":{\"type\":\"object\"}}}"},
    {"Models", "{\"type\":\"object\",\"required\":[\"object\",\"data\"],\"properties\":{\"object\":"
               "{\"const\":\"list\"},\"data\":{\"type\":\"array\",\"items\":{\"$ref\":"
               "\"#/components/schemas/Model\"}}}}"},
    {"Tokens", "{\"type\":\"object\",\"required\":[\"tokens\",\"count\"],\"properties\":{"
               "\"tokens\":{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"object\"]}},"
               "\"count\":" INTEGER ",\"max_model_len\":" INTEGER
               ",\"token_strs\":{\"type\":\"array\",\"items\":" STRING "}}}"},
    {"Text", "{\"type\":\"object\",\"required\":[\"content\",\"prompt\"],\"properties\":{"
             "\"content\":" STRING ",\"prompt\":" STRING "}}"},
    {"Adapters",
     "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"id\":" INTEGER
     ",\"name\":" STRING ",\"path\":" STRING ",\"scale\":" NUMBER "}}}"},
    {"Success", "{\"type\":\"object\",\"properties\":{\"success\":{\"const\":true}}}"},
    {"Health", "{\"type\":\"object\",\"required\":[\"status\"],\"properties\":{\"status\":{"
               "\"enum\":[\"ok\",\"ready\",\"draining\",\"stalled\"]},\"running\":" INTEGER
               ",\"waiting\":" INTEGER ",\"steps\":" INTEGER ",\"still_seconds\":" NUMBER "}}"},
    {"Version", "{\"type\":\"object\",\"required\":[\"version\",\"model\"],\"properties\":{"
                "\"version\":" STRING ",\"model\":" STRING ",\"architecture\":" STRING
                ",\"isa\":" STRING ",\"context\":" INTEGER
                ",\"tools\":{\"type\":[\"string\",\"null\"]},\"chat\":{\"type\":\"boolean\"},"
                "\"limits\":{\"type\":\"object\"}}}"},
    {"Telemetry", "{\"type\":\"object\"}"},
    {"Trace", "{\"type\":[\"object\",\"array\"]}"},
    {"Document", "{\"type\":\"object\"}"},
};

/* ---- Fields ---- */

static avo_status write_number(buffer *out, const char *name, double value) {
    AVO_TRY(buffer_format(out, ",\"%s\":", name));
    return json_write_number(out, value);
}

static avo_status write_schema(const api_field *field, buffer *out) {
    switch (field->kind) {
    case FIELD_BOOLEAN:
        return buffer_append_text(out, "{\"type\":[\"boolean\",\"null\"]");
    case FIELD_U32:
    case FIELD_SEED:
        AVO_TRY(buffer_append_text(out, "{\"type\":[\"integer\",\"null\"]"));
        if (field->minimum <= -9.2e18)
            return buffer_append_text(out, ",\"minimum\":-9223372036854775807,\"maximum\":"
                                           "9223372036854775807");
        return buffer_format(out, ",\"minimum\":%.0f,\"maximum\":%.0f", field->minimum,
                             field->maximum);
    case FIELD_FLOAT:
    case FIELD_MILLISECONDS:
        AVO_TRY(buffer_append_text(out, "{\"type\":[\"number\",\"null\"]"));
        AVO_TRY(write_number(out, "minimum", field->minimum));
        return write_number(out, "maximum", field->maximum);
    case FIELD_STRING:
        return buffer_format(out, "{\"type\":[\"string\",\"null\"],\"maxLength\":%.0f",
                             field->maximum);
    case FIELD_VALUE: /* without its closing brace */
        return buffer_append(out, field->schema, strlen(field->schema) - 1);
    case FIELD_IGNORED:
        return buffer_append_text(out, "{\"x-ignored\":true");
    case FIELD_REFUSED:
        return buffer_append_text(out, "{\"x-refused\":true,\"deprecated\":true");
    }
    return AVO_ERROR_ARGUMENT;
}

static avo_status write_field(const api_field *field, buffer *out) {
    AVO_TRY(buffer_format(out, "\"%s\":", field->name));
    AVO_TRY(write_schema(field, out));
    AVO_TRY(buffer_append_text(out, ",\"description\":"));
    AVO_TRY(json_write_string(out, text_from(field->text)));
    return buffer_append_text(out, "}");
}

/* A comma separated list as JSON strings. */
static avo_status write_words(const char *words, buffer *out) {
    const char *comma = "";
    while (*words != '\0') {
        size_t length = strcspn(words, ",");
        AVO_TRY(buffer_format(out, "%s\"%.*s\"", comma, (int)length, words));
        words += length + (words[length] == ',');
        comma = ",";
    }
    return AVO_OK;
}

#define NEEDS(field, type)                                                                         \
    "{\"required\":[\"" field "\"],\"properties\":{\"" field "\":{\"type\":\"" type "\"}}}"

static avo_status write_body_schema(api_body body, buffer *out) {
    if (body == BODY_SCALES)
        return buffer_append_text(out, "{\"type\":\"array\",\"maxItems\":1024,\"items\":{\"type\":"
                                       "\"object\",\"required\":[\"id\",\"scale\"],\"properties\":{"
                                       "\"id\":{\"type\":\"integer\",\"minimum\":0},\"scale\":{"
                                       "\"type\":\"number\",\"minimum\":-10000,\"maximum\":10000}}"
                                       "}}");
    AVO_TRY(buffer_append_text(out, "{\"type\":\"object\",\"required\":["));
    AVO_TRY(write_words(api_required(body), out));
    AVO_TRY(buffer_append_text(out, "],\"properties\":{"));
    const char *comma = "";
    for (size_t i = 0; i < api_field_count; i++) {
        if ((api_field_table[i].bodies & (uint32_t)body) == 0)
            continue;
        AVO_TRY(buffer_append_text(out, comma));
        AVO_TRY(write_field(&api_field_table[i], out));
        comma = ",";
    }
    AVO_TRY(buffer_append_text(out, "}"));
    if (body == BODY_TOKENIZE)
        AVO_TRY(
            buffer_append_text(out, ",\"anyOf\":[" NEEDS("content", "string") "," NEEDS(
                                        "prompt", "string") "," NEEDS("messages", "array") "]"));
    return buffer_append_text(out, "}");
}

/* ---- Routes ---- */

static const char *error_text(long status) {
    switch (status) {
    case 400:
        return "the request is wrong; param names the field";
    case 401:
        return "a key is needed";
    case 403:
        return "this key may not";
    case 404:
        return "there is no such model, adapter or file";
    case 413:
        return "the body is too large";
    case 429:
        return "too many requests of this key; Retry-After says when to come again";
    case 503:
        return "the server is full, draining or stalled; Retry-After says when to come again";
    default:
        return "the deadline passed before the first token";
    }
}

static avo_status write_errors(const api_route *route, buffer *out) {
    bool anthropic = strcmp(route->tag, "Anthropic") == 0;
    const char *schema = anthropic ? "AnthropicError" : "Error";
    if (strcmp(route->path, "/health") == 0 || strcmp(route->path, "/ready") == 0)
        schema = "Health";
    for (const char *at = route->errors; *at != '\0';) {
        char *end = NULL;
        long status = strtol(at, &end, 10);
        AVO_TRY(buffer_format(out,
                              ",\"%ld\":{\"description\":\"%s\",\"content\":{\"application/json\":{"
                              "\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}}}",
                              status, error_text(status), schema));
        at = *end == ',' ? end + 1 : end;
    }
    return AVO_OK;
}

static avo_status write_reply(const api_route *route, buffer *out) {
    AVO_TRY(buffer_format(
        out, "\"200\":{\"description\":\"good\",\"content\":{\"%s\":{\"schema\":", route->type));
    if (route->schema == NULL)
        AVO_TRY(buffer_append_text(out, STRING));
    else
        AVO_TRY(buffer_format(out, "{\"$ref\":\"#/components/schemas/%s\"}", route->schema));
    AVO_TRY(buffer_append_text(out, "}"));
    if (((uint32_t)route->body & BODY_ANSWERS) != 0)
        AVO_TRY(buffer_append_text(out, ",\"text/event-stream\":{\"schema\":" STRING "}"));
    return buffer_append_text(out, "}}");
}

static avo_status write_operation(const api_route *route, buffer *out) {
    char method[8];
    size_t length = strlen(route->method);
    for (size_t i = 0; i <= length; i++)
        method[i] = (char)(route->method[i] | (i < length ? 0x20 : 0));
    AVO_TRY(buffer_format(out, "\"%s\":{\"tags\":[\"%s\"],\"summary\":", method, route->tag));
    AVO_TRY(json_write_string(out, text_from(route->text)));
    if (route->admin)
        AVO_TRY(buffer_append_text(out, ",\"description\":\"Needs the key of an administrator.\""));
    if (route->parameters != NULL)
        AVO_TRY(buffer_format(out, ",\"parameters\":[%s]", route->parameters));
    if (route->body != BODY_NONE) {
        AVO_TRY(buffer_append_text(out, ",\"requestBody\":{\"required\":true,\"content\":{"
                                        "\"application/json\":{\"schema\":"));
        AVO_TRY(write_body_schema(route->body, out));
        AVO_TRY(buffer_append_text(out, "}}}"));
    }
    AVO_TRY(buffer_append_text(out, ",\"responses\":{"));
    AVO_TRY(write_reply(route, out));
    AVO_TRY(write_errors(route, out));
    return buffer_append_text(out, "}}");
}

static avo_status write_paths(buffer *out) {
    const char *comma = "";
    for (size_t i = 0; i < api_route_count; i++) {
        const char *path = api_routes[i].path;
        bool again = i > 0 && strcmp(path, api_routes[i - 1].path) == 0;
        if (again)
            continue; /* written with the one before */
        AVO_TRY(buffer_format(out, "%s\"%s\":{", comma, path));
        AVO_TRY(write_operation(&api_routes[i], out));
        if (i + 1 < api_route_count && strcmp(path, api_routes[i + 1].path) == 0) {
            AVO_TRY(buffer_append_text(out, ","));
            AVO_TRY(write_operation(&api_routes[i + 1], out));
        }
        AVO_TRY(buffer_append_text(out, "}"));
        comma = ",";
    }
    return AVO_OK;
}

/* What follows from the model: its tokens, and whether a text may be empty. */
static avo_status write_model_schemas(const api *api, buffer *out) {
    const char *text = prompt_may_be_empty(api) ? STRING : "{\"type\":\"string\",\"minLength\":1}";
    const char *ids = "{\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":"
                      "\"#/components/schemas/Token\"}}";
    AVO_TRY(buffer_format(out, ",\"Token\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":%u}",
                          api->info.vocabulary - 1));
    return buffer_format(out,
                         ",\"Prompts\":{\"anyOf\":[%s,%s,{\"type\":\"array\",\"minItems\":1,"
                         "\"maxItems\":%d,\"items\":{\"anyOf\":[%s,%s]}}]}",
                         text, ids, API_PROMPTS_MAX, text, ids);
}

avo_status openapi_write(const api *api, buffer *out) {
    AVO_TRY(buffer_append_text(out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"Avocet\","
                                    "\"version\":\"" AVO_VERSION_TEXT "\",\"description\":"));
    AVO_TRY(json_write_string(out, text_from("An LLM inference server. Fields that are not "
                                             "described here are passed over.")));
    AVO_TRY(buffer_append_text(out, "},\"servers\":[{\"url\":\"/\"}],\"security\":[{\"bearer\":[]},"
                                    "{\"key\":[]},{}],\"paths\":{"));
    AVO_TRY(write_paths(out));
    AVO_TRY(buffer_append_text(out, "},\"components\":{\"securitySchemes\":{\"bearer\":{\"type\":"
                                    "\"http\",\"scheme\":\"bearer\"},\"key\":{\"type\":\"apiKey\","
                                    "\"in\":\"header\",\"name\":\"x-api-key\"}},\"schemas\":{"));
    for (size_t i = 0; i < sizeof(components) / sizeof(components[0]); i++)
        AVO_TRY(buffer_format(out, "%s\"%s\":%s", i > 0 ? "," : "", components[i].name,
                              components[i].schema));
    AVO_TRY(write_model_schemas(api, out));
    return buffer_append_text(out, "}}}");
}
