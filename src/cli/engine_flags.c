/* Flags of commands that open an engine. */
#include "cli/engine_flags.h"

#include "base/team.h"
#include "cli/heads_find.h"
#include "engine/draft_heads.h"
#include "hub/hub.h"
#include "spec/spec.h"

#include <string.h>

static bool verbose;              /* --verbose */
static const char *draft_name;    /* --draft-model */
static avo_model *drafting_model; /* opened with the first engine */
static const char *heads_names;   /* --draft-heads */
static const char *panel_size;    /* --panel-cache */
static bool panels_only_used;     /* and not written */
static avo_heads *heads[HEADS_KINDS];
static size_t heads_count;

void cli_note(const char *line) {
    if (!verbose)
        return;
    cli_progress_end();
    cli_warn("%s", line);
}

static void log_line(void *context, const char *line) {
    (void)context;
    cli_note(line);
}

#define PANEL_CACHE_BYTES ((uint64_t)16 << 30)

void cli_panels_only_used(void) {
    panels_only_used = true;
}

avo_status cli_panel_options(avo_model_options *options, char *folder, size_t capacity,
                             avo_error *error) {
    bool automatic = panel_size == NULL || strcmp(panel_size, "auto") == 0;
    uint64_t bytes = PANEL_CACHE_BYTES;
    if (!automatic && strcmp(panel_size, "off") == 0)
        return AVO_OK;
    if (!automatic && cli_parse_size(panel_size, &bytes) != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--panel-cache: \"%.40s\" must be off, auto, or a size such as 500M or "
                           "4G",
                           panel_size);
    avo_error ignored;
    if (hub_panel_folder(folder, capacity, &ignored) != AVO_OK)
        return AVO_OK; /* a user without a home has no cache either */
    options->panel_cache = folder;
    options->panel_cache_bytes = panels_only_used ? 0 : bytes;
    options->log = log_line;
    return AVO_OK;
}

void place_flags_specs(avo_engine_options *options, option_table *table) {
    const option_spec own[] = {
        {"huge-pages", 0, OPTION_CHOICE, &options->huge_pages, "auto|on|off",
         "auto (default): for repacked weights, and for files if the file system supports it; on: "
         "also copy mapped weights; off",
         0, 0},
        {"numa", 0, OPTION_CHOICE, &options->numa, "first-touch|interleave|off",
         "first-touch (default): weights are on the node that computes with them; interleave; off",
         0, 0},
        {"pin", 0, OPTION_CHOICE, &options->pin, "none|core|node",
         "bind threads to one core (core), to one NUMA node (node), or not at all (none)", 0, 0},
        {"panel-cache", 0, OPTION_TEXT, &panel_size, "off|auto|SIZE",
         "keep repacked weights on disk, so that the next start maps them: at most SIZE (such as "
         "4G) of all models; auto (default): 16G; off: neither use nor write them",
         0, 0},
        {"lock", 0, OPTION_FLAG, &options->lock, NULL, "lock the weights in memory", 0, 0},
        {"adapter-rank", 0, OPTION_U32, &options->adapter_rank_max, "N",
         "largest sum of adapter ranks of one request (default 256)", 1, 2048},
        {"verbose", 'v', OPTION_FLAG, &verbose, NULL,
         "print to standard error which device was chosen and why, and where memory and threads "
         "are placed",
         0, 0},
        {"arithmetic", 0, OPTION_CHOICE, &options->arithmetic, "exact|fast",
         "exact: the same bits on every device; fast: 16-bit float matrices on tensor cores, with "
         "--device cuda (default: AVO_ARITHMETIC, else fast on cuda for models of such matrices)",
         0, 0},
        {"kv-host", 0, OPTION_SIZE, &options->kv_host_bytes, "SIZE",
         "host memory (such as 4G) for cached prefixes that a device with its own memory has no "
         "place for (default: none)",
         0, 0},
        {"gpu-layers", 0, OPTION_TEXT, &options->gpu_layers, "N|auto",
         "layers on the device, with the output head; the CPU computes the others, with the same "
         "bits; auto: as many as its memory holds (default: all; --device cuda unless named)",
         0, 0},
        {0},
    };
    options->log = log_line;
    options_add(table, own);
}

void engine_flags_specs(avo_engine_options *options, option_table *table) {
    const option_spec own[] = {
        {"threads", 't', OPTION_U32, &options->threads, "N|auto",
         "worker threads (default: auto, as many of those that this process may use as steps are "
         "fastest with)",
         0, TEAM_THREADS_MAX},
        {"kv-type", 0, OPTION_CHOICE, &options->kv_type, KV_TYPE_CHOICES,
         "type of keys and values (default: f16; ref: f32)", 0, 0},
        {"device", 0, OPTION_DEVICE, &options->device, DEVICE_NAMES,
         "device, or DEVICE:PARAMETERS (default: AVO_DEVICE, else auto: the fastest available)", 0,
         0},
        {"isa", 0, OPTION_DEVICE, &options->device, DEVICE_NAMES, "older name of --device", 0, 0},
        {0},
    };
    options_add(table, own);
    place_flags_specs(options, table);
}

