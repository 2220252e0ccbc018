/* device/ranks/message: any bytes as a step that rank 0 sends. What is accepted must keep the
 * limits that the kernels of the other ranks rely on. */
#include "device/ranks/message.h"

#include <stdlib.h>

#define ROWS    8
#define CONTEXT 64
#define ADAPTER 7 /* the number of the only one */

static const batch_limits limits = {.rows_max = ROWS,
                                    .logits_max = ROWS,
                                    .context_max = CONTEXT,
                                    .vocabulary = 100,
                                    .layers = 2,
                                    .pages_max = 40};

static const adapter_view *look_up(void *context, uint64_t number) {
    return number == ADAPTER ? context : NULL;
}

static void check_rows(const batch_view *batch) {
    if (batch->rows > limits.rows_max || batch->logit_rows > limits.logits_max)
        abort();
    for (uint32_t row = 0; row < batch->rows; row++) {
        if (batch->token[row] < 0 || (uint32_t)batch->token[row] >= limits.vocabulary ||
            batch->position[row] >= limits.context_max)
            abort();
        if (batch->segments > 0 &&
            batch_pages(batch, row)[batch->position[row] / KV_PAGE_TOKENS] >= limits.pages_max)
            abort();
    }
    for (uint32_t i = 0; i < batch->logit_rows; i++)
        if (batch->logit_row[i] >= batch->rows ||
            (batch->target != NULL && (uint32_t)batch->target[i] >= limits.vocabulary))
            abort();
}

/* Every factor is read, so that the sanitizer sees one that is not there. */
static volatile float sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static batch_segment segments[ROWS];
    static adapter_run runs[ROWS * ADAPTERS_OF_ROW];
    adapter_view adapter = {.rank = 1};
    batch_room room = {.segment = segments, .run = runs};
    message_reader reader;
    message_step step;
    if (!message_read(data, size, &reader))
        return 0;
    message_reader texts = reader; /* an opening's fields, whatever they are */
    (void)message_number(&texts);
    const char *text = message_text(&texts);
    if (text != NULL && text[0] == '\1')
        (void)message_text(&texts);
    if (!message_read_step(&reader, &limits, look_up, &adapter, &step, &room))
        return 0;
    check_rows(&room.batch);
    for (uint32_t i = 0; i < room.batch.runs; i++)
        for (uint32_t row = 0; row < room.batch.run[i].rows; row++)
            sink = room.batch.run[i].factor[row];
    return 0;
}
