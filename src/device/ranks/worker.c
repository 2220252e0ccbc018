/* The loop of the ranks behind rank 0: each message becomes the call of the device interface that
 * it stands for, on a CPU device that has this rank's part of the model. What cannot fail by itself
 * is not answered; where it does fail, the ranks are no longer at one, and the loop ends. */
#include "device/ranks/ranks_int.h"

#include "base/checked.h"
#include "device/upload.h"

#include <string.h>
#include <time.h>

typedef enum object_kind {
    OBJECT_DEVICE,
    OBJECT_WEIGHTS,
    OBJECT_MEMORY,
    OBJECT_ADAPTER,
    OBJECT_KINDS
} object_kind;

/* Known to rank 0 by its number. */
typedef struct object {
    struct object *next;
    uint64_t number;
    object_kind kind;
    size_t bytes; /* of the structure that begins with this */
} object;

typedef struct worker_device {
    object object;
    device *device;
    cpu_group group;
    uint64_t timeout_ns;
    ranks_trouble trouble;
    uint64_t steps;
} worker_device;

/* A stream and the weights that it computes with. */
typedef struct worker_weights {
    object object;
    worker_device *device;
    device_stream *stream;
    device_weights *weights;
    model_view whole; /* of the model that the host has opened */
    arena arena;      /* rotation tables, and the room of batches */
    batch_limits limits;
    batch_room room;
} worker_weights;

typedef struct worker_memory {
    object object;
    worker_device *device;
    device_memory memory;
} worker_memory;

typedef struct worker_adapter {
    object object;
    worker_device *device;
    model_view model;  /* of the device, with the layers that the adapter was opened for */
    adapter_view view; /* as it was sent, until its arrays have come */
    arena arena;
    uint8_t *data;
    size_t data_bytes;
} worker_adapter;

typedef struct worker {
    transport *transport;
    const ranks_host *host;
    message_room room;
    object *objects[OBJECT_KINDS];
    uint64_t timeout_ns; /* of the device that was opened last */
} worker;

/* ---- Objects ---- */

static void *find(const worker *worker, object_kind kind, uint64_t number) {
    for (object *at = worker->objects[kind]; at != NULL; at = at->next)
        if (at->number == number)
            return at;
    return NULL;
}

static void *add(worker *worker, object_kind kind, uint64_t number, size_t bytes) {
    object *new = find(worker, kind, number) != NULL
                      ? NULL
                      : allocator_take_array(worker->host->allocator, 1, bytes);
    if (new == NULL)
        return NULL;
    *new = (object){worker->objects[kind], number, kind, bytes};
    worker->objects[kind] = new;
    return new;
}

static void release(const worker *worker, object *object) {
    const avo_allocator *allocator = worker->host->allocator;
    if (object->kind == OBJECT_DEVICE) {
        device_close(((worker_device *)(void *)object)->device);
    } else if (object->kind == OBJECT_WEIGHTS) {
        worker_weights *own = (worker_weights *)(void *)object;
        device_weights_close(own->weights);
        device_stream_close(own->stream);
        arena_free(&own->arena);
    } else if (object->kind == OBJECT_MEMORY) {
        worker_memory *own = (worker_memory *)(void *)object;
        device_memory_give(own->device->device, &own->memory);
    } else {
        worker_adapter *own = (worker_adapter *)(void *)object;
        allocator_give(allocator, own->data, own->data_bytes);
        arena_free(&own->arena);
    }
    allocator_give(allocator, object, object->bytes);
}

/* Closing what is not there does nothing: opening it has failed. */
static void close_object(worker *worker, object_kind kind, uint64_t number) {
    for (object **at = &worker->objects[kind]; *at != NULL; at = &(*at)->next)
        if ((*at)->number == number) {
            object *found = *at;
            *at = found->next;
            release(worker, found);
            return;
        }
}

static void close_all(worker *worker) {
    static const object_kind order[] = {OBJECT_ADAPTER, OBJECT_MEMORY, OBJECT_WEIGHTS,
                                        OBJECT_DEVICE};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        while (worker->objects[order[i]] != NULL)
            close_object(worker, order[i], worker->objects[order[i]]->number);
}

static avo_status unknown(const char *what, avo_error *error) {
    return status_fail(error, AVO_ERROR_DEVICE, "a message of rank 0 names %s that is not here",
                       what);
}

static avo_status damaged(avo_error *error) {
    return status_fail(error, AVO_ERROR_DEVICE, "a message of rank 0 is damaged");
}

