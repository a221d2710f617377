/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Endpoints with failover whose path or control channel breaks during messages and memory
 * operations. Whatever else fails meanwhile, they continue, or end for a permitted reason. A
 * request that completes with RDMUX_OK was executed, a message once and in order; OUTCOME_UNKNOWN
 * without the endpoint's end is for atomics and RDMUX_NO_REPLAY alone.
 */
#include "api/core/ep.h"
#include "api/core/failover.h"
#include "api/progress/cq_owner.h"
#include "stages.h"

#include "device.h"
#include "inject.h"
#include "negotiation/control_channel.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The numbers of the requests of one break. */
enum {
    FIRST_NUMBER = 32,
    EACH_BREAK = 32,
    SENDS = 0, /* messages */
    SENDS_MAX = 8,
    RECEIVES = SENDS + SENDS_MAX,
    RECEIVES_MAX = SENDS_MAX,
    WRITE = RECEIVES + RECEIVES_MAX,
    READ,
    ADDS, /* two fetch_adds */
};

enum {
    ADDEND = 11,
    /* Places in the region of b; use_memory() uses the lower ones. */
    WRITTEN_AT = 4 * MIDDLE,
    WORDS_AT = 6 * MIDDLE, /* one word for each break */
    READ_AT = 8 * MIDDLE,
    NOTED_AT = 10 * MIDDLE,
    /* A place in the memory of a. */
    BACK_AT = 4 * MIDDLE,
    FROM_A = 6, /* messages, a write_imm among them */
    FROM_B = 3,
};

/* The messages in one direction. Each begins with its number, from 1. */
struct way {
    struct side *from;
    struct side *to;
    uint8_t (*buffers)[LARGE]; /* of its receives */
    size_t base;               /* first number of its requests */
    size_t sent;
    size_t sizes[SENDS_MAX];
    size_t unsure; /* the number of the message with NO_REPLAY; 0: none */
    size_t wanted; /* receives posted */
};

/* The state of the running life. */
static struct {
    struct way there;
    struct way back;
    size_t word_at;
    uint64_t before[2];
    uint8_t out[2][SENDS_MAX][LARGE];
} data;

/* -------------------------------------------------------------------------------------- posting */

static void want(struct life *life, struct way *way, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memset(way->buffers[i], 0, LARGE);
        post_receive(life, way->to, way->base + RECEIVES + i, way->buffers[i], LARGE);
        way->wanted++;
    }
}

static void say(struct life *life, struct way *way, size_t size, uint32_t flags)
{
    size_t slot = way->sent++;
    uint64_t number = way->sent;
    uint8_t *bytes = data.out[way == &data.there ? 0 : 1][slot];
    size_t request = way->base + SENDS + slot;
    memcpy(bytes, life_pattern, size);
    memcpy(bytes, &number, sizeof(number));
    way->sizes[slot] = size;
    way->unsure = (flags & RDMUX_NO_REPLAY) != 0 ? way->sent : way->unsure;
    POST(life, way->from, request,
         rdmux_send(way->from->ep, bytes, size, NULL, context_of(way->from, request), flags));
}

static void say_with_write(struct life *life, struct way *way)
{
    size_t slot = way->sent++;
    size_t request = way->base + SENDS + slot;
    POST(life, way->from, request,
         rdmux_write_imm(way->from->ep, life_pattern, MIDDLE, NULL, life->remotes[0], NOTED_AT,
                         (uint32_t)way->sent, context_of(way->from, request), 0));
}

static void add(struct life *life, size_t which)
{
    struct side *a = &life->a;
    size_t request = data.there.base + ADDS + which;
    POST(life, a, request,
         rdmux_fetch_add(a->ep, &data.before[which], NULL, life->remotes[0], data.word_at, ADDEND,
                         context_of(a, request), 0));
}

