/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Event queues. */
#include "adapters/fi/fi_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static struct fi_rdmux_eq *eq_of(struct fid_eq *fid)
{
    return FI_OF(fid, struct fi_rdmux_eq, fid);
}

/* --------------------------------------------------------------------------------------- events */

/* Frees what an event names, as nobody will read it. */
static void drop_info(struct fi_info *info)
{
    if (info != NULL && info->handle != NULL) {
        rdmux_fi_request_free(FI_OF(info->handle, struct fi_rdmux_request, fid));
    }
    fi_freeinfo(info);
}

static void free_event(struct fi_event *event)
{
    drop_info(event->info);
    free(event);
}

void rdmux_fi_eq_signal(struct fi_rdmux_eq *eq)
{
    const uint64_t one = 1;
    if (write(eq->event_fd, &one, sizeof(one)) < 0) {
        return; /* a full counter is readable already */
    }
}

static bool push(struct fi_rdmux_eq *eq, const struct fi_event *from, const void *data,
                 size_t length)
{
    struct fi_event *event = malloc(sizeof(*event) + length);
    if (event == NULL) {
        FI_COMPLAIN(FI_LOG_EQ, "an event is lost: no memory\n");
        return false;
    }
    *event = *from;
    event->next = NULL;
    event->length = length;
    if (length > 0) {
        memcpy(event->data, data, length);
    }
    (void)pthread_mutex_lock(&eq->lock);
    *eq->last = event;
    eq->last = &event->next;
    (void)pthread_mutex_unlock(&eq->lock);
    rdmux_fi_eq_signal(eq);
    return true;
}

bool rdmux_fi_eq_push(struct fi_rdmux_eq *eq, uint32_t type, struct fid *fid, struct fi_info *info,
                      const void *data, size_t length)
{
    const struct fi_event event = {
        .type = type, .fid = fid, .context = fid->context, .info = info
    };
    const bool is_queued = push(eq, &event, data, length);
    if (!is_queued) {
        drop_info(info);
    }
    return is_queued;
}

void rdmux_fi_eq_push_error(struct fi_rdmux_eq *eq, struct fid *fid, int error, int status,
                            const void *data, size_t length)
{
    const struct fi_event event = {
        .error = error, .status = status, .fid = fid, .context = fid->context
    };
    (void)push(eq, &event, data, length);
}

void rdmux_fi_eq_forget(struct fi_rdmux_eq *eq, const struct fid *fid)
{
    (void)pthread_mutex_lock(&eq->lock);
    struct fi_event **at = &eq->first;
    while (*at != NULL) {
        struct fi_event *event = *at;
        if (event->fid == fid && !event->is_foreign) {
            *at = event->next;
            free_event(event);
        } else {
            at = &event->next;
        }
    }
    eq->last = at;
    (void)pthread_mutex_unlock(&eq->lock);
}

/* -------------------------------------------------------------------------------------- sources */