/* ---- Devices ---- */

static avo_status exchange(void *context, const group_part *send, const group_part *receive,
                           avo_error *error) {
    const worker *worker = context;
    return transport_exchange(worker->transport, send, receive, worker->timeout_ns, error);
}

static avo_status check_program(const ranks_opening *opening, const char *version,
                                avo_error *error) {
    size_t bytes =
        sizeof(adapter_view) + sizeof(adapter_layer) + sizeof(message_step) + sizeof(weight_view);
    if (opening->protocol == RANKS_PROTOCOL && opening->structure_bytes == bytes &&
        version != NULL && strcmp(version, avo_version()) == 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "this rank runs avocet %s, rank 0 another build; start the same program on "
                       "all machines",
                       avo_version());
}

static avo_status open_device(worker *worker, message_reader *reader, avo_error *error) {
    ranks_opening opening;
    (void)message_structure(reader, &opening, sizeof(opening));
    const char *name = message_text(reader), *huge_pages = message_text(reader);
    const char *pin = message_text(reader), *version = message_text(reader);
    const device_driver *driver;
    if (reader->bad || name == NULL)
        return damaged(error);
    AVO_TRY(check_program(&opening, version, error));
    AVO_TRY(device_find_among(device_drivers(), name, &driver, error));
    worker_device *own = add(worker, OBJECT_DEVICE, opening.device, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "the device", sizeof(*own));
    own->group = (cpu_group){.rank = worker->transport->rank,
                             .ranks = worker->transport->ranks,
                             .by_layers = opening.by_layers != 0,
                             .exchange = exchange,
                             .context = worker};
    worker->timeout_ns = own->timeout_ns = opening.timeout_ms * 1000000;
    own->trouble = opening.trouble;
    device_options options = {.allocator = worker->host->allocator,
                              .name = name,
                              .threads = ranks_threads(opening.threads, worker->host->here),
                              .streams = 1,
                              .huge_pages = huge_pages,
                              .pin = pin,
                              .lock = opening.lock != 0};
    avo_status status = cpu_open_in_group(driver, &options, &own->group, &own->device, error);
    if (status != AVO_OK)
        close_object(worker, OBJECT_DEVICE, opening.device);
    return status;
}

/* ---- Weights ---- */

static avo_status read_rotary(message_reader *reader, uint32_t tables, worker_weights *own,
                              avo_error *error) {
    rotary_table *table = arena_take_array(&own->arena, tables > 0 ? tables : 1, sizeof(*table));
    if (table == NULL)
        return status_no_memory(error, "RoPE tables", tables * sizeof(*table));
    for (uint32_t i = 0; i < tables; i++) {
        (void)message_structure(reader, &table[i], sizeof(table[i]));
        const double *sent = message_array(reader, table[i].pairs, sizeof(*sent));
        double *kept =
            reader->bad ? NULL : arena_take_array(&own->arena, table[i].pairs, sizeof(*kept));
        if (reader->bad)
            return damaged(error);
        if (kept == NULL)
            return status_no_memory(error, "RoPE tables", table[i].pairs * sizeof(*kept));
        memcpy(kept, sent, table[i].pairs * sizeof(*kept));
        table[i].frequency = kept;
    }
    own->whole.rotary = table;
    own->whole.rotary_tables = tables;
    return AVO_OK;
}

static avo_status take_room(worker_weights *own, avo_error *error) {
    uint32_t rows = own->limits.rows_max;
    size_t runs = (size_t)rows * ADAPTERS_OF_ROW;
    own->room.segment = arena_take_array(&own->arena, rows, sizeof(*own->room.segment));
    own->room.run = arena_take_array(&own->arena, runs, sizeof(*own->room.run));
    if (own->room.segment == NULL || own->room.run == NULL)
        return status_no_memory(error, "batches", runs * sizeof(*own->room.run));
    return AVO_OK;
}

