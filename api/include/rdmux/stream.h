/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * stream.h - byte streams over rdmux endpoints, for code that thinks in sockets.
 *
 * A stream is a reliable, ordered sequence of bytes in each direction, without message boundaries.
 * It owns one endpoint, whose peer is a stream, too. What holds for the endpoint holds for the
 * stream: negotiation and its explanation, failover, liveness, authentication, encryption.
 *
 * The bytes     Each side has a ring, memory of its own that the peer writes one-sided: a small
 *               write is one RDMA write with immediate data. A large read with RDMUX_STREAM_ALL and
 *               a large write with RDMUX_STREAM_LEND need no ring: the bytes go from the writer's
 *               buffer into the reader's (rdmux_stream_attr.direct).
 * Back-pressure A writer that has filled the peer's ring gets RDMUX_AGAIN until the peer's program
 *               reads.
 * Readiness     After RDMUX_AGAIN a program waits in one of three ways:
 *               - rdmux_stream_wait() blocks.
 *               - A stream on a cq of the program has an entry in that cq, RDMUX_WC_STREAM_READABLE
 *                 or RDMUX_WC_STREAM_WRITABLE. Its context is the stream, its ep NULL, its status
 *                 RDMUX_OK or why the stream failed. One entry comes for each RDMUX_AGAIN; a call
 *                 that succeeds meanwhile withdraws it.
 *               - A stream with a cq of its own (cq NULL) has a descriptor of its own:
 *                 rdmux_stream_fd(), rdmux_stream_arm().
 * End           rdmux_stream_shutdown() with RDMUX_STREAM_WRITE sends a mark behind the bytes. The
 *               peer reads all bytes before it, then gets RDMUX_OK and 0 bytes. When both sides
 *               have sent their mark, the endpoint ends in order. Then rdmux_stream_info.state is
 *               RDMUX_STREAM_ENDED, and a cq of the program gets RDMUX_WC_DISCONNECTED.
 * Failover      If it is in force the stream goes on over another path, its bytes and lent buffers,
 *               too. A cq of the program gets one RDMUX_WC_PATH_CHANGED for the moves since the last.
 * Failure       If the endpoint fails, reads return the bytes that are here, then the cause. Writes
 *               return the cause at once.
 * Fork          A stream belongs to the process that opened it. In a child every call on it is
 *               RDMUX_INVALID.
 *
 * The conventions of rdmux.h hold here. Threads: "its cq": calls on a stream are calls on its cq.
 * Two threads may use one stream, one of them as reader and the other as writer, if its cq has
 * RDMUX_CQ_SERIALIZED (or, with a cq of its own, if the stream has RDMUX_STREAM_SERIALIZED).
 * [data path] functions never sleep, allocate or log.
 */
#ifndef RDMUX_STREAM_H
#define RDMUX_STREAM_H

#include <rdmux/rdmux.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A byte stream. Threads: its cq. */
struct rdmux_stream;

/* Directions, for rdmux_stream_shutdown(), rdmux_stream_wait() and rdmux_stream_arm(). */
enum {
    RDMUX_STREAM_READ = 1 << 0,  /* a read would not return RDMUX_AGAIN */
    RDMUX_STREAM_WRITE = 1 << 1, /* a write would not return RDMUX_AGAIN */
    /* The endpoint has ended, in order or not: rdmux_stream_info.status. Not for shutdown. */
    RDMUX_STREAM_END = 1 << 2,
};

/* Flags of reads and writes. */
enum {
    /* Read: RDMUX_OK comes only with all bytes asked for, with fewer only at the peer's end. */
    RDMUX_STREAM_ALL = 1 << 0,
    /* Write: the bytes are not copied. The program lends them until the call, repeated after
     * RDMUX_AGAIN, returns another status. */
    RDMUX_STREAM_LEND = 1 << 1,
};

/* rdmux_stream_attr.flags */
enum {
    /* With cq NULL: as RDMUX_CQ_SERIALIZED for the stream's own cq. */
    RDMUX_STREAM_SERIALIZED = 1 << 0,
};

/* rdmux_stream_info.state */
enum rdmux_stream_state {
    RDMUX_STREAM_CONNECTING = 1, /* the endpoint, or the exchange of the rings, is not ready */
    RDMUX_STREAM_OPEN = 2,
    RDMUX_STREAM_ENDED = 3, /* the endpoint has ended; bytes may still wait to be read */
};

