/* Messages, byte by byte: the kind, how many bytes follow the head, and these. */
#include "device/ranks/message.h"

#include "base/checked.h"

#include <string.h>

typedef struct message_head {
    uint32_t kind;
    uint32_t bytes; /* behind the head */
} message_head;

#define NO_TEXT UINT64_MAX

/* ---- Writing ---- */

void message_open(message *message, const avo_allocator *allocator) {
    *message = (struct message){.status = AVO_OK};
    buffer_init(&message->bytes, allocator, MESSAGE_BYTES_MAX);
}

void message_close(message *message) {
    buffer_free(&message->bytes);
}

void message_begin(message *message, message_kind kind) {
    message->bytes.size = 0;
    message_head head = {.kind = kind};
    message->status = buffer_append(&message->bytes, &head, sizeof(head));
}

void message_add(message *message, const void *data, size_t bytes) {
    static const uint8_t zeros[8];
    if (bytes > 0)
        AVO_THEN(message->status, buffer_append(&message->bytes, data, bytes));
    AVO_THEN(message->status, buffer_append(&message->bytes, zeros, (8 - bytes % 8) % 8));
}

void message_add_number(message *message, uint64_t number) {
    message_add(message, &number, sizeof(number));
}

void message_add_text(message *message, const char *text) {
    message_add_number(message, text == NULL ? NO_TEXT : strlen(text));
    if (text != NULL)
        message_add(message, text, strlen(text) + 1);
}

avo_status message_send(message *message, transport *transport, uint64_t timeout_ns,
                        avo_error *error) {
    buffer *bytes = &message->bytes;
    size_t size = bytes->size;
    if (size < MESSAGE_PACKET_BYTES)
        AVO_THEN(message->status, buffer_reserve(bytes, MESSAGE_PACKET_BYTES - size));
    if (message->status != AVO_OK)
        return status_fail(error, message->status, "a message of %zu bytes to the other ranks",
                           size);
    message_head head;
    memcpy(&head, bytes->data, sizeof(head));
    head.bytes = (uint32_t)(size - sizeof(head));
    memcpy(bytes->data, &head, sizeof(head));
    if (size < MESSAGE_PACKET_BYTES)
        memset(bytes->data + size, 0, MESSAGE_PACKET_BYTES - size);
    AVO_TRY(transport_spread(transport, bytes->data, MESSAGE_PACKET_BYTES, timeout_ns, error));
    if (size <= MESSAGE_PACKET_BYTES)
        return AVO_OK;
    return transport_spread(transport, bytes->data + MESSAGE_PACKET_BYTES,
                            size - MESSAGE_PACKET_BYTES, timeout_ns, error);
}

/* ---- Reading ---- */

void message_room_close(message_room *room) {
    allocator_give(room->allocator, room->data, room->capacity);
    *room = (message_room){0};
}

static avo_status make_room(message_room *room, size_t bytes, avo_error *error) {
    if (bytes <= room->capacity)
        return AVO_OK;
    size_t capacity = size_max(2 * room->capacity, bytes);
    uint8_t *data = allocator_take(room->allocator, capacity);
    if (data == NULL)
        return status_no_memory(error, "a message of rank 0", capacity);
    if (room->capacity > 0)
        memcpy(data, room->data, room->capacity);
    allocator_give(room->allocator, room->data, room->capacity);
    room->data = data;
    room->capacity = capacity;
    return AVO_OK;
}

bool message_read(const uint8_t *data, size_t bytes, message_reader *out) {
    message_head head;
    *out = (message_reader){.cursor = cursor_over((bytes_view){data, bytes})};
    if (!message_structure(out, &head, sizeof(head)) || head.kind >= MESSAGE_KINDS ||
        head.bytes > bytes - sizeof(head))
        return false;
    out->kind = (message_kind)head.kind;
    out->cursor = cursor_over((bytes_view){data + sizeof(head), head.bytes});
    return true;
}

