/* What rounding a matrix needs beside its numbers: the factor of its input's second moments. One
 * at a time is kept; matrices that share an input follow each other and share the factor. */
#ifndef AVO_PACK_ROUNDING_H
#define AVO_PACK_ROUNDING_H

#include "pack/calibration.h"
#include "pack/factor.h"
#include "pack/pack_int.h"

typedef struct rounding {
    calibration file; /* entries NULL: none */
    factor_room room;
    char name[64];     /* of the input whose factor is there; "" none */
    quant_type family; /* Q4R, or any other type, whose k is padded another way */
    size_t k;
    double damping;
    feedback_factor factor;
} rounding;

/* `path` NULL: no calibration. */
AVO_MUST_USE avo_status rounding_open(rounding *rounding, const char *path, const pack_list *list,
                                      avo_error *error);
void rounding_close(rounding *rounding);
/* The factor for an item as `type`, or NULL where there is nothing to go by. */
AVO_MUST_USE avo_status rounding_factor(rounding *rounding, const pack_item *item, quant_type type,
                                        team *team, const feedback_factor **out, avo_error *error);

#endif
