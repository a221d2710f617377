/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two sides of a connection in one process, for tests of the whole library. Each side has its own
 * fabric and cq, so the sides are peers of each other. A step may take PATIENT_MS; a passing test
 * never waits that long. */
#ifndef RDMUX_TESTS_API_PAIR_H
#define RDMUX_TESTS_API_PAIR_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    PATIENT_MS = 120000,
    LOGBOOK_LINES = 256,
    LOGBOOK_LINE = 400,
};

#define CHECK_OK(call)                                                                          \
    do {                                                                                        \
        enum rdmux_status check_status = (call);                                                \
        if (check_status != RDMUX_OK) {                                                         \
            fail_msg("%s: %s: %s", #call, rdmux_status_name(check_status), rdmux_last_error()); \
        }                                                                                       \
    } while (0)

#define CHECK_STATUS(call, expected)                                               \
    do {                                                                           \
        enum rdmux_status check_status = (call);                                   \
        if (check_status != (expected)) {                                          \
            fail_msg("%s: %s, not %s: %s", #call, rdmux_status_name(check_status), \
                     rdmux_status_name(expected), rdmux_last_error());             \
        }                                                                          \
    } while (0)

#define CONTEXT(number) ((void *)(uintptr_t)(number))

/* Factor for time limits in milliseconds: the limits do not count the time of a sanitizer's
 * checks. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLACK UINT64_C(4)
#else
#define SLACK UINT64_C(1)
#endif

static inline uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline void pause_ms(unsigned ms)
{
    struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    while (nanosleep(&time, &time) != 0) {
    }
}

/* -------------------------------------------------------------------------------------- the log */

/* The lines that a fabric has logged. */
struct logbook {
    pthread_mutex_t lock;
    size_t count;
    char lines[LOGBOOK_LINES][LOGBOOK_LINE]; /* the first LOGBOOK_LINES lines */
};

#define LOGBOOK_INIT                      \
    {                                     \
        .lock = PTHREAD_MUTEX_INITIALIZER \
    }

static inline void logbook_write(void *user, enum rdmux_log_level level, const char *line)
{
    struct logbook *book = user;
    (void)level;
    pthread_mutex_lock(&book->lock);
    if (book->count < LOGBOOK_LINES) {
        (void)snprintf(book->lines[book->count], LOGBOOK_LINE, "%s", line);
    }
    book->count++;
    pthread_mutex_unlock(&book->lock);
}

static inline size_t logbook_count(struct logbook *book, const char *part)
{
    size_t count = 0;
    pthread_mutex_lock(&book->lock);
    for (size_t i = 0; i < book->count && i < LOGBOOK_LINES; i++) {
        count += strstr(book->lines[i], part) != NULL;
    }
    pthread_mutex_unlock(&book->lock);
    return count;
}

static inline size_t logbook_total(struct logbook *book)
{
    pthread_mutex_lock(&book->lock);
    size_t count = book->count;
    pthread_mutex_unlock(&book->lock);
    return count;
}

static inline void logbook_clear(struct logbook *book)
{
    pthread_mutex_lock(&book->lock);
    book->count = 0;
    pthread_mutex_unlock(&book->lock);
}

/* --------------------------------------------------------------------------------------- memory */

/* Counts the memory that a fabric has allocated. */
struct meter {
    _Atomic size_t bytes;
    _Atomic size_t peak;
    _Atomic size_t pieces;
    _Atomic long left; /* allocations until one fails; 0 or below: none fails */
};

enum { METER_HEADER = 64 };

static inline void *meter_allocate(void *user, size_t size)
{
    struct meter *meter = user;
    bool fails = atomic_fetch_sub(&meter->left, 1) == 1;
    char *memory = fails ? NULL : malloc(size + METER_HEADER);
    if (memory == NULL) {
        return NULL;
    }
    memcpy(memory, &size, sizeof(size));
    size_t bytes = atomic_fetch_add(&meter->bytes, size) + size;
    size_t peak = atomic_load(&meter->peak);
    while (bytes > peak && !atomic_compare_exchange_weak(&meter->peak, &peak, bytes)) {
    }
    atomic_fetch_add(&meter->pieces, 1);
    return memory + METER_HEADER;
}

static inline void meter_release(void *user, void *memory)
{
    struct meter *meter = user;
    size_t size;
    memcpy(&size, (char *)memory - METER_HEADER, sizeof(size));
    atomic_fetch_sub(&meter->bytes, size);
    atomic_fetch_sub(&meter->pieces, 1);
    free((char *)memory - METER_HEADER);
}

/* -------------------------------------------------------------------------------------- fabrics */

#ifndef SLOW_CLOCK
#define SLOW_CLOCK \
    1 /* how many times slower the clock of the program's fabrics runs than the machine's clock */
#endif

/* A slowed clock: on a busy machine, an awaited event still arrives before the library's
 * timeout. */
static inline uint64_t slow_clock_ns(void *user)
{
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) / SLOW_CLOCK;
}

