/* The kernels of the table in calls.h, as nvcc compiles them: each calls the block's code of its
 * header. */
#pragma nv_diag_suppress 550 /* lanes that a loop does not look at */
#include "device/cuda/kernels/attend_half.h"
#include "device/cuda/kernels/attend_int8.h"
#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/decode.h"
#include "device/cuda/kernels/fast_attend.h"
#include "device/cuda/kernels/fast_tile.h"
#include "device/cuda/kernels/few.h"
#include "device/cuda/kernels/few_float.h"
#include "device/cuda/kernels/head.h"
#include "device/cuda/kernels/linear.h"
#include "device/cuda/kernels/place_many.h"
#include "device/cuda/kernels/rows.h"
#include "device/cuda/kernels/tile.h"
#include "device/cuda/kernels/tile_units.h"
#include "device/cuda/kernels/wide.h"
#include "device/cuda/kernels/wide_rows.h"

#define X(name, call_type, threads, together, waits)                                               \
    extern "C" __global__ void __launch_bounds__(threads, together)                                \
        avo_##name(const __grid_constant__ call_type call) {                                       \
        extern __shared__ float shared[];                                                          \
        kernel_place at = {blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, blockDim.x, gridDim.x, \
                           shared,     NULL};                                             \
        if (!waits)                                                                                \
            place_wait();                                                                          \
        kernel_##name(&call, &at);                                                                 \
    }
CUDA_KERNEL_TABLE(X)
#undef X