/* Posts the requests before the break: some that the path takes, and some that wait behind them. */
static void begin(struct life *life)
{
    struct side *a = &life->a;
    struct side *b = &life->b;
    size_t base = FIRST_NUMBER + life->breaks * EACH_BREAK;
    memset(&data, 0, sizeof(data));
    data.word_at = WORDS_AT + life->breaks * sizeof(uint64_t);
    data.there = (struct way){ .from = a, .to = b, .buffers = life->received + 3, .base = base };
    data.back = (struct way){ .from = b, .to = a, .buffers = life->received + 10, .base = base };
    memcpy((uint8_t *)rdmux_mr_addr(b->mr) + READ_AT, life_pattern, MIDDLE);
    memset((uint8_t *)rdmux_mr_addr(b->mr) + WRITTEN_AT, 0, MIDDLE);
    memset((uint8_t *)rdmux_mr_addr(b->mr) + NOTED_AT, 0, MIDDLE);
    memcpy(life_source, life_pattern, MIDDLE);
    memset(life_source + BACK_AT, 0, MIDDLE);
    want(life, &data.there, FROM_A);
    want(life, &data.back, FROM_B);

    POST(life, a, base + WRITE,
         rdmux_write(a->ep, life_source, MIDDLE, a->mr, life->remotes[0], WRITTEN_AT,
                     context_of(a, base + WRITE), 0));
    add(life, 0);
    say(life, &data.there, SMALL, 0);
    say(life, &data.there, LARGE, 0);
    say(life, &data.back, MIDDLE, 0);
    (void)progress(life);
    POST(life, a, base + READ,
         rdmux_read(a->ep, life_source + BACK_AT, MIDDLE, a->mr, life->remotes[0], READ_AT,
                    context_of(a, base + READ), 0));
    say(life, &data.there, MIDDLE, RDMUX_NO_REPLAY);
    say(life, &data.back, LARGE, 0);
    life->breaks++;
    life->until_ms = now_ms() + STUCK_MS;
}

/* Posts requests after the break: they meet the failed path, a move, or the next path. */
static void post_more(struct life *life)
{
    say(life, &data.there, SMALL, 0);
    say(life, &data.back, SMALL, 0);
    add(life, 1);
    say_with_write(life, &data.there);
    say(life, &data.there, LARGE, 0);
}

/* -------------------------------------------------------------------------------------- judging */

/* Waits for the entry. Returns whether the request is known to be done. false: its outcome is
 * unknown, as may be; any other status ends the life. */
static bool settle(struct life *life, struct side *side, size_t number, bool may_be_unclear)
{
    const struct outcome *outcome = &side->requests[number];
    while (outcome->entries == 0) {
        progress_or_end(life);
    }
    if (outcome->status == RDMUX_OK) {
        return true;
    }
    if (may_be_unclear && outcome->status == RDMUX_OUTCOME_UNKNOWN && !side->has_ended) {
        return false;
    }
    while (progress(life)) { /* the end must come, as this loop has no other exit */
    }
    if (must_go_well()) {
        wrong("request %zu: %s: %s", number, rdmux_status_name((enum rdmux_status)outcome->status),
              info_of(side).text);
    }
    longjmp(life->end, 1);
}

/* Finds the receive that was filled after the one of this place; false: none. */
static bool next_filled(const struct way *way, size_t *place, size_t *receive)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < way->wanted; i++) {
        const struct outcome *outcome = &way->to->requests[way->base + RECEIVES + i];
        if (outcome->entries != 0 && outcome->status == RDMUX_OK && outcome->place > *place &&
            outcome->place < least) {
            least = outcome->place;
            *receive = i;
        }
    }
    *place = least;
    return least != SIZE_MAX;
}

static size_t number_of(const struct way *way, size_t receive)
{
    const struct outcome *outcome = &way->to->requests[way->base + RECEIVES + receive];
    uint64_t number = outcome->imm;
    if (!outcome->has_imm) {
        memcpy(&number, way->buffers[receive], sizeof(number));
    }
    return (size_t)number;
}

