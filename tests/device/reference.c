/* device/ref: the plain operations against straightforward formulas in double precision, on odd
 * shapes, with one and several threads. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/allocator.h"
#include "base/mathd.h"
#include "base/mathf.h"
#include "base/random.h"
#include "device/cpu/ref/ref_int.h"
#include "device/kv_tile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float noise(uint64_t stream, uint64_t i) {
    return (float)(random_uniform_at(7, stream, i) * 2.0 - 1.0);
}

static float *noise_array(uint64_t stream, size_t count) {
    float *data = malloc(count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        data[i] = noise(stream, i);
    return data;
}

static void math_is_close(void **state) {
    (void)state;
    for (double x = -87.0; x < 88.0; x += 0.00371) {
        float got = math_exp((float)x);
        double want = exp((double)(float)x);
        assert_true(fabs(got - want) <= 2.0e-7 * want);
        assert_true(fabs(math_tanh((float)x) - tanh((double)(float)x)) <= 2.5e-7);
    }
    assert_true(math_exp(0.0f) == 1.0f);
    assert_true(math_exp(-1000.0f) == 0.0f);
    assert_true(math_exp(-INFINITY) == 0.0f);
    assert_true(isinf(math_exp(1000.0f)));
    assert_true(isnan(math_exp(NAN)));
}

static void doubles_are_close(void **state) {
    (void)state;
    for (double x = -200000.0; x < 200000.0; x += 3.77) {
        double sine, cosine;
        mathd_sine_cosine(x, &sine, &cosine);
        assert_true(fabs(sine - sin(x)) < 1e-15 && fabs(cosine - cos(x)) < 1e-15);
    }
    for (double x = -600.0; x < 600.0; x += 0.371)
        assert_true(fabs(mathd_exp(x) / exp(x) - 1.0) < 1e-15);
    const double far[] = {709.0, 710.0, 745.9, 746.0, 1e30, (double)INFINITY};
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
        assert_true(mathd_exp(-far[i]) <= 1e-307);
        assert_true(i == 0 || mathd_exp(far[i]) == (double)INFINITY);
    }
    assert_true(isnan(mathd_exp((double)NAN)));
    for (double x = 1e-6; x < 1e9; x *= 1.013) {
        assert_true(fabs(mathd_log(x) - log(x)) < 1e-15 * fmax(1.0, fabs(log(x))));
        for (double y = -1.0; y < 1.0; y += 0.13)
            assert_true(fabs(mathd_power(x, y) / pow(x, y) - 1.0) < 1e-14);
    }
    for (double x = -7.0; x < 7.0; x += 0.0037)
        assert_true(fabs(mathd_erf(x) - erf(x)) < 2e-14);
}

typedef struct bench {
    team *team;
    float *worker;
    size_t worker_bytes;
    scratch_view scratch;
    step_view step;
} bench;

static void bench_open(bench *b, uint32_t threads, size_t worker_floats) {
    memset(b, 0, sizeof(*b));
    assert_ok(team_open(NULL, threads, &b->team, NULL));
    b->worker_bytes = threads * worker_floats * sizeof(float);
    b->worker = allocator_take(NULL, b->worker_bytes);
    b->scratch.worker = (uint8_t *)b->worker;
    b->scratch.worker_bytes = worker_floats * sizeof(float);
    b->step.scratch = &b->scratch;
    b->step.team = b->team;
}

static void bench_close(bench *b) {
    team_close(b->team);
    allocator_give(NULL, b->worker, b->worker_bytes);
}

/* Every odd shape, 1…5 threads: close to the formula, and bit-equal between thread counts and
 * between a row alone and the same row among others. */
static void linear_by_all(const step_view *step, const linear_view *linear, const float *x,
                          uint32_t rows, float *out) {
    const weight_view *weight = &linear->weight;
    reference_linear(step, linear, x, weight->k, rows, out, weight->rows);
}

