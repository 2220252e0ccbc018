/* The port of a card, over the driver library. */
#include "device/cuda/port.h"

#include <string.h>

#define CARD_GROUPS 9
#define CARD_EARLY  9 /* compute capability from which kernels may begin early */

typedef struct card_port {
    cuda_port base;
    const avo_allocator *allocator;
    cuda_library library;
    cu_device device;
    cu_context context; /* the card's primary one; NULL: not retained */
    cu_module module[CUDA_UNITS];
    cu_function kernel[CUDA_KERNELS];
    cu_stream queue[CUDA_QUEUES];
} card_port;

static card_port *of(cuda_port *port) {
    return (card_port *)(void *)port;
}

/* Any thread may call: the context is the calling thread's from now on. */
static const cuda_library *enter(cuda_port *port) {
    (void)of(port)->library.context_set(of(port)->context); /* a failure shows in the next call */
    return &of(port)->library;
}

static cu_address address_of(const uint8_t *address) {
    return (cu_address)(uintptr_t)address;
}

/* ---- Errors ---- */

static const char *hint(cu_result result) {
    switch (result) {
    case CU_OUT_OF_MEMORY:
        return "; free memory on the card, or use a smaller context or model";
    case CU_NO_BINARY:
        return "; this build's kernels need a card of compute capability 8.0 or later";
    default:
        return "";
    }
}

avo_status cuda_status(cuda_port *port, cu_result result, const char *what, avo_error *error) {
    if (result == 0)
        return AVO_OK;
    return status_fail(error, result == CU_OUT_OF_MEMORY ? AVO_ERROR_MEMORY : AVO_ERROR_DEVICE,
                       "CUDA device: %s failed: %s (%d)%s", what,
                       port->operations->error_name(port, result), result, hint(result));
}

static const char *name_of(const cuda_library *library, cu_result result) {
    const char *name = NULL;
    return library->error_name(result, &name) == 0 && name != NULL ? name : "unknown error";
}

/* ---- Operations ---- */

static void card_close(cuda_port *port) {
    card_port *card = of(port);
    const cuda_library *library = &card->library;
    if (card->context != NULL) {
        (void)enter(port);
        for (int i = 0; i < CUDA_QUEUES; i++)
            if (card->queue[i] != NULL)
                (void)library->stream_close(card->queue[i]);
        for (int i = 0; i < CUDA_UNITS; i++)
            if (card->module[i] != NULL)
                (void)library->module_unload(card->module[i]);
        (void)library->context_release(card->device);
    }
    cuda_library_close(&card->library);
    allocator_give(card->allocator, card, sizeof(*card));
}

static cu_result card_memory_info(cuda_port *port, uint64_t *left, uint64_t *total) {
    size_t free_bytes = 0, all = 0;
    cu_result result = enter(port)->memory_info(&free_bytes, &all);
    *left = free_bytes;
    *total = all;
    return result;
}

static cu_result card_take(cuda_port *port, size_t bytes, uint8_t **address) {
    cu_address found = 0;
    cu_result result = enter(port)->memory_take(&found, bytes);
    *address = result == 0 ? (uint8_t *)(uintptr_t)found : NULL;
    return result;
}

static void card_give(cuda_port *port, uint8_t *address) {
    (void)enter(port)->memory_give(address_of(address));
}

static cu_result card_host_take(cuda_port *port, size_t bytes, void **memory) {
    return enter(port)->host_take(memory, bytes);
}

static void card_host_give(cuda_port *port, void *memory) {
    (void)enter(port)->host_give(memory);
}

static cu_result card_copy_in(cuda_port *port, cuda_queue queue, uint8_t *to, const void *from,
                              size_t bytes) {
    return enter(port)->copy_in(address_of(to), from, bytes, of(port)->queue[queue]);
}

static cu_result card_copy_out(cuda_port *port, cuda_queue queue, void *to, const uint8_t *from,
                               size_t bytes) {
    return enter(port)->copy_out(to, address_of(from), bytes, of(port)->queue[queue]);
}

static cu_result card_copy_across(cuda_port *port, cuda_queue queue, uint8_t *to,
                                  const uint8_t *from, size_t bytes) {
    return enter(port)->copy_across(address_of(to), address_of(from), bytes,
                                    of(port)->queue[queue]);
}