static avo_status fill_weights(worker *worker, worker_weights *own, message_reader *reader,
                               const ranks_weights_opening *opening, avo_error *error) {
    stream_shape shape = {.rows_max = opening->rows_max,
                          .logits_max = opening->logits_max,
                          .head_rows = opening->head_rows,
                          .context_max = opening->context_max,
                          .adapter_rank_max = opening->adapter_rank_max,
                          .pairs_max = opening->pairs_max,
                          .taps = opening->taps};
    const uint32_t *tap = message_array(reader, opening->taps, sizeof(*tap));
    const char *path = message_text(reader);
    if (reader->bad || path == NULL || opening->taps > DEVICE_TAPS_MAX)
        return damaged(error);
    memcpy(shape.tap, tap, opening->taps * sizeof(*tap));
    weights_source source = {0};
    if (own->device->trouble.rank == worker->transport->rank &&
        own->device->trouble.kind == RANKS_LACKS_MEMORY)
        return status_no_memory(error, "weights, as requested", 0);
    AVO_TRY(worker->host->open_model(worker->host->context, path, &source, error));
    own->whole = *source.model;
    AVO_TRY(read_rotary(reader, opening->rotary_tables, own, error));
    source.model = shape.model = &own->whole;
    source.layers_stored = 0;
    if (ranks_weights_check(&own->whole) != opening->check)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%.150s: differs from the model that rank 0 has opened", path);
    own->limits = (batch_limits){.rows_max = opening->rows_max,
                                 .logits_max = opening->head_rows,
                                 .context_max = opening->context_max,
                                 .vocabulary = own->whole.vocabulary,
                                 .layers = own->whole.layers};
    AVO_TRY(take_room(own, error));
    AVO_TRY(device_stream_open(own->device->device, &shape, &own->stream, error));
    return device_weights_open(own->stream, &source, &own->weights, error);
}

static avo_status open_weights(worker *worker, message_reader *reader, avo_error *error) {
    ranks_weights_opening opening;
    (void)message_structure(reader, &opening, sizeof(opening));
    worker_device *device = find(worker, OBJECT_DEVICE, opening.device);
    if (device == NULL)
        return unknown("a device", error);
    worker_weights *own = add(worker, OBJECT_WEIGHTS, opening.weights, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "the model's weights", sizeof(*own));
    own->device = device;
    arena_init(&own->arena, worker->host->allocator, SIZE_MAX);
    avo_status status = fill_weights(worker, own, reader, &opening, error);
    if (status != AVO_OK)
        close_object(worker, OBJECT_WEIGHTS, opening.weights);
    return status;
}

/* ---- Memory ---- */

static avo_status take_memory(worker *worker, message_reader *reader, avo_error *error) {
    uint64_t number = message_number(reader), device_number = message_number(reader);
    uint64_t bytes = message_number(reader);
    const char *what = message_text(reader);
    worker_device *device = find(worker, OBJECT_DEVICE, device_number);
    if (device == NULL || what == NULL)
        return unknown("a device", error);
    worker_memory *own = add(worker, OBJECT_MEMORY, number, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, what, sizeof(*own));
    own->device = device;
    avo_status status = device_memory_take(device->device, bytes, what, &own->memory, error);
    if (status != AVO_OK)
        close_object(worker, OBJECT_MEMORY, number);
    return status;
}

static worker_memory *find_range(const worker *worker, uint64_t number, uint64_t offset,
                                 uint64_t bytes) {
    worker_memory *own = find(worker, OBJECT_MEMORY, number);
    bool within = own != NULL && offset <= own->memory.bytes && bytes <= own->memory.bytes - offset;
    return within ? own : NULL;
}

static avo_status copy(worker *worker, message_reader *reader, avo_error *error) {
    uint64_t number = message_number(reader), offset = message_number(reader);
    uint64_t bytes = message_number(reader);
    worker_memory *own = find_range(worker, number, offset, bytes);
    if (own == NULL || reader->bad)
        return unknown("memory", error);
    device *device = own->device->device;
    uint8_t *at = own->memory.address + offset; /* of a CPU device: the host's */
    if (reader->kind == MESSAGE_COPY_IN)
        return transport_spread(worker->transport, at, bytes, worker->timeout_ns, error);
    if (reader->kind == MESSAGE_COPY_OUT)
        return transport_collect(worker->transport, at, bytes, worker->timeout_ns, error);
    if (reader->kind == MESSAGE_ZERO)
        return device_zero(device, &own->memory, offset, bytes, error);
    uint64_t from_number = message_number(reader), from_offset = message_number(reader);
    worker_memory *from = find_range(worker, from_number, from_offset, bytes);
    if (from == NULL || reader->bad)
        return unknown("memory", error);
    return device_copy_across(device, &own->memory, offset, &from->memory, from_offset, bytes,
                              error);
}

/* ---- Adapters ---- */

typedef struct adapter_fill {
    worker *worker;
    worker_adapter *own;
    size_t bytes;
} adapter_fill;

