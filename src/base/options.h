/* Options structs that begin with their own size (include/avocet.h), taken over safely. */
#ifndef AVO_BASE_OPTIONS_H
#define AVO_BASE_OPTIONS_H

#include "base/status.h"

/* Copies what the caller gave over `own`, which holds the defaults and is `own_bytes` long. NULL
 * leaves the defaults. A size that cannot be is refused, and so is a longer struct (from a newer
 * header) that sets what this library does not know. `name` is for the message. */
AVO_MUST_USE avo_status options_take(void *own, size_t own_bytes, const void *given,
                                     const char *name, avo_error *error);

/* The other direction: fills a caller's struct as far as its size says. A size that cannot be
 * leaves it alone. */
void options_give(void *given, const void *own, size_t own_bytes);

#endif
