/* base/cursor: every read at every distance from the end; the text views. */
#include "support/support.h"

#include "base/cursor.h"

static void reads_little_endian(void **state) {
    (void)state;
    static const uint8_t data[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0xFE, 0xFF, 0xFF,
                                   0xFF, 0x00, 0x00, 0x80, 0x3F, 0x00, 0x00, 0x00, 0x00, 0x00,
                                   0x00, 0x00, 0xC0, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02,
                                   0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    cursor cursor = cursor_over((bytes_view){data, sizeof(data)});
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
    assert_true(cursor_read_u8(&cursor, &u8) && u8 == 1);
    assert_true(cursor_read_u16(&cursor, &u16) && u16 == 0x0203);
    assert_true(cursor_read_u32(&cursor, &u32) && u32 == 0x04050607);
    assert_true(cursor_read_i32(&cursor, &i32) && i32 == -2);
    assert_true(cursor_read_f32(&cursor, &f32) && f32 == 1.0f);
    assert_true(cursor_read_f64(&cursor, &f64) && f64 == -2.0);
    assert_true(cursor_read_u64(&cursor, &u64) && u64 == 0x0102030405060708u);
    assert_true(cursor_read_i64(&cursor, &i64) && i64 == -1);
    assert_int_equal(cursor_left(&cursor), 0);
    assert_false(cursor_read_u8(&cursor, &u8));
}

/* Each reader with 0…16 bytes left: it succeeds exactly when they suffice, and a failure moves
 * nothing and writes nothing. */
static void never_reads_past_the_end(void **state) {
    (void)state;
    static const uint8_t data[16] = {0};
    for (size_t size = 0; size <= sizeof(data); size++) {
#define CHECK(name, type)                                                                          \
    do {                                                                                           \
        cursor cursor = cursor_over((bytes_view){data, size});                                     \
        type value = (type)77;                                                                     \
        bool good = cursor_read_##name(&cursor, &value);                                           \
        assert_int_equal(good, size >= sizeof(type));                                              \
        assert_int_equal(cursor.at, good ? sizeof(type) : 0);                                      \
        assert_true(value == (good ? (type)0 : (type)77));                                         \
    } while (0)
        CHECK(u8, uint8_t);
        CHECK(u16, uint16_t);
        CHECK(u32, uint32_t);
        CHECK(u64, uint64_t);
        CHECK(i32, int32_t);
        CHECK(i64, int64_t);
        CHECK(f32, float);
        CHECK(f64, double);
#undef CHECK
    }
}

static void takes_and_skips_within_bounds(void **state) {
    (void)state;
    static const uint8_t data[10] = {0};
    const uint8_t *taken = NULL;
    cursor cursor = cursor_over((bytes_view){data, sizeof(data)});
    assert_true(cursor_skip(&cursor, 4));
    assert_false(cursor_skip(&cursor, SIZE_MAX)); /* at + bytes would wrap */
    assert_false(cursor_take(&cursor, 7, &taken));
    assert_null(taken);
    assert_true(cursor_take(&cursor, 6, &taken));
    assert_ptr_equal(taken, data + 4);
    assert_true(cursor_take(&cursor, 0, &taken));
    assert_false(cursor_skip(&cursor, 1));
    cursor = cursor_over((bytes_view){NULL, 0});
    assert_int_equal(cursor_left(&cursor), 0);
    assert_false(cursor_skip(&cursor, 1));
    assert_true(cursor_skip(&cursor, 0));
}

static void compares_text(void **state) {
    (void)state;
    text_view none = {NULL, 0};
    text_view text = TEXT_LITERAL("tensor.weight");
    assert_true(text_is(text, "tensor.weight"));
    assert_false(text_is(text, "tensor.weigh"));
    assert_false(text_is(text, "tensor.weight2"));
    assert_true(text_equal(none, text_from("")));
    assert_true(text_equal(none, text_from(NULL)));
    assert_true(text_starts(text, TEXT_LITERAL("tensor.")));
    assert_false(text_starts(TEXT_LITERAL("tens"), TEXT_LITERAL("tensor.")));
    assert_true(text_ends(text, TEXT_LITERAL(".weight")));
    assert_false(text_ends(TEXT_LITERAL("ight"), TEXT_LITERAL(".weight")));
    assert_true(text_starts(text, none) && text_ends(text, none));
    /* zero bytes are text like any other */
    assert_false(text_equal((text_view){"a\0b", 3}, (text_view){"a\0c", 3}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_little_endian),
        cmocka_unit_test(never_reads_past_the_end),
        cmocka_unit_test(takes_and_skips_within_bounds),
        cmocka_unit_test(compares_text),
    };
    return cmocka_run_group_tests_name("base/cursor", tests, NULL, NULL);
}
