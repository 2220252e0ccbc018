/* An exchange over HTTP: references, the answer until it is sent, clients that go. */
#include "server/server_int.h"

#include "base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/random.h>

/* ---- Opening and releasing ---- */

void headers_add(carried *exchange, header_list *list, const char *name, const char *value) {
    header_item *item = arena_take(&exchange->arena, sizeof(*item));
    if (item == NULL)
        return;
    item->name = arena_copy_text(&exchange->arena, name, strlen(name));
    item->value = value == NULL ? "" : arena_copy_text(&exchange->arena, value, strlen(value));
    if (item->name == NULL || item->value == NULL)
        return;
    if (list->last != NULL)
        list->last->next = item;
    else
        list->first = item;
    list->last = item;
}

const char *headers_find(const header_list *list, const char *name) {
    for (const header_item *item = list->first; item != NULL; item = item->next)
        if (strcasecmp(item->name, name) == 0)
            return item->value;
    return NULL;
}

void carried_make_id(char id[static 25]) {
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        random[0] = clock_now_ns();
    snprintf(id, 25, "%016llx%08llx", (unsigned long long)random[0],
             (unsigned long long)(random[1] & 0xFFFFFFFFu));
}

/* The client's own id where it is harmless in a header and in a log. */
static void choose_id(carried *exchange) {
    const char *given = headers_find(&exchange->headers, "X-Request-Id");
    size_t length = given == NULL ? 0 : strlen(given);
    bool good = length > 0 && length <= EXCHANGE_ID_MAX;
    for (size_t i = 0; good && i < length; i++)
        good = given[i] > ' ' && given[i] < 0x7F && given[i] != '"' && given[i] != '\\';
    if (good)
        memcpy(exchange->id, given, length + 1);
}

/* "http://host/path", as proxies ask (RFC 9112, 3.2.2): the path is what is asked for, and the host
 * there counts instead of the header. */
static const char *take_authority(carried *exchange, const char *url) {
    size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                    : strncasecmp(url, "https://", 8) == 0 ? 8
                                                           : 0;
    if (scheme == 0)
        return url;
    size_t size = strcspn(url + scheme, "/");
    const char *host = arena_copy_text(&exchange->arena, url + scheme, size);
    for (header_item *item = exchange->headers.first; item != NULL; item = item->next)
        if (strcasecmp(item->name, "Host") == 0 && host != NULL)
            item->value = host;
    const char *path = url + scheme + size;
    return path[0] == '\0' ? "/" : path;
}

bool carried_begin(carried *exchange, const char *url, const char *method) {
    pthread_mutex_lock(&exchange->lock); /* carried_expire tells path and id */
    exchange->keep_head = strcmp(method, "HEAD") == 0;
    const char *seen = exchange->keep_head ? "GET" : method;
    url = take_authority(exchange, url);
    const char *kept = arena_copy_text(&exchange->arena, seen, strlen(seen));
    const char *path = arena_copy_text(&exchange->arena, url, strlen(url));
    bool good = kept != NULL && path != NULL;
    if (good) {
        exchange->base.asked.method = kept;
        exchange->base.asked.path = path;
    }
    choose_id(exchange);
    pthread_mutex_unlock(&exchange->lock);
    return good;
}

static void free_parts(carried *exchange) {
    buffer_free(&exchange->body);
    buffer_free(&exchange->whole);
    buffer_free(&exchange->pending);
    buffer_free(&exchange->prompt);
    server_keys_release(exchange->keys);
    arena_free(&exchange->arena);
    pthread_cond_destroy(&exchange->cond);
    pthread_mutex_destroy(&exchange->lock);
}

static void carried_share(exchange *exchange) {
    atomic_fetch_add_explicit(&carried_of(exchange)->references, 1, memory_order_relaxed);
}

/* Its tokens count against the key, whose next request may come. */
static void settle_key(const carried *exchange) {
    const server_key *key = exchange->base.asked.key;
    if (exchange->has_usage && key != NULL) {
        ledger_time now = ledger_now();
        ledger_totals used = {.prompt_tokens = exchange->usage.prompt_tokens,
                              .cached_tokens = exchange->usage.reused_tokens,
                              .new_tokens = exchange->usage.new_tokens};
        server_key_charge(key, &now, &used);
    }
    if (exchange->entered)
        server_key_leave(key);
}

