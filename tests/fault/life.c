/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "life.h"

#include "inject.h"
#include "papers.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PATH_MS = 300,
    LIVENESS_MS = 1000,
    FAILOVER_MS = 1500,
    NAP_MS = 20,
    MOMENT_NS = 300000,
};

const char *const mode_names[MODES] = { "manual", "served", "asleep" };
uint8_t life_pattern[LARGE];
uint8_t life_source[REGION_SIZE];
void (*life_disturb)(struct life *life);
static bool is_hurried;

/* ------------------------------------------------------------------------------------- verdicts */

void wrong(const char *format, ...)
{
    va_list arguments;
    inject_disarm();
    const char *victim = inject_victim();
    printf("# %s failed: ", victim == NULL ? "nothing" : victim);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    _exit(EXIT_WRONG);
}

bool must_go_well(void)
{
    return inject_victim() == NULL && !is_hurried;
}

bool is_in_a_hurry(void)
{
    return is_hurried;
}

static bool may_follow(const struct life *life, enum rdmux_status status)
{
    switch (status) {
    case RDMUX_NO_MEMORY:
    case RDMUX_IO:
    case RDMUX_PEER_GONE:
    case RDMUX_NO_PATH:
    case RDMUX_TIMED_OUT:
    case RDMUX_FLUSHED:
    case RDMUX_REFUSED:
    case RDMUX_OUTCOME_UNKNOWN:
        return true;
    case RDMUX_AUTH:
        return life->scenario->auth != 0;
    default:
        return false;
    }
}

void check(struct life *life, enum rdmux_status status, const char *call)
{
    if (status == RDMUX_OK) {
        return;
    }
    if (must_go_well()) {
        wrong("%s: %s: %s", call, rdmux_status_name(status), rdmux_last_error());
    }
    if (!may_follow(life, status)) {
        wrong("%s gave %s, which it may not: %s", call, rdmux_status_name(status),
              rdmux_last_error());
    }
    if (rdmux_last_error()[0] == '\0') {
        wrong("%s gave %s without a text", call, rdmux_status_name(status));
    }
    longjmp(life->end, 1);
}

/* ------------------------------------------------------------------------------------- progress */

uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void take_move(const struct life *life, struct side *side, const struct rdmux_wc *wc)
{
    const char *name = rdmux_status_name((enum rdmux_status)wc->status);
    bool is_of_the_path = wc->status == RDMUX_IO || wc->status == RDMUX_PEER_GONE ||
                          wc->status == RDMUX_FLUSHED || wc->status == RDMUX_TIMED_OUT;
    if (!life->scenario->has_failover || !is_of_the_path) {
        wrong("the endpoint has moved because of %s, which moves none", name);
    }
    if (wc->imm <= side->epoch || side->end_was_told) {
        wrong("the endpoint has moved from epoch %u to %u", side->epoch, wc->imm);
    }
    side->epoch = wc->imm;
    side->moves++;
}

/* An adopted socket belongs to the program again if no path was found. */
static void take_socket_back(struct side *side, uint32_t status)
{
    if (status == RDMUX_NO_PATH && side->socket != 0) {
        (void)close(side->socket);
        side->socket = 0;
    }
}

static void take_event(struct life *life, struct side *side, const struct rdmux_wc *wc)
{
    if (wc->ep == life->turned_away) {
        life->turned_away_status = wc->status;
    } else if (wc->opcode == RDMUX_WC_CONNECTED) {
        side->is_connected = wc->status == RDMUX_OK;
        side->end_was_told |= wc->status != RDMUX_OK;
        take_socket_back(side, wc->status);
    } else if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        side->end_was_told = true;
    } else if (wc->opcode == RDMUX_WC_PATH_CHANGED) {
        take_move(life, side, wc);
    }
    side->has_ended |= side->end_was_told;
    for (size_t i = 0; wc->opcode == RDMUX_WC_REMOTE_READY && i < REMOTES_MAX; i++) {
        if (life->remotes[i] == wc->context) {
            life->remote_answered[i] = true;
            life->remote_status[i] = wc->status;
        }
    }
}

