/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints whose path breaks and that move to another path: rules F. The case breaks the library's
 * sockets other than the control channel. It cannot break a path without sockets. */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    ROUNDS = 6,
    MESSAGES = 24, /* per round */
    SLOT = 512,
};

/* ------------------------------------------------------------------------------------ the break */

/* Returns 0 if the address is not of TCP. */
static unsigned port_of(const struct sockaddr_storage *name)
{
    struct sockaddr_in ip = { .sin_port = 0 };
    if (name->ss_family != AF_INET && name->ss_family != AF_INET6) {
        return 0;
    }
    memcpy(&ip, name, sizeof(ip)); /* both families have the port at the same offset */
    return ntohs(ip.sin_port);
}

/* Returns whether this is a connection of the library that carries data. The first one to the
 * listener carries none. */
static bool is_of_the_path(const struct side *side, int fd, unsigned listener, bool *first)
{
    struct sockaddr_storage name = { .ss_family = AF_UNSPEC };
    socklen_t length = sizeof(name);
    int type = 0;
    socklen_t type_length = sizeof(type);
    if (side->descriptors[fd] || getpeername(fd, (struct sockaddr *)(void *)&name, &length) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) != 0 || type == SOCK_DGRAM) {
        return false;
    }
    if (name.ss_family == AF_UNIX) { /* else it belongs to a library below the provider */
        return strcmp(side->provider, "shm") == 0;
    }
    if (port_of(&name) != listener) {
        return false;
    }
    bool is_control = *first;
    *first = false;
    return !is_control;
}

unsigned break_path(const struct side *side)
{
    const char *colon = strrchr(side->address, ':');
    unsigned listener = colon == NULL ? 0 : (unsigned)strtoul(colon + 1, NULL, 10);
    unsigned cut = 0;
    bool first = true;
    for (int fd = 0; fd < SIDE_DESCRIPTORS_MAX; fd++) {
        if (is_of_the_path(side, fd, listener, &first)) {
            cut += shutdown(fd, SHUT_RDWR) == 0;
        }
    }
    return cut;
}

/* ---------------------------------------------------------------------------------- the traffic */

/* Returns the next completion of a request; counts the PATH_CHANGED events before it. */
static struct rdmux_wc next_request(struct side *side, unsigned *changes)
{
    for (;;) {
        struct rdmux_wc wc = NEXT(&side->queue);
        if (wc.opcode != RDMUX_WC_PATH_CHANGED) {
            return wc;
        }
        EXPECT(wc.status != RDMUX_OK, "the event has no cause: %s", wc_text(&wc));
        EXPECT(wc.ep == side->ep && wc.imm > 1, "an odd event: %s, epoch %u", wc_text(&wc), wc.imm);
        ++*changes;
    }
}

static uint32_t number_of(unsigned round, unsigned i)
{
    return round * MESSAGES + i;
}

/* A write_imm, if the path has it: it takes a receive, as a send does. */
static bool is_notice(const struct side *side, unsigned i)
{
    return i % 6 == 4 && side_has(side, NEEDS_IMM);
}

static void post_messages(struct side *side, struct rdmux_remote *remote, unsigned round,
                          uint8_t *from, unsigned begin, unsigned end)
{
    for (unsigned i = begin; i < end; i++) {
        uint8_t *slot = from + (size_t)i * SLOT;
        uint64_t context = number_of(round, i);
        pattern_fill(slot, SLOT, side->seed + context, 0);
        if (i % 3 == 0) {
            EXPECT_OK(rdmux_write(side->ep, slot, SLOT, NULL, remote, (uint64_t)i * SLOT,
                                  CTX(context), 0));
        } else if (is_notice(side, i)) {
            EXPECT_OK(rdmux_write_imm(side->ep, slot, SLOT, NULL, remote, (uint64_t)i * SLOT,
                                      number_of(round, i), CTX(context), 0));
        } else {
            EXPECT_OK(rdmux_send(side->ep, slot, SLOT, NULL, CTX(context), 0));
        }
    }
}

static unsigned initiate_round(struct side *side, struct rdmux_remote *remote, unsigned round,
                               unsigned *changes)
{
    static uint8_t from[MESSAGES * SLOT];
    static uint8_t back[MESSAGES * SLOT];
    unsigned middle = 1 + round * 5 % (MESSAGES - 2);
    post_messages(side, remote, round, from, 0, middle);
    unsigned cut = break_path(side);
    post_messages(side, remote, round, from, middle, MESSAGES);
    EXPECT_OK(rdmux_read(side->ep, back, sizeof(back), NULL, remote, 0, CTX(1 << 20), 0));
    for (unsigned i = 0; i <= MESSAGES; i++) {
        struct rdmux_wc wc = next_request(side, changes);
        uint64_t context = i == MESSAGES ? 1 << 20 : number_of(round, i);
        EXPECT(wc.context == CTX(context) && wc.status == RDMUX_OK, "round %u: request %u: %s came",
               round, i, wc_text(&wc));
    }
    for (size_t i = 0; i < MESSAGES; i += 3) {
        EXPECT(memcmp(back + i * SLOT, from + i * SLOT, SLOT) == 0,
               "round %u: the read did not find write %zu", round, i);
    }
    return cut;
}