static void carried_release(exchange *released) {
    carried *exchange = carried_of(released);
    if (atomic_fetch_sub_explicit(&exchange->references, 1, memory_order_acq_rel) != 1)
        return;
    server *server = exchange->server;
    settle_key(exchange);
    access_trace(exchange);
    access_log_exchange(exchange);
    body_give_back(exchange);
    free_parts(exchange);
    exchange->carrier->free(exchange);
    pthread_mutex_lock(&server->live_lock);
    server->live_exchanges--;
    pthread_cond_broadcast(&server->live_cond);
    pthread_mutex_unlock(&server->live_lock);
}

/* ---- Answers ---- */

static const char *carried_header(exchange *exchange, const char *name) {
    return headers_find(&carried_of(exchange)->headers, name);
}

static const char *carried_query(exchange *exchange, const char *name) {
    return headers_find(&carried_of(exchange)->queries, name);
}

static void add_cors(const carried *exchange, header_function see, void *context) {
    const char *allowed = exchange->server->options.cors_origin;
    if (allowed == NULL)
        return;
    const char *origin = headers_find(&exchange->headers, "Origin");
    bool any = strcmp(allowed, "*") == 0;
    if (!any)
        see(context, "Vary", "Origin");
    if (!any && (origin == NULL || strcmp(origin, allowed) != 0))
        return;
    see(context, "Access-Control-Allow-Origin", allowed);
    see(context, "Access-Control-Expose-Headers",
        "X-Request-Id, Retry-After, x-ratelimit-limit-requests, "
        "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
        "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens");
}

void carried_each_header(const carried *exchange, header_function see, void *context) {
    if (exchange->content_type != NULL)
        see(context, "Content-Type", exchange->content_type);
    see(context, "X-Request-Id", exchange->id);
    if (headers_find(&exchange->answer_headers, "X-Content-Type-Options") == NULL)
        see(context, "X-Content-Type-Options", "nosniff");
    add_cors(exchange, see, context);
    for (const header_item *item = exchange->answer_headers.first; item != NULL; item = item->next)
        see(context, item->name, item->value);
}

static void carried_set_header(exchange *answered, const char *name, const char *value) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == CARRIED_WAITING);
    headers_add(exchange, &exchange->answer_headers, name, value);
    pthread_mutex_unlock(&exchange->lock);
}

/* Nobody is told of a client that goes from now on; one who is being told now is waited for. */
static void forget_gone(carried *exchange) {
    exchange->on_gone = NULL;
    while (exchange->gone_running && !pthread_equal(exchange->gone_thread, pthread_self()))
        pthread_cond_wait(&exchange->cond, &exchange->lock);
}

static void carried_send(exchange *answered, unsigned status, const char *content_type,
                         text_view body) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == CARRIED_WAITING);
    forget_gone(exchange);
    exchange->phase = CARRIED_DONE;
    exchange->status = status;
    exchange->content_type = content_type;
    exchange->sent_bytes = exchange->keep_head ? 0 : body.size;
    exchange->broken = buffer_append(&exchange->whole, body.data, body.size) != AVO_OK;
    exchange->gone = exchange->gone || exchange->broken;
    exchange->carrier->wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

static void carried_stream(exchange *answered, unsigned status, const char *content_type) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == CARRIED_WAITING);
    exchange->phase = CARRIED_STREAMING;
    exchange->streams = true;
    exchange->status = status;
    exchange->content_type = content_type;
    exchange->carrier->wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

carried_more carried_read(carried *exchange, char *bytes, size_t maximum, size_t *got) {
    size_t left = exchange->pending.size - exchange->pending_at;
    *got = left < maximum ? left : maximum;
    if (exchange->gone || exchange->cut)
        return CARRIED_ERROR;
    if (left == 0)
        return exchange->phase == CARRIED_DONE           ? CARRIED_END
               : atomic_load(&exchange->server->closing) ? CARRIED_ERROR
                                                         : CARRIED_LATER;
    memcpy(bytes, exchange->pending.data + exchange->pending_at, *got);
    exchange->pending_at += *got;
    exchange->sent_bytes += *got;
    if (exchange->pending_at == exchange->pending.size)
        exchange->pending_at = exchange->pending.size = 0;
    return CARRIED_MORE;
}

