/* Products of many rows and of any type, and their inputs. */
#include "device/cuda/kernels/unit.h"

#include "device/cuda/kernels/linear.h"
#include "device/cuda/kernels/rows.h"
#include "device/cuda/kernels/tile.h"
#include "device/cuda/kernels/tile_units.h"
#include "device/cuda/kernels/wide.h"
#include "device/cuda/kernels/wide_rows.h"

CUDA_KERNELS_PRODUCTS(CUDA_KERNEL_DEFINE)
