/* A request's head as it comes over the wire: whether it is one, before anybody takes it apart.
 *
 * libmicrohttpd refuses broken heads by itself, in words of its own that no client of this API can
 * read, and of what is no HTTP at all it waits for more. So the first head of every connection is
 * looked at before libmicrohttpd sees it (gate.c), and what is wrong with it is said in the
 * shape of all other errors. Only the form is judged here; admission.c decides who may ask what.
 */
#ifndef AVO_SERVER_HEAD_H
#define AVO_SERVER_HEAD_H

#include "base/cursor.h"

#define HEAD_FIELDS_MAX 128u /* header fields, arguments of the query and cookies together */
#define HEAD_METHOD_MAX 32u

typedef enum head_state {
    HEAD_PARTIAL, /* good so far, and not at its end */
    HEAD_GOOD,
    HEAD_BAD
} head_state;

typedef struct head {
    head_state state;
    unsigned status; /* of a bad one: 400, 413, 414, 431 or 505 */
    const char *code, *text;
    text_view method, target; /* where the first line has come and is one; else empty */
} head;

/* Judges the bytes that have come; `limit`: of a head, its empty last line counted, and its cookies
 * twice. The views of the result are into `bytes`. */
head head_check(text_view bytes, size_t limit);

/* A name of a header: a token of RFC 9110, so no space before the colon. */
bool head_name_good(text_view name);

#endif
