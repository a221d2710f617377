/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Peers that fail, each a process of its own, and the time until the failure is noticed.
 *
 * `notice` connects to some peers and lets them fail one by one, each at a random moment between
 * two heartbeats. It checks that each endpoint ends with PEER_GONE, in time, and that every request
 * of it has completed once. The last line has the times. `flood` sends to a peer that takes
 * nothing, as fast as it can, and checks that this costs no memory. Then the peer takes all
 * messages. `peer` is the process that both start.
 *
 * The limits count from the fault; L is the liveness time. A peer that stops or is cut off is gone
 * when it has been silent for L; before, it gave a sign of life in every quarter of L. The kernel
 * reports a peer that ends, at once; a quarter of L is the longest wait for further events. The
 * library's work starts within 10 ms, given a free processor. The limits allow for a busy machine:
 * a thread that only sleeps measures how late it is woken, and each sleeper on the way may be that
 * late; and the kernel counts the time during which threads were ready and had no processor
 * (schedstat), those of the measuring process since the fault, those of the peer before.
 */
#include "tests/run_delay.h"

#include <rdmux/rdmux.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    PEERS_MAX = 32,
    SAMPLES_MAX = 4096,
    WINDOW = 4,     /* messages under way to a busy peer */
    RECEIVES = 8,   /* posted to each peer */
    MESSAGE = 1024, /* bytes */
    SETUP_MS = 20000,
    EARLIER_MS = 20,
    LATER_MS = 30,
    SLEEPERS = 3,       /* threads that sleep on the way */
    PACKETS_MS = 50,    /* in which no connection over this host's own network may be made */
    FLOOD_MS = 1500,    /* least duration of a flood */
    FLOOD_BYTES = 4096, /* of each of its messages */
    SETTLE_MS = 300,    /* of a flood, before memory is measured */
    GROWTH_KIB = 256,   /* permitted growth of the sender afterwards */
    ADDRESS_MAX = 128,
};

static struct {
    const char *paths;
    const char *fault;
    const char *state;
    const char *swallow; /* a command that makes all packets of this host vanish */
    const char *mend;    /* a command that ends this */
    const char *manual;  /* the side without service thread: "us" or "peer" */
    uint32_t peers;
    uint32_t rounds;
    uint32_t liveness; /* ms */
} options = { .paths = "tcp",
              .fault = "stop",
              .state = "idle",
              .manual = "",
              .peers = 6,
              .rounds = 1,
              .liveness = 500 };

static const struct {
    const char *name;
    const char **text;
    uint32_t *number;
} option_table[] = {
    { "--paths", &options.paths, NULL },       { "--fault", &options.fault, NULL },
    { "--state", &options.state, NULL },       { "--swallow", &options.swallow, NULL },
    { "--mend", &options.mend, NULL },         { "--manual", &options.manual, NULL },
    { "--peers", NULL, &options.peers },       { "--rounds", NULL, &options.rounds },
    { "--liveness", NULL, &options.liveness },
};

static const char *program;

__attribute__((format(printf, 1, 2))) static _Noreturn void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    exit(1);
}

