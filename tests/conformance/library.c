/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The library as part of a process: hooks, environment, silence, names, and its texts for wrong
 * arguments. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------ wrong arguments */

/* Checks that the call is refused as INVALID with a text that names the argument. */
static void expect_invalid_at(int line, const char *call, enum rdmux_status status,
                              const char *argument)
{
    if (status != RDMUX_INVALID) {
        fail_at(__FILE__, line, "%s\ngave %s, expected RDMUX_INVALID", call,
                rdmux_status_name(status));
    }
    if (strstr(rdmux_last_error(), argument) == NULL) {
        fail_at(__FILE__, line, "%s\nsays \"%s\", which does not name \"%s\"", call,
                rdmux_last_error(), argument);
    }
}

#define EXPECT_INVALID(call, argument) \
    expect_invalid_at(__LINE__, #call, \
                      (stand_at(__FILE__, __LINE__, #call), (enum rdmux_status)(call)), argument)

static void wrong_set_up(struct side *side)
{
    static uint8_t bytes[64];
    struct rdmux_fabric *fabric = side->fabric;
    struct rdmux_cq *cq = side->queue.cq;
    struct rdmux_fabric *no_fabric = NULL;
    struct rdmux_cq *no_cq = NULL;
    struct rdmux_mr *no_mr = NULL;
    struct rdmux_ep *no_ep = NULL;
    struct rdmux_srq *no_srq = NULL;
    struct rdmux_listener *no_listener = NULL;
    size_t count = 0;

    struct rdmux_fabric_attr fabric_attr = fabric_attr_of(side);
    EXPECT_INVALID(rdmux_fabric_open(&fabric_attr, NULL), "out");
    fabric_attr.flags = UINT32_C(1) << 31;
    EXPECT_INVALID(rdmux_fabric_open(&fabric_attr, &no_fabric), "flags");
    fabric_attr = fabric_attr_of(side);
    fabric_attr.paths = "tcp,nonsense";
    EXPECT_INVALID(rdmux_fabric_open(&fabric_attr, &no_fabric), "nonsense");
    fabric_attr = fabric_attr_of(side);
    fabric_attr.size = 0;
    EXPECT_INVALID(rdmux_fabric_open(&fabric_attr, &no_fabric), "size");

    EXPECT_INVALID(rdmux_cq_create(NULL, NULL, &no_cq), "fabric");
    EXPECT_INVALID(rdmux_cq_create(fabric, NULL, NULL), "out");
    EXPECT_INVALID(rdmux_fabric_paths(fabric, NULL, 3, &count), "out");
    EXPECT_INVALID(rdmux_fabric_paths(fabric, NULL, 0, NULL), "count");
    EXPECT_INVALID(rdmux_fabric_progress(NULL), "fabric");

    EXPECT_INVALID(rdmux_mr_register(NULL, bytes, 8, 0, &no_mr), "fabric");
    EXPECT_INVALID(rdmux_mr_register(fabric, NULL, 8, 0, &no_mr), "addr");
    EXPECT_INVALID(rdmux_mr_register(fabric, bytes, 0, 0, &no_mr), "length");
    EXPECT_INVALID(rdmux_mr_register(fabric, bytes, SIZE_MAX, 0, &no_mr), "bytes"); /* overflows */
    EXPECT_INVALID(rdmux_mr_register(fabric, bytes, 8, UINT32_C(1) << 30, &no_mr), "access");
    EXPECT_INVALID(rdmux_mr_register(fabric, bytes, 8, 0, NULL), "out");
    EXPECT_INVALID(rdmux_mr_alloc(fabric, 0, 0, &no_mr), "length");
    EXPECT_INVALID(rdmux_mr_create(fabric, NULL, &no_mr), "attr");
    EXPECT_INVALID(rdmux_mr_export(NULL, NULL), "mr");
    EXPECT_INVALID(rdmux_mr_revoke(NULL), "mr");

    EXPECT_INVALID(rdmux_listen(fabric, NULL, NULL, &no_listener), "address");
    EXPECT_INVALID(rdmux_listen(NULL, "127.0.0.1:0", NULL, &no_listener), "fabric");
    EXPECT_INVALID(rdmux_listen(fabric, "127.0.0.1:0", NULL, NULL), "out");
    EXPECT_INVALID(rdmux_accept(NULL, cq, NULL, 0, &no_ep), "listener");
    EXPECT_INVALID(rdmux_connect(NULL, cq, "127.0.0.1:1", NULL, 0, &no_ep), "fabric");
    EXPECT_INVALID(rdmux_connect(fabric, NULL, "127.0.0.1:1", NULL, 0, &no_ep), "cq");
    EXPECT_INVALID(rdmux_connect(fabric, cq, NULL, NULL, 0, &no_ep), "address");
    EXPECT_INVALID(rdmux_connect(fabric, cq, "127.0.0.1:1", NULL, 0, NULL), "out");
    EXPECT_INVALID(rdmux_connect(fabric, cq, "127.0.0.1:1", NULL, -2, &no_ep), "timeout_ms");
    EXPECT_INVALID(rdmux_srq_create(fabric, NULL, NULL, &no_srq), "cq");
    EXPECT(no_fabric == NULL && no_cq == NULL && no_mr == NULL && no_ep == NULL && no_srq == NULL &&
               no_listener == NULL,
           "an object after RDMUX_INVALID");
}

/* Each field of the endpoint's attributes, with a value beyond its limit. */
static void wrong_attributes(struct side *side)
{
    enum { CASES = 16 };
    struct rdmux_ep_attr attrs[CASES];
    const char *names[CASES];
    size_t count = 0;
    for (size_t i = 0; i < CASES; i++) {
        attrs[i] = ep_attr_of(side);
    }
    attrs[count].send_depth = 65537;
    names[count++] = "send_depth";
    attrs[count].recv_depth = 65537;
    names[count++] = "recv_depth";
    attrs[count].max_send_sge = 17;
    names[count++] = "max_send_sge";
    attrs[count].max_recv_sge = 17;
    names[count++] = "max_recv_sge";
    attrs[count].prefer = 9;
    names[count++] = "prefer";
    attrs[count].require = UINT64_C(1) << 60;
    names[count++] = "require";
    attrs[count].require_native = UINT64_C(1) << 60;
    names[count++] = "require_native";
    attrs[count].paths = "nonsense";
    names[count++] = "nonsense";
    attrs[count].liveness_ms = 99;
    names[count++] = "liveness_ms";
    attrs[count].flags = UINT32_C(1) << 31;
    names[count++] = "flags";
    attrs[count].dscp = 64;
    names[count++] = "dscp";
    attrs[count].ecn = 3;
    names[count++] = "ecn";
    attrs[count].data_sockets = 17;
    names[count++] = "data_sockets";
    attrs[count].private_length = 5; /* without private data */
    names[count++] = "private_data";
    attrs[count].service_level = 16;
    names[count++] = "service_level";
    attrs[count].probe = 2;
    names[count++] = "probe";
    EXPECT_EQUAL(count, CASES);
    for (size_t i = 0; i < count; i++) {
        struct rdmux_ep *ep = CTX(1);
        STAND(names[i]);
        enum rdmux_status status = rdmux_connect(side->fabric, side->queue.cq, "127.0.0.1:1",
                                                 &attrs[i], side->patient_ms, &ep);
        EXPECT(status == RDMUX_INVALID && ep == NULL, "%s: connect gave %s", names[i],
               rdmux_status_name(status));
        EXPECT(strstr(rdmux_last_error(), names[i]) != NULL, "the text does not name %s: %s",
               names[i], rdmux_last_error());
    }
}

static void wrong_initiator(struct side *side)
{
    uint64_t word = 0;
    struct rdmux_wc wc;
    size_t count = 0;
    struct rdmux_remote *no_remote = NULL;
    struct rdmux_token token = { { 0 } };
    struct rdmux_remote_info remote_info = RDMUX_REMOTE_INFO_INIT;
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = take_remote(side, ep);
    wrong_set_up(side);
    wrong_attributes(side);

    EXPECT_INVALID(rdmux_send(NULL, &word, 8, NULL, NULL, 0), "ep");
    EXPECT_INVALID(rdmux_send(ep, NULL, 8, NULL, NULL, 0), "buf");
    EXPECT_INVALID(rdmux_send(ep, &word, 8, NULL, NULL, UINT32_C(1) << 31), "flags");
    EXPECT_INVALID(rdmux_recv(NULL, &word, 8, NULL, NULL), "ep");
    EXPECT_INVALID(rdmux_recv(ep, NULL, 8, NULL, NULL), "buf");
    EXPECT_INVALID(rdmux_write(ep, &word, 8, NULL, NULL, 0, NULL, 0), "remote");
    EXPECT_INVALID(rdmux_write(ep, NULL, 8, NULL, remote, 0, NULL, 0), "buf");
    EXPECT_INVALID(rdmux_read(ep, NULL, 8, NULL, remote, 0, NULL, 0), "buf");
    EXPECT_INVALID(rdmux_read(ep, &word, 8, NULL, NULL, 0, NULL, 0), "remote");
    EXPECT_INVALID(rdmux_fetch_add(ep, NULL, NULL, remote, 0, 1, NULL, 0), "result");
    EXPECT_INVALID(rdmux_post(ep, NULL, 1, &count), "wrs");
    EXPECT_INVALID(rdmux_post_recv(ep, NULL, 1, &count), "wrs");
    const struct rdmux_wr spare = { .op = RDMUX_OP_SEND, .spare = { 0, 0, 1 } };
    EXPECT_INVALID(rdmux_post(ep, &spare, 1, &count), "spare");
    EXPECT_INVALID(rdmux_srq_recv(NULL, &word, 8, NULL, NULL), "srq");
    EXPECT_INVALID(rdmux_cq_wait(side->queue.cq, NULL, 1, 0, &count), "wc");
    EXPECT_INVALID(rdmux_cq_wait(side->queue.cq, &wc, 1, 0, NULL), "count");
    EXPECT_INVALID(rdmux_cq_wait(NULL, &wc, 1, 0, &count), "cq");
    EXPECT_INVALID(rdmux_cq_arm(NULL), "cq");
    EXPECT_INVALID(rdmux_ep_info(ep, NULL), "out");
    EXPECT_INVALID(rdmux_remote_import(ep, NULL, 0, &no_remote), "token");
    EXPECT_INVALID(rdmux_remote_import(ep, &token, 0, NULL), "out");
    EXPECT_INVALID(rdmux_remote_import(NULL, &token, 0, &no_remote), "ep");
    EXPECT_INVALID(rdmux_remote_info(NULL, &remote_info), "remote");
    EXPECT_INVALID(rdmux_ep_shutdown(ep, -2), "timeout_ms");
    EXPECT(rdmux_cq_poll(NULL, &wc, 1) == 0, "a poll of nothing brings %s", wc_text(&wc));
    rdmux_remote_close(NULL);
    EXPECT_QUIET(&side->queue);
    exercise(side, &side->queue, ep); /* nothing has changed */
    side_finish(side);
}

static void wrong_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 64, ACCESS_ALL);
    give_token(side, &region);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ names */

static void names(struct side *side)
{
    char version[32];
    (void)side;
    EXPECT(strcmp(rdmux_status_name(RDMUX_OK), "RDMUX_OK") == 0 &&
               strcmp(rdmux_status_name(RDMUX_NO_PATH), "RDMUX_NO_PATH") == 0 &&
               strcmp(rdmux_status_name(RDMUX_IO), "RDMUX_IO") == 0 &&
               strcmp(rdmux_status_name((enum rdmux_status)9999), "RDMUX_?") == 0,
           "statuses have other names");
    for (int i = RDMUX_OK; i <= RDMUX_IO; i++) {
        EXPECT(strchr(rdmux_status_name((enum rdmux_status)i), '?') == NULL,
               "status %d has no name", i);
    }
    for (int i = RDMUX_REASON_NONE; i <= RDMUX_REASON_PATH_LOST; i++) {
        EXPECT(strchr(rdmux_reason_name((enum rdmux_reason)i), '?') == NULL,
               "reason %d has no name", i);
    }
    EXPECT(strcmp(rdmux_reason_name(RDMUX_REASON_CHOSEN), "CHOSEN") == 0 &&
               strcmp(rdmux_reason_name(RDMUX_REASON_OTHER_HOST), "OTHER_HOST") == 0 &&
               strcmp(rdmux_reason_name((enum rdmux_reason)9999), "?") == 0,
           "reasons have other names");
    for (int i = RDMUX_STAGE_PROBE; i <= RDMUX_STAGE_COMMIT; i++) {
        EXPECT(strchr(rdmux_stage_name((enum rdmux_stage)i), '?') == NULL, "stage %d has no name",
               i);
    }
    for (int i = RDMUX_SECURITY_NONE; i <= RDMUX_SECURITY_ENCRYPTED; i++) {
        EXPECT(strchr(rdmux_security_name((enum rdmux_security)i), '?') == NULL,
               "security %d has no name", i);
    }
    for (uint32_t i = RDMUX_WC_SEND; i <= RDMUX_WC_RECV_WRITE_IMM; i++) {
        EXPECT(strchr(rdmux_wc_opcode_name(i), '?') == NULL, "opcode %u has no name", i);
    }
    for (uint32_t i = RDMUX_WC_CONNECTED; i <= RDMUX_WC_REMOTE_READY; i++) {
        EXPECT(strchr(rdmux_wc_opcode_name(i), '?') == NULL, "event %u has no name", i);
    }
    EXPECT(strcmp(rdmux_wc_opcode_name(999), "?") == 0, "opcode 999 is %s",
           rdmux_wc_opcode_name(999));
    (void)snprintf(version, sizeof(version), "%d.%d.%d", RDMUX_VERSION_MAJOR, RDMUX_VERSION_MINOR,
                   RDMUX_VERSION_PATCH);
    EXPECT(strcmp(rdmux_version(), version) == 0, "the library is %s, its header %s",
           rdmux_version(), version);
    EXPECT(rdmux_last_error()[0] == '\0', "a text before any failure: %s", rdmux_last_error());
}

static void nothing(struct side *side)
{
    (void)side;
}

/* ------------------------------------------------------------------------------ hooks */

static _Thread_local bool on_data_path;

struct hooks {
    _Atomic int64_t allocated; /* and not released */
    _Atomic uint64_t allocations;
    _Atomic uint64_t lines;
    _Atomic uint64_t randoms;
    _Atomic uint64_t clocks;
    _Atomic uint64_t threads;
    _Atomic uint64_t on_data_path; /* hooks called by a thread inside a data-path call */
    _Atomic uint64_t bad_lines;
};

static void *hook_allocate(void *user, size_t size)
{
    struct hooks *hooks = user;
    atomic_fetch_add(&hooks->allocated, 1);
    atomic_fetch_add(&hooks->allocations, 1);
    atomic_fetch_add(&hooks->on_data_path, on_data_path ? 1 : 0);
    return malloc(size);
}

static void hook_release(void *user, void *memory)
{
    struct hooks *hooks = user;
    if (memory != NULL) {
        atomic_fetch_sub(&hooks->allocated, 1);
    }
    atomic_fetch_add(&hooks->on_data_path, on_data_path ? 1 : 0);
    free(memory);
}

static void hook_log(void *user, enum rdmux_log_level level, const char *line)
{
    struct hooks *hooks = user;
    atomic_fetch_add(&hooks->lines, 1);
    atomic_fetch_add(&hooks->on_data_path, on_data_path ? 1 : 0);
    if (level < RDMUX_LOG_ERROR || level > RDMUX_LOG_TRACE || line == NULL ||
        strchr(line, '\n') != NULL) {
        atomic_fetch_add(&hooks->bad_lines, 1);
    }
}

static uint64_t hook_clock(void *user)
{
    struct hooks *hooks = user;
    atomic_fetch_add(&hooks->clocks, 1);
    return now_ns();
}

static int hook_random(void *user, void *out, size_t size)
{
    struct hooks *hooks = user;
    atomic_fetch_add(&hooks->randoms, 1);
    for (size_t done = 0; done < size;) {
        size_t step = size - done < 256 ? size - done : 256;
        if (getentropy((uint8_t *)out + done, step) != 0) {
            return -1;
        }
        done += step;
    }
    return 0;
}

/* Runs on the new thread: the one that opens the fabric waits. */
static int hook_thread(void *user, const char *name)
{
    struct hooks *hooks = user;
    atomic_fetch_add(&hooks->threads, 1);
    return strncmp(name, "rdmux-", strlen("rdmux-")) == 0 && gettid() != getpid() ? 0 : -1;
}

static struct rdmux_fabric_attr hooked_attr(struct side *side, struct hooks *hooks)
{
    struct rdmux_fabric_attr attr = fabric_attr_of(side);
    attr.allocate = hook_allocate;
    attr.release = hook_release;
    attr.allocate_user = hooks;
    attr.log = hook_log;
    attr.log_user = hooks;
    attr.log_level = RDMUX_LOG_TRACE;
    attr.clock_ns = hook_clock;
    attr.clock_user = hooks;
    attr.random = hook_random;
    attr.random_user = hooks;
    attr.thread_start = hook_thread;
    attr.thread_user = hooks;
    return attr;
}

/* The library releases all memory from the allocator, and calls the hooks it was given. */
static void hooked(struct side *side)
{
    static struct hooks hooks;
    struct rdmux_fabric_attr attr = hooked_attr(side, &hooks);
    struct rdmux_explanation *explanation = NULL;
    side_open(side, &attr);
    EXPECT_EQUAL(atomic_load(&hooks.threads), 2);
    side_meet(side);
    for (unsigned i = 0; i < 3; i++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        exercise(side, &side->queue, ep);
        EXPECT_OK(rdmux_ep_explanation(ep, &explanation));
        rdmux_explanation_free(explanation);
    }
    side_finish(side);
    EXPECT(hooks.allocations > 0 && hooks.lines > 0 && hooks.clocks > 0 && hooks.randoms > 0,
           "hooks were not used: %" PRIu64 " allocations, %" PRIu64 " lines, %" PRIu64
           " clocks, %" PRIu64 " randoms",
           hooks.allocations, hooks.lines, hooks.clocks, hooks.randoms);
    EXPECT(hooks.allocated == 0, "%" PRId64 " allocations were never released",
           (int64_t)hooks.allocated);
    EXPECT(hooks.bad_lines == 0, "%" PRIu64 " log lines are not one line of a level",
           hooks.bad_lines);
}

/* Makes every data-path call many times, with hooks that detect their use. */
static void quiet_path_initiator(struct side *side)
{
    static struct hooks hooks;
    static uint8_t bytes[200000];
    struct rdmux_fabric_attr attr = hooked_attr(side, &hooks);
    uint64_t old = 0;
    uint8_t byte = 0;
    side_open(side, &attr);
    side_meet(side);
    (void)side_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct region region = region_make(side, MEMORY_REGISTERED, sizeof(bytes), ACCESS_ALL);
    struct rdmux_remote *remote = take_remote(side, ep);
    bool atomics = ((side->info.native | side->info.emulated) & NEEDS_ATOMICS) == NEEDS_ATOMICS;
    for (uint64_t round = 0; round < 300; round++) {
        size_t length = round % 10 == 0 ? sizeof(bytes) : 1 + round;
        uint64_t expected = 3 + (atomics ? 1 : 0);
        on_data_path = true;
        enum rdmux_status statuses[5] = {
            rdmux_write(ep, bytes, length, NULL, remote, 0, CTX(1), 0),
            rdmux_read(ep, region.addr, length, region.mr, remote, 0, CTX(2), 0),
            rdmux_send(ep, bytes, length, NULL, CTX(3), 0),
            rdmux_recv(ep, &byte, 1, NULL, CTX(5)),
            atomics ? rdmux_fetch_add(ep, &old, NULL, remote, 0, 1, CTX(4), 0) : RDMUX_OK,
        };
        for (unsigned polls = 1; expected > 0; polls++) {
            struct rdmux_wc wc[8];
            size_t count = rdmux_cq_poll(side->queue.cq, wc, COUNT_OF(wc));
            for (size_t i = 0; i < count; i++) {
                expected -= wc[i].opcode != RDMUX_WC_RECV;
            }
            if (time_is_up()) {
                break;
            }
            if (polls % 64 == 0) {
                (void)sched_yield();
            }
        }
        on_data_path = false;
        EXPECT(expected == 0, "round %" PRIu64 ": %" PRIu64 " completions are missing", round,
               expected);
        for (size_t i = 0; i < COUNT_OF(statuses); i++) {
            /* receives become full after a while: that is a data path, too */
            EXPECT(statuses[i] == RDMUX_OK || (i == 3 && statuses[i] == RDMUX_AGAIN),
                   "post %zu gave %s", i, rdmux_status_name(statuses[i]));
        }
    }
    EXPECT(hooks.on_data_path == 0, "data-path calls called hooks %" PRIu64 " times",
           hooks.on_data_path);
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_end(side);
}

static void quiet_path_target(struct side *side)
{
    enum { RECEIVES = 8 };
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_ALLOCATED, (size_t)RECEIVES * 200000, ACCESS_SINK);
    struct region region = region_make(side, MEMORY_ALLOCATED, 200000, ACCESS_ALL);
    for (uint64_t i = 0; i < RECEIVES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, sink.addr + i * 200000, 200000, sink.mr, CTX(i)));
    }
    give_token(side, &region);
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t slot = i % RECEIVES;
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(slot));
        EXPECT_OK(rdmux_recv(side->ep, sink.addr + slot * 200000, 200000, sink.mr, CTX(slot)));
    }
    BARRIER(side);
    side_end(side);
}

