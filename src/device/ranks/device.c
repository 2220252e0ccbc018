/* Rank 0's device: a CPU device that has a part of the model, and messages to the ranks that have
 * the others. They are joined when the first weights are opened that can be split; until then, and
 * for weights that cannot (draft heads), this is the CPU device alone. */
#include "device/ranks/ranks_int.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/hash.h"
#include "device/kv_tile.h"
#include "device/upload.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Messages ---- */

avo_status ranks_lose(ranks_device *ranks, avo_status status, const avo_error *error) {
    ranks->lost = AVO_ERROR_DEVICE;
    ranks->lost_error = *error;
    return status;
}

static avo_status check_lost(const ranks_device *ranks, avo_error *error) {
    if (ranks->lost == AVO_OK)
        return AVO_OK;
    return status_fail(error, ranks->lost, "the other ranks were lost (%.180s); start anew",
                       ranks->lost_error.text);
}

/* The caller's error, and what is kept of it. */
static avo_status checked(ranks_device *ranks, avo_status status, const avo_error *own,
                          avo_error *error) {
    if (status == AVO_OK)
        return AVO_OK;
    if (error != NULL)
        *error = *own;
    return ranks_lose(ranks, status, own);
}

avo_status ranks_send(ranks_device *ranks, avo_error *error) {
    avo_error own = {0};
    AVO_TRY(check_lost(ranks, error));
    avo_status status =
        message_send(&ranks->message, ranks->transport, ranks_timeout_ns(ranks), &own);
    return checked(ranks, status, &own, error);
}

avo_status ranks_ask(ranks_device *ranks, uint64_t timeout_ms, avo_error *error) {
    AVO_TRY(ranks_send(ranks, error));
    return ranks_answers(ranks, timeout_ms, error);
}

avo_status ranks_answers(ranks_device *ranks, uint64_t timeout_ms, avo_error *error) {
    avo_error own = {0};
    avo_status status = transport_collect(ranks->transport, ranks->answer, sizeof(*ranks->answer),
                                          timeout_ms * 1000000, &own);
    AVO_TRY(checked(ranks, status, &own, error));
    for (uint32_t rank = 1; rank < ranks->group.ranks; rank++) {
        message_answer *answer = &ranks->answer[rank];
        answer->text[sizeof(answer->text) - 1] = '\0';
        if (answer->status != AVO_OK)
            return status_fail(error, (avo_status)answer->status, "rank %u: %s", rank,
                               answer->text);
    }
    return AVO_OK;
}

/* What cannot fail: a rank that is lost shows at the next call that can. */
static void tell(ranks_device *ranks, message_kind kind, uint64_t number) {
    avo_error ignored;
    if (ranks->transport == NULL || ranks->lost != AVO_OK)
        return;
    message_begin(&ranks->message, kind);
    message_add_number(&ranks->message, number);
    (void)!ranks_send(ranks, &ignored);
}

static bool is_spread(const ranks_device *ranks) {
    return ranks->transport != NULL;
}

/* ---- Joining ---- */

static avo_status exchange(void *context, const group_part *send, const group_part *receive,
                           avo_error *error) {
    const ranks_device *ranks = context;
    return transport_exchange(ranks->transport, send, receive, ranks_timeout_ns(ranks), error);
}

static avo_status join(ranks_device *ranks, avo_error *error) {
    if (is_spread(ranks))
        return AVO_OK;
    AVO_TRY(ranks->carrier->join(ranks->base.allocator, ranks->group.ranks, &ranks->world,
                                 &ranks->transport, error));
    message_begin(&ranks->message, MESSAGE_OPEN_DEVICE);
    ranks_opening opening = {.device = number_of(ranks),
                             .protocol = RANKS_PROTOCOL,
                             .structure_bytes = sizeof(adapter_view) + sizeof(adapter_layer) +
                                                sizeof(message_step) + sizeof(weight_view),
                             .threads = ranks->threads,
                             .by_layers = ranks->group.by_layers,
                             .lock = ranks->lock,
                             .timeout_ms = ranks->wish.timeout_ms,
                             .trouble = ranks->wish.trouble};
    message_add(&ranks->message, &opening, sizeof(opening));
    message_add_text(&ranks->message, ranks->wish.inner->name);
    message_add_text(&ranks->message, ranks->huge_pages);
    message_add_text(&ranks->message, ranks->pin);
    message_add_text(&ranks->message, avo_version());
    return ranks_ask(ranks, RANKS_OPENING_MS, error);
}

