/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Imports: a region of the peer on one endpoint, from the IMPORT frame on the control channel to
 * the end of its last request. */
#include "api/object/remote.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/failover.h"
#include "api/core/remote.h"
#include "api/data/completion.h"
#include "api/data/cq.h"
#include "api/data/fast_path.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/mr_export.h"
#include "api/object/remote_end.h"
#include "api/progress/cq_owner.h"
#include "api/system/system.h"

#include <string.h>

static bool is_on_null_path(const struct rdmux_remote *remote)
{
    return remote->path != NULL && remote->path == &remote->null_path;
}

void rdmux_remotes_cut(struct rdmux_ep *ep, rdmux_remote_switch_fn *switch_requests)
{
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (remote->path == NULL) {
            continue;
        }
        struct rdmux_provider_remote *path = remote->path;
        rdmux_remote_detach(remote);
        remote->null_path = (struct rdmux_provider_remote){ .ep = ep->path, .remote = remote };
        remote->path = &remote->null_path;
        switch_requests(ep, path, &remote->null_path);
    }
    (void)rdmux_remotes_step(ep); /* revocations need not wait any longer */
}

void rdmux_remotes_ask_again(struct rdmux_ep *ep)
{
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (is_on_null_path(remote) || remote->state == RDMUX_REMOTE_ASKING) {
            remote->id = ++ep->imports.next_id; /* an answer for the previous path does not count */
            rdmux_remote_ask(remote);
        }
    }
}

void rdmux_remote_ask(struct rdmux_remote *remote)
{
    struct rdmux_message message = { .type = RDMUX_FRAME_IMPORT,
                                     .id = remote->id,
                                     .token = *remote->token };
    rdmux_ep_tell(remote->ep, &message);
    rdmux_wipe(&message.token, sizeof(message.token));
}

static void enter_answered(struct rdmux_remote *remote, enum rdmux_status status)
{
    rdmux_remote_enter(remote, status == RDMUX_OK ? RDMUX_REMOTE_READY : RDMUX_REMOTE_DEAD,
                       (uint32_t)status);
}

static void finish_import(struct rdmux_remote *remote, enum rdmux_status status)
{
    enter_answered(remote, status);
    rdmux_fast_path_aim(remote);
    if (remote->is_announced) {
        remote->is_announced = false;
        rdmux_list_append(&remote->ep->imports.ready, &remote->ready_link);
        rdmux_cq_pend(remote->ep->cq, remote->ep);
    }
}

static enum rdmux_status open_remote(struct rdmux_remote *remote,
                                     const struct rdmux_message *message)
{
    struct rdmux_ep *ep = remote->ep;
    struct rdmux_provider_remote *path = rdmux_allocate(ep->fabric, ep->ops->remote_size);
    if (path == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "import: out of memory");
    }
    path->ep = ep->path;
    path->remote = remote;
    path->length = message->length;
    path->access = message->access & (RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                      RDMUX_ACCESS_REMOTE_ATOMIC);
    rdmux_error_clear();
    enum rdmux_status status = ep->ops->remote_open(path, message->description,
                                                    message->description_length);
    if (status != RDMUX_OK) {
        rdmux_release(ep->fabric, path);
        return status;
    }
    remote->path = path;
    remote->length = message->length;
    remote->access = path->access & message->access;
    remote->region = message->region;
    remote->is_device_scope = (message->access & RDMUX_ACCESS_ATOMIC_DEVICE) != 0;
    return RDMUX_OK;
}

/* Fails a move. Each import must be available on every path, as requests wait for it and could end
 * in no other way; else the endpoint ends. */
static void fail_move(struct rdmux_ep *ep, enum rdmux_status status, const char *text)
{
    rdmux_ep_fail(ep, status == RDMUX_NO_MEMORY ? status : RDMUX_PEER_GONE,
                  "moving to another path: a region that was imported cannot be reached over %.24s "
                  "%.24s: %s: %.100s",
                  ep->info.provider, ep->info.device, rdmux_status_name(status), text);
}

static void forget_token(struct rdmux_remote *remote)
{
    rdmux_secret_release(remote->ep->fabric, remote->token);
    remote->token = NULL;
}

/* Tells the peer of closed imports. The peer counts the imports of this endpoint and waits for the
 * open ones when it revokes. A peer that does not know the frame skips it. */
