/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux in a loop of libuv: uv_poll_t watches the descriptors, and an idle handle is active while
 * there may be more, as the loop does not sleep then.
 */
#include "echo.h"

#include <signal.h>
#include <uv.h>

static uv_loop_t loop;
static uv_idle_t more;
static uv_signal_t terminate;
static uv_poll_t polls[ECHO_FDS];
static int fds[ECHO_FDS];

static void must(int result, const char *what)
{
    if (result != 0) {
        echo_fail(what, uv_strerror(result));
    }
}

static void turn(void);

static void on_more(uv_idle_t *handle)
{
    (void)handle;
    turn();
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    (void)handle;
    (void)events;
    must(status, "uv_poll");
    turn();
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    echo_finish();
    turn();
}

/* A loop without active handles ends. */
static void stop(void)
{
    uv_close((uv_handle_t *)&more, NULL);
    uv_close((uv_handle_t *)&terminate, NULL);
    for (int i = 0; i < ECHO_FDS; i++) {
        if (fds[i] >= 0) {
            uv_close((uv_handle_t *)&polls[i], NULL);
        }
    }
}

static void turn(void)
{
    if (uv_is_closing((uv_handle_t *)&more)) {
        return;
    }
    switch (echo_turn()) {
    case ECHO_SLEEP:
        must(uv_idle_stop(&more), "uv_idle_stop");
        break;
    case ECHO_AGAIN:
        must(uv_idle_start(&more, on_more), "uv_idle_start");
        break;
    case ECHO_END:
        stop();
        break;
    }
}

int main(int argc, char **argv)
{
    echo_open(argc, argv);
    echo_fds(fds);
    must(uv_loop_init(&loop), "uv_loop_init");
    must(uv_idle_init(&loop, &more), "uv_idle_init");
    must(uv_signal_init(&loop, &terminate), "uv_signal_init");
    must(uv_signal_start(&terminate, on_signal, SIGTERM), "uv_signal_start");
    for (int i = 0; i < ECHO_FDS; i++) {
        if (fds[i] >= 0) {
            must(uv_poll_init(&loop, &polls[i], fds[i]), "uv_poll_init");
            must(uv_poll_start(&polls[i], UV_READABLE, on_readable), "uv_poll_start");
        }
    }
    turn();
    must(uv_run(&loop, UV_RUN_DEFAULT), "uv_run");
    must(uv_loop_close(&loop), "uv_loop_close");
    echo_close();
    return 0;
}
