/* Texts as tokens, for the commands that measure or calibrate on one. */
#ifndef AVO_CLI_TEXT_TOKENS_H
#define AVO_CLI_TEXT_TOKENS_H

#include "cli/cli.h"

/* The ids of a text file as int32_t, begin token in front where the tokenizer adds one. llama.cpp
 * leaves one newline at the end of the file out, so do we. */
AVO_MUST_USE avo_status cli_text_tokens(const avo_model *model, const char *path, buffer *ids,
                                        avo_error *error);
/* Refuses an output that is the very file to be read (NULL: none is). */
AVO_MUST_USE avo_status cli_spare_input(const char *input, const char *output, avo_error *error);
/* The begin token where these tokens start with it, or −1: what eval_options wants. */
int32_t cli_begin_token(const avo_model *model, const int32_t *tokens, size_t count);

/* Tokens of a window: where none were asked for (0) CLI_WINDOW, or as many as the model was made
 * for where that is less. More than that is warned of: figures then tell of the length, not the
 * model. */
#define CLI_WINDOW 512
uint32_t cli_window(const avo_model *model, uint32_t wanted);

#endif
