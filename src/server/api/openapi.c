/* /openapi.json: the routes and the fields of their tables as an OpenAPI 3.1 document. */
#include "server/api/api_int.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- What answers look like ---- */

#define STRING         SCHEMA_OF("string")
#define STRING_OR_NULL SCHEMA_OF("string,null")
#define INTEGER        SCHEMA_OF("integer")
#define NUMBER         SCHEMA_OF("number")
#define OBJECT         SCHEMA_OF("object")
/* Draft tokens, where any were verified. */
#define DRAFTS                                                                                     \
    {"accepted_prediction_tokens", INTEGER}, {                                                     \
        "rejected_prediction_tokens", INTEGER                                                      \
    }
#define USAGE                                                                                      \
    SCHEMA(.members = SCHEMA_MEMBERS(                                                              \
               {"completion_tokens", INTEGER},                                                     \
               {"completion_tokens_details",                                                       \
                SCHEMA(.members = SCHEMA_MEMBERS(DRAFTS, {"reasoning_tokens", INTEGER}),           \
                       .types = "object")},                                                        \
               {"prompt_tokens", INTEGER},                                                         \
               {"prompt_tokens_details",                                                           \
                SCHEMA(.members = SCHEMA_MEMBERS({"cached_tokens", INTEGER}), .types = "object")}, \
               {"timings", SCHEMA_REF("Timings")}, {"total_tokens", INTEGER}),                     \
           .types = "object,null")
#define ANTHROPIC_USAGE                                                                            \
    SCHEMA(.members = SCHEMA_MEMBERS(DRAFTS, {"cache_read_input_tokens", INTEGER},                 \
                                     {"input_tokens", INTEGER}, {"output_tokens", INTEGER},        \
                                     {"timings", SCHEMA_REF("Timings")}),                          \
           .types = "object")
#define CHOICE_END                                                                                 \
    {"finish_reason", SCHEMA(.values = "stop,length,tool_calls,repetition,null")},                 \
        {"stop_reason",                                                                            \
         SCHEMA(.description = "the stop text, the id of the stop token, deadline or context",     \
                .types = "integer,string,null")},                                                  \
    {                                                                                              \
        "seed", INTEGER                                                                            \
    }

