/* The factor of second moments that rounding with error feedback needs (quant/feedback.h). */
#ifndef AVO_PACK_FACTOR_H
#define AVO_PACK_FACTOR_H

#include "base/team.h"
#include "quant/feedback.h"

typedef struct factor_room {
    float *square; /* [k][k] of the largest padded k */
    float *upper;  /* feedback_upper_floats of it */
    float *diagonal;
    float *strip; /* 64 × k */
    size_t k_max;
} factor_room;

AVO_MUST_USE avo_status factor_room_open(factor_room *room, size_t k_max, avo_error *error);
void factor_room_close(factor_room *room);

/* Factorises moments[k][k], which lie in room->square and are lost, for a type: padded, rotated
 * where the type is, `damping` · the mean of the diagonal added to it (and ten times more where
 * that is not enough). The result points into the room. Zero moments give no feedback at all. */
AVO_MUST_USE avo_status factor_make(factor_room *room, size_t k, quant_type type, double damping,
                                    team *team, feedback_factor *out, avo_error *error);

#endif
