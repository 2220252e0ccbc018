/* Names of adapters. One mutex guards the table; files are opened outside of it, so that a slow
 * disk holds up nobody who asks for another name. Whoever asks for one that is being opened waits.
 *
 * Entries are kept sorted by name. An entry that is open holds one reference of its adapter; taking
 * gives another. Replacing and unloading give the registry's own reference back: whoever still
 * uses that version keeps it alive. Entries that are open stand in a list, the least recently used
 * first: whoever needs memory walks it as far as he must.
 */
#include "adapters/registry.h"

#include "adapters/adapters_int.h"
#include "adapters/beneath.h"
#include "adapters/failure.h"

#include <stdlib.h>

typedef struct entry {
    char *name, *path;
    size_t name_bytes, path_bytes; /* as taken */
    bool pinned;
    bool opening; /* somebody does; others wait */
    uint64_t version;
    avo_adapter *adapter;        /* NULL: not open */
    struct entry *newer, *older; /* among those that are open, by use */
    uint64_t digest[2];          /* of the version when last open */
    open_failure *failure;       /* NULL, or why it could not be opened: whoever opens it looks */
} entry;

struct adapter_registry {
    const avo_allocator *allocator;
    adapter_base base;
    adapter_options options;
    char *root; /* NULL: any path */
    size_t root_bytes;
    uint64_t memory_max;
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    entry **entries; /* sorted by name */
    size_t count, capacity;
    struct registry_meter *meter;
    uint64_t versions;
    entry *oldest, *newest; /* of those that are open */
};

/* ---- Names ---- */

static avo_status check_name(const char *name, avo_error *error) {
    size_t size = name == NULL ? 0 : strlen(name);
    bool good = size > 0 && size < ADAPTER_NAME_MAX && name[0] != '/' && name[0] != '.' &&
                strstr(name, "..") == NULL;
    for (size_t i = 0; good && i < size; i++) {
        char c = name[i];
        good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               strchr("-_.:/", c) != NULL;
    }
    if (good)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "invalid adapter name \"%.*s\": use letters, digits and -_.:/ only, no "
                       "\"..\", do not begin with \"/\" or \".\", and use fewer than %d characters",
                       (int)(size > 100 ? 100 : size), name == NULL ? "" : name, ADAPTER_NAME_MAX);
}

