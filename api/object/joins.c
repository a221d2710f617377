/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Joins: endpoints in set-up that wait for further sockets of their peer. */
#include "api/object/joins.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"

#include "negotiation/path_secret.h"

/* Returns whether the socket joins this endpoint. Where peers authenticate, no JOIN shows a
 * secret. */
static bool is_joined(const struct rdmux_ep *ep, const struct rdmux_join *join)
{
    if (ep->fabric->auth == NULL) {
        return !join->is_sealed && rdmux_secret_matches(ep->secrets->secret, join->secret);
    }
    return rdmux_secret_matches(ep->secrets->join_name, join->secret) &&
           rdmux_join_is_sealed_by(join, ep->secrets->secret);
}

struct rdmux_ep *rdmux_joins_find_locked(struct rdmux_fabric *fabric, const struct rdmux_cq *cq,
                                         const struct rdmux_join *join)
{
    for (struct rdmux_list *at = fabric->joins.next; at != &fabric->joins; at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, join);
        if ((cq == NULL || ep->cq == cq) && is_joined(ep, join)) {
            return ep;
        }
    }
    return NULL;
}

struct rdmux_ep *rdmux_joins_find(struct rdmux_cq *cq, const struct rdmux_join *join)
{
    pthread_mutex_lock(&cq->fabric->lock);
    struct rdmux_ep *ep = rdmux_joins_find_locked(cq->fabric, cq, join);
    pthread_mutex_unlock(&cq->fabric->lock);
    return ep;
}

enum rdmux_status rdmux_joins_add(struct rdmux_fabric *fabric, struct rdmux_ep *ep)
{
    pthread_mutex_lock(&fabric->lock);
    if (rdmux_list_empty(&ep->join)) {
        rdmux_list_append(&fabric->joins, &ep->join);
    }
    pthread_mutex_unlock(&fabric->lock);
    return RDMUX_OK;
}

void rdmux_joins_remove(struct rdmux_fabric *fabric, struct rdmux_ep *ep)
{
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_remove(&ep->join);
    pthread_mutex_unlock(&fabric->lock);
}
