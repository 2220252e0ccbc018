/* Random adapters for tests. */
#ifndef AVO_TESTS_ADAPTERS_H
#define AVO_TESTS_ADAPTERS_H

#include "adapters/random.h"
#include "model/model.h"

#define TEST_MATRICES_ALL    ((1u << ADAPTER_MATRICES) - 1)
#define TEST_MATRICES_LINEAR ((1u << ADAPTER_HEAD) - 1)

static inline adapter_base test_adapter_base(const avo_model *model) {
    return (adapter_base){.config = &model->source->config, .view = &model->view};
}

/* Fails the test where it cannot be made. */
avo_adapter *test_adapter_make(const avo_model *model, const adapter_random_options *options);

#endif