avo_status message_receive(transport *transport, message_room *room, uint64_t timeout_ns,
                           message_reader *out, avo_error *error) {
    message_head head;
    AVO_TRY(make_room(room, MESSAGE_PACKET_BYTES, error));
    AVO_TRY(transport_spread(transport, room->data, MESSAGE_PACKET_BYTES, timeout_ns, error));
    memcpy(&head, room->data, sizeof(head));
    size_t bytes = sizeof(head) + head.bytes;
    if (bytes <= MESSAGE_BYTES_MAX)
        AVO_TRY(make_room(room, bytes, error));
    if (bytes > MESSAGE_PACKET_BYTES && bytes <= MESSAGE_BYTES_MAX)
        AVO_TRY(transport_spread(transport, room->data + MESSAGE_PACKET_BYTES,
                                 bytes - MESSAGE_PACKET_BYTES, timeout_ns, error));
    if (bytes <= MESSAGE_BYTES_MAX && message_read(room->data, bytes, out))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_DEVICE,
                       "rank 0 sent a message of kind %u and %u bytes that is none", head.kind,
                       head.bytes);
}

const void *message_array(message_reader *reader, size_t count, size_t size) {
    size_t bytes, padded;
    const uint8_t *data;
    if (!size_multiply(count, size, &bytes) || !size_round_up(bytes, 8, &padded) ||
        !cursor_take(&reader->cursor, padded, &data)) {
        reader->bad = true;
        return NULL;
    }
    return data;
}

bool message_structure(message_reader *reader, void *out, size_t bytes) {
    const void *data = message_array(reader, 1, bytes);
    memset(out, 0, bytes);
    if (data != NULL)
        memcpy(out, data, bytes);
    return data != NULL;
}

uint64_t message_number(message_reader *reader) {
    uint64_t number;
    (void)message_structure(reader, &number, sizeof(number));
    return number;
}

const char *message_text(message_reader *reader) {
    uint64_t length = message_number(reader);
    if (length == NO_TEXT || reader->bad || length >= MESSAGE_BYTES_MAX)
        return NULL;
    const char *text = message_array(reader, (size_t)length + 1, 1);
    return text != NULL && text[length] == '\0' ? text : NULL;
}

/* ---- Steps ---- */

static uint32_t pages_of(const batch_view *batch, const batch_segment *segment) {
    return batch->position[segment->first + segment->rows - 1] / KV_PAGE_TOKENS + 1;
}

void message_add_step(message *message, const message_step *step, const batch_view *batch,
                      const size_t *layer_offset) {
    size_t rows = batch->rows;
    message_add(message, step, sizeof(*step));
    message_add(message, layer_offset, step->layers * sizeof(*layer_offset));
    message_add(message, batch->token, rows * sizeof(*batch->token));
    message_add(message, batch->position, rows * sizeof(*batch->position));
    message_add(message, batch->row_segment, rows * sizeof(*batch->row_segment));
    for (uint32_t i = 0; i < batch->segments; i++) {
        const batch_segment *segment = &batch->segment[i];
        uint32_t numbers[] = {segment->first, segment->rows, pages_of(batch, segment), 0};
        message_add(message, numbers, sizeof(numbers));
        message_add(message, segment->pages, numbers[2] * sizeof(*segment->pages));
    }
    message_add(message, batch->logit_row, batch->logit_rows * sizeof(*batch->logit_row));
    message_add(message, batch->target, step->targets * sizeof(*batch->target));
    for (uint32_t i = 0; i < batch->runs; i++) {
        const adapter_run *run = &batch->run[i];
        message_run sent = {.adapter = (uint64_t)(uintptr_t)run->adapter,
                            .first = run->first,
                            .rows = run->rows,
                            .parent = run->parent};
        message_add(message, &sent, sizeof(sent));
        message_add(message, run->factor, run->rows * sizeof(*run->factor));
    }
}

static bool all_below(const uint32_t *numbers, size_t count, uint64_t limit) {
    for (size_t i = 0; numbers != NULL && i < count; i++)
        if (numbers[i] >= limit)
            return false;
    return numbers != NULL;
}

