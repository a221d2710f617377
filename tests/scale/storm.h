/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A storm: processes that connect all to all at once. Each pair exchanges one checked message in
 * each direction, and ends in order once all pairs are connected. storm.c starts the processes and
 * reports; storm_process.c is one of them.
 */
#ifndef RDMUX_TESTS_SCALE_STORM_H
#define RDMUX_TESTS_SCALE_STORM_H

#include "reasons.h"
#include "usage.h"

#include <rdmux/rdmux.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    STORM_PROCESSES_MAX = 1024,
    STORM_EXIT = 7, /* exit status of a process that calls exit() in the midst */
};

/* Planted mistakes, to show that the storm finds them. */
enum storm_flaw {
    STORM_FLAWLESS,
    STORM_FLAW_MESSAGE,    /* a byte of one message */
    STORM_FLAW_DESCRIPTOR, /* one descriptor stays open */
    STORM_FLAW_MAPPING,    /* one shared page stays mapped */
    STORM_FLAW_END,        /* one endpoint is closed before the end */
};

struct storm_options {
    uint32_t processes;
    const char *paths;
    const char *plugin; /* NULL: none */
    uint32_t window;    /* set-ups that a process has under way as a connector */
    uint32_t retries;   /* of one pair */
    uint32_t setup_ms;  /* limit of a set-up, and of the attempt at its path */
    uint32_t liveness_ms;
    uint32_t depth;     /* of each queue */
    bool shares;        /* the endpoints of a process share an SRQ */
    bool counts_blocks; /* of the library: its memory is all touched then */
    bool exits;         /* processes of even rank call exit() in the midst */
    bool only_checks;   /* starts no process */
    enum storm_flaw flaw;
    struct rdmux_listen_attr listen;
};

/* One process, as it reports itself. */
struct storm_process {
    char address[RDMUX_ADDRESS_MAX];
    uint32_t connected; /* as connector */
    uint32_t accepted;
    uint32_t stale;    /* accepted endpoints whose connector had given up that attempt */
    uint32_t messages; /* received and right */
    uint32_t wrong;    /* received with other bytes, or twice */
    uint32_t lost;     /* endpoints that ended before their time */
    uint32_t ends;     /* endpoints that ended in order */
    uint32_t most_under_way;
    uint64_t wakes;   /* of the process from poll(2), during the storm */
    uint64_t done_ns; /* from the start until all its pairs had their messages */
    struct usage before, at_peak, after;
};

struct storm {
    struct storm_options options;
    int start;  /* readable when the storm begins */
    int finish; /* readable when all pairs are done, and the endpoints shall end */
    int news;   /* an eventfd: one of the counts below has changed */
    _Atomic uint64_t start_ns;
    _Atomic uint32_t ready;    /* processes that listen */
    _Atomic uint32_t done;     /* processes all of whose pairs have exchanged their messages */
    _Atomic uint32_t given_up; /* pairs without a connection after all retries */
    struct reasons reasons;
    struct storm_process each[];
};

/* The life of a process. Returns its exit status: 0 if all was right. */
int storm_process_run(struct storm *storm, uint32_t rank);

#endif
