/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Traffic between two hosts whose network or devices may fail meanwhile. Each byte is checked.
 *
 * `serve` answers each message with the same bytes, and its peers write to, read from and count in
 * its memory. `drive` does so, a few rounds at a time. Both report the end of each endpoint: its
 * status and text, the time since the last entry before it, and that every request completed once.
 * The exit status is 0 if each endpoint ended as --expect requires, within the liveness time.
 */
#include <rdmux/rdmux.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    WINDOW = 8,                 /* rounds under way on an endpoint */
    SLOT = 16384,               /* bytes of the peer's memory that a round uses */
    MESSAGE_MOST = 12000,       /* bytes of an echoed message */
    COUNTER_AT = WINDOW * SLOT, /* offset of the peer's counter */
    REGION_SIZE = COUNTER_AT + 64,
    TOGETHER = 100,    /* endpoints that send at the same time */
    STREAM_DEPTH = 16, /* requests under way of a stream */
    SEND_DEPTH = 128,
    SETUP_MS = 60000,
    PATH_MS = 30000,
    BROKEN_PATH_MS = 10000, /* where the first path may be one that is broken */
    RUN_MS = 60000,         /* limit without a completed round */
    AGAIN_ROUNDS = 30,
    NAP_MS = 5,
    ENTRIES = 32, /* taken at a time */
};

/* ------------------------------------------------------------------------------------- options */

enum stream {
    STREAM_NONE,
    STREAM_WRITE,
    STREAM_READ,
};

static struct {
    const char *address;
    const char *paths;
    const char *again;  /* drive: afterwards connects once more, over these paths */
    const char *expect; /* required end of the endpoints */
    uint32_t liveness;  /* ms; 0: depends on the required end */
    uint32_t endpoints;
    uint32_t rounds;    /* drive: of each endpoint; 0: until it ends */
    uint32_t message;   /* drive: bytes of a message after the rounds */
    uint32_t read;      /* drive: written bytes that a round reads again */
    uint32_t receive;   /* serve: bytes of each receive */
    uint32_t srq;       /* serve: receives that all endpoints share; 0: each has its own */
    uint32_t late;      /* serve: ms before receives are posted */
    const char *revoke; /* serve: the memory is revoked when this file exists */
    enum stream stream; /* drive: only these operations on the peer's memory */
} options = {
    .paths = "auto",
    .expect = "OK",
    .endpoints = 1,
    .read = SLOT,
    .receive = SLOT,
};

static const struct {
    const char *name;
    uint32_t *value;
} numbers[] = {
    { "--liveness", &options.liveness }, { "--endpoints", &options.endpoints },
    { "--rounds", &options.rounds },     { "--message", &options.message },
    { "--receive", &options.receive },   { "--srq", &options.srq },
    { "--late", &options.late },         { "--read", &options.read },
};

static const struct {
    const char *name;
    const char **value;
} texts[] = {
    { "--paths", &options.paths },
    { "--again", &options.again },
    { "--expect", &options.expect },
    { "--revoke", &options.revoke },
};

static _Noreturn void usage(void)
{
    fputs("usage: traffic serve|drive ADDRESS [--paths LIST] [--liveness MS] [--endpoints N]\n"
          "               [--expect STATUS[|STATUS...]]\n"
          "  serve  [--receive BYTES] [--srq RECEIVES] [--late MS] [--revoke FILE]\n"
          "  drive  [--rounds N] [--read BYTES] [--message BYTES] [--stream write|read]\n"
          "         [--again LIST]\n",
          stderr);
    exit(2);
}

static void take_option(const char *name, const char *value)
{
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            char *end;
            *numbers[i].value = (uint32_t)strtoul(value, &end, 10);
            if (*value == '\0' || *end != '\0') {
                usage();
            }
            return;
        }
    }
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].value = value;
            return;
        }
    }
    if (strcmp(name, "--stream") != 0) {
        usage();
    }
    options.stream = strcmp(value, "read") == 0 ? STREAM_READ : STREAM_WRITE;
}

/* ------------------------------------------------------------------------------- what both need */

static bool went_wrong;

static void wrong(const char *what)
{
    printf("WRONG: %s\n", what);
    went_wrong = true;
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        printf("WRONG: %s: %s: %s\n", what, rdmux_status_name(status), rdmux_last_error());
        exit(1);
    }
}