static const schema_member components[] = {
    {"Error", SCHEMA(.members = SCHEMA_MEMBERS(
                         {"error", SCHEMA(.members = SCHEMA_MEMBERS(
                                              {"code", STRING_OR_NULL}, {"message", STRING},
                                              {"param", STRING_OR_NULL}, {"type", STRING}),
                                          .required = "message,type", .types = "object")}),
                     .required = "error", .types = "object")},
    {"AnthropicError",
     SCHEMA(.members = SCHEMA_MEMBERS(
                {"error", SCHEMA(.members = SCHEMA_MEMBERS({"message", STRING}, {"type", STRING}),
                                 .types = "object")},
                {"request_id", STRING}, {"type", SCHEMA_IS("error")}),
            .required = "type,error", .types = "object")},
    {"Timings",
     SCHEMA(.members = SCHEMA_MEMBERS({"first_token_ms", NUMBER}, {"queue_ms", NUMBER},
                                      {"tokens_per_second", NUMBER}, {"total_ms", NUMBER}),
            .types = "object")},
    {"ChatCompletion",
     SCHEMA(.members = SCHEMA_MEMBERS(
                {"choices",
                 SCHEMA_LIST(SCHEMA(.members = SCHEMA_MEMBERS(
                                        {"index", INTEGER}, {"logprobs", SCHEMA_OF("object,null")},
                                        {"message", SCHEMA(.members = SCHEMA_MEMBERS(
                                                               {"content", STRING_OR_NULL},
                                                               {"reasoning_content", STRING},
                                                               {"role", SCHEMA_IS("assistant")},
                                                               {"tool_calls", SCHEMA_LIST(OBJECT)}),
                                                           .types = "object")},
                                        CHOICE_END),
                                    .types = "object"))},
                {"created", INTEGER}, {"id", STRING}, {"model", STRING},
                {"object", SCHEMA_IS("chat.completion")}, {"system_fingerprint", STRING},
                {"usage", USAGE}),
            .required = "id,object,created,model,choices", .types = "object")},
    {"Completion",
     SCHEMA(.members = SCHEMA_MEMBERS(
                {"choices",
                 SCHEMA_LIST(SCHEMA(.members = SCHEMA_MEMBERS(
                                        {"index", INTEGER}, {"logprobs", SCHEMA_OF("object,null")},
                                        {"text", STRING}, CHOICE_END),
                                    .types = "object"))},
                {"created", INTEGER}, {"id", STRING}, {"model", STRING},
                {"object", SCHEMA_IS("text_completion")}, {"system_fingerprint", STRING},
                {"usage", USAGE}),
            .required = "id,object,created,model,choices", .types = "object")},
    {"Response", SCHEMA(.members = SCHEMA_MEMBERS(
                            {"created_at", INTEGER}, {"id", STRING}, {"model", STRING},
                            {"object", SCHEMA_IS("response")}, {"output", SCHEMA_LIST(OBJECT)},
                            {"status", SCHEMA(.values = "completed,incomplete,in_progress,failed")},
                            {"usage", SCHEMA_OF("object,null")}),
                        .required = "id,object,created_at,model,status,output", .types = "object")},
    {"Message", SCHEMA(.members = SCHEMA_MEMBERS(
                           {"content", SCHEMA_LIST(OBJECT)}, {"id", STRING}, {"model", STRING},
                           {"role", SCHEMA_IS("assistant")},
                           {"stop_reason",
                            SCHEMA(.values = "end_turn,max_tokens,stop_sequence,tool_use,null")},
                           {"stop_sequence", STRING_OR_NULL}, {"type", SCHEMA_IS("message")},
                           {"usage", ANTHROPIC_USAGE}),
                       .required = "id,type,role,content,model", .types = "object")},
    {"Count", SCHEMA(.members = SCHEMA_MEMBERS({"input_tokens", INTEGER}),
                     .required = "input_tokens", .types = "object")},
    {"Embeddings",
     SCHEMA(.members = SCHEMA_MEMBERS(
                {"data", SCHEMA_LIST(SCHEMA(.members = SCHEMA_MEMBERS(
                                                {"embedding",
                                                 SCHEMA(.items = NUMBER, .types = "array,string")},
                                                {"index", INTEGER}),
                                            .types = "object"))},
                {"model", STRING}, {"object", SCHEMA_IS("list")}, {"usage", USAGE}),
            .required = "object,data,model", .types = "object")},
    {"Model", SCHEMA(.members = SCHEMA_MEMBERS({"created", INTEGER}, {"id", STRING},
                                               {"max_model_len", INTEGER}, {"meta", OBJECT},
                                               {"object", SCHEMA_IS("model")}, {"owned_by", STRING},
                                               {"parent", STRING_OR_NULL}, {"root", STRING}),
                     .required = "id,object,created,owned_by", .types = "object")},
    {"Models", SCHEMA(.members = SCHEMA_MEMBERS({"data", SCHEMA_LIST(SCHEMA_REF("Model"))},
                                                {"object", SCHEMA_IS("list")}),
                      .required = "object,data", .types = "object")},
    {"Tokens",
     SCHEMA(.members = SCHEMA_MEMBERS({"count", INTEGER}, {"max_model_len", INTEGER},
                                      {"token_strs", SCHEMA_LIST(STRING)},
                                      {"tokens", SCHEMA_LIST(SCHEMA_OF("integer,object"))}),
            .required = "tokens,count", .types = "object")},
    {"Text", SCHEMA(.members = SCHEMA_MEMBERS({"content", STRING}, {"prompt", STRING}),
                    .required = "content,prompt", .types = "object")},
    {"Tokenizer",
     SCHEMA(.members = SCHEMA_MEMBERS(
                {"add_bos_token", SCHEMA_OF("boolean")}, {"add_eos_token", SCHEMA_OF("boolean")},
                {"bos_token", STRING_OR_NULL}, {"chat_template", STRING_OR_NULL},
                {"eos_token", STRING_OR_NULL}, {"kind", STRING}, {"model_max_length", INTEGER},
                {"pad_token", STRING_OR_NULL}, {"unk_token", STRING_OR_NULL},
                {"vocab_size", INTEGER}),
            .required = "bos_token,eos_token,pad_token,chat_template", .types = "object")},
    {"Adapters", SCHEMA_LIST(SCHEMA(.members = SCHEMA_MEMBERS({"id", INTEGER}, {"name", STRING},
                                                              {"path", STRING}, {"scale", NUMBER}),
                                    .types = "object"))},
    {"Success",
     SCHEMA(.members = SCHEMA_MEMBERS({"success", SCHEMA(.is_true = true)}), .types = "object")},
    {"Health", SCHEMA(.members = SCHEMA_MEMBERS(
                          {"running", INTEGER},
                          {"status", SCHEMA(.values = "ok,ready,draining,stalled,device_failed")},
                          {"steps", INTEGER}, {"still_seconds", NUMBER}, {"waiting", INTEGER}),
                      .required = "status", .types = "object")},
    {"Version",
     SCHEMA(.members = SCHEMA_MEMBERS({"architecture", STRING}, {"chat", SCHEMA_OF("boolean")},
                                      {"context", INTEGER}, {"digest", STRING}, {"isa", STRING},
                                      {"limits", OBJECT}, {"model", STRING}, {"sampling", OBJECT},
                                      {"tools", STRING_OR_NULL}, {"training", SCHEMA_OF("boolean")},
                                      {"version", STRING}),
            .required = "version,model", .types = "object")},
    {"File", SCHEMA(.members = SCHEMA_MEMBERS({"bytes", INTEGER}, {"created_at", INTEGER},
                                              {"expires_at", INTEGER}, {"filename", STRING},
                                              {"id", STRING}, {"object", SCHEMA_IS("file")},
                                              {"purpose", STRING}, {"status", STRING}),
                    .required = "id,object,bytes,created_at,filename,purpose", .types = "object")},
    {"Files", SCHEMA(.members = SCHEMA_MEMBERS(
                         {"data", SCHEMA_LIST(SCHEMA_REF("File"))}, {"first_id", STRING_OR_NULL},
                         {"has_more", SCHEMA_OF("boolean")}, {"last_id", STRING_OR_NULL},
                         {"object", SCHEMA_IS("list")}),
                     .required = "object,data", .types = "object")},
    {"Deleted", SCHEMA(.members = SCHEMA_MEMBERS({"deleted", SCHEMA(.is_true = true)},
                                                 {"id", STRING}, {"object", SCHEMA_IS("file")}),
                       .types = "object")},
    {"Batch",
     SCHEMA(.members = SCHEMA_MEMBERS(
                {"completion_window", SCHEMA_IS("24h")},
                {"created_at", INTEGER}, {"endpoint", STRING}, {"error_file_id", STRING_OR_NULL},
                {"errors", SCHEMA_OF("object,null")}, {"expires_at", INTEGER}, {"id", STRING},
                {"input_file_id", STRING}, {"metadata", SCHEMA_OF("object,null")},
                {"object", SCHEMA_IS("batch")}, {"output_file_id", STRING_OR_NULL},
                {"request_counts",
                 SCHEMA(.members = SCHEMA_MEMBERS({"completed", INTEGER}, {"failed", INTEGER},
                                                  {"total", INTEGER}),
                        .types = "object")},
                {"status", SCHEMA(.values = "validating,in_progress,finalizing,completed,failed,"
                                            "expired,cancelling,cancelled")}),
            .required = "id,object,endpoint,input_file_id,status,created_at", .types = "object")},
    {"Batches", SCHEMA(.members = SCHEMA_MEMBERS(
                           {"data", SCHEMA_LIST(SCHEMA_REF("Batch"))}, {"first_id", STRING_OR_NULL},
                           {"has_more", SCHEMA_OF("boolean")}, {"last_id", STRING_OR_NULL},
                           {"object", SCHEMA_IS("list")}),
                       .required = "object,data", .types = "object")},
    {"Usage",
     SCHEMA(.members = SCHEMA_MEMBERS(
                {"data", SCHEMA_LIST(SCHEMA(.members = SCHEMA_MEMBERS(
                                                {"cached_tokens", INTEGER}, {"day", STRING},
                                                {"key", STRING}, {"new_tokens", INTEGER},
                                                {"prompt_tokens", INTEGER}, {"refused", INTEGER},
                                                {"requests", INTEGER}),
                                            .types = "object"))},
                {"from", STRING}, {"object", SCHEMA_IS("usage")}, {"to", STRING},
                {"windows", SCHEMA_LIST(OBJECT)}),
            .required = "object,data,windows", .types = "object")},
    {"LlamaCompletion", SCHEMA_OF("object,array")},
    {"Vectors", SCHEMA_LIST(OBJECT)},
    {"Rendered", SCHEMA(.members = SCHEMA_MEMBERS({"prompt", STRING}), .required = "prompt",
                        .types = "object")},
    {"Props", OBJECT},
    {"Slots", SCHEMA_LIST(OBJECT)},
    {"OllamaAnswer", OBJECT},
    {"OllamaVectors", OBJECT},
    {"OllamaVector", OBJECT},
    {"OllamaModel", OBJECT},
    {"OllamaModels", OBJECT},
    {"OllamaStatus", OBJECT},
    {"OllamaVersion", OBJECT},
    {"OllamaError",
     SCHEMA(.members = SCHEMA_MEMBERS({"error", STRING}), .required = "error", .types = "object")},
    {"Telemetry", OBJECT},
    {"Training", OBJECT},
    {"Trace", SCHEMA_OF("object,array")},
    {"Document", OBJECT},
};

