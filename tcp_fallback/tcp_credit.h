/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Credits of messages, and shared receive queues. */
#ifndef RDMUX_TCP_CREDIT_H
#define RDMUX_TCP_CREDIT_H

#include "providers/credit_scheduler.h"
#include "tcp_fallback/tcp_frame.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tcp_ep;

struct tcp_srq {
    struct rdmux_provider_srq base;
    struct rdmux_credit_scheduler scheduler;
};

/* Counts receives that were posted to the endpoint itself, or serves its SRQ. */
enum rdmux_status rdmux_tcp_post_recv(struct rdmux_provider_ep *base,
                                      struct rdmux_request *requests, size_t count);
/* Counts a message of the peer, which uses a credit. False: the peer had none. */
bool rdmux_tcp_credit_use(struct tcp_ep *ep);
/* Delivers an early message that has come whole, if there is a receive. May fail the endpoint. */
void rdmux_tcp_deliver_early(struct tcp_ep *ep);
/* Fails the endpoint for a message that is longer than its receive. index: the request's number. */
void rdmux_tcp_message_too_long(struct tcp_ep *ep, struct rdmux_request *receive, uint64_t index,
                                const struct tcp_frame *frame);
void rdmux_tcp_credit_asked(struct tcp_ep *ep);
bool rdmux_tcp_credit_returned(struct tcp_ep *ep, uint64_t count);
void rdmux_tcp_credit_join(struct tcp_ep *ep, struct tcp_srq *srq);
void rdmux_tcp_credit_leave(struct tcp_ep *ep);

enum rdmux_status rdmux_tcp_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                     uint32_t max_sge);
void rdmux_tcp_srq_close(struct rdmux_provider_srq *srq);
enum rdmux_status rdmux_tcp_srq_post_recv(struct rdmux_provider_srq *base,
                                          struct rdmux_request *requests, size_t count);

#endif
