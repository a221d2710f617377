/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Life of an endpoint: two processes meet at a socket, check each other, share a segment, and part.
 *
 *   acceptor   ep_open: listens. ep_connect: accepts the process that the description names,
 *              receives its HELLO with doorbell, region table, segment and ready set, answers with
 *              its own HELLO, and is connected.
 *   connector  ep_connect: connects to the socket of the description, makes the segment, sends
 *              HELLO, and is connected when the acceptor's HELLO has come.
 *
 * A peer of an older version has no ready sets. It rings a doorbell of the endpoint alone, which
 * says which endpoint has work. */
#include "shm_internal.h"
#include "shm_watch.h"

#include "api/base/secrets.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static_assert(offsetof(struct shm_ep, base) == 0, "shm_ep_of() relies on it");
static_assert((int)SHM_DESCRIPTION_SIZE <= (int)RDMUX_DESCRIPTION_MAX, "the description fits");

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

static void close_fds(int fds[SHM_FDS_MAX])
{
    for (size_t i = 0; i < SHM_FDS_MAX; i++) {
        close_fd(&fds[i]);
    }
}

static struct shm_domain *domain_of(const struct shm_ep *ep)
{
    return shm_domain_of(ep->base.cq->domain);
}

static bool is_shm_acceptor(const struct shm_ep *ep)
{
    return ep->attr->role == RDMUX_ROLE_ACCEPT;
}

/* From now on the cq's descriptor and poll report events for ep_connect. */
static void start_waiting(struct shm_ep *ep)
{
    if (ep->state == SHM_EP_NEW) {
        rdmux_shm_write_state(ep, SHM_EP_CONNECTING);
    }
}

/* Edge-triggered, so that the doorbell need not be read: each ring is reported once. */
static enum rdmux_status watch_own_bell(struct shm_ep *ep)
{
    return rdmux_shm_cq_watch(shm_cq_of(ep->base.cq), ep, ep->peer.own_bell, SHM_WATCH_BELL,
                              EPOLLIN | EPOLLET);
}

/* ------------------------------------------------------------------------------------- open */

enum rdmux_status rdmux_shm_ep_open(struct rdmux_provider_ep *base,
                                    const struct rdmux_provider_ep_attr *attr)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_cq *cq = shm_cq_of(base->cq);
    ep->attr = attr;
    ep->peer.own_bell = ep->peer.their_bell = ep->peer.socket = ep->peer.pidfd = -1;
    ep->setup.listener = -1;
    rdmux_list_init(&ep->reached);
    ep->regions.mappings = rdmux_provider_allocate(
        shm_fabric_of(ep), SHM_MAPPING_COUNT * sizeof(*ep->regions.mappings));
    if (ep->regions.mappings == NULL) {
        rdmux_provider_error("shm: out of memory for an endpoint");
        return RDMUX_NO_MEMORY;
    }
    ep->regions.mapping_room = SHM_MAPPING_COUNT;
    enum rdmux_status status = rdmux_shm_cq_add(cq, ep);
    if (status != RDMUX_OK) {
        goto release_mappings;
    }
    if (!is_shm_acceptor(ep)) {
        return RDMUX_OK;
    }
    status = rdmux_provider_random(shm_fabric_of(ep), ep->setup.meeting.name,
                                   sizeof(ep->setup.meeting.name));
    if (status != RDMUX_OK) {
        goto remove_from_cq;
    }
    status = rdmux_shm_meeting_listen(&ep->setup.meeting, &ep->setup.listener);
    if (status != RDMUX_OK) {
        goto remove_from_cq;
    }
    return RDMUX_OK;

remove_from_cq:
    rdmux_shm_cq_remove(cq, ep);
release_mappings:
    rdmux_provider_release(shm_fabric_of(ep), ep->regions.mappings);
    ep->regions.mappings = NULL;
    return status;
}

