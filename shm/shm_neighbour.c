/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The processes that a cq's endpoints have as peers. The endpoints of a cq to one process share its
 * pidfd and a ready set. The endpoints of a domain to one queue of a process share its doorbell,
 * its ready set and its region table. So an endpoint has no descriptor of its own but its socket.
 *
 * An endpoint that changes its cq leaves the neighbour at the old one and joins another at the new
 * one. */
#include "shm_internal.h"
#include "shm_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NEIGHBOURS_FIRST = 4, /* initial size of a cq's table of neighbours */
    MARKED_FIRST = 8,     /* initial size of a neighbour's table of marks; a power of two */
    SEARCHES = 16,        /* marks that are tried before the table grows */
};

/* -------------------------------------------------------------------------------- neighbours */

static bool has_process_ended(int pidfd)
{
    struct pollfd item = { .fd = pidfd, .events = POLLIN };
    return poll(&item, 1, 0) > 0;
}

/* Without a pidfd nothing tells whether the process is still the same, so nothing is shared. */
static struct shm_neighbour *find_neighbour(const struct shm_cq *cq, pid_t pid)
{
    for (uint32_t i = 0; i < cq->neighbour_count; i++) {
        struct shm_neighbour *neighbour = cq->neighbours[i];
        if (neighbour->pid == pid && neighbour->pidfd >= 0 && !neighbour->is_gone &&
            !has_process_ended(neighbour->pidfd)) {
            return neighbour;
        }
    }
    return NULL;
}

static enum rdmux_status no_memory(void)
{
    rdmux_provider_error("shm: out of memory for the peers of a queue");
    return RDMUX_NO_MEMORY;
}

static enum rdmux_status enlarge_neighbours(struct shm_cq *cq)
{
    struct rdmux_fabric *fabric = cq->base.domain->fabric;
    if (cq->neighbour_count < cq->neighbour_room) {
        return RDMUX_OK;
    }
    uint32_t room = cq->neighbour_room == 0 ? NEIGHBOURS_FIRST : 2 * cq->neighbour_room;
    struct shm_neighbour **grown = rdmux_provider_allocate(fabric,
                                                           room * sizeof(struct shm_neighbour *));
    if (grown == NULL) {
        return no_memory();
    }
    if (cq->neighbour_count > 0) {
        memcpy(grown, cq->neighbours, cq->neighbour_count * sizeof(struct shm_neighbour *));
    }
    rdmux_provider_release(fabric, cq->neighbours);
    cq->neighbours = grown;
    cq->neighbour_room = room;
    return RDMUX_OK;
}

/* Takes over the pidfd, also on a failure; -1: not available. */
static enum rdmux_status add_neighbour(struct shm_cq *cq, pid_t pid, int pidfd,
                                       struct shm_neighbour **out)
{
    enum rdmux_status status = enlarge_neighbours(cq);
    struct shm_neighbour *neighbour = NULL;
    if (status == RDMUX_OK) {
        neighbour = rdmux_provider_allocate(cq->base.domain->fabric, sizeof(*neighbour));
        status = neighbour != NULL ? RDMUX_OK : no_memory();
    }
    if (status != RDMUX_OK) {
        if (pidfd >= 0) {
            (void)close(pidfd);
        }
        return status;
    }
    neighbour->pid = pid;
    neighbour->ready_fd = -1;
    neighbour->pidfd = pidfd;
    if (neighbour->pidfd >= 0 &&
        rdmux_shm_cq_watch(cq, neighbour, neighbour->pidfd, SHM_WATCH_PID, EPOLLIN) != RDMUX_OK) {
        (void)close(neighbour->pidfd); /* without a watch the endpoints check by themselves */
        neighbour->pidfd = -1;
    }
    neighbour->place = cq->neighbour_count;
    cq->neighbours[cq->neighbour_count++] = neighbour;
    *out = neighbour;
    return RDMUX_OK;
}

