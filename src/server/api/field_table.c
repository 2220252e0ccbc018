/* The rows: every field of every body. Those of answers that HTTP shares with other interfaces are
 * in chat/fields.h. */
#include "server/api/api_int.h"

#define AT(member) offsetof(api_request, member)
#define CHAT       BODY_CHAT
#define COMPLETION BODY_COMPLETION
#define RESPONSE   BODY_RESPONSE
#define MESSAGE    BODY_MESSAGE
#define ANSWERS    BODY_ANSWERS
#define OPENAI     (BODY_CHAT | BODY_COMPLETION)
#define LLAMA      (BODY_LLAMA | BODY_INFILL)
#define LOCAL      (OPENAI | LLAMA)
#define SAMPLED    (BODY_ANSWERS | LLAMA | BODY_OPTIONS)
#define PENALISED  (OPENAI | LLAMA | BODY_OPTIONS)
#define STOPPED    PENALISED
#define OLLAMA     (BODY_OLLAMA_CHAT | BODY_OLLAMA_GENERATE)
#define TALKS                                                                                      \
    (BODY_CHAT | BODY_RESPONSE | BODY_MESSAGE | BODY_COUNT | BODY_OLLAMA_CHAT | BODY_TEMPLATE)
#define TOKENS  (BODY_TOKENIZE | BODY_DETOKENIZE)
#define VECTORS BODY_VECTORS
#define NAMED                                                                                      \
    (BODY_ANSWERS | BODY_COUNT | TOKENS | VECTORS | LLAMA | OLLAMA | BODY_TEMPLATE |               \
     BODY_OLLAMA_NAME)
