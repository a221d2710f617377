/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues. */
#include "adapters/fi/fi_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    RING_FIRST = 256,
    READ_BATCH = 16,
};

static struct fi_rdmux_cq *cq_of(struct fid_cq *fid)
{
    return FI_OF(fid, struct fi_rdmux_cq, fid);
}

/* ----------------------------------------------------------------------------------- the ring */

static void wake(struct fi_rdmux_cq *cq)
{
    const uint64_t one = 1;
    if (write(cq->event_fd, &one, sizeof(one)) < 0) {
        return; /* a full counter is readable already */
    }
}

void rdmux_fi_cq_push(struct fi_rdmux_cq *cq, const struct fi_entry *entry)
{
    if (cq->tail - cq->head == cq->ring_size) {
        const size_t size = cq->ring_size == 0 ? RING_FIRST : 2 * cq->ring_size;
        struct fi_entry *ring = malloc(size * sizeof(*ring));
        if (ring == NULL) {
            FI_COMPLAIN(FI_LOG_CQ, "a completion is lost: no memory for %zu entries\n", size);
            cq->is_overrun = true;
            return;
        }
        size_t count = 0;
        for (size_t at = cq->head; at != cq->tail; at++) {
            ring[count++] = cq->ring[at & (cq->ring_size - 1)];
        }
        free(cq->ring);
        cq->ring = ring;
        cq->ring_size = size;
        cq->head = 0;
        cq->tail = count;
    }
    cq->ring[cq->tail++ & (cq->ring_size - 1)] = *entry;
    if (cq->is_armed || cq->is_sleeping) {
        wake(cq);
    }
}

static struct fi_entry *head_of(const struct fi_rdmux_cq *cq)
{
    return &cq->ring[cq->head & (cq->ring_size - 1)];
}

/* ------------------------------------------------------------------------------------- reading */

static void write_entry(enum fi_cq_format format, void *out, size_t index, void *context,
                        uint64_t flags, uint64_t length, uint64_t data)
{
    switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
        ((struct fi_cq_entry *)out)[index] = (struct fi_cq_entry){ .op_context = context };
        return;
    case FI_CQ_FORMAT_MSG:
        ((struct fi_cq_msg_entry *)out)[index] = (struct fi_cq_msg_entry){ .op_context = context,
                                                                           .flags = flags,
                                                                           .len = length };
        return;
    case FI_CQ_FORMAT_TAGGED:
        ((struct fi_cq_tagged_entry *)out)[index] = (struct fi_cq_tagged_entry){
            .op_context = context, .flags = flags, .len = length, .data = data
        };
        return;
    case FI_CQ_FORMAT_DATA:
    case FI_CQ_FORMAT_UNSPEC:
    default:
        ((struct fi_cq_data_entry *)out)[index] = (struct fi_cq_data_entry){
            .op_context = context, .flags = flags, .len = length, .data = data
        };
    }
}

/* Takes entries of the ring up to the first error. The loss of entries is told behind those left. */
static ssize_t take_ring(struct fi_rdmux_cq *cq, void *out, size_t count)
{
    size_t taken = 0;
    while (taken < count && cq->head != cq->tail) {
        const struct fi_entry *entry = head_of(cq);
        if (entry->error != 0) {
            return taken != 0 ? (ssize_t)taken : -FI_EAVAIL;
        }
        write_entry(cq->format, out, taken++, entry->context, entry->flags, entry->length,
                    entry->data);
        cq->head++;
    }
    return taken != 0 ? (ssize_t)taken : cq->is_overrun ? -FI_EAVAIL : -FI_EAGAIN;
}

/* A completion that needs nothing but a copy, if the domain has one queue only. */
static bool is_plain(const struct fi_rdmux_domain *domain, const struct rdmux_wc *wc)
{
    return wc->status == RDMUX_OK && (wc->opcode == RDMUX_WC_RECV || wc->opcode == RDMUX_WC_SEND) &&
           domain->cq_count == 1 && fi_link_is_empty(&domain->pending);
}

