/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Generated cases: each posts the rows of one operation one after the other, on the same endpoints.
 * Each side has a model of its own regions and of the peer's, and a shadow of its local memory.
 * After each row every byte must be as the rules say. Bytes depend on the row and on the number of
 * rows before it. Buffers are overwritten as soon as they are free. So late, swapped or repeated
 * bytes show.
 */
#include "generated_stage.h"
#include "random.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SRQ_DEPTH = 64,
    DATA_SOCKETS = 4,
    TIMEOUT_S = 300,
};

/* ----------------------------------------------------------------------------------- the thread */

struct sleeper {
    struct stage *stage;
    pthread_t thread;
    bool started;
    int stop; /* an eventfd that ends the sleep */
    bool woke;
};

static void *sleeper_body(void *argument)
{
    struct sleeper *sleeper = argument;
    struct pollfd waits[2] = {
        { .fd = rdmux_cq_fd(sleeper->stage->side->queue.cq), .events = POLLIN },
        { .fd = sleeper->stop, .events = POLLIN },
    };
    (void)poll(waits, COUNT_OF(waits), sleeper->stage->side->patient_ms);
    sleeper->woke = waits[0].revents != 0;
    return NULL;
}

/* A thread sleeps on the armed cq while this thread posts. */
static void sleeper_start(struct sleeper *sleeper, struct stage *stage)
{
    *sleeper = (struct sleeper){ .stage = stage, .stop = -1 };
    if (stage->row.values[DIM_WAIT] != WAIT_THREAD ||
        rdmux_cq_arm(stage->side->queue.cq) != RDMUX_OK) {
        return;
    }
    sleeper->stop = eventfd(0, EFD_CLOEXEC);
    EXPECT(sleeper->stop >= 0, "eventfd: %s", strerror(errno));
    EXPECT(pthread_create(&sleeper->thread, NULL, sleeper_body, sleeper) == 0,
           "a thread could not be started");
    sleeper->started = true;
}

/* must_wake: an event is due and no poll took place meanwhile, so the thread must wake up. */
static void sleeper_join(struct sleeper *sleeper, bool must_wake)
{
    const uint64_t one = 1;
    if (!sleeper->started) {
        return;
    }
    if (!must_wake) {
        EXPECT(write(sleeper->stop, &one, sizeof(one)) == (ssize_t)sizeof(one), "write: %s",
               strerror(errno));
    }
    EXPECT(pthread_join(sleeper->thread, NULL) == 0, "a thread could not be joined");
    (void)close(sleeper->stop);
    if (must_wake && !sleeper->woke) {
        rule_broken(
            sleeper->stage, "13.10", NULL,
            "a thread that slept on the armed descriptor while another posted was not woken");
    }
}

/* ---------------------------------------------------------------------------------------- a row */

static void row_begin(struct stage *stage, const struct row *row, uint64_t round)
{
    const bool both = row->values[DIM_WAYS] == WAYS_BOTH;
    const bool initiator_posts = both || row_hash(row) % 2 == 0;
    const bool target_posts = both || !initiator_posts;
    const uint64_t seed = mix64(stage->side->seed + 2 * round);
    const bool posts = stage->side->is_initiator ? initiator_posts : target_posts;
    const bool is_posted_to = stage->side->is_initiator ? target_posts : initiator_posts;
    stage->row = *row;
    stage->row_deadline = now_ns() + (uint64_t)stage->side->patient_ms * 1000000;
    stage->ep = stage->eps[row->values[DIM_ENDPOINT]];
    stage->out.count = stage->in.count = 0;
    if (posts) {
        program_make(row, seed + stage->side->is_initiator, &stage->limits[0], &stage->out);
    }
    if (is_posted_to) {
        program_make(row, seed + !stage->side->is_initiator, &stage->limits[1], &stage->in);
    }
    for (size_t i = 0; i < ARENAS; i++) {
        stage->arenas[i].used = 0;
        stage->arenas[i].end = ARENA_LENGTH;
    }
    stage->found_used = 0;
    stage->posted_count = stage->done = 0;
    stage->receive_count = stage->received = 0;
    stage->in_applied = 0;
    stage->writable_due = false;
}

/* Returns whether the other side checks its memory while its program makes no call. It does if some
 * requests are placed once the last completion has come. */
static bool is_seen_unpolled(const struct stage *stage)
{
    const struct program *program = stage->out.count > 0 ? &stage->out : &stage->in;
    return stage->row.values[DIM_WAYS] == WAYS_ONE && !row_is_late(&stage->row) &&
           program_placed(program) > 0;
}

