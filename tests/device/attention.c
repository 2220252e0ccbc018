/* device/attention: every op table against plain C bit for bit, over odd heads, groups, windows,
 * soft caps, chunks, sessions and threads; plain C against the reference within bounds.
 * AVO_TEST_THREADS */
#include "support/support.h"

#include "device/attention_world.h"
#include "support/op_tables.h"

#include <stdio.h>

/* Instrumented, plain C takes most of the time and no thread: there a vector table on one thread
 * says what is right, and what runs on one thread alone is left out. */
#ifdef __SANITIZE_THREAD__
#define RACES_ONLY true
#else
#define RACES_ONLY false
#endif

static op_table tables[TEST_OP_TABLES];
static size_t table_count;

static const op_table *truth(void) {
    return &tables[RACES_ONLY ? table_count - 1 : 0];
}

static int make_tables(void **state) {
    (void)state;
    table_count = test_op_tables(tables);
    for (size_t i = 0; i < table_count; i++)
        print_message("table: %s\n", tables[i].name);
    return 0;
}

static const shape shapes[] = {
    {1, 1, 5, 1, 0, 0, false, false},       {2, 1, 5, 40, 0, 0, false, true},
    {6, 2, 12, 65, 0, 0, true, false},      {4, 4, 20, 100, 33, 0, false, true},
    {9, 3, 64, 130, 0, 0, false, false},    {8, 1, 64, 75, 0, 30.0f, false, true},
    {7, 1, 80, 70, 20, 0, true, true},      {5, 1, 96, 66, 0, 0, false, false},
    {4, 1, 128, 97, 64, 5.0f, true, false}, {2, 2, 256, 50, 0, 0, false, false},
    {130, 1, 16, 40, 0, 0, false, false},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* AddressSanitizer looks for wrong addresses; bits are compared without it, in every type. */
static bool left_out(size_t shape, int type) {
#ifdef __SANITIZE_ADDRESS__
    return type != (int)(shape % KV_TYPE_COUNT) && type != (int)((shape + 2) % KV_TYPE_COUNT);
#else
    (void)shape;
    (void)type;
    return false;
#endif
}

/* Whole, in chunks, token by token, with one thread and several: the same bits from every table. */
static void tables_agree(void **state) {
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (int type = 0; type < KV_TYPE_COUNT; type++) {
            if (left_out(s, type))
                continue;
            world w;
            world_open(&w, &shapes[s], (kv_type)type, 1);
            float *want = run_session(&w, truth(), 1, w.length, 0);
            for (size_t t = 0; t < table_count; t++) {
                static const uint32_t ways[][2] = {{1, 1000}, {2, 1000}, {2, 1}, {3, 17}, {1, 33}};
                for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                    if (t == 0 && (RACES_ONLY || i != s % 5))
                        continue; /* plain C is slow */
                    if (RACES_ONLY && ways[i][0] == 1)
                        continue;
                    uint32_t chunk = ways[i][1] < w.length ? ways[i][1] : w.length;
                    float *got = run_session(&w, &tables[t], ways[i][0], chunk, 0);
                    char what[64];
                    snprintf(what, sizeof(what), "%u threads, chunks of %u", ways[i][0], chunk);
                    check_equal(&w, want, got, 0, what, tables[t].name);
                    free(got);
                }
            }
            free(want);
            world_close(&w);
        }
}

