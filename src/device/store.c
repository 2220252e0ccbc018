/* The store of prepared weights: a short list of counted values behind one lock. */
#include "device/store.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

struct weights_entry {
    weights_form form; /* its key is the copy below */
    char key[STORE_KEY_MAX];
    void *value;
    uint32_t users;
    weights_entry *next;
};

struct weights_store {
    const avo_allocator *allocator;
    pthread_mutex_t mutex; /* held while a value is built: others need the same one */
    weights_entry *entries;
    uint32_t count;
    bool closed; /* nothing is kept, and the last reference frees the store */
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

static void drop(weights_entry *entry) {
    entry->form.release(entry->form.owner, entry->value);
    allocator_give(entry->form.allocator, entry, sizeof(*entry));
}

static void remove_entry(weights_store *store, const weights_entry *entry) {
    weights_entry **at = &store->entries;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    store->count--;
}

/* Unlocks the store, and frees it where nobody can ask for it any more. */
static void leave(weights_store *store) {
    bool over = store->closed && store->count == 0;
    pthread_mutex_unlock(&store->mutex);
    if (!over)
        return;
    pthread_mutex_destroy(&store->mutex);
    allocator_give(store->allocator, store, sizeof(*store));
}

void weights_store_close(weights_store *store) {
    if (store == NULL)
        return;
    pthread_mutex_lock(&store->mutex);
    store->closed = true;
    for (weights_entry *entry = store->entries, *next; entry != NULL; entry = next) {
        next = entry->next;
        if (entry->users > 0)
            continue;
        remove_entry(store, entry);
        drop(entry);
    }
    leave(store);
}

/* ---- References ---- */

static weights_entry *find(weights_store *store, const char *key) {
    for (weights_entry *entry = store->entries; entry != NULL; entry = entry->next)
        if (strcmp(entry->key, key) == 0) {
            entry->users++;
            return entry;
        }
    return NULL;
}

weights_entry *weights_store_find(weights_store *store, const char *key) {
    if (store == NULL)
        return NULL;
    pthread_mutex_lock(&store->mutex);
    weights_entry *entry = find(store, key);
    pthread_mutex_unlock(&store->mutex);
    return entry;
}

static avo_status make(const weights_form *form, weights_entry **out, avo_error *error) {
    size_t length = strlen(form->key);
    if (length >= STORE_KEY_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "prepared weights '%.80s': the name has %zu characters, must have at "
                           "most %d",
                           form->key, length, STORE_KEY_MAX - 1);
    weights_entry *entry = allocator_take_array(form->allocator, 1, sizeof(*entry));
    if (entry == NULL)
        return status_no_memory(error, "prepared weights", sizeof(*entry));
    entry->form = *form;
    memcpy(entry->key, form->key, length + 1);
    entry->form.key = entry->key;
    entry->users = 1;
    avo_status status = form->build(form->context, &entry->value, error);
    if (status != AVO_OK) {
        allocator_give(form->allocator, entry, sizeof(*entry));
        return status;
    }
    *out = entry;
    return AVO_OK;
}

/* Under the lock. */
static avo_status find_or_make(weights_store *store, const weights_form *form, weights_entry **out,
                               avo_error *error) {
    *out = find(store, form->key);
    if (*out != NULL)
        return AVO_OK;
    if (store->count == STORE_FORMS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the model's weights are prepared in %d forms, '%.80s' would be one too "
                           "many; close engines of other devices first",
                           STORE_FORMS_MAX, form->key);
    AVO_TRY(make(form, out, error));
    (*out)->next = store->entries;
    store->entries = *out;
    store->count++;
    return AVO_OK;
}

avo_status weights_store_take(weights_store *store, const weights_form *form, weights_entry **out,
                              avo_error *error) {
    *out = NULL;
    if (store == NULL)
        return make(form, out, error);
    pthread_mutex_lock(&store->mutex);
    avo_status status = find_or_make(store, form, out, error);
    pthread_mutex_unlock(&store->mutex);
    return status;
}

void weights_store_give(weights_store *store, weights_entry *entry) {
    if (entry == NULL)
        return;
    if (store == NULL) {
        drop(entry);
        return;
    }
    pthread_mutex_lock(&store->mutex);
    assert(entry->users > 0);
    if (--entry->users == 0 && (store->closed || !entry->form.kept)) {
        remove_entry(store, entry);
        drop(entry); /* under the lock: who builds it anew shall find its memory free */
    }
    leave(store);
}

void *weights_entry_value(const weights_entry *entry) {
    return entry->value;
}
