/* Attention of the fast arithmetic. */
#include "device/cuda/kernels/unit.h"

#include "device/cuda/kernels/fast_attend.h"

CUDA_KERNELS_FAST_ATTEND(CUDA_KERNEL_DEFINE)
