/* A text for the tokenizer where none is given. One paragraph repeated would be no measure: every
 * word would be known from the first time on. So words are drawn, common ones often and made-up
 * ones now and then, as they come in earnest. */
#include "bench/bench.h"

#include "base/random.h"

#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const char *const common[] = {
    "the",     "of",       "and",     "to",       "in",       "a",     "is",     "that",   "was",
    "for",     "it",       "with",    "as",       "on",       "be",    "by",     "he",     "are",
    "this",    "at",       "from",    "which",    "or",       "had",   "not",    "but",    "his",
    "one",     "an",       "they",    "their",    "were",     "all",   "she",    "there",  "would",
    "when",    "been",     "more",    "who",      "no",       "if",    "out",    "so",     "what",
    "up",      "time",     "into",    "than",     "some",     "could", "them",   "only",   "other",
    "new",     "about",    "these",   "two",      "may",      "then",  "first",  "any",    "like",
    "now",     "over",     "such",    "our",      "man",      "most",  "made",   "after",  "also",
    "before",  "must",     "through", "years",    "where",    "much",  "should", "water",  "people",
    "between", "under",    "without", "another",  "because",  "house", "river",  "number", "light",
    "morning", "children", "winter",  "question", "engineer", "memory"};
static const char *const syllables[] = {"ba",  "cor",  "del",  "en",  "fir", "gan", "hol", "in",
                                        "jas", "ken",  "lor",  "mi",  "nor", "ost", "pra", "qui",
                                        "ran", "ste",  "tor",  "ul",  "ven", "wal", "xi",  "yor",
                                        "zen", "tion", "ment", "ing", "er",  "ly",  "ous", "ism"};
static const char *const others[] = {"größer", "naïve",  "Привет, мир",  "日本語の文章",
                                     "東京",   "한국어", "العربية",      "Ελληνικά",
                                     "हिन्दी",  "🙂",   "c’est-à-dire", "Łódź"};
static const char *const lines[] = {
    "for (size_t i = 0; i < count; i++) {\n    sum += weight[i] * x[i];\n}\n",
    "def area(radius):\n    return 3.14159 * radius ** 2\n",
    "{\"name\": \"avocet\", \"ids\": [1, 22, 333], \"ok\": true}\n",
    "https://example.org/a/path?query=1&page=27#top\n",
};

typedef struct writer {
    buffer *out;
    uint64_t drawn;
} writer;

static uint32_t draw(writer *writer, size_t below) {
    return random_at(7, 7, writer->drawn++).words[0] % (uint32_t)below;
}

/* Of the list, early ones more often. */
static const char *draw_common(writer *writer) {
    uint32_t first = draw(writer, COUNT(common)), second = draw(writer, COUNT(common));
    uint32_t third = draw(writer, COUNT(common));
    uint32_t least = first < second ? first : second;
    return common[least < third ? least : third];
}

static avo_status write_word(writer *writer, bool begin) {
    char word[64] = "";
    uint32_t kind = draw(writer, 100);
    if (kind < 2)
        return buffer_format(writer->out, "%u", draw(writer, kind == 0 ? 1000000 : 2000));
    if (kind < 3)
        return buffer_append_text(writer->out, others[draw(writer, COUNT(others))]);
    size_t used = 0;
    for (uint32_t left = kind < 13 ? 2 + draw(writer, 3) : 1; left > 0; left--) {
        const char *part =
            kind < 13 ? syllables[draw(writer, COUNT(syllables))] : draw_common(writer);
        size_t length = strlen(part);
        memcpy(word + used, part, length + 1);
        used += length;
    }
    if ((begin || kind == 12) && word[0] >= 'a' && word[0] <= 'z')
        word[0] = (char)(word[0] - 'a' + 'A');
    return buffer_append_text(writer->out, word);
}

static avo_status write_sentence(writer *writer) {
    uint32_t words = 4 + draw(writer, 20);
    for (uint32_t i = 0; i < words; i++) {
        AVO_TRY(write_word(writer, i == 0));
        if (i + 1 < words)
            AVO_TRY(buffer_append_text(writer->out, draw(writer, 9) == 0 ? ", " : " "));
    }
    return buffer_append_text(writer->out, draw(writer, 8) == 0 ? "? " : ". ");
}

avo_status bench_text(size_t bytes, buffer *out) {
    writer writer = {.out = out};
    while (out->size < bytes) {
        for (uint32_t left = 1 + draw(&writer, 6); left > 0; left--)
            AVO_TRY(write_sentence(&writer));
        AVO_TRY(buffer_append_text(out, "\n"));
        if (draw(&writer, 12) == 0)
            AVO_TRY(buffer_append_text(out, lines[draw(&writer, COUNT(lines))]));
    }
    return AVO_OK;
}
