/* "…" % values and "…".format(…): Python's two ways to fill in a text. Literal parts keep the
 * origin of the format, values keep their own. */
#include "base/checked.h"
#include "base/number.h"
#include "tokenizer/template/render_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH_MAX     1000000
#define PRECISION_MAX 300

/* What a directive or format specification asks for. */
typedef struct specification {
    const jinja_text *fill; /* NULL: a blank */
    char align;             /* '<', '>', '^', '=', 0: by type */
    char sign;              /* '+', ' ', or 0 */
    bool alternate;
    bool zero;
    char grouping; /* ',' or '_', or 0 */
    int64_t width;
    int64_t precision; /* −1: none */
    char type;         /* 0: none */
} specification;

/* Text with its origin, padded to the width. `sign_bytes` at the front stay there for '='. */
static avo_status append_padded(jinja_builder *builder, const jinja_text *text, size_t sign_bytes,
                                const specification *spec, char default_align) {
    int64_t missing = spec->width - (int64_t)text->length;
    if (spec->width > WIDTH_MAX)
        return jinja_limit(builder->render, "the format is wider than allowed");
    if (missing <= 0)
        return jinja_builder_text(builder, text);
    char align = spec->align != 0 ? spec->align : default_align;
    const char *fill = spec->fill == NULL ? (spec->zero ? "0" : " ") : spec->fill->data;
    size_t fill_bytes = spec->fill == NULL ? 1 : spec->fill->size;
    size_t left = align == '<' ? 0 : align == '^' ? (size_t)missing / 2 : (size_t)missing;
    if (align != '=')
        sign_bytes = 0;
    AVO_TRY(jinja_builder_part(builder, text, 0, sign_bytes));
    AVO_TRY(jinja_builder_fill(builder, fill, fill_bytes, left, false));
    AVO_TRY(jinja_builder_part(builder, text, sign_bytes, text->size));
    return jinja_builder_fill(builder, fill, fill_bytes, (size_t)missing - left, false);
}

/* Digits in groups of three from the right, up to the point or exponent. */
static size_t group_digits(char *text, size_t size, size_t capacity, char grouping) {
    size_t begin = text[0] == '-' || text[0] == '+' || text[0] == ' ' ? 1 : 0;
    size_t end = begin;
    while (end < size && isdigit((unsigned char)text[end]))
        end++;
    for (size_t at = end; at > begin + 3 && size + 1 < capacity;) {
        at -= 3;
        memmove(text + at + 1, text + at, size - at);
        text[at] = grouping;
        size++;
    }
    return size;
}

static avo_status append_number(jinja_builder *builder, char *text, size_t size, size_t capacity,
                                bool trusted, const specification *spec) {
    if (spec->grouping != 0)
        size = group_digits(text, size, capacity, spec->grouping);
    size_t sign = size > 0 && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    if (spec->alternate && size > sign + 1 && text[sign] == '0' &&
        isalpha((unsigned char)text[sign + 1]))
        sign += 2;
    jinja_text number = {.data = text,
                         .size = size,
                         .length = size,
                         .origin = trusted ? JINJA_TRUSTED : JINJA_UNTRUSTED};
    return append_padded(builder, &number, sign, spec, spec->zero ? '=' : '>');
}

static size_t sign_text(char *text, bool negative, char sign) {
    if (!negative && sign == 0)
        return 0;
    text[0] = negative ? '-' : sign;
    return 1;
}

static size_t binary_digits(char *text, size_t capacity, uint64_t magnitude) {
    size_t count = 1;
    while (count < 64 && (magnitude >> count) != 0)
        count++;
    for (size_t i = 0; i < count && i < capacity; i++)
        text[i] = (char)('0' + (magnitude >> (count - 1 - i) & 1));
    return count;
}

