/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The file that a receiver writes. */
#include "receiver_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

void receiver_abandon_file(struct receiver *receiver)
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

void receiver_keep_file(struct receiver *receiver)
{
    if (receiver->file < 0 || receiver->park == NULL || receiver->failed) {
        return;
    }
    struct partial partial = {
        .file = receiver->file,
        .directory = -1,
        .checksum = receiver->checksum,
        .offset = receiver->file_offset,
        .attributes = receiver->file_attributes,
        .path = strdup(receiver->file_path),
        .origin = strdup(receiver->origin),
    };
    if (receiver->temporary[0] != '\0') {
        partial.directory = receiver->file_directory;
        memcpy(partial.temporary, receiver->temporary, sizeof(partial.temporary));
        receiver->file_directory = -1;
        receiver->temporary[0] = '\0';
    }
    receiver->file = -1;
    receiver->checksum = NULL;
    if (partial.path == NULL || partial.origin == NULL) {
        partial_drop(&partial);
    } else {
        park_keep(receiver->park, &partial);
    }
}

/* Marks a file that has a temporary name as one that a process writes, see receiver_sweep.h. Where
 * the file system has no locks, a sweep of another server could remove it; the sender is told. */
static void lock_file(int file)
{
    (void)flock(file, LOCK_EX | LOCK_NB);
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
    if (!receiver_temporary_name(receiver->temporary)) {
        return -1;
    }
    file = openat(receiver->file_directory, receiver->temporary,
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) {
        receiver->temporary[0] = '\0';
        return -1;
    }
    lock_file(file);
    return file;
}

/* Makes the promised file with this path and offset the one that is written. */
static bool continue_file(struct receiver *receiver, uint64_t offset, const char *path)
{
    for (unsigned i = 0; i < receiver->promised_count; i++) {
        struct partial *partial = &receiver->promised[i];
        if (partial->offset != offset || strcmp(partial->path, path) != 0) {
            continue;
        }
        receiver->file = partial->file;
        if (partial->temporary[0] != '\0') {
            close(receiver->file_directory);
            receiver->file_directory = partial->directory;
            memcpy(receiver->temporary, partial->temporary, sizeof(receiver->temporary));
        }
        checksum_destroy(receiver->checksum);
        receiver->checksum = partial->checksum;
        free(partial->path);
        free(partial->origin);
        *partial = receiver->promised[--receiver->promised_count];
        return true;
    }
    return false;
}

static void drop_promised(struct receiver *receiver, const char *path)
{
    for (unsigned i = receiver->promised_count; i-- > 0;) {
        if (strcmp(receiver->promised[i].path, path) == 0) {
            partial_drop(&receiver->promised[i]);
            receiver->promised[i] = receiver->promised[--receiver->promised_count];
        }
    }
}

enum receiver_outcome receiver_begin_file(struct receiver *receiver,
                                          const struct proto_attributes *attributes,
                                          uint64_t offset, const char *path)
{
    if (receiver->file >= 0) {
        return receiver_fail(receiver, "protocol: file \"%s\" begins inside another",
                             receiver_tail_of(path));
    }
    if (!receiver_enter_parent(receiver, path)) {
        return receiver_fail_errno(receiver, "open the directory of", path, errno);
    }
    receiver->file_directory = fcntl(receiver->directory, F_DUPFD_CLOEXEC, 0);
    if (receiver->file_directory < 0) {
        return receiver_fail_errno(receiver, "open the directory of", path, errno);
    }
    receiver->cost += COST_ENTRY;
    receiver->file_attributes = *attributes;
    receiver->file_offset = offset;
    receiver->file_ends_in_hole = offset > 0;
    memcpy(receiver->file_path, path, strlen(path) + 1);
    if (offset > 0) {
        return continue_file(receiver, offset, path)
                   ? RECEIVER_MORE
                   : receiver_fail(receiver, "protocol: the receiver has no part of \"%s\"",
                                   receiver_tail_of(path));
    }
    drop_promised(receiver, path);
    receiver->file = create_file(receiver);
    if (receiver->file < 0) {
        return receiver_fail_errno(receiver, "create a file for", path, errno);
    }
    if (!checksum_begin(receiver->checksum)) {
        return receiver_fail_errno(receiver, "prepare to write", path, ENOMEM);
    }
    return RECEIVER_MORE;
}

