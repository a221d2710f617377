/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Pollers by poll(2). A poller is a set in the memory of this process, and a number above those of
 * descriptors stands for it. A wait collects the descriptors of a poller, and of the pollers that
 * are its members, for one call of poll(2). A change of one of these sets makes the wait collect
 * them again; a pipe ends its call of poll(2).
 *
 * A wait costs time for each descriptor. The table of pollers belongs to the process, as its table
 * of descriptors does. Its lock is a leaf.
 */
#include "api/system/system.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FIRST_NUMBER = 1 << 29, /* no descriptor has such a number */
    BUCKETS = 64,
    BLIND_MS = 10, /* a wait without a pipe looks for changes in this time */
};

struct poller_member {
    int fd; /* or a poller's number */
    uint32_t events;
    void *data;
    bool is_quiet; /* RDMUX_READY_ONCE, and reported */
};

struct poller_set {
    struct poller_set *next; /* of its bucket */
    int number;
    struct poller_member *members;
    size_t count;
    size_t room;
    size_t first; /* member from which on the next report begins: all get their turn */
};

/* A descriptor of a wait: what it stands for, in the order of the wait's pollfds. */
struct poller_leaf {
    size_t root;     /* index of the member of the poller, or of the pollfd, that was asked for */
    uint32_t events; /* asked for */
    bool is_nested;
};

/* A wait that is under way, or one that is kept for the next. */
struct poller_wait {
    struct poller_wait *next;
    struct pollfd *fds; /* the first one is the pipe */
    struct poller_leaf *leaves;
    size_t count;
    size_t room;
    uint32_t *found; /* the events of each root */
    size_t found_room;
    int *numbers; /* of the pollers collected */
    size_t number_count;
    size_t number_room;
    struct rdmux_wake changed;
    bool is_stale; /* a set collected has changed */
};

static pthread_mutex_t poller_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static pthread_once_t poller_once = PTHREAD_ONCE_INIT;
static struct poller_set *poller_sets[BUCKETS];
static size_t poller_count;
static int poller_last = FIRST_NUMBER;
static struct poller_wait *poller_waits; /* under way */
static struct poller_wait *poller_kept;  /* for later waits */

/* ---------------------------------------------------------------------------------------- forks */

static void lock_before_fork(void)
{
    pthread_mutex_lock(&poller_lock);
}

static void unlock_after_fork(void)
{
    pthread_mutex_unlock(&poller_lock);
}

/* The child has the pipes of the parent's waits, and none of their threads. */
static void start_anew_in_child(void)
{
    for (struct poller_wait *wait = poller_kept; wait != NULL; wait = wait->next) {
        rdmux_wake_close(&wait->changed);
        wait->changed.fd = -1;
    }
    poller_waits = NULL;
    pthread_mutex_unlock(&poller_lock);
}

static void prepare_for_forks(void)
{
    (void)pthread_atfork(lock_before_fork, unlock_after_fork, start_anew_in_child);
}

/* ----------------------------------------------------------------------------------------- sets */

static struct poller_set **place_of_set(int number)
{
    struct poller_set **at = &poller_sets[number % BUCKETS];
    while (*at != NULL && (*at)->number != number) {
        at = &(*at)->next;
    }
    return at;
}

static struct poller_member *find_member(struct poller_set *set, int fd)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->members[i].fd == fd) {
            return &set->members[i];
        }
    }
    return NULL;
}

/* Makes the waits that have collected the set collect it again. */
static void tell_waits(int number)
{
    for (struct poller_wait *wait = poller_waits; wait != NULL; wait = wait->next) {
        for (size_t i = 0; i < wait->number_count && !wait->is_stale; i++) {
            if (wait->numbers[i] == number) {
                wait->is_stale = true;
                if (wait->changed.fd >= 0) {
                    rdmux_wake_signal(&wait->changed);
                }
            }
        }
    }
}

