/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * provider_software.h - shared code for providers whose target side is the CPU. Part of
 * provider.h. A provider over a device needs none of it.
 */
#ifndef RDMUX_PROVIDER_SOFTWARE_H
#define RDMUX_PROVIDER_SOFTWARE_H

#include <rdmux/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operations of SRQs that work in software. The core keeps the receives, and
 * rdmux_provider_take_receive() hands them out. The core calls post_recv with NULL and 0 for an
 * endpoint that waited for a receive, so srq_post_recv has nothing to do. */
RDMUX_API enum rdmux_status rdmux_software_srq_open(struct rdmux_provider_srq *srq, uint32_t depth,
                                                    uint32_t max_sge);
RDMUX_API void rdmux_software_srq_close(struct rdmux_provider_srq *srq);
RDMUX_API enum rdmux_status rdmux_software_srq_post_recv(struct rdmux_provider_srq *srq,
                                                         struct rdmux_request *requests,
                                                         size_t count);

/*
 * Operations for providers without a device: all but those that move bytes. Where the target's CPU
 * carries requests out, a region needs nothing but its key, and a domain needs nothing at all. A
 * table that points at these functions has the sizes of these structs, or of structs that begin
 * with them.
 */
struct rdmux_software_remote {
    struct rdmux_provider_remote base;
    uint8_t key[RDMUX_TARGET_KEY_SIZE]; /* as rdmux_target_enter() at the peer takes it */
};

/* A cq on file descriptors. cq_open makes an epoll set, and fd returns it. The provider puts its
 * level-triggered descriptors into the set, and its poll asks the set. So arm has nothing to do. */
struct rdmux_software_cq {
    struct rdmux_provider_cq base;
    int epoll;
    uint32_t spare;
};

RDMUX_API enum rdmux_status rdmux_software_domain_open(struct rdmux_provider_domain *domain,
                                                       const struct rdmux_local_path *path);
RDMUX_API void rdmux_software_domain_close(struct rdmux_provider_domain *domain);
RDMUX_API enum rdmux_status rdmux_software_mr_register(struct rdmux_provider_mr *mr,
                                                       const struct rdmux_provider_mr_attr *attr);
RDMUX_API void rdmux_software_mr_deregister(struct rdmux_provider_mr *mr);
RDMUX_API enum rdmux_status rdmux_software_mr_describe(struct rdmux_provider_mr *mr,
                                                       struct rdmux_provider_ep *ep, uint8_t *out,
                                                       size_t *size);
RDMUX_API enum rdmux_status rdmux_software_mr_invalidate(struct rdmux_provider_mr *mr);
RDMUX_API enum rdmux_status rdmux_software_remote_open(struct rdmux_provider_remote *remote,
                                                       const uint8_t *description, size_t size);
RDMUX_API void rdmux_software_remote_close(struct rdmux_provider_remote *remote);
RDMUX_API enum rdmux_status rdmux_software_cq_open(struct rdmux_provider_cq *cq, uint32_t depth);
RDMUX_API void rdmux_software_cq_close(struct rdmux_provider_cq *cq);
RDMUX_API enum rdmux_status rdmux_software_arm(struct rdmux_provider_cq *cq);
RDMUX_API int rdmux_software_fd(struct rdmux_provider_cq *cq);

/* For paths within one host. rdmux_software_here() sets a path's reason, text, hint and reach
 * bytes. rdmux_software_reach() is the operation reach that belongs to them: it lets two paths talk
 * that have the same running kernel and the same network namespace (abstract sockets have their
 * names there). */
RDMUX_API void rdmux_software_here(struct rdmux_local_path *path);
RDMUX_API enum rdmux_reason rdmux_software_reach(const uint8_t *ours, size_t ours_length,
                                                 const uint8_t *theirs, size_t theirs_length,
                                                 char *text);

/* Copy length bytes out of a request's list (gather) or into it (scatter), from the list's byte
 * offset on. Bytes beyond the end of the list are left out. Any thread. [data path] */
RDMUX_API void rdmux_software_gather(const struct rdmux_request *request, uint64_t offset,
                                     void *out, uint64_t length);
RDMUX_API void rdmux_software_scatter(const struct rdmux_request *request, uint64_t offset,
                                      const void *bytes, uint64_t length);

/*
 * The target side of software providers: checks of bounds, rights and revocation. A region's key
 * goes to the peer within the bytes of mr_describe, and the peer's requests carry it. Between enter
 * and leave the region is neither revoked nor unmapped. A provider only copies there: its work is
 * bounded, and it waits for nothing. One enter at a time per cq. The cq's owner calls these
 * functions, except rdmux_target_key().
 *
 * rdmux_target_key() writes the region's key. Called by mr_register, mr_describe, mr_invalidate.
 */
RDMUX_API void rdmux_target_key(struct rdmux_provider_mr *mr, uint8_t out[RDMUX_TARGET_KEY_SIZE]);
/* Sets *addr to the byte at offset of the region with this key. access: the RDMUX_ACCESS_REMOTE_*
 * that the request needs. RDMUX_DENIED: the key is unknown or revoked, or lacks a right.
 * RDMUX_OUT_OF_RANGE: offset and length go beyond the region. On an error there is no leave. [data
 * path] */
RDMUX_API enum rdmux_status rdmux_target_enter(struct rdmux_provider_ep *ep,
                                               const uint8_t key[RDMUX_TARGET_KEY_SIZE],
                                               uint64_t offset, uint64_t length, uint32_t access,
                                               void **addr);
RDMUX_API void rdmux_target_leave(struct rdmux_provider_ep *ep);
/* Carries out an atomic by the CPU, with system scope; *old gets the value before. op:
 * RDMUX_OP_FETCH_ADD or RDMUX_OP_COMPARE_SWAP. RDMUX_INVALID: the address is not aligned to 8
 * bytes; other errors as rdmux_target_enter(). [data path] */
RDMUX_API enum rdmux_status rdmux_target_atomic(struct rdmux_provider_ep *ep,
                                                const uint8_t key[RDMUX_TARGET_KEY_SIZE],
                                                uint32_t op, uint64_t offset, uint64_t operand,
                                                uint64_t expected, uint64_t *old);

#ifdef __cplusplus
}
#endif

#endif
