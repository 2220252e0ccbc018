/* HTTP over libcurl with our own rules: redirects are followed by us, so that a token goes to the
 * hub's own host only and https never becomes http; every wait and every text has a limit. */
#ifndef AVO_HUB_HTTP_H
#define AVO_HUB_HTTP_H

#include "base/buffer.h"
#include "hub/curl_late.h"
#include "hub/hub_int.h"

#define HTTP_URL_MAX       8192
#define HTTP_TEXT_MAX      256
#define HTTP_REDIRECTS_MAX 10
#define HTTP_WAIT_MAX_S    120 /* a longer Retry-After is a failure */

typedef struct http_client {
    pull *pull;
    CURLM *multi;
    const char *token;       /* NULL: none */
    char token_origin[512];  /* who may see it */
    const char *authorities; /* file of certificates, or NULL: the system's */
} http_client;

/* `endpoint` may be NULL (no token then). */
AVO_MUST_USE avo_status http_open(http_client *client, pull *pull, const char *endpoint,
                                  const char *token, avo_error *error);
void http_close(http_client *client);

/* "https://host:443" of a URL. Refuses other schemes, user names, control characters. */
AVO_MUST_USE avo_status http_origin(const char *url, char *origin, size_t capacity,
                                    avo_error *error);

/* What a response said; texts are printable ASCII, "" where absent or too long. */
typedef struct http_response {
    long status;
    int64_t length; /* −1: not said */
    char location[HTTP_URL_MAX];
    char link[HTTP_URL_MAX];
    char etag[HTTP_TEXT_MAX];
    char range[HTTP_TEXT_MAX];
    char type[HTTP_TEXT_MAX];
    char encoding[HTTP_TEXT_MAX];
} http_response;

/* One request with its redirects. */
typedef struct http_exchange {
    http_client *client;
    CURL *easy;
    struct curl_slist *headers;
    bool running; /* is in the multi handle */
    char first_url[HTTP_URL_MAX];
    char url[HTTP_URL_MAX];
    char range_header[64];
    char if_range_header[HTTP_TEXT_MAX + 16];
    unsigned redirects;
    http_response response;
    char linked_etag[HTTP_TEXT_MAX]; /* X-Linked-Etag: kept over redirects */
    char curl_text[CURL_ERROR_SIZE];
} http_exchange;

AVO_MUST_USE avo_status http_exchange_open(http_exchange *exchange, http_client *client,
                                           curl_write_callback write, void *context,
                                           avo_error *error);
void http_exchange_close(http_exchange *exchange);
/* Starts a request; `from` > 0 asks for the rest of a file, only if it still has `etag` (may be
 * ""). */
AVO_MUST_USE avo_status http_exchange_start(http_exchange *exchange, const char *url, uint64_t from,
                                            const char *etag, avo_error *error);
void http_exchange_stop(http_exchange *exchange);

typedef enum http_verdict {
    HTTP_GOOD,     /* 200 or 206 to the end */
    HTTP_FOLLOWED, /* a redirect: already on its way again */
    HTTP_RETRY,    /* worth another try after *wait_ms (0: the caller's own delay) */
    HTTP_FAILED
} http_verdict;
/* What to make of a finished transfer; `error` is written for the last two. */
http_verdict http_judge(http_exchange *exchange, CURLcode code, const char *what, uint64_t *wait_ms,
                        avo_error *error);

/* Waits before try number `failures` (1, 2, …), in milliseconds. */
uint64_t http_delay_ms(const hub_pull_options *options, uint32_t failures, uint64_t asked_ms);

/* A small text, with retries; `next` gets the URL of the next page ("" when there is none; may be
 * NULL). Status 404 gives AVO_ERROR_NOT_FOUND. */
AVO_MUST_USE avo_status http_get_text(http_client *client, const char *url, const char *what,
                                      buffer *text, char *next, size_t next_capacity,
                                      avo_error *error);

/* "bytes 5-9/10" to its three numbers. */
bool http_parse_range(const char *text, uint64_t *begin, uint64_t *end, uint64_t *total);
/* The URL of rel="next" in a Link header, or an empty view. */
text_view http_parse_next(const char *link);

#endif
