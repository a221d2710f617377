/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Queue pairs: creation, states, and the chain of work requests that goes to the device with one
 * doorbell. */
#include "verbs/verbs_queue.h"

#include "verbs/verbs_chain.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_place.h"
#include "verbs/verbs_srq.h"
#include "verbs/verbs_timing.h"
#include "verbs/verbs_transport.h"
#include "verbs/verbs_unit.h"

#include <errno.h>
#include <string.h>

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t size = 1;
    while (size < at_least) {
        size <<= 1;
    }
    return size;
}

/* ----------------------------------------------------------------------------------------- open */

enum rdmux_status rdmux_verbs_headers_open(struct verbs_headers *headers,
                                           struct verbs_domain *domain, uint32_t count)
{
    headers->size = (size_t)count * domain->transport->header_size;
    if (headers->size == 0) {
        return RDMUX_OK;
    }
    headers->bytes = rdmux_verbs_pages_map(headers->size);
    if (headers->bytes == NULL) {
        rdmux_provider_error("%s: out of memory for headers", domain->device);
        return RDMUX_NO_MEMORY;
    }
    return rdmux_verbs_pin(domain, "headers' buffer", headers->bytes, headers->size,
                           (uintptr_t)headers->bytes, IBV_ACCESS_LOCAL_WRITE, 1, &headers->mr);
}

void rdmux_verbs_headers_close(struct verbs_headers *headers)
{
    if (headers->mr != NULL) {
        (void)ibv_dereg_mr(headers->mr);
    }
    rdmux_verbs_pages_unmap(headers->bytes, headers->size);
    *headers = (struct verbs_headers){ .bytes = NULL };
}

static enum rdmux_status open_rings(struct verbs_queue *queue, const struct verbs_queue_wish *wish)
{
    struct rdmux_fabric *fabric = verbs_fabric_of_ep(queue->ep);
    uint32_t send_size = power_of_two(wish->send_depth);
    uint32_t receive_size = power_of_two(wish->receive_depth);
    queue->sent.requests = rdmux_provider_allocate(fabric,
                                                   send_size * sizeof(struct rdmux_request *));
    queue->receives.requests = rdmux_provider_allocate(fabric, receive_size *
                                                                   sizeof(struct rdmux_request *));
    queue->chain = rdmux_provider_allocate(fabric, VERBS_CHAIN_MAX * sizeof(*queue->chain));
    queue->pieces = rdmux_provider_allocate(fabric, (size_t)VERBS_CHAIN_MAX * wish->max_send_sge *
                                                        sizeof(*queue->pieces));
    if (queue->sent.requests == NULL || queue->receives.requests == NULL || queue->chain == NULL ||
        queue->pieces == NULL) {
        rdmux_provider_error("%s: out of memory for a queue pair", queue->ep->transport->name);
        return RDMUX_NO_MEMORY;
    }
    queue->sent.mask = send_size - 1;
    queue->sent.signal_every = wish->signal_every;
    queue->receives.mask = receive_size - 1;
    queue->receives.depth = wish->receive_depth;
    /* The side channel's messages have no header. */
    bool has_none = queue == &queue->ep->side.queue || queue->ep->transport->header_size == 0;
    return has_none || wish->receive_depth == 0
               ? RDMUX_OK
               : rdmux_verbs_headers_open(&queue->headers, verbs_domain_of_ep(queue->ep),
                                          receive_size);
}

static void close_rings(struct verbs_queue *queue)
{
    struct rdmux_fabric *fabric = verbs_fabric_of_ep(queue->ep);
    rdmux_verbs_headers_close(&queue->headers);
    rdmux_provider_release(fabric, queue->is_read);
    queue->is_read = NULL;
    rdmux_provider_release(fabric, queue->pieces);
    rdmux_provider_release(fabric, queue->chain);
    rdmux_provider_release(fabric, queue->receives.requests);
    rdmux_provider_release(fabric, queue->sent.requests);
}

/* Returns the operations that chains may hold, as declared for ibv_wr_*(); 0: those calls are not
 * used. Over iWARP immediate numbers go in headers. */
static uint64_t operations_of(const struct verbs_queue *queue)
{
    const struct verbs_domain *domain = verbs_domain_of_ep(queue->ep);
    uint64_t operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                          IBV_QP_EX_WITH_RDMA_READ;
    if (domain->lacks_calls) {
        return 0;
    }
    if (queue->ep->transport->fabric != VERBS_FABRIC_IWARP) {
        operations |= IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    }
    if (domain->attr.atomic_cap != IBV_ATOMIC_NONE) {
        operations |= IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
    return operations;
}

/* Creates a queue pair. operations: for ibv_wr_*(); 0: for lists only. */
static struct ibv_qp *try_create(struct verbs_queue *queue, const struct verbs_queue_wish *wish,
                                 const struct ibv_qp_cap *cap, uint64_t operations)
{
    const struct verbs_domain *domain = verbs_domain_of_ep(queue->ep);
    struct ibv_qp_init_attr_ex attr = {
        .qp_context = queue,
        .send_cq = queue->unit->cq,
        .recv_cq = queue->unit->cq,
        .srq = wish->srq != NULL ? wish->srq->srq : NULL,
        .cap = *cap,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 0,
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .pd = domain->pd,
        .send_ops_flags = operations,
    };
    if (operations != 0) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    }
    errno = 0;
    /* the same as ibv_create_qp() if only PD is given */
    struct ibv_qp *qp = ibv_create_qp_ex(domain->context, &attr);
    if (qp != NULL) {
        queue->max_inline = domain->lacks_inline ? 0 : attr.cap.max_inline_data;
    }
    return qp;
}

