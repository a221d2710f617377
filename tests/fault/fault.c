/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Makes each allocation and each call of the library fail, the first, the second and so on, one per
 * run, in the whole life of a connection: set-up, negotiation, regions, every operation, the end.
 * Both sides are in this process and make progress by their own calls, so that the nth call is the
 * same one in each run; then all of it again with service threads, where it is nearly so. After each
 * failure the same life must go well, and nothing may be left.
 *
 * Prints TAP, a case for each path and kind, with the number of points tried.
 */
#include "inject.h"
#include "tests/counted.h"

#include <rdmux/rdmux.h>

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    REGION_SIZE = 65536,
    SMALL = 8,
    MIDDLE = 4096,
    LARGE = 65536, /* beyond what is sent inline, copied in one piece, or fits a slot */
    ADDEND = 7,
    PATIENT_MS = 20000,
    LIFE_MS = 4000, /* for one life, in which failures may take a path's time */
    PATH_MS = 300,
    LIVENESS_MS = 1000,
    EXPLAIN_MS = 1000,
    POINT_S = 60, /* until a run is taken for hung */
    WORKERS = 4,  /* points tried at a time: most of the time is spent waiting for an end */
    REQUESTS_MAX = 16,
    DESCRIPTORS_MAX = 256,
    EXIT_HANDLED = 0,
    EXIT_NOT_REACHED = 3,
    EXIT_WRONG = 1,
};

/* What became of a request. */
struct outcome {
    bool posted;
    unsigned entries;
    uint32_t status;
};

struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_mr *mr;
    bool is_connected;
    bool has_ended;
    struct outcome requests[REQUESTS_MAX];
};

struct life {
    struct side a; /* connects, and does what is done */
    struct side b;
    struct rdmux_listener *listener;
    struct rdmux_remote *remote;
    bool remote_is_ready;
    uint64_t until_ms;
    uint8_t received[3][LARGE];
    jmp_buf end; /* where the life goes when something of it has failed */
};

static uint8_t pattern[LARGE];
static uint8_t source[REGION_SIZE];
static const char *path_name;
static uint32_t fabric_flags;
static bool is_hurried; /* ends are to come soon; else a busy machine must not bring any */

/* ------------------------------------------------------------------------------------- verdicts */

static _Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void wrong(const char *format, ...)
{
    va_list arguments;
    inject_disarm();
    const char *victim = inject_victim();
    printf("%s failed: ", victim == NULL ? "nothing" : victim);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    _exit(EXIT_WRONG);
}

/* Nothing was made to fail, and time is given. */
static bool must_go_well(void)
{
    return inject_victim() == NULL && !is_hurried;
}

static bool may_follow(enum rdmux_status status)
{
    switch (status) {
    case RDMUX_NO_MEMORY:
    case RDMUX_IO:
    case RDMUX_PEER_GONE:
    case RDMUX_NO_PATH:
    case RDMUX_TIMED_OUT:
    case RDMUX_FLUSHED:
    case RDMUX_REFUSED:
    case RDMUX_OUTCOME_UNKNOWN:
        return true;
    default:
        return false;
    }
}

/* The outcome of a call; ends the life if it failed as it may. */
static void check(struct life *life, enum rdmux_status status, const char *call)
{
    if (status == RDMUX_OK) {
        return;
    }
    if (must_go_well()) {
        wrong("%s: %s: %s", call, rdmux_status_name(status), rdmux_last_error());
    }
    if (!may_follow(status)) {
        wrong("%s gave %s, which it may not: %s", call, rdmux_status_name(status),
              rdmux_last_error());
    }
    if (rdmux_last_error()[0] == '\0') {
        wrong("%s gave %s without a text", call, rdmux_status_name(status));
    }
    longjmp(life->end, 1);
}

#define TRY(life, call) check(life, call, #call)

