/* Rounding with error feedback: what rounding one column of a matrix has cost is made good by the
 * columns behind it, as far as the inputs x of the matrix go together. With second moments
 * H = E[x xᵀ] = (I + U) D (I + U)ᵀ, U strictly upper, the mean squared error of an output is
 *   Σ_i D_i (t_i − q_i)²,   t_i = w_i + Σ_{j<i} (w_j − q_j) U_ji,
 * for weights w and what they become, q. So each t_i is rounded to the nearest, with scales
 * (minima, multipliers) chosen block by block among candidates that are all tried out in full.
 * Without a factor U = 0 and D = 1: plain search.
 */
#ifndef AVO_QUANT_FEEDBACK_H
#define AVO_QUANT_FEEDBACK_H

#include "quant/panels.h"

#define FEEDBACK_TILE 16

typedef struct feedback_factor {
    size_t k;              /* feedback_k of type and k; 0: no feedback */
    const float *upper;    /* tile t of 16 columns at feedback_upper_at(t): [16 (t + 1)][16] */
    const float *diagonal; /* [k] D */
} feedback_factor;

static inline size_t feedback_upper_at(size_t tile) {
    return FEEDBACK_TILE * FEEDBACK_TILE * (tile * (tile + 1) / 2);
}
static inline size_t feedback_upper_floats(size_t k) {
    return feedback_upper_at((k + FEEDBACK_TILE - 1) / FEEDBACK_TILE);
}

/* Q8B, Q8_0, Q4R, Q4_0, Q4_1, Q4B64, Q4M64, Q5_0, Q5_1. */
bool feedback_known(quant_type type);
/* k padded as the factor's must be. */
size_t feedback_k(quant_type type, size_t k);
/* Scratch of one worker, in floats. */
size_t feedback_scratch_floats(size_t k);
/* As weight_encode_panel. `quick`: no search, the first candidate of everything. `error` (NULL: not
 * wanted) grows by the sum over rows of the above. It becomes infinite where weights and factor are
 * so large that no candidate has a finite error: zeros were written there. */
void feedback_encode_panel(quant_type type, const float *source, size_t rows, size_t k,
                           const feedback_factor *factor, bool quick, float *scratch, uint8_t *out,
                           double *error);

/* The sum over rows of the mean squared output, w H wᵀ: what the above is to be compared with. */
double feedback_energy(quant_type type, const float *source, size_t rows, size_t k,
                       const feedback_factor *factor, float *scratch);

#endif
