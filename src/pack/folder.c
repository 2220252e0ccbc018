/* A model in safetensors, with changes, as a folder like its own: model.safetensors with every
 * tensor of the source under its own name, shape and order of dimensions, config.json, and copies
 * of the tokenizer's and other files beside the weights. Everything that reads the source can read
 * the result.
 *
 * Tensors are written in the order of a forward pass, but wider elements first, because readers use
 * them in place and want them aligned. The folder appears whole or not at all. */
#include "pack/pack_int.h"

#include "base/checked.h"
#include "formats/names.h"
#include "formats/safetensors.h"
#include "pack/beside.h"

#include <stdlib.h>

static const uint64_t widths[] = {8, 4, 2, 1}; /* bytes of an element, in order of writing */
#define WIDTHS (sizeof(widths) / sizeof(widths[0]))

typedef struct folder_output {
    const model_source *source;
    const pack_options *options;
    folder_writer folder;
    pack_list list;
    bool untied; /* the head was the embedding and becomes a tensor of its own */
    safetensors_content content;
    safetensors_writer *writer;
    /* GPT-2's matrices lie transposed. Converted rows are gathered here, in the order of the file,
     * until the tensor is complete. */
    uint8_t *transposed;
    size_t transposed_bytes; /* of the largest */
    size_t transposed_rows;  /* of the current one so far */
    avo_error *error;
} folder_output;

static uint64_t type_width(quant_type type) {
    uint64_t bytes = 1;
    (void)quant_run_bytes(type, 1, &bytes);
    return bytes;
}

/* ---- The list ---- */

/* Widest elements first, then as pack_list_sort has it. Parts of a fused tensor have one type and
 * stay together, in their order. */
static int by_width(const void *left, const void *right) {
    const pack_item *a = left, *b = right;
    uint64_t a_width = type_width(a->type), b_width = type_width(b->type);
    if (a_width != b_width)
        return a_width > b_width ? -1 : 1;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return a->rank == b->rank ? 0 : a->rank < b->rank ? -1 : 1;
}

static bool is_encoded(quant_type type) {
    return type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16;
}

static avo_status choose_types(folder_output *o) {
    pack_list *list = &o->list;
    for (uint32_t i = 0; i < list->count; i++) {
        pack_item *item = &list->items[i];
        item->plus_one = false; /* norms stay as the source has them */
        pack_set(item,
                 o->options->type == PACK_F32    ? QUANT_F32
                 : o->options->type == PACK_F16  ? QUANT_F16
                 : o->options->type == PACK_BF16 ? QUANT_BF16
                                                 : item->from.type,
                 QUANT_LAYOUT_ROWS);
    }
    pack_mark_changes(list, o->options->change);
    for (uint32_t i = 0; i < list->count; i++) {
        const pack_item *item = &list->items[i];
        if (!item->copied && !is_encoded(item->type))
            return status_fail(o->error, AVO_ERROR_UNSUPPORTED,
                               "%s: tensor %.*s is %s, to which changed weights are not rounded; "
                               "choose the type f32, f16 or bf16",
                               o->source->path, TEXT_ARGUMENT(item->tensor->name),
                               quant_name(item->type));
    }
    qsort(list->items, list->count, sizeof(pack_item), by_width);
    return AVO_OK;
}

/* True for tensors that carry no weights of ours (masks, a vision tower): copied as they are. */
static bool is_foreign(const model_source *source, const source_tensor *tensor) {
    char room[NAMES_CANONICAL_MAX];
    text_view name;
    return names_of_tensor(source, tensor, room, &name) == NAME_IGNORED;
}

/* The name that readers expect of a head beside this embedding. */
static text_view head_name(const source_tensor *embedding) {
    return text_starts(embedding->name, TEXT_LITERAL("language_model."))
               ? TEXT_LITERAL("language_model.lm_head.weight")
               : TEXT_LITERAL("lm_head.weight");
}

