/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Connecting: connect and accept in all their forms, and the explanation of the choice on both
 * sides. */
#include "harness.h"
#include "lateness.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---------------------------------------------------------------------- connect without waiting */

/* The listener accepts only on request, so that the endpoint is still connecting while it is
 * tested. */
static void later_initiator(struct side *side)
{
    uint8_t bytes[3][8];
    struct rdmux_token token;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep *ep = NULL;
    struct rdmux_remote *remote = NULL;
    side_open(side, NULL);
    side_meet(side);
    TAKE(side, &token, sizeof(token));
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, 0, &ep),
                  RDMUX_IN_PROGRESS);
    EXPECT(ep != NULL, "IN_PROGRESS without an endpoint");
    side_track(side, ep);
    EXPECT_OK(rdmux_ep_info(ep, &info));
    EXPECT_EQUAL(info.state, RDMUX_EP_CONNECTING);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_OK(rdmux_recv(ep, bytes[i], 8, NULL, CTX(i)));
    }
    EXPECT_STATUS(rdmux_send(ep, "x", 1, NULL, CTX(9), 0), RDMUX_AGAIN);
    if (flag_if_there(side, RDMUX_PLACED) != 0) {
        EXPECT_STATUS(rdmux_write(ep, NULL, 0, NULL, NULL, 0, CTX(9), RDMUX_PLACED), RDMUX_AGAIN);
    }
    EXPECT_STATUS(rdmux_remote_import(ep, &token, 0, &remote), RDMUX_IN_PROGRESS);
    EXPECT(remote != NULL, "IN_PROGRESS without a remote");
    BARRIER(side); /* the listener may accept now */

    bool connected = false;
    unsigned ready = 0;
    uint64_t received = 0;
    while (!connected || ready < 1 || received < 3) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.ep == ep && wc.status == RDMUX_OK, "got %s", wc_text(&wc));
        switch (wc.opcode) {
        case RDMUX_WC_CONNECTED:
            EXPECT(!connected, "connected twice");
            connected = true;
            break;
        case RDMUX_WC_REMOTE_READY:
            EXPECT(connected && wc.context == remote, "got %s", wc_text(&wc));
            ready++;
            break;
        case RDMUX_WC_RECV:
            EXPECT(connected && CTX_NUMBER(wc.context) == received, "got %s", wc_text(&wc));
            received++;
            break;
        default:
            FAIL("got %s", wc_text(&wc));
        }
    }
    check_endpoint(side, ep, &side->info);
    (void)POST_AND_WAIT(
        &side->queue,
        rdmux_write(ep, "w", 1, NULL, remote, 0, CTX(10), flag_if_there(side, RDMUX_PLACED)),
        RDMUX_WC_WRITE, CTX(10));
    settle_writes(side, &side->queue, ep, remote);
    BARRIER(side);
    side_finish(side);
}

static void later_target(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    struct region region = region_make(side, MEMORY_ALLOCATED, 64, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side);
    struct rdmux_ep *ep = side_pair(side, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        (void)POST_AND_WAIT(&side->queue, rdmux_send(ep, &i, 8, NULL, CTX(i), 0), RDMUX_WC_SEND,
                            CTX(i));
    }
    BARRIER(side);
    EXPECT_EQUAL(region.addr[0], 'w');
    side_finish(side);
}

/* -------------------------------------------------------------------- no listener, or no answer */

static void refused_by_nobody(struct side *side)
{
    char address[RDMUX_ADDRESS_MAX];
    int fd = side_bound_socket(side, false, address);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep *ep = CTX(1);
    side_open(side, NULL);
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, address, &attr, side->patient_ms, &ep),
                  RDMUX_REFUSED);
    EXPECT(ep == NULL, "an endpoint after RDMUX_REFUSED");
    EXPECT(strstr(rdmux_last_error(), address) != NULL, "the text does not name %s: %s", address,
           rdmux_last_error());

    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, address, &attr, 0, &ep),
                  RDMUX_IN_PROGRESS);
    side_track(side, ep);
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_CONNECTED && wc.status == RDMUX_REFUSED && wc.ep == ep, "got %s",
           wc_text(&wc));
    EXPECT_OK(rdmux_ep_info(ep, &info));
    EXPECT_EQUAL(info.state, RDMUX_EP_ENDED);
    EXPECT_EQUAL(info.status, RDMUX_REFUSED);
    EXPECT(info.text[0] != '\0', "no text");
    side_finish(side);
    (void)close(fd);
}

