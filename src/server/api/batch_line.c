/* A line of a batch as an exchange: nobody's connection, the same endpoints. */
#include "server/api/batch.h"

#include <stdio.h>
#include <stdlib.h>

struct batch_line {
    exchange base; /* first */
    atomic_uint references;
    batches *batches;
    batch *batch;
    uint32_t index;
    server_keys *keys; /* the reading that asked.key is of; NULL: none */
    char request_id[STORE_ID_MAX];
    buffer custom_id, body; /* JSON */
    pthread_mutex_t lock;
    unsigned status;
    buffer answer;
    bool again, has_usage;
    atomic_bool gone;
    exchange_usage usage;
    exchange_gone_function on_gone;
    void *on_gone_context;
    batch_line *next, *previous; /* in flight; then next: finished */
};

/* ---- Lines of inputs ---- */

const batch_endpoint *batch_endpoint_of(text_view path) {
    static const batch_endpoint all[] = {{"/v1/chat/completions", endpoint_chat},
                                         {"/v1/completions", endpoint_completion},
                                         {"/v1/embeddings", endpoint_embedding}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (text_is(path, all[i].path))
            return &all[i];
    return NULL;
}

static bool read_member(const json_value *root, const char *name, json_kind kind,
                        const json_value **out, api_fault *fault) {
    *out = json_find(root, name);
    return (*out != NULL && (*out)->kind == kind) ||
           FAULT_FIELD(fault, name, "%s is missing or has the wrong type", name);
}

static bool check_members(const json_value *root, api_fault *fault) {
    static const char *const known[] = {"custom_id", "method", "url", "body"};
    for (size_t i = 0; i < root->object.count; i++) {
        bool found = false;
        char shown[JSON_SHOWN_KEY_MAX];
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]) && !found; k++)
            found = text_is(root->object.members[i].key, known[k]);
        if (!found)
            return FAULT_FIELD(fault, NULL, "unknown member \"%s\"",
                               json_shown_key(root->object.members[i].key, shown));
    }
    return true;
}

bool batch_text_read(const batch_endpoint *endpoint, text_view line, arena *arena, batch_text *out,
                     api_fault *fault) {
    json_value root;
    const json_value *id, *method, *url;
    if (!api_parse_body(line, arena, &root, fault))
        return false;
    if (root.kind != JSON_OBJECT)
        return FAULT_FIELD(fault, NULL, "must be an object");
    if (!check_members(&root, fault) || !read_member(&root, "custom_id", JSON_STRING, &id, fault) ||
        !read_member(&root, "method", JSON_STRING, &method, fault) ||
        !read_member(&root, "url", JSON_STRING, &url, fault) ||
        !read_member(&root, "body", JSON_OBJECT, &out->body, fault))
        return false;
    if (id->string.size == 0 || id->string.size > BATCH_CUSTOM_BYTES_MAX)
        return FAULT_FIELD(fault, "custom_id", "custom_id must have 1 to %d bytes",
                           BATCH_CUSTOM_BYTES_MAX);
    if (!text_is(method->string, "POST"))
        return FAULT_FIELD(fault, "method", "method must be POST");
    if (!text_is(url->string, endpoint->path))
        return FAULT_FIELD(fault, "url", "url must be the batch's endpoint, %s", endpoint->path);
    const json_value *stream = json_find(out->body, "stream");
    if (stream != NULL && stream->kind == JSON_BOOLEAN && stream->boolean)
        return FAULT_FIELD(fault, "stream", "answers in batches are not streamed");
    out->custom_id = id->string;
    return true;
}

/* ---- The exchange ---- */

static batch_line *line_of(exchange *exchange) {
    return (batch_line *)(void *)exchange;
}

static const char *line_header(exchange *exchange, const char *name) {
    (void)exchange;
    (void)name;
    return NULL;
}

static void line_share(exchange *exchange) {
    atomic_fetch_add(&line_of(exchange)->references, 1);
}

/* Out of those that fly, to those that are to be written. */
static void line_release(exchange *exchange) {
    batch_line *line = line_of(exchange);
    if (atomic_fetch_sub(&line->references, 1) != 1)
        return;
    batches *batches = line->batches;
    pthread_mutex_lock(&batches->lines_lock);
    if (line->previous != NULL)
        line->previous->next = line->next;
    else
        batches->flying = line->next;
    if (line->next != NULL)
        line->next->previous = line->previous;
    line->next = batches->finished;
    batches->finished = line;
    batches->woken = true;
    pthread_cond_signal(&batches->work);
    pthread_mutex_unlock(&batches->lines_lock);
}

