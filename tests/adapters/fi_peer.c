/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A bare program of libfabric: message endpoints of the provider rdmux, in two processes.
 *
 *   fi_peer CASE [RDMUX]   forks: the parent listens, the child connects. RDMUX_FI_ADDRESS is the
 *                          address of both, 127.0.0.1 without it
 *
 * Cases:
 *   keys      reads and writes by key reach exactly the bytes of the region; a key that was closed,
 *             one never given, and an access beyond the region, or beyond the bytes that are
 *             registered anew under a closed key, change nothing
 *   reject    the data of a rejection reaches the connector
 *   dies      the connector is killed amid reads of its memory: each request ends once, the other
 *             side hears FI_SHUTDOWN, and takes no request any more
 *   explain   the command RDMUX explains the path to the listener, whose program hears nothing of it
 *   unchanged the provider, loaded and used without libfabric's other providers, leaves signals,
 *             environment, code and threads of the process as they were; one process
 *   waits     completions wake a reader that sleeps in fi_cq_sread() and one in poll(2)
 */
#include "process_state.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_prov.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 16, LIMIT_MS = 60000 };

/* What the parent tells the child by its first message. */
struct offer {
    uint64_t address, key, closed_address, closed_key, again_key, length;
};

struct side {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_pep *pep;
};

static const char *who = "parent";

static void fail(const char *what, long code)
{
    (void)fprintf(stderr, "%s: %s: %ld %s\n", who, what, code,
                  code < 0 ? fi_strerror((int)-code) : "");
    exit(1);
}

static void check(const char *what, long code)
{
    if (code < 0) {
        fail(what, code);
    }
}

static void require(bool holds, const char *what)
{
    if (!holds) {
        fail(what, 0);
    }
}

static void open_side(struct side *side, bool listens, const struct sockaddr_in *to)
{
    const char *given = getenv("RDMUX_FI_ADDRESS");
    const char *node = given != NULL ? given : "127.0.0.1";
    struct fi_info *hints = fi_allocinfo();
    struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_FD };
    require(hints != NULL, "no memory");
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = FI_MSG | FI_RMA;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup("rdmux");
    if (to != NULL) {
        hints->dest_addr = malloc(sizeof(*to));
        require(hints->dest_addr != NULL, "no memory");
        memcpy(hints->dest_addr, to, sizeof(*to));
        hints->dest_addrlen = sizeof(*to);
    }
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), listens ? node : NULL, listens ? "0" : NULL,
                                   listens ? FI_SOURCE : 0, hints, &side->info));
    fi_freeinfo(hints);
    check("fi_fabric", fi_fabric(side->info->fabric_attr, &side->fabric, NULL));
    check("fi_domain", fi_domain(side->fabric, side->info, &side->domain, NULL));
    check("fi_eq_open", fi_eq_open(side->fabric, &eq_attr, &side->eq, NULL));
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD };
    check("fi_cq_open", fi_cq_open(side->domain, &cq_attr, &side->cq, NULL));
}

static void open_ep(struct side *side, struct fi_info *info)
{
    check("fi_endpoint", fi_endpoint(side->domain, info, &side->ep, NULL));
    check("bind eq", fi_ep_bind(side->ep, &side->eq->fid, 0));
    check("bind cq", fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV));
    check("fi_enable", fi_enable(side->ep));
}

static void close_side(struct side *side)
{
    check("close ep", side->ep != NULL ? fi_close(&side->ep->fid) : 0);
    check("close pep", side->pep != NULL ? fi_close(&side->pep->fid) : 0);
    check("close cq", fi_close(&side->cq->fid));
    check("close eq", fi_close(&side->eq->fid));
    check("close domain", fi_close(&side->domain->fid));
    check("close fabric", fi_close(&side->fabric->fid));
    fi_freeinfo(side->info);
}

/* Waits for an event. */
static void expect_event(struct side *side, uint32_t wanted, struct fi_info **info)
{
    struct fi_eq_cm_entry entry; /* data that does not fit is left out */
    uint32_t event = UINT32_MAX;
    const ssize_t got = fi_eq_sread(side->eq, &event, &entry, sizeof(entry), LIMIT_MS, 0);
    check("fi_eq_sread", got);
    require(event == wanted, "another event");
    if (info != NULL) {
        *info = entry.info;
    }
}

