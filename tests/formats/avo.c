/* The .avo file: what is written is read, in place; damaged, cut and hostile files are refused or
 * harmless, with sums that are wrong and with sums that were made right again. */
#include "support/support.h"

#include "base/hash.h"
#include "base/random.h"
#include "formats/avo.h"
#include "formats/formats_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- A small file with everything in it ---- */

enum { LAYERS = 3, WIDTH = 32, VOCABULARY = 20, PAIRS = 4 };

static const uint8_t windowed[LAYERS] = {1, 0, 1};
static const uint8_t rotary[LAYERS] = {1, 1, 0};
static const double short_factor[PAIRS] = {1, 1.5, 2, 3};
static const double long_factor[PAIRS] = {4, 5, 6.25, 7};

static model_config make_config(void) {
    return (model_config){
        .architecture = ARCHITECTURE_PHI3,
        .layers = LAYERS,
        .width = WIDTH,
        .feed_forward = 48,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 8,
        .vocabulary = VOCABULARY,
        .context = 256,
        .embedding_width = WIDTH,
        .norm_epsilon = 1e-6,
        .activation = SOURCE_ACTIVATION_GELU_TANH,
        .tied_head = true,
        .rotary_dims = 2 * PAIRS,
        .rope_interleaved = true,
        .rope_base = 12345.5,
        .rope_base_local = 10000,
        .rope = {.kind = ROPE_LONGROPE,
                 .factor = 32,
                 .original_context = 64,
                 .attention_factor = 1.19,
                 .short_factor = short_factor,
                 .long_factor = long_factor,
                 .factor_count = PAIRS},
        .layer_windowed = windowed,
        .layer_rotary = rotary,
        .window = 16,
        .attention_scale = 0.125,
        .embedding_scale = 5.5,
        .logit_softcap = 30,
    };
}

static generation_defaults make_generation(void) {
    generation_defaults defaults;
    generation_defaults_init(&defaults);
    defaults.token_begin = 1;
    defaults.stop_tokens[0] = 2;
    defaults.stop_tokens[1] = 19;
    defaults.stop_token_count = 2;
    defaults.temperature = 0.7f;
    defaults.top_k = 40;
    return defaults;
}

static const avo_content_tensor tensor_specs[] = {
    {"token_embd.weight", QUANT_Q8B, QUANT_LAYOUT_PANELS, 2, {VOCABULARY, WIDTH}, true, 0, 0, 0},
    {"blk.0.attn_norm.weight", QUANT_F32, QUANT_LAYOUT_ROWS, 1, {WIDTH, 1}, true, 0, 0, 0},
    {"blk.0.attn_q.weight", QUANT_Q4R, QUANT_LAYOUT_PANELS, 2, {32, WIDTH}, false, 0, 0, 0},
    {"blk.0.attn_k.weight", QUANT_Q8C, QUANT_LAYOUT_PANELS, 2, {16, WIDTH}, false, 0, 0, 0},
    {"blk.0.attn_v.weight", QUANT_Q4_0, QUANT_LAYOUT_ROWS, 2, {16, WIDTH}, false, 0, 0, 0},
};
#define TENSORS (sizeof(tensor_specs) / sizeof(tensor_specs[0]))

