/* Merging: the most frequent pair of neighbours becomes a token, until the vocabulary is full.
 *
 * Every pair has its count over all words and a list of the words it was seen in. A heap holds
 * pairs by count; a count that has changed since is noticed when its pair comes out, and the pair
 * goes back with the new one. A merge visits the words of its pair alone. */
#include "train/bpe_int.h"

#include "base/hash.h"

#include <assert.h>
#include <string.h>

typedef struct bpe_pair {
    uint32_t left, right;
    int64_t count;
    uint32_t places; /* the newest of its list; BPE_NONE: none */
    uint32_t grown;  /* the last merge that it became more frequent by, counted from 1 */
} bpe_pair;

typedef struct bpe_place {
    uint32_t word, next;
} bpe_place;

typedef struct bpe_entry {
    uint64_t count;
    uint32_t left, right, pair;
} bpe_entry;

typedef struct merger {
    train_bpe *bpe;
    const avo_allocator *allocator;
    bpe_array pairs, places, heap, grown;
    uint32_t *slots; /* [slot_count] pair + 1, 0: free */
    size_t slot_count;
    uint32_t *names; /* [name_count] token + 1 by its text */
    size_t name_count;
} merger;

static avo_status no_memory(avo_error *error) {
    return status_fail(error, AVO_ERROR_MEMORY, "out of memory for the pairs of a vocabulary");
}

static bpe_pair *pairs_of(const merger *merger) {
    return merger->pairs.items;
}

/* ---- The heap: largest count first, then smaller ids ---- */

