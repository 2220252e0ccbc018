/* The remote device: opening, memory, weights and adapters. */
#include "device/test/remote_int.h"

#include "base/checked.h"
#include "device/cpu/cpu.h"
#include "device/upload.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint64_t remote_uploads(const device *device) {
    return atomic_load(&((const remote_device *)(const void *)device)->uploads);
}

avo_status remote_call(device *device, const char *what, avo_error *error) {
    remote_device *remote = remote_of(device);
    uint64_t number = atomic_fetch_add(&remote->calls, 1) + 1;
    bool fails = number == remote->fail || (remote->every > 0 && number % remote->every == 0) ||
                 (remote->lost > 0 && number >= remote->lost);
    if (!fails)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_DEVICE,
                       "device remote: %s failed, as requested (call %llu)", what,
                       (unsigned long long)number);
}

/* ---- Memory ---- */

static bool memory_round(const device *device, size_t bytes, uint64_t *rounded) {
    const remote_device *remote = (const remote_device *)(const void *)device;
    return device_memory_round(remote->inner, bytes, rounded);
}

static avo_status memory_take(device *device, size_t bytes, const char *what, device_memory *out,
                              avo_error *error) {
    AVO_TRY(remote_call(device, "taking memory", error));
    AVO_TRY(device_memory_take(remote_of(device)->inner, bytes, what, out, error));
    remote_of(device)->blocks++;
    return AVO_OK;
}

static void memory_give(device *device, device_memory *memory) {
    remote_of(device)->blocks--;
    device_memory_give(remote_of(device)->inner, memory);
}

static void copy(remote_device *remote, void *to, const void *from, size_t bytes) {
    wall_open(&remote->wall);
    memcpy(to, from, bytes);
    wall_close(&remote->wall);
}

static avo_status copy_in(device *device, const device_memory *to, size_t offset, const void *from,
                          size_t bytes, avo_error *error) {
    AVO_TRY(remote_call(device, "a copy to the device", error));
    copy(remote_of(device), to->address + offset, from, bytes);
    return AVO_OK;
}

static avo_status copy_out(device *device, void *to, const device_memory *from, size_t offset,
                           size_t bytes, avo_error *error) {
    AVO_TRY(remote_call(device, "a copy from the device", error));
    copy(remote_of(device), to, from->address + offset, bytes);
    return AVO_OK;
}

static avo_status copy_across(device *device, const device_memory *to, size_t to_offset,
                              const device_memory *from, size_t from_offset, size_t bytes,
                              avo_error *error) {
    AVO_TRY(remote_call(device, "a copy on the device", error));
    copy(remote_of(device), to->address + to_offset, from->address + from_offset, bytes);
    return AVO_OK;
}

static avo_status zero(device *device, const device_memory *memory, size_t offset, size_t bytes,
                       avo_error *error) {
    AVO_TRY(remote_call(device, "clearing memory", error));
    remote_device *remote = remote_of(device);
    wall_open(&remote->wall);
    memset(memory->address + offset, 0, bytes);
    wall_close(&remote->wall);
    return AVO_OK;
}

/* ---- Uploads ---- */

typedef struct block_fill {
    remote_device *remote;
    uint8_t *at; /* NULL: sizes are counted */
    size_t bytes;
} block_fill;

/* Arrays one after another, each at a multiple of 64. */
static avo_status fill(void *context, const void *data, size_t bytes, const uint8_t **address,
                       avo_error *error) {
    block_fill *f = context;
    *address = f->at == NULL ? data : f->at + f->bytes;
    if (f->at != NULL)
        copy(f->remote, f->at + f->bytes, data, bytes);
    if (!size_add(f->bytes, bytes, &f->bytes) || !size_round_up(f->bytes, 64, &f->bytes))
        return status_fail(error, AVO_ERROR_LIMIT, "an upload of %zu bytes is too large", bytes);
    return AVO_OK;
}

/* ---- Weights ---- */

static avo_status count_upload(const remote_device *remote, const model_view *model, size_t *bytes,
                               avo_error *error) {
    arena views;
    arena_init(&views, remote->base.allocator, SIZE_MAX);
    block_fill f = {0};
    model_view ignored;
    avo_status status = upload_model(model, fill, &f, &views, &ignored, error);
    arena_free(&views);
    *bytes = f.bytes;
    return status;
}

