/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * libfabric, for comparison, through its public interface. Reliable datagram endpoints
 * with an address vector, manual progress, registered memory, injected small messages, and a
 * completion queue that is polled.
 *
 *   peer_libfabric tcp|shm OP SIZE SECONDS
 *     pingpong    half a round trip in us
 *     rate        messages/s, WINDOW receives posted
 *     stream      bytes/s of sends, WINDOW under way
 *     write       bytes/s of one-sided writes, WINDOW under way
 *     read        bytes/s of one-sided reads, WINDOW under way
 *     fetch_add   a whole round trip in us
 *     fetch_adds  operations/s, WINDOW under way
 *
 * Over TCP it takes the provider "net" of libfabric 1.17, which was faster than "tcp" and became
 * "tcp" in 1.18 (its release notes). If there is no "net", or the operation is not native there
 * (atomics), it takes "tcp".
 */
#include "tests/bench/bench.h"

#include <arpa/inet.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 32, LOOKS = 64, NAME_MAX_BYTES = 256, TAKEN_MAX = 32 };

/* The kind of completion that a request asked for. */
enum kind { SENT, RECEIVED, FETCHED, KINDS };

struct request {
    struct fi_context2 context; /* the provider's, while the request is under way */
    enum kind kind;
};

struct side {
    struct bench *bench;
    struct fi_info *info;
    struct fid_domain *domain;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;
    void *descriptor;
    fi_addr_t peer;
    uint64_t remote_address;
    uint64_t remote_key;
    size_t size;
    uint8_t *out; /* one registration: out, in, then the word for atomics */
    uint8_t *in;
    uint64_t taken[KINDS]; /* completions so far */
    struct request requests[KINDS][WINDOW];
    uint64_t posted[KINDS];
};

static void must(long error, const char *what)
{
    if (error != 0) {
        bench_fail("%s: %s", what, fi_strerror((int)-error));
    }
}

/* Drives the library and counts what has completed. */
static void poll_once(struct side *side)
{
    struct fi_cq_entry entries[TAKEN_MAX];
    ssize_t got = fi_cq_read(side->cq, entries, TAKEN_MAX);
    if (got < 0 && got != -FI_EAGAIN) {
        struct fi_cq_err_entry error = { 0 };
        (void)fi_cq_readerr(side->cq, &error, 0);
        bench_fail("a request failed: %s", fi_strerror(error.err));
    }
    for (ssize_t i = 0; i < got; i++) {
        side->taken[((struct request *)entries[i].op_context)->kind]++;
    }
}

static struct request *next_request(struct side *side, enum kind kind)
{
    struct request *request = &side->requests[kind][side->posted[kind]++ % WINDOW];
    request->kind = kind;
    return request;
}

static void wait_for(struct side *side, enum kind kind, uint64_t count)
{
    while (side->taken[kind] < count) {
        poll_once(side);
    }
}

/* Closes the endpoint; otherwise the shm provider would leave its segment in /dev/shm. */
static void finish(struct side *side, double value, uint64_t operations)
{
    bench_meet(side->bench);
    must(fi_close(&side->ep->fid), "fi_close");
    bench_finish(side->bench, value, operations);
}

static void post_receive(struct side *side)
{
    struct request *request = next_request(side, RECEIVED);
    ssize_t error;
    while ((error = fi_recv(side->ep, side->in, side->size, side->descriptor, FI_ADDR_UNSPEC,
                            request)) == -FI_EAGAIN) {
        poll_once(side);
    }
    must(error, "fi_recv");
}

static void put(struct side *side, uint8_t last)
{
    ssize_t error;
    side->out[0] = last;
    if (side->size <= side->info->tx_attr->inject_size) {
        while ((error = fi_inject(side->ep, side->out, side->size, side->peer)) == -FI_EAGAIN) {
            poll_once(side);
        }
        must(error, "fi_inject");
        return;
    }
    wait_for(side, SENT, side->posted[SENT] < WINDOW ? 0 : side->posted[SENT] - WINDOW + 1);
    struct request *request = next_request(side, SENT);
    while ((error = fi_send(side->ep, side->out, side->size, side->descriptor, side->peer,
                            request)) == -FI_EAGAIN) {
        poll_once(side);
    }
    must(error, "fi_send");
}

static uint8_t get(struct side *side, uint64_t number)
{
    wait_for(side, RECEIVED, number);
    uint8_t last = side->in[0];
    post_receive(side);
    return last;
}

