/* Who may ask. Keys stand in a JSON file:
 *
 *   {"keys": [{"name": "web", "key": "…" or "sha256": "64 hexadecimal digits",
 *              "requests_per_minute": 60, "token_quota": 1000000, "quota_seconds": 86400,
 *              "adapters": ["support", "base"], "priority": 4, "admin": false}]}
 *
 * Only digests are kept in memory; a key that comes in is digested and compared with all of them,
 * in constant time. What a key has used lives in memory, by name, and survives a reload of the
 * file, not a restart.
 */
#ifndef AVO_SERVER_KEYS_H
#define AVO_SERVER_KEYS_H

#include "base/cursor.h"
#include "base/status.h"

typedef struct server_key server_key;
typedef struct server_keys server_keys; /* one reading of the file; counted references */

#define KEYS_MAX      4096
#define KEY_NAME_MAX  64
#define KEY_BYTES_MAX 512 /* of a key as it comes in */

/* Refuses by name: unknown fields, wrong types and ranges, names and keys that appear twice, keys
 * shorter than 8 bytes. What keys of the same name in `before` (may be NULL) have used goes on. */
AVO_MUST_USE avo_status server_keys_read(const char *path, server_keys *before, server_keys **out,
                                         avo_error *error);
server_keys *server_keys_share(server_keys *keys);
void server_keys_release(server_keys *keys);

/* NULL: no such key. */
const server_key *server_keys_find(const server_keys *keys, text_view key);

/* Takes one request from the key's rate; false: too many, or its tokens are used up, and
 * *retry_seconds says when to come again, *what which of both it was. */
bool server_key_admit(const server_key *key, uint64_t now_ns, double *retry_seconds,
                      const char **what);
/* Tokens that a request has used. */
void server_key_charge(const server_key *key, uint64_t now_ns, uint64_t tokens);

/* ---- For endpoints; a NULL key is the server without keys, where everything is allowed. ---- */

const char *server_key_name(const server_key *key); /* "" for NULL; also the tenant of fairness */
/* `adapter` NULL: the base model, which the list calls "base". */
bool server_key_allows_adapter(const server_key *key, const char *adapter);
/* What a request may ask for at best, and gets when it asks for nothing: 0…15, 0 first. */
uint32_t server_key_priority(const server_key *key);
bool server_key_is_admin(const server_key *key);

#endif