/*
 * Options of a stream. Zero in a field means its default.
 *
 * flags      RDMUX_STREAM_SERIALIZED.
 * linger_ms  rdmux_stream_close() waits at most this long for the bytes written before to arrive at
 *            the peer; default 2000; RDMUX_OFF: not at all, bytes under way are lost. RDMUX_NEVER is
 *            the same number as RDMUX_OFF.
 * ep         Options of the endpoint; NULL = defaults. srq is RDMUX_INVALID. send_depth and
 *            recv_depth are at least 32 if they are given. user: see rdmux_stream_user().
 *            rdmux_stream_open() ignores them.
 * ring       Bytes of this side's ring, a power of two, 4096 to 64 MiB; default 128 KiB. The peer
 *            may write so many bytes ahead of this side's reads.
 * direct     Reads with RDMUX_STREAM_ALL have bytes placed directly in the caller's buffer if at
 *            least this many go there, at least 4096; UINT64_MAX: never. Bytes that fit into the
 *            ring ahead of them go through the ring. Default: 64 KiB; never over a path that maps
 *            the peer's memory (shm), where the two copies of the ring, which both processors make
 *            at once, are faster than the one copy of a direct receive.
 * user       Initial value for rdmux_stream_user().
 */
struct rdmux_stream_attr {
    uint32_t size;
    uint32_t flags;
    const struct rdmux_ep_attr *ep;
    uint64_t ring;
    uint64_t direct;
    uint32_t linger_ms;
    uint32_t spare0;
    void *user;
    uint64_t spare[8];
};
#define RDMUX_STREAM_ATTR_INIT RDMUX_INIT_OF(rdmux_stream_attr)

/*
 * Connects to a listener whose program calls rdmux_stream_accept().
 * cq          The program's cq, on which the endpoint works and events come; NULL: the stream
 *             makes one of its own, and frees it.
 * address     As for rdmux_connect(), without "rdma://" (RDMUX_UNSUPPORTED).
 * timeout_ms  0: RDMUX_IN_PROGRESS, *out set. Reads and writes are RDMUX_AGAIN until the set-up has
 *             ended, and return its failure if it failed. On a cq of the program
 *             RDMUX_WC_CONNECTED comes, with the stream as context.
 * Ownership   The caller ends the stream by rdmux_stream_close().
 * Threads     Its cq; any if cq is NULL. May sleep.
 * Errors      As rdmux_connect()
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_connect(
    struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *address,
    const struct rdmux_stream_attr *attr, int timeout_ms, struct rdmux_stream **out);

/*
 * Takes a connection of a listener, as rdmux_accept() does, and makes a stream of it. A peer that is
 * no stream shows later: reads and writes return RDMUX_PROTOCOL.
 * cq          As for rdmux_stream_connect(). With NULL the call takes one connection, and goes on
 *             to the next if its set-up fails, unless attr.ep->peer names it.
 * timeout_ms  0: RDMUX_AGAIN if nothing is there; nothing is allocated then. 0 with attr.ep->peer,
 *             or with cq NULL if a connection waits: RDMUX_IN_PROGRESS, *out set.
 * Ownership, threads, errors   As rdmux_stream_connect() and rdmux_accept()
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_accept(
    struct rdmux_listener *listener, struct rdmux_cq *cq, const struct rdmux_stream_attr *attr,
    int timeout_ms, struct rdmux_stream **out);

/* Negotiates over a connected socket of the program, as rdmux_adopt() does, and makes a stream of
 * the endpoint. Both sides call it, one in each role. The socket's ownership, timeout_ms, threads
 * and errors are those of rdmux_adopt(); cq as for rdmux_stream_connect(). */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_adopt(
    struct rdmux_fabric *fabric, struct rdmux_cq *cq, int socket, enum rdmux_role role,
    const struct rdmux_stream_attr *attr, int timeout_ms, struct rdmux_stream **out);

/*
 * Makes a stream of an endpoint, on the endpoint's cq. Both sides do this, before either has posted
 * a request or a receive. From then on the endpoint belongs to the stream: rdmux_stream_close()
 * closes it, and the program neither posts on it, moves it, shuts it down nor closes it.
 * ep       Connected, or in set-up. Its depths are at least 32.
 * Threads  Its cq. May sleep (registers the ring).
 * Errors   RDMUX_INVALID      it has an SRQ, a depth below 32, or requests; it is closed, or belongs
 *                             to a stream
 *          RDMUX_UNSUPPORTED  it is of rdma://, or its path has no write with immediate data
 *          RDMUX_NO_MEMORY, RDMUX_IO
 *          RDMUX_PEER_GONE, … The endpoint has ended, with this cause
 *          On an error the endpoint is the program's, as before.
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_open(struct rdmux_ep *ep,
                                                               const struct rdmux_stream_attr *attr,
                                                               struct rdmux_stream **out);

/*
 * Ends the stream and frees it. Bytes written before, and the mark of the end, still go to the peer:
 * the call waits for them at most rdmux_stream_attr.linger_ms. Buffers lent to the stream are free
 * on return; bytes that were lent and not taken yet are not sent. Bytes that the peer sent and
 * nobody read are dropped. No entry names the stream or its endpoint afterwards. NULL is allowed.
 * Threads  Its cq, the last call on the stream. Sleeps. Also while the program goes through the
 *          entries of one poll.
 * Errors   RDMUX_TIMED_OUT, RDMUX_PEER_GONE, …  The peer may lack bytes, for this cause; the stream
 *          is freed all the same. RDMUX_INVALID: in a child of fork
 */
