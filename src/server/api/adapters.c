/* Adapters: which ones a request asks for, and endpoints that load, unload and list them. */
#include "server/api/api_int.h"
#include "server/api/helpers.h"
#include "server/keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of an adapter's weight, for a key that may not use the base model. */
#define ADAPTER_WEIGHT_MIN 0.01f

#define ADAPTER_BASE "base" /* what keys and metrics call the model without adapters */

/* ---- What there is ---- */

typedef struct name_search {
    const char *name;
    const char *path; /* NULL: any */
    bool found;
    buffer *list; /* NULL: not wanted */
    const server_key *key;
} name_search;

static void see_name(void *context, const avo_registry_entry *entry) {
    name_search *search = context;
    if (search->name != NULL && strcmp(entry->name, search->name) == 0 &&
        (search->path == NULL || strcmp(entry->path, search->path) == 0))
        search->found = true;
    if (search->list != NULL && search->list->size < 400 &&
        server_key_allows_adapter(search->key, entry->name))
        (void)!buffer_format(search->list, ", %s", entry->name);
}

static bool adapter_known_from(const api *api, const char *name, const char *path) {
    name_search search = {.name = name, .path = path};
    if (api->registry != NULL)
        avo_registry_list(api->registry, see_name, &search);
    return search.found;
}

static bool adapter_known(const api *api, const char *name) {
    return adapter_known_from(api, name, NULL);
}

bool adapter_is_known(const void *api, const char *name) {
    return adapter_known(api, name);
}

static bool unknown(const api *api, const char *name, const char *param, const server_key *key,
                    api_fault *fault) {
    buffer list;
    buffer_init(&list, NULL, 1024);
    name_search search = {.list = &list, .key = key};
    if (api->registry != NULL)
        avo_registry_list(api->registry, see_name, &search);
    text_view names = buffer_text(&list);
    (void)fault_set(fault, 404, param, "model_not_found",
                    "%s: no model is named \"%.100s\"; available: %s%.*s", param, name,
                    api->options->model_name, (int)names.size, names.data);
    buffer_free(&list);
    return false;
}

/* ---- Numbers, for llama.cpp's clients ---- */

static bool number_of(api *api, const char *name, uint32_t *number) {
    for (uint32_t i = 0; i < api->adapter_count; i++)
        if (strcmp(api->adapters[i].name, name) == 0) {
            *number = i;
            return true;
        }
    if (api->adapter_count >= API_ADAPTERS_KNOWN)
        return false;
    if (api->adapter_count == api->adapter_capacity) {
        uint32_t larger = api->adapter_capacity == 0 ? 16 : api->adapter_capacity * 2;
        numbered_adapter *moved = realloc(api->adapters, larger * sizeof(*moved));
        if (moved == NULL)
            return false;
        api->adapters = moved;
        api->adapter_capacity = larger;
    }
    char *copy = strdup(name);
    if (copy == NULL)
        return false;
    *number = api->adapter_count++;
    api->adapters[*number] = (numbered_adapter){copy, 0.0};
    return true;
}

static void see_number(void *context, const avo_registry_entry *entry) {
    uint32_t ignored;
    (void)number_of(context, entry->name, &ignored);
}

void adapters_number(api *api) {
    uint32_t ignored;
    for (size_t i = 0; i < api->options->adapter_name_count; i++)
        (void)number_of(api, api->options->adapter_names[i], &ignored);
}

/* Whatever the registry knows has a number, which its name keeps, even while it is unloaded: those
 * of the command line in their order, then as they are loaded. The lock is held. */
static void number_all(api *api) {
    if (api->registry != NULL)
        avo_registry_list(api->registry, see_number, api);
}

void adapters_forget(api *api) {
    for (uint32_t i = 0; i < api->adapter_count; i++)
        free(api->adapters[i].name);
    free(api->adapters);
}

/* ---- Of a request ---- */

static bool add_adapter(api *api, const char *asked, double weight, const char *param,
                        const server_key *key, api_request *r, api_fault *fault) {
    char own[KEY_ADAPTER_MAX];
    const char *name = server_key_adapter(key, asked, adapter_is_known, api, own);
    if (!adapter_known(api, name) || !server_key_allows_adapter(key, name))
        return unknown(api, asked, param, key, fault);
    if (r->submit.named_adapter_count >= AVO_ADAPTERS_MAX)
        return FAULT_FIELD(fault, param, "%s: more than %d adapters", param, AVO_ADAPTERS_MAX);
    for (size_t i = 0; i < r->submit.named_adapter_count; i++)
        if (strcmp(r->adapters[i].name, name) == 0)
            return FAULT_FIELD(fault, param, "%s: \"%s\" appears twice", param, name);
    const char *copy = arena_copy_text(&r->arena, name, strlen(name));
    if (copy == NULL)
        return fault_no_memory(fault);
    r->adapters[r->submit.named_adapter_count++] = (avo_named_adapter){copy, (float)weight};
    return true;
}

