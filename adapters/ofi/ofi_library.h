/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* libfabric, opened when it is first needed: a process that uses no path of it does not load it. */
#ifndef RDMUX_OFI_LIBRARY_H
#define RDMUX_OFI_LIBRARY_H

#include <rdmux/provider.h>

#include <rdma/fabric.h>

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions that libfabric exports; all others are called through objects. */
struct ofi_library {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    uint32_t (*version)(void);
    const char *(*strerror)(int error);
    int (*open)(uint32_t version, const char *name, void *attr, size_t attr_size, uint64_t flags,
                struct fid **fid, void *context);
};

/* Returns libfabric, which is loaded at the first call and never unloaded. NULL: it cannot be
 * loaded, and why is in `text`, of RDMUX_TEXT_MAX bytes. The process is as it was, whatever
 * libfabric and the libraries below it do when they are loaded: dispositions of signals are put
 * back. Any thread. [may sleep] */
const struct ofi_library *rdmux_ofi_library(char *text);

/* fi_getinfo(), which also initialises libfabric's providers, with the same promise. */
int rdmux_ofi_getinfo(const struct ofi_library *library, const struct fi_info *hints,
                      struct fi_info **info);

/* Keeps libfabric from caching registrations: to see memory come and go, it patches mmap() and its
 * like in libc while a domain with such a cache is open. Afterwards no registration of this process
 * is cached, unless the program has given libfabric a monitor of memory, or has such a domain open
 * already: then nothing changes. To be called before fi_domain(). Returns 0, or libfabric's error.
 * Any thread. [may sleep] */
int rdmux_ofi_forbid_caches(const struct ofi_library *library);

/* Blocks all signals, for calls of libfabric that may start a thread (the provider sockets has three
 * for each domain): it inherits that, and takes no signal of the program. */
void rdmux_ofi_block_signals(sigset_t *before);
void rdmux_ofi_unblock_signals(const sigset_t *before);

/* The dispositions of all signals. The provider shm installs handlers when its first endpoint
 * opens; calls of libfabric that may do so stand between the two. Signals are blocked meanwhile. */
struct ofi_dispositions {
    struct sigaction of[NSIG];
    bool is_known[NSIG];
    sigset_t mask;
};
void rdmux_ofi_remember(struct ofi_dispositions *all);
void rdmux_ofi_put_back(const struct ofi_dispositions *all);

#endif
