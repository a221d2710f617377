/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Common part of the provider tables of ib and roce. */
#ifndef RDMUX_VERBS_TABLE_H
#define RDMUX_VERBS_TABLE_H

#include "verbs/verbs_completion.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_fast_path.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_srq.h"

/* clang-format off */
#define VERBS_TABLE_COMMON                                                                         \
    .abi = RDMUX_PROVIDER_ABI,                                                                     \
    .size = sizeof(struct rdmux_provider_ops),                                                     \
    .flags = RDMUX_PROVIDER_NATIVE_FENCE | RDMUX_PROVIDER_LOCAL_KEYS | RDMUX_PROVIDER_DEVICE_SRQ,  \
    .domain_size = sizeof(struct verbs_domain),                                                    \
    .cq_size = sizeof(struct verbs_cq),                                                            \
    .ep_size = sizeof(struct verbs_ep),                                                            \
    .srq_size = sizeof(struct verbs_srq),                                                          \
    .mr_size = sizeof(struct verbs_mr),                                                            \
    .remote_size = sizeof(struct verbs_remote),                                                    \
    .domain_close = rdmux_verbs_domain_close,                                                      \
    .async_event = rdmux_verbs_async_event,                                                        \
    .domain_fd = rdmux_verbs_domain_fd,                                                            \
    .mr_register = rdmux_verbs_mr_register,                                                        \
    .mr_deregister = rdmux_verbs_mr_deregister,                                                    \
    .mr_describe = rdmux_verbs_mr_describe,                                                        \
    .mr_invalidate = rdmux_verbs_mr_invalidate,                                                    \
    .cq_open = rdmux_verbs_cq_open,                                                                \
    .cq_close = rdmux_verbs_cq_close,                                                              \
    .poll = rdmux_verbs_poll,                                                                      \
    .arm = rdmux_verbs_arm,                                                                        \
    .fd = rdmux_verbs_fd,                                                                          \
    .ep_open = rdmux_verbs_ep_open,                                                                \
    .ep_describe = rdmux_verbs_ep_describe,                                                        \
    .ep_connect = rdmux_verbs_ep_connect,                                                          \
    .ep_join = rdmux_unsupported_ep_join,                                                          \
    .ep_control = rdmux_unsupported_ep_control,                                                    \
    .ep_ping = rdmux_verbs_ep_ping,                                                                \
    .ep_quiesce = rdmux_verbs_ep_quiesce,                                                          \
    .ep_close = rdmux_verbs_ep_close,                                                              \
    .post = rdmux_verbs_post,                                                                      \
    .doorbell = rdmux_verbs_doorbell,                                                              \
    .post_recv = rdmux_verbs_post_recv,                                                            \
    .srq_open = rdmux_verbs_srq_open,                                                              \
    .srq_close = rdmux_verbs_srq_close,                                                            \
    .srq_post_recv = rdmux_verbs_srq_post_recv,                                                    \
    .remote_open = rdmux_verbs_remote_open,                                                        \
    .remote_close = rdmux_verbs_remote_close,                                                      \
    .fast_path_open = rdmux_verbs_fast_path_open,                                                            \
    .fast_path_close = rdmux_verbs_fast_path_close,                                                          \
    .fast_path_target = rdmux_verbs_fast_path_target
/* clang-format on */

#endif
