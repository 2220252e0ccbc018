/* The settings of a training run from any bytes, for every task; those that are complete are
 * written as a checkpoint does. */
#include "train/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    arena arena;
    json_value root;
    avo_error error;
    arena_init(&arena, NULL, (size_t)64 << 20);
    if (json_parse(&arena, (text_view){(const char *)data, size}, &root, &error) == AVO_OK) {
        for (int task = 0; task < TRAIN_TASKS; task++) {
            train_settings settings;
            train_settings_init(&settings, (train_task)task);
            if (train_settings_read(&settings, &root, task % 2 != 0, &arena, "fuzz", &error) !=
                    AVO_OK ||
                train_settings_finish(&settings, &error) != AVO_OK)
                continue;
            buffer out;
            buffer_init(&out, NULL, (size_t)64 << 20);
            json_writer w = json_writer_of(&out);
            json_object_begin(&w);
            train_settings_write(&settings, true, &w);
            json_end(&w);
            (void)!json_writer_status(&w);
            buffer_free(&out);
        }
    }
    arena_free(&arena);
    return 0;
}
