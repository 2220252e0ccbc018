/* What must hold at every step, computed from what was seen alone: nothing here asks the scheduler
 * for its opinion, save its own sched_check.
 *
 * Shares: where all requests have priority 0, two pairs that both wait all the time are served
 * alike. A pair begins something only when it has had no more than any other that waits; what has
 * begun is finished. So it is never ahead by more than one prompt and the answers of what it has
 * running; over any window in which both wait, the services differ by no more than both bounds
 * together. */
#include "sched/simulate_int.h"

#include "sched/keys.h"

#include <math.h>

#define PAIRS_CHECKED_MAX 32 /* shares are looked at in pairs of pairs */
#define LEARNED_FACTOR    10 /* by which a learned cost may be too high */

bool checks_open(simulation *s) {
    keys pairs, tenants;
    if (!keys_init(&pairs, &s->arena, s->count) || !keys_init(&tenants, &s->arena, s->count) ||
        (s->pairs = arena_take_array(&s->arena, s->count, sizeof(shares))) == NULL ||
        (s->tenant_pairs = arena_take_array(&s->arena, s->count, sizeof(uint32_t))) == NULL ||
        (s->tenant_pages = arena_take_array(&s->arena, s->count, sizeof(uint64_t))) == NULL)
        return false;
    for (uint32_t i = 0; i < s->count; i++) {
        const simulate_item *item = &s->items[i];
        uint32_t pair = keys_find(&pairs, item->tenant, item->adapter);
        uint32_t tenant = keys_find(&tenants, item->tenant, 0);
        if (tenant == KEYS_NONE) {
            tenant = tenants.count;
            keys_add(&tenants, item->tenant, 0, tenant);
        }
        if (pair == KEYS_NONE) {
            pair = s->pair_count++;
            keys_add(&pairs, item->tenant, item->adapter, pair);
            s->pairs[pair] = (shares){.tenant = tenant, .weight = item->weight};
            s->tenant_pairs[tenant]++; /* of all, for a moment */
        }
        s->users[i].pair = pair;
        s->prompt_max = item->prompt_tokens > s->prompt_max ? item->prompt_tokens : s->prompt_max;
    }
    for (uint32_t i = 0; i < s->pair_count; i++)
        s->pairs[i].price_max = s->tenant_pairs[s->pairs[i].tenant] / s->pairs[i].weight;
    for (uint32_t i = 0; i < tenants.count; i++)
        s->tenant_pairs[i] = 0;
    if (!s->options->fair || s->pair_count > PAIRS_CHECKED_MAX)
        return true;
    size_t square = (size_t)s->pair_count * s->pair_count;
    s->low = arena_take_array(&s->arena, square, sizeof(double));
    s->high = arena_take_array(&s->arena, square, sizeof(double));
    for (size_t i = 0; i < square && s->low != NULL; i++)
        s->low[i] = NAN;
    return s->low != NULL && s->high != NULL;
}

/* ---- Who waits ---- */

static uint64_t pages_needed(const simulate_item *item) {
    return kv_pages_for((uint64_t)item->prompt_tokens + item->new_tokens_max);
}

void check_submitted(simulation *s, uint32_t index) {
    const simulate_item *item = &s->items[index];
    shares *pair = &s->pairs[s->users[index].pair];
    if (pair->live++ == 0)
        s->tenant_pairs[pair->tenant]++;
    if (pair->queue[item->priority]++ == 0)
        pair->served_ns[item->priority] = s->clock;
    pair->waiting++;
}

/* Windows in which the pair waits are over. */
static void window_close(simulation *s, uint32_t pair) {
    if (s->low == NULL)
        return;
    for (uint32_t other = 0; other < s->pair_count; other++)
        s->low[pair * s->pair_count + other] = s->low[other * s->pair_count + pair] = NAN;
}

