/* The zip reader: truncation at every byte, every directory byte flipped, sound archives. */
#include "support/support.h"

#include "base/buffer.h"
#include "hub/zip.h"

#include <string.h>
#include <zlib.h>

/* A small archive as a packer would make it: one stored and one deflated entry. */
static void put(buffer *out, uint64_t value, size_t bytes) {
    assert_ok(buffer_append(out, &value, bytes));
}

static void put_header(buffer *out, bool local, const char *name, uint16_t method, uint32_t crc,
                       uint32_t packed, uint32_t bytes, uint32_t offset) {
    put(out, local ? 0x04034b50 : 0x02014b50, 4);
    if (!local)
        put(out, 20, 2);
    put(out, 20, 2);
    put(out, 0, 2); /* flags */
    put(out, method, 2);
    put(out, 0, 4); /* date */
    put(out, crc, 4);
    put(out, packed, 4);
    put(out, bytes, 4);
    put(out, strlen(name), 2);
    put(out, 0, 2); /* extra */
    if (!local) {
        put(out, 0, 2); /* comment */
        put(out, 0, 4);
        put(out, 0, 4);
        put(out, offset, 4);
    }
    assert_ok(buffer_append_text(out, name));
}

static const char stored[] = "hello, archive";
static const char long_text[] =
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static void make_archive(buffer *out) {
    buffer_init(out, NULL, 1 << 20);
    uint8_t packed[256];
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)long_text;
    stream.avail_in = sizeof(long_text) - 1;
    stream.next_out = packed;
    stream.avail_out = sizeof(packed);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    uint32_t packed_bytes = (uint32_t)stream.total_out;
    deflateEnd(&stream);
    uint32_t stored_bytes = sizeof(stored) - 1, long_bytes = sizeof(long_text) - 1;
    uint32_t stored_crc = (uint32_t)crc32(0, (const Bytef *)stored, stored_bytes);
    uint32_t long_crc = (uint32_t)crc32(0, (const Bytef *)long_text, long_bytes);
    put_header(out, true, "d/a.txt", 0, stored_crc, stored_bytes, stored_bytes, 0);
    assert_ok(buffer_append(out, stored, stored_bytes));
    uint32_t second = (uint32_t)out->size;
    put_header(out, true, "b.gguf", 8, long_crc, packed_bytes, long_bytes, 0);
    assert_ok(buffer_append(out, packed, packed_bytes));
    uint32_t directory = (uint32_t)out->size;
    put_header(out, false, "d/a.txt", 0, stored_crc, stored_bytes, stored_bytes, 0);
    put_header(out, false, "b.gguf", 8, long_crc, packed_bytes, long_bytes, second);
    uint32_t directory_bytes = (uint32_t)out->size - directory;
    put(out, 0x06054b50, 4);
    put(out, 0, 4);
    put(out, 2, 2);
    put(out, 2, 2);
    put(out, directory_bytes, 4);
    put(out, directory, 4);
    put(out, 0, 2);
}

static avo_status keep(void *context, const void *data, size_t bytes, avo_error *error) {
    (void)error;
    return buffer_append(context, data, bytes);
}

/* Opens and extracts all; the number of entries whose content came out whole. */
static size_t read_all(bytes_view bytes, avo_error *error) {
    arena arena;
    zip_archive archive;
    size_t whole = 0;
    arena_init(&arena, NULL, 1 << 20);
    if (zip_open(&arena, bytes, &archive, error) == AVO_OK)
        for (size_t i = 0; i < archive.count; i++) {
            buffer out;
            buffer_init(&out, NULL, 1 << 20);
            if (zip_extract(&archive, &archive.entries[i], keep, &out, error) == AVO_OK) {
                assert_int_equal(out.size, archive.entries[i].bytes);
                whole++;
            }
            buffer_free(&out);
        }
    arena_free(&arena);
    return whole;
}

static void test_sound(void **state) {
    (void)state;
    buffer file;
    make_archive(&file);
    arena arena;
    zip_archive archive;
    avo_error error;
    arena_init(&arena, NULL, 1 << 20);
    assert_ok_error(
        zip_open(&arena, (bytes_view){(uint8_t *)file.data, file.size}, &archive, &error), &error);
    assert_int_equal(archive.count, 2);
    assert_true(text_is(archive.entries[1].name, "b.gguf"));
    buffer out;
    buffer_init(&out, NULL, 1 << 20);
    assert_ok_error(zip_extract(&archive, &archive.entries[0], keep, &out, &error), &error);
    assert_true(text_is(buffer_text(&out), stored));
    out.size = 0;
    assert_ok_error(zip_extract(&archive, &archive.entries[1], keep, &out, &error), &error);
    assert_true(text_is(buffer_text(&out), long_text));
    buffer_free(&out);
    arena_free(&arena);
    buffer_free(&file);
}

static void test_truncated(void **state) {
    (void)state;
    buffer file;
    make_archive(&file);
    avo_error error;
    for (size_t bytes = 0; bytes < file.size; bytes++) {
        uint8_t *copy = allocator_take(NULL, bytes + 1); /* so that ASan sees reads past the end */
        memcpy(copy, file.data, bytes);
        assert_int_equal(read_all((bytes_view){copy, bytes}, &error), 0);
        allocator_give(NULL, copy, bytes + 1);
    }
    buffer_free(&file);
}

static void test_flipped(void **state) {
    (void)state;
    buffer file;
    make_archive(&file);
    avo_error error;
    for (size_t at = 0; at < file.size; at++)
        for (unsigned value = 0; value < 256; value += 5) {
            char kept = file.data[at];
            file.data[at] = (char)value;
            size_t whole = read_all((bytes_view){(uint8_t *)file.data, file.size}, &error);
            assert_true(whole <= 2);
            file.data[at] = kept;
        }
    buffer_free(&file);
}

/* An error of the sink (a full disk) comes through. */
static avo_status fail_sink(void *context, const void *data, size_t bytes, avo_error *error) {
    (void)context, (void)data, (void)bytes;
    return status_fail(error, AVO_ERROR_FULL, "no room");
}

static void test_sink_fails(void **state) {
    (void)state;
    buffer file;
    make_archive(&file);
    arena arena;
    zip_archive archive;
    avo_error error;
    arena_init(&arena, NULL, 1 << 20);
    assert_ok(zip_open(&arena, (bytes_view){(uint8_t *)file.data, file.size}, &archive, &error));
    for (size_t i = 0; i < 2; i++)
        assert_refused(zip_extract(&archive, &archive.entries[i], fail_sink, NULL, &error),
                       AVO_ERROR_FULL, &error, "no room");
    arena_free(&arena);
    buffer_free(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_sink_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