/* The queue's reader is awake. */
static void disarm(struct fi_rdmux_cq *cq)
{
    if (cq->is_armed) {
        cq->is_armed = false;
        cq->domain->armed--;
    }
}

static ssize_t read_locked(struct fi_rdmux_cq *cq, void *out, size_t count)
{
    struct fi_rdmux_domain *domain = cq->domain;
    disarm(cq);
    if (cq->head != cq->tail) {
        return take_ring(cq, out, count);
    }
    if (domain->cq_count != 1 ||
        atomic_load_explicit(&domain->attention, memory_order_relaxed) != 0 || cq->selects ||
        cq->is_overrun || domain->armed != 0) {
        (void)rdmux_fi_domain_poll(domain);
        return take_ring(cq, out, count);
    }
    struct rdmux_wc wc[READ_BATCH];
    const size_t found = rdmux_cq_poll(domain->cq, wc, count < READ_BATCH ? count : READ_BATCH);
    if (found == 0) {
        return -FI_EAGAIN;
    }
    size_t at = 0;
    for (; at < found && is_plain(domain, &wc[at]); at++) {
        const bool is_receive = wc[at].opcode == RDMUX_WC_RECV;
        const bool has_data = is_receive && (wc[at].flags & RDMUX_WC_HAS_IMM) != 0;
        write_entry(cq->format, out, at, wc[at].context,
                    (is_receive ? FI_RECV : FI_SEND) | FI_MSG | (has_data ? FI_REMOTE_CQ_DATA : 0),
                    wc[at].length, has_data ? wc[at].imm : 0);
    }
    const size_t copied = at;
    for (; at < found; at++) {
        rdmux_fi_domain_dispatch(domain, &wc[at]);
    }
    return copied != 0 ? (ssize_t)copied : take_ring(cq, out, count);
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
    struct fi_rdmux_cq *cq = cq_of(fid);
    if (count == 0) { /* only makes progress */
        (void)pthread_mutex_lock(&cq->domain->lock);
        (void)rdmux_fi_domain_poll(cq->domain);
        const bool is_empty = cq->head == cq->tail;
        (void)pthread_mutex_unlock(&cq->domain->lock);
        return is_empty ? -FI_EAGAIN : 0;
    }
    (void)pthread_mutex_lock(&cq->domain->lock);
    const ssize_t result = read_locked(cq, buf, count);
    (void)pthread_mutex_unlock(&cq->domain->lock);
    return result;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)
{
    const ssize_t result = cq_read(fid, buf, count);
    for (ssize_t i = 0; source != NULL && i < result; i++) {
        source[i] = FI_ADDR_NOTAVAIL;
    }
    return result;
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
    (void)flags;
    static const struct fi_entry overrun = { .error = FI_EOVERRUN, .status = RDMUX_NO_MEMORY };
    struct fi_rdmux_cq *cq = cq_of(fid);
    const struct fi_entry *entry = NULL;
    (void)pthread_mutex_lock(&cq->domain->lock);
    if (cq->head != cq->tail) {
        entry = head_of(cq)->error != 0 ? head_of(cq) : NULL;
    } else if (cq->is_overrun) {
        entry = &overrun;
    }
    if (entry != NULL) {
        buf->op_context = entry->context;
        buf->flags = entry->flags;
        buf->len = entry->length;
        buf->buf = NULL;
        buf->data = 0;
        buf->tag = 0;
        buf->olen = 0;
        buf->err = entry->error;
        buf->prov_errno = entry->status;
        buf->err_data = NULL;
        buf->err_data_size = 0;
        cq->head += entry != &overrun;
    }
    (void)pthread_mutex_unlock(&cq->domain->lock);
    return entry != NULL ? 1 : -FI_EAGAIN;
}

/* ------------------------------------------------------------------------------------- sleeping */

