/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A server whose process may have few descriptors, and clients that use up as many as they get. */
#include "api/accept/listener.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "tests/unit/api_pair.h"
#include "tests/unit/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

enum { TIGHT = 256, WIDE = 1024, SILENT = 400, FEW_SILENT = 90, GOOD = 3 };

static void limit_descriptors(rlim_t room)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = room;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* ----------------------------------------------------------------------------------- the server */

enum command {
    LOWER = 'l',  /* the process may have TIGHT from now on */
    USE_UP = 'u', /* the program takes all free descriptors once it has FEW_SILENT connections */
};

static void use_up(size_t before)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (open_descriptors() < before + FEW_SILENT) {
        assert_true(now_ms() < until);
        pause_ms(1);
    }
    while (fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0) >= 0) {
    }
    assert_int_equal(errno, EMFILE);
}

/* Accepts and greets all clients, and carries out commands until the last one. */
static void serve(const char *paths, rlim_t room, int report, int commands)
{
    char address[RDMUX_ADDRESS_MAX] = "";
    limit_descriptors(room);
    struct rdmux_fabric *fabric = open_fabric(paths, 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    size_t before = open_descriptors();
    assert_int_equal(write(report, address, sizeof(address)), sizeof(address));
    for (;;) {
        struct pollfd look = { .fd = commands, .events = POLLIN };
        char command = 0;
        if (poll(&look, 1, 0) > 0) {
            if (read(commands, &command, 1) != 1) {
                return;
            }
            if (command == LOWER) {
                limit_descriptors(TIGHT);
            } else {
                use_up(before);
            }
            assert_int_equal(write(report, &command, 1), 1);
        }
        struct rdmux_ep *ep = NULL;
        if (rdmux_accept(listener, cq, NULL, 10, &ep) == RDMUX_OK) {
            CHECK_OK(rdmux_send(ep, "hello", 6, NULL, NULL, RDMUX_INLINE));
        }
        struct rdmux_wc wc;
        while (rdmux_cq_poll(cq, &wc, 1) == 1) {
            if (wc.opcode == RDMUX_WC_DISCONNECTED) {
                CHECK_OK(rdmux_ep_close(wc.ep));
            }
        }
    }
}

struct server {
    pid_t pid;
    int commands;
    int report;
    char address[RDMUX_ADDRESS_MAX];
};

static void start_server(struct server *server, const char *paths, rlim_t room)
{
    int commands[2];
    int report[2];
    assert_int_equal(pipe2(commands, O_CLOEXEC), 0);
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        close(commands[1]);
        close(report[0]);
        serve(paths, room, report[1], commands[0]);
        _exit(0);
    }
    close(commands[0]);
    close(report[1]);
    server->commands = commands[1];
    server->report = report[0];
    assert_int_equal(read(server->report, server->address, sizeof(server->address)),
                     sizeof(server->address));
}

static void tell_server(const struct server *server, enum command command)
{
    char what = (char)command;
    assert_int_equal(write(server->commands, &what, 1), 1);
    assert_int_equal(read(server->report, &what, 1), 1);
}

static void stop_server(const struct server *server)
{
    int status = 1;
    close(server->commands);
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    close(server->report);
    assert_int_equal(status, 0);
}

/* ---------------------------------------------------------------------------------------- cases */

static const struct {
    const char *paths;
    const char *provider;
} good_paths[] = {
    { "tcp", "tcp" },
    { "shm", "shm" },
    { "auto", "shm" },
};

/* Good peers connect and stay, and each gets the path that it would get without the others. */
static void check_good_ones(const struct server *server, const char *paths, const char *provider)
{
    struct rdmux_fabric *fabric = open_fabric(paths, 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    struct rdmux_ep *eps[GOOD];
    char words[GOOD][6];
    for (size_t i = 0; i < GOOD; i++) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_connect(fabric, cq, server->address, NULL, PATIENT_MS, &eps[i]));
        CHECK_OK(rdmux_ep_info(eps[i], &info));
        assert_string_equal(info.provider, provider);
        CHECK_OK(rdmux_recv(eps[i], words[i], sizeof(words[i]), NULL, NULL));
        expect_entry(cq, RDMUX_WC_RECV, RDMUX_OK);
        assert_string_equal(words[i], "hello");
    }
    for (size_t i = 0; i < GOOD; i++) {
        CHECK_OK(rdmux_ep_close(eps[i]));
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void come_silently(const struct server *server, int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fds[i] = dial_raw(server->address);
    }
}

static void leave(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
}

static void check_under(rlim_t room, size_t silent, int command)
{
    static int fds[SILENT];
    for (size_t i = 0; i < RDMUX_COUNT_OF(good_paths); i++) {
        struct server server;
        start_server(&server, good_paths[i].paths, room);
        come_silently(&server, fds, silent);
        if (command != 0) {
            tell_server(&server, (enum command)command);
        }

        check_good_ones(&server, good_paths[i].paths, good_paths[i].provider);

        leave(fds, silent);
        stop_server(&server);
    }
}

static void silent_connections_leave_descriptors_for_good_ones(void **state)
{
    (void)state;
    check_under(TIGHT, SILENT, 0);
}

static void a_limit_lowered_later_keeps_out_no_good_connection(void **state)
{
    (void)state;
    check_under(WIDE, SILENT, LOWER);
}

/* The program itself takes all descriptors that pending connections do not hold: these are evicted
 * when a set-up needs one. */
static void a_set_up_without_descriptors_gets_those_of_strangers(void **state)
{
    (void)state;
    check_under(TIGHT, FEW_SILENT, USE_UP);
}