static bool is_list(const json_value *value, const char *param, api_fault *fault) {
    if (value->kind != JSON_ARRAY)
        return fault_set(fault, 400, param, "invalid_type", "%s must be an array, found %s", param,
                         json_kind_name(value->kind));
    if (value->array.count > 1024)
        return FAULT_FIELD(fault, param, "%s has too many entries (%zu)", param,
                           value->array.count);
    return true;
}

static bool read_use(const json_value *item, api_request *r, const char **name, double *weight,
                     api_fault *fault) {
    chat_fault wrong = {0};
    text_view text = {"", 0};
    if (!chat_adapter_read(item, &text, weight, &wrong))
        return fault_from_chat(fault, &wrong);
    *name = arena_copy_text(&r->arena, text.data, text.size);
    return *name != NULL || fault_no_memory(fault);
}

static bool is_usable(const api *api, const server_key *key, const char *asked) {
    char own[KEY_ADAPTER_MAX];
    const char *name = server_key_adapter(key, asked, adapter_is_known, api, own);
    return adapter_known(api, name) && server_key_allows_adapter(key, name);
}

static bool read_weighted(api *api, const json_value *list, const server_key *key, api_request *r,
                          api_fault *fault) {
    const json_value *one = api_field_of(r, "adapter");
    if (one != NULL && list != NULL)
        return FAULT_FIELD(fault, "adapter", "give \"adapter\" or \"adapters\", not both");
    if (list != NULL && !is_list(list, "adapters", fault))
        return false;
    for (size_t i = 0; i < (one != NULL ? 1 : list->array.count); i++) {
        const char *text = NULL;
        double number = 1.0;
        if (!read_use(one != NULL ? one : &list->array.items[i], r, &text, &number, fault))
            return false;
        if (number == 0.0 && is_usable(api, key, text))
            continue;
        if (!add_adapter(api, text, number, "adapters", key, r, fault))
            return false;
    }
    return true;
}

/* The name of a number, copied; NULL: there is none. */
static const char *name_of(api *api, int64_t number, arena *arena) {
    const char *copy = NULL;
    pthread_mutex_lock(&api->lock);
    number_all(api);
    if (number < api->adapter_count) {
        const char *name = api->adapters[number].name;
        copy = arena_copy_text(arena, name, strlen(name));
    }
    pthread_mutex_unlock(&api->lock);
    return copy;
}

/* `list`: what the list is called in the body, "" where it is the body. */
static bool read_scale(const json_value *item, const char *list, size_t index, int64_t *id,
                       double *scale, api_fault *fault) {
    const json_value *number = json_find(item, "id");
    const json_value *factor = json_find(item, "scale");
    char param[64];
    snprintf(param, sizeof(param), "%s[%zu]", list, index);
    if (number == NULL || factor == NULL)
        return fault_set(fault, 400, param, "missing_required_parameter",
                         "%s: an entry must be an object with id and scale", param);
    snprintf(param, sizeof(param), "%s[%zu].id", list, index);
    if (!api_read_integer(number, param, 0, API_ADAPTERS_KNOWN, id, fault))
        return false;
    snprintf(param, sizeof(param), "%s[%zu].scale", list, index);
    return api_read_number(factor, param, CHAT_ADAPTER_WEIGHT, scale, fault);
}

static bool no_number(const char *list, size_t index, int64_t id, api_fault *fault) {
    char param[64];
    snprintf(param, sizeof(param), "%s[%zu].id", list, index);
    return FAULT_FIELD(fault, param, "%s: no adapter has id %lld", param, (long long)id);
}

static bool read_numbered(api *api, const json_value *list, const server_key *key, api_request *r,
                          api_fault *fault) {
    if (!is_list(list, "lora", fault))
        return false;
    for (size_t i = 0; i < list->array.count; i++) {
        int64_t id = 0;
        double scale = 0.0;
        if (!read_scale(&list->array.items[i], "lora", i, &id, &scale, fault))
            return false;
        const char *name = name_of(api, id, &r->arena);
        if (name == NULL || (strchr(name, ':') != NULL && !server_key_allows_adapter(key, name)))
            return no_number("lora", i, id, fault); /* the name of another key's is not told */
        if (scale != 0.0 && !add_adapter(api, name, scale, "lora", key, r, fault))
            return false;
    }
    return true;
}

