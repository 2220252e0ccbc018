/* The order of samples in an epoch: a keyed permutation of [0, 4^b) by a Feistel network, walked
 * until it falls into [0, samples). It takes no memory, and any index can be asked for alone. */
#include "base/random.h"
#include "train/data.h"

#include <assert.h>

#define ROUNDS 6
#define STREAM 0x6F72646572ull /* apart from other draws with the seed */

static uint64_t permute(uint64_t value, unsigned bits, uint64_t seed, uint64_t epoch) {
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t left = value >> bits, right = value & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        random_block block = random_at(seed, STREAM + epoch, round << 32 | right);
        uint64_t mixed = left ^ (block.words[0] & mask);
        left = right;
        right = mixed;
    }
    return left << bits | right;
}

uint64_t train_data_order(uint64_t samples, uint64_t seed, uint64_t epoch, uint64_t index) {
    assert(index < samples && samples <= (uint64_t)1 << 62);
    unsigned bits = 1;
    while ((uint64_t)1 << (2 * bits) < samples)
        bits++;
    /* Four values at most for each sample: few steps. A cycle comes back to where it began, so the
     * walk ends. */
    do {
        index = permute(index, bits, seed, epoch);
    } while (index >= samples);
    return index;
}