/* Returns whether there is less than `length` left of what an offset may be. */
static bool is_too_long(const struct receiver *receiver, uint64_t length)
{
    return length > (uint64_t)INT64_MAX - receiver->file_offset;
}

enum receiver_outcome receiver_write(struct receiver *receiver, const uint8_t *bytes, size_t length)
{
    if (receiver->file < 0) {
        return receiver_fail(receiver, "protocol: data without a file");
    }
    if (is_too_long(receiver, length)) {
        return receiver_fail_errno(receiver, "write", receiver->file_path, EFBIG);
    }
    if (!checksum_add(receiver->checksum, bytes, length)) {
        return receiver_fail_errno(receiver, "compute the checksum of", receiver->file_path, ENOMEM);
    }
    receiver->cost += (unsigned)(length >> COST_BYTES_SHIFT);
    while (length > 0) {
        ssize_t written = pwrite(receiver->file, bytes, length, (off_t)receiver->file_offset);
        int error = written < 0 ? errno : ENOSPC;
        if (written < 0 && error == EINTR) {
            continue;
        }
        if (written <= 0) {
            /* What is kept for later gives way to what comes now. */
            if ((error == ENOSPC || error == EDQUOT) && receiver->park != NULL &&
                park_clear(receiver->park)) {
                continue;
            }
            return receiver_fail_errno(receiver, "write", receiver->file_path, error);
        }
        bytes += written;
        length -= (size_t)written;
        receiver->bytes += (uint64_t)written;
        receiver->file_offset += (uint64_t)written;
        receiver->file_ends_in_hole = false;
    }
    return RECEIVER_MORE;
}

enum receiver_outcome receiver_add_hole(struct receiver *receiver, uint64_t length)
{
    static const uint8_t zeros[16384];
    if (receiver->file < 0) {
        return receiver_fail(receiver, "protocol: a hole without a file");
    }
    if (length == 0 || length > PROTO_HOLE_MAX) {
        return receiver_fail(receiver, "protocol: a hole of %llu bytes", (unsigned long long)length);
    }
    if (is_too_long(receiver, length)) {
        return receiver_fail_errno(receiver, "write", receiver->file_path, EFBIG);
    }
    receiver->cost += (unsigned)(length >> COST_BYTES_SHIFT);
    receiver->file_offset += length;
    receiver->file_ends_in_hole = true;
    while (length > 0) {
        size_t part = length < sizeof(zeros) ? (size_t)length : sizeof(zeros);
        if (!checksum_add(receiver->checksum, zeros, part)) {
            return receiver_fail_errno(receiver, "compute the checksum of", receiver->file_path,
                                       ENOMEM);
        }
        length -= part;
    }
    return RECEIVER_MORE;
}

/* Gives the nameless file a temporary name. Returns false with errno set on failure. */
static bool link_file(struct receiver *receiver)
{
    char proc[32];
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", receiver->file);
    if (!receiver_temporary_name(receiver->temporary)) {
        return false;
    }
    lock_file(receiver->file);
    if (linkat(AT_FDCWD, proc, receiver->file_directory, receiver->temporary, AT_SYMLINK_FOLLOW) !=
        0) {
        receiver->temporary[0] = '\0';
        return false;
    }
    return true;
}

/* Returns whether the file with this name is the file that was written, and what it is. */
static bool is_stored(const struct receiver *receiver, const char *name, struct stat *stored)
{
    struct stat written;
    return fstat(receiver->file, &written) == 0 &&
           fstatat(receiver->file_directory, name, stored, AT_SYMLINK_NOFOLLOW) == 0 &&
           written.st_dev == stored->st_dev && written.st_ino == stored->st_ino;
}