/* ------------------------------------------------------------------------------ silence */

struct signals {
    void (*handlers[32])(int);
    sigset_t mask;
};

static void signals_read(struct signals *signals)
{
    EXPECT(sigprocmask(SIG_SETMASK, NULL, &signals->mask) == 0, "sigprocmask: %s", strerror(errno));
    for (int number = 1; number < 32; number++) {
        struct sigaction action = { .sa_handler = SIG_DFL };
        (void)sigaction(number, NULL, &action);
        signals->handlers[number] = action.sa_handler;
    }
}

/* Standard output and error lead to a file. After some failures and some work the file must be
 * empty. Signals must be unchanged. */
static void silent(struct side *side)
{
    int file = memfd_create("output", MFD_CLOEXEC);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    struct rdmux_remote *remote = NULL;
    struct rdmux_token token = { { 0 } };
    static struct signals before;
    static struct signals after;
    EXPECT(file >= 0 && dup2(file, 1) == 1 && dup2(file, 2) == 2, "no file: %s", strerror(errno));
    side->descriptors[file] = true;
    signals_read(&before);
    side_open_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, "127.0.0.1:x", &attr, 100, &ep),
                  RDMUX_INVALID);
    enum rdmux_status status = rdmux_remote_import(side->ep, &token, side->patient_ms, &remote);
    EXPECT(status != RDMUX_OK, "an import of zero bytes gave %s", rdmux_status_name(status));
    signals_read(&after);
    for (int number = 1; number < 32; number++) {
        EXPECT(before.handlers[number] == after.handlers[number],
               "the handler of signal %d has changed", number);
        EXPECT(sigismember(&before.mask, number) == sigismember(&after.mask, number),
               "the mask of signal %d has changed", number);
    }
    side_finish(side);
    EXPECT(lseek(file, 0, SEEK_END) == 0, "the library wrote to the program's output");
    (void)close(file);
}

