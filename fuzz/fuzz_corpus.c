/* spec/corpus_file on any bytes. Sums, sizes and the model's digest are made right first, so that
 * what lies behind them is reached too; what loads must keep its limits and propose tokens of the
 * vocabulary; what does not load must change nothing. */
#include "spec/corpus_file.h"

#include "base/hash.h"
#include "spec/corpus_int.h"

#include <stdlib.h>
#include <string.h>

enum { DRAFTS = 4, VOCABULARY = 8 };

static const corpus_options options = {
    .tokens_max = 64, .keys_max = 3, .vocabulary = VOCABULARY, .model_digest = 1};

static void make_right(uint8_t *data, size_t size) {
    corpus_header header;
    memcpy(&header, data, sizeof(header));
    header.file_bytes = size;
    header.model_digest = options.model_digest;
    header.body_sum = hash_bytes(data + sizeof(header), size - sizeof(header));
    header.header_sum = hash_bytes(&header, offsetof(corpus_header, header_sum));
    memcpy(data, &header, sizeof(header));
}

/* Every key drafts behind every token. */
static void propose(corpus *corpus) {
    corpus_counts counts = corpus_count(corpus);
    if (counts.keys > options.keys_max || counts.tokens > options.tokens_max)
        abort();
    for (uint32_t i = 0; i < counts.keys; i++)
        for (int32_t token = 0; token < VOCABULARY; token++) {
            int32_t context[2] = {0, token}, drafts[DRAFTS];
            corpus_key key = corpus->entries[i].key;
            suffix_match match = corpus_propose(corpus, key, context, 2, DRAFTS, drafts);
            if (match.count > DRAFTS || match.length > 2 || (match.length > 0) != (match.seen > 0))
                abort();
            for (uint32_t k = 0; k < match.count; k++)
                if (drafts[k] < 0 || drafts[k] >= VOCABULARY)
                    abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + 1);
    corpus *corpus;
    avo_error error;
    if (copy == NULL || corpus_open(&options, NULL, &corpus, &error) != AVO_OK)
        abort();
    memcpy(copy, data, size);
    if (size >= sizeof(corpus_header))
        make_right(copy, size);
    avo_status status = corpus_load_bytes(corpus, (bytes_view){copy, size}, "fuzz", &error);
    if (status != AVO_OK && (corpus_count(corpus).keys != 0 || corpus_count(corpus).tokens != 0))
        abort();
    propose(corpus);
    static const int32_t more[] = {0, 1, 2, 3, 0, 1};
    corpus_add(corpus, (corpus_key){{7, 7}}, more, 6);
    propose(corpus);
    corpus_close(corpus);
    free(copy);
    return 0;
}
