/* server/head on any bytes: nothing outside them is read, a verdict does not change with what comes
 * behind it, and a whole head judged in pieces was never refused before. */
#include "server/transport/head.h"

#include <stdlib.h>

#define LIMIT 512

static bool inside(text_view view, const uint8_t *data, size_t size) {
    const char *begin = (const char *)data;
    return view.size == 0 ||
           (view.data >= begin && view.size <= size - (size_t)(view.data - begin));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    head whole = head_check((text_view){(const char *)data, size}, LIMIT);
    if (!inside(whole.method, data, size) || !inside(whole.target, data, size))
        abort();
    if ((whole.state == HEAD_BAD) != (whole.status >= 400 && whole.text != NULL))
        abort();
    head_state before = HEAD_PARTIAL;
    for (size_t part = 0; part <= size && part <= LIMIT; part++) {
        head seen = head_check((text_view){(const char *)data, part}, LIMIT);
        if (before != HEAD_PARTIAL && seen.state != before)
            abort();
        before = seen.state;
    }
    if (before != HEAD_PARTIAL && before != whole.state)
        abort();
    return 0;
}