static void free_wait(struct poller_wait *wait)
{
    rdmux_wake_close(&wait->changed);
    free(wait->fds);
    free(wait->leaves);
    free(wait->found);
    free(wait->numbers);
    free(wait);
}

int rdmux_posix_poller_open(void)
{
    struct poller_set *set = calloc(1, sizeof(*set));
    if (set == NULL) {
        return -1;
    }
    (void)pthread_once(&poller_once, prepare_for_forks);
    pthread_mutex_lock(&poller_lock);
    do {
        poller_last = poller_last == INT_MAX ? FIRST_NUMBER : poller_last + 1;
    } while (*place_of_set(poller_last) != NULL);
    set->number = poller_last;
    *place_of_set(set->number) = set;
    poller_count++;
    pthread_mutex_unlock(&poller_lock);
    return set->number;
}

void rdmux_posix_poller_close(int poller)
{
    struct poller_wait *unused = NULL;
    pthread_mutex_lock(&poller_lock);
    struct poller_set **at = place_of_set(poller);
    struct poller_set *set = *at;
    assert(set != NULL);
    *at = set->next;
    poller_count--;
    tell_waits(poller);
    if (poller_count == 0) {
        unused = poller_kept;
        poller_kept = NULL;
    }
    pthread_mutex_unlock(&poller_lock);
    free(set->members);
    free(set);
    while (unused != NULL) {
        struct poller_wait *next = unused->next;
        free_wait(unused);
        unused = next;
    }
}

/* Returns a new member. NULL: no memory. */
static struct poller_member *add_member(struct poller_set *set)
{
    if (set->count == set->room) {
        size_t room = set->room == 0 ? 4 : 2 * set->room;
        struct poller_member *members = realloc(set->members, room * sizeof(*members));
        if (members == NULL) {
            return NULL;
        }
        set->members = members;
        set->room = room;
    }
    return &set->members[set->count++];
}

int rdmux_posix_poller_set(int poller, int fd, uint32_t events, void *data, bool may_add)
{
    int error = 0;
    pthread_mutex_lock(&poller_lock);
    struct poller_set *set = *place_of_set(poller);
    assert(set != NULL);
    struct poller_member *member = find_member(set, fd);
    if (member == NULL && may_add) {
        member = add_member(set);
        error = member == NULL ? ENOMEM : 0;
    } else if (member == NULL) {
        error = ENOENT;
    }
    if (member != NULL) {
        *member = (struct poller_member){ .fd = fd, .events = events, .data = data };
        tell_waits(poller);
    }
    pthread_mutex_unlock(&poller_lock);
    errno = error;
    return error == 0 ? 0 : -1;
}

/* Keeps the order of the others, which is the order of their turns. */
static void drop_member(struct poller_set *set, const struct poller_member *member)
{
    size_t index = (size_t)(member - set->members);
    memmove(&set->members[index], &set->members[index + 1],
            (set->count - index - 1) * sizeof(*member));
    set->count--;
}

int rdmux_posix_poller_remove(int poller, int fd)
{
    pthread_mutex_lock(&poller_lock);
    struct poller_set *set = *place_of_set(poller);
    assert(set != NULL);
    const struct poller_member *member = find_member(set, fd);
    if (member != NULL) {
        drop_member(set, member);
        tell_waits(poller);
    }
    pthread_mutex_unlock(&poller_lock);
    errno = ENOENT;
    return member != NULL ? 0 : -1;
}

/* ----------------------------------------------------------------------------------- collecting */

/* Makes room for one more element. Returns false if there is no memory. */
static bool poller_room(void **array, size_t *room, size_t count, size_t size)
{
    if (count < *room) {
        return true;
    }
    size_t larger = *room == 0 ? 16 : 2 * *room;
    void *moved = realloc(*array, larger * size);
    if (moved == NULL) {
        return false;
    }
    *array = moved;
    *room = larger;
    return true;
}