static void linear_is_right(void **state) {
    (void)state;
    static const uint32_t shapes[][3] = {/* rows of W, k, rows of x */
                                         {1, 1, 1},    {16, 16, 1}, {17, 5, 3},
                                         {33, 288, 2}, {7, 577, 5}, {100, 31, 8}};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        uint32_t n = shapes[s][0], k = shapes[s][1], rows = shapes[s][2];
        float *w = noise_array(1, (size_t)n * k);
        float *x = noise_array(2, (size_t)rows * k);
        float *bias = noise_array(3, n);
        float *first = NULL;
        linear_view linear = {.weight = {.type = QUANT_F32,
                                         .layout = QUANT_LAYOUT_ROWS,
                                         .rows = n,
                                         .k = k,
                                         .data = (const uint8_t *)w},
                              .bias = bias};
        for (uint32_t threads = 1; threads <= 5; threads++) {
            bench b;
            bench_open(&b, threads, (size_t)k * QUANT_PANEL_ROWS);
            float *out = calloc((size_t)rows * n, sizeof(float));
            linear_by_all(&b.step, &linear, x, rows, out);
            for (uint32_t r = 0; r < rows; r++) {
                for (uint32_t i = 0; i < n; i++) {
                    double sum = bias[i], size = 0;
                    for (uint32_t j = 0; j < k; j++) {
                        double product = (double)w[(size_t)i * k + j] * x[(size_t)r * k + j];
                        sum += product;
                        size += fabs(product);
                    }
                    assert_true(fabs(out[r * n + i] - sum) <= 1e-6 * (1.0 + size));
                }
                float *alone = calloc(n, sizeof(float));
                linear_by_all(&b.step, &linear, x + (size_t)r * k, 1, alone);
                assert_memory_equal(alone, out + (size_t)r * n, n * sizeof(float));
                free(alone);
            }
            if (first == NULL) {
                first = out;
            } else {
                assert_memory_equal(first, out, (size_t)rows * n * sizeof(float));
                free(out);
            }
            bench_close(&b);
        }
        free(first);
        free(w);
        free(x);
        free(bias);
    }
}

static void norms_are_right(void **state) {
    (void)state;
    for (uint32_t width = 1; width < 70; width++) {
        float *x = noise_array(4, width);
        float *weight = noise_array(5, width);
        float *bias = noise_array(6, width);
        float *out = calloc(width, sizeof(float));
        for (int layer = 0; layer < 2; layer++) {
            norm_view norm = {.kind = layer ? NORM_LAYER : NORM_RMS,
                              .epsilon = 1e-3f,
                              .weight = weight,
                              .bias = layer ? bias : NULL};
            reference_norm_vector(&norm, x, width, out);
            double mean = 0, squares = 0;
            for (uint32_t i = 0; layer && i < width; i++)
                mean += x[i] / (double)width;
            for (uint32_t i = 0; i < width; i++)
                squares += (x[i] - mean) * (x[i] - mean) / width;
            double scale = 1.0 / sqrt(squares + (double)norm.epsilon);
            for (uint32_t i = 0; i < width; i++) {
                double want = (x[i] - mean) * scale * weight[i] + (layer ? bias[i] : 0.0f);
                assert_true(fabs(out[i] - want) <= 2e-6 * (1.0 + fabs(want)));
            }
        }
        free(x);
        free(weight);
        free(bias);
        free(out);
    }
}

static void rotation_keeps_length_and_pairs(void **state) {
    (void)state;
    double frequency[4] = {1.0, 0.5, 0.1, 0.01};
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        rotary_table table = {
            .pairs = 4, .interleaved = interleaved != 0, .frequency = frequency, .magnitude = 1.0};
        float cosine[4], sine[4];
        for (int i = 0; i < 4; i++) {
            cosine[i] = (float)cos(11 * frequency[i]);
            sine[i] = (float)sin(11 * frequency[i]);
        }
        float head[10], before[10];
        for (int i = 0; i < 10; i++)
            head[i] = before[i] = noise(8, (uint64_t)i);
        reference_rotate(&table, cosine, sine, head);
        for (int i = 0; i < 4; i++) {
            int a = interleaved ? 2 * i : i;
            int b = interleaved ? 2 * i + 1 : i + 4;
            double angle = 11 * frequency[i];
            assert_true(fabs(head[a] - (before[a] * cos(angle) - before[b] * sin(angle))) < 1e-6);
            assert_true(fabs(head[b] - (before[b] * cos(angle) + before[a] * sin(angle))) < 1e-6);
        }
        assert_true(head[8] == before[8] && head[9] == before[9]); /* not rotated */
    }
}

/* One row and head against softmax(q·k)·v in double precision. */
static void check_attended(const step_view *step, uint32_t row, uint32_t head, double bound) {
    const layer_view *layer = step->model->layer;
    const scratch_view *scratch = step->scratch;
    uint32_t size = layer->head_size;
    uint32_t kv_head = head / (layer->heads / layer->kv_heads);
    uint32_t begin = layer->window > 0 && row + 1 > layer->window ? row + 1 - layer->window : 0;
    double total = 0, want[32] = {0};
    for (uint32_t p = begin; p <= row; p++) {
        size_t at = (size_t)(p * layer->kv_heads + kv_head) * size;
        double score = 0;
        for (uint32_t d = 0; d < size; d++)
            score += (double)scratch->query[(row * layer->heads + head) * size + d] *
                     scratch->key[at + d];
        score *= layer->attention_scale;
        if (layer->attention_softcap > 0)
            score = layer->attention_softcap * tanh(score / layer->attention_softcap);
        double weight = exp(score);
        total += weight;
        for (uint32_t d = 0; d < size; d++)
            want[d] += weight * scratch->value[at + d];
    }
    for (uint32_t d = 0; d < size; d++)
        assert_true(fabs(scratch->attended[(row * layer->heads + head) * size + d] -
                         want[d] / total) < bound);
}

