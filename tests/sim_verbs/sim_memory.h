/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Protection domains, regions, and the memory that a key names. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_context;
struct sim_qp;

struct sim_pd {
    struct ibv_pd ib;
    size_t users;
};

struct sim_mr_place {
    struct sim_mr *mr; /* NULL: free */
    uint32_t tag;      /* tag of the next region in this place */
};

struct sim_mr {
    struct ibv_mr ib;
    /* The device's own copies: a program's changes of its struct have no effect. */
    struct ibv_pd *pd;
    char *addr;
    size_t length;
    uint64_t iova;
    uint32_t lkey;
    uint32_t rkey;
    unsigned int access;
    void *pages; /* of a dma-buf, mapped for this region; NULL: none */
};

void sim_pd_use(struct ibv_pd *pd, int difference);
struct ibv_pd *sim_pd_make(struct sim_context *context); /* no program may destroy it */

/*
 * Returns the memory that a local (remote) key names. NULL: wrong key, protection domain, bounds or
 * rights. access: the required bits of IBV_ACCESS_*.
 */
void *sim_memory_local(const struct sim_qp *qp, const struct ibv_sge *sge, unsigned int access);
void *sim_memory_remote(const struct sim_qp *qp, uint32_t rkey, uint64_t addr, uint64_t length,
                        unsigned int access, bool *known_key);

#endif
