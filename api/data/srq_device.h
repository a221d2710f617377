/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Receives of an SRQ on loan to a device, which matches its messages with them by itself. A device
 * cannot be asked to give a receive back: a loan ends when a message fills the receive, or when the
 * device's SRQ is closed. So a device holds no more than its share, and is topped up as receives
 * complete. All functions are the cq owner's.
 */
#ifndef RDMUX_API_DATA_SRQ_DEVICE_H
#define RDMUX_API_DATA_SRQ_DEVICE_H

#include "api/core/srq.h"

/* Returns whether the provider matches messages with receives itself. */
bool rdmux_srq_is_device(const struct rdmux_provider_ops *ops);
/* Returns the share of the next device that is opened. */
uint32_t rdmux_srq_next_share(const struct rdmux_srq *srq);
/* Makes the domain's device borrow from the SRQ: at most `share` receives at a time. max_sge:
 * pieces of a list that the device takes. RDMUX_INVALID: a posted receive without a region, or
 * with a list of more pieces, is too long to be copied. */
enum rdmux_status rdmux_srq_device_open(struct rdmux_srq *srq, uint32_t index,
                                        struct rdmux_provider_srq *provider, uint32_t share,
                                        uint32_t max_sge);
/* Ends the loan after the device's SRQ was closed: its receives are posted again. */
void rdmux_srq_device_close(struct rdmux_srq *srq, uint32_t index);
/* Returns whether all devices of the SRQ take this record, else RDMUX_INVALID. [data path] */
enum rdmux_status rdmux_srq_devices_check(const struct rdmux_srq *srq,
                                          const struct rdmux_request *request);
/* Lends a posted receive to the domain's device, if that holds less than its share. Returns whether
 * it took one. [data path] */
bool rdmux_srq_device_lend(struct rdmux_srq *srq, uint32_t index);

/* Returns whether a device holds no receive at all. */
bool rdmux_srq_has_starving_device(const struct rdmux_srq *srq);
/* Takes back a record that a device filled or gave up. [data path] */
void rdmux_srq_filled(struct rdmux_srq *srq, struct rdmux_request *request);
/* Copies the record's bytes to the application's buffers. [data path] */
void rdmux_srq_returned(struct rdmux_srq *srq, struct rdmux_request *request);

#endif