/* ---- Memory ---- */

static bool memory_round(const device *device, size_t bytes, uint64_t *rounded) {
    return device_memory_round(((const ranks_device *)(const void *)device)->inner, bytes, rounded);
}

static avo_status memory_take(device *device, size_t bytes, const char *what, device_memory *out,
                              avo_error *error) {
    ranks_device *ranks = ranks_of(device);
    AVO_TRY(device_memory_take(ranks->inner, bytes, what, out, error));
    if (!is_spread(ranks))
        return AVO_OK;
    message_begin(&ranks->message, MESSAGE_TAKE_MEMORY);
    message_add_number(&ranks->message, number_of(out->owner));
    message_add_number(&ranks->message, number_of(ranks));
    message_add_number(&ranks->message, bytes);
    message_add_text(&ranks->message, what);
    avo_status status = ranks_ask(ranks, RANKS_OPENING_MS, error);
    if (status != AVO_OK) {
        tell(ranks, MESSAGE_GIVE_MEMORY, number_of(out->owner)); /* of those that have it */
        device_memory_give(ranks->inner, out);
    }
    return status;
}

static void memory_give(device *device, device_memory *memory) {
    ranks_device *ranks = ranks_of(device);
    tell(ranks, MESSAGE_GIVE_MEMORY, number_of(memory->owner));
    if (ranks->kv_memory == number_of(memory->owner))
        ranks->kv_memory = 0;
    device_memory_give(ranks->inner, memory);
}

static void begin_range(ranks_device *ranks, message_kind kind, const device_memory *memory,
                        size_t offset, size_t bytes) {
    message_begin(&ranks->message, kind);
    message_add_number(&ranks->message, number_of(memory->owner));
    message_add_number(&ranks->message, offset);
    message_add_number(&ranks->message, bytes);
}

static avo_status copy_in(device *device, const device_memory *to, size_t offset, const void *from,
                          size_t bytes, avo_error *error) {
    ranks_device *ranks = ranks_of(device);
    AVO_TRY(device_copy_in(ranks->inner, to, offset, from, bytes, error));
    if (!is_spread(ranks))
        return AVO_OK;
    avo_error own = {0};
    begin_range(ranks, MESSAGE_COPY_IN, to, offset, bytes);
    AVO_TRY(ranks_send(ranks, error));
    avo_status status = transport_spread(ranks->transport, (void *)(uintptr_t)from, bytes,
                                         ranks_timeout_ns(ranks), &own);
    return checked(ranks, status, &own, error);
}

/* What `rank` has computed of the pages [offset, offset + bytes) of the last step's pool, from its
 * copy of them. */
static void take_over(const ranks_device *ranks, uint32_t rank, size_t offset, size_t bytes,
                      const uint8_t *copy, uint8_t *to) {
    const model_view *model = &ranks->kv_weights->base.view;
    model_view stored = *model;
    stored.layers = ranks->kv_weights->layers_stored;
    group_range layers = {0, model->layers};
    if (ranks->group.by_layers)
        layers = group_layers(&ranks->group, &stored, rank);
    layers.end = size_min(layers.end, model->layers);
    size_t first_page = offset / ranks->page_bytes, end = offset + bytes;
    for (size_t page = first_page; page * ranks->page_bytes < end; page++)
        for (size_t i = layers.first; i < layers.end; i++) {
            const layer_view *layer = &model->layer[i];
            size_t head = kv_head_bytes(ranks->kv_type, layer->head_size);
            group_range heads = {0, layer->kv_heads};
            if (!ranks->group.by_layers)
                heads = group_heads(&ranks->group, layer, rank);
            size_t at = page * ranks->page_bytes + ranks->layer_offset[i] + heads.first * head;
            size_t stop = size_min(at + (heads.end - heads.first) * head, end);
            at = size_max(at, offset);
            if (at < stop)
                memcpy(to + (at - offset), copy + (at - offset), stop - at);
        }
}

/* Every rank has K and V of its own heads or layers alone. Before the first step there is nothing
 * but what was copied in, which all ranks have. */
