/* Measuring what errors cost, for `avocet pack --bits N --sensitivity TEXT`. */
#ifndef AVO_CLI_PACK_SENSITIVITY_H
#define AVO_CLI_PACK_SENSITIVITY_H

#include "cli/cli.h"
#include "pack/pack.h"

/* Packs `path` again and again into the file `temporary`, which is gone afterwards: one kind of
 * matrix in 4 bits and the others in f16, then one band of layers; and compares each with the model
 * itself over a few windows of the text. `options` has calibration, effort, threads and look-ups.
 */
AVO_MUST_USE avo_status cli_sensitivity(const char *path, const char *text, const char *temporary,
                                        const pack_options *options, pack_sensitivity *found,
                                        avo_error *error);

#endif