void check_stops_waiting(simulation *s, uint32_t index, bool begun) {
    const simulate_item *item = &s->items[index];
    shares *pair = &s->pairs[s->users[index].pair];
    if (pair->queue[item->priority] == 0)
        wrong(s, "request %u stops waiting twice", index);
    pair->queue[item->priority]--;
    if (begun)
        pair->served_ns[item->priority] = s->clock;
    if (--pair->waiting == 0)
        window_close(s, s->users[index].pair);
}

void check_over(simulation *s, uint32_t index) {
    user *user = &s->users[index];
    shares *pair = &s->pairs[user->pair];
    if (user->state == USER_COMING)
        return;
    if (user->state == USER_WAITING && !user->cancelled)
        check_stops_waiting(s, index, false);
    if (user->begun) {
        pair->promised -= s->items[index].new_tokens_max;
        s->tenant_pages[pair->tenant] -= pages_needed(&s->items[index]);
    }
    if (--pair->live == 0)
        s->tenant_pairs[pair->tenant]--;
}

/* ---- Ends ---- */

static uint64_t deadline_at(const simulation *s, uint32_t index) {
    const simulate_item *item = &s->items[index];
    uint64_t first = s->users[index].tokens == 0 ? item->first_deadline_ns : 0;
    uint64_t least = first == 0 || (item->deadline_ns > 0 && item->deadline_ns < first)
                         ? item->deadline_ns
                         : first;
    return least > 0 ? item->arrival_ns + least : UINT64_MAX;
}

/* Of steps with prompts, where nothing else is computed. */
static step_cost prompt_cost(const simulation *s) {
    const simulate_machine *machine = &s->options->machine;
    return simulate_cost(machine, machine->split == CORES_STATIC
                                      ? machine->cores - machine->decode_cores
                                      : machine->cores);
}

/* The time to the first token with the machine to itself and what was cached when it came: step by
 * step, as many rows in each as there may be. */
static double first_token_ns(const simulation *s, uint32_t index) {
    const simulate_item *item = &s->items[index];
    step_cost cost = prompt_cost(s);
    uint32_t at = s->users[index].reusable;
    double ns = 0;
    while (at < item->prompt_tokens) {
        uint32_t left = item->prompt_tokens - at;
        uint32_t most = s->options->sched.rows_max;
        uint32_t rows = left < most ? left : most;
        step_load load = {.adapters = item->adapters,
                          .context_tokens = (uint64_t)at * rows + (uint64_t)rows * (rows + 1) / 2};
        if (left == 1)
            load.decode_rows = 1;
        else
            load.prefill_rows = rows;
        load.scored_rows = item->scored ? load.prefill_rows : 0;
        ns += step_cost_of(&cost, &load);
        at += rows;
    }
    return ns;
}

/* Whether a request may be told that it cannot be served in time: not even with the machine to
 * itself, whoever else is there. A scheduler that knows the machine is held to it exactly; one that
 * learns may be wrong, but not by much, and not before it has learned anything. */
static bool is_hopeless(const simulation *s, uint32_t index, uint64_t now) {
    const simulate_options *options = s->options;
    uint64_t deadline = deadline_at(s, index);
    if (deadline == UINT64_MAX || (deadline > now && s->result->steps < options->sched.trust_steps))
        return false;
    double left = deadline > now ? (double)(deadline - now) : 0;
    double needed = first_token_ns(s, index);
    return left <= needed * (options->learn ? LEARNED_FACTOR : 1 + 1e-9) + 2;
}

void check_not_taken(simulation *s, uint32_t index, avo_status status) {
    const simulate_item *item = &s->items[index];
    const sched_options *options = &s->options->sched;
    uint64_t tokens = (uint64_t)item->prompt_tokens + item->new_tokens_max;
    bool right = false;
    if (status == AVO_ERROR_CONTEXT)
        right = tokens > options->context_max || kv_pages_for(tokens) > options->pages ||
                (item->budget > 0 && kv_pages_for(tokens) > item->budget);
    else if (status == AVO_ERROR_LIMIT)
        right = tokens > options->waiting_tokens_max ||
                (options->adapters_max > 0 && item->adapters > options->adapters_max);
    else if (status == AVO_ERROR_DEADLINE)
        right = is_hopeless(s, index, s->clock);
    if (!right)
        wrong(s, "request %u of %u tokens is not taken (%d) without need", index,
              item->prompt_tokens, (int)status);
}

