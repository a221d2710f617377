/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An SRQ whose receives a device matches with messages. The device has all of them, so the SRQ
 * serves endpoints of this device only: another path would take receives that the device also has.
 * All functions are the cq owner's.
 */
#ifndef RDMUX_API_DATA_SRQ_DEVICE_H
#define RDMUX_API_DATA_SRQ_DEVICE_H

#include "api/core/srq.h"

/* Returns whether the provider matches messages with receives itself. */
bool rdmux_srq_is_device(const struct rdmux_provider_ops *ops);
/* Gives the device all posted receives. max_sge: pieces of a list that the device takes.
 * RDMUX_INVALID: a receive without a region, or with a list of more pieces, is too long to be
 * copied. */
enum rdmux_status rdmux_srq_device_open(struct rdmux_srq *srq, struct rdmux_provider_srq *provider,
                                        uint32_t max_sge);
/* Posts the device's receives to the core again, after the device's SRQ was closed. */
void rdmux_srq_device_close(struct rdmux_srq *srq);
/* Gives the device a record that is on no list. [data path] */
enum rdmux_status rdmux_srq_device_post(struct rdmux_srq *srq, struct rdmux_request *request);

/* Takes back a record that the device filled or gave up. [data path] */
void rdmux_srq_filled(struct rdmux_srq *srq, struct rdmux_request *request);
/* Copies the record's bytes to the application's buffers. [data path] */
void rdmux_srq_returned(struct rdmux_srq *srq, struct rdmux_request *request);

#endif
