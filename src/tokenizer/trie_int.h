/* Who keeps a tokenizer's trie. */
#ifndef AVO_TOKENIZER_TRIE_INT_H
#define AVO_TOKENIZER_TRIE_INT_H

#include <avocet.h>

typedef struct trie_keeper trie_keeper;
/* NULL: no memory. */
trie_keeper *trie_keeper_open(const avo_allocator *allocator);
void trie_keeper_close(trie_keeper *keeper);

#endif
