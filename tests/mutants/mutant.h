/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * mutant.h - what the parts of the plug-in share: which promise is broken, and what the wrapper
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
    bool is_told;   /* done was called, or is not to be called */
    bool is_inside; /* the correct provider has it */
};

/* A message that arrived and is not told yet. */
struct arrival {
    struct rdmux_request *request;
    uint32_t status, opcode, wc_flags, imm;
    uint64_t length;
};

enum { KEPT_MAX = 4096 };

struct mutant_ep {
    struct rdmux_provider_ep *ep;
    struct mutant_ep *next;     /* on its cq */
    uint64_t count;             /* of whatever the mutant counts */
    struct rdmux_request *last; /* done once, to be done again */
    uint64_t accesses;          /* of the peer */
    /* The queue: entries [head, tail), modulo room. */
    struct entry *entries;
    uint64_t head, tail, room;
    bool refused; /* the core waits for a resume */
    bool holds;   /* nothing is rung for: MORE */
    /* Requests whose end is not told yet. */
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
    bool is_unentered; /* the core said no */
    struct late late;
};

struct mutant_ep *mutant_ep_of(struct rdmux_provider_ep *ep);
struct mutant_cq *mutant_cq_of(struct rdmux_provider_cq *cq);
/* Fails every endpoint of the cq but this one. */
void mutant_fail_others(struct rdmux_provider_ep *ep);
/* Applies what late holds. */
void mutant_late_bytes(struct mutant_cq *cq);
/* Tells of the arrival that is held back. */
void mutant_tell_arrival(struct mutant_ep *mutant);

enum rdmux_status mutant_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                              size_t count, uint32_t flags, size_t *posted);
void mutant_doorbell(struct rdmux_provider_ep *ep);
bool mutant_uses_queue(void);
void mutant_mask_signals(void);
/* Does the cq's descriptor tell of anything? */
void mutant_hear(struct rdmux_provider_cq *cq, bool hears);
/* What a round of the cq owes an endpoint. */
void mutant_progress(struct mutant_ep *mutant);
/* Ends what is kept back for want of a receive. */
void mutant_fed(struct mutant_ep *mutant);

#endif
