/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Descriptor limit and reserve, and the dropping of pending connections. */
#include "api/loop/descriptors.h"

#include "api/base/hooks.h"
#include "api/loop/service.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SHED_AT_ONCE = 16
}; /* pending connections: room for the path of one endpoint, with some data sockets */

struct rdmux_descriptor_limit rdmux_descriptor_limit(void)
{
    struct rlimit rlimit = { .rlim_cur = RLIM_INFINITY };
    (void)getrlimit(RLIMIT_NOFILE, &rlimit);
    const uint32_t all = rlimit.rlim_cur > INT_MAX ? INT_MAX : (uint32_t)rlimit.rlim_cur;
    const uint32_t share = all / RDMUX_RESERVE_SHARE;
    return (struct rdmux_descriptor_limit){
        .all = all,
        .reserve = share < RDMUX_RESERVE_MAX ? share : RDMUX_RESERVE_MAX,
    };
}

typedef bool shed_hook(struct rdmux_fabric *fabric, const char *why);

static shed_hook *hook_of(struct rdmux_fabric *fabric)
{
    return atomic_load_explicit(&rdmux_hooks_of(fabric)->shed, memory_order_acquire);
}

static bool shed_some(struct rdmux_fabric *fabric, shed_hook *shed)
{
    int count = 0;
    while (count < SHED_AT_ONCE &&
           shed(fabric, "descriptors run short, and others are being set up")) {
        count++;
    }
    return count != 0;
}

void rdmux_descriptors_make_room(struct rdmux_fabric *fabric)
{
    shed_hook *shed = hook_of(fabric);
    if (shed == NULL) {
        return;
    }
    const struct rdmux_descriptor_limit limit = rdmux_descriptor_limit();
    int lowest = fcntl(rdmux_service_wake_fd(fabric), F_DUPFD_CLOEXEC, 0);
    if (lowest >= 0) {
        close(lowest);
    }
    if (lowest < 0 || (uint32_t)lowest >= limit.all - limit.reserve / 2) {
        (void)shed_some(fabric, shed);
    }
}

bool rdmux_descriptors_retry(struct rdmux_fabric *fabric, int error)
{
    bool lacks = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    shed_hook *shed = hook_of(fabric);
    return lacks && shed != NULL && shed_some(fabric, shed);
}
