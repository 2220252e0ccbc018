/* `avocet train sft|dpo|rl|pretrain|heads MODEL`: the options are the settings of train/settings.h.
 */
#include "base/json_file.h"
#include "cli/ranks.h"
#include "cli/train_int.h"

#include <math.h>
#include <string.h>

extern const cli_command command_train;
extern const cli_command command_train_sft;
extern const cli_command command_train_dpo;
extern const cli_command command_train_rl;
extern const cli_command command_train_pretrain;
extern const cli_command command_train_heads;

#define CONFIG_BYTES_MAX ((size_t)1 << 20)

/* ---- Options ---- */

/* The lists of the settings, as options collect them. */
typedef struct train_lists {
    option_list lists[TRAIN_LIST_OPTIONS];
    size_t offsets[TRAIN_LIST_OPTIONS];
    size_t count;
} train_lists;

static option_spec spec_of(const train_setting *setting, train_settings *settings,
                           train_lists *lists) {
    static const option_kind kinds[] = {
        [SETTING_FLAG] = OPTION_FLAG,     [SETTING_TEXT] = OPTION_TEXT,
        [SETTING_CHOICE] = OPTION_CHOICE, [SETTING_U32] = OPTION_U32,
        [SETTING_U64] = OPTION_U64,       [SETTING_NUMBER] = OPTION_NUMBER,
        [SETTING_LIST] = OPTION_TEXT_LIST};
    void *target = (char *)settings + setting->offset;
    if (setting->kind == SETTING_LIST && lists->count < TRAIN_LIST_OPTIONS) {
        lists->offsets[lists->count] = setting->offset;
        target = &lists->lists[lists->count++];
    }
    return (option_spec){setting->name,        0,
                         kinds[setting->kind], target,
                         setting->value,       setting->help,
                         setting->minimum,     setting->maximum};
}

static void add_settings(option_table *table, train_settings *settings, train_lists *lists) {
    for (const train_setting *setting = train_setting_table; setting->name != NULL; setting++) {
        option_spec specs[2] = {{0}, {0}};
        if (!train_setting_is_of(setting, settings->task))
            continue;
        specs[0] = spec_of(setting, settings, lists);
        options_add(table, specs);
    }
}

static avo_status take_lists(const train_lists *lists, train_settings *settings, avo_error *error) {
    for (size_t i = 0; i < lists->count; i++) {
        train_list *list = (void *)((char *)settings + lists->offsets[i]);
        if (lists->lists[i].count > TRAIN_LIST_MAX)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "an option is repeated %zu times, at most %d", lists->lists[i].count,
                               TRAIN_LIST_MAX);
        list->count = (uint32_t)lists->lists[i].count;
        memcpy(list->items, lists->lists[i].items, list->count * sizeof(list->items[0]));
    }
    return AVO_OK;
}

/* The settings of --config; options that were given win. */
static avo_status read_config(train_call *call) {
    json_value root;
    AVO_TRY(json_file_read(&call->arena, call->config, CONFIG_BYTES_MAX, &root, &call->error));
    return train_settings_read(&call->options.settings, &root, true, &call->arena, call->config,
                               &call->error);
}

/* Of tasks that train adapters. */
static void add_publishing(option_table *table, train_call *call) {
    const option_spec own[] = {
        {"publish", 0, OPTION_TEXT, &call->publisher.target, "URL[=NAME]",
         "load the adapter into a running server at every checkpoint (NAME: of the output folder)",
         0, 0},
        {"publish-key", 0, OPTION_TEXT, &call->publisher.key, "KEY",
         "administrator's key for --publish (default: AVOCET_API_KEY of the environment)", 0, 0},
        {"publish-ca", 0, OPTION_TEXT, &call->publisher.authorities, "FILE",
         "certificates (PEM) to trust of a --publish server with https (default: SSL_CERT_FILE of "
         "the environment, else the system's)",
         0, 0},
        {"publish-path", 0, OPTION_TEXT, &call->publisher.path, "PATH",
         "the output folder as that server sees it (default: its absolute path)", 0, 0},
        {"publish-every", 0, OPTION_U32, &call->options.renew_every, "N",
         "publish every N steps, too (default 0: with checkpoints only)", 0, 1e9},
        {"serve", 0, OPTION_OPTIONAL_TEXT, &call->serve.address, "[HOST:]PORT",
         "serve the model with the adapter while it is trained (default 127.0.0.1:8080)", 0, 0},
        {"serve-every", 0, OPTION_U32, &call->options.serve_every, "N",
         "steps between two versions of the served adapter (default 10)", 1, 1e9},
        {"serve-config", 0, OPTION_TEXT, &call->serve.config, "FILE",
         "more options of the server: a file for --config of `avocet serve`", 0, 0},
        {0},
    };
    if (call->options.settings.task != TRAIN_PRETRAIN)
        options_add(table, own);
}

/* ---- The run ---- */

