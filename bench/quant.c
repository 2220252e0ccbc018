/* Rates of decode, repack and encode on one thread, and the reconstruction error of the native
 * types.
 *
 *   bench_quant [FILE.bin]    FILE.bin: a llama2.c model, for errors on real weights
 *   bench_quant repack        repack only
 *
 * The error is the sum of squared differences over the sum of squares; "gaussian" and "student t5"
 * are seeded draws of 256 × 4,096, "model" the matrices of FILE.bin.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "quant/feedback.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 256, K = 4096 };

static const quant_type native[] = {QUANT_F16,  QUANT_BF16, QUANT_F8C,   QUANT_Q8C,   QUANT_Q8B,
                                    QUANT_Q4_0, QUANT_Q4_1, QUANT_Q4B64, QUANT_Q4M64, QUANT_Q4R};

static double gaussian_at(uint64_t stream, uint64_t index) {
    double radius = sqrt(-2 * log(1 - random_uniform_at(1, stream, 2 * index)));
    return radius * cos(6.283185307179586 * random_uniform_at(1, stream, 2 * index + 1));
}

static double student_at(uint64_t index) {
    double square = 0;
    for (uint64_t i = 0; i < 5; i++)
        square += gaussian_at(2, 5 * index + i) * gaussian_at(2, 5 * index + i);
    return gaussian_at(3, index) / sqrt(square / 5);
}

typedef struct sums {
    double error, energy, seconds;
    uint64_t elements, bytes;
} sums;

static void add_matrix(quant_type type, const float *source, uint32_t rows, uint32_t k,
                       sums *total) {
    uint64_t panel_bytes;
    if (!weight_panel_bytes(type, k, &panel_bytes))
        exit(1);
    uint8_t *panel = malloc(panel_bytes);
    float *decoded = malloc((size_t)k * sizeof(float));
    float *scratch = malloc(feedback_scratch_floats(k) * sizeof(float));
    for (uint32_t first = 0; first < rows; first += QUANT_PANEL_ROWS) {
        uint32_t count = rows - first < QUANT_PANEL_ROWS ? rows - first : QUANT_PANEL_ROWS;
        uint64_t begin = clock_now_ns();
        if (feedback_known(type)) /* by search, as pack does without a calibration */
            feedback_encode_panel(type, source + (size_t)first * k, count, k, NULL, false, scratch,
                                  panel, NULL);
        else
            weight_encode_panel(type, source + (size_t)first * k, count, k, panel);
        total->seconds += clock_seconds(begin, clock_now_ns());
        weight_view view = {
            .type = type, .layout = QUANT_LAYOUT_PANELS, .rows = count, .k = k, .data = panel};
        for (uint32_t row = 0; row < count; row++) {
            weight_decode_row(&view, row, decoded);
            const float *wanted = source + (size_t)(first + row) * k;
            for (uint32_t i = 0; i < k; i++) {
                double difference = (double)decoded[i] - wanted[i];
                total->error += difference * difference;
                total->energy += (double)wanted[i] * wanted[i];
            }
        }
        total->elements += (uint64_t)count * k;
        total->bytes += panel_bytes;
    }
    free(panel);
    free(decoded);
    free(scratch);
}

static void print_errors(const char *what, quant_type type, const sums *total) {
    printf("%-5s %-11s error %.6f  %.3f bits  encode %.1f M/s\n", quant_name(type), what,
           total->error / total->energy, 8.0 * (double)total->bytes / (double)total->elements,
           (double)total->elements / total->seconds * 1e-6);
}

/* llama2.c v0: seven int32, then embedding, norms and matrices of all layers together. */
static void model_errors(const char *path) {
    file_map map;
    avo_error error;
    if (file_map_open(path, &map, &error) != AVO_OK) {
        fprintf(stderr, "bench_quant: %s\n", error.text);
        exit(1);
    }
    const int32_t *header = (const int32_t *)(const void *)map.bytes.data;
    uint32_t dim = (uint32_t)header[0], hidden = (uint32_t)header[1], layers = (uint32_t)header[2];
    uint32_t kv = dim / (uint32_t)header[3] * (uint32_t)header[4];
    uint32_t vocabulary = (uint32_t)abs(header[5]);
    for (size_t t = 0; t < sizeof(native) / sizeof(native[0]); t++) {
        const float *at = (const float *)(const void *)(map.bytes.data + 28);
        const uint32_t shapes[][2] = {{vocabulary, dim},
                                      {layers, 0},
                                      {layers * dim, dim},
                                      {layers * kv, dim},
                                      {layers * kv, dim},
                                      {layers * dim, dim},
                                      {layers, 0},
                                      {layers * hidden, dim},
                                      {layers * dim, hidden},
                                      {layers * hidden, dim}};
        sums total = {0};
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            if (shapes[s][1] != 0 && s > 0)
                add_matrix(native[t], at, shapes[s][0], shapes[s][1], &total);
            at += (size_t)shapes[s][0] * (shapes[s][1] != 0 ? shapes[s][1] : dim);
        }
        print_errors("model", native[t], &total);
    }
    file_map_close(&map);
}