/* A session of `length` tokens in scattered pages; the last rows attend over all before them.
 * Rotated types leave q and k rotated alike and v rotated, so that is undone before the check. */
static void attention_of_type(kv_type type, double bound) {
    static const struct {
        uint32_t heads, kv_heads, size, length, window;
        float softcap;
    } cases[] = {{1, 1, 4, 1, 0, 0},    {4, 2, 12, 33, 0, 0},    {3, 1, 20, 70, 0, 0},
                 {4, 4, 16, 100, 7, 0}, {2, 1, 8, 65, 64, 2.5f}, {6, 3, 5, 40, 1, 0}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        uint32_t heads = cases[c].heads, kv_heads = cases[c].kv_heads, size = cases[c].size;
        uint32_t length = cases[c].length, window = cases[c].window;
        layer_view layer = {.heads = heads,
                            .kv_heads = kv_heads,
                            .head_size = size,
                            .window = window,
                            .rotary = ROTARY_NONE,
                            .attention_scale = 0.7f,
                            .attention_softcap = cases[c].softcap};
        model_view model = {.layers = 1, .layer = &layer};
        uint32_t pages[4] = {5, 0, 3, 1}; /* in no order */
        size_t offset = 0;
        kv_view kv = {.type = type,
                      .page_bytes = kv_heads * kv_head_bytes(type, size),
                      .layer_offset = &offset};
        kv.pool = calloc(6, kv.page_bytes);
        float *query = noise_array(20, (size_t)length * heads * size);
        float *key = noise_array(21, (size_t)length * kv_heads * size);
        float *value = noise_array(22, (size_t)length * kv_heads * size);
        float *attended = calloc((size_t)length * heads * size, sizeof(float));
        uint32_t *position = calloc(length, sizeof(*position));
        uint32_t *row_segment = calloc(length, sizeof(*row_segment)); /* all in one */
        batch_segment segment = {.rows = length, .pages = pages};
        for (uint32_t i = 0; i < length; i++)
            position[i] = i;
        batch_view batch = {.rows = length,
                            .position = position,
                            .row_segment = row_segment,
                            .segment = &segment,
                            .segments = 1};
        bench b;
        bench_open(&b, 3, 256 + kv_tile_floats(size));
        b.scratch.query = query;
        b.scratch.key = key;
        b.scratch.value = value;
        b.scratch.attended = attended;
        b.step.model = &model;
        b.step.batch = &batch;
        b.step.kv = &kv;
        reference_position(&b.step, 0);
        reference_attention(&b.step, 0);
        for (uint32_t i = 0; kv_type_scaled(type) && i < length * kv_heads; i++)
            kv_rotate(value + i * size, size);
        for (uint32_t row = 0; row < length; row++)
            for (uint32_t head = 0; head < heads; head++)
                check_attended(&b.step, row, head, bound);
        bench_close(&b);
        free(kv.pool);
        free(query);
        free(key);
        free(value);
        free(attended);
        free(position);
        free(row_segment);
    }
}

static void attention_is_right(void **state) {
    (void)state;
    attention_of_type(KV_F32, 3e-6);
    attention_of_type(KV_F16, 1.5e-3);
    attention_of_type(KV_BF16, 1.2e-2);
    attention_of_type(KV_INT8, 1.5e-2);
    attention_of_type(KV_FP8, 1e-1);
}

static void activations_are_right(void **state) {
    (void)state;
    for (double x = -12.0; x < 12.0; x += 0.013) {
        float f = (float)x;
        double y = f;
        double silu = y / (1.0 + exp(-y));
        double tanh_form =
            0.5 * y * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (y + 0.044715 * y * y * y)));
        double erf_form = 0.5 * y * (1.0 + erf(y / sqrt(2.0)));
        assert_true(fabs(reference_activate(ACTIVATION_SILU, f) - silu) < 2e-6);
        assert_true(fabs(reference_activate(ACTIVATION_GELU_TANH, f) - tanh_form) < 2e-6);
        assert_true(fabs(reference_activate(ACTIVATION_GELU_ERF, f) - erf_form) < 2e-6);
        assert_true(reference_activate(ACTIVATION_RELU, f) == (f > 0 ? f : 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(math_is_close),
        cmocka_unit_test(doubles_are_close),
        cmocka_unit_test(linear_is_right),
        cmocka_unit_test(norms_are_right),
        cmocka_unit_test(rotation_keeps_length_and_pairs),
        cmocka_unit_test(attention_is_right),
        cmocka_unit_test(activations_are_right),
    };
    return cmocka_run_group_tests_name("device/reference", tests, NULL, NULL);
}
