/* Lists and names of `avocet bench` as users write them. */
#include "cli/bench_int.h"

#include <string.h>

bool bench_parse_list(const char *name, const char *text, uint32_t minimum, uint32_t maximum,
                      bench_list *list) {
    list->count = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        char number[16];
        uint64_t value = 0;
        const char *wrong = "is too long for a number";
        if (length < sizeof(number)) {
            memcpy(number, text, length);
            number[length] = 0;
            wrong = number_parse_u64(number, minimum, maximum, &value);
        }
        if (wrong == NULL && list->count == BENCH_LIST_MAX)
            wrong = "makes the list too long";
        if (wrong != NULL) {
            cli_usage(&command_bench,
                      "--%s: \"%.*s\" %s; it goes from %u to %u, with commas between", name,
                      (int)(length < 40 ? length : 40), text, wrong, minimum, maximum);
            return false;
        }
        list->item[list->count++] = (uint32_t)value;
        if (text[length] == 0)
            return true;
        text += length + 1;
    }
}

bool bench_parse_words(const char *name, const char *text, bench_words *words) {
    words->count = 1;
    words->item[0] = NULL;
    if (text == NULL)
        return true;
    if (strlen(text) >= sizeof(words->text)) {
        cli_usage(&command_bench, "--%s: the list is too long", name);
        return false;
    }
    memcpy(words->text, text, strlen(text) + 1);
    words->item[0] = words->text;
    for (char *at = words->text; *at != 0; at++) {
        if (*at != ',')
            continue;
        if (words->count == BENCH_LIST_MAX) {
            cli_usage(&command_bench, "--%s: more than %d of them", name, BENCH_LIST_MAX);
            return false;
        }
        *at = 0;
        words->item[words->count++] = at + 1;
    }
    return true;
}

bool bench_parse_sizes(const char *text, uint32_t *sizes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char number[16];
        size_t length = strcspn(text, "x");
        uint64_t value;
        bool last = i + 1 == count;
        if (length >= sizeof(number) || text[length] != (last ? 0 : 'x'))
            return false;
        memcpy(number, text, length);
        number[length] = 0;
        if (number_parse_u64(number, 1, 1 << 20, &value) != NULL)
            return false;
        sizes[i] = (uint32_t)value;
        text += length + !last;
    }
    return true;
}

void bench_short_name(const char *name, char *out, size_t capacity) {
    size_t length = strlen(name);
    while (length > 1 && name[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && name[begin - 1] != '/')
        begin--;
    length -= begin;
    snprintf(out, capacity, "%.*s", (int)length, name + begin);
    char *dot = strrchr(out, '.');
    if (dot != NULL && dot != out &&
        (strcmp(dot, ".gguf") == 0 || strcmp(dot, ".avo") == 0 || strcmp(dot, ".bin") == 0))
        *dot = 0;
}