/* A full queue names a time to come again: the thread will. */
static void line_set_header(exchange *exchange, const char *name, const char *value) {
    (void)value;
    if (strcmp(name, "Retry-After") == 0)
        line_of(exchange)->again = true;
}

static void forget_gone(batch_line *line) {
    pthread_mutex_lock(&line->lock);
    line->on_gone = NULL;
    pthread_mutex_unlock(&line->lock);
}

static void line_send(exchange *exchange, unsigned status, const char *content_type,
                      text_view body) {
    batch_line *line = line_of(exchange);
    (void)content_type;
    forget_gone(line);
    line->status = status;
    if (buffer_append(&line->answer, body.data, body.size) != AVO_OK)
        line->status = 0;
}

/* Lines that ask for a stream are refused before they come here. */
static void line_stream(exchange *exchange, unsigned status, const char *content_type) {
    (void)content_type;
    line_of(exchange)->status = status;
}

static bool line_write(exchange *exchange, text_view bytes) {
    return buffer_append(&line_of(exchange)->answer, bytes.data, bytes.size) == AVO_OK;
}

static void line_end(exchange *exchange) {
    forget_gone(line_of(exchange));
}

static bool line_gone(exchange *exchange) {
    return atomic_load(&line_of(exchange)->gone);
}

static void line_on_gone(exchange *exchange, exchange_gone_function gone, void *context) {
    batch_line *line = line_of(exchange);
    pthread_mutex_lock(&line->lock);
    line->on_gone = gone;
    line->on_gone_context = context;
    if (gone != NULL && atomic_load(&line->gone))
        gone(context);
    pthread_mutex_unlock(&line->lock);
}

/* With the lock: who answers takes it when it is done, and only then forgets the context. */
void batch_line_cancel(batch_line *line) {
    pthread_mutex_lock(&line->lock);
    bool first = !atomic_exchange(&line->gone, true);
    if (first && line->on_gone != NULL)
        line->on_gone(line->on_gone_context);
    pthread_mutex_unlock(&line->lock);
}

static void line_set_usage(exchange *exchange, const exchange_usage *usage) {
    batch_line *line = line_of(exchange);
    line->usage = *usage;
    line->usage.model = NULL;
    line->has_usage = true;
}

static void line_set_failed(exchange *exchange, unsigned status, const char *text) {
    (void)exchange;
    (void)status;
    (void)text;
}

static void line_set_prompt(exchange *exchange, text_view prompt) {
    (void)exchange;
    (void)prompt;
}

static const exchange_methods methods = {.header = line_header,
                                         .query = line_header,
                                         .share = line_share,
                                         .release = line_release,
                                         .set_header = line_set_header,
                                         .send = line_send,
                                         .stream = line_stream,
                                         .write = line_write,
                                         .end = line_end,
                                         .on_gone = line_on_gone,
                                         .gone = line_gone,
                                         .set_usage = line_set_usage,
                                         .set_failed = line_set_failed,
                                         .set_prompt = line_set_prompt};

batch_line *batch_line_next(batch_line *line) {
    return line->next;
}

batch *batch_line_batch(const batch_line *line) {
    return line->batch;
}

uint32_t batch_line_index(const batch_line *line) {
    return line->index;
}

void batch_line_free(batch_line *line) {
    server_keys_release(line->keys);
    buffer_free(&line->custom_id);
    buffer_free(&line->body);
    buffer_free(&line->answer);
    pthread_mutex_destroy(&line->lock);
    free(line);
}

/* ---- Starting ---- */

static text_view line_text(const batch *batch, uint32_t index) {
    const char *data = (const char *)batch->map.bytes.data;
    uint64_t from = batch->lines[index], end = batch->lines[index + 1];
    return (text_view){data + from, (size_t)(end - from)};
}

/* The body is written anew from what was read, so that it is JSON of its own for the endpoint. */
static bool take_text(batch_line *line, const batch *batch) {
    arena arena;
    batch_text text;
    api_fault fault = {0};
    bool good =
        batch_text_read(batch->endpoint, line_text(batch, line->index), &arena, &text, &fault) &&
        json_write_string(&line->custom_id, text.custom_id) == AVO_OK &&
        json_write_value(&line->body, text.body) == AVO_OK &&
        buffer_terminate(&line->body) == AVO_OK;
    arena_free(&arena);
    return good;
}

