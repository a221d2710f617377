/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The handshake until the ranking is known: HELLO, OFFER, limits, the transcript hash, RANKING. */
#include "negotiation/handshake_internal.h"

#include "api/system/system.h"
#include "negotiation/auth_methods.h"
#include "negotiation/transcript.h"

#include <string.h>

enum {
    DEFAULT_EXPECTED_SIZE = 4096,
    BANDWIDTH_EXPECTED_SIZE = 1 << 20,
    LIVENESS_MIN_MS = 100,
};

static struct rdmux_hello hello_of_config(const struct rdmux_handshake_config *config)
{
    struct rdmux_hello hello = config->hello;
    hello.version_min = RDMUX_WIRE_VERSION;
    hello.version_max = RDMUX_WIRE_VERSION;
    hello.epoch = hello.epoch == 0 ? 1 : hello.epoch;
    hello.flags &= ~(uint32_t)RDMUX_HELLO_HASH;
    if (rdmux_transcript_available()) {
        hello.flags |= RDMUX_HELLO_HASH;
    }
    if (config->role == RDMUX_ROLE_ACCEPT) {
        hello.flags &= ~(uint32_t)RDMUX_HELLO_EXPLAIN_ONLY;
    }
    return hello;
}

enum rdmux_status rdmux_handshake_greeting_init(struct rdmux_handshake *handshake,
                                                const struct rdmux_handshake_config *config)
{
    handshake->hello = hello_of_config(config);
    memcpy(&handshake->offer, config->offer, rdmux_offer_used(config->offer));
    handshake->greeting.is_secured = config->is_secured;
    handshake->greeting.timeout_ms = config->hello_timeout_ms;
    uint8_t *at = handshake->greeting.opening;
    rdmux_hello_encode(&handshake->hello, at);
    at += RDMUX_HELLO_SIZE;
    size_t size = RDMUX_OFFER_BYTES_MAX;
    enum rdmux_status status = rdmux_offer_encode(&handshake->offer, at + RDMUX_FRAME_HEADER_SIZE,
                                                  &size);
    if (status != RDMUX_OK) {
        return status;
    }
    rdmux_frame_header_encode(RDMUX_FRAME_OFFER, 0, size, at);
    handshake->greeting.opening_size = RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE + size;
    return RDMUX_OK;
}

void rdmux_handshake_wipe(struct rdmux_handshake *handshake)
{
    if (handshake == NULL) {
        return;
    }
    /* Only the secrets: most of this memory was never touched. */
    rdmux_wipe(handshake->granted.secret, sizeof(handshake->granted.secret));
    rdmux_wipe(handshake->offer.secret, sizeof(handshake->offer.secret));
    rdmux_wipe(handshake->peer_offer.secret, sizeof(handshake->peer_offer.secret));
    rdmux_wipe(handshake->greeting.opening, handshake->greeting.opening_size);
}

/* Sends the first size bytes of this side's HELLO and OFFER. */
static void send_opening_bytes(struct rdmux_handshake *handshake, size_t size)
{
    struct rdmux_handshake_action *action = rdmux_handshake_push(handshake, RDMUX_ACTION_SEND);
    if (action != NULL) {
        action->bytes = handshake->greeting.opening;
        action->size = size;
    }
}

void rdmux_handshake_send_opening(struct rdmux_handshake *handshake)
{
    send_opening_bytes(handshake, handshake->greeting.opening_size);
}

