/* `avocet pack --base`: draft heads of other projects as a file of docs/heads.md. */
#ifndef AVO_CLI_PACK_HEADS_H
#define AVO_CLI_PACK_HEADS_H

#include "quant/quant.h"

typedef struct pack_heads_options {
    const char *folder, *base, *output;
    const char *type; /* "f32", "q8", "q4"; NULL: q8 */
    bool json;
} pack_heads_options;

/* False: there is no such type. */
bool cli_pack_heads_type(const char *name, quant_type *type);
/* An exit code; failures were reported. */
int cli_pack_heads(const pack_heads_options *options);

#endif
