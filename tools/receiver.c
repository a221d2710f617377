/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "receiver.h"

#include "protocol.h"
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TEMPORARY_NAME_MAX = 48,
    TEMPORARY_TRIES = 128,
    MODE_MASK = 0777, /* no set-user-id, set-group-id, sticky */
};

struct receiver {
    int root;
    struct checksum *checksum;
    bool failed;
    char error[PROTO_TEXT_MAX];
    uint64_t files;
    uint64_t bytes;
    uint64_t temporary_count;

    /* The directory used last, so that a thousand files in one need not be looked up part by part
     * each. */
    int directory; /* -1: none */
    char directory_path[PROTO_PATH_MAX];

    /* The file being written; -1: none. Its temporary name lies in file_directory. */
    int file;
    int file_directory; /* its own descriptor, not the cached one */
    uint32_t file_mode;
    char file_path[PROTO_PATH_MAX];
    char temporary[TEMPORARY_NAME_MAX];
};

TOOL_PRINTF(2, 3)
static enum receiver_outcome fail(struct receiver *receiver, const char *format, ...)
{
    receiver->failed = true;
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    vsnprintf(receiver->error, sizeof(receiver->error), format, arguments);
    va_end(arguments);
    return RECEIVER_FAILED;
}

/* For paths in error texts: the end of a long one says more than its beginning. */
static const char *tail_of(const char *path)
{
    size_t length = strlen(path);
    return length > 120 ? path + length - 120 : path;
}

static enum receiver_outcome fail_errno(struct receiver *receiver, const char *what,
                                        const char *path, int error)
{
    const char *remedy = "";
    if (error == ENOSPC || error == EDQUOT) {
        remedy = "; make room in the receiver's directory";
    } else if (error == EACCES || error == EPERM || error == EROFS) {
        remedy = "; let the user who runs \"rdmux serve\" write there";
    } else if (error == ELOOP || error == ENOTDIR) {
        remedy = "; a part of the path is not a directory there (symbolic links are not followed)";
    }
    return fail(receiver, "cannot %s \"%s\": %s%s", what, tail_of(path), strerror(error), remedy);
}

/* ---------------------------------------------------------------------------------------- paths */

/* Copies a path out of a message and refuses everything that could lead elsewhere. NULL if it is
 * fine, else what is wrong. */
static const char *read_path(const uint8_t *bytes, size_t length, char out[PROTO_PATH_MAX])
{
    if (length == 0) {
        return "it is empty";
    }
    if (length >= PROTO_PATH_MAX) {
        return "it is too long";
    }
    if (memchr(bytes, '\0', length) != NULL) {
        return "it contains a NUL";
    }
    memcpy(out, bytes, length);
    out[length] = '\0';
    if (out[0] == '/') {
        return "it is absolute; only paths below the receiver's directory are accepted";
    }
    const char *part = out;
    for (;;) {
        size_t part_length = strcspn(part, "/");
        if (part_length == 0) {
            return "it has an empty part";
        }
        if (part_length == 1 && part[0] == '.') {
            return "it contains \".\"";
        }
        if (part_length == 2 && part[0] == '.' && part[1] == '.') {
            return "it contains \"..\"; only paths below the receiver's directory are accepted";
        }
        if (part_length > NAME_MAX) {
            return "a part of it is too long";
        }
        if (part[part_length] == '\0') {
            return NULL;
        }
        part += part_length + 1;
    }
}

