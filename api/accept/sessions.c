/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * TLS places: the bounded number of TLS sessions of pending connections, and their assignment. A
 * session takes some 47 KiB in OpenSSL, and malloc does not return the memory of thousands of them.
 * So a listener has a bounded number of places. A connection without a place waits, at the cost of
 * what the kernel keeps. It takes a free place, or the place of a peer that does not continue its
 * handshake. All under step_lock.
 */
#include "api/accept/sessions.h"

#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/accept/pending_connection.h"
#include "api/loop/service.h"

enum {
    PLACES = 512,
    IDLE_MS = 250, /* maximum time for a peer's next flight while others wait for a place */
};

/* Returns the oldest idle connection of the address that has the most places. NULL: none has been
 * idle for IDLE_MS. */
static struct rdmux_pending_connection *find_idle_pending(struct rdmux_listener *listener)
{
    struct rdmux_pending_connection *found = NULL;
    uint64_t now_ns = rdmux_now(listener->fabric);
    for (struct rdmux_list *at = listener->places.next; at != &listener->places; at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, place_link);
        if (pending->stage != RDMUX_PENDING_STEPPING &&
            now_ns - pending->idle_since_ns >= IDLE_MS * UINT64_C(1000000) &&
            (found == NULL || pending->quota->places > found->quota->places)) {
            found = pending;
        }
    }
    return found;
}

/* Wakes the next connection that waits: of the address with the fewest places, the longest-waiting
 * one. */
static void call_next(struct rdmux_listener *listener)
{
    struct rdmux_pending_connection *next = NULL;
    for (struct rdmux_list *at = listener->hopeful.next; at != &listener->hopeful; at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, place_link);
        if (next == NULL || pending->quota->places < next->quota->places) {
            next = pending;
        }
    }
    if (next != NULL) {
        rdmux_service_call(listener->fabric, &next->watch);
    }
}

bool rdmux_session_take_place(struct rdmux_pending_connection *pending)
{
    struct rdmux_listener *listener = pending->listener;
    if (pending->has_place) {
        return true;
    }
    rdmux_list_remove(&pending->place_link);
    if (listener->place_count >= PLACES) {
        struct rdmux_pending_connection *idle = find_idle_pending(listener);
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
    if (listener->place_count < PLACES) {
        call_next(listener);
    }
}

void rdmux_session_timer(struct rdmux_listener *listener)
{
    if (!rdmux_list_empty(&listener->hopeful) && find_idle_pending(listener) != NULL) {
        call_next(listener);
    }
}
