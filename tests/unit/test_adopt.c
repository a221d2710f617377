/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sockets of the program: adopted in both roles, given back untouched if there is no path,
 * otherwise closed. */
#include "tests/unit/api_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <pthread.h>

static const char *const all_paths[] = { "tcp", "shm", NULL };

enum kind {
    KIND_LOCAL, /* socketpair */
    KIND_TCP,
    KIND_COUNT,
};

/* Two connected sockets. */
static void make_sockets(enum kind kind, int ends[2])
{
    if (kind == KIND_LOCAL) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        return;
    }
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(ends[0], (struct sockaddr *)&address, length), 0);
    ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(ends[1] >= 0);
    close(listener);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* The state of a socket that a program can see. */
struct looks {
    int status_flags;
    int descriptor_flags;
    int no_delay;
    int type_of_service;
    int keep_alive;
    int send_buffer;
    int receive_buffer;
    int receive_low;
};

static int option_of(int fd, int level, int option)
{
    int value = -1;
    socklen_t length = sizeof(value);
    return getsockopt(fd, level, option, &value, &length) == 0 ? value : -1;
}

static struct looks looks_of(int fd)
{
    return (struct looks){
        .status_flags = fcntl(fd, F_GETFL),
        .descriptor_flags = fcntl(fd, F_GETFD),
        .no_delay = option_of(fd, IPPROTO_TCP, TCP_NODELAY),
        .type_of_service = option_of(fd, IPPROTO_IP, IP_TOS),
        .keep_alive = option_of(fd, SOL_SOCKET, SO_KEEPALIVE),
        .send_buffer = option_of(fd, SOL_SOCKET, SO_SNDBUF),
        .receive_buffer = option_of(fd, SOL_SOCKET, SO_RCVBUF),
        .receive_low = option_of(fd, SOL_SOCKET, SO_RCVLOWAT),
    };
}

static void check_looks(int fd, const struct looks *before)
{
    struct looks now = looks_of(fd);
    assert_int_equal(now.status_flags, before->status_flags);
    assert_int_equal(now.descriptor_flags, before->descriptor_flags);
    assert_int_equal(now.no_delay, before->no_delay);
    assert_int_equal(now.type_of_service, before->type_of_service);
    assert_int_equal(now.keep_alive, before->keep_alive);
    assert_int_equal(now.receive_low, before->receive_low);
}

/* Adopts in a thread of its own, and waits. */
struct adopter {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    int socket;
    enum rdmux_role role;
    const struct rdmux_ep_attr *attr;
    int timeout_ms;
    enum rdmux_status status;
    struct rdmux_ep *ep;
    char text[RDMUX_ERROR_MAX];
};

static void *adopt(void *argument)
{
    struct adopter *adopter = argument;
    adopter->status = rdmux_adopt(adopter->fabric, adopter->cq, adopter->socket, adopter->role,
                                  adopter->attr, adopter->timeout_ms, &adopter->ep);
    (void)snprintf(adopter->text, sizeof(adopter->text), "%s", rdmux_last_error());
    return NULL;
}

/* Both ends of a pair of sockets, adopted by two fabrics at the same time. */
struct scene {
    struct rdmux_fabric *fabrics[2];
    struct rdmux_cq *cqs[2];
    struct adopter sides[2]; /* 0 connects */
};

static void set_scene_with(struct scene *scene, enum kind kind, const char *paths_a,
                           const char *paths_b, uint32_t flags)
{
    int ends[2];
    memset(scene, 0, sizeof(*scene));
    make_sockets(kind, ends);
    for (int i = 0; i < 2; i++) {
        scene->fabrics[i] = open_fabric(i == 0 ? paths_a : paths_b, flags, NULL);
        scene->cqs[i] = create_cq(scene->fabrics[i]);
        scene->sides[i] = (struct adopter){
            .fabric = scene->fabrics[i],
            .cq = scene->cqs[i],
            .socket = ends[i],
            .role = i == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT,
            .timeout_ms = PATIENT_MS,
        };
    }
}