static cu_result card_zero(cuda_port *port, cuda_queue queue, uint8_t *to, size_t bytes) {
    return enter(port)->fill(address_of(to), 0, bytes, of(port)->queue[queue]);
}

static cu_result card_launch(cuda_port *port, const cuda_launch *launch, const void *call) {
    card_port *card = of(port);
    void *arguments[] = {(void *)(uintptr_t)call};
    bool early = launch->begin == CUDA_EARLY && port->limits.early;
    cu_launch_attribute attribute = {.id = CU_ATTRIBUTE_EARLY, .value.number = 1};
    cu_launch_config config = {.grid_x = launch->x,
                               .grid_y = launch->y,
                               .grid_z = launch->z,
                               .block_x = launch->threads,
                               .block_y = 1,
                               .block_z = 1,
                               .shared = launch->shared,
                               .stream = card->queue[CUDA_QUEUE_STEPS],
                               .attributes = &attribute,
                               .attribute_count = early};
    return enter(port)->launch(&config, card->kernel[launch->kernel], arguments, NULL);
}

/* ---- Graphs ---- */

static cu_result card_record_begin(cuda_port *port) {
    return enter(port)->capture_begin(of(port)->queue[CUDA_QUEUE_STEPS], CU_CAPTURE_THREAD);
}

static cu_result card_record_end(cuda_port *port, cuda_graph **out) {
    const cuda_library *library = enter(port);
    cu_graph graph = NULL;
    cu_graph_exec ready = NULL;
    cu_result result = library->capture_end(of(port)->queue[CUDA_QUEUE_STEPS], &graph);
    if (result == 0)
        result = library->graph_build(&ready, graph, 0);
    if (graph != NULL)
        (void)library->graph_free(graph);
    *out = (cuda_graph *)(void *)ready;
    return result;
}

static cu_result card_graph_start(cuda_port *port, cuda_graph *graph) {
    return enter(port)->graph_launch((cu_graph_exec)(void *)graph,
                                     of(port)->queue[CUDA_QUEUE_STEPS]);
}

static void card_graph_close(cuda_port *port, cuda_graph *graph) {
    (void)enter(port)->graph_close((cu_graph_exec)(void *)graph);
}

static cu_result card_wait(cuda_port *port, cuda_queue queue) {
    return enter(port)->stream_wait(of(port)->queue[queue]);
}

static const char *card_error_name(cuda_port *port, cu_result result) {
    return name_of(&of(port)->library, result);
}

static const cuda_port_operations operations = {
    .close = card_close,
    .memory_info = card_memory_info,
    .take = card_take,
    .give = card_give,
    .host_take = card_host_take,
    .host_give = card_host_give,
    .copy_in = card_copy_in,
    .copy_out = card_copy_out,
    .copy_across = card_copy_across,
    .zero = card_zero,
    .launch = card_launch,
    .record_begin = card_record_begin,
    .record_end = card_record_end,
    .graph_start = card_graph_start,
    .graph_close = card_graph_close,
    .wait = card_wait,
    .error_name = card_error_name,
};

/* ---- Opening ---- */

avo_status cuda_library_check(const cuda_library *library, int index, avo_error *error) {
    cu_result result = library->init(0);
    int version = 0, count = 0;
    if (result != 0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "the NVIDIA driver does not start: %s (%d)", name_of(library, result),
                           result);
    if (library->version(&version) != 0 || version < CUDA_DRIVER_VERSION_MIN)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "the NVIDIA driver supports CUDA %d.%d, must support %d.%d; install a "
                           "newer driver",
                           version / 1000, version % 1000 / 10, CUDA_DRIVER_VERSION_MIN / 1000,
                           CUDA_DRIVER_VERSION_MIN % 1000 / 10);
    if (library->device_count(&count) != 0 || count == 0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "the NVIDIA driver finds no card");
    if (index >= count)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "device 'cuda:%d': this machine has %d card%s, numbered from 0", index,
                           count, count == 1 ? "" : "s");
    return AVO_OK;
}

