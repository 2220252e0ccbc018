/* The instruction sets that this build has and this machine can run, as back ends. */
#include "device/cpu/isa.h"

#include "base/cpu.h"
#include "device/cpu/backend.h"
#include "device/cpu/phases/fast.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* AVO_KERNEL_LIST comes from CMakeLists.txt: X(name) of every folder that is compiled. */
static const instruction_set *const sets[] = {
#define X(set) &isa_##set,
    AVO_KERNEL_LIST
#undef X
        NULL};

static bool runs(const instruction_set *set, const cpu_features *features) {
    bool has;
    memcpy(&has, (const char *)features + set->feature, sizeof(has));
    return has;
}

static const instruction_set *usable_at(size_t at, const cpu_features *features) {
    assert(at < sizeof(sets) / sizeof(sets[0]));
    return sets[at] != NULL && runs(sets[at], features) ? sets[at] : NULL;
}

/* Each CPUID instruction in a virtual machine is a call to its host, of up to 20 µs: loops over the
 * sets ask once. */
const instruction_set *isa_at(size_t at) {
    cpu_features features = cpu_features_detect();
    return usable_at(at, &features);
}

static const instruction_set *set_named(const char *name) {
    size_t i = 0;
    while (sets[i] != NULL && strcmp(name, sets[i]->name) != 0)
        i++;
    return sets[i];
}

bool ops_of(const char *name, op_table *table) {
    const instruction_set *set;
    cpu_features features = cpu_features_detect();
    ops_plain(table);
    bool found = strcmp(name, table->name) == 0;
    for (size_t i = 0; !found && (set = usable_at(i, &features)) != NULL; i++) {
        set->ops(table);
        found = strcmp(name, set->name) == 0;
    }
    return found;
}

bool limits_of(const char *name, limit_table *table) {
    const instruction_set *set;
    cpu_features features = cpu_features_detect();
    limits_plain(table);
    if (strcmp(name, "ref") == 0)
        table->isa = "ref";
    bool found = strcmp(name, table->isa) == 0;
    for (size_t i = 0; !found && (set = usable_at(i, &features)) != NULL; i++) {
        set->limits(table);
        found = strcmp(name, set->name) == 0;
    }
    return found;
}

bool gemm_kernels_of(const char *name, gemm_kernels *kernels) {
    const instruction_set *set;
    cpu_features features = cpu_features_detect();
    bool best = name == NULL || name[0] == '\0';
    gemm_kernels_plain(kernels);
    bool found = !best && (strcmp(name, kernels->name) == 0 || strcmp(name, "ref") == 0);
    for (size_t i = 0; !found && (set = usable_at(i, &features)) != NULL; i++) {
        if (set->gemm != NULL)
            set->gemm(kernels);
        found = !best && strcmp(name, set->name) == 0;
    }
    return best || found;
}

const logit_loops *logit_loops_best(void) {
    const logit_loops *best = &logit_loops_plain;
    const instruction_set *set;
    cpu_features features = cpu_features_detect();
    for (size_t i = 0; (set = usable_at(i, &features)) != NULL; i++)
        best = set->logits != NULL ? set->logits : best;
    return best;
}

const gradient_loops *gradient_loops_best(void) {
    const gradient_loops *best = &gradient_loops_plain;
    const instruction_set *set;
    cpu_features features = cpu_features_detect();
    for (size_t i = 0; (set = usable_at(i, &features)) != NULL; i++)
        best = set->gradients != NULL ? set->gradients : best;
    return best;
}

/* ---- Back ends ---- */

const char *backend_lacks(const char *name) {
    const instruction_set *set = set_named(name);
    cpu_features features = cpu_features_detect();
    return set == NULL || runs(set, &features) ? NULL : set->needs;
}

static const char *best_name(void) {
    const char *best = "ref";
    const instruction_set *set;
    cpu_features features = cpu_features_detect();
    for (size_t i = 0; (set = usable_at(i, &features)) != NULL; i++)
        best = set->name;
    return best;
}

static avo_status unknown(const char *name, avo_error *error) {
    char known[64] = "ref";
    for (size_t i = 0, used = 3; sets[i] != NULL && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, ", %s", sets[i]->name);
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "unknown instruction set '%.40s'; this build has: %s", name, known);
}

avo_status backend_choose(const char *name, backend_choice *out, avo_error *error) {
    name = name == NULL || name[0] == '\0' ? best_name() : name;
    memset(out, 0, sizeof(*out));
    if (strcmp(name, "ref") == 0) {
        out->backend = *backend_reference();
        return AVO_OK;
    }
    if (set_named(name) == NULL)
        return unknown(name, error);
    if (!ops_of(name, &out->ops))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "instruction set '%s' is not available on this machine", name);
    fast_backend(&out->ops, &out->backend);
    return AVO_OK;
}
