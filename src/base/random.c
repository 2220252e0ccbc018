/* Philox 4x32-10 after Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). */
#include "base/random.h"

random_block random_at(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t c0 = (uint32_t)counter;
    uint32_t c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream;
    uint32_t c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (random_block){{c0, c1, c2, c3}};
}

double random_uniform_at(uint64_t seed, uint64_t stream, uint64_t counter) {
    random_block block = random_at(seed, stream, counter);
    uint64_t bits = (uint64_t)block.words[0] << 32 | block.words[1];
    return (double)(bits >> 11) * 0x1p-53;
}
