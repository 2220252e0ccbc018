/* eval/reward: descriptions of any bytes, and completions scored by those that are accepted. The
 * first line is the description, as text or as JSON, the second the item's fields, the rest a
 * completion. */
#include "eval/reward.h"

#include <stdlib.h>
#include <string.h>

#define NESTED_MAX 20000 /* bytes: what nests deeper than the parser allows is refused anyway */

/* Programs and files are the system's: their kinds are parsed no further than their names. */
static bool has_program(text_view text) {
    static const char *const words[] = {"python", "command", "json_schema:", "file"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *found = memmem(text.data, text.size, words[i], strlen(words[i]));
        if (found != NULL && strcmp(words[i], "json_schema:") != 0)
            return true;
        if (found != NULL && (found + 12 == text.data + text.size || found[12] != '{'))
            return true;
    }
    return memchr(text.data, '\\', text.size) != NULL && memmem(text.data, text.size, "\\u", 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    const char *end = size == 0 ? NULL : memchr(text, '\n', size);
    if (end == NULL || size > NESTED_MAX)
        return 0;
    text_view description = {text, (size_t)(end - text)};
    if (has_program(description))
        return 0;
    const char *line = end + 1;
    const char *line_end = memchr(line, '\n', size - description.size - 1);
    if (line_end == NULL)
        return 0;
    arena arena;
    json_value json, fields;
    reward *opened = NULL;
    avo_error error;
    arena_init(&arena, NULL, (size_t)64 << 20);
    bool is_json = json_parse(&arena, description, &json, &error) == AVO_OK;
    avo_status status = is_json ? reward_open(&json, NULL, &opened, &error)
                                : reward_open_text(description, NULL, &opened, &error);
    if ((status == AVO_OK) != (opened != NULL))
        abort();
    text_view second = {line, (size_t)(line_end - line)};
    bool has_fields = json_parse(&arena, second, &fields, NULL) == AVO_OK;
    size_t bytes = (size_t)(text + size - line_end) - 1;
    char *completion = malloc(bytes + 1);
    if (status == AVO_OK && completion != NULL) {
        memcpy(completion, line_end + 1, bytes);
        completion[bytes] = '\0';
        float score = -1.0f;
        reward_item item = {"", completion, has_fields ? &fields : NULL};
        status = reward_score(opened, &item, 1, &score, &error);
        if (status == AVO_OK && score != 0.0f && score != 1.0f)
            abort();
    }
    free(completion);
    reward_close(opened);
    arena_free(&arena);
    return 0;
}
