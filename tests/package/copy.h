/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* One copy of rdmux as two_copies.c calls it: the functions by pointers, as two copies have the
 * same names. */
#ifndef RDMUX_TESTS_PACKAGE_COPY_H
#define RDMUX_TESTS_PACKAGE_COPY_H

#include <rdmux/rdmux.h>

struct copy {
    enum rdmux_status (*fabric_open)(const struct rdmux_fabric_attr *attr,
                                     struct rdmux_fabric **out);
    enum rdmux_status (*fabric_close)(struct rdmux_fabric *fabric);
    enum rdmux_status (*cq_create)(struct rdmux_fabric *fabric, const struct rdmux_cq_attr *attr,
                                   struct rdmux_cq **out);
    enum rdmux_status (*cq_destroy)(struct rdmux_cq *cq);
    enum rdmux_status (*cq_wait)(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max,
                                 int timeout_ms, size_t *count);
    enum rdmux_status (*listen)(struct rdmux_fabric *fabric, const char *address,
                                const struct rdmux_listen_attr *attr, struct rdmux_listener **out);
    enum rdmux_status (*listener_address)(struct rdmux_listener *listener, char *out, size_t size);
    void (*listener_close)(struct rdmux_listener *listener);
    enum rdmux_status (*accept)(struct rdmux_listener *listener, struct rdmux_cq *cq,
                                const struct rdmux_ep_attr *attr, int timeout_ms,
                                struct rdmux_ep **out);
    enum rdmux_status (*connect)(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                 const char *address, const struct rdmux_ep_attr *attr,
                                 int timeout_ms, struct rdmux_ep **out);
    enum rdmux_status (*ep_info)(struct rdmux_ep *ep, struct rdmux_ep_info *out);
    enum rdmux_status (*ep_close)(struct rdmux_ep *ep);
    enum rdmux_status (*mr_alloc)(struct rdmux_fabric *fabric, size_t length, uint32_t access,
                                  struct rdmux_mr **out);
    void *(*mr_addr)(const struct rdmux_mr *mr);
    enum rdmux_status (*mr_export)(struct rdmux_mr *mr, struct rdmux_token *out);
    void (*mr_deregister)(struct rdmux_mr *mr);
    enum rdmux_status (*remote_import)(struct rdmux_ep *ep, const struct rdmux_token *token,
                                       int timeout_ms, struct rdmux_remote **out);
    enum rdmux_status (*send)(struct rdmux_ep *ep, const void *buf, size_t length,
                              struct rdmux_mr *mr, void *context, uint32_t flags);
    enum rdmux_status (*recv)(struct rdmux_ep *ep, void *buf, size_t length, struct rdmux_mr *mr,
                              void *context);
    enum rdmux_status (*write)(struct rdmux_ep *ep, const void *buf, size_t length,
                               struct rdmux_mr *mr, struct rdmux_remote *remote, uint64_t offset,
                               void *context, uint32_t flags);
    const char *(*last_error)(void);
    const char *(*status_name)(enum rdmux_status status);
    const struct rdmux_plugin *const *builtin;
    size_t builtin_count;
};

/* What the shared objects export; two_copies.c finds it by dlsym(3). */
typedef const struct copy *(*copy_fn)(void);
#define COPY_SYMBOL "copy_of_rdmux"

/* The plug-ins of a copy. */
extern const struct rdmux_plugin *const copy_builtin[];
extern const size_t copy_builtin_count;

#endif
