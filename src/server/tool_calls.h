/* Calls of functions, in the form that a model writes them.
 *
 * Which form that is follows from the model's own template: it is rendered once with a call in it,
 * and what stands around the call says the form (<tool_call>{…}</tool_call>, [TOOL_CALLS] […],
 * <|python_tag|>{…}, a plain JSON object …). Where a template ignores tools, they are described in
 * the system's message, and calls have the form of Hermes ("described").
 * Besides its own form, every model may write the plain one: an answer that begins with
 * {"name": …, "arguments" or "parameters": {…}} is a call. docs/tools.md has them all.
 */
#ifndef AVO_SERVER_TOOL_CALLS_H
#define AVO_SERVER_TOOL_CALLS_H

#include "base/buffer.h"
#include "base/json.h"

typedef struct tool_format tool_format;

/* AVO_ERROR_UNSUPPORTED with the reason where the model's template writes calls in a form that is
 * not known. The model must outlive it. Any number of threads may use it afterwards. */
AVO_MUST_USE avo_status tool_format_open(const avo_model *model, tool_format **out,
                                         avo_error *error);
void tool_format_close(tool_format *format);
/* "hermes", "mistral", "llama3", "json", …: for /version and the log. */
const char *tool_format_name(const tool_format *format);
/* The template shows neither tools nor calls: tool_describe says what stands in the system's
 * message instead of tools, tool_describe_calls what an assistant's message with calls (an array as
 * templates expect it) has for its text. */
bool tool_format_describes(const tool_format *format);
AVO_MUST_USE avo_status tool_describe(const json_value *tools, buffer *out);
AVO_MUST_USE avo_status tool_describe_calls(const json_value *calls, buffer *out);
/* One of these by its name, for tests: no model, so that every marker comes as text. */
AVO_MUST_USE avo_status tool_format_named(const char *name, tool_format **out, avo_error *error);
/* The form that a rendered conversation shows, in which the value of an argument of a call is
 * `value`; NULL: none that is known. */
const char *tool_format_seen(text_view rendered, const char *value);

typedef struct tool_call {
    text_view name;
    text_view arguments; /* a JSON object as text; as much of it as has come */
    bool complete;       /* nothing more comes */
    bool cut;            /* because the answer has ended in them */
} tool_call;

/* Letters, digits, _, - and ., at least one: what functions are called, in requests and in calls.
 */
bool tool_name_good(text_view name);

#define TOOL_CALLS_MAX      128 /* of one answer; those that come after them are text */
#define TOOL_CALL_BYTES_MAX ((size_t)1 << 20)

typedef struct tool_parser_options {
    /* The tools as OpenAI has them, which must outlive the parser: types of values that a form
     * writes as plain text follow from their schemas. NULL: not known. */
    const json_value *tools;
    /* A call of one of `tools` is begun when its name is known and its arguments begin, and can be
     * told from then on; it stays one, even where its arguments turn out to be no JSON. */
    bool eager;
    /* The only text that calls begin with; "": they have none. NULL: all that the form knows. */
    const char *only;
} tool_parser_options;

/* One answer being read: text for the user in pieces, calls as they come. */
typedef struct tool_parser tool_parser;
/* `options` may be NULL. */
AVO_MUST_USE avo_status tool_parser_open(const tool_format *format,
                                         const tool_parser_options *options, tool_parser **out,
                                         avo_error *error);
void tool_parser_close(tool_parser *parser);
/* The next event of the answer: its token (−1: none) and text, which may be empty. *text: what is
 * text for the user now; lives until the next push. What may be the beginning of a call is held
 * back. Never fails for what a model writes, only for want of memory: a call that is none comes out
 * as text. Linear in the bytes. */
AVO_MUST_USE avo_status tool_parser_push(tool_parser *parser, int32_t token, text_view piece,
                                         text_view *text, avo_error *error);
/* The answer has ended: what was held back and is no call is text after all. */
AVO_MUST_USE avo_status tool_parser_finish(tool_parser *parser, text_view *text, avo_error *error);
/* Calls that are complete, in order; they live as long as the parser. */
size_t tool_parser_count(const tool_parser *parser);
/* One of these, or behind the last, with `eager`, the one that is coming, whose arguments live
 * until the next push. NULL: there is none. */
const tool_call *tool_parser_call(tool_parser *parser, size_t index);
/* What began like a call and was none. */
size_t tool_parser_malformed(const tool_parser *parser);

/* What an answer must be, for tool_choice: writes a grammar for avo_grammar_open. */
typedef struct tool_choice {
    const char *function; /* this one; NULL: any of the tools */
    bool required;        /* the answer is a call; else calls are free to come, but well-formed */
    bool parallel;        /* more than one call may follow another */
} tool_choice;
typedef struct tool_grammar {
    avo_grammar_kind kind;
    buffer text;         /* terminated; freed by the caller */
    const char *trigger; /* of avo_grammar_options; NULL: constrained from the beginning, where
                            calls are not required by json_or_text */
} tool_grammar;
/* `tools`: the array as OpenAI has it, [{"type":"function","function":{name, parameters, …}}].
 * kind and text only where AVO_OK. Calls that it describes are objects with a name and arguments,
 * whatever form the model's own have: parsers take them behind `trigger` in the place of that.
 * AVO_ERROR_UNSUPPORTED where calls need not be kept to a grammar: they are not required, and no
 * tool is `strict`. */
AVO_MUST_USE avo_status tool_grammar_write(const tool_format *format, const json_value *tools,
                                           const tool_choice *choice, tool_grammar *grammar,
                                           avo_error *error);

#endif
