/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The cost of unauthenticated clients to a listener that authenticates, and whether they keep good
 * clients out. Limits are counted in bytes and connections. Only one time is measured: how long a
 * good connection takes beside ten thousand open ones. */
#include "api/accept/listener.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/object/offer.h"
#include "negotiation/tls.h"
#include "tests/unit/auth_scene.h"
#include "tests/unit/listener_scene.h"

#include "tests/unit/descriptors.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* A sanitizer makes the arithmetic ten times as slow, and finds no more errors in larger
 * numbers. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { HOSTILE = 1500, AT_A_TIME = 150, PENDING = 1024 };
#else
enum { HOSTILE = 10000, AT_A_TIME = 1000, PENDING = 4096 };
#endif

enum {
    STRANGER_MAX = 64 << 10, /* bytes that one pending connection may cost */
    SILENT_MAX = 2 << 10,    /* the same before its first TLS record is whole */
    ATTACKED_MS = 4000,      /* for a good connection during the attack */
    HOSTILE_EACH = 50,       /* for each good one */
};
/* AT_A_TIME: hostile connections open at once, if there are descriptors. PENDING: the listener's
 * limit, less if descriptors are few. */

/* ------------------------------------------------------------------------ the memory of OpenSSL */

static struct meter openssl_meter;

static void *count_malloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return meter_allocate(&openssl_meter, size);
}

static void count_free(void *memory, const char *file, int line)
{
    (void)file;
    (void)line;
    if (memory != NULL) {
        meter_release(&openssl_meter, memory);
    }
}

static void *count_realloc(void *memory, size_t size, const char *file, int line)
{
    if (memory == NULL) {
        return count_malloc(size, file, line);
    }
    size_t old;
    memcpy(&old, (char *)memory - METER_HEADER, sizeof(old));
    void *larger = count_malloc(size, file, line);
    if (larger != NULL) {
        memcpy(larger, memory, old < size ? old : size);
        count_free(memory, file, line);
    }
    return larger;
}

/* ---------------------------------------------------------------------------------------- scene */

struct flood {
    struct pair pair;
    struct logbook book;
    struct meter meter;
};

/* attr NULL: the defaults, but for the time that a connection has to introduce itself: a busy machine takes longer
 * than the five seconds of the default. */
static struct flood *open_flood(const struct rdmux_listen_attr *attr)
{
    struct rdmux_listen_attr patient = RDMUX_LISTEN_ATTR_INIT;
    patient.hello_timeout_ms = PATIENT_MS;
    char file[FILE_NAME_MAX];
    struct flood *flood = calloc(1, sizeof(*flood));
    assert_non_null(flood);
    pthread_mutex_init(&flood->book.lock, NULL);
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct rdmux_fabric_attr attr_a = attr_with("tcp", &auth, NULL, NULL);
    struct rdmux_fabric_attr attr_b = attr_with("tcp", &auth, &flood->book, &flood->meter);
    struct pair *pair = &flood->pair;
    CHECK_OK(rdmux_fabric_open(&attr_a, &pair->fabric_a));
    CHECK_OK(rdmux_fabric_open(&attr_b, &pair->fabric_b));
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, attr != NULL ? attr : &patient, pair->address);
    return flood;
}

static void close_flood(struct flood *flood)
{
    close_pair(&flood->pair);
    assert_int_equal(atomic_load(&flood->meter.pieces), 0);
    free(flood);
}

static size_t cost(struct flood *flood)
{
    return atomic_load(&flood->meter.bytes) + atomic_load(&openssl_meter.bytes);
}

/* Encodes HELLO of a client that claims to have a key, and the first part of a TLS record of 16
 * KiB. */
static size_t begin_tls(struct rdmux_fabric *fabric, uint8_t out[256])
{
    static const uint8_t record[] = { 0x16, 0x03, 0x01, 0x3f, 0xff, 0x01, 0x00, 0x3f, 0xfb };
    struct rdmux_hello hello;
    rdmux_hello_fill(fabric, &hello);
    rdmux_hello_encode(&hello, out);
    memcpy(out + RDMUX_HELLO_SIZE, record, sizeof(record));
    return RDMUX_HELLO_SIZE + sizeof(record);
}