static void remove_neighbour(struct shm_cq *cq, struct shm_neighbour *neighbour)
{
    struct rdmux_fabric *fabric = cq->base.domain->fabric;
    for (struct shm_neighbour **link = &cq->awake_neighbours; *link != NULL;
         link = &(*link)->awake_next) {
        if (*link == neighbour) {
            *link = neighbour->awake_next;
            break;
        }
    }
    cq->neighbour_count--;
    cq->neighbours[neighbour->place] = cq->neighbours[cq->neighbour_count];
    cq->neighbours[neighbour->place]->place = neighbour->place;
    if (neighbour->pidfd >= 0) {
        rdmux_shm_cq_unwatch(cq, neighbour->pidfd);
        (void)close(neighbour->pidfd);
    }
    if (neighbour->ready_fd >= 0) {
        (void)close(neighbour->ready_fd);
    }
    rdmux_shm_ready_unmap(neighbour->ready);
    rdmux_provider_release(fabric, neighbour->marked);
    rdmux_provider_release(fabric, neighbour);
}

/* ------------------------------------------------------------------------------------- marks */

static enum rdmux_status grow_marks(struct shm_cq *cq, struct shm_neighbour *neighbour)
{
    struct rdmux_fabric *fabric = cq->base.domain->fabric;
    uint32_t room = neighbour->marked_room == 0 ? MARKED_FIRST : 2 * neighbour->marked_room;
    struct shm_ep **grown = rdmux_provider_allocate(fabric, room * sizeof(struct shm_ep *));
    if (grown == NULL) {
        return no_memory();
    }
    if (neighbour->marked_room > 0) {
        memcpy(grown, neighbour->marked, neighbour->marked_room * sizeof(struct shm_ep *));
    }
    rdmux_provider_release(fabric, neighbour->marked);
    neighbour->next_mark = neighbour->marked_room;
    neighbour->marked = grown;
    neighbour->marked_room = room;
    return RDMUX_OK;
}

/* Looks for a mark of no endpoint, from the next one on. */
static bool find_free_mark(struct shm_neighbour *neighbour)
{
    for (uint32_t i = 0; i < SEARCHES && i < neighbour->marked_room; i++) {
        uint32_t mark = (neighbour->next_mark + i) % neighbour->marked_room;
        if (neighbour->marked[mark] == NULL) {
            neighbour->next_mark = mark;
            return true;
        }
    }
    return false;
}

/* Gives the endpoint a mark. Endpoints share marks where a process has more of them than marks. */
static enum rdmux_status take_mark(struct shm_cq *cq, struct shm_ep *ep)
{
    struct shm_neighbour *neighbour = ep->neighbour;
    if (!find_free_mark(neighbour) && neighbour->marked_room < SHM_MARK_COUNT) {
        enum rdmux_status status = grow_marks(cq, neighbour);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    ep->mark = neighbour->next_mark;
    ep->mark_next = neighbour->marked[ep->mark];
    neighbour->marked[ep->mark] = ep;
    neighbour->next_mark = (ep->mark + 1) % neighbour->marked_room;
    ep->is_marked = true;
    return RDMUX_OK;
}

static void return_mark(struct shm_ep *ep)
{
    if (!ep->is_marked) {
        return;
    }
    for (struct shm_ep **link = &ep->neighbour->marked[ep->mark]; *link != NULL;
         link = &(*link)->mark_next) {
        if (*link == ep) {
            *link = ep->mark_next;
            break;
        }
    }
    ep->is_marked = false;
}

static enum rdmux_status make_ready_set(struct shm_cq *cq, struct shm_neighbour *neighbour)
{
    if (neighbour->ready != NULL) {
        return RDMUX_OK;
    }
    enum rdmux_status status = rdmux_shm_ready_create(&neighbour->ready, &neighbour->ready_fd);
    if (status == RDMUX_OK) {
        neighbour->is_awake = true;
        neighbour->awake_next = cq->awake_neighbours;
        cq->awake_neighbours = neighbour;
    }
    return status;
}

static enum rdmux_status join(struct shm_ep *ep, struct shm_neighbour *neighbour, bool ready_set)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    neighbour->refs++;
    ep->neighbour = neighbour;
    if (!ready_set) {
        return RDMUX_OK;
    }
    enum rdmux_status status = make_ready_set(cq, neighbour);
    return status == RDMUX_OK ? take_mark(cq, ep) : status;
}

