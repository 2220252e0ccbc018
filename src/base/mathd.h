/* Double-precision functions of our own, for angles and frequencies: C libraries differ in the last
 * bit, between versions and between processors of one version. Errors are a few 1e-16. */
#ifndef AVO_BASE_MATHD_H
#define AVO_BASE_MATHD_H

/* |x| < 2^30; more than any position times any frequency. */
void mathd_sine_cosine(double x, double *sine, double *cosine);
double mathd_exp(double x);             /* of any x: 0 or infinity far away, NaN of NaN */
double mathd_log(double x);             /* x > 0, normal */
double mathd_power(double x, double y); /* x > 0 */
double mathd_erf(double x);

#endif
