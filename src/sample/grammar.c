/* Grammars: the public functions. */
#include "sample/grammar.h"

avo_status avo_grammar_open(const avo_model *model, avo_grammar_kind kind, const char *text,
                            const avo_grammar_options *options, avo_grammar **grammar,
                            avo_error *error) {
    (void)model;
    (void)kind;
    (void)text;
    (void)options;
    *grammar = NULL;
    return status_fail(error, AVO_ERROR_UNSUPPORTED, "grammars are not supported");
}

avo_grammar *avo_grammar_share(avo_grammar *grammar) {
    return grammar;
}

void avo_grammar_close(avo_grammar *grammar) {
    (void)grammar;
}