int rdmux_fi_eq_watch(struct fi_rdmux_eq *eq, int fd)
{
    struct epoll_event event = { .events = EPOLLIN };
    return epoll_ctl(eq->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST ? 0 : -errno;
}

int rdmux_fi_eq_add_pep(struct fi_rdmux_eq *eq, struct fi_rdmux_pep *pep)
{
    int result = -FI_ENOSPC;
    (void)pthread_mutex_lock(&eq->sources_lock);
    for (size_t i = 0; i < FI_SOURCES_MAX && result != 0; i++) {
        if (eq->peps[i] == NULL) {
            eq->peps[i] = pep;
            result = 0;
        }
    }
    (void)pthread_mutex_unlock(&eq->sources_lock);
    return result;
}

void rdmux_fi_eq_remove_pep(struct fi_rdmux_eq *eq, struct fi_rdmux_pep *pep)
{
    (void)pthread_mutex_lock(&eq->sources_lock);
    for (size_t i = 0; i < FI_SOURCES_MAX; i++) {
        if (eq->peps[i] == pep) {
            eq->peps[i] = NULL;
        }
    }
    (void)pthread_mutex_unlock(&eq->sources_lock);
}

static void disarm(struct fi_rdmux_eq *eq);

int rdmux_fi_eq_add_domain(struct fi_rdmux_eq *eq, struct fi_rdmux_domain *domain)
{
    int result = -FI_ENOSPC;
    bool is_known = false;
    size_t at = FI_SOURCES_MAX;
    (void)pthread_mutex_lock(&eq->sources_lock);
    for (size_t i = 0; i < FI_SOURCES_MAX && !is_known; i++) {
        is_known = eq->domains[i].domain == domain;
        if (is_known || (eq->domains[i].domain == NULL && at == FI_SOURCES_MAX)) {
            at = i;
        }
    }
    if (is_known) {
        result = 0;
    } else if (at < FI_SOURCES_MAX) {
        result = rdmux_fi_eq_watch(eq, rdmux_cq_fd(domain->cq));
        disarm(eq);
        rdmux_fi_eq_signal(eq); /* a sleeper was armed without this domain */
    }
    if (result == 0) {
        eq->domains[at].domain = domain;
        eq->domains[at].endpoints++;
    }
    (void)pthread_mutex_unlock(&eq->sources_lock);
    return result;
}

void rdmux_fi_eq_remove_domain(struct fi_rdmux_eq *eq, struct fi_rdmux_domain *domain)
{
    (void)pthread_mutex_lock(&eq->sources_lock);
    disarm(eq);
    for (size_t i = 0; i < FI_SOURCES_MAX; i++) {
        if (eq->domains[i].domain == domain && --eq->domains[i].endpoints == 0) {
            eq->domains[i].domain = NULL;
            (void)epoll_ctl(eq->epoll_fd, EPOLL_CTL_DEL, rdmux_cq_fd(domain->cq), NULL);
        }
    }
    (void)pthread_mutex_unlock(&eq->sources_lock);
    rdmux_fi_eq_signal(eq); /* a sleeper watches what is left */
}

/* The queue's reader is awake. sources_lock is held, here and below. */
static void disarm(struct fi_rdmux_eq *eq)
{
    for (size_t i = 0; i < FI_SOURCES_MAX && eq->is_armed; i++) {
        struct fi_rdmux_domain *domain = eq->domains[i].domain;
        if (domain != NULL) {
            (void)pthread_mutex_lock(&domain->lock);
            domain->armed--;
            (void)pthread_mutex_unlock(&domain->lock);
        }
    }
    eq->is_armed = false;
}

static void progress(struct fi_rdmux_eq *eq)
{
    for (size_t i = 0; i < FI_SOURCES_MAX; i++) {
        if (eq->peps[i] != NULL) {
            rdmux_fi_pep_progress(eq->peps[i]);
        }
        struct fi_rdmux_domain *domain = eq->domains[i].domain;
        if (domain != NULL) {
            (void)pthread_mutex_lock(&domain->lock);
            (void)rdmux_fi_domain_poll(domain);
            (void)pthread_mutex_unlock(&domain->lock);
        }
    }
}

static bool is_empty(struct fi_rdmux_eq *eq)
{
    (void)pthread_mutex_lock(&eq->lock);
    const bool result = eq->first == NULL;
    (void)pthread_mutex_unlock(&eq->lock);
    return result;
}

/* Makes the descriptor readable at the next event: 0, or -FI_EAGAIN if there is one. is_kept: the
 * sleep lasts until the next read, whoever polls meanwhile. */
static int arm(struct fi_rdmux_eq *eq, bool is_kept)
{
    uint64_t count;
    bool is_ready = true;
    (void)pthread_mutex_lock(&eq->sources_lock);
    disarm(eq);
    progress(eq);
    if (read(eq->event_fd, &count, sizeof(count)) < 0 && errno != EAGAIN) {
        is_ready = false;
    }
    is_ready = is_ready && is_empty(eq);
    for (size_t i = 0; i < FI_SOURCES_MAX && is_ready; i++) {
        struct fi_rdmux_domain *domain = eq->domains[i].domain;
        if (domain != NULL) {
            (void)pthread_mutex_lock(&domain->lock);
            is_ready = rdmux_cq_arm(domain->cq) == RDMUX_OK;
            (void)pthread_mutex_unlock(&domain->lock);
        }
    }
    for (size_t i = 0; i < FI_SOURCES_MAX && is_ready && is_kept; i++) {
        struct fi_rdmux_domain *domain = eq->domains[i].domain;
        if (domain != NULL) {
            (void)pthread_mutex_lock(&domain->lock);
            domain->armed++;
            (void)pthread_mutex_unlock(&domain->lock);
        }
    }
    eq->is_armed = is_ready && is_kept;
    (void)pthread_mutex_unlock(&eq->sources_lock);
    return is_ready ? 0 : -FI_EAGAIN;
}

int rdmux_fi_eq_trywait(struct fi_rdmux_eq *eq)
{
    return arm(eq, true);
}

/* -------------------------------------------------------------------------------------- reading */

static void unlink_first(struct fi_rdmux_eq *eq)
{
    struct fi_event *event = eq->first;
    eq->first = event->next;
    if (eq->first == NULL) {
        eq->last = &eq->first;
    }
}

/* Copies the first event. eq->lock is held. */
static ssize_t take(struct fi_rdmux_eq *eq, uint32_t *type, void *buf, size_t room, uint64_t flags)
{
    struct fi_event *event = eq->first;
    if (event == NULL) {
        return -FI_EAGAIN;
    }
    if (event->error != 0) {
        return -FI_EAVAIL;
    }
    *type = event->type;
    size_t size = event->length;
    if (event->is_foreign) {
        if (room < size) {
            return -FI_ETOOSMALL;
        }
        memcpy(buf, event->data, size);
    } else {
        const struct fi_eq_cm_entry entry = { .fid = event->fid, .info = event->info };
        if (room < sizeof(entry)) {
            return -FI_ETOOSMALL;
        }
        if (size > room - sizeof(entry)) {
            size = room - sizeof(entry);
        }
        memcpy(buf, &entry, sizeof(entry));
        memcpy((uint8_t *)buf + sizeof(entry), event->data, size);
        size += sizeof(entry);
    }
    if ((flags & FI_PEEK) == 0) {
        unlink_first(eq);
        free(event);
    }
    return (ssize_t)size;
}

static ssize_t take_locked(struct fi_rdmux_eq *eq, uint32_t *type, void *buf, size_t room,
                           uint64_t flags)
{
    (void)pthread_mutex_lock(&eq->lock);
    const ssize_t result = take(eq, type, buf, room, flags);
    (void)pthread_mutex_unlock(&eq->lock);
    return result;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *type, void *buf, size_t room, uint64_t flags)
{
    struct fi_rdmux_eq *eq = eq_of(fid);
    ssize_t result = take_locked(eq, type, buf, room, flags);
    if (result != -FI_EAGAIN) {
        return result;
    }
    (void)pthread_mutex_lock(&eq->sources_lock);
    disarm(eq);
    progress(eq);
    (void)pthread_mutex_unlock(&eq->sources_lock);
    return take_locked(eq, type, buf, room, flags);
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags)
{
    (void)flags;
    struct fi_rdmux_eq *eq = eq_of(fid);
    ssize_t result = -FI_EAGAIN;
    (void)pthread_mutex_lock(&eq->lock);
    struct fi_event *event = eq->first;
    if (event != NULL && event->error != 0) {
        unlink_first(eq);
        /* An application that brings a buffer has the data there, as libfabric 1.5 has it. */
        const size_t room = buf->err_data != NULL ? buf->err_data_size : 0;
        *buf = (struct fi_eq_err_entry){
            .fid = event->fid,
            .context = event->context,
            .err = event->error,
            .prov_errno = event->status,
            .err_data = room != 0 ? buf->err_data : NULL,
        };
        free(eq->error_data);
        eq->error_data = NULL;
        if (room != 0) {
            buf->err_data_size = event->length < room ? event->length : room;
            memcpy(buf->err_data, event->data, buf->err_data_size);
        } else if (event->length > 0 && (eq->error_data = malloc(event->length)) != NULL) {
            memcpy(eq->error_data, event->data, event->length);
            buf->err_data = eq->error_data;
            buf->err_data_size = event->length;
        }
        free(event);
        result = sizeof(*buf);
    }
    (void)pthread_mutex_unlock(&eq->lock);
    return result;
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t type, const void *buf, size_t length,
                        uint64_t flags)
{
    (void)flags;
    struct fi_rdmux_eq *eq = eq_of(fid);
    if (!eq->may_write) {
        return -FI_EINVAL;
    }
    const struct fi_event event = { .type = type, .is_foreign = true };
    return push(eq, &event, buf, length) ? (ssize_t)length : -FI_ENOMEM;
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *type, void *buf, size_t room, int timeout_ms,
                        uint64_t flags)
{
    struct fi_rdmux_eq *eq = eq_of(fid);
    const int64_t until = timeout_ms < 0 ? 0 : now_ms() + timeout_ms;
    for (;;) {
        const ssize_t result = eq_read(fid, type, buf, room, flags);
        if (result != -FI_EAGAIN) {
            return result;
        }
        const int64_t rest = timeout_ms < 0 ? FI_SLICE_MS : until - now_ms();
        if (rest <= 0) {
            return -FI_EAGAIN;
        }
        if (arm(eq, false) == 0) {
            struct pollfd wait = { .fd = eq->epoll_fd, .events = POLLIN };
            (void)poll(&wait, 1, rest > FI_SLICE_MS ? FI_SLICE_MS : (int)rest);
        }
    }
}

static const char *eq_strerror(struct fid_eq *fid, int provider_errno, const void *data, char *buf,
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

/* -------------------------------------------------------------------------- opening and closing */

static void free_eq(struct fi_rdmux_eq *eq)
{
    if (eq->epoll_fd >= 0) {
        (void)close(eq->epoll_fd);
    }
    if (eq->event_fd >= 0) {
        (void)close(eq->event_fd);
    }
    while (eq->first != NULL) {
        struct fi_event *event = eq->first;
        eq->first = event->next;
        free_event(event);
    }
    free(eq->error_data);
    (void)pthread_mutex_destroy(&eq->lock);
    (void)pthread_mutex_destroy(&eq->sources_lock);
    free(eq);
}

static int eq_close(struct fid *fid)
{
    struct fi_rdmux_eq *eq = FI_OF(fid, struct fi_rdmux_eq, fid.fid);
    for (size_t i = 0; i < FI_SOURCES_MAX; i++) {
        if (eq->peps[i] != NULL || eq->domains[i].domain != NULL) {
            return -FI_EBUSY;
        }
    }
    atomic_fetch_sub(&eq->fabric->children, 1);
    free_eq(eq);
    return 0;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
    struct fi_rdmux_eq *eq = FI_OF(fid, struct fi_rdmux_eq, fid.fid);
    const enum fi_wait_obj wait_obj = FI_WAIT_FD;
    switch (command) {
    case FI_GETWAIT:
        memcpy(arg, &eq->epoll_fd, sizeof(eq->epoll_fd));
        return 0;
    case FI_GETWAITOBJ:
        memcpy(arg, &wait_obj, sizeof(wait_obj));
        return 0;
    default:
        return -FI_ENOSYS;
    }
}

static struct fi_ops eq_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = eq_close,
    .bind = rdmux_fi_no_bind,
    .control = eq_control,
    .ops_open = rdmux_fi_no_ops_open,
};

static struct fi_ops_eq eq_ops = {
    .size = sizeof(struct fi_ops_eq),
    .read = eq_read,
    .readerr = eq_readerr,
    .write = eq_write,
    .sread = eq_sread,
    .strerror = eq_strerror,
};

int rdmux_fi_eq_open(struct fid_fabric *fid, struct fi_eq_attr *attr, struct fid_eq **out,
                     void *context)
{
    if (attr != NULL && attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC &&
        attr->wait_obj != FI_WAIT_FD) {
        return -FI_ENOSYS;
    }
    struct fi_rdmux_eq *eq = calloc(1, sizeof(*eq));
    if (eq == NULL) {
        return -FI_ENOMEM;
    }
    eq->fabric = FI_OF(fid, struct fi_rdmux_fabric, fid);
    eq->may_write = attr != NULL && (attr->flags & FI_WRITE) != 0;
    eq->last = &eq->first;
    (void)pthread_mutex_init(&eq->lock, NULL);
    (void)pthread_mutex_init(&eq->sources_lock, NULL);
    eq->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    eq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (eq->epoll_fd < 0 || eq->event_fd < 0 || rdmux_fi_eq_watch(eq, eq->event_fd) != 0) {
        const int error = errno;
        free_eq(eq);
        return -error;
    }
    eq->fid.fid.fclass = FI_CLASS_EQ;
    eq->fid.fid.context = context;
    eq->fid.fid.ops = &eq_fid_ops;
    eq->fid.ops = &eq_ops;
    atomic_fetch_add(&eq->fabric->children, 1);
    *out = &eq->fid;
    return 0;
}
