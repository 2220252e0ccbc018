/* The web page: the files of web/, which the build puts into the binary (tools/page.cmake), and the
 * headers that must go with each of them. Whoever serves them copies nothing and decides nothing:
 * find, ask whether the browser has it already, send.
 */
#ifndef AVO_SERVER_PAGE_H
#define AVO_SERVER_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "server/transport/exchange.h"

/* Scripts and styles come from the server itself, and from nowhere else; nothing inline, nothing
 * evaluated, no frames, no forms. Model output that got past the page's own care would still find
 * no way to run or to report anywhere. */
#define PAGE_SECURITY_POLICY                                                                       \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
/* The browser asks every time and gets 304 where its ETag is still the file's: a new binary is seen
 * at once. */
#define PAGE_CACHE_CONTROL "no-cache"

typedef struct page_file {
    const char *path; /* as asked for: "/", "/app.js" */
    const char *content_type;
    text_view bytes;
    const char *etag; /* with its quotes, as the header wants it */
} page_file;

typedef struct page_header {
    const char *name, *value;
} page_header;

/* Every answer with a page file carries these, besides Content-Type and ETag. */
enum { PAGE_HEADERS = 6 };
extern const page_header page_headers[PAGE_HEADERS];

/* NULL: no such file. */
const page_file *page_find(const char *path);
/* Whether If-None-Match (NULL where absent) names this very content: answer 304 without a body. */
bool page_unchanged(const page_file *file, const char *if_none_match);

/* Answers with it, or with 304. */
void page_send(exchange *exchange, const page_file *file);

/* Made by the build from web/. */
extern const page_file page_files[];
extern const size_t page_file_count;

#endif