static inline struct rdmux_fabric *open_metered_fabric(const char *paths, uint32_t flags,
                                                       struct logbook *book, struct meter *meter)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS | flags;
    attr.paths = paths;
    attr.clock_ns = SLOW_CLOCK > 1 ? slow_clock_ns : NULL;
    if (book != NULL) {
        attr.log = logbook_write;
        attr.log_user = book;
        attr.log_level = RDMUX_LOG_WARN;
    }
    if (meter != NULL) {
        attr.allocate = meter_allocate;
        attr.release = meter_release;
        attr.allocate_user = meter;
    }
    struct rdmux_fabric *fabric = NULL;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    return fabric;
}

static inline struct rdmux_fabric *open_fabric(const char *paths, uint32_t flags,
                                               struct logbook *book)
{
    return open_metered_fabric(paths, flags, book, NULL);
}

static inline struct rdmux_cq *create_cq(struct rdmux_fabric *fabric)
{
    struct rdmux_cq *cq = NULL;
    CHECK_OK(rdmux_cq_create(fabric, NULL, &cq));
    return cq;
}

static inline struct rdmux_listener *listen_here(struct rdmux_fabric *fabric,
                                                 const struct rdmux_listen_attr *attr,
                                                 char address[RDMUX_ADDRESS_MAX])
{
    struct rdmux_listener *listener = NULL;
    CHECK_OK(rdmux_listen(fabric, "127.0.0.1:0", attr, &listener));
    CHECK_OK(rdmux_listener_address(listener, address, RDMUX_ADDRESS_MAX));
    return listener;
}

/* ---------------------------------------------------------------------------------- completions */

/* Takes the next entry. Fails the test after PATIENT_MS. */
static inline struct rdmux_wc next_entry(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    size_t count = 0;
    CHECK_OK(rdmux_cq_wait(cq, &wc, 1, PATIENT_MS, &count));
    assert_int_equal(count, 1);
    return wc;
}

/* Takes the next entry, which must have this opcode and status. */
static inline struct rdmux_wc expect_entry(struct rdmux_cq *cq, uint32_t opcode,
                                           enum rdmux_status status)
{
    struct rdmux_wc wc = next_entry(cq);
    if (wc.opcode != opcode || wc.status != (uint32_t)status) {
        fail_msg("%s with %s came, %s with %s was expected", rdmux_wc_opcode_name(wc.opcode),
                 rdmux_status_name((enum rdmux_status)wc.status), rdmux_wc_opcode_name(opcode),
                 rdmux_status_name(status));
    }
    return wc;
}

/* ---------------------------------------------------------------------------------------- pairs */

/* Endpoint a connects, endpoint b accepts. */
struct pair {
    struct rdmux_fabric *fabric_a;
    struct rdmux_fabric *fabric_b;
    struct rdmux_cq *cq_a;
    struct rdmux_cq *cq_b;
    struct rdmux_listener *listener;
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_ep *a;
    struct rdmux_ep *b;
};

