/* The port of a card that the processor plays. */
#include "device/test/cuda_emulated.h"

#include "base/float_mode.h"
#include "device/cuda/cuda.h"
#include "device/cuda/kernels/attend_half.h"
#include "device/cuda/kernels/attend_int8.h"
#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/decode.h"
#include "device/cuda/kernels/fast_attend.h"
#include "device/cuda/kernels/fast_tile.h"
#include "device/cuda/kernels/few.h"
#include "device/cuda/kernels/few_float.h"
#include "device/cuda/kernels/head.h"
#include "device/cuda/kernels/linear.h"
#include "device/cuda/kernels/place_many.h"
#include "device/cuda/kernels/rows.h"
#include "device/cuda/kernels/tile.h"
#include "device/cuda/kernels/tile_units.h"
#include "device/cuda/kernels/wide.h"
#include "device/cuda/kernels/wide_rows.h"
#include "device/test/wall.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SHARED_BYTES    (227 * 1024) /* of a block */
#define NOTES_MAX       4096
#define GRAPHS_MAX      32
#define MULTIPROCESSORS 3 /* so that blocks of small matrices have more than one panel */
#define BLOCKS_MAX      256
#define CODE_FAILED     719
#define TAKE_ALIGNED    256
#define MEMORY_MIB      1024

typedef struct emulated_wish {
    uint64_t fail, lost, code, memory, processors, groups;
    cuda_tuning tuning;
} emulated_wish;

/* What was asked for while something was recorded, in order. A step allocates nothing, so they are
 * there from the beginning. */
typedef struct emulated_note {
    struct emulated_note *next;
    cuda_launch launch; /* of no threads: a copy */
    union {
#define X(name, call_type, threads, blocks, waits) call_type name;
        CUDA_KERNEL_TABLE(X)
#undef X
    } call;
    void *to;
    const void *from;
    size_t bytes;
} emulated_note;

/* `last` NULL: not in use. */
struct cuda_graph {
    emulated_note *first, **last;
};

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
    place_copies *copies;
    emulated_note *note, *free_note;
    cuda_graph graph[GRAPHS_MAX];
    cuda_graph *recording; /* NULL: things are done at once */
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
#define X(name, call_type, threads, blocks, waits)                                                 \
    case CUDA_KERNEL_##name:                                                                       \
        kernel_##name((const call_type *)argument, at);                                            \
        return;
        CUDA_KERNEL_TABLE(X)
#undef X
    case CUDA_KERNELS:
        return;
    }
}

/* ---- Graphs ---- */

static size_t call_bytes(cuda_kernel kernel) {
    static const size_t bytes[] = {
#define X(name, call_type, threads, blocks, waits) sizeof(call_type),
        CUDA_KERNEL_TABLE(X)
#undef X
    };
    return bytes[kernel];
}

static cu_result note(emulated_port *own, const emulated_note *given) {
    emulated_note *copy = own->free_note;
    if (copy == NULL)
        return CU_OUT_OF_MEMORY;
    own->free_note = copy->next;
    *copy = *given;
    *own->recording->last = copy;
    own->recording->last = &copy->next;
    return 0;
}

static void begin_copies(place_copies *copies) {
    copies->used = copies->free = 0;
    memset(copies->first, 0, sizeof(copies->first));
    memset(copies->groups, 0, sizeof(copies->groups));
}

static cu_result launch(cuda_port *port, const cuda_launch *given, const void *argument) {
    emulated_port *own = of(port);
    cu_result result = call(port);
    if (result != 0)
        return result;
    if (own->recording != NULL) {
        emulated_note one = {.launch = *given};
        memcpy(&one.call, argument, call_bytes(given->kernel));
        return note(own, &one);
    }
    assert(given->threads <= 512 && given->shared <= SHARED_BYTES && given->y < 65536);
    float_mode mode; /* a card has one of its own */
    float_mode_enter(&mode);
    wall_open(&own->wall);
    kernel_place at = {.threads = given->threads,
                       .blocks = given->x,
                       .shared = own->shared,
                       .copies = own->copies};
    memset(own->shared, 0xff, given->shared); /* NaN */
    for (at.z = 0; at.z < given->z; at.z++)
        for (at.y = 0; at.y < given->y; at.y++)
            for (at.x = 0; at.x < given->x; at.x++) {
                begin_copies(own->copies);
                compute_block(given->kernel, argument, &at);
            }
    wall_close(&own->wall);
    float_mode_leave(&mode);
    return 0;
}

static cu_result queue_copy(cuda_port *port, cuda_queue queue, void *to, const void *from,
                            size_t bytes) {
    emulated_note one = {.to = to, .from = from, .bytes = bytes};
    if (queue != CUDA_QUEUE_STEPS || of(port)->recording == NULL)
        return copy(port, to, from, bytes);
    cu_result result = call(port);
    return result != 0 ? result : note(of(port), &one);
}