/* ---------------------------------------------------------------------------------------- tests */

/* Returns the cost of each of many clients that have sent these bytes, once the listener has read
 * them. */
static size_t cost_of_strangers(struct flood *flood, const uint8_t *bytes, size_t size)
{
    enum { COUNT = 64 };
    int fds[COUNT];
    check_good_connection(
        &flood->pair); /* so that memory allocated once does not count for the strangers */
    size_t before = cost(flood);
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = dial_raw(flood->pair.address);
        send_bytes(fds[i], bytes, size);
    }
    check_good_connection(&flood->pair); /* after all of them */
    size_t each = (cost(flood) - before) / COUNT;
    for (size_t i = 0; i < COUNT; i++) {
        assert_false(is_dropped(fds[i], 0));
        close(fds[i]);
    }
    return each;
}

static void set_length_of_client_hello(uint8_t *opening, uint32_t length)
{
    enum { AT_LENGTH = RDMUX_HELLO_SIZE + 6 };
    for (int i = 0; i < 3; i++) {
        opening[AT_LENGTH + i] = (uint8_t)(length >> (16 - 8 * i));
    }
}

/* A record of 16 KiB that contains the beginning of the longest ClientHello. */
static void the_memory_for_a_stranger_is_bounded(void **state)
{
    enum { RECORD = 5 + 0x3fff };
    static uint8_t opening[RDMUX_HELLO_SIZE + RECORD];
    struct flood *flood = open_flood(NULL);
    (void)state;
    (void)begin_tls(flood->pair.fabric_a, opening);
    set_length_of_client_hello(opening, 16 << 10);

    size_t each = cost_of_strangers(flood, opening, sizeof(opening));

    print_message("# a stranger in the middle of TLS costs %zu bytes\n", each);
    assert_in_range(each, 0x3fff, STRANGER_MAX);
    close_flood(flood);
}

static void a_stranger_without_a_whole_record_gets_no_session(void **state)
{
    static uint8_t opening[RDMUX_HELLO_SIZE + 5 + 0x3fff];
    struct flood *flood = open_flood(NULL);
    (void)state;
    (void)begin_tls(flood->pair.fabric_a, opening);

    for (size_t missing = 1; missing < sizeof(opening) - RDMUX_HELLO_SIZE; missing += 2000) {
        size_t each = cost_of_strangers(flood, opening, sizeof(opening) - missing);
        assert_in_range(each, 1, SILENT_MAX);
    }

    close_flood(flood);
}

/* OpenSSL would allocate memory for it at once. Also in records of one byte. */
static void a_client_hello_that_claims_to_be_long_is_refused(void **state)
{
    static const uint32_t lengths[] = { (16 << 10) + 1, 131396, 0xffffff };
    struct flood *flood = open_flood(NULL);
    uint8_t opening[256];
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(lengths); i++) {
        char line[64];
        (void)begin_tls(flood->pair.fabric_a, opening);
        set_length_of_client_hello(opening, lengths[i]);
        snprintf(line, sizeof(line), "its ClientHello is to have %u bytes", lengths[i]);
        for (size_t at_a_time = 1; at_a_time <= 4; at_a_time += 3) {
            uint8_t records[64];
            size_t size = 0;
            for (size_t at = 0; at < 4; at += at_a_time) {
                const uint8_t header[] = { 0x16, 0x03, 0x01, 0x00, (uint8_t)at_a_time };
                memcpy(records + size, header, sizeof(header));
                memcpy(records + size + sizeof(header), opening + RDMUX_HELLO_SIZE + 5 + at,
                       at_a_time);
                size += sizeof(header) + at_a_time;
            }
            logbook_clear(&flood->book);
            int fd = dial_raw(flood->pair.address);
            send_bytes(fd, opening, RDMUX_HELLO_SIZE);
            send_bytes(fd, records, size);
            wait_for_line(&flood->book, line);
            assert_true(is_dropped(fd, PATIENT_MS));
            close(fd);
        }
    }
    close_flood(flood);
}

