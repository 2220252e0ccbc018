/* `avocet eval TASK MODEL`: tasks as lm-eval defines them. */
#include "cli/eval_task.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/eval_files.h"

#include <string.h>

extern const cli_command command_eval_task;
extern const cli_command command_eval_tasks;

/* ---- Reading ---- */

static avo_status read_data(const eval_flags *flags, eval_job *job, avo_error *error) {
    char path[CLI_PATH_MAX];
    const eval_task *task = job->task;
    AVO_TRY(eval_data_path(flags->data, task->data, "--data", path, sizeof(path), error));
    AVO_TRY(eval_file_read(path, &job->text, error));
    AVO_TRY(
        documents_open(buffer_text(&job->text), path, flags->limit, NULL, &job->documents, error));
    if (task->shots_data.size == 0)
        return AVO_OK;
    if (flags->shots == NULL && file_kind_of(flags->data) != FILE_FOLDER)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the shots are in the file %.*s: give it by --shots, or a folder with "
                           "both by --data",
                           TEXT_ARGUMENT(task->shots_data));
    AVO_TRY(eval_data_path(flags->shots != NULL ? flags->shots : flags->data, task->shots_data,
                           "--shots", path, sizeof(path), error));
    AVO_TRY(eval_file_read(path, &job->shot_text, error));
    return documents_open(buffer_text(&job->shot_text), path, 0, NULL, &job->shots, error);
}

static avo_status open_job(eval_jobs *jobs, text_view name, avo_error *error) {
    if (jobs->count == EVAL_TASKS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "more than %d tasks", EVAL_TASKS_MAX);
    eval_job *job = &jobs->job[jobs->count];
    *job = (eval_job){.run = {.samples = -1}};
    buffer_init(&job->text, NULL, EVAL_DATA_BYTES_MAX);
    buffer_init(&job->shot_text, NULL, EVAL_DATA_BYTES_MAX);
    jobs->count++;
    AVO_TRY(eval_task_find(name, &job->task, error));
    if (jobs->flags->max_tokens > 0)
        job->task->max_tokens = jobs->flags->max_tokens;
    for (size_t i = 0; i + 1 < jobs->count; i++)
        if (text_equal(jobs->job[i].task->name, job->task->name))
            return status_fail(error, AVO_ERROR_ARGUMENT, "two tasks have the name %.*s",
                               TEXT_ARGUMENT(job->task->name));
    avo_status status = read_data(jobs->flags, job, error);
    return status == AVO_OK ? AVO_OK
                            : status_prefix(error, status, "%.*s", TEXT_ARGUMENT(job->task->name));
}

static avo_status open_jobs(eval_jobs *jobs, const char *names, avo_error *error) {
    for (const char *at = names;;) {
        text_view name = {at, strcspn(at, ",")};
        AVO_TRY(open_job(jobs, name, error));
        at += name.size;
        if (*at++ == '\0')
            break;
    }
    bool to_file = jobs->flags->data != NULL && file_kind_of(jobs->flags->data) != FILE_FOLDER;
    if (jobs->count > 1 && to_file)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--data must be a folder with the data of all tasks, %s is a file",
                           jobs->flags->data);
    return AVO_OK;
}

static void close_jobs(eval_jobs *jobs) {
    for (size_t i = 0; i < jobs->count; i++) {
        eval_job *job = &jobs->job[i];
        allocator_give(NULL, job->other,
                       (size_t)job->run.items.count * job->run.scores * sizeof(double));
        if (job->opened)
            eval_run_close(&job->run);
        documents_close(&job->documents);
        documents_close(&job->shots);
        buffer_free(&job->text);
        buffer_free(&job->shot_text);
        task_close(job->task);
    }
}

/* ---- Comparing with a samples file ---- */

static bool is_samples_file(const char *name) {
    return text_ends(text_from(name), TEXT_LITERAL(".jsonl"));
}

