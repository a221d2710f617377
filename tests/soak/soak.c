/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A process under load for a long time, over one provider. Peers, which are other processes,
 * connect to it, and both ends use their links (link.c). Meanwhile links are made, shut down,
 * closed and revoked, their sockets are cut, and peers are killed and started again. The time is
 * divided into rounds. At the end of a round all peers end, all links end, and the resources of the
 * process are counted: descriptors and threads must be as many as after the first round, and memory
 * must not grow.
 *
 * Prints TAP, one case. Peers report by a pipe what they are about to do to a link, so that an end
 * without a cause is found.
 */
#include "heap.h"
#include "link.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PEERS = 2,
    LINKS_EACH = 3, /* of each peer */
    LINKS_MAX = 64, /* with those of killed peers that are not noticed yet */
    ROUNDS_MAX = 1024,
    ROUND_MS_LEAST = 400,
    ROUND_MS_MOST = 3000,
    ROUNDS_WISHED = 12,
    SETTLE_MS = 20000,  /* for all ends of a round */
    RELEASE_MS = 10000, /* until descriptors and threads are released */
    COUNT_MS = 3000,    /* until blocks are; those that are late are no growth, see growth_of() */
    TOLD_MAX = 1 << 14,
    HANG_S = 60,
    FLAWED_CONNECTS = 250, /* on a busy machine these take longer than the given time */
    /* Permitted growth at the end, independent of the number of connections. Blocks: events that
     * wait in the simulated adapter. Bytes: tables that grow with the number of objects at a time.
     * The adapter has a table with a place for each number of a queue pair up to the highest so
     * far, of 128 KiB at most, and one more completion queue, of 290 KiB, when more endpoints exist
     * at a time than ever before; growth_of() tells twice as much. Resident: the same, and a
     * fragmented heap. */
    BLOCKS_MORE = 8,
    BLOCKS_ADAPTER = 32,
    BYTES_MORE = 16 << 10,
    RESIDENT_MORE = 192 << 10,
    MORE_ADAPTER = 768 << 10,
};

/* A report of a peer. */
struct note {
    uint64_t uid;           /* link that the peer is about to end or revoke; 0: none */
    struct figures figures; /* since its last note */
};

struct peer {
    pid_t pid;
    int stop; /* its end is the command to end */
    bool is_leaving;
};

struct sample {
    double resident; /* bytes */
    double blocks;   /* allocated and not freed */
    double bytes;    /* of these */
    unsigned descriptors;
    unsigned threads;
    uint64_t connects; /* before it */
};

static struct {
    const char *provider;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    char address[RDMUX_ADDRESS_MAX];
    struct link *links[LINKS_MAX];
    struct peer peers[PEERS];
    int notes[2];                /* pipe */
    uint64_t reported[TOLD_MAX]; /* uids, a ring */
    size_t reported_count;
    uint64_t killed[TOLD_MAX]; /* pids, a ring */
    size_t killed_count;
    uint64_t taken; /* links */
    uint64_t kills;
    uint64_t cuts;
    uint64_t last_cut_ms;
    struct sample samples[ROUNDS_MAX];
    size_t rounds;
    unsigned descriptors; /* the fewest of all samples */
    unsigned threads;
} home;

/* ----------------------------------------------------------------------------------- belongings */

static unsigned count_in(const char *path)
{
    unsigned count = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        wrong("%s cannot be read", path);
    }
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

static double resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1) {
        wrong("/proc/self/statm cannot be read");
    }
    (void)fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static bool has_adapter(void)
{
    return getenv("SIM_VERBS") != NULL;
}

static double blocks_more(void)
{
    return has_adapter() ? BLOCKS_ADAPTER : BLOCKS_MORE;
}

/* There are no more descriptors and threads than after any round before. The first sample may have
 * some that were about to be released, as nobody knows how many are right. */
static bool are_released(const struct sample *now)
{
    return now->descriptors <= home.descriptors && now->threads <= home.threads;
}

static bool has_few_blocks(const struct sample *now)
{
    return home.rounds == 0 || now->blocks <= home.samples[home.rounds - 1].blocks + blocks_more();
}

