/* sched/trace on any bytes: what is read keeps its bounds, and times are in order. */
#include "sched/trace.h"

#include <stdlib.h>

#define ITEMS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    simulate_item items[ITEMS];
    uint32_t count = 0;
    avo_error error;
    text_view text = {(const char *)data, size};
    uint32_t lines = trace_lines(text);
    if (trace_parse(text, "fuzz", items, ITEMS, &count, &error) != AVO_OK)
        return 0;
    if (count > ITEMS || count > lines)
        abort();
    for (uint32_t i = 0; i < count; i++)
        if (items[i].prompt_tokens == 0 || items[i].prompt_tokens > TRACE_TOKENS_MAX ||
            items[i].new_tokens_max == 0 || items[i].new_tokens_max > TRACE_TOKENS_MAX ||
            items[i].arrival_ns == 0 || (i > 0 && items[i].arrival_ns < items[i - 1].arrival_ns))
            abort();
    return 0;
}
