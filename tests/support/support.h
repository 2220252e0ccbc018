/* What several tests need. Include this instead of cmocka.h. */
#ifndef AVO_TESTS_SUPPORT_H
#define AVO_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"

/* Seconds that no wait takes unless something hangs, on a machine that is busy with other work. */
#define PATIENCE 300.0

/* Fails the test with the error's text. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        avo_status assert_ok_status_ = (call);                                                     \
        if (assert_ok_status_ != AVO_OK)                                                           \
            fail_msg("%s: %s", #call, avo_status_text(assert_ok_status_));                         \
    } while (0)
#define assert_ok_error(call, error)                                                               \
    do {                                                                                           \
        avo_status assert_ok_status_ = (call);                                                     \
        if (assert_ok_status_ != AVO_OK)                                                           \
            fail_msg("%s: %s: %s", #call, avo_status_text(assert_ok_status_), (error)->text);      \
    } while (0)
/* The call must fail with this status and a text that contains `part`. */
#define assert_refused(call, wanted, error, part)                                                  \
    do {                                                                                           \
        avo_status assert_refused_status_ = (call);                                                \
        assert_int_equal(assert_refused_status_, wanted);                                          \
        if (strstr((error)->text, part) == NULL)                                                   \
            fail_msg("expected \"%s\" in: %s", part, (error)->text);                               \
    } while (0)

/* The folder of shared test data (AVOCET_TEST_DATA, or ../shared/data beside the checkout), or NULL
 * where it is absent: the test then calls skip_without. */
const char *test_data_folder(void);
/* The path of a file in it, in a static buffer; NULL where it is absent. */
const char *test_data_path(const char *relative);
/* Prints why and skips the test, visibly. */
#define skip_without(path, what)                                                                   \
    do {                                                                                           \
        if ((path) == NULL) {                                                                      \
            print_message("SKIPPED: %s is not here\n", what);                                      \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* The path of a committed fixture, tests/fixtures/…, in a static buffer. */
const char *test_fixture_path(const char *relative);
/* A fresh folder for this process, removed by nobody: below the build folder. */
const char *test_scratch_folder(void);
/* How many entries a folder has, hidden ones included. */
int test_entries(const char *folder);
/* From here on no file of this process grows past `bytes`, as on a full disk; 0: no limit again.
 * Lift it before asserting anything: the test's own output may be a file. */
void test_disk_limit(size_t bytes);

/* An allocator that counts, and fails the `fail_at`-th allocation (1-based; 0: never). */
typedef struct test_allocator {
    avo_allocator allocator;
    size_t allocations; /* so far */
    size_t live;        /* not yet released */
    size_t live_bytes;
    size_t peak_bytes;
    size_t fail_at;
} test_allocator;
void test_allocator_init(test_allocator *allocator);

/* For free(); no byte more than asked for, so that a sanitizer sees the first one too far. */
void *test_take_exact(size_t size, size_t alignment);

#endif
