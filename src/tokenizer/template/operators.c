/* Arithmetic, comparisons and slices, as Python has them. Integers have 64 bits: more is refused.
 */
#include "base/checked.h"
#include "tokenizer/template/render_int.h"

#include <math.h>
#include <string.h>

static avo_status too_large(jinja_render *render) {
    return jinja_unsupported(render, "an integer of more than 64 bits");
}

static const char *operator_text(int operation, char text[3]) {
    text[0] = (char)(operation > 0xFF ? operation >> 8 : operation);
    text[1] = (char)(operation > 0xFF ? operation & 0xFF : 0);
    text[2] = '\0';
    return text;
}

static avo_status wrong_types(jinja_render *render, int operation, jinja_value left,
                              jinja_value right) {
    char text[3];
    return jinja_fail(render, "'%s' does not work on %s and %s", operator_text(operation, text),
                      jinja_type_name(left), jinja_type_name(right));
}

static avo_status integer_power(jinja_render *render, int64_t base, int64_t exponent,
                                jinja_value *out) {
    if (exponent < 0) {
        if (base == 0)
            return jinja_fail(render, "0 cannot be raised to a negative power");
        *out = jinja_number(pow((double)base, (double)exponent));
        return AVO_OK;
    }
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return too_large(render);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
            return too_large(render);
    }
    *out = jinja_integer(result);
    return AVO_OK;
}

static avo_status integer_division(jinja_render *render, int operation, int64_t left, int64_t right,
                                   jinja_value *out) {
    if (right == 0)
        return jinja_fail(render, "division by zero");
    if (operation == '/') {
        *out = jinja_number((double)left / (double)right);
        return AVO_OK;
    }
    if (right == -1) { /* the one quotient that may not fit */
        int64_t quotient;
        if (__builtin_sub_overflow((int64_t)0, left, &quotient))
            return too_large(render);
        *out = jinja_integer(operation == '%' ? 0 : quotient);
        return AVO_OK;
    }
    int64_t quotient = left / right;
    int64_t rest = left % right;
    if (rest != 0 && (rest < 0) != (right < 0)) {
        quotient--;
        rest += right;
    }
    *out = jinja_integer(operation == '%' ? rest : quotient);
    return AVO_OK;
}

static avo_status integer_math(jinja_render *render, int operation, int64_t left, int64_t right,
                               jinja_value *out) {
    int64_t result = 0;
    bool overflow = false;
    switch (operation) {
    case '+':
        overflow = __builtin_add_overflow(left, right, &result);
        break;
    case '-':
        overflow = __builtin_sub_overflow(left, right, &result);
        break;
    case '*':
        overflow = __builtin_mul_overflow(left, right, &result);
        break;
    case OPERATOR('*', '*'):
        return integer_power(render, left, right, out);
    default:
        return integer_division(render, operation, left, right, out);
    }
    if (overflow)
        return too_large(render);
    *out = jinja_integer(result);
    return AVO_OK;
}

static avo_status float_power(jinja_render *render, double left, double right, jinja_value *out) {
    if (left == 0 && right < 0)
        return jinja_fail(render, "0 cannot be raised to a negative power");
    double result = pow(left, right);
    if (isnan(result) && !isnan(left) && !isnan(right))
        return jinja_unsupported(render, "a complex number");
    if (isinf(result) && isfinite(left) && isfinite(right))
        return jinja_fail(render, "number too large");
    *out = jinja_number(result);
    return AVO_OK;
}

static double float_modulo(double left, double right) {
    double rest = fmod(left, right);
    if (rest != 0)
        return (right < 0) != (rest < 0) ? rest + right : rest;
    return copysign(0.0, right);
}

