/* Which back ends this machine can run, and the choice among them. The table begins as plain C and
 * is overwritten in order of preference; so one that lacks an operation has that of the one before.
 */
#include "device/cpu/backend.h"

#include "base/cpu.h"
#include "device/cpu/phases/fast.h"

#include <stdio.h>
#include <string.h>

typedef enum isa { ISA_REFERENCE, ISA_AVX2, ISA_AVX512, ISA_AMX, ISA_COUNT } isa;

static const char *const isa_names[ISA_COUNT] = {"ref", "avx2", "avx512", "amx"};

static bool isa_runs(isa which, const cpu_features *features) {
    switch (which) {
    case ISA_AVX2:
        return features->avx2;
    case ISA_AVX512:
        return features->avx2 && features->avx512 && features->avx512_vnni;
    case ISA_AMX:
        return isa_runs(ISA_AVX512, features) && features->amx_int8;
    default:
        return true;
    }
}

static isa best_isa(const cpu_features *features) {
    isa best = ISA_REFERENCE;
    for (isa which = ISA_REFERENCE; which < ISA_COUNT; which++)
        best = isa_runs(which, features) ? which : best;
    return best;
}

void backend_names(char *text, size_t capacity) {
    cpu_features features = cpu_features_detect();
    size_t used = 0;
    text[0] = '\0';
    for (isa which = ISA_REFERENCE; which < ISA_COUNT; which++) {
        if (!isa_runs(which, &features))
            continue;
        int wrote =
            snprintf(text + used, capacity - used, "%s%s", used > 0 ? " " : "", isa_names[which]);
        if (wrote < 0 || (size_t)wrote >= capacity - used)
            return;
        used += (size_t)wrote;
    }
}

static avo_status isa_find(const char *name, const cpu_features *features, isa *found,
                           avo_error *error) {
    char names[64];
    backend_names(names, sizeof(names));
    for (isa which = ISA_REFERENCE; which < ISA_COUNT; which++) {
        if (strcmp(name, isa_names[which]) != 0)
            continue;
        *found = which;
        if (isa_runs(which, features))
            return AVO_OK;
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "instruction set '%s': this machine has: %s", name, names);
    }
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "instruction set '%s' is unknown; this machine has: %s", name, names);
}

avo_status backend_choose(const char *name, backend_choice *out, avo_error *error) {
    cpu_features features = cpu_features_detect();
    isa which = best_isa(&features);
    if (name != NULL && name[0] != '\0')
        AVO_TRY(isa_find(name, &features, &which, error));
    memset(out, 0, sizeof(*out));
    if (which == ISA_REFERENCE) {
        out->backend = *backend_reference();
        return AVO_OK;
    }
    ops_plain(&out->ops);
    ops_avx2(&out->ops);
    if (which >= ISA_AVX512)
        ops_avx512(&out->ops);
    if (which >= ISA_AMX)
        ops_amx(&out->ops);
    fast_backend(&out->ops, &out->backend);
    return AVO_OK;
}
