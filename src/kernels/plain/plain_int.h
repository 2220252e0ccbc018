/* Inside plain/: the parts of which ops_plain fills the table. */
#ifndef AVO_KERNELS_PLAIN_INT_H
#define AVO_KERNELS_PLAIN_INT_H

#include "kernels/ops.h"

void plain_elementwise(op_table *table);

#endif
