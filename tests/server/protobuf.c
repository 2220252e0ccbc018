/* protobuf: the wire format, messages as trees and back, and everything that is refused. */
#include "support/support.h"

#include "server/api/grpc/message.h"
#include "server/api/grpc/wire.h"
#include "server/transport/grpc_frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const proto_message proto_avocet_v1_ChatRequest, proto_avocet_v1_ChatResponse,
    proto_avocet_v1_CompleteLogprobs, proto_avocet_v1_Function, proto_avocet_v1_TokenIds,
    proto_inference_ModelInferRequest, proto_inference_InferTensorContents,
    proto_grpc_health_v1_HealthCheckRequest;

#define VIEW(literal) ((bytes_view){(const uint8_t *)(literal), sizeof(literal) - 1})

/* ---- The wire ---- */

static bool varint(bytes_view bytes, uint64_t *value) {
    cursor cursor = cursor_over(bytes);
    return wire_read_varint(&cursor, value) && cursor_left(&cursor) == 0;
}

static void varints_have_ten_bytes_at_most(void **state) {
    (void)state;
    uint64_t value = 1;
    static const uint64_t numbers[] = {0,         1,          127,        128,
                                       16383,     16384,      UINT32_MAX, (uint64_t)1 << 35,
                                       INT64_MAX, UINT64_MAX, 300,        (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        buffer out;
        buffer_init(&out, NULL, 16);
        assert_ok(wire_write_varint(&out, numbers[i]));
        assert_true(varint((bytes_view){(uint8_t *)out.data, out.size}, &value));
        assert_int_equal(value, numbers[i]);
        for (size_t part = 0; part < out.size; part++)
            assert_false(varint((bytes_view){(uint8_t *)out.data, part}, &value));
        buffer_free(&out);
    }
    assert_true(varint(VIEW("\x80\x80\x00"), &value)); /* longer than it need be */
    assert_int_equal(value, 0);
    assert_true(varint(VIEW("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), &value));
    assert_false(varint(VIEW("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), &value));
    assert_false(varint(VIEW("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), &value));
}

static bool field(bytes_view bytes, wire_field *out) {
    cursor cursor = cursor_over(bytes);
    return wire_read(&cursor, out);
}

static void fields_keep_their_bounds(void **state) {
    (void)state;
    wire_field out;
    assert_true(field(VIEW("\x08\x96\x01"), &out));
    assert_true(out.number == 1 && out.type == WIRE_VARINT && out.value == 150);
    assert_true(field(VIEW("\x12\x03"
                           "abc"),
                      &out));
    assert_true(out.number == 2 && out.bytes.size == 3 && memcmp(out.bytes.data, "abc", 3) == 0);
    assert_true(field(VIEW("\x0d\x01\x00\x00\x00"), &out));
    assert_true(out.type == WIRE_FIXED32 && out.value == 1);
    assert_true(field(VIEW("\xf8\xff\xff\xff\x0f\x00"), &out)); /* the highest number */
    assert_int_equal(out.number, WIRE_NUMBER_MAX);
    static const bytes_view bad[] = {
        {(const uint8_t *)"\x00\x00", 2},                 /* number 0 */
        {(const uint8_t *)"\x80\x80\x80\x80\x10\x00", 6}, /* one past the highest */
        {(const uint8_t *)"\x0b", 1},                     /* a group begins */
        {(const uint8_t *)"\x0c", 1},                     /* and ends */
        {(const uint8_t *)"\x0e\x00", 2},                 /* types that nobody has */
        {(const uint8_t *)"\x0f\x00", 2},
        {(const uint8_t *)"\x12\x04"
                          "abc",
         5}, /* longer than what is there */
        {(const uint8_t *)"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
        {(const uint8_t *)"\x0d\x01\x00\x00", 4},
        {(const uint8_t *)"\x09\x01\x00\x00\x00\x00\x00\x00", 8},
        {(const uint8_t *)"\x08", 1},
        {(const uint8_t *)"", 0},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(field(bad[i], &out));
}

/* ---- Messages ---- */

/* As JSON; the test ends where it cannot be read. */
static const char *read_as(const proto_message *message, bytes_view bytes) {
    static buffer out;
    arena texts;
    json_value tree;
    avo_error error = {0};
    arena_init(&texts, NULL, 1 << 20);
    buffer_free(&out);
    buffer_init(&out, NULL, 1 << 20);
    assert_ok_error(proto_read(message, bytes, &texts, &tree, &error), &error);
    assert_ok(json_write_value(&out, &tree));
    assert_ok(buffer_terminate(&out));
    arena_free(&texts);
    return out.data;
}

static const char *refused_as(const proto_message *message, bytes_view bytes) {
    static avo_error error;
    arena texts;
    json_value tree;
    arena_init(&texts, NULL, 1 << 20);
    assert_int_equal(proto_read(message, bytes, &texts, &tree, &error), AVO_ERROR_FORMAT);
    arena_free(&texts);
    return error.text;
}

static void messages_become_the_requests_of_rest(void **state) {
    (void)state;
    /* model "m", one message {user, hi}, max_tokens 5, temperature 0.5, stream, stop "a" and "b",
     * logit_bias {7: -1}. */
    assert_string_equal(
        read_as(&proto_avocet_v1_ChatRequest,
                VIEW("\x0a\x01m\x12\x0a\x0a\x04user\x12\x02hi\x18\x05\x59\x00\x00\x00\x00\x00\x00"
                     "\xe0\x3f\x30\x01\x42\x01"
                     "a\x42\x01"
                     "b\x9a\x01\x0b\x08\x07\x11\x00\x00\x00\x00\x00\x00\xf0\xbf")),
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":5,"
        "\"stream\":true,\"stop\":[\"a\",\"b\"],\"temperature\":0.5,\"logit_bias\":{\"7\":-1}}");
    /* The last of a scalar counts; parts of a message are merged; negative numbers. */
    assert_string_equal(read_as(&proto_avocet_v1_ChatRequest,
                                VIEW("\x18\x01\x18\x02\x3a\x00\x3a\x02\x08\x01\x68\xff\xff\xff\xff"
                                     "\xff\xff\xff\xff\xff\x01")),
                        "{\"max_tokens\":2,\"stream_options\":{\"include_usage\":true},"
                        "\"top_k\":-1}");
    /* JSON in a string; numbers packed, and one by one. */
    assert_string_equal(read_as(&proto_avocet_v1_Function, VIEW("\x0a\x01"
                                                                "f\x1a\x07{\"a\":1}")),
                        "{\"name\":\"f\",\"parameters\":{\"a\":1}}");
    assert_string_equal(read_as(&proto_avocet_v1_TokenIds, VIEW("\x0a\x03\x01\xac\x02\x08\x05")),
                        "{\"ids\":[1,300,5]}");
    assert_string_equal(read_as(&proto_avocet_v1_TokenIds, VIEW("\x0a\x00")), "{}");
    assert_string_equal(
        read_as(&proto_inference_InferTensorContents,
                VIEW("\x0a\x02\x01\x00\x32\x04\x00\x00\x80\x3f\x42\x02"
                     "ab\x2a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")),
        "{\"bool_contents\":[true,false],\"uint64_contents\":[1.8446744073709552e+19],"
        "\"fp32_contents\":[1],\"bytes_contents\":[\"ab\"]}");
    assert_string_equal(read_as(&proto_avocet_v1_ChatRequest, VIEW("")), "{}");
    /* A map's entry without a key or a value has the defaults. */
    assert_string_equal(read_as(&proto_avocet_v1_ChatRequest, VIEW("\x9a\x01\x00")),
                        "{\"logit_bias\":{\"0\":0}}");
    /* Others' messages may know more fields than we do. */
    assert_string_equal(read_as(&proto_grpc_health_v1_HealthCheckRequest,
                                VIEW("\x0a\x01s\x98\x06\x01\xa2\x06\x01x")),
                        "{\"service\":\"s\"}");
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    const proto_message *chat = &proto_avocet_v1_ChatRequest;
    assert_string_equal(refused_as(chat, VIEW("\x98\x06\x01")),
                        "avocet.v1.ChatRequest: unknown field number 99");
    assert_string_equal(refused_as(chat, VIEW("\x0a\x05m")),
                        "avocet.v1.ChatRequest: no valid field at byte 0 of the message");
    assert_string_equal(refused_as(chat, VIEW("\x1a\x01m")),
                        "avocet.v1.ChatRequest.max_tokens: the value has another wire type");
    assert_string_equal(refused_as(chat, VIEW("\x08\x01")),
                        "avocet.v1.ChatRequest.model: the value has another wire type");
    assert_string_equal(refused_as(chat, VIEW("\x10\x01")),
                        "avocet.v1.ChatMessage: the value has another wire type");
    assert_string_equal(refused_as(chat, VIEW("\x0a\x01\xff")),
                        "avocet.v1.ChatRequest.model: the string is not valid UTF-8");
    assert_string_equal(refused_as(chat, VIEW("\x59\x00\x00\x00\x00\x00\x00\xf8\x7f")),
                        "avocet.v1.ChatRequest.temperature: the number must be finite");
    assert_string_equal(refused_as(&proto_avocet_v1_TokenIds, VIEW("\x0a\x02\x01\x80")),
                        "avocet.v1.TokenIds.ids: the packed numbers end too early");
    assert_string_equal(
        refused_as(&proto_inference_InferTensorContents, VIEW("\x32\x03\x00\x00\x80")),
        "inference.InferTensorContents.fp32_contents: the packed numbers end too "
        "early");
    assert_non_null(strstr(refused_as(&proto_avocet_v1_Function, VIEW("\x1a\x02{,")),
                           "avocet.v1.Function.parameters_json: "));
    /* One value, not several: nothing can be put beside it. */
    assert_non_null(
        strstr(refused_as(&proto_avocet_v1_Function, VIEW("\x1a\x06{},\"a\"")), "parameters_json"));
}

static void a_small_message_does_not_become_a_large_tree(void **state) {
    (void)state;
    size_t size = 100000;
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < size; i += 2) { /* empty messages of a conversation */
        bytes[i] = 0x12;
        bytes[i + 1] = 0;
    }
    arena texts;
    json_value tree;
    avo_error error = {0};
    arena_init(&texts, NULL, 1 << 20);
    assert_int_equal(
        proto_read(&proto_avocet_v1_ChatRequest, (bytes_view){bytes, size}, &texts, &tree, &error),
        AVO_ERROR_MEMORY);
    assert_true(texts.limit_hit && texts.used_bytes <= 1 << 20);
    arena_free(&texts);
    free(bytes);
}

/* ---- Back ---- */

static avo_status write_as(const proto_message *message, const char *json, buffer *out,
                           avo_error *error) {
    arena texts;
    json_value tree;
    arena_init(&texts, NULL, 1 << 20);
    buffer_init(out, NULL, 1 << 20);
    assert_ok(json_parse(&texts, text_from(json), &tree, error));
    avo_status status = proto_write(message, &tree, out, error);
    arena_free(&texts);
    return status;
}

static void answers_become_messages(void **state) {
    (void)state;
    static const char *const same[] = {
        "{\"id\":\"x\",\"created\":12,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},"
        "\"seed\":-3},{\"index\":300}],\"usage\":{\"prompt_tokens\":3,\"timings\":{\"queue_ms\":"
        "0.125}}}",
        "{}"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        buffer out;
        avo_error error = {0};
        assert_ok_error(write_as(&proto_avocet_v1_ChatResponse, same[i], &out, &error), &error);
        assert_string_equal(
            read_as(&proto_avocet_v1_ChatResponse, (bytes_view){(uint8_t *)out.data, out.size}),
            same[i]);
        buffer_free(&out);
    }
    buffer out;
    avo_error error = {0};
    /* null is absent, but NaN among floats; JSON stays JSON; members that nobody has are left out;
     * a token's id is a text. */
    assert_ok_error(write_as(&proto_avocet_v1_CompleteLogprobs,
                             "{\"tokens\":[\"a\"],\"token_logprobs\":[null,-1.5],"
                             "\"top_logprobs\":[null,{\"a\":1}],\"other\":1}",
                             &out, &error),
                    &error);
    static const char wanted[] = "\x0a\x01"
                                 "a\x12\x08\x00\x00\xc0\x7f\x00\x00\xc0\xbf\x1a\x04null\x1a\x07"
                                 "{\"a\":1}";
    assert_int_equal(out.size, sizeof(wanted) - 1);
    assert_memory_equal(out.data, wanted, out.size);
    buffer_free(&out);
    assert_ok_error(write_as(&proto_avocet_v1_ChatResponse,
                             "{\"choices\":[{\"stop_reason\":17,\"finish_reason\":null}]}", &out,
                             &error),
                    &error);
    assert_string_equal(
        read_as(&proto_avocet_v1_ChatResponse, (bytes_view){(uint8_t *)out.data, out.size}),
        "{\"choices\":[{\"stop_reason\":\"17\"}]}");
    buffer_free(&out);
    static const char *const unfit[] = {"{\"created\":\"x\"}",
                                        "{\"created\":1.5}",
                                        "{\"choices\":{}}",
                                        "{\"choices\":[1]}",
                                        "{\"id\":true}",
                                        "{\"choices\":[{\"index\":-1}]}",
                                        "{\"choices\":[{\"index\":4294967296}]}"};
    for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
        assert_int_equal(write_as(&proto_avocet_v1_ChatResponse, unfit[i], &out, &error),
                         AVO_ERROR_FORMAT);
        buffer_free(&out);
    }
}

/* ---- What gRPC adds ---- */

static void statuses_texts_and_timeouts(void **state) {
    (void)state;
    static const unsigned pairs[][2] = {{200, 0},  {400, 3}, {401, 16}, {403, 7},  {404, 5},
                                        {413, 8},  {429, 8}, {499, 1},  {500, 13}, {501, 12},
                                        {503, 14}, {504, 4}, {418, 3},  {502, 13}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        assert_int_equal(grpc_status_of(pairs[i][0]), pairs[i][1]);
    buffer out;
    buffer_init(&out, NULL, 8192);
    assert_ok(grpc_text_write("50% of \xc3\xa9\n", &out));
    assert_ok(buffer_terminate(&out));
    assert_string_equal(out.data, "50%25 of %C3%A9%0A");
    buffer_free(&out);
    double seconds = 0.0;
    assert_true(grpc_timeout_read("100m", &seconds) && fabs(seconds - 0.1) < 1e-12);
    assert_true(grpc_timeout_read("99999999H", &seconds) && seconds > 3e11);
    assert_true(grpc_timeout_read("1n", &seconds) && seconds > 0.0);
    static const char *const bad[] = {"",     "1",          "m",   "1x", "-1S",
                                      "1.5S", "123456789S", "1SS", " 1S"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(grpc_timeout_read(bad[i], &seconds));
    char prefix[GRPC_PREFIX_BYTES];
    grpc_prefix_write(prefix, 0x01020304);
    assert_memory_equal(prefix, "\0\1\2\3\4", 5);
    assert_int_equal(grpc_prefix_read(prefix).size, 0x01020304);
    assert_true(grpc_prefix_read("\1\0\0\0\0").compressed);
}

static void every_method_has_its_messages(void **state) {
    (void)state;
    assert_int_equal(proto_method_count, 18);
    for (size_t i = 0; i < proto_method_count; i++)
        assert_true(proto_methods[i].input != NULL && proto_methods[i].output != NULL &&
                    proto_methods[i].path[0] == '/');
    for (size_t i = 0; i < proto_file_count; i++) {
        wire_field first;
        cursor cursor = cursor_over(proto_files[i].descriptor);
        assert_true(wire_read(&cursor, &first) && first.number == 1);
        assert_int_equal(first.bytes.size, strlen(proto_files[i].name));
        while (cursor_left(&cursor) > 0)
            assert_true(wire_read(&cursor, &first));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(varints_have_ten_bytes_at_most),
        cmocka_unit_test(fields_keep_their_bounds),
        cmocka_unit_test(messages_become_the_requests_of_rest),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_small_message_does_not_become_a_large_tree),
        cmocka_unit_test(answers_become_messages),
        cmocka_unit_test(statuses_texts_and_timeouts),
        cmocka_unit_test(every_method_has_its_messages),
    };
    return cmocka_run_group_tests_name("server/protobuf", tests, NULL, NULL);
}
