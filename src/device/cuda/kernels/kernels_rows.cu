/* Norms, positions, attention, the head, and what adapters add. */
#include "device/cuda/kernels/unit.h"

#include "device/cuda/kernels/attend_half.h"
#include "device/cuda/kernels/attend_int8.h"
#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/head.h"
#include "device/cuda/kernels/place_many.h"
#include "device/cuda/kernels/rows.h"

CUDA_KERNELS_ROWS(CUDA_KERNEL_DEFINE)
