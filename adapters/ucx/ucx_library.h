/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* UCX's libraries, loaded when a path over them is asked for, not with the plug-in. */
#ifndef RDMUX_ADAPTERS_UCX_LIBRARY_H
#define RDMUX_ADAPTERS_UCX_LIBRARY_H

#include <rdmux/rdmux.h>

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

/* The functions of UCX that this provider calls. */
/* clang-format off */
#define RDMUX_UCX_FUNCTIONS(X)       \
    X(ucp_get_version_string)        \
    X(ucp_config_read)               \
    X(ucp_config_modify)             \
    X(ucp_config_release)            \
    X(ucp_init_version)              \
    X(ucp_cleanup)                   \
    X(ucp_worker_create)             \
    X(ucp_worker_destroy)            \
    X(ucp_worker_query)              \
    X(ucp_worker_release_address)    \
    X(ucp_worker_arm)                \
    X(ucp_worker_progress)           \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create)                 \
    X(ucp_ep_close_nbx)              \
    X(ucp_am_send_nbx)               \
    X(ucp_request_check_status)      \
    X(ucp_request_free)              \
    X(ucs_log_push_handler)          \
    X(ucs_status_string)
/* clang-format on */

struct ucx_calls {
#define RDMUX_UCX_MEMBER(name) __typeof__(name) *name;
    RDMUX_UCX_FUNCTIONS(RDMUX_UCX_MEMBER)
#undef RDMUX_UCX_MEMBER
};

/*
 * Loads UCX, unless that would change this process (adapters/ucx/ucx_environment.h). Sets *out to
 * its functions, which stay: the libraries are never unloaded. Returns RDMUX_REASON_USABLE; else
 * why not, with text and hint of at most RDMUX_TEXT_MAX bytes each. Threads: any. May sleep.
 */
enum rdmux_reason rdmux_ucx_load(const struct ucx_calls **out, char *text, char *hint);

/* UCX prints its errors to the terminal. Once it is loaded here, they are kept for their thread
 * instead. Returns the thread's last one since rdmux_ucx_forget_error(), "" if there is none. */
const char *rdmux_ucx_last_error(void);
void rdmux_ucx_forget_error(void);

#endif
