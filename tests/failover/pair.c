/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Two processes with the load of load.h between them, over paths of a real kernel, which they break
 * by turns: once in each epoch one side cuts the path in use, and mends it once both have moved.
 *
 *   pair serve ADDRESS OPTION...    prints "listening on ADDRESS"; takes one connection
 *   pair drive ADDRESS OPTION...
 *
 *   --paths FILTER  --faults N  --seed N  --liveness MS
 *   --cut TEXT=COMMAND  --mend COMMAND   a way to break an adapter's path at this side, and how to
 *                                        mend it; the data socket of tcp is shut down
 */
#include "load.h"

#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
    ENTRIES = 64,
    CUTS_MAX = 8,
    SETUP_MS = 60000,
    LOOKS = 100,      /* at the endpoint, in a liveness time without entries */
    PATIENCE_S = 120, /* limit of each wait */
    MESSAGES_BETWEEN = 60,
    DESCRIPTORS_MAX = 256,
};

struct cut {
    const char *name;
    const char *command;
};

struct pair {
    uint32_t index; /* 0 drives */
    uint64_t seed;
    uint64_t faults;
    const char *mend;
    struct cut cuts[CUTS_MAX];
    uint32_t cut_count;
    uint64_t cuts_made;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct load *load;
    struct rdmux_ep_info info;
    uint64_t struck;
    int wait_ms;

    /* The fault under way, made by this side. */
    bool has_only_tcp;
    bool is_cut; /* by a command, until mended */
    bool is_struck;
    char from[RDMUX_NAME_MAX];
    const char *what;
    uint64_t struck_ns;
    uint64_t noticed_ns;
    uint64_t begin; /* messages received when the epoch was first seen */
    uint32_t epoch;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

_Noreturn static void die(const char *what, const char *why)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "pair: %s: %s\n", what, why);
    exit(1);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        die(what, rdmux_last_error());
    }
}

/* --------------------------------------------------------------------------------------- faults */

static bool is_marked(int fd)
{
    int tos = 0;
    socklen_t length = sizeof(tos);
    return getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &length) == 0 && tos != 0;
}

/* Data sockets have a class of service (attr.dscp), the control channel has none. */
static bool shut_data_socket(void)
{
    for (int fd = 3; fd < DESCRIPTORS_MAX; fd++) {
        struct sockaddr_in name = { .sin_port = 0 };
        socklen_t length = sizeof(name);
        if (getpeername(fd, (struct sockaddr *)&name, &length) == 0 && name.sin_family == AF_INET &&
            is_marked(fd)) {
            return shutdown(fd, SHUT_RDWR) == 0;
        }
    }
    return false;
}

static void call(const char *command)
{
    if (command != NULL && system(command) != 0) { /* NOLINT(cert-env33-c): it is the test's own */
        die(command, "has failed");
    }
}

static void strike(struct pair *pair)
{
    memcpy(pair->from, pair->info.provider, sizeof(pair->from));
    pair->struck++;
    pair->is_struck = true;
    pair->noticed_ns = 0;
    pair->is_cut = strcmp(pair->info.provider, "tcp") != 0 || pair->has_only_tcp;
    if (!pair->is_cut) {
        pair->what = "data socket";
        pair->struck_ns = now_ns();
        if (!shut_data_socket()) {
            die("tcp", "there is no data socket");
        }
        return;
    }
    const struct cut *cut = &pair->cuts[pair->cuts_made++ % pair->cut_count];
    pair->what = cut->name;
    call(cut->command);
    pair->struck_ns = now_ns(); /* from now on it is cut */
}

/* Returns whether this side breaks the path in the epoch. */
static bool has_turn(const struct pair *pair, uint32_t epoch)
{
    return epoch != 0 && epoch <= pair->faults && epoch / 2 % 2 == pair->index;
}

/* Prints how each epoch up to this one has ended: by a fault of this side, or with the text of the
 * move. A peer's fault is told by the peer. */
static void tell_epochs(const struct pair *pair)
{
    for (uint32_t left = pair->epoch; left < pair->info.epoch; left++) {
        const bool is_ours = left == pair->epoch && pair->is_struck;
        if (left != 0) {
            printf("epoch %u: %s\n", left, is_ours ? "a fault" : pair->info.text);
        }
    }
}

/* Breaks the path if it is this side's turn: side and time follow from the epoch and the messages
 * in it. */
