/* Opening an image: bounds first, then every index inside. */
#include "tokenizer/image_int.h"

#include "base/checked.h"
#include "base/utf8.h"
#include "tokenizer/scan_int.h"

typedef struct checker {
    const uint8_t *data;
    const image_header *header;
    const char *name;
    avo_error *error;
} checker;

static avo_status refuse(const checker *check, const char *what, uint64_t value) {
    return status_fail(check->error, AVO_ERROR_FORMAT,
                       "%s: invalid compiled tokenizer: %s (%llu); pack the model again",
                       check->name, what, (unsigned long long)value);
}

/* The section as an array of `count` items, or of any number when `count` is IMAGE_NONE. */
static avo_status section(const checker *check, image_section_name name, size_t item_bytes,
                          uint64_t count, const void **items, uint32_t *found) {
    image_section part = check->header->sections[name];
    uint64_t end;
    if (!u64_add(part.offset, part.bytes, &end) || end > check->header->bytes ||
        part.offset < sizeof(image_header) || part.offset % IMAGE_ALIGNMENT != 0)
        return refuse(check, "section out of bounds", name);
    if (part.bytes % item_bytes != 0 || part.bytes / item_bytes > UINT32_MAX / 2 ||
        (count != IMAGE_NONE && part.bytes / item_bytes != count))
        return refuse(check, "section of the wrong size", name);
    *items = check->data + part.offset;
    if (found != NULL)
        *found = (uint32_t)(part.bytes / item_bytes);
    return AVO_OK;
}

/* A hash table: a power of two of slots. */
static avo_status table(const checker *check, image_section_name name, size_t item_bytes,
                        const void **items, uint32_t *mask) {
    uint32_t count = 0;
    AVO_TRY(section(check, name, item_bytes, IMAGE_NONE, items, &count));
    if (count == 0 || (count & (count - 1)) != 0)
        return refuse(check, "size of a hash table is not a power of two", count);
    *mask = count - 1;
    return AVO_OK;
}

/* Offsets ascend and end at the end of the bytes they point into. */
static avo_status check_offsets(const checker *check, const uint32_t *offsets, uint32_t count,
                                uint32_t bytes) {
    bool bad = offsets[0] != 0 || offsets[count] != bytes;
    for (uint32_t i = 0; i < count; i++)
        bad |= offsets[i] > offsets[i + 1];
    return bad ? refuse(check, "token offsets out of order", bytes) : AVO_OK;
}

static avo_status open_pieces(const checker *check, image *image) {
    uint32_t vocabulary = check->header->vocabulary;
    uint32_t bytes = 0;
    AVO_TRY(section(check, SECTION_PIECE_OFFSETS, 4, (uint64_t)vocabulary + 1,
                    (const void **)&image->piece_offsets, NULL));
    AVO_TRY(section(check, SECTION_PIECES, 1, IMAGE_NONE, (const void **)&image->pieces, &bytes));
    AVO_TRY(check_offsets(check, image->piece_offsets, vocabulary, bytes));
    AVO_TRY(section(check, SECTION_FLAGS, 1, vocabulary, (const void **)&image->flags, NULL));
    AVO_TRY(table(check, SECTION_PIECE_TABLE, 4, (const void **)&image->piece_table,
                  &image->piece_mask));
    uint32_t worst = 0;
    for (uint64_t i = 0; i <= image->piece_mask; i++) {
        uint32_t id = image->piece_table[i] + 1; /* empty becomes 0 */
        worst = id > worst ? id : worst;
    }
    if (worst > vocabulary)
        return refuse(check, "token out of range in the token table", worst);
    if (check->header->sections[SECTION_WORD_OFFSETS].bytes == 0) {
        image->word_offsets = image->piece_offsets;
        image->words = image->pieces;
        return AVO_OK;
    }
    AVO_TRY(section(check, SECTION_WORD_OFFSETS, 4, (uint64_t)vocabulary + 1,
                    (const void **)&image->word_offsets, NULL));
    AVO_TRY(section(check, SECTION_WORDS, 1, IMAGE_NONE, (const void **)&image->words, &bytes));
    return check_offsets(check, image->word_offsets, vocabulary, bytes);
}

