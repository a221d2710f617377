/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * One end of a connection with a mixed load, and a model of the load's effects that is independent
 * of the library. Both ends run the same code, in one process or in two: each message has its
 * number and bytes that follow from it, and at the end each side sends a table of its writes.
 *
 * Messages  Numbered per direction. A message that is lost, doubled or out of order is counted.
 *           With NO_REPLAY a message may be lost if its sender got OUTCOME_UNKNOWN.
 * Mails     Writes into a slot of the peer's region, perhaps an old text first, then a message (or
 *           the last write as write_imm) that names the slot. The peer compares the slot, writes a
 *           mark over it, and frees it later. A write that arrives late or twice in between
 *           destroys the mark.
 * Notes     Slots that are written and read again and again. At the end they have the last text.
 * Singles   Likewise, with NO_REPLAY. At the end they have the last text that completed, or a later
 *           one.
 * Words     Targets of fetch_add by 1 and of compare_swap. The sum is that of the completed requests
 *           and of some in doubt.
 */
#ifndef FAILOVER_LOAD_H
#define FAILOVER_LOAD_H

#include "../sim_verbs/model/chance.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOAD_SLOT_SIZE = 8192,
    LOAD_MAILS = 24,
    LOAD_NOTES = 12,
    LOAD_SINGLES = 4,
    LOAD_ADDED = 6, /* words of fetch_add */
    LOAD_SWAPPED = 2,
    LOAD_RING = 256,     /* requests that have not completed, at most */
    LOAD_DEPTH = 48,     /* of the endpoint's queues */
    LOAD_DOUBTFUL = 700, /* messages of a side that are in doubt */
    LOAD_TEXT = 512,
};

struct load_attr {
    uint32_t side;     /* 0 or 1, of messages and texts */
    uint64_t seed;     /* the same on both sides */
    uint64_t messages; /* sent before KIND_DONE; UINT64_MAX: until load_finish() */
    bool has_failover;
};

/* Errors of both directions that this side has found. All must be 0 at the end. */
struct load_errors {
    uint64_t lost;
    uint64_t doubled;
    uint64_t disordered;
    uint64_t mismatched; /* wrong bytes of a message, of memory or of a read, wrong sums */
    uint64_t broken;     /* completions that are missing, out of order, or of a wrong status */
};

struct load_counts {
    uint64_t messages; /* received */
    uint64_t requests;
    uint64_t writes;
    uint64_t reads;
    uint64_t atomics;
    uint64_t unsignaled;
    uint64_t listed;
    uint64_t inlined;
    uint64_t single;   /* NO_REPLAY */
    uint64_t doubtful; /* OUTCOME_UNKNOWN */
    uint64_t moves;
};

struct load;

/* Registers the region with fabric. Returns NULL if memory is short or a call failed; load_why()
 * has the cause. */
struct load *load_create(struct rdmux_fabric *fabric, const struct load_attr *attr);
void load_free(struct load *load);
const char *load_why(void);

/* Sets the attributes that the load relies on. */
void load_set_attr(const struct load *load, struct rdmux_ep_attr *attr);
struct rdmux_mr *load_region(const struct load *load);

/* Begins on a connected endpoint whose peer's region is imported: posts receives. */
void load_begin(struct load *load, struct rdmux_ep *ep, struct rdmux_remote *remote);
/* Posts some requests, if the queue has room and the load is not finished. */
void load_post(struct load *load);
/* Takes an entry of the endpoint, events included. */
void load_take(struct load *load, const struct rdmux_wc *wc);
/* Ends the load: no new message; once all requests have completed, this side sends KIND_DONE. */
void load_finish(struct load *load);

/* Returns whether both sides have sent KIND_DONE, and the tables match the model. */
bool load_is_done(const struct load *load);
bool load_has_ended(const struct load *load);
/* Returns the status of DISCONNECTED. */
uint32_t load_end_status(const struct load *load);
/* Checks that each request of an endpoint that ended early has its entry (rules 7.1 to 7.4). */
void load_check_end(struct load *load);

/* Describes the progress, for a run that makes none. */
const char *load_state(const struct load *load, char *out, size_t size);
/* Checks the marks of the mails that this side keeps. */
void load_check_marks(struct load *load);

const struct load_errors *load_errors(const struct load *load);
bool load_is_clean(const struct load *load);
const struct load_counts *load_counts(const struct load *load);
/* Returns the text of the first error, "" without one. */
const char *load_text(const struct load *load);

#endif