static short poll_events(uint32_t events)
{
    /* The end of a connection is readable, as its bytes are; look_closer() tells them apart. */
    return (short)(((events & (RDMUX_READY_IN | RDMUX_READY_END)) != 0 ? POLLIN : 0) |
                   ((events & RDMUX_READY_OUT) != 0 ? POLLOUT : 0));
}

static bool collect_fd(struct poller_wait *wait, int fd, short events, struct poller_leaf leaf)
{
    size_t leaf_room = wait->room;
    void *fds = wait->fds;
    void *leaves = wait->leaves;
    if (!poller_room(&leaves, &leaf_room, wait->count, sizeof(*wait->leaves))) {
        return false;
    }
    wait->leaves = leaves;
    if (!poller_room(&fds, &wait->room, wait->count, sizeof(*wait->fds))) {
        return false;
    }
    wait->fds = fds;
    wait->fds[wait->count] = (struct pollfd){ .fd = fd, .events = events };
    wait->leaves[wait->count++] = leaf;
    return true;
}

static bool collect_number(struct poller_wait *wait, int number)
{
    void *numbers = wait->numbers;
    if (!poller_room(&numbers, &wait->number_room, wait->number_count, sizeof(*wait->numbers))) {
        return false;
    }
    wait->numbers = numbers;
    wait->numbers[wait->number_count++] = number;
    return true;
}

/* Collects a set that is a member, on some level, of the one asked for. */
static bool collect_nested(struct poller_wait *wait, int number, size_t root)
{
    const struct poller_set *set = *place_of_set(number);
    if (set == NULL) {
        return true; /* closed, and not removed before */
    }
    bool fits = collect_number(wait, number);
    for (size_t i = 0; i < set->count && fits; i++) {
        const struct poller_member *member = &set->members[i];
        if (member->is_quiet) {
            continue;
        }
        if (member->fd < FIRST_NUMBER) {
            fits = collect_fd(wait, member->fd, poll_events(member->events),
                              (struct poller_leaf){ root, member->events, true });
        } else if ((member->events & RDMUX_READY_IN) != 0) {
            fits = collect_nested(wait, member->fd, root);
        }
    }
    return fits;
}

static bool collect_set(struct poller_wait *wait, const struct poller_set *set)
{
    bool fits = collect_number(wait, set->number);
    for (size_t i = 0; i < set->count && fits; i++) {
        const struct poller_member *member = &set->members[i];
        if (member->is_quiet) {
            continue;
        }
        if (member->fd < FIRST_NUMBER) {
            fits = collect_fd(wait, member->fd, poll_events(member->events),
                              (struct poller_leaf){ i, member->events, false });
        } else if ((member->events & RDMUX_READY_IN) != 0) {
            fits = collect_nested(wait, member->fd, i);
        }
    }
    return fits;
}

static bool collect_fds(struct poller_wait *wait, const struct pollfd *fds, size_t count)
{
    bool fits = true;
    for (size_t i = 0; i < count && fits; i++) {
        fits = fds[i].fd < FIRST_NUMBER
                   ? collect_fd(wait, fds[i].fd, fds[i].events, (struct poller_leaf){ i, 0, false })
                   : collect_nested(wait, fds[i].fd, i);
    }
    return fits;
}

/* What a wait is for: a poller, or the caller's own pollfds. */
struct poller_source {
    int poller; /* -1: none */
    const struct pollfd *fds;
    size_t count;
};

/* Collects all descriptors. Returns the number of roots, SIZE_MAX if there is no memory. */
static size_t collect_all(struct poller_wait *wait, const struct poller_source *source)
{
    const struct poller_set *set = source->poller < 0 ? NULL : *place_of_set(source->poller);
    assert(source->poller < 0 || set != NULL);
    const size_t roots = set != NULL ? set->count : source->count;
    wait->is_stale = false;
    wait->count = 0;
    wait->number_count = 0;
    bool fits = collect_fd(wait, wait->changed.fd, POLLIN, (struct poller_leaf){ 0, 0, false }) &&
                (set != NULL ? collect_set(wait, set)
                             : collect_fds(wait, source->fds, source->count));
    if (fits && roots > wait->found_room) {
        uint32_t *found = realloc(wait->found, roots * sizeof(*found));
        fits = found != NULL;
        wait->found = fits ? found : wait->found;
        wait->found_room = fits ? roots : wait->found_room;
    }
    if (fits && roots > 0) {
        memset(wait->found, 0, roots * sizeof(*wait->found));
    }
    return fits ? roots : SIZE_MAX;
}

