/* `--serve`: a server for the time of the training. It is `avocet serve` in a process of its own,
 * with its own sandbox, and maps the same file of the model; the adapter reaches it as it reaches
 * any other server (train_publish.c). So a fault there cannot stop the training, and no request
 * can change a bit of it.
 *
 * This process binds the port, so that one in use is known at once, and hands the listening socket
 * over as systemd does (server/activation.h). Requests that come before the model is open wait. */
#include "cli/train_int.h"

#include "base/clock.h"
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOST_DEFAULT  "127.0.0.1"
#define PORT_DEFAULT  8080u
#define EVERY_DEFAULT 10u
#define SESSIONS      "4" /* for people who try it; the memory is the training's */
#define KV_TOKENS     "8192"
#define DRAIN_SECONDS "2"
#define STOP_SECONDS  20.0
#define FIRST_SOCKET  3 /* by agreement with systemd */
#define BACKLOG       128
#define EXIT_NO_EXEC  127

/* ---- The address ---- */

static avo_status bad_address(train_call *call) {
    return status_fail(&call->error, AVO_ERROR_ARGUMENT,
                       "--serve=%.200s: must be PORT or HOST:PORT, such as 8080 or 0.0.0.0:8080",
                       call->server.address);
}

/* "8080", "localhost:8080", "[::1]:8080". */
static avo_status read_address(train_call *call) {
    train_server *server = &call->server;
    const char *text = server->address, *colon = strrchr(text, ':');
    const char *number = colon != NULL ? colon + 1 : text;
    uint64_t port = PORT_DEFAULT;
    size_t size = colon != NULL ? (size_t)(colon - text) : 0;
    if (size >= 2 && text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    if (size >= sizeof(server->host) || (colon != NULL && size == 0))
        return bad_address(call);
    snprintf(server->host, sizeof(server->host), "%.*s", (int)size, text);
    if (size == 0)
        snprintf(server->host, sizeof(server->host), "%s", HOST_DEFAULT);
    if (server->address[0] != '\0' && number_parse_u64(number, 0, 65535, &port) != NULL)
        return bad_address(call);
    server->port = (uint16_t)port;
    return AVO_OK;
}

/* Where this process finds it: a wildcard address is reached through loopback. */
static void make_url(train_call *call) {
    const char *host = call->server.host;
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
        host = HOST_DEFAULT;
    bool six = strchr(host, ':') != NULL;
    snprintf(call->publisher.url, sizeof(call->publisher.url), "http://%s%s%s:%u", six ? "[" : "",
             host, six ? "]" : "", call->server.port);
}

static avo_status listen_there(train_call *call) {
    train_server *server = &call->server;
    server_options options = {.address = server->host, .port = server->port};
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof(own);
    avo_status status = server_bind(&options, &call->error);
    if (status != AVO_OK)
        return status_prefix(&call->error, status, "--serve");
    server->socket = options.listen_sockets[0];
    if (listen(server->socket, BACKLOG) != 0 ||
        getsockname(server->socket, (struct sockaddr *)&own, &bytes) != 0)
        return status_fail(&call->error, AVO_ERROR_IO, "--serve: cannot listen: %s",
                           strerror(errno));
    server->port = ntohs(own.ss_family == AF_INET6
                             ? ((const struct sockaddr_in6 *)(const void *)&own)->sin6_port
                             : ((const struct sockaddr_in *)(const void *)&own)->sin_port);
    make_url(call);
    return AVO_OK;
}

/* ---- The process ---- */

/* Becomes the server; only returns where that fails. */
static void become_server(const train_server *server, char **arguments, pid_t parent) {
    char number[24];
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* no server without a training, however that ends */
    if (getppid() != parent)
        return;
    (void)setpgid(0, 0); /* Ctrl-C is for the training, which then ends the server */
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0)
        return;
    if (server->socket == FIRST_SOCKET ? fcntl(FIRST_SOCKET, F_SETFD, 0) != 0
                                       : dup2(server->socket, FIRST_SOCKET) < 0)
        return;
    snprintf(number, sizeof(number), "%ld", (long)getpid());
    if (setenv("LISTEN_PID", number, 1) != 0 || setenv("LISTEN_FDS", "1", 1) != 0)
        return;
    (void)execv("/proc/self/exe", arguments);
}

static avo_status start_process(train_call *call, const char *model) {
    train_server *server = &call->server;
    const char *arguments[24] = {"avocet", "serve", model};
    size_t count = 3;
    const char *const always[] = {
        "--adapter-root",          call->publisher.folder, "--training", call->publisher.folder,
        "--allow-adapter-loading", "--drain-seconds",      DRAIN_SECONDS};
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        arguments[count++] = always[i];
    if (call->options.engine.device != NULL) {
        arguments[count++] = "--device";
        arguments[count++] = call->options.engine.device;
    }
    if (call->options.engine.arithmetic != NULL) {
        arguments[count++] = "--arithmetic";
        arguments[count++] = call->options.engine.arithmetic;
    }
    const char *const given[] = {"--config", server->config};
    const char *const small[] = {"--sessions", SESSIONS, "--kv-tokens", KV_TOKENS};
    for (size_t i = 0; i < 2 && server->config != NULL; i++)
        arguments[count++] = given[i];
    for (size_t i = 0; i < 4 && server->config == NULL; i++)
        arguments[count++] = small[i];
    pid_t parent = getpid();
    fflush(NULL);
    server->process = fork();
    if (server->process == 0) {
        become_server(server, (char **)(uintptr_t)arguments, parent);
        _exit(EXIT_NO_EXEC);
    }
    int reason = errno;
    (void)close(server->socket); /* or requests would wait for a server that has ended */
    server->socket = -1;
    if (server->process > 0)
        return AVO_OK;
    server->process = 0;
    return status_fail(&call->error, AVO_ERROR_IO, "--serve: cannot start a process: %s",
                       strerror(reason));
}

avo_status train_serve_start(train_call *call, const char *model) {
    if (call->server.address == NULL)
        return AVO_OK;
    AVO_TRY(read_address(call));
    AVO_TRY(listen_there(call));
    if (call->options.renew_every == 0)
        call->options.renew_every = EVERY_DEFAULT;
    return start_process(call, model);
}

bool train_serve_ended(train_server *server, avo_error *why) {
    int status = 0;
    if (server->process == 0 || waitpid(server->process, &status, WNOHANG) != server->process)
        return false;
    server->process = 0;
    (void)!status_fail(why, AVO_ERROR_NETWORK, "the server has ended (%s %d)",
                       WIFSIGNALED(status) ? "signal" : "exit status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return true;
}

void train_serve_stop(train_server *server) {
    static const struct timespec pause = {.tv_nsec = 10000000};
    avo_error ignored;
    if (server->socket >= 0)
        (void)close(server->socket);
    server->socket = -1;
    if (server->process == 0)
        return;
    uint64_t begin = clock_now_ns();
    (void)kill(server->process, SIGTERM);
    while (!train_serve_ended(server, &ignored)) {
        if (clock_seconds(begin, clock_now_ns()) > STOP_SECONDS)
            (void)kill(server->process, SIGKILL);
        (void)nanosleep(&pause, NULL);
    }
}