static void take_entry(struct life *life, struct side *side, const struct rdmux_wc *wc)
{
    if (wc->opcode >= RDMUX_WC_CONNECTED) {
        take_event(life, side, wc);
        return;
    }
    uintptr_t number = (uintptr_t)wc->context;
    if (number >= REQUESTS_MAX || !side->requests[number].posted) {
        wrong("an entry %s of no request: context %" PRIuPTR, rdmux_wc_opcode_name(wc->opcode),
              number);
    }
    struct outcome *outcome = &side->requests[number];
    if (outcome->entries++ != 0) {
        wrong("request %" PRIuPTR " has completed before: %s, then %s", number,
              rdmux_status_name((enum rdmux_status)outcome->status),
              rdmux_status_name((enum rdmux_status)wc->status));
    }
    outcome->status = wc->status;
    outcome->length = wc->length;
    outcome->imm = wc->imm;
    outcome->has_imm = (wc->flags & RDMUX_WC_HAS_IMM) != 0;
    outcome->place = ++side->entries;
}

static void take_entries(struct life *life, struct side *side, const struct rdmux_wc *wc,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        take_entry(life, side, &wc[i]);
    }
}

static void progress_of(struct life *life, struct side *side)
{
    struct rdmux_wc wc[8];
    if (side->fabric != NULL) {
        (void)rdmux_fabric_progress(side->fabric);
    }
    size_t count = side->cq == NULL ? 0 : rdmux_cq_poll(side->cq, wc, 8);
    take_entries(life, side, wc, count);
}

/* Waits for an entry. The wait may fail, which loses nothing. */
static void wait_for(struct life *life, struct side *side)
{
    struct rdmux_wc wc[8];
    size_t count = 0;
    enum rdmux_status status = rdmux_cq_wait(side->cq, wc, 8, 1, &count);
    if (status != RDMUX_OK && (count != 0 || (status != RDMUX_TIMED_OUT && must_go_well()))) {
        wrong("rdmux_cq_wait: %s with %zu entries: %s", rdmux_status_name(status), count,
              rdmux_last_error());
    }
    take_entries(life, side, wc, count);
}

/* Polls until 0, then arms; on AGAIN polls again, else sleeps on the descriptors (rule 13.6). */
static void sleep_on_both(struct life *life)
{
    struct rdmux_cq *cqs[2] = { life->a.cq, life->b.cq };
    struct pollfd look[2];
    for (size_t i = 0; i < 2; i++) {
        enum rdmux_status status = rdmux_cq_arm(cqs[i]);
        if (status != RDMUX_OK && status != RDMUX_AGAIN && must_go_well()) {
            wrong("rdmux_cq_arm: %s: %s", rdmux_status_name(status), rdmux_last_error());
        }
        if (status != RDMUX_OK) {
            return;
        }
        look[i] = (struct pollfd){ .fd = rdmux_cq_fd(cqs[i]), .events = POLLIN };
    }
    inject_pause();
    (void)poll(look, 2, NAP_MS);
    inject_resume();
}

static void rest(struct life *life)
{
    enum { KINDS = 3 };
    if (life->mode != MODE_ASLEEP || life->a.cq == NULL || life->b.cq == NULL) {
        return;
    }
    switch (life->steps % KINDS) {
    case 0:
        wait_for(life, &life->a);
        break;
    case 1:
        wait_for(life, &life->b);
        break;
    default:
        sleep_on_both(life);
        break;
    }
}

/* Pauses between polls: a path takes time to end, and each poll is another point to try. */
static void breathe(void)
{
    const struct timespec moment = { .tv_nsec = MOMENT_NS };
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
}

struct rdmux_ep_info info_of(const struct side *side)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    if (side->ep != NULL && rdmux_ep_info(side->ep, &info) != RDMUX_OK) {
        wrong("rdmux_ep_info: %s", rdmux_last_error());
    }
    return info;
}

static const char *why_ended(const struct side *side)
{
    static struct rdmux_ep_info info[2];
    static unsigned next;
    struct rdmux_ep_info *out = &info[next++ % 2];
    *out = info_of(side);
    return side->ep != NULL ? out->text : "no endpoint";
}

bool progress(struct life *life)
{
    life->steps++;
    if (life_disturb != NULL) {
        life_disturb(life);
    }
    rest(life);
    if (life->breaks != 0 && life->mode != MODE_ASLEEP) {
        breathe();
    }
    progress_of(life, &life->a);
    progress_of(life, &life->b);
    if (now_ms() > life->until_ms && (must_go_well() || (life->breaks != 0 && !life->may_wait))) {
        wrong("nothing happens any more: %s; %s", why_ended(&life->a), why_ended(&life->b));
    }
    return now_ms() <= life->until_ms && !life->a.has_ended && !life->b.has_ended;
}