const char *receiver_check_link(const char *path, const char *target)
{
    if (target[0] == '/') {
        return "it points to an absolute path";
    }
    size_t depth = 0;
    for (const char *at = strchr(path, '/'); at != NULL; at = strchr(at + 1, '/')) {
        depth++;
    }
    bool named = false;
    const char *part = target;
    while (*part != '\0') {
        size_t length = strcspn(part, "/");
        if (length == 2 && part[0] == '.' && part[1] == '.') {
            if (named || depth == 0) {
                return "it could point outside the receiver's directory";
            }
            depth--;
        } else if (length > 0 && !(length == 1 && part[0] == '.')) {
            named = true;
        }
        part += length + (part[length] == '/' ? 1 : 0);
    }
    return target[0] == '\0' ? "it points nowhere" : NULL;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void forget_directory(struct receiver *receiver)
{
    if (receiver->directory >= 0) {
        close(receiver->directory);
        receiver->directory = -1;
    }
}

/* Opens one directory of a path, symbolic links not followed. -1 and errno. */
static int open_part(int parent, const char *name)
{
    return openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Makes receiver->directory the directory that holds `path`. False and errno. */
static bool enter_parent(struct receiver *receiver, const char *path)
{
    size_t parent_length = (size_t)(name_of(path) - path);
    if (receiver->directory >= 0 && strlen(receiver->directory_path) == parent_length &&
        memcmp(receiver->directory_path, path, parent_length) == 0) {
        return true;
    }
    forget_directory(receiver);
    int directory = open_part(receiver->root, ".");
    const char *part = path;
    while (directory >= 0 && part < path + parent_length) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(part, "/");
        memcpy(name, part, length);
        name[length] = '\0';
        int next = open_part(directory, name);
        int error = errno;
        close(directory);
        errno = error;
        directory = next;
        part += length + 1;
    }
    if (directory < 0) {
        return false;
    }
    memcpy(receiver->directory_path, path, parent_length);
    receiver->directory_path[parent_length] = '\0';
    receiver->directory = directory;
    return true;
}

static void next_temporary_name(struct receiver *receiver, char out[TEMPORARY_NAME_MAX])
{
    receiver->temporary_count++;
    snprintf(out, TEMPORARY_NAME_MAX, ".rdmux-%lx-%llx.part", (unsigned long)getpid(),
             (unsigned long long)receiver->temporary_count);
}

/* -------------------------------------------------------------------------------------- records */

static void abandon_file(struct receiver *receiver)
{
    if (receiver->file >= 0) {
        unlinkat(receiver->file_directory, receiver->temporary, 0);
        close(receiver->file);
        close(receiver->file_directory);
        receiver->file = -1;
        receiver->file_directory = -1;
    }
}

static enum receiver_outcome begin_file(struct receiver *receiver, uint32_t mode, const char *path)
{
    if (receiver->file >= 0) {
        return fail(receiver, "protocol: file \"%s\" begins inside another", tail_of(path));
    }
    if (!enter_parent(receiver, path)) {
        return fail_errno(receiver, "open the directory of", path, errno);
    }
    int file = -1;
    for (int i = 0; i < TEMPORARY_TRIES && file < 0; i++) {
        next_temporary_name(receiver, receiver->temporary);
        file = openat(receiver->directory, receiver->temporary,
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0 && errno != EEXIST) {
            break;
        }
    }
    if (file < 0) {
        return fail_errno(receiver, "create a file for", path, errno);
    }
    receiver->file_directory = fcntl(receiver->directory, F_DUPFD_CLOEXEC, 0);
    if (receiver->file_directory < 0 || !checksum_begin(receiver->checksum)) {
        int error = receiver->file_directory < 0 ? errno : ENOMEM;
        unlinkat(receiver->directory, receiver->temporary, 0);
        close(file);
        if (receiver->file_directory >= 0) {
            close(receiver->file_directory);
            receiver->file_directory = -1;
        }
        return fail_errno(receiver, "prepare to write", path, error);
    }
    receiver->file = file;
    receiver->file_mode = mode & MODE_MASK;
    memcpy(receiver->file_path, path, strlen(path) + 1);
    return RECEIVER_MORE;
}

static enum receiver_outcome write_data(struct receiver *receiver, const uint8_t *bytes,
                                        size_t length)
{
    if (receiver->file < 0) {
        return fail(receiver, "protocol: data without a file");
    }
    if (!checksum_add(receiver->checksum, bytes, length)) {
        return fail_errno(receiver, "compute the checksum of", receiver->file_path, ENOMEM);
    }
    while (length > 0) {
        ssize_t written = write(receiver->file, bytes, length);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return fail_errno(receiver, "write", receiver->file_path, written < 0 ? errno : ENOSPC);
        }
        bytes += written;
        length -= (size_t)written;
        receiver->bytes += (uint64_t)written;
    }
    return RECEIVER_MORE;
}

