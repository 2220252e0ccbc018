/* /openapi.json: the routes and the fields of their tables as an OpenAPI 3.1 document. */
#include "server/api/api_int.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- What answers look like: schemas with ' for " ---- */

#define STRING  "{'type':'string'}"
#define INTEGER "{'type':'integer'}"
#define NUMBER  "{'type':'number'}"
#define USAGE                                                                                      \
    "{'type':['object','null'],'properties':{'prompt_tokens':" INTEGER                             \
    ",'completion_tokens':" INTEGER ",'total_tokens':" INTEGER                                     \
    ",'prompt_tokens_details':{'type':'object','properties':{'cached_tokens':" INTEGER             \
    "}},'timings':{'$ref':'#/components/schemas/Timings'}}}"
#define ANTHROPIC_USAGE                                                                            \
    "{'type':'object','properties':{'input_tokens':" INTEGER ",'output_tokens':" INTEGER           \
    ",'cache_read_input_tokens':" INTEGER ",'timings':{'$ref':'#/components/schemas/Timings'}}}"
#define CHOICE_END                                                                                 \
    "'finish_reason':{'enum':['stop','length','tool_calls',null]},'stop_reason':{"                 \
    "'type':['string','null'],'description':'the stop text, or deadline, or context'},"            \
    "'seed':" INTEGER

typedef struct component {
    const char *name, *schema;
} component;

static const component components[] = {
    {"Error", "{'type':'object','required':['error'],'properties':{'error':{'type':"
              "'object','required':['message','type'],'properties':{'message':" STRING
              ",'type':" STRING ",'param':{'type':['string','null']},'code':{"
              "'type':['string','null']}}}}}"},
    {"AnthropicError", "{'type':'object','required':['type','error'],'properties':{'type':{'const':"
                       "'error'},'error':{'type':'object','properties':{'type':" STRING
                       ",'message':" STRING "}},'request_id':" STRING "}}"},
    {"Timings", "{'type':'object','properties':{'queue_ms':" NUMBER ",'first_token_ms':" NUMBER
                ",'total_ms':" NUMBER ",'tokens_per_second':" NUMBER "}}"},
    {"ChatCompletion", "{'type':'object','required':['id','object','created','model','choices'],"
                       "'properties':{'id':" STRING
                       ",'object':{'const':'chat.completion'},'created':" INTEGER ",'model':" STRING
                       ",'system_fingerprint':" STRING ",'choices':{'type':'array','items':{'type':"
                       "'object','properties':{'index':" INTEGER
                       ",'message':{'type':'object','properties':{'role':{'const':'assistant'},"
                       "'content':{'type':['string','null']},'tool_calls':{'type':'array','items':{"
                       "'type':'object'}}}},'logprobs':{'type':['object','null']}," CHOICE_END
                       "}}},'usage':" USAGE "}}"},
    {"Completion", "{'type':'object','required':['id','object','created','model','choices'],"
                   "'properties':{'id':" STRING
                   ",'object':{'const':'text_completion'},'created':" INTEGER ",'model':" STRING
                   ",'system_fingerprint':" STRING ",'choices':{'type':'array','items':{'type':"
                   "'object','properties':{'index':" INTEGER ",'text':" STRING
                   ",'logprobs':{'type':['object','null']}," CHOICE_END "}}},'usage':" USAGE "}}"},
    {"Response", "{'type':'object','required':['id','object','created_at','model','status',"
                 "'output'],'properties':{'id':" STRING ",'object':{'const':'response'},"
                 "'created_at':" INTEGER ",'model':" STRING
                 ",'status':{'enum':['completed','incomplete','in_progress','failed']},'output':{"
                 "'type':'array','items':{'type':'object'}},'usage':{'type':['object',"
                 "'null']}}}"},
    {"Message", "{'type':'object','required':['id','type','role','content','model'],"
                "'properties':{'id':" STRING ",'type':{'const':'message'},'role':{'const':"
                "'assistant'},'model':" STRING ",'content':{'type':'array','items':{'type':"
                "'object'}},'stop_reason':{'enum':['end_turn','max_tokens','stop_sequence',"
                "'tool_use',null]},'stop_sequence':{'type':['string','null']},"
                "'usage':" ANTHROPIC_USAGE "}}"},
    {"Count", "{'type':'object','required':['input_tokens'],'properties':{"
              "'input_tokens':" INTEGER "}}"},
    {"Embeddings", "{'type':'object','required':['object','data','model'],'properties':{'object':"
                   "{'const':'list'},'model':" STRING ",'data':{'type':'array','items':{'type':"
                   "'object','properties':{'index':" INTEGER ",'embedding':{'type':['array',"
                   "'string'],'items':" NUMBER "}}}},'usage':" USAGE "}}"},
    {"Model",
     "{'type':'object','required':['id','object','created','owned_by'],"
     "'properties':{'id':" STRING ",'object':{'const':'model'},'created':" INTEGER
     ",'owned_by':" STRING ",'root':" STRING
     ",'parent':{'type':['string','null']},'max_model_len':" INTEGER ",'meta':{'type':'object'}}}"},
    {"Models", "{'type':'object','required':['object','data'],'properties':{'object':"
               "{'const':'list'},'data':{'type':'array','items':{'$ref':"
               "'#/components/schemas/Model'}}}}"},
    {"Tokens", "{'type':'object','required':['tokens','count'],'properties':{"
               "'tokens':{'type':'array','items':{'type':['integer','object']}},"
               "'count':" INTEGER ",'max_model_len':" INTEGER
               ",'token_strs':{'type':'array','items':" STRING "}}}"},
    {"Text", "{'type':'object','required':['content','prompt'],'properties':{"
             "'content':" STRING ",'prompt':" STRING "}}"},
    {"Adapters", "{'type':'array','items':{'type':'object','properties':{'id':" INTEGER
                 ",'name':" STRING ",'path':" STRING ",'scale':" NUMBER "}}}"},
    {"Success", "{'type':'object','properties':{'success':{'const':true}}}"},
    {"Health", "{'type':'object','required':['status'],'properties':{'status':{"
               "'enum':['ok','ready','draining','stalled']},'running':" INTEGER
               ",'waiting':" INTEGER ",'steps':" INTEGER ",'still_seconds':" NUMBER "}}"},
    {"Version",
     "{'type':'object','required':['version','model'],'properties':{"
     "'version':" STRING ",'model':" STRING ",'architecture':" STRING ",'isa':" STRING
     ",'context':" INTEGER ",'tools':{'type':['string','null']},'chat':{'type':'boolean'},"
     "'limits':{'type':'object'}}}"},
    {"Telemetry", "{'type':'object'}"},
    {"Trace", "{'type':['object','array']}"},
    {"Document", "{'type':'object'}"},
};

