/* `mpirun -n N avocet train`: every rank runs the command; rank 0 alone reports and writes. */
#include "base/cpu.h"
#include "base/file.h"
#include "cli/ranks.h"
#include "cli/train_int.h"
#include "train/init.h"

#include <stdlib.h>
#include <unistd.h>

#define START_NS ((uint64_t)600000000000) /* in which rank 0 makes a new model */

bool train_ranks_leads(const train_call *call) {
    return call->options.transport == NULL || call->options.transport->rank == 0;
}

/* Ranks that mpirun has not bound to processors divide those of their machine. */
static uint32_t threads_of_rank(void) {
    uint32_t usable = cpu_usable_threads(), here = mpi_launched().here;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (here < 2 || online < 0 || usable < (uint32_t)online)
        return 0;
    return usable > here ? usable / here : 1;
}

avo_status train_ranks_begin(train_call *call) {
    train_run_options *options = &call->options;
    AVO_TRY(cli_ranks_join(&options->transport, &call->error));
    if (options->transport == NULL)
        return AVO_OK;
    options->rank_timeout_ns = (uint64_t)(call->rank_timeout_s * 1e9);
    if (call->serve.address != NULL)
        return status_fail(&call->error, AVO_ERROR_UNSUPPORTED,
                           "--serve cannot be combined with several ranks; use --publish with a "
                           "server of its own");
    if (options->engine.device == NULL && getenv("AVO_DEVICE") == NULL)
        options->engine.device = "cpu"; /* not "mpi": each rank has the whole model */
    if (options->settings.threads == 0)
        options->settings.threads = threads_of_rank();
    if (train_ranks_leads(call))
        return AVO_OK;
    call->publisher.target = NULL;
    options->renew_every = 0;
    options->progress = NULL;
    return AVO_OK;
}

avo_status train_ranks_start(train_call *call, const char *name, char path[CLI_PATH_MAX]) {
    uint8_t ready = 1;
    if (train_ranks_leads(call))
        AVO_TRY(train_start_find(call, name, path));
    if (call->options.transport == NULL || call->dry_run)
        return AVO_OK;
    AVO_TRY(
        transport_spread(call->options.transport, &ready, sizeof(ready), START_NS, &call->error));
    if (train_ranks_leads(call))
        return AVO_OK;
    if (call->options.settings.task == TRAIN_PRETRAIN && train_init_is_config(name))
        return file_join(path, CLI_PATH_MAX, call->options.output, "start", &call->error);
    snprintf(path, CLI_PATH_MAX, "%s", name);
    return AVO_OK;
}
