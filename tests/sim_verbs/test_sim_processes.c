/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Real time: devices described by SIM_VERBS that processes share, and threads in one process. */
#include "sim_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __has_feature
#define HAS_FEATURE(feature) __has_feature(feature)
#else
#define HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
enum { THREAD_SANITIZER = 1 };
#else
enum { THREAD_SANITIZER = 0 };
#endif

enum { MEMORY = 32 << 20, DEPTH = 64, PATIENCE_MS = 30000 };

/* A child process cannot fail a test, so it exits instead. */
#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            (void)fprintf(stderr, "# %s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, \
                          errno);                                                             \
            _exit(1);                                                                         \
        }                                                                                     \
    } while (0)

/* Data that the processes exchange before they can use the device. */
struct card {
    uint64_t addr;
    uint32_t rkey;
    uint32_t qp_num;
    union ibv_gid gid;
    uint16_t lid;
    uint16_t port;
};

struct process {
    int wire; /* socket to the other process */
    bool first;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    uint8_t *memory;
    struct rdma_event_channel *cm;
    struct rdma_cm_id *id;
    struct card theirs;
};

typedef void body(struct process *process);

static void tell(const struct process *process, const void *data, size_t size)
{
    CHECK(write(process->wire, data, size) == (ssize_t)size);
}

static void hear(const struct process *process, void *data, size_t size)
{
    CHECK(recv(process->wire, data, size, MSG_WAITALL) == (ssize_t)size);
}

/* Barrier of the two processes. */
static void meet(const struct process *process)
{
    char word = 'x';
    tell(process, &word, 1);
    hear(process, &word, 1);
}

static pid_t start(body *run, int wire, int other, bool first)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct process process = { .wire = wire, .first = first };
        (void)close(other);
        (void)alarm(PATIENCE_MS / 1000 * 2);
        run(&process);
        _exit(0);
    }
    return pid;
}

static int wait_for(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs two processes with a device each, on a net of their own. */
static void two_processes(const char *options, body *one, body *other)
{
    static unsigned int nets;
    char description[256];
    int wires[2];
    (void)snprintf(description, sizeof(description), "netdev=lo,net=test%d-%u,%s", (int)getpid(),
                   nets++, options);
    assert_int_equal(setenv("SIM_VERBS", description, 1), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, wires), 0);
    pid_t a = start(one, wires[0], wires[1], true);
    pid_t b = start(other, wires[1], wires[0], false);
    (void)close(wires[0]);
    (void)close(wires[1]);
    int first = wait_for(a);
    int second = wait_for(b);
    assert_int_equal(first, 0);
    assert_int_equal(second, 0);
}

/* -------------------------------------------------------------------------------------- objects */

static void open_device(struct process *process)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list != NULL && list[0] != NULL);
    process->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    CHECK(process->context != NULL);
    CHECK(fcntl(process->context->async_fd, F_SETFL, O_NONBLOCK) == 0);
}

static void make_objects(struct process *process)
{
    if (process->pd == NULL) {
        process->pd = ibv_alloc_pd(process->context);
    }
    process->channel = ibv_create_comp_channel(process->context);
    process->cq = ibv_create_cq(process->context, 4 * DEPTH, NULL, process->channel, 0);
    process->memory = calloc(1, MEMORY);
    unsigned int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK(process->memory != NULL);
    process->mr = ibv_reg_mr(process->pd, process->memory, MEMORY, rights);
    CHECK(process->channel != NULL && process->cq != NULL && process->mr != NULL);
}

static struct ibv_qp_init_attr qp_attr(const struct process *process)
{
    return (struct ibv_qp_init_attr){ .send_cq = process->cq,
                                      .recv_cq = process->cq,
                                      .cap = { DEPTH, DEPTH, 1, 1, 32 },
                                      .qp_type = IBV_QPT_RC };
}