/* ---- Fields ---- */

static void write_types(json_writer *w, const char *types) {
    schema_write_keywords(w, &(const schema){.types = types});
}

static void write_schema(json_writer *w, const api_field *field) {
    switch (field->kind) {
    case FIELD_BOOLEAN:
        write_types(w, "boolean,null");
        break;
    case FIELD_SEED:
        write_types(w, "integer,null");
        json_member_i64(w, "minimum", -INT64_MAX);
        json_member_i64(w, "maximum", INT64_MAX);
        break;
    case FIELD_U32:
        write_types(w, "integer,null");
        json_member_fixed(w, "minimum", field->minimum, 0);
        json_member_fixed(w, "maximum", field->maximum, 0);
        break;
    case FIELD_FLOAT:
    case FIELD_SECONDS:
    case FIELD_MILLISECONDS:
        write_types(w, "number,null");
        json_member_number(w, "minimum", field->minimum);
        json_member_number(w, "maximum", field->maximum);
        break;
    case FIELD_STRING:
        write_types(w, "string,null");
        json_member_fixed(w, "maxLength", field->maximum, 0);
        break;
    case FIELD_VALUE:
        schema_write_keywords(w, field->schema);
        break;
    case FIELD_IGNORED:
        json_member_boolean(w, "x-ignored", true);
        break;
    case FIELD_REFUSED:
        json_member_boolean(w, "x-refused", true);
        json_member_boolean(w, "deprecated", true);
        break;
    }
}

