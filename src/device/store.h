/* Prepared weights that all engines of a model share: a model owns one store and closes it last.
 * The first device that needs a form of the weights builds it, others wait and get the same. Every
 * user holds a reference; the last one releases the value through its owner, so that memory of a
 * device is given back before the device closes. */
#ifndef AVO_DEVICE_STORE_H
#define AVO_DEVICE_STORE_H

#include "base/allocator.h"
#include "base/status.h"

/* ---- Limits ---- */
#define STORE_FORMS_MAX 16 /* of one model's weights */
#define STORE_KEY_MAX   64 /* bytes of a key, its zero included */

typedef struct weights_store weights_store;
typedef struct weights_entry weights_entry; /* a reference of a value */

/* One form of the weights. */
typedef struct weights_form {
    const avo_allocator *allocator; /* of the store's note about it; lives as long as the value */
    /* Copied. It tells devices apart whose memory is not the same: "NAME:NUMBER panels". */
    const char *key;
    /* Makes the value. A failure leaves nothing behind, and the next caller tries again. */
    avo_status (*build)(void *context, void **value, avo_error *error);
    void *context;
    /* Releases the value. `owner` has its memory and must live as long as the value does: where
     * several devices share a value, that is what they share, not one of them. */
    void (*release)(void *owner, void *value);
    void *owner;
    /* Without users, the value stays for the next engine until the store closes: for memory that
     * outlives all devices. */
    bool kept;
} weights_form;

AVO_MUST_USE avo_status weights_store_open(const avo_allocator *allocator, weights_store **out,
                                           avo_error *error);
/* Releases what nobody uses. Who closes a model before its engines, as a garbage collector may,
 * still gives references back to the store: the last one frees it. NULL is closed, too. */
void weights_store_close(weights_store *store);
/* A reference of the value under the form's key, built if there is none. AVO_ERROR_LIMIT: the store
 * has too many, or the key is too long. Without a store (NULL) nobody else finds the value. */
AVO_MUST_USE avo_status weights_store_take(weights_store *store, const weights_form *form,
                                           weights_entry **out, avo_error *error);
/* A reference of the value, or NULL while there is none. */
weights_entry *weights_store_find(weights_store *store, const char *key);
/* Gives a reference back; NULL is given, too. */
void weights_store_give(weights_store *store, weights_entry *entry);
void *weights_entry_value(const weights_entry *entry);

#endif