static unsigned int gid_index(const struct process *process)
{
    union ibv_gid gid;
    bool there = ibv_query_gid(process->context, 1, 1, &gid) == 0;
    return there && gid.raw[10] == 0xff ? 1 : 0; /* RoCE has the IPv4 address there */
}

static struct card card_of(const struct process *process)
{
    struct card card = { .addr = (uintptr_t)process->memory, .rkey = process->mr->rkey };
    struct ibv_port_attr port;
    CHECK(ibv_query_port(process->context, 1, &port) == 0);
    CHECK(ibv_query_gid(process->context, 1, (int)gid_index(process), &card.gid) == 0);
    card.lid = port.lid;
    card.qp_num = process->qp->qp_num;
    return card;
}

static void swap_cards(struct process *process)
{
    struct card mine = card_of(process);
    tell(process, &mine, sizeof(mine));
    hear(process, &process->theirs, sizeof(process->theirs));
}

static void connect_by_hand(struct process *process)
{
    struct ibv_port_attr port;
    CHECK(ibv_query_port(process->context, 1, &port) == 0);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC,
        .path_mtu = port.active_mtu,
        .dest_qp_num = process->theirs.qp_num,
        .max_rd_atomic = 8,
        .max_dest_rd_atomic = 8,
        .min_rnr_timer = 1,
        .timeout = 10,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = { .dlid = process->theirs.lid, .port_num = 1 },
    };
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid = process->theirs.gid;
        attr.ah_attr.grh.sgid_index = (uint8_t)gid_index(process);
    }
    CHECK(ibv_modify_qp(process->qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(process->qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(process->qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void ready(struct process *process)
{
    open_device(process);
    make_objects(process);
    struct ibv_qp_init_attr attr = qp_attr(process);
    process->qp = ibv_create_qp(process->pd, &attr);
    CHECK(process->qp != NULL);
    swap_cards(process);
    connect_by_hand(process);
    meet(process);
}

static void end_objects(struct process *process)
{
    if (process->id != NULL) {
        rdma_destroy_qp(process->id);
    } else {
        CHECK(ibv_destroy_qp(process->qp) == 0);
    }
    CHECK(ibv_dereg_mr(process->mr) == 0);
    CHECK(ibv_destroy_cq(process->cq) == 0);
    CHECK(ibv_destroy_comp_channel(process->channel) == 0);
    if (process->id == NULL) {
        CHECK(ibv_dealloc_pd(process->pd) == 0);
        CHECK(ibv_close_device(process->context) == 0);
    } else {
        CHECK(rdma_destroy_id(process->id) == 0);
        rdma_destroy_event_channel(process->cm);
    }
    free(process->memory);
}

/* ------------------------------------------------------------------------------------- requests */

static void post(struct process *process, enum ibv_wr_opcode opcode, uint64_t id, size_t from,
                 uint32_t length, size_t to)
{
    struct ibv_sge sge = { (uintptr_t)process->memory + from, length, process->mr->lkey };
    struct ibv_send_wr *bad;
    struct ibv_send_wr wr = {
        .wr_id = id,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { process->theirs.addr + to, process->theirs.rkey },
    };
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = process->theirs.addr + to;
        wr.wr.atomic.rkey = process->theirs.rkey;
        wr.wr.atomic.compare_add = 1;
    }
    CHECK(ibv_post_send(process->qp, &wr, &bad) == 0);
}

static void post_receive(struct process *process, uint64_t id, size_t at, uint32_t length)
{
    struct ibv_sge sge = { (uintptr_t)process->memory + at, length, process->mr->lkey };
    struct ibv_recv_wr *bad;
    struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
    CHECK(ibv_post_recv(process->qp, &wr, &bad) == 0);
}

/* Returns the next entry; sleeps for it as an application does: arm, poll again, sleep. */
static struct ibv_wc next(struct process *process)
{
    struct ibv_wc wc;
    for (;;) {
        int count = ibv_poll_cq(process->cq, 1, &wc);
        if (count == 0) {
            CHECK(ibv_req_notify_cq(process->cq, 0) == 0);
            count = ibv_poll_cq(process->cq, 1, &wc);
        }
        CHECK(count >= 0);
        if (count > 0) {
            return wc;
        }
        struct pollfd readable = { .fd = process->channel->fd, .events = POLLIN };
        CHECK(poll(&readable, 1, PATIENCE_MS) == 1);
        struct ibv_cq *cq;
        void *context;
        CHECK(ibv_get_cq_event(process->channel, &cq, &context) == 0);
        ibv_ack_cq_events(cq, 1);
    }
}

static void expect(struct process *process, uint64_t id, enum ibv_wc_status status)
{
    struct ibv_wc wc = next(process);
    if (wc.wr_id != id || wc.status != status) {
        (void)fprintf(stderr, "# entry %llu '%s', expected %llu '%s'\n",
                      (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
                      (unsigned long long)id, ibv_wc_status_str(status));
        _exit(1);
    }
}

static void fill(struct process *process, size_t at, size_t length, unsigned int seed)
{
    for (size_t i = 0; i < length; i++) {
        process->memory[at + i] = (uint8_t)(seed + i * 13 + (i >> 9));
    }
}

static bool filled(const struct process *process, size_t at, size_t length, unsigned int seed)
{
    for (size_t i = 0; i < length; i++) {
        if (process->memory[at + i] != (uint8_t)(seed + i * 13 + (i >> 9))) {
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- cases */

static void all_operations(struct process *process)
{
    enum { LONG = 8 << 20, AT = 16 << 20, WORD = 31 << 20 };
    ready(process);
    fill(process, 0, LONG, process->first);
    post_receive(process, 1, AT, LONG);
    meet(process);
    post(process, IBV_WR_SEND, 2, 0, LONG, 0);
    uint64_t seen = 0;
    for (int i = 0; i < 2; i++) { /* no order between the two queues */
        struct ibv_wc wc = next(process);
        CHECK(wc.status == IBV_WC_SUCCESS);
        CHECK(wc.wr_id != 1 || (wc.byte_len == LONG && filled(process, AT, LONG, !process->first)));
        seen |= wc.wr_id;
    }
    CHECK(seen == 3);
    meet(process);
    if (process->first) {
        /* The other process sleeps in a system call: one-sided operations do not need it. */
        fill(process, 0, LONG, 7);
        post(process, IBV_WR_RDMA_WRITE, 3, 0, LONG, AT);
        post(process, IBV_WR_RDMA_READ, 4, AT, LONG, AT);
        post(process, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, WORD, 8, WORD);
        post(process, IBV_WR_ATOMIC_FETCH_AND_ADD, 6, WORD, 8, WORD);
        for (uint64_t id = 3; id <= 6; id++) {
            expect(process, id, IBV_WC_SUCCESS);
        }
        CHECK(filled(process, AT, LONG, 7));
        CHECK(process->memory[WORD] == 1);
    }
    meet(process);
    if (!process->first) {
        CHECK(filled(process, AT, LONG, 7));
        CHECK(process->memory[WORD] == 2);
    }
    meet(process);
    end_objects(process);
}

static unsigned int open_descriptors(void)
{
    unsigned int count = 0;
    for (int at = 0; at < 256; at++) {
        count += fcntl(at, F_GETFD) >= 0 ? 1 : 0;
    }
    return count;
}

static void comes_and_goes(struct process *process)
{
    unsigned int before = open_descriptors();
    for (unsigned int round = 0; round < 3; round++) {
        ready(process);
        CHECK(open_descriptors() > before);
        post(process, IBV_WR_RDMA_WRITE, 1, 0, 64, 64);
        expect(process, 1, IBV_WC_SUCCESS);
        meet(process);
        end_objects(process);
        CHECK(open_descriptors() == before);
        *process = (struct process){ .wire = process->wire, .first = process->first };
        meet(process);
    }
}

static void the_last_object_takes_thread_and_sockets_along(void **state)
{
    (void)state;
    two_processes("link=roce", comes_and_goes, comes_and_goes);
}

static void processes_meet_over_infiniband_and_roce(void **state)
{
    (void)state;
    two_processes("link=roce", all_operations, all_operations);
    two_processes("link=ib,max_msg=1g", all_operations, all_operations);
    two_processes("link=roce,freedoms=all,packet=64k", all_operations, all_operations);
    two_processes("link=roce,latency=300us,packet=1m,window=2", all_operations, all_operations);
}

static void many_messages(struct process *process)
{
    enum { COUNT = 400, SIZE = 3000 };
    ready(process);
    unsigned int received = 0;
    unsigned int sent = 0;
    unsigned int acknowledged = 0;
    unsigned int posted = 0;
    while (received < COUNT || acknowledged < COUNT) {
        while (posted < COUNT && posted < received + 8) {
            post_receive(process, posted % 8, (size_t)(posted % 8) * 4096, SIZE);
            posted++;
        }
        while (sent < COUNT && sent < acknowledged + 8) {
            size_t from = 65536 + (size_t)(sent % 8) * 4096;
            fill(process, from, SIZE, sent);
            post(process, IBV_WR_SEND, 100, from, SIZE, 0);
            sent++;
        }
        struct ibv_wc wc = next(process);
        CHECK(wc.status == IBV_WC_SUCCESS);
        if (wc.wr_id == 100) {
            acknowledged++;
        } else {
            CHECK(wc.wr_id == received % 8);
            CHECK(filled(process, (size_t)(received % 8) * 4096, SIZE, received));
            received++;
        }
    }
    meet(process);
    end_objects(process);
}

static void messages_keep_order_and_bytes_whatever_the_liberties(void **state)
{
    (void)state;
    two_processes("link=roce", many_messages, many_messages);
    two_processes("link=ib,freedoms=all,seed=3", many_messages, many_messages);
    two_processes("link=roce,freedoms=lazy,drop=5,seed=4", many_messages, many_messages);
}

static void dies(struct process *process)
{
    ready(process);
    meet(process);
    (void)raise(SIGKILL);
}

static void survives(struct process *process)
{
    ready(process);
    post_receive(process, 9, 4096, 64);
    meet(process);
    char word;
    CHECK(recv(process->wire, &word, 1, 0) == 0); /* the other process is gone */
    post(process, IBV_WR_RDMA_WRITE, 1, 0, 64, 0);
    post(process, IBV_WR_RDMA_WRITE, 2, 0, 64, 0);
    expect(process, 1, IBV_WC_RETRY_EXC_ERR);
    expect(process, 2, IBV_WC_WR_FLUSH_ERR);
    expect(process, 9, IBV_WC_WR_FLUSH_ERR);
    end_objects(process);
}

/* As two_processes(), but the second process kills itself. */
static void one_dies(const char *options, body *survivor, body *victim)
{
    static unsigned int nets;
    char description[256];
    int wires[2];
    (void)snprintf(description, sizeof(description), "netdev=lo,net=dead%d-%u,%s", (int)getpid(),
                   nets++, options);
    assert_int_equal(setenv("SIM_VERBS", description, 1), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, wires), 0);
    pid_t a = start(survivor, wires[0], wires[1], true);
    pid_t b = start(victim, wires[1], wires[0], false);
    (void)close(wires[0]);
    (void)close(wires[1]);
    int first = wait_for(a);
    int second = wait_for(b);
    assert_int_equal(first, 0);
    assert_int_equal(second, 128 + SIGKILL);
}

static void a_dead_process_answers_nothing(void **state)
{
    (void)state;
    one_dies("link=roce", survives, dies);
}

/* ----------------------------------------------------------------------- the connection manager */

static struct rdma_cm_event *cm_event(struct process *process, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    struct pollfd readable = { .fd = process->cm->fd, .events = POLLIN };
    CHECK(poll(&readable, 1, PATIENCE_MS) == 1);
    CHECK(rdma_get_cm_event(process->cm, &event) == 0);
    if (event->event != type) {
        (void)fprintf(stderr, "# %s (%d), expected %s\n", rdma_event_str(event->event),
                      event->status, rdma_event_str(type));
        _exit(1);
    }
    return event;
}

static void cm_expect(struct process *process, enum rdma_cm_event_type type)
{
    CHECK(rdma_ack_cm_event(cm_event(process, type)) == 0);
}

static void cm_objects(struct process *process)
{
    process->context = process->id->verbs;
    process->pd = process->id->pd;
    make_objects(process);
    struct ibv_qp_init_attr attr = qp_attr(process);
    CHECK(rdma_create_qp(process->id, process->pd, &attr) == 0);
    process->qp = process->id->qp;
}

static struct rdma_conn_param param_with(const char *data)
{
    return (struct rdma_conn_param){ .private_data = data,
                                     .private_data_len = (uint8_t)(strlen(data) + 1),
                                     .responder_resources = RDMA_MAX_RESP_RES,
                                     .initiator_depth = RDMA_MAX_INIT_DEPTH,
                                     .retry_count = 7,
                                     .rnr_retry_count = 7 };
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = port };
}

static void cm_active(struct process *process)
{
    uint16_t port;
    hear(process, &port, sizeof(port));
    struct sockaddr_in target = loopback(port);
    process->cm = rdma_create_event_channel();
    CHECK(process->cm != NULL);
    CHECK(rdma_create_id(process->cm, &process->id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(process->id, NULL, (struct sockaddr *)&target, 1000) == 0);
    cm_expect(process, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_resolve_route(process->id, 1000) == 0);
    cm_expect(process, RDMA_CM_EVENT_ROUTE_RESOLVED);
    cm_objects(process);
    struct rdma_conn_param param = param_with("hello");
    CHECK(rdma_connect(process->id, &param) == 0);
    struct rdma_cm_event *event = cm_event(process, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(strcmp(event->param.conn.private_data, "welcome") == 0);
    CHECK(rdma_ack_cm_event(event) == 0);
    swap_cards(process);
}

static void cm_passive(struct process *process)
{
    struct sockaddr_in any = loopback(0);
    struct rdma_cm_id *listener;
    process->cm = rdma_create_event_channel();
    CHECK(process->cm != NULL);
    CHECK(rdma_create_id(process->cm, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0);
    CHECK(listener->verbs != NULL);
    CHECK(rdma_listen(listener, 8) == 0);
    uint16_t port = rdma_get_src_port(listener);
    tell(process, &port, sizeof(port));
    struct rdma_cm_event *event = cm_event(process, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(strcmp(event->param.conn.private_data, "hello") == 0);
    process->id = event->id;
    CHECK(rdma_ack_cm_event(event) == 0);
    cm_objects(process);
    struct rdma_conn_param param = param_with("welcome");
    CHECK(rdma_accept(process->id, &param) == 0);
    cm_expect(process, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(rdma_destroy_id(listener) == 0);
    swap_cards(process);
}

static bool over_iwarp(const struct process *process)
{
    return process->context->device->transport_type == IBV_TRANSPORT_IWARP;
}

static void active_talks(struct process *process)
{
    enum { SIZE = 1 << 20 };
    cm_active(process);
    fill(process, 0, SIZE, 5);
    meet(process); /* the receive is posted */
    post(process, IBV_WR_RDMA_WRITE, 1, 0, SIZE, SIZE);
    post(process, IBV_WR_SEND, 2, 0, SIZE, 0);
    expect(process, 1, IBV_WC_SUCCESS);
    expect(process, 2, IBV_WC_SUCCESS);
    post(process, IBV_WR_RDMA_READ, 3, SIZE, SIZE, SIZE);
    expect(process, 3, IBV_WC_SUCCESS);
    CHECK(filled(process, SIZE, SIZE, 5));
    meet(process);
    CHECK(rdma_disconnect(process->id) == 0);
    cm_expect(process, RDMA_CM_EVENT_DISCONNECTED);
    end_objects(process);
}

static void passive_listens(struct process *process)
{
    enum { SIZE = 1 << 20 };
    cm_passive(process);
    post_receive(process, 1, 0, SIZE);
    meet(process);
    expect(process, 1, IBV_WC_SUCCESS);
    CHECK(filled(process, 0, SIZE, 5) && filled(process, SIZE, SIZE, 5));
    post_receive(process, 2, 0, SIZE);
    meet(process);
    cm_expect(process, RDMA_CM_EVENT_DISCONNECTED);
    if (!over_iwarp(process)) {
        CHECK(rdma_disconnect(process->id) == 0);
    }
    expect(process, 2, IBV_WC_WR_FLUSH_ERR);
    end_objects(process);
}

static void processes_connect_by_the_connection_manager(void **state)
{
    (void)state;
    two_processes("link=iwarp", active_talks, passive_listens);
    two_processes("link=roce", active_talks, passive_listens);
    two_processes("link=ib", active_talks, passive_listens);
    two_processes("link=iwarp,freedoms=all,packet=64k", active_talks, passive_listens);
}

static void passive_dies(struct process *process)
{
    cm_passive(process);
    meet(process);
    (void)raise(SIGKILL);
}

static void active_is_told(struct process *process)
{
    cm_active(process);
    post(process, IBV_WR_RDMA_WRITE, 1, 0, 8, 0);
    expect(process, 1, IBV_WC_SUCCESS);
    meet(process);
    cm_expect(process, RDMA_CM_EVENT_DISCONNECTED);
    end_objects(process);
}

static void the_end_of_a_connected_process_is_told(void **state)
{
    (void)state;
    one_dies("link=iwarp", active_is_told, passive_dies);
    one_dies("link=roce", active_is_told, passive_dies);
}

static void finds_nobody(struct process *process)
{
    struct sockaddr_in any = loopback(0);
    struct rdma_cm_id *listener;
    process->cm = rdma_create_event_channel();
    CHECK(rdma_create_id(process->cm, &listener, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0);
    uint16_t port = rdma_get_src_port(listener);
    CHECK(rdma_destroy_id(listener) == 0);
    struct sockaddr_in target = loopback(port);
    CHECK(rdma_create_id(process->cm, &process->id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(process->id, NULL, (struct sockaddr *)&target, 1000) == 0);
    cm_expect(process, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(rdma_resolve_route(process->id, 1000) == 0);
    cm_expect(process, RDMA_CM_EVENT_ROUTE_RESOLVED);
    cm_objects(process);
    struct rdma_conn_param param = param_with("hello");
    if (process->context->device->transport_type == IBV_TRANSPORT_IWARP) { /* in the call */
        CHECK(rdma_connect(process->id, &param) == -1 && errno == ECONNREFUSED);
    } else {
        CHECK(rdma_connect(process->id, &param) == 0);
        cm_expect(process, RDMA_CM_EVENT_REJECTED);
    }
    end_objects(process);
}

static void where_nobody_listens_a_request_is_rejected(void **state)
{
    (void)state;
    two_processes("link=iwarp", finds_nobody, finds_nobody);
    two_processes("link=roce", finds_nobody, finds_nobody);
}

/* --------------------------------------------------------------------------------------- faults */

static enum ibv_event_type async_event(struct process *process)
{
    struct ibv_async_event event;
    struct pollfd readable = { .fd = process->context->async_fd, .events = POLLIN };
    CHECK(poll(&readable, 1, PATIENCE_MS) == 1);
    CHECK(ibv_get_async_event(process->context, &event) == 0);
    ibv_ack_async_event(&event);
    return event.event_type;
}

static void sees_link_flap(struct process *process)
{
    ready(process);
    CHECK(async_event(process) == IBV_EVENT_PORT_ERR);
    CHECK(async_event(process) == IBV_EVENT_PORT_ACTIVE);
    meet(process);
    post(process, IBV_WR_RDMA_WRITE, 1, 0, 64, 0);
    expect(process, 1, IBV_WC_SUCCESS);
    meet(process);
    end_objects(process);
}

static void gets_cut_off(struct process *process)
{
    ready(process);
    struct ibv_wc wc;
    uint64_t id = 0;
    do { /* until the cut, all succeeds */
        post(process, IBV_WR_RDMA_WRITE, ++id, 0, 64, 0);
        wc = next(process);
        CHECK(wc.wr_id == id);
    } while (wc.status == IBV_WC_SUCCESS);
    CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
    meet(process);
    end_objects(process);
}

static void loses_device(struct process *process)
{
    ready(process);
    CHECK(async_event(process) == IBV_EVENT_DEVICE_FATAL);
    struct ibv_device_attr attr;
    CHECK(ibv_query_device(process->context, &attr) == EIO);
    meet(process);
    end_objects(process);
}

static void cannot_register(struct process *process)
{
    static char memory[64];
    open_device(process);
    struct ibv_pd *pd = ibv_alloc_pd(process->context);
    CHECK(ibv_reg_mr(pd, memory, sizeof(memory), 0) != NULL);
    CHECK(ibv_reg_mr(pd, memory, sizeof(memory), 0) == NULL && errno == ENOMEM);
    CHECK(ibv_reg_mr(pd, memory, sizeof(memory), 0) != NULL);
}

static void faults_come_by_the_environment(void **state)
{
    (void)state;
    two_processes("link=ib,at=400ms:port_down+500ms:port_up", sees_link_flap, sees_link_flap);
    two_processes("link=roce,at=300ms:cut", gets_cut_off, gets_cut_off);
    two_processes("link=roce,at=400ms:remove", loses_device, loses_device);
    two_processes("link=roce,fail=reg_mr:2:12", cannot_register, cannot_register);
}

/* ---------------------------------------------------------------------------------------- forks */

static void forks(struct process *process)
{
    ready(process);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        /* The parent's objects are dead here: no entry, no packet, no wait. */
        struct ibv_wc wc;
        CHECK(ibv_poll_cq(process->cq, 1, &wc) == 0);
        post(process, IBV_WR_RDMA_WRITE, 1, 0, 64, 0);
        CHECK(ibv_poll_cq(process->cq, 1, &wc) == 0);
        struct process fresh = { .wire = -1 };
        open_device(&fresh);
        make_objects(&fresh);
        struct ibv_qp_init_attr attr = qp_attr(&fresh);
        fresh.qp = ibv_create_qp(fresh.pd, &attr);
        CHECK(fresh.qp != NULL && fresh.qp->qp_num >> 14 != process->qp->qp_num >> 14);
        end_objects(&fresh);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    meet(process);
    post(process, IBV_WR_RDMA_WRITE, 1, 0, 64, 0);
    expect(process, 1, IBV_WC_SUCCESS);
    meet(process);
    end_objects(process);
}

static void the_child_of_a_fork_begins_anew_and_the_parent_goes_on(void **state)
{
    (void)state;
    if (THREAD_SANITIZER) {
        skip(); /* no thread sanitizer support in the child of a threaded process */
    }
    two_processes("link=roce", forks, forks);
}

static void finds_no_device(struct process *process)
{
    (void)process;
    CHECK(freopen("/dev/null", "w", stderr) != NULL); /* destination of its report */
    CHECK(setenv("SIM_VERBS", "link=avian", 1) == 0);
    errno = 0;
    CHECK(ibv_get_device_list(NULL) == NULL && errno == ENOSYS);
}

static void a_wrong_description_is_no_device(void **state)
{
    (void)state;
    two_processes("link=roce", finds_no_device, finds_no_device);
}

static void has_two_devices(struct process *process)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(count == 2);
    CHECK(strcmp(ibv_get_device_name(list[0]), "one") == 0);
    CHECK(list[1]->transport_type == IBV_TRANSPORT_IWARP);
    ibv_free_device_list(list);
    meet(process);
}

static void several_devices_can_be_described(void **state)
{
    (void)state;
    two_processes("link=ib,name=one;link=iwarp", has_two_devices, has_two_devices);
}

static void is_alone_in_virtual_time(struct process *process)
{
    open_device(process);
    make_objects(process);
    struct ibv_qp_init_attr attr = qp_attr(process);
    process->qp = ibv_create_qp(process->pd, &attr);
    CHECK(process->qp != NULL);
    process->theirs = card_of(process); /* to itself */
    connect_by_hand(process);
    struct sim_world *world = sim_world_of(sim_device_of(process->context));
    fill(process, 0, 4096, 3);
    post(process, IBV_WR_RDMA_WRITE, 1, 0, 4096, 8192);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(process->cq, 1, &wc) == 0);
    CHECK(sim_advance(world, 2000000) > 0);
    CHECK(ibv_poll_cq(process->cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(filled(process, 8192, 4096, 3));
    end_objects(process);
}

static void a_process_may_be_alone_in_virtual_time(void **state)
{
    (void)state;
    two_processes("link=roce,time=virtual,threads=no,latency=1ms", is_alone_in_virtual_time,
                  is_alone_in_virtual_time);
}

/* ----------------------------------------------------------------- real time within one process */

static void one_process_in_real_time(void **state)
{
    (void)state;
    struct process ends[2] = { { .wire = -1, .first = true }, { .wire = -1 } };
    struct sim_world *world = sim_world_create("time=real,latency=200us,freedoms=all");
    assert_non_null(world);
    for (size_t i = 0; i < 2; i++) {
        struct sim_host *host = sim_host_add(world);
        assert_non_null(sim_device_add(host, "link=roce"));
        sim_use_host(host);
        open_device(&ends[i]);
        make_objects(&ends[i]);
        struct ibv_qp_init_attr attr = qp_attr(&ends[i]);
        ends[i].qp = ibv_create_qp(ends[i].pd, &attr);
        assert_non_null(ends[i].qp);
    }
    for (size_t i = 0; i < 2; i++) {
        ends[i].theirs = card_of(&ends[1 - i]);
    }
    for (size_t i = 0; i < 2; i++) {
        connect_by_hand(&ends[i]);
    }
    for (unsigned int round = 0; round < 50; round++) {
        fill(&ends[0], 0, 3000, round);
        post_receive(&ends[1], 1, 0, 3000);
        post(&ends[0], IBV_WR_SEND, 2, 0, 3000, 0);
        expect(&ends[1], 1, IBV_WC_SUCCESS);
        assert_true(filled(&ends[1], 0, 3000, round));
        expect(&ends[0], 2, IBV_WC_SUCCESS);
    }
    end_objects(&ends[0]);
    end_objects(&ends[1]);
    assert_int_equal(sim_world_destroy(world), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_meet_over_infiniband_and_roce),
        cmocka_unit_test(the_last_object_takes_thread_and_sockets_along),
        cmocka_unit_test(messages_keep_order_and_bytes_whatever_the_liberties),
        cmocka_unit_test(a_dead_process_answers_nothing),
        cmocka_unit_test(processes_connect_by_the_connection_manager),
        cmocka_unit_test(the_end_of_a_connected_process_is_told),
        cmocka_unit_test(where_nobody_listens_a_request_is_rejected),
        cmocka_unit_test(faults_come_by_the_environment),
        cmocka_unit_test(the_child_of_a_fork_begins_anew_and_the_parent_goes_on),
        cmocka_unit_test(a_wrong_description_is_no_device),
        cmocka_unit_test(several_devices_can_be_described),
        cmocka_unit_test(a_process_may_be_alone_in_virtual_time),
        cmocka_unit_test(one_process_in_real_time),
    };
    return cmocka_run_group_tests_name("sim_processes", tests, NULL, NULL);
}
