/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "receiver_sweep.h"

#include "receiver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

struct sweep {
    int root;
    pthread_t thread;
    atomic_bool stop; /* relaxed: it guards no other memory */
    struct timespec since;
};

/* Returns whether a process writes the file. */
static bool is_in_use(int directory, const char *name)
{
    int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        return errno != EACCES; /* no receiver leaves it without a right to read while it writes */
    }
    bool locked = flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(file);
    return locked;
}

static bool is_older(const struct timespec *time, const struct timespec *than)
{
    return time->tv_sec < than->tv_sec ||
           (time->tv_sec == than->tv_sec && time->tv_nsec <= than->tv_nsec);
}

static void remove_left_over(const struct sweep *sweep, int directory, const char *name)
{
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_older(&status.st_ctim, &sweep->since) &&
        (S_ISLNK(status.st_mode) || (S_ISREG(status.st_mode) && !is_in_use(directory, name)))) {
        unlinkat(directory, name, 0);
    }
}

static bool is_directory(int parent, const struct dirent *entry)
{
    struct stat status;
    if (entry->d_type != DT_UNKNOWN) {
        return entry->d_type == DT_DIR;
    }
    return fstatat(parent, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(status.st_mode);
}

/* Takes over the descriptor. Directories deeper than a copy can make them are left out. */
static void sweep_directory(const struct sweep *sweep, int fd, unsigned depth)
{
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    const struct dirent *entry = NULL;
    while (!atomic_load_explicit(&sweep->stop, memory_order_relaxed) &&
           (entry = readdir(directory)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
            continue;
        }
        if (proto_is_unfinished_name(name, strlen(name))) {
            remove_left_over(sweep, fd, name);
        } else if (depth < RECEIVER_DEPTH_MAX && is_directory(fd, entry)) {
            sweep_directory(sweep,
                            openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                            depth + 1);
        }
    }
    closedir(directory);
}

static void *run(void *argument)
{
    const struct sweep *sweep = argument;
    sweep_directory(sweep, openat(sweep->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
    return NULL;
}

struct sweep *sweep_begin(int root)
{
    struct sweep *sweep = calloc(1, sizeof(*sweep));
    if (sweep == NULL) {
        return NULL;
    }
    sweep->root = root;
    /* The clock of file times, which is behind the exact one. */
    clock_gettime(CLOCK_REALTIME_COARSE, &sweep->since);
    if (pthread_create(&sweep->thread, NULL, run, sweep) != 0) {
        free(sweep);
        return NULL;
    }
    return sweep;
}

void sweep_end(struct sweep *sweep)
{
    if (sweep != NULL) {
        atomic_store_explicit(&sweep->stop, true, memory_order_relaxed);
        pthread_join(sweep->thread, NULL);
        free(sweep);
    }
}
