/* Expressions become a network. Everything is built from its end: `next` is the state behind, so
 * that a sequence needs no state of its own, and what cannot succeed (NET_NONE) is never built.
 * State 0 is the end of every rule.
 *
 * Rules that are small or used once, and lead to no recursion, are built where they are used:
 * inside of one rule a mask knows everything, across rules it must ask what called it.
 */
#include "sample/grammar_network_int.h"

#include <stdlib.h>

static uint32_t fail_states(builder *b) {
    if (b->status == AVO_OK)
        b->status = status_fail(b->rules->error, AVO_ERROR_LIMIT,
                                "the grammar needs more than %u states or %u edges",
                                GRAMMAR_STATES_MAX, GRAMMAR_EDGES_MAX);
    return NET_NONE;
}

uint32_t builder_state(builder *b, net_kind kind, uint32_t first, uint32_t count) {
    network *net = b->net;
    if (net->state_count == GRAMMAR_STATES_MAX)
        return fail_states(b);
    uint32_t at = net->state_count++;
    net->states[at] =
        (net_state){.first = first, .count = count & 0xFFFFFFu, .kind = kind, .alias = at};
    return at;
}

uint32_t builder_targets(builder *b, net_kind kind, const uint32_t *targets, uint32_t count) {
    network *net = b->net;
    if (GRAMMAR_EDGES_MAX - net->target_count < count)
        return fail_states(b);
    uint32_t first = net->target_count;
    memcpy(net->targets + first, targets, count * sizeof(*targets));
    net->target_count += count;
    return builder_state(b, kind, first, count);
}

uint32_t builder_edges(builder *b, net_kind kind, const net_edge *edges, uint32_t count) {
    network *net = b->net;
    if (GRAMMAR_EDGES_MAX - net->edge_count < count)
        return fail_states(b);
    uint32_t first = net->edge_count;
    memcpy(net->edges + first, edges, count * sizeof(*edges));
    net->edge_count += count;
    return builder_state(b, kind, first, count);
}

uint32_t builder_byte(builder *b, uint8_t low, uint8_t high, uint32_t next) {
    net_edge edge = {low, high, next};
    return next == NET_NONE ? NET_NONE : builder_edges(b, NET_BYTES, &edge, 1);
}

/* One of both; either may be impossible. */
static uint32_t split(builder *b, uint32_t a, uint32_t other) {
    if (a == NET_NONE || a == other)
        return other;
    if (other == NET_NONE)
        return a;
    uint32_t targets[] = {a, other};
    return builder_targets(b, NET_SPLIT, targets, 2);
}

static uint32_t build(builder *b, const expression *e, uint32_t next);

/* False, and b->status set, where the grammar takes too long to compile. */
static bool work(builder *b, uint64_t steps) {
    if (b->status == AVO_OK)
        b->status = grammar_rules_work(b->rules, steps);
    return b->status == AVO_OK;
}

static uint32_t build_bytes(builder *b, text_view bytes, uint32_t next) {
    for (size_t i = bytes.size; i-- > 0 && next != NET_NONE;)
        next = builder_byte(b, (uint8_t)bytes.data[i], (uint8_t)bytes.data[i], next);
    return next;
}

static uint32_t build_sequence(builder *b, const expression *e, uint32_t next) {
    for (uint32_t i = e->list.count; i-- > 0 && next != NET_NONE;)
        next = build(b, e->list.items[i], next);
    return next;
}

static int compare_states(const void *a, const void *b) {
    const uint32_t *x = a;
    const uint32_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Each once: places that come here look at them all. */
static uint32_t keep_distinct(uint32_t *targets, uint32_t count) {
    if (count < 2)
        return count;
    qsort(targets, count, sizeof(*targets), compare_states);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < count; i++)
        if (targets[i] != targets[kept - 1])
            targets[kept++] = targets[i];
    return kept;
}

static uint32_t build_choice(builder *b, const expression *e, uint32_t next) {
    uint32_t *targets = arena_take_array(b->scratch, e->list.count + 1, sizeof(*targets));
    if (targets == NULL) {
        b->status =
            status_no_memory(b->rules->error, "a grammar", e->list.count * sizeof(*targets));
        return NET_NONE;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < e->list.count && b->status == AVO_OK; i++) {
        uint32_t target = build(b, e->list.items[i], next);
        if (target != NET_NONE)
            targets[count++] = target;
    }
    count = keep_distinct(targets, count);
    if (count <= 1)
        return count == 0 ? NET_NONE : targets[0];
    return builder_targets(b, NET_SPLIT, targets, count);
}

