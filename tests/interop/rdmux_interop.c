/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Plays rping and perftest's ib_send_lat and ib_write_bw with rdmux's public interface alone, against
 * these programs as they are: connections of rdma://, raw keys. What they say on the wire is in
 * README.md. One thread, one message under way at a time, as their receives demand.
 */
#include <rdmux/rdmux.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE_MS = 120000,
    RPING_MESSAGE = 16, /* address, key, size; big-endian */
    RPING_SIZE = 64,    /* rping -S */
    PERF_KEYS = 56,
    PERF_KEY_AT = 16,
    PERF_ADDRESS_AT = 24,
    SEND_LAT_SIZE = 2, /* ib_send_lat -s */
    WRITE_BW_SIZE = 65536,
    REPORTS = 5,
    RETRY_MS = 20,
    RETRIES = 200,
};

static struct rdmux_fabric *fabric;
static struct rdmux_cq *cq;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("rdmux-interop: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        die("%s: %s: %s", what, rdmux_status_name(status), rdmux_last_error());
    }
}

static void store_be(uint8_t *out, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        out[i] = (uint8_t)(value >> 8 * (size - 1 - i));
    }
}

static uint64_t load_be(const uint8_t *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | in[i];
    }
    return value;
}

/* ------------------------------------------------------------------------------------ endpoints */

struct peer {
    struct rdmux_ep *ep;
    struct rdmux_mr *mr;
    uint8_t *in;  /* where messages come in, the first of mr */
    uint8_t *out; /* where they are sent from */
    size_t size;  /* of each */
    bool ended;
};

static void make_room(struct peer *peer, size_t size)
{
    must(rdmux_mr_alloc(fabric, 2 * size, RDMUX_ACCESS_LOCAL_WRITE, &peer->mr), "rdmux_mr_alloc");
    peer->in = rdmux_mr_addr(peer->mr);
    peer->out = peer->in + size;
    peer->size = size;
}

static void receive(struct peer *peer)
{
    must(rdmux_recv(peer->ep, peer->in, peer->size, peer->mr, NULL), "rdmux_recv");
}

static const char *cause(struct rdmux_ep *ep)
{
    static struct rdmux_ep_info info;
    const struct rdmux_ep_info empty = RDMUX_EP_INFO_INIT;
    info = empty;
    must(rdmux_ep_info(ep, &info), "rdmux_ep_info");
    return info.text;
}

/* The next entry of a peer. Those of others are kept: a program may speak over two connections. */
static struct rdmux_wc next_of(const struct peer *peer, const char *what)
{
    enum { KEPT_MAX = 64 };
    static struct rdmux_wc kept[KEPT_MAX];
    static size_t kept_count;
    struct rdmux_wc wc;
    for (size_t i = 0; i < kept_count; i++) {
        if (kept[i].ep == peer->ep) {
            wc = kept[i];
            kept_count--;
            memmove(&kept[i], &kept[i + 1], (kept_count - i) * sizeof(wc));
            return wc;
        }
    }
    for (;;) {
        size_t count = 0;
        must(rdmux_cq_wait(cq, &wc, 1, PATIENCE_MS, &count), what);
        if (wc.ep == peer->ep) {
            return wc;
        }
        if (kept_count == KEPT_MAX) {
            die("too much of another endpoint: %s", cause(wc.ep));
        }
        kept[kept_count++] = wc;
    }
}

/* The next entry of that kind. False: the peer has ended instead. */
static bool await(struct peer *peer, uint32_t opcode)
{
    for (;;) {
        struct rdmux_wc wc = next_of(peer, rdmux_wc_opcode_name(opcode));
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            peer->ended = true;
            return false;
        }
        if ((wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_FLUSHED) ||
            (wc.opcode == RDMUX_WC_SEND && wc.status == RDMUX_PEER_GONE)) {
            continue; /* The end comes. A peer that has its answer may leave before the device here
                       * hears that the answer has arrived. */
        }
        if (wc.opcode != opcode || wc.status != RDMUX_OK) {
            die("%s %s instead of %s: %s", rdmux_wc_opcode_name(wc.opcode),
                rdmux_status_name((enum rdmux_status)wc.status), rdmux_wc_opcode_name(opcode),
                cause(peer->ep));
        }
        return true;
    }
}