static void take_round(struct side *side, struct region *region, unsigned round, uint8_t *into,
                       unsigned *changes)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (i % 3 == 0) {
            continue;
        }
        struct rdmux_wc wc = next_request(side, changes);
        EXPECT(wc.context == CTX(number_of(round, i)) && wc.status == RDMUX_OK && wc.length == SLOT,
               "round %u: message %u: %s came", round, i, wc_text(&wc));
        bool notice = is_notice(side, i);
        EXPECT_EQUAL(wc.opcode, notice ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV);
        EXPECT(!notice || wc.imm == number_of(round, i), "round %u: notice %u: %s came", round, i,
               wc_text(&wc));
        EXPECT_PATTERN((notice ? region->addr : into) + (size_t)i * SLOT, SLOT,
                       side->seed + number_of(round, i));
        for (unsigned before = 0; before < i; before += 3) {
            EXPECT_PATTERN(region->addr + (size_t)before * SLOT, SLOT,
                           side->seed + number_of(round, before));
        }
    }
}

/* Each move is reported once to each side. The program may not have polled for it yet. */
static void await_changes(struct side *side, unsigned *changes, unsigned wanted)
{
    while (*changes < wanted) {
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, "the move has no event");
        EXPECT(wc.opcode == RDMUX_WC_PATH_CHANGED, "%s came", wc_text(&wc));
        ++*changes;
    }
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    EXPECT_OK(rdmux_ep_info(side->ep, &info));
    EXPECT_OK(rdmux_ep_stats(side->ep, &stats));
    EXPECT_EQUAL(info.state, RDMUX_EP_CONNECTED);
    EXPECT_EQUAL(info.failover, 1);
    EXPECT_EQUAL(info.epoch, wanted + 1);
    EXPECT_EQUAL(stats.moves, wanted);
    EXPECT(wanted == 0 || (info.previous_provider[0] != '\0' && info.previous_status != RDMUX_OK),
           "the text lacks the path before: \"%s\"", info.text);
}

static void open_with_failover(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.failover = RDMUX_FAILOVER_ON;
    attr.failover_attempts = 1000;
    attr.send_depth = 2 * MESSAGES;
    attr.recv_depth = 2 * MESSAGES;
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    side->caps->emulated |= NEEDS_FAILOVER;
}

static void moved_initiator(struct side *side)
{
    unsigned changes = 0;
    unsigned breaks = 0;
    open_with_failover(side);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (unsigned round = 0; round < ROUNDS; round++) {
        BARRIER(side);
        breaks += initiate_round(side, remote, round, &changes) != 0;
        BARRIER(side);
        GIVE(side, &breaks, sizeof(breaks));
        await_changes(side, &changes, breaks);
    }
    if (breaks != 0) {
        side->caps->emulated |= NEEDS_BREAKS;
    }
    rdmux_remote_close(remote);
    BARRIER(side);
    side_finish(side);
}

static void moved_target(struct side *side)
{
    static uint8_t into[MESSAGES * SLOT];
    unsigned changes = 0;
    unsigned breaks = 0;
    open_with_failover(side);
    struct region region = region_make(side, MEMORY_ALLOCATED, (size_t)MESSAGES * SLOT, ACCESS_ALL);
    give_token(side, &region);
    for (unsigned round = 0; round < ROUNDS; round++) {
        memset(into, 0, sizeof(into));
        for (unsigned i = 0; i < MESSAGES; i++) {
            if (i % 3 != 0) {
                EXPECT_OK(rdmux_recv(side->ep, into + (size_t)i * SLOT, SLOT, NULL,
                                     CTX(number_of(round, i))));
            }
        }
        BARRIER(side);
        take_round(side, &region, round, into, &changes);
        BARRIER(side);
        TAKE(side, &breaks, sizeof(breaks));
        await_changes(side, &changes, breaks);
    }
    if (breaks != 0) {
        side->caps->emulated |= NEEDS_BREAKS;
    }
    BARRIER(side);
    region_free(side, &region);
    side_finish(side);
}

/* ---------------------------------------------------------------------------- requests in doubt */

