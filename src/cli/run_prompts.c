/* `avocet run --prompts`: every line of a file is a request to the scheduler; answers come out as
 * JSON lines, in order of the lines or, with --stream, as they come. One bad line fails alone. */
#include "cli/run_int.h"

#include "base/file.h"
#include "cli/engine_flags.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH_DEFAULT      8u
#define KV_TOKENS_DEFAULT  32768u
#define ROWS_MAX           512u
#define GRAMMARS_BYTES_MAX ((uint64_t)256 << 20)
#define FULL_SECONDS_MAX   0.05 /* between two tries */
#define WATCH_SECONDS      0.1  /* between two looks at Ctrl-C */

typedef struct prompt_job {
    struct prompt_run *run;
    prompt_line line;
    run_record record;
    bool ended, printed;
} prompt_job;

typedef struct prompt_run {
    const run_flags *flags;
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    avo_telemetry *telemetry; /* NULL: none */
    run_adapters adapters;
    avo_grammar *grammar; /* of the flags */
    chat_format *format;
    grammar_cache *grammars;
    buffer text; /* the file */
    prompt_job *job;
    size_t count;
    pthread_mutex_t lock; /* what follows: the delivery thread, and who submits */
    size_t next;          /* to be printed, in order */
    size_t failed;
    avo_status failure; /* no memory for an answer */
} prompt_run;

/* ---- Answers ---- */

static void write_head(json_writer *w, const prompt_job *job, size_t index) {
    json_object_begin(w);
    json_member_u64(w, "index", index);
    json_member_u64(w, "line", job->line.number);
    if (job->line.id.size > 0)
        json_member_raw(w, "id", job->line.id);
}

static void write_error(json_writer *w, const prompt_job *job) {
    char text[AVO_ERROR_TEXT_MAX + 32];
    snprintf(text, sizeof(text), "line %zu: %s", job->line.number, job->line.error.text);
    json_member_string(w, "error", text);
}

static void write_result(json_writer *w, const prompt_job *job) {
    const avo_result *result = &job->record.result;
    run_write_answer(w, &job->record);
    json_member_u64(w, "reused_tokens", result->reused_tokens);
    json_member_u64(w, "preemptions", result->preemptions);
    json_member_object_begin(w, "timings");
    json_member_fixed(w, "queue_ms", result->queue_seconds * 1e3, 3);
    json_member_fixed(w, "ttft_ms", result->first_token_seconds * 1e3, 3);
    json_member_fixed(w, "total_ms", result->total_seconds * 1e3, 3);
    json_end(w);
}

static void print_job(prompt_run *run, size_t index) {
    prompt_job *job = &run->job[index];
    cli_json line;
    json_writer *w = cli_json_begin(&line);
    job->printed = true;
    write_head(w, job, index);
    if (job->line.error.status != AVO_OK)
        write_error(w, job);
    else
        write_result(w, job);
    json_end(w);
    if (cli_json_end(&line) != AVO_OK)
        run->failure = AVO_ERROR_MEMORY;
    run_record_free(&job->record); /* a long list of prompts shall not keep all answers */
    run_record_init(&job->record);
}

/* What may be printed now. */
static void print_ended(prompt_run *run) {
    for (; run->next < run->count && run->job[run->next].ended; run->next++)
        if (!run->job[run->next].printed)
            print_job(run, run->next);
}

static avo_status print_token(const prompt_job *job, size_t index, const avo_token_event *event) {
    cli_json line;
    json_writer *w = cli_json_begin(&line);
    write_head(w, job, index);
    json_member_i64(w, "token", event->token);
    json_member_text(w, "text", (text_view){event->text, event->text_bytes});
    json_end(w);
    return cli_json_end(&line);
}

static bool on_job_token(prompt_job *job, const avo_token_event *event) {
    prompt_run *run = job->run;
    if (run_record_token(&job->record, event) != AVO_OK)
        run->failure = AVO_ERROR_MEMORY;
    if (run->flags->stream && print_token(job, (size_t)(job - run->job), event) != AVO_OK)
        run->failure = AVO_ERROR_MEMORY;
    return run->failure == AVO_OK && !cli_interrupted() &&
           (!run->flags->stream || cli_output_works());
}

static void on_job_end(prompt_job *job, const avo_error *error) {
    prompt_run *run = job->run;
    if (error != NULL) {
        job->line.error = *error;
        run->failed++;
    }
    job->ended = true;
    if (run->flags->stream)
        print_job(run, (size_t)(job - run->job));
    print_ended(run);
}

