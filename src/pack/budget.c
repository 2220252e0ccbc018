/* A type for every matrix under a budget of bits. The error of each type is measured on a few
 * panels of each matrix, rounded as they will be (with error feedback where there is a
 * calibration), as a part of the matrix's output; a weight for its place in the model turns it into
 * an expected divergence. Then a knapsack: the cheapest price of a bit under which the sum of
 * divergence and price fits the budget, and what is left goes to whoever gains most by it. */
#include "pack/rounding.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "formats/names.h"

#include <math.h>

#define SAMPLES 8 /* panels of a matrix */

static const quant_type candidates[] = {QUANT_Q4R,  QUANT_Q4B64, QUANT_Q4M64,
                                        QUANT_Q4_0, QUANT_Q4_1,  QUANT_Q5_0,
                                        QUANT_Q5_1, QUANT_Q8B,   QUANT_F16};
#define CANDIDATES (sizeof(candidates) / sizeof(candidates[0]))

typedef struct option {
    double damage;
    uint64_t bytes;
} option;

typedef struct budget {
    pack_list *list;
    const char *name; /* of the model, for messages */
    const pack_options *options;
    option *options_of; /* [items][CANDIDATES] */
    uint32_t layers;
    rounding rounding;
    team *team;
    /* the matrix being measured */
    const pack_item *item;
    quant_type type;
    const feedback_factor *factor;
    size_t samples;
    float *scratch; /* [workers][scratch_floats] */
    uint8_t *panel; /* [workers][panel_bytes] */
    size_t scratch_floats, panel_bytes;
    double error[SAMPLES], energy[SAMPLES];
    pack_fault faults[SAMPLES];
    uint64_t done, total;
} budget;

/* KL per part of a matrix's output that is lost, measured with single kinds of matrices rounded in
 * stories15M (docs/quantisation.md); layers share it. What is not named here has the head's. */
static const pack_sensitivity usual = {.kinds = 9,
                                       .kind = {{"attn_q", 1.7},
                                                {"attn_k", 2.3},
                                                {"attn_v", 2.6},
                                                {"attn_output", 2.9},
                                                {"ffn_gate", 4.3},
                                                {"ffn_up", 4.5},
                                                {"ffn_down", 5.0},
                                                {"token_embd", 10.0},
                                                {"output", 3.1}}};

static double place_weight(const pack_sensitivity *given, const pack_item *item, uint32_t layers) {
    const pack_sensitivity *sensitivity = given != NULL ? given : &usual;
    uint32_t layer = 0;
    text_view rest;
    bool in_layer = names_split_layer(text_from(item->name), &layer, &rest);
    const char *name = in_layer ? rest.data : item->name;
    double weight = 5.0;
    for (uint32_t i = 0; i < sensitivity->kinds; i++) {
        size_t length = strlen(sensitivity->kind[i].name);
        if (strncmp(name, sensitivity->kind[i].name, length) == 0 && name[length] == '.')
            weight = sensitivity->kind[i].weight;
    }
    if (!in_layer)
        return weight;
    if (sensitivity->bands > 0 && layer < layers)
        weight *= sensitivity->band[(uint64_t)layer * sensitivity->bands / layers];
    return weight / layers;
}

static bool is_choice(const pack_item *item) {
    return !item->vector && !item->named && item->role != PACK_ROLE_POSITION &&
           item->layout == QUANT_LAYOUT_PANELS;
}

static void measure_share(void *context, uint32_t worker, uint32_t workers) {
    budget *b = context;
    float *numbers = b->scratch + worker * b->scratch_floats;
    float *scratch = numbers + QUANT_PANEL_ROWS * b->item->k;
    size_t begin, end;
    team_share(b->samples, worker, workers, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        size_t unit = i * pack_units(b->item) / b->samples;
        size_t rows = pack_unit_rows(b->item, unit);
        b->error[i] = b->energy[i] = 0;
        b->faults[i] = (pack_fault){0};
        pack_decode_unit(b->item, unit, rows, numbers);
        if (!pack_check_unit(b->item, weight_largest(b->type), unit, rows, numbers, &b->faults[i]))
            continue;
        feedback_encode_panel(b->type, numbers, rows, b->item->k, b->factor,
                              b->options->effort == PACK_EFFORT_NONE, scratch,
                              b->panel + worker * b->panel_bytes, &b->error[i]);
        if (!isfinite(b->error[i]))
            b->faults[i] = (pack_fault){.found = true, .moments = true};
        b->energy[i] = feedback_energy(b->type, numbers, rows, b->item->k, b->factor, scratch);
    }
}

