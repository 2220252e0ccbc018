/* Lines of batches (api/batch_line) on any bytes: what is read lies in the line or its arena, and
 * what is refused has a reason. */
#include "server/api/batch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const batch_endpoint *endpoint = batch_endpoint_of(TEXT_LITERAL("/v1/completions"));
    arena arena;
    batch_text text = {0};
    api_fault fault = {0};
    text_view line = {size == 0 ? "" : (const char *)data, size};
    bool good = batch_text_read(endpoint, line, &arena, &text, &fault);
    if (good ? text.custom_id.size == 0 || text.custom_id.size > BATCH_CUSTOM_BYTES_MAX ||
                   text.body == NULL || text.body->kind != JSON_OBJECT
             : fault.status == 0 || fault.text[0] == '\0')
        abort();
    arena_free(&arena);
    return 0;
}
