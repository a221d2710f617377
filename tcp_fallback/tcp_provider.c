/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The tcp provider's table, and the operations that need no endpoint. */
#include "tcp_fallback/tcp_provider.h"

#include "api/base/stream.h"
#include "tcp_fallback/tcp_change_cq.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_credit.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_figures.h"
#include "tcp_fallback/tcp_send.h"
#include "tcp_fallback/tcp_socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Figures that rank this path among others. They are those of loopback, because the link between
 * two hosts is not known here. Measured over loopback (docs/performance/results.json, rdmux): half
 * a round trip of 8 bytes, polling, takes 4.7 to 5.5 us between two cores (tcp-latency-8) and 1.4
 * to 1.6 us if both sides share a core. Sends of 1 MiB reach 7.3 to 8.9 GB/s (tcp-send-1m), writes
 * 7.7 to 8.9 (tcp-write-1m). */
enum { TCP_LATENCY_NS = 4500 };
static const uint64_t bandwidth = UINT64_C(8000000000);

/* Reads a small file of /proc; "" if it cannot be read. */
static void read_text(const char *path, char *out, size_t size)
{
    out[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    ssize_t got = read(fd, out, size - 1);
    out[got > 0 ? got : 0] = '\0';
    (void)close(fd);
}

static enum rdmux_status tcp_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                   size_t max, size_t *count)
{
    *count = 1;
    if (max == 0) {
        return RDMUX_OK;
    }
    memset(out, 0, sizeof(*out));
    out->reason = RDMUX_REASON_USABLE;
    bool encrypted = rdmux_paths_are_encrypted(fabric);
    (void)snprintf(out->text, sizeof(out->text), "TCP sockets of the kernel%s",
                   encrypted ? ", TLS 1.3 by this process, not by the kernel" : "");
    out->bandwidth = bandwidth;
    out->latency_ns = TCP_LATENCY_NS;
    out->native = RDMUX_CAP_SEND | RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE | RDMUX_CAP_WRITE_IMM |
                  RDMUX_CAP_READ | RDMUX_CAP_PLACED | RDMUX_CAP_SRQ | RDMUX_CAP_FENCE;
    out->emulated = RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP;
    out->max_inline = TCP_COPY_MAX;
    out->security = encrypted ? RDMUX_SECURITY_ENCRYPTED : RDMUX_SECURITY_TOKEN;
    return RDMUX_OK;
}

/* Always reachable: the control channel is a TCP connection between the same two hosts. */
static enum rdmux_reason tcp_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                   size_t theirs_length, char *text)
{
    (void)ours;
    (void)ours_length;
    (void)theirs;
    (void)theirs_length;
    text[0] = '\0';
    return RDMUX_REASON_NONE;
}

static enum rdmux_status tcp_domain_open(struct rdmux_provider_domain *base,
                                         const struct rdmux_local_path *path)
{
    struct tcp_domain *domain = (struct tcp_domain *)base;
    char allowed[256];
    (void)path;
    /* DCTCP is used only if it is loaded and allowed, because setsockopt() would load the
     * module. */
    read_text("/proc/sys/net/ipv4/tcp_allowed_congestion_control", allowed, sizeof(allowed));
    domain->is_dctcp = strstr(allowed, "dctcp") != NULL;
    return RDMUX_OK;
}

static void tcp_domain_close(struct rdmux_provider_domain *domain)
{
    (void)domain;
}

/* --------------------------------------------------------------------------------------- doctor */

typedef void (*report_fn)(void *user, const struct rdmux_provider_finding *finding);

/* Reports a small third number of tcp_rmem or tcp_wmem, which bounds a socket's bytes in flight. */
static void inspect_window(const char *path, const char *remedy, report_fn report, void *user)
{
    enum { WANTED = 4 << 20 };
    char text[128];
    read_text(path, text, sizeof(text));
    unsigned long long least = 0;
    unsigned long long usual = 0;
    unsigned long long most = 0;
    char *end = text;
    least = strtoull(end, &end, 10);
    usual = strtoull(end, &end, 10);
    most = strtoull(end, &end, 10);
    if (least == 0 || usual == 0 || most >= WANTED) {
        return;
    }
    char words[RDMUX_TEXT_MAX];
    (void)snprintf(words, sizeof(words),
                   "a socket's window is at most %llu bytes; fast or long paths need more", most);
    report(user, &(struct rdmux_provider_finding){
                     .severity = RDMUX_LOG_WARN, .object = path, .text = words, .remedy = remedy });
}

