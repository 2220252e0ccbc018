/* The image: a compiled tokenizer as one block of bytes, which can lie anywhere at 8-byte
 * alignment.
 *
 *   header   256 + … bytes: image_header below
 *   sections each at a multiple of 64 from the beginning, described by header.sections
 *
 * Little-endian. Nothing in it is a pointer. What reads it trusts nothing: image_open checks the
 * header, the bounds of all sections and every index that encoding would otherwise follow blindly,
 * in one pass over them; loops over its tables are bounded by their sizes.
 */
#ifndef AVO_TOKENIZER_IMAGE_INT_H
#define AVO_TOKENIZER_IMAGE_INT_H

#include "base/cursor.h"
#include "base/status.h"

#define IMAGE_MAGIC     0x314B4F544F5641ull /* "AVOTOK1" */
#define IMAGE_VERSION   1u
#define IMAGE_ALIGNMENT 64u
#define IMAGE_NONE      UINT32_MAX
#define IMAGE_PROBES    256u /* no entry of a hash table lies further from its place */

/* ---- Limits ---- */
#define TOKENIZER_VOCABULARY_MAX 4194304u
#define TOKENIZER_PIECE_MAX      4096u /* bytes of one token */
#define TOKENIZER_SCORED_MAX     512u  /* … where any two neighbours may merge */
#define TOKENIZER_ADDED_MAX      65536u
#define TOKENIZER_ADDED_BYTES    1024u /* of one added token */
#define TOKENIZER_STEPS_MAX      32u
#define TOKENIZER_FRAME_MAX      8u /* tokens before, and behind, a text */
#define TOKENIZER_IMAGE_MAX      ((uint64_t)1 << 31)
/* Steps may make a text longer by this much in all, whatever they are; Unicode's longest
 * decomposition is 11 times as long as its character. */
#define TOKENIZER_GROWTH_TIMES 64u
#define TOKENIZER_GROWTH_BYTES ((size_t)64 << 10)
#define TOKENIZER_GROWTH_MAX   ((size_t)4 << 30)
#define TOKENIZER_DECODED_MAX  ((size_t)64 << 10) /* bytes that steps make of one token */

typedef enum image_kind { IMAGE_BYTE_LEVEL = 1, IMAGE_CHARACTERS = 2 } image_kind;

enum { /* header.flags */
       IMAGE_FUSE_UNKNOWN = 1 << 0,
       IMAGE_BYTE_FALLBACK = 1 << 1, /* characters outside the vocabulary become bytes */
       IMAGE_ALL_BYTES = 1 << 2      /* every byte has a symbol: invalid UTF-8 is kept */
};

enum { /* token flags */
       TOKEN_SPECIAL = 1 << 0,
       TOKEN_ADDED = 1 << 1,
       TOKEN_BYTE = 1 << 2, /* "<0xHH>" */
       TOKEN_KNOWN = 1 << 3 /* the id is in use */
};

/* ---- Steps: what happens to a text, in order ---- */

typedef enum step_kind {
    /* normalisation */
    STEP_NFC = 1,
    STEP_NFD,
    STEP_NFKC,
    STEP_NFKD,
    STEP_LOWERCASE,
    STEP_STRIP, /* flags: STEP_LEFT, STEP_RIGHT */
    STEP_STRIP_ACCENTS,
    STEP_PREPEND,       /* first */
    STEP_REPLACE,       /* first → second */
    STEP_REPLACE_REGEX, /* pattern first → second */
    STEP_SQUEEZE,       /* SentencePiece: no spaces at the ends, single ones inside */
    /* pre-tokenisation */
    STEP_SPLIT_TEXT = 32, /* first; behaviour and STEP_INVERT in flags */
    STEP_SPLIT_REGEX,     /* pattern first */
    STEP_SPLIT_SCANNER,   /* number: scanner; its pieces cover the text */
    STEP_DIGITS,          /* flags: STEP_INDIVIDUAL */
    STEP_PUNCTUATION,     /* behaviour */
    STEP_WORDS,           /* \w+|[^\w\s]+, the rest dropped */
    STEP_SPACE_SPLIT,     /* by white space, dropped */
    STEP_PREFIX_SPACE,    /* of ByteLevel: " " in front unless there is one */
    STEP_METASPACE,       /* first: replacement; number: scheme; STEP_SPLIT */
    /* decoding */
    STEP_DECODE_REPLACE = 64, /* per token: first → second */
    STEP_DECODE_STRIP,        /* per token: up to number of `first` in front, number2 behind */
    STEP_DECODE_STRIP_TEXT,   /* of the whole text: up to number of `first` in front */
    STEP_DECODE_METASPACE     /* first → " "; in the first token dropped in front unless number */
} step_kind;

/* What tokenizer.json calls it; for messages. */
const char *step_name(uint32_t kind);

