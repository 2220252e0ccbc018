/* Grammars that requests share: compiled once, kept while there is room, the one that was used
 * longest ago goes first. Any thread. */
#ifndef AVO_CHAT_GRAMMAR_CACHE_H
#define AVO_CHAT_GRAMMAR_CACHE_H

#include "base/status.h"

#define GRAMMAR_CACHE_ENTRIES 64

typedef struct grammar_cache grammar_cache;

/* `bytes_max`: of the grammars that are kept, with their masks; those that requests still use live
 * on beside them. The model must outlive it. */
AVO_MUST_USE avo_status grammar_cache_open(const avo_model *model, uint64_t bytes_max,
                                           grammar_cache **out, avo_error *error);
void grammar_cache_close(grammar_cache *cache);

/* A reference to the grammar of this text. Those of one `owner` (NULL: nobody in particular) are
 * not shared with others, whom the time of compiling would tell what somebody else asked for.
 * Whoever asks for one that another thread compiles waits for that. `text` and `options` may be
 * NULL as avo_grammar_open allows. */
AVO_MUST_USE avo_status grammar_cache_take(grammar_cache *cache, const char *owner,
                                           avo_grammar_kind kind, const char *text,
                                           const avo_grammar_options *options, avo_grammar **out,
                                           avo_error *error);

typedef struct grammar_cache_counts {
    uint64_t compiled, found, dropped;
    uint32_t kept;
    uint64_t bytes;
} grammar_cache_counts;
grammar_cache_counts grammar_cache_count(grammar_cache *cache);

#endif