/* ------------------------------------------------------------------------------ environment */

static void environment_initiator(struct side *side)
{
    char filter[RDMUX_NAME_MAX + 1];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    (void)snprintf(filter, sizeof(filter), "!%s", side->provider);
    EXPECT(setenv("RDMUX_PATHS", filter, 1) == 0, "setenv: %s", strerror(errno));
    side_open(side, NULL);
    side_meet(side);
    EXPECT_STATUS(
        rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, side->patient_ms, &ep),
        RDMUX_NO_PATH);
    side_end(side);

    struct rdmux_fabric_attr fabric_attr = fabric_attr_of(side);
    fabric_attr.flags |= RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    side_open(side, &fabric_attr);
    (void)side_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void plain_target(struct side *side)
{
    side_open_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* ----------------------------------------------------------------------------- paths and counts */

static void paths_initiator(struct side *side)
{
    static const char *const known[] = { "shm", "ib", "roce", "iwarp", "tcp" };
    size_t count = 0;
    size_t again = 0;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    uint8_t bytes[1000];
    side_open_pair(side, NULL);
    EXPECT_OK(rdmux_fabric_paths(side->fabric, NULL, 0, &count));
    struct rdmux_path_info *paths = calloc(count + 1, sizeof(*paths));
    EXPECT(count > 0 && paths != NULL, "no paths");
    for (size_t i = 0; i <= count; i++) {
        paths[i].size = (uint32_t)sizeof(paths[i]);
    }
    EXPECT_OK(rdmux_fabric_paths(side->fabric, paths, 1, &again));
    EXPECT_EQUAL(again, count);
    EXPECT_OK(rdmux_fabric_paths(side->fabric, paths, count + 1, &again));
    EXPECT_EQUAL(again, count);
    for (size_t k = 0; k < COUNT_OF(known); k++) {
        bool found = false;
        for (size_t i = 0; i < count; i++) {
            found = found || strcmp(paths[i].provider, known[k]) == 0;
        }
        EXPECT(found, "no path names %s", known[k]);
    }
    bool usable = false;
    for (size_t i = 0; i < count; i++) {
        if (paths[i].reason == RDMUX_REASON_USABLE) {
            usable = usable || strcmp(paths[i].provider, side->provider) == 0;
            EXPECT((paths[i].native & paths[i].emulated) == 0 && paths[i].bandwidth > 0 &&
                       paths[i].max_inline >= RDMUX_INLINE_MIN,
                   "path %zu (%s) has strange numbers", i, paths[i].provider);
        } else {
            EXPECT(paths[i].text[0] != '\0', "path %zu (%s) cannot be used, and has no text", i,
                   paths[i].provider);
        }
    }
    EXPECT(usable, "no usable path of %s", side->provider);
    free(paths);

    struct rdmux_remote *remote = take_remote(side, side->ep);
    memset(bytes, 1, sizeof(bytes));
    for (uint64_t i = 0; i < 5; i++) {
        EXPECT_OK(rdmux_send(side->ep, bytes, 100, NULL, CTX(i), RDMUX_UNSIGNALED));
        EXPECT_OK(rdmux_write(side->ep, bytes, 1000, NULL, remote, 0, CTX(i), RDMUX_UNSIGNALED));
    }
    (void)POST_AND_WAIT(&side->queue, rdmux_read(side->ep, bytes, 700, NULL, remote, 0, CTX(9), 0),
                        RDMUX_WC_READ, CTX(9));
    EXPECT_OK(rdmux_ep_stats(side->ep, &stats));
    EXPECT_EQUAL(stats.sends, 5);
    EXPECT_EQUAL(stats.writes, 5);
    EXPECT_EQUAL(stats.reads, 1);
    EXPECT_EQUAL(stats.atomics, 0);
    EXPECT_EQUAL(stats.bytes_sent, 5 * 100 + 5 * 1000);
    EXPECT_EQUAL(stats.bytes_received, 700);
    EXPECT_EQUAL(stats.moves, 0);
    BARRIER(side);
    side_finish(side);
}

static void paths_target(struct side *side)
{
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    uint8_t bytes[5][100];
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 1000, ACCESS_ALL);
    for (uint64_t i = 0; i < 5; i++) {
        EXPECT_OK(rdmux_recv(side->ep, bytes[i], 100, NULL, CTX(i)));
    }
    give_token(side, &region);
    for (uint64_t i = 0; i < 5; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(i));
    }
    BARRIER(side);
    EXPECT_OK(rdmux_ep_stats(side->ep, &stats));
    EXPECT_EQUAL(stats.receives, 5);
    EXPECT_EQUAL(stats.bytes_received, 500);
    EXPECT_EQUAL(stats.sends, 0);
    side_finish(side);
}

