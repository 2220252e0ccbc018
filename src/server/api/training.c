/* /training: runs of `avocet train` in the operator's folder. Files are read by a helper: a long
 * run's metrics take tens of milliseconds, and the connections' threads must not wait for disks. */
#include "server/api/api_int.h"
#include "server/api/helpers.h"
#include "train/runs.h"

#include <stdlib.h>

typedef struct training_job {
    exchange *exchange;
    char *run; /* NULL: the list */
} training_job;

#define READERS_MAX 2u /* of the helpers: some must be left for loading adapters */

/* Counts one more or less; false: as many as may are at work. */
static bool count_reader(api *api, bool begins) {
    pthread_mutex_lock(&api->lock);
    bool free_place = !begins || api->training < READERS_MAX;
    if (begins)
        api->training += free_place;
    else
        api->training--;
    pthread_mutex_unlock(&api->lock);
    return free_place;
}

static void close_job(training_job *job) {
    exchange_release(job->exchange);
    free(job->run);
    free(job);
}

static void training_run(api *api, void *context) {
    training_job *job = context;
    const char *folder = api->options->training;
    avo_error error = {0};
    buffer out;
    buffer_init(&out, NULL, RUNS_OUTPUT_MAX);
    json_writer w = json_writer_of(&out);
    avo_status status =
        job->run != NULL ? runs_show(folder, job->run, &w, &error) : runs_list(folder, &w, &error);
    (void)count_reader(api, false);
    helper_finished(api);
    if (status == AVO_OK)
        api_send_json(job->exchange, 200, &w);
    else if (status == AVO_ERROR_NOT_FOUND)
        exchange_fail(job->exchange, 404, "run", "not_found", "%s", error.text);
    else
        exchange_fail(job->exchange, 503, NULL, "training_failed", "%s", error.text);
    buffer_free(&out);
    close_job(job);
}

static training_job *make_job(exchange *exchange, const char *run) {
    training_job *job = calloc(1, sizeof(*job));
    if (job == NULL)
        return NULL;
    job->run = run != NULL ? strdup(run) : NULL;
    if (run != NULL && job->run == NULL) {
        free(job);
        return NULL;
    }
    job->exchange = exchange_share(exchange);
    return job;
}

void endpoint_training(api *api, exchange *exchange) {
    if (api->options->training == NULL) {
        exchange_fail(exchange, 404, NULL, "no_training",
                      "this server shows no training runs; start it with --training FOLDER");
        return;
    }
    training_job *job = make_job(exchange, exchange_query(exchange, "run"));
    bool counted = job != NULL && count_reader(api, true);
    if (counted && helper_start(api, training_run, job))
        return;
    if (counted)
        (void)count_reader(api, false);
    if (job != NULL)
        close_job(job);
    exchange_refuse(exchange, 503, 1.0, "other files are being read");
}