/* ---- Repetition ---- */

/* The states of the newest copy are like those of the model copy: one mask for both. */
static void alias_copy(builder *b, uint32_t first, uint32_t model_first, uint32_t model_count) {
    net_state *states = b->net->states;
    if (b->net->state_count - first != model_count)
        return;
    for (uint32_t i = 0; i < model_count; i++)
        if (states[first + i].alias == first + i)
            states[first + i].alias = states[model_first + i].alias;
}

/* `copies` of the item, one behind the other, each of which may be left out where `skip` is a state
 * to go to instead. A copy with more copies behind it than any token has bytes has the same mask as
 * its neighbour; an item that may be empty proves nothing about bytes. */
static uint32_t build_copies(builder *b, const expression *item, uint32_t copies, uint32_t skip,
                             uint32_t next) {
    bool countable = !expression_nullable(b->rules, item);
    uint32_t far_from = b->token_bytes_max + 1;
    uint32_t model_first = 0;
    uint32_t model_count = 0;
    for (uint32_t left = 1; left <= copies && next != NET_NONE && b->status == AVO_OK; left++) {
        uint32_t first = b->net->state_count;
        uint32_t entry = build(b, item, next);
        if (entry == next)
            break; /* nothing but the empty text: more of it is the same */
        next = skip == NET_NONE ? entry : split(b, entry, skip);
        if (!countable || left < far_from)
            continue;
        if (left == far_from) {
            model_first = first;
            model_count = b->net->state_count - first;
        } else {
            alias_copy(b, first, model_first, model_count);
        }
    }
    return next;
}

static uint32_t build_repeat(builder *b, const expression *e, uint32_t next) {
    const expression *item = e->repeat.item;
    uint32_t least = e->repeat.least;
    uint32_t most = e->repeat.most;
    if (!work(b, item->parts))
        return NET_NONE;
    if (!expression_productive(b->rules, item))
        return least == 0 ? next : NET_NONE;
    if (expression_nullable(b->rules, item))
        least = 0; /* the same texts, and loops need not be told apart */
    if (most != GRAMMAR_UNBOUNDED) {
        uint32_t optional = build_copies(b, item, most - least, next, next);
        return build_copies(b, item, least, NET_NONE, optional);
    }
    uint32_t none[] = {next, next};
    uint32_t loop = builder_targets(b, NET_SPLIT, none, 2);
    if (loop == NET_NONE)
        return NET_NONE;
    uint32_t body = build(b, item, loop);
    if (body == NET_NONE)
        return NET_NONE;
    b->net->targets[b->net->states[loop].first] = body;
    return least == 0 ? loop : build_copies(b, item, least - 1, NET_NONE, body);
}

/* ---- Members of an object ---- */

/* Two chains: nothing was written yet (no separator), and something was. Each item is built once;
 * both lead into it. */
static uint32_t build_members(builder *b, const expression *e, uint32_t next) {
    const expression *separator = e->members.separator;
    uint32_t some = next;
    uint32_t none = next;
    if (e->members.rest != NULL) {
        uint32_t both[] = {next, next};
        uint32_t loop = builder_targets(b, NET_SPLIT, both, 2);
        uint32_t item = loop == NET_NONE ? NET_NONE : build(b, e->members.rest, loop);
        uint32_t again = item == NET_NONE ? NET_NONE : build(b, separator, item);
        if (again != NET_NONE) {
            b->net->targets[b->net->states[loop].first] = again;
            some = loop;
            none = split(b, item, next);
        }
    }
    for (uint32_t i = e->members.count; i-- > 0 && b->status == AVO_OK;) {
        const expression_member *member = &e->members.items[i];
        uint32_t item = some == NET_NONE ? NET_NONE : build(b, member->item, some);
        uint32_t separated = item == NET_NONE ? NET_NONE : build(b, separator, item);
        some = member->required ? separated : split(b, separated, some);
        none = member->required ? item : split(b, item, none);
    }
    return none;
}

/* ---- Rules ---- */

