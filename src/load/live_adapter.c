/* One request at a time over libcurl, with a limit for the time and for what is read. */
#include "load/live_adapter.h"

#include "base/json_writer.h"
#include "hub/curl_late.h"
#include "load/load_int.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_BYTES_MAX ((size_t)1 << 20)
#define CONNECT_SECONDS  5L

typedef struct live_call {
    const live_adapter *adapter;
    char url[LOAD_URL_BYTES];
    struct curl_slist *headers;
    CURL *easy;
    char curl_text[CURL_ERROR_SIZE];
    buffer answer;
    long status;
} live_call;

static size_t on_data(char *data, size_t size, size_t count, void *context) {
    live_call *call = context;
    return buffer_append(&call->answer, data, size * count) == AVO_OK ? size * count : 0;
}

static avo_status open_call(live_call *call, const live_adapter *adapter, const char *path,
                            avo_error *error) {
    *call = (live_call){.adapter = adapter};
    buffer_init(&call->answer, NULL, ANSWER_BYTES_MAX);
    AVO_TRY(load_make_url(adapter->url, path, call->url, error));
    AVO_TRY(curl_late_open(error));
    AVO_TRY(load_make_headers(adapter->key, &call->headers, error));
    call->easy = curl_easy_init();
    if (call->easy == NULL)
        return status_no_memory(error, "a client", sizeof(*call));
    curl_easy_setopt(call->easy, CURLOPT_URL, call->url);
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
    curl_easy_setopt(call->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(call->easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(call->easy, CURLOPT_ERRORBUFFER, call->curl_text);
    curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(call->easy, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
    curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, (long)(adapter->timeout_seconds * 1e3));
    curl_easy_setopt(call->easy, CURLOPT_USERAGENT, "avocet-train/" AVO_VERSION_TEXT);
    const char *authorities = curl_late_authorities(adapter->authorities);
    if (authorities != NULL)
        curl_easy_setopt(call->easy, CURLOPT_CAINFO, authorities);
    return AVO_OK;
}

static void close_call(live_call *call) {
    if (call->easy != NULL)
        curl_easy_cleanup(call->easy);
    if (call->headers != NULL)
        curl_slist_free_all(call->headers);
    buffer_free(&call->answer);
}

/* The message of an error of ours; else the beginning of the answer. */
static text_view message_of(const live_call *call, arena *arena) {
    json_value root;
    text_view text = {"", 0};
    if (json_parse(arena, buffer_text(&call->answer), &root, NULL) == AVO_OK) {
        const json_value *message = json_find(json_find(&root, "error"), "message");
        if (message != NULL && message->kind == JSON_STRING)
            text = message->string;
    }
    if (text.size == 0)
        text = buffer_text(&call->answer);
    if (text.size > 300)
        text.size = 300;
    return text;
}

static const char *advice(long status) {
    if (status == 401)
        return "; give an administrator's key";
    if (status == 403)
        return "; give an administrator's key, or, where the server has no keys, start it with "
               "--adapter-root and --allow-adapter-loading on this machine";
    return "";
}

static avo_status refused(const live_call *call, avo_error *error) {
    arena arena;
    arena_init(&arena, NULL, (size_t)16 << 20);
    text_view text = message_of(call, &arena);
    avo_status status = status_fail(error, AVO_ERROR_NETWORK, "%s answered %ld: %.*s%s", call->url,
                                    call->status, (int)text.size, text.data, advice(call->status));
    arena_free(&arena);
    return status;
}

static avo_status perform(live_call *call, avo_error *error) {
    CURLcode code = curl_easy_perform(call->easy);
    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &call->status);
    if (code != CURLE_OK)
        return status_fail(error, AVO_ERROR_NETWORK, "%s: %s", call->url,
                           call->curl_text[0] != '\0' ? call->curl_text : curl_easy_strerror(code));
    return call->status == 200 ? AVO_OK : refused(call, error);
}

/* ---- Loading ---- */

static avo_status post_load(live_call *call, avo_error *error) {
    buffer body;
    buffer_init(&body, NULL, (size_t)1 << 16);
    json_writer w = json_writer_of(&body);
    json_object_begin(&w);
    json_member_string(&w, "lora_name", call->adapter->name);
    json_member_string(&w, "lora_path", call->adapter->path);
    json_end(&w);
    avo_status status = json_writer_status(&w);
    if (status != AVO_OK) {
        status =
            status_fail(error, status, "%s: the adapter's name and path are too long", call->url);
    } else {
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE, (long)body.size);
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, body.data);
        status = perform(call, error);
    }
    buffer_free(&body);
    return status;
}

avo_status live_adapter_load(const live_adapter *adapter, avo_error *error) {
    live_call call;
    avo_status status = open_call(&call, adapter, "/v1/load_lora_adapter", error);
    AVO_THEN(status, post_load(&call, error));
    close_call(&call);
    return status;
}

/* ---- What is served ---- */

static void take_text(const json_value *root, const char *key, char *out, size_t capacity) {
    const json_value *text = json_find(root, key);
    if (text != NULL && text->kind == JSON_STRING && text->string.size < capacity)
        snprintf(out, capacity, "%.*s", (int)text->string.size, text->string.data);
}

static avo_status read_model(const live_call *call, live_model *model, avo_error *error) {
    arena arena;
    json_value root;
    arena_init(&arena, NULL, (size_t)16 << 20);
    avo_status status = json_parse(&arena, buffer_text(&call->answer), &root, error);
    if (status == AVO_OK) {
        take_text(&root, "model", model->name, sizeof(model->name));
        take_text(&root, "digest", model->digest, sizeof(model->digest));
    } else {
        status = status_prefix(error, status, "%s: not a server of Avocet", call->url);
    }
    arena_free(&arena);
    return status;
}

avo_status live_adapter_model(const live_adapter *adapter, live_model *model, avo_error *error) {
    live_call call;
    *model = (live_model){.name = ""};
    avo_status status = open_call(&call, adapter, "/version", error);
    AVO_THEN(status, perform(&call, error));
    AVO_THEN(status, read_model(&call, model, error));
    close_call(&call);
    return status;
}