enum { /* step flags; the lowest three bits are the behaviour of a split */
       SPLIT_REMOVED = 0,
       SPLIT_ISOLATED = 1,
       SPLIT_WITH_PREVIOUS = 2,
       SPLIT_WITH_NEXT = 3,
       SPLIT_CONTIGUOUS = 4,
       SPLIT_BEHAVIOUR = 7,
       STEP_INVERT = 1 << 3,
       STEP_INDIVIDUAL = 1 << 4,
       STEP_LEFT = 1 << 5,
       STEP_RIGHT = 1 << 6,
       STEP_SPLIT = 1 << 7
};
enum { METASPACE_ALWAYS = 0, METASPACE_FIRST = 1, METASPACE_NEVER = 2 };

typedef struct image_step {
    uint32_t kind;
    uint32_t flags;
    uint32_t number, number2;
    uint32_t first, first_bytes; /* in the section TEXTS */
    uint32_t second, second_bytes;
} image_step;

/* ---- Tables ---- */

typedef struct image_merge { /* an empty slot has left = IMAGE_NONE */
    uint32_t left, right;
    uint32_t rank; /* lower first, then further left first */
    uint32_t result;
} image_merge;

typedef struct image_word { /* id = IMAGE_NONE: empty */
    uint32_t tag;           /* upper half of the hash */
    uint32_t id;
} image_word;

typedef struct image_character { /* code_point = IMAGE_NONE: empty */
    uint32_t code_point;
    uint32_t symbol;
} image_character;

typedef struct image_node { /* of a trie; children follow their parent in the array */
    uint32_t first_edge;
    uint32_t edge_count;
    uint32_t added; /* index into ADDED or IMAGE_NONE */
    uint32_t reserved;
} image_node;

typedef struct image_edge {
    uint32_t byte;
    uint32_t node;
} image_edge;

enum { ADDED_SPECIAL = 1, ADDED_LEFT = 2, ADDED_RIGHT = 4, ADDED_SINGLE = 8 };
typedef struct image_added {
    uint32_t id;
    uint32_t flags;
} image_added;

/* ---- Header ---- */

typedef enum image_section_name {
    SECTION_PIECE_OFFSETS, /* u32[vocabulary + 1] */
    SECTION_PIECES,        /* as the vocabulary writes them */
    SECTION_PIECE_TABLE,   /* u32[power of two]: ids by hash of the piece, IMAGE_NONE: empty */
    SECTION_FLAGS,         /* u8[vocabulary] */
    SECTION_WORD_OFFSETS,  /* u32[vocabulary + 1]: the bytes a token stands for … */
    SECTION_WORDS,         /* … both empty where they are the pieces themselves */
    SECTION_WORD_TABLE,    /* image_word[power of two]: words that encode to one token */
    SECTION_BYTES,         /* u32[256]: the symbol of each byte, IMAGE_NONE: none */
    SECTION_CHARACTERS,    /* image_character[power of two]; empty when byte-level */
    SECTION_MERGES,        /* image_merge[power of two] */
    SECTION_PAIRS,         /* u64[power of two]: bit set of neighbours inside tokens */
    SECTION_RAW_NODES,     /* added tokens sought in the text as it is … */
    SECTION_RAW_EDGES,
    SECTION_LATE_NODES, /* … and in the normalised text */
    SECTION_LATE_EDGES,
    SECTION_ADDED, /* image_added[] */
    SECTION_STEPS, /* image_step[]: normalise, then pre-tokenise, then decode */
    SECTION_TEXTS,
    SECTION_COUNT
} image_section_name;

typedef struct image_section {
    uint64_t offset, bytes;
} image_section;

typedef struct image_header {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    uint64_t bytes; /* of the whole image */
    uint32_t flags;
    uint32_t vocabulary;
    uint32_t symbols; /* vocabulary and, above it, characters that are only parts of tokens */
    uint32_t merges;
    uint32_t added;
    int32_t begin, end, unknown, padding;
    uint32_t unknown_symbol; /* what stands for an unknown character, IMAGE_NONE: dropped */
    uint32_t normalise_count, pretokenise_count, decode_count;
    uint32_t prefix_count, suffix_count;
    uint32_t prefix[TOKENIZER_FRAME_MAX], suffix[TOKENIZER_FRAME_MAX];
    uint32_t reserved;
    image_section sections[SECTION_COUNT];
} image_header;

/* The image with its sections as typed arrays; what encoding works with. */
typedef struct image {
    const image_header *header;
    const uint32_t *piece_offsets;
    const char *pieces;
    const uint32_t *piece_table;
    uint32_t piece_mask;
    const uint8_t *flags;
    const uint32_t *word_offsets;
    const char *words;
    const image_word *word_table;
    uint32_t word_mask;
    const uint32_t *bytes;
    const image_character *characters;
    uint32_t character_mask;
    const image_merge *merges;
    uint32_t merge_mask;
    const uint64_t *pairs;
    uint32_t pair_mask; /* in bits; 0: none */
    const image_node *nodes[2];
    const image_edge *edges[2];
    uint32_t node_count[2];
    const image_added *added;
    const image_step *steps;
    const char *texts;
} image;

