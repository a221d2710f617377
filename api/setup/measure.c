/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Measures a path under attempt, and keeps the results in the fabric.
 *
 * A measurement writes to the peer's proof buffer with RDMUX_PLACED. First it writes a few short
 * requests one by one; the fastest gives the round trip. Then it writes more and more bytes, until
 * a round takes long enough to give a rate, or the time is over. The rate does not include the
 * round trip.
 */
#include "api/base/address.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/data/request.h"
#include "api/session/setup_state.h"
#include "api/setup/setup.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SHORT_SIZE = 8,
    SHORT_ROUNDS = 8,
    BATCH_MAX = 16,
    ENOUGH_NS = 2000000, /* a round of this duration gives the rate */
    ROUNDS_MAX = 32,
    STEP = 4, /* the most that the next round takes, in durations of this one */
    NS_PER_SECOND = 1000000000,
    FIGURES_MAX = 64,
    FIGURES_KEY_MAX = 512,
    FIGURES_LIVE_S = 300,
};

struct rdmux_measuring {
    bool is_over;
    uint64_t end_ns;
    uint64_t since_ns; /* start of this round */
    uint64_t trip_ns;  /* the fastest round trip */
    uint64_t bandwidth;
    uint32_t round;
    uint32_t count;  /* requests in this round */
    uint32_t length; /* bytes of each request */
    size_t posted;
    struct rdmux_provider_sge sge;
    struct rdmux_request requests[BATCH_MAX];
};

/* -------------------------------------------------------------------------------------- figures */

/* A result for a pair of devices of this host and the peer's host. */
struct figure {
    char key[FIGURES_KEY_MAX];
    uint64_t until_ns; /* 0: free */
    struct rdmux_measured measured;
};

struct rdmux_figures {
    struct figure figures[FIGURES_MAX];
};

/* Formats the peer's host, without the port: a connector has another port each time. */
static bool host_of(const struct rdmux_ep *ep, char out[RDMUX_ADDRESS_MAX])
{
    struct sockaddr_storage address;
    if (ep->addresses.peer_length == 0 || ep->addresses.peer_length > sizeof(address)) {
        return false;
    }
    memcpy(&address, &ep->addresses.peer, ep->addresses.peer_length);
    if (address.ss_family == AF_INET) {
        ((struct sockaddr_in *)&address)->sin_port = 0;
    } else if (address.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&address)->sin6_port = 0;
    } else {
        return false;
    }
    rdmux_address_format((const struct sockaddr *)&address, ep->addresses.peer_length, out);
    return true;
}

/* False: no result can be kept for this pair. */
static bool key_of(const struct rdmux_ep *ep, const struct rdmux_offer_path *ours,
                   const struct rdmux_offer_path *theirs, char out[FIGURES_KEY_MAX])
{
    char host[RDMUX_ADDRESS_MAX];
    if (!host_of(ep, host)) {
        return false;
    }
    int length = snprintf(out, FIGURES_KEY_MAX, "%s|%s|%s|%s", host, ours->provider,
                          ours->path.device, theirs->path.device);
    return length > 0 && length < FIGURES_KEY_MAX;
}

