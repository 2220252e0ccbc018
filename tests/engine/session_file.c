/* engine/: sessions saved and restored. A restored one goes on bit for bit in a new engine; every
 * file that is cut short, damaged or made with something else is refused by name. AVO_TEST_THREADS
 */
#include "support/support.h"

#include "base/hash.h"
#include "engine/session_file.h"
#include "support/adapters.h"
#include "support/models.h"
#include "support/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 96 };

static avo_engine_options options_for(const char *isa, const char *kv_type) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 2;
    options.context_max = CONTEXT;
    options.sessions_max = 3;
    options.rows_max = 24;
    options.device = test_device(isa);
    options.kv_type = kv_type;
    return options;
}

static avo_session *open_session(place *p) {
    avo_session *session;
    assert_ok_error(avo_session_open(p->engine, NULL, &session, &p->error), &p->error);
    return session;
}

static void extend(place *p, avo_session *session, uint32_t from, uint32_t count, float *logits) {
    int32_t tokens[CONTEXT];
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(((from + i) * 19 + 3) % (p->vocabulary - 2));
    for (uint32_t done = 0; done < count;) {
        uint32_t now = count - done < 10 ? count - done : 10;
        avo_batch_clear(p->batch);
        assert_ok_error(avo_batch_add(p->batch, session, tokens + done, now),
                        avo_batch_error(p->batch));
        assert_ok(avo_step(p->engine, p->batch));
        done += now;
    }
    memcpy(logits, avo_batch_logits(p->batch, session, 0), p->vocabulary * sizeof(float));
}

static const char *scratch_path(const char *name) {
    static char path[4200];
    snprintf(path, sizeof(path), "%s/%s", test_scratch_folder(), name);
    return path;
}

/* ---- Coming back ---- */

static void comes_back(const char *model, const char *isa, const char *kv_type, uint32_t length) {
    float before[PLACE_VOCABULARY_MAX], after[PLACE_VOCABULARY_MAX];
    place p;
    avo_engine_options options = options_for(isa, kv_type);
    options.context_max = length + 30; /* GPT-2 has learned few positions */
    place_open(&p, model, options);
    avo_session *session = open_session(&p);
    const char *path = scratch_path("back.session");
    extend(&p, session, 0, length, before);
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    extend(&p, session, length, 17, before);
    avo_session_close(session);
    place_close(&p);

    options.context_max -= 10; /* a smaller pool, other chunks */
    options.rows_max = 31;
    options.threads = 1;
    place_open(&p, model, options);
    session = open_session(&p);
    assert_ok_error(avo_session_restore(session, path, &p.error), &p.error);
    assert_int_equal(avo_session_length(session), length);
    extend(&p, session, length, 17, after);
    assert_memory_equal(before, after, p.vocabulary * sizeof(float));
    /* What comes from a file is nobody else's prefix. */
    avo_session *second = open_session(&p);
    size_t reused;
    assert_ok(
        avo_session_reuse(second, avo_session_tokens(session), length + 17, &reused, &p.error));
    assert_int_equal(reused, 0);
    avo_session_close(second);
    assert_refused(avo_session_restore(session, path, &p.error), AVO_ERROR_ARGUMENT, &p.error,
                   "empty");
    avo_session_close(session);
    place_close(&p);
    unlink(path);
}

static void restored_sessions_go_on(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "bf16", "int8", "fp8"};
    fixture_isas isas;
    fixture_isas_find(&isas);
    const char *best = isas.name[isas.count - 1];
    for (size_t t = 0; t < 5; t++) {
        comes_back("models/llama2.gguf", best, types[t], 45);
        comes_back("models/llama2.gguf", "ref", types[t], 32);
    }
    comes_back("models/gpt2", best, "f16", 1);
    comes_back("models/gemma3.gguf", best, "int8", 63);
}

static bool keep_nothing(void *context, const avo_event *event) {
    (void)context;
    (void)event;
    return true;
}

