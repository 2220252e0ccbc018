/* Landlock: which files the calling thread, and what it starts, can still open.
 *
 * The server's sandbox and the child that runs a model's program use it. Each function is one
 * system call without memory or locks, so it may be called between fork and exec. They return −1
 * with errno; the callers know what failed and write the error.
 */
#ifndef AVO_BASE_LANDLOCK_H
#define AVO_BASE_LANDLOCK_H

#include <stdint.h>

/* Rights of a path, and of all that is below it if it is a folder. */
enum {
    LANDLOCK_EXECUTE = 1 << 0,
    LANDLOCK_WRITE_FILE = 1 << 1,
    LANDLOCK_READ_FILE = 1 << 2,
    LANDLOCK_READ_FOLDER = 1 << 3,
    LANDLOCK_REMOVE_FOLDER = 1 << 4,
    LANDLOCK_REMOVE_FILE = 1 << 5,
    LANDLOCK_MAKE_FOLDER = 1 << 7,
    LANDLOCK_MAKE_FILE = 1 << 8,
    LANDLOCK_REFER = 1 << 13,    /* ABI 2: linking and renaming between folders */
    LANDLOCK_TRUNCATE = 1 << 14, /* ABI 3 */
};
/* The rights that a file can have; the others are of folders. */
#define LANDLOCK_OF_FILES                                                                          \
    (LANDLOCK_EXECUTE | LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE | LANDLOCK_TRUNCATE)

/* The kernel's ABI, from 1 on; below 1: no Landlock, and errno says why. */
long landlock_abi(void);
/* All rights that this ABI knows. */
uint64_t landlock_rights(long abi);
/* New rules that forbid everything the ABI can forbid (from 4 on TCP connections, from 6 on signals
 * to others and abstract unix sockets): a descriptor, closed on exec. */
int landlock_rules(long abi);
/* Allows `rights`, which the ABI must know, on the file or folder that is open as `descriptor`. */
int landlock_allow(int rules, int descriptor, uint64_t rights);
/* Allows TCP connections to a port; from ABI 4 on. */
int landlock_allow_connect(int rules, uint16_t port);
/* The rules hold from here on. PR_SET_NO_NEW_PRIVS must be set. */
int landlock_confine(int rules);

#endif
