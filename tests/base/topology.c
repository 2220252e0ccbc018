/* base/topology: processors, cores and nodes of made-up machines, and of this one. */
#include "support/support.h"

#include "base/topology_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char root[2048];

static int make_root(void **state) {
    (void)state;
    static int number;
    snprintf(root, sizeof(root), "%s/topology-%d", test_scratch_folder(), number++);
    return mkdir(root, 0755);
}

static void put(const char *path, const char *text) {
    char full[4096];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void put_siblings(unsigned processor, const char *text) {
    char path[256];
    snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
             processor);
    put(path, text);
}

static cpu_set_t mask_of(const char *list) {
    cpu_set_t set;
    topology_parse_list(list, &set);
    return set;
}

static void expect_order(const topology *topology, const uint16_t *wanted, uint32_t count) {
    assert_int_equal(topology->processors, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(topology->order[i], wanted[i]);
}

static void lists_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int count;
        int has, has_not;
    } cases[] = {
        {"0-3,8,10-11\n", 7, 10, 9},  {"5\n", 1, 5, 4},    {"", 0, -1, 0},
        {"nonsense", 0, -1, 0},       {"3,x", 1, 3, 0},    {"4-", 0, -1, 4},
        {"0-999999", 1024, 1023, -1}, {"99999", 0, -1, 0}, {"7-2", 0, -1, 7},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cpu_set_t set = mask_of(cases[i].text);
        assert_int_equal(CPU_COUNT(&set), cases[i].count);
        assert_true(cases[i].has < 0 || CPU_ISSET((size_t)cases[i].has, &set));
        assert_true(cases[i].has_not < 0 || !CPU_ISSET((size_t)cases[i].has_not, &set));
    }
}

static void a_machine_that_says_nothing_is_simple(void **state) {
    (void)state;
    topology topology;
    cpu_set_t mask = mask_of("1,4,6");
    topology_under(root, &mask, &topology);
    expect_order(&topology, (const uint16_t[]){1, 4, 6}, 3);
    assert_int_equal(topology.cores, 3);
    assert_int_equal(topology.nodes, 1);
    assert_int_equal(topology.node_mask, 1);
    cpu_set_t set;
    topology_node_set(&topology, 0, &set);
    assert_true(CPU_EQUAL(&set, &mask));
    cpu_set_t nothing = mask_of("");
    topology_under(root, &nothing, &topology);
    assert_int_equal(topology.processors, 1);
    assert_int_equal(topology.cores, 1);
    assert_int_equal(topology.nodes, 1);
}

static void siblings_come_last(void **state) {
    (void)state;
    topology topology;
    /* Two numberings of four cores with two processors each. */
    for (unsigned i = 0; i < 8; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u,%u\n", i % 4, i % 4 + 4);
        put_siblings(i, text);
    }
    cpu_set_t all = mask_of("0-7");
    topology_under(root, &all, &topology);
    expect_order(&topology, (const uint16_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
    assert_int_equal(topology.cores, 4);
    cpu_set_t some = mask_of("1,4-6"); /* of core 0 the second alone */
    topology_under(root, &some, &topology);
    expect_order(&topology, (const uint16_t[]){1, 4, 6, 5}, 4);
    assert_int_equal(topology.cores, 3);
    for (unsigned i = 0; i < 8; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%u-%u\n", i / 2 * 2, i / 2 * 2 + 1);
        put_siblings(i, text);
    }
    topology_under(root, &all, &topology);
    expect_order(&topology, (const uint16_t[]){0, 2, 4, 6, 1, 3, 5, 7}, 8);
    assert_int_equal(topology.cores, 4);
}

static void nodes_with_processors_of_ours_count(void **state) {
    (void)state;
    topology topology;
    put("sys/devices/system/node/online", "0-1,3-4\n");
    put("sys/devices/system/node/node0/cpulist", "0-3\n");
    put("sys/devices/system/node/node1/cpulist", "\n"); /* memory alone */
    put("sys/devices/system/node/node3/cpulist", "4-7\n");
    put("sys/devices/system/node/node4/cpulist", "8-11\n");
    cpu_set_t mask = mask_of("2,5-6,8");
    topology_under(root, &mask, &topology);
    assert_int_equal(topology.nodes, 3);
    assert_int_equal(topology.node_mask, 1 | 1 << 3 | 1 << 4);
    static const char *const wanted[] = {"2", "5-6", "8"};
    for (uint32_t node = 0; node < 3; node++) {
        cpu_set_t set;
        cpu_set_t expected = mask_of(wanted[node]);
        topology_node_set(&topology, node, &set);
        assert_true(CPU_EQUAL(&set, &expected));
    }
    mask = mask_of("5");
    topology_under(root, &mask, &topology);
    assert_int_equal(topology.nodes, 1);
    assert_int_equal(topology.node_mask, 1 << 3);
}

static void this_machine_makes_sense(void **state) {
    (void)state;
    topology topology;
    topology_detect(&topology);
    assert_true(topology.processors >= topology.cores && topology.cores >= 1);
    assert_true(topology.nodes >= 1 && topology.node_mask != 0);
    int placed = 0;
    for (uint32_t node = 0; node < topology.nodes; node++) {
        cpu_set_t set;
        topology_node_set(&topology, node, &set);
        placed += CPU_COUNT(&set);
    }
    assert_int_equal(placed, topology.processors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test_setup(a_machine_that_says_nothing_is_simple, make_root),
        cmocka_unit_test_setup(siblings_come_last, make_root),
        cmocka_unit_test_setup(nodes_with_processors_of_ours_count, make_root),
        cmocka_unit_test(this_machine_makes_sense),
    };
    return cmocka_run_group_tests_name("base/topology", tests, NULL, NULL);
}
