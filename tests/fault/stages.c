/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "stages.h"

#include "device.h"
#include "inject.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ADDEND = 7,
    EXPLAIN_MS = 1000,
    REASON = 42,
};

/* ------------------------------------------------------------------------------ coming together */

static void listen_at(struct life *life, const char *address, char out[RDMUX_ADDRESS_MAX])
{
    TRY(life, rdmux_listen(life->b.fabric, address, NULL, &life->listener));
    TRY(life, rdmux_listener_address(life->listener, out, RDMUX_ADDRESS_MAX));
}

/* The listening fabric explains its own listener, as no other fabric makes progress during the
 * call. */
static void explain(struct life *life, const char *address)
{
    const struct rdmux_ep_attr attr = attr_of(life, &life->a);
    struct rdmux_explanation *explanation = NULL;
    enum rdmux_status status = rdmux_explain(
        life->b.fabric, address, &attr, is_in_a_hurry() ? EXPLAIN_MS : PATIENT_MS, &explanation);
    rdmux_explanation_free(explanation);
    check(life, status, "rdmux_explain");
}

static void dial(struct life *life, const char *address, struct rdmux_ep **out)
{
    const struct rdmux_ep_attr attr = attr_of(life, &life->a);
    enum rdmux_status status = rdmux_connect(life->a.fabric, life->a.cq, address, &attr, 0, out);
    check(life, status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "rdmux_connect");
}

/* Accepts any connection, until both sides are connected. */
static void take_any(struct life *life)
{
    const struct rdmux_ep_attr attr = attr_of(life, &life->b);
    while (!life->a.is_connected || life->b.ep == NULL) {
        if (life->b.ep == NULL) {
            enum rdmux_status status = rdmux_accept(life->listener, life->b.cq, &attr, 1,
                                                    &life->b.ep);
            check(life, status == RDMUX_TIMED_OUT ? RDMUX_OK : status, "rdmux_accept");
        }
        progress_or_end(life);
    }
}

void meet(struct life *life)
{
    char address[RDMUX_ADDRESS_MAX];
    listen_at(life, "127.0.0.1:0", address);
    if (life->scenario->host != NULL) {
        char port[RDMUX_ADDRESS_MAX];
        (void)snprintf(port, sizeof(port), "%s", strrchr(address, ':'));
        (void)snprintf(address, sizeof(address), "%.32s%.32s", life->scenario->host, port);
    }
    explain(life, address);
    dial(life, address, &life->a.ep);
    take_any(life);
}

/* Waits until the listener shows a connection. Returns its id. */
static uint64_t see_one(struct life *life)
{
    for (;;) {
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        enum rdmux_status status = rdmux_listener_next(life->listener, 1, &peer);
        if (status == RDMUX_OK) {
            return peer.id;
        }
        check(life, status == RDMUX_TIMED_OUT ? RDMUX_OK : status, "rdmux_listener_next");
        progress_or_end(life);
    }
}

/* Accepts the named connection, and no other. */
static void take_named(struct life *life, uint64_t peer)
{
    struct rdmux_ep_attr attr = attr_of(life, &life->b);
    attr.peer = peer;
    enum rdmux_status status = rdmux_accept(life->listener, life->b.cq, &attr, 0, &life->b.ep);
    check(life, status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "rdmux_accept");
}

static void await_both(struct life *life)
{
    while (!life->a.is_connected || !life->b.is_connected) {
        progress_or_end(life);
    }
}

/* Connects as a client that sends bytes of another protocol, or none. */
static void send_stranger(const char *address, const char *words)
{
    inject_pause();
    struct sockaddr_in there = { .sin_family = AF_INET };
    const char *colon = strrchr(address, ':');
    there.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&there, sizeof(there)) == 0) {
        (void)!send(fd, words, strlen(words), MSG_NOSIGNAL);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    inject_resume();
}

/* Rejects a connection. */
static void turn_away(struct life *life, const char *address)
{
    static const char note[] = "not today";
    dial(life, address, &life->turned_away);
    TRY(life, rdmux_reject(life->listener, see_one(life), REASON, note, sizeof(note)));
    while (life->turned_away_status == RDMUX_OK) {
        progress_or_end(life);
    }
    if (life->turned_away_status != RDMUX_REFUSED && must_go_well()) {
        wrong("one that was rejected ended with %s",
              rdmux_status_name((enum rdmux_status)life->turned_away_status));
    }
}