static void tell_released(struct rdmux_ep *ep, uint64_t region, uint32_t id, uint32_t count)
{
    struct rdmux_message message = {
        .type = RDMUX_FRAME_RELEASED, .id = id, .region = region, .count = count
    };
    if (count != 0 && ep->phase == RDMUX_PHASE_READY) {
        rdmux_ep_tell(ep, &message);
    }
}

void rdmux_remote_answered(struct rdmux_ep *ep, const struct rdmux_message *message)
{
    if (rdmux_failover_is_moving(ep)) {
        return; /* an answer for the lost path: the import will be asked again */
    }
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (remote->id != message->id ||
            (remote->state != RDMUX_REMOTE_ASKING && !is_on_null_path(remote))) {
            continue;
        }
        enum rdmux_status status = (enum rdmux_status)message->status;
        const char *text = "told by the peer";
        if (status == RDMUX_OK) {
            remote->granted++;
            remote->region = message->region;
            status = open_remote(remote, message);
            text = rdmux_last_error();
        }
        if (status != RDMUX_OK && status != RDMUX_DENIED && is_on_null_path(remote)) {
            fail_move(ep, status, text);
            return;
        }
        if (status != RDMUX_OK) {
            remote->path = NULL;
        }
        finish_import(remote, status);
        if (ep->failover != NULL) {
            rdmux_cq_pend(ep->cq, ep); /* requests may wait for the import */
        } else {
            forget_token(remote); /* the token is not needed again */
        }
        return;
    }
    if (message->status == RDMUX_OK) {
        tell_released(ep, message->region, message->id, 1); /* the import was closed meanwhile */
    }
}

static bool import_answered(void *user)
{
    const struct rdmux_remote *remote = user;
    return remote->state != RDMUX_REMOTE_ASKING || remote->ep->phase > RDMUX_PHASE_READY;
}

static void drop_import(struct rdmux_remote *remote)
{
    rdmux_remote_detach(remote);
    forget_token(remote);
    tell_released(remote->ep, remote->region, remote->id, remote->granted);
    rdmux_list_remove(&remote->link);
    rdmux_list_remove(&remote->ready_link);
    rdmux_release(remote->ep->fabric, remote);
}

static enum rdmux_status wait_for_answer(struct rdmux_remote *remote, int timeout_ms)
{
    enum rdmux_status status = rdmux_cq_wait_until(remote->ep->cq, import_answered, remote,
                                                   timeout_ms);
    if (status == RDMUX_TIMED_OUT) {
        return rdmux_fail(RDMUX_TIMED_OUT,
                          "rdmux_remote_import: the peer did not answer within %d ms", timeout_ms);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    if (remote->state == RDMUX_REMOTE_READY) {
        return RDMUX_OK;
    }
    status = remote->status == RDMUX_OK ? RDMUX_PEER_GONE : (enum rdmux_status)remote->status;
    return rdmux_fail(
        status, "rdmux_remote_import: %s",
        status == RDMUX_DENIED
            ? "the peer knows no such token; it is forged, revoked, or another process's"
            : "the endpoint ended, or the path could not take the region");
}

enum rdmux_status rdmux_remote_begin(struct rdmux_ep *ep, const struct rdmux_token *token,
                                     bool announced, struct rdmux_remote **out)
{
    if (ep->is_rdmacm) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "rdmux_remote_import: the peer is not rdmux and knows no tokens; use "
                          "rdmux_remote_import_raw()");
    }
    if (ep->phase > RDMUX_PHASE_READY || (ep->phase == RDMUX_PHASE_SETUP && !announced)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_remote_import: the endpoint %s",
                          ep->phase == RDMUX_PHASE_SETUP
                              ? "is not connected yet; use timeout 0, or wait"
                              : "has ended");
    }
    struct rdmux_remote *remote = rdmux_allocate(ep->fabric, sizeof(*remote));
    struct rdmux_token *kept = remote == NULL ? NULL : rdmux_secret_allocate(ep->fabric);
    if (kept == NULL) {
        rdmux_release(ep->fabric, remote);
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_remote_import: out of memory");
    }
    *kept = *token;
    remote->token = kept;
    remote->ep = ep;
    rdmux_remote_enter(remote, RDMUX_REMOTE_ASKING, RDMUX_IN_PROGRESS);
    remote->id = ++ep->imports.next_id;
    remote->is_announced = announced;
    rdmux_fast_path_aim(remote);
    rdmux_list_init(&remote->ready_link);
    rdmux_list_append(&ep->imports.all, &remote->link);
    if (ep->phase == RDMUX_PHASE_READY && !rdmux_failover_is_moving(ep)) {
        rdmux_remote_ask(remote);
    }
    *out = remote;
    return RDMUX_OK;
}

