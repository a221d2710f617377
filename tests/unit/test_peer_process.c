/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Heartbeat groups: endpoints to one process share heartbeats, but not with a peer that falsely
 * claims to be that process. The test controls the time. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/failover/failover_state.h"
#include "api/object/peer_process.h"
#include "tests/unit/failover_scene.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>

enum { LIVENESS_MS = 400, STEP_MS = 10, WATCHED_MS = 10 * LIVENESS_MS, STRANGERS = 4 };

static uint64_t time_ns;

static uint64_t clock_of(void *user)
{
    (void)user;
    return time_ns;
}

struct party {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    bool ended; /* one of its endpoints */
};

static void open_party(struct party *party)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    memset(party, 0, sizeof(*party));
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                 RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    attr.paths = "tcp";
    attr.clock_ns = clock_of;
    CHECK_OK(rdmux_fabric_open(&attr, &party->fabric));
    party->cq = create_cq(party->fabric);
}

static void close_party(struct party *party)
{
    CHECK_OK(rdmux_cq_destroy(party->cq));
    CHECK_OK(rdmux_fabric_close(party->fabric));
}

static void step(struct party *party)
{
    struct rdmux_wc wc;
    while (rdmux_cq_poll(party->cq, &wc, 1) == 1) {
        party->ended = party->ended || wc.opcode == RDMUX_WC_DISCONNECTED || wc.status != RDMUX_OK;
    }
    CHECK_OK(rdmux_fabric_progress(party->fabric));
}

/* Two connected sockets, of which the first has this address on its host. */
static void make_sockets(const char *from, int out[2])
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in source = { .sin_family = AF_INET };
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(inet_pton(AF_INET, from, &source.sin_addr), 1);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(out[0], (struct sockaddr *)&source, sizeof(source)), 0);
    assert_int_equal(connect(out[0], (struct sockaddr *)&address, length), 0);
    out[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(out[1] >= 0);
    close(listener);
}

static bool is_ready(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    return rdmux_ep_info(ep, &info) == RDMUX_OK && info.provider[0] != '\0';
}

/* `from` connects to `to` from an address. */
static void connect_from(const char *address, struct party *from, struct party *to,
                         struct rdmux_ep *out[2])
{
    int sockets[2];
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = LIVENESS_MS;
    make_sockets(address, sockets);
    CHECK_STATUS(
        rdmux_adopt(from->fabric, from->cq, sockets[0], RDMUX_ROLE_CONNECT, &attr, 0, &out[0]),
        RDMUX_IN_PROGRESS);
    CHECK_STATUS(rdmux_adopt(to->fabric, to->cq, sockets[1], RDMUX_ROLE_ACCEPT, &attr, 0, &out[1]),
                 RDMUX_IN_PROGRESS);
    for (uint64_t until = now_ms() + PATIENT_MS; !is_ready(out[0]) || !is_ready(out[1]);) {
        assert_true(now_ms() < until);
        step(from);
        step(to);
    }
}

static void endpoints_to_one_process_share_heartbeats_and_liveness(void **state)
{
    (void)state;
    struct party a;
    struct party b;
    struct rdmux_ep *first[2];
    struct rdmux_ep *second[2];
    open_party(&a);
    open_party(&b);
    connect_from("127.0.0.1", &a, &b, first);
    connect_from("127.0.0.1", &a, &b, second);

    assert_ptr_equal(first[0]->process.peer, second[0]->process.peer);
    assert_ptr_equal(first[1]->process.peer, second[1]->process.peer);
    assert_ptr_equal(first[0]->process.heartbeat_group, second[0]->process.heartbeat_group);
    assert_ptr_equal(first[1]->process.heartbeat_group, second[1]->process.heartbeat_group);

    for (int i = 0; i < 2; i++) {
        CHECK_OK(rdmux_ep_close(first[i]));
        CHECK_OK(rdmux_ep_close(second[i]));
    }
    close_party(&a);
    close_party(&b);
}