void check_end(simulation *s, uint32_t index, sched_outcome outcome, bool by_plan) {
    const simulate_item *item = &s->items[index];
    const user *user = &s->users[index];
    uint64_t deadline = deadline_at(s, index);
    uint32_t tokens =
        item->answer_tokens < item->new_tokens_max ? item->answer_tokens : item->new_tokens_max;
    bool right = false;
    switch (outcome) {
    case SCHED_FINISHED:
        right = !by_plan && user->tokens == tokens &&
                (!item->scored || user->looked == item->prompt_tokens);
        break;
    case SCHED_CANCELLED:
        right = by_plan && user->cancelled;
        break;
    case SCHED_EXPIRED:
        right = by_plan && deadline <= s->now;
        break;
    case SCHED_REFUSED:
        right = by_plan && deadline > s->now && user->state == USER_WAITING &&
                is_hopeless(s, index, s->now);
        break;
    case SCHED_FAILED:
        right = !by_plan && user->tokens == item->fails_at;
        break;
    }
    if (!right)
        wrong(s, "request %u ends as %d after %u tokens", index, (int)outcome, user->tokens);
    if (s->planned_once && s->last_plan >= deadline && !user->was_in_flight)
        wrong(s, "request %u has outlived its deadline", index);
}

/* ---- Beginnings ---- */

static uint32_t class_at(const simulation *s, uint64_t rank) {
    uint64_t ageing = s->options->sched.ageing_ns;
    uint64_t left = rank > s->clock ? (rank - s->clock + ageing - 1) / ageing : 0;
    return left < CLASSES ? (uint32_t)left : CLASSES - 1;
}

static uint32_t class_of_queue(const simulation *s, const shares *pair, uint32_t class) {
    uint64_t ageing = s->options->sched.ageing_ns;
    return ageing == 0 ? class : class_at(s, pair->served_ns[class] + class * ageing);
}

static uint64_t rank_of(const simulation *s, uint32_t index) {
    const simulate_item *item = &s->items[index];
    uint64_t ageing = s->options->sched.ageing_ns; /* without it, priority alone comes first */
    return item->arrival_ns + item->priority * (ageing > 0 ? ageing : 1ull << 58);
}

static uint32_t class_of_preempted(const simulation *s, uint32_t index) {
    return s->options->sched.ageing_ns == 0 ? s->items[index].priority
                                            : class_at(s, rank_of(s, index));
}

/* Nobody of a lower rank has kept his pages: those who still run stand before the victim. */
void check_victim(simulation *s, uint32_t index) {
    for (uint32_t i = 0; i < s->options->sched.running_max; i++) {
        uint32_t other = s->sequences[i].item;
        if (other != UINT32_MAX && !s->sequences[i].begun && rank_of(s, other) > rank_of(s, index))
            wrong(s, "request %u is preempted, and %u of lower rank runs", index, other);
    }
}

/* Something of the tenant waits for which the rest of its budget is too small: all of it may be
 * passed. */
static bool is_held(const simulation *s, uint32_t tenant) {
    for (uint32_t i = 0; i < s->count; i++) {
        const simulate_item *item = &s->items[i];
        if (item->budget > 0 && s->users[i].state == USER_WAITING && !s->users[i].cancelled &&
            s->pairs[s->users[i].pair].tenant == tenant && s->tenant_pages[tenant] > 0 &&
            s->tenant_pages[tenant] + pages_needed(item) > item->budget)
            return true;
    }
    return false;
}