/* Makes the descriptor readable at the next entry: 0, or -FI_EAGAIN if there is one to read.
 * domain->lock is held. */
static int arm(struct fi_rdmux_cq *cq)
{
    uint64_t count;
    if (cq->head == cq->tail) {
        (void)rdmux_fi_domain_poll(cq->domain);
    }
    if (read(cq->event_fd, &count, sizeof(count)) < 0 && errno != EAGAIN) {
        return -errno;
    }
    return cq->head == cq->tail && !cq->is_signaled && rdmux_cq_arm(cq->domain->cq) == RDMUX_OK
               ? 0
               : -FI_EAGAIN;
}

int rdmux_fi_cq_trywait(struct fi_rdmux_cq *cq)
{
    if (cq->epoll_fd < 0) {
        return -FI_ENOSYS;
    }
    (void)pthread_mutex_lock(&cq->domain->lock);
    disarm(cq);
    const int result = arm(cq);
    if (result == 0) {
        cq->is_armed = true;
        cq->domain->armed++;
    }
    (void)pthread_mutex_unlock(&cq->domain->lock);
    return result;
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *condition,
                        int timeout_ms)
{
    (void)condition; /* a threshold is a wish */
    struct fi_rdmux_cq *cq = cq_of(fid);
    if (cq->epoll_fd < 0) {
        return -FI_ENOSYS;
    }
    const int64_t until = timeout_ms < 0 ? 0 : now_ms() + timeout_ms;
    for (;;) {
        ssize_t result = cq_read(fid, buf, count);
        if (result != -FI_EAGAIN) {
            return result;
        }
        const int64_t rest = timeout_ms < 0 ? -1 : until - now_ms();
        if (timeout_ms >= 0 && rest <= 0) {
            return -FI_EAGAIN;
        }
        (void)pthread_mutex_lock(&cq->domain->lock);
        result = arm(cq);
        cq->is_sleeping = result == 0;
        (void)pthread_mutex_unlock(&cq->domain->lock);
        if (result == 0) {
            struct pollfd wait = { .fd = cq->epoll_fd, .events = POLLIN };
            (void)poll(&wait, 1, rest < 0 || rest > FI_SLICE_MS ? FI_SLICE_MS : (int)rest);
        } else if (result != -FI_EAGAIN) {
            return result;
        }
        (void)pthread_mutex_lock(&cq->domain->lock);
        const bool is_signaled = cq->is_signaled;
        cq->is_signaled = false;
        cq->is_sleeping = false;
        (void)pthread_mutex_unlock(&cq->domain->lock);
        if (is_signaled) {
            return -FI_ECANCELED;
        }
    }
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source,
                            const void *condition, int timeout_ms)
{
    const ssize_t result = cq_sread(fid, buf, count, condition, timeout_ms);
    for (ssize_t i = 0; source != NULL && i < result; i++) {
        source[i] = FI_ADDR_NOTAVAIL;
    }
    return result;
}

static int cq_signal(struct fid_cq *fid)
{
    struct fi_rdmux_cq *cq = cq_of(fid);
    if (cq->event_fd < 0) {
        return -FI_ENOSYS;
    }
    (void)pthread_mutex_lock(&cq->domain->lock);
    cq->is_signaled = true;
    wake(cq);
    (void)pthread_mutex_unlock(&cq->domain->lock);
    return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int provider_errno, const void *data, char *buf,
                               size_t length)
{
    (void)fid;
    (void)data;
    const char *text = rdmux_fi_error_text(provider_errno);
    if (buf != NULL && length > 0) {
        strncpy(buf, text, length - 1);
        buf[length - 1] = '\0';
    }
    return text;
}

/* --------------------------------------------------------------------------- opening and closing */