void progress_or_end(struct life *life)
{
    if (!progress(life)) {
        if (must_go_well()) {
            wrong("the connection has ended: %s; %s", why_ended(&life->a), why_ended(&life->b));
        }
        longjmp(life->end, 1);
    }
}

/* ------------------------------------------------------------------------------------- requests */

void *context_of(struct side *side, size_t number)
{
    side->requests[number].posted = true;
    return (void *)(uintptr_t)number;
}

void try_post(struct life *life, struct side *side, size_t number, enum rdmux_status status,
              const char *call)
{
    if (status != RDMUX_OK) {
        side->requests[number].posted = false;
    }
    check(life, status, call);
}

void await(struct life *life, struct side *side, size_t number)
{
    struct outcome *outcome = &side->requests[number];
    while (outcome->entries == 0) {
        progress_or_end(life);
    }
    if (outcome->status != RDMUX_OK && must_go_well()) {
        wrong("request %zu: %s", number, rdmux_status_name((enum rdmux_status)outcome->status));
    }
    if (outcome->status != RDMUX_OK) {
        longjmp(life->end, 1);
    }
}

void post_receive(struct life *life, struct side *side, size_t number, void *buf, size_t length)
{
    if (side->srq == NULL) {
        POST(life, side, number, rdmux_recv(side->ep, buf, length, NULL, context_of(side, number)));
        return;
    }
    side->requests[number].is_shared = true;
    POST(life, side, number,
         rdmux_srq_recv(side->srq, buf, length, side->second_mr, context_of(side, number)));
}

/* ------------------------------------------------------------------------------- begin and end */

struct rdmux_ep_attr attr_of(const struct life *life, const struct side *side)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.srq = side->srq;
    attr.data_sockets = life->scenario->data_sockets;
    attr.failover = life->scenario->has_failover ? RDMUX_FAILOVER_ON : RDMUX_FAILOVER_OFF;
    if (is_hurried) {
        attr.failover_time_ms = FAILOVER_MS;
        attr.liveness_ms = LIVENESS_MS;
        attr.setup_timeout_ms = LIFE_MS / 2;
        attr.path_timeout_ms = PATH_MS;
    } else {
        /* Only the limit of the life ends it: children and signals take their time in the set-up. */
        attr.setup_timeout_ms = PATIENT_MS;
        attr.path_timeout_ms = PATIENT_MS;
    }
    return attr;
}

/* The receives of an SRQ are in a region, so that they may be large. */
static void add_srq(struct life *life, struct side *side)
{
    TRY(life, rdmux_srq_create(side->fabric, side->cq, NULL, &side->srq));
    TRY(life, rdmux_mr_register(side->fabric, life->received, sizeof(life->received),
                                RDMUX_ACCESS_LOCAL_WRITE, &side->second_mr));
}

static void open_side(struct life *life, struct side *side)
{
    const struct scenario *scenario = life->scenario;
    const struct rdmux_fabric_auth auth = papers_auth(scenario->auth);
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT |
                 (life->mode == MODE_MANUAL ? RDMUX_FABRIC_NO_SERVICE_THREAD : 0) |
                 (scenario->device == NULL ? RDMUX_FABRIC_NO_DEFAULT_PLUGINS : 0) |
                 (scenario->shares_counts ? RDMUX_FABRIC_SHARE_STATS : 0);
    attr.paths = scenario->paths;
    attr.provider_dir = scenario->device == NULL ? NULL : papers_plugins();
    attr.auth = scenario->auth == 0 ? NULL : &auth;
    TRY(life, rdmux_fabric_open(&attr, &side->fabric));
    TRY(life, rdmux_cq_create(side->fabric, NULL, &side->cq));
}

/* Takes the entries of all posted requests before the endpoint is closed. */
static void drain(struct life *life, struct side *side)
{
    uint64_t until_ms = now_ms() + LIFE_MS;
    for (size_t i = 0; i < REQUESTS_MAX && side->has_ended; i++) {
        const struct outcome *outcome = &side->requests[i];
        while (outcome->posted && !outcome->is_shared && outcome->entries == 0) {
            progress_of(life, &life->a);
            progress_of(life, &life->b);
            if (now_ms() > until_ms) {
                wrong("request %zu never completes, though its endpoint has ended", i);
            }
        }
    }
}