static void *grab(size_t size)
{
    void *memory = calloc(1, size);
    if (memory == NULL) {
        puts("WRONG: no memory");
        exit(1);
    }
    return memory;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Time during which this guest did not run; an end may be reported later by it. A thread that only
 * sleeps measures how late it is woken. */
static _Atomic uint64_t late_ms;

static void *nap(void *none)
{
    const struct timespec length = { .tv_nsec = NAP_MS * 1000000L };
    for (;;) {
        uint64_t due = now_ms() + NAP_MS;
        nanosleep(&length, NULL);
        uint64_t now = now_ms();
        late_ms += now > due + 1 ? now - due : 0;
    }
    return none;
}

static void watch_lateness(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, nap, NULL) != 0 || pthread_detach(thread) != 0) {
        fputs("traffic: no thread\n", stderr);
        exit(2);
    }
}

/* Bytes that depend on their place and on the seed. */
static uint8_t pattern_at(uint64_t seed, size_t at)
{
    uint64_t mixed = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + at * UINT64_C(0xff51afd7ed558ccd);
    return (uint8_t)(mixed >> 56);
}

static void pattern_fill(uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = pattern_at(seed, i);
    }
}

static bool is_pattern(const uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != pattern_at(seed, i)) {
            return false;
        }
    }
    return true;
}

/* A message of a round: its seed, and bytes that the seed determines. */
static size_t message_fill(uint8_t *bytes, uint64_t seed)
{
    size_t length = sizeof(seed) + (size_t)(seed * 7919 % (MESSAGE_MOST - sizeof(seed)));
    memcpy(bytes, &seed, sizeof(seed));
    pattern_fill(bytes + sizeof(seed), length - sizeof(seed), seed);
    return length;
}

static bool is_message(const uint8_t *bytes, size_t length, uint64_t *seed)
{
    if (length < sizeof(*seed)) {
        return false;
    }
    memcpy(seed, bytes, sizeof(*seed));
    return length == sizeof(*seed) + *seed * 7919 % (MESSAGE_MOST - sizeof(*seed)) &&
           is_pattern(bytes + sizeof(*seed), length - sizeof(*seed), *seed);
}

/* First message of the server to each peer. */
struct greeting {
    uint64_t has_memory;
    struct rdmux_token token;
};

/* Entries that an endpoint owes, and the time of its last one. */
struct line {
    struct rdmux_ep *ep;
    uint32_t owed;     /* entries of posted requests */
    uint64_t heard_ms; /* the last success */
    uint64_t late_ms;  /* lateness of this guest until then */
    uint32_t failure;  /* status of the first request that failed */
    bool ended;
};

static struct rdmux_fabric *fabric;
static struct rdmux_cq *cq;
static uint32_t path_ms = PATH_MS; /* limit of the attempt at a path */

static void open_all(void)
{
    must(rdmux_fabric_open(NULL, &fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(fabric, NULL, &cq), "rdmux_cq_create");
}

/* A busy machine keeps a guest silent for seconds, so only an endpoint whose peer has to be missed
 * has a short limit. */
static bool misses_its_peer(void)
{
    return strstr(options.expect, "PEER_GONE") != NULL;
}

static uint32_t liveness_ms(void)
{
    if (options.liveness != 0) {
        return options.liveness;
    }
    return misses_its_peer() ? 3000 : 60000;
}

static struct rdmux_ep_attr attributes(void)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = liveness_ms();
    attr.path_timeout_ms = path_ms;
    attr.setup_timeout_ms = SETUP_MS;
    attr.send_depth = SEND_DEPTH;
    attr.recv_depth = 2 * WINDOW;
    return attr;
}

static bool is_expected(enum rdmux_status status)
{
    const char *name = rdmux_status_name(status) + strlen("RDMUX_");
    for (const char *at = options.expect; *at != '\0'; at += strcspn(at, "|"), at += *at == '|') {
        if (strcspn(at, "|") == strlen(name) && strncmp(at, name, strlen(name)) == 0) {
            return true;
        }
    }
    return false;
}

