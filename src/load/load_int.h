/* Shared by the load generator and the comparison of modes. */
#ifndef AVO_LOAD_LOAD_INT_H
#define AVO_LOAD_LOAD_INT_H

#include "base/json.h"
#include "base/status.h"

#define LOAD_URL_BYTES 2048u

struct curl_slist;

/* The server's address, with or without /v1 and slashes at its end, and a path behind it. */
AVO_MUST_USE avo_status load_make_url(const char *server, const char *path,
                                      char url[LOAD_URL_BYTES], avo_error *error);
/* Headers of JSON requests; `key` may be NULL. Freed by the caller, also after a failure. */
AVO_MUST_USE avo_status load_make_headers(const char *key, struct curl_slist **headers,
                                          avo_error *error);
/* A count that a server reports; 0 where it does not. */
uint64_t load_count(const json_value *usage, const char *key);

#endif