/* A stranger learns a process's id by dialling its listener, if there is no authentication. */
static void a_stranger_with_the_id_of_a_peer_takes_no_heartbeats_from_it(void **state)
{
    (void)state;
    struct party victim;
    struct party peer;
    struct party stranger;
    struct rdmux_ep *good[2];
    struct rdmux_ep *hostile[STRANGERS][2];
    time_ns = UINT64_C(1000000000000);
    open_party(&victim);
    open_party(&peer);
    open_party(&stranger);
    memcpy(stranger.fabric->process, peer.fabric->process, sizeof(stranger.fabric->process));
    for (int i = 0; i < STRANGERS; i++) { /* so that one of them is due before the good one */
        connect_from("127.0.0.2", &stranger, &victim, hostile[i]);
    }
    connect_from("127.0.0.1", &peer, &victim, good);

    for (int i = 0; i < WATCHED_MS / STEP_MS; i++) {
        time_ns += (uint64_t)STEP_MS * 1000000;
        step(&victim);
        step(&peer);
        step(&stranger);
        step(&victim);
    }

    assert_false(peer.ended);
    assert_false(victim.ended);
    for (int side = 0; side < 2; side++) {
        CHECK_OK(rdmux_ep_close(good[side]));
        for (int i = 0; i < STRANGERS; i++) {
            CHECK_OK(rdmux_ep_close(hostile[i][side]));
        }
    }
    close_party(&victim);
    close_party(&peer);
    close_party(&stranger);
}

/* The fabric finds a process by the first bytes of its id, and must tell it from others that share
 * them, also after one of them has left. */
static void processes_whose_ids_begin_alike_are_told_apart(void **state)
{
    (void)state;
    enum { ALIKE = 3, SHARED = 8 };
    struct party hub;
    struct party party[ALIKE];
    struct rdmux_ep *eps[ALIKE][2];
    struct rdmux_ep *again[ALIKE][2];
    open_party(&hub);
    for (int i = 0; i < ALIKE; i++) {
        open_party(&party[i]);
        memset(party[i].fabric->process, 7, SHARED);
        connect_from("127.0.0.1", &party[i], &hub, eps[i]);
    }
    for (int i = 0; i < ALIKE; i++) {
        const struct rdmux_peer_process *peer = eps[i][1]->process.peer;
        const struct rdmux_peer_process *next = eps[(i + 1) % ALIKE][1]->process.peer;
        assert_memory_equal(peer->id, party[i].fabric->process, sizeof(peer->id));
        assert_ptr_not_equal(peer, next);
    }

    for (int side = 0; side < 2; side++) { /* the one in the middle */
        CHECK_OK(rdmux_ep_close(eps[1][side]));
    }
    step(&party[1]);
    step(&hub);

    for (int i = 0; i < ALIKE; i++) {
        connect_from("127.0.0.1", &party[i], &hub, again[i]);
        const struct rdmux_peer_process *peer = again[i][1]->process.peer;
        assert_int_equal(peer->refs, i == 1 ? 1 : 2);
        assert_memory_equal(peer->id, party[i].fabric->process, sizeof(peer->id));
    }
    for (int i = 0; i < ALIKE; i++) {
        for (int side = 0; side < 2; side++) {
            CHECK_OK(rdmux_ep_close(again[i][side]));
            if (i != 1) {
                CHECK_OK(rdmux_ep_close(eps[i][side]));
            }
        }
        close_party(&party[i]);
    }
    close_party(&hub);
}

/* ----------------------------------------------------------------------- a channel that is lost */

/* The broken endpoints send a heartbeat just before the whole one, and fail just before it would be
 * silent for too long. */
enum { BROKEN = 4, BROKEN_MS = 440, WHOLE_MS = 480 };

