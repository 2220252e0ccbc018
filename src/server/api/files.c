/* /v1/files: what batches read and write. */
#include "server/api/batch.h"
#include "server/api/helpers.h"
#include "server/api/multipart.h"

#include <stdio.h>
#include <stdlib.h>

#define LIST_DEFAULT 100u
#define LIST_MAX     1000u

/* ---- Shared with batches ---- */

const char *api_owner(const exchange *exchange) {
    return server_key_name(exchange_asked(exchange)->key);
}

bool api_has_state(const api *api, exchange *exchange) {
    if (api->batches != NULL)
        return true;
    exchange_fail(exchange, 404, NULL, "no_state",
                  "this server keeps no files and batches; start it with --state FOLDER");
    return false;
}

/* "limit" of a list. */
bool api_read_limit(exchange *exchange, uint32_t *limit) {
    const char *text = exchange_query(exchange, "limit");
    char *end = NULL;
    *limit = LIST_DEFAULT;
    if (text == NULL)
        return true;
    unsigned long number = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    if (end != NULL && *end == '\0' && number >= 1 && number <= LIST_MAX) {
        *limit = (uint32_t)number;
        return true;
    }
    exchange_fail(exchange, 400, "limit", "invalid_value", "limit must be 1 to %u", LIST_MAX);
    return false;
}

/* The id in "/v1/files/ID" or "/v1/files/ID/content"; NULL: too long for one. */
const char *api_path_id(const exchange *exchange, const char *prefix,
                        char id[static STORE_ID_MAX]) {
    const char *at = exchange_asked(exchange)->path + strlen(prefix);
    size_t size = strcspn(at, "/");
    if (size >= STORE_ID_MAX)
        return NULL;
    memcpy(id, at, size);
    id[size] = '\0';
    return id;
}

/* ---- Files ---- */

static void write_file(json_writer *w, const store_file *file) {
    json_object_begin(w);
    json_member_string(w, "id", file->id);
    json_member_string(w, "object", "file");
    json_member_u64(w, "bytes", file->bytes);
    json_member_i64(w, "created_at", file->created);
    json_member_i64(w, "expires_at", file->expires);
    json_member_string(w, "filename", file->name);
    json_member_string(w, "purpose", file->purpose);
    json_member_string(w, "status", "processed");
    json_end(w);
}