/* Waits until resources are released that another thread is about to release. */
static struct sample count_belongings(void)
{
    struct sample now;
    uint64_t begin_ms = now_ms();
    uint64_t limit_ms = 0;
    do {
        struct rdmux_wc wc;
        (void)rdmux_cq_poll(home.cq, &wc, 1);
        heap_trim();
        const struct heap heap = heap_live();
        now = (struct sample){ .resident = resident_bytes(),
                               .blocks = (double)heap.blocks,
                               .bytes = (double)heap.bytes,
                               .descriptors = count_in("/proc/self/fd"),
                               .threads = count_in("/proc/self/task"),
                               .connects = figures.connects };
        limit_ms = !are_released(&now) ? RELEASE_MS : !has_few_blocks(&now) ? COUNT_MS : 0;
    } while (now_ms() - begin_ms < limit_ms);
    return now;
}

static double resident_of(const struct sample *sample)
{
    return sample->resident;
}

static double blocks_of(const struct sample *sample)
{
    return sample->blocks;
}

static double bytes_of(const struct sample *sample)
{
    return sample->bytes;
}

static double least_of(double (*of)(const struct sample *sample), size_t begin, size_t end)
{
    double least = of(&home.samples[begin]);
    for (size_t i = begin + 1; i < end; i++) {
        const double now = of(&home.samples[i]);
        least = now < least ? now : least;
    }
    return least;
}

/* Returns the growth of a value from sample `first` on: twice the growth from the first half of the
 * samples to the second, by the minimum of each. A value that is high at times, such as a device's
 * queue before its release, is no growth. */
static double growth_of(double (*of)(const struct sample *sample), size_t first)
{
    const size_t middle = first + (home.rounds - first) / 2;
    if (middle == first) {
        return 0;
    }
    return 2 * (least_of(of, middle, home.rounds) - least_of(of, first, middle));
}

/* ---------------------------------------------------------------------------------------- peers */

static void open_fabric(struct rdmux_fabric **fabric, struct rdmux_cq **cq)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.paths = home.provider;
    if (rdmux_fabric_open(&attr, fabric) != RDMUX_OK ||
        rdmux_cq_create(*fabric, NULL, cq) != RDMUX_OK) {
        wrong("a fabric: %s", rdmux_last_error());
    }
}

static void report(uint64_t uid)
{
    static struct figures reported;
    struct note note = { .uid = uid };
    const uint64_t *now = (const uint64_t *)&figures;
    uint64_t *before = (uint64_t *)&reported;
    uint64_t *difference = (uint64_t *)&note.figures;
    for (size_t i = 0; i < sizeof(figures) / sizeof(*now); i++) {
        difference[i] = now[i] - before[i];
    }
    reported = figures;
    if (write(STDOUT_FILENO, &note, sizeof(note)) != sizeof(note)) {
        _exit(0); /* the reader has ended */
    }
}

static void take_entries(struct rdmux_cq *cq)
{
    enum { MOST = 32 };
    struct rdmux_wc wc[MOST];
    size_t count = 0;
    enum rdmux_status status = rdmux_cq_wait(cq, wc, MOST, 2, &count);
    if (status != RDMUX_OK && status != RDMUX_TIMED_OUT) {
        wrong("wait: %s: %s", rdmux_status_name(status), rdmux_last_error());
    }
    for (size_t i = 0; i < count; i++) {
        struct link *link = rdmux_ep_user(wc[i].ep);
        if (link == NULL) {
            wrong("an entry %s of an endpoint that is not ours", rdmux_wc_opcode_name(wc[i].opcode));
        }
        link_entry(link, &wc[i]);
    }
}

/* In a peer's process: ends or revokes a link. */
static void disturb_own(struct link **link)
{
    switch (draw(400)) {
    case 0:
        report(link_uid(*link));
        link_close(*link);
        *link = NULL;
        figures.ends++;
        return;
    case 1:
        report(link_uid(*link));
        link_shutdown(*link);
        return;
    case 2:
        report(link_uid(*link));
        link_revoke(*link);
        return;
    default:
        return;
    }
}

