/* Conversions in the C locale. glibc keeps that one ready: newlocale allocates nothing for it. */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

double number_from_text(const char *text, char **end) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL);
    if (plain == NULL)
        return strtod(text, end);
    double number = strtod_l(text, end, plain);
    freelocale(plain);
    return number;
}

int number_to_text(char *text, size_t capacity, char kind, int precision, double number) {
    const char format[] = {'%', '.', '*', kind, '\0'};
    locale_t plain = newlocale(LC_ALL_MASK, "C", NULL);
    locale_t before = plain == NULL ? NULL : uselocale(plain); /* of this thread alone */
    int length = snprintf(text, capacity, format, precision, number);
    if (plain != NULL) {
        uselocale(before);
        freelocale(plain);
    }
    return length;
}

#define FLOAT_DIGITS 9

/* Nine digits are ten times as fine as floats are: the product's rounding cannot lead to another
 * float, and so it need not be exact. */
size_t number_write_float(char text[static 32], float number) {
    static const double powers[] = {1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0,  1e1,  1e2,  1e3, 1e4,
                                    1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13};
    double size = fabs((double)number);
    if (size == 0.0 || !(size >= powers[0] && size < 1e8))
        return (size_t)number_to_text(text, NUMBER_TEXT_MAX, 'g', FLOAT_DIGITS, (double)number);
    int place = 0; /* size is in [powers[place], powers[place + 1]) */
    while (size >= powers[place + 1])
        place++;
    uint64_t digits = (uint64_t)(size * powers[18 - place] + 0.5);
    if (digits >= 1000000000u) {
        digits = 100000000u;
        place++;
    }
    char all[FLOAT_DIGITS];
    int count = FLOAT_DIGITS;
    for (int i = FLOAT_DIGITS - 1; i >= 0; i--, digits /= 10)
        all[i] = (char)('0' + digits % 10);
    while (count > 1 && all[count - 1] == '0')
        count--;
    char *at = text;
    int whole = place - 4; /* digits in front of the point; below 0: zeros behind it */
    if (number < 0.0f)
        *at++ = '-';
    if (whole <= 0)
        *at++ = '0';
    for (int i = whole < 0 ? whole : 0; i < count || i < whole; i++) {
        if (i == whole)
            *at++ = '.';
        *at++ = i < 0 || i >= count ? '0' : all[i];
    }
    *at = '\0';
    return (size_t)(at - text);
}