static void write_fields(json_writer *w, api_body body) {
    for (size_t i = 0; i < api_field_count; i++) {
        const api_field *field = &api_field_table[i];
        if ((field->bodies & (uint32_t)body) == 0)
            continue;
        json_member_object_begin(w, field->name);
        write_schema(w, field);
        json_member_string(w, "description", field->text);
        json_end(w);
    }
}

/* /lora-adapters: an array, not an object. */
static const schema scales = {
    .types = "array",
    .items_max = 1024,
    .items = SCHEMA(.types = "object", .required = "id,scale",
                    .members = SCHEMA_MEMBERS(
                        {"id", SCHEMA(.types = "integer", .bounded_below = true)},
                        {"scale", SCHEMA(.types = "number", .bounded = true, .minimum = -1000000,
                                         .maximum = 1000000)}))};

/* One of the fields that a text may come in. */
static void write_alternative(json_writer *w, const char *field, const char *type) {
    const schema of_type = {.types = type};
    const schema_member members[] = {{field, &of_type}, {NULL, NULL}};
    schema_write(w, &(const schema){.required = field, .members = members});
}

static void write_body_schema(json_writer *w, api_body body) {
    if (body == BODY_SCALES) {
        json_key(w, "schema");
        schema_write(w, &scales);
        return;
    }
    json_member_object_begin(w, "schema");
    json_member_string(w, "type", "object");
    json_member_array_begin(w, "required");
    schema_write_words(w, api_required(body));
    json_end(w);
    json_member_object_begin(w, "properties");
    write_fields(w, body);
    json_end(w);
    json_member_boolean(w, "additionalProperties", false);
    if (body == BODY_TOKENIZE) {
        json_member_array_begin(w, "anyOf");
        write_alternative(w, "content", "string");
        write_alternative(w, "prompt", "string");
        write_alternative(w, "messages", "array");
        json_end(w);
    }
    json_end(w);
}

