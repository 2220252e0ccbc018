/* Expressions and sets of characters: how readers build what a grammar says. */
#include "sample/grammar_int.h"

#include <stdlib.h>

avo_status grammar_rules_init(grammar_rules *rules, arena *arena, avo_error *error) {
    *rules = (grammar_rules){.arena = arena, .error = error};
    rules->rules = arena_take_array(arena, GRAMMAR_RULES_MAX, sizeof(*rules->rules));
    if (rules->rules == NULL)
        return status_no_memory(error, "a grammar", GRAMMAR_RULES_MAX * sizeof(*rules->rules));
    return AVO_OK;
}

avo_status grammar_rules_work(grammar_rules *rules, uint64_t steps) {
    rules->steps += steps;
    if (rules->steps <= GRAMMAR_STEPS_MAX)
        return AVO_OK;
    rules->status = status_fail(rules->error, AVO_ERROR_LIMIT,
                                "the grammar takes more than %llu steps to compile; remove nested "
                                "repetitions, or schemas that must all be compared with each other",
                                (unsigned long long)GRAMMAR_STEPS_MAX);
    return rules->status;
}

avo_status grammar_rule_add(grammar_rules *rules, text_view name, uint32_t *index) {
    if (rules->count == GRAMMAR_RULES_MAX)
        return status_fail(rules->error, AVO_ERROR_LIMIT, "a grammar can have at most %u rules",
                           GRAMMAR_RULES_MAX);
    *index = rules->count++;
    rules->rules[*index] = (grammar_rule){.name = name};
    return AVO_OK;
}

/* Remembered: whoever puts expressions together need not look at each. */
static avo_status no_memory(grammar_rules *rules, size_t bytes) {
    rules->status = rules->arena->limit_hit ? AVO_ERROR_LIMIT : AVO_ERROR_MEMORY;
    if (rules->arena->limit_hit)
        return status_fail(rules->error, AVO_ERROR_LIMIT,
                           "the grammar needs more than %zu bytes to parse",
                           rules->arena->limit_bytes);
    return status_no_memory(rules->error, "a grammar", bytes);
}

static expression *take(grammar_rules *rules, expression_kind kind) {
    if (rules->nodes == GRAMMAR_NODES_MAX) {
        rules->status = status_fail(rules->error, AVO_ERROR_LIMIT,
                                    "the grammar has more than %u parts", GRAMMAR_NODES_MAX);
        return NULL;
    }
    expression *made = arena_take(rules->arena, sizeof(*made));
    if (made == NULL) {
        (void)!no_memory(rules, sizeof(*made));
        return NULL;
    }
    rules->nodes++;
    made->kind = kind;
    made->parts = made->nested = 1;
    return made;
}

/* NULL where `part` makes it too large: everything that goes through expressions may do so on the
 * stack, and through each of them. */
static expression *holds(grammar_rules *rules, expression *whole, const expression *part) {
    if (whole == NULL || part == NULL)
        return NULL;
    whole->parts += part->parts;
    if (part->nested >= whole->nested)
        whole->nested = part->nested + 1;
    if (whole->parts <= GRAMMAR_NODES_MAX && whole->nested <= GRAMMAR_NESTED_MAX)
        return whole;
    rules->status = status_fail(
        rules->error, AVO_ERROR_LIMIT,
        "the grammar has more than %u parts, or they are nested more than %u levels deep",
        GRAMMAR_NODES_MAX, GRAMMAR_NESTED_MAX);
    return NULL;
}

const expression *expression_bytes(grammar_rules *rules, text_view bytes) {
    expression *made = take(rules, EXPRESSION_BYTES);
    if (made == NULL || bytes.size == 0)
        return made;
    char *copy = arena_copy_text(rules->arena, bytes.data, bytes.size);
    if (copy == NULL) {
        (void)!no_memory(rules, bytes.size);
        return NULL;
    }
    made->bytes = (text_view){copy, bytes.size};
    return made;
}

const expression *expression_text(grammar_rules *rules, const char *terminated) {
    return expression_bytes(rules, text_from(terminated));
}

const expression *expression_class(grammar_rules *rules, const code_set *set, bool quoted) {
    expression *made = take(rules, EXPRESSION_CLASS);
    if (made == NULL)
        return NULL;
    if (code_set_characters(rules, set, &made->characters.set) != AVO_OK)
        return NULL;
    made->characters.quoted = quoted;
    return made;
}

const expression *expression_range(grammar_rules *rules, uint32_t first, uint32_t last) {
    code_range range = {first, last};
    code_set set = {&range, 1, 1};
    return expression_class(rules, &set, false);
}

const expression *expression_rule(grammar_rules *rules, uint32_t rule) {
    expression *made = take(rules, EXPRESSION_RULE);
    if (made != NULL)
        made->rule = rule;
    return made;
}

const expression *expression_repeat(grammar_rules *rules, const expression *item, uint32_t least,
                                    uint32_t most) {
    if (item == NULL)
        return NULL;
    if (least == 1 && most == 1)
        return item;
    if (most < least)
        return take(rules, EXPRESSION_CHOICE); /* of none: nothing fits */
    expression *made = take(rules, EXPRESSION_REPEAT);
    if (made == NULL)
        return NULL;
    made->repeat.item = item;
    made->repeat.least = least;
    made->repeat.most = most;
    return holds(rules, made, item);
}