static void await_surely(struct peer *peer, uint32_t opcode)
{
    if (!await(peer, opcode)) {
        die("the peer ended instead of %s: %s", rdmux_wc_opcode_name(opcode), cause(peer->ep));
    }
}

static void send_out(struct peer *peer, size_t length)
{
    must(rdmux_send(peer->ep, peer->out, length, peer->mr, NULL, RDMUX_UNSIGNALED), "rdmux_send");
}

/* receives: how many are with the device before the peer may send. */
static void accept_peer(struct rdmux_listener *listener, struct peer *peer, unsigned receives)
{
    struct rdmux_peer who = RDMUX_PEER_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    must(rdmux_listener_next(listener, PATIENCE_MS, &who), "rdmux_listener_next");
    attr.peer = who.id;
    attr.max_send_sge = 1;
    attr.max_recv_sge = 1;
    if (rdmux_accept(listener, cq, &attr, 0, &peer->ep) != RDMUX_IN_PROGRESS) {
        die("rdmux_accept: %s", rdmux_last_error());
    }
    while (receives-- > 0) {
        receive(peer);
    }
    await_surely(peer, RDMUX_WC_CONNECTED);
    printf("%s is connected\n", who.address);
}

/* Repeated while nobody listens yet: perftest's second listener may be later than its first answer. */
static void connect_peer(const char *address, struct peer *peer, unsigned receives)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.max_send_sge = 1;
    attr.max_recv_sge = 1;
    for (int i = 0; i < RETRIES; i++) {
        struct rdmux_wc wc;
        size_t count = 0;
        if (rdmux_connect(fabric, cq, address, &attr, 0, &peer->ep) != RDMUX_IN_PROGRESS) {
            die("rdmux_connect: %s", rdmux_last_error());
        }
        for (unsigned n = 0; n < receives; n++) {
            receive(peer);
        }
        do {
            must(rdmux_cq_wait(cq, &wc, 1, PATIENCE_MS, &count), "connecting");
        } while (wc.opcode != RDMUX_WC_CONNECTED);
        if (wc.status == RDMUX_OK) {
            return;
        }
        if (wc.status != RDMUX_REFUSED) {
            die("rdmux_connect: %s: %s", rdmux_status_name((enum rdmux_status)wc.status),
                cause(peer->ep));
        }
        must(rdmux_ep_close(peer->ep), "rdmux_ep_close");
        if (rdmux_cq_wait(cq, &wc, 1, RETRY_MS, &count) != RDMUX_TIMED_OUT) {
            die("%s: an entry of nobody", address);
        }
    }
    die("%s: nobody listens there", address);
}

static struct rdmux_listener *listen_at(const char *address)
{
    struct rdmux_listener *listener = NULL;
    must(rdmux_listen(fabric, address, NULL, &listener), "rdmux_listen");
    return listener;
}

static void leave(struct peer *peer)
{
    if (!peer->ended) {
        must(rdmux_ep_shutdown(peer->ep, PATIENCE_MS), "rdmux_ep_shutdown");
    }
    must(rdmux_ep_close(peer->ep), "rdmux_ep_close");
    rdmux_mr_deregister(peer->mr);
}

/* ---------------------------------------------------------------------------------------- rping */

