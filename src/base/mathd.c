/* Series on small intervals, after a reduction that is exact where it matters. Built without fused
 * multiply-add (-ffp-contract=off), so the same everywhere. */
#include "base/mathd.h"

#include <math.h>
#include <stdint.h>

/* π/2 in three parts of 33 bits or fewer, so that n times the first two is exact for n < 2^20. */
#define HALF_PI_1 1.57079632673412561417e+00
#define HALF_PI_2 6.07710050630396597660e-11
#define HALF_PI_3 2.02226624879595063154e-21
#define LN2_HIGH  6.93147180369123816490e-01
#define LN2_LOW   1.90821492927058770002e-10
#define EXP_MOST  746.0 /* beyond it lie infinity and, for its negative, 0 */

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
    if (!(fabs(x) < EXP_MOST)) /* the power of two would not be an int for any x */
        return x < 0.0 ? 0.0 : x > 0.0 ? (double)INFINITY : x;
    double n = floor(x * 1.44269504088896340736 + 0.5);
    double r = (x - n * LN2_HIGH) - n * LN2_LOW;
    double sum = 0.0;
    for (int i = 17; i >= 1; i--)
        sum = (1.0 + sum) * r / i;
    return ldexp(1.0 + sum, (int)n);
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
    return exponent * LN2_HIGH + (exponent * LN2_LOW + 2.0 * (t + t * sum));
}

double mathd_power(double x, double y) {
    return mathd_exp(y * mathd_log(x));
}

double mathd_erf(double x) {
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
    double tail = mathd_exp(-a * a) * 0.56418958354775628695 / (a + fraction);
    return x < 0.0 ? tail - 1.0 : 1.0 - tail;
}
