/* Batches of KV events in msgpack: see kv_format.h for the form. */
#include "server/kv_format.h"

#define MEDIUM "GPU"

/* ---- msgpack ---- */

/* `type` and a big-endian number of 1 to 8 bytes. */
static avo_status write_typed(buffer *out, uint8_t type, uint64_t number, size_t bytes) {
    uint8_t data[9] = {type};
    for (size_t i = 0; i < bytes; i++)
        data[1 + i] = (uint8_t)(number >> (8 * (bytes - 1 - i)));
    return buffer_append(out, data, 1 + bytes);
}

static avo_status write_array(buffer *out, uint32_t count) {
    return count < 16 ? write_typed(out, (uint8_t)(0x90 | count), 0, 0)
                      : write_typed(out, 0xdd, count, 4);
}

static avo_status write_number(buffer *out, uint64_t number) {
    if (number < 128)
        return write_typed(out, (uint8_t)number, 0, 0);
    if (number <= UINT32_MAX)
        return write_typed(out, 0xce, number, 4);
    return write_typed(out, 0xcf, number, 8);
}

static avo_status write_nil(buffer *out) {
    return write_typed(out, 0xc0, 0, 0);
}

static avo_status write_text(buffer *out, const char *text) {
    size_t size = strlen(text);
    AVO_TRY(size < 32 ? write_typed(out, (uint8_t)(0xa0 | size), 0, 0)
                      : write_typed(out, 0xda, size, 2));
    return buffer_append(out, text, size);
}

static avo_status write_double(buffer *out, double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return write_typed(out, 0xcb, bits, 8);
}

/* ---- Events ---- */

/* How many events from the first one on become one. */
static uint32_t run_length(const kv_event *events, uint32_t count) {
    uint32_t run = 1;
    if (events[0].kind == KV_EVENT_CLEARED)
        return 1;
    while (run < count && events[run].kind == events[0].kind &&
           (events[0].kind == KV_EVENT_REMOVED ||
            (events[run].has_parent && events[run].parent == events[run - 1].block &&
             events[run].label == events[0].label)))
        run++;
    return run;
}

static avo_status write_blocks(buffer *out, const kv_event *events, uint32_t count) {
    AVO_TRY(write_array(out, count));
    for (uint32_t i = 0; i < count; i++)
        AVO_TRY(write_number(out, events[i].block));
    return AVO_OK;
}

static avo_status write_stored(const kv_events *log, buffer *out, const kv_event *events,
                               uint32_t count) {
    const char *adapter = kv_events_label_text(log, events[0].label);
    AVO_TRY(write_array(out, 8));
    AVO_TRY(write_text(out, "BlockStored"));
    AVO_TRY(write_blocks(out, events, count));
    AVO_TRY(events[0].has_parent ? write_number(out, events[0].parent) : write_nil(out));
    AVO_TRY(write_array(out, count * KV_PAGE_TOKENS));
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t t = 0; t < KV_PAGE_TOKENS; t++)
            AVO_TRY(write_number(out, (uint32_t)events[i].tokens[t]));
    AVO_TRY(write_number(out, KV_PAGE_TOKENS));
    AVO_TRY(write_nil(out));
    AVO_TRY(write_text(out, MEDIUM));
    return adapter[0] == '\0' ? write_nil(out) : write_text(out, adapter);
}

static avo_status write_event(const kv_events *log, buffer *out, const kv_event *events,
                              uint32_t count) {
    if (events[0].kind == KV_EVENT_STORED)
        return write_stored(log, out, events, count);
    if (events[0].kind == KV_EVENT_CLEARED) {
        AVO_TRY(write_array(out, 1));
        return write_text(out, "AllBlocksCleared");
    }
    AVO_TRY(write_array(out, 3));
    AVO_TRY(write_text(out, "BlockRemoved"));
    AVO_TRY(write_blocks(out, events, count));
    return write_text(out, MEDIUM);
}

avo_status kv_format_batch(const kv_events *log, const kv_event *events, uint32_t count,
                           double time, buffer *out) {
    uint32_t runs = 0;
    for (uint32_t at = 0; at < count; at += run_length(events + at, count - at))
        runs++;
    AVO_TRY(write_array(out, 3));
    AVO_TRY(write_double(out, time));
    AVO_TRY(write_array(out, runs));
    for (uint32_t at = 0, run; at < count; at += run) {
        run = run_length(events + at, count - at);
        AVO_TRY(write_event(log, out, events + at, run));
    }
    return write_number(out, 0);
}