static avo_status compare_file(eval_jobs *jobs, avo_error *error) {
    eval_job *job = &jobs->job[0];
    size_t count = (size_t)job->run.items.count * job->run.scores;
    buffer text;
    buffer_init(&text, NULL, EVAL_DATA_BYTES_MAX);
    job->other = allocator_take_array(NULL, count, sizeof(double));
    avo_status status = job->other == NULL
                            ? status_no_memory(error, "scores", count * sizeof(double))
                            : eval_file_read(jobs->flags->against, &text, error);
    AVO_THEN(status, samples_compare(&job->run, buffer_text(&text), jobs->flags->against,
                                     job->other, error));
    buffer_free(&text);
    return status;
}

/* ---- Results ---- */

static int print(const eval_jobs *jobs, const char *model_name) {
    report_task tasks[EVAL_TASKS_MAX];
    for (size_t i = 0; i < jobs->count; i++)
        tasks[i] = (report_task){&jobs->job[i].run, jobs->job[i].other};
    eval_report report = {.task = tasks,
                          .tasks = jobs->count,
                          .model = model_name,
                          .against = jobs->flags->against,
                          .limit = jobs->flags->limit,
                          .chat = jobs->flags->chat,
                          .seconds = clock_seconds(jobs->begin_ns, clock_now_ns())};
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    avo_status status =
        jobs->flags->json ? report_json(&report, &text) : report_table(&report, &text);
    if (status == AVO_OK && jobs->flags->json)
        status = buffer_append(&text, "\n", 1);
    return cli_print_report(status, &text);
}

static int run_tasks(const eval_flags *flags, const char *names, const char *model_name) {
    avo_error error = {0};
    eval_jobs jobs = {.flags = flags, .begin_ns = clock_now_ns()};
    cli_interrupt_catch();
    avo_status status = open_jobs(&jobs, names, &error);
    AVO_THEN(status, eval_jobs_run(&jobs, model_name, false, &error));
    if (status == AVO_OK && flags->against != NULL)
        status = is_samples_file(flags->against)
                     ? compare_file(&jobs, &error)
                     : eval_jobs_run(&jobs, flags->against, true, &error);
    cli_progress_end();
    int exit_status = status == AVO_OK ? print(&jobs, model_name) : cli_fail_status(status, &error);
    close_jobs(&jobs);
    return exit_status;
}

/* ---- The command ---- */

static void make_specs(eval_flags *flags, option_table *table) {
    const option_spec own[] = {
        {"data", 'd', OPTION_TEXT, &flags->data, "PATH",
         "the documents: a JSON Lines file (also .gz), or a folder with the files of all tasks", 0,
         0},
        {"shots", 0, OPTION_TEXT, &flags->shots, "FILE",
         "the file that shots are drawn from (default: in the folder of --data)", 0, 0},
        {"limit", 'l', OPTION_U32, &flags->limit, "N", "only the first N documents", 1,
         4294967295.0},
        {"against", 0, OPTION_TEXT, &flags->against, "MODEL|FILE.jsonl",
         "compare in pairs with another model, or with the samples of an earlier run", 0, 0},
        {"adapter", 'a', OPTION_TEXT_LIST, &flags->adapters, "PATH[:WEIGHT]",
         "apply a LoRA adapter, not to the model of --against; may be repeated", 0, 0},
        {"adapter-type", 0, OPTION_CHOICE, &flags->adapter_type, "q8|f16|f32",
         "how adapters are stored for computing (default q8)", 0, 0},
        {"chat", 0, OPTION_FLAG, &flags->chat, NULL,
         "send prompts as user messages in the model's chat template", 0, 0},
        {"no-bos", 0, OPTION_FLAG, &flags->no_begin, NULL,
         "no BOS token before prompts, also where the tokenizer adds one", 0, 0},
        {"max-tokens", 0, OPTION_U32, &flags->max_tokens, "N",
         "at most N tokens per answer, instead of the task's number", 1, 65536},
        {"ctx", 'c', OPTION_U32, &flags->context, "N",
         "context in tokens (default: the model's); longer prompts lose their begin", 8, 16777216},
        {"batch", 'b', OPTION_U32, &flags->batch, "N",
         "sequences computed together (default 16); changes speed, not results", 1, 4096},
        {"kv-tokens", 0, OPTION_U64, &flags->engine.kv_tokens, "N",
         "tokens in the KV pool (default: enough for the batch, at most 32768)", 0, 0},
        {"samples", 'o', OPTION_TEXT, &flags->samples, "FILE.jsonl",
         "write every document with prompt, answer and scores", 0, 0},
        {"resume", 0, OPTION_FLAG, &flags->resume, NULL,
         "with --samples: keep what the file has and go on behind it", 0, 0},
        {"python", 0, OPTION_TEXT, &flags->python, "PROGRAM",
         "interpreter of programs that pass@1 runs (default python3)", 0, 0},
        {"unsafe", 0, OPTION_FLAG, &flags->unsafe, NULL,
         "run programs of the model also where the system cannot confine them", 0, 0},
        {"json", 0, OPTION_FLAG, &flags->json, NULL, "print results as lm-eval's JSON", 0, 0},
        {0},
    };
    options_add(table, own);
    engine_flags_specs(&flags->engine, table);
    draft_flags_specs(&flags->engine, table);
}

