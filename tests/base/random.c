/* base/random and base/hash: known answers, and that draws depend on every part of their key. */
#include "support/support.h"

#include "base/hash.h"
#include "base/random.h"

#include <string.h>

/* The known-answer vectors that the authors of Philox publish for philox4x32 with 10 rounds, and
 * three more from an independent implementation (the formulas of the paper in Python). */
static void philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t seed, stream, counter;
        uint32_t wanted[4];
    } cases[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
        {0x2a, 0x0, 0x0, {0x9ceaf053, 0x77f5493b, 0x12bf50ad, 0x5742b3d7}},
        {0x2a, 0x7, 0x1, {0xe5dde940, 0x600f6196, 0x8fcdf8f1, 0x2c8ed839}},
        {0x123456789abcdef0,
         0x8000000000000000,
         0x100000005,
         {0x5efffb94, 0xce5a494a, 0xdb65bf37, 0xa7170279}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        random_block block = random_at(cases[i].seed, cases[i].stream, cases[i].counter);
        assert_memory_equal(block.words, cases[i].wanted, sizeof(block.words));
    }
}

static void every_part_of_the_key_counts(void **state) {
    (void)state;
    random_block base = random_at(1, 2, 3);
    for (int bit = 0; bit < 64; bit++) {
        uint64_t flip = (uint64_t)1 << bit;
        random_block others[] = {random_at(1 ^ flip, 2, 3), random_at(1, 2 ^ flip, 3),
                                 random_at(1, 2, 3 ^ flip)};
        for (size_t i = 0; i < 3; i++)
            assert_memory_not_equal(&base, &others[i], sizeof(base));
    }
}

static void uniform_is_flat_and_below_one(void **state) {
    (void)state;
    enum { DRAWS = 100000, BINS = 100 };
    size_t bins[BINS] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        double draw = random_uniform_at(42, 7, i);
        assert_true(draw >= 0.0 && draw < 1.0);
        bins[(size_t)(draw * BINS)]++;
    }
    double chi = 0;
    for (size_t i = 0; i < BINS; i++) {
        double off = (double)bins[i] - (double)DRAWS / BINS;
        chi += off * off / ((double)DRAWS / BINS);
    }
    assert_true(chi > 50 && chi < 160); /* 99 degrees of freedom: 1 in 10,000 on either side */
}

static void hash_known_answers(void **state) {
    (void)state;
    assert_true(hash_bytes(NULL, 0) == 0x2d06800538d394c2u);
    assert_true(hash_bytes("", 0) == 0x2d06800538d394c2u);
    assert_true(hash_bytes("a", 1) == 0xe6c632b61e964e1fu);
    assert_true(hash_bytes("abc", 3) == 0x78af5f94892f3950u);
    char text[5000];
    memset(text, 'x', sizeof(text));
    uint64_t whole = hash_bytes(text, sizeof(text));
    for (size_t i = 0; i < sizeof(text); i += 97) {
        text[i] ^= 1;
        assert_true(hash_bytes(text, sizeof(text)) != whole);
        text[i] ^= 1;
    }
    assert_true(hash_bytes(text, sizeof(text)) == whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(every_part_of_the_key_counts),
        cmocka_unit_test(uniform_is_flat_and_below_one),
        cmocka_unit_test(hash_known_answers),
    };
    return cmocka_run_group_tests_name("base/random", tests, NULL, NULL);
}
