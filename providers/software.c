/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared implementation of operations for providers without a device. */
#include "api/base/pieces.h"

#include "api/system/system.h"

#include <rdmux/provider.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ----------------------------------------------------------------------------- domains, regions */

enum rdmux_status rdmux_software_domain_open(struct rdmux_provider_domain *domain,
                                             const struct rdmux_local_path *path)
{
    (void)domain;
    (void)path;
    return RDMUX_OK;
}

void rdmux_software_domain_close(struct rdmux_provider_domain *domain)
{
    (void)domain;
}

enum rdmux_status rdmux_software_mr_register(struct rdmux_provider_mr *mr,
                                             const struct rdmux_provider_mr_attr *attr)
{
    (void)mr;
    (void)attr;
    return RDMUX_OK;
}

void rdmux_software_mr_deregister(struct rdmux_provider_mr *mr)
{
    (void)mr;
}

enum rdmux_status rdmux_software_mr_describe(struct rdmux_provider_mr *mr,
                                             struct rdmux_provider_ep *ep, uint8_t *out,
                                             size_t *size)
{
    if (*size < RDMUX_TARGET_KEY_SIZE) {
        rdmux_provider_error("%s: a region's description needs %d bytes", ep->ops->name,
                             RDMUX_TARGET_KEY_SIZE);
        return RDMUX_INVALID;
    }
    rdmux_target_key(mr, out);
    *size = RDMUX_TARGET_KEY_SIZE;
    return RDMUX_OK;
}

enum rdmux_status rdmux_software_mr_invalidate(struct rdmux_provider_mr *mr)
{
    (void)mr; /* every access goes through rdmux_target_enter(), which checks the region */
    return RDMUX_OK;
}

enum rdmux_status rdmux_software_remote_open(struct rdmux_provider_remote *remote,
                                             const uint8_t *description, size_t size)
{
    struct rdmux_software_remote *software = (struct rdmux_software_remote *)remote;
    if (size < RDMUX_TARGET_KEY_SIZE) {
        rdmux_provider_error("%s: the peer described a region in %zu bytes, %d are needed",
                             remote->ep->ops->name, size, RDMUX_TARGET_KEY_SIZE);
        return RDMUX_PROTOCOL;
    }
    memcpy(software->key, description, RDMUX_TARGET_KEY_SIZE);
    return RDMUX_OK;
}

void rdmux_software_remote_close(struct rdmux_provider_remote *remote)
{
    (void)remote;
}

/* ------------------------------------------------------------------------------------------ cqs */

enum rdmux_status rdmux_software_cq_open(struct rdmux_provider_cq *cq, uint32_t depth)
{
    (void)depth;
    int epoll = rdmux_poller_open();
    if (epoll < 0) {
        rdmux_provider_error("%s: epoll: %s; raise the limit on open files", cq->domain->ops->name,
                             strerror(errno));
        return RDMUX_NO_MEMORY;
    }
    ((struct rdmux_software_cq *)cq)->epoll = epoll;
    return RDMUX_OK;
}

void rdmux_software_cq_close(struct rdmux_provider_cq *cq)
{
    rdmux_poller_close(((struct rdmux_software_cq *)cq)->epoll);
}

enum rdmux_status rdmux_software_arm(struct rdmux_provider_cq *cq)
{
    (void)cq;
    return RDMUX_OK;
}

int rdmux_software_fd(struct rdmux_provider_cq *cq)
{
    return ((struct rdmux_software_cq *)cq)->epoll;
}

/* -------------------------------------------------------------------------------- reachability */

/* Reach data, sent in memory layout: a peer with another layout is on another host. */
struct here {
    char boot_id[36];
    uint32_t version;
    uint64_t net_namespace;
};
_Static_assert(sizeof(struct here) == 48, "no holes");

enum { HERE_VERSION = 1 };

void rdmux_software_here(struct rdmux_local_path *path)
{
    struct here here = { .version = HERE_VERSION };
    struct stat net;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, here.boot_id, sizeof(here.boot_id));
    if (fd >= 0) {
        (void)close(fd);
    }
    if (got != (ssize_t)sizeof(here.boot_id) || stat("/proc/self/ns/net", &net) != 0) {
        path->reason = RDMUX_REASON_NO_DEVICE;
        (void)snprintf(path->text, sizeof(path->text), "/proc does not tell which host this is");
        (void)snprintf(path->hint, sizeof(path->hint), "mount -t proc proc /proc");
        return;
    }
    here.net_namespace = net.st_ino;
    path->reason = RDMUX_REASON_USABLE;
    memcpy(path->reach, &here, sizeof(here));
    path->reach_length = sizeof(here);
}

enum rdmux_reason rdmux_software_reach(const uint8_t *ours, size_t ours_length,
                                       const uint8_t *theirs, size_t theirs_length, char *text)
{
    struct here us;
    struct here them;
    if (ours_length != sizeof(us) || theirs_length != sizeof(them)) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the peer's provider is of another version");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    memcpy(&us, ours, sizeof(us));
    memcpy(&them, theirs, sizeof(them));
    if (us.version != them.version) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the peer's provider is of another version");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if (memcmp(us.boot_id, them.boot_id, sizeof(us.boot_id)) != 0) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the peer runs on another host (its boot id differs)");
        return RDMUX_REASON_OTHER_HOST;
    }
    if (us.net_namespace != them.net_namespace) {
        (void)snprintf(text, RDMUX_TEXT_MAX,
                       "the peer is on this host but has another network namespace");
        return RDMUX_REASON_OTHER_NAMESPACE;
    }
    return RDMUX_REASON_NONE;
}

/* ------------------------------------------------------------------------- scatter/gather lists */

void rdmux_software_gather(const struct rdmux_request *request, uint64_t offset, void *out,
                           uint64_t length)
{
    rdmux_gather_list(request->sges, request->sge_count, offset, out, length);
}

void rdmux_software_scatter(const struct rdmux_request *request, uint64_t offset, const void *bytes,
                            uint64_t length)
{
    rdmux_scatter_list(request->sges, request->sge_count, offset, bytes, length);
}
