/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The calls that take the fast path if it is open. Each instruction here is part of every small
 * write. Compiled without frame pointers: the last call is a jump.
 */
#include "api/base/range.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/data/fast_path.h"

/* Reads a word before the cq is entered. The service thread, which may own the cq, changes such
 * words. An outdated value leads to a fast path that turns out to be closed. A plain read of a
 * word, so that the compiler joins the read with its use. */
#if RDMUX_TSAN
#define GLANCE(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#else
#define GLANCE(word) (word)
#endif

/* Anything but an inline signaled write takes the slow path, and so does a request to refuse: the
 * slow path has the error texts. */
enum rdmux_status rdmux_write(struct rdmux_ep *ep, const void *buf, size_t length,
                              struct rdmux_mr *mr, struct rdmux_remote *remote, uint64_t offset,
                              void *context, uint32_t flags)
{
    /* `writer` is never NULL, so a NULL ep fails the comparison, too. */
    if (RDMUX_UNLIKELY(flags != RDMUX_INLINE) || RDMUX_UNLIKELY(mr != NULL) ||
        RDMUX_UNLIKELY(buf == NULL) || RDMUX_UNLIKELY(remote == NULL) ||
        RDMUX_UNLIKELY(GLANCE(remote->writer) != ep)) {
        return rdmux_write_ordinary(ep, buf, length, mr, remote, offset, context, flags);
    }
    struct rdmux_fast_path *fast = GLANCE(ep->fast);
    if (RDMUX_UNLIKELY(!rdmux_fast_path_enter_with_room(fast)) ||
        RDMUX_UNLIKELY(length - 1 >= fast->most) ||
        (RDMUX_UNLIKELY(offset >= remote->room) &&
         !rdmux_is_within(offset, length, remote->length))) {
        /* Constants instead of arguments need fewer registers. */
        return rdmux_write_ordinary(ep, buf, length, NULL, remote, offset, context, RDMUX_INLINE);
    }
    struct rdmux_fast_path_entry *entry = fast->head;
    /* Keeps the compiler from moving the increment of head. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    fast->head++;
    fast->bytes += length;
    entry->context = context;
    entry->length = length;
    return fast->post(fast, buf, length, entry, &remote->target, offset);
}

size_t rdmux_cq_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    if (RDMUX_UNLIKELY(cq == NULL)) {
        return 0;
    }
    return GLANCE(cq->front.poll)(cq, wc, max);
}