/* The place of a name, or where it would stand. */
static bool find(const adapter_registry *registry, const char *name, size_t *at) {
    size_t low = 0, high = registry->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(registry->entries[middle]->name, name);
        if (order == 0) {
            *at = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low;
    return false;
}

static avo_status not_found(const char *name, avo_error *error) {
    return status_fail(error, AVO_ERROR_NOT_FOUND, "no adapter is named \"%.200s\"", name);
}

static void free_entry(const adapter_registry *registry, entry *e) {
    if (e == NULL)
        return;
    allocator_give(registry->allocator, e->name, e->name_bytes);
    allocator_give(registry->allocator, e->path, e->path_bytes);
    failure_forget(e->failure, registry->allocator);
    allocator_give(registry->allocator, e, sizeof(*e));
}

static char *copy_text(const avo_allocator *allocator, const char *text, size_t *bytes) {
    *bytes = strlen(text) + 1;
    char *copy = allocator_take(allocator, *bytes);
    if (copy != NULL)
        memcpy(copy, text, *bytes);
    return copy;
}

static avo_status make_entry(const adapter_registry *registry, const char *name, const char *path,
                             bool pinned, entry **out, avo_error *error) {
    entry *e = allocator_take_array(registry->allocator, 1, sizeof(*e));
    if (e == NULL)
        return status_no_memory(error, "an adapter's name", sizeof(*e));
    e->name = copy_text(registry->allocator, name, &e->name_bytes);
    e->path = copy_text(registry->allocator, path, &e->path_bytes);
    e->pinned = pinned;
    if (e->name == NULL || e->path == NULL) {
        free_entry(registry, e);
        return status_no_memory(error, "an adapter's name", strlen(name) + strlen(path));
    }
    *out = e;
    return AVO_OK;
}

/* ---- Memory ---- */

/* Bytes of every adapter that the registry has opened and that is not closed yet, whether a name
 * still means it or a request only. Adapters may outlive the registry, so it is counted itself. */
typedef struct registry_meter {
    const avo_allocator *allocator;
    uint32_t references; /* atomic */
    uint64_t bytes;      /* atomic: the last reference is given back on any thread */
} registry_meter;

static void meter_release(registry_meter *meter) {
    if (__atomic_sub_fetch(&meter->references, 1, __ATOMIC_ACQ_REL) == 0)
        allocator_give(meter->allocator, meter, sizeof(*meter));
}

static uint64_t cost_of(const avo_adapter *adapter) {
    /* Mapped files take memory too while they are used. */
    return adapter->memory_bytes + adapter->storage->map.bytes.size;
}

static void close_counted(avo_adapter *adapter) {
    registry_meter *meter = adapter->storage->meter;
    uint64_t bytes = cost_of(adapter);
    adapter->storage->close(adapter);
    __atomic_sub_fetch(&meter->bytes, bytes, __ATOMIC_RELAXED);
    meter_release(meter);
}

static void used_unlink(adapter_registry *registry, entry *e) {
    *(e->older != NULL ? &e->older->newer : &registry->oldest) = e->newer;
    *(e->newer != NULL ? &e->newer->older : &registry->newest) = e->older;
}

static void used_append(adapter_registry *registry, entry *e) {
    e->newer = NULL;
    e->older = registry->newest;
    *(registry->newest != NULL ? &registry->newest->newer : &registry->oldest) = e;
    registry->newest = e;
}

/* The entry's from now on, and counted until its last reference is given back. */
static void attach(adapter_registry *registry, entry *e, avo_adapter *adapter) {
    struct adapter_storage *storage = adapter->storage;
    __atomic_add_fetch(&registry->meter->references, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&registry->meter->bytes, cost_of(adapter), __ATOMIC_RELAXED);
    storage->meter = registry->meter;
    storage->close = adapter->close;
    adapter->close = close_counted;
    e->adapter = adapter;
    used_append(registry, e);
    memcpy(e->digest, adapter->view.digest, sizeof(e->digest));
}

static uint32_t users_of(const entry *e) {
    if (e->adapter == NULL)
        return 0;
    uint32_t references = __atomic_load_n(&e->adapter->references, __ATOMIC_ACQUIRE);
    return references > 0 ? references - 1 : 0;
}

/* A list through adapters, as long as it must be: given back outside of the mutex. */
static void push(avo_adapter **list, avo_adapter *adapter) {
    adapter->storage->next = *list;
    *list = adapter;
}

static void release_all(avo_adapter *list) {
    while (list != NULL) {
        avo_adapter *next = list->storage->next;
        adapter_release(list);
        list = next;
    }
}

/* Takes the adapter out of an entry and into `closed`. One that nobody else has is as good as
 * closed; any other counts on. */
static void detach(adapter_registry *registry, entry *e, avo_adapter **closed) {
    avo_adapter *adapter = e->adapter;
    if (adapter == NULL)
        return;
    if (users_of(e) == 0) {
        struct adapter_storage *storage = adapter->storage;
        adapter->close = storage->close;
        __atomic_sub_fetch(&storage->meter->bytes, cost_of(adapter), __ATOMIC_RELAXED);
        meter_release(storage->meter);
    }
    used_unlink(registry, e);
    e->adapter = NULL;
    push(closed, adapter);
}

/* What may be closed for its memory; `except` is being replaced or opened. */
static bool is_idle(const entry *e, const entry *except) {
    return e != except && !e->pinned && users_of(e) == 0;
}

/* Makes room for what takes the place of `except`, whose own adapter is given back anyway. Looks
 * first whether there is enough: where not, nothing is closed. What is goes to `closed`. */
static avo_status make_room(adapter_registry *registry, const entry *except, const char *name,
                            uint64_t needed, avo_adapter **closed, avo_error *error) {
    uint64_t most = registry->memory_max, idle = 0;
    uint64_t used = __atomic_load_n(&registry->meter->bytes, __ATOMIC_RELAXED);
    if (most == 0)
        return AVO_OK;
    if (except != NULL && except->adapter != NULL && users_of(except) == 0)
        used -= cost_of(except->adapter);
    if (used + needed <= most)
        return AVO_OK;
    for (entry *e = registry->oldest; e != NULL && used - idle + needed > most; e = e->newer)
        if (is_idle(e, except))
            idle += cost_of(e->adapter);
    if (used - idle + needed > most)
        return status_fail(error, AVO_ERROR_FULL,
                           "adapter \"%s\" needs %llu bytes of %llu; %llu are used by adapters in "
                           "use, so none can be evicted",
                           name, (unsigned long long)needed, (unsigned long long)most,
                           (unsigned long long)(used - idle));
    for (entry *e = registry->oldest, *next; used + needed > most; e = next) {
        next = e->newer; /* only more of them become idle meanwhile, so there are enough */
        if (!is_idle(e, except))
            continue;
        used -= cost_of(e->adapter);
        detach(registry, e, closed);
    }
    return AVO_OK;
}

/* ---- Opening and closing ---- */

/* Memory for an adapter that is being opened: made and counted before it is taken. */
typedef struct reservation {
    adapter_registry *registry;
    const char *name; /* whose place it will have */
    uint64_t bytes;
} reservation;

static avo_status reserve_bytes(void *context, uint64_t bytes, avo_error *error) {
    reservation *own = context;
    adapter_registry *registry = own->registry;
    avo_adapter *closed = NULL;
    size_t at;
    (void)pthread_mutex_lock(&registry->mutex);
    const entry *replaced = find(registry, own->name, &at) ? registry->entries[at] : NULL;
    avo_status status = make_room(registry, replaced, own->name, bytes, &closed, error);
    if (status == AVO_OK) {
        own->bytes = bytes;
        __atomic_add_fetch(&registry->meter->bytes, bytes, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_unlock(&registry->mutex);
    release_all(closed);
    return status;
}

/* What was reserved becomes room for the adapter itself, under one hold of the mutex. */
static void unreserve(reservation *own) {
    __atomic_sub_fetch(&own->registry->meter->bytes, own->bytes, __ATOMIC_RELAXED);
    own->bytes = 0;
}

static avo_status open_files(reservation *own, const char *path, avo_adapter **out,
                             avo_error *error) {
    adapter_registry *registry = own->registry;
    adapter_options options = registry->options;
    options.admit = reserve_bytes;
    options.admit_context = own;
    if (registry->root == NULL)
        return adapter_open(&registry->base, path, &options, registry->allocator, out, error);
    return beneath_open(registry->root, path, &registry->base, &options, registry->allocator, out,
                        error);
}

avo_status registry_open(const adapter_base *base, const registry_options *options,
                         const avo_allocator *allocator, adapter_registry **out, avo_error *error) {
    *out = NULL;
    adapter_registry *registry = allocator_take_array(allocator, 1, sizeof(*registry));
    if (registry == NULL)
        return status_no_memory(error, "a registry", sizeof(*registry));
    registry->allocator = allocator;
    registry->base = *base;
    registry->options = options->adapter;
    registry->memory_max = options->memory_max;
    registry->meter = allocator_take_array(allocator, 1, sizeof(*registry->meter));
    if (registry->meter == NULL) {
        allocator_give(allocator, registry, sizeof(*registry));
        return status_no_memory(error, "a registry", sizeof(*registry->meter));
    }
    *registry->meter = (registry_meter){.allocator = allocator, .references = 1};
    if (options->root != NULL) {
        if (file_kind_of(options->root) != FILE_FOLDER) {
            meter_release(registry->meter);
            allocator_give(allocator, registry, sizeof(*registry));
            return status_fail(error, AVO_ERROR_NOT_FOUND, "adapter root %s: no such folder",
                               options->root);
        }
        registry->root = copy_text(allocator, options->root, &registry->root_bytes);
        if (registry->root == NULL) {
            meter_release(registry->meter);
            allocator_give(allocator, registry, sizeof(*registry));
            return status_no_memory(error, "a path", strlen(options->root));
        }
    }
    if (pthread_mutex_init(&registry->mutex, NULL) != 0 ||
        pthread_cond_init(&registry->opened, NULL) != 0) {
        meter_release(registry->meter);
        allocator_give(allocator, registry->root, registry->root_bytes);
        allocator_give(allocator, registry, sizeof(*registry));
        return status_no_memory(error, "a registry's mutex", 0);
    }
    *out = registry;
    return AVO_OK;
}

void registry_close(adapter_registry *registry) {
    if (registry == NULL)
        return;
    for (size_t i = 0; i < registry->count; i++) {
        adapter_release(registry->entries[i]->adapter);
        free_entry(registry, registry->entries[i]);
    }
    (void)pthread_mutex_destroy(&registry->mutex);
    (void)pthread_cond_destroy(&registry->opened);
    allocator_give(registry->allocator, registry->entries,
                   registry->capacity * sizeof(*registry->entries));
    allocator_give(registry->allocator, registry->root, registry->root_bytes);
    meter_release(registry->meter);
    allocator_give(registry->allocator, registry, sizeof(*registry));
}

/* ---- Loading ---- */

static avo_status reserve(adapter_registry *registry, avo_error *error) {
    if (registry->count < registry->capacity)
        return AVO_OK;
    if (registry->count >= REGISTRY_NAMES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %d adapters", REGISTRY_NAMES_MAX);
    size_t capacity = registry->capacity == 0 ? 16 : 2 * registry->capacity;
    entry **entries = allocator_take_array(registry->allocator, capacity, sizeof(*entries));
    if (entries == NULL)
        return status_no_memory(error, "adapter names", capacity * sizeof(*entries));
    if (registry->count > 0)
        memcpy(entries, registry->entries, registry->count * sizeof(*entries));
    allocator_give(registry->allocator, registry->entries,
                   registry->capacity * sizeof(*registry->entries));
    registry->entries = entries;
    registry->capacity = capacity;
    return AVO_OK;
}

/* Puts `fresh` in the place of what the name meant, which it returns and which may be NULL; there
 * is room for another name. */
static entry *put(adapter_registry *registry, entry *fresh) {
    size_t at;
    fresh->version = ++registry->versions;
    if (find(registry, fresh->name, &at)) {
        entry *before = registry->entries[at];
        registry->entries[at] = fresh;
        return before;
    }
    memmove(registry->entries + at + 1, registry->entries + at,
            (registry->count - at) * sizeof(*registry->entries));
    registry->entries[at] = fresh;
    registry->count++;
    return NULL;
}

/* An entry that somebody is opening is theirs until they are done. */
static void wait_for_opening(adapter_registry *registry, const char *name) {
    size_t at;
    while (find(registry, name, &at) && registry->entries[at]->opening)
        (void)pthread_cond_wait(&registry->opened, &registry->mutex);
}

/* Under the mutex: everything that can fail comes first. */
static avo_status load_locked(adapter_registry *registry, entry *fresh, avo_adapter *adapter,
                              reservation *own, entry **before, avo_adapter **closed,
                              avo_error *error) {
    wait_for_opening(registry, fresh->name);
    unreserve(own);
    size_t at;
    const entry *replaced = find(registry, fresh->name, &at) ? registry->entries[at] : NULL;
    if (replaced == NULL)
        AVO_TRY(reserve(registry, error));
    if (adapter != NULL) {
        AVO_TRY(make_room(registry, replaced, fresh->name, cost_of(adapter), closed, error));
        attach(registry, fresh, adapter);
    }
    *before = put(registry, fresh);
    if (*before != NULL)
        detach(registry, *before, closed);
    return AVO_OK;
}

avo_status registry_load(adapter_registry *registry, const char *name, const char *path,
                         bool pinned, bool lazy, avo_error *error) {
    entry *fresh = NULL, *before = NULL;
    avo_adapter *adapter = NULL, *closed = NULL;
    AVO_TRY(check_name(name, error));
    if (path == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "path must not be NULL");
    AVO_TRY(make_entry(registry, name, path, pinned, &fresh, error));
    reservation own = {.registry = registry, .name = name};
    avo_status status = lazy ? AVO_OK : open_files(&own, path, &adapter, error);
    (void)pthread_mutex_lock(&registry->mutex);
    AVO_THEN(status, load_locked(registry, fresh, adapter, &own, &before, &closed, error));
    unreserve(&own);
    (void)pthread_mutex_unlock(&registry->mutex);
    release_all(closed);
    free_entry(registry, status == AVO_OK ? before : fresh);
    if (status != AVO_OK)
        adapter_release(adapter);
    return status;
}

avo_status registry_unload(adapter_registry *registry, const char *name, avo_error *error) {
    AVO_TRY(check_name(name, error));
    (void)pthread_mutex_lock(&registry->mutex);
    wait_for_opening(registry, name);
    size_t at;
    entry *gone = NULL;
    avo_adapter *closed = NULL;
    if (find(registry, name, &at)) {
        gone = registry->entries[at];
        detach(registry, gone, &closed);
        registry->count--;
        memmove(registry->entries + at, registry->entries + at + 1,
                (registry->count - at) * sizeof(*registry->entries));
    }
    (void)pthread_mutex_unlock(&registry->mutex);
    release_all(closed);
    free_entry(registry, gone);
    return gone == NULL ? not_found(name, error) : AVO_OK;
}

/* ---- Taking ---- */

/* What could not be opened is not tried again before its files change: every request would pay for
 * it. The entry is the caller's, the mutex is not held. */
static avo_status open_unless_failed(reservation *own, entry *e, avo_adapter **out,
                                     avo_error *error) {
    adapter_registry *registry = own->registry;
    failure_files files;
    failure_look(registry->root, e->path, &files);
    avo_error why = {0};
    if (failure_holds(e->failure, &files, &why)) {
        if (error != NULL)
            *error = why;
        return why.status;
    }
    avo_status status = open_files(own, e->path, out, &why);
    why.status = status;
    failure_forget(e->failure, registry->allocator);
    e->failure = failure_remember(&files, &why, registry->allocator);
    if (status != AVO_OK && error != NULL)
        *error = why;
    return status;
}

/* Opens an entry's files without the mutex; it is held again when this returns. */
static avo_status open_entry(adapter_registry *registry, entry *e, avo_adapter **closed,
                             avo_error *error) {
    avo_adapter *adapter = NULL;
    reservation own = {.registry = registry, .name = e->name};
    e->opening = true;
    (void)pthread_mutex_unlock(&registry->mutex);
    avo_status status = open_unless_failed(&own, e, &adapter, error);
    (void)pthread_mutex_lock(&registry->mutex);
    e->opening = false;
    unreserve(&own);
    (void)pthread_cond_broadcast(&registry->opened);
    if (status != AVO_OK)
        return status;
    status = make_room(registry, e, e->name, cost_of(adapter), closed, error);
    if (status == AVO_OK)
        attach(registry, e, adapter);
    else
        push(closed, adapter);
    return status;
}

/* A reference of what the name means, opened where it must be. *looked: its files may have been
 * written over since. */
static avo_status take_locked(adapter_registry *registry, const char *name, avo_adapter **out,
                              bool *looked, avo_adapter **closed, avo_error *error) {
    size_t at;
    wait_for_opening(registry, name);
    if (!find(registry, name, &at))
        return not_found(name, error);
    entry *e = registry->entries[at];
    *looked = e->adapter == NULL;
    if (e->adapter == NULL)
        AVO_TRY(open_entry(registry, e, closed, error));
    used_unlink(registry, e);
    used_append(registry, e);
    *out = adapter_share(e->adapter);
    return AVO_OK;
}

/* Written over: what lies there now is another version. */
static void forget(adapter_registry *registry, const char *name, const avo_adapter *adapter,
                   avo_adapter **closed) {
    size_t at;
    if (!find(registry, name, &at) || registry->entries[at]->adapter != adapter)
        return; /* somebody else has seen it */
    detach(registry, registry->entries[at], closed);
    registry->entries[at]->version = ++registry->versions;
}

/* The mutex is not held. What `name` means shall be opened again, if it still is that. */
static void forget_written(adapter_registry *registry, const char *name, avo_adapter *adapter) {
    avo_adapter *closed = NULL;
    (void)pthread_mutex_lock(&registry->mutex);
    forget(registry, name, adapter, &closed);
    (void)pthread_mutex_unlock(&registry->mutex);
    release_all(closed);
    adapter_release(adapter);
}

avo_status registry_take_open(adapter_registry *registry, const char *name, avo_adapter **out,
                              avo_error *error) {
    size_t at;
    avo_adapter *adapter = NULL;
    *out = NULL;
    AVO_TRY(check_name(name, error));
    (void)pthread_mutex_lock(&registry->mutex);
    bool found = find(registry, name, &at);
    entry *e = found ? registry->entries[at] : NULL;
    if (found && e->adapter != NULL) {
        used_unlink(registry, e);
        used_append(registry, e);
        adapter = adapter_share(e->adapter);
    }
    (void)pthread_mutex_unlock(&registry->mutex);
    if (!found)
        return not_found(name, error);
    if (adapter != NULL && adapter_check_file(adapter, NULL) != AVO_OK)
        forget_written(registry, name, adapter);
    else
        *out = adapter;
    return AVO_OK;
}

/* The file system is asked without the mutex: a slow one holds up nobody else. */
avo_status registry_take(adapter_registry *registry, const char *name, avo_adapter **out,
                         avo_error *error) {
    *out = NULL;
    AVO_TRY(check_name(name, error));
    for (;;) {
        avo_adapter *adapter = NULL, *closed = NULL;
        bool looked = false;
        (void)pthread_mutex_lock(&registry->mutex);
        avo_status status = take_locked(registry, name, &adapter, &looked, &closed, error);
        (void)pthread_mutex_unlock(&registry->mutex);
        release_all(closed);
        if (status != AVO_OK || looked || adapter_check_file(adapter, NULL) == AVO_OK) {
            *out = adapter;
            return status;
        }
        forget_written(registry, name, adapter);
    }
}

void registry_list(adapter_registry *registry,
                   void (*see)(void *context, const registry_entry *entry), void *context) {
    (void)pthread_mutex_lock(&registry->mutex);
    for (size_t i = 0; i < registry->count; i++) {
        const entry *e = registry->entries[i];
        registry_entry shown = {.name = e->name,
                                .path = e->path,
                                .open = e->adapter != NULL,
                                .pinned = e->pinned,
                                .memory_bytes = e->adapter == NULL ? 0 : cost_of(e->adapter),
                                .users = users_of(e),
                                .version = e->version,
                                .digest = {e->digest[0], e->digest[1]}};
        see(context, &shown);
    }
    (void)pthread_mutex_unlock(&registry->mutex);
}