static struct rdmux_remote *import_announced(struct peer *peer, size_t *size)
{
    struct rdmux_remote *remote = NULL;
    *size = load_be(peer->in + 12, 4);
    if (*size == 0 || *size > RPING_SIZE) {
        die("the client announces %zu bytes; start both with -S %d", *size, RPING_SIZE);
    }
    must(rdmux_remote_import_raw(peer->ep, load_be(peer->in, 8), (uint32_t)load_be(peer->in + 8, 4),
                                 *size, &remote),
         "rdmux_remote_import_raw");
    return remote;
}

static void go_ahead(struct peer *peer)
{
    memset(peer->out, 0, RPING_MESSAGE);
    receive(peer); /* before the answer that makes the client send again */
    send_out(peer, RPING_MESSAGE);
}

static int rping_server(const char *address)
{
    struct peer peer = { .ep = NULL };
    struct rdmux_mr *data = NULL;
    struct rdmux_listener *listener = listen_at(address);
    unsigned rounds = 0;
    must(rdmux_mr_alloc(fabric, RPING_SIZE, RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK,
                        &data),
         "rdmux_mr_alloc");
    char *text = rdmux_mr_addr(data);
    make_room(&peer, RPING_MESSAGE);
    accept_peer(listener, &peer, 1);
    while (await(&peer, RDMUX_WC_RECV)) {
        size_t size = 0;
        struct rdmux_remote *source = import_announced(&peer, &size);
        must(rdmux_read(peer.ep, text, size, data, source, 0, NULL, 0), "rdmux_read");
        await_surely(&peer, RDMUX_WC_READ);
        rdmux_remote_close(source);
        if (strncmp(text, "rdma-ping-", 10) != 0 || memchr(text, 0, size) == NULL) {
            die("what was read is no ping");
        }
        go_ahead(&peer);
        await_surely(&peer, RDMUX_WC_RECV);
        struct rdmux_remote *sink = import_announced(&peer, &size);
        must(rdmux_write(peer.ep, text, strlen(text) + 1, data, sink, 0, NULL, 0), "rdmux_write");
        await_surely(&peer, RDMUX_WC_WRITE);
        rdmux_remote_close(sink);
        go_ahead(&peer);
        rounds++;
    }
    printf("%u pings\n", rounds);
    leave(&peer);
    rdmux_mr_deregister(data);
    rdmux_listener_close(listener);
    return rounds == 0;
}

static void announce(struct peer *peer, struct rdmux_mr *mr)
{
    uint64_t addr = 0;
    uint32_t key = 0;
    must(rdmux_mr_raw(mr, peer->ep, &addr, &key), "rdmux_mr_raw");
    store_be(peer->out, addr, 8);
    store_be(peer->out + 8, key, 4);
    store_be(peer->out + 12, RPING_SIZE, 4);
    receive(peer);
    send_out(peer, RPING_MESSAGE);
    await_surely(peer, RDMUX_WC_RECV);
}

static int rping_client(const char *address, unsigned rounds)
{
    struct peer peer = { .ep = NULL };
    struct rdmux_mr *source = NULL;
    struct rdmux_mr *sink = NULL;
    must(rdmux_mr_alloc(fabric, RPING_SIZE, RDMUX_ACCESS_REMOTE_READ, &source), "rdmux_mr_alloc");
    must(rdmux_mr_alloc(fabric, RPING_SIZE, RDMUX_ACCESS_REMOTE_WRITE, &sink), "rdmux_mr_alloc");
    make_room(&peer, RPING_MESSAGE);
    connect_peer(address, &peer, 0);
    for (unsigned round = 0; round < rounds; round++) {
        char *text = rdmux_mr_addr(source);
        memset(text, 'A' + (int)(round % 26), RPING_SIZE - 1);
        text[snprintf(text, RPING_SIZE, "rdma-ping-%u:", round)] = ' ';
        text[RPING_SIZE - 1] = '\0';
        memset(rdmux_mr_addr(sink), 0, RPING_SIZE);
        announce(&peer, source);
        announce(&peer, sink);
        if (memcmp(text, rdmux_mr_addr(sink), RPING_SIZE) != 0) {
            die("ping %u came back changed", round);
        }
    }
    printf("%u pings\n", rounds);
    leave(&peer);
    rdmux_mr_deregister(source);
    rdmux_mr_deregister(sink);
    return 0;
}