static avo_status format_integer(jinja_builder *builder, int64_t integer, bool trusted,
                                 const specification *spec) {
    char text[160];
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    size_t size = sign_text(text, integer < 0, spec->sign);
    char type = spec->type;
    if (spec->alternate && (type == 'x' || type == 'X' || type == 'o' || type == 'b')) {
        text[size++] = '0';
        text[size++] = type;
    }
    char digits[80];
    size_t count;
    if (type == 'x')
        count = (size_t)snprintf(digits, sizeof(digits), "%llx", (unsigned long long)magnitude);
    else if (type == 'X')
        count = (size_t)snprintf(digits, sizeof(digits), "%llX", (unsigned long long)magnitude);
    else if (type == 'o')
        count = (size_t)snprintf(digits, sizeof(digits), "%llo", (unsigned long long)magnitude);
    else if (type == 'b')
        count = binary_digits(digits, sizeof(digits), magnitude);
    else
        count = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)magnitude);
    memcpy(text + size, digits, count);
    return append_number(builder, text, size + count, sizeof(text), trusted, spec);
}

static avo_status format_float(jinja_builder *builder, double number, bool trusted,
                               const specification *spec) {
    char text[2048];
    char type = spec->type == 0 ? 'r' : spec->type;
    int64_t precision = spec->precision < 0 ? 6 : spec->precision;
    if (precision > PRECISION_MAX)
        return jinja_unsupported(builder->render, "a precision of more than 300 digits");
    bool percent = type == '%';
    double magnitude = fabs(number) * (percent ? 100 : 1);
    size_t size = sign_text(text, signbit(number) && !isnan(number), spec->sign);
    char *at = text + size;
    size_t room = sizeof(text) - size;
    if (!isfinite(number)) {
        bool upper = type == 'F' || type == 'E' || type == 'G';
        size += (size_t)snprintf(at, room, "%s%s",
                                 isnan(number) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"),
                                 percent ? "%" : "");
    } else if (type == 'r' && spec->precision < 0) {
        size += jinja_number_text(magnitude, at);
    } else if (type == 'e' || type == 'E' || type == 'g' || type == 'G') {
        if ((type | 0x20) == 'g' && precision == 0)
            precision = 1;
        size += (size_t)number_to_text(at, room, type, (int)precision, magnitude);
    } else if (type == 'r') {
        return jinja_unsupported(builder->render, "a precision without a type in format()");
    } else {
        size += (size_t)number_to_text(at, room, 'f', (int)precision, magnitude);
        if (percent)
            text[size++] = '%';
    }
    return append_number(builder, text, size, sizeof(text), trusted, spec);
}

/* A text, cut to the precision. */
static avo_status format_text(jinja_builder *builder, const jinja_text *text,
                              const specification *spec, char default_align) {
    jinja_value cut = jinja_string(text);
    size_t end = text->size;
    if (spec->precision >= 0 && spec->precision < (int64_t)text->length) {
        AVO_TRY(jinja_text_offset(builder->render, text, (size_t)spec->precision, &end));
        AVO_TRY(jinja_text_part(builder->render, text, 0, end, &cut));
    }
    return append_padded(builder, cut.text, 0, spec, default_align);
}

static avo_status represent(jinja_render *render, jinja_value value, jinja_value *out) {
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    AVO_TRY(jinja_represent(&builder, value));
    return jinja_builder_finish(&builder, out);
}

/* ---- % ---- */

typedef struct percent_format {
    jinja_render *render;
    const jinja_text *format;
    size_t at; /* behind the '%' */
    jinja_value values;
    size_t used; /* of a tuple */
    bool mapped; /* a key was used */
    jinja_builder out;
} percent_format;

static avo_status next_value(percent_format *p, jinja_value *out) {
    bool tuple = p->values.kind == JINJA_TUPLE;
    size_t count = tuple ? p->values.sequence->count : 1;
    if (p->used >= count)
        return jinja_fail(p->render, "not enough values for the format");
    *out = tuple ? p->values.sequence->items[p->used] : p->values;
    p->used++;
    return AVO_OK;
}

/* "(key)" in front of a directive. */
static avo_status take_key(percent_format *p, bool *keyed, jinja_value *out) {
    const jinja_text *format = p->format;
    *keyed = p->at < format->size && format->data[p->at] == '(';
    if (!*keyed)
        return AVO_OK;
    size_t begin = ++p->at;
    int depth = 1;
    for (; p->at < format->size; p->at++) {
        depth += (format->data[p->at] == '(') - (format->data[p->at] == ')');
        if (depth == 0)
            break;
    }
    if (p->at >= format->size)
        return jinja_fail(p->render, "a key in the format is not closed");
    jinja_value key;
    jinja_entry *entry;
    AVO_TRY(jinja_text_part(p->render, format, begin, p->at, &key));
    p->at++;
    if (p->values.kind != JINJA_DICT)
        return jinja_fail(p->render, "the format needs a dict");
    AVO_TRY(jinja_dict_find(p->render, p->values.dict, key, &entry));
    if (entry == NULL)
        return jinja_fail(p->render, "a key of the format is not in the dict");
    p->mapped = true;
    *out = entry->value;
    return AVO_OK;
}

