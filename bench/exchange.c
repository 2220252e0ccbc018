/* What exchanges between ranks cost: every rank sends so many bytes to every other, as after the
 * products of a layer.
 *
 *     bench_exchange RANKS [ROUNDS]              threads of this process, by sockets
 *     mpirun -n RANKS bench_exchange [ROUNDS]
 *
 * Rank 0 prints, for each size, the shortest time, the median and the 90th percentile. */
#include "device/ranks/transport.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS     2000
#define BYTES_MAX  ((size_t)4 << 20)
#define BYTES_ALL  ((size_t)512 << 20) /* of all rounds of a size, at most */
#define TIMEOUT_NS 60000000000ULL

static const size_t sizes[] = {64, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144, BYTES_MAX};

typedef struct rank_work {
    transport *transport;
    size_t rounds;
} rank_work;

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void fail(const char *text) {
    fprintf(stderr, "bench_exchange: %s\n", text);
    exit(1);
}

static void measure(transport *transport, size_t bytes, size_t rounds, uint64_t *times) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    uint8_t *memory = calloc(transport->ranks + 1, bytes);
    avo_error error;
    if (memory == NULL)
        fail("no memory");
    for (uint32_t rank = 0; rank < transport->ranks; rank++) {
        send[rank] = (group_part){memory, bytes};
        receive[rank] = (group_part){memory + (rank + 1) * bytes, bytes};
    }
    for (size_t i = 0; i < rounds; i++) {
        uint64_t begin = clock_now_ns();
        if (transport_exchange(transport, send, receive, TIMEOUT_NS, &error) != AVO_OK)
            fail(error.text);
        times[i] = clock_now_ns() - begin;
    }
    free(memory);
}

static void *work(void *context) {
    const rank_work *own = context;
    transport *transport = own->transport;
    uint64_t *times = calloc(own->rounds, sizeof(*times));
    if (times == NULL)
        fail("no memory");
    if (transport->rank == 0)
        printf("%u ranks\n%10s %10s %10s %10s us\n", transport->ranks, "bytes", "shortest",
               "median", "90 %");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t most = BYTES_ALL / sizes[i], rounds = own->rounds < most ? own->rounds : most;
        measure(transport, sizes[i], rounds, times);
        qsort(times, rounds, sizeof(*times), compare);
        if (transport->rank == 0)
            printf("%10zu %10.1f %10.1f %10.1f\n", sizes[i], (double)times[0] * 1e-3,
                   (double)times[rounds / 2] * 1e-3, (double)times[rounds * 9 / 10] * 1e-3);
    }
    free(times);
    transport_close(transport);
    return NULL;
}

/* A number from 1 on; 0: there is none. */
static size_t number_at(int argc, char **argv, int at) {
    char *end = NULL;
    unsigned long number = argc > at ? strtoul(argv[at], &end, 10) : 0;
    return end != NULL && *end == '\0' ? number : 0;
}

static size_t rounds_of(int argc, char **argv, int at) {
    size_t rounds = number_at(argc, argv, at);
    return rounds > 0 ? rounds : ROUNDS;
}

static int by_mpi(int argc, char **argv) {
    rank_work own = {.rounds = rounds_of(argc, argv, 1)};
    avo_error error;
    if (mpi_join(&error) != AVO_OK || transport_mpi(NULL, &own.transport, &error) != AVO_OK)
        fail(error.text);
    work(&own);
    mpi_leave();
    return 0;
}

int main(int argc, char **argv) {
    transport *transports[GROUP_RANKS_MAX];
    rank_work own[GROUP_RANKS_MAX];
    pthread_t threads[GROUP_RANKS_MAX];
    avo_error error;
    if (mpi_launched().ranks > 0)
        return by_mpi(argc, argv);
    size_t ranks = number_at(argc, argv, 1);
    if (ranks < 2 || ranks > GROUP_RANKS_MAX)
        fail("usage: bench_exchange RANKS [ROUNDS], or mpirun -n RANKS bench_exchange [ROUNDS]");
    if (transport_local(NULL, (uint32_t)ranks, transports, &error) != AVO_OK)
        fail(error.text);
    for (size_t i = 0; i < ranks; i++) {
        own[i] = (rank_work){transports[i], rounds_of(argc, argv, 2)};
        if (i > 0 && pthread_create(&threads[i], NULL, work, &own[i]) != 0)
            fail("no thread");
    }
    work(&own[0]);
    for (size_t i = 1; i < ranks; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
