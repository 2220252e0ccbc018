/* Options of evaluations that cut a text into windows. */
#include "cli/eval_windows.h"

#include "cli/text_tokens.h"

#include <string.h>

void eval_window_options(eval_options *options, option_spec specs[EVAL_WINDOW_OPTIONS + 1]) {
    const option_spec shared[EVAL_WINDOW_OPTIONS - ENGINE_OPTION_COUNT] = {
        {"ctx", 'c', OPTION_U32, &options->context, "N",
         "tokens per window (default: 512, or the model's context if smaller)", 4, 16777216},
        {"chunks", 0, OPTION_U32, &options->windows_max, "N",
         "use only the first N windows (default: all)", 0, 0},
        {"stride", 0, OPTION_U32, &options->stride, "N",
         "slide the window by N tokens and score the new ones, as in the Hugging Face "
         "documentation (default: adjacent windows, the second half of each scored, as in "
         "llama.cpp)",
         0, 0},
        {"chunk", 0, OPTION_U32, &options->chunk, "N",
         "rows per step (default 256); changes speed, not results", 0, 65536},
    };
    memcpy(specs, shared, sizeof(shared));
    engine_flags_specs(&options->engine, specs + EVAL_WINDOW_OPTIONS - ENGINE_OPTION_COUNT);
    specs[EVAL_WINDOW_OPTIONS] = (option_spec){0};
}

bool eval_windows_fit(const cli_command *command, const eval_options *options, int *exit_status) {
    uint32_t context = options->context != 0 ? options->context : CLI_WINDOW;
    if (options->stride < context)
        return true;
    *exit_status = cli_usage(command, "--stride is %u, must be smaller than the window (%u tokens)",
                             options->stride, context);
    return false;
}
