/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * TLS places: the bounded number of TLS sessions of pending connections, and their assignment. A
 * session takes some 47 KiB in OpenSSL, and malloc does not return the memory of thousands of them.
 * So a listener has a bounded number of places. A connection without a place waits, at the cost of
 * what the kernel keeps. It takes a free place, or the place of a peer that does not continue its
 * handshake and whose address has as many places as its own, or more: an address cannot displace
 * peers of others by opening many connections. All under step_lock.
 */
#include "api/accept/sessions.h"

#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/accept/pending_connection.h"
#include "api/loop/service.h"

#include <sys/socket.h>

enum {
    PLACES = 512,
    IDLE_MS = 250, /* maximum time for a peer's next flight while others wait for a place */
};

/* Returns true if the peer's next flight, or its end, has arrived and is unread. */
static bool has_flight(const struct rdmux_pending_connection *pending)
{
    char byte;
    return recv(pending->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* Selects the connection whose place `newcomer` takes: the oldest idle one of the address that has
 * the most places, and no fewer than the newcomer's address. NULL: there is none. */
static struct rdmux_pending_connection *find_idle_pending(
    struct rdmux_listener *listener, const struct rdmux_pending_connection *newcomer)
{
    struct rdmux_pending_connection *found = NULL;
    uint64_t now_ns = rdmux_now(listener->fabric);
    for (struct rdmux_list *at = listener->places.next; at != &listener->places; at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, place_link);
        if (pending->stage == RDMUX_PENDING_STEPPING ||
            now_ns - pending->idle_since_ns < IDLE_MS * UINT64_C(1000000) ||
            pending->quota->places < newcomer->quota->places ||
            (found != NULL && pending->quota->places <= found->quota->places)) {
            continue;
        }
        if (has_flight(pending)) {
            pending->idle_since_ns = now_ns; /* this process is late, not the peer */
        } else {
            found = pending;
        }
    }
    return found;
}

/* Returns the next connection that waits: of the address with the fewest places, the
 * longest-waiting one. NULL: none waits. */
static struct rdmux_pending_connection *next_hopeful(struct rdmux_listener *listener)
{
    struct rdmux_pending_connection *next = NULL;
    for (struct rdmux_list *at = listener->hopeful.next; at != &listener->hopeful; at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, place_link);
        if (next == NULL || pending->quota->places < next->quota->places) {
            next = pending;
        }
    }
    return next;
}

bool rdmux_session_take_place(struct rdmux_pending_connection *pending)
{
    struct rdmux_listener *listener = pending->listener;
    if (pending->has_place) {
        return true;
    }
    rdmux_list_remove(&pending->place_link);
    if (listener->place_count >= PLACES) {
        struct rdmux_pending_connection *idle = find_idle_pending(listener, pending);
        if (idle == NULL) {
            rdmux_list_append(&listener->hopeful, &pending->place_link);
            return false;
        }
        rdmux_pending_evict(idle, "others wait, and it does not go on with its TLS handshake");
    }
    pending->has_place = true;
    pending->quota->places++;
    listener->place_count++;
    rdmux_list_append(&listener->places, &pending->place_link);
    return true;
}

void rdmux_session_leave_place(struct rdmux_pending_connection *pending)
{
    struct rdmux_listener *listener = pending->listener;
    rdmux_list_remove(&pending->place_link);
    if (pending->has_place) {
        pending->has_place = false;
        pending->quota->places--;
        listener->place_count--;
    }
    struct rdmux_pending_connection *next = listener->place_count < PLACES ? next_hopeful(listener)
                                                                           : NULL;
    if (next != NULL) {
        rdmux_service_call(listener->fabric, &next->watch);
    }
}

void rdmux_session_timer(struct rdmux_listener *listener)
{
    /* If there is a place for any that waits, there is one for the next. */
    struct rdmux_pending_connection *next = next_hopeful(listener);
    if (next != NULL && find_idle_pending(listener, next) != NULL) {
        rdmux_service_call(listener->fabric, &next->watch);
    }
}