static avo_status copy_out(device *device, void *to, const device_memory *from, size_t offset,
                           size_t bytes, avo_error *error) {
    ranks_device *ranks = ranks_of(device);
    AVO_TRY(device_copy_out(ranks->inner, to, from, offset, bytes, error));
    if (!is_spread(ranks) || ranks->kv_memory != number_of(from->owner))
        return AVO_OK;
    size_t count = ranks->group.ranks * bytes;
    uint8_t *copies = allocator_take(device->allocator, count);
    if (copies == NULL)
        return status_no_memory(error, "pages of all ranks", count);
    avo_error own = {0};
    begin_range(ranks, MESSAGE_COPY_OUT, from, offset, bytes);
    avo_status status = ranks_send(ranks, &own);
    AVO_THEN(status,
             transport_collect(ranks->transport, copies, bytes, ranks_timeout_ns(ranks), &own));
    for (uint32_t rank = 1; status == AVO_OK && rank < ranks->group.ranks; rank++)
        take_over(ranks, rank, offset, bytes, copies + rank * bytes, to);
    allocator_give(device->allocator, copies, count);
    return checked(ranks, status, &own, error);
}

static avo_status copy_across(device *device, const device_memory *to, size_t to_offset,
                              const device_memory *from, size_t from_offset, size_t bytes,
                              avo_error *error) {
    ranks_device *ranks = ranks_of(device);
    AVO_TRY(device_copy_across(ranks->inner, to, to_offset, from, from_offset, bytes, error));
    if (!is_spread(ranks))
        return AVO_OK;
    begin_range(ranks, MESSAGE_COPY_ACROSS, to, to_offset, bytes);
    message_add_number(&ranks->message, number_of(from->owner));
    message_add_number(&ranks->message, from_offset);
    return ranks_send(ranks, error);
}

static avo_status zero(device *device, const device_memory *memory, size_t offset, size_t bytes,
                       avo_error *error) {
    ranks_device *ranks = ranks_of(device);
    AVO_TRY(device_zero(ranks->inner, memory, offset, bytes, error));
    if (!is_spread(ranks))
        return AVO_OK;
    begin_range(ranks, MESSAGE_ZERO, memory, offset, bytes);
    return ranks_send(ranks, error);
}

/* ---- Weights ---- */

static void check_weight(hash_stream *stream, const weight_view *weight) {
    const uint32_t shape[] = {weight->type, weight->layout, weight->rows, weight->k};
    uint64_t bytes = 0;
    if (weight->data == NULL ||
        !weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes))
        return;
    hash_stream_add(stream, shape, sizeof(shape));
    hash_stream_add(stream, weight->data, bytes < 64 ? (size_t)bytes : 64);
}

uint64_t ranks_weights_check(const model_view *model) {
    uint64_t sum[2];
    hash_stream stream;
    hash_wide_begin(&stream);
    check_weight(&stream, &model->embedding);
    for (uint32_t i = 0; i < model->layers; i++) {
        const layer_view *layer = &model->layer[i];
        const linear_view *linears[] = {&layer->query, &layer->key, &layer->value, &layer->output,
                                        &layer->gate,  &layer->up,  &layer->down};
        for (size_t j = 0; j < sizeof(linears) / sizeof(linears[0]); j++)
            check_weight(&stream, &linears[j]->weight);
    }
    check_weight(&stream, &model->head.weight);
    hash_wide_sum(&stream, sum);
    return sum[0];
}

static void add_rotary(message *message, const model_view *model) {
    for (uint32_t i = 0; i < model->rotary_tables; i++) {
        message_add(message, &model->rotary[i], sizeof(model->rotary[i]));
        message_add(message, model->rotary[i].frequency,
                    model->rotary[i].pairs * sizeof(*model->rotary[i].frequency));
    }
}

static avo_status open_others(device_stream *base, const weights_source *source,
                              ranks_weights *weights, avo_error *error) {
    ranks_device *ranks = ranks_of(base->device);
    const stream_shape *shape = &base->shape;
    const model_view *model = source->model;
    message *message = &ranks->message;
    if (ranks->carrier->offer != NULL)
        ranks->carrier->offer(ranks->world, source);
    message_begin(message, MESSAGE_OPEN_WEIGHTS);
    ranks_weights_opening opening = {.weights = number_of(weights),
                                     .device = number_of(ranks),
                                     .check = ranks_weights_check(model),
                                     .rows_max = shape->rows_max,
                                     .logits_max = shape->logits_max,
                                     .head_rows = shape->head_rows,
                                     .context_max = shape->context_max,
                                     .adapter_rank_max = shape->adapter_rank_max,
                                     .pairs_max = shape->pairs_max,
                                     .taps = shape->taps,
                                     .rotary_tables = model->rotary_tables};
    message_add(message, &opening, sizeof(opening));
    message_add(message, shape->tap, shape->taps * sizeof(*shape->tap));
    message_add_text(message, source->path);
    add_rotary(message, model);
    weights->spread = true; /* some ranks may have theirs even where others fail */
    return ranks_send(ranks, error);
}