/* What POST /lora-adapters has set, for requests that choose nothing. */
static bool add_defaults(api *api, const server_key *key, api_request *r, api_fault *fault) {
    avo_named_adapter wanted[AVO_ADAPTERS_MAX];
    size_t count = 0;
    bool good = true;
    pthread_mutex_lock(&api->lock);
    for (uint32_t i = 0; i < api->adapter_count && count < AVO_ADAPTERS_MAX; i++) {
        const numbered_adapter *adapter = &api->adapters[i];
        if (adapter->scale == 0.0)
            continue;
        wanted[count].name = arena_copy_text(&r->arena, adapter->name, strlen(adapter->name));
        wanted[count].weight = (float)adapter->scale;
        good = good && wanted[count++].name != NULL;
    }
    pthread_mutex_unlock(&api->lock);
    if (!good)
        return fault_no_memory(fault);
    for (size_t i = 0; i < count; i++) /* a key that may not use one has the base without it */
        if (adapter_known(api, wanted[i].name) && server_key_allows_adapter(key, wanted[i].name) &&
            !add_adapter(api, wanted[i].name, (double)wanted[i].weight, "model", key, r, fault))
            return false;
    return true;
}

bool adapters_read(api *api, const server_key *key, api_request *r, api_fault *fault) {
    const char *base = api->options->model_name;
    const json_value *weighted = api_field_of(r, "adapters"), *numbered = api_field_of(r, "lora");
    bool named = weighted != NULL || api_field_of(r, "adapter") != NULL;
    if (r->model == NULL || r->model[0] == '\0')
        r->model = base; /* outlives all requests */
    bool chosen = strcmp(r->model, base) != 0;
    if (chosen && !add_adapter(api, r->model, 1.0, "model", key, r, fault))
        return false;
    if ((named || numbered != NULL) && chosen)
        return FAULT_FIELD(fault, named ? "adapters" : "lora", "model already selects an adapter");
    if (named && !read_weighted(api, weighted, key, r, fault))
        return false;
    if (numbered != NULL && !read_numbered(api, numbered, key, r, fault))
        return false;
    if (!chosen && !named && numbered == NULL && !add_defaults(api, key, r, fault))
        return false;
    bool adapted = false; /* with next to no weight the base answers */
    for (size_t i = 0; i < r->submit.named_adapter_count; i++)
        adapted = adapted || fabsf(r->adapters[i].weight) >= ADAPTER_WEIGHT_MIN;
    if (!adapted && !server_key_allows_adapter(key, NULL))
        return fault_set(fault, 403, "model", "model_not_allowed",
                         "this key may not use the base model %s", base);
    return true;
}

/* ---- Endpoints ---- */

typedef struct load_job {
    exchange *exchange;
    api_request *request; /* without a path: unload */
    const char *name;     /* in the registry; of the request's arena, as the path */
    const char *path;
} load_job;

typedef struct owned_count {
    const server_key *key;
    const char *but; /* this one is not counted */
    uint32_t count;
} owned_count;

static void count_owned(void *context, const avo_registry_entry *entry) {
    owned_count *owned = context;
    owned->count +=
        server_key_owns(owned->key, entry->name) && strcmp(entry->name, owned->but) != 0;
}

static bool is_below(const char *path) {
    const char *at = path;
    while (at != NULL && *at != '\0') {
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return false;
        at = strchr(at, '/');
        at = at == NULL ? NULL : at + 1;
    }
    return path[0] != '/' && path[0] != '\0';
}

/* "NAME" of a key means "KEY:NAME", from the folder KEY of --adapter-root. */
static bool own_path(const api *api, const server_key *key, load_job *job, api_fault *fault) {
    api_request *r = job->request;
    char path[API_PATH_BYTES_MAX + KEY_NAME_MAX + 2];
    if (api->options->adapter_root == NULL)
        return fault_set(fault, 400, NULL, "no_adapters",
                         "adapters of keys need a server that was started with --adapter-root");
    if (!is_below(r->lora_path))
        return FAULT_FIELD(fault, "lora_path",
                           "lora_path must be relative to the folder of this key's adapters, "
                           "without \"..\"");
    owned_count owned = {.key = key, .but = job->name};
    avo_registry_list(api->registry, count_owned, &owned);
    if (owned.count >= server_key_own_adapters(key))
        return FAULT_FIELD(fault, "lora_name", "this key may have at most %u adapters loaded",
                           server_key_own_adapters(key));
    snprintf(path, sizeof(path), "%s/%s", server_key_name(key), r->lora_path);
    job->path = arena_copy_text(&r->arena, path, strlen(path));
    return job->path != NULL || fault_no_memory(fault);
}