/* `data` is an address of rank 0's: what is there comes now. */
static avo_status fill(void *context, const void *data, size_t bytes, const uint8_t **address,
                       avo_error *error) {
    adapter_fill *f = context;
    (void)data;
    if (bytes > f->own->data_bytes - f->bytes)
        return damaged(error);
    *address = f->own->data + f->bytes;
    AVO_TRY(transport_spread(f->worker->transport, f->own->data + f->bytes, bytes,
                             f->worker->timeout_ns, error));
    if (!size_add(f->bytes, bytes, &f->bytes) || !size_round_up(f->bytes, 64, &f->bytes))
        return damaged(error);
    return AVO_OK;
}

static avo_status answer(worker *worker, avo_status status, const avo_error *own,
                         avo_error *error) {
    message_answer sent = {.status = status};
    if (status != AVO_OK)
        memcpy(sent.text, own->text,
               sizeof(sent.text) < sizeof(own->text) ? sizeof(sent.text) - 1 : sizeof(own->text));
    return transport_collect(worker->transport, &sent, sizeof(sent), worker->timeout_ns, error);
}

/* The model of a device: its adapters are for no other. */
static const model_view *model_of(const worker *worker, const worker_device *device) {
    for (const object *at = worker->objects[OBJECT_WEIGHTS]; at != NULL; at = at->next) {
        const worker_weights *weights = (const worker_weights *)(const void *)at;
        if (weights->device == device)
            return &weights->whole;
    }
    return NULL;
}

/* Keeps the structures as they were sent, and takes memory for the arrays. */
static avo_status keep_adapter(worker_adapter *own, const adapter_view *view,
                               const adapter_layer *layers, size_t bytes,
                               const avo_allocator *allocator, avo_error *error) {
    size_t count = own->model.layers;
    adapter_layer *kept = arena_take_array(&own->arena, count, sizeof(*kept));
    own->data = allocator_take(allocator, bytes);
    own->data_bytes = own->data == NULL ? 0 : bytes;
    if (kept == NULL || own->data == NULL)
        return status_no_memory(error, "an adapter", bytes);
    memcpy(kept, layers, count * sizeof(*kept));
    own->view = *view;
    own->view.layer = kept;
    return AVO_OK;
}

static avo_status open_adapter(worker *worker, message_reader *reader, avo_error *error) {
    uint64_t number = message_number(reader);
    worker_device *device = find(worker, OBJECT_DEVICE, message_number(reader));
    uint64_t bytes = message_number(reader), count = message_number(reader);
    adapter_view view;
    (void)message_structure(reader, &view, sizeof(view));
    const adapter_layer *layers = message_array(reader, (size_t)count, sizeof(*layers));
    const model_view *model = device == NULL ? NULL : model_of(worker, device);
    if (model == NULL || count > model->layers)
        return unknown("a model", error);
    if (reader->bad)
        return damaged(error);
    worker_adapter *own = add(worker, OBJECT_ADAPTER, number, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "an adapter", sizeof(*own));
    arena_init(&own->arena, worker->host->allocator, SIZE_MAX);
    own->model = *model;
    own->model.layers = (uint32_t)count;
    avo_status status =
        keep_adapter(own, &view, layers, (size_t)bytes, worker->host->allocator, error);
    if (status != AVO_OK)
        close_object(worker, OBJECT_ADAPTER, number);
    return status;
}

static avo_status fill_adapter(worker *worker, message_reader *reader, avo_error *error) {
    worker_adapter *own = find(worker, OBJECT_ADAPTER, message_number(reader));
    if (own == NULL)
        return unknown("an adapter", error);
    adapter_fill f = {.worker = worker, .own = own};
    adapter_view filled;
    AVO_TRY(upload_adapter(&own->view, &own->model, fill, &f, &own->arena, &filled, error));
    own->view = filled;
    return AVO_OK;
}

/* ---- Steps ---- */

static const adapter_view *adapter_of(void *context, uint64_t number) {
    worker_adapter *own = find(context, OBJECT_ADAPTER, number);
    return own == NULL ? NULL : &own->view;
}

static avo_status make_trouble(const worker *worker, worker_device *device, avo_error *error) {
    const ranks_trouble *trouble = &device->trouble;
    if (++device->steps != trouble->step || trouble->rank != worker->transport->rank)
        return AVO_OK;
    struct timespec rest = {.tv_sec = (time_t)(device->timeout_ns / 1000000000 + 1)};
    if (trouble->kind == RANKS_SLEEPS)
        nanosleep(&rest, NULL);
    return trouble->kind == RANKS_LEAVES
               ? status_fail(error, AVO_ERROR_DEVICE, "rank %u leaves, as requested", trouble->rank)
               : AVO_OK;
}