/* True if the error may mean that the device lacks ibv_wr_*() or some of the operations. */
static bool may_lack_calls(int error)
{
    return error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

/* Creates a queue pair for ibv_wr_*() if the device has them, else for lists. */
static struct ibv_qp *try_both(struct verbs_queue *queue, const struct verbs_queue_wish *wish,
                               uint32_t send_depth, uint32_t max_inline)
{
    const struct ibv_qp_cap cap = {
        .max_send_wr = send_depth,
        .max_recv_wr = wish->srq != NULL ? 0 : wish->receive_depth,
        .max_send_sge = wish->max_send_sge,
        .max_recv_sge = wish->srq != NULL ? 0 : wish->max_receive_sge,
        .max_inline_data = max_inline,
    };
    const uint64_t operations = operations_of(queue);
    struct ibv_qp *qp = try_create(queue, wish, &cap, operations);
    /* a queue pair made for lists may be no ibv_qp_ex at all */
    queue->calls = qp != NULL && operations != 0 ? ibv_qp_to_qp_ex(qp) : NULL;
    if (qp == NULL && operations != 0 && may_lack_calls(errno)) {
        qp = try_create(queue, wish, &cap, 0);
    }
    return qp;
}

static enum rdmux_status say_not_created(const struct verbs_queue *queue,
                                         const struct verbs_queue_wish *wish, int error)
{
    rdmux_provider_error(
        "%s: no queue pair for %u requests and %u receives with lists of %u and %u "
        "pieces: %s; try smaller depths%s",
        verbs_domain_of_ep(queue->ep)->device, wish->send_depth, wish->receive_depth,
        wish->max_send_sge, wish->max_receive_sge, strerror(error),
        error == ENOMEM ? ", or raise the limit on locked memory (ulimit -l)" : "");
    return error == ENOMEM || error == EMFILE ? RDMUX_NO_MEMORY : RDMUX_IO;
}

/* Creates the queue pair. Devices return EINVAL or ENOMEM both for too many inline bytes and for
 * too deep a queue, so smaller values of both are tried. */
static enum rdmux_status create_queue(struct verbs_queue *queue, const struct verbs_queue_wish *wish)
{
    static const uint32_t inline_steps[] = { UINT32_MAX, 512, 256, 128, 96, 64, 32, 0 };
    const struct verbs_domain *domain = verbs_domain_of_ep(queue->ep);
    uint32_t most = (uint32_t)domain->attr.max_qp_wr;
    uint32_t depth = wish->send_depth < most ? wish->send_depth : most;
    int error = EINVAL;
    for (; depth >= wish->send_least; depth /= 2) {
        for (size_t i = 0; i < VERBS_COUNT_OF(inline_steps); i++) {
            uint32_t inline_size = i == 0 ? wish->max_inline : inline_steps[i];
            if (i != 0 && inline_size >= wish->max_inline) {
                continue;
            }
            queue->qp = try_both(queue, wish, depth, inline_size);
            if (queue->qp != NULL) {
                queue->sent.depth = depth;
                queue->max_send_sge = wish->max_send_sge;
                queue->max_receive_sge = wish->max_receive_sge;
                return RDMUX_OK;
            }
            error = errno != 0 ? errno : EIO;
            if (error != EINVAL && error != ENOMEM) {
                return say_not_created(queue, wish, error);
            }
        }
    }
    return say_not_created(queue, wish, error);
}

enum rdmux_status rdmux_verbs_queue_open(struct verbs_queue *queue, struct verbs_ep *ep,
                                         const struct verbs_queue_wish *wish)
{
    queue->ep = ep;
    queue->cq = verbs_cq_of(ep->base.cq);
    queue->reserved = wish->send_depth + wish->receive_depth;
    enum rdmux_status status = rdmux_verbs_unit_reserve(queue->cq, queue->reserved, wish->srq,
                                                        &queue->unit);
    if (status != RDMUX_OK) {
        return status;
    }
    status = open_rings(queue, wish);
    if (status != RDMUX_OK) {
        goto close_rings;
    }
    status = rdmux_verbs_place_take(queue->cq, queue, NULL, &queue->id);
    if (status != RDMUX_OK) {
        goto close_rings;
    }
    status = create_queue(queue, wish);
    if (status != RDMUX_OK) {
        goto give_place;
    }
    rdmux_verbs_qpn_enter(queue);
    return RDMUX_OK;

give_place:
    rdmux_verbs_place_give(queue->cq, queue->id);
close_rings:
    close_rings(queue);
    queue->unit->used -= queue->reserved;
    return status;
}

struct ibv_qp *rdmux_verbs_queue_release(struct verbs_queue *queue, uint32_t *reserved)
{
    struct verbs_domain *domain = verbs_domain_of_ep(queue->ep);
    struct ibv_qp *qp = queue->qp;
    rdmux_verbs_qpn_leave(queue);
    (void)pthread_mutex_lock(&domain->lock);
    qp->qp_context = NULL;
    (void)pthread_mutex_unlock(&domain->lock);
    queue->qp = NULL;
    queue->calls = NULL;
    *reserved = queue->reserved;
    queue->reserved = 0;
    return qp;
}

void rdmux_verbs_queue_destroy(struct verbs_queue *queue)
{
    if (queue->qp == NULL) {
        return;
    }
    rdmux_verbs_qpn_leave(queue);
    int error = verbs_error_of(ibv_destroy_qp(queue->qp));
    if (error != 0) {
        rdmux_provider_log(verbs_fabric_of_ep(queue->ep), RDMUX_LOG_ERROR,
                           "%s: a queue pair cannot be destroyed: %s",
                           verbs_domain_of_ep(queue->ep)->device, strerror(error));
    }
    queue->qp = NULL;
    queue->calls = NULL;
}

void rdmux_verbs_queue_close(struct verbs_queue *queue)
{
    if (queue->ep == NULL) {
        return;
    }
    rdmux_verbs_queue_destroy(queue);
    if (queue->cq->fast_queue == queue) {
        queue->cq->fast_queue = NULL;
    }
    rdmux_verbs_place_give(queue->cq, queue->id);
    queue->unit->used -= queue->reserved;
    close_rings(queue);
    queue->ep = NULL;
}

/* --------------------------------------------------------------------------------------- states */

static enum rdmux_status modify_queue(struct verbs_queue *queue, struct ibv_qp_attr *attr, int mask,
                                      const char *to)
{
    int error = verbs_error_of(ibv_modify_qp(queue->qp, attr, mask));
    if (error == 0) {
        return RDMUX_OK;
    }
    rdmux_provider_error("%s port %u: the queue pair does not become %s: %s%s",
                         verbs_domain_of_ep(queue->ep)->device, queue->ep->port, to,
                         strerror(error),
                         error == ETIMEDOUT || error == ENETUNREACH || error == EHOSTUNREACH
                             ? "; the peer's address does not answer or has no route"
                             : "");
    return error == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
}

enum rdmux_status rdmux_verbs_queue_init(struct verbs_queue *queue, const struct verbs_route *route)
{
    const struct verbs_domain *domain = verbs_domain_of_ep(queue->ep);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = route->pkey_index,
        .port_num = queue->ep->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
    };
    if (domain->attr.atomic_cap != IBV_ATOMIC_NONE) {
        attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
    }
    return modify_queue(
        queue, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

static uint8_t smaller(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

enum rdmux_status rdmux_verbs_queue_connect(struct verbs_queue *queue,
                                            const struct verbs_route *route, uint32_t qpn,
                                            uint32_t psn, uint32_t our_psn)
{
    const struct verbs_ep *ep = queue->ep;
    const uint32_t liveness_ms = ep->attr->liveness_ms;
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)smaller(ep->ours.mtu, ep->theirs.mtu),
        .dest_qp_num = qpn,
        .rq_psn = psn,
        .max_dest_rd_atomic = smaller(ep->ours.answers, ep->theirs.asks),
        .min_rnr_timer = (uint8_t)rdmux_verbs_rnr_code(liveness_ms),
        .ah_attr = route->address,
    };
    enum rdmux_status status = modify_queue(queue, &ready,
                                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                                IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                                            "ready to receive");
    if (status != RDMUX_OK) {
        return status;
    }
    const uint32_t ack = rdmux_verbs_ack_code(liveness_ms, ep->theirs.ack_delay);
    struct ibv_qp_attr sending = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = our_psn,
        .timeout = (uint8_t)ack,
        .retry_cnt = (uint8_t)rdmux_verbs_retries(liveness_ms, ack, ep->attr->has_failover != 0),
        .rnr_retry = VERBS_RNR_RETRY,
        .max_rd_atomic = smaller(ep->ours.asks, ep->theirs.answers),
    };
    return modify_queue(queue, &sending,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                        "ready to send");
}

void rdmux_verbs_queue_kill(struct verbs_queue *queue)
{
    if (queue->qp == NULL) {
        return;
    }
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    rdmux_verbs_chain_drop(queue);
    int error = verbs_error_of(ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE));
    if (error != 0) {
        /* Destroying the queue pair ends it as well. */
        rdmux_verbs_queue_destroy(queue);
    }
}

uint32_t rdmux_verbs_queue_outstanding(const struct verbs_queue *queue)
{
    return queue->qp == NULL
               ? 0
               : queue->sent.head - queue->sent.tail + queue->receives.head - queue->receives.tail;
}
