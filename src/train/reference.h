/* Log-probabilities of answers under the model that DPO compares with, computed once for every
 * sample that a run will see and kept in a file of the output folder. The array's name in it is a
 * digest of model and data, so that a file of others is not used. */
#ifndef AVO_TRAIN_REFERENCE_H
#define AVO_TRAIN_REFERENCE_H

#include "train/run_int.h"

typedef struct train_reference {
    const train_data *data;
    train_data_info info;
    const char *file; /* its name */
    bool all;         /* samples in their order, not only those that steps take */
    /* [samples][4]: high and low parts of the chosen and of the rejected answer's sum; NAN: not
     * known. Two floats keep 48 bits of a sum, always the same ones. */
    float *parts;
} train_reference;

/* With data, info, file and all filled in. Reads the file, computes what is missing of the samples
 * that the run will see, and writes it. With full tuning the reference is the model as it was
 * before the first step: what is missing later cannot be computed any more and is refused. */
AVO_MUST_USE avo_status reference_open(train_run_state *run, train_reference *reference);
void reference_close(train_run_state *run, train_reference *reference);
/* Sums of a sample's answers. */
void reference_at(const train_reference *reference, uint64_t index, double *chosen,
                  double *rejected);

#endif
