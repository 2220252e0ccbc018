/* One request and its answer: references, waiting for tokens by suspension, clients that go. */
#include "server/server_int.h"

#include "base/clock.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>

#define STREAM_BLOCK_BYTES 8192

/* ---- Opening and releasing ---- */

void exchange_add(exchange *exchange, exchange_header_list *list, const char *name,
                  const char *value) {
    exchange_header_item *item = arena_take(&exchange->arena, sizeof(*item));
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

const char *exchange_list_find(const exchange_header_list *list, const char *name) {
    for (const exchange_header_item *item = list->first; item != NULL; item = item->next)
        if (strcasecmp(item->name, name) == 0)
            return item->value;
    return NULL;
}

static enum MHD_Result copy_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
    exchange *exchange = context;
    exchange_add(exchange, kind == MHD_HEADER_KIND ? &exchange->headers : &exchange->queries, name,
                 value);
    return MHD_YES;
}

void exchange_make_id(char id[static 25]) {
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        random[0] = clock_now_ns();
    snprintf(id, 25, "%016llx%08llx", (unsigned long long)random[0],
             (unsigned long long)(random[1] & 0xFFFFFFFFu));
}

/* The client's own id where it is harmless in a header and in a log. */
static void choose_id(exchange *exchange) {
    const char *given = exchange_list_find(&exchange->headers, "X-Request-Id");
    size_t length = given == NULL ? 0 : strlen(given);
    bool good = length > 0 && length <= EXCHANGE_ID_MAX;
    for (size_t i = 0; good && i < length; i++)
        good = given[i] > ' ' && given[i] < 0x7F && given[i] != '"' && given[i] != '\\';
    if (good)
        memcpy(exchange->id, given, length + 1);
}

/* "http://host/path", as proxies ask (RFC 9112, 3.2.2): the path is what is asked for, and the host
 * there counts instead of the header. */
static const char *take_authority(exchange *exchange, const char *url) {
    size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                    : strncasecmp(url, "https://", 8) == 0 ? 8
                                                           : 0;
    if (scheme == 0)
        return url;
    size_t size = strcspn(url + scheme, "/");
    const char *host = arena_copy_text(&exchange->arena, url + scheme, size);
    for (exchange_header_item *item = exchange->headers.first; item != NULL; item = item->next)
        if (strcasecmp(item->name, "Host") == 0 && host != NULL)
            item->value = host;
    const char *path = url + scheme + size;
    return path[0] == '\0' ? "/" : path;
}

bool exchange_begin(exchange *exchange, const char *url, const char *method) {
    struct MHD_Connection *mhd = exchange->connection;
    pthread_mutex_lock(&exchange->lock); /* exchange_expire tells path and id */
    exchange->begun = true;
    MHD_get_connection_values(mhd, MHD_HEADER_KIND, copy_header, exchange);
    MHD_get_connection_values(mhd, MHD_GET_ARGUMENT_KIND, copy_header, exchange);
    exchange->keep_head = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    const char *seen = exchange->keep_head ? MHD_HTTP_METHOD_GET : method;
    url = take_authority(exchange, url);
    const char *kept = arena_copy_text(&exchange->arena, seen, strlen(seen));
    const char *path = arena_copy_text(&exchange->arena, url, strlen(url));
    bool good = kept != NULL && path != NULL;
    if (good) {
        exchange->asked.method = kept;
        exchange->asked.path = path;
    }
    choose_id(exchange);
    pthread_mutex_unlock(&exchange->lock);
    return good;
}

static void free_exchange(exchange *exchange) {
    if (exchange->response != NULL)
        MHD_destroy_response(exchange->response);
    buffer_free(&exchange->body);
    buffer_free(&exchange->pending);
    buffer_free(&exchange->prompt);
    server_keys_release(exchange->keys);
    arena_free(&exchange->arena);
    pthread_cond_destroy(&exchange->cond);
    pthread_mutex_destroy(&exchange->lock);
    free(exchange);
}