bool batch_line_start(batches *batches, batch *batch, uint32_t index, server_keys *keys,
                      const server_key *key) {
    api *api = batches->api;
    batch_line *line = calloc(1, sizeof(*line));
    if (line == NULL)
        return false;
    atomic_init(&line->references, 1);
    atomic_init(&line->gone, false);
    line->batches = batches;
    line->batch = batch;
    line->index = index;
    pthread_mutex_init(&line->lock, NULL);
    buffer_init(&line->custom_id, NULL, 8 * BATCH_CUSTOM_BYTES_MAX);
    buffer_init(&line->body, NULL, 8 * BATCH_LINE_BYTES_MAX);
    buffer_init(&line->answer, NULL, API_ANSWER_BYTES_MAX);
    if (!take_text(line, batch)) {
        batch_line_free(line);
        return false;
    }
    line->keys = keys == NULL ? NULL : server_keys_share(keys);
    api_make_id(api, "req_", line->request_id, sizeof(line->request_id));
    line->base.methods = &methods;
    line->base.asked = (exchange_request){.method = "POST",
                                          .path = batch->endpoint->path,
                                          .body = buffer_text(&line->body),
                                          .id = line->request_id,
                                          .key = key,
                                          .peer = "batch",
                                          .background = true};
    batches->in_flight++;
    batch->in_flight++;
    batch->over[index] = LINE_IN_FLIGHT;
    pthread_mutex_lock(&batches->lines_lock);
    line->next = batches->flying;
    if (line->next != NULL)
        line->next->previous = line;
    batches->flying = line;
    pthread_mutex_unlock(&batches->lines_lock);
    batch->endpoint->answer(api, &line->base);
    exchange_release(&line->base);
    return true;
}

/* ---- Ends ---- */

static void charge(const batch_line *line) {
    const server_key *key = line->base.asked.key;
    if (key == NULL || !line->has_usage)
        return;
    ledger_time now = ledger_now();
    ledger_totals used = {.requests = 1,
                          .prompt_tokens = line->usage.prompt_tokens,
                          .cached_tokens = line->usage.reused_tokens,
                          .new_tokens = line->usage.new_tokens};
    server_key_charge(key, &now, &used);
}

static void write_head(json_writer *w, const batch *batch, uint32_t index, text_view custom_id) {
    char id[STORE_ID_MAX + 32];
    snprintf(id, sizeof(id), "batch_req_%s_%u", batch->id + strlen("batch_"), index);
    json_object_begin(w);
    json_member_string(w, "id", id);
    json_member_raw(w, "custom_id", custom_id);
}

avo_status batch_line_write(batch_line *line, buffer *out, bool *good, bool *again) {
    charge(line);
    *good = line->status == 200;
    *again = (line->again && line->status == 503) || atomic_load(&line->gone);
    *again = *again && !*good;
    json_writer w = json_writer_of(out);
    write_head(&w, line->batch, line->index, buffer_text(&line->custom_id));
    json_member_object_begin(&w, "response");
    json_member_u64(&w, "status_code", line->status == 0 ? 503 : line->status);
    json_member_string(&w, "request_id", line->request_id);
    if (line->answer.size > 0)
        json_member_raw(&w, "body", buffer_text(&line->answer));
    else
        json_member_null(&w, "body");
    json_end(&w);
    json_member_null(&w, "error");
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

avo_status batch_line_missed(const batch *batch, uint32_t index, const char *code, const char *text,
                             buffer *out) {
    arena arena;
    batch_text read;
    api_fault fault = {0};
    buffer custom;
    buffer_init(&custom, NULL, 8 * BATCH_CUSTOM_BYTES_MAX);
    bool good = batch_text_read(batch->endpoint, line_text(batch, index), &arena, &read, &fault) &&
                json_write_string(&custom, read.custom_id) == AVO_OK;
    arena_free(&arena);
    json_writer w = json_writer_of(out);
    write_head(&w, batch, index, good ? buffer_text(&custom) : TEXT_LITERAL("null"));
    json_member_null(&w, "response");
    json_member_object_begin(&w, "error");
    json_member_string(&w, "code", code);
    json_member_string(&w, "message", text);
    json_end(&w);
    json_end(&w);
    buffer_free(&custom);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

bool batch_line_index_of(const batch *batch, text_view line, uint32_t *index) {
    char head[STORE_ID_MAX + 32];
    int size = snprintf(head, sizeof(head), "batch_req_%s_", batch->id + strlen("batch_"));
    size_t before = 7; /* the brace, the name of the member and a quote, as write_head begins */
    if (line.size < before)
        return false;
    line = (text_view){line.data + before, line.size - before};
    if (size < 0 || !text_take(&line, head))
        return false;
    uint64_t number = 0;
    size_t at = 0;
    while (at < line.size && at < 6 && line.data[at] >= '0' && line.data[at] <= '9')
        number = number * 10 + (uint64_t)(line.data[at++] - '0');
    *index = (uint32_t)number;
    return at > 0 && at < line.size && line.data[at] == '"' && number < batch->count;
}
