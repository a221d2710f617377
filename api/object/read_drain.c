/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Read drain: waits for reads that a device may still be answering to the peer after their region's
 * key became invalid (RDMUX_PROVIDER_READS_LINGER). A request that returns from the peer follows
 * everything sent before it on the same connection, and the peer's device answers it without its
 * program. So one request is posted, and once it is done, each revocation that waited before is
 * answered.
 */
#include "api/object/read_drain.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/data/request.h"
#include "api/object/importers.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"

void rdmux_ep_deliver_read_drain(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmux_revoke_mail *revoke = RDMUX_CONTAINER(mail, struct rdmux_revoke_mail, mail);
    struct rdmux_ep *ep = rdmux_cq_endpoint(cq, revoke->ep_id);
    if (ep != NULL && ep->phase == RDMUX_PHASE_ENDING) {
        rdmux_release(cq->fabric, revoke); /* the end of the endpoint is the answer */
    } else if (ep != NULL && ep->phase == RDMUX_PHASE_READY &&
               (ep->ops->flags & RDMUX_PROVIDER_READS_LINGER) != 0) {
        mail->next = ep->drain.waiting == NULL ? NULL : &ep->drain.waiting->mail;
        ep->drain.waiting = revoke;
        ep->work |= RDMUX_WORK_CONTROL;
        rdmux_cq_pend(cq, ep);
    } else {
        rdmux_mr_revoke_answered(cq->fabric, revoke->region, revoke->number, revoke->ep_id);
        rdmux_release(cq->fabric, revoke);
    }
}

static void free_all(struct rdmux_fabric *fabric, struct rdmux_revoke_mail **list, bool answer)
{
    while (*list != NULL) {
        struct rdmux_revoke_mail *revoke = *list;
        struct rdmux_mail *next = revoke->mail.next;
        *list = next == NULL ? NULL : RDMUX_CONTAINER(next, struct rdmux_revoke_mail, mail);
        if (answer) {
            rdmux_mr_revoke_answered(fabric, revoke->region, revoke->number, revoke->ep_id);
        }
        rdmux_release(fabric, revoke);
    }
}

bool rdmux_read_drain_step(struct rdmux_ep *ep)
{
    if (RDMUX_LIKELY(ep->drain.waiting == NULL && ep->drain.posted == NULL) ||
        ep->phase != RDMUX_PHASE_READY || ep->fault != RDMUX_OK) {
        return false;
    }
    if (ep->drain.posted != NULL && ep->drain.request.done) {
        if (ep->drain.request.status != RDMUX_OK) {
            rdmux_provider_failed(ep->path, (enum rdmux_status)ep->drain.request.status,
                                  "what was under way to the peer has not come there");
            return false;
        }
        free_all(ep->fabric, &ep->drain.posted, true);
    }
    if (ep->drain.posted == NULL && ep->drain.waiting != NULL &&
        rdmux_ep_flush(ep, &ep->drain.request)) {
        ep->drain.posted = ep->drain.waiting;
        ep->drain.waiting = NULL;
    }
    return ep->drain.posted != NULL || ep->drain.waiting != NULL;
}

void rdmux_read_drain_cut(struct rdmux_ep *ep)
{
    free_all(ep->fabric, &ep->drain.waiting, true);
    free_all(ep->fabric, &ep->drain.posted, true);
    ep->drain.request.done = 0;
}

void rdmux_read_drain_leave(struct rdmux_ep *ep)
{
    free_all(ep->fabric, &ep->drain.waiting, false);
    free_all(ep->fabric, &ep->drain.posted, false);
}