static void check_budget(simulation *s, uint32_t index) {
    const simulate_item *item = &s->items[index];
    uint64_t *used = &s->tenant_pages[s->pairs[s->users[index].pair].tenant];
    if (item->budget > 0 && *used > 0 && *used + pages_needed(item) > item->budget)
        wrong(s, "request %u of %llu pages begins where %llu of %u are taken", index,
              (unsigned long long)pages_needed(item), (unsigned long long)*used, item->budget);
    *used += pages_needed(item);
}

/* Nobody of a better class is passed, nobody who was preempted before and is older. */
static void check_precedence(simulation *s, uint32_t index) {
    const user *user = &s->users[index];
    bool back = user->state == USER_PREEMPTED;
    uint32_t own = back ? class_of_preempted(s, index)
                        : class_of_queue(s, &s->pairs[user->pair], s->items[index].priority);
    for (uint32_t p = 0; p < s->pair_count; p++)
        for (uint32_t c = 0; c < CLASSES && s->pairs[p].waiting > 0; c++)
            if (s->pairs[p].queue[c] > 0 && class_of_queue(s, &s->pairs[p], c) < own &&
                !is_held(s, s->pairs[p].tenant))
                wrong(s, "request %u of class %u passes one of class %u", index, own,
                      class_of_queue(s, &s->pairs[p], c));
    for (uint32_t i = 0; i < s->count && s->preempted > 0; i++) {
        if (s->users[i].state != USER_PREEMPTED || i == index || s->users[i].cancelled)
            continue;
        if (back ? rank_of(s, i) < rank_of(s, index) : class_of_preempted(s, i) <= own)
            wrong(s, "request %u passes %u, which was preempted", index, i);
    }
}

static void charge(simulation *s, uint32_t index, uint32_t end) {
    user *user = &s->users[index];
    shares *pair = &s->pairs[user->pair];
    if (end <= user->charged)
        return;
    pair->service += (double)(end - user->charged) * s->tenant_pairs[pair->tenant] / pair->weight;
    user->charged = end;
}

static void begin_kept(simulation *s, const attempt *attempt) {
    uint32_t index = attempt->item;
    user *user = &s->users[index];
    sequence *sequence = &s->sequences[attempt->sequence];
    shares *pair = &s->pairs[user->pair];
    if (user->state == USER_PREEMPTED)
        s->preempted--;
    else
        check_stops_waiting(s, index, true);
    if (!user->begun) {
        user->begun = true;
        pair->promised += s->items[index].new_tokens_max;
        check_budget(s, index);
        s->outcomes[index].begin_ns = s->now;
    }
    user->state = USER_RUNNING;
    user->unserved = 0;
    sequence->begun = false;
    sequence->since = s->plans + 1; /* the one that is being looked at */
    s->outcomes[index].reused_tokens += sequence->computed;
    if (user->charged < sequence->computed)
        user->charged = sequence->computed;
    charge(s, index, sequence->known);
    double bound = (double)(s->prompt_max + pair->promised + 1) * pair->price_max;
    s->share_bound = fmax(s->share_bound, bound);
}

void check_begins(simulation *s) {
    for (uint32_t i = 0; i < s->attempt_count && !is_wrong(s); i++) {
        const attempt *attempt = &s->attempts[i];
        const user *user = &s->users[attempt->item];
        if ((user->state != USER_WAITING && user->state != USER_PREEMPTED) || user->cancelled) {
            wrong(s, "request %u begins in state %d", attempt->item, (int)user->state);
            return;
        }
        if (s->options->check)
            check_precedence(s, attempt->item);
        if (attempt->kept)
            begin_kept(s, attempt);
    }
}

/* ---- Rows ---- */

/* Drafts stand behind the one row of a sequence that decodes, are no more than there were, and
 * leave a sequence in the answer for the token behind them. */