static avo_status weights_plan_remote(const device *device, const weights_source *source,
                                      weights_plan *plan, avo_error *error) {
    const remote_device *remote = (const remote_device *)(const void *)device;
    size_t bytes;
    uint64_t rounded;
    AVO_TRY(device_weights_plan(remote->inner, source, plan, error));
    AVO_TRY(count_upload(remote, source->model, &bytes, error));
    if (!device_memory_round(remote->inner, bytes, &rounded))
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the weights are too large", source->path);
    plan->mapped_bytes = 0;
    plan->copied_bytes += rounded;
    plan->missing_bytes = plan->copied_bytes;
    return AVO_OK;
}

static void weights_close_remote(device_weights *base) {
    remote_weights *weights = (remote_weights *)(void *)base;
    remote_device *remote = remote_of(base->device);
    assert(remote->blocks == 0 && remote->adapters == 0);
    remote->weights--;
    device_weights_close(weights->inner);
    device_memory_give(remote->inner, &weights->memory);
    arena_free(&weights->arena);
}

static avo_status weights_fill(device_stream *stream, const weights_source *source,
                               remote_weights *weights, avo_error *error) {
    remote_device *remote = remote_of(stream->device);
    size_t bytes;
    model_view uploaded;
    AVO_TRY(remote_call(stream->device, "uploading weights", error));
    AVO_TRY(count_upload(remote, source->model, &bytes, error));
    AVO_TRY(device_memory_take(remote->inner, bytes, "weights", &weights->memory, error));
    block_fill f = {.remote = remote, .at = weights->memory.address};
    AVO_TRY(upload_model(source->model, fill, &f, &weights->arena, &uploaded, error));
    weights_source inner = *source;
    inner.model = &uploaded;
    inner.forget = inner.ask_huge = NULL;
    wall_open(&remote->wall);
    avo_status status =
        device_weights_open(remote_stream_inner(stream), &inner, &weights->inner, error);
    wall_close(&remote->wall);
    if (status == AVO_OK)
        weights->base.view = *device_weights_view(weights->inner);
    return status;
}

static avo_status weights_open_remote(device_stream *stream, const weights_source *source,
                                      device_weights *base, avo_error *error) {
    remote_weights *weights = (remote_weights *)(void *)base;
    remote_of(stream->device)->weights++;
    arena_init(&weights->arena, stream->device->allocator, SIZE_MAX);
    return weights_fill(stream, source, weights, error);
}

/* ---- Adapters ---- */

static void adapter_close_remote(device *device, adapter_copy *copy) {
    remote_of(device)->adapters--;
    device_memory_give(remote_of(device)->inner, &copy->memory);
}

static avo_status adapter_open_remote(device *device, const adapter_view *view,
                                      const model_view *model, adapter_copy *copy,
                                      avo_error *error) {
    remote_device *remote = remote_of(device);
    block_fill count = {0};
    remote->adapters++;
    AVO_TRY(remote_call(device, "uploading an adapter", error));
    AVO_TRY(upload_adapter(view, model, fill, &count, &copy->arena, &copy->view, error));
    size_t bytes = count.bytes > 0 ? count.bytes : 64;
    AVO_TRY(device_memory_take(remote->inner, bytes, "an adapter", &copy->memory, error));
    block_fill f = {.remote = remote, .at = copy->memory.address};
    remote->uploads++;
    return upload_adapter(view, model, fill, &f, &copy->arena, &copy->view, error);
}

/* ---- Opening ---- */

static void close_remote(device *device) {
    remote_device *remote = remote_of(device);
    assert(remote->streams == 0);
    wall_open(&remote->wall);
    device_close(remote->inner);
    wall_close(&remote->wall);
    wall_end(&remote->wall);
    allocator_give(device->allocator, remote, sizeof(*remote));
}

static const device_operations operations = {
    .close = close_remote,
    .memory_round = memory_round,
    .memory_take = memory_take,
    .memory_give = memory_give,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_across = copy_across,
    .zero = zero,
    .weights_plan = weights_plan_remote,
    .weights_open = weights_open_remote,
    .weights_size = sizeof(remote_weights),
    .weights_close = weights_close_remote,
    .adapter_open = adapter_open_remote,
    .adapter_close = adapter_close_remote,
    .stream = &remote_stream_operations,
};

