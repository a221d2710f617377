/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Pending connections, peers that reconnect, and programs built for other versions. */
#include "harness.h"
#include "lateness.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* -------------------------------------------------------------------- pending connections */

enum { STRANGERS = 6, BYTES_MOST = 4096 };

/* The first 8 bytes of HELLO (rdmux.h, rdmux_adopt). */
static const uint8_t magic[8] = { 'R', 'D', 'M', 'U', 'X', 0x01, 0x0d, 0x0a };

static int raw_connect(struct side *side)
{
    const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM,
                                     .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    char host[HOST_TEXT_MAX];
    struct addrinfo *found = NULL;
    const char *colon = strrchr(side->address, ':');
    bool brackets = side->address[0] == '[';
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - side->address) - 2 * brackets,
                   side->address + brackets);
    EXPECT(getaddrinfo(host, colon + 1, &wanted, &found) == 0, "not an address: %s", side->address);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0, "connect: %s",
           strerror(errno));
    freeaddrinfo(found);
    side->descriptors[fd] = true; /* not owned by rdmux */
    return fd;
}

static void raw_say(int fd, const void *bytes, size_t length)
{
    (void)send(fd, bytes, length,
               MSG_NOSIGNAL | MSG_DONTWAIT); /* the listener may have hung up already */
}

/* Bytes that the other end sent before it hung up are ignored. */
static void expect_hung_up(const struct side *side, int fd, const char *what, size_t number)
{
    uint8_t byte = 0;
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    ssize_t count = 1;
    while (count > 0) {
        EXPECT(poll(&wait, 1, side->patient_ms) == 1, "%s %zu is kept", what, number);
        count = recv(fd, &byte, 1, MSG_DONTWAIT);
    }
}

/* The pending connections: a silent one, one that begins correctly and falls silent, one that
 * speaks HTTP, one that sends HELLO and then garbage, one that hangs up at once, and one with
 * random bytes. None of them delays the four regular ones. */
static void strangers_initiator(struct side *side)
{
    static uint8_t noise[BYTES_MOST];
    int fds[STRANGERS];
    side_open(side, NULL);
    TAKE(side, side->address, sizeof(side->address));
    for (size_t i = 0; i < STRANGERS; i++) {
        fds[i] = raw_connect(side);
    }
    pattern_fill(noise, sizeof(noise), side->seed, 0);
    raw_say(fds[1], magic, sizeof(magic));
    raw_say(fds[2], "GET / HTTP/1.0\r\n\r\n", 18);
    memcpy(noise, magic, sizeof(magic));
    raw_say(fds[3], noise, sizeof(noise));
    (void)shutdown(fds[4], SHUT_RDWR);
    raw_say(fds[5], noise + sizeof(magic), sizeof(noise) - sizeof(magic));
    BARRIER(side);

    struct stopwatch watch;
    stopwatch_start(&watch);
    for (unsigned i = 0; i < 4; i++) {
        (void)side_pair(side, NULL);
    }
    expect_took(&watch, "connecting beside strangers", 0, UINT64_C(2000) * side->patience);
    exercise(side, &side->queue, side->ep);

    /* A protocol error ends a connection; a silent one ends at the time-out. */
    for (size_t i = 2; i < STRANGERS; i++) {
        expect_hung_up(side, fds[i], "stranger", i);
    }
    BARRIER(side);
    for (size_t i = 0; i < STRANGERS; i++) {
        (void)close(fds[i]);
    }
    side_finish(side);
}

static void strangers_target(struct side *side)
{
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    side_open(side, NULL);
    attr.hello_timeout_ms = 1000 * side->patience;
    EXPECT_OK(rdmux_listen(side->fabric, side_any_port(side), &attr, &side->listener));
    EXPECT_OK(rdmux_listener_address(side->listener, side->address, sizeof(side->address)));
    GIVE(side, side->address, sizeof(side->address));
    BARRIER(side);
    for (unsigned i = 0; i < 4; i++) {
        (void)side_pair(side, NULL);
    }
    exercise(side, &side->queue, side->ep);
    BARRIER(side);
    side_finish(side);
}

