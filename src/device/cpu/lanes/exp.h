/* exp, sigmoid and tanh in 16 lanes; device/exact/math.h has the same functions for one number, to
 * the bit. Included by files of an ISA folder, behind its vec16.h. */
#ifndef AVO_DEVICE_CPU_LANES_EXP_H
#define AVO_DEVICE_CPU_LANES_EXP_H

#ifndef LANES
#error "include the folder's vec16.h first"
#endif

/* e^x within two units in the last place; 0 below −87.3, infinite above 88.7, NaN stays NaN.
 * `count` vectors (a constant) step by step: one alone takes as long as four, because each step
 * waits for the one before it, and the core looks too little ahead to find the next vector by
 * itself. */
static inline __attribute__((always_inline)) void v_exp_each(const int count, vec16 *x) {
    static const float factor[7] = {
        1.38888889e-3f, 8.33333333e-3f, 4.16666667e-2f, 1.66666667e-1f, 0.5f, 1.0f, 1.0f};
    const vec16 low = v_set(-87.33654f), high = v_set(88.72283f);
    ivec16 exponent[LANES_TOGETHER];
    vec16 r[LANES_TOGETHER], p[LANES_TOGETHER];
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        r[i] = v_min(v_max(x[i], low), high); /* NaN becomes −87 here and NaN again below */
        exponent[i] = v_to_int(v_mul(r[i], v_set(1.44269504f)));
    }
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        vec16 n = v_from_int(exponent[i]);
        r[i] = v_fnma(n, v_set(1.42860677e-6f), v_fnma(n, v_set(0.693145752f), r[i]));
        p[i] = v_set(1.98412698e-4f);
    }
#pragma GCC unroll 7
    for (int step = 0; step < 7; step++)
#pragma GCC unroll 4
        for (int i = 0; i < count; i++)
            p[i] = v_fma(p[i], r[i], v_set(factor[step]));
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        /* 2^n in two factors, so that n = 128 needs no care. */
        ivec16 half = iv_shift_right(exponent[i], 1);
        ivec16 rest = iv_sub(exponent[i], half);
        vec16 first = v_from_bits(iv_shift_left(iv_add(half, iv_set(127)), 23));
        vec16 second = v_from_bits(iv_shift_left(iv_add(rest, iv_set(127)), 23));
        vec16 result = v_mul(v_mul(p[i], first), second);
        result = v_select(v_less(x[i], low), v_zero(), result);
        result = v_select(v_less(high, x[i]), v_set(__builtin_inff()), result);
        x[i] = v_select(v_is_nan(x[i]), x[i], result);
    }
}

static inline vec16 v_exp(vec16 x) {
    v_exp_each(1, &x);
    return x;
}

static inline __attribute__((always_inline)) void v_sigmoid_each(const int count, vec16 *x) {
#pragma GCC unroll 4
    for (int i = 0; i < count; i++)
        x[i] = v_sub(v_zero(), x[i]);
    v_exp_each(count, x);
#pragma GCC unroll 4
    for (int i = 0; i < count; i++)
        x[i] = v_div(v_set(1.0f), v_add(v_set(1.0f), x[i]));
}

static inline __attribute__((always_inline)) void v_tanh_each(const int count, vec16 *x) {
#pragma GCC unroll 4
    for (int i = 0; i < count; i++)
        x[i] = v_add(x[i], x[i]);
    v_exp_each(count, x);
#pragma GCC unroll 4
    for (int i = 0; i < count; i++)
        x[i] = v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(x[i], v_set(1.0f))));
}

static inline vec16 v_tanh(vec16 x) {
    v_tanh_each(1, &x);
    return x;
}

#endif