exchange *exchange_open(server *server, struct MHD_Connection *mhd, const char *target) {
    exchange *exchange = calloc(1, sizeof(*exchange));
    if (exchange == NULL)
        return NULL;
    atomic_init(&exchange->references, 1);
    exchange->server = server;
    exchange->begun_ns = clock_now_ns();
    arena_init(&exchange->arena, NULL, SIZE_MAX);
    buffer_init(&exchange->body, NULL, (size_t)server->options.body_bytes_max);
    buffer_init(&exchange->pending, NULL, SIZE_MAX);
    buffer_init(&exchange->prompt, NULL, EXCHANGE_PROMPT_MAX);
    pthread_mutex_init(&exchange->lock, NULL);
    pthread_cond_init(&exchange->cond, NULL);
    exchange->connection = mhd;
    exchange->descriptor = -1;
    exchange_make_id(exchange->id);
    exchange->asked.id = exchange->id;
    exchange->asked.peer = exchange->peer;
    exchange->asked.method = "";
    exchange->asked.path = arena_copy_text(&exchange->arena, target, strcspn(target, "?"));
    exchange->hides = exchange->asked.path != NULL && strstr(exchange->asked.path, "%00") != NULL;
    if (exchange->asked.path == NULL) {
        free_exchange(exchange);
        return NULL;
    }
    pthread_mutex_lock(&server->live_lock);
    server->live_exchanges++;
    pthread_mutex_unlock(&server->live_lock);
    return exchange;
}

exchange *exchange_share(exchange *exchange) {
    atomic_fetch_add_explicit(&exchange->references, 1, memory_order_relaxed);
    return exchange;
}

void exchange_release(exchange *exchange) {
    if (atomic_fetch_sub_explicit(&exchange->references, 1, memory_order_acq_rel) != 1)
        return;
    server *server = exchange->server;
    if (exchange->has_usage && exchange->asked.key != NULL)
        server_key_charge(exchange->asked.key, clock_now_ns(),
                          (uint64_t)exchange->usage.prompt_tokens + exchange->usage.new_tokens);
    exchange_log(exchange);
    exchange_give_back_body(exchange);
    free_exchange(exchange);
    pthread_mutex_lock(&server->live_lock);
    server->live_exchanges--;
    pthread_cond_broadcast(&server->live_cond);
    pthread_mutex_unlock(&server->live_lock);
}

/* ---- What endpoints ask ---- */

const exchange_request *exchange_asked(const exchange *exchange) {
    return &exchange->asked;
}

server *exchange_server(exchange *exchange) {
    return exchange->server;
}

api *exchange_api(exchange *exchange) {
    return exchange->server->api;
}

const char *exchange_header(exchange *exchange, const char *name) {
    return exchange_list_find(&exchange->headers, name);
}

const char *exchange_query(exchange *exchange, const char *name) {
    return exchange_list_find(&exchange->queries, name);
}

bool exchange_may_administer(const exchange *exchange) {
    if (exchange->server->options.keys_path != NULL)
        return server_key_is_admin(exchange->asked.key);
    return exchange->server->options.allow_adapter_loading && exchange->local;
}

/* ---- Answers ---- */

static void resume(exchange *exchange) {
    if (!exchange->suspended || exchange->connection == NULL)
        return;
    exchange->suspended = false;
    MHD_resume_connection(exchange->connection);
}

static void add_cors(const exchange *exchange, struct MHD_Response *response) {
    const char *allowed = exchange->server->options.cors_origin;
    if (allowed == NULL)
        return;
    const char *origin = exchange_list_find(&exchange->headers, "Origin");
    bool any = strcmp(allowed, "*") == 0;
    if (!any)
        MHD_add_response_header(response, "Vary", "Origin");
    if (!any && (origin == NULL || strcmp(origin, allowed) != 0))
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", allowed);
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
}

/* Takes the response, with the lock held; gives it back where nobody would send it: libmicrohttpd
 * locks a response while it asks for bytes of a stream, so it is never touched with our lock held.
 */
static struct MHD_Response *set_response(exchange *exchange, struct MHD_Response *response,
                                         unsigned status, const char *content_type) {
    exchange->status = status;
    if (response == NULL) /* no memory: the connection is closed */
        exchange->gone = true;
    if (response == NULL || exchange->connection == NULL)
        return response;
    exchange->response = response;
    if (content_type != NULL)
        MHD_add_response_header(response, "Content-Type", content_type);
    MHD_add_response_header(response, "X-Request-Id", exchange->id);
    if (exchange_list_find(&exchange->answer_headers, "X-Content-Type-Options") == NULL)
        MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (atomic_load(&exchange->server->draining))
        MHD_add_response_header(response, "Connection", "close");
    add_cors(exchange, response);
    for (const exchange_header_item *item = exchange->answer_headers.first; item != NULL;
         item = item->next)
        MHD_add_response_header(response, item->name, item->value);
    return NULL;
}