enum rdmux_status rdmux_shm_ep_describe(struct rdmux_provider_ep *base, uint8_t *out, size_t *size)
{
    struct shm_ep *ep = shm_ep_of(base);
    const struct shm_description description = { .pid = (uint32_t)getpid(),
                                                 .features = SHM_FEATURE_READY,
                                                 .place = ep->setup.meeting };
    if (*size < SHM_DESCRIPTION_SIZE) {
        rdmux_provider_error("shm: %zu bytes are too few for the connection data", *size);
        return RDMUX_INVALID;
    }
    rdmux_shm_description_encode(&description, out);
    *size = SHM_DESCRIPTION_SIZE;
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------- connect */

/* Points the endpoint at its segment. side is ours: 0 connector, 1 acceptor. */
static void attach_memory(struct shm_ep *ep, struct shm_segment *segment, unsigned side)
{
    struct shm_direction *outgoing = &segment->directions[side];
    struct shm_direction *incoming = &segment->directions[1 - side];
    ep->segment = segment;
    ep->mine = &segment->sides[side];
    ep->theirs = &segment->sides[1 - side];
    rdmux_shm_producer_init(&ep->out, outgoing, &ep->theirs->consumed);
    rdmux_shm_consumer_init(&ep->in, incoming, &ep->mine->consumed);
    ep->my_receives = incoming->receives;
    ep->their_receives = outgoing->receives;
}

static void watch_peer(struct shm_ep *ep)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    /* Not EPOLLIN: messages with descriptors stay in the socket until an import or a send reads
     * them. */
    enum rdmux_status status = rdmux_shm_cq_watch(cq, ep, ep->peer.socket, SHM_WATCH_SOCKET,
                                                  EPOLLRDHUP);
    ep->peer.is_watched = status == RDMUX_OK && ep->neighbour->pidfd >= 0;
}

/* Returns whether the kernel lets this process read and write the peer's memory; both need the same
 * right. Asks for the last page of the address space, which no process has: EFAULT means that the
 * right is there, any other result that it is not. A page that the peer has could make this thread
 * wait for the peer (userfaultfd(2), FUSE). */
static bool may_copy(const struct shm_ep *ep)
{
    uint8_t value = 0;
    struct iovec ours = { .iov_base = &value, .iov_len = sizeof(value) };
    struct iovec theirs = {
        .iov_base = (void *)(UINTPTR_MAX - SHM_PAGE + 1), /* NOLINT(performance-no-int-to-ptr) */
        .iov_len = sizeof(value),
    };
    return process_vm_readv(ep->peer.pid, &ours, 1, &theirs, 1, 0) < 0 && errno == EFAULT;
}

static bool has_ready_sets(const struct shm_ep *ep)
{
    return (ep->setup.theirs.features & SHM_FEATURE_READY) != 0;
}

/* Makes the doorbell for a peer without ready sets. */
static enum rdmux_status make_own_bell(struct shm_ep *ep)
{
    ep->peer.own_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ep->peer.own_bell < 0) {
        rdmux_provider_error("shm: no eventfd: errno %d; raise the limit on open files", errno);
        return RDMUX_NO_MEMORY;
    }
    return watch_own_bell(ep);
}

/* The kernel has told which process the peer is. */
static enum rdmux_status prepare_for_peer(struct shm_ep *ep)
{
    enum rdmux_status status = rdmux_shm_neighbour_join(ep, has_ready_sets(ep));
    return status != RDMUX_OK || has_ready_sets(ep) ? status : make_own_bell(ep);
}

/* Returns whether this side runs membarrier(2) for both before it sleeps. A side with an SRQ has many
 * peers, and sleeps as often as one of them asks: membarrier(2) interrupts all processors, so a
 * fence with each message costs less. */
static bool runs_membarrier(const struct shm_ep *ep)
{
    return domain_of(ep)->has_membarrier && !rdmux_provider_has_srq(&ep->base);
}