static bool is_told_to_go(void)
{
    struct pollfd look = { .fd = STDIN_FILENO, .events = POLLIN };
    return poll(&look, 1, 0) != 0;
}

/* One turn of a peer. Returns its number of links. */
static size_t use_links(struct link **links, struct rdmux_cq *cq, bool is_leaving)
{
    size_t count = 0;
    take_entries(cq);
    for (size_t i = 0; i < LINKS_EACH; i++) {
        if (links[i] == NULL) {
            continue;
        }
        if (link_has_ended(links[i])) {
            link_close(links[i]);
            links[i] = NULL;
            continue;
        }
        count++;
        link_step(links[i]);
        if (!is_leaving && link_is_up(links[i])) {
            disturb_own(&links[i]);
        }
    }
    return count;
}

static int be_peer(const char *address, uint64_t seed)
{
    enum { SAY_EVERY = 64 };
    static struct link *links[LINKS_EACH];
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    uint64_t number = 0;
    size_t turns = 0;
    draw_from(seed);
    open_fabric(&fabric, &cq);
    while (!is_told_to_go()) {
        size_t at = (size_t)draw(LINKS_EACH);
        if (links[at] == NULL && draw(8) == 0) {
            links[at] = link_dial(fabric, cq, address, ((uint64_t)getpid() << 32) + ++number);
        }
        (void)use_links(links, cq, false);
        if (++turns % SAY_EVERY == 0) {
            report(0);
        }
    }
    uint64_t until_ms = now_ms() + SETTLE_MS / 2;
    for (size_t i = 0; i < LINKS_EACH; i++) {
        if (links[i] != NULL && link_is_up(links[i])) {
            report(link_uid(links[i]));
            link_shutdown(links[i]);
        } else if (links[i] != NULL && !link_has_ended(links[i]) && !link_is_leaving(links[i])) {
            report(link_uid(links[i])); /* it is not connected yet */
            link_close(links[i]);
            links[i] = NULL;
        }
    }
    while (use_links(links, cq, true) > 0) {
        if (now_ms() > until_ms) {
            wrong("a link does not end");
        }
    }
    if (rdmux_cq_destroy(cq) != RDMUX_OK || rdmux_fabric_close(fabric) != RDMUX_OK) {
        wrong("the end: %s", rdmux_last_error());
    }
    report(0);
    return 0;
}

/* ------------------------------------------------------------------------------ home: its peers */

static void start_peer(struct peer *peer)
{
    int stop[2];
    char seed[32];
    (void)snprintf(seed, sizeof(seed), "%" PRIu64, draw(1U << 30));
    if (pipe2(stop, O_CLOEXEC) != 0) {
        wrong("no pipe");
    }
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(stop[0], STDIN_FILENO);
        (void)dup2(home.notes[1], STDOUT_FILENO);
        (void)execl("/proc/self/exe", "soak", "--peer", home.provider, home.address, seed,
                    (char *)NULL);
        _exit(1);
    }
    (void)close(stop[0]);
    if (pid < 0) {
        wrong("no process");
    }
    *peer = (struct peer){ .pid = pid, .stop = stop[1] };
}

static void take_notes(void)
{
    struct note note;
    ssize_t got;
    while ((got = read(home.notes[0], &note, sizeof(note))) > 0) {
        if (got != sizeof(note)) {
            wrong("a note of %zd bytes", got);
        }
        if (note.uid != 0) {
            home.reported[home.reported_count++ % TOLD_MAX] = note.uid;
        }
        uint64_t *sum = (uint64_t *)&figures;
        const uint64_t *more = (const uint64_t *)&note.figures;
        for (size_t i = 0; i < sizeof(figures) / sizeof(*sum); i++) {
            sum[i] += more[i];
        }
    }
}

