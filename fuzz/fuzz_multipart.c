/* api/multipart on any bytes: the first line is the Content-Type, the rest the body. Every part
 * lies within the body, and what is refused has a reason. */
#include "server/api/multipart.h"

#include <stdlib.h>

static void check_inside(text_view part, text_view body) {
    if (part.size > 0 && (part.data < body.data || part.size > body.size ||
                          part.data > body.data + (body.size - part.size)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\n', size);
    size_t line = end == NULL ? size : (size_t)(end - data);
    char *type = malloc(line + 1);
    if (type == NULL)
        return 0;
    if (line > 0)
        memcpy(type, data, line);
    type[line] = '\0';
    size_t from = line < size ? line + 1 : size;
    text_view body = {(const char *)data + from, size - from};
    multipart form;
    const char *why = NULL;
    bool good = multipart_read(type, body, &form, &why);
    if (form.count > MULTIPART_PARTS_MAX || (!good && why == NULL))
        abort();
    for (size_t i = 0; good && i < form.count; i++) {
        check_inside(form.parts[i].name, body);
        check_inside(form.parts[i].filename, body);
        check_inside(form.parts[i].data, body);
    }
    free(type);
    return 0;
}