#define TEXT_MAX       ((double)API_TEXT_BYTES_MAX)
#define NO_RANGE       FIELD_NO_RANGE
#define REFUSED        FIELD_REFUSED, NO_RANGE, 0, NULL
#define UNLESS(value)  FIELD_REFUSED, value, value, 0, NULL /* that asks for nothing */
#define IGNORED        FIELD_IGNORED, NO_RANGE, 0, NULL
#define TOKEN          SCHEMA_REF("Token") /* what follows from the model: openapi.c */
#define PROMPTS        SCHEMA_REF("Prompts")
#define STRING         SCHEMA_OF("string")
#define STRINGS        SCHEMA(.types = "string,array,null", .items = STRING)
#define ANY_PROMPTS    SCHEMA(.types = "string,array", .items = SCHEMA_OF("string,integer,array"))
#define STRING_OR_NULL SCHEMA_OF("string,null")
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
    {"messages", BODY_OLLAMA_CHAT, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "conversation: role, content, tool_calls, tool_name, thinking; none: the model is loaded"},
    {"messages", BODY_TOKENIZE | BODY_TEMPLATE, FIELD_VALUE, NO_RANGE, 0, MESSAGES,
     "conversation instead of a text, rendered with the chat template"},
    {"prompt", COMPLETION, FIELD_VALUE, NO_RANGE, 0, PROMPTS,
     "string, list of strings, list of token ids or list of such lists"},
    {"prompt", BODY_LLAMA, FIELD_VALUE, NO_RANGE, 0, ANY_PROMPTS,
     "string, list of token ids and strings, or a list of such prompts"},
    {"prompt", BODY_INFILL, FIELD_STRING, 0, TEXT_MAX, AT(content), NULL,
     "text behind input_prefix"},
    {"input_prefix", BODY_INFILL, FIELD_STRING, 0, TEXT_MAX, AT(input_prefix), NULL,
     "text before the gap"},
    {"input_suffix", BODY_INFILL, FIELD_STRING, 0, TEXT_MAX, AT(input_suffix), NULL,
     "text behind the gap"},
    {"input_extra", BODY_INFILL, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "other files, [{\"filename\", \"text\"}], in front"},
    {"prompt", BODY_OLLAMA_GENERATE, FIELD_STRING, 0, TEXT_MAX, AT(content), NULL,
     "what the user says; with raw: a text to continue; none: the model is loaded"},
    {"prompt", BODY_OLLAMA_VECTOR, FIELD_VALUE, NO_RANGE, 0, STRING_OR_NULL, "text"},
    {"suffix", BODY_OLLAMA_GENERATE, FIELD_STRING, 0, TEXT_MAX, AT(input_suffix), NULL,
     "text behind the answer, for models that can fill in the middle"},
    {"suffix", COMPLETION, FIELD_STRING, 0, TEXT_MAX, AT(input_suffix), NULL,
     "text behind the answer, for models that can fill in the middle"},
    {"system", BODY_OLLAMA_GENERATE, FIELD_STRING, 0, TEXT_MAX, AT(instructions), NULL,
     "system message"},
    {"raw", BODY_OLLAMA_GENERATE, FIELD_BOOLEAN, NO_RANGE, AT(raw), NULL,
     "do not use the chat template"},
    {"prompt", BODY_TOKENIZE, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("string,null"),
     "text (name used by vLLM)"},
    {"content", BODY_TOKENIZE, FIELD_STRING, 0, API_TOKENIZE_BYTES_MAX, AT(content), NULL,
     "text (name used by llama.cpp)"},
    {"input", RESPONSE, FIELD_VALUE, NO_RANGE, 0,
     SCHEMA(.types = "string,array", .items_min = 1, .items = SCHEMA_OF("object")),
     "string, or items: messages, function_call, function_call_output"},
    {"input", BODY_OLLAMA_EMBED, FIELD_VALUE, NO_RANGE, 0, STRINGS, "text or texts"},
    {"content", BODY_LLAMA_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, ANY_PROMPTS,
     "text, token ids, or a list of these"},
    {"input", BODY_LLAMA_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, ANY_PROMPTS, "same as content"},
    {"input", BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, PROMPTS,
     "string, list of strings, list of token ids or list of such lists"},
    {"system", MESSAGE | BODY_COUNT, FIELD_VALUE, NO_RANGE, 0,
     SCHEMA(.types = "string,array,null", .items = SCHEMA_OF("object")),
     "system message: string, or blocks of type text"},
    {"instructions", RESPONSE, FIELD_STRING, 0, TEXT_MAX, AT(instructions), NULL,
     "system message before the input"},
    {"add_generation_prompt", CHAT | BODY_TOKENIZE | BODY_TEMPLATE, FIELD_BOOLEAN, NO_RANGE,
     AT(add_generation_prompt), NULL,
     "with messages: begin the assistant's turn at the end (default true)"},
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
    {"n_predict", LLAMA, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("integer,null"),
     "maximum number of new tokens; -1 (default): until the model ends; 0: the prompt only"},
    {"num_predict", BODY_OPTIONS, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("integer,null"),
     "maximum number of new tokens; -1 (default) and -2: until the model ends"},
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
    {"stream", OLLAMA | BODY_OLLAMA_NAME, FIELD_BOOLEAN, NO_RANGE, AT(stream), NULL,
     "send JSON lines while the answer is generated (default true)"},
    {"stream", ANSWERS | LLAMA, FIELD_BOOLEAN, NO_RANGE, AT(stream), NULL,
     "send the answer as server-sent events while it is generated"},
    {"prompt_logprobs", OPENAI, FIELD_U32, 0, AVO_TOP_LOGPROBS_MAX, AT(prompt_tops), NULL,
     "also return log-probabilities of the prompt's tokens and of this many most likely ones; not "
     "of streams (vLLM)"},
    {"stream_options", OPENAI, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "include_usage: send a last event with the usage"},

    {"reasoning_format", CHAT, FIELD_STRING, 0, 16, AT(reasoning_format), NULL,
     "none (default): reasoning stays in the content; deepseek or auto: in reasoning_content"},

    {"text", RESPONSE, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "format: type text, json_object or json_schema with its schema"},
    {"output_config", MESSAGE | BODY_COUNT, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "format: type json_schema with its schema; effort is ignored"},
    {"output_format", MESSAGE | BODY_COUNT, FIELD_VALUE, NO_RANGE, 0, OBJECT,
     "same as output_config.format"},

    /* Adapters and service */
    {"lora", ANSWERS | LLAMA | BODY_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, OBJECTS,
     "adapters by id, [{\"id\", \"scale\"}], as in llama.cpp"},

    /* Embeddings */
    {"encoding_format", BODY_EMBEDDING, FIELD_STRING, 0, 16, AT(encoding_format), NULL,
     "float (default) or base64, of little-endian 32-bit floats"},
    {"dimensions", BODY_EMBEDDING | BODY_OLLAMA_EMBED, FIELD_U32, 1, 1 << 24, AT(dimensions), NULL,
     "return the first N numbers, normalised again"},
    {"pooling", BODY_EMBEDDING, FIELD_STRING, 0, 16, AT(pooling), NULL,
     "mean (default) over all tokens, or last"},
    {"normalize", BODY_EMBEDDING, FIELD_BOOLEAN, NO_RANGE, AT(normalize), NULL,
     "unit vectors (default true)"},

    {"embd_normalize", BODY_LLAMA_EMBEDDING, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("integer,null"),
     "2 (default): unit vectors; -1: as they are"},

    /* llama.cpp's /completion and /infill */
    {"n_probs", LLAMA, FIELD_U32, 0, AVO_TOP_LOGPROBS_MAX, AT(sampling.top_logprobs), NULL,
     "return log-probabilities of each token and of this many most likely ones"},
    {"return_tokens", LLAMA, FIELD_BOOLEAN, NO_RANGE, AT(return_tokens), NULL,
     "return the ids of the answer; streams always do"},
    {"repeat_last_n", LLAMA | BODY_OPTIONS, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("integer,null"),
     "penalties look at the whole prompt and answer (-1); another number is refused with them"},
    {"typ_p", LLAMA, FIELD_FLOAT, SAMPLING_TYPICAL, AT(sampling.typical_p), NULL,
     "same as typical_p"},
    {"id_slot", LLAMA, IGNORED, "ignored; requests have no fixed slots"},
    {"n_keep", LLAMA, IGNORED, "ignored; prompts are never cut silently"},
    {"n_discard", LLAMA, IGNORED, "ignored; prompts are never cut silently"},
    {"timings_per_token", LLAMA, IGNORED, "ignored; the last event has the timings"},
    {"mirostat_tau", LLAMA | BODY_OPTIONS, IGNORED, "ignored; mirostat is not supported"},
    {"mirostat_eta", LLAMA | BODY_OPTIONS, IGNORED, "ignored; mirostat is not supported"},
    {"xtc_threshold", LLAMA, IGNORED, "ignored; xtc_probability is not supported"},
    {"dry_base", LLAMA, IGNORED, "ignored; dry_multiplier is not supported"},
    {"dry_allowed_length", LLAMA, IGNORED, "ignored; dry_multiplier is not supported"},
    {"dry_penalty_last_n", LLAMA, IGNORED, "ignored; dry_multiplier is not supported"},
    {"dry_sequence_breakers", LLAMA, IGNORED, "ignored; dry_multiplier is not supported"},
    {"dynatemp_exponent", LLAMA, IGNORED, "ignored; dynatemp_range is not supported"},
    {"mirostat", LLAMA | BODY_OPTIONS, REFUSED, "use temperature, top_p or min_p"},
    {"xtc_probability", LLAMA, REFUSED, "use temperature"},
    {"dry_multiplier", LLAMA, REFUSED, "use repeat_penalty or repetition_detection"},
    {"dynatemp_range", LLAMA, REFUSED, "use temperature"},
    {"top_n_sigma", LLAMA, UNLESS(-1), "use min_p"},
    {"tfs_z", LLAMA | BODY_OPTIONS, UNLESS(1), "use min_p"},
    {"min_keep", LLAMA, REFUSED, "filters keep one token or more"},
    {"samplers", LLAMA, REFUSED, "filters have one order"},
    {"penalize_nl", LLAMA, REFUSED, "use logit_bias"},
    {"n_indent", LLAMA, REFUSED, "use grammar"},
    {"t_max_prompt_ms", LLAMA, REFUSED, "use first_token_deadline_ms"},
    {"t_max_predict_ms", LLAMA, REFUSED, "use deadline_ms"},
    {"post_sampling_probs", LLAMA, REFUSED, "log-probabilities are those of the model"},
    {"response_fields", LLAMA, REFUSED, "the answer has all fields"},
    {"return_progress", LLAMA, REFUSED, "streams begin with the first token"},
    {"image_data", LLAMA, REFUSED, "input is text only"},
    {"system_prompt", LLAMA, REFUSED, "put it into the prompt"},
    {"grammar_lazy", LLAMA, REFUSED, "use /v1/chat/completions with tools"},
    {"grammar_triggers", LLAMA, REFUSED, "use /v1/chat/completions with tools"},
    {"preserved_tokens", LLAMA, REFUSED, "use /v1/chat/completions with tools"},

    /* ollama's */
    {"name", BODY_OLLAMA_NAME, FIELD_STRING, 0, API_NAME_BYTES_MAX, AT(model), NULL,
     "same as model"},
    {"options", OLLAMA, FIELD_VALUE, NO_RANGE, 0, SCHEMA_REF("OllamaOptions"),
     "how tokens are drawn: the fields of options"},
    {"options", BODY_OLLAMA_EMBED | BODY_OLLAMA_VECTOR, IGNORED, "ignored; nothing is drawn"},
    {"format", OLLAMA, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("string,object,null"),
     "\"json\" or a JSON schema that the answer matches"},
    {"think", OLLAMA, FIELD_VALUE, NO_RANGE, 0, SCHEMA_OF("boolean,string,null"),
     "the template's enable_thinking; reasoning is always apart, as thinking"},
    {"keep_alive", OLLAMA | BODY_OLLAMA_EMBED | BODY_OLLAMA_VECTOR, IGNORED,
     "ignored; the model stays loaded"},
    {"truncate", OLLAMA | BODY_OLLAMA_EMBED, IGNORED, "ignored; what is too long is refused"},
    {"shift", OLLAMA, IGNORED, "ignored; an answer ends where the context is full"},
    {"template", BODY_OLLAMA_GENERATE, REFUSED, "the model's own template is used"},
    {"context", BODY_OLLAMA_GENERATE, REFUSED, "use /api/chat"},
    {"images", BODY_OLLAMA_GENERATE, REFUSED, "input is text only"},
    {"width", BODY_OLLAMA_GENERATE, REFUSED, "output is text only"},
    {"height", BODY_OLLAMA_GENERATE, REFUSED, "output is text only"},
    {"steps", BODY_OLLAMA_GENERATE, REFUSED, "output is text only"},
    {"verbose", BODY_OLLAMA_NAME, IGNORED, "ignored; tensors are not listed"},
    {"insecure", BODY_OLLAMA_NAME, IGNORED, "ignored; nothing is downloaded"},
    {"num_ctx", BODY_OPTIONS, IGNORED, "ignored; the server was started with its context"},
    {"num_keep", BODY_OPTIONS, IGNORED, "ignored; prompts are never cut silently"},
    {"num_batch", BODY_OPTIONS, IGNORED, "ignored; the server was started with it"},
    {"num_gpu", BODY_OPTIONS, IGNORED, "ignored; the server was started with its device"},
    {"main_gpu", BODY_OPTIONS, IGNORED, "ignored; the server was started with its device"},
    {"num_thread", BODY_OPTIONS, IGNORED, "ignored; the server was started with its threads"},
    {"num_gqa", BODY_OPTIONS, IGNORED, "ignored; the model says it"},
    {"numa", BODY_OPTIONS, IGNORED, "ignored; the server was started with it"},
    {"low_vram", BODY_OPTIONS, IGNORED, "ignored; the server was started with its device"},
    {"f16_kv", BODY_OPTIONS, IGNORED, "ignored; the server was started with it"},
    {"use_mmap", BODY_OPTIONS, IGNORED, "ignored; files are mapped"},
    {"use_mlock", BODY_OPTIONS, IGNORED, "ignored; the server was started with it"},
    {"vocab_only", BODY_OPTIONS, REFUSED, "the model is loaded"},
    {"logits_all", BODY_OPTIONS, REFUSED, "use logprobs"},
    {"embedding_only", BODY_OPTIONS, REFUSED, "use /api/embed"},
    {"penalize_newline", BODY_OPTIONS, REFUSED, "penalties look at all tokens alike"},

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

    /* vLLM's, that are not there */
    {"use_beam_search", OPENAI, REFUSED, "there is no beam search"},
    {"length_penalty", OPENAI, UNLESS(1), "there is no beam search"},
    {"include_stop_str_in_output", OPENAI, REFUSED, "stop strings are not part of the answer"},
    {"skip_special_tokens", OPENAI, UNLESS(1), "special tokens are not part of the answer"},
    {"spaces_between_special_tokens", OPENAI, IGNORED,
     "ignored; special tokens are not part of the answer"},
    {"truncate_prompt_tokens", OPENAI | BODY_EMBEDDING, UNLESS(-1),
     "prompts are never cut silently"},
    {"allowed_token_ids", OPENAI, REFUSED, "use guided_choice, guided_regex or grammar"},
    {"bad_words", OPENAI, REFUSED, "use logit_bias"},
    {"logits_processors", OPENAI, REFUSED, "the server runs no code of clients"},
    {"return_tokens_as_token_ids", OPENAI, REFUSED, "use /tokenize"},
    {"return_token_ids", OPENAI, REFUSED, "use /tokenize"},
    {"request_id", OPENAI, IGNORED, "ignored; send the header X-Request-Id"},
    {"kv_transfer_params", OPENAI, REFUSED, "there is one server"},
    {"vllm_xargs", OPENAI, REFUSED, "there are no extensions"},
    {"mm_processor_kwargs", CHAT | BODY_EMBEDDING, REFUSED, "input is text only"},
    {"documents", CHAT, REFUSED, "use chat_template_kwargs"},
    {"chat_template", CHAT | BODY_TOKENIZE, REFUSED, "the model's own template is used"},
    {"continue_final_message", CHAT, REFUSED, "use /v1/completions to continue a text"},
    {"add_special_tokens", CHAT, REFUSED, "the chat template writes them"},
    {"add_special_tokens", COMPLETION, UNLESS(1), "give the prompt as token ids"},
    {"echo", CHAT, REFUSED, "use /v1/completions"},
    {"include_reasoning", CHAT, UNLESS(1), "use reasoning_format"},
    {"structural_tag", OPENAI, REFUSED, "use tools or structured_outputs"},
    {"guided_whitespace_pattern", OPENAI, REFUSED, "use guided_grammar"},
    {"prompt_embeds", COMPLETION, REFUSED, "give texts or token ids"},

    /* Not there */
    {"previous_response_id", RESPONSE, REFUSED, "nothing is stored; send the whole conversation"},
    {"conversation", RESPONSE, REFUSED, "nothing is stored; send the whole conversation"},
    {"background", RESPONSE, REFUSED, "nothing is stored; wait for the answer or stream it"},
    {"prompt", RESPONSE, REFUSED, "there are no stored prompts"},
    {"truncation", RESPONSE, REFUSED, "conversations are never cut silently"},
    {"thinking", MESSAGE | BODY_COUNT, IGNORED, "ignored; no model supports it"},
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
    case BODY_OLLAMA_EMBED:
        return "model,input";
    case BODY_OLLAMA_VECTOR:
        return "model,prompt";
    case BODY_OLLAMA_CHAT:
    case BODY_OLLAMA_GENERATE:
        return "model";
    case BODY_LLAMA:
        return "prompt";
    case BODY_TEMPLATE:
        return "messages";
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
