/* Random adapters: their shapes, their size beside the base's, references. */
#include "support/support.h"

#include "device/runs.h"
#include "support/adapters.h"

#include <math.h>
#include <stdlib.h>

static avo_model *open_model(void) {
    avo_error error = {0};
    avo_model *model;
    assert_ok_error(avo_model_open(test_fixture_path("models/llama2"), NULL, &model, &error),
                    &error);
    return model;
}

static double norm_of(const weight_view *weight) {
    float *row = malloc(weight->k * sizeof(float));
    double sum = 0.0;
    assert_non_null(row);
    for (size_t i = 0; i < weight->rows; i++) {
        weight_decode_row(weight, i, row);
        for (size_t j = 0; j < weight->k; j++)
            sum += (double)row[j] * (double)row[j];
    }
    free(row);
    return sqrt(sum);
}

/* A of norm 1 per row, so that B's norm says how much is added. */
static void test_strength(void **state) {
    (void)state;
    avo_model *model = open_model();
    adapter_random_options options = {1, 8, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.05f};
    avo_adapter *adapter = test_adapter_make(model, &options);
    for (uint32_t layer = 0; layer < model->view.layers; layer++) {
        const adapter_delta *delta = adapter_delta_of(&adapter->view, layer, ADAPTER_QUERY);
        const linear_view *base = run_matrix(&model->view, layer, ADAPTER_QUERY);
        assert_int_equal(delta->down.rows, 8);
        assert_int_equal(delta->down.k, base->weight.k);
        assert_int_equal(delta->up.rows, base->weight.rows);
        assert_int_equal(adapter_delta_rank(delta), 8);
        double added =
            (double)delta->scale * norm_of(&delta->up) * norm_of(&delta->down) / sqrt(8.0);
        double share = added / norm_of(&base->weight);
        assert_true(share > 0.03 && share < 0.08);
    }
    assert_int_equal(adapter_rank(&adapter->view, model->view.layers), 8);
    assert_int_equal(adapter->view.rank, 8);
    adapter_release(adapter);
    avo_model_close(model);
}

static void test_references(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    avo_adapter *adapter;
    test_allocator counted;
    test_allocator_init(&counted);
    adapter_base base = test_adapter_base(model);
    adapter_random_options options = {1, 8, TEST_MATRICES_ALL, 127, QUANT_F32, 0.05f};
    assert_ok_error(adapter_random(&base, &options, &counted.allocator, &adapter, &error), &error);
    assert_ptr_equal(adapter_share(adapter), adapter);
    adapter_release(adapter);
    assert_true(counted.live > 0);
    adapter_release(adapter);
    assert_int_equal(counted.live, 0);
    adapter_release(NULL);
    /* Whatever allocation fails, nothing is left. */
    size_t allocations = counted.allocations;
    for (size_t i = 1; i <= allocations; i++) {
        test_allocator_init(&counted);
        counted.fail_at = i;
        assert_refused(adapter_random(&base, &options, &counted.allocator, &adapter, &error),
                       AVO_ERROR_MEMORY, &error, "random adapter");
        assert_int_equal(counted.live, 0);
    }
    avo_model_close(model);
}

static void test_refused(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    avo_adapter *adapter;
    adapter_base base = test_adapter_base(model);
    adapter_random_options options = {1, 0, 1, 0, QUANT_F32, 0.05f};
    assert_refused(adapter_random(&base, &options, NULL, &adapter, &error), AVO_ERROR_ARGUMENT,
                   &error, "rank is 0");
    options.rank = ADAPTER_RANK_MAX + 1;
    assert_refused(adapter_random(&base, &options, NULL, &adapter, &error), AVO_ERROR_ARGUMENT,
                   &error, "rank is 257");
    options.rank = 1;
    options.type = QUANT_Q4R;
    assert_refused(adapter_random(&base, &options, NULL, &adapter, &error), AVO_ERROR_ARGUMENT,
                   &error, "q4r");
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strength),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
