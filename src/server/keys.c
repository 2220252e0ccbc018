/* The file of keys, their digests, and what each of them has used. */
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

#define KEY_BYTES_MIN   8
#define FILE_BYTES_MAX  ((size_t)8 << 20)
#define QUOTA_SECONDS   86400.0
#define PRIORITY_WORST  15
#define PRIORITY_NORMAL 8

/* What a key of this name has used; shared by readings of the file. */
typedef struct key_meter {
    atomic_uint references;
    pthread_mutex_t lock;
    double allowance; /* requests that may come at once */
    uint64_t refilled_ns;
    uint64_t window_ns; /* when the quota's window began; 0: not yet */
    uint64_t tokens;    /* used in it */
} key_meter;

struct server_key {
    const char *name;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    double requests_per_minute; /* 0: no limit */
    uint64_t token_quota;       /* 0: no limit */
    double quota_seconds;
    const char **adapters; /* NULL: all */
    size_t adapter_count;
    uint32_t priority;
    bool admin;
    key_meter *meter;
};

struct server_keys {
    atomic_uint references;
    arena arena;
    server_key *keys;
    size_t count;
};

/* ---- Meters ---- */

static key_meter *meter_open(void) {
    key_meter *meter = calloc(1, sizeof(*meter));
    if (meter == NULL)
        return NULL;
    atomic_init(&meter->references, 1);
    pthread_mutex_init(&meter->lock, NULL);
    meter->allowance = -1.0; /* full at the first request */
    return meter;
}

static void meter_release(key_meter *meter) {
    if (meter == NULL || atomic_fetch_sub(&meter->references, 1) != 1)
        return;
    pthread_mutex_destroy(&meter->lock);
    free(meter);
}

/* A minute's worth may come at once; after that as fast as the rate. */
static bool admit_rate(const server_key *key, uint64_t now_ns, double *retry_seconds) {
    key_meter *meter = key->meter;
    double most = key->requests_per_minute, rate = most / 60.0;
    if (most <= 0.0)
        return true;
    if (meter->allowance < 0.0)
        meter->allowance = most;
    else if (now_ns > meter->refilled_ns)
        meter->allowance += (double)(now_ns - meter->refilled_ns) * 1e-9 * rate;
    meter->refilled_ns = now_ns;
    meter->allowance = meter->allowance > most ? most : meter->allowance;
    if (meter->allowance < 1.0) {
        *retry_seconds = (1.0 - meter->allowance) / rate;
        return false;
    }
    meter->allowance -= 1.0;
    return true;
}

static void turn_window(const server_key *key, uint64_t now_ns) {
    key_meter *meter = key->meter;
    if (meter->window_ns == 0 || (double)(now_ns - meter->window_ns) * 1e-9 >= key->quota_seconds) {
        meter->window_ns = now_ns;
        meter->tokens = 0;
    }
}

bool server_key_admit(const server_key *key, uint64_t now_ns, double *retry_seconds,
                      const char **what) {
    key_meter *meter = key->meter;
    pthread_mutex_lock(&meter->lock);
    bool admitted = true;
    turn_window(key, now_ns);
    if (key->token_quota > 0 && meter->tokens >= key->token_quota) {
        *what = "this key has used its token quota";
        *retry_seconds = key->quota_seconds - (double)(now_ns - meter->window_ns) * 1e-9;
        admitted = false;
    } else if (!admit_rate(key, now_ns, retry_seconds)) {
        *what = "this key exceeds its request rate";
        admitted = false;
    }
    pthread_mutex_unlock(&meter->lock);
    return admitted;
}