bool receiver_set_time(int file, const struct proto_attributes *attributes)
{
    const struct timespec times[2] = {
        { .tv_nsec = UTIME_OMIT },
        { .tv_sec = attributes->seconds, .tv_nsec = attributes->nanoseconds },
    };
    return futimens(file, times) == 0;
}

/* Sets length, mode and time. Returns false with errno set on failure. */
static bool finish_contents(const struct receiver *receiver)
{
    if (receiver->file_ends_in_hole &&
        ftruncate(receiver->file, (off_t)receiver->file_offset) != 0) {
        return false;
    }
    if (fchmod(receiver->file, receiver->file_attributes.mode & MODE_MASK) != 0) {
        return false;
    }
    return receiver->version < 2 || receiver_set_time(receiver->file, &receiver->file_attributes);
}

enum receiver_outcome receiver_end_file(struct receiver *receiver, const uint8_t *expected)
{
    if (receiver->file < 0) {
        return receiver_fail(receiver, "protocol: the end of a file that did not begin");
    }
    const char *path = receiver->file_path;
    const char *name = receiver_name_of(path);
    uint8_t actual[CHECKSUM_SIZE_MAX];
    struct stat stored;
    if (!checksum_end(receiver->checksum, actual)) {
        return receiver_fail_errno(receiver, "compute the checksum of", path, ENOMEM);
    }
    if (memcmp(actual, expected, CHECKSUM_SIZE_MAX) != 0) {
        return receiver_fail(receiver,
                             "\"%s\" arrived damaged: its %s here is not the sender's; nothing was "
                             "stored under its name",
                             receiver_tail_of(path), checksum_name);
    }
    if (!finish_contents(receiver)) {
        return receiver_fail_errno(receiver, "set length, mode and time of", path, errno);
    }
    receiver->cost += COST_ENTRY;
    /* Some file systems report a failed write only when a descriptor is closed. */
    int other = fcntl(receiver->file, F_DUPFD_CLOEXEC, 0);
    if (other < 0 || close(other) != 0) {
        return receiver_fail_errno(receiver, "write", path, errno);
    }
    if (receiver->temporary[0] == '\0' && !link_file(receiver)) {
        return receiver_fail_errno(receiver, "store", path, errno);
    }
    if (!receiver_store_name(receiver, receiver->file_directory, receiver->temporary, name)) {
        return receiver_fail_errno(receiver, "store", path, errno);
    }
    receiver->temporary[0] = '\0'; /* the temporary name is no longer the file's */
    if (!is_stored(receiver, name, &stored)) {
        return receiver_fail(receiver, "\"%s\" was replaced by another file while it was stored",
                             receiver_tail_of(path));
    }
    close(receiver->file);
    close(receiver->file_directory);
    receiver->file = -1;
    receiver->file_directory = -1;
    receiver->files++;
    if ((receiver->file_attributes.flags & PROTO_ENTRY_LINKED) != 0 &&
        !receiver_add_leader(receiver, &stored)) {
        return receiver_fail(receiver, "the receiver is out of memory for hard links");
    }
    return RECEIVER_MORE;
}

bool receiver_add_leader(struct receiver *receiver, const struct stat *status)
{
    if (receiver->leader_count == PROTO_LEADERS_MAX) {
        return true; /* no link to this one; the sender knows the limit */
    }
    if (receiver->leader_count == receiver->leader_room) {
        size_t room = receiver->leader_room == 0 ? 64 : 2 * receiver->leader_room;
        struct leader *leaders = realloc(receiver->leaders, room * sizeof(*leaders));
        if (leaders == NULL) {
            return false;
        }
        receiver->leaders = leaders;
        receiver->leader_room = room;
    }
    receiver->leaders[receiver->leader_count++] = (struct leader){
        .device = status->st_dev,
        .inode = status->st_ino,
    };
    return true;
}

bool receiver_has_leader(const struct receiver *receiver, const struct stat *status)
{
    for (size_t i = receiver->leader_count; i-- > 0;) {
        if (receiver->leaders[i].inode == status->st_ino &&
            receiver->leaders[i].device == status->st_dev) {
            return true;
        }
    }
    return false;
}
