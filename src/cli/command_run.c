/* `avocet run`: one prompt, one answer. */
#include "base/clock.h"
#include "cli/engine_flags.h"
#include "cli/run_int.h"
#include "cli/sampling_options.h"
#include "engine/request.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_MAX 128 /* of the prompt in one step: between steps Ctrl-C is looked at */

static void make_specs(run_flags *flags, option_table *table) {
    const option_spec first[] = {
        {"max-new-tokens", 'n', OPTION_U32, &flags->max_new_tokens, "N",
         "at most N new tokens; 0 (default): until the model ends or the context is full", 0,
         REQUEST_NEW_TOKENS_MAX},
        {"max-tokens", 0, OPTION_U32, &flags->max_new_tokens, "N", NULL, 0, REQUEST_NEW_TOKENS_MAX},
        {0},
    };
    const option_spec own[] = {
        {"system", 0, OPTION_TEXT, &flags->system, "TEXT", "system message before the prompt", 0,
         0},
        {"raw", 0, OPTION_FLAG, &flags->raw, NULL,
         "continue the prompt as plain text, without the chat template", 0, 0},
        {"special", 0, OPTION_FLAG, &flags->special, NULL,
         "with --raw: recognise special tokens in the prompt", 0, 0},
        {"ignore-eos", 0, OPTION_FLAG, &flags->ignore_end, NULL, "continue after EOS tokens", 0, 0},
        {"ctx", 'c', OPTION_U32, &flags->context, "N",
         "context in tokens (default: the size of the request or the model's own, fitted to "
         "memory)",
         0, 16777216},
        {"adapter", 'a', OPTION_TEXT_LIST, &flags->adapters, "NAME=PATH[:SCALE]",
         "apply a LoRA adapter (PEFT folder, GGUF or packed file); may be repeated: all apply "
         "unless a line of --prompts names its own",
         0, 0},
        {"adapter-type", 0, OPTION_CHOICE, &flags->adapter_type, "q8|f16|f32",
         "how adapters are stored for computing (default q8)", 0, 0},
        {"prompts", 0, OPTION_TEXT, &flags->prompts, "FILE",
         "answer every line of a JSON Lines file (- for standard input), many at a time; --cores "
         "needs this",
         0, 0},
        {"stream", 0, OPTION_FLAG, &flags->stream, NULL,
         "with --prompts: print tokens and answers as they are generated, not in input order", 0,
         0},
        {"batch", 'b', OPTION_U32, &flags->batch, "N",
         "with --prompts: requests computed together (default 8)", 1, 4096},
        {"kv-tokens", 0, OPTION_U64, &flags->kv_tokens, "N",
         "with --prompts: tokens in the KV pool (default: enough for the batch, at most 32768)", 0,
         0},
        {"json", 0, OPTION_FLAG, &flags->json, NULL,
         "print one JSON object at the end instead of streaming text", 0, 0},
        {"json-schema", 0, OPTION_TEXT, &flags->json_schema, "FILE|TEXT",
         "constrain the answer to JSON that matches this schema (docs/grammar.md)", 0, 0},
        {"grammar", 0, OPTION_TEXT, &flags->grammar, "FILE",
         "constrain the answer to a GBNF grammar with rule root", 0, 0},
        {"json-object", 0, OPTION_FLAG, &flags->json_object, NULL,
         "constrain the answer to a JSON object", 0, 0},
        {"telemetry", 0, OPTION_OPTIONAL_TEXT, &flags->telemetry, "FILE.csv",
         "append a CSV row with times, rates and memory to FILE (default: standard error)", 0, 0},
        {"trace", 0, OPTION_TEXT, &flags->trace, "FILE",
         "write a trace of the computation to FILE, for Perfetto and chrome://tracing", 0, 0},
        {0},
    };
    options_add(table, first);
    sampling_flags_specs(&flags->sampling, true, table);
    engine_flags_specs(&flags->engine, table);
    draft_flags_specs(&flags->engine, table);
    cores_flags_specs(&flags->scheduler, table);
    options_add(table, own);
}