#define MUST(call)                                                                         \
    do {                                                                                   \
        enum rdmux_status must_status = (call);                                            \
        if (must_status != RDMUX_OK) {                                                     \
            fail("%s: %s: %s", #call, rdmux_status_name(must_status), rdmux_last_error()); \
        }                                                                                  \
    } while (0)

static void require(bool holds, const char *what)
{
    if (!holds) {
        fail("%s: %s", what, strerror(errno));
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* For the thread that measures how late the machine wakes a sleeper. */
static void sleep_ms(uint64_t ms)
{
    struct timespec time = { .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };
    while (nanosleep(&time, &time) != 0) {
    }
}

static bool is_manual(const char *side)
{
    return strcmp(options.manual, side) == 0;
}

static struct rdmux_fabric *open_fabric(bool manual)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.paths = options.paths;
    attr.flags = manual ? RDMUX_FABRIC_NO_SERVICE_THREAD : 0;
    MUST(rdmux_fabric_open(&attr, &fabric));
    return fabric;
}

static struct rdmux_ep_attr ep_attr(void)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = options.liveness;
    return attr;
}

/* ------------------------------------------------------------------------------------- the peer */

/* Makes the end of this process a reset. If the reset is lost, the kernel keeps no connection
 * either, as if the host had been turned off. */
static void leave_no_trace(void)
{
    const struct linger at_once = { .l_onoff = 1, .l_linger = 0 };
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_storage name = { .ss_family = AF_UNSPEC };
        socklen_t length = sizeof(name);
        if (getpeername(fd, (struct sockaddr *)(void *)&name, &length) == 0 &&
            (name.ss_family == AF_INET || name.ss_family == AF_INET6)) {
            require(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0,
                    "SO_LINGER");
        }
    }
}

static bool is_told(void)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    char byte;
    return poll(&in, 1, 0) == 1 && read(STDIN_FILENO, &byte, 1) == 1;
}

static void await_word(void)
{
    char byte;
    require(read(STDIN_FILENO, &byte, 1) == 1, "no command came");
}

/* Answers each message, until the command to be deaf. */
static void answer(struct rdmux_fabric *fabric, struct rdmux_ep *ep, struct rdmux_cq *cq)
{
    static uint8_t buffers[RECEIVES][MESSAGE];
    for (size_t i = 0; i < RECEIVES; i++) {
        MUST(rdmux_recv(ep, buffers[i], MESSAGE, NULL, buffers[i]));
    }
    while (!is_told()) {
        struct rdmux_wc wc;
        size_t count = 0;
        MUST(rdmux_fabric_progress(fabric));
        if (rdmux_cq_wait(cq, &wc, 1, 10, &count) != RDMUX_OK || wc.status != RDMUX_OK ||
            wc.opcode != RDMUX_WC_RECV) {
            continue;
        }
        (void)!rdmux_send(ep, wc.context, MESSAGE, NULL, NULL, RDMUX_UNSIGNALED);
        (void)!rdmux_recv(ep, wc.context, MESSAGE, NULL, wc.context);
    }
}

/* Takes nothing until the command; then all messages, in order. The first word of a message is its
 * number, ~0 in the last one. */
static void take_flood(struct rdmux_ep *ep, struct rdmux_cq *cq)
{
    static uint64_t buffers[RECEIVES][FLOOD_BYTES / 8];
    uint64_t taken = 0;
    await_word();
    for (size_t i = 0; i < RECEIVES; i++) {
        MUST(rdmux_recv(ep, buffers[i], FLOOD_BYTES, NULL, buffers[i]));
    }
    for (;;) {
        struct rdmux_wc wc;
        size_t count = 0;
        MUST(rdmux_cq_wait(cq, &wc, 1, SETUP_MS, &count));
        const uint64_t *words = wc.context;
        if (wc.opcode != RDMUX_WC_RECV || wc.status != RDMUX_OK) {
            fail("the flood ended with %s", rdmux_status_name((enum rdmux_status)wc.status));
        }
        if (words[0] == UINT64_MAX) {
            break;
        }
        if (words[0] != taken || wc.length != FLOOD_BYTES) {
            fail("message %" PRIu64 " of %" PRIu64 " bytes came as number %" PRIu64, words[0],
                 wc.length, taken);
        }
        taken++;
        MUST(rdmux_recv(ep, wc.context, FLOOD_BYTES, NULL, wc.context));
    }
    require(write(STDOUT_FILENO, &taken, sizeof(taken)) == sizeof(taken), "write");
    await_word(); /* the sender has ended */
}