static uint32_t build_rule(builder *b, uint32_t rule, uint32_t next) {
    rule_info *info = &b->info[rule];
    if (!b->rules->rules[rule].productive)
        return NET_NONE;
    const expression *body = b->rules->rules[rule].body;
    if (info->inlined && b->inline_depth < INLINE_DEPTH_MAX &&
        b->nested + body->nested <= GRAMMAR_NESTED_MAX) {
        b->inline_depth++;
        b->nested += body->nested;
        uint32_t entry = build(b, body, next);
        b->nested -= body->nested;
        b->inline_depth--;
        return entry;
    }
    if (!info->called) {
        info->called = true;
        b->queue[b->queue_count++] = rule;
    }
    uint32_t targets[] = {rule, next}; /* the rule's number until it is built */
    return next == NET_END ? builder_targets(b, NET_TAIL, targets, 1)
                           : builder_targets(b, NET_CALL, targets, 2);
}

static uint32_t build(builder *b, const expression *e, uint32_t next) {
    if (next == NET_NONE || !work(b, STEPS_OF_BUILD))
        return NET_NONE;
    switch (e->kind) {
    case EXPRESSION_BYTES:
        return build_bytes(b, e->bytes, next);
    case EXPRESSION_CLASS:
        return builder_class(b, &e->characters.set, e->characters.quoted, next);
    case EXPRESSION_SEQUENCE:
        return build_sequence(b, e, next);
    case EXPRESSION_CHOICE:
        return build_choice(b, e, next);
    case EXPRESSION_REPEAT:
        return build_repeat(b, e, next);
    case EXPRESSION_RULE:
        return build_rule(b, e->rule, next);
    case EXPRESSION_MEMBERS:
        return build_members(b, e, next);
    }
    return NET_NONE;
}

/* Every rule that is called, those that only others call included. */
static avo_status build_rules(builder *b) {
    b->info[b->rules->root].called = true;
    b->queue[b->queue_count++] = b->rules->root;
    for (uint32_t i = 0; i < b->queue_count && b->status == AVO_OK; i++) {
        uint32_t rule = b->queue[i];
        b->inline_depth = 0;
        b->info[rule].start = build(b, b->rules->rules[rule].body, NET_END);
    }
    AVO_TRY(b->status);
    network *net = b->net;
    for (uint32_t i = 0; i < net->state_count; i++)
        if (net->states[i].kind == NET_CALL || net->states[i].kind == NET_TAIL) {
            uint32_t *target = &net->targets[net->states[i].first];
            *target = b->info[*target].start;
        }
    net->start = b->info[b->rules->root].start;
    return AVO_OK;
}

/* ---- Free text before a trigger ---- */

static void trigger_borders(text_view trigger, uint32_t *borders) {
    borders[0] = 0;
    uint32_t border = 0;
    for (uint32_t i = 1; i < trigger.size; i++) {
        while (border > 0 && trigger.data[i] != trigger.data[border])
            border = borders[border - 1];
        border += trigger.data[i] == trigger.data[border];
        borders[i] = border;
    }
}

static uint32_t trigger_step(text_view trigger, const uint32_t *borders, uint32_t at,
                             uint8_t byte) {
    while (at > 0 && (uint8_t)trigger.data[at] != byte)
        at = borders[at - 1];
    return at + ((uint8_t)trigger.data[at] == byte ? 1 : 0);
}

/* A state for every beginning of the trigger, each of which takes any byte and may be the end; the
 * whole trigger calls the grammar and comes back to the first of them. */
static avo_status build_trigger(builder *b, text_view trigger) {
    network *net = b->net;
    uint32_t borders[GRAMMAR_TRIGGER_MAX];
    uint32_t entry[GRAMMAR_TRIGGER_MAX + 1] = {0};
    uint32_t count = (uint32_t)trigger.size;
    trigger_borders(trigger, borders);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t targets[] = {NET_END, NET_END};
        entry[k] = builder_targets(b, NET_SPLIT, targets, 2);
    }
    AVO_TRY(b->status);
    uint32_t call[] = {net->start, entry[0]};
    entry[count] = builder_targets(b, NET_CALL, call, 2);
    for (uint32_t k = 0; k < count && b->status == AVO_OK; k++) {
        net_edge edges[256];
        uint32_t edge_count = 0;
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t next = entry[trigger_step(trigger, borders, k, (uint8_t)byte)];
            if (edge_count > 0 && edges[edge_count - 1].next == next)
                edges[edge_count - 1].high = (uint8_t)byte;
            else
                edges[edge_count++] = (net_edge){(uint8_t)byte, (uint8_t)byte, next};
        }
        uint32_t state = builder_edges(b, NET_FREE, edges, edge_count);
        if (state != NET_NONE)
            net->targets[net->states[entry[k]].first] = state;
    }
    net->start = entry[0];
    return b->status;
}

