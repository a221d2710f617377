/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Devices and ports: probing, opening, and paths that cannot be used. */
#ifndef RDMUX_VERBS_DEVICE_H
#define RDMUX_VERBS_DEVICE_H

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_transport;
struct verbs_whereabouts;

/* Probes a transport: gives a path for each port of its fabric, or one path with the reason why
 * there is none. */
enum rdmux_status rdmux_verbs_probe(const struct verbs_transport *transport,
                                    struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                    size_t max, size_t *count);
/* Opens the named device. RDMUX_IO, RDMUX_NO_MEMORY …: the error text has the reason. */
enum rdmux_status rdmux_verbs_device_open(const char *device, struct ibv_context **out);
/* Returns the port of a path that probe gave. */
uint8_t rdmux_verbs_path_port(const struct rdmux_local_path *path);
/* Writes whereabouts into a path's reach bytes. */
void rdmux_verbs_path_set_reach(struct rdmux_local_path *path,
                                const struct verbs_whereabouts *where);
/* Marks a path as unusable. hint may be NULL. */
void rdmux_verbs_path_refuse(struct rdmux_local_path *path, enum rdmux_reason reason,
                             const char *hint, const char *format, ...) RDMUX_PRINTF(4, 5);
/* Returns the VERBS_FABRIC_* of a port from its device's transport and its link layer; 0: another
 * fabric. */
uint8_t rdmux_verbs_fabric_of(enum ibv_transport_type transport, uint8_t link_layer);
/* True for soft RoCE, an adapter in software. */
bool rdmux_verbs_is_rxe(const struct ibv_device_attr *attr);

#endif
