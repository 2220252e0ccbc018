/* Open MPI, loaded when it is needed: Avocet is built without it and runs where it is not
 * installed. The library is called through its binary interface, which has been the same since
 * version 1.7: handles are addresses of structures that the library exports. Other implementations
 * have other handles, so the library is asked who it is. */
#include "device/ranks/transport.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY           "libmpi.so.40" /* of Open MPI 3, 4 and 5 */
#define NAME              "Open MPI"
#define THREAD_SERIALIZED 2    /* MPI_THREAD_SERIALIZED: the thread that leads steps is not main */
#define TEXT_MAX          8192 /* more than any text of the library */
#define TAG               1718
#define MEETING_NS        ((uint64_t)60000000000)

/* MPI_Comm, MPI_Datatype, MPI_Request, MPI_Errhandler */
typedef void *mpi_handle;

typedef struct mpi_library {
    int (*get_library_version)(char *text, int *length);
    int (*init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*initialized)(int *flag);
    int (*finalized)(int *flag);
    int (*finalize)(void);
    int (*comm_rank)(mpi_handle comm, int *rank);
    int (*comm_size)(mpi_handle comm, int *size);
    int (*comm_set_errhandler)(mpi_handle comm, mpi_handle handler);
    int (*isend)(const void *data, int count, mpi_handle type, int to, int tag, mpi_handle comm,
                 mpi_handle *request);
    int (*irecv)(void *data, int count, mpi_handle type, int from, int tag, mpi_handle comm,
                 mpi_handle *request);
    int (*test)(mpi_handle *request, int *flag, void *status);
    int (*error_string)(int code, char *text, int *length);
    mpi_handle world, byte, errors_return;
} mpi_library;

typedef struct mpi_transport {
    transport base;
    mpi_library library;
    mpi_handle request[2 * GROUP_RANKS_MAX]; /* receiving, then sending */
    bool pending[2 * GROUP_RANKS_MAX];
} mpi_transport;

/* ---- The library ---- */

static avo_status load(mpi_library *library, avo_error *error) {
    struct {
        const char *name;
        void *target;
    } symbols[] = {
        {"MPI_Get_library_version", &library->get_library_version},
        {"MPI_Init_thread", &library->init_thread},
        {"MPI_Initialized", &library->initialized},
        {"MPI_Finalized", &library->finalized},
        {"MPI_Finalize", &library->finalize},
        {"MPI_Comm_rank", &library->comm_rank},
        {"MPI_Comm_size", &library->comm_size},
        {"MPI_Comm_set_errhandler", &library->comm_set_errhandler},
        {"MPI_Isend", &library->isend},
        {"MPI_Irecv", &library->irecv},
        {"MPI_Test", &library->test},
        {"MPI_Error_string", &library->error_string},
        {"ompi_mpi_comm_world", &library->world},
        {"ompi_mpi_byte", &library->byte},
        {"ompi_mpi_errors_return", &library->errors_return},
    };
    /* Its plugins look for its symbols in the whole program. It is never unloaded. */
    void *loaded = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (loaded == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "Open MPI cannot be loaded (%.200s); install it (Debian: openmpi-bin)",
                           dlerror());
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(loaded, symbols[i].name);
        if (symbol == NULL)
            return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s has no %s: it is not Open MPI",
                               LIBRARY, symbols[i].name);
        memcpy(symbols[i].target, &symbol, sizeof(symbol));
    }
    char text[TEXT_MAX] = "";
    int length = 0;
    library->get_library_version(text, &length);
    if (strncmp(text, NAME, strlen(NAME)) == 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s is \"%.60s\", must be Open MPI", LIBRARY,
                       text);
}

static avo_status failed(const mpi_library *library, const char *call, int code, avo_error *error) {
    char text[TEXT_MAX] = "";
    int length = 0;
    if (code == 0)
        return AVO_OK;
    library->error_string(code, text, &length);
    return status_fail(error, AVO_ERROR_DEVICE, "%s failed: %.200s", call, text);
}

/* ---- The process ---- */

static uint32_t variable(const char *name) {
    const char *text = getenv(name);
    unsigned long number = text == NULL ? 0 : strtoul(text, NULL, 10);
    return number > UINT32_MAX ? 0 : (uint32_t)number;
}

mpi_launch mpi_launched(void) {
    mpi_launch launch = {.rank = variable("OMPI_COMM_WORLD_RANK"),
                         .ranks = variable("OMPI_COMM_WORLD_SIZE"),
                         .here = variable("OMPI_COMM_WORLD_LOCAL_SIZE")};
    if (launch.ranks < 2 || launch.rank >= launch.ranks)
        return (mpi_launch){0};
    launch.here = launch.here > 0 ? launch.here : 1;
    return launch;
}

const char *mpi_folder(uint32_t number) {
    if (mpi_launched().ranks == 0)
        return NULL;
    return number == 0 ? getenv("OMPI_MCA_orte_jobfam_session_dir") : "/dev/shm";
}

/* Every rank says something to every other. */
static avo_status meet(avo_error *error) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    uint8_t word = 1, words[GROUP_RANKS_MAX];
    transport *transport;
    AVO_TRY(transport_mpi(NULL, &transport, error));
    for (uint32_t rank = 0; rank < transport->ranks; rank++) {
        send[rank] = (group_part){&word, rank == transport->rank ? 0 : 1};
        receive[rank] = (group_part){&words[rank], send[rank].bytes};
    }
    avo_status status = transport_exchange(transport, send, receive, MEETING_NS, error);
    transport_close(transport);
    return status;
}

