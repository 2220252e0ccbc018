/* Passes over rows of the backward pass for every processor. */
#include "device/cpu/lanes/gradients.h"

const gradient_loops gradient_loops_plain = LANES_GRADIENTS;
