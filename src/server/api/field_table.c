/* The rows: every field of every body. Schemas in JSON Schema as OpenAPI 3.1 has it, with ' for ".
 */
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
#define WHOLE          -9.3e18, 9.3e18
#define NO_RANGE       0, 0
#define REFUSED        FIELD_REFUSED, NO_RANGE, 0, NULL
#define IGNORED        FIELD_IGNORED, NO_RANGE, 0, NULL
#define STRINGS        "{'type':['string','array','null'],'items':{'type':'string'}}"
#define OBJECTS        "{'type':['array','null'],'items':{'type':'object'}}"
#define OBJECT         "{'type':['object','null']}"
#define OBJECT_OR_WORD "{'type':['object','string','null']}"
#define CONVERSATION(message)                                                                      \
    "{'type':'array','minItems':1,'maxItems':4096,'items':{'type':'object'," message "}}"
#define MESSAGES                                                                                   \
    CONVERSATION("'required':['role'],'properties':{'role':{'enum':['system',"                     \
                 "'developer','user','assistant','tool']},'content':{'type':["                     \
                 "'string','array','null']}}")
#define ANTHROPIC_MESSAGES                                                                         \
    CONVERSATION("'required':['role','content'],'properties':{'role':{'enum':['user',"             \
                 "'assistant']},'content':{'type':['string','array'],'minItems':1,"                \
                 "'maxItems':4096}}")
/* What follows from the model is written with the document (openapi.c). */
#define TOKEN   "{'$ref':'#/components/schemas/Token'}"
#define PROMPTS "{'$ref':'#/components/schemas/Prompts'}"