static enum rdmux_status tcp_inspect(struct rdmux_fabric *fabric, report_fn report, void *user)
{
    (void)fabric;
    inspect_window("/proc/sys/net/ipv4/tcp_rmem",
                   "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'", report, user);
    inspect_window("/proc/sys/net/ipv4/tcp_wmem",
                   "sysctl -w net.ipv4.tcp_wmem='4096 65536 16777216'", report, user);
    char ecn[16];
    read_text("/proc/sys/net/ipv4/tcp_ecn", ecn, sizeof(ecn));
    if (ecn[0] != '\0' && ecn[0] != '1') {
        report(user, &(struct rdmux_provider_finding){
                         .severity = RDMUX_LOG_INFO,
                         .object = "net.ipv4.tcp_ecn",
                         .text = "this host does not ask for ECN on the connections it opens",
                         .remedy = "sysctl -w net.ipv4.tcp_ecn=1" });
    }
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 4096) {
        char words[RDMUX_TEXT_MAX];
        (void)snprintf(words, sizeof(words),
                       "at most %llu descriptors; an endpoint takes one or more besides its "
                       "control channel's",
                       (unsigned long long)files.rlim_cur);
        report(user, &(struct rdmux_provider_finding){ .severity = RDMUX_LOG_INFO,
                                                       .object = "RLIMIT_NOFILE",
                                                       .text = words,
                                                       .remedy = "ulimit -n 65536" });
    }
    return RDMUX_OK;
}

const struct rdmux_provider_ops rdmux_tcp_provider = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = sizeof(struct rdmux_provider_ops),
    .name = "tcp",
    .flags = RDMUX_PROVIDER_QUICK | RDMUX_PROVIDER_LAST_RESORT,
    .domain_size = sizeof(struct tcp_domain),
    .cq_size = sizeof(struct tcp_cq),
    .ep_size = sizeof(struct tcp_ep),
    .srq_size = sizeof(struct tcp_srq),
    .mr_size = sizeof(struct rdmux_provider_mr),
    .remote_size = sizeof(struct rdmux_software_remote),
    .probe = tcp_probe,
    .reach = tcp_reach,
    .domain_open = tcp_domain_open,
    .domain_close = tcp_domain_close,
    .async_event = rdmux_unsupported_async_event,
    .domain_fd = rdmux_unsupported_domain_fd,
    .inspect = tcp_inspect,
    .mr_register = rdmux_software_mr_register,
    .mr_deregister = rdmux_software_mr_deregister,
    .mr_describe = rdmux_software_mr_describe,
    .mr_invalidate = rdmux_software_mr_invalidate,
    .cq_open = rdmux_tcp_cq_open,
    .cq_close = rdmux_tcp_cq_close,
    .poll = rdmux_tcp_poll,
    .arm = rdmux_tcp_arm,
    .fd = rdmux_tcp_fd,
    .ep_open = rdmux_tcp_ep_open,
    .ep_describe = rdmux_tcp_ep_describe,
    .ep_connect = rdmux_tcp_ep_connect,
    .ep_join = rdmux_tcp_ep_join,
    .ep_control = rdmux_tcp_ep_control,
    .ep_ping = rdmux_tcp_ep_ping,
    .ep_quiesce = rdmux_tcp_ep_quiesce,
    .ep_close = rdmux_tcp_ep_close,
    .post = rdmux_tcp_post,
    .doorbell = rdmux_tcp_doorbell,
    .post_recv = rdmux_tcp_post_recv,
    .srq_open = rdmux_tcp_srq_open,
    .srq_close = rdmux_tcp_srq_close,
    .srq_post_recv = rdmux_tcp_srq_post_recv,
    .remote_open = rdmux_software_remote_open,
    .remote_close = rdmux_software_remote_close,
    .ep_leave = rdmux_tcp_ep_leave,
    .ep_enter = rdmux_tcp_ep_enter,
    .ep_figures = rdmux_tcp_ep_figures,
};