static void check_drafts(simulation *s, const sched_entry *entry) {
    uint32_t index = (uint32_t)(entry->request - 1);
    const simulate_item *item = &s->items[index];
    const sequence *sequence = &s->sequences[entry->sequence];
    if (entry->rows != 1 + entry->drafts || sequence->known - sequence->computed != 1 ||
        !entry->draws)
        wrong(s, "request %u has %u drafts in %u rows and does not decode", index, entry->drafts,
              entry->rows);
    if (entry->drafts > sequence->wished || entry->drafts > s->options->sched.drafts_max)
        wrong(s, "request %u has %u drafts, where there were %u", index, entry->drafts,
              sequence->wished);
    if (s->users[index].tokens + entry->drafts >= item->new_tokens_max)
        wrong(s, "request %u has %u drafts behind %u of %u tokens", index, entry->drafts,
              s->users[index].tokens, item->new_tokens_max);
}

static void check_entry(simulation *s, const sched_entry *entry) {
    uint32_t index = (uint32_t)(entry->request - 1);
    sequence *sequence = &s->sequences[entry->sequence];
    if (sequence->item != index || s->users[index].state != USER_RUNNING)
        wrong(s, "request %u computes in a sequence that is not its own", index);
    else if (entry->rows == 0 || entry->first != sequence->computed)
        wrong(s, "request %u computes %u rows from %u, and has %u", index, entry->rows,
              entry->first, sequence->computed);
    else if (sequence->in_flight)
        wrong(s, "request %u is computed twice at the same time", index);
    else if (sequence->served == s->plans)
        wrong(s, "request %u is twice in a step", index);
    else if (deadline_at(s, index) <= s->now)
        wrong(s, "request %u computes after its deadline", index);
    else if (entry->drafts > 0)
        check_drafts(s, entry);
    sequence->served = s->plans;
    s->users[index].unserved = 0;
    charge(s, index, entry->first + entry->rows - entry->drafts);
}

void check_accepted(simulation *s, const sched_entry *entry, uint32_t accepted) {
    uint32_t index = (uint32_t)(entry->request - 1);
    const sequence *sequence = &s->sequences[entry->sequence];
    if (accepted > 1 + entry->drafts)
        wrong(s, "request %u accepts %u tokens, with %u drafts", index, accepted, entry->drafts);
    if (sequence->known != s->items[index].prompt_tokens + s->users[index].tokens ||
        sequence->computed + (accepted > 0) > sequence->known)
        wrong(s, "request %u has %u tokens in memory, of %u that it knows", index,
              sequence->computed, sequence->known);
    if (entry->drafts > 0 && kv_pages_for(sequence->computed) != sequence->table.count)
        wrong(s, "request %u keeps %u pages for %u tokens", index, sequence->table.count,
              sequence->computed);
    charge(s, index, sequence->computed);
}

/* Adapters stand together and are not too many. Returns how many kinds there are. */
static void check_adapters(simulation *s, const sched_plan *plan) {
    uint32_t units = 0;
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const simulate_item *item = &s->items[plan->entries[i].request - 1];
        const simulate_item *last = i > 0 ? &s->items[plan->entries[i - 1].request - 1] : NULL;
        if (last != NULL && last->adapter == item->adapter)
            continue;
        units += item->adapters;
        for (uint32_t k = 0; last != NULL && k < i; k++)
            if (s->items[plan->entries[k].request - 1].adapter == item->adapter)
                wrong(s, "adapter %u is in two parts of a step", item->adapter);
    }
    uint32_t most = s->options->sched.adapters_max;
    if ((most > 0 && units > most) || units != plan->load.adapters)
        wrong(s, "%u adapters in a step, which says %u, of at most %u", units, plan->load.adapters,
              most);
}