void meet_strangers(struct life *life)
{
    char address[RDMUX_ADDRESS_MAX];
    listen_at(life, "127.0.0.1:0", address);
    send_stranger(address, "");
    send_stranger(address, "GET / HTTP/1.0\r\n\r\n");
    turn_away(life, address);
    dial(life, address, &life->a.ep);
    take_named(life, see_one(life));
    await_both(life);
}

/* Adopts. A failed system call on the socket gives INVALID, as for a descriptor that is no
 * socket. */
static enum rdmux_status adopt(struct life *life, struct side *side, enum rdmux_role role,
                               int socket)
{
    const struct rdmux_ep_attr attr = attr_of(life, side);
    side->socket = socket;
    enum rdmux_status status = rdmux_adopt(side->fabric, side->cq, socket, role, &attr, 0,
                                           &side->ep);
    if (status == RDMUX_INVALID || status == RDMUX_NO_PATH) {
        (void)close(socket); /* a refused adoption leaves it to the caller */
        side->socket = 0;
    }
    bool is_unclear = status == RDMUX_INVALID && inject_victim() != NULL;
    return status == RDMUX_IN_PROGRESS ? RDMUX_OK : is_unclear ? RDMUX_IO : status;
}

void meet_by_socket(struct life *life)
{
    int ends[2];
    inject_pause();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        wrong("socketpair failed");
    }
    inject_resume();
    enum rdmux_status first = adopt(life, &life->a, RDMUX_ROLE_CONNECT, ends[0]);
    if (first != RDMUX_OK) {
        (void)close(ends[1]);
    }
    check(life, first, "rdmux_adopt");
    check(life, adopt(life, &life->b, RDMUX_ROLE_ACCEPT, ends[1]), "rdmux_adopt");
    await_both(life);
}

void meet_plainly(struct life *life)
{
    char address[RDMUX_ADDRESS_MAX];
    char plain[RDMUX_ADDRESS_MAX + sizeof("rdma://")];
    listen_at(life, "rdma://127.0.0.1:0", address);
    (void)snprintf(plain, sizeof(plain), "%s%s",
                   strstr(address, "rdma://") != NULL ? "" : "rdma://", address);
    turn_away(life, plain);
    dial(life, plain, &life->a.ep);
    take_named(life, see_one(life));
    /* On iWARP no side waits for a receive. */
    for (size_t i = 0; i < 3; i++) {
        post_receive(life, &life->b, i, life->received[i], LARGE);
    }
    await_both(life);
}

/* --------------------------------------------------------------------------------------- memory */

/* Returns whether the import is granted. A failure must not turn into DENIED if the token is
 * good. */
static bool import(struct life *life, size_t number, const struct rdmux_token *token,
                   bool may_be_denied)
{
    enum rdmux_status status = rdmux_remote_import(life->a.ep, token, 0, &life->remotes[number]);
    if (status == RDMUX_DENIED && may_be_denied) {
        return false;
    }
    bool has_ended = status == RDMUX_INVALID && inject_victim() != NULL;
    check(life,
          status == RDMUX_IN_PROGRESS ? RDMUX_OK
          : has_ended                 ? RDMUX_PEER_GONE
                                      : status,
          "rdmux_remote_import");
    while (status == RDMUX_IN_PROGRESS && !life->remote_answered[number]) {
        progress_or_end(life);
    }
    status = (enum rdmux_status)life->remote_status[number];
    if (status == RDMUX_OK) {
        return true;
    }
    if (must_go_well() && !(status == RDMUX_DENIED && may_be_denied)) {
        wrong("import %zu: %s", number, rdmux_status_name(status));
    }
    if (status == RDMUX_DENIED && may_be_denied) {
        return false;
    }
    longjmp(life->end, 1);
}

