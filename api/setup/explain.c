/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_explain(): asks the peer what a connection would get, without making one. */
#include "negotiation/explain.h"
#include "api/base/address.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "api/loop/service.h"
#include "api/loop/worker.h"
#include "api/object/ep.h"
#include "api/object/offer.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"
#include "api/system/system.h"
#include "negotiation/control_capture.h"
#include "negotiation/tls.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A separate control connection, on the caller's thread. */
struct explaining {
    struct rdmux_fabric *fabric;
    const char *address;
    int socket;
    struct rdmux_tls *tls; /* NULL: in clear */
    uint64_t until_ns;     /* UINT64_MAX: never */
    uint8_t *bytes;        /* room for the largest frame */
};

/* Waits until poll(2) reports events on fd. late: names in the error text what has not happened by
 * the timeout. */
static enum rdmux_status wait_for(const struct explaining *explaining, int fd, short events,
                                  const char *late)
{
    for (;;) {
        uint64_t now = rdmux_now(explaining->fabric);
        if (now >= explaining->until_ns) {
            return rdmux_fail(RDMUX_TIMED_OUT, "%s: %s in time", explaining->address, late);
        }
        uint64_t ms = explaining->until_ns == UINT64_MAX
                          ? 1000
                          : (explaining->until_ns - now) / 1000000 + 1;
        if (rdmux_fabric_is_manual(explaining->fabric)) {
            rdmux_service_step(explaining->fabric, 0); /* the listener may belong to this fabric */
            ms = ms > 5 ? 5 : ms;
        }
        struct pollfd look = { .fd = fd, .events = events };
        if (poll(&look, 1, ms > INT_MAX ? INT_MAX : (int)ms) > 0) {
            return RDMUX_OK;
        }
    }
}

static enum rdmux_status wait_for_peer(const struct explaining *explaining, short events)
{
    return wait_for(explaining, explaining->socket, events, "the listener did not answer");
}

/* A name resolution by the worker thread. A caller whose time is over does not wait for the worker;
 * the last of both to finish frees the lookup. */
struct lookup {
    struct rdmux_job job;
    struct rdmux_fabric *fabric;
    struct rdmux_address_text text;
    struct addrinfo *addresses;
    enum rdmux_status status;
    char error[RDMUX_TEXT_MAX];
    struct rdmux_wake done; /* signalled when the worker is done */
    _Atomic uint32_t refs;
};

static void put_lookup(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->refs, 1) != 1) {
        return;
    }
    if (lookup->addresses != NULL) {
        freeaddrinfo(lookup->addresses);
    }
    rdmux_wake_close(&lookup->done);
    rdmux_release(lookup->fabric, lookup);
}

static void look_up(struct rdmux_job *job)
{
    struct lookup *lookup = RDMUX_CONTAINER(job, struct lookup, job);
    lookup->status = rdmux_address_resolve(&lookup->text, false, false, &lookup->addresses);
    if (lookup->status != RDMUX_OK) {
        snprintf(lookup->error, sizeof(lookup->error), "%s", rdmux_last_error());
    }
    rdmux_wake_signal(&lookup->done);
    put_lookup(lookup);
}

static enum rdmux_status take_addresses(struct lookup *lookup, struct addrinfo **out)
{
    rdmux_wake_drain(&lookup->done); /* orders the reads below after the worker's writes */
    if (lookup->status != RDMUX_OK) {
        return rdmux_fail(lookup->status, "%s", lookup->error);
    }
    *out = lookup->addresses;
    lookup->addresses = NULL;
    return RDMUX_OK;
}

/* Resolves the address; the worker thread does what may block for longer than the timeout. */
static enum rdmux_status resolve_address(const struct explaining *explaining,
                                         const struct rdmux_address_text *text,
                                         struct addrinfo **out)
{
    enum rdmux_status status = rdmux_address_resolve(text, false, true, out);
    if (status != RDMUX_AGAIN) {
        return status;
    }
    struct lookup *lookup = rdmux_allocate(explaining->fabric, sizeof(*lookup));
    if (lookup == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_explain: out of memory");
    }
    lookup->job.work = look_up;
    lookup->fabric = explaining->fabric;
    lookup->text = *text;
    atomic_store(&lookup->refs, 1);
    if (rdmux_wake_open(&lookup->done) != 0) {
        status = rdmux_fail(
            RDMUX_NO_MEMORY,
            "rdmux_explain: no descriptor to be had (errno %d); raise the limit with ulimit -n",
            errno);
    } else {
        atomic_store(&lookup->refs, 2);
        rdmux_worker_run(explaining->fabric, &lookup->job);
        status = wait_for(explaining, lookup->done.fd, POLLIN, "the name was not resolved");
    }
    if (status == RDMUX_OK) {
        status = take_addresses(lookup, out);
    }
    put_lookup(lookup);
    return status;
}

