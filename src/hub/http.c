/* One HTTP request through its redirects, and what its end means. */
#include "hub/http.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STALL_BYTES_PER_SECOND 256L

/* ---- URLs ---- */

static bool is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 ||
           strcmp(host, "[::1]") == 0;
}

typedef struct url_parts {
    char scheme[16];
    char host[256];
    char port[8];
} url_parts;

static bool take_part(CURLU *url, CURLUPart part, unsigned flags, char *out, size_t capacity) {
    char *text = NULL;
    if (curl_url_get(url, part, &text, flags) != CURLUE_OK)
        return false;
    bool fits = strlen(text) < capacity;
    if (fits)
        for (size_t i = 0; i <= strlen(text); i++)
            out[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
    curl_free(text);
    return fits;
}

static avo_status split_url(const char *text, url_parts *parts, avo_error *error) {
    if (strlen(text) >= HTTP_URL_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "the URL has %zu bytes, must have at most %d",
                           strlen(text), HTTP_URL_MAX - 1);
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || *c == 0x7F)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "URL %.200s contains a space or a control character", text);
    AVO_TRY(curl_late_open(error));
    CURLU *url = curl_url();
    if (url == NULL)
        return status_no_memory(error, "a URL", HTTP_URL_MAX);
    bool good =
        curl_url_set(url, CURLUPART_URL, text, CURLU_DISALLOW_USER) == CURLUE_OK &&
        take_part(url, CURLUPART_SCHEME, 0, parts->scheme, sizeof(parts->scheme)) &&
        take_part(url, CURLUPART_HOST, 0, parts->host, sizeof(parts->host)) &&
        take_part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT, parts->port, sizeof(parts->port)) &&
        (strcmp(parts->scheme, "https") == 0 || strcmp(parts->scheme, "http") == 0);
    curl_url_cleanup(url);
    if (!good)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "%.200s is not a download URL; use https://HOST/PATH without a user name", text);
    return AVO_OK;
}

avo_status http_origin(const char *url, char *origin, size_t capacity, avo_error *error) {
    url_parts parts;
    AVO_TRY(split_url(url, &parts, error));
    int bytes = snprintf(origin, capacity, "%s://%s:%s", parts.scheme, parts.host, parts.port);
    return bytes > 0 && (size_t)bytes < capacity
               ? AVO_OK
               : status_fail(error, AVO_ERROR_LIMIT, "the host name in %.200s is too long", url);
}

static avo_status check_scheme(const http_client *client, const char *url, avo_error *error) {
    url_parts parts;
    AVO_TRY(split_url(url, &parts, error));
    if (strcmp(parts.scheme, "https") == 0 || is_loopback(parts.host) ||
        client->pull->options->insecure_http)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "%s: refusing plain http, which others can read and change; use https, or "
                       "--insecure-http to allow it",
                       parts.host);
}

/* The token goes to its own origin only, and over plain http to this machine only. */
static bool may_see_token(const http_client *client, const char *url) {
    url_parts parts;
    char origin[512];
    return client->token != NULL && split_url(url, &parts, NULL) == AVO_OK &&
           http_origin(url, origin, sizeof(origin), NULL) == AVO_OK &&
           strcmp(origin, client->token_origin) == 0 &&
           (strcmp(parts.scheme, "https") == 0 || is_loopback(parts.host));
}

/* ---- Client ---- */

avo_status http_open(http_client *client, pull *pull, const char *endpoint, const char *token,
                     avo_error *error) {
    *client = (http_client){.pull = pull};
    client->authorities = curl_late_authorities(NULL);
    if (endpoint != NULL && token != NULL && token[0] != '\0') {
        for (const char *c = token; *c != '\0'; c++)
            if (*c <= 0x20 || *c >= 0x7F || strlen(token) > 1000)
                return status_fail(error, AVO_ERROR_ARGUMENT,
                                   "HF_TOKEN is not a valid token: it contains spaces or non-ASCII "
                                   "characters, or is too long");
        client->token = token;
        AVO_TRY(http_origin(endpoint, client->token_origin, sizeof(client->token_origin), error));
    }
    AVO_TRY(curl_late_open(error));
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return status_fail(error, AVO_ERROR_NETWORK, "cannot start libcurl");
    client->multi = curl_multi_init();
    if (client->multi == NULL) {
        curl_global_cleanup();
        return status_no_memory(error, "a connection", 0);
    }
    return AVO_OK;
}

void http_close(http_client *client) {
    if (client->multi == NULL)
        return;
    curl_multi_cleanup(client->multi);
    curl_global_cleanup();
    client->multi = NULL;
}

