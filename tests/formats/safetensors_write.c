/* The safetensors writer: what it writes reads back the same, here and in the reference library;
 * every refusal; and that a failure at any point leaves no file. */
#include "support/support.h"

#include "base/random.h"
#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[4096]; /* fresh and empty for every test */
static char path[4200];   /* the file that tests write, in it */

static int make_folder(void **state) {
    (void)state;
    static int number;
    snprintf(folder, sizeof(folder), "%s/write-%d", test_scratch_folder(), number++);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    return mkdir(folder, 0755);
}

/* Byte `at` of the data of every file that is written here. */
static uint8_t data_byte(uint64_t at) {
    return (uint8_t)(at * 131 + 7);
}

/* Writes `content` with pieces of about `piece` bytes. */
static avo_status write_file(const safetensors_content *content, size_t piece,
                             const avo_allocator *allocator, avo_error *error) {
    safetensors_writer *writer;
    AVO_TRY(safetensors_writer_open(allocator, path, content, &writer, error));
    uint64_t total = 0;
    for (size_t i = 0; i < content->tensor_count; i++) {
        uint64_t elements = 1, bytes;
        for (uint32_t d = 0; d < content->tensors[i].rank; d++)
            elements *= content->tensors[i].shape[d];
        assert_true(quant_run_bytes(content->tensors[i].type, elements, &bytes));
        total += bytes;
    }
    uint8_t *bytes = malloc(piece);
    assert_non_null(bytes);
    avo_status status = AVO_OK;
    for (uint64_t at = 0; at < total && status == AVO_OK;) {
        size_t some = total - at < piece ? (size_t)(total - at) : piece;
        for (size_t i = 0; i < some; i++)
            bytes[i] = data_byte(at + i);
        status = safetensors_writer_append(writer, bytes, some, error);
        at += some;
    }
    free(bytes);
    if (status != AVO_OK) {
        safetensors_writer_abort(writer);
        return status;
    }
    uint64_t file_bytes = safetensors_writer_file_bytes(writer);
    AVO_TRY(safetensors_writer_commit(writer, error));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, file_bytes);
    return AVO_OK;
}

/* The file as our reader sees it. */
static void assert_reads_back(const safetensors_content *content) {
    avo_error error = {0};
    file_map map;
    model_source *source;
    assert_ok_error(file_map_open(path, &map, &error), &error);
    assert_ok_error(source_open_tensors(map.bytes, path, NULL, &source, &error), &error);
    assert_int_equal(source->tensor_count, content->tensor_count);
    uint64_t header;
    memcpy(&header, map.bytes.data, sizeof(header));
    assert_int_equal(header % 8, 0);
    const uint8_t *data = map.bytes.data + 8 + header;
    uint64_t at = 0;
    for (size_t i = 0; i < content->tensor_count; i++) {
        const safetensors_tensor *wanted = &content->tensors[i];
        const source_tensor *found = source_find(source, wanted->name);
        assert_non_null(found);
        assert_int_equal(found->type, wanted->type);
        assert_int_equal(found->rank, wanted->rank);
        for (uint32_t d = 0; d < wanted->rank; d++)
            assert_int_equal(found->shape[d], wanted->shape[d]);
        assert_ptr_equal(found->data, data + at);
        for (uint64_t b = 0; b < found->bytes; b++, at++)
            assert_int_equal(found->data[b], data_byte(at));
    }
    source_close(source);
    file_map_close(&map);
}

/* ---- What is written ---- */

static const quant_type types[] = {QUANT_F64,  QUANT_I64,     QUANT_U64,     QUANT_F32, QUANT_I32,
                                   QUANT_U32,  QUANT_F16,     QUANT_BF16,    QUANT_I16, QUANT_U16,
                                   QUANT_BOOL, QUANT_F8_E4M3, QUANT_F8_E5M2, QUANT_I8,  QUANT_U8};
#define TYPES (sizeof(types) / sizeof(types[0]))

#define RANDOM_TENSORS_MAX 40
typedef struct random_content {
    safetensors_content content;
    safetensors_tensor tensors[RANDOM_TENSORS_MAX];
    char names[RANDOM_TENSORS_MAX][SOURCE_NAME_MAX];
} random_content;

/* Tensors of every type in turn, widest elements first, with random shapes: scalars, empty ones and
 * odd sizes among them. */