static void set_scene(struct scene *scene, enum kind kind, const char *paths_a, const char *paths_b)
{
    set_scene_with(scene, kind, paths_a, paths_b, 0);
}

static void adopt_both(struct scene *scene)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, adopt, &scene->sides[1]), 0);
    (void)adopt(&scene->sides[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void clear_scene(struct scene *scene)
{
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rdmux_ep_close(scene->sides[i].ep));
        CHECK_OK(rdmux_cq_destroy(scene->cqs[i]));
        CHECK_OK(rdmux_fabric_close(scene->fabrics[i]));
    }
}

static void check_both_ways(struct scene *scene)
{
    check_message(scene->sides[0].ep, scene->cqs[0], scene->sides[1].ep, scene->cqs[1], 17);
    check_message(scene->sides[1].ep, scene->cqs[1], scene->sides[0].ep, scene->cqs[0], 18);
}

/* ------------------------------------------------------------------------------------ connected */

static void adopted_sockets_of_every_kind_connect_on_every_path(void **state)
{
    (void)state;
    for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
        for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
            struct scene scene;
            set_scene(&scene, (enum kind)kind, all_paths[i], all_paths[i]);
            fcntl(scene.sides[1].socket, F_SETFL, O_NONBLOCK); /* one of each */

            adopt_both(&scene);

            for (int k = 0; k < 2; k++) {
                struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
                if (scene.sides[k].status != RDMUX_OK) {
                    fail_msg("kind %d, side %d: %s", kind, k, scene.sides[k].text);
                }
                CHECK_OK(rdmux_ep_info(scene.sides[k].ep, &info));
                assert_string_equal(info.provider, all_paths[i] == NULL ? "shm" : all_paths[i]);
            }
            check_both_ways(&scene);
            clear_scene(&scene);
            assert_false(is_open(scene.sides[0].socket));
            assert_false(is_open(scene.sides[1].socket));
        }
    }
}

/* A revoke waits 100 ms for the importer, which a busy machine may exceed. */
static void wait_for_revoke(struct rdmux_remote *remote)
{
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    for (uint64_t until = now_ms() + PATIENT_MS; info.status != RDMUX_DENIED;) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_remote_info(remote, &info));
    }
}

static void an_adopted_endpoint_supports_every_operation(void **state)
{
    (void)state;
    enum { LENGTH = 3 << 20, ROUNDS = 6 };
    for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
        struct scene scene;
        struct rdmux_mr *mr = NULL;
        unsigned char *bytes = malloc(LENGTH);
        unsigned char *back = malloc(LENGTH);
        uint64_t before = 0;
        assert_non_null(bytes);
        assert_non_null(back);
        set_scene(&scene, (enum kind)kind, "tcp",
                  "tcp"); /* data and control frames share the socket */
        adopt_both(&scene);
        assert_int_equal(scene.sides[0].status, RDMUX_OK);
        struct rdmux_ep *a = scene.sides[0].ep;
        CHECK_OK(rdmux_mr_alloc(scene.fabrics[1], LENGTH,
                                RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                    RDMUX_ACCESS_REMOTE_ATOMIC,
                                &mr));
        for (unsigned round = 0; round < ROUNDS; round++) {
            memset(bytes, (int)round + 1, LENGTH);
            struct rdmux_remote *remote = import_region(a, mr);
            struct rdmux_token token;
            struct rdmux_remote *other = NULL;
            CHECK_OK(rdmux_mr_export(mr, &token));
            CHECK_OK(rdmux_write(a, bytes, LENGTH, NULL, remote, 0, CONTEXT(1), RDMUX_PLACED));
            CHECK_STATUS(rdmux_remote_import(a, &token, 0, &other),
                         RDMUX_IN_PROGRESS); /* a control frame after much data */
            CHECK_OK(rdmux_read(a, back, LENGTH, NULL, remote, 0, CONTEXT(2), 0));
            CHECK_OK(rdmux_fetch_add(a, &before, NULL, remote, 0, 1, CONTEXT(3), RDMUX_FENCE));
            bool ready = false;
            for (uintptr_t next = 1; next <= 3 || !ready;) {
                struct rdmux_wc wc = next_entry(scene.cqs[0]);
                assert_int_equal(wc.status, RDMUX_OK);
                if (wc.opcode == RDMUX_WC_REMOTE_READY) {
                    assert_ptr_equal(wc.context, other);
                    ready = true;
                } else {
                    assert_ptr_equal(wc.context, CONTEXT(next));
                    next++;
                }
            }
            assert_memory_equal(back, bytes, LENGTH);
            assert_memory_equal(&before, bytes, sizeof(before));
            rdmux_mr_revoke(mr);
            wait_for_revoke(remote);
            CHECK_STATUS(rdmux_write(a, bytes, 8, NULL, remote, 0, NULL, 0), RDMUX_DENIED);
            rdmux_remote_close(remote);
            rdmux_remote_close(other);
        }
        CHECK_OK(rdmux_ep_shutdown(a, PATIENT_MS));
        expect_entry(scene.cqs[1], RDMUX_WC_DISCONNECTED, RDMUX_OK);
        rdmux_mr_deregister(mr);
        free(bytes);
        free(back);
        clear_scene(&scene);
    }
}