/* A silent connection is closed after the listener's hello_timeout_ms. */
static void silent_initiator(struct side *side)
{
    side_open(side, NULL);
    TAKE(side, side->address, sizeof(side->address));
    int fd = raw_connect(side);
    raw_say(fd, magic, 3);
    struct stopwatch watch;
    stopwatch_start(&watch);
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    EXPECT(poll(&wait, 1, side->patient_ms) == 1, "a silent stranger is kept forever");
    expect_took(&watch, "a hello_timeout_ms of 200", 100, 200 + UINT64_C(800) * side->patience);
    BARRIER(side);
    (void)close(fd);
    side_finish(side);
}

static void silent_target(struct side *side)
{
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    side_open(side, NULL);
    attr.hello_timeout_ms = 200;
    EXPECT_OK(rdmux_listen(side->fabric, side_any_port(side), &attr, &side->listener));
    EXPECT_OK(rdmux_listener_address(side->listener, side->address, sizeof(side->address)));
    GIVE(side, side->address, sizeof(side->address));
    BARRIER(side);
    side_finish(side);
}

/* Answers that a foreign listener may give; the offsets are those of docs/WIRE.md. */
enum {
    HELLO_SIZE = 96,
    HELLO_LOWEST = 8,
    HELLO_HIGHEST = 10,
    HELLO_MARKER = 12,
    ANSWER_SIZE = 512,
};

struct answer {
    const char *name;
    bool begins;    /* with the eight bytes of HELLO; else it is noise */
    uint8_t lowest; /* versions */
    uint8_t highest;
    uint32_t marker;   /* in this host's byte order */
    uint8_t frame[12]; /* the frame behind HELLO */
    enum rdmux_status expected;
};

#define ORDER 0x01020304

/* clang-format off */
static const struct answer answers[] = {
    { "noise", false, 0, 0, 0, { 0 }, RDMUX_PROTOCOL },
    { "a version to come", true, 2, 9, ORDER, { 0 }, RDMUX_VERSION },
    { "versions the wrong way round", true, 3, 1, ORDER, { 0 }, RDMUX_PROTOCOL },
    { "version 0", true, 0, 0, ORDER, { 0 }, RDMUX_PROTOCOL },
    { "the other byte order", true, 1, 1, 0x04030201, { 0 }, RDMUX_VERSION },
    { "no byte order at all", true, 1, 1, 0x01020403, { 0 }, RDMUX_PROTOCOL },
    { "a frame of 4 GiB", true, 1, 9, ORDER, { 1, 0, 0, 0, 255, 255, 255, 255 }, RDMUX_PROTOCOL },
    { "a frame of no known type", true, 1, 1, ORDER, { 0x3f }, RDMUX_PROTOCOL },
    { "an offer with a length that lies", true, 1, 1, ORDER,
      { 1, 0, 0, 0, 0, 0, 0, 4, 255, 255, 255, 255 }, RDMUX_PROTOCOL },
    { "a commit before any offer", true, 1, 1, ORDER, { 8 }, RDMUX_PROTOCOL },
};
/* clang-format on */

static void say_answer(const struct side *side, int fd, const struct answer *answer)
{
    uint8_t bytes[ANSWER_SIZE] = { 0 };
    size_t size = HELLO_SIZE + sizeof(answer->frame);
    if (answer->begins) {
        memcpy(bytes, magic, sizeof(magic));
        bytes[HELLO_LOWEST + 1] = answer->lowest;
        bytes[HELLO_HIGHEST + 1] = answer->highest;
        memcpy(bytes + HELLO_MARKER, &answer->marker, sizeof(answer->marker));
        bytes[23] = 1; /* the epoch */
        memcpy(bytes + HELLO_SIZE, answer->frame, sizeof(answer->frame));
    } else {
        pattern_fill(bytes, sizeof(bytes), side->seed, 0);
        size = sizeof(bytes);
    }
    raw_say(fd, bytes, size);
}

/* If peers authenticate, a valid HELLO without a method ends the connection, whatever follows. */
static enum rdmux_status expected_of(const struct side *side, const struct answer *answer)
{
    bool good = answer->begins && answer->lowest == 1 && answer->marker == ORDER &&
                answer->highest >= 1;
    return good && side->auth.key_file != NULL && answer->frame[0] != 0 ? RDMUX_AUTH
                                                                        : answer->expected;
}

