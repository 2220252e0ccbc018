/* server/otlp's two readers on any bytes: the collector's address, and a client's traceparent. */
#include "server/otlp.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    otlp_parent parent;
    otlp_target target;
    avo_error error = {0};
    bool read = otlp_parent_read((text_view){size == 0 ? "" : (const char *)data, size}, &parent);
    if (!read && !parent.sampled)
        abort();
    char *url = malloc(size + 1);
    if (url == NULL)
        return 0;
    if (size > 0)
        memcpy(url, data, size);
    url[size] = '\0';
    avo_status status = otlp_target_read(url, &target, &error);
    if (status == AVO_OK &&
        (target.port == 0 || target.path[0] != '/' || strlen(target.path) >= sizeof(target.path)))
        abort();
    free(url);
    return 0;
}