/* A ClientHello of 16,000 bytes, each in a record of its own: TLS would allow 96,000 bytes. */
static void a_stranger_that_sends_too_many_bytes_is_dropped(void **state)
{
    enum { MESSAGE = 16000, RECORD = 6 };
    static uint8_t records[MESSAGE * RECORD];
    static const uint8_t beginning[] = { 0x01, 0x00, MESSAGE >> 8, MESSAGE & 0xff };
    struct flood *flood = open_flood(NULL);
    uint8_t opening[256];
    (void)state;
    (void)begin_tls(flood->pair.fabric_a, opening);
    for (size_t i = 0; i < MESSAGE; i++) {
        const uint8_t record[RECORD] = { 0x16, 0x03, 0x01,
                                         0x00, 0x01, i < sizeof(beginning) ? beginning[i] : 0x03 };
        memcpy(records + i * RECORD, record, RECORD);
    }
    int fd = dial_raw(flood->pair.address);

    send_bytes(fd, opening, RDMUX_HELLO_SIZE);
    (void)send(fd, records, sizeof(records), MSG_NOSIGNAL);

    wait_for_line(&flood->book, "it sent 32768 bytes without authenticating");
    assert_true(is_dropped(fd, PATIENT_MS));
    close(fd);
    close_flood(flood);
}

static void a_connection_that_stalls_in_tls_is_dropped_in_time(void **state)
{
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.hello_timeout_ms = 200;
    struct flood *flood = open_flood(&attr);
    uint8_t opening[256];
    (void)state;
    size_t size = begin_tls(flood->pair.fabric_a, opening);
    int fd = dial_raw(flood->pair.address);

    send_bytes(fd, opening, size);

    wait_for_line(&flood->book, "has not introduced itself in time");
    assert_true(is_dropped(fd, PATIENT_MS));
    close(fd);
    close_flood(flood);
}

static void one_address_does_not_use_up_the_room_of_others(void **state)
{
    enum { LIMIT = 8, COUNT = 50 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_per_address = LIMIT;
    attr.hello_timeout_ms = PATIENT_MS;
    struct flood *flood = open_flood(&attr);
    int fds[COUNT];
    (void)state;
    int silent = dial_from(flood->pair.address, "127.0.0.3");

    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = dial_from(flood->pair.address, "127.0.0.2");
    }

    uint64_t until = now_ms() + PATIENT_MS;
    static const char line[] = "too many connections of its address";
    while (logbook_count(&flood->book, line) < COUNT - LIMIT && now_ms() < until) {
        pause_ms(1);
    }
    check_good_connection(&flood->pair); /* after all of them: the listener has read them */
    assert_int_equal(logbook_count(&flood->book, line), COUNT - LIMIT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(is_dropped(fds[i], 0), i < COUNT - LIMIT); /* the oldest ones went */
        close(fds[i]);
    }
    assert_false(is_dropped(silent, 0));
    close(silent);
    close_flood(flood);
}

/* The bytes of hostile clients, which take turns. */
enum {
    SILENT,
    NO_RDMUX,
    HELLO_ALONE,
    BEGINNING_OF_TLS, /* HELLO, and the first bytes of a long record */
    CLIENT_HELLO, /* HELLO and a whole ClientHello, which is answered at the price of a key exchange */
    HOSTILE_KINDS,
};

enum { SPEECH_MAX = 2048 };

struct speech {
    size_t size;
    uint8_t bytes[SPEECH_MAX];
};

/* Encodes the first bytes of a connector with a key, before it has received any. */
static void make_client_hello(struct rdmux_fabric *fabric, struct speech *speech)
{
    int sockets[2];
    struct rdmux_tls *tls = NULL;
    size_t done = 0;
    uint8_t hello[256];
    (void)begin_tls(fabric, hello);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    CHECK_OK(rdmux_tls_create(fabric->auth, RDMUX_ROLE_CONNECT, sockets[0], NULL, &tls));
    CHECK_STATUS(rdmux_tls_send(tls, hello, RDMUX_HELLO_SIZE, &done), RDMUX_AGAIN);
    ssize_t got = recv(sockets[1], speech->bytes, sizeof(speech->bytes), 0);
    assert_true(got > RDMUX_HELLO_SIZE && (size_t)got < sizeof(speech->bytes));
    speech->size = (size_t)got;
    rdmux_tls_destroy(tls);
    close(sockets[0]);
    close(sockets[1]);
}