static void wrong_listener(struct side *side)
{
    char address[RDMUX_ADDRESS_MAX];
    int fd = side_bound_socket(side, true, address);
    side_open(side, NULL);
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        struct rdmux_ep_attr attr = ep_attr_of(side);
        struct rdmux_ep *ep = NULL;
        EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, address, &attr, 0, &ep),
                      RDMUX_IN_PROGRESS);
        int other = accept(fd, NULL, NULL);
        EXPECT(other >= 0, "accept: %s", strerror(errno));
        say_answer(side, other, &answers[i]);
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, answers[i].name);
        EXPECT(wc.opcode == RDMUX_WC_CONNECTED &&
                   wc.status == (uint32_t)expected_of(side, &answers[i]),
               "%s: got %s", answers[i].name, wc_text(&wc));
        (void)close(other);
        side_track(side, ep);
    }
    side_finish(side);
    (void)close(fd);
}

/* The same invalid answers, sent to a listener that accepts. It takes their senders for connectors,
 * detects them, and accepts the valid connector. */
static void liars_initiator(struct side *side)
{
    int fds[COUNT_OF(answers)];
    side_open(side, NULL);
    TAKE(side, side->address, sizeof(side->address));
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        fds[i] = raw_connect(side);
        say_answer(side, fds[i], &answers[i]);
    }
    BARRIER(side);
    (void)side_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        expect_hung_up(side, fds[i], answers[i].name, i);
    }
    BARRIER(side);
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        (void)close(fds[i]);
    }
    side_finish(side);
}

static void liars_target(struct side *side)
{
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    side_open(side, NULL);
    attr.hello_timeout_ms = 1000 * side->patience;
    EXPECT_OK(rdmux_listen(side->fabric, side_any_port(side), &attr, &side->listener));
    EXPECT_OK(rdmux_listener_address(side->listener, side->address, sizeof(side->address)));
    GIVE(side, side->address, sizeof(side->address));
    BARRIER(side);
    (void)side_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    BARRIER(side);
    side_finish(side);
}

static void alone(struct side *side)
{
    side_open(side, NULL);
    side_finish(side);
}

/* ----------------------------------------------------------------------- a peer that reconnects */

/* Listens on side->address, hands out a token, and sleeps. */
static void again_victim(struct side *side)
{
    side_open(side, NULL);
    EXPECT_OK(rdmux_listen(side->fabric,
                           side->address[0] == '\0' ? side_any_port(side) : side->address, NULL,
                           &side->listener));
    EXPECT_OK(rdmux_listener_address(side->listener, side->address, sizeof(side->address)));
    GIVE(side, side->address, sizeof(side->address));
    (void)side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 64, ACCESS_ALL);
    give_token(side, &region);
    victim_ready(side);
    for (;;) {
        (void)pause();
    }
}

static void again_initiator(struct side *side)
{
    char first_address[RDMUX_ADDRESS_MAX];
    struct rdmux_token old_token;
    struct rdmux_token new_token;
    struct rdmux_remote *remote = NULL;
    struct rdmux_remote *none = NULL;
    side_open_pair(side, NULL);
    struct rdmux_ep *old = side->ep;
    memcpy(first_address, side->address, sizeof(first_address));
    TAKE(side, &old_token, sizeof(old_token));
    EXPECT_OK(rdmux_remote_import(old, &old_token, side->patient_ms, &remote));
    BARRIER(side);
    GIVE(side, side->address, sizeof(side->address));
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);

    TAKE(side, side->address, sizeof(side->address)); /* another process at the same address */
    EXPECT(strcmp(side->address, first_address) == 0, "%s has become %s", first_address,
           side->address);
    struct rdmux_ep *young = side_pair(side, NULL);
    TAKE(side, &new_token, sizeof(new_token));
    EXPECT_STATUS(rdmux_remote_import(young, &old_token, side->patient_ms, &none), RDMUX_DENIED);
    EXPECT_STATUS(rdmux_write(old, "x", 1, NULL, remote, 0, CTX(1), 0), RDMUX_PEER_GONE);
    EXPECT_OK(rdmux_remote_import(young, &new_token, side->patient_ms, &none));
    EXPECT_OK(rdmux_write(young, "x", 1, NULL, none, 0, CTX(2), 0));
    (void)WAIT_OF(&side->queue, young, RDMUX_WC_WRITE, CTX(2), RDMUX_OK);
    BARRIER(side);
    side_end(side);
}

