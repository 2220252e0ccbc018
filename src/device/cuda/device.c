/* The CUDA device: opening, and its memory. */
#include "device/cuda/cuda.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_STEP 512 /* bytes that blocks are rounded to */

/* ---- Memory ---- */

static bool memory_round(const device *device, size_t bytes, uint64_t *rounded) {
    (void)device;
    size_t size;
    if (!size_round_up(bytes, MEMORY_STEP, &size))
        return false;
    *rounded = size;
    return true;
}

static avo_status memory_take(device *device, size_t bytes, const char *what, device_memory *out,
                              avo_error *error) {
    cuda_port *port = cuda_of(device)->port;
    char taking[96];
    uint8_t *address;
    snprintf(taking, sizeof(taking), "taking memory for %s", what);
    AVO_TRY(cuda_status(port, port->operations->take(port, bytes, &address), taking, error));
    *out = (device_memory){.address = address, .bytes = bytes};
    return AVO_OK;
}

static void memory_give(device *device, device_memory *memory) {
    cuda_port *port = cuda_of(device)->port;
    port->operations->give(port, memory->address);
}

static avo_status finish_copy(cuda_port *port, cu_result result, const char *what,
                              avo_error *error) {
    if (result == 0)
        result = port->operations->wait(port, CUDA_QUEUE_COPIES);
    return cuda_status(port, result, what, error);
}

avo_status cuda_copy_in(cuda_device *cuda, uint8_t *to, const void *from, size_t bytes,
                        avo_error *error) {
    cuda_port *port = cuda->port;
    return finish_copy(port, port->operations->copy_in(port, CUDA_QUEUE_COPIES, to, from, bytes),
                       "a copy to the card", error);
}

avo_status cuda_copy_out(cuda_device *cuda, void *to, const uint8_t *from, size_t bytes,
                         avo_error *error) {
    cuda_port *port = cuda->port;
    return finish_copy(port, port->operations->copy_out(port, CUDA_QUEUE_COPIES, to, from, bytes),
                       "a copy from the card", error);
}

static avo_status copy_in(device *device, const device_memory *to, size_t offset, const void *from,
                          size_t bytes, avo_error *error) {
    return cuda_copy_in(cuda_of(device), to->address + offset, from, bytes, error);
}

static avo_status copy_out(device *device, void *to, const device_memory *from, size_t offset,
                           size_t bytes, avo_error *error) {
    return cuda_copy_out(cuda_of(device), to, from->address + offset, bytes, error);
}

static avo_status copy_across(device *device, const device_memory *to, size_t to_offset,
                              const device_memory *from, size_t from_offset, size_t bytes,
                              avo_error *error) {
    cuda_port *port = cuda_of(device)->port;
    cu_result result = port->operations->copy_across(
        port, CUDA_QUEUE_COPIES, to->address + to_offset, from->address + from_offset, bytes);
    return finish_copy(port, result, "a copy on the card", error);
}

static avo_status zero(device *device, const device_memory *memory, size_t offset, size_t bytes,
                       avo_error *error) {
    cuda_port *port = cuda_of(device)->port;
    cu_result result =
        port->operations->zero(port, CUDA_QUEUE_COPIES, memory->address + offset, bytes);
    return finish_copy(port, result, "clearing memory", error);
}

static avo_status pinned_take(device *device, size_t bytes, const char *what, uint8_t **data,
                              avo_error *error) {
    cuda_port *port = cuda_of(device)->port;
    char taking[96];
    snprintf(taking, sizeof(taking), "taking pinned memory for %s", what);
    return cuda_status(port, port->operations->host_take(port, bytes, (void **)(void *)data),
                       taking, error);
}

static void pinned_give(device *device, uint8_t *data) {
    cuda_port *port = cuda_of(device)->port;
    port->operations->host_give(port, data);
}

/* ---- Opening ---- */

static void close_device(device *device) {
    cuda_port *port = cuda_of(device)->port;
    port->operations->close(port);
    allocator_give(device->allocator, device, sizeof(cuda_device));
}

