/* The angles of one position. */
#ifndef AVO_DEVICE_ROTARY_H
#define AVO_DEVICE_ROTARY_H

#include "device/layer.h"

/* cosine[pairs] and sine[pairs], times the table's magnitude; exact to any length, for angles are
 * taken in double precision. */
void rotary_angles(const rotary_table *table, uint32_t position, float *cosine, float *sine);

#endif
