/* Packing from end to end: list the tensors, compile the tokenizer, write. */
#include "pack/pack.h"

#include "base/checked.h"
#include "formats/gguf.h"
#include "formats/names.h"
#include "pack/pack_int.h"
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>

const char *pack_type_name(pack_type type) {
    static const char *const names[] = {
#define PACK_TYPE_TEXT(name, text, type) text,
        PACK_TYPE_TABLE(PACK_TYPE_TEXT)
#undef PACK_TYPE_TEXT
    };
    return names[type];
}

bool pack_type_by_name(const char *name, pack_type *type) {
    if (strcmp(name, "q4") == 0)
        name = pack_type_name(PACK_Q4);
    if (strcmp(name, "q8") == 0)
        name = pack_type_name(PACK_Q8);
    for (int i = 0; i < PACK_TYPE_COUNT; i++)
        if (strcmp(pack_type_name((pack_type)i), name) == 0) {
            *type = (pack_type)i;
            return true;
        }
    return false;
}

bool pack_look_up_by_name(const char *name, pack_look_up *look_up) {
    static const char *const names[] = {
#define PACK_LOOK_UP_TEXT(name, text, type) text,
        PACK_LOOK_UP_TABLE(PACK_LOOK_UP_TEXT)
#undef PACK_LOOK_UP_TEXT
    };
    for (int i = 0; i < PACK_LOOK_UP_COUNT; i++)
        if (strcmp(names[i], name) == 0) {
            *look_up = (pack_look_up)i;
            return true;
        }
    return false;
}

static avo_status fill_tensors(const pack_list *list, avo_content *content, avo_error *error) {
    content->tensor_count = list->count;
    content->tensors = arena_take_array(list->arena, list->count, sizeof(avo_content_tensor));
    if (content->tensors == NULL)
        return status_no_memory(error, "tensors", list->count * sizeof(avo_content_tensor));
    for (uint32_t i = 0; i < list->count; i++) {
        const pack_item *item = &list->items[i];
        avo_content_tensor *tensor = &content->tensors[i];
        _Static_assert(sizeof(tensor->name) == sizeof(item->name), "one length of names");
        memcpy(tensor->name, item->name, sizeof(tensor->name));
        tensor->type = item->type;
        tensor->layout = item->layout;
        tensor->rank = item->vector ? 1 : 2;
        tensor->shape[0] = item->vector ? item->k : item->rows;
        tensor->shape[1] = item->vector ? 1 : item->k;
        tensor->new_page = i == 0 || item->group != list->items[i - 1].group;
    }
    return AVO_OK;
}

/* "ffn_down" of "blk.3.ffn_down.weight". */
static text_view kind_of(const pack_item *item) {
    uint32_t layer;
    text_view rest = text_from(item->name);
    (void)names_split_layer(rest, &layer, &rest);
    const char *dot = memchr(rest.data, '.', rest.size);
    return (text_view){rest.data, dot != NULL ? (size_t)(dot - rest.data) : rest.size};
}

/* "blk.3.ffn_down.weight" and its likes of one type are a group of the report; vectors are one. */
static void add_to_group(const pack_item *item, uint64_t bytes, pack_report *report) {
    text_view name = item->vector ? TEXT_LITERAL("norms and biases") : kind_of(item);
    name.size = size_min(name.size, sizeof(report->group[0].name) - 1);
    uint32_t at = 0;
    while (at < report->groups &&
           !(text_is(name, report->group[at].name) && report->group[at].type == item->type))
        at++;
    if (at == PACK_GROUPS_MAX)
        return;
    pack_group *group = &report->group[at];
    if (at == report->groups) {
        report->groups++;
        memcpy(group->name, name.data, name.size);
        group->type = item->type;
    }
    group->tensors++;
    group->weights += (uint64_t)item->rows * item->k;
    group->bytes += bytes;
    if (item->energy > 0)
        group->error += item->error / item->energy * (double)item->rows * item->k;
}

