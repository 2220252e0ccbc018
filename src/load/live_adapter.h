/* Loading an adapter into a running server of ours by HTTP, for those who make adapters while
 * others use them. Called by `avocet train --publish`. Failures are of the network and of the
 * server's making: texts say what the server said and what can be done. */
#ifndef AVO_LOAD_LIVE_ADAPTER_H
#define AVO_LOAD_LIVE_ADAPTER_H

#include "base/status.h"

typedef struct live_adapter {
    const char *url;         /* of the server, with or without /v1 */
    const char *key;         /* of an administrator; NULL: none */
    const char *authorities; /* file of certificates to trust with https; NULL: SSL_CERT_FILE of the
                                environment, else the system's */
    const char *name, *path; /* as clients call it; where the server finds it */
    double timeout_seconds;  /* of one request */
} live_adapter;

/* Loads it, or replaces what the name meant: requests that run keep the version they have. */
AVO_MUST_USE avo_status live_adapter_load(const live_adapter *adapter, avo_error *error);

/* What the server serves. */
typedef struct live_model {
    char name[128];
    char digest[17]; /* source_digest in hexadecimal; "": not said */
} live_model;
AVO_MUST_USE avo_status live_adapter_model(const live_adapter *adapter, live_model *model,
                                           avo_error *error);

#endif
