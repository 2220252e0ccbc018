/* Draft heads that come with the program. */
#ifndef AVO_CLI_HEADS_FIND_H
#define AVO_CLI_HEADS_FIND_H

#include "model/heads.h"

/* The file of this kind that was trained on the model, in `share/avocet/heads` of the program's
 * prefix or in `models` of its source tree; of several, the first by name. False: there is none. */
bool cli_heads_find(const avo_model *model, heads_kind kind, char *path, size_t capacity);

#endif
