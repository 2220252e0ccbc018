/* Between the files of tool calls: what a form of them is, and how calls are read and described. */
#ifndef AVO_CHAT_TOOL_INT_H
#define AVO_CHAT_TOOL_INT_H

#include "chat/chat.h"

#define TOOL_MARKERS_MAX 16
#define TOOL_OPENERS_MAX 4

/* ---- Forms ---- */

typedef enum tool_reader {
    TOOL_JSON = 0, /* a JSON value, or NAME and a JSON object */
    TOOL_TAGS,     /* <function=NAME><parameter=KEY>VALUE</parameter></function> */
    TOOL_PAIRS,    /* NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value> */
    TOOL_PYTHON,   /* [NAME(KEY=VALUE, …), …] */
    TOOL_GEMMA     /* call:NAME{KEY:VALUE,…} */
} tool_reader;

/* How calls are written in tags. A name ends at the quote, or at '>' where it has none. */
typedef struct tool_markup {
    const char *call, *call_close;   /* TOOL_TAGS: "<function=", "</function>" */
    const char *key, *key_close;     /* "<parameter="; TOOL_PAIRS: "<arg_key>", "</arg_key>" */
    const char *value, *value_close; /* TOOL_PAIRS: "<arg_value>"; both: what ends a value */
    const char *separator;           /* TOOL_PAIRS: may stand behind the name; NULL: none */
    bool quoted;                     /* names stand in quotes, attributes may follow */
    bool lines;                      /* a value stands on lines of its own */
} tool_markup;

/* A text that a call begins with, and what may stand behind it. */
typedef struct tool_opener {
    const char *text, *close; /* close: NULL: nothing */
    bool named;               /* NAME and more may stand before the value */
    tool_reader reader;       /* of what begins with no '{' */
    const tool_markup *markup;
    bool whole; /* the opener is a part of what is read */
} tool_opener;

typedef struct tool_form {
    const char *name;
    tool_opener openers[TOOL_OPENERS_MAX]; /* `text` NULL behind the last */
    const char *key;       /* of the arguments: what its grammar asks for; NULL: "arguments" */
    const char *noise[2];  /* stands around calls and says nothing */
    const char *marks[2];  /* stand inside of calls, as special tokens, too */
    const char *implied;   /* the prompt ends with this; NULL: nothing */
    const char *text_name; /* what is no name but says that text follows */
    bool described;        /* in the system's message */
    bool bare;             /* calls without an opener may follow one another, with ';' between */
    bool python;           /* calls without an opener are Python's */
    bool keyed;            /* {"NAME": {…}} */
    bool fenced;           /* ``` may stand around arguments */
    bool array;            /* calls stand in an array */
} tool_form;

extern const tool_form tool_forms[];
extern const size_t tool_form_count;

/* A token that text does not show. */
typedef struct tool_marker {
    int32_t token;
    const char *text;
    bool opens;     /* a call */
    bool reasoning; /* opens or closes a span of reasoning */
} tool_marker;

struct chat_format {
    const avo_allocator *allocator;
    const tool_form *form; /* NULL: `why_not` says why */
    avo_error why_not;
    tool_marker markers[TOOL_MARKERS_MAX];
    size_t marker_count;
    bool reasons; /* the prompt ends behind the opener of reasoning */
};

/* The form that a rendered conversation shows, in which the value of an argument of a call is
 * `value`; NULL: none that is known. */
const char *tool_form_seen(text_view rendered, const char *value, const avo_allocator *allocator);

/* Letters, digits, _, - and ., at least one: what functions are called, in requests and in calls.
 */
bool tool_name_good(text_view name);

/* ---- Reasoning ---- */

typedef struct reasoning_tags {
    const char *open, *close;
} reasoning_tags;
#define REASONING_TAGS 2
extern const reasoning_tags reasoning_known[REASONING_TAGS];

/* ---- Templates that know no tools ---- */

/* Tool calls, their results and tools become text in the turns. `tools` may be NULL. */
AVO_MUST_USE bool turns_describe(chat_turns *turns, const json_value *tools, chat_fault *fault);

/* ---- tools.c ---- */

/* What tool_choice says. */
typedef struct tool_choice {
    text_view function; /* this one; data NULL: any of the tools */
    bool required;      /* the answer is a call; else calls are free to come, but well-formed */
    bool parallel;      /* more than one call may follow another */
} tool_choice;

/* ---- tool_grammar.c ---- */

/* What an answer must be: a grammar for avo_grammar_open, its text in the arena. `tools`: the array
 * as OpenAI has it, [{"type":"function","function":{name, parameters, …}}]. Calls that it describes
 * are objects with a name and arguments, whatever form the model's own have: parsers take them
 * behind `trigger` in the place of that. AVO_ERROR_UNSUPPORTED where calls need not be kept to a
 * grammar: they are not required, and no tool is `strict`. */
AVO_MUST_USE avo_status tool_grammar_write(const chat_format *format, const json_value *tools,
                                           const tool_choice *choice, arena *arena,
                                           chat_constraint *out, avo_error *error);

/* ---- Readers ---- */

/* What a whole payload in tags or Python says: calls in order, in the arena. */
typedef struct tool_found {
    tool_call *calls; /* [capacity] */
    size_t count, capacity;
    arena *arena;
    const json_value *tools; /* types of values follow from their schemas; NULL: not known */
} tool_found;

typedef enum tool_outcome { TOOL_GOOD, TOOL_BAD, TOOL_MORE } tool_outcome;

/* TOOL_MORE: it has not ended. *status: AVO_ERROR_MEMORY, with TOOL_BAD. */
tool_outcome tool_read_tags(const tool_markup *markup, text_view text, tool_found *found,
                            avo_status *status);
tool_outcome tool_read_pairs(const tool_markup *markup, text_view text, tool_found *found,
                             avo_status *status);
tool_outcome tool_read_python(text_view text, tool_found *found, avo_status *status);
tool_outcome tool_read_gemma(text_view text, tool_found *found, avo_status *status);

/* ---- tool_values.c ---- */

/* The function's parameters; NULL: not known. */
const json_value *tool_parameters(const json_value *tools, text_view name);
bool tool_known(const json_value *tools, text_view name);
/* A value that was written as plain text, as the JSON that the schema of `key` wants. */
AVO_MUST_USE avo_status tool_write_value(const json_value *parameters, text_view key,
                                         text_view text, arena *arena, buffer *out);
/* A call whose arguments are the members in `object` ("{…" without its end); false: they are no
 * JSON object, or there are too many calls. */
AVO_MUST_USE bool tool_found_add(tool_found *found, text_view name, buffer *object,
                                 avo_status *status);

static inline bool tool_is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static inline text_view tool_trim(text_view text) {
    while (text.size > 0 && tool_is_space(text.data[0]))
        text.data++, text.size--;
    while (text.size > 0 && tool_is_space(text.data[text.size - 1]))
        text.size--;
    return text;
}

#endif