/* ---- Parameters ---- */

static void parameter_begin(json_writer *w, const char *name, const char *in, const char *text) {
    json_object_begin(w);
    json_member_string(w, "name", name);
    json_member_string(w, "in", in);
    json_member_string(w, "description", text);
}

void openapi_model_id(json_writer *w) {
    const schema id = {.types = "string", .length_min = 1};
    parameter_begin(w, "id", "path", "the base model or an adapter");
    json_member_boolean(w, "required", true);
    json_key(w, "schema");
    schema_write(w, &id);
    json_end(w);
}

static void query_text(json_writer *w, const char *name, const char *text) {
    parameter_begin(w, name, "query", text);
    json_key(w, "schema");
    schema_write(w, SCHEMA_OF("string"));
    json_end(w);
}

void openapi_file_id(json_writer *w) {
    parameter_begin(w, "id", "path", "a file or batch of this key");
    json_member_boolean(w, "required", true);
    json_key(w, "schema");
    schema_write(w, SCHEMA_OF("string"));
    json_end(w);
}

void openapi_list(json_writer *w) {
    query_text(w, "limit", "1 to 1000, 100 by default");
    query_text(w, "after", "continues behind this id");
    query_text(w, "purpose", "of files: those alone");
}

void openapi_training_run(json_writer *w) {
    query_text(w, "run", "a run of the list; without it the list is returned");
}

void openapi_usage(json_writer *w) {
    query_text(w, "format", "json (default) or csv");
    query_text(w, "from", "the first day, as 2026-11-19; without it the last 30 days");
    query_text(w, "to", "the last day");
    query_text(w, "key", "one key's alone, by name; administrators may name any");
}

void openapi_trace_seconds(json_writer *w) {
    parameter_begin(w, "seconds", "query", "how long");
    json_member_object_begin(w, "schema");
    json_member_string(w, "type", "number");
    json_member_u64(w, "exclusiveMinimum", 0);
    json_member_u64(w, "maximum", 60);
    json_member_u64(w, "default", 5);
    json_end(w);
    json_end(w);
}

/* ---- Routes ---- */

static const char *error_text(long status) {
    switch (status) {
    case 400:
        return "the request is invalid; param names the field";
    case 401:
        return "an API key is required";
    case 403:
        return "this key is not allowed to do this";
    case 404:
        return "no such model, adapter or file";
    case 413:
        return "the body is too large";
    case 429:
        return "too many requests with this key; retry after Retry-After seconds";
    case 503:
        return "the server is full, draining or stalled, or its device failed; retry after "
               "Retry-After "
               "seconds";
    default:
        return "the deadline passed before the first token";
    }
}

/* The member "schema": a component, or where that is NULL a text. */
static void write_reference(json_writer *w, const char *component) {
    const schema schema = {.types = component == NULL ? "string" : NULL, .component = component};
    json_key(w, "schema");
    schema_write(w, &schema);
}