/* An answer's last token, drawn but not computed, survives too; and an empty session. */
static void owed_tokens_come_back(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_for(NULL, NULL));
    avo_session *session = open_session(&p), *other = open_session(&p);
    const char *path = scratch_path("owed.session");
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    assert_ok_error(avo_session_restore(other, path, &p.error), &p.error);
    assert_int_equal(avo_session_length(other), 0);
    int32_t prompt[] = {1, 2, 3};
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = prompt;
    request.token_count = 3;
    request.max_new_tokens = 4;
    request.ignore_end = true;
    request.on_event = keep_nothing;
    assert_ok(avo_generate(p.engine, session, &request, NULL, &p.error));
    assert_int_equal(avo_session_length(session), 7);
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    assert_ok_error(avo_session_restore(other, path, &p.error), &p.error);
    request.token_count = 0;
    assert_ok(avo_generate(p.engine, session, &request, NULL, &p.error));
    assert_ok(avo_generate(p.engine, other, &request, NULL, &p.error));
    assert_int_equal(avo_session_length(other), 11);
    assert_memory_equal(avo_session_tokens(session), avo_session_tokens(other),
                        11 * sizeof(int32_t));
    avo_session_close(session);
    avo_session_close(other);
    place_close(&p);
    unlink(path);
}

/* ---- Refusals ---- */

typedef struct image {
    uint8_t *data;
    size_t size;
} image;

static image read_image(const char *path) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    image i = {.size = (size_t)ftell(file)};
    rewind(file);
    i.data = malloc(i.size);
    assert_int_equal(fread(i.data, 1, i.size, file), i.size);
    fclose(file);
    return i;
}

static void make_sums(image i) {
    session_header header;
    memcpy(&header, i.data, sizeof(header));
    header.body_sum = hash_bytes(i.data + sizeof(header), i.size - sizeof(header));
    header.header_sum = hash_bytes(&header, offsetof(session_header, header_sum));
    memcpy(i.data, &header, sizeof(header));
}

/* Exactly as many bytes as given, so that a sanitizer sees the first one too far. */
static avo_status load(avo_session *session, image i, size_t size, avo_error *error) {
    uint8_t *exact = test_take_exact(size == 0 ? 1 : size, 64);
    memcpy(exact, i.data, size);
    avo_status status = session_file_load(session, (bytes_view){exact, size}, "file", error);
    free(exact);
    return status;
}

static void damaged_files_are_refused(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_for(NULL, "int8"));
    float logits[PLACE_VOCABULARY_MAX];
    avo_session *session = open_session(&p), *empty = open_session(&p);
    extend(&p, session, 0, 40, logits);
    const char *path = scratch_path("damaged.session");
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    image i = read_image(path);
    for (size_t size = 0; size < i.size; size = size < 700 ? size + 1 : size + 97) {
        assert_int_equal(load(empty, i, size, &p.error), AVO_ERROR_FORMAT);
        assert_non_null(strstr(p.error.text, "file: "));
    }
    for (size_t bit = 0; bit < 8 * sizeof(session_header); bit++) {
        i.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        avo_status status = load(empty, i, i.size, &p.error);
        if (status != AVO_ERROR_FORMAT && status != AVO_ERROR_UNSUPPORTED)
            fail_msg("bit %zu of the header: %s", bit, avo_status_text(status));
        i.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t at = sizeof(session_header); at < i.size; at += 131) {
        i.data[at] ^= 4;
        assert_refused(load(empty, i, i.size, &p.error), AVO_ERROR_FORMAT, &p.error, "sum");
        i.data[at] ^= 4;
    }
    assert_int_equal(avo_session_length(empty), 0);
    assert_ok_error(load(empty, i, i.size, &p.error), &p.error);
    avo_session_close(empty);
    avo_session_close(session);
    free(i.data);
    place_close(&p);
    unlink(path);
}

typedef struct lie {
    size_t offset;
    uint64_t value;
    size_t bytes;
    avo_status status;
    const char *part;
} lie;

