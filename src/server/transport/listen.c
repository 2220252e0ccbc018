/* Sockets: addresses, ports, unix sockets, and what they are called. */
#include "server/kv_publish.h"
#include "server/server_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 4096

avo_status listen_bind(const char *option, const char *address, uint16_t port, int *out,
                       avo_error *error) {
    char service[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    snprintf(service, sizeof(service), "%u", port);
    int fault = getaddrinfo(address, service, &hints, &found);
    if (fault != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s %s: %s", option, address,
                           gai_strerror(fault));
    int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0, reason = errno;
    if (descriptor >= 0) {
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (found->ai_family == AF_INET6) /* "::" takes IPv4 as well */
            setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        if (bind(descriptor, found->ai_addr, found->ai_addrlen) != 0) {
            reason = errno;
            close(descriptor);
            descriptor = -1;
        }
    }
    freeaddrinfo(found);
    if (descriptor < 0)
        return status_fail(error, AVO_ERROR_IO, "cannot listen on %s port %u: %s%s", address, port,
                           strerror(reason), reason == EADDRINUSE ? "; choose another port" : "");
    *out = descriptor;
    return AVO_OK;
}

/* A socket that nobody listens on any more is in the way and is removed; nothing else is. */
static avo_status remove_stale(const char *path, const struct sockaddr_un *name, avo_error *error) {
    struct stat facts;
    if (lstat(path, &facts) != 0)
        return AVO_OK;
    if (!S_ISSOCK(facts.st_mode))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--unix-socket %s: exists and is not a socket", path);
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool lives = probe >= 0 &&
                 connect(probe, (const struct sockaddr *)(const void *)name, sizeof(*name)) == 0;
    if (probe >= 0)
        close(probe);
    if (lives)
        return status_fail(error, AVO_ERROR_IO,
                           "--unix-socket %s: another server is listening there", path);
    return unlink(path) == 0
               ? AVO_OK
               : status_fail(error, AVO_ERROR_IO, "--unix-socket %s: %s", path, strerror(errno));
}

static avo_status bind_unix(const char *path, int *out, avo_error *error) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(name.sun_path))
        return status_fail(error, AVO_ERROR_LIMIT, "--unix-socket: %s is longer than %zu bytes",
                           path, sizeof(name.sun_path) - 1);
    memcpy(name.sun_path, path, strlen(path) + 1);
    AVO_TRY(remove_stale(path, &name, error));
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0117); /* the owner and the group */
    bool bound = descriptor >= 0 &&
                 bind(descriptor, (const struct sockaddr *)(const void *)&name, sizeof(name)) == 0;
    int reason = errno;
    umask(before);
    if (!bound) {
        if (descriptor >= 0)
            close(descriptor);
        return status_fail(error, AVO_ERROR_IO, "--unix-socket %s: %s", path, strerror(reason));
    }
    *out = descriptor;
    return AVO_OK;
}

avo_status server_bind(server_options *options, avo_error *error) {
    if (options->kv_events != NULL)
        AVO_TRY(kv_publish_bind(options, error));
#ifndef AVO_HTTP2
    if (options->grpc)
        return status_fail(
            error, AVO_ERROR_UNSUPPORTED,
            "--grpc: this build has no gRPC; build it with libnghttp2-dev, libssl-dev "
            "and python3");
#endif
    const char *address = options->address != NULL ? options->address : "127.0.0.1";
    int descriptor = -1;
    if (options->listen_count == 0) {
        if (options->unix_socket != NULL)
            AVO_TRY(bind_unix(options->unix_socket, &descriptor, error));
        else
            AVO_TRY(listen_bind("--host", address, options->port, &descriptor, error));
        options->listen_sockets[options->listen_count++] = descriptor;
    }
    bool shared = options->grpc_port != 0 && options->grpc_port == options->port &&
                  options->unix_socket == NULL;
    if (!options->grpc || options->grpc_listen != 0 || shared)
        return AVO_OK;
    if (options->listen_count == SERVER_SOCKETS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "--grpc: %d sockets are open already",
                           SERVER_SOCKETS_MAX);
    AVO_TRY(listen_bind("--host", address, options->grpc_port, &descriptor, error));
    options->listen_sockets[options->listen_count++] = descriptor;
    options->grpc_listen = options->listen_count;
    return AVO_OK;
}