static void make_random(random_content *made, uint64_t seed) {
    static const char *const parts[] = {"model.layers.", "\"quoted\"", "\\", "µ.", "\n", "norm"};
    made->content = (safetensors_content){.tensors = made->tensors,
                                          .tensor_count = 1 + random_at(seed, 0, 0).words[0] %
                                                                  RANDOM_TENSORS_MAX};
    for (size_t i = 0; i < made->content.tensor_count; i++) {
        random_block draw = random_at(seed, 1, i);
        safetensors_tensor *tensor = &made->tensors[i];
        int length =
            snprintf(made->names[i], sizeof(made->names[i]), "%s%zu", parts[draw.words[0] % 6], i);
        tensor->name = (text_view){made->names[i], (size_t)length};
        tensor->type = types[i * TYPES / made->content.tensor_count];
        tensor->rank = draw.words[1] % (SOURCE_RANK_MAX + 1);
        random_block sizes = random_at(seed, 2, i);
        for (uint32_t d = 0; d < tensor->rank; d++)
            tensor->shape[d] = sizes.words[d] % 8;
    }
}

static void random_shapes_read_back(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 3, 64, 1 << 20};
    for (uint64_t seed = 0; seed < 60; seed++) {
        random_content made;
        avo_error error = {0};
        make_random(&made, seed);
        assert_ok_error(write_file(&made.content, pieces[seed % 4], NULL, &error), &error);
        assert_reads_back(&made.content);
    }
    assert_int_equal(test_entries(folder), 1);
}

