/* Conversions in the C locale. glibc keeps that one ready: newlocale allocates nothing for it. */
#include "base/number.h"

#include <locale.h>
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