/* ------------------------------------------------------------------------------------- progress */

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void take_entry(struct life *life, struct side *side, const struct rdmux_wc *wc)
{
    switch (wc->opcode) {
    case RDMUX_WC_CONNECTED:
        side->is_connected = wc->status == RDMUX_OK;
        side->has_ended |= wc->status != RDMUX_OK;
        return;
    case RDMUX_WC_DISCONNECTED:
        side->has_ended = true;
        return;
    case RDMUX_WC_REMOTE_READY:
        life->remote_is_ready = wc->status == RDMUX_OK;
        side->has_ended |= wc->status != RDMUX_OK;
        return;
    default:
        break;
    }
    uintptr_t number = (uintptr_t)wc->context;
    if (number >= REQUESTS_MAX || !side->requests[number].posted) {
        wrong("an entry %s of no request: context %" PRIuPTR, rdmux_wc_opcode_name(wc->opcode),
              number);
    }
    side->requests[number].entries++;
    side->requests[number].status = wc->status;
}

static void progress_of(struct life *life, struct side *side)
{
    struct rdmux_wc wc[8];
    if (side->fabric != NULL) {
        (void)rdmux_fabric_progress(side->fabric);
    }
    size_t count = side->cq == NULL ? 0 : rdmux_cq_poll(side->cq, wc, 8);
    for (size_t i = 0; i < count; i++) {
        take_entry(life, side, &wc[i]);
    }
}

/* One step of both sides. False: the time is over, or one side has ended. */
static bool progress(struct life *life)
{
    progress_of(life, &life->a);
    progress_of(life, &life->b);
    if (now_ms() > life->until_ms && must_go_well()) {
        wrong("nothing happens any more");
    }
    return now_ms() <= life->until_ms && !life->a.has_ended && !life->b.has_ended;
}

static const char *why_ended(const struct side *side)
{
    static struct rdmux_ep_info info[2];
    static unsigned next;
    struct rdmux_ep_info *out = &info[next++ % 2];
    *out = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    return side->ep != NULL && rdmux_ep_info(side->ep, out) == RDMUX_OK ? out->text : "no endpoint";
}

static void progress_or_end(struct life *life)
{
    if (!progress(life)) {
        if (must_go_well()) {
            wrong("the connection has ended: %s; %s", why_ended(&life->a), why_ended(&life->b));
        }
        longjmp(life->end, 1);
    }
}

/* ----------------------------------------------------------------------------------------- life */

static void *context_of(struct side *side, size_t number)
{
    side->requests[number].posted = true;
    return (void *)(uintptr_t)number;
}

/* A request that was refused has no entry. */
static void try_post(struct life *life, struct side *side, size_t number, enum rdmux_status status,
                     const char *call)
{
    if (status != RDMUX_OK) {
        side->requests[number].posted = false;
    }
    check(life, status, call);
}

#define POST(life, side, number, call) try_post(life, side, number, call, #call)

static void await(struct life *life, struct side *side, size_t number)
{
    struct outcome *outcome = &side->requests[number];
    while (outcome->entries == 0) {
        progress_or_end(life);
    }
    if (outcome->status != RDMUX_OK && must_go_well()) {
        wrong("request %zu: %s", number, rdmux_status_name((enum rdmux_status)outcome->status));
    }
    if (outcome->status != RDMUX_OK) {
        longjmp(life->end, 1);
    }
}

static void open_side(struct life *life, struct side *side)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = fabric_flags | RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = path_name;
    TRY(life, rdmux_fabric_open(&attr, &side->fabric));
    TRY(life, rdmux_cq_create(side->fabric, NULL, &side->cq));
}

/* The fabric that listens asks its own listener: nobody else makes progress within the call. */
static void explain(struct life *life, const char *address, const struct rdmux_ep_attr *attr)
{
    struct rdmux_explanation *explanation = NULL;
    enum rdmux_status status = rdmux_explain(life->b.fabric, address, attr,
                                             is_hurried ? EXPLAIN_MS : PATIENT_MS, &explanation);
    rdmux_explanation_free(explanation);
    check(life, status, "rdmux_explain");
}