/* A barrier during which this side serves its peer. In rows in which it sleeps, the library's own
 * thread must serve the peer. */
static void meet(struct stage *stage)
{
    const unsigned wait = stage->row.values[DIM_WAIT];
    const uint8_t mine = 'm';
    uint8_t theirs = 0;
    GIVE(stage->side, &mine, 1);
    while (wait <= WAIT_POLL_ONE &&
           recv(stage->side->sync, &theirs, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EINTR) && !stage_is_late(stage)) {
        stage_take_some(stage);
    }
    TAKE(stage->side, &theirs, 1);
    EXPECT(theirs == mine, "the case is wrong: the other side gave 0x%02x at a barrier", theirs);
}

static void run_row(struct stage *stage, const struct row *row, uint64_t round)
{
    struct sleeper sleeper;
    row_begin(stage, row, round);
    const bool late = row_is_late(row);
    const bool unpolled = is_seen_unpolled(stage);
    if (!late) {
        stage_post_receives(stage);
    }
    meet(stage);
    stage->took = false;
    sleeper_start(&sleeper, stage);
    for (size_t i = 0; i < stage->out.count; i++) {
        stage_post(stage, &stage->out.requests[i]);
    }
    if (late) {
        meet(stage);
        stage_post_receives(stage);
    }
    if (unpolled && stage->in.count > 0) {
        stage_check_unpolled(stage);
    }
    if (unpolled && stage->out.count > 0) {
        stage_take_all(stage);
        const uint8_t go = 1;
        GIVE(stage->side, &go, sizeof(go));
    }
    sleeper_join(&sleeper, !stage->took && stage_has_entries_due(stage));
    stage_take_all(stage);
    meet(stage);
    stage_check_regions(stage, "afterwards");
    if (stage->posted_count > 0) {
        stage_give_back(stage, stage->posted_count - 1);
    }
    stage_check_arenas(stage);
    struct rdmux_wc wc;
    if (rdmux_cq_poll(stage->side->queue.cq, &wc, 1) != 0) {
        stage_take_entry(stage, &wc);
        rule_broken(stage, "1.1", NULL, "an entry too many: %s", wc_text(&wc));
    }
    meet(stage);
}

/* --------------------------------------------------------------------------------------- set-up */

static struct rdmux_ep_attr attr_of(struct stage *stage, enum endpoint endpoint)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(stage->side);
    attr.send_depth = QUEUE_DEPTH;
    attr.recv_depth = QUEUE_DEPTH;
    attr.max_send_sge = SGES;
    attr.max_recv_sge = SGES;
    attr.max_send = MESSAGE_MOST;
    attr.max_recv = MESSAGE_MOST;
    if (endpoint == ENDPOINT_SOCKETS) {
        attr.data_sockets = DATA_SOCKETS;
    }
    if (endpoint >= ENDPOINT_SRQ_FIRST) {
        attr.srq = stage->srq;
    }
    return attr;
}

static uint8_t *bytes_of(size_t length)
{
    uint8_t *bytes = calloc(1, length);
    EXPECT(bytes != NULL, "out of memory");
    return bytes;
}

/* Another path may open faster than the first endpoint's capabilities become known. */
static void open_endpoints(struct stage *stage)
{
    struct side *side = stage->side;
    struct rdmux_ep_attr attr = attr_of(stage, ENDPOINT_FIRST);
    side_open_pair(side, &attr);
    stage->eps[ENDPOINT_FIRST] = side->ep;
    stage->eps[ENDPOINT_SECOND] = side_pair(side, &attr);
    attr = attr_of(stage, ENDPOINT_SOCKETS);
    stage->eps[ENDPOINT_SOCKETS] = side_pair(side, &attr);
    stage->ep_count = ENDPOINT_SRQ_FIRST;
    if (side_has(side, NEEDS_SRQ)) {
        struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
        srq_attr.depth = SRQ_DEPTH;
        EXPECT_OK(rdmux_srq_create(side->fabric, side->queue.cq, &srq_attr, &stage->srq));
        attr = attr_of(stage, ENDPOINT_SRQ_FIRST);
        stage->eps[ENDPOINT_SRQ_FIRST] = side_pair(side, &attr);
        stage->eps[ENDPOINT_SRQ_SECOND] = side_pair(side, &attr);
        stage->ep_count = ENDPOINTS;
    }
}

/* Passes the tokens of this side's regions to the other, and imports the other's for each endpoint.
 * A first import of each is closed at once and not used. */