bool rdmux_figures_find(void *user, const struct rdmux_offer_path *ours,
                        const struct rdmux_offer_path *theirs, struct rdmux_measured *out)
{
    struct rdmux_ep *ep = user;
    struct rdmux_fabric *fabric = ep->fabric;
    char key[FIGURES_KEY_MAX];
    bool found = false;
    if (!key_of(ep, ours, theirs, key)) {
        return false;
    }
    uint64_t now_ns = rdmux_now(fabric);
    pthread_mutex_lock(&fabric->lock);
    for (size_t i = 0; i < FIGURES_MAX && fabric->figures != NULL && !found; i++) {
        const struct figure *figure = &fabric->figures->figures[i];
        if (figure->until_ns > now_ns && strcmp(figure->key, key) == 0) {
            *out = figure->measured;
            found = true;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}

/* Returns the result with this key, or the one that expires first. */
static struct figure *place_for(struct rdmux_figures *figures, const char *key)
{
    struct figure *place = &figures->figures[0];
    for (size_t i = 0; i < FIGURES_MAX; i++) {
        struct figure *figure = &figures->figures[i];
        if (strcmp(figure->key, key) == 0) {
            return figure;
        }
        if (figure->until_ns < place->until_ns) {
            place = figure;
        }
    }
    return place;
}

static void remember_figures(struct rdmux_ep *ep, const struct rdmux_measured *measured)
{
    struct rdmux_fabric *fabric = ep->fabric;
    const struct rdmux_setup *setup = ep->setup;
    char key[FIGURES_KEY_MAX];
    if (!key_of(ep, &setup->offer->paths[setup->attempt.ours],
                &rdmux_handshake_peer_offer(setup->handshake)->paths[setup->attempt.theirs], key)) {
        return;
    }
    struct rdmux_figures *fresh = rdmux_allocate(fabric, sizeof(*fresh));
    uint64_t until_ns = rdmux_now(fabric) + (uint64_t)FIGURES_LIVE_S * NS_PER_SECOND;
    pthread_mutex_lock(&fabric->lock);
    if (fabric->figures == NULL) {
        fabric->figures = fresh;
        fresh = NULL;
    }
    if (fabric->figures != NULL) {
        struct figure *figure = place_for(fabric->figures, key);
        (void)snprintf(figure->key, sizeof(figure->key), "%s", key);
        figure->until_ns = until_ns;
        figure->measured = *measured;
    }
    pthread_mutex_unlock(&fabric->lock);
    rdmux_release(fabric, fresh);
}

/* --------------------------------------------------------------------------------------- rounds */

static void fail_measuring(struct rdmux_ep *ep, enum rdmux_status status)
{
    struct rdmux_setup *setup = ep->setup;
    if (setup->attempt.measuring != NULL) {
        setup->attempt.measuring->is_over = true; /* the path may still hold its requests */
    }
    rdmux_handshake_result(setup->handshake, RDMUX_ACTION_MEASURE, setup->attempt.number, status,
                           RDMUX_REASON_NONE, rdmux_last_error(), NULL, 0, rdmux_setup_now(ep));
}

/* Sets the bytes of a round: after the short rounds 1 KiB, then four times as many in each
 * round. */
static void size_round(struct rdmux_measuring *measuring, uint64_t max_message)
{
    enum { FIRST = 1024 };
    uint32_t step = measuring->round < SHORT_ROUNDS ? 0 : measuring->round - SHORT_ROUNDS;
    uint64_t bytes = measuring->round < SHORT_ROUNDS
                         ? SHORT_SIZE
                         : (uint64_t)FIRST << (2 * (step < 8 ? step : 8));
    uint64_t longest = max_message != 0 && max_message < RDMUX_PROOF_SIZE
                           ? max_message
                           : (uint64_t)RDMUX_PROOF_SIZE;
    uint64_t most = BATCH_MAX * longest;
    bytes = bytes < most ? bytes : most;
    measuring->length = (uint32_t)(bytes < longest ? bytes : longest);
    measuring->count = (uint32_t)(bytes / measuring->length);
}

static void begin_round(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    struct rdmux_measuring *measuring = attempt->measuring;
    size_round(measuring, ep->negotiated.path.max_message);
    measuring->sge.length = measuring->length;
    for (uint32_t i = 0; i < measuring->count; i++) {
        struct rdmux_request *request = &measuring->requests[i];
        rdmux_own_begin(request, RDMUX_OP_WRITE, i + 1 == measuring->count ? RDMUX_PLACED : 0, 0);
        request->sge_count = 1;
        request->length = measuring->length;
        request->sges = &measuring->sge;
        request->remote = attempt->remote;
    }
    measuring->posted = 0;
    measuring->since_ns = rdmux_now(ep->fabric);
}

/* False: the round failed, and the handshake was told. */
static bool post_round(struct rdmux_ep *ep)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    struct rdmux_measuring *measuring = attempt->measuring;
    size_t posted = 0;
    if (measuring->posted == measuring->count) {
        return true;
    }
    enum rdmux_status status = attempt->path->ops->post(
        attempt->path, &measuring->requests[measuring->posted],
        measuring->count - measuring->posted, 0, &posted);
    measuring->posted += posted;
    if (measuring->posted == measuring->count || status == RDMUX_AGAIN) {
        return true;
    }
    fail_measuring(ep, status);
    return false;
}

/* False: not done yet, or the round failed and the handshake was told. */
static bool round_is_done(struct rdmux_ep *ep)
{
    struct rdmux_measuring *measuring = ep->setup->attempt.measuring;
    if (measuring->posted < measuring->count) {
        return false;
    }
    for (uint32_t i = 0; i < measuring->count; i++) {
        const struct rdmux_request *request = &measuring->requests[i];
        if (!request->done) {
            return false;
        }
        if (request->status != RDMUX_OK) {
            enum rdmux_status status = (enum rdmux_status)request->status;
            (void)rdmux_fail(status, "a write that was to be measured failed with %s",
                             rdmux_status_name(status));
            fail_measuring(ep, status);
            return false;
        }
    }
    return true;
}

/* Returns the duration of the round. */
static uint64_t note_round(struct rdmux_measuring *measuring, uint64_t now_ns)
{
    uint64_t took_ns = now_ns > measuring->since_ns ? now_ns - measuring->since_ns : 1;
    if (measuring->round < SHORT_ROUNDS) {
        if (measuring->round == 0 || took_ns < measuring->trip_ns) {
            measuring->trip_ns = took_ns;
        }
        return took_ns;
    }
    uint64_t bytes = (uint64_t)measuring->count * measuring->length;
    uint64_t moving_ns = took_ns > measuring->trip_ns ? took_ns - measuring->trip_ns : 0;
    /* subtracts at most half: round trips vary */
    moving_ns = moving_ns > took_ns / 2 ? moving_ns : took_ns / 2 + 1;
    uint64_t bandwidth = bytes * NS_PER_SECOND / moving_ns;
    if (took_ns >= ENOUGH_NS || bandwidth > measuring->bandwidth) {
        measuring->bandwidth = bandwidth;
    }
    return took_ns;
}

static void finish_measuring(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_measuring *measuring = setup->attempt.measuring;
    const struct rdmux_measured measured = {
        .latency_ns = measuring->trip_ns / 2 + 1,
        .bandwidth = measuring->bandwidth,
    };
    rdmux_log_about(ep->fabric, RDMUX_CATEGORY_NEGOTIATION, RDMUX_LOG_DEBUG,
                    "endpoint %" PRIu64 ": path of attempt %u: %" PRIu64 " ns, %" PRIu64 " bytes/s",
                    ep->id, (unsigned)setup->attempt.number, measured.latency_ns,
                    measured.bandwidth);
    remember_figures(ep, &measured);
    measuring->is_over = true;
    rdmux_handshake_measured(setup->handshake, setup->attempt.number, &measured,
                             rdmux_setup_now(ep));
}

void rdmux_measure_step(struct rdmux_ep *ep)
{
    struct rdmux_measuring *measuring = ep->setup->attempt.measuring;
    while (measuring != NULL && !measuring->is_over && post_round(ep) && round_is_done(ep)) {
        uint64_t now_ns = rdmux_now(ep->fabric);
        uint64_t took_ns = note_round(measuring, now_ns);
        bool was_rate = measuring->round >= SHORT_ROUNDS;
        measuring->round++;
        if ((was_rate && took_ns >= ENOUGH_NS) || measuring->round == ROUNDS_MAX ||
            now_ns + STEP * took_ns >= measuring->end_ns) {
            finish_measuring(ep);
            return;
        }
        begin_round(ep);
    }
    /* A side that was not running for a while says nothing about the path: the finished rounds
     * count. */
    if (measuring != NULL && !measuring->is_over && measuring->round != 0 &&
        rdmux_now(ep->fabric) >= measuring->end_ns) {
        finish_measuring(ep);
    }
}

void rdmux_measure_start(struct rdmux_ep *ep, const struct rdmux_handshake_action *action)
{
    struct rdmux_path_attempt *attempt = &ep->setup->attempt;
    if (attempt->path == NULL || attempt->remote == NULL) {
        (void)rdmux_fail(RDMUX_INVALID, "a path that was not proved cannot be measured");
        fail_measuring(ep, RDMUX_INVALID);
        return;
    }
    attempt->measuring = rdmux_allocate(ep->fabric, sizeof(*attempt->measuring));
    if (attempt->measuring == NULL) {
        fail_measuring(ep,
                       rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", attempt->path->ops->name));
        return;
    }
    attempt->measuring->sge = (struct rdmux_provider_sge){
        .addr = (uint8_t *)ep->setup->proof->addr + RDMUX_PROOF_SIZE,
        .mr = rdmux_mr_with(ep->setup->proof, attempt->path->cq->domain),
    };
    attempt->measuring->end_ns = rdmux_now(ep->fabric) + action->budget_ns;
    begin_round(ep);
    rdmux_measure_step(ep);
}
