/* `--publish URL[=NAME]`: a running server loads the adapter whenever the output folder has a new
 * one. The server is not part of the run: whatever goes wrong there is a warning, and the next time
 * is another try. (`--serve`, a server of the run's own, is train/serve.h.) */
#include "cli/train_int.h"

#include "base/file.h"
#include "model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ASK_SECONDS  5.0
#define LOAD_SECONDS 60.0 /* a large adapter on a slow disk */

/* ---- What is given ---- */

static avo_status too_long(const train_call *call, avo_error *error) {
    return status_fail(error, AVO_ERROR_LIMIT, "--publish %.100s…: too long",
                       call->publisher.target);
}

/* "http://host:8080=mine": URLs of servers have no "=" of their own. */
static avo_status split(train_call *call) {
    train_publisher *p = &call->publisher;
    const char *equals = strchr(p->target, '=');
    size_t size = equals != NULL ? (size_t)(equals - p->target) : strlen(p->target);
    if (size >= sizeof(p->url) || (equals != NULL && strlen(equals + 1) >= sizeof(p->name)))
        return too_long(call, &call->error);
    memcpy(p->url, p->target, size);
    p->url[size] = '\0';
    if (strncmp(p->url, "http://", 7) != 0 && strncmp(p->url, "https://", 8) != 0)
        return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                           "--publish %.200s: must begin with http:// or https://", p->target);
    if (equals != NULL && equals[1] == '\0')
        return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                           "--publish %.200s: the adapter's name is missing behind =", p->target);
    if (equals != NULL)
        snprintf(p->name, sizeof(p->name), "%s", equals + 1);
    else
        train_serve_name(p->folder, p->name);
    return AVO_OK;
}

/* Servers look for paths from other folders than this process. */
static avo_status find_folder(train_call *call) {
    char *whole;
    AVO_TRY(file_make_folder(call->options.output, &call->error));
    whole = realpath(call->options.output, NULL);
    if (whole == NULL)
        return status_fail(&call->error, AVO_ERROR_IO, "%s: %s", call->options.output,
                           strerror(errno));
    int length = snprintf(call->publisher.folder, CLI_PATH_MAX, "%s", whole);
    free(whole);
    return length < CLI_PATH_MAX ? AVO_OK : too_long(call, &call->error);
}

static bool has_publish_options(const train_call *call) {
    const train_publisher *p = &call->publisher;
    return p->path != NULL || p->key != NULL || p->authorities != NULL ||
           call->options.renew_every > 0;
}

static bool has_serve_options(const train_call *call) {
    return call->serve.config != NULL || call->options.serve_every > 0;
}

/* The server of the run's own. */
static void take_serve(train_call *call) {
    call->serve.command = "/proc/self/exe";
    call->options.serve = &call->serve;
    if (call->options.serve_every == 0)
        call->options.serve_every = TRAIN_SERVE_EVERY;
}

avo_status train_publish_check(train_call *call) {
    bool publishes = call->publisher.target != NULL, serves = call->serve.address != NULL;
    if (!publishes && has_publish_options(call))
        return status_fail(&call->error, AVO_ERROR_ARGUMENT, "options --publish-… need --publish");
    if (!serves && has_serve_options(call))
        return status_fail(&call->error, AVO_ERROR_ARGUMENT, "options --serve-… need --serve");
    if (publishes && serves)
        return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                           "give --publish for a server that runs or --serve for a new one, not "
                           "both");
    if ((publishes || serves) && call->options.settings.full)
        return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                           "%s needs an adapter: leave out --full",
                           serves ? "--serve" : "--publish");
    if (serves)
        take_serve(call);
    if (!publishes)
        return AVO_OK;
    AVO_TRY(find_folder(call));
    return split(call);
}

/* ---- Publishing ---- */

/* Once, until it works again or fails in another way. */
static void tell_failure(train_call *call, const avo_error *error) {
    train_publisher *p = &call->publisher;
    if (strcmp(p->last.text, error->text) != 0) {
        cli_progress_end();
        cli_warn("--publish: %s; training goes on, with another try at the next checkpoint",
                 error->text);
    }
    p->last = *error;
}

static void publish(void *context, uint64_t step) {
    train_call *call = context;
    train_publisher *p = &call->publisher;
    avo_error error = {0};
    if (live_adapter_load(&p->adapter, &error) != AVO_OK) {
        tell_failure(call, &error);
        return;
    }
    if (!p->published || p->last.text[0] != '\0') {
        cli_progress_end();
        cli_warn("%s has the adapter of step %" PRIu64 " as \"%s\"", p->url, step, p->name);
    }
    p->published = true;
    p->last = (avo_error){0};
}

/* An adapter fits every model of the same shape, whether or not it was made for it. */
static void compare_models(const train_publisher *p, const live_model *served,
                           const avo_model *model) {
    char digest[17];
    snprintf(digest, sizeof(digest), "%016" PRIx64, source_digest(model->source));
    if (served->digest[0] != '\0' && strcmp(served->digest, digest) != 0)
        cli_warn("--publish: %s serves %s, whose weights differ from those that are trained; the "
                 "adapter may not suit it",
                 p->url, served->name);
}

void train_publish_begin(train_call *call, const avo_model *model) {
    train_publisher *p = &call->publisher;
    avo_error error = {0};
    live_model served;
    if (p->target == NULL)
        return;
    if (p->key == NULL)
        p->key = getenv("AVOCET_API_KEY");
    p->adapter = (live_adapter){.url = p->url,
                                .key = p->key,
                                .authorities = p->authorities,
                                .name = p->name,
                                .path = p->path != NULL ? p->path : p->folder,
                                .timeout_seconds = ASK_SECONDS};
    if (live_adapter_model(&p->adapter, &served, &error) != AVO_OK)
        tell_failure(call, &error);
    compare_models(p, &served, model);
    p->adapter.timeout_seconds = LOAD_SECONDS;
    call->options.on_adapter = publish;
    call->options.on_adapter_context = call;
}