static void exchange_regions(struct stage *stage)
{
    static const enum memory_kind kinds[] = { MEMORY_REGISTERED, MEMORY_ALLOCATED,
                                              MEMORY_REGISTERED, MEMORY_ALLOCATED };
    struct side *side = stage->side;
    for (size_t i = 0; i < REMOTE_KINDS; i++) {
        const bool no_map = i >= REMOTE_REGISTERED_NO_MAP;
        const uint32_t access = side_has(side, NEEDS_ATOMICS)
                                    ? ACCESS_ALL
                                    : ACCESS_ALL & ~(uint32_t)RDMUX_ACCESS_REMOTE_ATOMIC;
        struct rdmux_token mine;
        struct rdmux_token token;
        stage->regions[i] = region_make(side, kinds[i], REGION_LENGTH,
                                        access | (no_map ? RDMUX_ACCESS_NO_MAP : 0U));
        stage->model[i] = bytes_of(REGION_LENGTH);
        stage->theirs[i] = bytes_of(REGION_LENGTH);
        EXPECT_OK(rdmux_mr_export(stage->regions[i].mr, &mine));
        GIVE(side, &mine, sizeof(mine));
        TAKE(side, &token, sizeof(token));
        for (size_t ep = 0; ep < stage->ep_count; ep++) {
            for (size_t import = 0; import <= IMPORTS; import++) {
                struct rdmux_remote *remote = NULL;
                EXPECT_OK(rdmux_remote_import(stage->eps[ep], &token, side->patient_ms, &remote));
                if (import == IMPORTS) {
                    rdmux_remote_close(remote);
                } else {
                    stage->remotes[ep][i][import] = remote;
                }
            }
        }
    }
}

static void stage_open(struct stage *stage, struct side *side, const char *cites)
{
    *stage = (struct stage){ .side = side, .rules = cites };
    open_endpoints(stage);
    exchange_regions(stage);
    for (size_t i = 0; i < ARENAS; i++) {
        const bool open = i == ARENA_OPEN;
        stage->arenas[i].region = region_make(
            side, open ? MEMORY_ALLOCATED : (enum memory_kind)i, ARENA_LENGTH,
            ACCESS_SINK | (open ? (uint32_t)RDMUX_ACCESS_REMOTE_WRITE : 0U));
        stage->arenas[i].shadow = bytes_of(ARENA_LENGTH);
    }
    stage->found = bytes_of(3 * (size_t)REGION_LENGTH);
    stage->limits[0].max_inline = side->info.max_inline;
    stage->limits[0].max_sge = side->info.max_send_sge;
    EXPECT(side->info.max_send_sge >= SGES - 1 && side->info.max_send_sge <= SGES &&
               side->info.max_recv_sge >= SGES - 1,
           "lists of %d pieces were asked for, %u and %u were granted", SGES,
           side->info.max_send_sge, side->info.max_recv_sge);
    EXPECT_EQUAL(side->info.max_send, MESSAGE_MOST);
    GIVE(side, &stage->limits[0], sizeof(stage->limits[0]));
    TAKE(side, &stage->limits[1], sizeof(stage->limits[1]));
}

static void stage_close(struct stage *stage)
{
    struct side *side = stage->side;
    BARRIER(side);
    while (side->ep_count > 0) {
        side_close_ep(side, side->eps[side->ep_count - 1]);
    }
    EXPECT_OK(rdmux_srq_destroy(stage->srq));
    side_end(side);
    for (size_t i = 0; i < REMOTE_KINDS; i++) {
        free(stage->model[i]);
        free(stage->theirs[i]);
    }
    for (size_t i = 0; i < ARENAS; i++) {
        free(stage->arenas[i].shadow);
    }
    free(stage->found);
}

/* Runs the rows that --sequence names, or all rows that the path supports. */
static void run_rows(struct stage *stage, const struct row *rows, size_t count)
{
    struct side *side = stage->side;
    const char *text = side->sequence;
    if (rows_are_named(text)) {
        struct row row;
        for (uint64_t round = 0; rows_next(&text, &row); round++) {
            stand_on_row(round);
            run_row(stage, &row, round);
        }
    }
    for (size_t i = 0; i < count && !rows_are_named(side->sequence); i++) {
        if (sequence_has(side->sequence, true, i) && side_has(side, row_needs(&rows[i])) &&
            !(side->quick && row_is_on_srq(&rows[i]))) {
            stand_on_row(i);
            run_row(stage, &rows[i], i);
        }
    }
}

static size_t rows_of(const struct side *side, enum subject_op subject, struct row **out)
{
    const size_t count = generated_rows(subject, side->thorough ? 3 : 2, out);
    EXPECT(count > 0, "out of memory");
    return count;
}