static void doubt_initiator(struct side *side)
{
    static uint64_t before[MESSAGES];
    unsigned changes = 0;
    unsigned breaks = 0;
    uint64_t done = 0;
    open_with_failover(side);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (unsigned round = 0; round < ROUNDS; round++) {
        BARRIER(side);
        for (unsigned i = 0; i < MESSAGES; i++) {
            EXPECT_OK(rdmux_fetch_add(side->ep, &before[i], NULL, remote, 0, 1, CTX(i), 0));
            if (i == (round * 7 + 3) % MESSAGES) {
                breaks += break_path(side) != 0;
            }
        }
        for (unsigned i = 0; i < MESSAGES; i++) {
            struct rdmux_wc wc = next_request(side, &changes);
            EXPECT(wc.context == CTX(i), "round %u: atomic %u: %s came", round, i, wc_text(&wc));
            EXPECT(wc.status == RDMUX_OK || wc.status == RDMUX_OUTCOME_UNKNOWN, "%s came",
                   wc_text(&wc));
            done += wc.status == RDMUX_OK;
        }
        GIVE(side, &breaks, sizeof(breaks));
        await_changes(side, &changes, breaks);
    }
    uint64_t sum = 0;
    EXPECT_OK(rdmux_read(side->ep, &sum, sizeof(sum), NULL, remote, 0, CTX(1), 0));
    (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(1));
    EXPECT(sum >= done && sum <= (uint64_t)ROUNDS * MESSAGES,
           "%" PRIu64 " of %d atomics were executed, %" PRIu64 " completed", sum, ROUNDS * MESSAGES,
           done);
    rdmux_remote_close(remote);
    BARRIER(side);
    side_finish(side);
}

static void doubt_target(struct side *side)
{
    unsigned changes = 0;
    unsigned breaks = 0;
    open_with_failover(side);
    struct region region = region_make(side, MEMORY_ALLOCATED, sizeof(uint64_t), ACCESS_ALL);
    memset(region.addr, 0, sizeof(uint64_t));
    give_token(side, &region);
    for (unsigned round = 0; round < ROUNDS; round++) {
        BARRIER(side);
        TAKE(side, &breaks, sizeof(breaks));
        await_changes(side, &changes, breaks);
    }
    BARRIER(side);
    region_free(side, &region);
    side_finish(side);
}

/* --------------------------------------------------------------------------------------- limits */

static void limit_initiator(struct side *side)
{
    uint64_t word = 0;
    uint8_t ended = 0;
    bool breaks = true;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.failover = RDMUX_FAILOVER_ON;
    attr.failover_attempts = 1;
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    EXPECT_OK(rdmux_recv(side->ep, &word, sizeof(word), NULL, CTX(1)));
    BARRIER(side);
    while (ended == 0 && breaks) {
        breaks = break_path(side) != 0;
        struct rdmux_wc wc = { .opcode = RDMUX_WC_PATH_CHANGED };
        if (breaks) {
            wc = NEXT(&side->queue);
        }
        if (wc.opcode != RDMUX_WC_PATH_CHANGED) {
            EXPECT(wc.context == CTX(1) && wc.status == RDMUX_FLUSHED, "%s came", wc_text(&wc));
            wc = NEXT(&side->queue);
            EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.status == RDMUX_PEER_GONE, "%s came",
                   wc_text(&wc));
            ended = 1;
        }
    }
    GIVE(side, &ended, 1);
    BARRIER(side);
    side_finish(side);
}

static void limit_target(struct side *side)
{
    uint8_t ended = 0;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.failover = RDMUX_FAILOVER_ON;
    attr.failover_attempts = 1;
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    BARRIER(side);
    TAKE(side, &ended, 1);
    for (bool is_over = ended == 0; !is_over;) {
        struct rdmux_wc wc = NEXT(&side->queue);
        is_over = wc.opcode == RDMUX_WC_DISCONNECTED;
        EXPECT(!is_over || wc.status == RDMUX_PEER_GONE, "%s came", wc_text(&wc));
    }
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "F.1, F.2, F.3, F.4, F.6, F.7, F.9, -F.2, -F.3, -F.4",
      "messages arrive once and writes end with the right bytes, however often the path breaks",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 60, 0, moved_initiator, moved_target },
    { "F.5, -F.5", "when the path breaks, atomics are executed once or have an unknown outcome",
      NEEDS_ATOMICS | NEEDS_READ, 60, 0, doubt_initiator, doubt_target },
    { "F.8, -F.8",
      "a path that breaks again and again ends the endpoint once the attempts are used up", 0, 60,
      0, limit_initiator, limit_target },
};

const struct suite moving_suite = { "moving", cases, COUNT_OF(cases) };