static void an_adopted_endpoint_ends_with_its_peer(void **state)
{
    (void)state;
    for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
        for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
            struct scene scene;
            set_scene(&scene, (enum kind)kind, all_paths[i], all_paths[i]);
            adopt_both(&scene);
            assert_int_equal(scene.sides[0].status, RDMUX_OK);

            CHECK_OK(rdmux_ep_close(scene.sides[0].ep));

            scene.sides[0].ep = NULL;
            expect_entry(scene.cqs[1], RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
            clear_scene(&scene);
        }
    }
}

/* On a socket that carries data and control, the peer's last frame and the end of the stream arrive
 * together if no poll comes between them. */
static void a_shutdown_is_orderly_although_the_peer_closes_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        set_scene_with(&scene, KIND_LOCAL, all_paths[i], all_paths[i],
                       RDMUX_FABRIC_NO_SERVICE_THREAD);
        adopt_both(&scene);
        CHECK_OK(scene.sides[0].status);
        CHECK_STATUS(rdmux_ep_shutdown(scene.sides[0].ep, 0), RDMUX_IN_PROGRESS);
        struct rdmux_wc wc;
        uint64_t until = now_ms() + PATIENT_MS;
        do {
            assert_true(now_ms() < until);
            CHECK_OK(rdmux_fabric_progress(scene.fabrics[0]));
            assert_int_equal(rdmux_cq_poll(scene.cqs[0], NULL, 0), 0);
            CHECK_OK(rdmux_fabric_progress(scene.fabrics[1]));
        } while (rdmux_cq_poll(scene.cqs[1], &wc, 1) == 0);
        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        assert_int_equal(wc.status, RDMUX_OK);
        CHECK_OK(rdmux_ep_close(scene.sides[1].ep));
        scene.sides[1].ep = NULL;

        expect_entry(scene.cqs[0], RDMUX_WC_DISCONNECTED, RDMUX_OK);

        clear_scene(&scene);
    }
}

static void an_adoption_may_complete_in_the_background(void **state)
{
    (void)state;
    for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
        struct scene scene;
        set_scene(&scene, (enum kind)kind, NULL, NULL);
        for (int i = 0; i < 2; i++) {
            struct adopter *side = &scene.sides[i];
            CHECK_STATUS(
                rdmux_adopt(side->fabric, side->cq, side->socket, side->role, NULL, 0, &side->ep),
                RDMUX_IN_PROGRESS);
        }

        expect_entry(scene.cqs[0], RDMUX_WC_CONNECTED, RDMUX_OK);
        expect_entry(scene.cqs[1], RDMUX_WC_CONNECTED, RDMUX_OK);

        check_both_ways(&scene);
        clear_scene(&scene);
    }
}

