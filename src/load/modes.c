/* One client that asks everything in every mode. */
#include "load/modes.h"

#include "base/clock.h"
#include "base/json_writer.h"
#include "hub/curl_late.h"
#include "load/events.h"
#include "load/load_int.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINE_BYTES_MAX  ((size_t)4 << 20)
#define EVENT_ARENA_MAX ((size_t)16 << 20)

typedef struct asker {
    const modes_options *options;
    modes_result *result;
    CURL *easy;
    struct curl_slist *headers;
    char curl_text[CURL_ERROR_SIZE];
    buffer body, line; /* what is sent, and what has come and is not read yet */
    arena events;
    buffer *references;     /* [prompts] texts of the first mode */
    uint32_t *first_counts; /* [modes] answers with a first token */
    uint64_t run;           /* unlike that of any other run */
    uint64_t done, total;
    bool stopped;
    bool streaming;
    /* The answer at hand. */
    buffer text;
    uint64_t begin_ns, first_ns, last_ns;
    uint32_t pieces;
    uint64_t new_tokens, drafted, accepted;
    char failure[160];
} asker;

/* ---- What comes ---- */

/* Drafts as OpenAI's usage counts them, or as llama.cpp's timings do. */
static void read_counts(asker *a, const json_value *root) {
    const json_value *usage = json_find(root, "usage"), *timings = json_find(root, "timings");
    if (usage != NULL && usage->kind == JSON_OBJECT) {
        const json_value *details = json_find(usage, "completion_tokens_details");
        a->new_tokens = load_count(usage, "completion_tokens");
        if (details != NULL && details->kind == JSON_OBJECT) {
            a->accepted = load_count(details, "accepted_prediction_tokens");
            a->drafted = a->accepted + load_count(details, "rejected_prediction_tokens");
        }
    }
    if (timings != NULL && timings->kind == JSON_OBJECT && a->drafted == 0) {
        a->drafted = load_count(timings, "draft_n");
        a->accepted = load_count(timings, "draft_n_accepted");
    }
}

static void fail(asker *a, text_view text) {
    if (a->failure[0] == '\0')
        snprintf(a->failure, sizeof(a->failure), "%.*s", text.size < 150 ? (int)text.size : 150,
                 text.data);
}

static void read_event(void *context, text_view text) {
    asker *a = context;
    json_value root;
    arena_reset(&a->events);
    if (json_parse(&a->events, text, &root, NULL) != AVO_OK) {
        fail(a, text);
        return;
    }
    const json_value *error = json_find(&root, "error");
    if (error != NULL && error->kind != JSON_NULL) {
        const json_value *message = json_find(error, "message");
        fail(a, message != NULL && message->kind == JSON_STRING ? message->string : text);
        return;
    }
    read_counts(a, &root);
    const json_value *choice = json_item(json_find(&root, "choices"), 0);
    const json_value *delta = json_find(choice, "delta");
    const json_value *content =
        json_find(delta != NULL ? delta : choice, delta != NULL ? "content" : "text");
    if (content == NULL || content->kind != JSON_STRING || content->string.size == 0)
        return;
    a->last_ns = clock_now_ns();
    if (a->pieces++ == 0)
        a->first_ns = a->last_ns;
    if (buffer_append(&a->text, content->string.data, content->string.size) != AVO_OK)
        fail(a, TEXT_LITERAL("no memory for the answer"));
}

static size_t on_data(char *data, size_t size, size_t count, void *context) {
    asker *a = context;
    avo_progress_function progress = a->options->progress;
    long status = 0;
    if (progress != NULL && !progress(NULL, "requests", a->done, a->total))
        a->stopped = true;
    if (a->stopped || buffer_append(&a->line, data, size * count) != AVO_OK)
        return 0; /* ends the transfer */
    (void)curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
    if (a->streaming && status == 200)
        events_read(&a->line, read_event, a);
    return size * count;
}

/* ---- What is sent ---- */

static void write_schema(json_writer *w, const char *schema) {
    json_member_object_begin(w, "response_format");
    json_member_string(w, "type", "json_schema");
    json_member_object_begin(w, "json_schema");
    json_member_string(w, "name", "answer");
    json_member_raw(w, "schema", text_from(schema));
    json_end(w);
    json_end(w);
}

