/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux in a loop of epoll(7): "there may be more" is a wait without sleep, so that each turn also
 * looks at the loop's other descriptors, here that of SIGTERM.
 */
#include "echo.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EVENTS = 8 };

static void watch(int loop, int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd }; /* level-triggered */
    if (fd >= 0 && epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0) {
        echo_fail("epoll_ctl", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    int fds[ECHO_FDS];
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, NULL); /* before threads start: a descriptor delivers it */
    echo_open(argc, argv);
    echo_fds(fds);
    int loop = epoll_create1(EPOLL_CLOEXEC), signals = signalfd(-1, &mask, SFD_CLOEXEC);
    if (loop < 0 || signals < 0) {
        echo_fail("descriptors", strerror(errno));
    }
    watch(loop, fds[0]);
    watch(loop, fds[1]);
    watch(loop, signals);
    for (enum echo_next next; (next = echo_turn()) != ECHO_END;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(loop, events, EVENTS, next == ECHO_SLEEP ? -1 : 0);
        if (count < 0 && errno != EINTR) {
            echo_fail("epoll_wait", strerror(errno));
        }
        for (int i = 0; i < count; i++) {
            struct signalfd_siginfo info;
            if (events[i].data.fd == signals && read(signals, &info, sizeof(info)) > 0) {
                echo_finish();
            }
        }
    }
    close(signals);
    close(loop);
    echo_close();
    return 0;
}
