/* What is known of rules before and after the network is built: whether they derive anything, the
 * empty text, themselves. */
#include "sample/grammar_network_int.h"

/* ---- Nullable and productive ---- */

/* Whether the expression has the property: `nullable` or `productive`. They differ in what has no
 * parts. */
static bool has_property(const grammar_rules *rules, const expression *e, bool nullable) {
    switch (e->kind) {
    case EXPRESSION_BYTES:
        return !nullable || e->bytes.size == 0;
    case EXPRESSION_CLASS:
        return !nullable && e->characters.set.count > 0;
    case EXPRESSION_SEQUENCE:
        for (uint32_t i = 0; i < e->list.count; i++)
            if (!has_property(rules, e->list.items[i], nullable))
                return false;
        return true;
    case EXPRESSION_CHOICE:
        for (uint32_t i = 0; i < e->list.count; i++)
            if (has_property(rules, e->list.items[i], nullable))
                return true;
        return false;
    case EXPRESSION_REPEAT:
        return e->repeat.least == 0 || has_property(rules, e->repeat.item, nullable);
    case EXPRESSION_RULE:
        return nullable ? rules->rules[e->rule].nullable : rules->rules[e->rule].productive;
    case EXPRESSION_MEMBERS:
        for (uint32_t i = 0; i < e->members.count; i++)
            if (e->members.items[i].required &&
                !has_property(rules, e->members.items[i].item, nullable))
                return false;
        return true;
    }
    return false;
}

bool expression_nullable(const grammar_rules *rules, const expression *e) {
    return has_property(rules, e, true);
}

bool expression_productive(const grammar_rules *rules, const expression *e) {
    return has_property(rules, e, false);
}

/* Once from each end and again while something changes: rules that name those before or behind
 * them are settled in two rounds. */
static avo_status settle(grammar_rules *rules) {
    bool changed = true;
    while (changed) {
        changed = false;
        AVO_TRY(grammar_rules_work(rules, rules->nodes));
        for (uint32_t turn = 0; turn < 2 * rules->count; turn++) {
            uint32_t at = turn < rules->count ? turn : 2 * rules->count - 1 - turn;
            grammar_rule *rule = &rules->rules[at];
            if (!rule->nullable && expression_nullable(rules, rule->body))
                rule->nullable = changed = true;
            if (!rule->productive && expression_productive(rules, rule->body))
                rule->productive = changed = true;
        }
    }
    return AVO_OK;
}

/* ---- Who names whom ---- */

typedef struct rule_edge {
    uint32_t from, to;
    uint32_t copies;
} rule_edge;

typedef struct rule_edges {
    rule_edge *edges;
    uint32_t count, capacity;
} rule_edges;

static uint32_t times(uint32_t a, uint32_t b) {
    uint64_t product = (uint64_t)a * b;
    return product > 1000000 ? 1000000 : (uint32_t)product;
}

static void collect(rule_edges *edges, uint32_t from, const expression *e, uint32_t copies) {
    switch (e->kind) {
    case EXPRESSION_BYTES:
    case EXPRESSION_CLASS:
        return;
    case EXPRESSION_SEQUENCE:
    case EXPRESSION_CHOICE:
        for (uint32_t i = 0; i < e->list.count; i++)
            collect(edges, from, e->list.items[i], copies);
        return;
    case EXPRESSION_REPEAT: {
        uint32_t most = e->repeat.most == GRAMMAR_UNBOUNDED ? e->repeat.least : e->repeat.most;
        collect(edges, from, e->repeat.item, times(copies, most == 0 ? 1 : most));
        return;
    }
    case EXPRESSION_RULE:
        if (edges->count < edges->capacity)
            edges->edges[edges->count++] = (rule_edge){from, e->rule, copies};
        return;
    case EXPRESSION_MEMBERS:
        for (uint32_t i = 0; i < e->members.count; i++)
            collect(edges, from, e->members.items[i].item, copies);
        collect(edges, from, e->members.separator, times(copies, e->members.count + 1));
        if (e->members.rest != NULL)
            collect(edges, from, e->members.rest, copies);
        return;
    }
}

/* Rules in an order in which each comes behind all that it names; those that lead into a circle
 * have no place in it. Returns how many have one. */
