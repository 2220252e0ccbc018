/* Passes over rows that the backward pass of training makes, for the processor at hand. Every
 * instruction set gives the same bits: the same operations in the same order, in wider registers.
 * Sums go through 16 lanes and one tree.
 *
 * Norms, with n = width:
 *   RMS     s = 1 / √(Σx²/n + ε)          y = x·s·w
 *           dx = s·w·dy − x·s³/n · Σ(dy·w·x)
 *   layer   x̂ = (x − mean)·s, s = 1 / √(variance + ε)     y = x̂·w + b
 *           dx = s·(w·dy − mean(w·dy) − x̂·mean(w·dy·x̂))
 *   both    dw = Σ over rows dy·x̂ (RMS: x·s), db = Σ over rows dy
 * Activations: m = act(g)·u, or act(u) without a gate:
 *           dg = dm·u·act'(g), du = dm·act(g), or dm·act'(u) */
#ifndef AVO_DEVICE_GRADIENTS_H
#define AVO_DEVICE_GRADIENTS_H

#include "device/layer.h"

/* A row of logits z of which a token's log-probability has the coefficient c:
 *   d = −c·e^(z − highest − log_sum), the softmax; c itself is still to be added at the token. */
typedef struct gradient_logits {
    float highest, log_sum, coefficient;
} gradient_logits;

typedef struct gradient_loops {
    /* out = norm(x); `out` may be `x`. NORM_NONE copies. */
    void (*norm)(const norm_view *norm, const float *x, uint32_t width, float *out);
    /* dx = the derivative by x, or added to dx; `dx` may be `dy` where nothing is added. */
    void (*norm_back)(const norm_view *norm, const float *x, const float *dy, uint32_t width,
                      bool add, float *dx);
    /* Adds one row's part to the gradients of the weight, and of the bias where that is not NULL.
     */
    void (*norm_weights)(const norm_view *norm, const float *x, const float *dy, uint32_t width,
                         float *dweight, float *dbias);
    /* `gate` NULL: there is none. `dup` may be `dm`. */
    void (*activate)(activation_kind kind, const float *gate, const float *up, size_t count,
                     float *out);
    void (*activate_back)(activation_kind kind, const float *gate, const float *up, const float *dm,
                          size_t count, float *dgate, float *dup);
    /* Scores to weights that sum to 1, in place; count > 0. */
    void (*softmax)(float *scores, size_t count);
    /* d = p·(d − Σ p·d) */
    void (*softmax_back)(const float *p, size_t count, float *d);
    void (*logits_back)(const gradient_logits *of, const float *z, size_t count, float *d);
    /* −Σ p·log p of a row of logits. */
    float (*entropy)(const float *z, size_t count, float highest, float log_sum);
} gradient_loops;

extern const gradient_loops gradient_loops_plain;
/* Asks what the processor has. */
const gradient_loops *gradient_loops_best(void);

#endif
