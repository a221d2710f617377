/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux in a loop of libevent: persistent events watch the descriptors, and an event without
 * descriptor becomes active while there may be more. Among events of the same priority the loop
 * looks at its descriptors between two of its runs.
 */
#include "echo.h"

#include <event2/event.h>
#include <signal.h>
#include <stddef.h>

static struct event_base *base;
static struct event *more;

static void turn(evutil_socket_t fd, short what, void *user)
{
    (void)user;
    if ((what & EV_SIGNAL) != 0 && fd == SIGTERM) {
        echo_finish();
    }
    switch (echo_turn()) {
    case ECHO_SLEEP:
        break;
    case ECHO_AGAIN:
        event_active(more, EV_TIMEOUT, 0);
        break;
    case ECHO_END:
        event_base_loopbreak(base);
        break;
    }
}

static struct event *watch(evutil_socket_t fd, short what)
{
    struct event *event = event_new(base, fd, (short)(what | EV_PERSIST), turn, NULL);
    if (event == NULL || event_add(event, NULL) != 0) {
        echo_fail("event", "it cannot be added");
    }
    return event;
}

int main(int argc, char **argv)
{
    int fds[ECHO_FDS];
    struct event *events[ECHO_FDS + 1];
    echo_open(argc, argv);
    echo_fds(fds);
    base = event_base_new();
    more = base == NULL ? NULL : event_new(base, -1, 0, turn, NULL);
    if (more == NULL) {
        echo_fail("event_base_new", "no memory");
    }
    for (int i = 0; i < ECHO_FDS; i++) {
        events[i] = fds[i] >= 0 ? watch(fds[i], EV_READ) : NULL;
    }
    events[ECHO_FDS] = watch(SIGTERM, EV_SIGNAL);
    event_active(more, EV_TIMEOUT, 0);
    if (event_base_dispatch(base) != 0) {
        echo_fail("event_base_dispatch", "it has ended early");
    }
    for (int i = 0; i <= ECHO_FDS; i++) {
        if (events[i] != NULL) {
            event_free(events[i]);
        }
    }
    event_free(more);
    event_base_free(base);
    echo_close();
    return 0;
}
