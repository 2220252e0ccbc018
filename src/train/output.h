/* The weights of a run on disk: a PEFT folder (adapter_config.json, adapter_model.safetensors) that
 * peft and adapters/ load, a folder with model.safetensors, configuration and tokenizer, or one
 * with heads.safetensors. Tensors are f32, so that what is read back has the same bits. Called by
 * the loop and by checkpoints; each file appears whole or not at all. */
#ifndef AVO_TRAIN_OUTPUT_H
#define AVO_TRAIN_OUTPUT_H

#include "model/model.h"
#include "train/parameters.h"
#include "train/settings.h"

/* Refused before training starts: full tuning of a model that is not in safetensors. */
AVO_MUST_USE avo_status output_check(const avo_model *model, const train_settings *settings,
                                     avo_error *error);
/* Into a folder that exists. `exact`: for output_read; draft heads are rounded otherwise, to the
 * type of the settings. */
AVO_MUST_USE avo_status output_write(const avo_model *model, const train_settings *settings,
                                     const train_parameters *parameters, bool exact,
                                     const char *folder, avo_error *error);
/* The file with the weights. */
const char *output_file(const train_settings *settings);
/* Reads values back from such a folder: every parameter must be there in its shape. */
AVO_MUST_USE avo_status output_read(const train_settings *settings,
                                    const train_parameters *parameters, const char *folder,
                                    avo_error *error);

/* Arrays of f32 under names, in a file of safetensors; for moments of optimizers, too. */
typedef struct output_array {
    char name[TRAIN_NAME_MAX + 32];
    uint32_t rows, k;
    bool vector; /* of one dimension, k long */
    float *data;
} output_array;
/* The `index`-th of them; false behind the last. */
typedef bool (*output_next)(const void *context, uint32_t index, output_array *array);
AVO_MUST_USE avo_status output_write_arrays(const char *path, output_next next, const void *context,
                                            avo_error *error);
AVO_MUST_USE avo_status output_read_arrays(const char *path, output_next next, const void *context,
                                           avo_error *error);

#endif
