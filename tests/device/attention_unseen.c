/* device/attention: what a row does not see changes none of its bits, be it infinite or no number:
 * slots that were never written, tokens behind it in the same step, tokens before its window. */
#include "support/support.h"

#include "device/attention_world.h"
#include "support/op_tables.h"

#include <stdio.h>

static op_table tables[TEST_OP_TABLES];
static size_t table_count;

static int make_tables(void **state) {
    (void)state;
    table_count = test_op_tables(tables);
    return 0;
}

static const shape shapes[] = {
    {2, 1, 5, 40, 0, 0, false, true},     {9, 3, 64, 130, 0, 0, false, false},
    {4, 4, 20, 100, 33, 0, false, true},  {8, 1, 64, 75, 0, 30.0f, false, true},
    {7, 1, 80, 110, 20, 0, true, true},   {4, 1, 128, 97, 64, 5.0f, true, false},
    {130, 1, 16, 40, 0, 0, false, false},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Bits are checked without AddressSanitizer. With it one stale value and one type for each shape.
 */
#ifdef __SANITIZE_ADDRESS__
#define STALE_EACH 0
#else
#define STALE_EACH 1
#endif
static bool left_out(size_t shape, int type) {
#ifdef __SANITIZE_ADDRESS__
    return type != (int)(shape % KV_TYPE_COUNT);
#else
    (void)shape;
    (void)type;
    return false;
#endif
}

/* NaN in every type; infinite as f32 (and in scales) and bf16, both signs; infinite as f16; a large
 * number as f32, no number as fp8. */
static const uint32_t stale[] = {0xffffffffu, 0x7f807f80u, 0xff800000u, 0x7c00fc00u, 0x7f7f7f7fu};
#define STALE (sizeof(stale) / sizeof(stale[0]))

/* Threads and rows of a step: whole prompts, chunks, token by token. */
static const uint32_t ways[][2] = {{1, 1000}, {2, 1}, {2, 17}, {1, 33}};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* Pages hold what an earlier session or a truncated timeline left. */
static void slots_never_written(void **state) {
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (int type = 0; type < KV_TYPE_COUNT; type++) {
            if (left_out(s, type))
                continue;
            world w;
            world_open(&w, &shapes[s], (kv_type)type, 1);
            float *want = run_session(&w, &tables[0], 1, w.length, 0);
            for (size_t t = 0; t < table_count; t++)
                for (size_t i = 0; i < STALE; i++) {
                    if ((t == 0 || !STALE_EACH) && i != (s + t + (size_t)type) % STALE)
                        continue; /* plain C is slow, too */
                    const uint32_t *way = ways[(i + s) % WAYS];
                    char what[64];
                    snprintf(what, sizeof(what), "stale %08x, chunks of %u", stale[i], way[1]);
                    w.stale = stale[i];
                    float *got = run_session(&w, &tables[t], way[0],
                                             way[1] < w.length ? way[1] : w.length, 0);
                    check_equal(&w, want, got, 0, what, tables[t].name);
                    free(got);
                }
            free(want);
            world_close(&w);
        }
}

/* The reference looks at no more. */
static void slots_the_reference_passes_by(void **state) {
    (void)state;
    for (size_t s = 0; s < SHAPES; s++)
        for (int type = 0; type < KV_TYPE_COUNT; type++) {
            if (left_out(s, type))
                continue;
            world w;
            world_open(&w, &shapes[s], (kv_type)type, 1);
            float *want = run_session(&w, NULL, 1, w.length, 0);
            w.stale = stale[(s + (size_t)type) % STALE];
            float *got = run_session(&w, NULL, 2, 7, 0);
            check_equal(&w, want, got, 0, "stale", "reference");
            free(got);
            free(want);
            world_close(&w);
        }
}

/* Timelines over several splits, one of them begun by a window in the middle of a page. */
static void slots_of_long_timelines(void **state) {
    (void)state;
    static const shape longs[] = {{6, 2, 64, 525, 0, 0, false, false},
                                  {4, 1, 20, 813, 300, 0, false, false}};
    for (size_t s = 0; s < 2; s++)
        for (int type = 0; type < KV_TYPE_COUNT; type++) {
            if (left_out(s, type))
                continue;
            world w;
            world_open(&w, &longs[s], (kv_type)type, 1);
            uint32_t from = w.length - 9;
            float *want = run_session(&w, &tables[0], 1, 9, from);
            for (size_t t = 1; t < table_count; t++)
                for (uint32_t chunk = 1; chunk <= 9; chunk += 8) {
                    w.stale = stale[(size_t)type % STALE];
                    float *got = run_session(&w, &tables[t], 2, chunk, from);
                    check_equal(&w, want, got, from, "long, stale", tables[t].name);
                    free(got);
                }
            free(want);
            world_close(&w);
        }
}

static bool token_sees(const world *w, uint32_t token, uint32_t other) {
    return other <= token && (w->layer.window == 0 || token - other < w->layer.window);
}

/* Makes K and V of one token infinite or no number. */
static void spoil(world *w, uint32_t token, float x) {
    size_t k = (size_t)w->layer.kv_heads * w->layer.head_size;
    for (size_t i = 0; i < k; i += 3) {
        w->key[token * k + i] = x;
        w->value[token * k + i] = -x;
    }
}

/* Rows that do not see the spoilt token have the bits that they had; those that see it differ. */
static void check_spoilt(const world *w, const float *want, const float *got, uint32_t token,
                         const char *table) {
    size_t q = (size_t)w->layer.heads * w->layer.head_size;
    for (uint32_t row = 0; row < w->length; row++) {
        bool equal = memcmp(want + row * q, got + row * q, q * sizeof(float)) == 0;
        if (equal == token_sees(w, row, token))
            fail_msg("%s, kv %s, size %u, window %u: row %u and token %u", table,
                     kv_type_name(w->kv.type), w->layer.head_size, w->layer.window, row, token);
    }
}

static void tokens_that_a_row_does_not_see(void **state) {
    (void)state;
    static const uint32_t tokens[] = {1, 37};
    for (size_t s = 0; s < SHAPES; s++)
        for (int type = 0; type < KV_TYPE_COUNT; type++)
            for (size_t i = 0; i < 2 && !left_out(s, type); i++) {
                world w;
                world_open(&w, &shapes[s], (kv_type)type, 1);
                float *want = run_session(&w, &tables[0], 1, w.length, 0);
                spoil(&w, tokens[i], (s + (size_t)type) % 2 == 0 ? NAN : INFINITY);
                for (size_t t = i; t < table_count; t++) {
                    const uint32_t *way = ways[(t + s) % WAYS];
                    float *got = run_session(&w, &tables[t], way[0],
                                             way[1] < w.length ? way[1] : w.length, 0);
                    check_spoilt(&w, want, got, tokens[i], tables[t].name);
                    free(got);
                }
                free(want);
                world_close(&w);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_never_written),
        cmocka_unit_test(slots_the_reference_passes_by),
        cmocka_unit_test(slots_of_long_timelines),
        cmocka_unit_test(tokens_that_a_row_does_not_see),
    };
    return cmocka_run_group_tests(tests, make_tables, NULL);
}
