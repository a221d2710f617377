/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A domain: an opened device with its asynchronous events. Any thread may use it. */
#ifndef RDMUX_VERBS_DOMAIN_H
#define RDMUX_VERBS_DOMAIN_H

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct verbs_cq;
struct verbs_transport;

/* Library memory of a domain: the flush word, which peers read behind their writes, and the sink,
 * the local target of such reads. */
struct verbs_page {
    _Alignas(64) uint64_t flush_word;
    _Alignas(64) uint64_t sink;
};

struct verbs_domain {
    struct rdmux_provider_domain base;
    const struct verbs_transport *transport;
    struct ibv_context *context;
    struct ibv_pd *pd;
    char device[RDMUX_NAME_MAX];
    struct ibv_device_attr attr;
    bool keeps_address; /* the device registers regions at their own address only */
    bool needs_sinks;   /* the target of a read needs the transport's sink_access */
    bool lacks_fence;   /* IBV_SEND_FENCE is not used: fenced requests are held back in software */
    /* the device sends bytes of unsignaled work requests from their buffer, and may send them again
     * after later completions; so each one is signaled */
    bool lends_silent;
    bool lacks_inline;  /* inline requests are not used: their bytes do not arrive */
    bool lacks_nothing; /* zero-length writes and reads are not used behind a read */
    bool lacks_calls;   /* ibv_wr_*() are not used */
    /* a read of several packets may complete as done although it is not; a small read behind it
     * tells */
    bool doubts_reads;
    struct verbs_page *page;
    struct ibv_mr *flush_mr;
    struct ibv_mr *sink_mr;
    _Atomic uint64_t ports_down; /* bit n: port n */
    _Atomic bool is_gone;        /* the device failed or was removed */
    pthread_mutex_t lock;        /* guards cqs, and the qp_context of queue pairs */
    struct verbs_cq *cqs;        /* by domain_next */
};

static inline struct verbs_domain *verbs_domain_of(struct rdmux_provider_domain *domain)
{
    return (struct verbs_domain *)domain;
}

enum rdmux_status rdmux_verbs_domain_open(const struct verbs_transport *transport,
                                          struct rdmux_provider_domain *base,
                                          const struct rdmux_local_path *path);
void rdmux_verbs_domain_close(struct rdmux_provider_domain *base);
enum rdmux_status rdmux_verbs_async_event(struct rdmux_provider_domain *base,
                                          struct rdmux_provider_event *out);
int rdmux_verbs_domain_fd(struct rdmux_provider_domain *base);
enum rdmux_status rdmux_verbs_inspect(
    const struct verbs_transport *transport, struct rdmux_fabric *fabric,
    void (*report)(void *user, const struct rdmux_provider_finding *finding), void *user);

#endif
