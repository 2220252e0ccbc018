/* /v1/batches: making, looking at and cancelling them. */
#include "server/api/batch.h"

#include <stdio.h>
#include <stdlib.h>

#define METADATA_PAIRS_MAX 16
#define METADATA_KEY_MAX   64
#define METADATA_VALUE_MAX 512

/* ---- A batch as JSON ---- */

static void write_time(json_writer *w, const char *name, int64_t seconds) {
    if (seconds > 0)
        json_member_i64(w, name, seconds);
    else
        json_member_null(w, name);
}

static void write_id(json_writer *w, const char *name, const char *id, bool shown) {
    json_member_string(w, name, shown && id[0] != '\0' ? id : NULL);
}

static void write_problems(json_writer *w, const batch *batch) {
    if (batch->problems == NULL) {
        json_member_null(w, "errors");
        return;
    }
    json_member_object_begin(w, "errors");
    json_member_string(w, "object", "list");
    json_member_array_begin(w, "data");
    json_raw_items(w, text_from(batch->problems));
    json_end(w);
    json_end(w);
}

static void write_batch(json_writer *w, const batch *batch) {
    bool over = batch_is_over(batch);
    json_object_begin(w);
    json_member_string(w, "id", batch->id);
    json_member_string(w, "object", "batch");
    json_member_string(w, "endpoint", batch->endpoint->path);
    write_problems(w, batch);
    json_member_string(w, "input_file_id", batch->input);
    json_member_string(w, "completion_window", "24h");
    json_member_string(w, "status", batch_status_name(batch->status));
    write_id(w, "output_file_id", batch->output, over);
    write_id(w, "error_file_id", batch->errors, over);
    json_member_i64(w, "created_at", batch->created);
    json_member_i64(w, "expires_at", batch->expires);
    for (int i = BATCH_IN_PROGRESS; i < BATCH_STATUSES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s_at", batch_status_name((batch_status)i));
        write_time(w, name, batch->at[i]);
    }
    json_member_object_begin(w, "request_counts");
    json_member_u64(w, "total", batch->total);
    json_member_u64(w, "completed", batch->done);
    json_member_u64(w, "failed", batch->failed);
    json_end(w);
    if (batch->metadata == NULL)
        json_member_null(w, "metadata");
    else
        json_member_raw(w, "metadata", text_from(batch->metadata));
    json_end(w);
}

/* The lock is held. */
static avo_status format(const batch *batch, buffer *out) {
    json_writer w = json_writer_of(out);
    write_batch(&w, batch);
    return json_writer_status(&w);
}

/* ---- Making one ---- */

static bool read_metadata(const json_value *value, char **out, api_fault *fault) {
    if (value == NULL || value->kind == JSON_NULL)
        return true;
    if (value->kind != JSON_OBJECT || value->object.count > METADATA_PAIRS_MAX)
        return FAULT_FIELD(fault, "metadata", "metadata must be an object of at most %d texts",
                           METADATA_PAIRS_MAX);
    for (size_t i = 0; i < value->object.count; i++) {
        const json_member *member = &value->object.members[i];
        if (member->key.size > METADATA_KEY_MAX || member->value.kind != JSON_STRING ||
            member->value.string.size > METADATA_VALUE_MAX)
            return FAULT_FIELD(fault, "metadata",
                               "metadata: keys have at most %d bytes, values are texts of at most "
                               "%d",
                               METADATA_KEY_MAX, METADATA_VALUE_MAX);
    }
    buffer text;
    buffer_init(&text, NULL, BATCH_METADATA_MAX);
    bool good = json_write_value(&text, value) == AVO_OK && buffer_terminate(&text) == AVO_OK;
    if (good)
        *out = strdup(text.data);
    buffer_free(&text);
    return *out != NULL || fault_no_memory(fault);
}

