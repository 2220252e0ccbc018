/* Unicode normal forms. Most text is in form already: it is copied, and only the neighbourhood of
 * characters that may change goes through utf8proc. Marks are put in order by a counting sort of
 * our own, because utf8proc's is quadratic in their number. */
#include "tokenizer/normalise_int.h"

#include "base/utf8.h"
#include "tokenizer/unicode_int.h"

#include <utf8proc.h>

#define EXPANSION_MAX 32 /* code points of one decomposed character; Unicode's longest has 18 */

typedef struct run {
    int32_t *points; /* the second half of the memory is for sorting */
    size_t count;
    size_t capacity;
} run;

static int combining_class(int32_t point) {
    return utf8proc_get_property(point)->combining_class;
}

static bool run_room(normaliser *normaliser, run *run, size_t capacity) {
    if (capacity > normaliser->point_capacity) {
        size_t larger = capacity + capacity / 2 + 256;
        int32_t *points = allocator_take(normaliser->allocator, larger * 2 * sizeof(int32_t));
        if (points == NULL)
            return false;
        if (run->count > 0)
            memcpy(points, run->points, run->count * sizeof(int32_t));
        allocator_give(normaliser->allocator, normaliser->points,
                       normaliser->point_capacity * 2 * sizeof(int32_t));
        normaliser->points = points;
        normaliser->point_capacity = larger;
    }
    run->points = normaliser->points;
    run->capacity = normaliser->point_capacity;
    return true;
}

/* Stable, by combining class, of marks only. */
static void sort_marks(int32_t *points, size_t count, int32_t *spare) {
    size_t begins[257] = {0};
    bool sorted = true;
    for (size_t i = 0; i < count; i++) {
        begins[combining_class(points[i]) + 1]++;
        sorted = sorted && (i == 0 || combining_class(points[i - 1]) <= combining_class(points[i]));
    }
    if (sorted)
        return;
    for (size_t i = 1; i < 257; i++)
        begins[i] += begins[i - 1];
    for (size_t i = 0; i < count; i++)
        spare[begins[combining_class(points[i])]++] = points[i];
    memcpy(points, spare, count * sizeof(int32_t));
}

static void order_marks(run *run) {
    for (size_t at = 0; at < run->count;) {
        if (combining_class(run->points[at]) == 0) {
            at++;
            continue;
        }
        size_t begin = at;
        while (at < run->count && combining_class(run->points[at]) != 0)
            at++;
        if (at - begin > 1)
            sort_marks(run->points + begin, at - begin, run->points + run->capacity);
    }
}

static avo_status form_run(normaliser *normaliser, step_kind form, text_view text, buffer *out) {
    run run = {0};
    bool compatible = form == STEP_NFKC || form == STEP_NFKD;
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (compatible)
        options |= UTF8PROC_COMPAT;
    int boundary = 0;
    for (size_t at = 0; at < text.size;) {
        uint32_t code_point;
        at += unicode_take(text.data + at, &code_point);
        if (!run_room(normaliser, &run, run.count + EXPANSION_MAX))
            return AVO_ERROR_MEMORY;
        utf8proc_ssize_t made = utf8proc_decompose_char((int32_t)code_point, run.points + run.count,
                                                        EXPANSION_MAX, options, &boundary);
        if (made < 0 || made > EXPANSION_MAX)
            return AVO_ERROR_ARGUMENT;
        run.count += (size_t)made;
    }
    order_marks(&run);
    utf8proc_ssize_t left = (utf8proc_ssize_t)run.count;
    if (form == STEP_NFC || form == STEP_NFKC)
        left = utf8proc_normalize_utf32(run.points, left, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        char bytes[4];
        AVO_TRY(buffer_append(out, bytes, utf8_encode((uint32_t)run.points[i], bytes)));
    }
    return left < 0 ? AVO_ERROR_ARGUMENT : AVO_OK;
}

static inline bool is_active(step_kind form, uint32_t class, uint32_t code_point) {
    if (form == STEP_NFC)
        return (class & UNICODE_NFC_ACTIVE) != 0;
    return code_point >= 0x80 && !(class & UNICODE_OPAQUE);
}

avo_status normalise_form(normaliser *normaliser, step_kind form, text_view text, buffer *out) {
    size_t copied = 0;       /* everything before is in `out` */
    size_t anchor = 0;       /* the last quiet character, which a mark behind it may change */
    bool has_anchor = false; /* … unless it is none */
    for (size_t at = 0; at < text.size;) {
        uint8_t byte = (uint8_t)text.data[at];
        if (byte < 0x80) {
            anchor = at++;
            has_anchor = true;
            continue;
        }
        uint32_t code_point;
        uint32_t length = unicode_take(text.data + at, &code_point);
        uint32_t class = unicode_class(code_point);
        if (!is_active(form, class, code_point)) {
            anchor = at;
            has_anchor = !(class & UNICODE_OPAQUE);
            at += length;
            continue;
        }
        size_t begin = has_anchor ? anchor : at;
        AVO_TRY(buffer_append(out, text.data + copied, begin - copied));
        at += length;
        while (at < text.size) {
            length = unicode_take(text.data + at, &code_point);
            if (!is_active(form, unicode_class(code_point), code_point))
                break;
            at += length;
        }
        AVO_TRY(form_run(normaliser, form, (text_view){text.data + begin, at - begin}, out));
        copied = at;
        has_anchor = false;
    }
    return buffer_append(out, text.data + copied, text.size - copied);
}
