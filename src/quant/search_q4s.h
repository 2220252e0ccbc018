/* The search for the scale, multipliers and numbers of one Q4S super-block. */
#ifndef AVO_QUANT_SEARCH_Q4S_H
#define AVO_QUANT_SEARCH_Q4S_H

#include "quant/panels_int.h"

typedef struct q4s_super {
    uint16_t scale; /* f16 bits, not negative */
    int8_t multiplier[Q4S_SUBS];
    int8_t number[Q4S_SUPER]; /* −8…7 */
} q4s_super;

/* `count` in 1…256 finite numbers; what lies behind them in the last sub-block counts as zero. */
void search_q4s(const float *source, size_t count, q4s_super *found);

#endif