/* The kernel accepts the connection, and no process answers. */
static void silent_listener(struct side *side)
{
    char address[RDMUX_ADDRESS_MAX];
    int fd = side_bound_socket(side, true, address);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = CTX(1);
    side_open(side, NULL);
    struct stopwatch watch;
    stopwatch_start(&watch);
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, address, &attr, 150, &ep),
                  RDMUX_TIMED_OUT);
    expect_took(&watch, "a connect of 150 ms", 150, 150 + UINT64_C(300) * side->patience);
    EXPECT(ep == NULL, "an endpoint after RDMUX_TIMED_OUT");

    attr.setup_timeout_ms = 150;
    stopwatch_start(&watch);
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, address, &attr, 0, &ep),
                  RDMUX_IN_PROGRESS);
    side_track(side, ep);
    struct rdmux_wc wc = NEXT(&side->queue);
    expect_took(&watch, "a set-up of 150 ms", 150, 150 + UINT64_C(400) * side->patience);
    EXPECT(wc.opcode == RDMUX_WC_CONNECTED && wc.status == RDMUX_TIMED_OUT, "got %s", wc_text(&wc));

    /* close cancels an attempt without an event */
    attr.setup_timeout_ms = 0;
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, address, &attr, 0, &ep),
                  RDMUX_IN_PROGRESS);
    uint8_t byte = 0;
    EXPECT_OK(rdmux_recv(ep, &byte, 1, NULL, CTX(1)));
    EXPECT_OK(rdmux_ep_close(ep));
    side_finish(side);
    (void)close(fd);
}

/* ------------------------------------------------------------------------------- failed accepts */

static void nothing_to_accept(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep *ep = CTX(1);
    side_open(side, NULL);
    EXPECT_OK(rdmux_listen(side->fabric, "127.0.0.1:0", NULL, &side->listener));
    EXPECT_STATUS(rdmux_listener_next(side->listener, 0, &peer), RDMUX_AGAIN);
    EXPECT_STATUS(rdmux_accept(side->listener, side->queue.cq, &attr, 0, &ep), RDMUX_AGAIN);
    EXPECT(ep == NULL, "an endpoint after RDMUX_AGAIN");
    struct stopwatch watch;
    stopwatch_start(&watch);
    EXPECT_STATUS(rdmux_listener_next(side->listener, 100, &peer), RDMUX_TIMED_OUT);
    EXPECT_STATUS(rdmux_accept(side->listener, side->queue.cq, &attr, 100, &ep), RDMUX_TIMED_OUT);
    expect_took(&watch, "two waits of 100 ms", 199, 200 + UINT64_C(400) * side->patience);
    attr.peer = 12345;
    EXPECT_STATUS(rdmux_accept(side->listener, side->queue.cq, &attr, 100, &ep), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_reject(side->listener, 12345, 1, NULL, 0), RDMUX_INVALID);
    side_finish(side);
}

/* ----------------------------------------------------------------------------- no path, and why */

static void expect_no_choice(struct side *side, struct rdmux_explanation *explanation)
{
    bool found = false;
    EXPECT_EQUAL(explanation->status, RDMUX_NO_PATH);
    EXPECT_EQUAL(explanation->chosen, UINT32_MAX);
    EXPECT(explanation->candidate_count > 0, "no candidates");
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        EXPECT(candidate->reason != RDMUX_REASON_CHOSEN && candidate->reason != RDMUX_REASON_NONE,
               "%s has reason %s", candidate->provider,
               rdmux_reason_name((enum rdmux_reason)candidate->reason));
        EXPECT(candidate->text[0] != '\0', "%s has no text", candidate->provider);
        found = found || strcmp(candidate->provider, side->provider) == 0;
    }
    EXPECT(found, "%s is no candidate", side->provider);
    EXPECT(explanation->text != NULL && explanation->text[0] != '\0', "no summary");
    const char *json = NULL;
    EXPECT_OK(rdmux_explanation_json(explanation, &json));
    EXPECT(json != NULL && json[0] == '{' && strstr(json, "\"candidates\"") != NULL &&
               strstr(json, side->provider) != NULL,
           "not the JSON it should be: %s", json == NULL ? "NULL" : json);
}

