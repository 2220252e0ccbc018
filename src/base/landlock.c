/* Landlock by its system calls. */
#include "base/landlock.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's interface, as of its ABI 6; headers of older systems know less of it. */
#define CALL_CREATE  444
#define CALL_ADD     445
#define CALL_CONFINE 446
#define ASK_ABI      1u
#define RULE_BENEATH 1 /* kinds of rules */
#define RULE_PORT    2

#define RIGHTS_ABI_1 0x1FFFu /* bits 0 to 12 */
#define RIGHTS_ABI_2 0x3FFFu
#define RIGHTS_ABI_3 0x7FFFu
#define RIGHTS_ABI_5 0xFFFFu /* and ioctl of devices */
#define NET_RIGHTS   3u      /* ABI 4: bind and connect of TCP */
#define NET_CONNECT  2u
#define SCOPES       3u /* ABI 6: abstract unix sockets and signals of others */

typedef struct ruleset_attributes {
    uint64_t files, net, scoped;
} ruleset_attributes;
typedef struct __attribute__((packed)) path_rule {
    uint64_t allowed;
    int32_t parent;
} path_rule;

typedef struct port_rule {
    uint64_t allowed, port;
} port_rule;

long landlock_abi(void) {
    return syscall(CALL_CREATE, NULL, 0, ASK_ABI);
}

uint64_t landlock_rights(long abi) {
    return abi >= 5   ? RIGHTS_ABI_5
           : abi >= 3 ? RIGHTS_ABI_3
           : abi == 2 ? RIGHTS_ABI_2
                      : RIGHTS_ABI_1;
}

int landlock_rules(long abi) {
    ruleset_attributes attributes = {.files = landlock_rights(abi),
                                     .net = abi >= 4 ? NET_RIGHTS : 0,
                                     .scoped = abi >= 6 ? SCOPES : 0};
    size_t bytes = abi >= 6   ? sizeof(attributes)
                   : abi >= 4 ? 2 * sizeof(uint64_t)
                              : sizeof(uint64_t);
    return (int)syscall(CALL_CREATE, &attributes, bytes, 0);
}

int landlock_allow(int rules, int descriptor, uint64_t rights) {
    path_rule rule = {.allowed = rights, .parent = descriptor};
    return (int)syscall(CALL_ADD, rules, RULE_BENEATH, &rule, 0);
}

int landlock_allow_connect(int rules, uint16_t port) {
    port_rule rule = {.allowed = NET_CONNECT, .port = port};
    return (int)syscall(CALL_ADD, rules, RULE_PORT, &rule, 0);
}

int landlock_confine(int rules) {
    return (int)syscall(CALL_CONFINE, rules, 0);
}
