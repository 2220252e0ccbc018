/* The file of keys, their digests, limits and rights. */
#include "server/keys.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES_MIN    8
#define FILE_BYTES_MAX   ((size_t)8 << 20)
#define QUOTA_SECONDS    86400.0
#define PRIORITY_WORST   15
#define PRIORITY_NORMAL  8
#define WEIGHT_MIN       1e-3 /* as the scheduler has it */
#define WEIGHT_MAX       1e9
#define OWN_ADAPTERS_MAX 4096

struct server_key {
    const char *name;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    ledger_limits limits;
    uint64_t kv_tokens; /* 0: no limit */
    float weight;
    const char **adapters; /* NULL: all */
    size_t adapter_count;
    uint32_t own_adapters;
    uint32_t priority;
    bool admin, metrics;
    ledger_account *account;
};

struct server_keys {
    atomic_uint references;
    arena arena;
    server_key *keys;
    size_t count;
};

/* ---- Reading ---- */

static bool read_hexadecimal(text_view text, uint8_t *bytes, size_t count) {
    if (text.size != 2 * count)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 16;
        if (digit > 15)
            return false;
        bytes[i / 2] = (uint8_t)(i % 2 == 0 ? digit << 4 : bytes[i / 2] | digit);
    }
    return true;
}

static avo_status check_names(const json_value *object, avo_error *error) {
    static const char *const known[] = {"name",         "key",         "sha256",
                                        "adapters",     "priority",    "requests_per_minute",
                                        "admin",        "token_quota", "quota_seconds",
                                        "own_adapters", "kv_tokens",   "concurrent_requests",
                                        "weight",       "metrics"};
    for (size_t i = 0; i < object->object.count; i++) {
        bool found = false;
        char shown[JSON_SHOWN_KEY_MAX];
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]) && !found; k++)
            found = text_is(object->object.members[i].key, known[k]);
        if (!found)
            return status_fail(
                error, AVO_ERROR_FORMAT,
                "line %u: unknown field \"%s\"; known: name, key, sha256, requests_per_minute, "
                "token_quota, quota_seconds, concurrent_requests, kv_tokens, weight, adapters, "
                "own_adapters, priority, metrics, admin",
                object->object.members[i].value.line,
                json_shown_key(object->object.members[i].key, shown));
    }
    return AVO_OK;
}

static avo_status read_secret(const json_value *object, server_key *key, avo_error *error) {
    text_view secret = {NULL, 0}, sum = {NULL, 0};
    AVO_TRY(json_get_string(object, "key", &secret, error));
    AVO_TRY(json_get_string(object, "sha256", &sum, error));
    if ((secret.data == NULL) == (sum.data == NULL))
        return status_fail(error, AVO_ERROR_FORMAT, "line %u: give either \"key\" or \"sha256\"",
                           object->line);
    if (sum.data != NULL)
        return read_hexadecimal(sum, key->digest, sizeof(key->digest))
                   ? AVO_OK
                   : status_fail(error, AVO_ERROR_FORMAT,
                                 "line %u: \"sha256\" must be 64 hexadecimal digits", object->line);
    if (secret.size < KEY_BYTES_MIN || secret.size > KEY_BYTES_MAX)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "line %u: a key must have %d to %d bytes, this one has %zu",
                           object->line, KEY_BYTES_MIN, KEY_BYTES_MAX, secret.size);
    SHA256((const unsigned char *)secret.data, secret.size, key->digest);
    return AVO_OK;
}

static avo_status read_adapters(server_keys *keys, const json_value *object, server_key *key,
                                avo_error *error) {
    const json_value *list = json_find(object, "adapters");
    if (list == NULL || list->kind == JSON_NULL)
        return AVO_OK;
    if (list->kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT, "line %u: \"adapters\" must be a list of names",
                           list->line);
    key->adapters = arena_take_array(&keys->arena, list->array.count + 1, sizeof(char *));
    if (key->adapters == NULL)
        return status_no_memory(error, "keys", list->array.count);
    for (size_t i = 0; i < list->array.count; i++) {
        const json_value *item = &list->array.items[i];
        if (item->kind != JSON_STRING || item->string.size == 0)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "line %u: \"adapters\" must be a list of names", item->line);
        key->adapters[i] = arena_copy_text(&keys->arena, item->string.data, item->string.size);
        if (key->adapters[i] == NULL)
            return status_no_memory(error, "keys", item->string.size);
    }
    key->adapter_count = list->array.count;
    return AVO_OK;
}