static avo_status run_opened(train_call *call, const avo_model *model) {
    AVO_TRY(train_rewards_open(&call->rewards, model, &call->options.settings, &call->error));
    call->options.rewards = call->rewards.items;
    call->options.reward_count = call->rewards.count;
    if (call->dry_run)
        return train_show_preview(call, model);
    train_publish_begin(call, model);
    return train_show_run(call, model);
}

static avo_status run_call(train_call *call, const char *name) {
    avo_model *model = NULL;
    if (call->config != NULL)
        AVO_TRY(read_config(call));
    AVO_TRY(train_settings_finish(&call->options.settings, &call->error));
    AVO_TRY(train_ranks_begin(call));
    if (call->dry_run && !train_ranks_leads(call))
        return AVO_OK;
    char path[CLI_PATH_MAX];
    if (!call->dry_run)
        AVO_TRY(train_publish_check(call));
    AVO_TRY(train_ranks_start(call, name, path));
    AVO_TRY(cli_model_open(path, &model, &call->error));
    avo_status status = run_opened(call, model);
    cli_progress_end();
    avo_model_close(model);
    return status;
}

static int run_task(const cli_command *command, train_task task, int argc, char **argv) {
    train_call call = {.options = {.engine = AVO_ENGINE_OPTIONS_INIT, .progress = cli_progress},
                       .rank_timeout_s = 120,
                       .lock = {.descriptor = -1}};
    train_lists lists = {.count = 0};
    option_table table = {.count = 0};
    train_settings_init(&call.options.settings, task);
    const option_spec own[] = {
        {"output", 'o', OPTION_TEXT, &call.options.output, "FOLDER",
         "folder for the result, checkpoints and metrics", 0, 0},
        {"config", 0, OPTION_TEXT, &call.config, "FILE",
         "JSON file with these settings; options win", 0, 0},
        {"resume", 0, OPTION_FLAG, &call.options.resume, NULL,
         "continue from the newest checkpoint in the output folder, if there is one", 0, 0},
        {"dry-run", 0, OPTION_FLAG, &call.dry_run, NULL,
         "show counts, a sample, memory and time, and train nothing", 0, 0},
        {"json", 0, OPTION_FLAG, &call.json, NULL, "print the result as JSON", 0, 0},
        {"rank-timeout", 0, OPTION_NUMBER, &call.rank_timeout_s, "S",
         "(under mpirun) seconds that a rank may keep the others waiting (default 120)", 0.1, 1e6},
        {"device", 0, OPTION_DEVICE, &call.options.engine.device, DEVICE_NAMES,
         "device (default: AVO_DEVICE, else auto)", 0, 0},
        {"arithmetic", 0, OPTION_CHOICE, &call.options.engine.arithmetic, "exact|fast",
         "as avocet run has it", 0, 0},
        {"kv-type", 0, OPTION_CHOICE, &call.options.engine.kv_type, KV_TYPE_CHOICES,
         "type of keys and values (default: f16; ref: f32)", 0, 0},
        {0},
    };
    options_add(&table, own);
    if (task != TRAIN_HEADS) /* no adapter */
        add_publishing(&table, &call);
    add_settings(&table, &call.options.settings, &lists);
    int exit_status;
    if (!options_one_model(command, table.specs, argc, argv, &exit_status))
        return exit_status;
    if (!call.dry_run && (call.options.output == NULL || call.options.output[0] == '\0'))
        return cli_usage(command, "missing output: give -o FOLDER");
    cli_interrupt_catch();
    call.model = argv[1];
    arena_init(&call.arena, NULL, SIZE_MAX);
    avo_status status = take_lists(&lists, &call.options.settings, &call.error);
    AVO_THEN(status, run_call(&call, argv[1]));
    train_start_clean(&call);
    train_rewards_close(&call.rewards);
    arena_free(&call.arena);
    if (status == AVO_ERROR_CANCELLED && !train_ranks_leads(&call))
        return EXIT_INTERRUPTED; /* rank 0 says it */
    if (status != AVO_OK && status != AVO_ERROR_CANCELLED)
        cli_ranks_abandon();
    if (status == AVO_ERROR_CANCELLED) { /* says how to go on */
        (void)cli_fail(&call.error);
        return EXIT_INTERRUPTED;
    }
    return status == AVO_OK ? EXIT_GOOD : cli_fail(&call.error);
}

static int run_sft(int argc, char **argv) {
    return run_task(&command_train_sft, TRAIN_SFT, argc, argv);
}

static int run_dpo(int argc, char **argv) {
    return run_task(&command_train_dpo, TRAIN_DPO, argc, argv);
}

static int run_rl(int argc, char **argv) {
    return run_task(&command_train_rl, TRAIN_RL, argc, argv);
}

static int run_pretrain(int argc, char **argv) {
    return run_task(&command_train_pretrain, TRAIN_PRETRAIN, argc, argv);
}

