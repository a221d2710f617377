/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks a plug-in's path. The walk opens one component after the other, each within the folder
 * checked before, without following links, and checks the open object.
 *
 * The loader then opens the plug-in by the path without links that the walk returns. dlopen() takes
 * no descriptor, and by /proc/self/fd/N the plug-in would lose its name and its $ORIGIN. There is
 * no race between check and dlopen(): once a folder is checked, only the trusted owners can change
 * which object is found in it. Two risks remain. A trusted owner can replace a file between check
 * and dlopen(), as it could before. A process that opened a file for writing while the mode allowed
 * it can still write to it after the mode was corrected.
 */
#include "providers/trust.h"

#include "api/system/system.h"
#include "providers/binding.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINKS_MAX = 40, /* symbolic links on one path, the kernel's limit */
    OWNERS_MAX = 4,
    OTHERS_WRITE = S_IWGRP | S_IWOTH,
};

static const char hint_owner[] = "let the plug-in and all folders above it belong to root or to "
                                 "this user; the log has the path";
static const char hint_mode[] = "take the right to write away from group and others (chmod go-w); "
                                "the log has the path";
static const char hint_path[] = "name the plug-in by a path that leads to it";

struct walk {
    enum rdmux_trust_kind kind;
    uid_t owners[OWNERS_MAX]; /* trusted owners */
    size_t owner_count;
    int fd;                  /* RDMUX_O_PATH: the object reached so far */
    char path[PATH_MAX];     /* path of fd; "" is the root */
    char name[NAME_MAX + 2]; /* the entry of fd being checked; "" is fd itself */
    char ahead[PATH_MAX];    /* rest of the path */
    unsigned links;
    struct rdmux_refusal *refusal;
};

bool rdmux_trust_is_secure(void)
{
    return rdmux_process_is_secure();
}

static enum rdmux_status refuse_file(struct walk *walk, uint32_t reason, const char *hint,
                                     const char *text)
{
    walk->refusal->reason = reason;
    (void)snprintf(walk->refusal->place, sizeof(walk->refusal->place), "%.*s/%.*s",
                   RDMUX_REFUSAL_PLACE_MAX - NAME_MAX - 2, walk->path, NAME_MAX, walk->name);
    (void)snprintf(walk->refusal->text, sizeof(walk->refusal->text), "%s", text);
    (void)snprintf(walk->refusal->hint, sizeof(walk->refusal->hint), "%s", hint);
    return RDMUX_NO_PATH;
}

static enum rdmux_status refuse_errno(struct walk *walk, int error)
{
    bool absent = error == ENOENT || error == ENOTDIR;
    char text[RDMUX_TEXT_MAX];
    (void)snprintf(text, sizeof(text), "cannot open: %s", strerror(error));
    return refuse_file(walk, absent ? RDMUX_REASON_NO_LIBRARY : RDMUX_REASON_BAD_PLUGIN, hint_path,
                       text);
}

/* --------------------------------------------------------------------------------------- owners */

static void trust_file(struct walk *walk, uid_t owner)
{
    walk->owners[walk->owner_count++] = owner;
}

/*
 * Collects the trusted owners: root, the effective user, the library's owner and the owner of "/".
 * In a program with rights that its user lacks, the effective user is trusted only if it is the
 * owner of the program's file (setuid), and never if it is the real user, who runs the program. The
 * library's owner has code in this process already. The owner of "/" is root, or in a user
 * namespace without root the number that stands for it there.
 */
static void find_owners(struct walk *walk)
{
    char library[PATH_MAX];
    struct stat info;
    trust_file(walk, 0);
    if (!rdmux_trust_is_secure() || geteuid() != getuid()) {
        trust_file(walk, geteuid());
    }
    rdmux_library_file(library, sizeof(library));
    /* A relative path may lead to another file, because the working folder may have changed. */
    if (library[0] == '/' && stat(library, &info) == 0) {
        trust_file(walk, info.st_uid);
    }
    if (stat("/", &info) == 0) {
        trust_file(walk, info.st_uid);
    }
}

