/* Checks vector accesses in builds with sanitizers, in place of the sanitizers' own functions.
 *
 * gcc calls __asan_loadN for an access of 32 or 64 bytes. The function in gcc's runtime walks the
 * shadow memory byte by byte through several calls, which took a quarter of the time of the tests
 * that compute. This one reads the shadow of the whole access at once, and every byte is checked; a
 * finding is reported by the runtime.
 *
 * __tsan_read_range of gcc's runtime compares each of the four or eight words of a vector. This one
 * compares the first and the last word: two threads that share a vector share one of these, unless
 * their vectors are shifted against each other by less than a vector.
 *
 * The symbols are hidden, so that only objects of this build call them. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined AVO_SANITIZE_address

#define SHADOW_OFFSET 0x7fff8000u // of Linux on x86-64; a granule of 8 bytes has one byte there
#define GRANULE       8

void *__asan_region_is_poisoned(void *begin, size_t size);
void __asan_report_load_n(uintptr_t address, size_t size);
void __asan_report_store_n(uintptr_t address, size_t size);
__attribute__((visibility("hidden"))) void __asan_loadN(uintptr_t address, size_t size);
__attribute__((visibility("hidden"))) void __asan_storeN(uintptr_t address, size_t size);

// Whether the granules of an access are free of poison. 0: some are not, or it is too long to see.
__attribute__((no_sanitize("address"))) static inline int plainly_good(uintptr_t address,
                                                                       size_t size) {
    const char *shadow = (const char *)(SHADOW_OFFSET + address / GRANULE);
    size_t granules = (address + size - 1) / GRANULE - address / GRANULE + 1;
    uint32_t four[2];
    uint64_t eight[2];
    if (granules >= 8 && granules <= 16) {
        __builtin_memcpy(&eight[0], shadow, 8);
        __builtin_memcpy(&eight[1], shadow + granules - 8, 8);
        return (eight[0] | eight[1]) == 0;
    }
    if (granules >= 4 && granules <= 8) {
        __builtin_memcpy(&four[0], shadow, 4);
        __builtin_memcpy(&four[1], shadow + granules - 4, 4);
        return (four[0] | four[1]) == 0;
    }
    return 0;
}

void __asan_loadN(uintptr_t address, size_t size) {
    if (!plainly_good(address, size) && __asan_region_is_poisoned((void *)address, size))
        __asan_report_load_n(address, size);
}

void __asan_storeN(uintptr_t address, size_t size) {
    if (!plainly_good(address, size) && __asan_region_is_poisoned((void *)address, size))
        __asan_report_store_n(address, size);
}

#elif defined AVO_SANITIZE_thread

#define WORD 8

void __tsan_read8_pc(void *address, void *pc);
void __tsan_write8_pc(void *address, void *pc);
void __tsan_read_range_pc(void *address, size_t size, void *pc);
void __tsan_write_range_pc(void *address, size_t size, void *pc);
__attribute__((visibility("hidden"))) void __tsan_read_range(void *address, size_t size);
__attribute__((visibility("hidden"))) void __tsan_write_range(void *address, size_t size);

// Whether an access is a vector at an address of whole words.
static inline int is_vector(const void *address, size_t size) {
    return (size == 32 || size == 64) && (uintptr_t)address % WORD == 0;
}

void __tsan_read_range(void *address, size_t size) {
    void *pc = __builtin_return_address(0);
    if (!is_vector(address, size)) {
        __tsan_read_range_pc(address, size, pc);
        return;
    }
    __tsan_read8_pc(address, pc);
    __tsan_read8_pc((char *)address + size - WORD, pc);
}

void __tsan_write_range(void *address, size_t size) {
    void *pc = __builtin_return_address(0);
    if (!is_vector(address, size)) {
        __tsan_write_range_pc(address, size, pc);
        return;
    }
    __tsan_write8_pc(address, pc);
    __tsan_write8_pc((char *)address + size - WORD, pc);
}

#endif
