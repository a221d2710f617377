/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Many threads: each with its own cq, or one cq in turns; regions registered and deregistered under
 * traffic. Also runs under TSan. */
#include "tests/unit/api_pair.h"

#include <pthread.h>

enum {
    WORKERS = 4,
    RUN_MS = 700,
    MESSAGE_MAX = 6000,
};

static const char *const all_paths[] = { "tcp", "shm" };

/* The first failure of any thread: a cmocka assertion works only in the main thread. */
struct report {
    _Atomic bool failed;
    pthread_mutex_t lock;
    char text[RDMUX_ERROR_MAX];
};

static struct report report = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void report_failure(int line, const char *what, enum rdmux_status status)
{
    pthread_mutex_lock(&report.lock);
    if (!atomic_load(&report.failed)) {
        (void)snprintf(report.text, sizeof(report.text), "line %d: %s: %s: %.1500s", line, what,
                       rdmux_status_name(status), rdmux_last_error());
        atomic_store(&report.failed, true);
    }
    pthread_mutex_unlock(&report.lock);
}

/* Ends the thread on failure. */
#define TRY(call)                                        \
    do {                                                 \
        enum rdmux_status try_status = (call);           \
        if (try_status != RDMUX_OK) {                    \
            report_failure(__LINE__, #call, try_status); \
            return NULL;                                 \
        }                                                \
    } while (0)
#define TRY_THAT(condition)                                 \
    do {                                                    \
        if (!(condition)) {                                 \
            report_failure(__LINE__, #condition, RDMUX_OK); \
            return NULL;                                    \
        }                                                   \
    } while (0)

static void check_report(void)
{
    if (atomic_load(&report.failed)) {
        fail_msg("%s", report.text);
    }
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    assert_int_equal(pthread_create(thread, NULL, run, argument), 0);
}

static void join(pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ------------------------------------------------------------------------------------ a cq each */

struct worker {
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener;
    const char *address;
    uint32_t number;
    uint64_t rounds;
    _Atomic uint32_t *ended; /* servers: connections */
};

/* Pauses now and then, for less or more than it takes the service thread to come. */
static void be_away(uint64_t round)
{
    if (round % 64 == 0) {
        pause_ms((unsigned)(round / 64 % 3) * 6);
    }
}

static enum rdmux_status take(struct rdmux_cq *cq, struct rdmux_wc *wc, uint64_t round)
{
    size_t count = 0;
    if (round % 2 == 0) { /* every other round spins */
        uint64_t until = now_ms() + PATIENT_MS;
        while (count == 0 && now_ms() < until) {
            count = rdmux_cq_poll(cq, wc, 1);
        }
        return count == 1 ? RDMUX_OK : RDMUX_TIMED_OUT;
    }
    return rdmux_cq_wait(cq, wc, 1, PATIENT_MS, &count);
}

/* One of a server's connections, with the buffers of its receives. */
struct session {
    unsigned char buffers[2][MESSAGE_MAX];
};

static enum rdmux_status open_session(struct rdmux_ep *ep)
{
    struct session *session = malloc(sizeof(*session));
    enum rdmux_status status = session == NULL ? RDMUX_NO_MEMORY : rdmux_ep_set_user(ep, session);
    for (int i = 0; i < 2 && status == RDMUX_OK; i++) {
        status = rdmux_recv(ep, session->buffers[i], MESSAGE_MAX, NULL, session->buffers[i]);
    }
    return status;
}

static enum rdmux_status close_session(struct rdmux_ep *ep)
{
    free(rdmux_ep_user(ep));
    return rdmux_ep_close(ep);
}

/* Sends the message back. The client waits for its answer before its next message but one reuses
 * this buffer. */
static enum rdmux_status answer(const struct rdmux_wc *wc)
{
    enum rdmux_status status = rdmux_send(wc->ep, wc->context, wc->length, NULL, NULL,
                                          RDMUX_UNSIGNALED | RDMUX_PLACED);
    return status != RDMUX_OK ? status
                              : rdmux_recv(wc->ep, wc->context, MESSAGE_MAX, NULL, wc->context);
}

/* Accepts and answers all clients, until all clients of all servers have ended. */
static void *serve(void *argument)
{
    struct worker *worker = argument;
    struct rdmux_cq *cq = NULL;
    TRY(rdmux_cq_create(worker->fabric, NULL, &cq));
    while (atomic_load(worker->ended) < WORKERS && !atomic_load(&report.failed)) {
        struct rdmux_ep *ep = NULL;
        struct rdmux_wc wc;
        size_t count = 0;
        if (rdmux_accept(worker->listener, cq, NULL, 0, &ep) == RDMUX_OK) {
            TRY(open_session(ep));
        }
        enum rdmux_status status = rdmux_cq_wait(cq, &wc, 1, 5, &count);
        if (status == RDMUX_TIMED_OUT) {
            continue;
        }
        TRY(status);
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            TRY_THAT(wc.status == RDMUX_OK);
            TRY(close_session(wc.ep));
            atomic_fetch_add(worker->ended, 1);
        } else if (wc.status != RDMUX_FLUSHED) {
            TRY_THAT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK);
            TRY(answer(&wc));
            be_away(worker->rounds++ + UINT64_C(16) * worker->number);
        }
    }
    TRY(rdmux_cq_destroy(cq));
    return NULL;
}

static void fill(unsigned char *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (unsigned char)(seed * 31 + i);
    }
}

