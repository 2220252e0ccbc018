/* The memory of a remote device: an allocator whose blocks are protected unless the wall is open.
 */
#ifndef AVO_DEVICE_TEST_WALL_H
#define AVO_DEVICE_TEST_WALL_H

#include "base/allocator.h"

#include <pthread.h>

#define WALL_BLOCKS_MAX 4096

typedef struct wall_block {
    uint8_t *at;
    size_t bytes; /* whole pages */
} wall_block;

typedef struct wall {
    avo_allocator allocator; /* of protected blocks; any thread */
    pthread_mutex_t mutex;
    uint32_t open;   /* how many work behind it now */
    uint8_t *mapped; /* NULL: no memory was needed so far */
    uint8_t *range;  /* of addresses, within it */
    uint8_t *end;    /* of what was ever used in it */
    uint32_t count;  /* of blocks, in the order of addresses */
    wall_block blocks[WALL_BLOCKS_MAX];
} wall;

void wall_init(wall *wall);
/* All blocks have been given back. */
void wall_end(wall *wall);
/* Between these the calling thread, and all others, can reach the blocks. */
void wall_open(wall *wall);
void wall_close(wall *wall);

#endif