static bool read_life(const json_value *value, int64_t *seconds, api_fault *fault) {
    *seconds = STORE_SECONDS;
    if (value == NULL || value->kind == JSON_NULL)
        return true;
    const json_value *anchor = json_find(value, "anchor"), *number = json_find(value, "seconds");
    if (anchor == NULL || anchor->kind != JSON_STRING || !text_is(anchor->string, "created_at") ||
        number == NULL || number->kind != JSON_INTEGER || number->integer < STORE_SECONDS_MIN ||
        number->integer > STORE_SECONDS)
        return FAULT_FIELD(fault, "output_expires_after",
                           "output_expires_after needs the anchor created_at and seconds of %d to "
                           "%d",
                           STORE_SECONDS_MIN, STORE_SECONDS);
    *seconds = number->integer;
    return true;
}

static bool read_text(const json_value *root, const char *name, text_view *out, api_fault *fault) {
    const json_value *value = json_find(root, name);
    if (value == NULL || value->kind != JSON_STRING)
        return FAULT_FIELD(fault, name, "%s is required and must be a string", name);
    *out = value->string;
    return true;
}

static bool check_members(const json_value *root, api_fault *fault) {
    static const char *const known[] = {"input_file_id", "endpoint", "completion_window",
                                        "metadata", "output_expires_after"};
    if (root->kind != JSON_OBJECT)
        return fault_set(fault, 400, NULL, "invalid_type", "the body must be an object");
    for (size_t i = 0; i < root->object.count; i++) {
        bool found = false;
        char shown[JSON_SHOWN_KEY_MAX];
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]) && !found; k++)
            found = text_is(root->object.members[i].key, known[k]);
        if (!found)
            return fault_set(fault, 400, NULL, "unknown_parameter", "unknown parameter \"%s\"",
                             json_shown_key(root->object.members[i].key, shown));
    }
    return true;
}

static bool read_batch(api *api, const exchange *exchange, const json_value *root, batch *made,
                       api_fault *fault) {
    text_view endpoint = {0}, window = {0}, input = {0};
    store_file file;
    if (!check_members(root, fault) || !read_text(root, "endpoint", &endpoint, fault) ||
        !read_text(root, "completion_window", &window, fault) ||
        !read_text(root, "input_file_id", &input, fault))
        return false;
    made->endpoint = batch_endpoint_of(endpoint);
    if (made->endpoint == NULL)
        return FAULT_FIELD(fault, "endpoint",
                           "endpoint must be /v1/chat/completions, /v1/completions or "
                           "/v1/embeddings");
    if (!text_is(window, "24h"))
        return FAULT_FIELD(fault, "completion_window", "completion_window must be 24h");
    if (input.size < sizeof(made->input))
        memcpy(made->input, input.data, input.size);
    snprintf(made->owner, sizeof(made->owner), "%s", api_owner(exchange));
    if (input.size == 0 || input.size >= sizeof(made->input) ||
        !store_find(api->batches->store, made->owner, made->input, &file))
        return fault_set(fault, 404, "input_file_id", "not_found", "no such file");
    if (strcmp(file.purpose, "batch") != 0)
        return FAULT_FIELD(fault, "input_file_id", "the file's purpose must be batch");
    api_make_id(api, "batch_", made->id, sizeof(made->id));
    made->created = api_now();
    made->expires = made->created + BATCH_SECONDS;
    return read_metadata(json_find(root, "metadata"), &made->metadata, fault) &&
           read_life(json_find(root, "output_expires_after"), &made->output_seconds, fault);
}

/* The lock is held. */
static bool has_place(const batches *batches, const batch *made, api_fault *fault) {
    uint32_t own = 0;
    for (size_t i = 0; i < batches->count; i++)
        own +=
            !batch_is_over(batches->items[i]) && strcmp(batches->items[i]->owner, made->owner) == 0;
    if (batches->count < BATCHES_MAX && own < BATCHES_KEY_MAX)
        return true;
    return fault_set(fault, 429, NULL, "too_many_batches",
                     "there are too many batches: at most %d are kept, %d of one key at work",
                     BATCHES_MAX, BATCHES_KEY_MAX);
}

