/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Paths that a sender names, and temporary names. */
#include "receiver_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    TEMPORARY_RANDOM = PROTO_UNFINISHED_DIGITS / 2
}; /* bytes, so that no other client can guess
                                                            the name */

const char *receiver_tail_of(const char *path)
{
    size_t length = strlen(path);
    return length > 120 ? path + length - 120 : path;
}

const char *receiver_name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

const char *receiver_read_path(const uint8_t *bytes, size_t length, char out[PROTO_PATH_MAX])
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
        if (proto_is_unfinished_name(part, part_length)) {
            return "it is a name that only unfinished files have";
        }
        if (part[part_length] == '\0') {
            return NULL;
        }
        part += part_length + 1;
    }
}

const char *receiver_read_target(const uint8_t *bytes, size_t length, char out[PROTO_PATH_MAX])
{
    if (length >= PROTO_PATH_MAX || memchr(bytes, '\0', length) != NULL) {
        return "its target is too long or contains a NUL";
    }
    memcpy(out, bytes, length);
    out[length] = '\0';
    return NULL;
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

void receiver_forget_directory(struct receiver *receiver)
{
    if (receiver->directory >= 0) {
        close(receiver->directory);
        receiver->directory = -1;
    }
}

int receiver_open_part(int parent, const char *name)
{
    return openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool receiver_enter_parent(struct receiver *receiver, const char *path)
{
    size_t parent_length = (size_t)(receiver_name_of(path) - path);
    if (receiver->directory >= 0 && strlen(receiver->directory_path) == parent_length &&
        memcmp(receiver->directory_path, path, parent_length) == 0) {
        return true;
    }
    receiver_forget_directory(receiver);
    int directory = receiver_open_part(receiver->root, ".");
    const char *part = path;
    while (directory >= 0 && part < path + parent_length) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(part, "/");
        memcpy(name, part, length);
        name[length] = '\0';
        int next = receiver_open_part(directory, name);
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

bool receiver_temporary_name(char out[TEMPORARY_NAME_MAX])
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

bool receiver_store_name(const struct receiver *receiver, int directory, const char *temporary,
                         const char *name)
{
    if ((receiver->flags & PROTO_BEGIN_NO_CLOBBER) == 0) {
        return renameat(directory, temporary, directory, name) == 0;
    }
    /* A link fails if the name is taken, a renaming would replace it. */
    if (linkat(directory, temporary, directory, name, 0) != 0) {
        return false;
    }
    unlinkat(directory, temporary, 0);
    return true;
}
