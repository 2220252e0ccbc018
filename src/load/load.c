/* Clients of an OpenAI-compatible server, all on one thread. */
#include "load/load.h"

#include "base/clock.h"
#include "base/json_writer.h"
#include "base/random.h"
#include "hub/curl_late.h"
#include "load/events.h"
#include "load/load_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX  ((size_t)4 << 20)
#define EVENT_ARENA_MAX ((size_t)16 << 20)
#define POLL_MS         50
#define STREAM_PROMPT   1 /* of the random numbers */
#define STREAM_ARRIVAL  2

typedef struct generator generator;

/* One client and the request it is busy with. */
typedef struct load_client {
    generator *load;
    CURL *easy;
    bool busy;
    buffer body; /* what is sent */
    buffer line; /* what has come of a line, or the whole answer */
    char curl_text[CURL_ERROR_SIZE];
    uint64_t begin_ns, first_ns, last_ns;
    uint32_t pieces;
    uint64_t new_tokens, prompt_tokens; /* as the server says; 0: it did not */
    bool broken;                        /* an event that is none, or an error within the stream */
    char failure[160];
} load_client;

struct generator {
    const load_options *options;
    load_result *result;
    CURLM *multi;
    struct curl_slist *headers;
    char url[LOAD_URL_BYTES];
    load_client *client;
    arena events; /* of the event that is being read */
    uint32_t begun, ended;
    uint64_t start_ns;
    double next_seconds;                   /* when the next request of an open loop is due */
    buffer first, between, whole, refusal; /* double each */
};

/* ---- What comes ---- */

static void note_failure(load_client *client, const char *text, size_t bytes) {
    client->broken = true;
    if (client->failure[0] == '\0')
        snprintf(client->failure, sizeof(client->failure), "%.*s", (int)(bytes < 150 ? bytes : 150),
                 text);
}

static void note_piece(load_client *client) {
    uint64_t now = clock_now_ns();
    if (client->pieces == 0) {
        client->first_ns = now;
    } else {
        double gap = clock_seconds(client->last_ns, now);
        if (buffer_append(&client->load->between, &gap, sizeof(gap)) != AVO_OK)
            client->broken = true;
    }
    client->last_ns = now;
    client->pieces++;
}

uint64_t load_count(const json_value *usage, const char *key) {
    int64_t value = 0;
    return json_get_integer(usage, key, 0, INT64_MAX, &value, NULL) == AVO_OK ? (uint64_t)value : 0;
}

/* An event, or a whole answer. */
static void read_event(void *context, text_view text) {
    load_client *client = context;
    json_value root;
    arena_reset(&client->load->events);
    if (json_parse(&client->load->events, text, &root, NULL) != AVO_OK) {
        note_failure(client, text.data, text.size);
        return;
    }
    const json_value *error = json_find(&root, "error");
    if (error != NULL && error->kind != JSON_NULL) {
        const json_value *message = json_find(error, "message");
        text_view said = message != NULL && message->kind == JSON_STRING ? message->string : text;
        note_failure(client, said.data, said.size);
        return;
    }
    const json_value *usage = json_find(&root, "usage");
    if (usage != NULL && usage->kind == JSON_OBJECT) {
        client->new_tokens = load_count(usage, "completion_tokens");
        client->prompt_tokens = load_count(usage, "prompt_tokens");
    }
    const json_value *choice = json_item(json_find(&root, "choices"), 0);
    const json_value *content = json_find(choice, "text");
    const json_value *delta = json_find(choice, "delta");
    if (delta == NULL)
        delta = json_find(choice, "message");
    if (delta != NULL)
        content = json_find(delta, "content");
    if (content != NULL && content->kind == JSON_STRING && content->string.size > 0)
        note_piece(client);
}