static void send_file(exchange *exchange, const store_file *file) {
    buffer out;
    buffer_init(&out, NULL, API_TEXT_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    write_file(&w, file);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

/* A text field of the form into a place of fixed size. */
static bool copy_part(const multipart *form, const char *name, char *out, size_t capacity) {
    const multipart_part *part = multipart_find(form, name);
    if (part == NULL || part->data.size >= capacity ||
        memchr(part->data.data, '\0', part->data.size) != NULL)
        return false;
    memcpy(out, part->data.data, part->data.size);
    out[part->data.size] = '\0';
    return true;
}

/* expires_after, as OpenAI's clients write it into forms. */
static bool read_life(const multipart *form, int64_t *seconds, api_fault *fault) {
    char anchor[32], text[32], *end = NULL;
    *seconds = STORE_SECONDS;
    if (multipart_find(form, "expires_after[seconds]") == NULL &&
        multipart_find(form, "expires_after[anchor]") == NULL)
        return true;
    if (!copy_part(form, "expires_after[anchor]", anchor, sizeof(anchor)) ||
        strcmp(anchor, "created_at") != 0 ||
        !copy_part(form, "expires_after[seconds]", text, sizeof(text)))
        return FAULT_FIELD(fault, "expires_after",
                           "expires_after needs the anchor created_at and seconds");
    long long number = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || number < STORE_SECONDS_MIN || number > STORE_SECONDS)
        return FAULT_FIELD(fault, "expires_after", "expires_after: seconds must be %d to %d",
                           STORE_SECONDS_MIN, STORE_SECONDS);
    *seconds = number;
    return true;
}

/* Only shown, never opened; without control characters it is safe in headers and logs. */
static void copy_name(text_view name, char out[static STORE_NAME_MAX + 1]) {
    size_t size = name.size > STORE_NAME_MAX ? STORE_NAME_MAX : name.size;
    for (size_t i = 0; i < size; i++)
        out[i] = (unsigned char)name.data[i] < ' ' || name.data[i] == 0x7F ? '?' : name.data[i];
    out[size] = '\0';
}

static bool read_form(const api *api, exchange *exchange, store_file *file, text_view *data,
                      api_fault *fault) {
    multipart form;
    const char *why = NULL;
    int64_t seconds = 0;
    if (!multipart_read(exchange_header(exchange, "Content-Type"), exchange_asked(exchange)->body,
                        &form, &why))
        return fault_set(fault, 400, NULL, "invalid_form", "%s", why);
    const multipart_part *part = multipart_find(&form, "file");
    if (part == NULL)
        return FAULT_FIELD(fault, "file", "the form has no part named file");
    if (!copy_part(&form, "purpose", file->purpose, sizeof(file->purpose)))
        return FAULT_FIELD(fault, "purpose", "the form has no part named purpose");
    if (strcmp(file->purpose, "batch") != 0)
        return FAULT_FIELD(fault, "purpose", "purpose must be batch");
    if (!read_life(&form, &seconds, fault))
        return false;
    copy_name(part->filename, file->name);
    snprintf(file->owner, sizeof(file->owner), "%s", api_owner(exchange));
    api_make_id((struct api *)api, "file-", file->id, sizeof(file->id));
    file->created = api_now();
    file->expires = file->created + seconds;
    file->bytes = part->data.size;
    *data = part->data;
    return true;
}

/* An upload is written by a helper: the connections' threads do not wait for disks. */
static void upload(api *api, exchange *exchange) {
    store_file file = {0};
    text_view data;
    api_fault fault = {0};
    avo_error error = {0};
    if (!read_form(api, exchange, &file, &data, &fault)) {
        api_fail(exchange, &fault);
        return;
    }
    avo_status status = store_add(api->batches->store, &file, data, &error);
    if (status == AVO_OK)
        send_file(exchange, &file);
    else if (status == AVO_ERROR_FULL)
        exchange_fail(exchange, 429, "file", "storage_full", "%s", error.text);
    else if (status == AVO_ERROR_LIMIT)
        exchange_fail(exchange, 413, "file", "too_large", "%s", error.text);
    else
        exchange_fail(exchange, 503, NULL, "storage_failed", "the file could not be written");
}

static void upload_run(api *api, void *context) {
    struct exchange *exchange = context;
    upload(api, exchange);
    helper_finished(api);
    exchange_release(exchange);
}

void endpoint_upload(api *api, exchange *exchange) {
    if (!api_has_state(api, exchange))
        return;
    if (helper_start(api, upload_run, exchange_share(exchange)))
        return;
    exchange_release(exchange);
    exchange_refuse(exchange, 503, 1.0, "other files are being written");
}

void endpoint_files(api *api, exchange *exchange) {
    uint32_t limit = 0, count = 0;
    if (!api_has_state(api, exchange) || !api_read_limit(exchange, &limit))
        return;
    store *store = api->batches->store;
    const char *owner = api_owner(exchange), *after = exchange_query(exchange, "after");
    const char *purpose = exchange_query(exchange, "purpose");
    store_file file, last = {0};
    char first[STORE_ID_MAX] = "";
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "object", "list");
    json_member_array_begin(&w, "data");
    bool more = false;
    while ((more = store_list(store, owner, purpose, after, count, &file)) && count < limit) {
        write_file(&w, &file);
        last = file;
        if (count++ == 0)
            memcpy(first, file.id, sizeof(first));
    }
    json_end(&w);
    json_member_string(&w, "first_id", count > 0 ? first : NULL);
    json_member_string(&w, "last_id", count > 0 ? last.id : NULL);
    json_member_boolean(&w, "has_more", more);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

static bool find_file(api *api, exchange *exchange, store_file *file) {
    char id[STORE_ID_MAX];
    if (!api_has_state(api, exchange))
        return false;
    if (api_path_id(exchange, "/v1/files/", id) != NULL &&
        store_find(api->batches->store, api_owner(exchange), id, file))
        return true;
    exchange_fail(exchange, 404, "id", "not_found", "no such file");
    return false;
}

void endpoint_file(api *api, exchange *exchange) {
    store_file file;
    if (find_file(api, exchange, &file))
        send_file(exchange, &file);
}

void endpoint_file_delete(api *api, exchange *exchange) {
    store_file file;
    if (!find_file(api, exchange, &file))
        return;
    if (!store_remove(api->batches->store, file.owner, file.id)) {
        exchange_fail(exchange, 404, "id", "not_found", "no such file");
        return;
    }
    buffer out;
    buffer_init(&out, NULL, API_TEXT_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_string(&w, "id", file.id);
    json_member_string(&w, "object", "file");
    json_member_boolean(&w, "deleted", true);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

void endpoint_file_content(api *api, exchange *exchange) {
    store_file file;
    file_map map = {0};
    avo_error error = {0};
    if (!find_file(api, exchange, &file))
        return;
    if (store_map(api->batches->store, file.id, &map, &error) != AVO_OK) {
        exchange_fail(exchange, 404, "id", "not_found", "no such file");
        return;
    }
    text_view text = {map.bytes.size == 0 ? "" : (const char *)map.bytes.data, map.bytes.size};
    exchange_send(exchange, 200, "application/octet-stream", text);
    file_map_close(&map);
}