static const avo_note notes[] = {{{"name", 4}, {"Tiny \xc3\xa9", 7}}, {{"license", 7}, {"MIT", 3}}};
static const char template_text[] = "{{ messages[0].content }}";
static const uint8_t image[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

static uint8_t tensor_byte(size_t tensor, uint64_t at) {
    return (uint8_t)random_at(5, tensor, at).words[0];
}

static avo_status write_small(const avo_allocator *allocator, const char *path, size_t piece,
                              avo_error *error) {
    model_config config = make_config();
    generation_defaults generation = make_generation();
    avo_content_tensor tensors[TENSORS];
    memcpy(tensors, tensor_specs, sizeof(tensors));
    avo_content content = {&config,
                           &generation,
                           {image, sizeof(image)},
                           {template_text, sizeof(template_text) - 1},
                           notes,
                           2,
                           tensors,
                           TENSORS};
    avo_writer *writer;
    AVO_TRY(avo_writer_open(allocator, path, &content, &writer, error));
    avo_status status = AVO_OK;
    for (size_t t = 0; t < TENSORS && status == AVO_OK; t++)
        for (uint64_t at = 0; at < tensors[t].bytes && status == AVO_OK; at += piece) {
            uint8_t bytes[4096];
            size_t count = tensors[t].bytes - at < piece ? tensors[t].bytes - at : piece;
            for (size_t i = 0; i < count; i++)
                bytes[i] = tensor_byte(t, at + i);
            status = avo_writer_append(writer, bytes, count, error);
        }
    if (status == AVO_OK)
        return avo_writer_commit(writer, error);
    avo_writer_abort(writer);
    return status;
}

static const char *small_path(void) {
    static char path[4200];
    if (path[0] == '\0') {
        avo_error error;
        snprintf(path, sizeof(path), "%s/small.avo", test_scratch_folder());
        assert_ok_error(write_small(NULL, path, 1000, &error), &error);
    }
    return path;
}

/* The small file in memory, for tests that change it. */
static uint8_t *small_bytes(size_t *size) {
    file_map map;
    avo_error error;
    assert_ok_error(file_map_open(small_path(), &map, &error), &error);
    uint8_t *bytes = malloc(map.bytes.size);
    memcpy(bytes, map.bytes.data, map.bytes.size);
    *size = map.bytes.size;
    file_map_close(&map);
    return bytes;
}

static avo_status open_bytes(const uint8_t *bytes, size_t size, model_source **source,
                             avo_error *error) {
    memory_file file = {"small.avo", {bytes, size}};
    return source_open_memory(&file, 1, NULL, source, error);
}

/* Uses everything that a source gives. */
static void touch(const model_source *source) {
    volatile uint64_t sum = 0;
    for (uint32_t i = 0; i < source->tensor_count; i++) {
        const source_tensor *tensor = &source->tensors[i];
        uint32_t rows = tensor->rank == 1 ? 1 : (uint32_t)tensor->shape[0];
        uint32_t k = (uint32_t)(tensor->rank == 1 ? tensor->shape[0] : tensor->shape[1]);
        weight_view view = {.type = tensor->type,
                            .layout = tensor->layout,
                            .rows = rows,
                            .k = k,
                            .data = tensor->data};
        float *row = malloc(k * sizeof(float));
        for (uint32_t r = 0; r < rows; r++) {
            weight_decode_row(&view, r, row);
            sum += row[0] > 0;
        }
        free(row);
        assert_ptr_equal(source_find(source, tensor->name), tensor);
    }
    for (uint32_t i = 0; i < source->config.layers; i++)
        sum += source->config.layer_windowed[i] + source->config.layer_rotary[i];
    for (uint32_t i = 0; i < source->config.rope.factor_count; i++)
        sum += source->config.rope.short_factor[i] > source->config.rope.long_factor[i];
    for (uint32_t i = 0; i < avo_source_note_count(source); i++)
        sum += avo_source_note(source, i).value.size;
    for (size_t i = 0; i < source->chat_template.size; i++)
        sum += (uint8_t)source->chat_template.data[i];
    for (size_t i = 0; i < source->tokenizer.data.size; i++)
        sum += source->tokenizer.data.data[i];
    (void)sum;
}

/* ---- Reading back ---- */

static void assert_config(const model_config *got) {
    model_config wanted = make_config();
    assert_memory_equal(got->layer_windowed, windowed, LAYERS);
    assert_memory_equal(got->layer_rotary, rotary, LAYERS);
    assert_memory_equal(got->rope.short_factor, short_factor, sizeof(short_factor));
    assert_memory_equal(got->rope.long_factor, long_factor, sizeof(long_factor));
    model_config same = *got;
    same.layer_windowed = wanted.layer_windowed;
    same.layer_rotary = wanted.layer_rotary;
    same.rope.short_factor = wanted.rope.short_factor;
    same.rope.long_factor = wanted.rope.long_factor;
#define SAME(field) assert_true(same.field == wanted.field)
    SAME(architecture), SAME(layers), SAME(width), SAME(feed_forward), SAME(heads);
    SAME(kv_heads), SAME(head_size), SAME(vocabulary), SAME(context), SAME(embedding_width);
    SAME(norm_epsilon), SAME(activation), SAME(tied_head), SAME(norm_plus_one), SAME(norm_after);
    SAME(no_final_norm), SAME(transposed), SAME(rotary_dims), SAME(rope_interleaved);
    SAME(rope_base), SAME(rope_base_local), SAME(position_offset), SAME(positions), SAME(window);
    SAME(attention_scale), SAME(embedding_scale), SAME(residual_scale), SAME(logit_scale);
    SAME(attention_softcap), SAME(logit_softcap), SAME(rope.kind), SAME(rope.factor);
    SAME(rope.original_context), SAME(rope.attention_factor), SAME(rope.factor_count);
    SAME(rope.truncate), SAME(rope.mscale), SAME(rope.beta_fast);
#undef SAME
}

static void what_is_written_is_read(void **state) {
    (void)state;
    model_source *source;
    avo_error error;
    assert_ok_error(source_open(small_path(), NULL, &source, &error), &error);
    assert_int_equal(source->format, SOURCE_AVO);
    assert_int_equal(source->naming, SOURCE_NAMES_GGUF);
    assert_config(&source->config);
    assert_int_equal(source->generation.token_begin, 1);
    assert_int_equal(source->generation.stop_token_count, 2);
    assert_int_equal(source->generation.stop_tokens[1], 19);
    assert_true(source->generation.temperature == 0.7f && isnan(source->generation.top_p));
    assert_int_equal(source->generation.top_k, 40);
    assert_true(text_is(source->chat_template, template_text));
    assert_true(text_is(source->name, "Tiny \xc3\xa9"));
    assert_int_equal(avo_source_note_count(source), 2);
    assert_true(text_is(avo_source_note(source, 1).value, "MIT"));
    assert_int_equal(source->tokenizer.kind, TOKENIZER_SOURCE_IMAGE);
    assert_memory_equal(source->tokenizer.data.data, image, sizeof(image));
    assert_int_equal(source->tensor_count, TENSORS);
    const uint8_t *base = source->files[0].map.bytes.data;
    for (size_t t = 0; t < TENSORS; t++) {
        const source_tensor *tensor = &source->tensors[t];
        assert_true(text_is(tensor->name, tensor_specs[t].name));
        assert_int_equal(tensor->type, tensor_specs[t].type);
        assert_int_equal(tensor->layout, tensor_specs[t].layout);
        size_t offset = (size_t)(tensor->data - base);
        assert_int_equal(offset % (tensor_specs[t].new_page ? 4096 : 64), 0);
        for (uint64_t i = 0; i < tensor->bytes; i++)
            assert_int_equal(tensor->data[i], tensor_byte(t, i));
    }
    /* matrices of a fused product touch */
    assert_ptr_equal(source->tensors[2].data + source->tensors[2].bytes, source->tensors[3].data);
    touch(source);
    assert_ok_error(avo_source_verify(source, NULL, NULL, &error), &error);
    source_close(source);
}

/* ---- Types in panels ---- */

static void resum(uint8_t *bytes, size_t size) {
    avo_header header;
    memcpy(&header, bytes, sizeof(header));
    for (int i = 0; i < AVO_SECTION_COUNT; i++)
        if (header.section[i].offset <= size &&
            header.section[i].bytes <= size - header.section[i].offset)
            header.section[i].sum =
                hash_bytes(bytes + header.section[i].offset, header.section[i].bytes);
    header.sum = 0;
    header.sum = hash_bytes(&header, sizeof(header));
    memcpy(bytes, &header, sizeof(header));
}

static const quant_type panel_types[] = {
    QUANT_F32,  QUANT_F16,  QUANT_BF16,  QUANT_F8C,    QUANT_Q8C,   QUANT_Q8B,
    QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_1,  QUANT_Q4B64,  QUANT_Q4M64, QUANT_Q5_0,
    QUANT_Q5_1, QUANT_Q4R,  QUANT_MXFP4, QUANT_IQ4_NL, QUANT_Q2_K,  QUANT_Q3_K,
    QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K,  QUANT_IQ4_XS, QUANT_Q8R};
enum { PANEL_TYPES = sizeof(panel_types) / sizeof(panel_types[0]), PANEL_ROWS = 19, PANEL_K = 256 };

/* One matrix of each of `count` types, random bytes. */
static avo_status write_panels(const char *path, const quant_type *types, size_t count, uint64_t k,
                               avo_error *error) {
    model_config config = make_config();
    generation_defaults generation = make_generation();
    avo_content_tensor tensors[PANEL_TYPES];
    for (size_t t = 0; t < count; t++) {
        tensors[t] = (avo_content_tensor){
            .type = types[t], .layout = QUANT_LAYOUT_PANELS, .rank = 2, .shape = {PANEL_ROWS, k}};
        snprintf(tensors[t].name, sizeof(tensors[t].name), "panels.%zu", t);
    }
    avo_content content = {&config, &generation, {image, sizeof(image)}, {template_text, 1}, notes,
                           2,       tensors,     (uint32_t)count};
    avo_writer *writer;
    AVO_TRY(avo_writer_open(NULL, path, &content, &writer, error));
    for (size_t t = 0; t < count; t++)
        for (uint64_t at = 0; at < tensors[t].bytes; at++) {
            uint8_t byte = tensor_byte(t, at);
            AVO_TRY(avo_writer_append(writer, &byte, 1, error));
        }
    return avo_writer_commit(writer, error);
}

static void every_panel_type_is_read(void **state) {
    (void)state;
    char path[4200];
    avo_error error;
    model_source *source;
    snprintf(path, sizeof(path), "%s/panels.avo", test_scratch_folder());
    assert_ok_error(write_panels(path, panel_types, PANEL_TYPES, PANEL_K, &error), &error);
    assert_ok_error(source_open(path, NULL, &source, &error), &error);
    assert_int_equal(source->tensor_count, PANEL_TYPES);
    for (size_t t = 0; t < PANEL_TYPES; t++) {
        const source_tensor *tensor = &source->tensors[t];
        uint64_t bytes;
        assert_true(weight_bytes(panel_types[t], QUANT_LAYOUT_PANELS, PANEL_ROWS, PANEL_K, &bytes));
        assert_int_equal(tensor->type, panel_types[t]);
        assert_int_equal(tensor->layout, QUANT_LAYOUT_PANELS);
        assert_int_equal(tensor->bytes, bytes);
        assert_int_equal(tensor->data[bytes - 1], tensor_byte(t, bytes - 1));
    }
    touch(source); /* decodes every row, whatever the bytes are */
    assert_ok_error(avo_source_verify(source, NULL, NULL, &error), &error);
    source_close(source);
}

/* Super-blocks that are not whole, and types without panels, cannot be written; a file that says it
 * has them is refused. */
static void impossible_panels_are_refused(void **state) {
    (void)state;
    const quant_type wrong[] = {QUANT_Q4_K, QUANT_Q2_K, QUANT_IQ4_XS, QUANT_I8, QUANT_F8_E5M2};
    char path[4200];
    avo_error error;
    snprintf(path, sizeof(path), "%s/impossible.avo", test_scratch_folder());
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused(write_panels(path, &wrong[i], 1, 288, &error), AVO_ERROR_ARGUMENT, &error,
                       "do not match");
    assert_ok_error(write_panels(path, panel_types + 16, 1, 256, &error), &error); /* q2_k */
    file_map map;
    assert_ok_error(file_map_open(path, &map, &error), &error);
    size_t size = map.bytes.size;
    uint8_t *bytes = malloc(size);
    const uint32_t types[] = {QUANT_Q3_K, QUANT_Q4_0, QUANT_I8, 130, 136};
    const char *texts[] = {"shape needs", "shape needs", "do not match", "130", "136"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        memcpy(bytes, map.bytes.data, size);
        avo_header header;
        memcpy(&header, bytes, sizeof(header));
        memcpy(bytes + header.section[AVO_MANIFEST].offset + 8, &types[i], 4);
        resum(bytes, size);
        model_source *source;
        avo_status status = open_bytes(bytes, size, &source, &error);
        assert_int_not_equal(status, AVO_OK);
        if (strstr(error.text, texts[i]) == NULL)
            fail_msg("%s", error.text);
    }
    free(bytes);
    file_map_close(&map);
}

/* The pieces in which bytes come do not matter. */
static void pieces_do_not_matter(void **state) {
    (void)state;
    char path[4200];
    avo_error error;
    snprintf(path, sizeof(path), "%s/pieces.avo", test_scratch_folder());
    assert_ok_error(write_small(NULL, path, 7, &error), &error);
    size_t size;
    uint8_t *bytes = small_bytes(&size);
    file_map map;
    assert_ok_error(file_map_open(path, &map, &error), &error);
    assert_int_equal(map.bytes.size, size);
    assert_memory_equal(map.bytes.data, bytes, size);
    file_map_close(&map);
    free(bytes);
}

/* ---- Damage ---- */

static void every_truncation_is_refused(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_bytes(&size);
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *copy = malloc(cut + 1); /* its own block, so that a sanitizer sees the end */
        memcpy(copy, bytes, cut);
        model_source *source;
        avo_error error = {0};
        avo_status status = open_bytes(copy, cut, &source, &error);
        assert_int_not_equal(status, AVO_OK);
        assert_non_null(strstr(error.text, "small.avo"));
        if (cut >= sizeof(avo_header)) { /* as if it had been meant so */
            uint64_t file_bytes = cut;
            memcpy(copy + offsetof(avo_header, file_bytes), &file_bytes, 8);
            resum(copy, cut);
            assert_int_not_equal(open_bytes(copy, cut, &source, &error), AVO_OK);
        }
        free(copy);
    }
    uint8_t *longer = calloc(1, size + 64);
    memcpy(longer, bytes, size);
    model_source *source;
    avo_error error;
    assert_refused(open_bytes(longer, size + 64, &source, &error), AVO_ERROR_FORMAT, &error,
                   "appended");
    free(longer);
    free(bytes);
}

