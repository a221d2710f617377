/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A shared object that uses rdmux: linked once with librdmux.so, and once with a copy of its own. */
#include "copy.h"

RDMUX_API const struct copy *copy_of_rdmux(void);

const struct copy *copy_of_rdmux(void)
{
    static struct copy copy = {
        .fabric_open = rdmux_fabric_open,
        .fabric_close = rdmux_fabric_close,
        .cq_create = rdmux_cq_create,
        .cq_destroy = rdmux_cq_destroy,
        .cq_wait = rdmux_cq_wait,
        .listen = rdmux_listen,
        .listener_address = rdmux_listener_address,
        .listener_close = rdmux_listener_close,
        .accept = rdmux_accept,
        .connect = rdmux_connect,
        .ep_info = rdmux_ep_info,
        .ep_close = rdmux_ep_close,
        .mr_alloc = rdmux_mr_alloc,
        .mr_addr = rdmux_mr_addr,
        .mr_export = rdmux_mr_export,
        .mr_deregister = rdmux_mr_deregister,
        .remote_import = rdmux_remote_import,
        .send = rdmux_send,
        .recv = rdmux_recv,
        .write = rdmux_write,
        .last_error = rdmux_last_error,
        .status_name = rdmux_status_name,
        .builtin = copy_builtin,
    };
    copy.builtin_count = copy_builtin_count;
    return &copy;
}