static void write_errors(json_writer *w, const api_route *route) {
    bool anthropic = strcmp(route->tag, "Anthropic") == 0;
    bool ollama = strcmp(route->tag, "ollama") == 0;
    const char *schema = anthropic ? "AnthropicError" : ollama ? "OllamaError" : "Error";
    if (strcmp(route->path, "/health") == 0 || strcmp(route->path, "/ready") == 0)
        schema = "Health";
    for (const char *at = route->errors; *at != '\0';) {
        size_t length = strcspn(at, ",");
        json_key_text(w, (text_view){at, length});
        json_object_begin(w);
        json_member_string(w, "description", error_text(strtol(at, NULL, 10)));
        json_member_object_begin(w, "content");
        json_member_object_begin(w, "application/json");
        write_reference(w, schema);
        json_end(w);
        json_end(w);
        json_end(w);
        at += length + (at[length] == ',');
    }
}

static void write_reply(json_writer *w, const api_route *route) {
    json_member_object_begin(w, "200");
    json_member_string(w, "description", "good");
    json_member_object_begin(w, "content");
    json_member_object_begin(w, route->type);
    write_reference(w, route->schema);
    json_end(w);
    const uint32_t lines = BODY_OLLAMA_CHAT | BODY_OLLAMA_GENERATE | BODY_OLLAMA_NAME;
    const uint32_t events = BODY_ANSWERS | BODY_LLAMA | BODY_INFILL;
    if (((uint32_t)route->body & (events | lines)) != 0) {
        json_member_object_begin(w, ((uint32_t)route->body & lines) != 0 ? "application/x-ndjson"
                                                                         : "text/event-stream");
        write_reference(w, NULL);
        json_end(w);
    }
    json_end(w);
    json_end(w);
}

/* Bodies that are no api_body: their endpoints read them by hand. */
static const schema file_form = {
    .types = "object",
    .required = "file,purpose",
    .members = SCHEMA_MEMBERS({"file", STRING}, {"purpose", SCHEMA_IS("batch")})};
static const schema batch_body = {
    .types = "object",
    .required = "completion_window,endpoint,input_file_id",
    .members = SCHEMA_MEMBERS(
        {"completion_window", SCHEMA_IS("24h")},
        {"endpoint", SCHEMA(.values = "/v1/chat/completions,/v1/completions,/v1/embeddings")},
        {"input_file_id", STRING}, {"metadata", SCHEMA_OF("object,null")},
        {"output_expires_after", SCHEMA_OF("object,null")})};

static void write_own_body(json_writer *w, const char *type, const schema *schema) {
    json_member_object_begin(w, "requestBody");
    json_member_boolean(w, "required", true);
    json_member_object_begin(w, "content");
    json_member_object_begin(w, type);
    json_key(w, "schema");
    schema_write(w, schema);
    json_end(w);
    json_end(w);
    json_end(w);
}

static void write_operation(json_writer *w, const api_route *route) {
    json_member_object_begin(w, strcmp(route->method, "GET") == 0    ? "get"
                                : strcmp(route->method, "POST") == 0 ? "post"
                                                                     : "delete");
    json_member_array_begin(w, "tags");
    json_string(w, route->tag);
    json_end(w);
    json_member_string(w, "summary", route->text);
    static const char *const needs[] = {
        [ACCESS_METRICS] = "Needs the key of an administrator or one with \"metrics\".",
        [ACCESS_OWNER] = "Needs the key of an administrator or one with \"own_adapters\".",
        [ACCESS_ADMIN] = "Needs the key of an administrator."};
    if (route->access != ACCESS_ALL)
        json_member_string(w, "description", needs[route->access]);
    if (route->parameters != NULL) {
        json_member_array_begin(w, "parameters");
        route->parameters(w);
        json_end(w);
    }
    if (route->body != BODY_NONE) {
        json_member_object_begin(w, "requestBody");
        json_member_boolean(w, "required", true);
        json_member_object_begin(w, "content");
        json_member_object_begin(w, "application/json");
        write_body_schema(w, route->body);
        json_end(w);
        json_end(w);
        json_end(w);
    }
    if (route->answer == endpoint_upload)
        write_own_body(w, "multipart/form-data", &file_form);
    if (route->answer == endpoint_batch_create)
        write_own_body(w, "application/json", &batch_body);
    json_member_object_begin(w, "responses");
    write_reply(w, route);
    write_errors(w, route);
    json_end(w);
    json_end(w);
}