static void look(struct pair *pair)
{
    pair->info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    if (load_has_ended(pair->load) || rdmux_ep_info(pair->ep, &pair->info) != RDMUX_OK) {
        return;
    }
    const uint64_t messages = load_counts(pair->load)->messages;
    if (pair->is_struck && pair->noticed_ns == 0 &&
        (pair->info.state == RDMUX_EP_MOVING || pair->info.epoch != pair->epoch)) {
        pair->noticed_ns = now_ns();
    }
    if (pair->info.state != RDMUX_EP_CONNECTED) {
        return;
    }
    if (pair->info.epoch != pair->epoch) {
        tell_epochs(pair);
        if (pair->is_struck) {
            printf("moved %s -> %s %.3f %.3f %s\n", pair->from, pair->info.provider,
                   (double)(pair->noticed_ns - pair->struck_ns) / 1e6,
                   (double)(now_ns() - pair->noticed_ns) / 1e6, pair->what);
            if (pair->is_cut) {
                call(pair->mend);
            }
            pair->is_struck = false;
        }
        pair->epoch = pair->info.epoch;
        pair->begin = messages;
        return;
    }
    if (!pair->is_struck && has_turn(pair, pair->epoch) &&
        messages >= pair->begin + MESSAGES_BETWEEN) {
        strike(pair);
    }
}

/* ----------------------------------------------------------------------------------------- load */

static size_t turn(struct pair *pair, bool posts)
{
    struct rdmux_wc wcs[ENTRIES];
    size_t count = 0;
    if (posts) {
        load_post(pair->load);
    }
    enum rdmux_status status = rdmux_cq_wait(pair->cq, wcs, ENTRIES, pair->wait_ms, &count);
    if (status != RDMUX_OK && status != RDMUX_TIMED_OUT) {
        die("rdmux_cq_wait", rdmux_last_error());
    }
    for (size_t i = 0; status == RDMUX_OK && i < count; i++) {
        load_take(pair->load, &wcs[i]);
    }
    return count;
}

/* Tokens travel as the first message. */
static struct rdmux_remote *exchange_tokens(struct pair *pair)
{
    struct rdmux_token ours;
    struct rdmux_token theirs;
    struct rdmux_remote *remote = NULL;
    uint32_t left = 2;
    must(rdmux_mr_export(load_region(pair->load), &ours), "rdmux_mr_export");
    must(rdmux_recv(pair->ep, &theirs, sizeof(theirs), NULL, NULL), "rdmux_recv");
    must(rdmux_send(pair->ep, &ours, sizeof(ours), NULL, NULL, 0), "rdmux_send");
    while (left > 0) {
        struct rdmux_wc wc[1];
        size_t count = 0;
        must(rdmux_cq_wait(pair->cq, wc, 1, SETUP_MS, &count), "rdmux_cq_wait");
        if (count == 1 && wc[0].status != RDMUX_OK) {
            die("tokens", rdmux_status_name((enum rdmux_status)wc[0].status));
        }
        left -= (uint32_t)count;
    }
    must(rdmux_remote_import(pair->ep, &theirs, SETUP_MS, &remote), "rdmux_remote_import");
    return remote;
}

static void go(struct pair *pair)
{
    uint64_t deadline_ns = now_ns() + PATIENCE_S * UINT64_C(1000000000);
    uint64_t seen = 0;
    char state[LOAD_TEXT];
    load_begin(pair->load, pair->ep, exchange_tokens(pair));
    while (!load_is_done(pair->load) && !load_has_ended(pair->load)) {
        look(pair);
        if (pair->epoch > pair->faults) {
            load_finish(pair->load);
        }
        (void)turn(pair, true);
        if (load_counts(pair->load)->messages != seen) {
            seen = load_counts(pair->load)->messages;
            deadline_ns = now_ns() + PATIENCE_S * UINT64_C(1000000000);
        }
        if (now_ns() > deadline_ns) {
            die("it stands still", load_state(pair->load, state, sizeof(state)));
        }
    }
    if (pair->index == 0 && !load_has_ended(pair->load)) {
        must(rdmux_ep_shutdown(pair->ep, 0) == RDMUX_IN_PROGRESS ? RDMUX_OK : RDMUX_IO,
             "rdmux_ep_shutdown");
    }
    for (deadline_ns = now_ns() + PATIENCE_S * UINT64_C(1000000000); !load_has_ended(pair->load);) {
        (void)turn(pair, false);
        if (now_ns() > deadline_ns) {
            die("the end", "does not come");
        }
    }
}