static avo_status weights_plan_ranks(const device *device, const weights_source *source,
                                     weights_plan *plan, avo_error *error) {
    ranks_device *ranks = (ranks_device *)(uintptr_t)device; /* its rank, and back again */
    uint64_t bytes[DEVICE_RANKS_MAX] = {0};
    avo_status status = AVO_OK;
    for (uint32_t rank = ranks->group.ranks; status == AVO_OK && rank-- > 0;) {
        ranks->group.rank = rank;
        status = device_weights_plan(ranks->inner, source, plan, error);
        bytes[rank] = plan->mapped_bytes + plan->copied_bytes;
    }
    ranks->group.rank = 0;
    if (status != AVO_OK || !source->divisible)
        return status;
    plan->ranks = ranks->group.ranks;
    memcpy(plan->rank_bytes, bytes, sizeof(bytes));
    return AVO_OK;
}

static avo_status weights_open(device_stream *stream, const weights_source *source,
                               device_weights *base, avo_error *error) {
    ranks_weights *weights = (ranks_weights *)(void *)base;
    ranks_device *ranks = ranks_of(stream->device);
    device_stream *inner = ((ranks_stream *)(void *)stream)->inner;
    weights->layers_stored = source->model->layers;
    if (!source->divisible)
        return device_weights_open(inner, source, &weights->inner, error);
    AVO_TRY(join(ranks, error));
    AVO_TRY(open_others(stream, source, weights, error));
    avo_status status = device_weights_open(inner, source, &weights->inner, error);
    avo_status others = ranks_answers(ranks, RANKS_OPENING_MS, status == AVO_OK ? error : NULL);
    return status == AVO_OK ? others : status;
}

static void weights_close(device_weights *base) {
    ranks_weights *weights = (ranks_weights *)(void *)base;
    if (weights->spread)
        tell(ranks_of(base->device), MESSAGE_CLOSE_WEIGHTS, number_of(weights));
    device_weights_close(weights->inner);
}

/* ---- Adapters ---- */

typedef struct adapter_fill {
    ranks_device *ranks;
    uint8_t *at; /* NULL: sizes are counted */
    size_t bytes;
    bool sends;
} adapter_fill;

static avo_status fill(void *context, const void *data, size_t bytes, const uint8_t **address,
                       avo_error *error) {
    adapter_fill *f = context;
    avo_error own = {0};
    *address = f->at == NULL ? data : f->at + f->bytes;
    if (f->at != NULL)
        memcpy(f->at + f->bytes, data, bytes);
    if (!size_add(f->bytes, bytes, &f->bytes) || !size_round_up(f->bytes, 64, &f->bytes))
        return status_fail(error, AVO_ERROR_LIMIT, "an adapter of %zu bytes is too large", bytes);
    if (!f->sends)
        return AVO_OK;
    avo_status status = transport_spread(f->ranks->transport, (void *)(uintptr_t)data, bytes,
                                         ranks_timeout_ns(f->ranks), &own);
    return checked(f->ranks, status, &own, error);
}

/* Structures are sent as they are; where they point to is told by the walk over them. */
static avo_status open_adapters(ranks_device *ranks, const adapter_view *view,
                                const model_view *model, const adapter_copy *copy, size_t bytes,
                                avo_error *error) {
    message *message = &ranks->message;
    message_begin(message, MESSAGE_OPEN_ADAPTER);
    message_add_number(message, number_of(&copy->view));
    message_add_number(message, number_of(ranks));
    message_add_number(message, bytes);
    message_add_number(message, model->layers);
    message_add(message, view, sizeof(*view));
    message_add(message, view->layer, model->layers * sizeof(*view->layer));
    AVO_TRY(ranks_ask(ranks, RANKS_OPENING_MS, error));
    message_begin(message, MESSAGE_FILL_ADAPTER);
    message_add_number(message, number_of(&copy->view));
    return ranks_send(ranks, error);
}

static void adapter_close(device *device, adapter_copy *copy) {
    tell(ranks_of(device), MESSAGE_CLOSE_ADAPTER, number_of(&copy->view));
    device_memory_give(ranks_of(device)->inner, &copy->memory);
}

