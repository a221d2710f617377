/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Finding the peer: the worker thread resolves names; the addresses are dialled one after the
 * other.
 */
#include "api/base/address.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/loop/worker.h"
#include "api/progress/cq_owner.h"
#include "api/progress/endpoint_table.h"
#include "api/session/channel_socket.h"
#include "api/session/setup_state.h"
#include "api/setup/rdmacm_endpoint.h"
#include "api/setup/setup.h"
#include "api/system/system.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A forked child may hold the socket, too: then close() alone would not remove it from the
 * poller. */
void rdmux_dial_close(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    if (setup->dialing >= 0) {
        (void)rdmux_poller_remove(ep->cq->control_fd, setup->dialing);
        close(setup->dialing);
        setup->dialing = -1;
    }
}

static void dial_next(struct rdmux_ep *ep, int last_error);

static void socket_dialled(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    int socket = setup->dialing;
    setup->dialing = -1;
    (void)rdmux_poller_remove(ep->cq->control_fd, socket);
    rdmux_ep_set_peer_address(ep, setup->address->ai_addr, setup->address->ai_addrlen);
    enum rdmux_status status = rdmux_setup_talk(ep, socket, NULL, NULL, 0);
    if (status != RDMUX_OK) {
        if (ep->channel == NULL) {
            close(socket);
        }
        rdmux_setup_fail(ep, status, rdmux_last_error(), false);
        return;
    }
    rdmux_setup_run(ep);
}

/* Dials the next addresses until a connect is in progress. If none is left, set-up fails with the
 * last error. */
static void dial_next(struct rdmux_ep *ep, int last_error)
{
    struct rdmux_setup *setup = ep->setup;
    if (ep->is_rdmacm) {
        rdmux_rdmacm_dial(ep);
        return;
    }
    for (; setup->address != NULL; setup->address = setup->address->ai_next) {
        const struct addrinfo *address = setup->address;
        char shown[RDMUX_ADDRESS_MAX];
        if (rdmux_log_wants(ep->fabric, RDMUX_LOG_DEBUG)) {
            rdmux_address_format(address->ai_addr, address->ai_addrlen, shown);
            rdmux_setup_log_dial(ep, shown);
        }
        int fd = rdmux_channel_socket_dial(ep, address->ai_addr, address->ai_addrlen, setup->local,
                                           &last_error);
        if (fd < 0) {
            continue;
        }
        if (rdmux_poller_add(ep->cq->control_fd, fd, RDMUX_READY_OUT, ep) == 0) {
            setup->dialing = fd;
            rdmux_setup_enter(setup, SETUP_DIALING);
            return;
        }
        last_error = errno;
        close(fd);
    }
    char text[RDMUX_TEXT_MAX];
    enum rdmux_status status = RDMUX_REFUSED;
    const char *remedy = "";
    if (last_error == EMFILE || last_error == ENFILE) {
        status = RDMUX_NO_MEMORY;
        remedy = "raise the limit with ulimit -n";
    } else if (last_error == ETIMEDOUT) {
        status = RDMUX_TIMED_OUT;
        remedy = "is the host up, and no firewall in between?";
    } else if (last_error == ECONNRESET) {
        status = RDMUX_PEER_GONE;
        remedy = "the server went away at this moment";
    } else if (last_error == EADDRNOTAVAIL && setup->local[0] == '\0') {
        status = RDMUX_IO;
        remedy = "no local port is free, each tcp endpoint takes two: widen "
                 "net.ipv4.ip_local_port_range";
    } else if (last_error != ECONNREFUSED) {
        status = RDMUX_IO;
        remedy = "check the address and the route to it";
    }
    if (status == RDMUX_REFUSED) {
        char why[RDMUX_TEXT_MAX];
        rdmux_address_explain_refusal(setup->addresses, why, sizeof(why));
        snprintf(text, sizeof(text), "%.100s: %.140s", setup->target, why);
    } else {
        snprintf(text, sizeof(text), "%s: %s; %s", setup->target, strerror(last_error), remedy);
    }
    rdmux_setup_fail(ep, status, text, false);
}

