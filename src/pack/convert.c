/* The stream: a few units (16 rows each) at a time are decoded, checked and encoded by the team,
 * each unit into its own place, and then written. What a unit becomes depends on nothing else, so
 * the bytes are the same for any number of threads. */
#include "adapters/adapters.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/team.h"
#include "pack/rounding.h"

#include <float.h>
#include <math.h>

#define BATCH_BYTES    ((size_t)16 << 20)
#define BATCH_UNITS    4096
#define MEASURED_UNITS 8 /* one of so many */

typedef struct batch {
    const pack_item *item;
    size_t unit_bytes;
    size_t first_unit, units;
    uint8_t *out;   /* [units][unit_bytes] */
    float *scratch; /* [workers][scratch_floats] */
    size_t scratch_floats;
    pack_fault *faults; /* [workers] */
    pack_effort effort;
    const feedback_factor *factor; /* NULL: none */
    double *errors, *energies;     /* [units] */
} batch;

void pack_decode_unit(const pack_item *item, size_t unit, size_t rows, float *numbers) {
    for (size_t row = 0; row < rows; row++) {
        float *out = numbers + row * item->k;
        if (item->from.data == NULL)
            pack_random_row(item, unit * QUANT_PANEL_ROWS + row, out);
        else
            weight_decode_row(&item->from, unit * QUANT_PANEL_ROWS + row, out);
        for (uint32_t i = 0; item->plus_one && i < item->k; i++)
            out[i] = 1.0f + out[i];
    }
}

bool pack_check_unit(const pack_item *item, float largest, size_t unit, size_t rows,
                     const float *numbers, pack_fault *found) {
    for (size_t row = 0; row < rows; row++) {
        const float *from = numbers + row * item->k;
        bool bad = false;
        for (uint32_t i = 0; i < item->k; i++)
            bad |= !(fabsf(from[i]) <= largest);
        for (uint32_t i = 0; bad && i < item->k; i++)
            if (!(fabsf(from[i]) <= largest)) {
                *found = (pack_fault){.found = true,
                                      .row = (uint32_t)(unit * QUANT_PANEL_ROWS + row),
                                      .column = i,
                                      .value = from[i]};
                return false;
            }
    }
    return true;
}

/* A matrix in a type that is searched for. Its error is measured on some units only, because what
 * it is compared with costs as much as the feedback. */
static void round_unit(const batch *b, size_t i, size_t rows, float *numbers, pack_fault *found) {
    const pack_item *item = b->item;
    float *scratch = numbers + QUANT_PANEL_ROWS * item->k;
    double error = 0;
    feedback_encode_panel(item->type, numbers, rows, item->k, b->factor,
                          b->effort == PACK_EFFORT_NONE, scratch, b->out + i * b->unit_bytes,
                          &error);
    if (!isfinite(error))
        *found = (pack_fault){.found = true, .moments = true};
    if ((b->first_unit + i) % MEASURED_UNITS != 0 || b->effort == PACK_EFFORT_NONE)
        return;
    b->errors[i] = error;
    b->energies[i] = feedback_energy(item->type, numbers, rows, item->k, b->factor, scratch);
}

static void encode_unit(const pack_item *item, size_t unit, size_t rows, const float *numbers,
                        size_t unit_bytes, uint8_t *out) {
    if (item->repacked) {
        weight_repack_panel(&item->from, unit, item->type, out);
    } else if (item->copied) {
        size_t bytes = unit_bytes;
        if (item->layout == QUANT_LAYOUT_ROWS)
            bytes = unit_bytes / QUANT_PANEL_ROWS * rows;
        memcpy(out, item->from.data + unit * unit_bytes, bytes);
    } else if (item->layout == QUANT_LAYOUT_PANELS) {
        weight_encode_panel(item->type, numbers, rows, item->k, out);
    } else {
        for (size_t row = 0; row < rows; row++)
            quant_encode(item->type, numbers + row * item->k, item->k,
                         out + row * (unit_bytes / QUANT_PANEL_ROWS));
    }
}

