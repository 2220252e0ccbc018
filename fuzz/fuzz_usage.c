/* server/ledger_format on any bytes: nothing outside them is read, the sound part ends within them,
 * and what was read is the same when it is written and read again. */
#include "server/ledger_format.h"

#include <stdlib.h>

typedef struct again {
    const ledger_record *record;
    bool seen;
} again;

static bool see_again(void *context, const ledger_record *record) {
    again *same = context;
    const ledger_record *before = same->record;
    same->seen = record->kind == before->kind && text_equal(record->name, before->name) &&
                 record->day == before->day && record->window_ms == before->window_ms &&
                 record->window_tokens == before->window_tokens &&
                 memcmp(&record->totals, &before->totals, sizeof(record->totals)) == 0;
    return true;
}

static bool see(void *context, const ledger_record *record) {
    (void)context;
    uint8_t bytes[LEDGER_HEADER_BYTES + LEDGER_RECORD_MAX];
    again same = {record, false};
    memcpy(bytes, LEDGER_HEADER, LEDGER_HEADER_BYTES);
    size_t size = ledger_format_write(record, bytes + LEDGER_HEADER_BYTES);
    bytes_view written = {bytes, LEDGER_HEADER_BYTES + size};
    if (ledger_format_read(written, see_again, &same) != written.size || !same.seen)
        abort();
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (ledger_format_read((bytes_view){data, size}, see, NULL) > size)
        abort();
    return 0;
}
