/* libcurl, loaded when it is first used: it brings 29 more libraries, whose relocation would be a
 * third of the time that every command takes to start, and few commands use the network.
 *
 * To be included in the place of curl/curl.h. Functions keep their names and the types that curl.h
 * declares; each call looks its function up, which takes about a microsecond. */
#ifndef AVO_HUB_CURL_LATE_H
#define AVO_HUB_CURL_LATE_H

#include "base/status.h"

#include <curl/curl.h>

/* Loads the library, once and for good; must succeed before anything of it is called. */
AVO_MUST_USE avo_status curl_late_open(avo_error *error);
/* A function of it. */
void *curl_late_find(const char *name);
/* The file of certificates to trust: the one that is given, else SSL_CERT_FILE of the environment;
 * NULL: the system's. */
const char *curl_late_authorities(const char *given);

#undef curl_easy_setopt /* curl.h wraps some to check their arguments */
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define CURL_LATE(name) ((__typeof__(&(name)))curl_late_find(#name))

#define curl_easy_cleanup        CURL_LATE(curl_easy_cleanup)
#define curl_easy_getinfo        CURL_LATE(curl_easy_getinfo)
#define curl_easy_init           CURL_LATE(curl_easy_init)
#define curl_easy_perform        CURL_LATE(curl_easy_perform)
#define curl_easy_setopt         CURL_LATE(curl_easy_setopt)
#define curl_easy_strerror       CURL_LATE(curl_easy_strerror)
#define curl_easy_unescape       CURL_LATE(curl_easy_unescape)
#define curl_free                CURL_LATE(curl_free)
#define curl_global_cleanup      CURL_LATE(curl_global_cleanup)
#define curl_global_init         CURL_LATE(curl_global_init)
#define curl_multi_add_handle    CURL_LATE(curl_multi_add_handle)
#define curl_multi_cleanup       CURL_LATE(curl_multi_cleanup)
#define curl_multi_info_read     CURL_LATE(curl_multi_info_read)
#define curl_multi_init          CURL_LATE(curl_multi_init)
#define curl_multi_perform       CURL_LATE(curl_multi_perform)
#define curl_multi_poll          CURL_LATE(curl_multi_poll)
#define curl_multi_remove_handle CURL_LATE(curl_multi_remove_handle)
#define curl_multi_setopt        CURL_LATE(curl_multi_setopt)
#define curl_slist_append        CURL_LATE(curl_slist_append)
#define curl_slist_free_all      CURL_LATE(curl_slist_free_all)
#define curl_url                 CURL_LATE(curl_url)
#define curl_url_cleanup         CURL_LATE(curl_url_cleanup)
#define curl_url_get             CURL_LATE(curl_url_get)
#define curl_url_set             CURL_LATE(curl_url_set)

#endif