static void add_tensor(safetensors_tensor *tensors, size_t *count, text_view name, quant_type type,
                       const source_tensor *shape) {
    safetensors_tensor *tensor = &tensors[(*count)++];
    *tensor = (safetensors_tensor){.name = name, .type = type, .rank = shape->rank};
    memcpy(tensor->shape, shape->shape, sizeof(tensor->shape));
}

/* The tensors of the file, in the order in which write_tensors appends them. */
static avo_status list_tensors(folder_output *o) {
    static const safetensors_entry metadata = {TEXT_LITERAL("format"), TEXT_LITERAL("pt")};
    const model_source *source = o->source;
    size_t most = (size_t)source->tensor_count + 1; /* and a head */
    safetensors_tensor *tensors = arena_take_array(o->list.arena, most, sizeof(*tensors));
    if (tensors == NULL)
        return status_no_memory(o->error, "the list of tensors", most * sizeof(*tensors));
    o->content =
        (safetensors_content){.tensors = tensors, .metadata = &metadata, .metadata_count = 1};
    for (size_t w = 0; w < WIDTHS; w++) {
        for (uint32_t i = 0; i < o->list.count; i++) {
            const pack_item *item = &o->list.items[i], *before = item - 1;
            bool part = i > 0 && before->tensor == item->tensor && before->twice == item->twice;
            if (type_width(item->type) == widths[w] && !part)
                add_tensor(tensors, &o->content.tensor_count,
                           item->twice ? head_name(item->tensor) : item->tensor->name, item->type,
                           item->tensor);
        }
        for (uint32_t i = 0; i < source->tensor_count; i++)
            if (type_width(source->tensors[i].type) == widths[w] &&
                is_foreign(source, &source->tensors[i]))
                add_tensor(tensors, &o->content.tensor_count, source->tensors[i].name,
                           source->tensors[i].type, &source->tensors[i]);
    }
    return AVO_OK;
}

/* ---- model.safetensors ---- */

static avo_status append_rows(void *context, const pack_item *item, const uint8_t *data,
                              size_t bytes, avo_error *error) {
    folder_output *o = context;
    if (item->from.layout != QUANT_LAYOUT_COLUMNS)
        return safetensors_writer_append(o->writer, data, bytes, error);
    size_t width = (size_t)type_width(item->type), k = item->k;
    size_t rows = (size_t)item->tensor->shape[1];
    for (; bytes > 0; bytes -= k * width, o->transposed_rows++)
        for (size_t i = 0; i < k; i++, data += width)
            memcpy(o->transposed + (i * rows + o->transposed_rows) * width, data, width);
    if (o->transposed_rows < rows)
        return AVO_OK;
    o->transposed_rows = 0;
    return safetensors_writer_append(o->writer, o->transposed, rows * k * width, error);
}

static avo_status append_foreign(folder_output *o, const source_tensor *tensor) {
    AVO_TRY(safetensors_writer_append(o->writer, tensor->data, (size_t)tensor->bytes, o->error));
    if (!o->source->files[tensor->file].borrowed)
        file_map_forget(tensor->data, (size_t)tensor->bytes);
    return AVO_OK;
}

static avo_status write_tensors(folder_output *o) {
    const model_source *source = o->source;
    pack_sink sink = {o, append_rows};
    uint32_t end = 0;
    for (size_t w = 0; w < WIDTHS; w++) {
        uint32_t begin = end;
        while (end < o->list.count && type_width(o->list.items[end].type) == widths[w])
            end++;
        pack_list some = {.arena = o->list.arena, .items = o->list.items + begin};
        some.count = some.capacity = end - begin;
        if (some.count > 0)
            AVO_TRY(pack_convert(&some, source->path, o->options, &sink, o->error));
        for (uint32_t i = 0; i < source->tensor_count; i++)
            if (type_width(source->tensors[i].type) == widths[w] &&
                is_foreign(source, &source->tensors[i]))
                AVO_TRY(append_foreign(o, &source->tensors[i]));
    }
    return AVO_OK;
}

