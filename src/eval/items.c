/* Documents and prompts, put together as lm-eval does: each shot is prompt, delimiter, answer, and
 * the shots' delimiter; the last prompt has no answer. */
#include "eval/items.h"

#include "eval/python_random.h"

#include <string.h>

typedef struct builder {
    const eval_task *task;
    const eval_documents *documents, *shots;
    eval_items *items;
    buffer text, answer; /* scratch */
    python_random random;
    avo_error *error;
} builder;

/* ---- Documents ---- */

static bool next_line(text_view *rest, text_view *line, uint32_t *number) {
    while (rest->size > 0) {
        const char *end = memchr(rest->data, '\n', rest->size);
        line->data = rest->data;
        line->size = end == NULL ? rest->size : (size_t)(end - rest->data);
        size_t taken = line->size + (end == NULL ? 0 : 1);
        rest->data += taken;
        rest->size -= taken;
        ++*number;
        *line = text_strip(*line);
        if (line->size > 0)
            return true;
    }
    return false;
}

avo_status documents_open(text_view text, const char *label, uint32_t limit,
                          const avo_allocator *allocator, eval_documents *documents,
                          avo_error *error) {
    text_view rest = text, line;
    uint32_t number = 0;
    *documents = (eval_documents){0};
    arena_init(&documents->arena, allocator, SIZE_MAX);
    while (documents->total < DOCUMENTS_MAX && next_line(&rest, &line, &number))
        documents->total++;
    uint32_t count = limit == 0 || limit > documents->total ? documents->total : limit;
    if (count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s has no documents", label);
    documents->document = arena_take_array(&documents->arena, count, sizeof(json_value));
    avo_status status = documents->document == NULL
                            ? status_no_memory(error, "documents", count * sizeof(json_value))
                            : AVO_OK;
    rest = text;
    number = 0;
    while (status == AVO_OK && documents->count < count && next_line(&rest, &line, &number)) {
        json_value *document = &documents->document[documents->count];
        status = json_parse(&documents->arena, line, document, error);
        if (status != AVO_OK)
            status = status_prefix(error, status, "%s: document in line %u", label, number);
        else if (document->kind != JSON_OBJECT)
            status = status_fail(error, AVO_ERROR_FORMAT,
                                 "%s: the document in line %u must be an object, found %s", label,
                                 number, json_kind_name(document->kind));
        documents->count += status == AVO_OK;
    }
    if (status != AVO_OK)
        documents_close(documents);
    return status;
}

void documents_close(eval_documents *documents) {
    arena_free(&documents->arena);
    *documents = (eval_documents){0};
}

/* ---- One item ---- */

static avo_status append(builder *b, text_view text) {
    if (buffer_append(&b->text, text.data, text.size) != AVO_OK)
        return status_no_memory(b->error, "a prompt", b->text.size + text.size);
    return AVO_OK;
}

static avo_status keep(builder *b, text_view text, text_view *out) {
    const char *copy = arena_copy_text(&b->items->arena, text.data, text.size);
    if (copy == NULL)
        return status_no_memory(b->error, "a prompt", text.size);
    *out = (text_view){copy, text.size};
    return AVO_OK;
}

/* Renders into the scratch buffer `answer`. */
static avo_status render(builder *b, const task_template *template, const json_value *document) {
    b->answer.size = 0;
    return task_render(template, document, NULL, &b->answer, b->error);
}

static avo_status parse_choices(builder *b, eval_item *item) {
    arena scratch;
    json_value root;
    arena_init(&scratch, b->items->arena.allocator, SIZE_MAX);
    avo_status status = json_parse(&scratch, buffer_text(&b->answer), &root, b->error);
    bool good = status == AVO_OK && root.kind == JSON_ARRAY && root.array.count >= 2 &&
                root.array.count <= TASK_CHOICES_MAX;
    for (size_t i = 0; good && i < root.array.count; i++)
        good = root.array.items[i].kind == JSON_STRING;
    if (!good && status != AVO_ERROR_MEMORY)
        status =
            status_fail(b->error, AVO_ERROR_FORMAT,
                        "\"choices\" must give a JSON array of 2 to %d strings (use the filter "
                        "tojson), found %.*s",
                        TASK_CHOICES_MAX, TEXT_ARGUMENT(buffer_text(&b->answer)));
    if (status == AVO_OK) {
        item->choices = (uint32_t)root.array.count;
        item->choice = arena_take_array(&b->items->arena, item->choices, sizeof(text_view));
        if (item->choice == NULL)
            status = status_no_memory(b->error, "choices", item->choices * sizeof(text_view));
    }
    for (uint32_t i = 0; status == AVO_OK && i < item->choices; i++)
        status = keep(b, root.array.items[i].string, &item->choice[i]);
    arena_free(&scratch);
    return status;
}

static avo_status build_choices(builder *b, const json_value *document, eval_item *item) {
    const eval_task *task = b->task;
    if (task->choices.parsed != NULL) {
        AVO_TRY(render(b, &task->choices, document));
        return parse_choices(b, item);
    }
    item->choice = arena_take_array(&b->items->arena, task->choice_count, sizeof(text_view));
    if (item->choice == NULL)
        return status_no_memory(b->error, "choices", task->choice_count * sizeof(text_view));
    item->choices = task->choice_count;
    for (uint32_t i = 0; i < item->choices; i++) {
        AVO_TRY(render(b, &task->choice[i], document));
        AVO_TRY(keep(b, buffer_text(&b->answer), &item->choice[i]));
    }
    return AVO_OK;
}

/* The target of a choice is its number, from 0, or its text. */
static avo_status find_gold(builder *b, const json_value *document, eval_item *item) {
    AVO_TRY(render(b, &b->task->target, document));
    text_view target = buffer_text(&b->answer);
    uint64_t number = 0;
    bool digits = target.size > 0 && target.size < 6;
    for (size_t i = 0; i < target.size && digits; i++) {
        digits = target.data[i] >= '0' && target.data[i] <= '9';
        number = number * 10 + (uint64_t)(target.data[i] - '0');
    }
    for (uint32_t i = 0; !digits && i < item->choices; i++)
        if (text_equal(target, item->choice[i])) {
            item->gold = i;
            return AVO_OK;
        }
    if (!digits || number >= item->choices)
        return status_fail(b->error, AVO_ERROR_FORMAT,
                           "\"target\" is \"%.*s\", must be one of the choices or its number, 0 to "
                           "%u",
                           TEXT_ARGUMENT(target), item->choices - 1);
    item->gold = (uint32_t)number;
    return AVO_OK;
}

static avo_status build_answer(builder *b, const json_value *document, eval_item *item) {
    if (b->task->kind == TASK_CHOICE) {
        AVO_TRY(build_choices(b, document, item));
        return find_gold(b, document, item);
    }
    item->target = (text_view){"", 0};
    if (b->task->target.parsed == NULL)
        return AVO_OK;
    AVO_TRY(render(b, &b->task->target, document));
    return keep(b, buffer_text(&b->answer), &item->target);
}

static avo_status append_prompt(builder *b, const json_value *document) {
    return task_render(&b->task->prompt, document, NULL, &b->text, b->error);
}

/* ---- Shots ---- */

static const json_value *shot_document(const builder *b, uint32_t index) {
    return b->task->shot_examples != NULL ? &b->task->shot_examples->array.items[index]
                                          : &b->shots->document[index];
}

static avo_status append_shot(builder *b, const json_value *document) {
    eval_item shot = {0};
    if (document->kind != JSON_OBJECT)
        return status_fail(b->error, AVO_ERROR_FORMAT, "must be an object, found %s",
                           json_kind_name(document->kind));
    AVO_TRY(append_prompt(b, document));
    AVO_TRY(build_answer(b, document, &shot));
    AVO_TRY(append(b, b->task->delimiter));
    AVO_TRY(append(b, b->task->kind == TASK_CHOICE ? shot.choice[shot.gold] : shot.target));
    return append(b, b->task->shots_delimiter);
}

static avo_status append_shots(builder *b) {
    const eval_task *task = b->task;
    uint32_t drawn[TASK_SHOTS_MAX];
    if (task->shots == 0)
        return AVO_OK;
    uint32_t available =
        task->shot_examples != NULL ? (uint32_t)task->shot_examples->array.count : b->shots->count;
    if (available < task->shots)
        return status_fail(b->error, AVO_ERROR_ARGUMENT,
                           "the task needs %u shots, of which there are only %u", task->shots,
                           available);
    for (uint32_t i = 0; i < task->shots; i++)
        drawn[i] = i;
    if (task->shots_random)
        python_random_sample(&b->random, available, task->shots, drawn);
    for (uint32_t i = 0; i < task->shots; i++) {
        avo_status status = append_shot(b, shot_document(b, drawn[i]));
        if (status != AVO_OK)
            return status_prefix(b->error, status, "shot %u", drawn[i] + 1);
    }
    return AVO_OK;
}

static avo_status build_item(builder *b, const json_value *document, eval_item *item) {
    b->text.size = 0;
    AVO_TRY(append_shots(b));
    AVO_TRY(append_prompt(b, document));
    AVO_TRY(keep(b, buffer_text(&b->text), &item->context));
    item->prefix = (text_view){"", 0};
    if (b->task->prefix.parsed != NULL) {
        AVO_TRY(render(b, &b->task->prefix, document));
        AVO_TRY(keep(b, buffer_text(&b->answer), &item->prefix));
    }
    return build_answer(b, document, item);
}

/* ---- All ---- */

static avo_status build_items(builder *b) {
    eval_items *items = b->items;
    uint32_t count = b->documents->count;
    items->item = arena_take_array(&items->arena, count, sizeof(eval_item));
    if (items->item == NULL)
        return status_no_memory(b->error, "items", count * sizeof(eval_item));
    for (; items->count < count; items->count++) {
        eval_item *item = &items->item[items->count];
        avo_status status = build_item(b, &b->documents->document[items->count], item);
        if (status != AVO_OK)
            return status_prefix(b->error, status, "document %u", items->count + 1);
        item->first_query = items->query_count;
        item->queries = b->task->kind == TASK_CHOICE ? item->choices : 1;
        items->query_count += item->queries;
    }
    return AVO_OK;
}

avo_status items_open(const eval_task *task, const eval_documents *documents,
                      const eval_documents *shots, const items_options *options,
                      const avo_allocator *allocator, eval_items *items, avo_error *error) {
    *items = (eval_items){0};
    arena_init(&items->arena, allocator, SIZE_MAX);
    builder b = {
        .task = task, .documents = documents, .shots = shots, .items = items, .error = error};
    buffer_init(&b.text, allocator, SIZE_MAX);
    buffer_init(&b.answer, allocator, SIZE_MAX);
    python_random_seed(&b.random, task->shots_seed);
    avo_status status = build_items(&b);
    buffer_free(&b.text);
    buffer_free(&b.answer);
    AVO_THEN(status, items_tokenize(task, options, items, error));
    if (status != AVO_OK)
        items_close(items);
    return status;
}

void items_close(eval_items *items) {
    arena_free(&items->arena);
    *items = (eval_items){0};
}