static void a_server_may_peek_at_the_first_bytes_before_it_adopts(void **state)
{
    (void)state;
    static const char hello[8] = { 'R', 'D', 'M', 'U', 'X', 0x01, 0x0d, 0x0a };
    for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
        struct scene scene;
        char first[8];
        set_scene(&scene, (enum kind)kind, NULL, NULL);
        struct adopter *side = &scene.sides[0];
        CHECK_STATUS(
            rdmux_adopt(side->fabric, side->cq, side->socket, side->role, NULL, 0, &side->ep),
            RDMUX_IN_PROGRESS);

        ssize_t got = recv(scene.sides[1].socket, first, sizeof(first), MSG_PEEK | MSG_WAITALL);

        assert_int_equal(got, sizeof(first));
        assert_memory_equal(first, hello, sizeof(hello));
        (void)adopt(&scene.sides[1]);
        assert_int_equal(scene.sides[1].status, RDMUX_OK);
        expect_entry(scene.cqs[0], RDMUX_WC_CONNECTED, RDMUX_OK);
        check_both_ways(&scene);
        clear_scene(&scene);
    }
}

/* ----------------------------------------------------------------------------------- given back */

static void both_sides_get_their_sockets_back_unchanged_when_no_path_exists(void **state)
{
    (void)state;
    for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
        for (int variant = 0; variant <= 1; variant++) {
            struct scene scene;
            struct looks before[2];
            set_scene(&scene, (enum kind)kind, "tcp", "shm");
            for (int i = 0; i < 2; i++) {
                int on = variant == i;
                int flags = fcntl(scene.sides[i].socket, F_GETFL);
                fcntl(scene.sides[i].socket, F_SETFL, on ? flags | O_NONBLOCK : flags);
                fcntl(scene.sides[i].socket, F_SETFD, on ? FD_CLOEXEC : 0);
                if (kind == KIND_TCP) {
                    setsockopt(scene.sides[i].socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
                }
                before[i] = looks_of(scene.sides[i].socket);
            }

            adopt_both(&scene);

            for (int i = 0; i < 2; i++) {
                assert_int_equal(scene.sides[i].status, RDMUX_NO_PATH);
                assert_null(scene.sides[i].ep);
                assert_non_null(strstr(scene.sides[i].text, i == 0 ? "tcp" : "shm"));
                check_looks(scene.sides[i].socket, &before[i]);
                char byte;
                assert_int_equal(recv(scene.sides[i].socket, &byte, 1, MSG_DONTWAIT),
                                 -1); /* no byte of rdmux is left in it */
                assert_int_equal(errno, EAGAIN);
            }
            int first = scene.sides[0].socket;
            int second = scene.sides[1].socket;
            clear_scene(&scene); /* the fabrics may go, the sockets stay */
            char text[6] = "";
            assert_int_equal(send(first, "plain", 6, MSG_NOSIGNAL), 6);
            struct pollfd look = { .fd = second, .events = POLLIN };
            assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
            assert_int_equal(recv(second, text, sizeof(text), 0), 6);
            assert_string_equal(text, "plain");
            close(first);
            close(second);
        }
    }
}

/* Adopts, and if there is no path, speaks the program's own protocol at once. */
static void *adopt_and_speak(void *argument)
{
    struct adopter *adopter = argument;
    (void)adopt(adopter);
    if (adopter->status == RDMUX_NO_PATH && send(adopter->socket, "mine", 5, MSG_NOSIGNAL) != 5) {
        adopter->status = RDMUX_IO;
    }
    return NULL;
}

