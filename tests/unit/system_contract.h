/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What every implementation of api/system/system.h keeps. test_system_linux.c and
 * test_system_posix.c each compile it over one of them. */
#ifndef RDMUX_TEST_SYSTEM_CONTRACT_H
#define RDMUX_TEST_SYSTEM_CONTRACT_H

#include "api/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PATIENT_MS = 60000, /* only a hang takes as long */
    PAIRS = 10,
    SIGNALS = 200 * 1000, /* more than a pipe holds */
    SECRET = 128,
};

static void make_pair(int ends[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
}

static void close_pair(const int ends[2])
{
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void give_byte(int fd)
{
    assert_int_equal(write(fd, "x", 1), 1);
}

static void take_byte(int fd)
{
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
}

/* Returns the events of the only member that is ready, 0 if none is. */
static uint32_t only_event(int poller, void *data)
{
    struct rdmux_ready ready[4];
    int count = rdmux_poller_wait(poller, ready, 4, 0);
    assert_in_range(count, 0, 1);
    if (count == 1) {
        assert_ptr_equal(rdmux_ready_data(&ready[0]), data);
    }
    return count == 0 ? 0 : rdmux_ready_events(&ready[0]);
}

static bool is_ready(int fd)
{
    struct pollfd look = { .fd = fd, .events = POLLIN };
    int count = rdmux_poll(&look, 1, 0);
    assert_int_equal(count, look.revents != 0);
    return count == 1;
}

/* -------------------------------------------------------------------------------------- pollers */

static void a_member_is_reported_with_its_events_and_its_data(void **state)
{
    (void)state;
    int ends[2];
    int one;
    int other;
    int poller = rdmux_poller_open();
    make_pair(ends);
    assert_int_equal(rdmux_poller_add(poller, ends[0], RDMUX_READY_IN, &one), 0);
    assert_int_equal(only_event(poller, &one), 0);
    give_byte(ends[1]);
    assert_int_equal(only_event(poller, &one), RDMUX_READY_IN);
    assert_int_equal(only_event(poller, &one), RDMUX_READY_IN); /* until the byte is taken */

    assert_int_equal(rdmux_poller_change(poller, ends[0], RDMUX_READY_OUT, &other), 0);
    assert_int_equal(only_event(poller, &other), RDMUX_READY_OUT);
    assert_int_equal(rdmux_poller_change(poller, ends[0], 0, &other), 0);
    assert_int_equal(only_event(poller, &other), 0);

    assert_int_equal(rdmux_poller_remove(poller, ends[0]), 0);
    assert_int_equal(rdmux_poller_remove(poller, ends[0]), -1);
    assert_int_equal(rdmux_poller_change(poller, ends[0], RDMUX_READY_OUT, &other), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(only_event(poller, NULL), 0);
    rdmux_poller_close(poller);
    close_pair(ends);
}

static void a_member_that_reports_once_is_quiet_until_a_change(void **state)
{
    (void)state;
    int ends[2];
    int poller = rdmux_poller_open();
    make_pair(ends);
    assert_int_equal(rdmux_poller_add(poller, ends[0], RDMUX_READY_IN | RDMUX_READY_ONCE, ends), 0);
    give_byte(ends[1]);
    assert_true(is_ready(poller)); /* a look takes no report */
    assert_int_equal(only_event(poller, ends), RDMUX_READY_IN);
    assert_int_equal(only_event(poller, ends), 0);
    assert_false(is_ready(poller));
    assert_int_equal(rdmux_poller_change(poller, ends[0], RDMUX_READY_IN | RDMUX_READY_ONCE, ends),
                     0);
    assert_int_equal(only_event(poller, ends), RDMUX_READY_IN);
    rdmux_poller_close(poller);
    close_pair(ends);
}

static void a_poller_is_ready_while_a_member_on_any_level_is(void **state)
{
    (void)state;
    int ends[2];
    int inner = rdmux_poller_open();
    int middle = rdmux_poller_open();
    int outer = rdmux_poller_open();
    make_pair(ends);
    assert_int_equal(rdmux_poller_add(inner, ends[0], RDMUX_READY_IN, ends), 0);
    assert_int_equal(rdmux_poller_add(middle, inner, RDMUX_READY_IN, &inner), 0);
    assert_int_equal(rdmux_poller_add(outer, middle, RDMUX_READY_IN, &middle), 0);
    assert_int_equal(only_event(outer, &middle), 0);
    give_byte(ends[1]);
    assert_int_equal(only_event(outer, &middle), RDMUX_READY_IN);
    assert_int_equal(only_event(middle, &inner), RDMUX_READY_IN);

    assert_int_equal(rdmux_poller_change(middle, inner, 0, &inner), 0);
    assert_int_equal(only_event(outer, &middle), 0);
    assert_int_equal(rdmux_poller_change(middle, inner, RDMUX_READY_IN, &inner), 0);
    assert_int_equal(only_event(outer, &middle), RDMUX_READY_IN);
    take_byte(ends[0]);
    assert_int_equal(only_event(outer, &middle), 0);
    rdmux_poller_close(outer);
    rdmux_poller_close(middle);
    rdmux_poller_close(inner);
    close_pair(ends);
}

static void the_end_of_a_connection_is_told_from_its_bytes(void **state)
{
    (void)state;
    int ends[2];
    int poller = rdmux_poller_open();
    make_pair(ends);
    assert_int_equal(rdmux_poller_add(poller, ends[0], RDMUX_READY_END, ends), 0);
    give_byte(ends[1]);
    assert_int_equal(only_event(poller, ends), 0);
    assert_false(is_ready(poller));
    take_byte(ends[0]);
    assert_int_equal(shutdown(ends[1], SHUT_WR), 0);
    assert_int_equal(only_event(poller, ends), RDMUX_READY_END);
    assert_int_equal(rdmux_poller_change(poller, ends[0], RDMUX_READY_IN | RDMUX_READY_END, ends),
                     0);
    assert_int_equal(only_event(poller, ends), RDMUX_READY_IN | RDMUX_READY_END);
    (void)close(ends[1]);
    assert_int_equal(rdmux_poller_change(poller, ends[0], 0, ends), 0);
    assert_int_equal(only_event(poller, ends), RDMUX_READY_HANGUP); /* without being asked for */
    rdmux_poller_close(poller);
    (void)close(ends[0]);
}

static void members_that_do_not_fit_get_their_turn(void **state)
{
    (void)state;
    int pairs[PAIRS][2];
    unsigned seen[PAIRS] = { 0 };
    int poller = rdmux_poller_open();
    for (size_t i = 0; i < PAIRS; i++) {
        make_pair(pairs[i]);
        give_byte(pairs[i][1]);
        assert_int_equal(rdmux_poller_add(poller, pairs[i][0], RDMUX_READY_IN, &seen[i]), 0);
    }
    for (size_t i = 0; i < PAIRS; i++) {
        struct rdmux_ready ready[3];
        assert_int_equal(rdmux_poller_wait(poller, ready, 3, 0), 3);
        for (size_t j = 0; j < 3; j++) {
            ++*(unsigned *)rdmux_ready_data(&ready[j]);
        }
    }
    for (size_t i = 0; i < PAIRS; i++) {
        assert_int_equal(seen[i], 3);
        close_pair(pairs[i]);
    }
    rdmux_poller_close(poller);
}

static void a_descriptor_that_is_closed_reports_nothing(void **state)
{
    (void)state;
    int ends[2];
    int inner = rdmux_poller_open();
    int poller = rdmux_poller_open();
    make_pair(ends);
    assert_int_equal(rdmux_poller_add(poller, ends[0], RDMUX_READY_IN, ends), 0);
    assert_int_equal(rdmux_poller_add(poller, inner, RDMUX_READY_IN, &inner), 0);
    rdmux_poller_close(inner);
    close_pair(ends);
    assert_int_equal(only_event(poller, NULL), 0);
    assert_false(is_ready(poller));
    rdmux_poller_close(poller);
}

static void pollers_and_descriptors_are_awaited_together(void **state)
{
    (void)state;
    int first[2];
    int second[2];
    int poller = rdmux_poller_open();
    make_pair(first);
    make_pair(second);
    assert_int_equal(rdmux_poller_add(poller, first[0], RDMUX_READY_IN, NULL), 0);
    struct pollfd fds[] = {
        { .fd = poller, .events = POLLIN },
        { .fd = second[0], .events = POLLIN | POLLOUT },
        { .fd = -1, .events = POLLIN },
    };
    assert_int_equal(rdmux_poll(fds, 3, 0), 1);
    assert_int_equal(fds[0].revents, 0);
    assert_int_equal(fds[1].revents, POLLOUT);
    assert_int_equal(fds[2].revents, 0);
    give_byte(first[1]);
    give_byte(second[1]);
    assert_int_equal(rdmux_poll(fds, 3, PATIENT_MS), 2);
    assert_int_equal(fds[0].revents, POLLIN);
    assert_int_equal(fds[1].revents, POLLIN | POLLOUT);
    take_byte(first[0]);
    take_byte(second[0]);
    fds[1].events = POLLIN;
    assert_int_equal(rdmux_poll(fds, 3, 1), 0); /* the time passes */
    assert_int_equal(fds[0].revents | fds[1].revents | fds[2].revents, 0);
    rdmux_poller_close(poller);
    close_pair(first);
    close_pair(second);
}

/* A thread that waits. */
struct sleeper {
    pthread_t thread;
    int poller;
    bool polls; /* by rdmux_poll() */
    int count;
    void *data;
};

static void *sleep_until_ready(void *argument)
{
    struct sleeper *sleeper = argument;
    if (sleeper->polls) {
        struct pollfd fd = { .fd = sleeper->poller, .events = POLLIN };
        sleeper->count = rdmux_poll(&fd, 1, PATIENT_MS);
        return NULL;
    }
    struct rdmux_ready ready;
    sleeper->count = rdmux_poller_wait(sleeper->poller, &ready, 1, PATIENT_MS);
    sleeper->data = sleeper->count == 1 ? rdmux_ready_data(&ready) : NULL;
    return NULL;
}

static void start_sleeper(struct sleeper *sleeper)
{
    assert_int_equal(pthread_create(&sleeper->thread, NULL, sleep_until_ready, sleeper), 0);
    (void)usleep(20 * 1000); /* mostly it sleeps then; the result does not depend on that */
}

static void a_change_counts_for_waits_under_way(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        const bool is_nested = (round & 1) != 0;
        const bool polls = (round & 2) != 0;
        const bool is_member = (round & 4) != 0; /* with other events */
        int ends[2];
        int inner = rdmux_poller_open();
        int outer = rdmux_poller_open();
        make_pair(ends);
        give_byte(ends[1]);
        assert_int_equal(rdmux_poller_add(outer, inner, RDMUX_READY_IN, &inner), 0);
        if (is_member) {
            assert_int_equal(rdmux_poller_add(inner, ends[0], 0, ends), 0);
        }
        struct sleeper sleeper = { .poller = is_nested ? outer : inner, .polls = polls };
        start_sleeper(&sleeper);
        if (is_member) {
            assert_int_equal(rdmux_poller_change(inner, ends[0], RDMUX_READY_IN, ends), 0);
        } else {
            assert_int_equal(rdmux_poller_add(inner, ends[0], RDMUX_READY_IN, ends), 0);
        }
        assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
        assert_int_equal(sleeper.count, 1);
        if (!polls) {
            assert_ptr_equal(sleeper.data, is_nested ? (void *)&inner : (void *)ends);
        }
        rdmux_poller_close(outer);
        rdmux_poller_close(inner);
        close_pair(ends);
    }
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static void pollers_leave_no_descriptor(void **state)
{
    (void)state;
    const unsigned before = count_descriptors();
    int poller = rdmux_poller_open();
    struct rdmux_ready ready;
    assert_true(poller >= 0);
    assert_int_equal(rdmux_poller_wait(poller, &ready, 1, 1), 0);
    rdmux_poller_close(poller);
    assert_int_equal(count_descriptors(), before);
}

/* ------------------------------------------------------------------------------------- wake-ups */

static void a_wake_up_is_remembered_until_it_is_drained(void **state)
{
    (void)state;
    struct rdmux_wake wake;
    int poller = rdmux_poller_open();
    assert_int_equal(rdmux_wake_open(&wake), 0);
    assert_int_equal(rdmux_poller_add(poller, wake.fd, RDMUX_READY_IN, &wake), 0);
    rdmux_wake_drain(&wake); /* of one without signals it does not block */
    assert_false(is_ready(wake.fd));
    for (unsigned i = 0; i < SIGNALS; i++) {
        rdmux_wake_signal(&wake);
    }
    assert_true(is_ready(wake.fd));
    assert_int_equal(only_event(poller, &wake), RDMUX_READY_IN);
    rdmux_wake_drain(&wake);
    assert_false(is_ready(wake.fd));

    struct sleeper sleeper = { .poller = poller };
    start_sleeper(&sleeper);
    rdmux_wake_signal(&wake);
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    assert_ptr_equal(sleeper.data, &wake);
    rdmux_poller_close(poller);
    rdmux_wake_close(&wake);
}

/* -------------------------------------------------------------------------------------- sockets */

static void expect_own(int socket)
{
    assert_true(socket >= 0);
    assert_int_equal(fcntl(socket, F_GETFD), FD_CLOEXEC);
    assert_true((fcntl(socket, F_GETFL) & O_NONBLOCK) != 0);
}

static void sockets_do_not_block_and_are_closed_on_exec(void **state)
{
    (void)state;
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t length = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = rdmux_socket_open(AF_INET);
    expect_own(listener);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(rdmux_socket_accept(listener, NULL, NULL), -1);
    assert_true(errno == EAGAIN || errno == EWOULDBLOCK);

    int dialled = rdmux_socket_open(AF_INET);
    rdmux_socket_use_all_ports(dialled);
    if (connect(dialled, (struct sockaddr *)&address, length) != 0) {
        assert_int_equal(errno, EINPROGRESS);
    }
    assert_true(is_ready(listener) ||
                rdmux_poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, PATIENT_MS) ==
                    1);
    struct sockaddr_in from = { .sin_family = AF_UNSPEC };
    length = sizeof(from);
    int accepted = rdmux_socket_accept(listener, (struct sockaddr *)&from, &length);
    expect_own(accepted);
    assert_int_equal(from.sin_addr.s_addr, htonl(INADDR_LOOPBACK));

    assert_false(rdmux_socket_has_ended(accepted));
    (void)close(dialled);
    (void)rdmux_poll(&(struct pollfd){ .fd = accepted, .events = POLLIN }, 1, PATIENT_MS);
    assert_true(rdmux_socket_has_ended(accepted));
    (void)close(accepted);
    (void)close(listener);
}

/* --------------------------------------------------------------------------------------- memory */

static bool is_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

static void pages_are_zeroed_and_begin_at_a_page(void **state)
{
    (void)state;
    for (size_t size = 1; size < (size_t)1 << 20; size = 5 * size + 1) {
        unsigned char *pages = rdmux_pages_map(size, RDMUX_PAGES_LAZY | RDMUX_PAGES_HIDDEN);
        assert_non_null(pages);
        assert_int_equal((uintptr_t)pages % (size_t)sysconf(_SC_PAGESIZE), 0);
        assert_true(is_zero(pages, size));
        memset(pages, 0xff, size);
        rdmux_wipe(pages, size);
        assert_true(is_zero(pages, size));
        memset(pages, 0xff, size);
        rdmux_pages_unmap(pages, size);
    }
    assert_null(rdmux_pages_map(SIZE_MAX - 64, 0));
}

static void a_fork_wipes_the_pages_that_ask_for_it(void **state)
{
    (void)state;
    unsigned char *pages[3]; /* the one in the middle is unmapped before */
    unsigned char *kept = rdmux_pages_map(SECRET, 0);
    for (size_t i = 0; i < 3; i++) {
        pages[i] = rdmux_pages_map(SECRET, RDMUX_PAGES_WIPED);
        memset(pages[i], 0xff, SECRET);
    }
    rdmux_pages_unmap(pages[1], SECRET);
    memset(kept, 0xff, SECRET);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(is_zero(pages[0], SECRET) && is_zero(pages[2], SECRET) && kept[0] == 0xff ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(pages[0][0], 0xff);
    assert_int_equal(pages[2][SECRET - 1], 0xff);
    rdmux_pages_unmap(pages[0], SECRET);
    rdmux_pages_unmap(pages[2], SECRET);
    rdmux_pages_unmap(kept, SECRET);
}

/* The child of a fork may open pollers of its own, whatever waits of the parent were under way. */
static void parent_and_child_wait_each_for_itself(void **state)
{
    (void)state;
    struct rdmux_wake wake;
    int poller = rdmux_poller_open();
    assert_int_equal(rdmux_wake_open(&wake), 0);
    assert_int_equal(rdmux_poller_add(poller, wake.fd, RDMUX_READY_IN, &wake), 0);
    struct rdmux_ready ready;
    assert_int_equal(rdmux_poller_wait(poller, &ready, 1, 1), 0);
    struct sleeper sleeper = { .poller = poller };
    start_sleeper(&sleeper);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int own = rdmux_poller_open();
        struct rdmux_wake news;
        bool good = rdmux_wake_open(&news) == 0 && rdmux_poller_wait(own, &ready, 1, 1) == 0 &&
                    rdmux_poller_add(own, news.fd, RDMUX_READY_IN, &own) == 0;
        rdmux_wake_signal(&news);
        good = good && rdmux_poller_wait(own, &ready, 1, PATIENT_MS) == 1;
        rdmux_poller_close(own);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rdmux_wake_signal(&wake);
    assert_int_equal(pthread_join(sleeper.thread, NULL), 0);
    assert_ptr_equal(sleeper.data, &wake);
    rdmux_poller_close(poller);
    rdmux_wake_close(&wake);
}

static void memory_of_a_region_is_zeroed_pages(void **state)
{
    (void)state;
    const size_t size = 3 * (size_t)sysconf(_SC_PAGESIZE);
    int fd = -2;
    unsigned char *shared = rdmux_region_map(size, 0, &fd);
    unsigned char *private = rdmux_region_map(size, 0, NULL);
    assert_non_null(shared);
    assert_non_null(private);
    assert_in_range(fd + 1, 0, 1 << 20); /* a descriptor, or -1 */
    rdmux_region_prefer_huge(shared, size);
    rdmux_region_prefer_node(shared, size, 0);
    assert_true(is_zero(shared, size) && is_zero(private, size));
    memset(shared, 1, size);
    assert_int_equal(rdmux_region_seal(fd, false), fd >= 0 ? 0 : -1);
    rdmux_region_unmap(shared, size);
    rdmux_region_unmap(private, size);
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* -------------------------------------------------------------------------------------- process */

static void random_bytes_fill_the_whole_span(void **state)
{
    (void)state;
    enum { SIZE = 4096 };
    static unsigned char bytes[SIZE + 1];
    static unsigned char other[SIZE];
    assert_int_equal(rdmux_random_bytes(bytes, SIZE), 0);
    assert_int_equal(rdmux_random_bytes(other, SIZE), 0);
    assert_int_equal(bytes[SIZE], 0);
    assert_memory_not_equal(bytes, other, SIZE);
    for (size_t at = 0; at + 16 <= SIZE; at += 16) {
        assert_false(is_zero(bytes + at, 16)); /* one of 2^128 is */
    }
}

static void an_ordinary_process_reads_its_environment(void **state)
{
    (void)state;
    assert_false(rdmux_process_is_secure());
    assert_non_null(rdmux_environment("PATH"));
    assert_null(rdmux_environment("RDMUX_NO_SUCH_VARIABLE"));
    assert_true(rdmux_processors() >= 1);
    assert_string_equal(rdmux_errno_words(ENOENT), "No such file or directory");
}

static const struct CMUnitTest system_contract[] = {
    cmocka_unit_test(a_member_is_reported_with_its_events_and_its_data),
    cmocka_unit_test(a_member_that_reports_once_is_quiet_until_a_change),
    cmocka_unit_test(a_poller_is_ready_while_a_member_on_any_level_is),
    cmocka_unit_test(the_end_of_a_connection_is_told_from_its_bytes),
    cmocka_unit_test(members_that_do_not_fit_get_their_turn),
    cmocka_unit_test(a_descriptor_that_is_closed_reports_nothing),
    cmocka_unit_test(pollers_and_descriptors_are_awaited_together),
    cmocka_unit_test(a_change_counts_for_waits_under_way),
    cmocka_unit_test(pollers_leave_no_descriptor),
    cmocka_unit_test(a_wake_up_is_remembered_until_it_is_drained),
    cmocka_unit_test(sockets_do_not_block_and_are_closed_on_exec),
    cmocka_unit_test(pages_are_zeroed_and_begin_at_a_page),
    cmocka_unit_test(a_fork_wipes_the_pages_that_ask_for_it),
    cmocka_unit_test(parent_and_child_wait_each_for_itself),
    cmocka_unit_test(memory_of_a_region_is_zeroed_pages),
    cmocka_unit_test(random_bytes_fill_the_whole_span),
    cmocka_unit_test(an_ordinary_process_reads_its_environment),
};

#endif
