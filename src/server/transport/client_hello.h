/* The first message of a TLS client, read without taking it from the kernel: which protocols it
 * offers (ALPN, RFC 7301). On a port that speaks HTTP/1.1 and HTTP/2 over TLS this decides which
 * carrier gets the connection, and with it which library shakes hands. */
#ifndef AVO_SERVER_CLIENT_HELLO_H
#define AVO_SERVER_CLIENT_HELLO_H

#include "base/cursor.h"

typedef enum hello_answer {
    HELLO_PARTIAL, /* more bytes must come */
    HELLO_OFFERS,  /* the protocol is among those offered */
    HELLO_LACKS    /* it is not; or this is no ClientHello of at most HELLO_BYTES_MAX */
} hello_answer;

#define HELLO_BYTES_MAX 16384u

hello_answer hello_offers(bytes_view bytes, const char *protocol);

#endif
