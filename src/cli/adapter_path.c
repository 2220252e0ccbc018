/* "PATH" or "PATH:WEIGHT", as every command takes adapters. */
#include "cli/cli.h"

#include "base/number.h"

#include <string.h>

#define WEIGHT_MAX 1e6

avo_status cli_adapter_path(const char *text, char *path, size_t capacity, float *weight,
                            avo_error *error) {
    const char *colon = strrchr(text, ':');
    double number = 1.0;
    size_t length = strlen(text);
    /* A path may have colons that no number follows. */
    if (colon != NULL && number_parse_double(colon + 1, -WEIGHT_MAX, WEIGHT_MAX, &number) == NULL)
        length = (size_t)(colon - text);
    else
        number = 1.0;
    if (length == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "adapter \"%.100s\": no path", text);
    if (length >= capacity)
        return status_fail(error, AVO_ERROR_LIMIT, "adapter \"%.100s…\": the path is too long",
                           text);
    memcpy(path, text, length);
    path[length] = '\0';
    *weight = (float)number;
    return AVO_OK;
}