static bool has_come(const struct way *way, size_t number)
{
    size_t place = 0;
    size_t receive = 0;
    while (next_filled(way, &place, &receive)) {
        if (number_of(way, receive) == number) {
            return true;
        }
    }
    return false;
}

/* Checks that each message arrived once and in order; the one with NO_REPLAY may be missing.
 * Returns how many arrived. */
static size_t compare(const struct way *way)
{
    size_t place = 0;
    size_t receive = 0;
    size_t due = 1;
    size_t count = 0;
    for (; next_filled(way, &place, &receive); due++, count++) {
        size_t number = number_of(way, receive);
        due += due == way->unsure && number > due;
        if (number != due) {
            wrong("message %zu came where %zu was due", number, due);
        }
        size_t size = way->sizes[due - 1]; /* 0: a write_imm */
        if (size != 0 &&
            (way->to->requests[way->base + RECEIVES + receive].length != size ||
             memcmp(way->buffers[receive] + SMALL, life_pattern + SMALL, size - SMALL) != 0)) {
            wrong("message %zu came with other bytes", number);
        }
    }
    if (due != way->sent + 1) {
        wrong("message %zu never came", due);
    }
    return count;
}

static void finish_way(struct life *life, struct way *way)
{
    for (size_t i = 0; i < way->sent; i++) {
        if (settle(life, way->from, way->base + SENDS + i, i + 1 == way->unsure) &&
            i + 1 == way->unsure) {
            way->unsure = 0;
        }
    }
    while (!has_come(way, way->sent)) {
        progress_or_end(life);
    }
    /* Fills the receives that are left, so that later stages meet their own. */
    for (size_t count = compare(way); count < way->wanted; count = compare(way)) {
        say(life, way, SMALL, 0);
        (void)settle(life, way->from, way->base + SENDS + way->sent - 1, false);
        while (!has_come(way, way->sent)) {
            progress_or_end(life);
        }
    }
}

/* Checks that completed requests have changed the region; an atomic in doubt has done so once or
 * not at all. */
static void finish_memory(struct life *life)
{
    const uint8_t *there = rdmux_mr_addr(life->b.mr);
    struct side *a = &life->a;
    size_t base = data.there.base;
    uint64_t word;
    size_t sure = 0;
    (void)settle(life, a, base + WRITE, false);
    (void)settle(life, a, base + READ, false);
    for (size_t i = 0; i < 2; i++) {
        bool is_known = settle(life, a, base + ADDS + i, true);
        sure += is_known;
        if (is_known && data.before[i] != 0 && data.before[i] != ADDEND) {
            wrong("fetch_add %zu found %" PRIu64, i, data.before[i]);
        }
    }
    memcpy(&word, there + data.word_at, sizeof(word));
    if (word % ADDEND != 0 || word < sure * ADDEND || word > 2UL * ADDEND) {
        wrong("%" PRIu64 " after two fetch_adds of %d, of which %zu are known to be done", word,
              ADDEND, sure);
    }
    if (memcmp(there + WRITTEN_AT, life_pattern, MIDDLE) != 0) {
        wrong("a write is not there");
    }
    if (memcmp(there + NOTED_AT, life_pattern, MIDDLE) != 0) {
        wrong("the bytes of a write_imm are not there");
    }
    if (memcmp(life_source + BACK_AT, life_pattern, MIDDLE) != 0) {
        wrong("a read came with other bytes");
    }
}

static void finish(struct life *life)
{
    finish_way(life, &data.there);
    finish_way(life, &data.back);
    finish_memory(life);
}

/* ------------------------------------------------------------------------------------- breaking */

struct before {
    size_t moves_of_a;
    size_t moves_of_b;
};

static struct before look(const struct life *life)
{
    struct before before = { life->a.moves, life->b.moves };
    return before;
}

static void await_move(struct life *life, struct before before)
{
    while (life->a.moves == before.moves_of_a || life->b.moves == before.moves_of_b) {
        progress_or_end(life);
    }
}

/* Enters the cq as its owner, to use state that belongs to the owner. */
static void enter(const struct side *side)
{
    if (!rdmux_cq_enter(side->cq)) {
        wrong("the cq cannot be entered");
    }
}

