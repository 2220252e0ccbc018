/* The rows: every field of every body. Those of answers that HTTP shares with other interfaces are
 * in chat/fields.h. */
#include "server/api/api_int.h"

#define AT(member)     offsetof(api_request, member)
#define CHAT           BODY_CHAT
#define COMPLETION     BODY_COMPLETION
#define RESPONSE       BODY_RESPONSE
#define MESSAGE        BODY_MESSAGE
#define ANSWERS        BODY_ANSWERS
#define OPENAI         (BODY_CHAT | BODY_COMPLETION)
#define TALKS          (BODY_CHAT | BODY_RESPONSE | BODY_MESSAGE | BODY_COUNT)
#define TOKENS         (BODY_TOKENIZE | BODY_DETOKENIZE)
#define NAMED          (BODY_ANSWERS | BODY_COUNT | BODY_EMBEDDING | TOKENS)
#define TEXT_MAX       ((double)API_TEXT_BYTES_MAX)
#define NO_RANGE       FIELD_NO_RANGE
#define REFUSED        FIELD_REFUSED, NO_RANGE, 0, NULL
#define IGNORED        FIELD_IGNORED, NO_RANGE, 0, NULL
#define TOKEN          SCHEMA_REF("Token") /* what follows from the model: openapi.c */
#define PROMPTS        SCHEMA_REF("Prompts")
#define STRING         SCHEMA_OF("string")
#define STRINGS        SCHEMA(.types = "string,array,null", .items = STRING)
#define STRING_LIST    SCHEMA(.types = "array,null", .items = STRING)
#define OBJECTS        SCHEMA(.types = "array,null", .items = SCHEMA_OF("object"))
#define OBJECT         SCHEMA_OF("object,null")
#define OBJECT_OR_WORD SCHEMA_OF("object,string,null")
#define ADAPTER        OBJECT_OR_WORD
#define ADAPTERS       SCHEMA(.types = "array,null", .items = SCHEMA_OF("object,string"))
#define STOP_TOKENS                                                                                \
    SCHEMA(.types = "array,null", .items_max = REQUEST_STOP_TOKENS_MAX, .items = TOKEN)
#define LOGPROBS                                                                                   \
    SCHEMA(.types = "integer,boolean,null", .bounded = true, .maximum = AVO_TOP_LOGPROBS_MAX)
#define BIAS                                                                                       \
    SCHEMA(.types = "object,null", .members_max = CHAT_BIAS_MAX, .name_pattern = "^[0-9]{1,10}$",  \
           .others = SCHEMA(.types = "number", .bounded = true, .minimum = -1000000000,            \
                            .maximum = 1000000000))
/* Rows of the shared table, and the places of their values. */
#define SUBMIT(member)                              AT(submit.member)
#define SAMPLING(member)                            AT(sampling.member)
#define OWN(member)                                 AT(member)
#define ROW(name, bodies, kind, range, place, text) {name, bodies, kind, range, place, NULL, text},
#define VALUE_ROW(name, bodies, kind, schema, text) {name, bodies, kind, NO_RANGE, 0, schema, text},
#define CONVERSATION(required_, roles, content)                                                    \
    SCHEMA(.types = "array", .items_min = 1, .items_max = 4096,                                    \
           .items = SCHEMA(.types = "object", .required = required_,                               \
                           .members = SCHEMA_MEMBERS({"role", SCHEMA(.values = roles)},            \
                                                     {"content", content})))
#define MESSAGES                                                                                   \
    CONVERSATION("role", "system,developer,user,assistant,tool", SCHEMA_OF("string,array,null"))
#define ANTHROPIC_MESSAGES                                                                         \
    CONVERSATION("role,content", "user,assistant",                                                 \
                 SCHEMA(.types = "string,array", .items_min = 1, .items_max = 4096))

