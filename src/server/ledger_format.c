/* Records of usage as bytes, and back. */
#include "server/ledger_format.h"

#include "base/hash.h"

#define FRAME_BYTES (4 + 8)

typedef struct writing {
    uint8_t *bytes;
    size_t at;
} writing;

static void put(writing *out, const void *data, size_t bytes) {
    memcpy(out->bytes + out->at, data, bytes);
    out->at += bytes;
}

size_t ledger_format_write(const ledger_record *record, uint8_t bytes[static LEDGER_RECORD_MAX]) {
    writing out = {bytes, FRAME_BYTES};
    uint8_t kind = (uint8_t)record->kind, name_bytes = (uint8_t)record->name.size;
    put(&out, &kind, 1);
    put(&out, &name_bytes, 1);
    put(&out, record->name.data, record->name.size);
    if (record->kind == LEDGER_DAY) {
        const ledger_totals *t = &record->totals;
        const uint64_t numbers[] = {t->requests, t->refused, t->prompt_tokens, t->cached_tokens,
                                    t->new_tokens};
        put(&out, &record->day, 4);
        put(&out, numbers, sizeof(numbers));
    } else {
        put(&out, &record->window_ms, 8);
        put(&out, &record->window_tokens, 8);
    }
    uint32_t payload = (uint32_t)(out.at - FRAME_BYTES);
    uint64_t sum = hash_bytes(bytes + FRAME_BYTES, payload);
    memcpy(bytes, &payload, 4);
    memcpy(bytes + 4, &sum, 8);
    return out.at;
}

static bool read_name(cursor *in, text_view *name) {
    uint8_t bytes = 0;
    const uint8_t *data = NULL;
    if (!cursor_read_u8(in, &bytes) || bytes == 0 || bytes > LEDGER_NAME_MAX ||
        !cursor_take(in, bytes, &data) || memchr(data, '\0', bytes) != NULL)
        return false;
    *name = (text_view){(const char *)data, bytes};
    return true;
}

static bool read_payload(bytes_view payload, ledger_record *record) {
    cursor in = cursor_over(payload);
    uint8_t kind = 0;
    *record = (ledger_record){0};
    if (!cursor_read_u8(&in, &kind) || !read_name(&in, &record->name))
        return false;
    record->kind = (ledger_kind)kind;
    ledger_totals *t = &record->totals;
    bool good = false;
    if (kind == LEDGER_DAY)
        good = cursor_read_u32(&in, &record->day) && cursor_read_u64(&in, &t->requests) &&
               cursor_read_u64(&in, &t->refused) && cursor_read_u64(&in, &t->prompt_tokens) &&
               cursor_read_u64(&in, &t->cached_tokens) && cursor_read_u64(&in, &t->new_tokens);
    else if (kind == LEDGER_WINDOW)
        good = cursor_read_i64(&in, &record->window_ms) &&
               cursor_read_u64(&in, &record->window_tokens);
    return good && cursor_left(&in) == 0;
}

size_t ledger_format_read(bytes_view file, ledger_see see, void *context) {
    cursor in = cursor_over(file);
    const uint8_t *data = NULL;
    if (!cursor_take(&in, LEDGER_HEADER_BYTES, &data) ||
        memcmp(data, LEDGER_HEADER, LEDGER_HEADER_BYTES) != 0)
        return 0;
    size_t sound = in.at;
    for (;;) {
        uint32_t bytes = 0;
        uint64_t sum = 0;
        ledger_record record;
        if (!cursor_read_u32(&in, &bytes) || !cursor_read_u64(&in, &sum) ||
            bytes > LEDGER_RECORD_MAX || !cursor_take(&in, bytes, &data) ||
            hash_bytes(data, bytes) != sum || !read_payload((bytes_view){data, bytes}, &record))
            return sound;
        sound = in.at;
        if (!see(context, &record))
            return sound;
    }
}