static int be_peer(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rdmux_fabric *fabric = open_fabric(is_manual("peer"));
    struct rdmux_cq *cq = NULL;
    struct rdmux_listener *listener = NULL;
    char address[ADDRESS_MAX] = "";
    struct rdmux_ep *ep = NULL;
    const struct rdmux_ep_attr attr = ep_attr();
    MUST(rdmux_cq_create(fabric, NULL, &cq));
    MUST(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener));
    MUST(rdmux_listener_address(listener, address, sizeof(address)));
    require(write(STDOUT_FILENO, address, sizeof(address)) == sizeof(address), "write");
    MUST(rdmux_accept(listener, cq, &attr, SETUP_MS, &ep));
    if (strcmp(options.fault, "half-open") == 0) {
        leave_no_trace();
    }
    if (strcmp(options.state, "flood") == 0) {
        take_flood(ep, cq);
        return 0;
    }
    answer(fabric, ep, cq);
    for (;;) {
        (void)pause();
    }
}

/* ------------------------------------------------------------------------------ who looks at it */

struct peer {
    pid_t pid;
    int to;   /* its standard input */
    int from; /* its standard output */
    char address[ADDRESS_MAX];
    struct rdmux_ep *ep;
    uint64_t fault_due_ns;
    _Atomic uint64_t fault_begun_ns; /* 0: not yet */
    uint64_t fault_done_ns;          /* written by the thread of the fault, until it has ended */
    uint64_t noticed_ns;             /* 0: not yet */
    /* Time without a processor: of the peer's threads, at the connection and at the fault; of ours,
     * at the fault and when it was noticed. */
    uint64_t its_waits_ns[2];
    uint64_t our_waits_ns[2];
    uint64_t posted;
    uint64_t completed;
    uint8_t sent[MESSAGE];
    uint8_t received[RECEIVES][MESSAGE];
};

