/* The tokenizer of a MODEL as the user wrote it, without its weights. */
#ifndef AVO_CLI_TOKENIZER_OPEN_H
#define AVO_CLI_TOKENIZER_OPEN_H

#include "cli/cli.h"
#include "tokenizer/tokenizer.h"

typedef struct cli_tokenizer {
    tokenizer *tokenizer;
    model_source *source; /* NULL for a bare tokenizer file */
} cli_tokenizer;

/* MODEL, a folder with a tokenizer in it, or a bare tokenizer.json, tokenizer.model or
 * tokenizer.bin. */
AVO_MUST_USE avo_status cli_tokenizer_open(const char *name, cli_tokenizer *out, avo_error *error);
/* One of {0} is closed too. */
void cli_tokenizer_close(cli_tokenizer *opened);

#endif
