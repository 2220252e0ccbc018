/* The port of a card that the processor plays. */
#include "device/test/cuda_emulated.h"

#include "base/float_mode.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/head.h"
#include "device/cuda/kernels/linear.h"
#include "device/cuda/kernels/rows.h"
#include "device/test/wall.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SHARED_BYTES (48 * 1024) /* of a block, as cards have without being asked */
#define BLOCKS_MAX   256
#define CODE_FAILED  719
#define TAKE_ALIGNED 256
#define MEMORY_MIB   1024

typedef struct emulated_wish {
    uint64_t fail, lost, code, memory;
} emulated_wish;

typedef struct emulated_port {
    cuda_port base;
    const avo_allocator *allocator;
    wall wall;
    emulated_wish wish;
    atomic_uint_fast64_t calls;
    pthread_mutex_t mutex;
    struct {
        uint8_t *address;
        size_t bytes;
    } block[BLOCKS_MAX];
    uint32_t blocks;
    size_t taken;
    float *shared;
} emulated_port;

static emulated_port *of(cuda_port *port) {
    return (emulated_port *)(void *)port;
}

static cu_result call(cuda_port *port) {
    emulated_port *own = of(port);
    uint64_t number = atomic_fetch_add(&own->calls, 1) + 1;
    bool fails = number == own->wish.fail || (own->wish.lost > 0 && number >= own->wish.lost);
    return fails ? (cu_result)own->wish.code : 0;
}

/* ---- Memory ---- */

static cu_result memory_info(cuda_port *port, uint64_t *left, uint64_t *total) {
    *total = of(port)->wish.memory << 20;
    *left = *total - of(port)->taken;
    return call(port);
}

static cu_result take(cuda_port *port, size_t bytes, uint8_t **address) {
    emulated_port *own = of(port);
    cu_result result = call(port);
    *address = NULL;
    pthread_mutex_lock(&own->mutex);
    if (result == 0 && (bytes > (own->wish.memory << 20) - own->taken || own->blocks == BLOCKS_MAX))
        result = CU_OUT_OF_MEMORY;
    if (result == 0) {
        *address = own->wall.allocator.allocate(own->wall.allocator.context, bytes, TAKE_ALIGNED);
        result = *address == NULL ? CU_OUT_OF_MEMORY : 0;
    }
    if (result == 0) {
        own->block[own->blocks].address = *address;
        own->block[own->blocks++].bytes = bytes;
        own->taken += bytes;
    }
    pthread_mutex_unlock(&own->mutex);
    return result;
}

static void give(cuda_port *port, uint8_t *address) {
    emulated_port *own = of(port);
    pthread_mutex_lock(&own->mutex);
    uint32_t i = 0;
    while (i < own->blocks && own->block[i].address != address)
        i++;
    assert(i < own->blocks);
    own->taken -= own->block[i].bytes;
    own->wall.allocator.release(own->wall.allocator.context, address, own->block[i].bytes);
    own->block[i] = own->block[--own->blocks];
    pthread_mutex_unlock(&own->mutex);
}

/* Its size lies in front. */
#define HOST_HEAD 64

static cu_result host_take(cuda_port *port, size_t bytes, void **memory) {
    cu_result result = call(port);
    *memory = NULL;
    if (result != 0)
        return result;
    uint8_t *block = allocator_take(of(port)->allocator, bytes + HOST_HEAD);
    if (block == NULL)
        return CU_OUT_OF_MEMORY;
    memcpy(block, &bytes, sizeof(bytes));
    *memory = block + HOST_HEAD;
    return 0;
}

static void host_give(cuda_port *port, void *memory) {
    uint8_t *block = (uint8_t *)memory - HOST_HEAD;
    size_t bytes;
    memcpy(&bytes, block, sizeof(bytes));
    allocator_give(of(port)->allocator, block, bytes + HOST_HEAD);
}

static cu_result copy(cuda_port *port, void *to, const void *from, size_t bytes) {
    cu_result result = call(port);
    if (result != 0)
        return result;
    wall_open(&of(port)->wall);
    memcpy(to, from, bytes);
    wall_close(&of(port)->wall);
    return 0;
}

static cu_result copy_in(cuda_port *port, cuda_queue queue, uint8_t *to, const void *from,
                         size_t bytes) {
    (void)queue;
    return copy(port, to, from, bytes);
}

static cu_result copy_out(cuda_port *port, cuda_queue queue, void *to, const uint8_t *from,
                          size_t bytes) {
    (void)queue;
    return copy(port, to, from, bytes);
}

static cu_result copy_across(cuda_port *port, cuda_queue queue, uint8_t *to, const uint8_t *from,
                             size_t bytes) {
    (void)queue;
    return copy(port, to, from, bytes);
}