/* Whether no sequence before this one runs its adapter. */
static bool first_of_adapter(const simulation *s, uint32_t sequence) {
    uint32_t item = s->sequences[sequence].item;
    if (item == UINT32_MAX)
        return false;
    for (uint32_t i = 0; i < sequence; i++)
        if (s->sequences[i].item != UINT32_MAX &&
            s->items[s->sequences[i].item].adapter == s->items[item].adapter)
            return false;
    return true;
}

/* Whoever decodes gets his row, in turn with other adapters: each step serves the one whose turn it
 * is, save that one which has its prompt before it may wait PREFILL_SKIPS_MAX steps for a chunk. */
static void check_turns(simulation *s) {
    const sched_options *options = &s->options->sched;
    uint32_t adapters = 0;
    for (uint32_t i = 0; i < options->running_max && options->adapters_max > 0; i++)
        adapters += first_of_adapter(s, i);
    uint32_t most = options->adapters_max > 0 ? (adapters + 1) * (PREFILL_SKIPS_MAX + 1) : 0;
    if (s->prefill_in_flight && pages_available(s->pages) == 0)
        return; /* it may wait for pages of one in flight */
    for (uint32_t i = 0; i < options->running_max; i++) {
        const sequence *sequence = &s->sequences[i];
        if (sequence->item == UINT32_MAX || sequence->served == s->plans ||
            sequence->since == s->plans || sequence->known - sequence->computed != 1)
            continue;
        uint32_t unserved = ++s->users[sequence->item].unserved;
        if (unserved > most)
            wrong(s, "request %u could decode and had no row for %u steps", sequence->item,
                  unserved);
    }
}

/* More than the target only by a smallest chunk, after as many steps without any; whoever has just
 * begun is not kept waiting by it. */
static void check_target(simulation *s, const sched_plan *plan) {
    const sched_options *options = &s->options->sched;
    const step_load *load = &plan->load;
    bool decodes = false;
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sequence *sequence = &s->sequences[plan->entries[i].sequence];
        decodes |= sequence->known - sequence->computed == 1 && sequence->since != s->plans;
    }
    if (options->target_ns > 0 && decodes && load->prefill_rows > 0 &&
        plan->predicted_ns > (double)options->target_ns * (1 + 1e-9) &&
        (load->prefill_rows > options->chunk_min || s->prefill_pause < PREFILL_SKIPS_MAX))
        wrong(s, "a step of %u + %u rows is predicted to take %.0f ns of %.0f", load->decode_rows,
              load->prefill_rows, plan->predicted_ns, (double)options->target_ns);
    s->prefill_pause = load->prefill_rows > 0 ? 0 : s->prefill_pause + 1;
}

void check_scored(simulation *s, const sched_entry *entry) {
    uint32_t index = (uint32_t)(entry->request - 1);
    const simulate_item *item = &s->items[index];
    user *user = &s->users[index];
    uint32_t end = entry->first + entry->rows;
    if (!item->scored)
        return;
    if (entry->first > user->looked && user->looked < item->prompt_tokens)
        wrong(s, "rows %u to %u of request %u are left out of its scores", user->looked,
              entry->first, index);
    end = end < item->prompt_tokens ? end : item->prompt_tokens;
    user->looked = end > user->looked ? end : user->looked;
}

