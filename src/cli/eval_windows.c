/* Options of evaluations that cut a text into windows. */
#include "cli/eval_windows.h"

#include <string.h>

void eval_window_options(eval_options *options, option_spec specs[EVAL_WINDOW_OPTIONS + 1]) {
    const option_spec shared[EVAL_WINDOW_OPTIONS + 1] = {
        {"ctx", 'c', OPTION_U32, &options->context, "N", "tokens of a window (default 512)", 4,
         16777216},
        {"chunks", 0, OPTION_U32, &options->windows_max, "N",
         "only the first N windows (default: all)", 0, 0},
        {"stride", 0, OPTION_U32, &options->stride, "N",
         "slide the window by N tokens and score what is new in it, as Hugging Face's "
         "documentation does (default: windows side by side, the second half of each scored, as "
         "llama.cpp does)",
         0, 0},
        {"chunk", 0, OPTION_U32, &options->chunk, "N",
         "tokens of one step (default 256); changes speed, not results", 0, 65536},
        {"kv-type", 0, OPTION_TEXT, &options->kv_type, "TYPE",
         "how keys and values are stored: f32, f16, bf16, int8, fp8 (default: f16; the reference: "
         "f32)",
         0, 0},
        {"threads", 't', OPTION_U32, &options->threads, "N",
         "threads to compute with (default: all that this process may use)", 0, 4096},
        {0},
    };
    memcpy(specs, shared, sizeof(shared));
}

bool eval_windows_fit(const cli_command *command, const eval_options *options, int *exit_status) {
    if (options->stride < options->context)
        return true;
    *exit_status =
        cli_usage(command, "--stride %u leaves gaps between windows of %u tokens; make it smaller",
                  options->stride, options->context);
    return false;
}