static void again_target(struct side *side)
{
    struct victim victim;
    struct victim second;
    victim_start(&victim, side, again_victim);
    victim_await(&victim);
    BARRIER(side);
    TAKE(side, side->address, sizeof(side->address));
    victim_end(&victim);
    victim_start(&second, side, again_victim);
    victim_await(&second);
    BARRIER(side);
    victim_end(&second);
}

/* ------------------------------------------------------------ programs built for other versions */

/* A program built against a header with shorter structs, and one with longer structs that are zero
 * behind the known part. */
struct longer_ep_attr {
    struct rdmux_ep_attr known;
    uint64_t unknown[8];
};

struct longer_ep_info {
    struct rdmux_ep_info known;
    uint8_t unknown[64];
};

static void ages(struct side *side)
{
    struct rdmux_ep_attr shorter = ep_attr_of(side);
    struct longer_ep_attr longer = { .known = ep_attr_of(side) };
    struct rdmux_fabric_attr fabric_attr = fabric_attr_of(side);
    union {
        struct rdmux_ep_info info;
        uint8_t bytes[sizeof(struct rdmux_ep_info)];
    } early;
    struct longer_ep_info late;

    /* Bytes beyond the size are garbage and must be ignored. */
    fabric_attr.size = (uint32_t)offsetof(struct rdmux_fabric_attr, log);
    memset((uint8_t *)&fabric_attr + fabric_attr.size, 0xab, sizeof(fabric_attr) - fabric_attr.size);
    side_open(side, &fabric_attr);
    side_meet(side);
    shorter.size = (uint32_t)offsetof(struct rdmux_ep_attr, local);
    memset((uint8_t *)&shorter + shorter.size, 0xab, sizeof(shorter) - shorter.size);
    (void)side_pair(side, &shorter);
    longer.known.size = (uint32_t)sizeof(longer);
    longer.known.send_depth = 17;
    struct rdmux_ep *second = side_pair(side, &longer.known);

    memset(&early, 0xcd, sizeof(early));
    early.info.size = (uint32_t)offsetof(struct rdmux_ep_info, device);
    EXPECT_OK(rdmux_ep_info(second, &early.info));
    EXPECT_EQUAL(early.info.size, offsetof(struct rdmux_ep_info, device));
    EXPECT_EQUAL(early.info.state, RDMUX_EP_CONNECTED);
    EXPECT(strcmp(early.info.provider, side->provider) == 0, "the provider is %s",
           early.info.provider);
    EXPECT_FILLED(early.bytes + early.info.size, sizeof(early.info) - early.info.size, 0xcd);

    memset(&late, 0, sizeof(late));
    late.known.size = (uint32_t)sizeof(late);
    EXPECT_OK(rdmux_ep_info(second, &late.known));
    EXPECT_EQUAL(late.known.state, RDMUX_EP_CONNECTED);
    /* An accept may have taken the second connection with the attributes of the first. */
    if (side->is_initiator) {
        EXPECT_EQUAL(late.known.send_depth, 17);
    }
    EXPECT_FILLED(late.unknown, sizeof(late.unknown), 0);

    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "14.3, N.14, -14.3, -N.14",
      "silent, stalled and invalid handshakes delay no other, and an invalid one is rejected", 0,
      20, 0, strangers_initiator, strangers_target },
    { "14.3", "a socket that sends no HELLO is closed in time", 0, 0, 0, silent_initiator,
      silent_target },
    { "14.3, 14.1, -14.1, -14.3, -12.4",
      "connecting to a listener of another protocol ends with PROTOCOL or VERSION", 0, 0, 0,
      wrong_listener, alone },
    { "14.3, N.13, -14.3, -14.1, -N.14",
      "a listener rejects each invalid handshake, and accepts the valid one", 0, 20, 0,
      liars_initiator, liars_target },
    { "14.2, 6.5, -14.2",
      "a peer restarted at the same address is a new peer: old endpoints are dead and old tokens "
      "denied",
      NEEDS_WRITE, 0, CASE_UNTOUCHED, again_initiator, again_target },
    { "14.4, -14.4",
      "structs of an older and of a newer header are understood, and nothing beyond their size is "
      "touched",
      0, 0, 0, ages, ages },
};

const struct suite hello_suite = { "hello", cases, COUNT_OF(cases) };
