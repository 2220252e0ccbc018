/* base/region: sizes, where memory comes from, what huge pages and locks say of themselves. */
#include "support/support.h"

#include "base/region.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void sizes_are_whole_pages(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        bool huge;
        size_t rounded;
    } cases[] = {
        {1, true, 4096},
        {4096, true, 4096},
        {REGION_HUGE_BYTES - 1, true, REGION_HUGE_BYTES},
        {REGION_HUGE_BYTES + 1, true, 2 * REGION_HUGE_BYTES},
        {REGION_HUGE_BYTES + 1, false, REGION_HUGE_BYTES + 4096},
    };
    size_t rounded;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(region_round(cases[i].bytes, cases[i].huge, &rounded));
        assert_int_equal(rounded, cases[i].rounded);
    }
    assert_false(region_round(SIZE_MAX - 5, true, &rounded));
    avo_error error = {0};
    region region;
    region_options options = {.huge = true};
    assert_refused(region_open(NULL, SIZE_MAX - 5, &options, "a test", &region, &error),
                   AVO_ERROR_MEMORY, &error, "a test");
    assert_refused(region_open(NULL, (size_t)1 << 60, &options, "a test", &region, &error),
                   AVO_ERROR_MEMORY, &error, "1152921504606846976 bytes");
    assert_null(region.data);
    region_close(&region);
}

static void memory_is_cleared_aligned_and_writable(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 5000, REGION_HUGE_BYTES, 3 * REGION_HUGE_BYTES + 17};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int huge = 0; huge <= 1; huge++) {
            region region;
            region_options options = {.huge = huge != 0, .interleave = 3};
            assert_ok(region_open(NULL, sizes[i], &options, "a test", &region, NULL));
            assert_true(region.bytes >= sizes[i]);
            assert_int_equal((uintptr_t)region.data % REGION_PAGE_BYTES, 0);
            if (region.bytes % REGION_HUGE_BYTES == 0)
                assert_int_equal((uintptr_t)region.data % REGION_HUGE_BYTES, 0);
            for (size_t at = 0; at < region.bytes; at += 997)
                assert_int_equal(region.data[at], 0);
            memset(region.data, 1, region.bytes);
            uint64_t in_huge = region_huge_bytes(region.data, region.bytes);
            assert_true(in_huge <= region.bytes);
            if (!region.huge)
                assert_int_equal(in_huge, 0);
            assert_false(region.locked);
            region_close(&region);
            assert_null(region.data);
            region_close(&region);
        }
}

static void a_callers_allocator_is_asked(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    region region;
    region_options options = {.huge = true};
    avo_error error = {0};
    assert_ok(
        region_open(&counter.allocator, REGION_HUGE_BYTES, &options, "a test", &region, &error));
    assert_int_equal(counter.live_bytes, REGION_HUGE_BYTES);
    assert_int_equal((uintptr_t)region.data % REGION_HUGE_BYTES, 0);
    region_close(&region);
    assert_int_equal(counter.live, 0);
    counter.fail_at = counter.allocations + 1;
    assert_refused(region_open(&counter.allocator, 77, &options, "a test", &region, &error),
                   AVO_ERROR_MEMORY, &error, "4096 bytes for a test");
}

/* In a child without rights and with a limit of 64 KiB: 0 when all went as it should. */
static int lock_beyond_the_limit(void) {
    struct rlimit limit = {65536, 65536};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (getuid() == 0 && setuid(65534) != 0))
        return 77;
    void *probe = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED || mlock(probe, 1 << 20) == 0)
        return 77; /* nobody is limited here: a sanitizer's mlock does nothing */
    avo_error error = {0};
    region region;
    region_options options = {.lock = true};
    if (region_open(NULL, 16384, &options, "a test", &region, &error) != AVO_OK || !region.locked)
        return 1;
    region_close(&region);
    if (region_open(NULL, 1 << 20, &options, "a test", &region, &error) != AVO_ERROR_MEMORY)
        return 2;
    if (region.data != NULL || strstr(error.text, "RLIMIT_MEMLOCK is 64 KiB") == NULL)
        return 3;
    return 0;
}

static void locking_beyond_the_limit_is_refused(void **state) {
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(lock_beyond_the_limit());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("SKIPPED: locking is not limited here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void put(const char *root, const char *text) {
    char path[4096];
    static const char *const folders[] = {"", "/sys", "/sys/kernel", "/sys/kernel/mm",
                                          "/sys/kernel/mm/transparent_hugepage"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", root, folders[i]);
        mkdir(path, 0755);
    }
    snprintf(path, sizeof(path), "%s/sys/kernel/mm/transparent_hugepage/enabled", root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void the_kernels_offer_is_read(void **state) {
    (void)state;
    char root[2048];
    snprintf(root, sizeof(root), "%s/huge", test_scratch_folder());
    assert_int_equal(huge_pages_under(root), HUGE_PAGES_NONE);
    put(root, "always [madvise] never\n");
    assert_int_equal(huge_pages_under(root), HUGE_PAGES_ASKED);
    put(root, "[always] madvise never\n");
    assert_int_equal(huge_pages_under(root), HUGE_PAGES_ALWAYS);
    put(root, "always madvise [never]\n");
    assert_int_equal(huge_pages_under(root), HUGE_PAGES_NONE);
    put(root, "");
    assert_int_equal(huge_pages_under(root), HUGE_PAGES_NONE);
    assert_string_equal(huge_pages_name(HUGE_PAGES_ASKED), "madvise");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_whole_pages),
        cmocka_unit_test(memory_is_cleared_aligned_and_writable),
        cmocka_unit_test(a_callers_allocator_is_asked),
        cmocka_unit_test(locking_beyond_the_limit_is_refused),
        cmocka_unit_test(the_kernels_offer_is_read),
    };
    return cmocka_run_group_tests_name("base/region", tests, NULL, NULL);
}