static void meet(struct life *life)
{
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    if (is_hurried) {
        attr.liveness_ms = LIVENESS_MS;
        attr.setup_timeout_ms = LIFE_MS / 2;
        attr.path_timeout_ms = PATH_MS;
    }
    TRY(life, rdmux_listen(life->b.fabric, "127.0.0.1:0", NULL, &life->listener));
    TRY(life, rdmux_listener_address(life->listener, address, sizeof(address)));
    explain(life, address, &attr);
    enum rdmux_status status = rdmux_connect(life->a.fabric, life->a.cq, address, &attr, 0,
                                             &life->a.ep);
    check(life, status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "rdmux_connect");
    while (!life->a.is_connected || life->b.ep == NULL) {
        if (life->b.ep == NULL) {
            status = rdmux_accept(life->listener, life->b.cq, &attr, 1, &life->b.ep);
            check(life, status == RDMUX_TIMED_OUT ? RDMUX_OK : status, "rdmux_accept");
        }
        progress_or_end(life);
    }
}

static void share_memory(struct life *life)
{
    struct rdmux_token token;
    TRY(life, rdmux_mr_register(life->a.fabric, source, sizeof(source), RDMUX_ACCESS_LOCAL_WRITE,
                                &life->a.mr));
    TRY(life, rdmux_mr_alloc(life->b.fabric, REGION_SIZE,
                             RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                 RDMUX_ACCESS_REMOTE_ATOMIC,
                             &life->b.mr));
    memset(rdmux_mr_addr(life->b.mr), 0, REGION_SIZE);
    TRY(life, rdmux_mr_export(life->b.mr, &token));
    enum rdmux_status status = rdmux_remote_import(life->a.ep, &token, 0, &life->remote);
    check(life, status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "rdmux_remote_import");
    while (status == RDMUX_IN_PROGRESS && !life->remote_is_ready) {
        progress_or_end(life);
    }
}

static void send_messages(struct life *life)
{
    static const size_t sizes[] = { SMALL, MIDDLE, LARGE };
    struct side *a = &life->a;
    struct side *b = &life->b;
    for (size_t i = 0; i < 3; i++) {
        POST(life, b, i, rdmux_recv(b->ep, life->received[i], LARGE, NULL, context_of(b, i)));
        POST(life, a, i, rdmux_send(a->ep, pattern, sizes[i], NULL, context_of(a, i), 0));
    }
    for (size_t i = 0; i < 3; i++) {
        await(life, a, i);
        await(life, b, i);
        if (memcmp(life->received[i], pattern, sizes[i]) != 0) {
            wrong("message %zu of %zu bytes came with other bytes", i, sizes[i]);
        }
    }
}

static void use_memory(struct life *life)
{
    enum { WRITE = 3, READ, ADD, NOTE, BACK, BACK_AT = 2 * MIDDLE };
    struct side *a = &life->a;
    struct side *b = &life->b;
    static uint64_t before;
    const uint8_t *there = rdmux_mr_addr(b->mr);
    memcpy(source, pattern, MIDDLE);
    memset(source + BACK_AT, 0, MIDDLE);
    POST(life, a, WRITE,
         rdmux_write(a->ep, source, MIDDLE, a->mr, life->remote, 0, context_of(a, WRITE),
                     RDMUX_PLACED));
    await(life, a, WRITE);
    if (memcmp(there, pattern, MIDDLE) != 0) {
        wrong("a placed write is not there");
    }
    POST(life, a, READ,
         rdmux_read(a->ep, source + BACK_AT, MIDDLE, a->mr, life->remote, 0, context_of(a, READ),
                    0));
    await(life, a, READ);
    if (memcmp(source + BACK_AT, pattern, MIDDLE) != 0) {
        wrong("a read came with other bytes");
    }
    POST(life, a, ADD,
         rdmux_fetch_add(a->ep, &before, NULL, life->remote, MIDDLE, ADDEND, context_of(a, ADD), 0));
    await(life, a, ADD);
    uint64_t word = 0;
    memcpy(&word, there + MIDDLE, sizeof(word));
    if (before != 0 || word != ADDEND) {
        wrong("fetch_add: %" PRIu64 " before, %" PRIu64 " then", before, word);
    }
    POST(life, b, NOTE, rdmux_recv(b->ep, NULL, 0, NULL, context_of(b, NOTE)));
    POST(life, a, NOTE,
         rdmux_write_imm(a->ep, pattern, SMALL, NULL, life->remote, BACK_AT, 1, context_of(a, NOTE),
                         0));
    await(life, b, NOTE);
    if (memcmp(there + BACK_AT, pattern, SMALL) != 0) {
        wrong("the bytes of a write_imm are not there at its notice");
    }
    await(life, a, NOTE);
}