static bool add(batches *batches, batch *made, buffer *out, api_fault *fault) {
    avo_error error = {0};
    pthread_mutex_lock(&batches->lock);
    bool good = has_place(batches, made, fault);
    if (good && batch_save(batches->store, made, &error) != AVO_OK)
        good = fault_set(fault, 503, NULL, "storage_failed", "the batch could not be written");
    if (good && format(made, out) != AVO_OK)
        good = fault_no_memory(fault);
    if (good)
        batches->items[batches->count++] = made;
    pthread_mutex_unlock(&batches->lock);
    if (good)
        batches_wake(batches);
    return good;
}

void endpoint_batch_create(api *api, exchange *exchange) {
    arena parsed;
    json_value root;
    api_fault fault = {0};
    buffer out;
    if (!api_has_state(api, exchange))
        return;
    buffer_init(&out, NULL, API_TEXT_BYTES_MAX);
    batch *made = calloc(1, sizeof(*made));
    bool good = api_parse_body(exchange_asked(exchange)->body, &parsed, &root, &fault);
    good = good && (made != NULL || fault_no_memory(&fault)) &&
           read_batch(api, exchange, &root, made, &fault) && add(api->batches, made, &out, &fault);
    arena_free(&parsed);
    if (good) {
        exchange_send(exchange, 200, "application/json", buffer_text(&out));
    } else {
        batch_free(made);
        api_fail(exchange, &fault);
    }
    buffer_free(&out);
}

/* ---- Looking ---- */

/* `act` (may be NULL) with the lock. */
static void answer_batch(api *api, exchange *exchange,
                         void (*act)(batches *batches, batch *batch)) {
    char id[STORE_ID_MAX];
    buffer out;
    if (!api_has_state(api, exchange))
        return;
    batches *batches = api->batches;
    buffer_init(&out, NULL, API_TEXT_BYTES_MAX);
    pthread_mutex_lock(&batches->lock);
    batch *found = api_path_id(exchange, "/v1/batches/", id) == NULL
                       ? NULL
                       : batches_find(batches, api_owner(exchange), id);
    if (found != NULL && act != NULL)
        act(batches, found);
    bool good = found != NULL && format(found, &out) == AVO_OK;
    pthread_mutex_unlock(&batches->lock);
    if (good)
        exchange_send(exchange, 200, "application/json", buffer_text(&out));
    else if (found == NULL)
        exchange_fail(exchange, 404, "id", "not_found", "no such batch");
    else
        exchange_fail(exchange, 503, NULL, "out_of_memory", "out of memory");
    buffer_free(&out);
    if (act != NULL)
        batches_wake(batches);
}

void endpoint_batch(api *api, exchange *exchange) {
    answer_batch(api, exchange, NULL);
}

static void cancel(batches *batches, batch *batch) {
    if (batch->status == BATCH_VALIDATING || batch->status == BATCH_IN_PROGRESS)
        batch_set(batches, batch, BATCH_CANCELLING);
}

void endpoint_batch_cancel(api *api, exchange *exchange) {
    answer_batch(api, exchange, cancel);
}

/* The newest first. */
void endpoint_batches(api *api, exchange *exchange) {
    uint32_t limit = 0, count = 0;
    if (!api_has_state(api, exchange) || !api_read_limit(exchange, &limit))
        return;
    batches *batches = api->batches;
    const char *owner = api_owner(exchange), *after = exchange_query(exchange, "after");
    const batch *first = NULL, *last = NULL;
    bool more = false, behind = after == NULL;
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "object", "list");
    json_member_array_begin(&w, "data");
    pthread_mutex_lock(&batches->lock);
    for (size_t i = batches->count; i > 0 && !more; i--) {
        const batch *one = batches->items[i - 1];
        if (strcmp(one->owner, owner) != 0)
            continue;
        more = behind && count == limit;
        if (behind && !more) {
            write_batch(&w, one);
            first = first == NULL ? one : first;
            last = one;
            count++;
        }
        behind = behind || strcmp(one->id, after) == 0;
    }
    json_end(&w);
    json_member_string(&w, "first_id", first == NULL ? NULL : first->id);
    json_member_string(&w, "last_id", last == NULL ? NULL : last->id);
    pthread_mutex_unlock(&batches->lock);
    json_member_boolean(&w, "has_more", more);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}