static void *ask(void *argument)
{
    struct worker *worker = argument;
    struct rdmux_cq *cq = NULL;
    struct rdmux_ep *ep = NULL;
    unsigned char sent[MESSAGE_MAX];
    unsigned char got[MESSAGE_MAX];
    TRY(rdmux_cq_create(worker->fabric, NULL, &cq));
    TRY(rdmux_connect(worker->fabric, cq, worker->address, NULL, PATIENT_MS, &ep));
    uint64_t until = now_ms() + RUN_MS;
    while ((now_ms() < until || worker->rounds == 0) && !atomic_load(&report.failed)) {
        struct rdmux_wc wc;
        size_t length = (size_t)(worker->rounds * 977 % MESSAGE_MAX) + 1;
        fill(sent, length, worker->rounds + worker->number);
        memset(got, 0, length);
        TRY(rdmux_recv(ep, got, sizeof(got), NULL, CONTEXT(worker->rounds)));
        TRY(rdmux_send(ep, sent, length, NULL, NULL, RDMUX_UNSIGNALED));
        TRY(take(cq, &wc, worker->rounds));
        TRY_THAT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && wc.length == length);
        TRY_THAT(wc.context == CONTEXT(worker->rounds) && wc.ep == ep);
        TRY_THAT(memcmp(sent, got, length) == 0);
        be_away(worker->rounds);
        worker->rounds++;
    }
    TRY(rdmux_ep_shutdown(ep, PATIENT_MS));
    TRY(rdmux_ep_close(ep));
    TRY(rdmux_cq_destroy(cq));
    return NULL;
}

static void threads_with_a_cq_each_connect_through_one_listener(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct rdmux_fabric *client = open_fabric(all_paths[i], 0, NULL);
        struct rdmux_fabric *server = open_fabric(all_paths[i], 0, NULL);
        char address[RDMUX_ADDRESS_MAX];
        struct rdmux_listener *listener = listen_here(server, NULL, address);
        struct worker workers[2 * WORKERS];
        _Atomic uint32_t ended = 0;
        pthread_t threads[2 * WORKERS];
        for (uint32_t k = 0; k < 2 * WORKERS; k++) {
            bool serves = k < WORKERS;
            workers[k] = (struct worker){
                .fabric = serves ? server : client,
                .listener = listener,
                .address = address,
                .number = k,
                .ended = &ended,
            };
            start(&threads[k], serves ? serve : ask, &workers[k]);
        }

        for (uint32_t k = 0; k < 2 * WORKERS; k++) {
            join(threads[k]);
        }

        check_report();
        for (uint32_t k = WORKERS; k < 2 * WORKERS; k++) {
            assert_true(workers[k].rounds > 0);
        }
        rdmux_listener_close(listener);
        CHECK_OK(rdmux_fabric_close(client));
        CHECK_OK(rdmux_fabric_close(server));
    }
}

