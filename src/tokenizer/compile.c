/* From draft to image: sections laid out, then the words that encode to one token entered. */
#include "tokenizer/draft_int.h"

#include "base/checked.h"
#include "base/utf8.h"
#include "tokenizer/normalise_int.h"

typedef struct layout {
    draft *draft;
    image_header header;
    const void *parts[SECTION_COUNT]; /* NULL: filled later */
    uint32_t *piece_offsets, *word_offsets;
    char *pieces, *words;
    uint8_t *flags;
} layout;

static void put(layout *l, image_section_name name, const void *data, uint64_t bytes) {
    l->parts[name] = data;
    l->header.sections[name].bytes = bytes;
}

/* The bytes that a byte-level piece stands for; a piece outside the alphabet stands for itself. */
static size_t word_of_piece(draft_token *token, char *out) {
    size_t size = 0;
    text_view text = token->text;
    token->literal = (token->flags & TOKEN_ADDED) != 0;
    for (size_t at = 0, length; !token->literal && at < text.size; at += length) {
        uint32_t code_point = (uint8_t)text.data[at];
        length = code_point < 0x80 ? 1 : utf8_decode(text.data + at, text.size - at, &code_point);
        int32_t byte = length == 0 ? -1 : alphabet_byte(code_point);
        token->literal = byte < 0;
        if (!token->literal)
            out[size++] = (char)byte;
    }
    if (!token->literal)
        return size;
    if (text.size > 0)
        memcpy(out, text.data, text.size);
    return text.size;
}

static avo_status lay_pieces(layout *l) {
    draft *draft = l->draft;
    size_t bytes = 0;
    for (uint32_t id = 0; id < draft->vocabulary; id++)
        if (!size_add(bytes, draft->tokens[id].text.size, &bytes) || bytes > INT32_MAX)
            return draft_fail(draft, AVO_ERROR_LIMIT, "the text of the vocabulary exceeds 2 GiB");
    size_t offsets = ((size_t)draft->vocabulary + 1) * sizeof(uint32_t);
    bool level = draft->kind == IMAGE_BYTE_LEVEL;
    l->piece_offsets = arena_take(draft->arena, offsets);
    l->pieces = arena_take(draft->arena, bytes + 1);
    l->flags = arena_take(draft->arena, draft->vocabulary);
    l->word_offsets = level ? arena_take(draft->arena, offsets) : l->piece_offsets;
    l->words = level ? arena_take(draft->arena, bytes + 1) : l->pieces;
    if (l->piece_offsets == NULL || l->pieces == NULL || l->flags == NULL ||
        l->word_offsets == NULL || l->words == NULL)
        return draft_no_memory(draft);
    size_t piece = 0;
    size_t word = 0;
    for (uint32_t id = 0; id < draft->vocabulary; id++) {
        draft_token *token = &draft->tokens[id];
        if (token->text.size > 0)
            memcpy(l->pieces + piece, token->text.data, token->text.size);
        piece += token->text.size;
        l->piece_offsets[id + 1] = (uint32_t)piece;
        if (level) {
            word += word_of_piece(token, l->words + word);
            l->word_offsets[id + 1] = (uint32_t)word;
        }
        l->flags[id] = token->flags;
    }
    put(l, SECTION_PIECE_OFFSETS, l->piece_offsets, offsets);
    put(l, SECTION_PIECES, l->pieces, bytes);
    put(l, SECTION_FLAGS, l->flags, draft->vocabulary);
    put(l, SECTION_PIECE_TABLE, draft->table, ((uint64_t)draft->table_mask + 1) * 4);
    put(l, SECTION_WORD_OFFSETS, l->word_offsets, level ? offsets : 0);
    put(l, SECTION_WORDS, l->words, level ? word : 0);
    put(l, SECTION_WORD_TABLE, NULL, ((uint64_t)draft->table_mask + 1) * sizeof(image_word));
    return AVO_OK;
}

static avo_status lay_symbols(layout *l) {
    compiled_symbols symbols = {0};
    AVO_TRY(compile_symbols(l->draft, &symbols));
    uint32_t *bytes = arena_take(l->draft->arena, sizeof(symbols.bytes));
    if (bytes == NULL)
        return draft_no_memory(l->draft);
    memcpy(bytes, symbols.bytes, sizeof(symbols.bytes));
    put(l, SECTION_BYTES, bytes, sizeof(symbols.bytes));
    put(l, SECTION_CHARACTERS, symbols.characters,
        (uint64_t)symbols.character_count * sizeof(image_character));
    put(l, SECTION_MERGES, NULL, (uint64_t)symbols.merge_slots * sizeof(image_merge));
    put(l, SECTION_PAIRS, symbols.pairs, (uint64_t)symbols.pair_words * 8);
    l->header.symbols = symbols.symbols;
    return AVO_OK;
}

