/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Processes at the other end, and heartbeat groups: endpoints to one process at one address that
 * share one heartbeat. */
#include "api/object/peer_process.h"

#include "api/base/bytes.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/system/system.h"
#include "negotiation/control_channel.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* The link at which a peer with this id is, or may be added. Ids are random, so that chains are short
 * however many peers there are. fabric->lock is held. */
static struct rdmux_peer_process **link_of(struct rdmux_fabric *fabric,
                                           const uint8_t id[RDMUX_PROCESS_ID_SIZE])
{
    struct rdmux_peer_process **at = &fabric->peer_buckets[rdmux_load_be64(id) % RDMUX_PEER_BUCKETS];
    while (*at != NULL && memcmp((*at)->id, id, sizeof((*at)->id)) != 0) {
        at = &(*at)->next;
    }
    return at;
}

static struct rdmux_peer_process *get_peer(struct rdmux_fabric *fabric,
                                           const uint8_t id[RDMUX_PROCESS_ID_SIZE])
{
    struct rdmux_peer_process *fresh = rdmux_allocate(fabric, sizeof(*fresh));
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_peer_process **at = link_of(fabric, id);
    if (*at == NULL && fresh != NULL) {
        memcpy(fresh->id, id, sizeof(fresh->id));
        rdmux_list_init(&fresh->heartbeat_groups);
        *at = fresh;
        fresh = NULL;
    }
    struct rdmux_peer_process *found = *at;
    if (found != NULL) {
        found->refs++;
        atomic_store(&found->heard_ns, rdmux_now(fabric));
    }
    pthread_mutex_unlock(&fabric->lock);
    rdmux_release(fabric, fresh);
    return found;
}

static void put_peer(struct rdmux_fabric *fabric, struct rdmux_peer_process *peer)
{
    pthread_mutex_lock(&fabric->lock);
    bool last = --peer->refs == 0;
    if (last) {
        *link_of(fabric, peer->id) = peer->next;
    }
    pthread_mutex_unlock(&fabric->lock);
    if (last) {
        rdmux_release(fabric, peer);
    }
}

static void free_peer(struct rdmux_fabric *fabric, struct rdmux_peer_process *peer)
{
    while (!rdmux_list_empty(&peer->heartbeat_groups)) {
        struct rdmux_heartbeat_group *group = RDMUX_CONTAINER(peer->heartbeat_groups.next,
                                                              struct rdmux_heartbeat_group, link);
        rdmux_list_remove(&group->link);
        rdmux_release(fabric, group);
    }
    rdmux_release(fabric, peer);
}

void rdmux_peers_free(struct rdmux_fabric *fabric)
{
    for (size_t i = 0; i < RDMUX_PEER_BUCKETS; i++) {
        while (fabric->peer_buckets[i] != NULL) {
            struct rdmux_peer_process *peer = fabric->peer_buckets[i];
            fabric->peer_buckets[i] = peer->next;
            free_peer(fabric, peer);
        }
    }
}

/* Fills the address of the process at the other end of a socket, as the kernel knows it. For kinds
 * of sockets without a known address, the endpoint is alone in its group. */
static void find_from(int socket, uint64_t ep_id, uint8_t from[RDMUX_HEARTBEAT_GROUP_KEY_SIZE])
{
    struct sockaddr_storage address = { .ss_family = AF_UNSPEC };
    socklen_t length = sizeof(address);
    memset(from, 0, RDMUX_HEARTBEAT_GROUP_KEY_SIZE);
    (void)getpeername(socket, (struct sockaddr *)&address, &length);
    from[0] = (uint8_t)address.ss_family;
    if (address.ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, &address, sizeof(in));
        memcpy(from + 1, &in.sin_addr, sizeof(in.sin_addr));
        return;
    }
    if (address.ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &address, sizeof(in6));
        memcpy(from + 1, &in6.sin6_addr, sizeof(in6.sin6_addr));
        memcpy(from + 1 + sizeof(in6.sin6_addr), &in6.sin6_scope_id, sizeof(in6.sin6_scope_id));
        return;
    }
    if (address.ss_family == AF_UNIX && rdmux_socket_peer(socket, from + 1) == 0) {
        return;
    }
    from[0] = AF_UNSPEC;
    memcpy(from + 1, &ep_id, sizeof(ep_id));
}

/* Returns the heartbeat group of an endpoint with a peer and a channel. NULL: out of memory. */
static struct rdmux_heartbeat_group *get_group(struct rdmux_ep *ep)
{
    struct rdmux_heartbeat_group *fresh = rdmux_allocate(ep->fabric, sizeof(*fresh));
    if (fresh == NULL) {
        return NULL;
    }
    const char *identity = rdmux_channel_identity(ep->channel);
    find_from(rdmux_channel_socket(ep->channel), ep->id, fresh->from);
    memcpy(fresh->identity, identity, strnlen(identity, sizeof(fresh->identity) - 1));
    struct rdmux_heartbeat_group *found = NULL;
    pthread_mutex_lock(&ep->fabric->lock);
    struct rdmux_list *list = &ep->process.peer->heartbeat_groups;
    for (struct rdmux_list *at = list->next; at != list && found == NULL; at = at->next) {
        struct rdmux_heartbeat_group *group = RDMUX_CONTAINER(at, struct rdmux_heartbeat_group,
                                                              link);
        bool same = memcmp(group->from, fresh->from, sizeof(group->from)) == 0 &&
                    strcmp(group->identity, fresh->identity) == 0;
        found = same ? group : NULL;
    }
    if (found == NULL) {
        found = fresh;
        fresh = NULL;
        rdmux_list_append(list, &found->link);
    }
    found->refs++;
    pthread_mutex_unlock(&ep->fabric->lock);
    rdmux_release(ep->fabric, fresh);
    return found;
}

static void put_group(struct rdmux_fabric *fabric, struct rdmux_heartbeat_group *group)
{
    pthread_mutex_lock(&fabric->lock);
    bool last = --group->refs == 0;
    if (last) {
        rdmux_list_remove(&group->link);
    }
    pthread_mutex_unlock(&fabric->lock);
    if (last) {
        rdmux_release(fabric, group);
    }
}

bool rdmux_peer_join(struct rdmux_ep *ep, const uint8_t id[RDMUX_PROCESS_ID_SIZE])
{
    ep->process.peer = get_peer(ep->fabric, id);
    ep->process.heartbeat_group = ep->process.peer == NULL ? NULL : get_group(ep);
    return ep->process.heartbeat_group != NULL;
}

void rdmux_peer_leave(struct rdmux_ep *ep)
{
    if (ep->process.heartbeat_group != NULL) {
        put_group(ep->fabric, ep->process.heartbeat_group);
        ep->process.heartbeat_group = NULL;
    }
    if (ep->process.peer != NULL) {
        put_peer(ep->fabric, ep->process.peer);
        ep->process.peer = NULL;
    }
}

void rdmux_heartbeat_group_renew(struct rdmux_ep *ep)
{
    struct rdmux_heartbeat_group *group = get_group(ep);
    if (group != NULL) { /* else it stays in the group of the old address */
        put_group(ep->fabric, ep->process.heartbeat_group);
        ep->process.heartbeat_group = group;
    }
}