static void must(enum rdmux_status status, const char *call)
{
    if (status != RDMUX_OK) {
        wrong("%s: %s: %s", call, rdmux_status_name(status), rdmux_last_error());
    }
}

static void close_side(struct side *side)
{
    must(rdmux_srq_destroy(side->srq), "rdmux_srq_destroy");
    rdmux_mr_deregister(side->mr);
    rdmux_mr_deregister(side->second_mr);
    must(rdmux_cq_destroy(side->cq), "rdmux_cq_destroy");
    must(rdmux_fabric_close(side->fabric), "rdmux_fabric_close");
}

/* Waits for the event that gives the socket back; it may not have arrived yet. */
static void settle_socket(struct side *side)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    if (side->socket != 0 && side->ep != NULL && rdmux_ep_info(side->ep, &info) == RDMUX_OK) {
        take_socket_back(side, info.status);
    }
}

static void close_all(struct life *life)
{
    settle_socket(&life->a);
    settle_socket(&life->b);
    for (size_t i = 0; i < REMOTES_MAX; i++) {
        rdmux_remote_close(life->remotes[i]);
    }
    must(rdmux_stream_close(life->a.stream), "rdmux_stream_close");
    must(rdmux_stream_close(life->b.stream), "rdmux_stream_close");
    must(rdmux_ep_close(life->turned_away), "rdmux_ep_close");
    must(rdmux_ep_close(life->a.ep), "rdmux_ep_close");
    must(rdmux_ep_close(life->b.ep), "rdmux_ep_close");
    rdmux_listener_close(life->listener);
    close_side(&life->a);
    close_side(&life->b);
}

/* Checks that both sides of a connection have ended, each with a reported reason. */
static void judge_end(struct life *life)
{
    struct side *sides[2] = { &life->a, &life->b };
    bool were_together = life->a.is_connected && life->a.ep != NULL && life->b.ep != NULL;
    uint64_t until_ms = now_ms() + STUCK_MS;
    while (were_together && life->a.has_ended != life->b.has_ended && now_ms() < until_ms) {
        progress_of(life, &life->a);
        progress_of(life, &life->b);
    }
    for (size_t i = 0; i < 2 && were_together; i++) {
        const struct side *side = sides[i];
        const struct rdmux_ep_info info = info_of(side);
        if (!side->has_ended && sides[1 - i]->has_ended) {
            wrong("one side has ended, and the other never does: %s", info.text);
        }
        if (side->has_ended && info.status != RDMUX_OK &&
            (!may_follow(life, (enum rdmux_status)info.status) || info.text[0] == '\0')) {
            wrong("the endpoint ended with %s, which it may not: %s",
                  rdmux_status_name((enum rdmux_status)info.status), info.text);
        }
    }
}

static void *live_here(void *argument)
{
    struct life *life = argument;
    if (setjmp(life->end) == 0) {
        open_side(life, &life->a);
        open_side(life, &life->b);
        if (life->scenario->has_srq) {
            add_srq(life, &life->b);
        }
        for (size_t i = 0; i < STAGES_MAX && life->scenario->stages[i] != NULL; i++) {
            life->scenario->stages[i](life);
        }
        life->is_whole = true;
    }
    if (life->scenario->has_failover) {
        judge_end(life);
    }
    drain(life, &life->a);
    drain(life, &life->b);
    close_all(life);
    return NULL;
}

/* Runs in a thread of its own, so that the last explanation, which the library keeps per thread, is
 * freed. */
bool live(const struct scenario *scenario, enum mode mode, bool hurried)
{
    static struct life life;
    pthread_t thread;
    memset(&life, 0, sizeof(life));
    is_hurried = hurried;
    life.scenario = scenario;
    life.mode = mode;
    life.until_ms = now_ms() + (hurried ? LIFE_MS : PATIENT_MS);
    inject_pause();
    if (pthread_create(&thread, NULL, live_here, &life) != 0) {
        wrong("no thread to live in");
    }
    inject_resume();
    (void)pthread_join(thread, NULL);
    return life.is_whole;
}