/* A listener never keeps more connections at a time than the process has descriptors for. */
static void a_listeners_limits_follow_the_descriptor_limit_of_the_process(void **state)
{
    (void)state;
    struct rlimit before;
    struct rdmux_listen_attr asked = RDMUX_LISTEN_ATTR_INIT;
    char address[RDMUX_ADDRESS_MAX];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rdmux_fabric *fabric = open_fabric("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    limit_descriptors(TIGHT);
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    assert_int_equal(listener->max_pending, TIGHT - TIGHT / RDMUX_RESERVE_SHARE);
    assert_true(listener->max_per_address <= listener->max_pending / 2);
    assert_true(listener->max_waiting_per_address <= listener->max_pending / 2);
    assert_int_equal(rdmux_listener_max_setups(listener),
                     TIGHT / RDMUX_RESERVE_SHARE / RDMUX_SETUP_DESCRIPTORS);

    limit_descriptors(WIDE);
    int fd = dial_raw(address);
    CHECK_OK(rdmux_fabric_progress(fabric));

    assert_int_equal(listener->max_pending, WIDE - WIDE / RDMUX_RESERVE_SHARE);
    close(fd);
    rdmux_listener_close(listener);
    asked.max_pending = 10;
    asked.max_setups = 3;
    listener = listen_here(fabric, &asked, address);
    assert_int_equal(listener->max_pending, 10);
    assert_int_equal(rdmux_listener_max_setups(listener), 3);
    rdmux_listener_close(listener);
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* Another process dials `count` times, reports it, and stays until `stays` closes. */
static pid_t dial_from_elsewhere(const char *address, size_t count, int *dialled, int *stays)
{
    int report[2];
    int commands[2];
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    assert_int_equal(pipe2(commands, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte = 0;
        close(commands[1]);
        limit_descriptors(WIDE);
        for (size_t i = 0; i < count; i++) {
            (void)dial_raw(address);
        }
        _exit(write(report[1], &byte, 1) == 1 && read(commands[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(report[1]);
    close(commands[0]);
    *dialled = report[0];
    *stays = commands[1];
    return pid;
}

/* The program has a hundred descriptors of its own, so that fewer than max_pending are left. */
static void strangers_get_no_descriptor_of_the_reserve(void **state)
{
    (void)state;
    enum { OWN = 100, FIRST_RESERVED = TIGHT - TIGHT / RDMUX_RESERVE_SHARE };
    struct rlimit before;
    char address[RDMUX_ADDRESS_MAX];
    char byte;
    int own[OWN];
    int dialled;
    int stays;
    int status = 1;
    bool inherited[TIGHT];
    for (int fd = 0; fd < TIGHT; fd++) {
        inherited[fd] = fcntl(fd, F_GETFD) >= 0; /* a shell has a high one */
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rdmux_fabric *fabric = open_fabric("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    limit_descriptors(TIGHT);
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    pid_t pid = dial_from_elsewhere(address, TIGHT, &dialled, &stays);
    for (size_t i = 0; i < OWN; i++) {
        own[i] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    }
    assert_int_equal(read(dialled, &byte, 1), 1);

    uint64_t until = now_ms() + PATIENT_MS;
    for (struct pollfd look = { .fd = listener->socket, .events = POLLIN };
         poll(&look, 1, 0) == 1;) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(fabric));
        for (int fd = FIRST_RESERVED; fd < TIGHT; fd++) {
            assert_int_equal(fcntl(fd, F_GETFD) >= 0, inherited[fd]);
        }
    }

    assert_true(listener->count > (FIRST_RESERVED - OWN) / 2); /* else there was no flood */
    assert_true(open_descriptors() > FIRST_RESERVED / 2);
    for (size_t i = 0; i < OWN; i++) {
        close(own[i]);
    }
    close(stays);
    close(dialled);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    rdmux_listener_close(listener);
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* A connection that stays in the backlog keeps waking the service thread. */
static void a_listener_without_descriptors_drops_a_new_connection_and_logs_it(void **state)
{
    (void)state;
    struct rlimit before;
    struct logbook book = LOGBOOK_INIT;
    char address[RDMUX_ADDRESS_MAX];
    char byte;
    int own[TIGHT];
    size_t count = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rdmux_fabric *fabric = open_fabric("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, &book);
    limit_descriptors(TIGHT);
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    int fd = dial_raw(address);
    while (count < TIGHT && (own[count] = fcntl(fd, F_DUPFD_CLOEXEC, 0)) >= 0) {
        count++;
    }
    assert_int_equal(errno, EMFILE);
    struct pollfd newcomer = { .fd = listener->socket, .events = POLLIN };
    assert_int_equal(poll(&newcomer, 1, PATIENT_MS), 1);

    CHECK_OK(rdmux_fabric_progress(fabric));

    assert_int_equal(logbook_count(&book, "a connection was turned away"), 1);
    assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
    while (count > 0) {
        close(own[--count]);
    }
    close(fd);
    rdmux_listener_close(listener);
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_connections_leave_descriptors_for_good_ones),
        cmocka_unit_test(a_limit_lowered_later_keeps_out_no_good_connection),
        cmocka_unit_test(a_set_up_without_descriptors_gets_those_of_strangers),
        cmocka_unit_test(a_listeners_limits_follow_the_descriptor_limit_of_the_process),
        cmocka_unit_test(strangers_get_no_descriptor_of_the_reserve),
        cmocka_unit_test(a_listener_without_descriptors_drops_a_new_connection_and_logs_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
