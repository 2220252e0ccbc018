/* Norms of the backward pass, row by row. With n = width:
 *
 *   RMS     s = 1 / √(Σx²/n + ε)          y = x·s·w
 *           dx = s·w·dy − x·s³/n · Σ(dy·w·x)
 *   layer   x̂ = (x − mean)·s, s = 1 / √(variance + ε)     y = x̂·w + b
 *           dx = s·(w·dy − mean(w·dy) − x̂·mean(w·dy·x̂))
 *   both    dw = Σ over rows dy·x̂ (RMS: x·s), db = Σ over rows dy
 *
 * Sums over a row go through 16 lanes and one tree, so they do not depend on vector widths. */
#ifndef AVO_TRAIN_NORM_H
#define AVO_TRAIN_NORM_H

#include "device/layer.h"

/* out = norm(x); `out` may be `x`. NORM_NONE copies. */
void train_norm_row(const norm_view *norm, const float *x, uint32_t width, float *out);
/* dx = the derivative by x, or added to dx; `dx` may be `dy` where nothing is added. */
void train_norm_row_backward(const norm_view *norm, const float *x, const float *dy, uint32_t width,
                             bool add, float *dx);
/* Adds one row's part to the gradients of weight and bias; either may be NULL. */
void train_norm_row_gradient(const norm_view *norm, const float *x, const float *dy, uint32_t width,
                             float *dweight, float *dbias);

#endif
