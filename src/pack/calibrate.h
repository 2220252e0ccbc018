/* Runs a model over a text and writes what its matrices are given (calibration.h). */
#ifndef AVO_PACK_CALIBRATE_H
#define AVO_PACK_CALIBRATE_H

#include "base/status.h"

typedef struct calibrate_options {
    uint32_t context; /* tokens of a window, at least 1; windows lie side by side */
    uint32_t tokens;  /* at most so many of the text; 0: all */
    uint32_t threads; /* 0: all that this process may use */
    uint64_t memory;  /* for the sums; a model that needs more is run several times; 0: 1 GiB */
    int32_t begin;    /* replaces the first token of every window; −1: nothing does */
    avo_progress_function progress; /* NULL: silent */
    void *progress_context;
} calibrate_options;

typedef struct calibrate_report {
    uint64_t tokens, file_bytes;
    uint32_t inputs, passes;
} calibrate_report;

/* The same bytes for any number of threads. Refuses to write over a file of the model. */
AVO_MUST_USE avo_status calibrate_model(const avo_model *model, const int32_t *tokens, size_t count,
                                        const calibrate_options *options, const char *path,
                                        calibrate_report *report, avo_error *error);

#endif
