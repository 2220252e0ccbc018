/* systemd's protocols: environment variables in, datagrams out. */
#include "server/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_SOCKET 3 /* by agreement */

static bool read_number(const char *name, uint64_t *number) {
    const char *text = getenv(name);
    char *end = NULL;
    if (text == NULL || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static avo_status check_socket(int descriptor, avo_error *error) {
    int type = 0, listens = 0;
    socklen_t bytes = sizeof(type);
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 || type != SOCK_STREAM ||
        getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "LISTEN_FDS: descriptor %d is not a listening stream socket; the "
                           ".socket unit needs ListenStream= and Accept=no",
                           descriptor);
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    return AVO_OK;
}

avo_status activation_sockets(int *sockets, uint32_t maximum, uint32_t *count, avo_error *error) {
    uint64_t process = 0, wanted = 0;
    *count = 0;
    bool ours = read_number("LISTEN_PID", &process) && process == (uint64_t)getpid() &&
                read_number("LISTEN_FDS", &wanted);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (!ours)
        return AVO_OK;
    if (wanted > maximum)
        return status_fail(error, AVO_ERROR_LIMIT, "LISTEN_FDS: %llu sockets, must be at most %u",
                           (unsigned long long)wanted, maximum);
    for (uint32_t i = 0; i < wanted; i++) {
        AVO_TRY(check_socket(FIRST_SOCKET + (int)i, error));
        sockets[i] = FIRST_SOCKET + (int)i;
    }
    *count = (uint32_t)wanted;
    return AVO_OK;
}

int activation_notifier_open(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length = path == NULL ? 0 : strlen(path);
    if (length < 2 || length >= sizeof(name.sun_path) || (path[0] != '/' && path[0] != '@'))
        return -1;
    memcpy(name.sun_path, path, length);
    if (path[0] == '@') /* the abstract name space */
        name.sun_path[0] = '\0';
    int notifier = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (notifier >= 0 &&
        connect(notifier, (const struct sockaddr *)(const void *)&name, bytes) != 0) {
        close(notifier);
        notifier = -1;
    }
    unsetenv("NOTIFY_SOCKET");
    return notifier;
}

void activation_notifier_close(int notifier) {
    if (notifier >= 0)
        close(notifier);
}

void activation_notify(int notifier, const char *text) {
    if (notifier >= 0)
        (void)!send(notifier, text, strlen(text), MSG_NOSIGNAL);
}

double activation_watchdog_seconds(void) {
    uint64_t microseconds = 0, process = 0;
    if (!read_number("WATCHDOG_USEC", &microseconds))
        return 0.0;
    if (getenv("WATCHDOG_PID") != NULL &&
        (!read_number("WATCHDOG_PID", &process) || process != (uint64_t)getpid()))
        return 0.0;
    return (double)microseconds * 1e-6;
}