/* Right sums over wrong numbers. */
static void lies_are_refused(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_for(NULL, "f16"));
    float logits[PLACE_VOCABULARY_MAX];
    avo_session *session = open_session(&p), *empty = open_session(&p);
    extend(&p, session, 0, 40, logits);
    const char *path = scratch_path("lies.session");
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    image i = read_image(path);
#define FIELD(name) offsetof(session_header, name)
    const lie lies[] = {
        {FIELD(version), 2, 4, AVO_ERROR_UNSUPPORTED, "session file version is 2"},
        {FIELD(header_bytes), 255, 4, AVO_ERROR_FORMAT, "header"},
        {FIELD(file_bytes), i.size + 1, 8, AVO_ERROR_FORMAT, "truncated"},
        {FIELD(model_digest), 77, 8, AVO_ERROR_ARGUMENT, "another model"},
        {FIELD(kv_type), 'x', 1, AVO_ERROR_ARGUMENT, "K and V have type x16"},
        {FIELD(arithmetic), 'x', 1, AVO_ERROR_ARGUMENT, "computed with x"},
        {FIELD(rope_context), 9, 4, AVO_ERROR_ARGUMENT, "rope_context 9"},
        {FIELD(page_tokens), 16, 4, AVO_ERROR_ARGUMENT, "KV pages have 16 tokens and"},
        {FIELD(page_bytes), UINT64_MAX, 8, AVO_ERROR_ARGUMENT, "KV pages have 32 tokens and"},
        {FIELD(tokens), UINT32_MAX, 4, AVO_ERROR_CONTEXT, "4294967295 tokens"},
        {FIELD(tokens), 39, 4, AVO_ERROR_FORMAT, "40 of 39"},
        {FIELD(tokens), 80, 4, AVO_ERROR_FORMAT, "80 tokens and 0 adapters"},
        {FIELD(computed), 41, 4, AVO_ERROR_FORMAT, "41 of 40"},
        {FIELD(computed), 0, 4, AVO_ERROR_FORMAT, "40 tokens"},
        {FIELD(adapters), 1, 4, AVO_ERROR_ARGUMENT, "with 1 adapters"},
        {FIELD(adapters), UINT32_MAX, 4, AVO_ERROR_FORMAT, "4294967295 adapters"},
        {sizeof(session_header), 1 << 20, 4, AVO_ERROR_FORMAT, "token 0: id is 1048576"},
        {sizeof(session_header) + 4, UINT32_MAX, 4, AVO_ERROR_FORMAT, "token 1: id is -1"},
    };
#undef FIELD
    uint8_t *kept = malloc(i.size);
    memcpy(kept, i.data, i.size);
    for (size_t n = 0; n < sizeof(lies) / sizeof(lies[0]); n++) {
        memcpy(i.data, kept, i.size);
        memcpy(i.data + lies[n].offset, &lies[n].value, lies[n].bytes);
        make_sums(i);
        assert_refused(load(empty, i, i.size, &p.error), lies[n].status, &p.error, lies[n].part);
        assert_int_equal(avo_session_length(empty), 0);
    }
    avo_session_close(empty);
    avo_session_close(session);
    free(kept);
    free(i.data);
    place_close(&p);
    unlink(path);
}

static void other_adapters_are_refused(void **state) {
    (void)state;
    place p;
    float logits[PLACE_VOCABULARY_MAX];
    const char *path = scratch_path("adapters.session");
    avo_engine_options options = options_for("ref", "f16");
    place_open(&p, "models/llama2.gguf", options);
    adapter_random_options random = {1, 8, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.05f};
    avo_adapter *adapters[2];
    adapters[0] = test_adapter_make(p.model, &random);
    random.seed = 2;
    adapters[1] = test_adapter_make(p.model, &random);
    avo_adapter_use use = {adapters[0], 0.5f};
    avo_session_options with = AVO_SESSION_OPTIONS_INIT;
    with.adapters = &use;
    with.adapter_count = 1;
    avo_session *session, *empty;
    assert_ok_error(avo_session_open(p.engine, &with, &session, &p.error), &p.error);
    extend(&p, session, 0, 40, logits);
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    empty = open_session(&p);
    assert_refused(avo_session_restore(empty, path, &p.error), AVO_ERROR_ARGUMENT, &p.error,
                   "saved with 1 adapters, this session has 0");
    avo_session_close(empty);
    use.weight = 0.25f;
    assert_ok(avo_session_open(p.engine, &with, &empty, &p.error));
    assert_refused(avo_session_restore(empty, path, &p.error), AVO_ERROR_ARGUMENT, &p.error,
                   "weight 0.5");
    avo_session_close(empty);
    use = (avo_adapter_use){adapters[1], 0.5f};
    assert_ok(avo_session_open(p.engine, &with, &empty, &p.error));
    assert_refused(avo_session_restore(empty, path, &p.error), AVO_ERROR_ARGUMENT, &p.error,
                   "another adapter");
    avo_session_close(empty);
    use.adapter = adapters[0];
    assert_ok(avo_session_open(p.engine, &with, &empty, &p.error));
    assert_ok_error(avo_session_restore(empty, path, &p.error), &p.error);
    float again[PLACE_VOCABULARY_MAX];
    extend(&p, session, 40, 5, logits);
    extend(&p, empty, 40, 5, again);
    assert_memory_equal(logits, again, p.vocabulary * sizeof(float));
    avo_session_close(empty);
    avo_session_close(session);
    adapter_release(adapters[0]);
    adapter_release(adapters[1]);
    place_close(&p);
    unlink(path);
}