/* ---- Headers ---- */

static void copy_header(char *out, size_t capacity, text_view value) {
    out[0] = '\0';
    if (value.size >= capacity)
        return;
    for (size_t i = 0; i < value.size; i++)
        if (value.data[i] < 0x20 || value.data[i] >= 0x7F)
            return;
    memcpy(out, value.data, value.size);
    out[value.size] = '\0';
}

static void take_header(http_exchange *exchange, text_view name, text_view value) {
    http_response *response = &exchange->response;
    const struct {
        const char *name;
        char *out;
        size_t capacity;
    } wanted[] = {
        {"location", response->location, sizeof(response->location)},
        {"link", response->link, sizeof(response->link)},
        {"etag", response->etag, sizeof(response->etag)},
        {"content-range", response->range, sizeof(response->range)},
        {"content-type", response->type, sizeof(response->type)},
        {"content-encoding", response->encoding, sizeof(response->encoding)},
        {"x-linked-etag", exchange->linked_etag, sizeof(exchange->linked_etag)},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (strlen(wanted[i].name) == name.size &&
            strncasecmp(wanted[i].name, name.data, name.size) == 0)
            copy_header(wanted[i].out, wanted[i].capacity, value);
    if (name.size == 14 && strncasecmp(name.data, "content-length", 14) == 0) {
        char digits[32], *end;
        copy_header(digits, sizeof(digits), value);
        unsigned long long length = strtoull(digits, &end, 10);
        if (digits[0] >= '0' && digits[0] <= '9' && *end == '\0' && length < (1ull << 62))
            response->length = (int64_t)length;
    }
}

static size_t on_header(char *data, size_t size, size_t count, void *context) {
    http_exchange *exchange = context;
    size_t bytes = size * count;
    text_view line = {data, bytes};
    if (text_starts(line, TEXT_LITERAL("HTTP/"))) {
        memset(&exchange->response, 0, sizeof(exchange->response));
        exchange->response.length = -1;
        const char *blank = memchr(data, ' ', bytes);
        if (blank != NULL && bytes - (size_t)(blank - data) >= 4)
            exchange->response.status =
                (blank[1] - '0') * 100L + (blank[2] - '0') * 10L + (blank[3] - '0');
        return bytes;
    }
    const char *colon = memchr(data, ':', bytes);
    if (colon == NULL)
        return bytes;
    size_t begin = (size_t)(colon - data) + 1, end = bytes;
    while (begin < end && (data[begin] == ' ' || data[begin] == '\t'))
        begin++;
    while (end > begin && (data[end - 1] == '\r' || data[end - 1] == '\n' || data[end - 1] == ' '))
        end--;
    take_header(exchange, (text_view){data, (size_t)(colon - data)},
                (text_view){data + begin, end - begin});
    return bytes;
}

/* Digits, then `end`; moves behind it. At most 18 digits: no sum of two can wrap. */
static bool take_number(const char **text, char end, uint64_t *number) {
    const char *at = *text;
    *number = 0;
    for (; *at >= '0' && *at <= '9' && at - *text < 19; at++)
        *number = *number * 10 + (uint64_t)(*at - '0');
    if (at == *text || at - *text > 18 || *at != end)
        return false;
    *text = at + (end != '\0');
    return true;
}

bool http_parse_range(const char *text, uint64_t *begin, uint64_t *end, uint64_t *total) {
    if (!text_starts(text_from(text), TEXT_LITERAL("bytes ")))
        return false;
    text += 6;
    return take_number(&text, '-', begin) && take_number(&text, '/', end) &&
           take_number(&text, '\0', total) && *begin <= *end && *end < *total;
}

text_view http_parse_next(const char *link) {
    for (const char *at = strchr(link, '<'); at != NULL; at = strchr(at + 1, '<')) {
        const char *close = strchr(at, '>');
        if (close == NULL)
            break;
        size_t rest = strcspn(close, ",");
        const char *found = strstr(close, "rel=\"next\"");
        if (found != NULL && (size_t)(found - close) < rest)
            return (text_view){at + 1, (size_t)(close - at) - 1};
    }
    return (text_view){"", 0};
}

/* ---- Exchange ---- */

avo_status http_exchange_open(http_exchange *exchange, http_client *client,
                              curl_write_callback write, void *context, avo_error *error) {
    memset(exchange, 0, sizeof(*exchange));
    const hub_pull_options *options = client->pull->options;
    exchange->client = client;
    CURL *easy = exchange->easy = curl_easy_init();
    if (easy == NULL)
        return status_no_memory(error, "a connection", 0);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)options->connect_seconds);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES_PER_SECOND);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)options->stall_seconds);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "avocet/" AVO_VERSION_TEXT);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->curl_text);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, exchange);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, write);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, context);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, context);
    if (client->authorities != NULL)
        curl_easy_setopt(easy, CURLOPT_CAINFO, client->authorities);
    return AVO_OK;
}