/* Waits for a completion with this context, and returns its error, 0 if it succeeded. */
static int expect_end(struct side *side, void *context)
{
    struct fi_cq_data_entry entry = { 0 };
    ssize_t got = fi_cq_sread(side->cq, &entry, 1, NULL, LIMIT_MS);
    if (got == -FI_EAVAIL) {
        struct fi_cq_err_entry error = { 0 };
        check("fi_cq_readerr", fi_cq_readerr(side->cq, &error, 0));
        require(error.op_context == context, "the failure of another request");
        return error.err;
    }
    check("fi_cq_sread", got);
    require(got == 1 && entry.op_context == context, "another completion");
    return 0;
}

static void accept_peer(struct side *side)
{
    struct fi_info *info = NULL;
    expect_event(side, FI_CONNREQ, &info);
    open_ep(side, info);
    check("fi_accept", fi_accept(side->ep, NULL, 0));
    expect_event(side, FI_CONNECTED, NULL);
    fi_freeinfo(info);
}

static void connect_peer(struct side *side, const struct sockaddr_in *to)
{
    open_side(side, false, to);
    open_ep(side, side->info);
    check("fi_connect", fi_connect(side->ep, side->info->dest_addr, NULL, 0));
    expect_event(side, FI_CONNECTED, NULL);
}

static void send_bytes(struct side *side, void *bytes, size_t size)
{
    check("fi_send", fi_send(side->ep, bytes, size, NULL, 0, bytes));
    require(expect_end(side, bytes) == 0, "a send failed");
}

static void receive_bytes(struct side *side, void *bytes, size_t size)
{
    check("fi_recv", fi_recv(side->ep, bytes, size, NULL, 0, bytes));
    require(expect_end(side, bytes) == 0, "a receive failed");
}

/* ----------------------------------------------------------------------------------------- keys */

static void keys_parent(struct side *side)
{
    static uint8_t bytes[3 * SIZE], closed[SIZE];
    struct fid_mr *mr, *old, *again;
    char done[4];
    accept_peer(side);
    memset(bytes, 1, sizeof(bytes));
    memset(closed, 1, sizeof(closed));
    check("fi_mr_reg", fi_mr_reg(side->domain, bytes + SIZE, SIZE, FI_REMOTE_READ | FI_REMOTE_WRITE,
                                 0, 0, 0, &mr, NULL));
    check("fi_mr_reg", fi_mr_reg(side->domain, closed, SIZE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0,
                                 0, &old, NULL));
    struct offer offer = { .address = (uintptr_t)(bytes + SIZE),
                           .key = fi_mr_key(mr),
                           .closed_address = (uintptr_t)closed,
                           .closed_key = fi_mr_key(old),
                           .length = SIZE };
    require(offer.key != offer.closed_key, "two regions have one key");
    check("fi_close", fi_close(&old->fid));
    /* The second half once more, which may get the key that was closed. */
    check("fi_mr_reg", fi_mr_reg(side->domain, closed + SIZE / 2, SIZE / 2,
                                 FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &again, NULL));
    offer.again_key = fi_mr_key(again);
    send_bytes(side, &offer, sizeof(offer));
    receive_bytes(side, done, sizeof(done));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        const bool is_written = i >= SIZE && i < (size_t)2 * SIZE;
        require(bytes[i] == (is_written ? 9 : 1), "a byte is wrong");
    }
    check("fi_close", fi_close(&mr->fid));
    expect_event(side, FI_SHUTDOWN, NULL);
    check("fi_close", fi_close(&again->fid));
    for (size_t i = 0; i < sizeof(closed); i++) {
        require(closed[i] == (i < sizeof(closed) / 2 ? 1 : 9),
                "a byte of a closed region is wrong");
    }
}

/* Over shm a peer copies by itself, and is trusted to use no closed key (docs/SECURITY.md). */
static bool is_shm(void)
{
    const char *paths = getenv("RDMUX_PATHS");
    return paths != NULL && strcmp(paths, "shm") == 0;
}

/* Posts until the key's look-up is done; the result of the post that was not -FI_EAGAIN. */
static ssize_t post_write(struct side *side, uint8_t *bytes, size_t size, uint64_t address,
                          uint64_t key)
{
    for (;;) {
        const ssize_t result = fi_write(side->ep, bytes, size, NULL, 0, address, key, bytes);
        if (result != -FI_EAGAIN) {
            return result;
        }
        (void)fi_cq_read(side->cq, NULL, 0);
    }
}

