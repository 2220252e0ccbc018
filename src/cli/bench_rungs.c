/* `avocet bench --rung`: the ladder of docs/ladder.md, from plain loops to tiles, every rung still
 * runnable. Models are random weights in one shape, packed once per type and kept in the user's
 * cache folder. */
#include "cli/bench_int.h"

#include "base/cpu.h"
#include "base/file.h"
#include "pack/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum rung_way { RUNG_LOOPS, RUNG_UNFUSED, RUNG_ENGINE } rung_way;

typedef struct rung {
    const char *name;
    rung_way way;
    pack_type type;
    const char *isa;
    bool all_threads;
    uint32_t batch;
    uint32_t prompt;
    const char *text; /* for --rung list */
} rung;

static const rung rungs[] = {
    {"loops", RUNG_LOOPS, PACK_F32, "ref", false, 1, 4, "FP32 in plain loops, one thread"},
    {"lanes", RUNG_ENGINE, PACK_F32, "ref", false, 1, 64,
     "FP32, 16 outputs side by side, one thread"},
    {"threads", RUNG_ENGINE, PACK_F32, "ref", true, 1, 64, "the same on all threads"},
    {"f16", RUNG_UNFUSED, PACK_F16, "avx2", true, 1, 512, "half the bytes: F16, F16C and AVX2"},
    {"int8", RUNG_UNFUSED, PACK_Q8, "avx2", true, 1, 512, "a quarter: products in integers"},
    {"int4", RUNG_UNFUSED, PACK_Q4, "avx2", true, 1, 512, "an eighth: 4 bit, rotated"},
    {"fused", RUNG_ENGINE, PACK_Q4, "avx2", true, 1, 512,
     "whole phases instead of single operations"},
    {"vnni", RUNG_ENGINE, PACK_Q4, "avx512", true, 1, 512, "AVX-512 with vpdpbusd"},
    {"batch", RUNG_ENGINE, PACK_Q4, "avx512", true, 8, 0, "eight sessions in one step"},
    {"amx", RUNG_ENGINE, PACK_Q4, "amx", true, 1, 512, "tiles"},
    {"cuda-1", RUNG_ENGINE, PACK_Q4, "cuda:rung=1", true, 1, 512,
     "a graphics card: ten kernels a layer, right bits"},
    {"cuda-2", RUNG_ENGINE, PACK_Q4, "cuda:rung=2", true, 1, 512,
     "the same: five kernels a layer, recorded, each fetching ahead"},
};
#define RUNGS (sizeof(rungs) / sizeof(rungs[0]))

bool bench_rung_known(const char *name) {
    for (size_t i = 0; i < RUNGS; i++)
        if (strcmp(rungs[i].name, name) == 0)
            return true;
    return strcmp(name, "all") == 0 || strcmp(name, "list") == 0;
}

void bench_rung_list(void) {
    for (size_t i = 0; i < RUNGS; i++)
        printf("%-8s %s\n", rungs[i].name, rungs[i].text);
}

/* ---- Models ---- */

static avo_status make_folder(const char *path, avo_error *error) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_IO, "%s: %s", path, strerror(errno));
}

static avo_status cache_folder(char *path, size_t capacity, avo_error *error) {
    char base[CLI_PATH_MAX];
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (cache != NULL && cache[0] == '/')
        snprintf(base, sizeof(base), "%s", cache);
    else if (home != NULL && home[0] == '/')
        AVO_TRY(file_join(base, sizeof(base), home, ".cache", error));
    else
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "no folder for random models: set XDG_CACHE_HOME or HOME");
    AVO_TRY(make_folder(base, error));
    AVO_TRY(file_join(path, capacity, base, "avocet", error));
    AVO_TRY(make_folder(path, error));
    AVO_TRY(file_join(path, capacity, base, "avocet/rungs", error));
    return make_folder(path, error);
}

