/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A peer with two addresses: when one stops answering, or another peer answers there, control
 * channel and path move to the other. */
#define SLOW_CLOCK 8
#include "tests/unit/failover_scene.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/progress/cq_owner.h"
#include "negotiation/message.h"

#include <errno.h>
#include <netdb.h>

static const char name[] = "two.addresses.test";
static const char *const addresses[] = { "127.0.0.1", "127.0.0.2" };

/* Result of connect(2) to the first address: 0, or errno. EINPROGRESS: it is not answered. */
static _Atomic int first_is;
static _Atomic unsigned dialled_in_vain;
/* The port that answers there in the peer's place; 0: none. */
static _Atomic uint16_t stranger_port;

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    struct addrinfo *second = NULL;
    if (node == NULL || strcmp(node, name) != 0 || (hints->ai_flags & AI_NUMERICHOST) != 0) {
        return __real_getaddrinfo(node, service, hints, out);
    }
    int error = __real_getaddrinfo(addresses[0], service, hints, out);
    assert_int_equal(error, 0);
    assert_int_equal(__real_getaddrinfo(addresses[1], service, hints, &second), 0);
    (*out)->ai_next = second; /* glibc's freeaddrinfo(3) frees one after the other */
    return 0;
}

int __real_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    const struct sockaddr_in *in = (const void *)address;
    int error = atomic_load(&first_is);
    const uint16_t port = atomic_load(&stranger_port);
    if ((error == 0 && port == 0) || address->sa_family != AF_INET ||
        in->sin_addr.s_addr != htonl(INADDR_LOOPBACK)) {
        return __real_connect(fd, address, length);
    }
    atomic_fetch_add(&dialled_in_vain, 1);
    if (port != 0) {
        struct sockaddr_in stranger = *in;
        stranger.sin_port = htons(port);
        return __real_connect(fd, (const struct sockaddr *)&stranger, sizeof(stranger));
    }
    errno = error;
    return -1;
}

/* The socket that neither sends nor receives; -1: none. */
static _Atomic int deaf = -1;
/* The two ends of a control channel, and the type of the frame whose sender becomes deaf. */
static _Atomic int ends[2] = { -1, -1 };
static _Atomic int deaf_from;

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    const bool is_end = fd == atomic_load(&ends[0]) || fd == atomic_load(&ends[1]);
    if (is_end && size > 0 && *(const uint8_t *)bytes == atomic_load(&deaf_from)) {
        atomic_store(&deaf, fd);
        atomic_store(&deaf_from, 0);
    }
    return fd == atomic_load(&deaf) ? (ssize_t)size : __real_send(fd, bytes, size, flags);
}

ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    if (fd != atomic_load(&deaf)) {
        return __real_recv(fd, bytes, size, flags);
    }
    errno = EAGAIN;
    return -1;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    _Atomic int *const numbers[] = { &deaf, &ends[0], &ends[1] };
    for (size_t i = 0; i < RDMUX_COUNT_OF(numbers); i++) {
        int closed = fd; /* the number may be the next socket's */
        (void)atomic_compare_exchange_strong(numbers[i], &closed, -1);
    }
    return __real_close(fd);
}

static in_addr_t address_of(const struct rdmux_ep *ep)
{
    return ntohl(((const struct sockaddr_in *)(const void *)&ep->addresses.peer)->sin_addr.s_addr);
}

static void open_named_pair(struct pair *pair, const struct rdmux_ep_attr *attr)
{
    const char *colon = NULL;
    memset(pair, 0, sizeof(*pair));
    pair->fabric_a = open_fabric("tcp", 0, NULL);
    pair->fabric_b = open_fabric("tcp", 0, NULL);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    CHECK_OK(rdmux_listen(pair->fabric_b, "0.0.0.0:0", NULL, &pair->listener));
    CHECK_OK(rdmux_listener_address(pair->listener, pair->address, sizeof(pair->address)));
    colon = strrchr(pair->address, ':');
    assert_non_null(colon);
    char port[16];
    (void)snprintf(port, sizeof(port), "%s", colon);
    (void)snprintf(pair->address, sizeof(pair->address), "%s%s", name, port);
    connect_more(pair, attr, &pair->a, &pair->b);
    assert_int_equal(address_of(pair->a), INADDR_LOOPBACK);
}

/* Takes the address away: from the path, from the control channel, and from later connects. */
static void take_the_address_away(struct pair *pair)
{
    if (has_channels(pair)) {
        (void)cut_data_sockets(pair);
        cut_control(pair);
    }
}

static void messages_continue_over_the_other_address(void **state)
{
    (void)state;
    static const int errors[] = { ENETUNREACH, ECONNREFUSED, EINPROGRESS };
    for (size_t i = 0; i < RDMUX_COUNT_OF(errors) && can_resume(); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = traffic_attr;
        attr.failover = RDMUX_FAILOVER_ON;
        atomic_store(&first_is, 0);
        atomic_store(&dialled_in_vain, 0);
        open_named_pair(&pair, &attr);
        atomic_store(&first_is, errors[i]);

        run_traffic(&pair, 600, 400, take_the_address_away);

        assert_true(atomic_load(&dialled_in_vain) > 0);
        assert_int_equal(address_of(pair.a), INADDR_LOOPBACK + 1);
        assert_true(moves_of(pair.a) > 0);
        close_pair(&pair);
    }
    atomic_store(&first_is, 0);
}

