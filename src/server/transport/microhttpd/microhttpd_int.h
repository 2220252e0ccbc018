/* Between the files that use libmicrohttpd: the only ones that know its types. */
#ifndef AVO_SERVER_MICROHTTPD_INT_H
#define AVO_SERVER_MICROHTTPD_INT_H

#include "server/server_int.h"

#include <microhttpd.h>

/* An exchange that libmicrohttpd has brought. */
typedef struct mhd_exchange {
    carried http;                      /* first: one is a pointer to the other */
    struct MHD_Connection *connection; /* NULL: over; with `suspended` under the exchange's lock */
    bool suspended;
    bool queued;        /* libmicrohttpd has the response */
    bool begun;         /* its head is complete */
    bool taken;         /* it is complete, or answered before that */
    bool hides;         /* its path goes on behind a zero byte, where nobody sees it */
    bool discarding;    /* answered already; the rest of the body is thrown away */
    uint64_t discarded; /* bytes of it */
} mhd_exchange;

/* For the exchange: carrier_driver. */
void mhd_exchange_wake(carried *exchange);
void mhd_exchange_cut(carried *exchange);
void mhd_exchange_free(carried *exchange);

/* A request's first line has come. */
void *request_named(void *context, const char *uri, struct MHD_Connection *connection);
enum MHD_Result request_handle(void *context, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **kept);
void request_completed(void *context, struct MHD_Connection *connection, void **kept,
                       enum MHD_RequestTerminationCode code);

#endif