/* ------------------------------------------------------------------------------ one cq in turns */

enum { TURNS_MIN = 50 };

struct turns {
    struct pair *pair;
    pthread_mutex_t lock; /* the program's: orders the calls on cq_a */
    _Atomic uint64_t posted;
    uint64_t done;
    uint64_t until;
};

/* The time is over, and the threads had the processor for long enough. */
static bool turns_are_over(struct turns *turns)
{
    return (now_ms() >= turns->until && atomic_load(&turns->posted) > TURNS_MIN) ||
           atomic_load(&report.failed);
}

static void *take_a_turn(void *argument)
{
    struct turns *turns = argument;
    while (!turns_are_over(turns)) {
        struct rdmux_wc wc[8];
        pthread_mutex_lock(&turns->lock);
        if (turns->posted - turns->done < 16) {
            uint64_t number = turns->posted;
            enum rdmux_status status = rdmux_send(turns->pair->a, &number, sizeof(number), NULL,
                                                  CONTEXT(number), RDMUX_INLINE);
            turns->posted += status == RDMUX_OK;
            if (status != RDMUX_OK && status != RDMUX_AGAIN) {
                report_failure(__LINE__, "rdmux_send", status);
            }
        }
        size_t count = rdmux_cq_poll(turns->pair->cq_a, wc, 8);
        for (size_t i = 0; i < count; i++) {
            if (wc[i].opcode != RDMUX_WC_SEND || wc[i].status != RDMUX_OK ||
                wc[i].context != CONTEXT(turns->done)) {
                report_failure(__LINE__, "another completion than the next",
                               (enum rdmux_status)wc[i].status);
            }
            turns->done++;
        }
        pthread_mutex_unlock(&turns->lock);
    }
    return NULL;
}

static void a_cq_may_pass_from_thread_to_thread(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        enum { DEPTH = 32 };
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        struct turns turns = { .pair = &pair,
                               .lock = PTHREAD_MUTEX_INITIALIZER,
                               .until = now_ms() + RUN_MS };
        pthread_t threads[WORKERS];
        uint64_t buffers[DEPTH];
        uint64_t received = 0;
        for (size_t k = 0; k < DEPTH; k++) {
            CHECK_OK(rdmux_recv(pair.b, &buffers[k], sizeof(buffers[k]), NULL, &buffers[k]));
        }
        for (size_t k = 0; k < WORKERS; k++) {
            start(&threads[k], take_a_turn, &turns);
        }
        for (bool more = true; more;) {
            struct rdmux_wc wc;
            size_t count = 0;
            enum rdmux_status status = rdmux_cq_wait(pair.cq_b, &wc, 1, 300, &count);
            if (status == RDMUX_OK) {
                uint64_t *buffer = wc.context;
                assert_int_equal(wc.status, RDMUX_OK);
                assert_int_equal(*buffer, received);
                received++;
                CHECK_OK(rdmux_recv(pair.b, buffer, sizeof(*buffer), NULL, buffer));
            }
            more = status == RDMUX_OK || !turns_are_over(&turns);
        }

        for (size_t k = 0; k < WORKERS; k++) {
            join(threads[k]);
        }

        check_report();
        while (turns.done < turns.posted) {
            struct rdmux_wc wc = expect_entry(pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(turns.done));
            turns.done++;
        }
        while (received < turns.posted) {
            expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
            received++;
        }
        close_pair(&pair);
    }
}

/* ------------------------------------------------------------------------ regions under traffic */

enum { REGION = 64 * 1024 };