RDMUX_API enum rdmux_status rdmux_stream_close(struct rdmux_stream *stream);

/*
 * [data path] Reads up to length bytes.
 * flags    RDMUX_STREAM_ALL or 0.
 * got      Bytes read, written whatever the status; 0 with RDMUX_OK: the peer's end (or length 0).
 *          With RDMUX_STREAM_ALL and another status it is 0, too: the bytes are returned once.
 * Errors   RDMUX_AGAIN        nothing is here yet; RDMUX_WC_STREAM_READABLE follows on a cq of the
 *                             program. With RDMUX_STREAM_ALL the buffer is lent from then on, until
 *                             the call, repeated with the same arguments, returns another status,
 *                             or rdmux_stream_close(). Meanwhile the library writes into it.
 *          RDMUX_INVALID      also: another read, peek or consume while a buffer is lent
 *          RDMUX_PEER_GONE, … The endpoint has ended without the peer's end, with this cause. If it
 *                             ends while a buffer is lent, its first bytes are returned first, with
 *                             RDMUX_OK
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_read(struct rdmux_stream *stream,
                                                               void *buf, size_t length,
                                                               uint32_t flags, size_t *got);
/* The same into count pieces, at most 16, filled in order. mr of a piece may be NULL; if it is a
 * region that contains the piece, bytes placed directly cost no registration. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_readv(struct rdmux_stream *stream,
                                                                const struct rdmux_sge *pieces,
                                                                size_t count, uint32_t flags,
                                                                size_t *got);

/*
 * [data path] Writes up to length bytes, as many as the peer's ring has room for.
 * flags    0: the library copies the bytes, which are free on return. RDMUX_STREAM_LEND: the bytes
 *          leave from the caller's buffer; RDMUX_OK comes when all of them have left and are free.
 * done     Bytes taken, written whatever the status. With RDMUX_STREAM_LEND length or 0.
 * Errors   RDMUX_AGAIN        no room, or with RDMUX_STREAM_LEND not all bytes have left;
 *                             RDMUX_WC_STREAM_WRITABLE follows on a cq of the program. Lent bytes
 *                             stay lent until the call, repeated with the same arguments, returns
 *                             another status, or rdmux_stream_close(). Other reads go on meanwhile.
 *          RDMUX_INVALID      also: another write, or a shutdown of this direction, while bytes are
 *                             lent; a write after rdmux_stream_shutdown()
 *          RDMUX_PEER_GONE, … The endpoint has ended, with this cause
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_write(struct rdmux_stream *stream,
                                                                const void *buf, size_t length,
                                                                uint32_t flags, size_t *done);
/* The same from count pieces, at most 16, in order. mr as for rdmux_stream_readv(). */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_writev(struct rdmux_stream *stream,
                                                                 const struct rdmux_sge *pieces,
                                                                 size_t count, uint32_t flags,
                                                                 size_t *done);

/*
 * [data path] Shows bytes that wait in the ring, without a copy and without taking them.
 * bytes    Points into the ring; valid until rdmux_stream_consume(), a read, or close. Until then a
 *          peer that breaks the protocol can change them: copy what is checked before it is used.
 * length   At least 1, or 0 at the peer's end (*bytes is NULL then). More bytes may wait: the ring's
 *          end splits them, and rdmux_stream_consume() shows the rest.
 * Errors   As rdmux_stream_read()
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_peek(struct rdmux_stream *stream,
                                                               const void **bytes, size_t *length);
/* [data path] Takes length bytes that rdmux_stream_peek() has shown. Errors: RDMUX_INVALID: more
 * than that, or a read is lent. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_consume(struct rdmux_stream *stream,
                                                                  size_t length);

/*
 * Ends one direction, or both. A second call for a direction does nothing.
 * how      RDMUX_STREAM_WRITE: the mark of the end goes behind the bytes written before; later
 *          writes are RDMUX_INVALID. RDMUX_STREAM_READ: this side wants no more bytes: reads return
 *          RDMUX_OK and 0, and the library drops what arrives, so that the peer's writes go on.
 * Threads  Its cq. Does not wait.
 * Errors   RDMUX_INVALID (an unknown direction, or a buffer is lent in it), or why the endpoint
 *          ended
 */