/* What the registry calls it, and where it lies. */
static bool name_load(const api *api, const exchange_request *asked, load_job *job,
                      api_fault *fault) {
    api_request *r = job->request;
    const server_key *key = asked->key;
    char name[API_NAME_BYTES_MAX + KEY_NAME_MAX + 2];
    job->name = r->lora_name;
    job->path = r->lora_path;
    if (asked->may_administer)
        return true;
    const char *plain = r->lora_name;
    if (server_key_owns(key, plain))
        plain += strlen(server_key_name(key)) + 1;
    if (strchr(plain, ':') != NULL)
        return FAULT_FIELD(fault, "lora_name", "lora_name must not contain \":\"");
    snprintf(name, sizeof(name), "%s:%s", server_key_name(key), plain);
    job->name = arena_copy_text(&r->arena, name, strlen(name));
    if (job->name == NULL)
        return fault_no_memory(fault);
    return r->lora_path == NULL || own_path(api, key, job, fault);
}

static void load_close(load_job *job) {
    exchange_release(job->exchange);
    api_request_free(job->request);
    free(job);
}

static void load_run(api *api, void *context) {
    load_job *job = context;
    const char *name = job->name, *path = job->path;
    avo_error error = {0};
    /* A new version from the same place, as training makes them every few seconds, is in the access
     * log alone. */
    bool again = path != NULL && adapter_known_from(api, name, path);
    avo_status status = path != NULL ? avo_registry_load(api->registry, name, path, 0, &error)
                                     : avo_registry_unload(api->registry, name, &error);
    helper_finished(api);
    api_audit(api, job->exchange, path != NULL ? "load_adapter" : "unload_adapter", name,
              status == AVO_OK ? NULL : error.text);
    if (status != AVO_OK) {
        unsigned http = status == AVO_ERROR_NOT_FOUND || status == AVO_ERROR_IO  ? 404
                        : status == AVO_ERROR_MEMORY || status == AVO_ERROR_FULL ? 503
                                                                                 : 400;
        exchange_fail(job->exchange, http, path != NULL ? "lora_path" : "lora_name",
                      http == 404 ? "not_found" : NULL, "%s", error.text);
    } else {
        pthread_mutex_lock(&api->lock);
        number_all(api);
        pthread_mutex_unlock(&api->lock);
        char text[API_NAME_BYTES_MAX + 64];
        int length = snprintf(text, sizeof(text), "Success: LoRA adapter '%s' %s successfully.",
                              job->request->lora_name, path != NULL ? "added" : "removed");
        exchange_send(job->exchange, 200, "text/plain; charset=utf-8",
                      (text_view){text, (size_t)length});
        snprintf(text, sizeof(text), "adapter %s %s", name, path != NULL ? "loaded" : "unloaded");
        if (!again)
            api->host.say(api->host.context, text);
    }
    load_close(job);
}

static bool check_load(const api *api, const api_request *r, api_fault *fault) {
    if (api->registry == NULL)
        return fault_set(fault, 400, NULL, "no_adapters",
                         "this server was started without adapters (--adapter, --adapter-root)");
    if (r->lora_name[0] == '\0' || strcmp(r->lora_name, api->options->model_name) == 0 ||
        strcmp(r->lora_name, ADAPTER_BASE) == 0)
        return FAULT_FIELD(fault, "lora_name",
                           "lora_name must not be empty and must not name the base model (its name "
                           "or \"" ADAPTER_BASE "\")");
    return true;
}

/* Files are read by a helper: the few threads of the connections do not wait for disks. */
static void change(api *api, exchange *exchange, api_body body) {
    api_fault fault = {0};
    load_job *job = calloc(1, sizeof(*job));
    bool good = job != NULL || fault_no_memory(&fault);
    good =
        good &&
        api_request_open(api, body, NULL, exchange_asked(exchange)->body, &job->request, &fault) &&
        check_load(api, job->request, &fault) &&
        name_load(api, exchange_asked(exchange), job, &fault);
    if (!good) {
        if (job != NULL)
            api_request_free(job->request);
        free(job);
        api_fail(exchange, &fault);
        return;
    }
    job->exchange = exchange_share(exchange);
    if (helper_start(api, load_run, job))
        return;
    load_close(job);
    exchange_refuse(exchange, 503, 1.0, "other adapters are being loaded");
}