static void connect_to(struct party *from, struct party *to, struct rdmux_listener *listener,
                       const char *address, bool has_failover, struct rdmux_ep *out[2])
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = has_failover ? BROKEN_MS : WHOLE_MS;
    attr.failover = has_failover ? RDMUX_FAILOVER_ON : 0;
    CHECK_STATUS(rdmux_connect(from->fabric, from->cq, address, &attr, 0, &out[0]),
                 RDMUX_IN_PROGRESS);
    out[1] = NULL;
    for (uint64_t until = now_ms() + PATIENT_MS;
         out[1] == NULL || !is_ready(out[0]) || !is_ready(out[1]);) {
        assert_true(now_ms() < until);
        if (out[1] == NULL && rdmux_accept(listener, to->cq, &attr, 0, &out[1]) != RDMUX_OK) {
            out[1] = NULL;
        }
        step(from);
        step(to);
    }
}

/* Endpoints that have lost their channel wait for another one, for the liveness time. An endpoint
 * that sends heartbeats only for itself meanwhile must continue. */
static void endpoints_without_a_control_channel_send_no_heartbeats(void **state)
{
    (void)state;
    struct party a;
    struct party b;
    struct rdmux_ep *broken[BROKEN][2];
    struct rdmux_ep *whole[2];
    char address[RDMUX_ADDRESS_MAX];
    if (!can_resume()) {
        return;
    }
    time_ns = UINT64_C(1000000000000);
    open_party(&a);
    open_party(&b);
    struct rdmux_listener *listener = listen_here(b.fabric, NULL, address);
    for (int i = 0; i < BROKEN; i++) {
        connect_to(&a, &b, listener, address, true, broken[i]);
    }
    connect_to(&a, &b, listener, address, false, whole);

    for (int i = 0; i < BROKEN; i++) {
        struct rdmux_reconnect *resume = &broken[i][1]->failover->reconnect;
        memset(resume->name, i + 1, sizeof(resume->name)); /* so that it is not found again */
        assert_int_equal(shutdown(rdmux_channel_socket(broken[i][0]->channel), SHUT_RDWR), 0);
    }
    for (int i = 0; i < WATCHED_MS / STEP_MS; i++) {
        time_ns += (uint64_t)STEP_MS * 1000000;
        step(&a);
        step(&b);
        step(&a);
    }

    assert_int_equal(info_of(broken[0][1]).state, RDMUX_EP_ENDED);
    assert_int_equal(info_of(whole[0]).state, RDMUX_EP_CONNECTED);
    assert_int_equal(info_of(whole[1]).state, RDMUX_EP_CONNECTED);
    rdmux_listener_close(listener);
    for (int side = 0; side < 2; side++) {
        CHECK_OK(rdmux_ep_close(whole[side]));
        for (int i = 0; i < BROKEN; i++) {
            CHECK_OK(rdmux_ep_close(broken[i][side]));
        }
    }
    close_party(&a);
    close_party(&b);
}

/* A channel whose heartbeats other endpoints send may be cut without a message on it. */
static void the_kernel_probes_an_idle_control_channel(void **state)
{
    (void)state;
    struct party a;
    struct party b;
    struct rdmux_ep *eps[2];
    time_ns = UINT64_C(1000000000000);
    open_party(&a);
    open_party(&b);
    connect_from("127.0.0.1", &a, &b, eps);

    for (int side = 0; side < 2; side++) {
        const int socket = rdmux_channel_socket(eps[side]->channel);
        int is_on = 0;
        unsigned limit_ms = 0;
        socklen_t length = sizeof(is_on);
        assert_int_equal(getsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &is_on, &length), 0);
        assert_int_equal(getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &length), 0);
        assert_int_equal(is_on, 1);
        assert_int_equal(limit_ms, LIVENESS_MS);
    }

    CHECK_OK(rdmux_ep_close(eps[0]));
    CHECK_OK(rdmux_ep_close(eps[1]));
    close_party(&a);
    close_party(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoints_to_one_process_share_heartbeats_and_liveness),
        cmocka_unit_test(a_stranger_with_the_id_of_a_peer_takes_no_heartbeats_from_it),
        cmocka_unit_test(processes_whose_ids_begin_alike_are_told_apart),
        cmocka_unit_test(endpoints_without_a_control_channel_send_no_heartbeats),
        cmocka_unit_test(the_kernel_probes_an_idle_control_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