/* Returns the attributes (NULL: the defaults) with PATIENT_MS as the timeouts of a path and of the
 * set-up: on a busy machine the other side runs late. Returns them unchanged if the test sets the
 * path timeout, or if they have another size. */
static inline const struct rdmux_ep_attr *patient_attr(const struct rdmux_ep_attr *attr,
                                                       struct rdmux_ep_attr *patient)
{
    *patient = (struct rdmux_ep_attr)RDMUX_EP_ATTR_INIT;
    if (attr != NULL && (attr->size != sizeof(*patient) || attr->path_timeout_ms != 0)) {
        return attr;
    }
    if (attr != NULL) {
        *patient = *attr;
    }
    patient->path_timeout_ms = PATIENT_MS;
    if (patient->setup_timeout_ms == 0) {
        patient->setup_timeout_ms = PATIENT_MS;
    }
    return patient;
}

/* Makes one more connection of the pair, with different attributes on each side. Progresses the
 * sides in turn, so that neither needs a service thread. */
static inline void connect_as(struct pair *pair, const struct rdmux_ep_attr *as_a,
                              const struct rdmux_ep_attr *as_b, struct rdmux_ep **a,
                              struct rdmux_ep **b)
{
    struct rdmux_ep_attr patient_a;
    struct rdmux_ep_attr patient_b;
    as_a = patient_attr(as_a, &patient_a);
    as_b = patient_attr(as_b, &patient_b);
    uint64_t until = now_ms() + PATIENT_MS;
    enum rdmux_status status = rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, as_a, 0, a);
    bool connected = status == RDMUX_OK;
    if (!connected) {
        CHECK_STATUS(status, RDMUX_IN_PROGRESS);
    }
    *b = NULL;
    while (!connected || *b == NULL) {
        assert_true(now_ms() < until);
        if (*b == NULL) {
            status = rdmux_accept(pair->listener, pair->cq_b, as_b, 1, b);
            if (status != RDMUX_OK) {
                CHECK_STATUS(status, RDMUX_TIMED_OUT);
            }
        } else {
            struct rdmux_wc none;
            assert_int_equal(rdmux_cq_poll(pair->cq_b, &none, 1), 0);
        }
        CHECK_OK(rdmux_fabric_progress(
            pair->fabric_a)); /* does nothing where there is a service thread */
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        struct rdmux_wc wc;
        if (!connected && rdmux_cq_poll(pair->cq_a, &wc, 1) == 1) {
            assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
            if (wc.status != RDMUX_OK) {
                struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
                CHECK_OK(rdmux_ep_info(*a, &info));
                fail_msg("%s: %s", rdmux_status_name((enum rdmux_status)wc.status), info.text);
            }
            assert_ptr_equal(wc.ep, *a);
            connected = true;
        }
    }
}

static inline void connect_more(struct pair *pair, const struct rdmux_ep_attr *attr,
                                struct rdmux_ep **a, struct rdmux_ep **b)
{
    connect_as(pair, attr, attr, a, b);
}

static inline void open_sides(struct pair *pair, const char *paths, uint32_t flags_a,
                              uint32_t flags_b)
{
    memset(pair, 0, sizeof(*pair));
    pair->fabric_a = open_fabric(paths, flags_a, NULL);
    pair->fabric_b = open_fabric(paths, flags_b, NULL);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
}

static inline void open_pair(struct pair *pair, const char *paths, const struct rdmux_ep_attr *attr)
{
    open_sides(pair, paths, 0, 0);
    connect_more(pair, attr, &pair->a, &pair->b);
}

/* Closes all that is left of the pair; a member that the test has already closed is NULL. Closing
 * reports objects that are still alive. */
static inline void close_pair(struct pair *pair)
{
    CHECK_OK(rdmux_ep_close(pair->a));
    CHECK_OK(rdmux_ep_close(pair->b));
    rdmux_listener_close(pair->listener);
    CHECK_OK(rdmux_cq_destroy(pair->cq_a));
    CHECK_OK(rdmux_cq_destroy(pair->cq_b));
    CHECK_OK(rdmux_fabric_close(pair->fabric_a));
    CHECK_OK(rdmux_fabric_close(pair->fabric_b));
}

