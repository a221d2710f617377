/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The end of imports, with their endpoint or its path. */
#include "api/object/remote_end.h"

#include "api/core/ep.h"
#include "api/core/remote.h"
#include "api/data/fast_path.h"

#include <assert.h>

void rdmux_remote_enter(struct rdmux_remote *remote, enum rdmux_remote_state next, uint32_t status)
{
    assert(next >= remote->state);
    remote->state = next;
    remote->status = status;
}

void rdmux_remote_detach(struct rdmux_remote *remote)
{
    if (remote->path != NULL && remote->path != &remote->null_path) {
        remote->path->ep->ops->remote_close(remote->path);
        rdmux_release(remote->ep->fabric, remote->path);
    }
    if (remote->path != NULL) {
        remote->path = NULL;
        rdmux_fast_path_aim(remote);
    }
}

void rdmux_remotes_detach(struct rdmux_ep *ep)
{
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        rdmux_remote_detach(RDMUX_CONTAINER(at, struct rdmux_remote, link));
    }
}

void rdmux_remotes_end(struct rdmux_ep *ep)
{
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (remote->state == RDMUX_REMOTE_ASKING && remote->is_announced) {
            remote->is_announced = false;
            rdmux_list_append(&ep->imports.ready, &remote->ready_link);
        }
        if (remote->state != RDMUX_REMOTE_DEAD) {
            rdmux_remote_enter(remote, RDMUX_REMOTE_DEAD,
                               ep->end.status == RDMUX_OK ? RDMUX_PEER_GONE : ep->end.status);
        }
        rdmux_fast_path_aim(remote);
    }
}

void rdmux_remotes_release(struct rdmux_ep *ep)
{
    while (!rdmux_list_empty(&ep->imports.all)) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(ep->imports.all.next, struct rdmux_remote,
                                                      link);
        rdmux_list_remove(&remote->link);
        rdmux_list_remove(&remote->ready_link);
        rdmux_secret_release(ep->fabric, remote->token);
        rdmux_release(ep->fabric, remote);
    }
}
