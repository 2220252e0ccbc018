/* What vector back ends take from the reference: operations that cost next to nothing. Called by
 * the thread that leads the step; they share many rows out to the team. */
#ifndef AVO_DEVICE_CPU_REF_REF_H
#define AVO_DEVICE_CPU_REF_REF_H

#include "device/cpu/backend.h"

/* Token and position embeddings into `hidden`, and the angles of every row. */
void reference_embed(const step_view *step);
/* Cosine and sine of every row for every table of the model. */
void reference_angles(const step_view *step);

#endif
