/* Which name means which adapter now. Names are loaded, unloaded and replaced while requests run:
 * whoever took an adapter keeps that version until it gives it back, and a new request gets the
 * new one; the version's digest is part of every prefix-cache key, so nothing stale is reused.
 *
 * Thousands may be known; only so many are open. An adapter is opened when somebody first asks for
 * it; when memory runs short, the least recently used one that is neither pinned nor in use is
 * closed (its name stays known). All functions may be called from any thread.
 */
#ifndef AVO_ADAPTERS_REGISTRY_H
#define AVO_ADAPTERS_REGISTRY_H

#include "adapters/adapters.h"

#define REGISTRY_NAMES_MAX 65536

typedef struct adapter_registry adapter_registry;

typedef struct registry_options {
    const char *root; /* paths are looked up here and may not leave it, absolute ones must lie below
                         it; NULL: any path */
    uint64_t memory_max; /* of all that it has opened and that are not closed yet: versions that
                            were replaced or unloaded count while somebody uses them; 0: no limit */
    adapter_options adapter;
} registry_options;

AVO_MUST_USE avo_status registry_open(const adapter_base *base, const registry_options *options,
                                      const avo_allocator *allocator, adapter_registry **out,
                                      avo_error *error);
void registry_close(adapter_registry *registry);

/* Makes a name known, or replaces what it means. `lazy`: the files are opened when first used;
 * otherwise now, and a failure leaves everything as it was. A name has letters, digits and "-_.:/"
 * but no "..", and does not begin with "/" or ".". */
AVO_MUST_USE avo_status registry_load(adapter_registry *registry, const char *name,
                                      const char *path, bool pinned, bool lazy, avo_error *error);
AVO_MUST_USE avo_status registry_unload(adapter_registry *registry, const char *name,
                                        avo_error *error);
/* A reference of the version that the name means now; AVO_ERROR_NOT_FOUND, or why it cannot be
 * opened. */
AVO_MUST_USE avo_status registry_take(adapter_registry *registry, const char *name,
                                      avo_adapter **out, avo_error *error);
/* The same, never waiting for files that must be opened first: *out is NULL then. */
AVO_MUST_USE avo_status registry_take_open(adapter_registry *registry, const char *name,
                                           avo_adapter **out, avo_error *error);

typedef struct registry_entry {
    const char *name, *path;
    bool open, pinned;
    uint64_t memory_bytes;
    uint32_t users;   /* references besides the registry's own */
    uint64_t version; /* counts loads of any name: a new one for every load */
    uint64_t digest[2];
} registry_entry;
/* In order of names; what the entry points at lives for the call. */
void registry_list(adapter_registry *registry,
                   void (*see)(void *context, const registry_entry *entry), void *context);

#endif