static cu_result copy_in(cuda_port *port, cuda_queue queue, uint8_t *to, const void *from,
                         size_t bytes) {
    return queue_copy(port, queue, to, from, bytes);
}

static cu_result copy_out(cuda_port *port, cuda_queue queue, void *to, const uint8_t *from,
                          size_t bytes) {
    return queue_copy(port, queue, to, from, bytes);
}

static cu_result copy_across(cuda_port *port, cuda_queue queue, uint8_t *to, const uint8_t *from,
                             size_t bytes) {
    return queue_copy(port, queue, to, from, bytes);
}

static cu_result record_begin(cuda_port *port) {
    cu_result result = call(port);
    if (result != 0)
        return result;
    uint32_t i = 0;
    while (i < GRAPHS_MAX && of(port)->graph[i].last != NULL)
        i++;
    if (i == GRAPHS_MAX)
        return CU_OUT_OF_MEMORY;
    of(port)->recording = &of(port)->graph[i];
    of(port)->recording->first = NULL;
    of(port)->recording->last = &of(port)->recording->first;
    return 0;
}

static void graph_close(cuda_port *port, cuda_graph *graph) {
    *graph->last = of(port)->free_note;
    of(port)->free_note = graph->first;
    *graph = (cuda_graph){0};
}

static cu_result record_end(cuda_port *port, cuda_graph **out) {
    cu_result result = call(port);
    *out = of(port)->recording;
    of(port)->recording = NULL;
    if (result == 0)
        return 0;
    graph_close(port, *out);
    *out = NULL;
    return result;
}

static cu_result graph_start(cuda_port *port, cuda_graph *graph) {
    cu_result result = call(port);
    for (const emulated_note *one = graph->first; one != NULL && result == 0; one = one->next)
        result = one->launch.threads > 0 ? launch(port, &one->launch, &one->call)
                                         : copy(port, one->to, one->from, one->bytes);
    return result;
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
    allocator_give(own->allocator, own->copies, sizeof(*own->copies));
    allocator_give(own->allocator, own->note, NOTES_MAX * sizeof(*own->note));
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
    .record_begin = record_begin,
    .record_end = record_end,
    .graph_start = graph_start,
    .graph_close = graph_close,
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
                   {"memory=", &wish->memory},
                   {"processors=", &wish->processors},
                   {"groups=", &wish->groups}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t name = strlen(numbers[i].name);
        if (length > name && strncmp(text, numbers[i].name, name) == 0) {
            char *end;
            *numbers[i].number = strtoull(text + name, &end, 10);
            return end == text + length;
        }
    }
    return cuda_tuning_read(text, length, &wish->tuning);
}

static avo_status read_wishes(const char *parameters, emulated_wish *wish, avo_error *error) {
    *wish = (emulated_wish){.code = CODE_FAILED,
                            .memory = MEMORY_MIB,
                            .processors = MULTIPROCESSORS,
                            .groups = 1,
                            .tuning = cuda_tuning_usual()};
    for (const char *at = parameters; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ",:");
        if (!read_wish(at, length, wish))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "device 'cuda-emulated:%.*s': must be fail=, lost=, code=, memory=, "
                               "processors= or groups= and a number",
                               (int)(length < 40 ? length : 40), at);
        at += length + (at[length] != '\0');
    }
    return AVO_OK;
}

static avo_status open_port(const avo_allocator *allocator, const emulated_wish *wish,
                            cuda_port **out, avo_error *error) {
    emulated_port *own = allocator_take_array(allocator, 1, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "the device", sizeof(*own));
    own->shared = allocator_take(allocator, SHARED_BYTES);
    own->copies = allocator_take(allocator, sizeof(*own->copies));
    own->note = allocator_take_array(allocator, NOTES_MAX, sizeof(*own->note));
    if (own->shared == NULL || own->copies == NULL || own->note == NULL) {
        allocator_give(allocator, own->note, NOTES_MAX * sizeof(*own->note));
        allocator_give(allocator, own->shared, SHARED_BYTES);
        allocator_give(allocator, own->copies, sizeof(*own->copies));
        allocator_give(allocator, own, sizeof(*own));
        return status_no_memory(error, "the device", SHARED_BYTES);
    }
    for (uint32_t i = 0; i + 1 < NOTES_MAX; i++)
        own->note[i].next = &own->note[i + 1];
    own->free_note = own->note;
    own->base.operations = &operations;
    own->base.limits = (cuda_limits){.multiprocessors = (uint32_t)wish->processors,
                                     .shared = SHARED_BYTES,
                                     .early = true,
                                     .groups = wish->groups != 0};
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
    return cuda_open_with(driver, options, port, &wish.tuning, out, error);
}

const device_driver device_cuda_emulated = {"cuda-emulated", "test", -1, probe, open_emulated};
