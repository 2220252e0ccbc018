/* Lookup drafting: what a token costs, and how often the drafts are right.
 *
 *     ninja -C build bench_lookup && build/bench/bench_lookup TOKENIZER [--context N] TEXT…
 *
 * TOKENIZER is a tokenizer file, or a folder or model with one. The texts are read token by token,
 * as a model that writes exactly this text would produce them: before each token every source
 * drafts four, which are compared with the text. A form feed in a text begins a new document, and
 * so does every N-th token: the indices are cleared there.
 *
 * The first table times push and propose over the first 100,000 tokens of the texts, of random and
 * of constant tokens, in an index that holds all of them and in one that holds a tenth. The second
 * one has a line per length of the match and what other occurrences say (suffix_vote): at how many
 * positions that was so, and the probability that the first 1, 2, 3, 4 drafts were all right.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "cli/tokenizer_open.h"
#include "spec/ngram.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMED = 100000, BLOCK = 1000, ROUNDS = 7, DRAFTS = 4, SOURCES = 2, BUCKETS = 8 };

static const uint32_t bucket_from[BUCKETS] = {1, 2, 3, 4, 6, 8, 12, 16};
static const char *const source_names[SOURCES] = {"suffix", "ngram 3..2"};

static void check(avo_status status, const avo_error *error) {
    if (status == AVO_OK)
        return;
    fprintf(stderr, "bench_lookup: %s\n", error->text);
    exit(1);
}

/* ---- Time ---- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median of the rounds, and the slowest thousand tokens, each at its fastest. */
static void time_stream(const char *what, const int32_t *tokens, uint32_t count, uint32_t window) {
    suffix_index *index;
    avo_error error;
    int32_t drafts[8];
    double rounds[ROUNDS], blocks[TIMED / BLOCK], slowest = 0;
    check(suffix_index_open(window, NULL, &index, &error), &error);
    for (int round = 0; round < ROUNDS; round++) {
        suffix_index_clear(index);
        uint64_t begin = clock_now_ns(), block = begin;
        for (uint32_t i = 0; i < count; i++) {
            suffix_index_push(index, tokens[i]);
            (void)suffix_index_propose(index, 8, drafts);
            if ((i + 1) % BLOCK != 0)
                continue;
            uint64_t now = clock_now_ns();
            double time = clock_seconds(block, now) * 1e6 / BLOCK;
            if (round == 0 || time < blocks[i / BLOCK])
                blocks[i / BLOCK] = time;
            block = now;
        }
        rounds[round] = clock_seconds(begin, clock_now_ns()) * 1e6 / count;
    }
    suffix_index_close(index);
    for (uint32_t i = 0; i < count / BLOCK; i++)
        slowest = blocks[i] > slowest ? blocks[i] : slowest;
    qsort(rounds, ROUNDS, sizeof(*rounds), compare);
    printf("%-10s %8u %8u %10.3f %10.3f %12.1f\n", what, count, window, rounds[ROUNDS / 2], slowest,
           (double)suffix_index_bytes(window) / window);
}

static void time_all(const int32_t *text, uint32_t text_count) {
    int32_t *tokens = malloc(TIMED * sizeof(*tokens));
    if (tokens == NULL)
        exit(1);
    uint32_t count = text_count < TIMED ? text_count : TIMED;
    printf("%-10s %8s %8s %10s %10s %12s\n", "stream", "tokens", "window", "us/token", "slowest",
           "bytes/token");
    for (uint32_t window = TIMED; window >= TIMED / 10; window /= 10) {
        time_stream("text", text, count, window);
        for (uint32_t i = 0; i < TIMED; i++)
            tokens[i] = (int32_t)(random_at(1, 2, i).words[0] % 50000);
        time_stream("random 50k", tokens, TIMED, window);
        for (uint32_t i = 0; i < TIMED; i++)
            tokens[i] &= 1;
        time_stream("random 2", tokens, TIMED, window);
        memset(tokens, 0, TIMED * sizeof(*tokens));
        time_stream("constant", tokens, TIMED, window);
    }
    free(tokens);
}

/* ---- Acceptance ---- */

typedef struct tally {
    uint64_t proposed;
    uint64_t judged[DRAFTS];
    uint64_t right[DRAFTS]; /* of these: all drafts up to this one were right */
} tally;

typedef struct tallies {
    uint64_t positions;
    tally of[SOURCES][BUCKETS][SUFFIX_VOTES];
} tallies;

static void judge(tallies *tallies, int source, const suffix_match *match, const int32_t *drafts,
                  const int32_t *next, uint32_t left) {
    if (match->count == 0)
        return;
    int bucket = BUCKETS - 1;
    while (bucket_from[bucket] > match->length)
        bucket--;
    tally *tally = &tallies->of[source][bucket][match->vote];
    bool right = true;
    tally->proposed++;
    for (uint32_t i = 0; i < DRAFTS && i < match->count && i < left; i++) {
        right = right && drafts[i] == next[i];
        tally->judged[i]++;
        tally->right[i] += right;
    }
}

