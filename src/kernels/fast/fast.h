/* The back end that all vector instruction sets share, over their op table. */
#ifndef AVO_KERNELS_FAST_H
#define AVO_KERNELS_FAST_H

#include "kernels/backend.h"

/* The table must outlive the back end. */
void fast_backend(const op_table *ops, backend *out);

#endif