void draft_flags_specs(avo_engine_options *options, option_table *table) {
    const option_spec own[] = {
        {"speculate", 0, OPTION_TEXT, &options->speculate, "off|auto|SOURCE,…",
         "draft tokens that a step verifies besides (default: auto): suffix, ngram, corpus, "
         "grammar, model, eagle, medusa, layers; the answers are the same",
         0, 0},
        {"draft-tokens", 0, OPTION_U32, &options->draft_tokens, "K",
         "most draft tokens of a request in one step (default 15)", 1, DRAFTS_MAX},
        {"draft-controller", 0, OPTION_CHOICE, &options->draft_controller,
         "cost|fixed|step|rate|ema",
         "who decides how many drafts are verified (default: cost, as many as pay)", 0, 0},
        {0},
    };
    options_add(table, own);
    draft_model_flag_spec(table);
}

void draft_model_flag_spec(option_table *table) {
    const option_spec own[] = {
        {"draft-model", 0, OPTION_TEXT, &draft_name, "MODEL|exit:N",
         "a smaller model that proposes tokens, best one with the same vocabulary; exit:N: the "
         "first N layers of the model itself",
         0, 0},
        {"draft-heads", 0, OPTION_TEXT, &heads_names, "FILE[,FILE]|none",
         "draft heads of the model: EAGLE, Medusa or distilled layers (default: those installed "
         "for it)",
         0, 0},
        {0},
    };
    options_add(table, own);
}

void cores_flags_specs(avo_scheduler_options *options, option_table *table) {
    const option_spec own[] = {
        {"cores", 0, OPTION_CHOICE, &options->cores, "mixed|static|adaptive",
         "decode and prefill in one step on all threads (mixed, default), on dedicated threads "
         "(static), or switch by load (adaptive); the answers are the same",
         0, 0},
        {"prefill-threads", 0, OPTION_U32, &options->prefill_threads, "N",
         "with --cores: prefill threads (static, default: half) or their maximum (adaptive, "
         "default: all but one)",
         1, TEAM_THREADS_MAX},
        {0},
    };
    options_add(table, own);
}

void cores_flags_apply(const avo_scheduler_options *scheduler, avo_engine_options *engine) {
    if (scheduler->cores != NULL && strcmp(scheduler->cores, "mixed") != 0)
        engine->streams = 2;
}

uint64_t cli_kv_tokens(const avo_model *model, uint32_t context, uint32_t sessions, uint64_t most) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    uint64_t one = context > 0 ? context : info.context;
    uint64_t all = one * sessions, limit = one > most ? one : most;
    return all < limit ? all : limit;
}

avo_status cli_draft_model(const avo_model *model, avo_engine_options *options, avo_error *error) {
    if (draft_name != NULL && drafting_model == NULL)
        AVO_TRY(cli_draft_open(draft_name, model, &drafting_model, error));
    options->draft_model = drafting_model;
    return AVO_OK;
}

static avo_status open_heads(const avo_model *model, const char *path, avo_error *error) {
    if (heads_count == HEADS_KINDS)
        return status_fail(error, AVO_ERROR_ARGUMENT, "--draft-heads: more than %d files",
                           HEADS_KINDS);
    AVO_TRY(heads_open_later(model, path, &heads[heads_count], error));
    heads_count++;
    return AVO_OK;
}

static avo_status open_named_heads(const avo_model *model, avo_error *error) {
    char path[4096];
    for (const char *at = heads_names; at != NULL;) {
        size_t bytes = strcspn(at, ",");
        if (bytes == 0 || bytes >= sizeof(path))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "--draft-heads is \"%.60s\", must be files with commas between them",
                               heads_names);
        memcpy(path, at, bytes);
        path[bytes] = '\0';
        AVO_TRY(open_heads(model, path, error));
        at = at[bytes] == ',' ? at + bytes + 1 : NULL;
    }
    return AVO_OK;
}

/* Heads that lie beside the program; a file that cannot be used is passed over, with a note. */
static void open_found_heads(const avo_model *model, draft_kinds kinds) {
    static const heads_kind order[] = {HEADS_EAGLE, HEADS_LAYERS, HEADS_MEDUSA};
    char path[4096];
    avo_error error;
    for (uint32_t i = 0; i < HEADS_KINDS; i++) {
        if ((kinds & DRAFT_BIT(draft_heads_kind(order[i]))) == 0 ||
            !cli_heads_find(model, order[i], path, sizeof(path)))
            continue;
        if (open_heads(model, path, &error) != AVO_OK)
            cli_note(error.text);
        else if (kinds == DRAFTS_AUTO)
            return; /* one computed source is enough */
    }
}

avo_status cli_draft_heads(const avo_model *model, avo_engine_options *options, avo_error *error) {
    draft_kinds kinds;
    AVO_TRY(draft_kinds_parse(options->speculate, &kinds, error));
    if (heads_count == 0 && heads_names == NULL)
        open_found_heads(model, kinds);
    else if (heads_count == 0 && strcmp(heads_names, "none") != 0)
        AVO_TRY(open_named_heads(model, error));
    options->draft_heads = (const avo_heads *const *)heads;
    options->draft_heads_count = heads_count;
    return AVO_OK;
}

avo_status cli_engine_open(const avo_model *model, const avo_engine_options *options,
                           avo_engine **engine, avo_error *error) {
    avo_engine_options own = *options;
    *engine = NULL;
    AVO_TRY(cli_draft_model(model, &own, error));
    AVO_TRY(cli_draft_heads(model, &own, error));
    avo_status status = avo_engine_open(model, &own, engine, error);
    cli_progress_end();
    return status;
}

void cli_engine_end(void) {
    avo_model_close(drafting_model);
    drafting_model = NULL;
    while (heads_count > 0)
        avo_heads_close(heads[--heads_count]);
}