/* A region of b that is registered and deregistered; a imports the current token. */
struct exchange {
    struct rdmux_fabric *fabric;
    pthread_mutex_t lock;
    struct rdmux_token token;
    uint64_t generation; /* of the token; odd: it is being taken back */
    const _Atomic bool *is_over;
    _Atomic uint64_t cycles;
    bool allocate;
};

/* Registers, exports, revokes, checks that no write arrives any more, deregisters. */
static void *come_and_go(void *argument)
{
    struct exchange *exchange = argument;
    static unsigned char own[2][REGION];
    unsigned char *mine = own[exchange->allocate];
    while (!atomic_load(exchange->is_over) && !atomic_load(&report.failed)) {
        struct rdmux_mr *mr = NULL;
        struct rdmux_token token;
        uint32_t access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                          RDMUX_ACCESS_NO_MAP;
        if (exchange->allocate) {
            TRY(rdmux_mr_alloc(exchange->fabric, REGION, access, &mr));
        } else {
            TRY(rdmux_mr_register(exchange->fabric, mine, REGION, access, &mr));
        }
        unsigned char *bytes = rdmux_mr_addr(mr);
        for (int twice = 0; twice < 2; twice++) {
            TRY(rdmux_mr_export(mr, &token));
            pthread_mutex_lock(&exchange->lock);
            exchange->token = token;
            exchange->generation++;
            pthread_mutex_unlock(&exchange->lock);
            pause_ms((unsigned)(exchange->cycles % 4));
            pthread_mutex_lock(&exchange->lock);
            exchange->generation++;
            pthread_mutex_unlock(&exchange->lock);
            TRY(rdmux_mr_revoke(mr));
            memset(bytes, 0xee, REGION);
            for (int look = 0; look < 3; look++) {
                for (size_t i = 0; i < REGION; i++) {
                    TRY_THAT(bytes[i] == 0xee);
                }
            }
        }
        rdmux_mr_deregister(mr);
        exchange->cycles++;
    }
    return NULL;
}

static bool came_and_went(struct exchange exchanges[2])
{
    return atomic_load(&exchanges[0].cycles) > 2 && atomic_load(&exchanges[1].cycles) > 2;
}

static void regions_come_and_go_while_others_write_to_them(void **state)
{
    enum { WRITES_MIN = 10 };
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        struct exchange exchanges[2];
        pthread_t threads[2];
        static unsigned char source[REGION];
        memset(source, 0x11, sizeof(source));
        _Atomic bool is_over = false;
        uint64_t until = now_ms() + UINT64_C(2) * RUN_MS;
        for (int k = 0; k < 2; k++) {
            exchanges[k] = (struct exchange){ .fabric = pair.fabric_b,
                                              .lock = PTHREAD_MUTEX_INITIALIZER,
                                              .is_over = &is_over,
                                              .allocate = k == 1 };
            start(&threads[k], come_and_go, &exchanges[k]);
        }
        uint64_t written = 0;
        uint64_t refused = 0;
        /* Goes on behind `until` where the threads had the processor for too short a time. */
        for (uint64_t round = 0;
             (now_ms() < until || written <= WRITES_MIN || !came_and_went(exchanges)) &&
             !atomic_load(&report.failed);
             round++) {
            struct exchange *exchange = &exchanges[round % 2];
            struct rdmux_remote *remote = NULL;
            pthread_mutex_lock(&exchange->lock);
            bool there = exchange->generation % 2 == 1;
            struct rdmux_token token = exchange->token;
            pthread_mutex_unlock(&exchange->lock);
            if (!there) {
                continue;
            }
            enum rdmux_status status = rdmux_remote_import(pair.a, &token, PATIENT_MS, &remote);
            for (int writes = 0; writes < 20 && status == RDMUX_OK; writes++) {
                status = rdmux_write(pair.a, source, REGION, NULL, remote, 0, NULL, RDMUX_PLACED);
                if (status == RDMUX_OK) {
                    expect_entry(pair.cq_a, RDMUX_WC_WRITE,
                                 RDMUX_OK); /* writes begun before the revocation succeed */
                    written++;
                }
            }
            assert_true(status == RDMUX_OK || status == RDMUX_DENIED);
            refused += status == RDMUX_DENIED;
            rdmux_remote_close(remote);
        }

        atomic_store(&is_over, true);
        join(threads[0]);
        join(threads[1]);

        check_report();
        (void)refused;
        check_messages(&pair);
        close_pair(&pair);
    }
}