avo_status mpi_join(avo_error *error) {
    mpi_library library;
    int provided = 0;
    AVO_TRY(load(&library, error));
    /* Sandboxes and containers forbid ranks to read each other's memory; it then goes through
     * memory that they share. Who has set this knows better. */
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    AVO_TRY(failed(&library, "MPI_Init_thread",
                   library.init_thread(NULL, NULL, THREAD_SERIALIZED, &provided), error));
    if (provided < THREAD_SERIALIZED)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "Open MPI allows threads at level %d only, needed is %d", provided,
                           THREAD_SERIALIZED);
    AVO_TRY(failed(&library, "MPI_Comm_set_errhandler",
                   library.comm_set_errhandler(library.world, library.errors_return), error));
    return meet(error);
}

bool mpi_joined(void) {
    mpi_library library;
    int initialized = 0, finalized = 0;
    if (mpi_launched().ranks == 0 || load(&library, NULL) != AVO_OK)
        return false;
    library.initialized(&initialized);
    library.finalized(&finalized);
    return initialized != 0 && finalized == 0;
}

void mpi_leave(void) {
    mpi_library library;
    if (load(&library, NULL) == AVO_OK)
        library.finalize();
}

/* ---- Exchanges ---- */

static mpi_transport *of(transport *transport) {
    return (mpi_transport *)(void *)transport;
}

static avo_status check_size(const group_part *part, uint32_t rank, avo_error *error) {
    if (part->bytes <= INT_MAX)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_LIMIT,
                       "%zu bytes for rank %u are too many for one message; use fewer rows",
                       part->bytes, rank);
}

static avo_status begin(transport *base, const group_part *send, const group_part *receive,
                        avo_error *error) {
    mpi_transport *mpi = of(base);
    const mpi_library *library = &mpi->library;
    for (uint32_t rank = 0; rank < base->ranks; rank++) {
        const group_part *in = &receive[rank];
        if (rank == base->rank || in->bytes == 0)
            continue;
        AVO_TRY(check_size(in, rank, error));
        int code = library->irecv(in->data, (int)in->bytes, library->byte, (int)rank, TAG,
                                  library->world, &mpi->request[rank]);
        AVO_TRY(failed(library, "MPI_Irecv", code, error));
        mpi->pending[rank] = true;
    }
    for (uint32_t i = 1; i < base->ranks; i++) {
        uint32_t rank = (base->rank + i) % base->ranks; /* not all to the same one at first */
        const group_part *out = &send[rank];
        if (out->bytes == 0)
            continue;
        AVO_TRY(check_size(out, rank, error));
        int code = library->isend(out->data, (int)out->bytes, library->byte, (int)rank, TAG,
                                  library->world, &mpi->request[GROUP_RANKS_MAX + rank]);
        AVO_TRY(failed(library, "MPI_Isend", code, error));
        mpi->pending[GROUP_RANKS_MAX + rank] = true;
    }
    return AVO_OK;
}

static avo_status proceed(transport *base, bool *done, avo_error *error) {
    mpi_transport *mpi = of(base);
    *done = true;
    for (uint32_t i = 0; i < 2 * GROUP_RANKS_MAX; i++) {
        int flag = 0;
        if (!mpi->pending[i])
            continue;
        AVO_TRY(failed(&mpi->library, "MPI_Test", mpi->library.test(&mpi->request[i], &flag, NULL),
                       error));
        mpi->pending[i] = flag == 0;
        *done = *done && flag != 0;
    }
    return AVO_OK;
}

static uint32_t missing(transport *base) {
    const mpi_transport *mpi = of(base);
    for (uint32_t i = 0; i < 2 * GROUP_RANKS_MAX; i++)
        if (mpi->pending[i])
            return i % GROUP_RANKS_MAX;
    return 0;
}

static void close_mpi(transport *base) {
    allocator_give(base->allocator, base, sizeof(mpi_transport));
}

static const transport_operations operations = {
    .begin = begin, .proceed = proceed, .missing = missing, .close = close_mpi};

avo_status transport_mpi(const avo_allocator *allocator, transport **out, avo_error *error) {
    int rank = 0, ranks = 0;
    *out = NULL;
    mpi_transport *mpi = allocator_take_array(allocator, 1, sizeof(*mpi));
    if (mpi == NULL)
        return status_no_memory(error, "a rank's connections", sizeof(*mpi));
    avo_status status = load(&mpi->library, error);
    AVO_THEN(status, failed(&mpi->library, "MPI_Comm_rank",
                            mpi->library.comm_rank(mpi->library.world, &rank), error));
    AVO_THEN(status, failed(&mpi->library, "MPI_Comm_size",
                            mpi->library.comm_size(mpi->library.world, &ranks), error));
    if (status == AVO_OK && (ranks < 2 || ranks > GROUP_RANKS_MAX))
        status = status_fail(error, AVO_ERROR_ARGUMENT, "%d ranks, must be 2 to %d", ranks,
                             GROUP_RANKS_MAX);
    mpi->base = (transport){&operations, allocator, (uint32_t)rank, (uint32_t)ranks};
    if (status == AVO_OK)
        *out = &mpi->base;
    else
        close_mpi(&mpi->base);
    return status;
}