static avo_status take_number(percent_format *p, int64_t *number) {
    const jinja_text *format = p->format;
    if (p->at < format->size && format->data[p->at] == '*') {
        jinja_value value;
        AVO_TRY(next_value(p, &value));
        if (!jinja_is_integer(value))
            return jinja_fail(p->render, "* in a format needs an integer");
        *number = jinja_integer_of(value);
        p->at++;
        return AVO_OK;
    }
    for (*number = 0; p->at < format->size && isdigit((unsigned char)format->data[p->at]); p->at++)
        if (*number <= WIDTH_MAX)
            *number = *number * 10 + (format->data[p->at] - '0');
    return AVO_OK;
}

static avo_status percent_integer(percent_format *p, jinja_value value, specification *spec) {
    double number = value.kind == JINJA_NUMBER ? trunc(value.number) : 0;
    bool decimal = spec->type == 'd' || spec->type == 'i' || spec->type == 'u';
    if (!jinja_is_number(value) || (value.kind == JINJA_NUMBER && !decimal) || isnan(number))
        return jinja_fail(p->render, "%%%c needs an integer, not %s", spec->type,
                          jinja_type_name(value));
    if (fabs(number) >= 9223372036854775808.0)
        return jinja_unsupported(p->render, "an integer of more than 64 bits");
    int64_t integer = value.kind == JINJA_NUMBER ? (int64_t)number : jinja_integer_of(value);
    if (spec->precision >= 0)
        return jinja_unsupported(p->render, "a precision for an integer");
    if (decimal)
        spec->type = 'd';
    return format_integer(&p->out, integer, value.trusted, spec);
}

static avo_status percent_character(percent_format *p, jinja_value value,
                                    const specification *spec) {
    jinja_value text = value;
    if (jinja_is_integer(value)) {
        int64_t code_point = jinja_integer_of(value);
        if (code_point < 0 || code_point > 0x10FFFF ||
            (code_point >= 0xD800 && code_point < 0xE000))
            return jinja_fail(p->render, "%%c: not a character");
        jinja_builder builder;
        jinja_builder_init(&builder, p->render);
        AVO_TRY(jinja_builder_character(&builder, (uint32_t)code_point, value.trusted));
        AVO_TRY(jinja_builder_finish(&builder, &text));
    }
    if (!jinja_is_string(text) || text.text->length != 1)
        return jinja_fail(p->render, "%%c needs one character");
    return format_text(&p->out, text.text, spec, '>');
}

static avo_status percent_value(percent_format *p, jinja_value value, specification *spec) {
    jinja_value text;
    if (spec->align == '<')
        spec->zero = false;
    switch (spec->type) {
    case 's':
        AVO_TRY(jinja_to_text(p->render, value, &text));
        spec->zero = false;
        return format_text(&p->out, text.text, spec, '>');
    case 'r':
        AVO_TRY(represent(p->render, value, &text));
        spec->zero = false;
        return format_text(&p->out, text.text, spec, '>');
    case 'c':
        spec->zero = false;
        return percent_character(p, value, spec);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        return percent_integer(p, value, spec);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jinja_is_number(value))
            return jinja_fail(p->render, "%%%c needs a number, not %s", spec->type,
                              jinja_type_name(value));
        if (spec->alternate)
            return jinja_unsupported(p->render, "'#' for a float");
        return format_float(&p->out, jinja_number_of(value), value.trusted, spec);
    default:
        return jinja_fail(p->render, "unknown format directive %%%c", spec->type);
    }
}

