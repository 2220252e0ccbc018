/* Connections and bytes of each address, in a table with open addressing. */
#include "server/transport/addresses.h"

#include "base/hash.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct address_slot {
    address_key key;
    uint32_t count; /* no connections and no bytes: free, or was used: a search goes on */
    uint64_t bytes;
    bool used;
} address_slot;

struct address_table {
    pthread_mutex_t lock;
    address_slot *slots;
    uint32_t mask, addresses; /* slots that were ever used since it was last cleaned */
};

address_table *addresses_open(uint32_t connections) {
    uint32_t size = 64;
    while (size < connections * 4u && size < 1u << 24)
        size *= 2;
    address_table *table = calloc(1, sizeof(*table));
    if (table == NULL)
        return NULL;
    table->slots = calloc(size, sizeof(*table->slots));
    table->mask = size - 1;
    pthread_mutex_init(&table->lock, NULL);
    if (table->slots == NULL) {
        addresses_close(table);
        return NULL;
    }
    return table;
}

void addresses_close(address_table *table) {
    if (table == NULL)
        return;
    pthread_mutex_destroy(&table->lock);
    free(table->slots);
    free(table);
}

address_key address_of(const struct sockaddr *address) {
    address_key key = {0, 0};
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)address;
        key.low = 0xFFFF00000000u | ntohl(four->sin_addr.s_addr);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
            uint32_t four;
            memcpy(&four, six->sin6_addr.s6_addr + 12, sizeof(four));
            key.low = 0xFFFF00000000u | ntohl(four);
        } else {
            memcpy(&key.high, six->sin6_addr.s6_addr, sizeof(key.high));
            key.low = 1;
        }
    }
    return key;
}

bool address_is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_UNIX)
        return true;
    address_key key = address_of(address);
    if ((key.low >> 32) == 0xFFFF)
        return (key.low >> 24 & 0xFF) == 127;
    const struct sockaddr_in6 *six = (const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static bool same(address_key a, address_key b) {
    return a.high == b.high && a.low == b.low;
}

static address_slot *find(address_table *table, address_key key) {
    uint32_t at = (uint32_t)hash_key(&key, sizeof(key)) & table->mask;
    while (table->slots[at].used && !same(table->slots[at].key, key))
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

/* Addresses that have left stay in the way of searches until the table is half full of them. */
static void clean(address_table *table) {
    uint32_t size = table->mask + 1;
    address_slot *old = table->slots;
    address_slot *fresh = calloc(size, sizeof(*fresh));
    if (fresh == NULL)
        return;
    table->slots = fresh;
    table->addresses = 0;
    for (uint32_t i = 0; i < size; i++)
        if (old[i].count > 0 || old[i].bytes > 0) {
            *find(table, old[i].key) = old[i];
            table->addresses++;
        }
    free(old);
}

/* Its slot, made where it has none; NULL: the table is full. */
static address_slot *place(address_table *table, address_key key) {
    if (table->addresses > table->mask / 2)
        clean(table);
    address_slot *slot = find(table, key);
    if (!slot->used && table->addresses >= table->mask)
        return NULL;
    table->addresses += !slot->used;
    slot->used = true;
    slot->key = key;
    return slot;
}

bool addresses_enter(address_table *table, address_key key, uint32_t maximum) {
    pthread_mutex_lock(&table->lock);
    address_slot *slot = place(table, key);
    bool enters = slot != NULL && slot->count < maximum;
    if (enters)
        slot->count++;
    pthread_mutex_unlock(&table->lock);
    return enters;
}

void addresses_leave(address_table *table, address_key key) {
    pthread_mutex_lock(&table->lock);
    address_slot *slot = find(table, key);
    if (slot->count > 0)
        slot->count--;
    pthread_mutex_unlock(&table->lock);
}

bool addresses_take_bytes(address_table *table, address_key key, uint64_t bytes, uint64_t maximum) {
    pthread_mutex_lock(&table->lock);
    address_slot *slot = place(table, key);
    bool takes = slot != NULL && bytes <= maximum && slot->bytes <= maximum - bytes;
    if (takes)
        slot->bytes += bytes;
    pthread_mutex_unlock(&table->lock);
    return takes;
}

void addresses_give_bytes(address_table *table, address_key key, uint64_t bytes) {
    pthread_mutex_lock(&table->lock);
    address_slot *slot = find(table, key);
    slot->bytes -= bytes < slot->bytes ? bytes : slot->bytes;
    pthread_mutex_unlock(&table->lock);
}

address_key address_of_name(const char *name) {
    return (address_key){hash_key(name, strlen(name)), 2}; /* addresses have another low half */
}
