/* Conversations, through whatever interface they come: HTTP, the terminal, `run`, the C API.
 *
 *   turns        messages in the words of OpenAI's and Anthropic's interfaces, as one list
 *   prompt       turns, tools and template variables as the model's template gets them
 *   constraint   the grammar that response_format, grammar or tool_choice ask for
 *   format       how a model writes tool calls and reasoning, found from its template
 *   parser       the model's text, while it comes, into text, reasoning and tool calls
 *   request      a whole request as JSON, and answer, its answer: avo_chat_… of the public header
 *
 * Input is a JSON tree that the caller has parsed. Functions that read it return false and fill a
 * chat_fault where the request is wrong; nothing here knows of HTTP. docs/tools.md has the forms of
 * tool calls, docs/grammar.md the constraints.
 */
#ifndef AVO_CHAT_H
#define AVO_CHAT_H

#include "base/buffer.h"
#include "base/json.h"
#include "chat/grammar_cache.h"

#define CHAT_TEXT_BYTES_MAX    ((size_t)64 << 20)
#define CHAT_NAME_BYTES_MAX    256 /* name and tool_call_id of a message */
#define CHAT_TURNS_MAX         4096
#define CHAT_PARTS_MAX         4096 /* of one message's content */
#define CHAT_TOOLS_MAX         128
#define CHAT_TOOL_NAME_MAX     64
#define CHAT_CALLS_MAX         128 /* of one turn, or of one answer: calls beyond it are text */
#define CHAT_CALL_BYTES_MAX    ((size_t)1 << 20)
#define CHAT_GRAMMAR_BYTES_MAX ((size_t)64 << 10)
#define CHAT_ADAPTER_WEIGHT    -1e6, 1e6
#define CHAT_BIAS_MAX          1024
#define CHAT_CHOICES_MAX       128 /* n and best_of */
#define CHAT_BIAS_FORBIDS      -100.0

/* ---- What is wrong with a request ---- */

typedef struct chat_fault {
    avo_status status; /* AVO_OK: nothing */
    const char *code;  /* for programs, as OpenAI's clients know them: "invalid_type", … */
    char param[96];    /* the field, "messages[2]"; empty: none */
    char text[AVO_ERROR_TEXT_MAX];
} chat_fault;

