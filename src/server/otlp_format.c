/* Spans as OTLP's JSON has them: ids in hexadecimal, times as texts of nanoseconds, enums as
 * numbers. And what is read for it: the collector's address, and the client's traceparent. */
#include "server/otlp_format.h"

#include "base/json_writer.h"
#include "base/random.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND_INTERNAL 1
#define KIND_SERVER   2
#define STATUS_ERROR  2

/* ---- The collector's address ---- */

static bool take_address(const char *host, uint16_t port, otlp_target *target) {
    struct sockaddr_in *four = (struct sockaddr_in *)&target->address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&target->address;
    memset(&target->address, 0, sizeof(target->address));
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        target->address_bytes = sizeof(*four);
        return true;
    }
    if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(port);
        target->address_bytes = sizeof(*six);
        return true;
    }
    return false;
}

/* ":4318" or nothing. */
static bool read_port(const char **at, uint16_t *port) {
    unsigned long number = 0;
    char *end = NULL;
    *port = 4318;
    if (**at != ':')
        return **at == '\0' || **at == '/';
    if ((*at)[1] < '0' || (*at)[1] > '9')
        return false;
    number = strtoul(*at + 1, &end, 10);
    *at = end;
    *port = (uint16_t)number;
    return number > 0 && number <= 65535 && (*end == '\0' || *end == '/');
}

static bool is_path(const char *path) {
    for (const char *c = path; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 0x7F)
            return false;
    return strlen(path) < OTLP_PATH_MAX;
}

avo_status otlp_target_read(const char *url, otlp_target *target, avo_error *error) {
    static const char scheme[] = "http://";
    const char *at = url + strlen(scheme);
    memset(target, 0, sizeof(*target));
    if (strncmp(url, scheme, strlen(scheme)) == 0) {
        bool six = *at == '[';
        size_t size = strcspn(at + six, six ? "]" : ":/");
        if (size < sizeof(target->host)) {
            memcpy(target->host, at + six, size);
            at += six + size;
            bool closed = !six || *at == ']';
            at += six && closed;
            if (closed && read_port(&at, &target->port) && is_path(at) &&
                take_address(target->host, target->port, target)) {
                snprintf(target->path, sizeof(target->path), "%s",
                         *at == '\0' || strcmp(at, "/") == 0 ? "/v1/traces" : at);
                return AVO_OK;
            }
        }
    }
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "--otlp %.200s: must be http://ADDRESS:PORT/PATH with a numeric address or "
                       "localhost, such as http://127.0.0.1:4318/v1/traces",
                       url);
}

/* ---- traceparent ---- */

static bool read_hexadecimal(text_view text, size_t at, uint8_t *bytes, size_t count) {
    uint8_t any = 0;
    for (size_t i = 0; i < 2 * count; i++) {
        char c = text.data[at + i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit > 15)
            return false;
        bytes[i / 2] = (uint8_t)(i % 2 == 0 ? digit << 4 : bytes[i / 2] | digit);
        any |= (uint8_t)digit;
    }
    return any != 0;
}

/* "00-" 32 digits "-" 16 digits "-" 2 digits; ids of zeros are none. */
bool otlp_parent_read(text_view header, otlp_parent *parent) {
    uint8_t flags = 0;
    *parent = (otlp_parent){.sampled = true};
    if (header.size != 55 || !text_starts(header, TEXT_LITERAL("00-")) || header.data[35] != '-' ||
        header.data[52] != '-')
        return false;
    otlp_parent read = {0};
    if (!read_hexadecimal(header, 3, read.trace, 16) || !read_hexadecimal(header, 36, read.span, 8))
        return false;
    if (!read_hexadecimal(header, 53, &flags, 1) && flags != 0)
        return false;
    if (memcmp(header.data + 53, "00", 2) != 0 && flags == 0)
        return false;
    read.sampled = (flags & 1) != 0;
    *parent = read;
    return true;
}

/* ---- Records ---- */

static void copy(char *out, size_t capacity, const char *text) {
    snprintf(out, capacity, "%s", text == NULL ? "" : text);
}

void otlp_record_take(otlp_record *record, const otlp_request *request) {
    record->request = *request;
    copy(record->method, sizeof(record->method), request->method);
    copy(record->path, sizeof(record->path), request->path);
    copy(record->id, sizeof(record->id), request->id);
    copy(record->key, sizeof(record->key), request->key);
    copy(record->model, sizeof(record->model), request->model);
    record->has_key = request->key != NULL;
    record->has_model = request->model != NULL;
}

/* ---- Spans ---- */

typedef struct spans {
    json_writer *w;
    uint64_t seed, ids;
} spans;

static void write_hexadecimal(json_writer *w, const char *name, const uint8_t *bytes,
                              size_t count) {
    char text[33];
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    json_member_string(w, name, text);
}

static void make_id(spans *s, uint8_t *bytes, size_t count) {
    random_block block = random_at(s->seed, 3, s->ids++);
    memcpy(bytes, block.words, count);
    bytes[0] |= 1; /* never zero */
}

static void write_time(json_writer *w, const char *name, uint64_t nanoseconds) {
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)nanoseconds);
    json_member_string(w, name, text);
}