static uint32_t order_rules(const rule_edges *edges, uint32_t rules, arena *scratch,
                            uint32_t *order) {
    uint32_t *open = arena_take_array(scratch, rules, sizeof(*open));
    uint32_t *first = arena_take_array(scratch, (size_t)rules + 1, sizeof(*first));
    uint32_t *callers = arena_take_array(scratch, (size_t)edges->count + 1, sizeof(*callers));
    if (open == NULL || first == NULL || callers == NULL)
        return UINT32_MAX;
    for (uint32_t i = 0; i < edges->count; i++) {
        open[edges->edges[i].from]++;
        first[edges->edges[i].to]++;
    }
    for (uint32_t i = 0, sum = 0; i <= rules; i++) {
        uint32_t here = i < rules ? first[i] : 0;
        sum += here;
        first[i] = sum;
    }
    for (uint32_t i = 0; i < edges->count; i++)
        callers[--first[edges->edges[i].to]] = edges->edges[i].from;
    uint32_t count = 0;
    for (uint32_t i = 0; i < rules; i++)
        if (open[i] == 0)
            order[count++] = i;
    for (uint32_t at = 0; at < count; at++)
        for (uint32_t i = first[order[at]]; i < first[order[at] + 1]; i++)
            if (--open[callers[i]] == 0)
                order[count++] = callers[i];
    return count;
}

/* ---- What is built where it is used ---- */

static uint32_t estimate(const builder *b, const expression *e) {
    uint32_t sum = 1;
    switch (e->kind) {
    case EXPRESSION_BYTES:
        return (uint32_t)(e->bytes.size > 1000000 ? 1000000 : e->bytes.size);
    case EXPRESSION_CLASS: {
        const code_set *set = &e->characters.set;
        bool ascii = set->count > 0 && set->ranges[set->count - 1].last < 0x80;
        return ascii ? 1 : set->count > 4 ? 24 : 8;
    }
    case EXPRESSION_SEQUENCE:
    case EXPRESSION_CHOICE:
        for (uint32_t i = 0; i < e->list.count && sum < 1000000; i++)
            sum += estimate(b, e->list.items[i]);
        return sum;
    case EXPRESSION_REPEAT:
        return times(estimate(b, e->repeat.item) + 1,
                     e->repeat.most == GRAMMAR_UNBOUNDED ? e->repeat.least + 1 : e->repeat.most);
    case EXPRESSION_RULE:
        return b->info[e->rule].inlined ? b->info[e->rule].states : 1;
    case EXPRESSION_MEMBERS:
        for (uint32_t i = 0; i < e->members.count && sum < 1000000; i++)
            sum += estimate(b, e->members.items[i].item) + 4;
        return sum + (e->members.rest == NULL ? 0 : estimate(b, e->members.rest));
    }
    return sum;
}

static avo_status choose_inlined(builder *b) {
    grammar_rules *rules = b->rules;
    uint64_t parts = 0;
    for (uint32_t i = 0; i < rules->count; i++)
        parts += rules->rules[i].body->parts;
    if (parts > 4 * (uint64_t)GRAMMAR_NODES_MAX)
        return status_fail(rules->error, AVO_ERROR_LIMIT, "the grammar has more than %u parts",
                           4 * GRAMMAR_NODES_MAX);
    rule_edges edges = {.capacity = (uint32_t)parts};
    edges.edges = arena_take_array(b->scratch, (size_t)edges.capacity + 1, sizeof(*edges.edges));
    uint32_t *order = arena_take_array(b->scratch, rules->count, sizeof(*order));
    if (edges.edges == NULL || order == NULL)
        return status_no_memory(rules->error, "a grammar", edges.capacity * sizeof(rule_edge));
    for (uint32_t i = 0; i < rules->count; i++)
        collect(&edges, i, rules->rules[i].body, 1);
    for (uint32_t i = 0; i < edges.count; i++)
        b->info[edges.edges[i].to].uses += edges.edges[i].copies;
    uint32_t count = order_rules(&edges, rules->count, b->scratch, order);
    if (count == UINT32_MAX)
        return status_no_memory(rules->error, "a grammar", rules->count * sizeof(uint32_t));
    for (uint32_t i = 0; i < count; i++) {
        rule_info *info = &b->info[order[i]];
        info->states = estimate(b, rules->rules[order[i]].body);
        info->inlined = info->uses == 1 || info->states <= INLINE_STATES;
    }
    return AVO_OK;
}