static avo_status adapter_open(device *device, const adapter_view *view, const model_view *model,
                               adapter_copy *copy, avo_error *error) {
    ranks_device *ranks = ranks_of(device);
    adapter_fill count = {.ranks = ranks};
    AVO_TRY(upload_adapter(view, model, fill, &count, &copy->arena, &copy->view, error));
    size_t bytes = count.bytes > 0 ? count.bytes : 64;
    AVO_TRY(device_memory_take(ranks->inner, bytes, "an adapter", &copy->memory, error));
    if (is_spread(ranks))
        AVO_TRY(open_adapters(ranks, view, model, copy, bytes, error));
    adapter_fill f = {.ranks = ranks, .at = copy->memory.address, .sends = is_spread(ranks)};
    return upload_adapter(view, model, fill, &f, &copy->arena, &copy->view, error);
}

/* ---- Opening ---- */

static void close_ranks(device *device) {
    ranks_device *ranks = ranks_of(device);
    tell(ranks, MESSAGE_CLOSE_DEVICE, number_of(ranks));
    device_close(ranks->inner);
    if (ranks->transport != NULL)
        ranks->carrier->leave(ranks->world, ranks->transport);
    message_close(&ranks->message);
    allocator_give(device->allocator, ranks, sizeof(*ranks));
}

static const device_operations operations = {
    .close = close_ranks,
    .memory_round = memory_round,
    .memory_take = memory_take,
    .memory_give = memory_give,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_across = copy_across,
    .zero = zero,
    .weights_plan = weights_plan_ranks,
    .weights_open = weights_open,
    .weights_size = sizeof(ranks_weights),
    .weights_close = weights_close,
    .adapter_open = adapter_open,
    .adapter_close = adapter_close,
    .stream = &ranks_stream_operations,
};

/* A number at the end of the text. */
static bool read_number(const char *text, const char *end, uint64_t most, uint64_t *number) {
    char *stop;
    errno = 0;
    *number = strtoull(text, &stop, 10);
    return text < end && *text >= '0' && *text <= '9' && errno == 0 && stop == end &&
           *number <= most;
}

/* "leaves=1@20": what rank 1 does at its step 20. */
static bool read_trouble(const char *text, const char *end, ranks_trouble *out) {
    static const char *const kinds[] = {"leaves=", "sleeps=", "lacks="};
    for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t name = strlen(kinds[i]);
        uint64_t rank;
        const char *at = memchr(text, '@', (size_t)(end - text));
        if (strncmp(text, kinds[i], name) != 0 || at == NULL ||
            !read_number(text + name, at, GROUP_RANKS_MAX, &rank) ||
            !read_number(at + 1, end, UINT32_MAX, &out->step))
            continue;
        out->rank = (uint32_t)rank;
        out->kind = i;
        return true;
    }
    return false;
}

static bool read_one(const char *text, size_t length, ranks_wish *wish) {
    const char *end = text + length;
    char name[16] = "";
    uint64_t number;
    if (read_number(text, end, GROUP_RANKS_MAX, &number)) {
        wish->ranks = (uint32_t)number;
        return number > 0;
    }
    if (length > 8 && strncmp(text, "timeout=", 8) == 0) {
        bool good = read_number(text + 8, end, RANKS_TIMEOUT_MAX / 1000, &number) && number > 0;
        wish->timeout_ms = good ? number * 1000 : 0;
        return good;
    }
    if (length < sizeof(name))
        memcpy(name, text, length);
    if (strcmp(name, "layers") == 0 || strcmp(name, "rows") == 0) {
        wish->by_layers = name[0] == 'l';
        return true;
    }
    const device_driver *found;
    if (name[0] != '\0' && strchr(name, ':') == NULL &&
        device_find_among(device_drivers(), name, &found, NULL) == AVO_OK &&
        strcmp(found->kind, "cpu") == 0) {
        wish->inner = found;
        return true;
    }
    return read_trouble(text, end, &wish->trouble);
}

avo_status ranks_read_wish(const char *device, const char *parameters, ranks_wish *wish,
                           avo_error *error) {
    *wish = (ranks_wish){.timeout_ms = RANKS_TIMEOUT_MS};
    AVO_TRY(device_find_among(device_drivers(), "cpu", &wish->inner, error));
    for (const char *at = parameters; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (!read_one(at, length, wish))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "device '%s:%.*s': must be a CPU device that works here, rows or "
                               "layers (what is split), timeout=SECONDS, or a number of ranks, "
                               "with commas between them",
                               device, (int)(length < 40 ? length : 40), at);
        at += length + (at[length] == ',');
    }
    return AVO_OK;
}

