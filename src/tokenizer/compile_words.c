/* Which tokens does their own text encode to? Encoding then finds such a word in one look-up.
 *
 * To encode every token would cost more than the rest of a compilation. Where merging is orderly,
 * that is where no merge makes a symbol that a merge of lower rank uses, it applies merges in
 * ascending order of rank, and a token is a word if and only if, for one merge (left, right) that
 * makes it,
 *
 *   - left and right are words, and
 *   - while the two halves become left and right, no merge joins the last symbol of the first
 *     half with the first symbol of the second.
 *
 * For until a merge crosses the cut, neither half notices the other. The symbols at the cut are
 * known: the right edge of left's tree of merges and the left edge of right's. A symbol lives from
 * the rank that makes it to the rank that uses it, so a pair of them that is alive together merges
 * if its own rank comes before the end of both. Of equal ranks, which are the same merge at two
 * places, the one further left is first.
 */
#include "tokenizer/draft_int.h"

#include "tokenizer/bpe_int.h"

/* How a symbol comes about when its own text is encoded. */
typedef struct formed {
    uint32_t left, right; /* what it was merged from */
    uint32_t time;        /* rank + 1; 0: the symbol of a byte; IMAGE_NONE: it does not */
    bool used;            /* by a merge seen so far */
} formed;

/* Which pairs may merge: a bit set that stays in a near cache, unlike the table of merges. Nearly
 * all pairs that are asked for do not merge. */
typedef struct pair_set {
    uint64_t *bits;
    uint32_t mask;
} pair_set;

static uint32_t pair_bit(const pair_set *set, uint32_t left, uint32_t right) {
    return (uint32_t)(image_pair_hash(left, right) >> 32) & set->mask;
}

static avo_status pair_set_make(draft *draft, pair_set *set) {
    uint32_t bits = 64;
    while (bits < draft->merge_count * 16 && bits < 1u << 31)
        bits *= 2;
    set->mask = bits - 1;
    set->bits = arena_take_array(draft->arena, bits / 64, sizeof(uint64_t));
    if (set->bits == NULL)
        return draft_no_memory(draft);
    for (size_t i = 0; i < draft->merge_count; i++) {
        uint32_t bit = pair_bit(set, draft->merges[i].left, draft->merges[i].right);
        set->bits[bit >> 6] |= (uint64_t)1 << (bit & 63);
    }
    return AVO_OK;
}

/* Does a merge join the halves before they have become `left` and `right`? From the end back to
 * the bytes: what was formed last is taken apart first. */
static bool crosses(const image *image, const pair_set *pairs, const formed *formed, uint32_t left,
                    uint32_t right) {
    for (;;) {
        uint32_t left_time = formed[left].time;
        uint32_t right_time = formed[right].time;
        if (left_time == 0 && right_time == 0)
            return false;
        bool of_right = right_time >= left_time;
        uint32_t end = of_right ? right_time : left_time;
        if (of_right)
            right = formed[right].left;
        else
            left = formed[left].right;
        uint32_t bit = pair_bit(pairs, left, right);
        if (!(pairs->bits[bit >> 6] >> (bit & 63) & 1))
            continue;
        const image_merge *merge = image_find_merge(image, left, right);
        /* At the same rank the crossing pair goes before what is right of it. */
        if (merge != NULL && merge->rank + 1 < end + (of_right ? 1 : 0))
            return true;
    }
}

/* Fills `formed`; false when merging is not orderly, and every token must be encoded. */
static bool form(const draft *draft, const image *image, const pair_set *pairs, formed *formed) {
    for (uint32_t id = 0; id < draft->vocabulary; id++)
        formed[id].time = IMAGE_NONE;
    for (uint32_t byte = 0; byte < 256; byte++) /* one without a symbol is part of no merge */
        if (image->bytes[byte] != IMAGE_NONE)
            formed[image->bytes[byte]].time = 0;
    for (size_t i = 0; i < draft->merge_count; i++) {
        draft_merge merge = draft->merges[i];
        formed[merge.left].used = true;
        formed[merge.right].used = true;
        if (formed[merge.result].used || (i > 0 && merge.rank <= draft->merges[i - 1].rank))
            return false;
        if (formed[merge.result].time == IMAGE_NONE && formed[merge.left].time != IMAGE_NONE &&
            formed[merge.right].time != IMAGE_NONE &&
            !crosses(image, pairs, formed, merge.left, merge.right)) {
            formed[merge.result].left = merge.left;
            formed[merge.result].right = merge.right;
            formed[merge.result].time = merge.rank + 1;
        }
    }
    return true;
}

/* Enters a token under the bytes it stands for. */
static avo_status enter_word(const draft *draft, const image *image, image_word *table,
                             uint32_t id) {
    text_view word = image_word_text(image, id);
    uint64_t hash = image_hash(word.data, word.size);
    uint32_t at = (uint32_t)hash & image->word_mask;
    for (uint32_t probes = 0; probes < IMAGE_PROBES; probes++) {
        if (table[at].id == IMAGE_NONE) {
            table[at] = (image_word){(uint32_t)(hash >> 32), id};
            return AVO_OK;
        }
        at = (at + 1) & image->word_mask;
    }
    return draft_fail(draft, AVO_ERROR_LIMIT, "token %u: too many hash collisions", id);
}

static avo_status encodes_to_itself(const draft *draft, const image *image, bpe_work *work,
                                    uint32_t id, bool *whole) {
    uint32_t count;
    if (bpe_word(image, work, image_word_text(image, id), &count) != AVO_OK)
        return draft_no_memory(draft);
    *whole = count == 1 && work->symbols[0].id == id;
    return AVO_OK;
}

/* With ignore_merges: all that text may become. */
static avo_status enter_words(const draft *draft, const image *image, const formed *formed,
                              bpe_work *work, image_word *table) {
    for (uint32_t id = 0; id < draft->vocabulary; id++) {
        const draft_token *token = &draft->tokens[id];
        bool whole = token->mergeable && token->found && image_word_text(image, id).size > 0;
        if (whole && !draft->ignore_merges) {
            if (formed != NULL && !token->literal)
                whole = formed[id].time != IMAGE_NONE;
            else
                AVO_TRY(encodes_to_itself(draft, image, work, id, &whole));
        }
        if (whole)
            AVO_TRY(enter_word(draft, image, table, id));
    }
    return AVO_OK;
}

avo_status compile_words(draft *draft, const image *image, image_word *table) {
    formed *formed = NULL;
    /* Where a pair is listed twice, ranks do not tell which merge is meant. */
    if (draft->kind == IMAGE_BYTE_LEVEL && !draft->ignore_merges &&
        image->header->merges == draft->merge_count) {
        pair_set pairs;
        AVO_TRY(pair_set_make(draft, &pairs));
        formed = arena_take_array(draft->arena, draft->vocabulary, sizeof(*formed));
        if (formed == NULL)
            return draft_no_memory(draft);
        if (!form(draft, image, &pairs, formed))
            formed = NULL;
    }
    bpe_work work;
    bpe_work_init(&work, draft->arena->allocator);
    avo_status status = enter_words(draft, image, formed, &work, table);
    bpe_work_free(&work);
    return status;
}
