/* Passes over rows of the backward pass in this set's registers. */
#include "device/cpu/lanes/gradients.h"

const gradient_loops avx2_gradients = LANES_GRADIENTS;
