/* The memory of a remote device: an allocator whose blocks are protected unless the wall is open.
 */
#ifndef AVO_DEVICE_TEST_WALL_H
#define AVO_DEVICE_TEST_WALL_H

#include "base/allocator.h"

#include <pthread.h>

typedef struct wall_block wall_block;

typedef struct wall {
    avo_allocator allocator; /* of protected blocks; any thread */
    pthread_mutex_t mutex;
    uint32_t open; /* how many work behind it now */
    wall_block *blocks;
} wall;

void wall_init(wall *wall);
/* All blocks have been given back. */
void wall_end(wall *wall);
/* Between these the calling thread, and all others, can reach the blocks. */
void wall_open(wall *wall);
void wall_close(wall *wall);

#endif