static size_t on_data(char *data, size_t size, size_t count, void *context) {
    load_client *client = context;
    size_t bytes = size * count;
    long status = 0;
    (void)curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &status);
    if (buffer_append(&client->line, data, bytes) != AVO_OK)
        return 0; /* ends the transfer */
    if (!client->busy || client->load->options->whole || status != 200)
        return bytes;
    events_read(&client->line, read_event, client);
    return bytes;
}

/* ---- What is sent ---- */

/* Common words, one token each in most vocabularies; every prompt begins in its own way, so that no
 * cache of prefixes has seen it. */
static avo_status write_prompt(const load_options *options, uint32_t number, buffer *out) {
    static const char *const words[] = {
        "time", "people", "way",  "water", "day",    "man",  "thing", "world",  "life",   "hand",
        "part", "child",  "eye",  "woman", "place",  "work", "week",  "case",   "point",  "home",
        "room", "mother", "area", "money", "story",  "fact", "month", "lot",    "right",  "study",
        "book", "job",    "word", "side",  "kind",   "head", "house", "friend", "father", "power",
        "hour", "game",   "line", "end",   "member", "law",  "car",   "city",   "name",   "team"};
    AVO_TRY(buffer_format(out, "%u:", number));
    for (uint32_t i = 0; i < (options->prompt > 3 ? options->prompt - 3 : 1); i++) {
        double draw =
            random_uniform_at(options->seed, STREAM_PROMPT, (uint64_t)number * 1048576u + i);
        size_t count = sizeof(words) / sizeof(words[0]);
        AVO_TRY(buffer_format(out, " %s", words[(size_t)(draw * (double)count) % count]));
    }
    return AVO_OK;
}

static avo_status write_body(const generator *load, uint32_t number, buffer *body) {
    const load_options *options = load->options;
    buffer prompt;
    buffer_init(&prompt, NULL, LINE_BYTES_MAX);
    avo_status status = write_prompt(options, number, &prompt);
    body->size = 0;
    json_writer w = json_writer_of(body);
    json_object_begin(&w);
    json_member_string(&w, "model", load->result->model);
    if (options->chat) {
        json_member_array_begin(&w, "messages");
        json_object_begin(&w);
        json_member_string(&w, "role", "user");
        json_member_text(&w, "content", buffer_text(&prompt));
        json_end(&w);
        json_end(&w);
    } else {
        json_member_text(&w, "prompt", buffer_text(&prompt));
    }
    json_member_u64(&w, "max_tokens", options->generate);
    json_member_u64(&w, "temperature", 0);
    if (!options->any_length)
        json_member_boolean(&w, "ignore_eos", true);
    if (!options->whole) {
        json_member_boolean(&w, "stream", true);
        json_member_object_begin(&w, "stream_options");
        json_member_boolean(&w, "include_usage", true);
        json_end(&w);
    }
    json_end(&w);
    json_writer_note(&w, status);
    buffer_free(&prompt);
    return json_writer_status(&w);
}

/* `due_ns`: when it should begin. Waiting for a free client is part of what a request sees, or an
 * open loop would forgive a server that does not keep up. */
static avo_status begin_request(generator *load, load_client *client, uint64_t due_ns,
                                avo_error *error) {
    if (write_body(load, load->begun, &client->body) != AVO_OK)
        return status_no_memory(error, "a request", load->options->prompt);
    client->line.size = 0;
    client->pieces = 0;
    client->new_tokens = client->prompt_tokens = 0;
    client->broken = false;
    client->failure[0] = client->curl_text[0] = '\0';
    curl_easy_setopt(client->easy, CURLOPT_POSTFIELDS, client->body.data);
    curl_easy_setopt(client->easy, CURLOPT_POSTFIELDSIZE, (long)client->body.size);
    client->begin_ns = due_ns;
    if (curl_multi_add_handle(load->multi, client->easy) != CURLM_OK)
        return status_fail(error, AVO_ERROR_NETWORK, "libcurl accepts no more transfers");
    client->busy = true;
    load->begun++;
    return AVO_OK;
}

/* ---- What has ended ---- */

