/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The attribute and info structs of rdmux.h and stream.h, emptied for programs without its macros. */
#include <rdmux/stream.h>

#include <stdint.h>
#include <string.h>

static void init_struct(void *out, size_t size, size_t own)
{
    uint32_t agreed = (uint32_t)(size < own ? size : own);
    if (out == NULL || size < sizeof(agreed)) {
        return;
    }
    memset(out, 0, size);
    memcpy(out, &agreed, sizeof(agreed)); /* `size` is the first member of all of them */
}

void rdmux_fabric_auth_init(struct rdmux_fabric_auth *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_fabric_attr_init(struct rdmux_fabric_attr *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_path_info_init(struct rdmux_path_info *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_cq_attr_init(struct rdmux_cq_attr *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_mr_attr_init(struct rdmux_mr_attr *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_remote_info_init(struct rdmux_remote_info *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_ep_attr_init(struct rdmux_ep_attr *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_listen_attr_init(struct rdmux_listen_attr *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_peer_init(struct rdmux_peer *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_ep_info_init(struct rdmux_ep_info *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_ep_stats_init(struct rdmux_ep_stats *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_srq_attr_init(struct rdmux_srq_attr *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_cq_stats_init(struct rdmux_cq_stats *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_fabric_stats_init(struct rdmux_fabric_stats *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_stream_attr_init(struct rdmux_stream_attr *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}

void rdmux_stream_info_init(struct rdmux_stream_info *out, size_t size)
{
    init_struct(out, size, sizeof(*out));
}