static avo_status write_body(asker *a, size_t number, uint32_t mode, uint32_t iteration) {
    const modes_options *options = a->options;
    const bench_prompt *prompt = &options->prompts->item[number];
    bool schema = prompt->schema != NULL && options->chat;
    a->body.size = 0;
    json_writer w = json_writer_of(&a->body);
    json_object_begin(&w);
    json_member_string(&w, "model", a->result->model);
    if (options->chat) {
        json_member_array_begin(&w, "messages");
        json_object_begin(&w);
        json_member_string(&w, "role", "user");
        json_member_string(&w, "content", prompt->text);
        json_end(&w);
        json_end(&w);
    } else {
        json_member_string(&w, "prompt", prompt->text);
    }
    json_member_u64(&w, "max_tokens", options->new_tokens);
    json_member_float(&w, "temperature",
                      prompt->temperature >= 0 ? prompt->temperature : options->temperature);
    json_member_u64(&w, "seed", options->seed + number);
    json_member_string(&w, "speculation", a->result->config[mode].source);
    /* So that neither prefixes nor earlier answers help: an answer must not be drafted from itself,
     * not even from one of an earlier run. */
    char salt[64];
    snprintf(salt, sizeof(salt), "modes-%llx-%u-%u", (unsigned long long)a->run, iteration, mode);
    json_member_string(&w, "cache_salt", salt);
    if (schema)
        write_schema(&w, prompt->schema);
    else if (!options->any_length)
        json_member_boolean(&w, "ignore_eos", true);
    json_member_boolean(&w, "stream", true);
    json_member_object_begin(&w, "stream_options");
    json_member_boolean(&w, "include_usage", true);
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}

/* ---- One answer ---- */

static void note_failed(asker *a, CURLcode code, long status) {
    modes_result *result = a->result;
    if (result->failed++ > 0)
        return;
    if (code != CURLE_OK)
        snprintf(result->failure, sizeof(result->failure), "%s",
                 a->curl_text[0] != '\0' ? a->curl_text : curl_easy_strerror(code));
    else if (status != 200)
        snprintf(result->failure, sizeof(result->failure), "status %ld: %.150s", status,
                 a->failure);
    else
        snprintf(result->failure, sizeof(result->failure), "%.150s",
                 a->failure[0] != '\0' ? a->failure : "the answer has no text");
}

static void note_answer(asker *a, size_t number, uint32_t mode, uint32_t iteration) {
    modes_result *result = a->result;
    const lab_options *figures = &result->figures;
    uint32_t category = 0;
    while (strcmp(result->measured.category[category],
                  a->options->prompts->item[number].category) != 0)
        category++;
    lab_sample *sample =
        &result->measured
             .sample[((size_t)mode * result->measured.categories + category) * figures->iterations +
                     iteration];
    uint64_t tokens = a->new_tokens > 0 ? a->new_tokens : a->pieces;
    double seconds = clock_seconds(a->first_ns, a->last_ns);
    size_t answer = ((size_t)mode * a->options->prompts->count + number) * figures->iterations;
    tokens -= tokens > 0;
    result->measured.rate[answer + iteration] = seconds > 0 ? (double)tokens / seconds : 0;
    result->measured.prompt_category[number] = category;
    sample->seconds += seconds;
    sample->tokens += tokens;
    sample->drafted += a->drafted;
    sample->accepted += a->accepted;
    sample->answers++;
    bool equal = text_equal(buffer_text(&a->text), buffer_text(&a->references[number]));
    sample->equal += equal;
    result->different += !equal && a->references[number].size > 0; /* else that one has failed */
    result->counted[mode] = result->counted[mode] || a->drafted > 0;
    result->first_seconds[mode] += clock_seconds(a->begin_ns, a->first_ns);
    a->first_counts[mode]++;
}

static avo_status ask(asker *a, size_t number, uint32_t mode, uint32_t iteration,
                      avo_error *error) {
    long status = 0;
    if (write_body(a, number, mode, iteration) != AVO_OK)
        return status_no_memory(error, "a request", a->body.size);
    a->line.size = a->text.size = 0;
    a->pieces = 0;
    a->new_tokens = a->drafted = a->accepted = 0;
    a->failure[0] = a->curl_text[0] = '\0';
    curl_easy_setopt(a->easy, CURLOPT_POSTFIELDS, a->body.data);
    curl_easy_setopt(a->easy, CURLOPT_POSTFIELDSIZE, (long)a->body.size);
    a->begin_ns = clock_now_ns();
    CURLcode code = curl_easy_perform(a->easy);
    (void)curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
    if (a->stopped)
        return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
    a->result->requests++;
    if (code == CURLE_OK && status != 200 && a->line.size > 0)
        read_event(a, buffer_text(&a->line));
    if (code != CURLE_OK || status != 200 || a->failure[0] != '\0' || a->pieces == 0) {
        note_failed(a, code, status);
        return AVO_OK;
    }
    if (mode == 0 && iteration == 0 &&
        buffer_append(&a->references[number], a->text.data, a->text.size) != AVO_OK)
        return status_no_memory(error, "an answer", a->text.size);
    note_answer(a, number, mode, iteration);
    return AVO_OK;
}