static void keys_child(struct side *side, const struct sockaddr_in *to)
{
    static uint8_t bytes[SIZE];
    struct offer offer;
    connect_peer(side, to);
    receive_bytes(side, &offer, sizeof(offer));
    memset(bytes, 9, sizeof(bytes));
    require(post_write(side, bytes, SIZE, offer.address + 1, offer.key) < 0,
            "a write beyond the region was taken");
    require(post_write(side, bytes, SIZE, offer.address - 1, offer.key) < 0,
            "a write before the region was taken");
    require(post_write(side, bytes, 8, offer.address, offer.key + (1 << 13)) < 0,
            "a key that does not exist was taken");
    require(post_write(side, bytes, 8, offer.address, UINT64_MAX) < 0,
            "a key that cannot exist was taken");
    check("fi_write", post_write(side, bytes, SIZE, offer.address, offer.key));
    require(expect_end(side, bytes) == 0, "a write failed");
    check("fi_write",
          post_write(side, bytes, SIZE / 2, offer.closed_address + SIZE / 2, offer.again_key));
    require(expect_end(side, bytes) == 0, "a write to bytes that were registered again failed");
    memset(bytes, 0, sizeof(bytes));
    check("fi_read", fi_read(side->ep, bytes, SIZE, NULL, 0, offer.address, offer.key, bytes));
    require(expect_end(side, bytes) == 0, "a read failed");
    for (size_t i = 0; i < SIZE; i++) {
        require(bytes[i] == 9, "a byte that was read is wrong");
    }
    send_bytes(side, memcpy(bytes, "done", 4), 4);
    if (is_shm() || post_write(side, bytes, SIZE, offer.closed_address, offer.closed_key) < 0) {
        check("fi_shutdown", fi_shutdown(side->ep, 0));
    } else {
        (void)expect_end(side, bytes); /* the bytes have left; the other side ends the endpoint */
    }
    expect_event(side, FI_SHUTDOWN, NULL);
}

/* --------------------------------------------------------------------------------------- reject */

static void reject_parent(struct side *side)
{
    struct fi_info *info = NULL;
    expect_event(side, FI_CONNREQ, &info);
    check("fi_reject", fi_reject(side->pep, info->handle, "no room", 7));
    fi_freeinfo(info);
}

static void reject_child(struct side *side, const struct sockaddr_in *to)
{
    struct fi_eq_err_entry error = { 0 };
    struct fi_eq_cm_entry entry;
    uint32_t event;
    open_side(side, false, to);
    open_ep(side, side->info);
    check("fi_connect", fi_connect(side->ep, side->info->dest_addr, NULL, 0));
    const ssize_t got = fi_eq_sread(side->eq, &event, &entry, sizeof(entry), LIMIT_MS, 0);
    require(got == -FI_EAVAIL, "the connection was not refused");
    check("fi_eq_readerr", fi_eq_readerr(side->eq, &error, 0));
    require(error.err == FI_ECONNREFUSED && error.fid == &side->ep->fid, "another error");
    require(error.err_data_size == 7 && memcmp(error.err_data, "no room", 7) == 0,
            "the data of the rejection is wrong");
}

/* ----------------------------------------------------------------------------------------- dies */

/* Takes the end of a read or of the receive, and counts it. Returns whether there was one. */
static bool take_end(struct side *side, void *receive, unsigned *reads, bool *has_received)
{
    struct fi_cq_data_entry entry = { 0 };
    struct fi_cq_err_entry error = { 0 };
    const ssize_t got = fi_cq_read(side->cq, &entry, 1);
    if (got == -FI_EAGAIN) {
        return false;
    }
    if (got == -FI_EAVAIL) {
        check("fi_cq_readerr", fi_cq_readerr(side->cq, &error, 0));
        entry.op_context = error.op_context;
    } else {
        check("fi_cq_read", got);
    }
    if (entry.op_context == receive) {
        require(error.err != 0, "a receive from a dead peer succeeded");
        require(!*has_received, "a receive ended twice");
        *has_received = true;
    } else {
        ++*reads;
    }
    return true;
}