/* Accounts for one entry; returns whether it is a success. */
static bool account(struct line *line, const struct rdmux_wc *wc)
{
    if (line->ended) {
        wrong("an entry after DISCONNECTED");
    }
    if (line->owed == 0) {
        wrong("a completion of nothing");
    }
    line->owed--;
    if (wc->status == RDMUX_OK) {
        if (line->failure != RDMUX_OK && wc->opcode != RDMUX_WC_RECV) {
            wrong("a success behind a failure");
        }
        line->heard_ms = now_ms();
        line->late_ms = late_ms;
        return true;
    }
    if (line->failure == RDMUX_OK && wc->opcode != RDMUX_WC_RECV) {
        line->failure = wc->status;
    }
    return false;
}

/* The endpoint's last entry has come. */
static void tell_end(struct line *line, enum rdmux_status status)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    uint64_t silence = now_ms() - line->heard_ms;
    uint64_t late = late_ms - line->late_ms;
    must(rdmux_ep_info(line->ep, &info), "rdmux_ep_info");
    line->ended = true;
    printf("ended: %s, %" PRIu64 " ms after the last success, %" PRIu64
           " of them late; first failure: %s; %s\n",
           rdmux_status_name(status), silence, late, rdmux_status_name(line->failure), info.text);
    if (!is_expected(status)) {
        wrong("it should have ended otherwise");
    }
    if (status != RDMUX_OK && info.text[0] == '\0') {
        wrong("no reason is given");
    }
    if (line->owed != 0) {
        printf("WRONG: %u requests were never completed\n", line->owed);
        went_wrong = true;
    }
    /* tests/unit/test_silence.c asserts the exact time, by a clock of its own. Here the system
     * below may be silent for minutes, and the other guest's lateness is unknown. */
    if (status != RDMUX_OK && silence > 2 * (uint64_t)liveness_ms() + late) {
        wrong("the end came later than the liveness time");
    }
}

/* -------------------------------------------------------------------------------------- serving */

struct peer;

struct receive {
    uint8_t *bytes;
    struct rdmux_mr *mr;
    struct peer *peer; /* NULL: the SRQ's */
};

struct peer {
    struct line line;
    uint8_t *memory;
    struct rdmux_mr *mr;
    struct greeting greeting;
    uint64_t begin_ms;
    bool has_receives;
    bool is_revoked;
    uint64_t counter; /* when the memory was revoked */
    uint64_t echoes;
};

static struct rdmux_srq *srq;
static uint32_t ended_count;
static uint64_t echo_count;

static void post_receive(struct receive *receive)
{
    if (receive->peer == NULL) {
        must(rdmux_srq_recv(srq, receive->bytes, options.receive, receive->mr, receive),
             "rdmux_srq_recv");
        return;
    }
    /* The endpoint may have ended unnoticed. */
    if (rdmux_recv(receive->peer->line.ep, receive->bytes, options.receive, receive->mr, receive) ==
        RDMUX_OK) {
        receive->peer->line.owed++;
    }
}

static void make_receives(struct peer *peer, uint32_t count)
{
    size_t size = (size_t)count * options.receive;
    uint8_t *bytes = grab(size);
    struct receive *receives = grab(count * sizeof(*receives));
    struct rdmux_mr *mr;
    must(rdmux_mr_register(fabric, bytes, size, RDMUX_ACCESS_LOCAL_WRITE, &mr),
         "rdmux_mr_register");
    for (uint32_t i = 0; i < count; i++) {
        receives[i] = (struct receive){ bytes + (size_t)i * options.receive, mr, peer };
        post_receive(&receives[i]);
    }
}