static avo_status measure(budget *b, const pack_item *item, size_t candidate, avo_error *error) {
    option *option = &b->options_of[(size_t)(item - b->list->items) * CANDIDATES + candidate];
    b->type = candidates[candidate];
    if (!weight_bytes(b->type, QUANT_LAYOUT_PANELS, item->rows, item->k, &option->bytes))
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the tensor is too large", item->name);
    if (!feedback_known(b->type))
        return AVO_OK; /* f16: nothing worth a word */
    b->item = item;
    b->samples = size_min(SAMPLES, pack_units(item));
    b->factor = NULL;
    if (b->options->effort == PACK_EFFORT_FEEDBACK)
        AVO_TRY(rounding_factor(&b->rounding, item, b->type, b->team, &b->factor, error));
    team_each(b->team, measure_share, b);
    double lost = 0, all = 0;
    for (size_t i = 0; i < b->samples; i++) {
        if (b->faults[i].found)
            return pack_report_fault(item, b->type, b->name, b->options, &b->faults[i], error);
        lost += b->error[i];
        all += b->energy[i];
    }
    option->damage =
        all > 0 ? lost / all * place_weight(b->options->sensitivity, item, b->layers) : 0;
    return AVO_OK;
}

/* Rotated and plain types one after the other, so that matrices of one input share its factor. */
static avo_status measure_all(budget *b, avo_error *error) {
    for (int rotated = 1; rotated >= 0; rotated--)
        for (uint32_t i = 0; i < b->list->count; i++) {
            if (!is_choice(&b->list->items[i]))
                continue;
            for (size_t c = 0; c < CANDIDATES; c++)
                if ((candidates[c] == QUANT_Q4R) == (rotated == 1))
                    AVO_TRY(measure(b, &b->list->items[i], c, error));
            if (b->list->items[i].forget.size > 0)
                file_map_forget(b->list->items[i].forget.data, b->list->items[i].forget.size);
            b->done++;
            if (b->options->progress != NULL &&
                !b->options->progress(b->options->progress_context, "measuring", b->done, b->total))
                return status_fail(error, AVO_ERROR_CANCELLED, "%s: packing was cancelled",
                                   b->name);
        }
    return AVO_OK;
}

/* The best candidate of an item when a byte costs `price`; of equals the smaller one. */
static size_t best_at(const option *options, double price) {
    size_t best = 0;
    for (size_t c = 1; c < CANDIDATES; c++) {
        double own = options[c].damage + price * (double)options[c].bytes;
        double other = options[best].damage + price * (double)options[best].bytes;
        if (own < other || (own == other && options[c].bytes < options[best].bytes))
            best = c;
    }
    return best;
}

static uint64_t bytes_at(const budget *b, double price) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->list->count; i++)
        if (is_choice(&b->list->items[i])) {
            const option *options = b->options_of + i * CANDIDATES;
            bytes += options[best_at(options, price)].bytes;
        }
    return bytes;
}

/* Spends what is left, best gain per byte first. `chosen` [items]. */
static void spend_rest(const budget *b, uint64_t left, uint8_t *chosen) {
    for (;;) {
        double best_gain = 0;
        uint32_t best_item = 0;
        size_t best_candidate = 0;
        for (uint32_t i = 0; i < b->list->count; i++) {
            if (!is_choice(&b->list->items[i]))
                continue;
            const option *options = b->options_of + i * CANDIDATES, *now = &options[chosen[i]];
            for (size_t c = 0; c < CANDIDATES; c++) {
                if (options[c].bytes <= now->bytes || options[c].bytes - now->bytes > left)
                    continue;
                double gain =
                    (now->damage - options[c].damage) / (double)(options[c].bytes - now->bytes);
                if (gain > best_gain) {
                    best_gain = gain;
                    best_item = i;
                    best_candidate = c;
                }
            }
        }
        if (best_gain <= 0)
            return;
        const option *options = b->options_of + best_item * CANDIDATES;
        left -= options[best_candidate].bytes - options[chosen[best_item]].bytes;
        chosen[best_item] = (uint8_t)best_candidate;
    }
}

/* Types that are smaller than the first candidate, Q4R, are there for budgets that it does not fit:
 * their errors are too large to be told from each other by what one matrix loses alone. */
static void leave_out_poor(const budget *b, double limit) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->list->count; i++)
        if (is_choice(&b->list->items[i]))
            bytes += b->options_of[i * CANDIDATES].bytes;
    for (uint32_t i = 0; (double)bytes <= limit && i < b->list->count; i++) {
        option *options = b->options_of + i * CANDIDATES;
        for (size_t c = 1; c < CANDIDATES; c++)
            if (options[c].bytes < options[0].bytes)
                options[c] = (option){.damage = INFINITY, .bytes = options[0].bytes};
    }
}

