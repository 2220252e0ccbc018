/* Little-endian float32 arrays as numpy writes them, for fixtures. */
#ifndef AVO_TESTS_NPY_H
#define AVO_TESTS_NPY_H

#include "base/file.h"
#include "support/support.h"

#include <string.h>

typedef struct npy {
    file_map map;
    const float *numbers;
    size_t count;
} npy;

static inline void npy_open(npy *array, const char *path) {
    avo_error error;
    uint16_t header;
    assert_ok_error(file_map_open(path, &array->map, &error), &error);
    assert_true(array->map.bytes.size > 10);
    assert_memory_equal(array->map.bytes.data, "\x93NUMPY", 6);
    memcpy(&header, array->map.bytes.data + 8, sizeof(header));
    array->numbers = (const float *)(const void *)(array->map.bytes.data + 10 + header);
    array->count = (array->map.bytes.size - 10 - header) / sizeof(float);
}

static inline void npy_close(npy *array) {
    file_map_close(&array->map);
}

#endif
