/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/interop/by_hand.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 5000, CQ_ENTRIES = 16 };

struct connection {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *wakes;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char bytes[3 * BY_HAND_SIZE]; /* received, sent, lent */
};

static void must(int good, const char *what)
{
    if (!good) {
        (void)fprintf(stderr, "by hand: %s: %s\n", what, strerror(errno));
        abort();
    }
}

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
    }
}

static struct rdma_cm_id *await_event(struct connection *connection, enum rdma_cm_event_type wanted)
{
    struct rdma_cm_event *event = NULL;
    must(rdma_get_cm_event(connection->channel, &event) == 0, "rdma_get_cm_event");
    struct rdma_cm_id *id = event->id;
    if (event->event != wanted) {
        (void)fprintf(stderr, "by hand: %s (%d) instead of %s\n", rdma_event_str(event->event),
                      event->status, rdma_event_str(wanted));
        abort();
    }
    (void)rdma_ack_cm_event(event);
    return id;
}

static void receive(struct connection *connection)
{
    struct ibv_sge piece = { .addr = (uintptr_t)connection->bytes,
                             .length = BY_HAND_SIZE,
                             .lkey = connection->mr->lkey };
    struct ibv_recv_wr work = { .sg_list = &piece, .num_sge = 1 };
    struct ibv_recv_wr *bad = NULL;
    must(ibv_post_recv(connection->id->qp, &work, &bad) == 0, "ibv_post_recv");
}