static enum rdmux_status say_hello(struct shm_ep *ep, int segment_fd)
{
    struct shm_hello hello = {
        .magic = is_shm_acceptor(ep) ? SHM_HELLO_ACCEPTOR : SHM_HELLO_CONNECTOR,
        .flags = runs_membarrier(ep) ? SHM_HELLO_MEMBARRIER : 0,
        .pid = (uint32_t)getpid(),
        .mark = ep->mark,
    };
    rdmux_provider_secret(&ep->base, hello.secret);
    uint8_t bytes[SHM_HELLO_SIZE];
    rdmux_shm_hello_encode(&hello, bytes);
    int fds[SHM_FDS_MAX];
    size_t count = 0;
    fds[count++] = has_ready_sets(ep) ? shm_cq_of(ep->base.cq)->bell : ep->peer.own_bell;
    fds[count++] = domain_of(ep)->regions_fd;
    if (segment_fd >= 0) {
        fds[count++] = segment_fd;
    }
    if (has_ready_sets(ep)) {
        fds[count++] = ep->neighbour->ready_fd;
    }
    return rdmux_shm_socket_send(ep->peer.socket, bytes, sizeof(bytes), fds, count);
}

/* Returns the number of descriptors that come with the peer's HELLO. */
static size_t hello_fds(const struct shm_ep *ep)
{
    return (is_shm_acceptor(ep) ? 3U : 2U) + (has_ready_sets(ep) ? 1U : 0U);
}

/* Takes over the doorbell, fds[0], and maps the region table, fds[1]. */
static enum rdmux_status take_bell(struct shm_ep *ep, int *fds)
{
    enum rdmux_status status = rdmux_shm_bell_check(fds[0]);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_shm_regions_map(fds[1], &ep->regions.table);
    if (status != RDMUX_OK) {
        return status;
    }
    ep->peer.their_bell = fds[0];
    fds[0] = -1;
    return RDMUX_OK;
}

/* Checks the peer's HELLO and takes over doorbell, region table and ready set, which is the last of
 * fds. */
static enum rdmux_status accept_hello(struct shm_ep *ep, const struct shm_hello *hello,
                                      uint32_t magic, int *fds)
{
    uint8_t secret[RDMUX_SECRET_SIZE];
    rdmux_provider_secret(&ep->base, secret);
    if (hello->magic != magic ||
        !rdmux_secret_bytes_match(hello->secret, secret, RDMUX_SECRET_SIZE) ||
        hello->pid != (uint32_t)ep->peer.pid) {
        rdmux_provider_error("shm: the process at the other end is not this connection's peer");
        return RDMUX_DENIED;
    }
    if (has_ready_sets(ep) && hello->mark >= SHM_MARK_COUNT) {
        rdmux_provider_error("shm: the peer's greeting has mark %u, and a ready set has %d",
                             hello->mark, (int)SHM_MARK_COUNT);
        return RDMUX_PROTOCOL;
    }
    ep->their_mark = hello->mark;
    enum rdmux_status status = has_ready_sets(ep) ? rdmux_shm_queue_join(ep, fds[hello_fds(ep) - 1],
                                                                         fds[1], &fds[0])
                                                  : take_bell(ep, fds);
    if (status != RDMUX_OK) {
        return status;
    }
    ep->is_fencing = SHM_TSAN || !runs_membarrier(ep) || (hello->flags & SHM_HELLO_MEMBARRIER) == 0;
    return RDMUX_OK;
}

/* Receives the peer's HELLO. */
static enum rdmux_status receive_hello(struct shm_ep *ep, struct shm_hello *out, int *fds)
{
    const size_t fd_count = hello_fds(ep);
    uint8_t bytes[SHM_HELLO_SIZE];
    size_t size = sizeof(bytes);
    enum rdmux_status status = rdmux_shm_socket_receive(ep->peer.socket, bytes, &size, fds,
                                                        fd_count);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_shm_hello_decode(bytes, size, out);
    if (status != RDMUX_OK) {
        rdmux_provider_error("shm: the peer's greeting is malformed");
        for (size_t i = 0; i < fd_count; i++) {
            close_fd(&fds[i]);
        }
    }
    return status;
}

