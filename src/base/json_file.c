/* Reading and writing JSON files. */
#include "base/json_file.h"

#include "base/file.h"

avo_status json_file_read(arena *arena, const char *path, size_t most, json_value *root,
                          avo_error *error) {
    text_view text;
    AVO_TRY(file_read_text(arena, path, most, &text, error));
    avo_status status = json_parse(arena, text, root, error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", path);
}

avo_status json_file_write(json_writer *w, const char *path, avo_error *error) {
    avo_status status = json_writer_status(w);
    AVO_THEN(status, buffer_append(w->out, "\n", 1));
    if (status != AVO_OK)
        return status_fail(error, status, "%s: %s", path, avo_status_text(status));
    return file_write(path, w->out->data, w->out->size, error);
}