void http_exchange_stop(http_exchange *exchange) {
    if (exchange->running)
        curl_multi_remove_handle(exchange->client->multi, exchange->easy);
    exchange->running = false;
}

void http_exchange_close(http_exchange *exchange) {
    if (exchange->easy == NULL)
        return;
    http_exchange_stop(exchange);
    curl_easy_cleanup(exchange->easy);
    curl_slist_free_all(exchange->headers);
    exchange->easy = NULL;
    exchange->headers = NULL;
}

static bool add_header(struct curl_slist **list, const char *text) {
    struct curl_slist *longer = curl_slist_append(*list, text);
    if (longer == NULL)
        return false;
    *list = longer;
    return true;
}

/* Sends the request for exchange->url. */
static avo_status send_request(http_exchange *exchange, avo_error *error) {
    http_client *client = exchange->client;
    AVO_TRY(check_scheme(client, exchange->url, error));
    struct curl_slist *headers = NULL;
    /* Sums and ranges are of the bytes as they lie there. */
    bool good = add_header(&headers, "Accept-Encoding: identity");
    if (exchange->range_header[0] != '\0')
        good = good && add_header(&headers, exchange->range_header);
    if (exchange->if_range_header[0] != '\0')
        good = good && add_header(&headers, exchange->if_range_header);
    if (may_see_token(client, exchange->url)) {
        char authorization[1100];
        snprintf(authorization, sizeof(authorization), "Authorization: Bearer %s", client->token);
        good = good && add_header(&headers, authorization);
        explicit_bzero(authorization, sizeof(authorization));
    }
    curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, headers);
    curl_slist_free_all(exchange->headers);
    exchange->headers = headers;
    exchange->curl_text[0] = '\0';
    memset(&exchange->response, 0, sizeof(exchange->response));
    exchange->response.length = -1;
    if (!good || curl_easy_setopt(exchange->easy, CURLOPT_URL, exchange->url) != CURLE_OK ||
        curl_multi_add_handle(client->multi, exchange->easy) != CURLM_OK)
        return status_no_memory(error, "a request", HTTP_URL_MAX);
    exchange->running = true;
    return AVO_OK;
}

avo_status http_exchange_start(http_exchange *exchange, const char *url, uint64_t from,
                               const char *etag, avo_error *error) {
    if (strlen(url) >= HTTP_URL_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "the URL has %zu bytes, must have at most %d",
                           strlen(url), HTTP_URL_MAX - 1);
    memcpy(exchange->first_url, url, strlen(url) + 1);
    memcpy(exchange->url, url, strlen(url) + 1);
    exchange->redirects = 0;
    exchange->linked_etag[0] = '\0';
    exchange->range_header[0] = '\0';
    exchange->if_range_header[0] = '\0';
    if (from > 0) {
        snprintf(exchange->range_header, sizeof(exchange->range_header), "Range: bytes=%llu-",
                 (unsigned long long)from);
        if (etag[0] == '"') /* a weak one may not be used here */
            snprintf(exchange->if_range_header, sizeof(exchange->if_range_header), "If-Range: %s",
                     etag);
    }
    return send_request(exchange, error);
}

static avo_status follow(http_exchange *exchange, const char *what, avo_error *error) {
    if (exchange->response.location[0] == '\0')
        return status_fail(error, AVO_ERROR_NETWORK,
                           "%s: the server sent a redirect without an address", what);
    if (++exchange->redirects > HTTP_REDIRECTS_MAX)
        return status_fail(error, AVO_ERROR_NETWORK, "%s: more than %d redirects", what,
                           HTTP_REDIRECTS_MAX);
    bool was_safe = strncasecmp(exchange->url, "https:", 6) == 0;
    AVO_TRY(curl_late_open(error));
    CURLU *url = curl_url();
    char *text = NULL;
    bool good = url != NULL && curl_url_set(url, CURLUPART_URL, exchange->url, 0) == CURLUE_OK &&
                curl_url_set(url, CURLUPART_URL, exchange->response.location,
                             CURLU_DISALLOW_USER) == CURLUE_OK &&
                curl_url_get(url, CURLUPART_URL, &text, 0) == CURLUE_OK &&
                strlen(text) < HTTP_URL_MAX;
    if (good)
        memcpy(exchange->url, text, strlen(text) + 1);
    curl_free(text);
    curl_url_cleanup(url);
    if (!good)
        return status_fail(error, AVO_ERROR_NETWORK,
                           "%s: the server redirected to an invalid address: %.200s", what,
                           exchange->response.location);
    if (was_safe && strncasecmp(exchange->url, "https:", 6) != 0)
        return status_fail(error, AVO_ERROR_NETWORK,
                           "%s: refusing a redirect from https to an unencrypted address", what);
    return send_request(exchange, error);
}