/* A reader is slow for what it has not read, not for what it is just being given: one event may be
 * larger than the maximum (a prompt's log-probabilities, what /v1/responses says back), and what
 * follows it at once finds as much room as it would without it. */
static bool append_pending(carried *exchange, text_view bytes) {
    buffer *pending = &exchange->pending;
    size_t left = pending->size - exchange->pending_at;
    if (left == 0)
        exchange->pending_largest = 0;
    if (bytes.size > exchange->pending_largest)
        exchange->pending_largest = bytes.size;
    if (left + bytes.size > exchange->pending_largest + exchange->server->options.unread_bytes_max)
        return false;
    if (exchange->pending_at > left) {
        memmove(pending->data, pending->data + exchange->pending_at, left);
        pending->size = left;
        exchange->pending_at = 0;
    }
    return buffer_append(pending, bytes.data, bytes.size) == AVO_OK;
}

static bool carried_write(exchange *answered, text_view bytes) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == CARRIED_STREAMING);
    bool works = !exchange->gone && !exchange->cut;
    if (works && bytes.size > 0) {
        works = append_pending(exchange, bytes);
        if (!works) {
            /* The watcher sees the hang-up and tells whoever wants to know. */
            exchange->cut = true;
            exchange->carrier->cut(exchange);
        }
        exchange->carrier->wake(exchange);
    }
    pthread_mutex_unlock(&exchange->lock);
    return works;
}

static void carried_end(exchange *answered) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == CARRIED_STREAMING);
    forget_gone(exchange);
    exchange->phase = CARRIED_DONE;
    exchange->carrier->wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

bool carried_answered(carried *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool answered = exchange->phase != CARRIED_WAITING;
    pthread_mutex_unlock(&exchange->lock);
    return answered;
}

/* ---- Clients that go ---- */

static bool carried_gone(exchange *answered) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    bool gone = exchange->gone;
    pthread_mutex_unlock(&exchange->lock);
    return gone;
}

/* With the lock held, which is let go meanwhile. */
static void tell(carried *exchange, exchange_gone_function gone, void *context) {
    exchange->gone_running = true;
    exchange->gone_thread = pthread_self();
    pthread_mutex_unlock(&exchange->lock);
    gone(context);
    pthread_mutex_lock(&exchange->lock);
    exchange->gone_running = false;
    pthread_cond_broadcast(&exchange->cond);
}

void carried_call_off(carried *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool waits = exchange->phase != CARRIED_DONE && !exchange->gone && !exchange->gone_running;
    if (waits && exchange->on_gone != NULL)
        tell(exchange, exchange->on_gone, exchange->on_gone_context);
    pthread_mutex_unlock(&exchange->lock);
}

void carried_lose(carried *exchange) {
    pthread_mutex_lock(&exchange->lock);
    while (exchange->gone_running && !pthread_equal(exchange->gone_thread, pthread_self()))
        pthread_cond_wait(&exchange->cond, &exchange->lock);
    bool said = exchange->phase == CARRIED_DONE && exchange->pending.size == 0;
    if (exchange->gone || said) {
        pthread_mutex_unlock(&exchange->lock);
        return;
    }
    exchange->gone = true;
    exchange->carrier->wake(exchange);
    exchange_gone_function gone = exchange->phase == CARRIED_DONE ? NULL : exchange->on_gone;
    exchange->on_gone = NULL;
    if (gone != NULL)
        tell(exchange, gone, exchange->on_gone_context);
    pthread_mutex_unlock(&exchange->lock);
}

bool carried_take(carried *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool late = exchange->late;
    exchange->handled = !late;
    pthread_mutex_unlock(&exchange->lock);
    return !late;
}