static uint64_t smaller_value(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void grant_limits(struct rdmux_handshake *handshake)
{
    const struct rdmux_offer *ours = &handshake->offer;
    const struct rdmux_offer *theirs = &handshake->peer_offer;
    struct rdmux_handshake_granted *granted = &handshake->granted;
    granted->version = RDMUX_WIRE_VERSION;
    const struct rdmux_message_limits messages = rdmux_match_messages(ours, theirs, 0);
    granted->max_send = messages.send; /* until a path is opened */
    granted->max_recv = messages.receive;
    granted->liveness_ms = (uint32_t)smaller_value(ours->liveness_ms, theirs->liveness_ms);
    granted->data_sockets = (uint32_t)smaller_value(ours->data_sockets, theirs->data_sockets);
    granted->path_timeout_ms = (uint32_t)smaller_value(ours->path_timeout_ms,
                                                       theirs->path_timeout_ms);
    /* An untrusted peer may have sent any values. */
    if (granted->liveness_ms < LIVENESS_MIN_MS) {
        granted->liveness_ms = LIVENESS_MIN_MS;
    }
    if (granted->data_sockets == 0) {
        granted->data_sockets = 1;
    }
    if (granted->data_sockets > RDMUX_DATA_SOCKETS_MAX) {
        granted->data_sockets = RDMUX_DATA_SOCKETS_MAX;
    }
    if (granted->path_timeout_ms == 0) {
        granted->path_timeout_ms = RDMUX_DEFAULT_PATH_TIMEOUT_MS;
    }
    memcpy(granted->secret, is_acceptor(handshake) ? ours->secret : theirs->secret,
           sizeof(granted->secret));
}

/* offer_frame: the peer's, as received. */
static bool hash_transcript(struct rdmux_handshake *handshake, const uint8_t *offer_frame,
                            size_t size)
{
    if ((handshake->hello.flags & handshake->peer_hello.flags & RDMUX_HELLO_HASH) == 0) {
        handshake->greeting.hash_kind = RDMUX_HASH_NONE;
        return true;
    }
    const struct rdmux_transcript_piece ours = { handshake->greeting.opening,
                                                 handshake->greeting.opening_size };
    const struct rdmux_transcript_piece hello = { handshake->greeting.peer_hello_bytes,
                                                  RDMUX_HELLO_SIZE };
    const struct rdmux_transcript_piece offer = { offer_frame, size };
    const struct rdmux_transcript_piece as_acceptor[] = { hello, offer, ours };
    const struct rdmux_transcript_piece as_connector[] = { ours, hello, offer };

    handshake->greeting.hash_kind = RDMUX_HASH_SHA256;
    return rdmux_transcript_hash(is_acceptor(handshake) ? as_acceptor : as_connector, 3,
                                 handshake->greeting.hash) == RDMUX_OK;
}

bool rdmux_handshake_hash_matches(const struct rdmux_handshake *handshake,
                                  const struct rdmux_attempt_frame *frame)
{
    return handshake->greeting.hash_kind == RDMUX_HASH_NONE ||
           (frame->hash_kind == handshake->greeting.hash_kind &&
            memcmp(frame->hash, handshake->greeting.hash, sizeof(frame->hash)) == 0);
}

void rdmux_handshake_send_hash(struct rdmux_handshake *handshake, enum rdmux_frame_type type)
{
    struct rdmux_attempt_frame frame = { .type = type, .hash_kind = handshake->greeting.hash_kind };
    memcpy(frame.hash, handshake->greeting.hash, sizeof(frame.hash));
    rdmux_handshake_send_frame(handshake, &frame);
}

static void refuse_version(struct rdmux_handshake *handshake, const char *text)
{
    if (is_acceptor(handshake)) {
        /* The connector can tell its application the same then. */
        send_opening_bytes(handshake, RDMUX_HELLO_SIZE);
    }
    rdmux_handshake_connection_over(handshake, RDMUX_VERSION, false, "%s", text);
}

/* With authentication both HELLOs go through the authenticated session; without it the connection
 * fails if either side asks for authentication. */
static bool methods_agree(struct rdmux_handshake *handshake, const struct rdmux_hello *hello)
{
    uint32_t ours = handshake->hello.authentication;
    uint32_t theirs = hello->authentication;
    if (handshake->greeting.is_secured ? (ours & theirs) != 0 : ours == 0 && theirs == 0) {
        return true;
    }
    if (is_acceptor(handshake)) {
        /* The connector can tell its application the same then. */
        send_opening_bytes(handshake, RDMUX_HELLO_SIZE);
    }
    char text[RDMUX_TEXT_MAX];
    rdmux_auth_explain_mismatch(ours, theirs, text, sizeof(text));
    rdmux_handshake_connection_over(handshake, RDMUX_AUTH, false, "authentication: %s", text);
    return false;
}

void rdmux_handshake_take_hello(struct rdmux_handshake *handshake,
                                const struct handshake_happening *what)
{
    static const uint8_t nothing[16] = { 0 };
    struct rdmux_hello hello = { .epoch = 0 };
    enum rdmux_status status = what->size == RDMUX_HELLO_SIZE
                                   ? rdmux_hello_decode(what->bytes, what->size, &hello)
                                   : RDMUX_PROTOCOL;
    if (status == RDMUX_VERSION) {
        refuse_version(handshake, "the peer's host has another byte order");
        return;
    }
    if (status != RDMUX_OK) {
        rdmux_handshake_connection_over(handshake, status, false,
                                        "the peer did not introduce itself as rdmux");
        return;
    }
    handshake->peer_hello = hello;
    handshake->greeting.has_peer_hello = true;
    memcpy(handshake->greeting.peer_hello_bytes, what->bytes, RDMUX_HELLO_SIZE);
    if (hello.version_min > RDMUX_WIRE_VERSION || hello.version_max < RDMUX_WIRE_VERSION) {
        refuse_version(handshake, "the peer speaks no version of the protocol that we speak");
        return;
    }
    if (!methods_agree(handshake, &hello)) {
        return;
    }
    if (hello.epoch != handshake->hello.epoch ||
        memcmp(hello.resume, nothing, sizeof(nothing)) != 0) {
        rdmux_handshake_connection_over(
            handshake, RDMUX_PROTOCOL, false,
            "the peer wants to resume a connection, which version %d cannot", RDMUX_WIRE_VERSION);
    }
}

/* False: the connection is over. */
static bool take_offer(struct rdmux_handshake *handshake, const struct handshake_happening *what)
{
    if (rdmux_offer_decode(what->bytes + RDMUX_FRAME_HEADER_SIZE,
                           what->size - RDMUX_FRAME_HEADER_SIZE,
                           &handshake->peer_offer) != RDMUX_OK) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer's OFFER is malformed");
        return false;
    }
    handshake->greeting.has_peer_offer = true;
    grant_limits(handshake);
    if (!hash_transcript(handshake, what->bytes, what->size)) {
        rdmux_handshake_connection_over(handshake, RDMUX_NO_MEMORY, false,
                                        "no memory for the transcript hash");
        return false;
    }
    return true;
}