static cu_result find_kernels(card_port *card) {
    static const char *const names[CUDA_KERNELS] = {
#define X(name, call, threads, blocks, waits) "avo_" #name,
        CUDA_KERNEL_TABLE(X)
#undef X
    };
#define X(name, call, threads, blocks, waits) +1
    static const int counts[CUDA_UNITS] = {CUDA_KERNELS_PRODUCTS(X), CUDA_KERNELS_FEW(X),
                                           CUDA_KERNELS_ROWS(X), CUDA_KERNELS_FAST(X),
                                           CUDA_KERNELS_FAST_ATTEND(X)};
#undef X
    cu_result result = 0;
    for (int unit = 0, i = 0; unit < CUDA_UNITS; unit++)
        for (int end = i + counts[unit]; i < end; i++)
            if (result == 0)
                result = card->library.function_get(&card->kernel[i], card->module[unit], names[i]);
    for (int i = 0; i < CUDA_KERNELS && result == 0; i++) {
        result = card->library.function_set(card->kernel[i], CU_SHARED_DYNAMIC,
                                            (int)card->base.limits.shared);
        if (result == 0) /* of all: a multiprocessor that changes it waits until it is empty */
            result = card->library.function_set(card->kernel[i], CU_SHARED_SHARE, 100);
    }
    return result;
}

static cu_result read_limits(card_port *card) {
    int multiprocessors = 1, shared = 0, major = 0, minor = 0;
    const cuda_library *library = &card->library;
    cu_result result =
        library->device_attribute(&multiprocessors, CU_MULTIPROCESSORS, card->device);
    if (result == 0)
        result = library->device_attribute(&shared, CU_SHARED_MAX, card->device);
    if (result == 0)
        result = library->device_attribute(&major, CU_COMPUTE_MAJOR, card->device);
    if (result == 0)
        result = library->device_attribute(&minor, CU_COMPUTE_MINOR, card->device);
    card->base.limits = (cuda_limits){.multiprocessors = (uint32_t)multiprocessors,
                                      .shared = (uint32_t)shared,
                                      .early = major >= CARD_EARLY,
                                      .groups = major == CARD_GROUPS && minor == 0,
                                      .compute = (uint32_t)(10 * major + minor)};
    return result;
}

static avo_status open_parts(card_port *card, const void *const image[CUDA_UNITS], int index,
                             avo_error *error) {
    const cuda_library *library = &card->library;
    AVO_TRY(cuda_library_check(library, index, error));
    AVO_TRY(cuda_status(&card->base, library->device_get(&card->device, index), "finding the card",
                        error));
    AVO_TRY(cuda_status(&card->base, library->context_retain(&card->context, card->device),
                        "opening the card", error));
    AVO_TRY(
        cuda_status(&card->base, library->context_set(card->context), "opening the card", error));
    AVO_TRY(cuda_status(&card->base, read_limits(card), "asking for the card's limits", error));
    for (int i = 0; i < CUDA_UNITS; i++)
        AVO_TRY(cuda_status(&card->base, library->module_load(&card->module[i], image[i]),
                            "loading the kernels", error));
    AVO_TRY(cuda_status(&card->base, find_kernels(card), "finding the kernels", error));
    for (int i = 0; i < CUDA_QUEUES; i++)
        AVO_TRY(cuda_status(&card->base,
                            library->stream_open(&card->queue[i], CU_STREAM_NOT_BLOCKING),
                            "opening a queue", error));
    return AVO_OK;
}

avo_status cuda_port_open(const avo_allocator *allocator, cuda_library *library,
                          const void *const image[CUDA_UNITS], int index, cuda_port **out,
                          avo_error *error) {
    card_port *card = allocator_take_array(allocator, 1, sizeof(*card));
    if (card == NULL) {
        cuda_library_close(library);
        return status_no_memory(error, "the device", sizeof(*card));
    }
    card->base.operations = &operations;
    card->allocator = allocator;
    card->library = *library;
    library->handle = NULL;
    avo_status status = open_parts(card, image, index, error);
    if (status != AVO_OK) {
        card_close(&card->base);
        return status;
    }
    *out = &card->base;
    return AVO_OK;
}
