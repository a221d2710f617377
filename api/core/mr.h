/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions: registered memory, and their importers. */
#ifndef RDMUX_API_CORE_MR_H
#define RDMUX_API_CORE_MR_H

#include "api/base/dmabuf.h"
#include "api/core/fabric.h"

/* An importer: an endpoint that imported a region. fabric->lock. */
struct rdmux_importer {
    struct rdmux_list link; /* in mr->importers */
    struct rdmux_importer *bucket_next;
    struct rdmux_mr *mr;
    struct rdmux_cq *cq;
    uint64_t ep_id;
    uint32_t first_id; /* id of the oldest counted import; 0: no import was answered */
    uint32_t imports;  /* imports that the peer has not closed; 0: kept for reads that may linger */
    bool is_awaited;   /* counted in mr->revoke_awaited and cq->revocations */
};

/* The registration of a region with one domain. */
struct rdmux_registration {
    struct rdmux_provider_domain *domain;
    struct rdmux_provider_mr *mr;
};
/* Secrets of an exported region, in a piece of secrets.c. */
struct rdmux_mr_secrets {
    struct rdmux_token token;
    uint8_t grant[RDMUX_SECRET_SIZE]; /* the tokens of single peers derive from it */
};
/* Secrets of an endpoint's connection, in a piece of secrets.c. */
struct rdmux_ep_secrets {
    uint8_t secret[RDMUX_SECRET_SIZE];
    uint8_t join_name[RDMUX_SECRET_SIZE]; /* derived from the secret, if sockets join sealed */
};
_Static_assert(sizeof(struct rdmux_mr_secrets) <= RDMUX_SECRET_PIECE &&
                   sizeof(struct rdmux_ep_secrets) <= RDMUX_SECRET_PIECE &&
                   sizeof(struct rdmux_token) <= RDMUX_SECRET_PIECE,
               "they fit");

struct rdmux_mr {
    struct rdmux_fabric *fabric;
    void *addr;
    size_t length;
    uint32_t access;
    uint32_t ordering;
    int memory_fd;              /* memfd of rdmux_mr_alloc(), else -1 */
    bool allocated;             /* memory of rdmux_mr_alloc(), unmapped at the end */
    size_t mapped_size;         /* bytes to unmap */
    struct rdmux_dmabuf dmabuf; /* that has the bytes */
    uint64_t dmabuf_offset;     /* of the first byte in it */
    uint32_t index;             /* in the region table */
    uint64_t id;                /* never used again in the fabric's life */
    struct rdmux_list link;     /* fabric->regions */
    bool is_exported;           /* fabric->lock, with token and importers */
    bool is_granted;            /* exported to single peers with secrets->grant; fabric->lock */
    bool is_given_raw;          /* rdmux_mr_raw() gave its key out; fabric->lock */
    _Atomic bool is_suspended;  /* by rdmux_mr_suspend(); any thread may revoke meanwhile */
    struct rdmux_mr_secrets *secrets; /* NULL: the region was never exported; fabric->lock */
    struct rdmux_list importers;
    uint32_t revoke_number;  /* number of the revocation in progress */
    uint32_t revoke_awaited; /* importers that have not answered the last REVOKE yet */
    bool is_revoking;        /* fabric->lock, also for the three fields below */
    uint32_t importing;      /* rdmux_mr_import() calls without import_done yet */
    /* Signals changes of the fields above, with fabric->lock; CLOCK_MONOTONIC. */
    pthread_cond_t changed;
    struct rdmux_mr *bucket_next;
    /* Written under setup_lock; only grows while an endpoint may read it. */
    _Atomic size_t registration_count;
    struct rdmux_registration registrations[RDMUX_FABRIC_DOMAINS_MAX];
};

/* Returns this region's registration with a domain, NULL: none. [data path] */
static inline struct rdmux_provider_mr *rdmux_mr_with(const struct rdmux_mr *mr,
                                                      const struct rdmux_provider_domain *domain)
{
    size_t count = atomic_load_explicit(&mr->registration_count, memory_order_acquire);
    for (size_t i = 0; i < count; i++) {
        if (mr->registrations[i].domain == domain) {
            return mr->registrations[i].mr;
        }
    }
    return NULL;
}

#endif