static void part(struct life *life)
{
    enum rdmux_status status = rdmux_ep_shutdown(life->a.ep, 0);
    check(life, status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "rdmux_ep_shutdown");
    while (status == RDMUX_IN_PROGRESS && progress(life)) {
    }
}

/* What was posted gets its entry before the endpoint is closed. */
static void drain(struct life *life, struct side *side)
{
    uint64_t until_ms = now_ms() + LIFE_MS;
    for (size_t i = 0; i < REQUESTS_MAX && side->has_ended; i++) {
        while (side->requests[i].posted && side->requests[i].entries == 0) {
            progress_of(life, &life->a);
            progress_of(life, &life->b);
            if (now_ms() > until_ms) {
                wrong("request %zu never completes, though its endpoint has ended", i);
            }
        }
        if (side->requests[i].entries > 1) {
            wrong("request %zu completed %u times", i, side->requests[i].entries);
        }
    }
}

static void must(enum rdmux_status status, const char *call)
{
    if (status != RDMUX_OK) {
        wrong("%s: %s: %s", call, rdmux_status_name(status), rdmux_last_error());
    }
}

static void close_side(struct side *side)
{
    rdmux_mr_deregister(side->mr);
    must(rdmux_cq_destroy(side->cq), "rdmux_cq_destroy");
    must(rdmux_fabric_close(side->fabric), "rdmux_fabric_close");
}

/* Returns whether it was lived to its end. */
static bool live(bool hurried)
{
    static struct life life;
    memset(&life, 0, sizeof(life));
    is_hurried = hurried;
    life.until_ms = now_ms() + (hurried ? LIFE_MS : PATIENT_MS);
    volatile bool is_whole = false;
    if (setjmp(life.end) == 0) {
        open_side(&life, &life.a);
        open_side(&life, &life.b);
        meet(&life);
        share_memory(&life);
        send_messages(&life);
        use_memory(&life);
        part(&life);
        is_whole = true;
    }
    drain(&life, &life.a);
    drain(&life, &life.b);
    rdmux_remote_close(life.remote);
    must(rdmux_ep_close(life.a.ep), "rdmux_ep_close");
    must(rdmux_ep_close(life.b.ep), "rdmux_ep_close");
    rdmux_listener_close(life.listener);
    close_side(&life.a);
    close_side(&life.b);
    return is_whole;
}

/* --------------------------------------------------------------------------------------- points */

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* In a process of its own. */
static _Noreturn void run_point(enum inject_kind kind, size_t point)
{
    alarm(POINT_S);
    (void)live(false); /* what libraries keep for ever is there from now on */
    long blocks = inject_blocks();
    unsigned descriptors = open_descriptors();

    inject_arm(kind, point);
    if (!live(true) && inject_victim() == NULL) {
        inject_arm(kind, point); /* the machine is too busy for the hurry */
        (void)live(false);
    }
    inject_disarm();

    const char *victim = inject_victim();
    if (inject_blocks() != blocks) {
        wrong("%ld blocks of memory are left", inject_blocks() - blocks);
    }
    if (open_descriptors() != descriptors) {
        wrong("%u descriptors have become %u", descriptors, open_descriptors());
    }
    bool reached = victim != NULL;
    inject_arm(kind, 0); /* forgets the victim: now everything must go well */
    inject_disarm();
    (void)live(false);
    end_counted(reached ? EXIT_HANDLED : EXIT_NOT_REACHED);
}

