/* Lists and dicts. */
#include "base/hash.h"
#include "tokenizer/template/render_int.h"

#include <math.h>
#include <string.h>

#define DICT_INDEX_FROM 9 /* entries from which a dict gets a hash index */

avo_status jinja_sequence_new(jinja_render *render, size_t capacity, jinja_sequence **out) {
    AVO_TRY(jinja_take(render, 1, sizeof(**out), out));
    (*out)->capacity = capacity;
    return jinja_take(render, capacity, sizeof(jinja_value), &(*out)->items);
}

avo_status jinja_sequence_add(jinja_render *render, jinja_sequence *sequence, jinja_value item) {
    if (sequence->count == sequence->capacity) {
        size_t capacity = sequence->capacity < 4 ? 8 : sequence->capacity * 2;
        jinja_value *items;
        AVO_TRY(jinja_take(render, capacity, sizeof(*items), &items));
        if (sequence->count > 0)
            memcpy(items, sequence->items, sequence->count * sizeof(*items));
        sequence->items = items;
        sequence->capacity = capacity;
    }
    sequence->items[sequence->count++] = item;
    return AVO_OK;
}

avo_status jinja_pair(jinja_render *render, jinja_value first, jinja_value second,
                      jinja_value *out) {
    jinja_sequence *pair;
    AVO_TRY(jinja_sequence_new(render, 2, &pair));
    pair->items[0] = first;
    pair->items[1] = second;
    pair->count = 2;
    *out = (jinja_value){.kind = JINJA_TUPLE, .sequence = pair};
    return AVO_OK;
}

bool jinja_hashable(jinja_value key) {
    switch ((jinja_kind)key.kind) {
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_VIEW:
        return false;
    case JINJA_TUPLE:
        for (size_t i = 0; i < key.sequence->count; i++)
            if (key.sequence->items[i].kind == JINJA_TUPLE /* no deeper than this */
                || !jinja_hashable(key.sequence->items[i]))
                return false;
        return true;
    default:
        return true;
    }
}

/* Equal keys have equal hashes: 1, 1.0 and true are one key. */
static uint64_t hash_of(jinja_value key) {
    int64_t integer = 0;
    switch ((jinja_kind)key.kind) {
    case JINJA_STRING:
        return hash_bytes(key.text->data, key.text->size);
    case JINJA_BOOLEAN:
    case JINJA_INTEGER:
        integer = jinja_integer_of(key);
        return hash_bytes(&integer, sizeof(integer));
    case JINJA_NUMBER:
        if (fabs(key.number) < 9e18 && key.number == floor(key.number)) {
            integer = (int64_t)key.number;
            return hash_bytes(&integer, sizeof(integer));
        }
        return hash_bytes(&key.number, sizeof(key.number));
    case JINJA_TUPLE: {
        uint64_t hash = 7;
        for (size_t i = 0; i < key.sequence->count; i++)
            hash = hash * 1000003 + hash_of(key.sequence->items[i]);
        return hash;
    }
    default:
        return key.kind;
    }
}

avo_status jinja_dict_new(jinja_render *render, size_t capacity, jinja_dict **out) {
    AVO_TRY(jinja_take(render, 1, sizeof(**out), out));
    (*out)->capacity = capacity;
    return jinja_take(render, capacity, sizeof(jinja_entry), &(*out)->entries);
}

static avo_status same_key(jinja_render *render, const jinja_entry *entry, uint64_t hash,
                           jinja_value key, bool *same) {
    *same = false;
    if (entry->hash != hash)
        return AVO_OK;
    if (entry->key.kind == JINJA_STRING && key.kind == JINJA_STRING) {
        *same = text_equal(jinja_view_of(entry->key.text), jinja_view_of(key.text));
        return AVO_OK;
    }
    return jinja_equal(render, entry->key, key, same);
}

/* The entry of a key; else NULL, and in *slot the place of the index where it belongs. */
static avo_status find(jinja_render *render, const jinja_dict *dict, uint64_t hash, jinja_value key,
                       jinja_entry **out, size_t *slot) {
    bool same;
    *out = NULL;
    if (dict->index == NULL) {
        for (size_t i = 0; i < dict->count; i++) {
            AVO_TRY(same_key(render, &dict->entries[i], hash, key, &same));
            if (same) {
                *out = &dict->entries[i];
                return AVO_OK;
            }
        }
        return AVO_OK;
    }
    size_t mask = dict->index_size - 1;
    for (*slot = (size_t)hash & mask; dict->index[*slot] != 0; *slot = (*slot + 1) & mask) {
        jinja_entry *entry = &dict->entries[dict->index[*slot] - 1];
        AVO_TRY(jinja_charge(render, 1));
        AVO_TRY(same_key(render, entry, hash, key, &same));
        if (same) {
            *out = entry;
            return AVO_OK;
        }
    }
    return AVO_OK;
}

static avo_status check_key(jinja_render *render, jinja_value key) {
    if (!jinja_hashable(key))
        return jinja_fail(render, "%s cannot be a key", jinja_type_name(key));
    return AVO_OK;
}

avo_status jinja_dict_find(jinja_render *render, const jinja_dict *dict, jinja_value key,
                           jinja_entry **out) {
    AVO_TRY(check_key(render, key));
    size_t slot;
    return find(render, dict, hash_of(key), key, out, &slot);
}

static avo_status build_index(jinja_render *render, jinja_dict *dict) {
    size_t size = 32;
    while (size < dict->capacity * 2)
        size *= 2;
    AVO_TRY(jinja_take(render, size, sizeof(uint32_t), &dict->index));
    dict->index_size = size;
    for (size_t i = 0; i < dict->count; i++) {
        size_t slot = (size_t)dict->entries[i].hash & (size - 1);
        while (dict->index[slot] != 0)
            slot = (slot + 1) & (size - 1);
        dict->index[slot] = (uint32_t)i + 1;
    }
    return AVO_OK;
}

static avo_status grow(jinja_render *render, jinja_dict *dict) {
    size_t capacity = dict->capacity < 4 ? 4 : dict->capacity * 2;
    if (capacity > UINT32_MAX / 4)
        return jinja_limit(render, "too many entries in a dict");
    jinja_entry *entries;
    AVO_TRY(jinja_take(render, capacity, sizeof(*entries), &entries));
    if (dict->count > 0)
        memcpy(entries, dict->entries, dict->count * sizeof(*entries));
    dict->entries = entries;
    dict->capacity = capacity;
    return capacity >= DICT_INDEX_FROM ? build_index(render, dict) : AVO_OK;
}

avo_status jinja_dict_set(jinja_render *render, jinja_dict *dict, jinja_value key,
                          jinja_value value) {
    AVO_TRY(check_key(render, key));
    uint64_t hash = hash_of(key);
    if (dict->index == NULL && dict->capacity >= DICT_INDEX_FROM)
        AVO_TRY(build_index(render, dict));
    jinja_entry *entry;
    size_t slot = 0;
    AVO_TRY(find(render, dict, hash, key, &entry, &slot));
    if (entry != NULL) {
        entry->value = value;
        return AVO_OK;
    }
    if (dict->count == dict->capacity) {
        AVO_TRY(grow(render, dict));
        AVO_TRY(find(render, dict, hash, key, &entry, &slot));
    }
    dict->entries[dict->count++] = (jinja_entry){.key = key, .value = value, .hash = hash};
    if (dict->index != NULL)
        dict->index[slot] = (uint32_t)dict->count;
    return AVO_OK;
}
