/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions and their keys, remotes, and registered pages of the library. */
#ifndef RDMUX_VERBS_MEMORY_H
#define RDMUX_VERBS_MEMORY_H

#include "verbs/verbs_description.h"

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stddef.h>
#include <stdint.h>

struct verbs_domain;

struct verbs_mr {
    struct rdmux_provider_mr base;
    void *addr;
    uint64_t length;
    uint32_t access; /* RDMUX_ACCESS_* */
    /* IBV_ACCESS_* of the remote key; 0: the device grants no right to the peer */
    int remote_access;
    uint64_t iova;      /* the region's address for the remote key */
    uint32_t dmabuf_fd; /* as in rdmux_provider_mr_attr, with the offset */
    uint64_t dmabuf_offset;
    struct ibv_mr *local;
    struct ibv_mr *remote;
};

struct verbs_remote {
    struct rdmux_provider_remote base;
    struct verbs_region region;
};

static inline struct verbs_mr *verbs_mr_of(struct rdmux_provider_mr *mr)
{
    return (struct verbs_mr *)mr;
}
static inline struct verbs_remote *verbs_remote_of(struct rdmux_provider_remote *remote)
{
    return (struct verbs_remote *)remote;
}

/* Fills a device's list from a request's. Returns the number of pieces. [data path] */
static inline uint32_t verbs_pieces(const struct rdmux_provider_sge *sges, uint32_t count,
                                    struct ibv_sge *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct verbs_mr *mr = (const struct verbs_mr *)sges[i].mr;
        out[i].addr = (uintptr_t)sges[i].addr;
        out[i].length = (uint32_t)sges[i].length;
        out[i].lkey = mr != NULL ? mr->local->lkey : 0; /* inline pieces need none */
    }
    return count;
}

/* Fills in the target of a work request: the request's remote memory from its byte `skip` on. [data
 * path] */
static inline void verbs_name_remote(struct ibv_send_wr *work, const struct rdmux_request *request,
                                     uint64_t skip)
{
    const struct verbs_remote *remote = (const struct verbs_remote *)request->remote;
    work->wr.rdma.remote_addr = remote->region.addr + request->offset + skip;
    work->wr.rdma.rkey = remote->region.rkey;
}

enum rdmux_status rdmux_verbs_mr_register(struct rdmux_provider_mr *base,
                                          const struct rdmux_provider_mr_attr *attr);
void rdmux_verbs_mr_deregister(struct rdmux_provider_mr *base);
enum rdmux_status rdmux_verbs_mr_describe(struct rdmux_provider_mr *base,
                                          struct rdmux_provider_ep *ep, uint8_t *out, size_t *size);
enum rdmux_status rdmux_verbs_mr_invalidate(struct rdmux_provider_mr *base);
enum rdmux_status rdmux_verbs_remote_open(struct rdmux_provider_remote *base,
                                          const uint8_t *description, size_t size);
void rdmux_verbs_remote_close(struct rdmux_provider_remote *remote);
/* Maps zeroed whole pages, so that registered pages hold nothing else. NULL: out of memory. */
void *rdmux_verbs_pages_map(size_t size);
void rdmux_verbs_pages_unmap(void *pages, size_t size);
/* Registers bytes with a domain; error texts tell of the limit on locked memory. what: the name in
 * texts, such as "region". copies: total number of times that the pages are locked. iova: the
 * address that users of the key give. */
enum rdmux_status rdmux_verbs_pin(struct verbs_domain *domain, const char *what, void *addr,
                                  uint64_t length, uint64_t iova, int access, unsigned copies,
                                  struct ibv_mr **out);

#endif