void server_key_charge(const server_key *key, uint64_t now_ns, uint64_t tokens) {
    pthread_mutex_lock(&key->meter->lock);
    turn_window(key, now_ns);
    key->meter->tokens += tokens;
    pthread_mutex_unlock(&key->meter->lock);
}

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
    static const char *const known[] = {"name",     "key",         "sha256",
                                        "adapters", "priority",    "requests_per_minute",
                                        "admin",    "token_quota", "quota_seconds"};
    for (size_t i = 0; i < object->object.count; i++) {
        bool found = false;
        char shown[JSON_SHOWN_KEY_MAX];
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]) && !found; k++)
            found = text_is(object->object.members[i].key, known[k]);
        if (!found)
            return status_fail(
                error, AVO_ERROR_FORMAT,
                "line %u: unknown field \"%s\"; known: name, key, sha256, requests_per_minute, "
                "token_quota, quota_seconds, adapters, priority, admin",
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

static avo_status read_numbers(const json_value *object, server_key *key, avo_error *error) {
    int64_t quota = 0, priority = PRIORITY_NORMAL;
    key->quota_seconds = QUOTA_SECONDS;
    AVO_TRY(
        json_get_number(object, "requests_per_minute", 0.0, 1e9, &key->requests_per_minute, error));
    AVO_TRY(json_get_integer(object, "token_quota", 0, INT64_MAX, &quota, error));
    AVO_TRY(json_get_number(object, "quota_seconds", 1.0, 1e9, &key->quota_seconds, error));
    AVO_TRY(json_get_integer(object, "priority", 0, PRIORITY_WORST, &priority, error));
    AVO_TRY(json_get_boolean(object, "admin", &key->admin, error));
    if (key->requests_per_minute > 0.0 && key->requests_per_minute < 1.0)
        key->requests_per_minute = 1.0;
    key->token_quota = (uint64_t)quota;
    key->priority = (uint32_t)priority;
    return AVO_OK;
}

/* It goes into logs and reports. */
static bool is_name(text_view name) {
    for (size_t i = 0; i < name.size; i++)
        if ((unsigned char)name.data[i] < ' ' || name.data[i] == 0x7F)
            return false;
    return name.size > 0 && name.size <= KEY_NAME_MAX;
}

static avo_status read_key(server_keys *keys, const json_value *object, server_keys *before,
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
    AVO_TRY(read_numbers(object, key, error));
    AVO_TRY(read_adapters(keys, object, key, error));
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(keys->keys[i].name, key->name) == 0 ||
            memcmp(keys->keys[i].digest, key->digest, sizeof(key->digest)) == 0)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "line %u: \"%s\" has the same name or key as \"%s\"", object->line,
                               key->name, keys->keys[i].name);
    for (size_t i = 0; before != NULL && i < before->count; i++)
        if (strcmp(before->keys[i].name, key->name) == 0) {
            key->meter = before->keys[i].meter;
            atomic_fetch_add(&key->meter->references, 1);
        }
    if (key->meter == NULL)
        key->meter = meter_open();
    if (key->meter == NULL)
        return status_no_memory(error, "keys", sizeof(*key->meter));
    keys->count++;
    return AVO_OK;
}

static avo_status read_list(server_keys *keys, text_view text, server_keys *before,
                            avo_error *error) {
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
        status = read_key(keys, &list->array.items[i], before, error);
    arena_free(&tree);
    return status;
}

avo_status server_keys_read(const char *path, server_keys *before, server_keys **out,
                            avo_error *error) {
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
            : read_list(keys, (text_view){(const char *)map.bytes.data, map.bytes.size}, before,
                        error);
    file_map_close(&map);
    if (status != AVO_OK) {
        server_keys_release(keys);
        return status_prefix(error, status, "%s", path);
    }
    *out = keys;
    return AVO_OK;
}

server_keys *server_keys_share(server_keys *keys) {
    atomic_fetch_add(&keys->references, 1);
    return keys;
}

void server_keys_release(server_keys *keys) {
    if (keys == NULL || atomic_fetch_sub(&keys->references, 1) != 1)
        return;
    for (size_t i = 0; i < keys->count; i++)
        meter_release(keys->keys[i].meter);
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

const char *server_key_name(const server_key *key) {
    return key == NULL ? "" : key->name;
}

bool server_key_allows_adapter(const server_key *key, const char *adapter) {
    if (key == NULL || key->adapters == NULL)
        return true;
    for (size_t i = 0; i < key->adapter_count; i++)
        if (strcmp(key->adapters[i], adapter == NULL ? "base" : adapter) == 0)
            return true;
    return false;
}

uint32_t server_key_priority(const server_key *key) {
    return key == NULL ? PRIORITY_NORMAL : key->priority;
}

bool server_key_is_admin(const server_key *key) {
    return key != NULL && key->admin;
}
