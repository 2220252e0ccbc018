/* "PATH" or "PATH:WEIGHT", and "NAME=PATH" or "NAME=PATH:WEIGHT", as every command takes adapters.
 */
#include "cli/cli.h"

#include "base/file.h"
#include "base/number.h"
#include "cli/engine_flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_MAX 1e6

/* "nan", "-inf", "1e39": meant as a number, though none that can be used. */
static bool looks_like_number(const char *text) {
    char *end;
    if (text[0] == '\0' || text[0] == ' ')
        return false;
    (void)strtod(text, &end);
    return *end == '\0';
}

/* A path that ends so is taken as it is. */
static bool is_bad_weight(const char *text, const char *colon) {
    char path[CLI_PATH_MAX];
    size_t length = (size_t)(colon - text);
    if (!looks_like_number(colon + 1) || length == 0 || length >= sizeof(path) ||
        file_kind_of(text) != FILE_MISSING)
        return false;
    memcpy(path, text, length);
    path[length] = '\0';
    return file_kind_of(path) != FILE_MISSING;
}

avo_status cli_adapter_path(const char *text, char *path, size_t capacity, float *weight,
                            avo_error *error) {
    const char *colon = strrchr(text, ':');
    double number = 1.0;
    size_t length = strlen(text);
    /* A path may have colons that no number follows. */
    if (colon != NULL && number_parse_double(colon + 1, -WEIGHT_MAX, WEIGHT_MAX, &number) == NULL)
        length = (size_t)(colon - text);
    else if (colon != NULL && is_bad_weight(text, colon))
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "adapter \"%.200s\": scale %.40s must be a number from -1000000 to 1000000", text,
            colon + 1);
    else
        number = 1.0;
    if (length == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "adapter \"%.100s\": the path is missing",
                           text);
    if (length >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "adapter \"%.100s…\": the path is too long",
                           text);
    memcpy(path, text, length);
    path[length] = '\0';
    *weight = (float)number;
    return AVO_OK;
}

bool cli_adapter_spec_good(const char *text) {
    size_t name = strcspn(text, "=");
    return name > 0 && text[name] == '=' && text[name + 1] != '\0';
}

avo_status cli_adapter_spec_read(const char *text, cli_adapter_spec *spec, avo_error *error) {
    size_t name = strcspn(text, "=");
    if (!cli_adapter_spec_good(text))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--adapter: \"%.200s\" must have the form NAME=PATH or NAME=PATH:SCALE",
                           text);
    if (name >= sizeof(spec->name))
        return status_fail(error, AVO_ERROR_LIMIT,
                           "--adapter: the name in \"%.200s\" is longer than %zu bytes", text,
                           sizeof(spec->name) - 1);
    memcpy(spec->name, text, name);
    spec->name[name] = '\0';
    return cli_adapter_path(text + name + 1, spec->path, sizeof(spec->path), &spec->weight, error);
}

avo_status cli_adapter_open(const avo_model *model, const char *path, const char *type,
                            avo_adapter **adapter, avo_error *error) {
    avo_adapter_options options = AVO_ADAPTER_OPTIONS_INIT;
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    options.type = type;
    AVO_TRY(avo_adapter_open(model, path, &options, adapter, error));
    avo_adapter_describe(*adapter, &info);
    if (info.idle)
        cli_warn("adapter %s has no effect: all of B, or every scale, is zero", path);
    char note[CLI_PATH_MAX + 256];
    snprintf(note, sizeof(note), "adapter %s: %s as %s, %u of %u modules, rank %u, digest %s", path,
             info.method, info.type, info.modules_matched, info.modules_expected, info.rank_max,
             info.digest);
    cli_note(note);
    if (type == NULL || strcmp(type, info.type) == 0)
        return AVO_OK;
    avo_status status =
        status_fail(error, AVO_ERROR_ARGUMENT,
                    "%s: packed as %s, which cannot be changed; for %s give the original adapter",
                    path, info.type, type);
    avo_adapter_close(*adapter);
    *adapter = NULL;
    return status;
}
