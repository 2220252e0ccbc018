/* Prepared weights that all engines of a model share: a model owns one store and closes it last.
 * The first device that needs a form of the weights builds it, others wait and get the same. */
#ifndef AVO_DEVICE_STORE_H
#define AVO_DEVICE_STORE_H

#include "base/allocator.h"
#include "base/status.h"

typedef struct weights_store weights_store;

/* Makes the value. A failure leaves nothing behind, and the next caller tries again. */
typedef avo_status (*weights_build)(void *context, void **value, avo_error *error);
typedef void (*weights_drop)(void *value);

AVO_MUST_USE avo_status weights_store_open(const avo_allocator *allocator, weights_store **out,
                                           avo_error *error);
/* Drops every value. NULL is closed, too. */
void weights_store_close(weights_store *store);
/* The value under `key`, a constant string, built by `build` if there is none. */
AVO_MUST_USE avo_status weights_store_take(weights_store *store, const char *key,
                                           weights_build build, void *context, weights_drop drop,
                                           void **value, avo_error *error);
/* The value, or NULL while there is none. */
void *weights_store_find(weights_store *store, const char *key);

#endif
