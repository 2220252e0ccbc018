/* The table of words that encode to one token, against encoding every token: random merges over
 * three letters, in the order of training (where the table is derived from the merges alone), and
 * shuffled, repeated or with several merges for a token (where it may not be). */
#include "tokenizer/fixtures.h"

#include "base/random.h"
#include "tokenizer/bpe_int.h"

#define TOKENS_MAX 256
#define TEXT_MAX   24
#define ROUNDS     400

typedef struct vocabulary {
    char texts[TOKENS_MAX][TEXT_MAX + 1];
    uint32_t count;
    uint32_t merges[2 * TOKENS_MAX][2];
    uint32_t merge_count;
} vocabulary;

static uint64_t draws;

static uint32_t draw(uint32_t below) {
    return (uint32_t)(random_uniform_at(7, 0, draws++) * below);
}

static uint32_t find(const vocabulary *v, const char *text) {
    for (uint32_t i = 0; i < v->count; i++)
        if (strcmp(v->texts[i], text) == 0)
            return i;
    return IMAGE_NONE;
}

/* Merges as training finds them; `again`: some make a token that is there. */
static void grow(vocabulary *v, uint32_t merges, bool again) {
    *v = (vocabulary){.texts = {"a", "b", "c"}, .count = 3};
    for (uint32_t tries = 0; tries < merges * 20 && v->merge_count < merges; tries++) {
        uint32_t left = draw(v->count);
        uint32_t right = draw(v->count);
        char text[2 * TEXT_MAX + 1];
        snprintf(text, sizeof(text), "%s%s", v->texts[left], v->texts[right]);
        bool known = find(v, text) != IMAGE_NONE;
        if (strlen(text) > TEXT_MAX || (known && !again) || v->count == TOKENS_MAX)
            continue;
        if (!known)
            memcpy(v->texts[v->count++], text, strlen(text) + 1);
        v->merges[v->merge_count][0] = left;
        v->merges[v->merge_count++][1] = right;
    }
}

static void shuffle(vocabulary *v, uint32_t swaps) {
    for (uint32_t i = 0; i < swaps && v->merge_count > 0; i++) {
        uint32_t *a = v->merges[draw(v->merge_count)];
        uint32_t *b = v->merges[draw(v->merge_count)];
        uint32_t kept[2] = {a[0], a[1]};
        memmove(a, b, sizeof(kept));
        memcpy(b, kept, sizeof(kept));
    }
}

static tokenizer *open_vocabulary(const vocabulary *v) {
    static char json[1 << 17];
    size_t at = (size_t)snprintf(json, sizeof(json),
                                 "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                                 "false,\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
                                 "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (uint32_t i = 0; i < v->count; i++)
        at += (size_t)snprintf(json + at, sizeof(json) - at, "%s\"%s\":%u", i > 0 ? "," : "",
                               v->texts[i], i);
    at += (size_t)snprintf(json + at, sizeof(json) - at, "},\"merges\":[");
    for (uint32_t i = 0; i < v->merge_count; i++)
        at += (size_t)snprintf(json + at, sizeof(json) - at, "%s\"%s %s\"", i > 0 ? "," : "",
                               v->texts[v->merges[i][0]], v->texts[v->merges[i][1]]);
    at += (size_t)snprintf(json + at, sizeof(json) - at, "]}}");
    assert_true(at < sizeof(json));
    tokenizer_source source = {
        .kind = TOKENIZER_SOURCE_JSON, .data = {(const uint8_t *)json, at}, .name = "random.json"};
    tokenizer *opened;
    avo_error error = {0};
    assert_ok_error(tokenizer_open(&source, NULL, &opened, &error), &error);
    return opened;
}

/* How many tokens are words; every one is checked. */
static uint32_t check(const vocabulary *v) {
    tokenizer *opened = open_vocabulary(v);
    image image;
    avo_error error = {0};
    assert_ok_error(image_open(&image, tokenizer_image(opened), "random", &error), &error);
    assert_int_equal(image.header->kind, IMAGE_BYTE_LEVEL);
    bpe_work work;
    bpe_work_init(&work, NULL);
    uint32_t words = 0;
    for (uint32_t id = 0; id < v->count; id++) {
        text_view text = text_from(v->texts[id]);
        uint32_t count;
        assert_int_equal(bpe_word(&image, &work, text, &count), AVO_OK);
        bool whole = count == 1 && work.symbols[0].id == id;
        uint64_t hash = image_hash(text.data, text.size);
        uint32_t found = image_find_word(&image, text.data, text.size, hash);
        assert_int_equal(found, whole ? id : IMAGE_NONE);
        words += whole;
    }
    bpe_work_free(&work);
    tokenizer_close(opened);
    return words;
}

static void test_order_of_training(void **state) {
    (void)state;
    vocabulary v;
    uint32_t words = 0;
    uint32_t tokens = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        grow(&v, 1 + draw(200), false);
        words += check(&v);
        tokens += v.count;
    }
    /* Both answers must have been common. */
    assert_true(words > tokens / 20 && words < tokens / 20 * 19);
}

static void test_any_order(void **state) {
    (void)state;
    vocabulary v;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        grow(&v, 1 + draw(200), round % 2 == 0);
        shuffle(&v, draw(4) == 0 ? 0 : 1 + draw(100));
        for (uint32_t i = 0; round % 3 == 0 && i < 3; i++) {
            const uint32_t *listed = v.merges[draw(v.merge_count)];
            memcpy(v.merges[v.merge_count], listed, sizeof(v.merges[0]));
            v.merge_count++;
        }
        check(&v);
    }
}

/* Runs of one letter: the same merge at several places, of which the leftmost goes first. */
static void test_runs(void **state) {
    (void)state;
    vocabulary v;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        v = (vocabulary){.texts = {"a"}, .count = 1};
        for (uint32_t i = 0; i < 40 && v.count < TEXT_MAX; i++) {
            uint32_t left = draw(v.count);
            uint32_t right = draw(v.count);
            char text[2 * TEXT_MAX + 1];
            snprintf(text, sizeof(text), "%s%s", v.texts[left], v.texts[right]);
            if (strlen(text) > TEXT_MAX || find(&v, text) != IMAGE_NONE)
                continue;
            memcpy(v.texts[v.count++], text, strlen(text) + 1);
            v.merges[v.merge_count][0] = left;
            v.merges[v.merge_count++][1] = right;
        }
        check(&v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_training),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
