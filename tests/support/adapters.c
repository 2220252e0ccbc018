/* Random adapters for tests. */
#include "support/adapters.h"

#include "support/support.h"

avo_adapter *test_adapter_make(const avo_model *model, const adapter_random_options *options) {
    avo_error error = {0};
    avo_adapter *adapter = NULL;
    adapter_base base = test_adapter_base(model);
    assert_ok_error(adapter_random(&base, options, NULL, &adapter, &error), &error);
    return adapter;
}
