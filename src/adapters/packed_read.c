/* Packed adapters: recognised. */
#include "adapters/adapters_int.h"

bool packed_is(bytes_view bytes) {
    return bytes.size >= 4 && memcmp(bytes.data, "AVOA", 4) == 0;
}

avo_status packed_open(avo_adapter *adapter, bytes_view bytes, const adapter_options *options,
                       avo_error *error) {
    (void)bytes;
    (void)options;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: a packed adapter of another version",
                       adapter->path);
}