static void dies_parent(struct side *side, pid_t child)
{
    static uint8_t bytes[SIZE];
    enum { READS_BEFORE = 20 };
    struct offer offer;
    char unused[8];
    unsigned posted = 0;
    unsigned ended = 0;
    bool has_received = false;
    ssize_t result = 0;
    accept_peer(side);
    receive_bytes(side, &offer, sizeof(offer));
    check("fi_recv", fi_recv(side->ep, unused, sizeof(unused), NULL, 0, unused));
    while (result == 0 || result == -FI_EAGAIN) {
        result = fi_read(side->ep, bytes, SIZE, NULL, 0, offer.address, offer.key, bytes);
        posted += result == 0;
        while (take_end(side, unused, &ended, &has_received)) {
        }
        if (ended >= READS_BEFORE && child != 0) {
            (void)kill(child, SIGKILL);
            child = 0;
        }
    }
    while (ended < posted || !has_received) {
        (void)take_end(side, unused, &ended, &has_received);
    }
    require(ended == posted, "a read ended twice");
    expect_event(side, FI_SHUTDOWN, NULL);
    require(fi_send(side->ep, unused, sizeof(unused), NULL, 0, unused) < 0,
            "a send to a dead peer was taken");
}

static void dies_child(struct side *side, const struct sockaddr_in *to)
{
    static uint8_t bytes[SIZE];
    struct fid_mr *mr;
    connect_peer(side, to);
    check("fi_mr_reg", fi_mr_reg(side->domain, bytes, SIZE, FI_REMOTE_READ, 0, 0, 0, &mr, NULL));
    struct offer offer = { .address = (uintptr_t)bytes, .key = fi_mr_key(mr), .length = SIZE };
    send_bytes(side, &offer, sizeof(offer));
    for (;;) {
        (void)pause();
    }
}

/* -------------------------------------------------------------------------------------- explain */

static void explain_parent(struct side *side, pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        struct fi_eq_cm_entry entry;
        uint32_t event = 0;
        const ssize_t got = fi_eq_sread(side->eq, &event, &entry, sizeof(entry), 20, 0);
        require(got == -FI_EAGAIN, "an event of a connection that only asked");
    }
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rdmux explain failed");
}

static void explain_child(const char *rdmux, const struct sockaddr_in *to)
{
    char host[INET_ADDRSTRLEN] = "";
    char address[INET_ADDRSTRLEN + 8];
    (void)inet_ntop(AF_INET, &to->sin_addr, host, sizeof(host));
    (void)snprintf(address, sizeof(address), "%s:%u", host, (unsigned)ntohs(to->sin_port));
    (void)execl(rdmux, rdmux, "explain", address, "--json", (char *)NULL);
    fail(rdmux, -errno);
}

/* ------------------------------------------------------------------------------------ unchanged */

static void use_provider(struct fi_provider *provider)
{
    struct side side = { 0 };
    struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_FD };
    struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD };
    struct fid_mr *mr;
    static uint8_t bytes[SIZE];
    check("getinfo",
          provider->getinfo(FI_VERSION(1, 9), "127.0.0.1", "0", FI_SOURCE, NULL, &side.info));
    check("fabric", provider->fabric(side.info->fabric_attr, &side.fabric, NULL));
    check("fi_domain", fi_domain(side.fabric, side.info, &side.domain, NULL));
    check("fi_eq_open", fi_eq_open(side.fabric, &eq_attr, &side.eq, NULL));
    check("fi_cq_open", fi_cq_open(side.domain, &cq_attr, &side.cq, NULL));
    check("fi_passive_ep", fi_passive_ep(side.fabric, side.info, &side.pep, NULL));
    check("fi_pep_bind", fi_pep_bind(side.pep, &side.eq->fid, 0));
    check("fi_listen", fi_listen(side.pep));
    for (int i = 0; i < 100; i++) { /* more than the domain keeps, so that its own thread runs */
        check("fi_mr_reg", fi_mr_reg(side.domain, bytes + i, 1, FI_REMOTE_READ, 0, 0, 0, &mr, NULL));
        check("fi_close", fi_close(&mr->fid));
    }
    close_side(&side);
    provider->cleanup();
}

static void unchanged(void)
{
    static struct process_state before;
    static struct process_state after;
    char path[4096];
    process_state_take(&before);
    (void)snprintf(path, sizeof(path), "%s/librdmux-fi.so", getenv("FI_PROVIDER_PATH"));
    void *library = dlopen(path, RTLD_NOW);
    require(library != NULL, dlerror());
    struct fi_provider *(*entry)(void) = NULL;
    *(void **)&entry = dlsym(library, "fi_prov_ini");
    require(entry != NULL, "there is no fi_prov_ini");
    use_provider(entry());
    process_state_take(&after);
    unsigned differences = process_state_compare(&before, &after, "afterwards");
    require(differences == 0 && before.threads == after.threads, "the process has changed");
    free(before.environment);
    free(after.environment);
}