static void bytes_that_the_peer_sends_after_no_path_stay_in_the_socket(void **state)
{
    (void)state;
    for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
        for (int connector_first = 0; connector_first <= 1; connector_first++) {
            struct scene scene;
            pthread_t threads[2];
            set_scene(&scene, (enum kind)kind, "tcp", "shm");
            for (int i = 0; i < 2; i++) {
                struct adopter *side = &scene.sides[connector_first ? i : 1 - i];
                assert_int_equal(pthread_create(&threads[i], NULL, adopt_and_speak, side), 0);
            }

            for (int i = 0; i < 2; i++) {
                assert_int_equal(pthread_join(threads[i], NULL), 0);
            }

            for (int i = 0; i < 2; i++) {
                char text[6] = "";
                assert_int_equal(scene.sides[i].status, RDMUX_NO_PATH);
                struct pollfd look = { .fd = scene.sides[i].socket, .events = POLLIN };
                assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
                assert_int_equal(recv(scene.sides[i].socket, text, sizeof(text), 0), 5);
                assert_string_equal(text, "mine");
            }
            close(scene.sides[0].socket);
            close(scene.sides[1].socket);
            clear_scene(&scene);
        }
    }
}

static void no_path_reported_as_an_event_gives_the_socket_back(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, KIND_TCP, "tcp", "shm");
    struct looks before[2] = { looks_of(scene.sides[0].socket), looks_of(scene.sides[1].socket) };
    for (int i = 0; i < 2; i++) {
        struct adopter *side = &scene.sides[i];
        CHECK_STATUS(
            rdmux_adopt(side->fabric, side->cq, side->socket, side->role, NULL, 0, &side->ep),
            RDMUX_IN_PROGRESS);
    }

    expect_entry(scene.cqs[0], RDMUX_WC_CONNECTED, RDMUX_NO_PATH);
    expect_entry(scene.cqs[1], RDMUX_WC_CONNECTED, RDMUX_NO_PATH);

    for (int i = 0; i < 2; i++) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        check_looks(scene.sides[i].socket, &before[i]);
        CHECK_OK(rdmux_ep_info(scene.sides[i].ep, &info));
        assert_int_equal(info.status, RDMUX_NO_PATH);
        close(scene.sides[i].socket);
    }
    clear_scene(&scene);
}

/* ------------------------------------------------------------------------------ refused, closed */

static void a_refused_adoption_leaves_the_socket_alone(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric(NULL, 0, NULL);
    struct rdmux_fabric *other = open_fabric(NULL, 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    struct rdmux_ep *ep = NULL;
    int stream[2];
    int datagram[2];
    int ends[2];
    make_sockets(KIND_LOCAL, stream);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, datagram), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int lonely = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(listen(listening, 1), 0);
    struct rdmux_ep_attr bad = RDMUX_EP_ATTR_INIT;
    bad.send_depth = UINT32_MAX;
    const struct {
        struct rdmux_fabric *fabric;
        struct rdmux_cq *cq;
        int socket;
        enum rdmux_role role;
        const struct rdmux_ep_attr *attr;
        int timeout_ms;
        struct rdmux_ep **out;
        const char *text;
    } cases[] = {
        { NULL, cq, stream[0], RDMUX_ROLE_CONNECT, NULL, 100, &ep, "fabric" },
        { fabric, NULL, stream[0], RDMUX_ROLE_CONNECT, NULL, 100, &ep, "cq" },
        { other, cq, stream[0], RDMUX_ROLE_CONNECT, NULL, 100, &ep, "cq" },
        { fabric, cq, stream[0], (enum rdmux_role)0, NULL, 100, &ep, "role" },
        { fabric, cq, stream[0], (enum rdmux_role)3, NULL, 100, &ep, "role" },
        { fabric, cq, stream[0], RDMUX_ROLE_CONNECT, &bad, 100, &ep, "send_depth" },
        { fabric, cq, stream[0], RDMUX_ROLE_CONNECT, NULL, -2, &ep, "timeout_ms" },
        { fabric, cq, stream[0], RDMUX_ROLE_CONNECT, NULL, 100, NULL, "out" },
        { fabric, cq, datagram[0], RDMUX_ROLE_CONNECT, NULL, 100, &ep, "stream" },
        { fabric, cq, ends[0], RDMUX_ROLE_CONNECT, NULL, 100, &ep, "stream" },
        { fabric, cq, lonely, RDMUX_ROLE_CONNECT, NULL, 100, &ep, "connected" },
        { fabric, cq, listening, RDMUX_ROLE_ACCEPT, NULL, 100, &ep, "connected" },
        { fabric, cq, -1, RDMUX_ROLE_CONNECT, NULL, 100, &ep, "socket" },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct looks before = looks_of(cases[i].socket);

        CHECK_STATUS(rdmux_adopt(cases[i].fabric, cases[i].cq, cases[i].socket, cases[i].role,
                                 cases[i].attr, cases[i].timeout_ms, cases[i].out),
                     RDMUX_INVALID);

        if (strstr(rdmux_last_error(), cases[i].text) == NULL) {
            fail_msg("\"%s\" does not tell of %s", rdmux_last_error(), cases[i].text);
        }
        check_looks(cases[i].socket, &before);
    }
    assert_int_equal(send(stream[1], "x", 1, MSG_NOSIGNAL), 1);
    char byte = 0;
    assert_int_equal(recv(stream[0], &byte, 1, MSG_DONTWAIT), 1);
    assert_int_equal(byte, 'x');
    const int all[] = { stream[0], stream[1], datagram[0], datagram[1],
                        ends[0],   ends[1],   lonely,      listening };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all); i++) {
        assert_int_equal(close(all[i]), 0);
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
    CHECK_OK(rdmux_fabric_close(other));
}