static void convert_share(void *context, uint32_t worker, uint32_t workers) {
    batch *b = context;
    float *numbers = b->scratch + worker * b->scratch_floats;
    float largest = b->item->copied || b->item->repacked ? FLT_MAX : weight_largest(b->item->type);
    size_t begin, end;
    team_share(b->units, worker, workers, &begin, &end);
    for (size_t i = begin; i < end && !b->faults[worker].found; i++) {
        size_t unit = b->first_unit + i;
        size_t rows = pack_unit_rows(b->item, unit);
        b->errors[i] = b->energies[i] = 0;
        pack_decode_unit(b->item, unit, rows, numbers);
        if (b->item->change != NULL)
            b->item->change->apply(b->item->change->context, b->item->name,
                                   (uint32_t)(unit * QUANT_PANEL_ROWS), (uint32_t)rows, b->item->k,
                                   numbers, numbers + (size_t)QUANT_PANEL_ROWS * b->item->k);
        if (!pack_check_unit(b->item, largest, unit, rows, numbers, &b->faults[worker]))
            return;
        if (b->item->layout == QUANT_LAYOUT_PANELS && feedback_known(b->item->type) &&
            !b->item->copied && !b->item->repacked)
            round_unit(b, i, rows, numbers, &b->faults[worker]);
        else
            encode_unit(b->item, unit, rows, numbers, b->unit_bytes, b->out + i * b->unit_bytes);
    }
}

avo_status pack_report_fault(const pack_item *item, quant_type type, const char *name,
                             const pack_options *options, const pack_fault *found,
                             avo_error *error) {
    if (found->moments)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: second moments are too large to round %s to %s",
                           options->calibration, item->name, quant_name(type));
    if (isfinite(found->value))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor %s: row %u, column %u is %g, too large for %s; use another "
                           "type (bf16, f32)",
                           name, item->name, found->row, found->column, (double)found->value,
                           quant_name(type));
    return status_fail(error, AVO_ERROR_FORMAT,
                       "%s: tensor %s: row %u, column %u is %g; the model is damaged", name,
                       item->name, found->row, found->column, (double)found->value);
}

/* The source's bytes of the units are not needed again. Columns are needed to the end. */
static void forget_units(const pack_item *item, size_t first, size_t units) {
    size_t rows = size_min(units * QUANT_PANEL_ROWS, item->rows - first * QUANT_PANEL_ROWS);
    uint64_t bytes;
    if (item->forget.size == 0)
        return;
    if (item->from.layout == QUANT_LAYOUT_ROWS && quant_run_bytes(item->from.type, item->k, &bytes))
        file_map_forget(item->from.data + first * QUANT_PANEL_ROWS * bytes, rows * (size_t)bytes);
    if (item->from.layout == QUANT_LAYOUT_PANELS &&
        weight_panel_bytes(item->from.type, item->k, &bytes))
        file_map_forget(item->from.data + first * bytes, units * (size_t)bytes);
}

static size_t item_unit_bytes(const pack_item *item) {
    uint64_t bytes = 0;
    if (item->layout == QUANT_LAYOUT_PANELS)
        return weight_panel_bytes(item->type, item->k, &bytes) ? (size_t)bytes : 0;
    return quant_run_bytes(item->type, item->k, &bytes) ? (size_t)bytes * QUANT_PANEL_ROWS : 0;
}

typedef struct converter {
    pack_list *list;
    rounding rounding;
    const char *name;
    const pack_options *options;
    const pack_sink *sink;
    team *team;
    batch batch;
    size_t out_bytes;
    uint64_t done, total;
    avo_error *error;
} converter;

static void add_errors(converter *c, pack_item *item) {
    const batch *b = &c->batch;
    for (size_t i = 0; i < b->units; i++) {
        item->error += b->errors[i];
        item->energy += b->energies[i];
    }
}

