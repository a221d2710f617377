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
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TEMPORARY_RANDOM = 16, /* bytes, so that no other client can guess the name */
    TEMPORARY_NAME_MAX = 48,
    MODE_MASK = 0777, /* without set-user-id, set-group-id and sticky bits */

    /* Cost of records, and the limit of one call of receiver_take(), which is some milliseconds at
     * most. */
    COST_RECORD = 1, /* and once more for each directory opened */
    COST_ENTRY = 4,  /* for creating or renaming an entry */
    COST_MAX = 256,
    COST_BYTES_SHIFT = 12, /* one unit for 4 KiB of data */
};

struct receiver {
    int root;
    struct checksum *checksum;
    bool failed;
    char error[PROTO_TEXT_MAX];
    uint64_t files;
    uint64_t bytes;
    unsigned cost; /* cost so far of this call of receiver_take() */

    /* The directory used last, so that many files in it need no lookup of each part of the path. */
    int directory; /* -1: none */
    char directory_path[PROTO_PATH_MAX];

    /* The file being written; -1: none. It has no name, or a temporary name in file_directory if
     * the file system does not support files without one. */
    int file;
    int file_directory; /* a descriptor of its own, not the cached one */
    uint32_t file_mode;
    char file_path[PROTO_PATH_MAX];
    char temporary[TEMPORARY_NAME_MAX]; /* "": none */
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

/* Shortens paths for error texts: the end of a long path says more than its beginning. */
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
    } else if (error == EFBIG) {
        remedy = "; the receiver's limit on the size of files (ulimit -f) or that of its file "
                 "system is less";
    } else if (error == EACCES || error == EPERM || error == EROFS) {
        remedy = "; let the user who runs \"rdmux serve\" write there";
    } else if (error == ELOOP || error == ENOTDIR) {
        remedy = "; a part of the path is not a directory there (symbolic links are not followed)";
    }
    return fail(receiver, "cannot %s \"%s\": %s%s", what, tail_of(path), strerror(error), remedy);
}

/* ---------------------------------------------------------------------------------------- paths */