static avo_status lay_added(layout *l) {
    draft *draft = l->draft;
    uint32_t count = draft->added_count;
    image_added *added = arena_take_array(draft->arena, (size_t)count + 1, sizeof(image_added));
    uint32_t *members = arena_take_array(draft->arena, (size_t)count + 1, sizeof(uint32_t));
    if (added == NULL || members == NULL)
        return draft_no_memory(draft);
    for (uint32_t i = 0; i < count; i++) {
        /* A file may name a token twice, once special and once not: it is special then, or text
         * could become it. */
        bool special = (draft->tokens[draft->added[i].id].flags & TOKEN_SPECIAL) != 0;
        uint32_t flags = draft->added[i].flags | (special ? ADDED_SPECIAL : 0);
        added[i] = (image_added){draft->added[i].id, flags};
    }
    put(l, SECTION_ADDED, added, (uint64_t)count * sizeof(image_added));
    for (uint32_t late = 0; late < 2; late++) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < count; i++)
            if (draft->added[i].late == (late == 1))
                members[found++] = i;
        compiled_trie trie;
        AVO_TRY(compile_trie(draft, draft->added, members, found, &trie));
        put(l, late ? SECTION_LATE_NODES : SECTION_RAW_NODES, trie.nodes,
            (uint64_t)trie.node_count * sizeof(image_node));
        put(l, late ? SECTION_LATE_EDGES : SECTION_RAW_EDGES, trie.edges,
            (uint64_t)trie.edge_count * sizeof(image_edge));
    }
    return AVO_OK;
}

static avo_status lay_steps(layout *l) {
    draft *draft = l->draft;
    uint32_t total = 0;
    image_step *steps =
        arena_take_array(draft->arena, STAGE_COUNT * TOKENIZER_STEPS_MAX, sizeof(image_step));
    if (steps == NULL)
        return draft_no_memory(draft);
    for (uint32_t stage = 0; stage < STAGE_COUNT; stage++)
        for (uint32_t i = 0; i < draft->step_count[stage]; i++)
            steps[total++] = draft->steps[stage][i];
    put(l, SECTION_STEPS, steps, total * sizeof(image_step));
    put(l, SECTION_TEXTS, draft->texts.data, draft->texts.size);
    l->header.normalise_count = draft->step_count[STAGE_NORMALISE];
    l->header.pretokenise_count = draft->step_count[STAGE_PRETOKENISE];
    l->header.decode_count = draft->step_count[STAGE_DECODE];
    return AVO_OK;
}

static avo_status fill_header(layout *l) {
    const draft *draft = l->draft;
    image_header *header = &l->header;
    header->magic = IMAGE_MAGIC;
    header->version = IMAGE_VERSION;
    header->kind = draft->kind;
    header->flags = draft->flags;
    header->vocabulary = draft->vocabulary;
    header->added = draft->added_count;
    header->begin = draft->begin;
    header->end = draft->end;
    header->unknown = draft->unknown;
    header->padding = draft->padding;
    header->unknown_symbol =
        draft->unknown_used && draft->unknown >= 0 ? (uint32_t)draft->unknown : IMAGE_NONE;
    header->prefix_count = draft->prefix_count;
    header->suffix_count = draft->suffix_count;
    memcpy(header->prefix, draft->prefix, sizeof(header->prefix));
    memcpy(header->suffix, draft->suffix, sizeof(header->suffix));
    uint64_t at = sizeof(image_header);
    for (uint32_t i = 0; i < SECTION_COUNT; i++) {
        at = (at + IMAGE_ALIGNMENT - 1) / IMAGE_ALIGNMENT * IMAGE_ALIGNMENT;
        header->sections[i].offset = at;
        at += header->sections[i].bytes;
    }
    header->bytes = (at + IMAGE_ALIGNMENT - 1) / IMAGE_ALIGNMENT * IMAGE_ALIGNMENT;
    if (header->bytes > TOKENIZER_IMAGE_MAX)
        return draft_fail(draft, AVO_ERROR_LIMIT, "the compiled tokenizer exceeds 2 GiB");
    return AVO_OK;
}

/* Copies the sections that are ready, with zeros between them, and fills the others. */
static avo_status fill_image(layout *l, uint8_t *memory, image *image) {
    draft *draft = l->draft;
    image_header *header = &l->header;
    uint64_t at = sizeof(image_header);
    for (uint32_t i = 0; i < SECTION_COUNT; i++) {
        image_section part = header->sections[i];
        memset(memory + at, 0, part.offset - at);
        if (l->parts[i] != NULL && part.bytes > 0)
            memcpy(memory + part.offset, l->parts[i], part.bytes);
        at = part.offset + part.bytes;
    }
    memset(memory + at, 0, header->bytes - at);
    image_section words = header->sections[SECTION_WORD_TABLE];
    image_section merges = header->sections[SECTION_MERGES];
    memset(memory + words.offset, 0xFF, words.bytes);
    AVO_TRY(compile_merges(draft, (void *)(memory + merges.offset),
                           (uint32_t)(merges.bytes / sizeof(image_merge)), &header->merges));
    memcpy(memory, header, sizeof(image_header));
    AVO_TRY(image_open(image, (bytes_view){memory, header->bytes}, draft->name, draft->error));
    return compile_words(draft, image, (void *)(memory + words.offset));
}

avo_status compile_image(draft *draft, const avo_allocator *allocator, uint8_t **data,
                         size_t *bytes, image *image) {
    layout l = {.draft = draft};
    AVO_TRY(lay_symbols(&l)); /* first: it settles flags */
    AVO_TRY(lay_pieces(&l));
    AVO_TRY(normalise_added(draft));
    AVO_TRY(lay_added(&l));
    AVO_TRY(lay_steps(&l));
    AVO_TRY(fill_header(&l));
    uint8_t *memory = allocator_take(allocator, l.header.bytes);
    if (memory == NULL)
        return draft_no_memory(draft);
    avo_status status = fill_image(&l, memory, image);
    if (status != AVO_OK) {
        allocator_give(allocator, memory, l.header.bytes);
        return status;
    }
    *data = memory;
    *bytes = l.header.bytes;
    return AVO_OK;
}
