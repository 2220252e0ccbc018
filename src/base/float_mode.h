/* The floating-point mode of the thread: results must depend neither on the rounding or flush mode
 * that the host program has set, nor on which thread computes. */
#ifndef AVO_BASE_FLOAT_MODE_H
#define AVO_BASE_FLOAT_MODE_H

#include <fenv.h>

typedef struct float_mode {
    fenv_t saved;
} float_mode;

/* Round to nearest, keep subnormals, no traps. */
static inline void float_mode_enter(float_mode *mode) {
    fegetenv(&mode->saved);
    fesetenv(FE_DFL_ENV);
}

static inline void float_mode_leave(const float_mode *mode) {
    fesetenv(&mode->saved);
}

#endif