/* Checks that a message from one endpoint to the other arrives intact. */
static inline void check_message(struct rdmux_ep *from, struct rdmux_cq *from_cq,
                                 struct rdmux_ep *to, struct rdmux_cq *to_cq, uint32_t number)
{
    uint32_t got = ~number;
    CHECK_OK(rdmux_recv(to, &got, sizeof(got), NULL, CONTEXT(number)));
    CHECK_OK(rdmux_send(from, &number, sizeof(number), NULL, CONTEXT(number), RDMUX_INLINE));
    bool sent = false;
    bool received = false;
    uint64_t until = now_ms() + PATIENT_MS;
    while (!sent || !received) {
        struct rdmux_wc wc;
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(from_cq->fabric));
        CHECK_OK(rdmux_fabric_progress(to_cq->fabric));
        if (!sent && rdmux_cq_poll(from_cq, &wc, 1) == 1) {
            assert_int_equal(wc.opcode, RDMUX_WC_SEND);
            assert_int_equal(wc.status, RDMUX_OK);
            assert_ptr_equal(wc.ep, from);
            assert_ptr_equal(wc.context, CONTEXT(number));
            sent = true;
        }
        if (!received && rdmux_cq_poll(to_cq, &wc, 1) == 1) {
            assert_int_equal(wc.opcode, RDMUX_WC_RECV);
            assert_int_equal(wc.status, RDMUX_OK);
            assert_ptr_equal(wc.ep, to);
            assert_int_equal(wc.length, sizeof(got));
            assert_int_equal(got, number);
            received = true;
        }
    }
}

static inline void check_messages(struct pair *pair)
{
    check_message(pair->a, pair->cq_a, pair->b, pair->cq_b, 17);
    check_message(pair->b, pair->cq_b, pair->a, pair->cq_a, 18);
}

/* Imports a region of b at a. */
static inline struct rdmux_remote *import_region(struct rdmux_ep *ep, struct rdmux_mr *mr)
{
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    CHECK_OK(rdmux_mr_export(mr, &token));
    CHECK_OK(rdmux_remote_import(ep, &token, PATIENT_MS, &remote));
    return remote;
}

static inline uint64_t slices_of(struct rdmux_ep *ep)
{
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    CHECK_OK(rdmux_ep_stats(ep, &stats));
    return stats.service_slices;
}

static inline struct rdmux_fabric_stats counts_of(struct rdmux_fabric *fabric)
{
    struct rdmux_fabric_stats stats = RDMUX_FABRIC_STATS_INIT;
    CHECK_OK(rdmux_fabric_stats(fabric, &stats));
    return stats;
}

/* -------------------------------------------------------------------------------- plain sockets */

/* Opens a TCP connection to a listener on 127.0.0.1, for a client that need not speak the
 * protocol. */
static inline int dial_raw(const char *address)
{
    const char *colon = strrchr(address, ':');
    assert_non_null(colon);
    struct sockaddr_in peer = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&peer, sizeof(peer)), 0);
    return fd;
}

/* Connects from this loopback address, so that hostile clients have another address than good
 * ones. */
static inline int dial_from(const char *address, const char *from)
{
    struct sockaddr_in here = { .sin_family = AF_INET };
    struct sockaddr_in peer = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    assert_int_equal(inet_pton(AF_INET, from, &here.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&peer, sizeof(peer)), 0);
    return fd;
}

static inline void send_bytes(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), size);
}

/* Tells whether the other end closes this socket within the time. Drops the bytes received
 * before. */
static inline bool is_dropped(int fd, int within_ms)
{
    uint64_t until = now_ms() + (uint64_t)within_ms;
    for (;;) {
        char bytes[1024];
        uint64_t now = now_ms();
        struct pollfd look = { .fd = fd, .events = POLLIN };
        if (poll(&look, 1, now < until ? (int)(until - now) : 0) <= 0) {
            return false;
        }
        if (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0) {
            return true;
        }
    }
}

#endif
