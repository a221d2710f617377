/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Every public header in one program in C++, and what their macros expand to. */
#include <rdmux/provider.h>
#include <rdmux/provider_fast_path.h>
#include <rdmux/provider_rdmacm.h>
#include <rdmux/provider_software.h>
#include <rdmux/rdmux.h>
#include <rdmux/stream.h>
#include <rdmux/verbs_plugin.h>

int main()
{
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    struct rdmux_fabric_attr fabric = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_path_info path = RDMUX_PATH_INFO_INIT;
    struct rdmux_fabric_stats fabric_stats = RDMUX_FABRIC_STATS_INIT;
    struct rdmux_cq_attr cq = RDMUX_CQ_ATTR_INIT;
    struct rdmux_cq_stats cq_stats = RDMUX_CQ_STATS_INIT;
    struct rdmux_mr_attr mr = RDMUX_MR_ATTR_INIT;
    struct rdmux_remote_info remote = RDMUX_REMOTE_INFO_INIT;
    struct rdmux_ep_attr ep = RDMUX_EP_ATTR_INIT;
    struct rdmux_listen_attr listen = RDMUX_LISTEN_ATTR_INIT;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    struct rdmux_srq_attr srq = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_stream_attr stream = RDMUX_STREAM_ATTR_INIT;
    struct rdmux_stream_info stream_info = RDMUX_STREAM_INFO_INIT;
    return auth.size + fabric.size + path.size + fabric_stats.size + cq.size + cq_stats.size +
                       mr.size + remote.size + ep.size + listen.size + peer.size + info.size +
                       stats.size + srq.size + stream.size + stream_info.size ==
                   0
               ? 1
               : 0;
}