static void no_path_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = CTX(1);
    struct rdmux_explanation *explanation = NULL;
    side_open(side, NULL);
    side_meet(side);
    EXPECT_STATUS(
        rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, side->patient_ms, &ep),
        RDMUX_NO_PATH);
    EXPECT(ep == NULL, "an endpoint after RDMUX_NO_PATH");
    char text[2048];
    (void)snprintf(text, sizeof(text), "%s", rdmux_last_error());
    EXPECT(strstr(text, side->provider) != NULL, "the text does not name %s: %s", side->provider,
           text);
    EXPECT_OK(rdmux_last_explanation(&explanation));
    expect_no_choice(side, explanation);
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        if (strcmp(candidate->provider, side->provider) == 0) {
            const char *reason = rdmux_reason_name((enum rdmux_reason)candidate->reason);
            EXPECT(strstr(text, reason) != NULL || strstr(text, candidate->text) != NULL,
                   "the text has no reason for %s (%s): %s", candidate->provider, reason, text);
        }
    }
    rdmux_explanation_free(explanation);
    rdmux_explanation_free(NULL);

    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, 0, &ep),
                  RDMUX_IN_PROGRESS);
    side_track(side, ep);
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_CONNECTED, NULL, RDMUX_NO_PATH);
    EXPECT_OK(rdmux_ep_explanation(ep, &explanation));
    expect_no_choice(side, explanation);
    rdmux_explanation_free(explanation);
    BARRIER(side);
    side_finish(side);
}

static void no_path_target(struct side *side)
{
    char filter[RDMUX_NAME_MAX + 1];
    struct rdmux_ep *ep = CTX(1);
    side_open(side, NULL);
    side_meet(side);
    (void)snprintf(filter, sizeof(filter), "!%s", side->provider);
    for (unsigned i = 0; i < 2; i++) {
        struct rdmux_ep_attr attr = ep_attr_of(side);
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        struct rdmux_explanation *explanation = NULL;
        EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peer));
        attr.peer = peer.id;
        attr.paths = filter;
        EXPECT_STATUS(rdmux_accept(side->listener, side->queue.cq, &attr, side->patient_ms, &ep),
                      RDMUX_NO_PATH);
        EXPECT(ep == NULL, "an endpoint after RDMUX_NO_PATH");
        EXPECT_OK(rdmux_last_explanation(&explanation));
        expect_no_choice(side, explanation);
        rdmux_explanation_free(explanation);
    }
    BARRIER(side);
    side_finish(side);
}

/* ---------------------------------------------------------- the choice, explained on both sides */

struct choice {
    char provider[RDMUX_NAME_MAX];
    uint64_t max_send;
    uint64_t max_recv;
    uint32_t security;
};

static void explained(struct side *side)
{
    struct choice mine = { .provider = "" };
    struct choice theirs;
    struct rdmux_explanation *explanation = NULL;
    const char *json = NULL;
    side_open_pair(side, NULL);
    EXPECT_OK(rdmux_ep_explanation(side->ep, &explanation));
    EXPECT_EQUAL(explanation->status, RDMUX_OK);
    EXPECT(explanation->chosen < explanation->candidate_count, "%u of %u is chosen",
           explanation->chosen, explanation->candidate_count);
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        EXPECT((candidate->reason == RDMUX_REASON_CHOSEN) == (i == explanation->chosen),
               "candidate %u (%s) has reason %s", i, candidate->provider,
               rdmux_reason_name((enum rdmux_reason)candidate->reason));
        EXPECT(candidate->reason != RDMUX_REASON_NONE, "candidate %u (%s) has no reason", i,
               candidate->provider);
        if (i != explanation->chosen) {
            EXPECT(candidate->text[0] != '\0', "candidate %u (%s) has no text", i,
                   candidate->provider);
        }
    }
    const struct rdmux_candidate *chosen = explanation->candidates[explanation->chosen];
    EXPECT(strcmp(chosen->provider, side->provider) == 0, "%s is chosen", chosen->provider);
    EXPECT_EQUAL(chosen->stage, RDMUX_STAGE_COMMIT);
    EXPECT_EQUAL(chosen->native, side->info.native);
    EXPECT_EQUAL(chosen->emulated, side->info.emulated);
    EXPECT_EQUAL(chosen->security, side->info.security);
    EXPECT(explanation->text != NULL && strstr(explanation->text, side->provider) != NULL,
           "the summary does not name the provider");
    EXPECT_OK(rdmux_explanation_json(explanation, &json));
    EXPECT(json != NULL && json[0] == '{' && strstr(json, "CHOSEN") != NULL,
           "not the JSON it should be: %s", json == NULL ? "NULL" : json);

    (void)snprintf(mine.provider, sizeof(mine.provider), "%s", side->info.provider);
    mine.max_send = side->info.max_send;
    mine.max_recv = side->info.max_recv;
    mine.security = side->info.security;
    GIVE(side, &mine, sizeof(mine));
    TAKE(side, &theirs, sizeof(theirs));
    EXPECT(strcmp(mine.provider, theirs.provider) == 0, "%s here, %s there", mine.provider,
           theirs.provider);
    EXPECT_EQUAL(mine.max_send, theirs.max_recv);
    EXPECT_EQUAL(mine.max_recv, theirs.max_send);
    EXPECT_EQUAL(mine.security, theirs.security);

    /* The explanation never changes, and outlives its endpoint. */
    side_close_ep(side, side->ep);
    EXPECT(strcmp(chosen->provider, side->provider) == 0, "the explanation changed");
    rdmux_explanation_free(explanation);
    BARRIER(side);
    while (queue_poll(&side->queue) > 0) {
        struct rdmux_wc wc = NEXT(&side->queue);
        FAIL("after close came %s", wc_text(&wc));
    }
    side_finish(side);
}