/* ---------------------------------------------------------------------- counts of cq and fabric */

enum { SLEEPS_TRIED = 1000 };

/* Waits until a call has slept: a thread that the machine does not run for a millisecond may time
 * out before. */
static void sleep_once(struct rdmux_cq *cq, struct rdmux_cq_stats *after)
{
    struct rdmux_cq_stats before = RDMUX_CQ_STATS_INIT;
    struct rdmux_wc wc;
    size_t count = 0;
    EXPECT_OK(rdmux_cq_stats(cq, &before));
    for (int i = 0; i < SLEEPS_TRIED; i++) {
        EXPECT_STATUS(rdmux_cq_wait(cq, &wc, 1, 1, &count), RDMUX_TIMED_OUT);
        EXPECT_OK(rdmux_cq_stats(cq, after));
        if (after->sleeps > before.sleeps) {
            return;
        }
    }
    FAIL("%d calls of rdmux_cq_wait() that timed out do not count as sleeps", SLEEPS_TRIED);
}

static void arm_once(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    enum rdmux_status status = RDMUX_AGAIN;
    while ((status = rdmux_cq_arm(cq)) == RDMUX_AGAIN) {
        EXPECT(!time_is_up(), "an idle cq cannot be armed");
        EXPECT_EQUAL(rdmux_cq_poll(cq, &wc, 1), 0);
    }
    EXPECT_STATUS(status, RDMUX_OK);
}