static avo_status ask_all(asker *a, avo_error *error) {
    const modes_options *options = a->options;
    uint32_t modes = a->result->figures.configs;
    for (uint32_t iteration = 0; iteration < options->iterations; iteration++)
        for (size_t number = 0; number < options->prompts->count; number++)
            for (uint32_t i = 0; i < modes; i++) {
                /* Who begins changes, but for the references in the first iteration. */
                size_t turn = iteration == 0 ? 0 : iteration + number;
                AVO_TRY(ask(a, number, (uint32_t)((i + turn) % modes), iteration, error));
                a->done++;
            }
    for (uint32_t i = 0; i < modes; i++)
        if (a->first_counts[i] > 0)
            a->result->first_seconds[i] /= a->first_counts[i];
    return AVO_OK;
}

/* ---- Opening ---- */

avo_status modes_parse(const char *modes, modes_result *result, uint32_t *count, avo_error *error) {
    *count = 0;
    for (const char *at = modes;; at++) {
        size_t bytes = strcspn(at, ",");
        if (*count == MODES_MAX || bytes == 0 || bytes >= LAB_SOURCE_MAX)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "modes is \"%.60s\", must be 1 to %d of plain, speculative and "
                               "sources of drafts",
                               modes, MODES_MAX);
        char *name = result->name[*count], *source = result->config[*count].source;
        memcpy(name, at, bytes);
        name[bytes] = '\0';
        bool plain = strcmp(name, "plain") == 0, automatic = strcmp(name, "speculative") == 0;
        snprintf(source, LAB_SOURCE_MAX, "%s", plain ? "off" : automatic ? "auto" : name);
        for (char *letter = source; *letter != '\0'; letter++)
            *letter = *letter == '+' ? ',' : *letter;
        draft_kinds kinds;
        avo_error wrong;
        if (draft_kinds_parse(source, &kinds, &wrong) != AVO_OK)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "mode \"%.60s\" must be plain, speculative or a source of drafts, "
                               "such as suffix or suffix+corpus",
                               name);
        result->config[*count].k = *count;
        ++*count;
        at += bytes;
        if (*at == '\0')
            return AVO_OK;
    }
}

static avo_status open_categories(lab_result *measured, const bench_prompts *prompts,
                                  avo_error *error) {
    for (size_t i = 0; i < prompts->count; i++) {
        uint32_t at = 0;
        while (at < measured->categories &&
               strcmp(measured->category[at], prompts->item[i].category) != 0)
            at++;
        if (at == LAB_CATEGORIES_MAX)
            return status_fail(error, AVO_ERROR_LIMIT, "more than %d categories of prompts",
                               LAB_CATEGORIES_MAX);
        if (at == measured->categories)
            measured->category[measured->categories++] = prompts->item[i].category;
    }
    return AVO_OK;
}

static avo_status open_results(asker *a, avo_error *error) {
    modes_result *result = a->result;
    arena *arena = &result->measured.arena;
    size_t prompts = a->options->prompts->count, modes = result->figures.configs;
    AVO_TRY(open_categories(&result->measured, a->options->prompts, error));
    size_t samples = modes * result->measured.categories * a->options->iterations;
    result->measured.sample = arena_take_array(arena, samples, sizeof(lab_sample));
    a->references = arena_take_array(arena, prompts, sizeof(buffer));
    a->first_counts = arena_take_array(arena, modes, sizeof(uint32_t));
    size_t answers = modes * prompts * a->options->iterations;
    double *rate = arena_take_array(arena, answers, sizeof(double));
    uint32_t *category = arena_take_array(arena, prompts, sizeof(uint32_t));
    if (result->measured.sample == NULL || a->references == NULL || a->first_counts == NULL ||
        rate == NULL || category == NULL)
        return status_no_memory(error, "results", samples * sizeof(lab_sample));
    memset(result->measured.sample, 0, samples * sizeof(lab_sample));
    memset(a->first_counts, 0, modes * sizeof(uint32_t));
    memset(rate, 0, answers * sizeof(double));
    memset(category, 0, prompts * sizeof(uint32_t));
    result->measured.rate = rate;
    result->measured.prompt_category = category;
    for (size_t i = 0; i < prompts; i++)
        buffer_init(&a->references[i], NULL, LINE_BYTES_MAX);
    return AVO_OK;
}