/* ---- Fields ---- */

static void write_schema(json_writer *w, const api_field *field) {
    switch (field->kind) {
    case FIELD_BOOLEAN:
        json_member_quoted(w, "type", "['boolean','null']");
        break;
    case FIELD_SEED:
        json_member_quoted(w, "type", "['integer','null']");
        json_member_i64(w, "minimum", -INT64_MAX);
        json_member_i64(w, "maximum", INT64_MAX);
        break;
    case FIELD_U32:
        json_member_quoted(w, "type", "['integer','null']");
        json_member_fixed(w, "minimum", field->minimum, 0);
        json_member_fixed(w, "maximum", field->maximum, 0);
        break;
    case FIELD_FLOAT:
    case FIELD_MILLISECONDS:
        json_member_quoted(w, "type", "['number','null']");
        json_member_number(w, "minimum", field->minimum);
        json_member_number(w, "maximum", field->maximum);
        break;
    case FIELD_STRING:
        json_member_quoted(w, "type", "['string','null']");
        json_member_fixed(w, "maxLength", field->maximum, 0);
        break;
    case FIELD_VALUE:
        json_quoted_members(w, field->schema);
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

/* A comma separated list. */
static void write_words(json_writer *w, const char *words) {
    while (*words != '\0') {
        size_t length = strcspn(words, ",");
        json_text(w, (text_view){words, length});
        words += length + (words[length] == ',');
    }
}

#define NEEDS(field, type)                                                                         \
    "{'required':['" field "'],'properties':{'" field "':{'type':'" type "'}}}"

static void write_body_schema(json_writer *w, api_body body) {
    if (body == BODY_SCALES) {
        json_member_quoted(w, "schema",
                           "{'type':'array','maxItems':1024,'items':{'type':'object','required':["
                           "'id','scale'],'properties':{'id':{'type':'integer','minimum':0},"
                           "'scale':{'type':'number','minimum':-10000,'maximum':10000}}}}");
        return;
    }
    json_member_object_begin(w, "schema");
    json_member_string(w, "type", "object");
    json_member_array_begin(w, "required");
    write_words(w, api_required(body));
    json_end(w);
    json_member_object_begin(w, "properties");
    write_fields(w, body);
    json_end(w);
    if (body == BODY_TOKENIZE)
        json_member_quoted(w, "anyOf",
                           "[" NEEDS("content", "string") "," NEEDS("prompt", "string") "," NEEDS(
                               "messages", "array") "]");
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
        return "the server is full, draining or stalled; retry after Retry-After seconds";
    default:
        return "the deadline passed before the first token";
    }
}

static void write_reference(json_writer *w, const char *component) {
    char path[64];
    snprintf(path, sizeof(path), "#/components/schemas/%s", component);
    json_member_object_begin(w, "schema");
    json_member_string(w, "$ref", path);
    json_end(w);
}

static void write_errors(json_writer *w, const api_route *route) {
    bool anthropic = strcmp(route->tag, "Anthropic") == 0;
    const char *schema = anthropic ? "AnthropicError" : "Error";
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
    if (route->schema == NULL)
        json_member_quoted(w, "schema", STRING);
    else
        write_reference(w, route->schema);
    json_end(w);
    if (((uint32_t)route->body & BODY_ANSWERS) != 0)
        json_member_quoted(w, "text/event-stream", "{'schema':" STRING "}");
    json_end(w);
    json_end(w);
}

static void write_operation(json_writer *w, const api_route *route) {
    json_member_object_begin(w, strcmp(route->method, "GET") == 0 ? "get" : "post");
    json_member_array_begin(w, "tags");
    json_string(w, route->tag);
    json_end(w);
    json_member_string(w, "summary", route->text);
    if (route->admin)
        json_member_string(w, "description", "Needs the key of an administrator.");
    if (route->parameters != NULL) {
        json_member_array_begin(w, "parameters");
        json_quoted(w, route->parameters);
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
    const char *text = prompt_may_be_empty(api) ? STRING : "{'type':'string','minLength':1}";
    const char *ids = "{'type':'array','minItems':1,'items':{'$ref':'#/components/schemas/Token'}}";
    json_member_object_begin(w, "Token");
    json_member_string(w, "type", "integer");
    json_member_u64(w, "minimum", 0);
    json_member_u64(w, "maximum", api->info.vocabulary - 1);
    json_end(w);
    json_member_object_begin(w, "Prompts");
    json_member_array_begin(w, "anyOf");
    json_quoted(w, text);
    json_quoted(w, ids);
    json_object_begin(w);
    json_member_string(w, "type", "array");
    json_member_u64(w, "minItems", 1);
    json_member_u64(w, "maxItems", API_PROMPTS_MAX);
    json_member_object_begin(w, "items");
    json_member_array_begin(w, "anyOf");
    json_quoted(w, text);
    json_quoted(w, ids);
    json_end(w);
    json_end(w);
    json_end(w);
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
                       "An LLM inference server. Fields that are not described here are ignored.");
    json_end(w);
    json_member_quoted(w, "servers", "[{'url':'/'}]");
    json_member_quoted(w, "security", "[{'bearer':[]},{'key':[]},{}]");
    write_paths(w);
    json_member_object_begin(w, "components");
    json_member_quoted(w, "securitySchemes",
                       "{'bearer':{'type':'http','scheme':'bearer'},'key':{'type':'apiKey','in':"
                       "'header','name':'x-api-key'}}");
    json_member_object_begin(w, "schemas");
    for (size_t i = 0; i < sizeof(components) / sizeof(components[0]); i++)
        json_member_quoted(w, components[i].name, components[i].schema);
    write_model_schemas(w, api);
    json_end(w);
    json_end(w);
    json_end(w);
}