void share_memory(struct life *life)
{
    struct rdmux_token token;
    TRY(life, rdmux_mr_register(life->a.fabric, life_source, sizeof(life_source),
                                RDMUX_ACCESS_LOCAL_WRITE, &life->a.mr));
    TRY(life, rdmux_mr_alloc(life->b.fabric, REGION_SIZE,
                             RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                 RDMUX_ACCESS_REMOTE_ATOMIC,
                             &life->b.mr));
    memset(rdmux_mr_addr(life->b.mr), 0, REGION_SIZE);
    TRY(life, rdmux_mr_export(life->b.mr, &token));
    (void)import(life, 0, &token, false);
}

void share_plainly(struct life *life)
{
    uint64_t address = 0;
    uint32_t key = 0;
    TRY(life, rdmux_mr_register(life->a.fabric, life_source, sizeof(life_source),
                                RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK, &life->a.mr));
    TRY(life, rdmux_mr_alloc(life->b.fabric, REGION_SIZE,
                             RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE, &life->b.mr));
    memset(rdmux_mr_addr(life->b.mr), 0, REGION_SIZE);
    TRY(life, rdmux_mr_raw(life->b.mr, life->b.ep, &address, &key));
    TRY(life, rdmux_remote_import_raw(life->a.ep, address, key, REGION_SIZE, &life->remotes[0]));
}

/* Waits until a's import of the region is revoked. */
static void await_revoked(struct life *life, size_t number)
{
    life->may_wait = true; /* without memory the importer is not told */
    for (;;) {
        struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
        TRY(life, rdmux_remote_info(life->remotes[number], &info));
        if (info.status == RDMUX_DENIED) {
            life->may_wait = false;
            return;
        }
        progress_or_end(life);
    }
}

void take_back(struct life *life)
{
    enum { FIRST = 1, LATE, SECOND, PATTERNS = 24 };
    static uint8_t bytes[MIDDLE];
    struct rdmux_token old_token;
    struct rdmux_token token;
    struct side *a = &life->a;
    struct side *b = &life->b;
    TRY(life,
        rdmux_mr_register(b->fabric, bytes, sizeof(bytes),
                          RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE, &b->second_mr));
    memset(bytes, 0, sizeof(bytes));
    TRY(life, rdmux_mr_export(b->second_mr, &old_token));
    (void)import(life, FIRST, &old_token, false);
    POST(life, a, PATTERNS,
         rdmux_write(a->ep, life_pattern, MIDDLE, NULL, life->remotes[FIRST], 0,
                     context_of(a, PATTERNS), RDMUX_PLACED));
    await(life, a, PATTERNS);
    if (memcmp(bytes, life_pattern, MIDDLE) != 0) {
        wrong("a placed write is not there");
    }
    TRY(life, rdmux_mr_revoke(b->second_mr));
    await_revoked(life, FIRST);
    if (rdmux_write(a->ep, life_source, SMALL, NULL, life->remotes[FIRST], 0, NULL, 0) == RDMUX_OK) {
        wrong("a write by a revoked token was taken");
    }
    if (import(life, LATE, &old_token, true)) {
        wrong("a revoked token was imported");
    }
    TRY(life, rdmux_mr_export(b->second_mr, &token));
    (void)import(life, SECOND, &token, false);
    POST(life, a, PATTERNS + 1,
         rdmux_read(a->ep, life_source, MIDDLE, a->mr, life->remotes[SECOND], 0,
                    context_of(a, PATTERNS + 1), 0));
    await(life, a, PATTERNS + 1);
    if (memcmp(life_source, bytes, MIDDLE) != 0) {
        wrong("a read by the new token came with other bytes");
    }
    rdmux_mr_deregister(b->second_mr);
    b->second_mr = NULL;
    await_revoked(life, SECOND);
}

/* ------------------------------------------------------------------------------------- requests */

static void check_message(struct life *life, size_t number, size_t size)
{
    await(life, &life->a, number);
    await(life, &life->b, number);
    if (memcmp(life->received[number], life_pattern, size) != 0) {
        wrong("message %zu of %zu bytes came with other bytes", number, size);
    }
}

void send_messages(struct life *life)
{
    static const size_t sizes[] = { SMALL, MIDDLE, LARGE };
    struct side *a = &life->a;
    struct side *b = &life->b;
    for (size_t i = 0; i < 3; i++) {
        if (!b->requests[i].posted) {
            post_receive(life, b, i, life->received[i], LARGE);
        }
        POST(life, a, i, rdmux_send(a->ep, life_pattern, sizes[i], NULL, context_of(a, i), 0));
    }
    for (size_t i = 0; i < 3; i++) {
        check_message(life, i, sizes[i]);
    }
}

