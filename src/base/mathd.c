/* Series on small intervals, after a reduction that is exact where it matters. Built without fused
 * multiply-add (-ffp-contract=off), so the same everywhere. */
#include "base/mathd.h"

#include "base/mathd_inline.h"

#include <math.h>
#include <stdint.h>

/* π/2 in three parts of 33 bits or fewer, so that n times the first two is exact for n < 2^20. */
#define HALF_PI_1 1.57079632673412561417e+00
#define HALF_PI_2 6.07710050630396597660e-11
#define HALF_PI_3 2.02226624879595063154e-21

/* Taylor on |x| ≤ π/4: the first term left out is below 1e-17. */
static double sine_near(double x) {
    double z = x * x;
    double sum = 0.0;
    for (int n = 19; n >= 3; n -= 2)
        sum = (1.0 + sum) * -z / (n * (n - 1));
    return x + x * sum;
}

static double cosine_near(double x) {
    double z = x * x;
    double sum = 0.0;
    for (int n = 20; n >= 2; n -= 2)
        sum = (1.0 + sum) * -z / (n * (n - 1));
    return 1.0 + sum;
}

void mathd_sine_cosine(double x, double *sine, double *cosine) {
    double n = floor(x * 0.63661977236758134308 + 0.5);
    double r = ((x - n * HALF_PI_1) - n * HALF_PI_2) - n * HALF_PI_3;
    double s = sine_near(r);
    double c = cosine_near(r);
    switch ((int64_t)n & 3) {
    case 0:
        *sine = s;
        *cosine = c;
        break;
    case 1:
        *sine = c;
        *cosine = -s;
        break;
    case 2:
        *sine = -s;
        *cosine = -c;
        break;
    default:
        *sine = -c;
        *cosine = s;
        break;
    }
}

double mathd_exp(double x) {
    return mathd_inline_exp(x);
}

/* x = m·2^e with m near 1; log m = 2·atanh((m − 1) / (m + 1)). */
double mathd_log(double x) {
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0.70710678118654752440) {
        m *= 2.0;
        exponent--;
    }
    double t = (m - 1.0) / (m + 1.0);
    double z = t * t;
    double sum = 0.0;
    for (int n = 41; n >= 3; n -= 2)
        sum = (sum + 1.0 / n) * z;
    return exponent * MATHD_LN2_HIGH + (exponent * MATHD_LN2_LOW + 2.0 * (t + t * sum));
}

double mathd_power(double x, double y) {
    return mathd_exp(y * mathd_log(x));
}

double mathd_erf(double x) {
    return mathd_inline_erf(x);
}
