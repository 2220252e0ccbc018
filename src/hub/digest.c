/* Sums of files: SHA-256, and beside it the SHA-1 by which git names a file's content. */
#include "hub/hub_int.h"

#include <openssl/evp.h>
#include <stdio.h>

static avo_status digest_failed(hub_digest *digest, avo_error *error) {
    hub_digest_close(digest);
    return status_fail(error, AVO_ERROR_MEMORY, "OpenSSL cannot compute a SHA digest");
}

static bool context_open(void **context, const EVP_MD *algorithm) {
    *context = EVP_MD_CTX_new();
    return *context != NULL && EVP_DigestInit_ex(*context, algorithm, NULL) == 1;
}

avo_status hub_digest_open(hub_digest *digest, uint64_t git_bytes, avo_error *error) {
    *digest = (hub_digest){NULL, NULL};
    if (!context_open(&digest->sha256, EVP_sha256()))
        return digest_failed(digest, error);
    if (git_bytes == UINT64_MAX)
        return AVO_OK;
    char head[48];
    int head_bytes = snprintf(head, sizeof(head), "blob %llu", (unsigned long long)git_bytes);
    if (!context_open(&digest->git_sha1, EVP_sha1()) ||
        EVP_DigestUpdate(digest->git_sha1, head, (size_t)head_bytes + 1) != 1)
        return digest_failed(digest, error);
    return AVO_OK;
}

avo_status hub_digest_add(hub_digest *digest, const void *data, size_t bytes, avo_error *error) {
    if (EVP_DigestUpdate(digest->sha256, data, bytes) != 1 ||
        (digest->git_sha1 != NULL && EVP_DigestUpdate(digest->git_sha1, data, bytes) != 1))
        return digest_failed(digest, error);
    return AVO_OK;
}

static bool context_end(void *context, char *hexadecimal, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (EVP_DigestFinal_ex(context, sum, &size) != 1 || size != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        hexadecimal[2 * i] = digits[sum[i] >> 4];
        hexadecimal[2 * i + 1] = digits[sum[i] & 15];
    }
    hexadecimal[2 * bytes] = '\0';
    return true;
}

avo_status hub_digest_end(hub_digest *digest, char sha256[65], char git_sha1[41],
                          avo_error *error) {
    if (!context_end(digest->sha256, sha256, 32))
        return digest_failed(digest, error);
    if (git_sha1 != NULL) {
        git_sha1[0] = '\0';
        if (digest->git_sha1 != NULL && !context_end(digest->git_sha1, git_sha1, 20))
            return digest_failed(digest, error);
    }
    hub_digest_close(digest);
    return AVO_OK;
}

void hub_digest_close(hub_digest *digest) {
    EVP_MD_CTX_free(digest->sha256);
    EVP_MD_CTX_free(digest->git_sha1);
    *digest = (hub_digest){NULL, NULL};
}
