/* transport/client_hello on any bytes: what is an answer once stays one, whatever comes behind it.
 */
#include "server/transport/client_hello.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hello_answer whole = hello_offers((bytes_view){data, size}, "h2");
    for (size_t part = 0; part < size; part += 1 + size / 16) {
        hello_answer answer = hello_offers((bytes_view){data, part}, "h2");
        if (answer != HELLO_PARTIAL && answer != whole)
            abort();
    }
    return 0;
}