enum rdmux_status rdmux_remote_import(struct rdmux_ep *ep, const struct rdmux_token *token,
                                      int timeout_ms, struct rdmux_remote **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_remote_import: out is NULL");
    }
    *out = NULL;
    if (ep == NULL || token == NULL || timeout_ms < -1 || !rdmux_token_is_valid(token)) {
        return rdmux_fail(
            RDMUX_INVALID, "rdmux_remote_import: %s",
            ep == NULL      ? "ep is NULL"
            : token == NULL ? "token is NULL"
            : timeout_ms < -1
                ? "timeout_ms is below -1"
                : "token is none; its bytes were damaged, or come from something else");
    }
    if (!rdmux_cq_enter(ep->cq)) {
        return rdmux_cq_refused(ep->cq, "rdmux_remote_import", "endpoint");
    }
    struct rdmux_remote *remote = NULL;
    enum rdmux_status status = rdmux_remote_begin(ep, token, timeout_ms == 0, &remote);
    if (remote != NULL) {
        status = timeout_ms == 0 ? RDMUX_IN_PROGRESS : wait_for_answer(remote, timeout_ms);
        if (status == RDMUX_OK || status == RDMUX_IN_PROGRESS) {
            *out = remote;
        } else {
            drop_import(remote);
        }
    }
    rdmux_cq_leave(ep->cq);
    return status;
}

/* Opens a raw import. Only the peer knows the rights of the key, so all rights that the path
 * supports are assumed. */
static enum rdmux_status open_raw(struct rdmux_remote *remote, uint64_t addr, uint32_t key)
{
    const uint64_t atomics = RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP;
    struct rdmux_message message = { .length = remote->length,
                                     .description_length = RDMUX_RAW_KEY_SIZE,
                                     .access = RDMUX_ACCESS_REMOTE_READ |
                                               RDMUX_ACCESS_REMOTE_WRITE };
    if ((remote->ep->limits.caps & atomics) != 0) {
        message.access |= RDMUX_ACCESS_REMOTE_ATOMIC;
    }
    memcpy(message.description, &addr, sizeof(addr));
    memcpy(message.description + sizeof(addr), &key, sizeof(key));
    enum rdmux_status status = open_remote(remote, &message);
    enter_answered(remote, status);
    return status;
}

static enum rdmux_status import_raw(struct rdmux_ep *ep, uint64_t addr, uint32_t key, size_t length,
                                    struct rdmux_remote **out)
{
    enum rdmux_status status = rdmux_ep_check_rdmacm(ep, "rdmux_remote_import_raw");
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_remote *remote = rdmux_allocate(ep->fabric, sizeof(*remote));
    if (remote == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_remote_import_raw: out of memory");
    }
    remote->ep = ep;
    remote->length = length;
    remote->id = ++ep->imports.next_id;
    rdmux_list_init(&remote->ready_link);
    rdmux_list_append(&ep->imports.all, &remote->link);
    rdmux_fast_path_aim(remote);
    status = open_raw(remote, addr, key);
    if (status != RDMUX_OK) {
        drop_import(remote);
        return status;
    }
    *out = remote;
    return RDMUX_OK;
}

enum rdmux_status rdmux_remote_import_raw(struct rdmux_ep *ep, uint64_t addr, uint32_t key,
                                          size_t length, struct rdmux_remote **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_remote_import_raw: out is NULL");
    }
    *out = NULL;
    if (ep == NULL || length == 0 || addr + (length - 1) < addr) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_remote_import_raw: %s",
                          ep == NULL    ? "ep is NULL"
                          : length == 0 ? "length is 0"
                                        : "addr and length wrap around");
    }
    if (!rdmux_cq_enter(ep->cq)) {
        return rdmux_cq_refused(ep->cq, "rdmux_remote_import_raw", "endpoint");
    }
    enum rdmux_status status = import_raw(ep, addr, key, length, out);
    rdmux_cq_leave(ep->cq);
    return status;
}