static void write_text(json_writer *w, const char *key, const char *value) {
    json_object_begin(w);
    json_member_string(w, "key", key);
    json_member_object_begin(w, "value");
    json_member_string(w, "stringValue", value);
    json_end(w);
    json_end(w);
}

static void write_count(json_writer *w, const char *key, uint64_t value) {
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    json_object_begin(w);
    json_member_string(w, "key", key);
    json_member_object_begin(w, "value");
    json_member_string(w, "intValue", text); /* 64 bits are texts in this JSON */
    json_end(w);
    json_end(w);
}

typedef struct span {
    const uint8_t *trace, *parent; /* parent NULL: none */
    uint8_t id[8];
    const char *name;
    int kind;
    uint64_t begin_ns, end_ns;
} span;

/* Up to the attributes, whose list is open. */
static void span_begin(spans *s, const span *span) {
    json_object_begin(s->w);
    write_hexadecimal(s->w, "traceId", span->trace, 16);
    write_hexadecimal(s->w, "spanId", span->id, 8);
    if (span->parent != NULL)
        write_hexadecimal(s->w, "parentSpanId", span->parent, 8);
    json_member_string(s->w, "name", span->name);
    json_member_i64(s->w, "kind", span->kind);
    write_time(s->w, "startTimeUnixNano", span->begin_ns);
    write_time(s->w, "endTimeUnixNano", span->end_ns);
    json_member_array_begin(s->w, "attributes");
}

static void span_end(spans *s, bool failed) {
    json_end(s->w);
    json_member_object_begin(s->w, "status");
    if (failed)
        json_member_i64(s->w, "code", STATUS_ERROR);
    json_end(s->w);
    json_end(s->w);
}

static void write_part(spans *s, const span *whole, const char *name, uint64_t begin_ns,
                       uint64_t end_ns) {
    span part = {.trace = whole->trace,
                 .parent = whole->id,
                 .name = name,
                 .kind = KIND_INTERNAL,
                 .begin_ns = begin_ns,
                 .end_ns = end_ns > begin_ns ? end_ns : begin_ns};
    make_id(s, part.id, sizeof(part.id));
    span_begin(s, &part);
    span_end(s, false);
}

static void write_parts(spans *s, const otlp_request *r, const span *whole) {
    uint64_t began = r->begin_ns + (uint64_t)(r->queue_seconds * 1e9);
    uint64_t first = r->begin_ns + (uint64_t)(r->first_token_seconds * 1e9);
    if (!(r->first_token_seconds > 0.0))
        return;
    first = first > r->end_ns ? r->end_ns : first;
    began = began > first ? first : began;
    write_part(s, whole, "queue", r->begin_ns, began);
    write_part(s, whole, "prefill", began, first);
    write_part(s, whole, "decode", first, r->end_ns);
}

static void write_request(spans *s, const otlp_record *record) {
    static const uint8_t none[16];
    const otlp_request *r = &record->request;
    char name[OTLP_TEXT_MAX + 20];
    uint8_t trace[16];
    bool has_parent = memcmp(r->parent.trace, none, 16) != 0;
    snprintf(name, sizeof(name), "%s %s", record->method, record->path);
    memcpy(trace, r->parent.trace, 16);
    if (!has_parent)
        make_id(s, trace, 16);
    span whole = {.trace = trace,
                  .parent = has_parent ? r->parent.span : NULL,
                  .name = name,
                  .kind = KIND_SERVER,
                  .begin_ns = r->begin_ns,
                  .end_ns = r->end_ns};
    make_id(s, whole.id, sizeof(whole.id));
    span_begin(s, &whole);
    write_text(s->w, "http.request.method", record->method);
    write_text(s->w, "url.path", record->path);
    write_count(s->w, "http.response.status_code", r->status);
    write_text(s->w, "avocet.request_id", record->id);
    if (record->has_key)
        write_text(s->w, "avocet.key", record->key);
    if (record->has_model) {
        write_text(s->w, "gen_ai.request.model", record->model);
        write_count(s->w, "gen_ai.usage.input_tokens", r->prompt_tokens);
        write_count(s->w, "gen_ai.usage.output_tokens", r->new_tokens);
        write_count(s->w, "avocet.cached_tokens", r->cached_tokens);
    }
    span_end(s, r->failed || r->status >= 500);
    write_parts(s, r, &whole);
}

avo_status otlp_records_format(const otlp_record *records, size_t count, const char *service,
                               uint64_t seed, buffer *out) {
    json_writer w = json_writer_of(out);
    spans s = {.w = &w, .seed = seed};
    json_object_begin(&w);
    json_member_array_begin(&w, "resourceSpans");
    json_object_begin(&w);
    json_member_object_begin(&w, "resource");
    json_member_array_begin(&w, "attributes");
    write_text(&w, "service.name", "avocet");
    write_text(&w, "service.version", avo_version());
    write_text(&w, "avocet.model", service);
    json_end(&w);
    json_end(&w);
    json_member_array_begin(&w, "scopeSpans");
    json_object_begin(&w);
    json_member_object_begin(&w, "scope");
    json_member_string(&w, "name", "avocet.server");
    json_end(&w);
    json_member_array_begin(&w, "spans");
    for (size_t i = 0; i < count; i++)
        write_request(&s, &records[i]);
    for (int i = 0; i < 6; i++)
        json_end(&w);
    return json_writer_status(&w);
}
