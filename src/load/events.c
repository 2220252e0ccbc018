/* Lines of an event stream. */
#include "load/events.h"

#include "base/cursor.h"

#include <string.h>

static void read_line(text_view line, events_take take, void *context) {
    while (line.size > 0 && line.data[line.size - 1] == '\r')
        line.size--;
    if (line.size < 6 || memcmp(line.data, "data:", 5) != 0)
        return; /* a comment, an event's name, an empty line */
    line = (text_view){line.data + 5, line.size - 5};
    while (line.size > 0 && line.data[0] == ' ')
        line = (text_view){line.data + 1, line.size - 1};
    if (!text_equal(line, text_from("[DONE]")))
        take(context, line);
}

void events_read(buffer *line, events_take take, void *context) {
    size_t taken = 0;
    for (;;) {
        const char *rest = line->data + taken;
        const char *end = line->size == taken ? NULL : memchr(rest, '\n', line->size - taken);
        if (end == NULL)
            break;
        read_line((text_view){rest, (size_t)(end - rest)}, take, context);
        taken += (size_t)(end - rest) + 1;
    }
    if (taken > 0)
        memmove(line->data, line->data + taken, line->size - taken);
    line->size -= taken;
}