static void open_queue(struct connection *connection)
{
    struct rdma_cm_id *id = connection->id;
    connection->pd = ibv_alloc_pd(id->verbs);
    connection->wakes = ibv_create_comp_channel(id->verbs);
    must(connection->pd != NULL && connection->wakes != NULL, "ibv_alloc_pd");
    connection->cq = ibv_create_cq(id->verbs, CQ_ENTRIES, NULL, connection->wakes, 0);
    must(connection->cq != NULL, "ibv_create_cq");
    connection->mr = ibv_reg_mr(connection->pd, connection->bytes, sizeof(connection->bytes),
                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                    IBV_ACCESS_REMOTE_WRITE);
    must(connection->mr != NULL, "ibv_reg_mr");
    struct ibv_qp_init_attr attr = {
        .send_cq = connection->cq,
        .recv_cq = connection->cq,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    must(rdma_create_qp(id, connection->pd, &attr) == 0, "rdma_create_qp");
    receive(connection);
}

static struct ibv_wc await_completion(struct connection *connection)
{
    struct ibv_wc wc;
    for (;;) {
        struct ibv_cq *cq = NULL;
        void *context = NULL;
        must(ibv_req_notify_cq(connection->cq, 0) == 0, "ibv_req_notify_cq");
        int got = ibv_poll_cq(connection->cq, 1, &wc);
        must(got >= 0, "ibv_poll_cq");
        if (got == 1) {
            break;
        }
        must(ibv_get_cq_event(connection->wakes, &cq, &context) == 0, "ibv_get_cq_event");
        ibv_ack_cq_events(cq, 1);
    }
    if (wc.status != IBV_WC_SUCCESS) {
        (void)fprintf(stderr, "by hand: %s\n", ibv_wc_status_str(wc.status));
        abort();
    }
    return wc;
}

static void send_bytes(struct connection *connection, const void *bytes, size_t length)
{
    char *place = connection->bytes + BY_HAND_SIZE;
    memcpy(place, bytes, length);
    struct ibv_sge piece = { .addr = (uintptr_t)place,
                             .length = (uint32_t)length,
                             .lkey = connection->mr->lkey };
    struct ibv_send_wr work = { .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND };
    struct ibv_send_wr *bad = NULL;
    must(ibv_post_send(connection->id->qp, &work, &bad) == 0, "ibv_post_send");
}

/* The bytes of the message that comes next; what was sent is done by then or is waited for. */
static size_t await_message(struct connection *connection)
{
    struct ibv_wc wc;
    do {
        wc = await_completion(connection);
    } while ((wc.opcode & IBV_WC_RECV) == 0);
    return wc.byte_len;
}

static void close_connection(struct connection *connection)
{
    rdma_destroy_qp(connection->id);
    (void)ibv_dereg_mr(connection->mr);
    (void)ibv_destroy_cq(connection->cq);
    (void)ibv_destroy_comp_channel(connection->wakes);
    (void)ibv_dealloc_pd(connection->pd);
    (void)rdma_destroy_id(connection->id);
}

static void resolve(const char *text, struct sockaddr_in *out)
{
    char host[128];
    (void)snprintf(host, sizeof(host), "%s", text);
    char *colon = strchr(host, ':');
    *out = (struct sockaddr_in){ .sin_family = AF_INET };
    if (colon != NULL) {
        *colon = '\0';
        out->sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    }
    must(inet_pton(AF_INET, host, &out->sin_addr) == 1, "inet_pton");
}

static void connect_by_hand(struct by_hand *peer)
{
    struct connection connection;
    struct sockaddr_in address;
    struct rdma_conn_param param = {
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7
    };
    memset(&connection, 0, sizeof(connection));
    resolve(peer->address, &address);
    connection.channel = rdma_create_event_channel();
    must(connection.channel != NULL, "rdma_create_event_channel");
    must(rdma_create_id(connection.channel, &connection.id, NULL, RDMA_PS_TCP) == 0,
         "rdma_create_id");
    must(rdma_resolve_addr(connection.id, NULL, (struct sockaddr *)&address, TIMEOUT_MS) == 0,
         "rdma_resolve_addr");
    (void)await_event(&connection, RDMA_CM_EVENT_ADDR_RESOLVED);
    must(rdma_resolve_route(connection.id, TIMEOUT_MS) == 0, "rdma_resolve_route");
    (void)await_event(&connection, RDMA_CM_EVENT_ROUTE_RESOLVED);
    open_queue(&connection);
    must(rdma_connect(connection.id, &param) == 0, "rdma_connect");
    (void)await_event(&connection, RDMA_CM_EVENT_ESTABLISHED);
    char *lent = connection.bytes + 2 * (size_t)BY_HAND_SIZE;
    if (peer->role == BY_HAND_LENDS) {
        const struct by_hand_key key = { .addr = (uintptr_t)lent, .key = connection.mr->rkey };
        memcpy(lent, BY_HAND_GREETING, sizeof(BY_HAND_GREETING));
        send_bytes(&connection, &key, sizeof(key));
    } else if (peer->role == BY_HAND_SENDS) {
        send_bytes(&connection, BY_HAND_GREETING, sizeof(BY_HAND_GREETING));
    }
    if (peer->role == BY_HAND_LEAVES) {
        await(&peer->may_leave);
    } else {
        (void)await_message(&connection);
    }
    memcpy(peer->result, peer->role == BY_HAND_LENDS ? lent : connection.bytes,
           sizeof(peer->result));
    must(rdma_disconnect(connection.id) == 0, "rdma_disconnect");
    (void)await_event(&connection, RDMA_CM_EVENT_DISCONNECTED);
    close_connection(&connection);
    rdma_destroy_event_channel(connection.channel);
}

static void listen_by_hand(struct by_hand *peer)
{
    struct connection connection;
    struct sockaddr_in address;
    struct rdma_cm_id *listener = NULL;
    memset(&connection, 0, sizeof(connection));
    resolve(peer->address, &address);
    connection.channel = rdma_create_event_channel();
    must(connection.channel != NULL, "rdma_create_event_channel");
    must(rdma_create_id(connection.channel, &listener, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
    must(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0, "rdma_bind_addr");
    must(rdma_listen(listener, 1) == 0, "rdma_listen");
    peer->port = ntohs(rdma_get_src_port(listener));
    (void)sem_post(&peer->listens);
    connection.id = await_event(&connection, RDMA_CM_EVENT_CONNECT_REQUEST);
    open_queue(&connection);
    struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
    must(rdma_accept(connection.id, &param) == 0, "rdma_accept");
    (void)await_event(&connection, RDMA_CM_EVENT_ESTABLISHED);
    size_t length = await_message(&connection);
    memcpy(peer->result, connection.bytes, sizeof(peer->result));
    send_bytes(&connection, connection.bytes, length);
    (void)await_event(&connection, RDMA_CM_EVENT_DISCONNECTED);
    (void)rdma_disconnect(connection.id);
    close_connection(&connection);
    (void)rdma_destroy_id(listener);
    rdma_destroy_event_channel(connection.channel);
}

static void *run(void *argument)
{
    struct by_hand *peer = argument;
    if (peer->role == BY_HAND_ECHOES) {
        listen_by_hand(peer);
    } else {
        connect_by_hand(peer);
    }
    return NULL;
}

void by_hand_start(struct by_hand *peer, enum by_hand_role role, const char *address)
{
    memset(peer, 0, sizeof(*peer));
    peer->role = role;
    (void)snprintf(peer->address, sizeof(peer->address), "%s", address);
    (void)sem_init(&peer->listens, 0, 0);
    (void)sem_init(&peer->may_leave, 0, 0);
    must(pthread_create(&peer->thread, NULL, run, peer) == 0, "pthread_create");
}

uint16_t by_hand_port(struct by_hand *peer)
{
    await(&peer->listens);
    return peer->port;
}

const char *by_hand_end(struct by_hand *peer)
{
    (void)sem_post(&peer->may_leave);
    (void)pthread_join(peer->thread, NULL);
    (void)sem_destroy(&peer->may_leave);
    (void)sem_destroy(&peer->listens);
    return peer->result;
}