enum rdmux_status rdmux_shm_neighbour_join(struct shm_ep *ep, bool ready_set)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    struct shm_neighbour *neighbour = find_neighbour(cq, ep->peer.pid);
    if (neighbour == NULL) {
        /* A child that the process forked keeps sockets open; the pidfd ends with the process. */
        int pidfd = (int)syscall(SYS_pidfd_open, ep->peer.pid, 0U);
        enum rdmux_status status = add_neighbour(cq, ep->peer.pid, pidfd, &neighbour);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    return join(ep, neighbour, ready_set);
}

/* The pid may be another process's by now; that of a process that has not ended is its own. */
enum rdmux_status rdmux_shm_neighbour_rejoin(struct shm_ep *ep, bool ready_set)
{
    struct shm_cq *cq = shm_cq_of(ep->base.cq);
    struct shm_neighbour *neighbour = NULL;
    int pidfd = ep->peer.pidfd;
    ep->peer.pidfd = -1;
    if (pidfd >= 0 && !has_process_ended(pidfd)) {
        neighbour = find_neighbour(cq, ep->peer.pid);
    }
    if (neighbour == NULL) {
        enum rdmux_status status = add_neighbour(cq, ep->peer.pid, pidfd, &neighbour);
        if (status != RDMUX_OK) {
            return status;
        }
    } else {
        (void)close(pidfd);
    }
    return join(ep, neighbour, ready_set);
}

void rdmux_shm_neighbour_leave(struct shm_ep *ep)
{
    struct shm_neighbour *neighbour = ep->neighbour;
    if (neighbour == NULL) {
        return;
    }
    return_mark(ep);
    ep->neighbour = NULL;
    if (--neighbour->refs == 0) {
        remove_neighbour(shm_cq_of(ep->base.cq), neighbour);
    }
}

/* ------------------------------------------------------------------------------ peers' queues */

enum rdmux_status rdmux_shm_bell_check(int fd)
{
    struct stat info;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_NONBLOCK) == 0 || fstat(fd, &info) != 0 ||
        (info.st_mode & S_IFMT) != 0) {
        rdmux_provider_error("shm: the peer's bell is no eventfd");
        return RDMUX_PROTOCOL;
    }
    return RDMUX_OK;
}

static enum rdmux_status add_queue(struct shm_ep *ep, int ready_fd, int regions_fd, int *bell,
                                   struct shm_queue **out)
{
    struct shm_queue *queue = rdmux_provider_allocate(shm_fabric_of(ep), sizeof(*queue));
    if (queue == NULL) {
        return no_memory();
    }
    enum rdmux_status status = rdmux_shm_bell_check(*bell);
    if (status != RDMUX_OK) {
        goto release_memory;
    }
    status = rdmux_shm_ready_map(ready_fd, &queue->ready);
    if (status != RDMUX_OK) {
        goto release_memory;
    }
    status = rdmux_shm_regions_map(regions_fd, &queue->regions);
    if (status != RDMUX_OK) {
        goto unmap_ready;
    }
    queue->bell = *bell;
    *bell = -1;
    queue->pid = ep->peer.pid;
    struct shm_domain *domain = shm_domain_of(ep->base.cq->domain);
    queue->next = domain->queues;
    domain->queues = queue;
    *out = queue;
    return RDMUX_OK;

unmap_ready:
    rdmux_shm_ready_unmap(queue->ready);
release_memory:
    rdmux_provider_release(shm_fabric_of(ep), queue);
    return status;
}

/* Finds or adds the queue, for one more endpoint. The domain's mutex is held. The ready set's
 * memory file says which queue it is, as the kernel gives no two of them one inode number. No
 * number of the peer's decides. */