static avo_status choose(budget *b, uint8_t *chosen, avo_error *error) {
    uint64_t weights = 0, fixed = 0;
    for (uint32_t i = 0; i < b->list->count; i++) {
        const pack_item *item = &b->list->items[i];
        uint64_t bytes = 0;
        if (item->looked_up && item->layout == QUANT_LAYOUT_ROWS)
            continue; /* a table with a type of its own: no token reads it whole */
        weights += (uint64_t)item->rows * item->k;
        if (!is_choice(item) && weight_bytes(item->type, item->layout, item->rows, item->k, &bytes))
            fixed += bytes;
    }
    double limit = b->options->bits * (double)weights / 8.0 - (double)fixed;
    double dear = 1e30, cheap = 0.0;
    uint64_t least = bytes_at(b, dear);
    if (!(limit >= (double)least))
        return status_fail(
            error, AVO_ERROR_ARGUMENT, "%s: %g bits per weight are too few, must be at least %.3f",
            b->name, b->options->bits, 8.0 * (double)(least + fixed) / (double)weights + 0.0005);
    leave_out_poor(b, limit);
    for (int i = 0; i < 400 && cheap < dear; i++) { /* geometric: prices span many orders */
        double price = cheap == 0 ? dear * 1e-3 : sqrt(cheap * dear);
        if ((double)bytes_at(b, price) <= limit)
            dear = price;
        else
            cheap = price;
        if (dear < 1e-40)
            break;
    }
    for (uint32_t i = 0; i < b->list->count; i++)
        if (is_choice(&b->list->items[i]))
            chosen[i] = (uint8_t)best_at(b->options_of + i * CANDIDATES, dear);
    spend_rest(b, (uint64_t)limit - bytes_at(b, dear), chosen);
    for (uint32_t i = 0; i < b->list->count; i++)
        if (is_choice(&b->list->items[i]))
            pack_set(&b->list->items[i], candidates[chosen[i]], QUANT_LAYOUT_PANELS);
    return AVO_OK;
}

static avo_status open_budget(budget *b, uint32_t threads, avo_error *error) {
    b->layers = 1; /* groups are the embedding, the layers, the head */
    for (uint32_t i = 0; i < b->list->count; i++) {
        const pack_item *item = &b->list->items[i];
        uint64_t bytes = 0;
        if (!is_choice(item))
            continue;
        if (strncmp(item->name, "blk.", 4) == 0 && item->group > b->layers)
            b->layers = item->group;
        b->total += 2;
        size_t floats = (size_t)item->k * QUANT_PANEL_ROWS + feedback_scratch_floats(item->k);
        b->scratch_floats = size_max(b->scratch_floats, (floats + 15) / 16 * 16);
        for (size_t c = 0; c < CANDIDATES; c++)
            if (weight_panel_bytes(candidates[c], item->k, &bytes))
                b->panel_bytes = size_max(b->panel_bytes, (size_t)bytes);
    }
    b->scratch = allocator_take(NULL, threads * b->scratch_floats * sizeof(float));
    b->panel = allocator_take(NULL, threads * b->panel_bytes);
    if (b->total > 0 && (b->scratch == NULL || b->panel == NULL))
        return status_no_memory(error, "panels to measure",
                                threads * (b->panel_bytes + b->scratch_floats * sizeof(float)));
    AVO_TRY(rounding_open(&b->rounding, b->options->calibration, b->list, error));
    return team_open(NULL, threads, &b->team, error);
}

avo_status pack_budget(pack_list *list, const char *name, const pack_options *options,
                       avo_error *error) {
    budget b = {.list = list, .name = name, .options = options};
    uint32_t threads = options->threads != 0 ? options->threads : cpu_usable_threads();
    threads = threads < TEAM_THREADS_MAX ? threads : TEAM_THREADS_MAX;
    b.options_of = arena_take_array(list->arena, list->count * CANDIDATES, sizeof(option));
    uint8_t *chosen = arena_take_array(list->arena, list->count, 1);
    if (b.options_of == NULL || chosen == NULL)
        return status_no_memory(error, "measured errors", list->count * CANDIDATES);
    avo_status status = open_budget(&b, threads, error);
    AVO_THEN(status, measure_all(&b, error));
    AVO_THEN(status, choose(&b, chosen, error));
    team_close(b.team);
    rounding_close(&b.rounding);
    allocator_give(NULL, b.scratch, threads * b.scratch_floats * sizeof(float));
    allocator_give(NULL, b.panel, threads * b.panel_bytes);
    return status;
}
