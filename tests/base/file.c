/* base/file: what may be mapped, and that writers of files and folders leave all or nothing. */
#include "support/support.h"

#include "base/file.h"
#include "base/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static char folder[4096]; /* fresh and empty for every test */

static int make_folder(void **state) {
    (void)state;
    static int number;
    snprintf(folder, sizeof(folder), "%s/file-%d", test_scratch_folder(), number++);
    return mkdir(folder, 0755);
}

static const char *at(const char *name) {
    static char path[2][4200];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

static void put(const char *name, const char *text) {
    avo_error error = {0};
    assert_ok_error(file_write(at(name), text, strlen(text), &error), &error);
}

static void assert_holds(const char *name, const char *text) {
    file_map map;
    avo_error error = {0};
    assert_ok_error(file_map_open(at(name), &map, &error), &error);
    assert_int_equal(map.bytes.size, strlen(text));
    if (map.bytes.size > 0)
        assert_memory_equal(map.bytes.data, text, map.bytes.size);
    file_map_close(&map);
    file_map_close(&map);
}

static void maps_regular_files(void **state) {
    (void)state;
    put("a", "hello");
    put("empty", "");
    assert_holds("a", "hello");
    assert_holds("empty", "");
    assert_int_equal(symlink("a", at("link")), 0);
    assert_holds("link", "hello");
    assert_int_equal(file_kind_of(at("a")), FILE_REGULAR);
    assert_int_equal(file_kind_of(folder), FILE_FOLDER);
    assert_int_equal(file_kind_of(at("none")), FILE_MISSING);
    assert_int_equal(file_kind_of("/dev/null"), FILE_OTHER);
}

static void refuses_what_is_no_file(void **state) {
    (void)state;
    file_map map = {.bytes = {(const uint8_t *)"x", 1}};
    avo_error error = {0};
    assert_refused(file_map_open(at("none"), &map, &error), AVO_ERROR_NOT_FOUND, &error, "none");
    assert_null(map.bytes.data);
    assert_refused(file_map_open(folder, &map, &error), AVO_ERROR_IO, &error, "regular");
    assert_int_equal(mkfifo(at("fifo"), 0644), 0);
    assert_refused(file_map_open(at("fifo"), &map, &error), AVO_ERROR_IO, &error, "fifo");
    assert_refused(file_map_open("/dev/zero", &map, &error), AVO_ERROR_IO, &error, "/dev/zero");
    assert_refused(file_map_open("", &map, &error), AVO_ERROR_NOT_FOUND, &error, "cannot open");
    assert_int_equal(symlink("loop", at("loop")), 0);
    assert_refused(file_map_open(at("loop"), &map, &error), AVO_ERROR_IO, &error, "loop");
    assert_int_equal(file_map_open(at("none"), &map, NULL), AVO_ERROR_NOT_FOUND);
}

/* By a process without root's rights, which a permission could not refuse anything. */
static bool closed_files_are_told(void) {
    file_map map;
    avo_error error = {0};
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
        return false;
    return file_map_open(at("secret"), &map, &error) == AVO_ERROR_IO &&
           strstr(error.text, "secret: cannot open: Permission denied") != NULL &&
           file_kind_of(at("closed/x")) == FILE_OTHER; /* which is not missing */
}

static void permissions_are_told(void **state) {
    (void)state;
    put("secret", "x");
    assert_int_equal(chmod(at("secret"), 0), 0);
    assert_int_equal(mkdir(at("closed"), 0), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(closed_files_are_told() ? 0 : 1);
    int status = 1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    assert_int_equal(rmdir(at("closed")), 0);
}

static void joins_paths(void **state) {
    (void)state;
    char path[16];
    avo_error error = {0};
    assert_ok(file_join(path, sizeof(path), "a", "b", &error));
    assert_string_equal(path, "a/b");
    assert_ok(file_join(path, sizeof(path), "a/", "b", &error));
    assert_string_equal(path, "a/b");
    assert_ok(file_join(path, sizeof(path), "/", "b", &error));
    assert_string_equal(path, "/b");
    assert_ok(file_join(path, sizeof(path), "1234567", "1234567", &error)); /* 15 and its end */
    assert_refused(file_join(path, sizeof(path), "1234567", "12345678", &error), AVO_ERROR_LIMIT,
                   &error, "the path is too long");
}

static void last_parts_of_paths(void **state) {
    (void)state;
    static const char *const paths[][2] = {{"/models/a.gguf", "a.gguf"},
                                           {"a.gguf", "a.gguf"},
                                           {"smollm2/", "smollm2"},
                                           {"a/b//", "b"},
                                           {"/", ""},
                                           {"", ""}};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_true(text_is(file_last_part(paths[i][0]), paths[i][1]));
}

static void writes_all_or_nothing(void **state) {
    (void)state;
    avo_error error = {0};
    file_writer writer;
    put("a", "old");
    assert_ok_error(file_writer_open(&writer, at("a"), &error), &error);
    assert_ok_error(file_writer_append(&writer, "new text", 8, &error), &error);
    assert_holds("a", "old"); /* nothing is seen before the commit */
    assert_int_equal(test_entries(folder), 2);
    assert_ok_error(file_writer_commit(&writer, &error), &error);
    assert_holds("a", "new text");
    assert_int_equal(test_entries(folder), 1);
    file_writer_abort(&writer); /* after a commit: nothing left to do */
    assert_holds("a", "new text");
    assert_ok_error(file_writer_open(&writer, at("a"), &error), &error);
    assert_ok_error(file_writer_append(&writer, "third", 5, &error), &error);
    file_writer_abort(&writer);
    file_writer_abort(&writer);
    assert_holds("a", "new text");
    assert_int_equal(test_entries(folder), 1);
}

static void writes_large_and_small_pieces(void **state) {
    (void)state;
    enum { TOTAL = 3 << 20 };
    uint8_t *data = test_malloc(TOTAL);
    for (size_t i = 0; i < TOTAL; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    static const size_t pieces[] = {1, 7, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 999};
    avo_error error = {0};
    file_writer writer;
    assert_ok_error(file_writer_open(&writer, at("big"), &error), &error);
    size_t done = 0;
    for (size_t i = 0; done < TOTAL; i++) {
        size_t piece = pieces[i % 7] < TOTAL - done ? pieces[i % 7] : TOTAL - done;
        assert_ok_error(file_writer_append(&writer, data + done, piece, &error), &error);
        done += piece;
        assert_int_equal(writer.written, done);
    }
    assert_ok_error(file_writer_commit(&writer, &error), &error);
    file_map map;
    assert_ok_error(file_map_open(at("big"), &map, &error), &error);
    assert_int_equal(map.bytes.size, TOTAL);
    assert_memory_equal(map.bytes.data, data, TOTAL);
    file_map_close(&map);
    test_free(data);
}

static void aligns_and_patches(void **state) {
    (void)state;
    avo_error error = {0};
    file_writer writer;
    assert_ok_error(file_writer_open(&writer, at("a"), &error), &error);
    assert_ok(file_writer_append(&writer, "head", 4, &error));
    assert_ok(file_writer_align(&writer, 4096, &error));
    assert_int_equal(writer.written, 4096);
    assert_ok(file_writer_align(&writer, 4096, &error));
    assert_int_equal(writer.written, 4096);
    assert_ok(file_writer_append(&writer, "tail", 4, &error));
    assert_ok(file_writer_patch(&writer, 0, "HEAD", 4, &error));
    assert_ok(file_writer_patch(&writer, 4098, "IL", 2, &error));
    assert_ok(file_writer_append(&writer, "!", 1, &error)); /* goes on at the end */
    assert_refused(file_writer_patch(&writer, 4100, "xx", 2, &error), AVO_ERROR_ARGUMENT, &error,
                   "past the end");
    assert_refused(file_writer_patch(&writer, UINT64_MAX, "xx", 2, &error), AVO_ERROR_ARGUMENT,
                   &error, "past the end");
    assert_ok_error(file_writer_commit(&writer, &error), &error);
    file_map map;
    assert_ok_error(file_map_open(at("a"), &map, &error), &error);
    assert_int_equal(map.bytes.size, 4101);
    assert_memory_equal(map.bytes.data, "HEAD\0\0", 6);
    assert_memory_equal(map.bytes.data + 4096, "taIL!", 5);
    file_map_close(&map);
}

static void two_writers_do_not_meet(void **state) {
    (void)state;
    avo_error error = {0};
    file_writer one;
    file_writer two;
    assert_ok_error(file_writer_open(&one, at("a"), &error), &error);
    assert_ok_error(file_writer_open(&two, at("a"), &error), &error);
    assert_string_not_equal(one.temporary, two.temporary);
    assert_ok(file_writer_append(&one, "one", 3, &error));
    assert_ok(file_writer_append(&two, "second", 6, &error));
    assert_ok_error(file_writer_commit(&one, &error), &error);
    assert_holds("a", "one");
    assert_ok_error(file_writer_commit(&two, &error), &error);
    assert_holds("a", "second");
    assert_int_equal(test_entries(folder), 1);
}

/* What a killed process left behind, or somebody's symbolic link, is not written to. */
static void leftovers_are_not_touched(void **state) {
    (void)state;
    avo_error error = {0};
    file_writer writer;
    assert_ok_error(file_writer_open(&writer, at("a"), &error), &error);
    char first[sizeof(writer.temporary)];
    memcpy(first, writer.temporary, sizeof(first));
    file_writer_abort(&writer);
    put("victim", "untouched");
    assert_int_equal(symlink("victim", first), 0);
    put("a", "fresh");
    assert_holds("victim", "untouched");
    assert_holds("a", "fresh");
}

static void failures_leave_no_trace(void **state) {
    (void)state;
    avo_error error = {0};
    file_writer writer;
    assert_refused(file_writer_open(&writer, at("none/a"), &error), AVO_ERROR_IO, &error, "create");
    file_writer_abort(&writer);
    char path[5000];
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_refused(file_writer_open(&writer, path, &error), AVO_ERROR_LIMIT, &error, "too long");
    file_writer_abort(&writer);
    /* a rename that fails: the target has become a folder with something in it */
    assert_ok_error(file_writer_open(&writer, at("target"), &error), &error);
    assert_int_equal(mkdir(at("target"), 0755), 0);
    assert_int_equal(mkdir(at("target/inside"), 0755), 0);
    assert_ok(file_writer_append(&writer, "text", 4, &error));
    assert_refused(file_writer_commit(&writer, &error), AVO_ERROR_IO, &error, "rename");
    file_writer_abort(&writer);
    assert_int_equal(test_entries(folder), 1);
}

/* Devices, pipes and folders are never replaced; a link is followed and stays. */
static void only_files_are_replaced(void **state) {
    (void)state;
    avo_error error = {0};
    file_writer writer;
    assert_int_equal(mkfifo(at("pipe"), 0644), 0);
    assert_int_equal(mkdir(at("folder"), 0755), 0);
    assert_int_equal(symlink("the link has no target", at("dangling")), 0);
    assert_refused(file_writer_open(&writer, at("pipe"), &error), AVO_ERROR_IO, &error, "pipe");
    assert_refused(file_writer_open(&writer, at("folder"), &error), AVO_ERROR_IO, &error,
                   "exists and is not a regular");
    assert_refused(file_writer_open(&writer, "/dev/null", &error), AVO_ERROR_IO, &error,
                   "/dev/null");
    assert_refused(file_writer_open(&writer, at("dangling"), &error), AVO_ERROR_IO, &error,
                   "the link has no target");
    put("target", "old");
    assert_int_equal(symlink("target", at("link")), 0);
    assert_ok_error(file_writer_open(&writer, at("link"), &error), &error);
    assert_ok(file_writer_append(&writer, "new", 3, &error));
    assert_ok_error(file_writer_commit(&writer, &error), &error);
    assert_holds("target", "new");
    struct stat info;
    assert_int_equal(lstat(at("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(test_entries(folder), 5);
}

static void full_disk_leaves_no_trace(void **state) {
    (void)state;
    uint8_t *data = test_calloc(1, 3 << 20);
    put("a", "old");
    test_disk_limit(100000);
    avo_error error = {0};
    avo_error late = {0};
    file_writer writer;
    avo_status opened = file_writer_open(&writer, at("a"), &error);
    avo_status appended = file_writer_append(&writer, data, 3 << 20, &error);
    file_writer_abort(&writer);
    avo_status opened_late = file_writer_open(&writer, at("a"), &late);
    avo_status appended_late = file_writer_append(&writer, data, 200000, &late); /* only buffered */
    avo_status committed_late = file_writer_commit(&writer, &late);
    avo_status whole = file_write(at("a"), data, 3 << 20, NULL);
    avo_status whole_late = file_write(at("a"), data, 200000, NULL);
    test_disk_limit(0);
    test_free(data);
    assert_ok(opened);
    assert_int_equal(appended, AVO_ERROR_IO);
    assert_non_null(strstr(error.text, "cannot write"));
    assert_ok(opened_late);
    assert_ok(appended_late);
    assert_int_equal(committed_late, AVO_ERROR_IO);
    assert_int_equal(whole, AVO_ERROR_IO);
    assert_int_equal(whole_late, AVO_ERROR_IO);
    assert_non_null(strstr(late.text, "cannot write"));
    assert_holds("a", "old");
    assert_int_equal(test_entries(folder), 1);
}

/* ---- Folders ---- */

/* A file in the folder that is being written. */
static void put_into(const folder_writer *writer, const char *name) {
    char path[8192];
    avo_error error = {0};
    assert_ok(file_join(path, sizeof(path), writer->temporary, name, &error));
    assert_ok_error(file_write(path, name, strlen(name), &error), &error);
}

static void folders_appear_at_once(void **state) {
    (void)state;
    avo_error error = {0};
    folder_writer one, two;
    assert_ok_error(folder_writer_open(&one, at("out//"), &error), &error);
    assert_ok_error(folder_writer_open(&two, at("out"), &error), &error);
    assert_string_not_equal(one.temporary, two.temporary);
    put_into(&one, "a");
    put_into(&one, "b");
    assert_int_equal(file_kind_of(at("out")), FILE_MISSING);
    assert_ok_error(folder_writer_commit(&one, &error), &error);
    assert_holds("out/a", "a");
    assert_holds("out/b", "b");
    folder_writer_abort(&one); /* after a commit: nothing left to do */
    assert_holds("out/a", "a");
    /* The second one finds the name taken and leaves nothing. */
    put_into(&two, "a");
    assert_refused(folder_writer_commit(&two, &error), AVO_ERROR_IO, &error, "cannot rename");
    assert_holds("out/b", "b");
    assert_int_equal(test_entries(folder), 1);
    folder_writer_abort(&two);
}

static void folders_replace_nothing(void **state) {
    (void)state;
    avo_error error = {0};
    folder_writer writer;
    assert_int_equal(mkdir(at("empty"), 0755), 0);
    assert_int_equal(symlink("empty", at("link")), 0);
    assert_ok_error(folder_writer_open(&writer, at("link"), &error), &error);
    put_into(&writer, "a");
    assert_ok_error(folder_writer_commit(&writer, &error), &error);
    assert_holds("empty/a", "a");
    put("file", "x");
    assert_int_equal(symlink("nowhere", at("dangling")), 0);
    for (int i = 0; i < 4; i++) {
        static const char *const taken[] = {"empty", "link", "file", "dangling"};
        assert_refused(folder_writer_open(&writer, at(taken[i]), &error), AVO_ERROR_IO, &error,
                       "exists and is not an empty folder; choose another output");
        folder_writer_abort(&writer); /* after a failure: nothing left to do */
    }
    assert_refused(folder_writer_open(&writer, at("none/out"), &error), AVO_ERROR_IO, &error,
                   "cannot create");
    assert_refused(folder_writer_open(&writer, "", &error), AVO_ERROR_LIMIT, &error, "0 bytes");
    char path[5000];
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_refused(folder_writer_open(&writer, path, &error), AVO_ERROR_LIMIT, &error,
                   "4999 bytes, must have 1 to 4095");
    assert_int_equal(test_entries(folder), 4);
}

static void aborted_folders_leave_no_trace(void **state) {
    (void)state;
    avo_error error = {0};
    folder_writer writer;
    assert_ok_error(folder_writer_open(&writer, at("out"), &error), &error);
    put_into(&writer, "a");
    put_into(&writer, "b");
    assert_int_equal(test_entries(folder), 1);
    folder_writer_abort(&writer);
    assert_int_equal(test_entries(folder), 0);
    folder_writer_abort(&writer);
}

/* ---- What killed writers left behind ---- */

/* The PID of a process that no longer exists. */
static long dead_process(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_true(child > 0 && waitpid(child, NULL, 0) == child);
    return (long)child;
}

static const char *left(const char *format, long process) {
    static char path[4200];
    char name[128];
    snprintf(name, sizeof(name), format, process);
    snprintf(path, sizeof(path), "%s", at(name));
    return path;
}

static void make_left(const char *path, bool folder) {
    char inside[4300];
    if (folder) {
        assert_int_equal(mkdir(path, 0755), 0);
        snprintf(inside, sizeof(inside), "%s/weights", path);
        path = inside;
    }
    int descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(descriptor >= 0);
    close(descriptor);
}

static void removes_what_killed_writers_left(void **state) {
    (void)state;
    /* Of other names, of none that a writer makes, and of a process that lives. */
    static const char *const others[] = {".other.part-%ld-0", ".out.part-%ld",   ".out.part-%ld-0x",
                                         ".out.part-0%ld-0",  "out.part-%ld-0",  ".out.part-%ld-00",
                                         ".out.part-x%ld-0",  ".out.part-%ld--1"};
    avo_error error = {0};
    file_writer writer;
    folder_writer folder;
    long dead = dead_process();
    make_left(left(".out.part-%ld-0", dead), false);
    make_left(left(".out.part-%ld-7", dead), true);
    make_left(left(".out.part-%ld-9", (long)getppid()), false);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        make_left(left(others[i], dead), false);
    assert_int_equal(symlink("nowhere", left(".out.part-%ld-1", dead)), 0);
    assert_ok_error(file_writer_open(&writer, at("out"), &error), &error);
    assert_int_equal(file_kind_of(left(".out.part-%ld-0", dead)), FILE_MISSING);
    assert_int_equal(file_kind_of(left(".out.part-%ld-7", dead)), FILE_MISSING);
    assert_int_equal(file_kind_of(left(".out.part-%ld-9", (long)getppid())), FILE_REGULAR);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_int_equal(file_kind_of(left(others[i], dead)), FILE_REGULAR);
    struct stat info;
    assert_int_equal(lstat(left(".out.part-%ld-1", dead), &info), 0);
    file_writer_abort(&writer);
    make_left(left(".out.part-%ld-0", dead), true);
    /* Held by a writer whose PID this process cannot see. */
    make_left(left(".out.part-%ld-3", dead), false);
    int held = open(left(".out.part-%ld-3", dead), O_RDONLY | O_CLOEXEC);
    leftover_hold(held);
    assert_ok_error(folder_writer_open(&folder, at("out"), &error), &error);
    assert_int_equal(file_kind_of(left(".out.part-%ld-0", dead)), FILE_MISSING);
    assert_int_equal(file_kind_of(left(".out.part-%ld-3", dead)), FILE_REGULAR);
    leftover_remove(at("out"));
    assert_int_equal(file_kind_of(folder.temporary), FILE_FOLDER);
    folder_writer_abort(&folder);
    close(held);
}

int main(void) {
#define IN_FRESH_FOLDER(test) cmocka_unit_test_setup(test, make_folder)
    const struct CMUnitTest tests[] = {
        IN_FRESH_FOLDER(removes_what_killed_writers_left),
        IN_FRESH_FOLDER(maps_regular_files),
        IN_FRESH_FOLDER(refuses_what_is_no_file),
        IN_FRESH_FOLDER(permissions_are_told),
        IN_FRESH_FOLDER(joins_paths),
        IN_FRESH_FOLDER(last_parts_of_paths),
        IN_FRESH_FOLDER(writes_all_or_nothing),
        IN_FRESH_FOLDER(writes_large_and_small_pieces),
        IN_FRESH_FOLDER(aligns_and_patches),
        IN_FRESH_FOLDER(two_writers_do_not_meet),
        IN_FRESH_FOLDER(leftovers_are_not_touched),
        IN_FRESH_FOLDER(failures_leave_no_trace),
        IN_FRESH_FOLDER(only_files_are_replaced),
        IN_FRESH_FOLDER(full_disk_leaves_no_trace),
        IN_FRESH_FOLDER(folders_appear_at_once),
        IN_FRESH_FOLDER(folders_replace_nothing),
        IN_FRESH_FOLDER(aborted_folders_leave_no_trace),
    };
    return cmocka_run_group_tests_name("base/file", tests, NULL, NULL);
}
