/* /v1/usage: what keys have used, as JSON or CSV; and metrics by key. */
#include "server/api/api_int.h"
#include "server/keys.h"

#include <string.h>

#define USAGE_DAYS  30u /* without "from" */
#define USAGE_BYTES ((size_t)64 << 20)

typedef struct usage_query {
    uint32_t first, last;
    bool csv;
    const server_keys *keys;
    const server_key *only; /* NULL: all */
    ledger_time now;
} usage_query;

/* ---- What is asked ---- */

static bool read_day(exchange *exchange, const char *name, uint32_t *day) {
    const char *text = exchange_query(exchange, name);
    if (text == NULL || ledger_day_read(text_from(text), day))
        return true;
    exchange_fail(exchange, 400, name, "invalid_value", "%s is \"%.40s\", must be a day like %s",
                  name, text, "2026-11-19");
    return false;
}

/* A key that is no administrator's sees its own figures; which other keys there are is not told. */
static bool read_key_name(exchange *exchange, usage_query *query) {
    const exchange_request *asked = exchange_asked(exchange);
    const char *name = exchange_query(exchange, "key");
    if (!asked->may_administer) {
        query->only = asked->key;
        if (name == NULL || strcmp(name, server_key_name(asked->key)) == 0)
            return true;
        exchange_fail(exchange, 403, "key", "admin_only", "key: other keys need an admin key");
        return false;
    }
    if (name != NULL && (query->only = server_keys_named(query->keys, name)) == NULL) {
        exchange_fail(exchange, 404, "key", "not_found", "key: no key is named \"%.100s\"", name);
        return false;
    }
    return true;
}

static bool read_query(exchange *exchange, usage_query *query) {
    const char *format = exchange_query(exchange, "format");
    query->now = ledger_now();
    query->last = ledger_day_of(query->now.unix_ms);
    query->first = query->last >= USAGE_DAYS ? query->last - USAGE_DAYS + 1 : 0;
    query->csv = format != NULL && strcmp(format, "csv") == 0;
    if (format != NULL && !query->csv && strcmp(format, "json") != 0) {
        exchange_fail(exchange, 400, "format", "invalid_value",
                      "format is \"%.40s\", must be json or csv", format);
        return false;
    }
    return read_day(exchange, "from", &query->first) && read_day(exchange, "to", &query->last) &&
           read_key_name(exchange, query);
}

/* ---- CSV ---- */

static avo_status write_quoted(buffer *out, const char *text) {
    AVO_TRY(buffer_append_text(out, "\""));
    for (; *text != '\0'; text++)
        AVO_TRY(buffer_append(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1));
    return buffer_append_text(out, "\"");
}

static bool see_csv(void *context, const ledger_row *row) {
    buffer *out = context;
    char day[16];
    const ledger_totals *t = &row->totals;
    ledger_day_text(row->day, day);
    return write_quoted(out, row->name) == AVO_OK &&
           buffer_format(out, ",%s,%llu,%llu,%llu,%llu,%llu\r\n", day,
                         (unsigned long long)t->requests, (unsigned long long)t->refused,
                         (unsigned long long)t->prompt_tokens, (unsigned long long)t->cached_tokens,
                         (unsigned long long)t->new_tokens) == AVO_OK;
}

/* ---- JSON ---- */

static bool see_json(void *context, const ledger_row *row) {
    json_writer *w = context;
    char day[16];
    const ledger_totals *t = &row->totals;
    ledger_day_text(row->day, day);
    json_object_begin(w);
    json_member_string(w, "key", row->name);
    json_member_string(w, "day", day);
    json_member_u64(w, "requests", t->requests);
    json_member_u64(w, "refused", t->refused);
    json_member_u64(w, "prompt_tokens", t->prompt_tokens);
    json_member_u64(w, "cached_tokens", t->cached_tokens);
    json_member_u64(w, "new_tokens", t->new_tokens);
    json_end(w);
    return w->status == AVO_OK;
}

static void write_window(json_writer *w, const server_key *key, const ledger_time *now) {
    const ledger_limits *limits = server_key_limits(key);
    int64_t begin = 0;
    uint64_t tokens = 0;
    if (limits->token_quota == 0)
        return;
    ledger_window(server_key_account(key), limits, now, &begin, &tokens);
    json_object_begin(w);
    json_member_string(w, "key", server_key_name(key));
    json_member_i64(w, "begin", begin / 1000);
    json_member_i64(w, "end", begin / 1000 + (int64_t)limits->quota_seconds);
    json_member_u64(w, "tokens", tokens);
    json_member_u64(w, "token_quota", limits->token_quota);
    json_end(w);
}

static void write_json(json_writer *w, const api *api, const usage_query *query) {
    char day[16];
    const ledger_account *account = query->only == NULL ? NULL : server_key_account(query->only);
    json_object_begin(w);
    json_member_string(w, "object", "usage");
    ledger_day_text(query->first, day);
    json_member_string(w, "from", day);
    ledger_day_text(query->last, day);
    json_member_string(w, "to", day);
    json_member_array_begin(w, "data");
    ledger_rows(api->host.ledger, account, query->first, query->last, see_json, w);
    json_end(w);
    json_member_array_begin(w, "windows");
    for (size_t i = 0; i < server_keys_count(query->keys); i++) {
        const server_key *key = server_keys_at(query->keys, i);
        if (query->only == NULL || key == query->only ||
            strcmp(server_key_name(key), server_key_name(query->only)) == 0)
            write_window(w, key, &query->now);
    }
    json_end(w);
    json_end(w);
}

