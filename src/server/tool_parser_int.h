/* An answer that is being read, between tool_calls.c (its bytes) and tool_follow.c (arguments as
 * they come). */
#ifndef AVO_SERVER_TOOL_PARSER_INT_H
#define AVO_SERVER_TOOL_PARSER_INT_H

#include "server/tool_int.h"

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

struct tool_parser {
    const tool_format *format;
    tool_parser_options options;
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

static inline text_view raw_at(const tool_parser *p, size_t at, size_t size) {
    return (text_view){p->raw.data + at, size};
}

/* A call with arguments from a JSON value, or as they `came`; *good: false: it is none. */
AVO_MUST_USE avo_status parser_add_call(tool_parser *p, text_view name, const json_value *arguments,
                                        const tool_call *came, bool *good);
/* An object or an array of them: all, or none. */
AVO_MUST_USE avo_status parser_add_value(tool_parser *p, const json_value *value, bool *good);

/* Arguments begin with the byte that has just come. */
AVO_MUST_USE avo_status arguments_begin(tool_parser *p, text_view name);
/* The call that was begun is over, complete or not. */
AVO_MUST_USE avo_status begun_ends(tool_parser *p);
/* A bracket or a string of the value, whose byte is the last in `raw`. */
AVO_MUST_USE avo_status follow_open(tool_parser *p, char byte);
AVO_MUST_USE avo_status follow_close(tool_parser *p);
void follow_string(tool_parser *p);

#endif