/* -------------------------------------------------------------------------------------- waiting */

/* Returns whether the next thing to be read is the end of the connection. */
static bool is_at_end(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Returns the events of a descriptor that poll(2) has reported. 0: bytes have come, which a caller
 * that asks for the end alone does not await. */
static uint32_t look_closer(const struct pollfd *fd, uint32_t asked)
{
    uint32_t events = 0;
    if ((fd->revents & POLLOUT) != 0) {
        events |= RDMUX_READY_OUT;
    }
    if ((fd->revents & POLLERR) != 0) {
        events |= RDMUX_READY_ERROR;
    }
    if ((fd->revents & POLLHUP) != 0) {
        events |= RDMUX_READY_HANGUP;
    }
    if ((fd->revents & POLLIN) != 0) {
        events |= asked & RDMUX_READY_IN;
    }
    if ((asked & RDMUX_READY_END) != 0) {
        /* After an error reading would take it away from the owner of the socket. */
        bool failed = (fd->revents & (POLLERR | POLLHUP)) != 0;
        if (failed || ((fd->revents & POLLIN) != 0 && is_at_end(fd->fd))) {
            events |= RDMUX_READY_END;
        }
    }
    return events;
}

/* Notes the events that poll(2) has reported. Returns whether there is one. Leaves out for the rest
 * of the wait the descriptors whose event nobody awaits. */
static bool note_events(struct poller_wait *wait, bool of_poller)
{
    bool any = false;
    for (size_t i = 1; i < wait->count; i++) {
        struct pollfd *fd = &wait->fds[i];
        const struct poller_leaf *leaf = &wait->leaves[i];
        if (fd->revents == 0) {
            continue;
        }
        uint32_t *found = &wait->found[leaf->root];
        if (!of_poller && !leaf->is_nested) {
            *found |= (uint16_t)fd->revents;
            any = true;
            continue;
        }
        uint32_t events = (fd->revents & POLLNVAL) != 0 ? 0 : look_closer(fd, leaf->events);
        if (events == 0) {
            fd->fd = -1; /* also if it was closed, and not removed before */
        } else if (leaf->is_nested) {
            *found |= of_poller ? (uint32_t)RDMUX_READY_IN : (uint32_t)POLLIN;
            any = true;
        } else {
            *found |= events;
            any = true;
        }
    }
    return any;
}

static uint64_t poller_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Returns for how long poll(2) may sleep. */
static int poll_time_left(const struct poller_wait *wait, int timeout_ms, uint64_t until_ms)
{
    int rest = timeout_ms;
    if (timeout_ms > 0) {
        uint64_t now = poller_now_ms();
        rest = now >= until_ms ? 0 : (int)(until_ms - now);
    }
    return wait->changed.fd < 0 && (rest < 0 || rest > BLIND_MS) ? BLIND_MS : rest;
}

/* Begins a wait. NULL: no memory. A wait that may sleep gets a pipe; if there is no descriptor, it
 * looks for changes from time to time. */
static struct poller_wait *begin_wait(bool sleeps)
{
    pthread_mutex_lock(&poller_lock);
    struct poller_wait *wait = poller_kept;
    if (wait != NULL) {
        poller_kept = wait->next;
    } else {
        wait = calloc(1, sizeof(*wait));
        if (wait == NULL) {
            pthread_mutex_unlock(&poller_lock);
            return NULL;
        }
        wait->changed.fd = -1;
    }
    if (sleeps && wait->changed.fd < 0) {
        (void)rdmux_posix_wake_open(&wait->changed);
    }
    wait->number_count = 0;
    wait->next = poller_waits;
    poller_waits = wait;
    return wait;
}

/* The lock is held; releases it. */
static void end_wait(struct poller_wait *wait)
{
    struct poller_wait **at = &poller_waits;
    while (*at != wait) {
        at = &(*at)->next;
    }
    *at = wait->next;
    if (wait->is_stale && wait->changed.fd >= 0) {
        rdmux_wake_drain(&wait->changed);
    }
    wait->is_stale = false;
    bool keep = poller_count > 0;
    if (keep) {
        wait->next = poller_kept;
        poller_kept = wait;
    }
    pthread_mutex_unlock(&poller_lock);
    if (!keep) {
        free_wait(wait);
    }
}

/* Waits until a root is ready. Returns the number of roots, whose events are in wait->found, or -1
 * and an error; *any: whether one is ready. The lock is held, but released meanwhile. */
static ssize_t wait_for_roots(struct poller_wait *wait, const struct poller_source *source,
                              int timeout_ms, bool *any)
{
    const uint64_t until_ms = timeout_ms > 0 ? poller_now_ms() + (uint64_t)timeout_ms : 0;
    for (;;) {
        const size_t roots = collect_all(wait, source);
        if (roots == SIZE_MAX) {
            errno = ENOMEM;
            return -1;
        }
        int rest;
        do {
            rest = poll_time_left(wait, timeout_ms, until_ms);
            pthread_mutex_unlock(&poller_lock);
            int count = poll(wait->fds, (nfds_t)wait->count, rest);
            int error = errno;
            pthread_mutex_lock(&poller_lock);
            if (count < 0) {
                errno = error;
                return -1;
            }
            *any = !wait->is_stale && count > 0 && note_events(wait, source->poller >= 0);
            if (*any || (count == 0 && !wait->is_stale &&
                         poll_time_left(wait, timeout_ms, until_ms) == 0)) {
                return (ssize_t)roots;
            }
        } while (!wait->is_stale);
        if (wait->changed.fd >= 0) {
            rdmux_wake_drain(&wait->changed);
        }
    }
}

int rdmux_posix_poller_wait(int poller, struct rdmux_ready *out, int max, int timeout_ms)
{
    struct poller_wait *wait = begin_wait(timeout_ms != 0);
    if (wait == NULL) {
        errno = ENOMEM;
        return -1;
    }
    const struct poller_source source = { .poller = poller };
    bool any = false;
    const ssize_t roots = wait_for_roots(wait, &source, timeout_ms, &any);
    const int error = errno;
    int count = roots < 0 ? -1 : 0;
    if (any) {
        struct poller_set *set = *place_of_set(poller);
        const size_t first = set->first;
        for (size_t i = 0; i < set->count && count < max; i++) {
            const size_t index = (first + i) % set->count;
            struct poller_member *member = &set->members[index];
            if (wait->found[index] != 0) {
                out[count++] = (struct rdmux_ready){ member->data, wait->found[index] };
                member->is_quiet = (member->events & RDMUX_READY_ONCE) != 0;
                set->first = index + 1;
            }
        }
    }
    end_wait(wait);
    errno = error;
    return count;
}

int rdmux_posix_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    struct poller_wait *wait = begin_wait(timeout_ms != 0);
    if (wait == NULL) {
        errno = ENOMEM;
        return -1;
    }
    const struct poller_source source = { .poller = -1, .fds = fds, .count = (size_t)count };
    bool any = false;
    const ssize_t roots = wait_for_roots(wait, &source, timeout_ms, &any);
    const int error = errno;
    int ready = roots < 0 ? -1 : 0;
    for (nfds_t i = 0; i < count && roots >= 0; i++) {
        fds[i].revents = any ? (short)wait->found[i] : 0;
        ready += fds[i].revents != 0;
    }
    end_wait(wait);
    errno = error;
    return ready;
}
