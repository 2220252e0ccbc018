/* multipart/form-data (RFC 7578) of a body that is whole: its parts, in place. Bounded: at most
 * MULTIPART_PARTS_MAX parts; nothing is copied or allocated. Nested parts and encodings of
 * transfer other than the bytes themselves are refused, as browsers and clients send none. */
#ifndef AVO_SERVER_API_MULTIPART_H
#define AVO_SERVER_API_MULTIPART_H

#include "base/cursor.h"

#define MULTIPART_PARTS_MAX    16
#define MULTIPART_BOUNDARY_MAX 70 /* RFC 2046 */

typedef struct multipart_part {
    text_view name, filename; /* filename: {NULL, 0} where there is none */
    text_view data;
} multipart_part;

typedef struct multipart {
    multipart_part parts[MULTIPART_PARTS_MAX];
    size_t count;
} multipart;

/* `type`: the request's Content-Type. False: `why` says what is wrong, for the client. */
bool multipart_read(const char *type, text_view body, multipart *out, const char **why);
/* NULL: there is none. */
const multipart_part *multipart_find(const multipart *form, const char *name);

#endif
