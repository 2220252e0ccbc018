/* Flags of commands that open an engine. */
#include "cli/engine_flags.h"

#include <string.h>

void engine_flags_specs(avo_engine_options *options, option_spec *specs) {
    const option_spec own[ENGINE_OPTION_COUNT] = {
        {"isa", 0, OPTION_TEXT, &options->isa, "NAME",
         "instruction set: ref, avx2, avx512, amx (default: AVO_ISA, else the best there is)", 0,
         0},
        {"huge-pages", 0, OPTION_TEXT, &options->huge_pages, "HOW",
         "auto (default): weights repacked at load, and files where their system can; on: a copy "
         "of mapped weights too; off",
         0, 0},
        {"numa", 0, OPTION_TEXT, &options->numa, "HOW",
         "first-touch (default): weights lie where they are computed with; interleave; off", 0, 0},
        {"pin", 0, OPTION_TEXT, &options->pin, "HOW",
         "threads stay on one processor (core), on one NUMA node (node), or anywhere (none)", 0, 0},
        {"lock", 0, OPTION_FLAG, &options->lock, NULL, "lock the weights in memory", 0, 0},
    };
    memcpy(specs, own, sizeof(own));
}

avo_status cli_engine_open(const avo_model *model, const avo_engine_options *options,
                           avo_engine **engine, avo_error *error) {
    avo_status status = avo_engine_open(model, options, engine, error);
    cli_progress_end();
    return status;
}
