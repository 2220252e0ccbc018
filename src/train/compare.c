/* Comparing two descriptions of runs, member by member. */
#include "train/compare.h"

#include <string.h>

#define SHOWN_MAX 200

static avo_status differs(const train_compare *c, const char *what, text_view there,
                          text_view here) {
    return status_fail(c->error, AVO_ERROR_ARGUMENT,
                       "%s was made with %s %.*s, this run has %.*s; continue with the same "
                       "settings, model and data, or choose another output",
                       c->path, what, (int)(there.size < SHOWN_MAX ? there.size : SHOWN_MAX),
                       there.data, (int)(here.size < SHOWN_MAX ? here.size : SHOWN_MAX), here.data);
}

avo_status train_compare_values(const train_compare *c, const char *what, const json_value *there,
                                const json_value *here) {
    static const json_value none = {.kind = JSON_NULL};
    buffer a, b;
    buffer_init(&a, c->allocator, COMPARE_BYTES_MAX);
    buffer_init(&b, c->allocator, COMPARE_BYTES_MAX);
    avo_status status = json_write_value(&a, there != NULL ? there : &none);
    AVO_THEN(status, json_write_value(&b, here != NULL ? here : &none));
    if (status != AVO_OK)
        status = status_fail(c->error, status, "%s: %s", c->path, avo_status_text(status));
    else if (a.size != b.size || memcmp(a.data, b.data, a.size) != 0)
        status = differs(c, what, buffer_text(&a), buffer_text(&b));
    buffer_free(&a);
    buffer_free(&b);
    return status;
}

avo_status train_compare_member(const train_compare *c, const char *key) {
    return train_compare_values(c, key, json_find(c->root, key), json_find(c->own, key));
}

avo_status train_compare_object(const train_compare *c, const char *key) {
    const json_value *there = json_find(c->root, key), *here = json_find(c->own, key);
    if (there == NULL || there->kind != JSON_OBJECT)
        return status_fail(c->error, AVO_ERROR_FORMAT, "%s: %s is missing in what it was made with",
                           c->path, key);
    for (size_t i = 0; i < here->object.count; i++) {
        const json_member *member = &here->object.members[i];
        char name[JSON_SHOWN_KEY_MAX];
        AVO_TRY(train_compare_values(c, json_shown_key(member->key, name),
                                     json_find_text(there, member->key), &member->value));
    }
    for (size_t i = 0; i < there->object.count; i++) { /* those that are only there */
        const json_member *member = &there->object.members[i];
        char name[JSON_SHOWN_KEY_MAX];
        if (json_find_text(here, member->key) == NULL)
            AVO_TRY(
                train_compare_values(c, json_shown_key(member->key, name), &member->value, NULL));
    }
    return AVO_OK;
}

avo_status train_compare_parse(const json_writer *w, arena *arena, json_value *root,
                               avo_error *error) {
    avo_status status = json_writer_status(w);
    size_t bytes = w->out->size;
    char *copy = status == AVO_OK ? arena_copy_text(arena, w->out->data, bytes) : NULL;
    if (copy == NULL)
        return status_no_memory(error, "settings", bytes);
    return json_parse(arena, (text_view){copy, bytes}, root, error);
}
