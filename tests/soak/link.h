/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * One end of a connection under load. Both ends do the same: messages with numbers and checksums,
 * writes whose bytes are read back or checked by the peer, atomics, regions that are revoked and
 * exported anew. Each entry is checked; an error ends the process with a text.
 */
#ifndef RDMUX_TESTS_SOAK_LINK_H
#define RDMUX_TESTS_SOAK_LINK_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Work of a process. */
struct figures {
    uint64_t operations; /* requests that completed with OK */
    uint64_t connects;
    uint64_t ends; /* connections that ended without a shutdown: closed, cut, killed */
    uint64_t revocations;
    uint64_t imports;
    uint64_t bytes; /* payload that was checked */
};
extern struct figures figures;

/* A planted mistake of the test, which it has to find. */
enum flaw {
    FLAW_NONE,
    FLAW_MEMORY,     /* each connection leaks a few bytes */
    FLAW_TABLE,      /* each connection makes a table longer */
    FLAW_MAPPING,    /* each leaks a mapping */
    FLAW_DESCRIPTOR, /* every tenth connection leaks a descriptor */
    FLAW_THREAD,     /* every fiftieth leaks a thread */
    FLAW_BYTE,       /* a byte of every hundredth message changes */
    FLAW_ENTRY,      /* an entry is taken twice */
    FLAWS,
};
extern enum flaw flaw;

struct link;

/* Ends the process with the text of an error. */
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ms(void);
uint64_t draw(uint64_t below);
void draw_from(uint64_t seed);

/* Connects to address. uid names the link in both processes. Returns NULL if it cannot connect
 * now. */
struct link *link_dial(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *address,
                       uint64_t uid);
/* Makes the link of an endpoint of rdmux_accept(). */
struct link *link_take(struct rdmux_fabric *fabric, struct rdmux_ep *ep);
/* Posts a request, if the link can. */
void link_step(struct link *link);
void link_entry(struct link *link, const struct rdmux_wc *wc);
/* Revokes the link's region, and exports it anew. */
void link_revoke(struct link *link);
/* Shuts the link down; DISCONNECTED follows. */
void link_shutdown(struct link *link);
/* Ends the link at once, and frees it. */
void link_close(struct link *link);
uint64_t link_uid(const struct link *link);
/* Returns when the other end of an accepted link began to connect, by now_ms(). */
uint64_t link_dialled_ms(const struct link *link);
bool link_is_up(const struct link *link);
/* Returns whether the link was shut down and has not ended yet. */
bool link_is_leaving(const struct link *link);
/* Returns whether DISCONNECTED has come or set-up has failed; link_close() is due then. */
bool link_has_ended(const struct link *link);
/* Describes the end. */
enum rdmux_status link_cause(const struct link *link);
/* Notes that the end of the link is intended. */
void link_excuse(struct link *link);
bool link_is_excused(const struct link *link);
const char *link_text(struct link *link);

#endif