/* ---------------------------------------------------------------------------------------- waits */

static void waits_parent(struct side *side)
{
    char word[8];
    int fd = -1;
    accept_peer(side);
    check("FI_GETWAIT", fi_control(&side->cq->fid, FI_GETWAIT, &fd));
    for (int i = 0; i < 50; i++) {
        struct fid *fids[] = { &side->cq->fid };
        struct fi_cq_data_entry entry;
        ssize_t got = -FI_EAGAIN;
        check("fi_recv", fi_recv(side->ep, word, sizeof(word), NULL, 0, word));
        send_bytes(side, &i, sizeof(i));
        while ((got = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN) {
            if (fi_trywait(side->fabric, fids, 1) == 0) {
                struct pollfd wait = { .fd = fd, .events = POLLIN };
                require(poll(&wait, 1, LIMIT_MS) == 1, "the descriptor slept through a message");
            }
        }
        check("fi_cq_read", got);
        require(entry.op_context == word, "another completion");
    }
}

static void waits_child(struct side *side, const struct sockaddr_in *to)
{
    connect_peer(side, to);
    for (int i = 0; i < 50; i++) {
        int number = -1;
        receive_bytes(side, &number, sizeof(number));
        require(number == i, "the messages are in another order");
        (void)usleep(1000); /* the other side is asleep by then, mostly */
        send_bytes(side, &number, sizeof(number));
    }
    expect_event(side, FI_SHUTDOWN, NULL);
}

/* --------------------------------------------------------------------------------------- the run */

static void run_child(const char *name, const struct sockaddr_in *to)
{
    struct side side = { 0 };
    who = "child";
    if (strcmp(name, "keys") == 0) {
        keys_child(&side, to);
    } else if (strcmp(name, "reject") == 0) {
        reject_child(&side, to);
    } else if (strcmp(name, "dies") == 0) {
        dies_child(&side, to);
    } else {
        waits_child(&side, to);
    }
    close_side(&side);
    exit(0);
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "keys", "reject", "dies", "waits", "explain" };
    struct sockaddr_in address = { 0 };
    size_t size = sizeof(address);
    int pipe_fds[2];
    struct side side = { 0 };
    const char *name = argc >= 2 ? argv[1] : "";
    bool is_known = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        is_known = is_known || strcmp(name, names[i]) == 0;
    }
    if (argc == 2 && strcmp(name, "unchanged") == 0) {
        unchanged();
        return 0;
    }
    const bool explains = strcmp(name, "explain") == 0;
    require(is_known && argc == (explains ? 3 : 2),
            "usage: fi_peer keys|reject|dies|waits|unchanged, fi_peer explain RDMUX");
    require(pipe(pipe_fds) == 0, "no pipe");
    const pid_t child = fork(); /* before the first fabric: what is open does not survive it */
    require(child >= 0, "no process");
    if (child == 0) {
        require(read(pipe_fds[0], &address, sizeof(address)) == sizeof(address), "no address");
        if (explains) {
            explain_child(argv[2], &address);
        }
        run_child(name, &address);
    }
    open_side(&side, true, NULL);
    check("fi_passive_ep", fi_passive_ep(side.fabric, side.info, &side.pep, NULL));
    check("fi_pep_bind", fi_pep_bind(side.pep, &side.eq->fid, 0));
    check("fi_listen", fi_listen(side.pep));
    size_t little = 1;
    require(fi_getname(&side.pep->fid, &address, &little) == -FI_ETOOSMALL && little == size,
            "fi_getname does not tell the length");
    check("fi_getname", fi_getname(&side.pep->fid, &address, &size));
    require(write(pipe_fds[1], &address, sizeof(address)) == sizeof(address), "no pipe");
    if (strcmp(name, "keys") == 0) {
        keys_parent(&side);
    } else if (strcmp(name, "reject") == 0) {
        reject_parent(&side);
    } else if (strcmp(name, "dies") == 0) {
        dies_parent(&side, child);
    } else if (explains) {
        explain_parent(&side, child);
    } else {
        waits_parent(&side);
    }
    close_side(&side);
    if (explains) {
        return 0;
    }
    int status = 0;
    require(waitpid(child, &status, 0) == child, "no child");
    require(strcmp(name, "dies") == 0 ? WIFSIGNALED(status)
                                      : WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "the child failed");
    return 0;
}
