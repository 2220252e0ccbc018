/* A stamp has the file's identity, size and times; two writes within one tick of the kernel's clock
 * (up to 10 ms) may have the same times, so files that were changed just now are not remembered. */
#include "adapters/failure.h"

#include "adapters/adapters_int.h"

#include <string.h>
#include <time.h>

#define YOUNG_NS 20000000

struct open_failure {
    failure_files files;
    avo_error why;
};

void failure_look(const char *root, const char *path, failure_files *files) {
    static const char *const inside[] = {ADAPTER_CONFIG_NAME, ADAPTER_WEIGHTS_NAME,
                                         ADAPTER_PICKLE_NAME};
    char whole[4096], file[4096];
    *files = (failure_files){0};
    if (root != NULL && path[0] != '/') {
        if (file_join(whole, sizeof(whole), root, path, NULL) != AVO_OK)
            return;
        path = whole;
    }
    (void)file_stamp_read(path, &files->stamp[0]);
    for (int i = 0; i < 3; i++)
        if (file_join(file, sizeof(file), path, inside[i], NULL) == AVO_OK)
            (void)file_stamp_read(file, &files->stamp[i + 1]);
}

/* Also of files whose times lie in the future. */
static bool is_young(const failure_files *files) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < 4; i++) {
        const file_stamp *stamp = &files->stamp[i];
        int64_t seconds = now.tv_sec - stamp->changed_seconds;
        if (seconds < 0 ||
            (seconds <= 1 &&
             seconds * 1000000000 + now.tv_nsec - stamp->changed_nanoseconds < YOUNG_NS))
            return true;
    }
    return false;
}

open_failure *failure_remember(const failure_files *files, const avo_error *why,
                               const avo_allocator *allocator) {
    bool in_files = why->status == AVO_ERROR_FORMAT || why->status == AVO_ERROR_LIMIT ||
                    why->status == AVO_ERROR_UNSUPPORTED || why->status == AVO_ERROR_NOT_FOUND ||
                    why->status == AVO_ERROR_ARGUMENT;
    if (!in_files || is_young(files))
        return NULL;
    open_failure *failure = allocator_take(allocator, sizeof(*failure));
    if (failure != NULL)
        *failure = (open_failure){.files = *files, .why = *why};
    return failure;
}

bool failure_holds(const open_failure *failure, const failure_files *files, avo_error *why) {
    if (failure == NULL || memcmp(&failure->files, files, sizeof(*files)) != 0)
        return false;
    *why = failure->why;
    return true;
}

void failure_forget(open_failure *failure, const avo_allocator *allocator) {
    allocator_give(allocator, failure, sizeof(*failure));
}
