/* Lines of the file of answers that draft heads learn (train/heads_answers.h), from any bytes: the
 * first and one of the others. What is taken keeps its limits. */
#include "train/heads_answers.h"

#include <stdlib.h>

enum { MOST = 8, VOCABULARY = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena arena;
    int32_t tokens[MOST];
    uint32_t count = 0;
    text_view line = {(const char *)data, size};
    arena_init(&arena, NULL, (size_t)64 << 20);
    (void)answers_read_key(&arena, line, 0x0123456789abcdefu);
    arena_reset(&arena);
    if (answers_read_line(&arena, line, VOCABULARY, MOST, tokens, &count)) {
        if (count == 0 || count > MOST)
            abort();
        for (uint32_t i = 0; i < count; i++)
            if (tokens[i] < 0 || tokens[i] >= VOCABULARY)
                abort();
    }
    arena_free(&arena);
    return 0;
}