/* rdmux_explain() ranks paths without connecting; the listener is unaffected. */
static void dry_run_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_explanation *explanation = NULL;
    side_open(side, NULL);
    side_meet(side);
    EXPECT_STATUS(rdmux_explain(side->fabric, side->address, &attr, 0, &explanation), RDMUX_INVALID);
    EXPECT_OK(rdmux_explain(side->fabric, side->address, &attr, side->patient_ms, &explanation));
    EXPECT(explanation != NULL && explanation->chosen < explanation->candidate_count,
           "nothing is chosen");
    EXPECT(strcmp(explanation->candidates[explanation->chosen]->provider, side->provider) == 0,
           "%s would be chosen", explanation->candidates[explanation->chosen]->provider);
    rdmux_explanation_free(explanation);

    attr.require_native = ~UINT64_C(0) & ~side->caps->native &
                          (RDMUX_CAP_ATOMIC_DEVICE | NEEDS_ATOMICS);
    if (attr.require_native != 0) {
        EXPECT_STATUS(
            rdmux_explain(side->fabric, side->address, &attr, side->patient_ms, &explanation),
            RDMUX_NO_PATH);
        EXPECT(explanation != NULL, "RDMUX_NO_PATH without an explanation");
        expect_no_choice(side, explanation);
        rdmux_explanation_free(explanation);
    }
    (void)side_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void plain_target(struct side *side)
{
    side_open_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ demands */

static void demands_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_explanation *explanation = NULL;
    struct rdmux_ep *ep = NULL;
    uint64_t known = (RDMUX_CAP_TARGET_PASSIVE << 1) - 1;
    side_open(side, NULL);
    side_meet(side);
    uint64_t lacking = known & ~side->caps->native;
    GIVE(side, &lacking, sizeof(lacking));
    if (lacking != 0) {
        attr.require_native = lacking;
        EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr,
                                    side->patient_ms, &ep),
                      RDMUX_NO_PATH);
        EXPECT_OK(rdmux_last_explanation(&explanation));
        bool found = false;
        for (uint32_t i = 0; i < explanation->candidate_count; i++) {
            const struct rdmux_candidate *candidate = explanation->candidates[i];
            found = found || (strcmp(candidate->provider, side->provider) == 0 &&
                              candidate->reason == RDMUX_REASON_CAPABILITY_MISSING);
        }
        EXPECT(found, "no candidate has CAPABILITY_MISSING");
        rdmux_explanation_free(explanation);
    }
    attr.require_native = side->caps->native;
    attr.require = (side->caps->native | side->caps->emulated) &
                   ~(NEEDS_FAILOVER | NEEDS_BREAKS | NEEDS_CQ_CHANGE);
    (void)side_pair(side, &attr);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void demands_target(struct side *side)
{
    uint64_t lacking = 0;
    side_open(side, NULL);
    side_meet(side);
    TAKE(side, &lacking, sizeof(lacking));
    (void)side_pair(side, NULL); /* the connector without a path is dropped meanwhile */
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* ---------------------------------------------------------------------- choosing the peer */

static void private_initiator(struct side *side)
{
    uint8_t data[RDMUX_PRIVATE_DATA_MAX + 1];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    side_open(side, NULL);
    side_meet(side);
    pattern_fill(data, sizeof(data), side->seed, 0);
    attr.private_data = data;
    attr.private_length = RDMUX_PRIVATE_DATA_MAX + 1;
    EXPECT_STATUS(
        rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, side->patient_ms, &ep),
        RDMUX_INVALID);
    attr.private_length = RDMUX_PRIVATE_DATA_MAX;
    (void)side_pair(side, &attr);
    EXPECT_EQUAL(side->info.private_length, 5);
    EXPECT(memcmp(side->info.private_data, "hello", 5) == 0, "not the acceptor's data");
    (void)side_pair(side, NULL);
    side_finish(side);
}

