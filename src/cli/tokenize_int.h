/* `avocet tokenize`, between its files. */
#ifndef AVO_CLI_TOKENIZE_INT_H
#define AVO_CLI_TOKENIZE_INT_H

#include "cli/cli.h"
#include "tokenizer/tokenizer.h"

typedef struct tokenize_options {
    bool json, jsonl, decode, special, begin;
} tokenize_options;

/* Both replace what `ids` and `out` hold. Ids are lists such as "1,2,3" or "[1, 2]", or lines of an
 * id and its piece, as the command prints them. */
AVO_MUST_USE avo_status tokenize_encode(const tokenizer *tokenizer, const tokenize_options *options,
                                        text_view text, id_list *ids, avo_error *error);
AVO_MUST_USE avo_status tokenize_decode(const tokenizer *tokenizer, const tokenize_options *options,
                                        text_view text, id_list *ids, buffer *out,
                                        avo_error *error);
/* Appends "[1,2,3]". */
AVO_MUST_USE avo_status tokenize_write_ids(const id_list *ids, buffer *out);

/* `--jsonl`: standard input to standard output, line by line; an exit status. */
int tokenize_lines(const tokenizer *tokenizer, const tokenize_options *options);

#endif
