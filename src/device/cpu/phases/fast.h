/* The back end that all vector instruction sets share, over their op table. */
#ifndef AVO_DEVICE_CPU_PHASES_FAST_H
#define AVO_DEVICE_CPU_PHASES_FAST_H

#include "device/cpu/backend.h"

/* The table must outlive the back end. */
void fast_backend(const op_table *ops, backend *out);

#endif
