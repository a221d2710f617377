/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The calls that go over the express lane if it is open: each instruction here is one of every small
 * write. Compiled without frame pointers, as what is called last is a jump.
 */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/data/fast_path.h"

/* What is looked at before the cq is entered: the service thread, which may own it, changes these. What
 * is out of date leads to a lane that then turns out to be closed. A plain read of a word, so that the
 * compiler joins it with what uses it. */
#if RDMUX_TSAN
#define GLANCE(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#else
#define GLANCE(word) (word)
#endif

/* Offsets near the end, or beyond it. */
static inline bool is_within(const struct rdmux_remote *remote, uint64_t offset, size_t length)
{
    return offset <= remote->length && length <= remote->length - offset;
}

/* Anything but an inline signaled write goes the ordinary way, and so does what is to be refused: it
 * finds the words. */
enum rdmux_status rdmux_write(struct rdmux_ep *ep, const void *buf, size_t length,
                              struct rdmux_mr *mr, struct rdmux_remote *remote, uint64_t offset,
                              void *context, uint32_t flags)
{
    /* No remote has NULL for a writer. */
    if (RDMUX_UNLIKELY(flags != RDMUX_INLINE) || RDMUX_UNLIKELY(mr != NULL) ||
        RDMUX_UNLIKELY(buf == NULL) || RDMUX_UNLIKELY(remote == NULL) ||
        RDMUX_UNLIKELY(GLANCE(remote->writer) != ep)) {
        return rdmux_write_ordinary(ep, buf, length, mr, remote, offset, context, flags);
    }
    struct rdmux_lane *lane = GLANCE(ep->lane);
    if (RDMUX_UNLIKELY(!rdmux_lane_enter_with_room(lane)) ||
        RDMUX_UNLIKELY(length - 1 >= lane->most) ||
        (RDMUX_UNLIKELY(offset >= remote->room) && !is_within(remote, offset, length))) {
        /* Constants instead of arguments: fewer registers to keep. */
        return rdmux_write_ordinary(ep, buf, length, NULL, remote, offset, context, RDMUX_INLINE);
    }
    struct rdmux_lane_entry *entry = lane->head;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* so that head is counted up where it is */
    lane->head++;
    lane->bytes += length;
    entry->context = context;
    entry->length = length;
    return lane->post(lane, buf, length, entry, &remote->target, offset);
}

size_t rdmux_cq_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    if (RDMUX_UNLIKELY(cq == NULL)) {
        return 0;
    }
    return GLANCE(cq->front.poll)(cq, wc, max);
}
