/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "receiver_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum receiver_outcome receiver_fail(struct receiver *receiver, const char *format, ...)
{
    receiver->failed = true;
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    vsnprintf(receiver->error, sizeof(receiver->error), format, arguments);
    va_end(arguments);
    return RECEIVER_FAILED;
}

enum receiver_outcome receiver_fail_errno(struct receiver *receiver, const char *what,
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
    } else if (error == EEXIST) {
        remedy = "; it has appeared there meanwhile";
    } else if (error == ELOOP || error == ENOTDIR) {
        remedy = "; a part of the path is not a directory there (symbolic links are not followed)";
    }
    return receiver_fail(receiver, "cannot %s \"%s\": %s%s", what, receiver_tail_of(path),
                         strerror(error), remedy);
}

/* -------------------------------------------------------------------------------------- entries */

static enum receiver_outcome begin_directory(struct receiver *receiver, const char *path)
{
    if (!receiver_enter_parent(receiver, path)) {
        return receiver_fail_errno(receiver, "open the directory of", path, errno);
    }
    receiver->cost += COST_ENTRY;
    const char *name = receiver_name_of(path);
    bool exists = mkdirat(receiver->directory, name, 0700) != 0;
    if (exists && errno != EEXIST) {
        return receiver_fail_errno(receiver, "create the directory", path, errno);
    }
    int directory = receiver_open_part(receiver->directory, name);
    if (directory < 0) {
        return receiver_fail_errno(receiver, "use the directory", path, errno);
    }
    struct stat status;
    if (exists && fstat(directory, &status) == 0 && (status.st_mode & 0700) != 0700) {
        /* As a new one, it can be written to until its mode is set at the end. Where that is not
         * allowed, the entries below report it. */
        int opened = openat(receiver->directory, name,
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (opened >= 0) {
            (void)fchmod(opened, (status.st_mode & MODE_MASK) | 0700);
            close(opened);
        }
    }
    close(directory);
    return RECEIVER_MORE;
}

/* attributes: of version 2, with the time; else only their mode counts. */
static enum receiver_outcome end_directory(struct receiver *receiver,
                                           const struct proto_attributes *attributes,
                                           const char *path)
{
    if (!receiver_enter_parent(receiver, path)) {
        return receiver_fail_errno(receiver, "open the directory of", path, errno);
    }
    receiver->cost += COST_ENTRY;
    /* Does not use fchmodat(), because it follows links. */
    int directory = openat(receiver->directory, receiver_name_of(path),
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0) {
        return receiver_fail_errno(receiver, "open the directory", path, errno);
    }
    bool good = fchmod(directory, attributes->mode & MODE_MASK) == 0 &&
                (receiver->version < 2 || receiver_set_time(directory, attributes));
    int error = errno;
    close(directory);
    return good ? RECEIVER_MORE : receiver_fail_errno(receiver, "set the mode of", path, error);
}

/* Gives a temporary entry of the current directory the last part of the path as its name. */
static enum receiver_outcome store_entry(struct receiver *receiver, const char *temporary,
                                         const char *path)
{
    bool stored = receiver_store_name(receiver, receiver->directory, temporary,
                                      receiver_name_of(path));
    int error = errno;
    /* It is still there after a failure, or if both names were links to one file already. */
    unlinkat(receiver->directory, temporary, 0);
    return stored ? RECEIVER_MORE : receiver_fail_errno(receiver, "store the link", path, error);
}

/* attributes: NULL leaves the time. */
static enum receiver_outcome make_link(struct receiver *receiver,
                                       const struct proto_attributes *attributes, const char *path,
                                       const char *target)
{
    const char *wrong = receiver_check_link(path, target);
    if (wrong != NULL) {
        return receiver_fail(receiver, "the link \"%s\" is refused: %s", receiver_tail_of(path),
                             wrong);
    }
    if (!receiver_enter_parent(receiver, path)) {
        return receiver_fail_errno(receiver, "open the directory of", path, errno);
    }
    receiver->cost += COST_ENTRY;
    char temporary[TEMPORARY_NAME_MAX];
    if (!receiver_temporary_name(temporary) ||
        symlinkat(target, receiver->directory, temporary) != 0) {
        return receiver_fail_errno(receiver, "create the link", path, errno);
    }
    if (attributes != NULL) {
        const struct timespec times[2] = {
            { .tv_nsec = UTIME_OMIT },
            { .tv_sec = attributes->seconds, .tv_nsec = attributes->nanoseconds },
        };
        /* Not every file system keeps times of links. */
        (void)utimensat(receiver->directory, temporary, times, AT_SYMLINK_NOFOLLOW);
    }
    return store_entry(receiver, temporary, path);
}

/* A link to a file that this sender has not shown the contents of could make the file of another
 * readable: only leaders get one. */
static enum receiver_outcome make_hard_link(struct receiver *receiver, const char *path,
                                            const char *existing)
{
    struct stat first;
    struct stat second;
    char temporary[TEMPORARY_NAME_MAX];
    if (!receiver_enter_parent(receiver, existing) ||
        fstatat(receiver->directory, receiver_name_of(existing), &first, AT_SYMLINK_NOFOLLOW) != 0) {
        return receiver_fail_errno(receiver, "find the file", existing, errno);
    }
    int directory = receiver_open_part(receiver->directory, ".");
    if (directory < 0 || !receiver_enter_parent(receiver, path)) {
        int error = errno;
        if (directory >= 0) {
            close(directory);
        }
        return receiver_fail_errno(receiver, "open the directory of", path, error);
    }
    receiver->cost += 2 * COST_ENTRY;
    if (fstatat(receiver->directory, receiver_name_of(path), &second, AT_SYMLINK_NOFOLLOW) == 0 &&
        first.st_dev == second.st_dev && first.st_ino == second.st_ino && S_ISREG(first.st_mode)) {
        close(directory);
        return RECEIVER_MORE;
    }
    bool linked = receiver_temporary_name(temporary) &&
                  linkat(directory, receiver_name_of(existing), receiver->directory, temporary,
                         0) == 0;
    int error = errno;
    close(directory);
    if (!linked) {
        return receiver_fail_errno(receiver, "create the link", path, error);
    }
    if (fstatat(receiver->directory, temporary, &second, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(second.st_mode) || !receiver_has_leader(receiver, &second)) {
        unlinkat(receiver->directory, temporary, 0);
        return receiver_fail(receiver, "the link \"%s\" is refused: \"%s\" is no file of this copy",
                             receiver_tail_of(path), receiver_tail_of(existing));
    }
    return store_entry(receiver, temporary, path);
}

/* -------------------------------------------------------------------------------------- records */

static enum receiver_outcome refuse_path(struct receiver *receiver, const char *path,
                                         const char *wrong)
{
    return receiver_fail(receiver, "the path \"%s\" is refused: %s", receiver_tail_of(path), wrong);
}

/* FILE, DIRECTORY and DIRECTORY_END have a mode and a path. */
static enum receiver_outcome take_entry(struct receiver *receiver, uint32_t kind,
                                        const uint8_t *payload, size_t length)
{
    if (length < 4) {
        return receiver_fail(receiver, "protocol: a record is too short");
    }
    struct proto_attributes attributes = { .mode = proto_load32(payload) };
    char path[PROTO_PATH_MAX] = "";
    const char *wrong = receiver_read_path(payload + 4, length - 4, path);
    if (wrong != NULL) {
        return refuse_path(receiver, path, wrong);
    }
    if (kind == PROTO_RECORD_FILE) {
        return receiver_begin_file(receiver, &attributes, 0, path);
    }
    return kind == PROTO_RECORD_DIRECTORY ? begin_directory(receiver, path)
                                          : end_directory(receiver, &attributes, path);
}

/* FILE_AT and DIRECTORY_DONE have attributes and, behind an offset or not, a path. */
static enum receiver_outcome take_dated_entry(struct receiver *receiver, uint32_t kind,
                                              const uint8_t *payload, size_t length)
{
    size_t fixed = kind == PROTO_RECORD_FILE_AT ? PROTO_FILE_AT_SIZE : PROTO_ATTRIBUTES_SIZE;
    struct proto_attributes attributes;
    char path[PROTO_PATH_MAX] = "";
    if (length < fixed || !proto_attributes_decode(payload, &attributes)) {
        return receiver_fail(receiver, "protocol: a record is too short, or its attributes are not "
                                       "valid");
    }
    const char *wrong = receiver_read_path(payload + fixed, length - fixed, path);
    if (wrong != NULL) {
        return refuse_path(receiver, path, wrong);
    }
    if (kind == PROTO_RECORD_FILE_AT) {
        uint64_t offset = proto_load64(payload + PROTO_ATTRIBUTES_SIZE);
        return receiver_begin_file(receiver, &attributes, offset, path);
    }
    return end_directory(receiver, &attributes, path);
}

/* LINK, LINK_AT and HARD_LINK end in the length of a path, the path, and another one. */
static enum receiver_outcome take_link(struct receiver *receiver, uint32_t kind,
                                       const uint8_t *payload, size_t length)
{
    struct proto_attributes attributes;
    size_t fixed = kind == PROTO_RECORD_LINK_AT ? PROTO_LINK_AT_SIZE : 4;
    size_t path_length = length < fixed ? 0 : proto_load32(payload + fixed - 4);
    if (length < fixed || path_length > length - fixed) {
        return receiver_fail(receiver, "protocol: a link record is too short");
    }
    if (kind == PROTO_RECORD_LINK_AT && !proto_attributes_decode(payload, &attributes)) {
        return receiver_fail(receiver, "protocol: the attributes of a link are not valid");
    }
    char path[PROTO_PATH_MAX] = "";
    char other[PROTO_PATH_MAX] = "";
    const uint8_t *other_bytes = payload + fixed + path_length;
    size_t other_length = length - fixed - path_length;
    const char *wrong = receiver_read_path(payload + fixed, path_length, path);
    if (wrong == NULL) {
        wrong = kind == PROTO_RECORD_HARD_LINK
                    ? receiver_read_path(other_bytes, other_length, other)
                    : receiver_read_target(other_bytes, other_length, other);
    }
    if (wrong != NULL) {
        return receiver_fail(receiver, "the link \"%s\" is refused: %s", receiver_tail_of(path),
                             wrong);
    }
    if (kind == PROTO_RECORD_HARD_LINK) {
        return make_hard_link(receiver, path, other);
    }
    return make_link(receiver, kind == PROTO_RECORD_LINK_AT ? &attributes : NULL, path, other);
}

static enum receiver_outcome take_end(struct receiver *receiver, const uint8_t *payload)
{
    uint64_t files = proto_load64(payload);
    uint64_t bytes = proto_load64(payload + 8);
    if (receiver->file >= 0 || files != receiver->files || bytes != receiver->bytes) {
        return receiver_fail(
            receiver,
            "protocol: the sender counts %llu files and %llu bytes, the receiver %llu and %llu",
            (unsigned long long)files, (unsigned long long)bytes,
            (unsigned long long)receiver->files, (unsigned long long)receiver->bytes);
    }
    return RECEIVER_DONE;
}

static enum receiver_outcome cancel_file(struct receiver *receiver)
{
    if (receiver->file < 0) {
        return receiver_fail(receiver, "protocol: the end of a file that did not begin");
    }
    receiver_abandon_file(receiver);
    return RECEIVER_MORE;
}

static enum receiver_outcome refuse_record(struct receiver *receiver, uint32_t kind, size_t length)
{
    return receiver_fail(receiver, "protocol: a record of kind %u with %llu bytes is not known",
                         (unsigned)kind, (unsigned long long)length);
}

/* Records of one version of a copy alone. */
static enum receiver_outcome take_record_1(struct receiver *receiver, uint32_t kind,
                                           const uint8_t *payload, size_t length)
{
    switch (kind) {
    case PROTO_RECORD_FILE:
    case PROTO_RECORD_DIRECTORY_END:
        return take_entry(receiver, kind, payload, length);
    case PROTO_RECORD_LINK:
        return take_link(receiver, kind, payload, length);
    default:
        return refuse_record(receiver, kind, length);
    }
}

static enum receiver_outcome take_record_2(struct receiver *receiver, uint32_t kind,
                                           const uint8_t *payload, size_t length)
{
    switch (kind) {
    case PROTO_RECORD_ASK:
        return receiver_ask(receiver, payload, length);
    case PROTO_RECORD_FILE_AT:
    case PROTO_RECORD_DIRECTORY_DONE:
        return take_dated_entry(receiver, kind, payload, length);
    case PROTO_RECORD_HOLE:
        if (length != 8) {
            break;
        }
        return receiver_add_hole(receiver, proto_load64(payload));
    case PROTO_RECORD_FILE_CANCEL:
        return cancel_file(receiver);
    case PROTO_RECORD_LINK_AT:
    case PROTO_RECORD_HARD_LINK:
        return take_link(receiver, kind, payload, length);
    case PROTO_RECORD_NOTHING:
        return RECEIVER_MORE;
    default:
        break;
    }
    return refuse_record(receiver, kind, length);
}

static enum receiver_outcome take_record(struct receiver *receiver, uint32_t kind,
                                         const uint8_t *payload, size_t length)
{
    if (receiver->version >= 2 && kind == PROTO_RECORD_BEGIN) {
        return receiver_begin(receiver, payload, length);
    }
    if (receiver->version >= 2 && !receiver->begun) {
        return receiver_fail(receiver, "protocol: a copy that does not begin");
    }
    switch (kind) {
    case PROTO_RECORD_DIRECTORY:
        return take_entry(receiver, kind, payload, length);
    case PROTO_RECORD_DATA:
        return receiver_write(receiver, payload, length);
    case PROTO_RECORD_FILE_END:
        if (length != CHECKSUM_SIZE_MAX) {
            return refuse_record(receiver, kind, length);
        }
        return receiver_end_file(receiver, payload);
    case PROTO_RECORD_END:
        if (length != 16) {
            return refuse_record(receiver, kind, length);
        }
        return take_end(receiver, payload);
    default:
        break;
    }
    return receiver->version < 2 ? take_record_1(receiver, kind, payload, length)
                                 : take_record_2(receiver, kind, payload, length);
}

struct receiver *receiver_create(int root)
{
    struct receiver *receiver = calloc(1, sizeof(*receiver));
    if (receiver == NULL) {
        return NULL;
    }
    receiver->root = root;
    receiver->version = 1;
    receiver->directory = -1;
    receiver->file = -1;
    receiver->file_directory = -1;
    receiver->compared = -1;
    receiver->checksum = checksum_create();
    if (receiver->checksum == NULL) {
        free(receiver);
        return NULL;
    }
    return receiver;
}

bool receiver_use_version_2(struct receiver *receiver, struct park *park, const char *origin)
{
    receiver->origin = strdup(origin);
    receiver->park = park;
    receiver->version = 2;
    return receiver->origin != NULL;
}

void receiver_destroy(struct receiver *receiver)
{
    if (receiver == NULL) {
        return;
    }
    receiver_keep_file(receiver);
    receiver_abandon_file(receiver);
    for (unsigned i = 0; i < receiver->promised_count; i++) {
        park_keep(receiver->park, &receiver->promised[i]);
    }
    if (receiver->compared >= 0) {
        close(receiver->compared);
    }
    receiver_forget_directory(receiver);
    checksum_destroy(receiver->compared_checksum);
    checksum_destroy(receiver->checksum);
    free(receiver->leaders);
    free(receiver->origin);
    free(receiver);
}

bool receiver_has_room(const struct receiver *receiver)
{
    return receiver->answers_length + PROTO_RESUME_SIZE <= sizeof(receiver->answers);
}

/* Takes the record at the start of the bytes, whose length is right. Returns false if it is not
 * finished. */
static bool take_one(struct receiver *receiver, const uint8_t *record,
                     enum receiver_outcome *outcome)
{
    uint32_t kind = proto_load32(record);
    size_t length = proto_load32(record + 4);
    const uint8_t *payload = record + PROTO_RECORD_HEADER_SIZE;
    *outcome = RECEIVER_MORE;
    if ((kind == PROTO_RECORD_ASK || kind == PROTO_RECORD_BEGIN) && !receiver_has_room(receiver)) {
        return false;
    }
    if (receiver->compared < 0) {
        *outcome = take_record(receiver, kind, payload, length);
    }
    if (*outcome == RECEIVER_MORE && receiver->compared >= 0) {
        *outcome = receiver_compare(receiver, payload, length);
    }
    receiver->cost += COST_RECORD;
    return *outcome != RECEIVER_MORE || receiver->compared < 0;
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
            outcome = receiver_fail(receiver, "protocol: a record is cut off");
            break;
        }
        if (!take_one(receiver, record, &outcome)) {
            break;
        }
        at += PROTO_RECORD_HEADER_SIZE + proto_load32(record + 4);
    }
    if (outcome == RECEIVER_DONE && at < length) {
        outcome = receiver_fail(receiver, "protocol: records follow the end");
    }
    if (outcome == RECEIVER_FAILED) {
        receiver_abandon_file(receiver);
    }
    *taken = at;
    return outcome;
}

const uint8_t *receiver_answers(const struct receiver *receiver, size_t *length)
{
    *length = receiver->answers_length;
    return receiver->answers;
}

void receiver_forget_answers(struct receiver *receiver)
{
    receiver->answers_length = 0;
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
