/* Packing: calls keep the order, hold what they may, and waste no call. */
#include "support/support.h"

#include "base/random.h"
#include "train/pack.h"

#include <string.h>

static void calls_keep_order_and_limits(void **state) {
    (void)state;
    uint32_t lengths[100];
    size_t ends[100], calls;
    avo_error error = {0};
    for (uint64_t round = 0; round < 200; round++) {
        size_t count = random_at(round, 0, 0).words[0] % 101;
        uint32_t sequences = 1 + random_at(round, 0, 1).words[0] % 9;
        for (size_t i = 0; i < count; i++)
            lengths[i] = 2 + random_at(round, 1, i).words[0] % 255;
        assert_ok(train_pack(lengths, count, 256, sequences, ends, &calls, &error));
        size_t begin = 0;
        uint64_t before = 0;
        for (size_t call = 0; call < calls; call++) {
            uint64_t rows = 0;
            assert_true(ends[call] > begin && ends[call] - begin <= sequences);
            for (size_t i = begin; i < ends[call]; i++)
                rows += lengths[i];
            assert_true(rows <= 256);
            /* The first sample did not fit into the call before. */
            if (call > 0)
                assert_true(before + lengths[begin] > 256 ||
                            begin - (call > 1 ? ends[call - 2] : 0) == sequences);
            before = rows;
            begin = ends[call];
        }
        assert_int_equal(begin, count);
    }
}

static void what_cannot_fit_is_refused(void **state) {
    (void)state;
    static const uint32_t lengths[] = {10, 257};
    size_t ends[2], calls;
    avo_error error = {0};
    assert_refused(train_pack(lengths, 2, 256, 4, ends, &calls, &error), AVO_ERROR_LIMIT, &error,
                   "257 tokens, a call can have at most 256");
    assert_refused(train_pack(lengths, 1, 256, 0, ends, &calls, &error), AVO_ERROR_ARGUMENT, &error,
                   "at least one");
    assert_ok(train_pack(lengths, 2, 257, 4, ends, &calls, &error));
    assert_int_equal(calls, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_keep_order_and_limits),
        cmocka_unit_test(what_cannot_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
