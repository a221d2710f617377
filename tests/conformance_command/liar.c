/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Preloaded: a library that breaks its promise now and then. Of a long write with PLACED the last
 * byte is missing. */
#include <rdmux/rdmux.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

enum { LONG = 3000 };

typedef enum rdmux_status write_function(struct rdmux_ep *ep, const void *buf, size_t length,
                                         struct rdmux_mr *mr, struct rdmux_remote *remote,
                                         uint64_t offset, void *context, uint32_t flags);

RDMUX_API enum rdmux_status rdmux_write(struct rdmux_ep *ep, const void *buf, size_t length,
                                        struct rdmux_mr *mr, struct rdmux_remote *remote,
                                        uint64_t offset, void *context, uint32_t flags)
{
    void *symbol = dlsym(RTLD_NEXT, "rdmux_write");
    write_function *honest = NULL;
    memcpy(&honest, &symbol, sizeof(honest));
    bool lies = length > LONG && (flags & RDMUX_PLACED) != 0;
    return honest(ep, buf, lies ? length - 1 : length, mr, remote, offset, context, flags);
}