static void count_calls(struct side *side)
{
    struct rdmux_cq *cq = side->queue.cq;
    struct rdmux_cq_stats before = RDMUX_CQ_STATS_INIT;
    struct rdmux_cq_stats after = RDMUX_CQ_STATS_INIT;
    struct rdmux_srq *srq = NULL;
    struct rdmux_wc wc;
    EXPECT_QUIET(&side->queue);
    EXPECT_OK(rdmux_cq_stats(cq, &before));
    EXPECT_EQUAL(before.endpoints, 1);
    EXPECT_EQUAL(before.srqs, 0);
    EXPECT_OK(rdmux_cq_wake(cq));
    EXPECT_EQUAL(rdmux_cq_poll(cq, &wc, 1), 1);
    EXPECT_EQUAL(wc.opcode, RDMUX_WC_WOKEN);
    arm_once(cq);
    EXPECT_OK(rdmux_srq_create(side->fabric, cq, NULL, &srq));
    sleep_once(cq, &after);
    EXPECT_EQUAL(after.wakes, before.wakes + 1);
    EXPECT_EQUAL(after.arms, before.arms + 1);
    EXPECT_EQUAL(after.srqs, 1);
    EXPECT(after.calls >= before.calls + 5, "five calls count as %" PRIu64,
           after.calls - before.calls);
    EXPECT(after.reserved > before.reserved, "an SRQ reserves no entries");
    EXPECT_OK(rdmux_srq_destroy(srq));
    EXPECT_OK(rdmux_cq_stats(cq, &after));
    EXPECT_EQUAL(after.reserved, before.reserved);
}

