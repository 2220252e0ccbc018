/* What comes as text: manifests, file lists, headers; sums. */
#include "support/support.h"

#include "hub/http.h"
#include "hub/listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SUM "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

static avo_status parse_manifest(const char *text, hub_model *model, arena *arena,
                                 avo_error *error) {
    arena_init(arena, NULL, 1 << 20);
    avo_status status = hub_manifest_parse(arena, text_from(text), "here", model, error);
    return status;
}

static void write_manifest(const char *folder, const hub_model *model) {
    file_writer writer;
    avo_error error;
    assert_ok_error(hub_manifest_prepare(folder, model, &writer, &error), &error);
    assert_ok_error(file_writer_commit(&writer, &error), &error);
}

static void test_manifest(void **state) {
    (void)state;
    arena arena;
    hub_model model;
    avo_error error;
    assert_ok_error(
        parse_manifest("{\"format\":1,\"name\":\"a/b\",\"source\":\"s\\u001b[2J\",\"model\":\"x\","
                       "\"files\":[{\"path\":\"x\",\"bytes\":5,\"sha256\":\"" SUM "\"},"
                       "{\"path\":\"d/y\",\"bytes\":7}]}",
                       &model, &arena, &error),
        &error);
    assert_string_equal(model.name, "a/b");
    assert_string_equal(model.source, "s?[2J"); /* it will be printed */
    assert_string_equal(model.licence, "");
    assert_int_equal(model.file_count, 2);
    assert_int_equal(model.bytes, 12);
    assert_string_equal(model.files[0].sha256, SUM);
    assert_string_equal(model.files[1].sha256, "");
    arena_free(&arena);
}

#define ONE(fields) "{\"format\":1,\"name\":\"a\",\"files\":[{" fields "}]}"

static void test_hostile_manifests(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "here"},
        {"[]", "object"},
        {"{}", "format"},
        {"{\"format\":2}", "format"},
        {"{\"format\":1,\"files\":[]}", "name"},
        {"{\"format\":1,\"name\":\"../x\",\"files\":[]}", "is not a model name"},
        {"{\"format\":1,\"name\":\"a\"}", "files"},
        {"{\"format\":1,\"name\":\"a\",\"files\":{}}", "files"},
        {"{\"format\":1,\"name\":\"a\",\"files\":[]}", "0 entries"},
        {"{\"format\":1,\"name\":\"a\",\"files\":[5]}", "file path"},
        {"{\"format\":1,\"name\":\"a\",\"model\":\"../m\",\"files\":[]}", "leave"},
        {"{\"format\":1,\"name\":\"a\",\"source\":\"a\\u0000b\",\"files\":[]}", "zero"},
        {ONE("\"path\":\"../x\",\"bytes\":1"), "leave"},
        {ONE("\"path\":\"/x\",\"bytes\":1"), "absolute"},
        {ONE("\"path\":\"x\""), "bytes"},
        {ONE("\"path\":\"x\",\"bytes\":-1"), "bytes"},
        {ONE("\"path\":\"x\",\"bytes\":9223372036854775807"), "bytes"},
        {ONE("\"path\":\"x\",\"bytes\":1,\"sha256\":\"abc\""), "sha256"},
        {ONE("\"path\":\"x\",\"bytes\":1,\"sha256\":5"), "sha256"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        arena arena;
        hub_model model;
        avo_error error;
        avo_status status = parse_manifest(cases[i].text, &model, &arena, &error);
        if (status == AVO_OK || strstr(error.text, cases[i].part) == NULL)
            fail_msg("%s: expected \"%s\", got \"%s\"", cases[i].text, cases[i].part,
                     status == AVO_OK ? "success" : error.text);
        arena_free(&arena);
    }
}

static void test_manifest_written_is_read(void **state) {
    (void)state;
    hub_file files[] = {{.path = "a \"quoted\"", .bytes = 1, .sha256 = SUM},
                        {.path = "d/caf\xc3\xa9", .bytes = 1ull << 40}};
    hub_model model = {.name = "o/n",
                       .source = "o/n",
                       .revision = "r",
                       .licence = "mit",
                       .date = "2026-01-01T00:00:00Z",
                       .path = "d/caf\xc3\xa9",
                       .files = files,
                       .file_count = 2};
    avo_error error;
    const char *folder = test_scratch_folder();
    write_manifest(folder, &model);
    arena arena;
    hub_model read;
    arena_init(&arena, NULL, 1 << 20);
    assert_ok_error(hub_manifest_read(&arena, folder, &read, &error), &error);
    assert_string_equal(read.name, model.name);
    assert_string_equal(read.path, model.path);
    assert_string_equal(read.folder, folder);
    assert_int_equal(read.file_count, 2);
    assert_string_equal(read.files[0].path, files[0].path);
    assert_int_equal(read.files[1].bytes, files[1].bytes);
    arena_free(&arena);
}