static avo_status read_limits(const json_value *object, server_key *key, avo_error *error) {
    ledger_limits *limits = &key->limits;
    int64_t quota = 0, concurrent = 0, tokens = 0;
    limits->quota_seconds = QUOTA_SECONDS;
    AVO_TRY(json_get_number(object, "requests_per_minute", 0.0, 1e9, &limits->requests_per_minute,
                            error));
    AVO_TRY(json_get_integer(object, "token_quota", 0, INT64_MAX, &quota, error));
    AVO_TRY(json_get_number(object, "quota_seconds", 1.0, 1e9, &limits->quota_seconds, error));
    AVO_TRY(json_get_integer(object, "concurrent_requests", 0, 1000000, &concurrent, error));
    AVO_TRY(json_get_integer(object, "kv_tokens", 0, INT64_MAX, &tokens, error));
    if (limits->requests_per_minute > 0.0 && limits->requests_per_minute < 1.0)
        limits->requests_per_minute = 1.0;
    limits->token_quota = (uint64_t)quota;
    limits->concurrent_max = (uint32_t)concurrent;
    key->kv_tokens = (uint64_t)tokens;
    return AVO_OK;
}

static avo_status read_rights(const json_value *object, server_key *key, avo_error *error) {
    int64_t own = 0, priority = PRIORITY_NORMAL;
    double weight = 1.0;
    AVO_TRY(json_get_integer(object, "priority", 0, PRIORITY_WORST, &priority, error));
    AVO_TRY(json_get_number(object, "weight", WEIGHT_MIN, WEIGHT_MAX, &weight, error));
    AVO_TRY(json_get_integer(object, "own_adapters", 0, OWN_ADAPTERS_MAX, &own, error));
    AVO_TRY(json_get_boolean(object, "metrics", &key->metrics, error));
    AVO_TRY(json_get_boolean(object, "admin", &key->admin, error));
    key->priority = (uint32_t)priority;
    key->weight = (float)weight;
    key->own_adapters = (uint32_t)own;
    return AVO_OK;
}

/* Its name becomes part of its adapters' names and the name of their folder. */
static bool may_own(const char *name) {
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
    return name[good] == '\0' && name[0] != '.' && strstr(name, "..") == NULL;
}

/* It goes into logs and reports. */
static bool is_name(text_view name) {
    for (size_t i = 0; i < name.size; i++)
        if ((unsigned char)name.data[i] < ' ' || name.data[i] == 0x7F)
            return false;
    return name.size > 0 && name.size <= KEY_NAME_MAX;
}

static avo_status read_key(server_keys *keys, const json_value *object, ledger *ledger,
                           avo_error *error) {
    server_key *key = &keys->keys[keys->count];
    text_view name = {NULL, 0};
    if (object->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT, "line %u: a key must be an object",
                           object->line);
    AVO_TRY(check_names(object, error));
    AVO_TRY(json_get_string(object, "name", &name, error));
    if (!is_name(name))
        return status_fail(
            error, AVO_ERROR_FORMAT,
            "line %u: a key needs a \"name\" of 1 to %d bytes without control characters",
            object->line, KEY_NAME_MAX);
    key->name = arena_copy_text(&keys->arena, name.data, name.size);
    if (key->name == NULL)
        return status_no_memory(error, "keys", name.size);
    AVO_TRY(read_secret(object, key, error));
    AVO_TRY(read_limits(object, key, error));
    AVO_TRY(read_rights(object, key, error));
    if (key->own_adapters > 0 && !may_own(key->name))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "line %u: \"%s\" has own_adapters, so its name must be of letters, "
                           "digits and -_. only",
                           object->line, key->name);
    AVO_TRY(read_adapters(keys, object, key, error));
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(keys->keys[i].name, key->name) == 0 ||
            memcmp(keys->keys[i].digest, key->digest, sizeof(key->digest)) == 0)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "line %u: \"%s\" has the same name or key as \"%s\"", object->line,
                               key->name, keys->keys[i].name);
    key->account = ledger_account_of(ledger, name);
    if (key->account == NULL)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "line %u: no account for \"%s\": the server knows %d names of keys "
                           "already, those of earlier files among them",
                           object->line, key->name, LEDGER_ACCOUNTS_MAX);
    keys->count++;
    return AVO_OK;
}