static enum receiver_outcome end_file(struct receiver *receiver, const uint8_t *expected)
{
    if (receiver->file < 0) {
        return fail(receiver, "protocol: the end of a file that did not begin");
    }
    const char *path = receiver->file_path;
    uint8_t actual[CHECKSUM_SIZE_MAX];
    if (!checksum_end(receiver->checksum, actual)) {
        return fail_errno(receiver, "compute the checksum of", path, ENOMEM);
    }
    if (memcmp(actual, expected, CHECKSUM_SIZE_MAX) != 0) {
        return fail(receiver,
                    "\"%s\" arrived damaged: its %s here is not the sender's; nothing was stored "
                    "under its name",
                    tail_of(path), checksum_name);
    }
    if (fchmod(receiver->file, receiver->file_mode) != 0) {
        return fail_errno(receiver, "set the mode of", path, errno);
    }
    int file = receiver->file;
    receiver->file = -1;
    int error = close(file) != 0 ? errno : 0;
    if (error == 0 && renameat(receiver->file_directory, receiver->temporary,
                               receiver->file_directory, name_of(path)) != 0) {
        error = errno;
    }
    if (error != 0) {
        unlinkat(receiver->file_directory, receiver->temporary, 0);
    }
    close(receiver->file_directory);
    receiver->file_directory = -1;
    if (error != 0) {
        return fail_errno(receiver, "store", path, error);
    }
    receiver->files++;
    return RECEIVER_MORE;
}

static enum receiver_outcome begin_directory(struct receiver *receiver, const char *path)
{
    if (!enter_parent(receiver, path)) {
        return fail_errno(receiver, "open the directory of", path, errno);
    }
    if (mkdirat(receiver->directory, name_of(path), 0700) != 0 && errno != EEXIST) {
        return fail_errno(receiver, "create the directory", path, errno);
    }
    int directory = open_part(receiver->directory, name_of(path));
    if (directory < 0) {
        return fail_errno(receiver, "use the directory", path, errno);
    }
    close(directory);
    return RECEIVER_MORE;
}

static enum receiver_outcome end_directory(struct receiver *receiver, uint32_t mode,
                                           const char *path)
{
    if (!enter_parent(receiver, path)) {
        return fail_errno(receiver, "open the directory of", path, errno);
    }
    /* Not fchmodat(), which follows links. */
    int directory = openat(receiver->directory, name_of(path),
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0) {
        return fail_errno(receiver, "open the directory", path, errno);
    }
    int error = fchmod(directory, mode & MODE_MASK) != 0 ? errno : 0;
    close(directory);
    return error != 0 ? fail_errno(receiver, "set the mode of", path, error) : RECEIVER_MORE;
}

static enum receiver_outcome make_link(struct receiver *receiver, const char *path,
                                       const char *target)
{
    const char *wrong = receiver_check_link(path, target);
    if (wrong != NULL) {
        return fail(receiver, "the link \"%s\" is refused: %s", tail_of(path), wrong);
    }
    if (!enter_parent(receiver, path)) {
        return fail_errno(receiver, "open the directory of", path, errno);
    }
    char temporary[TEMPORARY_NAME_MAX];
    int made = -1;
    for (int i = 0; i < TEMPORARY_TRIES && made != 0; i++) {
        next_temporary_name(receiver, temporary);
        made = symlinkat(target, receiver->directory, temporary);
        if (made != 0 && errno != EEXIST) {
            break;
        }
    }
    if (made != 0) {
        return fail_errno(receiver, "create the link", path, errno);
    }
    if (renameat(receiver->directory, temporary, receiver->directory, name_of(path)) != 0) {
        int error = errno;
        unlinkat(receiver->directory, temporary, 0);
        return fail_errno(receiver, "store the link", path, error);
    }
    return RECEIVER_MORE;
}

/* FILE, DIRECTORY, DIRECTORY_END: a mode and a path. */
static enum receiver_outcome take_entry(struct receiver *receiver, uint32_t kind,
                                        const uint8_t *payload, size_t length)
{
    if (length < 4) {
        return fail(receiver, "protocol: a record is too short");
    }
    uint32_t mode = proto_load32(payload);
    char path[PROTO_PATH_MAX] = "";
    const char *wrong = read_path(payload + 4, length - 4, path);
    if (wrong != NULL) {
        return fail(receiver, "the path \"%s\" is refused: %s", tail_of(path), wrong);
    }
    if (kind == PROTO_RECORD_FILE) {
        return begin_file(receiver, mode, path);
    }
    return kind == PROTO_RECORD_DIRECTORY ? begin_directory(receiver, path)
                                          : end_directory(receiver, mode, path);
}

