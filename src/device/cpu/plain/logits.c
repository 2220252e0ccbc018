/* Passes over logits for every processor. */
#include "device/cpu/lanes/logits.h"

const logit_loops logit_loops_plain = LANES_LOGITS;