static void become_connected(struct shm_ep *ep)
{
    struct shm_domain *domain = domain_of(ep);
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    ep->can_copy = may_copy(ep);
    ep->is_gone = ep->neighbour->is_gone;
    atomic_store_explicit(&ep->mine->can_copy, ep->can_copy ? 1U : 0U, memory_order_release);
    rdmux_shm_cq_unwatch(cq, ep->peer.socket);
    watch_peer(ep);
    ep->has_srq = rdmux_provider_has_srq(&ep->base) != 0;
    (void)pthread_mutex_lock(&domain->mutex);
    rdmux_list_append(&domain->eps, &ep->domain_link);
    (void)pthread_mutex_unlock(&domain->mutex);
    rdmux_shm_write_state(ep, SHM_EP_CONNECTED);
    ep->is_asleep = true; /* so that shm_wake_up() lets the cq poll the endpoint */
    shm_wake_up(ep);
}

/* Acceptor: receives HELLO and answers. */
static enum rdmux_status welcome_peer(struct shm_ep *ep)
{
    struct shm_hello hello;
    int fds[SHM_FDS_MAX] = { -1, -1, -1, -1 };
    enum rdmux_status status = receive_hello(ep, &hello, fds);
    if (status != RDMUX_OK) {
        return status;
    }
    status = accept_hello(ep, &hello, SHM_HELLO_CONNECTOR, fds);
    if (status == RDMUX_OK) {
        struct shm_segment *segment = NULL;
        status = rdmux_shm_segment_map(fds[2], &segment);
        if (status == RDMUX_OK) {
            attach_memory(ep, segment, 1);
            status = say_hello(ep, -1);
        }
    }
    close_fds(fds);
    if (status == RDMUX_OK) {
        become_connected(ep);
    }
    return status == RDMUX_AGAIN ? RDMUX_IO : status;
}

static void stop_listening(struct shm_ep *ep)
{
    if (ep->setup.listener >= 0) {
        rdmux_shm_cq_unwatch(shm_cq_of(ep->base.cq), ep->setup.listener);
        rdmux_shm_meeting_remove(&ep->setup.meeting);
        close_fd(&ep->setup.listener);
    }
}

static enum rdmux_status step_acceptor(struct shm_ep *ep)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    if (ep->peer.socket < 0) {
        enum rdmux_status status = rdmux_shm_socket_accept(ep->setup.listener, ep->peer.pid,
                                                           &ep->peer.socket);
        if (status != RDMUX_OK) {
            return status;
        }
        stop_listening(ep);
        status = prepare_for_peer(ep);
        if (status != RDMUX_OK) {
            return status;
        }
        status = rdmux_shm_cq_watch(cq, ep, ep->peer.socket, SHM_WATCH_SOCKET, EPOLLIN);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return welcome_peer(ep);
}

/* Connector: connects to the acceptor and sends HELLO with the segment. */
static enum rdmux_status meet_peer(struct shm_ep *ep)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    enum rdmux_status status = rdmux_shm_meeting_connect(&ep->setup.theirs.place, ep->peer.pid,
                                                         &ep->peer.socket);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_shm_socket_check_peer(ep->peer.socket, ep->peer.pid);
    if (status != RDMUX_OK) {
        return status;
    }
    status = prepare_for_peer(ep);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_shm_cq_watch(cq, ep, ep->peer.socket, SHM_WATCH_SOCKET, EPOLLIN);
    if (status != RDMUX_OK) {
        return status;
    }
    struct shm_segment *segment = NULL;
    int fd = -1;
    status = rdmux_shm_segment_create(&segment, &fd);
    if (status != RDMUX_OK) {
        return status;
    }
    attach_memory(ep, segment, 0);
    status = say_hello(ep, fd);
    close_fd(&fd);
    ep->setup.is_hello_sent = status == RDMUX_OK;
    return status == RDMUX_AGAIN ? RDMUX_IO : status;
}

