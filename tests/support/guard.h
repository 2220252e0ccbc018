/* Memory that ends where a page without access begins: the first byte read or written too far is a
 * fault, in code of any instruction set. */
#ifndef AVO_TESTS_GUARD_H
#define AVO_TESTS_GUARD_H

#include <stddef.h>

/* `size` bytes, all 0xA5, whose end is the end of the last page; never NULL. A page in front of the
 * first one has no access either. Aligned as far as `size` is a multiple. */
void *guard_take(size_t size);
void guard_give(void *memory, size_t size);

#endif
