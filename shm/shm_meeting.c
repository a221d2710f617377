/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The socket files at which processes meet. */
#include "shm_meeting.h"

#include <rdmux/provider.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FILE_PREFIX "rdmux-"

enum {
    PREFIX_LENGTH = sizeof(FILE_PREFIX) - 1,
    FILE_NAME_LENGTH = PREFIX_LENGTH + 2 * SHM_NAME_SIZE,
    DIRECTORY_MAX = 40, /* /proc/PID/root and the longest directory, with the terminating zero */
    BACKLOG = 16,       /* most connections that the kernel queues, the peer's among them */
    OTHERS = 077,       /* mode bits of group and others */
    CLEAN_FILES = 4096, /* most files of a directory that are checked for leftovers */
    CLEAN_AGE_S = 60,   /* younger files may not be sockets yet */
};
static_assert(DIRECTORY_MAX + FILE_NAME_LENGTH + 1 <= sizeof(((struct sockaddr_un *)0)->sun_path),
              "the longest path fits a socket address");

/* ----------------------------------------------------------------------------------- names */

/* Writes the directory's path. index: below SHM_DIRECTORY_COUNT. */
static void directory_path(uint32_t index, char out[DIRECTORY_MAX])
{
    switch ((enum shm_directory)index) {
    case SHM_DIRECTORY_USER:
        (void)snprintf(out, DIRECTORY_MAX, "/run/user/%u", (unsigned)geteuid());
        return;
    case SHM_DIRECTORY_SHARED:
        (void)snprintf(out, DIRECTORY_MAX, "/dev/shm");
        return;
    case SHM_DIRECTORY_TEMPORARY:
    case SHM_DIRECTORY_COUNT:
        (void)snprintf(out, DIRECTORY_MAX, "/tmp");
        return;
    }
}

/* Writes the file's name: "rdmux-" and 32 hexadecimal digits. */
static void write_file_name(const uint8_t name[SHM_NAME_SIZE], char out[FILE_NAME_LENGTH + 1])
{
    static const char digits[] = "0123456789abcdef";
    memcpy(out, FILE_PREFIX, PREFIX_LENGTH);
    for (size_t i = 0; i < SHM_NAME_SIZE; i++) {
        out[PREFIX_LENGTH + 2 * i] = digits[name[i] >> 4];
        out[PREFIX_LENGTH + 2 * i + 1] = digits[name[i] & 15];
    }
    out[FILE_NAME_LENGTH] = '\0';
}

static bool is_file_name(const char *name)
{
    return strncmp(name, FILE_PREFIX, PREFIX_LENGTH) == 0 && strlen(name) == FILE_NAME_LENGTH &&
           strspn(name + PREFIX_LENGTH, "0123456789abcdef") == 2 * (size_t)SHM_NAME_SIZE;
}

/* Returns the file's address below `root`: "" or another process's root directory. */
static struct sockaddr_un address_of(const char *root, const struct shm_place *place)
{
    struct sockaddr_un out = { .sun_family = AF_UNIX };
    char directory[DIRECTORY_MAX];
    char name[FILE_NAME_LENGTH + 1];
    directory_path(place->directory, directory);
    write_file_name(place->name, name);
    (void)snprintf(out.sun_path, sizeof(out.sun_path), "%s%s/%s", root, directory, name);
    return out;
}

/* ----------------------------------------------------------------------------------- rules */

bool rdmux_shm_directory_is_safe(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return false;
    }
    bool trusted = info.st_uid == 0 || info.st_uid == geteuid();
    return trusted && ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (info.st_mode & S_ISVTX) != 0);
}

static bool can_have_files(const char *path)
{
    return rdmux_shm_directory_is_safe(path) &&
           faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0;
}

/* Returns whether the file is a socket that the kernel lets only our user connect to. */
static bool is_ours_alone(const struct stat *info)
{
    return S_ISSOCK(info->st_mode) && info->st_uid == geteuid() && (info->st_mode & OTHERS) == 0;
}

