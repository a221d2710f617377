/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Accounting of a queue pair's two queues: the request of each slot, the number of free slots, and
 * the work requests that must raise a completion. Pure: no device, no memory of its own.
 *
 * Send side. A device retires work requests in posting order. So a completion means that every
 * earlier work request is done, too, unsignaled ones included. A request may take several slots;
 * the last of them names it.
 */
#ifndef RDMUX_VERBS_RING_H
#define RDMUX_VERBS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rdmux_request;

/* Counters only grow and wrap at 2^32; a queue is far shorter. */
struct verbs_send_ring {
    /* by slot: request that it completes; NULL: nothing to report */
    struct rdmux_request **requests;
    uint32_t mask;         /* the array has mask + 1 entries, a power of two >= depth */
    uint32_t depth;        /* most work requests in the device's queue */
    uint32_t head;         /* end of the posted and chained work requests */
    uint32_t tail;         /* end of the finished work requests */
    uint32_t signaled;     /* slot after the newest signaled work request */
    uint32_t signal_every; /* at least one in this many is signaled */
};

static inline uint32_t verbs_send_ring_room(const struct verbs_send_ring *ring)
{
    return ring->depth - (ring->head - ring->tail);
}

static inline bool verbs_send_ring_is_empty(const struct verbs_send_ring *ring)
{
    return ring->head == ring->tail;
}

/* True if a completion is pending for unfinished work. The next work request may then be
 * unsignaled. */
static inline bool verbs_send_ring_awaits(const struct verbs_send_ring *ring)
{
    return (int32_t)(ring->signaled - ring->tail) > 0;
}

/* Returns the number of posted work requests that no completion will ever report. */
static inline uint32_t verbs_send_ring_silent(const struct verbs_send_ring *ring)
{
    uint32_t told = verbs_send_ring_awaits(ring) ? ring->signaled : ring->tail;
    return ring->head - told;
}

enum verbs_wish {
    VERBS_WISH_LATER, /* another work request of the same request follows and carries the wish */
    VERBS_WISH_NONE,  /* the program does not wait for it */
    VERBS_WISH_DONE,  /* a caller waits for it */
};

/*
 * Takes the next slot; the caller has checked for room. request: reported when the slot retires, or
 * NULL. *signal: the work request must raise a completion, because a caller waits for it, no
 * completion is pending, or the last signaled one is signal_every work requests ago. Returns the
 * slot.
 */
static inline uint32_t verbs_send_ring_take(struct verbs_send_ring *ring,
                                            struct rdmux_request *request, enum verbs_wish wish,
                                            bool *signal)
{
    uint32_t slot = ring->head++;
    ring->requests[slot & ring->mask] = request;
    *signal = wish == VERBS_WISH_DONE ||
              (wish == VERBS_WISH_NONE && (!verbs_send_ring_awaits(ring) ||
                                           ring->head - ring->signaled >= ring->signal_every));
    if (*signal) {
        ring->signaled = ring->head;
    }
    return slot;
}

/* Marks the work request of a taken slot as signaled after all. */
static inline void verbs_send_ring_signal(struct verbs_send_ring *ring, uint32_t slot)
{
    if ((int32_t)(slot + 1 - ring->signaled) > 0) {
        ring->signaled = slot + 1;
    }
}

/* True if a completion may name this slot. False: it is stale or wrong. */
static inline bool verbs_send_ring_has(const struct verbs_send_ring *ring, uint32_t slot)
{
    return slot - ring->tail < ring->head - ring->tail;
}

/* True if the slot before `end` is posted and not finished. */
static inline bool verbs_send_ring_is_under_way(const struct verbs_send_ring *ring, uint32_t end)
{
    return verbs_send_ring_has(ring, end - 1);
}

/* Retires the oldest slot; returns its request, or NULL. */
static inline struct rdmux_request *verbs_send_ring_retire(struct verbs_send_ring *ring)
{
    uint32_t at = ring->tail++ & ring->mask;
    struct rdmux_request *request = ring->requests[at];
    ring->requests[at] = NULL;
    return request;
}

/* Returns the request of the work request in a slot, which is named there or at a later slot. NULL:
 * a work request of the library's own. */
static inline struct rdmux_request *verbs_send_ring_owner(const struct verbs_send_ring *ring,
                                                          uint32_t slot)
{
    for (; slot != ring->head; slot++) {
        if (ring->requests[slot & ring->mask] != NULL) {
            return ring->requests[slot & ring->mask];
        }
    }
    return NULL;
}

/* Receives of one queue pair; the device uses them in posting order. */
struct verbs_receive_ring {
    struct rdmux_request **requests;
    uint32_t mask;
    uint32_t depth;
    uint32_t head;
    uint32_t tail;
};

static inline uint32_t verbs_receive_ring_room(const struct verbs_receive_ring *ring)
{
    return ring->depth - (ring->head - ring->tail);
}

static inline uint32_t verbs_receive_ring_take(struct verbs_receive_ring *ring,
                                               struct rdmux_request *request)
{
    uint32_t slot = ring->head++;
    ring->requests[slot & ring->mask] = request;
    return slot;
}

/* Retires the receive of a slot, which must be the oldest. NULL: the completion is stale or
 * wrong. */
static inline struct rdmux_request *verbs_receive_ring_retire(struct verbs_receive_ring *ring,
                                                              uint32_t slot)
{
    if (ring->head == ring->tail || slot != ring->tail) {
        return NULL;
    }
    return ring->requests[ring->tail++ & ring->mask];
}

/*
 * wr_id: the identity of a completion. An error completion is trusted only for its wr_id
 * (ibv_poll_cq(3)), and a completion that outlives its queue pair must not be taken for another's.
 * So a wr_id holds the queue's place in its cq's table and the number of times that the place was
 * used, never 0. Work on the fast path is named by the address of its entry, which has zeros there.
 */
enum verbs_work { VERBS_WORK_SEND = 0, VERBS_WORK_RECEIVE = 1, VERBS_WORK_SHARED = 2 };
enum {
    VERBS_SLOT_BITS = 32,
    VERBS_PLACE_BITS = 18,
    VERBS_LIFE_BITS = 12,
    VERBS_PLACES_MAX = 1 << VERBS_PLACE_BITS, /* queues of one cq */
};
_Static_assert(VERBS_SLOT_BITS + VERBS_PLACE_BITS + VERBS_LIFE_BITS + 2 == 64,
               "a wr_id has 64 bits");

static inline uint64_t verbs_wr_id(uint32_t place, uint32_t life)
{
    uint64_t high = ((uint64_t)life << VERBS_PLACE_BITS | place) & ((UINT64_C(1) << 30) - 1);
    return high << VERBS_SLOT_BITS;
}

static inline uint64_t verbs_wr_id_of(uint64_t queue, enum verbs_work work, uint32_t slot)
{
    return (uint64_t)work << 62 | queue | slot;
}

static inline enum verbs_work verbs_wr_id_work(uint64_t wr_id)
{
    return (enum verbs_work)(wr_id >> 62);
}

static inline uint64_t verbs_wr_id_queue(uint64_t wr_id)
{
    return wr_id & ~(UINT64_C(3) << 62) & ~(uint64_t)UINT32_MAX;
}

static inline uint32_t verbs_wr_id_place(uint64_t wr_id)
{
    return (uint32_t)(wr_id >> VERBS_SLOT_BITS) & (VERBS_PLACES_MAX - 1);
}

static inline uint32_t verbs_wr_id_slot(uint64_t wr_id)
{
    return (uint32_t)wr_id;
}

#endif
