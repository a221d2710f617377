/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Packets in flight. */
#ifndef SIM_CARRY_H
#define SIM_CARRY_H

#include "sim_packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_qp;
struct sim_world;

/* Sends a request of qp; bytes are copied unless it is served at once. */
void sim_carry_request(struct sim_qp *qp, struct sim_request *request,
                       const struct sim_bytes *bytes);
void sim_carry_answer(struct sim_world *world, struct sim_qp *from, const struct sim_answer *answer,
                      const struct sim_bytes *data);
/* Handles a packet from a socket. */
void sim_carry_arrived(struct sim_world *world, enum sim_packet_kind kind, const void *header,
                       uint8_t *bytes, size_t length);
bool sim_reaches(struct sim_qp *qp); /* updates qp->route.peer; false: packets vanish */
uint64_t sim_transit(struct sim_world *world, size_t bytes);
/* Returns the arrival time of bytes sent now, after earlier ones on the same way. */
uint64_t sim_arrival(struct sim_world *world, uint64_t *flow, size_t bytes);

#endif
