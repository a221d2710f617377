/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions: registered memory, and the endpoints that import it. */
#ifndef RDMUX_API_CORE_MR_H
#define RDMUX_API_CORE_MR_H

#include "api/core/fabric.h"

/* An endpoint that imported a region. fabric->lock. */
struct rdmux_importer {
    struct rdmux_list link; /* in mr->importers */
    struct rdmux_importer *bucket_next;
    struct rdmux_mr *mr;
    struct rdmux_cq *cq;
    uint64_t ep_id;
    uint32_t first_id; /* of the oldest import that is counted; 0: none was told */
    uint32_t imports;  /* that the peer has not closed; 0: kept for reads that linger */
    bool is_awaited;   /* counted in mr->revoke_awaited and cq->revocations */
};

/* A region's registration with one domain. */
struct rdmux_registration {
    struct rdmux_provider_domain *domain;
    struct rdmux_provider_mr *mr;
};
/* Of a region that was exported; a piece of secrets.c's. */
struct rdmux_mr_secrets {
    struct rdmux_token token;
    uint8_t grant[RDMUX_SECRET_SIZE]; /* the peers' tokens are made of it */
};
/* Of an endpoint's connection; the same. */
struct rdmux_ep_secrets {
    uint8_t secret[RDMUX_SECRET_SIZE];
    uint8_t join_name[RDMUX_SECRET_SIZE]; /* of the secret, where sockets join sealed */
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
    int memory_fd;          /* memfd of rdmux_mr_alloc(), -1 else */
    bool allocated;         /* unmap at the end */
    size_t mapped_size;     /* then */
    uint32_t index;         /* in the region table */
    uint64_t id;            /* never used again in the fabric's life */
    struct rdmux_list link; /* fabric->regions */
    bool exported;          /* fabric->lock, with token and importers */
    bool granted;           /* exported to single peers, with secrets->grant; fabric->lock */
    bool given_raw;         /* its key was, by rdmux_mr_raw(); fabric->lock */
    struct rdmux_mr_secrets *secrets; /* NULL: it was never exported; fabric->lock */
    struct rdmux_list importers;
    uint32_t revoke_number;  /* of the revocation under way */
    uint32_t revoke_awaited; /* importers that have not answered yet what was asked last */
    bool revoking;           /* fabric->lock, with the three below */
    uint32_t importing;      /* rdmux_mr_import() without its import_done */
    pthread_cond_t changed;  /* of the fields above, with fabric->lock; CLOCK_MONOTONIC */
    struct rdmux_mr *bucket_next;
    /* setup_lock for writing; only grows while an endpoint may look. */
    _Atomic size_t registration_count;
    struct rdmux_registration registrations[RDMUX_FABRIC_DOMAINS_MAX];
};

/* This region's registration with a domain, NULL if there is none. [data path] */
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
