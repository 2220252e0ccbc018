/* Who may ask. Keys stand in a JSON file:
 *
 *   {"keys": [{"name": "web", "key": "…" or "sha256": "64 hexadecimal digits",
 *              "requests_per_minute": 60, "token_quota": 1000000, "quota_seconds": 86400,
 *              "concurrent_requests": 8, "kv_tokens": 65536, "weight": 2.0,
 *              "adapters": ["support", "base"], "own_adapters": 4, "priority": 4,
 *              "metrics": true, "admin": false}]}
 *
 * Only digests are kept in memory; a key that comes in is digested and compared with all of them,
 * in constant time. What a key has used is in the ledger (ledger.h), by name: it goes on after the
 * file is read again, and where the ledger has a file, after a restart.
 *
 * An adapter named OWNER:NAME belongs to the key OWNER. Other keys neither see nor use it, and
 * errors do not tell them that it exists; whether such a key exists does not matter.
 */
#ifndef AVO_SERVER_KEYS_H
#define AVO_SERVER_KEYS_H

#include "base/cursor.h"
#include "base/status.h"
#include "server/ledger.h"

typedef struct server_key server_key;
typedef struct server_keys server_keys; /* one reading of the file; counted references */

#define KEYS_MAX        4096
#define KEY_NAME_MAX    LEDGER_NAME_MAX
#define KEY_BYTES_MAX   512 /* of a key as it comes in */
#define KEY_ADAPTER_MAX (KEY_NAME_MAX + 1 + 257)

/* Refuses by name: unknown fields, wrong types and ranges, names and keys that appear twice, keys
 * shorter than 8 bytes. The first keys of the file get metrics of their own. */
AVO_MUST_USE avo_status server_keys_read(const char *path, ledger *ledger, server_keys **out,
                                         avo_error *error);
/* Keys without concurrent_requests get this limit (0: none), unless there is one key alone: no key
 * shall fill the queue for all others. Before the keys are shared. */
void server_keys_share_out(server_keys *keys, uint32_t concurrent_max);
server_keys *server_keys_share(server_keys *keys);
void server_keys_release(server_keys *keys);

/* NULL: no such key. */
const server_key *server_keys_find(const server_keys *keys, text_view key);
size_t server_keys_count(const server_keys *keys);
const server_key *server_keys_at(const server_keys *keys, size_t index); /* as in the file */
const server_key *server_keys_named(const server_keys *keys, const char *name);

/* What differs from `before`, as lines for the audit log: "added web", "removed web", "changed
 * web". */
typedef void (*server_keys_see)(void *context, const char *change, const char *name);
void server_keys_compare(const server_keys *before, const server_keys *after, server_keys_see see,
                         void *context);

/* One more request of this key: rate, quota and concurrent requests. True: it is admitted, and
 * server_key_leave is owed when it is over. */
bool server_key_admit(const server_key *key, const ledger_time *now, ledger_verdict *verdict);
void server_key_leave(const server_key *key);
/* Why it was refused, for the client. */
const char *server_key_refusal(ledger_refusal refusal);
/* Whether the token quota has something left; else the seconds until it has. */
bool server_key_has_tokens(const server_key *key, const ledger_time *now, double *retry_seconds);
/* Tokens that a request has used. */
void server_key_charge(const server_key *key, const ledger_time *now, const ledger_totals *usage);
const ledger_limits *server_key_limits(const server_key *key);
ledger_account *server_key_account(const server_key *key);

/* ---- For endpoints; a NULL key is the server without keys, where everything is allowed. ---- */

const char *server_key_name(const server_key *key); /* "" for NULL; also the tenant of fairness */
/* The name in the registry of an adapter that the key asks for: its own "KEY:NAME" where `known`
 * says that there is one, else as it was asked for. */
const char *server_key_adapter(const server_key *key, const char *asked,
                               bool (*known)(const void *context, const char *name),
                               const void *context, char own[static KEY_ADAPTER_MAX]);
/* Whether an adapter belongs to this key. */
bool server_key_owns(const server_key *key, const char *adapter);
/* By name in the registry; NULL: the base model, which the list calls "base". */
bool server_key_allows_adapter(const server_key *key, const char *adapter);
/* What a request may ask for at best, and gets when it asks for nothing: 0…15, 0 first. */
uint32_t server_key_priority(const server_key *key);
float server_key_weight(const server_key *key); /* of fairness; 0: 1 */
/* KV tokens that its running requests may take together; 0: no limit. */
uint64_t server_key_kv_tokens(const server_key *key);
/* Adapters that it may have loaded for itself; 0: none. */
uint32_t server_key_own_adapters(const server_key *key);
bool server_key_is_admin(const server_key *key);
/* May read what all keys together do: /metrics, /telemetry. */
bool server_key_sees_metrics(const server_key *key);

#endif
