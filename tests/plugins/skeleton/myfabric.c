/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * myfabric - copy me. A provider that compiles, loads, and refuses everything cleanly: each STEP is
 * to be filled in, in this order; docs/PROVIDER-GUIDE.md says how, and what to run after each. What
 * the library's helpers do already is in the table at the end; a device of your own replaces those.
 */
#include <rdmux/provider.h>

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Yours behind the base; the core allocates it, zeroed. */
struct my_ep {
    struct rdmux_provider_ep base;
    const struct rdmux_provider_ep_attr *attr;
    struct rdmux_provider_counts counts;
};

static struct my_ep *my_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct my_ep *)ep;
}

static enum rdmux_status not_yet(const char *step)
{
    rdmux_provider_error("myfabric: %s is not written yet; see PROVIDER-GUIDE.md", step);
    return RDMUX_UNSUPPORTED;
}

/* STEP 1. The local paths: one entry each, with what ranks it and what it can do; if none is usable,
 * one with the reason, its cause in words, and a hint that is a thing to do. */
static enum rdmux_status my_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                  size_t max, size_t *count)
{
    (void)fabric;
    *count = 1;
    if (max == 0) {
        return RDMUX_OK;
    }
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->device, sizeof(out->device), "myfabric");
    rdmux_software_here(out); /* who can reach it: processes of this host */
    out->bandwidth = UINT64_C(1000000000);
    out->latency_ns = 20000;
    out->native = 0; /* RDMUX_CAP_*: each when it works; writes with PLACED, which prove it, first */
    out->security = RDMUX_SECURITY_SAME_USER;
    /* STEP 1: take these three lines out. */
    out->reason = RDMUX_REASON_NO_DEVICE;
    (void)snprintf(out->text, sizeof(out->text), "myfabric: STEP 1 is not written yet");
    (void)snprintf(out->hint, sizeof(out->hint), "fill in my_probe(); see PROVIDER-GUIDE.md");
    return RDMUX_OK;
}

/* STEP 2. Both sides meet. The connection data of ep_describe is the peer's input to ep_connect:
 * check it. Never wait: RDMUX_IN_PROGRESS, and a descriptor in the cq's set that tells when to go on. */
static enum rdmux_status my_ep_open(struct rdmux_provider_ep *base,
                                    const struct rdmux_provider_ep_attr *attr)
{
    struct my_ep *ep = my_ep_of(base);
    ep->attr = attr; /* valid until ep_close */
    return not_yet("STEP 2, ep_open");
}

static enum rdmux_status my_ep_describe(struct rdmux_provider_ep *ep, uint8_t *out, size_t *size)
{
    (void)ep;
    (void)out;
    *size = 0;
    return RDMUX_OK;
}

static enum rdmux_status my_ep_connect(struct rdmux_provider_ep *ep, const uint8_t *peer,
                                       size_t size)
{
    (void)ep;
    (void)peer; /* NULL: called again, after RDMUX_IN_PROGRESS */
    (void)size;
    return not_yet("STEP 2, ep_connect");
}

/* STEP 3. The end, from any moment on: after quiesce nobody touches a buffer of a request, and
 * nothing that ep_open and ep_connect took is left. */
static enum rdmux_status my_ep_quiesce(struct rdmux_provider_ep *base,
                                       struct rdmux_provider_counts *counts)
{
    *counts = my_ep_of(base)->counts;
    return RDMUX_OK;
}

static void my_ep_close(struct rdmux_provider_ep *ep)
{
    struct rdmux_provider_counts counts;
    (void)my_ep_quiesce(ep, &counts);
}

/* STEP 4. Start requests in order: writes with PLACED first, for they prove the path. Each one taken
 * is ended by rdmux_provider_done() exactly once; RDMUX_AGAIN is followed by
 * rdmux_provider_resume(). */
static enum rdmux_status my_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                 size_t count, uint32_t flags, size_t *posted)
{
    (void)ep;
    (void)requests;
    (void)count;
    (void)flags;
    *posted = 0;
    return not_yet("STEP 4, post");
}

/* STEP 5. Progress: what came for our requests, and the peer's requests, by rdmux_target_enter() and
 * rdmux_target_leave(). At most about budget of them. Returns how much it did. A path that fails
 * says so by rdmux_provider_failed(), once. */
static size_t my_poll(struct rdmux_provider_cq *cq, size_t budget)
{
    struct epoll_event events[16];
    size_t done = 0;
    int count = epoll_wait(rdmux_software_fd(cq), events, 16, 0);
    for (int i = 0; i < count && done < budget; i++) {
        done++; /* of the endpoint in events[i].data.ptr */
    }
    return done;
}

/* STEP 6. Messages: one that comes takes its receive by rdmux_provider_take_receive(), and is told
 * by rdmux_provider_received(). One that finds none waits, and this call says when to look again. */
static enum rdmux_status my_post_recv(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                      size_t count)
{
    (void)ep;
    (void)requests; /* adjacent records, which stay; NULL: there may be a receive where none was */
    (void)count;
    return RDMUX_OK;
}

/* STEP 7. Reads, atomics, immediate data: as writes, each with its RDMUX_CAP_* in my_probe(). */

static const struct rdmux_provider_ops my_provider = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = sizeof(struct rdmux_provider_ops),
    .name = "myfabric",
    .flags = RDMUX_PROVIDER_QUICK, /* nothing here ever takes longer than a few system calls */
    .domain_size = sizeof(struct rdmux_provider_domain),
    .cq_size = sizeof(struct rdmux_software_cq),
    .ep_size = sizeof(struct my_ep),
    .srq_size = sizeof(struct rdmux_provider_srq),
    .mr_size = sizeof(struct rdmux_provider_mr),
    .remote_size = sizeof(struct rdmux_software_remote),
    .probe = my_probe,
    .reach = rdmux_software_reach,
    .domain_open = rdmux_software_domain_open,
    .domain_close = rdmux_software_domain_close,
    .async_event = rdmux_unsupported_async_event,
    .domain_fd = rdmux_unsupported_domain_fd,
    .inspect = rdmux_unsupported_inspect,
    .mr_register = rdmux_software_mr_register,
    .mr_deregister = rdmux_software_mr_deregister,
    .mr_describe = rdmux_software_mr_describe,
    .mr_invalidate = rdmux_software_mr_invalidate,
    .cq_open = rdmux_software_cq_open,
    .cq_close = rdmux_software_cq_close,
    .poll = my_poll,
    .arm = rdmux_software_arm,
    .fd = rdmux_software_fd,
    .ep_open = my_ep_open,
    .ep_describe = my_ep_describe,
    .ep_connect = my_ep_connect,
    .ep_join = rdmux_unsupported_ep_join,
    .ep_control = rdmux_unsupported_ep_control,
    .ep_ping = rdmux_unsupported_ep_ping,
    .ep_quiesce = my_ep_quiesce,
    .ep_close = my_ep_close,
    .post = my_post,
    .doorbell = rdmux_unsupported_doorbell,
    .post_recv = my_post_recv,
    .srq_open = rdmux_software_srq_open,
    .srq_close = rdmux_software_srq_close,
    .srq_post_recv = rdmux_software_srq_post_recv,
    .remote_open = rdmux_software_remote_open,
    .remote_close = rdmux_software_remote_close,
};

/* What makes a shared object a plug-in: the one function that rdmux looks for. */
RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static const struct rdmux_provider_ops *const providers[] = { &my_provider };
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI,
        .count = 1,
        .providers = providers,
    };
    return &plugin;
}
