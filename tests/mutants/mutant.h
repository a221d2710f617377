/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * mutant.h - shared by the parts of the plug-in: the broken promise, and the state that the wrapper
 * keeps beside each object of the correct provider.
 */
#ifndef MUTANT_H
#define MUTANT_H

#include "../plugins/toy/toy.h"
#include "hooks.h"

#include <stdbool.h>

/* In the environment RDMUX_MUTANT: a name of mutants.def, "none", or "none_queued", which breaks
 * nothing either but sends each request through the queue that some mutants need. */
enum mutant {
    NONE,
    NONE_QUEUED,
#define MUTANT(name, rule, text) MUTANT_##name,
#include "mutants.def"
#undef MUTANT
};
extern enum mutant active;

static inline bool is(enum mutant mutant)
{
    return active == mutant;
}

/* A request in the queue. */
struct entry {
    struct rdmux_request *record; /* the core's */
    struct rdmux_request copy;    /* the correct provider's */
    struct rdmux_provider_sge sges[RDMUX_SGE_MAX];
    void *bytes;    /* copied data, or NULL */
    bool is_done;   /* its end was reported, or is not to be */
    bool is_inside; /* the correct provider has it */
};

/* A message that arrived and is not reported yet. */
struct arrival {
    struct rdmux_request *request;
    uint32_t status, opcode, wc_flags, imm;
    uint64_t length;
};

enum { KEPT_MAX = 4096 };

struct mutant_ep {
    struct rdmux_provider_ep *ep;
    struct mutant_ep *next;     /* on its cq */
    uint64_t count;             /* of the mutant's choice */
    struct rdmux_request *last; /* completed once, to be completed again */
    uint64_t accesses;          /* of the peer */
    /* The queue: entries [head, tail), modulo room. */
    struct entry *entries;
    uint64_t head, tail, room;
    bool refused; /* the core waits for a resume */
    bool holds;   /* its doorbell waits: MORE */
    /* Requests whose end is not reported yet. */
    struct rdmux_request *kept[KEPT_MAX];
    uint64_t kept_count;
    struct rdmux_request *receive; /* taken and not used yet */
    struct arrival arrival;
    bool starves;
    uint8_t *remembered; /* bytes that were at remembered_at */
    void *remembered_at;
    uint64_t remembered_length;
    void *touched; /* a buffer of the application's */
    bool accepts;
};

/* Bytes that a write has brought and that are not in the region yet. */
struct late {
    void *to;
    uint64_t length;
    uint8_t bytes[64 * 1024];
};

struct mutant_cq {
    struct mutant_ep *eps;
    struct mutant_ep *starving; /* the one for which the others wait */
    void *touched;              /* of an endpoint that was closed */
    uint64_t count;
    int outer; /* epoll set around the correct provider's */
    bool is_deaf;
    /* Between enter and leave: where a write goes. */
    void *entered;
    uint64_t entered_length;
    uint64_t entered_offset;
    uint8_t entered_key[RDMUX_TARGET_KEY_SIZE];
    bool is_unentered; /* the core refused the access */
    struct late late;
};

struct mutant_ep *mutant_ep_of(struct rdmux_provider_ep *ep);
struct mutant_cq *mutant_cq_of(struct rdmux_provider_cq *cq);
/* Fails every endpoint of the cq but this one. */
void mutant_fail_others(struct rdmux_provider_ep *ep);
/* Applies the late bytes. */
void mutant_late_bytes(struct mutant_cq *cq);
/* Reports the arrival that is held back. */
void mutant_report_arrival(struct mutant_ep *mutant);

enum rdmux_status mutant_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                              size_t count, uint32_t flags, size_t *posted);
void mutant_doorbell(struct rdmux_provider_ep *ep);
bool mutant_uses_queue(void);
void mutant_mask_signals(void);
/* Sets whether the cq's descriptor becomes readable. */
void mutant_watch(struct rdmux_provider_cq *cq, bool is_watched);
/* Makes the progress of an endpoint in a round of the cq. */
void mutant_progress(struct mutant_ep *mutant);
/* Completes the requests that were kept back for want of a receive. */
void mutant_fed(struct mutant_ep *mutant);

#endif
