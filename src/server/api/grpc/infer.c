/* The Open Inference Protocol over /v1/completions: one text in, texts out, with the tensors of
 * Triton's vLLM backend (proto/inference/inference.proto says which). ModelStreamInfer answers one
 * request after the other on one stream; its errors are messages, and the stream goes on. */
#include "server/api/grpc/grpc_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define VERSION     "1"
#define MEMBERS_MAX 64u
#define OUTPUTS_MAX 4u
#define CHOICES_MAX API_CHOICES_MAX

typedef enum output_kind { TEXT_OUTPUT, FINISH_REASON, INPUT_TOKENS, OUTPUT_TOKENS } output_kind;

static const struct {
    const char *name, *type;
    const char *asked; /* the input that asks for it; NULL: always there */
} output_table[OUTPUTS_MAX] = {{"text_output", "BYTES", NULL},
                               {"finish_reason", "BYTES", "return_finish_reason"},
                               {"num_input_tokens", "UINT32", "return_num_input_tokens"},
                               {"num_output_tokens", "UINT32", "return_num_output_tokens"}};

struct infer_call {
    text_view model, id; /* of the request */
    bool outputs[OUTPUTS_MAX];
    bool stream, converses;
    /* Of the answer that is being made. */
    buffer raw[OUTPUTS_MAX];
    json_member members[OUTPUTS_MAX][3], response[5], flag, parameter, whole;
    json_value outs[OUTPUTS_MAX], raws[OUTPUTS_MAX], shapes[OUTPUTS_MAX];
};

void infer_close(infer_call *infer) {
    if (infer == NULL)
        return;
    for (size_t i = 0; i < OUTPUTS_MAX; i++)
        buffer_free(&infer->raw[i]);
    free(infer);
}

static text_view text_of(const json_value *object, const char *name) {
    const json_value *value = json_find(object, name);
    return value != NULL && value->kind == JSON_STRING ? value->string : TEXT_LITERAL("");
}

/* ---- Inputs ---- */

typedef struct infer_input {
    text_view name, type;
    const json_value *contents; /* NULL: none */
    text_view raw;
    bool is_raw;
} infer_input;

/* The input of this name; false: there is none. */
static bool find_input(const json_value *message, const char *name, infer_input *out) {
    const json_value *inputs = json_find(message, "inputs");
    const json_value *raws = json_find(message, "raw_input_contents");
    for (size_t i = 0; inputs != NULL && i < inputs->array.count; i++) {
        const json_value *input = &inputs->array.items[i];
        if (!text_is(text_of(input, "name"), name))
            continue;
        const json_value *raw = json_item(raws, i);
        *out = (infer_input){text_of(input, "name"), text_of(input, "datatype"),
                             json_find(input, "contents"),
                             raw == NULL ? TEXT_LITERAL("") : raw->string, raws != NULL};
        return true;
    }
    return false;
}

