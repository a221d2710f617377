/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The stages of lives; each continues where the previous one stopped. */
#ifndef RDMUX_TESTS_FAULT_STAGES_H
#define RDMUX_TESTS_FAULT_STAGES_H

#include "life.h"

stage meet;           /* listen, explain, connect, accept */
stage meet_strangers; /* listen; strangers connect; one connection is rejected, and one accepted */
stage meet_by_socket; /* both adopt an end of a socket */
stage meet_plainly;   /* over rdma:// */
stage share_memory;   /* a imports a region of b */
stage share_plainly;  /* the same with raw keys */
stage send_messages;  /* of three sizes */
stage use_memory;     /* write, read, fetch_add, write_imm */
stage use_plainly;    /* write and read */
stage take_back;      /* imports, revocation, a forged token, deregistration */
stage part;           /* shutdown and close, in order */
stage part_suddenly;  /* b closes in the middle of messages both ways */
stage flap_port;      /* the adapter's port goes down for a moment, and all continues */

/* With failover, during messages both ways and memory operations. In moves.c. */
stage lose_path;          /* the provider reports a fault */
stage lose_sockets;       /* the sockets of tcp are shut down; another path fails as above */
stage lose_queues;        /* the adapter's queues break */
stage lose_control;       /* only the control channel is cut */
stage lose_both;          /* the control channel and the path */
stage lose_path_and_part; /* b closes during the move */

/* Streams. In streams.c. */
stage meet_as_streams;          /* listen, connect, accept, on the cqs of both sides */
stage meet_as_lone_streams;     /* the same, each stream with a cq of its own */
stage become_streams;           /* of the endpoints that meet() or meet_by_socket() made */
stage move_bytes;               /* both ways, copied and lent */
stage move_bytes_and_lose_path; /* with failover: the provider reports a fault meanwhile */
stage end_streams;              /* each direction, then the endpoints */

#endif