static void make_speeches(struct rdmux_fabric *fabric, struct speech out[HOSTILE_KINDS])
{
    static const char other[] = "GET / HTTP/1.0\r\n\r\n";
    memset(out, 0, HOSTILE_KINDS * sizeof(*out));
    out[NO_RDMUX].size = sizeof(other) - 1;
    memcpy(out[NO_RDMUX].bytes, other, sizeof(other) - 1);
    out[BEGINNING_OF_TLS].size = begin_tls(fabric, out[BEGINNING_OF_TLS].bytes);
    out[HELLO_ALONE].size = RDMUX_HELLO_SIZE;
    memcpy(out[HELLO_ALONE].bytes, out[BEGINNING_OF_TLS].bytes, RDMUX_HELLO_SIZE);
    make_client_hello(fabric, &out[CLIENT_HELLO]);
}

static int attack(const char *address, const struct speech *speech)
{
    int fd = dial_from(address, "127.0.0.2");
    if (speech->size != 0) {
        (void)send(fd, speech->bytes, speech->size, MSG_NOSIGNAL);
    }
    return fd;
}

struct attacker {
    pthread_t thread;
    const char *address;
    int listening; /* the socket */
    struct speech speeches[HOSTILE_KINDS];
    size_t at_a_time;
    _Atomic size_t made;
    _Atomic bool stop;
};

/* Tells whether the kernel's backlog is more than half full. If it is full, the kernel drops a
 * first packet, which is sent again after one, two and four seconds: that is the kernel's time, and
 * depends on the machine's load. */