static avo_status read_list(server_keys *keys, text_view text, ledger *ledger, avo_error *error) {
    arena tree;
    json_value root;
    arena_init(&tree, NULL, FILE_BYTES_MAX * 8);
    avo_status status = json_parse(&tree, text, &root, error);
    const json_value *list = status == AVO_OK ? json_find(&root, "keys") : NULL;
    if (status == AVO_OK && (list == NULL || list->kind != JSON_ARRAY || root.object.count != 1))
        status = status_fail(error, AVO_ERROR_FORMAT,
                             "expected an object with the one member \"keys\", an array");
    if (status == AVO_OK && (list->array.count == 0 || list->array.count > KEYS_MAX))
        status = status_fail(error, AVO_ERROR_FORMAT, "has %zu keys, must have 1 to %d",
                             list->array.count, KEYS_MAX);
    if (status == AVO_OK) {
        keys->keys = arena_take_array(&keys->arena, list->array.count, sizeof(*keys->keys));
        if (keys->keys == NULL)
            status = status_no_memory(error, "keys", list->array.count * sizeof(*keys->keys));
    }
    for (size_t i = 0; status == AVO_OK && i < list->array.count; i++)
        status = read_key(keys, &list->array.items[i], ledger, error);
    arena_free(&tree);
    return status;
}

avo_status server_keys_read(const char *path, ledger *ledger, server_keys **out, avo_error *error) {
    file_map map = {0};
    AVO_TRY(file_map_open(path, &map, error));
    server_keys *keys = calloc(1, sizeof(*keys));
    if (keys == NULL) {
        file_map_close(&map);
        return status_no_memory(error, "keys", sizeof(*keys));
    }
    atomic_init(&keys->references, 1);
    arena_init(&keys->arena, NULL, SIZE_MAX);
    avo_status status =
        map.bytes.size > FILE_BYTES_MAX
            ? status_fail(error, AVO_ERROR_LIMIT, "has %zu bytes, must have at most %zu",
                          map.bytes.size, FILE_BYTES_MAX)
            : read_list(keys, (text_view){(const char *)map.bytes.data, map.bytes.size}, ledger,
                        error);
    file_map_close(&map);
    if (status != AVO_OK) {
        server_keys_release(keys);
        return status_prefix(error, status, "%s", path);
    }
    for (size_t i = 0; i < keys->count; i++)
        ledger_label(keys->keys[i].account);
    keys->keys[0].metrics |= keys->count == 1; /* there is nobody else to be told of */
    *out = keys;
    return AVO_OK;
}

void server_keys_share_out(server_keys *keys, uint32_t concurrent_max) {
    for (size_t i = 0; i < keys->count && keys->count > 1; i++)
        if (keys->keys[i].limits.concurrent_max == 0)
            keys->keys[i].limits.concurrent_max = concurrent_max;
}

server_keys *server_keys_share(server_keys *keys) {
    atomic_fetch_add(&keys->references, 1);
    return keys;
}

void server_keys_release(server_keys *keys) {
    if (keys == NULL || atomic_fetch_sub(&keys->references, 1) != 1)
        return;
    arena_free(&keys->arena);
    free(keys);
}

/* ---- Asking ---- */

const server_key *server_keys_find(const server_keys *keys, text_view key) {
    uint8_t digest[SHA256_DIGEST_LENGTH];
    const server_key *found = NULL;
    if (key.size == 0 || key.size > KEY_BYTES_MAX)
        return NULL;
    SHA256((const unsigned char *)key.data, key.size, digest);
    /* All of them, each compared to the end: the time says nothing about which one is near. */
    for (size_t i = 0; i < keys->count; i++)
        if (CRYPTO_memcmp(keys->keys[i].digest, digest, sizeof(digest)) == 0)
            found = &keys->keys[i];
    return found;
}

size_t server_keys_count(const server_keys *keys) {
    return keys->count;
}

const server_key *server_keys_at(const server_keys *keys, size_t index) {
    return &keys->keys[index];
}

const server_key *server_keys_named(const server_keys *keys, const char *name) {
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(keys->keys[i].name, name) == 0)
            return &keys->keys[i];
    return NULL;
}

static bool same_adapters(const server_key *a, const server_key *b) {
    if ((a->adapters == NULL) != (b->adapters == NULL) || a->adapter_count != b->adapter_count)
        return false;
    for (size_t i = 0; i < a->adapter_count; i++)
        if (strcmp(a->adapters[i], b->adapters[i]) != 0)
            return false;
    return true;
}