static void note_failed(load_result *result, const load_client *client, CURLcode code,
                        long status) {
    result->failed++;
    if (result->failure[0] != '\0')
        return;
    if (code != CURLE_OK)
        snprintf(result->failure, sizeof(result->failure), "%s", curl_easy_strerror(code));
    else if (status != 200)
        snprintf(result->failure, sizeof(result->failure), "status %ld: %.150s", status,
                 client->failure);
    else
        snprintf(result->failure, sizeof(result->failure), "%.150s",
                 client->broken ? client->failure : "the answer has no text");
}

static avo_status note_end(generator *load, load_client *client, CURLcode code, long status,
                           avo_error *error) {
    load_result *result = load->result;
    double seconds = clock_seconds(client->begin_ns, clock_now_ns());
    if (code == CURLE_OK && (status == 429 || status == 503)) {
        result->refused++;
        return buffer_append(&load->refusal, &seconds, sizeof(seconds)) == AVO_OK
                   ? AVO_OK
                   : status_no_memory(error, "the times", load->refusal.size);
    }
    if (code == CURLE_OK && (load->options->whole || status != 200) && client->line.size > 0)
        read_event(client, buffer_text(&client->line));
    if (code != CURLE_OK || status != 200 || client->broken || client->pieces == 0) {
        note_failed(result, client, code, status);
        return AVO_OK;
    }
    result->finished++;
    result->new_tokens += client->new_tokens > 0 ? client->new_tokens : client->pieces;
    result->prompt_tokens += client->prompt_tokens;
    double first = clock_seconds(client->begin_ns, client->first_ns);
    if (buffer_append(&load->first, &first, sizeof(first)) != AVO_OK ||
        buffer_append(&load->whole, &seconds, sizeof(seconds)) != AVO_OK)
        return status_no_memory(error, "the times", load->whole.size);
    return AVO_OK;
}

static avo_status take_ended(generator *load, avo_error *error) {
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(load->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURL *easy = message->easy_handle;
        CURLcode code = message->data.result;
        load_client *client = NULL;
        long status = 0, connections = 0;
        (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&client);
        (void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        (void)curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connections);
        load->result->connections += (uint32_t)connections;
        AVO_TRY(note_end(load, client, code, status, error));
        (void)curl_multi_remove_handle(load->multi, easy);
        client->busy = false;
        load->ended++;
    }
    return AVO_OK;
}

/* ---- The loop ---- */

static load_client *idle_client(generator *load) {
    for (uint32_t i = 0; i < load->options->clients; i++)
        if (!load->client[i].busy)
            return &load->client[i];
    return NULL;
}

/* Begins what is due now; milliseconds until something else is. */
static avo_status begin_due(generator *load, int *wait_ms, avo_error *error) {
    const load_options *options = load->options;
    *wait_ms = POLL_MS;
    while (load->begun < options->requests) {
        double now = clock_seconds(load->start_ns, clock_now_ns());
        if (options->rate > 0.0 && now < load->next_seconds) {
            double wait = (load->next_seconds - now) * 1e3;
            *wait_ms = wait < POLL_MS ? (int)wait : POLL_MS;
            return AVO_OK;
        }
        load_client *client = idle_client(load);
        if (client == NULL)
            return AVO_OK;
        uint64_t due_ns = clock_now_ns();
        if (options->rate > 0.0) {
            due_ns = load->start_ns + (uint64_t)(load->next_seconds * 1e9);
            double uniform = random_uniform_at(options->seed, STREAM_ARRIVAL, load->begun);
            load->next_seconds -= log(1.0 - uniform) / options->rate;
        }
        AVO_TRY(begin_request(load, client, due_ns, error));
    }
    return AVO_OK;
}

