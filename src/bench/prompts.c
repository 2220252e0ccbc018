/* Prompt sets by name, and prompts from files. */
#include "bench/prompts.h"

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"

#include <string.h>

#define FILE_CATEGORY "prompts" /* of lines that name none */
#define RANDOM_WORDS  60
#define RANDOM_SEED   7

/* ---- Adding ---- */

static avo_status begin(bench_prompts *prompts, avo_error *error) {
    memset(prompts, 0, sizeof(*prompts));
    arena_init(&prompts->arena, NULL, SIZE_MAX);
    prompts->item = arena_take_array(&prompts->arena, BENCH_PROMPTS_MAX, sizeof(bench_prompt));
    return prompts->item != NULL ? AVO_OK
                                 : status_no_memory(error, "prompts", sizeof(bench_prompt));
}

void bench_prompts_free(bench_prompts *prompts) {
    arena_free(&prompts->arena);
    prompts->item = NULL;
    prompts->count = 0;
}

static uint32_t of_category(const bench_prompts *prompts, const char *category) {
    uint32_t count = 0;
    for (size_t i = 0; i < prompts->count; i++)
        count += strcmp(prompts->item[i].category, category) == 0;
    return count;
}

/* ---- Sets ---- */

/* Words of two or three syllables that are in no dictionary. */
static const char *random_words(bench_prompts *prompts, uint32_t number) {
    static const char consonants[] = "bdfgklmnprstvz", vowels[] = "aeiou";
    static const char opening[] = "Continue this list of invented words:";
    char *text = arena_take(&prompts->arena, sizeof(opening) + RANDOM_WORDS * 8);
    if (text == NULL)
        return NULL;
    memcpy(text, opening, sizeof(opening) - 1);
    size_t bytes = sizeof(opening) - 1;
    for (uint64_t word = 0; word < RANDOM_WORDS; word++) {
        random_block r = random_at(RANDOM_SEED, number, word);
        text[bytes++] = ' ';
        for (uint32_t syllable = 0; syllable < 2 + r.words[3] % 2; syllable++) {
            text[bytes++] = consonants[r.words[syllable] % (sizeof(consonants) - 1)];
            text[bytes++] = vowels[(r.words[syllable] >> 16) % (sizeof(vowels) - 1)];
        }
    }
    text[bytes] = '\0';
    return text;
}

static avo_status add_set(const bench_set *set, uint32_t limit, bench_prompts *prompts,
                          avo_error *error) {
    uint32_t count = limit > 0 && limit < BENCH_SET_SIZE ? limit : BENCH_SET_SIZE;
    for (uint32_t i = 0; i < count; i++) {
        bench_prompt *prompt = &prompts->item[prompts->count];
        *prompt = (bench_prompt){.category = set->name, .temperature = set->temperature};
        if (set->texts != NULL) {
            prompt->text = set->texts[i].text;
            prompt->schema = set->texts[i].schema;
        } else {
            prompt->text = random_words(prompts, i);
        }
        if (prompt->text == NULL)
            return status_no_memory(error, "a prompt", RANDOM_WORDS * 8);
        prompts->count++;
    }
    return AVO_OK;
}

static const bench_set *set_named(text_view name) {
    for (size_t i = 0; i < bench_set_count; i++)
        if (text_equal(name, text_from(bench_sets[i].name)))
            return &bench_sets[i];
    return NULL;
}

avo_status bench_prompts_sets(const char *names, uint32_t limit, bench_prompts *prompts,
                              avo_error *error) {
    AVO_TRY(begin(prompts, error));
    for (const char *at = names, *comma; at != NULL; at = comma == NULL ? NULL : comma + 1) {
        comma = strchr(at, ',');
        text_view name = {at, comma == NULL ? strlen(at) : (size_t)(comma - at)};
        const bench_set *set = set_named(name);
        if (set == NULL)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "\"%.*s\" is not a prompt set; there are " BENCH_PROMPT_SETS,
                               name.size < 40 ? (int)name.size : 40, name.data);
        if (of_category(prompts, set->name) > 0)
            return status_fail(error, AVO_ERROR_ARGUMENT, "prompt set %s is named twice",
                               set->name);
        AVO_TRY(add_set(set, limit, prompts, error));
    }
    return AVO_OK;
}

/* ---- Files ---- */

/* What the user asks, in any of the forms that a line may have; empty: in none. */
static text_view question_of(const json_value *root) {
    const json_value *found = json_find(root, "prompt");
    if (found == NULL)
        found = json_item(json_find(root, "turns"), 0);
    const json_value *messages = json_find(root, "messages");
    for (size_t i = 0; found == NULL && json_item(messages, i) != NULL; i++) {
        const json_value *role = json_find(json_item(messages, i), "role");
        if (role != NULL && role->kind == JSON_STRING &&
            text_equal(role->string, TEXT_LITERAL("user")))
            found = json_find(json_item(messages, i), "content");
    }
    return found != NULL && found->kind == JSON_STRING ? found->string : (text_view){"", 0};
}