static const device_operations operations = {
    .close = close_device,
    .memory_round = memory_round,
    .memory_take = memory_take,
    .memory_give = memory_give,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_across = copy_across,
    .zero = zero,
    .pinned_take = pinned_take,
    .pinned_give = pinned_give,
    .weights_plan = cuda_weights_plan,
    .weights_open = cuda_weights_open,
    .weights_size = sizeof(cuda_weights),
    .weights_close = cuda_weights_close,
    .adapter_open = cuda_adapter_open,
    .adapter_close = cuda_adapter_close,
    .stream = &cuda_stream_operations,
};

avo_status cuda_open_with(const device_driver *driver, const device_options *options,
                          cuda_port *port, const cuda_tuning *tuning, device **out,
                          avo_error *error) {
    cuda_device *cuda = allocator_take_array(options->allocator, 1, sizeof(*cuda));
    if (cuda == NULL) {
        port->operations->close(port);
        return status_no_memory(error, "the device", sizeof(*cuda));
    }
    cuda->base.operations = &operations;
    cuda->base.allocator = options->allocator;
    cuda->port = port;
    cuda->tuning = *tuning;
    cuda->fast =
        options->arithmetic != NULL ? strcmp(options->arithmetic, "fast") == 0 : options->floats;
    device_info *info = &cuda->base.info;
    *info = (device_info){.name = driver->name,
                          .kind = driver->kind,
                          .arithmetic = cuda->fast ? "fast" : "exact",
                          .bits = "fast",
                          .whole_pages = true,
                          .kv_default = KV_F16,
                          .memory_limit = "free memory of the card"};
    if (cuda->fast) { /* tensor cores of other generations round in other ways */
        snprintf(cuda->bits, sizeof(cuda->bits), "tc%u", port->limits.compute % 100000);
        info->bits = cuda->bits;
    }
    *out = &cuda->base;
    uint64_t total;
    return cuda_status(port, port->operations->memory_info(port, &info->memory_available, &total),
                       "asking for free memory", error);
}

/* "N", "NAME=NUMBER" and more of these behind colons. */
static avo_status read_parameters(const char *parameters, int *index, cuda_tuning *tuning,
                                  avo_error *error) {
    *index = 0;
    *tuning = cuda_tuning_usual();
    for (const char *at = parameters; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ":");
        char *end = NULL;
        long number = strtol(at, &end, 10);
        if (at == parameters && end == at + length && number >= 0 && number < 1024)
            *index = (int)number;
        else if (!cuda_tuning_read(at, length, tuning))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "device 'cuda:%.40s': must be the number of a card, from 0",
                               parameters);
        at += length + (at[length] == ':');
    }
    return AVO_OK;
}

static avo_status check_card(int index, avo_error *error) {
    cuda_library library;
    AVO_TRY(cuda_image_check(error));
    AVO_TRY(cuda_library_open(&library, error));
    avo_status status = cuda_library_check(&library, index, error);
    cuda_library_close(&library);
    return status;
}

avo_status cuda_available(avo_error *error) {
    return check_card(0, error);
}

static avo_status probe(const device_driver *driver, const char *parameters, avo_error *error) {
    (void)driver;
    int index;
    cuda_tuning tuning;
    AVO_TRY(read_parameters(parameters, &index, &tuning, error));
    return check_card(index, error);
}

static avo_status open_card(const device_driver *driver, const device_options *options,
                            const char *parameters, device **out, avo_error *error) {
    int index;
    cuda_tuning tuning;
    cuda_library library;
    cuda_port *port = NULL;
    AVO_TRY(read_parameters(parameters, &index, &tuning, error));
    AVO_TRY(cuda_library_open(&library, error));
    const void *image[CUDA_UNITS];
    for (uint32_t i = 0; i < CUDA_UNITS; i++)
        image[i] = cuda_image(i);
    AVO_TRY(cuda_port_open(options->allocator, &library, image, index, &port, error));
    return cuda_open_with(driver, options, port, &tuning, out, error);
}

/* Behind all instruction sets until it is faster than they are: "auto" takes it only where the
 * reference is all there is. */
const device_driver device_cuda = {"cuda", "cuda", 1, probe, open_card};