/* Every allocation fails once: an error, no leak (ASan), no crash. */
static void test_no_memory(void **state) {
    (void)state;
    static const char text[] = ONE("\"path\":\"x\",\"bytes\":1,\"sha256\":\"" SUM "\"");
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        arena arena;
        hub_model model;
        avo_error error;
        arena_init(&arena, &allocator.allocator, 1 << 20);
        avo_status status = hub_manifest_parse(&arena, text_from(text), "x", &model, &error);
        arena_free(&arena);
        assert_int_equal(allocator.live, 0);
        if (allocator.allocations < fail_at) {
            assert_int_equal(status, AVO_OK);
            break;
        }
        assert_int_equal(status, AVO_ERROR_MEMORY);
    }
}

static void test_ranges(void **state) {
    (void)state;
    uint64_t begin, end, total;
    assert_true(http_parse_range("bytes 5-9/10", &begin, &end, &total));
    assert_int_equal(begin, 5);
    assert_int_equal(end, 9);
    assert_int_equal(total, 10);
    static const char *const bad[] = {"",
                                      "bytes 5-9",
                                      "bytes 5-9/*",
                                      "bytes 9-5/10",
                                      "bytes 5-10/10",
                                      "bytes -5-9/10",
                                      "bytes 5-9/10x",
                                      "bytes +5-9/10",
                                      "bytes 99999999999999999999999-99999999999999999999999/9",
                                      "bits 5-9/10"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (http_parse_range(bad[i], &begin, &end, &total))
            fail_msg("accepted \"%s\"", bad[i]);
}

static void test_links(void **state) {
    (void)state;
    assert_true(text_is(http_parse_next("<https://a/b?c=1>; rel=\"next\""), "https://a/b?c=1"));
    assert_true(text_is(http_parse_next("<x>; rel=\"first\", <y>; rel=\"next\""), "y"));
    assert_int_equal(http_parse_next("<x>; rel=\"last\"").size, 0);
    assert_int_equal(http_parse_next("<x").size, 0);
    assert_int_equal(http_parse_next("").size, 0);
    assert_int_equal(http_parse_next("<x>, <y>").size, 0);
}

static void test_origins(void **state) {
    (void)state;
    char origin[256];
    avo_error error;
    assert_ok(http_origin("HTTPS://Example.ORG/a/b?c", origin, sizeof(origin), &error));
    assert_string_equal(origin, "https://example.org:443");
    assert_ok(http_origin("http://127.0.0.1:8080", origin, sizeof(origin), &error));
    assert_string_equal(origin, "http://127.0.0.1:8080");
    static const char *const bad[] = {"",
                                      "example.org/x",
                                      "ftp://x/y",
                                      "file:///x",
                                      "https://u@x/y",
                                      "https://u:p@x/y",
                                      "https://",
                                      "https://a b/c",
                                      "https://a/\nb",
                                      "javascript:1",
                                      "https://a:99999999/"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (http_origin(bad[i], origin, sizeof(origin), &error) == AVO_OK)
            fail_msg("accepted \"%s\" as %s", bad[i], origin);
}

static void test_write_failures(void **state) {
    (void)state;
    avo_error error;
    assert_refused(hub_write_failed("x", ENOSPC, &error), AVO_ERROR_FULL, &error, "disk is full");
    assert_refused(hub_write_failed("x", EDQUOT, &error), AVO_ERROR_FULL, &error, "resumes");
    assert_refused(hub_write_failed("x", EACCES, &error), AVO_ERROR_IO, &error, "AVOCET_HOME");
    assert_refused(hub_write_failed("x", EIO, &error), AVO_ERROR_IO, &error, "cannot write");
    assert_refused(hub_check_room(test_scratch_folder(), UINT64_MAX, &error), AVO_ERROR_FULL,
                   &error, "are free");
    assert_ok(hub_check_room(test_scratch_folder(), 1, &error));
}

static void test_delays(void **state) {
    (void)state;
    hub_pull_options options = {.retry_delay_ms = 500};
    assert_int_equal(http_delay_ms(&options, 1, 0), 500);
    assert_int_equal(http_delay_ms(&options, 2, 0), 1000);
    assert_int_equal(http_delay_ms(&options, 40, 0), 8000);
    assert_int_equal(http_delay_ms(&options, 1, 30000), 30000);
}

static void test_digests(void **state) {
    (void)state;
    hub_digest digest;
    char sha256[65], git_sha1[41];
    avo_error error;
    assert_ok(hub_digest_open(&digest, 6, &error));
    assert_ok(hub_digest_add(&digest, "hel", 3, &error));
    assert_ok(hub_digest_add(&digest, "lo\n", 3, &error));
    assert_ok(hub_digest_end(&digest, sha256, git_sha1, &error));
    /* echo hello | sha256sum; echo hello | git hash-object --stdin */
    assert_string_equal(sha256, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    assert_string_equal(git_sha1, "ce013625030ba8dba906f756967f9e9ca394464a");
}

static void choose(const char *page, const char *pattern, const char *wanted) {
    arena arena;
    avo_error error;
    char note[256], found[512] = "";
    arena_init(&arena, NULL, 1 << 20);
    listing list = {.arena = &arena};
    assert_ok_error(listing_parse(&list, text_from(page), &error), &error);
    assert_ok_error(listing_finish(&list, &error), &error);
    assert_ok_error(
        listing_choose(&list, &pattern, pattern == NULL ? 0 : 1, note, sizeof(note), &error),
        &error);
    size_t at = 0;
    for (size_t i = 0; i < list.count; i++)
        if (list.files[i].chosen)
            at += (size_t)snprintf(found + at, sizeof(found) - at, "%.*s ",
                                   TEXT_ARGUMENT(list.files[i].path));
    assert_string_equal(found, wanted);
    arena_free(&arena);
}

#define FILE_ENTRY(path) "{\"type\":\"file\",\"path\":\"" path "\",\"size\":1}"

static void test_choices(void **state) {
    (void)state;
#define WEIGHTS "[" FILE_ENTRY("model.safetensors") "," FILE_ENTRY("consolidated.safetensors") ","
    choose(WEIGHTS FILE_ENTRY("config.json") "," FILE_ENTRY("x/y.json") "," FILE_ENTRY("a.bin") "]",
           NULL, "config.json model.safetensors ");
    choose("[" FILE_ENTRY("consolidated.safetensors") "]", NULL, "consolidated.safetensors ");
    choose("[" FILE_ENTRY("a-q4_k_m.gguf") "," FILE_ENTRY("mmproj-f16.gguf") "]", NULL,
           "a-q4_k_m.gguf ");
    choose("[" FILE_ENTRY("d/m-Q4_K_M-00001-of-00002.gguf") "," FILE_ENTRY(
               "d/m-Q4_K_M-00002-of-00002.gguf") "," FILE_ENTRY("m-Q2_K.gguf") "]",
           NULL, "d/m-Q4_K_M-00001-of-00002.gguf d/m-Q4_K_M-00002-of-00002.gguf ");
    choose("[" FILE_ENTRY("a.bin") "," FILE_ENTRY("b.bin") "]", "b.*", "b.bin ");
}

static void test_find(void **state) {
    (void)state;
    char path[HUB_PATH_MAX], home[HUB_PATH_MAX];
    avo_error error;
    snprintf(home, sizeof(home), "%s/home", test_scratch_folder());
    setenv("AVOCET_HOME", home, 1);
    assert_ok(hub_find("/dev/null", path, sizeof(path), &error));
    assert_string_equal(path, "/dev/null");
    assert_refused(hub_find("smollm2", path, sizeof(path), &error), AVO_ERROR_NOT_FOUND, &error,
                   "avocet pull smollm2");
    assert_refused(hub_find("smolm2", path, sizeof(path), &error), AVO_ERROR_NOT_FOUND, &error,
                   "did you mean smollm2");
    assert_refused(hub_find("some/model", path, sizeof(path), &error), AVO_ERROR_NOT_FOUND, &error,
                   "avocet pull some/model");
    char folder[HUB_PATH_MAX];
    assert_ok(hub_model_folder("some/model", folder, sizeof(folder), &error));
    assert_ok_error(hub_make_folder(folder, &error), &error);
    assert_refused(hub_find("some/model", path, sizeof(path), &error), AVO_ERROR_NOT_FOUND, &error,
                   "is incomplete because");
    hub_file files[] = {{.path = "a.gguf"}, {.path = "b.gguf"}};
    hub_model model = {.name = "some/model", .files = files, .file_count = 2};
    write_manifest(folder, &model);
    assert_refused(hub_find("some/model", path, sizeof(path), &error), AVO_ERROR_ARGUMENT, &error,
                   "some/model/b.gguf");
    assert_ok_error(hub_find("some/model/b.gguf", path, sizeof(path), &error), &error);
    assert_true(text_ends(text_from(path), TEXT_LITERAL("models/some--model/b.gguf")));
    assert_refused(hub_find("some/model/c.gguf", path, sizeof(path), &error), AVO_ERROR_NOT_FOUND,
                   &error, "no such");
    model.path = "a.gguf";
    model.file_count = 1;
    write_manifest(folder, &model);
    assert_ok_error(hub_find("some/model", path, sizeof(path), &error), &error);
    assert_true(text_ends(text_from(path), TEXT_LITERAL("some--model/a.gguf")));
    assert_refused(hub_find("some/model", path, 8, &error), AVO_ERROR_LIMIT, &error, "too long");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_hostile_manifests),
        cmocka_unit_test(test_manifest_written_is_read),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_write_failures),
        cmocka_unit_test(test_delays),
        cmocka_unit_test(test_digests),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