const api_field api_field_table[] = {
    {"model", NAMED, FIELD_STRING, 0, API_NAME_BYTES_MAX, AT(model), NULL,
     "base model or adapter, by name (default: the base model)"},
    CHAT_FIELDS(ROW, VALUE_ROW) /* */

    /* Prompts */
    {"messages", CHAT, FIELD_VALUE, NO_RANGE, 0, MESSAGES,
     "conversation: role and content; the content is a string or parts of type text"},
    {"messages", MESSAGE | BODY_COUNT, FIELD_VALUE, NO_RANGE, 0, ANTHROPIC_MESSAGES,
     "conversation: role and content; the content is a string or parts of type text"},
    {"messages", BODY_TOKENIZE, FIELD_VALUE, NO_RANGE, 0, MESSAGES,
     "conversation instead of a text, rendered with the chat template"},
    {"prompt", COMPLETION, FIELD_VALUE, NO_RANGE, 0, PROMPTS,
     "string, list of strings, list of token ids or list of such lists"},
    {"prompt", BODY_TOKENIZE, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("string,null"),
     "text (name used by vLLM)"},
    {"content", BODY_TOKENIZE, FIELD_STRING, 0, API_TOKENIZE_BYTES_MAX, AT(content), NULL,
     "text (name used by llama.cpp)"},
    {"input", RESPONSE, FIELD_VALUE, NO_RANGE, 0,
     SCHEMA(.types = "string,array", .items_min = 1, .items = SCHEMA_OF("object")),
     "string, or items: messages, function_call, function_call_output"},
    {"input", BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, PROMPTS,
     "string, list of strings, list of token ids or list of such lists"},
    {"system", MESSAGE | BODY_COUNT, FIELD_VALUE, NO_RANGE, 0,
     SCHEMA(.types = "string,array,null", .items = SCHEMA_OF("object")),
     "system message: string, or blocks of type text"},
    {"instructions", RESPONSE, FIELD_STRING, 0, TEXT_MAX, AT(instructions), NULL,
     "system message before the input"},
    {"add_generation_prompt", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_generation_prompt),
     NULL, "with messages: begin the assistant's turn at the end (default true)"},
    {"add_special", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_special), NULL,
     "add the BOS token if the model uses one (default false; name used by llama.cpp)"},
    {"add_special_tokens", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_special), NULL,
     "same as add_special (name used by vLLM)"},
    {"parse_special", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(parse_special), NULL,
     "recognise special tokens in the text (default: false with content, true with prompt, as "
     "llama.cpp and vLLM do)"},
    {"with_pieces", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(with_pieces), NULL,
     "return tokens as objects with id and piece (llama.cpp)"},
    {"return_token_strs", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(return_token_strs), NULL,
     "also return token_strs (vLLM)"},
    {"tokens", BODY_DETOKENIZE, FIELD_VALUE, NO_RANGE, 0, SCHEMA_LIST(TOKEN), "token ids"},

    /* How much, how many */
    {"max_tokens", COMPLETION, FIELD_U32, 0, REQUEST_NEW_TOKENS_MAX, AT(submit.max_new_tokens),
     NULL, "maximum number of new tokens (default 16); 0 returns the prompt only"},
    {"max_tokens", CHAT, FIELD_U32, 1, REQUEST_NEW_TOKENS_MAX, AT(submit.max_new_tokens), NULL,
     "maximum number of new tokens (default: until the model ends)"},
    {"max_tokens", MESSAGE, FIELD_U32, 1, REQUEST_NEW_TOKENS_MAX, AT(submit.max_new_tokens), NULL,
     "maximum number of new tokens"},
    {"max_completion_tokens", CHAT, FIELD_U32, 1, REQUEST_NEW_TOKENS_MAX, AT(submit.max_new_tokens),
     NULL, "same as max_tokens, and takes precedence"},
    {"max_output_tokens", RESPONSE, FIELD_U32, 1, REQUEST_NEW_TOKENS_MAX, AT(submit.max_new_tokens),
     NULL, "maximum number of new tokens"},
    {"n", OPENAI, FIELD_U32, 1, API_CHOICES_MAX, AT(n), NULL,
     "number of answers; answer i is the same as a single one with seed + i"},
    {"best_of", COMPLETION, FIELD_U32, 1, API_CHOICES_MAX, AT(best_of), NULL,
     "number of answers to compute; the n with the highest mean log-probability are returned"},
    {"stop_sequences", MESSAGE, FIELD_VALUE, NO_RANGE, 0, STRING_LIST,
     "strings that end the answer and are not part of it"},

    /* What is told besides the text */
    {"include", RESPONSE, FIELD_VALUE, NO_RANGE, 0, STRING_LIST,
     "message.output_text.logprobs; others are ignored"},
    {"echo", COMPLETION, FIELD_BOOLEAN, NO_RANGE, AT(echo), NULL,
     "return the prompt before the answer; with logprobs also those of its tokens"},
    {"stream", ANSWERS, FIELD_BOOLEAN, NO_RANGE, AT(stream), NULL,
     "send the answer as server-sent events while it is generated"},
    {"stream_options", OPENAI, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "include_usage: send a last event with the usage"},

    {"reasoning_format", CHAT, FIELD_STRING, 0, 16, AT(reasoning_format), NULL,
     "none (default): reasoning stays in the content; deepseek or auto: in reasoning_content"},

    {"text", RESPONSE, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "format: type text, json_object or json_schema with its schema"},

    /* Adapters and service */
    {"lora", ANSWERS | BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "adapters by id, [{\"id\", \"scale\"}], as in llama.cpp"},

    /* Embeddings */
    {"encoding_format", BODY_EMBEDDING, FIELD_STRING, 0, 16, AT(encoding_format), NULL,
     "float (default) or base64, of little-endian 32-bit floats"},
    {"dimensions", BODY_EMBEDDING, FIELD_U32, 1, 1 << 24, AT(dimensions), NULL,
     "return the first N numbers, normalised again"},
    {"pooling", BODY_EMBEDDING, FIELD_STRING, 0, 16, AT(pooling), NULL,
     "mean (default) over all tokens, or last"},
    {"normalize", BODY_EMBEDDING, FIELD_BOOLEAN, NO_RANGE, AT(normalize), NULL,
     "unit vectors (default true)"},

    /* Adapters of the server */
    {"lora_name", BODY_LOAD | BODY_UNLOAD, FIELD_STRING, 0, API_NAME_BYTES_MAX, AT(lora_name), NULL,
     "name of the adapter"},
    {"lora_path", BODY_LOAD, FIELD_STRING, 0, API_PATH_BYTES_MAX, AT(lora_path), NULL,
     "folder or file, inside the server's adapter folder"},

    /* Without effect here */
    {"id", OPENAI, IGNORED, "ignored; the answer has an id of its own"},
    {"reasoning", RESPONSE, IGNORED, "ignored; no model supports it"},
    {"cache_control", MESSAGE | BODY_COUNT, IGNORED, "ignored; prefixes are always cached"},
    {"inference_geo", MESSAGE, IGNORED, "ignored; the server runs where it runs"},
    {"stream_options", RESPONSE, IGNORED, "ignored; nothing is obfuscated"},

    /* How objects of --prompts, C and Python say what endpoints and keys say here */
    {"prompt", CHAT, REFUSED, "use messages, or /v1/completions"},
    {"messages", COMPLETION, REFUSED, "use /v1/chat/completions"},
    {"tools", COMPLETION, REFUSED, "use /v1/chat/completions"},
    {"tool_choice", COMPLETION, REFUSED, "use /v1/chat/completions"},
    {"parallel_tool_calls", COMPLETION, REFUSED, "use /v1/chat/completions"},
    {"chat_template_kwargs", COMPLETION, REFUSED, "use /v1/chat/completions"},
    {"tokens", CHAT, REFUSED, "use /v1/completions with the ids as its prompt"},
    {"tokens", COMPLETION, REFUSED, "give the ids as the prompt"},
    {"system", CHAT, REFUSED, "use a message with role system"},
    {"system", COMPLETION, REFUSED, "use /v1/chat/completions"},
    {"raw", CHAT, REFUSED, "use /v1/completions"},
    {"raw", COMPLETION, REFUSED, "prompts are never rendered with the chat template here"},
    {"tenant", OPENAI, REFUSED, "it is the name of the API key"},
    {"no_answer", OPENAI, REFUSED, "use /v1/completions with max_tokens 0"},
    {"pooling", OPENAI, REFUSED, "use /v1/embeddings"},
    {"prompt_logprobs", OPENAI, REFUSED, "use /v1/completions with echo and logprobs"},

    /* Not there */
    {"previous_response_id", RESPONSE, REFUSED, "nothing is stored; send the whole conversation"},
    {"conversation", RESPONSE, REFUSED, "nothing is stored; send the whole conversation"},
    {"background", RESPONSE, REFUSED, "nothing is stored; wait for the answer or stream it"},
    {"prompt", RESPONSE, REFUSED, "there are no stored prompts"},
    {"truncation", RESPONSE, REFUSED, "conversations are never cut silently"},
    {"thinking", MESSAGE | BODY_COUNT, IGNORED, "ignored; no model supports it"},
    {"output_config", MESSAGE | BODY_COUNT, REFUSED, "use grammar or tools"},
    {"context_management", MESSAGE | BODY_COUNT, REFUSED, "conversations are never cut silently"},
    {"max_tool_calls", RESPONSE, REFUSED, "there are no built-in tools"},
    {"container", MESSAGE, REFUSED, "there are no containers"},
    {"mcp_servers", MESSAGE | BODY_COUNT, REFUSED, "the server has no access to other servers"},
};
const size_t api_field_count = sizeof(api_field_table) / sizeof(api_field_table[0]);
_Static_assert(sizeof(api_field_table) / sizeof(api_field_table[0]) <= API_FIELDS_MAX,
               "the names of a body's fields are listed in an array of this size");

const char *api_required(api_body body) {
    switch (body) {
    case BODY_CHAT:
    case BODY_COUNT:
        return "messages";
    case BODY_COMPLETION:
        return "prompt";
    case BODY_MESSAGE:
        return "messages,max_tokens";
    case BODY_RESPONSE:
    case BODY_EMBEDDING:
        return "input";
    case BODY_DETOKENIZE:
        return "tokens";
    case BODY_LOAD:
        return "lora_name,lora_path";
    case BODY_UNLOAD:
        return "lora_name";
    default:
        return "";
    }
}
