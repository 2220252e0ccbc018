/* The trie of added tokens: sorted texts to nodes and edges, parents before children. */
#include "tokenizer/draft_int.h"

#include <stdlib.h>

typedef struct trie_item {
    text_view text;
    uint32_t added;
} trie_item;

static int by_text(const void *left, const void *right) {
    const trie_item *a = left;
    const trie_item *b = right;
    size_t common = a->text.size < b->text.size ? a->text.size : b->text.size;
    int order = common == 0 ? 0 : memcmp(a->text.data, b->text.data, common);
    if (order != 0)
        return order;
    if (a->text.size != b->text.size)
        return a->text.size < b->text.size ? -1 : 1;
    return (a->added > b->added) - (a->added < b->added);
}

/* A run of items that share their first `depth` bytes: one node. */
typedef struct trie_run {
    uint32_t first, last;
    uint32_t depth;
} trie_run;

/* Gives node `at` its edges and queues its children's runs. */
static void expand(const trie_item *items, compiled_trie *trie, trie_run *runs, uint32_t at) {
    trie_run run = runs[at];
    image_node *node = &trie->nodes[at];
    *node = (image_node){trie->edge_count, 0, IMAGE_NONE, 0};
    uint32_t i = run.first;
    while (i < run.last && items[i].text.size == run.depth) {
        if (node->added == IMAGE_NONE) /* of equal texts the first */
            node->added = items[i].added;
        i++;
    }
    while (i < run.last) {
        uint8_t byte = (uint8_t)items[i].text.data[run.depth];
        uint32_t begin = i;
        while (i < run.last && (uint8_t)items[i].text.data[run.depth] == byte)
            i++;
        runs[trie->node_count] = (trie_run){begin, i, run.depth + 1};
        trie->edges[trie->edge_count++] = (image_edge){byte, trie->node_count++};
        node->edge_count++;
    }
}

avo_status compile_trie(draft *draft, const draft_added *added, const uint32_t *members,
                        uint32_t count, compiled_trie *trie) {
    *trie = (compiled_trie){0};
    if (count == 0)
        return AVO_OK;
    trie_item *items = arena_take_array(draft->arena, count, sizeof(trie_item));
    if (items == NULL)
        return draft_no_memory(draft);
    size_t nodes = 1;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (added[members[i]].text.size == 0)
            continue;
        items[kept++] = (trie_item){added[members[i]].text, members[i]};
        nodes += added[members[i]].text.size;
    }
    qsort(items, kept, sizeof(trie_item), by_text);
    trie->nodes = arena_take_array(draft->arena, nodes, sizeof(image_node));
    trie->edges = arena_take_array(draft->arena, nodes, sizeof(image_edge));
    trie_run *runs = arena_take_array(draft->arena, nodes, sizeof(trie_run));
    if (trie->nodes == NULL || trie->edges == NULL || runs == NULL)
        return draft_no_memory(draft);
    runs[0] = (trie_run){0, kept, 0};
    trie->node_count = 1;
    for (uint32_t at = 0; at < trie->node_count; at++)
        expand(items, trie, runs, at);
    return AVO_OK;
}
