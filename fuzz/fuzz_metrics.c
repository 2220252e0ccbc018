/* train/history: any bytes as metrics.jsonl. What is written must be JSON within its limits, and
 * the quick look must see what the whole reading sees. The first byte chooses whether the text is
 * the end of a longer file. */
#include "train/history.h"

#include <stdlib.h>

static void check_series(const json_value *root) {
    const json_value *series = json_find(root, "series");
    if (series == NULL || series->object.count > HISTORY_SERIES_MAX)
        abort();
    for (size_t i = 0; i < series->object.count; i++) {
        const json_value *points = &series->object.members[i].value;
        if (points->array.count == 0 || points->array.count > HISTORY_POINTS_MAX)
            abort();
        for (size_t n = 0; n < points->array.count; n++)
            if (points->array.items[n].array.count != 2 ||
                json_item(&points->array.items[n], 1)->kind == JSON_NULL)
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena arena;
    buffer out;
    json_value root;
    history_facts facts, quick;
    avo_error error;
    if (size == 0)
        return 0;
    text_view text = {(const char *)data + 1, size - 1};
    bool cut = data[0] == 'c';
    arena_init(&arena, NULL, (size_t)256 << 20);
    buffer_init(&out, NULL, (size_t)64 << 20);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    if (history_write(NULL, text, cut, &w, &facts, &error) != AVO_OK)
        abort();
    json_end(&w);
    if (json_writer_status(&w) != AVO_OK ||
        json_parse(&arena, buffer_text(&out), &root, &error) != AVO_OK)
        abort();
    check_series(&root);
    if (history_look(NULL, text, cut, &quick, &error) != AVO_OK || quick.lines != facts.lines ||
        quick.skipped != facts.skipped || quick.step != facts.step)
        abort();
    buffer_free(&out);
    arena_free(&arena);
    return 0;
}
