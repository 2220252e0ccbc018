/* Shared JSON trees. */
#include "base/value.h"

#include <stdatomic.h>
#include <string.h>

struct avo_value {
    const avo_allocator *allocator;
    atomic_uint references;
    arena arena;
    json_value tree;
    size_t text_bytes;
};

static avo_status value_take(const avo_allocator *allocator, size_t limit_bytes, avo_value **out,
                             avo_error *error) {
    avo_value *value = allocator_take_array(allocator, 1, sizeof(*value));
    if (value == NULL)
        return status_no_memory(error, "a value", sizeof(*value));
    value->allocator = allocator;
    atomic_init(&value->references, 1);
    arena_init(&value->arena, allocator, limit_bytes);
    *out = value;
    return AVO_OK;
}

avo_value *avo_value_share(avo_value *value) {
    if (value != NULL)
        atomic_fetch_add_explicit(&value->references, 1, memory_order_relaxed);
    return value;
}

void avo_value_close(avo_value *value) {
    if (value == NULL ||
        atomic_fetch_sub_explicit(&value->references, 1, memory_order_acq_rel) != 1)
        return;
    arena_free(&value->arena);
    allocator_give(value->allocator, value, sizeof(*value));
}

const json_value *value_tree(const avo_value *value) {
    return &value->tree;
}

size_t value_text_bytes(const avo_value *value) {
    return value->text_bytes;
}

/* Depth is bounded by the parser (JSON_DEPTH_MAX), so recursion is safe, here and below. */
static size_t text_bytes(const json_value *tree) {
    size_t bytes = tree->kind == JSON_STRING ? tree->string.size : 0;
    for (size_t i = 0; tree->kind == JSON_ARRAY && i < tree->array.count; i++)
        bytes += text_bytes(&tree->array.items[i]);
    for (size_t i = 0; tree->kind == JSON_OBJECT && i < tree->object.count; i++)
        bytes += tree->object.members[i].key.size + text_bytes(&tree->object.members[i].value);
    return bytes;
}

/* ---- Reading ---- */

avo_status avo_value_open(const char *json, size_t bytes, const avo_allocator *allocator,
                          avo_value **out, avo_error *error) {
    *out = NULL;
    avo_value *value = NULL;
    AVO_TRY(value_take(allocator, SIZE_MAX, &value, error));
    const char *copy = arena_copy_text(&value->arena, json, bytes); /* the tree points into it */
    avo_status status =
        copy == NULL ? status_no_memory(error, "a value", bytes)
                     : json_parse(&value->arena, (text_view){copy, bytes}, &value->tree, error);
    if (status != AVO_OK) {
        avo_value_close(value);
        return status;
    }
    value->text_bytes = text_bytes(&value->tree);
    *out = value;
    return AVO_OK;
}

/* ---- Copies ---- */

static avo_status copy_text(arena *arena, text_view text, text_view *out) {
    *out = (text_view){"", 0};
    if (text.size == 0)
        return AVO_OK;
    out->data = arena_copy_text(arena, text.data, text.size);
    out->size = text.size;
    return out->data == NULL ? AVO_ERROR_MEMORY : AVO_OK;
}

/* As json_write_number writes it and json_parse reads it. */
static json_value copy_number(double number) {
    char text[NUMBER_TEXT_MAX];
    json_number_text(number, text);
    if (strpbrk(text, ".en") == NULL && number >= -9e18 && number <= 9e18)
        return (json_value){.kind = JSON_INTEGER, .integer = (int64_t)number};
    return (json_value){.kind = JSON_NUMBER, .number = number};
}

static avo_status copy_tree(arena *arena, const json_value *from, json_value *to);

static avo_status copy_members(arena *arena, const json_value *from, json_value *to) {
    size_t count = from->object.count;
    json_member *members = arena_take_array(arena, count, sizeof(*members));
    if (members == NULL)
        return AVO_ERROR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        AVO_TRY(copy_text(arena, from->object.members[i].key, &members[i].key));
        AVO_TRY(copy_tree(arena, &from->object.members[i].value, &members[i].value));
    }
    *to = (json_value){.kind = JSON_OBJECT, .object = {.members = members, .count = count}};
    return AVO_OK;
}

static avo_status copy_items(arena *arena, const json_value *from, json_value *to) {
    size_t count = from->array.count;
    json_value *items = arena_take_array(arena, count, sizeof(*items));
    if (items == NULL)
        return AVO_ERROR_MEMORY;
    for (size_t i = 0; i < count; i++)
        AVO_TRY(copy_tree(arena, &from->array.items[i], &items[i]));
    *to = (json_value){.kind = JSON_ARRAY, .array = {.items = items, .count = count}};
    return AVO_OK;
}

static avo_status copy_tree(arena *arena, const json_value *from, json_value *to) {
    switch (from->kind) {
    case JSON_NUMBER:
        *to = copy_number(from->number);
        return AVO_OK;
    case JSON_STRING:
        to->kind = JSON_STRING;
        return copy_text(arena, from->string, &to->string);
    case JSON_ARRAY:
        if (from->array.count > 0)
            return copy_items(arena, from, to);
        break;
    case JSON_OBJECT:
        if (from->object.count > 0)
            return copy_members(arena, from, to);
        break;
    default:
        break;
    }
    *to = *from;
    return AVO_OK;
}

avo_status value_copy(const json_value *tree, const avo_allocator *allocator, size_t limit_bytes,
                      bool *limit_hit, avo_value **out, avo_error *error) {
    *out = NULL;
    avo_value *value = NULL;
    AVO_TRY(value_take(allocator, limit_bytes, &value, error));
    avo_status status = copy_tree(&value->arena, tree, &value->tree);
    if (limit_hit != NULL)
        *limit_hit = value->arena.limit_hit;
    if (status != AVO_OK) {
        avo_value_close(value);
        return status_no_memory(error, "a value", limit_bytes);
    }
    value->text_bytes = text_bytes(&value->tree);
    *out = value;
    return AVO_OK;
}