/* -------------------------------------------------------------------- accept thread and workers */

struct desk {
    struct rdmux_listener *listener;
    struct rdmux_fabric *fabric;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t ids[WORKERS];
    size_t count;
    size_t taken;
};

static void *work_for_desk(void *argument)
{
    struct desk *desk = argument;
    struct rdmux_cq *cq = NULL;
    struct rdmux_ep *ep = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    pthread_mutex_lock(&desk->lock);
    while (desk->taken == desk->count) {
        pthread_cond_wait(&desk->changed, &desk->lock);
    }
    attr.peer = desk->ids[desk->taken++];
    pthread_mutex_unlock(&desk->lock);
    TRY(rdmux_cq_create(desk->fabric, NULL, &cq));
    TRY(rdmux_accept(desk->listener, cq, &attr, PATIENT_MS, &ep));
    TRY(rdmux_send(ep, "welcome", 8, NULL, NULL, RDMUX_UNSIGNALED | RDMUX_INLINE));
    TRY(rdmux_ep_shutdown(ep, PATIENT_MS));
    TRY(rdmux_ep_close(ep));
    TRY(rdmux_cq_destroy(cq));
    return NULL;
}

static void *look_for_desk(void *argument)
{
    struct desk *desk = argument;
    for (size_t i = 0; i < WORKERS; i++) {
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        TRY(rdmux_listener_next(desk->listener, PATIENT_MS, &peer));
        pthread_mutex_lock(&desk->lock);
        desk->ids[desk->count++] = peer.id;
        pthread_cond_signal(&desk->changed);
        pthread_mutex_unlock(&desk->lock);
    }
    return NULL;
}

static void one_thread_may_inspect_connections_that_others_accept(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_sides(&pair, all_paths[i], 0, 0);
        struct desk desk = {
            .listener = pair.listener,
            .fabric = pair.fabric_b,
            .lock = PTHREAD_MUTEX_INITIALIZER,
            .changed = PTHREAD_COND_INITIALIZER,
        };
        pthread_t looker;
        pthread_t threads[WORKERS];
        struct rdmux_ep *eps[WORKERS];
        char texts[WORKERS][8];
        start(&looker, look_for_desk, &desk);
        for (size_t k = 0; k < WORKERS; k++) {
            start(&threads[k], work_for_desk, &desk);
            CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &eps[k]),
                         RDMUX_IN_PROGRESS);
            CHECK_OK(rdmux_recv(eps[k], texts[k], sizeof(texts[k]), NULL, CONTEXT(k + 1)));
        }
        size_t greeted = 0;
        for (size_t ended = 0; ended < WORKERS;) {
            struct rdmux_wc wc = next_entry(pair.cq_a);
            assert_int_equal(wc.status, RDMUX_OK);
            greeted += wc.opcode == RDMUX_WC_RECV;
            ended += wc.opcode == RDMUX_WC_DISCONNECTED;
        }

        join(looker);
        for (size_t k = 0; k < WORKERS; k++) {
            join(threads[k]);
            assert_string_equal(texts[k], "welcome");
            CHECK_OK(rdmux_ep_close(eps[k]));
        }

        check_report();
        assert_int_equal(greeted, WORKERS);
        close_pair(&pair);
    }
}

/* -------------------------------------------------------------------------------------- a crowd */

enum { CROWD = 80 }; /* more than any list of a fixed length would hold */

struct crowd {
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener;
    _Atomic uint32_t waiting;
    _Atomic uint32_t served;
};

