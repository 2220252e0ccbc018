/* A task file, then a zero byte and documents: what is accepted is rendered, filtered and compared.
 * Few documents, so that nothing takes long. */
#include "eval/items.h"

#include <stdlib.h>
#include <string.h>

#define DOCUMENTS 3

static const char fixed[] = "{\"q\": \"Why?\", \"query\": \"Why?\", \"choices\": [\"a\", \"b\"], "
                            "\"gold\": 1, \"answer\": \"It is 3.\\n#### 3\"}";

static void use(const eval_task *task, const json_value *document) {
    static const char answer[] = " It is $1,234.5.\n#### -7 \xc3\xa4\xff``` 3";
    text_view response = TEXT_LITERAL(answer), result;
    const task_template *const templates[] = {&task->prompt, &task->choices, &task->target,
                                              &task->prefix, &task->program};
    avo_error error;
    bool same;
    buffer text;
    buffer_init(&text, NULL, (size_t)8 << 20);
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++)
        if (templates[i]->parsed != NULL &&
            task_render(templates[i], document, &response, &text, &error) != AVO_OK &&
            strstr(error.text, templates[i]->key) == NULL)
            abort();
    for (uint32_t i = 0; i < task->filters; i++)
        if (task_filter_apply(&task->filter[i], response, &result, &error) == AVO_OK &&
            task_exact_match(task, result, buffer_text(&text), &same, &error) == AVO_OK && same &&
            task_exact_match(task, buffer_text(&text), result, &same, &error) == AVO_OK && !same)
            abort();
    buffer_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size == 0 ? NULL : memchr(data, 0, size);
    text_view json = {(const char *)data, zero == NULL ? size : (size_t)(zero - data)};
    text_view lines = zero == NULL ? TEXT_LITERAL(fixed)
                                   : (text_view){(const char *)zero + 1, size - json.size - 1};
    eval_task *task = NULL;
    eval_documents documents;
    avo_error error;
    if (task_open(json, "task", NULL, &task, &error) != AVO_OK)
        return 0;
    char name[TASK_SCORE_NAME_MAX];
    for (uint32_t i = 0; i < task_scores(task); i++)
        if (strchr(task_score_name(task, i, "", name), ',') == NULL)
            abort();
    if (documents_open(lines, "documents", DOCUMENTS, NULL, &documents, &error) == AVO_OK) {
        for (uint32_t i = 0; i < documents.count; i++)
            use(task, &documents.document[i]);
        documents_close(&documents);
    }
    task_close(task);
    return 0;
}
