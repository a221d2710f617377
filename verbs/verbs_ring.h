/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Accounting of a queue pair's two queues: which slot of the device's queue carries which request,
 * how many slots are free, which work request must raise a completion. Pure: no device, no memory
 * of its own.
 *
 * Send side. A device retires work requests in posting order, so a completion of one says of every
 * earlier one that it is done, those that raised none included. A request may take several slots;
 * the last of them names it.
 */
#ifndef RDMUX_VERBS_RING_H
#define RDMUX_VERBS_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rdmux_request;

/* All counters grow without end and wrap at 2^32; a queue is far shorter. */
struct verbs_send_ring {
    struct rdmux_request **requests; /* by slot: done with this one; NULL: nothing to report */
    uint32_t mask;                   /* the array has mask + 1 entries, a power of two >= depth */
    uint32_t depth;                  /* most that the device's queue takes */
    uint32_t head;                   /* posted, or chained for the next doorbell */
    uint32_t tail;                   /* known to be finished */
    uint32_t signaled;               /* the slot after the newest that raises a completion */
    uint32_t signal_every;           /* at least one in so many raises one */
};

static inline uint32_t verbs_send_ring_room(const struct verbs_send_ring *ring)
{
    return ring->depth - (ring->head - ring->tail);
}

static inline bool verbs_send_ring_is_empty(const struct verbs_send_ring *ring)
{
    return ring->head == ring->tail;
}

/* Is a completion on its way for something not finished yet? Then what is posted next may do
 * without. */
static inline bool verbs_send_ring_awaits(const struct verbs_send_ring *ring)
{
    return (int32_t)(ring->signaled - ring->tail) > 0;
}

/* Posted work requests that no completion will ever tell of. */
static inline uint32_t verbs_send_ring_silent(const struct verbs_send_ring *ring)
{
    uint32_t told = verbs_send_ring_awaits(ring) ? ring->signaled : ring->tail;
    return ring->head - told;
}

enum verbs_wish {
    VERBS_WISH_LATER, /* another work request of the same request follows, and has the wish */
    VERBS_WISH_NONE,  /* nobody waits for it */
    VERBS_WISH_DONE,  /* somebody waits for it */
};

/*
 * Takes the next slot; there is room. request: reported when the slot retires, or NULL. *signal:
 * the work request must raise a completion: somebody waits for it, or none is on its way, or the
 * last that does is long ago. Returns the slot.
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

/* The work request of a slot that was taken raises a completion after all. */
static inline void verbs_send_ring_signal(struct verbs_send_ring *ring, uint32_t slot)
{
    if ((int32_t)(slot + 1 - ring->signaled) > 0) {
        ring->signaled = slot + 1;
    }
}

/* May a completion name this slot? False: it is a stale or a wrong one. */
static inline bool verbs_send_ring_has(const struct verbs_send_ring *ring, uint32_t slot)
{
    return slot - ring->tail < ring->head - ring->tail;
}

/* Is the slot before `end` posted and not finished? */
static inline bool verbs_send_ring_is_under_way(const struct verbs_send_ring *ring, uint32_t end)
{
    return verbs_send_ring_has(ring, end - 1);
}

/* The oldest slot is finished; its request, or NULL. */
static inline struct rdmux_request *verbs_send_ring_retire(struct verbs_send_ring *ring)
{
    uint32_t at = ring->tail++ & ring->mask;
    struct rdmux_request *request = ring->requests[at];
    ring->requests[at] = NULL;
    return request;
}

/* The request that the work request of a slot belongs to: named there or at a later slot. NULL: a
 * work request of our own. */
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

/* Receives of one queue pair: used in posting order. */
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

/* The receive of a slot, which must be the oldest. NULL: the completion is a stale or a wrong
 * one. */
static inline struct rdmux_request *verbs_receive_ring_retire(struct verbs_receive_ring *ring,
                                                              uint32_t slot)
{
    if (ring->head == ring->tail || slot != ring->tail) {
        return NULL;
    }
    return ring->requests[ring->tail++ & ring->mask];
}

/*
 * wr_id: what a completion says of itself. An error completion is only trusted for this
 * (ibv_poll_cq(3)), and one that outlives its queue pair must not be taken for another's; so it has
 * the place of the queue in its cq's table and the number of times the place was used, never 0: work
 * on the express lane is named by the address of its entry, which has zeros there.
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