void carried_expire(carried *exchange) {
    pthread_mutex_lock(&exchange->lock);
    if (exchange->handled) { /* all of it has come after whoever calls this looked */
        pthread_mutex_unlock(&exchange->lock);
        return;
    }
    if (exchange->phase == CARRIED_WAITING) {
        exchange->late = true;
        exchange->status = 408;
        exchange->sent_bytes =
            exchange->carrier->refuse(exchange, 408, "too_slow", "the request arrived too slowly");
    }
    exchange->carrier->cut(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

static void carried_on_gone(exchange *answered, exchange_gone_function gone, void *context) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    bool now = gone != NULL && exchange->gone && exchange->phase != CARRIED_DONE;
    if (gone == NULL) {
        forget_gone(exchange);
    } else if (!now) {
        exchange->on_gone = gone;
        exchange->on_gone_context = context;
    }
    pthread_mutex_unlock(&exchange->lock);
    if (now)
        gone(context);
}

void carried_over(carried *exchange) {
    pthread_mutex_lock(&exchange->lock);
    exchange->descriptor = -1;
    pthread_mutex_unlock(&exchange->lock);
    carried_lose(exchange);
}

/* ---- Usage ---- */

static void carried_set_usage(exchange *answered, const exchange_usage *usage) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    const char *model = usage->model == NULL
                            ? NULL
                            : arena_copy_text(&exchange->arena, usage->model, strlen(usage->model));
    exchange->usage = *usage;
    exchange->usage.model = model;
    exchange->has_usage = true;
    pthread_mutex_unlock(&exchange->lock);
}

static void carried_set_failed(exchange *answered, unsigned status, const char *text) {
    carried *exchange = carried_of(answered);
    pthread_mutex_lock(&exchange->lock);
    exchange->failed = exchange->phase == CARRIED_STREAMING;
    exchange->failed_status = status;
    exchange->failed_text = arena_copy_text(&exchange->arena, text, strlen(text));
    pthread_mutex_unlock(&exchange->lock);
}

static void carried_set_prompt(exchange *answered, text_view prompt) {
    carried *exchange = carried_of(answered);
    if (!exchange->server->options.log_prompts)
        return;
    if (prompt.size > EXCHANGE_PROMPT_MAX)
        prompt.size = EXCHANGE_PROMPT_MAX;
    pthread_mutex_lock(&exchange->lock);
    exchange->prompt.size = 0;
    if (buffer_append(&exchange->prompt, prompt.data, prompt.size) != AVO_OK)
        exchange->prompt.size = 0;
    pthread_mutex_unlock(&exchange->lock);
}

static const exchange_methods methods = {.header = carried_header,
                                         .query = carried_query,
                                         .share = carried_share,
                                         .release = carried_release,
                                         .set_header = carried_set_header,
                                         .send = carried_send,
                                         .stream = carried_stream,
                                         .write = carried_write,
                                         .end = carried_end,
                                         .on_gone = carried_on_gone,
                                         .gone = carried_gone,
                                         .set_usage = carried_set_usage,
                                         .set_failed = carried_set_failed,
                                         .set_prompt = carried_set_prompt};

bool carried_open(carried *exchange, const carrier_driver *carrier, server *server,
                  const char *target) {
    exchange_request *asked = &exchange->base.asked;
    exchange->base.methods = &methods;
    exchange->carrier = carrier;
    atomic_init(&exchange->references, 1);
    exchange->server = server;
    exchange->begun_ns = clock_now_ns();
    arena_init(&exchange->arena, NULL, SIZE_MAX);
    buffer_init(&exchange->body, NULL, (size_t)server->options.body_bytes_max);
    buffer_init(&exchange->whole, NULL, SIZE_MAX);
    buffer_init(&exchange->pending, NULL, SIZE_MAX);
    buffer_init(&exchange->prompt, NULL, EXCHANGE_PROMPT_MAX);
    pthread_mutex_init(&exchange->lock, NULL);
    pthread_cond_init(&exchange->cond, NULL);
    exchange->descriptor = -1;
    carried_make_id(exchange->id);
    asked->id = exchange->id;
    asked->peer = exchange->peer;
    asked->method = "";
    asked->path = arena_copy_text(&exchange->arena, target, strcspn(target, "?"));
    if (asked->path == NULL) {
        free_parts(exchange);
        return false;
    }
    pthread_mutex_lock(&server->live_lock);
    server->live_exchanges++;
    pthread_mutex_unlock(&server->live_lock);
    return true;
}