void endpoint_load(api *api, exchange *exchange) {
    change(api, exchange, BODY_LOAD);
}

void endpoint_unload(api *api, exchange *exchange) {
    change(api, exchange, BODY_UNLOAD);
}

typedef struct scale_list {
    api *api;
    const server_key *key;
    bool paths;   /* only administrators see where files lie */
    char **shown; /* [capacity], by number: a copy; NULL: not there, or not for this key */
    uint32_t capacity;
    bool good;
} scale_list;

static void see_scale(void *context, const avo_registry_entry *entry) {
    scale_list *list = context;
    uint32_t number = 0;
    if (!server_key_allows_adapter(list->key, entry->name) ||
        !number_of(list->api, entry->name, &number) || number >= list->capacity)
        return;
    list->shown[number] = strdup(list->paths ? entry->path : entry->name);
    list->good = list->good && list->shown[number] != NULL;
}

static avo_status write_scales(const scale_list *list, buffer *out) {
    json_writer w = json_writer_of(out);
    json_array_begin(&w);
    for (uint32_t i = 0; i < list->capacity; i++) {
        if (list->shown[i] == NULL)
            continue;
        const numbered_adapter *adapter = &list->api->adapters[i];
        json_object_begin(&w);
        json_member_u64(&w, "id", i);
        json_member_string(&w, "path", list->shown[i]);
        json_member_string(&w, "name", adapter->name);
        json_member_number(&w, "scale", adapter->scale);
        json_end(&w);
    }
    json_end(&w);
    return json_writer_status(&w);
}

void endpoint_scales(api *api, exchange *exchange) {
    scale_list list = {.api = api,
                       .key = exchange_asked(exchange)->key,
                       .paths = exchange_asked(exchange)->may_administer};
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    pthread_mutex_lock(&api->lock);
    number_all(api);
    list.capacity = api->adapter_count;
    list.shown = calloc((size_t)list.capacity + 1, sizeof(*list.shown));
    list.good = list.shown != NULL;
    if (list.good && api->registry != NULL)
        avo_registry_list(api->registry, see_scale, &list);
    list.good = list.good && write_scales(&list, &out) == AVO_OK;
    pthread_mutex_unlock(&api->lock);
    if (list.good)
        exchange_send(exchange, 200, "application/json", buffer_text(&out));
    else
        exchange_fail(exchange, 503, NULL, "out_of_memory", "out of memory");
    for (uint32_t i = 0; list.shown != NULL && i < list.capacity; i++)
        free(list.shown[i]);
    free(list.shown);
    buffer_free(&out);
}

static bool same_id(const json_value *item, int64_t id) {
    const json_value *number = json_find(item, "id");
    return number != NULL && number->kind == JSON_INTEGER && number->integer == id;
}

static bool set_scales(api *api, const json_value *root, api_fault *fault) {
    if (!is_list(root, "body", fault))
        return false;
    bool good = true;
    pthread_mutex_lock(&api->lock);
    number_all(api);
    for (size_t i = 0; good && i < root->array.count; i++) {
        int64_t id = 0;
        double scale = 0.0;
        good = read_scale(&root->array.items[i], "", i, &id, &scale, fault);
        if (good && id >= api->adapter_count)
            good = no_number("", i, id, fault);
        for (size_t j = 0; good && j < i; j++)
            good = !same_id(&root->array.items[j], id) ||
                   FAULT_FIELD(fault, "id", "id %lld is given twice", (long long)id);
    }
    for (uint32_t i = 0; good && i < api->adapter_count; i++)
        api->adapters[i].scale = 0.0; /* those that are not named, as in llama.cpp */
    for (size_t i = 0; good && i < root->array.count; i++) {
        int64_t id = 0;
        double scale = 0.0;
        good = read_scale(&root->array.items[i], "", i, &id, &scale, fault);
        api->adapters[id].scale = scale;
    }
    pthread_mutex_unlock(&api->lock);
    return good;
}

void endpoint_set_scales(api *api, exchange *exchange) {
    api_fault fault = {0};
    arena scratch;
    json_value root = {0};
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_boolean(&w, "success", true);
    json_end(&w);
    bool good = api_parse_body(exchange_asked(exchange)->body, &scratch, &root, &fault) &&
                set_scales(api, &root, &fault);
    api_audit(api, exchange, "set_scales", NULL, good ? NULL : fault.text);
    if (good)
        api_send_json(exchange, 200, &w);
    else
        api_fail(exchange, &fault);
    buffer_free(&out);
    arena_free(&scratch);
}
