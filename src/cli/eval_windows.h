/* What `eval perplexity` and `eval kl` have in common: a text cut into windows. */
#ifndef AVO_CLI_EVAL_WINDOWS_H
#define AVO_CLI_EVAL_WINDOWS_H

#include "cli/engine_flags.h"
#include "eval/eval.h"

/* Adds the options of windows and of the engine. */
void eval_window_options(eval_options *options, option_table *table);
/* False, with the usage told, when windows would leave gaps. */
bool eval_windows_fit(const cli_command *command, const eval_options *options, int *exit_status);

#endif