static void private_target(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_info info;
    side_open(side, NULL);
    side_meet(side);
    EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peer));
    EXPECT(peer.id != 0, "an id is 0");
    EXPECT_EQUAL(peer.private_length, RDMUX_PRIVATE_DATA_MAX);
    EXPECT_PATTERN(peer.private_data, RDMUX_PRIVATE_DATA_MAX, side->seed);
    size_t host = strlen(side->other_host);
    EXPECT(strncmp(peer.address, side->other_host, host) == 0 && peer.address[host] == ':',
           "the peer's address is \"%s\", not of %s", peer.address, side->other_host);
    EXPECT((peer.identity[0] != '\0') == (side->auth.key_file != NULL),
           "the peer has%s authenticated, and the identity is \"%s\"",
           side->auth.key_file != NULL ? "" : " not", peer.identity);
    attr.peer = peer.id;
    attr.private_data = "hello";
    attr.private_length = 5;
    (void)side_pair(side, &attr);
    EXPECT_EQUAL(side->info.private_length, RDMUX_PRIVATE_DATA_MAX);
    EXPECT_PATTERN(side->info.private_data, RDMUX_PRIVATE_DATA_MAX, side->seed);
    struct rdmux_ep *second = side_pair(side, NULL);
    check_endpoint(side, second, &info);
    EXPECT_EQUAL(info.private_length, 0);
    side_finish(side);
}

/* Three connectors with distinct private data are shown oldest first and accepted in another order:
 * the second by id without waiting; the third is rejected; the first remains. */
static void by_id_initiator(struct side *side)
{
    struct rdmux_ep *eps[3];
    side_open(side, NULL);
    side_meet(side);
    for (uint8_t i = 0; i < 3; i++) {
        struct rdmux_ep_attr attr = ep_attr_of(side);
        attr.private_data = &i;
        attr.private_length = 1;
        EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, 0, &eps[i]),
                      RDMUX_IN_PROGRESS);
        side_track(side, eps[i]);
        BARRIER(side); /* it was shown */
    }
    (void)WAIT_OF(&side->queue, eps[1], RDMUX_WC_CONNECTED, NULL, RDMUX_OK);
    BARRIER(side);
    (void)WAIT_OF(&side->queue, eps[2], RDMUX_WC_CONNECTED, NULL, RDMUX_REFUSED);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    EXPECT_OK(rdmux_ep_info(eps[2], &info));
    EXPECT_EQUAL(info.reject_reason, 4711);
    EXPECT(info.private_length == 2 && memcmp(info.private_data, "no", 2) == 0,
           "the rejection's private data are %u other bytes", info.private_length);
    BARRIER(side);
    (void)WAIT_OF(&side->queue, eps[0], RDMUX_WC_CONNECTED, NULL, RDMUX_OK);

    /* a connector that waits for its refusal */
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *none = CTX(1);
    EXPECT_STATUS(
        rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, side->patient_ms, &none),
        RDMUX_REFUSED);
    EXPECT(none == NULL, "an endpoint after RDMUX_REFUSED");
    EXPECT(strstr(rdmux_last_error(), "4712") != NULL, "the text has no reason 4712: %s",
           rdmux_last_error());
    side_finish(side);
}