static void start_peer(struct peer *peer)
{
    char liveness[16];
    int in[2];
    int out[2];
    (void)snprintf(liveness, sizeof(liveness), "%" PRIu32, options.liveness);
    require(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "pipe");
    *peer = (struct peer){ .pid = fork() };
    require(peer->pid >= 0, "fork");
    if (peer->pid == 0) {
        require(dup2(in[0], STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0, "dup2");
        (void)execl("/proc/self/exe", program, "peer", "--paths", options.paths, "--fault",
                    options.fault, "--state", options.state, "--manual", options.manual,
                    "--liveness", liveness, (char *)NULL);
        fail("exec: %s", strerror(errno));
    }
    (void)close(in[0]);
    (void)close(out[1]);
    peer->to = in[1];
    peer->from = out[0];
    require(read(peer->from, peer->address, sizeof(peer->address)) == sizeof(peer->address),
            "a peer did not start");
}

static void end_peer(struct peer *peer)
{
    if (peer->pid > 0) {
        (void)kill(peer->pid, SIGKILL);
        (void)waitpid(peer->pid, NULL, 0);
    }
    (void)close(peer->to);
    (void)close(peer->from);
}

static void connect_peer(struct peer *peer, struct rdmux_fabric *fabric, struct rdmux_cq *cq)
{
    const struct rdmux_ep_attr attr = ep_attr();
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    MUST(rdmux_connect(fabric, cq, peer->address, &attr, SETUP_MS, &peer->ep));
    MUST(rdmux_ep_set_user(peer->ep, peer));
    MUST(rdmux_ep_info(peer->ep, &info));
    if (strcmp(info.provider, options.paths) != 0) {
        fail("the path is %s, not %s", info.provider, options.paths);
    }
}

/* The thread that sleeps, and the longest delay of its wake-ups. */
static struct {
    pthread_t thread;
    _Atomic bool over;
    _Atomic uint64_t worst_ns;
} sleeper;

static void *sleep_again_and_again(void *user)
{
    while (!atomic_load(&sleeper.over)) {
        uint64_t due = now_ns() + 1000000;
        sleep_ms(1);
        uint64_t late = now_ns() - due;
        if (late > atomic_load(&sleeper.worst_ns)) {
            atomic_store(&sleeper.worst_ns, late);
        }
    }
    return user;
}

/* Milliseconds between two samples, without threads that have ended since. */
static double waited_ms(const uint64_t looks_ns[2])
{
    return looks_ns[1] > looks_ns[0] ? (double)(looks_ns[1] - looks_ns[0]) / 1e6 : 0;
}

/* ------------------------------------------------------------------------------------ the times */

static struct {
    double ms[SAMPLES_MAX];
    size_t count;
    double latest; /* the longest, as a part of its limit */
} samples;

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(unsigned percent)
{
    size_t at = (samples.count * percent + 99) / 100;
    return samples.ms[at == 0 ? 0 : at - 1];
}

static void tell_times(void)
{
    qsort(samples.ms, samples.count, sizeof(samples.ms[0]), by_size);
    (void)printf("%-6s %-9s %-4s %4zu times: p50 %6.1f ms, p99 %6.1f ms, longest %6.1f ms, "
                 "allowed %6.1f ms%s\n",
                 options.paths, options.fault, options.state, samples.count, percentile(50),
                 percentile(99), samples.ms[samples.count - 1], samples.latest,
                 is_manual("us") ? "; by a side without service thread" : "");
}

/* ----------------------------------------------------------------------------------- the faults */

static bool is_fault(const char *name)
{
    return strcmp(options.fault, name) == 0;
}

/* Silence counts from its begin, a report of the kernel from its arrival. */
static bool is_silence(void)
{
    return is_fault("stop") || is_fault("deaf") || is_fault("swallow");
}

/* Silences the whole host: all peers at once. */
static bool is_of_network(void)
{
    return is_fault("swallow") || is_fault("half-open");
}

static void run(const char *command)
{
    if (command == NULL || system(command) != 0) {
        fail("this fails: %s", command == NULL ? "no --swallow, no --mend" : command);
    }
}

/* Returns whether a packet arrives in time: whether a connection to a listening socket is made. */
static bool packets_arrive(int limit_ms)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(name);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    require(listener >= 0 && caller >= 0 &&
                bind(listener, (struct sockaddr *)(void *)&name, sizeof(name)) == 0 &&
                listen(listener, 1) == 0 &&
                getsockname(listener, (struct sockaddr *)(void *)&name, &length) == 0,
            "a socket that listens");
    bool arrives = connect(caller, (struct sockaddr *)(void *)&name, sizeof(name)) == 0;
    struct pollfd wait = { .fd = caller, .events = POLLOUT };
    arrives = arrives || (poll(&wait, 1, limit_ms) == 1 && (wait.revents & POLLERR) == 0);
    (void)close(caller);
    (void)close(listener);
    return arrives;
}

/* Counts from the first packet that vanished. */
static _Atomic uint64_t mended_after_ns;

static void forget_peers(struct peer *peers)
{
    for (uint32_t i = 0; i < options.peers; i++) {
        require(kill(peers[i].pid, SIGKILL) == 0, "kill");
    }
    for (uint32_t i = 0; i < options.peers; i++) {
        require(waitpid(peers[i].pid, NULL, 0) == peers[i].pid, "waitpid");
        peers[i].pid = 0;
    }
    run(options.mend);
    if (!packets_arrive(SETUP_MS)) {
        fail("no packets arrive after: %s", options.mend);
    }
}

static void look_at_waits(struct peer *peer)
{
    peer->its_waits_ns[1] = run_delay_ns(peer->pid, 0);
    peer->our_waits_ns[0] = run_delay_ns(getpid(), 0);
}

static void break_network(struct peer *peers)
{
    for (uint32_t i = 0; i < options.peers; i++) {
        look_at_waits(&peers[i]);
    }
    uint64_t begun = now_ns();
    run(options.swallow);
    uint64_t done = now_ns();
    if (packets_arrive(PACKETS_MS)) {
        fail("packets still arrive after: %s", options.swallow);
    }
    for (uint32_t i = 0; i < options.peers; i++) {
        peers[i].fault_done_ns = done;
        atomic_store(&peers[i].fault_begun_ns, begun);
    }
    if (is_fault("half-open")) {
        forget_peers(peers);
        atomic_store(&mended_after_ns, now_ns() - begun);
    }
}