/* The grammar, or text that begins with none of what JSON begins with. */
static avo_status build_choice_of_text(builder *b) {
    network *net = b->net;
    uint32_t free_targets[] = {NET_END, NET_END};
    uint32_t begin_targets[] = {NET_END, net->start, NET_END};
    uint32_t text = builder_targets(b, NET_SPLIT, free_targets, 2);
    uint32_t begin = builder_targets(b, NET_SPLIT, begin_targets, 3);
    AVO_TRY(b->status);
    net_edge any = {0, 255, text};
    net_edge edges[256];
    uint32_t count = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool space = byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
        if (byte == '{' || byte == '[')
            continue;
        uint32_t next = space ? begin : text;
        if (count > 0 && edges[count - 1].next == next && edges[count - 1].high + 1u == byte)
            edges[count - 1].high = (uint8_t)byte;
        else
            edges[count++] = (net_edge){(uint8_t)byte, (uint8_t)byte, next};
    }
    uint32_t free_state = builder_edges(b, NET_FREE, &any, 1);
    uint32_t guard = builder_edges(b, NET_BYTES, edges, count);
    AVO_TRY(b->status);
    net->targets[net->states[text].first] = free_state;
    net->targets[net->states[begin].first] = guard;
    net->start = begin;
    return AVO_OK;
}

/* ---- The whole ---- */

static void find_classes(network *net) {
    bool begins[257] = {true};
    for (uint32_t i = 0; i < net->edge_count; i++) {
        begins[net->edges[i].low] = true;
        begins[net->edges[i].high + 1] = true;
    }
    net->classes = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (begins[byte])
            net->class_byte[net->classes++] = (uint8_t)byte;
        net->byte_class[byte] = (uint8_t)(net->classes - 1);
    }
}

static avo_status take_room(builder *b, network *net, avo_error *error) {
    net->states = arena_take_array(b->scratch, GRAMMAR_STATES_MAX, sizeof(*net->states));
    net->edges = arena_take_array(b->scratch, GRAMMAR_EDGES_MAX, sizeof(*net->edges));
    net->targets = arena_take_array(b->scratch, GRAMMAR_EDGES_MAX, sizeof(*net->targets));
    b->info = arena_take_array(b->scratch, b->rules->count, sizeof(*b->info));
    b->queue = arena_take_array(b->scratch, b->rules->count, sizeof(*b->queue));
    if (net->states == NULL || net->edges == NULL || net->targets == NULL || b->info == NULL ||
        b->queue == NULL)
        return status_no_memory(error, "a grammar", GRAMMAR_EDGES_MAX * sizeof(*net->edges));
    (void)builder_state(b, NET_RETURN, 0, 0);
    return AVO_OK;
}

static void *keep(arena *arena, const void *items, uint32_t count, size_t size) {
    void *copy = arena_take_array(arena, (size_t)count + 1, size);
    if (copy != NULL)
        memcpy(copy, items, count * size);
    return copy;
}

avo_status network_build(grammar_rules *rules, arena *arena, uint32_t token_bytes_max,
                         text_view trigger, bool json_or_text, network *net) {
    *net = (network){0};
    builder b = {.rules = rules,
                 .net = net,
                 .scratch = rules->arena,
                 .token_bytes_max = token_bytes_max < 1 ? 1 : token_bytes_max};
    AVO_TRY(rules->status);
    AVO_TRY(take_room(&b, net, rules->error));
    AVO_TRY(rules_check(&b));
    AVO_TRY(build_rules(&b));
    AVO_TRY(network_check_left(&b));
    if (trigger.size > 0)
        AVO_TRY(build_trigger(&b, trigger));
    else if (json_or_text)
        AVO_TRY(build_choice_of_text(&b));
    find_classes(net);
    net->states = keep(arena, net->states, net->state_count, sizeof(*net->states));
    net->edges = keep(arena, net->edges, net->edge_count, sizeof(*net->edges));
    net->targets = keep(arena, net->targets, net->target_count, sizeof(*net->targets));
    if (net->states == NULL || net->edges == NULL || net->targets == NULL)
        return status_no_memory(rules->error, "a grammar", net->edge_count * sizeof(*net->edges));
    return AVO_OK;
}
