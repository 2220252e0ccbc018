/* strftime_now: the clock is the caller's, in UTC, and the names are English whatever the
 * process's locale says. */
#include "tokenizer/template/render_int.h"

#include <stdio.h>
#include <string.h>

typedef struct moment {
    int64_t year;
    int month, day;           /* from 1 */
    int weekday;              /* 0: Sunday */
    int day_of_year;          /* from 1 */
    int hour, minute, second; /* … */
    int64_t unix_seconds;
} moment;

static const char *const day_names[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday"};
static const char *const month_names[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};

static bool leap(int64_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days since 1970 to a date: whole cycles of 400 years, then years from March. */
static moment moment_at(int64_t unix_seconds) {
    static const int before_month[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t days = unix_seconds / 86400;
    int64_t rest = unix_seconds % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    moment m = {.unix_seconds = unix_seconds};
    m.weekday = (int)(((days + 4) % 7 + 7) % 7);
    m.hour = (int)(rest / 3600);
    m.minute = (int)(rest / 60 % 60);
    m.second = (int)(rest % 60);
    days += 719468;
    int64_t cycle = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_cycle = days - cycle * 146097;
    int64_t year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36524 - day_of_cycle / 146096) / 365;
    int64_t day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    int64_t shifted = (5 * day_of_year + 2) / 153; /* months from March */
    m.day = (int)(day_of_year - (153 * shifted + 2) / 5 + 1);
    m.month = (int)(shifted < 10 ? shifted + 3 : shifted - 9);
    m.year = year_of_cycle + cycle * 400 + (m.month <= 2 ? 1 : 0);
    m.day_of_year = before_month[m.month - 1] + m.day + (m.month > 2 && leap(m.year) ? 1 : 0);
    return m;
}

/* A number with its usual padding, or without when the flag '-' stands in front. */
static size_t padded(char *text, size_t capacity, int64_t number, int width, char fill, bool bare) {
    if (bare || width == 0)
        return (size_t)snprintf(text, capacity, "%lld", (long long)number);
    return (size_t)snprintf(text, capacity, fill == '0' ? "%0*lld" : "%*lld", width,
                            (long long)number);
}

static int hour12(const moment *m) {
    return m->hour % 12 == 0 ? 12 : m->hour % 12;
}

/* One directive into `text`; 0 and *known false when it is not known. */
static size_t directive(const moment *m, char letter, bool bare, char *text, size_t capacity,
                        bool *known) {
    *known = true;
    switch (letter) {
    case 'Y':
        return padded(text, capacity, m->year, 0, '0', bare);
    case 'y':
        return padded(text, capacity, m->year % 100, 2, '0', bare);
    case 'm':
        return padded(text, capacity, m->month, 2, '0', bare);
    case 'd':
        return padded(text, capacity, m->day, 2, '0', bare);
    case 'e':
        return padded(text, capacity, m->day, 2, ' ', bare);
    case 'H':
        return padded(text, capacity, m->hour, 2, '0', bare);
    case 'I':
        return padded(text, capacity, hour12(m), 2, '0', bare);
    case 'M':
        return padded(text, capacity, m->minute, 2, '0', bare);
    case 'S':
        return padded(text, capacity, m->second, 2, '0', bare);
    case 'f':
        return padded(text, capacity, 0, 6, '0', false);
    case 'j':
        return padded(text, capacity, m->day_of_year, 3, '0', bare);
    case 'w':
        return padded(text, capacity, m->weekday, 0, '0', bare);
    case 'u':
        return padded(text, capacity, m->weekday == 0 ? 7 : m->weekday, 0, '0', bare);
    case 'A':
        return (size_t)snprintf(text, capacity, "%s", day_names[m->weekday]);
    case 'a':
        return (size_t)snprintf(text, capacity, "%.3s", day_names[m->weekday]);
    case 'B':
        return (size_t)snprintf(text, capacity, "%s", month_names[m->month - 1]);
    case 'b':
    case 'h':
        return (size_t)snprintf(text, capacity, "%.3s", month_names[m->month - 1]);
    case 'p':
        return (size_t)snprintf(text, capacity, "%s", m->hour < 12 ? "AM" : "PM");
    case 'F':
        return (size_t)snprintf(text, capacity, "%lld-%02d-%02d", (long long)m->year, m->month,
                                m->day);
    case 'T':
        return (size_t)snprintf(text, capacity, "%02d:%02d:%02d", m->hour, m->minute, m->second);
    case 'R':
        return (size_t)snprintf(text, capacity, "%02d:%02d", m->hour, m->minute);
    case 'D':
    case 'x':
        return (size_t)snprintf(text, capacity, "%02d/%02d/%02d", m->month, m->day,
                                (int)(m->year % 100));
    case 'X':
        return (size_t)snprintf(text, capacity, "%02d:%02d:%02d", m->hour, m->minute, m->second);
    case 'c':
        return (size_t)snprintf(text, capacity, "%.3s %.3s %2d %02d:%02d:%02d %lld",
                                day_names[m->weekday], month_names[m->month - 1], m->day, m->hour,
                                m->minute, m->second, (long long)m->year);
    case 'Z': /* as Python's datetime without a zone */
    case 'z':
        return 0;
    case 'n':
        return (size_t)snprintf(text, capacity, "\n");
    case 't':
        return (size_t)snprintf(text, capacity, "\t");
    case '%':
        return (size_t)snprintf(text, capacity, "%%");
    default:
        *known = false;
        return 0;
    }
}

avo_status jinja_strftime(jinja_render *render, const jinja_text *format, jinja_value *out) {
    moment now = moment_at(render->input->now);
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    size_t begin = 0;
    for (size_t i = 0; i < format->size; i++) {
        if (format->data[i] != '%')
            continue;
        AVO_TRY(jinja_builder_part(&builder, format, begin, i));
        bool trusted = jinja_text_trusted_at(format, i);
        i++;
        bool bare = i < format->size && format->data[i] == '-';
        if (bare)
            i++;
        char text[64];
        bool known = false;
        size_t bytes = 0;
        if (i < format->size)
            bytes = directive(&now, format->data[i], bare, text, sizeof(text), &known);
        if (!known)
            return jinja_fail(render, "strftime_now: directive %%%.1s is not supported",
                              i < format->size ? format->data + i : "");
        AVO_TRY(jinja_builder_bytes(&builder, text, bytes, trusted));
        begin = i + 1;
    }
    AVO_TRY(jinja_builder_part(&builder, format, begin, format->size));
    return jinja_builder_finish(&builder, out);
}