/* What a plan says of its entries, which decides what it is thought to cost. */
static void check_load(simulation *s, const sched_plan *plan) {
    step_load load = {0};
    uint32_t draws = 0;
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        uint64_t rows = entry->rows - entry->drafts, end = entry->first + rows;
        bool decodes = s->sequences[entry->sequence].known - entry->first == 1;
        draws += entry->draws;
        load.draft_rows += entry->drafts;
        *(decodes ? &load.decode_rows : &load.prefill_rows) += (uint32_t)rows;
        if (!decodes && s->items[entry->request - 1].scored)
            load.scored_rows += (uint32_t)rows;
        for (uint64_t position = entry->first; position < end + entry->drafts; position++)
            *(position < end ? &load.context_tokens : &load.draft_tokens) += position + 1;
    }
    const step_load *said = &plan->load;
    if (load.decode_rows != said->decode_rows || load.draft_rows != said->draft_rows ||
        load.prefill_rows != said->prefill_rows || load.scored_rows != said->scored_rows ||
        load.context_tokens != said->context_tokens || load.draft_tokens != said->draft_tokens)
        wrong(s, "a step of %u + %u + %u rows says %u + %u + %u, or looks at other positions",
              load.decode_rows, load.draft_rows, load.prefill_rows, said->decode_rows,
              said->draft_rows, said->prefill_rows);
    const sched_options *options = &s->options->sched;
    if (step_load_rows(&load) > options->rows_max ||
        (options->logits_max > 0 && draws + load.draft_rows > options->logits_max))
        wrong(s, "a step has %u rows, of which %u are drawn from", step_load_rows(&load),
              draws + load.draft_rows);
    double target = (double)options->target_ns;
    if (target > 0 && load.draft_rows > 0 && plan->predicted_ns > target * (1 + 1e-9))
        wrong(s, "%u drafts in a step that takes %.0f ns of %.0f", load.draft_rows,
              plan->predicted_ns, target);
}

void check_plan(simulation *s, const sched_plan *plan) {
    s->plans++;
    uint32_t excused = 0;
    for (uint32_t i = 0; s->prefill_in_flight && i < s->prefill.plan.entry_count; i++)
        excused += s->users[s->prefill.plan.entries[i].request - 1].cancelled;
    if (s->cancelled > excused)
        wrong(s, "%u cancelled requests live on", s->cancelled - excused);
    for (uint32_t i = 0; i < plan->entry_count && !is_wrong(s); i++)
        check_entry(s, &plan->entries[i]);
    if (!is_wrong(s))
        check_load(s, plan);
    if (is_wrong(s) || !s->options->check)
        return;
    check_adapters(s, plan);
    if (plan->side != SCHED_PREFILL)
        check_turns(s);
    if (plan->side == SCHED_BOTH)
        check_target(s, plan);
    check_shares(s);
}

/* ---- Everything ---- */

void check_shares(simulation *s) {
    uint32_t n = s->pair_count;
    for (uint32_t f = 0; s->low != NULL && f < n; f++)
        for (uint32_t g = f + 1; g < n; g++) {
            double *low = &s->low[f * n + g], *high = &s->high[f * n + g];
            if (s->pairs[f].waiting == 0 || s->pairs[g].waiting == 0)
                continue;
            double difference = s->pairs[f].service - s->pairs[g].service;
            if (isnan(*low))
                *low = *high = difference;
            *low = fmin(*low, difference);
            *high = fmax(*high, difference);
            double bound = 2 * s->share_bound;
            double used = (*high - *low) / bound;
            s->result->share_bound_used = fmax(s->result->share_bound_used, used);
            if (used > 1 + 1e-9)
                wrong(s, "pairs %u and %u both wait, and one is ahead by %.0f of at most %.0f", f,
                      g, *high - *low, bound);
        }
}

void check_state(simulation *s) {
    sched_counts counts = sched_count(s->sched);
    const sched_options *options = &s->options->sched;
    if (counts.waiting > options->waiting_max + options->running_max)
        wrong(s, "%u requests wait", counts.waiting);
    if (!s->options->check || is_wrong(s))
        return;
    const char *fault = sched_check(s->sched);
    if (fault == NULL)
        fault = pages_check(s->pages);
    uint64_t references = s->hog.count;
    for (uint32_t i = 0; i < options->running_max; i++)
        references += s->sequences[i].table.count;
    pages_counts pages = pages_count(s->pages);
    if (fault != NULL)
        wrong(s, "%s", fault);
    else if (pages.references != references ||
             pages.free + pages.cached + pages.used != real_pages(s))
        wrong(s, "%llu references to pages where %llu are held",
              (unsigned long long)pages.references, (unsigned long long)references);
}