/* Returns the exit status, or 128 + a signal. */
static int try_point(enum inject_kind kind, size_t point)
{
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        run_point(kind, point);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return EXIT_WRONG;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const char *const kind_names[] = { "allocation", "call" };

struct tally {
    _Atomic size_t points;
    _Atomic size_t bad;
};

/* Tries every WORKERSth point from `first` on, in a process of its own. */
static _Noreturn void work(const char *path, enum inject_kind kind, size_t first,
                           struct tally *tally)
{
    enum { BAD_MAX = 20 };
    int status = 0;
    for (size_t point = first; (status = try_point(kind, point)) != EXIT_NOT_REACHED;
         point += WORKERS) {
        atomic_fetch_add(&tally->points, 1);
        if (status != EXIT_HANDLED) {
            printf("# exit status %d; again: fault %s %s %s %zu\n", status, path,
                   fabric_flags == 0 ? "served" : "manual", kind_names[kind], point);
            (void)fflush(stdout);
            if (atomic_fetch_add(&tally->bad, 1) >= BAD_MAX) {
                break;
            }
        }
    }
    _exit(0);
}

/* Returns whether all was well. */
static bool try_all(unsigned number, const char *path, enum inject_kind kind)
{
    struct tally *tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t workers[WORKERS];
    bool ended = tally != MAP_FAILED;
    if (!ended) {
        return false;
    }
    path_name = path;
    (void)fflush(stdout);
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            work(path, kind, i + 1, tally);
        }
    }
    for (size_t i = 0; i < WORKERS; i++) {
        int status = 0;
        ended = ended && workers[i] > 0 && waitpid(workers[i], &status, 0) == workers[i] &&
                status == 0;
    }
    bool good = ended && tally->bad == 0 && tally->points > 0;
    printf("%sok %u - %s, %s: each %s of a connection's life fails in turn, %zu points\n",
           good ? "" : "not ", number, path,
           fabric_flags == 0 ? "with service threads" : "without service threads", kind_names[kind],
           atomic_load(&tally->points));
    (void)munmap(tally, sizeof(*tally));
    return good;
}

int main(int argc, char **argv)
{
    static const char *const paths[] = { "tcp", "shm" };
    for (size_t i = 0; i < sizeof(pattern); i++) {
        pattern[i] = (uint8_t)(i * 7 + i / 251);
    }
    if (argc == 5) {
        path_name = argv[1];
        fabric_flags = strcmp(argv[2], "served") == 0 ? 0 : RDMUX_FABRIC_NO_SERVICE_THREAD;
        bool calls = strcmp(argv[3], kind_names[INJECT_CALL]) == 0;
        run_point(calls ? INJECT_CALL : INJECT_ALLOCATION, strtoul(argv[4], NULL, 10));
    }
    if (argc != 1) {
        fprintf(stderr, "usage: fault [tcp|shm manual|served allocation|call POINT]\n");
        return 2;
    }
    static const uint32_t flags[] = { RDMUX_FABRIC_NO_SERVICE_THREAD, 0 };
    unsigned number = 0;
    bool good = true;
    for (size_t i = 0; i < 4; i++) {
        fabric_flags = flags[i / 2];
        good = try_all(++number, paths[i % 2], INJECT_ALLOCATION) && good;
        good = try_all(++number, paths[i % 2], INJECT_CALL) && good;
    }
    printf("1..%u\n", number);
    return good ? 0 : 1;
}