/* ------------------------------------------------------------------------------------- perftest */

/* A step of the exchange: the client sends, the server answers with as many bytes. */
static void exchange(struct peer *talk, bool is_client, size_t length)
{
    if (is_client) {
        receive(talk);
        send_out(talk, length);
        await_surely(talk, RDMUX_WC_RECV);
    } else {
        await_surely(talk, RDMUX_WC_RECV);
        receive(talk);
        send_out(talk, length);
    }
}

static void say(struct peer *talk, const void *bytes, size_t length)
{
    memset(talk->out, 0, PERF_KEYS);
    memcpy(talk->out, bytes, length);
}

/* Version, page cycle, cache line, MTU: as perftest 6.06 of Debian 12 says them. */
static void agree(struct peer *talk, bool is_client)
{
    static const char version[16] = "6.06";
    uint8_t number[4];
    say(talk, version, sizeof(version));
    exchange(talk, is_client, sizeof(version));
    store_be(number, 4096, sizeof(number));
    say(talk, number, sizeof(number));
    exchange(talk, is_client, sizeof(number));
    store_be(number, 64, sizeof(number));
    say(talk, number, sizeof(number));
    exchange(talk, is_client, sizeof(number));
    say(talk, "3", 2); /* 1024 bytes */
    exchange(talk, is_client, 2);
}

static void exchange_keys(struct peer *talk, bool is_client, uint64_t addr, uint32_t key)
{
    uint8_t keys[PERF_KEYS] = { 0 };
    store_be(keys + PERF_KEY_AT, key, 4);
    store_be(keys + PERF_ADDRESS_AT, addr, 8);
    say(talk, keys, sizeof(keys));
    exchange(talk, is_client, sizeof(keys));
}

/* perftest's two connections to one port: the talk, and the one that is measured. */
struct perf {
    struct peer talk;
    struct peer test;
    struct rdmux_listener *listener;
    struct rdmux_mr *lent;
    bool is_client;
};

static void begin(struct perf *perf, const char *address, bool is_client, size_t size,
                  unsigned receives)
{
    memset(perf, 0, sizeof(*perf));
    perf->is_client = is_client;
    make_room(&perf->talk, PERF_KEYS);
    make_room(&perf->test, size);
    must(rdmux_mr_alloc(fabric, WRITE_BW_SIZE, RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ,
                        &perf->lent),
         "rdmux_mr_alloc");
    if (is_client) {
        connect_peer(address, &perf->talk, 0);
    } else {
        perf->listener = listen_at(address);
        accept_peer(perf->listener, &perf->talk, 1);
    }
    agree(&perf->talk, is_client);
    exchange_keys(&perf->talk, is_client, 0, 0);
    if (is_client) {
        connect_peer(address, &perf->test, receives);
    } else {
        accept_peer(perf->listener, &perf->test, receives);
    }
    exchange_keys(&perf->talk, is_client, 0, 0);
}

static void end(struct perf *perf)
{
    exchange_keys(&perf->talk, perf->is_client, 0, 0);
    must(rdmux_ep_close(perf->test.ep), "rdmux_ep_close");
    rdmux_mr_deregister(perf->test.mr);
    must(rdmux_ep_close(perf->talk.ep), "rdmux_ep_close");
    rdmux_mr_deregister(perf->talk.mr);
    rdmux_mr_deregister(perf->lent);
    rdmux_listener_close(perf->listener);
}