/* Timelines over several splits; only the last rows are attended. */
static void long_timelines_agree(void **state) {
    (void)state;
    static const shape longs[] = {{6, 2, 64, 1500, 0, 0, false, false},
                                  {3, 1, 20, 1030, 0, 0, false, true},
                                  {4, 1, 16, 1290, 700, 0, false, false}};
    for (size_t s = 0; s < sizeof(longs) / sizeof(longs[0]); s++)
        for (int type = 0; type < KV_TYPE_COUNT; type++) {
            world w;
            world_open(&w, &longs[s], (kv_type)type, 1);
            uint32_t from = w.length - 9;
            float *want = run_session(&w, truth(), 1, 9, from);
            for (size_t t = 1; t < table_count; t++)
                for (uint32_t threads = RACES_ONLY ? 3 : 1; threads <= 3; threads++)
                    for (uint32_t chunk = 1; chunk <= 9; chunk += 8) {
                        float *got = run_session(&w, &tables[t], threads, chunk, from);
                        check_equal(&w, want, got, from, "long", tables[t].name);
                        free(got);
                    }
            free(want);
            world_close(&w);
        }
}

/* Rows of several sessions in one step are what they are alone. */
static void sessions_do_not_mix(void **state) {
    (void)state;
    static const shape two = {6, 2, 20, 300, 0, 0, false, false};
    enum { SESSIONS = 3 };
    static const uint32_t begins[SESSIONS] = {299, 0, 270}; /* 1 row, 300 rows, 30 rows */
    for (int type = 0; type < KV_TYPE_COUNT; type++)
        for (size_t t = 1; t < table_count; t++)
            for (uint32_t threads = RACES_ONLY ? 2 : 1; threads <= 2; threads++) {
                world w;
                world_open(&w, &two, (kv_type)type, SESSIONS);
                pool_clear(&w);
                size_t q = (size_t)w.layer.heads * w.layer.head_size;
                runner r;
                runner_open(&r, &w, &tables[t], threads, 600);
                for (uint32_t i = 0; i < SESSIONS; i++)
                    if (begins[i] > 0) {
                        r.batch.rows = r.batch.segments = 0;
                        add_rows(&r, i, 0, begins[i]);
                        run_step(&r, false);
                    }
                float *alone = calloc(600 * q, sizeof(float));
                uint32_t row = 0;
                for (uint32_t i = 0; i < SESSIONS; i++) {
                    r.batch.rows = r.batch.segments = 0;
                    add_rows(&r, i, begins[i], w.length - begins[i]);
                    run_step(&r, true);
                    memcpy(alone + row * q, r.scratch.attended,
                           (w.length - begins[i]) * q * sizeof(float));
                    row += w.length - begins[i];
                }
                r.batch.rows = r.batch.segments = 0;
                for (uint32_t i = 0; i < SESSIONS; i++)
                    add_rows(&r, i, begins[i], w.length - begins[i]);
                run_step(&r, true);
                assert_memory_equal(alone, r.scratch.attended, row * q * sizeof(float));
                free(alone);
                runner_close(&r);
                world_close(&w);
            }
}

/* The reference stores the same numbers, but for a rounding now and then, and computes in floats;
 * INT8 besides has the query and the weights in eight bits. */
static void plain_is_near_the_reference(void **state) {
    (void)state;
    if (RACES_ONLY)
        return;
    static const double bounds[KV_TYPE_COUNT] = {1e-5, 2e-4, 1e-3, 4e-2, 1e-2};
    for (size_t s = 0; s < SHAPES; s++)
        for (int type = 0; type < KV_TYPE_COUNT; type++) {
            if (left_out(s, type))
                continue;
            world w;
            world_open(&w, &shapes[s], (kv_type)type, 1);
            float *want = run_session(&w, NULL, 1, w.length, 0);
            float *got = run_session(&w, &tables[table_count - 1], 1, w.length, 0);
            double worst = 0;
            for (size_t i = 0; i < (size_t)w.length * w.layer.heads * w.layer.head_size; i++)
                worst = fmax(worst, fabs((double)want[i] - (double)got[i]));
            if (!(worst <= bounds[type]))
                fail_msg("shape %zu, kv %s: %g is more than %g", s, kv_type_name((kv_type)type),
                         worst, bounds[type]);
            free(want);
            free(got);
            world_close(&w);
        }
}