static avo_status percent_directive(percent_format *p) {
    const jinja_text *format = p->format;
    specification spec = {.precision = -1};
    jinja_value value;
    bool keyed;
    AVO_TRY(take_key(p, &keyed, &value));
    for (; p->at < format->size && strchr("-+ #0", format->data[p->at]) != NULL &&
           format->data[p->at] != '\0';
         p->at++) {
        char flag = format->data[p->at];
        spec.align = flag == '-' ? '<' : spec.align;
        spec.sign = flag == '+' ? '+' : flag == ' ' && spec.sign == 0 ? ' ' : spec.sign;
        spec.alternate |= flag == '#';
        spec.zero |= flag == '0';
    }
    AVO_TRY(take_number(p, &spec.width));
    if (spec.width < 0) {
        spec.align = '<';
        spec.width = spec.width < -WIDTH_MAX ? WIDTH_MAX + 1 : -spec.width;
    }
    if (p->at < format->size && format->data[p->at] == '.') {
        p->at++;
        AVO_TRY(take_number(p, &spec.precision));
        spec.precision = spec.precision < 0 ? 0 : spec.precision;
    }
    while (p->at < format->size && strchr("hlL", format->data[p->at]) != NULL &&
           format->data[p->at] != '\0')
        p->at++;
    if (p->at >= format->size)
        return jinja_fail(p->render, "the format ends inside a directive");
    spec.type = format->data[p->at];
    if (spec.type == '%') {
        AVO_TRY(jinja_builder_part(&p->out, format, p->at, p->at + 1));
        p->at++;
        return AVO_OK;
    }
    p->at++;
    if (!keyed)
        AVO_TRY(next_value(p, &value));
    return percent_value(p, value, &spec);
}

avo_status jinja_format_percent(jinja_render *render, const jinja_text *format, jinja_value values,
                                jinja_value *out) {
    percent_format p = {.render = render, .format = format, .values = values};
    jinja_builder_init(&p.out, render);
    while (p.at < format->size) {
        size_t percent = jinja_text_find(format, TEXT_LITERAL("%"), p.at);
        if (percent == SIZE_MAX)
            percent = format->size;
        AVO_TRY(jinja_builder_part(&p.out, format, p.at, percent));
        p.at = percent;
        if (percent == format->size)
            break;
        p.at++;
        AVO_TRY(jinja_charge(render, 1));
        AVO_TRY(percent_directive(&p));
    }
    size_t given = values.kind == JINJA_TUPLE ? values.sequence->count : 1;
    /* What can be looked up by key may stay unused. */
    bool may_stay = p.mapped || values.kind == JINJA_DICT || values.kind == JINJA_LIST ||
                    values.kind == JINJA_RANGE || values.kind == JINJA_UNDEFINED;
    if (p.used < given && !may_stay)
        return jinja_fail(render, "not all values were used by the format");
    return jinja_builder_finish(&p.out, out);
}

/* ---- {} ---- */

typedef struct brace_format {
    jinja_render *render;
    const jinja_text *format;
    const jinja_arguments *arguments;
    size_t automatic; /* the next number of "{}" */
    bool uses_automatic, uses_numbers;
    jinja_builder out;
} brace_format;

static avo_status numbered_argument(brace_format *b, size_t number, jinja_value *out) {
    if (number >= b->arguments->count)
        return jinja_fail(b->render, "format: argument %zu is missing", number);
    *out = b->arguments->items[number];
    return AVO_OK;
}

static avo_status first_argument(brace_format *b, text_view name, jinja_value *out) {
    bool digits = name.size > 0;
    size_t number = 0;
    for (size_t i = 0; i < name.size && digits; i++) {
        digits = isdigit((unsigned char)name.data[i]);
        if (number < SIZE_MAX / 16)
            number = number * 10 + (size_t)(name.data[i] - '0');
    }
    b->uses_automatic |= name.size == 0;
    b->uses_numbers |= digits;
    if (b->uses_automatic && b->uses_numbers)
        return jinja_fail(b->render, "format: {} and {0} cannot be mixed");
    if (name.size == 0)
        return numbered_argument(b, b->automatic++, out);
    if (digits)
        return numbered_argument(b, number, out);
    for (size_t i = 0; i < b->arguments->keyword_count; i++) {
        if (text_equal(b->arguments->keywords[i].name, name)) {
            *out = b->arguments->keywords[i].value;
            return AVO_OK;
        }
    }
    return jinja_fail(b->render, "format: argument '%.*s' is missing", TEXT_ARGUMENT(name));
}

