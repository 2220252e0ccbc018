/* Those functions of mathd.h that devices compute in kernels, as inline code: mathd.c is made of
 * it. Who compiles for another processor defines MATHD_INLINE first. Built without fused
 * multiply-add, so the same everywhere. */
#ifndef AVO_BASE_MATHD_INLINE_H
#define AVO_BASE_MATHD_INLINE_H

#include <math.h>

#ifndef MATHD_INLINE
#define MATHD_INLINE static inline
#endif

#define MATHD_LN2_HIGH 6.93147180369123816490e-01
#define MATHD_LN2_LOW  1.90821492927058770002e-10
#define MATHD_EXP_MOST 746.0 /* beyond it lie infinity and, for its negative, 0 */

MATHD_INLINE double mathd_inline_exp(double x) {
    if (!(fabs(x) < MATHD_EXP_MOST)) /* the power of two would not be an int for any x */
        return x < 0.0 ? 0.0 : x > 0.0 ? (double)INFINITY : x;
    double n = floor(x * 1.44269504088896340736 + 0.5);
    double r = (x - n * MATHD_LN2_HIGH) - n * MATHD_LN2_LOW;
    double sum = 0.0;
    for (int i = 17; i >= 1; i--)
        sum = (1.0 + sum) * r / i;
    return ldexp(1.0 + sum, (int)n);
}

MATHD_INLINE double mathd_inline_erf(double x) {
    double a = fabs(x);
    if (a >= 6.0)
        return x < 0.0 ? -1.0 : 1.0; /* erfc(6) is 2e-17 */
    if (a < 2.5) {
        /* x − x³/3 + x⁵/10 − …: terms up to 60 reach 1e-17 for 2.5. */
        double z = a * a;
        double term = a;
        double sum = a;
        for (int n = 1; n < 60; n++) {
            term *= -z / n;
            sum += term / (2 * n + 1);
        }
        return (x < 0.0 ? -sum : sum) * 1.12837916709551257390;
    }
    /* erfc by its continued fraction, from the inside out. */
    double fraction = 0.0;
    for (int n = 60; n >= 1; n--)
        fraction = 0.5 * n / (a + fraction);
    double tail = mathd_inline_exp(-a * a) * 0.56418958354775628695 / (a + fraction);
    return x < 0.0 ? tail - 1.0 : 1.0 - tail;
}

#endif