static bool is_crowded(int listening)
{
    struct tcp_info info = {
        .tcpi_unacked = 0
    }; /* of a listening socket: the backlog's length, tcpi_sacked: its limit */
    socklen_t size = sizeof(info);
    return getsockopt(listening, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_unacked > info.tcpi_sacked / 2;
}

/* Opens HOSTILE connections, at_a_time of which are open at once, and then more of them until it is
 * stopped. */
static void *keep_attacking(void *user)
{
    struct attacker *attacker = user;
    size_t at_a_time = attacker->at_a_time > 0 ? attacker->at_a_time : 1;
    static int fds[AT_A_TIME];
    size_t made = 0;
    for (; made < HOSTILE || !atomic_load(&attacker->stop); made++) {
        while (is_crowded(attacker->listening)) {
            pause_ms(1);
        }
        if (made >= at_a_time) {
            close(fds[made % at_a_time]);
        }
        fds[made % at_a_time] = attack(attacker->address, &attacker->speeches[made % HOSTILE_KINDS]);
        atomic_store(&attacker->made, made + 1);
    }
    for (size_t i = 0; i < at_a_time; i++) {
        close(fds[i]);
    }
    return NULL;
}

static void good_peers_connect_while_ten_thousand_attack(void **state)
{
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    struct rdmux_ep_attr unhurried = RDMUX_EP_ATTR_INIT;
    unhurried.path_timeout_ms = PATIENT_MS; /* the time it takes is judged below, fairly */
    unhurried.setup_timeout_ms = PATIENT_MS;
    attr.backlog = 65535;               /* or the limit of the system */
    attr.hello_timeout_ms = PATIENT_MS; /* the same for the handshake of the good peer */
    struct flood *flood = open_flood(&attr);
    struct attacker attacker = { .address = flood->pair.address,
                                 .listening = flood->pair.listener->socket };
    size_t good = 0;
    uint64_t longest = 0;
    (void)state;
    make_speeches(flood->pair.fabric_a, attacker.speeches);
    size_t third = raise_descriptors() / 3; /* each is two of this process */
    attacker.at_a_time = third < AT_A_TIME ? third : AT_A_TIME;
    size_t before = cost(flood);
    size_t peak = 0;
    assert_int_equal(pthread_create(&attacker.thread, NULL, keep_attacking, &attacker), 0);

    while (atomic_load(&attacker.made) < HOSTILE || good < 5) {
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        uint64_t begin = now_ms();
        struct span span = span_begin();
        connect_more(&flood->pair, &unhurried, &a, &b);
        uint64_t took = now_ms() - begin;
        check_span("a good connection while others come and go", span, 0,
                   (uint64_t)4 * ATTACKED_MS * SLACK);
        longest = took > longest ? took : longest;
        size_t now = cost(flood) - before;
        peak = now > peak ? now : peak;
        CHECK_OK(rdmux_ep_close(a));
        CHECK_OK(rdmux_ep_close(b));
        good++;
        while (atomic_load(&attacker.made) < good * HOSTILE_EACH &&
               atomic_load(&attacker.made) < HOSTILE) {
            pause_ms(1); /* memory that good clients leave for a while is not measured */
        }
    }

    atomic_store(&attacker.stop, true);
    pthread_join(attacker.thread, NULL);
    print_message(
        "# %zu good connections among %zu hostile ones; the slowest took %llu ms; at most "
        "%zu KiB\n",
        good, atomic_load(&attacker.made), (unsigned long long)longest, peak >> 10);
    assert_true(atomic_load(&attacker.made) >= HOSTILE);
    assert_true(peak <= (size_t)1024 * STRANGER_MAX); /* max_per_address of them */
    close_flood(flood);
}

/* ------------------------------------------------------------------------- ten thousand at once */

enum {
    WITHIN_MS = 1000, /* a good one */
    RESERVE = 256,    /* descriptors of a process for all else */
    HOSTS = 50,       /* addresses of the hostile clients */
    HORDES_MAX = 64,  /* processes: one may be allowed too few descriptors for all */
    GOOD = 10,
};

/* Sent to a hostile process once there is a listener. */
struct target {
    struct sockaddr_in address;
    struct speech speeches[HOSTILE_KINDS];
};

struct horde {
    pid_t process;
    int orders; /* a target; its end is that of the horde */
    int report; /* a byte: all are open */
};

/* Runs in a process of its own, where no assertion may fail. */
static bool open_hostile(const struct target *target, size_t number)
{
    struct sockaddr_in here = { .sin_family = AF_INET };
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 256 + (uint32_t)(number % HOSTS));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) != 0 ||
        connect(fd, (const struct sockaddr *)&target->address, sizeof(target->address)) != 0) {
        return false;
    }
    const struct speech *speech = &target->speeches[number / HOSTS % HOSTILE_KINDS];
    return speech->size == 0 ||
           send(fd, speech->bytes, speech->size, MSG_NOSIGNAL) == (ssize_t)speech->size ||
           errno == EPIPE || errno == ECONNRESET;
}

/* Reads all bytes: a pipe may give them in parts. */
static bool read_all(int fd, void *out, size_t size)
{
    for (size_t have = 0; have < size;) {
        ssize_t got = read(fd, (uint8_t *)out + have, size - have);
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
    }
    return true;
}

static void be_horde(int orders, int report, size_t first, size_t count)
{
    struct target target;
    char none;
    if (!read_all(orders, &target, sizeof(target))) {
        _exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        if (!open_hostile(&target, first + i)) {
            _exit(1);
        }
    }
    if (write(report, "!", 1) != 1 || read(orders, &none, 1) != 0) {
        _exit(1);
    }
    _exit(0);
}

/* Forks the processes before there is a fabric, whose descriptors they would share. */
static size_t raise_hordes(struct horde hordes[HORDES_MAX], size_t allowed)
{
    size_t each = allowed - RESERVE < HOSTILE ? allowed - RESERVE : HOSTILE;
    size_t count = (HOSTILE + each - 1) / each;
    assert_true(count <= HORDES_MAX);
    for (size_t i = 0; i < count; i++) {
        int orders[2];
        int report[2];
        assert_int_equal(pipe2(orders, O_CLOEXEC), 0);
        assert_int_equal(pipe2(report, O_CLOEXEC), 0);
        pid_t process = fork();
        assert_true(process >= 0);
        if (process == 0) {
            for (size_t j = 0; j < i; j++) { /* so that the others' end does not wait for ours */
                close(hordes[j].orders);
            }
            close(orders[1]);
            close(report[0]);
            be_horde(orders[0], report[1], i * each, i + 1 < count ? each : HOSTILE - i * each);
        }
        close(orders[0]);
        close(report[1]);
        hordes[i] = (struct horde){ .process = process, .orders = orders[1], .report = report[0] };
    }
    return count;
}

