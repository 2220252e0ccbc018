/* The names this server answers to.
 *
 * A page of another site can let its own name point to this machine (DNS rebinding). The browser
 * then takes our answers for that site's and lets the page read them, and Origin and Host agree.
 * Where no key is asked for, only names that no stranger can own are taken: addresses, localhost,
 * and what the operator named. With TLS the browser itself finds that the certificate is not that
 * site's; a unix socket no browser reaches. */
#include "server/server_int.h"

#include <arpa/inet.h>
#include <strings.h>

/* Of "name:port" or "[address]:port" the first part. */
static text_view name_of(const char *host) {
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    if (end != NULL)
        return (text_view){host + 1, (size_t)(end - host) - 1};
    size_t size = strcspn(host, ":/");
    size -= size > 0 && host[size - 1] == '.'; /* as DNS writes the end */
    return (text_view){host, size};
}

static bool is_address(const char *host, text_view name) {
    char text[INET6_ADDRSTRLEN];
    unsigned char bytes[sizeof(struct in6_addr)];
    if (name.size >= sizeof(text))
        return false;
    memcpy(text, name.data, name.size);
    text[name.size] = '\0';
    return inet_pton(host[0] == '[' ? AF_INET6 : AF_INET, text, bytes) == 1;
}

static bool is_same(text_view name, const char *other) {
    text_view known = name_of(other);
    return name.size > 0 && name.size == known.size &&
           strncasecmp(name.data, known.data, name.size) == 0;
}

static bool is_known(const server_options *options, const char *host) {
    text_view name = name_of(host);
    if (host[0] == '\0' || is_address(host, name) || is_same(name, "localhost") ||
        is_same(name, options->address))
        return true;
    if (options->cors_origin != NULL) {
        const char *site = strstr(options->cors_origin, "://");
        if (strcmp(options->cors_origin, "*") == 0 || (site != NULL && is_same(name, site + 3)))
            return true;
    }
    for (size_t i = 0; i < options->allowed_host_count; i++)
        if (strcmp(options->allowed_hosts[i], "*") == 0 || is_same(name, options->allowed_hosts[i]))
            return true;
    return false;
}

void host_check(carried *exchange) {
    const server_options *options = &exchange->server->options;
    const char *host = headers_find(&exchange->headers, "Host");
    bool is_unix = strncmp(exchange->peer, "unix", 4) == 0;
    if (host == NULL || is_unix || options->keys_path != NULL || options->certificate != NULL)
        return;
    if (!is_known(options, host))
        exchange_fail(&exchange->base, 403, NULL, "host",
                      "host name %.200s is not allowed; give --allow-host NAME, or use --keys, "
                      "which allows every name",
                      host);
}
