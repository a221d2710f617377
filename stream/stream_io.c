/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The calls that move bytes: read, write, peek, consume, shutdown. */
#include "stream/stream_state.h"

#include "api/base/error.h"
#include "api/base/range.h"
#include "api/core/mr.h"
#include "api/data/completion.h"
#include "api/data/request.h"
#include "api/progress/cq_owner.h"
#include "stream/stream_receive.h"
#include "stream/stream_send.h"

#include <string.h>

/* The program's list of a call. */
struct list {
    const struct rdmux_sge *pieces;
    size_t count;
    uint64_t total;
};

static enum rdmux_status check_list(struct rdmux_stream *stream, const char *call,
                                    const struct rdmux_sge *pieces, size_t count, uint32_t access,
                                    struct list *out)
{
    const struct rdmux_list_rule rule = { .fabric = stream->fabric, .needed = access };
    *out = (struct list){ .pieces = pieces, .count = count };
    if (RDMUX_UNLIKELY(count > RDMUX_STREAM_PIECES_MAX || (pieces == NULL && count != 0))) {
        return rdmux_fail(RDMUX_INVALID, "%s: %s", call,
                          pieces == NULL ? "pieces is NULL" : "count is above 16");
    }
    for (size_t i = 0; i < count; i++) {
        if (RDMUX_UNLIKELY(pieces[i].length != 0 && !rdmux_piece_is_good(rule, &pieces[i]))) {
            return rdmux_fail(RDMUX_INVALID,
                              "%s: piece %zu has no address, or is not within its region", call, i);
        }
        if (RDMUX_UNLIKELY(pieces[i].length > SIZE_MAX - out->total)) {
            return rdmux_fail(RDMUX_INVALID, "%s: the pieces are longer than memory", call);
        }
        out->total += pieces[i].length;
    }
    return RDMUX_OK;
}

static bool is_same(const struct rdmux_stream_list *lent, const struct list *list)
{
    if (lent->count != list->count) {
        return false;
    }
    for (size_t i = 0; i < lent->count; i++) {
        if (lent->pieces[i].addr != list->pieces[i].addr ||
            lent->pieces[i].length != list->pieces[i].length) {
            return false;
        }
    }
    return true;
}

static void lend_list(struct rdmux_stream_list *to, const struct list *list)
{
    to->is_lent = true;
    to->count = list->count;
    to->total = list->total;
    memcpy(to->pieces, list->pieces, list->count * sizeof(*list->pieces));
}

static enum rdmux_status fail_lent(const char *call, const char *what)
{
    return rdmux_fail(RDMUX_INVALID,
                      "%s: a %s is lent to the stream; repeat that call until it returns another "
                      "status than RDMUX_AGAIN",
                      call, what);
}

/* ----------------------------------------------------------------------------------------- read */

static void pay_credit(struct rdmux_stream *stream)
{
    if (RDMUX_UNLIKELY(rdmux_stream_owes_credit(stream))) {
        rdmux_stream_push(stream);
    }
}

/* Moves unread bytes into the list. */
static uint64_t take_unread(struct rdmux_stream *stream, const struct list *list)
{
    uint64_t taken = 0;
    for (size_t i = 0; i < list->count && stream->in.arrived != stream->in.consumed; i++) {
        taken += rdmux_stream_copy_out(stream, list->pieces[i].addr, list->pieces[i].length);
    }
    stream->in.bytes += taken;
    pay_credit(stream);
    return taken;
}

/* Notes that the program is to be told by an entry. A cq of the stream's own has none: the program
 * waits, or arms. */
static void want(struct rdmux_stream *stream, uint32_t event)
{
    stream->wants |= stream->own_cq == NULL ? event : 0;
}

/* The status of a read that has no bytes. */
static enum rdmux_status nothing_to_read(struct rdmux_stream *stream, const char *call)
{
    if (stream->in.has_fin || stream->in.is_discarding) {
        return RDMUX_OK;
    }
    if (stream->is_ended) {
        return rdmux_stream_fail_ended(stream, call);
    }
    want(stream, RDMUX_STREAM_READ);
    return rdmux_again("rdmux_stream_read: nothing is here yet; wait for RDMUX_STREAM_READ");
}