const expression *expression_list(grammar_rules *rules, expression_kind kind,
                                  const expression *const *items, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (items[i] == NULL)
            return NULL;
    if (count == 1)
        return items[0];
    expression *made = take(rules, kind);
    if (made == NULL || count == 0)
        return made;
    made->list.items = arena_take_array(rules->arena, count, sizeof(*items));
    if (made->list.items == NULL) {
        (void)!no_memory(rules, count * sizeof(*items));
        return NULL;
    }
    memcpy((void *)made->list.items, (const void *)items, count * sizeof(*items));
    made->list.count = count;
    for (uint32_t i = 0; i < count && made != NULL; i++)
        made = holds(rules, made, items[i]);
    return made;
}

static uint32_t count_of(const expression *const *items) {
    uint32_t count = 0;
    while (count < 4 && items[count] != NULL)
        count++;
    return count;
}

const expression *expression_sequence(grammar_rules *rules, const expression *a,
                                      const expression *b, const expression *c,
                                      const expression *d) {
    const expression *items[] = {a, b, c, d};
    uint32_t count = count_of(items);
    return a == NULL || b == NULL ? NULL
                                  : expression_list(rules, EXPRESSION_SEQUENCE, items, count);
}

const expression *expression_choice(grammar_rules *rules, const expression *a, const expression *b,
                                    const expression *c, const expression *d) {
    const expression *items[] = {a, b, c, d};
    uint32_t count = count_of(items);
    return a == NULL || b == NULL ? NULL : expression_list(rules, EXPRESSION_CHOICE, items, count);
}

const expression *expression_members(grammar_rules *rules, const expression_member *items,
                                     uint32_t count, const expression *separator,
                                     const expression *rest) {
    expression *made = take(rules, EXPRESSION_MEMBERS);
    if (made == NULL || separator == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        if (items[i].item == NULL)
            return NULL;
    if (count > 0) {
        made->members.items = arena_take_array(rules->arena, count, sizeof(*items));
        if (made->members.items == NULL) {
            (void)!no_memory(rules, count * sizeof(*items));
            return NULL;
        }
        memcpy(made->members.items, items, count * sizeof(*items));
    }
    made->members.count = count;
    made->members.separator = separator;
    made->members.rest = rest;
    for (uint32_t i = 0; i < count && made != NULL; i++)
        made = holds(rules, made, items[i].item);
    made = holds(rules, made, separator);
    return rest == NULL ? made : holds(rules, made, rest);
}

/* The room doubles; what was there before stays in the arena until the grammar is read. */
static avo_status grow(grammar_rules *rules, void *items_at, uint32_t count, uint32_t *capacity,
                       size_t size) {
    if (count < *capacity)
        return AVO_OK;
    uint32_t larger = *capacity == 0 ? 8 : *capacity * 2;
    void *fresh = arena_take_array(rules->arena, larger, size);
    if (fresh == NULL)
        return no_memory(rules, larger * size);
    void *old;
    memcpy(&old, items_at, sizeof(old));
    if (count > 0)
        memcpy(fresh, old, count * size);
    memcpy(items_at, &fresh, sizeof(fresh));
    *capacity = larger;
    return AVO_OK;
}

avo_status expression_items_add(grammar_rules *rules, expression_items *items,
                                const expression *item) {
    if (item == NULL)
        return rules->error != NULL ? rules->error->status : AVO_ERROR_MEMORY;
    AVO_TRY(
        grow(rules, (void *)&items->items, items->count, &items->capacity, sizeof(*items->items)));
    items->items[items->count++] = item;
    return AVO_OK;
}

/* ---- Sets of characters ---- */

avo_status code_set_add(grammar_rules *rules, code_set *set, uint32_t first, uint32_t last) {
    AVO_TRY(grow(rules, &set->ranges, set->count, &set->capacity, sizeof(*set->ranges)));
    set->ranges[set->count++] = (code_range){first, last};
    return AVO_OK;
}

static int compare_ranges(const void *a, const void *b) {
    const code_range *x = a;
    const code_range *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

void code_set_tidy(code_set *set) {
    if (set->count == 0)
        return;
    qsort(set->ranges, set->count, sizeof(*set->ranges), compare_ranges);
    uint32_t kept = 0;
    for (uint32_t i = 1; i < set->count; i++) {
        code_range *last = &set->ranges[kept];
        if (set->ranges[i].first <= last->last + 1) {
            if (set->ranges[i].last > last->last)
                last->last = set->ranges[i].last;
        } else {
            set->ranges[++kept] = set->ranges[i];
        }
    }
    set->count = kept + 1;
}

avo_status code_set_negate(grammar_rules *rules, code_set *set) {
    code_set_tidy(set);
    code_set out = {NULL, 0, 0};
    uint32_t from = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->ranges[i].first > from)
            AVO_TRY(code_set_add(rules, &out, from, set->ranges[i].first - 1));
        from = set->ranges[i].last + 1;
    }
    if (from <= 0x10FFFF)
        AVO_TRY(code_set_add(rules, &out, from, 0x10FFFF));
    *set = out;
    return AVO_OK;
}

avo_status code_set_characters(grammar_rules *rules, const code_set *set, code_set *out) {
    *out = (code_set){NULL, 0, 0};
    for (uint32_t i = 0; i < set->count; i++) {
        code_range range = set->ranges[i];
        if (range.first < 0xD800)
            AVO_TRY(
                code_set_add(rules, out, range.first, range.last < 0xD800 ? range.last : 0xD7FF));
        if (range.last > 0xDFFF)
            AVO_TRY(
                code_set_add(rules, out, range.first > 0xDFFF ? range.first : 0xE000, range.last));
    }
    code_set_tidy(out);
    return AVO_OK;
}