/* name, then .attribute and [key]. */
static avo_status field_value(brace_format *b, size_t begin, size_t end, jinja_value *out) {
    const char *data = b->format->data;
    size_t at = begin;
    while (at < end && data[at] != '.' && data[at] != '[')
        at++;
    AVO_TRY(first_argument(b, (text_view){data + begin, at - begin}, out));
    while (at < end) {
        bool bracket = data[at++] == '[';
        size_t part = at;
        while (at < end && (bracket ? data[at] != ']' : data[at] != '.' && data[at] != '['))
            at++;
        if (at == part || (bracket && at == end))
            return jinja_fail(b->render, "format: invalid field name");
        jinja_value key;
        AVO_TRY(jinja_text_part(b->render, b->format, part, at, &key));
        if (!bracket) {
            AVO_TRY(jinja_get_attribute_text(b->render, *out, key.text, out));
            continue;
        }
        size_t digits = 0;
        int64_t index = 0;
        while (digits < key.text->size && digits < 18 &&
               isdigit((unsigned char)key.text->data[digits]))
            index = index * 10 + (key.text->data[digits++] - '0');
        if (digits == key.text->size)
            key = jinja_integer(index);
        AVO_TRY(jinja_get_item(b->render, *out, key, out));
        at++;
        if (at < end && data[at] != '.' && data[at] != '[')
            return jinja_fail(b->render, "format: invalid field name");
    }
    return AVO_OK;
}

static avo_status parse_specification(brace_format *b, const jinja_text *text,
                                      specification *spec) {
    static const char aligns[] = "<>=^";
    *spec = (specification){.precision = -1};
    size_t at = 0;
    const char *data = text->data;
    size_t size = text->size;
    if (size > 0) {
        size_t first = jinja_character_bytes(text, 0);
        if (first < size && data[first] != '\0' && strchr(aligns, data[first]) != NULL) {
            jinja_value fill;
            AVO_TRY(jinja_text_part(b->render, text, 0, first, &fill));
            spec->fill = fill.text;
            spec->align = data[first];
            at = first + 1;
        } else if (data[0] != '\0' && strchr(aligns, data[0]) != NULL) {
            spec->align = data[0];
            at = 1;
        }
    }
    if (at < size && (data[at] == '+' || data[at] == '-' || data[at] == ' '))
        spec->sign = data[at++] == '-' ? 0 : data[at - 1];
    if (at < size && data[at] == '#') {
        spec->alternate = true;
        at++;
    }
    if (at < size && data[at] == '0') {
        spec->zero = spec->fill == NULL;
        spec->align = spec->align == 0 ? '=' : spec->align;
        at++;
    }
    for (; at < size && isdigit((unsigned char)data[at]); at++)
        if (spec->width <= WIDTH_MAX)
            spec->width = spec->width * 10 + (data[at] - '0');
    if (at < size && (data[at] == ',' || data[at] == '_'))
        spec->grouping = data[at++];
    if (at < size && data[at] == '.') {
        spec->precision = 0;
        size_t digits = ++at;
        for (; at < size && isdigit((unsigned char)data[at]); at++)
            if (spec->precision <= WIDTH_MAX)
                spec->precision = spec->precision * 10 + (data[at] - '0');
        if (at == digits)
            return jinja_fail(b->render, "format: the precision is missing");
    }
    if (at < size)
        spec->type = data[at++];
    return at == size ? AVO_OK : jinja_fail(b->render, "format: invalid format specification");
}