static enum rdmux_status read_some(struct rdmux_stream *stream, const char *call,
                                   const struct list *list, size_t *got)
{
    if (rdmux_stream_unread(stream) == 0) {
        rdmux_ep_progress(stream->ep);
        if (rdmux_stream_unread(stream) == 0) {
            return nothing_to_read(stream, call);
        }
    }
    *got = (size_t)take_unread(stream, list);
    return RDMUX_OK;
}

static enum rdmux_status finish_lent_read(struct rdmux_stream *stream, const char *call, size_t *got)
{
    struct rdmux_stream_in *in = &stream->in;
    in->read.is_lent = false;
    in->skip -= in->skip != 0 && rdmux_stream_is_large(stream, in->read.total);
    in->bytes += in->filled;
    *got = (size_t)in->filled;
    return in->filled != 0 ? RDMUX_OK : nothing_to_read(stream, call);
}

static enum rdmux_status read_all(struct rdmux_stream *stream, const char *call,
                                  const struct list *list, size_t *got)
{
    struct rdmux_stream_in *in = &stream->in;
    if (!in->read.is_lent) {
        if (rdmux_stream_unread(stream) >= list->total) {
            *got = (size_t)take_unread(stream, list);
            return RDMUX_OK;
        }
        if (in->is_discarding) {
            return RDMUX_OK;
        }
        lend_list(&in->read, list);
        in->filled = 0;
        rdmux_stream_fill(stream);
        pay_credit(stream);
    }
    if (!rdmux_stream_is_readable(stream)) {
        rdmux_ep_progress(stream->ep);
    }
    if (rdmux_stream_is_readable(stream)) {
        return finish_lent_read(stream, call, got);
    }
    want(stream, RDMUX_STREAM_READ);
    return rdmux_again("rdmux_stream_read: not all bytes are here yet; wait for RDMUX_STREAM_READ");
}

static enum rdmux_status read_list(struct rdmux_stream *stream, const char *call,
                                   const struct rdmux_sge *pieces, size_t count, uint32_t flags,
                                   size_t *got)
{
    if (RDMUX_UNLIKELY(got == NULL)) {
        return rdmux_fail(RDMUX_INVALID, "%s: got is NULL", call);
    }
    *got = 0;
    enum rdmux_status status = rdmux_stream_enter(stream, call);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    struct list list;
    status = check_list(stream, call, pieces, count, RDMUX_ACCESS_LOCAL_WRITE, &list);
    const bool all = flags == RDMUX_STREAM_ALL;
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        /* the text is set */
    } else if (RDMUX_UNLIKELY(!all && flags != 0)) {
        status = rdmux_fail(RDMUX_INVALID, "%s: flags 0x%x has unknown bits", call, flags);
    } else if (RDMUX_UNLIKELY(stream->in.read.is_lent &&
                              !(all && is_same(&stream->in.read, &list)))) {
        status = fail_lent(call, "read");
    } else {
        stream->wants &= ~(uint32_t)RDMUX_STREAM_READ;
        if (list.total != 0) {
            status = all ? read_all(stream, call, &list, got) : read_some(stream, call, &list, got);
        }
    }
    rdmux_cq_leave(stream->ep->cq);
    return status;
}

enum rdmux_status rdmux_stream_read(struct rdmux_stream *stream, void *buf, size_t length,
                                    uint32_t flags, size_t *got)
{
    const struct rdmux_sge piece = { buf, length, NULL };
    return read_list(stream, "rdmux_stream_read", &piece, 1, flags, got);
}

enum rdmux_status rdmux_stream_readv(struct rdmux_stream *stream, const struct rdmux_sge *pieces,
                                     size_t count, uint32_t flags, size_t *got)
{
    return read_list(stream, "rdmux_stream_readv", pieces, count, flags, got);
}

