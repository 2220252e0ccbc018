/* How many connections each address has, and how much memory: a fixed table, so that a flood costs
 * no memory. IPv6 addresses count by their /64, which is what one subscriber gets. */
#ifndef AVO_SERVER_ADDRESSES_H
#define AVO_SERVER_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct address_table address_table;

/* Room for `connections` connections; NULL without memory. */
address_table *addresses_open(uint32_t connections);
void addresses_close(address_table *table);

/* An address as a number; 0: not counted (unix sockets). */
typedef struct address_key {
    uint64_t high, low;
} address_key;
address_key address_of(const struct sockaddr *address);
bool address_is_loopback(const struct sockaddr *address);

/* False: the address has `maximum` already. */
bool addresses_enter(address_table *table, address_key key, uint32_t maximum);
void addresses_leave(address_table *table, address_key key);

/* Bytes of memory that one of them holds, whether it has connections or not. False, and nothing is
 * taken, where it would have more than `maximum`. */
bool addresses_take_bytes(address_table *table, address_key key, uint64_t bytes, uint64_t maximum);
void addresses_give_bytes(address_table *table, address_key key, uint64_t bytes);
/* The holder of a key by that name, wherever it asks from; like no address. */
address_key address_of_name(const char *name);

#endif