/* The values of both, as often as the test has them exchanged; the peer's, of the last time. */
static struct rdmux_remote *swap_values(struct perf *perf, unsigned times)
{
    struct rdmux_remote *remote = NULL;
    uint64_t addr = 0;
    uint32_t key = 0;
    must(rdmux_mr_raw(perf->lent, perf->test.ep, &addr, &key), "rdmux_mr_raw");
    while (times-- > 0) {
        exchange_keys(&perf->talk, perf->is_client, addr, key);
    }
    uint64_t theirs = load_be(perf->talk.in + PERF_ADDRESS_AT, 8);
    must(rdmux_remote_import_raw(perf->test.ep, theirs,
                                 (uint32_t)load_be(perf->talk.in + PERF_KEY_AT, 4), WRITE_BW_SIZE,
                                 &remote),
         "rdmux_remote_import_raw");
    return remote;
}

static int send_lat(const char *address, bool is_client, unsigned rounds)
{
    struct perf perf;
    begin(&perf, address, is_client, SEND_LAT_SIZE, 1);
    (void)swap_values(&perf, 4);
    for (unsigned i = 0; i < rounds; i++) {
        if (is_client) {
            send_out(&perf.test, SEND_LAT_SIZE);
        }
        await_surely(&perf.test, RDMUX_WC_RECV);
        receive(&perf.test);
        if (!is_client) {
            send_out(&perf.test, SEND_LAT_SIZE);
        }
    }
    printf("%u round trips\n", rounds);
    end(&perf);
    return 0;
}

static int write_bw(const char *address, bool is_client, unsigned rounds)
{
    struct perf perf;
    begin(&perf, address, is_client, WRITE_BW_SIZE, 0);
    struct rdmux_remote *remote = swap_values(&perf, 3);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    must(rdmux_ep_info(perf.test.ep, &info), "rdmux_ep_info");
    /* perftest grants no reads for a test of writes. */
    uint32_t last = (info.native & RDMUX_CAP_PLACED) != 0 ? RDMUX_PLACED : 0;
    for (unsigned i = 0; i < rounds && is_client; i++) {
        must(rdmux_write(perf.test.ep, perf.test.out, WRITE_BW_SIZE, perf.test.mr, remote, 0, NULL,
                         i + 1 < rounds ? 0 : last),
             "rdmux_write");
        await_surely(&perf.test, RDMUX_WC_WRITE);
    }
    exchange_keys(&perf.talk, is_client, 0, 0); /* the client is done */
    for (int i = 0; i < REPORTS; i++) {
        static const uint8_t zeros[8];
        say(&perf.talk, zeros, sizeof(zeros));
        exchange(&perf.talk, is_client, sizeof(zeros));
    }
    printf("%u writes\n", rounds);
    end(&perf);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        (void)fprintf(stderr, "usage: rdmux-interop PROGRAM rdma://HOST:PORT ROUNDS\n"
                              "PROGRAM: rping-server, rping-client, send-lat-server, "
                              "send-lat-client, write-bw-server, write-bw-client\n");
        return 2;
    }
    const char *address = argv[2];
    unsigned rounds = (unsigned)strtoul(argv[3], NULL, 10);
    int result = 2;
    must(rdmux_fabric_open(NULL, &fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(fabric, NULL, &cq), "rdmux_cq_create");
    if (strcmp(argv[1], "rping-server") == 0) {
        result = rping_server(address);
    } else if (strcmp(argv[1], "rping-client") == 0) {
        result = rping_client(address, rounds);
    } else if (strcmp(argv[1], "send-lat-server") == 0) {
        result = send_lat(address, false, rounds);
    } else if (strcmp(argv[1], "send-lat-client") == 0) {
        result = send_lat(address, true, rounds);
    } else if (strcmp(argv[1], "write-bw-server") == 0) {
        result = write_bw(address, false, rounds);
    } else if (strcmp(argv[1], "write-bw-client") == 0) {
        result = write_bw(address, true, rounds);
    }
    must(rdmux_cq_destroy(cq), "rdmux_cq_destroy");
    must(rdmux_fabric_close(fabric), "rdmux_fabric_close");
    return result;
}