static void run_subject(struct side *side, enum subject_op subject)
{
    static struct stage stage;
    struct row *rows = NULL;
    const size_t count = rows_of(side, subject, &rows);
    stage_open(&stage, side, subject_rules(subject));
    run_rows(&stage, rows, count);
    stage_close(&stage);
    free(rows);
}

/* ----------------------------------------------------------------------------- closed processes */

enum { CLOSED_EVERY = 5 }; /* one of this many rows of the other cases */

/* Forbids the other process to access this one's memory, as programs with secrets do. A path that
 * copies between processes must then use another way. */
static void close_process(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
    EXPECT(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "prctl: %s", strerror(errno));
    EXPECT(syscall(SYS_capget, &header, caps) == 0, "capget: %s", strerror(errno));
    caps[0].effective &= ~(UINT32_C(1) << CAP_SYS_PTRACE);
    caps[0].permitted &= ~(UINT32_C(1) << CAP_SYS_PTRACE);
    EXPECT(syscall(SYS_capset, &header, caps) == 0, "capset: %s", strerror(errno));
}

static void run_closed(struct side *side)
{
    static struct stage stage;
    struct row *rows = NULL;
    size_t count = 0;
    for (unsigned subject = 0; subject < SUBJECT_OPS; subject++) {
        struct row *some = NULL;
        const size_t some_count = rows_of(side, (enum subject_op)subject, &some);
        rows = realloc(rows, (count + some_count) * sizeof(*rows));
        EXPECT(rows != NULL, "out of memory");
        for (size_t i = subject % CLOSED_EVERY; i < some_count; i += CLOSED_EVERY) {
            if (!row_is_refused(&some[i])) {
                rows[count++] = some[i];
            }
        }
        free(some);
    }
    close_process();
    stage_open(&stage, side, RULES_CLOSED);
    run_rows(&stage, rows, count);
    stage_close(&stage);
    free(rows);
}

#define SUBJECT_CASE(name, subject)            \
    static void name##_rows(struct side *side) \
    {                                          \
        run_subject(side, subject);            \
    }
SUBJECT_CASE(send, SUBJECT_SEND)
SUBJECT_CASE(send_imm, SUBJECT_SEND_IMM)
SUBJECT_CASE(write, SUBJECT_WRITE)
SUBJECT_CASE(write_imm, SUBJECT_WRITE_IMM)
SUBJECT_CASE(read, SUBJECT_READ)
SUBJECT_CASE(fetch_add, SUBJECT_FETCH_ADD)
SUBJECT_CASE(compare_swap, SUBJECT_COMPARE_SWAP)
SUBJECT_CASE(flush, SUBJECT_FLUSH)
SUBJECT_CASE(flush_region, SUBJECT_FLUSH_REGION)

#define ROWS_CASE(rules, text, needs, name)                                                 \
    {                                                                                       \
        rules, text, (needs) | NEEDS_BASICS, TIMEOUT_S, CASE_ROWS, name##_rows, name##_rows \
    }

/* In the order of enum subject_op. */
static const struct conformance_case cases[] = {
    ROWS_CASE(RULES_SEND, "sends in every combination of two choices", 0, send),
    ROWS_CASE(RULES_SEND_IMM, "send_imms in every combination of two choices", NEEDS_IMM, send_imm),
    ROWS_CASE(RULES_WRITE, "writes in every combination of two choices", 0, write),
    ROWS_CASE(RULES_WRITE_IMM, "write_imms in every combination of two choices", NEEDS_IMM,
              write_imm),
    ROWS_CASE(RULES_READ, "reads in every combination of two choices", 0, read),
    ROWS_CASE(RULES_ATOMIC, "fetch_adds in every combination of two choices", NEEDS_ATOMICS,
              fetch_add),
    ROWS_CASE(RULES_ATOMIC, "compare_swaps in every combination of two choices", NEEDS_ATOMICS,
              compare_swap),
    ROWS_CASE(RULES_FLUSH, "flushes in every combination of two choices", NEEDS_PLACED, flush),
    ROWS_CASE(RULES_FLUSH, "flushes that name a region, in every combination of two choices",
              NEEDS_PLACED, flush_region),
    { RULES_CLOSED,
      "requests of every kind work between processes that may not access each other's memory",
      NEEDS_BASICS, TIMEOUT_S, CASE_ROWS | CASE_UNTOUCHED, run_closed, run_closed },
};

const struct suite generated_suite = { "generated", cases, COUNT_OF(cases) };
