/* Numbers between bounds, digit by digit: whole numbers exactly, others as decimals without an
 * exponent. Each number has one whole part; where that equals a bound's, the fraction decides. */
#include "sample/grammar_schema_int.h"

#include <math.h>
#include <stdio.h>

/* A bound without its sign: 12.5 is "12" and "5"; no zeros at the end of the fraction. */
typedef struct decimal {
    char whole[24];
    char fraction[24];
    bool strict;   /* the bound itself is outside */
    bool negative; /* and not 0 */
} decimal;

typedef struct range {
    grammar_rules *rules;
    uint32_t fraction_max; /* digits that follow freely */
} range;

static const expression *never(range *r) {
    return expression_list(r->rules, EXPRESSION_CHOICE, NULL, 0);
}

static const expression *digits(range *r, uint32_t least, uint32_t most) {
    return expression_repeat(r->rules, expression_range(r->rules, '0', '9'), least, most);
}

/* One digit from `first` to `last`, then `behind`; nothing where there is no such digit. */
static const expression *digit_then(range *r, int first, int last, const expression *behind) {
    if (first > last)
        return never(r);
    return expression_sequence(
        r->rules, expression_range(r->rules, (uint32_t)first, (uint32_t)last), behind, NULL, NULL);
}

static const expression *either(range *r, const expression *a, const expression *b,
                                const expression *c) {
    return c == NULL ? NULL : expression_choice(r->rules, a, b, c, NULL);
}

/* ---- Whole numbers with the same number of digits ---- */

static const expression *at_least(range *r, const char *low) {
    if (*low == '\0')
        return expression_text(r->rules, "");
    uint32_t left = (uint32_t)strlen(low) - 1;
    return expression_choice(r->rules, digit_then(r, *low, *low, at_least(r, low + 1)),
                             digit_then(r, *low + 1, '9', digits(r, left, left)), NULL, NULL);
}

static const expression *at_most(range *r, const char *high) {
    if (*high == '\0')
        return expression_text(r->rules, "");
    uint32_t left = (uint32_t)strlen(high) - 1;
    return expression_choice(r->rules, digit_then(r, *high, *high, at_most(r, high + 1)),
                             digit_then(r, '0', *high - 1, digits(r, left, left)), NULL, NULL);
}

static const expression *same_length(range *r, const char *low, const char *high) {
    if (*low == '\0')
        return expression_text(r->rules, "");
    uint32_t left = (uint32_t)strlen(low) - 1;
    if (*low == *high)
        return digit_then(r, *low, *low, same_length(r, low + 1, high + 1));
    return either(r, digit_then(r, *low, *low, at_least(r, low + 1)),
                  digit_then(r, *low + 1, *high - 1, digits(r, left, left)),
                  digit_then(r, *high, *high, at_most(r, high + 1)));
}

/* low ≤ n ≤ high, both without a sign. */
static const expression *whole_between(range *r, uint64_t low, uint64_t high) {
    const expression *all = never(r);
    uint64_t first = 0;
    uint64_t last = 9;
    for (uint32_t length = 1; length <= 19; length++) {
        uint64_t from = low > first ? low : first;
        uint64_t to = high < last ? high : last;
        if (from <= to) {
            char a[24];
            char b[24];
            (void)snprintf(a, sizeof(a), "%llu", (unsigned long long)from);
            (void)snprintf(b, sizeof(b), "%llu", (unsigned long long)to);
            all = expression_choice(r->rules, all, same_length(r, a, b), NULL, NULL);
        }
        first = last + 1;
        last = length < 18 ? last * 10 + 9 : UINT64_MAX;
    }
    return all;
}

/* ---- Fractions ---- */

/* More digits behind those that are equal to the bound's. */
static const expression *above_tail(range *r, const char *low, bool strict) {
    if (*low == '\0' && !strict)
        return digits(r, 0, r->fraction_max);
    if (*low == '\0') {
        const expression *zeros =
            expression_repeat(r->rules, expression_text(r->rules, "0"), 0, r->fraction_max);
        return expression_sequence(r->rules, zeros, expression_range(r->rules, '1', '9'),
                                   digits(r, 0, r->fraction_max), NULL);
    }
    return expression_choice(r->rules, digit_then(r, *low, *low, above_tail(r, low + 1, strict)),
                             digit_then(r, *low + 1, '9', digits(r, 0, r->fraction_max)), NULL,
                             NULL);
}

static const expression *below_tail(range *r, const char *high, bool strict) {
    if (*high == '\0' && strict)
        return never(r);
    if (*high == '\0')
        return expression_repeat(r->rules, expression_text(r->rules, "0"), 0, r->fraction_max);
    return either(r, expression_text(r->rules, ""),
                  digit_then(r, '0', *high - 1, digits(r, 0, r->fraction_max)),
                  digit_then(r, *high, *high, below_tail(r, high + 1, strict)));
}

