/* grpc.reflection.v1 and v1alpha, which differ in their names only: the services, and the
 * descriptors that the build has made. No file of ours imports another. */
#include "server/api/grpc/grpc_int.h"

enum { NOT_FOUND = 5, INVALID_ARGUMENT = 3 };

#define SERVICES_MAX 16

static const proto_file *file_named(text_view name) {
    for (size_t i = 0; i < proto_file_count; i++)
        if (text_is(name, proto_files[i].name))
            return &proto_files[i];
    return NULL;
}

/* A message, an enum, a service, or something inside one: a method, a field. */
static const proto_file *file_with(text_view symbol) {
    for (size_t i = 0; i < proto_file_count; i++)
        for (size_t s = 0; s < proto_files[i].symbol_count; s++) {
            text_view known = text_from(proto_files[i].symbols[s]);
            if (text_starts(symbol, known) &&
                (symbol.size == known.size || symbol.data[known.size] == '.'))
                return &proto_files[i];
        }
    return NULL;
}

static void tell(grpc_call *call, const json_value *request, const char *name, json_value answer) {
    const json_value *host = json_find(request, "host");
    json_member members[] = {
        {TEXT_LITERAL("valid_host"), host == NULL ? tree_text(TEXT_LITERAL("")) : *host},
        {TEXT_LITERAL("original_request"), *request},
        {text_from(name), answer}};
    json_value message = tree_object(members, 3);
    grpc_call_tell(call, &message);
}

static void refuse(grpc_call *call, const json_value *request, int64_t code, const char *text) {
    json_member error[] = {{TEXT_LITERAL("error_code"), tree_integer(code)},
                           {TEXT_LITERAL("error_message"), tree_text(text_from(text))}};
    tell(call, request, "error_response", tree_object(error, 2));
}

static void tell_file(grpc_call *call, const json_value *request, const proto_file *file) {
    if (file == NULL) {
        refuse(call, request, NOT_FOUND, "no such file or symbol");
        return;
    }
    json_value bytes =
        tree_text((text_view){(const char *)file->descriptor.data, file->descriptor.size});
    json_member list = {TEXT_LITERAL("file_descriptor_proto"), tree_array(&bytes, 1)};
    tell(call, request, "file_descriptor_response", tree_object(&list, 1));
}

static void tell_services(grpc_call *call, const json_value *request) {
    json_member names[SERVICES_MAX];
    json_value items[SERVICES_MAX];
    size_t count = proto_service_count < SERVICES_MAX ? proto_service_count : SERVICES_MAX;
    for (size_t i = 0; i < count; i++) {
        names[i] = (json_member){TEXT_LITERAL("name"), tree_text(text_from(proto_services[i]))};
        items[i] = tree_object(&names[i], 1);
    }
    json_member list = {TEXT_LITERAL("service"), tree_array(items, count)};
    tell(call, request, "list_services_response", tree_object(&list, 1));
}

static void tell_extensions(grpc_call *call, const json_value *request, text_view type) {
    if (file_with(type) == NULL) {
        refuse(call, request, NOT_FOUND, "no such type");
        return;
    }
    json_member name = {TEXT_LITERAL("base_type_name"), tree_text(type)};
    tell(call, request, "all_extension_numbers_response", tree_object(&name, 1));
}

void method_reflect(grpc_call *call, json_value *message) {
    const json_value *name = json_find(message, "file_by_filename");
    const json_value *symbol = json_find(message, "file_containing_symbol");
    const json_value *type = json_find(message, "all_extension_numbers_of_type");
    if (json_find(message, "list_services") != NULL)
        tell_services(call, message);
    else if (name != NULL)
        tell_file(call, message, file_named(name->string));
    else if (symbol != NULL)
        tell_file(call, message, file_with(symbol->string));
    else if (type != NULL)
        tell_extensions(call, message, type->string);
    else if (json_find(message, "file_containing_extension") != NULL)
        refuse(call, message, NOT_FOUND, "there are no extensions");
    else
        refuse(call, message, INVALID_ARGUMENT, "the request asks for nothing");
}