static avo_status convert_item(converter *c, pack_item *item) {
    batch *b = &c->batch;
    b->item = item;
    b->effort = item->from.data == NULL ? PACK_EFFORT_NONE : c->options->effort;
    b->factor = NULL;
    if (item->layout == QUANT_LAYOUT_PANELS && !item->copied && !item->repacked &&
        b->effort == PACK_EFFORT_FEEDBACK)
        AVO_TRY(rounding_factor(&c->rounding, item, item->type, c->team, &b->factor, c->error));
    b->unit_bytes = item_unit_bytes(item);
    size_t units = pack_units(item);
    /* The source's numbers may be wider than what they become: they count as f32. */
    size_t source_bytes = (size_t)item->k * QUANT_PANEL_ROWS * sizeof(float);
    size_t most = size_min(c->out_bytes / b->unit_bytes, 1 + BATCH_BYTES / source_bytes);
    for (size_t first = 0; first < units; first += b->units) {
        b->first_unit = first;
        b->units = size_min(size_min(units - first, most), BATCH_UNITS);
        memset(b->faults, 0, team_size(c->team) * sizeof(pack_fault));
        team_each(c->team, convert_share, b);
        for (uint32_t worker = 0; worker < team_size(c->team); worker++)
            if (b->faults[worker].found) /* shares ascend: this is the first one */
                return pack_report_fault(item, item->type, c->name, c->options, &b->faults[worker],
                                         c->error);
        add_errors(c, item);
        size_t bytes = b->units * b->unit_bytes;
        if (item->layout == QUANT_LAYOUT_ROWS) {
            size_t rows =
                size_min(b->units * QUANT_PANEL_ROWS, item->rows - first * QUANT_PANEL_ROWS);
            bytes = b->unit_bytes / QUANT_PANEL_ROWS * rows;
        }
        AVO_TRY(c->sink->append(c->sink->context, item, b->out, bytes, c->error));
        forget_units(item, first, b->units);
        c->done += bytes;
        if (c->options->progress != NULL &&
            !c->options->progress(c->options->progress_context, "packing", c->done, c->total))
            return status_fail(c->error, AVO_ERROR_CANCELLED, "%s: packing was cancelled", c->name);
    }
    if (item->forget.size > 0)
        file_map_forget(item->forget.data, item->forget.size);
    return AVO_OK;
}

/* Buffers for the largest unit and at most BATCH_BYTES beyond. */
static void size_buffers(converter *c) {
    for (uint32_t i = 0; i < c->list->count; i++) {
        const pack_item *item = &c->list->items[i];
        size_t floats = (size_t)item->k * size_min(item->rows, QUANT_PANEL_ROWS);
        if (!item->vector)
            floats = (size_t)item->k * QUANT_PANEL_ROWS +
                     size_max(feedback_scratch_floats(item->k),
                              item->change != NULL ? adapter_merge_floats(item->k) : 0);
        c->batch.scratch_floats = size_max(c->batch.scratch_floats, floats);
        size_t unit = item_unit_bytes(item);
        c->out_bytes = size_max(c->out_bytes, unit);
        c->total += unit * (((uint64_t)item->rows + QUANT_PANEL_ROWS - 1) / QUANT_PANEL_ROWS);
    }
    c->out_bytes = size_max(c->out_bytes, (size_t)size_min((size_t)c->total, BATCH_BYTES));
    c->batch.scratch_floats = (c->batch.scratch_floats + 15) / 16 * 16;
}

avo_status pack_convert(pack_list *list, const char *name, const pack_options *options,
                        const pack_sink *sink, avo_error *error) {
    converter c = {.list = list, .name = name, .options = options, .sink = sink, .error = error};
    const avo_allocator *allocator = options->allocator;
    uint32_t threads = options->threads != 0 ? options->threads : cpu_usable_threads();
    threads = threads < TEAM_THREADS_MAX ? threads : TEAM_THREADS_MAX;
    size_buffers(&c);
    size_t scratch_bytes = threads * c.batch.scratch_floats * sizeof(float);
    c.batch.out = allocator_take(allocator, c.out_bytes);
    c.batch.scratch = allocator_take(allocator, scratch_bytes);
    c.batch.faults = allocator_take_array(allocator, threads, sizeof(pack_fault));
    c.batch.errors = allocator_take_array(allocator, 2 * BATCH_UNITS, sizeof(double));
    avo_status status = AVO_OK;
    if (c.batch.out == NULL || c.batch.scratch == NULL || c.batch.faults == NULL ||
        c.batch.errors == NULL)
        status = status_no_memory(error, "conversion buffers", c.out_bytes + scratch_bytes);
    else
        c.batch.energies = c.batch.errors + BATCH_UNITS;
    AVO_THEN(status, rounding_open(&c.rounding, options->calibration, list, error));
    AVO_THEN(status, team_open(allocator, threads, &c.team, error));
    for (uint32_t i = 0; i < list->count && status == AVO_OK; i++)
        status = convert_item(&c, &list->items[i]);
    team_close(c.team);
    rounding_close(&c.rounding);
    allocator_give(allocator, c.batch.errors, 2 * BATCH_UNITS * sizeof(double));
    allocator_give(allocator, c.batch.out, c.out_bytes);
    allocator_give(allocator, c.batch.scratch, scratch_bytes);
    allocator_give(allocator, c.batch.faults, threads * sizeof(pack_fault));
    return status;
}