static bool is_transient(CURLcode code) {
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_AGAIN:
        return true;
    default:
        return false;
    }
}

static http_verdict judge_status(http_exchange *exchange, const char *what, uint64_t *wait_ms,
                                 avo_error *error) {
    const long status = exchange->response.status;
    url_parts parts = {.host = "the server"};
    if (split_url(exchange->url, &parts, NULL) != AVO_OK)
        snprintf(parts.host, sizeof(parts.host), "the server");
    avo_status code = AVO_ERROR_NETWORK;
    const char *advice = "";
    if (status == 401)
        advice =
            "; it does not exist, or is private or gated: set HF_TOKEN to a token that can read it";
    else if (status == 403)
        advice = "; the token cannot read it, or its terms must be accepted on its page first";
    else if (status == 404 || status == 410) {
        code = AVO_ERROR_NOT_FOUND;
        advice = "; no such model, revision or file";
    }
    (void)!status_fail(error, code, "%s: HTTP status %ld from %s%s", what, status, parts.host,
                       advice);
    bool retry = status == 408 || status == 425 || status == 429 || status == 500 ||
                 status == 502 || status == 503 || status == 504;
    if (!retry)
        return HTTP_FAILED;
    curl_off_t asked_s = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RETRY_AFTER, &asked_s);
    if (asked_s > HTTP_WAIT_MAX_S) {
        (void)!status_fail(error, AVO_ERROR_NETWORK,
                           "%s: HTTP status %ld from %s, which asks to wait %lld s; try again then",
                           what, status, parts.host, (long long)asked_s);
        return HTTP_FAILED;
    }
    *wait_ms = asked_s > 0 ? (uint64_t)asked_s * 1000 : 0;
    return HTTP_RETRY;
}

http_verdict http_judge(http_exchange *exchange, CURLcode code, const char *what, uint64_t *wait_ms,
                        avo_error *error) {
    *wait_ms = 0;
    http_exchange_stop(exchange);
    if (code != CURLE_OK) {
        url_parts parts = {.host = "the server"};
        if (split_url(exchange->url, &parts, NULL) != AVO_OK)
            snprintf(parts.host, sizeof(parts.host), "the server");
        (void)!status_fail(error, AVO_ERROR_NETWORK, "%s: %s: %s", what, parts.host,
                           exchange->curl_text[0] != '\0' ? exchange->curl_text
                                                          : curl_easy_strerror(code));
        return is_transient(code) ? HTTP_RETRY : HTTP_FAILED;
    }
    long status = exchange->response.status;
    if (status == 200 || status == 206)
        return HTTP_GOOD;
    if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308)
        return follow(exchange, what, error) == AVO_OK ? HTTP_FOLLOWED : HTTP_FAILED;
    return judge_status(exchange, what, wait_ms, error);
}

uint64_t http_delay_ms(const hub_pull_options *options, uint32_t failures, uint64_t asked_ms) {
    uint64_t delay = options->retry_delay_ms;
    for (uint32_t i = 1; i < failures && delay < 8000; i++)
        delay *= 2;
    delay = delay > 8000 && delay > options->retry_delay_ms ? 8000 : delay;
    return asked_ms > delay ? asked_ms : delay;
}

/* ---- Small texts ---- */

typedef struct text_request {
    http_exchange exchange;
    buffer *text;
    bool too_long;
} text_request;

static size_t on_text(char *data, size_t size, size_t count, void *context) {
    text_request *request = context;
    if (request->exchange.response.status != 200)
        return size * count; /* the page of a redirect or an error */
    if (buffer_append(request->text, data, size * count) == AVO_OK)
        return size * count;
    request->too_long = true;
    return 0;
}

