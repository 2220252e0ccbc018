/* Names, paths from lists and archives, patterns. */
#include "support/support.h"

#include "hub/hub_int.h"

#include <string.h>

static void test_names(void **state) {
    (void)state;
    static const char *const good[] = {"smollm2",  "gemma3-270m",   "Owner/Name_1.5-b", "a/b@main",
                                       "a/b@v1.0", "a/b@refs/pr/1", "0x/y+z@1.0_a"};
    static const char *const bad[] = {
        "",   "..",     "../x",        "a/..", "/a",   "a/",   "a//b",       "a/b/c",  ".hidden",
        "-x", "a/-b",   "a--b",        "a b",  "a\nb", "a/b@", "a/b@../c",   "a/b@/x", "a\\b",
        "@x", "a/b@c/", "caf\xc3\xa9", "a:b",  "a/.b", "a..b", "a/b@x/../.."};
    avo_error error;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_ok_error(hub_name_check(good[i], &error), &error);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (hub_name_check(bad[i], &error) == AVO_OK)
            fail_msg("accepted \"%s\"", bad[i]);
    char longest[HUB_NAME_MAX + 2];
    memset(longest, 'a', sizeof(longest));
    longest[HUB_NAME_MAX + 1] = '\0';
    assert_refused(hub_name_check(longest, &error), AVO_ERROR_ARGUMENT, &error, "200");
    longest[HUB_NAME_MAX] = '\0';
    assert_ok(hub_name_check(longest, &error));
}

static void test_folders(void **state) {
    (void)state;
    static const char *const names[] = {"smollm2", "Owner/Name", "a/b@refs/pr/1"};
    for (size_t i = 0; i < 3; i++) {
        char folder[512], name[512];
        hub_name_to_folder(names[i], folder, sizeof(folder));
        assert_null(strchr(folder, '/'));
        hub_folder_to_name(folder, name, sizeof(name));
        assert_string_equal(name, names[i]);
    }
    char small[8];
    hub_name_to_folder("a/b/c/d/e/f/g", small, sizeof(small));
    assert_true(strlen(small) < sizeof(small));
}

static void test_paths(void **state) {
    (void)state;
    static const char *const good[] = {
        "config.json", "a/b/c.gguf", "caf\xc3\xa9.bin", "..a", "a b.txt", ".gitattributes", "a..b"};
    static const char *const bad[] = {"",
                                      "/etc/passwd",
                                      "..",
                                      "../x",
                                      "a/../b",
                                      "a/..",
                                      "./a",
                                      "a//b",
                                      "a/",
                                      "a\\b",
                                      "a\nb",
                                      "a\x7f",
                                      "\xc2\x9b[2J",
                                      "\xff",
                                      "a/./b",
                                      "\xe2\x80\xaegnp.exe",
                                      "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q"};
    avo_error error;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_ok_error(hub_path_check(text_from(good[i]), &error), &error);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (hub_path_check(text_from(bad[i]), &error) == AVO_OK)
            fail_msg("accepted \"%s\"", bad[i]);
    assert_refused(hub_path_check((text_view){"a\0b", 3}, &error), AVO_ERROR_FORMAT, &error,
                   "forbidden");
    char longest[HUB_FILE_PATH_MAX + 1];
    memset(longest, 'a', sizeof(longest));
    assert_refused(hub_path_check((text_view){longest, sizeof(longest)}, &error), AVO_ERROR_LIMIT,
                   &error, "512");
    assert_refused(hub_path_check((text_view){longest, 201}, &error), AVO_ERROR_LIMIT, &error,
                   "200");
    assert_true(hub_path_reserved(TEXT_LITERAL("avocet-manifest.json")));
    assert_true(hub_path_reserved(TEXT_LITERAL("x/model.gguf.part")));
    assert_true(hub_path_reserved(TEXT_LITERAL(".pip/x")));
    assert_false(hub_path_reserved(TEXT_LITERAL("model.gguf")));
}

static void test_glob(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool matches;
    } cases[] = {
        {"*.gguf", "a/b/x.gguf", true},
        {"*.gguf", "x.ggufx", false},
        {"*", "", true},
        {"", "", true},
        {"", "a", false},
        {"?", "a", true},
        {"?", "", false},
        {"a/*.json", "a/b.json", true},
        {"a/*.json", "b/a/b.json", false},
        {"x.json", "deep/x.json", true},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[!a-c]x", "dx", true},
        {"[!a-c]x", "ax", false},
        {"[]]x", "]x", true},
        {"[a", "[a", true},
        {"[a", "a", false},
        {"*Q4_K_M*", "dir/m-Q4_K_M-00001-of-00002.gguf", true},
        {"*a*b*c", "xxaxxbxxc", true},
        {"*a*b*c", "xxaxxcxxb", false},
        {"**", "a/b", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (hub_glob_match(text_from(cases[i].pattern), text_from(cases[i].path)) !=
            cases[i].matches)
            fail_msg("\"%s\" against \"%s\"", cases[i].pattern, cases[i].path);
    /* The classic trap for backtracking: must end at once. */
    char text[512];
    memset(text, 'a', sizeof(text));
    assert_false(hub_glob_match(TEXT_LITERAL("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b"),
                                (text_view){text, sizeof(text)}));
}

static void test_distance(void **state) {
    (void)state;
    assert_int_equal(hub_name_distance("smollm2", "smollm2"), 0);
    assert_int_equal(hub_name_distance("smolm2", "smollm2"), 1);
    assert_int_equal(hub_name_distance("", "abc"), 3);
    char longest[300];
    memset(longest, 'x', sizeof(longest));
    longest[299] = '\0';
    assert_int_equal(hub_name_distance(longest, ""), 64);
}

static void test_model_file(void **state) {
    (void)state;
    hub_file one[] = {{.path = "LICENSE"}, {.path = "x.gguf"}};
    assert_string_equal(hub_choose_model_file(one, 2), "x.gguf");
    hub_file split[] = {{.path = "x-00002-of-00002.gguf"}, {.path = "x-00001-of-00002.gguf"}};
    assert_string_equal(hub_choose_model_file(split, 2), "x-00001-of-00002.gguf");
    hub_file two[] = {{.path = "x.gguf"}, {.path = "y.gguf"}};
    assert_null(hub_choose_model_file(two, 2));
    hub_file folder[] = {{.path = "model.safetensors"}, {.path = "config.json"}};
    assert_null(hub_choose_model_file(folder, 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),    cmocka_unit_test(test_folders),
        cmocka_unit_test(test_paths),    cmocka_unit_test(test_glob),
        cmocka_unit_test(test_distance), cmocka_unit_test(test_model_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