/* Accepts one connection on its own cq, and waits for its end. */
static void *wait_in_the_crowd(void *argument)
{
    struct crowd *crowd = argument;
    struct rdmux_cq *cq = NULL;
    struct rdmux_ep *ep = NULL;
    TRY(rdmux_cq_create(crowd->fabric, NULL, &cq));
    atomic_fetch_add(&crowd->waiting, 1);
    TRY(rdmux_accept(crowd->listener, cq, NULL, 4 * PATIENT_MS, &ep));
    atomic_fetch_add(&crowd->served, 1);
    struct rdmux_wc wc;
    size_t count = 0;
    TRY(rdmux_cq_wait(cq, &wc, 1, PATIENT_MS, &count)); /* until the client leaves */
    TRY_THAT(wc.opcode == RDMUX_WC_DISCONNECTED);
    TRY(rdmux_ep_close(ep));
    TRY(rdmux_cq_destroy(cq));
    return NULL;
}

static void every_thread_of_many_that_wait_in_accept_is_served(void **state)
{
    (void)state;
    struct pair pair;
    static pthread_t threads[CROWD];
    open_sides(&pair, "tcp", 0, 0);
    struct crowd crowd = { .fabric = pair.fabric_b, .listener = pair.listener };
    for (size_t i = 0; i < CROWD; i++) {
        start(&threads[i], wait_in_the_crowd, &crowd);
    }
    while (atomic_load(&crowd.waiting) < CROWD) {
        pause_ms(1);
    }
    for (uint32_t i = 1; i <= CROWD; i++) { /* one by one: an accept takes all that wait */
        struct rdmux_ep *ep = NULL;
        CHECK_OK(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, PATIENT_MS, &ep));
        uint64_t until = now_ms() + PATIENT_MS;
        while (atomic_load(&crowd.served) < i && now_ms() < until) {
            pause_ms(1);
        }
        assert_int_equal(atomic_load(&crowd.served), i);
        CHECK_OK(rdmux_ep_close(ep));
    }

    for (size_t i = 0; i < CROWD; i++) {
        join(threads[i]);
    }

    check_report();
    close_pair(&pair);
}

/* --------------------------------------------------------------------------------- many fabrics */