static void destroy(struct MHD_Response *response) {
    if (response != NULL)
        MHD_destroy_response(response);
}

void exchange_set_header(exchange *exchange, const char *name, const char *value) {
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == EXCHANGE_WAITING);
    exchange_add(exchange, &exchange->answer_headers, name, value);
    pthread_mutex_unlock(&exchange->lock);
}

/* Nobody is told of a client that goes from now on; one who is being told now is waited for. */
static void forget_gone(exchange *exchange) {
    exchange->on_gone = NULL;
    while (exchange->gone_running && !pthread_equal(exchange->gone_thread, pthread_self()))
        pthread_cond_wait(&exchange->cond, &exchange->lock);
}

void exchange_send(exchange *exchange, unsigned status, const char *content_type, text_view body) {
    struct MHD_Response *response = MHD_create_response_from_buffer(
        body.size, body.size > 0 ? (void *)(uintptr_t)body.data : "", MHD_RESPMEM_MUST_COPY);
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == EXCHANGE_WAITING);
    forget_gone(exchange);
    exchange->phase = EXCHANGE_DONE;
    exchange->sent_bytes = exchange->keep_head ? 0 : body.size;
    struct MHD_Response *unused = set_response(exchange, response, status, content_type);
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
    destroy(unused);
}

/* Bytes for libmicrohttpd; where there are none yet, the connection sleeps until there are. */
static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t maximum) {
    (void)position;
    exchange *exchange = context;
    ssize_t got = 0;
    pthread_mutex_lock(&exchange->lock);
    size_t left = exchange->pending.size - exchange->pending_at;
    if (exchange->gone || exchange->cut) {
        got = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (left > 0) {
        size_t take = left < maximum ? left : maximum;
        memcpy(bytes, exchange->pending.data + exchange->pending_at, take);
        exchange->pending_at += take;
        exchange->sent_bytes += take;
        if (exchange->pending_at == exchange->pending.size)
            exchange->pending_at = exchange->pending.size = 0;
        got = (ssize_t)take;
    } else if (exchange->phase == EXCHANGE_DONE) {
        got = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (atomic_load(&exchange->server->closing)) {
        got = MHD_CONTENT_READER_END_WITH_ERROR;
    } else {
        exchange->suspended = true;
        MHD_suspend_connection(exchange->connection);
    }
    pthread_mutex_unlock(&exchange->lock);
    return got;
}

static void release_stream(void *context) {
    exchange_release(context);
}

void exchange_stream(exchange *exchange, unsigned status, const char *content_type) {
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream,
                                          exchange_share(exchange), release_stream);
    if (response == NULL)
        exchange_release(exchange);
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == EXCHANGE_WAITING);
    exchange->phase = EXCHANGE_STREAMING;
    struct MHD_Response *unused = set_response(exchange, response, status, content_type);
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
    destroy(unused);
}

/* A reader is slow for what it has not read, not for what it is just being given: one event may be
 * larger than the maximum (a prompt's log-probabilities, what /v1/responses says back), and what
 * follows it at once finds as much room as it would without it. */
static bool append_pending(exchange *exchange, text_view bytes) {
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

bool exchange_write(exchange *exchange, text_view bytes) {
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == EXCHANGE_STREAMING);
    bool works = !exchange->gone && !exchange->cut;
    if (works && bytes.size > 0) {
        works = append_pending(exchange, bytes);
        if (works) {
            resume(exchange);
        } else {
            /* The watcher sees the hang-up and tells whoever wants to know. */
            exchange->cut = true;
            if (exchange->descriptor >= 0)
                shutdown(exchange->descriptor, SHUT_RDWR);
            resume(exchange);
        }
    }
    pthread_mutex_unlock(&exchange->lock);
    return works;
}