static void break_peer(struct peer *peer)
{
    look_at_waits(peer);
    peer->fault_begun_ns = now_ns();
    if (is_fault("deaf")) {
        require(write(peer->to, "d", 1) == 1, "write");
        peer->fault_done_ns = now_ns();
        return;
    }
    require(kill(peer->pid, is_fault("stop") ? SIGSTOP : SIGKILL) == 0, "kill");
    int status = 0;
    require(waitpid(peer->pid, &status, WUNTRACED) == peer->pid, "waitpid");
    peer->fault_done_ns = now_ns();
    peer->pid = WIFSTOPPED(status) ? peer->pid : 0;
}

static void sleep_until(uint64_t due_ns)
{
    const struct timespec due = { .tv_sec = (time_t)(due_ns / 1000000000),
                                  .tv_nsec = (long)(due_ns % 1000000000) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) != 0) {
    }
}

static int by_due_time(const void *a, const void *b)
{
    const struct peer *const *x = a;
    const struct peer *const *y = b;
    return ((*x)->fault_due_ns > (*y)->fault_due_ns) - ((*x)->fault_due_ns < (*y)->fault_due_ns);
}

/* Has a thread of its own, as a process may end slowly, and the measuring thread must not wait. */
static void *break_all(void *user)
{
    struct peer *peers = user;
    struct peer *order[PEERS_MAX];
    for (uint32_t i = 0; i < options.peers; i++) {
        order[i] = &peers[i];
    }
    qsort(order, options.peers, sizeof(struct peer *), by_due_time);
    for (uint32_t i = 0; i < options.peers; i++) {
        sleep_until(order[i]->fault_due_ns);
        if (is_of_network()) {
            break_network(peers);
            return NULL;
        }
        break_peer(order[i]);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------ one round */

static void keep_busy(struct peer *peer)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    MUST(rdmux_ep_info(peer->ep, &info));
    if (info.state == RDMUX_EP_CONNECTED &&
        rdmux_send(peer->ep, peer->sent, MESSAGE, NULL, NULL, 0) == RDMUX_OK) {
        peer->posted++;
    }
}

static void receive_again(struct peer *peer, void *buffer)
{
    if (rdmux_recv(peer->ep, buffer, MESSAGE, NULL, buffer) == RDMUX_OK) {
        peer->posted++;
    }
}

static void check_end(const struct peer *peer, const struct rdmux_wc *wc)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    MUST(rdmux_ep_info(peer->ep, &info));
    if (peer->fault_begun_ns == 0 || wc->status != RDMUX_PEER_GONE) {
        fail("an endpoint ended with %s%s: %s", rdmux_status_name((enum rdmux_status)wc->status),
             peer->fault_begun_ns == 0 ? " before anything failed" : "", info.text);
    }
    if (peer->completed != peer->posted) {
        fail("%" PRIu64 " of %" PRIu64 " requests completed", peer->completed, peer->posted);
    }
    /* The longer packets vanish, the longer TCP waits until it tries again. */
    bool is_soon = atomic_load(&mended_after_ns) < (uint64_t)options.liveness * 1000000 / 4;
    if (is_fault("half-open") && is_soon && strstr(info.text, "silent") != NULL) {
        fail("a connection of which the peer's host knows nothing was found by silence: %s",
             info.text);
    }
}

static void take(const struct rdmux_wc *wc)
{
    struct peer *peer = rdmux_ep_user(wc->ep);
    if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        check_end(peer, wc);
        peer->noticed_ns = now_ns();
        peer->our_waits_ns[1] = run_delay_ns(getpid(), 0);
        return;
    }
    peer->completed += wc->opcode == RDMUX_WC_SEND || wc->opcode == RDMUX_WC_RECV;
    if (wc->status == RDMUX_OK && wc->opcode == RDMUX_WC_RECV) {
        receive_again(peer, wc->context);
        keep_busy(peer);
    } else if (wc->status != RDMUX_OK && wc->status != RDMUX_PEER_GONE &&
               wc->status != RDMUX_FLUSHED) {
        fail("a request ended with %s", rdmux_status_name((enum rdmux_status)wc->status));
    }
}

