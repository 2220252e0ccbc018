/* `avocet run --prompts`: every line of a file is a request to the scheduler; answers come out as
 * JSON lines, in order of the lines or, with --stream, as they come. One bad line fails alone. */
#include "cli/run_int.h"

#include "base/arena.h"
#include "base/file.h"
#include "cli/engine_flags.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH_DEFAULT     8u
#define KV_TOKENS_DEFAULT 32768u
#define ROWS_MAX          512u
#define FULL_SECONDS_MAX  0.05 /* between two tries */
#define WATCH_SECONDS     0.1  /* between two looks at Ctrl-C */

typedef struct prompt_request {
    struct prompt_run *run;
    size_t line; /* of the file, from 1 */
    buffer id;   /* as JSON; empty: none given */
    avo_chat_request *asked;
    avo_error error; /* AVO_OK, or what is wrong with the line */
    run_record record;
    bool ended, printed;
} prompt_request;

typedef struct prompt_run {
    const run_flags *flags;
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    avo_telemetry *telemetry; /* NULL: none */
    run_adapters adapters;
    avo_grammar *grammar; /* of the flags */
    avo_chat *chat;
    buffer text; /* the file */
    prompt_request *request;
    size_t count;
    pthread_mutex_t lock; /* what follows: the delivery thread, and who submits */
    size_t next;          /* to be printed, in order */
    size_t failed;
    avo_status failure; /* no memory for an answer */
} prompt_run;

/* ---- Answers ---- */

static void write_head(json_writer *w, const prompt_request *request, size_t index) {
    json_object_begin(w);
    json_member_u64(w, "index", index);
    json_member_u64(w, "line", request->line);
    if (request->id.size > 0)
        json_member_raw(w, "id", buffer_text(&request->id));
}

static void write_error(json_writer *w, const prompt_request *request) {
    char text[AVO_ERROR_TEXT_MAX + 32];
    snprintf(text, sizeof(text), "line %zu: %s", request->line, request->error.text);
    json_member_string(w, "error", text);
}

static void write_result(json_writer *w, const prompt_request *request) {
    const avo_result *result = &request->record.result;
    run_write_answer(w, &request->record);
    json_member_u64(w, "reused_tokens", result->reused_tokens);
    json_member_u64(w, "preemptions", result->preemptions);
    json_member_object_begin(w, "timings");
    json_member_fixed(w, "queue_ms", result->queue_seconds * 1e3, 3);
    json_member_fixed(w, "ttft_ms", result->first_token_seconds * 1e3, 3);
    json_member_fixed(w, "total_ms", result->total_seconds * 1e3, 3);
    json_end(w);
}

static void print_request(prompt_run *run, size_t index) {
    prompt_request *request = &run->request[index];
    cli_json line;
    json_writer *w = cli_json_begin(&line);
    request->printed = true;
    write_head(w, request, index);
    if (request->error.status != AVO_OK)
        write_error(w, request);
    else
        write_result(w, request);
    json_end(w);
    if (cli_json_end(&line) != AVO_OK)
        run->failure = AVO_ERROR_MEMORY;
    run_record_free(&request->record); /* a long list of prompts shall not keep all answers */
    run_record_init(&request->record);
}

/* What may be printed now. */
static void print_ended(prompt_run *run) {
    for (; run->next < run->count && run->request[run->next].ended; run->next++)
        if (!run->request[run->next].printed)
            print_request(run, run->next);
}

static avo_status print_token(const prompt_request *request, size_t index,
                              const avo_token_event *event) {
    cli_json line;
    json_writer *w = cli_json_begin(&line);
    write_head(w, request, index);
    json_member_i64(w, "token", event->token);
    json_member_text(w, "text", (text_view){event->text, event->text_bytes});
    json_end(w);
    return cli_json_end(&line);
}

static bool on_request_token(prompt_request *request, const avo_token_event *event) {
    prompt_run *run = request->run;
    if (run_record_token(&request->record, event) != AVO_OK)
        run->failure = AVO_ERROR_MEMORY;
    if (run->flags->stream &&
        print_token(request, (size_t)(request - run->request), event) != AVO_OK)
        run->failure = AVO_ERROR_MEMORY;
    return run->failure == AVO_OK && !cli_interrupted() &&
           (!run->flags->stream || cli_output_works());
}