void rdmux_dial_ready(struct rdmux_ep *ep)
{
    struct rdmux_setup *setup = ep->setup;
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(setup->dialing, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        error = errno;
    }
    if (error == 0) {
        socket_dialled(ep);
        return;
    }
    rdmux_dial_close(ep);
    setup->address = setup->address->ai_next;
    dial_next(ep, error);
}

/* A name resolution by the worker thread. */
struct resolve_job {
    struct rdmux_job job;
    struct rdmux_mail mail;
    struct rdmux_fabric *fabric;
    uint64_t cq_id;
    uint64_t ep_id;
    struct rdmux_address_text text;
    struct addrinfo *addresses;
    enum rdmux_status status;
    char error[RDMUX_TEXT_MAX];
};

static void name_resolved(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct resolve_job *job = RDMUX_CONTAINER(mail, struct resolve_job, mail);
    struct rdmux_ep *ep = rdmux_cq_endpoint(cq, job->ep_id);
    if (ep != NULL && ep->setup != NULL && ep->setup->stage == SETUP_RESOLVING) {
        if (job->status != RDMUX_OK) {
            rdmux_setup_fail(ep, job->status, job->error, false);
        } else {
            ep->setup->addresses = job->addresses;
            ep->setup->address = job->addresses;
            job->addresses = NULL;
            dial_next(ep, 0);
        }
    }
    if (job->addresses != NULL) {
        freeaddrinfo(job->addresses);
    }
    rdmux_release(cq->fabric, job);
}

static void resolve_name(struct rdmux_job *base)
{
    struct resolve_job *job = RDMUX_CONTAINER(base, struct resolve_job, job);
    struct rdmux_fabric *fabric = job->fabric;
    job->status = rdmux_address_resolve(&job->text, false, false, &job->addresses);
    if (job->status != RDMUX_OK) {
        snprintf(job->error, sizeof(job->error), "%s", rdmux_last_error());
    }
    bool delivered = false;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->cqs.next; at != &fabric->cqs && !delivered; at = at->next) {
        struct rdmux_cq *cq = RDMUX_CONTAINER(at, struct rdmux_cq, link);
        if (cq->id == job->cq_id) {
            rdmux_cq_mail(cq, &job->mail);
            delivered = true;
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    if (!delivered) {
        if (job->addresses != NULL) {
            freeaddrinfo(job->addresses);
        }
        rdmux_release(fabric, job);
    }
}

enum rdmux_status rdmux_ep_start_connect(struct rdmux_ep *ep, const char *address)
{
    struct rdmux_setup *setup = ep->setup;
    struct rdmux_address_text text;
    const char *rdmacm = rdmux_rdmacm_address(address);
    enum rdmux_status status = rdmux_address_split(rdmacm != NULL ? rdmacm : address, &text);
    if (status != RDMUX_OK) {
        return status;
    }
    if (text.host[0] == '\0') {
        return rdmux_fail(RDMUX_INVALID, "address \"%s\": a host is missing; write HOST:PORT",
                          address);
    }
    if (rdmacm != NULL && ep->fabric->auth != NULL) {
        return rdmux_rdmacm_refuse_auth("rdmux_connect");
    }
    ep->negotiated.role = RDMUX_ROLE_CONNECT;
    snprintf(setup->host, sizeof(setup->host), "%s", text.host);
    snprintf(setup->target, sizeof(setup->target), "%s", address);
    status = rdmux_address_resolve(&text, false, true, &setup->addresses);
    if (status == RDMUX_OK) {
        setup->address = setup->addresses;
        dial_next(ep, 0);
        return RDMUX_OK;
    }
    if (status != RDMUX_AGAIN) {
        return status;
    }
    struct resolve_job *job = rdmux_allocate(ep->fabric, sizeof(*job));
    if (job == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_connect: out of memory");
    }
    job->job.work = resolve_name;
    job->mail.deliver = name_resolved;
    job->fabric = ep->fabric;
    job->cq_id = ep->cq->id;
    job->ep_id = ep->id;
    job->text = text;
    rdmux_setup_enter(setup, SETUP_RESOLVING);
    rdmux_worker_run(ep->fabric, &job->job);
    return RDMUX_OK;
}