void pack_fill_report(const pack_list *list, uint64_t file_bytes, pack_report *report) {
    *report = (pack_report){.file_bytes = file_bytes, .tensors = list->count};
    for (uint32_t i = 0; i < list->count; i++) {
        const pack_item *item = &list->items[i];
        uint64_t count = (uint64_t)item->rows * item->k, bytes = 0;
        (void)weight_bytes(item->type, item->layout, item->rows, item->k, &bytes);
        report->parameters += item->twice ? 0 : count;
        report->weight_bytes += bytes;
        if (!item->looked_up && item->role != PACK_ROLE_POSITION) {
            report->read_parameters += count;
            report->read_bytes += bytes;
        }
        add_to_group(item, bytes, report);
    }
}

static avo_status append_to_avo(void *context, const pack_item *item, const uint8_t *data,
                                size_t bytes, avo_error *error) {
    (void)item;
    return avo_writer_append(context, data, bytes, error);
}

static avo_status write_file(pack_list *list, avo_content *content, const char *name,
                             const char *path, const pack_options *options, pack_report *report,
                             avo_error *error) {
    if (options->bits > 0)
        AVO_TRY(pack_budget(list, name, options, error));
    AVO_TRY(fill_tensors(list, content, error));
    avo_writer *writer;
    AVO_TRY(avo_writer_open(options->allocator, path, content, &writer, error));
    pack_sink sink = {writer, append_to_avo};
    avo_status status = pack_convert(list, name, options, &sink, error);
    if (status != AVO_OK) {
        avo_writer_abort(writer);
        return status;
    }
    pack_fill_report(list, avo_writer_file_bytes(writer), report);
    return avo_writer_commit(writer, error);
}

#define NOTES_MAX 5

static void add_note(avo_note *notes, uint32_t *count, const char *key, text_view value) {
    if (value.size > 0 && value.size < 4096)
        notes[(*count)++] = (avo_note){text_from(key), value};
}

/* Draft heads are found by the model that they were trained on. Other weights are another model. */
static text_view origin_of(const model_source *source, const pack_options *options,
                           char text[AVO_ORIGIN_BYTES + 1]) {
    uint64_t digest = 0;
    if (options->change != NULL)
        return (text_view){"", 0};
    if (source->format == SOURCE_AVO)
        digest = avo_source_origin(source);
    if (digest == 0)
        digest = source_digest(source);
    snprintf(text, AVO_ORIGIN_BYTES + 1, "%016" PRIx64, digest);
    return text_from(text);
}

/* `origin` has room for the digest and outlives the notes. */
static uint32_t fill_notes(const model_source *source, const pack_options *options,
                           char origin[AVO_ORIGIN_BYTES + 1], avo_note *notes) {
    uint32_t count = 0;
    text_view license = {"", 0};
    const gguf_value *value =
        source->gguf == NULL ? NULL : gguf_find(source->gguf, "general.license");
    if (value != NULL)
        (void)gguf_string(value, 0, &license);
    for (uint32_t i = 0; source->format == SOURCE_AVO && i < avo_source_note_count(source); i++)
        if (text_is(avo_source_note(source, i).key, "license"))
            license = avo_source_note(source, i).value;
    add_note(notes, &count, "name", source->name);
    /* Only the last part: where a model lay on somebody's disk is nobody's business. */
    add_note(notes, &count, "source", file_last_part(source->path));
    add_note(notes, &count, "license", license);
    add_note(notes, &count, AVO_ORIGIN_KEY, origin_of(source, options, origin));
    add_note(notes, &count, "writer", TEXT_LITERAL("avocet " AVO_VERSION_TEXT));
    return count;
}

void pack_mark_changes(pack_list *list, const pack_change *change) {
    for (uint32_t i = 0; change != NULL && i < list->count; i++) {
        pack_item *item = &list->items[i];
        if (!change->changes(change->context, item->name))
            continue;
        item->change = change;
        item->copied = item->repacked = false;
    }
}