static int run_heads(int argc, char **argv) {
    return run_task(&command_train_heads, TRAIN_HEADS, argc, argv);
}

const cli_command command_train_sft = {
    .name = "train sft",
    .summary = "train on examples: a LoRA adapter, or all weights",
    .usage = "avocet train sft MODEL --data PATH -o FOLDER [options]",
    .examples = "avocet train sft smollm2 --data chats.jsonl -o my-lora\n"
                "avocet train sft smollm2 --data chats.jsonl -o my-lora --resume\n"
                "avocet train sft smollm2 --data chats/ -o my-lora --eval-every 50 --rank 32\n"
                "avocet train sft smollm2 --data chats.jsonl --dry-run\n"
                "avocet train sft smollm2 --data chats.jsonl -o my-lora --publish "
                "http://localhost:8080=mine\n"
                "avocet train sft smollm2 --data chats.jsonl -o my-lora --serve\n"
                "mpirun -n 4 avocet train sft smollm2 --data chats.jsonl -o my-lora\n"
                "avocet run smollm2 --adapter mine=my-lora \"Hello\"",
    .run = run_sft,
};

const cli_command command_train_dpo = {
    .name = "train dpo",
    .summary = "train on pairs of a preferred and a rejected answer",
    .usage = "avocet train dpo MODEL --data PATH -o FOLDER [options]",
    .examples = "avocet train dpo smollm2 --data pairs.jsonl -o polite\n"
                "avocet train dpo smollm2 --data pairs/ -o polite --beta 0.2 --eval-every 20",
    .run = run_dpo,
};

const cli_command command_train_rl = {
    .name = "train rl",
    .summary = "train on rewards of sampled answers",
    .usage = "avocet train rl MODEL --data PATH --reward REWARD -o FOLDER [options]",
    .examples =
        "avocet train rl smollm2 --data sums.jsonl --reward number -o adder --answer 32\n"
        "avocet train rl smollm2 --data prompts.jsonl --reward contains:dog --reward "
        "0.2*length:1:80 -o dogs\n"
        "avocet train rl smollm2 --data prompts.jsonl --reward \"command:./judge.py\" -o judged",
    .run = run_rl,
};

const cli_command command_train_pretrain = {
    .name = "train pretrain",
    .summary = "train all weights of a new model on texts",
    .usage = "avocet train pretrain CONFIG.json|MODEL --data PATH -o FOLDER [options]\n\n"
             "CONFIG.json is a configuration (docs/train-data.md): a new model with random weights "
             "and a\ntokenizer made from the data. MODEL is a folder with safetensors.",
    .examples = "avocet train pretrain config.json --data texts.txt -o trained --steps 2000\n"
                "avocet train pretrain config.json --data texts.txt -o trained --resume\n"
                "avocet run ./trained \"Once upon a time\"",
    .run = run_pretrain,
};

const cli_command command_train_heads = {
    .name = "train heads",
    .summary = "train draft heads, which make a model faster",
    .usage = "avocet train heads MODEL --data PATH -o FOLDER [options]\n\n"
             "Prompts without an answer are answered by the model first: heads guess its own "
             "words.\nOUT/heads.safetensors is the result; --draft-heads takes it.",
    .examples = "avocet train heads smollm2 --data questions.jsonl -o heads --epochs 4\n"
                "avocet train heads smollm2 --data questions.jsonl -o heads --kind eagle\n"
                "avocet train heads smollm2 --data questions.jsonl -o heads --resume\n"
                "avocet train heads smollm2 --data chats.jsonl -o heads --dry-run\n"
                "avocet run smollm2 --draft-heads heads/heads.safetensors \"Hello\"\n"
                "avocet speculate smollm2 --draft-heads heads/heads.safetensors --source medusa "
                "--k 0,3",
    .run = run_heads,
};

/* ---- train ---- */

static const cli_command *const parts[] = {&command_train_sft,   &command_train_dpo,
                                           &command_train_rl,    &command_train_pretrain,
                                           &command_train_heads, NULL};

static int run_train(int argc, char **argv) {
    return cli_run_child(&command_train, argc, argv);
}

const cli_command command_train = {
    .name = "train",
    .summary = "train adapters, models and draft heads",
    .usage = "avocet train sft MODEL --data PATH -o FOLDER [options]\n"
             "       avocet train dpo MODEL --data PATH -o FOLDER [options]\n"
             "       avocet train rl MODEL --data PATH --reward REWARD -o FOLDER [options]\n"
             "       avocet train pretrain CONFIG.json|MODEL --data PATH -o FOLDER [options]\n"
             "       avocet train heads MODEL --data PATH -o FOLDER [options]\n\n"
             "Each subcommand has its own --help.",
    .examples = "avocet train sft smollm2 --data chats.jsonl -o my-lora\n"
                "avocet train rl smollm2 --data sums.jsonl --reward number -o adder",
    .run = run_train,
    .children = parts,
};