static enum rdmux_status dial_listener(struct explaining *explaining, struct sockaddr_storage *peer,
                                       socklen_t *peer_length)
{
    const char *address = explaining->address;
    struct rdmux_address_text text;
    struct addrinfo *addresses = NULL;
    enum rdmux_status status = rdmux_address_split(address, &text);
    if (status == RDMUX_OK && text.host[0] == '\0') {
        status = rdmux_fail(RDMUX_INVALID, "address \"%s\": a host is missing; write HOST:PORT",
                            address);
    }
    if (status == RDMUX_OK) {
        status = resolve_address(explaining, &text, &addresses);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    int error = 0;
    status = RDMUX_REFUSED;
    for (struct addrinfo *at = addresses; at != NULL; at = at->ai_next) {
        const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
        explaining->socket = socket(at->ai_family, type, 0);
        if (explaining->socket < 0 && rdmux_descriptors_retry(explaining->fabric, errno)) {
            explaining->socket = socket(at->ai_family, type, 0);
        }
        if (explaining->socket < 0) {
            error = errno;
            continue;
        }
        error = connect(explaining->socket, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS) {
            status = wait_for_peer(explaining, POLLOUT);
            socklen_t length = sizeof(error);
            if (status != RDMUX_OK ||
                getsockopt(explaining->socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
                error = ETIMEDOUT;
            }
        }
        if (error == 0) {
            memcpy(peer, at->ai_addr, at->ai_addrlen);
            *peer_length = at->ai_addrlen;
            status = RDMUX_OK;
            break;
        }
        close(explaining->socket);
        explaining->socket = -1;
    }
    char why[RDMUX_TEXT_MAX];
    rdmux_address_explain_refusal(addresses, why, sizeof(why));
    freeaddrinfo(addresses);
    if (status == RDMUX_OK && explaining->socket >= 0) {
        return RDMUX_OK;
    }
    if (error == ECONNREFUSED) {
        return rdmux_fail(RDMUX_REFUSED, "%s: %s", address, why);
    }
    bool full = error == EMFILE || error == ENFILE;
    return rdmux_fail(full                 ? RDMUX_NO_MEMORY
                      : error == ETIMEDOUT ? RDMUX_TIMED_OUT
                                           : RDMUX_IO,
                      "%s: %s; %s", address, strerror(error),
                      full ? "raise the limit with ulimit -n"
                           : "check the address and the route to it");
}

/* Like send_all(), through the TLS session. */
static enum rdmux_status send_secured(struct explaining *explaining, const uint8_t *bytes,
                                      size_t size)
{
    while (size != 0) {
        size_t done = 0;
        enum rdmux_status status = rdmux_tls_send(explaining->tls, bytes, size, &done);
        if (status == RDMUX_AGAIN) {
            status = wait_for_peer(explaining,
                                   rdmux_tls_wants_room(explaining->tls) ? POLLOUT : POLLIN);
        }
        if (status != RDMUX_OK) {
            return status;
        }
        bytes += done;
        size -= done;
    }
    return RDMUX_OK;
}

static enum rdmux_status send_all(struct explaining *explaining, const uint8_t *bytes, size_t size)
{
    rdmux_capture_control(explaining->fabric, explaining->socket, RDMUX_CAPTURE_OUT, bytes, size,
                          explaining->tls != NULL);
    if (explaining->tls != NULL) {
        return send_secured(explaining, bytes, size);
    }
    while (size != 0) {
        ssize_t sent = send(explaining->socket, bytes, size, MSG_NOSIGNAL);
        if (sent > 0) {
            bytes += sent;
            size -= (size_t)sent;
        } else if (errno == EAGAIN) {
            enum rdmux_status status = wait_for_peer(explaining, POLLOUT);
            if (status != RDMUX_OK) {
                return status;
            }
        } else if (errno != EINTR) {
            return rdmux_fail(RDMUX_PEER_GONE, "the listener closed the connection: %s",
                              strerror(errno));
        }
    }
    return RDMUX_OK;
}

/* Receives at least one byte. */
static enum rdmux_status receive_secured(struct explaining *explaining, uint8_t *out, size_t size,
                                         size_t *got)
{
    for (;;) {
        enum rdmux_status status = rdmux_tls_receive(explaining->tls, out, size, got);
        if (status == RDMUX_AGAIN) {
            status = wait_for_peer(explaining,
                                   rdmux_tls_wants_room(explaining->tls) ? POLLOUT : POLLIN);
            if (status == RDMUX_OK) {
                continue;
            }
        }
        return status;
    }
}

static enum rdmux_status receive_frame(struct explaining *explaining, bool first, size_t *size)
{
    size_t have = 0;
    for (;;) {
        bool bad = false;
        size_t total = rdmux_frame_total(explaining->bytes, have, first, &bad);
        if (bad) {
            return rdmux_fail(RDMUX_PROTOCOL, "what listens there does not speak rdmux");
        }
        if (total != 0 && have == total) {
            rdmux_capture_control(explaining->fabric, explaining->socket, RDMUX_CAPTURE_IN,
                                  explaining->bytes, total, explaining->tls != NULL);
            *size = total;
            return RDMUX_OK;
        }
        size_t want = total == 0 ? RDMUX_FRAME_HEADER_SIZE : total;
        if (explaining->tls != NULL) {
            size_t more = 0;
            enum rdmux_status status = receive_secured(explaining, explaining->bytes + have,
                                                       want - have, &more);
            if (status != RDMUX_OK) {
                return status;
            }
            have += more;
            continue;
        }
        ssize_t got = recv(explaining->socket, explaining->bytes + have, want - have, 0);
        if (got > 0) {
            have += (size_t)got;
        } else if (got == 0) {
            return rdmux_fail(RDMUX_PEER_GONE, "the listener closed the connection");
        } else if (errno == EAGAIN) {
            enum rdmux_status status = wait_for_peer(explaining, POLLIN);
            if (status != RDMUX_OK) {
                return status;
            }
        } else if (errno != EINTR) {
            return rdmux_fail(RDMUX_PEER_GONE, "the connection broke: %s", strerror(errno));
        }
    }
}

/* Runs the handshake to its end, which explain_only puts before any action on a path. */
static enum rdmux_status talk_to_listener(struct explaining *explaining,
                                          struct rdmux_handshake *handshake)
{
    bool first = true;
    for (;;) {
        struct rdmux_handshake_action action;
        rdmux_handshake_next(handshake, &action);
        enum rdmux_status status = RDMUX_OK;
        size_t size = 0;
        switch (action.kind) {
        case RDMUX_ACTION_SEND:
            status = send_all(explaining, action.bytes, action.size);
            break;
        case RDMUX_ACTION_NONE:
            status = receive_frame(explaining, first, &size);
            first = false;
            if (status == RDMUX_OK) {
                rdmux_handshake_frame(handshake, explaining->bytes, size,
                                      rdmux_now(explaining->fabric));
            }
            break;
        case RDMUX_ACTION_DONE:
            return RDMUX_OK;
        case RDMUX_ACTION_FAIL:
            return rdmux_fail(action.status, "%s", action.text == NULL ? "" : action.text);
        case RDMUX_ACTION_OPEN:
        case RDMUX_ACTION_CHOOSE:
        case RDMUX_ACTION_CONNECT:
        case RDMUX_ACTION_WRITE_PROOF:
        case RDMUX_ACTION_CHECK_PROOF:
        case RDMUX_ACTION_MEASURE:
        case RDMUX_ACTION_CLOSE_PATH:
            return rdmux_fail(RDMUX_PROTOCOL,
                              "the listener wants to connect, although only asked to rank");
        }
        if (status != RDMUX_OK) {
            return status;
        }
    }
}

static enum rdmux_status make_explanation(enum rdmux_status status,
                                          const struct rdmux_handshake *handshake,
                                          const char *peer_address, struct rdmux_fabric *fabric,
                                          struct rdmux_explanation **out)
{
    struct rdmux_candidate *candidates = rdmux_allocate(fabric,
                                                        RDMUX_MATCH_MAX * sizeof(*candidates));
    if (candidates == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_explain: out of memory");
    }
    size_t count = rdmux_handshake_candidates(handshake, candidates, RDMUX_MATCH_MAX);
    bool chosen = false;
    for (size_t i = 0; i < count; i++) {
        chosen = chosen || candidates[i].reason == RDMUX_REASON_CHOSEN;
    }
    if (status == RDMUX_OK && !chosen) {
        char text[RDMUX_ERROR_MAX];
        rdmux_explain_no_path(candidates, count, text, sizeof(text));
        status = rdmux_fail(RDMUX_NO_PATH, "%s", text);
    }
    if (status == RDMUX_OK || status == RDMUX_NO_PATH) {
        *out = rdmux_explanation_create(status, candidates, count, peer_address);
        status = *out == NULL ? rdmux_fail(RDMUX_NO_MEMORY, "rdmux_explain: out of memory")
                              : status;
    }
    rdmux_release(fabric, candidates);
    return status;
}

static enum rdmux_status secure_channel(struct explaining *explaining)
{
    struct rdmux_address_text text;
    enum rdmux_status status = rdmux_address_split(explaining->address, &text);
    return status != RDMUX_OK ? status
                              : rdmux_tls_create(explaining->fabric->auth, RDMUX_ROLE_CONNECT,
                                                 explaining->socket, text.host, &explaining->tls);
}

static enum rdmux_status explain_address(const struct rdmux_ep_attr *attr,
                                         struct explaining *explaining, struct rdmux_offer *offer,
                                         void *memory, struct rdmux_explanation **out)
{
    struct rdmux_fabric *fabric = explaining->fabric;
    struct sockaddr_storage peer;
    socklen_t peer_length = 0;
    enum rdmux_status status = rdmux_offer_fill(fabric, attr, NULL, offer);
    if (status == RDMUX_OK) {
        status = dial_listener(explaining, &peer, &peer_length);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_handshake_config config = { .role = RDMUX_ROLE_CONNECT,
                                             .hello_timeout_ms = UINT32_MAX,
                                             .offer = offer,
                                             .is_secured = fabric->auth != NULL };
    if (fabric->auth != NULL) {
        status = secure_channel(explaining);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    rdmux_hello_fill(fabric, &config.hello);
    config.hello.flags |= RDMUX_HELLO_EXPLAIN_ONLY;
    config.hello.flags |= attr->probe != 0 ? RDMUX_HELLO_MEASURE : 0;
    struct rdmux_handshake *handshake = NULL;
    status = rdmux_handshake_init(memory, &config, rdmux_now(fabric), &handshake);
    if (status == RDMUX_OK) {
        status = talk_to_listener(explaining, handshake);
    }
    if (status != RDMUX_OK && status != RDMUX_NO_PATH) {
        return status;
    }
    char text[RDMUX_ADDRESS_MAX];
    rdmux_address_format((const struct sockaddr *)&peer, peer_length, text);
    return make_explanation(status, handshake, text, fabric, out);
}

enum rdmux_status rdmux_explain(struct rdmux_fabric *fabric, const char *address,
                                const struct rdmux_ep_attr *attr, int timeout_ms,
                                struct rdmux_explanation **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_explain: out is NULL");
    }
    *out = NULL;
    if (fabric == NULL || *fabric->alive == 0 || timeout_ms < -1 || timeout_ms == 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_explain: %s",
                          fabric == NULL        ? "fabric is NULL"
                          : *fabric->alive == 0 ? "the fabric belongs to the parent process"
                          : timeout_ms == 0
                              ? "timeout_ms is 0; there would be nothing to return the outcome with"
                              : "timeout_ms is below -1");
    }
    if (rdmux_rdmacm_address(address) != NULL) {
        return rdmux_rdmacm_refuse("rdmux_explain", address);
    }
    struct rdmux_ep_attr all;
    struct rdmux_ep_attr given = RDMUX_EP_ATTR_INIT;
    if (attr != NULL) {
        memcpy(&given, attr, attr->size < sizeof(given) ? attr->size : sizeof(given));
        given.size = attr->size;
        given.srq = NULL;
    }
    enum rdmux_status status = rdmux_ep_attr_check(attr == NULL ? NULL : &given, fabric, NULL, &all);
    if (status == RDMUX_OK) {
        status = rdmux_check_local(fabric, "rdmux_explain", all.local);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    struct explaining explaining = {
        .fabric = fabric,
        .address = address,
        .socket = -1,
        .until_ns = timeout_ms < 0 ? UINT64_MAX : rdmux_now(fabric) + (uint64_t)timeout_ms * 1000000,
        .bytes = rdmux_allocate(fabric, RDMUX_FRAME_HEADER_SIZE + RDMUX_FRAME_PAYLOAD_MAX),
    };
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    void *memory = rdmux_allocate(fabric, rdmux_handshake_size());
    if (explaining.bytes == NULL || offer == NULL || memory == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "rdmux_explain: out of memory");
    } else {
        status = explain_address(&all, &explaining, offer, memory, out);
    }
    rdmux_tls_destroy(explaining.tls);
    if (explaining.socket >= 0) {
        close(explaining.socket);
    }
    rdmux_release(fabric, memory);
    rdmux_release(fabric, offer);
    rdmux_release(fabric, explaining.bytes);
    return status;
}
