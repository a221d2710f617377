/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a set-up costs: the system calls of both sides, and the sockets that it leaves. */
#include "tests/unit/api_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SET_UPS = 8,
    /* Of both sides of a set-up over tcp; waiting is not counted. */
    CALLS_MAX = 175,
    SOCKETS_MAX = 64,
    MANUAL = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD,
};

/* ---------------------------------------------------------------------------------- the counters */

#define CALLS(CALL)                                                                                 \
    CALL(ssize_t, recv, (int fd, void *out, size_t size, int flags), (fd, out, size, flags))        \
    CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))       \
    CALL(ssize_t, send, (int fd, const void *in, size_t size, int flags), (fd, in, size, flags))    \
    CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags)) \
    CALL(ssize_t, read, (int fd, void *out, size_t size), (fd, out, size))                          \
    CALL(ssize_t, write, (int fd, const void *in, size_t size), (fd, in, size))                     \
    CALL(int, connect, (int fd, const struct sockaddr *address, socklen_t size),                    \
         (fd, address, size))                                                                       \
    CALL(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t size),         \
         (fd, level, name, value, size))                                                            \
    CALL(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *size),              \
         (fd, level, name, value, size))                                                            \
    CALL(int, getsockname, (int fd, struct sockaddr *address, socklen_t *size),                     \
         (fd, address, size))                                                                       \
    CALL(int, getpeername, (int fd, struct sockaddr *address, socklen_t *size),                     \
         (fd, address, size))                                                                       \
    CALL(int, epoll_ctl, (int set, int operation, int fd, struct epoll_event *event),               \
         (set, operation, fd, event))                                                               \
    CALL(int, fcntl, (int fd, int command, long argument), (fd, command, argument))                 \
    CALL(int, close, (int fd), (fd))                                                                \
    CALL(int, getrlimit, (int resource, struct rlimit *limit), (resource, limit))                   \
    CALL(ssize_t, getrandom, (void *out, size_t size, unsigned flags), (out, size, flags))          \
    CALL(void *, mmap, (void *at, size_t size, int rights, int flags, int fd, off_t offset),        \
         (at, size, rights, flags, fd, offset))                                                     \
    CALL(int, munmap, (void *at, size_t size), (at, size))                                          \
    CALL(int, memfd_create, (const char *name, unsigned flags), (name, flags))                      \
    CALL(int, ftruncate, (int fd, off_t size), (fd, size))

enum call {
#define NUMBER(result, name, parameters, arguments) CALL_##name,
    CALLS(NUMBER)
#undef NUMBER
        CALL_KINDS,
};

static const char *const names[] = {
#define NAME(result, name, parameters, arguments) [CALL_##name] = #name,
    CALLS(NAME)
#undef NAME
};

static uint32_t counts[CALL_KINDS];

/* A call that would wait is not counted: how often this side looks is no cost of the set-up. */
#define WRAP(result, name, parameters, arguments)                                   \
    result __real_##name parameters;                                                \
    result __wrap_##name parameters;                                                \
    result __wrap_##name parameters                                                 \
    {                                                                               \
        result returned = __real_##name arguments;                                  \
        counts[CALL_##name] += returned != (result)-1 || errno != EAGAIN ? 1U : 0U; \
        return returned;                                                            \
    }
CALLS(WRAP)

/* The sockets of a set-up, dialled and accepted. */
static int sockets[SOCKETS_MAX];
static size_t socket_count;

static int keep_socket(int fd)
{
    if (fd >= 0) {
        assert_true(socket_count < SOCKETS_MAX);
        sockets[socket_count++] = fd;
    }
    return fd;
}

int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol)
{
    return keep_socket(__real_socket(family, type, protocol));
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    return keep_socket(__real_accept4(fd, address, size, flags));
}

static void count_anew(void)
{
    memset(counts, 0, sizeof(counts));
    socket_count = 0;
}

/* --------------------------------------------------------------------------------------- set-ups */

/* A process that connects to itself, without threads: the calls are the same each time. */
struct scene {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_ep *eps[2 * (SET_UPS + 1)];
    size_t count;
};