static enum rdmux_status step_connector(struct shm_ep *ep)
{
    if (!ep->setup.is_hello_sent) {
        enum rdmux_status status = meet_peer(ep);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    struct shm_hello hello;
    int fds[SHM_FDS_MAX] = { -1, -1, -1, -1 };
    enum rdmux_status status = receive_hello(ep, &hello, fds);
    if (status != RDMUX_OK) {
        return status;
    }
    status = accept_hello(ep, &hello, SHM_HELLO_ACCEPTOR, fds);
    close_fds(fds);
    if (status == RDMUX_OK) {
        become_connected(ep);
    }
    return status;
}

enum rdmux_status rdmux_shm_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                       size_t size)
{
    struct shm_ep *ep = shm_ep_of(base);
    enum rdmux_status status;
    if (peer != NULL) {
        status = rdmux_shm_description_decode(peer, size, &ep->setup.theirs);
        if (status != RDMUX_OK) {
            return status;
        }
        ep->peer.pid = (pid_t)ep->setup.theirs.pid;
        if (is_shm_acceptor(ep)) {
            status = rdmux_shm_cq_watch(shm_cq_of(base->cq), ep, ep->setup.listener,
                                        SHM_WATCH_SOCKET, EPOLLIN);
            if (status != RDMUX_OK) {
                return status;
            }
        }
        start_waiting(ep);
    } else if ((is_shm_acceptor(ep) || ep->setup.is_hello_sent) && !ep->setup.has_event) {
        return RDMUX_IN_PROGRESS; /* the core calls for each set-up whenever any has news */
    }
    ep->setup.has_event = false;
    status = is_shm_acceptor(ep) ? step_acceptor(ep) : step_connector(ep);
    return status == RDMUX_AGAIN ? RDMUX_IN_PROGRESS : status;
}

enum rdmux_status rdmux_shm_ep_ping(struct rdmux_provider_ep *base)
{
    struct shm_ep *ep = shm_ep_of(base);
    if (ep->state == SHM_EP_CONNECTED && ep->peer.is_watched) {
        return RDMUX_UNSUPPORTED; /* the cq's descriptor reports the end */
    }
    ep->peer.alive_at_ns = 0;
    if (ep->state == SHM_EP_CONNECTED && rdmux_shm_peer_is_gone(ep)) {
        shm_wake_up(ep);
        shm_wake_owner(ep); /* poll delivers earlier messages, then reports the end */
    }
    return RDMUX_OK;
}

/* -------------------------------------------------------------------------------------- end */

enum rdmux_status rdmux_shm_ep_quiesce(struct rdmux_provider_ep *base,
                                       struct rdmux_provider_counts *counts)
{
    struct shm_ep *ep = shm_ep_of(base);
    *counts = ep->counts;
    if (ep->segment == NULL || ep->peer.their_bell < 0) { /* never connected */
        rdmux_shm_write_state(ep, SHM_EP_QUIESCED);
        return RDMUX_OK;
    }
    if (ep->state != SHM_EP_QUIESCED) {
        if (ep->state != SHM_EP_BROKEN) {
            rdmux_shm_tell_end(ep, SHM_CLOSED);
        }
        rdmux_shm_write_state(ep, SHM_EP_QUIESCED);
        ep->job.request = NULL;
        rdmux_shm_fence();
        if (atomic_load_explicit(&ep->theirs->sleeping, memory_order_relaxed) != 0) {
            rdmux_shm_wake_peer(ep);
        }
        /* Pairs with shm_access_begin(): an access that begins from now on sees the state. */
        shm_heavy_barrier(ep);
    }
    ep->peer.alive_at_ns = 0;
    if ((atomic_load_explicit(&ep->theirs->busy, memory_order_acquire) & 1) != 0 &&
        !rdmux_shm_peer_is_gone(ep)) {
        return RDMUX_IN_PROGRESS;
    }
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------- another cq */

static void unwatch_all(struct shm_ep *ep)
{
    const int watched[] = { ep->peer.own_bell, ep->peer.socket };
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++) {
        if (watched[i] >= 0) {
            rdmux_shm_cq_unwatch(shm_cq_of(ep->base.cq), watched[i]);
        }
    }
}