static void every_flip_is_refused_or_harmless(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_bytes(&size);
    avo_header header;
    memcpy(&header, bytes, sizeof(header));
    size_t front = header.section[AVO_NOTES].offset + header.section[AVO_NOTES].bytes;
    size_t tokenizer_begin = header.section[AVO_TOKENIZER].offset;
    size_t template_end = header.section[AVO_GENERATION].offset;
    uint8_t *copy = malloc(size);
    size_t opened = 0;
    for (size_t bit = 0; bit < front * 8; bit++)
        for (int summed = 0; summed < 2; summed++) {
            memcpy(copy, bytes, size);
            copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (summed)
                resum(copy, size);
            model_source *source;
            avo_error error = {0};
            if (open_bytes(copy, size, &source, &error) != AVO_OK) {
                assert_true(strlen(error.text) > 0);
                continue;
            }
            touch(source);
            /* Without new sums, only what opening does not sum may pass: the tokenizer's image and
             * the template, which --verify finds, and padding. */
            if (!summed) {
                assert_true(bit / 8 >= tokenizer_begin && bit / 8 < template_end);
                opened++;
            }
            source_close(source);
        }
    print_message("%zu of %zu flips without new sums opened\n", opened, front * 8);
    free(copy);
    free(bytes);
}

/* Extremes in every 32-bit and 64-bit field of header, manifest and configuration, sums right. */
static void extremes_are_refused_or_harmless(void **state) {
    (void)state;
    static const uint64_t extremes[] = {0,
                                        1,
                                        2,
                                        255,
                                        4095,
                                        4096,
                                        INT32_MAX,
                                        (uint64_t)INT32_MAX + 1,
                                        UINT32_MAX,
                                        (uint64_t)UINT32_MAX + 1,
                                        INT64_MAX,
                                        (uint64_t)INT64_MAX + 1,
                                        UINT64_MAX - 63,
                                        UINT64_MAX};
    size_t size;
    uint8_t *bytes = small_bytes(&size);
    avo_header header;
    memcpy(&header, bytes, sizeof(header));
    size_t front = header.section[AVO_NOTES].offset + header.section[AVO_NOTES].bytes;
    uint8_t *copy = malloc(size);
    for (size_t at = 8; at + 8 <= front; at += 4)
        for (size_t e = 0; e < sizeof(extremes) / sizeof(extremes[0]); e++)
            for (size_t width = 4; width <= 8; width += 4) {
                memcpy(copy, bytes, size);
                memcpy(copy + at, &extremes[e], width);
                resum(copy, size);
                model_source *source;
                avo_error error = {0};
                if (open_bytes(copy, size, &source, &error) == AVO_OK) {
                    touch(source);
                    source_close(source);
                }
            }
    free(copy);
    free(bytes);
}