static int print_result(struct pair *pair)
{
    const struct load_errors *errors = load_errors(pair->load);
    const struct load_counts *counts = load_counts(pair->load);
    const bool has_ended_well = load_end_status(pair->load) == RDMUX_OK;
    load_check_marks(pair->load);
    printf("faults %llu moves %llu messages %llu requests %llu doubtful %llu lost %llu doubled "
           "%llu disordered %llu "
           "mismatched %llu broken %llu\n",
           (unsigned long long)pair->struck, (unsigned long long)counts->moves,
           (unsigned long long)counts->messages, (unsigned long long)counts->requests,
           (unsigned long long)counts->doubtful, (unsigned long long)errors->lost,
           (unsigned long long)errors->doubled, (unsigned long long)errors->disordered,
           (unsigned long long)errors->mismatched, (unsigned long long)errors->broken);
    if (!has_ended_well) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        must(rdmux_ep_info(pair->ep, &info), "rdmux_ep_info");
        printf("ended with %s: %s\n",
               rdmux_status_name((enum rdmux_status)load_end_status(pair->load)), info.text);
    }
    if (!load_is_clean(pair->load)) {
        printf("%s\n", load_text(pair->load));
    }
    return has_ended_well && load_is_clean(pair->load) && counts->moves >= pair->faults ? 0 : 1;
}

/* ----------------------------------------------------------------------------------------- main */

static void connect_pair(struct pair *pair, const char *address, const char *paths,
                         uint32_t liveness_ms)
{
    struct rdmux_fabric_attr fabric = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    fabric.paths = paths;
    must(rdmux_fabric_open(&fabric, &pair->fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(pair->fabric, NULL, &pair->cq), "rdmux_cq_create");
    const struct load_attr load = {
        .side = pair->index, .seed = pair->seed, .messages = UINT64_MAX, .has_failover = true
    };
    pair->load = load_create(pair->fabric, &load);
    if (pair->load == NULL) {
        die("load", load_why());
    }
    load_set_attr(pair->load, &attr);
    attr.liveness_ms = liveness_ms;
    pair->wait_ms = 1 + (int)liveness_ms / LOOKS;
    attr.failover_attempts = 100000;
    attr.failback_hold_ms = 1; /* all paths fail many times, and none is excluded for it */
    if (pair->index == 0) {
        must(rdmux_connect(pair->fabric, pair->cq, address, &attr, SETUP_MS, &pair->ep),
             "rdmux_connect");
    } else {
        struct rdmux_listener *listener = NULL;
        char at[RDMUX_ADDRESS_MAX];
        must(rdmux_listen(pair->fabric, address, NULL, &listener), "rdmux_listen");
        must(rdmux_listener_address(listener, at, sizeof(at)), "rdmux_listener_address");
        printf("listening on %s\n", at);
        (void)fflush(stdout);
        must(rdmux_accept(listener, pair->cq, &attr, SETUP_MS, &pair->ep), "rdmux_accept");
    }
}

static int usage(void)
{
    (void)fputs(
        "usage: pair serve|drive ADDRESS [--paths FILTER] [--faults N] [--seed N] [--liveness MS]\n"
        "            [--cut NAME=COMMAND]... [--mend COMMAND]\n",
        stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "paths", required_argument, NULL, 'p' },
                                             { "faults", required_argument, NULL, 'n' },
                                             { "seed", required_argument, NULL, 's' },
                                             { "liveness", required_argument, NULL, 'l' },
                                             { "cut", required_argument, NULL, 'c' },
                                             { "mend", required_argument, NULL, 'm' },
                                             { NULL, 0, NULL, 0 } };
    static struct pair pair;
    const char *paths = "auto";
    uint32_t liveness_ms = 1000;
    pair.seed = 1;
    for (int option = 0; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p':
            paths = optarg;
            break;
        case 'n':
            pair.faults = strtoull(optarg, NULL, 10);
            break;
        case 's':
            pair.seed = strtoull(optarg, NULL, 10);
            break;
        case 'l':
            liveness_ms = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            if (pair.cut_count == CUTS_MAX || strchr(optarg, '=') == NULL) {
                return usage();
            }
            *strchr(optarg, '=') = '\0';
            pair.cuts[pair.cut_count].name = optarg;
            pair.cuts[pair.cut_count++].command = optarg + strlen(optarg) + 1;
            break;
        case 'm':
            pair.mend = optarg;
            break;
        default:
            return usage();
        }
    }
    if (argc - optind != 2 || pair.cut_count == 0) {
        return usage();
    }
    pair.index = strcmp(argv[optind], "drive") == 0 ? 0 : 1;
    pair.cuts_made = pair.index; /* the two sides begin with different ones */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    pair.has_only_tcp = strcmp(paths, "tcp") == 0; /* then the wire in use breaks */
    connect_pair(&pair, argv[optind + 1], paths, liveness_ms);
    go(&pair);
    return print_result(&pair); /* the end of the process frees the rest */
}