/* Routes of one path are neighbours in the table. */
static void write_paths(json_writer *w) {
    json_member_object_begin(w, "paths");
    for (size_t i = 0; i < api_route_count; i++) {
        const char *path = api_routes[i].path;
        if (i == 0 || strcmp(path, api_routes[i - 1].path) != 0)
            json_member_object_begin(w, path);
        write_operation(w, &api_routes[i]);
        if (i + 1 == api_route_count || strcmp(path, api_routes[i + 1].path) != 0)
            json_end(w);
    }
    json_end(w);
}

/* What follows from the model: its tokens, and whether a text may be empty. */
static void write_model_schemas(json_writer *w, const api *api) {
    const schema token = {.component = "Token"};
    const schema ids = {.types = "array", .items_min = 1, .items = &token};
    const schema text = {.types = "string", .length_min = prompt_may_be_empty(api) ? 0 : 1};
    json_member_object_begin(w, "Token");
    json_member_string(w, "type", "integer");
    json_member_u64(w, "minimum", 0);
    json_member_u64(w, "maximum", api->info.vocabulary - 1);
    json_end(w);
    json_member_object_begin(w, "OllamaOptions");
    json_member_string(w, "type", "object");
    json_member_object_begin(w, "properties");
    write_fields(w, BODY_OPTIONS);
    json_end(w);
    json_member_boolean(w, "additionalProperties", false);
    json_end(w);
    json_member_object_begin(w, "Prompts");
    json_member_array_begin(w, "anyOf");
    schema_write(w, &text);
    schema_write(w, &ids);
    json_object_begin(w);
    json_member_string(w, "type", "array");
    json_member_u64(w, "minItems", 1);
    json_member_u64(w, "maxItems", API_PROMPTS_MAX);
    json_member_object_begin(w, "items");
    json_member_array_begin(w, "anyOf");
    schema_write(w, &text);
    schema_write(w, &ids);
    json_end(w);
    json_end(w);
    json_end(w);
    json_end(w);
    json_end(w);
}

/* Either kind of key, or none where the server asks for none. */
static void write_security(json_writer *w) {
    static const char *const schemes[] = {"bearer", "key"};
    json_member_array_begin(w, "security");
    for (size_t i = 0; i < 2; i++) {
        json_object_begin(w);
        json_member_array_begin(w, schemes[i]);
        json_end(w);
        json_end(w);
    }
    json_object_begin(w);
    json_end(w);
    json_end(w);
}

static void write_security_schemes(json_writer *w) {
    json_member_object_begin(w, "securitySchemes");
    json_member_object_begin(w, "bearer");
    json_member_string(w, "type", "http");
    json_member_string(w, "scheme", "bearer");
    json_end(w);
    json_member_object_begin(w, "key");
    json_member_string(w, "type", "apiKey");
    json_member_string(w, "in", "header");
    json_member_string(w, "name", "x-api-key");
    json_end(w);
    json_end(w);
}

void openapi_write(json_writer *w, const api *api) {
    json_object_begin(w);
    json_member_string(w, "openapi", "3.1.0");
    json_member_object_begin(w, "info");
    json_member_string(w, "title", "Avocet");
    json_member_string(w, "version", AVO_VERSION_TEXT);
    json_member_string(w, "description",
                       "An LLM inference server. Fields that are not described here are refused.");
    json_end(w);
    json_member_array_begin(w, "servers");
    json_object_begin(w);
    json_member_string(w, "url", "/");
    json_end(w);
    json_end(w);
    write_security(w);
    write_paths(w);
    json_member_object_begin(w, "components");
    write_security_schemes(w);
    json_member_object_begin(w, "schemas");
    for (size_t i = 0; i < sizeof(components) / sizeof(components[0]); i++) {
        json_key(w, components[i].name);
        schema_write(w, components[i].schema);
    }
    write_model_schemas(w, api);
    json_end(w);
    json_end(w);
    json_end(w);
}
