/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions and imports. TCP needs no registration; the core's target side (target.c) keeps the
 * keys. */
#include "tcp_fallback/tcp_memory.h"

#include "tcp_fallback/tcp_frame.h"

#include <assert.h>
#include <string.h>

static_assert((int)TCP_KEY_SIZE == (int)RDMUX_TARGET_KEY_SIZE, "keys travel as they are");

enum rdmux_status rdmux_tcp_mr_register(struct rdmux_provider_mr *mr,
                                        const struct rdmux_provider_mr_attr *attr)
{
    (void)mr;
    (void)attr;
    return RDMUX_OK;
}

void rdmux_tcp_mr_deregister(struct rdmux_provider_mr *mr)
{
    (void)mr;
}

enum rdmux_status rdmux_tcp_mr_describe(struct rdmux_provider_mr *mr, struct rdmux_provider_ep *ep,
                                        uint8_t *out, size_t *size)
{
    (void)ep;
    if (*size < TCP_KEY_SIZE) {
        rdmux_provider_error("tcp: a region's description needs %d bytes", TCP_KEY_SIZE);
        return RDMUX_INVALID;
    }
    rdmux_target_key(mr, out);
    *size = TCP_KEY_SIZE;
    return RDMUX_OK;
}

enum rdmux_status rdmux_tcp_mr_invalidate(struct rdmux_provider_mr *mr)
{
    (void)mr; /* every access goes through rdmux_target_enter(), which checks the region */
    return RDMUX_OK;
}

enum rdmux_status rdmux_tcp_remote_open(struct rdmux_provider_remote *base,
                                        const uint8_t *description, size_t size)
{
    struct tcp_remote *remote = (struct tcp_remote *)base;
    if (size < TCP_KEY_SIZE) {
        rdmux_provider_error("tcp: the peer described a region in %zu bytes, %d are needed", size,
                             TCP_KEY_SIZE);
        return RDMUX_PROTOCOL;
    }
    memcpy(remote->key, description, TCP_KEY_SIZE);
    return RDMUX_OK;
}

void rdmux_tcp_remote_close(struct rdmux_provider_remote *remote)
{
    (void)remote;
}
