/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The end of a peer over shared memory, as seen by the queue that waits for it. */
#include "shm/shm_watch.h"
#include "tests/unit/shm_pair.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BUDGET = 64 };

static int set_up(void **state)
{
    *state = shm_pair_connect();
    return 0;
}

static int tear_down(void **state)
{
    shm_pair_close(*state);
    assert_int_equal(fake_fabric.allocations, 0);
    return 0;
}

static bool is_readable(int fd)
{
    struct pollfd descriptor = { .fd = fd, .events = POLLIN };
    return poll(&descriptor, 1, 0) == 1;
}

/* Makes a process that has ended, and that is not yet reaped. */
static pid_t make_ended_process(void)
{
    siginfo_t info;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    return child;
}

/* Replaces the peer's process, which is this one, by another one. */
static void replace_process(struct shm_end *end, pid_t process)
{
    int fd = (int)syscall(SYS_pidfd_open, process, 0U);
    assert_true(fd >= 0);
    struct shm_neighbour *neighbour = end->ep->neighbour;
    if (neighbour->pidfd >= 0) {
        assert_int_equal(close(neighbour->pidfd), 0);
    }
    neighbour->pidfd = fd;
    assert_int_equal(rdmux_shm_cq_watch(end->cq, neighbour, fd, SHM_WATCH_PID, POLLIN), RDMUX_OK);
}

/* Its descriptor stays readable, for as long as the program leaves the endpoint open. */
static void the_end_of_a_process_wakes_an_armed_queue_once(void **state)
{
    struct shm_pair *pair = *state;
    struct shm_end *end = &pair->ends[1];
    pid_t process = make_ended_process();
    assert_int_equal(rdmux_shm_arm(&end->cq->base), RDMUX_OK);
    assert_false(is_readable(rdmux_shm_cq_fd(&end->cq->base)));

    replace_process(end, process);
    bool is_woken = is_readable(rdmux_shm_cq_fd(&end->cq->base));
    (void)rdmux_shm_poll(&end->cq->base, BUDGET);

    assert_true(is_woken);
    assert_int_equal(end->core.failed, RDMUX_PEER_GONE);
    assert_int_equal(rdmux_shm_arm(&end->cq->base), RDMUX_OK);
    assert_false(is_readable(rdmux_shm_cq_fd(&end->cq->base)));
    assert_int_equal(waitpid(process, NULL, 0), process);
}

static void the_end_of_a_peer_counts_as_one_piece_of_work(void **state)
{
    struct shm_pair *pair = *state;
    struct rdmux_provider_counts counts;
    assert_int_equal(rdmux_shm_ep_quiesce(&pair->ends[0].ep->base, &counts), RDMUX_OK);

    size_t done = rdmux_shm_poll(&pair->ends[1].cq->base, BUDGET);

    assert_int_equal(pair->ends[1].core.failed, RDMUX_PEER_GONE);
    assert_int_equal(done, 1);
}

#define ENDS_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ENDS_TEST(the_end_of_a_process_wakes_an_armed_queue_once),
        ENDS_TEST(the_end_of_a_peer_counts_as_one_piece_of_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