/* Checks everything; `name` is for messages. `bytes.data` must be aligned to 8 and outlive it. */
AVO_MUST_USE avo_status image_open(image *image, bytes_view bytes, const char *name,
                                   avo_error *error);

/* ---- Reading it ---- */

static inline uint64_t image_mix(uint64_t value) {
    value ^= value >> 32;
    value *= 0x9E3779B97F4A7C15ull;
    value ^= value >> 29;
    value *= 0xBF58476D1CE4E5B9ull;
    return value ^ value >> 32;
}

/* A hash of short byte strings that is part of the format. Never reads past the end. */
static inline uint64_t image_hash(const char *text, size_t bytes) {
    uint64_t hash = 0x2545F4914F6CDD1Dull ^ bytes * 0x9E3779B97F4A7C15ull;
    size_t left = bytes;
    while (left >= 8) {
        uint64_t part;
        memcpy(&part, text, 8);
        hash = (hash ^ part) * 0xD6E8FEB86659FD93ull;
        hash ^= hash >> 32;
        text += 8;
        left -= 8;
    }
    uint64_t part = 0;
    if (left >= 4) { /* two overlapping halves */
        uint32_t low;
        uint32_t high;
        memcpy(&low, text, 4);
        memcpy(&high, text + left - 4, 4);
        part = (uint64_t)high << 32 | low;
    } else if (left > 0) {
        part = (uint64_t)(uint8_t)text[0] | (uint64_t)(uint8_t)text[left / 2] << 8 |
               (uint64_t)(uint8_t)text[left - 1] << 16;
    }
    hash = (hash ^ part) * 0xD6E8FEB86659FD93ull;
    hash ^= hash >> 32;
    hash *= 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 29;
}

static inline uint64_t image_pair_hash(uint32_t left, uint32_t right) {
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
    hash *= 0xD6E8FEB86659FD93ull;
    return hash ^ hash >> 32;
}

/* The slot of a pair, or NULL. */
static inline const image_merge *image_find_merge(const image *image, uint32_t left,
                                                  uint32_t right) {
    uint32_t at = (uint32_t)image_pair_hash(left, right) & image->merge_mask;
    for (uint32_t probes = 0; probes < IMAGE_PROBES; probes++) {
        const image_merge *merge = &image->merges[at];
        if (merge->left == left && merge->right == right)
            return merge;
        if (merge->left == IMAGE_NONE)
            return NULL;
        at = (at + 1) & image->merge_mask;
    }
    return NULL;
}

static inline text_view image_piece(const image *image, uint32_t id) {
    uint32_t begin = image->piece_offsets[id];
    return (text_view){image->pieces + begin, image->piece_offsets[id + 1] - begin};
}

/* The bytes a token stands for: its piece, decoded from the byte-level alphabet. */
static inline text_view image_word_text(const image *image, uint32_t id) {
    uint32_t begin = image->word_offsets[id];
    return (text_view){image->words + begin, image->word_offsets[id + 1] - begin};
}

/* The token that a whole word (with its image_hash) encodes to, or IMAGE_NONE when it is not just
 * one. */
static inline uint32_t image_find_word(const image *image, const char *text, size_t bytes,
                                       uint64_t hash) {
    uint32_t at = (uint32_t)hash & image->word_mask;
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint32_t probes = 0; probes < IMAGE_PROBES; probes++) {
        image_word word = image->word_table[at];
        if (word.id == IMAGE_NONE)
            return IMAGE_NONE;
        if (word.tag == tag) {
            uint32_t begin = image->word_offsets[word.id];
            if (image->word_offsets[word.id + 1] - begin == bytes &&
                memcmp(image->words + begin, text, bytes) == 0)
                return word.id;
        }
        at = (at + 1) & image->word_mask;
    }
    return IMAGE_NONE;
}

/* The symbol of a character, or IMAGE_NONE. */
static inline uint32_t image_find_character(const image *image, uint32_t code_point) {
    uint32_t at = (uint32_t)image_mix(code_point) & image->character_mask;
    for (uint32_t probes = 0; probes < IMAGE_PROBES; probes++) {
        image_character slot = image->characters[at];
        if (slot.code_point == code_point)
            return slot.symbol;
        if (slot.code_point == IMAGE_NONE)
            return IMAGE_NONE;
        at = (at + 1) & image->character_mask;
    }
    return IMAGE_NONE;
}

/* May a token contain `left` followed by `right`? Never wrongly false. */
static inline bool image_may_join(const image *image, uint32_t left, uint32_t right) {
    uint32_t bit = (uint32_t)image_pair_hash(left, right) & image->pair_mask;
    return image->pairs[bit >> 6] >> (bit & 63) & 1;
}

uint32_t image_find_piece(const image *image, text_view piece);

static inline text_view image_text(const image *image, uint32_t offset, uint32_t bytes) {
    return (text_view){image->texts + offset, bytes};
}

#endif
