/* Finds the interpreter: the program file itself, and what the kernel and the dynamic linker read
 * to start it. The sandbox allows these paths and no others, so a script that starts an interpreter
 * (pyenv's, for example) cannot be used. */
#include "base/cursor.h"
#include "base/file.h"
#include "eval/code_int.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADERS_MAX 64

static bool read_at(int descriptor, void *data, size_t bytes, uint64_t offset) {
    return offset < INT64_MAX && pread(descriptor, data, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* The path in the header that names the dynamic linker. */
static bool read_loader(int descriptor, const Elf64_Ehdr *head, char *loader, size_t capacity) {
    if (head->e_phentsize != sizeof(Elf64_Phdr) || head->e_phnum > HEADERS_MAX)
        return false;
    for (unsigned i = 0; i < head->e_phnum; i++) {
        Elf64_Phdr entry;
        if (!read_at(descriptor, &entry, sizeof(entry), head->e_phoff + i * sizeof(entry)))
            return false;
        if (entry.p_type != PT_INTERP)
            continue;
        if (entry.p_filesz < 2 || entry.p_filesz > capacity)
            return false;
        return read_at(descriptor, loader, (size_t)entry.p_filesz, entry.p_offset) &&
               loader[entry.p_filesz - 1] == '\0';
    }
    loader[0] = '\0'; /* linked statically */
    return true;
}

static avo_status read_head(code_interpreter *found, const char *name, avo_error *error) {
    int descriptor = open(found->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return status_fail(error, AVO_ERROR_IO, "interpreter %s: cannot open %s: %s", name,
                           found->path, strerror(errno));
    Elf64_Ehdr head = {0};
    avo_status status = AVO_OK;
    bool whole = read_at(descriptor, &head, sizeof(head), 0);
    if (memcmp(head.e_ident, "#!", 2) == 0)
        status = status_fail(error, AVO_ERROR_ARGUMENT,
                             "interpreter %s: %s is a script, must be the program itself "
                             "(python3 -c 'import sys; print(sys.executable)' prints its path)",
                             name, found->path);
    else if (!whole || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
             head.e_ident[EI_CLASS] != ELFCLASS64 ||
             !read_loader(descriptor, &head, found->loader, sizeof(found->loader)))
        status = status_fail(error, AVO_ERROR_ARGUMENT,
                             "interpreter %s: %s is not a 64-bit program", name, found->path);
    close(descriptor);
    return status;
}

static avo_status find_libraries(code_interpreter *found, avo_error *error) {
    static const char *const names[] = {"/../lib", "/../lib64"};
    size_t folder = (size_t)(strrchr(found->path, '/') - found->path);
    for (size_t i = 0; i < 2; i++) {
        if (folder + strlen(names[i]) >= CODE_PATH_MAX)
            return status_fail(error, AVO_ERROR_LIMIT, "interpreter %s: the path is too long",
                               found->path);
        memcpy(found->libraries[i], found->path, folder);
        memcpy(found->libraries[i] + folder, names[i], strlen(names[i]) + 1);
    }
    return AVO_OK;
}

/* realpath needs PATH_MAX bytes, which CODE_PATH_MAX is on Linux. */
static bool resolve(const char *path, code_interpreter *found) {
    return realpath(path, found->path) != NULL && file_kind_of(found->path) == FILE_REGULAR;
}

avo_status code_interpreter_find(const char *name, code_interpreter *found, avo_error *error) {
    static const char *const folders[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    memset(found, 0, sizeof(*found));
    if (name == NULL)
        name = "python3";
    if (strchr(name, '/') != NULL) {
        if (!resolve(name, found))
            return status_fail(error, AVO_ERROR_NOT_FOUND, "interpreter %s: no such file", name);
        AVO_TRY(read_head(found, name, error));
        return find_libraries(found, error);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char path[CODE_PATH_MAX];
        AVO_TRY(file_join(path, sizeof(path), folders[i], name, error));
        if (resolve(path, found) && read_head(found, name, NULL) == AVO_OK)
            return find_libraries(found, error);
    }
    return status_fail(error, AVO_ERROR_NOT_FOUND,
                       "interpreter %s: not in /usr/local/bin, /usr/bin or /bin; install it or "
                       "give the path of another",
                       name);
}