/* Returns a value of /proc/self/status. */
static long kib_of(const char *name)
{
    char text[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(text, sizeof(text), file) != NULL) {
        if (strncmp(text, name, strlen(name)) == 0) {
            value = strtol(text + strlen(name) + 1, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return value;
}

static void welcome(struct rdmux_ep *ep)
{
    struct peer *peer = grab(sizeof(*peer));
    peer->line.ep = ep;
    peer->line.heard_ms = peer->begin_ms = now_ms();
    peer->line.late_ms = late_ms;
    must(rdmux_ep_set_user(ep, peer), "rdmux_ep_set_user");
    if (srq == NULL) {
        peer->memory = grab(REGION_SIZE);
        must(rdmux_mr_register(fabric, peer->memory, REGION_SIZE,
                               RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                   RDMUX_ACCESS_REMOTE_ATOMIC,
                               &peer->mr),
             "rdmux_mr_register");
        must(rdmux_mr_export(peer->mr, &peer->greeting.token), "rdmux_mr_export");
        peer->greeting.has_memory = 1;
    }
    must(rdmux_send(ep, &peer->greeting, sizeof(peer->greeting), NULL, NULL, 0), "the greeting");
    peer->line.owed++;
}

/* Does the work that is due some time after the connection, or at a signal of the script. */
static void serve_timers(struct peer *peer)
{
    uint64_t age = now_ms() - peer->begin_ms;
    if (!peer->has_receives && age >= options.late) {
        peer->has_receives = true;
        if (srq == NULL) {
            make_receives(peer, 2 * WINDOW);
        }
    }
    if (options.revoke != NULL && !peer->is_revoked && access(options.revoke, F_OK) == 0) {
        peer->is_revoked = true;
        must(rdmux_mr_revoke(peer->mr), "rdmux_mr_revoke");
        /* From here on no write may change the counter, and no read may find its value. */
        memcpy(&peer->counter, peer->memory + COUNTER_AT, sizeof(peer->counter));
        memset(peer->memory, 0xee, SLOT);
    }
}

static void end_peer(struct peer *peer, enum rdmux_status status)
{
    tell_end(&peer->line, status);
    if (peer->memory != NULL) {
        uint64_t counter;
        memcpy(&counter, peer->memory + COUNTER_AT, sizeof(counter));
        printf("landed: %" PRIu64 "\n", counter);
        if (peer->is_revoked && counter != peer->counter) {
            wrong("a write came through after revoke");
        }
    }
    must(rdmux_ep_close(peer->line.ep), "rdmux_ep_close");
    rdmux_mr_deregister(peer->mr);
    ended_count++;
}

static void serve_entry(const struct rdmux_wc *wc)
{
    struct peer *peer = rdmux_ep_user(wc->ep);
    struct receive *receive = wc->context;
    uint64_t seed;
    switch (wc->opcode) {
    case RDMUX_WC_DISCONNECTED:
        end_peer(peer, (enum rdmux_status)wc->status);
        return;
    case RDMUX_WC_WRITABLE:
        return;
    case RDMUX_WC_SEND:
        (void)account(&peer->line, wc);
        if (receive != NULL && (wc->status == RDMUX_OK || srq != NULL)) {
            post_receive(receive);
        }
        return;
    default:
        break;
    }
    if (srq != NULL) {
        peer->line.owed++; /* a shared receive belongs to no endpoint until a message is in it */
    }
    if (!account(&peer->line, wc)) {
        return;
    }
    if (!is_message(receive->bytes, wc->length, &seed)) {
        wrong("a message has other bytes");
    }
    echo_count++;
    if (rdmux_send(peer->line.ep, receive->bytes, wc->length, receive->mr, receive, 0) == RDMUX_OK) {
        peer->line.owed++;
    } else if (srq != NULL) {
        post_receive(receive);
    }
}

static void tell_memory(uint32_t endpoints)
{
    printf("memory: %u endpoints, resident %ld KiB, pinned %ld KiB, receives %u KiB\n", endpoints,
           kib_of("VmRSS"), kib_of("VmPin"),
           (srq != NULL ? options.srq : endpoints * 2 * WINDOW) * (options.receive / 1024));
}

static void serve(void)
{
    struct rdmux_listener *listener;
    struct rdmux_listen_attr listen_attr = RDMUX_LISTEN_ATTR_INIT;
    struct rdmux_ep_attr attr = attributes();
    struct peer **peers = grab(options.endpoints * sizeof(struct peer *));
    struct rdmux_wc entries[ENTRIES];
    char address[RDMUX_ADDRESS_MAX];
    uint32_t accepted = 0;
    open_all();
    listen_attr.paths = options.paths;
    must(rdmux_listen(fabric, options.address, &listen_attr, &listener), "rdmux_listen");
    must(rdmux_listener_address(listener, address, sizeof(address)), "rdmux_listener_address");
    if (options.srq != 0) {
        struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
        srq_attr.depth = options.srq;
        must(rdmux_srq_create(fabric, cq, &srq_attr, &srq), "rdmux_srq_create");
        make_receives(NULL, options.srq);
        attr.srq = srq;
        attr.recv_depth = 0;
    }
    printf("listening on %s\n", address);
    while (ended_count < options.endpoints) {
        struct rdmux_ep *ep;
        size_t count;
        if (accepted < options.endpoints && rdmux_accept(listener, cq, &attr, 0, &ep) == RDMUX_OK) {
            welcome(ep);
            peers[accepted++] = rdmux_ep_user(ep);
            if (accepted * 5 % options.endpoints == 0) {
                tell_memory(accepted);
            }
        }
        enum rdmux_status status = rdmux_cq_wait(cq, entries, COUNT_OF(entries), 5, &count);
        if (status != RDMUX_TIMED_OUT) {
            must(status, "rdmux_cq_wait");
        }
        for (size_t i = 0; i < count; i++) {
            serve_entry(&entries[i]);
        }
        for (uint32_t i = 0; i < accepted; i++) {
            if (!peers[i]->line.ended) {
                serve_timers(peers[i]);
            }
        }
    }
    printf("echoes: %" PRIu64 "\n", echo_count);
    free(peers);
}

/* -------------------------------------------------------------------------------------- driving */

/* The part of a round that a request belongs to: the low bits of its context. */
enum part {
    PART_GREETING,
    PART_ECHO,
    PART_MESSAGE,
    PART_WRITE,
    PART_READ,
    PART_COUNT,
    PART_STREAM,
    PART_LAST, /* the message behind all rounds */
    PART_BITS = 3,
};

struct round {
    uint8_t sent[SLOT];
    uint8_t echo[SLOT];
    uint8_t written[SLOT];
    uint8_t found[SLOT];
    uint64_t counted;
    uint64_t seed;
    size_t length;  /* of the message */
    uint32_t parts; /* without an entry yet */
};

struct driver {
    struct line line;
    struct round *rounds; /* window of them */
    struct rdmux_mr *mr;  /* their bytes */
    struct greeting greeting;
    struct rdmux_remote *remote; /* NULL: the peer exports no memory */
    uint64_t begun;
    uint64_t done;
    uint64_t streamed;
    uint64_t placed; /* stream: the last number that a completion reported as placed */
    bool is_greeted;
    bool is_over; /* no more rounds begin */
};

static uint32_t window = WINDOW;
static uint64_t rounds_done;

static void *context_of(uint64_t number, enum part part)
{
    return (void *)(uintptr_t)(number << PART_BITS | (uint64_t)part);
}

/* Returns whether the post was taken. A refused one is the last: the endpoint has ended or lost the
 * right. */
static bool posted(struct driver *driver, enum rdmux_status status)
{
    if (status != RDMUX_OK) {
        driver->is_over = true;
        return false;
    }
    driver->line.owed++;
    return true;
}

static void end_driver(struct driver *driver, enum rdmux_status status)
{
    tell_end(&driver->line, status);
    if (options.stream == STREAM_WRITE) {
        printf("placed: %" PRIu64 "\n", driver->placed);
    }
}

static void check_part(struct driver *driver, struct round *round, enum part part,
                       const struct rdmux_wc *wc, uint64_t number)
{
    switch (part) {
    case PART_ECHO:
        if (wc->length != round->length || memcmp(round->echo, round->sent, round->length) != 0) {
            wrong("an echo has other bytes");
        }
        break;
    case PART_READ:
        if (memcmp(round->found, round->written, options.read) != 0) {
            wrong("a read found other bytes than were written");
        }
        break;
    case PART_COUNT:
        if (round->counted != number) {
            wrong("the counter has another value");
        }
        break;
    default:
        break;
    }
    if (--round->parts == 0) {
        driver->done++;
        rounds_done++;
    }
}

static void check_stream(struct driver *driver, const struct rdmux_wc *wc, uint64_t number)
{
    const struct round *round = &driver->rounds[0];
    if (wc->opcode == RDMUX_WC_WRITE) {
        driver->placed = number;
        return;
    }
    const uint8_t *found = round->found + number % STREAM_DEPTH * (SLOT / STREAM_DEPTH);
    for (size_t i = 0; i < SLOT / STREAM_DEPTH; i++) {
        if (found[i] != 0) {
            wrong("a read found what was written after revoke");
            return;
        }
    }
}

static void drive_entry(const struct rdmux_wc *wc)
{
    struct driver *driver = rdmux_ep_user(wc->ep);
    uint64_t number = (uint64_t)(uintptr_t)wc->context >> PART_BITS;
    enum part part = (enum part)((uintptr_t)wc->context & ((1U << PART_BITS) - 1));
    if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        end_driver(driver, (enum rdmux_status)wc->status);
        return;
    }
    if (wc->opcode == RDMUX_WC_WRITABLE || !account(&driver->line, wc)) {
        return;
    }
    if (part == PART_GREETING) {
        driver->is_greeted = true;
    } else if (part == PART_STREAM) {
        if (number == 1 && wc->status == RDMUX_OK) {
            puts("streams");
        }
        check_stream(driver, wc, number);
    } else if (part != PART_LAST) {
        check_part(driver, &driver->rounds[number % window], part, wc, number);
    }
}

static void progress(int timeout_ms)
{
    struct rdmux_wc entries[ENTRIES];
    size_t count;
    enum rdmux_status status = rdmux_cq_wait(cq, entries, COUNT_OF(entries), timeout_ms, &count);
    if (status != RDMUX_TIMED_OUT && status != RDMUX_AGAIN) {
        must(status, "rdmux_cq_wait");
    }
    for (size_t i = 0; i < count; i++) {
        drive_entry(&entries[i]);
    }
}

static struct driver *connect_driver(const char *paths)
{
    struct rdmux_ep_attr attr = attributes();
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct driver *driver = grab(sizeof(*driver));
    size_t size = window * sizeof(struct round);
    attr.paths = paths;
    attr.user = driver;
    must(rdmux_connect(fabric, cq, options.address, &attr, SETUP_MS, &driver->line.ep),
         "rdmux_connect");
    must(rdmux_ep_info(driver->line.ep, &info), "rdmux_ep_info");
    printf("over %s\n", info.provider);
    driver->line.heard_ms = now_ms();
    driver->line.late_ms = late_ms;
    driver->rounds = grab(size);
    must(rdmux_mr_register(fabric, driver->rounds, size,
                           RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK, &driver->mr),
         "rdmux_mr_register");
    must(rdmux_recv(driver->line.ep, &driver->greeting, sizeof(driver->greeting), NULL,
                    context_of(0, PART_GREETING)),
         "rdmux_recv");
    driver->line.owed++;
    while (!driver->is_greeted && !driver->line.ended) {
        progress(SETUP_MS);
    }
    if (driver->greeting.has_memory != 0 && !driver->line.ended) {
        must(rdmux_remote_import(driver->line.ep, &driver->greeting.token, SETUP_MS,
                                 &driver->remote),
             "rdmux_remote_import");
    }
    return driver;
}

/* Begins a round: a message and its echo; if the peer has exported memory, bytes that are written
 * there and read again, and a count. */
static void begin_round(struct driver *driver)
{
    uint64_t number = driver->begun;
    struct round *round = &driver->rounds[number % window];
    struct rdmux_ep *ep = driver->line.ep;
    uint64_t at = number % window * SLOT;
    round->length = message_fill(round->sent, number);
    round->parts = driver->remote != NULL ? 5 : 2;
    driver->begun++;
    if (!posted(driver,
                rdmux_recv(ep, round->echo, SLOT, driver->mr, context_of(number, PART_ECHO))) ||
        !posted(driver, rdmux_send(ep, round->sent, round->length, driver->mr,
                                   context_of(number, PART_MESSAGE), 0)) ||
        driver->remote == NULL) {
        return;
    }
    pattern_fill(round->written, SLOT, number);
    if (posted(driver, rdmux_write(ep, round->written, SLOT, driver->mr, driver->remote, at,
                                   context_of(number, PART_WRITE), RDMUX_PLACED)) &&
        posted(driver, rdmux_read(ep, round->found, options.read, driver->mr, driver->remote, at,
                                  context_of(number, PART_READ), 0))) {
        (void)posted(driver, rdmux_fetch_add(ep, &round->counted, driver->mr, driver->remote,
                                             COUNTER_AT, 1, context_of(number, PART_COUNT), 0));
    }
}

/* Writes numbers into the peer's counter, or reads its first bytes. */
static void begin_stream(struct driver *driver)
{
    while (!driver->is_over && driver->line.owed < STREAM_DEPTH) {
        uint64_t number = driver->streamed + 1;
        size_t part = SLOT / STREAM_DEPTH;
        size_t at = number % STREAM_DEPTH * part;
        void *context = context_of(number, PART_STREAM);
        if (options.stream == STREAM_WRITE) {
            (void)posted(driver,
                         rdmux_write(driver->line.ep, &number, sizeof(number), NULL, driver->remote,
                                     COUNTER_AT, context, RDMUX_PLACED | RDMUX_INLINE));
        } else {
            (void)posted(driver, rdmux_read(driver->line.ep, driver->rounds[0].found + at, part,
                                            driver->mr, driver->remote, at, context, 0));
        }
        driver->streamed = number;
    }
}

/* Begins as many rounds as fit. Returns whether more are to come. */
static bool step(struct driver *driver)
{
    if (driver->line.ended) {
        return false;
    }
    if (driver->is_over) {
        return true;
    }
    if (options.stream != STREAM_NONE) {
        begin_stream(driver);
        return true;
    }
    while (!driver->is_over && driver->begun - driver->done < window &&
           (options.rounds == 0 || driver->begun < options.rounds)) {
        begin_round(driver);
    }
    return options.rounds == 0 || driver->done < options.rounds;
}

/* Runs until every endpoint has completed its rounds, or has ended. */
static void run(struct driver **drivers, uint32_t count)
{
    uint64_t deadline = now_ms() + RUN_MS;
    uint64_t done = rounds_done;
    bool more = true;
    while (more) {
        more = false;
        if (done != rounds_done) {
            done = rounds_done;
            deadline = now_ms() + RUN_MS;
        }
        for (uint32_t i = 0; i < count && drivers[i] != NULL; i++) {
            more = step(drivers[i]) || more;
        }
        if (now_ms() >= deadline) {
            wrong("it neither ends nor goes on");
            return;
        }
        if (more) {
            progress(20);
        }
    }
}

/* Shuts the endpoint down, unless it has ended. */
static void finish(struct driver *driver)
{
    if (options.message != 0 && !driver->line.ended) {
        uint8_t *bytes = grab(options.message);
        (void)posted(driver, rdmux_send(driver->line.ep, bytes, options.message, NULL,
                                        context_of(0, PART_LAST), 0));
        uint64_t deadline = now_ms() + RUN_MS;
        while (!driver->line.ended && now_ms() < deadline) {
            progress(20);
        }
    }
    if (!driver->line.ended) {
        must(rdmux_ep_shutdown(driver->line.ep, SETUP_MS), "rdmux_ep_shutdown");
        if (!is_expected(RDMUX_OK)) {
            wrong("it did not end by itself");
        }
    }
    rdmux_remote_close(driver->remote);
    must(rdmux_ep_close(driver->line.ep), "rdmux_ep_close");
    rdmux_mr_deregister(driver->mr);
}

static void drive(void)
{
    struct driver **drivers = grab(options.endpoints * sizeof(struct driver *));
    open_all();
    window = options.endpoints > 1 ? 1 : WINDOW;
    for (uint32_t i = 0; i < options.endpoints; i++) {
        drivers[i] = connect_driver(options.paths);
        progress(0); /* others may be served meanwhile */
    }
    for (uint32_t i = 0; i < options.endpoints; i += TOGETHER) {
        uint32_t left = options.endpoints - i;
        run(drivers + i, left < TOGETHER ? left : TOGETHER);
    }
    for (uint32_t i = 0; i < options.endpoints && drivers[i] != NULL; i++) {
        finish(drivers[i]);
    }
    if (options.again != NULL) {
        options.rounds = AGAIN_ROUNDS;
        options.expect = "OK";
        path_ms = BROKEN_PATH_MS;
        drivers[0] = connect_driver(options.again);
        run(drivers, 1);
        finish(drivers[0]);
    }
    printf("rounds: %" PRIu64 "\n", rounds_done);
    free(drivers);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    watch_lateness();
    if (argc < 3) {
        usage();
    }
    options.address = argv[2];
    for (int i = 3; i < argc; i += 2) {
        if (i + 1 == argc) {
            usage();
        }
        take_option(argv[i], argv[i + 1]);
    }
    if (options.endpoints == 0 || options.read > SLOT) {
        usage();
    }
    if (strcmp(argv[1], "serve") == 0) {
        serve();
    } else if (strcmp(argv[1], "drive") == 0) {
        drive();
    } else {
        usage();
    }
    return went_wrong;
}