static bool refuse(grpc_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(grpc_call *call, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    grpc_call_fail(call, 400, text);
    return false;
}

/* Of one element of type BYTES. */
static bool read_text(grpc_call *call, const infer_input *input, text_view *out) {
    const json_value *list =
        input->contents == NULL ? NULL : json_find(input->contents, "bytes_contents");
    if (!text_is(input->type, "BYTES"))
        return refuse(call, "input %.*s has datatype \"%.*s\", must be BYTES",
                      TEXT_ARGUMENT(input->name), TEXT_ARGUMENT(input->type));
    if (input->is_raw) {
        uint32_t size = 0;
        if (input->raw.size >= sizeof(size))
            memcpy(&size, input->raw.data, sizeof(size));
        if (input->raw.size < sizeof(size) || size != input->raw.size - sizeof(size))
            return refuse(call, "input %.*s must be one element with its length in front",
                          TEXT_ARGUMENT(input->name));
        *out = (text_view){input->raw.data + sizeof(size), size};
        return true;
    }
    if (list == NULL || list->array.count != 1)
        return refuse(call, "input %.*s must have one element", TEXT_ARGUMENT(input->name));
    *out = list->array.items[0].string;
    return true;
}

/* Of one element of type BOOL; absent: *out stays. */
static bool read_flag(grpc_call *call, const json_value *message, const char *name, bool *out) {
    infer_input input;
    if (!find_input(message, name, &input))
        return true;
    const json_value *list =
        input.contents == NULL ? NULL : json_find(input.contents, "bool_contents");
    if (!text_is(input.type, "BOOL"))
        return refuse(call, "input %s has datatype \"%.*s\", must be BOOL", name,
                      TEXT_ARGUMENT(input.type));
    if (input.is_raw ? input.raw.size != 1 : list == NULL || list->array.count != 1)
        return refuse(call, "input %s must have one element", name);
    *out = input.is_raw ? input.raw.data[0] != 0 : list->array.items[0].boolean;
    return true;
}

static bool check_inputs(grpc_call *call, const json_value *message) {
    static const char *const names[] = {"text_input",
                                        "stream",
                                        "sampling_parameters",
                                        "exclude_input_in_output",
                                        "return_finish_reason",
                                        "return_num_input_tokens",
                                        "return_num_output_tokens"};
    const json_value *inputs = json_find(message, "inputs");
    const json_value *raws = json_find(message, "raw_input_contents");
    size_t count = inputs == NULL ? 0 : inputs->array.count;
    if (raws != NULL && raws->array.count != count)
        return refuse(call,
                      "raw_input_contents has %zu elements, must have one for each input (%zu)",
                      raws->array.count, count);
    for (size_t i = 0; i < count; i++) {
        text_view name = text_of(&inputs->array.items[i], "name");
        bool known = false;
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
            known = known || text_is(name, names[n]);
        if (!known)
            return refuse(call, "unknown input \"%.*s\"; see ModelMetadata", TEXT_ARGUMENT(name));
        for (size_t n = 0; n < i; n++)
            if (text_equal(name, text_of(&inputs->array.items[n], "name")))
                return refuse(call, "input %.*s appears twice", TEXT_ARGUMENT(name));
    }
    return true;
}

/* ---- Outputs that are wanted ---- */

static bool choose_outputs(grpc_call *call, const json_value *message) {
    infer_call *infer = call->infer;
    const json_value *wanted = json_find(message, "outputs");
    for (size_t i = 0; i < OUTPUTS_MAX; i++) {
        infer->outputs[i] = output_table[i].asked == NULL && wanted == NULL;
        if (output_table[i].asked != NULL &&
            !read_flag(call, message, output_table[i].asked, &infer->outputs[i]))
            return false;
    }
    for (size_t w = 0; wanted != NULL && w < wanted->array.count; w++) {
        text_view name = text_of(&wanted->array.items[w], "name");
        size_t found = 0;
        while (found < OUTPUTS_MAX && !text_is(name, output_table[found].name))
            found++;
        if (found == OUTPUTS_MAX)
            return refuse(call, "unknown output \"%.*s\"; see ModelMetadata", TEXT_ARGUMENT(name));
        infer->outputs[found] = true;
    }
    if (infer->stream && (infer->outputs[INPUT_TOKENS] || infer->outputs[OUTPUT_TOKENS]))
        return refuse(call, "numbers of tokens are not there with stream");
    return true;
}

/* ---- The endpoint's request ---- */

typedef struct body_members {
    json_member items[MEMBERS_MAX];
    size_t count;
} body_members;

static bool add(grpc_call *call, body_members *body, text_view key, json_value value) {
    if (body->count == MEMBERS_MAX)
        return refuse(call, "more than %u parameters", MEMBERS_MAX);
    body->items[body->count++] = (json_member){key, value};
    return true;
}

/* One of sampling_parameters. */
static bool add_parameter(grpc_call *call, body_members *body, text_view key,
                          const json_value *value) {
    static const char *const ours[] = {"model", "prompt", "stream", "echo", "stream_options"};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (text_is(key, ours[i]))
            return refuse(call, "%s is not a sampling parameter", ours[i]);
    if (text_is(key, "lora_name") && value->kind == JSON_STRING) {
        body->items[0].value = *value; /* the model */
        return true;
    }
    return add(call, body, key, *value);
}

/* The request's parameters, where there is no tensor of them. Triton's own are for sequences of
 * requests and for clients. */
static bool add_request_parameters(grpc_call *call, const json_value *message, body_members *body) {
    const json_value *list = json_find(message, "parameters");
    for (size_t i = 0; list != NULL && i < list->object.count; i++) {
        const json_member *member = &list->object.members[i];
        bool foreign = text_starts(member->key, TEXT_LITERAL("triton_")) ||
                       text_starts(member->key, TEXT_LITERAL("sequence_"));
        if (foreign || member->value.object.count == 0)
            continue;
        if (!add_parameter(call, body, member->key, &member->value.object.members[0].value))
            return false;
    }
    return true;
}

static bool add_sampling(grpc_call *call, const json_value *message, body_members *body) {
    infer_input input;
    text_view text = {0};
    json_value parsed;
    avo_error error = {0};
    if (!find_input(message, "sampling_parameters", &input))
        return add_request_parameters(call, message, body);
    if (!read_text(call, &input, &text))
        return false;
    if (text.size == 0)
        return true;
    if (json_parse(&call->texts, text, &parsed, &error) != AVO_OK)
        return refuse(call, "sampling_parameters: %.400s", error.text);
    if (parsed.kind != JSON_OBJECT)
        return refuse(call, "sampling_parameters: found %s, must be a JSON object",
                      json_kind_name(parsed.kind));
    for (size_t i = 0; i < parsed.object.count; i++)
        if (!add_parameter(call, body, parsed.object.members[i].key,
                           &parsed.object.members[i].value))
            return false;
    return true;
}

static bool single_stream(grpc_call *call, const body_members *body) {
    for (size_t i = 0; call->infer->stream && i < body->count; i++) {
        const json_value *value = &body->items[i].value;
        if (text_is(body->items[i].key, "n") &&
            (value->kind != JSON_INTEGER || value->integer != 1))
            return refuse(call, "n must be 1 with stream");
    }
    return true;
}

static bool read_request(grpc_call *call, const json_value *message, body_members *body) {
    infer_call *infer = call->infer;
    infer_input input;
    text_view prompt = {0};
    if (!check_inputs(call, message))
        return false;
    if (!find_input(message, "text_input", &input))
        return refuse(call, "input text_input is missing");
    if (!read_text(call, &input, &prompt) || !read_flag(call, message, "stream", &infer->stream))
        return false;
    bool excluded = infer->stream; /* as Triton has it: whole answers begin with the prompt */
    if (!read_flag(call, message, "exclude_input_in_output", &excluded))
        return false;
    if (infer->stream && !excluded)
        return refuse(call, "exclude_input_in_output must be true with stream");
    if (infer->stream && !infer->converses)
        return refuse(call, "stream needs ModelStreamInfer");
    return choose_outputs(call, message) &&
           add(call, body, TEXT_LITERAL("model"), tree_text(infer->model)) &&
           add(call, body, TEXT_LITERAL("prompt"), tree_text(prompt)) &&
           add(call, body, TEXT_LITERAL("stream"), tree_boolean(infer->stream)) &&
           add(call, body, TEXT_LITERAL("echo"), tree_boolean(!excluded)) &&
           add_sampling(call, message, body) && single_stream(call, body);
}

/* ---- Answers ---- */

static avo_status append_element(buffer *out, text_view text) {
    uint32_t size = (uint32_t)text.size;
    AVO_TRY(buffer_append(out, &size, sizeof(size)));
    return buffer_append(out, text.data, text.size);
}

static avo_status append_count(buffer *out, const json_value *answer, const char *name) {
    const json_value *count = json_find(json_find(answer, "usage"), name);
    uint32_t number = count == NULL ? 0 : (uint32_t)count->integer;
    return buffer_append(out, &number, sizeof(number));
}

static avo_status fill_output(buffer *out, output_kind kind, const json_value *answer,
                              const json_value *choices) {
    out->size = 0;
    if (kind == INPUT_TOKENS)
        return append_count(out, answer, "prompt_tokens");
    if (kind == OUTPUT_TOKENS)
        return append_count(out, answer, "completion_tokens");
    for (size_t i = 0; i < choices->array.count; i++) {
        const json_value *choice = &choices->array.items[i];
        /* What Python says where an answer goes on. */
        bool open = kind == FINISH_REASON && text_of(choice, "finish_reason").size == 0;
        AVO_TRY(append_element(
            out, open ? TEXT_LITERAL("None")
                      : text_of(choice, kind == TEXT_OUTPUT ? "text" : "finish_reason")));
    }
    return AVO_OK;
}

/* ModelInferResponse; `last`: nothing follows it on a stream. */
static avo_status make_response(infer_call *infer, const json_value *answer,
                                const json_value *choices, bool last, json_value *out) {
    size_t count = 0;
    for (size_t kind = 0; kind < OUTPUTS_MAX; kind++) {
        if (!infer->outputs[kind])
            continue;
        buffer *raw = &infer->raw[kind];
        AVO_TRY(fill_output(raw, (output_kind)kind, answer, choices));
        bool texts = kind == TEXT_OUTPUT || kind == FINISH_REASON;
        infer->shapes[count] = tree_integer(texts ? (int64_t)choices->array.count : 1);
        json_member *members = infer->members[count];
        members[0] =
            (json_member){TEXT_LITERAL("name"), tree_text(text_from(output_table[kind].name))};
        members[1] =
            (json_member){TEXT_LITERAL("datatype"), tree_text(text_from(output_table[kind].type))};
        members[2] = (json_member){TEXT_LITERAL("shape"), tree_array(&infer->shapes[count], 1)};
        infer->outs[count] = tree_object(members, 3);
        infer->raws[count++] = tree_text(buffer_text(raw));
    }
    infer->flag = (json_member){TEXT_LITERAL("bool_param"), tree_boolean(last)};
    infer->parameter =
        (json_member){TEXT_LITERAL("triton_final_response"), tree_object(&infer->flag, 1)};
    json_member *response = infer->response;
    response[0] = (json_member){TEXT_LITERAL("model_name"), tree_text(infer->model)};
    response[1] = (json_member){TEXT_LITERAL("model_version"), tree_text(TEXT_LITERAL(VERSION))};
    response[2] = (json_member){TEXT_LITERAL("id"), tree_text(infer->id)};
    response[3] = (json_member){TEXT_LITERAL("outputs"), tree_array(infer->outs, count)};
    response[4] =
        (json_member){TEXT_LITERAL("raw_output_contents"), tree_array(infer->raws, count)};
    *out = tree_object(response, 5);
    return AVO_OK;
}

/* A completion, or a chunk of one. */
static avo_status convert(grpc_call *call, const json_value *answer, json_value *message,
                          bool *told) {
    infer_call *infer = call->infer;
    const json_value *choices = json_find(answer, "choices");
    json_value response;
    if (choices == NULL || choices->kind != JSON_ARRAY || choices->array.count == 0) {
        *told = false;
        return AVO_OK;
    }
    bool last = text_of(&choices->array.items[0], "finish_reason").size > 0;
    AVO_TRY(make_response(infer, answer, choices, last, &response));
    *message = response;
    if (!infer->converses)
        return AVO_OK;
    /* Room for one more member, which only streams have. */
    json_member *all = arena_take_array(&call->parts, 6, sizeof(*all));
    if (all == NULL)
        return AVO_ERROR_MEMORY;
    memcpy(all, infer->response, sizeof(infer->response));
    all[5] = (json_member){TEXT_LITERAL("parameters"), tree_object(&infer->parameter, 1)};
    infer->whole = (json_member){TEXT_LITERAL("infer_response"), tree_object(all, 6)};
    *message = tree_object(&infer->whole, 1);
    return AVO_OK;
}

void infer_fail(grpc_call *call, const char *text) {
    infer_call *infer = call->infer;
    infer->flag = (json_member){TEXT_LITERAL("bool_param"), tree_boolean(true)};
    infer->parameter =
        (json_member){TEXT_LITERAL("triton_final_response"), tree_object(&infer->flag, 1)};
    json_member response[] = {{TEXT_LITERAL("model_name"), tree_text(infer->model)},
                              {TEXT_LITERAL("id"), tree_text(infer->id)},
                              {TEXT_LITERAL("parameters"), tree_object(&infer->parameter, 1)}};
    json_member members[] = {{TEXT_LITERAL("error_message"), tree_text(text_from(text))},
                             {TEXT_LITERAL("infer_response"), tree_object(response, 3)}};
    json_value message = tree_object(members, 2);
    grpc_call_tell(call, &message);
}

void method_infer(grpc_call *call, json_value *message) {
    body_members body = {.count = 0};
    infer_call *infer = calloc(1, sizeof(*infer));
    if (infer == NULL) {
        grpc_call_fail(call, 503, "out of memory");
        return;
    }
    for (size_t i = 0; i < OUTPUTS_MAX; i++)
        buffer_init(&infer->raw[i], NULL, API_ANSWER_BYTES_MAX);
    infer->model = text_of(message, "model_name");
    infer->id = text_of(message, "id");
    infer->converses = (call->entry->kind & SERVER_CALL_CONVERSES) != 0;
    call->infer = infer;
    call->convert = convert;
    text_view version = text_of(message, "model_version");
    if (version.size > 0 && !text_is(version, VERSION)) {
        grpc_call_fail(call, 404, "the only version of a model is 1");
        return;
    }
    if (read_request(call, message, &body)) {
        json_value request = tree_object(body.items, body.count);
        grpc_call_forward(call, &request);
    }
}

/* ---- What there is ---- */

static void tell_flag(grpc_call *call, text_view name, bool value) {
    json_member member = {name, tree_boolean(value)};
    json_value message = tree_object(&member, 1);
    grpc_call_tell(call, &message);
}

void method_live(grpc_call *call, json_value *message) {
    (void)message;
    const api_host *host = &call->api->host;
    tell_flag(call, TEXT_LITERAL("live"), host->health(host->context, NULL) == SERVER_ALIVE);
}

void method_ready(grpc_call *call, json_value *message) {
    (void)message;
    tell_flag(call, TEXT_LITERAL("ready"), grpc_is_ready(call->api));
}

static bool knows(grpc_call *call, const json_value *message) {
    text_view name = text_of(message, "name"), version = text_of(message, "version");
    char *terminated = arena_copy_text(&call->texts, name.data, name.size);
    return terminated != NULL && (version.size == 0 || text_is(version, VERSION)) &&
           api_knows_model(call->api, exchange_asked(call->outer)->key, terminated);
}

void method_model_ready(grpc_call *call, json_value *message) {
    tell_flag(call, TEXT_LITERAL("ready"), knows(call, message) && grpc_is_ready(call->api));
}

void method_server(grpc_call *call, json_value *message) {
    (void)message;
    json_member members[] = {{TEXT_LITERAL("name"), tree_text(TEXT_LITERAL("avocet"))},
                             {TEXT_LITERAL("version"), tree_text(text_from(avo_version()))}};
    json_value answer = tree_object(members, 2);
    grpc_call_tell(call, &answer);
}

typedef struct tensor_row {
    const char *name, *type;
    int64_t length; /* −1: of the answers */
} tensor_row;

#define TENSORS_MAX 8u

/* TensorMetadata of all; the arrays have room for them. */
static json_value describe(const tensor_row *rows, size_t count, json_member (*members)[3],
                           json_value *list, json_value *shapes) {
    for (size_t i = 0; i < count; i++) {
        members[i][0] = (json_member){TEXT_LITERAL("name"), tree_text(text_from(rows[i].name))};
        members[i][1] = (json_member){TEXT_LITERAL("datatype"), tree_text(text_from(rows[i].type))};
        members[i][2] = (json_member){TEXT_LITERAL("shape"), tree_array(&shapes[i], 1)};
        shapes[i] = tree_integer(rows[i].length);
        list[i] = tree_object(members[i], 3);
    }
    return tree_array(list, count);
}

void method_model(grpc_call *call, json_value *message) {
    static const tensor_row inputs[] = {{"text_input", "BYTES", 1},
                                        {"stream", "BOOL", 1},
                                        {"sampling_parameters", "BYTES", 1},
                                        {"exclude_input_in_output", "BOOL", 1},
                                        {"return_finish_reason", "BOOL", 1},
                                        {"return_num_input_tokens", "BOOL", 1},
                                        {"return_num_output_tokens", "BOOL", 1}};
    static const tensor_row outputs[] = {{"text_output", "BYTES", -1},
                                         {"finish_reason", "BYTES", -1},
                                         {"num_input_tokens", "UINT32", 1},
                                         {"num_output_tokens", "UINT32", 1}};
    if (!knows(call, message)) {
        grpc_call_fail(call, 404, "no such model; see avocet.v1.Inference/ListModels");
        return;
    }
    json_member in_members[TENSORS_MAX][3], out_members[TENSORS_MAX][3];
    json_value in_list[TENSORS_MAX], out_list[TENSORS_MAX];
    json_value in_shapes[TENSORS_MAX], out_shapes[TENSORS_MAX];
    json_value version = tree_text(TEXT_LITERAL(VERSION));
    json_member members[] = {
        {TEXT_LITERAL("name"), tree_text(text_of(message, "name"))},
        {TEXT_LITERAL("versions"), tree_array(&version, 1)},
        {TEXT_LITERAL("platform"), tree_text(TEXT_LITERAL("avocet"))},
        {TEXT_LITERAL("inputs"),
         describe(inputs, sizeof(inputs) / sizeof(inputs[0]), in_members, in_list, in_shapes)},
        {TEXT_LITERAL("outputs"), describe(outputs, sizeof(outputs) / sizeof(outputs[0]),
                                           out_members, out_list, out_shapes)}};
    json_value answer = tree_object(members, 5);
    grpc_call_tell(call, &answer);
}
