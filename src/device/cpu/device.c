/* The CPU drivers: opening a device, and its memory, which is the host's. */
#include "device/cpu/cpu.h"

#include "base/checked.h"
#include "base/cpu.h"

#include <string.h>

/* ---- Memory ---- */

static bool memory_round(const device *device, size_t bytes, uint64_t *rounded) {
    size_t size;
    if (!region_round(bytes, device->info.cpu.huge, &size))
        return false;
    *rounded = size;
    return true;
}

static avo_status memory_take(device *device, size_t bytes, const char *what, device_memory *out,
                              avo_error *error) {
    cpu_device *cpu = cpu_of(device);
    region *block = allocator_take_array(device->allocator, 1, sizeof(*block));
    if (block == NULL)
        return status_no_memory(error, what, sizeof(*block));
    region_options options = cpu->region;
    if (cpu->group != NULL) /* K and V of other ranks' heads are never touched */
        options.huge = false;
    avo_status status = region_open(cpu->data, bytes, &options, what, block, error);
    if (status != AVO_OK) {
        allocator_give(device->allocator, block, sizeof(*block));
        return status;
    }
    *out = (device_memory){.address = block->data, .bytes = bytes, .owner = block};
    return AVO_OK;
}

static void memory_give(device *device, device_memory *memory) {
    region *block = memory->owner;
    region_close(block);
    allocator_give(device->allocator, block, sizeof(*block));
}

static avo_status copy_in(device *device, const device_memory *to, size_t offset, const void *from,
                          size_t bytes, avo_error *error) {
    (void)device;
    (void)error;
    memcpy(to->address + offset, from, bytes);
    return AVO_OK;
}

static avo_status copy_out(device *device, void *to, const device_memory *from, size_t offset,
                           size_t bytes, avo_error *error) {
    (void)device;
    (void)error;
    memcpy(to, from->address + offset, bytes);
    return AVO_OK;
}

static avo_status copy_across(device *device, const device_memory *to, size_t to_offset,
                              const device_memory *from, size_t from_offset, size_t bytes,
                              avo_error *error) {
    return copy_in(device, to, to_offset, from->address + from_offset, bytes, error);
}

static avo_status zero(device *device, const device_memory *memory, size_t offset, size_t bytes,
                       avo_error *error) {
    (void)device;
    (void)error;
    memset(memory->address + offset, 0, bytes);
    return AVO_OK;
}

/* ---- Opening ---- */

static void close_device(device *device) {
    allocator_give(device->allocator, device, sizeof(cpu_device));
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
    .weights_plan = cpu_weights_plan,
    .weights_open = cpu_weights_open,
    .weights_size = sizeof(cpu_weights),
    .weights_close = cpu_weights_close,
    .stream = &cpu_stream_operations,
};

static avo_status count_threads(const device_options *options, device_info *info,
                                avo_error *error) {
    if (options->threads > TEAM_THREADS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "threads is %u, must be at most %u",
                           options->threads, (unsigned)TEAM_THREADS_MAX);
    info->cpu.threads = info->cpu.decode_threads = options->threads;
    if (options->threads == 0) {
        cpu_threads found = cpu_threads_detect();
        uint32_t most = TEAM_THREADS_MAX;
        info->cpu.threads = found.usable < most ? found.usable : most;
        info->cpu.decode_threads = found.decode < most ? found.decode : most;
        info->cpu.tuned = info->cpu.threads > 1;
    }
    if (options->streams <= info->cpu.threads)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "%u streams need %u threads, but threads is %u%s; use one stream (cores "
                       "\"mixed\") or more threads",
                       options->streams, options->streams, info->cpu.threads,
                       options->threads == 0 ? " (all that this process may use)" : "");
}

static avo_status set_up(cpu_device *cpu, const device_driver *driver,
                         const device_options *options, avo_error *error) {
    device_info *info = &cpu->base.info;
    AVO_TRY(backend_choose(driver->name, &cpu->choice, error));
    AVO_TRY(count_threads(options, info, error));
    AVO_TRY(cpu_place(options, cpu, error));
    memory_limit limit = memory_limit_detect();
    bool reference = !cpu->choice.backend.panels;
    info->name = driver->name;
    info->kind = driver->kind;
    info->arithmetic = reference ? "ref" : "exact";
    info->bits = reference ? "ref" : "fast";
    info->kv_default = cpu->choice.backend.kv_default;
    info->observes = reference;
    info->experts = true;
    info->parallel = info->cpu.threads > 1;
    info->host = true;
    info->memory_available = limit.available_bytes;
    info->memory_limit = limit.source;
    return AVO_OK;
}

avo_status cpu_open_with_data(const device_driver *driver, const device_options *options,
                              const avo_allocator *data, device **out, avo_error *error) {
    cpu_device *cpu = allocator_take_array(options->allocator, 1, sizeof(*cpu));
    if (cpu == NULL)
        return status_no_memory(error, "the device", sizeof(*cpu));
    cpu->base.operations = &operations;
    cpu->base.allocator = options->allocator;
    cpu->data = data != NULL ? data : options->allocator;
    *out = &cpu->base;
    return set_up(cpu, driver, options, error);
}

avo_status cpu_open_in_group(const device_driver *driver, const device_options *options,
                             const cpu_group *group, device **out, avo_error *error) {
    AVO_TRY(cpu_open_with_data(driver, options, NULL, out, error));
    cpu_device *cpu = cpu_of(*out);
    if (!cpu->choice.backend.panels)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "device %s cannot compute a part of a model", driver->name);
    cpu->group = group;
    cpu->base.info.parallel = false;
    return AVO_OK;
}

static avo_status probe(const device_driver *driver, const char *parameters, avo_error *error) {
    if (parameters != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "device '%s:%.40s': CPU devices take no parameters", driver->name,
                           parameters);
    const char *lacks = backend_lacks(driver->name);
    if (lacks == NULL)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "the processor or the operating system lacks %s", lacks);
}

static avo_status open(const device_driver *driver, const device_options *options,
                       const char *parameters, device **out, avo_error *error) {
    (void)parameters; /* none, as probed */
    return cpu_open_with_data(driver, options, NULL, out, error);
}

const device_driver cpu_driver_reference = {"ref", "cpu", 0, probe, open};

/* AVO_KERNEL_LIST: X(name) of each instruction set of this build, from CMakeLists.txt. A later one
 * is preferred. */
enum {
    RANK_reference,
#define X(set) RANK_##set,
    AVO_KERNEL_LIST
#undef X
};
#define X(set) const device_driver cpu_driver_##set = {#set, "cpu", 10 * RANK_##set, probe, open};
AVO_KERNEL_LIST
#undef X