static avo_status open_model(const char *shape, pack_type type, avo_model **model,
                             avo_error *error) {
    char folder[CLI_PATH_MAX], path[CLI_PATH_MAX], file[128];
    AVO_TRY(cache_folder(folder, sizeof(folder), error));
    snprintf(file, sizeof(file), "%.100s-%s.avo", shape, pack_type_name(type));
    AVO_TRY(file_join(path, sizeof(path), folder, file, error));
    struct stat found;
    if (stat(path, &found) != 0) {
        pack_options options = {.type = type, .progress = cli_progress};
        pack_report report;
        AVO_TRY(pack_random(shape, 1, path, &options, &report, error));
        cli_progress_end();
    }
    return avo_model_open(path, NULL, model, error);
}

/* ---- Climbing ---- */

static avo_status climb_loops(const rung *rung, const rung_options *o, bench_machine *machine,
                              bench_results *results, avo_error *error) {
    avo_model *model;
    avo_model_info info = AVO_MODEL_INFO_INIT;
    AVO_TRY(open_model(o->shape, rung->type, &model, error));
    avo_model_describe(model, &info);
    avo_model_close(model);
    uint32_t k = info.width, outputs = info.width * 11 / 4;
    AVO_TRY(bench_plain_loops(rung->name, BENCH_PREFILL, outputs, k, (double)info.parameters,
                              rung->prompt, o->repeats, machine, results, error));
    return bench_plain_loops(rung->name, BENCH_DECODE, outputs, k, (double)info.parameters, 1,
                             o->repeats, machine, results, error);
}

static avo_status climb_unfused(const rung *rung, const rung_options *o, const avo_model *model,
                                bench_machine *machine, bench_results *results, avo_error *error) {
    bench_unfused_options options = {.name = rung->name,
                                     .isa = rung->isa,
                                     .threads = o->threads,
                                     .rows = rung->prompt,
                                     .repeats = o->repeats,
                                     .place = o->place};
    AVO_TRY(bench_unfused(model, &options, machine, results, error));
    options.rows = 1;
    return bench_unfused(model, &options, machine, results, error);
}

static avo_status climb_engine(const rung *rung, const rung_options *o, const avo_model *model,
                               bench_machine *machine, bench_results *results, avo_error *error) {
    bench_engine_options options = {.prompt = {{rung->prompt}, 1},
                                    .generate = {{16}, 1},
                                    .batch = {{rung->batch}, 1},
                                    .depth = {{0}, 1},
                                    .threads = {{rung->all_threads ? o->threads : 1}, 1},
                                    .kv_type = {NULL},
                                    .kv_types = 1,
                                    .isa = {rung->isa},
                                    .isas = 1,
                                    .repeats = o->repeats,
                                    .place = *o->place,
                                    .progress = cli_progress};
    return bench_engine(model, rung->name, &options, machine, results, error);
}

static avo_status climb(const rung *rung, const rung_options *o, bench_machine *machine,
                        bench_results *results, avo_error *error) {
    if (rung->way == RUNG_LOOPS)
        return climb_loops(rung, o, machine, results, error);
    avo_model *model;
    AVO_TRY(open_model(o->shape, rung->type, &model, error));
    avo_status status = rung->way == RUNG_UNFUSED
                            ? climb_unfused(rung, o, model, machine, results, error)
                            : climb_engine(rung, o, model, machine, results, error);
    cli_progress_end();
    avo_model_close(model);
    return status;
}

/* Of all rungs, those that this machine has not are left out, and it says so. */
avo_status bench_rungs(const rung_options *options, bench_machine *machine, bench_results *results,
                       avo_error *error) {
    bool all = strcmp(options->name, "all") == 0;
    for (size_t i = 0; i < RUNGS; i++) {
        if (!all && strcmp(rungs[i].name, options->name) != 0)
            continue;
        if (cli_interrupted())
            return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
        limit_table table;
        if (all && !limits_of(rungs[i].isa, &table)) {
            cli_warn("rung %s: this machine lacks %s", rungs[i].name, rungs[i].isa);
            continue;
        }
        AVO_TRY(climb(&rungs[i], options, machine, results, error));
    }
    return AVO_OK;
}
