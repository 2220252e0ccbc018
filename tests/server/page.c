/* The page inside the binary: every file of web/ is there, byte for byte, with the type, tag and
 * headers it must have; nothing else is. */
#include "support/support.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "server/page/page.h"

static void test_every_file_is_there(void **state) {
    (void)state;
    DIR *folder = opendir(AVO_SOURCE_FOLDER "/web");
    assert_non_null(folder);
    size_t seen = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        char name[600], path[300];
        snprintf(name, sizeof name, "%s/web/%s", AVO_SOURCE_FOLDER, entry->d_name);
        bool index = strcmp(entry->d_name, "index.html") == 0;
        snprintf(path, sizeof path, "/%s", index ? "" : entry->d_name);
        const page_file *file = page_find(path);
        assert_non_null(file);

        FILE *source = fopen(name, "rb");
        assert_non_null(source);
        static char bytes[1 << 20];
        size_t size = fread(bytes, 1, sizeof bytes, source);
        fclose(source);
        assert_int_equal(size, file->bytes.size);
        assert_memory_equal(bytes, file->bytes.data, size);
        seen++;
    }
    closedir(folder);
    assert_int_equal(seen, page_file_count);
}

static void test_types_and_tags(void **state) {
    (void)state;
    assert_string_equal(page_find("/")->content_type, "text/html; charset=utf-8");
    assert_string_equal(page_find("/theme.js")->content_type, "text/javascript; charset=utf-8");
    assert_string_equal(page_find("/avocet.svg")->content_type, "image/svg+xml");
    for (size_t i = 0; i < page_file_count; i++) {
        const page_file *file = &page_files[i];
        assert_int_equal(strlen(file->etag), 34);
        assert_int_equal(file->etag[0], '"');
        assert_int_equal(file->etag[33], '"');
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(file->etag, page_files[j].etag);
            assert_string_not_equal(file->path, page_files[j].path);
        }
    }
}

static void test_nothing_else_is_found(void **state) {
    (void)state;
    static const char *const absent[] = {"",          "//",          "/index.html", "/../LICENSE",
                                         "/app.js/",  "/APP.JS",     "index.html",  "/.git",
                                         "/avocet.s", "/theme.js%00"};
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        assert_null(page_find(absent[i]));
    }
}

static void test_unchanged(void **state) {
    (void)state;
    const page_file *file = page_find("/"), *other = page_find("/theme.js");
    char list[200];
    snprintf(list, sizeof list, "W/%s, %s", other->etag, file->etag);
    assert_true(page_unchanged(file, file->etag));
    assert_true(page_unchanged(file, "*"));
    assert_true(page_unchanged(file, list));
    assert_false(page_unchanged(file, NULL));
    assert_false(page_unchanged(file, ""));
    assert_false(page_unchanged(file, other->etag));
    assert_false(page_unchanged(file, "\"0123\""));
}

/* The policy lets nothing run that the server did not send as a file of its own. */
static void test_headers(void **state) {
    (void)state;
    const char *policy = NULL;
    for (size_t i = 0; i < PAGE_HEADERS; i++) {
        assert_non_null(page_headers[i].name);
        assert_null(strpbrk(page_headers[i].value, "\r\n"));
        if (strcmp(page_headers[i].name, "Content-Security-Policy") == 0) {
            policy = page_headers[i].value;
        }
    }
    assert_non_null(policy);
    assert_non_null(strstr(policy, "default-src 'none'"));
    assert_non_null(strstr(policy, "script-src 'self';"));
    assert_null(strstr(policy, "unsafe"));
    assert_null(strstr(policy, "http"));
    assert_null(strchr(policy, '*'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_file_is_there),
        cmocka_unit_test(test_types_and_tags),
        cmocka_unit_test(test_nothing_else_is_found),
        cmocka_unit_test(test_unchanged),
        cmocka_unit_test(test_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
