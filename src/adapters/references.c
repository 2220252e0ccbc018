/* References: an adapter lives as long as somebody uses it. */
#include "adapters/adapters.h"

avo_adapter *adapter_share(avo_adapter *adapter) {
    __atomic_add_fetch(&adapter->references, 1, __ATOMIC_RELAXED);
    return adapter;
}

void adapter_release(avo_adapter *adapter) {
    if (adapter != NULL && __atomic_sub_fetch(&adapter->references, 1, __ATOMIC_ACQ_REL) == 0)
        adapter->close(adapter);
}