static void count_objects(struct side *side)
{
    enum { BYTES = 5000 };
    struct rdmux_fabric_stats before = RDMUX_FABRIC_STATS_INIT;
    struct rdmux_fabric_stats with = RDMUX_FABRIC_STATS_INIT;
    struct rdmux_fabric_stats after = RDMUX_FABRIC_STATS_INIT;
    struct rdmux_mr *mr = NULL;
    EXPECT_OK(rdmux_fabric_stats(side->fabric, &before));
    EXPECT_EQUAL(before.endpoints, 1);
    EXPECT_EQUAL(before.connected + before.accepted, 1);
    EXPECT_EQUAL(before.setups_failed, 0);
    EXPECT(before.providers > 0, "a fabric with an endpoint counts no provider");
    EXPECT_OK(rdmux_mr_alloc(side->fabric, BYTES, RDMUX_ACCESS_REMOTE_READ, &mr));
    EXPECT_OK(rdmux_fabric_stats(side->fabric, &with));
    rdmux_mr_deregister(mr);
    EXPECT_OK(rdmux_fabric_stats(side->fabric, &after));
    EXPECT_EQUAL(with.regions, before.regions + 1);
    EXPECT_EQUAL(with.region_bytes, before.region_bytes + BYTES);
    EXPECT_EQUAL(after.regions, before.regions);
    EXPECT_EQUAL(after.region_bytes, before.region_bytes);
}

