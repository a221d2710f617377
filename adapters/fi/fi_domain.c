/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Domains: one completion queue of rdmux, whose entries go to the queues of libfabric. */
#include "adapters/fi/fi_internal.h"

#include <stdlib.h>

enum {
    POLL_BATCH = 16,
    /* One poll in this many, while control messages are awaited, looks at the control channels
     * first: rdmux does so after an arm. */
    ATTENTION_PERIOD = 32,
};

static const struct {
    uint64_t flags;
    bool is_receive;
} kinds[] = {
    [RDMUX_WC_SEND] = { FI_SEND | FI_MSG, false },
    [RDMUX_WC_RECV] = { FI_RECV | FI_MSG, true },
    [RDMUX_WC_WRITE] = { FI_WRITE | FI_RMA, false },
    [RDMUX_WC_READ] = { FI_READ | FI_RMA, false },
    [RDMUX_WC_RECV_WRITE_IMM] = { FI_REMOTE_WRITE | FI_RMA, true },
};

/* Returns whether the entry ends a request of the provider itself. */
static bool end_own_request(struct fi_rdmux_domain *domain, const struct rdmux_wc *wc)
{
    for (struct fi_link *at = domain->pending.next; at != &domain->pending; at = at->next) {
        struct fi_own_request *request = FI_OF(at, struct fi_own_request, link);
        if (wc->context == request) {
            fi_link_remove(&request->link);
            request->done(request, wc);
            return true;
        }
    }
    return false;
}

void rdmux_fi_own_requests_end(struct fi_rdmux_domain *domain, const struct fi_rdmux_ep *ep)
{
    struct fi_link *next = NULL;
    for (struct fi_link *at = domain->pending.next; at != &domain->pending; at = next) {
        next = at->next;
        struct fi_own_request *request = FI_OF(at, struct fi_own_request, link);
        if (request->ep == ep) {
            fi_link_remove(&request->link);
            request->done(request, NULL);
        }
    }
}

static void push_completion(struct fi_rdmux_ep *ep, const struct rdmux_wc *wc)
{
    const bool is_receive = kinds[wc->opcode].is_receive;
    struct fi_rdmux_cq *cq = is_receive ? ep->receive_cq : ep->send_cq;
    if (cq == NULL || wc->context == &rdmux_fi_silent) {
        return;
    }
    /* Receives of an endpoint that was never connected end in rdmux_fi_early_receives_cancel(). */
    if (wc->status != RDMUX_OK && is_receive && ep->early != NULL) {
        return;
    }
    if (wc->status == RDMUX_OK && is_receive && ep->selects_receives &&
        (ep->info->rx_attr->op_flags & FI_COMPLETION) == 0) {
        return;
    }
    struct fi_entry entry = {
        .context = wc->context,
        .flags = kinds[wc->opcode].flags,
        .length = wc->length,
        .error = -rdmux_fi_error((enum rdmux_status)wc->status),
        .status = (int)wc->status,
    };
    if (is_receive && (wc->flags & RDMUX_WC_HAS_IMM) != 0) {
        entry.flags |= FI_REMOTE_CQ_DATA;
        entry.data = wc->imm;
    }
    rdmux_fi_cq_push(cq, &entry);
}

void rdmux_fi_domain_dispatch(struct fi_rdmux_domain *domain, const struct rdmux_wc *wc)
{
    if (wc->ep == NULL) {
        return; /* an event that nothing here asks for */
    }
    struct fi_rdmux_ep *ep = rdmux_ep_user(wc->ep);
    switch (wc->opcode) {
    case RDMUX_WC_CONNECTED:
        rdmux_fi_ep_connected(ep, wc);
        return;
    case RDMUX_WC_DISCONNECTED:
        rdmux_fi_ep_disconnected(ep, wc);
        return;
    case RDMUX_WC_REMOTE_READY:
        rdmux_fi_import_answered(ep, wc);
        return;
    case RDMUX_WC_SEND:
    case RDMUX_WC_RECV:
    case RDMUX_WC_WRITE:
    case RDMUX_WC_READ:
    case RDMUX_WC_RECV_WRITE_IMM:
        if (fi_link_is_empty(&domain->pending) || !end_own_request(domain, wc)) {
            push_completion(ep, wc);
        }
        return;
    default:
        return;
    }
}

static void attend(struct fi_rdmux_domain *domain)
{
    unsigned left = atomic_load_explicit(&domain->attention, memory_order_relaxed) - 1;
    if (left == 0 && domain->setups != 0) {
        left = FI_ATTENTION_POLLS;
    }
    atomic_store_explicit(&domain->attention, left, memory_order_relaxed);
    if (left % ATTENTION_PERIOD == 0 && rdmux_cq_arm(domain->cq) != RDMUX_OK) {
        return; /* there is an entry: the poll that follows returns it */
    }
}

