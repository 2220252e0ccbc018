/* The lock is flock(2): the kernel releases it with the process. */
#include "train/lock.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* A lock without a process id is as good: it is for people. */
static void write_process(int descriptor) {
    char text[32];
    int bytes = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(descriptor, 0) == 0)
        (void)!pwrite(descriptor, text, (size_t)bytes, 0);
}

avo_status train_lock_take(const char *folder, train_lock *lock, avo_error *error) {
    char path[4200], text[32] = "";
    AVO_TRY(file_make_folder(folder, error));
    AVO_TRY(file_join(path, sizeof(path), folder, "run.lock", error));
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        (void)!pread(descriptor, text, sizeof(text) - 1, 0);
        close(descriptor);
        return status_fail(error, AVO_ERROR_IO,
                           "%s: another run (process %ld) is writing into this folder; wait until "
                           "it has ended, or choose another output",
                           folder, strtol(text, NULL, 10));
    }
    write_process(descriptor);
    lock->descriptor = descriptor;
    return AVO_OK;
}

void train_lock_release(train_lock *lock) {
    if (lock->descriptor >= 0)
        close(lock->descriptor);
    lock->descriptor = -1;
}
