/* Calibrating on a text, for `avocet calibrate` and `avocet pack --calibrate TEXT`. */
#ifndef AVO_CLI_CALIBRATE_TEXT_H
#define AVO_CLI_CALIBRATE_TEXT_H

#include "cli/cli.h"
#include "pack/calibrate.h"

#define CALIBRATE_OPTIONS_DEFAULT                                                                  \
    { .tokens = 8192, .progress = cli_progress }

/* Opens the model, tokenizes the text and writes the statistics to `output`. */
AVO_MUST_USE avo_status cli_calibrate(const char *model, const char *text, const char *output,
                                      calibrate_options *options, calibrate_report *report,
                                      avo_error *error);

#endif