static avo_status open_symbols(const checker *check, image *image) {
    uint32_t symbols = check->header->symbols;
    AVO_TRY(table(check, SECTION_WORD_TABLE, sizeof(image_word), (const void **)&image->word_table,
                  &image->word_mask));
    uint32_t worst = 0;
    for (uint64_t i = 0; i <= image->word_mask; i++) {
        uint32_t id = image->word_table[i].id + 1;
        worst = id > worst ? id : worst;
    }
    if (worst > check->header->vocabulary)
        return refuse(check, "token out of range in the word table", worst);
    AVO_TRY(section(check, SECTION_BYTES, 4, 256, (const void **)&image->bytes, NULL));
    for (uint32_t i = 0; i < 256; i++)
        if (image->bytes[i] != IMAGE_NONE && image->bytes[i] >= check->header->vocabulary)
            return refuse(check, "token of a byte out of range", image->bytes[i]);
        else if (image->bytes[i] == IMAGE_NONE && (check->header->flags & IMAGE_ALL_BYTES))
            return refuse(check, "byte without a token", i);
    AVO_TRY(table(check, SECTION_CHARACTERS, sizeof(image_character),
                  (const void **)&image->characters, &image->character_mask));
    for (uint64_t i = 0; i <= image->character_mask; i++)
        if (image->characters[i].code_point != IMAGE_NONE && image->characters[i].symbol >= symbols)
            return refuse(check, "token of a character out of range", image->characters[i].symbol);
    AVO_TRY(table(check, SECTION_MERGES, sizeof(image_merge), (const void **)&image->merges,
                  &image->merge_mask));
    worst = 0;
    for (uint64_t i = 0; i <= image->merge_mask; i++) {
        uint32_t result = image->merges[i].left == IMAGE_NONE ? 0 : image->merges[i].result;
        worst = result > worst ? result : worst;
    }
    if (worst >= symbols)
        return refuse(check, "result of a merge out of range", worst);
    AVO_TRY(table(check, SECTION_PAIRS, 8, (const void **)&image->pairs, &image->pair_mask));
    if (image->pair_mask >= UINT32_MAX / 64)
        return refuse(check, "set of pairs too large", image->pair_mask);
    image->pair_mask = image->pair_mask * 64 + 63;
    return AVO_OK;
}

static avo_status open_trie(const checker *check, image *image, uint32_t which,
                            uint32_t added_count) {
    image_section_name nodes = which == 0 ? SECTION_RAW_NODES : SECTION_LATE_NODES;
    image_section_name edges = which == 0 ? SECTION_RAW_EDGES : SECTION_LATE_EDGES;
    uint32_t edge_count = 0;
    uint32_t *node_count = &image->node_count[which];
    AVO_TRY(section(check, nodes, sizeof(image_node), IMAGE_NONE,
                    (const void **)&image->nodes[which], node_count));
    AVO_TRY(section(check, edges, sizeof(image_edge), IMAGE_NONE,
                    (const void **)&image->edges[which], &edge_count));
    for (uint32_t i = 0; i < *node_count; i++) {
        const image_node *node = &image->nodes[which][i];
        if (node->first_edge > edge_count || node->edge_count > edge_count - node->first_edge ||
            node->edge_count > 256)
            return refuse(check, "edges of an added token out of bounds", i);
        if (node->added != IMAGE_NONE && node->added >= added_count)
            return refuse(check, "added token out of range", node->added);
    }
    if (*node_count > 0 && image->nodes[which][0].added != IMAGE_NONE)
        return refuse(check, "empty added token", 0);
    for (uint32_t i = 0; i < edge_count; i++)
        if (image->edges[which][i].node >= *node_count)
            return refuse(check, "node of an added token out of range", i);
    return AVO_OK;
}

const char *step_name(uint32_t kind) {
    switch ((step_kind)kind) {
    case STEP_NFC:
        return "NFC";
    case STEP_NFD:
        return "NFD";
    case STEP_NFKC:
        return "NFKC";
    case STEP_NFKD:
        return "NFKD";
    case STEP_LOWERCASE:
        return "Lowercase";
    case STEP_PREPEND:
        return "Prepend";
    case STEP_REPLACE:
    case STEP_REPLACE_REGEX:
    case STEP_DECODE_REPLACE:
        return "Replace";
    case STEP_PREFIX_SPACE:
        return "ByteLevel";
    case STEP_METASPACE:
    case STEP_DECODE_METASPACE:
        return "Metaspace";
    default: /* the others make no text longer */
        return "other";
    }
}

static bool step_fits(const image_step *step, uint32_t stage) {
    if (stage == 0)
        return step->kind >= STEP_NFC && step->kind <= STEP_SQUEEZE;
    if (stage == 1)
        return step->kind >= STEP_SPLIT_TEXT && step->kind <= STEP_METASPACE;
    return step->kind >= STEP_DECODE_REPLACE && step->kind <= STEP_DECODE_METASPACE;
}