static cu_result zero(cuda_port *port, cuda_queue queue, uint8_t *to, size_t bytes) {
    (void)queue;
    cu_result result = call(port);
    if (result != 0)
        return result;
    wall_open(&of(port)->wall);
    memset(to, 0, bytes);
    wall_close(&of(port)->wall);
    return 0;
}

/* ---- Kernels ---- */

static void compute_block(cuda_kernel kernel, const void *argument, kernel_place *at) {
    switch (kernel) {
#define X(name, call_type)                                                                         \
    case CUDA_KERNEL_##name:                                                                       \
        kernel_##name((const call_type *)argument, at);                                            \
        return;
        CUDA_KERNEL_TABLE(X)
#undef X
    case CUDA_KERNELS:
        return;
    }
}

static cu_result launch(cuda_port *port, const cuda_launch *given, const void *argument) {
    emulated_port *own = of(port);
    cu_result result = call(port);
    if (result != 0)
        return result;
    assert(given->threads <= 512 && given->shared <= SHARED_BYTES && given->y < 65536);
    float_mode mode; /* a card has one of its own */
    float_mode_enter(&mode);
    wall_open(&own->wall);
    kernel_place at = {.threads = given->threads, .shared = own->shared};
    memset(own->shared, 0xff, given->shared); /* NaN */
    for (at.z = 0; at.z < given->z; at.z++)
        for (at.y = 0; at.y < given->y; at.y++)
            for (at.x = 0; at.x < given->x; at.x++)
                compute_block(given->kernel, argument, &at);
    wall_close(&own->wall);
    float_mode_leave(&mode);
    return 0;
}

static cu_result wait_queue(cuda_port *port, cuda_queue queue) {
    (void)queue;
    return call(port);
}

static const char *error_name(cuda_port *port, cu_result result) {
    (void)port;
    return result == CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "an error, as requested";
}

/* ---- Opening ---- */

static void close_port(cuda_port *port) {
    emulated_port *own = of(port);
    assert(own->blocks == 0);
    wall_end(&own->wall);
    pthread_mutex_destroy(&own->mutex);
    allocator_give(own->allocator, own->shared, SHARED_BYTES);
    allocator_give(own->allocator, own, sizeof(*own));
}

static const cuda_port_operations operations = {
    .close = close_port,
    .memory_info = memory_info,
    .take = take,
    .give = give,
    .host_take = host_take,
    .host_give = host_give,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_across = copy_across,
    .zero = zero,
    .launch = launch,
    .wait = wait_queue,
    .error_name = error_name,
};

static bool read_wish(const char *text, size_t length, emulated_wish *wish) {
    struct {
        const char *name;
        uint64_t *number;
    } numbers[] = {{"fail=", &wish->fail},
                   {"lost=", &wish->lost},
                   {"code=", &wish->code},
                   {"memory=", &wish->memory}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t name = strlen(numbers[i].name);
        if (length > name && strncmp(text, numbers[i].name, name) == 0) {
            char *end;
            *numbers[i].number = strtoull(text + name, &end, 10);
            return end == text + length;
        }
    }
    return false;
}

static avo_status read_wishes(const char *parameters, emulated_wish *wish, avo_error *error) {
    *wish = (emulated_wish){.code = CODE_FAILED, .memory = MEMORY_MIB};
    for (const char *at = parameters; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",");
        if (!read_wish(at, length, wish))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "device 'cuda-emulated:%.*s': must be fail=, lost=, code= or "
                               "memory= and a number",
                               (int)(length < 40 ? length : 40), at);
        at += length + (at[length] == ',');
    }
    return AVO_OK;
}

static avo_status open_port(const avo_allocator *allocator, const emulated_wish *wish,
                            cuda_port **out, avo_error *error) {
    emulated_port *own = allocator_take_array(allocator, 1, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "the device", sizeof(*own));
    own->shared = allocator_take(allocator, SHARED_BYTES);
    if (own->shared == NULL) {
        allocator_give(allocator, own, sizeof(*own));
        return status_no_memory(error, "the device", SHARED_BYTES);
    }
    own->base.operations = &operations;
    own->allocator = allocator;
    own->wish = *wish;
    wall_init(&own->wall);
    pthread_mutex_init(&own->mutex, NULL);
    *out = &own->base;
    return AVO_OK;
}

static avo_status probe(const device_driver *driver, const char *parameters, avo_error *error) {
    (void)driver;
    emulated_wish wish;
    return read_wishes(parameters, &wish, error);
}

static avo_status open_emulated(const device_driver *driver, const device_options *options,
                                const char *parameters, device **out, avo_error *error) {
    emulated_wish wish;
    cuda_port *port = NULL;
    AVO_TRY(read_wishes(parameters, &wish, error));
    AVO_TRY(open_port(options->allocator, &wish, &port, error));
    return cuda_open_with(driver, options, port, out, error);
}

const device_driver device_cuda_emulated = {"cuda-emulated", "test", -1, probe, open_emulated};