size_t rdmux_fi_domain_poll(struct fi_rdmux_domain *domain)
{
    struct rdmux_wc wc[POLL_BATCH];
    size_t total = 0;
    for (;;) {
        if (atomic_load_explicit(&domain->attention, memory_order_relaxed) != 0) {
            attend(domain);
        }
        const size_t count = rdmux_cq_poll(domain->cq, wc, POLL_BATCH);
        for (size_t i = 0; i < count; i++) {
            rdmux_fi_domain_dispatch(domain, &wc[i]);
        }
        total += count;
        /* The poll has disarmed those who sleep on the descriptor. What came since is for them, too. */
        if (domain->armed == 0 || rdmux_cq_arm(domain->cq) != RDMUX_AGAIN) {
            return total;
        }
    }
}

/* --------------------------------------------------------------------------------------- domain */

static int domain_close(struct fid *fid)
{
    struct fi_rdmux_domain *domain = FI_OF(fid, struct fi_rdmux_domain, fid.fid);
    if (atomic_load(&domain->children) != 0) {
        return -FI_EBUSY;
    }
    rdmux_fi_directory_close(domain);
    if (rdmux_cq_destroy(domain->cq) != RDMUX_OK) {
        FI_COMPLAIN(FI_LOG_DOMAIN, "%s\n", rdmux_last_error());
    }
    (void)pthread_mutex_destroy(&domain->lock);
    (void)pthread_mutex_destroy(&domain->memory_lock);
    atomic_fetch_sub(&domain->fabric->children, 1);
    free(domain);
    return 0;
}

static int no_av(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
                 void *context)
{
    (void)domain;
    (void)attr;
    (void)av;
    (void)context;
    return -FI_ENOSYS;
}

static int no_scalable_ep(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                          void *context)
{
    (void)domain;
    (void)info;
    (void)ep;
    (void)context;
    return -FI_ENOSYS;
}

static int no_counter(struct fid_domain *domain, struct fi_cntr_attr *attr,
                      struct fid_cntr **counter, void *context)
{
    (void)domain;
    (void)attr;
    (void)counter;
    (void)context;
    return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **poll)
{
    (void)domain;
    (void)attr;
    (void)poll;
    return -FI_ENOSYS;
}

static int no_shared_send(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
                          void *context)
{
    (void)domain;
    (void)attr;
    (void)stx;
    (void)context;
    return -FI_ENOSYS;
}

static int no_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op,
                     struct fi_atomic_attr *attr, uint64_t flags)
{
    (void)domain;
    (void)type;
    (void)op;
    (void)attr;
    (void)flags;
    return -FI_EOPNOTSUPP;
}

static int no_collective(struct fid_domain *domain, enum fi_collective_op op,
                         struct fi_collective_attr *attr, uint64_t flags)
{
    (void)domain;
    (void)op;
    (void)attr;
    (void)flags;
    return -FI_ENOSYS;
}

static struct fi_ops domain_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = domain_close,
    .bind = rdmux_fi_no_bind,
    .control = rdmux_fi_no_control,
    .ops_open = rdmux_fi_no_ops_open,
};

static struct fi_ops_domain domain_ops = {
    .size = sizeof(struct fi_ops_domain),
    .av_open = no_av,
    .cq_open = rdmux_fi_cq_open,
    .endpoint = rdmux_fi_ep_open,
    .scalable_ep = no_scalable_ep,
    .cntr_open = no_counter,
    .poll_open = no_poll,
    .stx_ctx = no_shared_send,
    .srx_ctx = rdmux_fi_srx_open,
    .query_atomic = no_atomic,
    .query_collective = no_collective,
};

int rdmux_fi_domain_open(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out,
                         void *context)
{
    (void)info;
    struct fi_rdmux_fabric *fabric = FI_OF(fid, struct fi_rdmux_fabric, fid);
    struct fi_rdmux_domain *domain = calloc(1, sizeof(*domain));
    if (domain == NULL) {
        return -FI_ENOMEM;
    }
    domain->fabric = fabric;
    fi_link_init(&domain->cqs);
    fi_link_init(&domain->eps);
    fi_link_init(&domain->pending);
    fi_link_init(&domain->idle);
    fi_link_init(&domain->reaper.queue);
    (void)pthread_mutex_init(&domain->lock, NULL);
    (void)pthread_mutex_init(&domain->memory_lock, NULL);
    enum rdmux_status status = rdmux_cq_create(fabric->rdmux, NULL, &domain->cq);
    int result = rdmux_fi_error(status);
    if (status != RDMUX_OK) {
        goto free_domain;
    }
    result = rdmux_fi_directory_open(domain);
    if (result != 0) {
        goto destroy_cq;
    }
    domain->fid.fid.fclass = FI_CLASS_DOMAIN;
    domain->fid.fid.context = context;
    domain->fid.fid.ops = &domain_fid_ops;
    domain->fid.ops = &domain_ops;
    domain->fid.mr = &rdmux_fi_mr_ops;
    atomic_fetch_add(&fabric->children, 1);
    *out = &domain->fid;
    return 0;

destroy_cq:
    (void)rdmux_cq_destroy(domain->cq);
free_domain:
    FI_COMPLAIN(FI_LOG_DOMAIN, "%s\n", rdmux_last_error());
    (void)pthread_mutex_destroy(&domain->lock);
    (void)pthread_mutex_destroy(&domain->memory_lock);
    free(domain);
    return result;
}