static void by_id_target(struct side *side)
{
    struct rdmux_peer peers[4];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    side_open(side, NULL);
    side_meet(side);
    for (uint8_t i = 0; i < 3; i++) {
        peers[i] = (struct rdmux_peer)RDMUX_PEER_INIT;
        EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peers[i]));
        EXPECT(peers[i].private_length == 1 && peers[i].private_data[0] == i,
               "connection %u is another", i);
        EXPECT(peers[i].id != 0 && (i == 0 || peers[i].id != peers[i - 1].id),
               "an id is used twice");
        BARRIER(side);
    }
    peers[3] = (struct rdmux_peer)RDMUX_PEER_INIT;
    EXPECT_STATUS(rdmux_listener_next(side->listener, 0, &peers[3]), RDMUX_AGAIN);

    attr.peer = peers[1].id;
    EXPECT_STATUS(rdmux_accept(side->listener, side->queue.cq, &attr, 0, &ep), RDMUX_IN_PROGRESS);
    EXPECT(ep != NULL, "IN_PROGRESS without an endpoint");
    side_track(side, ep);
    struct rdmux_wc wc = WAIT(&side->queue, RDMUX_WC_CONNECTED, NULL);
    EXPECT(wc.ep == ep, "CONNECTED of another endpoint");
    check_endpoint(side, ep, &side->info);
    EXPECT_EQUAL(side->info.private_data[0], 1);
    EXPECT_STATUS(rdmux_reject(side->listener, peers[1].id, 1, NULL, 0), RDMUX_INVALID);
    BARRIER(side);

    EXPECT_OK(rdmux_reject(side->listener, peers[2].id, 4711, "no", 2));
    EXPECT_STATUS(rdmux_reject(side->listener, peers[2].id, 4711, NULL, 0), RDMUX_INVALID);
    BARRIER(side);

    attr.peer = peers[0].id; /* accepting any would work, but might take the next one */
    ep = side_pair(side, &attr);
    check_endpoint(side, ep, &side->info);
    EXPECT_EQUAL(side->info.private_data[0], 0);

    peers[3] = (struct rdmux_peer)RDMUX_PEER_INIT;
    EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peers[3]));
    EXPECT_OK(rdmux_reject(side->listener, peers[3].id, 4712, NULL, 0));
    side_finish(side);
}

/* A listener that keeps one connection drops the one that waits longest when another comes. */
static void busy_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *eps[2];
    side_open(side, NULL);
    TAKE(side, side->address, sizeof(side->address));
    for (unsigned i = 0; i < 2; i++) {
        EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, 0, &eps[i]),
                      RDMUX_IN_PROGRESS);
        side_track(side, eps[i]);
        BARRIER(side); /* it was shown */
    }
    (void)WAIT_OF(&side->queue, eps[0], RDMUX_WC_CONNECTED, NULL, RDMUX_REFUSED);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    EXPECT_OK(rdmux_ep_info(eps[0], &info));
    EXPECT(info.reject_reason == RDMUX_REJECT_BUSY, "the reason is %u", info.reject_reason);
    BARRIER(side);
    (void)WAIT_OF(&side->queue, eps[1], RDMUX_WC_CONNECTED, NULL, RDMUX_OK);
    exercise(side, &side->queue, eps[1]);
    side_finish(side);
}

static void busy_target(struct side *side)
{
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_waiting_per_address = 1;
    side_open(side, NULL);
    EXPECT_OK(rdmux_listen(side->fabric, side_any_port(side), &attr, &side->listener));
    EXPECT_OK(rdmux_listener_address(side->listener, side->address, sizeof(side->address)));
    GIVE(side, side->address, sizeof(side->address));
    for (unsigned i = 0; i < 2; i++) {
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peer));
        BARRIER(side);
    }
    BARRIER(side);
    struct rdmux_ep *ep = side_pair(side, NULL);
    exercise(side, &side->queue, ep);
    side_finish(side);
}

/* Tests the listener's descriptor, and a connector that times out before it was accepted. */
static void gone_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    side_open(side, NULL);
    side_meet(side);
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, 0, &ep),
                  RDMUX_IN_PROGRESS);
    BARRIER(side); /* it was shown */
    EXPECT_OK(rdmux_ep_close(ep));
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    (void)side_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void gone_target(struct side *side)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    side_open(side, NULL);
    side_meet(side);
    struct pollfd wait = { .fd = rdmux_listener_fd(side->listener), .events = POLLIN };
    EXPECT(poll(&wait, 1, side->patient_ms) == 1, "the listener's descriptor does not wake");
    EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peer));
    BARRIER(side);
    BARRIER(side); /* the connector has closed */
    attr.peer = peer.id;
    enum rdmux_status status = rdmux_accept(side->listener, side->queue.cq, &attr, side->patient_ms,
                                            &ep);
    EXPECT(status == RDMUX_PEER_GONE || status == RDMUX_INVALID, "accepting one that left gave %s",
           rdmux_status_name(status));
    EXPECT(ep == NULL, "an endpoint of one that left");
    (void)side_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ many */

enum { MANY = 12 };

