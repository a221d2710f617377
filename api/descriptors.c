/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Descriptors: how many there are, and which strangers go when they run short. */
#include "api/descriptors.h"

#include "api/pending_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SHED_AT_ONCE = 16
}; /* strangers: room for the path of one endpoint, with some data sockets */

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

/* The listener whose strangers of one address or identity are the most. step_lock is held. */
static struct rdmux_listener *most_crowded(struct rdmux_fabric *fabric)
{
    struct rdmux_listener *found = NULL;
    uint32_t most = 0;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->listeners.next; at != &fabric->listeners; at = at->next) {
        struct rdmux_listener *listener = RDMUX_CONTAINER(at, struct rdmux_listener, link);
        if (listener->plain != NULL) {
            continue; /* its calls have no descriptors */
        }
        const struct rdmux_peer_quota *largest = rdmux_peer_quota_largest(listener);
        if (largest != NULL && rdmux_peer_quota_count(largest) > most) {
            found = listener;
            most = rdmux_peer_quota_count(largest);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return found;
}

bool rdmux_descriptors_shed(struct rdmux_fabric *fabric, const char *why)
{
    rdmux_service_lock(fabric); /* strangers and listeners stay */
    struct rdmux_listener *listener = most_crowded(fabric);
    bool shed = listener != NULL && rdmux_pending_drop_one(listener, NULL, why);
    rdmux_service_unlock(fabric);
    return shed;
}

static bool shed_some(struct rdmux_fabric *fabric)
{
    int shed = 0;
    while (shed < SHED_AT_ONCE &&
           rdmux_descriptors_shed(fabric, "descriptors run short, and others are being set up")) {
        shed++;
    }
    return shed != 0;
}

static bool has_listeners(struct rdmux_fabric *fabric)
{
    pthread_mutex_lock(&fabric->lock);
    bool has = !rdmux_list_empty(&fabric->listeners);
    pthread_mutex_unlock(&fabric->lock);
    return has;
}

void rdmux_descriptors_make_room(struct rdmux_fabric *fabric)
{
    if (!has_listeners(fabric)) {
        return;
    }
    const struct rdmux_descriptor_limit limit = rdmux_descriptor_limit();
    int lowest = fcntl(rdmux_service_fd(fabric), F_DUPFD_CLOEXEC, 0);
    if (lowest >= 0) {
        close(lowest);
    }
    if (lowest < 0 || (uint32_t)lowest >= limit.all - limit.reserve / 2) {
        (void)shed_some(fabric);
    }
}

bool rdmux_descriptors_retry(struct rdmux_fabric *fabric, int error)
{
    bool lacks = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    return lacks && has_listeners(fabric) && shed_some(fabric);
}