enum rdmux_status rdmux_stream_peek(struct rdmux_stream *stream, const void **bytes, size_t *length)
{
    if (bytes == NULL || length == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_stream_peek: %s is NULL",
                          bytes == NULL ? "bytes" : "length");
    }
    *bytes = NULL;
    *length = 0;
    enum rdmux_status status = rdmux_stream_enter(stream, "rdmux_stream_peek");
    if (status != RDMUX_OK) {
        return status;
    }
    const struct rdmux_stream_in *in = &stream->in;
    if (in->read.is_lent) {
        status = fail_lent("rdmux_stream_peek", "read");
    } else {
        stream->wants &= ~(uint32_t)RDMUX_STREAM_READ;
        if (rdmux_stream_unread(stream) == 0) {
            rdmux_ep_progress(stream->ep);
        }
        const uint64_t unread = rdmux_stream_unread(stream);
        const uint64_t at = in->consumed & (stream->ring_size - 1);
        if (unread == 0) {
            status = nothing_to_read(stream, "rdmux_stream_peek");
        } else {
            *bytes = stream->ring + at;
            *length = (size_t)(unread < stream->ring_size - at ? unread : stream->ring_size - at);
        }
    }
    rdmux_cq_leave(stream->ep->cq);
    return status;
}

enum rdmux_status rdmux_stream_consume(struct rdmux_stream *stream, size_t length)
{
    enum rdmux_status status = rdmux_stream_enter(stream, "rdmux_stream_consume");
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_stream_in *in = &stream->in;
    const uint64_t unread = rdmux_stream_unread(stream);
    if (in->read.is_lent) {
        status = fail_lent("rdmux_stream_consume", "read");
    } else if (length > unread) {
        status = rdmux_fail(RDMUX_INVALID,
                            "rdmux_stream_consume: %zu bytes, but only %llu were shown", length,
                            (unsigned long long)unread);
    } else {
        in->consumed += length;
        in->bytes += length;
        pay_credit(stream);
    }
    rdmux_cq_leave(stream->ep->cq);
    return status;
}

/* ---------------------------------------------------------------------------------------- write */

static enum rdmux_status no_room(struct rdmux_stream *stream)
{
    want(stream, RDMUX_STREAM_WRITE);
    return rdmux_again("rdmux_stream_write: the peer has no room yet; wait for RDMUX_STREAM_WRITE");
}

static enum rdmux_status write_copied(struct rdmux_stream *stream, const char *call,
                                      const struct list *list, size_t *done)
{
    uint64_t taken = 0;
    enum rdmux_status status = rdmux_stream_advance(stream, list->pieces, list->total, false,
                                                    &taken);
    if (RDMUX_UNLIKELY(status == RDMUX_AGAIN && taken == 0)) {
        rdmux_ep_progress(stream->ep);
        status = stream->is_ended
                     ? RDMUX_PEER_GONE
                     : rdmux_stream_advance(stream, list->pieces, list->total, false, &taken);
    }
    *done = (size_t)taken;
    if (RDMUX_LIKELY(taken != 0)) {
        return RDMUX_OK;
    }
    if (stream->ep->phase > RDMUX_PHASE_READY || stream->is_ended) {
        return rdmux_stream_fail_ended(stream, call);
    }
    return status == RDMUX_AGAIN ? no_room(stream) : status;
}

static enum rdmux_status write_lent(struct rdmux_stream *stream, const char *call,
                                    const struct list *list, size_t *done)
{
    struct rdmux_stream_out *out = &stream->out;
    if (!out->write.is_lent) {
        if (stream->is_ended || stream->ep->phase > RDMUX_PHASE_READY) {
            return rdmux_stream_fail_ended(stream, call);
        }
        lend_list(&out->write, list);
        out->taken = 0;
        rdmux_stream_push(stream);
    }
    if (!rdmux_stream_is_writable(stream)) {
        rdmux_ep_progress(stream->ep);
    }
    if (!rdmux_stream_is_writable(stream)) {
        return no_room(stream);
    }
    out->write.is_lent = false;
    if (out->taken == out->write.total && stream->ep->phase <= RDMUX_PHASE_READY) {
        *done = (size_t)out->taken;
        return RDMUX_OK;
    }
    return rdmux_stream_fail_ended(stream, call);
}