static int run(int argc, char **argv) {
    eval_flags flags = {.engine = AVO_ENGINE_OPTIONS_INIT};
    option_table table = {0};
    make_specs(&flags, &table);
    int words = 0;
    options_result parsed = options_parse(&command_eval_task, table.specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words != 2)
        return cli_usage(&command_eval_task, words == 0   ? "missing TASK and MODEL"
                                             : words == 1 ? "missing MODEL"
                                                          : "more words than TASK and MODEL");
    if (flags.resume && flags.samples == NULL)
        return cli_usage(&command_eval_task, "--resume needs --samples");
    if (flags.adapters.count > AVO_ADAPTERS_MAX)
        return cli_usage(&command_eval_task, "more than %d adapters", AVO_ADAPTERS_MAX);
    if (flags.against != NULL && is_samples_file(flags.against) && strchr(argv[1], ',') != NULL)
        return cli_usage(&command_eval_task,
                         "--against FILE.jsonl compares one task; give one task or a model");
    return run_tasks(&flags, argv[1], argv[2]);
}

const cli_command command_eval_task = {
    .name = "eval task",
    .summary = "measure a model with tasks as lm-eval defines them",
    .usage = "avocet eval TASK[,TASK…] MODEL --data PATH [options]\n\n"
             "TASK is one of those that `avocet eval tasks` lists, or a file that ends in .json\n"
             "(docs/evals.md says how to write one). Prompts, scores and their names are those of\n"
             "lm-eval. No data comes with the program.",
    .examples = "avocet eval arc_easy smollm2 --data evals --limit 200\n"
                "avocet eval gsm8k smollm2 --data gsm8k/test.jsonl --shots gsm8k/train.jsonl\n"
                "avocet eval arc_easy,piqa small.avo --against ./original --data evals --json\n"
                "avocet eval my-task.json smollm2 --data my.jsonl --samples out.jsonl --resume",
    .run = run,
};

/* ---- eval tasks ---- */

static int run_list(int argc, char **argv) {
    bool json = false;
    int exit_status;
    if (!options_json_only(&command_eval_tasks, argc, argv, &json, &exit_status))
        return exit_status;
    cli_json list;
    json_writer *w = cli_json_begin(&list);
    json_array_begin(w);
    for (size_t i = 0; i < eval_builtin_count; i++) {
        eval_task *task = NULL;
        avo_error error = {0};
        if (eval_task_find(text_from(eval_builtins[i].name), &task, &error) != AVO_OK)
            return cli_fail(&error);
        static const char *const kinds[] = {"choice", "continuation", "generate"};
        if (!json)
            printf("%-20s  %-12s  %2u shots  %.*s\n", eval_builtins[i].name, kinds[task->kind],
                   task->shots, TEXT_ARGUMENT(task->data));
        json_tree(w, &task->json);
        task_close(task);
    }
    json_end(w);
    if (json)
        return cli_json_print(&list);
    buffer_free(&list.text);
    return EXIT_GOOD;
}

const cli_command command_eval_tasks = {
    .name = "eval tasks",
    .summary = "list the tasks that come with the program",
    .usage =
        "avocet eval tasks [--json]\n\n"
        "Name, kind, shots, and the file of the data that --data must have. --json prints the\n"
        "tasks themselves: a beginning for one of your own.",
    .examples = "avocet eval tasks\navocet eval tasks --json",
    .run = run_list,
};
