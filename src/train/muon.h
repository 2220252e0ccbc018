/* Muon's update of one matrix (K. Jordan, 2024; the constants of torch.optim.Muon). Private to the
 * optimizer. */
#ifndef AVO_TRAIN_MUON_H
#define AVO_TRAIN_MUON_H

#include "base/allocator.h"
#include "base/team.h"
#include "train/parameters.h"

typedef struct muon muon;

/* Scratch for the largest TRAIN_MATRIX of the parameters. */
AVO_MUST_USE avo_status muon_open(const avo_allocator *allocator, team *team,
                                  const train_parameters *parameters, muon **out, avo_error *error);
void muon_close(muon *muon);
uint64_t muon_scratch_bytes(const train_parameters *parameters);

typedef struct muon_step {
    float momentum;
    double rate, weight_decay;
    float scale; /* of the gradient, for clipping */
} muon_step;
/* Changes value and momentum buffer. */
void muon_update(muon *muon, const train_parameter *parameter, float *buffer,
                 const muon_step *step);

#endif
