/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * One end of a connection under load. Both ends do the same: messages with numbers and sums, writes whose bytes
 * are read back or summed up by the peer, atomics, regions whose rights are taken back and given anew. Whatever
 * comes or completes is checked; what must not be ends the process with a text.
 */
#ifndef RDMUX_TESTS_SOAK_LINK_H
#define RDMUX_TESTS_SOAK_LINK_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a process has done. */
struct figures {
    uint64_t operations; /* requests that completed well */
    uint64_t connects;
    uint64_t ends; /* connections that ended otherwise than in order: closed, cut, killed */
    uint64_t revocations;
    uint64_t imports;
    uint64_t bytes; /* payload that was checked */
};
extern struct figures figures;

/* A mistake of the test's own, that it has to find. */
enum flaw {
    FLAW_NONE,
    FLAW_MEMORY,     /* each connection leaves a few bytes */
    FLAW_TABLE,      /* each makes a table longer */
    FLAW_MAPPING,    /* each leaves memory that is not malloc's */
    FLAW_DESCRIPTOR, /* every tenth connection a descriptor */
    FLAW_THREAD,     /* every fiftieth a thread */
    FLAW_BYTE,       /* a byte of a message changes on its way */
    FLAW_ENTRY,      /* an entry is seen twice */
    FLAWS,
};
extern enum flaw flaw;

struct link;

/* Ends the process: this must not be. */
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ms(void);
uint64_t draw(uint64_t below);
void draw_from(uint64_t seed);

/* Connects to address; uid tells the link from others, in both processes. NULL: not now. */
struct link *link_dial(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *address,
                       uint64_t uid);
/* For an endpoint that rdmux_accept() gave. */
struct link *link_take(struct rdmux_fabric *fabric, struct rdmux_ep *ep);
/* Posts something, if it may. */
void link_step(struct link *link);
void link_entry(struct link *link, const struct rdmux_wc *wc);
/* Takes the rights to the link's region back, and gives new ones. */
void link_revoke(struct link *link);
/* Ends in order: DISCONNECTED follows. */
void link_shutdown(struct link *link);
/* Ends at once, and frees it. */
void link_close(struct link *link);
uint64_t link_uid(const struct link *link);
/* Of one that was taken: when the other end began to connect, by now_ms(). */
uint64_t link_dialled_ms(const struct link *link);
bool link_is_up(const struct link *link);
/* It was shut down, and its end is on its way. */
bool link_is_leaving(const struct link *link);
/* DISCONNECTED has come, or set-up has failed: link_close() is left to do. */
bool link_has_ended(const struct link *link);
/* Why it has ended. */
enum rdmux_status link_cause(const struct link *link);
/* An end that is nobody's fault: whoever brings one about, says so. */
void link_excuse(struct link *link);
bool link_is_excused(const struct link *link);
const char *link_text(struct link *link);

#endif
