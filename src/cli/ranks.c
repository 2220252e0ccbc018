/* The process of a rank: joining the others, and the models that rank 0 asks for. */
#include "cli/ranks.h"

#include "cli/cli.h"
#include "device/ranks/ranks.h"
#include "model/model.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODELS_MAX   8 /* a model and its drafts */
#define DISMISS_NS   ((uint64_t)10000000000)
#define LAST_SECONDS 30 /* in which rank 0 may finish what it does without this one */

typedef struct rank_models {
    avo_model *model[MODELS_MAX];
    size_t count;
} rank_models;

/* A model stays open, so that what was prepared once serves all engines. */
static avo_status open_model(void *context, const char *path, weights_source *out,
                             avo_error *error) {
    rank_models *models = context;
    for (size_t i = 0; i < models->count; i++)
        if (strcmp(models->model[i]->source->path, path) == 0) {
            *out = model_weights(models->model[i], &models->model[i]->view);
            return AVO_OK;
        }
    if (models->count == MODELS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%.150s: ranks open %d models at most", path,
                           MODELS_MAX);
    avo_model *model;
    AVO_TRY(avo_model_open(path, NULL, &model, error));
    models->model[models->count++] = model;
    *out = model_weights(model, &model->view);
    return AVO_OK;
}

static avo_status serve(avo_error *error) {
    rank_models models = {.count = 0};
    ranks_host host = {.open_model = open_model, .context = &models, .here = mpi_launched().here};
    transport *transport;
    AVO_TRY(transport_mpi(NULL, &transport, error));
    avo_status status = ranks_serve(transport, &host, error);
    transport_close(transport);
    for (size_t i = 0; i < models.count; i++)
        avo_model_close(models.model[i]);
    return status;
}

/* mpirun ends all ranks as soon as one has ended badly: rank 0 is given time to say why its
 * requests fail. */
static void fail_rank(uint32_t rank, const avo_error *error) {
    cli_warn("rank %u: %s", rank, error->text);
    sleep(LAST_SECONDS);
    _exit(EXIT_FAILED);
}

/* Of a command that every rank runs. */
static struct {
    bool all_run, abandoned;
    transport *transport;
} job;

bool cli_ranks_serve(bool all_run, int *status) {
    mpi_launch launch = mpi_launched();
    avo_error error;
    *status = EXIT_FAILED;
    if (launch.ranks == 0)
        return false;
    if (mpi_join(&error) != AVO_OK) {
        cli_warn("rank %u: %s", launch.rank, error.text);
        return true;
    }
    job.all_run = all_run;
    if (launch.rank == 0)
        return false;
    /* mpirun hands them to all ranks; rank 0 ends in its own time, and the others with it. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    if (all_run)
        return false;
    if (serve(&error) != AVO_OK)
        fail_rank(launch.rank, &error);
    mpi_leave();
    *status = EXIT_GOOD;
    return true;
}

avo_status cli_ranks_join(transport **out, avo_error *error) {
    *out = NULL;
    if (!mpi_joined() || mpi_launched().ranks == 1)
        return AVO_OK;
    if (job.transport == NULL)
        AVO_TRY(transport_mpi(NULL, &job.transport, error));
    *out = job.transport;
    return AVO_OK;
}

void cli_ranks_abandon(void) {
    job.abandoned = true;
}

void cli_ranks_end(void) {
    transport *transport;
    if (job.all_run) {
        transport_close(job.transport);
        if (mpi_joined() && !job.abandoned)
            mpi_leave();
        return;
    }
    if (!mpi_joined() || transport_mpi(NULL, &transport, NULL) != AVO_OK)
        return;
    bool all = ranks_dismiss(transport, DISMISS_NS);
    transport_close(transport);
    if (all)
        mpi_leave(); /* else it would wait for a rank that is gone */
}
