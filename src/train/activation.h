/* Activations and their derivatives, of runs of numbers: m = act(g)·u, or act(u) without a gate. */
#ifndef AVO_TRAIN_ACTIVATION_H
#define AVO_TRAIN_ACTIVATION_H

#include "device/layer.h"

/* out = act(gate)·up, or act(up) where `gate` is NULL. */
void train_activate(activation_kind kind, const float *gate, const float *up, size_t count,
                    float *out);
/* From dm: dup = dm·act(gate), dgate = dm·up·act'(gate); without a gate dup = dm·act'(up). `dup`
 * may be `dm`. */
void train_activate_backward(activation_kind kind, const float *gate, const float *up,
                             const float *dm, size_t count, float *dgate, float *dup);

#endif