static void ping(void *user, bool last)
{
    struct side *side = user;
    uint64_t number = side->taken[RECEIVED] + 1;
    put(side, last);
    wait_for(side, SENT, side->posted[SENT]);
    (void)get(side, number);
}

static void run_ping_pong(struct side *side)
{
    double value = 0;
    uint64_t rounds = 0;
    post_receive(side);
    bench_meet(side->bench);
    if (side->bench->side == 0) {
        value = bench_ping_pong(side->bench, ping, side, &rounds);
    } else {
        uint8_t last = 0;
        bench_start(side->bench);
        for (uint64_t number = 1; last == 0; number++) {
            last = get(side, number);
            put(side, last);
            wait_for(side, SENT, side->posted[SENT]);
        }
    }
    finish(side, value, rounds * 2);
}

/* Serves the one-sided requests of side 0, or takes its messages, until side 0 has finished. */
static void serve_until_told(struct side *side, bool messages)
{
    uint64_t number = 1;
    if (messages) {
        while (get(side, number) == 0) {
            number++;
        }
    } else {
        wait_for(side, RECEIVED, 1);
    }
    put(side, 1);
    wait_for(side, SENT, side->posted[SENT]);
}

/* All receives share one buffer. Only the flag in the first byte of the last message matters, which
 * no other message overwrites. */
static void run_messages(struct side *side, bool bytes_per_second)
{
    uint64_t count = 0;
    for (int i = 0; i < WINDOW; i++) {
        post_receive(side);
    }
    bench_meet(side->bench);
    bench_start(side->bench);
    if (side->bench->side == 0) {
        uint64_t looks = side->size < 4096 ? LOOKS : 1;
        while (!bench_is_over(side->bench)) {
            for (uint64_t i = 0; i < looks; i++) {
                put(side, 0);
            }
            count += looks;
        }
        wait_for(side, SENT, side->posted[SENT]); /* the sends read the byte of the flag */
        put(side, 1);
        count++;
        wait_for(side, RECEIVED, 1);
    } else {
        serve_until_told(side, true);
    }
    bench_stop(side->bench);
    double rate = (double)count / side->bench->elapsed;
    finish(side, bytes_per_second ? rate * (double)side->size : rate, count);
}

static ssize_t post_one_sided(struct side *side, const char *op, struct request *request)
{
    if (op[0] == 'w') {
        return fi_write(side->ep, side->out, side->size, side->descriptor, side->peer,
                        side->remote_address, side->remote_key, request);
    }
    if (op[0] == 'r') {
        return fi_read(side->ep, side->in, side->size, side->descriptor, side->peer,
                       side->remote_address, side->remote_key, request);
    }
    uint64_t one = 1;
    return fi_fetch_atomic(side->ep, &one, 1, side->descriptor, side->in, side->descriptor,
                           side->peer, side->remote_address, side->remote_key, FI_UINT64, FI_SUM,
                           request);
}

static void start_one_sided(struct side *side, const char *op)
{
    struct request *request = next_request(side, FETCHED);
    ssize_t error;
    while ((error = post_one_sided(side, op, request)) == -FI_EAGAIN) {
        poll_once(side);
    }
    must(error, op);
}

static void fetch_round(void *user, bool last)
{
    struct side *side = user;
    (void)last;
    start_one_sided(side, "fetch_add");
    wait_for(side, FETCHED, side->posted[FETCHED]);
}

static void run_one_sided(struct side *side, const char *op)
{
    double value = 0;
    uint64_t count = 0;
    post_receive(side);
    bench_meet(side->bench);
    if (side->bench->side == 1) {
        bench_start(side->bench);
        serve_until_told(side, false);
    } else if (strcmp(op, "fetch_add") == 0) {
        value = bench_round_trips(side->bench, fetch_round, side, &count);
    } else {
        bench_start(side->bench);
        while (!bench_is_over(side->bench)) {
            for (uint64_t i = 0; i < (side->size < 4096 ? LOOKS : 1); i++) {
                wait_for(side, FETCHED, count < WINDOW ? 0 : count - WINDOW + 1);
                start_one_sided(side, op);
                count++;
            }
        }
        wait_for(side, FETCHED, count);
    }
    if (side->bench->side == 0) {
        put(side, 1);
        wait_for(side, RECEIVED, 1);
        if (count > 0 && value == 0) {
            bench_stop(side->bench);
            value = (double)count / side->bench->elapsed *
                    (strcmp(op, "fetch_adds") == 0 ? 1.0 : (double)side->size);
        }
    }
    finish(side, value, count);
}