/* Between both, after digits that are equal to those of both. */
static const expression *between_tail(range *r, const char *low, bool strict_low, const char *high,
                                      bool strict_high) {
    bool may_end = *low == '\0' && !strict_low && (*high != '\0' || !strict_high);
    const expression *end = may_end ? expression_text(r->rules, "") : never(r);
    if (*high == '\0') {
        if (!may_end)
            return never(r);
        return expression_repeat(r->rules, expression_text(r->rules, "0"), 0, r->fraction_max);
    }
    int a = *low == '\0' ? '0' : *low;
    const char *low_rest = *low == '\0' ? low : low + 1;
    if (a > *high)
        return never(r);
    if (a == *high)
        return expression_choice(
            r->rules, end,
            digit_then(r, a, a, between_tail(r, low_rest, strict_low, high + 1, strict_high)), NULL,
            NULL);
    return expression_choice(r->rules, end,
                             digit_then(r, a, a, above_tail(r, low_rest, strict_low)),
                             digit_then(r, a + 1, *high - 1, digits(r, 0, r->fraction_max)),
                             digit_then(r, *high, *high, below_tail(r, high + 1, strict_high)));
}

typedef struct fraction_bounds {
    const char *low, *high; /* NULL: none on this side */
    bool strict_low, strict_high;
} fraction_bounds;

static const expression *tail_of(range *r, const fraction_bounds *f) {
    if (f->low != NULL && f->high != NULL)
        return between_tail(r, f->low, f->strict_low, f->high, f->strict_high);
    if (f->low != NULL)
        return above_tail(r, f->low, f->strict_low);
    if (f->high != NULL)
        return below_tail(r, f->high, f->strict_high);
    return digits(r, 0, r->fraction_max);
}

/* Without a point the fraction is 0; a point has a digit behind it, which is tried one by one. */
static const expression *fraction_of(range *r, const fraction_bounds *f) {
    bool zero = (f->low == NULL || (*f->low == '\0' && !f->strict_low)) &&
                (f->high == NULL || *f->high != '\0' || !f->strict_high);
    const expression *none = zero ? expression_text(r->rules, "") : never(r);
    expression_items items = {NULL, 0, 0};
    for (int digit = '0'; digit <= '9'; digit++) {
        fraction_bounds rest = *f;
        bool fits = true;
        if (f->low != NULL) {
            int bound = *f->low == '\0' ? '0' : *f->low;
            fits = fits && digit >= bound;
            rest.low = digit > bound ? NULL : *f->low == '\0' ? f->low : f->low + 1;
        }
        if (f->high != NULL) {
            int bound = *f->high == '\0' ? '0' : *f->high;
            fits = fits && digit <= bound;
            rest.high = digit < bound ? NULL : *f->high == '\0' ? f->high : f->high + 1;
        }
        if (fits && expression_items_add(r->rules, &items,
                                         digit_then(r, digit, digit, tail_of(r, &rest))) != AVO_OK)
            return NULL;
    }
    const expression *some = expression_list(r->rules, EXPRESSION_CHOICE, items.items, items.count);
    const expression *pointed =
        expression_sequence(r->rules, expression_text(r->rules, "."), some, NULL, NULL);
    return expression_choice(r->rules, none, pointed, NULL, NULL);
}

static uint64_t whole_of(const decimal *d) {
    uint64_t value = 0;
    for (const char *c = d->whole; *c != '\0'; c++)
        value = value * 10 + (uint64_t)(*c - '0');
    return value;
}

/* low ≤ n ≤ high without signs. */
static const expression *decimal_between(range *r, const decimal *low, const decimal *high) {
    uint64_t a = whole_of(low);
    uint64_t b = whole_of(high);
    fraction_bounds both = {low->fraction, high->fraction, low->strict, high->strict};
    fraction_bounds above = {low->fraction, NULL, low->strict, false};
    fraction_bounds below = {NULL, high->fraction, false, high->strict};
    fraction_bounds any = {NULL, NULL, false, false};
    if (a > b)
        return never(r);
    const expression *first = expression_text(r->rules, low->whole);
    if (a == b)
        return expression_sequence(r->rules, first, fraction_of(r, &both), NULL, NULL);
    const expression *inner = b - a < 2
                                  ? never(r)
                                  : expression_sequence(r->rules, whole_between(r, a + 1, b - 1),
                                                        fraction_of(r, &any), NULL, NULL);
    const expression *last = expression_text(r->rules, high->whole);
    return either(r, expression_sequence(r->rules, first, fraction_of(r, &above), NULL, NULL),
                  inner, expression_sequence(r->rules, last, fraction_of(r, &below), NULL, NULL));
}

/* ---- Bounds of a schema ---- */

typedef struct bound {
    bool given, strict;
    double value;
    const json_value *source;
} bound;

