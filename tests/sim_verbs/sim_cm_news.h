/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* News for the connection manager, from the device and from other processes. */
#ifndef SIM_CM_NEWS_H
#define SIM_CM_NEWS_H

#include <stddef.h>
#include <stdint.h>

struct sim_cm_message;
struct sim_device;
struct sim_qp;
struct sim_world;

/* The connection of qp broke or the peer ended it (iWARP); reports it to its id. */
void sim_cm_broken(struct sim_qp *qp);
void sim_cm_qp_destroyed(struct sim_qp *qp);
/* Waits until no rdma_connect() that names the queue pair is running. */
void sim_cm_wait_for_calls(struct sim_qp *qp);
void sim_cm_device_removed(struct sim_device *device);
void sim_cm_slot_gone(struct sim_world *world, uint16_t slot);
void sim_cm_arrived(struct sim_world *world, const struct sim_cm_message *message);
size_t sim_cm_message_size(void);

#endif
