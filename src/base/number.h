/* Numbers as text and back, always with a point: a host program may have chosen a locale in which
 * strtod stops at one and printf writes a comma. */
#ifndef AVO_BASE_NUMBER_H
#define AVO_BASE_NUMBER_H

#include <stddef.h>

/* As strtod in the C locale; `end` may be NULL. */
double number_from_text(const char *text, char **end);
/* As snprintf with "%.*" and `kind` (one of e E f F g G) in the C locale: the length that was
 * wanted, at most capacity − 1 of it written. */
int number_to_text(char *text, size_t capacity, char kind, int precision, double number);

/* A finite float with nine digits at most, which give the same float again; the text's length,
 * below NUMBER_TEXT_MAX. For many at once: a fifteenth of number_to_text's time. */
size_t number_write_float(char text[static 32], float number);

/* Enough for kind g at any precision up to 17. */
#define NUMBER_TEXT_MAX 32

#endif
