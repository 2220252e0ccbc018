/* Prompts with a gap, for models that were trained to fill it in: their special tokens mark what is
 * before the gap, behind it, and where the answer begins. */
#include "server/api/api_int.h"

#include <stdio.h>

#define EXTRA_MAX 64 /* other files */

typedef enum infill_mark {
    MARK_PREFIX,
    MARK_SUFFIX,
    MARK_MIDDLE,
    MARK_REPO,
    MARK_FILE
} infill_mark;
#define MARKS 5

/* Of each family; the last two are for other files, and may be missing. */
static const char *const families[][MARKS] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     NULL, NULL},
};

/* -1: the text is no special token. */
static int32_t find_mark(const api *api, const char *text) {
    int32_t ids[2];
    size_t count = 0;
    if (text == NULL ||
        avo_tokenize(api->model, text, strlen(text), AVO_TOKENIZE_SPECIAL, ids, 2, &count, NULL) !=
            AVO_OK ||
        count != 1)
        return -1;
    int32_t plain[2];
    size_t plain_count = 0;
    avo_status status =
        avo_tokenize(api->model, text, strlen(text), 0, plain, 2, &plain_count, NULL);
    bool special = status != AVO_OK || plain_count != 1 || plain[0] != ids[0];
    return special ? ids[0] : -1;
}

static bool find_marks(const api *api, int32_t marks[MARKS]) {
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        for (size_t m = 0; m < MARKS; m++)
            marks[m] = find_mark(api, families[i][m]);
        if (marks[MARK_PREFIX] >= 0 && marks[MARK_SUFFIX] >= 0 && marks[MARK_MIDDLE] >= 0)
            return true;
    }
    return false;
}

typedef struct infill_prompt {
    const api *api;
    int32_t marks[MARKS];
    id_list ids;
    api_fault *fault;
    const char *param;
} infill_prompt;

static bool add_text(infill_prompt *p, const char *text) {
    avo_error error = {0};
    if (text == NULL || text[0] == '\0' ||
        model_encode_text(p->api->model, NULL, text_from(text), 0, &p->ids, &error) == AVO_OK)
        return true;
    fault_from_error(p->fault, &error, p->param);
    return false;
}

static bool add_mark(infill_prompt *p, infill_mark mark) {
    return id_list_append(&p->ids, p->marks[mark]) == AVO_OK || fault_no_memory(p->fault);
}

/* One of input_extra: behind its name where the model knows files, else behind a line of dashes. */
static bool add_file(infill_prompt *p, api_request *r, const json_value *file, size_t index) {
    const char *name = NULL, *text = NULL;
    char param[64];
    snprintf(param, sizeof(param), "input_extra[%zu]", index);
    const json_value *given = json_find(file, "filename"), *content = json_find(file, "text");
    if (content == NULL)
        return fault_set(p->fault, 400, param, "missing_required_parameter",
                         "%s must be an object with text and filename", param);
    if ((given != NULL &&
         !api_read_string(given, param, API_PATH_BYTES_MAX, &r->arena, &name, p->fault)) ||
        !api_read_string(content, param, API_TEXT_BYTES_MAX, &r->arena, &text, p->fault))
        return false;
    if (p->marks[MARK_FILE] < 0)
        return add_text(p, "\n\n--- snippet ---\n\n") && add_text(p, text);
    return add_mark(p, MARK_FILE) && add_text(p, name == NULL ? "tmp" : name) &&
           add_text(p, "\n") && add_text(p, text);
}

static bool add_files(infill_prompt *p, api_request *r) {
    const json_value *extra = api_field_of(r, "input_extra");
    if (extra == NULL)
        return true;
    if (extra->kind != JSON_ARRAY || extra->array.count > EXTRA_MAX)
        return FAULT_FIELD(p->fault, "input_extra",
                           "input_extra must be a list of at most %d files", EXTRA_MAX);
    bool known = extra->array.count > 0 && p->marks[MARK_FILE] >= 0;
    if (known && p->marks[MARK_REPO] >= 0 &&
        (!add_mark(p, MARK_REPO) || !add_text(p, "myproject\n")))
        return false;
    for (size_t i = 0; i < extra->array.count; i++)
        if (!add_file(p, r, &extra->array.items[i], i))
            return false;
    return !known || (add_mark(p, MARK_FILE) && add_text(p, "filename\n"));
}

static bool write_prompt(infill_prompt *p, api_request *r) {
    bool own = r->body == BODY_INFILL;
    const char *prefix = own ? r->input_prefix : r->content;
    avo_error error = {0};
    if (model_encode_text(p->api->model, NULL, (text_view){"", 0}, AVO_TOKENIZE_BEGIN, &p->ids,
                          &error) != AVO_OK)
        return fault_no_memory(p->fault);
    return add_files(p, r) && add_mark(p, MARK_PREFIX) && add_text(p, prefix) &&
           (!own || add_text(p, r->content)) && add_mark(p, MARK_SUFFIX) &&
           add_text(p, r->input_suffix) && add_mark(p, MARK_MIDDLE);
}

bool infill_read(const api *api, api_request *r, api_fault *fault) {
    infill_prompt p = {.api = api, .fault = fault, .param = body_prompt(r)};
    if (!find_marks(api, p.marks))
        return fault_set(fault, 400, r->body == BODY_INFILL ? "input_suffix" : "suffix",
                         "unsupported_parameter",
                         "this model has no tokens for filling in the middle");
    id_list_init(&p.ids, NULL);
    bool good = write_prompt(&p, r);
    if (good && p.ids.count + 1 > api->context)
        good = fault_set(fault, 400, p.param, "context_length_exceeded",
                         "the prompt has %zu tokens and the answer needs at least one, the "
                         "context holds %u",
                         p.ids.count, api->context);
    r->prompts = arena_take_array(&r->arena, 1, sizeof(*r->prompts));
    int32_t *copy = arena_take_array(&r->arena, p.ids.count + 1, sizeof(*copy));
    if (good && (r->prompts == NULL || copy == NULL))
        good = fault_no_memory(fault);
    if (good) {
        memcpy(copy, p.ids.ids, p.ids.count * sizeof(*copy));
        r->prompts[0] = (api_prompt){.tokens = copy, .token_count = p.ids.count};
        r->prompt_count = 1;
    }
    id_list_free(&p.ids);
    return good;
}
