/* Finds the files of the page; see page.h. */
#include "server/page/page.h"

#include <string.h>

const page_header page_headers[PAGE_HEADERS] = {
    {"Content-Security-Policy", PAGE_SECURITY_POLICY},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", PAGE_CACHE_CONTROL},
};

const page_file *page_find(const char *path) {
    for (size_t i = 0; i < page_file_count; i++) {
        if (strcmp(page_files[i].path, path) == 0) {
            return &page_files[i];
        }
    }
    return NULL;
}

/* A list of tags, each perhaps weak ("W/" before it), or "*". Our tags are hexadecimal digits in
 * quotes, so that one inside another cannot be. */
bool page_unchanged(const page_file *file, const char *if_none_match) {
    if (if_none_match == NULL) {
        return false;
    }
    return strcmp(if_none_match, "*") == 0 || strstr(if_none_match, file->etag) != NULL;
}

void page_send(exchange *exchange, const page_file *file) {
    for (size_t i = 0; i < PAGE_HEADERS; i++)
        if (strcmp(page_headers[i].name, "X-Content-Type-Options") != 0) /* every answer has it */
            exchange_set_header(exchange, page_headers[i].name, page_headers[i].value);
    exchange_set_header(exchange, "ETag", file->etag);
    if (page_unchanged(file, exchange_header(exchange, "If-None-Match")))
        exchange_send(exchange, 304, file->content_type, (text_view){"", 0});
    else
        exchange_send(exchange, 200, file->content_type, file->bytes);
}
