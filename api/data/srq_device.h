/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An SRQ whose receives a device matches with messages. The device has all of them, so the SRQ serves endpoints of this one device:
 * what another path took would be promised twice. All by the cq's owner.
 */
#ifndef RDMUX_API_SRQ_DEVICE_H
#define RDMUX_API_SRQ_DEVICE_H

#include "api/core/srq.h"

/* Does the provider match by itself? */
bool rdmux_srq_is_device(const struct rdmux_provider_ops *ops);
/* Gives the device all posted receives; it takes lists of max_sge pieces. RDMUX_INVALID: a receive without a region, or with a list
 * of more, is too long to be copied. */
enum rdmux_status rdmux_srq_device_open(struct rdmux_srq *srq, struct rdmux_provider_srq *provider,
                                        uint32_t max_sge);
/* The device's SRQ is closed: what it had is posted again. */
void rdmux_srq_device_close(struct rdmux_srq *srq);
/* Gives it a record that is on no list. [data path] */
enum rdmux_status rdmux_srq_device_post(struct rdmux_srq *srq, struct rdmux_request *request);

/* A record that a device filled or gave up is the core's again. [data path] */
void rdmux_srq_filled(struct rdmux_srq *srq, struct rdmux_request *request);
/* Its bytes go where the application wants them. [data path] */
void rdmux_srq_returned(struct rdmux_srq *srq, struct rdmux_request *request);

#endif
