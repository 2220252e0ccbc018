/* Messages of protobuf on any bytes: what is read keeps its bounds, and what a read message is
 * written as reads as the same message. The first byte chooses a method's request or answer. */
#include "server/api/grpc/message.h"

#include <stdlib.h>
#include <string.h>

#define TREE_BYTES ((size_t)32 << 20)

/* As JSON, for comparing; a map's members may come in any order, but both times in the same. */
static bool write_tree(const json_value *tree, buffer *out) {
    buffer_init(out, NULL, TREE_BYTES);
    return json_write_value(out, tree) == AVO_OK;
}

static void check_again(const proto_message *message, const json_value *tree) {
    buffer bytes, before, after;
    arena texts;
    json_value again;
    avo_error error = {0};
    buffer_init(&bytes, NULL, TREE_BYTES);
    arena_init(&texts, NULL, TREE_BYTES);
    /* A number past 2^63 is a double in JSON, which no integer field takes back; and objects of a
     * map may have a key twice. */
    if (proto_write(message, tree, &bytes, &error) == AVO_OK) {
        if (proto_read(message, (bytes_view){(const uint8_t *)bytes.data, bytes.size}, &texts,
                       &again, &error) != AVO_OK &&
            !texts.limit_hit)
            abort();
        bool written = !texts.limit_hit && write_tree(tree, &before);
        if (written && write_tree(&again, &after) &&
            (before.size != after.size || memcmp(before.data, after.data, after.size) != 0))
            abort();
        if (written)
            buffer_free(&after);
        if (!texts.limit_hit)
            buffer_free(&before);
    }
    arena_free(&texts);
    buffer_free(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    const proto_method *method = &proto_methods[data[0] / 2 % proto_method_count];
    const proto_message *message = data[0] % 2 == 0 ? method->input : method->output;
    arena texts;
    json_value tree;
    avo_error error = {0};
    arena_init(&texts, NULL, TREE_BYTES);
    avo_status status =
        proto_read(message, (bytes_view){data + 1, size - 1}, &texts, &tree, &error);
    if (status == AVO_OK)
        check_again(message, &tree);
    else if (error.text[0] == '\0' || (status == AVO_ERROR_MEMORY) != texts.limit_hit)
        abort();
    arena_free(&texts);
    return 0;
}
