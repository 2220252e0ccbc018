/* Steps of few rows: products with their inputs, and attention. */
#include "device/cuda/kernels/unit.h"

#include "device/cuda/kernels/decode.h"
#include "device/cuda/kernels/few.h"
#include "device/cuda/kernels/few_float.h"

CUDA_KERNELS_FEW(CUDA_KERNEL_DEFINE)