static void on_request_end(prompt_request *request, const avo_error *error) {
    prompt_run *run = request->run;
    if (error != NULL) {
        request->error = *error;
        run->failed++;
    }
    request->ended = true;
    if (run->flags->stream)
        print_request(run, (size_t)(request - run->request));
    print_ended(run);
}

/* The event's own copy of the stop string ends with the call; the request's stays. */
static const char *stop_of(const prompt_request *request) {
    int32_t index = request->record.result.stop_index;
    bool found = request->record.result.finish == AVO_FINISH_STOP_STRING && index >= 0;
    return !found ? NULL : avo_chat_request_get(request->asked)->stop[index];
}

/* On the delivery thread. */
static bool on_event(void *context, const avo_event *event) {
    prompt_request *request = context;
    bool more = true;
    pthread_mutex_lock(&request->run->lock);
    if (event->kind == AVO_EVENT_TOKEN) {
        more = on_request_token(request, event->token);
    } else if (event->kind == AVO_EVENT_PROMPT) {
        if (run_record_prompt(&request->record, event->token) != AVO_OK)
            request->run->failure = AVO_ERROR_MEMORY;
        more = request->run->failure == AVO_OK && !cli_interrupted();
    } else {
        if (event->kind == AVO_EVENT_FINISHED) {
            request->record.result = *event->result;
            request->record.result.stop_string = stop_of(request);
            if (run_record_end(&request->record) != AVO_OK)
                request->run->failure = AVO_ERROR_MEMORY;
            if (run_record_embedding(&request->record, event->result->embedding,
                                     event->result->embedding_width) != AVO_OK)
                request->run->failure = AVO_ERROR_MEMORY;
        }
        on_request_end(request, event->error);
    }
    pthread_mutex_unlock(&request->run->lock);
    return more;
}

/* ---- Lines ---- */

static avo_status read_file(prompt_run *run, avo_error *error) {
    const char *path = run->flags->prompts;
    if (strcmp(path, "-") == 0)
        return cli_read_input(STDIN_FILENO, "standard input", &run->text, error);
    if (file_kind_of(path) == FILE_OTHER) { /* a pipe, as the shell's <(…) is */
        int descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0)
            return status_fail(error, AVO_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
        avo_status status = cli_read_input(descriptor, path, &run->text, error);
        close(descriptor);
        return status;
    }
    file_map map;
    AVO_TRY(file_map_open(run->flags->prompts, &map, error));
    avo_status status = buffer_append(&run->text, map.bytes.data, map.bytes.size);
    size_t bytes = map.bytes.size;
    file_map_close(&map);
    return status == AVO_OK ? AVO_OK : status_no_memory(error, "the prompts", bytes);
}

/* The next line that is not blank; false: there is none. */
static bool next_line(text_view *rest, size_t *number, text_view *line) {
    while (rest->size > 0) {
        const char *end = memchr(rest->data, '\n', rest->size);
        size_t bytes = end == NULL ? rest->size : (size_t)(end - rest->data);
        *line = (text_view){rest->data, bytes};
        size_t taken = bytes + (end != NULL);
        *rest = (text_view){rest->data + taken, rest->size - taken};
        ++*number;
        while (line->size > 0 &&
               (line->data[line->size - 1] == '\r' || line->data[line->size - 1] == ' '))
            line->size--;
        if (line->size > 0)
            return true;
    }
    return false;
}

/* The "id" of a line that is an object, to be given back with its answer. */
static avo_status read_id(text_view line, buffer *id) {
    arena arena;
    json_value root;
    avo_status status = AVO_OK;
    arena_init(&arena, NULL, SIZE_MAX);
    if (json_parse(&arena, line, &root, NULL) == AVO_OK && json_find(&root, "id") != NULL)
        status = json_write_value(id, json_find(&root, "id"));
    arena_free(&arena);
    return status;
}