static bool has_path(const struct rdmux_ep *ep)
{
    return ep->phase == RDMUX_PHASE_READY && ep->failover != NULL && !rdmux_failover_is_moving(ep);
}

/* Reports a fault as a provider does, unless the endpoint is moving or has ended. */
static void fail_path(const struct side *side)
{
    enter(side);
    if (has_path(side->ep)) {
        rdmux_provider_failed(side->ep->path, RDMUX_IO, "broken by a test");
    }
    rdmux_cq_leave(side->cq);
}

static unsigned port_at(int fd)
{
    struct sockaddr_in name = { .sin_family = AF_UNSPEC };
    socklen_t length = sizeof(name);
    bool is_there = getpeername(fd, (struct sockaddr *)&name, &length) == 0 &&
                    name.sin_family == AF_INET;
    return is_there ? ntohs(name.sin_port) : 0;
}

/* Returns the number of sockets cut. */
static size_t cut_sockets(const struct life *life)
{
    enum { DESCRIPTORS_MAX = 256 };
    char address[RDMUX_ADDRESS_MAX] = ":0";
    size_t count = 0;
    enter(&life->a);
    inject_pause();
    (void)rdmux_listener_address(life->listener, address, sizeof(address));
    unsigned port = (unsigned)strtoul(strrchr(address, ':') + 1, NULL, 10);
    const struct rdmux_channel *channel = life->a.ep->channel;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        if ((channel == NULL || fd != rdmux_channel_socket(channel)) && port_at(fd) == port) {
            count += shutdown(fd, SHUT_RDWR) == 0;
        }
    }
    inject_resume();
    rdmux_cq_leave(life->a.cq);
    return count;
}

static bool is_over(const struct life *life, const char *provider)
{
    return strcmp(info_of(&life->a).provider, provider) == 0;
}

/* Checks that failover is in force in a life in which no call fails. */
static void must_have_failover(const struct life *life)
{
    const struct rdmux_ep_info info = info_of(&life->a);
    if (must_go_well() && (info.failover == 0 || info.state != RDMUX_EP_CONNECTED)) {
        wrong("failover is not in force");
    }
}

static void cut_control(const struct life *life)
{
    enter(&life->a);
    inject_pause();
    if (life->a.ep->channel != NULL) {
        (void)shutdown(rdmux_channel_socket(life->a.ep->channel), SHUT_RDWR);
    }
    inject_resume();
    rdmux_cq_leave(life->a.cq);
}

static void break_path(struct life *life)
{
    fail_path(&life->a);
}

static void break_sockets(struct life *life)
{
    if (cut_sockets(life) == 0) {
        fail_path(&life->a);
    }
}

static void break_queues(struct life *life)
{
    if (is_over(life, "tcp")) {
        fail_path(&life->a);
    } else {
        device_break();
    }
}

static void break_both(struct life *life)
{
    cut_control(life);
    fail_path(&life->b);
}

/* Breaks the endpoint in the middle of messages; it must move or end. */
static void lose(struct life *life, void (*break_it)(struct life *life))
{
    must_have_failover(life);
    begin(life);
    struct before before = look(life);
    break_it(life);
    post_more(life);
    finish(life);
    await_move(life, before);
}

void lose_path(struct life *life)
{
    lose(life, break_path);
}

void lose_sockets(struct life *life)
{
    lose(life, break_sockets);
}

void lose_queues(struct life *life)
{
    lose(life, break_queues);
}

void lose_both(struct life *life)
{
    lose(life, break_both);
}

void lose_control(struct life *life)
{
    must_have_failover(life);
    begin(life);
    cut_control(life);
    post_more(life);
    finish(life); /* completions wait for messages of the peer on that channel */
}

void lose_path_and_part(struct life *life)
{
    must_have_failover(life);
    begin(life);
    fail_path(&life->a);
    (void)progress(life);
    part_suddenly(life);
}
