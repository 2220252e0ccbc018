/* What may be a model's name, a file's path, a pattern. Everything that comes from a list, an
 * archive or the command line passes here before it becomes part of a path. */
#include "base/utf8.h"
#include "hub/hub_int.h"

#include <stdio.h>
#include <string.h>

#define PATH_COMPONENT_MAX 200
#define PATH_DEPTH_MAX     16

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '+';
}

avo_status hub_name_check(const char *name, avo_error *error) {
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > HUB_NAME_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "a model name must have 1 to %d characters",
                           HUB_NAME_MAX);
    unsigned slashes = 0;
    bool in_revision = false;
    bool starts = true;
    for (size_t i = 0; i < bytes; i++) {
        char c = name[i];
        bool separator = c == '/' || (c == '@' && !in_revision);
        if (separator ? starts : (!is_name_character(c) || (starts && (c == '.' || c == '-'))))
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "\"%.200s\" is not a model name: use letters, digits and . _ - + "
                               "only, and begin each part with a letter or digit",
                               name);
        if (c == '/' && !in_revision && ++slashes > 1)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "\"%.200s\" is not a model name: OWNER/NAME has one slash", name);
        if ((c == '-' && name[i + 1] == '-') || (c == '.' && name[i + 1] == '.'))
            return status_fail(
                error, AVO_ERROR_ARGUMENT,
                "\"%.200s\" is not a model name: it must not contain \"--\" or \"..\"", name);
        in_revision = in_revision || c == '@';
        starts = separator;
    }
    if (starts)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "\"%.200s\" is not a model name: it must not end in %c", name,
                           name[bytes - 1]);
    return AVO_OK;
}

void hub_name_to_folder(const char *name, char *folder, size_t capacity) {
    size_t at = 0;
    for (; *name != '\0' && at + 3 < capacity; name++) {
        folder[at++] = *name == '/' ? '-' : *name;
        if (*name == '/')
            folder[at++] = '-';
    }
    folder[at] = '\0';
}

void hub_folder_to_name(const char *folder, char *name, size_t capacity) {
    size_t at = 0;
    for (; *folder != '\0' && at + 1 < capacity; folder++) {
        bool pair = folder[0] == '-' && folder[1] == '-';
        name[at++] = pair ? '/' : *folder;
        folder += pair;
    }
    name[at] = '\0';
}

static avo_status check_component(text_view path, text_view part, avo_error *error) {
    if (part.size == 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "file path \"%.*s\" is absolute or has an empty part",
                           TEXT_ARGUMENT(path));
    if (text_is(part, ".") || text_is(part, ".."))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "file path \"%.*s\" contains \"%.*s\" and would leave its folder",
                           TEXT_ARGUMENT(path), TEXT_ARGUMENT(part));
    if (part.size > PATH_COMPONENT_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "file path \"%.*s\" has a part of %zu bytes, must have at most %d",
                           TEXT_ARGUMENT(path), part.size, PATH_COMPONENT_MAX);
    return AVO_OK;
}

avo_status hub_path_check(text_view path, avo_error *error) {
    if (path.size == 0 || path.size > HUB_FILE_PATH_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "file path \"%.*s\" has %zu bytes, must have 1 to %d",
                           TEXT_ARGUMENT(path), path.size, HUB_FILE_PATH_MAX);
    for (size_t i = 0; i < path.size;) {
        uint32_t code_point = 0; /* stays so where nothing valid stands */
        size_t bytes = utf8_decode(path.data + i, path.size - i, &code_point);
        bool bidirectional = (code_point >= 0x202A && code_point <= 0x202E) ||
                             (code_point >= 0x2066 && code_point <= 0x2069);
        if (bytes == 0 || code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0) ||
            code_point == '\\' || bidirectional)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "file path \"%.*s\" has a forbidden character at byte %zu",
                               TEXT_ARGUMENT(path), i);
        i += bytes;
    }
    size_t depth = 0;
    for (size_t begin = 0; begin <= path.size;) {
        const char *slash = memchr(path.data + begin, '/', path.size - begin);
        size_t end = slash == NULL ? path.size : (size_t)(slash - path.data);
        AVO_TRY(check_component(path, (text_view){path.data + begin, end - begin}, error));
        if (++depth > PATH_DEPTH_MAX)
            return status_fail(error, AVO_ERROR_LIMIT,
                               "file path \"%.*s\" is more than %d folders deep",
                               TEXT_ARGUMENT(path), PATH_DEPTH_MAX);
        begin = end + 1;
    }
    return AVO_OK;
}

bool hub_path_reserved(text_view path) {
    return text_is(path, HUB_MANIFEST_NAME) || text_starts(path, TEXT_LITERAL(HUB_PIP_FOLDER)) ||
           text_ends(path, TEXT_LITERAL(".part")) || text_ends(path, TEXT_LITERAL(".etag"));
}

text_view hub_path_base(text_view path) {
    size_t begin = path.size;
    while (begin > 0 && path.data[begin - 1] != '/')
        begin--;
    return (text_view){path.data + begin, path.size - begin};
}

/* Matches one character against the "[…]" at pattern[*at]; moves behind it. A bracket that never
 * closes is an ordinary character. */
static bool match_set(text_view pattern, size_t *at, char c) {
    size_t i = *at + 1;
    bool negated = i < pattern.size && (pattern.data[i] == '!' || pattern.data[i] == '^');
    i += negated;
    bool found = false;
    for (size_t first = i; i < pattern.size; i++) {
        char low = pattern.data[i];
        if (low == ']' && i > first) {
            *at = i + 1;
            return found != negated;
        }
        char high = low;
        if (i + 2 < pattern.size && pattern.data[i + 1] == '-' && pattern.data[i + 2] != ']') {
            high = pattern.data[i + 2];
            i += 2;
        }
        found = found ||
                ((unsigned char)c >= (unsigned char)low && (unsigned char)c <= (unsigned char)high);
    }
    (*at)++;
    return c == '[';
}

/* The usual two pointers with one place to come back to: at most pattern × text steps. */
static bool match_whole(text_view pattern, text_view text) {
    size_t p = 0, t = 0, star = SIZE_MAX, star_text = 0;
    while (t < text.size) {
        bool good = false;
        size_t next = p + 1;
        if (p < pattern.size && pattern.data[p] == '*') {
            star = p++;
            star_text = t;
            continue;
        }
        if (p < pattern.size && pattern.data[p] == '[') {
            next = p;
            good = match_set(pattern, &next, text.data[t]);
        } else if (p < pattern.size) {
            good = pattern.data[p] == '?' || pattern.data[p] == text.data[t];
        }
        if (good) {
            p = next;
            t++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            t = ++star_text;
        } else {
            return false;
        }
    }
    while (p < pattern.size && pattern.data[p] == '*')
        p++;
    return p == pattern.size;
}

bool hub_glob_match(text_view pattern, text_view path) {
    if (match_whole(pattern, path))
        return true;
    return memchr(pattern.data, '/', pattern.size) == NULL &&
           match_whole(pattern, hub_path_base(path));
}

size_t hub_name_distance(const char *a, const char *b) {
    size_t a_size = strnlen(a, 64), b_size = strnlen(b, 64);
    size_t row[65];
    for (size_t j = 0; j <= b_size; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[b_size];
}

bool hub_is_hex(text_view text, size_t digits) {
    if (text.size != digits)
        return false;
    for (size_t i = 0; i < digits; i++) {
        char c = text.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}
