/* Options of evaluations that cut a text into windows. */
#include "cli/eval_windows.h"

#include "cli/text_tokens.h"

void eval_window_options(eval_options *options, option_table *table) {
    const option_spec own[] = {
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
        {0},
    };
    options_add(table, own);
    engine_flags_specs(&options->engine, table);
}

bool eval_windows_fit(const cli_command *command, const eval_options *options, int *exit_status) {
    uint32_t context = options->context != 0 ? options->context : CLI_WINDOW;
    if (options->stride < context)
        return true;
    *exit_status = cli_usage(command, "--stride is %u, must be smaller than the window (%u tokens)",
                             options->stride, context);
    return false;
}