/* Python's format(value, specification). */
static avo_status format_value(brace_format *b, jinja_value value, const jinja_text *text) {
    specification spec;
    if (text->size == 0)
        return jinja_print(&b->out, value);
    AVO_TRY(parse_specification(b, text, &spec));
    if (value.kind == JINJA_STRING) {
        if ((spec.type != 0 && spec.type != 's') || spec.sign != 0 || spec.alternate ||
            spec.grouping != 0 || (spec.align == '=' && !spec.zero))
            return jinja_fail(b->render, "format: invalid format specification for a string");
        if (spec.zero)
            spec.align = spec.align == '=' ? '<' : spec.align;
        return format_text(&b->out, value.text, &spec, '<');
    }
    if (!jinja_is_number(value) || (value.kind == JINJA_BOOLEAN && spec.type == 0))
        return jinja_unsupported(b->render, "a format specification for this value");
    bool whole = jinja_is_integer(value);
    bool integer_type = spec.type == 'd' || spec.type == 'x' || spec.type == 'X' ||
                        spec.type == 'o' || spec.type == 'b';
    bool float_type = spec.type != 0 && strchr("eEfFgG%", spec.type) != NULL;
    if (whole && (spec.type == 0 || integer_type)) {
        if (spec.precision >= 0)
            return jinja_fail(b->render, "format: an integer cannot have a precision");
        if (spec.grouping != 0 && integer_type && spec.type != 'd')
            return jinja_unsupported(b->render, "groups of digits that are not decimal");
        return format_integer(&b->out, jinja_integer_of(value), value.trusted, &spec);
    }
    if (!float_type && !(spec.type == 0 && !whole))
        return jinja_fail(b->render, "format: invalid type for a number");
    if (spec.alternate || (spec.grouping != 0 && spec.zero))
        return jinja_unsupported(b->render, "this format specification for a float");
    return format_float(&b->out, jinja_number_of(value), value.trusted, &spec);
}

/* "{…}" whose inside is [begin, end). */
static avo_status brace_field(brace_format *b, size_t begin, size_t end) {
    const char *data = b->format->data;
    size_t name_end = begin;
    bool bracket = false;
    for (; name_end < end; name_end++) {
        bracket = data[name_end] == '[' ? true : data[name_end] == ']' ? false : bracket;
        if (!bracket && (data[name_end] == '!' || data[name_end] == ':'))
            break;
        if (data[name_end] == '{')
            return jinja_fail(b->render, "format: '{' in a field name");
    }
    jinja_value value;
    AVO_TRY(field_value(b, begin, name_end, &value));
    size_t at = name_end;
    if (at < end && data[at] == '!') {
        char conversion = at + 1 < end ? data[at + 1] : 0;
        at += 2;
        if ((at < end && data[at] != ':') || at > end)
            return jinja_fail(b->render, "format: invalid conversion");
        if (conversion == 'r')
            AVO_TRY(represent(b->render, value, &value));
        else if (conversion == 's')
            AVO_TRY(jinja_to_text(b->render, value, &value));
        else
            return jinja_unsupported(b->render, "this conversion in format()");
    }
    size_t specification_begin = at < end ? at + 1 : end;
    if (memchr(data + specification_begin, '{', end - specification_begin) != NULL)
        return jinja_unsupported(b->render, "a field inside a format specification");
    jinja_value text;
    AVO_TRY(jinja_text_part(b->render, b->format, specification_begin, end, &text));
    return format_value(b, value, text.text);
}

avo_status jinja_format_braces(jinja_render *render, const jinja_text *format,
                               const jinja_arguments *arguments, jinja_value *out) {
    brace_format b = {.render = render, .format = format, .arguments = arguments};
    if (format->markup)
        return jinja_unsupported(render, "format() on escaped text");
    jinja_builder_init(&b.out, render);
    size_t at = 0;
    while (at < format->size) {
        size_t brace = at;
        while (brace < format->size && format->data[brace] != '{' && format->data[brace] != '}')
            brace++;
        AVO_TRY(jinja_builder_part(&b.out, format, at, brace));
        at = brace;
        if (at == format->size)
            break;
        AVO_TRY(jinja_charge(render, 1));
        if (at + 1 < format->size && format->data[at + 1] == format->data[at]) {
            AVO_TRY(jinja_builder_part(&b.out, format, at, at + 1));
            at += 2;
            continue;
        }
        size_t end = at + 1;
        size_t depth = 1;
        for (; format->data[at] == '{' && end < format->size; end++) {
            depth += format->data[end] == '{';
            depth -= format->data[end] == '}';
            if (depth == 0)
                break;
        }
        if (format->data[at] == '}' || end >= format->size)
            return jinja_fail(render, "format: a single '%c'", format->data[at]);
        AVO_TRY(brace_field(&b, at + 1, end));
        at = end + 1;
    }
    return jinja_builder_finish(&b.out, out);
}