avo_status rules_check(builder *b) {
    grammar_rules *rules = b->rules;
    for (uint32_t i = 0; i < rules->count; i++)
        if (rules->rules[i].body == NULL)
            return status_fail(rules->error, AVO_ERROR_FORMAT, "rule %.*s is not defined",
                               TEXT_ARGUMENT(rules->rules[i].name));
    AVO_TRY(settle(rules));
    if (!rules->rules[rules->root].productive)
        return status_fail(rules->error, AVO_ERROR_ARGUMENT,
                           "no text can match the grammar: rule %.*s derives nothing",
                           TEXT_ARGUMENT(rules->rules[rules->root].name));
    return choose_inlined(b);
}

/* ---- Left recursion ---- */

typedef struct left_search {
    const builder *b;
    rule_edges edges;
    uint32_t *stack; /* [states] */
    uint32_t *mark;  /* [states] the rule that was here last, one more */
} left_search;

/* Rules that the one from `start` can call before its first byte. */
static void search_left(left_search *s, uint32_t rule, const uint32_t *rule_of) {
    const network *net = s->b->net;
    uint32_t depth = 0;
    uint32_t start = s->b->info[rule].start;
    s->stack[depth++] = start;
    s->mark[start] = rule + 1;
    while (depth > 0) {
        const net_state *state = &net->states[s->stack[--depth]];
        const uint32_t *targets = net->targets + state->first;
        uint32_t from = 0;
        uint32_t count = state->kind == NET_SPLIT ? state->count : 0;
        if (state->kind == NET_CALL || state->kind == NET_TAIL) {
            uint32_t called = rule_of[targets[0]];
            if (s->edges.count < s->edges.capacity)
                s->edges.edges[s->edges.count++] = (rule_edge){rule, called, 1};
            from = 1;
            count = s->b->rules->rules[called].nullable ? state->count : 0;
        }
        for (uint32_t i = from; i < count; i++)
            if (s->mark[targets[i]] != rule + 1) {
                s->mark[targets[i]] = rule + 1;
                s->stack[depth++] = targets[i];
            }
    }
}

/* A rule of the circle: follow edges among those without a place until one comes again. */
static uint32_t circle_member(const left_search *s, const uint32_t *order, uint32_t placed,
                              bool *has_place) {
    for (uint32_t i = 0; i < placed; i++)
        has_place[order[i]] = true;
    uint32_t at = 0;
    while (has_place[at])
        at++;
    for (uint32_t step = 0; step < s->b->rules->count; step++)
        for (uint32_t i = 0; i < s->edges.count; i++)
            if (s->edges.edges[i].from == at && !has_place[s->edges.edges[i].to]) {
                at = s->edges.edges[i].to;
                break;
            }
    return at;
}

avo_status network_check_left(builder *b) {
    grammar_rules *rules = b->rules;
    const network *net = b->net;
    left_search s = {.b = b, .edges = {.capacity = net->state_count}};
    s.edges.edges = arena_take_array(b->scratch, net->state_count, sizeof(rule_edge));
    s.stack = arena_take_array(b->scratch, net->state_count, sizeof(*s.stack));
    s.mark = arena_take_array(b->scratch, net->state_count, sizeof(*s.mark));
    uint32_t *rule_of = arena_take_array(b->scratch, net->state_count, sizeof(*rule_of));
    uint32_t *order = arena_take_array(b->scratch, rules->count, sizeof(*order));
    bool *has_place = arena_take_array(b->scratch, rules->count, sizeof(*has_place));
    if (s.edges.edges == NULL || s.stack == NULL || s.mark == NULL || rule_of == NULL ||
        order == NULL || has_place == NULL)
        return status_no_memory(rules->error, "a grammar", net->state_count * sizeof(rule_edge));
    /* Two rules may begin with the same state only where one is nothing but the other, which is
     * then a tail call of its own: starts are distinct but for rules that are empty. */
    for (uint32_t i = b->queue_count; i-- > 0;)
        rule_of[b->info[b->queue[i]].start] = b->queue[i];
    for (uint32_t i = 0; i < b->queue_count; i++)
        search_left(&s, b->queue[i], rule_of);
    uint32_t placed = order_rules(&s.edges, rules->count, b->scratch, order);
    if (placed == UINT32_MAX)
        return status_no_memory(rules->error, "a grammar", rules->count * sizeof(uint32_t));
    if (placed == rules->count)
        return AVO_OK;
    uint32_t guilty = circle_member(&s, order, placed, has_place);
    return status_fail(rules->error, AVO_ERROR_UNSUPPORTED,
                       "rule %.*s begins with itself (left recursion), which is not supported",
                       TEXT_ARGUMENT(rules->rules[guilty].name));
}