static struct fi_info *find(const char *provider, uint64_t caps)
{
    struct fi_info *info = NULL;
    struct fi_info *hints = fi_allocinfo();
    if (hints == NULL) {
        bench_fail("out of memory");
    }
    hints->caps = caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->msg_order = (caps & FI_ATOMIC) != 0 ? 0 : FI_ORDER_SAS | FI_ORDER_SAW;
    hints->fabric_attr->prov_name = strdup(provider);
    bool shm = strcmp(provider, "shm") == 0;
    if (fi_getinfo(FI_VERSION(1, 14), shm ? NULL : "127.0.0.1", NULL, shm ? 0 : FI_SOURCE, hints,
                   &info) != 0) {
        info = NULL;
    }
    fi_freeinfo(hints);
    return info;
}

static void open_endpoint(struct side *side, const char *path, const char *op)
{
    bool atomic = strncmp(op, "fetch_add", 9) == 0;
    bool shm = strcmp(path, "shm") == 0;
    uint64_t caps = FI_MSG | FI_RMA | (atomic ? (uint64_t)FI_ATOMIC : 0);
    if (shm || !atomic) {
        side->info = find(shm ? "shm" : "net", caps);
    }
    if (side->info == NULL && !shm) {
        side->info = find("tcp", caps);
    }
    if (side->info == NULL) {
        bench_skip("this libfabric has no %s endpoint for %s", path, op);
    }
    struct fid_fabric *fabric = NULL;
    struct fid_av *av = NULL;
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_CONTEXT, .size = 1024 };
    struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = 4 };
    must(fi_fabric(side->info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, side->info, &side->domain, NULL), "fi_domain");
    must(fi_cq_open(side->domain, &cq_attr, &side->cq, NULL), "fi_cq_open");
    must(fi_av_open(side->domain, &av_attr, &av, NULL), "fi_av_open");
    must(fi_endpoint(side->domain, side->info, &side->ep, NULL), "fi_endpoint");
    must(fi_ep_bind(side->ep, &av->fid, 0), "fi_ep_bind");
    must(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(fi_enable(side->ep), "fi_enable");

    struct {
        uint8_t name[NAME_MAX_BYTES];
        uint64_t address;
        uint64_t key;
    } mine = { 0 }, theirs;
    size_t length = sizeof(mine.name);
    must(fi_mr_reg(side->domain, side->out, 2 * side->size,
                   FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                   (uint64_t)bench_memory(side->bench), 0, &side->mr, NULL),
         "fi_mr_reg");
    side->descriptor = fi_mr_desc(side->mr);
    mine.key = fi_mr_key(side->mr);
    bool by_address = (side->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    mine.address = (by_address ? (uint64_t)side->out : 0) + side->size;
    must(fi_getname(&side->ep->fid, mine.name, &length), "fi_getname");
    bench_exchange(side->bench, &mine, &theirs, sizeof(mine));
    side->remote_address = theirs.address;
    side->remote_key = theirs.key;
    if (fi_av_insert(av, theirs.name, 1, &side->peer, 0, NULL) != 1) {
        bench_fail("fi_av_insert");
    }
}

int main(int argc, char **argv)
{
    if (argc != 5 || (strcmp(argv[1], "tcp") != 0 && strcmp(argv[1], "shm") != 0)) {
        bench_fail("usage: peer_libfabric tcp|shm pingpong|rate|stream|write|read|fetch_add|"
                   "fetch_adds SIZE SECONDS");
    }
    struct bench bench;
    const char *op = argv[2];
    static struct side side;
    bench_fork(&bench, strtod(argv[4], NULL), 0);
    side.bench = &bench;
    side.size = bench_size(argv[3]);
    side.out = bench_buffer(2 * side.size);
    side.in = side.out + side.size;
    memset(side.out, 0, 2 * side.size);
    open_endpoint(&side, argv[1], op);
    bench_meet(&bench);
    if (strcmp(op, "pingpong") == 0) {
        run_ping_pong(&side);
    } else if (strcmp(op, "rate") == 0 || strcmp(op, "stream") == 0) {
        run_messages(&side, op[0] == 's');
    } else if (strcmp(op, "write") == 0 || strcmp(op, "read") == 0 ||
               strcmp(op, "fetch_add") == 0 || strcmp(op, "fetch_adds") == 0) {
        run_one_sided(&side, op);
    } else {
        bench_fail("there is no '%s'", op);
    }
    return 0;
}
