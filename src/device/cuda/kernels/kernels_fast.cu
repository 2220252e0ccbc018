/* Products of the fast arithmetic. */
#include "device/cuda/kernels/unit.h"

#include "device/cuda/kernels/fast_tile.h"

CUDA_KERNELS_FAST(CUDA_KERNEL_DEFINE)
