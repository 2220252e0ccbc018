/* Finding added tokens: leftmost, then longest. */
#include "tokenizer/encode_int.h"

#include "tokenizer/unicode_int.h"

/* Does [begin, end) of the caller's text lie wholly in one trusted span? Spans ascend, and so do
 * the questions. */
static bool is_trusted(added_search *search, size_t begin, size_t end) {
    const encode_options *options = search->options;
    if (!options->trusted_given)
        return true;
    if (search->located) {
        begin += search->base;
        end += search->base;
    } else {
        begin = search->base;
        end = search->base + search->base_bytes;
    }
    while (search->trusted_at < options->trusted_count &&
           options->trusted[search->trusted_at].end <= begin)
        search->trusted_at++;
    return search->trusted_at < options->trusted_count &&
           options->trusted[search->trusted_at].begin <= begin &&
           end <= options->trusted[search->trusted_at].end;
}

static const image_node *child(const added_search *search, const image_node *node, uint8_t byte) {
    const image_edge *edges = search->image->edges[search->which] + node->first_edge;
    uint32_t low = 0;
    uint32_t high = node->edge_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (edges[middle].byte < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < node->edge_count && edges[low].byte == byte
               ? &search->image->nodes[search->which][edges[low].node]
               : NULL;
}

/* The character that ends at `end` of valid UTF-8, and where it begins. */
static uint32_t character_before(text_view text, size_t end, size_t *begin) {
    size_t at = end - 1;
    while (at > 0 && ((uint8_t)text.data[at] & 0xC0) == 0x80)
        at--;
    uint32_t code_point;
    unicode_take(text.data + at, &code_point);
    *begin = at;
    return code_point;
}

static bool stands_alone(text_view text, size_t begin, size_t end) {
    size_t ignored;
    uint32_t code_point;
    if (begin > 0 && (unicode_class(character_before(text, begin, &ignored)) & UNICODE_WORD_ALONE))
        return false;
    if (end == text.size)
        return true;
    unicode_take(text.data + end, &code_point);
    return !(unicode_class(code_point) & UNICODE_WORD_ALONE);
}

/* May this token be taken here at all? */
static bool counts(added_search *search, const image_added *added, size_t begin, size_t end) {
    if ((added->flags & ADDED_SPECIAL) &&
        (!search->options->special || !is_trusted(search, begin, end)))
        return false;
    return !(added->flags & ADDED_SINGLE) || stands_alone(search->text, begin, end);
}

/* Tokens come from files and need not be valid UTF-8, but they must not cut characters. */
static bool is_boundary(text_view text, size_t at) {
    return at == text.size || ((uint8_t)text.data[at] & 0xC0) != 0x80;
}

/* The longest token at `at`: its end, or 0. Where trust decides, a longer one that does not count
 * must not hide a shorter one that does; otherwise it does, as in the original. */
static size_t longest_at(added_search *search, size_t at, const image_added **found, bool *taken) {
    const image_node *node = search->image->nodes[search->which];
    text_view text = search->text;
    size_t limit = text.size - at > TOKENIZER_ADDED_BYTES ? at + TOKENIZER_ADDED_BYTES : text.size;
    size_t end = 0;
    *taken = false;
    for (size_t i = at; i < limit; i++) {
        node = child(search, node, (uint8_t)text.data[i]);
        if (node == NULL)
            break;
        if (node->added == IMAGE_NONE || !is_boundary(text, i + 1))
            continue;
        const image_added *added = &search->image->added[node->added];
        bool good = counts(search, added, at, i + 1);
        if (*taken && !good && search->options->trusted_given)
            continue;
        *found = added;
        *taken = good;
        end = i + 1;
    }
    return end;
}

bool added_next(added_search *search, size_t from, added_match *match) {
    if (search->image->node_count[search->which] == 0)
        return false;
    const image_node *root = search->image->nodes[search->which];
    bool starts[256] = {false};
    const image_edge *edges = search->image->edges[search->which] + root->first_edge;
    for (uint32_t i = 0; i < root->edge_count; i++)
        starts[edges[i].byte & 255] = true;
    text_view text = search->text;
    for (size_t at = from; at < text.size;) {
        const image_added *added = NULL;
        bool taken = false;
        if (!starts[(uint8_t)text.data[at]] || !is_boundary(text, at)) {
            at++;
            continue;
        }
        size_t end = longest_at(search, at, &added, &taken);
        if (end == 0 || (!taken && search->options->trusted_given)) {
            at++;
            continue;
        }
        if (!taken) {
            at = end; /* its text stays text, and hides what begins inside it */
            continue;
        }
        *match = (added_match){at, end, at, end, added->id};
        while ((added->flags & ADDED_LEFT) && match->strip_begin > from) {
            size_t begin;
            uint32_t c = character_before(text, match->strip_begin, &begin);
            if (!(unicode_class(c) & UNICODE_SPACE) || begin < from)
                break;
            match->strip_begin = begin;
        }
        while ((added->flags & ADDED_RIGHT) && match->strip_end < text.size) {
            uint32_t c;
            uint32_t length = unicode_take(text.data + match->strip_end, &c);
            if (!(unicode_class(c) & UNICODE_SPACE))
                break;
            match->strip_end += length;
        }
        return true;
    }
    return false;
}
