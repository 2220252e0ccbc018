/* Keys to indices, without holes: see keys.h. */
#include "sched/keys.h"

#include "base/hash.h"

bool keys_init(keys *keys, arena *arena, uint32_t capacity) {
    uint64_t size = 4;
    while (size < 2 * (uint64_t)capacity)
        size *= 2;
    *keys = (struct keys){.mask = (uint32_t)(size - 1), .seed = hash_key_seed()};
    keys->entry = arena_take_array(arena, size, sizeof(keys_entry));
    if (keys->entry == NULL)
        return false;
    for (uint64_t i = 0; i < size; i++)
        keys->entry[i].value = KEYS_NONE;
    return true;
}

static uint32_t home_of(const keys *keys, const uint64_t key[2]) {
    return (uint32_t)hash_key_seeded(key, 2 * sizeof(uint64_t), keys->seed) & keys->mask;
}

/* Where the key is, or where it would go. */
static uint32_t place_of(const keys *keys, const uint64_t key[2]) {
    uint32_t place = home_of(keys, key);
    for (;; place = (place + 1) & keys->mask) {
        const keys_entry *entry = &keys->entry[place];
        if (entry->value == KEYS_NONE || (entry->key[0] == key[0] && entry->key[1] == key[1]))
            return place;
    }
}

uint32_t keys_find(const keys *keys, uint64_t a, uint64_t b) {
    return keys->entry[place_of(keys, (uint64_t[2]){a, b})].value;
}

void keys_add(keys *keys, uint64_t a, uint64_t b, uint32_t value) {
    uint64_t key[2] = {a, b};
    keys->entry[place_of(keys, key)] = (keys_entry){{a, b}, value};
    keys->count++;
}

/* What stands behind the hole and may stand in it moves there, so that no search ends too early. */
void keys_remove(keys *keys, uint64_t a, uint64_t b) {
    uint32_t hole = place_of(keys, (uint64_t[2]){a, b});
    for (uint32_t next = (hole + 1) & keys->mask; keys->entry[next].value != KEYS_NONE;
         next = (next + 1) & keys->mask) {
        uint32_t home = home_of(keys, keys->entry[next].key);
        if (((next - home) & keys->mask) >= ((next - hole) & keys->mask)) {
            keys->entry[hole] = keys->entry[next];
            hole = next;
        }
    }
    keys->entry[hole].value = KEYS_NONE;
    keys->count--;
}