void exchange_end(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    assert(exchange->phase == EXCHANGE_STREAMING);
    forget_gone(exchange);
    exchange->phase = EXCHANGE_DONE;
    resume(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

bool exchange_answered(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool answered = exchange->phase != EXCHANGE_WAITING;
    pthread_mutex_unlock(&exchange->lock);
    return answered;
}

enum MHD_Result exchange_queue(exchange *exchange) {
    enum MHD_Result result = MHD_YES;
    struct MHD_Response *response = NULL;
    bool hung_up = watch_hung_up(exchange->server, exchange->descriptor);
    pthread_mutex_lock(&exchange->lock);
    if (exchange->queued) {
        result = MHD_YES;
    } else if (exchange->response != NULL && !exchange->cut) {
        exchange->queued = true;
        response = exchange->response;
        exchange->response = NULL;
    } else if (exchange->gone || exchange->cut || atomic_load(&exchange->server->closing)) {
        result = MHD_NO;
    } else {
        exchange->suspended = true;
        MHD_suspend_connection(exchange->connection);
    }
    bool waits = exchange->suspended;
    unsigned status = exchange->status;
    pthread_mutex_unlock(&exchange->lock);
    /* A stream's response holds the exchange: ours is given up as soon as libmicrohttpd has its
     * own. */
    if (response != NULL)
        result = MHD_queue_response(exchange->connection, status, response);
    destroy(response);
    /* The watcher's only word may have come before there was an exchange to tell. */
    if (waits && hung_up)
        exchange_lose(exchange);
    return result;
}

/* ---- Clients that go ---- */

bool exchange_gone(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool gone = exchange->gone;
    pthread_mutex_unlock(&exchange->lock);
    return gone;
}

/* With the lock held, which is let go meanwhile. */
static void tell(exchange *exchange, void (*gone)(void *context), void *context) {
    exchange->gone_running = true;
    exchange->gone_thread = pthread_self();
    pthread_mutex_unlock(&exchange->lock);
    gone(context);
    pthread_mutex_lock(&exchange->lock);
    exchange->gone_running = false;
    pthread_cond_broadcast(&exchange->cond);
}

void exchange_call_off(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool waits = exchange->phase != EXCHANGE_DONE && !exchange->gone && !exchange->gone_running;
    if (waits && exchange->on_gone != NULL)
        tell(exchange, exchange->on_gone, exchange->on_gone_context);
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_lose(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    while (exchange->gone_running && !pthread_equal(exchange->gone_thread, pthread_self()))
        pthread_cond_wait(&exchange->cond, &exchange->lock);
    bool said = exchange->phase == EXCHANGE_DONE && exchange->pending.size == 0;
    if (exchange->gone || said) {
        pthread_mutex_unlock(&exchange->lock);
        return;
    }
    exchange->gone = true;
    resume(exchange);
    void (*gone)(void *) = exchange->phase == EXCHANGE_DONE ? NULL : exchange->on_gone;
    exchange->on_gone = NULL;
    if (gone != NULL)
        tell(exchange, gone, exchange->on_gone_context);
    pthread_mutex_unlock(&exchange->lock);
}

bool exchange_take(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool late = exchange->late;
    exchange->handled = !late;
    pthread_mutex_unlock(&exchange->lock);
    return !late;
}

void exchange_expire(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    if (exchange->handled) { /* all of it has come after whoever calls this looked */
        pthread_mutex_unlock(&exchange->lock);
        return;
    }
    bool waits = exchange->phase == EXCHANGE_WAITING;
    int descriptor = exchange->descriptor;
    char id[EXCHANGE_ID_MAX + 1];
    if (waits) {
        gate_answer answer = {408,          "too_slow",           "the request came too slowly",
                              exchange->id, exchange->asked.path, false};
        exchange->late = true;
        exchange->status = 408;
        if (descriptor >= 0 && exchange->server->options.certificate == NULL)
            exchange->sent_bytes = gate_send(descriptor, &answer, id);
    }
    if (descriptor >= 0)
        shutdown(descriptor, SHUT_RDWR);
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_on_gone(exchange *exchange, void (*gone)(void *context), void *context) {
    pthread_mutex_lock(&exchange->lock);
    bool now = gone != NULL && exchange->gone && exchange->phase != EXCHANGE_DONE;
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

void exchange_over(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    exchange->connection = NULL;
    exchange->descriptor = -1;
    exchange->suspended = false;
    struct MHD_Response *unsent = exchange->response;
    exchange->response = NULL;
    pthread_mutex_unlock(&exchange->lock);
    destroy(unsent);
    exchange_lose(exchange);
}

/* ---- Usage ---- */

void exchange_set_usage(exchange *exchange, const exchange_usage *usage) {
    pthread_mutex_lock(&exchange->lock);
    const char *model = usage->model == NULL
                            ? NULL
                            : arena_copy_text(&exchange->arena, usage->model, strlen(usage->model));
    exchange->usage = *usage;
    exchange->usage.model = model;
    exchange->has_usage = true;
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_set_failed(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    exchange->failed = true;
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_set_prompt(exchange *exchange, text_view prompt) {
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