static avo_status open_steps(const checker *check, image *image) {
    const image_header *header = check->header;
    uint32_t texts = 0;
    AVO_TRY(section(check, SECTION_TEXTS, 1, IMAGE_NONE, (const void **)&image->texts, &texts));
    if (header->normalise_count > TOKENIZER_STEPS_MAX ||
        header->pretokenise_count > TOKENIZER_STEPS_MAX ||
        header->decode_count > TOKENIZER_STEPS_MAX)
        return refuse(check, "too many steps", header->pretokenise_count);
    uint32_t stage_end[3] = {header->normalise_count,
                             header->normalise_count + header->pretokenise_count, 0};
    stage_end[2] = stage_end[1] + header->decode_count;
    AVO_TRY(section(check, SECTION_STEPS, sizeof(image_step), stage_end[2],
                    (const void **)&image->steps, NULL));
    for (uint32_t i = 0, stage = 0; i < stage_end[2]; i++) {
        while (i >= stage_end[stage])
            stage++;
        const image_step *step = &image->steps[i];
        if (!step_fits(step, stage) || (step->flags & SPLIT_BEHAVIOUR) > SPLIT_CONTIGUOUS)
            return refuse(check, "unknown step", step->kind);
        if (step->first > texts || step->first_bytes > texts - step->first ||
            step->second > texts || step->second_bytes > texts - step->second)
            return refuse(check, "text of a step out of bounds", i);
        /* Text goes in and comes out of the steps as valid UTF-8. */
        const char *text = image->texts;
        if (utf8_valid_prefix(text + step->first, step->first_bytes) != step->first_bytes ||
            utf8_valid_prefix(text + step->second, step->second_bytes) != step->second_bytes)
            return refuse(check, "text of a step is not valid UTF-8", i);
        bool needs_text = step->kind == STEP_REPLACE || step->kind == STEP_SPLIT_TEXT ||
                          step->kind == STEP_METASPACE || step->kind == STEP_DECODE_REPLACE ||
                          step->kind == STEP_DECODE_STRIP || step->kind == STEP_DECODE_STRIP_TEXT ||
                          step->kind == STEP_DECODE_METASPACE;
        if (needs_text && step->first_bytes == 0)
            return refuse(check, "step without its text", i);
        if (step->kind == STEP_SPLIT_SCANNER && step->number >= SCANNER_COUNT)
            return refuse(check, "unknown scanner", step->number);
    }
    return AVO_OK;
}

static avo_status check_header(const checker *check) {
    const image_header *header = check->header;
    if (header->kind != IMAGE_BYTE_LEVEL && header->kind != IMAGE_CHARACTERS)
        return refuse(check, "unknown kind", header->kind);
    if (header->vocabulary == 0 || header->vocabulary > TOKENIZER_VOCABULARY_MAX)
        return refuse(check, "vocabulary out of range", header->vocabulary);
    if (header->symbols < header->vocabulary || header->symbols > 2 * TOKENIZER_VOCABULARY_MAX)
        return refuse(check, "symbols out of range", header->symbols);
    const int32_t ids[] = {header->begin, header->end, header->unknown, header->padding};
    for (size_t i = 0; i < 4; i++)
        if (ids[i] < -1 || ids[i] >= (int64_t)header->vocabulary)
            return refuse(check, "special token out of range", (uint64_t)ids[i]);
    if (header->unknown_symbol != IMAGE_NONE && header->unknown_symbol >= header->vocabulary)
        return refuse(check, "unknown token out of range", header->unknown_symbol);
    if (header->prefix_count > TOKENIZER_FRAME_MAX || header->suffix_count > TOKENIZER_FRAME_MAX)
        return refuse(check, "too many tokens before or after a text", header->prefix_count);
    for (uint32_t i = 0; i < TOKENIZER_FRAME_MAX; i++)
        if ((i < header->prefix_count && header->prefix[i] >= header->vocabulary) ||
            (i < header->suffix_count && header->suffix[i] >= header->vocabulary))
            return refuse(check, "token before or after a text out of range", i);
    return AVO_OK;
}

avo_status image_open(image *image, bytes_view bytes, const char *name, avo_error *error) {
    *image = (struct image){0};
    checker check = {bytes.data, (const image_header *)(const void *)bytes.data, name, error};
    if (bytes.size < sizeof(image_header) || (uintptr_t)bytes.data % 8 != 0)
        return refuse(&check, "too short", bytes.size);
    if (check.header->magic != IMAGE_MAGIC || check.header->version != IMAGE_VERSION)
        return refuse(&check, "unknown version", check.header->version);
    if (check.header->bytes > bytes.size || check.header->bytes > TOKENIZER_IMAGE_MAX)
        return refuse(&check, "truncated", check.header->bytes);
    image->header = check.header;
    AVO_TRY(check_header(&check));
    AVO_TRY(open_pieces(&check, image));
    AVO_TRY(open_symbols(&check, image));
    uint32_t added = 0;
    AVO_TRY(section(&check, SECTION_ADDED, sizeof(image_added), IMAGE_NONE,
                    (const void **)&image->added, &added));
    for (uint32_t i = 0; i < added; i++)
        if (image->added[i].id >= check.header->vocabulary)
            return refuse(&check, "added token out of range", image->added[i].id);
    AVO_TRY(open_trie(&check, image, 0, added));
    AVO_TRY(open_trie(&check, image, 1, added));
    return open_steps(&check, image);
}

uint32_t image_find_piece(const image *image, text_view piece) {
    uint32_t at = (uint32_t)image_hash(piece.data, piece.size) & image->piece_mask;
    for (uint32_t probes = 0; probes < IMAGE_PROBES; probes++) {
        uint32_t id = image->piece_table[at];
        if (id == IMAGE_NONE)
            return IMAGE_NONE;
        if (text_equal(image_piece(image, id), piece))
            return id;
        at = (at + 1) & image->piece_mask;
    }
    return IMAGE_NONE;
}