static bool before(const bpe_entry *a, const bpe_entry *b) {
    if (a->count != b->count)
        return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static bool push(merger *merger, uint32_t pair) {
    const bpe_pair *from = &pairs_of(merger)[pair];
    if (from->count <= 0)
        return true;
    if (bpe_array_add(merger->allocator, &merger->heap) == NULL)
        return false;
    bpe_entry *heap = merger->heap.items;
    bpe_entry entry = {(uint64_t)from->count, from->left, from->right, pair};
    size_t at = merger->heap.count - 1;
    for (; at > 0 && before(&entry, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
    return true;
}

static bpe_entry pop(merger *merger) {
    bpe_entry *heap = merger->heap.items;
    bpe_entry top = heap[0], last = heap[--merger->heap.count];
    size_t at = 0, count = merger->heap.count;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < count && before(&heap[child + 1], &heap[child]))
            child++;
        if (child >= count || !before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* ---- Pairs ---- */

static size_t find_pair(const merger *merger, uint32_t left, uint32_t right) {
    size_t mask = merger->slot_count - 1;
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ull;
    size_t slot = (size_t)(key >> 20) & mask;
    while (merger->slots[slot] != 0) {
        const bpe_pair *pair = &pairs_of(merger)[merger->slots[slot] - 1];
        if (pair->left == left && pair->right == right)
            break;
        slot = (slot + 1) & mask;
    }
    return slot;
}

static bool grow_pairs(merger *merger) {
    size_t count = merger->slot_count == 0 ? 4096 : merger->slot_count * 2;
    uint32_t *slots = allocator_take_array(merger->allocator, count, sizeof(*slots));
    if (slots == NULL)
        return false;
    allocator_give(merger->allocator, merger->slots, merger->slot_count * sizeof(*slots));
    merger->slots = slots;
    merger->slot_count = count;
    for (size_t i = 0; i < merger->pairs.count; i++)
        slots[find_pair(merger, pairs_of(merger)[i].left, pairs_of(merger)[i].right)] =
            (uint32_t)i + 1;
    return true;
}

/* Changes a pair's count by what the word counts; one more is noted with the word. *pair: which. */
static bool change_pair(merger *merger, uint32_t left, uint32_t right, uint32_t word, int64_t by,
                        uint32_t *which) {
    if (merger->pairs.count * 2 >= merger->slot_count && !grow_pairs(merger))
        return false;
    size_t slot = find_pair(merger, left, right);
    if (merger->slots[slot] == 0) {
        bpe_pair *pair = bpe_array_add(merger->allocator, &merger->pairs);
        if (pair == NULL)
            return false;
        *pair = (bpe_pair){.left = left, .right = right, .places = BPE_NONE};
        merger->slots[slot] = (uint32_t)merger->pairs.count;
    }
    *which = merger->slots[slot] - 1;
    bpe_pair *pair = &pairs_of(merger)[*which];
    pair->count += by;
    const bpe_place *places = merger->places.items;
    if (by < 0 || (pair->places != BPE_NONE && places[pair->places].word == word))
        return true;
    bpe_place *place = bpe_array_add(merger->allocator, &merger->places);
    if (place == NULL || merger->places.count >= BPE_NONE)
        return false;
    *place = (bpe_place){word, pair->places};
    pair->places = (uint32_t)merger->places.count - 1;
    return true;
}

/* ---- Tokens ---- */

static size_t find_name(const merger *merger, text_view text) {
    size_t mask = merger->name_count - 1;
    size_t slot = (size_t)hash_key(text.data, text.size) & mask;
    while (merger->names[slot] != 0 &&
           !text_equal(merger->bpe->tokens[merger->names[slot] - 1].text, text))
        slot = (slot + 1) & mask;
    return slot;
}

/* The token of two others, which may be there already: "ab"+"c" and "a"+"bc". */
static bool join_tokens(merger *merger, const bpe_pair *pair, uint32_t *id) {
    train_bpe *bpe = merger->bpe;
    text_view left = bpe->tokens[pair->left].text, right = bpe->tokens[pair->right].text;
    char *text = arena_take(&bpe->arena, left.size + right.size);
    if (text == NULL)
        return false;
    memcpy(text, left.data, left.size);
    memcpy(text + left.size, right.data, right.size);
    text_view joined = {text, left.size + right.size};
    size_t slot = find_name(merger, joined);
    if (merger->names[slot] == 0) {
        bpe->tokens[bpe->token_count++].text = joined;
        merger->names[slot] = bpe->token_count;
    }
    *id = merger->names[slot] - 1;
    return true;
}

/* Whether the pair's token would have the text of a special token. */
static bool is_special(const train_bpe *bpe, const bpe_pair *pair) {
    text_view left = bpe->tokens[pair->left].text, right = bpe->tokens[pair->right].text;
    for (size_t i = 0; i < bpe->options.special_count; i++) {
        text_view special = bpe->tokens[i].text;
        if (special.size == left.size + right.size && text_starts(special, left) &&
            text_ends(special, right))
            return true;
    }
    return false;
}

static bool fits(const merger *merger, uint32_t left, uint32_t right) {
    const bpe_token *tokens = merger->bpe->tokens;
    return tokens[left].text.size + tokens[right].text.size <= TRAIN_BPE_TOKEN_MAX;
}

/* ---- Merging ---- */

static bool note_grown(merger *merger, uint32_t pair) {
    uint32_t merge = (uint32_t)merger->bpe->merges.count;
    if (pairs_of(merger)[pair].grown == merge)
        return true;
    pairs_of(merger)[pair].grown = merge;
    uint32_t *grown = bpe_array_add(merger->allocator, &merger->grown);
    if (grown != NULL)
        *grown = pair;
    return grown != NULL;
}

/* A pair beside the merged one: the old neighbourhood goes, the new one comes. */
static bool change_beside(merger *merger, uint32_t word, const uint32_t old[2],
                          const uint32_t new[2]) {
    int64_t count = (int64_t)bpe_words(merger->bpe)[word].count;
    uint32_t pair;
    if (fits(merger, old[0], old[1]) && !change_pair(merger, old[0], old[1], word, -count, &pair))
        return false;
    if (!fits(merger, new[0], new[1]))
        return true;
    return change_pair(merger, new[0], new[1], word, count, &pair) && note_grown(merger, pair);
}

/* Joins left and right wherever they are neighbours in a word, from its front on. */
static bool merge_word(merger *merger, uint32_t index, uint32_t left, uint32_t right, uint32_t id) {
    bpe_word *word = &bpe_words(merger->bpe)[index];
    uint32_t *symbols = word->symbols;
    uint32_t count = 0;
    for (uint32_t i = 0; i < word->size; i++) {
        if (symbols[i] != left || i + 1 >= word->size || symbols[i + 1] != right) {
            symbols[count++] = symbols[i];
            continue;
        }
        if (count > 0 && !change_beside(merger, index, (uint32_t[]){symbols[count - 1], left},
                                        (uint32_t[]){symbols[count - 1], id}))
            return false;
        if (i + 2 < word->size && !change_beside(merger, index, (uint32_t[]){right, symbols[i + 2]},
                                                 (uint32_t[]){id, symbols[i + 2]}))
            return false;
        symbols[count++] = id;
        i++;
    }
    word->size = count;
    return true;
}

static bool merge_pair(merger *merger, uint32_t index) {
    bpe_pair pair = pairs_of(merger)[index];
    uint32_t id;
    bpe_merge *merge = bpe_array_add(merger->allocator, &merger->bpe->merges);
    if (merge == NULL || !join_tokens(merger, &pair, &id))
        return false;
    *merge = (bpe_merge){pair.left, pair.right};
    merger->grown.count = 0;
    for (uint32_t place = pair.places; place != BPE_NONE;) {
        bpe_place at = ((const bpe_place *)merger->places.items)[place];
        if (!merge_word(merger, at.word, pair.left, pair.right, id))
            return false;
        place = at.next;
    }
    pairs_of(merger)[index].count = 0;
    pairs_of(merger)[index].places = BPE_NONE;
    for (size_t i = 0; i < merger->grown.count; i++) {
        if (!push(merger, ((const uint32_t *)merger->grown.items)[i]))
            return false;
    }
    return true;
}

static avo_status merge_all(merger *merger, avo_error *error) {
    train_bpe *bpe = merger->bpe;
    const train_bpe_options *options = &bpe->options;
    uint64_t least = options->count_min == 0 ? 1 : options->count_min;
    while (bpe->token_count < options->vocabulary && merger->heap.count > 0) {
        bpe_entry top = pop(merger);
        int64_t count = pairs_of(merger)[top.pair].count;
        if (count != (int64_t)top.count) {
            if (!push(merger, top.pair))
                return no_memory(error);
            continue;
        }
        if (top.count < least)
            break;
        if (is_special(bpe, &pairs_of(merger)[top.pair]))
            pairs_of(merger)[top.pair].count = 0; /* plain text must not become one */
        else if (!merge_pair(merger, top.pair))
            return no_memory(error);
        if (options->progress != NULL && bpe->merges.count % 256 == 0 &&
            !options->progress(options->progress_context, "merging tokens", bpe->token_count,
                               options->vocabulary))
            return status_fail(error, AVO_ERROR_CANCELLED, "training a vocabulary was cancelled");
    }
    return AVO_OK;
}

/* ---- The beginning ---- */

/* Words of bytes' tokens, and the pairs in them. */
static bool begin_words(merger *merger) {
    train_bpe *bpe = merger->bpe;
    for (size_t w = 0; w < bpe->words.count; w++) {
        bpe_word *word = &bpe_words(bpe)[w];
        word->symbols = arena_take_array(&bpe->arena, word->size, sizeof(uint32_t));
        if (word->symbols == NULL)
            return false;
        for (uint32_t i = 0; i < word->size; i++)
            word->symbols[i] = bpe->byte_ids[(uint8_t)word->text[i]];
        uint32_t pair;
        for (uint32_t i = 0; i + 1 < word->size; i++)
            if (!change_pair(merger, word->symbols[i], word->symbols[i + 1], (uint32_t)w,
                             (int64_t)word->count, &pair))
                return false;
    }
    for (uint32_t i = 0; i < merger->pairs.count; i++)
        if (!push(merger, i))
            return false;
    return true;
}

static avo_status begin_names(merger *merger, avo_error *error) {
    train_bpe *bpe = merger->bpe;
    merger->name_count = 1024;
    while (merger->name_count < (size_t)bpe->options.vocabulary * 2)
        merger->name_count *= 2;
    merger->names = allocator_take_array(merger->allocator, merger->name_count, sizeof(uint32_t));
    if (merger->names == NULL)
        return no_memory(error);
    for (uint32_t id = (uint32_t)bpe->options.special_count; id < bpe->token_count; id++)
        merger->names[find_name(merger, bpe->tokens[id].text)] = id + 1;
    return AVO_OK;
}

avo_status train_bpe_run(train_bpe *bpe, avo_error *error) {
    if (bpe->ran)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the vocabulary is made already");
    if (bpe->words.count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "there is no text to make a vocabulary from");
    bpe->ran = true;
    merger merger = {.bpe = bpe,
                     .allocator = bpe->options.allocator,
                     .pairs.size = sizeof(bpe_pair),
                     .places.size = sizeof(bpe_place),
                     .heap.size = sizeof(bpe_entry),
                     .grown.size = sizeof(uint32_t)};
    avo_status status = begin_names(&merger, error);
    if (status == AVO_OK && !begin_words(&merger))
        status = no_memory(error);
    AVO_THEN(status, merge_all(&merger, error));
    allocator_give(merger.allocator, merger.slots, merger.slot_count * sizeof(uint32_t));
    allocator_give(merger.allocator, merger.names, merger.name_count * sizeof(uint32_t));
    bpe_array_free(merger.allocator, &merger.pairs);
    bpe_array_free(merger.allocator, &merger.places);
    bpe_array_free(merger.allocator, &merger.heap);
    bpe_array_free(merger.allocator, &merger.grown);
    return status;
}

/* Special tokens, then bytes by the code points that stand for them: 33…, 161…, then 256… for the
 * bytes without a character of their own. */
static avo_status begin_tokens(train_bpe *bpe, avo_error *error) {
    const train_bpe_options *options = &bpe->options;
    for (size_t i = 0; i < options->special_count; i++) {
        text_view text = text_from(options->special[i]);
        if (text.size == 0 || text.size > TRAIN_BPE_TOKEN_MAX)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "special token %zu has %zu bytes, must have 1 to %d", i, text.size,
                               TRAIN_BPE_TOKEN_MAX);
        for (size_t before = 0; before < i; before++)
            if (text_equal(text, bpe->tokens[before].text))
                return status_fail(error, AVO_ERROR_ARGUMENT,
                                   "special token \"%.*s\" is given twice", TEXT_ARGUMENT(text));
        bpe->tokens[bpe->token_count++].text = text;
    }
    char *bytes = arena_take(&bpe->arena, 256);
    if (bytes == NULL)
        return no_memory(error);
    for (uint32_t character = 0; character < 512; character++)
        for (uint32_t byte = 0; byte < 256; byte++)
            if (word_byte_character((uint8_t)byte) == character) {
                bytes[byte] = (char)byte;
                bpe->byte_ids[byte] = bpe->token_count;
                bpe->tokens[bpe->token_count++].text = (text_view){bytes + byte, 1};
            }
    return AVO_OK;
}

avo_status train_bpe_open(const train_bpe_options *options, train_bpe **out, avo_error *error) {
    *out = NULL;
    if (options->special_count > TRAIN_BPE_SPECIAL_MAX ||
        options->vocabulary < 256 + options->special_count ||
        options->vocabulary > TRAIN_BPE_VOCABULARY_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a vocabulary of %u tokens, must be %zu (256 bytes and %zu special "
                           "tokens, of which at most %d) to %u",
                           options->vocabulary, 256 + options->special_count,
                           options->special_count, TRAIN_BPE_SPECIAL_MAX, TRAIN_BPE_VOCABULARY_MAX);
    train_bpe *bpe = allocator_take(options->allocator, sizeof(*bpe));
    if (bpe == NULL)
        return no_memory(error);
    *bpe = (train_bpe){
        .options = *options, .words.size = sizeof(bpe_word), .merges.size = sizeof(bpe_merge)};
    arena_init(&bpe->arena, options->allocator, SIZE_MAX);
    bpe->tokens =
        allocator_take_array(options->allocator, options->vocabulary, sizeof(*bpe->tokens));
    avo_status status = bpe->tokens == NULL ? no_memory(error) : begin_tokens(bpe, error);
    if (status != AVO_OK) {
        train_bpe_close(bpe);
        return status;
    }
    *out = bpe;
    return AVO_OK;
}

void train_bpe_close(train_bpe *bpe) {
    if (bpe == NULL)
        return;
    const avo_allocator *allocator = bpe->options.allocator;
    allocator_give(allocator, bpe->tokens, bpe->options.vocabulary * sizeof(*bpe->tokens));
    allocator_give(allocator, bpe->slots, bpe->slot_count * sizeof(*bpe->slots));
    bpe_array_free(allocator, &bpe->words);
    bpe_array_free(allocator, &bpe->merges);
    arena_free(&bpe->arena);
    allocator_give(allocator, bpe, sizeof(*bpe));
}

train_bpe_info train_bpe_describe(const train_bpe *bpe) {
    return (train_bpe_info){.bytes = bpe->bytes,
                            .words = bpe->words.count,
                            .merges = (uint32_t)bpe->merges.count,
                            .vocabulary = bpe->token_count};
}
