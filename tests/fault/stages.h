/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What lives are made of; each goes on where the one before it stopped. */
#ifndef RDMUX_TESTS_FAULT_STAGES_H
#define RDMUX_TESTS_FAULT_STAGES_H

#include "life.h"

stage meet;           /* listen, explain, connect, accept */
stage meet_strangers; /* listen; strangers come; one that connects is shown and rejected, one taken */
stage meet_by_socket; /* both adopt an end of a socket */
stage meet_plainly;   /* over rdma:// */
stage share_memory;   /* b's region is imported by a */
stage share_plainly;  /* the same by raw keys */
stage send_messages;  /* three sizes */
stage use_memory;     /* write, read, fetch_add, write_imm */
stage use_plainly;    /* write and read */
stage take_back;      /* imports, revocation, a false token, deregistration */
stage part;           /* in order */
stage part_suddenly;  /* b closes in the middle of messages both ways */
stage flap_port;      /* the adapter's port goes down for a moment, which does no harm */

/* With failover, in the middle of messages both ways and of memory's use. moves.c */
stage lose_path;          /* the provider says that it has failed */
stage lose_sockets;       /* the sockets of tcp are shut down, of another path as above */
stage lose_queues;        /* the adapter's queues die */
stage lose_control;       /* the control channel alone is cut */
stage lose_both;          /* it and the path */
stage lose_path_and_part; /* b closes while the path is being left */

#endif
