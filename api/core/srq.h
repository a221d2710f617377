/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The shared receive queue object. */
#ifndef RDMUX_API_CORE_SRQ_H
#define RDMUX_API_CORE_SRQ_H

#include "api/core/ep.h"

struct rdmux_srq {
    struct rdmux_cq *cq;
    struct rdmux_ring ring;
    struct rdmux_request *free;   /* records not posted */
    struct rdmux_request *posted; /* oldest first */
    struct rdmux_request *posted_last;
    uint32_t posted_count;
    uint32_t lent_count; /* receives that devices hold; the sum of their counts */
    /* Posted receives set aside for endpoints; the sum of their counts. */
    uint32_t set_aside;
    uint32_t device_share; /* most receives that a device holds; 0: see rdmux_srq_device_open() */
    uint32_t limit;        /* rdmux_srq_attr.limit; 0: none */
    bool is_limit_armed;   /* SRQ_LIMIT is due when fewer receives than the limit are left */
    struct rdmux_list low; /* cq->low_srqs */
    struct rdmux_list waiting; /* endpoints that found no receive, oldest first, by shared.link */
    struct rdmux_mr **regions; /* regions of the pieces of each record, max_sge for each */
    uint16_t *counts;          /* number of pieces of each record */
    uint8_t *holders;          /* domain of the device that holds, or held, each record */
    /* Endpoints that may have reserved receives and were not asked for them, by the domain of the
     * path. A list may have endpoints without any. */
    struct rdmux_list holding[RDMUX_CQ_DOMAINS_MAX];
    uint32_t used; /* records posted, taken or not yet returned */
    size_t ep_count;
    uint64_t reserved;
    struct rdmux_provider_srq *provider[RDMUX_CQ_DOMAINS_MAX]; /* parallel to cq->domains */
    /* Endpoints and path attempts that use each. */
    uint32_t users[RDMUX_CQ_DOMAINS_MAX];
    /* srq_device.h; NULL: the core matches that path's messages with receives */
    struct rdmux_srq_device *devices[RDMUX_CQ_DOMAINS_MAX];
    uint32_t device_count;
    uint32_t turn;       /* who gets the next unclaimed receive, see rdmux_srq_share_out() */
    bool is_sharing_due; /* a device holds less than its share */
    bool has_recalled;   /* endpoints were asked for reserved receives, for a device */
};

#endif