static void header_is_as_documented(void **state) {
    (void)state;
    static const safetensors_tensor tensors[] = {
        {TEXT_LITERAL("a"), QUANT_F32, 2, {2, 3}},
        {TEXT_LITERAL("b"), QUANT_BF16, 1, {1}},
        {TEXT_LITERAL("none"), QUANT_U8, 2, {0, 7}},
        {TEXT_LITERAL("scalar"), QUANT_I8, 0, {0}},
    };
    static const safetensors_entry metadata[] = {
        {TEXT_LITERAL("format"), TEXT_LITERAL("pt")},
        {TEXT_LITERAL("note"), TEXT_LITERAL("\"µ\"")},
    };
    static const char wanted[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"\\\"µ\\\"\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[24,26]},"
        "\"none\":{\"dtype\":\"U8\",\"shape\":[0,7],\"data_offsets\":[26,26]},"
        "\"scalar\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[26,27]}}";
    safetensors_content content = {tensors, 4, metadata, 2};
    avo_error error = {0};
    assert_ok_error(write_file(&content, 100, NULL, &error), &error);
    assert_reads_back(&content);
    file_map map;
    assert_ok_error(file_map_open(path, &map, &error), &error);
    size_t bytes = strlen(wanted), padded = (bytes + 7) / 8 * 8;
    uint64_t header;
    memcpy(&header, map.bytes.data, 8);
    assert_int_equal(header, padded);
    assert_memory_equal(map.bytes.data + 8, wanted, bytes);
    for (size_t i = bytes; i < padded; i++)
        assert_int_equal(map.bytes.data[8 + i], ' ');
    assert_int_equal(map.bytes.size, 8 + padded + 27);
    file_map_close(&map);

    content = (safetensors_content){0};
    assert_ok_error(write_file(&content, 1, NULL, &error), &error);
    assert_reads_back(&content);
}

/* ---- The reference library, where Python has it ---- */

static const char reference[] =
    "import json, sys\n"
    "try:\n"
    "    from safetensors import deserialize\n"
    "except ImportError:\n"
    "    sys.exit(77)\n"
    "for path in sys.argv[1:]:\n"
    "    raw = open(path, 'rb').read()\n"
    "    size = int.from_bytes(raw[:8], 'little')\n"
    "    header = json.loads(raw[8:8 + size])\n"
    "    assert header.pop('__metadata__', None) in (None, {'format': 'pt'})\n"
    "    found = dict(deserialize(raw))\n"
    "    assert sorted(found) == sorted(header), path\n"
    "    for name, entry in header.items():\n"
    "        begin, end = entry['data_offsets']\n"
    "        wanted = bytes((at * 131 + 7) & 255 for at in range(begin, end))\n"
    "        assert bytes(found[name]['data']) == wanted, (path, name)\n"
    "        assert found[name]['dtype'] == entry['dtype'], (path, name)\n"
    "        assert list(found[name]['shape']) == entry['shape'], (path, name)\n";

static void reference_library_reads_it(void **state) {
    (void)state;
    for (uint64_t seed = 100; seed < 110; seed++) {
        static const safetensors_entry metadata = {TEXT_LITERAL("format"), TEXT_LITERAL("pt")};
        random_content made;
        avo_error error = {0};
        make_random(&made, seed);
        made.content.metadata = &metadata;
        made.content.metadata_count = seed % 2;
        assert_ok_error(write_file(&made.content, 1000, NULL, &error), &error);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            execlp("python3", "python3", "-c", reference, path, (char *)NULL);
            _exit(77);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
            skip_without(NULL, "Python's safetensors package");
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* ---- What is refused ---- */

static void assert_open_refused(const safetensors_content *content, avo_status wanted,
                                const char *part) {
    avo_error error = {0};
    safetensors_writer *writer;
    assert_refused(safetensors_writer_open(NULL, path, content, &writer, &error), wanted, &error,
                   part);
    assert_null(writer);
    assert_int_equal(test_entries(folder), 0);
}

static void assert_tensor_refused(safetensors_tensor tensor, avo_status wanted, const char *part) {
    safetensors_content content = {.tensors = &tensor, .tensor_count = 1};
    assert_open_refused(&content, wanted, part);
}

static void bad_tensors_are_refused(void **state) {
    (void)state;
    static char long_name[SOURCE_NAME_MAX + 1];
    memset(long_name, 'x', sizeof(long_name));
    const text_view w = TEXT_LITERAL("w");
    assert_tensor_refused((safetensors_tensor){{"", 0}, QUANT_F32, 0, {0}}, AVO_ERROR_ARGUMENT,
                          "the name has 0 bytes, must have 1 to 256");
    assert_tensor_refused((safetensors_tensor){{long_name, 257}, QUANT_F32, 0, {0}},
                          AVO_ERROR_ARGUMENT, "the name has 257 bytes, must have 1 to 256");
    assert_tensor_refused((safetensors_tensor){TEXT_LITERAL("a\xff"), QUANT_F32, 0, {0}},
                          AVO_ERROR_ARGUMENT, "the name is not valid UTF-8");
    assert_tensor_refused((safetensors_tensor){TEXT_LITERAL("__metadata__"), QUANT_F32, 0, {0}},
                          AVO_ERROR_ARGUMENT, "reserves this name");
    assert_tensor_refused((safetensors_tensor){w, QUANT_Q4_0, 1, {32}}, AVO_ERROR_UNSUPPORTED,
                          "tensor \"w\": safetensors has no dtype for q4_0");
    assert_tensor_refused((safetensors_tensor){w, QUANT_F32, 5, {1, 1, 1, 1}}, AVO_ERROR_ARGUMENT,
                          "tensor \"w\" has 5 dimensions, at most 4");
    const uint64_t large = (uint64_t)INT64_MAX;
    assert_tensor_refused((safetensors_tensor){w, QUANT_U8, 1, {large + 1}}, AVO_ERROR_ARGUMENT,
                          "the shape is larger than any file");
    assert_tensor_refused((safetensors_tensor){w, QUANT_U8, 2, {large, 2}}, AVO_ERROR_ARGUMENT,
                          "the shape is larger than any file");
    assert_tensor_refused((safetensors_tensor){w, QUANT_F32, 1, {large}}, AVO_ERROR_ARGUMENT,
                          "the shape is larger than any file");
    assert_tensor_refused((safetensors_tensor){w, QUANT_U8, 1, {large}}, AVO_ERROR_ARGUMENT,
                          "bytes of data fit no file");
    assert_tensor_refused((safetensors_tensor){w, QUANT_U8, 2, {large + 1, 0}}, AVO_ERROR_ARGUMENT,
                          "the shape is larger than any file");
    safetensors_tensor longest = {{long_name, 256}, QUANT_F32, 1, {1}};
    safetensors_content content = {.tensors = &longest, .tensor_count = 1};
    avo_error error = {0};
    assert_ok_error(write_file(&content, 8, NULL, &error), &error);
    assert_reads_back(&content);
}

static void bad_lists_are_refused(void **state) {
    (void)state;
    static const safetensors_tensor twice[] = {{TEXT_LITERAL("w"), QUANT_F32, 0, {0}},
                                               {TEXT_LITERAL("v"), QUANT_F32, 0, {0}},
                                               {TEXT_LITERAL("w"), QUANT_U8, 0, {0}}};
    assert_open_refused(&(safetensors_content){.tensors = twice, .tensor_count = 3},
                        AVO_ERROR_ARGUMENT, "tensor \"w\": the name appears twice");
    static const safetensors_tensor odd[] = {{TEXT_LITERAL("h"), QUANT_F16, 1, {3}},
                                             {TEXT_LITERAL("w"), QUANT_F32, 1, {1}}};
    assert_open_refused(&(safetensors_content){.tensors = odd, .tensor_count = 2},
                        AVO_ERROR_ARGUMENT,
                        "tensor \"w\" would begin at data offset 6, which is no multiple of its "
                        "element size (4 bytes)");
    static const safetensors_entry repeated[] = {{TEXT_LITERAL("k"), TEXT_LITERAL("a")},
                                                 {TEXT_LITERAL("k"), TEXT_LITERAL("b")}};
    assert_open_refused(&(safetensors_content){.metadata = repeated, .metadata_count = 2},
                        AVO_ERROR_ARGUMENT, "metadata \"k\" appears twice");
    static const safetensors_entry invalid[] = {{TEXT_LITERAL("\x80"), TEXT_LITERAL("a")},
                                                {TEXT_LITERAL("k"), TEXT_LITERAL("\x80")}};
    for (size_t i = 0; i < 2; i++)
        assert_open_refused(&(safetensors_content){.metadata = &invalid[i], .metadata_count = 1},
                            AVO_ERROR_ARGUMENT, "is not valid UTF-8");
}

static void limits_hold(void **state) {
    (void)state;
    avo_error error = {0};
    /* Tensors: the limit, and one more. */
    static char names[SOURCE_TENSORS_MAX + 1][8];
    static safetensors_tensor tensors[SOURCE_TENSORS_MAX + 1];
    for (size_t i = 0; i <= SOURCE_TENSORS_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i);
        tensors[i] = (safetensors_tensor){text_from(names[i]), QUANT_U8, 0, {0}};
    }
    safetensors_content content = {.tensors = tensors, .tensor_count = SOURCE_TENSORS_MAX + 1};
    assert_open_refused(&content, AVO_ERROR_LIMIT, "65537 tensors, at most 65536");
    content.tensor_count = SOURCE_TENSORS_MAX;
    assert_ok_error(write_file(&content, 1 << 16, NULL, &error), &error);
    assert_int_equal(unlink(path), 0);
    /* The header: `{"__metadata__":{"k":"…"}}` of exactly the limit, and one byte more. */
    size_t frame = strlen("{\"__metadata__\":{\"k\":\"\"}}");
    size_t most = SAFETENSORS_HEADER_BYTES_MAX - frame;
    char *text = malloc(most + 1);
    assert_non_null(text);
    memset(text, 'x', most + 1);
    safetensors_entry entry = {TEXT_LITERAL("k"), {text, most + 1}};
    content = (safetensors_content){.metadata = &entry, .metadata_count = 1};
    assert_open_refused(&content, AVO_ERROR_LIMIT, "needs more than 100000000 bytes");
    entry.value.size = most;
    assert_ok_error(write_file(&content, 1, NULL, &error), &error);
    assert_reads_back(&content);
    free(text);
}

/* ---- Failures on the way ---- */

static const safetensors_tensor small[] = {{TEXT_LITERAL("a"), QUANT_F32, 1, {2}},
                                           {TEXT_LITERAL("b"), QUANT_F32, 1, {1}}};
static const safetensors_content small_content = {.tensors = small, .tensor_count = 2};

static void data_must_be_all_there(void **state) {
    (void)state;
    avo_error error = {0};
    safetensors_writer *writer;
    assert_ok_error(safetensors_writer_open(NULL, path, &small_content, &writer, &error), &error);
    assert_ok(safetensors_writer_append(writer, "12345678901", 11, &error));
    assert_refused(safetensors_writer_commit(writer, &error), AVO_ERROR_ARGUMENT, &error,
                   "data of tensors is missing");
    assert_int_equal(test_entries(folder), 0);
    assert_ok_error(safetensors_writer_open(NULL, path, &small_content, &writer, &error), &error);
    assert_refused(safetensors_writer_append(writer, "1234567890123", 13, &error),
                   AVO_ERROR_ARGUMENT, &error, "more data than the tensors have");
    assert_ok(safetensors_writer_append(writer, "123456789012", 12, &error));
    assert_refused(safetensors_writer_append(writer, "1", 1, &error), AVO_ERROR_ARGUMENT, &error,
                   "more data than the tensors have");
    assert_ok(safetensors_writer_append(writer, NULL, 0, &error));
    assert_ok_error(safetensors_writer_commit(writer, &error), &error);
    assert_int_equal(test_entries(folder), 1);
}

static void aborting_leaves_nothing(void **state) {
    (void)state;
    avo_error error = {0};
    safetensors_writer *writer;
    safetensors_writer_abort(NULL);
    assert_ok_error(safetensors_writer_open(NULL, path, &small_content, &writer, &error), &error);
    assert_int_equal(test_entries(folder), 1); /* the temporary file */
    assert_ok(safetensors_writer_append(writer, "1234", 4, &error));
    safetensors_writer_abort(writer);
    assert_int_equal(test_entries(folder), 0);
    /* What was there before stays. */
    assert_ok_error(write_file(&small_content, 4, NULL, &error), &error);
    assert_ok_error(safetensors_writer_open(NULL, path, &small_content, &writer, &error), &error);
    safetensors_writer_abort(writer);
    assert_reads_back(&small_content);
    assert_int_equal(test_entries(folder), 1);
    snprintf(path, sizeof(path), "%s/none/model.safetensors", folder);
    assert_refused(safetensors_writer_open(NULL, path, &small_content, &writer, &error),
                   AVO_ERROR_IO, &error, "cannot create");
}

static void failing_allocations_leave_nothing(void **state) {
    (void)state;
    static const safetensors_entry metadata = {TEXT_LITERAL("format"), TEXT_LITERAL("pt")};
    random_content made;
    make_random(&made, 5);
    made.content.metadata = &metadata;
    made.content.metadata_count = 1;
    size_t fail_at = 1;
    for (;; fail_at++) {
        test_allocator counting;
        avo_error error = {0};
        test_allocator_init(&counting);
        counting.fail_at = fail_at;
        avo_status status = write_file(&made.content, 100, &counting.allocator, &error);
        assert_int_equal(counting.live, 0);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_true(error.text[0] != '\0');
        assert_int_equal(test_entries(folder), 0);
    }
    assert_true(fail_at > 3); /* the writer, the indexes, the header */
    assert_reads_back(&made.content);
}

static void full_disk_leaves_nothing(void **state) {
    (void)state;
    safetensors_tensor tensor = {TEXT_LITERAL("w"), QUANT_U8, 1, {300000}};
    safetensors_content content = {.tensors = &tensor, .tensor_count = 1};
    test_disk_limit(100000);
    avo_error buffered = {0}, direct = {0};
    avo_status at_commit = write_file(&content, 1000, NULL, &buffered);
    tensor.shape[0] = 3 << 20;
    avo_status at_append = write_file(&content, 2 << 20, NULL, &direct);
    test_disk_limit(0);
    assert_refused(at_commit, AVO_ERROR_IO, &buffered, "cannot write");
    assert_refused(at_append, AVO_ERROR_IO, &direct, "cannot write");
    assert_int_equal(test_entries(folder), 0);
    avo_error error = {0};
    assert_ok_error(write_file(&content, 1 << 16, NULL, &error), &error);
}

/* Memory does not grow with the data: only the header's is taken, and given back on opening. */
static void memory_is_bounded(void **state) {
    (void)state;
    safetensors_tensor tensor = {TEXT_LITERAL("w"), QUANT_U8, 1, {32 << 20}};
    safetensors_content content = {.tensors = &tensor, .tensor_count = 1};
    test_allocator counting;
    avo_error error = {0};
    test_allocator_init(&counting);
    assert_ok_error(write_file(&content, 1 << 20, &counting.allocator, &error), &error);
    assert_true(counting.peak_bytes < 100000);
    assert_int_equal(counting.live, 0);
}

#define IN_A_FOLDER(test) cmocka_unit_test_setup(test, make_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(random_shapes_read_back),
        IN_A_FOLDER(header_is_as_documented),
        IN_A_FOLDER(reference_library_reads_it),
        IN_A_FOLDER(bad_tensors_are_refused),
        IN_A_FOLDER(bad_lists_are_refused),
        IN_A_FOLDER(limits_hold),
        IN_A_FOLDER(data_must_be_all_there),
        IN_A_FOLDER(aborting_leaves_nothing),
        IN_A_FOLDER(failing_allocations_leave_nothing),
        IN_A_FOLDER(full_disk_leaves_nothing),
        IN_A_FOLDER(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