static void set_scene(struct scene *scene, const char *paths)
{
    memset(scene, 0, sizeof(*scene));
    scene->fabric = open_fabric(paths, MANUAL, NULL);
    scene->cq = create_cq(scene->fabric);
    scene->listener = listen_here(scene->fabric, NULL, scene->address);
}

static void set_up_over(struct scene *scene, const char *paths, uint32_t probe)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep **eps = &scene->eps[scene->count];
    attr.paths = paths;
    attr.probe = probe;
    assert_true(scene->count + 2 <= RDMUX_COUNT_OF(scene->eps));
    CHECK_STATUS(rdmux_connect(scene->fabric, scene->cq, scene->address, &attr, 0, &eps[0]),
                 RDMUX_IN_PROGRESS);
    scene->count++;
    CHECK_OK(rdmux_accept(scene->listener, scene->cq, &attr, PATIENT_MS, &eps[1]));
    scene->count++;
    expect_entry(scene->cq, RDMUX_WC_CONNECTED, RDMUX_OK);
}

static void set_up(struct scene *scene)
{
    set_up_over(scene, NULL, 0);
}

static void clear_scene(struct scene *scene)
{
    for (size_t i = 0; i < scene->count; i++) {
        CHECK_OK(rdmux_ep_close(scene->eps[i]));
    }
    rdmux_listener_close(scene->listener);
    CHECK_OK(rdmux_cq_destroy(scene->cq));
    CHECK_OK(rdmux_fabric_close(scene->fabric));
}

static void a_set_up_over_tcp_takes_few_system_calls(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp");
    set_up(&scene); /* opens the provider */
    count_anew();

    for (int i = 0; i < SET_UPS; i++) {
        set_up(&scene);
    }

    uint32_t total = (uint32_t)socket_count;
    for (size_t i = 0; i < CALL_KINDS; i++) {
        total += counts[i];
        print_message("%s: %.2f\n", names[i], (double)counts[i] / SET_UPS);
    }
    print_message("all: %.2f\n", (double)total / SET_UPS);
    assert_true(total <= CALLS_MAX * SET_UPS);
    clear_scene(&scene);
}

static int option_of(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof(value);
    assert_int_equal(getsockopt(fd, level, name, &value, &size), 0);
    return value;
}

static void no_socket_of_a_set_up_waits_or_is_inherited(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp");
    count_anew();

    set_up(&scene);

    assert_int_equal(socket_count, 4); /* two connections, both ends */
    for (size_t i = 0; i < socket_count; i++) {
        assert_int_equal(option_of(sockets[i], IPPROTO_TCP, TCP_NODELAY), 1);
        assert_int_equal(fcntl(sockets[i], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
        assert_int_equal(fcntl(sockets[i], F_GETFD), FD_CLOEXEC);
    }
    clear_scene(&scene);
}

/* ---------------------------------------------------------------------------- the proof's memory */

static void a_proof_takes_memory_that_peers_may_map_for_shm_alone(void **state)
{
    (void)state;
    struct scene tcp;
    struct scene shm;
    set_scene(&tcp, "tcp");
    set_scene(&shm, "shm");
    set_up(&shm); /* the memory that all endpoints to one process share */

    count_anew();
    set_up(&tcp);
    assert_int_equal(counts[CALL_memfd_create], 0);
    count_anew();
    set_up(&shm);
    assert_true(counts[CALL_memfd_create] >= 2);

    clear_scene(&tcp);
    clear_scene(&shm);
}

/* The probe proves each path in turn, with one buffer where that is possible. A second probe would prove
 * the path alone that the first one found faster. */
static void the_proof_of_shm_after_one_of_tcp_has_memory_that_peers_may_map(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, "tcp,shm");
    set_up_over(&scene, "shm", 0); /* the memory that all endpoints to one process share */
    count_anew();

    set_up_over(&scene, NULL, 1);

    assert_true(counts[CALL_memfd_create] >= 2);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_up_over_tcp_takes_few_system_calls),
        cmocka_unit_test(no_socket_of_a_set_up_waits_or_is_inherited),
        cmocka_unit_test(a_proof_takes_memory_that_peers_may_map_for_shm_alone),
        cmocka_unit_test(the_proof_of_shm_after_one_of_tcp_has_memory_that_peers_may_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
