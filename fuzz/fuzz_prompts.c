/* bench/prompts on any bytes: what is read keeps its bounds. */
#include "bench/prompts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bench_prompts prompts;
    avo_error error;
    text_view text = {(const char *)data, size};
    uint32_t limit = size % 3;
    avo_status status = bench_prompts_text(text, "fuzz", limit, &prompts, &error);
    if (status == AVO_OK && (prompts.count == 0 || prompts.count > BENCH_PROMPTS_MAX))
        abort();
    for (size_t i = 0; status == AVO_OK && i < prompts.count; i++) {
        size_t name = strlen(prompts.item[i].category);
        if (name == 0 || name > BENCH_CATEGORY_MAX || strpbrk(prompts.item[i].category, ",\"\n") ||
            prompts.item[i].text[0] == '\0')
            abort();
    }
    bench_prompts_free(&prompts);
    return 0;
}