avo_status pack_source(const model_source *source, const char *path, const pack_options *options,
                       pack_report *report, avo_error *error) {
    if (options->folder)
        return pack_folder(source, path, options, report, error);
    AVO_TRY(source_spare(source, path, error));
    if (options->calibration != NULL && file_is_same(options->calibration, path))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: is the calibration file itself; choose another output", path);
    arena arena;
    tokenizer *tokenizer = NULL;
    avo_note notes[NOTES_MAX];
    char origin[AVO_ORIGIN_BYTES + 1];
    arena_init(&arena, options->allocator, PACK_LIST_BYTES_MAX);
    pack_list list = {.arena = &arena};
    model_config config = source->config;
    avo_content content = {.config = &config,
                           .generation = &source->generation,
                           .chat_template = source->chat_template,
                           .notes = notes,
                           .note_count = fill_notes(source, options, origin, notes)};
    avo_status status =
        pack_list_source(source, options->type, options->look_up, &list, &config.tied_head, error);
    AVO_THEN(status, pack_choose_named(options->tensors, &list, error));
    if (status == AVO_OK)
        pack_mark_changes(&list, options->change);
    if (status == AVO_OK && source->tokenizer.kind != TOKENIZER_SOURCE_NONE) {
        status = tokenizer_open(&source->tokenizer, options->allocator, &tokenizer, error);
        if (status == AVO_OK)
            content.tokenizer = tokenizer_image(tokenizer);
    }
    AVO_THEN(status, write_file(&list, &content, source->path, path, options, report, error));
    tokenizer_close(tokenizer);
    arena_free(&arena);
    return status;
}

avo_status pack_file(const char *model, const char *path, const pack_options *options,
                     pack_report *report, avo_error *error) {
    model_source *source;
    AVO_TRY(source_open(model, options->allocator, &source, error));
    avo_status status = pack_source(source, path, options, report, error);
    source_close(source);
    return status;
}

static void add_kind(const pack_item *item, pack_kinds *kinds) {
    text_view name = kind_of(item);
    if (item->layout != QUANT_LAYOUT_PANELS || name.size >= sizeof(kinds->name[0]))
        return;
    for (uint32_t i = 0; i < kinds->count; i++)
        if (text_is(name, kinds->name[i]))
            return;
    if (kinds->count < PACK_KINDS_MAX)
        memcpy(kinds->name[kinds->count++], name.data, name.size);
}

avo_status pack_list_kinds(const char *model, const pack_options *options, pack_kinds *kinds,
                           avo_error *error) {
    *kinds = (pack_kinds){0};
    model_source *source;
    AVO_TRY(source_open(model, options->allocator, &source, error));
    arena arena;
    arena_init(&arena, options->allocator, PACK_LIST_BYTES_MAX);
    pack_list list = {.arena = &arena};
    bool tied;
    avo_status status =
        pack_list_source(source, options->type, options->look_up, &list, &tied, error);
    for (uint32_t i = 0; status == AVO_OK && i < list.count; i++)
        add_kind(&list.items[i], kinds);
    arena_free(&arena);
    source_close(source);
    return status;
}

avo_status pack_random(const char *shape, uint64_t seed, const char *path,
                       const pack_options *options, pack_report *report, avo_error *error) {
    if (options->look_up != PACK_LOOK_UP_AUTO)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the embedding table of random weights cannot have its own type; "
                           "--look-up must be auto");
    arena arena;
    arena_init(&arena, options->allocator, PACK_LIST_BYTES_MAX);
    pack_list list = {.arena = &arena};
    model_config config;
    generation_defaults generation;
    generation_defaults_init(&generation);
    char origin[128];
    snprintf(origin, sizeof(origin), "random weights, seed %llu", (unsigned long long)seed);
    avo_note notes[NOTES_MAX];
    uint32_t count = 0;
    add_note(notes, &count, "name", text_from(shape));
    add_note(notes, &count, "source", text_from(origin));
    add_note(notes, &count, "writer", TEXT_LITERAL("avocet " AVO_VERSION_TEXT));
    avo_content content = {
        .config = &config, .generation = &generation, .notes = notes, .note_count = count};
    avo_status status = pack_list_random(shape, seed, options->type, &list, &config, error);
    AVO_THEN(status, pack_choose_named(options->tensors, &list, error));
    AVO_THEN(status, write_file(&list, &content, shape, path, options, report, error));
    arena_free(&arena);
    return status;
}
