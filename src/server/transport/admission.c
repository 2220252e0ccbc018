/* May a request be answered? Host, method, origin, key, rate: everything that its head says. */
#include "server/server_int.h"

#include <strings.h>

static const char *header(const carried *exchange, const char *name) {
    return headers_find(&exchange->headers, name);
}

/* ---- Keys ---- */

/* What everybody may see: whether it lives, and the page, which asks for a key itself. */
static bool is_open_path(const carried *exchange) {
    const exchange_request *asked = &exchange->base.asked;
    static const char *const paths[] = {"/", "/health", "/ready", "/openapi.json"};
    static const char *const suffixes[] = {".html", ".css", ".js",    ".svg",
                                           ".png",  ".ico", ".woff2", ".webmanifest"};
    if (asked->grpc)
        return exchange->is_open;
    if (strcmp(asked->method, "GET") != 0 || asked->path[0] != '/')
        return false;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (strcmp(asked->path, paths[i]) == 0)
            return true;
    bool top = strchr(asked->path + 1, '/') == NULL;
    for (size_t i = 0; top && i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
        if (text_ends(text_from(asked->path), text_from(suffixes[i])))
            return true;
    return false;
}

static text_view given_key(const carried *exchange) {
    const char *bearer = header(exchange, "Authorization");
    const char *key = header(exchange, "x-api-key");
    if (bearer != NULL && strncasecmp(bearer, "Bearer ", 7) == 0)
        key = bearer + 7 + strspn(bearer + 7, " ");
    return text_from(key);
}

static void check_key(carried *exchange) {
    server *server = exchange->server;
    if (server->options.keys_path == NULL) {
        exchange->base.asked.may_administer =
            server->options.allow_adapter_loading && exchange->local;
        return;
    }
    pthread_mutex_lock(&server->keys_lock);
    exchange->keys = server_keys_share(server->keys);
    pthread_mutex_unlock(&server->keys_lock);
    text_view given = given_key(exchange);
    exchange->base.asked.key = server_keys_find(exchange->keys, given);
    if (exchange->base.asked.key == NULL && !is_open_path(exchange)) {
        exchange_set_header(&exchange->base, "WWW-Authenticate", "Bearer");
        exchange_fail(&exchange->base, 401, NULL, "invalid_api_key",
                      given.size > 0
                          ? "unknown API key"
                          : "an API key is required: Authorization: Bearer KEY or x-api-key");
        return;
    }
    if (exchange->base.asked.key == NULL)
        return;
    exchange->base.asked.may_administer = server_key_is_admin(exchange->base.asked.key);
    exchange->payer = address_of_name(server_key_name(exchange->base.asked.key));
    exchange->pays = true;
    if (strcmp(exchange->base.asked.method, "GET") == 0)
        return;
    ledger_time now = ledger_now();
    ledger_verdict verdict;
    exchange->entered = server_key_admit(exchange->base.asked.key, &now, &verdict);
    rates_tell(&exchange->base, server_key_limits(exchange->base.asked.key), &verdict.left);
    if (!exchange->entered)
        exchange_refuse(&exchange->base, 429, verdict.retry_seconds,
                        server_key_refusal(verdict.refusal));
}

/* ---- Everything else ---- */

/* Pages of other sites can make browsers send requests here, without reading the answers. Those
 * that change or cost something are refused unless the page is ours or allowed. */
static void check_origin(carried *exchange) {
    const char *origin = header(exchange, "Origin");
    const char *allowed = exchange->server->options.cors_origin;
    if (origin == NULL || strcmp(exchange->base.asked.method, "GET") == 0)
        return;
    if (allowed != NULL && (strcmp(allowed, "*") == 0 || strcmp(allowed, origin) == 0))
        return;
    const char *host = header(exchange, "Host");
    const char *site = strstr(origin, "://");
    if (host == NULL || site == NULL || strcasecmp(site + 3, host) != 0)
        exchange_fail(&exchange->base, 403, NULL, "origin",
                      "origin %.200s is not allowed; --cors ORIGIN allows one", origin);
}

static void answer_options(carried *exchange) {
    char allowed[64];
    const server_handler *handler = &exchange->server->handler;
    handler->allowed(handler->context, exchange->base.asked.path, allowed, sizeof(allowed));
    exchange_set_header(&exchange->base, "Allow", allowed);
    if (exchange->server->options.cors_origin != NULL) {
        exchange_set_header(&exchange->base, "Access-Control-Allow-Methods", allowed);
        exchange_set_header(&exchange->base, "Access-Control-Allow-Headers",
                            "Authorization, Content-Type, X-Api-Key, X-Request-Id, "
                            "Anthropic-Version, Anthropic-Beta");
        exchange_set_header(&exchange->base, "Access-Control-Max-Age", "600");
    }
    exchange_send(&exchange->base, 204, NULL, (text_view){"", 0});
}

static bool is_method_known(const char *method) {
    static const char *const methods[] = {"GET", "POST", "DELETE", "PUT", "PATCH"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

void admission_refuse_body(carried *exchange) {
    exchange_fail(&exchange->base, 413, NULL, "body_too_large",
                  "the body is larger than %llu bytes",
                  (unsigned long long)exchange->server->options.body_bytes_max);
}

static void check_length(carried *exchange, uint64_t announced) {
    if (announced != UINT64_MAX && announced > exchange->server->options.body_bytes_max)
        admission_refuse_body(exchange);
}

void admission_check(carried *exchange, uint64_t announced) {
    const char *method = exchange->base.asked.method;
    host_check(exchange);
    if (carried_answered(exchange))
        return;
    if (strcmp(method, "OPTIONS") == 0) {
        answer_options(exchange);
        return;
    }
    if (!is_method_known(method)) {
        exchange_set_header(&exchange->base, "Allow", "GET, HEAD, POST, OPTIONS");
        exchange_fail(&exchange->base, 405, NULL, "method_not_allowed", "unknown method %.40s",
                      method);
        return;
    }
    if (atomic_load(&exchange->server->draining) && strcmp(method, "GET") != 0) {
        exchange_set_header(&exchange->base, "Retry-After", "5");
        exchange_fail(&exchange->base, 503, NULL, "shutting_down", "the server is shutting down");
        return;
    }
    check_origin(exchange);
    if (!carried_answered(exchange))
        check_key(exchange);
    const char *coding = header(exchange, "Content-Encoding");
    if (!carried_answered(exchange) && coding != NULL && strcasecmp(coding, "identity") != 0)
        exchange_fail(&exchange->base, 415, NULL, "content_encoding",
                      "unsupported Content-Encoding %.40s; send the body uncompressed", coding);
    if (!carried_answered(exchange))
        check_length(exchange, announced);
}