/* Collects peers that have ended. Returns the number of the others. */
static size_t look_after_peers(bool restart)
{
    size_t count = 0;
    for (size_t i = 0; i < PEERS; i++) {
        struct peer *peer = &home.peers[i];
        int status = 0;
        if (peer->pid != 0 && waitpid(peer->pid, &status, WNOHANG) == peer->pid) {
            bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
            if (!was_killed && (status != 0 || !peer->is_leaving)) {
                wrong("a peer ended with status %#x", (unsigned)status);
            }
            if (!peer->is_leaving) {
                (void)close(peer->stop);
            }
            peer->pid = 0;
        }
        if (peer->pid == 0 && restart) {
            start_peer(peer);
        }
        count += peer->pid != 0;
    }
    return count;
}

static void kill_peer(void)
{
    struct peer *peer = &home.peers[draw(PEERS)];
    if (peer->pid != 0 && kill(peer->pid, SIGKILL) == 0) {
        home.killed[home.killed_count++ % TOLD_MAX] = (uint64_t)peer->pid;
        home.kills++;
    }
}

/* Cuts one connected stream socket: a link's data socket or its control channel. */
static void cut_socket(void)
{
    enum { DESCRIPTORS = 512 };
    size_t first = (size_t)draw(DESCRIPTORS);
    for (size_t i = 0; i < DESCRIPTORS; i++) {
        int fd = (int)((first + i) % DESCRIPTORS);
        struct sockaddr_storage address = { .ss_family = AF_UNSPEC };
        socklen_t length = sizeof(address);
        if (getpeername(fd, (struct sockaddr *)&address, &length) != 0 ||
            address.ss_family != AF_INET) {
            continue;
        }
        for (size_t k = 0; k < LINKS_MAX; k++) {
            if (home.links[k] != NULL) {
                link_excuse(home.links[k]);
            }
        }
        home.last_cut_ms = now_ms();
        (void)shutdown(fd, SHUT_RDWR);
        home.cuts++;
        return;
    }
}

/* ------------------------------------------------------------------------------ home: its links */

static bool is_in(const uint64_t *ring, size_t count, uint64_t wanted)
{
    for (size_t i = 0; i < count && i < TOLD_MAX; i++) {
        if (ring[i] == wanted) {
            return true;
        }
    }
    return false;
}

/* Checks that the end has a cause. */
static void judge_end(struct link *link)
{
    uint64_t uid = link_uid(link);
    take_notes();
    if (link_cause(link) != RDMUX_OK && !link_is_excused(link) &&
        !is_in(home.reported, home.reported_count, uid) &&
        !is_in(home.killed, home.killed_count, uid >> 32)) {
        wrong("a link ended by itself: %s: %s", rdmux_status_name(link_cause(link)),
              link_text(link));
    }
    figures.ends += link_cause(link) != RDMUX_OK;
}

static void accept_links(void)
{
    for (size_t i = 0; i < LINKS_MAX; i++) {
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep *ep = NULL;
        if (home.links[i] != NULL) {
            continue;
        }
        enum rdmux_status status = rdmux_accept(home.listener, home.cq, &attr, 0, &ep);
        if (status == RDMUX_AGAIN) {
            return;
        }
        if (status != RDMUX_OK) {
            wrong("accept: %s: %s", rdmux_status_name(status), rdmux_last_error());
        }
        home.links[i] = link_take(home.fabric, ep);
        home.taken++;
        if (link_dialled_ms(home.links[i]) <= home.last_cut_ms) {
            link_excuse(home.links[i]); /* it may have been cut before it was accepted */
        }
    }
}

/* One turn. Returns the number of links. */
static size_t turn(bool is_leaving)
{
    size_t count = 0;
    take_entries(home.cq);
    accept_links();
    take_notes();
    for (size_t i = 0; i < LINKS_MAX; i++) {
        struct link **link = &home.links[i];
        if (*link == NULL) {
            continue;
        }
        count++;
        if (link_has_ended(*link)) {
            judge_end(*link);
            link_close(*link);
            *link = NULL;
            continue;
        }
        link_step(*link);
        if (!is_leaving && link_is_up(*link) && draw(400) == 0) {
            link_revoke(*link);
        } else if (!is_leaving && draw(600) == 0) {
            link_close(*link);
            *link = NULL;
            figures.ends++;
        }
    }
    return count;
}