enum { WRITE = 3, READ, ADD, NOTE, BACK_AT = 2 * MIDDLE };

static void write_and_read(struct life *life)
{
    struct side *a = &life->a;
    memcpy(life_source, life_pattern, MIDDLE);
    memset(life_source + BACK_AT, 0, MIDDLE);
    POST(life, a, WRITE,
         rdmux_write(a->ep, life_source, MIDDLE, a->mr, life->remotes[0], 0, context_of(a, WRITE),
                     RDMUX_PLACED));
    await(life, a, WRITE);
    if (memcmp(rdmux_mr_addr(life->b.mr), life_pattern, MIDDLE) != 0) {
        wrong("a placed write is not there");
    }
    POST(life, a, READ,
         rdmux_read(a->ep, life_source + BACK_AT, MIDDLE, a->mr, life->remotes[0], 0,
                    context_of(a, READ), 0));
    await(life, a, READ);
    if (memcmp(life_source + BACK_AT, life_pattern, MIDDLE) != 0) {
        wrong("a read came with other bytes");
    }
}

void use_plainly(struct life *life)
{
    write_and_read(life);
}

void use_memory(struct life *life)
{
    struct side *a = &life->a;
    struct side *b = &life->b;
    static uint64_t before;
    const uint8_t *there = rdmux_mr_addr(b->mr);
    write_and_read(life);
    POST(life, a, ADD,
         rdmux_fetch_add(a->ep, &before, NULL, life->remotes[0], MIDDLE, ADDEND, context_of(a, ADD),
                         0));
    await(life, a, ADD);
    uint64_t word = 0;
    memcpy(&word, there + MIDDLE, sizeof(word));
    if (before != 0 || word != ADDEND) {
        wrong("fetch_add: %" PRIu64 " before, %" PRIu64 " then", before, word);
    }
    post_receive(life, b, NOTE, NULL, 0);
    POST(life, a, NOTE,
         rdmux_write_imm(a->ep, life_pattern, SMALL, NULL, life->remotes[0], BACK_AT, 1,
                         context_of(a, NOTE), 0));
    await(life, b, NOTE);
    if (memcmp(there + BACK_AT, life_pattern, SMALL) != 0) {
        wrong("the bytes of a write_imm are not there at its notice");
    }
    await(life, a, NOTE);
}

/* -------------------------------------------------------------------------------------- the end */

void part(struct life *life)
{
    enum rdmux_status status = rdmux_ep_shutdown(life->a.ep, 0);
    check(life, status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "rdmux_ep_shutdown");
    while (status == RDMUX_IN_PROGRESS && progress(life)) {
    }
}

enum { EACH = 8, FROM_A = 8, FROM_B = 16 };

/* Sends more than the queues hold, both ways; only a takes its messages. */
static void send_much(struct life *life)
{
    static uint8_t nowhere[EACH][LARGE];
    struct side *a = &life->a;
    struct side *b = &life->b;
    for (size_t i = 0; i < EACH; i++) {
        POST(life, a, FROM_A + EACH + i,
             rdmux_recv(a->ep, nowhere[i], LARGE, NULL, context_of(a, FROM_A + EACH + i)));
        POST(life, a, FROM_A + i,
             rdmux_send(a->ep, life_pattern, LARGE, NULL, context_of(a, FROM_A + i), 0));
        POST(life, b, FROM_B + i,
             rdmux_send(b->ep, life_pattern, LARGE, NULL, context_of(b, FROM_B + i), 0));
    }
    (void)progress(life);
}

void part_suddenly(struct life *life)
{
    struct side *a = &life->a;
    struct side *b = &life->b;
    send_much(life);
    if (rdmux_ep_close(b->ep) != RDMUX_OK) {
        wrong("rdmux_ep_close: %s", rdmux_last_error());
    }
    b->ep = NULL;
    while (progress(life)) {
    }
    if (!a->has_ended && must_go_well()) {
        wrong("the peer has closed, and nobody says so");
    }
}

void flap_port(struct life *life)
{
    device_port(false);
    (void)progress(life);
    device_port(true);
    progress_or_end(life);
}