static void note_time(const struct peer *peer)
{
    uint64_t late_ns = atomic_load(&sleeper.worst_ns);
    double late = (double)late_ns / 1e6;
    double least = ((double)peer->noticed_ns - (double)peer->fault_done_ns) / 1e6;
    double most = (double)(peer->noticed_ns - peer->fault_begun_ns) / 1e6;
    double liveness = options.liveness;
    double base = is_silence() || is_fault("half-open") ? liveness : liveness / 4;
    double its = waited_ms(peer->its_waits_ns);
    double ours = waited_ms(peer->our_waits_ns);
    ours = ours < liveness ? ours : liveness; /* threads that waited for each other count once */
    double latest = base + LATER_MS + SLEEPERS * late + ours;
    if (is_silence() && most + EARLIER_MS + late + its < liveness * 3 / 4) {
        fail("called gone after only %.1f ms; a sleeper was up to %.1f ms late, the peer's threads "
             "had waited %.1f ms",
             most, late, its);
    }
    if (least > latest) {
        fail("noticed after %.1f ms; %.1f ms are allowed, with a sleeper that was up to %.1f ms "
             "late, and threads that waited %.1f ms",
             least, latest, late, ours);
    }
    samples.latest = latest > samples.latest ? latest : samples.latest;
    if (samples.count < SAMPLES_MAX) {
        samples.ms[samples.count++] = most;
    }
}

static bool all_noticed(const struct peer *peers)
{
    for (uint32_t i = 0; i < options.peers; i++) {
        if (peers[i].noticed_ns == 0) {
            return false;
        }
    }
    return true;
}

/* With rdmux_fabric_progress(), which does nothing where there is a service thread. */
static void look_until_all_are_gone(struct peer *peers, struct rdmux_fabric *fabric,
                                    struct rdmux_cq *cq)
{
    uint64_t until = now_ns() + (uint64_t)(3 * options.liveness + SETUP_MS) * 1000000;
    while (!all_noticed(peers)) {
        struct rdmux_wc wc[16];
        size_t count = 0;
        MUST(rdmux_fabric_progress(fabric));
        enum rdmux_status status = rdmux_cq_wait(cq, wc, COUNT_OF(wc), 1, &count);
        if (status != RDMUX_OK && status != RDMUX_TIMED_OUT) {
            fail("rdmux_cq_wait: %s: %s", rdmux_status_name(status), rdmux_last_error());
        }
        for (size_t i = 0; i < count; i++) {
            take(&wc[i]);
        }
        if (now_ns() > until) {
            fail("a peer that failed is not noticed");
        }
    }
}

