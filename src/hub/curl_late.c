/* Loading libcurl. The dynamic loader keeps it, and counts; there is no state here. */
#include "hub/curl_late.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>

/* The newest function of those that curl_late.h lists: a library that has it has all of them. */
#define NEWEST "curl_multi_poll"

/* libcurl's libraries look for names among each other before they look in this program: it may have
 * brought another libcrypto (a wheel does), which must not be mixed with this machine's libssl.
 * Sanitizers refuse that. */
#ifdef AVO_CURL_APART
#define BINDING (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#else
#define BINDING (RTLD_NOW | RTLD_LOCAL)
#endif

avo_status curl_late_open(avo_error *error) {
    void *library = dlopen(AVO_CURL_LIBRARY, BINDING);
    if (library == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "libcurl cannot be loaded, which downloads need: %.300s; install it",
                           dlerror());
    if (dlsym(library, NEWEST) != NULL)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "%s lacks " NEWEST "; install libcurl 7.66 or newer", AVO_CURL_LIBRARY);
}

void *curl_late_find(const char *name) {
    void *library = dlopen(AVO_CURL_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    void *function = library == NULL ? NULL : dlsym(library, name);
    assert(function != NULL); /* curl_late_open has succeeded */
    dlclose(library);         /* the reference, not the library: curl_late_open holds one */
    return function;
}

const char *curl_late_authorities(const char *given) {
    const char *found = given != NULL ? given : getenv("SSL_CERT_FILE");
    return found == NULL || found[0] == '\0' ? NULL : found;
}
