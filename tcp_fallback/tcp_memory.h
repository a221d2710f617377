/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions, and remotes: the regions of peers. */
#ifndef RDMUX_TCP_MEMORY_H
#define RDMUX_TCP_MEMORY_H

#include "tcp_fallback/tcp_frame.h"

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>

struct tcp_remote {
    struct rdmux_provider_remote base;
    uint8_t key[TCP_KEY_SIZE];
};

enum rdmux_status rdmux_tcp_mr_register(struct rdmux_provider_mr *mr,
                                        const struct rdmux_provider_mr_attr *attr);
void rdmux_tcp_mr_deregister(struct rdmux_provider_mr *mr);
enum rdmux_status rdmux_tcp_mr_describe(struct rdmux_provider_mr *mr, struct rdmux_provider_ep *ep,
                                        uint8_t *out, size_t *size);
enum rdmux_status rdmux_tcp_mr_invalidate(struct rdmux_provider_mr *mr);
enum rdmux_status rdmux_tcp_remote_open(struct rdmux_provider_remote *base,
                                        const uint8_t *description, size_t size);
void rdmux_tcp_remote_close(struct rdmux_provider_remote *remote);

#endif
