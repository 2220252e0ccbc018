/* base/utf8: all code points there and back, all three-byte inputs against the standard's table. */
#include "support/support.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

static void every_code_point_there_and_back(void **state) {
    (void)state;
    for (uint32_t wanted = 0; wanted <= 0x10FFFF; wanted++) {
        if (wanted >= 0xD800 && wanted <= 0xDFFF)
            continue;
        char bytes[4];
        size_t length = utf8_encode(wanted, bytes);
        size_t expected = wanted < 0x80 ? 1 : wanted < 0x800 ? 2 : wanted < 0x10000 ? 3 : 4;
        uint32_t got = 0;
        if (length != expected || utf8_decode(bytes, length, &got) != length || got != wanted)
            fail_msg("U+%04X", wanted);
        for (size_t cut = 1; cut < length; cut++) { /* half a character is none */
            if (utf8_decode(bytes, cut, &got) != 0 || utf8_incomplete_suffix(bytes, cut) != cut ||
                utf8_invalid_length(bytes, cut) != cut)
                fail_msg("U+%04X cut to %zu bytes", wanted, cut);
        }
        if (utf8_incomplete_suffix(bytes, length) != 0)
            fail_msg("U+%04X is complete", wanted);
    }
}

/* Table 3-7 of the Unicode standard, written down as it stands there. */
static const struct {
    uint8_t low[4], high[4];
    size_t length;
} table[] = {
    {{0x00}, {0x7F}, 1},
    {{0xC2, 0x80}, {0xDF, 0xBF}, 2},
    {{0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}, 3},
    {{0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}, 3},
    {{0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}, 3},
    {{0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}, 3},
    {{0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}, 4},
    {{0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}, 4},
    {{0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}, 4},
};

/* How many bytes fit the longest-fitting row, and whether they complete it. */
static size_t by_table(const uint8_t *bytes, size_t size, bool *complete) {
    size_t best = 0;
    *complete = false;
    for (size_t row = 0; row < sizeof(table) / sizeof(table[0]); row++) {
        size_t fits = 0;
        while (fits < table[row].length && fits < size && bytes[fits] >= table[row].low[fits] &&
               bytes[fits] <= table[row].high[fits])
            fits++;
        if (fits == table[row].length)
            *complete = true;
        if (fits > best)
            best = fits;
    }
    return best;
}

static void all_inputs_of_three_bytes(void **state) {
    (void)state;
    static const uint8_t fourth[] = {0x00, 0x7F, 0x80, 0xBF, 0xC0};
    for (uint32_t value = 0; value < 1u << 24; value++) {
        uint8_t bytes[4] = {(uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value,
                            fourth[value % sizeof(fourth)]};
        if (bytes[0] < 0x80 && bytes[1] != 0x80)
            continue; /* ASCII in front says nothing new about what follows */
        bool complete;
        size_t fits = by_table(bytes, 4, &complete);
        uint32_t code_point;
        size_t decoded = utf8_decode((const char *)bytes, 4, &code_point);
        if (decoded != (complete ? fits : 0))
            fail_msg("%02x %02x %02x %02x: decode", bytes[0], bytes[1], bytes[2], bytes[3]);
        if (!complete && utf8_invalid_length((const char *)bytes, 4) != (fits == 0 ? 1 : fits))
            fail_msg("%02x %02x %02x %02x: invalid", bytes[0], bytes[1], bytes[2], bytes[3]);
    }
}

static void finds_the_valid_prefix(void **state) {
    (void)state;
    assert_int_equal(utf8_valid_prefix("", 0), 0);
    assert_int_equal(utf8_valid_prefix("héllo", 6), 6);
    assert_int_equal(utf8_valid_prefix("h\xc3", 2), 1);
    assert_int_equal(utf8_valid_prefix("ab\xff"
                                       "cd",
                                       5),
                     2);
    assert_int_equal(utf8_valid_prefix("\xf0\x9f\x98\x80\xf0\x9f\x98", 7), 4);
    assert_int_equal(utf8_valid_prefix("a\0b", 3), 3);
}

static void finds_what_may_still_be_completed(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t wanted;
    } cases[] = {
        {"", 0},         {"abc", 0},      {"abc\xc3", 1},      {"\xe2\x82", 2},
        {"\xf0\x9f", 2}, {"\xf0", 1},     {"\xf0\x9f\x98", 3}, {"\xf0\x9f\x98\x80", 0},
        {"\x80", 0},     {"\xff", 0},     {"\x80\x80\x80", 0}, {"\xc0", 0},
        {"\xe0\x80", 0}, {"\xed\xa0", 0}, {"\xf5", 0},         {"\xe2\x82\xac\xe2", 1},
        {"\xf4\x90", 0}, {"\xc3\xa9", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(utf8_incomplete_suffix(cases[i].text, strlen(cases[i].text)),
                         cases[i].wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_there_and_back),
        cmocka_unit_test(all_inputs_of_three_bytes),
        cmocka_unit_test(finds_the_valid_prefix),
        cmocka_unit_test(finds_what_may_still_be_completed),
    };
    return cmocka_run_group_tests_name("base/utf8", tests, NULL, NULL);
}