static void add_tally(tally *sum, const tally *part) {
    sum->proposed += part->proposed;
    for (int i = 0; i < DRAFTS; i++) {
        sum->judged[i] += part->judged[i];
        sum->right[i] += part->right[i];
    }
}

static double ratio(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : (double)part / (double)whole;
}

static void print_tally(const char *what, const char *vote, const tally *tally,
                        uint64_t positions) {
    if (tally->proposed == 0)
        return;
    printf("%-10s %-10s %9llu %7.4f ", what, vote, (unsigned long long)tally->proposed,
           ratio(tally->proposed, positions));
    for (int i = 0; i < DRAFTS; i++)
        printf(" %5.3f", ratio(tally->right[i], tally->judged[i]));
    printf("\n");
}

static void print_tallies(const tallies *t) {
    static const char *const votes[SUFFIX_VOTES] = {"alone", "agreed", "disputed"};
    for (int source = 0; source < SOURCES; source++) {
        tally all = {0}, by_vote[SUFFIX_VOTES] = {{0}};
        printf("\n%-10s %-10s %9s %7s   1     1-2   1-3   1-4\n", source_names[source], "others",
               "positions", "share");
        for (int b = 0; b < BUCKETS; b++) {
            char name[32];
            tally sum = {0};
            snprintf(name, sizeof(name), "length %u%s", bucket_from[b],
                     b + 1 == BUCKETS ? "+" : "");
            for (int vote = 0; vote < SUFFIX_VOTES; vote++) {
                print_tally(name, votes[vote], &t->of[source][b][vote], t->positions);
                add_tally(&sum, &t->of[source][b][vote]);
                add_tally(&by_vote[vote], &t->of[source][b][vote]);
            }
            print_tally(name, "all", &sum, t->positions);
            add_tally(&all, &sum);
        }
        for (int vote = 0; vote < SUFFIX_VOTES; vote++)
            print_tally("any", votes[vote], &by_vote[vote], t->positions);
        print_tally("any", "all", &all, t->positions);
    }
}

static void read_document(tallies *tallies, suffix_index *suffix, ngram_index *ngram,
                          const int32_t *tokens, uint32_t count) {
    int32_t drafts[DRAFTS];
    suffix_index_clear(suffix);
    ngram_index_clear(ngram);
    for (uint32_t i = 0; i + 1 < count; i++) {
        tallies->positions++;
        suffix_index_push(suffix, tokens[i]);
        ngram_index_push(ngram, tokens[i]);
        suffix_match match = suffix_index_propose(suffix, DRAFTS, drafts);
        judge(tallies, 0, &match, drafts, tokens + i + 1, count - i - 1);
        match = ngram_index_propose(ngram, DRAFTS, drafts);
        judge(tallies, 1, &match, drafts, tokens + i + 1, count - i - 1);
    }
}

/* ---- Texts ---- */

static void read_text(tallies *tallies, const tokenizer *tokenizer, const char *path,
                      uint32_t context, id_list *all) {
    avo_error error;
    file_map map;
    suffix_index *suffix;
    ngram_index *ngram;
    check(file_map_open(path, &map, &error), &error);
    text_view left = {(const char *)map.bytes.data, map.bytes.size};
    while (left.size > 0) {
        const char *end = memchr(left.data, '\f', left.size);
        size_t size = end == NULL ? left.size : (size_t)(end - left.data);
        size_t before = all->count;
        encode_options options = {0};
        check(tokenizer_encode(tokenizer, (text_view){left.data, size}, &options, all, &error),
              &error);
        size += end != NULL;
        left = (text_view){left.data + size, left.size - size};
        uint32_t count = (uint32_t)(all->count - before);
        uint32_t step = context == 0 || context > count ? count : context;
        if (step == 0)
            continue;
        ngram_options ngrams = {.tokens_max = step};
        check(suffix_index_open(step, NULL, &suffix, &error), &error);
        check(ngram_index_open(&ngrams, NULL, &ngram, &error), &error);
        for (uint32_t at = 0; at < count; at += step)
            read_document(tallies, suffix, ngram, all->ids + before + at,
                          count - at < step ? count - at : step);
        suffix_index_close(suffix);
        ngram_index_close(ngram);
    }
    file_map_close(&map);
}

int main(int argc, char **argv) {
    int first = argc > 3 && strcmp(argv[2], "--context") == 0 ? 4 : 2;
    if (argc <= first) {
        fprintf(stderr, "usage: bench_lookup TOKENIZER [--context N] TEXT…\n");
        return 2;
    }
    uint32_t context = first == 4 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    cli_tokenizer opened = {0};
    avo_error error;
    static tallies all;
    id_list ids;
    id_list_init(&ids, NULL);
    check(cli_tokenizer_open(argv[1], &opened, &error), &error);
    for (int i = first; i < argc; i++)
        read_text(&all, opened.tokenizer, argv[i], context, &ids);
    time_all(ids.ids, (uint32_t)ids.count);
    print_tallies(&all);
    id_list_free(&ids);
    cli_tokenizer_close(&opened);
    return 0;
}