/* On the delivery thread. */
static bool on_event(void *context, const avo_event *event) {
    prompt_job *job = context;
    bool more = true;
    pthread_mutex_lock(&job->run->lock);
    if (event->kind == AVO_EVENT_TOKEN) {
        more = on_job_token(job, event->token);
    } else if (event->kind == AVO_EVENT_PROMPT) {
        if (run_record_prompt(&job->record, event->token) != AVO_OK)
            job->run->failure = AVO_ERROR_MEMORY;
        more = job->run->failure == AVO_OK && !cli_interrupted();
    } else {
        if (event->kind == AVO_EVENT_FINISHED) {
            job->record.result = *event->result;
            if (run_record_end(&job->record) != AVO_OK)
                job->run->failure = AVO_ERROR_MEMORY;
            if (run_record_embedding(&job->record, event->result->embedding,
                                     event->result->embedding_width) != AVO_OK)
                job->run->failure = AVO_ERROR_MEMORY;
        }
        on_job_end(job, event->error);
    }
    pthread_mutex_unlock(&job->run->lock);
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

/* What is looked for in the answer. */
static avo_status open_parser(prompt_run *run, prompt_job *job, avo_error *error) {
    const chat_prompt *prompt = &job->line.prompt;
    chat_parser_options options = {
        .calls = true, .tools = prompt->tools, .only = prompt->only_opener};
    job->record.parallel_calls = prompt->parallel_calls;
    return chat_parser_open(run->format, &options, &job->record.parser, error);
}

static avo_status read_lines(prompt_run *run, const prompt_defaults *defaults, avo_error *error) {
    text_view rest = buffer_text(&run->text), line;
    size_t number = 0, count = 0;
    while (next_line(&rest, &number, &line))
        count++;
    if (count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s: no prompts in the file",
                           run->flags->prompts);
    run->job = calloc(count, sizeof(*run->job));
    if (run->job == NULL)
        return status_no_memory(error, "the prompts", count * sizeof(*run->job));
    rest = buffer_text(&run->text);
    number = 0;
    while (next_line(&rest, &number, &line)) {
        prompt_job *job = &run->job[run->count++];
        job->line.number = number;
        run_record_init(&job->record);
        prompt_line_read(&job->line, line, defaults);
        job->run = run;
        job->record.model = run->model;
        job->record.adapters = &run->adapters;
        job->record.wants_logprobs = job->line.sampling.top_logprobs > 0;
        job->record.use_count = job->line.request.adapter_count;
        memcpy(job->record.uses, job->line.uses, sizeof(job->record.uses));
        if (job->line.error.status == AVO_OK && job->line.prompt.calls)
            AVO_TRY(open_parser(run, job, error));
        job->ended = job->line.error.status != AVO_OK;
        run->failed += job->ended;
    }
    return AVO_OK;
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
static void submit(prompt_run *run, prompt_job *job) {
    job->line.request.on_event = on_event;
    job->line.request.on_event_context = job;
    avo_error error = {0};
    avo_status status;
    double retry;
    while ((status = avo_scheduler_submit(run->scheduler, &job->line.request, NULL, &retry,
                                          &error)) == AVO_ERROR_FULL &&
           !cli_interrupted())
        pause_seconds(retry < FULL_SECONDS_MAX ? retry : FULL_SECONDS_MAX);
    if (status == AVO_OK)
        return;
    error.status = status;
    pthread_mutex_lock(&run->lock);
    on_job_end(job, &error);
    pthread_mutex_unlock(&run->lock);
}

static avo_status answer_all(prompt_run *run, avo_error *error) {
    pthread_mutex_lock(&run->lock);
    for (size_t i = 0; i < run->count && run->flags->stream; i++)
        if (run->job[i].ended)
            print_job(run, i);
    print_ended(run);
    pthread_mutex_unlock(&run->lock);
    for (size_t i = 0; i < run->count && !cli_interrupted(); i++)
        if (run->job[i].line.error.status == AVO_OK)
            submit(run, &run->job[i]);
    while (!cli_interrupted() && !avo_scheduler_drain(run->scheduler, WATCH_SECONDS))
        ;
    avo_status status = cli_trace_write(run->flags->trace, run->telemetry, CLI_TRACE_ALL, error);
    avo_scheduler_close(run->scheduler); /* whatever is left is cancelled, and told to be */
    run->scheduler = NULL;
    for (size_t i = 0; i < run->count; i++)
        if (!run->job[i].ended) { /* Ctrl-C before it was submitted */
            run->job[i].record.result.finish = AVO_FINISH_CANCELLED;
            on_job_end(&run->job[i], NULL);
        }
    return status;
}

/* `wrong`: a flag was, and that was printed. */
static avo_status run_all(prompt_run *run, const char *model_name, bool *wrong, avo_error *error) {
    const run_flags *flags = run->flags;
    AVO_TRY(read_file(run, error));
    AVO_TRY(cli_model_open(model_name, &run->model, error));
    avo_request request = AVO_REQUEST_INIT;
    sampling_values values;
    if (!sampling_flags_apply(&command_run, &flags->sampling, run->model, &values, &request)) {
        *wrong = true;
        return AVO_ERROR_ARGUMENT;
    }
    AVO_TRY(run_adapters_open(&flags->adapters, flags->adapter_type, run->model, &run->adapters,
                              error));
    AVO_TRY(run_grammar_open(flags, run->model, &run->grammar, error));
    request.grammar = run->grammar;
    AVO_TRY(chat_format_open(run->model, &run->format, error));
    AVO_TRY(grammar_cache_open(run->model, GRAMMARS_BYTES_MAX, &run->grammars, error));
    prompt_defaults defaults = {.flags = flags,
                                .model = run->model,
                                .adapters = &run->adapters,
                                .request = &request,
                                .format = run->format,
                                .grammars = run->grammars};
    defaults.chat = !flags->raw && avo_chat_check(run->model, error) != AVO_ERROR_NOT_FOUND;
    AVO_TRY(read_lines(run, &defaults, error));
    AVO_TRY(open_engine(run, error));
    AVO_TRY(answer_all(run, error));
    if (run->failure != AVO_OK)
        return status_no_memory(error, "the answers", run->count * sizeof(prompt_job));
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
        run_record_free(&run.job[i].record);
        prompt_line_free(&run.job[i].line);
    }
    free(run.job);
    run_adapters_close(&run.adapters);
    avo_grammar_close(run.grammar);
    grammar_cache_close(run.grammars);
    chat_format_close(run.format);
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