void server_unbind(server_options *options) {
    for (uint32_t i = 0; i < options->listen_count; i++)
        close(options->listen_sockets[i]);
    for (uint32_t i = 0; i < options->kv_listen_count; i++)
        close(options->kv_listen[i]);
    options->kv_listen_count = 0;
    if (options->listen_count > 0 && options->unix_socket != NULL)
        unlink(options->unix_socket);
    options->listen_count = options->grpc_listen = 0;
}

avo_status listen_begin(server *server, avo_error *error) {
    for (uint32_t i = 0; i < server->options.listen_count; i++)
        if (listen(server->options.listen_sockets[i], LISTEN_BACKLOG) != 0)
            return status_fail(error, AVO_ERROR_IO, "cannot listen: %s", strerror(errno));
    return AVO_OK;
}

static void address_text(const struct sockaddr *address, char *text, size_t capacity,
                         uint16_t *port) {
    char numbers[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)address;
        inet_ntop(AF_INET, &four->sin_addr, numbers, sizeof(numbers));
        *port = ntohs(four->sin_port);
        snprintf(text, capacity, "%s:%u", numbers, *port);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        *port = ntohs(six->sin6_port);
        bool mapped = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr);
        if (mapped)
            inet_ntop(AF_INET, six->sin6_addr.s6_addr + 12, numbers, sizeof(numbers));
        else
            inet_ntop(AF_INET6, &six->sin6_addr, numbers, sizeof(numbers));
        snprintf(text, capacity, mapped ? "%s:%u" : "[%s]:%u", numbers, *port);
    } else {
        snprintf(text, capacity, "unix");
    }
}

void listen_peer(int descriptor, const struct sockaddr *address, char *text, size_t capacity) {
    uint16_t port = 0;
    struct ucred who;
    socklen_t bytes = sizeof(who);
    if (address->sa_family == AF_UNIX &&
        getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0)
        snprintf(text, capacity, "unix:uid=%u", who.uid);
    else
        address_text(address, text, capacity, &port);
}

/* Whether other machines can reach one of the sockets. */
static bool is_exposed(const int *sockets, uint32_t count) {
    bool exposed = false;
    for (uint32_t i = 0; i < count; i++) {
        struct sockaddr_storage address = {0};
        socklen_t bytes = sizeof(address);
        if (getsockname(sockets[i], (struct sockaddr *)&address, &bytes) == 0)
            exposed = exposed || (address.ss_family != AF_UNIX &&
                                  !address_is_loopback((const struct sockaddr *)&address));
    }
    return exposed;
}

bool server_exposed(const server *server) {
    return is_exposed(server->options.listen_sockets, server->options.listen_count);
}

bool server_kv_exposed(const server *server) {
    return is_exposed(server->options.kv_listen, server->options.kv_listen_count);
}

uint16_t listen_port(int descriptor) {
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof(own);
    char text[100];
    uint16_t port = 0;
    if (getsockname(descriptor, (struct sockaddr *)&own, &bytes) == 0 && own.ss_family != AF_UNIX)
        address_text((const struct sockaddr *)&own, text, sizeof(text), &port);
    return port;
}

void server_bound_url(const server_options *options, char url[SERVER_URL_MAX]) {
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof(own);
    char text[100] = "";
    uint16_t port;
    url[0] = '\0';
    if (getsockname(options->listen_sockets[0], (struct sockaddr *)&own, &bytes) != 0)
        return;
    if (own.ss_family == AF_UNIX) {
        const struct sockaddr_un *name = (const void *)&own;
        snprintf(url, SERVER_URL_MAX, "unix:%s", name->sun_path);
        return;
    }
    address_text((const struct sockaddr *)&own, text, sizeof(text), &port);
    snprintf(url, SERVER_URL_MAX, "%s://%s", options->certificate != NULL ? "https" : "http", text);
}

void listen_describe(server *server) {
    const server_options *options = &server->options;
    if (options->grpc)
        server->grpc_port = listen_port(
            options->listen_sockets[options->grpc_listen > 0 ? options->grpc_listen - 1 : 0]);
    server->port = listen_port(options->listen_sockets[0]);
    server_bound_url(options, server->url);
}