static avo_status run_load(generator *load, avo_error *error) {
    const load_options *options = load->options;
    load->start_ns = clock_now_ns();
    while (load->ended < options->requests) {
        int running, wait_ms;
        AVO_TRY(begin_due(load, &wait_ms, error));
        if (curl_multi_perform(load->multi, &running) != CURLM_OK ||
            curl_multi_poll(load->multi, NULL, 0, wait_ms, NULL) != CURLM_OK)
            return status_fail(error, AVO_ERROR_NETWORK, "libcurl failed");
        AVO_TRY(take_ended(load, error));
        if (options->progress != NULL &&
            !options->progress(NULL, "requests", load->ended, options->requests))
            return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
    }
    load->result->seconds = clock_seconds(load->start_ns, clock_now_ns());
    return AVO_OK;
}

/* ---- Opening ---- */

avo_status load_make_url(const char *server, const char *path, char url[LOAD_URL_BYTES],
                         avo_error *error) {
    size_t bytes = strlen(server);
    while (bytes > 0 && server[bytes - 1] == '/')
        bytes--;
    if (bytes >= 3 && memcmp(server + bytes - 3, "/v1", 3) == 0)
        bytes -= 3;
    int written = snprintf(url, LOAD_URL_BYTES, "%.*s%s", (int)bytes, server, path);
    if (written < 0 || (size_t)written >= LOAD_URL_BYTES)
        return status_fail(error, AVO_ERROR_LIMIT, "the URL is too long");
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "\"%s\" must begin with http:// or https://",
                           server);
    return AVO_OK;
}

avo_status load_make_headers(const char *key, struct curl_slist **headers, avo_error *error) {
    char header[512];
    *headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (key != NULL) {
        int written = snprintf(header, sizeof(header), "Authorization: Bearer %s", key);
        if (written < 0 || (size_t)written >= sizeof(header))
            return status_fail(error, AVO_ERROR_LIMIT, "the key is too long");
        *headers = curl_slist_append(*headers, header);
    }
    /* Or libcurl waits for "100 Continue" before long bodies. */
    *headers = curl_slist_append(*headers, "Expect:");
    return *headers != NULL ? AVO_OK : status_no_memory(error, "headers", sizeof(header));
}

static avo_status open_client(generator *load, load_client *client, avo_error *error) {
    client->load = load;
    buffer_init(&client->body, NULL, LINE_BYTES_MAX);
    buffer_init(&client->line, NULL, LINE_BYTES_MAX);
    client->easy = curl_easy_init();
    if (client->easy == NULL)
        return status_no_memory(error, "a client", sizeof(*client));
    CURL *easy = client->easy;
    curl_easy_setopt(easy, CURLOPT_URL, load->url);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, load->headers);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, client->curl_text);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, client);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, client);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(load->options->timeout_seconds * 1e3));
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "avocet-bench/" AVO_VERSION_TEXT);
    return AVO_OK;
}

/* The model's name: as given, else the first that the server has. */
static avo_status ask_model(generator *load, avo_error *error) {
    load_client *client = &load->client[0];
    char url[LOAD_URL_BYTES];
    long status = 0;
    json_value root;
    AVO_TRY(load_make_url(load->options->url, "/v1/models", url, error));
    curl_easy_setopt(client->easy, CURLOPT_URL, url);
    curl_easy_setopt(client->easy, CURLOPT_HTTPGET, 1L);
    CURLcode code = curl_easy_perform(client->easy);
    (void)curl_easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_setopt(client->easy, CURLOPT_URL, load->url);
    curl_easy_setopt(client->easy, CURLOPT_POST, 1L);
    if (code != CURLE_OK)
        return status_fail(error, AVO_ERROR_NETWORK, "%s: %s", url,
                           client->curl_text[0] != '\0' ? client->curl_text
                                                        : curl_easy_strerror(code));
    if (load->options->model == NULL && status != 200)
        return status_fail(error, AVO_ERROR_NETWORK,
                           "%s returned HTTP status %ld; give a model with --model", url, status);
    text_view name = {"", 0};
    if (load->options->model != NULL)
        name = text_from(load->options->model);
    else if (json_parse(&load->events, buffer_text(&client->line), &root, error) == AVO_OK)
        (void)!json_get_string(json_item(json_find(&root, "data"), 0), "id", &name, error);
    if (name.size == 0)
        return status_fail(error, AVO_ERROR_NETWORK, "%s lists no model; give one with --model",
                           url);
    snprintf(load->result->model, sizeof(load->result->model), "%.*s", (int)name.size, name.data);
    return AVO_OK;
}