static void counted(struct side *side)
{
    side_open_pair(side, NULL);
    BARRIER(side); /* from here on the endpoint is idle */
    count_calls(side);
    count_objects(side);
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "15.11, -15.11",
      "wrong arguments are INVALID with a text that names the argument, and nothing changes",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, wrong_initiator, wrong_target },
    { "15.12, -15.12",
      "every code has its name, unknown ones have \"?\", and header and library have one version",
      0, 0, 0, names, nothing },
    { "11.6, 9.8", "the library uses the hooks it is given, and releases all it allocated", 0, 0, 0,
      hooked, hooked },
    { "11.5", "data-path calls neither allocate nor log", NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 20,
      0, quiet_path_initiator, quiet_path_target },
    { "11.6", "the library writes nothing to the program's output and touches no signal", 0, 0, 0,
      silent, silent },
    { "N.18, -N.18", "RDMUX_PATHS filters paths, and a fabric can refuse the environment", 0, 0, 0,
      environment_initiator, plain_target },
    { "N.19, 15.13", "a fabric lists its paths with reasons, and an endpoint counts what it did",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, paths_initiator, paths_target },
    { "15.13", "a cq counts its calls, sleeps and wakes, and a fabric its objects and set-ups", 0,
      0, 0, counted, counted },
};

const struct suite library_suite = { "library", cases, COUNT_OF(cases) };