RDMUX_API enum rdmux_status rdmux_stream_shutdown(struct rdmux_stream *stream, int how);

/*
 * Sleeps until one of the events has come, or the stream has failed. Makes progress of its cq.
 * Returns at once if nothing can be waited for.
 * events      RDMUX_STREAM_READ, RDMUX_STREAM_WRITE, RDMUX_STREAM_END; at least one.
 * timeout_ms  0: looks once.
 * Threads     Its cq. Entries of other objects on a cq of the program wait for the next poll. The
 *             call withdraws the stream's own entries for these events.
 * Errors      RDMUX_AGAIN (timeout 0), RDMUX_TIMED_OUT, RDMUX_INVALID, RDMUX_IO. The failure of a
 *             stream is RDMUX_OK here: the read or write that follows returns it.
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_wait(struct rdmux_stream *stream,
                                                               uint32_t events, int timeout_ms);

/*
 * Returns a descriptor for poll(2), select(2), epoll(7), level or edge triggered; -1 after fork. It
 * belongs to the library and lives as long as the stream. The program waits for it to be readable
 * (EPOLLIN), for writability, too. A stream with a cq of its own has a descriptor of its own;
 * streams on a cq of the program have that of the cq, rdmux_cq_fd(). Threads: any.
 */
RDMUX_API int rdmux_stream_fd(struct rdmux_stream *stream);

/*
 * Makes the descriptor of rdmux_stream_fd() readable when one of the events comes; holds for one
 * wake-up, until the next call on the stream. It may be readable without an event. A loop that loses
 * no wake-up, level or edge triggered: read or write until RDMUX_AGAIN, then arm; on RDMUX_AGAIN
 * read or write again, else sleep on the descriptor.
 * Threads  Its cq. While one thread sleeps on the descriptor another may read or write.
 * Errors   RDMUX_AGAIN: one of the events is there already. RDMUX_INVALID
 */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_arm(struct rdmux_stream *stream,
                                                              uint32_t events);

/* The present state of a stream, and counts since it was opened. */
struct rdmux_stream_info {
    uint32_t size;
    uint32_t state;     /* enum rdmux_stream_state */
    uint32_t status;    /* RDMUX_OK while it works or after an orderly end, else why it ended */
    uint32_t ends;      /* RDMUX_STREAM_READ: the peer's end was received; _WRITE: ours was sent */
    uint64_t readable;  /* bytes that a read would get from the ring */
    uint64_t writable;  /* bytes that a write would put into the peer's ring */
    uint64_t ring;      /* bytes of this side's ring */
    uint64_t peer_ring; /* 0: not known yet */
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t direct_read;    /* of bytes_read: placed in the caller's buffer without the ring */
    uint64_t direct_written; /* of bytes_written: sent from the caller's buffer without the ring */
    char text[RDMUX_TEXT_MAX]; /* cause of status */
    uint64_t spare[8];
};
#define RDMUX_STREAM_INFO_INIT RDMUX_INIT_OF(rdmux_stream_info)

/* Fills in *out, whose size is set. Threads: its cq. Errors: RDMUX_INVALID. */
RDMUX_API RDMUX_MUST_CHECK enum rdmux_status rdmux_stream_info(struct rdmux_stream *stream,
                                                               struct rdmux_stream_info *out);

/* Returns the stream's endpoint, for rdmux_ep_info(), rdmux_ep_stats() and rdmux_ep_explanation()
 * alone. NULL after fork. Threads: any. */
RDMUX_API struct rdmux_ep *rdmux_stream_ep(struct rdmux_stream *stream);

/* Set and return a pointer of the program that the stream keeps. Threads: its cq. Errors:
 * RDMUX_INVALID. */
RDMUX_API enum rdmux_status rdmux_stream_set_user(struct rdmux_stream *stream, void *user);
RDMUX_API void *rdmux_stream_user(struct rdmux_stream *stream);

/* RDMUX_STREAM_*_INIT as functions, see rdmux_ep_attr_init(). Threads: any. */
RDMUX_API void rdmux_stream_attr_init(struct rdmux_stream_attr *out, size_t size);
RDMUX_API void rdmux_stream_info_init(struct rdmux_stream_info *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