static enum rdmux_status write_list(struct rdmux_stream *stream, const char *call,
                                    const struct rdmux_sge *pieces, size_t count, uint32_t flags,
                                    size_t *done)
{
    if (RDMUX_UNLIKELY(done == NULL)) {
        return rdmux_fail(RDMUX_INVALID, "%s: done is NULL", call);
    }
    *done = 0;
    enum rdmux_status status = rdmux_stream_enter(stream, call);
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        return status;
    }
    struct list list;
    status = check_list(stream, call, pieces, count, 0, &list);
    const bool lent = flags == RDMUX_STREAM_LEND;
    if (RDMUX_UNLIKELY(status != RDMUX_OK)) {
        /* the text is set */
    } else if (RDMUX_UNLIKELY(!lent && flags != 0)) {
        status = rdmux_fail(RDMUX_INVALID, "%s: flags 0x%x has unknown bits", call, flags);
    } else if (RDMUX_UNLIKELY(stream->out.write.is_lent &&
                              !(lent && is_same(&stream->out.write, &list)))) {
        status = fail_lent(call, "write");
    } else if (RDMUX_UNLIKELY(stream->out.is_fin_wanted)) {
        status = rdmux_fail(RDMUX_INVALID, "%s: rdmux_stream_shutdown() has ended this direction",
                            call);
    } else {
        stream->wants &= ~(uint32_t)RDMUX_STREAM_WRITE;
        if (list.total != 0) {
            status = lent ? write_lent(stream, call, &list, done)
                          : write_copied(stream, call, &list, done);
        }
    }
    rdmux_cq_leave(stream->ep->cq);
    return status;
}

enum rdmux_status rdmux_stream_write(struct rdmux_stream *stream, const void *buf, size_t length,
                                     uint32_t flags, size_t *done)
{
    const struct rdmux_sge piece = rdmux_piece(buf, length, NULL);
    return write_list(stream, "rdmux_stream_write", &piece, 1, flags, done);
}

enum rdmux_status rdmux_stream_writev(struct rdmux_stream *stream, const struct rdmux_sge *pieces,
                                      size_t count, uint32_t flags, size_t *done)
{
    return write_list(stream, "rdmux_stream_writev", pieces, count, flags, done);
}

/* ------------------------------------------------------------------------------------- half close */

enum rdmux_status rdmux_stream_shutdown(struct rdmux_stream *stream, int how)
{
    enum rdmux_status status = rdmux_stream_enter(stream, "rdmux_stream_shutdown");
    if (status != RDMUX_OK) {
        return status;
    }
    const bool reads = (how & RDMUX_STREAM_READ) != 0;
    const bool writes = (how & RDMUX_STREAM_WRITE) != 0;
    if (how == 0 || (how & ~(RDMUX_STREAM_READ | RDMUX_STREAM_WRITE)) != 0) {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_stream_shutdown: how is %d, not a direction", how);
    } else if ((reads && stream->in.read.is_lent) || (writes && stream->out.write.is_lent)) {
        status = fail_lent("rdmux_stream_shutdown",
                           reads && stream->in.read.is_lent ? "read" : "write");
    } else if (writes && !stream->out.has_fin &&
               (stream->is_ended || stream->ep->phase > RDMUX_PHASE_READY)) {
        status = rdmux_stream_fail_ended(stream, "rdmux_stream_shutdown");
    } else {
        stream->in.is_discarding = stream->in.is_discarding || reads;
        stream->out.is_fin_wanted = stream->out.is_fin_wanted || writes;
        rdmux_stream_fill(stream);
        rdmux_stream_push(stream);
    }
    rdmux_cq_leave(stream->ep->cq);
    return status;
}