#define REMOTE_NUMBER_MAX ((uint64_t)1 << 43) /* as bytes of so many MiB it still fits */

typedef struct remote_wish {
    const device_driver *inner;
    uint64_t delay, fail, every, lost, memory;
    bool opaque, single, late;
} remote_wish;

/* A CPU driver by name; NULL: there is none, or it does not work here. */
static const device_driver *inner_driver(const char *name, size_t length) {
    char copy[16];
    const device_driver *found;
    if (length >= sizeof(copy))
        return NULL;
    memcpy(copy, name, length);
    copy[length] = '\0';
    bool is_cpu = device_find_among(device_drivers(), copy, &found, NULL) == AVO_OK &&
                  strcmp(found->kind, "cpu") == 0;
    return is_cpu ? found : NULL;
}

/* One parameter; false: nobody knows it. */
static bool read_wish(const char *text, size_t length, remote_wish *wish) {
    struct {
        const char *name;
        uint64_t *number;
    } numbers[] = {{"delay=", &wish->delay},
                   {"fail=", &wish->fail},
                   {"every=", &wish->every},
                   {"lost=", &wish->lost},
                   {"memory=", &wish->memory}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t name = strlen(numbers[i].name);
        if (length > name && strncmp(text, numbers[i].name, name) == 0) {
            char *end;
            errno = 0;
            *numbers[i].number = strtoull(text + name, &end, 10);
            return text[name] >= '0' && text[name] <= '9' && errno == 0 && end == text + length &&
                   *numbers[i].number <= REMOTE_NUMBER_MAX;
        }
    }
    if (length == 6 && strncmp(text, "opaque", 6) == 0)
        return wish->opaque = true;
    if (length == 6 && strncmp(text, "single", 6) == 0)
        return wish->single = true;
    if (length == 4 && strncmp(text, "late", 4) == 0)
        return wish->late = true;
    wish->inner = inner_driver(text, length);
    return wish->inner != NULL;
}

static avo_status read_wishes(const char *parameters, remote_wish *wish, avo_error *error) {
    *wish = (remote_wish){.inner = inner_driver("cpu", 3), .memory = (uint64_t)1 << 20};
    for (const char *at = parameters; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (!read_wish(at, length, wish))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "device 'remote:%.*s': must be a CPU device that works here, "
                               "opaque, single, late, or delay=, fail=, every=, lost=, memory= "
                               "and a number up to 2^43",
                               (int)(length < 40 ? length : 40), at);
        at += length + (at[length] == ',');
    }
    return AVO_OK;
}

static avo_status set_up(remote_device *remote, const remote_wish *wish,
                         const device_options *options, avo_error *error) {
    AVO_TRY(
        cpu_open_with_data(wish->inner, options, &remote->wall.allocator, &remote->inner, error));
    remote->late = wish->late;
    remote->delay_us = (uint32_t)(wish->delay < 1000000 ? wish->delay : 1000000);
    remote->fail = wish->fail;
    remote->every = wish->every;
    remote->lost = wish->lost;
    device_info *info = &remote->base.info;
    *info = *device_describe(remote->inner);
    info->name = device_remote.name;
    info->kind = device_remote.kind;
    info->host = false;
    info->whole_pages = true;
    if (wish->opaque)
        info->cpu = (device_cpu){0};
    if (wish->single)
        info->parallel = false;
    info->memory_available = wish->memory << 20;
    info->memory_limit = "memory= of the remote device";
    return AVO_OK;
}

static avo_status open(const device_driver *driver, const device_options *options,
                       const char *parameters, device **out, avo_error *error) {
    (void)driver;
    remote_wish wish;
    AVO_TRY(read_wishes(parameters, &wish, error));
    remote_device *remote = allocator_take_array(options->allocator, 1, sizeof(*remote));
    if (remote == NULL)
        return status_no_memory(error, "the device", sizeof(*remote));
    remote->base.operations = &operations;
    remote->base.allocator = options->allocator;
    wall_init(&remote->wall);
    *out = &remote->base;
    return set_up(remote, &wish, options, error);
}

static avo_status probe(const device_driver *driver, const char *parameters, avo_error *error) {
    (void)driver;
    remote_wish wish;
    return read_wishes(parameters, &wish, error);
}

const device_driver device_remote = {"remote", "test", -1, probe, open};