/* The rings, the jobs and the peer's queue do not depend on the cq. The peer goes on marking and
 * ringing for the old cq, also after that has ended, until it is told of the new one. */
enum rdmux_status rdmux_shm_ep_leave(struct rdmux_provider_ep *base)
{
    struct shm_ep *ep = shm_ep_of(base);
    /* The pid may be another process's by the time that the endpoint enters the new cq. */
    if (ep->neighbour != NULL && ep->neighbour->pidfd >= 0) {
        ep->peer.pidfd = fcntl(ep->neighbour->pidfd, F_DUPFD_CLOEXEC, 0);
        if (ep->peer.pidfd < 0) {
            rdmux_provider_error("shm: no descriptor: errno %d; raise the limit on open files",
                                 errno);
            return RDMUX_NO_MEMORY;
        }
    }
    unwatch_all(ep);
    rdmux_shm_cq_remove(shm_cq_of(base->cq), ep);
    rdmux_shm_neighbour_leave(ep);
    ep->is_asleep = false; /* nothing wakes it meanwhile */
    return RDMUX_OK;
}

enum rdmux_status rdmux_shm_ep_enter(struct rdmux_provider_ep *base)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_cq *cq = shm_cq_of(base->cq);
    struct rdmux_provider_counts counts;
    enum rdmux_status status = rdmux_shm_cq_add(cq, ep);
    if (status == RDMUX_OK) {
        status = rdmux_shm_neighbour_rejoin(ep, has_ready_sets(ep));
    }
    if (status == RDMUX_OK && ep->peer.own_bell >= 0) {
        status = watch_own_bell(ep);
    }
    if (status != RDMUX_OK) {
        (void)rdmux_shm_ep_quiesce(base, &counts);
        return status;
    }
    if (!ep->is_gone) {
        watch_peer(ep);
    }
    if (ep->state == SHM_EP_CONNECTED) {
        ep->is_untold = has_ready_sets(ep); /* before it first sleeps here, the peer is told */
        ep->is_asleep = true; /* a ring that came meanwhile has cleared the word for it */
        shm_wake_up(ep);
    }
    return RDMUX_OK;
}

/* -------------------------------------------------------------------------------------- close */

/* Does nothing if the endpoint was never connected. */
static void leave_domain(struct shm_ep *ep)
{
    struct shm_domain *domain = domain_of(ep);
    (void)pthread_mutex_lock(&domain->mutex);
    rdmux_node_remove(&ep->domain_link);
    rdmux_shm_regions_forget(ep);
    (void)pthread_mutex_unlock(&domain->mutex);
}

void rdmux_shm_ep_close(struct rdmux_provider_ep *base)
{
    struct shm_ep *ep = shm_ep_of(base);
    struct shm_cq *cq = shm_cq_of(base->cq);
    struct rdmux_provider_counts counts;
    if (ep->state != SHM_EP_QUIESCED) {
        (void)rdmux_shm_ep_quiesce(base, &counts);
    }
    leave_domain(ep);
    stop_listening(ep);
    unwatch_all(ep);
    rdmux_shm_cq_remove(cq, ep);
    if (ep->peer.socket >= 0) {
        (void)shutdown(ep->peer.socket, SHUT_RDWR); /* ends the socket in forked children, too */
    }
    rdmux_shm_mappings_release(ep);
    rdmux_shm_queue_leave(ep);
    rdmux_shm_neighbour_leave(ep);
    close_fd(&ep->peer.own_bell);
    close_fd(&ep->peer.pidfd);
    close_fd(&ep->peer.their_bell);
    close_fd(&ep->peer.socket);
    rdmux_shm_regions_unmap(ep->regions.table);
    rdmux_shm_segment_unmap(ep->segment);
}