/* ---- The endpoint ---- */

static void send_usage(const api *api, exchange *exchange, const usage_query *query) {
    buffer out;
    buffer_init(&out, NULL, USAGE_BYTES);
    avo_status status = AVO_OK;
    if (query->csv) {
        const ledger_account *account =
            query->only == NULL ? NULL : server_key_account(query->only);
        status = buffer_append_text(
            &out, "key,day,requests,refused,prompt_tokens,cached_tokens,new_tokens\r\n");
        if (status == AVO_OK)
            ledger_rows(api->host.ledger, account, query->first, query->last, see_csv, &out);
    } else {
        json_writer w = json_writer_of(&out);
        write_json(&w, api, query);
        status = json_writer_status(&w);
    }
    if (out.size + 1024 > USAGE_BYTES)
        status = AVO_ERROR_LIMIT;
    if (status == AVO_OK)
        exchange_send(exchange, 200, query->csv ? "text/csv; charset=utf-8" : "application/json",
                      buffer_text(&out));
    else if (status == AVO_ERROR_LIMIT)
        exchange_fail(exchange, 400, "from", "too_large",
                      "from, to: the answer would be larger than %zu bytes; ask for fewer days",
                      USAGE_BYTES);
    else
        exchange_fail(exchange, 503, NULL, "out_of_memory", "out of memory");
    buffer_free(&out);
}

void endpoint_usage(api *api, exchange *exchange) {
    server_keys *keys = api->host.keys == NULL ? NULL : api->host.keys(api->host.context);
    usage_query query = {.keys = keys};
    if (keys == NULL)
        exchange_fail(exchange, 404, NULL, "no_keys",
                      "usage is counted by key, and this server has no keys (--keys)");
    else if (read_query(exchange, &query))
        send_usage(api, exchange, &query);
    server_keys_release(keys);
}

/* ---- Metrics ---- */

typedef struct metric_writer {
    buffer *out;
    avo_status status;
    const char *name; /* of the metric */
    uint64_t (*value)(const ledger_metric *metric);
} metric_writer;

/* A label's value: names have no control characters. */
static avo_status write_label(buffer *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            AVO_TRY(buffer_append_text(out, "\\"));
        AVO_TRY(buffer_append(out, text, 1));
    }
    return AVO_OK;
}

static avo_status write_sample(metric_writer *m, const ledger_metric *metric, const char *reason,
                               uint64_t value) {
    AVO_TRY(buffer_format(m->out, "%s{key=\"", m->name));
    AVO_TRY(write_label(m->out, metric->name));
    AVO_TRY(buffer_append_text(m->out, "\""));
    if (reason != NULL)
        AVO_TRY(buffer_format(m->out, ",reason=\"%s\"", reason));
    return buffer_format(m->out, "} %llu\n", (unsigned long long)value);
}

static uint64_t requests_of(const ledger_metric *m) {
    return m->totals.requests;
}
static uint64_t prompt_of(const ledger_metric *m) {
    return m->totals.prompt_tokens;
}
static uint64_t cached_of(const ledger_metric *m) {
    return m->totals.cached_tokens;
}
static uint64_t new_of(const ledger_metric *m) {
    return m->totals.new_tokens;
}
static uint64_t concurrent_of(const ledger_metric *m) {
    return m->concurrent;
}

static void see_metric(void *context, const ledger_metric *metric) {
    static const char *const reasons[] = {
        [LEDGER_QUOTA] = "quota", [LEDGER_RATE] = "rate", [LEDGER_CONCURRENT] = "concurrent"};
    metric_writer *m = context;
    if (m->value != NULL) {
        AVO_THEN(m->status, write_sample(m, metric, NULL, m->value(metric)));
        return;
    }
    for (size_t i = LEDGER_QUOTA; i <= LEDGER_CONCURRENT; i++)
        AVO_THEN(m->status, write_sample(m, metric, reasons[i], metric->refused[i]));
}

avo_status usage_write_metrics(const api *api, buffer *out) {
    static const struct {
        const char *name, *help, *type;
        uint64_t (*value)(const ledger_metric *metric); /* NULL: refusals, by reason */
    } metrics[] = {
        {"avocet_key_requests_total", "Requests admitted, by key.", "counter", requests_of},
        {"avocet_key_refused_total", "Requests refused, by key and reason.", "counter", NULL},
        {"avocet_key_prompt_tokens_total", "Prompt tokens, by key.", "counter", prompt_of},
        {"avocet_key_cached_tokens_total", "Prompt tokens found in the prefix cache, by key.",
         "counter", cached_of},
        {"avocet_key_new_tokens_total", "Generated tokens, by key.", "counter", new_of},
        {"avocet_key_requests", "Requests being answered, by key.", "gauge", concurrent_of},
    };
    if (api->host.ledger == NULL)
        return AVO_OK;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        metric_writer m = {out, AVO_OK, metrics[i].name, metrics[i].value};
        AVO_TRY(buffer_format(out, "# HELP %s %s\n# TYPE %s %s\n", metrics[i].name, metrics[i].help,
                              metrics[i].name, metrics[i].type));
        ledger_metrics(api->host.ledger, see_metric, &m);
        AVO_TRY(m.status);
    }
    return AVO_OK;
}