avo_status ranks_probe(const device_driver *driver, const ranks_carrier *carrier,
                       const char *parameters, avo_error *error) {
    ranks_wish wish;
    uint32_t ranks, here;
    AVO_TRY(ranks_read_wish(driver->name, parameters, &wish, error));
    return carrier->count(wish.ranks, &ranks, &here, error);
}

/* Threads of each rank, where nobody has said how many: ranks of one machine share its processors
 * unless each was bound to some of them. */
uint32_t ranks_threads(uint32_t asked, uint32_t here) {
    cpu_threads found = cpu_threads_detect();
    if (asked > 0 || here < 2 || found.affinity < found.online)
        return asked > 0 ? asked : found.usable;
    return found.usable > here ? found.usable / here : 1;
}

static avo_status set_up(ranks_device *ranks, const device_driver *driver,
                         const device_options *options, const char *parameters, avo_error *error) {
    uint32_t here;
    AVO_TRY(ranks_read_wish(driver->name, parameters, &ranks->wish, error));
    AVO_TRY(ranks->carrier->count(ranks->wish.ranks, &ranks->group.ranks, &here, error));
    ranks->group.by_layers = ranks->wish.by_layers;
    ranks->group.exchange = exchange;
    ranks->group.context = ranks;
    ranks->threads = options->threads;
    ranks->huge_pages = options->huge_pages;
    ranks->pin = options->pin;
    ranks->lock = options->lock;
    device_options own = *options;
    own.threads = ranks_threads(options->threads, here);
    AVO_TRY(cpu_open_in_group(ranks->wish.inner, &own, &ranks->group, &ranks->inner, error));
    device_info *info = &ranks->base.info;
    *info = *device_describe(ranks->inner);
    info->name = driver->name;
    info->kind = driver->kind;
    info->observes = false;
    info->experts = false;
    info->parallel = false;
    info->memory_available /= here;
    return AVO_OK;
}

avo_status ranks_open(const device_driver *driver, const ranks_carrier *carrier,
                      const device_options *options, const char *parameters, device **out,
                      avo_error *error) {
    ranks_device *ranks = allocator_take_array(options->allocator, 1, sizeof(*ranks));
    if (ranks == NULL)
        return status_no_memory(error, "the device", sizeof(*ranks));
    ranks->base.operations = &operations;
    ranks->base.allocator = options->allocator;
    ranks->carrier = carrier;
    message_open(&ranks->message, options->allocator);
    *out = &ranks->base;
    return set_up(ranks, driver, options, parameters, error);
}

/* ---- Open MPI ---- */

static avo_status mpi_count(uint32_t wanted, uint32_t *ranks, uint32_t *here, avo_error *error) {
    mpi_launch launch = mpi_launched();
    *ranks = launch.ranks > 0 ? launch.ranks : wanted;
    *here = launch.ranks > 0 ? launch.here : 1;
    if (*ranks < 2)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "mpirun has not started this process: `mpirun -n 4 avocet …`; "
                           "`avocet plan --device mpi:4` tells what each of 4 would take");
    if (*ranks <= GROUP_RANKS_MAX && (wanted == 0 || wanted == *ranks))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT, "mpirun has started %u ranks, must be %s %u",
                       *ranks, wanted == 0 ? "at most" : "as asked for,",
                       wanted == 0 ? GROUP_RANKS_MAX : wanted);
}

static avo_status mpi_connect(const avo_allocator *allocator, uint32_t ranks, void **world,
                              transport **out, avo_error *error) {
    *world = NULL;
    (void)ranks;
    if (!mpi_joined())
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "the ranks have not met: only the command avocet, started by mpirun, "
                           "computes on device mpi");
    return transport_mpi(allocator, out, error);
}

static void mpi_disconnect(void *world, transport *transport) {
    (void)world;
    transport_close(transport);
}

static const ranks_carrier mpi_carrier = {
    .count = mpi_count, .join = mpi_connect, .leave = mpi_disconnect};

static avo_status probe(const device_driver *driver, const char *parameters, avo_error *error) {
    return ranks_probe(driver, &mpi_carrier, parameters, error);
}

static avo_status open(const device_driver *driver, const device_options *options,
                       const char *parameters, device **out, avo_error *error) {
    return ranks_open(driver, &mpi_carrier, options, parameters, out, error);
}

/* Before all others: who starts several processes wants them to compute together. */
const device_driver device_mpi = {"mpi", "ranks", 1000, probe, open};
