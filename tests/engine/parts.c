/* How a step's products are cut into parts, by rows, by panels and by workers, changes no bit: a
 * model with inner widths of many panels, of which no width is a multiple of anything, and prompts
 * of more rows than one block of them. The same under an adapter of 8 bits on every matrix, whose
 * products are cut with theirs. AVO_TEST_THREADS */
#include "support/support.h"

#include "pack/pack.h"
#include "support/adapters.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOCABULARY 500

/* Slow under sanitizers, and bits are checked without: there every type and instruction set sees a
 * part of the cuts, another one each time. Emulators are slow, too. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(AVO_TEST_EMULATED)
#define TOKENS     90
#define CUTS_EVERY 8
#else
#define TOKENS     300
#define CUTS_EVERY 1
#endif

/* In front of the device that is asked for, the remote one changes nothing of how steps are cut. */
static uint32_t cuts_every(void) {
    return test_device_is_remote() ? 8 : CUTS_EVERY;
}

/* Logits of all tokens, computed in steps of `chunk`. `rank` 0: no adapter. */
static void compute(const char *path, uint32_t rank, const char *isa, uint32_t threads,
                    uint32_t chunk, const int32_t *ids, float *logits) {
    avo_error error = {0};
    avo_session *session;
    avo_batch *batch;
    fixture_engine opened;
    fixture_engine_open(&opened, path, isa, TOKENS, 1, threads);
    adapter_random_options random = {1, rank, TEST_MATRICES_ALL, 0, QUANT_Q8C, 0.1f};
    avo_adapter_use use = {rank > 0 ? test_adapter_make(opened.model, &random) : NULL, 0.75f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = &use;
    options.adapter_count = rank > 0 ? 1 : 0;
    assert_ok_error(avo_session_open(opened.engine, &options, &session, &error), &error);
    assert_ok_error(avo_batch_open(opened.engine, &batch, &error), &error);
    for (uint32_t done = 0, count; done < TOKENS; done += count) {
        count = TOKENS - done < chunk ? TOKENS - done : chunk;
        avo_batch_clear(batch);
        if (avo_batch_add_scored(batch, session, ids + done, count, count) != AVO_OK ||
            avo_step(opened.engine, batch) != AVO_OK)
            fail_msg("step: %s", avo_batch_error(batch)->text);
        for (uint32_t i = 0; i < count; i++)
            memcpy(logits + (size_t)(done + i) * VOCABULARY, avo_batch_logits(batch, session, i),
                   VOCABULARY * sizeof(float));
    }
    avo_batch_close(batch);
    avo_session_close(session);
    adapter_release(use.adapter);
    fixture_engine_close(&opened);
}

static void check_type(const char *path, uint32_t rank, const fixture_isas *isas, size_t turn,
                       const int32_t *ids) {
    /* Threads and rows of a step. One row with more than four threads has phases of its own, and
     * attention is split among them where the timeline is long. */
    static const uint32_t cuts[][2] = {{1, TOKENS}, {2, TOKENS}, {3, TOKENS}, {5, TOKENS}, {2, 150},
                                       {3, 40},     {2, 16},     {5, 7},      {5, 1}};
    const size_t bytes = (size_t)TOKENS * VOCABULARY * sizeof(float);
    float *wanted = malloc(bytes);
    float *found = malloc(bytes);
    assert_true(wanted != NULL && found != NULL);
    assert_true(isas->count > 1);
    uint32_t every = cuts_every();
    bool all = every == 1;
    compute(path, rank, isas->name[1], all ? 1 : 2, all ? 1 : TOKENS, ids, wanted);
    for (size_t isa = 1; isa < isas->count; isa++)
        for (size_t i = (isa + turn) % every; i < sizeof(cuts) / sizeof(cuts[0]); i += every) {
            compute(path, rank, isas->name[isa], cuts[i][0], cuts[i][1], ids, found);
            if (memcmp(wanted, found, bytes) != 0)
                fail_msg(
                    "%s: rank %u, %u threads in steps of %u give other bits than rows one by one",
                    isas->name[isa], rank, cuts[i][0], cuts[i][1]);
        }
    free(found);
    free(wanted);
}

static void cuts_change_no_bit(void **state) {
    (void)state;
    static const pack_type types[] = {PACK_F32, PACK_Q8, PACK_Q4, PACK_Q4_1};
    fixture_isas isas;
    fixture_isas_find(&isas);
    if (isas.count < 2) {
        print_message("SKIPPED: no vector instructions here\n");
        skip();
    }
    char path[256];
    snprintf(path, sizeof(path), "%s/odd.avo", test_scratch_folder());
    int32_t ids[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++)
        ids[i] = (i * 37 + i * i) % VOCABULARY;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i += cuts_every() == 1 ? 1 : 2) {
        avo_error error = {0};
        pack_options options = {.type = types[i], .threads = 2};
        pack_report report;
        assert_ok_error(pack_random("odd", 7, path, &options, &report, &error), &error);
        check_type(path, 0, &isas, 2 * i, ids);
        /* B with short and with long rows */
        check_type(path, i % 2 == 0 ? 20 : 72, &isas, 2 * i + 1, ids);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
