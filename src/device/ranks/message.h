/* What rank 0 tells the others: one message for each call of the device interface that they take
 * part in. A message is sent to all ranks in packets; its first one has a fixed size. Numbers are
 * as the processor has them: all ranks run the same program, which the first message checks. */
#ifndef AVO_DEVICE_RANKS_MESSAGE_H
#define AVO_DEVICE_RANKS_MESSAGE_H

#include "base/buffer.h"
#include "device/device.h"
#include "device/ranks/transport.h"

typedef enum message_kind {
    MESSAGE_OPEN_DEVICE, /* answered, as all that can fail by itself */
    MESSAGE_CLOSE_DEVICE,
    MESSAGE_OPEN_WEIGHTS, /* answered; a stream and the weights it computes with */
    MESSAGE_CLOSE_WEIGHTS,
    MESSAGE_TAKE_MEMORY, /* answered */
    MESSAGE_GIVE_MEMORY,
    MESSAGE_COPY_IN,  /* the bytes follow */
    MESSAGE_COPY_OUT, /* answered with the bytes alone */
    MESSAGE_COPY_ACROSS,
    MESSAGE_ZERO,
    MESSAGE_OPEN_ADAPTER, /* answered */
    MESSAGE_FILL_ADAPTER, /* its arrays follow */
    MESSAGE_CLOSE_ADAPTER,
    MESSAGE_STEP,
    MESSAGE_QUIT, /* answered */
    MESSAGE_KINDS
} message_kind;

#define MESSAGE_PACKET_BYTES 2048
#define MESSAGE_BYTES_MAX    ((size_t)256 << 20)

/* ---- Writing ---- */

typedef struct message {
    buffer bytes;
    avo_status status; /* of what was added so far */
} message;

void message_open(message *message, const avo_allocator *allocator);
void message_close(message *message);
/* Begins a new one in the same memory. */
void message_begin(message *message, message_kind kind);
/* Adds an array, or a structure; readers find it at a multiple of 8. */
void message_add(message *message, const void *data, size_t bytes);
void message_add_number(message *message, uint64_t number);
void message_add_text(message *message, const char *text); /* NULL: none */
AVO_MUST_USE avo_status message_send(message *message, transport *transport, uint64_t timeout_ns,
                                     avo_error *error);

/* ---- Reading ---- */

/* A message that was received. What readers return points into it. */
typedef struct message_reader {
    message_kind kind;
    cursor cursor;
    bool bad; /* something was read behind the end */
} message_reader;

/* Room for messages, which grows with them. */
typedef struct message_room {
    const avo_allocator *allocator;
    uint8_t *data;
    size_t capacity;
} message_room;
void message_room_close(message_room *room);
/* Waits for rank 0's next message. */
AVO_MUST_USE avo_status message_receive(transport *transport, message_room *room,
                                        uint64_t timeout_ns, message_reader *out, avo_error *error);
/* Reads a message in memory; false: it is damaged. */
bool message_read(const uint8_t *data, size_t bytes, message_reader *out);
const void *message_array(message_reader *reader, size_t count, size_t size); /* NULL: bad */
bool message_structure(message_reader *reader, void *out, size_t bytes);
uint64_t message_number(message_reader *reader);
const char *message_text(message_reader *reader); /* NULL: none */

/* ---- Answers ---- */

typedef struct message_answer {
    uint32_t status; /* avo_status */
    char text[252];
} message_answer;

/* ---- Steps ---- */

/* A batch, where K and V are, and with which weights. Adapters and blocks are known by numbers. */
typedef struct message_step {
    uint64_t weights, memory, page_bytes;
    uint32_t work, kv_type, layers;
    uint32_t rows, segments, logit_rows, top, runs;
    uint32_t logits_whole, gains, targets, unused;
} message_step;

typedef struct message_run {
    uint64_t adapter;
    uint32_t first, rows, parent, unused;
} message_run;

/* The most that a step's batch may have: what its readers have room for. */
typedef struct batch_limits {
    uint32_t rows_max, logits_max, context_max, vocabulary, layers;
    size_t pages_max; /* of the KV pool */
} batch_limits;

/* A batch that was read, and what of it does not lie in the message. */
typedef struct batch_room {
    batch_view batch;
    const size_t *layer_offset; /* points into the message */
    batch_segment *segment;     /* [rows_max] */
    adapter_run *run;           /* [rows_max · ADAPTERS_OF_ROW] */
} batch_room;

void message_add_step(message *message, const message_step *step, const batch_view *batch,
                      const size_t *layer_offset);
/* The number of an adapter as its view; NULL: there is none. */
typedef const adapter_view *(*adapter_lookup)(void *context, uint64_t number);
/* False: the message does not fit its own numbers, or the limits. */
bool message_read_step(message_reader *reader, const batch_limits *limits, adapter_lookup lookup,
                       void *context, message_step *step, batch_room *room);

#endif
