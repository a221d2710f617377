/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * TLS sessions of strangers: how many there are at a time, and who gets the next. A stranger's session is some
 * 47 KiB of OpenSSL's, and what malloc has got for thousands of them it does not give back. So a listener has a
 * bounded number of places. A stranger without a place waits, at the cost of what the kernel keeps; it takes a place
 * that is left, or that of a peer which does not go on with its handshake. All under step_lock.
 */
#include "api/accept/pending_connection.h"
#include "api/loop/service.h"

enum {
    PLACES = 512,
    IDLE_MS = 250, /* that a peer may take for its next flight while others wait for a place */
};

/* Of those that wait for their peer too long, the oldest of the address that has the most places. NULL: none. */
static struct rdmux_pending_connection *find_idle(struct rdmux_listener *listener)
{
    struct rdmux_pending_connection *found = NULL;
    uint64_t now_ns = rdmux_now(listener->fabric);
    for (struct rdmux_list *at = listener->places.next; at != &listener->places; at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, place_link);
        if (!pending->stepping && now_ns - pending->idle_since_ns >= IDLE_MS * UINT64_C(1000000) &&
            (found == NULL || pending->quota->places > found->quota->places)) {
            found = pending;
        }
    }
    return found;
}

/* Has the next one come that waits: of the address with the fewest places, the one that waits the longest. */
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
        struct rdmux_pending_connection *idle = find_idle(listener);
        if (idle == NULL) {
            rdmux_list_append(&listener->hopeful, &pending->place_link);
            return false;
        }
        rdmux_pending_drop(idle, "others wait, and it does not go on with its TLS handshake");
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
    if (!rdmux_list_empty(&listener->hopeful) && find_idle(listener) != NULL) {
        call_next(listener);
    }
}