/* The write and the rotations alone, with numbers that are none. */
static void writes_agree(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 5, 12, 20, 64, 80, 96, 128, 256};
    for (size_t t = 1; t < table_count; t++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
            for (int odd = 0; odd < 4; odd++) {
                uint32_t size = sizes[s];
                float key[256], value[256], a[256], b[256];
                for (uint32_t i = 0; i < size; i++) {
                    key[i] = noise(20 + (uint64_t)odd, i) * powf(10.0f, (float)(i % 9) - 5.0f);
                    value[i] = odd == 1 ? 0.0f : noise(30, i) * 1e5f;
                }
                if (odd >= 2)
                    key[size / 2] = odd == 2 ? NAN : -INFINITY;
                for (int type = 0; type < KV_TYPE_COUNT; type++) {
                    size_t bytes = kv_head_bytes((kv_type)type, size);
                    uint8_t *want = test_take_exact(bytes, 64);
                    uint8_t *got = test_take_exact(bytes, 64);
                    memset(want, 0, bytes);
                    memset(got, 0, bytes);
                    tables[0].kv_write((kv_type)type, size, want, 13, key, value);
                    tables[t].kv_write((kv_type)type, size, got, 13, key, value);
                    assert_memory_equal(want, got, bytes);
                    free(want);
                    free(got);
                }
                if (odd >= 2)
                    continue;
                memcpy(a, key, sizeof(a));
                memcpy(b, key, sizeof(b));
                tables[0].kv_rotate(a, size);
                tables[t].kv_rotate(b, size);
                assert_memory_equal(a, b, size * sizeof(float));
                for (int interleaved = 0; interleaved < 2; interleaved++) {
                    rotary_table table = {.pairs = size / 2, .interleaved = interleaved != 0};
                    tables[0].rotate(&table, value, key, a);
                    tables[t].rotate(&table, value, key, b);
                    assert_memory_equal(a, b, size * sizeof(float));
                }
            }
}

/* Far out angles are those of exact arithmetic. */
static void angles_are_exact(void **state) {
    (void)state;
    double frequency[64];
    for (int i = 0; i < 64; i++)
        frequency[i] = pow(500000.0, -i / 64.0);
    rotary_table table = {.pairs = 64, .frequency = frequency, .magnitude = 1.0};
    static const uint32_t positions[] = {0, 1, 8191, 65537, 131071, 1048575};
    for (size_t p = 0; p < sizeof(positions) / sizeof(positions[0]); p++) {
        float cosine[64], sine[64];
        rotary_angles(&table, positions[p], cosine, sine);
        for (int i = 0; i < 64; i++) {
            long double angle = (long double)positions[p] * (long double)frequency[i];
            assert_true(fabsl(cosl(angle) - (long double)cosine[i]) < 4e-8L);
            assert_true(fabsl(sinl(angle) - (long double)sine[i]) < 4e-8L);
        }
    }
}

/* A NaN in the query shows in its own row and in no other. */
static void no_number_shows(void **state) {
    (void)state;
    static const shape one = {2, 1, 20, 40, 0, 0, false, false};
    for (int type = 0; type < KV_TYPE_COUNT; type++)
        for (size_t t = 0; t < table_count; t++) {
            world w;
            world_open(&w, &one, (kv_type)type, 1);
            w.query[(size_t)30 * 40 + 7] = NAN; /* row 30, head 0 */
            float *out = run_session(&w, &tables[t], 1, 40, 0);
            for (size_t i = 0; i < 40 * 40; i++)
                assert_true((out[i] != out[i]) == (i / 20 == 60));
            free(out);
            world_close(&w);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_agree),
        cmocka_unit_test(tables_agree),
        cmocka_unit_test(long_timelines_agree),
        cmocka_unit_test(sessions_do_not_mix),
        cmocka_unit_test(plain_is_near_the_reference),
        cmocka_unit_test(angles_are_exact),
        cmocka_unit_test(no_number_shows),
    };
    return cmocka_run_group_tests(tests, make_tables, NULL);
}
