/* The store of prepared weights: a handful of values behind one lock. */
#include "device/store.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define STORE_VALUES_MAX 4 /* forms of one model's weights */

struct weights_store {
    const avo_allocator *allocator;
    pthread_mutex_t mutex; /* held while a value is built: others need the same one */
    struct {
        const char *key;
        void *value;
        weights_drop drop;
    } entry[STORE_VALUES_MAX];
    uint32_t count;
};

avo_status weights_store_open(const avo_allocator *allocator, weights_store **out,
                              avo_error *error) {
    *out = allocator_take_array(allocator, 1, sizeof(**out));
    if (*out == NULL)
        return status_no_memory(error, "the store of prepared weights", sizeof(**out));
    (*out)->allocator = allocator;
    pthread_mutex_init(&(*out)->mutex, NULL);
    return AVO_OK;
}

void weights_store_close(weights_store *store) {
    if (store == NULL)
        return;
    for (uint32_t i = 0; i < store->count; i++)
        store->entry[i].drop(store->entry[i].value);
    pthread_mutex_destroy(&store->mutex);
    allocator_give(store->allocator, store, sizeof(*store));
}

/* Under the lock. */
static void *find(const weights_store *store, const char *key) {
    for (uint32_t i = 0; i < store->count; i++)
        if (strcmp(store->entry[i].key, key) == 0)
            return store->entry[i].value;
    return NULL;
}

void *weights_store_find(weights_store *store, const char *key) {
    pthread_mutex_lock(&store->mutex);
    void *value = find(store, key);
    pthread_mutex_unlock(&store->mutex);
    return value;
}

avo_status weights_store_take(weights_store *store, const char *key, weights_build build,
                              void *context, weights_drop drop, void **value, avo_error *error) {
    avo_status status = AVO_OK;
    pthread_mutex_lock(&store->mutex);
    *value = find(store, key);
    if (*value == NULL) {
        assert(store->count < STORE_VALUES_MAX);
        status = build(context, value, error);
        if (status == AVO_OK) {
            store->entry[store->count].key = key;
            store->entry[store->count].value = *value;
            store->entry[store->count++].drop = drop;
        }
    }
    pthread_mutex_unlock(&store->mutex);
    return status;
}
