/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * One end of a connection with a mixed load on it, and a model of what has to come of it that asks the
 * library for nothing. Both ends run the same; where they are does not matter: each message tells its
 * number and has bytes that follow from it, and at the end each side tells what it has written.
 *
 * Messages  Numbered per direction. One that is missing, comes again, or before an earlier one, is counted;
 *           with NO_REPLAY one may be missing whose sender was told OUTCOME_UNKNOWN.
 * Mails     Writes into a slot of the peer's region, perhaps an old text first, then a message (or the last
 *           write as write_imm) that names it. The peer compares the slot, writes a mark over it, and
 *           gives it back later: what lands in between, late or once more, destroys the mark.
 * Notes     Slots that are written over and over, and read back; in the end they have the last text.
 * Singles   The same with NO_REPLAY: any text from the last that was done on.
 * Words     Added to, each time 1, and compared and swapped; the sum is that of the requests that were done,
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
    LOAD_ADDED = 6, /* words that are added to */
    LOAD_SWAPPED = 2,
    LOAD_RING = 256,     /* requests that the model does not know to be done */
    LOAD_DEPTH = 48,     /* of the endpoint's queues */
    LOAD_DOUBTFUL = 700, /* messages of a side that are in doubt */
    LOAD_TEXT = 512,
};

struct load_attr {
    uint32_t side;     /* 0 or 1: whose messages, whose texts */
    uint64_t seed;     /* the same on both sides */
    uint64_t messages; /* to be sent before this side says that it is done; UINT64_MAX: load_finish() */
    bool has_failover;
};

/* What the peer's end has brought, and this one's own: all of it has to be 0 in the end. */
struct load_errors {
    uint64_t lost;
    uint64_t doubled;
    uint64_t disordered;
    uint64_t mismatched; /* bytes of a message, of memory, of a read, a sum */
    uint64_t broken;     /* completions: which, in which order, with which status */
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

/* NULL: no memory, or a call has failed; load_why() says which. The region is registered with fabric. */
struct load *load_create(struct rdmux_fabric *fabric, const struct load_attr *attr);
void load_free(struct load *load);
const char *load_why(void);

/* Of the connection's attributes: those that the load relies on. */
void load_set_attr(const struct load *load, struct rdmux_ep_attr *attr);
struct rdmux_mr *load_region(const struct load *load);

/* The endpoint is connected and the peer's region imported: offers receives. */
void load_begin(struct load *load, struct rdmux_ep *ep, struct rdmux_remote *remote);
/* Posts a little, if there is room and something left to do. */
void load_post(struct load *load);
/* An entry of the endpoint has come, events included. */
void load_take(struct load *load, const struct rdmux_wc *wc);
/* No more new messages: what is under way ends, then this side says that it is done. */
void load_finish(struct load *load);

/* Both sides report that they are done, and the reports match the model. */
bool load_is_done(const struct load *load);
bool load_has_ended(const struct load *load);
/* What DISCONNECTED said. */
uint32_t load_end_status(const struct load *load);
/* The endpoint has ended before its work was done: everything has its entry (rules 7.1 to 7.4). */
void load_check_end(struct load *load);

/* How far it has come, for a run that comes no further. */
const char *load_state(const struct load *load, char *out, size_t size);
/* What this side still keeps is as it has left it. */
void load_check_marks(struct load *load);

const struct load_errors *load_errors(const struct load *load);
bool load_is_clean(const struct load *load);
const struct load_counts *load_counts(const struct load *load);
/* The first thing that was wrong; "" for nothing. */
const char *load_text(const struct load *load);

#endif
