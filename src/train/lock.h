/* One run at a time writes into an output folder: a run holds a lock on OUT/run.lock until it ends,
 * however it ends. The file stays; it has the process id of the last run, for the message. */
#ifndef AVO_TRAIN_LOCK_H
#define AVO_TRAIN_LOCK_H

#include "base/status.h"

typedef struct train_lock {
    int descriptor; /* −1: not held */
} train_lock;

/* Makes the folder if needed. Where the file system has no locks, every run gets one. */
AVO_MUST_USE avo_status train_lock_take(const char *folder, train_lock *lock, avo_error *error);
void train_lock_release(train_lock *lock);

#endif