/* A line that is wrong fails alone. */
static avo_status read_request(prompt_run *run, prompt_request *request, text_view line,
                               const avo_chat_request_options *options, avo_error *error) {
    run_record *record = &request->record;
    request->run = run;
    run_record_init(record);
    buffer_init(&request->id, NULL, SIZE_MAX);
    record->model = run->model;
    record->adapters = &run->adapters;
    if (read_id(line, &request->id) != AVO_OK)
        return status_no_memory(error, "id", line.size);
    request->error.status = avo_chat_request_open(run->chat, line.data, line.size, options,
                                                  &request->asked, &request->error);
    request->ended = request->error.status != AVO_OK;
    run->failed += request->ended;
    if (request->ended)
        return AVO_OK;
    const avo_request *asked = avo_chat_request_get(request->asked);
    record->wants_logprobs = asked->sampling->top_logprobs > 0;
    record->use_count = asked->adapter_count;
    memcpy(record->uses, asked->adapters, asked->adapter_count * sizeof(record->uses[0]));
    return avo_chat_parser_open(request->asked, 0, &record->parser, error);
}

static avo_status read_lines(prompt_run *run, const avo_chat_request_options *options,
                             avo_error *error) {
    text_view rest = buffer_text(&run->text), line;
    size_t number = 0, count = 0;
    while (next_line(&rest, &number, &line))
        count++;
    if (count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s: no prompts in the file",
                           run->flags->prompts);
    run->request = calloc(count, sizeof(*run->request));
    if (run->request == NULL)
        return status_no_memory(error, "the prompts", count * sizeof(*run->request));
    rest = buffer_text(&run->text);
    number = 0;
    while (next_line(&rest, &number, &line)) {
        prompt_request *request = &run->request[run->count++];
        request->line = number;
        AVO_TRY(read_request(run, request, line, options, error));
    }
    return AVO_OK;
}

/* The flags, for what a line does not say. */
static avo_status read_with_flags(prompt_run *run, const sampling_values *values,
                                  avo_request *defaults, avo_error *error) {
    const run_flags *flags = run->flags;
    avo_chat_adapter adapters[OPTION_LIST_MAX];
    avo_chat_request_options options = AVO_CHAT_REQUEST_OPTIONS_INIT;
    for (size_t i = 0; i < run->adapters.count; i++) {
        const run_adapter *item = &run->adapters.item[i];
        adapters[i] = (avo_chat_adapter){item->name, item->adapter, item->scale};
    }
    defaults->max_new_tokens = flags->max_new_tokens;
    defaults->ignore_end = flags->ignore_end;
    defaults->grammar = run->grammar;
    defaults->text_flags = flags->special ? AVO_TOKENIZE_SPECIAL : 0u;
    defaults->sampling = &values->named;
    options.unnamed_sampling = &values->sampling;
    options.defaults = defaults;
    options.adapters = adapters;
    options.adapter_count = run->adapters.count;
    options.system = flags->system;
    options.raw = flags->raw || avo_chat_check(run->model, error) == AVO_ERROR_NOT_FOUND;
    return read_lines(run, &options, error);
}

/* ---- The whole ---- */

static avo_status open_engine(prompt_run *run, avo_error *error) {
    const run_flags *flags = run->flags;
    avo_engine_options options = flags->engine;
    uint32_t batch = flags->batch > 0 ? flags->batch : BATCH_DEFAULT;
    options.sessions_max = run->count < batch ? (uint32_t)run->count : batch;
    options.rows_max = options.sessions_max > ROWS_MAX ? options.sessions_max : ROWS_MAX;
    options.rope_context = options.context_max = flags->context;
    options.kv_tokens =
        flags->kv_tokens > 0
            ? flags->kv_tokens
            : cli_kv_tokens(run->model, flags->context, options.sessions_max, KV_TOKENS_DEFAULT);
    cores_flags_apply(&flags->scheduler, &options);
    AVO_TRY(cli_trace_open(flags->trace, &run->telemetry, error));
    options.telemetry = run->telemetry;
    AVO_TRY(cli_engine_open(run->model, &options, &run->engine, error));
    return avo_scheduler_open(run->engine, &flags->scheduler, &run->scheduler, error);
}

static void pause_seconds(double seconds) {
    struct timespec time = {0, (long)(seconds * 1e9)};
    nanosleep(&time, NULL);
}

