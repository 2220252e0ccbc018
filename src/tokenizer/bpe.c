/* Merging: short words by scanning for the best pair, long ones with a heap over a linked list,
 * so that no input costs more than n log n. Both give the merges in the same order: lowest rank
 * first, and of equal ones the one furthest left. */
#include "tokenizer/bpe_int.h"

#include "base/allocator.h"
#include "tokenizer/unicode_int.h"

#define SHORT_WORD 32 /* symbols up to which scanning is faster than the heap */

void bpe_work_init(bpe_work *work, const avo_allocator *allocator) {
    *work = (bpe_work){.allocator = allocator};
}

void bpe_work_free(bpe_work *work) {
    allocator_give(work->allocator, work->symbols, work->symbol_capacity * sizeof(bpe_symbol));
    allocator_give(work->allocator, work->links, work->link_capacity * sizeof(uint32_t));
    allocator_give(work->allocator, work->heap, work->heap_capacity * sizeof(bpe_candidate));
    *work = (bpe_work){.allocator = work->allocator};
}

/* Room for `count` items, whose old contents are of no use. */
static bool make_room(const avo_allocator *allocator, void **items, size_t *capacity, size_t count,
                      size_t item_bytes) {
    if (count <= *capacity)
        return true;
    size_t larger = count < 64 ? 64 : count + count / 4;
    void *fresh = allocator_take(allocator, larger * item_bytes);
    if (fresh == NULL)
        return false;
    allocator_give(allocator, *items, *capacity * item_bytes);
    *items = fresh;
    *capacity = larger;
    return true;
}

/* Does a character without a symbol vanish, so that its neighbours meet? It does where there is
 * neither an unknown token nor a token for each of its bytes. */
static bool vanishes(const image *image, const char *text, uint32_t length) {
    if (image->header->unknown_symbol != IMAGE_NONE)
        return false;
    bool fallback = (image->header->flags & IMAGE_BYTE_FALLBACK) != 0;
    for (uint32_t i = 0; fallback && i < length; i++)
        fallback = image->bytes[(uint8_t)text[i]] != IMAGE_NONE;
    return !fallback;
}

/* One symbol per byte, or per character. */
static uint32_t first_symbols(const image *image, bpe_work *work, text_view word) {
    bpe_symbol *symbols = work->symbols;
    uint32_t count = 0;
    bool level = image->header->kind == IMAGE_BYTE_LEVEL;
    for (uint32_t at = 0, length = 1; at < word.size; at += length) {
        uint32_t symbol;
        if (level) {
            symbol = image->bytes[(uint8_t)word.data[at]];
        } else {
            uint32_t code_point;
            length = unicode_take(word.data + at, &code_point);
            symbol = image_find_character(image, code_point);
        }
        if (symbol == IMAGE_NONE && vanishes(image, word.data + at, length))
            continue;
        symbols[count++] = (bpe_symbol){symbol, at};
    }
    return count;
}

static inline const image_merge *pair_merge(const image *image, bpe_symbol left, bpe_symbol right) {
    if (left.id == IMAGE_NONE || right.id == IMAGE_NONE)
        return NULL;
    return image_find_merge(image, left.id, right.id);
}

static uint32_t merge_short(const image *image, bpe_work *work, uint32_t count) {
    bpe_symbol *symbols = work->symbols;
    uint32_t ranks[SHORT_WORD];
    uint32_t results[SHORT_WORD];
    for (uint32_t i = 0; i + 1 < count; i++) {
        const image_merge *merge = pair_merge(image, symbols[i], symbols[i + 1]);
        ranks[i] = merge == NULL ? IMAGE_NONE : merge->rank;
        results[i] = merge == NULL ? 0 : merge->result;
    }
    work->operations += count;
    for (;;) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (count < 2 || ranks[best] == IMAGE_NONE)
            return count;
        symbols[best].id = results[best];
        count--;
        for (uint32_t i = best + 1; i < count; i++) {
            symbols[i] = symbols[i + 1];
            ranks[i - 1] = ranks[i];
            results[i - 1] = results[i];
        }
        work->operations += 2;
        if (best > 0) {
            const image_merge *merge = pair_merge(image, symbols[best - 1], symbols[best]);
            ranks[best - 1] = merge == NULL ? IMAGE_NONE : merge->rank;
            results[best - 1] = merge == NULL ? 0 : merge->result;
        }
        if (best + 1 < count) {
            const image_merge *merge = pair_merge(image, symbols[best], symbols[best + 1]);
            ranks[best] = merge == NULL ? IMAGE_NONE : merge->rank;
            results[best] = merge == NULL ? 0 : merge->result;
        }
    }
}

