/* exp, sigmoid and tanh in 16 lanes; plain/fused_math.h has the same functions for one number, to
 * the bit. Included by files of an ISA folder, behind its vec16.h. */
#ifndef AVO_KERNELS_LANES_EXP_H
#define AVO_KERNELS_LANES_EXP_H

#ifndef LANES
#error "include the folder's vec16.h first"
#endif

/* e^x within two units in the last place; 0 below −87.3, infinite above 88.7, NaN stays NaN. */
static inline vec16 v_exp(vec16 x) {
    vec16 low = v_set(-87.33654f);
    vec16 high = v_set(88.72283f);
    vec16 clamped = v_min(v_max(x, low), high); /* NaN becomes −87 here and NaN again below */
    ivec16 exponent = v_to_int(v_mul(clamped, v_set(1.44269504f)));
    vec16 n = v_from_int(exponent);
    vec16 r = v_fnma(n, v_set(1.42860677e-6f), v_fnma(n, v_set(0.693145752f), clamped));
    vec16 p = v_set(1.98412698e-4f);
    p = v_fma(p, r, v_set(1.38888889e-3f));
    p = v_fma(p, r, v_set(8.33333333e-3f));
    p = v_fma(p, r, v_set(4.16666667e-2f));
    p = v_fma(p, r, v_set(1.66666667e-1f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(p, r, v_set(1.0f));
    p = v_fma(p, r, v_set(1.0f));
    /* 2^n in two factors, so that n = 128 needs no care. */
    ivec16 half = iv_shift_right(exponent, 1);
    ivec16 rest = iv_sub(exponent, half);
    vec16 first = v_from_bits(iv_shift_left(iv_add(half, iv_set(127)), 23));
    vec16 second = v_from_bits(iv_shift_left(iv_add(rest, iv_set(127)), 23));
    vec16 result = v_mul(v_mul(p, first), second);
    result = v_select(v_less(x, low), v_zero(), result);
    result = v_select(v_less(high, x), v_set(__builtin_inff()), result);
    return v_select(v_is_nan(x), x, result);
}

static inline vec16 v_sigmoid(vec16 x) {
    return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_sub(v_zero(), x))));
}

static inline vec16 v_tanh(vec16 x) {
    vec16 e = v_exp(v_add(x, x));
    return v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(e, v_set(1.0f))));
}

#endif