/* A category becomes a column of tables and part of a CSV file: letters, digits, "-", "_", "." and
 * spaces. */
static bool category_good(text_view category) {
    for (size_t i = 0; i < category.size; i++) {
        char c = category.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && strchr("-_. ", c) == NULL)
            return false;
    }
    return category.size > 0 && category.size <= BENCH_CATEGORY_MAX &&
           memchr(category.data, 0, category.size) == NULL;
}

static avo_status read_object(arena *arena, text_view line, text_view *category,
                              text_view *question, avo_error *error) {
    json_value root;
    AVO_TRY(json_parse(arena, line, &root, error));
    AVO_TRY(json_get_string(&root, "category", category, error));
    if (!category_good(*category))
        return status_fail(error, AVO_ERROR_FORMAT,
                           "category must have 1 to %d letters, digits, spaces, \"-\", \"_\" or "
                           "\".\"",
                           BENCH_CATEGORY_MAX);
    *question = question_of(&root);
    if (question->size == 0)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "no prompt; give \"prompt\" (text), \"turns\" (list of texts) or "
                           "\"messages\"");
    return AVO_OK;
}

static avo_status add_line(bench_prompts *prompts, text_view line, uint32_t limit,
                           avo_error *error) {
    arena scratch;
    text_view category = TEXT_LITERAL(FILE_CATEGORY), question = line;
    avo_status status = AVO_OK;
    if (line.size > BENCH_PROMPT_BYTES_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "%zu bytes, must be at most %zu", line.size,
                           BENCH_PROMPT_BYTES_MAX);
    arena_init(&scratch, NULL, 16 * BENCH_PROMPT_BYTES_MAX);
    if (line.data[0] == '{')
        status = read_object(&scratch, line, &category, &question, error);
    bench_prompt prompt = {.temperature = -1.0f};
    if (status == AVO_OK && memchr(question.data, 0, question.size) != NULL)
        status = status_fail(error, AVO_ERROR_FORMAT, "the prompt contains a zero byte");
    if (status == AVO_OK) {
        prompt.category = arena_copy_text(&prompts->arena, category.data, category.size);
        prompt.text = arena_copy_text(&prompts->arena, question.data, question.size);
        if (prompt.category == NULL || prompt.text == NULL)
            status = status_no_memory(error, "a prompt", question.size);
    }
    arena_free(&scratch);
    AVO_TRY(status);
    if (limit > 0 && of_category(prompts, prompt.category) >= limit)
        return AVO_OK;
    if (prompts->count == BENCH_PROMPTS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "more than %d prompts", BENCH_PROMPTS_MAX);
    prompts->item[prompts->count++] = prompt;
    return AVO_OK;
}

static text_view trim(text_view line) {
    while (line.size > 0 && strchr(" \t\r", line.data[line.size - 1]) != NULL &&
           line.data[line.size - 1] != '\0')
        line.size--;
    while (line.size > 0 && (line.data[0] == ' ' || line.data[0] == '\t')) {
        line.data++;
        line.size--;
    }
    return line;
}

avo_status bench_prompts_text(text_view text, const char *path, uint32_t limit,
                              bench_prompts *prompts, avo_error *error) {
    AVO_TRY(begin(prompts, error));
    for (size_t number = 1; text.size > 0; number++) {
        const char *end = memchr(text.data, '\n', text.size);
        size_t bytes = end == NULL ? text.size : (size_t)(end - text.data);
        text_view line = trim((text_view){text.data, bytes});
        size_t taken = bytes + (end != NULL);
        text = (text_view){text.data + taken, text.size - taken};
        avo_status status = line.size > 0 ? add_line(prompts, line, limit, error) : AVO_OK;
        if (status != AVO_OK)
            return status_prefix(error, status, "%s, line %zu", path, number);
    }
    if (prompts->count == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: no prompts in this file", path);
    return AVO_OK;
}

avo_status bench_prompts_file(const char *path, uint32_t limit, bench_prompts *prompts,
                              avo_error *error) {
    file_map map;
    memset(prompts, 0, sizeof(*prompts));
    arena_init(&prompts->arena, NULL, SIZE_MAX);
    AVO_TRY(file_map_open(path, &map, error));
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    avo_status status = bench_prompts_text(text, path, limit, prompts, error);
    file_map_close(&map);
    return status;
}