/* A full scheduler is waited for; a request that is refused fails alone. */
static void submit(prompt_run *run, prompt_request *request) {
    avo_request asked = *avo_chat_request_get(request->asked);
    asked.on_event = on_event;
    asked.on_event_context = request;
    avo_error error = {0};
    avo_status status;
    double retry;
    while ((status = avo_scheduler_submit(run->scheduler, &asked, NULL, &retry, &error)) ==
               AVO_ERROR_FULL &&
           !cli_interrupted())
        pause_seconds(retry < FULL_SECONDS_MAX ? retry : FULL_SECONDS_MAX);
    if (status == AVO_OK)
        return;
    error.status = status;
    pthread_mutex_lock(&run->lock);
    on_request_end(request, &error);
    pthread_mutex_unlock(&run->lock);
}

static avo_status answer_all(prompt_run *run, avo_error *error) {
    pthread_mutex_lock(&run->lock);
    for (size_t i = 0; i < run->count && run->flags->stream; i++)
        if (run->request[i].ended)
            print_request(run, i);
    print_ended(run);
    pthread_mutex_unlock(&run->lock);
    for (size_t i = 0; i < run->count && !cli_interrupted(); i++)
        if (run->request[i].error.status == AVO_OK)
            submit(run, &run->request[i]);
    while (!cli_interrupted() && !avo_scheduler_drain(run->scheduler, WATCH_SECONDS))
        ;
    avo_status status = cli_trace_write(run->flags->trace, run->telemetry, CLI_TRACE_ALL, error);
    avo_scheduler_close(run->scheduler); /* whatever is left is cancelled, and told to be */
    run->scheduler = NULL;
    for (size_t i = 0; i < run->count; i++)
        if (!run->request[i].ended) { /* Ctrl-C before it was submitted */
            run->request[i].record.result.finish = AVO_FINISH_CANCELLED;
            on_request_end(&run->request[i], NULL);
        }
    return status;
}

/* `wrong`: a flag was, and that was printed. */
static avo_status run_all(prompt_run *run, const char *model_name, bool *wrong, avo_error *error) {
    const run_flags *flags = run->flags;
    AVO_TRY(read_file(run, error));
    AVO_TRY(cli_model_open(model_name, &run->model, error));
    avo_request request = AVO_REQUEST_INIT;
    request.ignore_end = flags->ignore_end;
    sampling_values values;
    if (!sampling_flags_apply(&command_run, &flags->sampling, run->model, &values, &request)) {
        *wrong = true;
        return AVO_ERROR_ARGUMENT;
    }
    AVO_TRY(run_adapters_open(&flags->adapters, flags->adapter_type, run->model, &run->adapters,
                              error));
    AVO_TRY(run_grammar_open(flags, run->model, &run->grammar, error));
    AVO_TRY(avo_chat_open(run->model, &run->chat, error));
    AVO_TRY(read_with_flags(run, &values, &request, error));
    AVO_TRY(open_engine(run, error));
    AVO_TRY(answer_all(run, error));
    if (run->failure != AVO_OK)
        return status_no_memory(error, "the answers", run->count * sizeof(prompt_request));
    return AVO_OK;
}

int run_prompts(const run_flags *flags, const char *model_name) {
    static prompt_run run;
    avo_error error = {0};
    bool wrong = false;
    run.flags = flags;
    buffer_init(&run.text, NULL, CLI_INPUT_BYTES_MAX);
    pthread_mutex_init(&run.lock, NULL);
    cli_interrupt_catch();
    avo_status status = run_all(&run, model_name, &wrong, &error);
    avo_scheduler_close(run.scheduler);
    avo_engine_close(run.engine);
    avo_telemetry_close(run.telemetry);
    for (size_t i = 0; i < run.count; i++) {
        run_record_free(&run.request[i].record);
        avo_chat_request_close(run.request[i].asked);
        buffer_free(&run.request[i].id);
    }
    free(run.request);
    run_adapters_close(&run.adapters);
    avo_grammar_close(run.grammar);
    avo_chat_close(run.chat);
    avo_model_close(run.model);
    buffer_free(&run.text);
    pthread_mutex_destroy(&run.lock);
    if (wrong)
        return EXIT_USAGE;
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    if (cli_interrupted())
        return EXIT_INTERRUPTED;
    if (run.failed > 0)
        return cli_fail_text("%zu of %zu prompts failed; see \"error\" in their output lines",
                             run.failed, run.count);
    return EXIT_GOOD;
}
