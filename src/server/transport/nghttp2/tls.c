/* TLS between memory buffers: bytes of the socket go in, plain bytes come out, and the other way.
 * Nothing but h2 is agreed on (ALPN, RFC 7301): a client that does not offer it is refused in the
 * handshake. OpenSSL, since libmicrohttpd keeps its TLS to itself and libcrypto is needed anyway.
 */
#include "server/transport/nghttp2/nghttp2_int.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

struct h2_tls_settings {
    SSL_CTX *context;
};

struct h2_tls {
    SSL *ssl;
    BIO *in, *out; /* the SSL's */
    bool ready;
};

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                           const unsigned char *offered, unsigned size, void *context) {
    static const unsigned char wanted[] = {2, 'h', '2'};
    (void)ssl;
    (void)context;
    unsigned char *chosen = NULL;
    if (SSL_select_next_proto(&chosen, out_size, wanted, sizeof(wanted), offered, size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

avo_status h2_tls_settings_open(const char *certificate, const char *key, h2_tls_settings **out,
                                avo_error *error) {
    h2_tls_settings *settings = calloc(1, sizeof(*settings));
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (settings == NULL || context == NULL) {
        free(settings);
        SSL_CTX_free(context);
        return status_no_memory(error, "TLS", sizeof(*settings));
    }
    settings->context = context;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    bool good = SSL_CTX_use_certificate_chain_file(context, certificate) == 1 &&
                SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1 &&
                SSL_CTX_check_private_key(context) == 1;
    if (!good) {
        const char *reason = ERR_reason_error_string(ERR_peek_last_error());
        avo_status status =
            status_fail(error, AVO_ERROR_IO, "cannot use the certificate %s with the key %s: %s",
                        certificate, key, reason == NULL ? "unknown error" : reason);
        ERR_clear_error();
        h2_tls_settings_close(settings);
        return status;
    }
    *out = settings;
    return AVO_OK;
}

void h2_tls_settings_close(h2_tls_settings *settings) {
    if (settings == NULL)
        return;
    SSL_CTX_free(settings->context);
    free(settings);
}

h2_tls *h2_tls_open(h2_tls_settings *settings) {
    h2_tls *tls = calloc(1, sizeof(*tls));
    SSL *ssl = SSL_new(settings->context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (tls == NULL || ssl == NULL || in == NULL || out == NULL) {
        free(tls);
        SSL_free(ssl);
        BIO_free(in);
        BIO_free(out);
        return NULL;
    }
    BIO_set_mem_eof_return(in, -1);
    BIO_set_mem_eof_return(out, -1);
    SSL_set_bio(ssl, in, out);
    SSL_set_accept_state(ssl);
    *tls = (h2_tls){ssl, in, out, false};
    return tls;
}

void h2_tls_close(h2_tls *tls) {
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

bool h2_tls_ready(const h2_tls *tls) {
    return tls->ready;
}

static bool shake_hands(h2_tls *tls) {
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (result != 1)
        return SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ;
    const unsigned char *chosen = NULL;
    unsigned size = 0;
    SSL_get0_alpn_selected(tls->ssl, &chosen, &size); /* nothing: the client offered nothing */
    tls->ready = size == 2;
    return tls->ready;
}

bool h2_tls_receive(h2_tls *tls, const char *bytes, size_t size) {
    if (size > INT_MAX || BIO_write(tls->in, bytes, (int)size) != (int)size)
        return false;
    return tls->ready || shake_hands(tls);
}

bool h2_tls_read(h2_tls *tls, char *bytes, size_t capacity, size_t *got) {
    *got = 0;
    if (!tls->ready)
        return true;
    ERR_clear_error();
    int result = SSL_read(tls->ssl, bytes, (int)capacity);
    if (result > 0) {
        *got = (size_t)result;
        return true;
    }
    return SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ;
}

bool h2_tls_write(h2_tls *tls, const char *bytes, size_t size) {
    ERR_clear_error();
    return size <= INT_MAX && SSL_write(tls->ssl, bytes, (int)size) == (int)size;
}

size_t h2_tls_take(h2_tls *tls, char *bytes, size_t capacity) {
    int got = capacity == 0 ? 0 : BIO_read(tls->out, bytes, (int)capacity);
    return got > 0 ? (size_t)got : 0;
}