static bool same_key(const server_key *a, const server_key *b) {
    const ledger_limits *l = &a->limits, *m = &b->limits;
    return memcmp(a->digest, b->digest, sizeof(a->digest)) == 0 &&
           l->requests_per_minute == m->requests_per_minute && l->token_quota == m->token_quota &&
           l->quota_seconds == m->quota_seconds && l->concurrent_max == m->concurrent_max &&
           a->kv_tokens == b->kv_tokens && a->weight == b->weight &&
           a->own_adapters == b->own_adapters && a->priority == b->priority &&
           a->admin == b->admin && a->metrics == b->metrics && same_adapters(a, b);
}

void server_keys_compare(const server_keys *before, const server_keys *after, server_keys_see see,
                         void *context) {
    for (size_t i = 0; i < before->count; i++)
        if (server_keys_named(after, before->keys[i].name) == NULL)
            see(context, "removed", before->keys[i].name);
    for (size_t i = 0; i < after->count; i++) {
        const server_key *old = server_keys_named(before, after->keys[i].name);
        if (old == NULL || !same_key(old, &after->keys[i]))
            see(context, old == NULL ? "added" : "changed", after->keys[i].name);
    }
}

/* ---- Counting ---- */

bool server_key_admit(const server_key *key, const ledger_time *now, ledger_verdict *verdict) {
    return ledger_enter(key->account, &key->limits, now, verdict);
}

void server_key_leave(const server_key *key) {
    ledger_leave(key->account);
}

const char *server_key_refusal(ledger_refusal refusal) {
    switch (refusal) {
    case LEDGER_QUOTA:
        return "this key has used its token quota";
    case LEDGER_CONCURRENT:
        return "this key has too many requests at once";
    default:
        return "this key exceeds its request rate";
    }
}

bool server_key_has_tokens(const server_key *key, const ledger_time *now, double *retry_seconds) {
    return ledger_has_tokens(key->account, &key->limits, now, retry_seconds);
}

void server_key_charge(const server_key *key, const ledger_time *now, const ledger_totals *usage) {
    ledger_charge(key->account, &key->limits, now, usage);
}

const ledger_limits *server_key_limits(const server_key *key) {
    return &key->limits;
}

ledger_account *server_key_account(const server_key *key) {
    return key->account;
}

/* ---- Rights ---- */

const char *server_key_name(const server_key *key) {
    return key == NULL ? "" : key->name;
}

bool server_key_owns(const server_key *key, const char *adapter) {
    size_t name = key == NULL ? 0 : strlen(key->name);
    return name > 0 && strncmp(adapter, key->name, name) == 0 && adapter[name] == ':' &&
           strchr(key->name, ':') == NULL;
}

const char *server_key_adapter(const server_key *key, const char *asked,
                               bool (*known)(const void *context, const char *name),
                               const void *context, char own[static KEY_ADAPTER_MAX]) {
    if (key == NULL || strchr(asked, ':') != NULL)
        return asked;
    int size = snprintf(own, KEY_ADAPTER_MAX, "%s:%s", key->name, asked);
    bool whole = size > 0 && size < KEY_ADAPTER_MAX;
    return whole && server_key_owns(key, own) && known(context, own) ? own : asked;
}

bool server_key_allows_adapter(const server_key *key, const char *adapter) {
    if (key == NULL)
        return true;
    if (adapter != NULL && strchr(adapter, ':') != NULL)
        return key->admin || server_key_owns(key, adapter);
    if (key->adapters == NULL)
        return true;
    for (size_t i = 0; i < key->adapter_count; i++)
        if (strcmp(key->adapters[i], adapter == NULL ? "base" : adapter) == 0)
            return true;
    return false;
}

uint32_t server_key_priority(const server_key *key) {
    return key == NULL ? PRIORITY_NORMAL : key->priority;
}

float server_key_weight(const server_key *key) {
    return key == NULL ? 0.0f : key->weight;
}

uint64_t server_key_kv_tokens(const server_key *key) {
    return key == NULL ? 0 : key->kv_tokens;
}

uint32_t server_key_own_adapters(const server_key *key) {
    return key == NULL ? 0 : key->own_adapters;
}

bool server_key_is_admin(const server_key *key) {
    return key != NULL && key->admin;
}

bool server_key_sees_metrics(const server_key *key) {
    return key == NULL || key->admin || key->metrics;
}
