/* base/cpu and base/clock: limits of a made-up machine below a folder of ours, and of this one. */
#include "support/support.h"

#include "base/clock.h"
#include "base/cpu_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char root[2048];

/* A fresh machine: no files at all. */
static int make_root(void **state) {
    (void)state;
    static int number;
    snprintf(root, sizeof(root), "%s/cpu-%d", test_scratch_folder(), number++);
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

static void quota_rounds_up(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t threads;
    } cases[] = {
        {"max 100000\n", 64},     {"100000 100000\n", 1},
        {"150000 100000\n", 2},   {"1000 100000\n", 1},
        {"6400000 100000\n", 64}, {"99900000 100000\n", 64},
        {"200001 100000\n", 3},   {"\n", 64},
        {"nonsense\n", 64},       {"200000 0\n", 64},
        {"200000\n", 64},         {"-5 100000\n", 64},
        {"1e300 100000\n", 64},
    };
    put("proc/self/cgroup", "0::/app\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        put("sys/fs/cgroup/app/cpu.max", cases[i].text);
        if (cpu_threads_under(root, 64).usable != cases[i].threads)
            fail_msg("%s", cases[i].text);
    }
}

static void smallest_quota_of_all_levels_binds(void **state) {
    (void)state;
    assert_int_equal(cpu_threads_under(root, 8).usable, 8); /* no cgroup at all */
    put("proc/self/cgroup", "12:cpu:/old\n0::/a/b/c\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 8); /* named, but not mounted */
    put("sys/fs/cgroup/a/b/c/cpu.max", "500000 100000\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 5);
    put("sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 3);
    put("sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 2);
    put("proc/self/cgroup", "0::/\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 2);
    put("proc/self/cgroup", "0::/../elsewhere\n"); /* outside of this namespace */
    assert_int_equal(cpu_threads_under(root, 8).usable, 2);
    put("proc/self/cgroup", "0::\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 2);
    put("proc/self/cgroup", "");
    assert_int_equal(cpu_threads_under(root, 8).usable, 8);
}

static void memory_of_system_and_group(void **state) {
    (void)state;
    memory_limit limit =
        memory_limit_under(root); /* nothing can be read: the system call answers */
    assert_string_equal(limit.source, "sysinfo");
    assert_true(limit.available_bytes > 0 && limit.available_bytes <= limit.total_bytes);
    put("proc/meminfo", "MemTotal:       16000 kB\nMemFree: 1 kB\nMemAvailable:    8000 kB\n");
    limit = memory_limit_under(root);
    assert_string_equal(limit.source, "system");
    assert_int_equal(limit.available_bytes, 8000 * 1024);
    assert_int_equal(limit.total_bytes, 16000 * 1024);
    put("proc/self/cgroup", "0::/a\n");
    put("sys/fs/cgroup/a/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.current", "100000\n");
    assert_string_equal(memory_limit_under(root).source, "system");
    put("sys/fs/cgroup/a/memory.max", "5000000\n");
    limit = memory_limit_under(root);
    assert_string_equal(limit.source, "cgroup");
    assert_int_equal(limit.available_bytes, 4900000);
    assert_int_equal(limit.total_bytes, 5000000);
    /* cached files give way */
    put("sys/fs/cgroup/a/memory.current", "4000000\n");
    put("sys/fs/cgroup/a/memory.stat", "anon 500000\nfile 3500000\ninactive_file 3000000\n"
                                       "active_file 400000\n");
    assert_int_equal(memory_limit_under(root).available_bytes, 4400000);
    /* memory.high below memory.max, and a tighter level above */
    put("sys/fs/cgroup/a/memory.high", "2000000\n");
    assert_int_equal(memory_limit_under(root).available_bytes, 1400000);
    put("sys/fs/cgroup/memory.max", "1000000\n");
    put("sys/fs/cgroup/memory.current", "2000000\n");
    assert_int_equal(memory_limit_under(root).available_bytes, 0);
}

/* Version 1, alone and beside version 2; inside a container the path may be the host's. */
static void limits_of_the_first_version_bind_too(void **state) {
    (void)state;
    put("proc/meminfo", "MemTotal:       16000 kB\nMemAvailable:    8000 kB\n");
    put("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 8);
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 8); /* half of it is nothing */
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 3);
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 8);
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "50000\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 2);
    put("sys/fs/cgroup/unified/cpu.max", "100000 100000\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 1);
    put("proc/self/cgroup", "5:memory\nnonsense\n:::\n4:cpuset,cpuacct:/\n");
    assert_int_equal(cpu_threads_under(root, 8).usable, 8);
    put("proc/self/cgroup", "5:memory:/docker/abc\n");
    put("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "3000000\n");
    assert_string_equal(memory_limit_under(root).source, "system");
    put("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "5000000\n");
    memory_limit limit = memory_limit_under(root);
    assert_string_equal(limit.source, "cgroup");
    assert_int_equal(limit.available_bytes, 2000000);
    assert_int_equal(limit.total_bytes, 5000000);
    put("sys/fs/cgroup/memory/docker/abc/memory.stat",
        "inactive_file 5\ntotal_inactive_file 1000000\ntotal_active_file 500000\n");
    assert_int_equal(memory_limit_under(root).available_bytes, 3500000);
}

static void decoding_keeps_below_the_quota(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t usable, decode;
    } cases[] = {{"max 100000\n", 8, 8},    {"50000 100000\n", 1, 1},  {"150000 100000\n", 2, 1},
                 {"200000 100000\n", 2, 2}, {"799000 100000\n", 8, 7}, {"900000 100000\n", 8, 8}};
    put("proc/self/cgroup", "0::/app\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        put("sys/fs/cgroup/app/cpu.max", cases[i].text);
        cpu_threads threads = cpu_threads_under(root, 8);
        assert_int_equal(threads.usable, cases[i].usable);
        assert_int_equal(threads.decode, cases[i].decode);
    }
}

static void the_count_of_threads_is_explained(void **state) {
    (void)state;
    char text[128];
    cpu_threads threads = {
        .online = 16, .affinity = 16, .cores = 16, .nodes = 1, .usable = 16, .decode = 16};
    cpu_threads_text(&threads, text, sizeof(text));
    assert_string_equal(text, "16 processors allowed, no quota, decode 16 of 16, prefill 16");
    threads.cores = 8;
    cpu_threads_text(&threads, text, sizeof(text));
    assert_string_equal(text, "16 processors (8 cores) allowed, no quota, decode 16 of 16, "
                              "prefill 16");
    threads = (cpu_threads){.online = 16,
                            .affinity = 4,
                            .cores = 2,
                            .nodes = 1,
                            .quota = 2.5,
                            .usable = 3,
                            .decode = 2};
    cpu_threads_text(&threads, text, sizeof(text));
    assert_string_equal(text, "4 processors of 16 (2 cores) allowed, quota 2.5, decode 2 of 3, "
                              "prefill 3");
    cpu_threads_explain(&threads, true, text, sizeof(text));
    assert_non_null(strstr(text, "decode: 2 threads, the cgroup's quota of 2.5 processors rounded "
                                 "down"));
    cpu_threads_explain(&threads, false, text, sizeof(text));
    assert_string_equal(text,
                        "prefill: 3 threads, the cgroup's quota of 2.5 processors rounded up");
    threads = (cpu_threads){.online = 16, .affinity = 4, .usable = 4, .decode = 4};
    cpu_threads_explain(&threads, true, text, sizeof(text));
    assert_string_equal(text, "decode: 4 threads, the 4 of 16 processors that the affinity mask "
                              "allows; no quota");
    threads.online = 4;
    cpu_threads_explain(&threads, false, text, sizeof(text));
    assert_string_equal(text, "prefill: 4 threads, all 4 processors; neither affinity mask nor "
                              "quota is less");
    cpu_threads here = cpu_threads_detect();
    assert_true(here.usable >= 1 && here.usable <= here.affinity);
    assert_true(here.affinity <= here.online && here.cores <= here.affinity);
    assert_int_equal(here.usable, cpu_usable_threads());
}

static void this_machine_makes_sense(void **state) {
    (void)state;
    assert_true(cpu_usable_threads() >= 1);
    memory_limit limit = memory_limit_detect();
    assert_true(limit.total_bytes > 0 && limit.available_bytes <= limit.total_bytes);
    assert_true(memory_peak_bytes() > (uint64_t)1 << 19);
    char text[128];
    cpu_name(text, sizeof(text));
    assert_true(strlen(text) > 0);
    uint64_t begin = clock_now_ns();
    uint64_t end = clock_now_ns();
    assert_true(end >= begin && begin > 0);
    assert_true(clock_seconds(1000000000, 3500000000) == 2.5);
}

static void features_have_names(void **state) {
    (void)state;
    char text[128];
    cpu_features none = {0};
    cpu_features_text(&none, text, sizeof(text));
    assert_string_equal(text, "none");
    cpu_features some = {.avx2 = true, .avx512 = true, .amx_int8 = true};
    cpu_features_text(&some, text, sizeof(text));
    assert_string_equal(text, "avx2 avx512 amx_int8");
    for (size_t capacity = 1; capacity < 24; capacity++) {
        memset(text, 'x', sizeof(text));
        cpu_features_text(&some, text, capacity);
        assert_true(memchr(text, '\0', capacity) != NULL);
    }
    cpu_features here = cpu_features_detect();
    assert_true(here.avx2 || !here.avx512);
    assert_true(here.avx2 || !here.avx_vnni);
    assert_true(here.avx512 || !here.avx512_vnni);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(quota_rounds_up, make_root),
        cmocka_unit_test_setup(decoding_keeps_below_the_quota, make_root),
        cmocka_unit_test_setup(smallest_quota_of_all_levels_binds, make_root),
        cmocka_unit_test_setup(memory_of_system_and_group, make_root),
        cmocka_unit_test_setup(limits_of_the_first_version_bind_too, make_root),
        cmocka_unit_test(the_count_of_threads_is_explained),
        cmocka_unit_test(this_machine_makes_sense),
        cmocka_unit_test(features_have_names),
    };
    return cmocka_run_group_tests_name("base/cpu", tests, NULL, NULL);
}
