/* An answer that is being read, between parser.c (its bytes), parser_json.c (tool calls that are
 * JSON) and reasoning.c (the span in front). */
#ifndef AVO_CHAT_PARSER_INT_H
#define AVO_CHAT_PARSER_INT_H

#include "chat/tool_int.h"

typedef enum parse_state { PARSE_SPACE, PARSE_TEXT, PARSE_PAYLOAD, PARSE_CLOSE } parse_state;
typedef enum scan_kind { SCAN_BEFORE, SCAN_JSON, SCAN_PYTHON, SCAN_CLOSER } scan_kind;

/* Where in a JSON value with calls the arguments are. Offsets are in `raw`. */
typedef struct follower {
    uint32_t members; /* depth of an object's members: 1, or 2 in an array; 0: all is arguments */
    bool value;       /* a value is due, not a key */
    bool name_seen, arguments_seen;
    bool escapes; /* in the string at hand */
    size_t string_at, key_at, key_size, name_at, name_size, element_at;
    bool open;      /* arguments come */
    bool collected; /* they are there */
    size_t element; /* how many were before */
} follower;

typedef enum reasoning_state {
    REASONING_BEGIN,  /* nothing but white space and what may be the opener has come */
    REASONING_INSIDE, /* behind the opener */
    REASONING_AFTER,  /* behind the closer: white space belongs to no text */
    REASONING_OVER    /* all that comes is text */
} reasoning_state;

/* The span of reasoning that an answer may begin with. */
typedef struct reasoning {
    reasoning_state state;
    const char *close; /* of the span that was opened */
    bool begun;        /* some reasoning has come */
    buffer held;       /* what may be a marker, with white space before it */
    buffer out;        /* reasoning of this push */
    buffer text;       /* what is none, of this push */
} reasoning;

struct chat_parser {
    const chat_format *format;
    const avo_allocator *allocator;
    chat_parser_options options;
    reasoning reasoning;
    parse_state state;
    bool bare_may; /* a call may begin without an opener here */
    bool bare;     /* this one has */
    bool broken;   /* a part of this payload is no call */
    buffer out;    /* text for the user, of this push */
    buffer space;  /* of PARSE_SPACE */
    buffer held;   /* of PARSE_TEXT and PARSE_CLOSE */
    buffer raw;    /* of PARSE_PAYLOAD, with its opener */
    buffer arguments;
    const tool_opener *opener;
    scan_kind scan;
    size_t value_at;      /* in raw, where the value begins */
    size_t payload_calls; /* calls before this payload */
    uint32_t depth, closers;
    char quote; /* of the string at hand; 0: none */
    bool escaped;
    bool inside; /* of the value there is more than its first byte */
    follower follow;
    bool begun;                /* a call that is told while it comes */
    tool_call coming;          /* that one */
    arena arena;               /* names and arguments */
    tool_call *calls, *staged; /* staged: arguments of the elements of an array */
    size_t count, malformed;
};

/* Appends what `from` holds and empties it. */
AVO_MUST_USE avo_status parser_move(buffer *from, buffer *to);

/* ---- reasoning.c ---- */

void reasoning_open(chat_parser *p);
void reasoning_close(chat_parser *p);
/* More of the answer; what is no reasoning is in p->reasoning.text. */
AVO_MUST_USE avo_status reasoning_feed(chat_parser *p, text_view text);
/* The answer has ended. */
AVO_MUST_USE avo_status reasoning_finish(chat_parser *p);

/* ---- parser_json.c ---- */

static inline text_view raw_at(const chat_parser *p, size_t at, size_t size) {
    return (text_view){p->raw.data + at, size};
}

/* A call with arguments from a JSON value, or as they `came`; *good: false: it is none. */
AVO_MUST_USE avo_status parser_add_call(chat_parser *p, text_view name, const json_value *arguments,
                                        const tool_call *came, bool *good);
/* An object or an array of them: all, or none. */
AVO_MUST_USE avo_status parser_add_value(chat_parser *p, const json_value *value, bool *good);

/* Arguments begin with the byte that has just come. */
AVO_MUST_USE avo_status arguments_begin(chat_parser *p, text_view name);
/* The call that was begun is over, complete or not. */
AVO_MUST_USE avo_status begun_ends(chat_parser *p);
/* A bracket or a string of the value, whose byte is the last in `raw`. */
AVO_MUST_USE avo_status follow_open(chat_parser *p, char byte);
AVO_MUST_USE avo_status follow_close(chat_parser *p);
void follow_string(chat_parser *p);

#endif