/* Segments divide the rows among them, and no position lies behind the pages of its segment. */
static bool read_segments(message_reader *reader, const batch_limits *limits, batch_room *room) {
    batch_view *batch = &room->batch;
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch->segments; i++) {
        uint32_t numbers[4];
        if (!message_structure(reader, numbers, sizeof(numbers)) || numbers[0] != row ||
            numbers[1] == 0 || numbers[1] > batch->rows - row ||
            numbers[2] > limits->context_max / KV_PAGE_TOKENS + 1)
            return false;
        const uint32_t *pages = message_array(reader, numbers[2], sizeof(*pages));
        if (!all_below(pages, numbers[2], limits->pages_max))
            return false;
        room->segment[i] = (batch_segment){numbers[0], numbers[1], pages};
        for (; row < numbers[0] + numbers[1]; row++)
            if (batch->row_segment[row] != i ||
                batch->position[row] / KV_PAGE_TOKENS >= numbers[2] ||
                (row > numbers[0] && batch->position[row] < batch->position[row - 1]))
                return false;
    }
    batch->segment = room->segment;
    return row == batch->rows || batch->segments == 0;
}

static bool read_runs(message_reader *reader, adapter_lookup lookup, void *context,
                      batch_room *room) {
    batch_view *batch = &room->batch;
    for (uint32_t i = 0; i < batch->runs; i++) {
        message_run run;
        if (!message_structure(reader, &run, sizeof(run)) || run.first > batch->rows ||
            run.rows > batch->rows - run.first ||
            (run.parent != ADAPTER_RUN_NONE && run.parent >= i))
            return false;
        room->run[i] = (adapter_run){.adapter = lookup(context, run.adapter),
                                     .first = run.first,
                                     .rows = run.rows,
                                     .factor = message_array(reader, run.rows, sizeof(float)),
                                     .parent = run.parent};
        if (room->run[i].adapter == NULL || reader->bad)
            return false;
    }
    batch->run = room->run;
    return true;
}

static bool fits(const message_step *step, const batch_limits *limits) {
    bool forward = step->work == DEVICE_FORWARD;
    return step->work <= DEVICE_NORM && step->kv_type < KV_TYPE_COUNT &&
           step->layers <= limits->layers && step->rows <= limits->rows_max &&
           (!forward || step->rows > 0) && step->segments <= step->rows &&
           step->logit_rows <= limits->logits_max && step->top <= LOGIT_TOP_MAX &&
           step->runs <= (uint64_t)limits->rows_max * ADAPTERS_OF_ROW &&
           (step->targets == 0 || step->targets == step->logit_rows);
}

bool message_read_step(message_reader *reader, const batch_limits *limits, adapter_lookup lookup,
                       void *context, message_step *step, batch_room *room) {
    if (!message_structure(reader, step, sizeof(*step)) || !fits(step, limits))
        return false;
    batch_view *batch = &room->batch;
    size_t rows = step->rows;
    *batch = (batch_view){.rows = step->rows,
                          .segments = step->segments,
                          .logit_rows = step->logit_rows,
                          .logits_whole = step->logits_whole != 0,
                          .top = step->top,
                          .runs = step->runs,
                          .gains = step->gains != 0};
    room->layer_offset = message_array(reader, step->layers, sizeof(size_t));
    batch->token = message_array(reader, rows, sizeof(*batch->token));
    batch->position = message_array(reader, rows, sizeof(*batch->position));
    batch->row_segment = message_array(reader, rows, sizeof(*batch->row_segment));
    if (reader->bad || !all_below(batch->position, rows, limits->context_max) ||
        !all_below((const uint32_t *)batch->token, rows, limits->vocabulary) ||
        !read_segments(reader, limits, room))
        return false;
    batch->logit_row = message_array(reader, step->logit_rows, sizeof(*batch->logit_row));
    const int32_t *target = message_array(reader, step->targets, sizeof(*target));
    batch->target = step->targets > 0 ? target : NULL;
    return !reader->bad && all_below(batch->logit_row, step->logit_rows, rows) &&
           (step->targets == 0 ||
            all_below((const uint32_t *)target, step->targets, limits->vocabulary)) &&
           read_runs(reader, lookup, context, room);
}