/* Always false, so that a failure is one line; AVO_ERROR_ARGUMENT. */
bool chat_fail(chat_fault *fault, const char *param, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool chat_fail_memory(chat_fault *fault);
/* "expected WANTED, found …" */
bool chat_fail_kind(chat_fault *fault, const char *param, const char *wanted,
                    const json_value *found);

/* A string of at most `maximum` bytes and without zero bytes; it stays where it is. */
AVO_MUST_USE bool chat_string_read(const json_value *value, const char *param, size_t maximum,
                                   text_view *out, chat_fault *fault);

/* ---- Single values (values.c) ---- */

/* An integer in a range: 3 and 3.0. */
AVO_MUST_USE bool chat_integer_read(const json_value *value, const char *param, int64_t minimum,
                                    int64_t maximum, int64_t *out, chat_fault *fault);
AVO_MUST_USE bool chat_number_read(const json_value *value, const char *param, double minimum,
                                   double maximum, double *out, chat_fault *fault);
AVO_MUST_USE bool chat_boolean_read(const json_value *value, const char *param, bool *out,
                                    chat_fault *fault);
/* A list of at most `maximum` token ids below `vocabulary`; the ids are in the arena. */
AVO_MUST_USE bool chat_ids_read(const json_value *value, const char *param, uint32_t vocabulary,
                                size_t maximum, arena *arena, int32_t **ids, size_t *count,
                                chat_fault *fault);
/* One stop string or a list of them, into the arena. An empty one is refused: it would end every
 * answer. */
AVO_MUST_USE bool chat_stops_read(const json_value *value, const char *param, arena *arena,
                                  const char ***stops, size_t *count, chat_fault *fault);
/* {"token id": number}, into the arena and the sampling. */
AVO_MUST_USE bool chat_bias_read(const json_value *value, uint32_t vocabulary, arena *arena,
                                 avo_sampling *sampling, chat_fault *fault);
/* `logprobs` (NULL: absent): true, false, or an integer that counts over sampling's top_logprobs,
 * which false refuses. */
AVO_MUST_USE bool chat_logprobs_read(const json_value *logprobs, bool *wanted,
                                     avo_sampling *sampling, chat_fault *fault);
/* vLLM's repetition_detection: max_pattern_size, min_pattern_size, min_count. */
AVO_MUST_USE bool chat_repetition_read(const json_value *value, avo_repetition *out,
                                       chat_fault *fault);
/* `modalities` (NULL: absent): a list of "text". */
AVO_MUST_USE bool chat_modalities_read(const json_value *list, chat_fault *fault);
/* An adapter of a request: its name, or an object with name and weight and nothing else. *weight is
 * left alone where none is given; the name stays where it is. */
AVO_MUST_USE bool chat_adapter_read(const json_value *value, text_view *name, double *weight,
                                    chat_fault *fault);
/* Refuses keys of a request that are not among `names`, and suggests one that is alike: an option
 * that is passed over would change the answer unseen. Keys with null are as good as absent. */
AVO_MUST_USE bool chat_keys_check(const json_value *object, const char *const *names, size_t count,
                                  chat_fault *fault);

/* ---- Turns ---- */

/* One message, whichever form it came in. Texts stay in the request's tree or are in the arena. */
typedef struct chat_turn {
    const char *role;        /* "system", "user", "assistant" or "tool" */
    text_view content;       /* parts are joined */
    text_view reasoning;     /* of an earlier answer; data NULL: none was given */
    text_view name, call_id; /* of a tool's result: whose call it answers; data NULL: none */
    json_value *calls;       /* [call_count] {"id","type","function":{"name","arguments"}}, the
                                arguments as an object, as templates expect them */
    size_t call_count, call_capacity;
} chat_turn;

typedef struct chat_turns {
    arena *arena; /* what is made for them; must outlive the prompt */
    chat_turn *items;
    size_t count, capacity;
    /* Bytes of arguments that may still come as text, which is JSON within JSON: arguments of more
     * bytes than any context can hold are refused before they are parsed. */
    size_t arguments_left;
} chat_turns;

/* Whose words a request uses. */
typedef enum chat_dialect {
    CHAT_COMPLETIONS, /* OpenAI's chat completions: messages */
    CHAT_RESPONSES,   /* OpenAI's responses: input, a text or items */
    CHAT_MESSAGES     /* Anthropic's messages: blocks of content */
} chat_dialect;

AVO_MUST_USE bool chat_turn_add(chat_turns *turns, chat_turn turn, chat_fault *fault);
/* Appends messages, or the input of responses. */
AVO_MUST_USE bool chat_turns_read(chat_turns *turns, chat_dialect dialect,
                                  const json_value *messages, chat_fault *fault);
/* Anthropic's `system`: a text or blocks of text; nothing where it is empty. */
AVO_MUST_USE bool chat_system_read(chat_turns *turns, const json_value *system, chat_fault *fault);

/* ---- How a model writes ---- */

typedef struct chat_format chat_format;

/* From the model's template, which is rendered once with a tool call in it. Fails only for want of
 * memory: a template that is not understood gives a format without tool calls. The model must
 * outlive it. Any number of threads may use it afterwards. */
AVO_MUST_USE avo_status chat_format_open(const avo_model *model, chat_format **out,
                                         avo_error *error);
/* A form of tool calls by its name, for tests: no model, so that every marker comes as text. */
AVO_MUST_USE avo_status chat_format_named(const char *name, chat_format **out, avo_error *error);
void chat_format_close(chat_format *format);
/* "hermes", "mistral", "llama3", …: the form of tool calls; NULL: none that is known. */
const char *chat_format_name(const chat_format *format);
/* What is said to those who ask for tools where there is no form. */
const char *chat_format_why_not(const chat_format *format);

/* ---- What an answer may be ---- */

/* A grammar that is still to be compiled. Texts are in the caller's arena or static. */
typedef struct chat_constraint {
    avo_grammar_kind kind;
    const char *text, *trigger; /* as avo_grammar_open wants them */
    bool json_or_text;
    const char *param; /* the field that asked for it; NULL: any answer will do */
    const char *owner; /* with whom the compiled grammar is shared (grammar_cache.h) */
} chat_constraint;

/* What a request says about it. At most one may constrain; a format of type text does not. */
typedef struct chat_constraint_source {
    const json_value *format; /* response_format, or text.format; NULL: none */
    const char *param;        /* the format's name in errors */
    const char *grammar;      /* GBNF; NULL: none */
    const json_value *schema; /* json_schema, a schema or its text; NULL: none */
    bool object;              /* json_object */
    const json_value *body;   /* for vLLM's names: guided_…, structured_outputs; NULL: none */
    const json_value *shape;  /* ollama's format: "json", "" or a schema; NULL: none */
} chat_constraint_source;
AVO_MUST_USE bool chat_constraint_read(const chat_constraint_source *source, arena *arena,
                                       chat_constraint *out, chat_fault *fault);
/* Compiles, or finds what was compiled lately. May take a tenth of a second. */
AVO_MUST_USE avo_status chat_constraint_open(grammar_cache *cache,
                                             const chat_constraint *constraint, avo_grammar **out,
                                             avo_error *error);

/* ---- The prompt ---- */

/* What a request says besides its turns. */
typedef struct chat_settings {
    chat_dialect dialect;
    const json_value *tools, *tool_choice; /* NULL: none */
    const json_value *variables; /* more for the template (chat_template_kwargs); NULL: none */
    bool parallel_calls;         /* more than one call in an answer */
    chat_constraint constraint;  /* by chat_constraint_read */
} chat_settings;

/* Everything that answering needs. */
typedef struct chat_prompt {
    json_value variables;       /* the template's: messages, tools, … */
    const json_value *tools;    /* as OpenAI has them; NULL: none are offered */
    chat_constraint constraint; /* of the settings, or what tool_choice and strict tools ask for */
    bool calls;                 /* tool calls are looked for in the answer */
    bool parallel_calls;
    const char *only_opener; /* of chat_parser_options */
} chat_prompt;

/* Trees and texts are in `arena`, or where the turns and the settings have theirs. The turns are
 * used up: where the template knows no tools, calls and results become text in them. */
AVO_MUST_USE bool chat_prompt_read(const chat_format *format, chat_turns *turns,
                                   const chat_settings *settings, arena *arena, chat_prompt *out,
                                   chat_fault *fault);

/* ---- Answers ---- */

typedef struct tool_call {
    text_view name;
    text_view arguments; /* a JSON object as text; as much of it as has come */
    bool complete;       /* nothing more comes */
    bool cut;            /* because the answer has ended in them */
} tool_call;

typedef struct chat_parser_options {
    bool calls; /* look for tool calls; the format must have a form of them */
    /* As of chat_prompt, must outlive the parser: types of values that a form writes as plain text
     * follow from their schemas. NULL: not known. */
    const json_value *tools;
    /* A call of one of `tools` is begun when its name is known and its arguments begin, and can be
     * told from then on; it stays one, even where its arguments turn out to be no JSON. */
    bool eager;
    /* The only text that calls begin with; "": they have none. NULL: all that the form knows. */
    const char *only;
    bool reasoning; /* a span of reasoning at the beginning is kept apart; else it is text */
} chat_parser_options;

/* What has come since the last push; lives until the next. */
typedef struct chat_delta {
    text_view text, reasoning;
} chat_delta;

/* One answer being read. */
typedef struct chat_parser chat_parser;
AVO_MUST_USE avo_status chat_parser_open(const chat_format *format,
                                         const chat_parser_options *options, chat_parser **out,
                                         avo_error *error);
void chat_parser_close(chat_parser *parser);
/* The next event of the answer: its token (−1: none) and text, which may be empty. What may be the
 * beginning of a call is held back. Never fails for what a model writes, only for want of memory:
 * a call that is none comes out as text. Linear in the bytes. */
AVO_MUST_USE avo_status chat_parser_push(chat_parser *parser, int32_t token, text_view piece,
                                         chat_delta *delta, avo_error *error);
/* The answer has ended: what was held back and is no call is text after all. */
AVO_MUST_USE avo_status chat_parser_finish(chat_parser *parser, chat_delta *delta,
                                           avo_error *error);
/* Whether the answer is inside of its reasoning. */
bool chat_parser_reasons(const chat_parser *parser);
/* Calls that are complete, in order; they live as long as the parser. */
size_t chat_parser_count(const chat_parser *parser);
/* One of these, or behind the last, with `eager`, the one that is coming, whose arguments live
 * until the next push. NULL: there is none. */
const tool_call *chat_parser_call(chat_parser *parser, size_t index);
/* What began like a call and was none. */
size_t chat_parser_malformed(const chat_parser *parser);

#endif