static void *live_a_life(void *argument)
{
    const char *paths = argument;
    for (int life = 0; life < 8; life++) {
        struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
        struct rdmux_fabric *fabric = NULL;
        struct rdmux_cq *cq = NULL;
        struct rdmux_listener *listener = NULL;
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        struct rdmux_wc wc;
        size_t count = 0;
        char address[RDMUX_ADDRESS_MAX];
        attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
        attr.paths = paths;
        TRY(rdmux_fabric_open(&attr, &fabric));
        TRY(rdmux_cq_create(fabric, NULL, &cq));
        TRY(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener));
        TRY(rdmux_listener_address(listener, address, sizeof(address)));
        TRY_THAT(rdmux_connect(fabric, cq, address, NULL, 0, &a) ==
                 RDMUX_IN_PROGRESS); /* to ourselves, on one cq */
        TRY(rdmux_accept(listener, cq, NULL, PATIENT_MS, &b));
        TRY(rdmux_cq_wait(cq, &wc, 1, PATIENT_MS, &count));
        TRY_THAT(wc.opcode == RDMUX_WC_CONNECTED && wc.ep == a && wc.status == RDMUX_OK);
        TRY(rdmux_send(a, "x", 1, NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
        char byte = 0;
        TRY(rdmux_recv(b, &byte, 1, NULL, &byte));
        TRY(rdmux_cq_wait(cq, &wc, 1, PATIENT_MS, &count));
        TRY_THAT(wc.opcode == RDMUX_WC_RECV && wc.context == &byte && byte == 'x');
        TRY(rdmux_ep_close(a));
        TRY(rdmux_ep_close(b));
        rdmux_listener_close(listener);
        TRY(rdmux_cq_destroy(cq));
        TRY(rdmux_fabric_close(fabric));
    }
    return NULL;
}

static void fabrics_of_different_threads_are_independent(void **state)
{
    (void)state;
    static char tcp[] = "tcp";
    static char shm[] = "shm";
    pthread_t threads[WORKERS];
    for (size_t k = 0; k < WORKERS; k++) {
        start(&threads[k], live_a_life, k % 2 == 0 ? tcp : shm);
    }

    for (size_t k = 0; k < WORKERS; k++) {
        join(threads[k]);
    }

    check_report();
}

/* ----------------------------------------------------------------------- connecting and closing */

struct churner {
    struct rdmux_fabric *fabric;
    const char *address;
    uint64_t until;
    uint64_t connected;
    _Atomic uint32_t *running; /* threads that have not ended */
};

/* Connects and leaves, sometimes during the set-up. At least one set-up is completed. */
static void *churn(void *argument)
{
    struct churner *churner = argument;
    struct rdmux_cq *cq = NULL;
    TRY(rdmux_cq_create(churner->fabric, NULL, &cq));
    for (unsigned round = 0;
         (now_ms() < churner->until || churner->connected == 0) && !atomic_load(&report.failed);
         round++) {
        struct rdmux_ep *ep = NULL;
        struct rdmux_wc wc;
        if (round % 3 == 0) {
            TRY_THAT(rdmux_connect(churner->fabric, cq, churner->address, NULL, 0, &ep) ==
                     RDMUX_IN_PROGRESS);
            for (unsigned i = 0; i < round % 40; i++) {
                (void)rdmux_cq_poll(cq, &wc, 1);
            }
        } else {
            TRY(rdmux_connect(churner->fabric, cq, churner->address, NULL, PATIENT_MS, &ep));
            churner->connected++;
        }
        TRY(rdmux_ep_close(ep));
    }
    TRY(rdmux_cq_destroy(cq));
    return NULL;
}

static void *churn_and_end(void *argument)
{
    struct churner *churner = argument;
    (void)churn(churner);
    atomic_fetch_sub(churner->running, 1);
    return NULL;
}

static void connections_come_and_go_on_many_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_sides(&pair, all_paths[i], 0, 0);
        struct churner churners[WORKERS];
        pthread_t threads[WORKERS];
        uint64_t until = now_ms() + RUN_MS;
        _Atomic uint32_t running = WORKERS;
        for (size_t k = 0; k < WORKERS; k++) {
            churners[k] = (struct churner){ .fabric = pair.fabric_a,
                                            .address = pair.address,
                                            .until = until,
                                            .running = &running };
            start(&threads[k], churn_and_end, &churners[k]);
        }
        /* Then those who left during the set-up are met, too. */
        for (uint64_t ended = 0; ended == 0 || now_ms() < ended + 500;) {
            ended = ended == 0 && atomic_load(&running) == 0 ? now_ms() : ended;
            struct rdmux_ep *ep = NULL;
            struct rdmux_wc wc;
            (void)!rdmux_accept(pair.listener, pair.cq_b, NULL, 5, &ep);
            while (rdmux_cq_poll(pair.cq_b, &wc, 1) == 1) {
                assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
                CHECK_OK(rdmux_ep_close(wc.ep));
            }
        }

        for (size_t k = 0; k < WORKERS; k++) {
            join(threads[k]);
        }

        check_report();
        connect_more(&pair, NULL, &pair.a, &pair.b);
        check_messages(&pair);
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_with_a_cq_each_connect_through_one_listener),
        cmocka_unit_test(a_cq_may_pass_from_thread_to_thread),
        cmocka_unit_test(regions_come_and_go_while_others_write_to_them),
        cmocka_unit_test(one_thread_may_inspect_connections_that_others_accept),
        cmocka_unit_test(every_thread_of_many_that_wait_in_accept_is_served),
        cmocka_unit_test(fabrics_of_different_threads_are_independent),
        cmocka_unit_test(connections_come_and_go_on_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