static bool is_trusted(const struct walk *walk, uid_t owner)
{
    for (size_t i = 0; i < walk->owner_count; i++) {
        if (walk->owners[i] == owner) {
            return true;
        }
    }
    return false;
}

/* Returns the words for the object's place on the plug-in's path. */
static const char *place_of(const struct walk *walk, const struct stat *info, bool is_last)
{
    return S_ISLNK(info->st_mode)                        ? "a symbolic link on its path"
           : !S_ISDIR(info->st_mode)                     ? "the file"
           : is_last && walk->kind == RDMUX_TRUST_FOLDER ? "the folder of plug-ins"
                                                         : "a folder above it";
}

static enum rdmux_status judge_owner(struct walk *walk, const struct stat *info, bool is_last)
{
    char text[RDMUX_TEXT_MAX];
    if (!is_trusted(walk, info->st_uid)) {
        (void)snprintf(text, sizeof(text),
                       "%s belongs to user %u, who is neither root, this user nor the owner of "
                       "librdmux.so",
                       place_of(walk, info, is_last), (unsigned)info->st_uid);
        return refuse_file(walk, RDMUX_REASON_BAD_PLUGIN, hint_owner, text);
    }
    /* The mode of a link has no meaning. In a sticky folder other users can add entries, but cannot
     * remove or replace entries of others. A plug-in folder must not be one: added files are
     * loaded. */
    bool is_way = S_ISDIR(info->st_mode) && !(is_last && walk->kind == RDMUX_TRUST_FOLDER);
    bool may_be_open = S_ISLNK(info->st_mode) || (is_way && (info->st_mode & S_ISVTX) != 0);
    if (!may_be_open && (info->st_mode & OTHERS_WRITE) != 0) {
        (void)snprintf(text, sizeof(text), "%s may be written to by others (mode %04o)",
                       place_of(walk, info, is_last), (unsigned)(info->st_mode & 07777));
        return refuse_file(walk, RDMUX_REASON_BAD_PLUGIN, hint_mode, text);
    }
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------------------------- walk */

/* Makes fd the object reached, and closes the previous one. */
static void step_to(struct walk *walk, int fd)
{
    if (walk->fd >= 0) {
        close(walk->fd);
    }
    walk->fd = fd;
}

static enum rdmux_status start_at_root(struct walk *walk)
{
    struct stat info;
    int fd = open("/", RDMUX_O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return refuse_errno(walk, errno);
    }
    step_to(walk, fd);
    walk->path[0] = '\0';
    walk->name[0] = '\0';
    if (fstat(fd, &info) != 0) {
        return refuse_errno(walk, errno);
    }
    return judge_owner(walk, &info, false);
}

/* Puts text in front of the rest of the path. */
static enum rdmux_status follow_first(struct walk *walk, const char *text)
{
    char joined[PATH_MAX];
    int length = snprintf(joined, sizeof(joined), "%s/%s", text, walk->ahead);
    if (length < 0 || (size_t)length >= sizeof(joined)) {
        return refuse_errno(walk, ENAMETOOLONG);
    }
    memcpy(walk->ahead, joined, (size_t)length + 1);
    return RDMUX_OK;
}

static enum rdmux_status follow_link(struct walk *walk, int link)
{
    char target[PATH_MAX];
    if (++walk->links > LINKS_MAX) {
        return refuse_errno(walk, ELOOP);
    }
    ssize_t length = readlinkat(link, "", target, sizeof(target) - 1);
    if (length <= 0) {
        return refuse_errno(walk, length == 0 ? ENOENT : errno);
    }
    target[length] = '\0';
    enum rdmux_status status = follow_first(walk, target);
    return status == RDMUX_OK && target[0] == '/' ? start_at_root(walk) : status;
}

/* Applies walk->name to walk->path. */
static enum rdmux_status note_file(struct walk *walk)
{
    const char *name = walk->name;
    if (strcmp(name, "..") == 0) {
        char *slash = strrchr(walk->path, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
        return RDMUX_OK;
    }
    size_t used = strlen(walk->path);
    int length = snprintf(walk->path + used, sizeof(walk->path) - used, "/%s", name);
    return length < 0 || (size_t)length >= sizeof(walk->path) - used
               ? refuse_errno(walk, ENAMETOOLONG)
               : RDMUX_OK;
}

static enum rdmux_status enter_folder(struct walk *walk, bool is_last)
{
    struct stat info;
    int fd = openat(walk->fd, walk->name, RDMUX_O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return refuse_errno(walk, errno);
    }
    enum rdmux_status status = fstat(fd, &info) != 0 ? refuse_errno(walk, errno)
                                                     : judge_owner(walk, &info, is_last);
    if (status == RDMUX_OK && S_ISLNK(info.st_mode)) {
        status = follow_link(walk, fd);
        close(fd);
        return status;
    }
    if (status == RDMUX_OK) {
        status = note_file(walk);
    }
    if (status != RDMUX_OK) {
        close(fd);
        return status;
    }
    step_to(walk, fd);
    walk->name[0] = '\0';
    return RDMUX_OK;
}

/* Takes the next name off the rest of the path; false: there is none. */
static bool take_name(struct walk *walk, bool *is_last)
{
    char *at = walk->ahead + strspn(walk->ahead, "/");
    size_t length = strcspn(at, "/");
    if (length == 0) {
        return false;
    }
    /* walk->name holds one byte more than NAME_MAX, so that the kernel refuses a name that is too
     * long. */
    (void)snprintf(walk->name, sizeof(walk->name), "%.*s", (int)length, at);
    const char *rest = at + length;
    *is_last = rest[strspn(rest, "/")] == '\0';
    memmove(walk->ahead, rest, strlen(rest) + 1);
    return true;
}

static enum rdmux_status follow(struct walk *walk)
{
    bool is_last = false;
    while (take_name(walk, &is_last)) {
        if (strcmp(walk->name, ".") == 0) {
            continue;
        }
        enum rdmux_status status = enter_folder(walk, is_last);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return RDMUX_OK;
}

/* Checks that the object reached is of the requested kind. Checks owner and mode again as the
 * path's last object, because the path may end with "." or "..". */
static enum rdmux_status judge_end(struct walk *walk)
{
    struct stat info;
    walk->name[0] = '\0';
    if (fstat(walk->fd, &info) != 0) {
        return refuse_errno(walk, errno);
    }
    if (walk->kind == RDMUX_TRUST_FOLDER && !S_ISDIR(info.st_mode)) {
        return refuse_errno(walk, ENOTDIR);
    }
    if (walk->kind == RDMUX_TRUST_FILE && !S_ISREG(info.st_mode)) {
        return refuse_file(walk, RDMUX_REASON_BAD_PLUGIN, hint_path, "it is no regular file");
    }
    return judge_owner(walk, &info, true);
}

static enum rdmux_status start_walk(struct walk *walk, const char *path)
{
    size_t length = strlen(path);
    if (length >= sizeof(walk->ahead)) {
        return refuse_errno(walk, ENAMETOOLONG);
    }
    memcpy(walk->ahead, path, length + 1);
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (getcwd(here, sizeof(here)) == NULL || here[0] != '/') {
            return refuse_errno(walk, ENOENT);
        }
        enum rdmux_status status = follow_first(walk, here);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return start_at_root(walk);
}

enum rdmux_status rdmux_trust_check(const char *path, enum rdmux_trust_kind kind, char *out,
                                    struct rdmux_refusal *refusal)
{
    struct walk walk = { .kind = kind, .fd = -1, .refusal = refusal };
    find_owners(&walk);
    enum rdmux_status status = start_walk(&walk, path);
    if (status == RDMUX_OK) {
        status = follow(&walk);
    }
    if (status == RDMUX_OK) {
        status = judge_end(&walk);
    }
    if (walk.fd >= 0) {
        close(walk.fd);
    }
    if (status == RDMUX_OK) {
        (void)snprintf(out, PATH_MAX, "%s", walk.path[0] == '\0' ? "/" : walk.path);
    }
    return status;
}
