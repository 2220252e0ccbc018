/* The adapters of tests/fixtures/adapters (made by tools/oracle/make_adapters.py) and what peft and
 * transformers compute with them. */
#ifndef AVO_TESTS_ADAPTER_FIXTURES_H
#define AVO_TESTS_ADAPTER_FIXTURES_H

#include "support/models.h"

#define ADAPTER_FIXTURES_MAX 64

typedef struct adapter_fixture {
    char name[64];
    char path[512];      /* the folder */
    char base[512];      /* the model's folder */
    char base_twin[512]; /* its GGUF; "" where there is none */
    char twin[512];      /* the adapter as GGUF; "" where there is none */
    int32_t ids[64];
    uint32_t positions;
    uint32_t kept; /* positions at the end that have logits */
    uint32_t vocabulary;
    const float *logits; /* [kept][vocabulary] */
    float range;
    file_map logits_file;
} adapter_fixture;

/* All names, sorted; the count. Fails the test when there are none. */
size_t adapter_fixtures(char names[ADAPTER_FIXTURES_MAX][64]);
void adapter_fixture_open(adapter_fixture *fixture, const char *name);
void adapter_fixture_close(adapter_fixture *fixture);

#endif
