/* The texts of all tokens as a trie of bytes, for whoever asks which tokens may come next.
 *
 * Nodes stand in preorder: a node's descendants follow it, up to `end`. So a walk is one pass
 * forward that leaves out subtrees by a jump. Tokens without a text (special ones, unused ids, what
 * decodes to nothing) are not in it. The texts are those that an answer shows: as they stand behind
 * other text (AVO_TOKENIZE_CONTINUE).
 */
#ifndef AVO_TOKENIZER_TRIE_H
#define AVO_TOKENIZER_TRIE_H

#include "tokenizer/tokenizer.h"

typedef struct trie_node {
    uint32_t end;    /* the next node that is no descendant */
    uint32_t tokens; /* of this node: ids[tokens … tokens of the next node] */
    uint16_t depth;  /* bytes from the root */
    uint8_t byte;
} trie_node;

typedef struct token_trie {
    const trie_node *nodes; /* [count + 1]; node 0 is the root, the last one is a fence */
    uint32_t count;
    uint32_t depth_max; /* the longest token's bytes */
    const int32_t *ids; /* [token_count] */
    uint32_t token_count;
    uint32_t vocabulary;    /* of the tokenizer */
    const uint32_t *places; /* [vocabulary + 1] where a token's bytes begin in `bytes` */
    const char *bytes;
} token_trie;

/* Built when first asked for, and kept by the tokenizer. Any thread. */
AVO_MUST_USE avo_status tokenizer_trie(const tokenizer *tokenizer, const token_trie **out,
                                       avo_error *error);

static inline text_view trie_token(const token_trie *trie, int32_t id) {
    if (id < 0 || (uint32_t)id >= trie->vocabulary)
        return (text_view){"", 0};
    return (text_view){trie->bytes + trie->places[id], trie->places[id + 1] - trie->places[id]};
}

#endif