static enum receiver_outcome take_link(struct receiver *receiver, const uint8_t *payload,
                                       size_t length)
{
    size_t path_length = length < 4 ? 0 : proto_load32(payload);
    if (length < 4 || path_length > length - 4) {
        return fail(receiver, "protocol: a link record is too short");
    }
    char path[PROTO_PATH_MAX] = "";
    char target[PROTO_PATH_MAX];
    const uint8_t *target_bytes = payload + 4 + path_length;
    size_t target_length = length - 4 - path_length;
    const char *wrong = read_path(payload + 4, path_length, path);
    if (wrong == NULL &&
        (target_length >= PROTO_PATH_MAX || memchr(target_bytes, '\0', target_length) != NULL)) {
        wrong = "its target is too long or contains a NUL";
    }
    if (wrong != NULL) {
        return fail(receiver, "the link \"%s\" is refused: %s", tail_of(path), wrong);
    }
    memcpy(target, target_bytes, target_length);
    target[target_length] = '\0';
    return make_link(receiver, path, target);
}

static enum receiver_outcome take_end(struct receiver *receiver, const uint8_t *payload)
{
    uint64_t files = proto_load64(payload);
    uint64_t bytes = proto_load64(payload + 8);
    if (receiver->file >= 0 || files != receiver->files || bytes != receiver->bytes) {
        return fail(receiver,
                    "protocol: the sender counts %llu files and %llu bytes, here are %llu and %llu",
                    (unsigned long long)files, (unsigned long long)bytes,
                    (unsigned long long)receiver->files, (unsigned long long)receiver->bytes);
    }
    return RECEIVER_DONE;
}

static enum receiver_outcome take_record(struct receiver *receiver, uint32_t kind,
                                         const uint8_t *payload, size_t length)
{
    switch (kind) {
    case PROTO_RECORD_FILE:
    case PROTO_RECORD_DIRECTORY:
    case PROTO_RECORD_DIRECTORY_END:
        return take_entry(receiver, kind, payload, length);
    case PROTO_RECORD_DATA:
        return write_data(receiver, payload, length);
    case PROTO_RECORD_FILE_END:
        if (length != CHECKSUM_SIZE_MAX) {
            break;
        }
        return end_file(receiver, payload);
    case PROTO_RECORD_LINK:
        return take_link(receiver, payload, length);
    case PROTO_RECORD_END:
        if (length != 16) {
            break;
        }
        return take_end(receiver, payload);
    default:
        break;
    }
    return fail(receiver, "protocol: a record of kind %u with %llu bytes is not known",
                (unsigned)kind, (unsigned long long)length);
}

struct receiver *receiver_create(int root)
{
    struct receiver *receiver = calloc(1, sizeof(*receiver));
    if (receiver == NULL) {
        return NULL;
    }
    receiver->root = root;
    receiver->directory = -1;
    receiver->file = -1;
    receiver->file_directory = -1;
    receiver->checksum = checksum_create();
    if (receiver->checksum == NULL) {
        free(receiver);
        return NULL;
    }
    return receiver;
}

void receiver_destroy(struct receiver *receiver)
{
    if (receiver == NULL) {
        return;
    }
    abandon_file(receiver);
    forget_directory(receiver);
    checksum_destroy(receiver->checksum);
    free(receiver);
}

enum receiver_outcome receiver_take(struct receiver *receiver, const uint8_t *bytes, size_t length)
{
    enum receiver_outcome outcome = receiver->failed ? RECEIVER_FAILED : RECEIVER_MORE;
    while (outcome == RECEIVER_MORE && length > 0) {
        if (length < PROTO_RECORD_HEADER_SIZE) {
            outcome = fail(receiver, "protocol: a record is cut off");
            break;
        }
        uint32_t kind = proto_load32(bytes);
        size_t payload_length = proto_load32(bytes + 4);
        bytes += PROTO_RECORD_HEADER_SIZE;
        length -= PROTO_RECORD_HEADER_SIZE;
        if (payload_length > length) {
            outcome = fail(receiver, "protocol: a record is cut off");
            break;
        }
        outcome = take_record(receiver, kind, bytes, payload_length);
        bytes += payload_length;
        length -= payload_length;
    }
    if (outcome == RECEIVER_DONE && length > 0) {
        outcome = fail(receiver, "protocol: records follow the end");
    }
    if (outcome == RECEIVER_FAILED) {
        abandon_file(receiver);
    }
    return outcome;
}

const char *receiver_error(const struct receiver *receiver)
{
    return receiver->error;
}

uint64_t receiver_files(const struct receiver *receiver)
{
    return receiver->files;
}

uint64_t receiver_bytes(const struct receiver *receiver)
{
    return receiver->bytes;
}
