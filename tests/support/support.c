/* Test helpers. */
#include "support/support.h"

#include "base/file.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

const char *test_data_folder(void) {
    const char *set = getenv("AVOCET_TEST_DATA");
    if (set != NULL)
        return file_kind_of(set) == FILE_FOLDER ? set : NULL;
    static const char beside[] = AVO_SOURCE_FOLDER "/../shared/data";
    return file_kind_of(beside) == FILE_FOLDER ? beside : NULL;
}

const char *test_data_path(const char *relative) {
    static char path[4096];
    const char *folder = test_data_folder();
    if (folder == NULL)
        return NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, relative);
    return file_kind_of(path) == FILE_MISSING ? NULL : path;
}

const char *test_fixture_path(const char *relative) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/tests/fixtures/%s", AVO_SOURCE_FOLDER, relative);
    return path;
}

const char *test_scratch_folder(void) {
    static char path[4096];
    if (path[0] == '\0') {
        mkdir(AVO_BINARY_FOLDER "/scratch", 0755);
        snprintf(path, sizeof(path), "%s/scratch/%ld", AVO_BINARY_FOLDER, (long)getpid());
        mkdir(path, 0755);
    }
    return path;
}

int test_entries(const char *folder) {
    DIR *opened = opendir(folder);
    assert_non_null(opened);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(opened)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(opened);
    return count;
}

void test_disk_limit(size_t bytes) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes == 0 ? limit.rlim_max : (rlim_t)bytes;
    signal(SIGXFSZ, bytes == 0 ? SIG_DFL : SIG_IGN); /* writing then fails */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

void *test_take_exact(size_t size, size_t alignment) {
    void *memory = NULL;
    return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static void *counting_allocate(void *context, size_t size, size_t alignment) {
    test_allocator *counter = context;
    counter->allocations++;
    if (counter->allocations == counter->fail_at)
        return NULL;
    void *memory = test_take_exact(size, alignment);
    if (memory == NULL)
        return NULL;
    memset(memory, 0xA5, size); /* nobody may rely on zeros */
    counter->live++;
    counter->live_bytes += size;
    if (counter->live_bytes > counter->peak_bytes)
        counter->peak_bytes = counter->live_bytes;
    return memory;
}

static void counting_release(void *context, void *memory, size_t size) {
    test_allocator *counter = context;
    counter->live--;
    counter->live_bytes -= size;
    free(memory);
}

void test_allocator_init(test_allocator *allocator) {
    *allocator = (test_allocator){.allocator = {allocator, counting_allocate, counting_release}};
}