/* Named faults get named answers. */
static void refuse(uint8_t *copy, const uint8_t *bytes, size_t size, size_t at, uint64_t value,
                   size_t width, const char *part) {
    model_source *source;
    avo_error error = {0};
    memcpy(copy, bytes, size);
    memcpy(copy + at, &value, width);
    resum(copy, size);
    avo_status status = open_bytes(copy, size, &source, &error);
    assert_int_not_equal(status, AVO_OK);
    if (strstr(error.text, part) == NULL)
        fail_msg("expected \"%s\" in: %s", part, error.text);
}

static void faults_are_named(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_bytes(&size), *copy = malloc(size);
    avo_header header;
    memcpy(&header, bytes, sizeof(header));
    size_t entry = header.section[AVO_MANIFEST].offset + 2 * sizeof(avo_tensor_entry);
    size_t config = header.section[AVO_CONFIG].offset;
    size_t generation = header.section[AVO_GENERATION].offset;
#define HEADER(field)     offsetof(avo_header, field)
#define ENTRY(field)      entry + offsetof(avo_tensor_entry, field)
#define CONFIG(field)     config + offsetof(avo_config_record, field)
#define GENERATION(field) generation + offsetof(avo_generation_record, field)
    refuse(copy, bytes, size, HEADER(version), 2, 4, ".avo version is 2");
    refuse(copy, bytes, size, HEADER(tensor_count), 0, 4, "tensor count is 0, must be 1 to");
    refuse(copy, bytes, size, HEADER(tensor_count), 1u << 30, 4, "tensor count is 1073741824");
    refuse(copy, bytes, size, HEADER(width), 64, 4, "width is 64 in the header but 32");
    refuse(copy, bytes, size, HEADER(data_offset), 4097, 8, "tensor data begins at 4097");
    refuse(copy, bytes, size, HEADER(section[AVO_CONFIG].offset), 12, 8, "config section");
    refuse(copy, bytes, size, HEADER(section[AVO_NOTES].bytes), UINT64_MAX, 8, "notes section");
    refuse(copy, bytes, size, ENTRY(type), 77777, 4, "type 77777");
    refuse(copy, bytes, size, ENTRY(layout), QUANT_LAYOUT_COLUMNS, 4, "do not match");
    refuse(copy, bytes, size, ENTRY(shape[0]), UINT64_MAX, 8, "do not match");
    refuse(copy, bytes, size, ENTRY(shape[1]), 0, 8, "do not match");
    refuse(copy, bytes, size, ENTRY(bytes), 64, 8, "blk.0.attn_q.weight has 64 bytes");
    refuse(copy, bytes, size, ENTRY(offset), 4096, 8, "is misaligned, overlaps");
    refuse(copy, bytes, size, ENTRY(offset), UINT64_MAX - 63, 8, "passes the end of the file");
    refuse(copy, bytes, size, ENTRY(name_offset), 1u << 20, 4, "passes the end");
    refuse(copy, bytes, size, ENTRY(name_bytes), 0, 4, "is empty, too long or");
    refuse(copy, bytes, size, header.section[AVO_NAMES].offset, '\n', 1, "is empty, too long or");
    refuse(copy, bytes, size, CONFIG(architecture), 99, 4, "architecture 99");
    refuse(copy, bytes, size, CONFIG(layers), 100000, 4, "layer count is 100000");
    refuse(copy, bytes, size, CONFIG(heads), 0, 4, "head count is 0");
    refuse(copy, bytes, size, CONFIG(flags), 1u << 20, 4, "flags");
    refuse(copy, bytes, size, CONFIG(rope_kind), 50, 4, "unknown RoPE scaling 50");
    refuse(copy, bytes, size, CONFIG(factor_count), 9999, 4, "9999 RoPE factors, must");
    refuse(copy, bytes, size, CONFIG(norm_epsilon), 0x7ff8000000000000u, 8, "norm epsilon is nan");
    refuse(copy, bytes, size, CONFIG(record_bytes), 8, 4, "config record");
    refuse(copy, bytes, size, CONFIG(record_bytes), 224, 4, "config record");
    refuse(copy, bytes, size, CONFIG(record_bytes), 248, 4, "newer avocet");
    refuse(copy, bytes, size, CONFIG(position_offset), 1, 4, "of learned positions (0)");
    refuse(copy, bytes, size, CONFIG(window), 0, 4, "but the window is 0");
    refuse(copy, bytes, size, CONFIG(kv_heads), 3, 4, "multiple of KV heads (3)");
    refuse(copy, bytes, size, CONFIG(rotary_dims), 9, 4, "9 rotated dimensions, must be even");
    refuse(copy, bytes, size, CONFIG(rotary_dims), 6, 4, "4 RoPE factors, must be half of the 6");
    refuse(copy, bytes, size, CONFIG(rope_original_context), 0, 4, "RoPE scaling is 0");
    refuse(copy, bytes, size, CONFIG(rope_factor), 0, 8, "RoPE scaling factor is 0, must be");
    refuse(copy, bytes, size, CONFIG(rope_base), 0x3ff0000000000000u, 8, "RoPE base is 1,");
    refuse(copy, bytes, size, config + AVO_CONFIG_RECORD_DENSE, 0, 8,
           "short RoPE factor is 0, must be 1e-09");
    refuse(copy, bytes, size, config + AVO_CONFIG_RECORD_DENSE + 16 * PAIRS, 2, 1,
           "layer 0: window flag is 2");
    refuse(copy, bytes, size, GENERATION(typical_p), 0, 4, "typical_p is 0, must be more than 0");
    refuse(copy, bytes, size, GENERATION(repetition_penalty), 0, 4, "repetition_penalty is 0");
    refuse(copy, bytes, size, GENERATION(temperature), 0xbf800000u, 4, "temperature is -1");
    refuse(copy, bytes, size, GENERATION(top_k), (uint32_t)-2, 4, "top_k is -2");
    refuse(copy, bytes, size, generation, 20, 4, "BOS token is 20, but the model has 20");
    refuse(copy, bytes, size, generation + 4, 17, 4, "17 stop tokens");
    refuse(copy, bytes, size, generation + 8, 999, 4, "stop token is 999");
    refuse(copy, bytes, size, header.section[AVO_TEMPLATE].offset, 0xff, 1,
           "the chat template is not valid UTF-8");
    refuse(copy, bytes, size, header.section[AVO_NOTES].offset, 65, 4, "65 notes");
    refuse(copy, bytes, size, header.section[AVO_NOTES].offset + 4, 1u << 31, 4, "note 0");
    /* Two tensors with one name. */
    refuse(copy, bytes, size, entry + 64 + offsetof(avo_tensor_entry, name_offset),
           ((const avo_tensor_entry *)(const void *)(bytes + entry))->name_offset, 4, "twice");
    free(copy);
    free(bytes);
}