static void tell_what_stays(void)
{
    for (size_t i = 0; i < LINKS_MAX; i++) {
        if (home.links[i] != NULL) {
            fprintf(stderr, "# link %" PRIx64 "%s: %s\n", link_uid(home.links[i]),
                    link_is_excused(home.links[i]) ? ", disturbed" : "", link_text(home.links[i]));
        }
    }
    for (size_t i = 0; i < PEERS; i++) {
        fprintf(stderr, "# peer: process %d\n", (int)home.peers[i].pid);
    }
}

/* Lasts at least until a link was accepted: before, no device is open, and a busy machine is
 * slow. */
static void live_round(uint64_t length_ms)
{
    const uint64_t taken = home.taken;
    uint64_t until_ms = now_ms() + length_ms;
    uint64_t kill_ms = now_ms() + draw(length_ms);
    uint64_t cut_ms = now_ms() + draw(length_ms);
    alarm(HANG_S);
    while (now_ms() < until_ms || home.taken == taken) {
        (void)look_after_peers(true);
        (void)turn(false);
        if (now_ms() > kill_ms) {
            kill_peer();
            kill_ms = now_ms() + 200 + draw(1000);
        }
        if (now_ms() > cut_ms) {
            cut_socket();
            cut_ms = now_ms() + 100 + draw(600);
        }
        if (draw(50) == 0) {
            (void)poll(NULL, 0, 3); /* makes no call, so the service thread takes over */
        }
    }
    for (size_t i = 0; i < PEERS; i++) {
        if (home.peers[i].pid != 0) {
            home.peers[i].is_leaving = true;
            (void)close(home.peers[i].stop);
        }
    }
    until_ms = now_ms() + SETTLE_MS;
    while (turn(true) + look_after_peers(false) > 0) {
        if (now_ms() > until_ms) {
            tell_what_stays();
            wrong("links or peers do not end");
        }
    }
    alarm(0);
}

/* ------------------------------------------------------------------------------------ all of it */

