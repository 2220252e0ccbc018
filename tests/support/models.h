/* The tiny models of tests/fixtures/models (made by tools/oracle/make_models.py) and what
 * transformers computes for them. */
#ifndef AVO_TESTS_MODELS_H
#define AVO_TESTS_MODELS_H

#include "avocet.h"
#include "base/file.h"

/* Every one of them; `twin`: NAME.gguf holds the same model as llama.cpp's converter writes it. */
typedef struct fixture_name {
    const char *name;
    bool twin;
} fixture_name;
#define FIXTURE_COUNT 30
#define FIXTURE_DENSE 22 /* the first of them; the others have experts */
extern const fixture_name fixture_names[FIXTURE_COUNT];
/* How many of them the device of AVO_TEST_DEVICE computes: only CPUs compute experts. */
size_t fixture_count(void);

typedef struct fixture {
    const char *name;
    const int32_t *ids; /* [positions] */
    uint32_t positions;
    const float *logits; /* [positions][vocabulary] */
    uint32_t vocabulary;
    float range; /* largest minus smallest logit */
    file_map ids_file, logits_file;
} fixture;

/* Fails the test when a file is not there or not what it should be. */
void fixture_open(fixture *fixture, const char *name);
void fixture_close(fixture *fixture);

/* The numbers after an .npy header: version 1, little-endian, C order, of the type in `descr`. */
const void *fixture_npy(file_map *map, const char *relative, const char *descr, size_t item_bytes,
                        uint32_t shape[2]);

/* The device that a test opens an engine with: `isa` itself (NULL: none in particular), or with
 * AVO_TEST_DEVICE=remote the remote test device in front of it, which begins work when it is waited
 * for (remote-delayed: on a thread, 50 µs later; split: for the model's last layer alone), or
 * another device that it names in the place of all but the reference. The text lives for ever. */
const char *test_device(const char *isa);
/* AVO_TEST_DEVICE is set: device memory is not the host's. */
bool test_device_is_remote(void);
/* Its steps are computed by threads of the host. */
bool test_device_has_threads(void);
/* The name that an engine then says it has. */
const char *test_device_name(const char *isa);

/* The instruction sets that this machine can run, "ref" first. */
typedef struct fixture_isas {
    char text[64];
    const char *name[8];
    size_t count;
} fixture_isas;
void fixture_isas_find(fixture_isas *isas);

/* A model with an engine that plans for exactly `context` positions, with K and V in f32. */
typedef struct fixture_engine {
    avo_model *model;
    avo_engine *engine;
} fixture_engine;
void fixture_engine_open(fixture_engine *opened, const char *path, const char *isa,
                         uint32_t context, uint32_t sessions, uint32_t threads);
void fixture_engine_close(fixture_engine *opened);

/* Logits of all `count` tokens in one step of a fresh session, into [count][vocabulary]. */
void fixture_compute(const fixture_engine *opened, const int32_t *ids, uint32_t count,
                     uint32_t vocabulary, float *logits);

#endif