static avo_status take_bound(const schema *s, const keywords *k, schema_key key, bool lower,
                             bound *out) {
    const json_value *value = k->value[key];
    if (value == NULL)
        return AVO_OK;
    if (value->kind != JSON_INTEGER && value->kind != JSON_NUMBER)
        return schema_refuse(s, value, "%s must be a number", schema_key_text(key));
    double number = value->kind == JSON_INTEGER ? (double)value->integer : value->number;
    if (!(fabs(number) < 1e15))
        return status_fail(s->rules->error, AVO_ERROR_LIMIT,
                           "schema, line %u: %s is %g, must be between -1e15 and 1e15", value->line,
                           schema_key_text(key), number);
    bool strict = key == KEY_ABOVE || key == KEY_BELOW;
    bool tighter = !out->given || (lower ? number > out->value : number < out->value) ||
                   (number == out->value && strict);
    if (tighter)
        *out = (bound){true, strict, number, value};
    return AVO_OK;
}

/* Exact; no "-0". */
static avo_status integers(schema *s, const bound *low, const bound *high, const expression **out) {
    range r = {.rules = s->rules};
    const int64_t largest = 9999999999999999; /* of numbers without a bound on that side */
    int64_t from = -largest;
    int64_t to = largest;
    if (low->given)
        from = (int64_t)(low->strict ? floor(low->value) + 1 : ceil(low->value));
    if (high->given)
        to = (int64_t)(high->strict ? ceil(high->value) - 1 : floor(high->value));
    const expression *positive =
        to >= 0 && from <= to ? whole_between(&r, from > 0 ? (uint64_t)from : 0, (uint64_t)to)
                              : never(&r);
    const expression *negative = never(&r);
    if (from < 0 && from <= to) {
        uint64_t least = to < 0 ? (uint64_t)-to : 1;
        negative = expression_sequence(s->rules, expression_text(s->rules, "-"),
                                       whole_between(&r, least, (uint64_t)-from), NULL, NULL);
    }
    *out = expression_choice(s->rules, positive, negative, NULL, NULL);
    return schema_made(s, *out);
}

/* The shortest decimal that reads back as this number, which is what the schema said unless it had
 * more digits than numbers have. */
static avo_status decimal_of(const schema *s, const bound *b, decimal *out) {
    buffer text;
    char copy[64];
    buffer_init(&text, s->rules->arena->allocator, sizeof(copy) - 1);
    avo_status status = json_write_number(&text, fabs(b->value));
    size_t size = text.size;
    if (status == AVO_OK)
        memcpy(copy, text.data, size);
    buffer_free(&text);
    if (status != AVO_OK)
        return status_no_memory(s->rules->error, "a schema", sizeof(copy));
    copy[size] = '\0';
    *out = (decimal){.strict = b->strict, .negative = b->value < 0.0};
    if (strpbrk(copy, "eE") != NULL)
        (void)snprintf(copy, sizeof(copy), "%.20f", fabs(b->value));
    char *point = strpbrk(copy, ".,");
    size_t whole = point == NULL ? strlen(copy) : (size_t)(point - copy);
    size_t fraction = point == NULL ? 0 : strlen(point + 1);
    while (fraction > 0 && point[fraction] == '0')
        fraction--;
    if (whole >= sizeof(out->whole) || fraction >= sizeof(out->fraction))
        return schema_refuse(s, b->source, "the bound has too many digits");
    memcpy(out->whole, copy, whole);
    if (fraction > 0)
        memcpy(out->fraction, point + 1, fraction);
    return AVO_OK;
}

static avo_status decimals(schema *s, const bound *low, const bound *high, const expression **out) {
    range r = {.rules = s->rules};
    decimal zero = {.whole = "0"};
    decimal above_zero = {.whole = "0", .strict = true};
    decimal largest = {.whole = "999999999999999"};
    decimal from = largest;
    decimal to = largest;
    from.negative = true;
    if (low->given)
        AVO_TRY(decimal_of(s, low, &from));
    if (high->given)
        AVO_TRY(decimal_of(s, high, &to));
    size_t whole = strlen(from.whole) > strlen(to.whole) ? strlen(from.whole) : strlen(to.whole);
    r.fraction_max = whole < SCHEMA_DIGITS - 1 ? SCHEMA_DIGITS - 1 - (uint32_t)whole : 1;
    const expression *positive = never(&r);
    const expression *negative = never(&r);
    if (!to.negative)
        positive = decimal_between(&r, from.negative ? &zero : &from, &to);
    if (from.negative)
        negative = expression_sequence(s->rules, expression_text(s->rules, "-"),
                                       decimal_between(&r, to.negative ? &to : &above_zero, &from),
                                       NULL, NULL);
    *out = expression_choice(s->rules, positive, negative, NULL, NULL);
    return schema_made(s, *out);
}

avo_status schema_number(schema *s, const keywords *k, bool integer, const expression **out) {
    bound low = {0};
    bound high = {0};
    AVO_TRY(take_bound(s, k, KEY_MINIMUM, true, &low));
    AVO_TRY(take_bound(s, k, KEY_ABOVE, true, &low));
    AVO_TRY(take_bound(s, k, KEY_MAXIMUM, false, &high));
    AVO_TRY(take_bound(s, k, KEY_BELOW, false, &high));
    if (!low.given && !high.given)
        return json_any_number(s, integer, out);
    return integer ? integers(s, &low, &high, out) : decimals(s, &low, &high, out);
}
