/* The rows: every field of every body. */
#include "server/api/api_int.h"
#include "spec/spec.h"

#include "engine/request.h"
#include "sample/sample.h"

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
#define WHOLE          -9.3e18, 9.3e18
#define NO_RANGE       0, 0
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
    {"chat_template_kwargs", CHAT | BODY_TOKENIZE, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "additional variables for the chat template, such as enable_thinking"},
    {"add_generation_prompt", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_generation_prompt),
     NULL, "with messages: begin the assistant's turn at the end (default true)"},
    {"add_special", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_special), NULL,
     "add the BOS token if the model uses one (default false; name used by llama.cpp)"},
    {"add_special_tokens", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_special), NULL,
     "same as add_special (name used by vLLM)"},
    {"parse_special", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(parse_special), NULL,
     "recognise special tokens in the text (default false)"},
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
    {"stop", OPENAI, FIELD_VALUE, NO_RANGE, 0, STRINGS,
     "string or up to 64 strings of at most 1024 bytes that end the answer and are not part of it"},
    {"stop_sequences", MESSAGE, FIELD_VALUE, NO_RANGE, 0, STRING_LIST,
     "strings that end the answer and are not part of it"},
    {"stop_token_ids", OPENAI, FIELD_VALUE, NO_RANGE, 0,
     SCHEMA(.types = "array,null", .items_max = REQUEST_STOP_TOKENS_MAX, .items = TOKEN),
     "tokens that end the answer, in addition to the model's own"},
    {"ignore_eos", OPENAI, FIELD_BOOLEAN, NO_RANGE, AT(submit.ignore_end), NULL,
     "continue after EOS tokens"},

    /* Sampling; absent: what the model recommends, else greedy */
    {"temperature", ANSWERS, FIELD_FLOAT, SAMPLING_TEMPERATURE, AT(sampling.temperature), NULL,
     "sampling temperature; 0: always the most likely token (default: the model's own, else 0)"},
    {"top_p", ANSWERS, FIELD_FLOAT, SAMPLING_PROBABILITY, AT(sampling.top_p), NULL,
     "sample from the most likely tokens with this total probability"},
    {"top_k", ANSWERS, FIELD_U32, -1, SAMPLING_TOP_K_MAX, AT(sampling.top_k), NULL,
     "sample from this many of the most likely tokens; 0 or -1: all"},
    {"min_p", ANSWERS, FIELD_FLOAT, SAMPLING_PROBABILITY, AT(sampling.min_p), NULL,
     "drop tokens less than this many times as likely as the most likely one"},
    {"typical_p", ANSWERS, FIELD_FLOAT, SAMPLING_TYPICAL, AT(sampling.typical_p), NULL,
     "sample from the most typical tokens with this total probability"},
    {"repetition_penalty", ANSWERS, FIELD_FLOAT, SAMPLING_REPETITION,
     AT(sampling.repetition_penalty), NULL,
     "divide the logits of tokens in the prompt or answer by this number"},
    {"repeat_penalty", OPENAI, FIELD_FLOAT, SAMPLING_REPETITION, AT(sampling.repetition_penalty),
     NULL, "same as repetition_penalty (name used by llama.cpp)"},
    {"presence_penalty", OPENAI, FIELD_FLOAT, SAMPLING_PENALTY, AT(sampling.presence_penalty), NULL,
     "subtracted from the logits of tokens in the answer"},
    {"frequency_penalty", OPENAI, FIELD_FLOAT, SAMPLING_PENALTY, AT(sampling.frequency_penalty),
     NULL, "subtracted for each time a token is in the answer"},
    {"logit_bias", OPENAI, FIELD_VALUE, NO_RANGE, 0,
     SCHEMA(.types = "object,null", .members_max = 1024, .name_pattern = "^[0-9]{1,10}$",
            .others = SCHEMA(.types = "number", .bounded = true, .minimum = -1000000000,
                             .maximum = 1000000000)),
     "map of token ids to numbers added to their "
     "logits; -100 or less forbids the token"},
    {"seed", ANSWERS, FIELD_SEED, WHOLE, AT(sampling.seed), NULL,
     "the same seed gives the same bytes; absent or -1: a random one, which the answer contains"},

    /* What is told besides the text */
    {"logprobs", CHAT, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("boolean,null"),
     "return log-probabilities of the answer's tokens"},
    {"logprobs", COMPLETION, FIELD_VALUE, NO_RANGE, 0,
     SCHEMA(.types = "integer,boolean,null", .bounded = true, .maximum = 20),
     "return log-probabilities of the tokens and of this many most likely ones"},
    {"top_logprobs", CHAT | RESPONSE, FIELD_U32, 0, AVO_TOP_LOGPROBS_MAX, AT(sampling.top_logprobs),
     NULL, "number of most likely tokens to return with each; needs logprobs"},
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

    /* Constraints */
    {"response_format", OPENAI, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "type: text, json_object or json_schema with its schema"},
    {"text", RESPONSE, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "format: type text, json_object or json_schema with its schema"},
    {"grammar", ANSWERS, FIELD_STRING, 0, CHAT_GRAMMAR_BYTES_MAX, AT(grammar), NULL,
     "grammar in llama.cpp's GBNF with rule root, which the answer follows"},
    {"tools", TALKS, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "functions the model may call: name, description, parameters as a JSON schema"},
    {"tool_choice", TALKS, FIELD_VALUE, NO_RANGE, 0, OBJECT_OR_WORD,
     "none, auto, required (in messages: any), or one function by name"},
    {"parallel_tool_calls", CHAT | RESPONSE, FIELD_BOOLEAN, NO_RANGE, AT(parallel_calls), NULL,
     "allow more than one call in an answer (default true)"},

    /* Adapters and service */
    {"adapters", ANSWERS | BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "adapters with weights, [{\"name\", \"weight\"}], instead of one selected by model"},
    {"lora", ANSWERS | BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "adapters by id, [{\"id\", \"scale\"}], as in llama.cpp"},
    {"deadline_ms", ANSWERS | BODY_EMBEDDING, FIELD_MILLISECONDS, 0, 1e3 * REQUEST_SECONDS_MAX,
     AT(submit.deadline), NULL,
     "time limit for the whole answer; the text generated so far is returned"},
    {"first_token_deadline_ms", ANSWERS, FIELD_MILLISECONDS, 0, 1e3 * REQUEST_SECONDS_MAX,
     AT(submit.first_token_deadline), NULL, "time limit for the first token, else 504"},
    {"priority", ANSWERS | BODY_EMBEDDING, FIELD_U32, 0, REQUEST_PRIORITY_MAX, AT(submit.priority),
     NULL, "0 (served first) to 15 (default 8); never better than the key's"},
    {"cache_salt", ANSWERS | BODY_EMBEDDING, FIELD_STRING, 0, API_NAME_BYTES_MAX,
     AT(submit.cache_salt), NULL,
     "prefixes are shared only with requests of the same key and salt"},
    {"speculation", ANSWERS, FIELD_STRING, 0, API_NAME_BYTES_MAX, AT(submit.speculate), NULL,
     "draft sources: off, auto (default) or a list such as suffix,corpus; within those of the "
     "server; the answer is the same"},
    {"draft_tokens", ANSWERS, FIELD_U32, 1, DRAFTS_MAX, AT(submit.draft_tokens), NULL,
     "maximum number of draft tokens in one step; at most the server's"},

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
    {"user", ANSWERS | BODY_EMBEDDING, IGNORED, "ignored; for use by the client"},
    {"metadata", ANSWERS, IGNORED, "ignored; for use by the client"},
    {"store", CHAT | RESPONSE, IGNORED, "ignored; nothing is stored"},
    {"service_tier", ANSWERS, IGNORED, "ignored; there is one tier"},
    {"safety_identifier", CHAT | RESPONSE, IGNORED, "ignored; for use by the client"},
    {"prompt_cache_key", CHAT | RESPONSE, IGNORED, "ignored; prefixes are found by their content"},
    {"reasoning_effort", CHAT, IGNORED, "ignored; no model supports it"},
    {"reasoning", RESPONSE, IGNORED, "ignored; no model supports it"},
    {"verbosity", CHAT, IGNORED, "ignored; no model supports it"},
    {"prediction", CHAT, IGNORED, "ignored; a hint for speed"},
    {"prompt_cache_retention", CHAT | RESPONSE, IGNORED, "ignored; prefixes are always cached"},
    {"cache_prompt", OPENAI, IGNORED, "ignored; prefixes are always cached"},
    {"cache_control", MESSAGE | BODY_COUNT, IGNORED, "ignored; prefixes are always cached"},
    {"inference_geo", MESSAGE, IGNORED, "ignored; the server runs where it runs"},
    {"stream_options", RESPONSE, IGNORED, "ignored; nothing is obfuscated"},

    /* Not there */
    {"suffix", COMPLETION, REFUSED, "the model cannot fill in the middle"},
    {"audio", CHAT, REFUSED, "answers are text only"},
    {"modalities", CHAT, FIELD_VALUE, NO_RANGE, 0, STRING_LIST, "[\"text\"]; audio is refused"},
    {"functions", CHAT, REFUSED, "use tools"},
    {"function_call", CHAT, REFUSED, "use tool_choice"},
    {"web_search_options", CHAT, REFUSED, "the server has no web access"},
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
