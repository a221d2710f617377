/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Receiving. One recv() fills a whole buffer, which is parsed in place. A large payload is received
 * directly into its destination, and only the next header is read ahead.
 */
#ifndef RDMUX_TCP_RECEIVE_H
#define RDMUX_TCP_RECEIVE_H

#include "tcp_fallback/tcp_frame.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TCP_DIRECT_MIN = 4096,   /* least rest of a payload to read directly into its destination */
    TCP_BULK_MIN = 32 << 10, /* after a payload of at least this size, read only a header ahead */
    TCP_AHEAD = 128,         /* bytes read ahead after such a payload */
};

struct tcp_ep;

enum tcp_destination {
    TCP_TO_NOTHING = 0, /* no request is coming in */
    TCP_TO_RECEIVE,
    TCP_TO_REGION,
    /* not into memory of the application */
    TCP_TO_WASTE,
    TCP_TO_EARLY,
};

/* The peer's request whose payload is coming in. */
struct tcp_incoming {
    uint8_t destination; /* enum tcp_destination */
    uint8_t kind;
    uint8_t flags;
    uint32_t imm;
    struct rdmux_request *receive; /* the receive that it uses; NULL for a plain write */
    uint64_t length;
    uint64_t at; /* payload bytes in earlier frames */
    uint64_t offset;
    uint8_t key[TCP_KEY_SIZE];
};

/* A message that came without a credit, until there is a receive for it. */
struct tcp_early {
    uint8_t *bytes; /* pooled buffer; NULL: there is none */
    bool is_whole;
    uint8_t flags; /* TCP_PLACED, TCP_IMM */
    uint32_t imm;
    uint64_t length;
    uint64_t index; /* the request's number */
};

struct tcp_in {
    uint8_t payload; /* enum tcp_payload of the incoming frame; NONE: a header is next */
    bool is_bulk;    /* the last payload was large: read only the next header ahead */
    bool is_refused; /* a request of the peer was refused: later requests are read and dropped */
    bool is_paused;  /* socket 0 is not read until all shares have come */
    uint8_t held;    /* bytes of a partial header in head */
    uint8_t head[TCP_HEADER_MAX];
    uint8_t *stash; /* pooled buffer with bytes not parsed yet */
    uint32_t stash_at;
    uint32_t stash_end;
    uint32_t stash_need; /* not 0: stash is a partial control frame of this size */
    uint64_t frame_length;
    uint64_t requests; /* the peer's requests seen */
    struct tcp_incoming request;
    struct tcp_early early;
    /* The peer has closed its socket, and the endpoint ends when `early` is delivered. */
    bool is_end_waiting;
};

/* Reads the bytes that have come, about budget frames at most. Returns the amount of work done. */
size_t rdmux_tcp_read(struct tcp_ep *ep, size_t budget);
/* Continues with stashed bytes if the missing shares have come. Returns the amount of work done. */
size_t rdmux_tcp_resume(struct tcp_ep *ep);
/* Returns whether shares of a striped payload are still to come. */
bool rdmux_tcp_shares_missing(struct tcp_ep *ep);
void rdmux_tcp_in_finish(struct tcp_ep *ep);

#endif
