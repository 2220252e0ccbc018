/* The words of texts and how often each is seen. */
#include "train/bpe_int.h"

#include "base/hash.h"
#include "base/utf8.h"
#include "train/data_int.h"

#include <string.h>

void *bpe_array_add(const avo_allocator *allocator, bpe_array *array) {
    if (array->count == array->capacity) {
        size_t capacity = array->capacity == 0 ? 1024 : array->capacity * 2;
        void *larger = allocator_take_array(allocator, capacity, array->size);
        if (larger == NULL)
            return NULL;
        if (array->count > 0)
            memcpy(larger, array->items, array->count * array->size);
        allocator_give(allocator, array->items, array->capacity * array->size);
        array->items = larger;
        array->capacity = capacity;
    }
    void *item = (char *)array->items + array->count++ * array->size;
    memset(item, 0, array->size);
    return item;
}

void bpe_array_free(const avo_allocator *allocator, bpe_array *array) {
    allocator_give(allocator, array->items, array->capacity * array->size);
    array->items = NULL;
    array->count = array->capacity = 0;
}

static avo_status no_memory(avo_error *error) {
    return status_fail(error, AVO_ERROR_MEMORY, "out of memory for the words of a vocabulary");
}

/* The slot of a word: its own, or a free one. */
static size_t find_slot(const train_bpe *bpe, const char *text, size_t size) {
    size_t mask = bpe->slot_count - 1;
    size_t slot = (size_t)hash_key(text, size) & mask;
    while (bpe->slots[slot] != 0) {
        const bpe_word *word = &bpe_words(bpe)[bpe->slots[slot] - 1];
        if (word->size == size && memcmp(word->text, text, size) == 0)
            break;
        slot = (slot + 1) & mask;
    }
    return slot;
}

static avo_status grow_slots(train_bpe *bpe, avo_error *error) {
    size_t count = bpe->slot_count == 0 ? 4096 : bpe->slot_count * 2;
    uint32_t *slots = allocator_take_array(bpe->options.allocator, count, sizeof(*slots));
    if (slots == NULL)
        return no_memory(error);
    allocator_give(bpe->options.allocator, bpe->slots, bpe->slot_count * sizeof(*slots));
    bpe->slots = slots;
    bpe->slot_count = count;
    for (size_t i = 0; i < bpe->words.count; i++)
        slots[find_slot(bpe, bpe_words(bpe)[i].text, bpe_words(bpe)[i].size)] = (uint32_t)i + 1;
    return AVO_OK;
}

static avo_status add_word(train_bpe *bpe, const char *text, size_t size, avo_error *error) {
    if (bpe->words.count * 2 >= bpe->slot_count)
        AVO_TRY(grow_slots(bpe, error));
    size_t slot = find_slot(bpe, text, size);
    if (bpe->slots[slot] == 0) {
        if (bpe->words.count == BPE_WORDS_MAX)
            return status_fail(error, AVO_ERROR_LIMIT,
                               "the texts have more than %llu different words",
                               (unsigned long long)BPE_WORDS_MAX);
        char *copy = arena_copy_text(&bpe->arena, text, size);
        bpe_word *word = copy == NULL ? NULL : bpe_array_add(bpe->options.allocator, &bpe->words);
        if (word == NULL)
            return no_memory(error);
        word->text = copy;
        word->size = (uint32_t)size;
        bpe->slots[slot] = (uint32_t)bpe->words.count;
    }
    bpe_words(bpe)[bpe->slots[slot] - 1].count++;
    return AVO_OK;
}

avo_status train_bpe_add(train_bpe *bpe, text_view text, avo_error *error) {
    if (bpe->ran)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the vocabulary is made, no text can be added");
    if (utf8_valid_prefix(text.data, text.size) != text.size)
        return status_fail(error, AVO_ERROR_FORMAT, "the text is not valid UTF-8");
    bpe->bytes += text.size;
    while (text.size > 0) {
        size_t size = word_pattern_next(bpe->options.pattern, text);
        for (size_t at = 0; at < size; at += BPE_WORD_MAX)
            AVO_TRY(add_word(bpe, text.data + at,
                             size - at < BPE_WORD_MAX ? size - at : BPE_WORD_MAX, error));
        text.data += size;
        text.size -= size;
    }
    return AVO_OK;
}

/* ---- Data files ---- */

typedef struct file_context {
    train_bpe *bpe;
    data_form form;
    bool found;
} file_context;

static avo_status add_messages(train_bpe *bpe, const json_value *list, avo_error *error) {
    for (size_t i = 0; i < list->array.count; i++) {
        const json_value *content = json_find(&list->array.items[i], "content");
        if (content != NULL && content->kind == JSON_STRING)
            AVO_TRY(train_bpe_add(bpe, content->string, error));
    }
    return AVO_OK;
}

static avo_status add_item(void *context, arena *arena, const json_value *item, avo_error *error) {
    file_context *file = context;
    data_words words;
    if (!file->found)
        AVO_TRY(data_form_find(TRAIN_FOR_PRETRAIN, item, &file->form, error));
    file->found = true;
    AVO_TRY(data_form_read(&file->form, arena, item, false, NULL, &words, error));
    const text_view texts[] = {words.text, words.prompt_text, words.answer_text};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].size > 0)
            AVO_TRY(train_bpe_add(file->bpe, texts[i], error));
    AVO_TRY(add_messages(file->bpe, &words.prompt, error));
    return add_messages(file->bpe, &words.answer, error);
}

avo_status train_bpe_add_file(train_bpe *bpe, const char *path, avo_error *error) {
    file_context context = {.bpe = bpe};
    data_reader reader = {.allocator = bpe->options.allocator,
                          .path = path,
                          .use = add_item,
                          .context = &context,
                          .progress = bpe->options.progress,
                          .progress_context = bpe->options.progress_context};
    return data_read(&reader, error);
}