bool rdmux_shm_meeting_is_possible(void)
{
    char directory[DIRECTORY_MAX];
    for (uint32_t i = 0; i < SHM_DIRECTORY_COUNT; i++) {
        directory_path(i, directory);
        if (can_have_files(directory)) {
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------------------------- sockets */

static enum rdmux_status open_meeting_socket(int *out)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        rdmux_provider_error("shm: no AF_UNIX socket: errno %d%s", errno,
                             errno == EMFILE ? "; raise the limit on open files" : "");
        return errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
    *out = fd;
    return RDMUX_OK;
}

/* Binds the socket to its file and listens. False, with errno: this directory cannot have it. */
static bool listen_at(int fd, const struct sockaddr_un *address)
{
    struct stat info;
    /* The file gets the socket's present mode, so it never has a wider one. */
    if (fchmod(fd, S_IRUSR | S_IWUSR) != 0 ||
        bind(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        return false;
    }
    /* A file system may keep no modes; no process can connect before listen(). */
    if (lstat(address->sun_path, &info) == 0 && is_ours_alone(&info) && listen(fd, BACKLOG) == 0) {
        return true;
    }
    int before = errno;
    (void)unlink(address->sun_path);
    errno = before;
    return false;
}

enum rdmux_status rdmux_shm_meeting_listen(struct shm_place *place, int *out)
{
    int error = ENOENT;
    for (uint32_t i = 0; i < SHM_DIRECTORY_COUNT; i++) {
        char directory[DIRECTORY_MAX];
        int fd = -1;
        directory_path(i, directory);
        if (!rdmux_shm_directory_is_safe(directory)) {
            continue;
        }
        enum rdmux_status status = open_meeting_socket(&fd);
        if (status != RDMUX_OK) {
            return status;
        }
        place->directory = i;
        const struct sockaddr_un address = address_of("", place);
        if (listen_at(fd, &address)) {
            *out = fd;
            return RDMUX_OK;
        }
        error = errno;
        (void)close(fd);
    }
    rdmux_provider_error(
        "shm: no directory for the socket at which peers meet: errno %d; /run/user/%u, "
        "/dev/shm or /tmp must be writable, and others' files safe there (sticky)",
        error, (unsigned)geteuid());
    return RDMUX_IO;
}

void rdmux_shm_meeting_remove(const struct shm_place *place)
{
    const struct sockaddr_un address = address_of("", place);
    (void)unlink(address.sun_path);
}

/* Opens the socket's file for its attributes alone, in our directory or in that of process pid. */
static int open_meeting_file(const struct shm_place *place, pid_t pid)
{
    enum { FLAGS = O_PATH | O_NOFOLLOW | O_CLOEXEC };
    char root[sizeof("/proc/2147483647/root")];
    struct sockaddr_un address = address_of("", place);
    int fd = open(address.sun_path, FLAGS);
    if (fd >= 0 || errno != ENOENT) {
        return fd;
    }
    (void)snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
    address = address_of(root, place);
    return open(address.sun_path, FLAGS);
}

enum rdmux_status rdmux_shm_meeting_connect(const struct shm_place *place, pid_t pid, int *out)
{
    struct stat info;
    int file = place->directory < SHM_DIRECTORY_COUNT ? open_meeting_file(place, pid) : -1;
    if (file < 0) {
        rdmux_provider_error(
            "shm: the peer's socket is not to be found: errno %d; it has ended, or is in "
            "another mount namespace and may not be looked into",
            errno);
        return errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_PEER_GONE;
    }
    if (fstat(file, &info) != 0 || !is_ours_alone(&info)) {
        rdmux_provider_error(
            "shm: the peer's socket belongs to user %u, this process to %u, or others may "
            "connect to it",
            (unsigned)info.st_uid, (unsigned)geteuid());
        (void)close(file);
        return RDMUX_DENIED;
    }
    int fd = -1;
    enum rdmux_status status = open_meeting_socket(&fd);
    if (status == RDMUX_OK) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        /* Connects by the descriptor, so the file checked is the file connected to. */
        (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d", file);
        if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
            status = errno == EAGAIN ? RDMUX_AGAIN : RDMUX_PEER_GONE;
            rdmux_provider_error("shm: the peer's socket does not answer: errno %d; it has ended",
                                 errno);
            (void)close(fd);
        }
    }
    (void)close(file);
    if (status == RDMUX_OK) {
        *out = fd;
    }
    return status;
}

/* -------------------------------------------------------------------------------- leftovers */

/* Returns whether the file has no socket any more. A datagram socket cannot connect to a socket of
 * ours: the error tells whether there is one, and nothing reaches it. */
static bool is_abandoned(int directory, const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return false;
    }
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%.*s", directory,
                   (int)FILE_NAME_LENGTH, name);
    int error = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
    (void)close(fd);
    return error == ECONNREFUSED;
}

static void clean_file(int directory, const char *name)
{
    struct stat info;
    struct timespec now;
    if (is_file_name(name) && fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_ours_alone(&info) && clock_gettime(CLOCK_REALTIME, &now) == 0 &&
        info.st_mtim.tv_sec + CLEAN_AGE_S < now.tv_sec && is_abandoned(directory, name)) {
        (void)unlinkat(directory, name, 0);
    }
}

void rdmux_shm_meeting_clean(void)
{
    for (uint32_t i = 0; i < SHM_DIRECTORY_COUNT; i++) {
        char path[DIRECTORY_MAX];
        directory_path(i, path);
        DIR *directory = can_have_files(path) ? opendir(path) : NULL;
        if (directory == NULL) {
            continue;
        }
        const struct dirent *entry = readdir(directory);
        for (uint32_t count = 0; entry != NULL && count < CLEAN_FILES; count++) {
            clean_file(dirfd(directory), entry->d_name);
            entry = readdir(directory);
        }
        (void)closedir(directory);
    }
}