static avo_status take_transposed(folder_output *o) {
    for (uint32_t i = 0; i < o->list.count; i++) {
        const pack_item *item = &o->list.items[i];
        uint64_t bytes = 0;
        if (item->from.layout == QUANT_LAYOUT_COLUMNS &&
            quant_run_bytes(item->type, source_tensor_elements(item->tensor), &bytes))
            o->transposed_bytes = size_max(o->transposed_bytes, (size_t)bytes);
    }
    if (o->transposed_bytes == 0)
        return AVO_OK;
    o->transposed = allocator_take(o->options->allocator, o->transposed_bytes);
    return o->transposed != NULL
               ? AVO_OK
               : status_no_memory(o->error, "a transposed matrix", o->transposed_bytes);
}

static avo_status write_model(folder_output *o, pack_report *report) {
    char path[sizeof(o->folder.temporary) + 32];
    AVO_TRY(file_join(path, sizeof(path), o->folder.temporary, "model.safetensors", o->error));
    AVO_TRY(list_tensors(o));
    AVO_TRY(take_transposed(o));
    avo_status status =
        safetensors_writer_open(o->options->allocator, path, &o->content, &o->writer, o->error);
    if (status == AVO_OK) {
        pack_fill_report(&o->list, safetensors_writer_file_bytes(o->writer), report);
        report->tensors = (uint32_t)o->content.tensor_count;
        status = write_tensors(o);
        if (status == AVO_OK)
            status = safetensors_writer_commit(o->writer, o->error);
        else
            safetensors_writer_abort(o->writer);
    }
    allocator_give(o->options->allocator, o->transposed, o->transposed_bytes);
    return status;
}

/* "float16" where the type of all tensors was chosen, else NULL. */
static const char *config_dtype(const folder_output *o) {
    switch ((int)o->options->type) {
    case PACK_F32:
        return "float32";
    case PACK_F16:
        return "float16";
    case PACK_BF16:
        return "bfloat16";
    default:
        return NULL;
    }
}

static avo_status write_beside(const folder_output *o) {
    pack_beside beside = {.allocator = o->options->allocator,
                          .source = o->source,
                          .dtype = config_dtype(o),
                          .untied = o->untied};
    return pack_write_beside(&beside, o->folder.temporary, o->error);
}

/* ---- From end to end ---- */

static avo_status check(const model_source *source, const pack_options *options, avo_error *error) {
    if (source->format != SOURCE_SAFETENSORS)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: is %s; only a model in safetensors can be written as a folder: "
                           "write a .avo file instead",
                           source->path, source_format_name(source->format));
    bool plain = options->type == PACK_F32 || options->type == PACK_F16 ||
                 options->type == PACK_BF16 || options->type == PACK_KEEP;
    if (!plain || options->bits > 0 || options->tensors != NULL || options->calibration != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "safetensors holds f32, f16, bf16 or the types of the model (keep), "
                           "one for all tensors, not %s",
                           plain ? "types by bits, name or calibration"
                                 : pack_type_name(options->type));
    return AVO_OK;
}

static avo_status fill_folder(folder_output *o, pack_report *report) {
    bool tied;
    /* The type only decides that fused tensors are cut into the parts that changes know. */
    AVO_TRY(pack_list_source(o->source, PACK_F32, o->options->look_up, &o->list, &tied, o->error));
    o->untied = o->source->config.tied_head && !tied;
    AVO_TRY(choose_types(o));
    AVO_TRY(write_beside(o));
    return write_model(o, report);
}

avo_status pack_folder(const model_source *source, const char *path, const pack_options *options,
                       pack_report *report, avo_error *error) {
    AVO_TRY(check(source, options, error));
    if (source->config.experts > 0)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: a model with experts cannot be written as a folder; write a .avo "
                           "file",
                           source->path);
    arena arena;
    folder_output o = {
        .source = source, .options = options, .list = {.arena = &arena}, .error = error};
    AVO_TRY(folder_writer_open(&o.folder, path, error));
    arena_init(&arena, options->allocator, PACK_LIST_BYTES_MAX);
    avo_status status = fill_folder(&o, report);
    arena_free(&arena);
    if (status == AVO_OK)
        return folder_writer_commit(&o.folder, error);
    folder_writer_abort(&o.folder);
    return status;
}
