/* What of the device's ways can be chosen, for measurements: "NAME=NUMBER". */
#include "device/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

cuda_tuning cuda_tuning_usual(void) {
    return (cuda_tuning){.rung = 2,
                         .graph = 1,
                         .early = 1,
                         .ahead = 0,
                         .pair = 1,
                         .whole = 8,
                         .depth = 2,
                         .ready = 32,
                         .lines = 640,
                         .tile = 9,
                         .wide = 9,
                         .tiles = 1,
                         .make = 1};
}

bool cuda_tuning_read(const char *text, size_t length, cuda_tuning *tuning) {
    struct {
        const char *name;
        uint32_t *number, most;
    } numbers[] = {{"rung=", &tuning->rung, 2},           {"graph=", &tuning->graph, 1},
                   {"early=", &tuning->early, 1},         {"ahead=", &tuning->ahead, 4096},
                   {"pair=", &tuning->pair, 1},           {"whole=", &tuning->whole, 4096},
                   {"depth=", &tuning->depth, FEW_DEPTH}, {"ready=", &tuning->ready, 65535},
                   {"room=", &tuning->room, 226},         {"tile=", &tuning->tile, 65535},
                   {"wide=", &tuning->wide, 65535},       {"tiles=", &tuning->tiles, 1},
                   {"lines=", &tuning->lines, 1024},      {"make=", &tuning->make, 1},
                   {"attend=", &tuning->attend, 1}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        size_t name = strlen(numbers[i].name);
        if (length <= name || strncmp(text, numbers[i].name, name) != 0)
            continue;
        char *end;
        unsigned long number = strtoul(text + name, &end, 10);
        *numbers[i].number = (uint32_t)number;
        return end == text + length && number <= numbers[i].most;
    }
    return false;
}
