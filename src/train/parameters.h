/* What training changes: named matrices and vectors with their gradients. core.h fills the list,
 * the optimizer (optimizer.h) reads gradients and changes values, checkpoints and outputs write
 * them. Order and names are fixed for a model and its options, so that a checkpoint fits the next
 * run. */
#ifndef AVO_TRAIN_PARAMETERS_H
#define AVO_TRAIN_PARAMETERS_H

#include "base/status.h"

#define TRAIN_PARAMETERS_MAX 65536
#define TRAIN_NAME_MAX       256

/* What a parameter is: learning rates, weight decay and the choice of optimizer depend on it. */
typedef enum train_role {
    TRAIN_LORA_A,
    TRAIN_LORA_B,
    TRAIN_MAGNITUDE, /* of DoRA */
    TRAIN_MATRIX,    /* of the base, full tuning */
    TRAIN_EMBEDDING, /* token or position embeddings and the output head */
    TRAIN_VECTOR     /* norms and biases */
} train_role;

typedef struct train_parameter {
    const char *name; /* of the tensor in the output file, unique */
    train_role role;
    uint32_t rows, k; /* [rows][k]; a vector has one row */
    float *value, *gradient;
} train_parameter;

struct train_core;

typedef struct train_parameters {
    train_parameter *item; /* [count] */
    uint32_t count;
    uint64_t numbers;               /* of all values */
    const struct train_core *heads; /* of draft heads: whose; NULL: others */
} train_parameters;

#endif