/* ---- The prompt ---- */

static avo_status read_prompt(const char *argument, buffer *prompt, avo_error *error) {
    if (argument != NULL && strcmp(argument, "-") != 0) {
        AVO_TRY(buffer_append_text(prompt, argument));
    } else {
        if (argument == NULL && isatty(STDIN_FILENO))
            fprintf(stderr, "Type the prompt, then Ctrl-D.\n");
        AVO_TRY(cli_read_input(STDIN_FILENO, "standard input", prompt, error));
        /* `echo question | avocet run MODEL` asks the question, not the question and a newline. */
        if (prompt->size > 0 && prompt->data[prompt->size - 1] == '\n')
            prompt->size--;
    }
    if (prompt->size > 0 && memchr(prompt->data, 0, prompt->size) != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the prompt contains a zero byte");
    if (buffer_terminate(prompt) != AVO_OK)
        return status_no_memory(error, "the prompt", prompt->size);
    return AVO_OK;
}

static avo_status tokenize_chat(const avo_model *model, const run_flags *flags,
                                const buffer *prompt, id_list *ids, avo_error *error) {
    avo_message messages[2];
    size_t message_count = 0;
    if (flags->system != NULL)
        messages[message_count++] = (avo_message){"system", flags->system};
    messages[message_count++] = (avo_message){"user", prompt->data};
    return model_encode_chat(model, NULL, messages, message_count, NULL, ids, error);
}

static avo_status tokenize(const avo_model *model, const run_flags *flags, const buffer *prompt,
                           id_list *ids, avo_error *error) {
    /* A template that cannot be used is an error of its own, never a reason to go on without. */
    bool chat = !flags->raw && avo_chat_check(model, error) != AVO_ERROR_NOT_FOUND;
    if (flags->system != NULL && !chat)
        return status_fail(error, AVO_ERROR_ARGUMENT, "--system needs a chat template, %s",
                           flags->raw ? "which --raw disables" : "which this model lacks");
    uint32_t how = AVO_TOKENIZE_BEGIN | (flags->special ? AVO_TOKENIZE_SPECIAL : 0u);
    if (chat)
        AVO_TRY(tokenize_chat(model, flags, prompt, ids, error));
    else
        AVO_TRY(model_encode_text(model, NULL, buffer_text(prompt), how, ids, error));
    if (ids->count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the prompt is empty and the model has no BOS token to start from");
    return AVO_OK;
}

/* ---- The answer ---- */

typedef struct run_stream {
    run_record *record;
    bool json;
    bool at_line_begin;
    avo_status failure;
} run_stream;

static bool on_token(run_stream *stream, const avo_token_event *token) {
    stream->failure = run_record_token(stream->record, token);
    if (stream->failure != AVO_OK)
        return false;
    if (stream->json || token->text_bytes == 0)
        return true;
    cli_print_untrusted(stdout, (text_view){token->text, token->text_bytes});
    stream->at_line_begin = token->text[token->text_bytes - 1] == '\n';
    return cli_output_works();
}

static bool on_event(void *context, const avo_event *event) {
    run_stream *stream = context;
    if (event->kind == AVO_EVENT_PREFILL)
        stream->record->prefilled = event->done;
    else if (event->kind == AVO_EVENT_TOKEN && !on_token(stream, event->token))
        return false;
    return !cli_interrupted();
}

/* What the engine is opened with: a context that the request fits, where the user gave none. */
static avo_status plan_context(const run_flags *flags, const avo_model *model, size_t prompt_tokens,
                               uint32_t *context, avo_error *error) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    uint32_t available = flags->context != 0 ? flags->context : info.context;
    if (prompt_tokens >= available)
        return status_fail(
            error, AVO_ERROR_CONTEXT,
            "the prompt has %zu tokens, the context holds %u including at least one new token; %s",
            prompt_tokens, available,
            flags->context != 0 && flags->context < info.context
                ? "raise --ctx or shorten the prompt"
                : "shorten the prompt");
    if (flags->context > info.context)
        cli_warn("--ctx is %u, but the model was trained for %u tokens", flags->context,
                 info.context);
    *context = flags->context;
    if (flags->context == 0 && flags->max_new_tokens != 0) {
        size_t needed = prompt_tokens + flags->max_new_tokens;
        *context = needed < info.context ? (uint32_t)needed : info.context;
    }
    return AVO_OK;
}

/* No step has more rows than the prompt: scratch for more would be huge pages to zero, of which
 * little is used. */
static uint32_t rows_for(size_t prompt_tokens) {
    return prompt_tokens < ROWS_MAX ? (uint32_t)(prompt_tokens + 15) / 16 * 16 : ROWS_MAX;
}

static avo_status generate(const run_flags *flags, avo_engine *engine, run_record *record,
                           const id_list *ids, avo_request *request, avo_error *error) {
    avo_session *session = NULL;
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = record->uses;
    options.adapter_count = record->use_count;
    AVO_TRY(avo_session_open(engine, &options, &session, error));
    run_stream stream = {record, flags->json, true, AVO_OK};
    request->tokens = ids->ids;
    request->token_count = ids->count;
    request->max_new_tokens = flags->max_new_tokens;
    request->ignore_end = flags->ignore_end;
    request->on_event = on_event;
    request->on_event_context = &stream;
    record->begin_ns = clock_now_ns();
    avo_status status = run_grammar_open(flags, record->model, &request->grammar, error);
    AVO_THEN(status, avo_generate(engine, session, request, &record->result, error));
    avo_grammar_close(request->grammar);
    avo_session_close(session);
    if (!flags->json && !stream.at_line_begin)
        fputc('\n', stdout);
    AVO_TRY(status);
    if (stream.failure != AVO_OK)
        return status_no_memory(error, "the answer", record->text.size);
    return AVO_OK;
}

static avo_status write_results(const run_flags *flags, const run_record *record,
                                avo_error *error) {
    if (flags->json) {
        cli_json json;
        run_write_json(cli_json_begin(&json), record);
        avo_status status = cli_json_end(&json);
        if (status != AVO_OK)
            return status_fail(error, status, "cannot write JSON: %s", avo_status_text(status));
    }
    if (flags->telemetry != NULL)
        return run_telemetry_write(flags->telemetry, record, error);
    return AVO_OK;
}

static avo_status go_on(avo_error *error) {
    return cli_interrupted() ? status_fail(error, AVO_ERROR_CANCELLED, "interrupted") : AVO_OK;
}

/* Everything that needs the model; the caller closes what was opened. `wrong` says that a flag was
 * wrong and that this was printed. AVO_ERROR_CANCELLED: Ctrl-C before generation began. */
static avo_status answer(const run_flags *flags, const buffer *prompt, run_record *record,
                         avo_model **model, run_adapters *adapters, avo_engine **engine,
                         avo_telemetry **telemetry, id_list *ids, bool *wrong, avo_error *error) {
    uint64_t begin = clock_now_ns();
    avo_engine_options options = flags->engine;
    options.context_max = options.rope_context = flags->context;
    options.rows_max = ROWS_MAX;
    AVO_TRY(cli_model_prepare(record->model_name, &options, model, error));
    AVO_TRY(go_on(error));
    uint64_t opened = clock_now_ns();
    avo_request request = AVO_REQUEST_INIT;
    request.ignore_end = flags->ignore_end;
    sampling_values values;
    if (!sampling_flags_apply(&command_run, &flags->sampling, *model, &values, &request)) {
        *wrong = true;
        return AVO_ERROR_ARGUMENT;
    }
    AVO_TRY(run_adapters_open(&flags->adapters, flags->adapter_type, *model, adapters, error));
    AVO_TRY(run_adapters_all(adapters, record->uses, &record->use_count, error));
    record->adapters = adapters;
    AVO_TRY(go_on(error));
    AVO_TRY(tokenize(*model, flags, prompt, ids, error));
    uint64_t tokenized = clock_now_ns();
    record->result.prompt_tokens = (uint32_t)ids->count;
    AVO_TRY(cli_trace_open(flags->trace, telemetry, error));
    options.telemetry = *telemetry;
    options.rows_max = rows_for(record->result.prompt_tokens);
    AVO_TRY(plan_context(flags, *model, ids->count, &options.context_max, error));
    AVO_TRY(go_on(error));
    AVO_TRY(cli_engine_open(*model, &options, engine, error));
    record->model = *model;
    record->tokenize_seconds = clock_seconds(opened, tokenized);
    record->load_seconds = clock_seconds(begin, clock_now_ns()) - record->tokenize_seconds;
    AVO_TRY(go_on(error));
    return generate(flags, *engine, record, ids, &request, error);
}

static int run_request(const run_flags *flags, const char *model_name, const char *argument) {
    avo_error error = {0};
    run_record record;
    buffer prompt;
    id_list ids;
    run_record_init(&record);
    buffer_init(&prompt, NULL, CLI_INPUT_BYTES_MAX);
    id_list_init(&ids, NULL);
    record.model_name = model_name;
    record.wants_logprobs = flags->sampling.logprobs > 0;

    avo_model *model = NULL;
    avo_engine *engine = NULL;
    avo_telemetry *telemetry = NULL;
    run_adapters adapters = {.count = 0};
    bool wrong = false;
    avo_status status = AVO_OK;
    if (flags->telemetry != NULL)
        status = run_telemetry_check(flags->telemetry, &error);
    AVO_THEN(status, read_prompt(argument, &prompt, &error));
    record.prompt = buffer_text(&prompt);
    if (status == AVO_OK) {
        cli_interrupt_catch();
        uint64_t begin = clock_now_ns();
        status = answer(flags, &prompt, &record, &model, &adapters, &engine, &telemetry, &ids,
                        &wrong, &error);
        if (status == AVO_ERROR_CANCELLED) { /* an answer too, if an empty one */
            record.result.finish = AVO_FINISH_CANCELLED;
            if (record.load_seconds == 0.0)
                record.load_seconds = clock_seconds(begin, clock_now_ns());
            status = AVO_OK;
        }
        AVO_THEN(status, write_results(flags, &record, &error));
        AVO_THEN(status, cli_trace_write(flags->trace, telemetry, CLI_TRACE_ALL, &error));
    }
    bool cancelled = record.result.finish == AVO_FINISH_CANCELLED && cli_interrupted();
    avo_engine_close(engine);
    avo_telemetry_close(telemetry);
    run_adapters_close(&adapters);
    avo_model_close(model);
    id_list_free(&ids);
    buffer_free(&prompt);
    run_record_free(&record);
    if (wrong)
        return EXIT_USAGE;
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    return cancelled ? EXIT_INTERRUPTED : EXIT_GOOD;
}

static int run(int argc, char **argv) {
    run_flags flags;
    memset(&flags, 0, sizeof(flags));
    flags.engine = (avo_engine_options)AVO_ENGINE_OPTIONS_INIT;
    flags.scheduler = (avo_scheduler_options)AVO_SCHEDULER_OPTIONS_INIT;
    sampling_flags_init(&flags.sampling);
    option_table table = {0};
    make_specs(&flags, &table);
    int words = 0;
    options_result result = options_parse(&command_run, table.specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        return options_exit(result);
    if (words < 1)
        return cli_usage(&command_run, "missing MODEL");
    if (words > 2)
        return cli_usage(&command_run, "the prompt must be one argument; put it in quotes");
    if (flags.prompts != NULL && words > 1)
        return cli_usage(&command_run, "give a PROMPT or --prompts, not both");
    if (flags.prompts != NULL && flags.telemetry != NULL)
        return cli_usage(&command_run, "--telemetry works with one prompt, not with --prompts");
    if (flags.prompts == NULL &&
        (flags.stream || flags.batch > 0 || flags.kv_tokens > 0 || flags.scheduler.cores != NULL ||
         flags.scheduler.prefill_threads > 0))
        return cli_usage(&command_run, "--stream, --batch, --kv-tokens and --cores need --prompts");
    if (flags.sampling.logprobs > 0 && !flags.json && flags.prompts == NULL)
        return cli_usage(&command_run, "--logprobs needs --json");
    if (flags.special && !flags.raw)
        return cli_usage(&command_run, "--special needs --raw");
    if (flags.system != NULL && flags.raw)
        return cli_usage(&command_run, "--system and --raw cannot be combined");
    if (run_grammar_wrong(&flags) != NULL)
        return cli_usage(&command_run, "%s", run_grammar_wrong(&flags));
    const char *malformed = run_adapters_malformed(&flags.adapters);
    if (malformed != NULL)
        return cli_usage(&command_run,
                         "--adapter: \"%s\" must have the form NAME=PATH or NAME=PATH:SCALE",
                         malformed);
    if (flags.prompts != NULL)
        return run_prompts(&flags, argv[1]);
    return run_request(&flags, argv[1], words == 2 ? argv[2] : NULL);
}

const cli_command command_run = {
    .name = "run",
    .summary = "answer a prompt and stream the answer",
    .usage =
        "avocet run MODEL [PROMPT|-] [options]\n"
        "       avocet run MODEL --prompts FILE.jsonl [options]\n\n"
        "Without PROMPT, or with -, the prompt is read from standard input; one newline at "
        "its end is\n"
        "removed. Ctrl-C stops the answer: the text so far is kept, finish_reason is "
        "\"cancelled\" and\n"
        "the exit status is 130. A second Ctrl-C exits at once.\n\n"
        "Each line of --prompts is a JSON object with prompt or messages and optionally id, "
        "system,\n"
        "raw, adapter (a name or {\"name\", \"weight\"}) or adapters (an array of these), "
        "max_new_tokens,\n"
        "temperature, top_k, top_p, min_p, typical_p, repetition_penalty, presence_penalty,\n"
        "frequency_penalty, seed, logprobs, stop, stop_tokens, ignore_eos, tenant, priority, "
        "deadline,\n"
        "first_token_deadline, cache_salt, json_schema, grammar, json_object, response_format, "
        "tools,\n"
        "tool_choice, parallel_tool_calls, and the other fields of HTTP bodies (docs/api.md "
        "says what differs).\n"
        "The command's options are the defaults (docs/scheduler.md).",
    .examples =
        "avocet run smollm2 \"Why is the sky blue?\"\n"
        "avocet run model.gguf --temperature 0.8 --top-p 0.95 --seed 7 -n 200 \"A story:\"\n"
        "avocet run stories15M.bin --raw \"Once upon a time\" --stop \"The end\"\n"
        "cat letter.txt | avocet run smollm2 --system \"Answer in one line.\" -\n"
        "avocet run smollm2 \"Yes or no?\" -n 1 --json --logprobs 5\n"
        "avocet run smollm2 \"Hello\" --telemetry=times.csv\n"
        "avocet run smollm2 \"Describe Ada Lovelace as JSON.\" --json-schema person.json\n"
        "avocet run smollm2 \"Hello\" --trace trace.json\n"
        "avocet run smollm2 \"Hello\" --adapter pirate=adapters/pirate:0.8\n"
        "avocet run smollm2 --prompts questions.jsonl --adapter a=one --adapter b=two > "
        "answers.jsonl",
    .run = run,
};
