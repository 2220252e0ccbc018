/* Options structs across versions of the header. */
#include "base/options.h"

#include <string.h>

#define OPTIONS_BYTES_MAX 4096 /* no struct of ours will ever be longer */

static bool size_is_possible(size_t size) {
    return size >= sizeof(size_t) && size <= OPTIONS_BYTES_MAX;
}

avo_status options_take(void *own, size_t own_bytes, const void *given, const char *name,
                        avo_error *error) {
    if (given == NULL)
        return AVO_OK;
    size_t size;
    memcpy(&size, given, sizeof(size));
    if (!size_is_possible(size))
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "%s: the size field is %zu; initialise the structure with its …_INIT macro", name,
            size);
    const char *bytes = given;
    for (size_t i = own_bytes; i < size; i++)
        if (bytes[i] != 0)
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "%s: set by a newer header (%zu bytes, this library knows %zu); use "
                               "a newer library",
                               name, size, own_bytes);
    memcpy(own, given, size < own_bytes ? size : own_bytes);
    memcpy(own, &own_bytes, sizeof(own_bytes));
    return AVO_OK;
}

void options_give(void *given, const void *own, size_t own_bytes) {
    size_t size;
    memcpy(&size, given, sizeof(size));
    if (!size_is_possible(size))
        return;
    size_t filled = size < own_bytes ? size : own_bytes;
    if (filled > sizeof(size_t))
        memcpy((char *)given + sizeof(size_t), (const char *)own + sizeof(size_t),
               filled - sizeof(size_t));
}