static void every_other_failure_closes_the_socket(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric(NULL, 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    static const struct {
        const char *says; /* the other end; NULL: nothing */
        bool leaves;
        enum rdmux_status status;
    } cases[] = {
        { NULL, false, RDMUX_TIMED_OUT },
        { NULL, true, RDMUX_PEER_GONE },
        { "RDMUX", true, RDMUX_PEER_GONE },
        { "GET / HTTP/1.1\r\n", false, RDMUX_PROTOCOL },
    };
    for (int role = RDMUX_ROLE_CONNECT; role <= RDMUX_ROLE_ACCEPT; role++) {
        for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
            for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
                struct rdmux_ep *ep = NULL;
                int ends[2];
                make_sockets((enum kind)kind, ends);
                if (cases[i].says != NULL) {
                    send_bytes(ends[1], cases[i].says, strlen(cases[i].says));
                }
                if (cases[i].leaves) {
                    close(ends[1]);
                }

                CHECK_STATUS(rdmux_adopt(fabric, cq, ends[0], (enum rdmux_role)role, NULL, 100, &ep),
                             cases[i].status);

                assert_null(ep);
                assert_false(is_open(ends[0]));
                if (!cases[i].leaves) {
                    assert_true(is_dropped(ends[1], PATIENT_MS));
                    close(ends[1]);
                }
            }
        }
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

/* Random bytes until there are none any more. */
static int rare_random(void *user, void *out, size_t size)
{
    memset(out, 0x5a, size);
    return (*(int *)user)-- > 0 ? 0 : -1;
}

static void an_adoption_without_random_bytes_closes_the_socket(void **state)
{
    (void)state;
    int left = INT_MAX;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.random = rare_random;
    attr.random_user = &left;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    struct rdmux_cq *cq = create_cq(fabric);
    enum rdmux_status status = RDMUX_IO;
    for (int count = 0; status == RDMUX_IO; count++) {
        struct rdmux_ep *ep = NULL;
        int ends[2];
        make_sockets(KIND_LOCAL, ends);
        left = count;

        status = rdmux_adopt(fabric, cq, ends[0], RDMUX_ROLE_CONNECT, NULL, 0, &ep);

        if (status == RDMUX_IO) {
            assert_null(ep);
            assert_false(is_open(ends[0]));
        } else {
            assert_true(count > 0);
            CHECK_STATUS(status, RDMUX_IN_PROGRESS);
            CHECK_OK(rdmux_ep_close(ep));
        }
        close(ends[1]);
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void two_sides_in_the_same_role_do_not_connect(void **state)
{
    (void)state;
    for (int role = RDMUX_ROLE_CONNECT; role <= RDMUX_ROLE_ACCEPT; role++) {
        struct scene scene;
        set_scene(&scene, KIND_LOCAL, NULL, NULL);
        for (int i = 0; i < 2; i++) {
            scene.sides[i].role = (enum rdmux_role)role;
            scene.sides[i].timeout_ms = 300;
        }

        adopt_both(&scene);

        for (int i = 0; i < 2; i++) {
            assert_true(scene.sides[i].status == RDMUX_PROTOCOL ||
                        scene.sides[i].status == RDMUX_TIMED_OUT ||
                        scene.sides[i].status == RDMUX_PEER_GONE);
            assert_null(scene.sides[i].ep);
            assert_false(is_open(scene.sides[i].socket));
        }
        clear_scene(&scene);
    }
}

static void closing_an_adopted_endpoint_during_set_up_closes_its_socket(void **state)
{
    (void)state;
    for (int kind = KIND_LOCAL; kind < KIND_COUNT; kind++) {
        struct scene scene;
        struct rdmux_wc wc;
        set_scene(&scene, (enum kind)kind, NULL, NULL);
        struct adopter *side = &scene.sides[0];
        CHECK_STATUS(
            rdmux_adopt(side->fabric, side->cq, side->socket, side->role, NULL, 0, &side->ep),
            RDMUX_IN_PROGRESS);

        CHECK_OK(rdmux_ep_close(side->ep));

        side->ep = NULL;
        assert_false(is_open(side->socket));
        assert_int_equal(rdmux_cq_poll(scene.cqs[0], &wc, 1), 0);
        (void)adopt(&scene.sides[1]);
        assert_int_equal(scene.sides[1].status, RDMUX_PEER_GONE);
        clear_scene(&scene);
    }
}

/* Calls rdmux_explain() on a program that adopts the sockets it accepts. */
struct asker {
    struct rdmux_fabric *fabric;
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_explanation *explanation;
    enum rdmux_status status;
};

static void *ask(void *argument)
{
    struct asker *asker = argument;
    asker->status = rdmux_explain(asker->fabric, asker->address, NULL, PATIENT_MS,
                                  &asker->explanation);
    return NULL;
}

static void an_explain_is_answered_and_ends_the_adopted_endpoint(void **state)
{
    (void)state;
    struct asker asker = { .fabric = open_fabric("tcp", 0, NULL) };
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    (void)snprintf(asker.address, sizeof(asker.address), "127.0.0.1:%u", ntohs(address.sin_port));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask, &asker), 0);
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(socket >= 0);
    struct rdmux_ep *ep = NULL;

    CHECK_STATUS(rdmux_adopt(fabric, cq, socket, RDMUX_ROLE_ACCEPT, NULL, PATIENT_MS, &ep),
                 RDMUX_PEER_GONE);

    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(asker.status);
    rdmux_explanation_free(asker.explanation);
    close(listener);
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
    CHECK_OK(rdmux_fabric_close(asker.fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adopted_sockets_of_every_kind_connect_on_every_path),
        cmocka_unit_test(an_explain_is_answered_and_ends_the_adopted_endpoint),
        cmocka_unit_test(an_adopted_endpoint_supports_every_operation),
        cmocka_unit_test(an_adopted_endpoint_ends_with_its_peer),
        cmocka_unit_test(a_shutdown_is_orderly_although_the_peer_closes_at_once),
        cmocka_unit_test(an_adoption_may_complete_in_the_background),
        cmocka_unit_test(a_server_may_peek_at_the_first_bytes_before_it_adopts),
        cmocka_unit_test(both_sides_get_their_sockets_back_unchanged_when_no_path_exists),
        cmocka_unit_test(bytes_that_the_peer_sends_after_no_path_stay_in_the_socket),
        cmocka_unit_test(no_path_reported_as_an_event_gives_the_socket_back),
        cmocka_unit_test(a_refused_adoption_leaves_the_socket_alone),
        cmocka_unit_test(every_other_failure_closes_the_socket),
        cmocka_unit_test(an_adoption_without_random_bytes_closes_the_socket),
        cmocka_unit_test(two_sides_in_the_same_role_do_not_connect),
        cmocka_unit_test(closing_an_adopted_endpoint_during_set_up_closes_its_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
