/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Real sockets to other processes, and the thread that serves them. */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "sim_packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_net;
struct sim_world;

/* Starts the thread; with a net, takes a slot in it. NULL with a text in sim_error(). */
struct sim_net *sim_net_start(struct sim_world *world, uint16_t *slot);
void sim_net_stop(struct sim_net *net);
void sim_net_forked(struct sim_net *net);            /* in the child: closes the parent's sockets */
void sim_net_wake(struct sim_net *net, uint64_t at); /* an earlier event was scheduled */
bool sim_net_send(struct sim_net *net, uint16_t slot, enum sim_packet_kind kind, const void *header,
                  size_t header_size, const struct sim_bytes *bytes);
bool sim_net_send_to_port(struct sim_net *net, uint16_t port, const void *header,
                          size_t header_size);          /* false: no listener */
int sim_net_listen(struct sim_net *net, uint16_t port); /* a descriptor, or -1: taken */
void sim_net_unlisten(struct sim_net *net, int descriptor);
bool sim_net_has(const struct sim_net *net); /* true: peers may be in other processes */

#endif
