/* The kernel resolves the path (openat2, RESOLVE_BENEATH: links may point inside only); what it has
 * opened is then read through its descriptor and through no name. Both files of a folder are looked
 * for where that was found, so that they are of one, whatever a link means a moment later. */
#include "adapters/beneath.h"

#include "adapters/adapters_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_beneath(int root, const char *path) {
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

static avo_status refuse(const char *root, const char *path, avo_error *error) {
    if (errno == EXDEV || errno == ELOOP)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "adapter path \"%.200s\" leaves the adapter root; paths must lie "
                           "below the root and links must stay inside it",
                           path);
    if (errno == ENOENT || errno == ENOTDIR)
        return status_fail(error, AVO_ERROR_NOT_FOUND, "%s/%.200s: no such file or folder", root,
                           path);
    if (errno == ENOSYS)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "an adapter root needs openat2 (Linux 5.6)");
    return status_fail(error, AVO_ERROR_IO, "%s/%.200s: %s", root, path, strerror(errno));
}

static void descriptor_path(int descriptor, char out[32]) {
    snprintf(out, 32, "/proc/self/fd/%d", descriptor);
}

/* One file of a folder; −1 with errno. */
static int open_inside(int root, const char *path, const char *name) {
    char joined[4096];
    avo_error error;
    if (file_join(joined, sizeof(joined), path, name, &error) != AVO_OK) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open_beneath(root, joined);
}

static bool read_link(int descriptor, char out[4096]) {
    char place[32];
    descriptor_path(descriptor, place);
    ssize_t length = readlink(place, out, 4096);
    if (length <= 0 || length >= 4096)
        return false;
    out[length] = '\0';
    return true;
}

/* Where a folder that was found lies beneath the root, without links; else `path`, as it was given.
 */
static const char *inner_path(int root, int found, const char *path, char room[4096]) {
    char above[4096];
    if (!read_link(root, above) || !read_link(found, room))
        return path;
    size_t length = strlen(above);
    if (length > 1 && strncmp(room, above, length) == 0 && room[length] == '/')
        return room + length + 1;
    return length == 1 && room[1] != '\0' ? room + 1 : path;
}

static avo_status no_weights(int root, const char *path, const char *shown, avo_error *error) {
    int pickle = open_inside(root, path, ADAPTER_PICKLE_NAME);
    if (pickle >= 0)
        (void)close(pickle);
    return adapter_no_weights(shown, pickle >= 0, error);
}

static avo_status open_folder(int root, const char *root_path, const char *path,
                              adapter_files *files, const adapter_base *base,
                              const adapter_options *options, const avo_allocator *allocator,
                              avo_adapter **out, avo_error *error) {
    char config_path[32], weights_path[32], config_shown[4096], weights_shown[4096];
    AVO_TRY(
        file_join(config_shown, sizeof(config_shown), files->shown, ADAPTER_CONFIG_NAME, error));
    AVO_TRY(
        file_join(weights_shown, sizeof(weights_shown), files->shown, ADAPTER_WEIGHTS_NAME, error));
    int config = open_inside(root, path, ADAPTER_CONFIG_NAME);
    if (config < 0)
        return errno == ENOENT ? adapter_no_config(files->shown, error)
                               : refuse(root_path, path, error);
    avo_status status;
    int weights = open_inside(root, path, ADAPTER_WEIGHTS_NAME);
    if (weights >= 0) {
        descriptor_path(config, config_path);
        descriptor_path(weights, weights_path);
        files->config = config_path;
        files->config_shown = config_shown;
        files->weights = weights_path;
        files->weights_shown = weights_shown;
        status = adapter_open_files(base, files, options, allocator, out, error);
        (void)close(weights);
    } else {
        status = errno == ENOENT ? no_weights(root, path, files->shown, error)
                                 : refuse(root_path, path, error);
    }
    (void)close(config);
    return status;
}

/* Turns an absolute path below the root into one relative to it, so that clients may send either.
 * Other absolute paths are left alone, and the kernel refuses them. */
static const char *relative_path(int root, const char *path, char room[4096]) {
    if (path[0] != '/' || !read_link(root, room))
        return path;
    size_t length = strcmp(room, "/") == 0 ? 0 : strlen(room);
    if (strncmp(room, path, length) != 0 || (path[length] != '/' && path[length] != '\0'))
        return path;
    path += length + strspn(path + length, "/");
    return path[0] != '\0' ? path : ".";
}

static avo_status open_once(const char *root, const char *path, const adapter_base *base,
                            const adapter_options *options, const avo_allocator *allocator,
                            bool *changed, avo_adapter **out, avo_error *error) {
    char shown[4096], place[32], room[4096], own[4096];
    int folder = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return status_fail(error, AVO_ERROR_IO, "adapter root %s: %s", root, strerror(errno));
    path = relative_path(folder, path, own);
    avo_status status = file_join(shown, sizeof(shown), root, path, error);
    if (status != AVO_OK) {
        (void)close(folder);
        return status;
    }
    int found = open_beneath(folder, path);
    struct stat state;
    adapter_files files = {.shown = shown, .weights = place, .weights_shown = shown};
    if (found < 0 || fstat(found, &state) != 0) {
        status = refuse(root, path, error);
    } else if (S_ISDIR(state.st_mode)) {
        descriptor_path(found, place);
        files.folder = place;
        status = open_folder(folder, root, inner_path(folder, found, path, room), &files, base,
                             options, allocator, out, error);
    } else {
        descriptor_path(found, place);
        status = adapter_open_files(base, &files, options, allocator, out, error);
    }
    if (found >= 0)
        (void)close(found);
    (void)close(folder);
    *changed = files.changed;
    return status;
}

avo_status beneath_open(const char *root, const char *path, const adapter_base *base,
                        const adapter_options *options, const avo_allocator *allocator,
                        avo_adapter **out, avo_error *error) {
    *out = NULL;
    bool changed = false;
    avo_status status = open_once(root, path, base, options, allocator, &changed, out, error);
    return changed ? open_once(root, path, base, options, allocator, &changed, out, error) : status;
}