/* ---- Long words ---- */

static inline bool before(bpe_candidate a, bpe_candidate b) {
    return a.rank < b.rank || (a.rank == b.rank && a.at < b.at);
}

static void heap_push(bpe_work *work, size_t *size, bpe_candidate candidate) {
    bpe_candidate *heap = work->heap;
    size_t at = (*size)++;
    while (at > 0 && before(candidate, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
        work->operations++;
    }
    heap[at] = candidate;
}

static bpe_candidate heap_pop(bpe_work *work, size_t *size) {
    bpe_candidate *heap = work->heap;
    bpe_candidate top = heap[0];
    bpe_candidate last = heap[--(*size)];
    size_t at = 0;
    for (size_t child = 1; child < *size; child = 2 * at + 1) {
        if (child + 1 < *size && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], last))
            break;
        heap[at] = heap[child];
        at = child;
        work->operations++;
    }
    heap[at] = last;
    return top;
}

static void consider(const image *image, bpe_work *work, size_t *size, uint32_t at, uint32_t next) {
    const image_merge *merge = pair_merge(image, work->symbols[at], work->symbols[next]);
    work->operations++;
    if (merge != NULL)
        heap_push(work, size,
                  (bpe_candidate){merge->rank, at, work->symbols[at].id, work->symbols[next].id});
}

static uint32_t merge_long(const image *image, bpe_work *work, uint32_t count) {
    bpe_symbol *symbols = work->symbols;
    uint32_t *next = work->links;
    uint32_t *previous = work->links + count;
    size_t heap_size = 0;
    for (uint32_t i = 0; i < count; i++) {
        next[i] = i + 1;
        previous[i] = i - 1; /* of the first: IMAGE_NONE */
    }
    for (uint32_t i = 0; i + 1 < count; i++)
        consider(image, work, &heap_size, i, i + 1);
    while (heap_size > 0) {
        bpe_candidate top = heap_pop(work, &heap_size);
        uint32_t left = top.at;
        uint32_t right = next[left];
        /* A symbol that was merged away has next = 0; a pair that changed is out of date. */
        if (right == 0 || right >= count || symbols[left].id != top.left ||
            symbols[right].id != top.right)
            continue;
        const image_merge *merge = image_find_merge(image, top.left, top.right);
        if (merge == NULL)
            continue;
        symbols[left].id = merge->result;
        next[left] = next[right];
        next[right] = 0;
        if (next[left] < count) {
            previous[next[left]] = left;
            consider(image, work, &heap_size, left, next[left]);
        }
        if (previous[left] != IMAGE_NONE)
            consider(image, work, &heap_size, previous[left], left);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0, follow; i < count; i = follow) {
        follow = next[i];
        symbols[kept++] = symbols[i];
    }
    return kept;
}

avo_status bpe_word(const image *image, bpe_work *work, text_view word, uint32_t *count) {
    if (word.size > BPE_WORD_MAX)
        return AVO_ERROR_LIMIT;
    if (!make_room(work->allocator, (void **)&work->symbols, &work->symbol_capacity, word.size + 1,
                   sizeof(bpe_symbol)))
        return AVO_ERROR_MEMORY;
    uint32_t symbols = first_symbols(image, work, word);
    if (symbols <= SHORT_WORD) {
        *count = merge_short(image, work, symbols);
    } else {
        /* Every merge takes one candidate off and puts at most two on. */
        if (!make_room(work->allocator, (void **)&work->links, &work->link_capacity,
                       (size_t)symbols * 2, sizeof(uint32_t)) ||
            !make_room(work->allocator, (void **)&work->heap, &work->heap_capacity,
                       (size_t)symbols * 2, sizeof(bpe_candidate)))
            return AVO_ERROR_MEMORY;
        *count = merge_long(image, work, symbols);
    }
    work->symbols[*count].begin = (uint32_t)word.size;
    return AVO_OK;
}