static void many_initiator(struct side *side)
{
    struct rdmux_ep *eps[MANY];
    side_open(side, NULL);
    side_meet(side);
    for (uint64_t i = 0; i < MANY; i++) {
        struct rdmux_ep_attr attr = ep_attr_of(side);
        EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, 0, &eps[i]),
                      RDMUX_IN_PROGRESS);
        side_track(side, eps[i]);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        (void)WAIT_OF(&side->queue, eps[i], RDMUX_WC_CONNECTED, NULL, RDMUX_OK);
        EXPECT_OK(rdmux_send(eps[i], &i, 8, NULL, CTX(i), RDMUX_INLINE));
    }
    for (uint64_t i = 0; i < MANY; i++) {
        (void)WAIT_OF(&side->queue, eps[i], RDMUX_WC_SEND, CTX(i), RDMUX_OK);
    }
    side_finish(side);
}

static void many_target(struct side *side)
{
    uint64_t words[MANY];
    unsigned seen[MANY] = { 0 };
    side_open(side, NULL);
    side_meet(side);
    for (uint64_t i = 0; i < MANY; i++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        EXPECT_OK(rdmux_recv(ep, &words[i], 8, NULL, CTX(i)));
    }
    rdmux_listener_close(side->listener); /* endpoints do not depend on the listener */
    side->listener = NULL;
    for (uint64_t i = 0; i < MANY; i++) {
        (void)WAIT_OF(&side->queue, side->eps[i], RDMUX_WC_RECV, CTX(i), RDMUX_OK);
        EXPECT(words[i] < MANY && ++seen[words[i]] == 1, "message %" PRIu64 " came twice", words[i]);
    }
    side_finish(side);
}

/* Closing a listener drops the connections that it has not handed out. */
static void closed_listener_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    side_open(side, NULL);
    side_meet(side);
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, 0, &ep),
                  RDMUX_IN_PROGRESS);
    side_track(side, ep);
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_CONNECTED &&
               (wc.status == RDMUX_REFUSED || wc.status == RDMUX_PEER_GONE),
           "got %s", wc_text(&wc));
    side_finish(side);
}

static void closed_listener_target(struct side *side)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    side_open(side, NULL);
    side_meet(side);
    EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peer));
    rdmux_listener_close(side->listener);
    side->listener = NULL;
    side_finish(side);
}

/* ------------------------------------------------------------------------------ addresses */

static void addresses(struct side *side)
{
    static const char *const wrong[] = { "127.0.0.1:70000", "127.0.0.1:x", "[::1", "127.0.0.1:1:2" };
    struct rdmux_listener *first = NULL;
    struct rdmux_listener *second = CTX(1);
    char address[RDMUX_ADDRESS_MAX];
    side_open(side, NULL);
    EXPECT_OK(rdmux_listen(side->fabric, "localhost:0", NULL, &first));
    EXPECT_OK(rdmux_listener_address(first, address, sizeof(address)));
    EXPECT(strncmp(address, "127.0.0.1:", 10) == 0 || strncmp(address, "[::1]:", 6) == 0,
           "localhost is \"%s\"", address);
    EXPECT(strcmp(strrchr(address, ':'), ":0") != 0, "the port picked is 0");
    EXPECT_STATUS(rdmux_listener_address(first, address, 10), RDMUX_INVALID);
    EXPECT_OK(rdmux_listener_address(first, address, sizeof(address)));
    EXPECT_STATUS(rdmux_listen(side->fabric, address, NULL, &second), RDMUX_IO);
    EXPECT(second == NULL, "a listener after RDMUX_IO");
    EXPECT(strstr(rdmux_last_error(), strrchr(address, ':')) != NULL,
           "the text does not name %s: %s", address, rdmux_last_error());
    EXPECT_STATUS(rdmux_listen(side->fabric, "192.0.2.1:0", NULL, &second),
                  RDMUX_IO); /* not local */
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct rdmux_ep *ep = CTX(1);
        STAND(wrong[i]);
        EXPECT(rdmux_listen(side->fabric, wrong[i], NULL, &second) == RDMUX_INVALID,
               "listen on \"%s\"", wrong[i]);
        EXPECT(rdmux_connect(side->fabric, side->queue.cq, wrong[i], NULL, side->patient_ms, &ep) ==
                   RDMUX_INVALID,
               "connect to \"%s\"", wrong[i]);
        EXPECT(second == NULL && ep == NULL, "an object after RDMUX_INVALID");
    }
    rdmux_listener_close(first);
    rdmux_listener_close(NULL);
    side_finish(side);
}

static void alone(struct side *side)
{
    side_open(side, NULL);
    side_finish(side);
}

