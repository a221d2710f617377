/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A program that has rdmux and its providers for RDMA adapters linked in.
 *   verbs_user list             prints "PROVIDER SOURCE REASON" of each path
 *   verbs_user connect PROVIDER connects to itself over the provider, and sends itself a message
 */
#include <rdmux/rdmux.h>
#include <rdmux/verbs_plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATHS_MAX = 64, TIMEOUT_MS = 60000 };

static void must(enum rdmux_status status, const char *call)
{
    if (status != RDMUX_OK) {
        (void)fprintf(stderr, "%s: %s: %s\n", call, rdmux_status_name(status), rdmux_last_error());
        exit(1);
    }
}

static struct rdmux_fabric *open_fabric(const char *paths)
{
    static const struct rdmux_plugin *const builtin[] = { &rdmux_verbs_plugin };
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.builtin = builtin;
    attr.builtin_count = 1;
    attr.paths = paths;
    must(rdmux_fabric_open(&attr, &fabric), "rdmux_fabric_open");
    return fabric;
}

static int list(void)
{
    static struct rdmux_path_info paths[PATHS_MAX];
    size_t count = 0;
    struct rdmux_fabric *fabric = open_fabric(NULL);
    for (size_t i = 0; i < PATHS_MAX; i++) {
        paths[i].size = (uint32_t)sizeof(paths[i]);
    }
    must(rdmux_fabric_paths(fabric, paths, PATHS_MAX, &count), "rdmux_fabric_paths");
    for (size_t i = 0; i < count && i < PATHS_MAX; i++) {
        printf("%s %s %s\n", paths[i].provider, paths[i].source,
               rdmux_reason_name((enum rdmux_reason)paths[i].reason));
    }
    must(rdmux_fabric_close(fabric), "rdmux_fabric_close");
    return 0;
}

static void next_entry(struct rdmux_cq *cq, struct rdmux_wc *wc)
{
    size_t count = 0;
    must(rdmux_cq_wait(cq, wc, 1, TIMEOUT_MS, &count), "rdmux_cq_wait");
    must((enum rdmux_status)wc->status, rdmux_wc_opcode_name(wc->opcode));
}

static int connect_to_self(const char *provider)
{
    static const char text[] = "over an adapter";
    char got[sizeof(text)] = "";
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_cq *cq = NULL;
    struct rdmux_listener *listener = NULL;
    struct rdmux_ep *from = NULL;
    struct rdmux_ep *to = NULL;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_wc wc;
    struct rdmux_fabric *fabric = open_fabric(provider);
    attr.path_timeout_ms = TIMEOUT_MS; /* the machine may be busy */
    attr.setup_timeout_ms = TIMEOUT_MS;
    must(rdmux_cq_create(fabric, NULL, &cq), "rdmux_cq_create");
    must(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener), "rdmux_listen");
    must(rdmux_listener_address(listener, address, sizeof(address)), "rdmux_listener_address");
    enum rdmux_status status = rdmux_connect(fabric, cq, address, &attr, 0, &from);
    if (status != RDMUX_IN_PROGRESS) {
        must(status, "rdmux_connect");
    }
    must(rdmux_accept(listener, cq, &attr, TIMEOUT_MS, &to), "rdmux_accept");
    if (status == RDMUX_IN_PROGRESS) {
        next_entry(cq, &wc); /* CONNECTED */
    }
    must(rdmux_recv(to, got, sizeof(got), NULL, NULL), "rdmux_recv");
    must(rdmux_send(from, text, sizeof(text), NULL, NULL, 0), "rdmux_send");
    next_entry(cq, &wc);
    next_entry(cq, &wc);
    must(rdmux_ep_info(from, &info), "rdmux_ep_info");
    printf("%s: %s\n", info.provider, got);
    must(rdmux_ep_close(from), "rdmux_ep_close");
    must(rdmux_ep_close(to), "rdmux_ep_close");
    rdmux_listener_close(listener);
    must(rdmux_cq_destroy(cq), "rdmux_cq_destroy");
    must(rdmux_fabric_close(fabric), "rdmux_fabric_close");
    return strcmp(info.provider, provider) == 0 && strcmp(got, text) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        return list();
    }
    if (argc == 3 && strcmp(argv[1], "connect") == 0) {
        return connect_to_self(argv[2]);
    }
    (void)fprintf(stderr, "usage: verbs_user list | connect PROVIDER\n");
    return 2;
}