static avo_status compute_step(worker *worker, message_reader *reader, avo_error *error) {
    message_step step;
    message_reader ahead = *reader;
    (void)message_structure(&ahead, &step, sizeof(step));
    worker_weights *own = find(worker, OBJECT_WEIGHTS, step.weights);
    const worker_memory *memory = find(worker, OBJECT_MEMORY, step.memory);
    if (own == NULL || memory == NULL || step.page_bytes == 0)
        return unknown("weights or memory", error);
    own->limits.pages_max = memory->memory.bytes / step.page_bytes;
    if (!message_read_step(reader, &own->limits, adapter_of, worker, &step, &own->room))
        return damaged(error);
    AVO_TRY(make_trouble(worker, own->device, error));
    own->weights->view.layers = step.layers;
    worker->timeout_ns = own->device->timeout_ns;
    device_kv kv = {.type = (kv_type)step.kv_type,
                    .memory = memory->memory,
                    .page_bytes = step.page_bytes,
                    .layer_offset = own->room.layer_offset};
    device_step given = {.weights = own->weights, .batch = &own->room.batch, .kv = &kv};
    AVO_TRY(device_start(own->stream, (device_work)step.work, &given, error));
    return device_wait(own->stream, error);
}

/* ---- The loop ---- */

static avo_status answered(worker *worker, message_reader *reader, avo_error *error) {
    avo_error own = {0};
    avo_status status = AVO_OK;
    if (reader->kind == MESSAGE_OPEN_DEVICE)
        status = open_device(worker, reader, &own);
    else if (reader->kind == MESSAGE_OPEN_WEIGHTS)
        status = open_weights(worker, reader, &own);
    else if (reader->kind == MESSAGE_TAKE_MEMORY)
        status = take_memory(worker, reader, &own);
    else if (reader->kind == MESSAGE_OPEN_ADAPTER)
        status = open_adapter(worker, reader, &own);
    return answer(worker, status, &own, error);
}

static avo_status obey(worker *worker, message_reader *reader, avo_error *error) {
    switch (reader->kind) {
    case MESSAGE_CLOSE_DEVICE:
        close_object(worker, OBJECT_DEVICE, message_number(reader));
        return AVO_OK;
    case MESSAGE_CLOSE_WEIGHTS:
        close_object(worker, OBJECT_WEIGHTS, message_number(reader));
        return AVO_OK;
    case MESSAGE_GIVE_MEMORY:
        close_object(worker, OBJECT_MEMORY, message_number(reader));
        return AVO_OK;
    case MESSAGE_CLOSE_ADAPTER:
        close_object(worker, OBJECT_ADAPTER, message_number(reader));
        return AVO_OK;
    case MESSAGE_COPY_IN:
    case MESSAGE_COPY_OUT:
    case MESSAGE_COPY_ACROSS:
    case MESSAGE_ZERO:
        return copy(worker, reader, error);
    case MESSAGE_FILL_ADAPTER:
        return fill_adapter(worker, reader, error);
    case MESSAGE_STEP:
        return compute_step(worker, reader, error);
    default:
        return answered(worker, reader, error);
    }
}

avo_status ranks_serve(transport *transport, const ranks_host *host, avo_error *error) {
    worker worker = {.transport = transport,
                     .host = host,
                     .room = {.allocator = host->allocator},
                     .timeout_ns = (uint64_t)RANKS_TIMEOUT_MS * 1000000};
    message_reader reader = {.kind = MESSAGE_KINDS};
    avo_status status = AVO_OK;
    while (status == AVO_OK && reader.kind != MESSAGE_QUIT) {
        status = message_receive(transport, &worker.room, TRANSPORT_FOREVER, &reader, error);
        AVO_THEN(status, obey(&worker, &reader, error));
    }
    close_all(&worker);
    message_room_close(&worker.room);
    return status;
}

bool ranks_dismiss(transport *transport, uint64_t timeout_ns) {
    message_answer answers[GROUP_RANKS_MAX];
    message message;
    message_open(&message, transport->allocator);
    message_begin(&message, MESSAGE_QUIT);
    bool good = message_send(&message, transport, timeout_ns, NULL) == AVO_OK &&
                transport_collect(transport, answers, sizeof(*answers), timeout_ns, NULL) == AVO_OK;
    message_close(&message);
    return good;
}