static void decode_rates(void) {
    static const quant_type types[] = {
        QUANT_F32,  QUANT_F16,  QUANT_BF16,   QUANT_F8_E4M3, QUANT_Q4_0, QUANT_Q4_1,
        QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0,   QUANT_Q2_K,    QUANT_Q3_K, QUANT_Q4_K,
        QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL, QUANT_IQ4_XS,  QUANT_MXFP4};
    float *panel = malloc((size_t)K * QUANT_PANEL_ROWS * sizeof(float));
    float *row = malloc((size_t)K * sizeof(float));
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]) + 6; t++) {
        static const quant_type panels[] = {QUANT_F32, QUANT_F16, QUANT_BF16,
                                            QUANT_Q8C, QUANT_Q8B, QUANT_Q4R};
        bool in_rows = t < sizeof(types) / sizeof(types[0]);
        quant_type type = in_rows ? types[t] : panels[t - sizeof(types) / sizeof(types[0])];
        quant_layout layout = in_rows ? QUANT_LAYOUT_ROWS : QUANT_LAYOUT_PANELS;
        uint64_t bytes;
        if (!weight_bytes(type, layout, ROWS, K, &bytes))
            exit(1);
        uint8_t *data = malloc(bytes);
        for (uint64_t i = 0; i < bytes; i++) /* scales stay normal numbers */
            data[i] = (uint8_t)(random_at(9, t, i).words[0] % 0x38);
        weight_view view = {.type = type, .layout = layout, .rows = ROWS, .k = K, .data = data};
        double best_panel = 1e9, best_row = 1e9;
        for (int round = 0; round < 5; round++) {
            uint64_t begin = clock_now_ns();
            for (size_t p = 0; p < weight_panels(&view); p++)
                weight_decode_panel(&view, p, panel);
            uint64_t middle = clock_now_ns();
            for (size_t r = 0; r < ROWS; r++)
                weight_decode_row(&view, r, row);
            best_panel = fmin(best_panel, clock_seconds(begin, middle));
            best_row = fmin(best_row, clock_seconds(middle, clock_now_ns()));
        }
        printf("%-8s %-6s decode: panel %.2f G/s, row %.2f G/s\n", quant_name(type),
               in_rows ? "rows" : "panels", ROWS * K / best_panel * 1e-9,
               ROWS * K / best_row * 1e-9);
        free(data);
    }
    free(panel);
    free(row);
}

/* GB/s of the source; source and panels are larger than most caches. */
static void repack_rates(void) {
    static const quant_type types[] = {
        QUANT_F32,  QUANT_F16,  QUANT_BF16, QUANT_F8_E4M3, QUANT_F8_E5M2, QUANT_Q4_0,
        QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0,    QUANT_Q2_K,    QUANT_Q3_K,
        QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL,  QUANT_IQ4_XS,  QUANT_MXFP4};
    enum { REPACK_ROWS = 8192 };
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]) + 2; t++) {
        bool columns = t >= sizeof(types) / sizeof(types[0]);
        quant_type type = types[columns ? t - sizeof(types) / sizeof(types[0]) : t];
        weight_view view = {.type = type,
                            .layout = columns ? QUANT_LAYOUT_COLUMNS : QUANT_LAYOUT_ROWS,
                            .rows = REPACK_ROWS,
                            .k = K,
                            .data = NULL};
        quant_type target = weight_repack_type(&view);
        uint64_t bytes, panel_bytes;
        if (!weight_bytes(type, view.layout, REPACK_ROWS, K, &bytes) ||
            !weight_panel_bytes(target, K, &panel_bytes))
            exit(1);
        uint8_t *data = malloc(bytes);
        uint8_t *out = aligned_alloc(64, panel_bytes * REPACK_ROWS / QUANT_PANEL_ROWS);
        memset(data, 0x35, bytes);
        view.data = data;
        double best = 1e9;
        for (int round = 0; round < 3; round++) {
            uint64_t begin = clock_now_ns();
            for (size_t p = 0; p < weight_panels(&view); p++)
                weight_repack_panel(&view, p, target, out + p * panel_bytes);
            best = fmin(best, clock_seconds(begin, clock_now_ns()));
        }
        printf("%-8s %-8s repack: %.2f GB/s\n", quant_name(type), columns ? "columns" : "rows",
               (double)bytes / best * 1e-9);
        free(out);
        free(data);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "repack") == 0) {
        repack_rates();
        return 0;
    }
    float *source = malloc(sizeof(float) * ROWS * K);
    for (int kind = 0; kind < 2; kind++) {
        for (uint64_t i = 0; i < (uint64_t)ROWS * K; i++)
            source[i] = (float)(0.02 * (kind == 0 ? gaussian_at(1, i) : student_at(i)));
        for (size_t t = 0; t < sizeof(native) / sizeof(native[0]); t++) {
            sums total = {0};
            add_matrix(native[t], source, ROWS, K, &total);
            print_errors(kind == 0 ? "gaussian" : "student t5", native[t], &total);
        }
    }
    free(source);
    if (argc > 1)
        model_errors(argv[1]);
    decode_rates();
    repack_rates();
    return 0;
}