static void run_round(void)
{
    static struct peer peers[PEERS_MAX];
    bool is_busy = strcmp(options.state, "busy") == 0;
    struct rdmux_fabric *fabric = open_fabric(is_manual("us"));
    struct rdmux_cq *cq = NULL;
    MUST(rdmux_cq_create(fabric, NULL, &cq));
    /* All are forked before the first is connected: fork() holds the memory map until it has copied
     * it, for seconds on a busy machine, and the service thread's heartbeats wait at a page fault. */
    for (uint32_t i = 0; i < options.peers; i++) {
        start_peer(&peers[i]);
    }
    for (uint32_t i = 0; i < options.peers; i++) {
        connect_peer(&peers[i], fabric, cq);
    }
    for (uint32_t i = 0; i < options.peers; i++) {
        for (size_t k = 0; k < RECEIVES; k++) {
            receive_again(&peers[i], peers[i].received[k]);
        }
        for (size_t k = 0; k < WINDOW && is_busy; k++) {
            keep_busy(&peers[i]);
        }
        /* Not in the first quarter, and then at a random moment between two heartbeats. */
        uint64_t after_us = options.liveness * 1000 / 4 +
                            (uint64_t)random() % (options.liveness * 1000 / 2);
        peers[i].fault_due_ns = now_ns() + after_us * 1000;
        peers[i].its_waits_ns[0] = run_delay_ns(peers[i].pid, 0);
    }
    atomic_store(&sleeper.worst_ns, 0);
    pthread_t breaker;
    require(pthread_create(&breaker, NULL, break_all, peers) == 0, "a thread");
    look_until_all_are_gone(peers, fabric, cq);
    require(pthread_join(breaker, NULL) == 0, "a thread");
    for (uint32_t i = 0; i < options.peers; i++) {
        note_time(&peers[i]);
        MUST(rdmux_ep_close(peers[i].ep));
        end_peer(&peers[i]);
    }
    if (is_fault("swallow")) {
        run(options.mend);
    }
    MUST(rdmux_cq_destroy(cq));
    MUST(rdmux_fabric_close(fabric));
}

static int notice(void)
{
    if (options.peers == 0 || options.peers > PEERS_MAX || options.rounds == 0) {
        fail("--peers is 1 to %d, --rounds is not 0", PEERS_MAX);
    }
    srandom(1); /* the same moments in each run */
    require(pthread_create(&sleeper.thread, NULL, sleep_again_and_again, NULL) == 0, "a thread");
    for (uint32_t i = 0; i < options.rounds; i++) {
        run_round();
    }
    atomic_store(&sleeper.over, true);
    require(pthread_join(sleeper.thread, NULL) == 0, "a thread");
    tell_times();
    return 0;
}

/* ------------------------------------------------------------------------------------ the flood */