static unsigned smaller(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static bool judge_round(size_t round)
{
    const struct sample *now = &home.samples[round];
    bool good = are_released(now);
    if (now->descriptors > home.descriptors) {
        printf("# round %zu: %u descriptors have become %u\n", round, home.descriptors - 3,
               now->descriptors - 3);
    }
    if (now->threads > home.threads) {
        printf("# round %zu: %u threads have become %u\n", round, home.threads - 2,
               now->threads - 2);
    }
    home.descriptors = smaller(now->descriptors, home.descriptors);
    home.threads = smaller(now->threads, home.threads);
    return good;
}

/* The first third is the warm-up. */
static bool judge_growth(const char *name, double (*of)(const struct sample *sample), double allowed)
{
    size_t first = home.rounds / 3;
    double growth = growth_of(of, first);
    if (growth <= allowed) {
        return true;
    }
    for (size_t i = 0; i < home.rounds; i++) {
        printf("# round %zu: %.0f, after %" PRIu64 " connections\n", i, of(&home.samples[i]),
               home.samples[i].connects);
    }
    printf("# %s grew by %.0f with %" PRIu64 " connections, allowed are %.0f\n", name, growth,
           home.samples[home.rounds - 1].connects - home.samples[first].connects, allowed);
    return false;
}

static bool judge_memory(void)
{
    bool good = judge_growth("the number of malloc's blocks", blocks_of, blocks_more());
    good = judge_growth("malloc's blocks, in bytes,", bytes_of,
                        has_adapter() ? MORE_ADAPTER : BYTES_MORE) &&
           good;
    return judge_growth("resident memory", resident_of,
                        has_adapter() ? MORE_ADAPTER : RESIDENT_MORE) &&
           good;
}

/* A planted flaw shows by the number of connections. */
static bool is_flaw_young(void)
{
    return flaw != FLAW_NONE && figures.connects < FLAWED_CONNECTS;
}

static void print_figures(uint64_t took_ms)
{
    const struct sample *first = &home.samples[0];
    const struct sample *third = &home.samples[home.rounds / 3];
    const struct sample *last = &home.samples[home.rounds - 1];
    printf("# figures: %-5s %" PRIu64 " s, %zu rounds: %" PRIu64 " operations, %" PRIu64
           " MiB checked, %" PRIu64 " connections, %" PRIu64 " revocations, %" PRIu64
           " imports; faults: %" PRIu64 " processes killed, %" PRIu64 " sockets cut, %" PRIu64
           " links ended hard; resident KiB: %.0f, %.0f, %.0f; malloc's KiB: %.0f, %.0f, %.0f; its "
           "blocks: %.0f, %.0f, %.0f; %u descriptors, %u threads\n",
           home.provider, took_ms / 1000, home.rounds, figures.operations, figures.bytes >> 20,
           figures.connects, figures.revocations, figures.imports, home.kills, home.cuts,
           figures.ends, first->resident / 1024, third->resident / 1024, last->resident / 1024,
           first->bytes / 1024, third->bytes / 1024, last->bytes / 1024, first->blocks,
           third->blocks, last->blocks, last->descriptors - 3, last->threads - 2);
}

static int run(uint64_t seconds, uint64_t seed)
{
    uint64_t begin_ms = now_ms();
    uint64_t length_ms = seconds * 1000 / ROUNDS_WISHED;
    length_ms = length_ms < ROUND_MS_LEAST ? ROUND_MS_LEAST : length_ms;
    length_ms = length_ms > ROUND_MS_MOST ? ROUND_MS_MOST : length_ms;
    bool good = true;
    heap_keep_little();
    home.descriptors = UINT_MAX;
    home.threads = UINT_MAX;
    /* Rings that fill up later are made resident at the beginning. */
    memset(home.reported, 0xff, sizeof(home.reported));
    memset(home.killed, 0xff, sizeof(home.killed));
    draw_from(seed);
    if (pipe2(home.notes, O_CLOEXEC | O_NONBLOCK) != 0) {
        wrong("no pipe");
    }
    open_fabric(&home.fabric, &home.cq);
    if (rdmux_listen(home.fabric, "127.0.0.1:0", NULL, &home.listener) != RDMUX_OK ||
        rdmux_listener_address(home.listener, home.address, sizeof(home.address)) != RDMUX_OK) {
        wrong("listen: %s", rdmux_last_error());
    }
    while ((now_ms() - begin_ms < seconds * 1000 || home.rounds < 4 || is_flaw_young()) &&
           home.rounds < ROUNDS_MAX) {
        live_round(length_ms);
        home.samples[home.rounds] = count_belongings();
        good = judge_round(home.rounds++) && good;
        if (!good) {
            break;
        }
    }
    good = good && judge_memory();
    print_figures(now_ms() - begin_ms);
    rdmux_listener_close(home.listener);
    good = rdmux_cq_destroy(home.cq) == RDMUX_OK && rdmux_fabric_close(home.fabric) == RDMUX_OK &&
           good;
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const char *const flaws[FLAWS] = { "none",       "memory", "table", "mapping",
                                              "descriptor", "thread", "byte",  "entry" };
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 5 && strcmp(argv[1], "--peer") == 0) {
        home.provider = argv[2];
        return be_peer(argv[3], strtoul(argv[4], NULL, 10));
    }
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: soak PROVIDER SECONDS SEED [FLAW]\n"
                        "FLAW: a mistake of the test's own, which it finds: memory, table, "
                        "mapping, descriptor, thread, byte, entry\n");
        return 2;
    }
    for (int i = 0; argc == 5 && i < FLAWS; i++) {
        flaw = strcmp(flaws[i], argv[4]) == 0 ? (enum flaw)i : flaw;
    }
    home.provider = argv[1];
    int status = run(strtoul(argv[2], NULL, 10), strtoul(argv[3], NULL, 10));
    printf("%sok 1 - %s for %s s, seed %s%s%s\n1..1\n", status == 0 ? "" : "not ", argv[1], argv[2],
           argv[3], argc == 5 ? ", with a flaw: " : "", argc == 5 ? argv[4] : "");
    return status;
}