const api_field api_field_table[] = {
    {"model", NAMED, FIELD_STRING, 0, API_NAME_BYTES_MAX, AT(model), NULL,
     "the base model or an adapter, by name; absent: the base model"},

    /* Prompts */
    {"messages", CHAT, FIELD_VALUE, NO_RANGE, 0, MESSAGES,
     "the conversation: role and content, a text or parts of type text"},
    {"messages", MESSAGE | BODY_COUNT, FIELD_VALUE, NO_RANGE, 0, ANTHROPIC_MESSAGES,
     "the conversation: role and content, a text or parts of type text"},
    {"messages", BODY_TOKENIZE, FIELD_VALUE, NO_RANGE, 0, MESSAGES,
     "instead of a text: a conversation, rendered with the model's template"},
    {"prompt", COMPLETION, FIELD_VALUE, NO_RANGE, 0, PROMPTS,
     "a text, a list of texts, a list of token ids or a list of such lists"},
    {"prompt", BODY_TOKENIZE, FIELD_VALUE, NO_RANGE, 0, "{'type':['string','null']}",
     "the text, as vLLM calls it"},
    {"content", BODY_TOKENIZE, FIELD_STRING, 0, API_TOKENIZE_BYTES_MAX, AT(content), NULL,
     "the text, as llama.cpp calls it"},
    {"input", RESPONSE, FIELD_VALUE, NO_RANGE, 0,
     "{'type':['string','array'],'minItems':1,'items':{'type':'object'}}",
     "a text, or items: messages, function_call, function_call_output"},
    {"input", BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, PROMPTS,
     "a text, a list of texts, a list of token ids or a list of such lists"},
    {"system", MESSAGE | BODY_COUNT, FIELD_VALUE, NO_RANGE, 0,
     "{'type':['string','array','null'],'items':{'type':'object'}}",
     "the system message: a text, or blocks of type text"},
    {"instructions", RESPONSE, FIELD_STRING, 0, TEXT_MAX, AT(instructions), NULL,
     "a system message in front of the input"},
    {"chat_template_kwargs", CHAT | BODY_TOKENIZE, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "more variables for the model's template, such as enable_thinking"},
    {"add_generation_prompt", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_generation_prompt),
     NULL, "with messages: open the assistant's turn at the end (default true)"},
    {"add_special", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_special), NULL,
     "put the begin token in front where the model wants one (default false; llama.cpp's name)"},
    {"add_special_tokens", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(add_special), NULL,
     "the same (vLLM's name)"},
    {"parse_special", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(parse_special), NULL,
     "special tokens written in the text count as such (default false)"},
    {"with_pieces", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(with_pieces), NULL,
     "tokens as objects with id and piece (llama.cpp)"},
    {"return_token_strs", BODY_TOKENIZE, FIELD_BOOLEAN, NO_RANGE, AT(return_token_strs), NULL,
     "token_strs beside the ids (vLLM)"},
    {"tokens", BODY_DETOKENIZE, FIELD_VALUE, NO_RANGE, 0, "{'type':'array','items':" TOKEN "}",
     "the ids"},

    /* How much, how many */
    {"max_tokens", COMPLETION, FIELD_U32, 0, API_TOKENS_MAX, AT(submit.max_new_tokens), NULL,
     "tokens of the answer at most; default 16; 0 answers with the prompt alone"},
    {"max_tokens", CHAT, FIELD_U32, 1, API_TOKENS_MAX, AT(submit.max_new_tokens), NULL,
     "tokens of the answer at most; absent: until the model ends"},
    {"max_tokens", MESSAGE, FIELD_U32, 1, API_TOKENS_MAX, AT(submit.max_new_tokens), NULL,
     "tokens of the answer at most"},
    {"max_completion_tokens", CHAT, FIELD_U32, 1, API_TOKENS_MAX, AT(submit.max_new_tokens), NULL,
     "the same as max_tokens, and stronger"},
    {"max_output_tokens", RESPONSE, FIELD_U32, 1, API_TOKENS_MAX, AT(submit.max_new_tokens), NULL,
     "tokens of the answer at most"},
    {"n", OPENAI, FIELD_U32, 1, API_CHOICES_MAX, AT(n), NULL,
     "answers; the i-th is the one that seed + i gives alone"},
    {"best_of", COMPLETION, FIELD_U32, 1, API_CHOICES_MAX, AT(best_of), NULL,
     "answers computed, of which the n with the highest mean log-probability are returned"},
    {"stop", OPENAI, FIELD_VALUE, NO_RANGE, 0, STRINGS,
     "texts that end the answer and are no part of it: one, or up to 64 of 1024 bytes"},
    {"stop_sequences", MESSAGE, FIELD_VALUE, NO_RANGE, 0,
     "{'type':['array','null'],'items':{'type':'string'}}",
     "texts that end the answer and are no part of it"},
    {"stop_token_ids", OPENAI, FIELD_VALUE, NO_RANGE, 0,
     "{'type':['array','null'],'maxItems':64,'items':" TOKEN "}",
     "tokens that end the answer, beside the model's own"},
    {"ignore_eos", OPENAI, FIELD_BOOLEAN, NO_RANGE, AT(submit.ignore_end), NULL,
     "go on after the model's end tokens"},

    /* Sampling; absent: what the model recommends, else greedy */
    {"temperature", ANSWERS, FIELD_FLOAT, 0, 100, AT(sampling.temperature), NULL,
     "0 takes the likeliest token each time (default: the model's own, else 0)"},
    {"top_p", ANSWERS, FIELD_FLOAT, 0, 1, AT(sampling.top_p), NULL,
     "draw from the likeliest tokens that make up this much"},
    {"top_k", ANSWERS, FIELD_U32, -1, 4294967294.0, AT(sampling.top_k), NULL,
     "draw from so many of the likeliest tokens; 0 or -1: from all"},
    {"min_p", ANSWERS, FIELD_FLOAT, 0, 1, AT(sampling.min_p), NULL,
     "drop tokens less than this many times as likely as the likeliest"},
    {"typical_p", ANSWERS, FIELD_FLOAT, 1e-6, 1, AT(sampling.typical_p), NULL,
     "draw from the most typical tokens that make up this much"},
    {"repetition_penalty", ANSWERS, FIELD_FLOAT, 1e-6, 1e6, AT(sampling.repetition_penalty), NULL,
     "divide the logits of tokens seen in prompt or answer"},
    {"repeat_penalty", OPENAI, FIELD_FLOAT, 1e-6, 1e6, AT(sampling.repetition_penalty), NULL,
     "the same (llama.cpp's name)"},
    {"presence_penalty", OPENAI, FIELD_FLOAT, -1e6, 1e6, AT(sampling.presence_penalty), NULL,
     "taken off the logits of tokens in the answer"},
    {"frequency_penalty", OPENAI, FIELD_FLOAT, -1e6, 1e6, AT(sampling.frequency_penalty), NULL,
     "taken off for each time a token is in the answer"},
    {"logit_bias", OPENAI, FIELD_VALUE, NO_RANGE, 0,
     "{'type':['object','null'],'maxProperties':1024,'propertyNames':{'pattern':"
     "'^[0-9]{1,10}$'},'additionalProperties':{'type':'number','minimum':-1000000000,"
     "'maximum':1000000000}}",
     "from token ids to what is added to their logits; -100 or less forbids the token"},
    {"seed", ANSWERS, FIELD_SEED, WHOLE, AT(sampling.seed), NULL,
     "the same seed gives the same bytes; absent or -1: one by chance, which the answer names"},

    /* What is told besides the text */
    {"logprobs", CHAT, FIELD_VALUE, NO_RANGE, 0, "{'type':['boolean','null']}",
     "log-probabilities of the answer's tokens"},
    {"logprobs", COMPLETION, FIELD_VALUE, NO_RANGE, 0,
     "{'type':['integer','boolean','null'],'minimum':0,'maximum':20}",
     "log-probabilities of the tokens and of so many of the likeliest"},
    {"top_logprobs", CHAT | RESPONSE, FIELD_U32, 0, AVO_TOP_LOGPROBS_MAX, AT(sampling.top_logprobs),
     NULL, "how many of the likeliest tokens are told with each; needs logprobs"},
    {"include", RESPONSE, FIELD_VALUE, NO_RANGE, 0,
     "{'type':['array','null'],'items':{'type':'string'}}",
     "message.output_text.logprobs; others are passed over"},
    {"echo", COMPLETION, FIELD_BOOLEAN, NO_RANGE, AT(echo), NULL,
     "the prompt in front of the answer, with logprobs its tokens' as well"},
    {"stream", ANSWERS, FIELD_BOOLEAN, NO_RANGE, AT(stream), NULL,
     "the answer as server-sent events while it is computed"},
    {"stream_options", OPENAI, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "include_usage: a last event with the usage"},

    {"reasoning_format", CHAT, FIELD_STRING, 0, 16, AT(reasoning_format), NULL,
     "none (default): reasoning stays in the content; deepseek or auto: in reasoning_content"},

    /* Constraints */
    {"response_format", OPENAI, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "type: text, json_object or json_schema with its schema"},
    {"text", RESPONSE, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "format: type text, json_object or json_schema with its schema"},
    {"grammar", ANSWERS, FIELD_STRING, 0, CHAT_GRAMMAR_BYTES_MAX, AT(grammar), NULL,
     "rules in llama.cpp's GBNF; the answer is what root derives"},
    {"tools", TALKS, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "functions that the model may call: name, description, parameters as a JSON schema"},
    {"tool_choice", TALKS, FIELD_VALUE, NO_RANGE, 0, OBJECT_OR_WORD,
     "none, auto, required (any in messages), or one function by name"},
    {"parallel_tool_calls", CHAT | RESPONSE, FIELD_BOOLEAN, NO_RANGE, AT(parallel_calls), NULL,
     "more than one call in an answer (default true)"},

    /* Adapters and service */
    {"adapters", ANSWERS | BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "adapters with weights, [{\"name\", \"weight\"}], instead of one chosen by model"},
    {"lora", ANSWERS | BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "the same by number, [{\"id\", \"scale\"}], as llama.cpp has it"},
    {"deadline_ms", ANSWERS | BODY_EMBEDDING, FIELD_MILLISECONDS, 0, 86400000, AT(submit.deadline),
     NULL, "the whole answer must be there within; what is there by then is the answer"},
    {"first_token_deadline_ms", ANSWERS, FIELD_MILLISECONDS, 0, 86400000,
     AT(submit.first_token_deadline), NULL, "the first token must be there within, else 504"},
    {"priority", ANSWERS | BODY_EMBEDDING, FIELD_U32, 0, 15, AT(submit.priority), NULL,
     "0 is served first (default 8); never better than the key's"},
    {"cache_salt", ANSWERS | BODY_EMBEDDING, FIELD_STRING, 0, API_NAME_BYTES_MAX,
     AT(submit.cache_salt), NULL,
     "prefixes are shared only with requests of the same key and salt"},

    /* Embeddings */
    {"encoding_format", BODY_EMBEDDING, FIELD_STRING, 0, 16, AT(encoding_format), NULL,
     "float (default) or base64, of little-endian 32-bit floats"},
    {"dimensions", BODY_EMBEDDING, FIELD_U32, 1, 1 << 24, AT(dimensions), NULL,
     "the first so many numbers, made a unit vector again"},
    {"pooling", BODY_EMBEDDING, FIELD_STRING, 0, 16, AT(pooling), NULL,
     "mean (default) over all tokens, or last"},
    {"normalize", BODY_EMBEDDING, FIELD_BOOLEAN, NO_RANGE, AT(normalize), NULL,
     "unit vectors (default true)"},

    /* Adapters of the server */
    {"lora_name", BODY_LOAD | BODY_UNLOAD, FIELD_STRING, 0, API_NAME_BYTES_MAX, AT(lora_name), NULL,
     "the adapter's name"},
    {"lora_path", BODY_LOAD, FIELD_STRING, 0, API_PATH_BYTES_MAX, AT(lora_path), NULL,
     "its folder or file, within the server's folder of adapters"},

    /* Without effect here */
    {"user", ANSWERS | BODY_EMBEDDING, IGNORED, "for the client's own books"},
    {"metadata", ANSWERS, IGNORED, "for the client's own books"},
    {"store", CHAT | RESPONSE, IGNORED, "nothing is stored"},
    {"service_tier", ANSWERS, IGNORED, "there is one"},
    {"safety_identifier", CHAT | RESPONSE, IGNORED, "for the client's own books"},
    {"prompt_cache_key", CHAT | RESPONSE, IGNORED, "prefixes are found by their content"},
    {"reasoning_effort", CHAT, IGNORED, "models here have none to set"},
    {"reasoning", RESPONSE, IGNORED, "models here have none to set"},
    {"verbosity", CHAT, IGNORED, "models here have none to set"},
    {"prediction", CHAT, IGNORED, "a hint for speed"},

    /* Not there */
    {"suffix", COMPLETION, REFUSED, "the model continues texts, it does not fill gaps"},
    {"audio", CHAT, REFUSED, "answers are text"},
    {"modalities", CHAT, FIELD_VALUE, NO_RANGE, 0,
     "{'type':['array','null'],'items':{'type':'string'}}", "[\"text\"]; audio is refused"},
    {"functions", CHAT, REFUSED, "use tools"},
    {"function_call", CHAT, REFUSED, "use tool_choice"},
    {"web_search_options", CHAT, REFUSED, "the server does not go out"},
    {"previous_response_id", RESPONSE, REFUSED, "nothing is kept; send the whole conversation"},
    {"conversation", RESPONSE, REFUSED, "nothing is kept; send the whole conversation"},
    {"background", RESPONSE, REFUSED, "nothing is kept; wait for the answer or stream it"},
    {"prompt", RESPONSE, REFUSED, "there are no stored prompts"},
    {"truncation", RESPONSE, REFUSED, "conversations are never cut silently"},
    {"thinking", MESSAGE, FIELD_IGNORED, NO_RANGE, 0, NULL, "models here have none to set"},
    {"container", MESSAGE, REFUSED, "there are none"},
    {"mcp_servers", MESSAGE, REFUSED, "the server does not go out"},
};
const size_t api_field_count = sizeof(api_field_table) / sizeof(api_field_table[0]);

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