/* The path fails, and the way out with it: neither side hears the other. */
static void take_the_wire_away(struct pair *pair)
{
    assert_true(rdmux_cq_enter(pair->cq_a));
    assert_non_null(pair->a->channel);
    atomic_store(&deaf, rdmux_channel_socket(pair->a->channel));
    rdmux_cq_leave(pair->cq_a);
    (void)cut_data_sockets(pair);
}

static void an_unanswered_move_continues_over_the_other_address(void **state)
{
    (void)state;
    static const uint32_t liveness_ms[] = { RDMUX_NEVER, 3600000 }; /* silence is no failure */
    for (size_t i = 0; i < RDMUX_COUNT_OF(liveness_ms) && can_resume(); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = traffic_attr;
        attr.failover = RDMUX_FAILOVER_ON;
        attr.liveness_ms = liveness_ms[i];
        open_named_pair(&pair, &attr);

        run_traffic(&pair, 600, 400, take_the_wire_away);

        assert_int_equal(address_of(pair.a), INADDR_LOOPBACK + 1);
        assert_int_equal(moves_of(pair.a), 1);
        close_pair(&pair);
    }
}

static _Atomic int last_frame;

static int channel_of(struct rdmux_cq *cq, const struct rdmux_ep *ep)
{
    assert_true(rdmux_cq_enter(cq));
    assert_non_null(ep->channel);
    int socket = rdmux_channel_socket(ep->channel);
    rdmux_cq_leave(cq);
    return socket;
}

/* The path fails, and in the middle of the move the control channel falls silent. */
static void silence_the_move(struct pair *pair)
{
    atomic_store(&ends[0], channel_of(pair->cq_a, pair->a));
    atomic_store(&ends[1], channel_of(pair->cq_b, pair->b));
    atomic_store(&deaf_from, atomic_load(&last_frame));
    (void)cut_data_sockets(pair);
}

static void silence_during_a_move_leads_to_a_new_control_channel(void **state)
{
    (void)state;
    static const int frames[] = { RDMUX_FRAME_TRY, RDMUX_FRAME_READY, RDMUX_FRAME_UP,
                                  RDMUX_FRAME_COMMIT };
    for (size_t i = 0; i < RDMUX_COUNT_OF(frames) && can_resume(); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = traffic_attr;
        attr.failover = RDMUX_FAILOVER_ON;
        attr.path_timeout_ms = 100; /* of the slow clock */
        attr.liveness_ms = 3600000;
        open_named_pair(&pair, &attr);
        atomic_store(&last_frame, frames[i]);

        run_traffic(&pair, 600, 400, silence_the_move);

        assert_int_equal(atomic_load(&deaf_from), 0); /* it came to that */
        close_pair(&pair);
    }
}

static void another_process_at_an_address_is_skipped(void **state)
{
    (void)state;
    for (int speaks = 0; speaks < 2 && can_resume(); speaks++) {
        struct pair pair;
        struct rdmux_ep_attr attr = traffic_attr;
        struct sockaddr_in mute = { .sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t length = sizeof(mute);
        char address[RDMUX_ADDRESS_MAX];
        struct rdmux_fabric *other = open_fabric("tcp", 0, NULL);
        struct rdmux_listener *listener = listen_here(other, NULL, address);
        int socket_of_other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(socket_of_other, (struct sockaddr *)&mute, length), 0);
        assert_int_equal(listen(socket_of_other, 16), 0); /* and never takes one */
        assert_int_equal(getsockname(socket_of_other, (struct sockaddr *)&mute, &length), 0);
        attr.failover = RDMUX_FAILOVER_ON;
        open_named_pair(&pair, &attr);
        atomic_store(&dialled_in_vain, 0);
        atomic_store(&stranger_port, speaks ? (uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10)
                                            : ntohs(mute.sin_port));

        run_traffic(&pair, 600, 400, take_the_address_away);

        atomic_store(&stranger_port, 0);
        assert_true(atomic_load(&dialled_in_vain) > 0);
        assert_int_equal(address_of(pair.a), INADDR_LOOPBACK + 1);
        close_pair(&pair);
        rdmux_listener_close(listener);
        CHECK_OK(rdmux_fabric_close(other));
        close(socket_of_other);
    }
}

static void an_endpoint_ends_when_no_address_has_a_listener(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover = RDMUX_FAILOVER_ON;
    open_named_pair(&pair, &attr);
    rdmux_listener_close(pair.listener);
    pair.listener = NULL;

    cut_control(&pair);

    struct rdmux_wc wc = next_entry(pair.cq_a);
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_PEER_GONE);
    if (can_resume()) {
        assert_non_null(strstr(info_of(pair.a).text, "nobody listens"));
    }
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_continue_over_the_other_address),
        cmocka_unit_test(an_unanswered_move_continues_over_the_other_address),
        cmocka_unit_test(silence_during_a_move_leads_to_a_new_control_channel),
        cmocka_unit_test(another_process_at_an_address_is_skipped),
        cmocka_unit_test(an_endpoint_ends_when_no_address_has_a_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