static void verify_names_the_tensor(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_bytes(&size);
    avo_tensor_entry entry;
    avo_header header;
    memcpy(&header, bytes, sizeof(header));
    memcpy(&entry, bytes + header.section[AVO_MANIFEST].offset + 3 * sizeof(entry), sizeof(entry));
    bytes[entry.offset + 5] ^= 1;
    model_source *source;
    avo_error error;
    assert_ok_error(open_bytes(bytes, size, &source, &error), &error);
    assert_refused(avo_source_verify(source, NULL, NULL, &error), AVO_ERROR_FORMAT, &error,
                   "blk.0.attn_k.weight");
    source_close(source);
    bytes[entry.offset + 5] ^= 1;
    bytes[header.section[AVO_TOKENIZER].offset] ^= 1;
    assert_ok_error(open_bytes(bytes, size, &source, &error), &error);
    assert_refused(avo_source_verify(source, NULL, NULL, &error), AVO_ERROR_FORMAT, &error,
                   "tokenizer section");
    source_close(source);
    free(bytes);
}

static bool stop_at_once(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    *(bool *)context = done <= total;
    return false;
}

static void verify_can_be_cancelled(void **state) {
    (void)state;
    model_source *source;
    avo_error error;
    bool called = false;
    assert_ok_error(source_open(small_path(), NULL, &source, &error), &error);
    assert_refused(avo_source_verify(source, stop_at_once, &called, &error), AVO_ERROR_CANCELLED,
                   &error, "cancelled");
    assert_true(called);
    source_close(source);
}

