/* The instruction sets that this machine can run, as back ends. The table of operations begins as
 * plain C and each set overwrites what it is faster at; so one that lacks an operation has that of
 * the set before it. */
#include "device/cpu/backend.h"

#include "base/cpu.h"
#include "device/cpu/phases/fast.h"

#include <assert.h>
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

static isa isa_named(const char *name) {
    isa which = ISA_REFERENCE;
    while (which < ISA_COUNT && strcmp(name, isa_names[which]) != 0)
        which++;
    return which;
}

const char *backend_lacks(const char *name) {
    static const char *const needs[ISA_COUNT] = {"", "AVX2", "AVX-512 with VNNI", "AMX-INT8"};
    cpu_features features = cpu_features_detect();
    isa which = isa_named(name);
    assert(which < ISA_COUNT);
    return isa_runs(which, &features) ? NULL : needs[which];
}

avo_status backend_choose(const char *name, backend_choice *out, avo_error *error) {
    cpu_features features = cpu_features_detect();
    isa which = name == NULL || name[0] == '\0' ? best_isa(&features) : isa_named(name);
    if (which == ISA_COUNT)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "unknown instruction set '%.40s'; known: ref, avx2, avx512, amx", name);
    if (!isa_runs(which, &features))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "instruction set '%s' is not available on this machine", name);
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