enum rdmux_status rdmux_remote_info(struct rdmux_remote *remote, struct rdmux_remote_info *out)
{
    if (remote == NULL || out == NULL || out->size < offsetof(struct rdmux_remote_info, length)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_remote_info: %s",
                          remote == NULL ? "remote is NULL"
                          : out == NULL  ? "out is NULL"
                                         : "out->size is too small; use RDMUX_REMOTE_INFO_INIT");
    }
    struct rdmux_cq *cq = remote->ep->cq;
    if (!rdmux_cq_enter(cq)) {
        return rdmux_cq_refused(cq, "rdmux_remote_info", "remote");
    }
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    info.access = remote->access;
    info.length = remote->length;
    info.status = remote->is_revoking ? RDMUX_DENIED : remote->status;
    info.mapped = remote->path == NULL ? 0 : remote->path->mapped;
    uint32_t size = out->size;
    memcpy(out, &info, size < sizeof(info) ? size : sizeof(info));
    out->size = size;
    rdmux_cq_leave(cq);
    return RDMUX_OK;
}

void rdmux_remote_close(struct rdmux_remote *remote)
{
    if (remote == NULL || !rdmux_cq_enter(remote->ep->cq)) {
        return;
    }
    struct rdmux_ep *ep = remote->ep;
    struct rdmux_cq *cq = ep->cq;
    rdmux_list_remove(&remote->ready_link);
    remote->is_announced = false;
    remote->is_closed = true;
    remote->drain_until = ep->send.head;
    ep->work |= RDMUX_WORK_CONTROL;
    rdmux_remotes_step(ep);
    rdmux_cq_leave(cq);
}

void rdmux_remote_revoked(struct rdmux_ep *ep, uint64_t region, uint32_t number)
{
    bool found = false;
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (remote->is_revoking && remote->region == region && remote->revoke_number == number) {
            found = true; /* repeated over another control channel: answered once drained */
        } else if (remote->state == RDMUX_REMOTE_READY && remote->region == region &&
                   !remote->is_revoking) {
            remote->is_revoking = true;
            rdmux_fast_path_aim(remote);
            remote->revoke_number = number;
            remote->drain_until = ep->send.head;
            found = true;
        }
    }
    if (found) {
        ep->work |= RDMUX_WORK_CONTROL;
        rdmux_remotes_step(ep);
    } else {
        struct rdmux_message message = { .type = RDMUX_FRAME_REVOKED,
                                         .id = number,
                                         .region = region };
        rdmux_ep_tell(ep, &message);
    }
}

/* Returns whether another import of this revocation is still draining. */
static bool others_drain(const struct rdmux_ep *ep, uint64_t region, uint32_t number)
{
    for (struct rdmux_list *at = ep->imports.all.next; at != &ep->imports.all; at = at->next) {
        const struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (remote->is_revoking && remote->region == region && remote->revoke_number == number) {
            return true;
        }
    }
    return false;
}

bool rdmux_remotes_step(struct rdmux_ep *ep)
{
    bool more = false;
    for (struct rdmux_list *at = ep->imports.all.next, *next; at != &ep->imports.all; at = next) {
        next = at->next;
        struct rdmux_remote *remote = RDMUX_CONTAINER(at, struct rdmux_remote, link);
        if (!remote->is_closed && !remote->is_revoking) {
            continue;
        }
        /* Until an endpoint that ends has closed its path, the provider may still have requests. */
        bool drained = ep->path == NULL || rdmux_ep_done_before(ep, remote->drain_until);
        if (remote->path != NULL && !drained && !(remote->is_revoking && is_on_null_path(remote))) {
            more = true;
            continue;
        }
        rdmux_remote_detach(remote);
        if (remote->is_revoking) {
            remote->is_revoking = false;
            remote->granted = 0; /* the answer ends all imports */
            rdmux_remote_enter(remote, RDMUX_REMOTE_DEAD, RDMUX_DENIED);
            if (!others_drain(ep, remote->region, remote->revoke_number)) {
                struct rdmux_message message = { .type = RDMUX_FRAME_REVOKED,
                                                 .id = remote->revoke_number,
                                                 .region = remote->region };
                rdmux_ep_tell(ep, &message);
            }
        }
        if (remote->is_closed && (drained || ep->failover == NULL)) {
            drop_import(remote);
        } else if (remote->is_closed) {
            more = true; /* requests that may be repeated name it */
        }
    }
    return more;
}