/* ---- Memory, and a writer that is used wrongly ---- */

static void allocation_failures_are_survived(void **state) {
    (void)state;
    avo_error error;
    char path[4200];
    snprintf(path, sizeof(path), "%s/failing.avo", test_scratch_folder());
    for (size_t fail_at = 1;; fail_at++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        model_source *source;
        avo_status status = source_open(small_path(), &allocator.allocator, &source, &error);
        source_close(status == AVO_OK ? source : NULL);
        assert_int_equal(allocator.live, 0);
        bool opened = status == AVO_OK;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        status = write_small(&allocator.allocator, path, 512, &error);
        assert_int_equal(allocator.live, 0);
        assert_int_equal(access(path, F_OK) == 0, status == AVO_OK);
        (void)unlink(path);
        if (opened && status == AVO_OK)
            break;
        assert_true(fail_at < 1000);
    }
}

static void a_writer_used_wrongly_leaves_nothing(void **state) {
    (void)state;
    char path[4200];
    avo_error error;
    snprintf(path, sizeof(path), "%s/wrong.avo", test_scratch_folder());
    model_config config = make_config();
    generation_defaults generation = make_generation();
    avo_content_tensor tensor = tensor_specs[1];
    avo_content content = {&config, &generation, {NULL, 0}, {NULL, 0}, NULL, 0, &tensor, 1};
    avo_writer *writer;
    uint8_t bytes[256] = {0};
    assert_ok_error(avo_writer_open(NULL, path, &content, &writer, &error), &error);
    assert_refused(avo_writer_append(writer, bytes, 129, &error), AVO_ERROR_ARGUMENT, &error,
                   "too many bytes written");
    assert_ok_error(avo_writer_append(writer, bytes, 127, &error), &error);
    assert_refused(avo_writer_commit(writer, &error), AVO_ERROR_ARGUMENT, &error,
                   "bytes were written");
    assert_int_not_equal(access(path, F_OK), 0);
    tensor.layout = QUANT_LAYOUT_COLUMNS;
    assert_refused(avo_writer_open(NULL, path, &content, &writer, &error), AVO_ERROR_ARGUMENT,
                   &error, "do not match");
    tensor.layout = QUANT_LAYOUT_ROWS;
    config.heads = 3;
    assert_refused(avo_writer_open(NULL, path, &content, &writer, &error), AVO_ERROR_FORMAT, &error,
                   "heads");
    assert_refused(avo_writer_open(NULL, "/no/such/folder/x.avo", &content, &writer, &error),
                   AVO_ERROR_IO, &error, "cannot create");
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_panel_type_is_read),
        cmocka_unit_test(impossible_panels_are_refused),
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_flip_is_refused_or_harmless),
        cmocka_unit_test(extremes_are_refused_or_harmless),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(verify_names_the_tensor),
        cmocka_unit_test(verify_can_be_cancelled),
        cmocka_unit_test(allocation_failures_are_survived),
        cmocka_unit_test(a_writer_used_wrongly_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
