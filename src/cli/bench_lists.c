/* Lists and names of `avocet bench` as users write them. */
#include "cli/bench_int.h"

#include <string.h>

bool bench_parse_list(const char *name, const char *text, uint32_t minimum, uint32_t maximum,
                      bench_list *list) {
    list->count = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        uint64_t value = 0;
        const char *wrong = NULL;
        bool automatic = strcmp(name, "threads") == 0 && text_is((text_view){text, length}, "auto");
        if (!automatic)
            wrong = number_parse_part((text_view){text, length}, minimum, maximum, &value);
        if (wrong == NULL && list->count == BENCH_LIST_MAX)
            wrong = "makes the list too long";
        if (wrong != NULL) {
            cli_usage(&command_bench, "--%s: \"%.*s\" %s; must be %u to %u, separated by commas",
                      name, (int)(length < 40 ? length : 40), text, wrong, minimum, maximum);
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
            cli_usage(&command_bench, "--%s: more than %d values", name, BENCH_LIST_MAX);
            return false;
        }
        *at = 0;
        words->item[words->count++] = at + 1;
    }
    return true;
}

bool bench_parse_sizes(const char *text, uint32_t *sizes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(text, "x");
        uint64_t value;
        bool last = i + 1 == count;
        if (text[length] != (last ? 0 : 'x') ||
            number_parse_part((text_view){text, length}, 1, 1 << 20, &value) != NULL)
            return false;
        sizes[i] = (uint32_t)value;
        text += length + !last;
    }
    return true;
}