/* Tests IPv6 and names. On a machine without IPv6 the error must be that of the system's own
 * bind. */
static bool has_ipv6(void)
{
    struct sockaddr_in6 name = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = fd >= 0 && bind(fd, (const struct sockaddr *)&name, sizeof(name)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return can;
}

static void ipv6_initiator(struct side *side)
{
    uint8_t can = 0;
    side_open(side, NULL);
    TAKE(side, &can, 1);
    if (can != 0) {
        TAKE(side, side->address, sizeof(side->address));
        (void)side_pair(side, NULL);
        EXPECT(strncmp(side->info.peer_address, "[::1]:", 6) == 0, "the peer's address is %s",
               side->info.peer_address);
        exercise(side, &side->queue, side->ep);
    }
    side_finish(side);
}

static void ipv6_target(struct side *side)
{
    uint8_t can = has_ipv6() ? 1 : 0;
    side_open(side, NULL);
    GIVE(side, &can, 1);
    if (can == 0) {
        EXPECT_STATUS(rdmux_listen(side->fabric, "[::1]:0", NULL, &side->listener), RDMUX_IO);
    } else {
        EXPECT_OK(rdmux_listen(side->fabric, "[::1]:0", NULL, &side->listener));
        EXPECT_OK(rdmux_listener_address(side->listener, side->address, sizeof(side->address)));
        EXPECT(strncmp(side->address, "[::1]:", 6) == 0, "the address is %s", side->address);
        GIVE(side, side->address, sizeof(side->address));
        (void)side_pair(side, NULL);
        exercise(side, &side->queue, side->ep);
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "N.2, N.3, 6.13, -N.2",
      "while a connect without waiting is under way receives and imports are taken and other posts "
      "give AGAIN; then CONNECTED",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_SETTLED, 0, 0, later_initiator, later_target },
    { "N.4, 11.3, -11.3, -N.4",
      "a connect to an address without a listener is REFUSED, waiting or not, and the text names "
      "the address",
      0, 0, 0, refused_by_nobody, alone },
    { "N.4, -N.4",
      "a connector that a listener drops beyond its limits is REFUSED, and told to try again later",
      0, 0, 0, busy_initiator, busy_target },
    { "N.5, 11.1, 9.12, -9.12, -N.5, -N.1",
      "a connect to a peer that never answers ends after its timeout, or is cancelled by close", 0,
      0, 0, silent_listener, alone },
    { "11.1, 11.2, -11.2",
      "without a connector, accept and next give AGAIN or TIMED_OUT; an unknown peer is INVALID", 0,
      0, 0, nothing_to_accept, alone },
    { "N.6, N.7, -N.6",
      "NO_PATH gives both sides each candidate's reason, in text, structs and JSON", 0, 0, 0,
      no_path_initiator, no_path_target },
    { "N.7, N.8",
      "both sides of an endpoint have the same provider and an explanation of every candidate", 0,
      0, 0, explained, explained },
    { "N.9", "rdmux_explain reports what connect would choose, and leaves the listener as it was",
      0, 0, 0, dry_run_initiator, plain_target },
    { "N.10, -N.10",
      "a path without a capability that is required natively is not eligible: CAPABILITY_MISSING",
      0, 0, 0, demands_initiator, demands_target },
    { "N.11, -N.11",
      "up to 196 bytes of private data reach the peer, both ways, and more is INVALID", 0, 0, 0,
      private_initiator, private_target },
    { "N.12, N.13, -N.13",
      "connections are shown oldest first, and accepted or rejected by id in any order", 0, 0, 0,
      by_id_initiator, by_id_target },
    { "N.12, -N.12",
      "a connector that left before it was accepted becomes no endpoint, and disturbs no other "
      "connection",
      0, 0, 0, gone_initiator, gone_target },
    { "N.14, 15.4", "a dozen connectors at once are all accepted, and outlive their listener",
      NEEDS_SEND, 0, 0, many_initiator, many_target },
    { "N.14", "closing a listener ends the connections that no accept has returned", 0, 0, 0,
      closed_listener_initiator, closed_listener_target },
    { "N.15, -N.15",
      "a listener takes names and ports, reports its numeric address, and refuses an address that "
      "is in use, foreign or malformed",
      0, 0, 0, addresses, alone },
    { "N.15", "IPv6 works as IPv4 does, or listening on it fails as bind does", 0, 0, CASE_ONE_HOST,
      ipv6_initiator, ipv6_target },
};

const struct suite connect_suite = { "connect", cases, COUNT_OF(cases) };