/* The model's name: as given, else the first that the server has. */
static avo_status ask_model(asker *a, const char *url, avo_error *error) {
    modes_result *result = a->result;
    json_value root;
    long status = 0;
    text_view name = {"", 0};
    curl_easy_setopt(a->easy, CURLOPT_URL, url);
    curl_easy_setopt(a->easy, CURLOPT_HTTPGET, 1L);
    CURLcode code = curl_easy_perform(a->easy);
    (void)curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK)
        return status_fail(error, AVO_ERROR_NETWORK, "%s: %s", url,
                           a->curl_text[0] != '\0' ? a->curl_text : curl_easy_strerror(code));
    if (a->options->model != NULL)
        name = text_from(a->options->model);
    else if (status == 200 && json_parse(&a->events, buffer_text(&a->line), &root, NULL) == AVO_OK)
        (void)!json_get_string(json_item(json_find(&root, "data"), 0), "id", &name, NULL);
    if (name.size == 0)
        return status_fail(error, AVO_ERROR_NETWORK,
                           "%s lists no model (HTTP status %ld); give one with --model", url,
                           status);
    snprintf(result->model, sizeof(result->model), "%.*s", (int)name.size, name.data);
    return AVO_OK;
}

static avo_status open_asker(asker *a, avo_error *error) {
    const modes_options *options = a->options;
    char url[LOAD_URL_BYTES];
    AVO_TRY(load_make_url(options->url, "/v1/models", url, error));
    AVO_TRY(load_make_headers(options->key, &a->headers, error));
    a->easy = curl_easy_init();
    if (a->easy == NULL)
        return status_no_memory(error, "a client", sizeof(*a));
    curl_easy_setopt(a->easy, CURLOPT_HTTPHEADER, a->headers);
    curl_easy_setopt(a->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(a->easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(a->easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(a->easy, CURLOPT_ERRORBUFFER, a->curl_text);
    curl_easy_setopt(a->easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(a->easy, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(a->easy, CURLOPT_TIMEOUT_MS, (long)(options->timeout_seconds * 1e3));
    curl_easy_setopt(a->easy, CURLOPT_USERAGENT, "avocet-bench/" AVO_VERSION_TEXT);
    AVO_TRY(ask_model(a, url, error));
    AVO_TRY(load_make_url(options->url, options->chat ? "/v1/chat/completions" : "/v1/completions",
                          url, error));
    curl_easy_setopt(a->easy, CURLOPT_URL, url);
    curl_easy_setopt(a->easy, CURLOPT_POST, 1L);
    a->streaming = true;
    return AVO_OK;
}

static void close_asker(asker *a) {
    for (size_t i = 0; a->references != NULL && i < a->options->prompts->count; i++)
        buffer_free(&a->references[i]);
    if (a->easy != NULL)
        curl_easy_cleanup(a->easy);
    curl_slist_free_all(a->headers);
    buffer_free(&a->body);
    buffer_free(&a->line);
    buffer_free(&a->text);
    arena_free(&a->events);
}

avo_status modes_run(const modes_options *options, modes_result *result, avo_error *error) {
    asker a = {.options = options, .result = result};
    memset(result, 0, sizeof(*result));
    uint32_t modes;
    AVO_TRY(modes_parse(options->modes, result, &modes, error));
    AVO_TRY(curl_late_open(error));
    result->figures = (lab_options){.config = result->config,
                                    .configs = modes,
                                    .prompts = options->prompts,
                                    .iterations = options->iterations};
    a.run = (uint64_t)time(NULL) << 32 ^ clock_now_ns();
    a.total = (uint64_t)modes * options->prompts->count * options->iterations;
    arena_init(&result->measured.arena, NULL, SIZE_MAX);
    arena_init(&a.events, NULL, EVENT_ARENA_MAX);
    buffer_init(&a.body, NULL, LINE_BYTES_MAX);
    buffer_init(&a.line, NULL, LINE_BYTES_MAX);
    buffer_init(&a.text, NULL, LINE_BYTES_MAX);
    avo_status status = open_results(&a, error);
    AVO_THEN(status, open_asker(&a, error));
    AVO_THEN(status, ask_all(&a, error));
    close_asker(&a);
    if (status != AVO_OK)
        modes_free(result);
    return status;
}

void modes_free(modes_result *result) {
    arena_free(&result->measured.arena);
}
