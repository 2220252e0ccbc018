/* device/attention: weights of INT8 that become bytes, four rows at a time. Every op table against
 * plain C, the bits of all states: numbers of rows that are no multiple of four, pages whose values
 * are zero and must leave sums as they are (−0 included), scores that grow from page to page so far
 * that earlier sums vanish, and NaN in one row of four. */
#include "support/support.h"

#include "base/random.h"
#include "device/cpu/ops.h"
#include "support/op_tables.h"

#include <math.h>
#include <string.h>

#define PAGES    4
#define HEAD_MAX 128
#define ROWS_MAX 30

typedef enum page_kind { PLAIN_PAGES, ZERO_EVERY_SECOND, GROWING_THEN_ZERO, PAGE_KINDS } page_kind;

typedef struct timeline {
    uint32_t size, rows;
    size_t page_bytes;
    _Alignas(64) uint8_t pool[PAGES * 65536];
    float query[ROWS_MAX][HEAD_MAX];
    uint32_t begin[ROWS_MAX], end[ROWS_MAX];
} timeline;

static op_table tables[TEST_OP_TABLES];
static size_t table_count;
static timeline line;
static _Alignas(64) uint8_t queries[ATTEND_ROWS_MAX * 2048];
static _Alignas(64) uint8_t scratch[262144];

static int make_tables(void **state) {
    (void)state;
    table_count = test_op_tables(tables);
    return 0;
}

static float noise(uint64_t stream, uint64_t i) {
    return (float)(random_uniform_at(7, stream, i) * 2.0 - 1.0);
}

/* How large keys, and values, of a page are. */
static float key_size(page_kind kind, uint32_t page) {
    return kind == GROWING_THEN_ZERO ? powf(20.0f, (float)page) : 4.0f;
}
static float value_size(page_kind kind, uint32_t page) {
    bool zero =
        kind == ZERO_EVERY_SECOND ? page % 2 == 1 : kind != PLAIN_PAGES && page == PAGES - 1;
    return zero ? 0.0f : 1.0f;
}

static void fill(page_kind kind, uint32_t size, uint32_t rows) {
    line.size = size;
    line.rows = rows;
    line.page_bytes = (kv_head_bytes(KV_INT8, size) + 63) / 64 * 64;
    assert_true(line.page_bytes * PAGES <= sizeof(line.pool));
    for (uint32_t slot = 0; slot < PAGES * KV_PAGE_TOKENS; slot++) {
        uint32_t page = slot / KV_PAGE_TOKENS;
        float key[HEAD_MAX], value[HEAD_MAX];
        for (uint32_t i = 0; i < size; i++) {
            key[i] = noise(slot, i) * key_size(kind, page);
            value[i] = noise(slot, 1000 + i) * value_size(kind, page);
        }
        tables[0].kv_write(KV_INT8, size, line.pool + page * line.page_bytes, slot % KV_PAGE_TOKENS,
                           key, value);
    }
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t i = 0; i < size; i++)
            line.query[row][i] = noise(5000 + row, i) * 8.0f;
        line.begin[row] = row % 3;
        line.end[row] = PAGES * KV_PAGE_TOKENS - row % 29;
    }
}

static void attend(const op_table *table, float *states) {
    static const uint32_t pages[PAGES] = {0, 1, 2, 3};
    size_t stride = attend_state_floats(line.size);
    for (uint32_t row = 0; row < line.rows; row++)
        table->attend_query(KV_INT8, line.size, 0.3f, line.query[row], queries, row);
    attend_call call = {.type = KV_INT8,
                        .head_size = line.size,
                        .head = line.pool,
                        .page_bytes = line.page_bytes,
                        .pages = pages,
                        .last_page = PAGES - 1,
                        .pages_end = PAGES,
                        .rows = line.rows,
                        .begin = line.begin,
                        .end = line.end,
                        .query = queries,
                        .state = states,
                        .state_stride = stride,
                        .scratch = scratch};
    assert_true(attend_scratch_bytes(line.size) <= sizeof(scratch));
    memset(states, 0x55, line.rows * stride * sizeof(float));
    memset(scratch, 0xff, sizeof(scratch));
    table->attend(&call);
}

/* acc, the largest score and the sum of every row; NaN equals NaN. */
static void check_states(const float *want, const float *got, const char *name) {
    size_t stride = attend_state_floats(line.size);
    for (uint32_t row = 0; row < line.rows; row++)
        for (uint32_t i = 0; i < line.size + 2; i++) {
            size_t at =
                row * stride + (i < line.size ? i : kv_value_stride(line.size) + i - line.size);
            if (isnan(want[at]) && isnan(got[at]))
                continue;
            if (memcmp(&want[at], &got[at], sizeof(float)) != 0)
                fail_msg("%s: row %u of %u, number %u: %a, not %a", name, row, line.rows, i,
                         (double)got[at], (double)want[at]);
        }
}

static void compare_tables(void) {
    static _Alignas(64) float want[ROWS_MAX * 256], got[ROWS_MAX * 256];
    assert_true(attend_state_floats(line.size) <= 256);
    attend(&tables[0], want);
    for (size_t t = 1; t < table_count; t++) {
        attend(&tables[t], got);
        check_states(want, got, tables[t].name);
    }
}

static const uint32_t sizes[] = {16, 40, 64, 128};
static const uint32_t row_counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, ROWS_MAX};

static void weights_agree(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t r = 0; r < sizeof(row_counts) / sizeof(row_counts[0]); r++)
            for (int kind = 0; kind < PAGE_KINDS; kind++) {
                fill((page_kind)kind, sizes[s], row_counts[r]);
                compare_tables();
            }
}

/* The growing timeline does what it is there for: sums that vanished below zero, left as they are.
 */
static void vanished_sums_keep_their_sign(void **state) {
    (void)state;
    static _Alignas(64) float states[ROWS_MAX * 256];
    fill(GROWING_THEN_ZERO, 64, 8);
    attend(&tables[0], states);
    size_t negative = 0;
    for (uint32_t row = 0; row < line.rows; row++)
        for (uint32_t i = 0; i < line.size; i++)
            negative += states[row * attend_state_floats(line.size) + i] == 0.0f &&
                        signbit(states[row * attend_state_floats(line.size) + i]) != 0;
    assert_true(negative > 0);
}

static void no_number_stays_in_its_row(void **state) {
    (void)state;
    for (size_t t = 0; t < table_count; t++)
        for (uint32_t row = 0; row < 6; row++) {
            static _Alignas(64) float states[ROWS_MAX * 256];
            fill(PLAIN_PAGES, 64, 6);
            line.query[row][9] = NAN;
            attend(&tables[t], states);
            for (uint32_t i = 0; i < line.rows; i++)
                assert_int_equal(isnan(states[i * attend_state_floats(64)]) != 0, i == row);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_agree),
        cmocka_unit_test(vanished_sums_keep_their_sign),
        cmocka_unit_test(no_number_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, make_tables, NULL);
}
