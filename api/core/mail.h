/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Mail: requests of other threads to the owner of a cq. */
#ifndef RDMUX_API_CORE_MAIL_H
#define RDMUX_API_CORE_MAIL_H

#include <stdint.h>

struct rdmux_cq;

/* A request to the owner of a cq. */
struct rdmux_mail {
    struct rdmux_mail *next;
    void (*deliver)(struct rdmux_cq *cq, struct rdmux_mail *mail); /* frees the mail */
    /* Endpoint that the mail follows to another cq, see rdmux_cq_forward_mail(); 0: none. Such mail
     * is sent under fabric->lock. */
    uint64_t ep_id;
};

#endif
