/* `avocet inspect`: what its files share. */
#ifndef AVO_CLI_INSPECT_INT_H
#define AVO_CLI_INSPECT_INT_H

#include "base/json_writer.h"
#include "formats/gguf.h"
#include "formats/source.h"
#include "model/heads.h"
#include "tokenizer/tokenizer.h"

#define INSPECT_TYPES_MAX 64

typedef struct inspect_total {
    quant_type type;
    quant_layout layout;
    uint32_t tensors;
    uint64_t elements, bytes;
} inspect_total;

/* What a decode of every tensor found. */
typedef struct inspect_verdict {
    bool done;
    bool sums; /* .avo: the file's own sums were checked instead */
    uint64_t elements, not_a_number, infinite;
    uint32_t bad_tensors;
    const source_tensor *first_bad; /* NULL: none */
} inspect_verdict;

typedef struct inspect_facts {
    const model_source *source;
    const heads_config *heads; /* a file of draft heads; NULL: a model */
    bool list_tensors;
    uint64_t file_bytes;
    uint64_t elements, bytes; /* of all tensors */
    inspect_total totals[INSPECT_TYPES_MAX];
    size_t total_count;
    bool tokenizer_opened;
    tokenizer_info tokenizer;
    avo_error tokenizer_error;
    inspect_verdict verdict;
} inspect_facts;

/* Bits per weight of all tensors together. */
static inline double inspect_bits(uint64_t bytes, uint64_t elements) {
    return elements == 0 ? 0.0 : 8.0 * (double)bytes / (double)elements;
}

const char *inspect_activation_name(source_activation activation);
const char *inspect_rope_name(rope_scaling_kind kind);
const char *inspect_tokenizer_name(tokenizer_source_kind kind);

/* A bool or an integer of any width as digits, the same for text and JSON; empty for values of
 * other types. */
#define INSPECT_EXACT_BYTES 24
text_view inspect_exact(const gguf_value *value, uint64_t index, char scratch[INSPECT_EXACT_BYTES]);

/* The text ready for printing; the JSON as one object. */
AVO_MUST_USE avo_status inspect_write_text(buffer *out, const inspect_facts *facts);
void inspect_write_json(json_writer *w, const inspect_facts *facts);

#endif