static long resident_kib(void)
{
    long size = 0;
    long resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    require(file != NULL && fscanf(file, "%ld %ld", &size, &resident) == 2, "/proc/self/statm");
    (void)fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

struct flood {
    struct rdmux_ep *ep;
    struct rdmux_cq *cq;
    uint64_t posted;
    uint64_t completed;
    uint64_t refused; /* posts that gave RDMUX_AGAIN */
    uint64_t buffers;
    uint8_t *bytes; /* of all of them */
};

/* There is one buffer more than requests can be under way, so the next one is free, even after a
 * refusal. */
static bool post_one(struct flood *flood, uint64_t number)
{
    uint8_t *bytes = flood->bytes + flood->posted % flood->buffers * FLOOD_BYTES;
    memcpy(bytes, &number, sizeof(number));
    enum rdmux_status status = rdmux_send(flood->ep, bytes, FLOOD_BYTES, NULL, NULL, 0);
    if (status == RDMUX_AGAIN) {
        flood->refused++;
        return false;
    }
    MUST(status);
    flood->posted++;
    return true;
}

static void take_done(struct flood *flood)
{
    struct rdmux_wc wc[16];
    size_t count = rdmux_cq_poll(flood->cq, wc, COUNT_OF(wc));
    for (size_t i = 0; i < count; i++) {
        if (wc[i].status != RDMUX_OK) {
            fail("a request of the flood ended with %s",
                 rdmux_status_name((enum rdmux_status)wc[i].status));
        }
        flood->completed += wc[i].opcode == RDMUX_WC_SEND;
    }
}

static int flood(void)
{
    static struct peer peer;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct flood flood = { .posted = 0 };
    options.state = "flood";
    start_peer(&peer);
    struct rdmux_fabric *fabric = open_fabric(false);
    MUST(rdmux_cq_create(fabric, NULL, &flood.cq));
    connect_peer(&peer, fabric, flood.cq);
    flood.ep = peer.ep;
    MUST(rdmux_ep_info(flood.ep, &info));
    flood.buffers = (uint64_t)info.send_depth + 1;
    flood.bytes = calloc(flood.buffers, FLOOD_BYTES);
    require(flood.bytes != NULL, "calloc");
    long before = 0;
    long most = 0;
    uint64_t begin = now_ns();
    uint64_t took = 0;
    /* On a busy machine the buffers take longer to fill. */
    for (uint64_t i = 0; took < FLOOD_MS || (flood.refused == 0 && took < SETUP_MS); i++) {
        (void)post_one(&flood, flood.posted);
        take_done(&flood);
        took = (now_ns() - begin) / 1000000;
        if (before == 0 && took >= SETTLE_MS) {
            before = resident_kib();
        }
        if (before != 0 && i % 4096 == 0) {
            long now = resident_kib();
            most = now > most ? now : most;
        }
    }
    uint64_t held = flood.posted;
    if (flood.refused == 0 || most - before > GROWTH_KIB) {
        fail("%" PRIu64 " posts were refused, and the sender grew by %ld KiB", flood.refused,
             most - before);
    }
    require(write(peer.to, "g", 1) == 1, "write"); /* the command to take all */
    uint64_t until = now_ns() + (uint64_t)SETUP_MS * 1000000;
    while (!post_one(&flood, UINT64_MAX)) {
        take_done(&flood);
        require(now_ns() < until, "the flood does not drain");
    }
    while (flood.completed < flood.posted) {
        take_done(&flood);
        if (now_ns() > until) {
            fail("%" PRIu64 " of %" PRIu64 " messages completed", flood.completed, flood.posted);
        }
    }
    uint64_t taken = 0;
    struct pollfd wait = { .fd = peer.from, .events = POLLIN };
    while (poll(&wait, 1, 0) == 0) {
        take_done(&flood);
        require(now_ns() < until, "the peer does not end");
    }
    require(read(peer.from, &taken, sizeof(taken)) == sizeof(taken), "the peer failed");
    if (taken != flood.posted - 1) {
        fail("%" PRIu64 " of %" PRIu64 " messages were taken", taken, flood.posted - 1);
    }
    MUST(rdmux_ep_close(flood.ep));
    end_peer(&peer);
    MUST(rdmux_cq_destroy(flood.cq));
    MUST(rdmux_fabric_close(fabric));
    free(flood.bytes);
    (void)printf("%-6s %" PRIu64 " messages were taken from the sender, %" PRIu64
                 " posts refused in %" PRIu64 " ms; it grew by %ld KiB\n",
                 options.paths, held, flood.refused, took, most - before);
    return 0;
}

/* -------------------------------------------------------------------------------------- the end */

static _Noreturn void usage(void)
{
    (void)fputs("usage: peers notice|flood|peer [--paths PROVIDER] [--liveness MS]\n"
                "             [--fault stop|kill|deaf|swallow|half-open] [--state idle|busy]\n"
                "             [--peers N] [--rounds N] [--manual us|peer]\n"
                "             [--swallow COMMAND] [--mend COMMAND]\n",
                stderr);
    exit(2);
}

static void read_options(int argc, char **argv)
{
    for (int i = 2; i < argc; i += 2) {
        bool known = false;
        for (size_t k = 0; k < COUNT_OF(option_table) && i + 1 < argc; k++) {
            if (strcmp(argv[i], option_table[k].name) != 0) {
                continue;
            }
            known = true;
            if (option_table[k].text != NULL) {
                *option_table[k].text = argv[i + 1];
            } else {
                *option_table[k].number = (uint32_t)strtoul(argv[i + 1], NULL, 10);
            }
        }
        if (!known) {
            usage();
        }
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } parts[] = { { "peer", be_peer }, { "notice", notice }, { "flood", flood } };
    program = argv[0];
    for (size_t i = 0; argc > 1 && i < COUNT_OF(parts); i++) {
        if (strcmp(argv[1], parts[i].name) == 0) {
            read_options(argc, argv);
            return parts[i].run();
        }
    }
    usage();
}