/* Python's float floor division: from the remainder, so that both agree. */
static double float_floor(double left, double right) {
    double quotient = (left - float_modulo(left, right)) / right;
    if (quotient == 0)
        return copysign(0.0, left / right);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static avo_status float_math(jinja_render *render, int operation, double left, double right,
                             jinja_value *out) {
    switch (operation) {
    case '+':
        *out = jinja_number(left + right);
        return AVO_OK;
    case '-':
        *out = jinja_number(left - right);
        return AVO_OK;
    case '*':
        *out = jinja_number(left * right);
        return AVO_OK;
    case OPERATOR('*', '*'):
        return float_power(render, left, right, out);
    default:
        break;
    }
    if (right == 0)
        return jinja_fail(render, "division by zero");
    *out = jinja_number(operation == '/'   ? left / right
                        : operation == '%' ? float_modulo(left, right)
                                           : float_floor(left, right));
    return AVO_OK;
}

static avo_status add_texts(jinja_render *render, jinja_value left, jinja_value right,
                            jinja_value *out) {
    bool markup = left.text->markup || right.text->markup;
    if (!markup)
        return jinja_text_join(render, left.text, right.text, out);
    if (!left.text->markup)
        AVO_TRY(jinja_text_escape(render, left.text, &left));
    if (!right.text->markup)
        AVO_TRY(jinja_text_escape(render, right.text, &right));
    AVO_TRY(jinja_text_join(render, left.text, right.text, out));
    jinja_text *joined;
    AVO_TRY(jinja_take(render, 1, sizeof(*joined), &joined));
    *joined = *out->text;
    joined->markup = true;
    *out = jinja_string(joined);
    return AVO_OK;
}

static avo_status add_sequences(jinja_render *render, jinja_value left, jinja_value right,
                                jinja_value *out) {
    size_t count = left.sequence->count + right.sequence->count;
    jinja_sequence *sum;
    AVO_TRY(jinja_charge(render, count / 8));
    AVO_TRY(jinja_sequence_new(render, count, &sum));
    if (left.sequence->count > 0)
        memcpy(sum->items, left.sequence->items, left.sequence->count * sizeof(jinja_value));
    if (right.sequence->count > 0)
        memcpy(sum->items + left.sequence->count, right.sequence->items,
               right.sequence->count * sizeof(jinja_value));
    sum->count = count;
    *out = (jinja_value){.kind = left.kind, .sequence = sum};
    return AVO_OK;
}

static avo_status repeat(jinja_render *render, jinja_value value, int64_t times, jinja_value *out) {
    size_t count = times < 0 ? 0 : (size_t)times;
    if (value.kind == JINJA_STRING) {
        jinja_builder builder;
        jinja_builder_init(&builder, render);
        size_t total;
        if (!size_multiply(value.text->size, count, &total) || total > TEMPLATE_OUTPUT_MAX)
            return jinja_limit(render, "the text is longer than allowed");
        for (size_t i = 0; i < count && value.text->size > 0; i++) {
            AVO_TRY(jinja_charge(render, 1));
            AVO_TRY(jinja_builder_text(&builder, value.text));
        }
        AVO_TRY(jinja_builder_finish(&builder, out));
        ((jinja_text *)out->text)->markup = value.text->markup; /* just made */
        return AVO_OK;
    }
    size_t total;
    if (!size_multiply(value.sequence->count, count, &total) || total > TEMPLATE_STEPS_MAX)
        return jinja_limit(render, "the list is longer than allowed");
    AVO_TRY(jinja_charge(render, total));
    jinja_sequence *result;
    AVO_TRY(jinja_sequence_new(render, total, &result));
    for (size_t i = 0; i < total; i++)
        result->items[i] = value.sequence->items[i % value.sequence->count];
    result->count = total;
    *out = (jinja_value){.kind = value.kind, .sequence = result};
    return AVO_OK;
}

static bool can_repeat(jinja_value value) {
    return value.kind == JINJA_STRING || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE;
}

avo_status jinja_math(jinja_render *render, int operation, jinja_value left, jinja_value right,
                      jinja_value *out) {
    if (jinja_is_number(left) && jinja_is_number(right)) {
        bool trusted = left.trusted && right.trusted;
        if (jinja_is_integer(left) && jinja_is_integer(right))
            AVO_TRY(integer_math(render, operation, jinja_integer_of(left), jinja_integer_of(right),
                                 out));
        else
            AVO_TRY(
                float_math(render, operation, jinja_number_of(left), jinja_number_of(right), out));
        out->trusted = trusted;
        return AVO_OK;
    }
    if (operation == '+' && left.kind == right.kind && left.kind == JINJA_STRING)
        return add_texts(render, left, right, out);
    if (operation == '+' && left.kind == right.kind &&
        (left.kind == JINJA_LIST || left.kind == JINJA_TUPLE))
        return add_sequences(render, left, right, out);
    if (operation == '*' && can_repeat(left) && jinja_is_integer(right))
        return repeat(render, left, jinja_integer_of(right), out);
    if (operation == '*' && can_repeat(right) && jinja_is_integer(left))
        return repeat(render, right, jinja_integer_of(left), out);
    if (operation == '%' && left.kind == JINJA_STRING) {
        if (left.text->markup)
            return jinja_unsupported(render, "'%' on escaped text");
        return jinja_format_percent(render, left.text, right, out);
    }
    return wrong_types(render, operation, left, right);
}

static avo_status undefined_operand(jinja_render *render, jinja_value left, jinja_value right) {
    jinja_value undefined = left.kind == JINJA_UNDEFINED ? left : right;
    return jinja_fail(render, "an undefined value ('%.*s') cannot be ordered",
                      TEXT_ARGUMENT(undefined.undefined->name));
}

avo_status jinja_compare(jinja_render *render, int operation, jinja_value left, jinja_value right,
                         bool *result) {
    bool ordered;
    int order;
    switch (operation) {
    case OPERATOR('=', '='):
        return jinja_equal(render, left, right, result);
    case OPERATOR('!', '='):
        AVO_TRY(jinja_equal(render, left, right, result));
        *result = !*result;
        return AVO_OK;
    case OPERATOR_IN:
        return jinja_contains(render, right, left, result);
    case OPERATOR_NOT_IN:
        AVO_TRY(jinja_contains(render, right, left, result));
        *result = !*result;
        return AVO_OK;
    default:
        break;
    }
    if (left.kind == JINJA_UNDEFINED || right.kind == JINJA_UNDEFINED)
        return undefined_operand(render, left, right);
    AVO_TRY(jinja_order(render, left, right, &order, &ordered));
    bool result_of_order = operation == '<'                  ? order < 0
                           : operation == '>'                ? order > 0
                           : operation == OPERATOR('<', '=') ? order <= 0
                                                             : order >= 0;
    *result = ordered && result_of_order;
    return AVO_OK;
}

/* ---- Slices ---- */

typedef struct slice_bounds {
    int64_t start, stop, step;
    size_t count;
} slice_bounds;

static avo_status bound(jinja_render *render, jinja_value value, int64_t length, int64_t low,
                        int64_t high, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (value.kind == JINJA_NONE)
        return AVO_OK;
    if (!jinja_is_integer(value))
        return jinja_fail(render, "a slice needs integers, not %s", jinja_type_name(value));
    int64_t at = jinja_integer_of(value);
    if (at < 0)
        at = at < -length - 1 ? -1 : at + length;
    *out = at < low ? low : at > high ? high : at;
    return AVO_OK;
}

static avo_status bounds_of(jinja_render *render, size_t count, jinja_value start, jinja_value stop,
                            jinja_value step, slice_bounds *out) {
    int64_t length = (int64_t)count;
    AVO_TRY(jinja_want_integer(render, step, 1, &out->step));
    if (out->step == 0)
        return jinja_fail(render, "a slice's step cannot be 0");
    bool back = out->step < 0;
    int64_t low = back ? -1 : 0;
    int64_t high = back ? length - 1 : length;
    AVO_TRY(bound(render, start, length, low, high, back ? high : low, &out->start));
    AVO_TRY(bound(render, stop, length, low, high, back ? low : high, &out->stop));
    /* Unsigned distances: a step of −2^63 has no positive counterpart. */
    uint64_t stride = back ? 0 - (uint64_t)out->step : (uint64_t)out->step;
    int64_t distance = back ? out->start - out->stop : out->stop - out->start;
    out->count = distance <= 0 ? 0 : (size_t)(((uint64_t)distance - 1) / stride + 1);
    return AVO_OK;
}

static avo_status slice_text(jinja_render *render, const jinja_text *text, slice_bounds bounds,
                             jinja_value *out) {
    size_t begin;
    size_t end;
    if (bounds.count == 0)
        return jinja_text_part(render, text, 0, 0, out);
    if (bounds.step == 1) {
        AVO_TRY(jinja_text_offset(render, text, (size_t)bounds.start, &begin));
        AVO_TRY(jinja_text_offset(render, text, (size_t)bounds.start + bounds.count, &end));
        return jinja_text_part(render, text, begin, end, out);
    }
    size_t *offsets;
    AVO_TRY(jinja_charge(render, text->length));
    AVO_TRY(jinja_take(render, text->length + 1, sizeof(*offsets), &offsets));
    for (size_t i = 0; i < text->length; i++)
        offsets[i + 1] = offsets[i] + jinja_character_bytes(text, offsets[i]);
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    for (size_t i = 0; i < bounds.count; i++) {
        size_t at = (size_t)(bounds.start + (int64_t)i * bounds.step);
        AVO_TRY(jinja_builder_part(&builder, text, offsets[at], offsets[at + 1]));
    }
    return jinja_builder_finish(&builder, out);
}

static avo_status slice_range(jinja_render *render, const jinja_range *from, slice_bounds bounds,
                              jinja_value *out) {
    jinja_range *range;
    AVO_TRY(jinja_take(render, 1, sizeof(*range), &range));
    *range = (jinja_range){.start = from->start + bounds.start * from->step,
                           .stop = from->start + bounds.stop * from->step,
                           .count = bounds.count};
    if (__builtin_mul_overflow(from->step, bounds.step, &range->step))
        return too_large(render);
    *out = (jinja_value){.kind = JINJA_RANGE, .range = range};
    return AVO_OK;
}

avo_status jinja_slice(jinja_render *render, jinja_value object, jinja_value start,
                       jinja_value stop, jinja_value step, jinja_value *out) {
    size_t length;
    slice_bounds bounds;
    if (object.kind != JINJA_STRING && object.kind != JINJA_LIST && object.kind != JINJA_TUPLE &&
        object.kind != JINJA_RANGE)
        return jinja_fail(render, "%s cannot be sliced", jinja_type_name(object));
    AVO_TRY(jinja_length(render, object, &length));
    AVO_TRY(bounds_of(render, length, start, stop, step, &bounds));
    if (object.kind == JINJA_STRING)
        return slice_text(render, object.text, bounds, out);
    if (object.kind == JINJA_RANGE)
        return slice_range(render, object.range, bounds, out);
    jinja_sequence *result;
    AVO_TRY(jinja_charge(render, bounds.count / 8));
    AVO_TRY(jinja_sequence_new(render, bounds.count, &result));
    for (size_t i = 0; i < bounds.count; i++)
        result->items[i] =
            object.sequence->items[(size_t)(bounds.start + (int64_t)i * bounds.step)];
    result->count = bounds.count;
    *out = (jinja_value){.kind = object.kind, .sequence = result};
    return AVO_OK;
}
