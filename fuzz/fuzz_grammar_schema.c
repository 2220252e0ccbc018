/* sample/grammar_schema on any bytes. */
#include "fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return fuzz_grammar(data, size, true);
}
