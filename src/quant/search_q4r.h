/* The search for the scale, multipliers and numbers of one Q4R super-block. */
#ifndef AVO_QUANT_SEARCH_Q4R_H
#define AVO_QUANT_SEARCH_Q4R_H

#include "quant/panels.h"

typedef struct q4r_super {
    uint16_t scale; /* f16 bits, not negative */
    int8_t multiplier[Q4R_SUBS];
    int8_t number[Q4R_SUPER]; /* −8…7 */
} q4r_super;

/* `count` in 1…256 finite numbers, each with its importance (NULL: all equal; not negative), by
 * which its squared error counts; what lies behind them in the last sub-block counts as zero. */
void search_q4r(const float *source, const float *importance, size_t count, q4r_super *found);

/* Scale and multipliers such that nothing is clipped, without any search; no numbers. */
void search_q4r_quick(const float *source, size_t count, q4r_super *found);

#endif
