/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Synchronises the two processes of a case outside rdmux by exact reads and writes on a socketpair;
 * also the third process. */
#include "harness.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Shows an order to the thread sanitiser. The service thread places bytes, and this thread reads
 * them after a message on the socketpair; the peer's actions in between order the two, which the
 * sanitiser does not see. A call that locks the cq and does nothing shows it the order.
 */
#if defined(__SANITIZE_THREAD__)
static void order_for_the_sanitiser(const struct side *side)
{
    for (size_t i = 0; i < side->ep_count; i++) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        if (rdmux_ep_info(side->eps[i], &info) != RDMUX_OK) {
            return;
        }
    }
}
#else
static void order_for_the_sanitiser(const struct side *side)
{
    (void)side;
}
#endif

/* Without a service thread only the caller can serve the peer while it waits for the other side. */
static void progress_until_readable(struct side *side)
{
    for (;;) {
        EXPECT_OK(rdmux_fabric_progress(side->fabric));
        if (side->queue.cq != NULL) {
            (void)queue_poll(&side->queue);
        }
        struct pollfd waits[2] = {
            { .fd = side->sync, .events = POLLIN },
            { .fd = rdmux_fabric_fd(side->fabric), .events = POLLIN },
        };
        (void)poll(waits, COUNT_OF(waits), 1);
        if (waits[0].revents != 0) {
            return;
        }
    }
}

void give_at(const char *file, int line, struct side *side, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    size_t done = 0;
    stand_at(file, line, "GIVE");
    order_for_the_sanitiser(side);
    while (done < length) {
        ssize_t count = send(side->sync, from + done, length - done, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            fail_as_consequence(file, line, "GIVE");
        }
        done += (size_t)count;
    }
}

void take_at(const char *file, int line, struct side *side, void *bytes, size_t length)
{
    uint8_t *to = bytes;
    size_t done = 0;
    stand_at(file, line, "TAKE");
    while (done < length) {
        if (side->manual && side->fabric != NULL) {
            progress_until_readable(side);
        }
        ssize_t count = recv(side->sync, to + done, length - done, 0);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            fail_as_consequence(file, line, "TAKE");
        }
        done += (size_t)count;
    }
    order_for_the_sanitiser(side);
}

void barrier_at(const char *file, int line, struct side *side)
{
    uint8_t mine = 'b';
    uint8_t theirs = 0;
    give_at(file, line, side, &mine, 1);
    take_at(file, line, side, &theirs, 1);
    if (theirs != mine) {
        fail_at(file, line, "the case is wrong: the other side gave 0x%02x at a barrier", theirs);
    }
}

static int victim_pipe = -1;

void victim_start(struct victim *victim, struct side *side, void (*body)(struct side *side))
{
    int ends[2];
    EXPECT(!side->has_libraries, "the case is wrong: it has no CASE_UNTOUCHED");
    EXPECT(pipe(ends) == 0, "pipe: %s", strerror(errno));
    pid_t forked_by = getpid();
    pid_t pid = fork();
    EXPECT(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        (void)close(ends[0]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != forked_by) {
            _exit(1);
        }
        victim_pipe = ends[1];
        body(side);
        FAIL("the case is wrong: the body of a victim returned");
    }
    (void)close(ends[1]);
    victim->pid = pid;
    victim->ready = ends[0];
}

void victim_ready(struct side *side)
{
    (void)side;
    EXPECT(write(victim_pipe, "r", 1) == 1, "write: %s", strerror(errno));
}

void victim_await(struct victim *victim)
{
    char byte = 0;
    ssize_t count = 0;
    STAND("victim_await");
    do {
        count = read(victim->ready, &byte, 1);
    } while (count < 0 && errno == EINTR);
    if (count != 1) {
        FAIL("the third process ended before it was ready");
    }
}

void victim_signal(const struct victim *victim, int signal)
{
    EXPECT(kill(victim->pid, signal) == 0, "kill: %s", strerror(errno));
}

void victim_await_stop(const struct victim *victim)
{
    int status = 0;
    STAND("victim_await_stop");
    while (waitpid(victim->pid, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    EXPECT(WIFSTOPPED(status), "the third process ended before it was stopped");
}

void victim_end(struct victim *victim)
{
    if (victim->pid > 0) {
        (void)kill(victim->pid, SIGKILL);
        while (waitpid(victim->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        (void)close(victim->ready);
    }
    victim->pid = 0;
}
