/* The loopback device: threads that serve as ranks, and what they share with rank 0. */
#include "device/test/loopback.h"

#include "device/driver.h"
#include "device/ranks/ranks.h"

#include <pthread.h>
#include <string.h>

typedef struct loopback_world loopback_world;

typedef struct loopback_rank {
    loopback_world *world;
    transport *transport;
    pthread_t thread;
    bool runs;
} loopback_rank;

struct loopback_world {
    const avo_allocator *allocator;
    uint32_t ranks;
    const weights_source *source; /* written before the message that makes ranks read it */
    loopback_rank rank[GROUP_RANKS_MAX];
};

/* ---- A rank ---- */

static avo_status open_model(void *context, const char *path, weights_source *out,
                             avo_error *error) {
    const loopback_world *world = context;
    *out = *world->source;
    out->progress = NULL; /* rank 0's tells of all */
    out->keeper = NULL;
    if (strcmp(path, out->path) == 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_DEVICE, "%.100s is not what rank 0 opens", path);
}

static void *serve(void *context) {
    const loopback_rank *own = context;
    /* Memory is malloc's: rank 0's caller may have an allocator for one thread only. */
    ranks_host host = {.open_model = open_model, .context = own->world, .here = 1};
    avo_error error;
    (void)!ranks_serve(own->transport, &host, &error); /* rank 0 sees that it has left */
    transport_close(own->transport);
    return NULL;
}

/* ---- All of them ---- */

static avo_status count(uint32_t wanted, uint32_t *ranks, uint32_t *here, avo_error *error) {
    (void)error;
    *ranks = wanted == 0 ? 2 : wanted;
    *here = 1;
    return AVO_OK;
}

static void leave(void *context, transport *transport) {
    loopback_world *world = context;
    transport_close(transport); /* ends the ranks' waiting */
    for (uint32_t i = 1; i < world->ranks; i++)
        if (world->rank[i].runs)
            pthread_join(world->rank[i].thread, NULL);
    allocator_give(world->allocator, world, sizeof(*world));
}

static avo_status start(loopback_world *world, transport *const *transports, avo_error *error) {
    avo_status status = AVO_OK;
    for (uint32_t i = 1; i < world->ranks; i++) {
        loopback_rank *rank = &world->rank[i];
        *rank = (loopback_rank){.world = world, .transport = transports[i]};
        rank->runs = status == AVO_OK && pthread_create(&rank->thread, NULL, serve, rank) == 0;
        if (!rank->runs) {
            transport_close(transports[i]);
            status = status_fail(error, AVO_ERROR_MEMORY, "no thread for rank %u", i);
        }
    }
    return status;
}

static avo_status join(const avo_allocator *allocator, uint32_t ranks, void **out,
                       transport **leads, avo_error *error) {
    transport *transports[GROUP_RANKS_MAX];
    loopback_world *world = allocator_take_array(allocator, 1, sizeof(*world));
    if (world == NULL)
        return status_no_memory(error, "ranks", sizeof(*world));
    world->allocator = allocator;
    avo_status status = transport_local(NULL, ranks, transports, error);
    if (status != AVO_OK) {
        allocator_give(allocator, world, sizeof(*world));
        return status;
    }
    world->ranks = ranks;
    status = start(world, transports, error);
    if (status != AVO_OK) {
        leave(world, transports[0]);
        return status;
    }
    *out = world;
    *leads = transports[0];
    return AVO_OK;
}

static void offer(void *context, const weights_source *source) {
    loopback_world *world = context;
    world->source = source;
}

static const ranks_carrier carrier = {.count = count, .join = join, .offer = offer, .leave = leave};

static avo_status probe(const device_driver *driver, const char *parameters, avo_error *error) {
    return ranks_probe(driver, &carrier, parameters, error);
}

static avo_status open(const device_driver *driver, const device_options *options,
                       const char *parameters, device **out, avo_error *error) {
    return ranks_open(driver, &carrier, options, parameters, out, error);
}

const device_driver device_loopback = {"loopback", "test", -1, probe, open};
