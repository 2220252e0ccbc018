/* `--publish URL[=NAME]` and `--serve`: a running server loads the adapter whenever the output
 * folder has a new one. The server is not part of the run: whatever goes wrong there is a warning,
 * and the next time is another try. */
#include "cli/train_int.h"

#include "base/file.h"
#include "model/model.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ASK_SECONDS  5.0
#define LOAD_SECONDS 60.0 /* a large adapter on a slow disk */

/* ---- What is given ---- */

/* The last part of the folder's path, with a hyphen for what names of adapters cannot have. */
static void name_of_folder(const char *folder, char name[CLI_ADAPTER_NAME_MAX]) {
    text_view part = file_last_part(folder);
    size_t size = part.size < CLI_ADAPTER_NAME_MAX ? part.size : CLI_ADAPTER_NAME_MAX - 1;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)part.data[i];
        bool good = c < 128 && (isalnum(c) || c == '_' || (c == '.' && i > 0));
        name[i] = good ? (char)c : '-';
    }
    name[size] = '\0';
}

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
        name_of_folder(p->folder, p->name);
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
    return p->path != NULL || p->key != NULL || call->options.renew_every > 0;
}

avo_status train_publish_check(train_call *call) {
    train_publisher *p = &call->publisher;
    const char *option = call->server.address != NULL ? "--serve" : "--publish";
    if (p->target == NULL && call->server.address == NULL)
        return has_publish_options(call) || call->server.config != NULL
                   ? status_fail(&call->error, AVO_ERROR_ARGUMENT, "%s",
                                 "options --publish-… need --publish, options --serve-… need "
                                 "--serve")
                   : AVO_OK;
    if (p->target != NULL && call->server.address != NULL)
        return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                           "give --publish for a server that runs or --serve for a new one, not "
                           "both");
    if (call->options.settings.full)
        return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                           "%s needs an adapter: leave out --full", option);
    AVO_TRY(find_folder(call));
    if (p->target != NULL)
        return split(call);
    name_of_folder(p->folder, p->name);
    return AVO_OK;
}

/* ---- Publishing ---- */

/* Once, until it works again or fails in another way. */
static void tell_failure(train_call *call, const avo_error *error) {
    train_publisher *p = &call->publisher;
    if (strcmp(p->last.text, error->text) != 0) {
        cli_progress_end();
        cli_warn("%s: %s; training goes on%s", p->target != NULL ? "--publish" : "--serve",
                 error->text,
                 p->target != NULL || call->server.process > 0
                     ? ", with another try at the next checkpoint"
                     : "");
    }
    p->last = *error;
}

static void publish(void *context, uint64_t step) {
    train_call *call = context;
    train_publisher *p = &call->publisher;
    avo_error error = {0};
    if (p->target == NULL && call->server.process == 0)
        return; /* it has ended, which was told */
    if (train_serve_ended(&call->server, &error) ||
        live_adapter_load(&p->adapter, &error) != AVO_OK) {
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
    if (p->url[0] == '\0')
        return;
    if (p->key == NULL)
        p->key = getenv("AVOCET_API_KEY");
    p->adapter = (live_adapter){.url = p->url,
                                .key = p->key,
                                .name = p->name,
                                .path = p->path != NULL ? p->path : p->folder,
                                .timeout_seconds = ASK_SECONDS};
    if (p->target == NULL) /* our own server of the same model, which is perhaps not ready yet */
        served = (live_model){.name = ""};
    else if (live_adapter_model(&p->adapter, &served, &error) != AVO_OK)
        tell_failure(call, &error);
    compare_models(p, &served, model);
    p->adapter.timeout_seconds = LOAD_SECONDS;
    call->options.on_adapter = publish;
    call->options.on_adapter_context = call;
}
