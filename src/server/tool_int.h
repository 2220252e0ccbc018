/* Between the files of calls: what a form is. */
#ifndef AVO_SERVER_TOOL_INT_H
#define AVO_SERVER_TOOL_INT_H

#include "server/tool_calls.h"

#define TOOL_MARKERS_MAX 8

/* A text that a call begins with, and what may stand behind it. */
typedef struct tool_opener {
    const char *text, *close; /* close: NULL: nothing */
    bool named;               /* NAME[ARGS]{…} may follow */
} tool_opener;

typedef struct tool_form {
    const char *name;
    tool_opener openers[4]; /* `text` NULL behind the last */
    const char *key;        /* of the arguments: what its grammar asks for */
    bool described;         /* in the system's message */
    bool bare;              /* calls without an opener may follow one another, with ';' between */
} tool_form;

extern const tool_form tool_forms[];
extern const size_t tool_form_count;

/* A token that text does not show. */
typedef struct tool_marker {
    int32_t token;
    const char *text;
    bool opens;
} tool_marker;

struct tool_format {
    const tool_form *form;
    tool_marker markers[TOOL_MARKERS_MAX];
    size_t marker_count;
};

#endif