/* Another model, KV type or arithmetic; too little room. */
static void other_origins_are_refused(void **state) {
    (void)state;
    place p;
    float logits[PLACE_VOCABULARY_MAX];
    const char *path = scratch_path("origin.session");
    fixture_isas isas; /* with "ref" alone there is no other arithmetic */
    fixture_isas_find(&isas);
    avo_engine_options options = options_for("ref", "f16");
    place_open(&p, "models/llama2.gguf", options);
    avo_session *session = open_session(&p);
    extend(&p, session, 0, 40, logits);
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    avo_session_close(session);
    place_close(&p);
    struct {
        const char *model, *isa, *kv_type;
        uint32_t context;
        avo_status status;
        const char *part;
    } cases[] = {
        {"models/llama3.gguf", "ref", "f16", CONTEXT, AVO_ERROR_ARGUMENT, "another model"},
        {"models/llama2.gguf", "ref", "bf16", CONTEXT, AVO_ERROR_ARGUMENT, "K and V have type f16"},
        {"models/llama2.gguf", "ref", "f16", 39, AVO_ERROR_CONTEXT, "40 tokens"},
        {"models/llama2.gguf", NULL, "f16", CONTEXT, AVO_ERROR_ARGUMENT, "arithmetic"}};
    for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
        options = options_for(cases[n].isa, cases[n].kv_type);
        options.context_max = cases[n].context;
        place_open(&p, cases[n].model, options);
        session = open_session(&p);
        if (cases[n].isa != NULL || isas.count > 1)
            assert_refused(avo_session_restore(session, path, &p.error), cases[n].status, &p.error,
                           cases[n].part);
        avo_session_close(session);
        place_close(&p);
    }
    unlink(path);
}

static void full_pools_and_missing_files(void **state) {
    (void)state;
    place p;
    float logits[PLACE_VOCABULARY_MAX];
    const char *path = scratch_path("room.session");
    avo_engine_options options = options_for(NULL, "f16");
    options.kv_tokens = 96;
    place_open(&p, "models/llama2.gguf", options);
    avo_session *session = open_session(&p), *other = open_session(&p);
    extend(&p, session, 0, 60, logits);
    assert_ok_error(avo_session_save(session, path, &p.error), &p.error);
    assert_refused(avo_session_restore(other, path, &p.error), AVO_ERROR_FULL, &p.error,
                   "needs 2 KV pages, 1 are free");
    assert_int_equal(avo_session_length(other), 0);
    unlink(path);
    assert_int_equal(avo_session_restore(other, path, &p.error), AVO_ERROR_NOT_FOUND);
    assert_int_equal(avo_session_save(session, "/nowhere/at/all", &p.error), AVO_ERROR_IO);
    avo_batch_clear(p.batch);
    int32_t token = 1;
    assert_ok(avo_batch_add(p.batch, session, &token, 1));
    assert_refused(avo_session_save(session, path, &p.error), AVO_ERROR_ARGUMENT, &p.error,
                   "is in a batch");
    avo_batch_clear(p.batch);
    avo_session_close(session);
    avo_session_close(other);
    place_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_sessions_go_on),      cmocka_unit_test(owed_tokens_come_back),
        cmocka_unit_test(damaged_files_are_refused),    cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(other_adapters_are_refused),   cmocka_unit_test(other_origins_are_refused),
        cmocka_unit_test(full_pools_and_missing_files),
    };
    return cmocka_run_group_tests_name("engine/session_file", tests, NULL, NULL);
}