static avo_status open_load(generator *load, avo_error *error) {
    const load_options *options = load->options;
    AVO_TRY(load_make_url(options->url, options->chat ? "/v1/chat/completions" : "/v1/completions",
                          load->url, error));
    AVO_TRY(load_make_headers(options->key, &load->headers, error));
    load->multi = curl_multi_init();
    load->client = calloc(options->clients, sizeof(*load->client));
    if (load->multi == NULL || load->client == NULL)
        return status_no_memory(error, "the clients", options->clients * sizeof(*load->client));
    (void)curl_multi_setopt(load->multi, CURLMOPT_MAXCONNECTS, (long)options->clients);
    for (uint32_t i = 0; i < options->clients; i++)
        AVO_TRY(open_client(load, &load->client[i], error));
    return ask_model(load, error);
}

static void close_load(generator *load) {
    for (uint32_t i = 0; load->client != NULL && i < load->options->clients; i++) {
        load_client *client = &load->client[i];
        if (client->easy == NULL)
            continue;
        (void)curl_multi_remove_handle(load->multi, client->easy);
        curl_easy_cleanup(client->easy);
        buffer_free(&client->body);
        buffer_free(&client->line);
    }
    free(load->client);
    curl_multi_cleanup(load->multi);
    curl_slist_free_all(load->headers);
    arena_free(&load->events);
    buffer_free(&load->first);
    buffer_free(&load->between);
    buffer_free(&load->whole);
    buffer_free(&load->refusal);
}

/* ---- Figures ---- */

/* Sorts a copy that lives with the result. */
static avo_status conclude(load_result *result, const buffer *times, serving_spread *spread,
                           double **sorted, avo_error *error) {
    size_t count = times->size / sizeof(double);
    double *copy = arena_take_array(&result->arena, count + 1, sizeof(double));
    if (copy == NULL)
        return status_no_memory(error, "the times", times->size);
    if (count > 0)
        memcpy(copy, times->data, times->size);
    *spread = serving_spread_of(copy, count);
    if (sorted != NULL)
        *sorted = copy;
    return AVO_OK;
}

static avo_status conclude_all(generator *load, avo_error *error) {
    load_result *result = load->result;
    AVO_TRY(conclude(result, &load->first, &result->first, &result->first_seconds, error));
    AVO_TRY(conclude(result, &load->between, &result->between, &result->between_seconds, error));
    AVO_TRY(conclude(result, &load->whole, &result->whole, &result->whole_seconds, error));
    return conclude(result, &load->refusal, &result->refusal, NULL, error);
}

avo_status load_run(const load_options *options, load_result *result, avo_error *error) {
    generator load = {.options = options, .result = result};
    memset(result, 0, sizeof(*result));
    AVO_TRY(curl_late_open(error));
    arena_init(&result->arena, NULL, SIZE_MAX);
    arena_init(&load.events, NULL, EVENT_ARENA_MAX);
    buffer_init(&load.first, NULL, SIZE_MAX);
    buffer_init(&load.between, NULL, SIZE_MAX);
    buffer_init(&load.whole, NULL, SIZE_MAX);
    buffer_init(&load.refusal, NULL, SIZE_MAX);
    result->requests = options->requests;
    avo_status status = open_load(&load, error);
    AVO_THEN(status, run_load(&load, error));
    AVO_THEN(status, conclude_all(&load, error));
    close_load(&load);
    if (status != AVO_OK)
        load_free(result);
    return status;
}

void load_free(load_result *result) {
    arena_free(&result->arena);
}