static void let_loose(struct horde *hordes, size_t count, struct flood *flood)
{
    struct target target;
    memset(&target, 0, sizeof(target));
    make_speeches(flood->pair.fabric_a, target.speeches);
    target.address.sin_family = AF_INET;
    target.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    target.address.sin_port = htons(
        (uint16_t)strtoul(strrchr(flood->pair.address, ':') + 1, NULL, 10));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(write(hordes[i].orders, &target, sizeof(target)), sizeof(target));
    }
    for (size_t i = 0; i < count; i++) {
        char all = 0;
        assert_int_equal(read(hordes[i].report, &all, 1), 1); /* 0: it could not open them all */
    }
}

static void end_hordes(struct horde *hordes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int status = -1;
        close(hordes[i].orders);
        close(hordes[i].report);
        assert_int_equal(waitpid(hordes[i].process, &status, 0), hordes[i].process);
        assert_int_equal(status, 0);
    }
}

static void good_peers_connect_in_a_second_beside_ten_thousand_hostile_ones(void **state)
{
    struct horde hordes[HORDES_MAX];
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    size_t allowed = raise_descriptors();
    uint64_t longest = 0;
    (void)state;
    attr.max_pending = (uint32_t)(allowed - RESERVE < PENDING ? allowed - RESERVE : PENDING);
    attr.hello_timeout_ms = 10 * PATIENT_MS; /* so that none times out */
    size_t count = raise_hordes(hordes, allowed);
    struct flood *flood = open_flood(&attr);
    size_t before = cost(flood);
    size_t descriptors = open_descriptors();

    let_loose(hordes, count, flood);

    for (size_t i = 0; i < GOOD; i++) {
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        uint64_t begin = now_ms();
        struct span span = span_begin();
        connect_more(&flood->pair, NULL, &a, &b);
        uint64_t took = now_ms() - begin;
        /* Alone it takes milliseconds; one that is not preferred waits for minutes, as the
         * others do. */
        check_span("a good connection beside ten thousand", span, 0,
                   (uint64_t)8 * WITHIN_MS * SLACK);
        longest = took > longest ? took : longest;
        CHECK_OK(rdmux_ep_close(a));
        CHECK_OK(rdmux_ep_close(b));
    }
    size_t held = open_descriptors() - descriptors;
    size_t each = held == 0 ? 0 : (cost(flood) - before) / held;
    print_message(
        "# %d hostile connections open in %zu processes, %zu held; the slowest of %d good "
        "ones took %llu ms; a hostile one costs %zu bytes\n",
        (int)HOSTILE, count, held, (int)GOOD, (unsigned long long)longest, each);
    assert_true(held <= attr.max_pending + RESERVE);
    assert_true(held >= attr.max_pending / 2); /* else there was no flood */
    assert_true(each <= STRANGER_MAX);
    end_hordes(hordes, count);
    close_flood(flood);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_memory_for_a_stranger_is_bounded),
        cmocka_unit_test(a_stranger_without_a_whole_record_gets_no_session),
        cmocka_unit_test(a_client_hello_that_claims_to_be_long_is_refused),
        cmocka_unit_test(a_stranger_that_sends_too_many_bytes_is_dropped),
        cmocka_unit_test(a_connection_that_stalls_in_tls_is_dropped_in_time),
        cmocka_unit_test(one_address_does_not_use_up_the_room_of_others),
        cmocka_unit_test(good_peers_connect_while_ten_thousand_attack),
        cmocka_unit_test(good_peers_connect_in_a_second_beside_ten_thousand_hostile_ones),
    };
    if (CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) != 1) {
        return 1; /* something has allocated before us */
    }
    return cmocka_run_group_tests_name("auth_flood", tests, make_auth_folder, remove_auth_folder);
}