void rdmux_handshake_take_acceptors_offer(struct rdmux_handshake *handshake,
                                          const struct handshake_happening *what)
{
    (void)take_offer(handshake, what);
}

static uint64_t size_wish(const struct rdmux_offer *offer)
{
    if (offer->typical_size != 0) {
        return offer->typical_size;
    }
    switch (offer->prefer) {
    case RDMUX_PREFER_LATENCY:
        return DEFAULT_EXPECTED_SIZE;
    case RDMUX_PREFER_BANDWIDTH:
        return BANDWIDTH_EXPECTED_SIZE;
    default:
        return 0;
    }
}

static uint64_t expected_size(const struct rdmux_offer *connectors,
                              const struct rdmux_offer *acceptors)
{
    uint64_t size = size_wish(connectors);
    if (size == 0) {
        size = size_wish(acceptors);
    }
    return size == 0 ? DEFAULT_EXPECTED_SIZE : size;
}

static void count_ranked_matches(struct rdmux_handshake *handshake)
{
    size_t ranked = 0;
    while (ranked < handshake->match_count && handshake->matches[ranked].rank != 0) {
        ranked++;
    }
    handshake->ranked_count = ranked;
}

bool rdmux_handshake_send_ranking(struct rdmux_handshake *handshake)
{
    count_ranked_matches(handshake);
    uint8_t *frame = rdmux_handshake_arena_reserve(handshake, RDMUX_RANKING_FRAME_MAX);
    struct rdmux_handshake_action *action = frame != NULL
                                                ? rdmux_handshake_push(handshake, RDMUX_ACTION_SEND)
                                                : NULL;
    if (action == NULL) {
        return false;
    }
    action->bytes = frame;
    action->size = rdmux_ranking_encode(handshake->matches, handshake->match_count, frame);
    rdmux_handshake_arena_keep(handshake, action->size);
    return true;
}

bool rdmux_handshake_take_connectors_offer(struct rdmux_handshake *handshake,
                                           const struct handshake_happening *what)
{
    if (!take_offer(handshake, what)) {
        return false;
    }
    rdmux_handshake_send_opening(handshake);
    handshake->expected_size = expected_size(&handshake->peer_offer, &handshake->offer);
    handshake->match_count = rdmux_match_paths(&handshake->offer, &handshake->peer_offer,
                                               handshake->expected_size, handshake->matches);
    return true;
}

bool rdmux_handshake_read_ranking(struct rdmux_handshake *handshake,
                                  const struct handshake_happening *what)
{
    size_t count = 0;
    if (rdmux_ranking_decode(what->bytes, what->size, &handshake->offer, &handshake->peer_offer,
                             handshake->matches, &count) != RDMUX_OK) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer's RANKING is malformed");
        return false;
    }
    handshake->match_count = count;
    count_ranked_matches(handshake);
    return true;
}

void rdmux_handshake_greeting_overdue(struct rdmux_handshake *handshake,
                                      const struct handshake_happening *what)
{
    (void)what;
    rdmux_handshake_connection_over(
        handshake, RDMUX_TIMED_OUT, false, "the peer did not answer within %u ms (%s)",
        (unsigned)handshake->greeting.timeout_ms, rdmux_handshake_facts[handshake->state].name);
}

const struct rdmux_handshake_granted *rdmux_handshake_granted(const struct rdmux_handshake *handshake)
{
    return &handshake->granted;
}

const struct rdmux_hello *rdmux_handshake_peer_hello(const struct rdmux_handshake *handshake)
{
    return handshake->greeting.has_peer_hello ? &handshake->peer_hello : NULL;
}

const struct rdmux_offer *rdmux_handshake_peer_offer(const struct rdmux_handshake *handshake)
{
    return handshake->greeting.has_peer_offer ? &handshake->peer_offer : NULL;
}