static int cq_close(struct fid *fid)
{
    struct fi_rdmux_cq *cq = FI_OF(fid, struct fi_rdmux_cq, fid.fid);
    struct fi_rdmux_domain *domain = cq->domain;
    (void)pthread_mutex_lock(&domain->lock);
    const bool is_used = cq->endpoints != 0;
    if (!is_used) {
        fi_link_remove(&cq->link);
        domain->cq_count--;
        disarm(cq);
    }
    (void)pthread_mutex_unlock(&domain->lock);
    if (is_used) {
        return -FI_EBUSY;
    }
    if (cq->epoll_fd >= 0) {
        (void)close(cq->epoll_fd);
        (void)close(cq->event_fd);
    }
    free(cq->ring);
    free(cq);
    atomic_fetch_sub(&domain->children, 1);
    return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
    struct fi_rdmux_cq *cq = FI_OF(fid, struct fi_rdmux_cq, fid.fid);
    switch (command) {
    case FI_GETWAIT:
        if (cq->epoll_fd < 0) {
            return -FI_ENOSYS;
        }
        memcpy(arg, &cq->epoll_fd, sizeof(cq->epoll_fd));
        return 0;
    case FI_GETWAITOBJ:
        memcpy(arg, &cq->wait_obj, sizeof(cq->wait_obj));
        return 0;
    default:
        return -FI_ENOSYS;
    }
}

static int open_wait(struct fi_rdmux_cq *cq)
{
    cq->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    cq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = { .events = EPOLLIN };
    if (cq->epoll_fd < 0 || cq->event_fd < 0 ||
        epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, cq->event_fd, &event) != 0 ||
        epoll_ctl(cq->epoll_fd, EPOLL_CTL_ADD, rdmux_cq_fd(cq->domain->cq), &event) != 0) {
        const int error = errno;
        if (cq->epoll_fd >= 0) {
            (void)close(cq->epoll_fd);
        }
        if (cq->event_fd >= 0) {
            (void)close(cq->event_fd);
        }
        return -error;
    }
    return 0;
}

static struct fi_ops cq_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = cq_close,
    .bind = rdmux_fi_no_bind,
    .control = cq_control,
    .ops_open = rdmux_fi_no_ops_open,
};

static struct fi_ops_cq cq_ops = {
    .size = sizeof(struct fi_ops_cq),
    .read = cq_read,
    .readfrom = cq_readfrom,
    .readerr = cq_readerr,
    .sread = cq_sread,
    .sreadfrom = cq_sreadfrom,
    .signal = cq_signal,
    .strerror = cq_strerror,
};

int rdmux_fi_cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out,
                     void *context)
{
    struct fi_rdmux_domain *domain = FI_OF(fid, struct fi_rdmux_domain, fid);
    const bool may_wait = attr->wait_obj == FI_WAIT_UNSPEC || attr->wait_obj == FI_WAIT_FD;
    if (!may_wait && attr->wait_obj != FI_WAIT_NONE) {
        return -FI_ENOSYS;
    }
    struct fi_rdmux_cq *cq = calloc(1, sizeof(*cq));
    if (cq == NULL) {
        return -FI_ENOMEM;
    }
    cq->domain = domain;
    cq->format = attr->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_DATA : attr->format;
    cq->wait_obj = may_wait ? FI_WAIT_FD : FI_WAIT_NONE;
    cq->epoll_fd = cq->event_fd = -1;
    const int result = may_wait ? open_wait(cq) : 0;
    if (result != 0) {
        free(cq);
        return result;
    }
    cq->fid.fid.fclass = FI_CLASS_CQ;
    cq->fid.fid.context = context;
    cq->fid.fid.ops = &cq_fid_ops;
    cq->fid.ops = &cq_ops;
    (void)pthread_mutex_lock(&domain->lock);
    fi_link_insert(&domain->cqs, &cq->link);
    domain->cq_count++;
    (void)pthread_mutex_unlock(&domain->lock);
    atomic_fetch_add(&domain->children, 1);
    *out = &cq->fid;
    return 0;
}