/* Runs until the one transfer ends or the user stops it. */
static avo_status wait_for_end(http_client *client, CURLcode *code, avo_error *error) {
    for (;;) {
        int running, left;
        if (curl_multi_perform(client->multi, &running) != CURLM_OK)
            return status_fail(error, AVO_ERROR_NETWORK, "libcurl failed");
        for (CURLMsg *message; (message = curl_multi_info_read(client->multi, &left)) != NULL;)
            if (message->msg == CURLMSG_DONE) {
                *code = message->data.result;
                return AVO_OK;
            }
        AVO_TRY(pull_report(client->pull, "pulling", 0, error));
        curl_multi_poll(client->multi, NULL, 0, 100, NULL);
    }
}

static avo_status wait_before_retry(http_client *client, uint64_t milliseconds, avo_error *error) {
    uint64_t end = clock_now_ns() + milliseconds * 1000000u;
    while (clock_now_ns() < end) {
        AVO_TRY(pull_report(client->pull, "pulling", 0, error));
        curl_multi_poll(client->multi, NULL, 0, milliseconds < 100 ? (int)milliseconds : 100, NULL);
    }
    return AVO_OK;
}

static avo_status get_text(http_client *client, text_request *request, const char *url,
                           const char *what, avo_error *error) {
    http_exchange *exchange = &request->exchange;
    uint32_t failures = 0;
    AVO_TRY(http_exchange_start(exchange, url, 0, "", error));
    for (;;) {
        CURLcode code = CURLE_OK;
        uint64_t wait_ms = 0;
        avo_error found = {0};
        AVO_TRY(wait_for_end(client, &code, error));
        http_verdict verdict = http_judge(exchange, code, what, &wait_ms, &found);
        if (request->too_long)
            return status_fail(error, AVO_ERROR_LIMIT, "%s: the response is longer than %zu bytes",
                               what, request->text->limit);
        if (verdict == HTTP_GOOD && exchange->response.status == 200)
            return AVO_OK;
        if (verdict == HTTP_FOLLOWED)
            continue;
        if (verdict != HTTP_RETRY || failures >= client->pull->options->retries)
            return status_fail(
                error, found.status != AVO_OK ? found.status : AVO_ERROR_NETWORK, "%s",
                found.status != AVO_OK ? found.text : "the server sent an unusable response");
        failures++;
        request->text->size = 0;
        AVO_TRY(wait_before_retry(client, http_delay_ms(client->pull->options, failures, wait_ms),
                                  error));
        AVO_TRY(http_exchange_start(exchange, url, 0, "", error));
    }
}

/* The next page, resolved against this one; it must be on the same host. */
static avo_status find_next(const http_exchange *exchange, char *next, size_t capacity,
                            avo_error *error) {
    next[0] = '\0';
    text_view link = http_parse_next(exchange->response.link);
    if (link.size == 0)
        return AVO_OK;
    char relative[HTTP_URL_MAX], here[512], there[512];
    snprintf(relative, sizeof(relative), "%.*s", (int)link.size, link.data);
    AVO_TRY(curl_late_open(error));
    CURLU *url = curl_url();
    char *text = NULL;
    bool good = url != NULL && curl_url_set(url, CURLUPART_URL, exchange->url, 0) == CURLUE_OK &&
                curl_url_set(url, CURLUPART_URL, relative, CURLU_DISALLOW_USER) == CURLUE_OK &&
                curl_url_get(url, CURLUPART_URL, &text, 0) == CURLUE_OK && strlen(text) < capacity;
    if (good)
        memcpy(next, text, strlen(text) + 1);
    curl_free(text);
    curl_url_cleanup(url);
    if (!good || http_origin(exchange->url, here, sizeof(here), NULL) != AVO_OK ||
        http_origin(next, there, sizeof(there), NULL) != AVO_OK || strcmp(here, there) != 0)
        return status_fail(
            error, AVO_ERROR_NETWORK,
            "the next page of the file list is on another server or has no valid address: %.200s",
            relative);
    return AVO_OK;
}

avo_status http_get_text(http_client *client, const char *url, const char *what, buffer *text,
                         char *next, size_t next_capacity, avo_error *error) {
    text_request *request = allocator_take_array(NULL, 1, sizeof(*request));
    if (request == NULL)
        return status_no_memory(error, "a request", sizeof(*request));
    text->size = 0;
    avo_status status = http_exchange_open(&request->exchange, client, on_text, request, error);
    request->text = text; /* open cleared the exchange only */
    AVO_THEN(status, get_text(client, request, url, what, error));
    if (status == AVO_OK && next != NULL)
        status = find_next(&request->exchange, next, next_capacity, error);
    http_exchange_close(&request->exchange);
    allocator_give(NULL, request, sizeof(*request));
    return status;
}
