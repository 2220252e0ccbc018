/* Passes over logits in this set's registers. */
#include "device/cpu/lanes/logits.h"

const logit_loops avx2_logits = LANES_LOGITS;
