/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two endpoints of the shm provider in one process and one thread, on one domain, with a cq each,
 * over the fake core. */
#ifndef RDMUX_TESTS_SHM_PAIR_H
#define RDMUX_TESTS_SHM_PAIR_H

#include "shm/shm_internal.h"
#include "shm/shm_provider.h"
#include "tests/unit/fake_core.h"

/* One endpoint, and the core's objects for it. */
struct shm_end {
    struct shm_ep *ep;
    struct shm_cq *cq;
    struct rdmux_provider_ep_attr attr;
    struct rdmux_ep core;
    struct rdmux_cq core_cq;
};

struct shm_pair {
    struct shm_domain *domain;
    struct shm_end ends[2]; /* 0 connects, 1 accepts */
};

static inline struct shm_domain *shm_pair_domain(void)
{
    struct rdmux_local_path path;
    size_t count = 0;
    struct shm_domain *domain = fake_object(sizeof(*domain));
    domain->base.ops = &rdmux_shm_provider;
    domain->base.fabric = &fake_fabric;
    fake_expect(rdmux_shm_provider.probe(&fake_fabric, &path, 1, &count) == RDMUX_OK);
    fake_expect(rdmux_shm_provider.domain_open(&domain->base, &path) == RDMUX_OK);
    return domain;
}

static inline void shm_end_open(struct shm_pair *pair, int index)
{
    struct shm_end *end = &pair->ends[index];
    end->cq = fake_object(sizeof(*end->cq));
    end->cq->base.domain = &pair->domain->base;
    end->cq->base.cq = &end->core_cq;
    end->ep = fake_object(sizeof(*end->ep));
    end->ep->base.ops = &rdmux_shm_provider;
    end->ep->base.cq = &end->cq->base;
    end->ep->base.ep = &end->core;
    end->attr.role = index == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT;
    fake_expect(rdmux_shm_provider.cq_open(&end->cq->base, 0) == RDMUX_OK);
    fake_expect(rdmux_shm_provider.ep_open(&end->ep->base, &end->attr) == RDMUX_OK);
}

/* Opens both ends, not connected. */
static inline struct shm_pair *shm_pair_open(void)
{
    struct shm_pair *pair = calloc(1, sizeof(*pair));
    fake_expect(pair != NULL);
    pair->domain = shm_pair_domain();
    shm_end_open(pair, 0);
    shm_end_open(pair, 1);
    return pair;
}

static inline void shm_pair_meet(struct shm_pair *pair)
{
    uint8_t data[2][RDMUX_DESCRIPTION_MAX];
    size_t sizes[2] = { RDMUX_DESCRIPTION_MAX, RDMUX_DESCRIPTION_MAX };
    enum rdmux_status statuses[2];
    for (int i = 0; i < 2; i++) {
        fake_expect(rdmux_shm_ep_describe(&pair->ends[i].ep->base, data[i], &sizes[i]) == RDMUX_OK);
    }
    for (int i = 0; i < 2; i++) {
        statuses[i] = rdmux_shm_ep_connect(&pair->ends[i].ep->base, data[1 - i], sizes[1 - i]);
    }
    for (int step = 0; step < 10; step++) {
        for (int i = 0; i < 2; i++) {
            (void)rdmux_shm_provider.poll(&pair->ends[i].cq->base, 64);
            if (statuses[i] == RDMUX_IN_PROGRESS) {
                statuses[i] = rdmux_shm_ep_connect(&pair->ends[i].ep->base, NULL, 0);
            }
        }
    }
    if (statuses[0] != RDMUX_OK || statuses[1] != RDMUX_OK) {
        (void)fprintf(stderr, "not connected: %d %d %s\n", statuses[0], statuses[1], fake_error);
        abort();
    }
}

static inline struct shm_pair *shm_pair_connect(void)
{
    struct shm_pair *pair = shm_pair_open();
    shm_pair_meet(pair);
    return pair;
}

/* Polls both ends until neither finds work. */
static inline void shm_pair_poll(struct shm_pair *pair)
{
    size_t done = 1;
    while (done > 0) {
        done = 0;
        for (int i = 0; i < 2; i++) {
            done += rdmux_shm_provider.poll(&pair->ends[i].cq->base, 64);
        }
    }
}

static inline void shm_pair_close(struct shm_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        rdmux_shm_ep_close(&pair->ends[i].ep->base);
        free(pair->ends[i].ep);
        rdmux_shm_cq_close(&pair->ends[i].cq->base);
        free(pair->ends[i].cq);
    }
    rdmux_shm_provider.domain_close(&pair->domain->base);
    free(pair->domain);
    free(pair);
}

#endif