/* Copies a path out of a message and refuses paths that could lead outside. Returns NULL if the
 * path is valid, else the problem. */
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
    for (unsigned parts = 1;; parts++) {
        size_t part_length = strcspn(part, "/");
        if (parts > RECEIVER_DEPTH_MAX) {
            return "it has more than 128 parts";
        }
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

/* Opens one directory of a path without following symbolic links. Returns -1 with errno set on
 * failure. */
static int open_part(int parent, const char *name)
{
    return openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Makes receiver->directory the directory that holds `path`. Returns false with errno set on
 * failure. */
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
        receiver->cost++;
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

/* Makes a name that nobody can predict. Returns false with errno set on failure. */
static bool temporary_name(char out[TEMPORARY_NAME_MAX])
{
    uint8_t bytes[TEMPORARY_RANDOM];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return false;
    }
    size_t length = (size_t)snprintf(out, TEMPORARY_NAME_MAX, ".rdmux-");
    for (size_t i = 0; i < sizeof(bytes); i++) {
        length += (size_t)snprintf(out + length, TEMPORARY_NAME_MAX - length, "%02x", bytes[i]);
    }
    snprintf(out + length, TEMPORARY_NAME_MAX - length, ".part");
    return true;
}

/* -------------------------------------------------------------------------------------- records */

static void abandon_file(struct receiver *receiver)
{
    if (receiver->temporary[0] != '\0') {
        unlinkat(receiver->file_directory, receiver->temporary, 0);
        receiver->temporary[0] = '\0';
    }
    if (receiver->file >= 0) {
        close(receiver->file);
        receiver->file = -1;
    }
    if (receiver->file_directory >= 0) {
        close(receiver->file_directory);
        receiver->file_directory = -1;
    }
}

/* Opens a file in file_directory, without a name or else with a temporary one. Returns -1 with
 * errno set on failure. */
static int create_file(struct receiver *receiver)
{
    /* link_file() needs /proc to give the file a name. */
    int file = access("/proc/self/fd", X_OK) == 0
                   ? openat(receiver->file_directory, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600)
                   : -1;
    if (file >= 0) {
        return file;
    }
    if (!temporary_name(receiver->temporary)) {
        return -1;
    }
    file = openat(receiver->file_directory, receiver->temporary,
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
        receiver->temporary[0] = '\0';
    }
    return file;
}

static enum receiver_outcome begin_file(struct receiver *receiver, uint32_t mode, const char *path)
{
    if (receiver->file >= 0) {
        return fail(receiver, "protocol: file \"%s\" begins inside another", tail_of(path));
    }
    if (!enter_parent(receiver, path)) {
        return fail_errno(receiver, "open the directory of", path, errno);
    }
    receiver->file_directory = fcntl(receiver->directory, F_DUPFD_CLOEXEC, 0);
    if (receiver->file_directory < 0) {
        return fail_errno(receiver, "open the directory of", path, errno);
    }
    receiver->file = create_file(receiver);
    if (receiver->file < 0) {
        return fail_errno(receiver, "create a file for", path, errno);
    }
    if (!checksum_begin(receiver->checksum)) {
        return fail_errno(receiver, "prepare to write", path, ENOMEM);
    }
    receiver->cost += COST_ENTRY;
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
    receiver->cost += (unsigned)(length >> COST_BYTES_SHIFT);
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

/* Gives the nameless file a temporary name. Returns false with errno set on failure. */
static bool link_file(struct receiver *receiver)
{
    char proc[32];
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", receiver->file);
    if (!temporary_name(receiver->temporary)) {
        return false;
    }
    if (linkat(AT_FDCWD, proc, receiver->file_directory, receiver->temporary, AT_SYMLINK_FOLLOW) !=
        0) {
        receiver->temporary[0] = '\0';
        return false;
    }
    return true;
}

/* Returns whether the file with this name is the file that was written. */
static bool is_stored(const struct receiver *receiver, const char *name)
{
    struct stat written;
    struct stat stored;
    return fstat(receiver->file, &written) == 0 &&
           fstatat(receiver->file_directory, name, &stored, AT_SYMLINK_NOFOLLOW) == 0 &&
           written.st_dev == stored.st_dev && written.st_ino == stored.st_ino;
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
    receiver->cost += COST_ENTRY;
    /* Some file systems report a failed write only when a descriptor is closed. */
    int other = fcntl(receiver->file, F_DUPFD_CLOEXEC, 0);
    if (other < 0 || close(other) != 0) {
        return fail_errno(receiver, "write", path, errno);
    }
    if (receiver->temporary[0] == '\0' && !link_file(receiver)) {
        return fail_errno(receiver, "store", path, errno);
    }
    if (renameat(receiver->file_directory, receiver->temporary, receiver->file_directory,
                 name_of(path)) != 0) {
        return fail_errno(receiver, "store", path, errno);
    }
    receiver->temporary[0] = '\0'; /* the temporary name is no longer the file's */
    if (!is_stored(receiver, name_of(path))) {
        return fail(receiver, "\"%s\" was replaced by another file while it was stored",
                    tail_of(path));
    }
    close(receiver->file);
    close(receiver->file_directory);
    receiver->file = -1;
    receiver->file_directory = -1;
    receiver->files++;
    return RECEIVER_MORE;
}

static enum receiver_outcome begin_directory(struct receiver *receiver, const char *path)
{
    if (!enter_parent(receiver, path)) {
        return fail_errno(receiver, "open the directory of", path, errno);
    }
    receiver->cost += COST_ENTRY;
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
    receiver->cost += COST_ENTRY;
    /* Does not use fchmodat(), because it follows links. */
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
    receiver->cost += COST_ENTRY;
    char temporary[TEMPORARY_NAME_MAX];
    if (!temporary_name(temporary) || symlinkat(target, receiver->directory, temporary) != 0) {
        return fail_errno(receiver, "create the link", path, errno);
    }
    if (renameat(receiver->directory, temporary, receiver->directory, name_of(path)) != 0) {
        int error = errno;
        unlinkat(receiver->directory, temporary, 0);
        return fail_errno(receiver, "store the link", path, error);
    }
    return RECEIVER_MORE;
}

/* FILE, DIRECTORY and DIRECTORY_END have a mode and a path. */
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
        return fail(
            receiver,
            "protocol: the sender counts %llu files and %llu bytes, the receiver %llu and %llu",
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

enum receiver_outcome receiver_take(struct receiver *receiver, const uint8_t *bytes, size_t length,
                                    size_t *taken)
{
    enum receiver_outcome outcome = receiver->failed ? RECEIVER_FAILED : RECEIVER_MORE;
    size_t at = 0;
    receiver->cost = 0;
    while (outcome == RECEIVER_MORE && at < length && receiver->cost < COST_MAX) {
        const uint8_t *record = bytes + at;
        if (length - at < PROTO_RECORD_HEADER_SIZE ||
            proto_load32(record + 4) > length - at - PROTO_RECORD_HEADER_SIZE) {
            outcome = fail(receiver, "protocol: a record is cut off");
            break;
        }
        uint32_t kind = proto_load32(record);
        size_t payload_length = proto_load32(record + 4);
        outcome = take_record(receiver, kind, record + PROTO_RECORD_HEADER_SIZE, payload_length);
        at += PROTO_RECORD_HEADER_SIZE + payload_length;
        receiver->cost += COST_RECORD;
    }
    if (outcome == RECEIVER_DONE && at < length) {
        outcome = fail(receiver, "protocol: records follow the end");
    }
    if (outcome == RECEIVER_FAILED) {
        abandon_file(receiver);
    }
    *taken = at;
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