static enum rdmux_status take_queue(struct shm_ep *ep, int ready_fd, int regions_fd, int *bell,
                                    struct shm_queue **out)
{
    struct stat info;
    if (fcntl(ready_fd, F_GET_SEALS) < 0 || fstat(ready_fd, &info) != 0) {
        rdmux_provider_error("shm: the peer's ready set is no memory file");
        return RDMUX_PROTOCOL;
    }
    struct shm_queue *queue = shm_domain_of(ep->base.cq->domain)->queues;
    while (queue != NULL && (queue->pid != ep->peer.pid || queue->number != (uint64_t)info.st_ino)) {
        queue = queue->next;
    }
    if (queue == NULL) {
        enum rdmux_status status = add_queue(ep, ready_fd, regions_fd, bell, &queue);
        if (status != RDMUX_OK) {
            return status;
        }
        queue->number = (uint64_t)info.st_ino;
    }
    queue->refs++;
    *out = queue;
    return RDMUX_OK;
}

/* The domain's mutex is held. */
static void release_queue(struct shm_ep *ep, struct shm_queue *queue)
{
    if (--queue->refs > 0) {
        return;
    }
    struct shm_queue **link = &shm_domain_of(ep->base.cq->domain)->queues;
    while (*link != NULL && *link != queue) {
        link = &(*link)->next;
    }
    if (*link == queue) {
        *link = queue->next;
    }
    (void)close(queue->bell);
    rdmux_shm_ready_unmap(queue->ready);
    rdmux_shm_regions_unmap(queue->regions);
    rdmux_provider_release(shm_fabric_of(ep), queue);
}

enum rdmux_status rdmux_shm_queue_join(struct shm_ep *ep, int ready_fd, int regions_fd, int *bell)
{
    struct shm_domain *domain = shm_domain_of(ep->base.cq->domain);
    struct shm_queue *queue = NULL;
    (void)pthread_mutex_lock(&domain->mutex);
    enum rdmux_status status = take_queue(ep, ready_fd, regions_fd, bell, &queue);
    if (status == RDMUX_OK) {
        queue->refs++; /* as first_queue */
    }
    (void)pthread_mutex_unlock(&domain->mutex);
    if (status != RDMUX_OK) {
        return status;
    }
    ep->queue = ep->first_queue = queue;
    ep->peer.their_bell = queue->bell;
    ep->regions.table = queue->regions;
    return RDMUX_OK;
}

void rdmux_shm_queue_leave(struct shm_ep *ep)
{
    struct shm_domain *domain = shm_domain_of(ep->base.cq->domain);
    if (ep->queue == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&domain->mutex);
    release_queue(ep, ep->queue);
    release_queue(ep, ep->first_queue);
    (void)pthread_mutex_unlock(&domain->mutex);
    ep->queue = ep->first_queue = NULL;
    ep->peer.their_bell = -1;
    ep->regions.table = NULL;
}

/* ---------------------------------------------------------------------------- changes of the cq */

void rdmux_shm_queue_lose(struct shm_ep *ep)
{
    ep->is_lost = true;
    ep->is_gone = true;
    if (ep->state == SHM_EP_CONNECTED) {
        if (ep->is_asleep) {
            rdmux_shm_cq_awaken(ep);
        }
        shm_wake_owner(ep);
    }
}

/* Regions of the peer stay in the table that it connected with: remotes refer to its words. */
void rdmux_shm_queue_change(struct shm_ep *ep, uint32_t mark, int *fds, size_t count)
{
    struct shm_domain *domain = shm_domain_of(ep->base.cq->domain);
    struct shm_queue *queue = NULL;
    if (ep->queue == NULL || count != SHM_QUEUE_FDS || mark >= SHM_MARK_COUNT) {
        rdmux_shm_queue_lose(ep);
        return;
    }
    (void)pthread_mutex_lock(&domain->mutex);
    if (take_queue(ep, fds[2], fds[1], &fds[0], &queue) == RDMUX_OK) {
        release_queue(ep, ep->queue);
        ep->queue = queue;
        ep->their_mark = mark;
        ep->peer.their_bell = queue->bell;
    }
    (void)pthread_mutex_unlock(&domain->mutex);
    if (queue == NULL) {
        rdmux_shm_queue_lose(ep);
    }
}
